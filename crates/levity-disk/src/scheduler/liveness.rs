//! Whether a device still answers.
//!
//! A slow disk completes a job now and then, however long its queue is. A dead one (a network server that is
//! gone, a driver that hangs) completes none. So the criterion is not how long a job takes, but how long no
//! job has completed.

use std::time::{Duration, Instant};

/// A dead device gets one job as a trial. For this time other jobs wait for its result: a single job that hangs
/// for a reason of its own must not cause others to be refused.
const TRIAL_TIME_MAX: Duration = Duration::from_millis(250);

/// The liveness of one device.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    /// When a job last completed, or when the first of those in flight was started. `None` if none is in flight.
    last_progress: Option<Instant>,
    /// When the trial job of a dead device was started.
    trial_start: Option<Instant>,
    dead: bool,
}

impl Liveness {
    pub(super) fn is_dead(&self) -> bool {
        self.dead
    }

    /// When a job last completed, if the device is dead.
    pub(super) fn silent_since(&self) -> Option<Instant> {
        self.last_progress.filter(|_| self.dead)
    }

    /// Records that the engine gets a job.
    pub(super) fn started(&mut self, now: Instant) {
        self.last_progress.get_or_insert(now);
        if self.dead {
            self.trial_start = Some(now);
        }
    }

    /// Records that a job has completed; `idle` if none is in flight now.
    pub(super) fn completed(&mut self, now: Instant, idle: bool) {
        *self = Liveness {
            last_progress: (!idle).then_some(now),
            ..Liveness::default()
        };
    }

    /// Determines whether the device is dead at `now`.
    pub(super) fn check(&mut self, now: Instant, dead_after: Duration) -> bool {
        let silence = self
            .last_progress
            .map(|last_progress| now.saturating_duration_since(last_progress));
        self.dead = silence.is_some_and(|silence| silence >= dead_after);
        self.dead
    }

    /// Whether a job may start: the device is alive, or has no trial job yet.
    pub(super) fn may_start(&self) -> bool {
        !self.dead || self.trial_start.is_none()
    }

    /// Whether a job would not start soon; `room` if there is a slot for it.
    pub(super) fn is_hopeless(&self, now: Instant, room: bool) -> bool {
        let hangs = |start: Instant| now.saturating_duration_since(start) >= TRIAL_TIME_MAX;
        self.dead && self.trial_start.map_or(!room, hangs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEAD_AFTER: Duration = Duration::from_secs(5);

    #[test]
    fn an_idle_device_is_not_dead() {
        let (mut liveness, start) = (Liveness::default(), Instant::now());
        assert!(!liveness.check(start + 10 * DEAD_AFTER, DEAD_AFTER));
        liveness.started(start);
        liveness.completed(start, true);
        assert!(!liveness.check(start + 10 * DEAD_AFTER, DEAD_AFTER));
    }

    #[test]
    fn any_completion_is_a_sign_of_life() {
        let (mut liveness, start) = (Liveness::default(), Instant::now());
        liveness.started(start);
        liveness.started(start + DEAD_AFTER / 2);
        liveness.completed(start + DEAD_AFTER / 2, false);
        assert!(!liveness.check(start + DEAD_AFTER, DEAD_AFTER));
        assert!(liveness.check(start + DEAD_AFTER / 2 + DEAD_AFTER, DEAD_AFTER));
        liveness.completed(start + 9 * DEAD_AFTER, false);
        assert!(!liveness.is_dead() && liveness.may_start());
    }

    #[test]
    fn one_job_tries_a_dead_device() {
        let (mut liveness, start) = (Liveness::default(), Instant::now());
        liveness.started(start);
        let late = start + DEAD_AFTER;
        assert!(liveness.check(late, DEAD_AFTER));
        assert!(liveness.may_start() && !liveness.is_hopeless(late, true));
        assert!(liveness.is_hopeless(late, false), "no slot to try with");
        liveness.started(late);
        assert!(!liveness.may_start() && !liveness.is_hopeless(late, false));
        assert!(liveness.is_hopeless(late + TRIAL_TIME_MAX, true));
        assert!(liveness.check(late + TRIAL_TIME_MAX, DEAD_AFTER));
        liveness.completed(late + TRIAL_TIME_MAX, false);
        assert!(liveness.may_start() && !liveness.is_hopeless(late + DEAD_AFTER, false));
    }
}
