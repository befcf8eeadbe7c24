//! Send: from a response to bytes on the wire.
//!
//! A head leaves together with the first bytes of its body, and only when those are in hand: until
//! then a failing disk can still be told to the client.

mod file;
mod proxied;

use std::future::poll_fn;
use std::io::{self, IoSlice, Write};
use std::task::{Context, Poll};
use std::time::Instant;

use levity_net::TURN_BYTES_MAX;
use levity_telemetry::access_log::{End, Source};
use levity_telemetry::diagnostics;
use levity_telemetry::trace::{Trace, UpstreamTrace};
use levity_wire::decimal;
use levity_wire::http1::{Method, Version, reason};

use self::file::Pace;
use crate::conn::Conn;
use crate::disk_client::DiskClient;
use crate::entry::Content;
use crate::fields::Fields;
use crate::request::Request;
use crate::respond::completion::{Completion, CompletionHook};
use crate::respond::error::{error, of_io, of_upstream};
use crate::respond::{Body, Response};
use crate::upstream::failure::Failure;
use crate::worker::Worker;

/// Head and body of so many bytes are put together before they are sent: to copy them costs less than to
/// have the kernel take them from two places.
const JOINED_BYTES_MAX: usize = 2048;

/// What became of a response.
pub struct Sent {
    /// Part of the request has not been read: nothing can follow on the connection.
    pub unread: bool,
    /// Are to be told now.
    pub hooks: Vec<Box<dyn CompletionHook>>,
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
    /// What to send in its place, where nothing of it has left.
    pub instead: Option<Response>,
    /// The same, because the file has another version by now: looked up again, it may be sent.
    pub outdated: bool,
    /// Closing the connection resets it, so that the client notices the cut.
    pub reset: bool,
}

impl Sent {
    /// What those are told who made the response.
    pub fn completion(&self) -> Completion {
        Completion {
            status: self.status,
            bytes: self.bytes,
            end: self.end,
            ended: self.ended,
        }
    }
}

/// Why a response stopped.
#[derive(Debug)]
enum SendError {
    /// The client closed or vanished.
    Gone,
    /// The client took nothing for `limits.send_timeout`.
    Timeout,
    /// The file could not be read, or is shorter than was said.
    Unreadable(io::Error),
    /// The file has another version than the one that was announced.
    Rewritten,
    /// The backend did not send all of it.
    Broken(Failure),
}

