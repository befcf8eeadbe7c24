//! Sending from a file, a pipe or shared memory to a plain socket, without a copy through user space.
//!
//! The socket must be non-blocking. Each call sends as many bytes as the socket accepts, which may be fewer
//! than asked for, and fails with `WouldBlock` if it accepts none.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::retry_on_intr;
use rustix::pipe::SpliceFlags;

use crate::files::OpenFile;
use crate::memory::Lease;

/// Sends up to `len` bytes of `file` from `offset`. **Blocks on the disk** if they are not in the page cache,
/// which no flag prevents (`do_sendfile` ignores `O_NONBLOCK`): only for
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
    send_from(socket, file.as_fd(), offset, len)
}

/// Sends up to `len` bytes of a memory file from `offset`. Does not block.
///
/// The network stack may hold the pages after the lease has ended: the owner of the memory never writes to
/// them again.
///
/// # Errors
/// The errors of `sendfile`.
pub fn send_shared(
    socket: BorrowedFd<'_>,
    memory: &Lease,
    offset: u64,
    len: usize,
) -> io::Result<usize> {
    send_from(socket, memory.as_fd(), offset, len)
}

fn send_from(
    socket: BorrowedFd<'_>,
    from: BorrowedFd<'_>,
    offset: u64,
    len: usize,
) -> io::Result<usize> {
    let send = || rustix::fs::sendfile(socket, from, Some(&mut { offset }), len);
    Ok(retry_on_intr(send)?)
}

/// Moves up to `len` bytes from a pipe to a socket. Does not block: `SPLICE_F_NONBLOCK` covers the pipe, and the
/// socket's `O_NONBLOCK` the rest.
///
/// # Errors
/// The errors of `splice`. `WouldBlock` means that the socket is full, if the pipe holds `len` bytes; `Ok(0)` that the
/// pipe is empty.
pub fn splice(pipe: BorrowedFd<'_>, socket: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
    let flags = SpliceFlags::NONBLOCK;
    let splice = || rustix::pipe::splice(pipe, None, socket, None, len, flags);
    Ok(retry_on_intr(splice)?)
}
