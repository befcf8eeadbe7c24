//! `[[upstream]]`: applications that answer requests, and how they are spoken to.

mod backend;
pub(crate) mod keys;
pub(crate) mod read;

use std::path::PathBuf;
use std::time::Duration;

use crate::address::Address;

/// `[[upstream]]`: a named set of backends that speak one protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// What routes call it; each name once in a file.
    pub name: String,
    /// What its backends speak.
    pub protocol: Protocol,
    /// Never empty, and not all of them backups.
    pub to: Vec<Backend>,
    /// How a backend is chosen.
    pub balance: Balance,
    /// What ties a client to a backend, if anything does.
    pub sticky: Option<Sticky>,
    /// Connections to one backend at once, divided among the workers; each has at least one.
    pub connections: usize,
    /// Idle connections that are kept to one backend, divided among the workers. 0 closes each
    /// connection after its request.
    pub keep_alive: usize,
    /// How long an idle connection is kept.
    pub keep_alive_timeout: Duration,
    /// From the attempt to connect to its success.
    pub connect_timeout: Duration,
    /// From the last byte of a request to the first of its answer.
    pub first_byte_timeout: Duration,
    /// Between two parts of an answer, and between two parts of a request that the backend takes.
    pub idle_timeout: Duration,
    /// How long nothing may pass either way after a change of protocol, such as to WebSocket.
    pub tunnel_timeout: Duration,
    /// Requests that may wait for a connection, divided among the workers.
    pub queue: usize,
    /// How long one may wait.
    pub queue_timeout: Duration,
    /// How often a request is tried again, at most, on other backends if there are some.
    pub retries: usize,
    /// Failures within `fail_for`, without a success between them, after which a backend is left alone
    /// for so long.
    pub fail_after: usize,
    /// See `fail_after`.
    pub fail_for: Duration,
    /// How long a backend that comes back takes to get its full share. Zero is at once.
    pub slow_start: Duration,
    /// Asks backends whether they are well, if that is wanted.
    pub check: Option<Check>,
    /// Whether a request's body is taken in whole before a backend is asked.
    pub buffer_requests: bool,
    /// Which fields tell the backend who the client is.
    pub forwarded: Forwarded,
    /// Whether connections to the backend begin with a PROXY protocol head; none is kept then.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// What an AJP13 container demands of its peers.
    pub secret: Option<String>,
    /// Folders whose files the application may have sent in its place; absolute.
    pub sendfile_roots: Vec<PathBuf>,
    /// Folders whose files it may have sent and then deleted; absolute.
    pub temporary_roots: Vec<PathBuf>,
    /// Whether such a file is deleted once it has arrived; else as soon as it is open.
    pub keep_until_sent: bool,
    /// Names of upstreams to which it may hand a request on by `X-Reproxy-URL`.
    pub reproxy: Vec<String>,
    /// How often names among `to` are looked up again.
    pub resolve_interval: Duration,
}

/// What a backend speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1
    Http,
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
        match self {
            Self::Http => "http",
            Self::Fastcgi => "fastcgi",
            Self::Scgi => "scgi",
            Self::Ajp13 => "ajp13",
        }
    }

    /// Whether an answer is read as a CGI program's, and a script may be named.
    #[must_use]
    pub fn is_cgi(self) -> bool {
        matches!(self, Self::Fastcgi | Self::Scgi)
    }
}

/// One entry of `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// Where it is.
    pub at: At,
    /// Its share of requests; at least 1.
    pub weight: u32,
    /// It is asked only when all others are down.
    pub backup: bool,
    /// It gets no new clients, only those that are tied to it.
    pub drain: bool,
}

/// Where a backend is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum At {
    /// An address, or the path of a Unix socket.
    Address(Address),
    /// A host name and a port: each address of the name is a backend.
    Name(String, u16),
}

/// How a backend is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Balance {
    /// One after the other, by weight.
    RoundRobin,
    /// The one with the fewest requests in hand for its weight.
    LeastConnections,
    /// By the path, so that each has its own part of the content (rendezvous hashing).
    Carp,
    /// The first that is up, in the order of the file.
    Static,
    /// The less busy of two picked at random.
    RandomTwo,
}

impl Balance {
    /// The word in the configuration.
    pub fn label(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::LeastConnections => "least-connections",
            Self::Carp => "carp",
            Self::Static => "static",
            Self::RandomTwo => "random-two",
        }
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

/// `[upstream.check]`: backends are asked whether they are well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What is asked for with GET; a status from 200 to 399 is well. `None` only connects,
    /// but for AJP13, which has a question of its own.
    pub path: Option<String>,
    /// What the question says in `Host`; by default where the backend is.
    pub host: Option<String>,
    /// From one question to the next.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// So many failures in a row take a backend out.
    pub fall: usize,
    /// So many successes in a row bring it back.
    pub rise: usize,
}

/// Which fields tell a backend who the client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarded {
    /// `Forwarded` and `X-Forwarded-*`
    Both,
    /// `Forwarded` alone (RFC 7239)
    Forwarded,
    /// `X-Forwarded-For`, `-Proto` and `-Host` alone
    XForwarded,
    /// Neither: those that the client sent are removed all the same.
    Off,
}

/// A version of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// Text
    V1,
    /// Binary
    V2,
}

/// Who answers the requests of a site or route, tried in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Try {
    /// The file that the path names; what has none goes on.
    File,
    /// The upstream.
    Proxy,
}

/// How a site or route hands requests to an upstream. `None` is what is said above it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxying {
    /// The name of the upstream.
    pub proxy: Option<String>,
    /// Who answers, in this order; by default the upstream alone where there is one.
    pub tries: Option<Vec<Try>>,
    /// What the name of a script ends in, such as `.php`; needs a protocol of scripts and a `root`.
    pub script_suffix: Option<String>,
    /// The script that answers what is neither a file nor a script, such as `index.php`.
    pub script_index: Option<String>,
    /// The largest body of a request, in bytes.
    pub body_bytes: Option<usize>,
    /// What becomes of paths that an application may take for those of another route.
    pub ambiguous_paths: Option<AmbiguousPaths>,
}

/// What becomes of paths that an application may take for those of another route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AmbiguousPaths {
    /// They are answered 400.
    Refuse,
    /// They are passed on.
    Pass,
}

/// Changes to what an upstream's answers say of its own place. Pairs of what is found at the start and
/// what is put there instead; the first that fits is taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// In `Location`.
    pub location: Vec<(String, String)>,
    /// In the `Path` of `Set-Cookie`.
    pub cookie_path: Vec<(String, String)>,
    /// In the `Domain` of `Set-Cookie`, as a whole.
    pub cookie_domain: Vec<(String, String)>,
}
