//! A request that an application answers, or has answered by somebody else: by a file, by another location
//! of this server, by another upstream.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use levity_wire::http1::{Limits, Method};
use levity_wire::path;
use levity_wire::sendfile_header::{self, Delegation};

use super::failure::Failure;
use super::gateway::{self, Answered};
use super::sendfile::{self, Delegated, preload};
use crate::client::Client;
use crate::conn::Conn;
use crate::disk_client::DiskClient;
use crate::request::Request;
use crate::respond::{Body, Response};
use crate::route::{Location, Proxy, Service};
use crate::script_search::ScriptSearch;
use crate::scripts::{Known, Script};
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
    disk: &mut DiskClient<'_>,
) -> Response {
    if let Some(response) = preload::answer(&conn.worker.preload, request, client, proxy) {
        disk.trace.enter(Step::Resolve);
        disk.are_for_any();
        disk.reads_what_was_just_written();
        return response;
    }
    match gateway::answer(conn, request, proxy, client, script, disk.trace).await {
        Answered::Response(response) => response,
        // Boxed: most answers are those of the application.
        Answered::Delegated(delegated) => {
            Box::pin(follow(conn, *delegated, request, proxy, client, disk)).await
        }
    }
}

/// From one to the next, until somebody answers: `delegated` is what came of `request` at `proxy`.
async fn follow(
    conn: &mut Conn,
    mut delegated: Delegated,
    request: &Request,
    proxy: &Arc<Proxy>,
    client: &Client,
    disk: &mut DiskClient<'_>,
) -> Response {
    let service = disk.service();
    let mut handed_on: Vec<Handed<'_>> = Vec::new();
    let mut response = loop {
        let (request, proxy) = match handed_on.last() {
            Some(last) => (&*last.request, last.to),
            None => (request, proxy),
        };
        disk.trace.enter(Step::Resolve);
        match onward(delegated, service, request, proxy, disk).await {
            Onward::Response(response) => break response,
            Onward::UpstreamRequest(by, _) if handed_on.len() == HANDOVERS_MAX => {
                break by.refuse(502, "the request was handed on too often");
            }
            Onward::UpstreamRequest(by, asks) => {
                let asking = first_of_use(conn, asks, client, disk.trace);
                let (Asked { request, to, .. }, answered) = asking.await;
                handed_on.push(Handed { by, request, to });
                match answered {
                    Answered::Response(response) => break response,
                    Answered::Delegated(next) => delegated = *next,
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
    by: Box<Delegated>,
    /// The form in which it went on.
    request: Box<Request>,
    to: &'s Arc<Proxy>,
}

/// What becomes of a request that was handed on.
enum Onward<'s> {
    /// It is answered.
    Response(Response),
    /// It goes to another upstream: to the next of these when the one before is of no use.
    UpstreamRequest(Box<Delegated>, Asks<'s>),
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
        pool.report(&failure, None);
    }
    if let Body::Upstream { answer, .. } = response.body {
        answer.finish(&conn.worker);
    }
}

async fn onward<'s>(
    delegated: Delegated,
    service: &'s Service,
    request: &Request,
    proxy: &'s Arc<Proxy>,
    disk: &mut DiskClient<'_>,
) -> Onward<'s> {
    match delegated.delegation() {
        _ if delegated.is_contradictory() => {
            let reason = "the answer names something else to send, too";
            Onward::Response(delegated.refuse(502, reason))
        }
        Delegation::InternalUri => internal(delegated, service, request, disk).await,
        Delegation::Urls => elsewhere(delegated, &service.wire_limits, request, proxy),
        Delegation::File | Delegation::TemporaryFile | Delegation::FileParts => {
            Onward::Response(delegated.file(request, disk).await)
        }
    }
}

/// Another path of this server: the files or the upstream of an internal location.
async fn internal<'s>(
    delegated: Delegated,
    service: &'s Service,
    request: &Request,
    disk: &mut DiskClient<'_>,
) -> Onward<'s> {
    let mut path = Vec::new();
    if let Err(reject) = sendfile_header::internal_uri(delegated.value(), &mut path) {
        return Onward::Response(delegated.refuse(502, reject.reason));
    }
    path.insert(0, b'/');
    match service.route(request.host(), &path) {
        Some(
            location @ Location {
                internal: true,
                proxy: Some(to),
                ..
            },
        ) => {
            let found = match &location.files {
                Some(files) if to.files_first && to.scripts(files).is_none() => {
                    delegated.file_before(files, &path, request, disk).await
                }
                _ => None,
            };
            if let Some(response) = found {
                return Onward::Response(response);
            }
            match inside(&delegated, service, request, location, to, disk).await {
                Ok(first) => {
                    let others = Vec::new();
                    Onward::UpstreamRequest(Box::new(delegated), Asks { first, others })
                }
                Err(refusal) => Onward::Response(refusal),
            }
        }
        Some(Location {
            internal: true,
            files: Some(files),
            ..
        }) => Onward::Response(delegated.internal_file(files, &path, request, disk).await),
        _ => {
            let reason = "no route with `internal = true` has that path";
            Onward::Response(delegated.refuse(502, reason))
        }
    }
}

/// What is asked of the upstream of an internal location.
async fn inside<'s>(
    delegated: &Delegated,
    service: &Service,
    request: &Request,
    location: &Location,
    to: &'s Arc<Proxy>,
    disk: &mut DiskClient<'_>,
) -> Result<Asked<'s>, Response> {
    let (target, limits) = (delegated.value(), &service.wire_limits);
    let Some(request) = derived(request, target, request.host(), &[], limits) else {
        return Err(delegated.refuse(502, "no path that can be asked for"));
    };
    if let Err(reject) = service.check_readings(&request, location) {
        return Err(delegated.refuse(502, reject.reason));
    }
    let files = location.files.as_ref();
    let script = match files.and_then(|files| Some((files, to.scripts(files)?))) {
        None => None,
        Some(_) if to.files_first => {
            let reason = "an internal route that runs scripts has no `file` in its `try`";
            return Err(delegated.refuse(502, reason));
        }
        Some((files, scripts)) => {
            let mut search = ScriptSearch::new(location, files, Instant::now(), disk);
            let located = search.locate(scripts, &request, Known::Unknown).await;
            Some(there(delegated, located)?)
        }
    };
    Ok(Asked {
        request,
        to,
        script,
    })
}

/// The script that was looked for, if there is one.
fn there(delegated: &Delegated, located: io::Result<Option<Script>>) -> Result<Script, Response> {
    match located {
        Ok(Some(script)) => Ok(script),
        Ok(None) => Err(delegated.refuse(404, "no script answers that path")),
        Err(error) => {
            let reason = format_args!("cannot look for a script: {error}");
            Err(delegated.refuse(sendfile::status_of(&error), reason))
        }
    }
}

/// Another upstream: those of the URLs whose host is one that the operator has listed, in their order.
fn elsewhere<'s>(
    delegated: Delegated,
    limits: &Limits,
    request: &Request,
    proxy: &'s Arc<Proxy>,
) -> Onward<'s> {
    let urls = match sendfile_header::urls(delegated.value()) {
        Ok(urls) => urls,
        Err(reject) => return Onward::Response(delegated.refuse(502, reject.reason)),
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
            Onward::UpstreamRequest(Box::new(delegated), Asks { first, others })
        }
        None => {
            let reason = "no upstream in `reproxy` has that address";
            Onward::Response(delegated.refuse(502, reason))
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
