//! Sends a file in chunks, each from the fastest source: the page cache, or a disk engine.

use std::io;
use std::os::fd::BorrowedFd;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use levity_disk::memory::ALIGNMENT;
use levity_disk::{Class, Meta, OpenFile, Piped, Ready, transmit, usage};
use levity_net::TURN_BYTES_MAX;
use tokio::time;

use super::{
    ClientSocket, ResponseSink, SendError, Sender, disconnected, poll_before_body,
    with_send_timeout,
};
use crate::files::disk_client::{
    DiskClient, FIRST_BYTES, Read, ReadAhead, WHOLE_BYTES, is_refused,
};
use crate::http::file_version::{EVIDENCE_BYTES_MAX, Verdict, Version};
use crate::http::response::FileBody;

/// The minimum size of a read from the page cache in bytes, for a slow client.
const WINDOW_BYTES_MIN: usize = 16 * 1024;

/// The size of the first probe of a large file in bytes: a page on most machines. A probe that misses makes the
/// kernel read into the page cache, although the file may be read past it, so it asks for little.
const PROBE_BYTES: usize = 4096;

/// The maximum size of a chunk from an engine in bytes, if none is configured.
const CHUNK_BYTES_MAX: usize = 512 * 1024;

/// That maximum for a disk whose reads take at least [`SLOW_READ_MIN`].
const SLOW_CHUNK_BYTES_MAX: usize = 1 << 20;

/// The duration of a read from which a disk counts as slow: it has a head to move, or is on a network.
const SLOW_READ_MIN: Duration = Duration::from_millis(2);

/// Chunks are read ahead for a client that takes at most this many times as long for a chunk as the disk.
const AHEAD_RATIO: u32 = 4;

/// The maximum time that a chunk is held in memory for a slow client. The unsent rest is read again later.
pub(super) const HOLD_MAX: Duration = Duration::from_secs(1);

/// The maximum time between the changes of modification time and size in an append. The kernel copies the data
/// in between, and may wait for the journal.
const APPEND_MAX: Duration = Duration::from_secs(1);

/// The interval at which the end of an append is checked.
const APPEND_INTERVAL: Duration = Duration::from_millis(10);

/// The speed of disk and client so far, and the resulting read sizes.
pub(super) struct Pace {
    /// The size of the next read from the page cache: about what the client takes at once.
    window_bytes: usize,
    /// The maximum size of the next piece of a stream: about what the client takes at once.
    pub(super) piece_bytes: usize,
    /// The size of the next chunk from an engine.
    chunk_bytes: usize,
    /// The time that the disk took for the last chunk from an engine.
    read_time: Duration,
    /// The time that the client took for the last chunk from an engine.
    send_time: Option<Duration>,
    /// The offset from which on the thread that sends large files is tried; `u64::MAX` for never.
    pub(super) thread_from: u64,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            window_bytes: FIRST_BYTES,
            piece_bytes: TURN_BYTES_MAX,
            chunk_bytes: FIRST_BYTES,
            read_time: Duration::ZERO,
            send_time: None,
            thread_from: 0,
        }
    }

    /// Sets the size of the next chunk after `sent` of `bytes` were sent within [`HOLD_MAX`]: larger if that is all of
    /// them, otherwise about `sent`, because chunks that wait for the client take memory.
    fn adapt(&mut self, sent: usize, bytes: usize) {
        self.chunk_bytes = match sent < bytes {
            true => sent.next_power_of_two().max(WINDOW_BYTES_MIN),
            false => self.next_chunk_bytes(),
        };
    }

    /// Limits the next piece of a stream after the client took `sent` of `bytes` at once.
    pub(super) fn adapt_piece(&mut self, sent: usize, bytes: usize) {
        let next = match sent < bytes {
            true => sent * 2,
            false => self.piece_bytes.max(bytes * 2),
        };
        self.piece_bytes = next.clamp(WINDOW_BYTES_MIN, TURN_BYTES_MAX);
    }

    /// The size of the next chunk for a client that keeps up: twice the last one. For a slow disk it is the maximum at
    /// once, because a read costs far more time than its bytes.
    fn next_chunk_bytes(&self) -> usize {
        match self.read_time >= SLOW_READ_MIN {
            true => SLOW_CHUNK_BYTES_MAX,
            false => (self.chunk_bytes * 2).min(CHUNK_BYTES_MAX),
        }
    }

    /// Whether the client is about as fast as the disk. Unknown, and so false, before the first chunk is sent.
    fn keeps_up(&self) -> bool {
        let time_max = self.read_time * AHEAD_RATIO;
        self.send_time.is_some_and(|time| time <= time_max)
    }
}

