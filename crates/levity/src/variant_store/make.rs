//! Makes the files of the store: reads the original, computes while a processor is idle, and writes the result.

use std::io;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use levity_compute::Class;
use levity_disk::{Meta, OpenFile};
use levity_telemetry::diagnostics;
use levity_wire::dictionary::{self, Digest};
use levity_wire::encoding::Coding;
use sha2::{Digest as _, Sha256};
use tokio::task;

use super::name::{Kind, Name, Resource, Stored};
use super::storage::Storage;
use super::store::{MAKING_MAX, PAUSE, STORE_SHARE, VariantStore, lock};
use crate::compute::DroppedInPool;
use crate::entry::{Content, Entry};
use crate::filter::compress::{Encoder, Settings};
use crate::worker::Worker;

/// The size of a read in bytes.
const READ_BYTES: usize = 256 * 1024;

/// The maximum of bytes that one job compresses.
const JOB_BYTES: usize = 16 * 1024;

/// The size of a write in bytes.
const WRITE_BYTES: usize = 128 * 1024;

/// The maximum size in bytes of a file that becomes a dictionary, and of one whose difference is made: to prepare such
/// a dictionary is one job of 60 ms.
pub const DICTIONARY_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Content in a coding is kept if it is at most this share of the original, in percent.
const SIZE_PERCENT_MAX: u64 = 95;

/// The processor time for a digest, in nanoseconds per byte, without instructions for it.
const DIGEST_NS_PER_BYTE: u32 = 5;

/// The client number of all idle work, which no connection has.
const IDLE_STREAM: u64 = u64::MAX;

