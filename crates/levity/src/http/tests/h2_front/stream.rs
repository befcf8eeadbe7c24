//! A stream: the client's end of one exchange.

use std::cell::{Cell, RefCell};
use std::future::{self, Future};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use ::http::{HeaderMap, Response};
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use levity_net::{Peer, Timer, Turn};
use levity_wire::http1::{Chunked, Framing, Reject, RequestHead, Trailers, write};

use super::{Deadline, Shared, header};
use crate::failed_lookups::FailedLookups;
use crate::http::fields::{Fields, lines};
use crate::http::request::RequestError;
use crate::http::request_body::ClientStream;
use crate::http::send::{self, Head, Progress, ResponseSink};
use crate::worker::Worker;

/// The capacity that is requested from flow control before the number of bytes to send is known.
const CAPACITY_BYTES: usize = 16 * 1024;

const TOO_LARGE: Reject = Reject {
    status: 413,
    reason: "the request's body is larger than `body_bytes` allows",
};

/// One stream of a connection.
pub struct Stream {
    connection: Rc<Shared>,
    deadline: Deadline,
    turn: Turn,
    incoming: RefCell<Incoming>,
    outgoing: RefCell<Outgoing>,
    expects_continue: Cell<bool>,
}

/// The client's DATA frames.
struct Incoming {
    frames: RecvStream,
    /// Received bytes of a tunnel that have not been read.
    unread: Bytes,
    /// Bytes of the announced length that have not been received; `None` when the length is unknown.
    remaining: Option<u64>,
    bytes: u64,
    bytes_max: u64,
    is_complete: bool,
    trailers: Trailers,
}

/// Our frames.
enum Outgoing {
    Header(SendResponse<Bytes>),
    Body(SendStream<Bytes>),
}

impl Stream {
    /// The stream of the request with this header section; `None` for a malformed request.
    pub fn new(
        connection: Rc<Shared>,
        frames: RecvStream,
        respond: SendResponse<Bytes>,
        head: Option<&RequestHead>,
    ) -> Self {
        let framing = head.map_or(Framing::None, |head| head.framing);
        Self {
            deadline: Deadline::new(connection.worker.clone()),
            connection,
            turn: Turn::default(),
            incoming: RefCell::new(Incoming {
                frames,
                unread: Bytes::new(),
                remaining: match framing {
                    Framing::None => Some(0),
                    Framing::Length(bytes) => Some(bytes),
                    Framing::Chunked => None,
                },
                bytes: 0,
                bytes_max: u64::MAX,
                is_complete: matches!(framing, Framing::None | Framing::Length(0)),
                trailers: Trailers::default(),
            }),
            outgoing: RefCell::new(Outgoing::Header(respond)),
            expects_continue: Cell::new(head.is_some_and(|head| head.expect_continue)),
        }
    }
}

impl Incoming {
    /// Receives the next bytes; `None` at the end. The caller releases their flow-control capacity.
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        Poll::Ready(match ready!(self.frames.poll_data(context)) {
            Some(Ok(bytes)) => Ok(Some(bytes)),
            Some(Err(_)) => Err(io::ErrorKind::ConnectionReset.into()),
            None => Ok(None),
        })
    }

    /// Permits the client to send `bytes` more.
    fn release(&mut self, bytes: usize) {
        let released = self.frames.flow_control().release_capacity(bytes);
        released.expect("no more than has come");
    }

    fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Reject> {
        out.extend_from_slice(bytes);
        self.release(bytes.len());
        self.bytes += bytes.len() as u64;
        self.remaining = self
            .remaining
            .map(|remaining| remaining.saturating_sub(bytes.len() as u64));
        self.is_complete = self.frames.is_end_stream();
        match self.bytes > self.bytes_max {
            true => Err(TOO_LARGE),
            false => Ok(()),
        }
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Result<(), RequestError>> {
        match ready!(self.frames.poll_trailers(context)) {
            Ok(map) => self.trailers = map.map(|map| trailers(&map)).unwrap_or_default(),
            Err(_) => return Poll::Ready(Err(RequestError::Gone)),
        }
        self.is_complete = true;
        Poll::Ready(Ok(()))
    }
}

