//! The body of a request, and the client's end of an exchange.

use std::future::{Future, poll_fn};
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use levity_config::Limits;
use levity_net::{Peer, Timer, Turn};
use levity_telemetry::stall;
use levity_wire::Reject;
use levity_wire::http1::Trailers;

use super::gathered::Gathered;
use crate::message::fields::Fields;
use crate::message::request::RequestError;
use crate::shares::claim::{Claims, WAIT_MAX};

/// The refusal of a body that is longer than its limit.
pub const BODY_TOO_LARGE: Reject = Reject {
    status: 413,
    reason: "the request's body is larger than `body_bytes` allows",
};

/// Whether clients end an upload at a response with this status, because they need not go on: curl does. After a success they go on.
pub fn ends_upload(status: u16) -> bool {
    status >= 300
}

/// The refusal of a body for which there was no room in time.
pub const NO_ROOM: &str = "too many request bodies are being received";

/// The maximum number of bytes of a body that are taken at a time: whoever takes them may have to wait for an
/// application, and the client may send as many more.
pub const PART_BYTES_MAX: usize = 64 * 1024;

/// The client's end of an exchange, in any version of HTTP. A method borrows the connection only for the call.
pub trait ClientStream {
    /// The version of HTTP as written to the access log.
    fn version(&self) -> &'static str;

    /// The other end of the connection.
    fn peer(&self) -> &Peer;

    /// The local address of the connection; `None` except over TCP.
    fn local_address(&self) -> Option<SocketAddr>;

    /// A number that no other open stream of the process has.
    fn number(&self) -> u64;

    /// The number of the connection, which all of its streams have in common.
    fn connection(&self) -> u64 {
        self.number()
    }

    /// The deadline of the current wait of the exchange.
    fn timer(&self) -> &Timer;

    /// The bytes transferred for the client since the stream last yielded.
    fn turn(&self) -> &Turn;

    /// Limits the request body to `bytes_max`.
    ///
    /// # Errors
    /// 413 when Content-Length exceeds the limit.
    fn limit_body(&self, bytes_max: u64) -> Result<(), Reject>;

    /// Bytes of the body not read yet; `None` when the length is unknown.
    fn body_remaining(&self) -> Option<u64>;

    /// Whether no byte of the body has been read.
    fn is_body_unread(&self) -> bool;

    /// The trailers of the body; empty until it is complete.
    fn trailers(&self) -> Trailers;

    /// Whether the request has a body, or the stream takes other bytes after it.
    fn has_body(&self) -> bool {
        self.body_remaining() != Some(0)
    }

    /// What the stream keeps of the body counts as `claims` from now on, beyond what every connection may keep.
    fn count_body(&self, claims: &Rc<Claims>) {
        let _ = claims;
    }

    /// Gives back what the client may send of the body in advance: it waits for memory.
    fn yield_credit(&self) {}

    /// Whether the client may send more of the body now. If that changes, the timer of a wait for the client is cleared, and
    /// the task that waits for the body is woken.
    fn may_send_body(&self) -> bool {
        true
    }

