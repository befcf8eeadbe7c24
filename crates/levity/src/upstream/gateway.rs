//! The gateway: from a request to the answer of a backend, in one straight line.
//!
//! Take a slot at a backend, connect, send the request while watching for the answer, hand the answer
//! over as soon as its head is here. What goes wrong before that may be tried again elsewhere.
//!
//! What few requests wait for is boxed: the future of a request is moved onto the heap with room for all
//! that it may ever wait for, and that room costs every request more than the box costs those few.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use levity_config::upstream::{Balance, Protocol};
use levity_net::proxy_header;
use levity_telemetry::stall::Watch;
use levity_telemetry::step::Step;
use levity_telemetry::trace::{Side, Trace, UpstreamTrace};
use levity_wire::http1::Method;

use super::backend::{Backend, fingerprint};
use super::codec::head::Head;
use super::failure::Failure;
use super::pool::{Lease, Pool, SlotRequest};
use super::reported;
use super::response::{BeforeBody, UpstreamResponse};
use super::rewrite::rewrite;
use super::sendfile::{Delegated, preload};
use super::sticky::{self, Affinity};
use super::subrequest::Origin;
use super::upload::Upload;
use super::upstream_request::{Length, UpstreamRequest};
use crate::http::client::Client;
use crate::http::request::Request;
use crate::http::request_body::RequestBody;
use crate::http::response::{Body, BodyStream, Response};
use crate::route::{Proxy, Service};
use crate::scripts::Script;
use crate::worker::Worker;

/// Who asks an upstream.
pub struct Gateway<'a> {
    /// The loop that it is asked on.
    pub worker: &'a Rc<Worker>,
    /// The configuration that the request began with.
    pub service: &'a Service,
    /// Who sent the request.
    pub client: &'a Client,
    /// The body of the request.
    pub body: &'a RequestBody,
}

/// What came of asking an upstream.
pub enum Answered {
    /// A response.
    Response(Response),
    /// Something else is to be sent.
    Delegated(Box<Delegated>),
}

