//! The thread that keeps segments: it writes the indexes of finished ones, and frees those that are mostly not needed.
//!
//! To free a segment, what is needed of it is copied to the newest one, a bounded piece at a time, in the batches of the
//! writer: nobody waits for it. What is needed is decided by where the boxes say that their messages are, so a record that is
//! there twice after a crash does no harm.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::super::batch::{BoxId, Reply, Waiter, What};
use super::super::files::PIECE_BYTES;
use super::super::index::Index;
use super::super::record::{self, Body, Head};
use super::super::scan::scan;
use super::super::segment::{index_name, segment_name};
use super::super::segments::Segments;
use super::super::slot::Slot;
use super::super::state::State;
use super::Shared;
use crate::name::Name;

/// The pause before a file is removed that was being read, or could not be removed, and before a segment is freed after the
/// writer could not write.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Boxes that are looked at while the state is locked.
const LOOKED_AT_MAX: usize = 256;

/// So many small segments are put together.
const SMALL_MAX: usize = 8;

/// What the thread is told.
pub(in crate::journal) enum Event {
    /// Nothing more is added to a segment.
    Finished(u32),
    /// A segment may be no longer needed.
    Check,
    /// End. If everything was written, the number of the newest segment.
    Close(Option<u32>),
}

/// The state of the thread.
pub(in crate::journal) struct Keeper {
    shared: Arc<Shared>,
    events: Receiver<Event>,
    /// Segments that are not needed, whose files are still there.
    dropped: Vec<Dropped>,
    /// When to look for more to free.
    next_look: NextLook,
}

/// When to look for segments that can be freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextLook {
    AtOnce,
    /// After [`RETRY_INTERVAL`]: the writer could not write copies, or not sync them.
    Later,
    WhenTold,
}

struct Dropped {
    number: u32,
    readers: Arc<()>,
    /// A record that was synced says so.
    is_noted: bool,
}

/// Something of a segment that is needed.
enum Needed {
    Slot(BoxId, Slot),
    State(BoxId),
    Removed {
        name: String,
        epoch: u64,
        covers: u32,
    },
}

impl Keeper {
    pub(in crate::journal) fn new(shared: Arc<Shared>, events: Receiver<Event>) -> Self {
        Self {
            shared,
            events,
            dropped: Vec::new(),
            next_look: NextLook::WhenTold,
        }
    }

    /// Works until it is told to end.
    pub(in crate::journal) fn run(mut self) {
        loop {
            match self.next_event() {
                Event::Finished(number) => self.finished(number),
                Event::Check => self.tidy(),
                Event::Close(last) => return self.close(last),
            }
        }
    }

