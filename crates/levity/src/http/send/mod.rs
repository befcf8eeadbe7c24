//! Send: from a response to bytes on the wire.
//!
//! The header is sent together with the first bytes of the body, once those have been read. Until
//! then a failure of the disk can still become an error response. Afterwards the connection is
//! closed short of the announced length. A disk that exceeds `limits.io_timeout` counts as failed.
//!
//! # A chunk of a file
//!
//! 1. A body in the cache leaves with its header in one write. From 16 KiB on it is in pages of its
//!    own (`memory/pages.rs` of `levity-disk`), to which the socket gets references by way of a
//!    pipe. They are never written to again.
//! 2. A large file that the page cache has, from its second piece on: the thread `send` of the
//!    worker uses `sendfile` (`from_thread.rs`). If a transfer does not start within 5 ms, the rest
//!    of the response is left to step 3. The thread takes turns between its sockets, and checks
//!    version and page cache before each. The loop hears of it after 16 MiB or 1 s. If a page is
//!    missing, the next 512 KiB are left to step 3; if the client took less than 1 MiB in that
//!    second, all the rest is. References to pages go to TCP clients only.
//! 3. `preadv2(RWF_NOWAIT)` into the worker's scratch memory and one write, in one poll: 128 KiB
//!    first, then about twice what the client took last time (16 to 256 KiB). Only where the probe
//!    at start found that it works, and only while the device has a free slot and no queue, or the
//!    last read of the file was a hit. What the client did not take is read again: no buffer waits
//!    for a slow client. The first read after a change of a file with another owner goes to an
//!    engine, because it sets the time of last access.
//! 4. The engine: 128 KiB first, doubling to 512 KiB, or 1 MiB at once where a read took 2 ms or
//!    more (or `disk.chunk`). After a miss, steps 2 and 3 are not tried until a trip took less than
//!    300 us in the kernel, that is, found its bytes in memory.
//!
//! While an engine's chunk is on its way to the client, the next one is requested
//! (`Class::Prefetch`), unless the client needs more than four times the disk's time per chunk.
//! From the engine to the socket no byte is copied in user memory
//! (`levity_body_copied_bytes_total`). The first probe of a large file asks for one page only,
//! because a miss makes the kernel read.
//!
//! A client that takes nothing for 1 s loses its chunk, which is read again later. After 256 KiB a
//! connection yields to the others.
//!
//! # Several ranges
//!
//! Parts that memory or the page cache has leave together with their headers, up to 64 KiB in one
//! write (`multipart.rs`). Any other part is read and sent like a file of its own, once those
//! before it have been sent; nothing is read ahead across parts. Filters see the type and the
//! coding of the file; only then do these become headers of the parts (`Response::frame_parts`).
//! How ranges are joined and bounded is the documentation of `range.rs` of `levity-wire`.
//!
//! # One version per response
//!
//! The `fstat` after each read shows whether the file is still the announced version
//! (`http/file_version.rs`). A rewritten file cuts the response short. A file that only grew, or
//! whose change time alone differs, continues if the last 512 bytes sent are still there. A change
//! before the first byte left causes a new lookup. Pages sent in step 2 are those of the file: if
//! it is written to in place or truncated while the socket still has them, the client may get the
//! new bytes, or zeroes at the new end; the connection is reset as soon as a look shows the change
//! (each turn, or 0.1 s). Files that are replaced by renaming are not affected.
//!
//! # Filtered and parked
//!
//! A filtered body passes the computing pool a piece of 64 KiB at a time (`filtered.rs`). A body
//! that outlives its exchange is parked (`parked.rs`): request, trace and the future of the
//! exchange are dropped, and the line of the log needs a few hundred bytes.

mod file;
mod filtered;
mod from_thread;
mod held_file;
mod multipart;
pub mod parked;
mod sink;
mod stream;
mod throttle;

use std::future::poll_fn;
use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};
use std::time::Instant;

