//! What streams are asked, and what they answer.

use levity_wire::durable_streams::{Lifetime, NotJson, Offset, Producer};

use crate::message::Message;
use crate::store::StoreError;
use crate::stream_state::{ContentType, ForkOf, Refused};

/// A body as a stream keeps it: [messages](levity_wire::durable_streams::messages) of a stream of JSON, or bytes. The error
/// of a body that is not JSON is reported after others.
pub type Messages = Result<Vec<u8>, NotJson>;

/// A stream to be made.
#[derive(Debug)]
pub struct Create {
    /// Its type; `None` for that of its source, or bytes.
    pub content_type: Option<ContentType>,
    /// How long it is kept; `None` for that of its source, or the default of the set.
    pub lifetime: Option<Lifetime>,
    /// It is closed from the beginning.
    pub closes: bool,
    /// What it is a fork of.
    pub fork: Option<ForkOf>,
    /// The first content, which may be empty.
    pub body: Messages,
}

/// A stream is there.
#[derive(Debug)]
pub struct Created {
    /// It was not there before.
    pub is_new: bool,
    /// The stream.
    pub info: Info,
}

/// What is known of a stream.
#[derive(Debug, Clone)]
pub struct Info {
    /// Its type.
    pub content_type: ContentType,
    /// How long it is kept; `None` for ever.
    pub lifetime: Option<Lifetime>,
    /// Its end.
    pub end: Offset,
    /// Nothing can be appended any more.
    pub is_closed: bool,
}

/// An append, or the end of a stream, or both.
#[derive(Debug)]
pub struct Append {
    /// The content, and its media type as [`essence`](levity_wire::durable_streams::essence) returns it; `None` to close the
    /// stream alone.
    pub content: Option<(Box<str>, Messages)>,
    /// Nothing can be appended afterwards.
    pub closes: bool,
    /// Larger than that of the last append that had one, byte by byte. Of the stream, whoever appends.
    pub sequence: Option<Box<[u8]>>,
    /// Who appends.
    pub producer: Option<Producer>,
}

/// A stream has what was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Its end.
    pub end: Offset,
    /// Nothing can be appended any more.
    pub is_closed: bool,
    /// It had it before.
    pub is_duplicate: bool,
    /// The number of the last append of the producer.
    pub producer_sequence: Option<u64>,
}

/// What was read.
#[derive(Debug)]
pub struct ReadResult {
    /// The type of the stream.
    pub content_type: ContentType,
    /// How long it is kept; `None` for ever.
    pub lifetime: Option<Lifetime>,
    /// Where the content begins.
    pub start: Offset,
    /// Where the next read begins.
    pub next: Offset,
    /// There is no more at present.
    pub is_up_to_date: bool,
    /// There will never be more.
    pub is_closed: bool,
    /// The content.
    pub pieces: Vec<Message>,
}

impl ReadResult {
    /// The same, without content.
    #[must_use]
    pub fn without_content(&self) -> Self {
        Self {
            pieces: Vec::new(),
            content_type: self.content_type.clone(),
            ..*self
        }
    }
}

/// Why a stream does not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamError {
    /// What its state does not permit.
    Refused(Refused),
    /// The stream is closed. This is its end.
    Closed(Offset),
    /// There is another stream of this name, or another source.
    Conflict(&'static str),
    /// The fork cannot begin there.
    BadFork(&'static str),
    /// The body is not JSON.
    NotJson(NotJson),
    /// The body is an array without elements.
    NoMessages,
    /// The offset is one of an earlier life of the stream.
    OtherLife,
    /// No append of the stream ends at the offset.
    BadOffset,
    /// The store has lost content before this offset, at which a reader can go on.
    Lost(Offset),
    /// Too many wait already.
    TooManyReceivers,
    /// Mailboxes have as much memory as they may.
    Memory,
    /// The store has failed.
    Store(StoreError),
}

impl From<StoreError> for StreamError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Refused(refused) => Self::Refused(refused),
            error => Self::Store(error),
        }
    }
}

impl From<Refused> for StreamError {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}
