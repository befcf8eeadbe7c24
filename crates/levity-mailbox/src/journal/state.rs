//! What the journal knows in memory: shared by the owner's thread, which asks, and by those that write.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, VecDeque};
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::task::Waker;
use std::time::{SystemTime, UNIX_EPOCH};

use levity_wire::mailbox::MessageId;
use slab::Slab;

use super::batch::{Batch, BoxId, Outcome, Reply, Waiter, What};
use super::record::{self, Body, Fields, HEAD_BYTES, KEY_BYTES, MESSAGE_BYTES, RECORD_BYTES_MAX};
use super::segments::Segments;
use super::slot::Slot;
use super::stored::{Dropped, StoredBox};
use crate::message::{Draft, Message, OVERHEAD_BYTES};
use crate::name::Name;
use crate::settings::Settings;
use crate::store::{Append, Appended, Change, Figures, StoreError, Summary};

/// The maximum of boxes that a sweep looks at.
const SWEPT_MAX: usize = 256;

/// The maximum of messages that a sweep looks at, about.
const SWEPT_SLOTS_MAX: usize = 16 << 10;

/// The maximum length of a text of a message in bytes.
const TEXT_BYTES_MAX: usize = u16::MAX as usize;

/// Boxes, segments, and what is to be written.
pub(super) struct State {
    names: BTreeMap<Name, u32>,
    boxes: Slab<StoredBox>,
    /// Boxes with receivers, also those that are not known.
    watched: HashSet<Name>,
    /// The number of boxes of each set.
    counts: HashMap<String, usize>,
    /// Boxes that give way to others.
    unused: BTreeSet<Name>,
    /// Which box is due when, in milliseconds since 1970. Only the entry of [`StoredBox::due_ms`] counts.
    due: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// A box of which expired messages are being dropped, and the number at which to continue.
    expiring: Option<(BoxId, u64)>,
    /// Boxes whose read positions no record says.
    read: Vec<BoxId>,
    pub segments: Segments,
    /// The segment that is written to, or was last.
    pub active: u32,
    pub pending: Batch,
    /// The writer knows that there is something to do.
    pub is_notified: bool,
    /// Nothing is written any more.
    pub is_ended: bool,
    recent: Recent,
    /// The largest epoch of all.
    pub epoch: u64,
    serial: u32,
    figures: Figures,
    /// Boxes that had to begin a new epoch, and the first number that was not given before.
    damaged: HashMap<BoxId, u64>,
    pub changes: VecDeque<Change>,
    pub waker: Option<Waker>,
    /// The last time that a caller has told.
    pub now: SystemTime,
    /// The maximum size of what waits to be written, in bytes.
    pending_bytes_max: usize,
}

/// The box of a message, whether it was made for it, and when the message is acknowledged.
struct Made {
    of: BoxId,
    is_new: bool,
    on_sync: bool,
}

/// Messages in memory, in the order in which they came.
struct Recent {
    order: VecDeque<(BoxId, u64, usize)>,
    /// Their size, with some that are gone already.
    bytes: usize,
}

/// A message of a box: in memory, or where to read it.
pub(super) enum Found {
    Recent(Message),
    Placed(Slot),
}

/// What is kept of a box, as far as it is acknowledged.
pub(super) struct Snapshot {
    pub of: BoxId,
    pub name: Name,
    pub epoch: u64,
    pub next: u64,
    pub lost: u64,
    pub read: u64,
    pub messages: Vec<Found>,
}

