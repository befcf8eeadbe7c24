//! The end of a connection: because it is idle, because its worker drains, or by an error.

use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use levity_wire::http2;

use super::Conn;

/// How long a client may take to acknowledge the end of the connection.
const SHUTDOWN_TIME: Duration = Duration::from_secs(5);

/// How long bytes of the client are dropped after the end of the output, or of the response to a request that has not ended.
pub(in crate::http::h2) const LINGER_TIME_MAX: Duration = Duration::from_secs(2);

/// The maximum number of reads per poll while bytes are dropped.
const LINGER_READS_MAX: usize = 4;

impl Conn {
    /// Called while no exchange runs. Releases memory, and starts the idle time-out if there was a request since the last call.
    pub(in crate::http::h2) fn rest(&self) {
        // A malformed request leaves memory as well.
        self.wire.borrow_mut().shrink();
        if !self.is_in_use.replace(false) {
            return;
        }
        let now = self.quiet_since.get();
        if self.shutdown_since.get().is_some() {
            return self.timer().set(now + SHUTDOWN_TIME);
        }
        let idle_timeout = self.core().config().config.limits.idle_timeout;
        self.timer().set_idle(now, idle_timeout);
    }

    /// Ends the connection after the idle time-out, or when the worker drains: in two steps, so that requests that are on their way are
    /// answered (RFC 9113, 6.8). Returns whether the time for the second step is over.
    pub fn poll_timeout(&self, context: &mut Context<'_>) -> bool {
        let is_expired = self.timer().poll_expired(context);
        if !is_expired && !self.core().is_draining() {
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

    /// Tells the client that the connection ends. If the client does not reply in time, it can begin no more requests.
    pub(super) fn begin_shutdown(&self, now: Instant) {
        match self.shutdown_since.get() {
            None => {
                self.shutdown_since.set(Some(now));
                self.with_wire(http2::Connection::shut_down);
            }
            Some(since) if now >= since + SHUTDOWN_TIME => self.end_shutdown(),
            Some(_) => {}
        }
    }

    /// Tells the client which request was the last one, unless it knows.
    pub fn end_shutdown(&self) {
        self.with_wire(http2::Connection::end_shutdown);
    }

    /// Whether both sides know that the connection has ended.
    pub fn is_done(&self) -> bool {
        let mut wire = self.wire.borrow_mut();
        wire.is_done() && wire.out().is_empty()
    }

    /// Starts the time-out for the rest of the output.
    pub fn begin_finish(&self) {
        let send_timeout = self.core().config().config.limits.send_timeout;
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

    /// Shuts down the sending side. [`poll_linger`](Self::poll_linger) then reads what the client has sent: a close with unread bytes
    /// would reset the connection and discard what was just written.
    pub fn begin_linger(&self) {
        self.transport.borrow_mut().end_output();
        self.timer().set(Instant::now() + LINGER_TIME_MAX);
    }

    /// Drops what the client sends. Ready at its end, or two seconds after [`begin_linger`](Self::begin_linger).
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
