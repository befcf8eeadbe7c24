//! A stream as the sink of a response.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use levity_net::Turn;
use levity_wire::http1::Trailers;
use levity_wire::http2::{self, ErrorCode, FieldBlock};

use super::super::conn::PIECE_BYTES_MAX;
use super::super::head;
use super::Stream;
use crate::files::missing_lookups::FailedLookups;
use crate::http::request_body::ClientStream;
use crate::http::send::{Framing, Head, Progress, ResponseSink};
use crate::loop_core::LoopCore;

/// The encoded header section of a response.
pub struct Header {
    block: FieldBlock,
    /// Content-Length, if the last byte ends the stream.
    length: Option<u64>,
    has_body: bool,
}

impl Stream {
    /// Waits for room in the output of the connection.
    fn poll_room(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        if self.is_gone.get() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.conn.poll_room(self.id, context)
    }

    /// While a response waits, its send time-out starts again whenever the client has taken bodies of other streams, whose turn it is:
    /// the client is not slow then. Not so for what `needs_window` if the client has closed the window of this stream.
    fn extended<T>(&self, polled: Poll<T>, needs_window: bool) -> Poll<T> {
        if polled.is_pending() {
            let written = self.conn.written_with_bodies();
            let is_progress = self.seen_written.replace(written) != written;
            if is_progress && self.timer.is_set() && !(needs_window && self.has_closed_window()) {
                let send_timeout = self.conn.core().config().config.limits.send_timeout;
                self.timer.set_for_client(Instant::now(), send_timeout);
            }
        }
        polled
    }

    fn has_closed_window(&self) -> bool {
        let is_open = |wire: &mut http2::Connection| wire.is_stream_window_open(self.id);
        !self.conn.with_wire(is_open)
    }

    /// Sends as much of `data` as the client takes now, but at least a byte unless `data` is empty.
    pub(super) fn poll_data(
        &self,
        context: &Context<'_>,
        data: &[u8],
        ends: bool,
    ) -> Poll<io::Result<usize>> {
        if data.is_empty() && !ends {
            return Poll::Ready(Ok(0));
        }
        ready!(self.poll_room(context))?;
        let (data, ends) = match data.get(..PIECE_BYTES_MAX) {
            Some(piece) => (piece, ends && piece.len() == data.len()),
            None => (data, ends),
        };
        if !self.conn.with_wire(|wire| wire.is_sendable(self.id)) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let sent = self.conn.send_data(self.id, data, ends)?;
        self.has_sent_end.set(ends && sent == data.len());
        if sent == 0 && !data.is_empty() {
            self.conn.wait_for_window(self.id, context);
            return Poll::Pending;
        }
        Poll::Ready(Ok(sent))
    }

    fn send_header(&self, header: Header, ends: bool) {
        let length = header.length.filter(|_| header.has_body);
        self.announced.set(length.and_then(NonZeroU64::new));
        let block = header.block;
        self.conn
            .with_wire(|wire| wire.send_fields(self.id, block.as_bytes(), ends));
        self.conn.core().return_head(block.into_buffer());
    }
}

impl ResponseSink for Stream {
    type Header = Header;
    type Socket<'s> = Infallible;

    fn core(&self) -> &Rc<LoopCore> {
        self.conn.core()
    }

    fn failed_lookups(&self) -> &Cell<FailedLookups> {
        self.conn.failed_lookups()
    }

    fn body_received(&self) -> u64 {
        self.with_body(|body| body.bytes())
    }

    fn is_body_cut_off(&self) -> bool {
        self.with_body(|body| body.is_cut_off())
    }

    fn header(&self, head: &Head<'_>) -> Header {
        Header {
            block: head::write(head, self.conn.core()),
            length: head.length.filter(|_| !head.may_have_trailers),
            has_body: head.has_body && head.upgrade.is_none(),
        }
    }

    fn framing(&self, _: bool) -> Framing {
        Framing::ByFrames
    }

    fn poll_send(
        &self,
        context: &mut Context<'_>,
        header: &mut Option<Header>,
        data: &[u8],
        is_last: bool,
    ) -> Poll<io::Result<Progress>> {
        let has_header = header.is_some();
        if has_header {
            ready!(self.extended(self.poll_room(context), false))?;
        }
        if let Some(header) = header.take() {
            self.send_header(header, false);
        }
        let announced = self.announced.get().map_or(0, NonZeroU64::get);
        let ends = (is_last || announced == data.len() as u64) && !data.is_empty();
        let body_bytes = match self.poll_data(context, data, ends) {
            Poll::Pending if has_header => 0,
            sent => ready!(self.extended(sent, true))?,
        };
        let announced = announced.saturating_sub(body_bytes as u64);
        self.announced.set(NonZeroU64::new(announced));
        Poll::Ready(Ok(Progress {
            bytes: body_bytes,
            body_bytes,
            is_complete: body_bytes == data.len(),
        }))
    }

    fn poll_send_upgraded(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.extended(self.poll_data(context, bytes, false), true)
    }

    fn is_writing(&self) -> bool {
        false
    }

    /// All streams share the turn of the connection. One that has used it up waits by its priority: if it only yielded, a less urgent
    /// one would be next.
    fn own_turn(&self) -> Option<&Turn> {
        None
    }

    fn window(&self) -> usize {
        self.conn.with_wire(|wire| wire.window(self.id))
    }

    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.extended(self.poll_room(context), true))?;
        if self.window() == 0 {
            self.conn.wait_for_window(self.id, context);
            return self.extended(Poll::Pending, true);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_end(
        &self,
        context: &mut Context<'_>,
        header: &mut Option<Header>,
        trailers: &Trailers,
    ) -> Poll<io::Result<Progress>> {
        // The last frame of the body may have ended the stream.
        let is_open = self.conn.with_wire(|wire| wire.is_sendable(self.id));
        if !is_open && (header.is_some() || !self.has_sent_end.get()) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if is_open {
            ready!(self.extended(self.poll_room(context), false))?;
            let mut block = FieldBlock::default();
            trailers
                .fields()
                .for_each(|(name, value)| block.field(name, value));
            let has_trailers = !block.as_bytes().is_empty();
            match header.take() {
                Some(header) => self.send_header(header, !has_trailers),
                None if !has_trailers => self.end_output(),
                None => {}
            }
            if has_trailers {
                self.conn
                    .with_wire(|wire| wire.send_fields(self.id, block.as_bytes(), true));
            }
        }
        Poll::Ready(Ok(Progress {
            bytes: 0,
            body_bytes: 0,
            is_complete: true,
        }))
    }

    /// Frames are made in memory.
    fn socket(&self) -> Option<Infallible> {
        None
    }

    fn reset(&self) {
        self.conn.with_wire(|wire| {
            if wire.is_sendable(self.id) {
                wire.send_reset(self.id, ErrorCode::Internal);
            }
        });
    }
}
