//! A connection to a backend that carries one request at a time.

use std::future::poll_fn;
use std::io;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use levity_disk::Pipe;
use levity_net::Transport;
use levity_telemetry::stall;
use levity_wire::http1::Trailers;
use tokio::time;

use super::Upstream;
use super::backend::Backend;
use super::codec::{Codec, EncodeError, Event};
use super::connect::connect;
use super::failure::Failure;
use super::upstream_request::UpstreamRequest;

/// The size of most request headers, in bytes.
const HEAD_BYTES: usize = 1024;

/// The maximum of write buffer that an idle connection keeps, in bytes.
const OUTBOX_KEPT_MAX: usize = 4 * 1024;

/// The size of a read of the response to a ping, in bytes.
const PONG_BYTES_MAX: usize = 16;

/// A connection and the protocol state on it.
pub struct OwnConnection {
    /// The byte stream.
    pub transport: Transport,
    /// The protocol state.
    pub codec: Codec,
    /// The end of the last response.
    idle_since: Instant,
    /// Encoded bytes of the request that are not sent in full. Kept for its allocation.
    outbox: Vec<u8>,
    /// The part of `outbox` that has been sent.
    sent: usize,
}

impl OwnConnection {
    /// Connects to `backend`, one of `upstream`.
    ///
    /// # Errors
    /// As connect(2); `TimedOut` after `connect_timeout`; `InvalidData` for a failed handshake of TLS.
    pub async fn open(upstream: &Upstream, backend: &Backend) -> io::Result<Self> {
        let settings = &upstream.settings;
        let opening = time::timeout(settings.connect_timeout, connect(upstream, backend));
        let opened = opening.await;
        Ok(Self {
            transport: opened.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??,
            codec: Codec::new(settings.protocol),
            idle_since: Instant::now(),
            outbox: Vec::new(),
            sent: 0,
        })
    }

    /// See [`Connection::begin`](super::connection::Connection::begin).
    pub fn begin(&mut self, outgoing: &UpstreamRequest<'_>) -> Result<(), EncodeError> {
        self.outbox.reserve(HEAD_BYTES);
        self.outbox.extend_from_slice(&outgoing.proxy_header);
        self.codec.begin(outgoing, &mut self.outbox)
    }

    /// Encodes a piece of the request body, of at most [`Codec::room`] bytes.
    pub fn body(&mut self, piece: &[u8]) {
        self.codec.body(piece, &mut self.outbox);
    }

    /// Encodes the end of the request body.
    pub fn end_of_body(&mut self, trailers: &Trailers) {
        self.codec.end_of_body(trailers, &mut self.outbox);
    }

    /// See [`Codec::settle`].
    pub fn settle(&mut self) {
        self.codec.settle(&mut self.outbox);
    }

    /// Whether encoded bytes are left to send.
    pub fn has_unsent(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Sends some of them, and returns how many.
    pub fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let rest = &self.outbox[self.sent..];
        let count = ready!(self.transport.poll_write(context, rest))?;
        self.sent += count;
        if self.sent == self.outbox.len() {
            self.drop_unsent();
        }
        Poll::Ready(Ok(count))
    }

    /// Drops them.
    pub fn drop_unsent(&mut self) {
        self.outbox.clear();
        self.sent = 0;
    }

    /// Notes that it has no request. Keeps its write buffer for the next one, unless that is large.
    pub fn rest(&mut self) {
        self.drop_unsent();
        if self.outbox.capacity() > OUTBOX_KEPT_MAX {
            self.outbox = Vec::new();
        }
    }

    /// Notes the end of a response.
    pub fn ended(&mut self, now: Instant) {
        self.idle_since = now;
    }

