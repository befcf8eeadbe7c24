//! A stream: the client's end of one exchange.

use std::cell::{Cell, RefCell};
use std::future::{self, Future};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use levity_net::{Peer, Timer, Turn};
use levity_wire::http1::{Framing, Reject, Trailers};
use levity_wire::http2::{ErrorCode, FieldBlock, StreamId};

use super::conn::{Conn, PIECE_BYTES_MAX};
use super::head;
use super::incoming::Incoming;
use crate::failed_lookups::FailedLookups;
use crate::http::arriving::Registration;
use crate::http::fields::Fields;
use crate::http::request::RequestError;
use crate::http::request_body::ClientStream;
use crate::http::send::{self, Head, Progress, ResponseSink};
use crate::worker::Worker;

/// One stream of a connection.
pub struct Stream {
    conn: Rc<Conn>,
    id: StreamId,
    timer: Rc<Timer>,
    registration: Registration,
    turn: Turn,
    incoming: RefCell<Incoming>,
    expects_continue: Cell<bool>,
    /// The client has ended it, or the connection has.
    is_gone: Cell<bool>,
    /// The bytes of the body that are not sent, if the header announces them: the last frame then ends the stream.
    announced: Cell<Option<u64>>,
    /// The bytes that the connection had written when the time-out was last set.
    seen_written: Cell<u64>,
    /// Waits for bytes of the client, or for its end.
    reader: WakerCell,
}

/// The task that waits for something.
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

/// The encoded header section of a response.
pub struct Header {
    block: FieldBlock,
    /// Content-Length.
    length: Option<u64>,
    has_body: bool,
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

    /// Its exchange has ended: drops what belongs to that. The body may be large.
    pub(super) fn retire(&mut self) {
        self.timer.clear();
        self.incoming = RefCell::new(Incoming::new(Framing::None, true));
        self.reader = WakerCell::default();
    }

    /// Becomes the stream `id`, in place of one that was retired.
    pub(super) fn restart(&mut self, id: StreamId, incoming: Incoming, expects_continue: bool) {
        self.id = id;
        self.turn = Turn::default();
        self.incoming = RefCell::new(incoming);
        self.expects_continue = Cell::new(expects_continue);
        self.is_gone = Cell::new(false);
        self.announced = Cell::new(None);
        self.seen_written = Cell::new(0);
    }

    /// Its number on the connection.
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

    /// The stream has ended.
    pub(super) fn was_reset(&self) {
        self.is_gone.set(true);
        self.incoming.borrow_mut().reset();
        self.reader.wake();
        self.conn.wake_writer(self.id);
    }

    /// Bytes of the body that nobody has read.
    pub(super) fn unread(&self) -> usize {
        self.incoming.borrow().unread()
    }

    /// The client may send as many bytes more.
    fn consumed(&self, bytes: usize) {
        if bytes > 0 {
            self.conn.with_wire(|wire| wire.consumed(self.id, bytes));
        }
    }

    /// Waits for room in the output of the connection.
    fn poll_room(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        if self.is_gone.get() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = self.conn.poll_room(self.id, context);
        if room.is_pending() {
            self.extend_timeout();
        }
        room
    }

    /// While it is the turn of others, the client is not slow if it takes their bytes.
    fn extend_timeout(&self) {
        let written = self.conn.written();
        if self.timer.is_set() && self.seen_written.replace(written) != written {
            let send_timeout = self.conn.worker().service().config.limits.send_timeout;
            self.timer.set(Instant::now() + send_timeout);
        }
    }

    /// Sends as much of `data` as the client takes now: at least a byte, unless there is none.
    fn poll_data(&self, context: &Context<'_>, data: &[u8], ends: bool) -> Poll<io::Result<usize>> {
        if data.is_empty() && !ends {
            return Poll::Ready(Ok(0));
        }
        ready!(self.poll_room(context))?;
        let (data, ends) = match data.get(..PIECE_BYTES_MAX) {
            Some(piece) => (piece, ends && piece.len() == data.len()),
            None => (data, ends),
        };
        if !self.conn.with_wire(|wire| wire.is_sendable(self.id)) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let sent = self.conn.send_data(self.id, data, ends)?;
        if sent == 0 && !data.is_empty() {
            self.conn.wait_for_window(self.id, context);
            return Poll::Pending;
        }
        Poll::Ready(Ok(sent))
    }

    fn send_header(&self, header: Header, ends: bool) {
        let length = header.length.filter(|_| header.has_body);
        self.announced.set(length);
        let block = header.block;
        self.conn
            .with_wire(|wire| wire.send_fields(self.id, block.as_bytes(), ends));
        self.conn.worker().return_head(block.into_buffer());
    }
}

