//! Sending from a file or from shared memory to a plain socket, without a copy through user space.
//!
//! The socket must be non-blocking. Each call sends as many bytes as the socket accepts, which may be fewer
//! than asked for, and fails with `WouldBlock` if it accepts none.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use crate::files::OpenFile;

/// Sends up to `len` bytes of `file` from `offset`. **Blocks on the disk** if they are not in the page cache,
/// which no flag prevents (`do_sendfile` ignores `O_NONBLOCK`): on a loop only for
/// [`Ready::PageCache`](crate::Ready::PageCache).
///
/// # Errors
/// The errors of `sendfile`. `Ok(0)` means that the file has shrunk and ends before `offset`.
pub fn sendfile(
    socket: BorrowedFd<'_>,
    file: &OpenFile,
    offset: u64,
    len: usize,
) -> io::Result<usize> {
    send_shared(socket, file.as_fd(), offset, len)
}

/// Sends up to `len` bytes of a [memory file](crate::Buffer::memory_file) from `offset`. Does not block.
///
/// The network stack may hold the pages after the buffer was dropped: the owner of the memory never writes to
/// them again.
///
/// # Errors
/// The errors of `sendfile`.
pub fn send_shared(
    socket: BorrowedFd<'_>,
    memory: BorrowedFd<'_>,
    offset: u64,
    len: usize,
) -> io::Result<usize> {
    let send = || rustix::fs::sendfile(socket, memory, Some(&mut { offset }), len);
    Ok(retry_on_intr(send)?)
}

/// Whether `socket` accepts bytes now. If not, the kernel wakes those who wait for that, also after `epoll` with
/// `EPOLLET`. Does not block.
///
/// # Errors
/// The errors of `poll`.
pub fn is_writable(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut sockets = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
    let now = Timespec::default();
    Ok(retry_on_intr(|| poll(&mut sockets, Some(&now)))? > 0)
}
