//! What the records of a box amount to.
//!
//! All processes apply the same records in the same order, so they agree on the numbers, on which messages are kept, and on
//! which were there already. Nothing that matters comes from the process itself: bounds and times are in the records.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use levity_wire::mailbox::MessageId;

use super::record::{Author, Kind, Record, Summary};
use crate::log::{Log, Logged};
use crate::message::{Draft, Message};
use crate::store::Opened;

/// The state of a box.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Added to the number of the record with which an epoch begins, this is the epoch.
    base: u64,
    life: Option<Life>,
    /// The number of the last record.
    last: u64,
    /// The records that are in the stream, and their sizes.
    records: VecDeque<(u64, usize)>,
    bytes: usize,
}

#[derive(Debug)]
struct Life {
    /// The number of its first record.
    born: u64,
    log: Log<Line>,
}

/// A message in a ledger.
#[derive(Debug)]
pub(super) struct Line {
    number: u64,
    pub(super) author: Author,
    key: Option<Box<str>>,
    deadline: Option<SystemTime>,
    bytes: usize,
    /// The message, if the ledger is made to read it.
    draft: Option<Arc<Draft>>,
}

impl Logged for Line {
    fn number(&self) -> u64 {
        self.number
    }

    fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    fn deadline(&self) -> Option<SystemTime> {
        self.deadline
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// What a record has done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The box has a message.
    New {
        id: MessageId,
        lost: u64,
        /// The number of messages that were dropped for it because of a bound.
        dropped: usize,
        /// The number of messages that had expired.
        expired: usize,
    },
    /// The box had it.
    Duplicate(MessageId),
    /// The box was removed, if there was one.
    Removed(bool),
    /// The box has another epoch.
    Renewed,
    /// Nothing of the kind.
    Nothing,
}

impl Ledger {
    /// A box without records.
    pub(super) fn new(base: u64) -> Self {
        Self {
            base,
            life: None,
            last: 0,
            records: VecDeque::new(),
            bytes: 0,
        }
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn epoch(&self) -> Option<u64> {
        self.life.as_ref().map(|life| life.log.epoch())
    }

    /// Whether there is a box.
    pub(super) fn is_alive(&self) -> bool {
        self.life.is_some()
    }

    /// The numbers and the size of the messages that are kept.
    pub(super) fn size(&self) -> Option<(usize, usize)> {
        let log = &self.life.as_ref()?.log;
        Some((log.messages().len(), log.bytes()))
    }

    /// The last message, with who has written it: it must still be there when the records are read again.
    pub(super) fn witness(&self) -> Option<(u64, Author)> {
        let last = self.life.as_ref()?.log.messages().next_back()?;
        Some((last.number, last.author))
    }

    /// Whether a ledger that was read later lacks this life, or its last message, for no good reason.
    pub(super) fn is_lost_in(&self, after: &Self, now: SystemTime) -> bool {
        let (Some(before), Some(after)) = (&self.life, &after.life) else {
            return false;
        };
        let (before, after) = (&before.log, &after.log);
        let Some(last) = before.messages().next_back() else {
            return after.epoch() < before.epoch();
        };
        let is_over = last.deadline.is_some_and(|deadline| deadline <= now);
        let is_kept = |line: &Line| (line.number, line.author) == (last.number, last.author);
        match after.epoch().cmp(&before.epoch()) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => {
                !is_over && last.number >= after.lost() && !after.messages().any(is_kept)
            }
        }
    }

    /// What is kept, if the drafts were.
    pub(super) fn opened(&self) -> Option<Opened> {
        let log = &self.life.as_ref()?.log;
        let epoch = log.epoch();
        let message = |line: &Line| {
            let (sequence, draft) = (line.number, line.draft.clone()?);
            let id = MessageId { epoch, sequence };
            Some(Message { id, draft })
        };
        Some(Opened {
            epoch,
            next: log.next(),
            lost: log.lost(),
            read: log.read(),
            messages: log.messages().filter_map(message).collect(),
        })
    }

    /// Begins with a summary, in place of all records before that one.
    pub(super) fn begin(&mut self, summary: &Summary) {
        let mut log = Log::new(self.base.wrapping_add(summary.epoch));
        for (number, key) in &summary.keys {
            log.remember(key.as_str().into(), *number);
        }
        // Messages have yet to be restored.
        log.advance(summary.lost, summary.lost, summary.read);
        let born = summary.born;
        self.life = Some(Life { born, log });
    }

    /// Restores a message that was kept when the summary was written.
    pub(super) fn restore(
        &mut self,
        number: u64,
        record: &Record<'_>,
        draft: Arc<Draft>,
        keeps: bool,
    ) {
        let Some(Life { born, log }) = &mut self.life else {
            return;
        };
        let is_known = draft
            .key
            .as_deref()
            .is_some_and(|key| log.find(key).is_some());
        if number >= *born && number >= log.next() && !is_known {
            log.push(Line::new(number, record.author, draft, keeps));
        }
    }

    /// Ends what [`begin`](Self::begin) began.
    pub(super) fn begun(&mut self, summary: &Summary) {
        if let Some(life) = &mut self.life {
            life.log.advance(summary.next, summary.lost, summary.read);
        }
    }

    /// Notes a record that is in the stream, whatever it does.
    pub(super) fn note(&mut self, number: u64, size: usize) {
        self.last = self.last.max(number);
        self.records.push_back((number, size));
        self.bytes += size;
    }

