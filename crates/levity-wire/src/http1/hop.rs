//! Hop-by-hop and end-to-end headers (RFC 9110, 7.6.1).

use super::HeaderSpan;
use super::line::list;

/// Headers about one connection. RFC 9110, 7.6.1 requires that most of them are removed even if
/// Connection does not list them. The `proxy-` ones are between a client and its own proxy (RFC
/// 9110, 11.7), which this server is not.
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

/// Headers that are forwarded even if Connection lists them. RFC 9110, 7.6.1 requires a proxy to
/// remove every listed header. A sender can thereby remove only its own headers, which it could
/// have omitted: so cookies, credentials and conditions are removed like the rest. The exceptions
/// are headers that belong to an earlier hop, or that other recipients than the next hop depend on:
///
/// - the client's address as reported by proxies: removing it has let clients hide it
///   (CVE-2022-31813, Apache httpd 2.4.53);
/// - Host and `Content-*`: the content is forwarded, and would be misinterpreted without them;
/// - Cache-Control, which must not be listed according to the RFC: without `private` or `no-store`,
///   a cache behind this server would give one client's response to others.
const PROTECTED: &[&str] = &[
    "cache-control",
    "forwarded",
    "host",
    "via",
    "x-real-ip",
    "x-request-id",
];

/// Prefixes of such headers.
const PROTECTED_PREFIXES: &[&str] = &["content-", "x-forwarded-"];

/// Whether a header of this name, in any case, is never forwarded.
pub fn is_hop_by_hop(name: &[u8]) -> bool {
    is_one_of(name, HOP_BY_HOP)
}

/// Whether `names` contain `name`. Case is ignored.
pub fn is_one_of(name: &[u8], names: &[&str]) -> bool {
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

/// The headers of a message that a proxy forwards. Do not use it for headers that the proxy itself
/// adds: the other side could have them removed.
#[derive(Debug, Clone)]
pub struct EndToEnd<'a> {
    bytes: &'a [u8],
    headers: &'a [HeaderSpan],
    /// The headers that Connection lists, except those whose treatment does not depend on it:
    /// nearly always empty. The parser has limited their number.
    listed: Vec<&'a [u8]>,
}

impl<'a> EndToEnd<'a> {
    /// For headers that were parsed from `bytes`.
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

    /// The names that Connection lists and that would be forwarded otherwise. Trailers with these
    /// names are removed too (RFC 9110, 7.6.1).
    pub fn listed(&self) -> impl Iterator<Item = &'a [u8]> {
        self.listed.iter().copied()
    }

    /// Whether a header of this name is forwarded.
    pub fn has(&self, name: &[u8]) -> bool {
        !is_hop_by_hop(name)
            && !self
                .listed
                .iter()
                .any(|listed| name.eq_ignore_ascii_case(listed))
    }

    /// The header lines to forward, in the order they were sent.
    pub fn headers(&self) -> impl Iterator<Item = HeaderSpan> {
        self.headers
            .iter()
            .copied()
            .filter(|header| self.has(header.name.of(self.bytes)))
    }
}

/// Whether a connection option removes a header that would be forwarded otherwise.
fn names_a_field(option: &[u8]) -> bool {
    !option.is_empty()
        && !option.eq_ignore_ascii_case(b"close")
        && !is_hop_by_hop(option)
        && !is_one_of(option, PROTECTED)
        && !starts_with_one_of(option, PROTECTED_PREFIXES)
}
