//! One stream.

use std::sync::Arc;
use std::time::SystemTime;

use levity_wire::durable_streams::{Form, Lifetime, Offset, Producer, Start, end_of_message};
use tokio::sync::oneshot;

use super::content::{Content, NoMemory};
use super::producers::{Check, Producers};
use super::protocol::{
    Append, AppendError, Appended, ContentType, ForkOf, Full, Info, Messages, Read, ReadError,
    ReadResult,
};
use crate::budget::Budget;

/// A stream.
#[derive(Debug)]
pub(super) struct Stream {
    /// No other stream has it.
    pub number: u64,
    /// The number of the stream that all of its sources are forks of, for offsets.
    pub life: u64,
    pub content_type: Arc<ContentType>,
    pub lifetime: Option<Lifetime>,
    /// What it was made with: a request that repeats it is answered as the first.
    pub made_with: MadeWith,
    pub content: Content,
    pub is_closed: bool,
    /// The append that closed it.
    closed_by: Option<Producer>,
    /// That of the last append which had one.
    sequence: Option<Box<[u8]>>,
    producers: Producers,
    pub used_at: SystemTime,
    /// Its entry in the list of those that expire.
    pub due: Option<SystemTime>,
    pub waiting: Vec<Waiting>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MadeWith {
    pub lifetime: Option<Lifetime>,
    pub fork: Option<ForkOf>,
}

/// A read, and where its answer goes.
#[derive(Debug)]
pub(super) struct Waiting {
    pub read: Read,
    pub reply: oneshot::Sender<Result<ReadResult, ReadError>>,
}

impl Waiting {
    /// The same read from `next` on.
    pub(super) fn at(mut self, next: Offset) -> Self {
        self.read.start = Start::At(next);
        self
    }
}

impl Stream {
    pub(super) fn new(
        number: u64,
        content_type: Arc<ContentType>,
        lifetime: Option<Lifetime>,
        made_with: MadeWith,
        now: SystemTime,
    ) -> Self {
        Self {
            number,
            life: number,
            content_type,
            lifetime,
            made_with,
            content: Content::default(),
            is_closed: false,
            closed_by: None,
            sequence: None,
            producers: Producers::default(),
            used_at: now,
            due: None,
            waiting: Vec::new(),
        }
    }

    pub(super) fn form(&self) -> Form {
        Form::of(&self.content_type.essence)
    }

    pub(super) fn info(&self) -> Info {
        Info {
            content_type: self.content_type.clone(),
            lifetime: self.lifetime,
            end: self.end(),
            is_closed: self.is_closed,
        }
    }

    pub(super) fn end(&self) -> Offset {
        self.offset(self.content.end())
    }

    fn offset(&self, position: u64) -> Offset {
        let life = self.life;
        Offset { life, position }
    }

    /// When it expires, if nobody uses it until then; `None` if it does not.
    pub(super) fn expires_at(&self) -> Option<SystemTime> {
        match self.lifetime? {
            Lifetime::Until(time) => Some(time),
            Lifetime::Idle(idle) => self.used_at.checked_add(idle),
        }
    }

    /// Whether a read waits: then it is not idle.
    pub(super) fn is_read(&self) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.any(|waiting| !waiting.reply.is_closed())
    }

    /// The position of `offset`.
    pub(super) fn position(&self, offset: Offset) -> Result<u64, ReadError> {
        let Offset { life, position } = offset;
        if life != self.life && offset != Offset::ZERO {
            return Err(ReadError::OtherLife);
        }
        match self.content.is_boundary(position) {
            true => Ok(position),
            false => Err(ReadError::BadOffset),
        }
    }

