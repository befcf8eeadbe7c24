//! How a thread that may not wait wakes one that sleeps: no lock, and no system call unless it sleeps.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::{self, Thread};
use std::time::Duration;

/// Wakes one thread, its sleeper.
///
/// Whoever rings first leaves work where the sleeper looks for it; the sleeper says that it is asleep
/// and then looks once more. Each side writes, passes a fence, and reads what the other has written.
/// Sequentially consistent fences have one order: the one that comes second sees what was written
/// before the first. So either the ringer sees a sleeper and wakes it, or the sleeper sees the work.
/// Acquire and release are not enough: both sides could read the old value.
#[derive(Debug)]
pub struct Bell {
    asleep: AtomicBool,
    sleeper: OnceLock<Thread>,
}

impl Default for Bell {
    fn default() -> Bell {
        Bell::new()
    }
}

impl Bell {
    /// Nobody sleeps yet. The first thread that does is the sleeper from then on.
    pub const fn new() -> Bell {
        Bell {
            asleep: AtomicBool::new(false),
            sleeper: OnceLock::new(),
        }
    }

    /// Wakes the sleeper if it sleeps; whether this call was the one that did. Never waits: one system call
    /// if it sleeps, none otherwise.
    pub fn ring(&self) -> bool {
        fence(Ordering::SeqCst);
        // Most rings find it awake: a load keeps the cache line shared, which a swap would not.
        let woken =
            self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed);
        if woken && let Some(sleeper) = self.sleeper.get() {
            sleeper.unpark();
        }
        woken
    }

    /// Sleeps until the bell rings, unless `has_work`. May return early; look for work either way.
    /// Always from the same thread.
    pub fn sleep_unless(&self, has_work: impl FnOnce() -> bool) {
        self.park_unless(has_work, thread::park);
    }

    /// The same, for at most `time`.
    pub(crate) fn doze_unless(&self, time: Duration, has_work: impl FnOnce() -> bool) {
        self.park_unless(has_work, || thread::park_timeout(time));
    }

    fn park_unless(&self, has_work: impl FnOnce() -> bool, park: impl FnOnce()) {
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

    /// With a lost wake-up this hangs. The ringer spins, so that it rings at every moment around the
    /// one at which the other goes to sleep.
    #[test]
    fn no_ring_is_lost() {
        const TURNS: usize = 100_000;
        let (asked, answered, bell) = (AtomicUsize::new(0), AtomicUsize::new(0), Bell::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 1..=TURNS {
                    while asked.load(Ordering::Relaxed) != turn {
                        bell.sleep_unless(|| asked.load(Ordering::Relaxed) == turn);
                    }
                    answered.store(turn, Ordering::Relaxed);
                }
            });
            for turn in 1..=TURNS {
                (0..turn % 64).for_each(|_| std::hint::spin_loop());
                asked.store(turn, Ordering::Relaxed);
                bell.ring();
                while answered.load(Ordering::Relaxed) != turn {
                    std::hint::spin_loop();
                }
            }
        });
    }

    #[test]
    fn only_a_sleeper_is_woken() {
        let bell = Bell::new();
        assert!(!bell.ring());
        bell.sleep_unless(|| true);
        assert!(!bell.ring());
    }

    #[test]
    fn a_doze_ends_by_itself() {
        let bell = Bell::new();
        bell.doze_unless(Duration::from_millis(1), || false);
        assert!(!bell.ring());
    }

    #[test]
    fn a_ring_while_it_falls_asleep_counts() {
        let bell = Bell::new();
        bell.sleep_unless(|| {
            assert!(bell.ring());
            false
        });
    }
}
