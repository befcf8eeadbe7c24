//! When a request last changed something in a folder.
//!
//! What a worker has cached of a folder before such a change is not used afterwards, so that a client that has got its 201
//! gets the new content from any worker. A change of another program is noticed as for any root: by the time to live, or
//! the watch.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Folders share these times by a hash. A shared one is later than necessary: something is looked up once too often.
const TIMES: usize = 1024;

/// The times of the last changes of all folders beneath a root.
pub struct Changes {
    born: Instant,
    /// In nanoseconds since `born`; 0 without a change.
    times: Box<[AtomicU64]>,
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            born: Instant::now(),
            times: (0..TIMES).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl Changes {
    /// Records that something in the folder of `path` has changed by now. `path` is relative to the root; that of a folder
    /// itself ends with a slash.
    pub fn mark(&self, path: &[u8]) {
        let now = self.born.elapsed().as_nanos();
        let now = u64::try_from(now).unwrap_or(u64::MAX).max(1);
        self.time(path).fetch_max(now, Ordering::AcqRel);
    }

    /// The time of the last change in the folder of `path`; `None` if there was none. What was looked up until then may be
    /// outdated.
    pub fn last(&self, path: &[u8]) -> Option<Instant> {
        match self.time(path).load(Ordering::Acquire) {
            0 => None,
            nanos => Some(self.born + std::time::Duration::from_nanos(nanos)),
        }
    }

    fn time(&self, path: &[u8]) -> &AtomicU64 {
        let slash = path.iter().rposition(|&byte| byte == b'/');
        let mut hasher = DefaultHasher::new();
        path[..slash.unwrap_or(0)].hash(&mut hasher);
        &self.times[hasher.finish() as usize % TIMES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_one_of_the_folder_of_its_path() {
        let changes = Changes::default();
        assert_eq!(changes.last(b"a/b"), None);
        let before = Instant::now();
        changes.mark(b"a/b");
        let last = changes.last(b"a/").expect("a change");
        assert!(last >= before && last <= Instant::now());
        assert_eq!(changes.last(b"a/other"), Some(last));
        assert_eq!(changes.last(b"a"), None, "the folder around it");
        changes.mark(b"new");
        assert!(changes.last(b"").expect("a change") > last);
    }
}
