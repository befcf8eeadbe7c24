//! Waking a sleeping thread without a lock, and without a system call unless it sleeps.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::{self, Thread};
use std::time::Duration;

/// Parks one thread, the sleeper, until another thread unparks it.
///
/// The other thread publishes its work before it calls [`Parker::unpark`]; the sleeper sets `asleep` and
/// then looks for work once more. Each side writes, executes a fence and reads what the other side has
/// written. Sequentially consistent fences have a total order: the second one sees everything that was
/// written before the first. So either the other thread sees `asleep` and wakes the sleeper, or the sleeper
/// sees the work. Acquire and release are not enough: both sides could read the old value.
#[derive(Debug)]
pub struct Parker {
    asleep: AtomicBool,
    sleeper: OnceLock<Thread>,
}

impl Default for Parker {
    fn default() -> Parker {
        Parker::new()
    }
}

impl Parker {
    /// A parker without a sleeper. The first thread that parks becomes the sleeper.
    pub const fn new() -> Parker {
        Parker {
            asleep: AtomicBool::new(false),
            sleeper: OnceLock::new(),
        }
    }

    /// Wakes the sleeper if it sleeps. Returns whether this call has woken it. Does not block: one system
    /// call if the sleeper sleeps, none otherwise.
    pub fn unpark(&self) -> bool {
        fence(Ordering::SeqCst);
        // The sleeper is mostly awake: a load keeps the cache line shared, which a swap would not.
        let woken =
            self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed);
        if woken && let Some(sleeper) = self.sleeper.get() {
            sleeper.unpark();
        }
        woken
    }

    /// Sleeps until unparked, unless `has_work`. May return early: look for work in any case. Must always be
    /// called from the same thread.
    pub fn park_unless(&self, has_work: impl FnOnce() -> bool) {
        self.park_with(has_work, thread::park);
    }

    /// As [`Parker::park_unless`], for at most `time`.
    pub(crate) fn park_timeout_unless(&self, time: Duration, has_work: impl FnOnce() -> bool) {
        self.park_with(has_work, || thread::park_timeout(time));
    }

    fn park_with(&self, has_work: impl FnOnce() -> bool, park: impl FnOnce()) {
        self.sleeper.get_or_init(thread::current);
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !has_work() {
            park();
        }
        self.asleep.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// A lost wake-up hangs the test. The waking thread spins, so that it unparks at every moment around
    /// the one at which the sleeper goes to sleep.
    #[test]
    fn no_wakeup_is_lost() {
        const TURNS: usize = 100_000;
        let (asked, answered, parker) = (AtomicUsize::new(0), AtomicUsize::new(0), Parker::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 1..=TURNS {
                    while asked.load(Ordering::Relaxed) != turn {
                        parker.park_unless(|| asked.load(Ordering::Relaxed) == turn);
                    }
                    answered.store(turn, Ordering::Relaxed);
                }
            });
            for turn in 1..=TURNS {
                (0..turn % 64).for_each(|_| std::hint::spin_loop());
                asked.store(turn, Ordering::Relaxed);
                parker.unpark();
                while answered.load(Ordering::Relaxed) != turn {
                    std::hint::spin_loop();
                }
            }
        });
    }

    #[test]
    fn only_a_sleeper_is_woken() {
        let parker = Parker::new();
        assert!(!parker.unpark());
        parker.park_unless(|| true);
        assert!(!parker.unpark());
    }

    #[test]
    fn a_timeout_ends_the_sleep() {
        let parker = Parker::new();
        parker.park_timeout_unless(Duration::from_millis(1), || false);
        assert!(!parker.unpark());
    }

    #[test]
    fn a_wakeup_before_the_sleep_counts() {
        let parker = Parker::new();
        parker.park_unless(|| {
            assert!(parker.unpark());
            false
        });
    }
}
