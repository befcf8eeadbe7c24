//! Sends files to clients without a copy, where the kernel can.

use std::cell::RefCell;
use std::io;

use levity_disk::{PageSender, SendThread};
use levity_net::TURN_BYTES_MAX;

use super::limit::Limit;

/// What sends files without a copy.
pub struct ZeroCopy {
    /// For cached bodies, where the kernel allows it; borrowed within one poll.
    pub pages: RefCell<Option<PageSender>>,
    /// For large files in the page cache.
    pub thread: Option<SendThread>,
    /// The maximum number of responses that the thread sends: each has a second descriptor of its socket.
    pub transfers: Limit,
    /// No sandbox refuses `splice`.
    pub(super) may_splice: bool,
}

impl ZeroCopy {
    /// For a worker that sends at most `transfers_max` large files at a time. May block.
    ///
    /// # Errors
    /// As [`SendThread::start`].
    pub fn start(transfers_max: usize) -> io::Result<Self> {
        // Tries the calls.
        let pages = PageSender::new(TURN_BYTES_MAX).ok();
        Ok(Self {
            may_splice: pages.is_some(),
            pages: RefCell::new(pages),
            thread: Some(SendThread::start()?),
            transfers: Limit::new(transfers_max),
        })
    }

    /// For a worker that copies.
    #[cfg(test)]
    pub fn none() -> Self {
        Self {
            pages: RefCell::default(),
            thread: None,
            transfers: Limit::new(0),
            may_splice: true,
        }
    }
}
