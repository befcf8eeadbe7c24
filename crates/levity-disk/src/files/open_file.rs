//! Open files.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::{Advice, OFlags};
use rustix::io::Errno;

use super::atime;
use super::closer::DeferredFd;
use super::direct::DirectFile;
use super::meta::Meta;
use super::resolver::Resolver;

/// Larger files, in bytes, are opened with `POSIX_FADV_RANDOM`: the server decides itself which chunk comes
/// next, and the kernel's readahead window (up to 8 MiB per open file) would only evict other files.
const READAHEAD_BYTES_MAX: u64 = 64 * 1024;

/// An open file or directory. Closed by a separate thread while a [`Disk`](crate::Disk) exists, because the
/// last close of a deleted file may block on the disk.
#[derive(Debug)]
pub struct OpenFile {
    /// The metadata from the open, or from after its first bytes were read.
    pub meta: Meta,
    fd: DeferredFd,
    /// `None` for anything but a directory beneath a root.
    pub(super) location: Option<Location>,
    pub(super) answers: Answers,
    /// No symbolic link was on the way.
    pub(super) no_symlinks: bool,
    access: atime::Access,
    nonblocking: AtomicBool,
    random: AtomicBool,
    /// The inner `None`: `O_DIRECT` is not available.
    direct: OnceLock<Option<DirectFile>>,
    direct_refused: AtomicBool,
    spooled: bool,
}

/// The calls that the file system of an open file answers without blocking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    /// Nothing for certain: the file is on another mount than its root, or any call may block.
    Nothing,
    /// `fstat`.
    Metadata,
    /// `fstat`, and `preadv2(RWF_NOWAIT)`.
    Reads,
}

/// Where a directory was opened: links in it are resolved by the rules of its root.
#[derive(Debug)]
pub(super) struct Location {
    pub(super) resolver: Arc<Resolver>,
    pub(super) path: CString,
}

impl OpenFile {
    /// A file that was opened with `O_NONBLOCK`, and of which nothing else is known.
    pub(super) fn new(fd: OwnedFd, meta: Meta, atime: atime::Policy) -> OpenFile {
        OpenFile {
            meta,
            fd: DeferredFd::new(fd, meta.device),
            location: None,
            answers: Answers::Nothing,
            no_symlinks: false,
            access: atime::Access::new(atime),
            nonblocking: AtomicBool::new(true),
            random: AtomicBool::new(false),
            direct: OnceLock::new(),
            direct_refused: AtomicBool::new(false),
            spooled: false,
        }
    }

    /// A file that was just created without a name. It is read by threads and through the page cache, where
    /// the bytes are that have not been written back yet.
    pub(super) fn spooled(fd: OwnedFd, atime: atime::Policy) -> io::Result<OpenFile> {
        let meta = Meta::from(rustix::fs::fstat(&fd)?);
        Ok(OpenFile {
            nonblocking: AtomicBool::new(false),
            direct_refused: AtomicBool::new(true),
            spooled: true,
            ..OpenFile::new(fd, meta, atime)
        })
    }

    /// Whether the file may be written to while it is open.
    pub(crate) fn is_spooled(&self) -> bool {
        self.spooled
    }

    /// The metadata from the open, or from after its first bytes were read.
    pub fn meta(&self) -> Meta {
        self.meta
    }

    /// Whether an event loop may try to read it: `preadv2(RWF_NOWAIT)` works on its file system.
    pub fn reads_inline(&self) -> bool {
        self.answers == Answers::Reads
    }

    /// The metadata as of now (`fstat`). May block.
    ///
    /// # Errors
    /// The errors of `fstat`.
    pub(crate) fn refresh(&self) -> Result<Meta, Errno> {
        Ok(Meta::from(rustix::fs::fstat(self.as_fd())?))
    }

    pub(crate) fn access(&self) -> &atime::Access {
        &self.access
    }

    /// Records that an engine has read from the file.
    pub(crate) fn was_read(&self) {
        self.access.was_read();
    }

    /// Whether a watch on its directory reports every change of its content and of its path: the file has no
    /// other name, and no symbolic link was on the way.
    pub fn can_be_watched(&self) -> bool {
        self.no_symlinks && self.meta.links == 1
    }

    /// A descriptor for reading whole blocks past the page cache; opened by the first call. `None` if that
    /// does not work. Not for event loops.
    pub(crate) fn direct(&self) -> Option<BorrowedFd<'_>> {
        if self.direct_refused.load(Ordering::Relaxed) {
            return None;
        }
        let open = || DirectFile::open(self.as_fd(), self.meta.device);
        let direct = self.direct.get_or_init(open).as_ref();
        direct.map(DirectFile::as_fd)
    }

    /// A read past the page cache was refused: prevents further ones.
    pub(crate) fn refuse_direct(&self) {
        self.direct_refused.store(true, Ordering::Relaxed);
    }

    /// Not public, because a call on the descriptor may block: see [`OpenFile::inline`].
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Turns off the kernel's readahead: a read then fetches exactly the bytes it asks for.
    pub(crate) fn read_ahead_ourselves(&self) {
        if self.meta.size > READAHEAD_BYTES_MAX && !self.random.swap(true, Ordering::Relaxed) {
            // Only a hint: a failure has no consequence.
            let _ = rustix::fs::fadvise(self.as_fd(), 0, None, Advice::Random);
        }
    }

    /// Turns on the kernel's readahead, for `sendfile`.
    pub(crate) fn let_the_kernel_read_ahead(&self) {
        if self.random.swap(false, Ordering::Relaxed) {
            let _ = rustix::fs::fadvise(self.as_fd(), 0, None, Advice::Normal);
        }
    }

    /// Clears `O_NONBLOCK`: a ring would return EAGAIN instead of waiting where the file system cannot tell
    /// whether a read would block. Returns whether the flag was set.
    pub(crate) fn clear_nonblocking(&self) -> io::Result<bool> {
        if !self.nonblocking.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let flags = rustix::fs::fcntl_getfl(self.as_fd())?;
        rustix::fs::fcntl_setfl(self.as_fd(), flags - OFlags::NONBLOCK)?;
        self.nonblocking.store(false, Ordering::Relaxed);
        Ok(true)
    }
}
