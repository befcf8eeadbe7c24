//! Reports about a device that does not answer: when it stops answering, at intervals while that lasts, and when
//! it answers again, each with the number of jobs refused because of it.

use std::time::{Duration, Instant};

/// The interval between two reports while an outage lasts.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// A report on a device that does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// `st_dev`.
    pub device: u64,
    /// The stage of the outage.
    pub stage: Stage,
    /// Time without a completed job, up to now or until the device answered again.
    pub silent: Duration,
    /// Jobs refused or given up because of the outage since it began.
    pub refused: u64,
}

/// The stage of an outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The device is considered dead.
    Began,
    /// The device is still dead. Reported once per minute.
    GoesOn,
    /// The device has answered.
    Ended,
}

/// The present outage of one device, if any.
#[derive(Debug, Default)]
pub(super) struct OutageLog(Option<Open>);

#[derive(Debug)]
struct Open {
    /// When a job last completed.
    last_completion: Instant,
    last_report: Instant,
    refused: u64,
}

impl OutageLog {
    pub(super) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn refused(&mut self, jobs: usize) {
        if let Some(open) = &mut self.0 {
            open.refused += jobs as u64;
        }
    }

    /// The report that is due at `now` for `device`, which has been silent since `silent_since` if it is dead.
    pub(super) fn check(
        &mut self,
        device: u64,
        now: Instant,
        silent_since: Option<Instant>,
    ) -> Option<Outage> {
        let stage = match (&mut self.0, silent_since) {
            (None, None) => return None,
            (None, Some(_)) => Stage::Began,
            (Some(_), None) => Stage::Ended,
            (Some(open), Some(_)) if now - open.last_report < REPORT_INTERVAL => return None,
            (Some(_), Some(_)) => Stage::GoesOn,
        };
        let open = self.0.get_or_insert(Open {
            last_completion: silent_since.unwrap_or(now),
            last_report: now,
            refused: 0,
        });
        open.last_report = now;
        let outage = Outage {
            device,
            stage,
            silent: now - open.last_completion,
            refused: open.refused,
        };
        if stage == Stage::Ended {
            self.0 = None;
        }
        Some(outage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_is_reported_once() {
        let (mut log, start) = (OutageLog::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        log.refused(1);
        assert_eq!(log.check(7, at(1), None), None);
        let mut look = |seconds, dead: bool, jobs| {
            let outage = log.check(7, at(seconds), dead.then_some(start))?;
            log.refused(jobs);
            Some((outage.stage, outage.silent.as_secs(), outage.refused))
        };
        assert_eq!(look(5, true, 20), Some((Stage::Began, 5, 0)));
        assert_eq!(look(64, true, 0), None);
        assert_eq!(look(65, true, 3), Some((Stage::GoesOn, 65, 20)));
        assert_eq!(look(70, false, 0), Some((Stage::Ended, 70, 23)));
        assert_eq!(look(71, false, 0), None);
        assert_eq!(look(80, true, 0), Some((Stage::Began, 80, 0)));
    }
}