    /// Reads once into `scratch` and passes the events to `event`. Returns the number of bytes read,
    /// including framing; zero means that the connection has ended.
    pub fn poll_events(
        &mut self,
        context: &mut Context<'_>,
        scratch: &mut [u8],
        event: &mut dyn FnMut(Event<'_>),
    ) -> Poll<(usize, Result<(), Failure>)> {
        let count = match ready!(self.transport.poll_read(context, scratch)) {
            Ok(count) => count,
            Err(error) => return Poll::Ready((0, Err(Failure::of_connection(&error)))),
        };
        Poll::Ready((count, self.decode(&scratch[..count], event)))
    }

    /// Like [`OwnConnection::poll_events`], for [plain bytes](Codec::plain_bytes): reads them into the spare capacity of
    /// `data`, which is empty, instead of passing them to `event`.
    pub fn poll_plain(
        &mut self,
        context: &mut Context<'_>,
        data: &mut Vec<u8>,
        event: &mut dyn FnMut(Event<'_>),
    ) -> Poll<(usize, Result<(), Failure>)> {
        let count = match ready!(self.transport.poll_append(context, data)) {
            Ok(count) => count,
            Err(error) => return Poll::Ready((0, Err(Failure::of_connection(&error)))),
        };
        let mut body_bytes = 0;
        let outcome = self.decode(data, &mut |decoded| match decoded {
            Event::Data(bytes) => body_bytes += bytes.len(),
            other => event(other),
        });
        // Bytes after the end of the body.
        data.truncate(body_bytes);
        Poll::Ready((count, outcome))
    }

    /// Like [`OwnConnection::poll_plain`], into `pipe`, which is empty. Panics if the transport has no socket.
    pub fn poll_fill(
        &mut self,
        context: &mut Context<'_>,
        pipe: &mut Pipe,
        event: &mut dyn FnMut(Event<'_>),
    ) -> Poll<(usize, Result<(), Failure>)> {
        let left = usize::try_from(self.codec.plain_bytes()).unwrap_or(usize::MAX);
        let len = left.min(pipe.capacity());
        let fill = |socket: BorrowedFd<'_>| pipe.fill(socket, None, len);
        Poll::Ready(match ready!(self.transport.poll_take(context, fill)) {
            Ok(0) => (0, self.decode(&[], event)),
            Ok(count) => {
                self.codec.skip(count as u64, event);
                (count, Ok(()))
            }
            Err(error) => (0, Err(Failure::of_connection(&error))),
        })
    }

    /// Decodes received `bytes`; none mean that the connection has ended.
    fn decode(&mut self, bytes: &[u8], event: &mut dyn FnMut(Event<'_>)) -> Result<(), Failure> {
        match bytes.len() {
            0 => self.codec.closed(event).map_err(|reject| {
                Failure::of_backend(502, "http_response_incomplete", reject.reason)
            }),
            _ => self
                .codec
                .decode(bytes, event)
                .map_err(Failure::of_invalid_response),
        }
    }

    /// Whether it can be used after an idle time of less than `age_max`, and of less than the backend allows.
    pub fn is_fresh(&mut self, now: Instant, age_max: Duration) -> bool {
        let announced = self.codec.idle_max();
        let age_max = announced.map_or(age_max, |announced| announced.min(age_max));
        now.saturating_duration_since(self.idle_since) < age_max && self.is_quiet()
    }

    /// Whether the backend still responds after an idle time, for protocols with a ping. Waits for the
    /// response, at most `timeout`.
    pub async fn is_alive(&mut self, timeout: Duration) -> bool {
        let quiet = stall::poll_start().saturating_duration_since(self.idle_since);
        let Some(ping) = self.codec.ping(quiet) else {
            return true;
        };
        let answered = Box::pin(time::timeout(timeout, self.send_ping(ping))).await;
        answered.is_ok_and(|alive| alive.unwrap_or(false))
    }

    /// Sends `ping` and returns whether the backend responds as its protocol has it.
    async fn send_ping(&mut self, ping: &[u8]) -> io::Result<bool> {
        let mut sent = 0;
        let mut bytes = [0; PONG_BYTES_MAX];
        poll_fn(|context| {
            while sent < ping.len() {
                let rest = &ping[sent..];
                sent += ready!(self.transport.poll_write(context, rest))?;
            }
            loop {
                let count = ready!(self.transport.poll_read(context, &mut bytes))?;
                if count == 0 {
                    return Poll::Ready(Ok(false));
                }
                match self.codec.pong(&bytes[..count]) {
                    Ok(true) => return Poll::Ready(Ok(true)),
                    Ok(false) => {}
                    Err(_) => return Poll::Ready(Ok(false)),
                }
            }
        })
        .await
    }

    /// Whether nothing has arrived and the connection is still open. Costs no system call unless the socket
    /// had an event.
    fn is_quiet(&mut self) -> bool {
        let read = self.transport.try_read(&mut [0]);
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}
