//! Waiting for something to become true.

use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take that should happen soon: generous, for a busy machine.
pub const WAIT_MAX: Duration = Duration::from_secs(20);

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Polls until `condition` holds.
#[track_caller]
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    wait_within(WAIT_MAX, what, condition);
}

/// Polls until `condition` holds, `limit` at most; tells how long that took.
#[track_caller]
pub fn wait_within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        thread::sleep(POLL_INTERVAL);
    }
    start.elapsed()
}
