//! Records that are written together, and who waits for them.

use std::sync::Arc;

use levity_wire::mailbox::MessageId;
use tokio::sync::oneshot;

use super::files::PIECE_BYTES;
use super::record::{self, Body, Head};
use super::slot::Slot;
use crate::store::{Appended, StoreError};

/// Records in the order in which they are to be written.
#[derive(Default)]
pub(super) struct Batch {
    /// The records. No record is in two pieces.
    pub pieces: Vec<Arc<Vec<u8>>>,
    pub entries: Vec<Entry>,
    pub waiters: Vec<Waiter>,
    /// The size of the records.
    pub bytes: usize,
    /// Somebody waits until they are synced.
    pub needs_sync: bool,
}

/// A record of a batch.
pub(super) struct Entry {
    pub what: What,
    /// In bytes from the start of the batch.
    pub at: u32,
    /// In bytes.
    pub len: u32,
}

/// A place in the table of boxes, and the serial number of the box that is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct BoxId {
    pub index: u32,
    pub serial: u32,
}

/// What a record is for.
pub(super) enum What {
    /// A message of a publisher.
    Message {
        of: BoxId,
        /// The box was made for it.
        is_new: bool,
        sequence: u64,
        /// [`lost`](super::stored::StoredBox::lost) as it was before.
        lost: u64,
        /// What the box no longer keeps because of it.
        dropped: Vec<Slot>,
        /// It is acknowledged after the sync, not after the write.
        on_sync: bool,
        /// What the record says about that.
        is_durable: bool,
    },
    /// What was in a segment at `from` already: number and offset.
    Copy {
        of: BoxId,
        sequence: u64,
        from: (u32, u32),
    },
    /// The state of a box.
    State { of: BoxId },
    /// A box was removed.
    Removed,
    /// A segment is no longer needed.
    Dropped,
}

/// Who waits for a batch.
pub(super) struct Waiter {
    pub results: Vec<Outcome>,
    pub reply: Reply,
    /// For its sync.
    pub on_sync: bool,
}

/// What to do when the batch is safe.
pub(super) enum Reply {
    Appended(oneshot::Sender<Vec<Result<Appended, StoreError>>>),
    Done(oneshot::Sender<Result<(), StoreError>>),
}

/// What an append becomes if the batch is safe.
pub(super) enum Outcome {
    /// It is decided already.
    Decided(Result<Appended, StoreError>),
    /// A message of this batch, in this box.
    New(Appended, BoxId),
    /// A message that is not safe either.
    Duplicate(MessageId),
}

impl Batch {
    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.waiters.is_empty()
    }

    /// Adds a record; false if a text is too long for it.
    pub(super) fn push(&mut self, head: &Head<'_>, body: &Body<'_>, what: What) -> bool {
        let piece = self.piece();
        match record::encode(piece, head, body) {
            Some(len) => self.entered(what, len),
            None => return false,
        }
        true
    }

    /// Adds a record that is encoded already.
    pub(super) fn push_encoded(&mut self, record: &[u8], what: What) {
        self.piece().extend_from_slice(record);
        self.entered(what, record.len());
    }

    /// The piece that gets the next record.
    fn piece(&mut self) -> &mut Vec<u8> {
        if self
            .pieces
            .last()
            .is_none_or(|piece| piece.len() >= PIECE_BYTES)
        {
            self.pieces.push(Arc::default());
        }
        Arc::make_mut(self.pieces.last_mut().expect("there is one"))
    }

    fn entered(&mut self, what: What, len: usize) {
        let (at, len) = (self.bytes as u32, len as u32);
        self.bytes += len as usize;
        self.entries.push(Entry { what, at, len });
    }

    /// Adds who waits.
    pub(super) fn wait(&mut self, waiter: Waiter) {
        self.needs_sync |= waiter.on_sync;
        self.waiters.push(waiter);
    }

    /// The same entries with their records, as far as `keep` wants them, and without those who wait.
    pub(super) fn filtered(self, mut keep: impl FnMut(&Entry) -> Option<What>) -> Batch {
        let mut kept = Batch::default();
        let mut entries = self.entries.iter();
        for piece in &self.pieces {
            let mut rest = &piece[..];
            while !rest.is_empty() {
                let entry = entries.next().expect("each record has an entry");
                let (record, next) = rest.split_at(entry.len as usize);
                if let Some(what) = keep(entry) {
                    kept.push_encoded(record, what);
                }
                rest = next;
            }
        }
        kept
    }

    /// Puts `earlier` before what is in this batch.
    pub(super) fn prepend(&mut self, earlier: Batch) {
        let later = std::mem::replace(self, earlier);
        let offset = self.bytes as u32;
        self.pieces.extend(later.pieces);
        self.entries
            .extend(later.entries.into_iter().map(|entry| Entry {
                at: entry.at + offset,
                ..entry
            }));
        self.waiters.extend(later.waiters);
        self.bytes += later.bytes;
        self.needs_sync |= later.needs_sync;
    }
}

impl Waiter {
    /// The batch is safe. Returns the boxes with new messages if nobody waits any more.
    #[must_use]
    pub(super) fn succeed(self) -> Vec<BoxId> {
        let of_message = |outcome: &Outcome| match outcome {
            Outcome::New(_, of) => Some(*of),
            _ => None,
        };
        let boxes = self.results.iter().filter_map(of_message).collect();
        let result = |outcome| match outcome {
            Outcome::Decided(result) => result,
            Outcome::New(appended, _) => Ok(appended),
            Outcome::Duplicate(id) => Ok(Appended::Duplicate(id)),
        };
        match self.reply(result, Ok(())) {
            true => Vec::new(),
            false => boxes,
        }
    }

    /// The batch, or an earlier one, is not safe.
    pub(super) fn fail(self, error: &StoreError) {
        let result = |outcome| match outcome {
            Outcome::Decided(result) => result,
            Outcome::New(..) | Outcome::Duplicate(_) => Err(error.clone()),
        };
        self.reply(result, Err(error.clone()));
    }

    /// Whether somebody waits.
    fn reply(
        self,
        result: impl FnMut(Outcome) -> Result<Appended, StoreError>,
        done: Result<(), StoreError>,
    ) -> bool {
        match self.reply {
            Reply::Appended(reply) => {
                let results = self.results.into_iter().map(result);
                reply.send(results.collect()).is_ok()
            }
            Reply::Done(reply) => reply.send(done).is_ok(),
        }
    }
}
