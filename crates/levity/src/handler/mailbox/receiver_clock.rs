//! How a receiver stays connected: it takes what it is sent, gets signs of life, and leaves at some time.

use std::hash::{BuildHasher as _, RandomState};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use levity_mailbox::{Encoded, Entry, LongForm, MessageId};
use levity_telemetry::access_log::End;
use levity_telemetry::stall;

use crate::http::held::HeldClient;
use crate::loop_core::LoopCore;

/// The time over which receivers leave a server that drains.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(10);

/// The maximum number of bytes of one receiver before others have their turn.
pub const TURN_BYTES_MAX: usize = 64 * 1024;

/// Why a stream ends that the client has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The box was removed.
    Removed,
    /// The publisher has said so.
    Finished,
    /// The application has not sent all of it.
    Truncated,
    /// The store failed.
    Failed,
    /// The receiver was too slow. Messages up to this one are gone.
    Gap(MessageId),
    /// The connection is old, or the server drains.
    Leaving,
}

/// Bytes on their way to a receiver.
#[derive(Default)]
pub struct Sending {
    bytes: Option<Encoded>,
    sent: usize,
    /// The client takes nothing at present.
    is_blocked: bool,
}

impl Sending {
    /// Sends `bytes` next. What was sent before has [ended](Self::poll), or was [let go](Self::let_go): then they are the same.
    pub fn start(&mut self, bytes: impl Into<Encoded>) {
        let bytes = bytes.into();
        debug_assert!(self.sent <= bytes.len());
        self.bytes = (!bytes.is_empty()).then_some(bytes);
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_none()
    }

    /// Lets the bytes go while the client takes nothing.
    pub fn let_go(&mut self) {
        self.bytes = None;
    }

    /// Sends the rest, to a client that `is_upgraded` or not, and counts it in `sent`. Ready with the number of bytes when all are sent, or with an error when the
    /// client has left, or takes nothing for `limits.send_timeout`.
    pub fn poll(
        &mut self,
        core: &LoopCore,
        client: &dyn HeldClient,
        context: &mut Context<'_>,
        sent: &mut u64,
        is_upgraded: bool,
    ) -> Poll<Result<usize, End>> {
        let Some(bytes) = &self.bytes else {
            return Poll::Ready(Ok(0));
        };
        let before = self.sent;
        let polled = match is_upgraded {
            true => client.poll_send_upgraded(context, bytes, &mut self.sent),
            false => client.poll_send(context, bytes, &mut self.sent),
        };
        let moved = self.sent - before;
        *sent += moved as u64;
        match polled {
            Poll::Ready(Ok(())) => {
                self.is_blocked = false;
                (self.bytes, self.sent) = (None, 0);
                Poll::Ready(Ok(moved))
            }
            Poll::Ready(Err(_)) => Poll::Ready(Err(End::ClientAbort)),
            Poll::Pending => {
                let has_taken = moved > 0;
                self.poll_blocked(core, client, context, has_taken).map(Err)
            }
        }
    }

    /// Ends the response in order, when all bytes are sent. Ready as well when the client takes nothing for `limits.send_timeout`.
    pub fn poll_end(
        &mut self,
        core: &LoopCore,
        client: &dyn HeldClient,
        context: &mut Context<'_>,
    ) -> Poll<End> {
        match client.poll_end(context) {
            Poll::Ready(Ok(())) => Poll::Ready(End::Complete),
            Poll::Ready(Err(_)) => Poll::Ready(End::ClientAbort),
            Poll::Pending => self.poll_blocked(core, client, context, false),
        }
    }

    fn poll_blocked(
        &mut self,
        core: &LoopCore,
        client: &dyn HeldClient,
        context: &mut Context<'_>,
        has_taken: bool,
    ) -> Poll<End> {
        if !self.is_blocked || has_taken {
            self.is_blocked = true;
            let send_timeout = core.config().config.limits.send_timeout;
            client.timer().set(stall::poll_start() + send_timeout);
        }
        if client.timer().poll_expired(context) {
            client.reset();
            return Poll::Ready(End::Timeout);
        }
        Poll::Pending
    }
}

