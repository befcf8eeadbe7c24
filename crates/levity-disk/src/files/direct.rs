//! A second descriptor for a file, for reads past the page cache (`O_DIRECT`).
//!
//! `O_DIRECT` is a property of the open file description, and the same file is also read through the page
//! cache, so there are two. Opening the second one needs no disk access: the first one holds the inode.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::closer::DeferredFd;
use crate::permits::{Permit, Permits};
use crate::syscall;

/// Bound on these descriptors in the process, unless [`set_direct_files_max`] sets another one.
const FILES_MAX_DEFAULT: usize = 1024;

static FILES: Permits = Permits::new(FILES_MAX_DEFAULT);

/// Bounds the number of descriptors that this process opens for reads past the page cache. Further files are
/// read through the page cache.
pub fn set_direct_files_max(files: usize) {
    FILES.set_max(files);
}

/// A file that is open for reading with `O_DIRECT`. Closed by the closing threads, like any file.
#[derive(Debug)]
pub(crate) struct DirectFile {
    fd: DeferredFd,
    _permit: Permit,
}

impl DirectFile {
    /// Opens the file of `fd`, on `device`, again. Does not wait for the disk. `None` if the bound is reached,
    /// or if the open fails: the file system does not support `O_DIRECT`, or `/proc` is not mounted.
    pub(crate) fn open(fd: BorrowedFd<'_>, device: u64) -> Option<DirectFile> {
        let permit = FILES.take(1)?;
        let fd = reopen(fd, OFlags::NOATIME).or_else(|_| reopen(fd, OFlags::empty()));
        Some(DirectFile {
            fd: DeferredFd::new(fd.ok()?, device),
            _permit: permit,
        })
    }
}

/// Opens the file through `/proc`, which leads to the same file even if it was renamed or deleted.
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
