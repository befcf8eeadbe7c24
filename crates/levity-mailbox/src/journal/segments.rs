//! The segments that there are, and how much of them is needed.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The segments by their numbers.
#[derive(Debug, Default)]
pub(super) struct Segments {
    by_number: BTreeMap<u32, Segment>,
    /// One may be needed no longer.
    has_changed: bool,
}

/// A segment.
#[derive(Debug, Default)]
pub(super) struct Segment {
    /// In bytes, as far as it is valid.
    pub len: u32,
    /// Bytes of records that are needed, about.
    pub live: u64,
    /// Bytes of records of removed boxes.
    pub tombs: u64,
    /// Shared by those who read it. While there are any, its file is not removed.
    pub readers: Arc<()>,
}

impl Segments {
    pub(super) fn add(&mut self, number: u32, len: u32) {
        let segment = self.by_number.entry(number).or_insert_with(|| {
            self.has_changed = true;
            Segment::default()
        });
        segment.len = len;
    }

    pub(super) fn get(&self, number: u32) -> Option<&Segment> {
        self.by_number.get(&number)
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<Segment> {
        self.by_number.remove(&number)
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (u32, &Segment)> {
        self.by_number
            .iter()
            .map(|(number, segment)| (*number, segment))
    }

    /// `bytes` more of a segment are needed.
    pub(super) fn need(&mut self, number: u32, bytes: usize) {
        if let Some(segment) = self.by_number.get_mut(&number) {
            segment.live += bytes as u64;
        }
    }

    /// `bytes` of a segment are no longer needed.
    pub(super) fn release(&mut self, number: u32, bytes: usize) {
        if let Some(segment) = self.by_number.get_mut(&number) {
            segment.live = segment.live.saturating_sub(bytes as u64);
            self.has_changed = true;
        }
    }

    /// A segment has a record of a removed box.
    pub(super) fn bury(&mut self, number: u32, bytes: usize) {
        if let Some(segment) = self.by_number.get_mut(&number) {
            segment.tombs += bytes as u64;
            self.has_changed = true;
        }
    }

    /// Whether one may be needed no longer since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Whether a segment other than `except` has a number up to `last`.
    pub(super) fn any_up_to(&self, last: u32, except: u32) -> bool {
        self.by_number
            .range(..=last)
            .any(|(number, _)| *number != except)
    }
}
