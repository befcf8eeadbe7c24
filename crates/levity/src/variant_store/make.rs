//! Makes variants: reads the original, compresses it while a processor is idle, and writes the variant.

use std::io;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use levity_compute::Class;
use levity_disk::{
    Change, Class as DiskClass, Done, EngineId, Lookup, Meta, NewFile, Op, Open, OpenFile,
    ReadOptions, Variants,
};
use levity_telemetry::diagnostics;
use levity_wire::encoding::Coding;
use tokio::task;

use super::name::Name;
use super::store::{MAKING_MAX, PAUSE, STORE_SHARE, VariantStore, lock};
use crate::compute::Compute;
use crate::disk_client::submit_when_free;
use crate::entry::{Content, Entry};
use crate::filter::compress::{Encoder, Settings};
use crate::worker::Worker;

/// The size of a read from the original in bytes.
const READ_BYTES: usize = 256 * 1024;

/// The maximum of bytes that one job compresses.
const JOB_BYTES: usize = 16 * 1024;

/// The size of a write to the variant in bytes.
const WRITE_BYTES: usize = 128 * 1024;

/// A variant is kept if it is at most this share of the original, in percent.
const SIZE_PERCENT_MAX: u64 = 95;

/// Free space that the store leaves on its file system, in bytes.
const FREE_BYTES_MIN: u64 = 64 * 1024 * 1024;

/// The permissions of a variant: it may be of a file that not everybody may read.
const MODE: u32 = 0o600;

/// The client number of all idle work, which no connection has.
const IDLE_STREAM: u64 = u64::MAX;

/// The coding and level of variants for clients that accept `coding`.
fn settings(coding: Coding, length: u64) -> Settings {
    let level = match coding {
        Coding::Zstd => 19,
        Coding::Brotli => 11,
        Coding::Gzip => 9,
    };
    Settings {
        coding,
        level,
        length: Some(length),
        ample: true,
    }
}

/// Why no variant was made.
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

