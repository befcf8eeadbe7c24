//! Header sections of a client (RFC 9113, 6.2 and 6.10): requests and trailers.

use super::priorities;
use super::shutdown::Shutdown;
use super::{Connection, Event, Outcome};
use crate::http1::Trailers;
use crate::http2::budget;
use crate::http2::frame::{self, FrameHeader, flag};
use crate::http2::head::{self, HeadInfo, HeadWriter, Malformed};
use crate::http2::settings::STREAMS_MAX;
use crate::http2::streams::{Body, Stream, StreamId};
use crate::http2::{ErrorCode, Failure};

/// The maximum size of a compressed header section in several frames, in bytes, unless a request may have a larger one.
const BLOCK_BYTES_MAX: usize = 64 * 1024;

/// The maximum of CONTINUATION frames in a header section.
const CONTINUATIONS_MAX: usize = 64;

/// The maximum size of a header section in bytes as RFC 9113, 6.5.2 counts it: four times the default for a request. The connection ends
/// beyond it, because a compressed byte can stand for kilobytes.
const LIST_BYTES_MAX: usize = 64 * 1024;

/// The bytes that a field counts besides its text.
const FIELD_BYTES: usize = 32;

/// A header section of which frames are missing.
#[derive(Debug)]
pub(super) struct Block {
    pub stream: StreamId,
    ends: bool,
    /// Its stream depends on itself (RFC 7540, 5.3.1).
    is_circular: bool,
    bytes: Vec<u8>,
    continuations: usize,
}

impl Connection {
    /// HEADERS (RFC 9113, 6.2).
    pub(super) fn receive_headers(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Outcome<'static> {
        let mut fragment = frame::without_padding(header, payload)?;
        let mut is_circular = false;
        if header.has(flag::PRIORITY) {
            let (first, rest) = fragment
                .split_first_chunk::<5>()
                .ok_or(Failure::size("a header section without its priority"))?;
            is_circular = priorities::depends_on(first) == header.stream;
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
            return self.header_section(&block, fragment);
        }
        block.bytes.extend_from_slice(fragment);
        self.block = Some(Box::new(block));
        Ok(None)
    }

    /// CONTINUATION (RFC 9113, 6.10).
    pub(super) fn receive_continuation(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Outcome<'static> {
        let mut block = self.block.take().expect("it has been looked for");
        block.continuations += 1;
        block.bytes.extend_from_slice(payload);
        let bytes_max = BLOCK_BYTES_MAX.max(self.head_bytes_max);
        if block.continuations > CONTINUATIONS_MAX || block.bytes.len() > bytes_max {
            return Err(Failure::too_much("a header section that is too long"));
        }
        if header.has(flag::END_HEADERS) {
            return self.header_section(&block, &block.bytes);
        }
        self.block = Some(block);
        Ok(None)
    }

    /// A whole header section. It is always decoded, also where it is ignored, because later ones build on it.
    fn header_section(&mut self, block: &Block, fragment: &[u8]) -> Outcome<'static> {
        let stream = block.stream;
        if stream.is_multiple_of(2) {
            return Err(Failure::protocol("a request on a stream of the server"));
        }
        if stream > self.highest_stream {
            self.highest_stream = stream;
            return self.begin_request(block, fragment);
        }
        match self.streams.get(stream).map(|open| open.body.is_some()) {
            Some(true) => self.receive_trailers(block, fragment),
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

    fn begin_request(&mut self, block: &Block, fragment: &[u8]) -> Outcome<'static> {
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
        self.budget.earn(budget::FRAME + budget::REQUEST);
        self.streams.add(
            stream,
            Stream {
                send_window: self.settings.window.into(),
                body: (!block.ends).then(|| Box::new(Body::new(info.length))),
                is_local_open: true,
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

    fn receive_trailers(&mut self, block: &Block, fragment: &[u8]) -> Outcome<'static> {
        let stream = block.stream;
        let mut trailers = Trailers::default();
        let decoded = self.decode(fragment, |name, value| {
            head::trailer(&mut trailers, name, value)
        })?;
        let open = self.streams.get(stream);
        let is_short = open
            .and_then(|open| open.body.as_ref()?.length_left)
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
}
