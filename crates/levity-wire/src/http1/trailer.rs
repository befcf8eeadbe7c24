//! The trailers of a chunked body (RFC 9110, 6.5; RFC 9112, 7.1.2).

use super::hop::{is_hop_by_hop, is_one_of, starts_with_one_of};
use super::line::trim;

/// Headers that take effect before the body or replace it. Many parsers merge trailers into the
/// header section; with these, the sender of a trailer could override the length, the host, the
/// user or the media type (RFC 9110, 6.5.1, with the list of RFC 7230, 4.1.2).
const FORBIDDEN: &[&str] = &[
    // framing and routing
    "host",
    "forwarded",
    "via",
    "x-real-ip",
    // request modifiers
    "cache-control",
    "expect",
    "max-forwards",
    "pragma",
    "range",
    // authentication
    "authorization",
    "cookie",
    "origin",
    "set-cookie",
    "www-authenticate",
    // control of the response
    "age",
    "date",
    "expires",
    "location",
    "retry-after",
    "vary",
    "warning",
];

/// Prefixes of such headers.
const FORBIDDEN_PREFIXES: &[&str] = &[
    "access-control-",
    "content-",
    "if-",
    "proxy-",
    "sec-",
    "x-forwarded-",
];

/// The one `content-` header that is meant for trailers (RFC 9530, 2).
const CONTENT_DIGEST: &str = "content-digest";

/// Whether a header of this name, in any case, is forbidden in trailers.
pub fn is_forbidden_in_trailers(name: &[u8]) -> bool {
    is_hop_by_hop(name)
        || is_one_of(name, FORBIDDEN)
        || (starts_with_one_of(name, FORBIDDEN_PREFIXES)
            && !name.eq_ignore_ascii_case(CONTENT_DIGEST.as_bytes()))
}

/// The trailers of one body, collected by
/// [`Chunked::decode_with_trailers`](super::Chunked::decode_with_trailers).
#[derive(Debug, Clone, Default)]
pub struct Trailers {
    /// Syntactically valid lines, each terminated by its CR.
    lines: Vec<u8>,
}

impl Trailers {
    /// Names and values in the order they were sent, once the body is complete, without
    /// [forbidden](is_forbidden_in_trailers) ones.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lines
            .split_inclusive(|&byte| byte == b'\r')
            .filter_map(field)
            .filter(|(name, _)| !is_forbidden_in_trailers(name))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields().next().is_none()
    }

    /// Keeps the trailers whose names `is_kept`.
    pub fn retain(&mut self, is_kept: impl Fn(&[u8]) -> bool) {
        let lines = self.lines.split_inclusive(|&byte| byte == b'\r');
        let kept = lines.filter(|line| field(line).is_none_or(|(name, _)| is_kept(name)));
        self.lines = kept.flatten().copied().collect();
    }

    /// Appends one, which has neither CR nor LF.
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        for part in [name, b":", value, b"\r"] {
            self.lines.extend_from_slice(part);
        }
    }

    pub(super) fn push(&mut self, byte: u8) {
        self.lines.push(byte);
    }
}

/// `None` for an incomplete line.
fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.strip_suffix(b"\r")?;
    let name_end = line.iter().position(|&byte| byte == b':')?;
    Some((&line[..name_end], trim(&line[name_end + 1..])))
}
