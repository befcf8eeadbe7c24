//! The names in a directory.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, Mode, OFlags, RawDir, ResolveFlags, Stat};
use rustix::io::{Errno, retry_on_intr};

use crate::syscall;

/// In bytes per `getdents64`: what glibc's `readdir` uses.
const NAMES_BYTES: usize = 32 * 1024;

/// Up to `names_max` names in a directory, in the order of the file system, without `.` and `..`;
/// and whether there are more. With each comes what the directory says that it is, which may be nothing.
/// Opens the directory anew: the position belongs to the open file, which others use.
pub(super) fn names(
    directory: BorrowedFd<'_>,
    names_max: usize,
) -> io::Result<(Vec<(CString, FileType)>, bool)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let anew = rustix::fs::openat(directory, c".", flags, Mode::empty())?;
    let mut memory = vec![MaybeUninit::uninit(); NAMES_BYTES];
    let mut entries = RawDir::new(&anew, &mut memory);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if names.len() == names_max {
            return Ok((names, true));
        }
        names.push((name.to_owned(), entry.file_type()));
    }
    Ok((names, false))
}

/// What `name` in `directory` is: itself, not what a link leads to. Waits for no device but the directory's.
///
/// # Errors
/// EXDEV where another mount begins.
pub(super) fn stat_name(directory: BorrowedFd<'_>, name: &CStr) -> Result<Stat, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || syscall::openat2(directory, name, flags, ResolveFlags::NO_XDEV);
    rustix::fs::fstat(retry_on_intr(open)?)
}
