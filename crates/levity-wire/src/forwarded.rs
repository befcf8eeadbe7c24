//! The client of a request as reported by proxies: `Forwarded` (RFC 7239) and X-Forwarded-For.
//!
//! Each proxy appends the peer that it saw, and forwards the rest of the list. So a list is read
//! from the right, as long as the hop that wrote an element is trusted. Nothing to the left, which
//! a client may have written, can change how an element is read.

use std::fmt;
use std::io::Write as _;
use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::decimal;
use crate::http1::write::Unwritable;
use crate::http1::{is_control, is_token, list, trim};

/// Maximum number of hops that [`origin`] evaluates.
pub const HOPS_MAX: usize = 32;

/// The longest text of an IP address: IPv6 that ends in an IPv4 address.
const IP_TEXT_MAX: usize = 45;

const SEPARATOR: &[u8] = b", ";

/// One end of a connection. An IPv4-mapped IPv6 address is stored as IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    ip: IpAddr,
    port: Option<u16>,
}

impl Node {
    /// The address, never IPv4-mapped IPv6.
    pub fn ip(self) -> IpAddr {
        self.ip
    }

    /// The port, if known.
    pub fn port(self) -> Option<u16> {
        self.port
    }

    fn new(ip: IpAddr, port: Option<u16>) -> Self {
        let ip = ip.to_canonical();
        Self { ip, port }
    }

    /// `ipv4` or `[ipv6]`, optionally with `:port`. An obfuscated port (RFC 7239, 6.2) counts as
    /// none.
    fn parse(text: &str) -> Option<Self> {
        let (ip, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (ip, port) = rest.split_once(']')?;
                (IpAddr::V6(ip.parse::<Ipv6Addr>().ok()?), port)
            }
            None => {
                let (ip, port) = text.split_at(text.find(':').unwrap_or(text.len()));
                (IpAddr::V4(ip.parse::<Ipv4Addr>().ok()?), port)
            }
        };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => None,
            None => return None,
            Some(hidden) if hidden.starts_with('_') => None,
            Some(digits) => Some(number(digits)?),
        };
        Some(Self::new(ip, port))
    }
}

impl From<IpAddr> for Node {
    fn from(ip: IpAddr) -> Self {
        Self::new(ip, None)
    }
}

impl From<SocketAddr> for Node {
    fn from(address: SocketAddr) -> Self {
        Self::new(address.ip(), Some(address.port()))
    }
}

/// In the syntax of `Forwarded`, without quotes: IPv6 in brackets.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip {
            IpAddr::V4(ip) => write!(f, "{ip}")?,
            IpAddr::V6(ip) => write!(f, "[{ip}]")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// One to five digits.
fn number(digits: &str) -> Option<u16> {
    let number = decimal::parse(digits.as_bytes()).filter(|_| digits.len() <= 5)?;
    u16::try_from(number).ok()
}

/// The client of a request as reported by trusted hops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The client. `None` only for a peer without an address.
    pub client: Option<Node>,
    /// The number of elements, from the nearest on, that trusted hops have written. The last of
    /// them reports the client.
    pub elements: usize,
}

/// The client of a request: the first hop, from `peer` on, that is not trusted to report its
/// predecessor.
///
/// `peer` is the other end of the connection, `None` on a Unix socket. `hops` are its predecessors,
/// nearest first, from [`forwarded`] or [`x_forwarded_for`]. If a trusted hop reports no address,
/// at the end of the list, and after [`HOPS_MAX`], the client is the last one that a trusted hop
/// has reported, or `peer`.
pub fn origin(
    peer: Option<IpAddr>,
    hops: impl Iterator<Item = Option<Node>>,
    is_trusted: impl Fn(Option<IpAddr>) -> bool,
) -> Origin {
    let mut origin = Origin {
        client: peer.map(Node::from),
        elements: 0,
    };
    for hop in hops.take(HOPS_MAX) {
        if !is_trusted(origin.client.map(Node::ip)) {
            break;
        }
        origin.elements += 1;
        if hop.is_none() {
            break;
        }
        origin.client = hop;
    }
    origin
}

