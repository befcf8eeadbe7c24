//! A response from a backend. The request is sent at the same time, because a backend may respond before it has
//! read the whole body.

use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use levity_net::TURN_BYTES_MAX;
use levity_telemetry::stall;
use levity_wire::Reject;
use levity_wire::http1::Trailers;
use levity_wire::sse;

use super::drain::Drain;
use super::heartbeat::Heartbeat;
use super::reported::Reported;
use super::stderr::Stderr;
use super::tunnel::Tunnel;
use super::upload::Upload;
use crate::http::request_body::RequestBody;
use crate::http::response::{BodyStream, Piece, PieceLimits, StreamError};
use crate::loop_core::pipes::PipeLease;
use crate::loop_core::{self, LoopCore};
use crate::message::request::RequestError;
use crate::upstream::codec::Event;
use crate::upstream::codec::head::Head;
use crate::upstream::failure::Failure;
use crate::upstream::pool::{Endpoint, Lease};
use crate::upstream::upstream_request::UpstreamRequest;

/// The time for a backend to respond to `Expect: 100-continue` (RFC 9110, 10.1.1). After it, the client gets
/// 100 from this server.
const EXPECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The rest of a body from which it passes through a pipe, in bytes. Below, two copies cost about as much: with 16
/// connections over TCP 491 to 451 us per MB for 64 KiB, 362 to 287 for 128 KiB, 296 to 189 for 512 KiB (Linux 6.18).
const SPLICE_BYTES_MIN: u64 = 128 * 1024;

/// The maximum number of interim responses per request. An application that sends 102 every second has a minute.
const INTERIM_MAX: usize = 64;

const STALLED: &str = "the response stalled (idle_timeout)";

const TOO_MANY_INTERIM: Reject = Reject {
    status: 502,
    reason: "too many interim responses",
};

/// A response from a backend, and the rest of its request.
pub struct UpstreamResponse {
    core: Rc<LoopCore>,
    endpoint: Endpoint,
    /// `None` once the response has ended.
    lease: Option<Lease>,
    /// `None` once it goes on without the client.
    upload: Option<Upload>,
    /// Since when nothing has come for nobody; `None` with a client, whose timer says it.
    silent_since: Option<Instant>,
    /// The end of the body has been encoded. It may come long after the last byte.
    is_encoded: bool,
    /// The client does not send the body until the backend requests it with 100 (Continue).
    holds_body: bool,
    /// No more of the request is sent: the backend does not read it, or has responded without it.
    upload_stopped: bool,
    /// A byte of the request has been sent.
    request_begun: bool,
    /// A byte of the response has arrived.
    begun: bool,
    /// Interim responses to pass on.
    interim: Vec<Head>,
    /// Interim responses that have arrived.
    interim_count: usize,
    /// The header, until it is passed on.
    head: Option<Head>,
    extent: Extent,
    /// When a stream of events gets comments, if it does.
    heartbeat: Option<Heartbeat>,
    /// Bytes of the body to pass on.
    data: Vec<u8>,
    /// Further bytes of the body, in place of `data`.
    spliced: Option<PipeLease>,
    /// The limits of the next piece.
    limits: PieceLimits,
    /// `Some` once the response has ended.
    trailers: Option<Trailers>,
    /// Why the backend has refused the request.
    declined: Option<&'static str>,
    stderr: Stderr,
}

impl std::fmt::Debug for UpstreamResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpstreamResponse").finish_non_exhaustive()
    }
}

/// Whether a response has a foreseeable end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Its length is announced.
    Length,
    /// Server-sent events: it lasts until the client disconnects.
    Events,
    /// Unknown.
    Unknown,
}

impl Extent {
    fn of(head: &Head) -> Self {
        const EVENTS: &[u8] = sse::MEDIA_TYPE.as_bytes();
        if head.length.is_some() {
            return Self::Length;
        }
        let media_type = head.fields.value("content-type").unwrap_or_default();
        let start = media_type.get(..EVENTS.len());
        match start.is_some_and(|start| start.eq_ignore_ascii_case(EVENTS)) {
            true => Self::Events,
            false => Self::Unknown,
        }
    }
}

/// What the wait for the body has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    /// More of the body, or its end.
    Body,
    /// Nothing for so long that the client gets a comment.
    Beat,
}

/// An event before the body of a response.
pub enum BeforeBody {
    /// An interim response (1xx).
    Interim(Head),
    /// The backend has not responded to `Expect: 100-continue` in time.
    ExpectTimeout,
    /// The header of the final response.
    Head(Head),
}

