//! Sends parts of one file as multipart/byteranges (RFC 9110, 14.6).
//!
//! Parts that are in memory or in the page cache share a write with their headers. Any other part is sent as a file of its
//! own would be, after its header.

use std::mem;
use std::task::{Poll, ready};
use std::time::Instant;

use levity_wire::range::Part;

use super::{ResponseSink, SendError, Sender, disconnected, poll_before_body, with_send_timeout};
use crate::files::disk_client::DiskClient;
use crate::http::file_version::Verdict;
use crate::http::response::{FileBody, Multipart, PartSource};

/// The size in bytes up to which one write has several parts.
const WRITE_BYTES: usize = 64 * 1024;

/// The maximum number of parts in one write, because each may take two system calls in one turn of the loop.
const WRITE_PARTS_MAX: usize = 64;

/// A position in the body.
#[derive(Debug, Clone, Copy, Default)]
struct Position {
    /// The current part. The end of the body counts as one.
    index: usize,
    /// The bytes of that part that were sent, with its header.
    sent: u64,
}

impl<S: ResponseSink> Sender<'_, S> {
    /// Sends all parts, then the end of the body.
    pub(super) async fn send_multipart(
        &mut self,
        body: &mut Multipart,
        disk: &mut DiskClient<'_>,
    ) -> Result<(), SendError> {
        let mut position = Position::default();
        // As for a file as a whole, no probe follows one that failed until an engine finds bytes in the page cache.
        let mut probe = true;
        while position.index <= body.parts.len() {
            // Before anything is read.
            self.grant(WRITE_BYTES).await?;
            let may_probe = probe || position.index == body.parts.len();
            if may_probe && self.is_at_hand(body, position) {
                probe = self.send_at_hand(body, &mut position, disk).await?;
            } else {
                probe = self.send_part(body, &mut position, probe, disk).await?;
            }
        }
        Ok(())
    }

    /// Whether to try [`Sender::send_at_hand`]. It also sends the start of a long part in a file, so that the header of
    /// the part has no packet of its own.
    fn is_at_hand(&self, body: &Multipart, position: Position) -> bool {
        let (PartSource::File(file), Some(&part)) = (&body.source, body.parts.get(position.index))
        else {
            return true;
        };
        let (start, content) = body.rest_of(part, position.sent);
        file.ready.is_none()
            && file.file.reads_inline()
            && self.may_probe(file)
            && (!start.is_empty() || content.len() <= WRITE_BYTES as u64)
    }

    /// Makes one write of what needs no disk. Returns whether there was anything.
    async fn send_at_hand(
        &mut self,
        body: &mut Multipart,
        position: &mut Position,
        disk: &mut DiskClient<'_>,
    ) -> Result<bool, SendError> {
        let from = Instant::now();
        let core = self.sink.core().clone();
        self.encode_header();
        let bytes_max = self.throttle.allowance();
        let (sink, header) = (self.sink, &mut self.header);
        let progress = with_send_timeout(sink, &self.held_file, |context| {
            let header_alone = ready!(poll_before_body(sink, context, header))?;
            if header_alone.is_some() {
                return Poll::Ready(Ok(header_alone));
            }
            let mut scratch = core.outbound.borrow_mut();
            scratch.clear();
            body.push_at_hand(*position, &mut scratch);
            if scratch.is_empty() {
                return Poll::Ready(Ok(None));
            }
            let slice = &scratch[..scratch.len().min(bytes_max)];
            let sent = sink.poll_send(context, header, slice, false);
            sent.map_ok(Some).map_err(disconnected)
        })
        .await?;
        let Some(progress) = progress else {
            if let PartSource::File(file) = &body.source {
                file.cached.warm.set(false);
            }
            return Ok(false);
        };
        let content_bytes = {
            let sent = &core.outbound.borrow()[..progress.body_bytes];
            position.advance(body, sent)
        };
        self.count_content(content_bytes);
        self.count_sent(progress.bytes, progress.body_bytes).await;
        if let PartSource::File(file) = &body.source
            && content_bytes > 0
        {
            file.cached.warm.set(true);
            core.stats.reads_cached.add(1);
            let to = self.last_byte.unwrap_or(from);
            disk.trace.wrote(None, from, to, progress.body_bytes as u64);
        }
        Ok(true)
    }

    /// Sends the rest of the current part as a file of its own; `probe` is whether the page cache may have it. Returns
    /// whether it may have the next part.
    async fn send_part(
        &mut self,
        body: &mut Multipart,
        position: &mut Position,
        mut probe: bool,
        disk: &mut DiskClient<'_>,
    ) -> Result<bool, SendError> {
        let (start, content) = body.rest_of(body.parts[position.index], position.sent);
        let PartSource::File(file) = &mut body.source else {
            unreachable!("memory is at hand");
        };
        file.offset = content.first;
        file.remaining = content.len();
        let is_read = file.ready.is_some();
        if self.is_committed() {
            self.send_bytes(&start).await?;
        } else {
            // The header of the response leaves with that of the part, so the disk has to answer before.
            if !is_read {
                probe = self.read_start(file, disk).await?;
            }
            let sending = async |sender: &mut Self| sender.send_bytes(&start).await;
            let sent = self.with_hold_limit(sending).await?;
            if sent < start.len() {
                // A slow client holds no memory.
                file.ready = None;
                self.send_bytes(&start[sent..]).await?;
            }
        }
        if !probe && file.ready.is_none() {
            probe = self.read_start(file, disk).await?;
        }
        self.send_file(file, disk).await?;
        self.count_content(content.len());
        *position = Position {
            index: position.index + 1,
            sent: 0,
        };
        Ok(probe && !is_read)
    }

    /// Reads the start of `file` by an engine, which is sent next. Returns whether it was in the page cache.
    async fn read_start(
        &mut self,
        file: &mut FileBody,
        disk: &mut DiskClient<'_>,
    ) -> Result<bool, SendError> {
        let read = self.next_chunk(file, None, disk).await?;
        self.update_server_timing(disk.trace);
        file.ready = Some(read.ready);
        Ok(read.was_cached)
    }

    fn count_content(&mut self, bytes: u64) {
        *self.content_bytes.get_or_insert(0) += bytes;
    }
}

