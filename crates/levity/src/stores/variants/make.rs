//! Makes the files of the store: reads the original, computes while a processor is idle, and writes the result.

use std::cell::RefCell;
use std::io;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use levity_compute::Class;
use levity_disk::{Meta, OpenFile};
use levity_telemetry::diagnostics;
use levity_wire::dictionary::{self, Digest};
use levity_wire::encoding::Coding;
use sha2::{Digest as _, Sha256};

use super::candidates::Candidates;
use super::name::{Kind, Name, Resource, Stored};
use super::storage::Storage;
use super::store::{MAKING_MAX, PAUSE, STORE_SHARE, VariantStore, lock};
use crate::files::disk_client::read_version;
use crate::files::entry::Entry;
use crate::filter::compress::{Encoder, Settings};
use crate::loop_core::compute::DroppedInPool;
use crate::loop_core::{self, LoopCore};

/// The size of a read in bytes.
const READ_BYTES: usize = 256 * 1024;

/// The maximum number of bytes that one job compresses.
const JOB_BYTES: usize = 16 * 1024;

/// The size of a write in bytes.
const WRITE_BYTES: usize = 128 * 1024;

/// The maximum size in bytes of a file that becomes a dictionary, and of one whose delta is made: to prepare such
/// a dictionary is one job of 60 ms.
pub const DICTIONARY_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Content in a coding is kept if it is at most this share of the original, in percent.
const SIZE_PERCENT_MAX: u64 = 95;

/// The maximum number of bytes that are copied as dictionaries in [`COPY_TIME`]: a client that requests many files must
/// not keep the disk busy.
const COPY_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// See [`COPY_BYTES_MAX`].
const COPY_TIME: Duration = Duration::from_secs(60);

/// A file that was modified later becomes no dictionary: it may be written anew all the time, and its versions would fill
/// the store.
const AGE_MIN: Duration = Duration::from_secs(60);

/// The processor time for a digest, in nanoseconds per byte, without instructions for it.
const DIGEST_NS_PER_BYTE: u32 = 5;

/// The client number of all idle work, which no connection has.
const IDLE_STREAM: u64 = u64::MAX;

/// What to make of an original.
#[derive(Debug, Clone, Copy)]
pub enum Wanted {
    /// The content in a coding.
    Variant(Coding),
    /// Its delta from a dictionary of the store, which has this digest.
    Delta(Coding, Digest, Stored),
    /// The content as it is, as a dictionary for later versions.
    Dictionary(Resource),
}

impl Wanted {
    /// The name of the result.
    pub fn name(self, original: &Meta) -> Name {
        match self {
            Self::Variant(coding) => Name::of(original, coding),
            Self::Delta(coding, digest, _) => Name::of_delta(original, coding, digest),
            Self::Dictionary(resource) => Name::of_dictionary(original, resource),
        }
    }

    /// The maximum size of the original in bytes.
    fn original_bytes_max(self, store: &VariantStore) -> u64 {
        let share = store.bytes_max() / STORE_SHARE;
        match self {
            Self::Variant(_) => share,
            Self::Delta(..) | Self::Dictionary(_) => share.min(DICTIONARY_BYTES_MAX),
        }
    }
}

/// The settings of the encoder. With a dictionary, higher levels of zstd find hardly more and take ten times as long to
/// prepare it.
fn settings(coding: Coding, length: u64) -> Settings {
    let level = match coding {
        Coding::Zstd => 19,
        Coding::Dcz => 12,
        Coding::Brotli | Coding::Dcb => 11,
        Coding::Gzip => 9,
    };
    Settings {
        coding,
        level,
        length: Some(length),
        ample: true,
    }
}

/// Why nothing was made.
enum Failure {
    /// The disk of the original or of the store.
    Disk(io::Error),
    /// The original changed: nothing is to be done about it.
    GivenUp,
    /// There is no encoder for these settings and this dictionary.
    Encoder,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

/// A file that is being made. Dropped also when its task is.
struct Making {
    store: Arc<VariantStore>,
    name: Name,
}

impl Drop for Making {
    fn drop(&mut self) {
        lock(&self.store.making).remove(&self.name);
    }
}

impl VariantStore {
    /// Counts a request that would have been answered with what is `wanted` of `original`, and begins to make it if
    /// there are many. Does not wait.
    pub fn requested(
        self: &Arc<Self>,
        (core, candidates): (&Rc<LoopCore>, &RefCell<Candidates>),
        original: &Entry,
        wanted: Wanted,
    ) {
        let name = wanted.name(&original.meta);
        let is_wanted = original.strong
            && original.meta.size <= wanted.original_bytes_max(self)
            && !self.index.knows(name)
            && candidates.borrow_mut().count(name, Instant::now())
            && !self.is_paused();
        if !is_wanted {
            return;
        }
        let Some(making) = self.begin(name) else {
            return;
        };
        if matches!(wanted, Wanted::Dictionary(_)) && !self.may_copy(&original.meta) {
            return;
        }
        let file = original.content.file();
        let (core, file, meta) = (core.clone(), file.clone(), original.meta);
        loop_core::spawn(async move {
            let store = &making.store;
            let storage = Storage { core: &core, store };
            let task = Task {
                storage,
                file,
                meta,
            };
            if let Err(Failure::Disk(error)) = task.run(wanted).await {
                store.pause(&error);
            }
        });
    }

