//! What carries one request to a backend and its response: a connection of its own, or a stream of one that
//! many share.

use std::io;
use std::task::{Context, Poll};

use levity_disk::Pipe;
use levity_net::Transport;
use levity_wire::http1::Trailers;

use super::codec::{EncodeError, Event};
use super::failure::Failure;
use super::http2::stream::Stream;
use super::own_connection::OwnConnection;
use super::upstream_request::UpstreamRequest;

/// A way to a backend and back, for one request at a time.
pub enum Connection {
    /// A connection, with the state of its protocol.
    Own(OwnConnection),
    /// A stream of a connection over HTTP/2, for one request only.
    Stream(Box<Stream>),
}

impl Connection {
    /// Begins a request: encodes all that precedes its body, and sends nothing yet.
    ///
    /// # Errors
    /// When the protocol cannot express the request. No request has begun then.
    pub fn begin(&mut self, outgoing: &UpstreamRequest<'_>) -> Result<(), EncodeError> {
        match self {
            Self::Own(own) => own.begin(outgoing),
            Self::Stream(stream) => stream.begin(outgoing),
        }
    }

    /// How many bytes of the request body [`body`](Self::body) takes now.
    pub fn room(&self) -> usize {
        match self {
            Self::Own(own) => own.codec.room(),
            Self::Stream(stream) => stream.room(),
        }
    }

    /// Takes a piece of the request body, of at most [`room`](Self::room) bytes.
    pub fn body(&mut self, piece: &[u8]) {
        match self {
            Self::Own(own) => own.body(piece),
            Self::Stream(stream) => stream.body(piece),
        }
    }

    /// Takes the end of the request body.
    pub fn end_of_body(&mut self, trailers: &Trailers) {
        match self {
            Self::Own(own) => own.end_of_body(trailers),
            Self::Stream(stream) => stream.end_of_body(trailers),
        }
    }

    /// Takes what the backend may wait for after the end of the request body.
    pub fn settle(&mut self) {
        if let Self::Own(own) = self {
            own.settle();
        }
    }

    /// Whether something of the request is left to send.
    pub fn has_unsent(&self) -> bool {
        match self {
            Self::Own(own) => own.has_unsent(),
            Self::Stream(stream) => stream.has_unsent(),
        }
    }

    /// Sends some of it, and returns the number of bytes.
    pub fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            Self::Own(own) => own.poll_send(context),
            Self::Stream(stream) => stream.poll_send(context),
        }
    }

    /// Drops what is left to send, after an error.
    pub fn drop_unsent(&mut self) {
        match self {
            Self::Own(own) => own.drop_unsent(),
            Self::Stream(stream) => stream.drop_unsent(),
        }
    }

    /// Reads once, at most about as much as `scratch` has room for, and passes the events to `event`. Returns the
    /// number of bytes read. On a connection of its own that includes framing, and zero means that it has ended.
    pub fn poll_events(
        &mut self,
        context: &mut Context<'_>,
        scratch: &mut [u8],
        event: &mut dyn FnMut(Event<'_>),
    ) -> Poll<(usize, Result<(), Failure>)> {
        match self {
            Self::Own(own) => own.poll_events(context, scratch, event),
            Self::Stream(stream) => stream.poll_events(context, scratch.len(), event),
        }
    }

    /// How many of the next bytes are a piece of the body as they are, for [`poll_plain`](Self::poll_plain).
    pub fn plain_bytes(&self) -> u64 {
        match self {
            Self::Own(own) => own.codec.plain_bytes(),
            Self::Stream(_) => 0,
        }
    }

    /// Like [`poll_events`](Self::poll_events), for [plain bytes](Self::plain_bytes): reads them into the spare
    /// capacity of `data`, which is empty, instead of passing them to `event`.
    pub fn poll_plain(
        &mut self,
        context: &mut Context<'_>,
        data: &mut Vec<u8>,
        event: &mut dyn FnMut(Event<'_>),
    ) -> Poll<(usize, Result<(), Failure>)> {
        self.own().poll_plain(context, data, event)
    }

    /// Like [`poll_plain`](Self::poll_plain), into `pipe`, which is empty. Needs a [TCP socket](Self::has_tcp_socket).
    pub fn poll_fill(
        &mut self,
        context: &mut Context<'_>,
        pipe: &mut Pipe,
        event: &mut dyn FnMut(Event<'_>),
    ) -> Poll<(usize, Result<(), Failure>)> {
        self.own().poll_fill(context, pipe, event)
    }

    /// Whether the bytes of the backend come unchanged from a TCP socket.
    pub fn has_tcp_socket(&self) -> bool {
        matches!(self, Self::Own(own) if matches!(own.transport, Transport::Tcp(_)))
    }

    /// The byte stream after a change of protocol, which only a connection of its own has.
    pub fn transport(&mut self) -> &mut Transport {
        &mut self.own().transport
    }

    /// Whether it can carry another request, after the response has ended and the request has been sent in full.
    pub fn is_reusable(&self) -> bool {
        match self {
            Self::Own(own) => own.codec.is_reusable(),
            Self::Stream(_) => false,
        }
    }

    /// Whether other requests use the connection too, so that the response can be given up without harm to it.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    /// Notes that the backend was silent for too long.
    pub fn was_silent(&self) {
        if let Self::Stream(stream) = self {
            stream.was_silent();
        }
    }

    fn own(&mut self) -> &mut OwnConnection {
        match self {
            Self::Own(own) => own,
            Self::Stream(_) => unreachable!("a stream has no plain bytes"),
        }
    }
}
