//! What a parsed head holds.

use std::ops::Deref;

use super::Reject;

/// A position inside the bytes that were parsed, so that a head can be kept without borrowing them.
///
/// It stays valid as long as the same bytes are at the same offset: move the buffer freely, do not
/// shift its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// Both ends must fit in 32 bits; the bound on a head holds that.
    pub(crate) fn new(start: usize, end: usize) -> Self {
        debug_assert!(start <= end && u32::try_from(end).is_ok());
        Self {
            start: start as u32,
            end: end as u32,
        }
    }

    /// The bytes at this position.
    ///
    /// # Panics
    /// When `bytes` is shorter than the head that the span came from.
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..self.end as usize]
    }

    /// True for a span without bytes, such as the value of an empty header.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Length in bytes.
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    pub(crate) fn start(self) -> usize {
        self.start as usize
    }

    /// The part `start..end` of this span, both counted from its start.
    pub(crate) fn part(self, start: usize, end: usize) -> Self {
        debug_assert!(end <= self.len());
        Self::new(self.start() + start, self.start() + end)
    }
}

/// Request method (RFC 9110, 9.3; PATCH is RFC 5789). Methods are case-sensitive: `get` is
/// `Unknown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "each is the method of its name")]
pub enum Method {
    Get,
    Head,
    Options,
    Post,
    Put,
    Delete,
    Patch,
    Connect,
    Trace,
    /// A well-formed method that none of the above is; a server answers 501.
    #[default]
    Unknown,
}

impl Method {
    pub(crate) fn of(token: &[u8]) -> Self {
        match token {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"OPTIONS" => Self::Options,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"PATCH" => Self::Patch,
            b"CONNECT" => Self::Connect,
            b"TRACE" => Self::Trace,
            _ => Self::Unknown,
        }
    }
}

/// Protocol version. A minor version above 1 is read as 1.1 (RFC 9110, 2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1, and HTTP/1.2 to 1.9
    #[default]
    Http11,
}

impl Version {
    /// Bytes of a version in a start line.
    pub(super) const BYTES: usize = b"HTTP/1.1".len();

    /// RFC 9112, 2.3: exactly `HTTP/d.d`, in upper case.
    pub(super) fn of(text: &[u8]) -> Result<Self, Reject> {
        match text.strip_prefix(b"HTTP/") {
            Some([b'1', b'.', b'0']) => Ok(Self::Http10),
            Some([b'1', b'.', b'1'..=b'9']) => Ok(Self::Http11),
            Some([b'0' | b'2'..=b'9', b'.', b'0'..=b'9']) => {
                Err(Reject::new(505, "HTTP version not supported"))
            }
            _ => Err(Reject::bad("bad HTTP version")),
        }
    }
}

/// How the length of a request's body is known (RFC 9112, 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// Neither Content-Length nor Transfer-Encoding: no body.
    #[default]
    None,
    /// Content-Length, in bytes.
    Length(u64),
    /// `Transfer-Encoding: chunked`; decode with [`Chunked`](super::Chunked).
    Chunked,
}

/// How the end of a response's body is known (RFC 9112, 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResponseFraming {
    /// No body, whatever the fields say: the response to HEAD, and the statuses 1xx, 204 and 304.
    #[default]
    None,
    /// Content-Length, in bytes.
    Length(u64),
    /// `Transfer-Encoding: chunked`; decode with [`Chunked`](super::Chunked).
    Chunked,
    /// The body ends where the connection does. Whether all of it came cannot be known.
    UntilClose,
    /// What follows is no HTTP, in both directions: 101, and the success of CONNECT.
    Tunnel,
}

/// The form of the request target (RFC 9112, 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Target {
    /// `/path?query`
    #[default]
    Origin,
    /// `http://host/path?query`
    Absolute,
    /// `*`, with OPTIONS only
    Asterisk,
    /// `host:port`, with CONNECT only
    Authority,
}

/// One header line. The value is without the white space around it and may be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderSpan {
    /// The name as sent, in any case.
    pub name: Span,
    /// The value as sent; bytes from 0x80 are possible, control characters other than HTAB are
    /// not.
    pub value: Span,
}

