//! Our end of a connection, with a client or with a backend.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::writev;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

use crate::arrivals::arrived;
#[cfg(any(test, feature = "test-support"))]
use crate::memory::{self, MemoryStream};

/// One end of a connection that carries bytes both ways. No call blocks.
#[derive(Debug)]
pub enum Transport {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
    /// Encrypted, over another one.
    Tls(Box<dyn Encrypted>),
    /// In memory.
    #[cfg(any(test, feature = "test-support"))]
    Memory(MemoryStream),
}

/// One end of a connection over TLS. Its methods are those of [`Transport`]; no call blocks.
pub trait Encrypted: fmt::Debug + Send {
    /// The transport beneath.
    fn below(&self) -> &Transport;

    /// As [`Transport::poll_read`].
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>>;

    /// As [`Transport::poll_append`].
    fn poll_append(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>>;

    /// As [`Transport::try_read`].
    ///
    /// # Errors
    /// The same.
    fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// As [`Transport::poll_write_vectored`].
    fn poll_write_vectored(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>>;

    /// As [`Transport::is_writing`].
    fn is_writing(&self) -> bool;

    /// As [`Transport::has_chosen_http2`].
    fn has_chosen_http2(&self) -> bool;

    /// As [`Transport::is_early`].
    fn is_early(&self) -> bool;

    /// As [`Transport::handshake_error`].
    fn handshake_error(&mut self) -> Option<String>;

    /// As [`Transport::end_output`].
    fn end_output(&mut self);

    /// As [`Transport::reset_on_close`].
    fn reset_on_close(&mut self);
}

impl Transport {
    /// Two connected ends in memory; `bytes_max` is the size of the buffer in each direction.
    #[cfg(any(test, feature = "test-support"))]
    #[must_use]
    pub fn memory(bytes_max: usize) -> (Self, Self) {
        let (one, other) = memory::pair(bytes_max);
        (Self::Memory(one), Self::Memory(other))
    }

    /// Reads into `buffer`; zero bytes mean that the peer sends no more.
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        #[cfg(any(test, feature = "test-support"))]
        if let Self::Memory(memory) = self {
            return counted(memory.poll_read(context, buffer));
        }
        if let Self::Tls(tls) = self {
            return tls.poll_read(context, buffer);
        }
        counted(
            self.poll_move(context, Interest::READABLE, buffer.len(), |socket| {
                Ok(recv(socket, &mut *buffer, RecvFlags::empty())?.1)
            }),
        )
    }

    /// Reads into the spare capacity of `buffer`, of which there must be some; zero bytes mean that the peer sends no
    /// more. Saves the copy from scratch memory, or the clearing of memory that is about to be overwritten.
    pub fn poll_append(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        #[cfg(any(test, feature = "test-support"))]
        if let Self::Memory(memory) = self {
            return counted(memory.poll_append(context, buffer));
        }
        if let Self::Tls(tls) = self {
            return tls.poll_append(context, buffer);
        }
        let room = buffer.capacity() - buffer.len();
        counted(self.poll_move(context, Interest::READABLE, room, |socket| {
            Ok(recv(socket, spare_capacity(buffer), RecvFlags::empty())?.0)
        }))
    }

    /// Waits for bytes and runs `call`, a system call that moves some of them from the socket; its `WouldBlock` must
    /// come from the socket alone, see [`Socket::try_move`]. Panics without a [socket](Transport::socket).
    pub fn poll_take<T>(
        &self,
        context: &mut Context<'_>,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        counted(self.poll_call(context, Interest::READABLE, |socket| {
            socket.try_take(&mut call)
        }))
    }

    /// Waits for bytes and reads them into `buffer`; zero bytes mean that the peer sends no more.
    ///
    /// # Errors
    /// Those of `recv`.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_read(context, buffer)).await
    }

    /// Writes all of `bytes`; waits as long as that takes.
    ///
    /// # Errors
    /// Those of `send`.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match poll_fn(|context| self.poll_write(context, bytes)).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => bytes = &bytes[written..],
            }
        }
        Ok(())
    }

    /// Reads what has arrived. Makes a system call only if there was an event; does not count towards the task's
    /// budget of the runtime.
    ///
    /// # Errors
    /// `WouldBlock` when nothing has arrived.
    pub fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match self {
            Self::Tcp(tcp) => tcp.try_read(buffer),
            Self::Unix(unix) => unix.try_read(buffer),
            Self::Tls(tls) => return tls.try_read(buffer),
            #[cfg(any(test, feature = "test-support"))]
            Self::Memory(memory) => memory.try_read(buffer),
        };
        read.inspect(|_| arrived())
    }

    /// Writes as many of `bytes` as there is room for. Costs less than a list of one slice: the kernel checks less
    /// for `send` than for `writev`. Counts towards no budget of the runtime: the caller keeps to a
    /// [turn](crate::Turn), or reads. After `Pending` the next write must begin with the same bytes: over TLS they are
    /// encrypted already.
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        #[cfg(any(test, feature = "test-support"))]
        if let Self::Memory(memory) = self {
            return memory.poll_write_vectored(context, &[IoSlice::new(bytes)]);
        }
        if let Self::Tls(tls) = self {
            return tls.poll_write_vectored(context, &[IoSlice::new(bytes)]);
        }
        let call = |socket: BorrowedFd<'_>| Ok(send(socket, bytes, SendFlags::NOSIGNAL)?);
        // Most sockets have room. To ask whether one has costs as much as all else here that is not the system call.
        let socket = self.socket().expect("only sockets are left");
        match socket.move_up_to(bytes.len(), Interest::WRITABLE, call) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.poll_move(context, Interest::WRITABLE, bytes.len(), call)
            }
            moved => Poll::Ready(moved),
        }
    }

    /// Writes as many bytes of `slices` as there is room for.
    pub fn poll_write_vectored(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        #[cfg(any(test, feature = "test-support"))]
        if let Self::Memory(memory) = self {
            return memory.poll_write_vectored(context, slices);
        }
        if let Self::Tls(tls) = self {
            return tls.poll_write_vectored(context, slices);
        }
        let len = slices.iter().map(|slice| slice.len()).sum();
        self.poll_move(context, Interest::WRITABLE, len, |socket| {
            Ok(writev(socket, slices)?)
        })
    }

    /// Waits until `call` can move up to `len` bytes in the direction of `interest`, and runs it.
    fn poll_move(
        &self,
        context: &mut Context<'_>,
        interest: Interest,
        len: usize,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        self.poll_call(context, interest, |socket| {
            socket.move_up_to(len, interest, &mut call)
        })
    }

    /// Runs `call` when the socket is likely to be ready, until it does not say `WouldBlock`. Counts towards the task's
    /// budget of the runtime.
    fn poll_call<T>(
        &self,
        context: &mut Context<'_>,
        interest: Interest,
        mut call: impl FnMut(Socket<'_>) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let socket = self.socket().expect("only sockets are waited for");
        loop {
            ready!(match (socket, interest.is_readable()) {
                (Socket::Tcp(tcp), true) => tcp.poll_read_ready(context),
                (Socket::Tcp(tcp), false) => tcp.poll_write_ready(context),
                (Socket::Unix(unix), true) => unix.poll_read_ready(context),
                (Socket::Unix(unix), false) => unix.poll_write_ready(context),
            })?;
            match call(socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                moved => return Poll::Ready(moved),
            }
        }
    }

    /// Whether bytes are on their way that no write has reported yet, as may be over TLS after `Pending`.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        match self {
            Self::Tls(tls) => tls.is_writing(),
            _ => false,
        }
    }

    /// Ready when a write is likely to move bytes.
    pub fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(tcp) => tcp.poll_write_ready(context),
            Self::Unix(unix) => unix.poll_write_ready(context),
            Self::Tls(tls) => tls.below().poll_write_ready(context),
            #[cfg(any(test, feature = "test-support"))]
            Self::Memory(memory) => memory.poll_write_ready(context),
        }
    }

    /// The socket, where bytes that are written to it reach the peer as they are. `None` for a transport that takes
    /// bytes from memory only.
    #[must_use]
    pub fn socket(&self) -> Option<Socket<'_>> {
        match self {
            Self::Tcp(tcp) => Some(Socket::Tcp(tcp)),
            Self::Unix(unix) => Some(Socket::Unix(unix)),
            Self::Tls(_) => None,
            #[cfg(any(test, feature = "test-support"))]
            Self::Memory(_) => None,
        }
    }

    /// The number of the TCP socket, also of one that carries TLS.
    #[must_use]
    pub fn tcp_socket(&self) -> Option<RawFd> {
        match self {
            Self::Tcp(tcp) => Some(tcp.as_raw_fd()),
            Self::Tls(tls) => tls.below().tcp_socket(),
            _ => None,
        }
    }

    /// Whether the handshake of TLS has chosen HTTP/2 (RFC 9113, 3.2).
    #[must_use]
    pub fn has_chosen_http2(&self) -> bool {
        match self {
            Self::Tls(tls) => tls.has_chosen_http2(),
            _ => false,
        }
    }

    /// Whether what was read so far is early data, of a handshake that is not complete.
    #[must_use]
    pub fn is_early(&self) -> bool {
        match self {
            Self::Tls(tls) => tls.is_early(),
            _ => false,
        }
    }

    /// Why the handshake has failed, as an operator would say it, if it has since its early data was read.
    pub fn handshake_error(&mut self) -> Option<String> {
        match self {
            Self::Tls(tls) => tls.handshake_error(),
            _ => None,
        }
    }

    /// The address at our end; `None` except over TCP.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(tcp) => tcp.local_addr().ok(),
            Self::Tls(tls) => tls.below().local_address(),
            _ => None,
        }
    }

    /// Makes the close of the connection a reset, by which the peer learns that the response is incomplete.
    pub fn reset_on_close(&mut self) {
        let socket = match self {
            Self::Tcp(tcp) => SockRef::from(&*tcp),
            Self::Unix(unix) => SockRef::from(&*unix),
            Self::Tls(tls) => return tls.reset_on_close(),
            #[cfg(any(test, feature = "test-support"))]
            Self::Memory(memory) => return memory.reset_on_close(),
        };
        // Fails only when the peer has reset the connection already.
        let _ = socket.set_linger(Some(Duration::ZERO));
    }

    /// Whether both directions have ended, or the connection was reset. Over TCP a peer that has closed its socket
    /// looks like one that has shut down its output, until something is sent to it; a Unix socket tells the
    /// two apart.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let socket = match self {
            Self::Tcp(tcp) => tcp.as_fd(),
            Self::Unix(unix) => unix.as_fd(),
            Self::Tls(tls) => return tls.below().is_closed(),
            #[cfg(any(test, feature = "test-support"))]
            Self::Memory(memory) => return memory.is_closed(),
        };
        let mut sockets = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
        let polled = rustix::event::poll(&mut sockets, Some(&Timespec::default()));
        let closed = PollFlags::HUP | PollFlags::ERR;
        polled.is_ok() && sockets[0].revents().intersects(closed)
    }

    /// Shuts down our output: the peer learns that no more bytes follow.
    pub fn end_output(&mut self) {
        let socket = match self {
            Self::Tcp(tcp) => SockRef::from(&*tcp),
            Self::Unix(unix) => SockRef::from(&*unix),
            Self::Tls(tls) => return tls.end_output(),
            #[cfg(any(test, feature = "test-support"))]
            Self::Memory(memory) => return memory.end_output(),
        };
        // Fails only when the connection is closed already.
        let _ = socket.shutdown(Shutdown::Write);
    }
}

