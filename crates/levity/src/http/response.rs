//! A response before it is sent, and the kinds of its body.

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use levity_disk::{OpenFile, Ready};
use levity_telemetry::access_log::{End, Source};
use levity_telemetry::trace::Trace;
use levity_wire::byteranges::Byteranges;
use levity_wire::http1::Trailers;
use levity_wire::range::Part;

use super::file_version::Version;
use super::filter::BodyFilter;
use super::held::Held;
use crate::files::cache::EntryRef;
use crate::files::disk_client::DiskClient;
use crate::files::entry::Entry;
use crate::loop_core::pipes::PipeLease;
use crate::message::fields::Fields;

/// The content of a response.
#[derive(Debug)]
pub enum Body {
    /// No content and no `Content-Length`, as for 204 and 304.
    None,
    /// Content made for this response.
    Text(Vec<u8>),
    /// Content made for this response, in memory that counts towards a limit until it is dropped.
    Page(Box<dyn OwnedBytes>),
    /// A range of a file whose content is in the cache.
    Memory(Rc<EntryRef>, Range<usize>),
    /// A range of a file, which is read while it is sent.
    File(Box<FileBody>),
    /// Ranges of several files, concatenated.
    Parts(Box<dyn FileParts>),
    /// Parts of one file, each with a header.
    Multipart(Box<Multipart>),
    /// Content that is received while it is sent.
    Stream {
        /// The source of the content.
        stream: Box<dyn BodyStream>,
        /// The length in bytes; `None` when unknown.
        length: Option<u64>,
    },
    /// Content that arrives after the exchange has ended.
    Held {
        /// The protocol to which the connection or stream changes, if any, as the client offered it.
        protocol: Option<Vec<u8>>,
        /// The content.
        held: Box<dyn Held>,
    },
    /// The connection, or stream, changes to another protocol after the header.
    Upgrade {
        /// The protocol's name, as the client offered it.
        protocol: Vec<u8>,
        /// Forwards bytes in both directions.
        tunnel: Box<dyn Upgrade>,
    },
}

/// Bytes whose drop has an effect, such as a release of reserved memory.
pub trait OwnedBytes: AsRef<[u8]> + fmt::Debug {}

/// A body that is received while it is sent.
pub trait BodyStream: fmt::Debug {
    /// Returns the next piece once it has been received.
    ///
    /// # Errors
    /// The failure of the source.
    fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
        limits: PieceLimits,
    ) -> Poll<Result<Piece, StreamError>>;

    /// Continues to forward the request body while the client does not take the last piece: a client may read nothing
    /// before it has sent its whole request.
    ///
    /// # Errors
    /// The failure of the source.
    fn poll_upload(&mut self, context: &mut Context<'_>) -> Result<(), StreamError>;

    /// Lets go of the client, so that the rest can be read without one; whether it is possible: the whole request has been sent.
    /// A time-out is noticed only by a poll from then on: the caller polls at least once a second.
    fn detach(&mut self) -> bool {
        false
    }

    /// Drops the rest of the body, which will not be sent.
    fn discard(self: Box<Self>);

    /// Where the bytes come from, for the log.
    fn source(&self) -> Source {
        Source::Upstream
    }
}

/// The limits of the next piece of a [`BodyStream`].
#[derive(Debug, Clone, Copy)]
pub struct PieceLimits {
    /// The maximum number of bytes in memory, at most [`TURN_BYTES_MAX`](levity_net::TURN_BYTES_MAX): they take it
    /// until the client has received them.
    pub bytes_max: usize,
    /// It may be [`Piece::Spliced`].
    pub may_splice: bool,
}

/// A piece of a [`BodyStream`].
#[derive(Debug)]
pub enum Piece {
    /// At least one byte of content.
    Data {
        /// The bytes. The buffer is returned to the worker for reuse.
        bytes: Vec<u8>,
        /// The body ends with these bytes, without trailers.
        is_last: bool,
    },
    /// At least one byte of content that nobody has read.
    Spliced(PipeLease),
    /// The end of the body, with its trailers.
    End(Trailers),
}

