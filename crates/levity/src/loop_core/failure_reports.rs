//! Rate-limited log lines about failures, so that a backend which is down under load does not flood standard
//! error.
//!
//! The first failure at a backend for a reason is logged at once. Repetitions are counted, and the count is
//! logged once per [`INTERVAL`]. Each worker has its own list. The list is bounded by the backends that fail
//! at present and the reasons; reasons are texts of this server and of the system, never of a backend.

use std::time::{Duration, Instant};

/// The interval between two lines about the same failure.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// Failures that were logged recently.
#[derive(Debug, Default)]
pub struct FailureReports(Vec<FailureReport>);

/// What failures have in common that are counted together, beside their reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The backend; `None` for the upstream as a whole.
    pub backend: Option<u64>,
    /// The request was tried again, so that the client has not seen the failure.
    pub is_retried: bool,
}

impl Key {
    /// A failure of the upstream as a whole, which a client has seen.
    pub const WHOLE: Self = Self {
        backend: None,
        is_retried: false,
    };
}

#[derive(Debug)]
struct FailureReport {
    key: Key,
    reason: String,
    line: String,
    logged: Instant,
    /// Repetitions that have not been logged.
    more: u64,
}

impl FailureReports {
    /// Adds a failure. Calls `log` with the result of `line` if it is to be logged now.
    pub fn add(
        &mut self,
        now: Instant,
        key: Key,
        reason: &str,
        line: impl FnOnce() -> String,
        log: impl FnOnce(&str),
    ) {
        let mut known = self.0.iter_mut();
        match known.find(|known| known.key == key && known.reason == reason) {
            Some(known) => known.more += 1,
            None => {
                let line = line();
                log(&line);
                self.0.push(FailureReport {
                    key,
                    reason: reason.to_owned(),
                    line,
                    logged: now,
                    more: 0,
                });
            }
        }
    }

    /// Logs the counts that are due, and removes failures that have not recurred. Call it a few times per
    /// [`INTERVAL`].
    pub fn sweep(&mut self, now: Instant, mut log: impl FnMut(&str)) {
        self.0.retain_mut(|known| {
            if now.saturating_duration_since(known.logged) < INTERVAL {
                return true;
            }
            if known.more == 0 {
                return false;
            }
            log(&format!("{}; and {} more", known.line, known.more));
            known.logged = now;
            known.more = 0;
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(backend: u64) -> Key {
        let backend = Some(backend);
        Key {
            backend,
            ..Key::WHOLE
        }
    }

    /// Ten seconds of 1000 failures each, swept as a worker does: the log lines with their times in
    /// milliseconds.
    fn logged() -> Vec<(u32, String)> {
        let (start, mut logged, mut failure_reports) =
            (Instant::now(), Vec::new(), FailureReports::default());
        for ms in 0..12_000 {
            let now = start + MS * ms;
            if ms < 10_000 {
                let line = || "refused".to_owned();
                failure_reports.add(now, at(1), "refused", line, |line| {
                    logged.push((ms, line.to_owned()));
                });
            }
            if ms % 100 == 99 {
                failure_reports.sweep(now, |line| logged.push((ms, line.to_owned())));
            }
        }
        logged
    }

    #[test]
    fn a_flood_is_logged_once_per_second_with_every_failure_counted() {
        let logged = logged();
        assert_eq!(logged[0], (0, "refused".to_owned()));
        assert_eq!(logged[1], (1_099, "refused; and 1099 more".to_owned()));
        assert!(logged.len() <= 12, "{logged:?}");
        let of = |line: &str| match line.strip_prefix("refused; and ") {
            Some(more) => more.trim_end_matches(" more").parse::<u64>().expect("more"),
            None => 1,
        };
        assert_eq!(logged.iter().map(|(_, line)| of(line)).sum::<u64>(), 10_000);
    }

    #[test]
    fn different_failures_are_logged_at_once() {
        let (now, mut logged, mut failure_reports) =
            (Instant::now(), Vec::new(), FailureReports::default());
        for (backend, reason) in [(1, "a"), (1, "b"), (2, "a"), (1, "a"), (2, "a")] {
            let line = || format!("{backend}{reason}");
            failure_reports.add(now, at(backend), reason, line, |line| {
                logged.push(line.to_owned());
            });
        }
        assert_eq!(logged, ["1a", "1b", "2a"]);
    }

    #[test]
    fn a_failure_is_forgotten_after_a_quiet_second() {
        let (start, mut logged, mut failure_reports) =
            (Instant::now(), Vec::new(), FailureReports::default());
        for ms in [0, 500, 1_600] {
            let now = start + MS * ms;
            failure_reports.sweep(now, |line| logged.push(line.to_owned()));
            failure_reports.add(
                now,
                at(1),
                "a",
                || format!("at {ms}"),
                |line| {
                    logged.push(line.to_owned());
                },
            );
        }
        failure_reports.sweep(start + MS * 3_000, |line| logged.push(line.to_owned()));
        assert_eq!(logged, ["at 0", "at 0; and 1 more", "at 0; and 1 more"]);
        failure_reports.sweep(start + MS * 9_000, |line| logged.push(line.to_owned()));
        assert!(failure_reports.0.is_empty());
    }
}