/// A variant that is being made. Dropped also when its task is.
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
    /// Counts a request that is answered with `original`, compressed on its way, and begins to make a variant if there
    /// are many. Does not wait.
    pub fn requested(self: &Arc<Self>, worker: &Rc<Worker>, original: &Entry, coding: Coding) {
        let name = Name::of(&original.meta, coding);
        let is_wanted = original.strong
            && original.meta.size <= self.bytes_max() / STORE_SHARE
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
            let task = Task {
                worker: &worker,
                store: &making.store,
                file,
                meta,
                settings: settings(coding, meta.size),
            };
            if let Err(Failure::Disk(error)) = task.run(name).await {
                making.store.pause(&error);
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

/// One variant on its way.
struct Task<'t> {
    worker: &'t Rc<Worker>,
    store: &'t Arc<VariantStore>,
    /// The original.
    file: Arc<OpenFile>,
    /// Its metadata; the content must stay of this version.
    meta: Meta,
    settings: Settings,
}

/// An encoder that is never freed on an event loop: that takes milliseconds.
struct OwnedEncoder {
    encoder: Option<Encoder>,
    compute: Arc<Compute>,
}

impl OwnedEncoder {
    fn take(mut self) -> Option<Encoder> {
        self.encoder.take()
    }
}

impl Drop for OwnedEncoder {
    fn drop(&mut self) {
        if let Some(encoder) = self.encoder.take() {
            self.compute.discard(encoder);
        }
    }
}

impl Task<'_> {
    fn no_encoder(&self) -> OwnedEncoder {
        OwnedEncoder {
            encoder: None,
            compute: self.worker.compute.clone(),
        }
    }

    async fn run(&self, name: Name) -> Result<(), Failure> {
        let coding = self.settings.coding;
        self.check_space().await?;
        let variant = self.created().await?;
        let bytes = self.compress(&variant).await?;
        let is_useful = bytes * 100 <= self.meta.size * SIZE_PERCENT_MAX;
        if is_useful {
            self.publish(variant, name).await?;
        }
        // From here on its file counts, whatever fails.
        let displaced = self
            .store
            .index
            .add(name, coding, is_useful.then_some(bytes));
        let mut outcome = match is_useful {
            true => self.sync_folder().await,
            false => Ok(()),
        };
        for (name, coding) in displaced {
            let removed = self.change(Change::Unlink {
                root: self.store.root.clone(),
                path: name.path(coding),
                file: None,
            });
            match removed.await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => outcome = Err(error),
                _ => {}
            }
        }
        outcome.map_err(Failure::Disk)
    }

    async fn sync_folder(&self) -> io::Result<()> {
        let folder = self.folder().await?;
        self.change(Change::Sync { file: folder }).await.map(drop)
    }

    async fn check_space(&self) -> io::Result<()> {
        let root = self.store.root.clone();
        match self.operate(Op::FreeSpace { root }).await? {
            Done::FreeSpace(bytes) if bytes < FREE_BYTES_MIN + self.meta.size => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }

    async fn created(&self) -> io::Result<Arc<OpenFile>> {
        let created = self.change(Change::Create(NewFile::Nameless {
            root: self.store.root.clone(),
            folder: c".".to_owned(),
            mode: MODE,
        }));
        match created.await? {
            Done::Created(file) => Ok(file),
            other => unreachable!("a file was to be created: {other:?}"),
        }
    }

    /// Compresses the original to `variant`. Returns the size of the variant.
    async fn compress(&self, variant: &Arc<OpenFile>) -> Result<u64, Failure> {
        let (mut encoder, mut pending, mut written) = (self.no_encoder(), Vec::new(), 0);
        let mut offset = 0;
        while offset < self.meta.size {
            let bytes = self.read(offset).await?;
            offset += bytes.len() as u64;
            for input in bytes.chunks(JOB_BYTES) {
                (encoder, pending) = self.push(encoder, input, pending).await?;
                if pending.len() >= WRITE_BYTES {
                    written += self.append(variant, mem::take(&mut pending)).await?;
                }
            }
        }
        let finished = self.compute(JOB_BYTES, move || {
            if let Some(encoder) = encoder.take() {
                encoder.finish(&mut pending)?;
            }
            Ok(pending)
        });
        written += self.append(variant, finished.await?).await?;
        Ok(written)
    }

    /// Compresses `input`, and appends what is ready to `pending`. The first call makes the encoder.
    async fn push(
        &self,
        mut encoder: OwnedEncoder,
        input: &[u8],
        mut pending: Vec<u8>,
    ) -> Result<(OwnedEncoder, Vec<u8>), Failure> {
        let (settings, input) = (self.settings, input.to_vec());
        self.compute(input.len(), move || {
            if encoder.encoder.is_none() {
                encoder.encoder = Some(Encoder::new(settings)?);
            }
            if let Some(encoder) = &mut encoder.encoder {
                encoder.push(&input, &mut pending)?;
            }
            Ok((encoder, pending))
        })
        .await
    }

    /// Gives the variant its name, once its content is on the disk.
    async fn publish(&self, variant: Arc<OpenFile>, name: Name) -> io::Result<()> {
        self.change(Change::Sync {
            file: variant.clone(),
        })
        .await?;
        let link = Change::Link {
            file: variant,
            root: self.store.root.clone(),
            path: name.path(self.settings.coding),
        };
        match self.change(link).await {
            // Made by another process, or before a variant was forgotten.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            linked => drop(linked?),
        }
        Ok(())
    }

    /// The open folder.
    async fn folder(&self) -> io::Result<Arc<OpenFile>> {
        let open = Op::Open(Open {
            root: self.store.root.clone(),
            path: c".".to_owned(),
            first: None,
            variants: Box::new(Variants::default()),
            lookup: Lookup::Fresh,
        });
        match self.operate(open).await? {
            Done::Opened(opened) => Ok(opened.file),
            other => unreachable!("a folder was to be opened: {other:?}"),
        }
    }

    /// The next bytes of the original.
    async fn read(&self, offset: u64) -> Result<Vec<u8>, Failure> {
        let left = usize::try_from(self.meta.size - offset).unwrap_or(usize::MAX);
        let read = Op::Read {
            file: self.file.clone(),
            offset,
            len: left.min(READ_BYTES),
        };
        // Another engine may leave the bytes in the page cache.
        let engine = self.worker.service().memory_engine;
        match self.operate_in(engine, read).await? {
            Done::Read(ready, now) if !ready.is_empty() && now.same_version(&self.meta) => {
                let bytes = ready.into_bytes(self.worker.disk.budget())?;
                // Idle work may wait for long: it must not hold a buffer of the disk.
                Ok(bytes.to_vec())
            }
            _ => Err(Failure::GivenUp),
        }
    }

    async fn append(&self, variant: &Arc<OpenFile>, bytes: Vec<u8>) -> io::Result<u64> {
        let count = bytes.len() as u64;
        let append = Change::Append {
            file: variant.clone(),
            bytes: Arc::new(bytes),
        };
        self.change(append).await.map(|_| count)
    }

    /// Computes `work`, about so many bytes, when a processor is idle.
    async fn compute<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, Failure> {
        let cost_ns = bytes as u64 * u64::from(self.settings.ns_per_byte());
        let cost = Duration::from_nanos(cost_ns);
        let compute = &self.worker.compute;
        let computed = compute.run(Class::Idle, IDLE_STREAM, cost, work).await;
        match computed.map(|computed| computed.value) {
            Ok(Ok(value)) => Ok(value),
            _ => Err(Failure::GivenUp),
        }
    }

    async fn change(&self, change: Change) -> io::Result<Done> {
        self.operate(Op::Change(change)).await
    }

    async fn operate(&self, op: Op) -> io::Result<Done> {
        self.operate_in(None, op).await
    }

    async fn operate_in(&self, engine: Option<EngineId>, op: Op) -> io::Result<Done> {
        let options = ReadOptions {
            engine,
            ..ReadOptions::default()
        };
        submit_when_free(&self.worker.disk, op, DiskClass::Later, options).await
    }
}
