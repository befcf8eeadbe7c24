//! A box: what is known of it in memory.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::record::{HEAD_BYTES, Head, KEY_BYTES, draft_bytes};
use super::slot::Slot;
use crate::message::Draft;
use crate::name::Name;
use crate::settings::Settings;

/// The maximum of keys that a box remembers in addition to those of the messages that it keeps.
const KEYS_MAX: usize = 256;

/// Among more keys, one is found through a table.
const SEARCHED_MAX: usize = 32;

/// A box.
#[derive(Debug)]
pub(super) struct StoredBox {
    pub name: Name,
    /// Tells it from other boxes that have had its place.
    pub serial: u32,
    /// The segment of the last record that was written of it; 0 if there is none.
    pub state_segment: u32,
    pub epoch: u64,
    pub next: u64,
    pub lost: u64,
    pub read: u64,
    pub idle_ms: u64,
    pub used_ms: u64,
    /// When a sweep has to look at it.
    pub due_ms: u64,
    /// Its messages and keys, by their numbers; between them some that are [gone](Slot::is_gone).
    slots: VecDeque<Slot>,
    /// Messages that are kept have no smaller numbers.
    first_kept: u64,
    /// No message that is kept is over before this second; 0 if none has a deadline.
    deadline_s: u32,
    gone: u32,
    /// The number of messages that are kept.
    kept: u32,
    /// The number of keys.
    keyed: u32,
    /// The size of the messages that are kept.
    bytes: usize,
    /// While messages of it are in memory.
    used: Option<Box<Used>>,
    /// The epoch is that with which it was made.
    pub is_born: bool,
    /// Messages are to be acknowledged after a sync.
    pub is_durable: bool,
    /// The last record that was synced says so.
    pub was_durable: bool,
    pub is_watched: bool,
    /// No record says what was read last.
    pub is_read_pending: bool,
}

/// What only a box has that is being used.
#[derive(Debug, Default)]
struct Used {
    /// The last messages that are kept, by their numbers.
    messages: VecDeque<(u64, Arc<Draft>)>,
    /// The numbers of messages by the digests of their keys; empty while there are few.
    keys: HashMap<u64, u64>,
}

/// What a box no longer keeps after an append.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    /// Messages, as they were kept.
    pub messages: Vec<Slot>,
    /// Keys.
    pub keys: Vec<Slot>,
}

impl StoredBox {
    pub(super) fn new(name: Name, epoch: u64, serial: u32) -> Self {
        Self {
            name,
            serial,
            state_segment: 0,
            epoch,
            next: 1,
            lost: 1,
            read: 1,
            idle_ms: 0,
            used_ms: 0,
            due_ms: 0,
            slots: VecDeque::new(),
            first_kept: 0,
            deadline_s: 0,
            gone: 0,
            kept: 0,
            keyed: 0,
            bytes: 0,
            used: None,
            is_born: true,
            is_durable: false,
            was_durable: false,
            is_watched: false,
            is_read_pending: false,
        }
    }

    /// Takes the slots of a box that was read from the disk, in order.
    pub(super) fn set_slots(&mut self, slots: Vec<Slot>) {
        self.slots = slots.into();
        self.recount();
        self.forget_keys();
    }

    fn recount(&mut self) {
        let name_len = self.name.as_str().len();
        let kept = self.slots.iter().filter(|slot| slot.is_kept());
        self.kept = kept.clone().count() as u32;
        self.bytes = kept.map(|slot| draft_bytes(slot.len(), name_len)).sum();
        self.keyed = self.slots.iter().filter(|slot| slot.is_keyed()).count() as u32;
        self.gone = 0;
        let deadlines = self.slots.iter().filter(|slot| slot.is_kept());
        self.deadline_s = deadlines
            .map(|slot| slot.deadline_s)
            .fold(0, earlier_deadline);
    }

    /// Nobody watches it, and it has never had a message.
    pub(super) fn is_unused(&self) -> bool {
        !self.is_watched && self.next == 1
    }

