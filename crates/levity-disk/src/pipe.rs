//! Pipes that move bytes between descriptors without a copy through user space.
//!
//! A pipe holds references to pages of the kernel. It never blocks, but `splice` waits for the descriptor at the other
//! side: sockets have to be non-blocking, and files in memory.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags};

use crate::memory::Pages;
use crate::syscall;

/// A non-blocking pipe, with the number of bytes in it.
///
/// `WouldBlock` says that either side cannot continue. The caller can tell them apart: it fills only an empty pipe,
/// and drains only one that is not.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    capacity: usize,
    len: usize,
}

impl Pipe {
    /// An empty pipe for up to `capacity` bytes. It has the size that the kernel gives by default if this user may
    /// not have more (`/proc/sys/fs/pipe-max-size`, `pipe-user-pages-soft`).
    ///
    /// # Errors
    /// The errors of `pipe2`; `EMFILE` when descriptors are exhausted.
    pub fn new(capacity: usize) -> io::Result<Self> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let capacity = rustix::pipe::fcntl_setpipe_size(&write, capacity)
            .or_else(|_| rustix::pipe::fcntl_getpipe_size(&write))?;
        Ok(Self {
            read,
            write,
            capacity,
            len: 0,
        })
    }

    /// The maximum number of bytes. Fewer have room when pages are filled in part.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The number of bytes in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Moves up to `len` bytes from `from` to the end of the pipe; `offset` is that in a file, and `None` for a socket.
    /// Returns the number of bytes; zero at the end of `from`.
    ///
    /// # Errors
    /// The errors of `splice`; `WouldBlock` when the pipe is full or nothing has arrived.
    pub fn fill(
        &mut self,
        from: BorrowedFd<'_>,
        offset: Option<u64>,
        len: usize,
    ) -> io::Result<usize> {
        let (to, flags) = (&self.write, SpliceFlags::NONBLOCK);
        let moved = retry_on_intr(|| {
            rustix::pipe::splice(from, { offset }.as_mut(), to, None, len, flags)
        })?;
        self.len += moved;
        Ok(moved)
    }

    /// Appends the bytes of `pages` in `range`, as references to the memory. Returns the number of bytes, which is
    /// lower when the pipe is full then.
    ///
    /// # Errors
    /// The errors of `vmsplice`; `WouldBlock` when the pipe is full.
    pub fn fill_from_pages(&mut self, pages: &Pages, range: Range<usize>) -> io::Result<usize> {
        let bytes = [IoSliceRaw::from_slice(&pages[range])];
        let fill = || {
            // SAFETY: this is the write end, so the memory is only read, and `Pages` never change it, nor reuse it
            // after their drop.
            unsafe { rustix::pipe::vmsplice(&self.write, &bytes, SpliceFlags::NONBLOCK) }
        };
        let added = retry_on_intr(fill)?;
        self.len += added;
        Ok(added)
    }

    /// Copies bytes from the start of the pipe to `room`. Returns how many.
    pub(crate) fn take(&mut self, room: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
        let taken = retry_on_intr(|| syscall::read(self.read.as_fd(), room))?;
        self.len -= taken;
        Ok(taken)
    }

    /// Drops all bytes in the pipe, by way of `nothing`: `/dev/null`, open for writing.
    ///
    /// # Errors
    /// The errors of `splice`.
    fn discard(&mut self, nothing: impl AsFd) -> io::Result<()> {
        while !self.is_empty() {
            self.drain(nothing.as_fd(), self.len, false)?;
        }
        Ok(())
    }

    /// Moves up to `len` bytes from the start of the pipe to the socket `to`. `has_more` is whether bytes follow soon:
    /// then the kernel may wait for them before it sends an incomplete segment (`MSG_MORE`).
    ///
    /// # Errors
    /// The errors of `splice`; `WouldBlock` when the send buffer is full or the pipe is empty.
    pub fn drain(&mut self, to: BorrowedFd<'_>, len: usize, has_more: bool) -> io::Result<usize> {
        let mut flags = SpliceFlags::NONBLOCK;
        flags.set(SpliceFlags::MORE, has_more);
        let drain = || rustix::pipe::splice(&self.read, None, to, None, len, flags);
        let moved = retry_on_intr(drain)?;
        self.len -= moved;
        Ok(moved)
    }
}

/// Sends memory to sockets without a copy. One suffices for an event loop: what a socket does not accept is dropped,
/// and offered again later.
#[derive(Debug)]
pub struct PageSender {
    /// Empty between calls, unless its bytes could not be dropped.
    pipe: Pipe,
    /// `/dev/null`.
    nothing: OwnedFd,
}

