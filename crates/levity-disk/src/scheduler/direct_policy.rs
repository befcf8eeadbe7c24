//! Which large files only one stream has asked for: those are read past the page cache.
//!
//! What is read once, from the first byte to the last, would only push out what is asked for again
//! and again. So the first stream that reads a large file leaves nothing of it in the page cache, but
//! the file is remembered; when another stream asks for it, or the same one again, it has been touched
//! twice, and from then on its reads fill the page cache like all others. A list of what is not in a
//! cache is called a ghost list.
//!
//! A client that is so slow that its chunk was let go asks for it again, and so counts as a second touch:
//! what it has not taken is then kept by the page cache, where it costs the disk nothing more.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use crate::files::{Kind, Meta, OpenFile};
use crate::job::{Class, Direct};
use crate::thread::lock;

/// Smaller files, in bytes, are always read through the page cache: what they push out is little.
const DIRECT_BYTES_MIN: u64 = 1 << 20;

/// Files that are remembered; the one seen first is forgotten first. About 100 bytes each.
const FILES_MAX: usize = 16_384;

/// Device and inode.
type Key = (u64, u64);

/// For the threads of engines and the scheduler; loops do not ask.
#[derive(Debug, Default)]
pub(super) struct DirectPolicy(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    files: HashMap<Key, Touch>,
    /// As they came.
    order: VecDeque<Key>,
}

#[derive(Debug, Clone, Copy)]
struct Touch {
    stream: u64,
    /// How far it has read.
    end: u64,
    twice: bool,
}

/// Who reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader {
    pub(super) direct: Direct,
    pub(super) class: Class,
    pub(super) stream: u64,
}

impl DirectPolicy {
    /// Whether `len` bytes from `offset` of `file` are to be read past the page cache. Notes that they
    /// were asked for.
    ///
    /// A first chunk fills the page cache also where it is the first touch: others may be about to ask
    /// for the same, and it is small.
    pub(super) fn reads_directly(
        &self,
        reader: Reader,
        file: &OpenFile,
        offset: u64,
        len: usize,
    ) -> bool {
        match reader.direct {
            Direct::Never => false,
            Direct::Always => file.meta.kind == Kind::Regular,
            Direct::Auto if file.meta.size < DIRECT_BYTES_MIN || !file.reads_inline() => false,
            Direct::Auto => {
                self.note(&file.meta, reader.stream, offset, len) && reader.class != Class::First
            }
        }
    }

    /// Notes that `stream` wants `len` bytes from `offset`. Whether the file has been touched only
    /// once: by this stream, which has never gone back.
    pub(super) fn note(&self, file: &Meta, stream: u64, offset: u64, len: usize) -> bool {
        let end = offset.saturating_add(len as u64);
        lock(&self.0).touch((file.device, file.inode), stream, offset, end)
    }
}

impl Table {
    fn touch(&mut self, key: Key, stream: u64, offset: u64, end: u64) -> bool {
        let Some(touch) = self.files.get_mut(&key) else {
            self.remember(key, stream, end);
            return true;
        };
        touch.twice |= touch.stream != stream || offset < touch.end;
        touch.end = end;
        !touch.twice
    }

    fn remember(&mut self, key: Key, stream: u64, end: u64) {
        if self.order.len() >= FILES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.files.remove(&oldest);
        }
        let twice = false;
        self.files.insert(key, Touch { stream, end, twice });
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
            assert!(table.touch(FILE, 7, chunk * 100, chunk * 100 + 100));
        }
        assert!(!table.touch(FILE, 7, 0, 100), "it began again");
        assert!(!table.touch(FILE, 7, 1000, 1100), "the file stays known");
    }

    #[test]
    fn two_streams_are_two_touches() {
        let mut table = Table::default();
        assert!(table.touch(FILE, 7, 0, 100));
        assert!(table.touch((1, 3), 8, 0, 100), "another file");
        assert!(!table.touch(FILE, 8, 100, 200));
        assert!(!table.touch(FILE, 7, 100, 200), "for the first one too");
    }

    #[test]
    fn the_list_is_bounded() {
        let mut table = Table::default();
        for inode in 0..=FILES_MAX as u64 {
            assert!(table.touch((1, inode), 7, 0, 100));
        }
        assert_eq!(
            (table.files.len(), table.order.len()),
            (FILES_MAX, FILES_MAX)
        );
        assert!(table.touch((1, 0), 8, 0, 100), "the oldest is forgotten");
        assert!(!table.touch((1, 2), 8, 0, 100));
    }
}
