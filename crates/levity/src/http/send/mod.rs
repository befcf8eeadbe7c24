//! Send: from a response to bytes on the wire.
//!
//! A header leaves together with the first bytes of its body, and only when those are in hand: until
//! then a failing disk can still be told to the client.

mod file;
mod filtered;
mod stream;

use std::future::poll_fn;
use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use levity_net::TURN_BYTES_MAX;
use levity_telemetry::access_log::{End, Source};
use levity_telemetry::diagnostics;
use levity_telemetry::trace::{Trace, UpstreamTrace};
use levity_wire::http1::{Method, Trailers};

use self::file::Pace;
use super::completion::{Completion, CompletionHook};
use super::error::{error, of_io};
use super::request::Request;
use super::request_body::ClientStream;
use super::response::{Body, Response, StreamError, UpgradeError};
use crate::disk_client::DiskClient;
use crate::entry::Content;
use crate::worker::Worker;

/// The end of a [`ClientStream`] that a response is written to: the framing of one version of HTTP.
pub trait ResponseSink: ClientStream {
    /// A header, as the version sends it.
    type Header;

    /// The loop that it lives on.
    fn worker(&self) -> &Rc<Worker>;

    /// Makes a header. Nothing is sent yet: an error may take the place of the response.
    fn header(&self, head: &Head<'_>) -> Self::Header;

    /// How the client learns where a body ends.
    fn framing(&self, is_open_ended: bool) -> Framing;

    /// Sends what is left of `header`, then as much of `body` as the client takes now. A header that has left is `None`.
    fn poll_send(
        &self,
        context: &mut Context<'_>,
        header: &mut Option<Self::Header>,
        body: [&[u8]; 3],
    ) -> Poll<io::Result<Moved>>;

    /// Ready when a write is likely to move bytes.
    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ends a response whose bytes have all been written; `trailers` are for a version that writes no chunks.
    fn poll_end(&self, context: &mut Context<'_>, trailers: &Trailers) -> Poll<io::Result<()>>;

    /// Whether bytes may be moved to the client from a descriptor.
    fn has_socket(&self) -> bool;

    /// Runs a system call that moves bytes to the client's socket. Only where it [has one](ResponseSink::has_socket).
    ///
    /// # Errors
    /// Those of `call`; `WouldBlock` when the socket is full.
    fn try_move<T>(&self, call: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T>;

    /// Sends what is left of `header` so that the kernel waits for bytes of the body to fill the packet. Only where there
    /// [is a socket](ResponseSink::has_socket).
    ///
    /// # Errors
    /// Those of `send`; `WouldBlock` when the socket is full.
    fn try_send_header(&self, header: &mut Option<Self::Header>) -> io::Result<Moved>;

    /// Makes the end of the response one by which the client learns that it is incomplete.
    fn reset(&self);
}

/// How a client learns where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// By its length.
    ByLength,
    /// By the version's own frames. The connection goes on behind a body that is cut.
    ByFrames,
    /// By chunks (RFC 9112, 7.1).
    Chunks,
    /// By the end of the connection.
    ByClosing,
}

/// What has left with one call.
#[derive(Debug, Clone, Copy)]
pub struct Moved {
    /// Bytes in all.
    pub bytes: usize,
    /// Bytes of the body.
    pub body_bytes: usize,
}

/// All that is written before a body.
#[derive(Debug, Clone, Copy)]
pub struct Head<'r> {
    /// The status code.
    pub status: u16,
    /// What goes with it; empty for the standard name.
    pub reason: &'r [u8],
    /// Header lines; the second ones follow the first.
    pub fields: [&'r [u8]; 2],
    /// `fields` have a Date.
    pub has_date: bool,
    /// `fields` have a Server, or are to have none.
    pub has_server: bool,
    /// The value of `Server-Timing`, where it is wanted.
    pub server_timing: Option<&'r str>,
    /// Bytes of the body; `None` when only its end tells, or when the status forbids to say.
    pub length: Option<u64>,
    /// How the client learns where the body ends.
    pub framing: Framing,
    /// The protocol that is spoken from now on.
    pub upgrade: Option<&'r [u8]>,
    /// Nothing follows on the connection.
    pub close: bool,
}

/// What became of a response.
pub struct Sent {
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
    /// For those who made the response.
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
    /// The source of the body failed.
    Source(StreamError),
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

/// Sends `response`, without its body to a HEAD request. Where that fails before anything has left,
/// [`Sent::instead`] is the error to send.
pub async fn send<S: ResponseSink>(
    sink: &S,
    request: &Request,
    response: &mut Response,
    disk: &mut DiskClient<'_>,
) -> Sent {
    let head_only = request.head.method == Method::Head;
    let is_open_ended = response.is_open_ended();
    let mut body = mem::replace(&mut response.body, Body::None);
    let mut filters = mem::take(&mut response.filters);
    let mut sender = Sender::new(sink, response, &body, is_open_ended);
    sender.keep_timing(disk.trace);
    let outcome = match filters.is_empty() || head_only {
        true => sender.response(&mut body, head_only, disk).await,
        // Boxed: most bodies go out as they are.
        false => Box::pin(sender.filtered(&mut body, &mut filters, disk)).await,
    };
    match &outcome {
        Err(SendError::Unreadable(error)) => report_unreadable(sink.worker(), request, error),
        // Nothing is wrong with one that can be looked up again.
        Err(SendError::Rewritten) if !sender.untouched() => {
            let path = String::from_utf8_lossy(&request.path);
            diagnostics::log(format_args!(
                "cannot read {path}: it was rewritten while it was sent"
            ));
        }
        Err(SendError::Source(failure)) => failure.report(sender.untouched(), disk.trace),
        _ => {}
    }
    let reset = !sender.untouched() && sender.must_reset(&outcome);
    if reset {
        sink.reset();
    }
    let source = source(&body, disk.trace);
    let mut sent = sender.sent(source, outcome);
    sent.reset = reset;
    sent.hooks = mem::take(&mut response.hooks);
    sent
}

/// Sends a response to something that was no request.
pub async fn refuse<S: ResponseSink>(sink: &S, mut response: Response) -> Sent {
    response.close = true;
    let body = mem::replace(&mut response.body, Body::None);
    let mut sender = Sender::new(sink, &response, &body, false);
    let mut outcome = match &body {
        Body::Text(text) => sender.bytes(text).await,
        _ => sender.rest_of_header().await,
    };
    if outcome.is_ok() {
        outcome = sender.end(&Trailers::default()).await;
    }
    sender.sent(Source::None, outcome)
}

/// Sends the header of an interim response. A client that is gone is noticed when its body is read, or its response sent.
pub async fn interim<S: ResponseSink>(sink: &S, header: S::Header) {
    let response = Response::new(100);
    let mut sender = Sender::new(sink, &response, &Body::None, false);
    sender.header = Some(header);
    sender.has_header = true;
    let _ = sender.rest_of_header().await;
}

fn report_unreadable(worker: &Worker, request: &Request, error: &io::Error) {
    let path = String::from_utf8_lossy(&request.path);
    worker.disk_failed(error, || format!("cannot read {path}: {error}"));
}

fn source(body: &Body, trace: &Trace) -> Source {
    match body {
        Body::Memory(..) | Body::File(_) | Body::Parts(_) if trace.disk_trips() > 0 => Source::Disk,
        Body::Memory(..) => Source::Memory,
        Body::File(_) | Body::Parts(_) => Source::Cached,
        Body::Stream { .. } | Body::Upgrade { .. } => Source::Upstream,
        // A response without a body is an application's too.
        Body::None if trace.upstream().is_some_and(UpstreamTrace::is_answered) => Source::Upstream,
        Body::None | Body::Text(_) | Body::Page(_) => Source::None,
    }
}

/// One response on its way.
struct Sender<'s, S: ResponseSink> {
    sink: &'s S,
    response: &'s Response,
    /// What [`Head`] says of the body.
    length: Option<u64>,
    framing: Framing,
    upgrade: Option<Vec<u8>>,
    server_timing: Option<String>,
    /// Made anew until its first byte has left; `None` once all of it has.
    header: Option<S::Header>,
    has_header: bool,
    body_bytes: u64,
    /// The client can tell a body that is cut from a whole one when the connection is closed in an orderly way
    /// (RFC 9112, 8): not where its end is that of the body, where it goes on, nor behind a change of protocol.
    is_framed: bool,
    /// The body goes out in chunks.
    chunks: bool,
    /// Bytes among `body_bytes` that only frame chunks.
    framing_bytes: u64,
    first_byte: Option<Instant>,
    /// When the last byte so far left.
    last_byte: Option<Instant>,
    pace: Pace,
}

impl<'s, S: ResponseSink> Sender<'s, S> {
    fn new(sink: &'s S, response: &'s Response, body: &Body, is_open_ended: bool) -> Self {
        let framing = sink.framing(is_open_ended);
        let upgrade = match body {
            Body::Upgrade { protocol, .. } => Some(protocol.clone()),
            _ => None,
        };
        Self {
            sink,
            response,
            length: body.length().filter(|_| !is_open_ended),
            framing,
            is_framed: upgrade.is_none() && matches!(framing, Framing::ByLength | Framing::Chunks),
            upgrade,
            server_timing: None,
            header: None,
            has_header: false,
            body_bytes: 0,
            chunks: framing == Framing::Chunks,
            framing_bytes: 0,
            first_byte: None,
            last_byte: None,
            pace: Pace::new(),
        }
    }

    fn sent(&self, source: Source, outcome: Result<(), SendError>) -> Sent {
        let end = match &outcome {
            Ok(()) => End::Complete,
            Err(SendError::Gone) => End::ClientAbort,
            Err(SendError::Timeout) => End::Timeout,
            Err(SendError::Unreadable(_) | SendError::Rewritten) => End::Error,
            Err(SendError::Source(failure)) => failure.end(),
        };
        // A response that is cut off ends later than with its last byte.
        let ended = self.last_byte.filter(|_| outcome.is_ok());
        let outdated = self.untouched() && matches!(outcome, Err(SendError::Rewritten));
        let instead = match outcome {
            Err(SendError::Rewritten) if outdated => {
                Some(error(503, "the file is being rewritten"))
            }
            Err(SendError::Unreadable(error)) if self.untouched() => Some(of_io(&error)),
            Err(SendError::Source(failure)) if self.untouched() => Some(failure.response()),
            _ => None,
        };
        Sent {
            hooks: Vec::new(),
            status: self.response.status,
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
            Err(SendError::Unreadable(_) | SendError::Rewritten | SendError::Source(_)) => {
                !self.is_framed
            }
        }
    }

    fn untouched(&self) -> bool {
        self.first_byte.is_none()
    }

    /// Has a header of which nothing has left tell the time so far.
    fn keep_timing(&mut self, trace: &Trace) {
        if self.untouched()
            && let Some(metrics) = trace.server_timing()
        {
            self.server_timing = Some(metrics.to_string());
            self.has_header = false;
        }
    }

    /// Makes sure of the header. From its first byte that leaves on, the response cannot be replaced.
    fn make_header(&mut self) {
        if mem::replace(&mut self.has_header, true) {
            return;
        }
        let base = self.response.base.as_ref();
        let base = base.map_or(&[][..], |base| base.entry.fields.as_bytes());
        self.header = Some(self.sink.header(&Head {
            status: self.response.status,
            reason: &self.response.reason,
            fields: [base, self.response.fields.as_bytes()],
            has_date: self.response.has_date,
            has_server: self.response.has_server,
            server_timing: self.server_timing.as_deref(),
            length: self.length,
            framing: self.framing,
            upgrade: self.upgrade.as_deref(),
            close: self.response.close,
        }));
    }

    async fn response(
        &mut self,
        body: &mut Body,
        head_only: bool,
        disk: &mut DiskClient<'_>,
    ) -> Result<(), SendError> {
        match body {
            _ if head_only => self.rest_of_header().await?,
            Body::None => self.rest_of_header().await?,
            Body::Text(text) => self.bytes(text).await?,
            Body::Page(page) => self.bytes((**page).as_ref()).await?,
            Body::Memory(cached, range) => match &cached.entry.content {
                Content::Memory(bytes, _) => self.bytes(&bytes[range.clone()]).await?,
                Content::File(_) => unreachable!("a memory body is of an entry in memory"),
            },
            Body::File(file) if file.remaining == 0 => self.rest_of_header().await?,
            // Boxed: a small file in memory needs none of it.
            Body::File(file) => Box::pin(self.file(file, disk)).await?,
            Body::Parts(parts) => {
                while let Some(mut part) = parts.next(disk).await.map_err(SendError::Unreadable)? {
                    Box::pin(self.file(&mut part, disk)).await?;
                }
                self.rest_of_header().await?;
            }
            Body::Stream { stream, .. } => return self.stream(&mut **stream).await,
            Body::Upgrade { tunnel, .. } => return self.upgrade(&mut **tunnel).await,
        }
        self.end(&Trailers::default()).await
    }

    async fn rest_of_header(&mut self) -> Result<(), SendError> {
        self.make_header();
        while self.header.is_some() {
            self.push(&[]).await?;
        }
        Ok(())
    }

    async fn bytes(&mut self, bytes: &[u8]) -> Result<(), SendError> {
        let mut sent = 0;
        while sent < bytes.len() {
            sent += self.push(&bytes[sent..]).await?;
        }
        self.rest_of_header().await
    }

    async fn end(&mut self, trailers: &Trailers) -> Result<(), SendError> {
        let sink = self.sink;
        patiently(sink, |context| {
            sink.poll_end(context, trailers).map_err(gone)
        })
        .await
    }

    /// Sends once what is left of the header, then `bytes`; tells how many of `bytes` left. No more than
    /// a turn's worth: the kernel would copy a mebibyte into a socket that has room for it while others
    /// wait.
    async fn push(&mut self, bytes: &[u8]) -> Result<usize, SendError> {
        self.make_header();
        let (sink, header) = (self.sink, &mut self.header);
        let turn = &bytes[..bytes.len().min(TURN_BYTES_MAX)];
        let moved = patiently(sink, |context| {
            let sent = sink.poll_send(context, header, [turn, &[], &[]]);
            sent.map_err(gone)
        })
        .await?;
        self.count(moved).await;
        Ok(moved.body_bytes)
    }

    async fn writable(&mut self) -> Result<(), SendError> {
        let sink = self.sink;
        patiently(sink, |context| sink.poll_write_ready(context).map_err(gone)).await
    }

    /// Counts what left, and gives way to others in time.
    async fn count(&mut self, moved: Moved) {
        let now = Instant::now();
        self.first_byte.get_or_insert(now);
        self.last_byte = Some(now);
        self.body_bytes += moved.body_bytes as u64;
        self.sink.turn().spend(moved.bytes).await;
    }
}

/// Waits for the client, at most `limits.send_timeout`. The clock is read only if there is a wait.
async fn patiently<S: ResponseSink, T>(
    sink: &S,
    mut attempt: impl FnMut(&mut Context<'_>) -> Poll<Result<T, SendError>>,
) -> Result<T, SendError> {
    let mut waiting = false;
    let outcome = poll_fn(|context| {
        if let Poll::Ready(outcome) = attempt(context) {
            return Poll::Ready(outcome);
        }
        if !waiting {
            waiting = true;
            let send_timeout = sink.worker().service().config.limits.send_timeout;
            sink.timer().set(Instant::now() + send_timeout);
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

/// Of an error of the client's connection.
fn gone(_: io::Error) -> SendError {
    SendError::Gone
}

#[cfg(test)]
mod tests;
