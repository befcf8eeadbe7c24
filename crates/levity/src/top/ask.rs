//! One question to an admin listener.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde_json::Value;
use tokio::net::{TcpStream, UnixStream};
use tokio::time;

use levity_config::address::Address;

/// From connecting to the last byte.
const TIME_MAX: Duration = Duration::from_secs(5);

/// An answer that is longer comes from something else.
const ANSWER_BYTES_MAX: usize = 8 << 20;

const REQUEST: &[u8] = b"GET /status.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The figures at `/status.json`.
///
/// # Errors
/// When nobody answers within five seconds, or what answers is no Levity; the message says at which
/// address, and what to do.
pub async fn status(address: &Address) -> io::Result<Value> {
    let exchange = time::timeout(TIME_MAX, exchange(address)).await;
    let answer = exchange.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let answer = answer.map_err(|error| unanswered(address, &error))?;
    parse(&answer).ok_or_else(|| {
        let text = format!("what answers at {address} is not the admin listener of a Levity");
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

fn unanswered(address: &Address, error: &io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            "; is the server running, and does its configuration have `[admin]` with this `listen`?"
        }
        io::ErrorKind::PermissionDenied => "; the permissions of the socket's file decide",
        _ => "",
    };
    io::Error::new(error.kind(), format!("cannot ask {address}: {error}{hint}"))
}

async fn exchange(address: &Address) -> io::Result<Vec<u8>> {
    let stream = match address {
        Address::Tcp(address) => Stream::Tcp(TcpStream::connect(reachable(*address)).await?),
        Address::Unix(path) => Stream::Unix(UnixStream::connect(path).await?),
    };
    let mut rest = REQUEST;
    while !rest.is_empty() {
        let written = stream.write(rest).await?;
        rest = &rest[written..];
    }
    let mut answer = Vec::new();
    while stream.read(&mut answer).await? > 0 {
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(io::Error::other("the answer is too long"));
        }
    }
    Ok(answer)
}

/// To listen everywhere is to be reached here.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        // Without IPv6 the server listens on IPv4 in its place; with it, on both.
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

impl Stream {
    async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let written = match self {
                Self::Tcp(tcp) => {
                    tcp.writable().await?;
                    tcp.try_write(bytes)
                }
                Self::Unix(unix) => {
                    unix.writable().await?;
                    unix.try_write(bytes)
                }
            };
            if !would_block(&written) {
                return written;
            }
        }
    }

    /// Appends what has come; 0 at the end.
    async fn read(&self, answer: &mut Vec<u8>) -> io::Result<usize> {
        let mut piece = [0; 16 * 1024];
        loop {
            let read = match self {
                Self::Tcp(tcp) => {
                    tcp.readable().await?;
                    tcp.try_read(&mut piece)
                }
                Self::Unix(unix) => {
                    unix.readable().await?;
                    unix.try_read(&mut piece)
                }
            };
            if !would_block(&read) {
                let read = read?;
                answer.extend_from_slice(&piece[..read]);
                return Ok(read);
            }
        }
    }
}

fn would_block(result: &io::Result<usize>) -> bool {
    result
        .as_ref()
        .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// The body of a 200, which the admin listener ends by closing.
fn parse(answer: &[u8]) -> Option<Value> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (head, body) = answer.split_at(end + 4);
    if !head.starts_with(b"HTTP/1.1 200 ") {
        return None;
    }
    let status: Value = serde_json::from_slice(body).ok()?;
    status["connections"].is_object().then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_status_is_refused() {
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
    fn unspecified_is_this_machine() {
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
