//! The steps of one request, in seven words:
//!
//! `accept -> parse -> route -> resolve -> respond -> filter -> send`
//!
//! `accept` made the connection and `parse` the request; the other steps run here. A step returns a
//! value and never calls a later one. Handlers resolve and respond. A hit in memory over HTTP/1
//! without TLS never waits here: its header and body leave in one write.
//!
//! The commit point is the first byte that leaves. Until then any failure replaces the response
//! (`Sent::replacement`); afterwards the connection is closed or reset. A response of 400 and above
//! passes through the error pages of the location before the filters (`handler/error_page.rs`). A
//! call of gRPC gets a response of trailers only in place of 502 to 504 (`respond/grpc.rs`).
//!
//! Each request has one `Trace`, from its first byte to its line of the log. A step ends where the
//! next begins, so one look at the clock serves both. Where the log or Server-Timing needs the
//! steps, each ends with one. Otherwise only the first request of a turn of the loop is timed so, at
//! most one in a millisecond; for the others the start of the poll serves as the present time: a
//! wait counts for its step, and the time of a poll for the step in which the poll ends.

use std::cell::LazyCell;
use std::mem;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Instant;

use levity_config::Limits;
use levity_telemetry::access_log::{End, Headers, LimitedBy, NoHeaders, Record};
use levity_telemetry::diagnostics;
use levity_telemetry::stall;
use levity_telemetry::step::Step;
use levity_telemetry::trace::Trace;
use levity_wire::http1::{Method, Target};

use crate::files::disk_client::DiskClient;
use crate::files::root::LiveRoot;
use crate::filter;
use crate::handler::{Handled, Handling};
use crate::http::error::{detail, error};
use crate::http::request_body::RequestBody;
use crate::http::response::{Body, Response};
use crate::http::send::parked::{self, Parked};
use crate::http::send::{self, ClientSocket, Framing, ResponseSink, Sent};
use crate::message::client::{Client, logged_tls};
use crate::message::request::{ABSENT, Arrival, Request};
use crate::rate_limit::limit::RateLimit;
use crate::respond;
use crate::route::{Location, Service};
use crate::shares::claim::Requester;
use crate::worker::{LocalService, Worker};

const NOT_OWN_NAME: &str =
    "`levity serve` answers to `localhost` and IP addresses here; `--host NAME` adds a name";

/// The maximum number of rewrites per request: it ends loops that no check of the configuration can find.
const REWRITES_MAX: usize = 10;

/// The result of an exchange, for the connection.
pub struct Exchanged {
    /// The status of the response.
    pub status: u16,
    /// How the response ended.
    pub end: End,
    /// When the response ended.
    pub ended: Instant,
    /// The connection cannot be reused for another request.
    pub close: bool,
    /// Closing the connection sends a reset instead of an orderly end.
    pub reset: bool,
    /// The rest of the response, which is not part of the exchange.
    pub parked: Option<Box<Parked>>,
}

impl Exchanged {
    fn new(sent: &Sent, close: bool, parked: Option<Box<Parked>>) -> Self {
        Self {
            status: sent.status,
            end: sent.end,
            ended: sent.ended,
            close,
            reset: sent.reset,
            parked,
        }
    }
}

