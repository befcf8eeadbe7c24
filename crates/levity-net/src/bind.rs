//! Listening sockets: bound on the control thread, one for each event loop.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use levity_config::address::Address;
use levity_config::in_unit::remedy_for_file;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, open, statat};
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Type};

use crate::listener::ListeningSocket;

/// Connections that wait in the kernel until they are accepted; limited by `net.core.somaxconn`.
pub const BACKLOG: u16 = 4096;

/// Unsent bytes that the kernel buffers for one connection (`TCP_NOTSENT_LOWAT`). Without the limit a client
/// that reads slowly but steadily holds megabytes, and its socket is writable so seldom that it looks stalled.
const UNSENT_BYTES_MAX: u32 = 256 * 1024;

/// An address and a socket on it for each event loop. Dropping it removes the file of a Unix socket, unless
/// another process has put its own file there: keep it as long as the sockets are in use.
pub struct Bound {
    /// As configured.
    pub configured: Address,
    /// As bound: a port in place of 0.
    pub actual: Address,
    /// One per event loop.
    pub sockets: Vec<ListeningSocket>,
    _file: Option<SocketFile>,
}

/// The file of a Unix socket. Dropping it removes the file, if the path still names this one.
struct SocketFile(NamedFile);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A file that cannot be removed is replaced at the next start.
        let _ = self.0.remove();
    }
}

/// A file and the path under which it was opened.
struct NamedFile {
    path: PathBuf,
    /// Opened with `O_PATH`. As long as it is open the file system gives the inode's number to no other
    /// file; without it a successor's socket could have the number of ours, which was removed.
    file: OwnedFd,
}

impl NamedFile {
    /// Opens the file at `path`; a symbolic link is not followed.
    fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = open(path, flags, Mode::empty())?;
        let path = path.to_owned();
        Ok(Self { path, file })
    }

    fn is_socket(&self) -> io::Result<bool> {
        let mode = fstat(&self.file)?.st_mode;
        Ok(FileType::from_raw_mode(mode) == FileType::Socket)
    }

    /// Removes the file, unless the path names another one by now. The comparison and the removal are two system
    /// calls: a file that is put there between them is removed in its place.
    fn remove(&self) -> io::Result<()> {
        let own = fstat(&self.file)?;
        let named = match statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            named => named?,
        };
        if is_same(&own, &named) {
            std::fs::remove_file(&self.path)?;
        }
        Ok(())
    }
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

impl Bound {
    /// Sockets on an address that has no file.
    pub(crate) fn without_file(
        configured: &Address,
        actual: &Address,
        sockets: Vec<ListeningSocket>,
    ) -> Self {
        Self {
            configured: configured.clone(),
            actual: actual.clone(),
            sockets,
            _file: None,
        }
    }
}

/// Binds `address` for `workers` loops.
///
/// # Errors
/// When the address is not one of this machine or is in use; the message says how to find the user.
pub fn bind(address: &Address, workers: usize) -> io::Result<Bound> {
    let bound = match address {
        Address::Tcp(tcp) => bind_tcp(*tcp, workers),
        Address::Unix(path) => bind_unix(path, workers),
    };
    bound.map_err(|error| explain(address, &error))
}

fn explain(address: &Address, error: &io::Error) -> io::Error {
    let hint = match (error.kind(), address) {
        (io::ErrorKind::AddrInUse, Address::Tcp(tcp)) => {
            // Not `-l`: the port may be that of an outgoing connection, which listens to nothing.
            format!("; `ss -tanp 'sport = :{}'` shows by whom", tcp.port())
        }
        (io::ErrorKind::AddrInUse, Address::Unix(path)) => {
            let path = path.display();
            format!(
                "; `ss -xlp 'src = {path}'` shows by whom, and if it is nobody, remove the file"
            )
        }
        (io::ErrorKind::PermissionDenied, Address::Tcp(tcp)) if tcp.port() < 1024 => {
            "; ports below 1024 need root or CAP_NET_BIND_SERVICE".to_owned()
        }
        (_, Address::Unix(path)) => remedy_for_file(path, error),
        _ => String::new(),
    };
    io::Error::new(
        error.kind(),
        format!("cannot listen on {address}: {error}{hint}"),
    )
}

fn bind_tcp(address: SocketAddr, workers: usize) -> io::Result<Bound> {
    // SO_REUSEPORT would quietly share the port with another server of the same user.
    if address.port() != 0 {
        drop(socket(address, false)?);
    }
    let first = socket(address, true)?;
    let actual = first.local_addr()?;
    let mut sockets = vec![ListeningSocket::Tcp(first)];
    while sockets.len() < workers {
        sockets.push(ListeningSocket::Tcp(socket(actual, true)?));
    }
    let [configured, actual] = [address, actual].map(Address::Tcp);
    Ok(Bound::without_file(&configured, &actual, sockets))
}

/// A listening socket. `[::]` accepts IPv4 clients too, and falls back to `0.0.0.0` on a machine without IPv6.
fn socket(address: SocketAddr, share: bool) -> io::Result<std::net::TcpListener> {
    let made = socket2::Socket::new(Domain::for_address(address), Type::STREAM, None);
    let socket = match made {
        Err(error) if is_without_v6(&error) && address.ip().is_unspecified() => {
            return self::socket((Ipv4Addr::UNSPECIFIED, address.port()).into(), share);
        }
        made => made?,
    };
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(share)?;
    socket.set_nonblocking(true)?;
    set_connection_options(&socket)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(BACKLOG.into())?;
    Ok(socket.into())
}

/// Sets what the connections of a listening socket inherit. A response is written whole or in large pieces, so Nagle's algorithm
/// would only delay it.
pub(crate) fn set_connection_options(socket: &socket2::Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)
}

fn is_without_v6(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
}

fn bind_unix(path: &Path, workers: usize) -> io::Result<Bound> {
    remove_stale(path)?;
    let listener = UnixListener::bind(path)?;
    let file = SocketFile(NamedFile::open(path)?);
    listener.set_nonblocking(true)?;
    let sockets = (0..workers).map(|_| Ok(ListeningSocket::Unix(listener.try_clone()?)));
    Ok(Bound {
        configured: Address::Unix(path.to_owned()),
        actual: Address::Unix(path.to_owned()),
        sockets: sockets.collect::<io::Result<_>>()?,
        _file: Some(file),
    })
}

/// Removes a socket file without a listener.
fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match NamedFile::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if found.is_socket()? && is_left_behind(path)? {
        found.remove()?;
    }
    Ok(())
}

/// Whether the Unix socket at `path` has no listener. Other errors than a refused connection come from a socket
/// in use: one without permission to connect, a datagram socket, or one whose backlog is full, where a blocking
/// call would wait.
fn is_left_behind(path: &Path) -> io::Result<bool> {
    let probe = socket2::Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    let connected = probe.connect(&SockAddr::unix(path)?);
    Ok(connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused))
}
