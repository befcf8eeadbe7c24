//! A parsed request.

use std::mem;
use std::time::{Duration, Instant};

use levity_telemetry::request_id::{self, RequestId};
use levity_wire::coded_etag::{self, Deltas, Suffixes};
use levity_wire::encoding::{Accepted, Coding};
use levity_wire::http1::{
    self, EndToEnd, Framing, Limits, Method, Reject, RequestHead, Span, write,
};
use levity_wire::{dictionary, path};

/// A request, with the bytes that it was parsed from. The worker recycles its memory.
#[derive(Default, Clone)]
pub struct Request {
    bytes: Vec<u8>,
    /// The parsed header section: spans into the bytes.
    pub head: RequestHead,
    /// The decoded, normalised path. It starts with a slash.
    pub path: Vec<u8>,
    /// `path` still contains an encoded slash (`%2F`), so it names no file.
    pub has_encoded_slash: bool,
    /// The cache key: location and path. Empty until the request is routed.
    pub key: Vec<u8>,
    /// The client uses TLS, as far as is known.
    pub is_https: bool,
    /// It was sent as early data, and read before the handshake was complete (RFC 8470): it may be a copy of what another client has
    /// sent.
    pub is_early: bool,
    /// It asks for a tunnel, which a response of 2xx begins (RFC 8441, 5).
    pub is_tunnel: bool,
    /// [`adapt_conditions`](Self::adapt_conditions) was called.
    has_adapted_conditions: bool,
    /// Where the target is as sent, if it was changed.
    sent: Option<Sent>,
    /// What its path was before the name of what it has led to took its place.
    asked: Option<Asked>,
    /// The number that identifies it, unless it has an id already.
    number: u128,
    /// The id that a proxy has given it; empty without one.
    taken_id: String,
    /// The entity tags of If-None-Match that [`adapt_conditions`](Self::adapt_conditions) changed, as they were.
    pub coded_etags: Vec<u8>,
}

/// A target before it was changed.
#[derive(Debug, Clone)]
struct Sent {
    target: Span,
    raw_path: Span,
    /// Decoded.
    path: Vec<u8>,
    query: Option<Span>,
    /// A rule of the configuration has changed it.
    is_rewritten: bool,
}

/// A target that has led to another name.
#[derive(Debug, Clone)]
struct Asked {
    target: Span,
    raw_path: Span,
    /// Decoded.
    path: Vec<u8>,
    has_encoded_slash: bool,
}

impl Request {
    /// Copies the bytes of the header section, which the spans of `self.head` refer to.
    pub fn set_bytes(&mut self, head: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(head);
        self.coded_etags.clear();
        self.sent = None;
        self.asked = None;
        self.is_https = false;
        self.is_early = false;
        self.is_tunnel = false;
        self.has_adapted_conditions = false;
    }

    /// Adapts the conditions to responses that may have got one of `codings` on their way. The suffixes of their ETags
    /// are removed, so that files and backends recognise their own tags. A date in If-Range no longer matches, because
    /// the client may have the first part of a coded response with that date. Does nothing the second time.
    pub fn adapt_conditions(&mut self, codings: &[Coding]) {
        if std::mem::replace(&mut self.has_adapted_conditions, true) {
            return;
        }
        // A cache may ask for this client with the tags of what it keeps for others.
        let accepted = Accepted::parse(self.headers_named("accept-encoding"));
        let accepted = accepted.choices(codings);
        let has_deltas = codings
            .iter()
            .any(|coding| Coding::WITH_DICTIONARY.contains(coding));
        let any = if has_deltas {
            Deltas::Any
        } else {
            Deltas::None
        };
        let deltas = match self.header("available-dictionary") {
            // A browser names a dictionary, and accepts deltas, only while that is fresh. Without one it may still hold
            // the content that it made from a delta.
            None => any,
            Some(value) if has_deltas => {
                dictionary::available(value).map_or(Deltas::None, Deltas::From)
            }
            Some(_) => Deltas::None,
        };
        let mut coded = Vec::new();
        let headers = &mut self.head.headers;
        headers.edit(&mut self.bytes, "if-none-match", |value| {
            let codings = &accepted;
            let uncoded = coded_etag::uncode(value, Suffixes { codings, deltas }, false);
            coded.extend(uncoded.coded);
            uncoded.length
        });
        headers.edit(&mut self.bytes, "if-match", |value| {
            let deltas = any;
            coded_etag::uncode(value, Suffixes { codings, deltas }, true).length
        });
        if !accepted.is_empty() {
            headers.edit(&mut self.bytes, "if-range", without_date);
        }
        self.coded_etags = coded;
    }

