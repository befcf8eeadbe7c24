//! A request that an application answers, or has answered by somebody else: by a file, by another place
//! of this server, by another upstream.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use levity_wire::http1::{Limits, Method};
use levity_wire::path;
use levity_wire::sendfile_header::{self, Delegation};

use super::failure::Failure;
use super::gateway::{self, Answered};
use super::sendfile::{self, InPlace, ahead};
use crate::client::Client;
use crate::conn::Conn;
use crate::request::Request;
use crate::respond::{Body, Response};
use crate::route::{Place, Proxy, Service};
use crate::script_search::ScriptSearch;
use crate::scripts::{Known, Script};
use crate::trip::Trips;
use levity_telemetry::step::Step;
use levity_telemetry::trace::{Side, Trace, UpstreamTrace};

/// How often a request may be handed on: an application that is sent what it has handed on itself would
/// do so for ever.
const HANDOVERS_MAX: usize = 3;

/// What a client shows to the site it asked for, and nobody else: another server gets an address, and what
/// the application has decided about the client lies behind it.
const CREDENTIALS: [&[u8]; 2] = [b"cookie", b"authorization"];

/// Has an upstream answer `request`, and whomever it hands it on to.
pub async fn answer(
    conn: &mut Conn,
    request: &Request,
    proxy: &Arc<Proxy>,
    client: &Client,
    script: Option<&Script>,
    trips: &mut Trips<'_>,
) -> Response {
    if let Some(response) = ahead::answer(&conn.worker.ahead, request, client, proxy) {
        trips.trace.enter(Step::Resolve);
        trips.are_for_any();
        trips.reads_what_was_just_written();
        return response;
    }
    match gateway::answer(conn, request, proxy, client, script, trips.trace).await {
        Answered::Response(response) => response,
        // Boxed: most answers are those of the application.
        Answered::InPlace(in_place) => {
            Box::pin(follow(conn, *in_place, request, proxy, client, trips)).await
        }
    }
}

/// From one to the next, until somebody answers: `in_place` is what came of `request` at `proxy`.
async fn follow(
    conn: &mut Conn,
    mut in_place: InPlace,
    request: &Request,
    proxy: &Arc<Proxy>,
    client: &Client,
    trips: &mut Trips<'_>,
) -> Response {
    let service = trips.service();
    let mut handed_on: Vec<Handed<'_>> = Vec::new();
    let mut response = loop {
        let (request, proxy) = match handed_on.last() {
            Some(last) => (&*last.request, last.to),
            None => (request, proxy),
        };
        trips.trace.enter(Step::Resolve);
        match onward(in_place, service, request, proxy, trips).await {
            Onward::Response(response) => break response,
            Onward::Ask(by, _) if handed_on.len() == HANDOVERS_MAX => {
                break by.refuse(502, "the request was handed on too often");
            }
            Onward::Ask(by, asks) => {
                let asking = first_of_use(conn, asks, client, trips.trace);
                let (Asked { request, to, .. }, answered) = asking.await;
                handed_on.push(Handed { by, request, to });
                match answered {
                    Answered::Response(response) => break response,
                    Answered::InPlace(next) => in_place = *next,
                }
            }
        }
    };
    while let Some(last) = handed_on.pop() {
        last.by.dress(&mut response);
    }
    response
}

/// A request that an application has handed on.
struct Handed<'s> {
    /// Which application, and what it has said beside.
    by: Box<InPlace>,
    /// The form in which it went on.
    request: Box<Request>,
    to: &'s Arc<Proxy>,
}

/// What becomes of a request that was handed on.
enum Onward<'s> {
    /// It is answered.
    Response(Response),
    /// It goes to another upstream: to the next of these when the one before is of no use.
    Ask(Box<InPlace>, Asks<'s>),
}

/// What is asked of whom.
struct Asked<'s> {
    request: Box<Request>,
    to: &'s Arc<Proxy>,
    script: Option<Script>,
}

