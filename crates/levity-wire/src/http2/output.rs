//! Frames for the client.

use super::budget;
use super::connection::{Connection, SHUTDOWN_PING, STREAM_ID_MAX, Shutdown};
use super::frame::{self, FrameHeader, HEADER_BYTES, PAYLOAD_BYTES_MAX, flag, kind};
use super::hpack::NO_TABLE;
use super::streams::StreamId;
use super::{ErrorCode, Failure};

impl Connection {
    /// Frames that are due, in order. Their owner removes what was written.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Appends the header section of a response, or trailers. `ends` says that nothing follows. Does nothing if the stream has ended.
    pub fn send_fields(&mut self, stream: StreamId, block: &[u8], ends: bool) {
        if !self.is_sendable(stream) {
            return;
        }
        let start = self.out.len();
        self.out.extend_from_slice(&[0; HEADER_BYTES]);
        if !std::mem::replace(&mut self.has_sent_fields, true) {
            self.out.push(NO_TABLE);
        }
        self.out.extend_from_slice(block);
        self.frame_section(start, stream, if ends { flag::END_STREAM } else { 0 });
        if ends {
            self.end_local(stream);
        }
    }

    /// Makes frames of the header section that begins after the room for a frame at `start`.
    fn frame_section(&mut self, start: usize, stream: StreamId, flags: u8) {
        let block = start + HEADER_BYTES;
        let first = (self.out.len() - block).min(PAYLOAD_BYTES_MAX);
        let rest = self.out.split_off(block + first);
        let ends = if rest.is_empty() {
            flag::END_HEADERS
        } else {
            0
        };
        let header = FrameHeader {
            bytes: first,
            kind: kind::HEADERS,
            flags: flags | ends,
            stream,
        };
        self.out[start..block].copy_from_slice(&header.write());
        let mut parts = rest.chunks(PAYLOAD_BYTES_MAX).peekable();
        while let Some(part) = parts.next() {
            let ends = if parts.peek().is_none() {
                flag::END_HEADERS
            } else {
                0
            };
            frame::write(&mut self.out, kind::CONTINUATION, ends, stream, part);
        }
    }

    /// Whether more of a response on `stream` can be sent.
    pub fn is_sendable(&self, stream: StreamId) -> bool {
        let open = self.streams.get(stream);
        open.is_some_and(|open| open.is_local_open)
    }

    /// The bytes of a body that the client takes now on `stream`.
    pub fn window(&self, stream: StreamId) -> usize {
        let open = self.streams.get(stream);
        let window = open.map_or(0, |open| open.send_window.min(self.send_window));
        usize::try_from(window).unwrap_or(0)
    }

    /// Appends as much of `data` as the client takes; returns the number of bytes. `ends` says that the response has no more.
    pub fn send_data(&mut self, stream: StreamId, data: &[u8], ends: bool) -> usize {
        let mut out = std::mem::take(&mut self.out);
        let bytes = self.frame_data(stream, data, ends, |header, part| {
            out.extend_from_slice(&header);
            out.extend_from_slice(part);
        });
        self.out = out;
        bytes
    }

    /// Passes each frame of as much of `data` as the client takes to `write`, header and content, and appends nothing: for whoever
    /// writes them where they are. Otherwise as [`send_data`](Self::send_data).
    pub fn frame_data<'d>(
        &mut self,
        stream: StreamId,
        data: &'d [u8],
        ends: bool,
        mut write: impl FnMut([u8; HEADER_BYTES], &'d [u8]),
    ) -> usize {
        let bytes = data.len().min(self.window(stream));
        if !self.is_sendable(stream) || (bytes == 0 && !(ends && data.is_empty())) {
            return 0;
        }
        let is_all = ends && bytes == data.len();
        let mut rest = &data[..bytes];
        loop {
            let (part, more) = rest.split_at(rest.len().min(PAYLOAD_BYTES_MAX));
            let is_last = is_all && more.is_empty();
            let header = FrameHeader {
                bytes: part.len(),
                kind: kind::DATA,
                flags: if is_last { flag::END_STREAM } else { 0 },
                stream,
            };
            write(header.write(), part);
            if part.len() >= budget::CONTENT_BYTES_MIN {
                self.budget.earn(budget::CONTENT);
            }
            rest = more;
            if rest.is_empty() {
                break;
            }
        }
        self.send_window -= bytes as i64;
        if let Some(open) = self.streams.get_mut(stream) {
            open.send_window -= bytes as i64;
        }
        if is_all {
            self.end_local(stream);
        }
        bytes
    }

    /// The response on `stream` has ended.
    fn end_local(&mut self, stream: StreamId) {
        self.budget.earn(budget::RESPONSE);
        if let Some(open) = self.streams.get_mut(stream) {
            open.is_local_open = false;
            if !open.is_remote_open {
                self.streams.remove(stream);
            }
        }
    }

    /// Nobody uses the stream any more. A client that sends still is told that it need not (RFC 9113, 8.1), and one that has not got
    /// all of the response that something is wrong.
    pub fn release(&mut self, stream: StreamId) {
        let open = self.streams.get(stream);
        if let Some(is_local_open) = open.map(|open| open.is_local_open) {
            self.send_reset(
                stream,
                match is_local_open {
                    true => ErrorCode::Internal,
                    false => ErrorCode::NoError,
                },
            );
        }
    }

    /// Ends a stream.
    pub fn send_reset(&mut self, stream: StreamId, code: ErrorCode) {
        self.streams.remove(stream);
        self.streams.remember(stream);
        frame::write_number(&mut self.out, kind::RST_STREAM, stream, code as u32);
    }

    /// Says that the connection ends. Requests that are on their way are still answered (RFC 9113, 6.8).
    pub fn shut_down(&mut self) {
        if self.shutdown == Shutdown::No {
            self.shutdown = Shutdown::Announced;
            self.go_away(STREAM_ID_MAX, ErrorCode::NoError, "");
            frame::write(&mut self.out, kind::PING, 0, 0, &SHUTDOWN_PING);
        }
    }

    /// Says which request was the last one. Later ones are ignored.
    pub fn end_shutdown(&mut self) {
        if self.shutdown != Shutdown::Final {
            self.shutdown = Shutdown::Final;
            self.go_away(self.last_stream, ErrorCode::NoError, "");
        }
    }

    /// Whether the client knows that the connection ends, and has got all responses.
    pub fn is_done(&self) -> bool {
        self.shutdown == Shutdown::Final && self.streams.len() == 0
    }

    pub(super) fn fail(&mut self, failure: &Failure) {
        self.shutdown = Shutdown::Final;
        self.go_away(self.last_stream, failure.code, failure.reason);
    }

    fn go_away(&mut self, last: StreamId, code: ErrorCode, reason: &str) {
        let mut payload = last.to_be_bytes().to_vec();
        payload.extend_from_slice(&(code as u32).to_be_bytes());
        payload.extend_from_slice(reason.as_bytes());
        frame::write(&mut self.out, kind::GOAWAY, 0, 0, &payload);
    }
}
