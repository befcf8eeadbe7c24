//! One request at one backend: the request goes there, the response comes back, both at once.

use std::future::poll_fn;
use std::mem;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use levity_net::TURN_BYTES_MAX;
use levity_telemetry::stall::Watch;
use levity_wire::Reject;
use levity_wire::http1::Trailers;
use tokio::task;

use super::codec::Event;
use super::codec::head::Head;
use super::drain::Drain;
use super::failure::Failure;
use super::pool::{Endpoint, Lease};
use super::reported::Reported;
use super::stderr::Stderr;
use super::tunnel::Tunnel;
use super::upload::Upload;
use super::upstream_request::UpstreamRequest;
use crate::http::request::RequestError;
use crate::http::request_body::RequestBody;
use crate::http::response::{BodyStream, Piece, StreamError};
use crate::worker::Worker;

/// Bytes of a request's head, mostly.
const HEAD_BYTES: usize = 1024;

/// How long a backend may leave a client waiting that asked whether its body is wanted (RFC 9110,
/// 10.1.1).
const EXPECT_PATIENCE: Duration = Duration::from_secs(1);

/// Responses before the one that answers; an application that says 102 every second has a minute.
const INTERIM_MAX: usize = 64;

const TOO_MANY_INTERIM: Reject = Reject {
    status: 502,
    reason: "too many interim responses",
};

/// A backend's response on its way, and what is left of its request.
pub struct UpstreamResponse {
    worker: Rc<Worker>,
    endpoint: Endpoint,
    /// WorkerParts back as soon as the answer has ended.
    lease: Option<Lease>,
    upload: Upload,
    /// What the backend is to get next.
    outbox: Vec<u8>,
    outbox_sent: usize,
    /// The body is held back until the backend asks for it.
    holds: bool,
    /// No more of the request is sent: the backend does not take it, or has answered without.
    stopped: bool,
    /// A byte of the request has left.
    wrote: bool,
    /// A byte of the answer has come.
    read: bool,
    interim: Vec<Head>,
    /// So far.
    interim_count: usize,
    head: Option<Head>,
    extent: Extent,
    /// Bytes of the body that the client has not got.
    data: Vec<u8>,
    ended: Option<Trailers>,
    /// Why the backend has not taken the request.
    declined: Option<&'static str>,
    stderr: Stderr,
}

impl std::fmt::Debug for UpstreamResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpstreamResponse").finish_non_exhaustive()
    }
}

/// What is known of how long an answer goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Its length was announced.
    Length,
    /// It goes on until the client leaves (server-sent events).
    Events,
    /// Nothing.
    Unknown,
}