impl UpstreamResponse {
    /// Begins a request on the connection of `lease`. Encodes its header and sends nothing yet.
    ///
    /// # Errors
    /// When the protocol cannot express the request. Returns the upload too.
    pub fn new(
        core: Rc<LoopCore>,
        outgoing: &UpstreamRequest<'_>,
        mut lease: Lease,
        upload: Upload,
    ) -> Result<Box<Self>, Box<(Failure, Upload)>> {
        let connection = lease.connection();
        if let Err(reject) = connection.begin(outgoing) {
            if connection.is_reusable() {
                lease.put_back();
            }
            return Err(Box::new((Failure::of_client(reject.into()), upload)));
        }
        let is_encoded = upload.is_done();
        if is_encoded {
            connection.end_of_body(&upload.trailers());
        }
        Ok(Box::new(Self {
            core,
            endpoint: lease.endpoint(),
            lease: Some(lease),
            upload: Some(upload),
            silent_since: None,
            is_encoded,
            holds_body: outgoing.expects_continue,
            upload_stopped: false,
            request_begun: false,
            begun: false,
            interim: Vec::new(),
            interim_count: 0,
            head: None,
            extent: Extent::Unknown,
            heartbeat: None,
            data: Vec::new(),
            spliced: None,
            limits: PieceLimits {
                bytes_max: TURN_BYTES_MAX,
                may_splice: false,
            },
            trailers: None,
            declined: None,
            stderr: Stderr::default(),
        }))
    }

    /// The body of the request, for another attempt.
    pub fn into_upload(self) -> Upload {
        self.upload.expect("it has its client")
    }

    /// Whether a byte of the response has arrived.
    pub fn is_begun(&self) -> bool {
        self.begun
    }

    /// Whether a byte of the request has been sent.
    pub fn is_request_begun(&self) -> bool {
        self.request_begun
    }

    fn has_trailers(&self) -> bool {
        self.trailers
            .as_ref()
            .is_some_and(|trailers| !trailers.is_empty())
    }

    /// Whether the rest of the request body will be read, so that the client can send another request after it.
    pub fn reads_request(&self) -> bool {
        self.upload().is_received() || (self.lease.is_some() && !self.upload_stopped)
    }

    /// Sends no more of the request.
    pub fn stop_upload(&mut self) {
        self.upload_stopped |= !self.is_encoded;
    }

    /// Whether the client may still wait for 100 (Continue) although the backend is sending its response. A
    /// backend that has ended its response does not want the body.
    pub fn holds_body(&self) -> bool {
        self.holds_body && self.lease.is_some()
    }

    /// Permits to send the body.
    pub fn release_body(&mut self) {
        self.holds_body = false;
    }

    /// Turns the connection into a tunnel after a response of 101, with the bytes that followed its header.
    /// `None` when the connection has ended.
    pub fn into_tunnel(mut self: Box<Self>) -> Option<Tunnel> {
        let lease = self.lease.take()?;
        Some(Tunnel::new(
            self.core,
            self.upload?.client().clone(),
            lease,
            self.data,
            &self.endpoint.upstream().settings,
        ))
    }

    /// The length of the body in bytes, if it is announced or if the whole body has arrived.
    pub fn length(&self, announced: Option<u64>) -> Option<u64> {
        let is_whole = self.trailers.is_some() && !self.has_trailers();
        announced.or(is_whole.then_some(self.data.len() as u64))
    }

    /// Sends the request and waits for the next event before the body.
    pub async fn event(&mut self) -> Result<BeforeBody, Failure> {
        let event = poll_fn(|context| {
            let moved = self.poll_transfer(context)?;
            if !self.interim.is_empty() {
                return Poll::Ready(Ok(BeforeBody::Interim(self.interim.remove(0))));
            }
            if let Some(head) = self.head.take() {
                self.extent = Extent::of(&head);
                self.heartbeat = self.heartbeat_of(&head);
                self.upload.iter_mut().for_each(Upload::answered);
                return Poll::Ready(Ok(BeforeBody::Head(head)));
            }
            if !self.has_expired(moved, Self::header_timeout, context)? {
                return Poll::Pending;
            }
            match self.holds_body {
                true => Poll::Ready(Ok(BeforeBody::ExpectTimeout)),
                false => Poll::Ready(Err(self.timeout_failure())),
            }
        })
        .await;
        self.end_wait();
        event
    }

