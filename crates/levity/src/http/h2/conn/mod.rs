//! A connection of a client over HTTP/2.

mod excess;
mod output;
mod shutdown;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use levity_net::{Peer, Timer, Transport, WakerCell};
use levity_telemetry::stall;
use levity_wire::http2::{
    self, CONNECTION_WINDOW_BYTES, Event, Failure, StreamId, USUAL_WINDOW_BYTES,
};

use self::excess::Excess;
pub(super) use self::output::PIECE_BYTES_MAX;
pub(super) use self::shutdown::LINGER_TIME_MAX;
use super::credit::{GROWTH_BYTES_MAX, WINDOW_BYTES};
use super::turns::Turns;
use crate::files::missing_lookups::FailedLookups;
use crate::http::arriving::Arriving;
use crate::loop_core::LoopCore;
use crate::message::request::Arrival;

/// The maximum number of bytes by which a window may be larger than usual because of bodies with a usual window.
const CREDIT_BYTES_MAX: usize = (CONNECTION_WINDOW_BYTES - USUAL_WINDOW_BYTES) as usize;

/// A connection. Its methods borrow the cells, and return no borrow.
pub struct Conn {
    arriving: Arriving,
    transport: RefCell<Transport>,
    wire: RefCell<http2::Connection>,
    turns: RefCell<Turns>,
    failed_lookups: Cell<FailedLookups>,
    /// The task of the connection, which writes what the streams have to send.
    task: WakerCell,
    /// It is being polled.
    is_polled: Cell<bool>,
    /// The bytes by which the window is larger than usual because of bodies with a usual window.
    credit: Cell<usize>,
    /// The bytes by which the windows of bodies have grown beyond.
    growth: Cell<usize>,
    /// What is unread beyond the window.
    excess: RefCell<Excess>,
    /// The bytes that were moved in this poll.
    moved: Cell<usize>,
    /// The bytes that were written in all.
    written: Cell<u64>,
    /// The output has had bytes of bodies since it was last empty.
    has_bodies: Cell<bool>,
    /// The bytes that were written while it had.
    written_with_bodies: Cell<u64>,
    /// Bytes that were received and not parsed.
    unread: RefCell<Vec<u8>>,
    /// When the last response ended; before that, when the connection was accepted.
    quiet_since: Cell<Instant>,
    /// When the codec was last told the time.
    told_time: Cell<Instant>,
    has_had_request: Cell<bool>,
    /// Requests have come since it was idle.
    is_in_use: Cell<bool>,
    /// When the client was told that the connection ends.
    shutdown_since: Cell<Option<Instant>>,
}

impl Conn {
    /// A connection over `transport` on which `first` was received.
    pub fn new(arriving: Arriving, transport: Transport, first: Vec<u8>) -> Rc<Self> {
        arriving.timer.set_socket(transport.tcp_socket());
        let limits = &arriving.core.config().wire_limits;
        let mut nonce = [0; 16];
        // Without random bytes the keys of WebSockets can be guessed. They only protect caches that do not know the protocol.
        let _ = getrandom::fill(&mut nonce);
        Rc::new(Self {
            transport: RefCell::new(transport),
            wire: RefCell::new(http2::Connection::new(
                limits.head_bytes_max,
                u128::from_ne_bytes(nonce),
            )),
            turns: RefCell::default(),
            failed_lookups: Cell::default(),
            task: WakerCell::default(),
            is_polled: Cell::new(false),
            credit: Cell::new(0),
            growth: Cell::new(0),
            excess: RefCell::default(),
            moved: Cell::new(0),
            written: Cell::new(0),
            has_bodies: Cell::new(false),
            written_with_bodies: Cell::new(0),
            unread: RefCell::new(first),
            quiet_since: Cell::new(arriving.accepted),
            told_time: Cell::new(arriving.accepted),
            has_had_request: Cell::new(false),
            is_in_use: Cell::new(false),
            shutdown_since: Cell::new(None),
            arriving,
        })
    }

    /// The core of the loop that serves the connection.
    pub fn core(&self) -> &Rc<LoopCore> {
        &self.arriving.core
    }

    /// A number that no other one of the process has.
    pub fn number(&self) -> u64 {
        self.arriving.registration.number_in_process()
    }

    /// The other end of the connection.
    pub fn peer(&self) -> &Peer {
        &self.arriving.peer
    }

    /// The bytes of bodies that nobody has read.
    pub(super) fn unread(&self) -> usize {
        self.wire.borrow().unread() as usize
    }

    /// Whether the client may send bytes of bodies.
    pub(super) fn may_receive(&self) -> bool {
        self.wire.borrow().may_receive()
    }

    /// The bytes of credit that streams may still take.
    pub(super) fn credit_left(&self) -> usize {
        CREDIT_BYTES_MAX - self.credit.get()
    }

    /// The bytes by which the windows of bodies may still grow beyond the usual one. Apart from the above, so that a large window
    /// leaves others theirs.
    pub(super) fn growth_left(&self) -> usize {
        GROWTH_BYTES_MAX - self.growth.get()
    }

