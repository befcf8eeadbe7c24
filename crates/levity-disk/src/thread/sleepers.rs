//! Threads that sleep until there is work. Any thread wakes one of them without a lock.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Timespec};

/// The threads of a pool that sleep, and those that were woken and have not looked for work yet.
///
/// As with a [`Parker`](super::Parker), each side writes, executes a sequentially consistent fence and reads what
/// the other side has written: work is published before [`Sleepers::wake`], and a thread looks for work
/// after it counts as asleep, and once more after it no longer counts as on its way. So no work is left behind while a
/// thread sleeps or is thought to come.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    /// Threads that sleep, or are about to, and that nobody has woken.
    asleep: AtomicU32,
    /// Threads that were woken and have not looked for work yet.
    on_their_way: AtomicUsize,
    /// Wake-ups that no thread has taken yet: the word that the kernel compares.
    wake_ups: AtomicU32,
}

/// Why a thread no longer sleeps.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Awake {
    /// There may be work.
    ForWork,
    /// The time has passed.
    TimedOut,
}

impl Sleepers {
    /// Wakes a thread unless `enough` are on their way. Returns false if too few are and none sleeps. Does not block:
    /// one system call at most.
    pub(crate) fn wake(&self, enough: usize) -> bool {
        fence(Ordering::SeqCst);
        if self.on_their_way.load(Ordering::Relaxed) >= enough {
            return true;
        }
        let woken = self.take_one();
        if woken {
            self.on_their_way.fetch_add(1, Ordering::Relaxed);
            self.wake_ups.fetch_add(1, Ordering::Release);
            // An error would mean that the address is not mapped.
            let _ = futex::wake(&self.wake_ups, Flags::PRIVATE, 1);
        }
        woken
    }

    /// Counts a thread that starts as on its way, until it calls [`Sleepers::arrived`].
    pub(crate) fn starts(&self) {
        self.on_their_way.fetch_add(1, Ordering::Relaxed);
    }

    /// The calling thread looks for work next.
    pub(crate) fn arrived(&self) {
        self.on_their_way.fetch_sub(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Sleeps until woken, at most for `time`, unless `has_work`.
    pub(crate) fn sleep(&self, time: Duration, has_work: impl FnOnce() -> bool) -> Awake {
        self.asleep.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if has_work() && self.take_one() {
            return Awake::ForWork;
        }
        let end = Instant::now() + time;
        loop {
            if self.take_wake_up() {
                self.arrived();
                return Awake::ForWork;
            }
            let left = end.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).ok();
            let result = futex::wait(&self.wake_ups, Flags::PRIVATE, 0, left.as_ref());
            // If nobody is counted as asleep, a wake-up is about to come.
            if result == Err(Errno::TIMEDOUT) && self.take_one() {
                return Awake::TimedOut;
            }
        }
    }

    /// Takes one thread from those that sleep: which one does not matter, as each gets a wake-up or withdraws.
    fn take_one(&self) -> bool {
        take_from(&self.asleep)
    }

    fn take_wake_up(&self) -> bool {
        take_from(&self.wake_ups)
    }
}

/// Lowers a counter by one. False if it is zero.
fn take_from(counter: &AtomicU32) -> bool {
    let one_less = |count: u32| count.checked_sub(1);
    let taken = counter.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_less);
    taken.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    const LONG: Duration = Duration::from_secs(30);

    /// A wake-up that is lost leaves work behind, and the test would wait for it until the time-out.
    #[test]
    fn no_work_is_left_behind() {
        const WORK: usize = 100_000;
        const THREADS: usize = 4;
        let (sleepers, offered, done) = (
            Sleepers::default(),
            AtomicUsize::new(0),
            AtomicUsize::new(0),
        );
        let ends = AtomicBool::new(false);
        let take = || {
            let one_less = |offered: usize| offered.checked_sub(1);
            let taken = offered.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
            taken.is_ok()
        };
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    while !ends.load(Ordering::Relaxed) {
                        while take() {
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        let has_work =
                            || offered.load(Ordering::Relaxed) > 0 || ends.load(Ordering::Relaxed);
                        assert_eq!(sleepers.sleep(LONG, has_work), Awake::ForWork);
                    }
                });
            }
            for work in 1..=WORK {
                offered.fetch_add(1, Ordering::Relaxed);
                sleepers.wake(1);
                // In turns alone and with others.
                while work % 7 == 0 && done.load(Ordering::Relaxed) < work {
                    thread::yield_now();
                }
            }
            while done.load(Ordering::Relaxed) < WORK {
                thread::yield_now();
            }
            ends.store(true, Ordering::Relaxed);
            (0..THREADS).for_each(|_| {
                sleepers.wake(usize::MAX);
            });
        });
    }

    #[test]
    fn nobody_is_woken_in_vain() {
        let sleepers = Sleepers::default();
        assert!(!sleepers.wake(1), "nobody sleeps");
        sleepers.starts();
        assert!(sleepers.wake(1), "one is on its way");
        assert!(!sleepers.wake(2));
        sleepers.arrived();
        assert!(!sleepers.wake(1));
    }

    #[test]
    fn a_thread_sleeps_for_no_longer_than_it_wants() {
        let sleepers = Sleepers::default();
        let short = Duration::from_millis(1);
        assert_eq!(sleepers.sleep(short, || false), Awake::TimedOut);
        assert_eq!(sleepers.sleep(LONG, || true), Awake::ForWork);
        assert!(!sleepers.wake(1), "it no longer counts as asleep");
    }
}
