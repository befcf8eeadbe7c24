//! Who a request came from.

use std::net::{IpAddr, SocketAddr};

use levity_wire::forwarded::{self, Node, Origin};

use crate::request::Request;
use levity_config::TrustedProxies;

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Who has connected; none on a Unix socket.
    socket: Option<SocketAddr>,
    speaker: Speaker,
}

/// For whom the other end speaks.
#[derive(Debug, Clone)]
enum Speaker {
    /// For itself.
    Itself,
    /// For a client that it did not name in its head of the PROXY protocol.
    Nameless { is_https: bool },
    /// For this client, as it said in its head of the PROXY protocol. Boxed: few connections have one.
    Named(Box<Named>),
}

/// The ends of the connection that a client has made to a proxy in front of us.
#[derive(Debug, Clone)]
struct Named {
    source: SocketAddr,
    destination: SocketAddr,
    is_https: bool,
}

impl Peer {
    /// Who has connected, `None` over a Unix socket.
    pub fn new(socket: Option<SocketAddr>) -> Self {
        Self {
            socket: socket.map(canonical),
            speaker: Speaker::Itself,
        }
    }

    /// It speaks for a client that is not known, which used TLS or not.
    pub fn speaks_for_unknown(&mut self, is_https: bool) {
        self.speaker = Speaker::Nameless { is_https };
    }

    /// It speaks for the client at `source`, who connected to `destination` and used TLS or not.
    pub fn speaks_for(&mut self, source: SocketAddr, destination: SocketAddr, is_https: bool) {
        self.speaker = Speaker::Named(Box::new(Named {
            source: canonical(source),
            destination: canonical(destination),
            is_https,
        }));
    }

    /// Who has connected; none on a Unix socket.
    pub fn connected(&self) -> Option<IpAddr> {
        self.socket.map(|address| address.ip())
    }

    /// Whom it speaks for, as far as that is known: otherwise who has connected.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.speaker {
            Speaker::Named(named) => Some(named.source),
            Speaker::Itself | Speaker::Nameless { .. } => self.socket,
        }
    }

    /// The address without its port.
    pub fn ip(&self) -> Option<IpAddr> {
        self.address().map(|address| address.ip())
    }

    /// Where its client connected to, if that was not here.
    pub fn destination(&self) -> Option<SocketAddr> {
        match &self.speaker {
            Speaker::Named(named) => Some(named.destination),
            Speaker::Itself | Speaker::Nameless { .. } => None,
        }
    }

    /// What a client that is not known says is no word of the proxy that speaks for it.
    fn is_known(&self) -> bool {
        !matches!(self.speaker, Speaker::Nameless { .. })
    }

    fn scheme(&self) -> &'static str {
        match &self.speaker {
            Speaker::Nameless { is_https: true } => "https",
            Speaker::Named(named) if named.is_https => "https",
            _ => "http",
        }
    }
}

/// An IPv4 address is one, also when IPv6 wraps it.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

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
