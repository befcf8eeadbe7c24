//! The gateway: sends a request to an upstream and returns the response. It is one straight async
//! function in the task of the client's connection:
//!
//! ```text
//!    Request, RequestBody
//!       |
//!    upload      upload.rs                     the body, streamed or buffered first (spooled.rs)
//!       |
//!    slot        upstream/pool/                a backend and a connection: idle, new, or queued
//!       |
//!    ask         upstream/upstream_request.rs  what the backend sees; a codec encodes it
//!       |
//!    response    response.rs                   both directions at once, until the header is here
//!       |
//!    handler     handler/proxy.rs              the Response, or what it names instead (sendfile/)
//! ```
//!
//! An attempt takes a slot at a backend, connects, and sends the request while it waits for the
//! response. It ends when the header of the response has arrived. An attempt that fails before may
//! be repeated at another backend.
//!
//! - A *retry* (`try_backends`) needs that no byte of a response arrived, a request that did not
//!   leave, was not looked at or is idempotent, a body whose start is in memory still or that is in
//!   a file, and no time-out. Failures count against the backend, except for a kept connection that
//!   had ended and a backend that would not wait for a slow client.
//! - *100 (Continue)*: the gateway decides when a request is proxied, `drop_body` of the handlers
//!   when it is not; `RequestBody::send_continue` sends it, `http/h1/head.rs` encodes it. A client
//!   waits only until it sends some of its body, so `ClientStream::expects_continue` is asked each
//!   time, and `response.rs` looks for the body while it holds it.
//! - *Own requests* (`own_request.rs`) take the same way. Where no client waits, one that never
//!   leaves takes its place (`http/no_client.rs`).
//! - *Deadlines* use the timer of the client's connection. Every wait also watches the client: one
//!   that leaves gives up its slot at once.
//! - *Backpressure*: what the client does not take is not read from the backend.
//! - *Memory*: 128 KiB of a request, of which 64 KiB are kept to be sent again; 256 KiB of a
//!   response, or about what the client takes at once, or a pipe of that size (128 pipes in all);
//!   and `limits.body_memory` where bodies are buffered. A silent stream keeps none.
//!
//! Futures of rare steps are boxed. The future of a request has room for everything that it may
//! wait for, and that room costs every request more than a box costs the few that need it.

mod drain;
mod heartbeat;
pub mod own_request;
pub mod reported;
pub mod response;
pub mod rewrite;
pub mod spooled;
mod stderr;
pub mod tunnel;
pub mod upload;

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use levity_config::upstream::{Balance, Retry};
use levity_net::proxy_header;
use levity_telemetry::stall;
use levity_telemetry::step::Step;
use levity_telemetry::trace::{Side, Trace, UpstreamTrace};
use levity_wire::http1::Method;
use levity_wire::path;

use crate::credentials::Identity;
use crate::gateway::own_request::OwnRequest;
use crate::gateway::response::{BeforeBody, UpstreamResponse};
use crate::gateway::rewrite::{Asked, rewrite};
use crate::gateway::upload::Upload;
use crate::http::request_body::RequestBody;
use crate::http::response::{Body, BodyStream, Response};
use crate::message::client::Client;
use crate::message::request::Request;
use crate::resolve::servable::object::RunnableScript;
use crate::route::Service;
use crate::upstream::backend::{Backend, fingerprint};
use crate::upstream::codec::head::Head;
use crate::upstream::failure::Failure;
use crate::upstream::pool::{Lease, Pool, SlotRequest};
use crate::upstream::proxy::Proxy;
use crate::upstream::sticky::{self, Affinity};
use crate::upstream::upstream_request::{Length, OwnHeader, UpstreamRequest};
use crate::worker::Worker;

/// Attempts that backends have not looked at, for one request: each may have met a connection that was about to end.
const REFUSALS_MAX: usize = 8;

