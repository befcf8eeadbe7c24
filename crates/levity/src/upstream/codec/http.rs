//! The HTTP/1.1 protocol (RFC 9112).

use std::mem;
use std::num::NonZeroUsize;
use std::time::Duration;

use levity_wire::Reject;
use levity_wire::http1::write::{self, CHUNK_END, ChunkSize};
use levity_wire::http1::{
    Chunked, EndToEnd, Framing, Limits, RequestInfo, ResponseFraming, ResponseHead, Trailers,
    keep_alive_timeout, parse_response,
};
use levity_wire::{mailbox_header, sendfile_header};

use super::head::{Head, limits, may_end};
use super::{EncodeError, Event};
use crate::upstream::upstream_request::{Length, UpstreamRequest, passes};

/// How long before the end of the time that a backend has announced its connection is no longer used: the backend has
/// measured from an earlier moment, and a request must reach it before it closes.
const CLOSE_MARGIN: Duration = Duration::from_secs(1);

/// One HTTP/1.1 connection to a backend.
#[derive(Debug)]
pub struct Http {
    request_info: RequestInfo,
    /// The request body is sent chunked.
    chunks: bool,
    /// Names of trailers that the client may not send.
    protected: Vec<String>,
    reading: Reading,
    /// Those of a header.
    limits: Limits,
    /// The start of an incomplete header.
    partial: Vec<u8>,
    /// The last header; kept for its allocation.
    head: ResponseHead,
    trailers: Trailers,
    /// Names of trailers that are dropped because Connection lists them.
    listed: Vec<Vec<u8>>,
    /// The last response has left the connection in a state in which another request may follow.
    reusable: bool,
    /// How long the connection may be idle after the last response, if the backend has said it.
    idle_max: Option<Duration>,
}

/// The state of the parser.
#[derive(Debug)]
enum Reading {
    Head,
    Length(u64),
    Chunks(Chunked),
    UntilClose,
    Done,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            request_info: RequestInfo {
                method: Default::default(),
                upgrade: false,
            },
            chunks: false,
            protected: Vec::new(),
            reading: Reading::Done,
            limits: Limits::default(),
            partial: Vec::new(),
            head: ResponseHead::default(),
            trailers: Trailers::default(),
            listed: Vec::new(),
            reusable: true,
            idle_max: None,
        }
    }
}

impl Http {
    /// See [`Codec::begin`](super::Codec::begin).
    pub fn begin(
        &mut self,
        outgoing: &UpstreamRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        head(outgoing, out).map_err(|unwritable| Reject {
            status: 400,
            reason: unwritable.0,
        })?;
        self.request_info = RequestInfo {
            method: outgoing.request.head.method,
            upgrade: outgoing.upgrade.is_some(),
        };
        self.chunks = outgoing.length == Length::Unknown;
        self.protected.clear();
        if self.chunks {
            self.protected = outgoing.protected_in_trailers();
        }
        self.reading = Reading::Head;
        self.limits = limits(outgoing.proxy.upstream.settings.limits);
        self.reusable = false;
        Ok(())
    }

    /// See [`Codec::body`](super::Codec::body).
    pub fn body(&mut self, data: &[u8], out: &mut Vec<u8>) {
        let Some(len) = NonZeroUsize::new(data.len()) else {
            return;
        };
        if self.chunks {
            out.extend_from_slice(ChunkSize::of(len).as_bytes());
        }
        out.extend_from_slice(data);
        if self.chunks {
            out.extend_from_slice(CHUNK_END);
        }
    }

    /// See [`Codec::end_of_body`](super::Codec::end_of_body).
    pub fn end_of_body(&mut self, trailers: &Trailers, out: &mut Vec<u8>) {
        if self.chunks {
            let protected = || self.protected.iter().map(String::as_str);
            let passed = trailers.fields();
            let passed = passed.filter(|(name, _)| passes(name, protected()));
            write::last_chunk(out, passed).expect("what a parser took can be written again");
        }
    }