    /// Applies a record. The draft is that of a message; the ledger keeps it if it `keeps` messages.
    pub(super) fn apply(
        &mut self,
        number: u64,
        record: &Record<'_>,
        draft: Option<Arc<Draft>>,
        keeps: bool,
    ) -> Outcome {
        match (&record.kind, draft) {
            (
                Kind::Message {
                    messages_max,
                    bytes_max,
                    ..
                },
                Some(draft),
            ) => {
                let life = self.live(number, number);
                let line = Line::new(number, record.author, draft, keeps);
                life.append(line, record.time, *messages_max, *bytes_max)
            }
            (Kind::Used, _) => {
                self.live(number, number + 1);
                Outcome::Nothing
            }
            (&Kind::Read { epoch, end }, _) => {
                let epoch = self.base.wrapping_add(epoch);
                if let (Some(life), Some(sequence)) = (&mut self.life, end.checked_sub(1)) {
                    life.log.mark_read(MessageId { epoch, sequence });
                }
                Outcome::Nothing
            }
            (Kind::Removed, _) => Outcome::Removed(self.life.take().is_some()),
            (Kind::Renewed, _) => {
                let epoch = self.base + number;
                match &mut self.life {
                    Some(life) => {
                        life.log.set_epoch(epoch);
                        Outcome::Renewed
                    }
                    None => Outcome::Nothing,
                }
            }
            (Kind::Summary(_) | Kind::Message { .. }, _) => Outcome::Nothing,
        }
    }

    /// The present life, which begins with record `number` if there is none.
    fn live(&mut self, number: u64, first: u64) -> &mut Life {
        let epoch = self.base + number;
        self.life.get_or_insert_with(|| {
            let mut log = Log::new(epoch);
            log.advance(first, first, first);
            Life { born: number, log }
        })
    }

    /// A summary of what is known now.
    pub(super) fn summary(&self) -> Option<Summary> {
        let Life { born, log } = self.life.as_ref()?;
        let keys = log.keys_of_dropped();
        Some(Summary {
            upto: self.last,
            born: *born,
            epoch: log.epoch().wrapping_sub(self.base),
            next: log.next(),
            lost: log.lost(),
            read: log.read(),
            keys: keys.map(|(number, key)| (number, key.to_owned())).collect(),
        })
    }

    /// The number and the size of the records that are not needed, if a summary takes their place.
    pub(super) fn superfluous(&self) -> (usize, usize) {
        let (count, bytes) = self.size().unwrap_or_default();
        (
            self.records.len() - count.min(self.records.len()),
            self.bytes.saturating_sub(bytes),
        )
    }

    /// The records that are not needed with a summary that is made now.
    pub(super) fn superfluous_records(&self) -> Vec<u64> {
        let is_kept = |number| self.life.as_ref().is_some_and(|life| life.log.has(number));
        let all = self.records.iter().map(|(number, _)| *number);
        all.filter(|&number| !is_kept(number)).collect()
    }

    /// Records are about to be deleted. Returns the first record that is not.
    pub(super) fn deleted(&mut self, numbers: &[u64]) -> u64 {
        self.records
            .retain(|(number, _)| numbers.binary_search(number).is_err());
        self.bytes = self.records.iter().map(|(_, size)| size).sum();
        self.records.front().map_or(self.last, |(first, _)| *first)
    }

    /// Another process deletes what is not needed with its summary.
    pub(super) fn summarized(&mut self, summary: &Summary) {
        if !self.is_of_life(summary) {
            return;
        }
        // Messages that were dropped since the summary are still there: it does not say that they are lost.
        let log = self.life.as_ref().map(|life| &life.log);
        let is_there = |number: u64| {
            number > summary.upto
                || log.is_some_and(|log| {
                    log.has(number) || (summary.lost..log.lost()).contains(&number)
                })
        };
        let all = self.records.iter().map(|(number, _)| *number);
        let gone: Vec<_> = all.filter(|&number| !is_there(number)).collect();
        self.deleted(&gone);
    }

    /// Whether a summary is of the present life.
    pub(super) fn is_of_life(&self, summary: &Summary) -> bool {
        self.life
            .as_ref()
            .is_some_and(|life| life.born == summary.born)
    }

    #[cfg(test)]
    pub(super) fn find(&self, key: &str) -> Option<MessageId> {
        self.life.as_ref()?.log.find(key)
    }

    /// All records up to that one are gone.
    pub(super) fn purged(&mut self, upto: u64) {
        self.records.retain(|(number, _)| *number > upto);
        self.bytes = self.records.iter().map(|(_, size)| size).sum();
    }
}

impl Life {
    fn append(
        &mut self,
        line: Line,
        time: SystemTime,
        messages_max: usize,
        bytes_max: usize,
    ) -> Outcome {
        let known = line.key.as_deref().and_then(|key| self.log.find(key));
        if let Some(id) = known {
            return Outcome::Duplicate(id);
        }
        let (epoch, sequence) = (self.log.epoch(), line.number);
        let mut expired = self.log.expire(time).expired;
        while self.log.next_deadline().is_some_and(|due| due <= time) {
            expired += self.log.expire(time).expired;
        }
        self.log.push(line);
        let dropped = self.log.trim_to(messages_max, bytes_max).lost;
        Outcome::New {
            id: MessageId { epoch, sequence },
            lost: self.log.lost(),
            dropped,
            expired,
        }
    }
}

impl Line {
    fn new(number: u64, author: Author, draft: Arc<Draft>, keeps: bool) -> Self {
        Self {
            number,
            author,
            key: draft.key.clone(),
            deadline: draft.deadline,
            bytes: draft.bytes(),
            draft: keeps.then_some(draft),
        }
    }
}
