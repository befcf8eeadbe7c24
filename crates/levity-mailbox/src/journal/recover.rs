//! Reads the folder at start.
//!
//! Of a segment that was finished, only the index is read. The newest one has none unless the process ended in order; its
//! records are read, up to the first that is cut. What was lost is found so:
//!
//! - A segment that the newest one lists is missing or too short, a record in it is wrong, or the newest one ends before
//!   what is known to be synced: any box may have lost messages.
//! - The newest segment has no index, and the machine has started anew since, or a sync had failed: boxes that are not durable
//!   may have lost messages that were acknowledged before they were synced.
//!
//! A box that may have lost messages begins a new epoch. The headers of the following segments say so, as records do not.

use std::cmp::{Ordering, Reverse};
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ffi::CStr;
use std::fs;
use std::io;
use std::path::Path;

use levity_disk::TEMPORARY_PREFIX;

use super::files::Files;
use super::index::{Group, Groups, Index};
use super::record;
use super::scan::scan;
use super::segment::{Header, Kind, Loss, SYNCED, Synced, index_name, kind, segment_name};
use super::shared::writer::name;
use super::slot::Slot;
use super::stored::StoredBox;
use crate::name::Name;

/// How far epochs go on after a crash: more boxes than can have been made without a record that was written.
const EPOCHS_PER_RUN: u64 = 1 << 32;

/// What the folder has.
pub(super) struct Recovered {
    /// Of the newest segment, with what is lost by now. The default if there is none.
    pub header: Header,
    /// The number of the next segment.
    pub next_number: u32,
    /// Of the segments that are needed, in their order.
    pub indexes: Vec<Index>,
    /// Segments whose index is not in a file.
    pub without_index: Vec<u32>,
    /// All epochs that were given before are at most this one.
    pub epoch: u64,
    /// What was found that should not be so.
    pub faults: Vec<String>,
}

/// Reads the folder of `files`. Blocks.
pub(super) fn recover(files: &Files, boot: &str) -> io::Result<Recovered> {
    let mut reader = Reader {
        files,
        folder: files.root.path(),
        segments: BTreeSet::new(),
        indexes: BTreeSet::new(),
        faults: Vec::new(),
        is_damaged: false,
    };
    reader.list()?;
    reader.recover(boot)
}

struct Reader<'a> {
    files: &'a Files,
    folder: &'a Path,
    segments: BTreeSet<u32>,
    indexes: BTreeSet<u32>,
    faults: Vec<String>,
    /// Any box may have lost messages.
    is_damaged: bool,
}

