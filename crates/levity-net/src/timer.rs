//! Deadlines of connections. One sweep per worker, `sweep` of its `worker.rs`, fires the timers.
//!
//! A timer of the runtime per connection would have to be set and cleared on every request. Here that is one
//! store. The sweep checks all connections a few times per second instead, in parts, because each may be a cache
//! miss of the processor. A deadline therefore expires up to [`SWEEP_INTERVAL`] late.

use std::cell::{Cell, RefCell};
use std::collections::BinaryHeap;
use std::os::fd::RawFd;
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
    /// The TCP socket of the connection.
    socket: Cell<Option<RawFd>>,
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
    /// The client is to take or to send bytes.
    ClientAwaited {
        since: Instant,
        time_ms: u32,
    },
    /// The connection waits for a request, and can be closed without loss.
    Idle {
        since: Instant,
        /// Until the deadline. A second instant would need 16 bytes more.
        time_ms: u32,
        /// There was no request yet. It may be on its way, and its client would not repeat it.
        is_new: bool,
    },
    Expired,
}

impl Timer {
    /// Sets the deadline; the timer has not expired.
    pub fn set(&self, deadline: Instant) {
        self.state.set(State::Set { deadline });
    }

    /// Like [`Timer::set`] in `time` from `since` on, for a client that is to take or to send bytes.
    pub fn set_for_client(&self, since: Instant, time: Duration) {
        let time_ms = milliseconds(time);
        self.state.set(State::ClientAwaited { since, time_ms });
    }

    /// Like [`Timer::set`] in `time` from `since` on, for a connection that waits for its first request since then.
    pub fn set_new(&self, since: Instant, time: Duration) {
        self.wait(since, milliseconds(time), true);
    }

    /// The same for a connection that waits for another request.
    pub fn set_idle(&self, since: Instant, time: Duration) {
        self.wait(since, milliseconds(time), false);
    }

    fn wait(&self, since: Instant, time_ms: u32, is_new: bool) {
        self.state.set(State::Idle {
            since,
            time_ms,
            is_new,
        });
    }

    /// It is that of a connection over `socket`, if over one of TCP.
    pub fn set_socket(&self, socket: Option<RawFd>) {
        self.socket.set(socket);
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
            State::Set { deadline } => Some(deadline),
            State::ClientAwaited { since, time_ms } | State::Idle { since, time_ms, .. } => {
                Some(since + Duration::from_millis(time_ms.into()))
            }
            State::Unset | State::Expired => None,
        }
    }

    /// Since when the connection waits for a request, unless it has had none yet and came after `new_since`.
    fn idle_since(&self, new_since: Instant) -> Option<Instant> {
        match self.state.get() {
            State::Idle { since, is_new, .. } if !is_new || since <= new_since => Some(since),
            _ => None,
        }
    }

    fn expire(&self) {
        self.state.set(State::Expired);
        self.waker.wake_by_ref();
    }
}

/// 49 days at most.
fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
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

    /// Since when the client behind that timer is to take or to send bytes; `None` while nothing is expected of it.
    pub fn client_awaited_since(&self, number: usize) -> Option<Instant> {
        let timers = self.timers.borrow();
        match timers.get(number)?.state.get() {
            State::ClientAwaited { since, .. } => Some(since),
            _ => None,
        }
    }

    /// The TCP socket of the connection behind that timer.
    pub fn socket(&self, number: usize) -> Option<RawFd> {
        self.timers.borrow().get(number)?.socket.get()
    }

    /// Expires that timer before its deadline.
    pub fn expire(&self, number: usize) {
        if let Some(timer) = self.timers.borrow().get(number) {
            timer.expire();
        }
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

    /// Expires the timers of connections that wait for a request. New ones get `time` in all.
    pub fn expire_idle(&self, time: Duration) {
        for (_, timer) in self.timers.borrow().iter() {
            match timer.state.get() {
                State::Idle {
                    since,
                    time_ms,
                    is_new: true,
                } => timer.wait(since, time_ms.min(milliseconds(time)), true),
                State::Idle { .. } => timer.expire(),
                _ => {}
            }
        }
    }

    /// Adds to `oldest` those of `SWEEP_TURN` connections from number `first` on that wait for a request for the longest
    /// time. Returns the number from which to continue, `None` at the end.
    pub fn find_idle(&self, first: usize, oldest: &mut OldestIdle) -> Option<usize> {
        let timers = self.timers.borrow();
        let end = first + SWEEP_TURN;
        for number in first..end {
            let timer = timers.get(number);
            if let Some(since) = timer.and_then(|timer| timer.idle_since(oldest.new_since)) {
                oldest.add(since, number);
            }
        }
        (end < timers.capacity()).then_some(end)
    }

    /// Expires the timer of the first connection in `oldest` that still waits, and removes those up to it. Returns whether there
    /// was one.
    pub fn expire_oldest(&self, oldest: &mut Vec<Idle>) -> bool {
        let timers = self.timers.borrow();
        while let Some((since, number)) = oldest.pop() {
            if let Some(timer) = timers.get(number)
                && timer.idle_since(since) == Some(since)
            {
                timer.expire();
                return true;
            }
        }
        false
    }
}

