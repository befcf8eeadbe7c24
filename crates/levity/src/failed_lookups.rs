//! Names that do not exist, and how often one connection may send the disk after them.
//!
//! A name that the kernel does not remember costs a trip to the disk, and whoever makes names up can
//! make one up for every request. A connection that has had `limits.absent_trips` such trips within a
//! second waits before the next, so that it keeps to that rate. It is not refused: the next name may
//! be that of a file, and the connection that of a proxy with many clients behind it.

use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

/// What a connection has had of its share.
#[derive(Debug, Clone, Copy, Default)]
pub struct FailedLookups {
    /// When all of it will be there again. Each trip for nothing takes 1/`per_second` of a second of it;
    /// there is one second of it in all. (The generic cell rate algorithm.)
    replete: Option<Instant>,
}

impl FailedLookups {
    /// A trip at `now` was for nothing.
    pub fn add(&mut self, now: Instant, per_second: u32) {
        let since = self.replete.map_or(now, |replete| replete.max(now));
        self.replete = Some(since + SECOND / per_second);
    }

    /// How long the next trip has to wait; `None` when it need not.
    pub fn wait(&self, now: Instant, per_second: u32) -> Option<Duration> {
        let after_one_more = self.replete?.max(now) + SECOND / per_second;
        let wait = after_one_more.saturating_duration_since(now + SECOND);
        (!wait.is_zero()).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seconds_worth_is_free_and_the_next_waits() {
        for per_second in [1, 7, 100] {
            let (mut failed_lookups, now) = (FailedLookups::default(), Instant::now());
            for trip in 0..per_second {
                assert_eq!(
                    failed_lookups.wait(now, per_second),
                    None,
                    "{trip} of {per_second}"
                );
                failed_lookups.add(now, per_second);
            }
            let wait = failed_lookups
                .wait(now, per_second)
                .expect("it has had its share");
            let one = SECOND / per_second;
            assert!(
                wait <= one && one - wait < Duration::from_micros(1),
                "{wait:?}"
            );
            assert_eq!(failed_lookups.wait(now + one, per_second), None);
        }
    }

    #[test]
    fn whoever_keeps_to_the_rate_never_waits() {
        let (mut failed_lookups, mut now) = (FailedLookups::default(), Instant::now());
        for _ in 0..1000 {
            assert_eq!(failed_lookups.wait(now, 10), None);
            failed_lookups.add(now, 10);
            now += SECOND / 10;
        }
    }

    #[test]
    fn a_flood_gets_the_rate() {
        let (mut failed_lookups, start) = (FailedLookups::default(), Instant::now());
        let mut now = start;
        for _ in 0..1000 {
            now += failed_lookups.wait(now, 100).unwrap_or_default();
            failed_lookups.add(now, 100);
        }
        let took = now - start;
        assert!((8.9..9.1).contains(&took.as_secs_f64()), "{took:?}");
    }
}
