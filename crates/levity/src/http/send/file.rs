//! Sending a file: chunk by chunk, from wherever each is soonest to be had.

use std::io;
use std::os::fd::BorrowedFd;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use levity_disk::memory::ALIGNMENT;
use levity_disk::{Class, Meta, OpenFile, Ready, transmit, usage};
use levity_net::TURN_BYTES_MAX;
use tokio::time;

use super::{ResponseSink, SendError, Sender, gone, patiently};
use crate::disk_client::{DiskClient, FIRST_BYTES, Read, ReadAhead, WHOLE_BYTES, is_refused};
use crate::http::file_version::{EVIDENCE_BYTES_MAX, Verdict, Version};
use crate::http::response::FileBody;

/// The smallest read from the page cache, for a client that takes little at a time.
const WINDOW_BYTES_MIN: usize = 16 * 1024;

/// In bytes: a page on most machines.
///
/// A probe that misses makes the kernel read into the page cache, past which a large file may be read:
/// so the first one there asks for little.
const PROBE_BYTES: usize = 4096;

/// The largest chunk asked of an engine, when the configuration names none.
const CHUNK_BYTES_MAX: usize = 512 * 1024;

/// The same, of a disk that takes [`SLOW_READ_MIN`] for a read.
const SLOW_CHUNK_BYTES_MAX: usize = 1 << 20;

/// A disk that takes so long has a head to move, or a network to ask.
const SLOW_READ_MIN: Duration = Duration::from_millis(2);

/// A chunk is read ahead for a client that takes at most so many times as long for a chunk as the disk.
const AHEAD_RATIO: u32 = 4;

/// A client that takes longer does not keep a chunk in memory: what is left of it is read again.
const HOLD_MAX: Duration = Duration::from_secs(1);

/// An append may take so long between the new modification time and the new size: the kernel copies what is
/// appended in between, and may wait for the journal.
const APPEND_MAX: Duration = Duration::from_secs(1);

/// How often it is looked whether an append is done.
const APPEND_INTERVAL: Duration = Duration::from_millis(10);

/// How fast the disk and the client have been so far, and how much is read at once for them.
pub(super) struct Pace {
    /// How much to read from the page cache at once: about what the client takes at once.
    window_bytes: usize,
    /// How much to ask of an engine next.
    chunk_bytes: usize,
    /// How long the disk took for the last chunk that an engine read.
    read_in: Duration,
    /// How long the client took for the last chunk that an engine handed over.
    sent_in: Option<Duration>,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            window_bytes: FIRST_BYTES,
            chunk_bytes: FIRST_BYTES,
            read_in: Duration::ZERO,
            sent_in: None,
        }
    }

    /// Asks for more next time of a client that took all in time, and for about what it took of one that
    /// did not: chunks that wait for it take memory.
    fn keep(&mut self, sent: usize, bytes: usize) {
        self.chunk_bytes = match sent < bytes {
            true => sent.next_power_of_two().max(WINDOW_BYTES_MIN),
            false => self.next_chunk_bytes(),
        };
    }

    /// For a client that takes all in time: twice as much, and at once as much as goes to one read where
    /// the disk takes so long to begin one that the bytes themselves are the least of it.
    fn next_chunk_bytes(&self) -> usize {
        match self.read_in >= SLOW_READ_MIN {
            true => SLOW_CHUNK_BYTES_MAX,
            false => (self.chunk_bytes * 2).min(CHUNK_BYTES_MAX),
        }
    }

    /// Whether the client takes what it gets about as fast as the disk gives it; that shows with the
    /// second chunk.
    fn keeps_up(&self) -> bool {
        let in_time = self.read_in * AHEAD_RATIO;
        self.sent_in.is_some_and(|sent_in| sent_in <= in_time)
    }
}

/// What came of a read from the page cache.
enum Cached {
    /// Bytes that left.
    Left(usize),
    /// The page cache does not have the next byte.
    Miss,
}

