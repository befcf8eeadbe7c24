//! Our end of a connection, with a client or with a backend.
//!
//! Both transports of today take pipes and files as well as buffers; a transport that takes only
//! buffers turns what an engine hands over into bytes with `Ready::into_bytes`.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A connected socket.
pub enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Reads into `buffer`; zero bytes mean that the client sends no more.
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        let read = match self {
            Self::Tcp(tcp) => Pin::new(tcp).poll_read(context, &mut buffer),
            Self::Unix(unix) => Pin::new(unix).poll_read(context, &mut buffer),
        };
        ready!(read)?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Reads what has arrived, or says that it would have to wait. Asks the socket only if there was an
    /// event, and whatever the task has used of its turn.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => tcp.try_read(buffer),
            Self::Unix(unix) => unix.try_read(buffer),
        }
    }

    /// Writes what the socket takes at once of `bytes`. One slice costs less than a list of one: `send`
    /// looks at less than `writev`.
    pub fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write(context, bytes),
            Self::Unix(unix) => Pin::new(unix).poll_write(context, bytes),
        }
    }

    /// Writes what the socket takes at once of `slices`.
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(context, slices),
            Self::Unix(unix) => Pin::new(unix).poll_write_vectored(context, slices),
        }
    }

    /// Ready when the socket is likely to take bytes.
    pub fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(tcp) => tcp.poll_write_ready(context),
            Self::Unix(unix) => unix.poll_write_ready(context),
        }
    }

    /// Runs one system call that moves bytes to the socket.
    ///
    /// `WouldBlock` must come from the socket alone: from any other descriptor it would clear the
    /// socket's readiness, and no event would ever set it again.
    pub fn try_move<T>(&self, call: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        match self {
            Self::Tcp(tcp) => tcp.try_io(Interest::WRITABLE, || call(tcp.as_fd())),
            Self::Unix(unix) => unix.try_io(Interest::WRITABLE, || call(unix.as_fd())),
        }
    }

    /// The address at our end; none on a Unix socket.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(tcp) => tcp.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Makes closing the socket tell the client that the response was cut off.
    pub fn abort_on_close(&self) {
        // A client that is gone already needs no telling.
        let _ = socket2::SockRef::from(&self.as_fd()).set_linger(Some(Duration::ZERO));
    }

    /// Whether the connection is gone altogether: it was reset, or both sides have ended. Over TCP a peer that
    /// has closed looks like one that has ended its side, until something is sent to it; a Unix socket
    /// tells the two apart. Does not wait.
    pub fn is_gone(&self) -> bool {
        let mut sockets = [PollFd::new(self, PollFlags::empty())];
        let polled = rustix::event::poll(&mut sockets, Some(&Timespec::default()));
        let gone = PollFlags::HUP | PollFlags::ERR;
        polled.is_ok() && sockets[0].revents().intersects(gone)
    }

    /// Tells the client that no more bytes follow.
    pub fn finish(&self) {
        // Fails when the client is gone, which is the purpose.
        let _ = socket2::SockRef::from(&self.as_fd()).shutdown(std::net::Shutdown::Write);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(tcp) => tcp.as_fd(),
            Self::Unix(unix) => unix.as_fd(),
        }
    }
}
