//! Keeps a body within the limits of bytes per second.
//!
//! A response takes bytes from its limits before it reads or receives them, so that it holds neither a buffer nor a disk while
//! it waits. What it did not send is given back at its end.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use super::{ResponseSink, SendError, Sender};
use crate::http::response::BodyStream;
use crate::rate_limit::charges::Charges;

/// The maximum number of bytes that a stream takes before it is known how many come next. It keeps them while it is
/// silent.
pub(super) const STREAM_BYTES_MAX: usize = 64 * 1024;

/// What a response may send.
#[derive(Default)]
pub(super) struct Throttle<'s> {
    /// `None` where no limit applies.
    charges: Option<&'s Charges<'s>>,
    /// Bytes that were taken from the limits, and not sent.
    allowance: usize,
    /// They may not leave before this instant.
    not_before: Option<Instant>,
}

impl<'s> Throttle<'s> {
    pub(super) fn new(charges: &'s Charges<'s>) -> Self {
        Self {
            charges: charges.limit_bytes().then_some(charges),
            ..Self::default()
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.charges.is_some()
    }

    /// The bytes that may leave without a look at the limits; the largest number where none applies.
    pub(super) fn allowance(&self) -> usize {
        match self.charges {
            Some(_) => self.allowance,
            None => usize::MAX,
        }
    }

    /// The number of bytes, up to `want`, that may leave now; at least one if one is wanted.
    ///
    /// # Errors
    /// When they may leave.
    pub(super) fn take(&mut self, want: usize) -> Result<usize, Instant> {
        let Some(charges) = self.charges.filter(|_| want > 0) else {
            return Ok(want);
        };
        if self.allowance == 0 {
            let grant = charges.bytes(want, Instant::now());
            (self.allowance, self.not_before) = (grant.bytes, grant.at);
        }
        match self.not_before.filter(|at| *at > Instant::now()) {
            Some(at) => Err(at),
            None => {
                self.not_before = None;
                Ok(want.min(self.allowance))
            }
        }
    }

    /// Counts bytes of the body that have left.
    pub(super) fn sent(&mut self, bytes: usize) {
        if self.is_on() {
            debug_assert!(bytes <= self.allowance, "taken before they are sent");
            self.allowance = self.allowance.saturating_sub(bytes);
        }
    }
}

impl Drop for Throttle<'_> {
    fn drop(&mut self) {
        if let Some(charges) = self.charges {
            charges.give_back(self.allowance);
        }
    }
}

impl<S: ResponseSink> Sender<'_, S> {
    /// Waits until bytes of the body may leave. Returns how many, up to `want`; at least one if one is wanted.
    pub(super) async fn grant(&mut self, want: usize) -> Result<usize, SendError> {
        match self.throttle.take(want) {
            Ok(bytes) => Ok(bytes),
            // Boxed: most responses do not wait.
            Err(at) => Box::pin(self.wait_for_grant(None, want, at)).await,
        }
    }

    /// The same while the upload to `stream` continues.
    pub(super) async fn grant_beside(
        &mut self,
        stream: &mut dyn BodyStream,
        want: usize,
    ) -> Result<usize, SendError> {
        match self.throttle.take(want) {
            Ok(bytes) => Ok(bytes),
            Err(at) => Box::pin(self.wait_for_grant(Some(stream), want, at)).await,
        }
    }

    /// Whether `want` bytes of the body have to wait.
    pub(super) fn has_to_wait(&mut self, want: usize) -> bool {
        self.throttle.take(want).is_err()
    }

    async fn wait_for_grant(
        &mut self,
        mut stream: Option<&mut (dyn BodyStream + '_)>,
        want: usize,
        mut at: Instant,
    ) -> Result<usize, SendError> {
        let sink = self.sink;
        self.held_file.count(sink.core());
        let granted = loop {
            sink.timer().set(at);
            let waited = poll_fn(|context| {
                if sink.timer().poll_expired(context) {
                    return Poll::Ready(Ok(()));
                }
                if let Some(stream) = &mut stream {
                    stream.poll_upload(context).map_err(SendError::Source)?;
                }
                match sink.watch(context) {
                    Ok(()) => Poll::Pending,
                    Err(_) => Poll::Ready(Err(SendError::Gone)),
                }
            });
            waited.await?;
            match self.throttle.take(want) {
                Ok(bytes) => break bytes,
                Err(later) => at = later,
            }
        };
        sink.timer().clear();
        Ok(granted)
    }
}
