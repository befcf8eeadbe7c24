//! What event loops and owners of streams say to each other.

use std::sync::Arc;

use levity_wire::durable_streams::{Lifetime, NotJson, Offset, Producer, Start};
use tokio::sync::oneshot;

use super::content::Piece;
use crate::name::Name;
use crate::settings::Settings;

/// Where an answer goes. An answer that nobody waits for any more is dropped.
pub type Reply<T, E> = oneshot::Sender<Result<T, E>>;

/// Where an answer comes from: an error means that the server ends.
pub type Answer<T, E> = oneshot::Receiver<Result<T, E>>;

/// A body as a stream keeps it: [messages](levity_wire::durable_streams::messages) of a stream of JSON, or bytes. The error
/// of a body that is not JSON is reported after others.
pub type Messages = Result<Vec<u8>, NotJson>;

/// A command of an event loop to the owner of a stream.
#[derive(Debug)]
pub enum Command {
    /// Make a stream.
    Create(Name, Create, Reply<Created, CreateError>),
    /// Append to a stream, or end it.
    Append(Name, Append, Reply<Appended, AppendError>),
    /// Read from a stream.
    Read(Name, Read, Reply<ReadResult, ReadError>),
    /// Describe a stream.
    Look(Name, Reply<Info, Missing>),
    /// Remove a stream.
    Remove(Name, Reply<(), RemoveError>),
}

/// The Content-Type of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentType {
    /// The value of the header.
    pub value: Box<str>,
    /// The media type, as [`essence`](levity_wire::durable_streams::essence) returns it.
    pub essence: Box<str>,
}

/// A stream to be made.
#[derive(Debug)]
pub struct Create {
    /// The settings of its set.
    pub settings: Arc<Settings>,
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

/// What a stream is a fork of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkOf {
    /// The source.
    pub source: Name,
    /// Where the fork begins; `None` for the end of the source.
    pub offset: Option<Offset>,
    /// What it inherits after `offset`: messages of JSON, bytes of others.
    pub sub_offset: u64,
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
    pub content_type: Arc<ContentType>,
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
    /// The settings of the set.
    pub settings: Arc<Settings>,
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

/// A read.
#[derive(Debug, Clone)]
pub struct Read {
    /// The settings of the set.
    pub settings: Arc<Settings>,
    /// Where it begins.
    pub start: Start,
    /// About the maximum of bytes of the answer. A single append may be larger.
    pub bytes_max: usize,
    /// Waits until there is something to read, or the stream is closed or removed.
    pub waits: bool,
}

/// What was read.
#[derive(Debug)]
pub struct ReadResult {
    /// The type of the stream.
    pub content_type: Arc<ContentType>,
    /// A number that no other stream has, nor this one in another life.
    pub number: u64,
    /// Where the pieces begin.
    pub start: Offset,
    /// Where the next read begins.
    pub next: Offset,
    /// There is no more at present.
    pub is_up_to_date: bool,
    /// There will never be more.
    pub is_closed: bool,
    /// The content.
    pub pieces: Vec<Piece>,
}

/// Why there is no stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// It is not known.
    Unknown,
    /// It was removed, but has forks: its name is not free.
    Removed,
}

/// Why a stream is not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateError {
    /// There is another one of this name.
    Conflict(&'static str),
    /// The source of the fork is not known.
    NoSource,
    /// The fork cannot begin there.
    BadFork(&'static str),
    /// The body is not JSON.
    NotJson(NotJson),
    /// The set has as many as it may.
    TooManyStreams,
    /// There is no room for the body.
    Full(Full),
}

/// Why there is no room in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The stream is as large as it may be.
    Stream,
    /// Mailboxes have as much memory as they may.
    Memory,
}

/// Why nothing is appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppendError {
    /// There is no stream.
    Missing(Missing),
    /// The stream is closed. This is its end.
    Closed(Offset),
    /// The stream is of another type.
    OtherType,
    /// The body is not JSON.
    NotJson(NotJson),
    /// The body is an array without elements.
    NoMessages,
    /// The producer was replaced by another with this epoch.
    StaleEpoch(u64),
    /// Appends of the producer before this one are missing.
    Gap {
        /// The number of the next one.
        expected: u64,
    },
    /// A new epoch of the producer begins with another number than 0.
    EpochWithoutStart,
    /// The sequence is not larger than the last one.
    Sequence,
    /// There is no room.
    Full(Full),
}

/// Why nothing is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadError {
    /// There is no stream.
    Missing(Missing),
    /// The offset is one of an earlier life of the stream.
    OtherLife,
    /// No append of the stream ends at the offset.
    BadOffset,
    /// Too many wait already.
    TooManyReceivers,
}

/// Why nothing is removed.
pub type RemoveError = Missing;
