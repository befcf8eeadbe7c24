//! A second descriptor for a file, to read it past the page cache (`O_DIRECT`).
//!
//! `O_DIRECT` belongs to an open file, and the same file is also read from the page cache: so there are
//! two. Opening the second one reads nothing from the disk, as the first one holds the inode.

use std::ffi::CString;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{CWD, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::closer;
use crate::syscall;

/// How many there may be in this process, unless [`set_direct_files_max`] says otherwise.
const FILES_MAX_DEFAULT: usize = 1024;

static FILES_MAX: AtomicUsize = AtomicUsize::new(FILES_MAX_DEFAULT);
static FILES: AtomicUsize = AtomicUsize::new(0);

/// Bounds the descriptors that this process has for reads past the page cache. Files beyond are read
/// through it.
pub fn set_direct_files_max(files: usize) {
    FILES_MAX.store(files, Ordering::Relaxed);
}

/// A place among those that there may be.
#[derive(Debug)]
struct Place;

impl Place {
    fn take() -> Option<Place> {
        let before = FILES.fetch_add(1, Ordering::Relaxed);
        let place = Place;
        (before < FILES_MAX.load(Ordering::Relaxed)).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        FILES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Open for reading with `O_DIRECT`. Closed like any other file, by a thread of its own.
#[derive(Debug)]
pub(crate) struct DirectFile {
    fd: ManuallyDrop<OwnedFd>,
    device: u64,
    _place: Place,
}

impl DirectFile {
    /// Opens the file behind `fd`, on `device`, once more. Does not wait for the disk. `None` when there
    /// are as many as may be, or when it is refused: the file system knows no `O_DIRECT`, or `/proc` is
    /// not mounted.
    pub(crate) fn open(fd: BorrowedFd<'_>, device: u64) -> Option<DirectFile> {
        let place = Place::take()?;
        let fd = reopen(fd, OFlags::NOATIME).or_else(|_| reopen(fd, OFlags::empty()));
        Some(DirectFile {
            fd: ManuallyDrop::new(fd.ok()?),
            device,
            _place: place,
        })
    }
}

/// By its name in `/proc`, which leads to the very file, whatever has become of its own name.
fn reopen(fd: BorrowedFd<'_>, more: OFlags) -> Result<OwnedFd, Errno> {
    let name = CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd()))
        .expect("a number has no zero byte");
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT | more;
    syscall::openat2(CWD, &name, flags, ResolveFlags::empty())
}

impl AsFd for DirectFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for DirectFile {
    fn drop(&mut self) {
        // SAFETY: taken once, here; nothing reads the field afterwards.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        closer::close(self.device, fd);
    }
}
