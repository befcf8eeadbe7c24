//! Which files a worker compresses often on their way.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::name::Name;

/// The time in which requests are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// Requests for one file within [`WINDOW`] that make it popular. Each further time that there are as many, it is tried
/// again: the store may have been busy.
const REQUESTS_MIN: u32 = 4;

/// The maximum number of files that are counted; with more, the counts begin anew.
const FILES_MAX: usize = 4096;

/// The counts of one worker.
pub struct Candidates {
    requests: HashMap<Name, u32>,
    began: Instant,
}

impl Candidates {
    /// No requests yet.
    pub fn new(now: Instant) -> Self {
        Self {
            requests: HashMap::new(),
            began: now,
        }
    }

    /// Counts a request. Returns whether to make the variant.
    pub(super) fn count(&mut self, name: Name, now: Instant) -> bool {
        let is_over = now.saturating_duration_since(self.began) > WINDOW;
        if is_over || self.requests.len() >= FILES_MAX {
            self.requests.clear();
            self.began = now;
        }
        let requests = self.requests.entry(name).or_default();
        *requests += 1;
        requests.is_multiple_of(REQUESTS_MIN)
    }
}
