//! Request bodies that exceed the memory limit: stored in an unnamed file, written and read back by the
//! disk's threads.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use levity_disk::{Class, OpenFile, Operation, ReadOptions, op};
use tokio::time;

use crate::files::disk_client;
use crate::loop_core::LoopCore;
use crate::route::SpoolFolder;
use crate::shares::claim::Claims;
use crate::shares::{Held, Portion, Resource};

/// The maximum size of a read, in bytes.
const READ_BYTES: usize = 128 * 1024;

/// A request body in a file.
pub struct Spooled {
    file: Arc<OpenFile>,
    claims: Rc<Claims>,
    /// The bytes of the file.
    held: Held,
    _descriptor: Held,
    read_options: ReadOptions,
    bytes: u64,
}

/// A read in progress.
pub struct Reading(Pin<Box<dyn Future<Output = io::Result<Vec<u8>>>>>);

/// The body is too long for `limit`, or others have too much of it.
fn no_room(limit: &str) -> io::Error {
    let reason = format!("`{limit}` leaves no room for it");
    io::Error::new(io::ErrorKind::QuotaExceeded, reason)
}

impl Spooled {
    /// Creates an empty file for the client of `claims`, which counts among its open files.
    ///
    /// # Errors
    /// As `open`; `TimedOut` when the disk does not respond within `limits.io_timeout`; `QuotaExceeded` when the client has its share
    /// of open files.
    pub async fn create(
        core: &LoopCore,
        folder: &SpoolFolder,
        claims: &Rc<Claims>,
    ) -> io::Result<Self> {
        let descriptor = claims.take(Resource::Files, 1, Portion::Whole).await;
        let descriptor = descriptor.map_err(|_| io::ErrorKind::QuotaExceeded)?;
        let spool = folder.spool.clone();
        let create = op::Create::Spooled { spool };
        Ok(Self {
            file: make(core, create, Class::First, folder.read_options).await?,
            held: claims.nothing(Resource::Spool, Portion::Whole),
            claims: claims.clone(),
            _descriptor: descriptor,
            read_options: folder.read_options,
            bytes: 0,
        })
    }

    /// In bytes.
    pub fn length(&self) -> u64 {
        self.bytes
    }

    /// Appends `bytes`, once the client may have as many more in files.
    ///
    /// # Errors
    /// As `write`, such as ENOSPC; `TimedOut`; `QuotaExceeded` when the client has its share of `limits.spool_bytes`.
    pub async fn append(&mut self, core: &LoopCore, bytes: Vec<u8>) -> io::Result<()> {
        let count = bytes.len() as u64;
        let grown = self.claims.grow(&mut self.held, bytes.len()).await;
        grown.map_err(|_| no_room("limits.spool_bytes"))?;
        let write = op::Write {
            file: self.file.clone(),
            offset: self.bytes,
            bytes: Arc::new(bytes),
        };
        make(core, write, Class::Later, self.read_options).await?;
        self.bytes += count;
        Ok(())
    }

    /// Waits until the client may have the bytes of one read in memory.
    ///
    /// # Errors
    /// `QuotaExceeded` when it has its share of `limits.bodies_memory`.
    pub async fn take_room(&self) -> io::Result<Held> {
        let claims = &self.claims;
        let taken = claims.take(Resource::Bodies, READ_BYTES, Portion::Whole);
        let taken = taken.await;
        taken.map_err(|_| no_room("limits.bodies_memory"))
    }

    /// Starts a read at `offset`. Does not wait.
    pub fn read(&self, core: &Rc<LoopCore>, offset: u64) -> Reading {
        let left = usize::try_from(self.bytes - offset).unwrap_or(usize::MAX);
        let read = op::Read {
            file: self.file.clone(),
            offset,
            len: left.min(READ_BYTES),
        };
        let (core, read_options) = (core.clone(), self.read_options);
        Reading(Box::pin(async move {
            let (ready, _) = make(&core, read, Class::Later, read_options).await?;
            if ready.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let bytes = ready.into_bytes(core.disk.budget())?;
            Ok(bytes.to_vec())
        }))
    }
}

impl Reading {
    /// Returns the bytes once they have been read.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
        self.0.as_mut().poll(context)
    }
}

/// Waits for room in the disk's queue too, instead of failing: a body is in transit.
async fn make<O: Operation>(
    core: &LoopCore,
    op: O,
    class: Class,
    read_options: ReadOptions,
) -> io::Result<O::Output> {
    let io_timeout = core.config().config.limits.io_timeout;
    let made = time::timeout(
        io_timeout,
        disk_client::submit_when_free(&core.disk, op, class, read_options),
    )
    .await;
    made.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}