/// A tunnel between the client and another connection.
pub trait Upgrade: fmt::Debug {
    /// Forwards bytes until both sides have ended. Adds the number of bytes sent to the client to `sent`.
    ///
    /// # Errors
    /// When the tunnel breaks or is idle for too long.
    fn poll(&mut self, context: &mut Context<'_>, sent: &mut u64)
    -> Poll<Result<(), UpgradeError>>;
}

/// Why a tunnel ended before both sides had.
#[derive(Debug)]
pub enum UpgradeError {
    /// No bytes were forwarded for too long.
    Timeout,
    /// The client disconnected.
    Gone,
    /// The other connection failed.
    Source(StreamError),
}

/// The failure of the source of a body.
pub type StreamError = Box<dyn SourceFailure>;

/// A failure of the source of a body.
pub trait SourceFailure: fmt::Debug {
    /// How a partly sent response ended, for the log.
    fn end(&self) -> End;

    /// The response to send instead, if no byte has been sent.
    fn response(&self) -> Response;

    /// Logs the failure and adds it to `trace`. `is_uncommitted` is whether no byte of the response has been sent.
    fn report(&self, is_uncommitted: bool, trace: &mut Trace);
}

/// A future for the next part of [`FileParts`]; `None` after the last.
pub type NextPart<'a> =
    Pin<Box<dyn Future<Output = Result<Option<Box<FileBody>>, PartError>> + 'a>>;

/// Why the next part of [`FileParts`] is not available.
#[derive(Debug)]
pub enum PartError {
    /// The file cannot be opened.
    Unreadable(io::Error),
    /// Another file has its name by now.
    Replaced,
}

/// Ranges of several files. One file is open at a time.
pub trait FileParts: fmt::Debug {
    /// The total length of the remaining parts, in bytes.
    fn length(&self) -> u64;

    /// Opens the next part; `None` after the last. The caller drops the previous part first.
    ///
    /// # Errors
    /// When the file cannot be opened, or is another one by now.
    fn next<'a>(&'a mut self, disk: &'a mut DiskClient<'_>) -> NextPart<'a>;
}

/// A range of a file that is being sent.
#[derive(Debug)]
pub struct FileBody {
    /// The entry of the file.
    pub cached: Rc<EntryRef>,
    /// The open file.
    pub file: Arc<OpenFile>,
    /// The offset of the next byte in the file.
    pub offset: u64,
    /// Bytes still to be sent.
    pub remaining: u64,
    /// Bytes that an engine has read already, from `offset` on.
    pub ready: Option<Ready>,
    /// The version that the header announces; later reads are compared with it.
    pub version: Version,
}

/// Parts of one file, as multipart/byteranges (RFC 9110, 14.6).
#[derive(Debug)]
pub struct Multipart {
    /// The file.
    pub source: PartSource,
    /// Its parts, in the order in which they are sent. None is empty or overlaps another.
    pub parts: Vec<Part>,
    /// What is between them, and the length of all in bytes. `None` until [`Response::frame_parts`].
    pub framing: Option<(Byteranges, u64)>,
}

/// Where the parts of a [`Multipart`] are.
#[derive(Debug)]
pub enum PartSource {
    /// In the content of a file in the cache.
    Memory(Rc<EntryRef>),
    /// In a file. Its range is that of the current part.
    File(Box<FileBody>),
}

impl Body {
    /// The length in bytes; `None` when unknown, and for bodies without a length.
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::None | Self::Held { .. } | Self::Upgrade { .. } => None,
            Self::Text(text) => Some(text.len() as u64),
            Self::Page(page) => Some((**page).as_ref().len() as u64),
            Self::Memory(_, range) => Some(range.len() as u64),
            Self::File(file) => Some(file.remaining),
            Self::Parts(parts) => Some(parts.length()),
            Self::Multipart(body) => body.framing.as_ref().map(|(_, length)| *length),
            Self::Stream { length, .. } => *length,
        }
    }

    /// Whether the content is received while it is sent: a stream or a tunnel.
    pub fn is_stream(&self) -> bool {
        matches!(self, Self::Stream { .. } | Self::Upgrade { .. })
    }

    /// The protocol that the connection, or stream, changes to.
    pub fn protocol(&self) -> Option<&[u8]> {
        match self {
            Self::Upgrade { protocol, .. } => Some(protocol),
            Self::Held { protocol, .. } => protocol.as_deref(),
            _ => None,
        }
    }
}