use levity_disk::Pages;
use levity_net::{TURN_BYTES_MAX, Turn};
use levity_telemetry::access_log::{End, Source};
use levity_telemetry::diagnostics;
use levity_telemetry::trace::{Trace, UpstreamTrace};
use levity_wire::http1::{Method, Trailers};

use self::file::Pace;
use self::held_file::HeldFile;
pub use self::sink::{ClientSocket, Framing, Head, Progress, ResponseSink};
use self::throttle::Throttle;
use super::error::{error, from_io};
use super::filter::FilterError;
use super::response::{Body, PartError, PartSource, Response, StreamError, UpgradeError};
use crate::files::disk_client::DiskClient;
use crate::files::entry::{Bytes, PAGES_BYTES_MIN};
use crate::loop_core::LoopCore;
use crate::message::request::Request;
use crate::rate_limit::charges::Charges;

/// The result of sending a response.
pub struct Sent {
    /// The status of the response, sent or not.
    pub status: u16,
    /// Bytes of the body that were sent, without framing.
    pub bytes: u64,
    /// Bytes of the content that they were made of; the same number without filters, and but for the headers of parts.
    pub content_bytes: u64,
    /// When the first byte was sent.
    pub first_byte: Option<Instant>,
    /// When the response ended.
    pub ended: Instant,
    /// The source of the body.
    pub source: Source,
    /// How the response ended.
    pub end: End,
    /// The error to send in its place, if it failed before its first byte.
    pub replacement: Option<Box<Response>>,
    /// It failed before its first byte because the file was rewritten. A new lookup may succeed.
    pub outdated: bool,
    /// Closing the connection resets it, so that the client detects the truncation.
    pub reset: bool,
}

impl Sent {
    /// A reset in place of a response with this status.
    pub fn reset(status: u16) -> Self {
        Self {
            status,
            bytes: 0,
            content_bytes: 0,
            first_byte: None,
            ended: Instant::now(),
            source: Source::None,
            end: End::Error,
            replacement: None,
            outdated: false,
            reset: true,
        }
    }
}

/// Why a response could not be sent completely.
#[derive(Debug)]
enum SendError {
    /// The client disconnected.
    Gone,
    /// The client accepted no bytes for `limits.send_timeout`.
    Timeout,
    /// The file could not be read, or is shorter than announced.
    Unreadable(io::Error),
    /// The file is no longer the announced version.
    Rewritten,
    /// The source of the body failed.
    Source(StreamError),
    /// A filter cannot transform the body.
    Filter(FilterError),
}

impl From<FilterError> for SendError {
    fn from(error: FilterError) -> Self {
        Self::Filter(error)
    }
}

impl From<PartError> for SendError {
    fn from(error: PartError) -> Self {
        match error {
            PartError::Unreadable(error) => Self::Unreadable(error),
            PartError::Replaced => Self::Rewritten,
        }
    }
}

impl From<UpgradeError> for SendError {
    fn from(error: UpgradeError) -> Self {
        match error {
            UpgradeError::Timeout => Self::Timeout,
            UpgradeError::Gone => Self::Gone,
            UpgradeError::Source(failure) => Self::Source(failure),
        }
    }
}

