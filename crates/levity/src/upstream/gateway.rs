//! The gateway: from a request to the answer of a backend, in one straight line.
//!
//! Take a slot at a backend, connect, send the request while watching for the answer, hand the answer
//! over as soon as its head is here. What goes wrong before that may be tried again elsewhere.
//!
//! What few requests wait for is boxed: the future of a request is moved onto the heap with room for all
//! that it may ever wait for, and that room costs every request more than the box costs those few.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use levity_config::upstream::{Balance, Protocol};
use levity_net::proxy_header;
use levity_telemetry::stall::Watch;
use levity_telemetry::step::Step;
use levity_telemetry::trace::{Side, Trace, UpstreamTrace};
use levity_wire::http1::{Method, Version};

use super::answer::{Answer, News, watch_client};
use super::backend::{Backend, fingerprint};
use super::codec::head::Head;
use super::failure::Failure;
use super::pool::{Lease, Pool, Wanted};
use super::rewrite::rewrite;
use super::sendfile::{Delegated, preload};
use super::sticky::{self, Affinity};
use super::subrequest::Origin;
use super::upload::Upload;
use super::upstream_request::{Length, UpstreamRequest};
use crate::body::Incoming;
use crate::client::Client;
use crate::conn::Conn;
use crate::request::{NoRequest, Request};
use crate::respond::error::of_upstream;
use crate::respond::{Body, Response};
use crate::route::Proxy;
use crate::scripts::Script;
use crate::send;
use crate::worker::Worker;

/// What came of asking an upstream.
pub enum Answered {
    /// A response.
    Response(Response),
    /// Something else is to be sent.
    Delegated(Box<Delegated>),
}

/// Has an upstream answer `request`.
pub async fn answer(
    conn: &mut Conn,
    request: &Request,
    proxy: &Arc<Proxy>,
    client: &Client,
    script: Option<&Script>,
    trace: &mut Trace,
) -> Answered {
    trace.enter(Step::Upstream);
    let pool = conn.worker.pools.of(&proxy.upstream);
    let trace = trace.ask_upstream(pool.cells().clone());
    let upload = Incoming::new(&request.head, proxy.body_bytes_max)
        .map_err(NoRequest::from)
        .and_then(|incoming| Upload::new(incoming, conn));
    let upload = match upload {
        // Boxed: few bodies are taken in, and the future of every request would have room for it.
        Ok(upload) if is_taken_in(proxy, &upload) => {
            Box::pin(taken_in(conn, request, upload, &pool)).await
        }
        upload => upload.map_err(Failure::of_client),
    };
    let answered = match upload {
        Ok(upload) => match prepared(conn, request, proxy, client, script, &upload) {
            Ok(prepared) => ask(conn, prepared, &pool, upload, trace).await,
            Err(failure) => Err(failure),
        },
        Err(failure) => Err(failure),
    };
    if let Err(failure) = &answered {
        trace.failed(failure.side, failure.kind);
    }
    if let Ok((head, ..)) = &answered {
        preload::take(head, request, client, proxy, &conn.worker);
    }
    match answered {
        Ok((head, answer, backend)) if head.wants_other_content() => {
            let origin = Origin {
                scheme: client.scheme,
                host: request.host().to_vec(),
            };
            let (proxy, worker) = (proxy.clone(), &conn.worker);
            let delegated = Delegated::of(head, answer, backend, proxy, origin, worker);
            Answered::Delegated(Box::new(delegated))
        }
        Ok((head, mut answer, _)) => {
            // Boxed: see above.
            if answer.holds_body() {
                Box::pin(settle_expectation(conn, &head, &mut answer)).await;
            }
            Answered::Response(respond(&conn.worker, request, head, answer))
        }
        Err(failure) => Answered::Response(of_upstream(&failure)),
    }
}

/// Whether all of the body is taken in before a backend is asked: where that is wanted, and where a
/// backend must be told its length first.
fn is_taken_in(proxy: &Proxy, upload: &Upload) -> bool {
    let settings = &proxy.upstream.settings;
    let must_tell = settings.protocol.is_cgi() && upload.length() == Length::Unknown;
    !upload.is_received() && (settings.buffer_requests || must_tell)
}

async fn taken_in(
    conn: &mut Conn,
    request: &Request,
    mut upload: Upload,
    pool: &Pool,
) -> Result<Upload, Failure> {
    if request.head.expect_continue && upload.is_untouched() {
        send::go_on(conn).await;
    }
    if let Err(mut failure) = upload.buffer(conn).await {
        failure.request_unread = true;
        pool.report(&failure, None);
        return Err(failure);
    }
    Ok(upload)
}