/// Sends `response`, without its body to a HEAD request. Where that fails before anything has left,
/// [`Sent::instead`] is the error to send.
pub async fn send(
    conn: &mut Conn,
    request: &Request,
    mut response: Response,
    disk: &mut DiskClient<'_>,
) -> Sent {
    let head_only = request.head.method == Method::Head;
    let mut sender = Sender::new(conn, &response, request.head.version);
    sender.tell_timing(disk.trace);
    let outcome = sender
        .response(conn, &mut response.body, head_only, disk)
        .await;
    match &outcome {
        Err(SendError::Unreadable(error)) => tell(&conn.worker, request, error),
        // Nothing is wrong with one that can be looked up again.
        Err(SendError::Rewritten) if !sender.untouched() => {
            let path = String::from_utf8_lossy(&request.path);
            diagnostics::log(format_args!(
                "cannot read {path}: it was rewritten while it was sent"
            ));
        }
        Err(SendError::Broken(failure)) => {
            broken(&response.body, failure, sender.untouched(), disk.trace)
        }
        _ => {}
    }
    let reset = !sender.untouched() && sender.must_reset(&outcome);
    if reset {
        conn.transport.reset_on_close();
    }
    let source = source(&response.body, disk.trace);
    let mut sent = sender.sent(response.status, source, outcome);
    sent.reset = reset;
    sent.hooks = response.hooks;
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

fn tell(worker: &Worker, request: &Request, error: &io::Error) {
    let path = String::from_utf8_lossy(&request.path);
    worker.disk_failed(error, || format!("cannot read {path}: {error}"));
}

/// Notes and reports that a backend did not send all of its response.
fn broken(body: &Body, failure: &Failure, is_untouched: bool, trace: &mut Trace) {
    if let Some(upstream) = trace.upstream_mut() {
        match is_untouched {
            true => upstream.failed(failure.side, failure.kind),
            false => upstream.broke_off(failure.side, failure.kind),
        }
    }
    match body {
        Body::Upstream { answer, .. } => answer.endpoint().report(failure, is_untouched),
        Body::Tunnel(tunnel) => tunnel.endpoint().report(failure, is_untouched),
        _ => {}
    }
}

fn source(body: &Body, trace: &Trace) -> Source {
    match body {
        Body::Memory(..) | Body::File(_) | Body::Parts(_) if trace.disk_trips() > 0 => Source::Disk,
        Body::Memory(..) => Source::Memory,
        Body::File(_) | Body::Parts(_) => Source::Cached,
        Body::Upstream { .. } | Body::Tunnel(_) => Source::Upstream,
        // An answer without a body is an application's too.
        Body::None if trace.upstream().is_some_and(UpstreamTrace::is_answered) => Source::Upstream,
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

/// Whether the client can tell a body that is cut from a whole one when the connection is closed in an
/// orderly way (RFC 9112, 8): not where its end is that of the body, nor behind a change of protocol.
fn is_framed(response: &Response, version: Version) -> bool {
    match response.body {
        Body::Tunnel(_) => false,
        _ => !response.body.is_open_ended() || is_chunked(response, version),
    }
}

/// One response on its way.
struct Sender {
    head: Vec<u8>,
    head_bytes: usize,
    body_bytes: u64,
    /// See [`is_framed`].
    framed: bool,
    /// The body goes out in chunks.
    chunks: bool,
    /// Bytes among `body_bytes` that only frame chunks.
    framing_bytes: u64,
    first_byte: Option<Instant>,
    /// When the last byte so far left.
    last_byte: Option<Instant>,
    /// Where the fields end in a head that has no such field.
    fields_end: usize,
    pace: Pace,
}

impl Sender {
    fn new(conn: &Conn, response: &Response, version: Version) -> Self {
        Self {
            chunks: is_chunked(response, version),
            framed: is_framed(response, version),
            ..Self::of_head(head(conn, response, version))
        }
    }

    fn of_head(head: Vec<u8>) -> Self {
        Self {
            fields_end: head.len().saturating_sub(b"\r\n".len()),
            head,
            head_bytes: 0,
            body_bytes: 0,
            framed: true,
            chunks: false,
            framing_bytes: 0,
            first_byte: None,
            last_byte: None,
            pace: Pace::new(),
        }
    }

    fn sent(&self, status: u16, source: Source, outcome: Result<(), SendError>) -> Sent {
        let end = match &outcome {
            Ok(()) => End::Complete,
            Err(SendError::Gone) => End::ClientAbort,
            Err(SendError::Timeout) => End::Timeout,
            Err(SendError::Unreadable(_) | SendError::Rewritten) => End::Error,
            Err(SendError::Broken(failure)) => failure.end,
        };
        // A response that is cut off ends later than with its last byte.
        let ended = self.last_byte.filter(|_| outcome.is_ok());
        let outdated = self.untouched() && matches!(outcome, Err(SendError::Rewritten));
        let instead = match outcome {
            Err(SendError::Rewritten) if outdated => {
                Some(error(503, "the file is being rewritten"))
            }
            Err(SendError::Unreadable(error)) if self.untouched() => Some(of_io(&error)),
            Err(SendError::Broken(failure)) if self.untouched() => Some(of_upstream(&failure)),
            _ => None,
        };
        Sent {
            unread: false,
            hooks: Vec::new(),
            status,
            bytes: self.body_bytes - self.framing_bytes,
            first_byte: self.first_byte,
            ended: ended.unwrap_or_else(Instant::now),
            source,
            end,
            instead,
            outdated,
            reset: false,
        }
    }

    /// Whether the connection of a response that ended so has to be reset. A reset destroys bytes that are on
    /// their way, so it is for bodies that would pass for whole, and for clients that take nothing: the
    /// kernel would keep what is left for them.
    fn must_reset(&self, outcome: &Result<(), SendError>) -> bool {
        match outcome {
            Ok(()) | Err(SendError::Gone) => false,
            Err(SendError::Timeout) => true,
            Err(SendError::Unreadable(_) | SendError::Rewritten | SendError::Broken(_)) => {
                !self.framed
            }
        }
    }

    fn untouched(&self) -> bool {
        self.first_byte.is_none()
    }

    /// Adds what is known of the time so far to a head of which nothing has left.
    fn tell_timing(&mut self, trace: &Trace) {
        if !self.untouched() {
            return;
        }
        let Some(metrics) = trace.server_timing() else {
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
        disk: &mut DiskClient<'_>,
    ) -> Result<(), SendError> {
        match body {
            _ if head_only => self.rest_of_head(conn).await,
            Body::None => self.rest_of_head(conn).await,
            Body::Text(text) => self.bytes(conn, text).await,
            Body::Page(page) => self.bytes(conn, page.bytes()).await,
            Body::Memory(cached, range) => match &cached.entry.content {
                Content::Memory(bytes, _) => self.bytes(conn, &bytes[range.clone()]).await,
                Content::File(_) => unreachable!("a memory body is of an entry in memory"),
            },
            Body::File(file) if file.remaining == 0 => self.rest_of_head(conn).await,
            // Boxed: a small file in memory needs none of it.
            Body::File(file) => Box::pin(self.file(conn, file, disk)).await,
            Body::Parts(parts) => {
                while let Some(mut part) = parts.next(disk).await.map_err(SendError::Unreadable)? {
                    Box::pin(self.file(conn, &mut part, disk)).await?;
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

    async fn rest_of_head(&mut self, conn: &mut Conn) -> Result<(), SendError> {
        while self.head_bytes < self.head.len() {
            self.push(conn, &[]).await?;
        }
        Ok(())
    }

    async fn bytes(&mut self, conn: &mut Conn, bytes: &[u8]) -> Result<(), SendError> {
        let mut sent = 0;
        while sent < bytes.len() {
            sent += self.push(conn, &bytes[sent..]).await?;
        }
        self.rest_of_head(conn).await
    }

    /// One write of what is left of the head, then `bytes`; tells how many of `bytes` left. No more than
    /// a turn's worth: the kernel would copy a mebibyte into a socket that has room for it while others
    /// wait.
    async fn push(&mut self, conn: &mut Conn, bytes: &[u8]) -> Result<usize, SendError> {
        let worker = conn.worker.clone();
        let head = &self.head[self.head_bytes..];
        let turn = &bytes[..bytes.len().min(TURN_BYTES_MAX)];
        let head_bytes = head.len();
        let pushed = patiently(conn, |conn, context| match (head, turn) {
            ([], one) | (one, []) => conn.transport.poll_write(context, one).map_err(gone),
            _ if head.len() + turn.len() <= JOINED_BYTES_MAX => {
                let mut joined = worker.outbound.borrow_mut();
                joined.clear();
                joined.extend_from_slice(head);
                joined.extend_from_slice(turn);
                conn.transport.poll_write(context, &joined).map_err(gone)
            }
            _ => {
                let slices = [IoSlice::new(head), IoSlice::new(turn)];
                conn.transport
                    .poll_write_vectored(context, &slices)
                    .map_err(gone)
            }
        })
        .await?;
        self.count(conn, pushed).await;
        Ok(pushed.saturating_sub(head_bytes))
    }

    async fn writable(&mut self, conn: &mut Conn) -> Result<(), SendError> {
        let ready = |conn: &mut Conn, context: &mut Context<'_>| {
            conn.transport.poll_write_ready(context).map_err(gone)
        };
        patiently(conn, ready).await
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

/// Waits for the socket, at most `limits.send_timeout`. The clock is read only if there is a wait.
async fn patiently<T>(
    conn: &mut Conn,
    mut attempt: impl FnMut(&mut Conn, &mut Context<'_>) -> Poll<Result<T, SendError>>,
) -> Result<T, SendError> {
    let mut waiting = false;
    let outcome = poll_fn(|context| {
        if let Poll::Ready(outcome) = attempt(conn, context) {
            return Poll::Ready(outcome);
        }
        if !waiting {
            waiting = true;
            let send_timeout = conn.worker.service().config.limits.send_timeout;
            conn.timer.set(Instant::now() + send_timeout);
        }
        if conn.timer.poll_expired(context) {
            return Poll::Ready(Err(SendError::Timeout));
        }
        Poll::Pending
    })
    .await;
    if waiting {
        conn.timer.clear();
    }
    outcome
}

/// Of an error of the client's socket.
fn gone(_: io::Error) -> SendError {
    SendError::Gone
}
