//! Open files.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::fs::{Advice, OFlags};
use rustix::io::Errno;

use super::atime;
use super::closer::{self, DeferredFd, DeferredName};
use super::direct::DirectFile;
use super::meta::Meta;
use super::resolver::Resolver;
use super::temporary::TemporaryName;
use crate::syscall;
use crate::thread::lock;

/// Larger files, in bytes, are opened with `POSIX_FADV_RANDOM`: the server decides itself which chunk comes
/// next, and the kernel's readahead window (up to 8 MiB per open file) would only evict other files.
const READAHEAD_BYTES_MAX: u64 = 64 * 1024;

/// An open file or directory. Closed by a separate thread while a [`Disk`](crate::Disk) exists, because the
/// last close of a deleted file may block on the disk.
#[derive(Debug)]
pub struct OpenFile {
    /// See [`OpenFile::meta`].
    pub(crate) meta: Meta,
    fd: DeferredFd,
    /// `None` for anything but a directory beneath a root.
    pub(super) location: Option<Location>,
    pub(super) nonblocking_calls: NonblockingCalls,
    /// No symbolic link was on the way.
    pub(super) no_symlinks: bool,
    access: atime::Access,
    /// `O_NONBLOCK` is set.
    has_nonblock_flag: AtomicBool,
    /// The kernel's readahead is off: `POSIX_FADV_RANDOM` is in effect.
    has_random_advice: AtomicBool,
    /// The inner `None`: `O_DIRECT` is not available.
    direct: OnceLock<Option<DirectFile>>,
    direct_refused: AtomicBool,
    /// `None` for a file that was opened to be read only.
    writing: Option<Box<Writing>>,
    /// See [`OpenFile::clients`].
    clients: Clients,
    /// See [`OpenFile::sync_error`].
    sync_error: OnceLock<Errno>,
}

/// Numbers of clients. Only the user of this crate counts them.
#[derive(Debug, Default)]
pub struct Clients {
    /// All of them.
    pub all: AtomicUsize,
    /// Those that have taken nothing for long.
    pub stalled: AtomicUsize,
}

/// The state of a file that is open for writing.
#[derive(Debug)]
pub(super) struct Writing {
    /// Where the next append starts, in bytes.
    end: AtomicU64,
    /// The name that the file has until it is linked. Only threads that may block take the lock.
    temporary: Mutex<Option<DeferredName>>,
}

impl Writing {
    /// The end is at `end` or beyond.
    pub(super) fn reach(&self, end: u64) {
        self.end.fetch_max(end, Ordering::Relaxed);
    }

    /// Moves the end by `len`, and returns where it was.
    pub(super) fn reserve(&self, len: u64) -> u64 {
        self.end.fetch_add(len, Ordering::Relaxed)
    }

    /// Moves the end back to `offset`, if nobody has moved it since it was moved there by `len`.
    pub(super) fn give_back(&self, offset: u64, len: u64) {
        let (now, order) = (offset.wrapping_add(len), Ordering::Relaxed);
        let _ = self.end.compare_exchange(now, offset, order, order);
    }
}

