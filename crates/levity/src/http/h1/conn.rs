//! An HTTP/1 connection of a client.

use std::cell::{Cell, Ref, RefCell};
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use levity_net::{Peer, Socket, Timer, Transport, Turn};
use levity_telemetry::stall;
use levity_wire::http1::{Framing, Reject, RequestHead, Trailers, Version};
use rustix::net::SendFlags;
use tokio::sync::OwnedSemaphorePermit;

use super::chunked::ChunkedBody;
use super::head::{self, Header};
use super::inbox::Inbox;
use super::incoming::Incoming;
use crate::files::missing_lookups::FailedLookups;
use crate::http::arriving::{Arriving, Registration};
use crate::http::gathered::Gathered;
use crate::http::request_body::ClientStream;
use crate::http::send::{self, ClientSocket, Head, Progress, ResponseSink};
use crate::loop_core::LoopCore;
use crate::message::fields::Fields;
use crate::message::request::{Arrival, RequestError};
use crate::shares::claim::Claims;

/// The maximum duration of a lingering close. An immediate close would reset the connection while the client still
/// sends, and discard the response, which many clients read only after they have sent the whole body.
const LINGER_TIME_MAX: Duration = Duration::from_secs(30);

/// The maximum time without input during a lingering close.
const LINGER_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Header and body up to this total size, in bytes, are copied together before the write: the copy costs less than a
/// vectored write.
const JOINED_BYTES_MAX: usize = 2048;

/// The maximum number of pipelined bytes that are read before the current response is complete.
const PIPELINED_BYTES_MAX: usize = 16 * 1024;

/// A connection. Memory that only an active request needs is borrowed from the worker, so an idle connection is small.
/// Borrows of the state in cells end with the method that made them.
pub struct Conn {
    /// The core of the loop that serves the connection.
    pub core: Rc<LoopCore>,
    transport: RefCell<Transport>,
    /// The other end of the connection.
    pub peer: Peer,
    inbox: RefCell<Inbox>,
    /// The decoder of the current request's body.
    incoming: RefCell<Incoming>,
    /// The body of the current response, if it is chunked.
    chunked: RefCell<Option<Box<ChunkedBody>>>,
    /// The version of the current request.
    version: Cell<Version>,
    /// The client waits for 100 (Continue) before it sends the body.
    expects_continue: Cell<bool>,
    /// The client has shut down its sending side. It may still read responses, or be gone.
    input_ended: Cell<bool>,
    failed_lookups: Cell<FailedLookups>,
    timer: Rc<Timer>,
    /// When the last response ended; before that, when the connection was accepted.
    quiet_since: Cell<Instant>,
    /// No request has been read from the connection.
    is_new: Cell<bool>,
    /// When the first byte of the current request arrived.
    request_start: Cell<Option<Instant>>,
    turn: Turn,
    registration: Registration,
    /// One of the worker's connection slots.
    _slot: OwnedSemaphorePermit,
}

impl Conn {
    /// Registers an accepted connection with the worker.
    pub fn new(
        core: Rc<LoopCore>,
        transport: Transport,
        peer: Peer,
        slot: OwnedSemaphorePermit,
    ) -> Self {
        Self::over(Arriving::new(core, peer, slot), transport)
    }

    /// The connection over this transport.
    pub fn over(arriving: Arriving, transport: Transport) -> Self {
        arriving.timer.set_socket(transport.tcp_socket());
        Self {
            core: arriving.core,
            transport: RefCell::new(transport),
            peer: arriving.peer,
            inbox: RefCell::default(),
            incoming: RefCell::default(),
            chunked: RefCell::default(),
            version: Cell::new(Version::Http11),
            expects_continue: Cell::new(false),
            input_ended: Cell::new(false),
            failed_lookups: Cell::default(),
            timer: arriving.timer,
            quiet_since: Cell::new(arriving.accepted),
            is_new: Cell::new(true),
            request_start: Cell::new(None),
            turn: Turn::default(),
            registration: arriving.registration,
            _slot: arriving.slot,
        }
    }

    /// Whether what was received so far may be a copy of what another client has sent.
    pub fn is_early(&self) -> bool {
        self.transport.borrow().is_early()
    }

    /// Whether the handshake of TLS has chosen HTTP/2 (RFC 9113, 3.2).
    pub fn has_chosen_http2(&self) -> bool {
        self.transport.borrow().has_chosen_http2()
    }

    /// Why a handshake has failed that was not complete when the first request was read.
    pub fn handshake_error(&self) -> Option<String> {
        self.transport.borrow_mut().handshake_error()
    }