    fn next_event(&self) -> Event {
        if self.next_look == NextLook::AtOnce && !self.is_closing() {
            return self.events.try_recv().unwrap_or(Event::Check);
        }
        if self.next_look != NextLook::Later && self.dropped.is_empty() {
            return self.events.recv().unwrap_or(Event::Close(None));
        }
        match self.events.recv_timeout(RETRY_INTERVAL) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => Event::Check,
            Err(RecvTimeoutError::Disconnected) => Event::Close(None),
        }
    }

    fn is_closing(&self) -> bool {
        self.shared.is_closing.load(Ordering::Relaxed)
    }

    fn finished(&self, number: u32) {
        if let Err(error) = self.write_index(number, false) {
            // Without it, the segment is read at the next start.
            let line = format!("the index of segment {number} of the journal: {error}");
            self.shared.report(&line);
        }
    }

    fn close(&self, last: Option<u32>) {
        let written = last.map(|number| self.write_index(number, true));
        if let Some(Err(error)) = written {
            let line = format!("the journal is not closed in order: {error}");
            self.shared.report(&line);
        }
    }

    /// Writes the index of a segment, which is synced if `is_durable`.
    fn write_index(&self, number: u32, is_durable: bool) -> io::Result<()> {
        let Some(index) = self.scan(number)? else {
            return Ok(());
        };
        let files = &self.shared.files;
        let file = files.create()?;
        let bytes = index.encode();
        for (count, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
            let offset = (count * PIECE_BYTES) as u64;
            files.write(&file, offset, &Arc::new(piece.to_vec()))?;
        }
        if is_durable {
            files.sync(&file)?;
        }
        // One that was wrong may be there.
        files.remove(index_name(number))?;
        files.link(&file, index_name(number))?;
        if is_durable {
            files.sync_folder()?;
        }
        Ok(())
    }

    /// Reads the records of a segment; `None` if it is not needed any more.
    fn scan(&self, number: u32) -> io::Result<Option<Index>> {
        let Some(len) = self.shared.state().segments.get(number).map(|it| it.len) else {
            return Ok(None);
        };
        let files = &self.shared.files;
        let file = files.open_blocking(segment_name(number))?;
        let bytes = files.read_blocking(&file, 0, len as usize)?;
        let scan = scan(&bytes, number, len).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some(scan.index))
    }

    /// Frees a segment that is mostly not needed.
    fn tidy(&mut self) {
        self.remove_dropped();
        let victim = {
            let state = self.shared.state();
            choose(
                &state.segments,
                state.active,
                self.shared.options.segment_bytes,
            )
        };
        self.next_look = NextLook::WhenTold;
        let Some(number) = victim.filter(|_| !self.is_closing()) else {
            return;
        };
        self.next_look = match self.free(number) {
            Ok(()) => NextLook::AtOnce,
            // The writer has reported it.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => NextLook::Later,
            Err(error) => {
                if !self.is_closing() {
                    let line = format!("segment {number} of the journal cannot be freed: {error}");
                    self.shared.report(&line);
                }
                NextLook::WhenTold
            }
        };
    }

    /// Copies what is needed of a segment, and drops it.
    fn free(&mut self, number: u32) -> io::Result<()> {
        let index = match self.read_index(number) {
            Some(index) => index,
            None => self.scan(number)?.ok_or(io::ErrorKind::NotFound)?,
        };
        // Again, because an append that failed may have brought back what it had dropped.
        let mut is_first = true;
        while self.copy_needed(&index, is_first)? {
            is_first = false;
        }
        self.free_rest(number)?;
        let mut state = self.shared.state();
        let Some(segment) = state.segments.remove(number) else {
            return Ok(());
        };
        drop(state);
        self.dropped.push(Dropped {
            number,
            readers: segment.readers,
            is_noted: false,
        });
        self.remove_dropped();
        Ok(())
    }

    fn read_index(&self, number: u32) -> Option<Index> {
        let files = &self.shared.files;
        let file = files.open_blocking(index_name(number)).ok()?;
        let len = usize::try_from(file.meta().size).ok()?;
        let bytes = files.read_blocking(&file, 0, len).ok()?;
        Index::decode(bytes).filter(|index| index.segment == number)
    }

    /// Copies what is needed of a segment, and waits until the copies are synced, and everything that was asked for
    /// before is decided. Whether any of it was of a box. Records of removed boxes are copied too if `with_removed`.
    fn copy_needed(&self, index: &Index, with_removed: bool) -> io::Result<bool> {
        let file = self
            .shared
            .files
            .open_blocking(segment_name(index.segment))?;
        let mut groups = index.groups().peekable();
        let mut any = false;
        let mut needed = Vec::new();
        let mut bytes = 0;
        while groups.peek().is_some() {
            {
                let state = self.shared.state();
                let of_boxes = groups.by_ref().take(LOOKED_AT_MAX).filter(|group| {
                    let is_removed = group.removed.is_some();
                    with_removed || !is_removed
                });
                for group in of_boxes {
                    bytes += find_needed(&state, index.segment, &group, &mut needed);
                }
            }
            if bytes >= PIECE_BYTES || groups.peek().is_none() {
                any |= needed
                    .iter()
                    .any(|one| !matches!(one, Needed::Removed { .. }));
                self.copy(index.segment, &file, std::mem::take(&mut needed))?;
                bytes = 0;
            }
        }
        Ok(any)
    }

    /// Copies in pieces, each of which is synced before the next.
    fn copy(
        &self,
        number: u32,
        file: &Arc<levity_disk::OpenFile>,
        needed: Vec<Needed>,
    ) -> io::Result<()> {
        let mut copied = 0;
        for one in needed {
            copied += self.copy_one(number, file, &one)?;
            if copied >= PIECE_BYTES {
                self.wait_for_sync()?;
                copied = 0;
            }
        }
        self.wait_for_sync()
    }

    fn copy_one(
        &self,
        number: u32,
        file: &Arc<levity_disk::OpenFile>,
        needed: &Needed,
    ) -> io::Result<usize> {
        match needed {
            Needed::State(of) => {
                let mut state = self.shared.state();
                if state
                    .stored(*of)
                    .is_some_and(|it| it.state_segment == number)
                {
                    state.write_state(*of);
                }
                Ok(record::HEAD_BYTES)
            }
            Needed::Removed {
                name,
                epoch,
                covers,
            } => {
                let head = Head {
                    name,
                    epoch: *epoch,
                    ..Head::default()
                };
                let covers = *covers;
                let mut state = self.shared.state();
                let body = Body::Removed { covers };
                state.pending.push(&head, &body, What::Removed);
                Ok(record::HEAD_BYTES + name.len())
            }
            Needed::Slot(of, slot) if slot.is_kept() => {
                let bytes =
                    self.shared
                        .files
                        .read_blocking(file, slot.offset.into(), slot.len())?;
                self.copy_message(*of, *slot, &bytes);
                Ok(slot.len())
            }
            Needed::Slot(of, slot) => {
                let body = Body::Key {
                    sequence: slot.sequence,
                    digest: slot.digest,
                };
                self.shared.state().copy(*of, slot, &body);
                Ok(record::HEAD_BYTES)
            }
        }
    }

    fn copy_message(&self, of: BoxId, slot: Slot, bytes: &[u8]) {
        let record = record::decode(bytes).ok();
        let mut state = self.shared.state();
        let Some(stored) = state.stored(of) else {
            return;
        };
        let is_right = |body: &Body<'_>, name: &str| match body {
            Body::Message(fields) => {
                fields.sequence == slot.sequence && name == stored.name.as_str()
            }
            _ => false,
        };
        match record.filter(|record| is_right(&record.body, record.head.name)) {
            Some(record) => state.copy(of, &slot, &record.body),
            None => {
                let name = stored.name.clone();
                state.damaged(of, &[slot.sequence]);
                drop(state);
                let line = format!("the journal has lost a message of box {name}");
                self.shared.report(&line);
            }
        }
    }

    /// Waits until everything that was asked for before is synced.
    fn wait_for_sync(&self) -> io::Result<()> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.shared.state();
            if state.is_ended {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            state.pending.wait(Waiter {
                results: Vec::new(),
                reply: Reply::Done(sender),
                on_sync: true,
            });
            self.shared.notify(&mut state);
        }
        match receiver.blocking_recv() {
            Ok(result) => result.map_err(|_| io::ErrorKind::ResourceBusy.into()),
            Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Sees to boxes that still have something in a segment from which all that is needed was copied: they had records that
    /// are not there any more.
    fn free_rest(&self, number: u32) -> io::Result<()> {
        let live = self.shared.state().segments.get(number).map(|it| it.live);
        if live.is_none_or(|live| live == 0) {
            return Ok(());
        }
        let mut first = 0;
        loop {
            let mut state = self.shared.state();
            let end = state.boxes_end();
            if first >= end {
                break;
            }
            let next = (first + LOOKED_AT_MAX).min(end);
            let is_left = |slot: &&Slot| slot.segment == number;
            let left: Vec<_> = state
                .boxes_in(first..next)
                .filter_map(|(of, stored)| {
                    let slots = stored.slots().filter(is_left);
                    let left: Vec<_> = slots.map(|slot| slot.sequence).collect();
                    (!left.is_empty()).then(|| (of, stored.name.clone(), left))
                })
                .collect();
            for (of, name, sequences) in left {
                state.damaged(of, &sequences);
                let count = sequences.len();
                let line = format!("the journal has lost {count} messages of box {name}");
                self.shared.report(&line);
            }
            first = next;
        }
        self.wait_for_sync()
    }

    /// Notes which segments are not needed, and removes their files.
    fn remove_dropped(&mut self) {
        let to_note: Vec<_> = self.dropped.iter().filter(|it| !it.is_noted).collect();
        if !to_note.is_empty() {
            let mut state = self.shared.state();
            for dropped in to_note {
                let body = Body::Dropped {
                    segment: dropped.number,
                };
                state.pending.push(&Head::default(), &body, What::Dropped);
            }
            drop(state);
            if self.wait_for_sync().is_ok() {
                self.dropped.iter_mut().for_each(|it| it.is_noted = true);
            }
        }
        let files = &self.shared.files;
        self.dropped.retain(|dropped| {
            let is_free = dropped.is_noted && Arc::strong_count(&dropped.readers) == 1;
            let remove = || {
                files.remove(index_name(dropped.number))?;
                files.remove(segment_name(dropped.number))
            };
            !(is_free && remove().is_ok())
        });
    }
}

