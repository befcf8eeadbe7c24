//! The SCGI protocol. A connection carries one request, and its end ends the response.

use levity_wire::Reject;
use levity_wire::cgi::Environment;
use levity_wire::scgi::write_head;

use super::cgi::{self, Response};
use super::{EncodeError, Event};
use crate::upstream::upstream_request::UpstreamRequest;

/// One SCGI connection to an application.
#[derive(Debug, Default)]
pub struct Scgi {
    environment: Environment,
    response: Response,
}

impl Scgi {
    /// See [`Codec::begin`](super::Codec::begin).
    pub fn begin(
        &mut self,
        outgoing: &UpstreamRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let body_bytes = cgi::body_bytes(outgoing)?;
        cgi::fill(&mut self.environment, outgoing, body_bytes)?;
        write_head(&self.environment, body_bytes.unwrap_or(0), out);
        self.response.begin(outgoing);
        Ok(())
    }

    /// See [`Codec::body`](super::Codec::body).
    pub fn body(&mut self, data: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(data);
    }

    /// See [`Codec::decode`](super::Codec::decode).
    pub fn decode(&mut self, input: &[u8], event: &mut dyn FnMut(Event<'_>)) -> Result<(), Reject> {
        self.response.read(input, event)?;
        if self.response.is_fulfilled() {
            // Nothing follows, so there is no need to wait for the application to close.
            self.response.end(event)?;
        }
        Ok(())
    }

    /// See [`Codec::closed`](super::Codec::closed).
    pub fn closed(&mut self, event: &mut dyn FnMut(Event<'_>)) -> Result<(), Reject> {
        self.response.end(event)
    }
}

#[cfg(test)]
mod tests {
    use levity_wire::http1::Method;

    use super::*;
    use crate::upstream::codec::transcript::{Transcript, transcript};

    #[track_caller]
    fn transcript_of(method: Method, output: &[u8]) -> (Transcript, Result<(), Reject>, Scgi) {
        let begun = || {
            let mut scgi = Scgi::default();
            scgi.response.begin_head(method);
            scgi
        };
        transcript(output, begun, Scgi::decode)
    }

    #[test]
    fn a_response_may_be_split_at_any_byte() {
        let output = b"HTTP/1.1 404 Gone\r\nX-A: b\r\n\r\nhalf and half";
        let (mut transcript, outcome, mut codec) = transcript_of(Method::Get, output);
        assert!(outcome.is_ok() && transcript.ends == 0);
        codec
            .closed(&mut |_| transcript.ends += 1)
            .expect("complete");
        let expected = Transcript {
            status: Some(404),
            fields: "X-A: b\r\n".to_owned(),
            data: "half and half".to_owned(),
            ends: 1,
            ..Transcript::default()
        };
        assert_eq!(transcript, expected);
    }

    #[test]
    fn content_length_ends_the_response() {
        for output in [
            "Content-Length: 4\n\nbody",
            "Content-Length: 4\n\nbody and more",
        ] {
            let (transcript, outcome, mut codec) = transcript_of(Method::Get, output.as_bytes());
            assert_eq!(
                (&*transcript.data, transcript.ends, outcome),
                ("body", 1, Ok(()))
            );
            codec
                .closed(&mut |_| panic!("ended twice"))
                .expect("complete");
        }
        let (transcript, _, mut codec) = transcript_of(Method::Get, b"Content-Length: 4\n\nbod");
        assert_eq!(transcript.ends, 0);
        assert!(codec.closed(&mut |_| {}).is_err());
        // Content-Length is that of a GET.
        let (transcript, _, mut codec) = transcript_of(Method::Head, b"Content-Length: 4\n\n");
        assert_eq!(transcript.ends, 0);
        assert!(codec.closed(&mut |_| {}).is_ok());
    }
}
