//! The choice of reads that go past the page cache: those of files that nobody else has asked for.
//!
//! A file that is read once from start to end would only evict files that are read again and again. So the
//! first stream that reads a large file leaves nothing of it in the page cache, but the file is remembered in
//! a ghost list. When another stream asks for it, or the same one again, it has been accessed twice, and from
//! then on its reads go through the page cache.
//!
//! While memory is short ([`memory_use`](super::memory_use)) the same holds for the read that comes with the open of
//! any file: sooner or later each page that enters the page cache has to take the place of another, which costs more
//! than to read it. While memory is free such reads fill the page cache. One in [`THROUGH_ONE_IN`] does so even then:
//! where more files are read than the ghost list has room for, nothing else would drive out what nobody asks for any
//! more.
//!
//! A client so slow that its chunk was dropped asks for the chunk again, which counts as a second access. The
//! page cache then keeps the bytes that the client has not taken.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use super::memory_use::MemoryUse;
use crate::files::{Kind, Meta, OpenFile};
use crate::job::{Class, Direct};
use crate::thread::lock;

/// Smaller files, in bytes, are read through the page cache while memory is free: they evict little.
const DIRECT_BYTES_MIN: u64 = 1 << 20;

/// One in so many reads that could pass goes through the page cache.
const THROUGH_ONE_IN: u32 = 16;

/// Bound on the remembered files; the oldest is forgotten first. About 100 bytes each.
const FILES_MAX: usize = 16_384;

/// Device and inode.
type Key = (u64, u64);

/// For the threads of the engines and the scheduler, not for event loops.
#[derive(Debug)]
pub(super) struct DirectPolicy {
    table: Mutex<Table>,
    memory: MemoryUse,
    /// Reads with the open of a file that nobody had asked for.
    first_opens: AtomicU32,
}

#[derive(Debug, Default)]
struct Table {
    files: HashMap<Key, Access>,
    /// In order of their first access.
    order: VecDeque<Key>,
}

#[derive(Debug, Clone, Copy)]
struct Access {
    stream: u64,
    /// The end of its last read.
    end: u64,
    twice: bool,
}

/// The reader of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader {
    pub(super) direct: Direct,
    pub(super) class: Class,
    pub(super) stream: u64,
}

impl DirectPolicy {
    /// Blocks, as [`DirectPolicy::refresh`].
    pub(super) fn new() -> DirectPolicy {
        DirectPolicy {
            table: Mutex::default(),
            memory: MemoryUse::of_process(),
            first_opens: AtomicU32::new(0),
        }
    }

    /// Looks whether memory is short. Reads files below `/proc` and `/sys/fs/cgroup`.
    pub(super) fn refresh(&self) {
        self.memory.refresh();
    }

    /// Decides whether `len` bytes from `offset` of `file` are read past the page cache, and records the access.
    ///
    /// A first chunk is read through the page cache even at the first access: it is small, and others may ask
    /// for the same.
    pub(super) fn decide(&self, reader: Reader, file: &OpenFile, offset: u64, len: usize) -> bool {
        match reader.direct {
            Direct::Never => false,
            Direct::Always => file.meta.kind == Kind::Regular,
            Direct::Auto if file.meta.size < DIRECT_BYTES_MIN || !file.reads_inline() => false,
            Direct::Auto => {
                self.record(&file.meta, reader.stream, offset, len) && reader.class != Class::First
            }
        }
    }

    /// As [`DirectPolicy::decide`], for the read that comes with the open of `file`, which happens `now`.
    pub(super) fn decide_at_open(
        &self,
        reader: Reader,
        file: &OpenFile,
        offset: u64,
        len: usize,
        now: SystemTime,
    ) -> bool {
        if reader.direct == Direct::Auto && self.memory.is_short() && file.reads_inline() {
            let once = self.record(&file.meta, reader.stream, offset, len);
            return once
                && !file.meta.has_changed_lately(now)
                && !file.is_known_to_page_cache(offset, len)
                && self.passes();
        }
        self.decide(reader, file, offset, len)
    }

    /// Whether another read may pass.
    fn passes(&self) -> bool {
        let before = self.first_opens.fetch_add(1, Ordering::Relaxed);
        before % THROUGH_ONE_IN != THROUGH_ONE_IN - 1
    }

    /// Records that `stream` reads `len` bytes from `offset`. Returns whether the file has been accessed only
    /// once: by this stream, and never backwards.
    pub(super) fn record(&self, file: &Meta, stream: u64, offset: u64, len: usize) -> bool {
        let end = offset.saturating_add(len as u64);
        lock(&self.table).record((file.device, file.inode), stream, offset, end)
    }
}

impl Table {
    fn record(&mut self, key: Key, stream: u64, offset: u64, end: u64) -> bool {
        let Some(access) = self.files.get_mut(&key) else {
            self.remember(key, stream, end);
            return true;
        };
        access.twice |= access.stream != stream || offset < access.end;
        access.end = end;
        !access.twice
    }

