//! A connection over TCP or a Unix socket, with limits of time instead of endless waits.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use socket2::SockRef;

use super::WAIT_MAX;

pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connects to an address in the form of the configuration: `127.0.0.1:80` or `unix:/path`.
    pub fn connect(address: &str) -> io::Result<Self> {
        match address.strip_prefix("unix:") {
            Some(path) => Self::unix(Path::new(path)),
            None => {
                let address: SocketAddr = address.parse().expect("an address with a port");
                Self::of_tcp(TcpStream::connect_timeout(&address, WAIT_MAX)?)
            }
        }
    }

    pub fn unix(path: &Path) -> io::Result<Self> {
        Self::of_unix(UnixStream::connect(path)?)
    }

    pub fn of_tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Self::Tcp(stream).with_limits()
    }

    pub fn of_unix(stream: UnixStream) -> io::Result<Self> {
        Self::Unix(stream).with_limits()
    }

    fn with_limits(self) -> io::Result<Self> {
        self.read_timeout(WAIT_MAX)?;
        self.write_timeout(WAIT_MAX)?;
        Ok(self)
    }

    pub fn read_timeout(&self, limit: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => tcp.set_read_timeout(Some(limit)),
            Self::Unix(unix) => unix.set_read_timeout(Some(limit)),
        }
    }

    pub fn write_timeout(&self, limit: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => tcp.set_write_timeout(Some(limit)),
            Self::Unix(unix) => unix.set_write_timeout(Some(limit)),
        }
    }

    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => tcp.shutdown(how),
            Self::Unix(unix) => unix.shutdown(how),
        }
    }

    /// Another handle of the same connection.
    pub fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(tcp) => tcp.try_clone().map(Self::Tcp),
            Self::Unix(unix) => unix.try_clone().map(Self::Unix),
        }
    }

    /// The peer gets a reset instead of an end when the last handle is dropped; over TCP only.
    pub fn reset_when_closed(&self) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => SockRef::from(tcp).set_linger(Some(Duration::ZERO)),
            Self::Unix(_) => Ok(()),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => tcp.read(piece),
            Self::Unix(unix) => unix.read(piece),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => tcp.write(bytes),
            Self::Unix(unix) => unix.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