impl ClientStream for Stream {
    fn version(&self) -> &'static str {
        "HTTP/2.0"
    }

    fn peer(&self) -> &Peer {
        self.conn.peer()
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.conn.local_address()
    }

    fn number(&self) -> u64 {
        self.registration.number_in_process()
    }

    fn timer(&self) -> &Timer {
        &self.timer
    }

    fn turn(&self) -> &Turn {
        &self.turn
    }

    fn failed_lookups(&self) -> &Cell<FailedLookups> {
        self.conn.failed_lookups()
    }

    fn limit_body(&self, bytes_max: u64) -> Result<(), Reject> {
        self.incoming.borrow_mut().limit(bytes_max)
    }

    fn body_remaining(&self) -> Option<u64> {
        self.incoming.borrow().remaining()
    }

    fn body_received(&self) -> u64 {
        self.incoming.borrow().bytes()
    }

    fn is_body_cut_off(&self) -> bool {
        self.incoming.borrow().is_cut_off()
    }

    fn is_body_unread(&self) -> bool {
        self.incoming.borrow().bytes() == 0
    }

    fn trailers(&self) -> Trailers {
        self.incoming.borrow().trailers()
    }

    fn poll_body(
        &self,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<Result<(), RequestError>> {
        let polled = self.incoming.borrow_mut().poll_body(out);
        if polled.is_pending() {
            self.reader.set(context);
            self.turn.restart();
        }
        let (bytes, taken) = ready!(polled);
        self.consumed(bytes);
        Poll::Ready(taken)
    }

    fn take_buffered(&self, out: &mut Vec<u8>) -> Result<(), Reject> {
        let mut incoming = self.incoming.borrow_mut();
        if !incoming.has_ended() {
            return Ok(());
        }
        let Poll::Ready((bytes, taken)) = incoming.poll_body(out) else {
            return Ok(());
        };
        drop(incoming);
        self.consumed(bytes);
        match taken {
            Err(RequestError::Refused(reject)) => Err(reject),
            _ => Ok(()),
        }
    }

    fn watch(&self, context: &mut Context<'_>) -> Result<(), RequestError> {
        if self.is_gone.get() {
            return Err(RequestError::Gone);
        }
        self.reader.set(context);
        Ok(())
    }

    /// The end of a request does not close the connection.
    fn input_ended(&self) -> bool {
        false
    }

    fn expects_continue(&self) -> bool {
        self.expects_continue.get()
    }

    fn inform<'a>(
        &'a self,
        status: u16,
        fields: &'a Fields,
    ) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        let is_due = status != 100 || self.expects_continue.replace(false);
        // One that does not read gets none: it could be sent any number of them.
        if is_due && self.conn.may_read() {
            let block = head::interim(status, fields);
            self.conn
                .with_wire(|wire| wire.send_fields(self.id, block.as_bytes(), false));
        }
        Box::pin(future::ready(()))
    }

    fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let polled = self.incoming.borrow_mut().poll_read(buffer);
        if polled.is_pending() {
            self.reader.set(context);
        }
        let bytes = ready!(polled);
        self.consumed(bytes);
        Poll::Ready(Ok(bytes))
    }

    fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_data(context, bytes, false)
    }

    fn end_output(&self) {
        self.conn
            .with_wire(|wire| wire.send_data(self.id, &[], true));
    }
}

impl ResponseSink for Stream {
    type Header = Header;

    fn worker(&self) -> &Rc<Worker> {
        self.conn.worker()
    }

    fn header(&self, head: &Head<'_>) -> Header {
        Header {
            block: head::write(head, self.conn.worker()),
            length: head.length,
            has_body: head.has_body && head.upgrade.is_none(),
        }
    }

    fn framing(&self, _: bool) -> send::Framing {
        send::Framing::ByFrames
    }

    fn poll_send(
        &self,
        context: &mut Context<'_>,
        header: &mut Option<Header>,
        data: &[u8],
        _: bool,
    ) -> Poll<io::Result<Progress>> {
        let has_header = header.is_some();
        if has_header {
            ready!(self.poll_room(context))?;
        }
        if let Some(header) = header.take() {
            self.send_header(header, false);
        }
        let announced = self.announced.get();
        let ends = announced == Some(data.len() as u64) && !data.is_empty();
        let body_bytes = match self.poll_data(context, data, ends) {
            Poll::Pending if has_header => 0,
            sent => ready!(sent)?,
        };
        self.announced
            .set(announced.map(|bytes| bytes.saturating_sub(body_bytes as u64)));
        Poll::Ready(Ok(Progress {
            bytes: body_bytes,
            body_bytes,
            is_complete: body_bytes == data.len(),
        }))
    }

    fn is_writing(&self) -> bool {
        false
    }

    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_room(context))?;
        if self.conn.with_wire(|wire| wire.window(self.id)) == 0 {
            self.conn.wait_for_window(self.id, context);
            return Poll::Pending;
        }
        // What is to be written has yet to be read: meanwhile it is the turn of another stream.
        self.conn.wake_next();
        Poll::Ready(Ok(()))
    }

    fn poll_end(
        &self,
        context: &mut Context<'_>,
        header: &mut Option<Header>,
        trailers: &Trailers,
    ) -> Poll<io::Result<Progress>> {
        // The last frame of the body may have ended the stream.
        let is_open = self.conn.with_wire(|wire| wire.is_sendable(self.id));
        if !is_open && header.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if is_open {
            ready!(self.poll_room(context))?;
            let mut block = FieldBlock::default();
            trailers
                .fields()
                .for_each(|(name, value)| block.field(name, value));
            let has_trailers = !block.as_bytes().is_empty();
            match header.take() {
                Some(header) => self.send_header(header, !has_trailers),
                None if !has_trailers => self.end_output(),
                None => {}
            }
            if has_trailers {
                self.conn
                    .with_wire(|wire| wire.send_fields(self.id, block.as_bytes(), true));
            }
        }
        Poll::Ready(Ok(Progress {
            bytes: 0,
            body_bytes: 0,
            is_complete: true,
        }))
    }

    fn has_socket(&self) -> bool {
        false
    }

    fn has_tcp_socket(&self) -> bool {
        false
    }

    fn try_move<T>(&self, _: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        unreachable!("frames are made in memory")
    }

    fn try_send_header(&self, _: &mut Option<Header>) -> io::Result<Progress> {
        unreachable!("frames are made in memory")
    }

    fn reset(&self) {
        self.conn.with_wire(|wire| {
            if wire.is_sendable(self.id) {
                wire.send_reset(self.id, ErrorCode::Internal);
            }
        });
    }
}