    /// Gives its transport away, and what was received over it. No request was read.
    pub fn detach(self) -> (Transport, Vec<u8>, Arriving) {
        let arriving = Arriving {
            core: self.core,
            peer: self.peer,
            timer: self.timer,
            accepted: self.quiet_since.get(),
            registration: self.registration,
            slot: self._slot,
        };
        (
            self.transport.into_inner(),
            self.inbox.into_inner().into_vec(),
            arriving,
        )
    }

    /// A number that no other open connection of the worker has.
    pub fn number(&self) -> usize {
        self.registration.number()
    }

    /// Received bytes that are not parsed yet.
    pub(super) fn inbox(&self) -> &RefCell<Inbox> {
        &self.inbox
    }

    /// The inbox and the peer, while the connection is not shared yet.
    pub(super) fn inbox_and_peer(&mut self) -> (&mut Inbox, &mut Peer) {
        (self.inbox.get_mut(), &mut self.peer)
    }

    /// Makes the request with this header section the current one.
    pub(super) fn begin_request(&self, head: &RequestHead) {
        if head.framing != Framing::None {
            *self.incoming.borrow_mut() = Incoming::new(head.framing);
        }
        self.version.set(head.version);
        self.expects_continue.set(head.expect_continue);
    }

    /// Reads from the client; `TimedOut` if nothing has arrived by the deadline.
    pub(super) fn poll_input(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self.poll_transport(context, buffer) {
            Poll::Pending if self.timer.poll_expired(context) => {
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            read => read,
        }
    }

    /// Reads from the client, without a deadline.
    fn poll_transport(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let read = self.transport.borrow_mut().poll_read(context, buffer);
        if read.is_pending() {
            self.turn.restart();
        }
        read
    }

    /// Writes as much of the concatenated `parts` as the client takes now.
    fn poll_write_parts(
        &self,
        context: &mut Context<'_>,
        parts: [&[u8]; 4],
    ) -> Poll<io::Result<usize>> {
        let mut transport = self.transport.borrow_mut();
        let mut filled = parts.iter().filter(|part| !part.is_empty());
        if let (Some(only), None) = (filled.next(), filled.next()) {
            return transport.poll_write(context, only);
        }
        let total = parts.iter().map(|part| part.len()).sum();
        if total > JOINED_BYTES_MAX {
            return transport.poll_write_vectored(context, &parts.map(IoSlice::new));
        }
        let mut scratch = self.core.inbound.borrow_mut();
        let mut end = 0;
        for part in parts {
            scratch[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        }
        transport.poll_write(context, &scratch[..total])
    }

    /// When the last response ended; before that, when the connection was accepted.
    pub fn quiet_since(&self) -> Instant {
        self.quiet_since.get()
    }

    /// Ends the current request; its response has ended at `now`.
    pub fn response_ended(&self, now: Instant) {
        self.quiet_since.set(now);
        // Drops the state of the request body, so that an idle connection holds no trailers.
        self.incoming.replace(Incoming::default());
    }

    /// Records the arrival of the next request's first byte: the start of the current poll, or the end of the response
    /// before it if that was in the same poll.
    pub(super) fn mark_first_byte(&self) {
        if self.request_start.get().is_none() {
            let arrived = stall::poll_start().max(self.quiet_since.get());
            self.request_start.set(Some(arrived));
        }
    }

    /// When the first byte of the current request arrived; the present time if there is none. Resets it.
    pub fn take_request_start(&self) -> Instant {
        self.request_start.take().unwrap_or_else(Instant::now)
    }

    /// Whether no request has been read from it.
    pub(super) fn is_new(&self) -> bool {
        self.is_new.get()
    }

    /// The arrival of the request that has just been parsed.
    pub fn arrival(&self) -> Arrival {
        let first_byte = self.take_request_start();
        let is_new = self.is_new.replace(false);
        Arrival {
            first_byte,
            waited: is_new.then(|| first_byte - self.quiet_since.get()),
        }
    }

    /// Limits the wait for the rest of a header section to `limits.header_timeout`.
    pub(super) fn start_header_timeout(&self) {
        let header_timeout = self.core.config().config.limits.header_timeout;
        self.timer.set(Instant::now() + header_timeout);
    }

    /// Shuts down the sending side, then reads and drops input for a limited time: a lingering close.
    pub async fn linger(&self) {
        self.transport.borrow_mut().end_output();
        let time_max = match self.core.is_draining() {
            true => LINGER_PAUSE_MAX,
            false => LINGER_TIME_MAX,
        };
        let end = stall::poll_start() + time_max;
        loop {
            let now = stall::poll_start();
            self.timer.set(end.min(now + LINGER_PAUSE_MAX));
            let read =
                poll_fn(|context| self.poll_input(context, &mut self.core.inbound.borrow_mut()));
            match read.await {
                Ok(count) if count > 0 && now < end => self.turn.spend(count).await,
                _ => return,
            }
        }
    }
}

impl ClientStream for Conn {
    fn version(&self) -> &'static str {
        match self.version.get() {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
        }
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.transport.borrow().local_address()
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

    fn limit_body(&self, bytes_max: u64) -> Result<(), Reject> {
        self.incoming.borrow_mut().limit(bytes_max)
    }

    fn body_remaining(&self) -> Option<u64> {
        self.incoming.borrow().remaining()
    }

    fn is_body_unread(&self) -> bool {
        self.incoming.borrow().is_unread()
    }

    fn trailers(&self) -> Trailers {
        self.incoming.borrow().trailers().clone()
    }

    fn poll_body(
        &self,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<Result<(), RequestError>> {
        let mut incoming = self.incoming.borrow_mut();
        let before = out.len();
        while !incoming.is_complete() && out.len() == before {
            let mut inbox = self.inbox.borrow_mut();
            if !inbox.is_empty() {
                let taken = incoming.take(&inbox, out)?;
                inbox.skip(taken);
                continue;
            }
            let mut scratch = self.core.bulk.borrow_mut();
            let count = match ready!(self.poll_transport(context, &mut scratch)) {
                Ok(0) | Err(_) => {
                    incoming.cut_off();
                    return Poll::Ready(Err(RequestError::Gone));
                }
                Ok(count) => count,
            };
            let taken = incoming.take(&scratch[..count], out)?;
            inbox.push(&scratch[taken..count]);
        }
        Poll::Ready(Ok(()))
    }

    fn take_buffered(&self, claims: &Claims, out: &mut Gathered) -> Result<(), Reject> {
        let mut incoming = self.incoming.borrow_mut();
        let mut inbox = self.inbox.borrow_mut();
        let is_buffered = |bytes: &u64| *bytes <= inbox.len() as u64;
        let Some(bytes) = incoming.remaining().filter(is_buffered) else {
            return Ok(());
        };
        if out.try_room(claims, bytes as usize).is_ok() {
            let taken = out.add(|out| incoming.take(&inbox, out))?;
            inbox.skip(taken);
        }
        Ok(())
    }

    /// Input after a complete request is the next request. It is read into the inbox, up to `PIPELINED_BYTES_MAX`.
    fn watch(&self, context: &mut Context<'_>) -> Result<(), RequestError> {
        let has_sent_all = self.incoming.borrow().is_complete();
        if !has_sent_all || self.inbox.borrow().len() >= PIPELINED_BYTES_MAX {
            return Ok(());
        }
        let is_closed = || self.transport.borrow().is_closed();
        if self.input_ended.get() {
            return match is_closed() {
                true => Err(RequestError::Gone),
                false => Ok(()),
            };
        }
        let mut scratch = self.core.inbound.borrow_mut();
        match self.poll_transport(context, &mut scratch) {
            Poll::Ready(Ok(0)) if !is_closed() => self.input_ended.set(true),
            Poll::Ready(Ok(0) | Err(_)) => return Err(RequestError::Gone),
            Poll::Ready(Ok(count)) => {
                self.inbox.borrow_mut().push(&scratch[..count]);
                context.waker().wake_by_ref();
            }
            Poll::Pending => {}
        }
        Ok(())
    }

    fn input_ended(&self) -> bool {
        self.input_ended.get()
    }

    fn may_leave_body(&self) -> bool {
        false
    }

    fn expects_continue(&self) -> bool {
        let has_begun = || !self.is_body_unread() || !self.inbox.borrow().is_empty();
        self.expects_continue.get() && !has_begun()
    }

    fn inform<'a>(
        &'a self,
        status: u16,
        fields: &'a Fields,
    ) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        // HTTP/1.0 has no interim responses (RFC 9110, 15.2).
        let is_due = match status {
            100 => self.expects_continue() && self.expects_continue.replace(false),
            _ => self.version.get() == Version::Http11,
        };
        Box::pin(async move {
            if is_due {
                send::interim(self, head::interim(status, fields)).await;
            }
        })
    }

    fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut inbox = self.inbox.borrow_mut();
        if inbox.is_empty() {
            return self.transport.borrow_mut().poll_read(context, buffer);
        }
        let count = inbox.len().min(buffer.len());
        buffer[..count].copy_from_slice(&inbox[..count]);
        inbox.skip(count);
        Poll::Ready(Ok(count))
    }

    fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.transport.borrow_mut().poll_write(context, bytes)
    }

    fn end_output(&self) {
        self.transport.borrow_mut().end_output();
    }
}

/// The socket of a connection without TLS.
pub struct PlainSocket<'c> {
    transport: Ref<'c, Transport>,
    core: &'c LoopCore,
}

impl ClientSocket<Header> for PlainSocket<'_> {
    fn is_tcp(&self) -> bool {
        matches!(self.transport.socket(), Some(Socket::Tcp(_)))
    }

    fn try_move<T>(&self, call: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        let socket = self.transport.socket();
        socket.ok_or(io::ErrorKind::NotConnected)?.try_move(call)
    }

    fn try_send_header(&self, header: &mut Option<Header>) -> io::Result<Progress> {
        let head = header.as_ref().map_or(&[][..], Header::rest);
        let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
        let bytes = self.try_move(|socket| Ok(rustix::net::send(socket, head, flags)?))?;
        Ok(Progress {
            bytes,
            body_bytes: head::advance(header, bytes, self.core),
            is_complete: header.is_none(),
        })
    }
}

impl ResponseSink for Conn {
    type Header = Header;
    type Socket<'s> = PlainSocket<'s>;

    fn core(&self) -> &Rc<LoopCore> {
        &self.core
    }

