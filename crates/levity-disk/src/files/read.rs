//! Blocking reads into buffers.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use super::meta::Meta;
use super::open_file::OpenFile;
use crate::memory::{ALIGNMENT, Buffer};
use crate::syscall;

/// Reads the whole blocks around the bytes that `buffer` is for, except their first `filled` bytes, until a
/// read returns less than a whole block. Fails with EINVAL if the device requires another block size, or
/// the file system does not support `O_DIRECT`.
pub(crate) fn fill_blocks(
    fd: BorrowedFd<'_>,
    buffer: &mut Buffer,
    offset: u64,
    mut filled: usize,
) -> Result<(), Errno> {
    let start = buffer.blocks_offset(offset);
    while filled.is_multiple_of(ALIGNMENT) && !buffer.blocks(filled).is_empty() {
        match syscall::pread(fd, buffer.blocks(filled), start + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    // SAFETY: the calls have written this many bytes, one after the other.
    unsafe { buffer.filled_blocks(filled) };
    Ok(())
}

/// Reads until the buffer is full or the file ends. `offset` is that of the first byte of the buffer, which
/// may contain some bytes already.
pub(crate) fn fill(file: &OpenFile, buffer: &mut Buffer, offset: u64) -> io::Result<()> {
    while buffer.room() > 0 {
        let at = offset.saturating_add(buffer.len() as u64);
        match syscall::pread(file.as_fd(), buffer.spare(), at) {
            Ok(0) => break,
            // SAFETY: the call has written `count` bytes at the start of the spare part.
            Ok(count) => unsafe { buffer.advance(count) },
            // EAGAIN: the file is still `O_NONBLOCK`, which some file systems honour.
            Err(Errno::AGAIN) => file
                .clear_nonblocking()
                .and_then(|cleared| cleared.then_some(()).ok_or(Errno::AGAIN.into()))?,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// The number of bytes from `offset` that the file has by its size in `now`: what was read beyond is to be cut. The
/// kernel lowers the size of a truncated file first and then clears the rest of the last page, which others may be
/// reading: zeroes that were not in the file are beyond the size that `fstat` reports after the read.
///
/// A file without a size before and after is one of procfs or the like, generated when it is read.
pub(crate) fn held(offset: u64, before: &Meta, now: &Meta) -> usize {
    if (before.size, now.size) == (0, 0) {
        return usize::MAX;
    }
    let held = now.size.saturating_sub(offset);
    usize::try_from(held).unwrap_or(usize::MAX)
}
