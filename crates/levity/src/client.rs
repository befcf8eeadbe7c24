//! Who a request came from.

use std::net::IpAddr;

/// The client of a request: the one at the other end of the connection, or whom a trusted proxy there
/// names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// None on a Unix socket.
    pub ip: Option<IpAddr>,
    /// Who is at the other end of the connection; none on a Unix socket.
    pub peer: Option<IpAddr>,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The other end of the connection is a proxy that is trusted to tell who came before it.
    pub by_trusted: bool,
}