/// A connection that waits for a request: since when, and its number.
pub type Idle = (Instant, usize);

/// The connections that wait for a request for the longest time, up to a number.
#[derive(Debug)]
pub struct OldestIdle {
    count_max: usize,
    new_since: Instant,
    /// The one that waits for the shortest time is on top.
    found: BinaryHeap<Idle>,
}

impl OldestIdle {
    /// None so far, and `count_max` at most. Connections without a request count only if they are older than `new_since`.
    #[must_use]
    pub fn new(count_max: usize, new_since: Instant) -> Self {
        Self {
            count_max,
            new_since,
            found: BinaryHeap::with_capacity(count_max + 1),
        }
    }

    fn add(&mut self, since: Instant, number: usize) {
        self.found.push((since, number));
        if self.found.len() > self.count_max {
            self.found.pop();
        }
    }

    /// All of them; the last one waits for the longest time.
    #[must_use]
    pub fn into_list(self) -> Vec<Idle> {
        let mut list = self.found.into_sorted_vec();
        list.reverse();
        list
    }
}

#[cfg(test)]
mod tests {
    use std::array::from_fn;
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
        let (timers, now) = (Timers::default(), Instant::now());
        let all: [_; 4] = from_fn(|_| Rc::new(Timer::default()));
        for timer in &all {
            timers.insert(timer.clone());
        }
        let [busy, idle, new, ending] = &all;
        let second = |count| now + Duration::from_secs(count);
        busy.set(second(10));
        idle.set_idle(now, Duration::from_secs(10));
        new.set_new(now, Duration::from_secs(10));
        ending.set_new(now, Duration::from_secs(1));
        timers.expire_idle(Duration::from_secs(2));
        let have_expired = || all.each_ref().map(|timer| expired(timer));
        assert_eq!(have_expired(), [false, true, false, false]);
        timers.sweep(second(1), 0);
        assert_eq!(have_expired(), [false, true, false, true]);
        timers.sweep(second(2), 0);
        assert_eq!(have_expired(), [false, true, true, true]);
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
        let hour = Duration::from_secs(3600);
        let all: Vec<_> = (0..2 * SWEEP_TURN as u64)
            .map(|number| {
                let timer = Rc::new(Timer::default());
                timers.insert(timer.clone());
                // The last ones are the oldest; of three, one is busy, and one has had no request.
                match number % 3 {
                    0 => timer.set(at(9000)),
                    1 => timer.set_new(at(5000 - number), hour),
                    _ => timer.set_idle(at(5000 - number), hour),
                }
                timer
            })
            .collect();
        let last = all.len() - 1;
        let oldest = |new_since| {
            let mut oldest = OldestIdle::new(4, new_since);
            let mut next = Some(0);
            while let Some(first) = next {
                next = timers.find_idle(first, &mut oldest);
            }
            oldest.into_list()
        };
        let numbers = |list: &[Idle]| {
            list.iter()
                .map(|(_, number)| last - number)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (last % 3, numbers(&oldest(at(5000)))),
            (1, vec![5, 3, 2, 0])
        );
        let mut used = oldest(start);
        assert_eq!(numbers(&used), [11, 8, 5, 2]);
        // The first one gets a request meanwhile.
        all[last - 2].set(at(9000));
        assert!(timers.expire_oldest(&mut used));
        assert_eq!(numbers(&used), [11, 8]);
        let given_up: Vec<_> = (0..=last).filter(|&number| expired(&all[number])).collect();
        assert_eq!(given_up, [last - 5]);
        timers.remove(last - 8);
        timers.remove(last - 11);
        assert!(!timers.expire_oldest(&mut used));
    }
}
