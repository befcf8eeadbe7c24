//! Reading: what a stream has, and what it inherits.

use std::sync::Arc;
use std::time::SystemTime;

use levity_wire::durable_streams::{Lifetime, Offset, Start};
use levity_wire::mailbox::MessageId;

use super::protocol::{ReadResult, StreamError};
use super::streams::Streams;
use crate::message::Message;
use crate::name::Name;
use crate::protocol::Command;
use crate::store::{Limit, Opened, StoreError};
use crate::stream_state::{Refused, StreamState, Update};

/// A stream, or one that it inherits from.
pub(super) struct Part {
    pub name: Name,
    /// The latest life of it and of all that it inherits from: it changes when any of them has lost content.
    pub life: u64,
    pub state: Arc<StreamState>,
    /// The number of the last message that the stream has of it.
    last: u64,
    epoch: u64,
}

impl Part {
    /// The part of a stream up to the message `last`, without what that inherits.
    fn new(name: Name, epoch: u64, state: Arc<StreamState>, last: u64) -> Self {
        Self {
            name,
            life: epoch,
            state,
            last,
            epoch,
        }
    }

    /// The offset of this position in the stream.
    pub fn offset(&self, position: u64) -> Offset {
        let life = self.life;
        Offset { life, position }
    }

    /// Why the stream refuses an update, whatever its content.
    pub fn refusal(&self, update: &Update) -> Option<Refused> {
        update
            .apply(Some(&self.state), u64::MAX, 0, usize::MAX)
            .err()
    }
}

impl Streams {
    /// A stream, and those that it inherits from in turn.
    pub(super) async fn parts(
        &self,
        name: &Name,
        now: SystemTime,
    ) -> Result<Vec<Part>, StreamError> {
        let (epoch, state) = self.found(name, now).await?;
        let mut next = state.source.clone();
        let mut last = u64::MAX;
        let mut parts = vec![Part::new(name.clone(), epoch, state, last)];
        while let Some(source) = next.take() {
            let found = self.summary(&source.name).await?;
            let found = found.filter(|(_, state)| state.id == source.id);
            let lost = || StoreError::Unavailable("what the stream inherits is lost".to_owned());
            let (epoch, state) = found.ok_or_else(lost)?;
            next.clone_from(&state.source);
            last = last.min(source.last);
            parts.push(Part::new(source.name, epoch, state, last));
        }
        for index in (1..parts.len()).rev() {
            parts[index - 1].life = parts[index - 1].life.max(parts[index].life);
        }
        Ok(parts)
    }

    /// The epoch of a stream, and its state.
    pub(super) async fn found(
        &self,
        name: &Name,
        now: SystemTime,
    ) -> Result<(u64, Arc<StreamState>), StreamError> {
        let (epoch, state) = self.summary(name).await?.ok_or(Refused::Unknown)?;
        self.check_there(name, epoch, &state, now).await?;
        Ok((epoch, state))
    }

    async fn summary(&self, name: &Name) -> Result<Option<(u64, Arc<StreamState>)>, StreamError> {
        let summary = |reply| Command::Summary {
            name: name.clone(),
            reply,
        };
        let found = self.ask(name, summary).await??;
        Ok(found.and_then(|found| Some((found.summary.epoch, found.summary.state?))))
    }

    /// Removes a stream whose time is over.
    async fn check_there(
        &self,
        name: &Name,
        epoch: u64,
        state: &StreamState,
        now: SystemTime,
    ) -> Result<(), StreamError> {
        if state.is_removed {
            return Err(Refused::Removed.into());
        }
        if state.is_over(now) {
            self.remove_life(name, epoch).await?;
            return Err(Refused::Unknown.into());
        }
        Ok(())
    }

    async fn read_box(
        &self,
        name: &Name,
        after: Option<MessageId>,
        limit: Limit,
    ) -> Result<Opened, StreamError> {
        let read = |reply| Command::ReadAfter {
            name: name.clone(),
            after,
            limit,
            reply,
        };
        Ok(self.ask(name, read).await??.ok_or(Refused::Unknown)?)
    }