    fn heartbeat_of(&self, head: &Head) -> Option<Heartbeat> {
        let interval = self.endpoint.upstream().settings.event_stream_heartbeat?;
        let is_stream = self.extent == Extent::Events;
        is_stream.then(|| Heartbeat::of(head, interval, stall::poll_start()))?
    }

    /// Waits for `informing`, which sends an interim response to the client. Meanwhile it takes those that follow from a
    /// shared connection, which is read for the other requests on it: they count towards the maximum although the client
    /// is slow. On a connection of its own they wait in the socket.
    ///
    /// # Errors
    /// When the response has failed. `informing` is over even then, because the client needs all of what it sends.
    pub async fn while_informing(
        &mut self,
        informing: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        let mut informing = pin!(informing);
        let mut taken = Ok(());
        poll_fn(|context| {
            if informing.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            if taken.is_ok() {
                taken = self.take_interim(context);
                if taken.is_err() {
                    // It resets the stream, so that no more arrives.
                    self.lease = None;
                }
            }
            Poll::Pending
        })
        .await;
        taken
    }

    /// Takes the interim responses that have arrived on a shared connection.
    fn take_interim(&mut self, context: &mut Context<'_>) -> Result<(), Failure> {
        while self.head.is_none()
            && self.lease.as_ref().is_some_and(Lease::is_shared)
            && self.poll_receive(context)?.is_some()
        {}
        Ok(())
    }

    fn upload(&self) -> &Upload {
        self.upload.as_ref().expect("it has its client")
    }

    /// The client that waits for the response.
    fn client(&self) -> &RequestBody {
        self.upload().client()
    }

    /// Notes that what was waited for has come.
    fn end_wait(&mut self) {
        match &self.upload {
            Some(upload) => upload.client().timer().clear(),
            None => self.silent_since = None,
        }
    }

    /// Watches the client, and returns whether the wait for the backend has timed out. The time starts again when
    /// something has `moved`, and when the client shuts down its sending side.
    fn has_expired(
        &self,
        moved: bool,
        timeout: impl Fn(&Self) -> Duration,
        context: &mut Context<'_>,
    ) -> Result<bool, Failure> {
        let client = self.client();
        let input_had_ended = client.input_ended();
        let watched = client.watch(context);
        watched.map_err(|_| Failure::of_absent_client())?;
        if self.waits_for_room() {
            client.timer().clear();
            return Ok(false);
        }
        if moved || !client.timer().is_set() || client.input_ended() != input_had_ended {
            let timeout = timeout(self);
            let timeout = match self.is_shortened(timeout) {
                true => client.half_closed_timeout(),
                false => timeout,
            };
            match self.waits_for_client() {
                true => {
                    let time = client.client_time(timeout);
                    client.timer().set_for_client(stall::poll_start(), time);
                }
                false => client.timer().set(stall::poll_start() + timeout),
            }
        }
        Ok(client.timer().poll_expired(context))
    }

    /// Waits for more of the body, or its end, and sends the rest of the request. `Beat` if a comment is to take its place.
    fn poll_body(&mut self, context: &mut Context<'_>) -> Poll<Result<Awaited, Failure>> {
        let moved = self.poll_transfer(context)?;
        if self.has_body() || self.trailers.is_some() {
            return Poll::Ready(Ok(Awaited::Body));
        }
        let idle_timeout = |response: &Self| response.endpoint.upstream().settings.idle_timeout;
        let now = stall::poll_start();
        if self.upload.is_none() {
            let since = *self.silent_since.get_or_insert(now);
            return match now < since + idle_timeout(self) {
                true => Poll::Pending,
                false => Poll::Ready(Err(self.silence(STALLED))),
            };
        }
        if let Some(heartbeat) = self.heartbeat.as_mut().filter(|_| moved) {
            heartbeat.restart(now);
        }
        let wait = |response: &Self| match &response.heartbeat {
            Some(heartbeat) => heartbeat.wait(idle_timeout(response), now),
            None => idle_timeout(response),
        };
        let has_expired = self.has_expired(moved, wait, context)?;
        if self.client().input_ended() && self.extent == Extent::Events {
            return Poll::Ready(Err(Failure::of_client(RequestError::Gone)));
        }
        if !has_expired {
            return Poll::Pending;
        }
        let silence_max = idle_timeout(self);
        if let Some(heartbeat) = &mut self.heartbeat
            && heartbeat.beats(silence_max, now)
        {
            return Poll::Ready(Ok(Awaited::Beat));
        }
        Poll::Ready(Err(match self.is_shortened(silence_max) {
            true => Failure::of_half_closed(self.client().half_closed_timeout()),
            false => self.silence(STALLED),
        }))
    }

