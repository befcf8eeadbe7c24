//! Lines about failures, so few that a backend which is down under load does not flood standard error.
//!
//! The first failure at a backend for a reason is told at once. Of those that follow, one line per
//! [`INTERVAL`] tells how many there were. Each worker keeps its own account, which is as long as
//! there are backends that fail at this moment, and reasons why: these are words of our own and of the
//! system, never of a backend.

use std::time::{Duration, Instant};

/// Between two lines about the same.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// Failures that were told lately.
#[derive(Debug, Default)]
pub struct FailureReports(Vec<FailureReport>);

#[derive(Debug)]
struct FailureReport {
    backend: Option<u64>,
    reason: String,
    line: String,
    told: Instant,
    /// Not told yet.
    more: u64,
}

impl FailureReports {
    /// One more failure at a backend, or with `None` of the upstream as a whole. `say` is called with
    /// what `line` makes if it is to be told now.
    pub fn add(
        &mut self,
        now: Instant,
        backend: Option<u64>,
        reason: &str,
        line: impl FnOnce() -> String,
        say: impl FnOnce(&str),
    ) {
        let mut known = self.0.iter_mut();
        match known.find(|known| known.backend == backend && known.reason == reason) {
            Some(known) => known.more += 1,
            None => {
                let line = line();
                say(&line);
                self.0.push(FailureReport {
                    backend,
                    reason: reason.to_owned(),
                    line,
                    told: now,
                    more: 0,
                });
            }
        }
    }

    /// Says what is due, and forgets what has not happened again. Call it a few times per [`INTERVAL`].
    pub fn sweep(&mut self, now: Instant, mut say: impl FnMut(&str)) {
        self.0.retain_mut(|known| {
            if now.saturating_duration_since(known.told) < INTERVAL {
                return true;
            }
            if known.more == 0 {
                return false;
            }
            say(&format!("{}; and {} more", known.line, known.more));
            known.told = now;
            known.more = 0;
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Ten seconds of 1000 failures each, swept as a worker does: what is said, with its millisecond.
    fn said() -> Vec<(u32, String)> {
        let (start, mut said, mut failure_reports) =
            (Instant::now(), Vec::new(), FailureReports::default());
        for ms in 0..12_000 {
            let now = start + MS * ms;
            if ms < 10_000 {
                let line = || "refused".to_owned();
                failure_reports.add(now, Some(1), "refused", line, |line| {
                    said.push((ms, line.to_owned()));
                });
            }
            if ms % 100 == 99 {
                failure_reports.sweep(now, |line| said.push((ms, line.to_owned())));
            }
        }
        said
    }

    #[test]
    fn a_flood_is_a_line_per_second_and_loses_no_failure() {
        let said = said();
        assert_eq!(said[0], (0, "refused".to_owned()));
        assert_eq!(said[1], (1_099, "refused; and 1099 more".to_owned()));
        assert!(said.len() <= 12, "{said:?}");
        let of = |line: &str| match line.strip_prefix("refused; and ") {
            Some(more) => more.trim_end_matches(" more").parse::<u64>().expect("more"),
            None => 1,
        };
        assert_eq!(said.iter().map(|(_, line)| of(line)).sum::<u64>(), 10_000);
    }

    #[test]
    fn what_differs_is_told_at_once() {
        let (now, mut said, mut failure_reports) =
            (Instant::now(), Vec::new(), FailureReports::default());
        for (backend, reason) in [(1, "a"), (1, "b"), (2, "a"), (1, "a"), (2, "a")] {
            let line = || format!("{backend}{reason}");
            failure_reports.add(now, Some(backend), reason, line, |line| {
                said.push(line.to_owned());
            });
        }
        assert_eq!(said, ["1a", "1b", "2a"]);
    }

    #[test]
    fn after_a_quiet_second_it_is_new_again() {
        let (start, mut said, mut failure_reports) =
            (Instant::now(), Vec::new(), FailureReports::default());
        for ms in [0, 500, 1_600] {
            let now = start + MS * ms;
            failure_reports.sweep(now, |line| said.push(line.to_owned()));
            failure_reports.add(
                now,
                Some(1),
                "a",
                || format!("at {ms}"),
                |line| {
                    said.push(line.to_owned());
                },
            );
        }
        failure_reports.sweep(start + MS * 3_000, |line| said.push(line.to_owned()));
        assert_eq!(said, ["at 0", "at 0; and 1 more", "at 0; and 1 more"]);
        failure_reports.sweep(start + MS * 9_000, |line| said.push(line.to_owned()));
        assert!(failure_reports.0.is_empty());
    }
}
