//! What a connection writes: the frames of its streams, by their turns.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, Waker};

use levity_net::TURN_BYTES_MAX;
use levity_wire::http2::{self, HEADER_BYTES, PAYLOAD_BYTES_MAX, StreamId};

use super::Conn;

/// The maximum number of bytes that wait for the client, except for one frame of each stream. With more, a slow client
/// would hold memory, and a small response would wait behind large ones.
const OUT_BYTES_MAX: usize = 64 * 1024;

/// The maximum with replies to frames of the client. Above it nothing is read.
const ANSWERS_BYTES_MAX: usize = 4 * OUT_BYTES_MAX;

/// The maximum number of bytes that a stream sends at a time.
pub(in crate::http::h2) const PIECE_BYTES_MAX: usize = 64 * 1024;

/// The maximum number of frames in such a piece.
const FRAMES_MAX: usize = PIECE_BYTES_MAX.div_ceil(PAYLOAD_BYTES_MAX);

/// The minimum size of a piece that is written without a copy, in bytes.
const DIRECT_BYTES_MIN: usize = 16 * 1024;

impl Conn {
    /// Whether streams may append more to the output.
    fn has_room(&self) -> bool {
        self.wire.borrow_mut().out().len() < OUT_BYTES_MAX
    }

    /// Whether there is room for replies to the client. If not, nothing is read of it: the client has to read its responses first.
    pub fn may_read(&self) -> bool {
        self.wire.borrow_mut().out().len() < ANSWERS_BYTES_MAX
    }

    /// Whether so many bytes were moved in this poll that it is the turn of other connections.
    pub fn has_had_turn(&self) -> bool {
        self.moved.get() >= TURN_BYTES_MAX
    }

    /// The bytes that were written so far, without those of an output that had replies only.
    pub(in crate::http::h2) fn written_with_bodies(&self) -> u64 {
        self.written_with_bodies.get()
    }

    fn count_written(&self, bytes: usize) {
        self.written.set(self.written.get() + bytes as u64);
        self.moved.set(self.moved.get() + bytes);
        if self.has_bodies.get() {
            let before = self.written_with_bodies.get();
            self.written_with_bodies.set(before + bytes as u64);
        }
    }

    /// Writes the output, and wakes the stream whose turn it is when there is room. Ready when all was written.
    ///
    /// # Errors
    /// Those of the transport.
    pub fn poll_flush(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = self.poll_write(context);
        self.wake_next();
        written
    }

    /// Writes the output. Ready when all was written.
    ///
    /// # Errors
    /// Those of the transport.
    pub(super) fn poll_write(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut wire = self.wire.borrow_mut();
        let out = wire.out();
        let mut written = 0;
        while written < out.len() {
            match self
                .transport
                .borrow_mut()
                .poll_write(context, &out[written..])
            {
                Poll::Ready(Ok(bytes)) => {
                    self.count_written(bytes);
                    written += bytes;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    out.drain(..written);
                    return Poll::Pending;
                }
            }
        }
        self.has_bodies.set(false);
        self.core().return_frames_out(std::mem::take(out));
        Poll::Ready(Ok(()))
    }

    /// Wakes the stream whose turn it is, if there is room.
    pub(in crate::http::h2) fn wake_next(&self) {
        if self.has_room() {
            self.turns.borrow_mut().wake_next();
        }
    }

    /// Wakes `stream`, which has ended, if it waits to write.
    pub(in crate::http::h2) fn wake_writer(&self, stream: StreamId) {
        self.turns.borrow_mut().remove(stream);
    }

    /// `stream` waits for the windows of the client: it is the turn of another one.
    pub(in crate::http::h2) fn wait_for_window(&self, stream: StreamId, context: &Context<'_>) {
        let priority = self.wire.borrow().priority(stream);
        let mut turns = self.turns.borrow_mut();
        turns.block(stream, priority, context.waker());
        drop(turns);
        self.wake_next();
    }