impl PageSender {
    /// A sender of at most `bytes_max` in one call. Opens three descriptors. May block.
    ///
    /// # Errors
    /// As [`Pipe::new`] and [`PageSender::send`], and those of opening `/dev/null`; `QuotaExceeded` if the user may not
    /// have a pipe of that size.
    pub fn new(bytes_max: usize) -> io::Result<Self> {
        let nothing = File::options().write(true).open("/dev/null")?.into();
        let pipe = Pipe::new(bytes_max)?;
        // A user who has many pipes gets tiny ones. Then a copy costs less.
        if pipe.capacity() < bytes_max {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let mut sender = Self { pipe, nothing };
        // Sandboxes may refuse the calls.
        sender.pipe.fill_from_pages(&Pages::copy_of(&[0])?, 0..1)?;
        sender.pipe.discard(&sender.nothing)?;
        Ok(sender)
    }

    /// Sends bytes of `pages` from the start of `range`: as many as the socket accepts, which must be non-blocking.
    /// Returns `None` if the kernel cannot refer to the memory now. Does not block on a TCP socket.
    ///
    /// # Errors
    /// The errors of `splice`; `WouldBlock` when the send buffer is full.
    pub fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        pages: &Pages,
        range: Range<usize>,
    ) -> io::Result<Option<usize>> {
        // Bytes that the last call could not drop are those of another response.
        if self.pipe.discard(&self.nothing).is_err() {
            return Ok(None);
        }
        let Ok(filled) = self.pipe.fill_from_pages(pages, range) else {
            return Ok(None);
        };
        let sent = self.pipe.drain(socket, filled, false);
        // If it fails, the next call tries again: what was sent has to be counted now.
        let _ = self.pipe.discard(&self.nothing);
        sent.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    const CAPACITY: usize = 128 * 1024;

    fn sockets() -> (UnixStream, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        (near, far)
    }

    #[test]
    fn bytes_pass_from_socket_to_socket() {
        let (from, mut source) = sockets();
        let (to, mut sink) = sockets();
        let mut pipe = Pipe::new(CAPACITY).unwrap();
        source.write_all(b"some bytes").unwrap();
        assert_eq!(pipe.fill(from.as_fd(), None, 4).unwrap(), 4);
        assert_eq!(pipe.fill(from.as_fd(), None, CAPACITY).unwrap(), 6);
        assert_eq!(pipe.len(), 10);
        assert_eq!(pipe.drain(to.as_fd(), 7, true).unwrap(), 7);
        assert!(!pipe.is_empty());
        assert_eq!(pipe.drain(to.as_fd(), CAPACITY, false).unwrap(), 3);
        assert!(pipe.is_empty());
        let mut received = [0; 10];
        sink.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"some bytes");
    }

    #[test]
    fn nothing_blocks_and_the_end_is_zero_bytes() {
        let (from, source) = sockets();
        let (to, _sink) = sockets();
        let mut pipe = Pipe::new(CAPACITY).unwrap();
        let nothing = pipe.fill(from.as_fd(), None, 1).unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
        let empty = pipe.drain(to.as_fd(), 1, false).unwrap_err();
        assert_eq!(empty.kind(), ErrorKind::WouldBlock);
        drop(source);
        assert_eq!(pipe.fill(from.as_fd(), None, 1).unwrap(), 0);
    }

    #[test]
    fn a_full_send_buffer_keeps_the_rest_in_the_pipe() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; CAPACITY]).unwrap();
        let (to, _sink) = sockets();
        let mut pipe = Pipe::new(CAPACITY).unwrap();
        let mut moved = 0;
        let full = loop {
            if pipe.is_empty() {
                assert!(pipe.fill(file.as_fd(), Some(0), CAPACITY).unwrap() > 0);
            }
            match pipe.drain(to.as_fd(), CAPACITY, false) {
                Ok(count) => moved += count,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        assert!(moved > 0 && !pipe.is_empty());
    }

    /// They would be those of another response.
    #[test]
    fn bytes_that_cannot_be_dropped_are_not_sent_to_the_next_client() {
        let (full, _reader) = sockets();
        let (to, mut sink) = sockets();
        let pages = Pages::copy_of(&[1; CAPACITY]).unwrap();
        let mut sender = PageSender::new(CAPACITY).unwrap();
        sender.nothing = File::open("/dev/null").unwrap().into();
        let error = loop {
            match sender.send(full.as_fd(), &pages, 0..CAPACITY) {
                Ok(sent) => assert_eq!(sent, Some(CAPACITY)),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        let other = Pages::copy_of(&[2; 10]).unwrap();
        assert_eq!(sender.send(to.as_fd(), &other, 0..10).unwrap(), None);
        sender.nothing = File::options()
            .write(true)
            .open("/dev/null")
            .unwrap()
            .into();
        assert_eq!(sender.send(to.as_fd(), &other, 0..10).unwrap(), Some(10));
        let mut received = [0; 10];
        sink.read_exact(&mut received).unwrap();
        assert_eq!(received, [2; 10]);
    }

    /// Also from the middle of a page, and more than the socket and the pipe have room for.
    #[test]
    fn pages_are_sent_as_far_as_the_socket_accepts_them() {
        let bytes: Vec<u8> = (0..1_000_003_u32).map(|n| (n % 251) as u8).collect();
        let pages = Pages::copy_of(&bytes).unwrap();
        let (to, mut sink) = sockets();
        let mut sender = PageSender::new(CAPACITY).unwrap();
        let mut at = 5000;
        let mut received = Vec::new();
        let mut piece = vec![0; 300_000];
        let mut has_been_full = false;
        while at < bytes.len() {
            match sender.send(to.as_fd(), &pages, at..bytes.len()) {
                Ok(sent) => at += sent.unwrap(),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    has_been_full = true;
                    let count = sink.read(&mut piece).unwrap();
                    received.extend_from_slice(&piece[..count]);
                }
            }
            assert!(sender.pipe.is_empty());
        }
        // The pages stay valid while the socket refers to them.
        drop(pages);
        drop(to);
        sink.read_to_end(&mut received).unwrap();
        assert!(has_been_full && received == bytes[5000..]);
    }

    #[test]
    fn a_size_that_is_refused_leaves_the_default() {
        assert_eq!(Pipe::new(CAPACITY).unwrap().capacity(), CAPACITY);
        let default = Pipe::new(usize::MAX).unwrap();
        assert!(default.capacity() > 0);
    }
}