/// The hops in lines of X-Forwarded-For, nearest first; `None` for an invalid address. Addresses
/// may have a port, which some proxies add.
pub fn x_forwarded_for<'a>(
    lines: impl DoubleEndedIterator<Item = &'a [u8]>,
) -> impl Iterator<Item = Option<Node>> {
    lines
        .rev()
        .flat_map(|line| list(line).rev())
        .filter(|element| !element.is_empty())
        .map(|element| {
            let text = str::from_utf8(element).ok()?;
            let bare = text.parse::<Ipv6Addr>().ok();
            bare.map(|ip| Node::from(IpAddr::V6(ip)))
                .or_else(|| Node::parse(text))
        })
}

/// The hops in lines of `Forwarded`, nearest first; `None` for an element whose syntax is invalid,
/// or whose `for` is repeated or no address (it may be absent, unknown or obfuscated).
pub fn forwarded<'a>(
    lines: impl DoubleEndedIterator<Item = &'a [u8]>,
) -> impl Iterator<Item = Option<Node>> {
    elements(lines).map(|element| Node::parse(str::from_utf8(parameter(element, b"for")?).ok()?))
}

/// The schemes in lines of `Forwarded`, nearest first, one for each hop of [`forwarded`]: the value
/// of `proto` as sent, without its quotes. `None` if it is absent or repeated, and for invalid
/// syntax.
pub fn forwarded_schemes<'a>(
    lines: impl DoubleEndedIterator<Item = &'a [u8]>,
) -> impl Iterator<Item = Option<&'a [u8]>> {
    elements(lines).map(|element| parameter(element, b"proto"))
}

/// The hosts in lines of `Forwarded`, as [`forwarded_schemes`]. They may be invalid.
pub fn forwarded_hosts<'a>(
    lines: impl DoubleEndedIterator<Item = &'a [u8]>,
) -> impl Iterator<Item = Option<&'a [u8]>> {
    elements(lines).map(|element| parameter(element, b"host"))
}

fn elements<'a>(
    lines: impl DoubleEndedIterator<Item = &'a [u8]>,
) -> impl Iterator<Item = &'a [u8]> {
    lines
        .rev()
        .flat_map(from_right)
        .map(trim)
        .filter(|element| !element.is_empty())
}

/// The elements of a list with quoted strings, the last one first.
fn from_right(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut left = Some(line);
    iter::from_fn(move || {
        let line = left.take()?;
        let Some(comma) = last_comma(line) else {
            return Some(line);
        };
        left = Some(&line[..comma]);
        Some(&line[comma + 1..])
    })
}

/// Offset of the last comma outside quotes, scanned from the right. Scanned from the left, a quote
/// that a client has left open would hide the elements that trusted hops have appended.
fn last_comma(line: &[u8]) -> Option<usize> {
    let mut quoted = false;
    for (at, &byte) in line.iter().enumerate().rev() {
        match byte {
            b'"' if !quoted => quoted = true,
            b'"' => quoted = is_escaped(&line[..at]),
            b',' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// Whether it ends with an unescaped backslash.
fn is_escaped(before: &[u8]) -> bool {
    let backslashes = before.iter().rev().take_while(|&&byte| byte == b'\\');
    backslashes.count() % 2 == 1
}

/// The value of a parameter in one element (RFC 7239, 4).
fn parameter<'a>(element: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let mut found = None;
    let mut rest = element;
    while !rest.is_empty() {
        let (name, value, after) = pair(rest)?;
        if name.eq_ignore_ascii_case(key) && found.replace(value).is_some() {
            return None;
        }
        rest = after;
    }
    found
}

/// Name and value at the start of `text`, and the rest after their semicolon. A quoted value is
/// without its quotes but with its escapes: no address needs any.
fn pair(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let equals = text.iter().position(|&byte| byte == b'=')?;
    let (name, value) = (trim(&text[..equals]), &text[equals + 1..]);
    let (value, rest) = match value.strip_prefix(b"\"") {
        Some(quoted) => {
            let end = closing_quote(quoted)?;
            (&quoted[..end], trim(&quoted[end + 1..]))
        }
        None => {
            let end = value.iter().position(|&byte| byte == b';');
            let (value, rest) = value.split_at(end.unwrap_or(value.len()));
            (Some(trim(value)).filter(|value| is_token(value))?, rest)
        }
    };
    let after = match rest {
        [] => rest,
        [b';', after @ ..] => trim(after),
        _ => return None,
    };
    is_token(name).then_some((name, value, after))
}

/// Offset of the closing quote of a string that starts after its opening quote.
fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    text.iter().position(|&byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}

/// The content of one element of `Forwarded`.
#[derive(Debug, Clone, Copy)]
pub struct Element<'a> {
    /// The sender of the request; `None`, written as `unknown`, on a Unix socket.
    pub client: Option<Node>,
    /// The address that it arrived at, if it is disclosed.
    pub by: Option<Node>,
    /// The requested host, with its port if it had one.
    pub host: Option<&'a [u8]>,
    /// The scheme of the request: `http` or `https`.
    pub scheme: &'a str,
}

/// Joins the list of a trusted hop into one value, to which this hop is then added. A line with an
/// unclosed quote is dropped: to a parser from the left it would swallow the added element.
pub fn join<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut value = Vec::new();
    for line in lines.map(trim).filter(|line| closes_its_quotes(line)) {
        add(&mut value, line);
    }
    value
}

