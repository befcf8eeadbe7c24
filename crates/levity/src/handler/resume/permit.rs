//! The right to keep a stream, of which a client and all clients have a limited number.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::http::client::Client;
use crate::mailboxes::set::{ClientStreamSlot, Refusal};
use crate::route::Resume;

impl Resume {
    /// Counts a request of `client` whose response may be kept; `None` if the client has as many as it may.
    pub(super) fn count(&self, client: &Client) -> Option<ClientStreamSlot> {
        let max = self.of.streams_per_client;
        self.set.keep_stream(client.ip, max, Instant::now())
    }

    /// The right to keep one more stream. A quarter of the memory is left to those that are kept already.
    ///
    /// # Errors
    /// Which limit is reached.
    pub(super) fn permit(self: &Arc<Self>, slot: ClientStreamSlot) -> Result<Permit, Refusal> {
        if self.set.shared.budget.try_reserve_to_read(0).is_none() {
            return Err(Refusal::ResumeMemory);
        }
        let one_more = |kept: usize| (kept < self.of.streams).then_some(kept + 1);
        let kept = &self.kept;
        kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .map_err(|_| Refusal::Streams)?;
        Ok(Permit {
            resume: self.clone(),
            _slot: slot,
        })
    }
}

/// The right to keep one stream, until it is dropped.
pub struct Permit {
    resume: Arc<Resume>,
    _slot: ClientStreamSlot,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.resume.kept.fetch_sub(1, Ordering::Relaxed);
    }
}
