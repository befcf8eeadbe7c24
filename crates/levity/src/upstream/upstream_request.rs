//! A client's request in the form in which a backend gets it.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::SystemTime;

use levity_wire::forwarded::{self, Element, Node};
use levity_wire::http1::{self, EndToEnd, Method};
use levity_wire::{Reject, grip, mailbox_header, path, sendfile_header};

use super::grip_sig::grip_sig;
use crate::credentials::{Identity, NOBODY};
use crate::files::scripts::Script;
use crate::message::client::Client;
use crate::message::request::Request;
use crate::upstream::proxy::Proxy;
use levity_config::Secret;
use levity_config::upstream::{Forwarded, Protocol};

/// The header of a request that somebody may have copied and sent again (RFC 8470, 5.1).
const EARLY_DATA: &str = "Early-Data";

/// The header of MOVE and COPY that says where to.
const DESTINATION: &str = "destination";

const OUTSIDE: Reject = Reject {
    status: 502,
    reason: "Destination is outside of the folder that the application has here",
};

/// The length of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// There is no body.
    None,
    /// In bytes.
    Known(u64),
    /// Unknown until the client ends the body.
    Unknown,
}

/// A header that this server writes into one request, in place of those of the same name that the client has sent.
pub struct OwnHeader {
    /// Its name.
    pub name: &'static str,
    /// Its value; `None` if the request is to have none of that name.
    pub value: Option<Vec<u8>>,
}

/// A request to a backend.
pub struct UpstreamRequest<'a> {
    /// The client's request.
    pub request: &'a Request,
    /// The route.
    pub proxy: &'a Proxy,
    /// The sender.
    pub client: &'a Client,
    /// The version of HTTP that it came in, as logged.
    pub version: &'static str,
    /// The length of its body.
    pub length: Length,
    /// The script that handles it, for applications that run scripts.
    pub script: Option<&'a Script>,
    /// What the gates know of the sender.
    pub identity: &'a Identity,
    /// Headers besides those of the route.
    pub own_headers: &'a [OwnHeader],
    /// The address that the sender connected to, for applications that get it as a variable. Boxed: few get it.
    pub server_ip: Option<Box<IpAddr>>,
    /// The requested path, as [`path::forwarded`] gives it.
    pub whole_path: Cow<'a, [u8]>,
    /// `whole_path` without `strip_prefix`.
    pub path: Cow<'a, [u8]>,
    /// The prefix that was stripped, or empty.
    pub strip_prefix: &'a [u8],
    /// The part after the `?`, as [`path::forwarded_query`] gives it.
    pub query: Option<Cow<'a, [u8]>>,
    /// The protocols that the client offers to upgrade to, where an upgrade is allowed.
    pub upgrade: Option<&'a [u8]>,
    /// The client expects 100-continue: the backend decides whether it wants the body.
    pub expects_continue: bool,
    /// The client accepts trailers.
    pub accepts_trailers: bool,
    /// The PROXY protocol header that begins the connection; may be empty.
    pub proxy_header: Box<[u8]>,
    /// The connection may be reused.
    pub keep_alive: bool,
    forwarding: ForwardingHeaders,
    /// In place of the Destination that was sent.
    destination: Option<Box<[u8]>>,
    /// The proof that it may hold the client; `None` if it gets none.
    grip_sig: Option<String>,
}

/// The headers by which a proxy describes the client.
#[derive(Default)]
struct ForwardingHeaders {
    forwarded: Vec<u8>,
    x_for: Vec<u8>,
    /// The prefix that was stripped from the path, by trusted proxies and here.
    x_prefix: Vec<u8>,
    /// The id of the request, where it is passed on.
    request_id: String,
    x_host: bool,
    x_proto: bool,
}

