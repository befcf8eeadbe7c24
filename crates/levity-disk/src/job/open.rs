//! Opens: a file, other forms of it and its first bytes in one trip.

use std::ffi::CString;
use std::io;
use std::sync::Arc;

use super::ready::Ready;
use crate::files::{OpenFile, Root};

/// Opens `path` beneath `root`, calls `fstat` and, if it is a regular file, reads `first`. One trip instead of three,
/// because each of the three calls may block.
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
    /// one (EISDIR, EINVAL). For files that are to be removed by [`op::Unlink`](crate::op::Unlink). Such files were mostly
    /// written a moment ago: read them with [`Direct::Never`](crate::Direct::Never), as a read past the
    /// page cache would wait for the write-back.
    NoSymlinks,
    /// As `NoSymlinks`, and the name is removed as soon as the file is open, on the same trip, as
    /// [`op::Unlink`](crate::op::Unlink) does. If a later step fails, the file is gone.
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

/// The output of an [`Open`].
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
    /// After [`Lookup::Consume`]: why the name could not be removed, if it could not.
    /// The errors are those of [`op::Unlink`](crate::op::Unlink).
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
