//! Reads the messages of a box that are not in memory.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use levity_wire::mailbox::MessageId;

use super::batch::BoxId;
use super::files::{Files, PIECE_BYTES};
use super::record::{self, Body};
use super::segment::segment_name;
use super::shared::Shared;
use super::slot::Slot;
use super::state::{Found, Snapshot};
use crate::message::{Draft, Message};
use crate::store::{Opened, StoreError};

/// Records that are at most so many bytes apart are read at once.
const GAP_BYTES_MAX: u32 = 16 << 10;

/// What is kept of a box, with segments that stay until it is read.
pub(super) struct Plan {
    snapshot: Snapshot,
    /// Keep the files.
    _segments: Vec<Arc<()>>,
}

/// Why messages cannot be read.
enum Failure {
    /// The disk does not give them now.
    Io(io::Error),
    /// There is no memory for them.
    Memory,
    /// These are not there, or are others.
    Damaged(Vec<u64>),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Plan {
    /// What is to be read of a box; `None` if it is gone.
    pub(super) fn new(shared: &Shared, of: BoxId) -> Option<Self> {
        let state = shared.state();
        let snapshot = state.snapshot(of)?;
        let mut segments: Vec<u32> = snapshot.slots().map(|slot| slot.segment).collect();
        segments.dedup();
        let readers = |number: &u32| Some(state.segments.get(*number)?.readers.clone());
        let segments = segments.iter().filter_map(readers).collect();
        Some(Self {
            snapshot,
            _segments: segments,
        })
    }

    /// What is kept of the box, if all of it is in memory.
    pub(super) fn in_memory(self) -> Result<Opened, Self> {
        let is_in_memory = self.snapshot.slots().next().is_none();
        match is_in_memory {
            true => Ok(self.opened(Vec::new())),
            false => Err(self),
        }
    }

    /// Reads what is not in memory. Messages that cannot be read are no longer kept, and the box begins a new epoch.
    pub(super) async fn read(self, shared: Arc<Shared>) -> Result<Option<Opened>, StoreError> {
        let mut plan = self;
        loop {
            let of = plan.snapshot.of;
            match plan.messages(&shared).await {
                Ok(messages) => return Ok(Some(plan.opened(messages))),
                Err(Failure::Memory) => return Err(StoreError::Memory),
                Err(Failure::Io(error)) => {
                    let refusal = format!("the journal cannot be read: {error}");
                    shared.report(&refusal);
                    return Err(StoreError::Unavailable(refusal));
                }
                Err(Failure::Damaged(sequences)) => {
                    let (name, count) = (&plan.snapshot.name, sequences.len());
                    shared.report(&format!(
                        "the journal has lost {count} messages of box {name}"
                    ));
                    let mut state = shared.state();
                    state.damaged(of, &sequences);
                    shared.notify(&mut state);
                }
            }
            match Self::new(&shared, of) {
                Some(next) => plan = next,
                None => return Ok(None),
            }
        }
    }

    /// The messages that are not in memory.
    async fn messages(&self, shared: &Shared) -> Result<Vec<Message>, Failure> {
        let mut by_segment: BTreeMap<u32, Vec<Slot>> = BTreeMap::new();
        for slot in self.snapshot.slots() {
            by_segment.entry(slot.segment).or_default().push(*slot);
        }
        let (mut messages, mut damaged) = (Vec::new(), Vec::new());
        for (number, mut slots) in by_segment {
            slots.sort_unstable_by_key(|slot| slot.offset);
            let file = match shared.files.open(segment_name(number)).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    damaged.extend(slots.iter().map(|slot| slot.sequence));
                    continue;
                }
                file => file?,
            };
            for range in ranges(&slots) {
                let (first, last) = (range[0], range[range.len() - 1]);
                let len = (last.offset - first.offset) as usize + last.len();
                let bytes = Files::read(&shared.files, &file, first.offset.into(), len).await?;
                for slot in range {
                    let at = (slot.offset - first.offset) as usize;
                    match self.draft(bytes.get(at..).unwrap_or(&[]), slot) {
                        Some(draft) => messages.push(self.message(slot, draft, shared)?),
                        None => damaged.push(slot.sequence),
                    }
                }
            }
        }
        match damaged.is_empty() {
            true => Ok(messages),
            false => Err(Failure::Damaged(damaged)),
        }
    }

    /// The message of a record, if it is the right one.
    fn draft(&self, bytes: &[u8], slot: &Slot) -> Option<Draft> {
        let record = record::decode(bytes).ok()?;
        let Body::Message(fields) = record.body else {
            return None;
        };
        let name = self.snapshot.name.as_str();
        if (record.head.name, fields.sequence) != (name, slot.sequence) {
            return None;
        }
        Some(fields.draft())
    }

    /// The message with its memory.
    fn message(&self, slot: &Slot, mut draft: Draft, shared: &Shared) -> Result<Message, Failure> {
        let reservation = shared.budget.try_reserve_to_read(draft.bytes());
        draft.reservation = Some(reservation.ok_or(Failure::Memory)?);
        let id = MessageId {
            epoch: self.snapshot.epoch,
            sequence: slot.sequence,
        };
        let draft = Arc::new(draft);
        Ok(Message { id, draft })
    }

    /// With what was read.
    fn opened(self, read: Vec<Message>) -> Opened {
        let Snapshot {
            epoch,
            next,
            lost,
            read: read_end,
            messages,
            ..
        } = self.snapshot;
        let in_memory = messages.into_iter().filter_map(|found| match found {
            Found::Recent(message) => Some(message),
            Found::Placed(_) => None,
        });
        let mut messages: Vec<_> = read.into_iter().chain(in_memory).collect();
        messages.sort_by_key(|message| message.id.sequence);
        Opened {
            epoch,
            next,
            lost,
            read: read_end,
            messages,
        }
    }
}

impl Snapshot {
    /// The messages that are not in memory.
    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.messages.iter().filter_map(|found| match found {
            Found::Placed(slot) => Some(slot),
            Found::Recent(_) => None,
        })
    }
}

/// Records that are read at once: near to each other, and together not larger than a piece.
fn ranges(slots: &[Slot]) -> Vec<&[Slot]> {
    let (mut ranges, mut start) = (Vec::new(), 0);
    for index in 1..=slots.len() {
        let is_end = slots.get(index).is_none_or(|slot| {
            let before = &slots[index - 1];
            let end = before.offset + before.len() as u32;
            let gap = slot.offset.saturating_sub(end);
            let len = (slot.offset - slots[start].offset) as usize + slot.len();
            gap > GAP_BYTES_MAX || len > PIECE_BYTES
        });
        if is_end {
            ranges.push(&slots[start..index]);
            start = index;
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_records_are_read_at_once() {
        let slot = |offset: usize, len| {
            let mut slot = Slot::new(0, 0, 0, len);
            slot.offset = offset as u32;
            slot
        };
        let gap = GAP_BYTES_MAX as usize;
        let slots = [
            slot(100, 50),
            slot(150, 50),
            slot(200 + gap, 10),
            slot(211 + 2 * gap, PIECE_BYTES),
            slot(211 + 2 * gap + PIECE_BYTES, 1),
        ];
        let lens: Vec<_> = ranges(&slots).iter().map(|range| range.len()).collect();
        assert_eq!(lens, [3, 1, 1]);
        assert!(ranges(&[]).is_empty());
    }
}
