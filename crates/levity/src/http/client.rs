//! Who a request came from.

use std::net::{IpAddr, SocketAddr};

use levity_config::TrustedProxies;
use levity_net::Peer;
use levity_wire::forwarded::{self, Node, Origin};

use crate::http::request::Request;

/// The client of a request: the one at the other end of the connection, or whom a trusted proxy there
/// names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// None on a Unix socket.
    pub ip: Option<IpAddr>,
    /// The port that goes with `ip`, if it is known.
    pub port: Option<u16>,
    /// Who is at the other end of the connection; none on a Unix socket.
    pub peer: Option<IpAddr>,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The other end of the connection is a proxy that is trusted to tell who came before it.
    pub by_trusted: bool,
}

impl Client {
    /// The address, with port 0 if the port is not known; `None` on a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        let port = self.port.unwrap_or(0);
        self.ip.map(|ip| SocketAddr::new(ip, port))
    }

    /// Who sent `request` over a connection with `peer`, as far as those say who are `trusted`.
    pub fn new(peer: &Peer, request: &Request, trusted: &TrustedProxies) -> Self {
        let own = Self {
            ip: peer.ip(),
            port: peer.address().map(|address| address.port()),
            peer: peer.ip(),
            scheme: peer.scheme(),
            by_trusted: false,
        };
        if !peer.is_known() || !trusted.contains(own.peer) {
            return own;
        }
        let told = Told::read(own.peer, request, trusted);
        let mut client = Self {
            scheme: told.scheme.unwrap_or(own.scheme),
            by_trusted: true,
            ..own
        };
        // Where nobody is named, the peer itself has asked.
        if let Some(node) = told.client.filter(|_| told.elements > 0) {
            client.ip = Some(node.ip());
            client.port = node.port();
        }
        client
    }
}

/// What trusted proxies say of a client.
struct Told {
    client: Option<Node>,
    elements: usize,
    scheme: Option<&'static str>,
}

impl Told {
    /// X-Forwarded-For goes before `Forwarded`. A proxy passes the one of them that it does not know on as
    /// the client wrote it, and far more know X-Forwarded-For alone than `Forwarded` alone.
    fn read(peer: Option<IpAddr>, request: &Request, trusted: &TrustedProxies) -> Self {
        let standard = || forwarded::forwarded(request.headers_named("forwarded"));
        let usual = || forwarded::x_forwarded_for(request.headers_named("x-forwarded-for"));
        let is_standard = usual().next().is_none() && standard().next().is_some();
        let is_trusted = |ip| trusted.contains(ip);
        let (origin, scheme) = if is_standard {
            let origin = forwarded::origin(peer, standard(), is_trusted);
            let mut schemes = forwarded::forwarded_schemes(request.headers_named("forwarded"));
            (
                origin,
                schemes.nth(last(&origin)).flatten().and_then(scheme),
            )
        } else {
            (forwarded::origin(peer, usual(), is_trusted), None)
        };
        Self {
            client: origin.client,
            elements: origin.elements,
            scheme: scheme.or_else(|| x_forwarded_proto(request, &origin)),
        }
    }
}

/// The place of the element that tells of the client, from the right. The nearest one is the proxy's own
/// word even if it names nobody.
fn last(origin: &Origin) -> usize {
    origin.elements.saturating_sub(1)
}

/// Most proxies set X-Forwarded-Proto to one word. Where each adds one, it has as many as
/// X-Forwarded-For.
fn x_forwarded_proto(request: &Request, origin: &Origin) -> Option<&'static str> {
    let values = request.headers_named("x-forwarded-proto");
    let values = values
        .rev()
        .flat_map(|line| line.rsplit(|&byte| byte == b','));
    values.take(last(origin) + 1).last().and_then(scheme)
}

fn scheme(name: &[u8]) -> Option<&'static str> {
    let known = ["http", "https"];
    let is = |known: &&str| name.trim_ascii().eq_ignore_ascii_case(known.as_bytes());
    known.into_iter().find(is)
}