impl<'a> UpstreamRequest<'a> {
    /// Prepares `request` for `proxy`, whose backends get the path without `strip_prefix`.
    ///
    /// # Errors
    /// 400 for a path that [`path::forwarded`] refuses, also in Destination; 502 for one there that the backend cannot have.
    pub fn new(
        request: &'a Request,
        proxy: &'a Proxy,
        client: &'a Client,
        length: Length,
        strip_prefix: &'a [u8],
    ) -> Result<Self, Reject> {
        let settings = &proxy.upstream.settings;
        let te = || request.headers_named("te");
        let whole_path = path::forwarded(request.raw_path())?;
        Ok(Self {
            path: without_prefix(&whole_path, strip_prefix, &request.path),
            destination: destination(request, proxy, client, strip_prefix)?,
            whole_path,
            query: request.query().map(path::forwarded_query),
            upgrade: request.upgrade().filter(|offer| {
                // The rest of a body would be read as the start of the new protocol, and no protocol follows the
                // response to a HEAD.
                length == Length::None
                    && request.head.method != Method::Head
                    && !offer.split(|&byte| byte == b',').any(carries_requests)
            }),
            expects_continue: request.head.expect_continue,
            accepts_trailers: te().any(names_trailers),
            proxy_header: Box::default(),
            keep_alive: settings.keep_alive > 0,
            forwarding: forwarding_headers(request, client, proxy, strip_prefix),
            grip_sig: proxy.mailboxes.as_ref().and_then(|set| {
                let Secret(key) = set.of.grip_key.as_ref()?;
                Some(grip_sig(key, SystemTime::now()))
            }),
            strip_prefix,
            script: None,
            identity: &NOBODY,
            own_headers: &[],
            server_ip: None,
            version: "HTTP/1.1",
            request,
            proxy,
            client,
            length,
        })
    }

    /// The request target: path and query.
    pub fn target(&self) -> Vec<u8> {
        match &self.query {
            Some(query) => [&self.path, &b"?"[..], query].concat(),
            None => self.path.to_vec(),
        }
    }

    /// The Host for the backend, with its port.
    pub fn host(&self) -> &[u8] {
        host(self.request, self.proxy)
    }

    /// The end-to-end headers except Host and those that frame the body, in their order; headers of this
    /// server come last.
    pub fn fields(&self) -> Vec<(&[u8], &[u8])> {
        let bytes = self.request.bytes();
        let headers = &self.request.head.headers;
        let mut fields: Vec<(&[u8], &[u8])> = Vec::with_capacity(headers.len() + 8);
        let passed = EndToEnd::of(bytes, headers);
        for header in passed.headers() {
            let name = header.name.of(bytes);
            if passes(name, self.protected()) || self.is_believed(name) {
                let rewritten = self.destination.as_deref();
                let rewritten =
                    rewritten.filter(|_| name.eq_ignore_ascii_case(DESTINATION.as_bytes()));
                fields.push((name, rewritten.unwrap_or(header.value.of(bytes))));
            }
        }
        self.add_forwarding_headers(&mut fields);
        let rules = &self.proxy.request_headers;
        let written = rules.set.iter().chain(&rules.add);
        let written = written.filter(|(name, _)| !name.eq_ignore_ascii_case("host"));
        fields.extend(written.map(|(name, value)| (name.as_bytes(), value.as_bytes())));
        let known = self.identity.fields.iter();
        fields.extend(known.map(|(name, value)| (name.as_bytes(), &value[..])));
        let own = self.own_headers.iter();
        fields.extend(own.filter_map(|own| Some((own.name.as_bytes(), own.value.as_deref()?))));
        fields
    }

    /// Whether a header of this name, which clients may not send, is one of a trusted proxy that is passed on as it is: what it
    /// says of the client that this server does not know, such as the port or the user. Other spellings may be those of
    /// its client, of whose headers it has replaced only its own.
    fn is_believed(&self, name: &[u8]) -> bool {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
        let start = name.get(..X_FORWARDED.len()).unwrap_or_default();
        self.client.by_trusted
            && matches!(
                self.proxy.upstream.settings.forwarded,
                Forwarded::Both | Forwarded::XForwarded
            )
            && start.eq_ignore_ascii_case(X_FORWARDED.as_bytes())
            && name.iter().all(is_plain)
            && !MADE_HERE
                .iter()
                .any(|made| is_same_variable(name, made.as_bytes()))
            && !self
                .protected()
                .any(|rule| is_same_variable(name, rule.as_bytes()))
    }

