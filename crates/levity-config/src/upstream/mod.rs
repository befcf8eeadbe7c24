//! The model of `[[upstream]]`, and of how sites and routes use one.

mod backend;
pub(crate) mod keys;
pub(crate) mod read;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use strum::{EnumMessage, EnumString, IntoStaticStr, VariantArray, VariantNames};

use crate::address::Address;
use crate::section::Secret;
use crate::tls::CertificateFiles;
use crate::tries::Try;

/// `[[upstream]]`: a named set of backends that speak one protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// The name that routes use; unique in a file.
    pub name: String,
    /// The protocol of the backends.
    pub protocol: Protocol,
    /// Never empty, and not all of them backups.
    pub to: Vec<Backend>,
    /// How backends prove who they are, if connections to them are encrypted.
    pub tls: Option<UpstreamTls>,
    /// How a backend is chosen.
    pub balance: Balance,
    /// What ties a client to a backend.
    pub sticky: Option<Sticky>,
    /// Connections to one backend at once, divided among the workers; each has at least one. Over HTTP/2 a connection carries many
    /// requests.
    pub connections: usize,
    /// Idle connections that are kept to one backend, divided among the workers. 0 closes each
    /// connection after its request.
    pub keep_alive: usize,
    /// How long an idle connection is kept.
    pub keep_alive_timeout: Duration,
    /// From the attempt to connect to its success.
    pub connect_timeout: Duration,
    /// From the last byte of a request to the first byte of its response.
    pub first_byte_timeout: Duration,
    /// Between two parts of a response, and between two parts of a request that the backend accepts.
    pub idle_timeout: Duration,
    /// How long a tunnel, such as a WebSocket connection, may be silent in both directions.
    pub tunnel_timeout: Duration,
    /// Requests that may wait for a connection, divided among the workers.
    pub queue: usize,
    /// How long a request may wait for a connection.
    pub queue_timeout: Duration,
    /// How often, and for how long, a request is tried again.
    pub retry: Retry,
    /// Failures within `fail_for`, without a success between them, after which a backend gets no requests for
    /// that time.
    pub fail_after: usize,
    /// See `fail_after`.
    pub fail_for: Duration,
    /// How long a backend that comes back takes to reach its full share. Zero is at once.
    pub slow_start: Duration,
    /// Health checks.
    pub check: Option<Check>,
    /// What the header of a response may have.
    pub limits: ResponseLimits,
    /// Whether the whole body of a request is received before a backend is asked.
    pub buffer_requests: bool,
    /// The silence of a backend after which its client gets a comment in a stream of events.
    pub event_stream_heartbeat: Option<Duration>,
    /// The headers that name the client to a backend.
    pub forwarded: Forwarded,
    /// The version of the PROXY header at the start of each connection. Connections with one are not kept.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// The secret that an AJP13 container requires; empty when its file was not read.
    pub secret: Option<Secret>,
    /// Files without which nobody can be served, and that do not respond.
    pub unread: Vec<PathBuf>,
    /// Folders whose files the application may have sent in place of its response; absolute.
    pub sendfile_roots: Vec<PathBuf>,
    /// Folders whose files it may have sent and then deleted; absolute.
    pub temporary_roots: Vec<PathBuf>,
    /// Whether such a file is deleted when the client has received it; otherwise as soon as it is open.
    pub keep_until_sent: bool,
    /// Names of upstreams to which it may hand a request on by `X-Reproxy-URL`.
    pub reproxy: Vec<String>,
    /// How often names in `to` are resolved again.
    pub resolve_interval: Duration,
}

impl Upstream {
    /// The word for its protocol, which tells whether connections are encrypted.
    #[must_use]
    pub fn protocol_label(&self) -> &'static str {
        match (&self.tls, self.protocol) {
            (Some(_), Protocol::H2) => "h2 over TLS",
            (Some(_), _) => "https",
            (None, protocol) => protocol.label(),
        }
    }
}

/// The protocol of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, VariantNames, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Protocol {
    /// HTTP/1.1
    Http,
    /// HTTP/2, with prior knowledge or over TLS
    H2,
    /// FastCGI, as a responder
    Fastcgi,
    /// SCGI
    Scgi,
    /// AJP13
    Ajp13,
}

impl Protocol {
    /// The word in the configuration.
    pub fn label(self) -> &'static str {
        self.into()
    }

    /// Whether the application speaks HTTP, whatever its version.
    #[must_use]
    pub fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::H2)
    }

    /// Whether the response has the form of a CGI program's, and a script may be named.
    #[must_use]
    pub fn is_cgi(self) -> bool {
        matches!(self, Self::Fastcgi | Self::Scgi)
    }
}

/// `[upstream.retry]`: what happens to a request that has failed at a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Maximum number of retries of a request, at other backends if there are any.
    pub times: usize,
    /// How long a request of which nothing was sent is tried again, at the same backends too.
    pub within: Duration,
}

/// One entry of `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// Where it is.
    pub at: At,
    /// The name or the address that it has to prove, as it is written; `None` if connections to it are not encrypted.
    pub tls: Option<String>,
    /// Its share of requests; at least 1.
    pub weight: u32,
    /// It gets requests only when all others are down.
    pub backup: bool,
    /// It gets no new clients, only those that are tied to it.
    pub drain: bool,
}

