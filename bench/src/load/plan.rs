//! What is sent next, and when: closed loop, open loop, and every file once.

use std::time::{Duration, Instant};

/// One request: an index into the client's rendered requests, and when it was meant to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which of the rendered requests.
    pub index: usize,
    /// The start of its latency, even if no connection was free then.
    pub intended: Instant,
}

/// What an idle connection shall do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send this one now.
    Send(Request),
    /// Nothing is due before this time.
    WaitUntil(Instant),
    /// Nothing will be due any more.
    Finished,
}

/// A policy of sending.
pub trait Plan {
    /// Asked whenever a connection is idle.
    fn next(&mut self, now: Instant) -> Next;

    /// Asked at the end: requests that were due by `now` but found no idle connection.
    fn overdue(&mut self, _now: Instant) -> Option<Request> {
        None
    }
}

/// A new request as soon as a connection is free.
pub struct Closed;

impl Plan for Closed {
    fn next(&mut self, now: Instant) -> Next {
        Next::Send(Request {
            index: 0,
            intended: now,
        })
    }
}

/// A fixed rate, whatever the server does: a late response does not delay the requests behind it,
/// so a stall counts once for each request that it made wait (no coordinated omission).
pub struct Open {
    interval: Duration,
    due: Instant,
}

impl Open {
    /// `rate` requests per second, the first at `start`.
    #[must_use]
    pub fn new(rate: u32, start: Instant) -> Self {
        Self {
            interval: Duration::from_secs(1) / rate.max(1),
            due: start,
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
        Next::Send(Request { index: 0, intended })
    }

    fn overdue(&mut self, now: Instant) -> Option<Request> {
        match self.next(now) {
            Next::Send(request) => Some(request),
            Next::WaitUntil(_) | Next::Finished => None,
        }
    }
}

/// Every rendered request once, as fast as connections become free.
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

/// Every rendered request in turn, again and again, as soon as a connection is free.
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
        let mut plan = Open::new(1000, start);
        let late = start + Duration::from_micros(2500);
        let intended: Vec<_> = std::iter::from_fn(|| plan.overdue(late))
            .map(|request| request.intended)
            .collect();
        assert_eq!(
            intended,
            [0, 1, 2].map(|ms| start + Duration::from_millis(ms))
        );
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
