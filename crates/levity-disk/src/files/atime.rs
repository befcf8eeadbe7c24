//! When a read would update the access time of a file.
//!
//! Only the owner of a file may open it with `O_NOATIME`. For other users the kernel updates the access time
//! at the end of a read, also with `RWF_NOWAIT`, and the change of the inode may wait for the journal
//! (`touch_atime`, and ext4's `ext4_dirty_inode` below it). So such a read is left to an engine.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Stat, StatVfsMountFlags};

/// The age, in seconds, at which `relatime` updates an access time.
const DAY_S: i64 = 24 * 60 * 60;

/// When reads update the access time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Never: the mount is `noatime` or read-only, or the file is open with `O_NOATIME`.
    Never,
    /// If it is not after the last change, or is a day old (`relatime`, the default of `mount`).
    Relative,
    /// At every read (`strictatime`).
    Always,
}

impl Policy {
    /// The policy of the mount of `file`. A later `mount -o remount` is not noticed.
    pub(crate) fn of_mount(file: impl AsFd) -> io::Result<Policy> {
        Ok(Policy::of_flags(rustix::fs::fstatvfs(file)?.f_flag))
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

    /// Whether a read at `now_s` updates the access time (the kernel's `relatime_need_update`).
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
    /// The later of `mtime` and `ctime`.
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

/// The access time of one open file.
#[derive(Debug)]
pub(crate) struct Access {
    policy: Policy,
    /// When an engine last read from it, in seconds since 1970. The kernel does not update the access time of
    /// some files although the mount's policy says so (`chattr +A`, an owner that is unknown in the user
    /// namespace): if an engine's read did not update it, the next one does not either. In whole seconds,
    /// rounded down, so that a change in the same second counts as later.
    read_s: AtomicI64,
}

impl Access {
    pub(crate) fn new(policy: Policy) -> Access {
        Access {
            policy,
            read_s: AtomicI64::new(i64::MIN),
        }
    }

    /// Whether a read may update the access time at all.
    pub(crate) fn may_be_set(&self) -> bool {
        self.policy != Policy::Never
    }

    /// Whether a read of the file with these metadata would update the access time now.
    pub(crate) fn would_be_set(&self, stat: &Stat) -> bool {
        let mut times = Times::from(stat);
        let read = (self.read_s.load(Ordering::Relaxed), 0);
        times.access = times.access.max(read);
        self.policy.sets(&times, now_s())
    }

    /// Records that an engine has read from the file.
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

    /// Metadata with these values of `mtime`, `ctime` and `atime`.
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
