//! A stream: the client's end of one exchange.

mod linger;
mod request;
mod response;

use std::cell::{Cell, RefCell};
use std::num::NonZeroU64;
use std::rc::Rc;

use levity_net::{Timer, Turn, WakerCell};
use levity_telemetry::stall;
use levity_wire::http1::{Framing, Trailers};
use levity_wire::http2::{ErrorCode, StreamId};

use super::conn::Conn;
use super::credit::{Arrival, Credit};
use super::incoming::Incoming;
use crate::http::arriving::Registration;

/// One stream of a connection.
pub struct Stream {
    conn: Rc<Conn>,
    id: StreamId,
    timer: Rc<Timer>,
    registration: Registration,
    turn: Turn,
    /// The request body; `None` if the request has none, as most.
    incoming: RefCell<Option<Box<Incoming>>>,
    expects_continue: Cell<bool>,
    /// The client has reset the stream, or the connection has ended.
    is_gone: Cell<bool>,
    /// The last frame of the body has ended the stream.
    has_sent_end: Cell<bool>,
    /// The rest of Content-Length in bytes, if the header has it: the last frame of the body then ends the stream.
    announced: Cell<Option<NonZeroU64>>,
    /// What the connection had written, with bodies, when the time-out was last set.
    seen_written: Cell<u64>,
    /// The task that waits for the request body, or for the client to leave.
    reader: WakerCell,
}

// Many streams may rest: with a byte more, the allocator would give each of them 128.
const _: () = assert!(size_of::<Stream>() + 2 * size_of::<usize>() <= 112);

impl Stream {
    /// The stream `id` of `conn`, with this request body if there is one.
    pub(super) fn new(
        conn: Rc<Conn>,
        id: StreamId,
        incoming: Option<Box<Incoming>>,
        expects_continue: bool,
    ) -> Self {
        let timer = Rc::new(Timer::default());
        Self {
            registration: Registration::new(conn.core().clone(), timer.clone()),
            timer,
            conn,
            id,
            turn: Turn::default(),
            incoming: RefCell::new(incoming),
            expects_continue: Cell::new(expects_continue),
            is_gone: Cell::new(false),
            has_sent_end: Cell::new(false),
            announced: Cell::new(None),
            seen_written: Cell::new(0),
            reader: WakerCell::default(),
        }
    }

    /// Drops what belongs to an exchange that has ended. The body may be large.
    pub(super) fn retire(&mut self) {
        self.timer.clear();
        self.incoming = RefCell::default();
        self.reader = WakerCell::default();
    }

    /// Reuses a retired stream as the stream `id`.
    pub(super) fn restart(
        &mut self,
        id: StreamId,
        incoming: Option<Box<Incoming>>,
        expects_continue: bool,
    ) {
        self.id = id;
        self.turn = Turn::default();
        self.incoming = RefCell::new(incoming);
        self.expects_continue = Cell::new(expects_continue);
        self.is_gone = Cell::new(false);
        self.has_sent_end = Cell::new(false);
        self.announced = Cell::new(None);
        self.seen_written = Cell::new(0);
    }

    /// The number of the stream on its connection.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Takes bytes of the body.
    pub(super) fn arrived(&self, bytes: &[u8], ends: bool) {
        self.with_credit(|body| {
            body.arrived(bytes, ends);
            self.take_credit(body, bytes.len());
        });
        if self.conn.take_excess().is_err() {
            let code = ErrorCode::EnhanceYourCalm;
            self.conn.with_wire(|wire| wire.send_reset(self.id, code));
            self.was_reset();
        }
        self.reader.wake();
    }

    /// Takes the trailers, which end the body.
    pub(super) fn ended_with(&self, trailers: Trailers) {
        self.with_credit(|body| {
            body.ended_with(trailers);
            self.take_credit(body, 0);
        });
        self.reader.wake();
    }

    /// Takes credit for `body`, of which `bytes` have just arrived.
    fn take_credit(&self, body: &mut Incoming, bytes: usize) {
        let arrival = Arrival {
            bytes,
            unread: self.conn.unread(),
            outstanding: body.outstanding(),
            unread_here: body.unread(),
            room: self.conn.credit_left(),
            growth_room: self.conn.growth_left(),
        };
        if let Some(credit) = &mut body.credit {
            credit.arrived(arrival, stall::poll_start());
        }
    }

    /// Whether the client may send bytes of bodies has changed: the wait for them begins again.
    pub(super) fn window_changed(&self) {
        let timers = &self.conn.core().timers;
        let waits_for_client = timers.client_awaited_since(self.registration.number());
        // Others wait for an application, whose time does not change.
        if waits_for_client.is_some() && self.has_open_body() {
            self.timer.clear();
        }
        self.reader.wake();
    }

    /// The client has reset the stream, or the connection has ended.
    pub(super) fn was_reset(&self) {
        self.is_gone.set(true);
        self.with_body(Incoming::reset);
        self.reader.wake();
        self.conn.wake_writer(self.id);
    }

    /// The number of bytes of the body that have arrived and that nobody has read.
    pub(super) fn unread(&self) -> usize {
        self.with_body(|body| body.unread())
    }

    /// The stream has ended: the client can send nothing more.
    pub(super) fn give_back_credit(&self) {
        self.with_credit(|body| body.credit = None);
    }

    /// Calls `action`, which may change the credit of the body.
    fn with_credit<R>(&self, action: impl FnOnce(&mut Incoming) -> R) -> R {
        let ((before, done), after) = self.with_body(|body| {
            let before = body.credit.as_ref().map_or(0, Credit::amount);
            ((before, action(body)), body.credit_bytes())
        });
        if before != after {
            self.conn.change_credit(self.id, before, after);
        }
        done
    }

    fn with_body<R>(&self, action: impl FnOnce(&mut Incoming) -> R) -> R {
        match self.incoming.borrow_mut().as_deref_mut() {
            Some(body) => action(body),
            None => action(&mut Incoming::new(Framing::None, true)),
        }
    }
}
