//! The streams of a connection that have an exchange.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use levity_wire::http1::{Framing, Reject};
use levity_wire::http2::{Event, STREAMS_MAX, StreamId};

use super::conn::Conn;
use super::incoming::Incoming;
use super::stream::Stream;
use crate::message::request::{Arrival, Request};

/// The streams with an exchange, in the order of their requests.
pub struct Streams {
    conn: Rc<Conn>,
    open: Vec<Rc<Stream>>,
    /// A retired stream that the next request reuses.
    spare: Option<Rc<Stream>>,
    /// Whether the client could send bytes of bodies when the streams were last told.
    could_receive: Cell<bool>,
}

/// A request whose exchange begins.
pub struct Begun {
    /// The client's end.
    pub stream: Rc<Stream>,
    /// The request, or its refusal.
    pub request: Result<Box<Request>, Reject>,
    /// When the request arrived.
    pub arrival: Arrival,
}

impl Streams {
    /// No streams of `conn`.
    pub fn new(conn: Rc<Conn>) -> Self {
        Self {
            conn,
            open: Vec::new(),
            spare: None,
            could_receive: Cell::new(true),
        }
    }

    /// Begins the exchange of the request that has just arrived with `event`.
    pub fn begin(&mut self, event: &Event<'_>, parsed: Result<Box<Request>, Reject>) -> Begun {
        let Event::Request {
            stream: id,
            ends,
            is_tunnel,
        } = *event
        else {
            unreachable!("only a request begins an exchange");
        };
        let request = parsed.map(|mut request| {
            let is_unknown = request.head.framing == Framing::None;
            // HTTP/1.1 has trailers only after chunks.
            if !ends && !is_tunnel && (is_unknown || request.header("trailer").is_some()) {
                request.head.framing = Framing::Chunked;
            }
            request.is_early = self.conn.is_early();
            request.is_tunnel = is_tunnel;
            request
        });
        let head = request.as_ref().ok().map(|request| &request.head);
        let framing = match head {
            Some(head) => head.framing,
            // Its body has to be dropped.
            None if !ends && !is_tunnel => Framing::Chunked,
            None => Framing::None,
        };
        let has_body = !ends || framing != Framing::None;
        let incoming = has_body.then(|| Box::new(Incoming::new(framing, ends)));
        let expects_continue = head.is_some_and(|head| head.expect_continue);
        let stream = self.stream(id, incoming, expects_continue);
        self.open.push(stream.clone());
        Begun {
            stream,
            request,
            arrival: self.conn.arrival(),
        }
    }

    /// The stream of a malformed request, which gets no exchange.
    pub fn without_exchange(&self, id: StreamId) -> Stream {
        Stream::new(self.conn.clone(), id, None, false)
    }

    fn stream(
        &mut self,
        id: StreamId,
        incoming: Option<Box<Incoming>>,
        expects_continue: bool,
    ) -> Rc<Stream> {
        match self.spare.take() {
            Some(mut spare) => {
                let only = Rc::get_mut(&mut spare).expect("nobody else has it");
                only.restart(id, incoming, expects_continue);
                spare
            }
            None => {
                let conn = self.conn.clone();
                Rc::new(Stream::new(conn, id, incoming, expects_continue))
            }
        }
    }

    /// Whether there are [`STREAMS_MAX`] exchanges. An exchange counts until it ends, even if the client has reset its stream.
    pub fn is_full(&self) -> bool {
        self.open.len() >= STREAMS_MAX
    }

    /// Passes an event to its stream.
    pub fn deliver(&self, event: &Event<'_>) {
        match event {
            Event::Request { .. } | Event::Malformed { .. } => {}
            Event::Data {
                stream,
                bytes,
                ends,
            } => match self.find(*stream) {
                Some(stream) => stream.arrived(bytes, *ends),
                None => self.conn.consumed(*stream, bytes.len()),
            },
            Event::Trailers { stream } => {
                let trailers = self.conn.with_wire(|wire| wire.take_trailers());
                if let Some(stream) = self.find(*stream) {
                    stream.ended_with(trailers);
                }
            }
            Event::Reset { stream } => {
                if let Some(stream) = self.find(*stream) {
                    stream.was_reset();
                }
            }
            Event::Window { stream } => self.conn.windows_changed(*stream),
            Event::Priority { stream } => self.conn.priority_changed(*stream),
        }
    }

    /// Ends the exchange on `stream`, at `now`.
    pub fn end(&mut self, mut stream: Rc<Stream>, now: Instant) {
        self.open.retain(|other| other.id() != stream.id());
        stream.give_back_credit();
        self.conn.stream_ended(stream.id(), stream.unread(), now);
        if let Some(only) = Rc::get_mut(&mut stream) {
            only.retire();
            self.spare = Some(stream);
        }
    }

    /// Releases the retired stream, and lets the connection rest if no exchange runs. Called once per poll, not for each exchange that
    /// ends: usually the next request has already arrived.
    pub fn rest(&mut self) {
        self.spare = None;
        if self.open.is_empty() {
            self.open = Vec::new();
            self.conn.rest();
        }
    }

    /// Tells the streams when the client may send no more bytes of bodies, or may again: it is not slow meanwhile. Returns whether that
    /// has changed.
    pub fn follow_window(&self) -> bool {
        let may_receive = self.conn.may_receive();
        let has_changed = self.could_receive.replace(may_receive) != may_receive;
        if has_changed {
            self.open.iter().for_each(|stream| stream.window_changed());
        }
        has_changed
    }

    /// The connection has ended.
    pub fn lose(&self) {
        self.open.iter().for_each(|stream| stream.was_reset());
    }

    fn find(&self, id: StreamId) -> Option<&Rc<Stream>> {
        self.open.iter().find(|stream| stream.id() == id)
    }
}