impl PartSource {
    /// The entry of the file.
    pub fn entry(&self) -> &Entry {
        match self {
            Self::Memory(cached) => &cached.entry,
            Self::File(file) => &file.cached.entry,
        }
    }
}

/// Headers that describe the bytes of a part, and not those of the multipart content around it. A response with the
/// coding of a file would say that the multipart content has that coding.
const PART_HEADERS: &[&str] = &["content-type", "content-encoding"];

/// A response before it is sent.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The reason phrase; empty for the standard one.
    pub reason: Box<[u8]>,
    /// `fields` contain the Date of a backend.
    pub has_date: bool,
    /// No Server is to be added: `fields` contain that of a backend or location, or a location removed it.
    pub has_server: bool,
    /// A file whose header lines are sent before `fields`. They are not copied, because most responses are sent
    /// unchanged.
    pub base: Option<Rc<EntryRef>>,
    /// The headers except those of `base` and those that the writer adds: length, date, connection.
    pub fields: Fields,
    /// The content.
    pub body: Body,
    /// Filters that transform the body as it is sent, in order. With a filter, the length is unknown.
    pub filters: Vec<Box<dyn BodyFilter>>,
    /// The connection closes after this response.
    pub close: bool,
    /// The body is the text of an error of this server, for which a page may be sent.
    pub is_error_text: bool,
    /// An application has made it, or has handed over what is sent.
    pub is_of_application: bool,
}

// A response passes through a dozen functions by value. Beyond this size each of them calls `memmove`.
const _: () = assert!(size_of::<Response>() <= 128);

impl Response {
    /// A response without content and headers.
    pub fn new(status: u16) -> Self {
        Self {
            status,
            reason: Box::default(),
            has_date: false,
            has_server: false,
            base: None,
            fields: Fields::default(),
            body: Body::None,
            filters: Vec::new(),
            close: false,
            is_error_text: false,
            is_of_application: false,
        }
    }

    /// The value of the first header called `name`, except those that the writer adds. Case is ignored.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let base = self.base.as_ref();
        let of_base = base.and_then(|base| base.fields().value(name));
        of_base.or_else(|| self.fields.value(name))
    }

    /// Moves the headers of `base` to `fields`, so that they can be changed.
    pub fn merge_base(&mut self) {
        merge_base(&mut self.base, &mut self.fields);
    }

    /// Gives each part of a [`Body::Multipart`] the headers of the response that describe the file. Called after the
    /// filters, for which the response has the type of the file.
    pub fn frame_parts(&mut self) {
        let Body::Multipart(body) = &mut self.body else {
            return;
        };
        merge_base(&mut self.base, &mut self.fields);
        let of_parts = self.fields.take(PART_HEADERS);
        let size = body.source.entry().meta.size;
        let boundary = RandomState::new().hash_one(size);
        let framing = Byteranges::new(boundary, of_parts.as_bytes(), size);
        self.fields
            .add("Content-Type", framing.content_type().as_bytes());
        let length = framing.length(&body.parts);
        body.framing = Some((framing, length));
    }

    /// The length of the content in bytes, also for the response to a HEAD request; `None` if it is unknown, as behind a
    /// filter.
    pub fn content_length(&self) -> Option<u64> {
        let announced = || {
            let value = self.fields.value("content-length")?;
            std::str::from_utf8(value).ok()?.parse().ok()
        };
        let length = self.body.length().or_else(announced);
        length.filter(|_| self.filters.is_empty())
    }

    /// Whether the length of the content is unknown.
    pub fn is_open_ended(&self) -> bool {
        match &self.body {
            Body::None | Body::Upgrade { .. } => false,
            Body::Held { protocol, .. } => protocol.is_none(),
            body => body.length().is_none() || !self.filters.is_empty(),
        }
    }
}

fn merge_base(base: &mut Option<Rc<EntryRef>>, fields: &mut Fields) {
    if let Some(base) = base.take() {
        let mut merged = base.fields().clone();
        merged.extend(fields);
        *fields = merged;
    }
}
