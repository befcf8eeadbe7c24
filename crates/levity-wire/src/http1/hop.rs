//! Which fields end at this hop, and which are passed on (RFC 9110, 7.6.1).

use super::HeaderSpan;
use super::line::list;

/// Fields about one connection. RFC 9110, 7.6.1 demands that most of them are removed even when
/// Connection does not list them. The `proxy-` ones are between a client and its own proxy
/// (RFC 9110, 11.7), which we are not.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Fields that stay although Connection lists them. RFC 9110, 7.6.1 has a proxy remove whatever is
/// listed. A sender loses only what it has sent itself, which it could have left out: so cookies,
/// credentials and conditions are removed like the rest. The exceptions are fields by which a hop
/// before the sender's speaks, or which others than the next hop depend on:
///
/// - who asks, as proxies tell it: obeying has let clients hide their address (CVE-2022-31813, Apache
///   httpd 2.4.53);
/// - Host and `Content-*`: the content goes on, and without them it would be taken for something else;
/// - Cache-Control, which the RFC names as never to be listed: without `private` or `no-store` a cache
///   behind us would give one client's answer to others.
const PROTECTED: &[&str] = &[
    "cache-control",
    "forwarded",
    "host",
    "via",
    "x-real-ip",
    "x-request-id",
];

/// Families of such fields.
const PROTECTED_PREFIXES: &[&str] = &["content-", "x-forwarded-"];

/// Whether a field of this name, in any case, never goes further than the next hop.
pub fn is_hop_by_hop(name: &[u8]) -> bool {
    is_one_of(name, HOP_BY_HOP)
}

pub(super) fn is_one_of(name: &[u8], names: &[&str]) -> bool {
    names
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

pub(super) fn starts_with_one_of(name: &[u8], prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| {
        name.get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
    })
}

/// The part of a head that a proxy passes on. What the proxy itself adds is not to be asked about
/// here, or the other side could have it removed.
#[derive(Debug, Clone)]
pub struct EndToEnd<'a> {
    bytes: &'a [u8],
    headers: &'a [HeaderSpan],
    /// What Connection lists, without what goes or stays in any case: nearly always nothing. The
    /// parser has bounded the number.
    listed: Vec<&'a [u8]>,
}

impl<'a> EndToEnd<'a> {
    /// Of a head that was parsed from `bytes`.
    pub fn of(bytes: &'a [u8], headers: &'a [HeaderSpan]) -> Self {
        let listed = headers
            .iter()
            .filter(|header| header.name.of(bytes).eq_ignore_ascii_case(b"connection"))
            .flat_map(|header| list(header.value.of(bytes)))
            .filter(|option| names_a_field(option))
            .collect();
        Self {
            bytes,
            headers,
            listed,
        }
    }

    /// The names that Connection lists and that would be passed on without it. Fields of these names are
    /// removed from the trailers too (RFC 9110, 7.6.1).
    pub fn listed(&self) -> impl Iterator<Item = &'a [u8]> {
        self.listed.iter().copied()
    }

    /// Whether a field of this name is passed on.
    pub fn has(&self, name: &[u8]) -> bool {
        !is_hop_by_hop(name)
            && !self
                .listed
                .iter()
                .any(|listed| name.eq_ignore_ascii_case(listed))
    }

    /// The header lines to pass on, in the order they were sent.
    pub fn headers(&self) -> impl Iterator<Item = HeaderSpan> {
        self.headers
            .iter()
            .copied()
            .filter(|header| self.has(header.name.of(self.bytes)))
    }
}

/// Whether a connection option has a field removed that would be passed on without it.
fn names_a_field(option: &[u8]) -> bool {
    !option.is_empty()
        && !option.eq_ignore_ascii_case(b"close")
        && !is_hop_by_hop(option)
        && !is_one_of(option, PROTECTED)
        && !starts_with_one_of(option, PROTECTED_PREFIXES)
}
