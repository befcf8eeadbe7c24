//! The right to keep a stream, of which a client and all clients have a limited number.

use std::time::Instant;

use tokio::sync::OwnedSemaphorePermit;

use crate::mailboxes::set::{ClientStreamSlot, Refusal};
use crate::message::client::Client;
use crate::upstream::proxy::Resume;

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
    pub(super) fn permit(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        if self.set.shared.budget.try_reserve_to_read(0).is_none() {
            return Err(Refusal::ResumeMemory);
        }
        let permit = self.permits.clone().try_acquire_owned();
        permit.map_err(|_| Refusal::Streams)
    }
}