/// At least one; at most as many as [`sendfile_header::URLS_MAX`].
struct Asks<'s> {
    first: Asked<'s>,
    others: Vec<Asked<'s>>,
}

/// Asks one after the other until an answer is of use, or is the last.
async fn first_of_use<'s>(
    conn: &mut Conn,
    asks: Asks<'s>,
    client: &Client,
    trace: &mut Trace,
) -> (Asked<'s>, Answered) {
    let (mut asked, mut others) = (asks.first, asks.others.into_iter());
    loop {
        let Asked {
            request,
            to,
            script,
        } = &asked;
        let script = script.as_ref();
        let answered = gateway::answer(conn, request, to, client, script, trace).await;
        let next = match &answered {
            Answered::Response(response)
                if !is_of_use(response.status) && !client_is_gone(trace) =>
            {
                others.next()
            }
            _ => None,
        };
        let Some(next) = next else {
            return (asked, answered);
        };
        if let Answered::Response(response) = answered {
            pass_over(conn, &asked, response, trace);
        }
        asked = next;
    }
}

/// As Perlbal takes it: a success, and what conditions and ranges make of one. A change of protocol is
/// one too.
fn is_of_use(status: u16) -> bool {
    matches!(status, 101 | 200..=299 | 304 | 412 | 416)
}

/// Whether there is no client any more that could be answered.
fn client_is_gone(trace: &Trace) -> bool {
    failed_side(trace) == Some(Side::Client)
}

/// Who failed at the upstream that was asked last, if anybody did.
fn failed_side(trace: &Trace) -> Option<Side> {
    trace.upstream().and_then(UpstreamTrace::failed_side)
}

/// Lets go of an answer that is of no use. That none came has been told already.
fn pass_over(conn: &Conn, asked: &Asked<'_>, response: Response, trace: &Trace) {
    if failed_side(trace).is_none() {
        let reason = format_args!("it answered {} to X-Reproxy-URL", response.status);
        let mut failure = Failure::of_backend(response.status, "other", reason);
        failure.tried_again = true;
        let pool = conn.worker.pools.of(&asked.to.upstream);
        pool.complain(&failure, None);
    }
    if let Body::Upstream { answer, .. } = response.body {
        answer.finish(&conn.worker);
    }
}

async fn onward<'s>(
    in_place: InPlace,
    service: &'s Service,
    request: &Request,
    proxy: &'s Arc<Proxy>,
    trips: &mut Trips<'_>,
) -> Onward<'s> {
    match in_place.wish() {
        _ if in_place.is_contradictory() => {
            let reason = "the answer names something else to send, too";
            Onward::Response(in_place.refuse(502, reason))
        }
        Delegation::InternalUri => internal(in_place, service, request, trips).await,
        Delegation::Urls => elsewhere(in_place, &service.wire_limits, request, proxy),
        Delegation::File | Delegation::TemporaryFile | Delegation::FileParts => {
            Onward::Response(in_place.file(request, trips).await)
        }
    }
}

/// Another path of this server: the files or the upstream of an internal place.
async fn internal<'s>(
    in_place: InPlace,
    service: &'s Service,
    request: &Request,
    trips: &mut Trips<'_>,
) -> Onward<'s> {
    let mut path = Vec::new();
    if let Err(reject) = sendfile_header::internal_uri(in_place.value(), &mut path) {
        return Onward::Response(in_place.refuse(502, reject.reason));
    }
    path.insert(0, b'/');
    match service.route(request.host(), &path) {
        Some(
            place @ Place {
                internal: true,
                proxy: Some(to),
                ..
            },
        ) => {
            let found = match &place.files {
                Some(files) if to.files_first && to.scripts(files).is_none() => {
                    in_place.file_before(files, &path, request, trips).await
                }
                _ => None,
            };
            if let Some(response) = found {
                return Onward::Response(response);
            }
            match inside(&in_place, service, request, place, to, trips).await {
                Ok(first) => {
                    let others = Vec::new();
                    Onward::Ask(Box::new(in_place), Asks { first, others })
                }
                Err(refusal) => Onward::Response(refusal),
            }
        }
        Some(Place {
            internal: true,
            files: Some(files),
            ..
        }) => Onward::Response(in_place.internal_file(files, &path, request, trips).await),
        _ => {
            let reason = "no route with `internal = true` has that path";
            Onward::Response(in_place.refuse(502, reason))
        }
    }
}

