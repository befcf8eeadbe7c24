//! The limit of failed lookups per connection.
//!
//! A missing name that is not in the kernel's cache costs a disk trip, and a client can request a new one
//! each time. Only a request that ends with 404 is taken for one: with `try`, a name that no file has may be that of a page of an
//! application. After `limits.absent_trips` failed lookups within a second, the next trip of a connection waits,
//! so that it keeps to that rate. It is delayed and not refused: the next name may exist, and the connection may
//! belong to a proxy with many clients.

use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

/// The failed lookups of a connection, by the generic cell rate algorithm.
#[derive(Debug, Clone, Copy, Default)]
pub struct FailedLookups {
    /// When the full allowance of one second is available again. Each failed lookup uses 1/`per_second` of a
    /// second of it.
    full_at: Option<Instant>,
}

impl FailedLookups {
    /// Adds `count` failed lookups at `now`.
    pub fn add(&mut self, count: u32, now: Instant, per_second: u32) {
        let full_at = self.full_at.map_or(now, |full_at| full_at.max(now));
        self.full_at = Some(full_at + SECOND / per_second * count);
    }

    /// Whether all of them were longer ago than a second at `now`.
    pub fn are_over(&self, now: Instant) -> bool {
        self.full_at.is_none_or(|full_at| full_at <= now)
    }

    /// The delay before the next trip; `None` when there is none.
    pub fn wait(&self, now: Instant, per_second: u32) -> Option<Duration> {
        let after_one_more = self.full_at?.max(now) + SECOND / per_second;
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
                failed_lookups.add(1, now, per_second);
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
            failed_lookups.add(1, now, 10);
            now += SECOND / 10;
        }
    }

    #[test]
    fn a_flood_gets_the_rate() {
        let (mut failed_lookups, start) = (FailedLookups::default(), Instant::now());
        let mut now = start;
        for _ in 0..1000 {
            now += failed_lookups.wait(now, 100).unwrap_or_default();
            failed_lookups.add(1, now, 100);
        }
        let took = now - start;
        assert!((8.9..9.1).contains(&took.as_secs_f64()), "{took:?}");
    }
}
