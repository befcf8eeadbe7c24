//! The server's end of a connection: what the frames of a client mean, and frames for the client.

mod control;
mod data;
mod header_section;
mod input;
mod priorities;
mod response;
mod shutdown;
mod stream_states;
mod windows;

use self::data::DataFrame;
use self::header_section::Block;
use self::input::Expects;
use self::shutdown::Shutdown;
use super::Failure;
use super::budget::{self, Budget};
use super::head::HeadText;
use super::hpack::Decoder;
use super::priority::Priority;
use super::receive_window::ReceiveWindow;
use super::settings::{self, Settings, USUAL_WINDOW_BYTES};
use super::streams::{StreamId, Streams};
use crate::http1::Trailers;

/// What a client has sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'i> {
    /// A request. Its header section is [`Connection::head`].
    Request {
        /// Its stream.
        stream: StreamId,
        /// It has no body.
        ends: bool,
        /// It is an extended CONNECT (RFC 8441), with the header section of an upgrade.
        is_tunnel: bool,
    },
    /// A malformed request (RFC 9113, 8.1.1). Its stream was reset.
    Malformed {
        /// Its stream.
        stream: StreamId,
    },
    /// A part of the body.
    Data {
        /// Its stream.
        stream: StreamId,
        /// [`Connection::consumed`] makes room for as many bytes.
        bytes: &'i [u8],
        /// It is the last part.
        ends: bool,
    },
    /// The body ends with trailers, which [`Connection::take_trailers`] returns.
    Trailers {
        /// Its stream.
        stream: StreamId,
    },
    /// The stream was reset: by the client, or here because of an error. It may have had no request.
    Reset {
        /// The stream.
        stream: StreamId,
    },
    /// More bytes may be sent.
    Window {
        /// On this stream; `None` for all.
        stream: Option<StreamId>,
    },
    /// The [`priority`](Connection::priority) of a stream has changed.
    Priority {
        /// The stream.
        stream: StreamId,
    },
}

/// The event of a frame, if it has one, or why the connection ends.
type Outcome<'i> = Result<Option<Event<'i>>, Failure>;

/// The server's end of a connection.
#[derive(Debug)]
pub struct Connection {
    head_bytes_max: usize,
    expects: Expects,
    /// The start of a frame whose rest has not arrived.
    partial: Vec<u8>,
    data: Option<DataFrame>,
    block: Option<Box<Block>>,
    decoder: Decoder,
    text: HeadText,
    trailers: Trailers,
    streams: Streams,
    settings: Settings,
    send_window: i64,
    /// Of all request bodies.
    receive_window: ReceiveWindow,
    budget: Budget,
    out: Vec<u8>,
    /// The last stream whose request was processed.
    last_stream: StreamId,
    /// The last stream that the client has begun. During a shutdown it may be later than `last_stream`.
    highest_stream: StreamId,
    has_sent_fields: bool,
    shutdown: Shutdown,
    nonce: u128,
}

impl Connection {
    /// A connection whose client has to send the [preface](crate::http2::PREFACE). A request may have a header section of
    /// `head_bytes_max`. `nonce` should be random.
    #[must_use]
    pub fn new(head_bytes_max: usize, nonce: u128) -> Self {
        let mut out = Vec::new();
        settings::write(&mut out, head_bytes_max);
        Self {
            head_bytes_max,
            expects: Expects::Preface,
            partial: Vec::new(),
            data: None,
            block: None,
            decoder: Decoder::default(),
            text: HeadText::default(),
            trailers: Trailers::default(),
            streams: Streams::default(),
            settings: Settings::default(),
            send_window: USUAL_WINDOW_BYTES.into(),
            receive_window: ReceiveWindow::new(USUAL_WINDOW_BYTES),
            budget: Budget::default(),
            out,
            last_stream: 0,
            highest_stream: 0,
            has_sent_fields: false,
            shutdown: Shutdown::No,
            nonce,
        }
    }

    /// The header section of the request that has just arrived, as one of HTTP/1.1. It is cut off if it is too long.
    pub fn head(&self) -> &[u8] {
        &self.text.head
    }

    /// Releases memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        self.text = HeadText::default();
        self.decoder.shrink();
        self.streams.shrink();
    }

    /// The trailers that have just arrived.
    pub fn take_trailers(&mut self) -> Trailers {
        std::mem::take(&mut self.trailers)
    }

    /// The priority of an open stream.
    pub fn priority(&self, stream: StreamId) -> Priority {
        let open = self.streams.get(stream);
        open.map_or_else(Priority::default, |open| open.priority)
    }

    /// The number of open streams.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Takes bytes from the front of `input` up to the next event; `None` when all were taken. Replies to frames are appended to the
    /// output.
    ///
    /// # Errors
    /// When the connection has to end. The output has the GOAWAY for the client.
    pub fn next<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Event<'i>>, Failure> {
        let next = self.next_event(input);
        if let Err(failure) = &next {
            self.fail(failure);
        }
        next
    }

    /// Tells that `milliseconds` have passed: the client may have sent some frames of no use in that time.
    pub fn time_passed(&mut self, milliseconds: u64) {
        let milliseconds = u32::try_from(milliseconds).unwrap_or(u32::MAX);
        self.budget
            .earn(milliseconds.saturating_mul(budget::MILLISECOND));
    }

    /// Frames to send. The owner removes what was written.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }
}
