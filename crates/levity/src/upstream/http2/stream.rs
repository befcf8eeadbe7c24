//! A stream: one request on a shared connection, and its response.

use std::io;
use std::task::{Context, Poll};
use std::time::Instant;

use levity_config::upstream::ResponseLimits;
use levity_wire::http1::Trailers;

use super::super::codec::{EncodeError, Event};
use super::super::failure::Failure;
use super::super::upstream_request::UpstreamRequest;
use super::deadline;
use super::incoming::Incoming;
use super::outgoing::Outgoing;
use super::session::Place;

/// A request and its response. Dropping this before both have ended resets the stream (CANCEL), and leaves the
/// connection to the others.
pub struct Stream {
    outgoing: Outgoing,
    incoming: Incoming,
    /// Those of the header of the response.
    limits: ResponseLimits,
    /// When the time is over that the caller gives the request, if it says so.
    deadline: Option<Instant>,
    // Last: the place is released after the stream.
    place: Place,
}

impl Stream {
    /// One that is not open yet. The header of its response has these `limits`.
    pub fn new(place: Place, limits: ResponseLimits) -> Self {
        Self {
            outgoing: Outgoing::default(),
            incoming: Incoming::None,
            limits,
            deadline: None,
            place,
        }
    }

    /// See [`Connection::begin`](crate::upstream::connection::Connection::begin).
    pub fn begin(&mut self, outgoing: &UpstreamRequest<'_>) -> Result<(), EncodeError> {
        self.deadline = deadline::of(outgoing.request);
        self.outgoing.begin(outgoing)
    }

    /// How many bytes of the request body are taken now.
    pub fn room(&self) -> usize {
        self.outgoing.room()
    }

    /// Takes a piece of the request body.
    pub fn body(&mut self, piece: &[u8]) {
        self.outgoing.body(piece);
    }

    /// Takes the end of the request body.
    pub fn end_of_body(&mut self, trailers: &Trailers) {
        self.outgoing.end_of_body(trailers);
    }

    /// Whether something of the request is left to send.
    pub fn has_unsent(&self) -> bool {
        self.outgoing.has_unsent()
    }

    /// Drops it.
    pub fn drop_unsent(&mut self) {
        self.outgoing.drop_unsent();
    }

    /// Sends some of it, and returns the number of bytes of the body.
    ///
    /// # Errors
    /// When the stream has ended; why, [`poll_events`](Self::poll_events) tells.
    pub fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self.outgoing.open(self.place.connection()) {
            Ok(None) => self.outgoing.poll_send(context),
            Ok(Some(response)) => {
                self.incoming = Incoming::Head(response, self.limits, self.deadline);
                Poll::Ready(Ok(0))
            }
            Err(error) => {
                self.incoming = Incoming::Failed(error);
                Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
            }
        }
    }

    /// Passes what has arrived to `event`, about `bytes_max` of the body at most. Returns the number of bytes, at
    /// least one unless nothing of a response has arrived.
    pub fn poll_events(
        &mut self,
        context: &mut Context<'_>,
        bytes_max: usize,
        event: &mut dyn FnMut(Event<'_>),
    ) -> Poll<(usize, Result<(), Failure>)> {
        self.incoming.poll_events(context, bytes_max, event)
    }

    /// See [`Place::was_idle`].
    pub fn was_idle(&self) -> bool {
        self.place.was_idle()
    }

    /// The backend was silent for too long: the connection may be broken.
    pub fn was_silent(&self) {
        self.place.was_silent();
    }
}