/// Sends `response`, within the limits of bytes that `charges` name; for a HEAD request without its body. If that fails before the first byte,
/// [`Sent::replacement`] is the error to send. A held body stays in the response when its header has been sent: the caller parks it.
pub async fn send<S: ResponseSink>(
    sink: &S,
    request: &Request,
    response: &mut Response,
    disk: &mut DiskClient<'_>,
    charges: &Charges<'_>,
) -> Sent {
    let head_only = request.head.method == Method::Head;
    let is_open_ended = response.is_open_ended();
    let mut body = mem::replace(&mut response.body, Body::None);
    let filters = mem::take(&mut response.filters);
    let mut sender = Sender::new(sink, response, &body, is_open_ended);
    sender.has_body = !head_only;
    sender.throttle = Throttle::new(charges);
    sender.update_server_timing(disk.trace);
    let at_once = match filters.is_empty() && !head_only {
        true => poll_fn(|context| Poll::Ready(sender.send_at_once(context, &body))).await,
        false => Ok(false),
    };
    let outcome = match at_once {
        Ok(true) => Ok(()),
        Ok(false) => {
            sender.held_file = HeldFile::of(&body, disk.requester());
            match filters.is_empty() || head_only {
                true => sender.send_body(&mut body, head_only, disk).await,
                // Boxed: most bodies have no filters.
                false => Box::pin(sender.send_filtered(&mut body, filters, disk)).await,
            }
        }
        Err(error) => Err(error),
    };
    match &outcome {
        Err(SendError::Unreadable(error)) => report_unreadable(sink.core(), request, error),
        // Not logged before the first byte: a new lookup or an error response follows.
        Err(SendError::Rewritten) if sender.is_committed() => {
            let path = String::from_utf8_lossy(&request.path);
            diagnostics::log(format_args!(
                "cannot read {path}: it was rewritten while it was sent"
            ));
        }
        Err(SendError::Source(failure)) => failure.report(!sender.is_committed(), disk.trace),
        Err(SendError::Filter(FilterError(reason))) => {
            let path = String::from_utf8_lossy(&request.path);
            diagnostics::log(format_args!("cannot filter {path}: {reason}"));
        }
        _ => {}
    }
    let reset = sender.is_committed() && sender.must_reset(&outcome);
    if reset {
        sink.reset();
    }
    let source = source(&body, disk.trace);
    let mut sent = sender.sent(source, outcome);
    // The end of a stream may come after its last byte, and the step of the application ends with it.
    sent.ended = sent.ended.max(disk.trace.step_began());
    sent.reset = reset;
    drop(sender);
    if matches!(body, Body::Held { .. }) && !head_only && sent.end == End::Complete {
        response.body = body;
    }
    sent
}

/// Sends the response to input that could not be parsed as a request.
pub async fn refuse<S: ResponseSink>(sink: &S, mut response: Response) -> Sent {
    response.close = true;
    let body = mem::replace(&mut response.body, Body::None);
    let mut sender = Sender::new(sink, &response, &body, false);
    let mut outcome = match &body {
        Body::Text(text) => sender.send_bytes(text).await,
        _ => Ok(()),
    };
    if outcome.is_ok() {
        outcome = sender.finish(&Trailers::default()).await;
    }
    sender.sent(Source::None, outcome)
}

/// Sends an interim response. If that fails, the connection is shut down, because the final response must not follow
/// an incomplete interim one.
pub async fn interim<S: ResponseSink>(sink: &S, header: S::Header) {
    let response = Response::new(100);
    let mut sender = Sender::new(sink, &response, &Body::None, false);
    sender.header = Some(header);
    sender.has_header = true;
    if sender.send_header().await.is_err() {
        sink.reset();
        sink.end_output();
    }
}

fn report_unreadable(core: &LoopCore, request: &Request, error: &io::Error) {
    let path = String::from_utf8_lossy(&request.path);
    core.disk_failed(error, || format!("cannot read {path}: {error}"));
}

fn source(body: &Body, trace: &Trace) -> Source {
    match body {
        Body::Memory(..) | Body::File(_) | Body::Parts(_) | Body::Multipart(_)
            if trace.disk_trips() > 0 =>
        {
            Source::Disk
        }
        Body::Memory(..) => Source::Memory,
        Body::Multipart(body) if matches!(body.source, PartSource::Memory(_)) => Source::Memory,
        Body::File(_) | Body::Parts(_) | Body::Multipart(_) => Source::Cached,
        Body::Stream { stream, .. } => stream.source(),
        Body::Upgrade { .. } => Source::Upstream,
        // An application's response may have no body.
        Body::None if trace.upstream().is_some_and(UpstreamTrace::is_answered) => Source::Upstream,
        Body::None | Body::Text(_) | Body::Page(_) | Body::Held { .. } => Source::None,
    }
}

