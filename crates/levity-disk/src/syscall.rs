//! The calls that need more than rustix offers, or that must all pass through one place.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// The only way to open by path after start-up: the seccomp guard cannot see whether
/// `RESOLVE_CACHED` was set, because the flags lie behind a pointer.
pub(crate) fn openat2(
    directory: impl AsFd,
    path: &CStr,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(directory, path, flags, Mode::empty(), resolve)
}

/// One `pread` into memory that need not be initialised. Blocks; 0 is the end of the file.
pub(crate) fn pread(
    fd: BorrowedFd<'_>,
    into: &mut [MaybeUninit<u8>],
    offset: u64,
) -> Result<usize, Errno> {
    let offset = libc::off64_t::try_from(offset).map_err(|_| Errno::INVAL)?;
    // SAFETY: the slice is writable for its whole length, and the kernel writes nowhere else.
    let count =
        unsafe { libc::pread64(fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), offset) };
    outcome(count)
}

/// One `preadv2(RWF_NOWAIT)` that appends to `buffer`. EAGAIN when the first byte is not cached.
pub(crate) fn append_cached(
    fd: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    len: usize,
    offset: u64,
) -> Result<usize, Errno> {
    let offset = libc::off64_t::try_from(offset).map_err(|_| Errno::INVAL)?;
    buffer.reserve(len);
    let vector = libc::iovec {
        iov_base: buffer.spare_capacity_mut().as_mut_ptr().cast(),
        iov_len: len,
    };
    // SAFETY: the vector names `len` writable bytes of the buffer's spare capacity.
    let count = unsafe { libc::preadv64v2(fd.as_raw_fd(), &vector, 1, offset, libc::RWF_NOWAIT) };
    let count = outcome(count)?;
    // SAFETY: the kernel has just written `count` bytes behind the old length, within the capacity.
    unsafe { buffer.set_len(buffer.len() + count) };
    Ok(count)
}

/// What a call that returns -1 and sets errno says.
pub(crate) fn outcome(result: libc::ssize_t) -> Result<usize, Errno> {
    usize::try_from(result)
        .map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}