    /// Whether `half_closed_timeout` replaces `timeout`, because the connection to the client is half-closed and
    /// the client may be gone. Not for a response of known length: it ends, or a write to the client fails.
    fn is_shortened(&self, timeout: Duration) -> bool {
        let client = self.client();
        let has_end = self.extent == Extent::Length;
        client.input_ended() && !has_end && client.half_closed_timeout() < timeout
    }

    /// The time for the next step towards the header, whether the backend or the client has to make it.
    fn header_timeout(&self) -> Duration {
        let settings = &self.endpoint.upstream().settings;
        match () {
            () if self.holds_body => EXPECT_TIMEOUT,
            () if self.has_unsent() => settings.idle_timeout,
            () if self.waits_for_client() => self.client().body_timeout(),
            () => settings.first_byte_timeout,
        }
    }

    /// Whether something of the request is left to send.
    fn has_unsent(&self) -> bool {
        self.lease.as_ref().is_some_and(Lease::has_unsent)
    }

    fn waits_for_client(&self) -> bool {
        self.waits_for_body() && !self.upload().waits_for_room()
    }

    /// Whether neither the client nor the backend is slow: this server takes no more of the body until there is memory, which takes
    /// limited time.
    fn waits_for_room(&self) -> bool {
        self.waits_for_body() && self.upload().waits_for_room()
    }

    /// Whether the backend takes more of the body than is here.
    fn waits_for_body(&self) -> bool {
        let backend_reads = self.lease.as_ref().is_some_and(Lease::has_room);
        // A body that has been received may still have to be read from its file.
        let is_incomplete = !self.upload_stopped && !self.upload().is_received();
        backend_reads && is_incomplete && !self.has_unsent()
    }

    fn timeout_failure(&self) -> Failure {
        if self.is_shortened(self.header_timeout()) {
            return Failure::of_half_closed(self.client().half_closed_timeout());
        }
        if self.has_unsent() {
            return self.silence("the backend does not read the request (idle_timeout)");
        }
        if self.waits_for_client() {
            return Failure::of_client(RequestError::Timeout);
        }
        self.silence("no response in time (first_byte_timeout)")
    }

    /// The failure of a backend that made no progress, which its connection has to know.
    fn silence(&self, reason: &str) -> Failure {
        self.lease.as_ref().inspect(|lease| lease.was_silent());
        Failure::of_silence(reason)
    }

    /// Sends and receives until there is an event or nothing more can be done without waiting. Returns whether
    /// anything was sent. Received bytes without an event, such as a part of the header, are no progress: they
    /// do not extend the time-out.
    fn poll_transfer(&mut self, context: &mut Context<'_>) -> Result<bool, Failure> {
        let mut moved = self.poll_send(context)?;
        let mut turn_bytes = 0;
        while self.lease.is_some()
            && !self.has_event()
            && let Some(count) = self.poll_receive(context)?
        {
            // The backend may now read on, or have requested the body.
            moved |= self.poll_send(context)?;
            turn_bytes += count;
            if turn_bytes >= TURN_BYTES_MAX && !self.has_event() {
                // An application that only writes to standard error would occupy the event loop.
                context.waker().wake_by_ref();
                break;
            }
        }
        Ok(moved)
    }

    /// Whether something for the client has arrived.
    fn has_event(&self) -> bool {
        self.head.is_some() || !self.interim.is_empty() || self.has_body()
    }