/// What to make of an original.
#[derive(Debug, Clone, Copy)]
pub enum Wanted {
    /// The content in a coding.
    Variant(Coding),
    /// Its difference from a dictionary of the store, which has this digest.
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
    /// The original changed, or the encoder failed: nothing is to be done about it.
    GivenUp,
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
    pub fn requested(self: &Arc<Self>, worker: &Rc<Worker>, original: &Entry, wanted: Wanted) {
        let name = wanted.name(&original.meta);
        let is_wanted = original.strong
            && original.meta.size <= wanted.original_bytes_max(self)
            && !self.index.knows(name)
            && worker.candidates.borrow_mut().count(name, Instant::now())
            && !self.is_paused();
        if !is_wanted {
            return;
        }
        let Some(making) = self.begin(name) else {
            return;
        };
        let (Content::File(file) | Content::Memory(_, file)) = &original.content;
        let (worker, file, meta) = (worker.clone(), file.clone(), original.meta);
        task::spawn_local(async move {
            let store = &making.store;
            let storage = Storage {
                worker: &worker,
                store,
            };
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
            "cannot keep a compressed file in {folder}: {error}; the next attempt is in {} s",
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
        let (kind, bytes) = match wanted {
            Wanted::Variant(coding) => {
                let settings = settings(coding, self.meta.size);
                let encoder = self.encoder(settings, Vec::new()).await?;
                let bytes = self.compress(settings, encoder, Vec::new(), &file).await?;
                (Kind::Coded(coding), bytes)
            }
            Wanted::Delta(coding, digest, dictionary) => {
                let settings = settings(coding, self.meta.size);
                let dictionary = self.dictionary(dictionary, digest).await?;
                let encoder = self.encoder(settings, dictionary).await?;
                let prefix = dictionary::prefix(coding, digest);
                let bytes = self.compress(settings, encoder, prefix, &file).await?;
                (Kind::Coded(coding), bytes)
            }
            Wanted::Dictionary(resource) => {
                let digest = self.copy(&file).await?;
                let digest = Name::of_digest(resource, digest);
                (Kind::Dictionary(digest), self.meta.size)
            }
        };
        self.keep(file, Stored { name, kind }, bytes).await
    }

    /// Publishes `file` of so many bytes, if it is useful, and removes what has to give way.
    async fn keep(&self, file: Arc<OpenFile>, stored: Stored, bytes: u64) -> Result<(), Failure> {
        let is_useful = matches!(stored.kind, Kind::Dictionary(_))
            || bytes * 100 <= self.meta.size * SIZE_PERCENT_MAX;
        if is_useful {
            self.storage.publish(file, stored).await?;
        }
        // From here on its file counts, whatever fails.
        let index = &self.storage.store.index;
        let displaced = index.add(stored, is_useful.then_some(bytes));
        let mut outcome = match is_useful {
            true => self.storage.sync_folder().await,
            false => Ok(()),
        };
        for stored in displaced {
            outcome = self.storage.remove(stored).await.and(outcome);
        }
        outcome.map_err(Failure::Disk)
    }

    /// An encoder that refers to `dictionary`, which may be empty.
    async fn encoder(
        &self,
        settings: Settings,
        dictionary: Vec<u8>,
    ) -> Result<DroppedInPool<Encoder>, Failure> {
        let compute = self.storage.worker.compute.clone();
        let bytes = dictionary.len();
        self.compute(bytes, settings.ns_per_byte(), move || {
            let encoder = Encoder::with_dictionary(settings, dictionary)?;
            Ok(DroppedInPool::new(Some(encoder), &compute))
        })
        .await
    }

    /// Compresses the original to `out`, after the bytes in `pending`. Returns the size of the result.
    async fn compress(
        &self,
        settings: Settings,
        mut encoder: DroppedInPool<Encoder>,
        mut pending: Vec<u8>,
        out: &Arc<OpenFile>,
    ) -> Result<u64, Failure> {
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
            encoder.finish(&mut pending)?;
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
            let bytes = self.hash(&mut hasher, bytes).await?;
            offset += self.storage.append(out, bytes).await?;
        }
        Ok(Digest(hasher.finalize().into()))
    }

    /// The content of a dictionary, which must have `digest`: from another one, clients would make wrong content.
    async fn dictionary(&self, stored: Stored, digest: Digest) -> Result<Vec<u8>, Failure> {
        let index = &self.storage.store.index;
        let file = match self.storage.open(stored.path()).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                index.remove(stored.name);
                return Err(Failure::GivenUp);
            }
            opened => opened?,
        };
        let meta = file.meta();
        let (mut hasher, mut content) = (Sha256::new(), Vec::new());
        while (content.len() as u64) < meta.size.min(DICTIONARY_BYTES_MAX) {
            let bytes = self.read(&file, &meta, content.len() as u64).await?;
            let bytes = self.hash(&mut hasher, bytes).await?;
            content.extend_from_slice(&bytes);
        }
        if hasher.finalize()[..] == digest.0 {
            return Ok(content);
        }
        index.remove(stored.name);
        self.storage.remove(stored).await?;
        Err(Failure::GivenUp)
    }

    async fn read(
        &self,
        file: &Arc<OpenFile>,
        meta: &Meta,
        offset: u64,
    ) -> Result<Vec<u8>, Failure> {
        let read = self.storage.read(file, meta, offset, READ_BYTES).await?;
        read.ok_or(Failure::GivenUp)
    }

    /// Continues a digest with `bytes`. Returns them.
    async fn hash(&self, hasher: &mut Sha256, bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let mut continued = mem::take(hasher);
        let hashed = self.compute(bytes.len(), DIGEST_NS_PER_BYTE, move || {
            continued.update(&bytes);
            Ok((continued, bytes))
        });
        let (continued, bytes) = hashed.await?;
        *hasher = continued;
        Ok(bytes)
    }

    /// Computes `work`, about so many bytes, when a processor is idle.
    async fn compute<T: Send + 'static>(
        &self,
        bytes: usize,
        ns_per_byte: u32,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, Failure> {
        let cost = Duration::from_nanos(bytes as u64 * u64::from(ns_per_byte));
        let compute = &self.storage.worker.compute;
        let computed = compute.run(Class::Idle, IDLE_STREAM, cost, work).await;
        match computed.map(|computed| computed.value) {
            Ok(Ok(value)) => Ok(value),
            _ => Err(Failure::GivenUp),
        }
    }
}
