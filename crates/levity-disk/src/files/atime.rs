//! When a read would change the time of last access.
//!
//! Only the owner of a file may open it with `O_NOATIME`. Where someone else serves it, the kernel
//! sets the time at the end of a read, `RWF_NOWAIT` or not, and the change of the inode may wait for
//! the journal (`touch_atime`, and ext4's `ext4_dirty_inode` below it). So a read that would do that
//! belongs to an engine.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Stat, StatVfsMountFlags};

/// In seconds: what `relatime` lets a time of access grow old before it is set again.
const DAY_S: i64 = 24 * 60 * 60;

/// When reads set the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Never: `noatime`, or read-only, or opened with `O_NOATIME`.
    Never,
    /// When it is not after the last change, or a day old (`relatime`, what `mount` does unless told
    /// otherwise).
    Relative,
    /// At every read (`strictatime`).
    Always,
}

impl Policy {
    /// That of the mount that holds `place`. A later `mount -o remount` is not noticed.
    pub(crate) fn of_mount(place: impl AsFd) -> io::Result<Policy> {
        Ok(Policy::of_flags(rustix::fs::fstatvfs(place)?.f_flag))
    }

    fn of_flags(flags: StatVfsMountFlags) -> Policy {
        if flags.intersects(StatVfsMountFlags::NOATIME | StatVfsMountFlags::RDONLY) {
            Policy::Never
        } else if flags.contains(StatVfsMountFlags::RELATIME) {
            Policy::Relative
        } else {
            Policy::Always
        }
    }

    /// Whether a read at `now_s` sets the time (the kernel's `relatime_need_update`).
    fn sets(self, times: &Times, now_s: i64) -> bool {
        match self {
            Policy::Never => false,
            Policy::Always => true,
            Policy::Relative => {
                times.access <= times.change || now_s.saturating_sub(times.access.0) >= DAY_S
            }
        }
    }
}

/// Seconds since 1970, and nanoseconds.
type Time = (i64, i64);

struct Times {
    access: Time,
    /// The later one of `mtime` and `ctime`.
    change: Time,
}

// The types of these fields differ between architectures.
#[allow(clippy::unnecessary_cast)]
impl From<&Stat> for Times {
    fn from(stat: &Stat) -> Times {
        let content = (stat.st_mtime as i64, stat.st_mtime_nsec as i64);
        let inode = (stat.st_ctime as i64, stat.st_ctime_nsec as i64);
        Times {
            access: (stat.st_atime as i64, stat.st_atime_nsec as i64),
            change: content.max(inode),
        }
    }
}

/// What is known of one open file.
#[derive(Debug)]
pub(crate) struct Access {
    policy: Policy,
    /// When an engine last read from it, in seconds since 1970. The kernel leaves the time of some
    /// files alone although the mount would set it (`chattr +A`, an owner that a user namespace does
    /// not know): what an engine's read did not set, the next one does not set either. In whole
    /// seconds, rounded down, so that a change in the same second counts as later.
    read_s: AtomicI64,
}

impl Access {
    pub(crate) fn new(policy: Policy) -> Access {
        Access {
            policy,
            read_s: AtomicI64::new(i64::MIN),
        }
    }

    /// Whether a read sets the time, so that there is a need to ask.
    pub(crate) fn may_be_set(&self) -> bool {
        self.policy != Policy::Never
    }

    /// Whether a read of the file that `stat` is about would set the time now.
    pub(crate) fn would_be_set(&self, stat: &Stat) -> bool {
        let mut times = Times::from(stat);
        let read = (self.read_s.load(Ordering::Relaxed), 0);
        times.access = times.access.max(read);
        self.policy.sets(&times, now_s())
    }

    /// An engine has read from the file.
    pub(crate) fn was_read(&self) {
        if self.may_be_set() {
            self.read_s.store(now_s(), Ordering::Relaxed);
        }
    }
}

fn now_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |age| i64::try_from(age.as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: i64 = 1_000_000;

    #[test]
    fn relatime_is_the_kernels() {
        for (access, change, set) in [
            ((NOW_S, 0), (NOW_S - 1, 0), false),
            ((NOW_S, 2), (NOW_S, 1), false),
            ((NOW_S, 1), (NOW_S, 1), true),
            ((NOW_S, 1), (NOW_S, 2), true),
            ((NOW_S - 5, 9), (NOW_S - 4, 0), true),
            ((NOW_S - DAY_S + 1, 0), (0, 0), false),
            ((NOW_S - DAY_S, 0), (0, 0), true),
            ((NOW_S + 10, 0), (0, 0), false),
        ] {
            let times = Times { access, change };
            assert_eq!(Policy::Relative.sets(&times, NOW_S), set, "{access:?}");
            assert!(Policy::Always.sets(&times, NOW_S));
            assert!(!Policy::Never.sets(&times, NOW_S));
        }
    }

    #[test]
    fn the_mount_decides() {
        let relatime = StatVfsMountFlags::RELATIME;
        for (flags, policy) in [
            (StatVfsMountFlags::NOATIME, Policy::Never),
            (StatVfsMountFlags::RDONLY | relatime, Policy::Never),
            (relatime | StatVfsMountFlags::NODEV, Policy::Relative),
            (StatVfsMountFlags::NODEV, Policy::Always),
        ] {
            assert_eq!(Policy::of_flags(flags), policy, "{flags:?}");
        }
    }

    /// A file whose `mtime`, `ctime` and `atime` are those given.
    fn stat(change_s: i64, access_s: i64) -> Stat {
        let mut stat = rustix::fs::stat("/").unwrap();
        (stat.st_mtime, stat.st_ctime) = (change_s as _, change_s as _);
        (stat.st_mtime_nsec, stat.st_ctime_nsec) = (1, 1);
        (stat.st_atime, stat.st_atime_nsec) = (access_s as _, 0);
        stat
    }

    #[test]
    fn an_engine_takes_the_first_read() {
        let now = now_s();
        let unread = stat(now - 100, now - 200);
        let access = Access::new(Policy::Relative);
        assert!(access.would_be_set(&unread));
        access.was_read();
        assert!(!access.would_be_set(&unread));
        assert!(access.would_be_set(&stat(now + 100, now - 200)));
    }

    #[test]
    fn a_day_later_an_engine_takes_it_again() {
        let access = Access::new(Policy::Relative);
        access.read_s.store(now_s() - DAY_S, Ordering::Relaxed);
        assert!(access.would_be_set(&stat(0, 0)));
    }

    #[test]
    fn reading_does_not_settle_a_time_that_is_always_set() {
        let access = Access::new(Policy::Always);
        access.was_read();
        assert!(access.would_be_set(&stat(0, now_s())));
    }
}