/// The context in which a request is sent to an upstream.
pub struct Gateway<'a> {
    /// The worker that serves the client.
    pub worker: &'a Rc<Worker>,
    /// The configuration as of the start of the request.
    pub service: &'a Service,
    /// The sender of the request.
    pub client: &'a Client,
    /// The body of the request.
    pub body: &'a RequestBody,
    /// What the gates know of its sender.
    pub identity: &'a Identity,
    /// Headers besides those of the client and of the route.
    pub own_headers: &'a [OwnHeader],
    /// The request, if it is one of the server's own.
    pub own: Option<&'a OwnRequest<'a>>,
}

/// A response whose header has arrived.
pub struct Fetched {
    /// The header.
    pub head: Head,
    /// The rest of the response.
    pub rest: Box<UpstreamResponse>,
    /// Who sends it.
    pub backend: Arc<Backend>,
}

impl Gateway<'_> {
    /// Sends `request` to the upstream of `proxy` and waits for the header of the response. `script` is the
    /// script that the upstream runs, if any.
    ///
    /// # Errors
    /// The last failure, which is in `trace`.
    pub async fn fetch(
        &self,
        request: &Request,
        proxy: &Proxy,
        script: Option<&RunnableScript>,
        trace: &mut Trace,
    ) -> Result<Fetched, Failure> {
        trace.enter(Step::Upstream);
        let pool = self.worker.pools.of(&proxy.upstream);
        let trace = trace.ask_upstream(pool.cells().clone());
        let fetched = self.forward(request, proxy, script, &pool, trace).await;
        fetched.inspect_err(|failure| trace.failed(failure.side, failure.kind))
    }

    /// Buffers the body where that is necessary, and sends the request.
    async fn forward(
        &self,
        request: &Request,
        proxy: &Proxy,
        script: Option<&RunnableScript>,
        pool: &Rc<Pool>,
        trace: &mut UpstreamTrace,
    ) -> Result<Fetched, Failure> {
        let limited = self.body.limit(proxy.body_bytes_max);
        limited.map_err(|reject| Failure::of_client(reject.into()))?;
        let mut upload = match self.own {
            Some(own) => Upload::of_own(own.body, self.body.clone()),
            None => Upload::new(self.body.clone()).map_err(Failure::of_client)?,
        };
        if must_buffer(proxy, &upload) {
            Box::pin(self.buffer(&mut upload, pool)).await?;
        }
        let outgoing = self.outgoing(request, proxy, script, &upload)?;
        self.try_backends(outgoing, pool, upload, trace).await
    }

    async fn buffer(&self, upload: &mut Upload, pool: &Pool) -> Result<(), Failure> {
        if upload.is_unread() {
            self.body.send_continue().await;
        }
        let received = upload.buffer(&self.worker.core, self.service).await;
        received.inspect_err(|failure| pool.report(failure, None))
    }

    /// The request in the form in which backends get it.
    fn outgoing<'a>(
        &'a self,
        request: &'a Request,
        proxy: &'a Proxy,
        script: Option<&'a RunnableScript>,
        upload: &Upload,
    ) -> Result<UpstreamRequest<'a>, Failure> {
        let strip_prefix: &[u8] = match self.own {
            // The path is as the application has given it. A script has its name below the site.
            Some(_) if script.is_none() => b"",
            _ => &proxy.strip_prefix,
        };
        let length = upload.length();
        let mut outgoing = UpstreamRequest::new(request, proxy, self.client, length, strip_prefix)
            .map_err(|reject| Failure::of_client(reject.into()))?;
        outgoing.version = self.body.stream().version();
        outgoing.script = script.map(RunnableScript::script);
        if let Some(script) = script {
            let (_, asked) = script.target(request);
            let asked = path::forwarded(asked);
            outgoing.whole_path = asked.map_err(|reject| Failure::of_client(reject.into()))?;
        }
        outgoing.identity = self.identity;
        outgoing.own_headers = self.own_headers;
        let destination = || {
            let told = self.body.peer().proxy_destination();
            told.or_else(|| self.body.stream().local_address())
        };
        let settings = &proxy.upstream.settings;
        if settings.protocol.is_cgi() {
            outgoing.server_ip = destination().map(|address| Box::new(address.ip()));
        }
        let is_for_client = self.own.is_none_or(|own| own.waits.is_some());
        let header = match settings.proxy_protocol {
            Some(version) if is_for_client => {
                proxy_header::for_client(version, self.client.address(), destination())
            }
            version => proxy_header::for_own_request(version),
        };
        outgoing.proxy_header = header.into();
        Ok(outgoing)
    }

    /// Sends the request to one backend after another until one responds, at most `retry.times` + 1 times. Attempts that a backend
    /// has not looked at are not among these, but there is a maximum of them, too. While no backend can be reached, all this is
    /// repeated for `retry.within`.
    async fn try_backends(
        &self,
        mut outgoing: UpstreamRequest<'_>,
        pool: &Rc<Pool>,
        mut upload: Upload,
        trace: &mut UpstreamTrace,
    ) -> Result<Fetched, Failure> {
        let (request, proxy) = (outgoing.request, outgoing.proxy);
        if outgoing.expects_continue {
            Box::pin(self.start_expectation(&mut outgoing)).await;
        }
        let bound = self.own.and_then(|own| own.affinity);
        let mut slot_request = slot_request(request, proxy, bound);
        let mut last = None;
        let mut left = AttemptsLeft::new(proxy.upstream.settings.retry);
        loop {
            let queued_at = stall::poll_start();
            let slot = async { pool.slot(&slot_request).await.map_err(Failure::of_slot) };
            let leased = while_client_waits(self.body, Wait::Slot, slot).await;
            let lease = match (leased, last.take()) {
                (Ok(lease), _) => lease,
                // `Exhausted` adds no information: report the last real failure.
                (Err(failure), Some(last)) if failure.side == Side::Own => return Err(last),
                (Err(failure), _) => {
                    resolve_if_moved(&failure, proxy);
                    pool.report(&failure, None);
                    return Err(failure);
                }
            };
            trace.placed(queued_at, lease.member().cells.clone());
            let backend = lease.backend().clone();
            let mut failure = match self.attempt(&mut outgoing, lease, upload, trace).await {
                Ok(mut fetched) => {
                    trace.answered();
                    pool.answered(&backend);
                    let head = &mut fetched.head;
                    let asked = Asked::by(self.client, request, head);
                    rewrite(head, proxy, &backend, asked);
                    keep_affinity(head, &slot_request, proxy, self.client, &backend);
                    return Ok(fetched);
                }
                Err(failed) => {
                    let (failure, returned) = *failed;
                    upload = returned;
                    failure
                }
            };
            if is_fault(&failure, &upload) {
                let reason = format_args!("{}", failure.reason);
                let now = stall::poll_start();
                proxy.upstream.failed(&backend, now, reason);
            }
            resolve_if_moved(&failure, proxy);
            let next = left.next(&failure, &backend, &mut slot_request, pool);
            let is_last = matches!(next, Next::None);
            failure.retried = !is_last && failure.may_retry(request) && upload.rewind();
            trace.attempt_failed(failure.kind);
            pool.report(&failure, Some(&backend));
            if !failure.retried {
                return Err(failure);
            }
            if let Next::Pause(until) = next {
                Box::pin(self.pause(pool, until)).await?;
            }
            last = Some(failure);
        }
    }

    /// Waits until a request that could reach no backend may try again, and fails when the client disconnects meanwhile.
    async fn pause(&self, pool: &Pool, until: Instant) -> Result<(), Failure> {
        let pause = async {
            pool.pause(until).await;
            Ok(())
        };
        while_client_waits(self.body, Wait::Connection, pause).await
    }

    /// Handles `Expect: 100-continue` before the request is sent. Backends that speak HTTP decide whether they
    /// want the body. For the other protocols this server requests it.
    async fn start_expectation(&self, outgoing: &mut UpstreamRequest<'_>) {
        let is_expected = self.body.expects_continue() && !self.body.is_complete();
        let backend_decides = outgoing.proxy.upstream.settings.protocol.is_http();
        outgoing.expects_continue = is_expected && backend_decides;
        if is_expected && !backend_decides {
            self.body.send_continue().await;
        }
    }

    /// Sends the request to one backend. A failure returns the upload, for another attempt.
    async fn attempt(
        &self,
        outgoing: &mut UpstreamRequest<'_>,
        mut lease: Lease,
        upload: Upload,
        trace: &mut UpstreamTrace,
    ) -> Result<Fetched, Box<(Failure, Upload)>> {
        let backend = lease.backend().clone();
        if self.own.is_some() && !outgoing.request.is_idempotent() {
            // If a kept connection ended with the request on it, it would be unknown whether the backend had acted on it.
            lease.close_idle();
        }
        let open = lease.open();
        if let Err(failure) = while_client_waits(self.body, Wait::Connection, open).await {
            return Err(Box::new((failure, upload)));
        }
        trace.connected(lease.is_reused);
        let may_be_stale = lease.may_be_stale();
        let mut response =
            UpstreamResponse::new(self.worker.core.clone(), outgoing, lease, upload)?;
        match self.head(outgoing, &mut response).await {
            Ok(head) => Ok(Fetched {
                head,
                rest: response,
                backend,
            }),
            Err(mut failure) => {
                if failure.side == Side::Client && self.has_client_left() {
                    failure = Failure::of_absent_client();
                }
                failure.is_untouched |= !response.is_request_begun();
                failure.response_begun = response.is_begun();
                failure.was_stale = may_be_stale && failure.is_end_of_connection();
                Err(Box::new((failure, response.into_upload())))
            }
        }
    }

    /// Whether the client has left, and not only sent an invalid body or the end of one, after which it may still read.
    fn has_client_left(&self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.body.watch(&mut context).is_err()
    }

    /// Waits for the header of the response, and passes on what precedes it.
    async fn head(
        &self,
        outgoing: &mut UpstreamRequest<'_>,
        response: &mut UpstreamResponse,
    ) -> Result<Head, Failure> {
        loop {
            match response.event().await? {
                BeforeBody::Interim(head) => {
                    let informing = self.body.inform(head.status, &head.fields);
                    Box::pin(response.while_informing(informing)).await?;
                    if head.status != 100 {
                        continue;
                    }
                }
                BeforeBody::ExpectTimeout => {
                    let informing = self.body.send_continue();
                    Box::pin(response.while_informing(informing)).await?;
                }
                BeforeBody::Head(head) => return Ok(head),
            }
            outgoing.expects_continue = false;
            response.release_body();
        }
    }
}

