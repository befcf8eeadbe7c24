//! Listening sockets, before they belong to a loop. Runs on the control thread.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Type};

use crate::accept::Socket;
use crate::address::Address;

/// Connections that the kernel keeps for us until they are accepted; it may cut this down to
/// `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Bytes that the kernel takes from us before the network takes them from it. Without the bound a
/// client that reads slowly but steadily holds megabytes, and its socket is writable so seldom that
/// it looks stalled.
const UNSENT_BYTES_MAX: u32 = 256 * 1024;

/// One address and a socket on it for each worker. The file of a Unix socket goes when this is
/// dropped: whoever listens keeps it, without its sockets.
pub struct Bound {
    /// As configured.
    pub configured: Address,
    /// As bound: a port in place of 0.
    pub actual: Address,
    /// One per worker.
    pub sockets: Vec<Socket>,
    _file: Option<SocketFile>,
}

/// The file of a Unix socket; dropping it removes the file.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Someone may have removed it already.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Binds `address` for `workers` loops.
///
/// # Errors
/// When the address is not ours or is in use; the message says whom to look for.
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
        (io::ErrorKind::PermissionDenied, Address::Tcp(tcp)) if tcp.port() < 1024 => {
            "; ports below 1024 need root or CAP_NET_BIND_SERVICE".to_owned()
        }
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
    let mut sockets = vec![Socket::Tcp(first)];
    while sockets.len() < workers {
        sockets.push(Socket::Tcp(socket(actual, true)?));
    }
    Ok(Bound {
        configured: Address::Tcp(address),
        actual: Address::Tcp(actual),
        sockets,
        _file: None,
    })
}

/// `[::]` takes IPv4 clients too, and stands for `0.0.0.0` on a machine without IPv6.
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
    // Connections inherit both. A response is written whole or in large pieces: waiting for more
    // only delays it.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn is_without_v6(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
}

fn bind_unix(path: &Path, workers: usize) -> io::Result<Bound> {
    remove_stale(path)?;
    let listener = UnixListener::bind(path)?;
    let file = SocketFile(path.to_owned());
    listener.set_nonblocking(true)?;
    let sockets = (0..workers).map(|_| Ok(Socket::Unix(listener.try_clone()?)));
    Ok(Bound {
        configured: Address::Unix(path.to_owned()),
        actual: Address::Unix(path.to_owned()),
        sockets: sockets.collect::<io::Result<_>>()?,
        _file: Some(file),
    })
}

/// Removes a socket file that nobody listens on any more.
fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket = path
        .symlink_metadata()
        .is_ok_and(|metadata| metadata.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    Ok(())
}