impl Extent {
    fn of(head: &Head) -> Self {
        const EVENTS: &[u8] = b"text/event-stream";
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

/// What comes before the body of a response.
pub enum BeforeBody {
    /// The client is to be told, and waits on.
    Interim(Head),
    /// The client asked whether its body is wanted, and nobody says so: it is to send it.
    GoOn,
    /// The answer begins.
    Head(Head),
}

impl UpstreamResponse {
    /// Asks for an answer on the connection of `lease`: nothing is sent yet.
    ///
    /// # Errors
    /// When the request cannot be said in the protocol. The upload comes back with it.
    pub fn new(
        worker: Rc<Worker>,
        ask: &UpstreamRequest<'_>,
        mut lease: Lease,
        upload: Upload,
    ) -> Result<Box<Self>, Box<(Failure, Upload)>> {
        let connection = lease.connection();
        let mut outbox = mem::take(&mut connection.outbox);
        outbox.reserve(HEAD_BYTES);
        outbox.extend_from_slice(&ask.proxy_header);
        if let Err(reject) = connection.codec.begin(ask, &mut outbox) {
            if connection.codec.is_reusable() {
                connection.keep_outbox(outbox);
                lease.put_back();
            }
            return Err(Box::new((Failure::of_client(reject.into()), upload)));
        }
        if upload.is_done() {
            let codec = &mut connection.codec;
            codec.end_of_body(&upload.trailers(), &mut outbox);
        }
        Ok(Box::new(Self {
            worker,
            endpoint: lease.endpoint(),
            lease: Some(lease),
            upload,
            outbox,
            outbox_sent: 0,
            holds: ask.expects_continue,
            stopped: false,
            wrote: false,
            read: false,
            interim: Vec::new(),
            interim_count: 0,
            head: None,
            extent: Extent::Unknown,
            data: Vec::new(),
            ended: None,
            declined: None,
            stderr: Stderr::default(),
        }))
    }

    /// The backend that it comes from.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The body of the request, to be sent elsewhere.
    pub fn into_upload(self) -> Upload {
        self.upload
    }

    /// Whether a byte of the answer has come.
    pub fn has_begun(&self) -> bool {
        self.read
    }

    /// Whether a byte of the request has left.
    pub fn has_been_asked(&self) -> bool {
        self.wrote
    }

    /// Whether something came behind the body.
    fn has_trailers(&self) -> bool {
        self.ended
            .as_ref()
            .is_some_and(|trailers| !trailers.is_empty())
    }

    /// Whether the client can still send all of its request, so that another can follow.
    pub fn takes_request(&self) -> bool {
        self.upload.is_received() || (self.lease.is_some() && !self.stopped)
    }

    /// Sends no more of the request.
    pub fn stop_upload(&mut self) {
        self.stopped |= !self.upload.is_done();
    }

    /// Whether the backend has begun to answer, but the client still waits to be asked for its body
    /// (RFC 9110, 10.1.1). A backend that has ended its answer does not want it.
    pub fn holds_body(&self) -> bool {
        self.holds && self.lease.is_some()
    }

    /// Lets the client's body go to the backend.
    pub fn go_on(&mut self) {
        self.holds = false;
    }

    /// The connection, when the answer is that the protocol changes (101), and what has come behind.
    pub fn into_tunnel(mut self: Box<Self>) -> Option<Tunnel> {
        let lease = self.lease.take()?;
        Some(Tunnel::new(
            self.worker,
            self.upload.client().clone(),
            lease,
            self.data,
            &self.endpoint.upstream().settings,
        ))
    }

    /// Bytes of the body, where that is known: announced, or all here.
    pub fn length(&self, announced: Option<u64>) -> Option<u64> {
        let is_here = self.ended.is_some() && !self.has_trailers();
        announced.or(is_here.then_some(self.data.len() as u64))
    }

    /// Sends the request and waits for what comes back before the body.
    pub async fn event(&mut self) -> Result<BeforeBody, Failure> {
        let event = poll_fn(|context| {
            let moved = self.poll_both(context)?;
            if !self.interim.is_empty() {
                return Poll::Ready(Ok(BeforeBody::Interim(self.interim.remove(0))));
            }
            if let Some(head) = self.head.take() {
                self.extent = Extent::of(&head);
                return Poll::Ready(Ok(BeforeBody::Head(head)));
            }
            if !self.has_expired(moved, Self::patience, context)? {
                return Poll::Pending;
            }
            match self.holds {
                true => Poll::Ready(Ok(BeforeBody::GoOn)),
                false => Poll::Ready(Err(self.timed_out())),
            }
        })
        .await;
        self.client().timer().clear();
        event
    }

    /// The client that waits for the response.
    fn client(&self) -> &RequestBody {
        self.upload.client()
    }

    /// Looks after the client, and tells whether the wait for the backend has lasted too long. It begins anew when
    /// something has `moved`, and when the client ends its side.
    fn has_expired(
        &self,
        moved: bool,
        patience: impl Fn(&Self) -> Duration,
        context: &mut Context<'_>,
    ) -> Result<bool, Failure> {
        let client = self.client();
        let had_ended = client.input_ended();
        client.watch(context).map_err(Failure::of_client)?;
        if moved || !client.timer().is_set() || client.input_ended() != had_ended {
            let patience = patience(self);
            let patience = match self.is_cut_short(patience) {
                true => client.half_closed_timeout(),
                false => patience,
            };
            client.timer().set(Watch::poll_began() + patience);
        }
        Ok(client.timer().poll_expired(context))
    }

    /// Waits for more of the body, or its end. What is left of the request goes on meanwhile.
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let moved = self.poll_both(context)?;
        if !self.data.is_empty() || self.ended.is_some() {
            return Poll::Ready(Ok(()));
        }
        let idle_timeout = |answer: &Self| answer.endpoint.upstream().settings.idle_timeout;
        let has_expired = self.has_expired(moved, idle_timeout, context)?;
        if self.client().input_ended() && self.extent == Extent::Events {
            return Poll::Ready(Err(Failure::of_client(RequestError::Gone)));
        }
        if !has_expired {
            return Poll::Pending;
        }
        Poll::Ready(Err(match self.is_cut_short(idle_timeout(self)) {
            true => Failure::of_half_closed(),
            false => Failure::of_silence("no more of the answer came in time (idle_timeout)"),
        }))
    }

    /// Whether a wait of `patience` is too long for a client that has ended its side: nobody knows whether it
    /// is still there. A response of known length will end, or be noticed to reach nobody.
    fn is_cut_short(&self, patience: Duration) -> bool {
        let client = self.client();
        let has_end = self.extent == Extent::Length;
        client.input_ended() && !has_end && client.half_closed_timeout() < patience
    }

    /// How long the next step may take before the head, whoever's it is.
    fn patience(&self) -> Duration {
        let settings = &self.endpoint.upstream().settings;
        match () {
            () if self.holds => EXPECT_PATIENCE,
            () if self.outbox_sent < self.outbox.len() => settings.idle_timeout,
            () if self.waits_for_client() => self.client().body_timeout(),
            () => settings.first_byte_timeout,
        }
    }

    fn waits_for_client(&self) -> bool {
        let is_asked = self.lease.as_ref().is_some_and(Lease::has_room);
        // What it has sent may still be on its way back from a file.
        let owes = !self.stopped && !self.upload.is_received();
        is_asked && owes && self.outbox_sent == self.outbox.len()
    }

    fn timed_out(&self) -> Failure {
        if self.is_cut_short(self.patience()) {
            return Failure::of_half_closed();
        }
        if self.outbox_sent < self.outbox.len() {
            let reason = "the backend does not take the request (idle_timeout)";
            return Failure::of_silence(reason);
        }
        if self.waits_for_client() {
            return Failure::of_client(RequestError::Timeout);
        }
        Failure::of_silence("no answer came in time (first_byte_timeout)")
    }

    /// Moves what can be moved without waiting, in both directions, until there is something to tell;
    /// says whether anything was sent. What comes and tells nothing, such as a head in drops, is not to be
    /// waited for any longer.
    fn poll_both(&mut self, context: &mut Context<'_>) -> Result<bool, Failure> {
        let mut moved = self.poll_send(context)?;
        let mut turn_bytes = 0;
        while self.lease.is_some()
            && !self.has_event()
            && let Some(count) = self.poll_receive(context)?
        {
            // A backend may have been waiting for the answer to be taken, or ask for the body.
            moved |= self.poll_send(context)?;
            turn_bytes += count;
            if turn_bytes >= TURN_BYTES_MAX && !self.has_event() {
                // One that says things to its operator alone would keep the loop to itself.
                context.waker().wake_by_ref();
                break;
            }
        }
        Ok(moved)
    }

    /// Whether something has come that the client is to get.
    fn has_event(&self) -> bool {
        self.head.is_some() || !self.interim.is_empty() || !self.data.is_empty()
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Result<bool, Failure> {
        let mut moved = false;
        let mut turn_bytes = 0;
        while self.fill_outbox(context)? {
            if turn_bytes >= TURN_BYTES_MAX {
                // A client and a backend that are both fast would keep the loop to themselves.
                context.waker().wake_by_ref();
                break;
            }
            let Some(lease) = &mut self.lease else { break };
            let rest = &self.outbox[self.outbox_sent..];
            match lease.connection().transport.poll_write(context, rest) {
                Poll::Ready(Ok(count)) => {
                    lease.member().cells.sent_bytes.add(count as u64);
                    self.outbox_sent += count;
                    turn_bytes += count;
                    self.wrote = true;
                    moved = true;
                }
                // It may have answered before it closed: reading tells.
                Poll::Ready(Err(_)) => {
                    self.stopped = true;
                    self.outbox.clear();
                    self.outbox_sent = 0;
                }
                Poll::Pending => break,
            }
        }
        Ok(moved)
    }

    /// Whether there is something to send.
    fn fill_outbox(&mut self, context: &mut Context<'_>) -> Result<bool, Failure> {
        if self.outbox_sent < self.outbox.len() && (self.wrote || self.upload.is_done()) {
            return Ok(true);
        }
        let Some(lease) = &mut self.lease else {
            return Ok(false);
        };
        let codec = &mut lease.connection().codec;
        // The first piece goes along with the head.
        let before = self.outbox_sent < self.outbox.len();
        if !before {
            self.outbox.clear();
            self.outbox_sent = 0;
        }
        if !before && (self.stopped || self.upload.is_done()) {
            codec.settle(&mut self.outbox);
            return Ok(!self.outbox.is_empty());
        }
        let room = codec.room();
        if self.stopped || self.holds || self.upload.is_done() || room == 0 {
            return Ok(before);
        }
        match self.upload.poll_piece(&self.worker, context, room) {
            Poll::Ready(Ok(piece)) => {
                codec.body(piece, &mut self.outbox);
                if self.upload.is_done() {
                    codec.end_of_body(&self.upload.trailers(), &mut self.outbox);
                }
                Ok(!self.outbox.is_empty())
            }
            Poll::Ready(Err(failure)) => Err(failure),
            Poll::Pending => Ok(before),
        }
    }

    /// One read, and how many bytes have come; `None` when there is nothing to read.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Result<Option<usize>, Failure> {
        let Some(lease) = &mut self.lease else {
            return Ok(None);
        };
        let Self {
            worker,
            endpoint,
            interim,
            interim_count,
            head,
            data,
            ended,
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
                    *data = worker.take_piece();
                }
                data.extend_from_slice(bytes);
            }
            Event::Stderr(text) => stderr.log(endpoint.upstream(), text),
            Event::Declined(reason) => *declined = Some(reason),
            Event::End(trailers) => *ended = Some(trailers),
        };
        let mut scratch = worker.bulk.borrow_mut();
        let read = lease
            .connection()
            .poll_events(context, &mut scratch, &mut event);
        drop(scratch);
        let Poll::Ready((count, outcome)) = read else {
            return Ok(None);
        };
        self.read |= count > 0;
        lease.member().cells.received_bytes.add(count as u64);
        outcome?;
        if self.interim_count > INTERIM_MAX {
            return Err(Failure::of_answer(TOO_MANY_INTERIM));
        }
        if let Some(reason) = self.declined {
            // That it says so is no part of an answer.
            self.read = false;
            return Err(Failure::of_refusal(reason));
        }
        if self.ended.is_some() {
            self.give_back();
        }
        Ok(Some(count))
    }

    /// The answer is complete: the backend is free before the client has it.
    fn give_back(&mut self) {
        let is_asked = self.is_asked();
        let Some(mut lease) = self.lease.take() else {
            return;
        };
        let connection = lease.connection();
        if is_asked && connection.codec.is_reusable() {
            connection.keep_outbox(mem::take(&mut self.outbox));
            self.outbox_sent = 0;
            lease.keep();
        }
    }

    /// `failure`, for whoever sends the response.
    fn reported(&self, failure: Failure) -> Box<Reported> {
        Reported::new(failure, self.endpoint.clone())
    }

    /// Whether all of the request has been sent.
    fn is_asked(&self) -> bool {
        self.upload.is_done() && self.outbox_sent == self.outbox.len() && !self.stopped
    }
}