/// The attempts that a request has left.
struct AttemptsLeft {
    retries: usize,
    refusals: usize,
    /// Attempts that a backend may have begun to answer. No pause gives them back.
    begun: usize,
    /// When all backends are tried for the last time. `None` while each has been reached.
    until: Option<Instant>,
}

/// What follows a failed attempt.
enum Next {
    /// No other attempt.
    None,
    /// Another one.
    Now,
    /// Another one after a pause, until this time at most.
    Pause(Instant),
}

impl AttemptsLeft {
    /// Those of an upstream with this `retry`; without `times` there is one attempt.
    fn new(retry: Retry) -> Self {
        Self {
            retries: retry.times,
            refusals: if retry.times == 0 { 0 } else { REFUSALS_MAX },
            begun: 0,
            until: None,
        }
    }

    /// What follows `failure` of `backend`, which is noted in `slot_request`. A pause begins a new round of attempts at all
    /// backends.
    fn next(
        &mut self,
        failure: &Failure,
        backend: &Backend,
        slot_request: &mut SlotRequest,
        pool: &Pool,
    ) -> Next {
        let now = stall::poll_start();
        let retry = pool.upstream().settings.retry;
        let is_unreached = failure.is_unreached();
        if is_unreached && self.until.is_none() {
            self.until = Some(now + retry.within);
        }
        self.begun += usize::from(!failure.is_untouched);
        let stays = self.has_all_refusals() && stays_bound(failure, slot_request, backend);
        if !failure.was_stale && !stays {
            note_tried(slot_request, backend, failure, pool);
        }
        if self.take(failure) && pool.has_untried(slot_request) {
            return Next::Now;
        }
        match self.until {
            Some(until) if is_unreached && retry.times > 0 && now < until => {
                self.retries = retry.times.saturating_sub(self.begun);
                slot_request.tried.clear();
                Next::Pause(until)
            }
            _ => Next::None,
        }
    }

