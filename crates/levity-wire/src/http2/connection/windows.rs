//! Flow control (RFC 9113, 5.2): the bytes that either side may send, on a stream and in all.

use super::{Connection, Event, Outcome};
use crate::http2::budget;
use crate::http2::frame::{self, FrameHeader, kind};
use crate::http2::streams::StreamId;
use crate::http2::{ErrorCode, Failure, WINDOW_BYTES_MAX};

impl Connection {
    /// The bytes of a body that may be sent now on `stream`.
    pub fn window(&self, stream: StreamId) -> usize {
        let open = self.streams.get(stream);
        let window = open.map_or(0, |open| open.send_window.min(self.send_window));
        usize::try_from(window).unwrap_or(0)
    }

    /// Whether the window of `stream` is open. That of the connection, which other streams use up as well, may be closed.
    pub fn is_stream_window_open(&self, stream: StreamId) -> bool {
        let open = self.streams.get(stream);
        open.is_some_and(|open| open.send_window > 0)
    }

    /// Sets the bytes that may wait here in all: those that have arrived and were not consumed, and those that the client may send.
    /// When that is less than before, it counts for what is consumed from now on: what the client may send cannot be taken back.
    pub fn set_receive_window(&mut self, bytes: u32) {
        let more = self.receive_window.resize(bytes);
        self.send_update(0, more);
        self.open_receive_window();
    }

    /// Sets the same for the body of `stream`.
    pub fn set_stream_window(&mut self, stream: StreamId, bytes: u32) {
        let open = self.streams.get_mut(stream);
        if let Some(body) = open.and_then(|open| open.body.as_mut()) {
            let more = body.window.resize(bytes);
            self.send_update(stream, more);
        }
    }

    /// Lets the client send `more` bytes.
    fn send_update(&mut self, stream: StreamId, more: u32) {
        if more > 0 {
            frame::write_number(&mut self.out, kind::WINDOW_UPDATE, stream, more);
        }
    }

    /// Whether the client may send bytes of bodies: its window for all streams is open.
    pub fn may_receive(&self) -> bool {
        self.receive_window.open() > 0
    }

    /// The bytes that were not consumed, with the frame that is arriving.
    pub fn unread(&self) -> u32 {
        self.receive_window.unread()
    }

    /// The bytes that were not consumed beyond those that may wait here: the window was larger before, and the client may use what
    /// it had of it.
    pub fn excess(&self) -> u32 {
        self.receive_window.excess()
    }

    /// The owner has consumed `bytes` of the body of `stream`: the client may send as many more.
    pub fn consumed(&mut self, stream: StreamId, bytes: usize) {
        let bytes = bytes as u32;
        self.receive_window.consume(bytes);
        self.open_receive_window();
        let open = self.streams.get_mut(stream);
        if let Some(body) = open.and_then(|open| open.body.as_mut()) {
            body.window.consume(bytes);
            let more = body.window.reopen(body.window.half());
            self.send_update(stream, more);
        }
    }

    /// Opens the window of the connection again when as much was consumed as is left of it. Unread bytes of some streams may leave
    /// less than half.
    fn open_receive_window(&mut self) {
        let more = self.receive_window.reopen(self.receive_window.open());
        self.send_update(0, more);
    }

    /// Takes `bytes` that were sent from the windows of the client.
    pub(super) fn take_send_windows(&mut self, stream: StreamId, bytes: usize) {
        self.send_window -= bytes as i64;
        if let Some(open) = self.streams.get_mut(stream) {
            open.send_window -= bytes as i64;
        }
    }

    /// Changes the windows of all streams after new settings of the client, which may make them negative (RFC 9113, 6.9.2).
    ///
    /// # Errors
    /// When a window exceeds the maximum, or the client opens windows of many streams again and again: each may have something to
    /// send.
    pub(super) fn change_send_windows(&mut self, change: i64) -> Result<(), Failure> {
        if change > 0 {
            let streams = self.streams.len() as u32;
            self.budget.spend(streams * budget::FRAME)?;
        }
        for open in self.streams.iter_mut() {
            open.send_window += change;
            if open.send_window > WINDOW_BYTES_MAX {
                return Err(Failure::flow("a window that is too large"));
            }
        }
        Ok(())
    }

    /// Takes `bytes` that arrive from the window of the connection, and from that of `stream`. Returns the error of the stream, if
    /// there is one.
    ///
    /// # Errors
    /// When they exceed the window of the connection.
    pub(super) fn take_receive_windows(
        &mut self,
        stream: StreamId,
        bytes: u32,
    ) -> Result<Option<ErrorCode>, Failure> {
        let taken = self.receive_window.take(bytes);
        taken.ok_or(Failure::flow("more bytes than the window"))?;
        // What others have not read may have used it up.
        self.open_receive_window();
        Ok(self.take_stream_window(stream, bytes))
    }

    fn take_stream_window(&mut self, stream: StreamId, bytes: u32) -> Option<ErrorCode> {
        let open = self.streams.get_mut(stream);
        let Some(body) = open.and_then(|open| open.body.as_mut()) else {
            return Some(ErrorCode::StreamClosed);
        };
        match body.window.take(bytes) {
            Some(()) => None,
            None => Some(ErrorCode::FlowControl),
        }
    }

    /// WINDOW_UPDATE (RFC 9113, 6.9).
    pub(super) fn receive_window_update(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Outcome<'static> {
        let more = i64::from(frame::number(frame::fixed(payload)?));
        self.budget.updated();
        if header.stream == 0 {
            return self.open_connection(more);
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
            // Otherwise it waits on.
            _ => Ok((self.send_window > 0).then_some(Event::Window {
                stream: Some(stream),
            })),
        }
    }

    fn open_connection(&mut self, more: i64) -> Outcome<'static> {
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
}