    pub(super) fn messages(&self) -> usize {
        self.kept as usize
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn slots(&self) -> impl DoubleEndedIterator<Item = &Slot> {
        self.slots.iter()
    }

    /// What a record says of the box now. A message with the number `next - 1` may be on its way with it.
    pub(super) fn head(&self) -> Head<'_> {
        Head {
            name: self.name.as_str(),
            epoch: self.epoch,
            next: self.next,
            lost: self.lost,
            read: self.read,
            idle_ms: self.idle_ms,
            is_durable: self.is_durable,
            is_born: self.is_born,
        }
    }

    /// The bytes that a record without a message takes.
    pub(super) fn state_bytes(&self) -> usize {
        HEAD_BYTES + self.name.as_str().len()
    }

    /// The bytes of a segment that `slot` needs.
    pub(super) fn live_bytes(&self, slot: &Slot) -> usize {
        match slot.is_kept() {
            true => slot.len(),
            false if slot.is_keyed() => self.state_bytes() + KEY_BYTES,
            false => 0,
        }
    }

    fn position(&self, sequence: u64) -> Result<usize, usize> {
        // Mostly it is one of the last.
        match self.slots.back() {
            Some(last) if last.sequence == sequence => Ok(self.slots.len() - 1),
            _ => self
                .slots
                .binary_search_by_key(&sequence, |slot| slot.sequence),
        }
    }

    pub(super) fn slot(&self, sequence: u64) -> Option<&Slot> {
        self.position(sequence).ok().map(|index| &self.slots[index])
    }

    pub(super) fn slot_mut(&mut self, sequence: u64) -> Option<&mut Slot> {
        let index = self.position(sequence).ok()?;
        Some(&mut self.slots[index])
    }

    /// The number of the message that has the key, if it is remembered.
    pub(super) fn find_key(&mut self, digest: u64) -> Option<u64> {
        if self.keyed == 0 {
            return None;
        }
        if self.keyed as usize <= SEARCHED_MAX {
            let mut slots = self.slots.iter().rev();
            return slots
                .find(|slot| slot.digest == digest)
                .map(|slot| slot.sequence);
        }
        let keys = &mut self.used.get_or_insert_default().keys;
        if keys.is_empty() {
            let keyed = self.slots.iter().filter(|slot| slot.is_keyed());
            keys.extend(keyed.map(|slot| (slot.digest, slot.sequence)));
        }
        keys.get(&digest).copied()
    }

    /// Appends a message, whose number is the next one, and drops what exceeds the bounds.
    pub(super) fn push(&mut self, slot: Slot, draft: Arc<Draft>, settings: &Settings) -> Dropped {
        debug_assert!(slot.sequence == self.next);
        self.next += 1;
        self.add(self.slots.len(), slot);
        let used = self.used.get_or_insert_default();
        used.messages.push_back((slot.sequence, draft));
        let mut dropped = Dropped::default();
        while self.kept as usize > settings.messages_max.max(1)
            || self.bytes > settings.bytes_max && self.kept > 1
        {
            let slot = self.unkeep(self.first_kept_index());
            self.lost = slot.sequence + 1;
            self.first_kept = self.lost;
            dropped.messages.push(slot);
        }
        self.forget_below(self.lost);
        dropped.keys = self.forget_keys();
        dropped
    }

    /// Where the first message is that is kept.
    fn first_kept_index(&self) -> usize {
        let first = self.position(self.first_kept).unwrap_or_else(|index| index);
        let mut slots = self.slots.range(first..);
        first + slots.position(Slot::is_kept).expect("one is kept")
    }

    fn add(&mut self, index: usize, slot: Slot) {
        let name_len = self.name.as_str().len();
        self.kept += u32::from(slot.is_kept());
        if slot.is_kept() {
            self.bytes += draft_bytes(slot.len(), name_len);
            self.deadline_s = earlier_deadline(self.deadline_s, slot.deadline_s);
        }
        self.keyed += u32::from(slot.is_keyed());
        if slot.is_keyed()
            && let Some(used) = &mut self.used
            && !used.keys.is_empty()
        {
            used.keys.insert(slot.digest, slot.sequence);
        }
        self.slots.insert(index, slot);
    }