    fn has_all_refusals(&self) -> bool {
        self.refusals == REFUSALS_MAX
    }

    /// Takes one after `failure`; false if there is none.
    fn take(&mut self, failure: &Failure) -> bool {
        let left = match failure.spares_backend && failure.is_untouched {
            true => &mut self.refusals,
            false => &mut self.retries,
        };
        let is_there = *left > 0;
        *left = left.saturating_sub(1);
        is_there
    }
}

/// Whether `failure` counts against the backend. Three do not: an idle connection that ends is normal, so is one stream or
/// shared connection that fails, and a backend may refuse to wait for a client that sends its body slowly.
fn is_fault(failure: &Failure, upload: &Upload) -> bool {
    let has_waited = !failure.is_untouched && !upload.is_received();
    failure.side == Side::Backend && !failure.was_stale && !failure.spares_backend && !has_waited
}

/// Whether the request goes to `backend` once more before it goes to another: its client is bound to that one, and would
/// be bound to the other for good.
fn stays_bound(failure: &Failure, slot_request: &SlotRequest, backend: &Backend) -> bool {
    let is_bound = match slot_request.affinity {
        Affinity::Backend(id) => id == backend.id,
        Affinity::Key(_) => true,
        Affinity::Free => false,
    };
    failure.spares_backend && is_bound
}

