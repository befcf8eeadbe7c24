//! Listening sockets of one event loop.

use std::io;

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
        match self {
            Self::Tcp(listener) => {
                let (tcp, peer) = listener.accept().await?;
                Ok((Transport::Tcp(tcp), Peer::new(Some(peer))))
            }
            Self::Unix(listener) => {
                let (unix, _) = listener.accept().await?;
                let credentials = unix.peer_cred();
                let uid = credentials.ok().map(|process| process.uid());
                Ok((Transport::Unix(unix), Peer::new(None).with_uid(uid)))
            }
        }
    }
}
