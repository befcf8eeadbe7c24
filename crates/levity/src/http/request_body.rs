//! What a client still sends of a request, and whether it still waits for the response.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use levity_config::Limits;
use levity_net::{Peer, Timer, Turn};
use levity_telemetry::stall::Watch;
use levity_wire::Reject;
use levity_wire::http1::Trailers;

use super::fields::Fields;
use super::request::NoRequest;
use crate::failed_lookups::FailedLookups;

/// The client's end of an exchange, in whatever version of HTTP. Each method borrows the connection for the call only.
pub trait ClientStream {
    /// The version of HTTP, as the access log names it.
    fn version(&self) -> &'static str;

    /// Who is at the other end of the connection.
    fn peer(&self) -> &Peer;

    /// The address at our end; `None` except over TCP.
    fn local_address(&self) -> Option<SocketAddr>;

    /// Unique among the streams that are open in the process.
    fn number(&self) -> u64;

    /// Limits every wait of the exchange.
    fn timer(&self) -> &Timer;

    /// The bytes that were moved for the client in this turn of the loop.
    fn turn(&self) -> &Turn;

    /// Lookups of the client that found nothing.
    fn failed_lookups(&self) -> &Cell<FailedLookups>;

    /// Limits the request's body to so many bytes.
    ///
    /// # Errors
    /// 413 when the request announces more.
    fn limit_body(&self, bytes_max: u64) -> Result<(), Reject>;

    /// Bytes of the body to come; `None` when only its end tells.
    fn body_left(&self) -> Option<u64>;

    /// Whether no byte of the body has been taken.
    fn is_body_untouched(&self) -> bool;

    /// The fields that came behind the body.
    fn trailers(&self) -> Trailers;

    /// Adds bytes of the body to `out`: ready when that is at least one, or when the body is complete.
    fn poll_body(
        &self,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<Result<(), NoRequest>>;

    /// Adds what has arrived of the body with the header of the request to `out`, if that is all of it.
    ///
    /// # Errors
    /// When it is no body.
    fn take_arrived(&self, out: &mut Vec<u8>) -> Result<(), Reject>;

    /// Looks after a client that waits for its response. One that has ended its side may still read:
    /// [`input_ended`](ClientStream::input_ended).
    ///
    /// # Errors
    /// When the client is gone.
    fn watch(&self, context: &mut Context<'_>) -> Result<(), NoRequest>;

    /// Whether the client has ended its side of the connection, and so may be gone: never where one request's end
    /// leaves the connection open.
    fn input_ended(&self) -> bool;

    /// Whether the client waits to be asked for the body.
    fn expects_continue(&self) -> bool;

    /// Sends an interim response (RFC 9110, 15.2), as far as the version knows it and, of 100, only one that the client
    /// waits for.
    fn inform<'a>(
        &'a self,
        status: u16,
        fields: &'a Fields,
    ) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

    /// After a change of protocol: reads what the client sends; no bytes mean that no more come.
    fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>;

    /// After a change of protocol: writes to the client.
    fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// After a change of protocol: tells the client that no more bytes follow.
    fn end_output(&self);
}

/// The body of a request, and a handle on the client that sends it.
#[derive(Clone)]
pub struct RequestBody {
    stream: Rc<dyn ClientStream>,
    /// A request that was derived from the client's has none.
    is_absent: bool,
    body_timeout: Duration,
    half_closed_timeout: Duration,
}

impl RequestBody {
    /// That of the request which `stream` carries.
    pub fn new(stream: Rc<dyn ClientStream>, limits: &Limits) -> Self {
        Self {
            stream,
            is_absent: false,
            body_timeout: limits.body_timeout,
            half_closed_timeout: limits.half_closed_timeout,
        }
    }

    /// No body, from the same client.
    #[must_use]
    pub fn absent(&self) -> Self {
        Self {
            is_absent: true,
            ..self.clone()
        }
    }

    /// Limits it to so many bytes.
    ///
    /// # Errors
    /// 413 when the request announces more.
    pub fn limit(&self, bytes_max: u64) -> Result<(), Reject> {
        match self.is_absent {
            true => Ok(()),
            false => self.stream.limit_body(bytes_max),
        }
    }

    /// Bytes to come; `None` when only its end tells.
    pub fn left(&self) -> Option<u64> {
        match self.is_absent {
            true => Some(0),
            false => self.stream.body_left(),
        }
    }

