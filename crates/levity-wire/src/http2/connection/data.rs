//! DATA frames of a client (RFC 9113, 6.1): the bodies of requests.

use super::{Connection, Event, Outcome};
use crate::http2::frame::{self, FrameHeader, flag};
use crate::http2::streams::StreamId;
use crate::http2::{ErrorCode, Failure};

/// A DATA frame of which bytes are missing.
#[derive(Debug)]
pub(super) struct DataFrame {
    stream: StreamId,
    /// The bytes of the payload that have not arrived, with the padding.
    left: usize,
    /// The bytes of the padding; `None` until their number has arrived.
    padding: Option<usize>,
    /// Its last part ends the stream.
    ends: bool,
    /// Its stream has ended.
    is_ignored: bool,
}

impl DataFrame {
    /// The next part of the content, and whether the stream ends with it; `None` if it is missing. Skips the padding after the last
    /// part, as much as has arrived.
    fn next_part<'i>(&mut self, padding: usize, input: &mut &'i [u8]) -> Option<(&'i [u8], bool)> {
        let content = self.left - padding.min(self.left);
        let (bytes, rest) = input.split_at(content.min(input.len()));
        if content > 0 && bytes.is_empty() {
            return None;
        }
        *input = rest;
        self.left -= bytes.len();
        if self.left > padding {
            return Some((bytes, false));
        }
        let skipped = self.left.min(input.len());
        *input = &input[skipped..];
        self.left -= skipped;
        self.padding = Some(self.left);
        Some((bytes, std::mem::take(&mut self.ends)))
    }
}

impl Connection {
    /// The header of a DATA frame.
    pub(super) fn begin_data(&mut self, header: FrameHeader) -> Outcome<'static> {
        let bytes = header.bytes as u32;
        if self.is_idle(header.stream) {
            return Err(Failure::protocol("a body without a request"));
        }
        let error = self.take_receive_windows(header.stream, bytes)?;
        let event = match error {
            Some(code) if !self.is_ignored(header.stream) => {
                self.stream_error(header.stream, code)?
            }
            _ => None,
        };
        let is_padded = header.has(flag::PADDED);
        self.data = Some(DataFrame {
            stream: header.stream,
            left: header.bytes,
            padding: (!is_padded).then_some(0),
            ends: header.has(flag::END_STREAM),
            is_ignored: error.is_some(),
        });
        if !is_padded && error.is_none() {
            self.budget.received(header.bytes);
        }
        Ok(event)
    }

    /// The next part of the DATA frame that has begun. At its end `self.data` is `None`.
    pub(super) fn continue_data<'i>(&mut self, input: &mut &'i [u8]) -> Outcome<'i> {
        let Some(padding) = self.padding(input)? else {
            return Ok(None);
        };
        let data = self.data.as_mut().expect("it has begun");
        let Some((bytes, ends)) = data.next_part(padding, input) else {
            return Ok(None);
        };
        let (stream, is_ignored) = (data.stream, data.is_ignored);
        if data.left == 0 {
            self.data = None;
        }
        if is_ignored || (bytes.is_empty() && !ends) {
            self.consumed(stream, bytes.len());
            return Ok(None);
        }
        self.content(stream, bytes, ends)
    }

    /// The length of the padding, which is read first; `None` if its byte is missing.
    fn padding(&mut self, input: &mut &[u8]) -> Result<Option<usize>, Failure> {
        let data = self.data.as_mut().expect("it has begun");
        if data.padding.is_some() {
            return Ok(data.padding);
        }
        if data.left == 0 {
            return Err(frame::NO_PADDING_LENGTH);
        }
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
        if !data.is_ignored {
            self.budget.received(data.left - padding);
        }
        let stream = data.stream;
        self.consumed(stream, 1 + padding);
        Ok(Some(padding))
    }

    /// A part of the body of an open stream.
    fn content<'i>(&mut self, stream: StreamId, bytes: &'i [u8], ends: bool) -> Outcome<'i> {
        // It may have ended since the frame began.
        let open = self.streams.get_mut(stream);
        let Some(body) = open.and_then(|open| open.body.as_mut()) else {
            self.consumed(stream, bytes.len());
            return Ok(None);
        };
        let left = body
            .length_left
            .map(|left| left.checked_sub(bytes.len() as u64));
        let is_wrong =
            matches!(left, Some(None)) || (ends && left.flatten().is_some_and(|left| left > 0));
        body.length_left = left.flatten();
        if is_wrong {
            // RFC 9113, 8.1.1.
            self.consumed(stream, bytes.len());
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
}