/// The progress of one response.
struct Sender<'s, S: ResponseSink> {
    sink: &'s S,
    response: &'s Response,
    /// The value for [`Head::length`].
    length: Option<u64>,
    may_have_trailers: bool,
    framing: Framing,
    /// The body is sent: false for HEAD.
    has_body: bool,
    upgrade: Option<Vec<u8>>,
    server_timing: Option<String>,
    /// The encoded header, which may be replaced until its first byte is sent; `None` once all of it is sent.
    header: Option<S::Header>,
    has_header: bool,
    body_bytes: u64,
    /// Bytes of the content that the body is made of, if it has others: after a filter, or with headers of parts.
    content_bytes: Option<u64>,
    /// An orderly close of the connection suffices for the client to detect a truncated body (RFC 9112, 8). Not so if
    /// the close ends the body, if the connection continues, or after an upgrade.
    is_framed: bool,
    /// The socket may still have to send pages of the file. If they have changed meanwhile, only a reset keeps them from
    /// the client.
    sent_pages: bool,
    first_byte: Option<Instant>,
    /// When the latest byte was sent.
    last_byte: Option<Instant>,
    pace: Pace,
    held_file: HeldFile<'s>,
    throttle: Throttle<'s>,
}

impl<'s, S: ResponseSink> Sender<'s, S> {
    fn new(sink: &'s S, response: &'s Response, body: &Body, is_open_ended: bool) -> Self {
        let framing = sink.framing(is_open_ended);
        let upgrade = body.protocol().map(<[u8]>::to_vec);
        Self {
            sink,
            response,
            length: body.length().filter(|_| !is_open_ended),
            may_have_trailers: matches!(body, Body::Stream { .. }),
            framing,
            is_framed: upgrade.is_none()
                && matches!(framing, Framing::ByLength | Framing::ByChunks),
            sent_pages: false,
            has_body: true,
            upgrade,
            server_timing: None,
            header: None,
            has_header: false,
            body_bytes: 0,
            content_bytes: None,
            first_byte: None,
            last_byte: None,
            pace: Pace::new(),
            held_file: HeldFile::default(),
            throttle: Throttle::default(),
        }
    }

    fn sent(&self, source: Source, outcome: Result<(), SendError>) -> Sent {
        let end = match &outcome {
            Ok(()) => End::Complete,
            Err(SendError::Gone) => End::ClientAbort,
            Err(SendError::Timeout) => End::Timeout,
            Err(SendError::Unreadable(_) | SendError::Rewritten | SendError::Filter(_)) => {
                End::Error
            }
            Err(SendError::Source(failure)) => failure.end(),
        };
        // A truncated response ends when the failure is detected, later than its last byte.
        let ended = self.last_byte.filter(|_| outcome.is_ok());
        let outdated = !self.is_committed() && matches!(outcome, Err(SendError::Rewritten));
        let replacement = match outcome {
            Err(SendError::Rewritten) if outdated => {
                Some(error(503, "the file is being rewritten"))
            }
            Err(SendError::Unreadable(error)) if !self.is_committed() => Some(from_io(&error)),
            Err(SendError::Source(failure)) if !self.is_committed() => Some(failure.response()),
            Err(SendError::Filter(_)) if !self.is_committed() => Some(error(502, "")),
            _ => None,
        };
        // Boxed: most responses are sent as they are.
        let replacement = replacement.map(Box::new);
        Sent {
            status: self.response.status,
            bytes: self.body_bytes,
            content_bytes: self.content_bytes.unwrap_or(self.body_bytes),
            first_byte: self.first_byte,
            ended: ended.unwrap_or_else(Instant::now),
            source,
            end,
            replacement,
            outdated,
            reset: false,
        }
    }

    /// Whether the connection has to be reset after `outcome`. A reset discards bytes in flight. It is needed when an
    /// orderly close would make the body look complete, and when a client accepts no bytes: the kernel would keep the
    /// unsent bytes for it.
    fn must_reset(&self, outcome: &Result<(), SendError>) -> bool {
        match outcome {
            Ok(()) | Err(SendError::Gone) => false,
            Err(SendError::Timeout) => true,
            Err(
                SendError::Unreadable(_)
                | SendError::Rewritten
                | SendError::Source(_)
                | SendError::Filter(_),
            ) => !self.is_framed || self.sent_pages,
        }
    }

