//! Send: from a response to bytes on the wire.
//!
//! A head leaves together with the first bytes of its body, and only when those are in hand: until
//! then a failing disk can still be told to the client.

mod proxied;

use std::future::poll_fn;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use levity_disk::buffer::ALIGNMENT;
use levity_disk::{Class, Meta, Ready, transmit, usage};
use levity_wire::http1::{Method, Version};
use rustix::net::SendFlags;
use tokio::time;

use crate::access_log::{End, Source};
use crate::cache::Content;
use crate::conn::{Conn, TURN_BYTES_MAX};
use crate::decimal;
use crate::diagnostics;
use crate::request::Request;
use crate::resolve::{FIRST_BYTES, WHOLE_BYTES};
use crate::respond::{Body, Fields, FileBody, Response, error::reason};
use crate::trip::{Read, ReadAhead, Trips, is_refused};
use crate::upstream::failure::{Failure, Side};
use crate::upstream::sendfile::Afterwards;
use crate::upstream::visit::Visit;

/// Head and body of so many bytes are put together before they are sent: to copy them costs less than to
/// have the kernel take them from two places.
const JOINED_BYTES_MAX: usize = 2048;

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

/// What became of a response.
pub struct Sent {
    /// Part of the request has not been read: nothing can follow on the connection.
    pub unread: bool,
    /// What is to be done now.
    pub afterwards: Option<Box<Afterwards>>,
    /// The status that left, or would have.
    pub status: u16,
    /// Bytes of the body that left.
    pub bytes: u64,
    /// When the first byte left.
    pub first_byte: Option<Instant>,
    /// When it was over.
    pub ended: Instant,
    /// Where the body came from.
    pub source: Source,
    /// How it ended.
    pub end: End,
    /// Why nothing has left yet: another response may be sent in its place.
    pub unsent: Option<io::Error>,
}

/// Why a response stopped.
#[derive(Debug)]
enum Cut {
    /// The client closed or vanished.
    Gone,
    /// The client took nothing for `limits.send_timeout`.
    Timeout,
    /// The file could not be read, or is shorter than was said.
    Unreadable(io::Error),
    /// The backend did not send all of it.
    Broken(Failure),
}

/// Sends `response`, without its body to a HEAD request. A body that cannot be read before anything
/// has left is given back as [`Sent::unsent`].
pub async fn send(
    conn: &mut Conn,
    request: &Request,
    mut response: Response,
    trips: &mut Trips<'_>,
) -> Sent {
    let head_only = request.head.method == Method::Head;
    let mut sender = Sender::new(conn, &response, request.head.version);
    sender.tell_timing(trips);
    let outcome = sender
        .response(conn, &mut response.body, head_only, trips)
        .await;
    match &outcome {
        Err(Cut::Unreadable(error)) => tell(request, error),
        Err(Cut::Broken(failure)) => conn.met(|visit| visit.broke_off(failure)),
        _ => {}
    }
    let is_cut_off = matches!(
        outcome,
        Err(Cut::Timeout | Cut::Unreadable(_) | Cut::Broken(_))
    );
    if is_cut_off && !sender.untouched() {
        conn.stream.abort_on_close();
    }
    let source = source(&response.body, trips, conn.visit.as_ref());
    let mut sent = sender.sent(response.status, source, outcome);
    sent.afterwards = response.afterwards.take();
    if let Body::Upstream { answer, .. } = &response.body {
        sent.unread = !answer.is_request_received();
    }
    sent
}

/// Sends an answer to something that was no request.
pub async fn refuse(conn: &mut Conn, mut response: Response) -> Sent {
    response.close = true;
    let mut sender = Sender::new(conn, &response, Version::Http11);
    let outcome = match &response.body {
        Body::Text(text) => sender.bytes(conn, text).await,
        _ => sender.rest_of_head(conn).await,
    };
    sender.sent(response.status, Source::None, outcome)
}

/// Asks for the body of a request that waits to be asked (RFC 9110, 10.1.1).
pub async fn go_on(conn: &mut Conn) {
    interim(conn, 100, &Fields::default()).await;
}