/// Answers `request`, which arrived on `stream` of `worker`, and logs it.
pub async fn exchange<S: ResponseSink + 'static>(
    worker: &Rc<Worker>,
    stream: &Rc<S>,
    request: &mut Request,
    arrival: Arrival,
) -> Exchanged {
    // The trace is large. It is built in place, because moving it would be a copy per request.
    let mut trace = Trace::new(arrival.first_byte, arrival.waited);
    let sink: &S = stream;
    sink.timer().clear();
    worker.core.stats.begun.add(1);
    let service = worker.service();
    begin_steps(&mut trace, &service);
    let config = &service.config;
    let client = Client::new(sink.peer(), request, &config.server.trusted_proxies);
    request.is_https = client.scheme == "https";
    let id_header = config.server.request_id.as_deref();
    request.identify(id_header.filter(|_| client.by_trusted));
    let (number, lookups) = (sink.number(), sink.failed_lookups());
    let requester = Requester {
        client: &client,
        connection: sink.connection(),
        stream: number,
    };
    let disk = DiskClient::new(&worker.core, &service.own, number, lookups, &mut trace)
        .asked_by(requester)
        .taking_pipes(sink.socket().is_some_and(|socket| socket.is_tcp()));
    let body = body(stream, &requester, &config.limits);
    let mut handling = Handling::new(worker, &service, &client, body, disk);
    let (location, mut response) = answer(&mut handling, request).await;
    explain_answer(worker, location, &response);
    if response.status >= 400 {
        // Boxed: otherwise the future of every request would contain this rare path.
        response = Box::pin(handling.with_error_page(request, location, response)).await;
    }
    prepare(sink, request, location, &mut response, &mut handling);
    let mut close = response.close;
    let (disk, charges) = (&mut handling.disk, &handling.charges);
    let mut sent = send::send(sink, request, &mut response, disk, charges).await;
    if sent.replacement.is_some() {
        // Boxed: otherwise the future of every request would contain this rare path.
        let what = (&mut response, &mut sent);
        let replacing = send_replacement(sink, request, location, close, what, &mut handling);
        close = Box::pin(replacing).await;
    }
    close |= sink.body_remaining() != Some(0);
    if sent.end == End::Complete && is_unread(sink, &response) {
        sent.end = End::ClientAbort;
    }
    handling.completed(&sent);
    if let Body::Held { held, .. } = response.body {
        let subject = logged_later(&handling, &service, (request, location), &sent);
        return Exchanged::new(&sent, true, Some(Box::new(Parked::new(held, subject))));
    }
    let user = handling.user().to_vec();
    let subject = Subject {
        request,
        response: &response,
        location,
        client: &client,
        user: &user,
        limited: handling.charges.first_hit().map(limited_by),
    };
    conclude(worker, sink, &service, &subject, &sent, handling.disk.trace);
    Exchanged::new(&sent, close, None)
}

/// What the log needs of a request whose response outlives the exchange.
fn logged_later(
    handling: &Handling<'_>,
    service: &LocalService,
    (request, location): (&Request, Option<&Location>),
    sent: &Sent,
) -> parked::Subject {
    let place = parked::Place {
        site: location.map(|location| location.site),
        log: service.log_of(location),
        route: location.map_or("", |location| &location.route),
    };
    let (user, arrived) = (handling.user(), handling.disk.trace.arrived());
    let about = (request, handling.client);
    parked::Subject::new(service.own.clone(), about, place, user, arrived, sent)
}

/// Whether what was sent is an error that nobody may read.
fn is_unread<S: ResponseSink>(sink: &S, response: &Response) -> bool {
    sink.is_body_cut_off() || response.status == ABSENT && sink.input_ended()
}

/// The body of the request on `stream`. One without a body claims nothing.
fn body<S: ResponseSink + 'static>(
    stream: &Rc<S>,
    requester: &Requester<'_>,
    limits: &Limits,
) -> RequestBody {
    let claims = || Rc::new(requester.claims(&stream.core().stakes));
    let claims = stream.has_body().then(claims);
    RequestBody::new(stream.clone(), limits, claims)
}

fn begin_steps(trace: &mut Trace, service: &Service) {
    if service.times_each_step || stall::is_time_for_steps() {
        trace.time_each_step();
    }
    trace.enter(Step::Route);
    if service.keeps_chunks {
        trace.keep_chunks();
    }
}

/// Runs the steps route, resolve and respond. Returns the response, and the location that it comes from.
async fn answer<'a>(
    handling: &mut Handling<'a>,
    request: &mut Request,
) -> (Option<&'a Location>, Response) {
    if let Err(refusal) = check_own_name(handling.service, request, handling.client) {
        return (None, Box::pin(handling.refuse(refusal)).await);
    }
    if request.head.target == Target::Asterisk {
        return (None, Box::pin(handling.refuse(respond::options())).await);
    }
    if let Err(reject) = request.decode_path() {
        let refusal = error(reject.status, reject.reason);
        return (None, Box::pin(handling.refuse(refusal)).await);
    }
    let line_bytes_max = handling.service.config.limits.request_line_bytes;
    let mut may_be_internal = false;
    for _ in 0..=REWRITES_MAX {
        let location = match route(handling, request, may_be_internal) {
            Ok(location) => location,
            // Boxed: a rare path.
            Err(refusal) => return Box::pin(refuse(handling, request, *refusal)).await,
        };
        if let Some(root) = unchecked_root(handling, location) {
            // Boxed: rarely a request has to wait for a check.
            Box::pin(handling.disk.check(root)).await;
        }
        enter(handling, request, location);
        let handled = match handling.decide(request, location) {
            Ok(response) => Handled::Response(response),
            Err(undecided) => handling.wait_for(request, undecided).await,
        };
        let rewritten = match handled {
            Handled::Response(response) => {
                let response = without_false_tunnel(handling, request, response);
                return (Some(location), response);
            }
            Handled::Rewritten(rewritten) => rewritten,
        };
        may_be_internal = rewritten.may_be_internal;
        if rewritten.target.len() > line_bytes_max {
            let refusal = error(414, "the rewritten target is too long");
            return (Some(location), Box::pin(handling.refuse(refusal)).await);
        }
        if let Err(reject) = request.set_target(&rewritten.target, rewritten.by_rule) {
            let refusal = error(reject.status, reject.reason);
            return (Some(location), Box::pin(handling.refuse(refusal)).await);
        }
    }
    let refusal = handling.refuse(too_many_rewrites(request));
    (None, Box::pin(refusal).await)
}