    fn begin(self: &Arc<Self>, name: Name) -> Option<Making> {
        let mut making = lock(&self.making);
        let begins = making.len() < MAKING_MAX && making.insert(name);
        begins.then(|| Making {
            store: self.clone(),
            name,
        })
    }

    /// Whether a file may be copied, which then counts as done.
    fn may_copy(&self, original: &Meta) -> bool {
        let seconds = u64::try_from(original.mtime_s).unwrap_or(0);
        let modified = UNIX_EPOCH + Duration::from_secs(seconds);
        let age = SystemTime::now().duration_since(modified);
        let (since, bytes) = &mut *lock(&self.copied);
        if since.elapsed() > COPY_TIME {
            (*since, *bytes) = (Instant::now(), 0);
        }
        let may_copy =
            age.is_ok_and(|age| age >= AGE_MIN) && *bytes + original.size <= COPY_BYTES_MAX;
        if may_copy {
            *bytes += original.size;
        }
        may_copy
    }

    /// Whether a failure was too short ago.
    pub(super) fn is_paused(&self) -> bool {
        let until = Duration::from_millis(self.paused_until_ms.load(Ordering::Relaxed));
        self.started.elapsed() < until
    }

    fn pause(&self, error: &io::Error) {
        let until = self.started.elapsed() + PAUSE;
        self.paused_until_ms
            .store(until.as_millis() as u64, Ordering::Relaxed);
        let folder = self.folder().display();
        diagnostics::log(format_args!(
            "cannot keep a compressed file in {folder} (`disk.variants`): {error}; the next attempt is in {} s",
            PAUSE.as_secs()
        ));
    }
}

/// One file on its way.
struct Task<'t> {
    storage: Storage<'t>,
    /// The original.
    file: Arc<OpenFile>,
    /// Its metadata; the content must stay of this version.
    meta: Meta,
}