    /// Whether a byte of the response has been sent, so that no other can replace it.
    fn is_committed(&self) -> bool {
        self.first_byte.is_some() || self.sink.is_writing()
    }

    /// Sets Server-Timing to the times so far, unless a byte of the header has been sent.
    fn update_server_timing(&mut self, trace: &Trace) {
        if !self.is_committed()
            && let Some(metrics) = trace.server_timing()
        {
            self.server_timing = Some(metrics.to_string());
            self.has_header = false;
        }
    }

    /// Encodes the header if that has not been done. The response can be replaced until its first byte is sent.
    fn encode_header(&mut self) {
        if mem::replace(&mut self.has_header, true) {
            return;
        }
        self.header = Some(self.sink.header(&Head {
            status: self.response.status,
            reason: &self.response.reason,
            base: self.response.base.as_deref(),
            fields: &self.response.fields,
            has_date: self.response.has_date,
            has_server: self.response.has_server,
            server_timing: self.server_timing.as_deref(),
            length: self.length,
            may_have_trailers: self.may_have_trailers,
            framing: self.framing,
            has_body: self.has_body,
            upgrade: self.upgrade.as_deref(),
            close: self.response.close,
        }));
    }

    /// The length of the body turns out before the header is sent.
    fn announce(&mut self, bytes: usize) {
        self.length = Some(bytes as u64);
        self.framing = self.sink.framing(false);
        self.is_framed = true;
    }

    /// Sends a body in memory and its header in one call, if there is nothing to wait for. Returns whether that was the
    /// whole response. Otherwise [`send_body`](Self::send_body) goes on with the rest; its futures are what this saves.
    fn send_at_once(&mut self, context: &mut Context<'_>, body: &Body) -> Result<bool, SendError> {
        let bytes = match body {
            Body::Text(text) => &text[..],
            Body::Page(page) => (**page).as_ref(),
            Body::Memory(cached, range) => {
                let bytes = cached.entry.bytes();
                if bytes.pages().is_some() && self.sends_pages(range.len()) {
                    return Ok(false);
                }
                &bytes[range.clone()]
            }
            _ => return Ok(false),
        };
        let turn_bytes = self.sink.own_turn().map_or(TURN_BYTES_MAX, Turn::left);
        if bytes.is_empty() || bytes.len() > turn_bytes || self.throttle.is_on() {
            return Ok(false);
        }
        self.encode_header();
        let sent = self.sink.poll_send(context, &mut self.header, bytes, false);
        let Poll::Ready(progress) = sent.map_err(disconnected)? else {
            return Ok(false);
        };
        self.note_sent(progress.body_bytes);
        if let Some(turn) = self.sink.own_turn() {
            turn.count(progress.bytes);
        }
        Ok(progress.is_complete && self.is_whole())
    }

    /// Sends what [`send_at_once`](Self::send_at_once) has left.
    async fn send_body(
        &mut self,
        body: &mut Body,
        head_only: bool,
        disk: &mut DiskClient<'_>,
    ) -> Result<(), SendError> {
        match body {
            _ if head_only => {}
            Body::None => {}
            Body::Text(text) => self.send_bytes(&text[self.body_bytes as usize..]).await?,
            Body::Page(page) => {
                let bytes = (**page).as_ref();
                self.send_bytes(&bytes[self.body_bytes as usize..]).await?;
            }
            Body::Memory(cached, range) => {
                self.send_cached_body(cached.entry.bytes(), range.clone())
                    .await?
            }
            Body::File(file) if file.remaining == 0 => {}
            // Boxed: a file in memory does not need this future.
            Body::File(file) => Box::pin(self.send_file(file, disk)).await?,
            Body::Parts(parts) => {
                while let Some(mut part) = parts.next(disk).await? {
                    self.held_file.set(&part.file);
                    Box::pin(self.send_file(&mut part, disk)).await?;
                    // The next file has other pages: whatever it becomes, these were of the announced version.
                    self.sent_pages = false;
                    // Before the next one is opened, which may have to wait for a place.
                    drop(part);
                    self.held_file.release();
                }
            }
            Body::Multipart(body) => Box::pin(self.send_multipart(body, disk)).await?,
            Body::Stream { stream, .. } => {
                return self.send_stream(&mut **stream, disk.trace).await;
            }
            Body::Held { .. } => return self.send_header().await,
            Body::Upgrade { tunnel, .. } => return self.run_tunnel(&mut **tunnel).await,
        }
        self.finish(&Trailers::default()).await
    }