/// Replaces a response that would begin a tunnel with nobody at its other end: there any 2xx does (RFC 8441, 5).
fn without_false_tunnel(
    handling: &mut Handling<'_>,
    request: &Request,
    response: Response,
) -> Response {
    let is_success = (200..300).contains(&response.status);
    if !request.is_tunnel || !is_success || response.body.protocol().is_some() {
        return response;
    }
    handling.replaced();
    error(501, "nothing here speaks the protocol of the tunnel")
}

/// A refusal before any handler was asked, and the location whose filters and error pages it gets.
struct Unrouted<'a> {
    location: Option<&'a Location>,
    response: Response,
}

/// The refusal of a request that gets to no location.
fn unrouted<'a>(status: u16, reason: &'static str) -> Box<Unrouted<'a>> {
    Box::new(Unrouted {
        location: None,
        response: error(status, reason),
    })
}

/// Answers a request that no handler is asked for.
async fn refuse<'a>(
    handling: &mut Handling<'a>,
    request: &mut Request,
    refusal: Unrouted<'a>,
) -> (Option<&'a Location>, Response) {
    handling.asks_handlers = false;
    if let Some(location) = refusal.location {
        if let Some(root) = unchecked_root(handling, location) {
            handling.disk.check(root).await;
        }
        enter(handling, request, location);
    }
    let response = handling.refuse(refusal.response).await;
    (refusal.location, response)
}

/// Says where `response` comes from, and why it is an error.
fn explain_answer(worker: &Worker, location: Option<&Location>, response: &Response) {
    if let Some(explanation) = &worker.explanation {
        explanation.answered(location.is_some(), detail(response));
    }
}

/// The root of `location` if it has to be checked before the request uses it.
fn unchecked_root<'a>(handling: &Handling<'_>, location: &'a Location) -> Option<&'a LiveRoot> {
    let root = &location.files.as_ref()?.root;
    let now = handling.disk.trace.step_began();
    handling.disk.note_use_and_ask(root, now).then_some(root)
}

/// Prepares `request` for the handlers of `location`.
fn enter(handling: &mut Handling<'_>, request: &mut Request, location: &Location) {
    handling
        .disk
        .trace
        .set_server_timing(location.server_timing);
    request.set_key(location.key());
    if request.head.conditional && !location.compress.is_empty() {
        request.adapt_conditions(&location.compress);
    }
}

/// The response to a request whose rewrites do not end.
fn too_many_rewrites(request: &Request) -> Response {
    let (host, target) = (request.host(), request.sent_target());
    diagnostics::log(format_args!(
        "{} of {} was rewritten more than {REWRITES_MAX} times: routes with `reroute`, or pages in `try`, lead to each other",
        target.escape_ascii(),
        host.escape_ascii(),
    ));
    error(500, "the request was rewritten too often")
}

/// Replaces a response that failed before its first byte was sent, in place. If its file was rewritten meanwhile, the location
/// is asked once more; otherwise the error is sent. Returns whether the connection has to close.
async fn send_replacement<'a, S: ResponseSink>(
    stream: &S,
    request: &Request,
    location: Option<&'a Location>,
    mut close: bool,
    (response, sent): (&mut Response, &mut Sent),
    handling: &mut Handling<'a>,
) -> bool {
    let mut may_retry = !request.has_body() && handling.asks_handlers;
    while let Some(failure) = sent.replacement.take() {
        handling.replaced();
        let is_outdated = sent.outdated && handling.disk.trace.upstream().is_none();
        let mut replacement = match location.filter(|_| is_outdated && mem::take(&mut may_retry)) {
            Some(location) => {
                handling.forget(request);
                match handling.respond(request, location).await {
                    Handled::Response(response) => {
                        without_false_tunnel(handling, request, response)
                    }
                    Handled::Rewritten(_) => *failure,
                }
            }
            None => *failure,
        };
        if replacement.status >= 400 {
            replacement = handling
                .with_error_page(request, location, replacement)
                .await;
        }
        replacement.close |= close;
        *response = replacement;
        prepare(stream, request, location, response, handling);
        close = response.close;
        *sent = send::send(
            stream,
            request,
            response,
            &mut handling.disk,
            &handling.charges,
        )
        .await;
    }
    close
}