/// Milliseconds since 1970.
pub(super) fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl State {
    pub(super) fn new(epoch: u64, now: SystemTime, pending_bytes_max: usize) -> Self {
        Self {
            names: BTreeMap::new(),
            boxes: Slab::new(),
            watched: HashSet::new(),
            counts: HashMap::new(),
            unused: BTreeSet::new(),
            due: BinaryHeap::new(),
            expiring: None,
            read: Vec::new(),
            segments: Segments::default(),
            active: 0,
            pending: Batch::default(),
            is_notified: false,
            is_ended: false,
            recent: Recent {
                order: VecDeque::new(),
                bytes: 0,
            },
            epoch,
            serial: 0,
            figures: Figures::default(),
            damaged: HashMap::new(),
            changes: VecDeque::new(),
            waker: None,
            now,
            pending_bytes_max,
        }
    }

    /// Takes boxes that were read from the disk, in the order of their names. They were used now.
    pub(super) fn restore(&mut self, boxes: impl Iterator<Item = StoredBox>) {
        let now_ms = milliseconds(self.now);
        let mut due = Vec::new();
        for mut stored in boxes {
            self.serial += 1;
            stored.serial = self.serial;
            stored.used_ms = now_ms;
            stored.due_ms = stored.next_due_ms().unwrap_or(u64::MAX);
            match self.counts.get_mut(stored.name.set()) {
                Some(count) => *count += 1,
                None => drop(self.counts.insert(stored.name.set().to_owned(), 1)),
            }
            self.count_live(&stored);
            if stored.is_unused() {
                self.unused.insert(stored.name.clone());
            }
            let due_ms = stored.due_ms;
            let index = self.boxes.insert(stored) as u32;
            due.push(Reverse((due_ms, index, self.serial)));
        }
        self.boxes.shrink_to_fit();
        let name = |(index, stored): (usize, &StoredBox)| (stored.name.clone(), index as u32);
        self.names = self.boxes.iter().map(name).collect();
        self.due = due.into();
    }

    fn count_live(&mut self, stored: &StoredBox) {
        for slot in stored.slots() {
            self.segments.need(slot.segment, stored.live_bytes(slot));
        }
        self.segments
            .need(stored.state_segment, stored.state_bytes());
    }

    pub(super) fn stored(&self, of: BoxId) -> Option<&StoredBox> {
        let stored = self.boxes.get(of.index as usize)?;
        (stored.serial == of.serial).then_some(stored)
    }

    pub(super) fn stored_mut(&mut self, of: BoxId) -> Option<&mut StoredBox> {
        let stored = self.boxes.get_mut(of.index as usize)?;
        (stored.serial == of.serial).then_some(stored)
    }

    pub(super) fn find(&self, name: &Name) -> Option<(BoxId, &StoredBox)> {
        let index = *self.names.get(name)?;
        let stored = &self.boxes[index as usize];
        let serial = stored.serial;
        Some((BoxId { index, serial }, stored))
    }

    /// The boxes at these places of the table.
    pub(super) fn boxes_in(
        &self,
        places: Range<usize>,
    ) -> impl Iterator<Item = (BoxId, &StoredBox)> {
        places.filter_map(|index| {
            let stored = self.boxes.get(index)?;
            let (index, serial) = (index as u32, stored.serial);
            Some((BoxId { index, serial }, stored))
        })
    }

    /// The end of the table of boxes.
    pub(super) fn boxes_end(&self) -> usize {
        self.boxes.capacity()
    }

    /// An epoch that is larger than all before.
    pub(super) fn next_epoch(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }

    /// The box, which is made if it is not known; then the flag is true.
    fn get(&mut self, name: &Name, settings: &Settings) -> Result<(BoxId, bool), StoreError> {
        if let Some((of, _)) = self.find(name) {
            let stored = self.stored_mut(of).expect("it was found");
            // A reload may have changed it.
            stored.idle_ms = idle_ms(settings);
            return Ok((of, false));
        }
        self.make_room(settings)?;
        *self.counts.entry(settings.set.clone()).or_default() += 1;
        let epoch = self.next_epoch();
        self.serial = self.serial.wrapping_add(1);
        let mut stored = StoredBox::new(name.clone(), epoch, self.serial);
        stored.idle_ms = idle_ms(settings);
        stored.used_ms = milliseconds(self.now);
        (stored.is_durable, stored.was_durable) = (settings.is_durable, settings.is_durable);
        stored.is_watched = self.watched.contains(name);
        let of = BoxId {
            index: self.boxes.insert(stored) as u32,
            serial: self.serial,
        };
        self.names.insert(name.clone(), of.index);
        self.schedule(of);
        self.note_use(of);
        Ok((of, true))
    }

    /// Has a box give way, if the set has as many as it may.
    fn make_room(&mut self, settings: &Settings) -> Result<(), StoreError> {
        let count = self.counts.get(&settings.set);
        if count.is_none_or(|&count| count < settings.boxes_max) {
            return Ok(());
        }
        let unused = Name::first_in(&self.unused, &settings.set);
        self.remove(&unused.ok_or(StoreError::TooManyBoxes)?);
        Ok(())
    }

    /// Notes whether the box gives way to others.
    fn note_use(&mut self, of: BoxId) {
        if let Some(stored) = self.stored(of) {
            let (name, is_unused) = (stored.name.clone(), stored.is_unused());
            match is_unused {
                true => self.unused.insert(name),
                false => self.unused.remove(&name),
            };
        }
    }

    /// Has a sweep look at the box when it is due.
    fn schedule(&mut self, of: BoxId) {
        let Some(stored) = self.stored_mut(of) else {
            return;
        };
        if let Some(due_ms) = stored.next_due_ms() {
            stored.due_ms = due_ms;
            self.due.push(Reverse((due_ms, of.index, of.serial)));
        }
    }

    /// Appends a message. Also tells whether it is acknowledged after a sync.
    pub(super) fn append(&mut self, append: Append) -> (Outcome, bool) {
        match self.try_append(append) {
            Ok(appended) => appended,
            Err(error) => (Outcome::Decided(Err(error)), false),
        }
    }

    fn try_append(&mut self, append: Append) -> Result<(Outcome, bool), StoreError> {
        let Append {
            name,
            settings,
            draft,
        } = append;
        let len = message_len(&name, &draft);
        self.check_size(&draft, len)?;
        let (of, is_new) = self.get(&name, &settings)?;
        let now_ms = milliseconds(self.now);
        let stored = self.stored_mut(of).expect("it was made");
        stored.used_ms = now_ms;
        let on_sync = settings.is_durable || stored.was_durable;
        let digest = draft.key.as_deref().map_or(0, record::digest);
        if digest != 0
            && let Some(sequence) = stored.find_key(digest)
        {
            let epoch = stored.epoch;
            let id = MessageId { epoch, sequence };
            let is_placed = stored.slot(sequence).is_some_and(Slot::is_placed);
            return Ok(match is_placed {
                true => (Outcome::Decided(Ok(Appended::Duplicate(id))), false),
                false => (Outcome::Duplicate(id), on_sync),
            });
        }
        let made = Made {
            of,
            is_new,
            on_sync,
        };
        let outcome = self.push(made, &settings, draft, digest, len);
        Ok((Outcome::New(outcome, of), on_sync))
    }

    fn check_size(&self, draft: &Draft, len: usize) -> Result<(), StoreError> {
        let texts = [
            draft.key.as_deref(),
            Some(&*draft.event),
            Some(&*draft.media_type),
        ];
        let is_long = |text: &str| text.len() > TEXT_BYTES_MAX;
        if len > RECORD_BYTES_MAX || texts.into_iter().flatten().any(is_long) {
            let refusal = "the message is too large for the journal";
            return Err(StoreError::Full(refusal.to_owned()));
        }
        if self.pending.bytes > 0 && self.pending.bytes + len > self.pending_bytes_max {
            let refusal = "the disk of the journal does not keep up with the publishers";
            return Err(StoreError::Full(refusal.to_owned()));
        }
        Ok(())
    }

    fn push(
        &mut self,
        made: Made,
        settings: &Settings,
        draft: Arc<Draft>,
        digest: u64,
        len: usize,
    ) -> Appended {
        let Made {
            of,
            is_new,
            on_sync,
        } = made;
        let stored = self.boxes.get_mut(of.index as usize).expect("it is there");
        let (sequence, lost) = (stored.next, stored.lost);
        let fields = Fields::of(&draft, sequence);
        let deadline_s = fields.deadline_s();
        let slot = Slot::new(sequence, digest, deadline_s, len);
        let Dropped { messages, keys } = stored.push(slot, draft.clone(), settings);
        stored.is_durable = settings.is_durable;
        self.unused.remove(&stored.name);
        let what = What::Message {
            of,
            is_new,
            sequence,
            lost,
            dropped: messages,
            on_sync,
            is_durable: settings.is_durable,
        };
        let is_encoded = self
            .pending
            .push(&stored.head(), &Body::Message(fields), what);
        debug_assert!(
            is_encoded
                && self
                    .pending
                    .entries
                    .last()
                    .is_some_and(|e| e.len == len as u32)
        );
        let id = MessageId {
            epoch: stored.epoch,
            sequence,
        };
        let appended = Appended::New {
            message: Message {
                id,
                draft: draft.clone(),
            },
            lost: stored.lost,
        };
        let is_due_earlier = deadline_s != 0 && u64::from(deadline_s) * 1000 < stored.due_ms;
        let key_bytes = stored.state_bytes() + KEY_BYTES;
        self.release_keys(&keys, key_bytes);
        if is_due_earlier {
            self.schedule(of);
        }
        self.recent.bytes += draft.bytes();
        self.recent.order.push_back((of, sequence, draft.bytes()));
        appended
    }

    /// Frees memory of the oldest messages until at most `bytes_max` are left, if they are written.
    pub(super) fn evict(&mut self, bytes_max: usize) {
        while self.recent.bytes > bytes_max
            && let Some(&(of, sequence, bytes)) = self.recent.order.front()
        {
            if let Some(stored) = self.stored_mut(of) {
                if stored.slot(sequence).is_some_and(|slot| !slot.is_placed()) {
                    return;
                }
                stored.evict(sequence);
            }
            self.recent.order.pop_front();
            self.recent.bytes -= bytes;
        }
    }

    /// The box, which is made if it is not known.
    pub(super) fn open(&mut self, name: &Name, settings: &Settings) -> Result<BoxId, StoreError> {
        let (of, is_new) = self.get(name, settings)?;
        if is_new {
            self.write_state(of);
        }
        Ok(of)
    }

    /// Has a record written that says what the box is like.
    pub(super) fn write_state(&mut self, of: BoxId) {
        let Some(stored) = self.boxes.get_mut(of.index as usize) else {
            return;
        };
        stored.is_read_pending = false;
        self.pending
            .push(&stored.head(), &Body::State, What::State { of });
    }

    /// Has a record of a message or a key written anew, unless it is elsewhere by now.
    pub(super) fn copy(&mut self, of: BoxId, slot: &Slot, body: &Body<'_>) {
        let from = (slot.segment, slot.offset);
        let stored = match self.boxes.get(of.index as usize) {
            Some(stored) if stored.serial == of.serial => stored,
            _ => return,
        };
        let is_here =
            |now: &Slot| (now.segment, now.offset) == from && now.is_kept() == slot.is_kept();
        if stored.slot(slot.sequence).is_some_and(is_here) {
            let sequence = slot.sequence;
            let what = What::Copy { of, sequence, from };
            self.pending.push(&stored.head(), body, what);
        }
    }

    /// What is kept of a box.
    pub(super) fn snapshot(&self, of: BoxId) -> Option<Snapshot> {
        let stored = self.stored(of)?;
        let unplaced = stored.slots().find(|slot| !slot.is_placed());
        let next = unplaced.map_or(stored.next, |slot| slot.sequence);
        let now_ms = milliseconds(self.now);
        let kept = stored
            .slots()
            .take_while(|slot| slot.is_placed())
            .filter(|slot| slot.is_kept() && !slot.has_expired(now_ms));
        let found = |slot: &Slot| match stored.recent(slot.sequence) {
            Some(draft) => Found::Recent(Message {
                id: MessageId {
                    epoch: stored.epoch,
                    sequence: slot.sequence,
                },
                draft: draft.clone(),
            }),
            None => Found::Placed(*slot),
        };
        Some(Snapshot {
            of,
            name: stored.name.clone(),
            epoch: stored.epoch,
            next,
            lost: stored.lost.min(next),
            read: stored.read.min(next),
            messages: kept.map(found).collect(),
        })
    }

    /// Removes a box; whether it was known, and durable.
    pub(super) fn remove(&mut self, name: &Name) -> Option<bool> {
        let stored = self.forget(name)?;
        for slot in stored.slots() {
            self.segments.release(slot.segment, stored.live_bytes(slot));
        }
        self.segments
            .release(stored.state_segment, stored.state_bytes());
        // What is being written now may get to the next segment.
        let covers = self.active.saturating_add(1);
        self.pending
            .push(&stored.head(), &Body::Removed { covers }, What::Removed);
        Some(stored.is_durable || stored.was_durable)
    }

    fn forget(&mut self, name: &Name) -> Option<StoredBox> {
        self.unused.remove(name);
        let index = self.names.remove(name)?;
        if let Some(count) = self.counts.get_mut(name.set()) {
            *count -= 1;
        }
        Some(self.boxes.remove(index as usize))
    }

    pub(super) fn mark_read(&mut self, name: &Name, last: MessageId) {
        let Some((of, _)) = self.find(name) else {
            return;
        };
        let stored = self.stored_mut(of).expect("it was found");
        let end = last.sequence.saturating_add(1).min(stored.next);
        if last.epoch == stored.epoch && end > stored.read {
            stored.read = end;
            if !std::mem::replace(&mut stored.is_read_pending, true) {
                self.read.push(of);
            }
        }
    }

    /// Has at most `count_max` read positions written.
    pub(super) fn write_read(&mut self, count_max: usize) {
        let first = self.read.len().saturating_sub(count_max);
        for of in self.read.split_off(first) {
            if self.stored(of).is_some_and(|stored| stored.is_read_pending) {
                self.write_state(of);
            }
        }
    }

    pub(super) fn watch(&mut self, name: &Name, is_read: bool) {
        match is_read {
            true => self.watched.insert(name.clone()),
            false => self.watched.remove(name),
        };
        if let Some((of, _)) = self.find(name) {
            let now_ms = milliseconds(self.now);
            let stored = self.stored_mut(of).expect("it was found");
            (stored.is_watched, stored.used_ms) = (is_read, now_ms);
            self.schedule(of);
            self.note_use(of);
        }
    }

    pub(super) fn list(&self, set: &str, after: Option<&Name>, count_max: usize) -> Vec<Summary> {
        let first = Name::first_of(set);
        let start = Bound::Excluded(after.unwrap_or(&first));
        let names = self.names.range((start, Bound::Unbounded));
        let names = names.take_while(|(name, _)| name.set() == set);
        let names = names.take(count_max).map(|(name, _)| name);
        names.filter_map(|name| self.summary(name)).collect()
    }

    pub(super) fn summary(&self, name: &Name) -> Option<Summary> {
        let (_, stored) = self.find(name)?;
        Some(Summary {
            name: name.clone(),
            epoch: stored.epoch,
            next: stored.next,
            lost: stored.lost,
            read: stored.read,
            messages: stored.messages(),
            bytes: stored.bytes(),
        })
    }

    /// Drops what has expired, and idle boxes.
    pub(super) fn sweep(&mut self) {
        let now_ms = milliseconds(self.now);
        let mut left = SWEPT_SLOTS_MAX;
        for _ in 0..SWEPT_MAX {
            if left == 0 || self.pending.bytes > self.pending_bytes_max {
                return;
            }
            if let Some((of, first)) = self.expiring.take() {
                left = self.expire(of, first, now_ms, left);
                continue;
            }
            match self.due.peek() {
                Some(Reverse((due_ms, ..))) if *due_ms <= now_ms => {}
                _ => return,
            }
            let Reverse((due_ms, index, serial)) = self.due.pop().expect("there is one");
            self.sweep_box(BoxId { index, serial }, due_ms, now_ms);
        }
    }

    fn sweep_box(&mut self, of: BoxId, due_ms: u64, now_ms: u64) {
        let Some(stored) = self.stored_mut(of).filter(|stored| stored.due_ms == due_ms) else {
            return;
        };
        let name = stored.name.clone();
        let deadline_s = stored.deadline_s();
        if stored.is_idle(now_ms) {
            self.remove(&name);
            self.figures.idle_boxes += 1;
        } else if deadline_s != 0 && u64::from(deadline_s) * 1000 <= now_ms {
            stored.begin_to_expire();
            self.expiring = Some((of, 0));
        } else {
            self.schedule(of);
        }
    }

    /// Drops what has expired of a box from the number `first` on. It looks at so many slots at most, and returns how many
    /// more the sweep may look at.
    fn expire(&mut self, of: BoxId, first: u64, now_ms: u64, count_max: usize) -> usize {
        let Some(stored) = self.stored_mut(of) else {
            return count_max;
        };
        let key_bytes = stored.state_bytes() + KEY_BYTES;
        let mut expired = Vec::new();
        let next = stored.expire(now_ms, first, count_max, &mut expired);
        let forgotten = match next {
            Some(_) => Vec::new(),
            None => stored.end_to_expire(),
        };
        self.figures.expired += expired.len() as u64;
        self.release(expired, key_bytes);
        self.release_keys(&forgotten, key_bytes);
        self.expiring = next.map(|next| (of, next));
        match next {
            Some(_) => 0,
            None => {
                self.schedule(of);
                count_max.saturating_sub(SWEPT_SLOTS_MAX / SWEPT_MAX)
            }
        }
    }

    fn release_keys(&mut self, keys: &[Slot], key_bytes: usize) {
        for key in keys {
            self.segments.release(key.segment, key_bytes);
        }
    }

    /// The records of messages that are no longer kept are not needed, except for their keys.
    fn release(&mut self, messages: Vec<Slot>, key_bytes: usize) {
        for slot in messages {
            let rest = if slot.is_keyed() { key_bytes } else { 0 };
            self.segments
                .release(slot.segment, slot.len().saturating_sub(rest));
        }
    }

    pub(super) fn figures(&self) -> Figures {
        Figures {
            boxes: self.boxes.len(),
            ..self.figures
        }
    }

    /// The records of `batch` are in the segment from `start` on.
    pub(super) fn written(&mut self, batch: &mut Batch, segment: u32, start: u32) {
        for entry in &mut batch.entries {
            let at = (segment, start + entry.at);
            match &mut entry.what {
                What::Message { on_sync: true, .. } => {}
                What::Message {
                    of,
                    sequence,
                    dropped,
                    ..
                } => {
                    let (of, sequence) = (*of, *sequence);
                    let dropped = std::mem::take(dropped);
                    self.place(of, sequence, at, dropped);
                    // If the sync fails, it is written again.
                    let from = at;
                    entry.what = What::Copy { of, sequence, from };
                }
                What::Copy { of, sequence, from } => {
                    self.moved(*of, *sequence, *from, at, entry.len);
                    *from = at;
                }
                What::State { of } => self.set_state_segment(*of, segment),
                What::Removed => self.segments.bury(segment, entry.len as usize),
                What::Dropped => {}
            }
        }
        let is_done = |waiter: &mut Waiter| !waiter.on_sync;
        let done = batch.waiters.extract_if(.., is_done).collect();
        self.succeed(done);
    }

    /// Tells those who wait that their messages are safe. Where nobody waits any more, a message may have been appended
    /// although its publisher was told otherwise.
    fn succeed(&mut self, waiters: Vec<Waiter>) {
        for waiter in waiters {
            for of in waiter.succeed() {
                self.report_outdated(of);
            }
        }
    }

    /// The records of `batch`, which is in the segment from `start` on, are synced.
    pub(super) fn synced(&mut self, batch: Batch, segment: u32, start: u32) {
        for entry in batch.entries {
            if let What::Message {
                of,
                sequence,
                dropped,
                is_durable,
                ..
            } = entry.what
            {
                self.place(of, sequence, (segment, start + entry.at), dropped);
                if let Some(stored) = self.stored_mut(of) {
                    stored.was_durable = is_durable;
                }
            }
        }
        self.succeed(batch.waiters);
    }

    /// A message is acknowledged.
    fn place(&mut self, of: BoxId, sequence: u64, at: (u32, u32), dropped: Vec<Slot>) {
        self.figures.lost += dropped.len() as u64;
        let Some(stored) = self.stored_mut(of) else {
            self.release(dropped, 0);
            return;
        };
        let key_bytes = stored.state_bytes() + KEY_BYTES;
        let mut live = 0;
        if let Some(slot) = stored.slot_mut(sequence) {
            (slot.segment, slot.offset) = at;
            let slot = *slot;
            live = stored.live_bytes(&slot);
        }
        self.segments.need(at.0, live);
        self.set_state_segment(of, at.0);
        self.release(dropped, key_bytes);
        if self.damaged.get(&of).is_some_and(|end| sequence < *end) {
            // Its id has the epoch before.
            self.report_outdated(of);
        }
    }

    /// A message is at another place too.
    fn moved(&mut self, of: BoxId, sequence: u64, from: (u32, u32), to: (u32, u32), len: u32) {
        let Some(stored) = self.stored_mut(of) else {
            return;
        };
        let Some(slot) = stored.slot_mut(sequence) else {
            return;
        };
        if (slot.segment, slot.offset) != from {
            return;
        }
        let old = *slot;
        (slot.segment, slot.offset) = to;
        slot.set_len(len as usize);
        let new = *slot;
        let (before, after) = (stored.live_bytes(&old), stored.live_bytes(&new));
        self.segments.release(from.0, before);
        self.segments.need(to.0, after);
        self.set_state_segment(of, to.0);
    }

    fn set_state_segment(&mut self, of: BoxId, segment: u32) {
        let Some(stored) = self.stored_mut(of) else {
            return;
        };
        let bytes = stored.state_bytes();
        let before = std::mem::replace(&mut stored.state_segment, segment);
        if before != segment {
            self.segments.release(before, bytes);
            self.segments.need(segment, bytes);
        }
    }

    /// Undoes the messages of `batch` that are not acknowledged. Those of later batches were undone before. What remains has
    /// to be written, and who waits for no message goes on waiting for that: otherwise publishers whose messages are refused
    /// would keep segments from being freed.
    pub(super) fn undo(&mut self, mut batch: Batch, error: &StoreError) -> Batch {
        for entry in batch.entries.iter_mut().rev() {
            if let What::Message {
                of,
                is_new,
                sequence,
                lost,
                dropped,
                ..
            } = &mut entry.what
            {
                let dropped = std::mem::take(dropped);
                match self.stored_mut(*of) {
                    Some(stored) => {
                        stored.undo(*sequence, *lost, dropped);
                        self.note_use(*of);
                    }
                    None => self.release(dropped, 0),
                }
                if *is_new {
                    self.unmake(*of);
                }
            }
        }
        let waiters = std::mem::take(&mut batch.waiters);
        let mut rest = batch.filtered(|entry| match &entry.what {
            What::Message { .. } => None,
            &What::Copy { of, sequence, from } => Some(What::Copy { of, sequence, from }),
            &What::State { of } => Some(What::State { of }),
            What::Removed => Some(What::Removed),
            What::Dropped => Some(What::Dropped),
        });
        for waiter in waiters {
            match waiter.reply {
                Reply::Appended(_) => waiter.fail(error),
                Reply::Done(_) => rest.wait(waiter),
            }
        }
        rest
    }

    /// Forgets a box of which nothing was written, unless somebody may have seen it.
    fn unmake(&mut self, of: BoxId) {
        let is_unseen = |stored: &&StoredBox| !stored.is_watched && stored.state_segment == 0;
        if let Some(stored) = self.stored(of).filter(is_unseen) {
            let name = stored.name.clone();
            self.forget(&name);
        }
    }

    /// Undoes what waits to be written, as far as that is possible.
    pub(super) fn undo_pending(&mut self, error: &StoreError) {
        let pending = std::mem::take(&mut self.pending);
        self.pending = self.undo(pending, error);
    }

    /// Messages of a box cannot be read: it begins a new epoch without them.
    pub(super) fn damaged(&mut self, of: BoxId, sequences: &[u64]) {
        let epoch = self.next_epoch();
        let Some(stored) = self.stored_mut(of) else {
            return;
        };
        let bytes = stored.state_bytes() + KEY_BYTES;
        (stored.epoch, stored.is_born) = (epoch, false);
        let next = stored.next;
        let removed = sequences.iter().filter_map(|&sequence| {
            let slot = stored.remove(sequence)?;
            let live = if slot.is_kept() { slot.len() } else { bytes };
            Some((slot.segment, live))
        });
        let removed: Vec<_> = removed.collect();
        for (segment, live) in removed {
            self.segments.release(segment, live);
        }
        self.write_state(of);
        self.damaged.insert(of, next);
        self.report_outdated(of);
    }

    fn report_outdated(&mut self, of: BoxId) {
        if let Some(stored) = self.stored(of) {
            let name = stored.name.clone();
            self.changed(Change::Outdated(name));
        }
    }

    /// Reports a change that no call has made.
    pub(super) fn changed(&mut self, change: Change) {
        self.changes.push_back(change);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

fn idle_ms(settings: &Settings) -> u64 {
    u64::try_from(settings.idle.as_millis()).unwrap_or(u64::MAX)
}

/// The size of the record of a message.
fn message_len(name: &Name, draft: &Draft) -> usize {
    HEAD_BYTES + name.as_str().len() + MESSAGE_BYTES + draft.bytes() - OVERHEAD_BYTES
}