    /// Names of headers that the client may not send here: those that the route sets or removes, those that only a
    /// trusted proxy may send, passwords for this server, and what is said once of early data.
    pub fn protected(&self) -> impl Iterator<Item = &str> {
        let rules = &self.proxy.request_headers;
        let set = rules.set.iter().map(|(name, _)| name);
        let own = self.own_headers.iter().map(|header| header.name);
        let spoof = (!self.client.by_trusted).then_some("x-real-ip");
        let password = self.identity.hides_authorization.then_some("authorization");
        let early = self.request.is_early.then_some(EARLY_DATA);
        let names = set.chain(&rules.remove).chain(&self.proxy.request_id);
        let names = names.map(String::as_str);
        names.chain(own).chain(spoof).chain(password).chain(early)
    }

    /// Names of trailers that the client may not send: those [protected](Self::protected), and those listed
    /// in its Connection header.
    pub fn protected_in_trailers(&self) -> Vec<String> {
        let listed = EndToEnd::of(self.request.bytes(), &self.request.head.headers);
        let listed = listed.listed().map(String::from_utf8_lossy);
        let protected = self.protected().map(str::to_owned);
        protected.chain(listed.map(Cow::into_owned)).collect()
    }

    /// The version that the request came in, and the name of this server (RFC 9110, 7.6.3).
    fn via(&self) -> &'static [u8] {
        match self.version {
            "HTTP/2.0" => b"2.0 levity",
            "HTTP/1.0" => b"1.0 levity",
            _ => b"1.1 levity",
        }
    }

    /// Adds Via, Early-Data, the headers that describe the client, X-Sendfile-Type, and Grip-Sig.
    fn add_forwarding_headers<'s>(&'s self, fields: &mut Vec<(&'s [u8], &'s [u8])>) {
        let headers = &self.forwarding;
        let mut removed = self.proxy.request_headers.remove.iter();
        if !removed.any(|name| name.eq_ignore_ascii_case("via")) {
            fields.push((b"Via", self.via()));
        }
        if self.request.is_early {
            fields.push((EARLY_DATA.as_bytes(), b"1"));
        }
        if let Some(name) = &self.proxy.request_id {
            fields.push((name.as_bytes(), headers.request_id.as_bytes()));
        }
        if !headers.x_for.is_empty() {
            fields.push((b"X-Forwarded-For", &headers.x_for));
        }
        if headers.x_proto {
            fields.push((b"X-Forwarded-Proto", self.client.scheme.as_bytes()));
        }
        if !headers.x_prefix.is_empty() && !self.is_set("x-forwarded-prefix") {
            fields.push((b"X-Forwarded-Prefix", &headers.x_prefix));
        }
        if headers.x_host {
            fields.push((b"X-Forwarded-Host", self.client.host(self.request)));
        }
        if !headers.forwarded.is_empty() {
            fields.push((b"Forwarded", &headers.forwarded));
        }
        if !self.proxy.upstream.settings.sendfile_roots.is_empty() {
            fields.push((b"X-Sendfile-Type", b"X-Sendfile"));
        }
        if let Some(grip_sig) = &self.grip_sig {
            fields.push((grip::SIG.as_bytes(), grip_sig.as_bytes()));
        }
    }

    /// Whether the route sets a header of that name.
    fn is_set(&self, name: &str) -> bool {
        let mut set = self.proxy.request_headers.set.iter();
        set.any(|(set, _)| set.eq_ignore_ascii_case(name))
    }
}

