//! Listening sockets of one event loop.

use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd as _;
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::net::{TcpListener, UnixListener};

use crate::peer::Peer;
use crate::transport::Transport;

/// A listening socket that is not registered with an event loop yet. Non-blocking.
#[derive(Debug)]
pub enum ListeningSocket {
    /// One of several on the same TCP port; the kernel spreads connections among them.
    Tcp(std::net::TcpListener),
    /// A descriptor of a Unix socket, which all event loops share.
    Unix(std::os::unix::net::UnixListener),
}

/// A listening socket that is registered with the runtime of this thread.
#[derive(Debug)]
pub enum Listener {
    /// Over TCP.
    Tcp(TcpListener),
    /// On a Unix socket.
    Unix(UnixListener),
}

impl Listener {
    /// Registers `socket` with the runtime of this thread.
    ///
    /// # Errors
    /// Those of `epoll_ctl`.
    pub fn new(socket: ListeningSocket) -> io::Result<Self> {
        match socket {
            ListeningSocket::Tcp(tcp) => TcpListener::from_std(tcp).map(Self::Tcp),
            ListeningSocket::Unix(unix) => UnixListener::from_std(unix).map(Self::Unix),
        }
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// Those of `accept4`.
    pub async fn accept(&self) -> io::Result<(Transport, Peer)> {
        poll_fn(|context| self.poll_accept(context)).await
    }

    /// Takes a connection. If there is none, the task is woken when there may be one.
    ///
    /// # Errors
    /// Those of `accept4`.
    pub fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<(Transport, Peer)>> {
        Poll::Ready(Ok(match self {
            Self::Tcp(listener) => {
                let (tcp, peer) = ready!(listener.poll_accept(context))?;
                (Transport::Tcp(tcp), Peer::new(Some(peer)))
            }
            Self::Unix(listener) => {
                let (unix, _) = ready!(listener.poll_accept(context))?;
                let credentials = unix.peer_cred();
                let uid = credentials.ok().map(|process| process.uid());
                (Transport::Unix(unix), Peer::new(None).with_uid(uid))
            }
        }))
    }

    /// Whether a connection waits to be accepted. Asks the kernel.
    #[must_use]
    pub fn has_backlog(&self) -> bool {
        let socket = match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        };
        let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}
