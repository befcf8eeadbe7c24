//! Sends content that is received meanwhile, and the bytes of a tunnel after an upgrade.

use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::task::Poll;

use levity_wire::http1::Trailers;
use levity_wire::http1::write::{self, CHUNK_END, ChunkSize};

use super::{ResponseSink, SendError, Sender, gone, patiently};
use crate::http::response::{BodyStream, Piece, Upgrade};

/// The end of the last chunk, and of a body without trailers.
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

impl<S: ResponseSink> Sender<'_, S> {
    /// Sends each piece of `stream` as it is received.
    pub(super) async fn stream(&mut self, stream: &mut dyn BodyStream) -> Result<(), SendError> {
        loop {
            match self.next_piece(stream).await? {
                Piece::Data { bytes, is_last } => {
                    self.piece(Some(&mut *stream), &bytes, is_last).await?;
                    // Returned before the next wait, so that an idle stream holds no memory.
                    self.sink.worker().return_piece(bytes);
                }
                Piece::End(trailers) => return self.end_of_stream(trailers).await,
            }
        }
    }

    /// Waits for the next piece. The header is sent before the wait, because a client of an event stream expects it
    /// before the first event.
    pub(super) async fn next_piece(
        &mut self,
        stream: &mut dyn BodyStream,
    ) -> Result<Piece, SendError> {
        let is_header_gone = self.has_header && self.header.is_none();
        let piece = poll_fn(|context| match stream.poll_piece(context) {
            Poll::Ready(piece) => Poll::Ready(Some(piece)),
            Poll::Pending if is_header_gone => Poll::Pending,
            Poll::Pending => Poll::Ready(None),
        })
        .await;
        let piece = match piece {
            Some(piece) => piece,
            None => {
                self.rest_of_header().await?;
                poll_fn(|context| stream.poll_piece(context)).await
            }
        };
        piece.map_err(SendError::Source)
    }

    /// Sends a piece, as a chunk if the body is chunked. The upload of the request continues meanwhile.
    pub(super) async fn piece(
        &mut self,
        stream: Option<&mut dyn BodyStream>,
        data: &[u8],
        is_last: bool,
    ) -> Result<(), SendError> {
        let len = NonZeroUsize::new(data.len()).filter(|_| self.chunks);
        let Some(len) = len else {
            return self.parts(stream, [b"", data, b""]).await;
        };
        let size = ChunkSize::of(len);
        let end = match is_last {
            true => LAST_CHUNK,
            false => CHUNK_END,
        };
        self.chunks = !is_last;
        self.parts(stream, [size.as_bytes(), data, end]).await
    }

    /// Ends the body and sends its trailers.
    pub(super) async fn end_of_stream(&mut self, trailers: Trailers) -> Result<(), SendError> {
        if self.chunks {
            let mut end = Vec::new();
            write::last_chunk(&mut end, trailers.fields())
                .expect("what a parser took can be written again");
            let before = self.body_bytes;
            let sent = self.bytes(&end).await;
            self.framing_bytes += self.body_bytes - before;
            sent?;
        }
        self.rest_of_header().await?;
        self.end(&trailers).await
    }

    /// Sends a piece with the framing before and after it, in as few writes as possible.
    async fn parts(
        &mut self,
        mut stream: Option<&mut dyn BodyStream>,
        parts: [&[u8]; 3],
    ) -> Result<(), SendError> {
        self.make_header();
        let sink = self.sink;
        let [before, data, behind] = parts.map(<[u8]>::len);
        let total = before + data + behind;
        let framing = |sent: usize| sent.min(before) + sent.saturating_sub(before + data);
        let mut sent = 0;
        while sent < total {
            let header = &mut self.header;
            let mut skip = sent;
            let left = parts.map(|part| {
                let skipped = skip.min(part.len());
                skip -= skipped;
                &part[skipped..]
            });
            let moved = patiently(sink, |context| {
                if let Some(stream) = &mut stream {
                    stream.poll_upload(context).map_err(SendError::Source)?;
                }
                sink.poll_send(context, header, left).map_err(gone)
            })
            .await?;
            let more = sent + moved.body_bytes;
            self.framing_bytes += (framing(more) - framing(sent)) as u64;
            self.count(moved).await;
            sent = more;
        }
        Ok(())
    }

    /// Sends the header, then forwards bytes in both directions until both sides have ended.
    pub(super) async fn upgrade(&mut self, tunnel: &mut dyn Upgrade) -> Result<(), SendError> {
        self.rest_of_header().await?;
        let sent = &mut self.body_bytes;
        let outcome = poll_fn(|context| tunnel.poll(context, sent)).await;
        self.sink.timer().clear();
        outcome.map_err(SendError::from)
    }
}
