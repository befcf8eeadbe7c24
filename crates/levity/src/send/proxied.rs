//! Sending what comes from a backend: bodies as they come, and what is said after a change of protocol.

use std::io::IoSlice;
use std::num::NonZeroUsize;

use levity_wire::http1::Trailers;
use levity_wire::http1::write::{self, CHUNK_END, ChunkSize};
use levity_wire::sendfile_header;

use super::{JOINED_BYTES_MAX, SendError, Sender, gone, patiently};
use crate::conn::Conn;
use crate::upstream::answer::Answer;
use crate::upstream::failure::Failure;
use crate::upstream::tunnel::{Broken, Tunnel};

/// The end of the last chunk, and of a body without trailers.
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

impl Sender {
    /// Sends what a backend sends, as it comes.
    pub(super) async fn upstream(
        &mut self,
        conn: &mut Conn,
        answer: &mut Answer,
    ) -> Result<(), SendError> {
        loop {
            let is_ended = answer.is_ended();
            let data = answer.take_data();
            if !data.is_empty() {
                let is_last = is_ended && !answer.has_trailers();
                self.piece(conn, answer, &data, is_last).await?;
            }
            // Whoever waits for events keeps no memory.
            conn.worker.give_piece(data);
            if is_ended {
                return self.end_of_chunks(conn, answer.take_trailers()).await;
            }
            // Whoever waits for events must not wait for the head.
            self.rest_of_head(conn).await?;
            answer.more(conn).await.map_err(SendError::Broken)?;
        }
    }

    /// Sends a piece of a body whose length may be known by its end only.
    async fn piece(
        &mut self,
        conn: &mut Conn,
        answer: &mut Answer,
        data: &[u8],
        is_last: bool,
    ) -> Result<(), SendError> {
        let len = NonZeroUsize::new(data.len()).filter(|_| self.chunks);
        let Some(len) = len else {
            return self.parts(conn, answer, [b"", data, b""]).await;
        };
        let size = ChunkSize::of(len);
        let end = match is_last {
            true => LAST_CHUNK,
            false => CHUNK_END,
        };
        self.chunks = !is_last;
        self.parts(conn, answer, [size.as_bytes(), data, end]).await
    }

    /// Ends a body in chunks; what came behind it goes along.
    async fn end_of_chunks(
        &mut self,
        conn: &mut Conn,
        trailers: Trailers,
    ) -> Result<(), SendError> {
        if self.chunks {
            let mut end = Vec::new();
            let fields = trailers.fields();
            let fields = fields.filter(|(name, _)| !sendfile_header::is_reserved(name));
            write::last_chunk(&mut end, fields).expect("what a parser took can be written again");
            let before = self.body_bytes;
            let sent = self.bytes(conn, &end).await;
            self.framing_bytes += self.body_bytes - before;
            sent?;
        }
        self.rest_of_head(conn).await
    }

    /// Sends a piece between what frames it as if they were one. What is left of the request goes on
    /// meanwhile: a client may read no answer before it has sent all.
    async fn parts(
        &mut self,
        conn: &mut Conn,
        answer: &mut Answer,
        parts: [&[u8]; 3],
    ) -> Result<(), SendError> {
        let worker = conn.worker.clone();
        let [before, data, behind] = parts.map(<[u8]>::len);
        let total = before + data + behind;
        let framing = |sent: usize| sent.min(before) + sent.saturating_sub(before + data);
        let mut sent = 0;
        while sent < total {
            let head = &self.head[self.head_bytes..];
            let head_bytes = head.len();
            let mut skip = sent;
            let [one, two, three] = parts.map(|part| {
                let skipped = skip.min(part.len());
                skip -= skipped;
                &part[skipped..]
            });
            let left = [head, one, two, three];
            let pushed = patiently(conn, |conn, context| {
                let uploaded = answer.poll_upload(conn, context);
                uploaded.map_err(SendError::Broken)?;
                if head_bytes + total - sent <= JOINED_BYTES_MAX {
                    let mut joined = worker.outbound.borrow_mut();
                    joined.clear();
                    left.iter().for_each(|part| joined.extend_from_slice(part));
                    return conn.transport.poll_write(context, &joined).map_err(gone);
                }
                let slices = left.map(IoSlice::new);
                conn.transport
                    .poll_write_vectored(context, &slices)
                    .map_err(gone)
            })
            .await?;
            let more = sent + pushed.saturating_sub(head_bytes);
            self.framing_bytes += (framing(more) - framing(sent)) as u64;
            self.count(conn, pushed).await;
            sent = more;
        }
        Ok(())
    }

    pub(super) async fn tunnel(
        &mut self,
        conn: &mut Conn,
        tunnel: &mut Tunnel,
    ) -> Result<(), SendError> {
        let ended = tunnel.run(conn).await;
        self.body_bytes += ended.down;
        ended.how.map_err(|end| match end {
            Broken::Silence => SendError::Timeout,
            Broken::Client => SendError::Gone,
            Broken::Backend(error) => SendError::Broken(Failure::of_connection(&error)),
        })
    }
}