/// Whether a header of the client is forwarded unchanged, where those in `protected` are not. Applications
/// that see headers as CGI variables cannot distinguish `X_Forwarded_For` from `X-Forwarded-For`, so both
/// spellings are dropped.
pub fn passes<'r>(name: &[u8], mut protected: impl Iterator<Item = &'r str>) -> bool {
    !is_reserved(name) && !protected.any(|rule| is_same_variable(name, rule.as_bytes()))
}

/// How headers begin that proxies write.
const X_FORWARDED: &str = "x-forwarded-";

/// Those of them that this server writes itself, if at all.
const MADE_HERE: [&str; 4] = [
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-prefix",
    "x-forwarded-proto",
];

/// Headers that a client may not send to an application. A name that ends in a hyphen is a prefix.
const RESERVED: [&str; 7] = [
    "host",
    // Programs that the application starts use HTTP_PROXY as the proxy of their own requests (CVE-2016-5385
    // and others, "httpoxy"), and HTTP backends may be CGI gateways themselves.
    "proxy",
    "expect",
    "forwarded",
    X_FORWARDED,
    "content-length",
    // The spelling with a hyphen ends at this hop. Other spellings that make the same variable would have the
    // application expect chunks that were never sent.
    "transfer-encoding",
];

/// Whether a header is set by this server, reserved between a proxy and its application, or unsafe: `Proxy`
/// has no meaning in a request.
fn is_reserved(name: &[u8]) -> bool {
    let is = |reserved: &&str| {
        let name = match reserved.ends_with('-') {
            true => name.get(..reserved.len()).unwrap_or_default(),
            false => name,
        };
        is_same_variable(name, reserved.as_bytes())
    };
    RESERVED.iter().any(is)
        || sendfile_header::is_reserved(name)
        || mailbox_header::is_reserved(name)
}

/// Whether two names make the same environment variable: case is ignored and every mark becomes an
/// underscore.
fn is_same_variable(name: &[u8], other: &[u8]) -> bool {
    let same = |(one, other): (&u8, &u8)| match one.is_ascii_alphanumeric() {
        true => one.eq_ignore_ascii_case(other),
        false => !other.is_ascii_alphanumeric(),
    };
    name.len() == other.len() && name.iter().zip(other).all(same)
}

/// Whether this protocol carries further requests, which would pass through a tunnel unchecked.
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

/// The headers that describe the client. Values of a trusted proxy are extended, values of others replaced. A
/// value that the proxy sent in only one of the two formats is copied to the other (RFC 7239, 7.4), so that
/// it does not matter which one the application reads. Host and scheme in the element of this server are those of the
/// client too: applications read the first of each, wherever it is, and X-Forwarded-Host and -Proto say the same.
fn forwarding_headers(
    request: &Request,
    client: &Client,
    proxy: &Proxy,
    strip_prefix: &[u8],
) -> ForwardingHeaders {
    let mut headers = ForwardingHeaders::default();
    if proxy.request_id.is_some() {
        headers.request_id = request.id().to_string();
    }
    let (forwarded, x_forwarded) = match proxy.upstream.settings.forwarded {
        Forwarded::Both => (true, true),
        Forwarded::Forwarded => (true, false),
        Forwarded::XForwarded => (false, true),
        Forwarded::Off => (false, false),
    };
    let host = client.host(request);
    if x_forwarded {
        if client.by_trusted {
            headers.x_for = x_forwarded_for_before(request);
        }
        // Applications that read the list from the right would take `unknown` for the client.
        if client.peer.is_some() || headers.x_for.is_empty() {
            forwarded::push_x_forwarded_for(&mut headers.x_for, client.peer);
        }
        headers.x_prefix = x_forwarded_prefix(request, client, strip_prefix);
        headers.x_proto = true;
        headers.x_host = !host.is_empty();
    }
    if forwarded {
        if client.by_trusted {
            headers.forwarded = forwarded_before(request);
        }
        let element = Element {
            client: client.peer.map(Node::from),
            by: None,
            host: (!host.is_empty()).then_some(host),
            scheme: client.scheme,
        };
        // Cannot fail: the host has been parsed.
        let _ = forwarded::push_forwarded(&mut headers.forwarded, &element);
    }
    headers
}

