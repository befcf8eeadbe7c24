//! Blocking reads into buffers.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use super::meta::Meta;
use super::open_file::OpenFile;
use crate::memory::{ALIGNMENT, Buffer};
use crate::syscall;

/// Reads the whole blocks around the bytes that `buffer` is for, as far as whole blocks come, after the
/// first `filled` bytes of them. EINVAL when the device wants other blocks than ours, or the file
/// system none at all.
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
    // SAFETY: the calls say that they have written this much, one behind the other.
    unsafe { buffer.filled_blocks(filled) };
    Ok(())
}

/// Reads until the buffer has no more room or the file ends. `offset` is where the buffer begins; it
/// may hold some bytes already.
pub(crate) fn fill(file: &OpenFile, buffer: &mut Buffer, offset: u64) -> io::Result<()> {
    while buffer.room() > 0 {
        let at = offset.saturating_add(buffer.len() as u64);
        match syscall::pread(file.as_fd(), buffer.spare(), at) {
            Ok(0) => break,
            // SAFETY: the call says that it has written `count` bytes at the start of the spare part.
            Ok(count) => unsafe { buffer.advance(count) },
            // EAGAIN: the file is still `O_NONBLOCK`, on a file system that takes it at its word.
            Err(Errno::AGAIN) => file
                .clear_nonblocking()
                .and_then(|cleared| cleared.then_some(()).ok_or(Errno::AGAIN.into()))?,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Cuts what has been read from `offset` to what the file holds now, and tells what it is now.
pub(crate) fn cut_at_end(file: &OpenFile, buffer: &mut Buffer, offset: u64) -> io::Result<Meta> {
    let now = file.refresh()?;
    cut(buffer, offset, &file.meta, &now);
    Ok(now)
}

/// A truncation lowers the size first and then clears the rest of the last page, while others read
/// it: a zero that was not in the file lies beyond the size that `fstat` tells after the read.
///
/// A file without a size at both times is one of procfs or the like: its bytes are made when read.
pub(crate) fn cut(buffer: &mut Buffer, offset: u64, before: &Meta, now: &Meta) {
    if (before.size, now.size) != (0, 0) {
        let held = now.size.saturating_sub(offset);
        buffer.truncate(usize::try_from(held).unwrap_or(usize::MAX));
    }
}