    /// Reads from a stream: about `bytes_max` bytes at most, but at least one append if there is one.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub async fn read(
        &self,
        name: &Name,
        start: Start,
        bytes_max: usize,
        now: SystemTime,
    ) -> Result<ReadResult, StreamError> {
        let limit = Limit {
            messages: usize::MAX,
            bytes: bytes_max,
        };
        let (after, limit) = match start {
            Start::Now => (None, Limit::NOTHING),
            Start::At(Offset { life, position }) if life > 0 => {
                let (epoch, sequence) = (life, position);
                (Some(MessageId { epoch, sequence }), limit)
            }
            Start::Beginning | Start::At(_) => (None, limit),
        };
        let opened = self.read_box(name, after, limit).await?;
        let state = opened.state.clone().ok_or(Refused::Unknown)?;
        self.check_there(name, opened.epoch, &state, now).await?;
        if let Some(Lifetime::Idle(_)) = state.lifetime {
            let owner = self.copies.owner_of_stream(name);
            let name = name.clone();
            self.copies.send(owner, Command::Use { name });
        }
        if state.source.is_some() {
            return self.read_parts(name, start, limit, now).await;
        }
        let parts = [Part::new(name.clone(), opened.epoch, state, u64::MAX)];
        let mut reading = Reading::new(&parts, start)?;
        if !reading.take(opened.messages, u64::MAX)? || limit == Limit::NOTHING || reading.is_done()
        {
            return Ok(reading.result());
        }
        self.read_parts(name, start, limit, now).await
    }

    /// Reads from a stream and from those that it inherits from.
    async fn read_parts(
        &self,
        name: &Name,
        start: Start,
        mut limit: Limit,
        now: SystemTime,
    ) -> Result<ReadResult, StreamError> {
        let parts = self.parts(name, now).await?;
        let mut reading = Reading::new(&parts, start)?;
        for part in parts.iter().rev() {
            let last = part.last.min(parts[0].state.end);
            while reading.position < last && limit.bytes > 0 {
                let (epoch, sequence) = (part.epoch, reading.position);
                let after = Some(MessageId { epoch, sequence });
                let opened = self.read_box(&part.name, after, limit).await?;
                if opened.epoch != epoch {
                    // It has lost content since it was described.
                    return Err(StreamError::OtherLife);
                }
                let is_last = opened.messages.is_empty();
                let known = reading.pieces.len();
                if !reading.take(opened.messages, last)? {
                    return Ok(reading.result());
                }
                let new = reading.pieces[known..].iter();
                let bytes: usize = new.map(|message| message.draft.bytes()).sum();
                limit.bytes = limit.bytes.saturating_sub(bytes);
                if is_last {
                    reading.position = last;
                }
            }
        }
        Ok(reading.result())
    }
}

/// What a read has found so far.
struct Reading<'p> {
    of: &'p Part,
    start: u64,
    /// The number of the last message that was read.
    position: u64,
    pieces: Vec<Message>,
}

impl<'p> Reading<'p> {
    fn new(parts: &'p [Part], start: Start) -> Result<Self, StreamError> {
        let of = &parts[0];
        let start = match start {
            Start::Beginning => first(parts),
            Start::Now => of.state.end,
            Start::At(offset) => position(parts, offset)?,
        };
        Ok(Self {
            of,
            start,
            position: start,
            pieces: Vec::new(),
        })
    }

    /// Takes messages up to the number `last`, which follow those that it has; false if content is lost before the end of them.
    fn take(&mut self, messages: Vec<Message>, last: u64) -> Result<bool, StreamError> {
        for message in messages {
            let number = message.id.sequence;
            if number > last {
                self.position = last;
                return Ok(true);
            }
            if number <= self.position {
                continue;
            }
            if message.draft.is_damaged && self.pieces.is_empty() {
                return Err(StreamError::Lost(self.of.offset(number)));
            }
            if message.draft.is_damaged {
                return Ok(false);
            }
            self.position = number;
            if !message.draft.content.is_empty() {
                self.pieces.push(message);
            }
        }
        Ok(true)
    }

    /// Whether there is content, or nothing to come.
    fn is_done(&self) -> bool {
        !self.pieces.is_empty() || self.position >= self.of.state.end
    }

    fn result(self) -> ReadResult {
        let state = &self.of.state;
        let next = self
            .pieces
            .last()
            .map_or(self.start, |last| last.id.sequence);
        let is_up_to_date = self.position >= state.end;
        ReadResult {
            content_type: state.content_type.clone(),
            lifetime: state.lifetime,
            start: self.of.offset(self.start),
            next: self.of.offset(next),
            is_up_to_date,
            is_closed: is_up_to_date && state.is_closed,
            pieces: self.pieces,
        }
    }
}

/// The position before all content.
fn first(parts: &[Part]) -> u64 {
    parts
        .last()
        .map_or(0, |root| root.state.first.saturating_sub(1))
}

/// The position of `offset` in the stream of these parts, whose offsets those have that it inherits, too.
pub(super) fn position(parts: &[Part], offset: Offset) -> Result<u64, StreamError> {
    let Offset { life, position } = offset;
    if offset == Offset::ZERO {
        return Ok(first(parts));
    }
    let of_life = parts.iter().find(|part| part.life == life);
    let of_life = of_life.ok_or(StreamError::OtherLife)?;
    let last = of_life.last.min(parts[0].state.end);
    match (first(parts)..=last).contains(&position) {
        true => Ok(position),
        false => Err(StreamError::BadOffset),
    }
}