    fn failed_lookups(&self) -> &Cell<FailedLookups> {
        &self.failed_lookups
    }

    fn body_received(&self) -> u64 {
        self.incoming.borrow().bytes()
    }

    fn is_body_cut_off(&self) -> bool {
        self.incoming.borrow().is_cut_off()
    }

    fn header(&self, head: &Head<'_>) -> Header {
        let mut bytes = self.core.take_head();
        head::write(head, self.version.get(), &self.core, &mut bytes);
        // Also where it is not chunked: the header may replace that of a chunked body.
        let is_chunked = head.framing == send::Framing::ByChunks && head.has_body;
        let chunked = is_chunked.then(|| Box::new(ChunkedBody::BetweenChunks));
        self.chunked.replace(chunked);
        Header::new(bytes)
    }

    fn framing(&self, is_open_ended: bool) -> send::Framing {
        match (is_open_ended, self.version.get()) {
            (false, _) => send::Framing::ByLength,
            (true, Version::Http11) => send::Framing::ByChunks,
            // HTTP/1.0 has no chunked coding.
            (true, Version::Http10) => send::Framing::ByClosing,
        }
    }

    fn poll_send(
        &self,
        context: &mut Context<'_>,
        header: &mut Option<Header>,
        data: &[u8],
        is_last: bool,
    ) -> Poll<io::Result<Progress>> {
        let head = header.as_ref().map_or(&[][..], Header::rest);
        let mut chunked = self.chunked.borrow_mut();
        if let Some(body) = &mut *chunked
            && let Some(chunk) = body.chunk(data, is_last)
        {
            let [size, data, end] = chunk.parts();
            let bytes = ready!(self.poll_write_parts(context, [head, size, data, end]))?;
            let framed = head::advance(header, bytes, &self.core);
            let (body_bytes, is_complete) = body.wrote(&chunk, framed);
            return Poll::Ready(Ok(Progress {
                bytes,
                body_bytes,
                is_complete,
            }));
        }
        let bytes = ready!(self.poll_write_parts(context, [head, data, &[], &[]]))?;
        let body_bytes = head::advance(header, bytes, &self.core);
        Poll::Ready(Ok(Progress {
            bytes,
            body_bytes,
            is_complete: header.is_none() && body_bytes == data.len(),
        }))
    }

    fn is_writing(&self) -> bool {
        self.transport.borrow().is_writing()
    }

    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.transport.borrow().poll_write_ready(context)
    }

    fn poll_end(
        &self,
        context: &mut Context<'_>,
        header: &mut Option<Header>,
        trailers: &Trailers,
    ) -> Poll<io::Result<Progress>> {
        let head = header.as_ref().map_or(&[][..], Header::rest);
        let mut chunked = self.chunked.borrow_mut();
        let mut nothing = Vec::new();
        let end = chunked
            .as_mut()
            .map_or(&mut nothing, |body| body.end(trailers));
        let mut bytes = 0;
        if !head.is_empty() || !end.is_empty() {
            bytes = ready!(self.poll_write_parts(context, [head, end, &[], &[]]))?;
            end.drain(..head::advance(header, bytes, &self.core));
        }
        let is_complete = header.is_none() && end.is_empty();
        if is_complete {
            *chunked = None;
        }
        Poll::Ready(Ok(Progress {
            bytes,
            body_bytes: 0,
            is_complete,
        }))
    }

    fn socket(&self) -> Option<PlainSocket<'_>> {
        let (transport, core) = (self.transport.borrow(), &self.core);
        let has_socket = transport.socket().is_some();
        has_socket.then_some(PlainSocket { transport, core })
    }

    fn reset(&self) {
        self.transport.borrow_mut().reset_on_close();
    }
}