/// Adds what is needed of a group, and returns its size in bytes.
fn find_needed(
    state: &State,
    number: u32,
    group: &super::super::index::Group<'_>,
    needed: &mut Vec<Needed>,
) -> usize {
    if let Some(covers) = group.removed {
        if !state.segments.any_up_to(covers, number) {
            return 0;
        }
        needed.push(Needed::Removed {
            name: group.name.to_owned(),
            epoch: group.epoch,
            covers,
        });
        return record::HEAD_BYTES + group.name.len();
    }
    let name = Name::parse(group.name);
    let Some((of, stored)) = name.and_then(|name| state.find(&name)) else {
        return 0;
    };
    let mut bytes = 0;
    let before = needed.len();
    for slot in group.slots() {
        let found = stored.slot(slot.sequence);
        let is_here = |found: &&Slot| (found.segment, found.offset) == (number, slot.offset);
        if let Some(found) = found.filter(is_here) {
            needed.push(Needed::Slot(of, *found));
            bytes += stored.live_bytes(found);
        }
    }
    // A copy of a message says what the box is like, too.
    if stored.state_segment == number && needed.len() == before {
        needed.push(Needed::State(of));
        bytes += stored.state_bytes();
    }
    bytes
}

/// The segment to free, if any: then at least half of all segments but the newest is needed, and the records of removed boxes
/// are few.
fn choose(segments: &Segments, active: u32, segment_bytes: u32) -> Option<u32> {
    let finished = || segments.iter().filter(|(number, _)| *number != active);
    let live: u64 = segments.iter().map(|(_, segment)| segment.live).sum();
    let tombs: u64 = segments.iter().map(|(_, segment)| segment.tombs).sum();
    if tombs > live / 4 + u64::from(segment_bytes) / 4 {
        return finished().next().map(|(number, _)| number);
    }
    let used = |segment: &super::super::segments::Segment| segment.live + segment.tombs;
    let is_mostly_free =
        |segment: &super::super::segments::Segment| used(segment) < u64::from(segment.len) / 2;
    let emptiest = finished()
        .filter(|(_, segment)| is_mostly_free(segment))
        .min_by_key(|(_, segment)| used(segment) * 1000 / u64::from(segment.len.max(1)));
    let is_small = |segment: &super::super::segments::Segment| segment.len < segment_bytes / 4;
    let small = || finished().filter(|(_, segment)| is_small(segment));
    let small = small().next().filter(|_| small().count() >= SMALL_MAX);
    emptiest.or(small).map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::sync::mpsc;
    use std::thread;

    use super::super::super::index::Builder;
    use super::super::writer;
    use super::*;
    use crate::store::StoreError;

    const SIZE: u32 = 1 << 20;

    /// Refuses everything, as on a disk that is full.
    fn refuse_all(shared: &Shared, events: &Receiver<writer::Event>) {
        while let Ok(writer::Event::Pending) = events.recv() {
            let mut state = shared.state();
            state.is_notified = false;
            let refused = std::mem::take(&mut state.pending.waiters);
            drop(state);
            let full = StoreError::Full(String::new());
            refused.into_iter().for_each(|waiter| waiter.fail(&full));
        }
    }

    #[test]
    fn a_segment_is_tried_again_after_the_writer_has_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (shared, writer_events) = Shared::of_test(folder.path(), 0);
        let index = Builder::default().build(1, 1000);
        let path = |name: CString| folder.path().join(name.to_str().unwrap());
        std::fs::write(path(segment_name(1)), "").unwrap();
        std::fs::write(path(index_name(1)), index.encode()).unwrap();
        {
            let mut state = shared.state();
            state.segments = segments(&[(1000, 10, 0)]);
            state.active = 2;
        }
        let (to_keeper, events) = mpsc::channel();
        let mut keeper = Keeper::new(shared.clone(), events);
        let of_writer = thread::spawn({
            let shared = shared.clone();
            move || refuse_all(&shared, &writer_events)
        });
        keeper.tidy();
        // If the keeper does not try by itself, it is told to end.
        thread::spawn(move || {
            thread::sleep(10 * RETRY_INTERVAL);
            drop(to_keeper);
        });
        assert!(matches!(keeper.next_event(), Event::Check));
        shared.close();
        of_writer.join().unwrap();
    }

    /// Segments with a size, and bytes that are needed and of removed boxes.
    fn segments(of: &[(u32, usize, usize)]) -> Segments {
        let mut segments = Segments::default();
        for (number, (len, live, tombs)) in (1..).zip(of) {
            segments.add(number, *len);
            segments.need(number, *live);
            segments.bury(number, *tombs);
        }
        segments
    }

    #[test]
    fn the_emptiest_segment_is_freed_first() {
        let half = SIZE as usize / 2;
        let of = segments(&[
            (SIZE, half, 0),
            (SIZE, half - 2000, 0),
            (SIZE, 9, 0),
            (SIZE, 0, 0),
        ]);
        assert_eq!(choose(&of, 4, SIZE), Some(3));
        let of = segments(&[(SIZE, half, 0), (SIZE, half + 1, 0), (SIZE, 0, 0)]);
        assert_eq!(choose(&of, 3, SIZE), None);
        assert_eq!(choose(&of, 9, SIZE), Some(3));
        assert_eq!(choose(&Segments::default(), 0, SIZE), None);
    }

    #[test]
    fn records_of_removed_boxes_do_not_pile_up() {
        let full = SIZE as usize;
        let few = segments(&[(SIZE, full, 0), (SIZE, full / 2, full / 2), (SIZE, 0, 0)]);
        assert_eq!(choose(&few, 3, SIZE), None);
        let many = segments(&[(SIZE, full, 0), (SIZE, 0, full), (SIZE, 0, 0)]);
        assert_eq!(choose(&many, 3, SIZE), Some(1));
    }

    #[test]
    fn many_small_segments_are_put_together() {
        let small = (SIZE / 8, SIZE as usize / 8, 0);
        assert_eq!(
            choose(&segments(&[small; SMALL_MAX]), SMALL_MAX as u32, SIZE),
            None
        );
        assert_eq!(choose(&segments(&[small; SMALL_MAX]), 99, SIZE), Some(1));
    }
}