/// `[upstream.tls]`: TLS with backends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamTls {
    /// The file with the certificates of authorities that are trusted; `None` for those of the machine.
    pub authorities: Option<PathBuf>,
    /// Whether backends have to prove who they are.
    pub verify: bool,
    /// The name that they have to prove, in place of those in `to`.
    pub name: Option<String>,
    /// What Levity shows them.
    pub certificate: Option<CertificateFiles>,
}

/// Where a backend is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum At {
    /// An address, or the path of a Unix socket.
    Address(Address),
    /// This machine at this port: 127.0.0.1, or `::1` if that refuses. Many programs listen on one of them only.
    Localhost(u16),
    /// A host name and a port: each address of the name is a backend.
    Name(String, u16),
}

impl At {
    /// The address to connect to, unless a name has to be resolved.
    #[must_use]
    pub fn address(&self) -> Option<Address> {
        match self {
            At::Address(address) => Some(address.clone()),
            At::Localhost(port) => Some(Address::Tcp((Ipv4Addr::LOCALHOST, *port).into())),
            At::Name(..) => None,
        }
    }

    /// The address to connect to if the first one refuses.
    #[must_use]
    pub fn second_address(&self) -> Option<Address> {
        match self {
            At::Localhost(port) => Some(Address::Tcp((Ipv6Addr::LOCALHOST, *port).into())),
            At::Address(_) | At::Name(..) => None,
        }
    }
}

/// How a backend is chosen. The comments of the variants are their text in the reference.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    EnumMessage,
    EnumString,
    VariantArray,
    VariantNames,
    IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Balance {
    /// each in turn, by weight
    RoundRobin,
    /// the one with the fewest active requests for its weight
    LeastConnections,
    /// by a hash of the path (rendezvous hashing), so that each backend serves a fixed part of the content, and keeps
    /// most of it when another one fails
    Carp,
    /// the first that is up, in the order of the file
    Static,
    /// the less busy of two random ones
    RandomTwo,
}

impl Balance {
    /// The word in the configuration.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

/// What ties a client to a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sticky {
    /// A cookie of this name, which the server sets.
    Cookie(String),
    /// The value of this request header, in lower case.
    Header(String),
}

/// `[upstream.limits]`: the largest header of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseLimits {
    /// Bytes of a line, without its end.
    pub line_bytes: usize,
    /// Bytes in all.
    pub head_bytes: usize,
    /// Lines.
    pub headers: usize,
}

/// `[upstream.check]`: health checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The path of the GET request; a status from 200 to 399 means healthy. `None` only connects, except with
    /// HTTP/2, which waits for the settings, and AJP13, which sends a CPing.
    pub path: Option<String>,
    /// The `Host` of the request; by default the address of the backend.
    pub host: Option<String>,
    /// From one check to the next.
    pub interval: Duration,
    /// How long a response may take.
    pub timeout: Duration,
    /// Consecutive failures that take a backend out.
    pub fall: usize,
    /// Consecutive successes that bring it back.
    pub rise: usize,
}

/// The headers that name the client to a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Forwarded {
    /// `Forwarded` and `X-Forwarded-*`
    Both,
    /// `Forwarded` alone (RFC 7239)
    Forwarded,
    /// `X-Forwarded-For`, `-Proto` and `-Host` alone
    XForwarded,
    /// Neither. Such headers of the client are removed all the same.
    Off,
}

/// A version of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum ProxyProtocol {
    /// Text
    V1,
    /// Binary
    V2,
}

/// How a site or route uses an upstream. `None` means the inherited value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxying {
    /// The name of the upstream.
    pub proxy: Option<String>,
    /// Who answers, in this order; by default the upstream alone where there is one.
    pub tries: Option<Vec<Try>>,
    /// The suffix of scripts' names, such as `.php`; needs FastCGI or SCGI, and a `root`.
    pub script_suffix: Option<String>,
    /// The script for requests that match neither a file nor a script, such as `index.php`.
    pub script_index: Option<String>,
    /// The path of `root` for the application that runs the scripts, if it has another one there.
    pub script_root: Option<String>,
    /// Variables for FastCGI and SCGI, which replace those of the server; names and values.
    pub params: Vec<(String, String)>,
    /// The largest body of a request, in bytes.
    pub body_bytes: Option<usize>,
    /// What happens to paths that an application may read as paths of another route.
    pub ambiguous_paths: Option<AmbiguousPaths>,
}

/// What happens to paths that an application may read as paths of another route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum AmbiguousPaths {
    /// They get 400.
    Refuse,
    /// They are forwarded.
    Pass,
}

/// Changes to URLs and cookies in an upstream's responses. Pairs of a start and its replacement; the first match
/// is used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// In `Location`.
    pub location: Vec<(String, String)>,
    /// In the `Path` of `Set-Cookie`.
    pub cookie_path: Vec<(String, String)>,
    /// In the `Domain` of `Set-Cookie`, as a whole.
    pub cookie_domain: Vec<(String, String)>,
}