/// The result of sending from the page cache.
enum Cached {
    /// The number of bytes that were sent.
    Sent(usize),
    /// The next byte is not in the page cache.
    Miss,
}

impl<S: ResponseSink> Sender<'_, S> {
    /// Sends `file` in chunks, each from the page cache if possible, otherwise from an engine.
    pub(super) async fn send_file(
        &mut self,
        file: &mut FileBody,
        disk: &mut DiskClient<'_>,
    ) -> Result<(), SendError> {
        let may_probe = file.file.reads_inline();
        let mut probe = may_probe && file.ready.is_none();
        let mut read_ahead = None;
        while file.remaining > 0 {
            let remaining = usize::try_from(file.remaining).unwrap_or(usize::MAX);
            if self.has_to_wait(remaining) {
                // No memory is held meanwhile. What was read is in the page cache then, unless it was read past it.
                file.ready = None;
                probe = may_probe;
                self.grant(remaining).await?;
            }
            // Boxed: most files are small.
            if probe
                && disk.sends_by_reference()
                && self.may_use_thread(file)
                && Box::pin(self.send_from_thread(file, disk)).await?
            {
                continue;
            }
            let (ready, chunk) = match file.ready.take() {
                Some(ready) => {
                    let read = disk.trace.last_read();
                    self.pace.read_time = read.time;
                    (ready, read.chunk)
                }
                None if probe && self.may_probe(file) => {
                    let from = Instant::now();
                    match self.send_cached(file).await? {
                        Cached::Sent(0) => {}
                        Cached::Sent(bytes) => {
                            let to = self.last_byte.unwrap_or(from);
                            disk.trace.wrote(None, from, to, bytes as u64);
                        }
                        Cached::Miss => probe = false,
                    }
                    continue;
                }
                None => {
                    let read = self.next_chunk(file, read_ahead.take(), disk).await?;
                    // Probing again is useful only after a read that found its bytes in the page cache.
                    probe = may_probe && read.was_cached;
                    self.update_server_timing(disk.trace);
                    (read.ready, read.chunk)
                }
            };
            let Some(ready) = self.for_sink(ready, file, disk)? else {
                continue;
            };
            let len = self.sendable(&ready, file) as u64;
            if !probe && !self.throttle.is_on() {
                read_ahead = self.read_ahead(file, len, disk);
            }
            let sent = self.send_timed(ready, chunk, file, disk).await?;
            if (sent as u64) < len {
                // No memory is held while a slow client is waited for.
                read_ahead = None;
                self.wait_writable().await?;
                // The unsent rest is in the page cache now, unless it was read past it.
                probe = may_probe;
            }
        }
        Ok(())
    }

    /// `ready` in a form that the sink takes. `None` if it has to be read again, into memory.
    fn for_sink(
        &self,
        ready: Ready,
        file: &FileBody,
        disk: &mut DiskClient<'_>,
    ) -> Result<Option<Ready>, SendError> {
        // Of bytes in a pipe that have left nothing remains to compare with what follows them.
        let is_all = ready.len() as u64 >= file.remaining;
        match ready {
            // To copy them here would wait for the disk if they have been evicted.
            Ready::PageCache { .. }
                if self.sink.socket().is_none() || !disk.sends_by_reference() =>
            {
                disk.read_into_memory();
                Ok(None)
            }
            Ready::Piped(_) if !is_all || !self.has_tcp_socket() => {
                let bytes = ready.into_bytes(disk.core().disk.budget());
                bytes
                    .map(|bytes| Some(Ready::Bytes(bytes)))
                    .map_err(SendError::Unreadable)
            }
            ready => Ok(Some(ready)),
        }
    }

    /// Whether to probe the page cache. A probe that misses makes the kernel start a read that bypasses the device
    /// queue, so probes are made only while the device has room or when a miss is unlikely.
    pub(super) fn may_probe(&self, file: &FileBody) -> bool {
        file.cached.warm.get() || self.sink.core().disk.has_room(file.file.meta().device)
    }

    /// Starts a read of the chunk after the next `bytes`, if the client keeps up with the disk.
    fn read_ahead(&self, file: &FileBody, bytes: u64, disk: &DiskClient<'_>) -> Option<ReadAhead> {
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

    /// The size of a read at `offset`: as configured, otherwise `auto`, and at most `remaining`.
    fn next_bytes(&self, disk: &DiskClient<'_>, offset: u64, remaining: u64, auto: usize) -> usize {
        let mut bytes_max = disk.chunk_bytes.unwrap_or(auto);
        if self.throttle.is_on() {
            // The rest would have to wait in memory, or be read again.
            bytes_max = bytes_max.min(self.throttle.allowance().max(ALIGNMENT));
        }
        // Chunks end at block boundaries, so that no block is read twice by direct reads.
        let bytes_max = bytes_max - (offset % ALIGNMENT as u64) as usize;
        bytes_max.min(usize::try_from(remaining).unwrap_or(usize::MAX))
    }

    /// The next chunk of `file`, from `read_ahead` if that has it, otherwise by a new read. Its version is verified.
    pub(super) async fn next_chunk(
        &mut self,
        file: &mut FileBody,
        read_ahead: Option<ReadAhead>,
        disk: &mut DiskClient<'_>,
    ) -> Result<Read, SendError> {
        self.held_file.count(self.sink.core());
        let read_ahead = read_ahead.filter(|read_ahead| read_ahead.offset == file.offset);
        if let Some(read_ahead) = read_ahead
            && let Some(read) = disk
                .fetch(read_ahead)
                .await
                .map_err(SendError::Unreadable)?
        {
            self.pace.read_time = disk.trace.last_read().time;
            return self.verified(read, 1, file, disk).await;
        }
        let bytes = self.next_bytes(disk, file.offset, file.remaining, self.pace.chunk_bytes);
        let (read, len_min) = match self.is_committed() {
            true => {
                let read = disk.read(&file.file, file.offset, bytes, Class::Later);
                read.await.map(|read| (read, 1))
            }
            false => self.first_chunk(file, bytes, disk).await,
        }
        .map_err(SendError::Unreadable)?;
        self.pace.read_time = disk.trace.last_read().time;
        self.verified(read, len_min, file, disk).await
    }

    /// Reads the first `bytes` of a response, or all of it if it is small and memory is ample. Also returns the number
    /// of bytes requested.
    async fn first_chunk(
        &self,
        file: &FileBody,
        bytes: usize,
        disk: &mut DiskClient<'_>,
    ) -> io::Result<(Read, usize)> {
        if disk.may_read_whole(file.remaining) {
            let whole = self.next_bytes(disk, file.offset, file.remaining, WHOLE_BYTES);
            match disk
                .read(&file.file, file.offset, whole, Class::First)
                .await
            {
                // Other requests have taken the memory meanwhile. A smaller read may still get some.
                Err(error) if whole > bytes && is_refused(&error) => {}
                read => return Ok((read?, whole)),
            }
        }
        let read = disk.read(&file.file, file.offset, bytes, Class::First);
        Ok((read.await?, bytes))
    }

    /// Returns `read` if it is of the version that is sent and has at least `len_min` bytes.
    async fn verified(
        &self,
        read: Read,
        len_min: usize,
        file: &mut FileBody,
        disk: &mut DiskClient<'_>,
    ) -> Result<Read, SendError> {
        let is_same = match file.version.judge(&read.now) {
            Verdict::Same => true,
            Verdict::Rewritten => false,
            Verdict::Unclear => self.compare_evidence(&read.now, file, disk).await?,
        };
        match read.ready.len() >= len_min {
            _ if !is_same => Err(SendError::Rewritten),
            true => Ok(read),
            false => Err(SendError::Unreadable(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Whether the file, whose metadata has changed to `now`, still has the bytes that were sent last. Waits for an
    /// append that may be in progress, at most [`APPEND_MAX`].
    pub(super) async fn compare_evidence(
        &self,
        now: &Meta,
        file: &mut FileBody,
        disk: &mut DiskClient<'_>,
    ) -> Result<bool, SendError> {
        let Some(range) = file.version.evidence_range() else {
            return Ok(file.version.confirm_without_evidence(now));
        };
        let since = Instant::now();
        loop {
            let (found, now) = self.read_evidence(range, file, disk).await?;
            if file.version.confirm(&found, &now) {
                return Ok(true);
            }
            if !file.version.may_be_growing(&found, &now) || since.elapsed() >= APPEND_MAX {
                return Ok(false);
            }
            time::sleep(APPEND_INTERVAL).await;
        }
    }

    /// Reads `range` (offset and length) of `file`, inline if that cannot block, otherwise by an engine. Also returns
    /// the result of `fstat` after the read.
    async fn read_evidence(
        &self,
        range: (u64, usize),
        file: &FileBody,
        disk: &mut DiskClient<'_>,
    ) -> Result<(Vec<u8>, Meta), SendError> {
        if let Some(found) = read_evidence_inline(range, &file.file) {
            return Ok(found);
        }
        self.held_file.count(self.sink.core());
        let (offset, bytes) = range;
        let read = disk.read(&file.file, offset, bytes, Class::Later).await;
        let Read { ready, now, .. } = read.map_err(SendError::Unreadable)?;
        // `into_bytes` can block only for the engines `sendfile` and `readahead`, which may block the loop anyway.
        let found = ready.into_bytes(disk.core().disk.budget());
        Ok((found.map_err(SendError::Unreadable)?.to_vec(), now))
    }

    /// Runs [`Sender::send_ready`] and adds its duration to the trace of `chunk`.
    async fn send_timed(
        &mut self,
        ready: Ready,
        chunk: Option<usize>,
        file: &mut FileBody,
        disk: &mut DiskClient<'_>,
    ) -> Result<usize, SendError> {
        let len = self.sendable(&ready, file) as u64;
        let (from, bytes_before) = (Instant::now(), self.body_bytes);
        let sent = self.send_ready(ready, file).await;
        let now = Instant::now();
        self.pace.send_time = Some(now - from);
        // If the client did not take all, the wait after the last byte counts too.
        let took_all = matches!(&sent, Ok(bytes) if *bytes as u64 == len);
        let to = self.last_byte.filter(|_| took_all).unwrap_or(now);
        disk.trace
            .wrote(chunk, from, to, self.body_bytes - bytes_before);
        sent
    }

    /// Sends the bytes of an engine, as far as they belong to `file`. Returns how many were sent within [`HOLD_MAX`].
    async fn send_ready(
        &mut self,
        mut ready: Ready,
        file: &mut FileBody,
    ) -> Result<usize, SendError> {
        let bytes = self.sendable(&ready, file);
        let sent = match &mut ready {
            Ready::Bytes(buffer) => {
                let memory_file = buffer.memory_file();
                let memory_file = memory_file.filter(|_| self.sink.socket().is_some());
                let send = async |sender: &mut Self| {
                    let Some((memory, offset)) = memory_file else {
                        return sender.send_bytes(&buffer[..bytes]).await;
                    };
                    let call = |socket: BorrowedFd<'_>, at, len| {
                        transmit::send_shared(socket, memory, offset + at, len).map(Some)
                    };
                    sender.transfer(bytes, call).await
                };
                let sent = self.with_hold_limit(send).await?;
                self.pace.adapt(sent, bytes);
                sent
            }
            Ready::Piped(piped) => self.send_piped(piped, bytes, file).await?,
            Ready::PageCache {
                file: from, offset, ..
            } => {
                let core = self.sink.core().clone();
                let (offset, version) = (*offset, &mut file.version);
                let send = async |sender: &mut Self| {
                    let call = |socket: BorrowedFd<'_>, at: u64, len| {
                        let is_same = verify_inline(version, from, offset + at, len);
                        // Unknown without blocking: the check by the engine then counts for the first bytes, so that
                        // each chunk makes progress.
                        if !is_same.unwrap_or(at == 0) {
                            return Ok(None);
                        }
                        let sendfile = || transmit::sendfile(socket, from, offset + at, len);
                        let (sent, slept) = usage::slept_during(sendfile);
                        if slept {
                            core.stats.sendfile_waits.add(1);
                        }
                        sent.map(Some)
                    };
                    sender.transfer(bytes, call).await
                };
                self.with_hold_limit(send).await?
            }
        };
        if let Ready::Bytes(buffer) = &ready {
            file.version.keep_evidence(file.offset, &buffer[..sent]);
        }
        file.advance(sent);
        Ok(sent)
    }

    /// Sends the first `bytes` of `piped`. Returns how many were sent within [`HOLD_MAX`].
    async fn send_piped(
        &mut self,
        piped: &mut Piped,
        bytes: usize,
        file: &mut FileBody,
    ) -> Result<usize, SendError> {
        let core = self.sink.core().clone();
        let call = |socket: BorrowedFd<'_>, _, len| {
            let sent = piped.send(socket, len)?;
            core.stats.zero_copy_bytes.add(sent as u64);
            Ok(Some(sent))
        };
        let send = async |sender: &mut Self| sender.transfer(bytes, call).await;
        let sent = self.with_hold_limit(send).await?;
        self.pace.adapt(sent, bytes);
        if piped.is_empty() {
            return Ok(sent);
        }
        if piped.refers_to_file() {
            keep_referred_evidence(file, sent);
        } else {
            // Those that have left are gone from the pipe. The next ones are of the same version.
            let next = piped.take(EVIDENCE_BYTES_MAX);
            let next = next.map_err(SendError::Unreadable)?;
            file.version.keep_evidence(file.offset + sent as u64, &next);
        }
        Ok(sent)
    }

    /// The bytes of `ready` that belong to `file` and may leave now.
    fn sendable(&self, ready: &Ready, file: &FileBody) -> usize {
        let remaining = usize::try_from(file.remaining).unwrap_or(usize::MAX);
        ready.len().min(remaining).min(self.throttle.allowance())
    }

    /// Runs `send` for at most [`HOLD_MAX`], because its chunk takes memory or may be evicted from the page cache.
    /// Returns the number of bytes sent by then.
    pub(super) async fn with_hold_limit(
        &mut self,
        send: impl AsyncFnOnce(&mut Self) -> Result<(), SendError>,
    ) -> Result<usize, SendError> {
        // The bytes are counted with each write, because the time-out may drop `send` between a write and its return.
        let bytes_before = self.body_bytes;
        match time::timeout(HOLD_MAX, send(self)).await {
            Ok(sent) => sent?,
            Err(_) => self.sink.timer().clear(),
        }
        Ok((self.body_bytes - bytes_before) as usize)
    }

    /// Transfers bytes to the socket by `call`, a system call that takes them from a descriptor. Its arguments are the
    /// socket, the index of the first byte and the maximum number of bytes. It returns `None` to end the transfer
    /// early.
    pub(super) async fn transfer(
        &mut self,
        bytes: usize,
        mut call: impl FnMut(BorrowedFd<'_>, u64, usize) -> io::Result<Option<usize>>,
    ) -> Result<(), SendError> {
        // Before the header, which would wait in the kernel for the body.
        self.grant(bytes).await?;
        self.send_header_with_more().await?;
        let mut sent = 0;
        while sent < bytes {
            let len = self.grant((bytes - sent).min(TURN_BYTES_MAX)).await?;
            match self.try_move(|socket| call(socket, sent as u64, len)) {
                Ok(None) => return Ok(()),
                Ok(Some(0)) => {
                    return Err(SendError::Unreadable(io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(Some(moved)) => {
                    sent += moved;
                    self.count_sent(moved, moved).await;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait_writable().await?;
                }
                Err(error) if is_socket_error(&error) => return Err(SendError::Gone),
                Err(error) => return Err(SendError::Unreadable(error)),
            }
        }
        Ok(())
    }

    /// Sends the rest of the header with `MSG_MORE`, so that body bytes share its packet.
    pub(super) async fn send_header_with_more(&mut self) -> Result<(), SendError> {
        self.encode_header();
        while self.header.is_some() {
            let socket = self.sink.socket().ok_or(SendError::Gone);
            // The socket borrows the connection, which others use while this waits.
            let sent = socket?.try_send_header(&mut self.header);
            match sent {
                Ok(progress) => self.count_sent(progress.bytes, progress.body_bytes).await,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait_writable().await?;
                }
                Err(_) => return Err(SendError::Gone),
            }
        }
        Ok(())
    }

    /// Reads from the page cache and writes to the client, in one poll. The scratch memory of the worker suffices,
    /// because bytes that the client does not take now are read again.
    async fn send_cached(&mut self, file: &mut FileBody) -> Result<Cached, SendError> {
        let core = self.sink.core().clone();
        let window_bytes =
            match file.cached.warm.get() || file.cached.entry.meta.size < WHOLE_BYTES as u64 {
                true => self.pace.window_bytes,
                false => PROBE_BYTES,
            };
        let len = window_bytes.min(usize::try_from(file.remaining).unwrap_or(usize::MAX));
        let len = self.grant(len).await?;
        self.encode_header();
        let (sink, header) = (self.sink, &mut self.header);
        let progress = with_send_timeout(sink, &self.held_file, |context| {
            let header_alone = ready!(poll_before_body(sink, context, header))?;
            if header_alone.is_some() {
                return Poll::Ready(Ok(header_alone));
            }
            let mut scratch = core.outbound.borrow_mut();
            scratch.clear();
            let inline = file.file.inline();
            let len = len.min(sink.window());
            match inline.map(|inline| inline.read_cached(&mut scratch, len, file.offset)) {
                Some(Ok((read, now))) if read > 0 && file.version.judge(&now) == Verdict::Same => {}
                // The engine determines the cause.
                _ => return Poll::Ready(Ok(None)),
            }
            let sent = sink.poll_send(context, header, &scratch, false);
            sent.map_ok(Some).map_err(disconnected)
        })
        .await?;
        let Some(progress) = progress else {
            file.cached.warm.set(false);
            return Ok(Cached::Miss);
        };
        let sent = progress.body_bytes;
        if sent == 0 {
            // The header alone: nothing was read.
            self.count_sent(progress.bytes, 0).await;
            return Ok(Cached::Sent(0));
        }
        file.cached.warm.set(true);
        core.stats.reads_cached.add(1);
        let offset = file.offset;
        file.version
            .keep_evidence(offset, &core.outbound.borrow()[..sent]);
        file.advance(sent);
        self.count_sent(progress.bytes, progress.body_bytes).await;
        if window_bytes == self.pace.window_bytes {
            self.pace.window_bytes = (sent * 2).clamp(WINDOW_BYTES_MIN, TURN_BYTES_MAX);
        }
        Ok(Cached::Sent(sent))
    }
}

impl FileBody {
    /// Removes the next `bytes`, which have been sent.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.offset += bytes as u64;
        self.remaining -= bytes as u64;
    }
}

/// Takes the end of the `sent` bytes for evidence, which were sent by reference. There is none if they may have changed since.
fn keep_referred_evidence(file: &mut FileBody, sent: usize) {
    if sent == 0 {
        return;
    }
    let bytes = sent.min(EVIDENCE_BYTES_MAX);
    let start = file.offset + (sent - bytes) as u64;
    match read_evidence_inline((start, bytes), &file.file) {
        Some((found, now)) if file.version.judge(&now) == Verdict::Same => {
            file.version.keep_evidence(start, &found);
        }
        _ => file.version.drop_evidence(),
    }
}

/// Whether `file` still has the bytes of `version` that were sent last. `None` if the check might block.
fn compare_evidence_inline(version: &mut Version, file: &OpenFile) -> Option<bool> {
    let inline = file.inline()?;
    let Some(range) = version.evidence_range() else {
        return Some(version.confirm_without_evidence(&inline.refresh().ok()?));
    };
    let (found, now) = read_evidence_inline(range, file)?;
    Some(version.confirm(&found, &now))
}

/// Reads a range (offset and length) of `file`, with the result of `fstat` after the read. `None` if that might
/// block.
pub(super) fn read_evidence_inline(
    (offset, bytes): (u64, usize),
    file: &OpenFile,
) -> Option<(Vec<u8>, Meta)> {
    let mut found = Vec::with_capacity(bytes);
    let read = file.inline()?.read_cached(&mut found, bytes, offset);
    let (count, now) = read.ok()?;
    (count == bytes).then_some((found, now))
}

/// Whether `file` is still the version that is sent. `None` if the check might block.
///
/// It precedes a `sendfile` of `len` bytes at `offset`, which leaves no copy to compare later. The last of these bytes
/// become the evidence.
fn verify_inline(version: &mut Version, file: &OpenFile, offset: u64, len: usize) -> Option<bool> {
    let inline = file.inline()?;
    let bytes = len.min(EVIDENCE_BYTES_MAX);
    let start = offset + (len - bytes) as u64;
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
        Verdict::Unclear => return compare_evidence_inline(version, file),
    }
    Some(true)
}

/// Whether a transfer failed because of the socket and not because of the file.
pub(super) fn is_socket_error(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::BrokenPipe
            | Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::NotConnected
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::TimedOut
    )
}