    /// Waits for room in the output, and for the turn of `stream`. Some of the output is written first if there is none.
    ///
    /// # Errors
    /// Those of the transport.
    pub(in crate::http::h2) fn poll_room(
        &self,
        stream: StreamId,
        context: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.has_room() {
            let task = self.task();
            if let Poll::Ready(Err(error)) = self.poll_write(&mut Context::from_waker(&task)) {
                return Poll::Ready(Err(error));
            }
        }
        if self.has_room() && !self.has_had_turn() {
            // A turn that came later would be lost.
            self.turns.borrow_mut().leave(stream);
            return Poll::Ready(Ok(()));
        }
        let priority = self.wire.borrow().priority(stream);
        let mut turns = self.turns.borrow_mut();
        turns.wait(stream, priority, context.waker());
        Poll::Pending
    }

    /// Calls `write` with the codec, and has the output written soon.
    pub(in crate::http::h2) fn with_wire<T>(
        &self,
        write: impl FnOnce(&mut http2::Connection) -> T,
    ) -> T {
        let mut wire = self.wire.borrow_mut();
        if wire.out().capacity() == 0 {
            *wire.out() = self.core().take_frames_out();
        }
        let was_empty = wire.out().is_empty();
        let written = write(&mut wire);
        if !self.is_polled.get() && was_empty && !wire.out().is_empty() {
            self.task.wake_by_ref();
        }
        written
    }

    /// Sends as much of `data` on `stream` as the client takes; returns the number of bytes. Large pieces are written without
    /// a copy, which would cost a fifth of the time, if nothing waits before them.
    ///
    /// # Errors
    /// Those of the transport.
    pub(in crate::http::h2) fn send_data(
        &self,
        stream: StreamId,
        data: &[u8],
        ends: bool,
    ) -> io::Result<usize> {
        let had_bodies = self.has_bodies.replace(true);
        let sent = self.frame_data(stream, data, ends)?;
        match sent {
            0 => self.has_bodies.set(had_bodies),
            _ => self.turns.borrow_mut().unblock(stream),
        }
        Ok(sent)
    }

    fn frame_data(&self, stream: StreamId, data: &[u8], ends: bool) -> io::Result<usize> {
        if data.len() < DIRECT_BYTES_MIN || !self.wire.borrow_mut().out().is_empty() {
            return Ok(self.with_wire(|wire| wire.send_data(stream, data, ends)));
        }
        let (mut headers, mut parts) = ([[0; HEADER_BYTES]; FRAMES_MAX], [&[][..]; FRAMES_MAX]);
        let mut count = 0;
        let bytes = self
            .wire
            .borrow_mut()
            .frame_data(stream, data, ends, |header, part| {
                (headers[count], parts[count]) = (header, part);
                count += 1;
            });
        let frames = headers.iter().zip(&parts).take(count);
        let mut slices = [IoSlice::new(&[]); 2 * FRAMES_MAX];
        let framed = frames.flat_map(|(header, part)| [&header[..], part]);
        for (slice, bytes) in slices.iter_mut().zip(framed) {
            *slice = IoSlice::new(bytes);
        }
        self.write_slices(&mut slices[..2 * count])?;
        Ok(bytes)
    }

    /// Writes `slices`. What the transport does not take now is appended to the output, which must be empty.
    fn write_slices(&self, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        let task = self.task();
        let mut context = Context::from_waker(&task);
        let mut transport = self.transport.borrow_mut();
        while !slices.is_empty() {
            match transport.poll_write_vectored(&mut context, slices) {
                Poll::Ready(Ok(written)) => {
                    self.count_written(written);
                    IoSlice::advance_slices(&mut slices, written);
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        if !slices.is_empty() {
            self.with_wire(|wire| {
                slices
                    .iter()
                    .for_each(|slice| wire.out().extend_from_slice(slice))
            });
        }
        Ok(())
    }

    fn task(&self) -> Waker {
        self.task.get().unwrap_or_else(|| Waker::noop().clone())
    }

    /// `stream` has another priority.
    pub(in crate::http::h2) fn priority_changed(&self, stream: StreamId) {
        let priority = self.wire.borrow().priority(stream);
        self.turns.borrow_mut().change(stream, priority);
    }

    /// The client has more room, on one stream or on all.
    pub(in crate::http::h2) fn windows_changed(&self, stream: Option<StreamId>) {
        self.turns.borrow_mut().wake_blocked(stream);
    }
}
