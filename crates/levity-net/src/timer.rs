//! Deadlines of connections. One sweep per worker, `sweep` of its `worker.rs`, fires the timers.
//!
//! A timer of the runtime per connection would have to be set and cleared on every request. Here that is one
//! store. The sweep checks all connections a few times per second instead, in parts, because each may be a cache
//! miss of the processor. A deadline therefore expires up to [`SWEEP_INTERVAL`] late.

use std::cell::{Cell, RefCell};
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::task::Context;
use std::time::{Duration, Instant};

use slab::Slab;

use crate::waker_cell::WakerCell;

/// How often the sweep runs.
pub const SWEEP_INTERVAL: Duration = Duration::from_millis(100);

/// Connections that one part of the sweep checks before other tasks run.
const SWEEP_TURN: usize = 1024;

/// One connection's deadline.
#[derive(Debug, Default)]
pub struct Timer {
    state: Cell<State>,
    waker: WakerCell,
}

// A stream at rest has one too: with 16 bytes more, the allocator would give each of them 80.
const _: () = assert!(size_of::<Timer>() <= 48);

#[derive(Debug, Default, Clone, Copy)]
enum State {
    #[default]
    Unset,
    Set {
        deadline: Instant,
    },
    /// The connection waits for a request, and can be closed without loss.
    Idle {
        since: Instant,
        deadline: Instant,
    },
    Expired,
}

impl Timer {
    /// Sets the deadline; the timer has not expired.
    pub fn set(&self, deadline: Instant) {
        self.state.set(State::Set { deadline });
    }

    /// Like [`Timer::set`], for a connection that waits for a request since `since`.
    pub fn set_idle(&self, since: Instant, deadline: Instant) {
        self.state.set(State::Idle { since, deadline });
    }

    /// Whether there is a deadline, or it has expired.
    pub fn is_set(&self) -> bool {
        !matches!(self.state.get(), State::Unset)
    }

    /// Removes the deadline; something else limits the wait.
    pub fn clear(&self) {
        self.state.set(State::Unset);
    }

    /// Whether the timer has expired. If not, the task is woken when it does.
    pub fn poll_expired(&self, context: &mut Context<'_>) -> bool {
        let has_expired = matches!(self.state.get(), State::Expired);
        if !has_expired {
            self.waker.set(context);
        }
        has_expired
    }

    fn deadline(&self) -> Option<Instant> {
        match self.state.get() {
            State::Set { deadline } | State::Idle { deadline, .. } => Some(deadline),
            State::Unset | State::Expired => None,
        }
    }

    fn idle_since(&self) -> Option<Instant> {
        match self.state.get() {
            State::Idle { since, .. } => Some(since),
            _ => None,
        }
    }

    fn expire(&self) {
        self.state.set(State::Expired);
        self.waker.wake_by_ref();
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
            if timer.deadline().is_some_and(|deadline| deadline <= now) {
                timer.expire();
            }
        }
        (end < timers.capacity()).then_some(end)
    }

    /// Wakes those who wait for one of `SWEEP_TURN` timers from number `first` on, so that they see what has changed. Returns the
    /// number from which to continue, `None` at the end.
    pub fn wake(&self, first: usize) -> Option<usize> {
        let timers = self.timers.borrow();
        let end = first + SWEEP_TURN;
        for timer in (first..end).filter_map(|number| timers.get(number)) {
            timer.waker.wake_by_ref();
        }
        (end < timers.capacity()).then_some(end)
    }

    /// Expires the timers of connections that wait for a request.
    pub fn expire_idle(&self) {
        for (_, timer) in self.timers.borrow().iter() {
            if timer.idle_since().is_some() {
                timer.expire();
            }
        }
    }

    /// Adds to `oldest` those of `SWEEP_TURN` connections from number `first` on that wait for a request for the longest
    /// time. Returns the number from which to continue, `None` at the end.
    pub fn find_idle(&self, first: usize, oldest: &mut OldestIdle) -> Option<usize> {
        let timers = self.timers.borrow();
        let end = first + SWEEP_TURN;
        for number in first..end {
            if let Some(since) = timers.get(number).and_then(|timer| timer.idle_since()) {
                oldest.add(since, number);
            }
        }
        (end < timers.capacity()).then_some(end)
    }

    /// Expires the timers of the connections in `oldest` that still wait. Returns how many they are.
    pub fn expire_oldest(&self, oldest: &OldestIdle) -> usize {
        let timers = self.timers.borrow();
        let waits = |(since, number): &&(Instant, usize)| {
            let timer = timers.get(*number);
            timer.is_some_and(|timer| timer.idle_since() == Some(*since))
        };
        let waiting = oldest.found.iter().filter(waits);
        waiting.map(|(_, number)| timers[*number].expire()).count()
    }
}

/// The connections that wait for a request for the longest time, up to a number.
#[derive(Debug)]
pub struct OldestIdle {
    count_max: usize,
    /// The one that waits for the shortest time is on top.
    found: BinaryHeap<(Instant, usize)>,
}

impl OldestIdle {
    /// None so far, and `count_max` at most.
    #[must_use]
    pub fn new(count_max: usize) -> Self {
        Self {
            count_max,
            found: BinaryHeap::with_capacity(count_max + 1),
        }
    }

    fn add(&mut self, since: Instant, number: usize) {
        self.found.push((since, number));
        if self.found.len() > self.count_max {
            self.found.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Waker;

    use super::*;
    use crate::wakes::Wakes;

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
        idle.set_idle(Instant::now(), deadline);
        timers.expire_idle();
        assert!(!expired(&busy));
        assert!(expired(&idle));
    }

    #[test]
    fn all_are_woken_before_their_time() {
        let (timers, woken) = (Timers::default(), Arc::new(Wakes::default()));
        let waker = woken.clone().into();
        for _ in 0..SWEEP_TURN + 1 {
            let timer = Rc::new(Timer::default());
            timer.set(Instant::now() + Duration::from_secs(10));
            assert!(!timer.poll_expired(&mut Context::from_waker(&waker)));
            timers.insert(timer);
        }
        assert_eq!(timers.wake(0), Some(SWEEP_TURN));
        assert_eq!(woken.count(), SWEEP_TURN);
        assert_eq!(timers.wake(SWEEP_TURN), None);
        assert_eq!(woken.count(), SWEEP_TURN + 1);
    }

    #[test]
    fn those_that_wait_longest_are_given_up() {
        let (timers, start) = (Timers::default(), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        let all: Vec<_> = (0..2 * SWEEP_TURN as u64)
            .map(|number| {
                let timer = Rc::new(Timer::default());
                timers.insert(timer.clone());
                // The last ones are the oldest; every third is busy.
                match number % 3 {
                    0 => timer.set(at(9000)),
                    _ => timer.set_idle(at(5000 - number), at(9000)),
                }
                timer
            })
            .collect();
        let mut oldest = OldestIdle::new(4);
        let mut next = Some(0);
        while let Some(first) = next {
            next = timers.find_idle(first, &mut oldest);
        }
        let last = all.len() - 1;
        // One of them gets a request meanwhile.
        let busy = all
            .iter()
            .rposition(|timer| timer.idle_since().is_some())
            .expect("one");
        all[busy].set(at(9000));
        assert_eq!(timers.expire_oldest(&oldest), 3);
        let given_up: Vec<_> = (0..=last).filter(|&number| expired(&all[number])).collect();
        assert_eq!(given_up.len(), 3);
        assert!(
            given_up
                .iter()
                .all(|&number| number + 7 > last && number % 3 > 0)
        );
    }
}