    async fn send_header(&mut self) -> Result<(), SendError> {
        self.encode_header();
        while self.header.is_some() {
            self.send_some(&[]).await?;
        }
        Ok(())
    }

    async fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), SendError> {
        let mut sent = 0;
        while sent < bytes.len() {
            sent += self.send_some(&bytes[sent..]).await?;
        }
        Ok(())
    }

    /// Sends `range` of a cached body, without a copy where that is cheaper and possible.
    async fn send_cached_body(
        &mut self,
        bytes: &Bytes,
        range: Range<usize>,
    ) -> Result<(), SendError> {
        let mut start = range.start + self.body_bytes as usize;
        if let Some(pages) = bytes.pages().filter(|_| self.sends_pages(range.len())) {
            // Boxed: most cached bodies are small.
            start += Box::pin(self.send_pages(pages, range.clone())).await?;
        }
        self.send_bytes(&bytes[start..range.end]).await
    }

    fn has_tcp_socket(&self) -> bool {
        self.sink.socket().is_some_and(|socket| socket.is_tcp())
    }

    /// Runs a system call that transfers bytes to the client's socket.
    fn try_move<T>(&self, call: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        let socket = self.sink.socket();
        socket.ok_or(io::ErrorKind::NotConnected)?.try_move(call)
    }

    fn sends_pages(&self, bytes: usize) -> bool {
        bytes >= PAGES_BYTES_MIN
            && self.has_tcp_socket()
            && self.sink.core().zero_copy.pages.borrow().is_some()
    }

    /// Returns the number of bytes that were sent. The rest has to be copied, because the kernel has no memory for
    /// references now.
    async fn send_pages(&mut self, pages: &Pages, range: Range<usize>) -> Result<usize, SendError> {
        let core = self.sink.core().clone();
        let bytes_before = self.body_bytes;
        let call = |socket: BorrowedFd<'_>, at: u64, bytes: usize| {
            let start = range.start + at as usize;
            let mut sender = core.zero_copy.pages.borrow_mut();
            let sender = sender.as_mut().expect("checked by `sends_pages`");
            let sent = sender.send(socket, pages, start..start + bytes)?;
            core.stats.zero_copy_bytes.add(sent.unwrap_or(0) as u64);
            Ok(sent)
        };
        match self.transfer(range.len(), call).await {
            // Only the socket can fail.
            Err(SendError::Unreadable(_)) => Err(SendError::Gone),
            sent => sent.map(|()| (self.body_bytes - bytes_before) as usize),
        }
    }

    /// Whether nothing follows the bytes of the body that were sent.
    fn is_whole(&self) -> bool {
        // The last byte of an announced length ends a body without trailers in any framing. A header that announces none may have
        // left before.
        let has_last_byte =
            !self.may_have_trailers && self.body_bytes > 0 && self.length == Some(self.body_bytes);
        self.framing == Framing::ByLength || has_last_byte
    }

    /// Sends the rest of the header, and ends the body.
    async fn finish(&mut self, trailers: &Trailers) -> Result<(), SendError> {
        self.encode_header();
        if self.header.is_none() && self.is_whole() {
            return Ok(());
        }
        loop {
            let (sink, header) = (self.sink, &mut self.header);
            let had_header = header.is_some();
            let progress = with_send_timeout(sink, &self.held_file, |context| {
                sink.poll_end(context, header, trailers)
                    .map_err(disconnected)
            })
            .await?;
            if had_header || progress.bytes > 0 {
                self.count_sent(progress.bytes, 0).await;
            }
            if progress.is_complete {
                return Ok(());
            }
        }
    }

    /// Sends the rest of the header and as much of `bytes` as the client takes at once. Returns the number of `bytes`
    /// sent: at most [`TURN_BYTES_MAX`], because the kernel may copy a mebibyte into a send buffer while other
    /// connections wait.
    async fn send_some(&mut self, bytes: &[u8]) -> Result<usize, SendError> {
        let want = bytes.len().min(TURN_BYTES_MAX);
        let granted = match self.throttle.take(want) {
            Ok(granted) => granted,
            // Boxed: in place it would enlarge the future of every request.
            Err(_) => Box::pin(self.grant(want)).await?,
        };
        let slice = &bytes[..granted];
        self.encode_header();
        let (sink, header) = (self.sink, &mut self.header);
        let progress = with_send_timeout(sink, &self.held_file, |context| {
            let sent = sink.poll_send(context, header, slice, false);
            sent.map_err(disconnected)
        })
        .await?;
        self.count_sent(progress.bytes, progress.body_bytes).await;
        Ok(progress.body_bytes)
    }

    async fn wait_writable(&mut self) -> Result<(), SendError> {
        let sink = self.sink;
        with_send_timeout(sink, &self.held_file, |context| {
            sink.poll_write_ready(context).map_err(disconnected)
        })
        .await
    }

    /// Counts sent bytes, and yields to other connections when the turn is used up.
    async fn count_sent(&mut self, bytes: usize, body_bytes: usize) {
        self.note_sent(body_bytes);
        if let Some(turn) = self.sink.own_turn() {
            turn.spend(bytes).await;
        }
    }

    fn note_sent(&mut self, body_bytes: usize) {
        let now = Instant::now();
        self.first_byte.get_or_insert(now);
        self.last_byte = Some(now);
        self.body_bytes += body_bytes as u64;
        self.throttle.sent(body_bytes);
    }
}