    /// Reads bytes of the body and appends them to `out`, [`PART_BYTES_MAX`] at most. Ready after at least one byte, or when the
    /// body is complete.
    fn poll_body(
        &self,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<Result<(), RequestError>>;

    /// Appends the body to `out` if all of it was received together with the header, and there is room for it. Does not read.
    ///
    /// # Errors
    /// 413 when the body exceeds its limit.
    fn take_buffered(&self, claims: &Claims, out: &mut Gathered) -> Result<(), Reject>;

    /// Checks whether the client is still connected, and registers the task to be woken when that may have changed. A
    /// half-closed client counts as connected; see [`input_ended`](ClientStream::input_ended).
    ///
    /// # Errors
    /// When the client has disconnected.
    fn watch(&self, context: &mut Context<'_>) -> Result<(), RequestError>;

    /// Whether the client has half-closed the connection: it may still read, or be gone. Always false in versions in
    /// which the end of a request is not that of the connection.
    fn input_ended(&self) -> bool;

    /// Whether a response may end before the request: the rest of the body then does not delay what else the client asks for.
    fn may_leave_body(&self) -> bool;

    /// Whether the client waits for 100 (Continue) before it sends the body: it has said so, and sent nothing of it since.
    fn expects_continue(&self) -> bool;

    /// Sends an interim response (RFC 9110, 15.2). Does nothing if the version has none. A 100 is sent at most once,
    /// and only to a client that waits for it.
    fn inform<'a>(
        &'a self,
        status: u16,
        fields: &'a Fields,
    ) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

    /// After an upgrade: reads bytes from the client; 0 at the end.
    fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>;

    /// After an upgrade: writes bytes to the client.
    fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// After an upgrade: shuts down the sending side.
    fn end_output(&self);

    /// After an upgrade: ready when the client has reset its stream. The reset of a connection is an error of reading or writing.
    fn poll_reset(&self, context: &mut Context<'_>) -> Poll<()> {
        let _ = context;
        Poll::Pending
    }
}

/// Longer than a body waits for room: that wait ends by itself.
const NO_ROOM_TIME_MAX: Duration = WAIT_MAX.saturating_mul(2);

/// The maximum number of reads per poll from a body that is dropped.
const DROPPED_READS_MAX: usize = 2;

/// A handle on the body of a request and on the client that sends it.
#[derive(Clone)]
pub struct RequestBody {
    stream: Rc<dyn ClientStream>,
    /// `None` without a body.
    claims: Option<Rc<Claims>>,
    /// The request was derived from the client's, and has no body.
    is_absent: bool,
    /// It is absent here, and read later.
    is_withheld: bool,
    body_timeout: Duration,
    half_closed_timeout: Duration,
}

impl RequestBody {
    /// The body of the request on `stream`, which takes memory by `claims`; `None` without a body.
    pub fn new(stream: Rc<dyn ClientStream>, limits: &Limits, claims: Option<Rc<Claims>>) -> Self {
        claims.iter().for_each(|claims| stream.count_body(claims));
        Self {
            stream,
            claims,
            is_absent: false,
            is_withheld: false,
            body_timeout: limits.body_timeout,
            half_closed_timeout: limits.half_closed_timeout,
        }
    }

    /// An empty body with the same client.
    #[must_use]
    pub fn absent(&self) -> Self {
        Self {
            is_absent: true,
            ..self.clone()
        }
    }

    /// The same for a request before the one that the body is for: what the client sends meanwhile is kept.
    #[must_use]
    pub fn withheld(&self) -> Self {
        Self {
            is_withheld: true,
            ..self.absent()
        }
    }

    /// Limits the body to `bytes_max`.
    ///
    /// # Errors
    /// 413 when Content-Length exceeds the limit.
    pub fn limit(&self, bytes_max: u64) -> Result<(), Reject> {
        match self.is_absent {
            true => Ok(()),
            false => self.stream.limit_body(bytes_max),
        }
    }

    /// Bytes not read yet; `None` when the length is unknown.
    pub fn remaining(&self) -> Option<u64> {
        match self.is_absent {
            true => Some(0),
            false => self.stream.body_remaining(),
        }
    }

    /// Whether all of the body has been read.
    pub fn is_complete(&self) -> bool {
        self.remaining() == Some(0)
    }

    /// Whether no byte of the body has been read.
    pub fn is_unread(&self) -> bool {
        self.stream.is_body_unread()
    }

    /// The trailers; empty until the body is complete.
    pub fn trailers(&self) -> Trailers {
        match self.is_absent {
            true => Trailers::default(),
            false => self.stream.trailers(),
        }
    }

    /// The other end of the connection.
    pub fn peer(&self) -> &Peer {
        self.stream.peer()
    }

    /// The client's end of the exchange, for a tunnel after an upgrade.
    pub fn stream(&self) -> &Rc<dyn ClientStream> {
        &self.stream
    }