    /// No longer keeps the message at `index`, but remembers its key. Returns the slot as it was.
    fn unkeep(&mut self, index: usize) -> Slot {
        let slot = self.slots[index];
        self.kept -= 1;
        self.bytes -= draft_bytes(slot.len(), self.name.as_str().len());
        self.slots[index].set_kept(false);
        self.gone += u32::from(!slot.is_keyed());
        slot
    }

    /// Forgets the keys of messages that are gone, but not the last [`KEYS_MAX`].
    fn forget_keys(&mut self) -> Vec<Slot> {
        let mut forgotten = Vec::new();
        while let Some(first) = self.slots.front().filter(|slot| !slot.is_kept())
            && (first.is_gone() || self.keyed as usize > KEYS_MAX)
        {
            let first = self.slots.pop_front().expect("there is one");
            self.uncount(&first);
            forgotten.extend(first.is_keyed().then_some(first));
        }
        // Many may have gone behind one that stays.
        if self.keyed as usize > 2 * (KEYS_MAX + self.kept as usize) {
            let mut surplus = self.keyed as usize - KEYS_MAX;
            for slot in self.slots.iter_mut().filter(|slot| slot.is_keyed()) {
                if surplus > 0 && !slot.is_kept() {
                    forgotten.push(*slot);
                    slot.digest = 0;
                    self.gone += 1;
                }
                surplus = surplus.saturating_sub(1);
            }
            for slot in &forgotten {
                self.forget_key(slot);
            }
            self.keyed = self.slots.iter().filter(|slot| slot.is_keyed()).count() as u32;
        }
        if self.gone as usize > SEARCHED_MAX + self.slots.len() / 2 {
            self.slots.retain(|slot| !slot.is_gone());
            self.gone = 0;
        }
        forgotten
    }

    /// A slot is no longer there.
    fn uncount(&mut self, slot: &Slot) {
        if slot.is_kept() {
            self.kept -= 1;
            self.bytes -= draft_bytes(slot.len(), self.name.as_str().len());
        }
        self.keyed -= u32::from(slot.is_keyed());
        self.gone -= u32::from(slot.is_gone());
        self.forget_key(slot);
    }

    fn forget_key(&mut self, slot: &Slot) {
        if let Some(used) = &mut self.used
            && used.keys.get(&slot.digest) == Some(&slot.sequence)
        {
            used.keys.remove(&slot.digest);
        }
    }

    /// Removes a slot.
    pub(super) fn remove(&mut self, sequence: u64) -> Option<Slot> {
        let index = self.position(sequence).ok()?;
        let slot = self.slots.remove(index)?;
        self.uncount(&slot);
        if let Some(used) = &mut self.used {
            used.messages.retain(|(other, _)| *other != sequence);
        }
        Some(slot)
    }

    /// Undoes a [`push`](Self::push) that no other has followed, except for the number, which is not given again.
    pub(super) fn undo(&mut self, sequence: u64, lost: u64, dropped: Vec<Slot>) {
        self.remove(sequence);
        self.lost = lost;
        for slot in dropped {
            self.first_kept = self.first_kept.min(slot.sequence);
            let index = self.position(slot.sequence);
            if let Ok(index) = index {
                let before = self.slots.remove(index).expect("it was found");
                self.uncount(&before);
            }
            self.add(index.unwrap_or_else(|index| index), slot);
        }
    }

    /// The second before which no message is over; 0 if none has a deadline.
    pub(super) fn deadline_s(&self) -> u32 {
        self.deadline_s
    }

    /// From now on, only messages that come have deadlines, as far as [`expire`](Self::expire) does not find others.
    pub(super) fn begin_to_expire(&mut self) {
        self.deadline_s = 0;
    }

