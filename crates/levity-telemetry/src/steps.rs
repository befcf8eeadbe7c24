//! How long one request spent in each step, on the monotonic clock.
//!
//! A step ends where the next begins, so one look at the clock serves both: a request that is answered
//! from memory costs five, its end included.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::step::Step;

/// The time of each step so far. A step that was taken twice has both times.
// In nanoseconds, 0 for a step that was not taken: every request counts these several times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times([u64; Step::TIMED.len()]);

impl Times {
    /// Each step that was taken, in the order of the steps.
    pub fn iter(&self) -> impl Iterator<Item = (Step, Duration)> {
        let of = |(step, ns)| (ns > 0).then(|| (step, Duration::from_nanos(ns)));
        Step::TIMED.into_iter().zip(self.0).filter_map(of)
    }

    /// In nanoseconds, by the order of [`Step::TIMED`]; 0 for a step that was not taken.
    pub fn as_nanos(&self) -> &[u64; Step::TIMED.len()] {
        &self.0
    }

    /// Adds `time` to a step that has a place among [`Step::TIMED`]; where the clock is too coarse to tell,
    /// a nanosecond.
    pub fn add(&mut self, step: Step, time: Duration) {
        let ns = time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos());
        if let Some(place) = step.place() {
            self.0[place] += ns.max(1);
        }
    }
}

/// Beginnings of steps at most: a request takes the seven, receives a body between two, filters and
/// sends a failure in place of what it could not send, and ends.
const MARKS_MAX: usize = 11;

/// A stopwatch that goes from step to step. It only notes when each begins: to subtract between two
/// looks at the clock would cost half as much as looking.
pub struct Steps {
    waited: Option<Duration>,
    began: [Instant; MARKS_MAX],
    steps: [Step; MARKS_MAX],
    count: usize,
}

impl Steps {
    /// Of a request whose first byte came at `arrived`: parsing has begun. `waited` is what lay between
    /// the connection and its first request.
    pub fn new(arrived: Instant, waited: Option<Duration>) -> Self {
        Self {
            waited,
            began: [arrived; MARKS_MAX],
            steps: [Step::Parse; MARKS_MAX],
            count: 1,
        }
    }

    /// Ends the step in hand and begins `step`, here and for the watchdog.
    pub fn enter(&mut self, step: Step) {
        self.mark(step, Instant::now());
        step.enter();
    }

    /// Ends the last step at `now`.
    pub fn end(&mut self, now: Instant) {
        self.mark(Step::Idle, now);
    }

    fn mark(&mut self, step: Step, now: Instant) {
        // One too many would count to the step before it.
        if self.count < MARKS_MAX {
            self.began[self.count] = now;
            self.steps[self.count] = step;
            self.count += 1;
        }
    }

    /// When the first byte of the request came.
    pub fn arrived(&self) -> Instant {
        self.began[0]
    }

    /// When the step in hand began, or the last one ended.
    pub fn began(&self) -> Instant {
        self.began[self.count - 1]
    }

    /// Of the steps that have ended.
    pub fn times(&self) -> Times {
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

    /// The steps that have ended, as metrics of a `Server-Timing` field (W3C Server Timing, 3.1).
    pub fn server_timing(&self) -> String {
        let mut text = String::new();
        for (step, time) in self.times().iter() {
            server_timing_metric(&mut text, step.label(), time);
        }
        text
    }
}

/// Adds one metric to the value of a `Server-Timing` field, in milliseconds.
pub fn server_timing_metric(text: &mut String, name: &str, time: Duration) {
    let separator = if text.is_empty() { "" } else { ", " };
    let ms = time.as_secs_f64() * 1e3;
    // Writing to memory cannot fail.
    let _ = write!(text, "{separator}{name};dur={ms:.3}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_follow_each_other_without_a_gap() {
        let arrived = Instant::now();
        let mut steps = Steps::new(arrived, None);
        for step in [Step::Route, Step::Resolve, Step::Filter, Step::Send] {
            steps.enter(step);
        }
        let end = Instant::now();
        steps.end(end);
        let times = steps.times();
        let total: Duration = times.iter().map(|(_, time)| time).sum();
        assert_eq!(total, end - arrived);
        let taken: Vec<_> = times.iter().map(|(step, _)| step.label()).collect();
        assert_eq!(taken, ["parse", "route", "resolve", "filter", "send"]);
    }

    #[test]
    fn one_step_too_many_loses_no_time() {
        let arrived = Instant::now();
        let mut steps = Steps::new(arrived, None);
        for _ in 0..2 * MARKS_MAX {
            steps.enter(Step::Filter);
        }
        steps.end(Instant::now());
        let total: Duration = steps.times().iter().map(|(_, time)| time).sum();
        assert_eq!(total, steps.began() - arrived);
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

    #[test]
    fn server_timing_is_a_list_of_tokens_with_milliseconds() {
        let arrived = Instant::now();
        let mut steps = Steps::new(arrived, Some(Duration::from_millis(1500)));
        steps.end(arrived + Duration::from_micros(12));
        let mut text = steps.server_timing();
        server_timing_metric(&mut text, "disk-queue", Duration::ZERO);
        assert_eq!(
            text,
            "accept;dur=1500.000, parse;dur=0.012, disk-queue;dur=0.000"
        );
    }
}
