//! A request as a backend is to see it.

use std::borrow::Cow;

use levity_wire::forwarded::{self, Element, Node};
use levity_wire::http1::EndToEnd;
use levity_wire::{Reject, path, sendfile_header};

use crate::http::client::Client;
use crate::http::request::Request;
use crate::route::Proxy;
use crate::scripts::Script;
use levity_config::upstream::Forwarded;

/// How we call ourselves in `Via` (RFC 9110, 7.6.3).
const VIA: &[u8] = b"1.1 levity";

/// How long the body of a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// There is none.
    None,
    /// In bytes.
    Known(u64),
    /// It ends when the client says so.
    Unknown,
}

/// A request on its way to a backend.
pub struct UpstreamRequest<'a> {
    /// As the client sent it.
    pub request: &'a Request,
    /// Where it goes.
    pub proxy: &'a Proxy,
    /// Who sent it.
    pub client: &'a Client,
    /// Of its body.
    pub length: Length,
    /// The script that is to answer, where applications are asked for scripts.
    pub script: Option<&'a Script>,
    /// The path that the client has asked for, as [`path::forwarded`] gives it.
    pub whole_path: Cow<'a, [u8]>,
    /// The same less `strip_prefix`.
    pub path: Cow<'a, [u8]>,
    /// What follows the `?`, as [`path::forwarded_query`] gives it.
    pub query: Option<Cow<'a, [u8]>>,
    /// The protocols that the client offers to switch to, where the backend may.
    pub upgrade: Option<&'a [u8]>,
    /// The backend is to say whether it wants the body.
    pub expects_continue: bool,
    /// The client reads what comes behind a body.
    pub accepts_trailers: bool,
    /// What the connection begins with: a head of the PROXY protocol, or nothing.
    pub proxy_head: Vec<u8>,
    /// Another request may follow on the connection.
    pub keep_alive: bool,
    forwarded: Told,
}

/// What we say of the client.
#[derive(Default)]
struct Told {
    forwarded: Vec<u8>,
    x_for: Vec<u8>,
    /// What was taken off the start of the path, here and before.
    x_prefix: Vec<u8>,
    x_host: bool,
    x_proto: bool,
}

impl<'a> UpstreamRequest<'a> {
    /// What `request` becomes on its way through `proxy`.
    ///
    /// # Errors
    /// 400 for a path that [`path::forwarded`] refuses, or that would have to be written anew and cannot be.
    pub fn new(
        request: &'a Request,
        proxy: &'a Proxy,
        client: &'a Client,
        length: Length,
    ) -> Result<Self, Reject> {
        let settings = &proxy.upstream.settings;
        let te = || request.headers_named("te");
        let whole_path = path::forwarded(request.raw_path())?;
        Ok(Self {
            path: without_prefix(&whole_path, &proxy.strip_prefix, request)?,
            whole_path,
            query: request.query().map(path::forwarded_query),
            upgrade: request.upgrade().filter(|offer| {
                // The rest of a body would be the start of what is spoken next.
                length == Length::None && !offer.split(|&byte| byte == b',').any(carries_requests)
            }),
            expects_continue: request.head.expect_continue,
            accepts_trailers: te().any(names_trailers),
            proxy_head: Vec::new(),
            keep_alive: settings.keep_alive > 0,
            forwarded: told(request, client, proxy),
            script: None,
            request,
            proxy,
            client,
            length,
        })
    }

    /// Path and query.
    pub fn target(&self) -> Vec<u8> {
        match &self.query {
            Some(query) => [&self.path, &b"?"[..], query].concat(),
            None => self.path.to_vec(),
        }
    }

