//! A connection of a client over HTTP/2.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use levity_net::{Peer, TURN_BYTES_MAX, Timer, Transport};
use levity_telemetry::stall;
use levity_wire::http2::{
    self, ErrorCode, Event, Failure, HEADER_BYTES, PAYLOAD_BYTES_MAX, StreamId,
};

use super::turns::Turns;
use crate::failed_lookups::FailedLookups;
use crate::http::arriving::Arriving;
use crate::http::request::Arrival;
use crate::worker::Worker;

/// The maximum of bytes that wait for the client, but for one frame of each stream. More would let a slow client hold memory, and a
/// small response wait behind large ones.
const OUT_BYTES_MAX: usize = 64 * 1024;

/// The same with what is due in return for frames: nothing more is read then.
const ANSWERS_BYTES_MAX: usize = 4 * OUT_BYTES_MAX;

/// The maximum of bytes that a stream sends at a time.
pub(super) const PIECE_BYTES_MAX: usize = 64 * 1024;

/// The frames of such a piece.
const FRAMES_MAX: usize = PIECE_BYTES_MAX.div_ceil(PAYLOAD_BYTES_MAX);

/// From this size on, in bytes, a piece is written where it is.
const DIRECT_BYTES_MIN: usize = 16 * 1024;

/// How long a client may take to read that the connection ends.
const SHUTDOWN_TIME: Duration = Duration::from_secs(5);

/// How long a client may send after the end of its connection.
const LINGER_TIME_MAX: Duration = Duration::from_secs(2);

/// The maximum of reads per poll of what is dropped.
const LINGER_READS_MAX: usize = 4;

/// A connection. Borrows of the state in cells end with the method that made them.
pub struct Conn {
    arriving: Arriving,
    transport: RefCell<Transport>,
    wire: RefCell<http2::Connection>,
    turns: RefCell<Turns>,
    failed_lookups: Cell<FailedLookups>,
    /// The task of the connection, which writes what the streams have to send.
    task: RefCell<Option<Waker>>,
    /// It is being polled.
    is_polled: Cell<bool>,
    /// The bytes that were moved in this poll.
    moved: Cell<usize>,
    /// The bytes that were written so far.
    written: Cell<u64>,
    /// Bytes that were received and not looked at.
    unread: RefCell<Vec<u8>>,
    /// When the last response ended; before that, when the connection was accepted.
    quiet_since: Cell<Instant>,
    has_had_request: Cell<bool>,
    /// Requests have come since it was idle.
    is_in_use: Cell<bool>,
    /// When the client was told that the connection ends.
    shutdown_since: Cell<Option<Instant>>,
}

impl Conn {
    /// A connection over `transport` on which `first` was received.
    pub fn new(arriving: Arriving, transport: Transport, first: Vec<u8>) -> Rc<Self> {
        let limits = &arriving.worker.service().wire_limits;
        let mut nonce = [0; 16];
        // Without random bytes the keys of WebSockets can be guessed, which protects caches only that do not know the protocol.
        let _ = getrandom::fill(&mut nonce);
        Rc::new(Self {
            transport: RefCell::new(transport),
            wire: RefCell::new(http2::Connection::new(
                limits.head_bytes_max,
                u128::from_ne_bytes(nonce),
            )),
            turns: RefCell::default(),
            failed_lookups: Cell::default(),
            task: RefCell::default(),
            is_polled: Cell::new(false),
            moved: Cell::new(0),
            written: Cell::new(0),
            unread: RefCell::new(first),
            quiet_since: Cell::new(arriving.accepted),
            has_had_request: Cell::new(false),
            is_in_use: Cell::new(false),
            shutdown_since: Cell::new(None),
            arriving,
        })
    }

    /// The worker that serves it.
    pub fn worker(&self) -> &Rc<Worker> {
        &self.arriving.worker
    }

    /// Its other end.
    pub fn peer(&self) -> &Peer {
        &self.arriving.peer
    }

    /// Why a handshake has failed that was not complete when the first request was read.
    pub fn handshake_error(&self) -> Option<String> {
        let error = self.transport.borrow_mut().handshake_error()?;
        Some(levity_tls::reason(&error))
    }

    /// A request has arrived: when its first byte did, and how long the client has taken for it if it is the first one.
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

    /// The task of the connection is polled, and writes at the end.
    pub fn begin_poll(&self, context: &Context<'_>) {
        self.is_polled.set(true);
        self.moved.set(0);
        let mut task = self.task.borrow_mut();
        if !task
            .as_ref()
            .is_some_and(|task| task.will_wake(context.waker()))
        {
            *task = Some(context.waker().clone());
        }
    }

    /// The poll ends. What streams append from now on, the next one writes.
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

    /// Keeps bytes that were read and not looked at.
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

    /// Whether what was received so far may be a copy of what another client has sent.
    pub(super) fn is_early(&self) -> bool {
        self.transport.borrow().is_early()
    }

    /// The client has more room, on one stream or on all.
    pub(super) fn windows_changed(&self, stream: Option<StreamId>) {
        self.turns.borrow_mut().wake_blocked(stream);
    }

