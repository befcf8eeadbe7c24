//! What a stream is beside its content. A store keeps it with the box, and changes it together with an append.

mod producers;

use std::time::{Duration, SystemTime};

use levity_wire::durable_streams::{Lifetime, Offset, Producer};
use serde::{Deserialize, Serialize};

use self::producers::Producers;
use crate::message::OVERHEAD_BYTES;
use crate::name::Name;

/// The idle time of a stream that does not expire: about three thousand years, with which stores can compute.
const FOREVER: Duration = Duration::from_secs(100_000_000_000);

/// The Content-Type of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentType {
    /// The value of the header.
    pub value: Box<str>,
    /// The media type, as [`essence`](levity_wire::durable_streams::essence) returns it.
    pub essence: Box<str>,
}

impl Default for ContentType {
    fn default() -> Self {
        let bytes = levity_wire::mime::DEFAULT;
        Self {
            value: bytes.into(),
            essence: bytes.into(),
        }
    }
}

/// What a stream is a fork of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkOf {
    /// The source.
    pub source: Name,
    /// Where the fork begins; `None` for the end of the source.
    pub offset: Option<Offset>,
    /// What it inherits after `offset`: messages of JSON, bytes of others.
    pub sub_offset: u64,
}

/// What a stream was made with: a request that repeats it is answered as the first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeWith {
    /// How long it is to be kept.
    pub lifetime: Option<Lifetime>,
    /// What it is a fork of.
    pub fork: Option<ForkOf>,
}

/// Where inherited content is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The stream that has it, or inherits it as well.
    pub name: Name,
    /// Distinguishes it from earlier streams of its name.
    pub id: u64,
    /// The number of the last message that is inherited. The fork has larger ones.
    pub last: u64,
}

/// The state of a stream.
///
/// All that changes it is a message of its box: one without content if nothing is appended. Only what the store does with forks
/// and their sources is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamState {
    /// Distinguishes it from earlier and later streams of its name. Random.
    pub id: u64,
    /// Its type.
    pub content_type: ContentType,
    /// How long it is kept; `None` for ever.
    pub lifetime: Option<Lifetime>,
    /// What it was made with.
    pub made_with: MadeWith,
    /// What it inherits.
    pub source: Option<Source>,
    /// The number of the message that made it. Its own content begins there.
    pub first: u64,
    /// The number of the last message with content, or that of the first one.
    pub end: u64,
    /// The size of what was appended to it in bytes, with what the store needs for each append.
    pub bytes: u64,
    /// Nothing can be appended any more.
    pub is_closed: bool,
    /// The Stream-Seq of the last append which had one.
    sequence: Option<Box<[u8]>>,
    producers: Producers,
    /// How many streams inherit from it. Only the store changes it.
    pub(crate) forks: u64,
    /// It was removed, but has forks: its name is not free. Only the store changes it.
    pub is_removed: bool,
}

/// What an append makes of the state of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// Make the stream, whose numbers are not known yet.
    Make(Box<StreamState>),
    /// Append to it, or end it.
    Append {
        /// The media type of the content; `None` to close the stream alone.
        essence: Option<Box<str>>,
        /// Nothing can be appended afterwards.
        closes: bool,
        /// The Stream-Seq: larger than that of the last append that had one, byte by byte.
        sequence: Option<Box<[u8]>>,
        /// Who appends.
        producer: Option<Producer>,
    },
}

/// Why a stream does not take an append. It is as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// There is no such stream.
    Unknown,
    /// It was removed, but has forks.
    Removed,
    /// It is there already.
    Exists,
    /// There is no such source.
    NoSource,
    /// It has the append. The number is that of the last one of the producer.
    Duplicate(Option<u64>),
    /// It is closed.
    Closed,
    /// It is of another type.
    OtherType,
    /// The producer was replaced by another with this epoch.
    StaleEpoch(u64),
    /// Appends of the producer before this one are missing.
    Gap {
        /// The number of the next one.
        expected: u64,
        /// That of this one.
        received: u64,
    },
    /// A new epoch of the producer begins with another number than 0.
    EpochWithoutStart,
    /// The Stream-Seq is not larger than the last one.
    Sequence,
    /// The stream is as large as it may be.
    Full,
}

impl Source {
    /// Whether a stream is this one, and can still be inherited from.
    pub(crate) fn is_there(&self, found: Option<&StreamState>) -> bool {
        found.is_some_and(|found| found.id == self.id && !found.is_removed)
    }
}

impl Update {
    /// The stream that has to be there as well, which the new one inherits from.
    pub(crate) fn source(&self) -> Option<&Source> {
        match self {
            Self::Make(made) => made.source.as_ref(),
            Self::Append { .. } => None,
        }
    }