    /// Whether bytes of the body have arrived.
    fn has_body(&self) -> bool {
        !self.data.is_empty() || self.spliced.is_some()
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Result<bool, Failure> {
        let mut moved = false;
        let mut turn_bytes = 0;
        while self.fill_outbox(context)? {
            if turn_bytes >= TURN_BYTES_MAX {
                // A fast client and a fast backend would occupy the event loop.
                context.waker().wake_by_ref();
                break;
            }
            let Some(lease) = &mut self.lease else { break };
            match lease.connection().poll_send(context) {
                Poll::Ready(Ok(count)) => {
                    lease.member().cells.sent_bytes.add(count as u64);
                    turn_bytes += count;
                    self.request_begun = true;
                    moved = true;
                }
                // The backend may have responded before it closed, so the error is left to the read.
                Poll::Ready(Err(_)) => {
                    self.upload_stopped = true;
                    lease.connection().drop_unsent();
                }
                Poll::Pending => break,
            }
        }
        Ok(moved)
    }

    /// Encodes more of the request when there is nothing to send. Returns whether there is something to send.
    fn fill_outbox(&mut self, context: &mut Context<'_>) -> Result<bool, Failure> {
        let Some(lease) = &mut self.lease else {
            return Ok(false);
        };
        let connection = lease.connection();
        // The first piece of the body is sent together with the header.
        let has_header = connection.has_unsent();
        if has_header && (self.request_begun || self.is_encoded) {
            return Ok(true);
        }
        if !has_header && (self.upload_stopped || self.is_encoded) {
            connection.settle();
            return Ok(connection.has_unsent());
        }
        let room = connection.room();
        if self.upload_stopped || self.is_encoded || room == 0 {
            return Ok(has_header);
        }
        let upload = self
            .upload
            .as_mut()
            .expect("its request has been sent otherwise");
        match upload.poll_piece(&self.core, context, room) {
            Poll::Ready(Ok(piece)) => {
                // A client that sends its body does not wait for 100 (Continue), whatever it has said.
                self.holds_body = false;
                connection.body(piece);
                self.is_encoded = upload.is_done();
                if self.is_encoded {
                    connection.end_of_body(&upload.trailers());
                }
                Ok(connection.has_unsent())
            }
            Poll::Ready(Err(failure)) => Err(failure),
            Poll::Pending => Ok(has_header),
        }
    }

    /// Reads once, and returns the number of bytes; `None` when nothing can be read.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Result<Option<usize>, Failure> {
        if let Some(pipe) = self.pipe() {
            return self.poll_splice(pipe, context);
        }
        let Some(lease) = &mut self.lease else {
            return Ok(None);
        };
        let Self {
            core,
            endpoint,
            interim,
            interim_count,
            head,
            data,
            limits,
            trailers,
            declined,
            stderr,
            ..
        } = self;
        let mut event = |event: Event<'_>| match event {
            Event::Interim(one) => {
                *interim_count += 1;
                interim.push(one);
            }
            Event::Head(one) => *head = Some(one),
            Event::Data(bytes) => {
                if data.capacity() == 0 {
                    *data = core.take_piece(limits.bytes_max);
                }
                data.extend_from_slice(bytes);
            }
            Event::Stderr(text) => stderr.log(endpoint.upstream(), text),
            Event::Declined(reason) => *declined = Some(reason),
            Event::End(fields) => *trailers = Some(fields),
        };
        let mut piece = Vec::new();
        let connection = lease.connection();
        let read = match connection.plain_bytes() {
            0 => {
                let scratch = &mut core.backend_bytes.borrow_mut()[..limits.bytes_max];
                connection.poll_events(context, scratch, &mut event)
            }
            left => {
                piece = buffer_for(left, limits.bytes_max, core);
                connection.poll_plain(context, &mut piece, &mut event)
            }
        };
        match piece.is_empty() {
            true => core.return_piece(piece),
            false => *data = piece,
        }
        let Poll::Ready((count, outcome)) = read else {
            return Ok(None);
        };
        self.begun |= count > 0;
        lease.member().cells.received_bytes.add(count as u64);
        outcome?;
        self.received()?;
        Ok(Some(count))
    }

    /// A pipe for the next bytes of the body, if they may pass through one.
    fn pipe(&mut self) -> Option<PipeLease> {
        let connection = self.lease.as_mut()?.connection();
        // From a Unix socket a splice costs more than two copies: 366 to 252 us per MB (Linux 6.18).
        let is_worthwhile =
            connection.plain_bytes() >= SPLICE_BYTES_MIN && connection.has_tcp_socket();
        // A heartbeat has to see where events end.
        let may_splice = self.limits.may_splice && is_worthwhile && self.heartbeat.is_none();
        may_splice.then(|| self.core.pipes.take()).flatten()
    }

    /// Like [`UpstreamResponse::poll_receive`], into `pipe`.
    fn poll_splice(
        &mut self,
        mut pipe: PipeLease,
        context: &mut Context<'_>,
    ) -> Result<Option<usize>, Failure> {
        let (Some(lease), trailers) = (&mut self.lease, &mut self.trailers) else {
            return Ok(None);
        };
        let mut event = |event: Event<'_>| {
            if let Event::End(fields) = event {
                *trailers = Some(fields);
            }
        };
        let filled = lease.connection().poll_fill(context, &mut pipe, &mut event);
        let Poll::Ready((count, outcome)) = filled else {
            return Ok(None);
        };
        lease.member().cells.received_bytes.add(count as u64);
        outcome?;
        self.spliced = Some(pipe).filter(|pipe| !pipe.is_empty());
        self.received()?;
        Ok(Some(count))
    }

    /// Handles what the last read has changed.
    fn received(&mut self) -> Result<(), Failure> {
        if self.interim_count > INTERIM_MAX {
            return Err(Failure::of_invalid_response(TOO_MANY_INTERIM));
        }
        if let Some(reason) = self.declined {
            // The refusal is not part of a response.
            self.begun = false;
            return Err(Failure::of_refusal(reason));
        }
        if self.trailers.is_some() {
            self.release_lease();
        }
        Ok(())
    }

    /// Releases the slot once the response is complete, even if the client has not received all of it.
    fn release_lease(&mut self) {
        let is_request_sent = self.is_request_sent();
        let Some(mut lease) = self.lease.take() else {
            return;
        };
        if is_request_sent && lease.connection().is_reusable() {
            lease.keep();
        }
    }

    /// Converts a failure for the sender of the response.
    fn reported(&self, failure: Failure) -> Box<Reported> {
        Reported::new(failure, self.endpoint.clone())
    }

    /// What has arrived of the body, or its end.
    fn next_piece(&mut self) -> Piece {
        let is_last = self.trailers.is_some() && !self.has_trailers();
        let bytes = mem::take(&mut self.data);
        if !bytes.is_empty() {
            return Piece::Data { bytes, is_last };
        }
        match self.spliced.take() {
            Some(pipe) => Piece::Spliced(pipe),
            None => Piece::End(self.trailers.take().unwrap_or_default()),
        }
    }

    fn is_request_sent(&self) -> bool {
        self.is_encoded && !self.has_unsent() && !self.upload_stopped
    }
}

