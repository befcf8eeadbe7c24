//! The parsed start line and header section of a message.

use std::ops::Deref;

use super::Reject;

/// A position in the parsed bytes, so that a [`RequestHead`] or [`ResponseHead`] does not borrow
/// them.
///
/// It is valid as long as the same bytes are at the same offset: the buffer may move, but its
/// contents must not shift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// Both ends must fit in 32 bits; the limit on the header size guarantees that.
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
    /// If `bytes` is shorter than the parsed bytes.
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
    /// Any other well-formed method; a server responds with 501.
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

    pub(crate) fn name(self) -> &'static [u8] {
        match self {
            Self::Http10 => b"HTTP/1.0",
            Self::Http11 => b"HTTP/1.1",
        }
    }

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

/// The framing of a request's body (RFC 9112, 6.3).
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

/// The framing of a response's body (RFC 9112, 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResponseFraming {
    /// No body, regardless of the headers: responses to HEAD, and the statuses 1xx, 204 and 304.
    #[default]
    None,
    /// Content-Length, in bytes.
    Length(u64),
    /// `Transfer-Encoding: chunked`; decode with [`Chunked`](super::Chunked).
    Chunked,
    /// The body ends with the connection. Truncation cannot be detected.
    UntilClose,
    /// Both directions leave HTTP: 101, and a successful CONNECT.
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

/// One header line. The value has no surrounding white space and may be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderSpan {
    /// The name as sent, in any case.
    pub name: Span,
    /// The value as sent; it may contain bytes from 0x80, but no control characters except HTAB.
    pub value: Span,
}

/// The header lines of a message, in the order they were sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Headers {
    lines: Vec<HeaderSpan>,
    /// The lengths of the names, each as a bit: most look-ups are for headers that a message does not have.
    name_lengths: u32,
}

impl Headers {
    /// The value of the first line with this lower-case name.
    pub fn first<'a>(&self, bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
        self.named(bytes, name).next()
    }

    /// The values of all lines with this lower-case name.
    pub fn named<'a>(
        &self,
        bytes: &'a [u8],
        name: &str,
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        let name = name.as_bytes();
        let lines = match self.name_lengths & length_bit(name.len()) {
            0 => &[],
            _ => &self.lines[..],
        };
        let same = move |header: &&HeaderSpan| header.name.of(bytes).eq_ignore_ascii_case(name);
        let values = lines.iter().filter(same);
        values.map(|header| header.value.of(bytes))
    }

    /// Calls `edit` with the value of each line with this lower-case name, in `bytes`. It may change the value and
    /// returns its new length, which is not greater.
    pub fn edit(&mut self, bytes: &mut [u8], name: &str, mut edit: impl FnMut(&mut [u8]) -> usize) {
        for header in &mut self.lines {
            if header.name.of(bytes).eq_ignore_ascii_case(name.as_bytes()) {
                let Span { start, end } = header.value;
                let length = edit(&mut bytes[start as usize..end as usize]);
                header.value = header.value.part(0, length);
            }
        }
    }

    pub(crate) fn push(&mut self, header: HeaderSpan) {
        self.name_lengths |= length_bit(header.name.len());
        self.lines.push(header);
    }

    /// An empty list that reuses the allocation.
    pub(crate) fn emptied(&mut self) -> Self {
        let mut lines = std::mem::take(&mut self.lines);
        lines.clear();
        Self {
            lines,
            name_lengths: 0,
        }
    }
}

fn length_bit(length: usize) -> u32 {
    1 << length.min(31)
}

impl Deref for Headers {
    type Target = [HeaderSpan];

    fn deref(&self) -> &[HeaderSpan] {
        &self.lines
    }
}

/// A request line and its header section: spans into the parsed bytes, and the meaning of the
/// framing headers.
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
    /// The part after the first `?`, not decoded.
    pub query: Option<Span>,
    /// The host with its port, as sent and valid: from an absolute or authority-form target if
    /// there is one, else from Host (RFC 9112, 3.2.2). `None` only in HTTP/1.0. Compare it by
    /// [`host_name`](super::host_name).
    pub host: Option<Span>,
    /// The header lines in the order they were sent.
    pub headers: Headers,
    /// The framing of the body.
    pub framing: Framing,
    /// Whether the client allows another request on this connection (RFC 9112, 9.3).
    pub keep_alive: bool,
    /// The protocols that the client offers to switch to: its first Upgrade line, in HTTP/1.1 and
    /// if Connection lists it (RFC 9110, 7.8).
    pub upgrade: Option<Span>,
    /// Whether the client waits for `100 Continue` before its body (RFC 9110, 10.1.1).
    pub expect_continue: bool,
    /// Whether there is a header whose name starts with `If-`, as those of all conditions do (RFC 9110, 13.1).
    pub conditional: bool,
    /// Length in bytes, including blank lines before and the blank line at the end: the body starts
    /// here.
    pub bytes: usize,
}

impl RequestHead {
    /// Changes the target to `target`, a path with or without a query (RFC 9112, 3.2.1). `bytes` are those of the header
    /// section, and get the bytes of the target behind them.
    ///
    /// # Errors
    /// 400 for bytes that are not allowed in a target, or a path that begins with no slash.
    pub fn set_target(&mut self, bytes: &mut Vec<u8>, target: &[u8]) -> Result<(), Reject> {
        let is_valid = |byte: &u8| byte.is_ascii_graphic() && *byte != b'#';
        if !target.starts_with(b"/") || !target.iter().all(is_valid) {
            return Err(Reject::bad("bad target of a rewrite"));
        }
        let start = bytes.len();
        bytes.extend_from_slice(target);
        let question = target.iter().position(|&byte| byte == b'?');
        let path_end = start + question.unwrap_or(target.len());
        self.target = Target::Origin;
        self.target_span = Span::new(start, bytes.len());
        self.path = Span::new(start, path_end);
        self.query = question.map(|_| Span::new(path_end + 1, bytes.len()));
        Ok(())
    }

    /// Forgets the content and keeps the allocation.
    pub fn clear(&mut self) {
        *self = Self {
            headers: self.headers.emptied(),
            ..Self::default()
        };
    }
}

/// A status line and its header section: spans into the parsed bytes, and the meaning of the
/// framing headers for the response to this request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResponseHead {
    /// The version.
    pub version: Version,
    /// 100 to 999.
    pub status: u16,
    /// The reason phrase as sent, often empty.
    pub reason: Span,
    /// The header lines in the order they were sent.
    pub headers: Headers,
    /// The framing of the body.
    pub framing: ResponseFraming,
    /// Whether the connection can carry another request once this response has been read to its end
    /// (RFC 9112, 9.3). Undefined for an interim response.
    pub keep_alive: bool,
    /// The protocols that the server switches to (101) or offers (any other status): the first
    /// Upgrade line, in HTTP/1.1 and if Connection lists it (RFC 9110, 7.8).
    pub upgrade: Option<Span>,
    /// Length in bytes, including the blank line at the end: the body starts here or, after an
    /// interim response, the next status line.
    pub bytes: usize,
}

impl ResponseHead {
    /// Whether a final response follows: 1xx except 101 (RFC 9110, 15.2).
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
