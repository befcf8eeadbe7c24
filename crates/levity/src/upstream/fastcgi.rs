//! Protocol: FastCGI, spoken to a responder.

use levity_wire::Reject;
use levity_wire::cgi::Environment;
use levity_wire::fastcgi::{self, ProtocolStatus, STDIN_END, stdin, write_head};

use super::ask::Ask;
use super::cgi;
use super::codec::{Event, Unsayable};

/// One FastCGI connection to an application, which carries one request at a time.
#[derive(Debug)]
pub struct Fastcgi {
    /// Kept for its allocations.
    environment: Environment,
    records: fastcgi::Answer,
    answer: cgi::Answer,
    /// The record that ends an answer has come.
    ended: bool,
    /// Something came behind it, which would be taken for the next answer.
    stray: bool,
}

impl Default for Fastcgi {
    fn default() -> Self {
        Self {
            environment: Environment::default(),
            records: fastcgi::Answer::new(false),
            answer: cgi::Answer::default(),
            ended: true,
            stray: false,
        }
    }
}

impl Fastcgi {
    /// See [`Codec::begin`](super::codec::Codec::begin).
    pub fn begin(&mut self, ask: &Ask<'_>, out: &mut Vec<u8>) -> Result<(), Unsayable> {
        let body_bytes = cgi::body_bytes(ask)?;
        cgi::fill(&mut self.environment, ask, body_bytes)?;
        write_head(&self.environment, ask.keep_alive, out);
        self.records = fastcgi::Answer::new(ask.keep_alive);
        self.answer.begin(ask.request.head.method);
        self.ended = false;
        Ok(())
    }

    /// See [`Codec::body`](super::codec::Codec::body).
    pub fn body(&mut self, data: &[u8], out: &mut Vec<u8>) {
        for record in stdin(data) {
            out.extend_from_slice(&record.header);
            out.extend_from_slice(record.content);
            out.extend_from_slice(record.padding);
        }
    }

    /// See [`Codec::end_of_body`](super::codec::Codec::end_of_body).
    pub fn end_of_body(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&STDIN_END);
    }

    /// See [`Codec::decode`](super::codec::Codec::decode).
    pub fn decode(&mut self, input: &[u8], event: &mut dyn FnMut(Event<'_>)) -> Result<(), Reject> {
        if self.ended {
            self.stray = true;
            return Ok(());
        }
        let answer = &mut self.answer;
        let mut outcome = Ok(());
        let decoded = self.records.decode(input, |record| match record {
            fastcgi::Event::Stderr(text) => event(Event::Stderr(text)),
            _ if outcome.is_err() => {}
            fastcgi::Event::Stdout(data) => outcome = answer.read(data, event),
            fastcgi::Event::End {
                protocol_status, ..
            } => outcome = end(answer, protocol_status, event),
        })?;
        self.ended = decoded.done;
        outcome
    }

    /// See [`Codec::closed`](super::codec::Codec::closed). Some applications leave the last record out
    /// when they close; then a Content-Length tells whether all is there.
    pub fn closed(&mut self, event: &mut dyn FnMut(Event<'_>)) -> Result<(), Reject> {
        self.stray = true;
        if self.ended || self.answer.is_fulfilled() {
            return self.answer.end(event);
        }
        Err(Reject {
            status: 502,
            reason: "the connection was closed before the end of the answer",
        })
    }

    /// See [`Codec::is_reusable`](super::codec::Codec::is_reusable).
    pub fn is_reusable(&self) -> bool {
        self.ended && !self.stray && self.records.is_reusable()
    }
}

/// The last record has come.
fn end(
    answer: &mut cgi::Answer,
    status: ProtocolStatus,
    event: &mut dyn FnMut(Event<'_>),
) -> Result<(), Reject> {
    let reason = match status {
        ProtocolStatus::Complete => return answer.end(event),
        ProtocolStatus::CannotMultiplex => "the application takes no request on this connection",
        ProtocolStatus::Overloaded => "the application is overloaded",
        ProtocolStatus::UnknownRole => "the application is no responder",
    };
    if answer.is_untouched() {
        event(Event::Declined(reason));
        return Ok(());
    }
    Err(Reject {
        status: 502,
        reason,
    })
}