/// A buffer for a read of up to `bytes_max` of the `left` bytes of a body. It has room for one more than these, because
/// a read that does not fill its buffer saves the one that finds the socket empty.
fn buffer_for(left: u64, bytes_max: usize, core: &LoopCore) -> Vec<u8> {
    let mut buffer = core.take_piece(bytes_max);
    let with_one_more = usize::try_from(left.saturating_add(1)).unwrap_or(bytes_max);
    buffer.reserve_exact(with_one_more.min(bytes_max));
    buffer
}

impl BodyStream for UpstreamResponse {
    fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
        limits: PieceLimits,
    ) -> Poll<Result<Piece, StreamError>> {
        self.limits = limits;
        loop {
            if !self.has_body() && self.trailers.is_none() {
                let more = ready!(self.poll_body(context));
                self.end_wait();
                let more = more.map_err(|failure| self.reported(failure) as StreamError)?;
                if more == Awaited::Beat {
                    let bytes = sse::HEARTBEAT.to_vec();
                    let is_last = false;
                    return Poll::Ready(Ok(Piece::Data { bytes, is_last }));
                }
            }
            if let Some(heartbeat) = &mut self.heartbeat {
                heartbeat.heard(&mut self.data, stall::poll_start());
                if !self.has_body() && self.trailers.is_none() {
                    // A byte order mark was all that had arrived.
                    continue;
                }
            }
            return Poll::Ready(Ok(self.next_piece()));
        }
    }

    fn poll_upload(&mut self, context: &mut Context<'_>) -> Result<(), StreamError> {
        let sent = self.poll_send(context);
        sent.map(|_| ())
            .map_err(|failure| self.reported(failure) as _)
    }

    fn detach(&mut self) -> bool {
        let is_request_sent = self.is_request_sent();
        if is_request_sent {
            self.upload = None;
            // Whoever gets the events keeps the connection alive.
            self.heartbeat = None;
        }
        is_request_sent
    }

    /// Reads the rest in a task of its own, which holds nothing of the client.
    fn discard(mut self: Box<Self>) {
        if !self.is_request_sent() {
            return;
        }
        let Some(lease) = self.lease.take() else {
            return;
        };
        if lease.is_shared() {
            return;
        }
        let drain = Drain::new(self.core, self.endpoint, lease, self.stderr);
        loop_core::spawn(drain.run());
    }
}