/// Sends a head before the one that answers (RFC 9110, 15.2).
pub async fn interim(conn: &mut Conn, status: u16, fields: &Fields) {
    let mut head = Vec::new();
    // Writing to memory cannot fail.
    let _ = write!(head, "HTTP/1.1 {status} {}\r\n", reason(status));
    head.extend_from_slice(fields.as_bytes());
    head.extend_from_slice(b"\r\n");
    // A client that is gone is noticed when its body is read, or its answer sent.
    let _ = Sender::of_head(head).rest_of_head(conn).await;
}

fn tell(request: &Request, error: &io::Error) {
    let path = String::from_utf8_lossy(&request.path);
    diagnostics::say(format_args!("cannot read {path}: {error}"));
}

fn source(body: &Body, trips: &Trips<'_>, visit: Option<&Visit>) -> Source {
    match body {
        Body::Memory(..) | Body::File(_) | Body::Parts(_) if trips.count > 0 => Source::Disk,
        Body::Memory(..) => Source::Memory,
        Body::File(_) | Body::Parts(_) => Source::Cached,
        Body::Upstream { .. } | Body::Tunnel(_) => Source::Upstream,
        // An answer without a body is an application's too.
        Body::None if visit.is_some_and(Visit::is_answered) => Source::Upstream,
        Body::None | Body::Text(_) | Body::Page(_) => Source::None,
    }
}