impl BodyStream for UpstreamResponse {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Piece, StreamError>> {
        if self.data.is_empty() && self.ended.is_none() {
            let more = ready!(self.poll_more(context));
            self.client().timer().clear();
            more.map_err(|failure| self.reported(failure) as StreamError)?;
        }
        let bytes = mem::take(&mut self.data);
        Poll::Ready(Ok(match bytes.is_empty() {
            true => Piece::End(self.ended.take().unwrap_or_default()),
            false => Piece::Data {
                bytes,
                is_last: self.ended.is_some() && !self.has_trailers(),
            },
        }))
    }

    fn poll_upload(&mut self, context: &mut Context<'_>) -> Result<(), StreamError> {
        let sent = self.poll_send(context);
        sent.map(|_| ())
            .map_err(|failure| self.reported(failure) as _)
    }

    /// Reads the rest in a task of its own. The client's connection ends here, whatever the backend still sends.
    fn discard(mut self: Box<Self>) {
        if !self.is_asked() {
            return;
        }
        let Some(mut lease) = self.lease.take() else {
            return;
        };
        lease.connection().keep_outbox(mem::take(&mut self.outbox));
        let drain = Drain::new(self.worker, self.endpoint, lease, self.stderr);
        task::spawn_local(drain.run());
    }
}
