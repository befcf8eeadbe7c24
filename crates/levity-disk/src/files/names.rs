//! Reading the names in a directory.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, Mode, OFlags, RawDir, ResolveFlags, Stat};
use rustix::io::{Errno, retry_on_intr};

use crate::syscall;

/// Buffer for one `getdents64`, in bytes, as in glibc's `readdir`.
const NAMES_BYTES: usize = 32 * 1024;

/// Returns up to `names_max` names in a directory, in the order of the file system, without `.` and `..`,
/// and whether there are more. The type of each is that in the directory entry, which may be unknown.
/// Blocks. Opens the directory again, because the read position belongs to the open file description, which
/// is shared.
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

/// The metadata of `name` in `directory`, without following a link. Blocks on no device but the directory's.
///
/// # Errors
/// EXDEV if the name is a mount point.
pub(super) fn stat_name(directory: BorrowedFd<'_>, name: &CStr) -> Result<Stat, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || syscall::openat2(directory, name, flags, ResolveFlags::NO_XDEV);
    rustix::fs::fstat(retry_on_intr(open)?)
}
