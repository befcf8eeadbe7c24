//! The operations.

use std::ffi::CString;
use std::sync::Arc;

use super::change::Change;
use crate::files::{DirectoryReader, Listing, OpenFile, Root};
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
    /// Reads the next names in a directory, with the metadata of each: about a thousand. One operation per reader may be
    /// in flight; a second one waits in its thread for the first.
    List {
        /// The directory, and where the last read has ended.
        reader: Arc<DirectoryReader>,
        /// An empty listing, which is returned with the entries. It should have
        /// [room](Listing::with_room_of_a_piece): memory that each of many disk threads allocates costs megabytes,
        /// because the allocator keeps some of it per thread.
        into: Listing,
    },
    /// Changes a file or a name.
    Change(Change),
    /// Asks how many bytes this user can still write to the file system of a root (`fstatvfs`: `f_bavail`, without the
    /// blocks that are reserved for the superuser). Performed in the pool under every engine.
    FreeSpace {
        /// The root.
        root: Arc<Root>,
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
    /// one (EISDIR, EINVAL). For files that are to be removed by [`Change::Unlink`]. Such files were mostly
    /// written a moment ago: read them with [`Direct::Never`](crate::Direct::Never), as a read past the
    /// page cache would wait for the write-back.
    NoSymlinks,
    /// As `NoSymlinks`, and the name is removed as soon as the file is open, on the same trip, as
    /// [`Change::Unlink`] does. If a later step fails, the file is gone.
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
            Op::List { .. } | Op::Change(_) | Op::FreeSpace { .. } | Op::CheckRoot { .. } => 0,
        }
    }

    /// Bytes that the device has to transfer.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Op::Change(change) => change.bytes(),
            _ => self.memory(),
        }
    }

    /// `st_dev` of the device that is charged first.
    pub(crate) fn device(&self) -> u64 {
        match self {
            Op::Open(open) => open.root.device_of(&open.path),
            Op::Read { file, .. } => file.meta.device,
            Op::List { reader, .. } => reader.directory().meta.device,
            Op::Change(change) => change.device(),
            Op::FreeSpace { root } | Op::CheckRoot { root } => root.device(),
        }
    }

    /// Whether the pool performs it under every engine.
    pub(crate) fn is_for_the_pool(&self) -> bool {
        matches!(self, Op::Change(_) | Op::FreeSpace { .. })
    }

    /// The file of a [`Change::Sync`].
    pub(crate) fn synced(&self) -> Option<&Arc<OpenFile>> {
        match self {
            Op::Change(Change::Sync { file }) => Some(file),
            _ => None,
        }
    }
}