impl Task<'_> {
    async fn run(&self, wanted: Wanted) -> Result<(), Failure> {
        let name = wanted.name(&self.meta);
        self.storage.check_space(self.meta.size).await?;
        let file = self.storage.create().await?;
        let (kind, made) = match wanted {
            Wanted::Variant(coding) => {
                let compressed = self.compress(coding, None, &file);
                (Kind::Coded(coding), compressed.await)
            }
            Wanted::Delta(coding, digest, dictionary) => {
                let content = self.dictionary(dictionary, digest).await?;
                let compressed = self.compress(coding, Some((digest, content)), &file);
                (Kind::Coded(coding), compressed.await)
            }
            Wanted::Dictionary(resource) => {
                let digest = self.copy(&file).await?;
                let digest = Name::of_digest(resource, digest);
                (Kind::Dictionary(digest), Ok(self.meta.size))
            }
        };
        let stored = Stored { name, kind };
        match made {
            // It would fail again.
            Err(Failure::Encoder) => self.forget(stored).await,
            made => self.keep(file, stored, made?).await,
        }
    }

    /// Records that there is no use in making this file.
    async fn forget(&self, stored: Stored) -> Result<(), Failure> {
        let displaced = self.storage.store.index.add(stored, None);
        self.remove(displaced).await.map_err(Failure::Disk)
    }

    async fn remove(&self, displaced: Vec<Stored>) -> io::Result<()> {
        let mut outcome = Ok(());
        for stored in displaced {
            outcome = self.storage.remove(stored).await.and(outcome);
        }
        outcome
    }

    /// Publishes `file` of so many bytes, if it is useful, and removes what has to give way.
    async fn keep(&self, file: Arc<OpenFile>, stored: Stored, bytes: u64) -> Result<(), Failure> {
        let is_useful = matches!(stored.kind, Kind::Dictionary(_))
            || bytes * 100 <= self.meta.size * SIZE_PERCENT_MAX;
        if !is_useful {
            return self.forget(stored).await;
        }
        self.storage.publish(file, stored).await?;
        // From here on its file counts, whatever fails.
        let displaced = self.storage.store.index.add(stored, Some(bytes));
        let synced = self.storage.sync_folder().await;
        let removed = self.remove(displaced).await;
        synced.and(removed).map_err(Failure::Disk)
    }

    /// An encoder that refers to `dictionary`, which may be empty.
    async fn encoder(
        &self,
        settings: Settings,
        dictionary: DroppedInPool<Vec<u8>>,
    ) -> Result<DroppedInPool<Encoder>, Failure> {
        let compute = self.storage.core.compute.clone();
        let mut dictionary = dictionary;
        let bytes = dictionary.value.as_ref().map_or(0, Vec::len);
        let made = self.compute(bytes, settings.ns_per_byte(), move || {
            let dictionary = dictionary.value.take().unwrap_or_default();
            let encoder = Encoder::with_dictionary(settings, dictionary)?;
            Ok(DroppedInPool::new(Some(encoder), &compute))
        });
        made.await.map_err(|_| Failure::Encoder)
    }

    /// Compresses the original to `out`. Returns the size of the result.
    async fn compress(
        &self,
        coding: Coding,
        dictionary: Option<(Digest, DroppedInPool<Vec<u8>>)>,
        out: &Arc<OpenFile>,
    ) -> Result<u64, Failure> {
        let settings = settings(coding, self.meta.size);
        let (mut pending, dictionary) = match dictionary {
            Some((digest, dictionary)) => (dictionary::prefix(coding, digest), dictionary),
            None => (Vec::new(), self.no_bytes()),
        };
        let mut encoder = self.encoder(settings, dictionary).await?;
        let ns_per_byte = settings.ns_per_byte();
        let (mut offset, mut written) = (0, 0);
        while offset < self.meta.size {
            let bytes = self.read(&self.file, &self.meta, offset).await?;
            offset += bytes.len() as u64;
            for input in bytes.chunks(JOB_BYTES) {
                let input = input.to_vec();
                let pushed = self.compute(input.len(), ns_per_byte, move || {
                    let value = encoder.value.as_mut().expect("only the end takes it");
                    value.push(&input, &mut pending)?;
                    Ok((encoder, pending))
                });
                (encoder, pending) = pushed.await?;
                if pending.len() >= WRITE_BYTES {
                    written += self.storage.append(out, mem::take(&mut pending)).await?;
                }
            }
        }
        let finished = self.compute(JOB_BYTES, ns_per_byte, move || {
            let encoder = encoder.value.take().expect("it is taken once");
            encoder.finish(&[], &mut pending)?;
            Ok(pending)
        });
        written += self.storage.append(out, finished.await?).await?;
        Ok(written)
    }

    /// Copies the original to `out`. Returns its digest.
    async fn copy(&self, out: &Arc<OpenFile>) -> Result<Digest, Failure> {
        let mut hasher = Sha256::new();
        let mut offset = 0;
        while offset < self.meta.size {
            let bytes = self.read(&self.file, &self.meta, offset).await?;
            let hashed = self.compute(bytes.len(), DIGEST_NS_PER_BYTE, move || {
                hasher.update(&bytes);
                Ok((hasher, bytes))
            });
            let bytes;
            (hasher, bytes) = hashed.await?;
            offset += self.storage.append(out, bytes).await?;
        }
        Ok(Digest(hasher.finalize().into()))
    }

    /// The content of a dictionary, which must have `digest`: from another one, clients would make wrong content.
    async fn dictionary(
        &self,
        stored: Stored,
        digest: Digest,
    ) -> Result<DroppedInPool<Vec<u8>>, Failure> {
        let index = &self.storage.store.index;
        let file = match self.storage.open(stored.path()).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                index.remove(stored.name);
                return Err(Failure::GivenUp);
            }
            opened => opened?,
        };
        let meta = file.meta();
        let bytes = meta.size.min(DICTIONARY_BYTES_MAX);
        let (mut hasher, mut content) = (Sha256::new(), self.no_bytes());
        let mut offset = 0;
        while offset < bytes {
            let piece = self.read(&file, &meta, offset).await?;
            offset += piece.len() as u64;
            let hashed = self.compute(piece.len(), DIGEST_NS_PER_BYTE, move || {
                hasher.update(&piece);
                let content_so_far = content.value.get_or_insert_default();
                content_so_far.reserve_exact(bytes as usize - content_so_far.len());
                content_so_far.extend_from_slice(&piece);
                Ok((hasher, content))
            });
            (hasher, content) = hashed.await?;
        }
        if hasher.finalize()[..] == digest.0 {
            return Ok(content);
        }
        index.remove(stored.name);
        self.storage.remove(stored).await?;
        Err(Failure::GivenUp)
    }

    fn no_bytes(&self) -> DroppedInPool<Vec<u8>> {
        DroppedInPool::new(None, &self.storage.core.compute)
    }

    async fn read(
        &self,
        file: &Arc<OpenFile>,
        meta: &Meta,
        offset: u64,
    ) -> Result<Vec<u8>, Failure> {
        let read = read_version(self.storage.core, file, meta, offset, READ_BYTES).await?;
        read.ok_or(Failure::GivenUp)
    }

    /// Computes `work`, about so many bytes, when a processor is idle.
    async fn compute<T: Send + 'static>(
        &self,
        bytes: usize,
        ns_per_byte: u32,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, Failure> {
        let cost = Duration::from_nanos(bytes as u64 * u64::from(ns_per_byte));
        let compute = &self.storage.core.compute;
        let computed = compute.run(Class::Idle, IDLE_STREAM, cost, work).await;
        match computed.map(|computed| computed.value) {
            Ok(Ok(value)) => Ok(value),
            _ => Err(Failure::GivenUp),
        }
    }
}
