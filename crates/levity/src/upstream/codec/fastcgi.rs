//! The FastCGI protocol, in the responder role.

use levity_wire::Reject;
use levity_wire::cgi::Environment;
use levity_wire::fastcgi::{self, ProtocolStatus, STDIN_END, stdin, write_head};

use super::cgi;
use super::{EncodeError, Event};
use crate::upstream::upstream_request::UpstreamRequest;

/// One FastCGI connection to an application, which carries one request at a time.
#[derive(Debug)]
pub struct Fastcgi {
    /// Kept for its allocations.
    environment: Environment,
    records: fastcgi::ResponseDecoder,
    response: cgi::Response,
    /// The record that ends a response has arrived.
    ended: bool,
    /// Bytes followed the end, which would be taken for the next response.
    stray: bool,
}

impl Default for Fastcgi {
    fn default() -> Self {
        Self {
            environment: Environment::default(),
            records: fastcgi::ResponseDecoder::new(false),
            response: cgi::Response::default(),
            ended: true,
            stray: false,
        }
    }
}

impl Fastcgi {
    /// See [`Codec::begin`](super::Codec::begin).
    pub fn begin(
        &mut self,
        outgoing: &UpstreamRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let body_bytes = cgi::body_bytes(outgoing)?;
        cgi::fill(&mut self.environment, outgoing, body_bytes)?;
        write_head(&self.environment, outgoing.keep_alive, out);
        self.records = fastcgi::ResponseDecoder::new(outgoing.keep_alive);
        self.response.begin(outgoing);
        self.ended = false;
        Ok(())
    }

    /// See [`Codec::body`](super::Codec::body).
    pub fn body(&mut self, data: &[u8], out: &mut Vec<u8>) {
        for record in stdin(data) {
            out.extend_from_slice(&record.header);
            out.extend_from_slice(record.content);
            out.extend_from_slice(record.padding);
        }
    }