    /// The value of the first header called `name`, which is in lower case.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.head.headers.first(&self.bytes, name)
    }

    /// The token of `Authorization: Bearer TOKEN` (RFC 6750).
    pub fn bearer(&self) -> Option<&[u8]> {
        let (scheme, token) = self.header("authorization")?.split_at_checked(7)?;
        let is_bearer = scheme.eq_ignore_ascii_case(b"Bearer ");
        is_bearer.then(|| token.trim_ascii())
    }

    /// Whether it may be sent again when it is unknown whether it has been acted on (RFC 9110, 9.2.2).
    pub fn is_idempotent(&self) -> bool {
        matches!(
            self.head.method,
            Method::Get | Method::Head | Method::Options | Method::Put | Method::Delete
        )
    }

    /// Whether the request has a body, even one of length 0.
    pub fn has_body(&self) -> bool {
        self.head.framing != Framing::None
    }

    /// The request target.
    pub fn target(&self) -> &[u8] {
        self.head.target_span.of(&self.bytes)
    }

    /// The request target as sent, for the log.
    pub fn sent_target(&self) -> &[u8] {
        let changed = self.sent.as_ref().map(|sent| sent.target);
        changed.unwrap_or(self.head.target_span).of(&self.bytes)
    }

    /// The decoded path and the query as they were sent, whatever the target is now.
    pub fn sent_path_and_query(&self) -> (&[u8], Option<&[u8]>) {
        let (path, query) = match &self.sent {
            Some(sent) => (&sent.path, sent.query),
            None => (&self.path, self.head.query),
        };
        (path, query.map(|query| query.of(&self.bytes)))
    }

    /// The path as sent, without the query, whatever the target is now.
    pub fn sent_raw_path(&self) -> &[u8] {
        let sent = self.sent.as_ref().map(|sent| sent.raw_path);
        sent.unwrap_or(self.head.path).of(&self.bytes)
    }

    /// Whether its target was changed.
    pub fn is_moved(&self) -> bool {
        self.sent.is_some()
    }

    /// Whether a rule of the configuration has changed its target.
    pub fn is_rewritten(&self) -> bool {
        self.sent.as_ref().is_some_and(|sent| sent.is_rewritten)
    }

    /// Changes the target to a path with or without a query. `by_rule` is whether a rule of the configuration names it; otherwise it
    /// is the name of what the path has led to.
    ///
    /// # Errors
    /// 400 for a target that no request may have, or whose path cannot be decoded.
    pub fn set_target(&mut self, target: &[u8], by_rule: bool) -> Result<(), Reject> {
        match by_rule {
            true => self.asked = None,
            false if self.asked.is_none() => {
                self.asked = Some(Asked {
                    target: self.head.target_span,
                    raw_path: self.head.path,
                    path: self.path.clone(),
                    has_encoded_slash: self.has_encoded_slash,
                });
            }
            false => {}
        }
        let sent = self.sent.get_or_insert_with(|| Sent {
            target: self.head.target_span,
            raw_path: self.head.path,
            path: mem::take(&mut self.path),
            query: self.head.query,
            is_rewritten: false,
        });
        sent.is_rewritten |= by_rule;
        self.head.set_target(&mut self.bytes, target)?;
        self.decode_path()
    }

    /// The target and its path that have led to the present ones, or these.
    pub fn asked_target(&self) -> (&[u8], &[u8]) {
        match &self.asked {
            Some(asked) => (asked.target.of(&self.bytes), asked.raw_path.of(&self.bytes)),
            None => (self.target(), self.raw_path()),
        }
    }

    /// As [`asked_target`](Self::asked_target), the decoded path, and whether an encoded slash is in it.
    pub fn asked_path(&self) -> (&[u8], bool) {
        match &self.asked {
            Some(asked) => (&asked.path, asked.has_encoded_slash),
            None => (&self.path, self.has_encoded_slash),
        }
    }

    /// The method as sent.
    pub fn method(&self) -> &[u8] {
        self.head.method_span.of(&self.bytes)
    }

    /// The bytes of the header section, which the spans of `self.head` refer to.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The path of the target, not decoded, without the query.
    pub fn raw_path(&self) -> &[u8] {
        self.head.path.of(&self.bytes)
    }

    /// The value of Upgrade: the protocols that the client offers (RFC 9110, 7.8).
    pub fn upgrade(&self) -> Option<&[u8]> {
        self.head.upgrade.map(|span| span.of(&self.bytes))
    }

    /// Decodes and normalises the path of the target.
    ///
    /// # Errors
    /// When the path is malformed or leads above the root.
    pub fn decode_path(&mut self) -> Result<(), Reject> {
        let path = self.head.path.of(&self.bytes);
        self.has_encoded_slash = path::decode_keeping_slashes(path, &mut self.path)?;
        self.path.insert(0, b'/');
        Ok(())
    }

    /// Whether the decoded path ends with a slash, as that of a directory.
    pub fn names_directory(&self) -> bool {
        self.path.ends_with(b"/")
    }

    /// Sets the cache key from the key of the location and the decoded path.
    pub fn set_key(&mut self, location: [u8; 8]) {
        self.key.clear();
        self.key.extend_from_slice(&location);
        self.key.extend_from_slice(&self.path);
    }

    /// Gives it an id: that of the header called `name`, if that counts and is one, or a new one.
    pub fn identify(&mut self, name: Option<&str>) {
        self.number = request_id::next();
        self.taken_id.clear();
        let given = name.and_then(|name| self.head.headers.first(&self.bytes, name));
        if let Some(RequestId::Taken(id)) = given.and_then(RequestId::taken) {
            self.taken_id.push_str(id);
        }
    }

    /// Its id.
    pub fn id(&self) -> RequestId<'_> {
        match self.taken_id.as_str() {
            "" => RequestId::Made(self.number),
            id => RequestId::Taken(id),
        }
    }

    /// The cache key of another path at the location of the request.
    pub fn key_of(&self, path: &[u8]) -> Vec<u8> {
        let location = self.key.len() - self.path.len();
        [&self.key[..location], path].concat()
    }

    /// The path that [`key_of`](Self::key_of) has made `key` of.
    pub fn path_of<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        &key[self.key.len() - self.path.len()..]
    }

    /// The query as sent, without the question mark.
    pub fn query(&self) -> Option<&[u8]> {
        self.head.query.map(|span| span.of(&self.bytes))
    }

    /// The requested host, with its port if sent; empty when the request has none.
    pub fn host(&self) -> &[u8] {
        self.head.host.map_or(b"", |span| span.of(&self.bytes))
    }

    /// The values of all headers called `name`, which is in lower case.
    pub fn headers_named<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        self.head.headers.named(&self.bytes, name)
    }

    /// Builds a request from its parts. `fields` are the headers except Host. `host` may be empty, as in HTTP/1.0.
    ///
    /// # Errors
    /// 400 for a part with bytes that are not allowed in a request.
    pub fn build<'f>(
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

    /// Parses a complete header section.
    ///
    /// # Errors
    /// When it is malformed or incomplete.
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

    /// Builds a request for another target on behalf of the same client: without a body, without hop-by-hop headers
    /// and those in `without`.
    ///
    /// # Errors
    /// 400 for a target that is not allowed in a request.
    pub fn derived(
        &self,
        method: &[u8],
        target: &[u8],
        host: &[u8],
        without: &[&[u8]],
        limits: &Limits,
    ) -> Result<Self, Reject> {
        const LEFT_OUT: [&[u8]; 3] = [b"host", b"content-length", b"expect"];
        let end_to_end = EndToEnd::of(&self.bytes, &self.head.headers);
        let fields = end_to_end.headers().map(|header| {
            let name = header.name.of(&self.bytes);
            (name, header.value.of(&self.bytes))
        });
        let is_copied = |(name, _): &(&[u8], &[u8])| {
            let mut left_out = LEFT_OUT.iter().chain(without);
            !left_out.any(|other| name.eq_ignore_ascii_case(other))
        };
        let fields = fields.filter(is_copied);
        let mut derived = Self::build(method, target, host, fields, limits)?;
        derived.is_early = self.is_early;
        derived.number = self.number;
        derived.taken_id.clone_from(&self.taken_id);
        Ok(derived)
    }
}

