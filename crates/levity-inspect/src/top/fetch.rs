//! The figures of a running server, fetched from its admin listener.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time;

/// From connecting to the last byte.
const TIMEOUT: Duration = Duration::from_secs(5);

/// No server sends a longer response.
const RESPONSE_BYTES_MAX: u64 = 8 << 20;

const REQUEST: &[u8] = b"GET /status.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// The address of an admin listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// An unspecified IP address stands for this machine.
    Tcp(SocketAddr),
    /// The path of a Unix stream socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The object of `/status.json`.
///
/// # Errors
/// There is no response within 5 s, or it is not that of an admin listener. The message names the address and
/// says what to do.
pub(super) async fn status(address: &Address) -> io::Result<Value> {
    let response = time::timeout(TIMEOUT, response(address)).await;
    let response = response.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let response = response.map_err(|error| with_hint(address, &error))?;
    parse(&response).ok_or_else(|| {
        let text = format!("what answers at {address} is not the admin listener of a Levity");
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

fn with_hint(address: &Address, error: &io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            "; is the server running, and does its configuration have `[admin]` with this `listen`?"
        }
        io::ErrorKind::PermissionDenied => "; the permissions of the socket's file decide",
        _ => "",
    };
    io::Error::new(error.kind(), format!("cannot ask {address}: {error}{hint}"))
}

async fn response(address: &Address) -> io::Result<Vec<u8>> {
    match address {
        Address::Tcp(address) => exchange(TcpStream::connect(reachable(*address)).await?).await,
        Address::Unix(path) => exchange(UnixStream::connect(path).await?).await,
    }
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<Vec<u8>> {
    stream.write_all(REQUEST).await?;
    let mut response = Vec::new();
    let mut stream = stream.take(RESPONSE_BYTES_MAX);
    stream.read_to_end(&mut response).await?;
    match stream.limit() {
        0 => Err(io::Error::other("the answer is too long")),
        _ => Ok(response),
    }
}

/// An address to connect to. A listener on `[::]` takes IPv4 too, and without IPv6 nothing else.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) | IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        _ => {}
    }
    address
}

/// The body of a 200. The listener ends it by closing the connection.
fn parse(response: &[u8]) -> Option<Value> {
    let end = response.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (header, body) = response.split_at(end + 4);
    if !header.starts_with(b"HTTP/1.1 200 ") {
        return None;
    }
    let status: Value = serde_json::from_slice(body).ok()?;
    status["connections"].is_object().then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_responses_are_refused() {
        let good = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n{\"connections\":{}}\n";
        assert!(parse(good).is_some());
        for bad in [
            &b""[..],
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\n\r\n<html>",
            b"HTTP/1.1 404 Not Found\r\n\r\n{\"connections\":{}}",
        ] {
            assert!(parse(bad).is_none(), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn an_unspecified_address_is_this_machine() {
        for (listen, reached) in [
            ("[::]:9", "127.0.0.1:9"),
            ("0.0.0.0:9", "127.0.0.1:9"),
            ("[::1]:9", "[::1]:9"),
            ("192.0.2.1:9", "192.0.2.1:9"),
        ] {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), reached);
        }
    }
}
