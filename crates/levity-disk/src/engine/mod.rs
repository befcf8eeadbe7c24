//! The contract of a disk engine, and the table of those that exist.
//!
//! An engine is one file in this folder; its file name is the value of `disk.engine` and the label
//! on its metrics.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::buffer::Buffer;
use crate::open::{OpenFile, Root};

/// What one trip to the disk does.
#[derive(Debug)]
pub enum Op {
    /// Open `path` beneath `root`, `fstat` it and, when it is a regular file, read `first`: one trip
    /// instead of three, because each of the three may wait for the disk.
    Open {
        /// The directory that the path may not leave.
        root: Arc<Root>,
        /// Relative, without a leading slash; `.` for the root itself.
        path: CString,
        /// Offset and bytes to read at once; cut at the end of the file. `None` reads nothing.
        first: Option<(u64, usize)>,
    },
    /// Read `len` bytes from `offset`. Fewer come back only at the end of the file.
    Read {
        /// The file; the operation holds it until its completion.
        file: Arc<OpenFile>,
        /// In bytes from the start of the file.
        offset: u64,
        /// In bytes; more than zero.
        len: usize,
    },
    /// Read the names in a directory, with the metadata of each.
    List {
        /// The directory.
        directory: Arc<OpenFile>,
        /// Names to return at most; `Listing::truncated` says whether there were more.
        entries_max: usize,
    },
}

/// One name in a directory.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The name's bytes, not necessarily UTF-8; never `.` or `..`.
    pub name: Vec<u8>,
    /// What it is; symbolic links are reported as what they lead to when that stays inside the root.
    pub meta: crate::open::Meta,
}

/// A directory's names, sorted: directories first, then by name.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// In order of display.
    pub entries: Vec<Entry>,
    /// There were more than asked for.
    pub truncated: bool,
}

/// Bytes of a file that are ready to leave without waiting for the disk.
#[derive(Debug)]
pub enum Ready {
    /// In our memory: any transport can send it.
    Bytes(Buffer),
    /// In a pipe: `splice` moves it to a plain socket.
    Pipe {
        /// The pipe's read end; holds exactly `len` bytes.
        pipe: OwnedFd,
        /// In bytes.
        len: usize,
    },
    /// In a memory file, which `sendfile` may read without waiting.
    Shared {
        /// The memory file.
        memory: Arc<OwnedFd>,
        /// In bytes from the start of the memory file.
        offset: u64,
        /// In bytes.
        len: usize,
    },
    /// Still in the file. Only an engine that may block on the loop, or that has just brought the
    /// range into the page cache, says so.
    PageCache {
        /// The file to send from.
        file: Arc<OpenFile>,
        /// In bytes from the start of the file.
        offset: u64,
        /// In bytes, never beyond the size that `fstat` told.
        len: usize,
    },
}

/// What came of an [`Op`].
#[derive(Debug)]
pub enum Done {
    /// Of [`Op::Open`].
    Opened {
        /// The open file, directory or other thing; its `meta` was read after the data.
        file: Arc<OpenFile>,
        /// The bytes asked for: `None` when none were, or when it is no regular file.
        first: Option<Ready>,
        /// `fstat` before and after the read agreed: the bytes are those of one version.
        stable: bool,
    },
    /// Of [`Op::Read`].
    Read(Ready),
    /// Of [`Op::List`].
    Listed(Listing),
}

/// An outcome, and where its time went.
#[derive(Debug)]
pub struct Completion {
    /// The outcome. Errors carry the errno of the call that failed.
    pub result: io::Result<Done>,
    /// Waiting for a place in the device's queue and for a thread.
    pub queued: Duration,
    /// In the kernel, opening and reading.
    pub service: Duration,
}

/// Where a completion goes. Called from an engine's thread, once.
pub trait Reply: Send {
    /// Whether anyone still waits. A job that nobody wants is dropped unread if it has not started.
    fn wanted(&self) -> bool;
    /// Hands over the completion. Must not block, and must not call into the disk crate.
    fn send(self: Box<Self>, completion: Completion);
}

/// How urgent a job is: first chunks and small files go before bulk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Opens, listings and first chunks: a client has seen nothing yet.
    First,
    /// Later chunks: a client is already receiving.
    Next,
}

/// One operation on its way to an engine.
pub struct Job {
    /// What to do.
    pub op: Op,
    /// How urgent it is.
    pub class: Class,
    /// Who waits for it.
    pub reply: Box<dyn Reply>,
}