    /// Whether all of it is here.
    pub fn is_complete(&self) -> bool {
        self.left() == Some(0)
    }

    /// Whether no byte of it has been taken.
    pub fn is_untouched(&self) -> bool {
        self.stream.is_body_untouched()
    }

    /// The fields that came behind it.
    pub fn trailers(&self) -> Trailers {
        match self.is_absent {
            true => Trailers::default(),
            false => self.stream.trailers(),
        }
    }

    /// Who is at the other end of the connection.
    pub fn peer(&self) -> &Peer {
        self.stream.peer()
    }

    /// The client, for what follows a change of protocol.
    pub fn stream(&self) -> &Rc<dyn ClientStream> {
        &self.stream
    }

    /// Limits every wait of the exchange.
    pub fn timer(&self) -> &Timer {
        self.stream.timer()
    }

    /// How long the client may take for a part of the body.
    pub fn body_timeout(&self) -> Duration {
        self.body_timeout
    }

    /// How long a client that has ended its side is waited for.
    pub fn half_closed_timeout(&self) -> Duration {
        self.half_closed_timeout
    }

    /// Whether the client has ended its side.
    pub fn input_ended(&self) -> bool {
        self.stream.input_ended()
    }

    /// Looks after a client that waits for its response.
    ///
    /// # Errors
    /// When the client is gone.
    pub fn watch(&self, context: &mut Context<'_>) -> Result<(), NoRequest> {
        self.stream.watch(context)
    }

    /// Sends an interim response; see [`ClientStream::inform`].
    pub async fn inform(&self, status: u16, fields: &Fields) {
        self.stream.inform(status, fields).await;
    }

    /// Counts bytes moved for this client, and gives way to the others in time.
    pub async fn give_way(&self, bytes: usize) {
        self.stream.turn().spend(bytes).await;
    }

    /// Adds what has arrived with the header to `out`, if that is all of it.
    ///
    /// # Errors
    /// When it is no body.
    pub fn take_arrived(&self, out: &mut Vec<u8>) -> Result<(), Reject> {
        match self.is_absent {
            true => Ok(()),
            false => self.stream.take_arrived(out),
        }
    }

    /// Adds bytes of it to `out`: ready when that is at least one, or when the body is complete. The caller minds the
    /// time.
    ///
    /// # Errors
    /// When no more comes, or what comes is no body.
    pub fn poll_receive(
        &self,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<Result<(), NoRequest>> {
        match self.is_absent {
            true => Poll::Ready(Ok(())),
            false => self.stream.poll_body(context, out),
        }
    }

    /// Whether a wait for an application has lasted too long for a client that has ended its side. The wait begins
    /// with the first call since the timer was cleared.
    pub fn poll_half_closed(&self, context: &mut Context<'_>) -> bool {
        let timer = self.timer();
        if !timer.is_set() {
            timer.set(Watch::poll_began() + self.half_closed_timeout);
        }
        timer.poll_expired(context)
    }

    /// Whether the client waits to be asked for it.
    pub fn is_awaited(&self) -> bool {
        self.stream.expects_continue()
    }

    /// Asks the client for the body, if it waits to be asked (RFC 9110, 10.1.1).
    pub async fn ask_for(&self) {
        self.inform(100, &Fields::default()).await;
    }

    /// Waits for more of it, at most `limits.body_timeout`, and adds that to `out`.
    ///
    /// # Errors
    /// When no more comes, in time or at all, or what comes is no body.
    pub async fn receive(&self, out: &mut Vec<u8>) -> Result<(), NoRequest> {
        self.timer().set(Instant::now() + self.body_timeout);
        poll_fn(|context| match self.poll_receive(context, out) {
            Poll::Pending if self.timer().poll_expired(context) => {
                Poll::Ready(Err(NoRequest::Timeout))
            }
            received => received,
        })
        .await
    }

    /// Receives all of it and drops it.
    ///
    /// # Errors
    /// As [`RequestBody::receive`].
    pub async fn discard(&self) -> Result<(), NoRequest> {
        let mut dropped = Vec::new();
        while !self.is_complete() {
            self.receive(&mut dropped).await?;
            self.give_way(dropped.len()).await;
            dropped.clear();
        }
        self.timer().clear();
        Ok(())
    }
}