/// Ready when the client takes bytes of a body. A header goes alone where it takes none, before anything is read; what was
/// sent of it is the result.
fn poll_before_body<S: ResponseSink>(
    sink: &S,
    context: &mut Context<'_>,
    header: &mut Option<S::Header>,
) -> Poll<Result<Option<Progress>, SendError>> {
    if header.is_some() && sink.window() == 0 {
        let sent = sink.poll_send(context, header, &[], false);
        return sent.map_ok(Some).map_err(disconnected);
    }
    let ready = sink.poll_write_ready(context);
    ready.map_ok(|()| None).map_err(disconnected)
}

/// Polls `attempt` until it is ready, at most for `limits.send_timeout`. Only if there is a wait, the clock is read, and the file
/// counts to the client.
async fn with_send_timeout<S: ResponseSink, T>(
    sink: &S,
    held_file: &HeldFile<'_>,
    mut attempt: impl FnMut(&mut Context<'_>) -> Poll<Result<T, SendError>>,
) -> Result<T, SendError> {
    let mut waiting = false;
    let outcome = poll_fn(|context| {
        if let Poll::Ready(outcome) = attempt(context) {
            return Poll::Ready(outcome);
        }
        if !waiting {
            waiting = true;
            held_file.count(sink.core());
            let send_timeout = sink.core().config().config.limits.send_timeout;
            sink.timer().set_for_client(Instant::now(), send_timeout);
        }
        if sink.timer().poll_expired(context) {
            return Poll::Ready(Err(SendError::Timeout));
        }
        Poll::Pending
    })
    .await;
    if waiting {
        sink.timer().clear();
    }
    outcome
}

/// Converts an error of the client's connection.
fn disconnected(_: io::Error) -> SendError {
    SendError::Gone
}

#[cfg(test)]
mod tests;