/// Applies the filters of the location and decides whether the connection closes after the response.
fn prepare<'a, S: ResponseSink>(
    stream: &S,
    request: &Request,
    location: Option<&'a Location>,
    response: &mut Response,
    handling: &mut Handling<'a>,
) {
    handling.disk.trace.enter(Step::Filter);
    if let Some(location) = location {
        filtered(request, location, response, handling);
    }
    response.frame_parts();
    let ends_by_closing = stream.framing(response.is_open_ended()) == Framing::ByClosing;
    // Unread bytes of the body must not be parsed as the next request. A streamed response may still read them.
    let may_be_read = response.body.is_stream() && !handling.body.is_absent();
    let has_unread_body = stream.body_remaining() != Some(0) && !may_be_read;
    response.close |= !request.head.keep_alive
        || has_unread_body
        || handling.worker.core.is_draining()
        || ends_by_closing;
    if response.status == 404 {
        handling.disk.count_failed_lookups();
    }
    handling.disk.trace.enter(Step::Send);
}

/// Applies the filters of `location`.
fn filtered<'a>(
    request: &Request,
    location: &'a Location,
    response: &mut Response,
    handling: &Handling<'a>,
) {
    let page = handling.page_sent(request, location).map(|(page, of)| {
        let keeping = filter::keeping(&of.filters, request, page, response);
        (page, keeping)
    });
    let filters = &location.filters;
    // Few filters change a body, and what is in memory passes most of them.
    let claims = LazyCell::new(|| handling.claims());
    let explanation = handling.worker.explanation.as_ref();
    match explanation {
        None => filter::apply(filters, request, response, &claims),
        Some(explanation) => {
            filter::apply_and_explain(filters, request, response, &claims, explanation);
        }
    }
    if let Some((page, keeping)) = page {
        filter::keep_as(page, &keeping, response, explanation);
    }
}

/// Checks the host of a request to a server that answers to its own names only. That protects browsers from DNS
/// rebinding.
///
/// # Errors
/// The response to a request with another name.
fn check_own_name(service: &Service, request: &Request, client: &Client) -> Result<(), Response> {
    // No browser connects to a Unix socket.
    let may_be_browser = client.peer.is_some();
    match &service.config.own_names {
        Some(names) if may_be_browser && !names.include(request.host()) => {
            Err(error(421, NOT_OWN_NAME))
        }
        _ => Ok(()),
    }
}

/// Finds the location of `request`. A request that was rewritten may get to an internal one, if the rule may lead there.
///
/// # Errors
/// The refusal of a request that has no location, or one that it may not get to.
fn route<'a>(
    handling: &Handling<'a>,
    request: &Request,
    may_be_internal: bool,
) -> Result<&'a Location, Box<Unrouted<'a>>> {
    if matches!(request.head.method, Method::Connect | Method::Trace) {
        handling.explain_refusal("CONNECT and TRACE are not supported");
        return Err(unrouted(405, ""));
    }
    let service = handling.service;
    service
        .check_length(request)
        .map_err(|reject| unrouted(reject.status, reject.reason))?;
    let input = handling.route_input(request);
    if let Some(explanation) = &handling.worker.explanation {
        service.explain_route(request.host(), &request.path, input, explanation);
    }
    let location = service
        .route(request.host(), &request.path, input)
        .ok_or_else(|| unrouted(421, "no site here has that name"))?;
    if location.internal && !may_be_internal {
        handling.explain_refusal(
            "the route is `internal`: only `reroute` and X-Accel-Redirect lead there",
        );
        let (number, location) = service
            .public_route(request.host(), &request.path, input)
            .expect("the site has been found");
        if let Some(explanation) = &handling.worker.explanation {
            explanation.answered_by(number);
        }
        return Err(Box::new(Unrouted {
            location: Some(location),
            response: error(404, ""),
        }));
    }
    service
        .check_readings(input, location)
        .map_err(|reject| unrouted(reject.status, reject.reason))?;
    if request.is_early && !(location.early_data && may_be_repeated(request)) {
        return Err(Box::new(Unrouted {
            location: Some(location),
            response: error(425, "send it again when the handshake of TLS is complete"),
        }));
    }
    Ok(location)
}

