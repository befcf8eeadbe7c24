//! The frames of a client: what each means for the connection and its streams.

use super::budget::{self, Budget};
use super::frame::{self, FrameHeader, HEADER_BYTES, PAYLOAD_BYTES_MAX, flag, kind};
use super::head::{self, HeadInfo, HeadText, HeadWriter, Malformed};
use super::hpack::Decoder;
use super::priority::Priority;
use super::settings::{CONNECTION_WINDOW_BYTES, STREAM_WINDOW_BYTES, STREAMS_MAX, Settings};
use super::streams::{Stream, StreamId, Streams};
use super::{ErrorCode, Failure, PREFACE, WINDOW_BYTES_MAX};
use crate::http1::Trailers;

/// The maximum of bytes of a compressed header section.
const BLOCK_BYTES_MAX: usize = 64 * 1024;

/// The maximum of frames in which a header section is continued.
const CONTINUATIONS_MAX: usize = 64;

/// The maximum of bytes of the fields of a header section, as RFC 9113, 6.5.2 counts them: four times what a request may have by
/// default. Beyond it no request is answered: a byte can stand for kilobytes.
const LIST_BYTES_MAX: usize = 64 * 1024;

/// What a field counts beside its text.
const FIELD_BYTES: usize = 32;

/// The content of the ping whose answer shows that the client knows of the end of the connection.
pub(super) const SHUTDOWN_PING: [u8; 8] = *b"shutdown";

/// The largest number of a stream.
pub(super) const STREAM_ID_MAX: StreamId = StreamId::MAX >> 1;

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
        /// [`Connection::used`] makes room for as many bytes.
        bytes: &'i [u8],
        /// It is the last part.
        ends: bool,
    },
    /// The body ends with trailers, which [`Connection::take_trailers`] returns.
    Trailers {
        /// Its stream.
        stream: StreamId,
    },
    /// The stream has ended before its time: by the client, or here, since it was in error. It may not have had a request.
    Reset {
        /// The stream.
        stream: StreamId,
    },
    /// There is room for more bytes.
    Window {
        /// On this stream; `None` for all.
        stream: Option<StreamId>,
    },
}

/// The server's end of a connection.
#[derive(Debug)]
pub struct Connection {
    head_bytes_max: usize,
    expects: Expects,
    /// The begin of a frame whose rest has not arrived.
    partial: Vec<u8>,
    data: Option<DataFrame>,
    block: Option<Box<Block>>,
    decoder: Decoder,
    text: HeadText,
    trailers: Trailers,
    pub(super) streams: Streams,
    pub(super) settings: Settings,
    pub(super) send_window: i64,
    receive_window: u32,
    /// The bytes that the client may send again, without knowing it yet.
    used: u32,
    pub(super) budget: Budget,
    pub(super) out: Vec<u8>,
    /// The last stream that has had a request.
    pub(super) last_stream: StreamId,
    /// The last one that the client has begun: later ones than the last are ignored at the end.
    highest_stream: StreamId,
    pub(super) has_sent_fields: bool,
    pub(super) shutdown: Shutdown,
    nonce: u128,
}

#[derive(Debug, PartialEq, Eq)]
enum Expects {
    Preface,
    Settings,
    Frames,
}

/// How far the end of a connection is that nobody is to blame for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shutdown {
    No,
    /// The client was told, and may have sent requests before it knows.
    Announced,
    /// Requests on streams after the last one are not looked at.
    Final,
}

/// A DATA frame of which bytes are missing.
#[derive(Debug)]
struct DataFrame {
    stream: StreamId,
    left: usize,
    /// `None` until it has arrived.
    padding: Option<usize>,
    ends: bool,
    /// Its stream has ended.
    is_ignored: bool,
}

/// A header section of which frames are missing.
#[derive(Debug)]
struct Block {
    stream: StreamId,
    ends: bool,
    /// Its stream depends on itself (RFC 7540, 5.3.1).
    is_circular: bool,
    bytes: Vec<u8>,
    continuations: usize,
}

