//! The body of a request whose response has ended before it.

use std::task::{Context, Poll};
use std::time::Instant;

use super::Stream;
use crate::http::h2::conn::LINGER_TIME_MAX;
use crate::http::request_body::ClientStream as _;

impl Stream {
    /// Whether the client may send more of the body.
    pub fn has_open_body(&self) -> bool {
        self.with_body(|body| body.is_open())
    }

    /// Lets [`poll_linger`](Self::poll_linger) drop the rest of the body, of any length.
    pub fn begin_linger(&self) {
        // What has arrived may have exceeded an earlier limit.
        let _ = self.limit_body(u64::MAX);
        self.timer.set(Instant::now() + LINGER_TIME_MAX);
    }

    /// Drops the body. Ready at its end, or two seconds after [`begin_linger`](Self::begin_linger). The client has seen the response by
    /// then, and need not send more: a reset right after the response is a failure for curl.
    pub fn poll_linger(&self, context: &mut Context<'_>) -> Poll<()> {
        while self.has_open_body() && !self.timer.poll_expired(context) {
            if self.poll_body(context, &mut Vec::new()).is_pending() {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }
}
