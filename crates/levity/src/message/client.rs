//! The client that a request came from, directly or through trusted proxies.

use std::net::{IpAddr, SocketAddr};

use levity_config::TrustedProxies;
use levity_net::Peer;
use levity_telemetry::access_log::Tls;
use levity_wire::forwarded::{self, Node, Origin};
use levity_wire::http1::host_name;

use crate::message::request::Request;

/// What the log says of the handshake of `peer`.
pub fn logged_tls(peer: &Peer) -> Option<Tls<'_>> {
    let tls = peer.tls()?;
    Some(Tls {
        version: tls.version,
        cipher: tls.cipher,
        name: tls.name.as_deref().unwrap_or_default(),
        is_resumed: tls.is_resumed,
    })
}

/// The client of a request: the peer of the connection, or the client that a trusted proxy reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// The address; `None` on a Unix socket.
    pub ip: Option<IpAddr>,
    /// The port of that address, if known.
    pub port: Option<u16>,
    /// The address of the connection's peer; `None` on a Unix socket.
    pub peer: Option<IpAddr>,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The peer is a trusted proxy, whose forwarding headers count.
    pub by_trusted: bool,
    /// Where its host is.
    pub host_in: HostIn,
}

/// Where the host is that a client has asked for: a trusted proxy may have changed Host. With the number of the element,
/// from the right: behind more than 256 proxies it is that of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostIn {
    /// In the request itself.
    #[default]
    Request,
    /// In `Forwarded`.
    Forwarded(u8),
    /// In X-Forwarded-Host.
    XForwardedHost(u8),
}

impl HostIn {
    /// What is there in `request`; `None` unless it is a valid host.
    fn read(self, request: &Request) -> Option<&[u8]> {
        let host = match self {
            Self::Request => Some(request.host()),
            Self::Forwarded(at) => forwarded::forwarded_hosts(request.headers_named("forwarded"))
                .nth(at.into())
                .flatten(),
            Self::XForwardedHost(at) => from_the_right(request, "x-forwarded-host", at.into()),
        };
        host.filter(|host| host_name(host).is_ok())
    }
}

impl Client {
    /// A client that has no address, and that no proxy reports, such as this server itself.
    pub const fn without_address(scheme: &'static str) -> Self {
        Self {
            ip: None,
            port: None,
            peer: None,
            scheme,
            by_trusted: false,
            host_in: HostIn::Request,
        }
    }

    /// The host that it has asked for, with its port; empty if it has named none.
    pub fn host<'r>(&self, request: &'r Request) -> &'r [u8] {
        self.host_in.read(request).unwrap_or(request.host())
    }

    /// Address and port; port 0 if the port is unknown, `None` on a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        let port = self.port.unwrap_or(0);
        self.ip.map(|ip| SocketAddr::new(ip, port))
    }

    /// Whether it is the peer of the connection itself.
    pub fn is_peer(&self) -> bool {
        self.ip == self.peer
    }

    /// The client of `request` on a connection with `peer`. Forwarding headers count as far as each of them was
    /// added by a proxy in `trusted`.
    pub fn new(peer: &Peer, request: &Request, trusted: &TrustedProxies) -> Self {
        let address = peer.address();
        let ip = address.map(|address| address.ip());
        let own = Self {
            ip,
            port: address.map(|address| address.port()),
            peer: ip,
            scheme: peer.scheme(),
            by_trusted: false,
            host_in: HostIn::Request,
        };
        if !peer.is_known() || !trusted.contains(own.peer) {
            return own;
        }
        let forwarded = Forwarded::read(own.peer, request, trusted);
        let mut client = Self {
            scheme: forwarded.scheme.unwrap_or(own.scheme),
            by_trusted: true,
            host_in: forwarded.host_in,
            ..own
        };
        // Without any element the peer itself is the client.
        if let Some(node) = forwarded.client.filter(|_| forwarded.elements > 0) {
            client.ip = Some(node.ip());
            client.port = node.port();
        }
        client
    }
}

/// The client as reported by trusted proxies.
struct Forwarded {
    client: Option<Node>,
    /// The number of trusted elements, from the right.
    elements: usize,
    scheme: Option<&'static str>,
    host_in: HostIn,
}

impl Forwarded {
    /// Reads X-Forwarded-For in preference to `Forwarded`. A proxy that knows only one of them passes on the other
    /// as the client wrote it, and far more proxies know only X-Forwarded-For than know only `Forwarded`.
    fn read(peer: Option<IpAddr>, request: &Request, trusted: &TrustedProxies) -> Self {
        let standard = || forwarded::forwarded(request.headers_named("forwarded"));
        let de_facto = || forwarded::x_forwarded_for(request.headers_named("x-forwarded-for"));
        let is_standard = de_facto().next().is_none() && standard().next().is_some();
        let is_trusted = |ip| trusted.contains(ip);
        let origin = match is_standard {
            true => forwarded::origin(peer, standard(), is_trusted),
            false => forwarded::origin(peer, de_facto(), is_trusted),
        };
        let at = client_index(&origin);
        let said = || forwarded::forwarded_schemes(request.headers_named("forwarded")).nth(at);
        let said = is_standard.then(said).flatten().flatten();
        // What a proxy does not say in the one form, it may say in the other.
        let number = u8::try_from(at).ok();
        let places = number.map(|at| [HostIn::Forwarded(at), HostIn::XForwardedHost(at)]);
        let places = places.into_iter().flatten();
        let mut host_in = places.skip(usize::from(!is_standard));
        Self {
            client: origin.client,
            elements: origin.elements,
            scheme: said
                .and_then(scheme)
                .or_else(|| from_the_right(request, "x-forwarded-proto", at).and_then(scheme)),
            host_in: host_in
                .find(|place| place.read(request).is_some())
                .unwrap_or_default(),
        }
    }
}

/// The index of the element that describes the client, from the right. It is 0 even if that element names no
/// client: the peer added it.
fn client_index(origin: &Origin) -> usize {
    origin.elements.saturating_sub(1)
}

/// The value number `at`, from the right, of a header with what the client has asked for, or the leftmost. Most proxies
/// replace the header with one value. Where each proxy appends a value, there are as many as in X-Forwarded-For.
fn from_the_right<'r>(request: &'r Request, name: &'static str, at: usize) -> Option<&'r [u8]> {
    let values = request.headers_named(name);
    let values = values
        .rev()
        .flat_map(|line| line.rsplit(|&byte| byte == b','));
    values.take(at + 1).last().map(<[u8]>::trim_ascii)
}

/// The scheme that a proxy names. Some name that of a WebSocket while a connection is upgraded: it says the same about TLS.
fn scheme(name: &[u8]) -> Option<&'static str> {
    let name = name.trim_ascii().to_ascii_lowercase();
    match &name[..] {
        b"http" | b"ws" => Some("http"),
        b"https" | b"wss" => Some("https"),
        _ => None,
    }
}
