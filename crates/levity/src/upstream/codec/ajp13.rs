//! The AJP13 protocol, for servlet containers.

use std::time::Duration;

use levity_wire::Reject;
use levity_wire::ajp13::{self, Message, PING, Reader, SendHeaders, Upload, write_head};
use levity_wire::http1::{Method, Trailers, is_hop_by_hop};

use super::cgi;
use super::head::Head;
use super::length_check::LengthCheck;
use super::{EncodeError, Event};
use crate::upstream::upstream_request::{Length, UpstreamRequest};

/// After this idle time a connection is checked with a ping: a container whose threads hang keeps its
/// connections open. Busy connections are spared the round trip.
pub const QUIET_MAX: Duration = Duration::from_secs(5);

/// One AJP13 connection to a container, which carries one request at a time.
#[derive(Debug)]
pub struct Ajp13 {
    /// The request's method.
    method: Method,
    upload: Upload,
    reader: Reader,
    /// The start of an incomplete packet.
    partial: Vec<u8>,
    /// The rest of the response body; `None` before the header.
    length_check: Option<LengthCheck>,
    /// The end of the response has been passed on.
    ended: bool,
    reusable: bool,
}

impl Default for Ajp13 {
    fn default() -> Self {
        Self {
            method: Method::default(),
            upload: Upload::new(None),
            reader: Reader::response(),
            partial: Vec::new(),
            length_check: None,
            ended: true,
            reusable: true,
        }
    }
}

impl Ajp13 {
    /// See [`Codec::begin`](super::Codec::begin).
    pub fn begin(
        &mut self,
        outgoing: &UpstreamRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let length = match outgoing.length {
            Length::Known(bytes) => Some(bytes),
            Length::None | Length::Unknown => None,
        };
        head(outgoing, length, out)?;
        let partial = std::mem::take(&mut self.partial);
        *self = Self {
            method: outgoing.request.head.method,
            upload: Upload::new(length),
            ended: false,
            reusable: false,
            partial,
            ..Self::default()
        };
        self.partial.clear();
        Ok(())
    }

    /// See [`Codec::room`](super::Codec::room).
    pub fn room(&self) -> usize {
        self.upload.credit()
    }

    /// See [`Codec::body`](super::Codec::body).
    pub fn body(&mut self, data: &[u8], out: &mut Vec<u8>) {
        let written = self.upload.write(data, out);
        debug_assert_eq!(written, data.len(), "no more than there is room for");
    }

    /// See [`Codec::settle`](super::Codec::settle).
    pub fn settle(&mut self, out: &mut Vec<u8>) {
        self.upload.write_end(out);
    }