/// The prefixes that a trusted proxy has stripped, followed by the one stripped here.
fn x_forwarded_prefix(request: &Request, client: &Client, strip_prefix: &[u8]) -> Vec<u8> {
    let before = request.header("x-forwarded-prefix");
    let before = before.filter(|before| client.by_trusted && before.starts_with(b"/"));
    let before = before.unwrap_or_default();
    [before.strip_suffix(b"/").unwrap_or(before), strip_prefix].concat()
}

/// The list of a trusted proxy, from X-Forwarded-For or else from `Forwarded`.
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

/// The list of a trusted proxy in the syntax of `Forwarded`. X-Forwarded-For takes precedence, as everywhere.
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

/// `path`, whose decoded form is `decoded`, without `prefix`.
fn without_prefix<'a>(path: &Cow<'a, [u8]>, prefix: &[u8], decoded: &[u8]) -> Cow<'a, [u8]> {
    if prefix.is_empty() || path::beneath(decoded, prefix).is_none() {
        return path.clone();
    }
    Cow::Owned(
        match path::part_as_sent(path, prefix.len()..decoded.len()) {
            b"" => b"/".to_vec(),
            rest => path::one_leading_slash(rest).to_vec(),
        },
    )
}

/// The Host for the backend.
fn host<'a>(request: &'a Request, proxy: &'a Proxy) -> &'a [u8] {
    proxy.host_set().unwrap_or(request.host())
}

/// The Destination of MOVE and COPY (RFC 4918, 10.3) as the path, the Host and the scheme of the request are for the backend,
/// which compares them. `None` if it passes as sent: on another host, or for a program, which knows the URL of the client.
///
/// # Errors
/// As [`path::forwarded`], and 502 if it is not beneath `strip_prefix` (RFC 4918, 9.8.5): there the backend has no place for it.
fn destination(
    request: &Request,
    proxy: &Proxy,
    client: &Client,
    strip_prefix: &[u8],
) -> Result<Option<Box<[u8]>>, Reject> {
    let protocol = proxy.upstream.settings.protocol;
    let has_one = matches!(request.method(), b"MOVE" | b"COPY") && !protocol.is_cgi();
    let sent = request.header(DESTINATION).filter(|_| has_one);
    let Some((is_absolute, path)) = sent.and_then(|url| own_path(url, request, client)) else {
        return Ok(None);
    };
    let mut decoded = Vec::new();
    path::decode_keeping_slashes(path, &mut decoded)?;
    decoded.insert(0, b'/');
    let whole = path::forwarded(path)?;
    if path::beneath(&decoded, strip_prefix).is_none() {
        return Err(OUTSIDE);
    }
    let path = without_prefix(&whole, strip_prefix, &decoded);
    let scheme = match protocol {
        Protocol::Ajp13 => client.scheme,
        _ => proxy.upstream.scheme(),
    };
    let origin = [scheme.as_bytes(), b"://", host(request, proxy)].concat();
    let origin: &[u8] = if is_absolute { &origin } else { b"" };
    Ok(Some([origin, &path].concat().into()))
}

/// The path of a URL of the site that the client asks, and whether the URL has a host.
fn own_path<'u>(url: &'u [u8], request: &Request, client: &Client) -> Option<(bool, &'u [u8])> {
    if url.starts_with(b"/") {
        return Some((false, url));
    }
    let (scheme, authority, path) = http1::split_url(url)?;
    let default_port = http1::default_port(scheme)?;
    if !(path.is_empty() || path.starts_with(b"/")) {
        return None;
    }
    let named = http1::name_and_port(authority, default_port)?;
    let mut hosts = [client.host(request), request.host()].into_iter();
    let is_own =
        hosts.any(|host| http1::name_and_port(host, default_port).as_ref() == Some(&named));
    is_own.then_some((true, path))
}
