//! Protocol: SCGI. A connection carries one request, and its end is that of the answer.

use levity_wire::Reject;
use levity_wire::cgi::Environment;
use levity_wire::scgi::write_head;

use super::ask::Ask;
use super::cgi::{self, Answer};
use super::codec::{Event, Unsayable};

/// One SCGI connection to an application.
#[derive(Debug, Default)]
pub struct Scgi {
    environment: Environment,
    answer: Answer,
}

impl Scgi {
    /// See [`Codec::begin`](super::codec::Codec::begin).
    pub fn begin(&mut self, ask: &Ask<'_>, out: &mut Vec<u8>) -> Result<(), Unsayable> {
        let body_bytes = cgi::body_bytes(ask)?;
        cgi::fill(&mut self.environment, ask, body_bytes)?;
        write_head(&self.environment, body_bytes.unwrap_or(0), out);
        self.answer.begin(ask.request.head.method);
        Ok(())
    }

    /// See [`Codec::body`](super::codec::Codec::body).
    pub fn body(&mut self, data: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(data);
    }

    /// See [`Codec::decode`](super::codec::Codec::decode).
    pub fn decode(&mut self, input: &[u8], event: &mut dyn FnMut(Event<'_>)) -> Result<(), Reject> {
        self.answer.read(input, event)?;
        if self.answer.is_fulfilled() {
            // Nothing else is to come, so nobody need wait for the application to close.
            self.answer.end(event)?;
        }
        Ok(())
    }

    /// See [`Codec::closed`](super::codec::Codec::closed).
    pub fn closed(&mut self, event: &mut dyn FnMut(Event<'_>)) -> Result<(), Reject> {
        self.answer.end(event)
    }
}