/// The header lines of a head, in the order they were sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Headers(Vec<HeaderSpan>);

impl Headers {
    /// The value of the first line of this name, which must be in lower case.
    pub fn first<'a>(&self, bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
        self.named(bytes, name).next()
    }

    /// The values of all lines of this name, which must be in lower case.
    pub fn named<'a>(
        &self,
        bytes: &'a [u8],
        name: &str,
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        let name = name.as_bytes();
        let same = move |header: &&HeaderSpan| header.name.of(bytes).eq_ignore_ascii_case(name);
        let values = self.0.iter().filter(same);
        values.map(|header| header.value.of(bytes))
    }

    pub(crate) fn push(&mut self, header: HeaderSpan) {
        self.0.push(header);
    }

    /// No lines, in the memory that these had.
    pub(crate) fn emptied(&mut self) -> Self {
        let mut lines = std::mem::take(&mut self.0);
        lines.clear();
        Self(lines)
    }
}

impl Deref for Headers {
    type Target = [HeaderSpan];

    fn deref(&self) -> &[HeaderSpan] {
        &self.0
    }
}

/// A request head: spans into the bytes it was parsed from, and what the framing headers mean.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The method as sent, for the log.
    pub method_span: Span,
    /// The version.
    pub version: Version,
    /// The form of the target.
    pub target: Target,
    /// The whole target as sent.
    pub target_span: Span,
    /// The path, not decoded. It starts with `/`, or is empty for `*` and for CONNECT.
    pub path: Span,
    /// What follows the first `?`, not decoded.
    pub query: Option<Span>,
    /// The host with its port, as sent and valid: from an absolute or authority-form target if
    /// there is one, else from Host (RFC 9112, 3.2.2). `None` only in HTTP/1.0. Compare by
    /// [`host_name`](super::host_name).
    pub host: Option<Span>,
    /// The header lines in the order they were sent.
    pub headers: Headers,
    /// How long the body is.
    pub framing: Framing,
    /// Whether the client allows another request on this connection (RFC 9112, 9.3).
    pub keep_alive: bool,
    /// The protocols that the client offers to switch to: its first Upgrade line, in HTTP/1.1 and
    /// when Connection lists it (RFC 9110, 7.8).
    pub upgrade: Option<Span>,
    /// Whether the client waits for `100 Continue` before its body (RFC 9110, 10.1.1).
    pub expect_continue: bool,
    /// Length of the head in bytes, with blank lines before it and the blank line after it: the
    /// body starts here.
    pub bytes: usize,
}

impl RequestHead {
    /// Forgets the content and keeps the allocation.
    pub fn clear(&mut self) {
        *self = Self {
            headers: self.headers.emptied(),
            ..Self::default()
        };
    }
}

/// A response head: spans into the bytes it was parsed from, and what the framing headers mean for
/// the request that it answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResponseHead {
    /// The version.
    pub version: Version,
    /// 100 to 599.
    pub status: u16,
    /// The reason phrase as sent, often empty.
    pub reason: Span,
    /// The header lines in the order they were sent.
    pub headers: Headers,
    /// Where the body ends.
    pub framing: ResponseFraming,
    /// Whether the connection is good for another request once this response has been read to its
    /// end (RFC 9112, 9.3). Of an interim response it says nothing.
    pub keep_alive: bool,
    /// The protocols that are switched to (101) or on offer (any other status): the first Upgrade
    /// line, in HTTP/1.1 and when Connection lists it (RFC 9110, 7.8).
    pub upgrade: Option<Span>,
    /// Length of the head in bytes, with the blank line after it: the body starts here, or after an
    /// interim response the next head.
    pub bytes: usize,
}

impl ResponseHead {
    /// Whether the response proper comes after this one: 1xx but for 101 (RFC 9110, 15.2).
    pub fn is_interim(&self) -> bool {
        matches!(self.status, 100 | 102..=199)
    }

    /// Forgets the content and keeps the allocation.
    pub fn clear(&mut self) {
        *self = Self {
            headers: self.headers.emptied(),
            ..Self::default()
        };
    }
}
