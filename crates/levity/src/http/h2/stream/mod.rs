//! A stream: the client's end of one exchange.

mod request;
mod response;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};

use levity_net::{Timer, Turn};
use levity_wire::http1::{Framing, Trailers};
use levity_wire::http2::StreamId;

use super::conn::Conn;
use super::incoming::Incoming;
use crate::http::arriving::Registration;

/// One stream of a connection.
pub struct Stream {
    conn: Rc<Conn>,
    id: StreamId,
    timer: Rc<Timer>,
    registration: Registration,
    turn: Turn,
    incoming: RefCell<Incoming>,
    expects_continue: Cell<bool>,
    /// The client has reset the stream, or the connection has ended.
    is_gone: Cell<bool>,
    /// The rest of Content-Length in bytes, if the header has it: the last frame of the body then ends the stream.
    announced: Cell<Option<u64>>,
    /// The bytes that the connection had written when the time-out was last set.
    seen_written: Cell<u64>,
    /// The task that waits for the request body, or for the client to leave.
    reader: WakerCell,
}

/// A task to wake, at most one.
#[derive(Default)]
struct WakerCell(RefCell<Option<Waker>>);

impl WakerCell {
    fn set(&self, context: &Context<'_>) {
        let mut waker = self.0.borrow_mut();
        if !waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(context.waker()))
        {
            *waker = Some(context.waker().clone());
        }
    }

    fn wake(&self) {
        if let Some(waker) = self.0.take() {
            waker.wake();
        }
    }
}

impl Stream {
    /// The stream `id` of `conn`, with this request body.
    pub(super) fn new(
        conn: Rc<Conn>,
        id: StreamId,
        incoming: Incoming,
        expects_continue: bool,
    ) -> Self {
        let timer = Rc::new(Timer::default());
        Self {
            registration: Registration::new(conn.worker().clone(), timer.clone()),
            timer,
            conn,
            id,
            turn: Turn::default(),
            incoming: RefCell::new(incoming),
            expects_continue: Cell::new(expects_continue),
            is_gone: Cell::new(false),
            announced: Cell::new(None),
            seen_written: Cell::new(0),
            reader: WakerCell::default(),
        }
    }

    /// Drops what belongs to an exchange that has ended. The body may be large.
    pub(super) fn retire(&mut self) {
        self.timer.clear();
        self.incoming = RefCell::new(Incoming::new(Framing::None, true));
        self.reader = WakerCell::default();
    }

    /// Reuses a retired stream as the stream `id`.
    pub(super) fn restart(&mut self, id: StreamId, incoming: Incoming, expects_continue: bool) {
        self.id = id;
        self.turn = Turn::default();
        self.incoming = RefCell::new(incoming);
        self.expects_continue = Cell::new(expects_continue);
        self.is_gone = Cell::new(false);
        self.announced = Cell::new(None);
        self.seen_written = Cell::new(0);
    }

    /// The number of the stream on its connection.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Takes bytes of the body.
    pub(super) fn arrived(&self, bytes: &[u8], ends: bool) {
        self.incoming.borrow_mut().arrived(bytes, ends);
        self.reader.wake();
    }

    /// Takes the trailers, which end the body.
    pub(super) fn ended_with(&self, trailers: Trailers) {
        self.incoming.borrow_mut().ended_with(trailers);
        self.reader.wake();
    }

    /// The client has reset the stream, or the connection has ended.
    pub(super) fn was_reset(&self) {
        self.is_gone.set(true);
        self.incoming.borrow_mut().reset();
        self.reader.wake();
        self.conn.wake_writer(self.id);
    }

    /// The number of bytes of the body that have arrived and that nobody has read.
    pub(super) fn unread(&self) -> usize {
        self.incoming.borrow().unread()
    }
}