    /// The exchange on `stream` has ended at `now`, and nobody has read the last `unread` bytes of its body.
    pub(super) fn stream_ended(&self, stream: StreamId, unread: usize, now: Instant) {
        self.turns.borrow_mut().remove(stream);
        self.quiet_since.set(now);
        self.with_wire(|wire| {
            // They count for the window of the connection.
            wire.consumed(stream, unread);
            wire.release(stream);
        });
        self.wake_next();
        if self.worker().is_draining() {
            self.begin_shutdown(now);
        }
    }

    /// No exchange runs: gives memory back, and begins to wait for the next request if it has had one since it rested last.
    pub(super) fn rest(&self) {
        // A malformed request leaves memory as well.
        self.wire.borrow_mut().shrink();
        if !self.is_in_use.replace(false) {
            return;
        }
        let now = self.quiet_since.get();
        if self.shutdown_since.get().is_some() {
            return self.timer().set(now + SHUTDOWN_TIME);
        }
        let idle_timeout = self.worker().service().config.limits.idle_timeout;
        self.timer().set_idle(now, now + idle_timeout);
    }

    /// Ends the connection when it was idle for too long, or the worker drains: in two steps, so that requests are answered that are on
    /// their way (RFC 9113, 6.8). True when the client has had its time.
    pub fn poll_timeout(&self, context: &mut Context<'_>) -> bool {
        let is_expired = self.timer().poll_expired(context);
        if !is_expired && !self.worker().is_draining() {
            return false;
        }
        if self.shutdown_since.get().is_some() {
            return is_expired;
        }
        let now = Instant::now();
        self.begin_shutdown(now);
        // An exchange may go on although the client has reset its stream.
        if self.wire.borrow().streams() == 0 && !self.is_in_use.get() {
            self.timer().set(now + SHUTDOWN_TIME);
        }
        false
    }

    /// Tells the client that the connection ends. One that does not answer in time cannot begin more requests then.
    fn begin_shutdown(&self, now: Instant) {
        match self.shutdown_since.get() {
            None => {
                self.shutdown_since.set(Some(now));
                self.with_wire(http2::Connection::shut_down);
            }
            Some(since) if now >= since + SHUTDOWN_TIME => self.end_shutdown(),
            Some(_) => {}
        }
    }

    /// The time-out for the first request, and for the end.
    pub fn timer(&self) -> &Timer {
        &self.arriving.timer
    }

    /// Whether both sides know that the connection has ended.
    pub fn is_done(&self) -> bool {
        let mut wire = self.wire.borrow_mut();
        wire.is_done() && wire.out().is_empty()
    }

    /// Whether streams may append more to the output.
    fn has_room(&self) -> bool {
        self.wire.borrow_mut().out().len() < OUT_BYTES_MAX
    }

    /// Whether the client may say more. Beyond that it should read first what it is answered.
    pub fn may_read(&self) -> bool {
        self.wire.borrow_mut().out().len() < ANSWERS_BYTES_MAX
    }

    /// Whether so many bytes were moved in this poll that it is the turn of other connections.
    pub fn has_had_turn(&self) -> bool {
        self.moved.get() >= TURN_BYTES_MAX
    }

    /// The bytes that were written so far.
    pub(super) fn written(&self) -> u64 {
        self.written.get()
    }

    fn count_written(&self, bytes: usize) {
        self.written.set(self.written.get() + bytes as u64);
        self.moved.set(self.moved.get() + bytes);
    }

    /// Writes the output, and wakes the stream whose turn it is when there is room. Ready when all was written.
    ///
    /// # Errors
    /// Those of the transport.
    pub fn poll_flush(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = self.poll_write(context);
        self.wake_next();
        written
    }

    fn poll_write(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut wire = self.wire.borrow_mut();
        let out = wire.out();
        let mut written = 0;
        while written < out.len() {
            match self
                .transport
                .borrow_mut()
                .poll_write(context, &out[written..])
            {
                Poll::Ready(Ok(bytes)) => {
                    self.count_written(bytes);
                    written += bytes;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    out.drain(..written);
                    return Poll::Pending;
                }
            }
        }
        self.worker().return_frames_out(std::mem::take(out));
        Poll::Ready(Ok(()))
    }

    /// Wakes the stream whose turn it is, if there is room.
    pub(super) fn wake_next(&self) {
        if self.has_room() {
            self.turns.borrow_mut().wake_next();
        }
    }

    /// Wakes `stream`, which has ended, if it waits to write.
    pub(super) fn wake_writer(&self, stream: StreamId) {
        self.turns.borrow_mut().remove(stream);
    }

    /// `stream` waits for the windows of the client: it is the turn of another one.
    pub(super) fn wait_for_window(&self, stream: StreamId, context: &Context<'_>) {
        self.turns.borrow_mut().block(stream, context.waker());
        self.wake_next();
    }

