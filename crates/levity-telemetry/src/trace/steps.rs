//! The time that one request spent in each step, on the monotonic clock.
//!
//! A step ends where the next begins, so one look at the clock serves both.

use std::time::{Duration, Instant};

use crate::step::Step;

/// The time of each step. A step that was taken twice has the sum.
// In nanoseconds, 0 for a step that was not taken: every request counts these several times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times([u64; Step::TIMED.len()]);

impl Times {
    /// The steps that were taken, with their times, in the order of the steps.
    pub fn iter(&self) -> impl Iterator<Item = (Step, Duration)> {
        let of = |(step, ns)| (ns > 0).then(|| (step, Duration::from_nanos(ns)));
        Step::TIMED.iter().copied().zip(self.0).filter_map(of)
    }

    /// Nanoseconds, in the order of [`Step::TIMED`]; 0 for a step that was not taken.
    pub fn as_nanos(&self) -> &[u64; Step::TIMED.len()] {
        &self.0
    }

    /// Adds `time` to a step of [`Step::TIMED`]; 1 ns at least, where the clock is too coarse.
    pub(super) fn add(&mut self, step: Step, time: Duration) {
        let ns = time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos());
        if let Some(index) = step.index() {
            self.0[index] += ns.max(1);
        }
    }
}

/// Beginnings of steps at most. A request takes the eight, may receive a body between two of them, may go from
/// one application to a file or to another application, may send an error in place of what failed, and ends.
const MARKS_MAX: usize = 16;

/// A stopwatch that goes from step to step. It only notes when each begins: a subtraction between two looks at
/// the clock costs half as much as a look.
#[derive(Debug)]
pub(super) struct Stopwatch {
    waited: Option<Duration>,
    began: [Instant; MARKS_MAX],
    steps: [Step; MARKS_MAX],
    count: usize,
}

impl Stopwatch {
    /// A stopwatch in the parse step, which began at `arrived`. `waited` is the accept step of the first request
    /// on a connection.
    pub(super) fn new(arrived: Instant, waited: Option<Duration>) -> Self {
        Self {
            waited,
            began: [arrived; MARKS_MAX],
            steps: [Step::Parse; MARKS_MAX],
            count: 1,
        }
    }

    /// Ends the current step at `now`, and begins `step`.
    pub(super) fn mark(&mut self, step: Step, now: Instant) {
        // One too many would count to the step before it.
        if self.count < MARKS_MAX {
            self.began[self.count] = now;
            self.steps[self.count] = step;
            self.count += 1;
        }
    }

    /// When the parse step began.
    pub(super) fn arrived(&self) -> Instant {
        self.began[0]
    }

    /// When the current step began, or the last one ended.
    pub(super) fn step_began(&self) -> Instant {
        self.began[self.count - 1]
    }

    /// The times of the steps that have ended.
    pub(super) fn times(&self) -> Times {
        let mut times = Times::default();
        if let Some(waited) = self.waited {
            times.add(Step::Accept, waited);
        }
        let began = &self.began[..self.count];
        for (step, pair) in self.steps.iter().zip(began.windows(2)) {
            times.add(*step, pair[1] - pair[0]);
        }
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_follow_each_other_without_a_gap() {
        let arrived = Instant::now();
        let mut steps = Stopwatch::new(arrived, None);
        for step in [Step::Route, Step::Resolve, Step::Filter, Step::Send] {
            steps.mark(step, Instant::now());
        }
        let end = Instant::now();
        steps.mark(Step::Idle, end);
        let times = steps.times();
        let total: Duration = times.iter().map(|(_, time)| time).sum();
        assert_eq!(total, end - arrived);
        let taken: Vec<_> = times.iter().map(|(step, _)| step.label()).collect();
        assert_eq!(taken, ["parse", "route", "resolve", "filter", "send"]);
    }

    #[test]
    fn one_step_too_many_loses_no_time() {
        let arrived = Instant::now();
        let mut steps = Stopwatch::new(arrived, None);
        for _ in 0..2 * MARKS_MAX {
            steps.mark(Step::Filter, Instant::now());
        }
        steps.mark(Step::Idle, Instant::now());
        let total: Duration = steps.times().iter().map(|(_, time)| time).sum();
        assert_eq!(total, steps.step_began() - arrived);
    }

    #[test]
    fn a_step_taken_twice_has_both_times() {
        let mut times = Times::default();
        let ms = Duration::from_millis;
        times.add(Step::Filter, ms(1));
        times.add(Step::Send, ms(5));
        times.add(Step::Filter, ms(2));
        let all: Vec<_> = times.iter().collect();
        assert_eq!(all, [(Step::Filter, ms(3)), (Step::Send, ms(5))]);
    }
}