/// The calls on an open file that do not block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NonblockingCalls {
    /// Any call may block, or the file is on another mount than its root, which was not probed.
    None,
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
    pub(super) fn new(fd: DeferredFd, meta: Meta, atime: atime::Policy) -> OpenFile {
        OpenFile {
            meta,
            fd,
            location: None,
            nonblocking_calls: NonblockingCalls::None,
            no_symlinks: false,
            access: atime::Access::new(atime),
            has_nonblock_flag: AtomicBool::new(true),
            has_random_advice: AtomicBool::new(false),
            direct: OnceLock::new(),
            direct_refused: AtomicBool::new(false),
            writing: None,
            sync_error: OnceLock::new(),
            clients: Clients::default(),
        }
    }

    /// The clients that it is kept open for.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// A file that was opened for reading and writing. It is read by threads and through the page cache, where
    /// the bytes are that have not been written back yet.
    pub(super) fn written(fd: OwnedFd, atime: atime::Policy) -> io::Result<OpenFile> {
        let meta = Meta::from(rustix::fs::fstat(&fd)?);
        let writing = Writing {
            end: AtomicU64::new(meta.size),
            temporary: Mutex::new(None),
        };
        Ok(OpenFile {
            has_nonblock_flag: AtomicBool::new(false),
            direct_refused: AtomicBool::new(true),
            writing: Some(Box::new(writing)),
            ..OpenFile::new(DeferredFd::new(fd, meta.device), meta, atime)
        })
    }

    /// Whether the file may be written to while it is open.
    pub(crate) fn is_written(&self) -> bool {
        self.writing.is_some()
    }

    /// Where the next append starts, in bytes; 0 for a file that is not open for writing.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn end(&self) -> u64 {
        let end = |writing: &Writing| writing.end.load(Ordering::Relaxed);
        self.writing.as_deref().map_or(0, end)
    }

    /// The state of a file that is open for writing. EBADF for any other.
    pub(super) fn writing(&self) -> Result<&Writing, Errno> {
        self.writing.as_deref().ok_or(Errno::BADF)
    }

    /// The file has `name`, and loses it with the last reference to this file, unless it gets another before.
    pub(super) fn set_temporary(&mut self, name: TemporaryName) {
        if let Some(writing) = &mut self.writing {
            let name = DeferredName::new(name, self.meta.device);
            writing.temporary = Mutex::new(Some(name));
        }
    }

    /// Calls `to_final` with the temporary name, if the file has one, which is gone if that succeeds.
    pub(super) fn link_temporary(
        &self,
        to_final: impl FnOnce(&TemporaryName) -> Result<(), Errno>,
    ) -> Option<Result<(), Errno>> {
        let mut temporary = lock(&self.writing.as_ref()?.temporary);
        let linked = to_final(temporary.as_ref()?.name());
        if linked.is_ok() {
            temporary.take().into_iter().for_each(DeferredName::forget);
        }
        Some(linked)
    }

    /// The error of the first sync that failed: what was written then may be lost, and the kernel does not report it
    /// again.
    pub(crate) fn sync_error(&self) -> Option<Errno> {
        self.sync_error.get().copied()
    }

    /// Records that a sync has failed.
    pub(super) fn sync_failed(&self, errno: Errno) {
        let _first = self.sync_error.set(errno);
    }

    /// The metadata from the open, or from after its first bytes were read.
    pub fn meta(&self) -> Meta {
        self.meta
    }

    /// Whether an event loop may try to read it: `preadv2(RWF_NOWAIT)` works on its file system.
    pub fn reads_inline(&self) -> bool {
        self.nonblocking_calls == NonblockingCalls::Reads
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
    /// does not work, or while too many files wait to be closed. Not for event loops.
    pub(crate) fn direct_fd(&self) -> Option<BorrowedFd<'_>> {
        if self.direct_refused.load(Ordering::Relaxed) {
            return None;
        }
        // Not by waiting: a ring has one thread for all devices.
        if self.direct.get().is_none() && !closer::has_room(self.fd.device()) {
            return None;
        }
        let open = || DirectFile::open(self.as_fd(), self.fd.device());
        let direct = self.direct.get_or_init(open).as_ref();
        direct.map(DirectFile::as_fd)
    }

    /// Whether bytes of the range are in the page cache, or were a short time ago. False if the kernel does not tell.
    /// Does not block.
    pub(crate) fn is_known_to_page_cache(&self, offset: u64, len: usize) -> bool {
        let known = syscall::is_known_to_page_cache(self.as_fd(), offset, len as u64);
        known.unwrap_or_else(|_| {
            // A newer kernel starts a read if the byte is not in memory, into the page cache.
            let may_ask = !syscall::kernel_is_since((6, 12));
            may_ask && syscall::append_cached(self.as_fd(), &mut Vec::new(), 1, offset).is_ok()
        })
    }

    /// Calls `read` with the descriptor of the file itself, which reads whole blocks past the page cache meanwhile.
    /// Only before the file has another user, who would do so too. EINVAL if the file system does not support that.
    pub(crate) fn with_own_direct_fd(
        &self,
        read: impl FnOnce(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let flags = rustix::fs::fcntl_getfl(self.as_fd())? - OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(self.as_fd(), flags | OFlags::DIRECT)?;
        self.has_nonblock_flag.store(false, Ordering::Relaxed);
        let result = read(self.as_fd());
        // Else later reads on event loops would go to the disk.
        rustix::fs::fcntl_setfl(self.as_fd(), flags)?;
        result
    }

    /// Records that a read past the page cache was refused: prevents further ones.
    pub(crate) fn direct_refused(&self) {
        self.direct_refused.store(true, Ordering::Relaxed);
    }

    /// Another descriptor of this file.
    pub(super) fn another(&self, fd: OwnedFd) -> DeferredFd {
        DeferredFd::new(fd, self.fd.device())
    }

    /// Blocks until one more file of its device may be open: see [`closer::wait_for_room`].
    pub(crate) fn wait_for_room(&self) {
        closer::wait_for_room(self.fd.device());
    }

    /// Not public, because a call on the descriptor may block: see [`OpenFile::inline`].
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Turns off the kernel's readahead for a large file: a read then fetches exactly the requested bytes.
    pub(crate) fn disable_kernel_readahead(&self) {
        if self.meta.size > READAHEAD_BYTES_MAX
            && !self.has_random_advice.swap(true, Ordering::Relaxed)
        {
            // Only a hint: a failure has no consequence.
            let _ = rustix::fs::fadvise(self.as_fd(), 0, None, Advice::Random);
        }
    }

    /// Turns on the kernel's readahead, for `sendfile`.
    pub(crate) fn enable_kernel_readahead(&self) {
        if self.has_random_advice.swap(false, Ordering::Relaxed) {
            let _ = rustix::fs::fadvise(self.as_fd(), 0, None, Advice::Normal);
        }
    }

    /// Clears `O_NONBLOCK`: a ring would return EAGAIN instead of waiting where the file system cannot tell
    /// whether a read would block. Returns whether the flag was set.
    pub(crate) fn clear_nonblocking(&self) -> io::Result<bool> {
        if !self.has_nonblock_flag.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let flags = rustix::fs::fcntl_getfl(self.as_fd())?;
        rustix::fs::fcntl_setfl(self.as_fd(), flags - OFlags::NONBLOCK)?;
        self.has_nonblock_flag.store(false, Ordering::Relaxed);
        Ok(true)
    }
}