    /// Takes for the exchange; `None` without a body.
    pub fn claims(&self) -> Option<&Rc<Claims>> {
        self.claims.as_ref()
    }

    /// The deadline of the current wait of the exchange.
    pub fn timer(&self) -> &Timer {
        self.stream.timer()
    }

    /// The time-out for the next bytes of the body.
    pub fn body_timeout(&self) -> Duration {
        self.body_timeout
    }

    /// How long to wait for the client when its time-out is `timeout`. One that may not send is not slow; but what it holds has
    /// stalled, so that others may get it.
    pub fn client_time(&self, timeout: Duration) -> Duration {
        match self.stream.may_send_body() {
            true => timeout,
            false => Duration::MAX,
        }
    }

    /// How long a half-closed client may wait for an application.
    pub fn half_closed_timeout(&self) -> Duration {
        self.half_closed_timeout
    }

    /// Whether the client has half-closed the connection; see [`ClientStream::input_ended`].
    pub fn input_ended(&self) -> bool {
        self.stream.input_ended()
    }

    /// Checks whether the client is still connected; see [`ClientStream::watch`].
    ///
    /// # Errors
    /// When the client has disconnected.
    pub fn watch(&self, context: &mut Context<'_>) -> Result<(), RequestError> {
        if self.is_absent && !self.is_withheld {
            self.drop_received(context)?;
        }
        self.stream.watch(context)
    }

    /// Reads the received part of the client's body and drops it. No other code reads it, and a disconnect is detected
    /// only after it.
    fn drop_received(&self, context: &mut Context<'_>) -> Result<(), RequestError> {
        let mut dropped = Vec::new();
        for _ in 0..DROPPED_READS_MAX {
            if self.stream.body_remaining() == Some(0) {
                return Ok(());
            }
            match self.stream.poll_body(context, &mut dropped) {
                // A malformed or too large body never ends: the connection closes after the response.
                Poll::Ready(Ok(()) | Err(RequestError::Refused(_))) => dropped.clear(),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => return Ok(()),
            }
        }
        context.waker().wake_by_ref();
        Ok(())
    }

    /// Whether the request was derived from the client's, which may have a body.
    pub fn is_absent(&self) -> bool {
        self.is_absent
    }

    /// Sends an interim response; see [`ClientStream::inform`].
    pub async fn inform(&self, status: u16, fields: &Fields) {
        self.stream.inform(status, fields).await;
    }

    /// Counts `bytes` transferred for this client, and yields to other connections when its share is used up.
    pub async fn give_way(&self, bytes: usize) {
        self.stream.turn().spend(bytes).await;
    }

    /// Appends the body to `out` if all of it was received together with the header, and there is room for it. Does not read.
    ///
    /// # Errors
    /// 413 when the body exceeds its limit.
    pub fn take_buffered(&self, out: &mut Gathered) -> Result<(), Reject> {
        match &self.claims {
            Some(claims) if !self.is_complete() => self.stream.take_buffered(claims, out),
            _ => Ok(()),
        }
    }

    /// Reads bytes of the body and appends them to `out`. Ready after at least one byte, or when the body is complete.
    /// While there is no room for them, nothing is read. Sets no time-out for the client.
    ///
    /// # Errors
    /// When the client disconnects, the body is malformed or too large, or there was no room in time.
    pub fn poll_receive(
        &self,
        context: &mut Context<'_>,
        out: &mut Gathered,
    ) -> Poll<Result<(), RequestError>> {
        if self.is_complete() {
            return Poll::Ready(Ok(()));
        }
        if let Some(claims) = &self.claims
            && !self.try_room(out)
        {
            let room = ready!(out.poll_room(claims, self.part_bytes(), context));
            room.map_err(|_| RequestError::Shortage)?;
        }
        out.add(|bytes| self.stream.poll_body(context, bytes))
    }