    /// See [`Codec::end_of_body`](super::Codec::end_of_body).
    pub fn end_of_body(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&STDIN_END);
    }

    /// See [`Codec::decode`](super::Codec::decode).
    pub fn decode(&mut self, input: &[u8], event: &mut dyn FnMut(Event<'_>)) -> Result<(), Reject> {
        if self.ended {
            self.stray = true;
            return Ok(());
        }
        let response = &mut self.response;
        let mut outcome = Ok(());
        let decoded = self.records.decode(input, |record| match record {
            fastcgi::Event::Stderr(text) => event(Event::Stderr(text)),
            _ if outcome.is_err() => {}
            fastcgi::Event::Stdout(data) => outcome = response.read(data, event),
            fastcgi::Event::End {
                protocol_status, ..
            } => outcome = end(response, protocol_status, event),
        })?;
        self.ended = decoded.done;
        outcome
    }

    /// See [`Codec::closed`](super::Codec::closed). Some applications close without the last record; then
    /// Content-Length decides whether the response is complete.
    pub fn closed(&mut self, event: &mut dyn FnMut(Event<'_>)) -> Result<(), Reject> {
        self.stray = true;
        if self.ended || self.response.is_fulfilled() {
            return self.response.end(event);
        }
        Err(Reject::bad_gateway(
            "the connection was closed before the end of the response",
        ))
    }

    /// See [`Codec::is_reusable`](super::Codec::is_reusable).
    pub fn is_reusable(&self) -> bool {
        self.ended && !self.stray && self.records.is_reusable()
    }
}

/// Handles the last record.
fn end(
    response: &mut cgi::Response,
    status: ProtocolStatus,
    event: &mut dyn FnMut(Event<'_>),
) -> Result<(), Reject> {
    let reason = match status {
        ProtocolStatus::Complete => return response.end(event),
        ProtocolStatus::CannotMultiplex => {
            "the application does not accept another request on this connection"
        }
        ProtocolStatus::Overloaded => "the application is overloaded",
        ProtocolStatus::UnknownRole => "the application does not support the responder role",
    };
    if response.is_untouched() {
        event(Event::Declined(reason));
        return Ok(());
    }
    Err(Reject::bad_gateway(reason))
}

#[cfg(test)]
mod tests {
    use levity_wire::http1::Method;

    use super::*;
    use crate::upstream::codec::transcript::{Transcript, transcript};

    fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
        let len = (content.len() as u16).to_be_bytes();
        let header = [1, kind, 0, 1, len[0], len[1], padding, 0];
        [&header, content, &vec![0; usize::from(padding)]].concat()
    }

    fn end(status: u8) -> Vec<u8> {
        record(3, &[0, 0, 0, 0, status, 0, 0, 0], 0)
    }

    fn begun(method: Method) -> impl Fn() -> Fastcgi {
        move || {
            let mut fastcgi = Fastcgi {
                records: fastcgi::ResponseDecoder::new(true),
                ended: false,
                ..Fastcgi::default()
            };
            fastcgi.response.begin_head(method);
            fastcgi
        }
    }

    #[track_caller]
    fn transcript_of(records: &[Vec<u8>]) -> (Transcript, Result<(), Reject>, Fastcgi) {
        transcript(&records.concat(), begun(Method::Get), Fastcgi::decode)
    }

    #[test]
    fn a_response_may_be_split_at_any_byte() {
        let (transcript, outcome, codec) = transcript_of(&[
            record(7, b"oh", 1),
            record(6, b"Status: 404 Gone\r\nX-A", 5),
            record(6, b": b\r\n\r\nhalf ", 0),
            record(7, b" dear", 0),
            record(6, b"and half", 3),
            record(6, b"", 0),
            end(0),
        ]);
        let expected = Transcript {
            status: Some(404),
            fields: "X-A: b\r\n".to_owned(),
            data: "half and half".to_owned(),
            stderr: "oh dear".to_owned(),
            ends: 1,
            ..Transcript::default()
        };
        assert_eq!((transcript, outcome), (expected, Ok(())));
        assert!(codec.is_reusable());
    }

    #[test]
    fn content_length_is_enforced() {
        let output = |text: &[u8]| transcript_of(&[record(6, text, 0), end(0)]);
        let (long, outcome, codec) = output(b"Content-Length: 4\n\nbody and more");
        assert_eq!((&*long.data, long.ends, outcome), ("body", 1, Ok(())));
        assert!(codec.is_reusable());
        let (short, outcome, _) = output(b"Content-Length: 40\n\nbody");
        assert_eq!((short.ends, outcome.map_err(|it| it.status)), (0, Err(502)));
        let (none, outcome, _) = output(b"");
        assert_eq!(
            (none.status, outcome.map_err(|it| it.status)),
            (None, Err(502))
        );
    }

    #[test]
    fn a_connection_with_stray_bytes_is_not_reusable() {
        let (transcript, _, codec) = transcript_of(&[record(6, b"A: b\n\n", 0), end(0), end(0)]);
        assert_eq!(transcript.ends, 1);
        assert!(!codec.is_reusable());
    }

    #[test]
    fn a_refusal_is_not_a_response() {
        for status in [1, 2, 3] {
            let (transcript, outcome, codec) = transcript_of(&[record(7, b"busy", 0), end(status)]);
            assert!(transcript.declined.is_some() && transcript.ends == 0 && outcome.is_ok());
            assert!(!codec.is_reusable());
            let (transcript, outcome, _) = transcript_of(&[record(6, b"A: b\n\n", 0), end(status)]);
            assert!(transcript.declined.is_none() && outcome.is_err());
        }
    }

    #[test]
    fn a_closed_connection_ends_only_a_complete_response() {
        for (output, ends) in [
            (&b"Content-Length: 4\n\nbody"[..], true),
            (b"Content-Length: 4\n\nbod", false),
            (b"A: b\n\nbody", false),
            (b"A: b\n", false),
            (b"", false),
        ] {
            let (_, outcome, mut codec) = transcript_of(&[record(6, output, 0)]);
            assert!(outcome.is_ok());
            assert_eq!(codec.closed(&mut |_| {}).is_ok(), ends);
            assert!(!codec.is_reusable());
        }
    }
}
