//! Making, changing and removing streams.

use std::sync::Arc;
use std::time::SystemTime;

use levity_wire::durable_streams::{Form, Lifetime, Offset, Start, end_of_message};

use super::protocol::{Append, Appended, Create, Created, Info, StreamError};
use super::reading::{Part, position};
use super::streams::{CLOSED, Streams};
use crate::message::Draft;
use crate::name::Name;
use crate::protocol::{Command, Published};
use crate::store;
use crate::stream_state::{ContentType, ForkOf, MadeWith, Refused, Source, StreamState, Update};

/// The maximum number of streams that one inherits from, each from the next.
const SOURCES_MAX: usize = 64;

/// The memory of a producer beside its id, about.
const PRODUCER_BYTES: usize = 128;

impl Streams {
    /// Has the store append a message, if the stream takes it.
    async fn publish(
        &self,
        name: &Name,
        content: Vec<u8>,
        closes: bool,
        update: Update,
    ) -> Result<Published, StreamError> {
        let mut draft = Draft {
            content: content.into(),
            event: if closes {
                CLOSED.into()
            } else {
                Box::default()
            },
            ..Draft::default()
        };
        let bytes = draft.bytes() + memory_of_state(&update);
        let reservation = self.budget.try_reserve(bytes);
        draft.reservation = Some(reservation.ok_or(StreamError::Memory)?);
        let append = store::Append {
            name: name.clone(),
            settings: self.settings.clone(),
            draft: Arc::new(draft),
            update: Some(Arc::new(update)),
        };
        let publish = |reply| Command::Publish {
            appends: vec![append],
            reply,
        };
        let (_, published) = self.ask(name, publish).await?.pop().expect("one for each");
        Ok(published?)
    }