    /// The credit of `stream`, which was `before`, is now `after`.
    pub(super) fn change_credit(&self, stream: StreamId, before: usize, after: usize) {
        let usual = |amount: usize| amount.min(WINDOW_BYTES);
        let growth = |amount: usize| amount.saturating_sub(WINDOW_BYTES);
        let credit = self.credit.get() - usual(before) + usual(after);
        self.credit.set(credit);
        let grown = self.growth.get() - growth(before) + growth(after);
        self.growth.set(grown);
        let window = USUAL_WINDOW_BYTES + (credit + grown) as u32;
        self.with_wire(|wire| {
            wire.set_receive_window(window);
            wire.set_stream_window(stream, after.max(WINDOW_BYTES) as u32);
        });
        self.follow_excess();
    }

    /// Somebody has taken `bytes` of the body of `stream`.
    pub(super) fn consumed(&self, stream: StreamId, bytes: usize) {
        self.with_wire(|wire| wire.consumed(stream, bytes));
        self.follow_excess();
    }

    /// Why the handshake has failed, if it was still in progress when the first request was read.
    pub fn handshake_error(&self) -> Option<String> {
        self.transport.borrow_mut().handshake_error()
    }

    /// Registers a request that has arrived. Returns the time of its first byte, and for the first request how long the client took.
    pub(super) fn arrival(&self) -> Arrival {
        if !self.is_in_use.replace(true) {
            self.timer().clear();
        }
        let first_byte = stall::poll_start().max(self.quiet_since.get());
        let is_new = !self.has_had_request.replace(true);
        Arrival {
            first_byte,
            waited: is_new.then(|| first_byte - self.quiet_since.get()),
        }
    }

    /// The poll of the connection's task begins. Until it ends, the task need not be woken for output.
    pub fn begin_poll(&self, context: &Context<'_>) {
        let told = self.told_time.get();
        let passed = stall::poll_start().saturating_duration_since(told);
        let milliseconds = passed.as_millis() as u64;
        if milliseconds > 0 {
            self.told_time
                .set(told + Duration::from_millis(milliseconds));
            self.wire.borrow_mut().time_passed(milliseconds);
        }
        self.is_polled.set(true);
        self.moved.set(0);
        self.task.set(context);
    }

    /// The poll ends. Output that streams append from now on wakes the task.
    pub fn end_poll(&self) {
        self.is_polled.set(false);
    }

    /// Reads from the client.
    ///
    /// # Errors
    /// Those of the transport.
    pub fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let unread = self.unread.take();
        if !unread.is_empty() {
            let (now, later) = unread.split_at(unread.len().min(buffer.len()));
            buffer[..now.len()].copy_from_slice(now);
            self.put_back(later);
            return Poll::Ready(Ok(now.len()));
        }
        let read = self.transport.borrow_mut().poll_read(context, buffer);
        if let Poll::Ready(Ok(bytes)) = read {
            self.moved.set(self.moved.get() + bytes);
        }
        read
    }

    /// Keeps bytes for the next read.
    pub fn put_back(&self, bytes: &[u8]) {
        *self.unread.borrow_mut() = bytes.to_vec();
    }

    /// The next event in `input`.
    ///
    /// # Errors
    /// When the connection has to end.
    pub fn next<'i>(&self, input: &mut &'i [u8]) -> Result<Option<Event<'i>>, Failure> {
        self.wire.borrow_mut().next(input)
    }

    /// Calls `parse` with the header section that has just arrived.
    pub fn with_head<T>(&self, parse: impl FnOnce(&[u8]) -> T) -> T {
        parse(self.wire.borrow().head())
    }

    /// Whether the handshake is not complete: what was received is early data then, and may be a replay (RFC 8446, 8).
    pub(super) fn is_early(&self) -> bool {
        self.transport.borrow().is_early()
    }

    /// The exchange on `stream` has ended at `now`, and nobody has read the last `unread` bytes of its body.
    pub(super) fn stream_ended(&self, stream: StreamId, unread: usize, now: Instant) {
        self.turns.borrow_mut().remove(stream);
        self.quiet_since.set(now);
        if unread > 0 {
            // They count for the window of the connection.
            self.consumed(stream, unread);
        }
        self.with_wire(|wire| wire.release(stream));
        self.wake_next();
        if self.core().is_draining() {
            self.begin_shutdown(now);
        }
    }

    /// The time-out of the first request, while idle, and of the end.
    pub fn timer(&self) -> &Timer {
        &self.arriving.timer
    }

    pub(super) fn failed_lookups(&self) -> &Cell<FailedLookups> {
        &self.failed_lookups
    }

    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        self.transport.borrow().local_address()
    }

    /// Refuses the request on `stream`. The client may repeat it.
    ///
    /// # Errors
    /// When the connection has to end, because the client has been refused too often.
    pub fn refuse(&self, stream: StreamId) -> Result<(), Failure> {
        self.with_wire(|wire| wire.refuse(stream))
    }
}
