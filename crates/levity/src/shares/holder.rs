//! Whose share something counts to.

use std::fmt;
use std::net::IpAddr;

use crate::message::client::Client;
use crate::message::client_prefix::ClientPrefix;

/// A client as far as shares are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Holder {
    /// All clients of an IPv4 address, or of an IPv6 network of 64 bits.
    Prefix(ClientPrefix),
    /// The connection of this number. Those of a Unix socket, of this machine and of trusted proxies carry the requests of
    /// many clients, or of programs that trust each other, so the address says nothing.
    Connection(u64),
}

impl Holder {
    /// The holder of what a request takes, which `client` sent on the connection of that number.
    pub fn of_request(client: &Client, connection: u64) -> Self {
        match client.is_peer() && client.by_trusted {
            true => Self::Connection(connection),
            false => Self::of_address(client.ip, connection),
        }
    }

    fn of_address(ip: Option<IpAddr>, connection: u64) -> Self {
        match ip.map(|ip| ip.to_canonical()) {
            Some(ip) if !ip.is_loopback() => Self::Prefix(ClientPrefix::new(Some(ip))),
            _ => Self::Connection(connection),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix(prefix) => prefix.fmt(f),
            Self::Connection(_) => {
                f.write_str("a connection of this machine, a Unix socket or a trusted proxy")
            }
        }
    }
}
