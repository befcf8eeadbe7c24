//! One request, as the steps after `parse` see it.

use std::time::{Duration, Instant};

use levity_wire::http1::{self, EndToEnd, Framing, Limits, Reject, RequestHead, Target, write};
use levity_wire::path;

/// A request, with the bytes that it was parsed from. Recycled by the worker.
#[derive(Default)]
pub struct Request {
    bytes: Vec<u8>,
    /// Where in the bytes things are.
    pub head: RequestHead,
    /// Decoded and normalised; starts with a slash.
    pub path: Vec<u8>,
    /// `%2F` is still in `path`, which no file's name can have.
    pub keeps_slashes: bool,
    /// The look-up key of location and path, once routed.
    pub key: Vec<u8>,
}

impl Request {
    /// Keeps the bytes of the head, which `self.head` points into.
    pub fn set_bytes(&mut self, head: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(head);
    }

    /// The first header line of that name; `name` in lower case.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.head.headers.first(&self.bytes, name)
    }

    /// Whether a body follows the header.
    pub fn has_body(&self) -> bool {
        self.head.framing != Framing::None
    }

    /// The request target as sent.
    pub fn target(&self) -> &[u8] {
        self.head.target_span.of(&self.bytes)
    }

    /// The method as sent.
    pub fn method(&self) -> &[u8] {
        self.head.method_span.of(&self.bytes)
    }

    /// The bytes of its head, which the spans in `self.head` point into.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The path as sent, without the query.
    pub fn raw_path(&self) -> &[u8] {
        self.head.path.of(&self.bytes)
    }

    /// The target, if it was sent in the form that has path and query only.
    pub fn origin_form(&self) -> Option<&[u8]> {
        (self.head.target == Target::Origin).then(|| self.target())
    }

    /// The protocols that the client offers to switch to.
    pub fn upgrade(&self) -> Option<&[u8]> {
        self.head.upgrade.map(|span| span.of(&self.bytes))
    }

    /// Decodes the path of the target.
    ///
    /// # Errors
    /// When it is malformed or climbs above the root.
    pub fn decode_path(&mut self) -> Result<(), Reject> {
        let path = self.head.path.of(&self.bytes);
        self.keeps_slashes = path::decode_keeping_slashes(path, &mut self.path)?;
        self.path.insert(0, b'/');
        Ok(())
    }

    /// Whether the path, as decoded, has the form of a directory's.
    pub fn names_directory(&self) -> bool {
        self.path.ends_with(b"/")
    }

    /// Sets the look-up key: that of the location, and the path.
    pub fn set_key(&mut self, location: [u8; 8]) {
        self.key.clear();
        self.key.extend_from_slice(&location);
        self.key.extend_from_slice(&self.path);
    }

    /// The query as sent, without its question mark.
    pub fn query(&self) -> Option<&[u8]> {
        self.head.query.map(|span| span.of(&self.bytes))
    }

    /// Host and port that the client asked for; empty when it named none.
    pub fn host(&self) -> &[u8] {
        self.head.host.map_or(b"", |span| span.of(&self.bytes))
    }

    /// All header lines of that name; `name` in lower case.
    pub fn headers_named<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        self.head.headers.named(&self.bytes, name)
    }

    /// One that is made here, with these fields besides Host. `host` may be empty: a client of HTTP/1.0
    /// need not have named any.
    ///
    /// # Errors
    /// 400 for what cannot stand in a request.
    pub fn made<'f>(
        method: &[u8],
        target: &[u8],
        host: &[u8],
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        limits: &Limits,
    ) -> Result<Self, Reject> {
        let bad = |unwritable: write::Unwritable| Reject {
            status: 400,
            reason: unwritable.0,
        };
        let mut head = Vec::with_capacity(256 + target.len());
        write::request_line(&mut head, method, target).map_err(bad)?;
        let placeholder: &[u8] = b"localhost";
        let named = if host.is_empty() { placeholder } else { host };
        write::field(&mut head, b"Host", named).map_err(bad)?;
        for (name, value) in fields {
            write::field(&mut head, name, value).map_err(bad)?;
        }
        write::end_of_head(&mut head);
        let mut request = Self::parsed(&head, limits)?;
        if host.is_empty() {
            request.head.host = None;
        }
        Ok(request)
    }

    /// That of a whole header.
    ///
    /// # Errors
    /// For what is no request, or only the start of one.
    pub fn parsed(head: &[u8], limits: &Limits) -> Result<Self, Reject> {
        let mut request = Self::default();
        if !http1::parse_request(head, &mut request.head, limits)? {
            return Err(Reject {
                status: 400,
                reason: "the head is incomplete",
            });
        }
        request.set_bytes(&head[..request.head.bytes]);
        request.decode_path()?;
        Ok(request)
    }

    /// The same client's delegation for something else: without a body, without what is between it and us, and
    /// without the fields of these names.
    ///
    /// # Errors
    /// When the target is none.
    pub fn derived(
        &self,
        method: &[u8],
        target: &[u8],
        host: &[u8],
        without: &[&[u8]],
        limits: &Limits,
    ) -> Result<Self, Reject> {
        const LEFT_OUT: [&[u8]; 3] = [b"host", b"content-length", b"expect"];
        let passed = EndToEnd::of(&self.bytes, &self.head.headers);
        let fields = passed.headers().map(|header| {
            let name = header.name.of(&self.bytes);
            (name, header.value.of(&self.bytes))
        });
        let is_passed = |(name, _): &(&[u8], &[u8])| {
            let mut left_out = LEFT_OUT.iter().chain(without);
            !left_out.any(|other| name.eq_ignore_ascii_case(other))
        };
        Self::made(method, target, host, fields.filter(is_passed), limits)
    }
}

/// When a request arrived.
pub struct Arrival {
    /// Its first byte.
    pub first_byte: Instant,
    /// How long a new connection had waited for that; `None` for further requests.
    pub waited: Option<Duration>,
}

/// Why there is no request to answer.
#[derive(Debug)]
pub enum NoRequest {
    /// The client closed, or was idle for too long, between requests.
    Finished,
    /// The client closed or vanished within a request.
    Gone,
    /// The client took too long within a request.
    Timeout,
    /// What it sent is no request; it deserves an answer.
    Refused(Reject),
}

impl From<Reject> for NoRequest {
    fn from(reject: Reject) -> Self {
        Self::Refused(reject)
    }
}
