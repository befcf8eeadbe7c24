//! Plans: which request is sent next, and when. Closed loop, open loop, and every file once.

use std::time::{Duration, Instant};

/// One request: an index into the client's encoded requests, and the time when it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The index of the encoded request.
    pub index: usize,
    /// The start of its latency, even if no connection was free then.
    pub intended: Instant,
}

/// The next action of an idle connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send this one now.
    Send(Request),
    /// Nothing is due before this time.
    WaitUntil(Instant),
    /// The plan is finished.
    Finished,
}

/// A sending policy.
pub trait Plan {
    /// Called when a connection is idle.
    fn next(&mut self, now: Instant) -> Next;

    /// Called at the end: requests that were due by `now` but found no idle connection.
    fn overdue(&mut self, _now: Instant) -> Option<Request> {
        None
    }
}

/// Closed loop: a new request as soon as a connection is idle.
pub struct Closed;

impl Plan for Closed {
    fn next(&mut self, now: Instant) -> Next {
        Next::Send(Request {
            index: 0,
            intended: now,
        })
    }
}

/// Open loop: a fixed rate, whatever the server does. A late response does not delay later requests, so a stall counts
/// for each request that it delayed (no coordinated omission).
pub struct Open {
    interval: Duration,
    due: Instant,
    requests: Rounds,
}

impl Open {
    /// `rate` requests per second, the first at `start`: 0 to `count` - 1, again and again.
    #[must_use]
    pub fn new(rate: u32, count: usize, start: Instant) -> Self {
        Self {
            interval: Duration::from_secs(1) / rate.max(1),
            due: start,
            requests: Rounds::new(count),
        }
    }
}

impl Plan for Open {
    fn next(&mut self, now: Instant) -> Next {
        if self.due > now {
            return Next::WaitUntil(self.due);
        }
        let intended = self.due;
        self.due += self.interval;
        self.requests.next(intended)
    }

    fn overdue(&mut self, now: Instant) -> Option<Request> {
        match self.next(now) {
            Next::Send(request) => Some(request),
            Next::WaitUntil(_) | Next::Finished => None,
        }
    }
}

/// Every encoded request once, as soon as a connection is idle.
pub struct EachOnce {
    next: usize,
    count: usize,
}

impl EachOnce {
    /// The requests 0 to `count` - 1.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { next: 0, count }
    }
}

impl Plan for EachOnce {
    fn next(&mut self, now: Instant) -> Next {
        if self.next == self.count {
            return Next::Finished;
        }
        self.next += 1;
        Next::Send(Request {
            index: self.next - 1,
            intended: now,
        })
    }
}

/// Every encoded request once, at a fixed rate.
pub struct Paced {
    interval: Duration,
    due: Instant,
    requests: EachOnce,
}

impl Paced {
    /// The requests 0 to `count` - 1, `rate` per second, the first at `start`.
    #[must_use]
    pub fn new(rate: u32, count: usize, start: Instant) -> Self {
        Self {
            interval: Duration::from_secs(1) / rate.max(1),
            due: start,
            requests: EachOnce::new(count),
        }
    }
}

impl Plan for Paced {
    fn next(&mut self, now: Instant) -> Next {
        if self.due > now && self.requests.next < self.requests.count {
            return Next::WaitUntil(self.due);
        }
        let intended = self.due;
        self.due += self.interval;
        self.requests.next(intended)
    }
}

/// Every encoded request in turn, repeatedly, as soon as a connection is idle.
pub struct Rounds {
    next: usize,
    count: usize,
}

impl Rounds {
    /// The requests 0 to `count` - 1; none when `count` is 0.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { next: 0, count }
    }
}

impl Plan for Rounds {
    fn next(&mut self, now: Instant) -> Next {
        if self.count == 0 {
            return Next::Finished;
        }
        let index = self.next % self.count;
        self.next = index + 1;
        Next::Send(Request {
            index,
            intended: now,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_loop_catches_up_with_the_intended_times() {
        let start = Instant::now();
        let mut plan = Open::new(1000, 2, start);
        let late = start + Duration::from_micros(2500);
        let overdue: Vec<_> = std::iter::from_fn(|| plan.overdue(late)).collect();
        let request = |index, ms| Request {
            index,
            intended: start + Duration::from_millis(ms),
        };
        assert_eq!(overdue, [request(0, 0), request(1, 1), request(0, 2)]);
        assert_eq!(
            plan.next(late),
            Next::WaitUntil(start + Duration::from_millis(3))
        );
    }

    #[test]
    fn rounds_start_again() {
        let now = Instant::now();
        let mut plan = Rounds::new(2);
        let sent: Vec<_> = (0..5)
            .map(|_| match plan.next(now) {
                Next::Send(request) => request.index,
                Next::WaitUntil(_) | Next::Finished => usize::MAX,
            })
            .collect();
        assert_eq!(sent, [0, 1, 0, 1, 0]);
        assert_eq!(Rounds::new(0).next(now), Next::Finished);
    }

    #[test]
    fn a_paced_plan_ends_at_once_after_its_last_request() {
        let start = Instant::now();
        let mut plan = Paced::new(1000, 2, start);
        let second = start + Duration::from_millis(1);
        let request = |index, intended| Next::Send(Request { index, intended });
        assert_eq!(plan.next(start), request(0, start));
        assert_eq!(plan.next(start), Next::WaitUntil(second));
        assert_eq!(plan.next(second), request(1, second));
        assert_eq!(plan.next(second), Next::Finished);
    }

    #[test]
    fn each_once_ends() {
        let now = Instant::now();
        let mut plan = EachOnce::new(2);
        let sent: Vec<_> = (0..3).map(|_| plan.next(now)).collect();
        let request = |index| {
            Next::Send(Request {
                index,
                intended: now,
            })
        };
        assert_eq!(sent, [request(0), request(1), Next::Finished]);
        assert_eq!(plan.overdue(now), None);
    }
}
