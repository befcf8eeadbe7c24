//! What a client may cost beside its requests. Without a clock: what is of use earns what the rest costs.

use super::Failure;

/// What a connection begins with, and the most that it can have.
const START: u32 = 10_000;

/// A budget of a connection.
#[derive(Debug)]
pub(super) struct Budget(u32);

impl Default for Budget {
    fn default() -> Self {
        Self(START)
    }
}

/// What a frame without use costs: settings, pings, priorities, updates of windows, those without content, and unknown ones.
pub(super) const FRAME: u32 = 1;

/// What a stream costs that the client resets, or that is reset because of what it has sent: a request may have been begun for nothing.
pub(super) const RESET: u32 = 20;

/// What a request earns. Less than [`RESET`]: a client that resets each of its requests is stopped after a thousand.
pub(super) const REQUEST: u32 = 10;

/// What a response earns that has ended.
pub(super) const RESPONSE: u32 = 20;

/// What a frame with content earns, in both directions: two windows may be updated for it.
pub(super) const CONTENT: u32 = 2;

impl Budget {
    pub fn earn(&mut self, value: u32) {
        self.0 = (self.0 + value).min(START);
    }

    /// # Errors
    /// When nothing is left.
    pub fn spend(&mut self, cost: u32) -> Result<(), Failure> {
        let left = self.0.checked_sub(cost);
        self.0 = left.ok_or(Failure::too_much("too many frames of no use"))?;
        Ok(())
    }
}