impl Reader<'_> {
    fn list(&mut self) -> io::Result<()> {
        for entry in fs::read_dir(self.folder)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else {
                continue;
            };
            match kind(name) {
                Some(Kind::Segment(number)) => drop(self.segments.insert(number)),
                Some(Kind::Index(number)) => drop(self.indexes.insert(number)),
                None if name.starts_with(TEMPORARY_PREFIX) => {
                    fs::remove_file(self.folder.join(name))?;
                }
                None => {}
            }
        }
        Ok(())
    }

    fn read(&self, name: &CStr) -> io::Result<Vec<u8>> {
        fs::read(self.folder.join(name.to_str().expect("ASCII")))
    }

    /// Something is wrong: any box may have lost messages.
    fn damaged(&mut self, fault: String) {
        self.faults.push(fault);
        self.is_damaged = true;
    }

    fn recover(mut self, boot: &str) -> io::Result<Recovered> {
        let synced = self.read(&name(SYNCED));
        let synced = synced.ok().and_then(|bytes| Synced::decode(&bytes));
        let (mut header, newest) = self.newest(synced)?;
        let is_clean = newest.as_ref().is_none_or(|newest| newest.is_finished);
        let (indexes, without_index) = self.others(&header, newest)?;
        self.remove_others(&indexes)?;
        let last = self.segments.last().copied().unwrap_or(0);
        let next_number = last.max(synced.map_or(0, |synced| synced.segment)) + 1;
        let epochs = indexes.iter().map(|index| index.epoch);
        let mut epoch = epochs.fold(header.epoch, u64::max);
        if !is_clean || self.is_damaged {
            epoch += EPOCHS_PER_RUN;
            let loss = Loss {
                before: next_number,
                epoch,
            };
            let has_failed = synced.is_some_and(|synced| synced.has_failed);
            if *header.boot != *boot || has_failed || self.is_damaged {
                header.unsynced = loss;
            }
            if self.is_damaged {
                header.all = loss;
            }
        }
        Ok(Recovered {
            header,
            next_number,
            indexes,
            without_index,
            epoch,
            faults: self.faults,
        })
    }

    /// The indexes of all segments that are needed, and those of them that are not in a file.
    fn others(
        &mut self,
        header: &Header,
        newest: Option<Newest>,
    ) -> io::Result<(Vec<Index>, Vec<u32>)> {
        let mut others: BTreeMap<_, _> = header.others.iter().copied().collect();
        let (mut indexes, mut without_index) = (Vec::new(), Vec::new());
        if let Some(Newest { index, is_finished }) = newest {
            others.retain(|number, _| !index.dropped.contains(number));
            without_index.extend((!is_finished).then_some(index.segment));
            indexes.push(index);
        }
        for (number, len) in others {
            let (index, is_finished) = self.segment(number, len)?;
            without_index.extend(index.as_ref().filter(|_| !is_finished).map(|it| it.segment));
            indexes.extend(index);
        }
        indexes.sort_by_key(|index| index.segment);
        without_index.sort_unstable();
        Ok((indexes, without_index))
    }

    /// The newest segment whose header can be read.
    fn newest(&mut self, synced: Option<Synced>) -> io::Result<(Header, Option<Newest>)> {
        if let Some(synced) = synced
            && self
                .segments
                .last()
                .is_none_or(|last| *last < synced.segment)
        {
            self.damaged(format!("segment {} is missing", synced.segment));
        }
        let numbers: Vec<_> = self.segments.iter().rev().copied().collect();
        for number in numbers {
            let bytes = self.read(&segment_name(number))?;
            let header = Header::decode(&bytes).map(|(header, _)| header);
            let synced = synced.filter(|synced| synced.segment == number);
            let index = self.index(number);
            // An index is written when everything is synced.
            let lens = [
                synced.map(|synced| synced.len),
                index.as_ref().map(|index| index.segment_len),
            ];
            let required = lens.into_iter().flatten().max().unwrap_or(0);
            let index = index.filter(|index| index.segment_len as usize == bytes.len());
            let is_finished = index.is_some();
            let index = match index {
                Some(index) => Some(index),
                None => self.scan(&bytes, number, required),
            };
            let (Some(header), Some(index)) = (header, index) else {
                self.damaged(format!("segment {number} has no header"));
                continue;
            };
            if index.segment_len < required {
                self.damaged(format!("segment {number} is cut"));
            }
            return Ok((header, Some(Newest { index, is_finished })));
        }
        Ok((Header::default(), None))
    }

    /// The records of a finished segment with at least `len` bytes, and whether it has a right index.
    fn segment(&mut self, number: u32, len: u32) -> io::Result<(Option<Index>, bool)> {
        let name = segment_name(number);
        let path = self.folder.join(name.to_str().expect("ASCII"));
        let size = match fs::metadata(path) {
            Ok(meta) => meta.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.damaged(format!("segment {number} is missing"));
                return Ok((None, false));
            }
            Err(error) => return Err(error),
        };
        let index = self
            .index(number)
            .filter(|index| index.segment_len >= len && u64::from(index.segment_len) <= size);
        if index.is_some() {
            return Ok((index, true));
        }
        let mut bytes = self.read(&name)?;
        bytes.truncate(len as usize);
        let index = self.scan(&bytes, number, len);
        if index.as_ref().is_none_or(|index| index.segment_len < len) {
            self.damaged(format!("segment {number} is cut"));
        }
        Ok((index, false))
    }

    fn scan(&mut self, bytes: &[u8], number: u32, required: u32) -> Option<Index> {
        let scan = scan(bytes, number, required)?;
        if scan.bad > 0 {
            self.damaged(format!("segment {number} has {} wrong records", scan.bad));
        }
        Some(scan.index)
    }

    /// The index of a segment, if it is right.
    fn index(&self, number: u32) -> Option<Index> {
        if !self.indexes.contains(&number) {
            return None;
        }
        let bytes = self.read(&index_name(number)).ok()?;
        Index::decode(bytes).filter(|index| index.segment == number)
    }

    /// Removes files of segments that are not needed.
    fn remove_others(&self, needed: &[Index]) -> io::Result<()> {
        let is_needed = |number: &u32| {
            let found = needed.binary_search_by_key(number, |index| index.segment);
            found.is_ok()
        };
        // One that has no header is kept for whoever wants to see what is in it.
        let newest = needed.last().map_or(0, |index| index.segment);
        let segments = self.segments.iter().filter(|number| **number < newest);
        for &number in segments.filter(|number| !is_needed(number)) {
            self.files.remove(segment_name(number))?;
        }
        for &number in self.indexes.iter().filter(|number| !is_needed(number)) {
            self.files.remove(index_name(number))?;
        }
        Ok(())
    }
}

/// The newest segment.
struct Newest {
    index: Index,
    /// It has a right index: the process has ended in order.
    is_finished: bool,
}

/// The boxes of all indexes, in the order of their names.
pub(super) struct Boxes<'a> {
    /// The next group of each index, by name and segment, and what follows it.
    next: BinaryHeap<Reverse<Head<'a>>>,
    header: &'a Header,
    now_ms: u64,
    /// The groups of a box.
    groups: Vec<(u32, Group<'a>)>,
    /// Bytes of records of removed boxes, by segment.
    pub tombs: Vec<(u32, usize)>,
}

/// The next group of an index.
struct Head<'a> {
    segment: u32,
    group: Group<'a>,
    rest: Groups<'a>,
}

