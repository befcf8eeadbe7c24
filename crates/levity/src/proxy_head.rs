//! Heads of the PROXY protocol: read in front of a client's requests, written in front of a backend's.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::{Poll, ready};

use levity_wire::Reject;
use levity_wire::proxy_protocol::{self, Addresses};

use crate::client::Client;
use crate::conn::Conn;
use levity_config::upstream::ProxyProtocol;
use levity_telemetry::access_log::End;
use levity_telemetry::diagnostics;
use levity_telemetry::step::Step;

/// Reads the head that a connection begins with, and learns from it who the peer speaks for. What
/// follows goes to the inbox. The connection's timer bounds the wait.
///
/// # Errors
/// How the connection ends when there is none: whatever came instead is not taken for a request, nor
/// answered, because only who speaks the protocol may connect.
pub async fn read(conn: &mut Conn) -> Result<(), End> {
    let worker = conn.worker.clone();
    poll_fn(|context| {
        let mut scratch = worker.inbound.borrow_mut();
        loop {
            match ready!(conn.poll_read(context, &mut scratch)) {
                Ok(0) => return Poll::Ready(Err(cut_off(conn, None))),
                Ok(count) => conn.inbox.extend_from_slice(&scratch[..count]),
                Err(error) => return Poll::Ready(Err(cut_off(conn, Some(&error)))),
            }
            Step::Parse.enter();
            match take(conn) {
                Ok(true) => return Poll::Ready(Ok(())),
                Ok(false) => {}
                Err(reject) => {
                    tell(conn, reject.reason);
                    return Poll::Ready(Err(End::Error));
                }
            }
        }
    })
    .await
}

/// Takes the head off the inbox once all of it is there.
fn take(conn: &mut Conn) -> Result<bool, Reject> {
    let Some(header) = proxy_protocol::parse(&conn.inbox)? else {
        return Ok(false);
    };
    match header.addresses {
        Addresses::Local => {}
        // The name of a socket on the proxy's machine says no more of a client than none.
        Addresses::Unknown | Addresses::Unix { .. } => conn.peer.speaks_for_unknown(header.tls),
        Addresses::Ip {
            source,
            destination,
        } => conn.peer.speaks_for(source, destination, header.tls),
    }
    // Without the allocation, unless there is more: an idle connection has none.
    conn.inbox = conn.inbox[header.bytes..].to_vec();
    Ok(true)
}

/// A connection on which nothing came is of no interest: so a proxy finds out whether we live.
fn cut_off(conn: &Conn, error: Option<&io::Error>) -> End {
    let is_late = error.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut);
    match (conn.inbox.is_empty(), is_late) {
        (true, _) => End::Complete,
        (false, false) => End::ClientAbort,
        (false, true) => {
            tell(conn, "the PROXY header took too long");
            End::Timeout
        }
    }
}

fn tell(conn: &Conn, reason: &str) {
    match conn.peer.connected() {
        Some(ip) => diagnostics::say(format_args!("connection of {ip} closed: {reason}")),
        None => diagnostics::say(format_args!("connection on a Unix socket closed: {reason}")),
    }
}

/// The head of a connection to a backend that is made for `client`. Where a client is known that did
/// not connect to an address of ours, for it was named by a proxy on a Unix socket, the other end is
/// unspecified.
pub fn of_client(version: ProxyProtocol, conn: &Conn, client: &Client) -> Vec<u8> {
    let addresses = match client.ip {
        Some(ip) => Addresses::Ip {
            source: SocketAddr::new(ip, client.port.unwrap_or(0)),
            destination: destination(conn, ip),
        },
        None => Addresses::Unknown,
    };
    let mut head = Vec::new();
    match version {
        ProxyProtocol::V1 => proxy_protocol::write_v1(&addresses, &mut head),
        ProxyProtocol::V2 => proxy_protocol::write_v2(&addresses, &mut head),
    }
    head
}

/// The same for what we ask ourselves: no address of a client belongs to it.
pub fn of_ourselves(version: Option<ProxyProtocol>) -> Vec<u8> {
    let mut head = Vec::new();
    match version {
        Some(ProxyProtocol::V1) => proxy_protocol::write_v1(&Addresses::Local, &mut head),
        Some(ProxyProtocol::V2) => proxy_protocol::write_v2(&Addresses::Local, &mut head),
        None => {}
    }
    head
}

fn destination(conn: &Conn, client: IpAddr) -> SocketAddr {
    let of_client = conn.peer.destination();
    let unspecified = match client.to_canonical() {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    of_client
        .or_else(|| conn.stream.local_address())
        .unwrap_or(SocketAddr::new(unspecified, 0))
}