    /// See [`Codec::decode`](super::Codec::decode).
    pub fn decode(&mut self, input: &[u8], event: &mut dyn FnMut(Event<'_>)) -> Result<(), Reject> {
        if self.partial.is_empty() {
            let consumed = self.packets(input, event)?;
            self.partial.extend_from_slice(&input[consumed..]);
            return Ok(());
        }
        let mut bytes = std::mem::take(&mut self.partial);
        bytes.extend_from_slice(input);
        let consumed = self.packets(&bytes, event)?;
        bytes.drain(..consumed);
        self.partial = bytes;
        Ok(())
    }

    /// Reads complete messages; returns their total size.
    fn packets(&mut self, input: &[u8], event: &mut dyn FnMut(Event<'_>)) -> Result<usize, Reject> {
        let mut at = 0;
        loop {
            let decoded = self.reader.decode(&input[at..])?;
            at += decoded.consumed;
            match decoded.message {
                None => return Ok(at),
                Some(message) => self.message(message, event)?,
            }
        }
    }

    fn message(
        &mut self,
        message: Message<'_>,
        event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), Reject> {
        match message {
            Message::SendHeaders(headers) => {
                let head = response_head(&headers);
                self.length_check = Some(LengthCheck::of(&head, self.method));
                event(Event::Head(head));
            }
            Message::SendBodyChunk(data) => self.data(data, event),
            Message::GetBodyChunk { requested } => self.upload.grant(requested)?,
            Message::EndResponse { reuse } => {
                if !self.length_check.is_some_and(|length| length.may_end()) && !self.ended {
                    return Err(Reject::bad_gateway(
                        "the response body is shorter than its Content-Length",
                    ));
                }
                self.reusable = reuse && self.upload.credit() == 0;
                self.finish(event);
            }
            Message::CPong => {}
        }
        Ok(())
    }

    /// Drops what exceeds Content-Length.
    fn data(&mut self, data: &[u8], event: &mut dyn FnMut(Event<'_>)) {
        let Some(length_check) = self.length_check.as_mut().filter(|_| !self.ended) else {
            return;
        };
        let taken = length_check.take(data);
        if !taken.is_empty() {
            event(Event::Data(taken));
        }
        if taken.len() < data.len() {
            self.finish(event);
        }
    }

    fn finish(&mut self, event: &mut dyn FnMut(Event<'_>)) {
        if !std::mem::replace(&mut self.ended, true) {
            event(Event::End(Trailers::default()));
        }
    }

    /// See [`Codec::closed`](super::Codec::closed).
    pub fn closed(&mut self) -> Result<(), Reject> {
        self.reusable = false;
        match self.ended {
            true => Ok(()),
            false => Err(Reject::bad_gateway(
                "the connection was closed before the end of the response",
            )),
        }
    }

    /// See [`Codec::is_reusable`](super::Codec::is_reusable).
    pub fn is_reusable(&self) -> bool {
        self.ended && self.reusable && self.partial.is_empty()
    }

    /// The request of a ping.
    pub fn ping(&mut self) -> &'static [u8] {
        self.reader = Reader::pong();
        self.partial.clear();
        &PING
    }

    /// Reads the response to a [ping](Self::ping); true when it is complete.
    ///
    /// # Errors
    /// 502 for anything else.
    pub fn pong(&mut self, input: &[u8]) -> Result<bool, Reject> {
        self.partial.extend_from_slice(input);
        let decoded = self.reader.decode(&self.partial)?;
        let is_complete = decoded.message.is_some();
        if is_complete && decoded.consumed < self.partial.len() {
            return Err(Reject::bad_gateway("bytes after the response to a ping"));
        }
        self.partial.drain(..decoded.consumed);
        Ok(is_complete)
    }
}

fn head(
    outgoing: &UpstreamRequest<'_>,
    length: Option<u64>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let (server_name, port) = cgi::server(outgoing.host());
    let secure = outgoing.client.scheme == "https";
    let address = outgoing.client.ip.map(|ip| ip.to_canonical().to_string());
    let length = length.map(|bytes| bytes.to_string());
    let mut fields = vec![(&b"host"[..], outgoing.host())];
    fields.extend(outgoing.fields());
    match (&length, outgoing.length) {
        (Some(length), _) => fields.push((b"content-length", length.as_bytes())),
        // Not needed for the framing, but it tells the application that there is a body.
        (None, Length::Unknown) => fields.push((b"transfer-encoding", b"chunked")),
        (None, _) => {}
    }
    let head = ajp13::Head {
        method: outgoing.request.method(),
        version: outgoing.request.head.version,
        path: &outgoing.path,
        query: outgoing.query.as_deref(),
        remote_address: address.as_deref().unwrap_or_default().as_bytes(),
        remote_port: outgoing.client.port,
        server_name,
        server_port: port.unwrap_or(if secure { 443 } else { 80 }),
        secure,
        secret: outgoing
            .proxy
            .upstream
            .settings
            .secret
            .as_ref()
            .map(|secret| secret.0.as_slice()),
    };
    write_head(&head, fields, out)
}

fn response_head(headers: &SendHeaders<'_>) -> Head {
    let mut head = Head::new(headers.status, headers.message);
    let status = headers.status.to_string();
    if headers.message == status.as_bytes() {
        // Tomcat repeats the status where it has no message.
        head.reason.clear();
    }
    for (name, value) in headers.headers() {
        if !is_hop_by_hop(name) {
            head.field(name, value);
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            head.upgrade_required(Some(value));
        }
    }
    head.length = headers.content_length;
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::codec::transcript::{Transcript, transcript};

    fn packet(payload: &[u8]) -> Vec<u8> {
        let len = (payload.len() as u16).to_be_bytes();
        [&[b'A', b'B', len[0], len[1]], payload].concat()
    }

    fn chunk(data: &[u8]) -> Vec<u8> {
        let len = (data.len() as u16).to_be_bytes();
        packet(&[&[3, len[0], len[1]], data, &[0]].concat())
    }

    /// 404 with the message "404" and a Content-Length of one digit.
    fn head(length: u8) -> Vec<u8> {
        let head = b"\x04\x01\x94\0\x03404\0\0\x01\xa0\x03\0\x01";
        packet(&[&head[..], &[length, 0]].concat())
    }

    const END: [u8; 6] = [b'A', b'B', 0, 2, 5, 1];
    const GET_BODY_CHUNK: [u8; 7] = [b'A', b'B', 0, 3, 6, 0, 9];

    fn begun() -> Ajp13 {
        Ajp13 {
            ended: false,
            reusable: false,
            ..Ajp13::default()
        }
    }

    #[track_caller]
    fn transcript_of(packets: &[&[u8]]) -> (Transcript, Result<(), Reject>, Ajp13) {
        transcript(&packets.concat(), begun, Ajp13::decode)
    }

    #[test]
    fn a_response_may_be_split_at_any_byte() {
        let (head, half, other) = (head(b'8'), chunk(b"half"), chunk(b"half"));
        let (transcript, outcome, codec) =
            transcript_of(&[&head, &half, &chunk(b""), &other, &END]);
        let expected = Transcript {
            status: Some(404),
            data: "halfhalf".to_owned(),
            ends: 1,
            ..Transcript::default()
        };
        assert_eq!((transcript, outcome), (expected, Ok(())));
        assert!(codec.is_reusable());
    }

    #[test]
    fn content_length_is_enforced() {
        let (long, outcome, codec) =
            transcript_of(&[&head(b'3'), &chunk(b"four"), &chunk(b"x"), &END]);
        assert_eq!((&*long.data, long.ends, outcome), ("fou", 1, Ok(())));
        assert!(codec.is_reusable());
        let (short, outcome, _) = transcript_of(&[&head(b'5'), &chunk(b"four"), &END]);
        assert_eq!((short.ends, outcome.map_err(|it| it.status)), (0, Err(502)));
        let (_, _, mut codec) = transcript_of(&[&head(b'4'), &chunk(b"four")]);
        assert!(codec.closed().is_err());
    }

    #[test]
    fn a_request_for_more_body_gets_one_empty_packet() {
        let (_, outcome, mut codec) = transcript_of(&[&GET_BODY_CHUNK]);
        assert!(outcome.is_ok());
        assert_eq!(codec.room(), 9);
        let mut out = Vec::new();
        codec.settle(&mut out);
        assert_eq!(out, [0x12, 0x34, 0, 0]);
        assert_eq!(codec.room(), 0);
        codec.settle(&mut out);
        assert_eq!(out.len(), 4);
        let (_, _, codec) = transcript_of(&[&head(b'0'), &GET_BODY_CHUNK, &END]);
        assert!(!codec.is_reusable());
    }

    #[test]
    fn only_a_pong_answers_a_ping() {
        let pong = [b'A', b'B', 0, 1, 9];
        let mut codec = Ajp13::default();
        assert_eq!(codec.ping(), PING);
        for &byte in &pong[..4] {
            assert_eq!(codec.pong(&[byte]), Ok(false));
        }
        assert_eq!(codec.pong(&pong[4..]), Ok(true));
        for bytes in [&END[..], &[&pong[..], b"A"].concat(), b"HTTP"] {
            codec.ping();
            assert!(codec.pong(bytes).is_err());
        }
    }
}
