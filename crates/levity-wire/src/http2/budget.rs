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

/// Content of fewer bytes earns nothing: a client may open its window byte by byte.
pub(super) const CONTENT_BYTES_MIN: usize = 256;

/// An update of a window by at least so many bytes costs nothing: some clients read in pieces of this size. Windows have a maximum, so
/// there cannot be many of them without content.
pub(super) const WINDOW_BYTES_MIN: i64 = 4096;

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