/// Whether `request` changes nothing, however often it is answered (RFC 8470, 4).
fn may_be_repeated(request: &Request) -> bool {
    let is_safe = matches!(request.head.method, Method::Get | Method::Head);
    // A body, or the bytes after an upgrade, may come in part after the handshake, and may be a command.
    is_safe && !request.has_body() && request.upgrade().is_none()
}

/// What an exchange was about, for its record.
struct Subject<'a> {
    request: &'a Request,
    response: &'a Response,
    location: Option<&'a Location>,
    client: &'a Client,
    /// The name of the user; empty if no gate has asked for it.
    user: &'a [u8],
    limited: Option<LimitedBy<'a>>,
}

fn limited_by(limit: &RateLimit) -> LimitedBy<'_> {
    LimitedBy {
        limit: limit.name(),
        is_report: limit.only_reports(),
    }
}

impl Headers for Subject<'_> {
    fn request(&self, name: &str) -> Option<&[u8]> {
        self.request.header(name)
    }

    fn response(&self, name: &str) -> Option<&[u8]> {
        self.response.header(name)
    }
}

/// Counts and logs an answered request.
fn conclude<S: ResponseSink>(
    worker: &Worker,
    stream: &S,
    service: &LocalService,
    subject: &Subject<'_>,
    sent: &Sent,
    trace: &mut Trace,
) {
    worker.core.stats.answered.add(1);
    if sent.bytes > 0 && trace.times_each_step() && !trace.has_written() {
        // Bodies from files and streams record their writes. Any other body was sent within the current step, if that
        // is timed.
        let (chunk, from) = (trace.last_read().chunk, trace.step_began());
        trace.wrote(chunk, from, sent.ended, sent.bytes);
    }
    trace.end(sent.ended);
    let client = (subject.client.ip, subject.client.scheme);
    record(stream, service, client, Some(subject), sent, trace);
    if matches!(sent.status, 200 | 206 | 304) {
        let request = subject.request;
        let mut popular = worker.popular.borrow_mut();
        popular.count(request.host(), &request.path, sent.bytes);
    }
}

/// Counts and logs the response to input that could not be parsed as a request.
pub fn record_refused<S: ResponseSink>(
    service: &LocalService,
    stream: &S,
    arrived: Instant,
    sent: &Sent,
) {
    let trace = Trace::new(arrived, None);
    let client = (stream.peer().ip(), stream.peer().scheme());
    record(stream, service, client, None, sent, &trace);
}

/// Counts and logs a response; `subject` is `None` when the input could not be parsed.
fn record<S: ResponseSink>(
    stream: &S,
    service: &LocalService,
    (peer, scheme): (Option<IpAddr>, &'static str),
    subject: Option<&Subject<'_>>,
    sent: &Sent,
    trace: &Trace,
) {
    let (core, arrived) = (stream.core(), trace.arrived());
    let request = subject.map(|subject| subject.request);
    let location = subject.and_then(|subject| subject.location);
    let duration = sent.ended - arrived;
    let ttfb = match sent.first_byte {
        Some(at) if at < sent.ended => at - arrived,
        _ => duration,
    };
    let stats = &core.stats;
    stats.request(sent.status, sent.source, duration, ttfb, trace);
    stats.sent_bytes.add(sent.bytes);
    if let Some(location) = location {
        let site = service.site_of(location);
        site.request(sent.status, sent.bytes, duration);
    }
    let header = |name| request.and_then(|request| request.header(name));
    service.log_request(location, || Record {
        peer,
        via: stream.peer().socket_ip(),
        user: subject.map_or(b"", |subject| subject.user),
        limited: subject.and_then(|subject| subject.limited),
        arrived: core.clock.wall_time(arrived),
        id: request.map(Request::id),
        scheme,
        host: request.map_or(b"", Request::host),
        site: location.map_or("", |location| service.name_of_site(location)),
        route: location.map_or("", |location| &location.route),
        method: request.map_or(b"", Request::method),
        target: request.map_or(b"", Request::sent_target),
        version: request.map_or("", |_| stream.version()),
        tls: logged_tls(stream.peer()),
        status: sent.status,
        bytes: sent.bytes,
        body_bytes: subject.map_or(0, |_| stream.body_received()),
        duration,
        ttfb,
        source: sent.source,
        end: sent.end,
        referer: header("referer").unwrap_or(b""),
        user_agent: header("user-agent").unwrap_or(b""),
        headers: subject.map_or(&NoHeaders, |subject| subject),
        run_queue_wait_percent: stats.polls.run_queue_wait_percent(),
        trace,
    });
}

#[cfg(test)]
mod tests;