/// A message on its way. A client that takes nothing makes its receiver hold no more of it than this: what was encoded is let go,
/// and encoded again.
pub struct Transit {
    pub entry: Rc<Entry>,
    /// What it shares with others of a long message.
    pub shared: Option<Rc<LongForm>>,
    /// The part that is being sent.
    pub part: u32,
    /// The number of its box.
    pub number: u16,
    /// Whether it is sent as text, once that is known.
    pub is_text: Option<bool>,
    /// What is being sent is all of it, and cannot be made again.
    pub is_whole: bool,
}

/// When a receiver that waits gets a sign of life, and when it leaves.
///
/// Times are in milliseconds, most of them since the beginning: instants would take three times the memory of each receiver.
pub struct Stay {
    began: Instant,
    heartbeat_ms: u32,
    heartbeat_at_ms: u32,
    ends_at_ms: u32,
    /// The server drains, and the time of the end has been chosen.
    is_leaving: bool,
}

/// What a receiver that waits has to do.
pub enum Due {
    /// It gets a sign of life.
    Heartbeat,
    /// It leaves.
    End,
}

impl Stay {
    /// A receiver that comes now, gets signs of life at intervals of `heartbeat`, and leaves after `rotate`, about.
    pub fn new(heartbeat: Duration, rotate: Duration) -> Self {
        let heartbeat_ms = milliseconds(heartbeat).max(1);
        Self {
            began: Instant::now(),
            heartbeat_ms,
            heartbeat_at_ms: heartbeat_ms,
            ends_at_ms: milliseconds(jittered(rotate)),
            is_leaving: false,
        }
    }

    /// The receiver leaves after `left`, if that is earlier.
    pub fn end_within(&mut self, left: Duration) {
        let ends_at_ms = self.now_ms().saturating_add(milliseconds(left));
        self.ends_at_ms = self.ends_at_ms.min(ends_at_ms);
    }

    fn now_ms(&self) -> u32 {
        milliseconds(stall::poll_start().saturating_duration_since(self.began))
    }

    /// Begins the time until the next sign of life anew.
    pub fn rest(&mut self) {
        self.heartbeat_at_ms = self.now_ms().saturating_add(self.heartbeat_ms);
    }

    /// Waits until something is due. Receivers that all left a draining server at once would come back at once.
    pub fn poll(
        &mut self,
        core: &LoopCore,
        client: &dyn HeldClient,
        context: &mut Context<'_>,
    ) -> Poll<Due> {
        let now_ms = self.now_ms();
        if core.is_draining() && !self.is_leaving {
            self.is_leaving = true;
            let drain_timeout = core.config().config.limits.drain_timeout;
            let time = drain_timeout.min(DRAIN_TIME_MAX) / 2;
            let leaves_at_ms = now_ms.saturating_add(milliseconds(time.mul_f32(fraction())));
            self.ends_at_ms = self.ends_at_ms.min(leaves_at_ms);
        }
        if now_ms >= self.ends_at_ms {
            return Poll::Ready(Due::End);
        }
        if now_ms >= self.heartbeat_at_ms {
            self.heartbeat_at_ms = now_ms.saturating_add(self.heartbeat_ms);
            return Poll::Ready(Due::Heartbeat);
        }
        let due_ms = self.heartbeat_at_ms.min(self.ends_at_ms);
        let timer = client.timer();
        timer.set(self.began + Duration::from_millis(due_ms.into()));
        let _ = timer.poll_expired(context);
        Poll::Pending
    }
}

/// 49 days at most.
fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// Ends the response such that the client sees that it is incomplete: without the last chunk, or by a reset.
pub fn cut(client: &dyn HeldClient) -> End {
    if client.stream().version() == "HTTP/1.0" {
        client.reset();
    }
    End::Error
}

/// A time between three quarters and five quarters of `time`, so that receivers do not come back all at once.
pub fn jittered(time: Duration) -> Duration {
    time.mul_f32(0.75 + fraction() / 2.0)
}

/// A random number from 0 to 1.
fn fraction() -> f32 {
    (RandomState::new().hash_one(0) % 1024) as f32 / 1024.0
}