    /// What becomes of a stream in the state `known` by an append of `bytes` of content, when the next message of its box has
    /// the number `next` at least. The number of the message is the second result.
    ///
    /// # Errors
    /// Why nothing is appended.
    pub(crate) fn apply(
        &self,
        known: Option<&StreamState>,
        next: u64,
        bytes: usize,
        bytes_max: usize,
    ) -> Result<(StreamState, u64), Refused> {
        let (mut state, number) = match (self, known) {
            (Self::Make(made), None) => {
                let state = StreamState::clone(made);
                let inherited = state.source.as_ref().map_or(0, |source| source.last);
                (state, next.max(inherited + 1))
            }
            (Self::Make(_), Some(known)) if known.is_removed => return Err(Refused::Removed),
            (Self::Make(_), Some(_)) => return Err(Refused::Exists),
            (Self::Append { .. }, None) => return Err(Refused::Unknown),
            (Self::Append { .. }, Some(known)) if known.is_removed => return Err(Refused::Removed),
            (Self::Append { .. }, Some(known)) => (known.clone(), next),
        };
        self.note_append(&mut state, number)?;
        if bytes > 0 {
            state.bytes = state.bytes.saturating_add((OVERHEAD_BYTES + bytes) as u64);
            if state.bytes > bytes_max as u64 {
                return Err(Refused::Full);
            }
        }
        if state.first == 0 {
            (state.first, state.end) = (number, number);
        }
        if bytes > 0 {
            state.end = number;
        }
        Ok((state, number))
    }

    fn note_append(&self, state: &mut StreamState, number: u64) -> Result<(), Refused> {
        let Self::Append {
            essence,
            closes,
            sequence,
            producer,
        } = self
        else {
            return Ok(());
        };
        if state.is_closed {
            return Err(state.refusal_of_closed(essence.is_none() && *closes, producer.as_ref()));
        }
        if essence
            .as_ref()
            .is_some_and(|essence| *essence != state.content_type.essence)
        {
            return Err(Refused::OtherType);
        }
        if let Some(producer) = producer {
            state.producers.check(producer)?;
        }
        if sequence.is_some() && *sequence <= state.sequence {
            return Err(Refused::Sequence);
        }
        if let Some(producer) = producer {
            state.producers.note(producer, number);
        }
        if sequence.is_some() {
            state.sequence.clone_from(sequence);
        }
        if *closes {
            state.is_closed = true;
        }
        Ok(())
    }
}

impl StreamState {
    /// A stream that is to be made.
    ///
    /// # Panics
    /// If the kernel has no random numbers.
    #[must_use]
    pub fn new(
        content_type: ContentType,
        lifetime: Option<Lifetime>,
        made_with: MadeWith,
        is_closed: bool,
    ) -> Self {
        Self {
            id: getrandom::u64().expect("random numbers of the kernel"),
            content_type,
            lifetime,
            made_with,
            is_closed,
            ..Self::default()
        }
    }

    fn refusal_of_closed(&self, closes_only: bool, producer: Option<&Producer>) -> Refused {
        let checked = producer.map(|producer| self.producers.check(producer));
        match checked {
            Some(Err(known @ (Refused::StaleEpoch(_) | Refused::Duplicate(_)))) => known,
            // To close it again changes nothing.
            _ if closes_only => Refused::Duplicate(producer.map(|producer| producer.sequence)),
            _ => Refused::Closed,
        }
    }

    /// Notes that one stream less inherits from it, if it is that `source`; whether it goes as well.
    pub(crate) fn release(&mut self, source: &Source) -> bool {
        let is_it = self.id == source.id;
        self.forks = self.forks.saturating_sub(u64::from(is_it));
        is_it && self.is_removed && self.forks == 0
    }

    /// Whether its time is over, however it is used.
    pub(crate) fn is_over(&self, now: SystemTime) -> bool {
        matches!(self.lifetime, Some(Lifetime::Until(time)) if time <= now)
    }

    /// How long after `now` it is kept if it is not used.
    pub(crate) fn idle(&self, now: SystemTime) -> Duration {
        match self.lifetime {
            // Only its forks end it.
            _ if self.is_removed => FOREVER,
            None => FOREVER,
            Some(Lifetime::Idle(idle)) => idle,
            Some(Lifetime::Until(time)) => time.duration_since(now).unwrap_or_default(),
        }
        .min(FOREVER)
    }

    /// As a store outside of this process keeps it.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts, numbers and times")
    }

    /// What [`to_json`](Self::to_json) has written; `None` for anything else.
    pub(crate) fn from_json(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}