    /// Looks at so many slots from the number `first` on, and no longer keeps messages that are over. Returns the number at
    /// which to continue, if there are more.
    pub(super) fn expire(
        &mut self,
        now_ms: u64,
        first: u64,
        count_max: usize,
        expired: &mut Vec<Slot>,
    ) -> Option<u64> {
        let start = self.position(first).unwrap_or_else(|index| index);
        let end = self.slots.len().min(start + count_max);
        let before = expired.len();
        for index in start..end {
            let slot = self.slots[index];
            // What is not acknowledged as yet may be undone, and then nothing of it may be missing.
            if slot.is_kept() && slot.is_placed() && slot.has_expired(now_ms) {
                expired.push(self.unkeep(index));
            } else if slot.is_kept() {
                self.deadline_s = earlier_deadline(self.deadline_s, slot.deadline_s);
            }
        }
        if let Some(used) = &mut self.used {
            let of_now = &expired[before..];
            let is_over = |sequence: u64| {
                let found = of_now.binary_search_by_key(&sequence, |slot| slot.sequence);
                found.is_ok()
            };
            used.messages.retain(|(sequence, _)| !is_over(*sequence));
        }
        self.slots.get(end).map(|slot| slot.sequence)
    }

    /// Forgets what need not be remembered of messages that are gone.
    pub(super) fn end_to_expire(&mut self) -> Vec<Slot> {
        self.forget_keys()
    }

    /// When a message may be over, or it is idle for long enough; `None` if only a change can make it due.
    pub(super) fn next_due_ms(&self) -> Option<u64> {
        let idle = (!self.is_watched).then(|| self.idle_at_ms());
        let deadline = (self.deadline_s != 0).then(|| u64::from(self.deadline_s) * 1000);
        deadline.into_iter().chain(idle).min()
    }

    fn idle_at_ms(&self) -> u64 {
        self.used_ms.saturating_add(self.idle_ms)
    }

    pub(super) fn is_idle(&self, now_ms: u64) -> bool {
        !self.is_watched && self.idle_at_ms() <= now_ms
    }

    /// The message, if it is in memory.
    pub(super) fn recent(&self, sequence: u64) -> Option<&Arc<Draft>> {
        let messages = &self.used.as_deref()?.messages;
        let index = messages.binary_search_by_key(&sequence, |(sequence, _)| *sequence);
        index.ok().map(|index| &messages[index].1)
    }

    fn forget_below(&mut self, end: u64) {
        if let Some(used) = &mut self.used {
            let is_below = |(sequence, _): &(u64, _)| *sequence < end;
            while used.messages.front().is_some_and(is_below) {
                used.messages.pop_front();
            }
        }
    }

    /// Frees the memory of the message of this number, and of all before, which are no younger.
    pub(super) fn evict(&mut self, sequence: u64) {
        self.forget_below(sequence + 1);
        let is_unused = |used: &Used| used.messages.is_empty();
        if self.used.as_deref().is_some_and(is_unused) {
            self.used = None;
            self.slots.shrink_to_fit();
        }
    }
}