    /// Describes a stream.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn look(&self, name: &Name, now: SystemTime) -> Result<Info, StreamError> {
        Ok(self.parts(name, now).await?[0].info())
    }

    /// Makes a stream, unless one like it is there.
    ///
    /// # Errors
    /// Why it is not made.
    pub async fn create(
        &self,
        name: &Name,
        mut create: Create,
        now: SystemTime,
    ) -> Result<Created, StreamError> {
        match self.existing(name, &create, now).await {
            Err(StreamError::Refused(Refused::Unknown)) => {}
            existing => return existing,
        }
        let (state, mut content, life) = self.planned(&create, now).await?;
        let body = std::mem::replace(&mut create.body, Ok(Vec::new()));
        content.extend(body.map_err(StreamError::NotJson)?);
        let update = Update::Make(Box::new(state.clone()));
        match self.publish(name, content, create.closes, update).await {
            Ok(published) => Ok(Created {
                is_new: true,
                info: state.info(Offset {
                    life: published.id.epoch.max(life),
                    position: published.id.sequence,
                }),
            }),
            // Somebody else was faster.
            Err(StreamError::Refused(Refused::Exists)) => self.existing(name, &create, now).await,
            Err(error) => Err(error),
        }
    }

    /// The answer to a request to make a stream that is there.
    async fn existing(
        &self,
        name: &Name,
        create: &Create,
        now: SystemTime,
    ) -> Result<Created, StreamError> {
        let parts = match self.parts(name, now).await {
            Err(StreamError::Refused(Refused::Removed)) => {
                let reason = "the stream was removed, but has forks";
                return Err(StreamError::Conflict(reason));
            }
            parts => parts?,
        };
        match conflict(&parts[0].state, create) {
            Some(reason) => Err(StreamError::Conflict(reason)),
            None => Ok(Created {
                is_new: false,
                info: parts[0].info(),
            }),
        }
    }

    /// The state of a stream to be made, what it inherits as content of its own, which is a part of an append, and the life of its
    /// source.
    async fn planned(
        &self,
        create: &Create,
        now: SystemTime,
    ) -> Result<(StreamState, Vec<u8>, u64), StreamError> {
        let made_with = MadeWith {
            lifetime: create.lifetime,
            fork: create.fork.clone(),
        };
        let (asked, closes) = (create.content_type.clone(), create.closes);
        let Some(fork) = &create.fork else {
            let lifetime = self.settings.lifetime.map(Lifetime::Idle);
            let lifetime = create.lifetime.or(lifetime);
            let content_type = asked.unwrap_or_default();
            let state = StreamState::new(content_type, lifetime, made_with, closes);
            return Ok((state, Vec::new(), 0));
        };
        let parts = self.parts(&fork.source, now).await;
        let parts = parts.map_err(|error| match error {
            StreamError::Refused(Refused::Unknown) => Refused::NoSource.into(),
            StreamError::Refused(Refused::Removed) => {
                StreamError::Conflict("the source was removed")
            }
            error => error,
        })?;
        if parts.len() > SOURCES_MAX {
            return Err(StreamError::BadFork(
                "the source is a fork of too many others",
            ));
        }
        let source = &parts[0].state;
        let is_of_type = |asked: &ContentType| asked.essence == source.content_type.essence;
        if !asked.as_ref().is_none_or(is_of_type) {
            return Err(StreamError::Conflict("the source is of another type"));
        }
        let (last, content) = self.inherited(fork, &parts, now).await?;
        let content_type = asked.unwrap_or_else(|| source.content_type.clone());
        let lifetime = create.lifetime.or(source.lifetime);
        let mut state = StreamState::new(content_type, lifetime, made_with, closes);
        let (name, id) = (fork.source.clone(), source.id);
        state.source = Some(Source { name, id, last });
        Ok((state, content, parts[0].life))
    }

    /// The last append that a fork inherits as a whole, and what it does of the next one.
    async fn inherited(
        &self,
        fork: &ForkOf,
        parts: &[Part],
        now: SystemTime,
    ) -> Result<(u64, Vec<u8>), StreamError> {
        let last = match fork.offset {
            None => parts[0].state.end,
            Some(offset) => position(parts, offset).map_err(|_| {
                StreamError::BadFork("no append of the source ends at Stream-Fork-Offset")
            })?,
        };
        if fork.sub_offset == 0 {
            return Ok((last, Vec::new()));
        }
        let start = Start::At(parts[0].offset(last));
        let next = self.read(&fork.source, start, 1, now).await?.pieces;
        let next = next.first().map(|message| &*message.draft.content);
        let within = next.and_then(|append| {
            let count = fork.sub_offset;
            let end = match Form::of(&parts[0].state.content_type.essence) {
                Form::Json => end_of_message(append, count),
                Form::Text | Form::Bytes => usize::try_from(count).ok(),
            };
            append.get(..end?)
        });
        let beyond = StreamError::BadFork("Stream-Fork-Sub-Offset is beyond the next append");
        Ok((last, within.ok_or(beyond)?.to_vec()))
    }

    /// Appends to a stream, or closes it, or both.
    ///
    /// # Errors
    /// Why nothing is appended.
    pub async fn append(
        &self,
        name: &Name,
        append: Append,
        now: SystemTime,
    ) -> Result<Appended, StreamError> {
        let (essence, content) = append.content.unzip();
        let has_content = essence.is_some();
        let sequence = append.producer.as_ref().map(|producer| producer.sequence);
        let update = Update::Append {
            essence,
            closes: append.closes,
            sequence: append.sequence,
            producer: append.producer,
        };
        let parts = self.parts(name, now).await?;
        let part = &parts[0];
        let content = match content.transpose().map_err(StreamError::NotJson) {
            Ok(Some(content)) if content.is_empty() => Err(StreamError::NoMessages),
            content => content.map(Option::unwrap_or_default),
        };
        let published = match content {
            Ok(content) => self.publish(name, content, append.closes, update).await,
            // What else is wrong is reported before.
            Err(error) => Err(part.refusal(&update).map_or(error, StreamError::Refused)),
        };
        match published {
            Ok(published) => Ok(Appended {
                end: part.offset(match has_content {
                    true => published.id.sequence,
                    false => self.found(name, now).await?.1.end,
                }),
                is_closed: append.closes,
                is_duplicate: false,
                producer_sequence: sequence,
            }),
            Err(StreamError::Refused(refused @ (Refused::Duplicate(_) | Refused::Closed))) => {
                let (_, state) = self.found(name, now).await?;
                let Refused::Duplicate(producer_sequence) = refused else {
                    return Err(StreamError::Closed(part.offset(state.end)));
                };
                Ok(Appended {
                    end: part.offset(state.end),
                    is_closed: state.is_closed,
                    is_duplicate: true,
                    producer_sequence,
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Removes a stream.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn remove(&self, name: &Name, now: SystemTime) -> Result<(), StreamError> {
        let (epoch, _) = self.found(name, now).await?;
        self.remove_life(name, epoch).await
    }
}

/// The memory that an update takes for the state of a stream, or for a producer that may be new.
fn memory_of_state(update: &Update) -> usize {
    match update {
        Update::Make(state) => state.to_json().len(),
        Update::Append {
            producer: Some(producer),
            ..
        } if producer.sequence == 0 => PRODUCER_BYTES + producer.id.len(),
        _ => 0,
    }
}

impl Part {
    fn info(&self) -> Info {
        self.state.info(self.offset(self.state.end))
    }
}

impl StreamState {
    fn info(&self, end: Offset) -> Info {
        Info {
            content_type: self.content_type.clone(),
            lifetime: self.lifetime,
            end,
            is_closed: self.is_closed,
        }
    }
}

/// Why a stream is not the one that is to be made.
fn conflict(state: &StreamState, create: &Create) -> Option<&'static str> {
    let asked = create.content_type.as_ref();
    let is_of_type = match asked {
        Some(asked) => asked.essence == state.content_type.essence,
        None => create.fork.is_some() || &*state.content_type.essence == levity_wire::mime::DEFAULT,
    };
    let made_with = &state.made_with;
    match state {
        _ if !is_of_type => Some("the stream is of another type"),
        _ if made_with.lifetime != create.lifetime => Some("the stream is kept for another time"),
        _ if made_with.fork != create.fork => Some("the stream has another source"),
        _ if state.is_closed != create.closes => Some("one of both streams is closed"),
        _ => None,
    }
}
