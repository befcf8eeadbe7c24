//! How streams end (RFC 9113, 5.1): at the end of what each side sends, or by a reset.

use super::{Connection, Event, Outcome};
use crate::http2::budget;
use crate::http2::frame::{self, FrameHeader, kind};
use crate::http2::streams::StreamId;
use crate::http2::{ErrorCode, Failure};

impl Connection {
    /// Whether more of a response on `stream` can be sent.
    pub fn is_sendable(&self, stream: StreamId) -> bool {
        let open = self.streams.get(stream);
        open.is_some_and(|open| open.is_local_open)
    }

    /// Ends a stream that nobody uses any more. A client that still sends need not go on (RFC 9113, 8.1). A client that lacks a part of
    /// the response gets an error.
    pub fn release(&mut self, stream: StreamId) {
        let open = self.streams.get(stream);
        if let Some(is_local_open) = open.map(|open| open.is_local_open) {
            let code = match is_local_open {
                true => ErrorCode::Internal,
                false => ErrorCode::NoError,
            };
            self.send_reset(stream, code);
        }
    }

    /// Ends a stream with `code`.
    pub fn send_reset(&mut self, stream: StreamId, code: ErrorCode) {
        self.streams.remove(stream);
        self.streams.remember(stream);
        frame::write_number(&mut self.out, kind::RST_STREAM, stream, code as u32);
    }

    /// Whether `stream` has not begun (RFC 9113, 5.1). The server begins no stream, so all of its own are idle.
    pub(super) fn is_idle(&self, stream: StreamId) -> bool {
        stream > self.highest_stream || stream.is_multiple_of(2)
    }

    /// Whether frames on `stream`, which is not open, are ignored: the client may not have known of its end.
    pub(super) fn is_ignored(&self, stream: StreamId) -> bool {
        stream > self.last_stream || self.streams.was_ended_here(stream)
    }

    /// The response on `stream` has ended.
    pub(super) fn end_local(&mut self, stream: StreamId) {
        self.budget.earn(budget::RESPONSE);
        if let Some(open) = self.streams.get_mut(stream) {
            open.is_local_open = false;
            if open.body.is_none() {
                self.streams.remove(stream);
            }
        }
    }

    /// The client has sent the end of `stream`.
    pub(super) fn end_remote(&mut self, stream: StreamId) {
        if let Some(open) = self.streams.get_mut(stream) {
            open.body = None;
            if !open.is_local_open {
                self.streams.remove(stream);
            }
        }
    }

    /// RST_STREAM (RFC 9113, 6.4).
    pub(super) fn receive_reset(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Outcome<'static> {
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

    /// Refuses the request on `stream`, which the client may repeat.
    ///
    /// # Errors
    /// When the client has been refused too often. The output has the GOAWAY for it.
    pub fn refuse(&mut self, stream: StreamId) -> Result<(), Failure> {
        self.send_reset(stream, ErrorCode::RefusedStream);
        let spent = self.budget.spend(budget::REQUEST + budget::RESET);
        if let Err(failure) = &spent {
            self.fail(failure);
        }
        spent
    }

    /// Ends a stream because of an error of the client. Ends the connection if the stream is idle: it may not be reset (RFC 9113, 6.4).
    pub(super) fn stream_error(&mut self, stream: StreamId, code: ErrorCode) -> Outcome<'static> {
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
}
