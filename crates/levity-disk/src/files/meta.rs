//! What `fstat` says of a file.

use rustix::fs::{FileType, Stat};

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A named pipe, a socket, a device, or a link that leads nowhere allowed: never read.
    Other,
}

/// What `fstat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// What it is.
    pub kind: Kind,
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
    /// In bytes.
    pub size: u64,
    /// Last change of the content: seconds since 1970, negative before.
    pub mtime_s: i64,
    /// Nanoseconds after `mtime_s`. File systems step in ticks of 1 to 10 ms (multigrain ones since
    /// Linux 6.13 finer), so two changes within one tick may look the same.
    pub mtime_ns: u32,
    /// Last change of content or metadata: seconds since 1970.
    pub ctime_s: i64,
    /// Nanoseconds after `ctime_s`.
    pub ctime_ns: u32,
    /// Names that it has; 0 once it is deleted.
    pub links: u64,
}

impl Meta {
    /// Whether both tell of the same content: same file, size, and times of change.
    pub fn same_version(&self, other: &Meta) -> bool {
        let version = |meta: &Meta| Meta { links: 0, ..*meta };
        version(self) == version(other)
    }

    /// Whether a file may be sent in place of `original`, from which it was made: a regular file that was
    /// not written in an earlier second. An older one shows what `original` was before its last change.
    /// Seconds, because not every tool that copies a time copies all of it.
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