impl Head<'_> {
    fn key(&self) -> (&str, u32) {
        (self.group.name, self.segment)
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Head<'_> {}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl<'a> Boxes<'a> {
    /// `now_ms` is the present time in milliseconds since 1970.
    pub(super) fn new(indexes: &'a [Index], header: &'a Header, now_ms: u64) -> Self {
        let head = |index: &'a Index| {
            let mut rest = index.groups();
            let group = rest.next()?;
            Some(Reverse(Head {
                segment: index.segment,
                group,
                rest,
            }))
        };
        Self {
            next: indexes.iter().filter_map(head).collect(),
            header,
            now_ms,
            groups: Vec::new(),
            tombs: Vec::new(),
        }
    }

    /// Takes the groups of the next box. False if there is none.
    fn take_groups(&mut self) -> bool {
        self.groups.clear();
        while let Some(mut head) = self.next.peek_mut() {
            let Reverse(Head {
                segment,
                group,
                rest,
            }) = &mut *head;
            if self
                .groups
                .first()
                .is_some_and(|(_, first)| first.name != group.name)
            {
                break;
            }
            self.groups.push((*segment, *group));
            match rest.next() {
                Some(next) => *group = next,
                None => drop(PeekMut::pop(head)),
            }
        }
        !self.groups.is_empty()
    }
}

impl Iterator for Boxes<'_> {
    type Item = StoredBox;

    fn next(&mut self) -> Option<StoredBox> {
        while self.take_groups() {
            let removed = self
                .groups
                .iter()
                .filter(|(_, group)| group.removed.is_some());
            self.tombs.extend(
                removed.map(|(segment, group)| (*segment, record::HEAD_BYTES + group.name.len())),
            );
            let merged = merge(&self.groups, self.header, self.now_ms);
            if merged.is_some() {
                return merged;
            }
        }
        None
    }
}

/// The box that has these groups, in the order of segments; `None` if it was removed.
fn merge(groups: &[(u32, Group<'_>)], header: &Header, now_ms: u64) -> Option<StoredBox> {
    let removed = |group: &Group<'_>| match group.removed {
        Some(_) => group.epoch,
        None if group.is_born => group.epoch.saturating_sub(1),
        None => 0,
    };
    let removed = groups.iter().map(|(_, group)| removed(group)).max()?;
    let live = || groups.iter().filter(|(_, group)| group.epoch > removed);
    let (first, _) = live().next()?;
    let (last, newest) = live().max_by_key(|(segment, group)| (group.epoch, *segment))?;
    let mut stored = StoredBox::new(Name::parse(newest.name)?, newest.epoch, 0);
    let largest = |of: fn(&Group<'_>) -> u64| live().map(|(_, group)| of(group)).max();
    stored.next = largest(|group| group.next)?;
    stored.lost = largest(|group| group.lost)?;
    stored.read = largest(|group| group.read)?;
    stored.idle_ms = newest.idle_ms;
    stored.is_born = newest.is_born;
    stored.is_durable = newest.is_durable;
    stored.was_durable = newest.is_durable;
    stored.state_segment = *last;
    let losses = [(true, header.all), (!newest.is_durable, header.unsynced)];
    for (_, loss) in losses.iter().filter(|(may_lose, _)| *may_lose) {
        if *first < loss.before && loss.epoch > stored.epoch {
            (stored.epoch, stored.is_born) = (loss.epoch, false);
        }
    }
    let mut slots: Vec<Slot> = Vec::new();
    for (segment, group) in live() {
        slots.extend(group.slots().map(|mut slot| {
            slot.segment = *segment;
            slot
        }));
    }
    tidy(&mut slots, stored.lost, now_ms);
    slots.shrink_to_fit();
    stored.set_slots(slots);
    Some(stored)
}

/// Brings the slots of a box in order, and drops those of messages that are gone.
fn tidy(slots: &mut Vec<Slot>, lost: u64, now_ms: u64) {
    // Stable: of two copies, that in the later segment is last.
    slots.sort_by_key(|slot| slot.sequence);
    slots.dedup_by(|later, earlier| {
        let is_copy = later.sequence == earlier.sequence;
        if is_copy {
            *earlier = *later;
        }
        is_copy
    });
    for slot in slots.iter_mut() {
        if slot.sequence < lost || slot.has_expired(now_ms) {
            slot.set_kept(false);
        }
    }
    slots.retain(|slot| slot.is_kept() || slot.is_keyed());
}

#[cfg(test)]
mod tests {
    use super::super::index::tests::{example, resealed};
    use super::*;

    /// Whatever an index says, as long as its checksum is right.
    #[test]
    fn an_index_with_wrong_content_does_no_harm() {
        let bytes = example().encode();
        let header = Header::default();
        let read = |bytes: Vec<u8>| {
            let index = Index::decode(resealed(bytes))?;
            let indexes = [example(), index];
            let boxes = Boxes::new(&indexes, &header, 0);
            Some(boxes.map(|stored| stored.slots().count()).sum::<usize>())
        };
        assert_eq!(read(bytes.clone()), Some(4));
        for at in 8..bytes.len() {
            for byte in 0..=255 {
                let mut bytes = bytes.clone();
                bytes[at] = byte;
                let _ = read(bytes);
            }
            let _ = read(bytes[..at].to_vec());
        }
    }
}
