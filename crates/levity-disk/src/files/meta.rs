//! File metadata.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Stat};

/// A file that has changed within this time may be changing. It is not sent by reference, and is read through the page
/// cache with its open: what was written last is there, and the kernel would have to write it to the disk first.
const CHANGED_MAX: Duration = Duration::from_secs(60);

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A named pipe, a socket, a device, or a link whose target is not allowed. Never read.
    Other,
}

/// The metadata that `fstat` returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// The kind of the file.
    pub kind: Kind,
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
    /// In bytes.
    pub size: u64,
    /// Last change of the content: seconds since 1970, negative before.
    pub mtime_s: i64,
    /// Nanoseconds after `mtime_s`. The clock of file systems has ticks of 1 to 10 ms (with multigrain
    /// timestamps, from Linux 6.13, less), so two changes within one tick may look the same.
    pub mtime_ns: u32,
    /// Last change of content or metadata: seconds since 1970.
    pub ctime_s: i64,
    /// Nanoseconds after `ctime_s`.
    pub ctime_ns: u32,
    /// Number of hard links; 0 once the file is deleted.
    pub links: u64,
}

impl Meta {
    /// Whether both describe the same content: same file, size, and times of change.
    pub fn same_version(&self, other: &Meta) -> bool {
        let version = |meta: &Meta| Meta { links: 0, ..*meta };
        version(self) == version(other)
    }

    /// Whether the file may have changed within [`CHANGED_MAX`] before `now`: by its ctime, as a program can set the
    /// mtime. A ctime that is later than `now`, of another clock, counts too.
    pub(crate) fn has_changed_lately(&self, now: SystemTime) -> bool {
        let since_epoch = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let settled = since_epoch.saturating_sub(CHANGED_MAX).as_secs();
        i64::try_from(settled).is_ok_and(|settled| self.ctime_s >= settled)
    }

    /// Whether this file may be sent in place of `original`, from which it was made: it is a regular file and
    /// was not modified in an earlier second. An older file shows `original` as it was before its last
    /// change. Only seconds are compared, because some tools copy a time without its fraction.
    pub fn may_stand_in_for(&self, original: &Meta) -> bool {
        let regular = self.kind == Kind::Regular && original.kind == Kind::Regular;
        regular && self.mtime_s >= original.mtime_s
    }
}

// The types of these fields differ between architectures.
#[allow(clippy::unnecessary_cast)]
impl From<Stat> for Meta {
    fn from(stat: Stat) -> Meta {
        Meta {
            kind: match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => Kind::Regular,
                FileType::Directory => Kind::Directory,
                _ => Kind::Other,
            },
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime_s: stat.st_mtime as i64,
            mtime_ns: stat.st_mtime_nsec as u32,
            ctime_s: stat.st_ctime as i64,
            ctime_ns: stat.st_ctime_nsec as u32,
            links: stat.st_nlink as u64,
        }
    }
}