impl Gateway<'_> {
    /// Has an upstream answer `request`, by `script` if it runs one.
    pub async fn answer(
        &self,
        request: &Request,
        proxy: &Arc<Proxy>,
        script: Option<&Script>,
        trace: &mut Trace,
    ) -> Answered {
        trace.enter(Step::Upstream);
        let pool = self.worker.pools.of(&proxy.upstream);
        let trace = trace.ask_upstream(pool.cells().clone());
        let answered = self.asked(request, proxy, script, &pool, trace).await;
        let (head, mut response, backend) = match answered {
            Ok(answered) => answered,
            Err(failure) => {
                trace.failed(failure.side, failure.kind);
                return Answered::Response(reported::response(&failure));
            }
        };
        preload::take(&head, request, self.client, proxy, self.worker);
        if head.delegates() {
            let origin = Origin {
                scheme: self.client.scheme,
                host: request.host().to_vec(),
            };
            let (proxy, etag) = (proxy.clone(), self.service.config.server.etag);
            let delegated = Delegated::of(head, response, backend, proxy, origin, etag);
            return Answered::Delegated(Box::new(delegated));
        }
        // Boxed: few requests wait for it.
        if response.holds_body() {
            Box::pin(self.settle_expectation(&head, &mut response)).await;
        }
        Answered::Response(respond(request, head, response))
    }

    /// The beginning of a response to `request`, and the backend that it comes from.
    async fn asked(
        &self,
        request: &Request,
        proxy: &Proxy,
        script: Option<&Script>,
        pool: &Rc<Pool>,
        trace: &mut UpstreamTrace,
    ) -> Result<(Head, Box<UpstreamResponse>, Arc<Backend>), Failure> {
        let limited = self.body.limit(proxy.body_bytes_max);
        limited.map_err(|reject| Failure::of_client(reject.into()))?;
        let mut upload = Upload::new(self.body.clone()).map_err(Failure::of_client)?;
        if is_taken_in(proxy, &upload) {
            // Boxed: few bodies are taken in, and the future of every request would have room for it.
            Box::pin(self.take_in(&mut upload, pool)).await?;
        }
        let ask = self.prepared(request, proxy, script, &upload)?;
        self.ask(ask, pool, upload, trace).await
    }

    async fn take_in(&self, upload: &mut Upload, pool: &Pool) -> Result<(), Failure> {
        if upload.is_unread() {
            self.body.send_continue().await;
        }
        let received = upload.buffer(self.worker, self.service).await;
        received.inspect_err(|failure| pool.report(failure, None))
    }

    /// What backends get of a request.
    fn prepared<'a>(
        &'a self,
        request: &'a Request,
        proxy: &'a Proxy,
        script: Option<&'a Script>,
        upload: &Upload,
    ) -> Result<UpstreamRequest<'a>, Failure> {
        let mut ask = UpstreamRequest::new(request, proxy, self.client, upload.length())
            .map_err(|reject| Failure::of_client(reject.into()))?;
        ask.script = script;
        if let Some(version) = proxy.upstream.settings.proxy_protocol {
            let destination = self.body.peer().proxy_destination();
            let destination = destination.or_else(|| self.body.stream().local_address());
            ask.proxy_header =
                proxy_header::for_client(version, self.client.address(), destination);
        }
        Ok(ask)
    }

    /// One request, at as many backends as it takes.
    async fn ask(
        &self,
        mut ask: UpstreamRequest<'_>,
        pool: &Rc<Pool>,
        mut upload: Upload,
        trace: &mut UpstreamTrace,
    ) -> Result<(Head, Box<UpstreamResponse>, Arc<Backend>), Failure> {
        let (request, proxy) = (ask.request, ask.proxy);
        if ask.expects_continue {
            Box::pin(self.expect(&mut ask)).await;
        }
        let mut wanted = wanted(request, proxy);
        let mut last = None;
        let settings = &proxy.upstream.settings;
        for tries in 0..=settings.retries {
            let asked = Watch::poll_began();
            let slot = async { pool.slot(&wanted).await.map_err(Failure::of_slot) };
            let lease = match (self.attended(Waits::ForSlot, slot).await, last.take()) {
                (Ok(lease), _) => lease,
                // `Exhausted` adds no information: the last real failure is the one to tell.
                (Err(failure), Some(last)) if failure.side == Side::Own => return Err(last),
                (Err(failure), _) => {
                    pool.report(&failure, None);
                    return Err(failure);
                }
            };
            trace.placed(asked, lease.member().cells.clone());
            let backend = lease.backend().clone();
            let mut failure = match self.attempt(&mut ask, lease, upload, trace).await {
                Ok((mut head, response)) => {
                    trace.answered();
                    if proxy.upstream.succeeded(&backend, Watch::poll_began()) {
                        pool.serve_queue();
                    }
                    rewrite(&mut head, proxy, &backend);
                    keep_affinity(&mut head, &wanted, proxy, self.client, &backend);
                    return Ok((head, response, backend));
                }
                Err(failed) => {
                    let (failure, back) = *failed;
                    upload = back;
                    failure
                }
            };
            // That a kept connection had ended says nothing of its backend; nor does a backend that would not wait
            // for a client that takes its time.
            let had_ended = trace.is_reused() && failure.is_end_of_connection();
            if failure.side == Side::Backend && !had_ended && upload.is_received() {
                let reason = format_args!("{}", failure.reason);
                let now = Watch::poll_began();
                proxy.upstream.failed(&backend, now, reason);
            }
            if !had_ended {
                wanted.tried.push(backend.id);
            }
            let is_last = tries == settings.retries || !pool.has_untried(&wanted);
            let again = !is_last && failure.may_be_tried_again(request) && upload.rewind();
            failure.tried_again = again;
            trace.attempt_failed(failure.kind);
            pool.report(&failure, Some(&backend));
            if !again {
                return Err(failure);
            }
            last = Some(failure);
        }
        Err(last.expect("there is at least one attempt"))
    }

    /// Settles who answers a client that asks whether its body is wanted: a backend that speaks HTTP, or we
    /// ourselves.
    async fn expect(&self, ask: &mut UpstreamRequest<'_>) {
        let asks = ask.expects_continue && !self.body.is_complete();
        let backend_says = ask.proxy.upstream.settings.protocol == Protocol::Http;
        ask.expects_continue = asks && backend_says;
        if asks && !backend_says {
            self.body.send_continue().await;
        }
    }

    /// A backend has answered a client that waits to be asked for its body. After a success it may read the body
    /// while it answers, so the client is asked before the response goes out: most clients do not send a body
    /// after a final status, and both sides would wait. Anything else refuses the body.
    async fn settle_expectation(&self, head: &Head, response: &mut UpstreamResponse) {
        if (200..300).contains(&head.status) {
            self.body.send_continue().await;
            response.go_on();
        } else {
            response.stop_upload();
        }
    }

    /// Waits for `step`, and looks after the client meanwhile: one that leaves makes room for others. In a queue,
    /// one that has ended its side is taken for one that has left.
    async fn attended<T>(
        &self,
        waits: Waits,
        step: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut step = pin!(step);
        let outcome = poll_fn(|context| {
            if let Poll::Ready(outcome) = step.as_mut().poll(context) {
                return Poll::Ready(outcome);
            }
            self.body.watch(context).map_err(Failure::of_client)?;
            match waits {
                _ if !self.body.input_ended() => Poll::Pending,
                Waits::ForSlot => Poll::Ready(Err(Failure::of_half_closed_in_queue())),
                Waits::ForConnection if self.body.poll_half_closed(context) => {
                    Poll::Ready(Err(Failure::of_half_closed()))
                }
                Waits::ForConnection => Poll::Pending,
            }
        })
        .await;
        self.body.timer().clear();
        outcome
    }

    /// One request at one backend. The upload comes back when there is no response.
    async fn attempt(
        &self,
        ask: &mut UpstreamRequest<'_>,
        mut lease: Lease,
        upload: Upload,
        trace: &mut UpstreamTrace,
    ) -> Result<(Head, Box<UpstreamResponse>), Box<(Failure, Upload)>> {
        let open = async {
            let opened = lease.open().await;
            opened.map_err(|error| Failure::of_connect(&error))
        };
        if let Err(failure) = self.attended(Waits::ForConnection, open).await {
            return Err(Box::new((failure, upload)));
        }
        trace.connected(lease.is_reused);
        let mut response = UpstreamResponse::new(self.worker.clone(), ask, lease, upload)?;
        loop {
            match response.event().await {
                Ok(BeforeBody::Interim(head)) => {
                    Box::pin(self.body.inform(head.status, &head.fields)).await;
                    if head.status == 100 {
                        ask.expects_continue = false;
                        response.go_on();
                    }
                }
                Ok(BeforeBody::GoOn) => {
                    Box::pin(self.body.send_continue()).await;
                    ask.expects_continue = false;
                    response.go_on();
                }
                Ok(BeforeBody::Head(head)) => return Ok((head, response)),
                Err(mut failure) => {
                    failure.is_untouched |= !response.has_been_asked();
                    failure.answer_begun = response.has_begun();
                    return Err(Box::new((failure, response.into_upload())));
                }
            }
        }
    }
}

