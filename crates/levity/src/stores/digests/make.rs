//! Finds digests, or makes them.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use levity_compute::Class;
use levity_disk::{Meta, OpenFile};
use levity_wire::digest::{self, Algorithm};
use sha2::{Digest as _, Sha256, Sha512};

use super::store::{Digest, DigestStore, Key};
use crate::files::disk_client::read_version;
use crate::files::entry::{Content, Entry};
use crate::http::filter::JOB_BYTES;
use crate::loop_core::compute::Compute;
use crate::loop_core::{self, LoopCore};

/// The maximum number of files that are read at a time, over all workers.
pub(super) const MAKING_MAX: usize = 2;

/// The size of a read in bytes.
const READ_BYTES: usize = 256 * 1024;

/// The processor time in nanoseconds per byte, without instructions for it.
const NS_PER_BYTE: u32 = 5;

/// No response waits for a computing thread longer than this.
const WAIT_MAX: Duration = Duration::from_millis(25);

/// The client number of idle work, which no connection has.
const IDLE_STREAM: u64 = u64::MAX;

/// A digest that is being made. Dropped also when its task is.
struct Making {
    store: Arc<DigestStore>,
    key: Key,
}

impl Drop for Making {
    fn drop(&mut self) {
        self.store.making().remove(&self.key);
    }
}

/// The state of a hash.
enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha256 => Self::Sha256(Sha256::new()),
            Algorithm::Sha512 => Self::Sha512(Sha512::new()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    fn finish(self) -> Digest {
        match self {
            Self::Sha256(hasher) => Digest::new(&hasher.finalize()),
            Self::Sha512(hasher) => Digest::new(&hasher.finalize()),
        }
    }
}

impl DigestStore {
    /// The value of Repr-Digest for the content of `entry`; `None` if the digest is unknown.
    pub async fn value(
        self: &Arc<Self>,
        core: &Rc<LoopCore>,
        entry: &Arc<Entry>,
        algorithm: Algorithm,
        stream: u64,
    ) -> Option<String> {
        let digest = self.digest(core, entry, algorithm, stream).await?;
        Some(digest::value(algorithm, digest.as_ref()))
    }

    /// The ETag for the content of `entry`; `None` if the digest is unknown.
    pub async fn etag(
        self: &Arc<Self>,
        core: &Rc<LoopCore>,
        entry: &Arc<Entry>,
        stream: u64,
    ) -> Option<String> {
        let digest = self.digest(core, entry, Algorithm::Sha256, stream).await?;
        Some(digest::etag(digest.as_ref()))
    }

    /// The digest of the content of `entry`. If it is unknown, it is made: at once for content in memory, for the
    /// connection `stream`; otherwise it is begun.
    async fn digest(
        self: &Arc<Self>,
        core: &Rc<LoopCore>,
        entry: &Arc<Entry>,
        algorithm: Algorithm,
        stream: u64,
    ) -> Option<Digest> {
        let bytes_max = core.config().config.limits.digest_bytes;
        // A file that was modified a moment ago may have other content with the same metadata.
        if !entry.strong || entry.meta.size > bytes_max as u64 {
            return None;
        }
        let key = Key::new(&entry.meta, algorithm);
        if let Some(digest) = self.kept.get(&key) {
            return Some(digest);
        }
        let digest = hash_memory(&core.compute, entry, algorithm, stream).await;
        match digest {
            Some(digest) => self.kept.insert(key, digest),
            None => self.begin(core, entry, key),
        }
        digest
    }

    /// Begins to make the digest of a file, unless that is being done, or enough others are.
    fn begin(self: &Arc<Self>, core: &Rc<LoopCore>, entry: &Entry, key: Key) {
        let mut in_progress = self.making();
        if in_progress.len() >= MAKING_MAX || !in_progress.insert(key) {
            return;
        }
        drop(in_progress);
        let making = Making {
            store: self.clone(),
            key,
        };
        let file = entry.content.file();
        let (core, file, meta) = (core.clone(), file.clone(), entry.meta);
        loop_core::spawn(async move {
            // A failure of the disk is reported where the file is sent. The next request tries again.
            if let Ok(Some(digest)) = hash_file(&core, &file, &meta, key.algorithm).await {
                making.store.kept.insert(key, digest);
            }
        });
    }
}

/// The digest of content in memory; `None` for a file, or if a computing thread would take too long.
async fn hash_memory(
    compute: &Compute,
    entry: &Arc<Entry>,
    algorithm: Algorithm,
    stream: u64,
) -> Option<Digest> {
    let Content::Memory(bytes, _) = &entry.content else {
        return None;
    };
    let length = bytes.len();
    let mut hasher = Hasher::new(algorithm);
    for start in (0..length).step_by(JOB_BYTES) {
        if compute.pool.wait_estimate(Class::Response) > WAIT_MAX {
            return None;
        }
        let entry = entry.clone();
        let range = start..length.min(start + JOB_BYTES);
        let hashed = compute.run(Class::Response, stream, cost(range.len()), move || {
            if let Content::Memory(bytes, _) = &entry.content {
                hasher.update(&bytes[range]);
            }
            hasher
        });
        hasher = hashed.await.ok()?.value;
    }
    Some(hasher.finish())
}

/// The digest of a file, which is read; `None` if it is no longer of the version of `meta`.
async fn hash_file(
    core: &LoopCore,
    file: &Arc<OpenFile>,
    meta: &Meta,
    algorithm: Algorithm,
) -> io::Result<Option<Digest>> {
    let mut hasher = Hasher::new(algorithm);
    let mut offset = 0;
    while offset < meta.size {
        let Some(bytes) = read_version(core, file, meta, offset, READ_BYTES).await? else {
            return Ok(None);
        };
        offset += bytes.len() as u64;
        for piece in bytes.chunks(JOB_BYTES) {
            let piece = piece.to_vec();
            let compute = &core.compute;
            let hashed = compute.run(Class::Idle, IDLE_STREAM, cost(piece.len()), move || {
                hasher.update(&piece);
                hasher
            });
            let Ok(hashed) = hashed.await else {
                return Ok(None);
            };
            hasher = hashed.value;
        }
    }
    Ok(Some(hasher.finish()))
}

fn cost(bytes: usize) -> Duration {
    Duration::from_nanos(bytes as u64 * u64::from(NS_PER_BYTE))
}