/// Counts a read among the [`arrivals`](crate::arrivals). Of a read over TLS the one below counts: what was decrypted
/// before has arrived before.
fn counted<T>(read: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
    if read.is_ready() {
        arrived();
    }
    read
}

/// The socket of a [`Transport`]: system calls may move bytes to it from other descriptors.
#[derive(Debug, Clone, Copy)]
pub enum Socket<'t> {
    /// Of TCP.
    Tcp(&'t TcpStream),
    /// A Unix socket.
    Unix(&'t UnixStream),
}

impl Socket<'_> {
    /// Runs one system call that moves bytes to the socket, unless the socket is known to be full.
    ///
    /// # Errors
    /// Those of `call`. Its `WouldBlock` must come from the socket alone: from any other descriptor it
    /// would clear the socket's readiness, and no event would ever set it again.
    pub fn try_move<T>(self, call: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        match self {
            Self::Tcp(tcp) => tcp.try_io(Interest::WRITABLE, || call(tcp.as_fd())),
            Self::Unix(unix) => unix.try_io(Interest::WRITABLE, || call(unix.as_fd())),
        }
    }

    /// Runs one system call that moves up to `len` bytes in the direction of `interest`.
    // Not by `TcpStream::poll_read` and its like: they call libc, whose functions can be cancelled, and that takes two
    // more calls each.
    fn move_up_to(
        self,
        len: usize,
        interest: Interest,
        call: impl FnOnce(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut moved = None;
        let and_note = |socket: BorrowedFd<'_>| {
            let count = call(socket)?;
            moved = Some(count);
            match (1..len).contains(&count) {
                // The socket is empty, or full. That is what `WouldBlock` tells the runtime, and saves the call that says so.
                true => Err(io::ErrorKind::WouldBlock.into()),
                false => Ok(count),
            }
        };
        let outcome = match self {
            Self::Tcp(tcp) => tcp.try_io(interest, || and_note(tcp.as_fd())),
            Self::Unix(unix) => unix.try_io(interest, || and_note(unix.as_fd())),
        };
        moved.map_or(outcome, Ok)
    }

    /// Runs one system call that moves bytes from the socket, unless the socket is known to be empty.
    fn try_take<T>(self, call: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        match self {
            Self::Tcp(tcp) => tcp.try_io(Interest::READABLE, || call(tcp.as_fd())),
            Self::Unix(unix) => unix.try_io(Interest::READABLE, || call(unix.as_fd())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sockets() -> (Transport, Transport) {
        let (one, other) = UnixStream::pair().unwrap();
        (Transport::Unix(one), Transport::Unix(other))
    }

    async fn append(transport: &mut Transport, buffer: &mut Vec<u8>) -> io::Result<usize> {
        poll_fn(|context| transport.poll_append(context, buffer)).await
    }

    #[tokio::test]
    async fn bytes_are_appended_as_far_as_there_is_room() {
        for (mut near, mut far) in [sockets(), Transport::memory(100)] {
            far.write_all(b"some bytes").await.unwrap();
            let mut buffer = Vec::with_capacity(8);
            buffer.push(b'_');
            let room = buffer.capacity() - 1;
            assert_eq!(append(&mut near, &mut buffer).await.unwrap(), room);
            buffer.reserve_exact(100);
            assert_eq!(append(&mut near, &mut buffer).await.unwrap(), 10 - room);
            assert_eq!(buffer, b"_some bytes");
            drop(far);
            assert_eq!(append(&mut near, &mut buffer).await.unwrap(), 0);
        }
    }

    /// A read that has emptied the socket lets the next one wait for an event.
    #[tokio::test]
    async fn a_read_after_a_short_one_waits_for_bytes() {
        for (mut near, mut far) in [sockets(), Transport::memory(100)] {
            let mut buffer = Vec::with_capacity(100);
            for round in 1..=3 {
                let (read, written) =
                    tokio::join!(append(&mut near, &mut buffer), far.write_all(b"bytes"));
                written.unwrap();
                assert_eq!(read.unwrap(), 5);
                assert_eq!(buffer.len(), 5 * round);
            }
        }
    }

    /// A write that has filled the socket lets the next one wait for an event.
    #[tokio::test]
    async fn a_write_after_a_short_one_waits_for_room() {
        let (mut near, mut far) = sockets();
        let bytes: Vec<u8> = (0..4_u32 << 20).map(|at| (at >> 10) as u8).collect();
        let writing = async {
            let (mut sent, mut short) = (0, 0);
            while sent < bytes.len() {
                let rest = &bytes[sent..];
                let count = poll_fn(|context| near.poll_write(context, rest)).await;
                let count = count.expect("a reader");
                short += usize::from(count < rest.len());
                sent += count;
            }
            near.end_output();
            short
        };
        let reading = async {
            let mut read = Vec::new();
            loop {
                read.reserve(64 * 1024);
                if append(&mut far, &mut read).await.expect("a writer") == 0 {
                    return read;
                }
            }
        };
        let (short, read) = tokio::join!(writing, reading);
        assert!(short > 0, "the socket was never full");
        assert!(
            read == bytes,
            "{} of {} bytes came",
            read.len(),
            bytes.len()
        );
    }
}