/// Whether all of the body is taken in before a backend is asked: where that is wanted, and where a
/// backend must be told its length first.
fn is_taken_in(proxy: &Proxy, upload: &Upload) -> bool {
    let settings = &proxy.upstream.settings;
    let must_tell = settings.protocol.is_cgi() && upload.length() == Length::Unknown;
    !upload.is_received() && (settings.buffer_requests || must_tell)
}

/// What decides which backend gets the request.
fn wanted(request: &Request, proxy: &Proxy) -> SlotRequest {
    let settings = &proxy.upstream.settings;
    let affinity = settings.sticky.as_ref().map_or(Affinity::Free, |sticky| {
        sticky::affinity(sticky, request.headers_named(sticky::header(sticky)))
    });
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

/// Ties the client to the backend that has answered, where that is wanted.
fn keep_affinity(
    head: &mut Head,
    wanted: &SlotRequest,
    proxy: &Proxy,
    client: &Client,
    backend: &Backend,
) {
    let Some(sticky) = &proxy.upstream.settings.sticky else {
        return;
    };
    let is_https = client.scheme == "https";
    if let Some(cookie) = sticky::set_cookie(sticky, wanted.affinity, backend.id, is_https) {
        head.fields.add("Set-Cookie", cookie.as_bytes());
    }
}

/// What a client waits for before its request is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// In a queue, where who may be gone keeps its turn from others.
    ForSlot,
    /// It has its slot.
    ForConnection,
}

/// From a backend's header to a response. What is still to come of its body is part of that.
fn respond(request: &Request, head: Head, mut from: Box<UpstreamResponse>) -> Response {
    let mut response = Response::new(head.status);
    response.reason = head.reason.into();
    response.fields = head.fields;
    response.has_date = head.has_date;
    response.has_server = head.has_server;
    if head.status >= 400 {
        // A backend that refuses a request does not want the rest of it.
        from.stop_upload();
    }
    response.close |= !from.takes_request();
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

/// What GET would bring is told (RFC 9110, 8.6), but not with 204.
fn without_body(response: &mut Response, length: Option<u64>, from: Box<UpstreamResponse>) {
    if let Some(bytes) = length.filter(|_| response.status != 204) {
        let bytes = bytes.to_string();
        response.fields.add("Content-Length", bytes.as_bytes());
    }
    from.discard();
}

#[cfg(test)]
mod tests;
