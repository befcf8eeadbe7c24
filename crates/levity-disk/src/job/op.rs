//! The operations.

use std::ffi::CString;
use std::sync::Arc;

use crate::files::{OpenFile, Root, Spool};
use crate::memory::span;

/// An operation: one trip to the disk.
#[derive(Debug, Clone)]
pub enum Op {
    /// Opens `path` beneath `root`, calls `fstat` and, if it is a regular file, reads `first`. One trip
    /// instead of three, because each of the three calls may block.
    Open(Open),
    /// Reads `len` bytes from `offset`. Fewer bytes are returned only at the end of the file, see
    /// [`Done::Read`](crate::Done::Read).
    Read {
        /// The file; the operation holds it until its completion.
        file: Arc<OpenFile>,
        /// In bytes from the start of the file.
        offset: u64,
        /// In bytes; more than zero.
        len: usize,
    },
    /// Reads the names in a directory, with the metadata of each.
    List {
        /// The directory.
        directory: Arc<OpenFile>,
        /// Bound on the names returned; `Listing::truncated` tells whether there were more.
        entries_max: usize,
    },
    /// Creates a file without a name, to be written and read. The kernel frees it when its last descriptor
    /// is closed, even if the process crashes.
    Create {
        /// Where.
        spool: Arc<Spool>,
    },
    /// Writes all of `bytes` at `offset`, into the page cache. An error of the device when the kernel later
    /// writes the pages back is not reported.
    ///
    /// Operations on one file run concurrently and in any order: to read what was written, or to write in
    /// sequence, wait for the completion in between. That also bounds the memory of writes, which bring
    /// their own. Nobody who holds a [`Buffer`](crate::Buffer) may wait for a write: it may be queued behind
    /// a read that waits for memory. After an error the content from `offset` on is undefined.
    Write {
        /// A file of [`Op::Create`]; the operation holds it until its completion.
        file: Arc<OpenFile>,
        /// In bytes from the start of the file.
        offset: u64,
        /// Held until the completion. As large as a chunk, 64 to 256 KiB: devices are shared by bytes, and
        /// a write is not interrupted.
        bytes: Arc<Vec<u8>>,
    },
    /// Removes the name `path` beneath `root`, if it is a name of `file`. ENOENT: there is no such name;
    /// ESTALE: it is another file; ELOOP: a symbolic link is on the way; EISDIR or EINVAL: `file` is not a
    /// regular file.
    ///
    /// Like any job, it is dropped when nobody waits for it as it starts. If the name has to go whatever
    /// becomes of the client, use a reply that is always awaited.
    ///
    /// A name that is given to another file between the check and the removal is removed all the same.
    /// Whoever can do that could have removed the name too: both need write access to the directory.
    Unlink {
        /// The directory that the path may not leave. No link is followed, whatever the root allows.
        root: Arc<Root>,
        /// Relative, without a leading slash.
        path: CString,
        /// The file that was opened there. While it is open, its inode number is not reused.
        file: Arc<OpenFile>,
    },
    /// Resolves again the path by which `root` was opened, and opens the root anew if the path leads
    /// elsewhere now: a symbolic link was switched, or a directory replaced. Charged to the root's device.
    CheckRoot {
        /// The root as it was opened last.
        root: Arc<Root>,
    },
}

/// The arguments of [`Op::Open`].
#[derive(Debug, Clone)]
pub struct Open {
    /// The directory that the path may not leave.
    pub root: Arc<Root>,
    /// Relative, without a leading slash; `.` for the root itself.
    pub path: CString,
    /// The bytes to read at once. `None` reads nothing.
    pub first: Option<First>,
    /// Files that may be sent in place of this one, opened on the same trip. Boxed, because most opens
    /// have none.
    pub variants: Box<Variants>,
    /// Which links are followed, and whether the open may be shared.
    pub lookup: Lookup,
}

/// How an open finds its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lookup {
    /// By the rules of the root. Jobs that open the same path at the same time share one open.
    #[default]
    Shared,
    /// By the rules of the root, but not shared: for names that are reused for other content, such as files
    /// that an application hands over.
    Fresh,
    /// As `Fresh`; in addition no symbolic link may be on the way (ELOOP), and the file must be a regular
    /// one (EISDIR, EINVAL). For files that are to be removed by [`Op::Unlink`]. Such files were mostly
    /// written a moment ago: read them with [`Direct::Never`](crate::Direct::Never), as a read past the
    /// page cache would wait for the write-back.
    NoSymlinks,
    /// As `NoSymlinks`, and the name is removed as soon as the file is open, on the same trip, as
    /// [`Op::Unlink`] does. If a later step fails, the file is gone.
    Consume,
}

/// The bytes that an open reads, cut at the end of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct First {
    /// In bytes from the start of the file.
    pub offset: u64,
    /// In bytes.
    pub len: usize,
    /// If the rest of the file is no longer than this, in bytes, and memory is ample
    /// ([`Budget::is_ample`](crate::Budget::is_ample)), all of it is read instead of `len` bytes: where a
    /// seek takes long, one read of everything costs little more than one of the start. Values less than
    /// `len` mean `len`.
    pub len_max: usize,
}

/// Other forms of a file, in files beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variants {
    /// Relative to the root, like the path of the file itself.
    pub paths: Vec<CString>,
    /// How many of them, from the start, are preferred to the file itself.
    pub preferred: usize,
}

impl Op {
    /// Bytes of memory to reserve: the bytes to read, with the whole blocks around them. An open that may
    /// read more reserves the rest once the size of the file is known. A write brings its own memory.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Op::Open(open) => open.first.map_or(0, |first| span(first.offset, first.len)),
            Op::Read { offset, len, .. } => span(*offset, *len),
            Op::List { .. }
            | Op::Create { .. }
            | Op::Write { .. }
            | Op::Unlink { .. }
            | Op::CheckRoot { .. } => 0,
        }
    }

    /// Bytes that the device has to transfer.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Op::Write { bytes, .. } => bytes.len(),
            _ => self.memory(),
        }
    }

    /// `st_dev` of the device that is charged first.
    pub(crate) fn device(&self) -> u64 {
        match self {
            Op::Open(open) => open.root.device_of(&open.path),
            Op::Read { file, .. } | Op::Write { file, .. } | Op::Unlink { file, .. } => {
                file.meta.device
            }
            Op::List { directory, .. } => directory.meta.device,
            Op::Create { spool } => spool.device(),
            Op::CheckRoot { root } => root.device(),
        }
    }
}