    /// See [`Codec::decode`](super::Codec::decode).
    pub fn decode(
        &mut self,
        mut input: &[u8],
        event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), Reject> {
        while !input.is_empty() {
            let consumed = match &mut self.reading {
                Reading::Head => self.head(input, event)?,
                Reading::Length(left) => {
                    let len = input
                        .len()
                        .min(usize::try_from(*left).unwrap_or(usize::MAX));
                    event(Event::Data(&input[..len]));
                    self.skip(len as u64, event);
                    len
                }
                Reading::Chunks(chunked) => {
                    let data = |data: &[u8]| event(Event::Data(data));
                    let decoded = chunked
                        .decode_with_trailers(input, data, &mut self.trailers)
                        .map_err(Reject::by_upstream)?;
                    if decoded.done {
                        self.end(event);
                    }
                    decoded.consumed
                }
                Reading::UntilClose => {
                    event(Event::Data(input));
                    input.len()
                }
                // Bytes without a request: they would be taken for the start of the next response.
                Reading::Done => {
                    self.reusable = false;
                    input.len()
                }
            };
            input = &input[consumed..];
        }
        Ok(())
    }

    /// See [`Codec::plain_bytes`](super::Codec::plain_bytes).
    pub fn plain_bytes(&self) -> u64 {
        match self.reading {
            Reading::Length(left) => left,
            Reading::UntilClose => u64::MAX,
            Reading::Head | Reading::Chunks(_) | Reading::Done => 0,
        }
    }

