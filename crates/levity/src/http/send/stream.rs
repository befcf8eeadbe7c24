//! Sends content that is received meanwhile, and the bytes of a tunnel after an upgrade.

use std::future::poll_fn;
use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::task::Poll;
use std::time::Instant;

use levity_disk::Pipe;
use levity_telemetry::access_log::Source;
use levity_telemetry::step::Step;
use levity_telemetry::trace::Trace;

use super::throttle::STREAM_BYTES_MAX;
use super::{Framing, ResponseSink, SendError, Sender, disconnected, with_send_timeout};
use crate::http::response::{BodyStream, Piece, PieceLimits, Upgrade};
use crate::loop_core::pipes::PipeLease;

impl<S: ResponseSink> Sender<'_, S> {
    /// Sends each piece of `stream` as it is received.
    pub(super) async fn send_stream(
        &mut self,
        stream: &mut dyn BodyStream,
        trace: &mut Trace,
    ) -> Result<(), SendError> {
        // Chunks and frames have to be written between the bytes.
        let is_plain = matches!(self.framing, Framing::ByLength | Framing::ByClosing);
        let may_splice = is_plain && self.has_tcp_socket() && !self.throttle.is_on();
        loop {
            self.grant_beside(&mut *stream, STREAM_BYTES_MAX).await?;
            match self.next_piece(stream, may_splice, trace).await? {
                Piece::Data { bytes, is_last } => {
                    self.send_piece(Some(&mut *stream), &bytes, is_last, trace)
                        .await?;
                    // Returned before the next wait, so that an idle stream holds no memory.
                    self.sink.core().return_piece(bytes);
                }
                Piece::Spliced(pipe) => self.send_spliced(stream, pipe, trace).await?,
                Piece::End(trailers) => return self.finish(&trailers).await,
            }
        }
    }

    /// Waits for the next piece, in the step of its source. The header is sent before the wait, because a client
    /// of an event stream expects it before the first event.
    pub(super) async fn next_piece(
        &mut self,
        stream: &mut dyn BodyStream,
        may_splice: bool,
        trace: &mut Trace,
    ) -> Result<Piece, SendError> {
        let is_header_sent = self.has_header && self.header.is_none();
        let limits = PieceLimits {
            bytes_max: self.pace.piece_bytes.min(self.throttle.allowance()),
            may_splice,
        };
        let step = match stream.source() {
            Source::Upstream => Step::Upstream,
            _ => Step::Respond,
        };
        let mut waits = false;
        let piece = poll_fn(|context| match stream.poll_piece(context, limits) {
            Poll::Ready(piece) => Poll::Ready(Some(piece)),
            Poll::Pending if is_header_sent => {
                if !mem::replace(&mut waits, true) {
                    trace.enter(step);
                }
                Poll::Pending
            }
            Poll::Pending => Poll::Ready(None),
        })
        .await;
        let piece = match piece {
            Some(piece) => piece,
            None => {
                self.send_header().await?;
                waits = true;
                trace.enter(step);
                poll_fn(|context| stream.poll_piece(context, limits)).await
            }
        };
        if waits {
            trace.enter(Step::Send);
        }
        piece.map_err(SendError::Source)
    }

    /// Sends a piece of at least one byte and adds its duration to `trace`; `is_last` is whether it ends the body
    /// without trailers. The upload of the request continues meanwhile.
    pub(super) async fn send_piece(
        &mut self,
        stream: Option<&mut dyn BodyStream>,
        data: &[u8],
        is_last: bool,
        trace: &mut Trace,
    ) -> Result<(), SendError> {
        let (from, bytes_before) = (Instant::now(), self.body_bytes);
        let sent = self.send_all(stream, data, is_last).await;
        self.wrote_piece(from, bytes_before, &sent, trace);
        sent
    }

    /// Sends the bytes in `pipe` in the same way.
    async fn send_spliced(
        &mut self,
        stream: &mut dyn BodyStream,
        mut pipe: PipeLease,
        trace: &mut Trace,
    ) -> Result<(), SendError> {
        let (from, bytes_before) = (Instant::now(), self.body_bytes);
        let sent = self.drain_pipe(stream, &mut pipe).await;
        let spliced_bytes = self.body_bytes - bytes_before;
        self.sink.core().stats.spliced_bytes.add(spliced_bytes);
        self.wrote_piece(from, bytes_before, &sent, trace);
        sent
    }

    fn wrote_piece(
        &self,
        from: Instant,
        bytes_before: u64,
        sent: &Result<(), SendError>,
        trace: &mut Trace,
    ) {
        // The wait before a failure counts too.
        let to = self.last_byte.filter(|_| sent.is_ok());
        let to = to.unwrap_or_else(Instant::now);
        trace.wrote(None, from, to, self.body_bytes - bytes_before);
    }

    async fn drain_pipe(
        &mut self,
        stream: &mut dyn BodyStream,
        pipe: &mut Pipe,
    ) -> Result<(), SendError> {
        self.send_header_with_more().await?;
        while !pipe.is_empty() {
            // Without `MSG_MORE`: the backend may be silent for long.
            let drain = |socket: BorrowedFd<'_>| pipe.drain(socket, pipe.len(), false);
            match self.try_move(drain) {
                Ok(moved) => self.count_sent(moved, moved).await,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let sink = self.sink;
                    with_send_timeout(sink, &self.held_file, |context| {
                        stream.poll_upload(context).map_err(SendError::Source)?;
                        sink.poll_write_ready(context).map_err(disconnected)
                    })
                    .await?;
                }
                Err(_) => return Err(SendError::Gone),
            }
        }
        Ok(())
    }

    async fn send_all(
        &mut self,
        mut stream: Option<&mut dyn BodyStream>,
        data: &[u8],
        is_last: bool,
    ) -> Result<(), SendError> {
        let mut sent = 0;
        while sent < data.len() {
            let rest = &data[sent..];
            let granted = match &mut stream {
                Some(stream) => self.grant_beside(&mut **stream, rest.len()).await?,
                None => self.grant(rest.len()).await?,
            };
            let is_last = is_last && granted == rest.len();
            self.send_slice(&mut stream, &rest[..granted], is_last)
                .await?;
            sent += granted;
        }
        Ok(())
    }

    /// Sends all of `data`, which may leave now.
    async fn send_slice(
        &mut self,
        stream: &mut Option<&mut dyn BodyStream>,
        data: &[u8],
        is_last: bool,
    ) -> Result<(), SendError> {
        self.encode_header();
        let mut sent = 0;
        loop {
            let (sink, header) = (self.sink, &mut self.header);
            let progress = with_send_timeout(sink, &self.held_file, |context| {
                if let Some(stream) = stream {
                    stream.poll_upload(context).map_err(SendError::Source)?;
                }
                let sent = sink.poll_send(context, header, &data[sent..], is_last);
                sent.map_err(disconnected)
            })
            .await?;
            if sent == 0 {
                self.pace.adapt_piece(progress.body_bytes, data.len());
            }
            sent += progress.body_bytes;
            self.count_sent(progress.bytes, progress.body_bytes).await;
            if progress.is_complete {
                return Ok(());
            }
        }
    }

    /// Sends the header, then forwards bytes in both directions until both sides have ended.
    pub(super) async fn run_tunnel(&mut self, tunnel: &mut dyn Upgrade) -> Result<(), SendError> {
        self.send_header().await?;
        let sent = &mut self.body_bytes;
        let outcome = poll_fn(|context| tunnel.poll(context, sent)).await;
        self.sink.timer().clear();
        self.last_byte = Some(Instant::now());
        outcome.map_err(SendError::from)
    }
}