/// The head of `response`: status line, date, what responding and filtering set, framing.
fn head(conn: &Conn, response: &Response, version: Version) -> Vec<u8> {
    let mut head = Vec::with_capacity(512);
    let status = response.status;
    head.extend_from_slice(b"HTTP/1.1 ");
    decimal::push(&mut head, u64::from(status));
    head.push(b' ');
    match response.reason.as_slice() {
        b"" => head.extend_from_slice(reason(status).as_bytes()),
        reason => head.extend_from_slice(reason),
    }
    head.extend_from_slice(b"\r\n");
    if !response.has_server {
        head.extend_from_slice(b"Server: levity\r\n");
    }
    if !response.has_date {
        head.extend_from_slice(b"Date: ");
        conn.worker.date(&mut head);
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(response.fields.as_bytes());
    if let Some(bytes) = response.body.length() {
        head.extend_from_slice(b"Content-Length: ");
        decimal::push(&mut head, bytes);
        head.extend_from_slice(b"\r\n");
    } else if is_chunked(response, version) {
        head.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    match (response.close, version) {
        // A change of protocol says itself what becomes of the connection.
        _ if response.status == 101 => head.extend_from_slice(b"\r\n"),
        (true, _) => head.extend_from_slice(b"Connection: close\r\n\r\n"),
        (false, Version::Http10) => head.extend_from_slice(b"Connection: keep-alive\r\n\r\n"),
        (false, Version::Http11) => head.extend_from_slice(b"\r\n"),
    }
    head
}

/// HTTP/1.0 knows no chunks: there the end of the connection is the end of the body.
fn is_chunked(response: &Response, version: Version) -> bool {
    response.body.is_open_ended() && version == Version::Http11
}

/// One response on its way.
struct Sender {
    head: Vec<u8>,
    head_bytes: usize,
    body_bytes: u64,
    /// The body goes out in chunks.
    chunks: bool,
    /// Bytes among `body_bytes` that only frame chunks.
    framing_bytes: u64,
    first_byte: Option<Instant>,
    /// When the last byte so far left.
    last_byte: Option<Instant>,
    /// Where the fields end in a head that has no such field.
    fields_end: usize,
    /// How much to read from the page cache at once: about what the client takes at once.
    window_bytes: usize,
    /// How much to ask of an engine next.
    chunk_bytes: usize,
    /// How long the disk took for the last chunk that an engine read.
    read_in: Duration,
    /// How long the client took for the last chunk that an engine handed over.
    sent_in: Option<Duration>,
}

/// What came of a read from the page cache.
enum Cached {
    /// Bytes that left.
    Left(usize),
    /// The page cache does not have the next byte.
    Miss,
}

impl Sender {
    fn new(conn: &Conn, response: &Response, version: Version) -> Self {
        Self {
            chunks: is_chunked(response, version),
            ..Self::of_head(head(conn, response, version))
        }
    }

    fn of_head(head: Vec<u8>) -> Self {
        Self {
            fields_end: head.len().saturating_sub(b"\r\n".len()),
            head,
            head_bytes: 0,
            body_bytes: 0,
            chunks: false,
            framing_bytes: 0,
            first_byte: None,
            last_byte: None,
            window_bytes: FIRST_BYTES,
            chunk_bytes: FIRST_BYTES,
            read_in: Duration::ZERO,
            sent_in: None,
        }
    }

    fn sent(&self, status: u16, source: Source, outcome: Result<(), Cut>) -> Sent {
        let end = match &outcome {
            Ok(()) => End::Complete,
            Err(Cut::Gone) => End::ClientAbort,
            Err(Cut::Broken(failure)) if failure.side == Side::Client => End::ClientAbort,
            Err(Cut::Timeout) => End::Timeout,
            Err(Cut::Unreadable(_) | Cut::Broken(_)) => End::Error,
        };
        // A response that is cut off ends later than with its last byte.
        let ended = self.last_byte.filter(|_| outcome.is_ok());
        let unsent = match outcome {
            Err(Cut::Unreadable(error)) if self.untouched() => Some(error),
            _ => None,
        };
        Sent {
            unread: false,
            afterwards: None,
            status,
            bytes: self.body_bytes - self.framing_bytes,
            first_byte: self.first_byte,
            ended: ended.unwrap_or_else(Instant::now),
            source,
            end,
            unsent,
        }
    }

    fn untouched(&self) -> bool {
        self.first_byte.is_none()
    }

    /// Adds what is known of the time so far to a head of which nothing has left.
    fn tell_timing(&mut self, trips: &Trips<'_>) {
        if !self.untouched() {
            return;
        }
        let Some(metrics) = trips.server_timing() else {
            return;
        };
        self.head.truncate(self.fields_end);
        let _ = write!(self.head, "Server-Timing: {metrics}\r\n\r\n");
    }

    async fn response(
        &mut self,
        conn: &mut Conn,
        body: &mut Body,
        head_only: bool,
        trips: &mut Trips<'_>,
    ) -> Result<(), Cut> {
        match body {
            _ if head_only => self.rest_of_head(conn).await,
            Body::None => self.rest_of_head(conn).await,
            Body::Text(text) => self.bytes(conn, text).await,
            Body::Page(page) => self.bytes(conn, page.bytes()).await,
            Body::Memory(hot, range) => match &hot.entry.content {
                Content::Memory(bytes, _) => self.bytes(conn, &bytes[range.clone()]).await,
                Content::File(_) => unreachable!("a memory body is of an entry in memory"),
            },
            Body::File(file) if file.remaining == 0 => self.rest_of_head(conn).await,
            // Boxed: a small file in memory needs none of it.
            Body::File(file) => Box::pin(self.file(conn, file, trips)).await,
            Body::Parts(parts) => {
                for part in parts {
                    Box::pin(self.file(conn, part, trips)).await?;
                }
                self.rest_of_head(conn).await
            }
            Body::Upstream { answer, .. } => self.upstream(conn, answer).await,
            Body::Tunnel(tunnel) => {
                self.rest_of_head(conn).await?;
                self.tunnel(conn, tunnel).await
            }
        }
    }

    async fn rest_of_head(&mut self, conn: &mut Conn) -> Result<(), Cut> {
        while self.head_bytes < self.head.len() {
            self.push(conn, &[]).await?;
        }
        Ok(())
    }

    async fn bytes(&mut self, conn: &mut Conn, bytes: &[u8]) -> Result<(), Cut> {
        let mut sent = 0;
        while sent < bytes.len() {
            sent += self.push(conn, &bytes[sent..]).await?;
        }
        self.rest_of_head(conn).await
    }

    /// Sends a part of a file, chunk by chunk, from wherever each is soonest to be had.
    async fn file(
        &mut self,
        conn: &mut Conn,
        file: &mut FileBody,
        trips: &mut Trips<'_>,
    ) -> Result<(), Cut> {
        let mut probe = file.probe && file.ready.is_none();
        let mut ahead = None;
        while file.remaining > 0 {
            let (ready, chunk) = match file.ready.take() {
                Some(ready) => {
                    self.read_in = trips.brought_in;
                    (ready, trips.brought())
                }
                None if probe && self.may_probe(conn, file) => {
                    let from = Instant::now();
                    match self.cached(conn, file).await? {
                        Cached::Left(bytes) => {
                            let to = self.last_byte.unwrap_or(from);
                            trips.wrote(None, from, to, bytes as u64);
                            file.advance(bytes);
                        }
                        Cached::Miss => probe = false,
                    }
                    continue;
                }
                None => {
                    let read = self.chunk(file, ahead.take(), trips).await?;
                    // While the disk is slower than memory another probe would only miss again.
                    probe = file.probe && read.was_cached;
                    self.tell_timing(trips);
                    (read.ready, read.chunk)
                }
            };
            if file.is_rewritten() {
                return Err(Cut::Unreadable(io::Error::other(
                    "it was rewritten while it was read",
                )));
            }
            let wanted = file.remaining.min(ready.len() as u64);
            if !probe {
                ahead = self.ahead(file, wanted, trips);
            }
            let bytes = self.timed(conn, ready, chunk, file, trips).await?;
            file.advance(bytes);
            if (bytes as u64) < wanted {
                // A slow client: it keeps no memory while it is waited for.
                ahead = None;
                self.writable(conn).await?;
                // What it did not take is in the page cache now, unless it was read past it.
                probe = file.probe;
            }
        }
        Ok(())
    }

    /// A probe that misses makes the kernel read at once, past every queue of ours: only while the
    /// device has room, or when a miss is unlikely.
    fn may_probe(&self, conn: &Conn, file: &FileBody) -> bool {
        file.hot.warm.get() || conn.worker.disk.has_room(file.file.meta().device)
    }

    /// Asks for the chunk behind the `bytes` that are about to leave, if the disk would otherwise hold
    /// up a client that takes what it gets about as fast as the disk gives it. How fast that is shows
    /// with the second chunk.
    fn ahead(&self, file: &FileBody, bytes: u64, trips: &Trips<'_>) -> Option<ReadAhead> {
        let keeps_up = self.sent_in? <= self.read_in * AHEAD_RATIO;
        let offset = file.offset + bytes;
        let bytes = self.next_bytes(
            trips,
            offset,
            file.remaining - bytes,
            self.next_chunk_bytes(),
        );
        (keeps_up && bytes > 0).then(|| trips.read_ahead(&file.file, offset, bytes))
    }

    /// How much to ask for at `offset`.
    fn next_bytes(&self, trips: &Trips<'_>, offset: u64, remaining: u64, auto: usize) -> usize {
        let bytes_max = trips.chunk_bytes.unwrap_or(auto);
        // A chunk ends where a block does, so that reads past the page cache share none.
        let bytes_max = bytes_max - (offset % ALIGNMENT as u64) as usize;
        bytes_max.min(usize::try_from(remaining).unwrap_or(usize::MAX))
    }

    /// The next chunk: what was asked for ahead, or else what an engine is asked for now. Larger than
    /// the last if the client took that within [`HOLD_MAX`], else about what it took.
    async fn chunk(
        &mut self,
        file: &FileBody,
        ahead: Option<ReadAhead>,
        trips: &mut Trips<'_>,
    ) -> Result<Read, Cut> {
        if let Some(ahead) = ahead.filter(|ahead| ahead.offset == file.offset)
            && let Some(read) = trips.fetch(ahead).await.map_err(Cut::Unreadable)?
        {
            self.read_in = trips.brought_in;
            return self.checked(read, 1);
        }
        let bytes = self.next_bytes(trips, file.offset, file.remaining, self.chunk_bytes);
        let (read, enough) = match self.untouched() {
            true => self.first_chunk(file, bytes, trips).await,
            false => {
                let read = trips.read(&file.file, file.offset, bytes, Class::Next);
                read.await.map(|read| (read, 1))
            }
        }
        .map_err(Cut::Unreadable)?;
        self.read_in = trips.brought_in;
        self.checked(read, enough)
    }

    /// Reads `bytes`, or all that is to be sent if that is little and there is memory for it; tells how
    /// many were asked for.
    async fn first_chunk(
        &self,
        file: &FileBody,
        bytes: usize,
        trips: &mut Trips<'_>,
    ) -> io::Result<(Read, usize)> {
        if trips.may_bring_whole(file.remaining) {
            let all = self.next_bytes(trips, file.offset, file.remaining, WHOLE_BYTES);
            match trips.read(&file.file, file.offset, all, Class::First).await {
                // Others were quicker to take the memory; there may be enough for less.
                Err(error) if all > bytes && is_refused(&error) => {}
                read => return Ok((read?, all)),
            }
        }
        let read = trips.read(&file.file, file.offset, bytes, Class::First);
        Ok((read.await?, bytes))
    }

    fn checked(&self, read: Read, enough: usize) -> Result<Read, Cut> {
        match read.ready.len() >= enough {
            true => Ok(read),
            false => Err(Cut::Unreadable(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// [`Sender::ready`] of `chunk`, with a look at the clock before and after.
    async fn timed(
        &mut self,
        conn: &mut Conn,
        ready: Ready,
        chunk: Option<usize>,
        file: &FileBody,
        trips: &mut Trips<'_>,
    ) -> Result<usize, Cut> {
        let wanted = file.remaining.min(ready.len() as u64);
        let (from, before) = (Instant::now(), self.body_bytes);
        let sent = self.ready(conn, ready, file.remaining).await;
        let now = Instant::now();
        self.sent_in = Some(now - from);
        // A client that did not take all was waited for after its last byte.
        let took_all = matches!(&sent, Ok(bytes) if *bytes as u64 == wanted);
        let to = self.last_byte.filter(|_| took_all).unwrap_or(now);
        trips.wrote(chunk, from, to, self.body_bytes - before);
        sent
    }

    /// Sends what an engine handed over, at most `bytes_max` of it; tells how much left.
    async fn ready(&mut self, conn: &mut Conn, ready: Ready, bytes_max: u64) -> Result<usize, Cut> {
        let bytes = ready
            .len()
            .min(usize::try_from(bytes_max).unwrap_or(usize::MAX));
        match ready {
            Ready::Bytes(buffer) => {
                let push = async |sender: &mut Self, conn: &mut Conn| {
                    sender.bytes(conn, &buffer[..bytes]).await
                };
                let sent = self.held(conn, push).await?;
                self.keep_pace(sent, bytes);
                Ok(sent)
            }
            Ready::Pipe { pipe, .. } => {
                let splice = async |sender: &mut Self, conn: &mut Conn| {
                    let call = |socket: BorrowedFd<'_>, _, turn| {
                        transmit::splice(pipe.as_fd(), socket, turn)
                    };
                    sender.moved(conn, bytes, call).await
                };
                self.held(conn, splice).await
            }
            Ready::Shared { memory, offset, .. } => {
                let send = async |sender: &mut Self, conn: &mut Conn| {
                    let call = |socket: BorrowedFd<'_>, at, turn| {
                        transmit::send_shared(socket, &memory, offset + at, turn)
                    };
                    sender.moved(conn, bytes, call).await
                };
                let sent = self.held(conn, send).await?;
                self.keep_pace(sent, bytes);
                Ok(sent)
            }
            Ready::PageCache { file, offset, .. } => {
                let worker = conn.worker.clone();
                let send = async |sender: &mut Self, conn: &mut Conn| {
                    let call = |socket: BorrowedFd<'_>, at, turn| {
                        let sendfile = || transmit::sendfile(socket, &file, offset + at, turn);
                        let (sent, slept) = usage::slept_during(sendfile);
                        if slept {
                            worker.stats.sendfile_waited();
                        }
                        sent
                    };
                    sender.moved(conn, bytes, call).await
                };
                self.held(conn, send).await
            }
        }
    }

    /// Asks for more next time of a client that took all in time, and for about what it took of one that
    /// did not: chunks that wait for it take memory.
    fn keep_pace(&mut self, sent: usize, bytes: usize) {
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

    /// Sends a chunk that takes memory or pipes, or that may not stay in the page cache, for at most
    /// [`HOLD_MAX`]; tells how much left by then.
    async fn held(
        &mut self,
        conn: &mut Conn,
        send: impl AsyncFnOnce(&mut Self, &mut Conn) -> Result<(), Cut>,
    ) -> Result<usize, Cut> {
        let before = self.body_bytes;
        // What left is counted where it leaves: the end may fall between a write and its return.
        match time::timeout(HOLD_MAX, send(self, conn)).await {
            Ok(sent) => sent?,
            Err(_) => conn.timer.clear(),
        }
        Ok((self.body_bytes - before) as usize)
    }

    /// Moves bytes to the socket by a system call that takes them from a descriptor: it is told at which
    /// of them to begin, and how many make a turn.
    async fn moved(
        &mut self,
        conn: &mut Conn,
        bytes: usize,
        mut call: impl FnMut(BorrowedFd<'_>, u64, usize) -> io::Result<usize>,
    ) -> Result<(), Cut> {
        self.head_with_more(conn).await?;
        let mut sent = 0;
        while sent < bytes {
            let turn = (bytes - sent).min(TURN_BYTES_MAX);
            match conn
                .stream
                .try_move(|socket| call(socket, sent as u64, turn))
            {
                Ok(0) => return Err(Cut::Unreadable(io::ErrorKind::UnexpectedEof.into())),
                Ok(moved) => {
                    sent += moved;
                    self.count(conn, moved).await;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.writable(conn).await?;
                }
                Err(error) if is_of_client(&error) => return Err(Cut::Gone),
                Err(error) => return Err(Cut::Unreadable(error)),
            }
        }
        Ok(())
    }

    /// Sends the head so that the kernel waits for body bytes to fill the packet.
    async fn head_with_more(&mut self, conn: &mut Conn) -> Result<(), Cut> {
        while self.head_bytes < self.head.len() {
            let rest = &self.head[self.head_bytes..];
            let sent = conn.stream.try_move(|socket| {
                Ok(rustix::net::send(
                    socket,
                    rest,
                    SendFlags::MORE | SendFlags::NOSIGNAL,
                )?)
            });
            match sent {
                Ok(sent) => self.count(conn, sent).await,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.writable(conn).await?;
                }
                Err(_) => return Err(Cut::Gone),
            }
        }
        Ok(())
    }

    /// One write of what is left of the head, then `bytes`; tells how many of `bytes` left. No more than
    /// a turn's worth: the kernel would copy a mebibyte into a socket that has room for it while others
    /// wait.
    async fn push(&mut self, conn: &mut Conn, bytes: &[u8]) -> Result<usize, Cut> {
        let worker = conn.worker.clone();
        let head = &self.head[self.head_bytes..];
        let turn = &bytes[..bytes.len().min(TURN_BYTES_MAX)];
        let head_bytes = head.len();
        let pushed = patiently(conn, |conn, context| match (head, turn) {
            ([], one) | (one, []) => conn.stream.poll_send(context, one),
            _ if head.len() + turn.len() <= JOINED_BYTES_MAX => {
                let mut joined = worker.outbound.borrow_mut();
                joined.clear();
                joined.extend_from_slice(head);
                joined.extend_from_slice(turn);
                conn.stream.poll_send(context, &joined)
            }
            _ => {
                let slices = [IoSlice::new(head), IoSlice::new(turn)];
                conn.stream.poll_write(context, &slices)
            }
        })
        .await?;
        self.count(conn, pushed).await;
        Ok(pushed.saturating_sub(head_bytes))
    }

    /// One read from the page cache and one write of it, in one turn of the loop: the bytes need no
    /// buffer of their own, and those that the client does not take now are read again.
    async fn cached(&mut self, conn: &mut Conn, file: &FileBody) -> Result<Cached, Cut> {
        let worker = conn.worker.clone();
        let window_bytes =
            match file.hot.warm.get() || file.hot.entry.meta.size < WHOLE_BYTES as u64 {
                true => self.window_bytes,
                false => PROBE_BYTES,
            };
        let wanted = window_bytes.min(usize::try_from(file.remaining).unwrap_or(usize::MAX));
        let head = &self.head[self.head_bytes..];
        let head_bytes = head.len();
        let pushed = patiently(conn, |conn, context| {
            ready!(conn.stream.poll_write_ready(context))?;
            let mut scratch = worker.outbound.borrow_mut();
            scratch.clear();
            match file.file.read_cached(&mut scratch, wanted, file.offset) {
                Ok((read, now)) if read > 0 && !file.is_rewritten_in(&now) => {}
                // The engine finds out what is the matter.
                _ => return Poll::Ready(Ok(None)),
            }
            let slices = [IoSlice::new(head), IoSlice::new(&scratch)];
            conn.stream.poll_write(context, &slices).map_ok(Some)
        })
        .await?;
        file.hot.warm.set(pushed.is_some());
        let Some(written) = pushed else {
            return Ok(Cached::Miss);
        };
        worker.stats.read_cached();
        self.count(conn, written).await;
        let left = written.saturating_sub(head_bytes);
        if window_bytes == self.window_bytes {
            self.window_bytes = (left * 2).clamp(WINDOW_BYTES_MIN, TURN_BYTES_MAX);
        }
        Ok(Cached::Left(left))
    }

    async fn writable(&mut self, conn: &mut Conn) -> Result<(), Cut> {
        patiently(conn, |conn, context| conn.stream.poll_write_ready(context)).await
    }

    /// Counts bytes that left, head first, and gives way to others in time.
    async fn count(&mut self, conn: &mut Conn, bytes: usize) {
        let now = Instant::now();
        self.first_byte.get_or_insert(now);
        self.last_byte = Some(now);
        let of_head = bytes.min(self.head.len() - self.head_bytes);
        self.head_bytes += of_head;
        self.body_bytes += (bytes - of_head) as u64;
        conn.give_way(bytes).await;
    }
}

impl FileBody {
    /// Whether the content was written over since the head was made. A file that only grew is sent up
    /// to the length announced; names and permissions may change as they like.
    fn is_rewritten(&self) -> bool {
        self.local
            && self
                .file
                .refresh()
                .is_ok_and(|now| self.is_rewritten_in(&now))
    }

    /// The same, when it is known what the file is `now`.
    fn is_rewritten_in(&self, now: &Meta) -> bool {
        let then = &self.hot.entry.meta;
        now.size == then.size && (now.mtime_s, now.mtime_ns) != (then.mtime_s, then.mtime_ns)
    }

    fn advance(&mut self, bytes: usize) {
        self.offset += bytes as u64;
        self.remaining -= bytes as u64;
    }
}

/// Waits for the socket, at most `limits.send_timeout`. The clock is read only if there is a wait.
async fn patiently<T>(
    conn: &mut Conn,
    mut attempt: impl FnMut(&mut Conn, &mut Context<'_>) -> Poll<io::Result<T>>,
) -> Result<T, Cut> {
    let mut waiting = false;
    let outcome = poll_fn(|context| {
        if let Poll::Ready(outcome) = attempt(conn, context) {
            return Poll::Ready(outcome.map_err(|_| Cut::Gone));
        }
        if !waiting {
            waiting = true;
            let send_timeout = conn.worker.service().config.limits.send_timeout;
            conn.timer.set(Instant::now() + send_timeout);
        }
        if conn.timer.poll_expired(context) {
            return Poll::Ready(Err(Cut::Timeout));
        }
        Poll::Pending
    })
    .await;
    if waiting {
        conn.timer.clear();
    }
    outcome
}

/// Whether a call that moves bytes failed for the socket's reasons, not the file's.
fn is_of_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected
    )
}