/// What backends get of a request.
fn prepared<'a>(
    conn: &Conn,
    request: &'a Request,
    proxy: &'a Proxy,
    client: &'a Client,
    script: Option<&'a Script>,
    upload: &Upload,
) -> Result<UpstreamRequest<'a>, Failure> {
    let mut ask = UpstreamRequest::new(request, proxy, client, upload.length())
        .map_err(|reject| Failure::of_client(reject.into()))?;
    ask.script = script;
    if let Some(version) = proxy.upstream.settings.proxy_protocol {
        let peer = &conn.peer;
        let destination = peer
            .proxy_destination()
            .or_else(|| conn.transport.local_address());
        ask.proxy_head = proxy_header::for_client(version, client.address(), destination);
    }
    Ok(ask)
}

/// One request, at as many backends as it takes.
async fn ask(
    conn: &mut Conn,
    mut ask: UpstreamRequest<'_>,
    pool: &Rc<Pool>,
    mut upload: Upload,
    trace: &mut UpstreamTrace,
) -> Result<(Head, Box<Answer>, Arc<Backend>), Failure> {
    let (request, proxy, client) = (ask.request, ask.proxy, ask.client);
    let leaving = |mut failure: Failure, upload: &Upload| {
        failure.request_unread = !upload.is_received();
        Err(failure)
    };
    if ask.expects_continue {
        Box::pin(expect(conn, &mut ask, &upload)).await;
    }
    let mut wanted = wanted(request, proxy);
    let mut last = None;
    let settings = &proxy.upstream.settings;
    for tries in 0..=settings.retries {
        let asked = Watch::poll_began();
        let lease = match (
            attended(conn, &upload, Waits::ForPlace, slot(pool, &wanted)).await,
            last.take(),
        ) {
            (Ok(lease), _) => lease,
            // That nobody is left to ask is no news.
            (Err(failure), Some(last)) if failure.side == Side::Own => {
                return leaving(last, &upload);
            }
            (Err(failure), _) => {
                pool.report(&failure, None);
                return leaving(failure, &upload);
            }
        };
        trace.placed(asked, lease.member().cells.clone());
        let backend = lease.backend().clone();
        let mut failure = match attempt(conn, &mut ask, lease, upload, trace).await {
            Ok((mut head, answer)) => {
                trace.answered();
                if proxy.upstream.succeeded(&backend, Watch::poll_began()) {
                    pool.hand_on();
                }
                rewrite(&mut head, proxy, &backend);
                affinity(&mut head, &wanted, proxy, client, &backend);
                return Ok((head, answer, backend));
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
            proxy.upstream.failed(&backend, Watch::poll_began(), reason);
        }
        if !had_ended {
            wanted.tried.push(backend.id);
        }
        let is_last = tries == settings.retries || !pool.has_left(&wanted);
        let again = !is_last && failure.may_be_tried_again(request) && upload.rewind();
        failure.tried_again = again;
        trace.attempt_failed(failure.kind);
        pool.report(&failure, Some(&backend));
        if !again {
            return leaving(failure, &upload);
        }
        last = Some(failure);
    }
    leaving(last.expect("there is at least one attempt"), &upload)
}

/// Settles who answers a client that asks whether its body is wanted: a backend that speaks HTTP, or we
/// ourselves.
async fn expect(conn: &mut Conn, ask: &mut UpstreamRequest<'_>, upload: &Upload) {
    let asks = ask.expects_continue && !upload.is_received();
    let backend_says = ask.proxy.upstream.settings.protocol == Protocol::Http;
    ask.expects_continue = asks && backend_says;
    if asks && !backend_says {
        send::go_on(conn).await;
    }
}

/// A backend has answered a client that waits to be asked for its body. After a success it may read the body
/// while it answers, so the client is asked before the answer goes out: most clients do not send a body
/// after a final status, and both sides would wait. Anything else refuses the body.
async fn settle_expectation(conn: &mut Conn, head: &Head, answer: &mut Answer) {
    if (200..300).contains(&head.status) {
        send::go_on(conn).await;
        answer.go_on();
    } else {
        answer.stop_upload();
    }
}

/// What decides which backend gets the request.
fn wanted(request: &Request, proxy: &Proxy) -> Wanted {
    let settings = &proxy.upstream.settings;
    let affinity = settings.sticky.as_ref().map_or(Affinity::Free, |sticky| {
        sticky::affinity(sticky, request.headers_named(sticky::header(sticky)))
    });
    let key = match settings.balance {
        Balance::Carp => fingerprint(&request.path),
        _ => 0,
    };
    Wanted {
        tried: Vec::new(),
        affinity,
        key,
    }
}

/// Ties the client to the backend that has answered, where that is wanted.
fn affinity(head: &mut Head, wanted: &Wanted, proxy: &Proxy, client: &Client, backend: &Backend) {
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
    ForPlace,
    /// It has its slot.
    ForConnection,
}

/// Waits for `step`, and looks after the client meanwhile: one that leaves makes room for others. In a queue,
/// one that has ended its side is taken for one that has left.
async fn attended<T>(
    conn: &mut Conn,
    upload: &Upload,
    waits: Waits,
    step: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let mut step = pin!(step);
    let outcome = poll_fn(|context| {
        if let Poll::Ready(outcome) = step.as_mut().poll(context) {
            return Poll::Ready(outcome);
        }
        watch_client(upload, conn, context)?;
        match waits {
            _ if !conn.input_ended => Poll::Pending,
            Waits::ForPlace => Poll::Ready(Err(Failure::of_half_closed_in_queue())),
            Waits::ForConnection if conn.poll_half_closed(context) => {
                Poll::Ready(Err(Failure::of_half_closed()))
            }
            Waits::ForConnection => Poll::Pending,
        }
    })
    .await;
    conn.timer.clear();
    outcome
}

/// Takes a slot at a backend.
async fn slot(pool: &Rc<Pool>, wanted: &Wanted) -> Result<Lease, Failure> {
    pool.slot(wanted).await.map_err(Failure::of_slot)
}

/// Makes sure of the connection.
async fn open(lease: &mut Lease) -> Result<(), Failure> {
    let opened = lease.open().await;
    opened.map_err(|error| Failure::of_connect(&error))
}

/// One request at one backend. The upload comes back when there is no answer.
async fn attempt(
    conn: &mut Conn,
    ask: &mut UpstreamRequest<'_>,
    mut lease: Lease,
    upload: Upload,
    trace: &mut UpstreamTrace,
) -> Result<(Head, Box<Answer>), Box<(Failure, Upload)>> {
    if let Err(failure) = attended(conn, &upload, Waits::ForConnection, open(&mut lease)).await {
        return Err(Box::new((failure, upload)));
    }
    trace.connected(lease.is_reused);
    let mut answer = Answer::new(ask, lease, upload)?;
    loop {
        match answer.news(conn).await {
            Ok(News::Interim(head)) => {
                Box::pin(interim(conn, ask, &mut answer, head)).await;
            }
            Ok(News::GoOn) => {
                Box::pin(send::go_on(conn)).await;
                ask.expects_continue = false;
                answer.go_on();
            }
            Ok(News::Head(head)) => {
                conn.timer.clear();
                return Ok((head, answer));
            }
            Err(mut failure) => {
                conn.timer.clear();
                failure.is_untouched |= !answer.has_been_asked();
                failure.answer_begun = answer.has_begun();
                return Err(Box::new((failure, answer.into_upload())));
            }
        }
    }
}

/// Passes an interim response on. 100 is for a client that waits for it, once; HTTP/1.0 knows none.
async fn interim(conn: &mut Conn, ask: &mut UpstreamRequest<'_>, answer: &mut Answer, head: Head) {
    let is_continue = head.status == 100;
    let wanted = match is_continue {
        true => ask.expects_continue,
        false => ask.request.head.version == Version::Http11,
    };
    if wanted {
        send::interim(conn, head.status, &head.fields).await;
    }
    if is_continue {
        ask.expects_continue = false;
        answer.go_on();
    }
}

/// From a backend's head to a response. What is still to come of its body is part of that.
fn respond(
    worker: &Rc<Worker>,
    request: &Request,
    head: Head,
    mut answer: Box<Answer>,
) -> Response {
    let mut response = Response::new(head.status);
    response.reason = head.reason;
    response.fields = head.fields;
    response.has_date = head.has_date;
    response.has_server = head.has_server;
    if head.status >= 400 {
        // A backend that refuses a request does not want the rest of it.
        answer.stop_upload();
    }
    response.close |= !answer.takes_request();
    let is_head = request.head.method == Method::Head;
    match head.status {
        101 => {
            let protocol = head.upgrade.unwrap_or_default();
            response.fields.add("Connection", b"Upgrade");
            response.fields.add("Upgrade", &protocol);
            response.close = true;
            response.body = match answer.into_tunnel() {
                Some(tunnel) => Body::Tunnel(Box::new(tunnel)),
                None => Body::None,
            };
        }
        204 | 304 => bodiless(worker, &mut response, head.length, answer),
        _ if is_head => bodiless(worker, &mut response, head.length, answer),
        _ => {
            response.body = Body::Upstream {
                length: answer.length(head.length),
                answer,
            };
        }
    }
    response
}

/// What GET would bring is told (RFC 9110, 8.6), but not with 204.
fn bodiless(
    worker: &Rc<Worker>,
    response: &mut Response,
    length: Option<u64>,
    answer: Box<Answer>,
) {
    if let Some(bytes) = length.filter(|_| response.status != 204) {
        response
            .fields
            .add("Content-Length", bytes.to_string().as_bytes());
    }
    response.close |= !answer.is_request_received();
    answer.finish(worker);
}
