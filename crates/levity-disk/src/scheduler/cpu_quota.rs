//! Keeps disk work within the CPU quota of the process's control group.
//!
//! A group that has used up its quota is stopped until the next period, event loops included: with the usual
//! period of 100 ms, and twice as many running threads as the quota has processors, for 50 ms of each 100 ms. The
//! kernel gives no thread of the group priority there. So disk work takes only what other threads leave of the
//! quota: while the process is over it, each device has two jobs in flight, of which one may be stuck.
//!
//! Only the processor time of this process is known. Other processes of the group may still use the quota up.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::sched_getaffinity;
use rustix::time::{ClockId, clock_gettime};

use super::control_groups;
use crate::thread::lock;

/// The share of the quota that the process uses. The kernel hands the quota out to processors in slices of 5 ms,
/// of which a part expires unused.
const SHARE: f64 = 0.9;

/// The interval between two looks at the clock of the process, which reads those of all its threads.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);

/// The maximum of processor time, in seconds per processor, that is saved for later or owed.
const SAVED_MAX: f64 = 0.01;

/// The maximum number of jobs of a device in flight while the quota is used up.
pub(super) const JOBS_MAX: usize = 2;

/// The interval at which the quota is read again: it may be changed while the process runs.
const READ_INTERVAL: Duration = Duration::from_secs(10);

/// The CPU quota of the process's control group, and what is left of it.
pub struct CpuQuota {
    is_limited: AtomicBool,
    is_used_up: AtomicBool,
    account: Mutex<Account>,
}

/// Processor time that the process may use.
struct Account {
    /// When the quota was read.
    read_at: Instant,
    processors: f64,
    looked_at: Instant,
    /// The clock of the process at that moment.
    used: Duration,
    /// In seconds; negative if it was exceeded.
    left: f64,
}

impl CpuQuota {
    /// The quota of this process. Blocks, as `CpuQuota::read`.
    pub fn of_process() -> CpuQuota {
        let quota = CpuQuota {
            is_limited: AtomicBool::new(false),
            is_used_up: AtomicBool::new(false),
            account: Mutex::new(Account::new(0.0, Instant::now(), used())),
        };
        quota.read();
        quota
    }

    /// Reads the quota again if that is due. Reads files below `/proc` and `/sys/fs/cgroup`: not for event loops.
    pub fn refresh(&self) {
        if lock(&self.account).read_at.elapsed() >= READ_INTERVAL {
            self.read();
        }
    }

    fn read(&self) {
        let processors = quota_of_process();
        let mut account = lock(&self.account);
        account.read_at = Instant::now();
        account.processors = processors.unwrap_or(0.0);
        self.is_limited
            .store(processors.is_some(), Ordering::Relaxed);
        if processors.is_none() {
            self.is_used_up.store(false, Ordering::Relaxed);
        }
    }

    /// A quota of one processor that is not looked at.
    #[cfg(test)]
    pub(super) fn for_test(is_used_up: bool) -> CpuQuota {
        CpuQuota {
            is_limited: AtomicBool::new(true),
            is_used_up: AtomicBool::new(is_used_up),
            account: Mutex::new(Account::new(1.0, Instant::now(), Duration::ZERO)),
        }
    }

    /// Whether the process has used more than its share of the quota, as of the last [look](CpuQuota::look).
    pub fn is_used_up(&self) -> bool {
        self.is_used_up.load(Ordering::Relaxed)
    }

    /// Looks at the clock of the process, unless that was done a moment ago. Takes about 2 us; does not block.
    pub fn look(&self) {
        if !self.is_limited.load(Ordering::Relaxed) {
            return;
        }
        // Another thread is looking.
        let Ok(mut account) = self.account.try_lock() else {
            return;
        };
        let now = Instant::now();
        if now.saturating_duration_since(account.looked_at) >= LOOK_INTERVAL {
            let is_used_up = account.update(now, used());
            self.is_used_up.store(is_used_up, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for CpuQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuQuota")
            .field("is_limited", &self.is_limited)
            .field("is_used_up", &self.is_used_up)
            .finish_non_exhaustive()
    }
}

impl Account {
    fn new(processors: f64, now: Instant, used: Duration) -> Account {
        Account {
            read_at: now,
            processors,
            looked_at: now,
            used,
            left: 0.0,
        }
    }

    /// Returns whether nothing is left.
    fn update(&mut self, now: Instant, used: Duration) -> bool {
        let elapsed = now.saturating_duration_since(self.looked_at).as_secs_f64();
        let spent = used.saturating_sub(self.used).as_secs_f64();
        let saved_max = self.processors * SAVED_MAX;
        self.left += elapsed * self.processors * SHARE - spent;
        self.left = self.left.clamp(-saved_max, saved_max);
        (self.looked_at, self.used) = (now, used);
        self.left <= 0.0
    }
}

/// The processor time of the process.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("the time of a process is not negative")
}

/// In processors. `None` if the process may use all those that it may run on.
fn quota_of_process() -> Option<f64> {
    let groups = control_groups::of_process("cpu").into_iter();
    let processors = groups.filter_map(quota_of).min_by(f64::total_cmp)?;
    let allowed = sched_getaffinity(None).ok()?.count();
    (processors < f64::from(allowed)).then_some(processors)
}

/// The quota of a group in processors. `None` if it has none.
fn quota_of(group: PathBuf) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let text = match read("cpu.max") {
        Some(text) => text,
        None => format!(
            "{} {}",
            read("cpu.cfs_quota_us")?.trim(),
            read("cpu.cfs_period_us")?
        ),
    };
    quota(&text)
}

/// The quota in processors, of quota and period in microseconds. `None` for `max` (version 2) and -1 (version 1).
fn quota(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0).then(|| quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_numbers_of_processors() {
        assert_eq!(quota("150000 100000\n"), Some(1.5));
        assert_eq!(quota("50000 100000"), Some(0.5));
        for none in ["max 100000\n", "-1 100000\n", "", "1 0"] {
            assert_eq!(quota(none), None, "{none}");
        }
    }

    #[test]
    fn a_group_of_either_version_has_its_quota() {
        let group = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(group.path().join(name), text).unwrap();
        let read = || quota_of(group.path().to_owned());
        assert_eq!(read(), None);
        write("cpu.cfs_quota_us", "200000\n");
        write("cpu.cfs_period_us", "100000\n");
        assert_eq!(read(), Some(2.0));
        write("cpu.max", "max 100000\n");
        assert_eq!(read(), None);
    }

    /// Uses `spent` of each of 100 ms, and returns for how many of them nothing was left.
    fn used_up(spent: Duration) -> usize {
        let (mut now, mut used) = (Instant::now(), Duration::ZERO);
        let mut account = Account::new(1.0, now, used);
        let over = (0..100).filter(|_| {
            now += Duration::from_millis(1);
            used += spent;
            account.update(now, used)
        });
        over.count()
    }

    #[test]
    fn a_process_below_its_quota_is_never_held_back() {
        assert_eq!(used_up(Duration::from_micros(890)), 0);
        assert_eq!(used_up(Duration::from_micros(910)), 100);
    }

    /// Else an idle hour would allow an hour above the quota, and the reverse.
    #[test]
    fn little_is_saved_or_owed() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut account = Account::new(1.0, start, Duration::ZERO);
        assert!(!account.update(start + second, Duration::ZERO));
        let now = start + second + Duration::from_millis(1);
        assert!(account.update(now, Duration::from_millis(11)));
        assert!(account.update(now, 100 * second));
        assert!(!account.update(now + Duration::from_millis(12), 100 * second));
    }
}