fn closes_its_quotes(line: &[u8]) -> bool {
    let mut rest = line;
    while let Some(quote) = rest.iter().position(|&byte| byte == b'"') {
        rest = &rest[quote + 1..];
        let Some(end) = closing_quote(rest) else {
            return false;
        };
        rest = &rest[end + 1..];
    }
    true
}

/// Adds this hop to a value of `Forwarded`.
///
/// # Errors
/// If the host contains a control character, or the scheme is no token; `value` is then unchanged.
pub fn push_forwarded(value: &mut Vec<u8>, element: &Element<'_>) -> Result<(), Unwritable> {
    let host = element.host.unwrap_or_default();
    if host.iter().any(|&byte| is_control(byte)) {
        return Err(Unwritable("control character in a host"));
    }
    if !is_token(element.scheme.as_bytes()) {
        return Err(Unwritable("bad scheme"));
    }
    let mut text = Vec::new();
    push_hop(&mut text, element.client);
    if let Some(by) = element.by {
        text.extend_from_slice(b";by=");
        push_quoted(&mut text, by.to_string().as_bytes());
    }
    if element.host.is_some() {
        text.extend_from_slice(b";host=");
        push_quoted(&mut text, host);
    }
    text.extend_from_slice(b";proto=");
    text.extend_from_slice(element.scheme.as_bytes());
    add(value, &text);
    Ok(())
}

/// Adds a hop of which at most the address is known to a value of `Forwarded`.
pub fn push_hop(value: &mut Vec<u8>, client: Option<Node>) {
    let mut text = b"for=".to_vec();
    match client {
        Some(node) => push_quoted(&mut text, node.to_string().as_bytes()),
        None => text.extend_from_slice(b"unknown"),
    }
    add(value, &text);
}

/// Adds this hop to a value of X-Forwarded-For: the sender of the request, or `unknown`.
pub fn push_x_forwarded_for(value: &mut Vec<u8>, client: Option<IpAddr>) {
    match client {
        Some(ip) => {
            // Reserve the longest address: writing in pieces would grow the vector repeatedly.
            value.reserve(SEPARATOR.len() + IP_TEXT_MAX);
            separate(value);
            // Writing to memory cannot fail.
            let _ = write!(value, "{}", ip.to_canonical());
        }
        None => add(value, b"unknown"),
    }
}

/// Writes a token as it is, and any other value, such as a port or an IPv6 address, in quotes (RFC
/// 7239, 4).
fn push_quoted(text: &mut Vec<u8>, value: &[u8]) {
    if is_token(value) {
        text.extend_from_slice(value);
        return;
    }
    text.push(b'"');
    for &byte in value {
        if matches!(byte, b'"' | b'\\') {
            text.push(b'\\');
        }
        text.push(byte);
    }
    text.push(b'"');
}

/// Adds an element to a comma-separated list.
fn add(list: &mut Vec<u8>, element: &[u8]) {
    if !element.is_empty() {
        separate(list);
        list.extend_from_slice(element);
    }
}

fn separate(list: &mut Vec<u8>) {
    if !list.is_empty() {
        list.extend_from_slice(SEPARATOR);
    }
}
