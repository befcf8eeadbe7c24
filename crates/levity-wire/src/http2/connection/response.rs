//! Responses: HEADERS and DATA frames for a client.

use super::Connection;
use crate::http2::frame::{self, FrameHeader, HEADER_BYTES, PAYLOAD_BYTES_MAX, flag, kind};
use crate::http2::hpack::NO_TABLE;
use crate::http2::streams::StreamId;

impl Connection {
    /// Appends the header section of a response, or trailers. `ends` ends the stream. Does nothing if the stream has ended.
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

    /// Frames the header section in the output, which begins after the room for a frame's header at `start`.
    fn frame_section(&mut self, start: usize, stream: StreamId, flags: u8) {
        let block = start + HEADER_BYTES;
        let first = (self.out.len() - block).min(PAYLOAD_BYTES_MAX);
        let rest = self.out.split_off(block + first);
        let end = |is_last| if is_last { flag::END_HEADERS } else { 0 };
        let header = FrameHeader {
            bytes: first,
            kind: kind::HEADERS,
            flags: flags | end(rest.is_empty()),
            stream,
        };
        self.out[start..block].copy_from_slice(&header.write());
        let mut parts = rest.chunks(PAYLOAD_BYTES_MAX).peekable();
        while let Some(part) = parts.next() {
            let flags = end(parts.peek().is_none());
            frame::write(&mut self.out, kind::CONTINUATION, flags, stream, part);
        }
    }

    /// Appends as much of `data` as windows permit; returns the number of bytes. `ends` ends the stream after all of it.
    pub fn send_data(&mut self, stream: StreamId, data: &[u8], ends: bool) -> usize {
        let mut out = std::mem::take(&mut self.out);
        let bytes = self.frame_data(stream, data, ends, |header, part| {
            out.extend_from_slice(&header);
            out.extend_from_slice(part);
        });
        self.out = out;
        bytes
    }

    /// As [`send_data`](Self::send_data), but passes the header and the content of each frame to `write` instead of copying them to the
    /// output.
    pub fn frame_data<'d>(
        &mut self,
        stream: StreamId,
        data: &'d [u8],
        ends: bool,
        mut write: impl FnMut([u8; HEADER_BYTES], &'d [u8]),
    ) -> usize {
        let window = self.window(stream);
        let bytes = data.len().min(window);
        if !self.is_sendable(stream) || (bytes == 0 && !(ends && data.is_empty())) {
            return 0;
        }
        let is_cut = bytes < data.len();
        let is_all = ends && !is_cut;
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
            // What uses up the window may have been cut before, by who knew the window.
            self.budget.sent(part.len(), bytes == window);
            rest = more;
            if rest.is_empty() {
                break;
            }
        }
        self.take_send_windows(stream, bytes);
        if is_all {
            self.end_local(stream);
        }
        bytes
    }
}
