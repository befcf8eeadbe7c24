//! The choice of reads that go past the page cache: reads of large files that only one stream has asked for.
//!
//! A file that is read once from start to end would only evict files that are read again and again. So the
//! first stream that reads a large file leaves nothing of it in the page cache, but the file is remembered in
//! a ghost list. When another stream asks for it, or the same one again, it has been accessed twice, and from
//! then on its reads go through the page cache.
//!
//! A client so slow that its chunk was dropped asks for the chunk again, which counts as a second access. The
//! page cache then keeps the bytes that the client has not taken.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use crate::files::{Kind, Meta, OpenFile};
use crate::job::{Class, Direct};
use crate::thread::lock;

/// Smaller files, in bytes, are always read through the page cache: they evict little.
const DIRECT_BYTES_MIN: u64 = 1 << 20;

/// Bound on the remembered files; the oldest is forgotten first. About 100 bytes each.
const FILES_MAX: usize = 16_384;

/// Device and inode.
type Key = (u64, u64);

/// For the threads of the engines and the scheduler, not for event loops.
#[derive(Debug, Default)]
pub(super) struct DirectPolicy(Mutex<Table>);

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

    /// Records that `stream` reads `len` bytes from `offset`. Returns whether the file has been accessed only
    /// once: by this stream, and never backwards.
    pub(super) fn record(&self, file: &Meta, stream: u64, offset: u64, len: usize) -> bool {
        let end = offset.saturating_add(len as u64);
        lock(&self.0).record((file.device, file.inode), stream, offset, end)
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