    /// The position up to which a fork inherits.
    pub(super) fn fork_position(&self, fork: &ForkOf) -> Result<u64, &'static str> {
        let Some(offset) = fork.offset else {
            return Ok(self.content.end());
        };
        let position = self.position(offset);
        let position =
            position.map_err(|_| "no append of the source ends at Stream-Fork-Offset")?;
        let within = match (fork.sub_offset, self.content.append_at(position)) {
            (0, _) => Some(0),
            (_, None) => None,
            (count, Some(append)) => match self.form() {
                Form::Json => end_of_message(append, count),
                Form::Text | Form::Bytes => {
                    let count = usize::try_from(count).ok();
                    count.filter(|&count| count <= append.len())
                }
            },
        };
        let within = within.ok_or("Stream-Fork-Sub-Offset is beyond the next append")?;
        Ok(position + within as u64)
    }

    pub(super) fn read(&self, read: &Read) -> Result<ReadResult, ReadError> {
        let start = match read.start {
            Start::Beginning => 0,
            Start::Now => self.content.end(),
            Start::At(offset) => self.position(offset)?,
        };
        let (pieces, next) = self.content.read(start, read.bytes_max);
        let is_up_to_date = next == self.content.end();
        Ok(ReadResult {
            content_type: self.content_type.clone(),
            number: self.number,
            start: self.offset(start),
            next: self.offset(next),
            is_up_to_date,
            is_closed: is_up_to_date && self.is_closed,
            pieces,
        })
    }

    /// Appends, closes, or both or nothing.
    pub(super) fn append(
        &mut self,
        mut append: Append,
        budget: &Arc<Budget>,
        now: SystemTime,
    ) -> Result<Appended, AppendError> {
        if self.is_closed {
            return self.append_to_closed(&append);
        }
        let bytes = self.checked_content(append.content.take())?;
        if let Some(duplicate) = self.check_producer(append.producer.as_ref())? {
            return Ok(duplicate);
        }
        if append.sequence.is_some() && append.sequence <= self.sequence {
            return Err(AppendError::Sequence);
        }
        let producer = append.producer.as_ref();
        let reservation = producer.map(|producer| self.producers.reserve(producer, budget));
        let reservation = reservation.transpose().map_err(full)?;
        if let Some(bytes) = bytes {
            let bytes_max = append.settings.bytes_max as u64;
            self.push(bytes, bytes_max, budget)
                .map_err(AppendError::Full)?;
        }
        if let Some((producer, reservation)) = producer.zip(reservation) {
            self.producers.note(producer, reservation, now);
        }
        self.sequence = append.sequence.or(self.sequence.take());
        let sequence = append.producer.as_ref().map(|producer| producer.sequence);
        if append.closes {
            (self.is_closed, self.closed_by) = (true, append.producer);
        }
        Ok(self.appended(sequence, false))
    }

    fn append_to_closed(&self, append: &Append) -> Result<Appended, AppendError> {
        let check = append
            .producer
            .as_ref()
            .map(|producer| self.producers.check(producer));
        let sequence = append.producer.as_ref().map(|producer| producer.sequence);
        match check {
            Some(Check::Stale { epoch }) => Err(AppendError::StaleEpoch(epoch)),
            Some(_) if append.producer == self.closed_by => Ok(self.appended(sequence, true)),
            // To close it again changes nothing.
            _ if append.closes && append.content.is_none() => Ok(self.appended(sequence, true)),
            _ => Err(AppendError::Closed(self.end())),
        }
    }

    fn checked_content(
        &self,
        content: Option<(Box<str>, Messages)>,
    ) -> Result<Option<Vec<u8>>, AppendError> {
        let Some((essence, messages)) = content else {
            return Ok(None);
        };
        if essence != self.content_type.essence {
            return Err(AppendError::OtherType);
        }
        match messages {
            Err(error) => Err(AppendError::NotJson(error)),
            Ok(bytes) if bytes.is_empty() => Err(AppendError::NoMessages),
            Ok(bytes) => Ok(Some(bytes)),
        }
    }

    /// The answer to an append that the stream has.
    fn check_producer(&self, producer: Option<&Producer>) -> Result<Option<Appended>, AppendError> {
        let Some(producer) = producer else {
            return Ok(None);
        };
        match self.producers.check(producer) {
            Check::New => Ok(None),
            Check::Duplicate { last } => Ok(Some(self.appended(Some(last), true))),
            Check::Stale { epoch } => Err(AppendError::StaleEpoch(epoch)),
            Check::Gap { expected } => Err(AppendError::Gap { expected }),
            Check::EpochWithoutStart => Err(AppendError::EpochWithoutStart),
        }
    }

    fn appended(&self, producer_sequence: Option<u64>, is_duplicate: bool) -> Appended {
        Appended {
            end: self.end(),
            is_closed: self.is_closed,
            is_duplicate,
            producer_sequence,
        }
    }

    /// Appends `bytes`, if the stream has at most `bytes_max` bytes then.
    pub(super) fn push(
        &mut self,
        bytes: Vec<u8>,
        bytes_max: u64,
        budget: &Arc<Budget>,
    ) -> Result<(), Full> {
        if self.content.end() + bytes.len() as u64 > bytes_max {
            return Err(Full::Stream);
        }
        let appended = self.content.append(bytes, budget);
        appended.map_err(|NoMemory| Full::Memory)
    }

    /// Keeps a read until there is more.
    pub(super) fn wait(&mut self, waiting: Waiting) {
        let receivers_max = waiting.read.settings.receivers_max;
        // Those that have gone are dropped when their number may have doubled, or is the limit.
        if self.waiting.len() == self.waiting.capacity() || self.waiting.len() >= receivers_max {
            self.waiting.retain(|waiting| !waiting.reply.is_closed());
        }
        if self.waiting.len() >= receivers_max {
            let _ = waiting.reply.send(Err(ReadError::TooManyReceivers));
            return;
        }
        self.waiting.push(waiting);
    }
}

fn full(NoMemory: NoMemory) -> AppendError {
    AppendError::Full(Full::Memory)
}