impl Multipart {
    fn start_of(&self, part: Part) -> Vec<u8> {
        let mut start = Vec::new();
        self.push_start(part, &mut start);
        start
    }

    fn push_start(&self, part: Part, out: &mut Vec<u8>) {
        let (framing, _) = self.framing.as_ref().expect("framed with its header");
        framing.push_start(out, part);
    }

    fn end(&self) -> Vec<u8> {
        let (framing, _) = self.framing.as_ref().expect("framed with its header");
        let mut end = Vec::new();
        framing.push_end(&mut end);
        end
    }

    /// What is left of the header of `part` and of its content after `sent` bytes of both. Some of the content is left.
    fn rest_of(&self, part: Part, sent: u64) -> (Vec<u8>, Part) {
        let mut start = self.start_of(part);
        let content = Part {
            first: part.first + sent.saturating_sub(start.len() as u64),
            ..part
        };
        let sent = start.len().min(usize::try_from(sent).unwrap_or(usize::MAX));
        start.drain(..sent);
        (start, content)
    }

    /// Appends to `out` what follows `position` and needs no disk: about [`WRITE_BYTES`], and none if the content of the
    /// current part needs one.
    fn push_at_hand(&self, position: Position, out: &mut Vec<u8>) {
        let Position { index, mut sent } = position;
        let parts = &self.parts[index.min(self.parts.len())..];
        for &part in parts.iter().take(WRITE_PARTS_MAX) {
            let before = out.len();
            let (start, content) = self.rest_of(part, mem::take(&mut sent));
            out.extend_from_slice(&start);
            // An application may send a header of any length.
            let room = WRITE_BYTES.saturating_sub(out.len()).max(1);
            let length = usize::try_from(content.len()).unwrap_or(usize::MAX);
            // A long part begins a write of its own, so that the rest of it can be sent without a copy.
            let copied = match before > 0 && length > room {
                true => 0,
                false => self.source.copy(content.first, length.min(room), out),
            };
            if copied == 0 {
                out.truncate(before);
            }
            if copied < length {
                return;
            }
        }
        if parts.len() <= WRITE_PARTS_MAX {
            let sent = usize::try_from(sent).expect("the end is short");
            out.extend_from_slice(&self.end()[sent..]);
        }
    }
}

impl PartSource {
    /// Appends up to `bytes` from `offset` to `out`, if that needs no disk. Returns how many.
    fn copy(&self, offset: u64, bytes: usize, out: &mut Vec<u8>) -> usize {
        match self {
            Self::Memory(cached) => {
                let start = usize::try_from(offset).expect("a body in memory is small");
                out.extend_from_slice(&cached.entry.bytes()[start..start + bytes]);
                bytes
            }
            Self::File(file) => copy_cached(file, offset, bytes, out),
        }
    }
}

fn copy_cached(file: &FileBody, offset: u64, bytes: usize, out: &mut Vec<u8>) -> usize {
    let before = out.len();
    let inline = file.file.inline();
    match inline.map(|inline| inline.read_cached(out, bytes, offset)) {
        Some(Ok((count, now))) if file.version.judge(&now) == Verdict::Same => count,
        // The engine determines the cause.
        _ => {
            out.truncate(before);
            0
        }
    }
}

impl Position {
    /// Moves past `sent`, the next bytes of `body`. Returns how many of them are content of parts.
    fn advance(&mut self, body: &mut Multipart, mut sent: &[u8]) -> u64 {
        let mut content_bytes = 0;
        while !sent.is_empty() {
            let Some(&part) = body.parts.get(self.index) else {
                self.sent += sent.len() as u64;
                let is_complete = self.sent == body.end().len() as u64;
                self.index += usize::from(is_complete);
                break;
            };
            let (start, content) = body.rest_of(part, self.sent);
            let of_start;
            (of_start, sent) = sent.split_at(start.len().min(sent.len()));
            let bytes = usize::try_from(content.len()).unwrap_or(usize::MAX);
            let of_content;
            (of_content, sent) = sent.split_at(bytes.min(sent.len()));
            if let PartSource::File(file) = &mut body.source {
                file.version.keep_evidence(content.first, of_content);
            }
            content_bytes += of_content.len() as u64;
            self.sent += (of_start.len() + of_content.len()) as u64;
            if of_content.len() == bytes {
                *self = Self {
                    index: self.index + 1,
                    sent: 0,
                };
            }
        }
        content_bytes
    }
}