/// The earlier of two deadlines, where 0 stands for none.
fn earlier_deadline(one: u32, other: u32) -> u32 {
    match (one, other) {
        (0, only) | (only, 0) => only,
        (one, other) => one.min(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::{draft, settings};

    fn stored() -> StoredBox {
        StoredBox::new(Name::new("s", b"box").expect("a name"), 7, 1)
    }

    fn push(stored: &mut StoredBox, digest: u64, max: usize) -> Dropped {
        let (draft, settings) = (draft("text", None), settings(max, usize::MAX));
        let len = draft.bytes() + 100;
        let slot = Slot::new(stored.next, digest, 0, len);
        stored.push(slot, draft.into(), &settings)
    }

    fn kept(stored: &StoredBox) -> Vec<u64> {
        let kept = stored.slots().filter(|slot| slot.is_kept());
        kept.map(|slot| slot.sequence).collect()
    }

    #[test]
    fn an_append_that_is_undone_leaves_only_a_gap_in_the_numbers() {
        for digest in [0, 99] {
            let mut stored = stored();
            for number in 1..4 {
                push(&mut stored, number * digest, 3);
            }
            let (bytes, lost) = (stored.bytes(), stored.lost);
            let dropped = push(&mut stored, 5 * digest, 1);
            assert_eq!((kept(&stored), stored.lost), (vec![4], 4));
            assert_eq!(dropped.messages.len(), 3);
            stored.undo(4, lost, dropped.messages);
            assert_eq!(kept(&stored), [1, 2, 3]);
            assert_eq!((stored.bytes(), stored.lost, stored.next), (bytes, 1, 5));
            assert_eq!(stored.find_key(99), (digest == 99).then_some(1));
            assert_eq!(stored.find_key(5 * 99), None);
            push(&mut stored, 0, 3);
            assert_eq!((kept(&stored), stored.lost), (vec![2, 3, 5], 2));
        }
    }

    #[test]
    fn keys_outlive_their_messages_in_bounds() {
        let mut stored = stored();
        for number in 1..=1000 {
            assert_eq!(stored.find_key(number), None);
            push(&mut stored, number, 1);
        }
        let first = 1001 - KEYS_MAX as u64;
        assert_eq!(stored.find_key(first - 1), None);
        assert_eq!(stored.find_key(first), Some(first));
        assert_eq!((stored.slots.len(), stored.messages()), (KEYS_MAX, 1));
        let used = stored.used.as_ref().expect("it is used");
        assert_eq!(used.keys.len(), KEYS_MAX);
    }

    fn expire(stored: &mut StoredBox, now_ms: u64, count_max: usize) -> usize {
        let (mut expired, mut next) = (Vec::new(), Some(0));
        stored.begin_to_expire();
        while let Some(first) = next {
            next = stored.expire(now_ms, first, count_max, &mut expired);
        }
        stored.end_to_expire();
        expired.len()
    }

    fn set_deadline(stored: &mut StoredBox, number: u64, deadline_s: u32) {
        let slot = stored.slot_mut(number).expect("a slot");
        (slot.deadline_s, slot.segment) = (deadline_s, 1);
    }

    #[test]
    fn expired_messages_leave_their_keys() {
        for count_max in [1, 2, 100] {
            let mut stored = stored();
            for (number, digest) in [(1, 0), (2, 9), (3, 0), (4, 8)] {
                push(&mut stored, digest, 10);
                set_deadline(&mut stored, number, if number < 4 { 5 } else { 6 });
            }
            assert_eq!(expire(&mut stored, 4_999, count_max), 0);
            assert_eq!(stored.deadline_s(), 5);
            assert_eq!(expire(&mut stored, 5_000, count_max), 3);
            assert_eq!((kept(&stored), stored.lost), (vec![4], 1));
            assert_eq!((stored.find_key(9), stored.deadline_s()), (Some(2), 6));
            assert!(stored.recent(4).is_some() && stored.recent(2).is_none());
            push(&mut stored, 0, 1);
            assert_eq!((kept(&stored), stored.lost), (vec![5], 5));
        }
    }

    #[test]
    fn what_is_gone_behind_a_message_that_stays_takes_no_memory() {
        let mut stored = stored();
        push(&mut stored, 1, 10);
        for number in 2..10_000 {
            push(&mut stored, number, 10);
            set_deadline(&mut stored, number, 5);
            expire(&mut stored, 5_000, 100);
        }
        assert_eq!(kept(&stored), [1]);
        assert!(stored.slots.len() < 4 * KEYS_MAX, "{}", stored.slots.len());
        let last = 10_000 - KEYS_MAX as u64;
        let found = [1, last, 9_999].map(|key| stored.find_key(key));
        assert_eq!(found, [Some(1), Some(last), Some(9_999)]);
        assert_eq!(stored.find_key(2), None);
    }
}