/// Notes that `backend` has been tried, unless it may take the request all the same: only a stream or a connection has
/// failed, and there is no other backend.
fn note_tried(slot_request: &mut SlotRequest, backend: &Backend, failure: &Failure, pool: &Pool) {
    slot_request.tried.push(backend.id);
    if failure.spares_backend && !pool.has_untried(slot_request) {
        slot_request.tried.pop();
    }
}

/// Whether the whole body is received before it is sent to a backend: `buffer_requests` is set, or the protocol
/// needs a length that is unknown.
fn must_buffer(proxy: &Proxy, upload: &Upload) -> bool {
    let settings = &proxy.upstream.settings;
    let needs_length = settings.protocol.is_cgi() && upload.length() == Length::Unknown;
    !upload.is_received() && (settings.buffer_requests || needs_length)
}

fn slot_request(request: &Request, proxy: &Proxy, bound: Option<Affinity>) -> SlotRequest {
    let settings = &proxy.upstream.settings;
    let affinity = match (bound, &settings.sticky) {
        (Some(bound), _) => bound,
        (None, Some(sticky)) => {
            sticky::affinity(sticky, request.headers_named(sticky::header(sticky)))
        }
        (None, None) => Affinity::Free,
    };
    let key = match settings.balance {
        Balance::Carp => fingerprint(&request.path),
        _ => 0,
    };
    SlotRequest {
        tried: Vec::new(),
        affinity,
        key,
    }
}

/// Binds the client to the backend that has responded, if the upstream is sticky by cookie.
fn keep_affinity(
    head: &mut Head,
    slot_request: &SlotRequest,
    proxy: &Proxy,
    client: &Client,
    backend: &Backend,
) {
    let Some(sticky) = &proxy.upstream.settings.sticky else {
        return;
    };
    let is_https = client.scheme == "https";
    if let Some(cookie) = sticky::set_cookie(sticky, slot_request.affinity, backend.id, is_https) {
        head.fields.add("Set-Cookie", cookie.as_bytes());
    }
}