    /// Waits for room in the output, and for the turn of `stream`. Some of the output is written first if there is none.
    ///
    /// # Errors
    /// Those of the transport.
    pub(super) fn poll_room(
        &self,
        stream: StreamId,
        context: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.has_room() {
            let task = self.task();
            if let Poll::Ready(Err(error)) = self.poll_write(&mut Context::from_waker(&task)) {
                return Poll::Ready(Err(error));
            }
        }
        if self.has_room() && !self.has_had_turn() {
            // A turn that came later would be lost.
            self.turns.borrow_mut().leave(stream);
            return Poll::Ready(Ok(()));
        }
        let priority = self.wire.borrow().priority(stream);
        let mut turns = self.turns.borrow_mut();
        turns.wait(stream, priority, context.waker());
        Poll::Pending
    }

    /// Calls `write` with the codec, and has the output written soon.
    pub(super) fn with_wire<T>(&self, write: impl FnOnce(&mut http2::Connection) -> T) -> T {
        let mut wire = self.wire.borrow_mut();
        if wire.out().capacity() == 0 {
            *wire.out() = self.worker().take_frames_out();
        }
        let was_empty = wire.out().is_empty();
        let written = write(&mut wire);
        if !self.is_polled.get()
            && was_empty
            && !wire.out().is_empty()
            && let Some(task) = &*self.task.borrow()
        {
            task.wake_by_ref();
        }
        written
    }

    /// Sends as much of `data` on `stream` as the client takes; returns the number of bytes. Large pieces are written where they are,
    /// if nothing waits before them: the copy would cost a fifth of the time.
    ///
    /// # Errors
    /// Those of the transport.
    pub(super) fn send_data(&self, stream: StreamId, data: &[u8], ends: bool) -> io::Result<usize> {
        if data.len() < DIRECT_BYTES_MIN || !self.wire.borrow_mut().out().is_empty() {
            return Ok(self.with_wire(|wire| wire.send_data(stream, data, ends)));
        }
        let (mut headers, mut parts) = ([[0; HEADER_BYTES]; FRAMES_MAX], [&[][..]; FRAMES_MAX]);
        let mut count = 0;
        let bytes = self
            .wire
            .borrow_mut()
            .frame_data(stream, data, ends, |header, part| {
                (headers[count], parts[count]) = (header, part);
                count += 1;
            });
        let frames = headers.iter().zip(&parts).take(count);
        let mut slices = [IoSlice::new(&[]); 2 * FRAMES_MAX];
        let framed = frames.flat_map(|(header, part)| [&header[..], part]);
        for (slice, bytes) in slices.iter_mut().zip(framed) {
            *slice = IoSlice::new(bytes);
        }
        let mut slices = &mut slices[..2 * count];
        let task = self.task();
        let mut context = Context::from_waker(&task);
        let mut transport = self.transport.borrow_mut();
        while !slices.is_empty() {
            match transport.poll_write_vectored(&mut context, slices) {
                Poll::Ready(Ok(written)) => {
                    self.count_written(written);
                    IoSlice::advance_slices(&mut slices, written);
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        if !slices.is_empty() {
            self.with_wire(|wire| {
                slices
                    .iter()
                    .for_each(|slice| wire.out().extend_from_slice(slice))
            });
        }
        Ok(bytes)
    }

    fn task(&self) -> Waker {
        let task = self.task.borrow().clone();
        task.unwrap_or_else(|| Waker::noop().clone())
    }

    pub(super) fn failed_lookups(&self) -> &Cell<FailedLookups> {
        &self.failed_lookups
    }

    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        self.transport.borrow().local_address()
    }

    /// Says which request was the last one, if it was not said.
    pub fn end_shutdown(&self) {
        self.with_wire(http2::Connection::end_shutdown);
    }

    /// Refuses the request on `stream`, which the client may send again.
    pub fn refuse(&self, stream: StreamId) {
        self.with_wire(|wire| wire.send_reset(stream, ErrorCode::RefusedStream));
    }

    /// The client gets no more than the rest of the output.
    pub fn begin_finish(&self) {
        let send_timeout = self.worker().service().config.limits.send_timeout;
        self.timer().set(Instant::now() + send_timeout);
    }

    /// Writes the rest of the output. Ready when that is done, when the client is gone, or when it has taken nothing for
    /// `limits.send_timeout`.
    pub fn poll_finish(&self, context: &mut Context<'_>) -> Poll<()> {
        let before = self.written.get();
        let flushed = self.poll_write(context);
        if self.written.get() > before {
            self.begin_finish();
        }
        match flushed {
            Poll::Pending if !self.timer().poll_expired(context) => Poll::Pending,
            _ => Poll::Ready(()),
        }
    }

    /// Shuts down the sending side. The rest of what the client has sent is dropped for a moment, because a close would reset the
    /// connection and discard what was just written.
    pub fn begin_linger(&self) {
        self.transport.borrow_mut().end_output();
        self.timer().set(Instant::now() + LINGER_TIME_MAX);
    }

    /// Drops what the client sends. Ready at its end, or when it has had its time.
    pub fn poll_linger(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<()> {
        for _ in 0..LINGER_READS_MAX {
            if self.timer().poll_expired(context) {
                return Poll::Ready(());
            }
            match ready!(self.transport.borrow_mut().poll_read(context, buffer)) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Poll::Ready(()),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