/// What is asked of the upstream of an internal place.
async fn inside<'s>(
    in_place: &InPlace,
    service: &Service,
    request: &Request,
    place: &Place,
    to: &'s Arc<Proxy>,
    trips: &mut Trips<'_>,
) -> Result<Asked<'s>, Response> {
    let (target, limits) = (in_place.value(), &service.wire_limits);
    let Some(request) = derived(request, target, request.host(), &[], limits) else {
        return Err(in_place.refuse(502, "no path that can be asked for"));
    };
    if let Err(reject) = service.check_readings(&request, place) {
        return Err(in_place.refuse(502, reject.reason));
    }
    let files = place.files.as_ref();
    let script = match files.and_then(|files| Some((files, to.scripts(files)?))) {
        None => None,
        Some(_) if to.files_first => {
            let reason = "an internal route that runs scripts has no `file` in its `try`";
            return Err(in_place.refuse(502, reason));
        }
        Some((files, scripts)) => {
            let mut search = ScriptSearch::new(place, files, Instant::now(), trips);
            let located = search.locate(scripts, &request, Known::Unknown).await;
            Some(there(in_place, located)?)
        }
    };
    Ok(Asked {
        request,
        to,
        script,
    })
}

/// The script that was looked for, if there is one.
fn there(in_place: &InPlace, located: io::Result<Option<Script>>) -> Result<Script, Response> {
    match located {
        Ok(Some(script)) => Ok(script),
        Ok(None) => Err(in_place.refuse(404, "no script answers that path")),
        Err(error) => {
            let reason = format_args!("cannot look for a script: {error}");
            Err(in_place.refuse(sendfile::status_of(&error), reason))
        }
    }
}

/// Another upstream: those of the URLs whose host is one that the operator has listed, in their order.
fn elsewhere<'s>(
    in_place: InPlace,
    limits: &Limits,
    request: &Request,
    proxy: &'s Arc<Proxy>,
) -> Onward<'s> {
    let urls = match sendfile_header::urls(in_place.value()) {
        Ok(urls) => urls,
        Err(reject) => return Onward::Response(in_place.refuse(502, reject.reason)),
    };
    let mut asks = urls.iter().filter_map(|url| {
        let mut listed = proxy.reproxy.iter();
        let to = listed.find(|listed| listed.upstream.is_at(url.host, url.port))?;
        let request = derived(request, url.target, url.host, &CREDENTIALS, limits)?;
        Some(Asked {
            request,
            to,
            script: None,
        })
    });
    match asks.next() {
        Some(first) => {
            let others = asks.collect();
            Onward::Ask(Box::new(in_place), Asks { first, others })
        }
        None => {
            let reason = "no upstream in `reproxy` has that address";
            Onward::Response(in_place.refuse(502, reason))
        }
    }
}

/// The same request for something else: without its body, which the first application has had, and without
/// the fields of these names. None for a target that cannot be passed on.
fn derived(
    request: &Request,
    target: &[u8],
    host: &[u8],
    without: &[&[u8]],
    limits: &Limits,
) -> Option<Box<Request>> {
    let method: &[u8] = match request.head.method {
        Method::Head => b"HEAD",
        _ => b"GET",
    };
    let derived = Request::derived(request, method, target, host, without, limits).ok()?;
    path::forwarded(derived.raw_path()).ok()?;
    Some(Box::new(derived))
}
