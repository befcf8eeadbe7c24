//! Reading the names in a directory.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, RawDir, ResolveFlags, Stat};
use rustix::io::{Errno, retry_on_intr};

use crate::syscall;

/// Buffer for one `getdents64`, in bytes, as in glibc's `readdir`.
pub(super) const NAMES_BYTES: usize = 32 * 1024;

/// Opens the directory again, because the read position belongs to the open file description, which is shared. Blocks.
pub(super) fn reopen(directory: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(directory, c".", flags, Mode::empty())?)
}

/// Passes the next names in a directory to `add`, in the order of the file system, without `.` and `..`: all that one
/// `getdents64` returns, then further ones until `add` says that it has enough. The type of each is that in the
/// directory entry, which may be unknown. Returns whether these were the last. Blocks.
pub(super) fn next_names(
    directory: BorrowedFd<'_>,
    mut add: impl FnMut(&CStr, FileType) -> Enough,
) -> io::Result<bool> {
    let mut memory = [MaybeUninit::uninit(); NAMES_BYTES];
    let mut entries = RawDir::new(directory, &mut memory);
    let mut enough = Enough(false);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            enough = add(name, entry.file_type());
        }
        if enough.0 && entries.is_buffer_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether no further name is needed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Enough(pub(super) bool);

/// The metadata of `name` in `directory`, without following a link. Blocks on no device but the directory's.
///
/// # Errors
/// EXDEV if the name is a mount point.
pub(super) fn stat_name(directory: BorrowedFd<'_>, name: &CStr) -> Result<Stat, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || syscall::openat2(directory, name, flags, ResolveFlags::NO_XDEV);
    rustix::fs::fstat(retry_on_intr(open)?)
}
