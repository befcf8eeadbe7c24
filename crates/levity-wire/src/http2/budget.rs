//! The budget of a connection: limits what a client costs besides its requests. Each frame costs; those of use earn it back and more,
//! and so does time, which the owner of the connection tells.

use super::Failure;

/// The budget at the start, and its maximum.
const START: u32 = 10_000;

/// A budget of a connection.
#[derive(Debug)]
pub(super) struct Budget {
    left: u32,
    /// The updates of windows that cost nothing. They have no maximum: a client with large windows may make many at once, and after
    /// the end of the streams that they are about.
    updates: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            left: START,
            updates: 0,
        }
    }
}

/// The cost of a frame of the client, of any type and on any stream, and of a stream whose window it opens by SETTINGS.
pub(super) const FRAME: u32 = 1;

/// The cost of a stream that the client resets, or that is reset for an error of the client: a request may have begun for nothing.
pub(super) const RESET: u32 = 20;

/// The gain of a request. Less than [`RESET`]: a client that resets each request is stopped after 900, unless it takes its time.
pub(super) const REQUEST: u32 = 10;

/// The gain of a complete response.
pub(super) const RESPONSE: u32 = 20;

/// The gain of a DATA frame in either direction: the client may update two windows for it.
const CONTENT: u32 = 2;

/// DATA frames of a client with fewer bytes of content only earn what they cost, and those to a client that were cut by its window
/// gain nothing: it may open that byte by byte. A small message of an event stream gains as a large one.
const CONTENT_BYTES_MIN: usize = 256;

/// The gain of a millisecond: that of a second pays for a thousand frames, or for the resets of 90 requests.
pub(super) const MILLISECOND: u32 = 1;

/// The bytes of content for which a client may update two windows once more: some read in pieces of this size.
const WINDOW_BYTES: usize = 4096;

impl Budget {
    pub fn earn(&mut self, value: u32) {
        self.left = self.left.saturating_add(value).min(START);
    }

    /// # Errors
    /// When nothing is left.
    pub fn spend(&mut self, cost: u32) -> Result<(), Failure> {
        let left = self.left.checked_sub(cost);
        self.left = left.ok_or(Failure::too_much("too many frames of no use"))?;
        Ok(())
    }

    /// A DATA frame with `bytes` of content begins on a stream whose body is read.
    pub fn received(&mut self, bytes: usize) {
        match bytes {
            0 => {}
            CONTENT_BYTES_MIN.. => self.earn(FRAME + CONTENT),
            _ => self.earn(FRAME),
        }
    }

    /// A DATA frame with `bytes` of content was sent, which may be as few because the window has no more.
    pub fn sent(&mut self, bytes: usize, fills_window: bool) {
        if !fills_window || bytes >= CONTENT_BYTES_MIN {
            self.earn(CONTENT);
            self.updates += 2 * (1 + bytes / WINDOW_BYTES) as u64;
        }
    }

    /// A window was opened. Only what was sent pays for that: the windows of a stream that has ended could be opened for ever, and
    /// that of another one half a million times by as much as usual clients do.
    pub fn updated(&mut self) {
        if let Some(left) = self.updates.checked_sub(1) {
            self.updates = left;
            self.earn(FRAME);
        }
    }
}