impl<S: ResponseSink> Sender<'_, S> {
    /// Sends a part of a file, chunk by chunk, from wherever each is soonest to be had.
    pub(super) async fn file(
        &mut self,
        file: &mut FileBody,
        disk: &mut DiskClient<'_>,
    ) -> Result<(), SendError> {
        let may_probe = file.file.reads_inline();
        let mut probe = may_probe && file.ready.is_none();
        let mut ahead = None;
        while file.remaining > 0 {
            let (ready, chunk) = match file.ready.take() {
                Some(ready) => {
                    let read = disk.trace.last_read();
                    self.pace.read_in = read.time;
                    (ready, read.chunk)
                }
                None if probe && self.may_probe(file) => {
                    let from = Instant::now();
                    match self.cached(file).await? {
                        Cached::Left(bytes) => {
                            let to = self.last_byte.unwrap_or(from);
                            disk.trace.wrote(None, from, to, bytes as u64);
                        }
                        Cached::Miss => probe = false,
                    }
                    continue;
                }
                None => {
                    let read = self.chunk(file, ahead.take(), disk).await?;
                    // While the disk is slower than memory another probe would only miss again.
                    probe = may_probe && read.was_cached;
                    self.keep_timing(disk.trace);
                    (read.ready, read.chunk)
                }
            };
            let wanted = file.remaining.min(ready.len() as u64);
            if !probe {
                ahead = self.ahead(file, wanted, disk);
            }
            let bytes = self.timed(ready, chunk, file, disk).await?;
            if (bytes as u64) < wanted {
                // A slow client: it keeps no memory while it is waited for.
                ahead = None;
                self.writable().await?;
                // What it did not take is in the page cache now, unless it was read past it.
                probe = may_probe;
            }
        }
        Ok(())
    }

    /// A probe that misses makes the kernel read at once, past every queue of ours: only while the
    /// device has room, or when a miss is unlikely.
    fn may_probe(&self, file: &FileBody) -> bool {
        file.cached.warm.get() || self.sink.worker().disk.has_room(file.file.meta().device)
    }

    /// Asks for the chunk behind the `bytes` that are about to leave, if the disk would otherwise hold
    /// up a client that keeps up with it.
    fn ahead(&self, file: &FileBody, bytes: u64, disk: &DiskClient<'_>) -> Option<ReadAhead> {
        if !self.pace.keeps_up() {
            return None;
        }
        let offset = file.offset + bytes;
        let bytes = self.next_bytes(
            disk,
            offset,
            file.remaining - bytes,
            self.pace.next_chunk_bytes(),
        );
        (bytes > 0).then(|| disk.read_ahead(&file.file, offset, bytes))
    }

    /// How much to ask for at `offset`.
    fn next_bytes(&self, disk: &DiskClient<'_>, offset: u64, remaining: u64, auto: usize) -> usize {
        let bytes_max = disk.chunk_bytes.unwrap_or(auto);
        // A chunk ends where a block does, so that reads past the page cache share none.
        let bytes_max = bytes_max - (offset % ALIGNMENT as u64) as usize;
        bytes_max.min(usize::try_from(remaining).unwrap_or(usize::MAX))
    }

    /// The next chunk: what was asked for ahead, or else what an engine is asked for now. Larger than
    /// the last if the client took that within [`HOLD_MAX`], else about what it took.
    pub(super) async fn chunk(
        &mut self,
        file: &mut FileBody,
        ahead: Option<ReadAhead>,
        disk: &mut DiskClient<'_>,
    ) -> Result<Read, SendError> {
        if let Some(ahead) = ahead.filter(|ahead| ahead.offset == file.offset)
            && let Some(read) = disk.fetch(ahead).await.map_err(SendError::Unreadable)?
        {
            self.pace.read_in = disk.trace.last_read().time;
            return self.checked(read, 1, file, disk).await;
        }
        let bytes = self.next_bytes(disk, file.offset, file.remaining, self.pace.chunk_bytes);
        let (read, enough) = match self.untouched() {
            true => self.first_chunk(file, bytes, disk).await,
            false => {
                let read = disk.read(&file.file, file.offset, bytes, Class::Next);
                read.await.map(|read| (read, 1))
            }
        }
        .map_err(SendError::Unreadable)?;
        self.pace.read_in = disk.trace.last_read().time;
        self.checked(read, enough, file, disk).await
    }

    /// Reads `bytes`, or all that is to be sent if that is little and there is memory for it; tells how
    /// many were asked for.
    async fn first_chunk(
        &self,
        file: &FileBody,
        bytes: usize,
        disk: &mut DiskClient<'_>,
    ) -> io::Result<(Read, usize)> {
        if disk.may_read_whole(file.remaining) {
            let all = self.next_bytes(disk, file.offset, file.remaining, WHOLE_BYTES);
            match disk.read(&file.file, file.offset, all, Class::First).await {
                // Others were quicker to take the memory; there may be enough for less.
                Err(error) if all > bytes && is_refused(&error) => {}
                read => return Ok((read?, all)),
            }
        }
        let read = disk.read(&file.file, file.offset, bytes, Class::First);
        Ok((read.await?, bytes))
    }

    /// Passes on what is of the version that is sent, if it is `enough`.
    async fn checked(
        &self,
        read: Read,
        enough: usize,
        file: &mut FileBody,
        disk: &mut DiskClient<'_>,
    ) -> Result<Read, SendError> {
        let still_sent = match file.version.judge(&read.now) {
            Verdict::Same => true,
            Verdict::Rewritten => false,
            Verdict::Unclear => self.look_again(&read.now, file, disk).await?,
        };
        match read.ready.len() >= enough {
            _ if !still_sent => Err(SendError::Rewritten),
            true => Ok(read),
            false => Err(SendError::Unreadable(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Whether the file, which is as in `now`, still has the bytes that were sent last. Waits for an append
    /// that may be under way.
    async fn look_again(
        &self,
        now: &Meta,
        file: &mut FileBody,
        disk: &mut DiskClient<'_>,
    ) -> Result<bool, SendError> {
        let Some(range) = file.version.evidence_range() else {
            return Ok(file.version.settle_unsent(now));
        };
        let since = Instant::now();
        loop {
            let (found, now) = self.evidence(range, file, disk).await?;
            if file.version.settle(&found, &now) {
                return Ok(true);
            }
            if !file.version.may_be_growing(&found, &now) || since.elapsed() >= APPEND_MAX {
                return Ok(false);
            }
            time::sleep(APPEND_INTERVAL).await;
        }
    }

    /// What `file` has in `range` now, and what `fstat` said after that was read: by a read that cannot
    /// block, or else by an engine.
    async fn evidence(
        &self,
        range: (u64, usize),
        file: &FileBody,
        disk: &mut DiskClient<'_>,
    ) -> Result<(Vec<u8>, Meta), SendError> {
        if let Some(found) = evidence_inline(range, &file.file) {
            return Ok(found);
        }
        let (offset, bytes) = range;
        let read = disk.read(&file.file, offset, bytes, Class::Next).await;
        let Read { ready, now, .. } = read.map_err(SendError::Unreadable)?;
        // Where so few bytes are still in the page cache, the engine is the one that waits on the loop.
        let found = ready.into_bytes(disk.worker().disk.budget());
        Ok((found.map_err(SendError::Unreadable)?.to_vec(), now))
    }

    /// [`Sender::ready`] of `chunk`, with a look at the clock before and after.
    async fn timed(
        &mut self,
        ready: Ready,
        chunk: Option<usize>,
        file: &mut FileBody,
        disk: &mut DiskClient<'_>,
    ) -> Result<usize, SendError> {
        let wanted = file.remaining.min(ready.len() as u64);
        let (from, before) = (Instant::now(), self.body_bytes);
        let sent = self.ready(ready, file).await;
        let now = Instant::now();
        self.pace.sent_in = Some(now - from);
        // A client that did not take all was waited for after its last byte.
        let took_all = matches!(&sent, Ok(bytes) if *bytes as u64 == wanted);
        let to = self.last_byte.filter(|_| took_all).unwrap_or(now);
        disk.trace.wrote(chunk, from, to, self.body_bytes - before);
        sent
    }

    /// Sends what an engine handed over, and no more than is wanted of `file`; tells how much left.
    async fn ready(&mut self, ready: Ready, file: &mut FileBody) -> Result<usize, SendError> {
        let ready = match self.sink.has_socket() {
            true => ready,
            false => self.in_memory(ready)?,
        };
        let bytes = ready
            .len()
            .min(usize::try_from(file.remaining).unwrap_or(usize::MAX));
        let sent = match &ready {
            Ready::Bytes(buffer) => {
                let memory_file = buffer.memory_file();
                let memory_file = memory_file.filter(|_| self.sink.has_socket());
                let send = async |sender: &mut Self| {
                    let Some((memory, offset)) = memory_file else {
                        return sender.bytes(&buffer[..bytes]).await;
                    };
                    let call = |socket: BorrowedFd<'_>, at, turn| {
                        transmit::send_shared(socket, memory, offset + at, turn).map(Some)
                    };
                    sender.moved(bytes, call).await
                };
                let sent = self.held(send).await?;
                self.pace.keep(sent, bytes);
                sent
            }
            Ready::PageCache {
                file: from, offset, ..
            } => {
                let worker = self.sink.worker().clone();
                let version = &mut file.version;
                let send = async |sender: &mut Self| {
                    let call = |socket: BorrowedFd<'_>, at: u64, turn| {
                        let is_still_sent = is_still_sent(version, from, offset + at, turn);
                        // The engine has looked a moment ago, and each piece has to bring some bytes.
                        if !is_still_sent.unwrap_or(at == 0) {
                            return Ok(None);
                        }
                        let sendfile = || transmit::sendfile(socket, from, offset + at, turn);
                        let (sent, slept) = usage::slept_during(sendfile);
                        if slept {
                            worker.stats.sendfile_waits.add(1);
                        }
                        sent.map(Some)
                    };
                    sender.moved(bytes, call).await
                };
                self.held(send).await?
            }
        };
        if let Ready::Bytes(buffer) = &ready {
            file.version.keep_evidence(file.offset, &buffer[..sent]);
        }
        file.advance(sent);
        Ok(sent)
    }

    /// Sends a chunk that takes memory, or that may not stay in the page cache, for at most
    /// [`HOLD_MAX`]; tells how much left by then.
    async fn held(
        &mut self,
        send: impl AsyncFnOnce(&mut Self) -> Result<(), SendError>,
    ) -> Result<usize, SendError> {
        let before = self.body_bytes;
        // What left is counted where it leaves: the end may fall between a write and its return.
        match time::timeout(HOLD_MAX, send(self)).await {
            Ok(sent) => sent?,
            Err(_) => self.sink.timer().clear(),
        }
        Ok((self.body_bytes - before) as usize)
    }

    /// Moves bytes to the socket by a system call that takes them from a descriptor: it is told at which
    /// of them to begin, and how many make a turn. It says `None` to leave the rest.
    async fn moved(
        &mut self,
        bytes: usize,
        mut call: impl FnMut(BorrowedFd<'_>, u64, usize) -> io::Result<Option<usize>>,
    ) -> Result<(), SendError> {
        self.header_with_more().await?;
        let mut sent = 0;
        while sent < bytes {
            let turn = (bytes - sent).min(TURN_BYTES_MAX);
            match self.sink.try_move(|socket| call(socket, sent as u64, turn)) {
                Ok(None) => return Ok(()),
                Ok(Some(0)) => {
                    return Err(SendError::Unreadable(io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(Some(moved)) => {
                    sent += moved;
                    self.count(moved, moved).await;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.writable().await?;
                }
                Err(error) if is_of_client(&error) => return Err(SendError::Gone),
                Err(error) => return Err(SendError::Unreadable(error)),
            }
        }
        Ok(())
    }

    /// Sends the header so that the kernel waits for body bytes to fill the packet.
    async fn header_with_more(&mut self) -> Result<(), SendError> {
        self.make_header();
        while self.header.is_some() {
            match self.sink.try_send_header(&mut self.header) {
                Ok(moved) => self.count(moved.bytes, moved.body_bytes).await,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.writable().await?;
                }
                Err(_) => return Err(SendError::Gone),
            }
        }
        Ok(())
    }

    /// The same bytes for a client that takes bytes from memory only.
    fn in_memory(&self, ready: Ready) -> Result<Ready, SendError> {
        let bytes = ready.into_bytes(self.sink.worker().disk.budget());
        bytes.map(Ready::Bytes).map_err(SendError::Unreadable)
    }

    /// One read from the page cache and one write of it, in one turn of the loop: the bytes need no
    /// buffer of their own, and those that the client does not take now are read again.
    async fn cached(&mut self, file: &mut FileBody) -> Result<Cached, SendError> {
        let worker = self.sink.worker().clone();
        let window_bytes =
            match file.cached.warm.get() || file.cached.entry.meta.size < WHOLE_BYTES as u64 {
                true => self.pace.window_bytes,
                false => PROBE_BYTES,
            };
        let wanted = window_bytes.min(usize::try_from(file.remaining).unwrap_or(usize::MAX));
        self.make_header();
        let (sink, header) = (self.sink, &mut self.header);
        let moved = patiently(sink, |context| {
            ready!(sink.poll_write_ready(context)).map_err(gone)?;
            let mut scratch = worker.outbound.borrow_mut();
            scratch.clear();
            let inline = file.file.inline();
            match inline.map(|inline| inline.read_cached(&mut scratch, wanted, file.offset)) {
                Some(Ok((read, now))) if read > 0 && file.version.judge(&now) == Verdict::Same => {}
                // The engine finds out what is the matter.
                _ => return Poll::Ready(Ok(None)),
            }
            let sent = sink.poll_send(context, header, &scratch, false);
            sent.map_ok(Some).map_err(gone)
        })
        .await?;
        file.cached.warm.set(moved.is_some());
        let Some(moved) = moved else {
            return Ok(Cached::Miss);
        };
        worker.stats.reads_cached.add(1);
        let left = moved.body_bytes;
        let offset = file.offset;
        file.version
            .keep_evidence(offset, &worker.outbound.borrow()[..left]);
        file.advance(left);
        self.count(moved.bytes, moved.body_bytes).await;
        if window_bytes == self.pace.window_bytes {
            self.pace.window_bytes = (left * 2).clamp(WINDOW_BYTES_MIN, TURN_BYTES_MAX);
        }
        Ok(Cached::Left(left))
    }
}

impl FileBody {
    pub(super) fn advance(&mut self, bytes: usize) {
        self.offset += bytes as u64;
        self.remaining -= bytes as u64;
    }
}

/// Whether `file` still has the bytes of `version` that were sent last. `None` where only an engine can
/// tell.
fn holds_inline(version: &mut Version, file: &OpenFile) -> Option<bool> {
    let inline = file.inline()?;
    let Some(range) = version.evidence_range() else {
        return Some(version.settle_unsent(&inline.refresh().ok()?));
    };
    let (found, now) = evidence_inline(range, file)?;
    Some(version.settle(&found, &now))
}

/// What `file` has in the range of so many bytes from an offset. `None` where only an engine can tell.
fn evidence_inline((offset, bytes): (u64, usize), file: &OpenFile) -> Option<(Vec<u8>, Meta)> {
    let mut found = Vec::with_capacity(bytes);
    let read = file.inline()?.read_cached(&mut found, bytes, offset);
    let (count, now) = read.ok()?;
    (count == bytes).then_some((found, now))
}

/// Whether `file` is still of the version that is sent: asked before the kernel takes `turn` bytes of it
/// at `offset` from the page cache, without a copy that could be looked at. The end of them becomes the
/// evidence. `None` where only an engine can tell.
fn is_still_sent(version: &mut Version, file: &OpenFile, offset: u64, turn: usize) -> Option<bool> {
    let inline = file.inline()?;
    let bytes = turn.min(EVIDENCE_BYTES_MAX);
    let start = offset + (turn - bytes) as u64;
    let mut end = Vec::with_capacity(bytes);
    let read = inline.read_cached(&mut end, bytes, start);
    let now = read
        .map(|(_, now)| now)
        .or_else(|_| inline.refresh())
        .ok()?;
    match version.judge(&now) {
        Verdict::Same if end.len() == bytes => version.keep_evidence(start, &end),
        Verdict::Same => {}
        Verdict::Rewritten => return Some(false),
        Verdict::Unclear => return holds_inline(version, file),
    }
    Some(true)
}

/// Whether a call that moves bytes failed for the socket's reasons, not the file's.
fn is_of_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected
    )
}