impl Connection {
    /// A connection whose client has to send the [preface](PREFACE). A request may have a header section of `head_bytes_max`.
    /// `nonce` should be random.
    #[must_use]
    pub fn new(head_bytes_max: usize, nonce: u128) -> Self {
        let mut out = Vec::new();
        super::settings::write(&mut out, head_bytes_max);
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
            send_window: super::settings::USUAL_WINDOW_BYTES.into(),
            receive_window: CONNECTION_WINDOW_BYTES,
            used: 0,
            budget: Budget::default(),
            out,
            last_stream: 0,
            highest_stream: 0,
            has_sent_fields: false,
            shutdown: Shutdown::No,
            nonce,
        }
    }

    /// The header section of the request that has just arrived, as HTTP/1.1 writes it. One that is too long is cut off.
    pub fn head(&self) -> &[u8] {
        &self.text.head
    }

    /// Gives memory back that an idle connection does not need.
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

    /// The next event that is in `input`, which is shortened by what was taken; `None` when all was taken. Frames that are due in
    /// return are appended to the output.
    ///
    /// # Errors
    /// When the connection has to end. The output has the frame that says why.
    pub fn next<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Event<'i>>, Failure> {
        let next = self.find(input);
        if let Err(failure) = &next {
            self.fail(failure);
        }
        next
    }

    fn find<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Event<'i>>, Failure> {
        loop {
            if self.data.is_some() {
                let event = self.data_event(input)?;
                if event.is_some() || self.data.is_some() {
                    return Ok(event);
                }
            }
            if self.expects == Expects::Preface && !self.take_preface(input)? {
                return Ok(None);
            }
            let Some(header) = self.frame_header(input)? else {
                return Ok(None);
            };
            let whole = HEADER_BYTES + header.bytes;
            let event = if header.kind == kind::DATA && self.block.is_none() {
                self.take(HEADER_BYTES, input);
                self.begin_data(header)?
            } else if self.partial.is_empty() && input.len() >= whole {
                let (frame, rest) = input.split_at(whole);
                *input = rest;
                self.frame(header, &frame[HEADER_BYTES..])?
            } else if self.fill(whole, input) {
                let frame = std::mem::take(&mut self.partial);
                self.frame(header, &frame[HEADER_BYTES..])?
            } else {
                return Ok(None);
            };
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// Takes the preface; false if bytes are missing.
    fn take_preface(&mut self, input: &mut &[u8]) -> Result<bool, Failure> {
        let is_whole = self.fill(PREFACE.len(), input);
        if !PREFACE.starts_with(&self.partial) {
            return Err(Failure::protocol("no preface of HTTP/2"));
        }
        if is_whole {
            self.partial = Vec::new();
            self.expects = Expects::Settings;
        }
        Ok(is_whole)
    }

    /// Moves bytes from `input` until there are so many of a frame; false if some are missing.
    fn fill(&mut self, bytes: usize, input: &mut &[u8]) -> bool {
        let missing = bytes.saturating_sub(self.partial.len());
        let (more, rest) = input.split_at(missing.min(input.len()));
        self.partial.extend_from_slice(more);
        *input = rest;
        self.partial.len() >= bytes
    }

    /// Drops the first bytes of a frame, of which all have arrived.
    fn take(&mut self, bytes: usize, input: &mut &[u8]) {
        if self.partial.is_empty() {
            *input = &input[bytes..];
        }
        self.partial = Vec::new();
    }

    /// The header of the next frame, which stays where it is; `None` if bytes are missing.
    fn frame_header(&mut self, input: &mut &[u8]) -> Result<Option<FrameHeader>, Failure> {
        let bytes = match input.first_chunk() {
            Some(bytes) if self.partial.is_empty() => *bytes,
            _ if input.is_empty() && self.partial.is_empty() => return Ok(None),
            _ if self.fill(HEADER_BYTES, input) => {
                *self.partial.first_chunk().expect("it was filled")
            }
            _ => return Ok(None),
        };
        let header = FrameHeader::read(bytes);
        if header.bytes > PAYLOAD_BYTES_MAX {
            return Err(Failure::size("a frame that is too large"));
        }
        let is_expected = match (&self.expects, &self.block) {
            (Expects::Settings, _) => header.kind == kind::SETTINGS && !header.has(flag::ACK),
            (_, Some(block)) => header.kind == kind::CONTINUATION && header.stream == block.stream,
            _ => header.kind != kind::CONTINUATION,
        };
        match is_expected {
            true => Ok(Some(header)),
            false => Err(Failure::protocol("another frame than has to come here")),
        }
    }

    fn frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Event<'static>>, Failure> {
        match header.kind {
            kind::HEADERS => return self.headers(header, payload),
            kind::CONTINUATION => return self.continuation(header, payload),
            kind::PUSH_PROMISE => return Err(Failure::protocol("a promise of a client")),
            kind::WINDOW_UPDATE => return self.window_update(header, payload),
            _ => self.budget.spend(budget::FRAME)?,
        }
        match header.kind {
            kind::PRIORITY => self.old_priority(header, payload),
            kind::RST_STREAM => self.reset(header, payload),
            kind::SETTINGS => self.settings(header, payload),
            kind::PING => self.ping(header, payload),
            kind::GOAWAY if header.stream != 0 || payload.len() < 8 => {
                Err(Failure::protocol("a malformed end of a connection"))
            }
            kind::PRIORITY_UPDATE => self.priority_update(header, payload),
            // RFC 9113, 4.1: unknown ones are ignored. After its GOAWAY a client may still wait for responses.
            _ => Ok(None),
        }
    }

    /// RFC 9113, 6.1.
    fn begin_data(&mut self, header: FrameHeader) -> Result<Option<Event<'static>>, Failure> {
        let bytes = header.bytes as u32;
        if self.is_idle(header.stream) {
            return Err(Failure::protocol("a body without a request"));
        }
        let room = self.receive_window.checked_sub(bytes);
        self.receive_window = room.ok_or(Failure::flow("more bytes than the window"))?;
        let error = self.take_room(header.stream, bytes);
        let event = match error {
            Some(code) if !self.is_ignored(header.stream) => {
                self.stream_error(header.stream, code)?
            }
            _ => None,
        };
        match error {
            None if header.bytes >= budget::CONTENT_BYTES_MIN => self.budget.earn(budget::CONTENT),
            None if header.bytes > 0 => {}
            _ => self.budget.spend(budget::FRAME)?,
        }
        self.data = Some(DataFrame {
            stream: header.stream,
            left: header.bytes,
            padding: (!header.has(flag::PADDED)).then_some(0),
            ends: header.has(flag::END_STREAM),
            is_ignored: error.is_some(),
        });
        Ok(event)
    }

    /// Whether `stream` has not begun (RFC 9113, 5.1): the server begins none.
    fn is_idle(&self, stream: StreamId) -> bool {
        stream > self.highest_stream || stream.is_multiple_of(2)
    }

    /// Whether the client may not have known of the end of `stream`, which is not open.
    fn is_ignored(&self, stream: StreamId) -> bool {
        stream > self.last_stream || self.streams.was_ended_here(stream)
    }

    /// Takes `bytes` of the window of a stream. Returns the error of the stream, if there is one.
    fn take_room(&mut self, stream: StreamId, bytes: u32) -> Option<ErrorCode> {
        let open = self.streams.get_mut(stream);
        let Some(open) = open.filter(|open| open.is_remote_open) else {
            return Some(ErrorCode::StreamClosed);
        };
        let Some(room) = open.receive_window.checked_sub(bytes) else {
            return Some(ErrorCode::FlowControl);
        };
        open.receive_window = room;
        None
    }

    /// The next part of the DATA frame that has begun. At its end `self.data` is `None`.
    fn data_event<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Event<'i>>, Failure> {
        let Some(data) = &mut self.data else {
            return Ok(None);
        };
        let padding = match data.padding {
            Some(padding) => padding,
            None if data.left == 0 => return Err(frame::NO_PADDING_LENGTH),
            None => {
                let Some((first, rest)) = input.split_first() else {
                    return Ok(None);
                };
                *input = rest;
                data.left -= 1;
                let padding = usize::from(*first);
                if padding > data.left {
                    return Err(frame::TOO_MUCH_PADDING);
                }
                data.padding = Some(padding);
                let stream = data.stream;
                self.used(stream, 1 + padding);
                padding
            }
        };
        let data = self.data.as_mut().expect("it has begun");
        let content = data.left - padding.min(data.left);
        let (bytes, rest) = input.split_at(content.min(input.len()));
        if content > 0 && bytes.is_empty() {
            return Ok(None);
        }
        *input = rest;
        data.left -= bytes.len();
        let (stream, is_ignored) = (data.stream, data.is_ignored);
        let is_last = data.left <= padding;
        let ends = is_last && std::mem::take(&mut data.ends);
        if is_last {
            let skipped = data.left.min(input.len());
            *input = &input[skipped..];
            data.left -= skipped;
            data.padding = Some(data.left);
            if data.left == 0 {
                self.data = None;
            }
        }
        if is_ignored || (bytes.is_empty() && !ends) {
            self.used(stream, bytes.len());
            return Ok(None);
        }
        self.content(stream, bytes, ends)
    }

    /// A part of the body of an open stream.
    fn content<'i>(
        &mut self,
        stream: StreamId,
        bytes: &'i [u8],
        ends: bool,
    ) -> Result<Option<Event<'i>>, Failure> {
        // It may have ended since the frame began.
        let Some(open) = self.streams.get_mut(stream) else {
            self.used(stream, bytes.len());
            return Ok(None);
        };
        let left = open
            .length_left
            .map(|left| left.checked_sub(bytes.len() as u64));
        let is_wrong =
            matches!(left, Some(None)) || (ends && left.flatten().is_some_and(|left| left > 0));
        open.length_left = left.flatten();
        if is_wrong {
            // RFC 9113, 8.1.1.
            self.used(stream, bytes.len());
            return self.stream_error(stream, ErrorCode::Protocol);
        }
        if ends {
            self.end_remote(stream);
        }
        Ok(Some(Event::Data {
            stream,
            bytes,
            ends,
        }))
    }

    /// The client has sent the end of `stream`.
    fn end_remote(&mut self, stream: StreamId) {
        if let Some(open) = self.streams.get_mut(stream) {
            open.is_remote_open = false;
            if !open.is_local_open {
                self.streams.remove(stream);
            }
        }
    }

    /// RFC 9113, 6.2.
    fn headers(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Event<'static>>, Failure> {
        let mut fragment = frame::without_padding(header, payload)?;
        let mut is_circular = false;
        if header.has(flag::PRIORITY) {
            let (first, rest) = fragment
                .split_first_chunk::<5>()
                .ok_or(Failure::size("a header section without its priority"))?;
            is_circular = depends_on(first) == header.stream;
            fragment = rest;
        }
        let mut block = Block {
            stream: header.stream,
            ends: header.has(flag::END_STREAM),
            is_circular,
            bytes: Vec::new(),
            continuations: 0,
        };
        if header.has(flag::END_HEADERS) {
            return self.section(&block, fragment);
        }
        block.bytes.extend_from_slice(fragment);
        self.block = Some(Box::new(block));
        Ok(None)
    }

    /// RFC 9113, 6.10.
    fn continuation(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Event<'static>>, Failure> {
        let mut block = self.block.take().expect("it has been looked for");
        block.continuations += 1;
        block.bytes.extend_from_slice(payload);
        if block.continuations > CONTINUATIONS_MAX || block.bytes.len() > BLOCK_BYTES_MAX {
            return Err(Failure::too_much("a header section that is too long"));
        }
        if header.has(flag::END_HEADERS) {
            return self.section(&block, &block.bytes);
        }
        self.block = Some(block);
        Ok(None)
    }

    /// A whole header section. Whatever becomes of it, it is decoded, since later ones build on it.
    fn section(
        &mut self,
        block: &Block,
        fragment: &[u8],
    ) -> Result<Option<Event<'static>>, Failure> {
        let stream = block.stream;
        if stream.is_multiple_of(2) {
            return Err(Failure::protocol("a request on a stream of the server"));
        }
        if stream > self.highest_stream {
            self.highest_stream = stream;
            return self.request(block, fragment);
        }
        match self.streams.get(stream).map(|open| open.is_remote_open) {
            Some(true) => self.trailers(block, fragment),
            None if self.is_ignored(stream) => {
                self.budget.spend(budget::RESET)?;
                let _ = self.decode(fragment, |_, _| Ok(()))?;
                Ok(Some(Event::Reset { stream }))
            }
            _ => Err(Failure::new(
                ErrorCode::StreamClosed,
                "a header section on a stream that has ended",
            )),
        }
    }

    fn request(
        &mut self,
        block: &Block,
        fragment: &[u8],
    ) -> Result<Option<Event<'static>>, Failure> {
        let stream = block.stream;
        self.last_stream = match self.shutdown {
            Shutdown::Final => self.last_stream,
            _ => stream,
        };
        let read = self.read_head(stream, fragment)?;
        if self.shutdown == Shutdown::Final {
            self.budget.spend(budget::RESET)?;
            return Ok(Some(Event::Reset { stream }));
        }
        let info = match read {
            Ok(info) if !block.is_circular && (!block.ends || info.length.unwrap_or(0) == 0) => {
                info
            }
            _ => {
                self.stream_error(stream, ErrorCode::Protocol)?;
                return Ok(Some(Event::Malformed { stream }));
            }
        };
        if self.streams.len() >= STREAMS_MAX {
            return self.stream_error(stream, ErrorCode::RefusedStream);
        }
        self.budget.earn(budget::REQUEST);
        self.streams.add(
            stream,
            Stream {
                send_window: self.settings.window.into(),
                receive_window: STREAM_WINDOW_BYTES,
                used: 0,
                is_remote_open: !block.ends,
                is_local_open: true,
                length_left: info.length,
                priority: info.priority,
            },
        );
        Ok(Some(Event::Request {
            stream,
            ends: block.ends,
            is_tunnel: info.is_tunnel,
        }))
    }

    fn read_head(
        &mut self,
        stream: StreamId,
        fragment: &[u8],
    ) -> Result<Result<HeadInfo, Malformed>, Failure> {
        let mut text = std::mem::take(&mut self.text);
        let nonce = self.nonce.wrapping_add(stream.into());
        let mut writer = HeadWriter::new(&mut text, self.head_bytes_max, nonce);
        let decoded = self.decode(fragment, |name, value| writer.field(name, value))?;
        let info = decoded.and_then(|()| writer.finish());
        self.text = text;
        Ok(info)
    }

    fn trailers(
        &mut self,
        block: &Block,
        fragment: &[u8],
    ) -> Result<Option<Event<'static>>, Failure> {
        let stream = block.stream;
        let mut trailers = Trailers::default();
        let decoded = self.decode(fragment, |name, value| {
            head::trailer(&mut trailers, name, value)
        })?;
        let open = self.streams.get(stream);
        let is_short = open
            .and_then(|open| open.length_left)
            .is_some_and(|left| left > 0);
        if decoded.is_err() || !block.ends || block.is_circular || is_short {
            return self.stream_error(stream, ErrorCode::Protocol);
        }
        self.trailers = trailers;
        self.end_remote(stream);
        Ok(Some(Event::Trailers { stream }))
    }

    /// Decodes a header section and passes its fields to `take` until that refuses one.
    fn decode(
        &mut self,
        fragment: &[u8],
        mut take: impl FnMut(&[u8], &[u8]) -> Result<(), Malformed>,
    ) -> Result<Result<(), Malformed>, Failure> {
        let (mut bytes, mut taken) = (0, Ok(()));
        self.decoder.decode(fragment, |name, value| {
            bytes += name.len() + value.len() + FIELD_BYTES;
            if bytes > LIST_BYTES_MAX.max(4 * self.head_bytes_max) {
                return Err(Failure::too_much("a header section that is far too long"));
            }
            if taken.is_ok() {
                taken = take(name, value);
            }
            Ok(())
        })?;
        Ok(taken)
    }

    /// RFC 9113, 6.3: without effect, but still checked as RFC 7540, 5.3.1 demands.
    fn old_priority(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Event<'static>>, Failure> {
        if header.stream == 0 {
            return Err(Failure::protocol("a priority of no stream"));
        }
        let Ok(payload) = frame::fixed::<5>(payload) else {
            return self.stream_error(header.stream, ErrorCode::FrameSize);
        };
        match depends_on(&payload) == header.stream {
            true => self.stream_error(header.stream, ErrorCode::Protocol),
            false => Ok(None),
        }
    }

    /// RFC 9218, 7.1. That of a request which has not arrived is ignored: there the header counts.
    fn priority_update(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Event<'static>>, Failure> {
        let named = payload.split_first_chunk().filter(|_| header.stream == 0);
        let (id, value) = named.ok_or(Failure::protocol("a malformed update of a priority"))?;
        let id = frame::number(*id);
        if id.is_multiple_of(2) {
            return Err(Failure::protocol("a priority of no request"));
        }
        if let Some(open) = self.streams.get_mut(id) {
            open.priority = Priority::stated(value);
        }
        Ok(None)
    }

    /// RFC 9113, 6.4.
    fn reset(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Event<'static>>, Failure> {
        frame::fixed::<4>(payload)?;
        if self.is_idle(header.stream) {
            return Err(Failure::protocol("the end of a stream that has not begun"));
        }
        let Some(open) = self.streams.remove(header.stream) else {
            return Ok(None);
        };
        if open.is_local_open {
            self.budget.spend(budget::RESET)?;
        }
        Ok(Some(Event::Reset {
            stream: header.stream,
        }))
    }

    fn settings(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Event<'static>>, Failure> {
        if header.stream != 0 {
            return Err(Failure::protocol("settings of a stream"));
        }
        if header.has(flag::ACK) {
            return match payload {
                [] => Ok(None),
                _ => Err(Failure::size("an acknowledgement with content")),
            };
        }
        let before = i64::from(self.settings.window);
        self.settings.read(payload)?;
        self.expects = Expects::Frames;
        frame::write(&mut self.out, kind::SETTINGS, flag::ACK, 0, &[]);
        let more = i64::from(self.settings.window) - before;
        for open in self.streams.iter_mut() {
            open.send_window += more;
            if open.send_window > WINDOW_BYTES_MAX {
                return Err(Failure::flow("a window that is too large"));
            }
        }
        Ok((more > 0).then_some(Event::Window { stream: None }))
    }

    /// RFC 9113, 6.7.
    fn ping(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Event<'static>>, Failure> {
        let content = frame::fixed(payload)?;
        if header.stream != 0 {
            return Err(Failure::protocol("a ping of a stream"));
        }
        if !header.has(flag::ACK) {
            frame::write(&mut self.out, kind::PING, flag::ACK, 0, &content);
        } else if content == SHUTDOWN_PING && self.shutdown == Shutdown::Announced {
            self.end_shutdown();
        }
        Ok(None)
    }

    /// RFC 9113, 6.9.
    fn window_update(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Event<'static>>, Failure> {
        let more = i64::from(frame::number(frame::fixed(payload)?));
        if more < budget::WINDOW_BYTES_MIN {
            self.budget.spend(budget::FRAME)?;
        }
        if header.stream == 0 {
            return self.connection_window(more);
        }
        if self.is_idle(header.stream) {
            return Err(Failure::protocol("a window of a stream that has not begun"));
        }
        let stream = header.stream;
        let Some(open) = self.streams.get_mut(stream) else {
            return Ok(None);
        };
        open.send_window += more;
        match open.send_window {
            _ if more == 0 => self.stream_error(stream, ErrorCode::Protocol),
            window if window > WINDOW_BYTES_MAX => {
                self.stream_error(stream, ErrorCode::FlowControl)
            }
            _ => Ok(Some(Event::Window {
                stream: Some(stream),
            })),
        }
    }

    fn connection_window(&mut self, more: i64) -> Result<Option<Event<'static>>, Failure> {
        if more == 0 {
            return Err(Failure::protocol("an update of a window by nothing"));
        }
        let was_full = self.send_window <= 0;
        self.send_window += more;
        match self.send_window > WINDOW_BYTES_MAX {
            true => Err(Failure::flow("a window that is too large")),
            // Otherwise no stream waits for it.
            false => Ok(was_full.then_some(Event::Window { stream: None })),
        }
    }

    /// Ends a stream because of what the client has sent; the connection if the stream has not begun, for which no frame may say so
    /// (RFC 9113, 6.4).
    fn stream_error(
        &mut self,
        stream: StreamId,
        code: ErrorCode,
    ) -> Result<Option<Event<'static>>, Failure> {
        if self.is_idle(stream) {
            return Err(Failure::new(
                code,
                "an error of a stream that has not begun",
            ));
        }
        self.budget.spend(budget::RESET)?;
        self.send_reset(stream, code);
        Ok(Some(Event::Reset { stream }))
    }

    /// So many bytes of the body of `stream` were used: the client may send as many more.
    pub fn used(&mut self, stream: StreamId, bytes: usize) {
        let bytes = bytes as u32;
        self.used += bytes;
        if self.used >= CONNECTION_WINDOW_BYTES / 2 {
            let used = std::mem::take(&mut self.used);
            self.receive_window += used;
            frame::write_number(&mut self.out, kind::WINDOW_UPDATE, 0, used);
        }
        let open = self.streams.get_mut(stream);
        let Some(open) = open.filter(|open| open.is_remote_open) else {
            return;
        };
        open.used += bytes;
        if open.used >= STREAM_WINDOW_BYTES / 2 {
            let used = std::mem::take(&mut open.used);
            open.receive_window += used;
            frame::write_number(&mut self.out, kind::WINDOW_UPDATE, stream, used);
        }
    }
}

/// The stream on which another one depends, by RFC 7540, 6.3.
fn depends_on(priority: &[u8; 5]) -> StreamId {
    let [stream @ .., _] = priority;
    frame::number(*stream)
}
