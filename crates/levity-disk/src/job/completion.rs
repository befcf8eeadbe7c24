//! The outcome of a job.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::ready::Ready;
use crate::files::{Listing, Meta, OpenFile, Root};

/// The outcome of a job, and the time that it took.
#[derive(Debug)]
pub struct Completion {
    /// The outcome. An error carries the errno of the call that failed.
    pub result: io::Result<Done>,
    /// Time spent waiting for a slot of the device and for a thread.
    pub queued: Duration,
    /// Time spent in the kernel.
    pub service: Duration,
    /// Whether the bytes were read past the page cache.
    pub direct: bool,
}

impl Completion {
    /// The completion of a job that was never started.
    pub(crate) fn not_started(error: io::Error) -> Completion {
        Completion {
            result: Err(error),
            queued: Duration::ZERO,
            service: Duration::ZERO,
            direct: false,
        }
    }

    /// The bytes that the job has read, if any.
    pub(crate) fn ready(&self) -> Option<&Ready> {
        match &self.result {
            Ok(Done::Read(ready, _)) => Some(ready),
            Ok(Done::Opened(opened)) => opened.first.as_ref(),
            _ => None,
        }
    }

    /// The number of bytes that the job has written.
    pub(crate) fn written(&self) -> Option<usize> {
        match &self.result {
            Ok(Done::Written(len) | Done::Appended { len, .. }) => Some(*len),
            _ => None,
        }
    }
}

/// The outcome of an [`Op`](crate::Op).
#[derive(Debug)]
pub enum Done {
    /// Outcome of [`Op::Open`](crate::Op::Open).
    Opened(Opened),
    /// Outcome of [`Op::Read`](crate::Op::Read). Fewer bytes than requested mean that the file ends there,
    /// or ended there after the read: bytes that a truncation has cut off are never handed over as the
    /// zeroes that the kernel puts in their place. Only [`Ready::PageCache`], which has not been read yet,
    /// cannot promise that.
    ///
    /// The metadata is from an `fstat` after the read: the bytes are of that version or of an earlier one.
    /// Bytes of [`Ready::PageCache`] may be of a later one; an engine that does not block on the loop
    /// hands over fewer than [`COPIED_BYTES`](crate::engine::COPIED_BYTES) bytes only as a copy.
    Read(Ready, Meta),
    /// Outcome of [`Op::List`](crate::Op::List).
    Listed(Listing),
    /// Outcome of [`Change::Create`](crate::Change::Create). The `meta` is from the open: of a new file, that of an
    /// empty one.
    Created(Arc<OpenFile>),
    /// Outcome of [`Change::Write`](crate::Change::Write): the number of bytes, always all of them.
    Written(usize),
    /// Outcome of [`Change::Append`](crate::Change::Append).
    Appended {
        /// Where the bytes are, in bytes from the start of the file.
        offset: u64,
        /// The number of bytes, always all of them.
        len: usize,
    },
    /// Outcome of [`Change::Sync`](crate::Change::Sync).
    Synced,
    /// Outcome of the other changes.
    Changed,
    /// Outcome of [`Op::FreeSpace`](crate::Op::FreeSpace), in bytes.
    FreeSpace(u64),
    /// Outcome of [`Op::CheckRoot`](crate::Op::CheckRoot): the new root, if the path leads elsewhere now.
    RootChecked(Option<Arc<Root>>),
}

/// The outcome of an open.
#[derive(Debug)]
pub struct Opened {
    /// The open file, directory or other object. If bytes were read, its `meta` is from after the read.
    pub file: Arc<OpenFile>,
    /// One entry for each path of the open's `variants`: the file there, if it may be sent in place of `file`
    /// ([`Meta::may_stand_in_for`](crate::Meta::may_stand_in_for)). All are `None` when `file` is not a
    /// regular file.
    pub variants: Vec<Option<Arc<OpenFile>>>,
    /// The bytes requested: of the first preferred variant that exists, otherwise of `file`. `None` when no bytes
    /// were requested, or when it is not a regular file.
    pub first: Option<Ready>,
    /// Whether `fstat` before and after the read agreed: the bytes are of one version, as far as the
    /// resolution of the file system's clock can tell. Also true when nothing has been read: `first` is `None`
    /// or [`Ready::PageCache`].
    pub stable: bool,
    /// After [`Lookup::Consume`](crate::Lookup::Consume): why the name could not be removed, if it could not.
    /// The errors are those of [`Change::Unlink`](crate::Change::Unlink).
    pub not_removed: Option<io::Error>,
}

impl Opened {
    /// A file that was opened inline, without variants and without a read.
    pub fn unread(file: Arc<OpenFile>) -> Opened {
        Opened {
            file,
            variants: Vec::new(),
            first: None,
            stable: true,
            not_removed: None,
        }
    }
}