    /// The host that the backend is asked for, with its port.
    pub fn host(&self) -> &[u8] {
        let rules = &self.proxy.request_headers.set;
        let set = rules
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("host"));
        set.map_or(self.request.host(), |(_, value)| value.as_bytes())
    }

    /// Its end-to-end fields but Host and those that frame the body, in their order; ours come last.
    pub fn fields(&self) -> Vec<(&[u8], &[u8])> {
        let bytes = self.request.bytes();
        let headers = &self.request.head.headers;
        let mut fields: Vec<(&[u8], &[u8])> = Vec::with_capacity(headers.len() + 8);
        let passed = EndToEnd::of(bytes, headers);
        for header in passed.headers() {
            let name = header.name.of(bytes);
            if passes(name, self.ruled()) {
                fields.push((name, header.value.of(bytes)));
            }
        }
        self.add_told(&mut fields);
        let rules = &self.proxy.request_headers;
        let written = rules.set.iter().chain(&rules.add);
        let written = written.filter(|(name, _)| !name.eq_ignore_ascii_case("host"));
        fields.extend(written.map(|(name, value)| (name.as_bytes(), value.as_bytes())));
        fields
    }

    /// Names that the client may not write here: what the route sets or removes, and what only a proxy
    /// is believed.
    pub fn ruled(&self) -> impl Iterator<Item = &str> {
        let rules = &self.proxy.request_headers;
        let set = rules.set.iter().map(|(name, _)| name);
        let spoof = (!self.client.by_trusted).then_some("x-real-ip");
        set.chain(&rules.remove).map(String::as_str).chain(spoof)
    }

    /// Names that the client may not write in trailers: those that are [ruled](Self::ruled), and what its
    /// Connection lists.
    pub fn ruled_in_trailers(&self) -> Vec<String> {
        let listed = EndToEnd::of(self.request.bytes(), &self.request.head.headers);
        let listed = listed.listed().map(String::from_utf8_lossy);
        let ruled = self.ruled().map(str::to_owned);
        ruled.chain(listed.map(Cow::into_owned)).collect()
    }

    /// Adds what we say of the client and of ourselves.
    fn add_told<'s>(&'s self, fields: &mut Vec<(&'s [u8], &'s [u8])>) {
        let told = &self.forwarded;
        fields.push((b"Via", VIA));
        if !told.x_for.is_empty() {
            fields.push((b"X-Forwarded-For", &told.x_for));
        }
        if told.x_proto {
            fields.push((b"X-Forwarded-Proto", self.client.scheme.as_bytes()));
        }
        if !told.x_prefix.is_empty() && !self.is_set("x-forwarded-prefix") {
            fields.push((b"X-Forwarded-Prefix", &told.x_prefix));
        }
        if told.x_host {
            fields.push((b"X-Forwarded-Host", self.forwarded_host()));
        }
        if !told.forwarded.is_empty() {
            fields.push((b"Forwarded", &told.forwarded));
        }
        if !self.proxy.upstream.settings.sendfile_roots.is_empty() {
            fields.push((b"X-Sendfile-Type", b"X-Sendfile"));
        }
    }

    /// Whether the route sets a field of that name.
    fn is_set(&self, name: &str) -> bool {
        let mut set = self.proxy.request_headers.set.iter();
        set.any(|(set, _)| set.eq_ignore_ascii_case(name))
    }

    /// What the client asked for first: a trusted proxy may have changed Host.
    fn forwarded_host(&self) -> &[u8] {
        let told = self.request.header("x-forwarded-host");
        told.filter(|_| self.client.by_trusted)
            .unwrap_or(self.request.host())
    }
}

/// Whether a field of the client goes on as it is, where it may not write those that are `ruled`.
/// Applications that see fields as variables cannot tell `X_Forwarded_For` from `X-Forwarded-For`, so neither
/// may be written by a client.
pub fn passes<'r>(name: &[u8], mut ruled: impl Iterator<Item = &'r str>) -> bool {
    !is_ours(name) && !ruled.any(|rule| is_same_variable(name, rule.as_bytes()))
}

/// Header fields that a client may not send to an application, as the start of their names if they end in
/// a hyphen.
const OURS: [&str; 7] = [
    "host",
    // Programs that the application starts take HTTP_PROXY for the proxy of their own requests
    // (CVE-2016-5385 and others, "httpoxy"), and HTTP backends may be gateways to CGI themselves.
    "proxy",
    "expect",
    "forwarded",
    "x-forwarded-",
    "content-length",
    // That with its hyphen ends at this hop. Others that make the same variable would have the
    // application look for chunks that nobody has sent.
    "transfer-encoding",
];

/// Whether a field of this name is ours to write, or between a proxy and its application, or nobody's:
/// `Proxy` has no meaning in a request.
fn is_ours(name: &[u8]) -> bool {
    let is = |ours: &&str| {
        let name = match ours.ends_with('-') {
            true => name.get(..ours.len()).unwrap_or_default(),
            false => name,
        };
        is_same_variable(name, ours.as_bytes())
    };
    OURS.iter().any(is) || sendfile_header::is_reserved(name)
}

/// Whether two names make the same variable of an environment, where letters have no case and every mark
/// is an underscore.
fn is_same_variable(name: &[u8], other: &[u8]) -> bool {
    let same = |(one, other): (&u8, &u8)| match one.is_ascii_alphanumeric() {
        true => one.eq_ignore_ascii_case(other),
        false => !other.is_ascii_alphanumeric(),
    };
    name.len() == other.len() && name.iter().zip(other).all(same)
}

