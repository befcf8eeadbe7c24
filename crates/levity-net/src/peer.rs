//! The other end of a connection, and the client that a proxy there names.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use levity_config::address::Address;
use rustix::process::geteuid;

/// The other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// `None` on a Unix socket.
    socket: Option<SocketAddr>,
    /// The user of the process at the other end; known on a Unix socket only.
    uid: Option<u32>,
    client: PeerClient,
    /// The listener that accepted the connection, as configured.
    listener: Option<Arc<Address>>,
    /// Whether that listener is for publishers.
    is_for_publishers: bool,
    /// What its handshake has said. Boxed: many connections have none.
    tls: Option<Box<PeerTls>>,
}

/// Stands for the rules by which a client has to prove who it is: other rules have another one.
pub type ClientAuthId = [u8; 32];

/// What a handshake has said of the other end.
#[derive(Debug, Clone)]
pub struct PeerTls {
    /// Stands for the rules by which the client had to prove who it is; `None` without.
    pub client_auth: Option<ClientAuthId>,
    /// The version of the protocol, such as `TLSv1.3`.
    pub version: &'static str,
    /// The cipher suite, by its name in the registry of IANA.
    pub cipher: &'static str,
    /// The name of a server that the client has asked for.
    pub name: Option<Box<str>>,
    /// The session was resumed.
    pub is_resumed: bool,
    /// The certificate that the client has shown, if it was verified.
    pub certificate: Option<ClientCertificate>,
}

/// The certificate of a client.
#[derive(Debug, Clone)]
pub struct ClientCertificate {
    /// Its first alternative name, or its subject.
    pub name: String,
    /// The certificate itself.
    pub der: Vec<u8>,
}

/// The client for which the other end sends requests.
#[derive(Debug, Clone)]
enum PeerClient {
    /// The other end itself.
    Itself,
    /// One that the PROXY header did not name.
    Unknown { is_https: bool },
    /// The one that the PROXY header named. Boxed: few connections have one.
    Named(Box<Named>),
}

/// The two ends of the connection that a client has made to a proxy in front of us.
#[derive(Debug, Clone)]
struct Named {
    source: SocketAddr,
    destination: SocketAddr,
    is_https: bool,
}

impl Peer {
    /// A peer with the address `socket`, `None` on a Unix socket. It is its own client.
    #[must_use]
    pub fn new(socket: Option<SocketAddr>) -> Self {
        Self {
            socket: socket.map(canonical),
            uid: None,
            client: PeerClient::Itself,
            listener: None,
            is_for_publishers: false,
            tls: None,
        }
    }

    /// The process at the other end of a Unix socket runs as this user.
    #[must_use]
    pub fn with_uid(self, uid: Option<u32>) -> Self {
        Self { uid, ..self }
    }

    /// The listener that the connection came to, and whether it is for publishers.
    pub fn set_listener(&mut self, listener: Arc<Address>, is_for_publishers: bool) {
        self.listener = Some(listener);
        self.is_for_publishers = is_for_publishers;
    }

    /// Whether the connection came to a listener at which own processes publish without a key.
    #[must_use]
    pub fn is_for_publishers(&self) -> bool {
        self.is_for_publishers
    }

    /// The listener that the connection came to, if known.
    #[must_use]
    pub fn listener(&self) -> Option<&Address> {
        self.listener.as_deref()
    }

    /// The connection is encrypted.
    pub fn set_tls(&mut self, tls: PeerTls) {
        self.tls = Some(Box::new(tls));
    }

    /// What the handshake has said; `None` where the connection is not encrypted.
    #[must_use]
    pub fn tls(&self) -> Option<&PeerTls> {
        self.tls.as_deref()
    }

    /// The peer is a proxy for a client that it did not name.
    pub(crate) fn set_unknown_client(&mut self, is_https: bool) {
        self.client = PeerClient::Unknown { is_https };
    }

    /// The peer is a proxy for the client at `source`, which connected to `destination`.
    pub(crate) fn set_client(
        &mut self,
        source: SocketAddr,
        destination: SocketAddr,
        is_https: bool,
    ) {
        self.client = PeerClient::Named(Box::new(Named {
            source: canonical(source),
            destination: canonical(destination),
            is_https,
        }));
    }

    /// Whether the peer is a process on this machine that runs as the user of this one, or as root.
    #[must_use]
    pub fn is_own_user(&self) -> bool {
        let is_own = |uid| uid == 0 || uid == geteuid().as_raw();
        self.uid.is_some_and(is_own)
    }

    /// The address of the peer's own socket; `None` on a Unix socket.
    #[must_use]
    pub fn socket_ip(&self) -> Option<IpAddr> {
        self.socket.map(|address| address.ip())
    }

    /// The address of the client that the PROXY header named, or else of the peer's own socket.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.client {
            PeerClient::Named(named) => Some(named.source),
            PeerClient::Itself | PeerClient::Unknown { .. } => self.socket,
        }
    }

    /// [`Peer::address`] without its port.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.address().map(|address| address.ip())
    }

    /// The address to which the client of a proxy connected there; `None` without a PROXY header that names it.
    #[must_use]
    pub fn proxy_destination(&self) -> Option<SocketAddr> {
        match &self.client {
            PeerClient::Named(named) => Some(named.destination),
            PeerClient::Itself | PeerClient::Unknown { .. } => None,
        }
    }

    /// Whether the client is known. If not, what it sends must not be taken for what the proxy says.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !matches!(self.client, PeerClient::Unknown { .. })
    }

    /// `https` if the connection is encrypted, or the PROXY header said so of the client's, else `http`.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        match &self.client {
            _ if self.tls.is_some() => "https",
            PeerClient::Unknown { is_https: true } => "https",
            PeerClient::Named(named) if named.is_https => "https",
            _ => "http",
        }
    }
}

/// With an IPv4-mapped address as IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