/// Converts trailers by way of their form in a chunked body.
fn trailers(map: &HeaderMap) -> Trailers {
    let fields = map.iter();
    let fields = fields.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
    let (mut end, mut trailers) = (Vec::new(), Trailers::default());
    let written = write::last_chunk(&mut end, fields);
    if written.is_ok() {
        let decoded = Chunked::default().decode_with_trailers(&end, |_| {}, &mut trailers);
        decoded.expect("what was just written");
    }
    trailers
}

impl Outgoing {
    fn body(&mut self) -> io::Result<&mut SendStream<Bytes>> {
        match self {
            Self::Header(_) => Err(io::ErrorKind::NotConnected.into()),
            Self::Body(body) => Ok(body),
        }
    }

    fn send_header(&mut self, header: Response<()>) -> io::Result<()> {
        if let Self::Header(respond) = self {
            *self = Self::Body(respond.send_response(header, false).map_err(broken_pipe)?);
        }
        Ok(())
    }

    /// Waits for flow-control capacity for at least one of `bytes`; returns the capacity.
    fn poll_capacity(
        &mut self,
        context: &mut Context<'_>,
        bytes: usize,
    ) -> Poll<io::Result<usize>> {
        let body = self.body()?;
        body.reserve_capacity(bytes);
        while body.capacity() == 0 {
            match ready!(body.poll_capacity(context)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(broken_pipe(error))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
        Poll::Ready(Ok(body.capacity()))
    }

    /// Sends a DATA frame with as many bytes as flow control permits.
    fn poll_data(&mut self, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let capacity = ready!(self.poll_capacity(context, data.len()))?;
        let count = data.len().min(capacity);
        let frame = Bytes::copy_from_slice(&data[..count]);
        self.body()?.send_data(frame, false).map_err(broken_pipe)?;
        Poll::Ready(Ok(count))
    }

    fn end(&mut self, trailers: &Trailers) -> io::Result<()> {
        let map = header::map(trailers.fields());
        let body = self.body()?;
        let ended = match map.is_empty() {
            true => body.send_data(Bytes::new(), true),
            false => body.send_trailers(map),
        };
        ended.map_err(broken_pipe)
    }
}

fn broken_pipe(_: h2::Error) -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

impl ClientStream for Stream {
    fn version(&self) -> &'static str {
        "HTTP/2.0"
    }

    fn peer(&self) -> &Peer {
        &self.connection.peer
    }

    fn local_address(&self) -> Option<SocketAddr> {
        None
    }

    fn number(&self) -> u64 {
        (self.connection.worker.stats.worker() as u64) << 32 | self.deadline.number as u64
    }

    fn timer(&self) -> &Timer {
        &self.deadline.timer
    }

    fn turn(&self) -> &Turn {
        &self.turn
    }

    fn failed_lookups(&self) -> &Cell<FailedLookups> {
        &self.connection.failed_lookups
    }

    fn limit_body(&self, bytes_max: u64) -> Result<(), Reject> {
        let mut incoming = self.incoming.borrow_mut();
        incoming.bytes_max = bytes_max;
        match incoming.remaining {
            Some(remaining) if incoming.bytes + remaining > bytes_max => Err(TOO_LARGE),
            _ => Ok(()),
        }
    }

    fn body_remaining(&self) -> Option<u64> {
        let incoming = self.incoming.borrow();
        match incoming.is_complete {
            true => Some(0),
            // Trailers may follow.
            false => incoming.remaining.filter(|&remaining| remaining > 0),
        }
    }

    fn body_received(&self) -> u64 {
        self.incoming.borrow().bytes
    }

    fn is_body_cut_off(&self) -> bool {
        false
    }

    fn is_body_unread(&self) -> bool {
        self.incoming.borrow().bytes == 0
    }

    fn trailers(&self) -> Trailers {
        self.incoming.borrow().trailers.clone()
    }

    fn poll_body(
        &self,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<Result<(), RequestError>> {
        let mut incoming = self.incoming.borrow_mut();
        let before = out.len();
        while !incoming.is_complete && out.len() == before {
            match ready!(incoming.poll_frame(context)) {
                Ok(Some(bytes)) => incoming.take(&bytes, out)?,
                Ok(None) => return incoming.poll_end(context),
                Err(_) => return Poll::Ready(Err(RequestError::Gone)),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn take_buffered(&self, _: &mut Vec<u8>) -> Result<(), Reject> {
        Ok(())
    }

    fn watch(&self, context: &mut Context<'_>) -> Result<(), RequestError> {
        let mut outgoing = self.outgoing.borrow_mut();
        let reset = match &mut *outgoing {
            Outgoing::Header(respond) => respond.poll_reset(context),
            Outgoing::Body(body) => body.poll_reset(context),
        };
        match reset {
            Poll::Ready(_) => Err(RequestError::Gone),
            Poll::Pending => Ok(()),
        }
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
        if is_due && let Outgoing::Header(respond) = &mut *self.outgoing.borrow_mut() {
            // A disconnected client is detected later.
            let _ = respond.send_informational(header::interim(status, lines(fields.as_bytes())));
        }
        Box::pin(future::ready(()))
    }

    fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut incoming = self.incoming.borrow_mut();
        while incoming.unread.is_empty() {
            match ready!(incoming.poll_frame(context))? {
                Some(bytes) => incoming.unread = bytes,
                None => return Poll::Ready(Ok(0)),
            }
        }
        let count = incoming.unread.len().min(buffer.len());
        buffer[..count].copy_from_slice(&incoming.unread.split_to(count));
        incoming.release(count);
        Poll::Ready(Ok(count))
    }

    fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut outgoing = self.outgoing.borrow_mut();
        outgoing.poll_data(context, bytes)
    }

    fn end_output(&self) {
        // Fails only when the client has reset the stream.
        let _ = self.outgoing.borrow_mut().end(&Trailers::default());
    }
}

impl ResponseSink for Stream {
    type Header = Response<()>;

    fn worker(&self) -> &Rc<Worker> {
        &self.connection.worker
    }

    fn header(&self, head: &Head<'_>) -> Response<()> {
        header::of(head, &self.connection.worker)
    }

    fn framing(&self, _: bool) -> send::Framing {
        send::Framing::ByFrames
    }

    fn poll_send(
        &self,
        context: &mut Context<'_>,
        header: &mut Option<Response<()>>,
        data: &[u8],
        _: bool,
    ) -> Poll<io::Result<Progress>> {
        let mut outgoing = self.outgoing.borrow_mut();
        let has_header = header.is_some();
        if let Some(header) = header.take() {
            outgoing.send_header(header)?;
        }
        let body_bytes = match outgoing.poll_data(context, data) {
            Poll::Pending if has_header => 0,
            sent => ready!(sent)?,
        };
        Poll::Ready(Ok(Progress {
            bytes: body_bytes,
            body_bytes,
            is_complete: body_bytes == data.len(),
        }))
    }

    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self.outgoing.borrow_mut() {
            Outgoing::Header(_) => Poll::Ready(Ok(())),
            body => body.poll_capacity(context, CAPACITY_BYTES).map_ok(|_| ()),
        }
    }

    fn poll_end(
        &self,
        _: &mut Context<'_>,
        header: &mut Option<Response<()>>,
        trailers: &Trailers,
    ) -> Poll<io::Result<Progress>> {
        let mut outgoing = self.outgoing.borrow_mut();
        if let Some(header) = header.take() {
            outgoing.send_header(header)?;
        }
        outgoing.end(trailers)?;
        Poll::Ready(Ok(Progress {
            bytes: 0,
            body_bytes: 0,
            is_complete: true,
        }))
    }

    fn is_writing(&self) -> bool {
        false
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

    fn try_send_header(&self, _: &mut Option<Response<()>>) -> io::Result<Progress> {
        unreachable!("frames are made in memory")
    }

    fn reset(&self) {
        if let Outgoing::Body(body) = &mut *self.outgoing.borrow_mut() {
            body.send_reset(Reason::INTERNAL_ERROR);
        }
    }
}
