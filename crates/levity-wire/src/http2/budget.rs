//! The budget of a connection: limits what a client costs besides its requests. Frames of use earn what the others cost, and so does
//! time, which the owner of the connection tells.

use super::Failure;

/// The budget at the start, and its maximum.
const START: u32 = 10_000;

/// A budget of a connection.
#[derive(Debug)]
pub(super) struct Budget(u32);

impl Default for Budget {
    fn default() -> Self {
        Self(START)
    }
}

/// The cost of a frame without use: SETTINGS, PING, PRIORITY, small WINDOW_UPDATE, empty DATA and unknown frames.
pub(super) const FRAME: u32 = 1;

/// The cost of a stream that the client resets, or that is reset for an error of the client: a request may have begun for nothing.
pub(super) const RESET: u32 = 20;

/// The gain of a request. Less than [`RESET`]: a client that resets each request is stopped after 900, unless it takes its time.
pub(super) const REQUEST: u32 = 10;

/// The gain of a complete response.
pub(super) const RESPONSE: u32 = 20;

/// The gain of a DATA frame in either direction: the client may update two windows for it.
pub(super) const CONTENT: u32 = 2;

/// DATA frames of a client with fewer bytes gain nothing, and neither do those to a client that were cut by its window: it may open
/// that byte by byte. A small message of an event stream gains as a large one.
pub(super) const CONTENT_BYTES_MIN: usize = 256;

/// The gain of a millisecond: that of a second pays for a thousand frames, or for the resets of 90 requests.
pub(super) const MILLISECOND: u32 = 1;

/// A WINDOW_UPDATE of at least as many bytes costs nothing: some clients read in pieces of this size. Windows have a maximum, so there
/// cannot be many updates without DATA.
pub(super) const WINDOW_BYTES_MIN: i64 = 4096;

impl Budget {
    pub fn earn(&mut self, value: u32) {
        self.0 = self.0.saturating_add(value).min(START);
    }

    /// # Errors
    /// When nothing is left.
    pub fn spend(&mut self, cost: u32) -> Result<(), Failure> {
        let left = self.0.checked_sub(cost);
        self.0 = left.ok_or(Failure::too_much("too many frames of no use"))?;
        Ok(())
    }
}
