//! The time of mailboxes: when messages expire, and boxes are idle.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The clock follows the wall clock by at most one part in so many of the time that passes.
const FOLLOWS_BY: i64 = 100;

/// The clock of the process. Only its first use takes a lock.
static CLOCK: LazyLock<Clock> = LazyLock::new(|| Clock::new(Instant::now(), SystemTime::now()));

/// The time at `instant`, by a clock that begins with the wall clock and follows it slowly: one that is set to another year
/// neither ends everything at once, nor lets it live for a year. The same on all threads. Not for times of others, such as
/// those in tokens.
#[must_use]
pub fn steady_time(instant: Instant) -> SystemTime {
    CLOCK.at(instant)
}

/// Follows the wall clock. Owners do it before they sweep.
pub(crate) fn follow_wall() {
    CLOCK.follow(Instant::now(), SystemTime::now());
}

/// All times are in nanoseconds, which are enough for 292 years.
struct Clock {
    began: Instant,
    /// What the clock shows since 1970, without the time since it began.
    base_ns: AtomicI64,
    /// When `base_ns` was changed, after `began`.
    changed_ns: AtomicI64,
}

impl Clock {
    fn new(began: Instant, wall: SystemTime) -> Self {
        Self {
            began,
            base_ns: AtomicI64::new(nanoseconds(since_1970(wall))),
            changed_ns: AtomicI64::new(0),
        }
    }

    fn at(&self, instant: Instant) -> SystemTime {
        let base_ns = self.base_ns.load(Relaxed);
        let time_ns = base_ns.saturating_add(self.since_began(instant));
        UNIX_EPOCH + Duration::from_nanos(time_ns.max(0) as u64)
    }

    /// The wall clock shows `wall` at `instant`.
    fn follow(&self, instant: Instant, wall: SystemTime) {
        let (now_ns, changed_ns) = (self.since_began(instant), self.changed_ns.load(Relaxed));
        let most_ns = (now_ns - changed_ns) / FOLLOWS_BY;
        let is_own = || {
            let changed = &self.changed_ns;
            let taken = changed.compare_exchange(changed_ns, now_ns, Relaxed, Relaxed);
            taken.is_ok()
        };
        // Otherwise another thread has followed for this time.
        if most_ns > 0 && is_own() {
            let shown = since_1970(self.at(instant));
            let late_ns = nanoseconds(since_1970(wall)) - nanoseconds(shown);
            self.base_ns
                .fetch_add(late_ns.clamp(-most_ns, most_ns), Relaxed);
        }
    }

    fn since_began(&self, instant: Instant) -> i64 {
        nanoseconds(instant.saturating_duration_since(self.began))
    }
}

/// The time since the beginning of 1970.
pub(crate) fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
