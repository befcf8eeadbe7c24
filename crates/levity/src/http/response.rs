//! A response, before it is sent.

use std::fmt;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use levity_disk::{OpenFile, Ready};
use levity_telemetry::access_log::End;
use levity_telemetry::trace::Trace;
use levity_wire::http1::Trailers;

use super::completion::CompletionHook;
use super::fields::Fields;
use super::file_version::Version;
use super::filter::BodyFilter;
use crate::cache::EntryRef;
use crate::disk_client::DiskClient;

/// The content of a response.
#[derive(Debug)]
pub enum Body {
    /// Nothing, and no `Content-Length` either: the status forbids both.
    None,
    /// Made for this response.
    Text(Vec<u8>),
    /// The same, with memory that is accounted for elsewhere.
    Page(Box<dyn OwnedBytes>),
    /// A part of a file that the cache holds.
    Memory(Rc<EntryRef>, Range<usize>),
    /// A part of a file that is read while it is sent.
    File(Box<FileBody>),
    /// Parts of files, one behind the other.
    Parts(Box<dyn FileParts>),
    /// Content that arrives while it is sent.
    Stream {
        /// Where it comes from.
        stream: Box<dyn BodyStream>,
        /// In bytes; `None` when only its end tells.
        length: Option<u64>,
    },
    /// After this response the connection, or stream, speaks another protocol.
    Upgrade {
        /// As the client offered it.
        protocol: Vec<u8>,
        /// Carries the bytes of both sides.
        tunnel: Box<dyn Upgrade>,
    },
}

/// Bytes that do something when they are dropped.
pub trait OwnedBytes: AsRef<[u8]> + fmt::Debug {}

/// A body that arrives while it is sent.
pub trait BodyStream: fmt::Debug {
    /// The next piece, once it is here.
    ///
    /// # Errors
    /// Why no more comes.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Piece, StreamError>>;

    /// Goes on with what does not wait for the client to take the last piece: a client may read nothing before it has
    /// sent all of its request.
    ///
    /// # Errors
    /// Why no more comes.
    fn poll_upload(&mut self, context: &mut Context<'_>) -> Result<(), StreamError>;

    /// Nobody wants the rest.
    fn discard(self: Box<Self>);
}

/// A part of a [`BodyStream`].
#[derive(Debug)]
pub enum Piece {
    /// At least one byte. The memory goes back to the worker.
    Data {
        /// The bytes.
        bytes: Vec<u8>,
        /// The body ends with them, without trailers.
        is_last: bool,
    },
    /// No more follows but these fields.
    End(Trailers),
}

/// Two connections that have become one.
pub trait Upgrade: fmt::Debug {
    /// Carries bytes until both sides have ended; adds those that the client got to `sent`.
    ///
    /// # Errors
    /// Why it ends before both sides have ended.
    fn poll(&mut self, context: &mut Context<'_>, sent: &mut u64)
    -> Poll<Result<(), UpgradeError>>;
}

/// Why an upgraded connection ended before both sides had.
#[derive(Debug)]
pub enum UpgradeError {
    /// Nothing came for too long.
    Timeout,
    /// The client's connection broke.
    Gone,
    /// The other side did.
    Source(StreamError),
}

/// Why a body ends early.
pub type StreamError = Box<dyn SourceFailure>;

/// A failure of whatever a body comes from.
pub trait SourceFailure: fmt::Debug {
    /// How the response ends, if its beginning has been sent.
    fn end(&self) -> End;

    /// What to send if nothing has been sent.
    fn response(&self) -> Response;

    /// Notes and reports the failure of a response of which nothing has been sent, or a part.
    fn report(&self, is_untouched: bool, trace: &mut Trace);
}

/// The next part, once it is open; `None` behind the last.
pub type NextPart<'a> = Pin<Box<dyn Future<Output = io::Result<Option<Box<FileBody>>>> + 'a>>;

/// Parts of files, of which one is open at a time.
pub trait FileParts: fmt::Debug {
    /// In bytes, of what is left.
    fn length(&self) -> u64;

    /// The next part, open; `None` behind the last. Drop the one before first.
    ///
    /// # Errors
    /// Those of open, and one for a file that is not the same any more.
    fn next<'a>(&'a mut self, disk: &'a mut DiskClient<'_>) -> NextPart<'a>;
}

/// A part of a file on its way.
#[derive(Debug)]
pub struct FileBody {
    /// Whose content it is.
    pub cached: Rc<EntryRef>,
    /// The same file, open.
    pub file: Arc<OpenFile>,
    /// Where the next byte comes from.
    pub offset: u64,
    /// Bytes to go.
    pub remaining: u64,
    /// What an engine has handed over already; starts at `offset`.
    pub ready: Option<Ready>,
    /// What tells whether the file is still the one that was announced.
    pub version: Version,
}

impl Body {
    /// In bytes; `None` when that is not known, or when there is none to speak of.
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::None | Self::Upgrade { .. } => None,
            Self::Text(text) => Some(text.len() as u64),
            Self::Page(page) => Some((**page).as_ref().len() as u64),
            Self::Memory(_, range) => Some(range.len() as u64),
            Self::File(file) => Some(file.remaining),
            Self::Parts(parts) => Some(parts.length()),
            Self::Stream { length, .. } => *length,
        }
    }

    /// Whether it arrives while it is sent, or is what follows a change of protocol.
    pub fn is_stream(&self) -> bool {
        matches!(self, Self::Stream { .. } | Self::Upgrade { .. })
    }
}

/// A response, before it is filtered and sent.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// What goes with it; empty for the standard name.
    pub reason: Vec<u8>,
    /// `fields` have a Date: that of a backend.
    pub has_date: bool,
    /// `fields` have a Server, or are to have none: that is the backend's or the route's to say.
    pub has_server: bool,
    /// A file whose header lines go before `fields`: they are not copied, since most responses are sent as they are.
    pub base: Option<Rc<EntryRef>>,
    /// All headers but those of `base` and those that sending decides: length, date, connection.
    pub fields: Fields,
    /// The content.
    pub body: Body,
    /// What changes the content on its way, in order. Its length is not known then.
    pub filters: Vec<Box<dyn BodyFilter>>,
    /// The connection cannot go on after this.
    pub close: bool,
    /// Are told when it has been sent.
    pub hooks: Vec<Box<dyn CompletionHook>>,
}

impl Response {
    /// A response without content or headers yet.
    pub fn new(status: u16) -> Self {
        Self {
            status,
            reason: Vec::new(),
            has_date: false,
            has_server: false,
            base: None,
            fields: Fields::default(),
            body: Body::None,
            filters: Vec::new(),
            close: false,
            hooks: Vec::new(),
        }
    }

    /// Makes `fields` hold all headers, so that they can be changed.
    pub fn merge_base(&mut self) {
        if let Some(base) = self.base.take() {
            let mut merged = base.entry.fields.clone();
            merged.extend(&self.fields);
            self.fields = merged;
        }
    }

    /// Whether only the end of the content tells how long it is.
    pub fn is_open_ended(&self) -> bool {
        match &self.body {
            Body::None | Body::Upgrade { .. } => false,
            body => body.length().is_none() || !self.filters.is_empty(),
        }
    }
}