    /// Takes room for the next part, if there is some without a wait.
    pub fn try_room(&self, out: &mut Gathered) -> bool {
        let Some(claims) = &self.claims else {
            return true;
        };
        let mut has_room =
            || !out.waits_for_room() && out.try_room(claims, self.part_bytes()).is_ok();
        has_room() || {
            self.stream.yield_credit();
            has_room()
        }
    }

    /// The maximum size of the next part.
    fn part_bytes(&self) -> usize {
        let left = self.remaining().unwrap_or(u64::MAX);
        left.min(PART_BYTES_MAX as u64) as usize
    }

    /// Whether a half-closed client has waited too long for an application. The first call after the timer was cleared
    /// starts the wait.
    pub fn poll_half_closed(&self, context: &mut Context<'_>) -> bool {
        let timer = self.timer();
        if !timer.is_set() {
            timer.set(stall::poll_start() + self.half_closed_timeout);
        }
        timer.poll_expired(context)
    }

    /// Whether a response may end before the request; see [`ClientStream::may_leave_body`].
    pub fn may_be_left(&self) -> bool {
        self.stream.may_leave_body()
    }

    /// Whether the client waits for 100 (Continue) before it sends the body.
    pub fn expects_continue(&self) -> bool {
        self.stream.expects_continue()
    }

    /// Sends 100 (Continue) if the client waits for it (RFC 9110, 10.1.1).
    pub async fn send_continue(&self) {
        self.inform(100, &Fields::default()).await;
    }

    /// Waits for more of the body, at most `limits.body_timeout`, and appends it to `out`. Before that it waits until there is
    /// room.
    ///
    /// # Errors
    /// When the client is too slow or disconnects, the body is malformed or too large, or there was no room in time.
    pub async fn receive(&self, out: &mut Gathered) -> Result<(), RequestError> {
        let mut waited_for_room = false;
        self.timer().clear();
        poll_fn(|context| {
            let received = self.poll_receive(context, out);
            if received.is_ready() {
                return received;
            }
            let waits_for_room = out.waits_for_room();
            if mem::replace(&mut waited_for_room, waits_for_room) && !waits_for_room {
                // The client need not have sent while nobody read.
                self.timer().clear();
            }
            match waits_for_room {
                // It moves no bytes either, so that others may get what it holds.
                true => self.poll_timer(context, NO_ROOM_TIME_MAX, RequestError::Shortage),
                false => self.poll_client(context),
            }
        })
        .await
    }

    /// Ready when the client is too slow.
    fn poll_client(&self, context: &mut Context<'_>) -> Poll<Result<(), RequestError>> {
        self.poll_timer(
            context,
            self.client_time(self.body_timeout),
            RequestError::Timeout,
        )
    }

    /// Ready with `late` when the client has moved no byte for `time`, or sooner if others need what it holds.
    fn poll_timer(
        &self,
        context: &mut Context<'_>,
        time: Duration,
        late: RequestError,
    ) -> Poll<Result<(), RequestError>> {
        let timer = self.timer();
        if !timer.is_set() {
            timer.set_for_client(Instant::now(), time);
        }
        match timer.poll_expired(context) {
            true => Poll::Ready(Err(late)),
            false => Poll::Pending,
        }
    }

    /// Reads the rest of the body and drops it.
    ///
    /// # Errors
    /// When the client is too slow or disconnects, or the body is malformed or too large.
    pub async fn discard(&self) -> Result<(), RequestError> {
        while !self.is_complete() {
            self.timer().clear();
            let dropped = poll_fn(|context| {
                // It is in memory only during the poll, and so takes no share.
                let mut dropped = Vec::new();
                match self.stream.poll_body(context, &mut dropped) {
                    Poll::Ready(received) => Poll::Ready(received.map(|()| dropped.len())),
                    Poll::Pending => self.poll_client(context).map_ok(|()| 0),
                }
            });
            self.give_way(dropped.await?).await;
        }
        self.timer().clear();
        Ok(())
    }
}
