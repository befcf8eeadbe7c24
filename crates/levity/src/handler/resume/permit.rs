//! The right to keep a stream, of which a client and all clients have a limited number.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::http::client::Client;
use crate::http::error::error;
use crate::http::response::Response;
use crate::mailboxes::set::{ClientStreamSlot, Refusal};
use crate::route::Resume;

impl Resume {
    /// Whether one more stream may be kept.
    pub(super) fn has_room(&self) -> bool {
        self.kept.load(Ordering::Relaxed) < self.of.streams
    }

    /// The right to keep one more stream.
    ///
    /// # Errors
    /// The refusal, if the client or all clients have as many as there may be.
    pub(super) fn permit(self: &Arc<Self>, client: &Client) -> Result<Permit, Response> {
        let max = self.of.streams_per_client;
        let slot = self.set.keep_stream(client.ip, max, Instant::now());
        let Some(slot) = slot else {
            self.set.shared.refusals.add(Refusal::StreamsPerClient);
            return Err(error(429, "too many streams of this client"));
        };
        let one_more = |kept: usize| (kept < self.of.streams).then_some(kept + 1);
        let kept = &self.kept;
        kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .map_err(|_| error(503, "too many streams"))?;
        Ok(Permit {
            resume: self.clone(),
            _slot: slot,
        })
    }
}

/// The right to keep one stream, until it is dropped.
pub struct Permit {
    pub resume: Arc<Resume>,
    _slot: ClientStreamSlot,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.resume.kept.fetch_sub(1, Ordering::Relaxed);
    }
}