/// Replaces a date in `value`, that of If-Range, by a tag that never matches. Returns the new length.
fn without_date(value: &mut [u8]) -> usize {
    const WEAK_TAG: &[u8] = b"W/\"\"";
    let is_tag = value.starts_with(b"\"") || value.starts_with(b"W/");
    if is_tag || value.len() < WEAK_TAG.len() {
        return value.len();
    }
    value[..WEAK_TAG.len()].copy_from_slice(WEAK_TAG);
    WEAK_TAG.len()
}

/// When a request arrived.
pub struct Arrival {
    /// When its first byte arrived.
    pub first_byte: Instant,
    /// The time between accepting the connection and that byte; `None` for later requests of the connection.
    pub waited: Option<Duration>,
}

/// The status of a request whose client is gone, for the log, as nginx and Caddy write it.
pub const ABSENT: u16 = 499;

/// Why a request, or its body, could not be read.
#[derive(Debug)]
pub enum RequestError {
    /// The client closed the connection between requests, or was idle for too long.
    Finished,
    /// The client disconnected within a request.
    Gone,
    /// The client exceeded a time-out within a request.
    Timeout,
    /// The client has its share of what request bodies may take, and there was no more in time.
    Shortage,
    /// The client sent something malformed or too large; an error response is due.
    Refused(Reject),
}

impl From<Reject> for RequestError {
    fn from(reject: Reject) -> Self {
        Self::Refused(reject)
    }
}
