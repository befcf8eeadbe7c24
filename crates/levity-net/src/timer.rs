//! Deadlines of connections. One sweep per worker, `sweep` of its `worker.rs`, fires the timers.
//!
//! A timer of the runtime per connection would have to be set and cleared on every request. Here that is one
//! store. The sweep checks all connections a few times per second instead, in parts, because each may be a cache
//! miss of the processor. A deadline therefore expires up to [`SWEEP_INTERVAL`] late.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use slab::Slab;

/// How often the sweep runs.
pub const SWEEP_INTERVAL: Duration = Duration::from_millis(100);

/// Connections that one part of the sweep checks before other tasks run.
const SWEEP_TURN: usize = 1024;

/// One connection's deadline.
#[derive(Debug, Default)]
pub struct Timer {
    deadline: Cell<Option<Instant>>,
    expired: Cell<bool>,
    /// The connection waits for a request, and can be closed without loss.
    idle: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Timer {
    /// Sets the deadline; the timer has not expired.
    pub fn set(&self, deadline: Instant) {
        self.restart(Some(deadline), false);
    }

    /// Like [`Timer::set`], for a connection that waits for a request.
    pub fn set_idle(&self, deadline: Instant) {
        self.restart(Some(deadline), true);
    }

    /// Whether there is a deadline.
    pub fn is_set(&self) -> bool {
        self.deadline.get().is_some()
    }

    /// Removes the deadline; something else limits the wait.
    pub fn clear(&self) {
        self.restart(None, false);
    }

    fn restart(&self, deadline: Option<Instant>, idle: bool) {
        self.expired.set(false);
        self.deadline.set(deadline);
        self.idle.set(idle);
    }

    /// Whether the timer has expired. If not, the task is woken when it does.
    pub fn poll_expired(&self, context: &mut Context<'_>) -> bool {
        if self.expired.get() {
            return true;
        }
        let mut waker = self.waker.borrow_mut();
        if !waker
            .as_ref()
            .is_some_and(|known| known.will_wake(context.waker()))
        {
            *waker = Some(context.waker().clone());
        }
        false
    }

    fn expire(&self) {
        self.expired.set(true);
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }
}

/// All timers of an event loop.
#[derive(Debug, Default)]
pub struct Timers {
    timers: RefCell<Slab<Rc<Timer>>>,
}

impl Timers {
    /// Adds the timer of a connection; returns the number by which it is removed.
    pub fn insert(&self, timer: Rc<Timer>) -> usize {
        self.timers.borrow_mut().insert(timer)
    }

    /// Removes a timer.
    pub fn remove(&self, number: usize) {
        self.timers.borrow_mut().remove(number);
    }

    /// The number of open connections: each has a timer.
    pub fn len(&self) -> usize {
        self.timers.borrow().len()
    }

    /// Whether no connection is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Expires timers whose deadline has passed at `now`, among `SWEEP_TURN` connections from number `first` on.
    /// Returns the number from which to continue, `None` at the end.
    pub fn sweep(&self, now: Instant, first: usize) -> Option<usize> {
        let timers = self.timers.borrow();
        let end = first + SWEEP_TURN;
        for timer in (first..end).filter_map(|number| timers.get(number)) {
            if timer.deadline.get().is_some_and(|deadline| deadline <= now) {
                timer.expire();
            }
        }
        (end < timers.capacity()).then_some(end)
    }

    /// Expires the timers of connections that wait for a request.
    pub fn expire_idle(&self) {
        for (_, timer) in self.timers.borrow().iter() {
            if timer.idle.get() {
                timer.expire();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expired(timer: &Timer) -> bool {
        timer.poll_expired(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_deadline_expires_at_its_instant_and_not_before() {
        let timers = Timers::default();
        let timer = Rc::new(Timer::default());
        timers.insert(timer.clone());
        let deadline = Instant::now() + Duration::from_secs(10);
        timer.set(deadline);
        timers.sweep(deadline - Duration::from_nanos(1), 0);
        assert!(!expired(&timer));
        timers.sweep(deadline, 0);
        assert!(expired(&timer));
    }

    #[test]
    fn a_sweep_in_turns_reaches_every_connection() {
        let (timers, now) = (Timers::default(), Instant::now());
        let all: Vec<_> = (0..3 * SWEEP_TURN + 1)
            .map(|_| Rc::new(Timer::default()))
            .collect();
        for timer in &all {
            timer.set(now);
            timers.insert(timer.clone());
        }
        let mut next = Some(0);
        while let Some(first) = next {
            next = timers.sweep(now, first);
        }
        assert!(all.iter().all(|timer| expired(timer)));
    }

    #[test]
    fn only_idle_connections_are_let_go_early() {
        let timers = Timers::default();
        let (busy, idle) = (Rc::new(Timer::default()), Rc::new(Timer::default()));
        timers.insert(busy.clone());
        timers.insert(idle.clone());
        let deadline = Instant::now() + Duration::from_secs(10);
        busy.set(deadline);
        idle.set_idle(deadline);
        timers.expire_idle();
        assert!(!expired(&busy));
        assert!(expired(&idle));
    }
}