    fn remember(&mut self, key: Key, stream: u64, end: u64) {
        if self.order.len() >= FILES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.files.remove(&oldest);
        }
        let twice = false;
        self.files.insert(key, Access { stream, end, twice });
        self.order.push_back(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant, UNIX_EPOCH};

    use crate::files::{Root, Symlinks};

    const FILE: Key = (1, 2);

    #[test]
    fn one_stream_passes_once() {
        let mut table = Table::default();
        for chunk in 0..10 {
            assert!(table.record(FILE, 7, chunk * 100, chunk * 100 + 100));
        }
        assert!(!table.record(FILE, 7, 0, 100), "it began again");
        assert!(!table.record(FILE, 7, 1000, 1100), "the file stays known");
    }

    #[test]
    fn two_streams_are_two_accesses() {
        let mut table = Table::default();
        assert!(table.record(FILE, 7, 0, 100));
        assert!(table.record((1, 3), 8, 0, 100), "another file");
        assert!(!table.record(FILE, 8, 100, 200));
        assert!(!table.record(FILE, 7, 100, 200), "for the first one too");
    }

    fn policy(is_short: bool) -> DirectPolicy {
        DirectPolicy {
            table: Mutex::default(),
            memory: MemoryUse::for_test(is_short),
            first_opens: AtomicU32::new(0),
        }
    }

    /// The decisions for the opens of a small file by two streams, one after the other, when the file is `age` old.
    /// On a local file system.
    fn at_two_opens(policy: &DirectPolicy, direct: Direct, age: Duration) -> Option<[bool; 2]> {
        decisions(policy, direct, age, false)
    }

    fn decisions(
        policy: &DirectPolicy,
        direct: Direct,
        age: Duration,
        is_cached: bool,
    ) -> Option<[bool; 2]> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"small").unwrap();
        let root = Root::open(folder.path(), Symlinks::Beneath).unwrap();
        let file = root.open_cached(c"file").unwrap();
        if !file.reads_inline() {
            return None;
        }
        let start = Instant::now();
        while !is_cached && file.is_known_to_page_cache(0, 5) {
            rustix::fs::fsync(file.as_fd()).unwrap();
            let unwanted = rustix::fs::Advice::DontNeed;
            rustix::fs::fadvise(file.as_fd(), 0, None, unwanted).unwrap();
            assert!(start.elapsed() < Duration::from_secs(30), "it stays");
        }
        let now = UNIX_EPOCH + Duration::from_secs(file.meta.ctime_s as u64) + age;
        let decisions = [1, 2].map(|stream| {
            let reader = Reader {
                direct,
                class: Class::First,
                stream,
            };
            policy.decide_at_open(reader, &file, 0, 5, now)
        });
        Some(decisions)
    }

    #[test]
    fn while_memory_is_short_the_first_open_of_a_file_passes() {
        const OLD: Duration = Duration::from_secs(61);
        for (is_short, direct, expected) in [
            (true, Direct::Auto, [true, false]),
            (true, Direct::Never, [false; 2]),
            (true, Direct::Always, [true; 2]),
            (false, Direct::Auto, [false; 2]),
        ] {
            if let Some(found) = at_two_opens(&policy(is_short), direct, OLD) {
                assert_eq!(found, expected, "{is_short} {direct:?}");
            }
        }
    }

    #[test]
    fn a_file_in_memory_does_not_pass() {
        let old = Duration::from_secs(61);
        let found = decisions(&policy(true), Direct::Auto, old, true);
        assert!(found.is_none_or(|found| found == [false; 2]));
    }

    #[test]
    fn a_few_first_opens_do_not_pass() {
        let policy = policy(true);
        let passed = (0..4 * THROUGH_ONE_IN).filter(|_| policy.passes());
        assert_eq!(passed.count() as u32, 4 * (THROUGH_ONE_IN - 1));
    }

    #[test]
    fn a_file_that_has_just_changed_does_not_pass() {
        for (age, passes) in [(0, false), (60, false), (61, true)] {
            let age = Duration::from_secs(age);
            if let Some([first, _]) = at_two_opens(&policy(true), Direct::Auto, age) {
                assert_eq!(first, passes, "{age:?}");
            }
        }
    }

    #[test]
    fn the_list_is_bounded() {
        let mut table = Table::default();
        for inode in 0..=FILES_MAX as u64 {
            assert!(table.record((1, inode), 7, 0, 100));
        }
        assert_eq!(
            (table.files.len(), table.order.len()),
            (FILES_MAX, FILES_MAX)
        );
        assert!(table.record((1, 0), 8, 0, 100), "the oldest is forgotten");
        assert!(!table.record((1, 2), 8, 0, 100));
    }
}