    /// See [`Codec::skip`](super::Codec::skip).
    pub fn skip(&mut self, bytes: u64, event: &mut dyn FnMut(Event<'_>)) {
        if let Reading::Length(left) = &mut self.reading {
            *left -= bytes;
            if *left == 0 {
                self.end(event);
            }
        }
    }

    /// See [`Codec::closed`](super::Codec::closed).
    pub fn closed(&mut self, event: &mut dyn FnMut(Event<'_>)) -> Result<(), Reject> {
        self.reusable = false;
        match self.reading {
            Reading::UntilClose => self.end(event),
            Reading::Done => {}
            Reading::Head => {
                return Err(Reject::bad_gateway(
                    "the connection was closed before the end of the response header",
                ));
            }
            _ => {
                return Err(Reject::bad_gateway(
                    "the connection was closed within the response body",
                ));
            }
        }
        Ok(())
    }

    /// See [`Codec::is_reusable`](super::Codec::is_reusable).
    pub fn is_reusable(&self) -> bool {
        self.reusable && matches!(self.reading, Reading::Done)
    }

    /// See [`Codec::idle_max`](super::Codec::idle_max).
    pub fn idle_max(&self) -> Option<Duration> {
        self.idle_max
    }

    /// Parses the header, or stores its start; returns how much of `input` belongs to it.
    fn head(&mut self, input: &[u8], event: &mut dyn FnMut(Event<'_>)) -> Result<usize, Reject> {
        if self.partial.is_empty() {
            if parse_response(input, &mut self.head, self.request_info, &self.limits)? {
                self.headed(input, event);
                return Ok(self.head.bytes);
            }
            self.partial = input.to_vec();
            return Ok(input.len());
        }
        let mut bytes = mem::take(&mut self.partial);
        let before = bytes.len();
        bytes.extend_from_slice(input);
        if may_end(input, bytes.len(), &self.limits)
            && parse_response(&bytes, &mut self.head, self.request_info, &self.limits)?
        {
            self.headed(&bytes, event);
            return Ok(self.head.bytes - before);
        }
        self.partial = bytes;
        Ok(input.len())
    }

    /// Emits the header in `bytes`.
    fn headed(&mut self, bytes: &[u8], event: &mut dyn FnMut(Event<'_>)) {
        let parsed = &self.head;
        let mut head = Head::new(parsed.status, parsed.reason.of(bytes));
        head.fields.reserve(parsed.bytes);
        let passed = EndToEnd::of(bytes, &parsed.headers);
        self.listed = passed.listed().map(<[u8]>::to_vec).collect();
        for header in passed.headers() {
            head.field(header.name.of(bytes), header.value.of(bytes));
        }
        head.upgrade_required(parsed.upgrade.map(|protocols| protocols.of(bytes)));
        head.length = announced(parsed, bytes);
        if parsed.is_interim() {
            event(Event::Interim(head));
            return;
        }
        let announced_idle = keep_alive_timeout(bytes, &parsed.headers);
        self.idle_max = announced_idle.map(|timeout| timeout.saturating_sub(CLOSE_MARGIN));
        self.reusable = parsed.keep_alive && self.idle_max != Some(Duration::ZERO);
        self.trailers = Trailers::default();
        self.reading = match parsed.framing {
            ResponseFraming::Length(bytes @ 1..) => Reading::Length(bytes),
            ResponseFraming::Chunked => Reading::Chunks(Chunked::of_response()),
            ResponseFraming::UntilClose | ResponseFraming::Tunnel => Reading::UntilClose,
            ResponseFraming::None | ResponseFraming::Length(0) => Reading::Done,
        };
        if parsed.framing == ResponseFraming::Tunnel {
            head.upgrade = parsed.upgrade.map(|span| span.of(bytes).to_vec());
        }
        event(Event::Head(head));
        if matches!(self.reading, Reading::Done) {
            self.end(event);
        }
    }

    fn end(&mut self, event: &mut dyn FnMut(Event<'_>)) {
        self.reading = Reading::Done;
        let mut trailers = mem::take(&mut self.trailers);
        let is_listed = |name: &[u8]| self.listed.iter().any(|one| one.eq_ignore_ascii_case(name));
        let is_reserved =
            |name: &[u8]| sendfile_header::is_reserved(name) || mailbox_header::is_reserved(name);
        trailers.retain(|name| !is_listed(name) && !is_reserved(name));
        event(Event::End(trailers));
    }
}

/// The value of Content-Length, also where no body follows: the length that GET would return (RFC 9110, 8.6).
fn announced(head: &ResponseHead, bytes: &[u8]) -> Option<u64> {
    match head.framing {
        ResponseFraming::Length(bytes) => Some(bytes),
        ResponseFraming::None => {
            let value = head.headers.first(bytes, "content-length")?;
            str::from_utf8(value).ok()?.parse().ok()
        }
        _ => None,
    }
}

fn head(outgoing: &UpstreamRequest<'_>, out: &mut Vec<u8>) -> Result<(), write::Unwritable> {
    write::request_line(out, outgoing.request.method(), &outgoing.target())?;
    write::field(out, b"Host", outgoing.host())?;
    for (name, value) in outgoing.fields() {
        write::field(out, name, value)?;
    }
    match outgoing.length {
        // Some applications require an explicit length of zero (RFC 9110, 8.6).
        Length::None if outgoing.request.head.framing != Framing::None => {
            write::field(out, b"Content-Length", b"0")?;
        }
        Length::None => {}
        Length::Known(bytes) => write::field(out, b"Content-Length", bytes.to_string().as_bytes())?,
        Length::Unknown => write::field(out, b"Transfer-Encoding", b"chunked")?,
    }
    if outgoing.expects_continue {
        write::field(out, b"Expect", b"100-continue")?;
    }
    match (
        outgoing.upgrade,
        outgoing.accepts_trailers,
        outgoing.keep_alive,
    ) {
        (Some(protocols), ..) => {
            write::field(out, b"Connection", b"Upgrade")?;
            write::field(out, b"Upgrade", protocols)?;
        }
        (None, true, true) => {
            write::field(out, b"Connection", b"TE")?;
            write::field(out, b"TE", b"trailers")?;
        }
        (None, _, false) => write::field(out, b"Connection", b"close")?,
        (None, false, true) => {}
    }
    write::end_of_head(out);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parsing again after every byte would take quadratic time.
    #[test]
    fn a_partial_header_is_parsed_only_after_a_newline() {
        let mut http = Http {
            reading: Reading::Head,
            ..Http::default()
        };
        let mut decode = |bytes: &[u8]| http.decode(bytes, &mut |event| panic!("{event:?}"));
        decode(b"HTTP/1.1 200 OK\r\nA: ").expect("a beginning");
        let too_long = [b'x'; 2];
        for _ in 0..Limits::default().header_bytes_max * 3 / 4 {
            decode(&too_long).expect("not parsed yet");
        }
        assert!(decode(b"\n").is_err());
        let mut http = Http {
            reading: Reading::Head,
            ..Http::default()
        };
        http.decode(b"HTTP/1.1 200 OK\r\nA: ", &mut |_| {})
            .expect("a beginning");
        let mut endless = std::iter::repeat_n(b"xx", Limits::default().head_bytes_max);
        assert!(endless.any(|bytes| http.decode(bytes, &mut |_| {}).is_err()));
    }
}
