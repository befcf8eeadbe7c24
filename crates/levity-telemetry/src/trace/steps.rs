//! The time that one request spent in each step, on the monotonic clock.
//!
//! A step ends where the next begins, so one look at the clock serves both. A look costs more than most steps take:
//! unless each step is timed, the start of the poll serves, and only steps that end in a later poll have a time.

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

/// A stopwatch that goes from step to step.
#[derive(Debug)]
pub(super) struct Stopwatch {
    arrived: Instant,
    /// The current step.
    step: Step,
    /// When it began.
    began: Instant,
    /// The times of the steps that have ended.
    times: Times,
    times_each_step: bool,
}

impl Stopwatch {
    /// A stopwatch in the parse step, which began at `arrived`. `waited` is the accept step of the first request
    /// on a connection.
    pub(super) fn new(arrived: Instant, waited: Option<Duration>) -> Self {
        let mut times = Times::default();
        if let Some(waited) = waited {
            times.add(Step::Accept, waited);
        }
        Self {
            arrived,
            step: Step::Parse,
            began: arrived,
            times,
            times_each_step: false,
        }
    }

    /// Reads the clock at the end of each step from now on.
    pub(super) fn time_each_step(&mut self) {
        self.times_each_step = true;
    }

    /// Whether it reads the clock at the end of each step.
    pub(super) fn times_each_step(&self) -> bool {
        self.times_each_step
    }

    /// Ends the current step and begins `step`, in a poll that began at `poll_start`. Unless each step is timed, a
    /// step that ends in the poll in which it began leaves its time to the next.
    pub(super) fn enter(&mut self, step: Step, poll_start: Option<Instant>) {
        match poll_start.filter(|_| !self.times_each_step) {
            Some(poll_start) if poll_start <= self.began => self.step = step,
            Some(poll_start) => self.mark(step, poll_start),
            None => self.mark_now(step),
        }
    }

    // Not inlined: then the usual way through `enter` has no call, and no register to save for one.
    #[inline(never)]
    fn mark_now(&mut self, step: Step) {
        self.mark(step, Instant::now());
    }

    /// Ends the current step at `now`, and begins `step`.
    // Not inlined: of the steps of a response from memory only the last comes here.
    #[inline(never)]
    pub(super) fn mark(&mut self, step: Step, now: Instant) {
        self.times.add(self.step, now - self.began);
        self.step = step;
        self.began = now;
    }

    /// When the parse step began.
    pub(super) fn arrived(&self) -> Instant {
        self.arrived
    }

    /// When the current step began, or the last one ended.
    pub(super) fn step_began(&self) -> Instant {
        self.began
    }

    /// The times of the steps that have ended.
    pub(super) fn times(&self) -> &Times {
        &self.times
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
    fn a_step_within_a_poll_leaves_its_time_to_the_next() {
        let first = Instant::now();
        let ms = Duration::from_millis;
        let second = first + ms(5);
        let mut steps = Stopwatch::new(first, None);
        steps.enter(Step::Route, Some(first));
        steps.enter(Step::Resolve, Some(first));
        steps.enter(Step::Respond, Some(second));
        steps.enter(Step::Send, Some(second));
        steps.mark(Step::Idle, second + ms(1));
        let times: Vec<_> = steps.times().iter().collect();
        assert_eq!(times, [(Step::Resolve, ms(5)), (Step::Send, ms(1))]);
    }

    #[test]
    fn each_step_is_timed_on_request() {
        let arrived = Instant::now();
        let mut steps = Stopwatch::new(arrived, None);
        steps.time_each_step();
        steps.enter(Step::Send, Some(arrived));
        steps.enter(Step::Idle, Some(arrived));
        let taken: Vec<_> = steps.times().iter().map(|(step, _)| step).collect();
        assert_eq!(taken, [Step::Parse, Step::Send]);
    }

    #[test]
    fn the_last_of_many_steps_have_their_times() {
        let arrived = Instant::now();
        let mut steps = Stopwatch::new(arrived, None);
        let rerouted = [Step::Resolve, Step::Upstream, Step::Respond].repeat(20);
        let all = rerouted.into_iter().chain([Step::Filter, Step::Send]);
        let mut now = arrived;
        for step in all.chain([Step::Idle]) {
            now += Duration::from_millis(1);
            steps.mark(step, now);
        }
        let times: Vec<_> = steps
            .times()
            .iter()
            .map(|(step, time)| (step, time.as_millis()))
            .collect();
        let rerouted = [Step::Resolve, Step::Upstream, Step::Respond].map(|step| (step, 20));
        let expected = [
            &[(Step::Parse, 1)][..],
            &rerouted,
            &[(Step::Filter, 1), (Step::Send, 1)],
        ];
        assert_eq!(times, expected.concat());
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