/// Has the names of the backends resolved again if they may lead elsewhere by now. Does not wait.
fn resolve_if_moved(failure: &Failure, proxy: &Proxy) {
    if failure.may_have_moved() {
        proxy.upstream.resolve_again();
    }
}

/// What a request waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// It waits in the queue, and so do others behind it.
    Slot,
    /// It has its slot.
    Connection,
}

/// Waits for `step`, and fails when the client disconnects meanwhile, so that its slot goes to another
/// request. In the queue a half-closed connection counts as disconnected.
async fn while_client_waits<T>(
    body: &RequestBody,
    wait: Wait,
    step: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let mut step = pin!(step);
    let outcome = poll_fn(|context| {
        if let Poll::Ready(outcome) = step.as_mut().poll(context) {
            return Poll::Ready(outcome);
        }
        let watched = body.watch(context);
        watched.map_err(|_| Failure::of_absent_client())?;
        let patience = body.half_closed_timeout();
        match wait {
            _ if !body.input_ended() => Poll::Pending,
            Wait::Slot => Poll::Ready(Err(Failure::of_half_closed_in_queue(patience))),
            Wait::Connection if body.poll_half_closed(context) => {
                Poll::Ready(Err(Failure::of_half_closed(patience)))
            }
            Wait::Connection => Poll::Pending,
        }
    })
    .await;
    body.timer().clear();
    outcome
}

impl Fetched {
    /// The response for the client: `request` is that of the client, and `body` its body.
    pub async fn respond(mut self, request: &Request, body: &RequestBody) -> Response {
        self.finish_expectation(body).await;
        self.into_response(request)
    }

    /// Handles a final response to a client that still waits for 100 (Continue). With a status of success the
    /// backend may read the body while it responds. So the client gets 100 before the response: most clients
    /// send no body after a final status, and both sides would wait. Any other status refuses the body.
    pub async fn finish_expectation(&mut self, body: &RequestBody) {
        if !self.rest.holds_body() {
            return;
        }
        if (200..300).contains(&self.head.status) {
            Box::pin(body.send_continue()).await;
            self.rest.release_body();
        } else {
            self.rest.stop_upload();
        }
    }

    fn into_response(self, request: &Request) -> Response {
        let (head, mut from) = (self.head, self.rest);
        let mut response = Response::new(head.status);
        response.reason = head.reason.into();
        response.fields = head.fields;
        response.has_date = head.has_date;
        response.has_server = head.has_server;
        if head.status >= 400 {
            // A backend that refuses a request does not read the rest of it.
            from.stop_upload();
        }
        response.close |= !from.reads_request();
        let is_head = request.head.method == Method::Head;
        match head.status {
            101 => match from.into_tunnel() {
                Some(tunnel) => {
                    response.close = true;
                    response.body = Body::Upgrade {
                        protocol: head.upgrade.unwrap_or_default(),
                        tunnel: Box::new(tunnel),
                    };
                }
                None => {
                    return reported::response(&Failure::of_connection(
                        &io::ErrorKind::UnexpectedEof.into(),
                    ));
                }
            },
            204 | 304 => without_body(&mut response, head.length, from),
            _ if is_head => without_body(&mut response, head.length, from),
            _ => {
                response.body = Body::Stream {
                    length: from.length(head.length),
                    stream: from,
                };
            }
        }
        response
    }
}

/// Announces the length of the response to a GET (RFC 9110, 8.6), but not with 204.
fn without_body(response: &mut Response, length: Option<u64>, from: Box<UpstreamResponse>) {
    if let Some(bytes) = length.filter(|_| response.status != 204) {
        let bytes = bytes.to_string();
        response.fields.add("Content-Length", bytes.as_bytes());
    }
    from.discard();
}

#[cfg(test)]
mod tests;