/// Whether this is a protocol whose requests would pass in a tunnel, unseen by all that decides about
/// requests here.
fn carries_requests(protocol: &[u8]) -> bool {
    let name = protocol.split(|&byte| byte == b'/').next();
    let name = name.unwrap_or_default().trim_ascii();
    ["h2c", "h2", "http", "tls"]
        .iter()
        .any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
}

fn names_trailers(te: &[u8]) -> bool {
    te.split(|&byte| byte == b',')
        .any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

/// What a hop that is trusted has said before us stays in front; of others we say what we see. What it
/// said in one of the two fields alone is put into the other too (RFC 7239, 7.4), so that it does not
/// matter which of them an application reads.
fn told(request: &Request, client: &Client, proxy: &Proxy) -> Told {
    let mut told = Told::default();
    let (forwarded, x_forwarded) = match proxy.upstream.settings.forwarded {
        Forwarded::Both => (true, true),
        Forwarded::Forwarded => (true, false),
        Forwarded::XForwarded => (false, true),
        Forwarded::Off => (false, false),
    };
    if x_forwarded {
        if client.by_trusted {
            told.x_for = x_forwarded_for_before(request);
        }
        // Whoever reads the list from the right would take `unknown` for the client.
        if client.peer.is_some() || told.x_for.is_empty() {
            forwarded::push_x_forwarded_for(&mut told.x_for, client.peer);
        }
        told.x_prefix = x_forwarded_prefix(request, client, &proxy.strip_prefix);
        told.x_proto = true;
        told.x_host = !request.host().is_empty();
    }
    if forwarded {
        if client.by_trusted {
            told.forwarded = forwarded_before(request);
        }
        let host = request.host();
        let element = Element {
            client: client.peer.map(Node::from),
            by: None,
            host: (!host.is_empty()).then_some(host),
            scheme: client.scheme,
        };
        // The host has been parsed, so nothing of it can be refused.
        let _ = forwarded::push_forwarded(&mut told.forwarded, &element);
    }
    told
}

/// What a trusted hop has taken off the path, then what we do.
fn x_forwarded_prefix(request: &Request, client: &Client, strip_prefix: &[u8]) -> Vec<u8> {
    let told = request.header("x-forwarded-prefix");
    let told = told.filter(|told| client.by_trusted && told.starts_with(b"/"));
    let told = told.unwrap_or_default();
    [told.strip_suffix(b"/").unwrap_or(told), strip_prefix].concat()
}

/// What a trusted hop said in X-Forwarded-For, or else in `Forwarded`.
fn x_forwarded_for_before(request: &Request) -> Vec<u8> {
    let mut list = forwarded::join(request.headers_named("x-forwarded-for"));
    if list.is_empty() {
        let hops = forwarded::forwarded(request.headers_named("forwarded"));
        for hop in from_the_left(hops) {
            forwarded::push_x_forwarded_for(&mut list, hop.map(Node::ip));
        }
    }
    list
}

/// What a trusted hop said in X-Forwarded-For, or else in `Forwarded`: as it is believed.
fn forwarded_before(request: &Request) -> Vec<u8> {
    let mut list = Vec::new();
    if request.header("x-forwarded-for").is_none() {
        list = forwarded::join(request.headers_named("forwarded"));
    } else {
        let hops = forwarded::x_forwarded_for(request.headers_named("x-forwarded-for"));
        for hop in from_the_left(hops) {
            forwarded::push_hop(&mut list, hop);
        }
    }
    list
}

fn from_the_left(hops: impl Iterator<Item = Option<Node>>) -> impl Iterator<Item = Option<Node>> {
    let hops: Vec<_> = hops.collect();
    hops.into_iter().rev()
}

/// `path` less `prefix`. Where the prefix was sent with escapes in it, the path is written anew.
fn without_prefix<'a>(
    path: &Cow<'a, [u8]>,
    prefix: &[u8],
    request: &Request,
) -> Result<Cow<'a, [u8]>, Reject> {
    if prefix.is_empty() {
        return Ok(path.clone());
    }
    let mut rest = match path.strip_prefix(prefix) {
        Some(rest) if rest.is_empty() || rest[0] == b'/' => rest.to_vec(),
        _ if request.keeps_slashes => {
            return Err(Reject {
                status: 400,
                reason: "an escaped slash behind a prefix with escapes",
            });
        }
        _ => {
            let decoded = request.path.strip_prefix(prefix).unwrap_or(&request.path);
            let mut rest = Vec::with_capacity(decoded.len());
            path::encode(decoded, &mut rest);
            rest
        }
    };
    if rest.is_empty() {
        rest.push(b'/');
    }
    Ok(Cow::Owned(path::one_leading_slash(&rest).to_vec()))
}
