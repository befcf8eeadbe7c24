//! One request and its answer, in seven words:
//!
//! `accept -> parse -> route -> resolve -> respond -> filter -> send`
//!
//! `accept` made the connection and `parse` the request; the rest is here. A step returns a value
//! and never calls a later one, so this file is the only place that knows the order.

use std::io;
use std::mem;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use levity_wire::http1::{Framing, Method, Target, Version};

use crate::body::Incoming;
use crate::client::Client;
use crate::conn::Conn;
use crate::disk_client::DiskClient;
use crate::filter::filter;
use crate::request::{NoRequest, Request};
use crate::resolve::{self, Found};
use crate::respond::{self, Response};
use crate::route::{Files, Location, Proxy, Service};
use crate::script_search::ScriptSearch;
use crate::scripts::{Known, Script};
use crate::send::{self, Sent};
use crate::upstream::handover;
use crate::worker::Worker;
use levity_telemetry::access_log::{End, Record};
use levity_telemetry::diagnostics;
use levity_telemetry::step::Step;
use levity_telemetry::trace::Trace;

const NOT_OWN_NAME: &str =
    "`levity serve` answers to `localhost` and IP addresses here; `--host NAME` adds a name";

/// What becomes of the connection.
pub enum After {
    /// It waits for the next request.
    KeepAlive,
    /// It is closed.
    Close(End),
}

/// Answers one request.
pub async fn exchange(conn: &mut Conn, request: &mut Request) -> After {
    let mut trace = conn.take_trace();
    trace.enter(Step::Route);
    conn.timer.clear();
    let worker = conn.worker.clone();
    worker.stats.begun.add(1);
    let service = worker.service();
    if service.config.log.logs_chunks() {
        trace.keep_chunks();
    }
    let mut disk = DiskClient::new(
        &worker,
        &service,
        conn.stream_number(),
        conn.failed_lookups,
        &mut trace,
    );

    let client = Client::new(&conn.peer, request, &service.config.server.trusted_proxies);
    let (location, response) = match route(&service, request, &client) {
        Ok(location) => {
            disk.trace.set_server_timing(location.server_timing);
            if let Some(files) = &location.files {
                let now = disk.trace.step_began();
                disk.attend(&files.root, now).await;
            }
            request.set_key(location.key());
            let answer = answer(conn, location, request, &client, &mut disk).await;
            (Some(location), answer)
        }
        Err(refusal) => {
            let received = receive(conn, request, Some(refusal), disk.trace).await;
            (None, received.expect_err("it was refused before"))
        }
    };
    conn.failed_lookups = disk.failed_lookups;
    let response = finish(conn, request, location, response, disk.trace);
    let mut close = response.close;
    let mut sent = send::send(conn, request, response, &mut disk).await;
    let mut hooks = mem::take(&mut sent.hooks);
    let mut may_look_again = request.head.framing == Framing::None;
    while let Some(failure) = sent.instead.take() {
        hooks.iter_mut().for_each(|hook| hook.replaced());
        let is_outdated = sent.outdated && disk.trace.upstream().is_none();
        let mut other = match location.filter(|_| is_outdated && mem::take(&mut may_look_again)) {
            Some(location) => {
                worker.cache.forget(&request.key);
                let looking = answer(conn, location, request, &client, &mut disk);
                // Boxed: few requests need it, and all would carry it.
                Box::pin(looking).await
            }
            None => failure,
        };
        // What is unread of the request stays so, whatever the answer: it is not the next request.
        other.close |= close || sent.unread;
        let other = finish(conn, request, location, other, disk.trace);
        close = other.close;
        sent = send::send(conn, request, other, &mut disk).await;
        if !sent.hooks.is_empty() {
            hooks = mem::take(&mut sent.hooks);
        }
    }
    for hook in hooks {
        hook.completed(&worker, &service, sent.completion());
    }
    close |= sent.unread;
    worker.stats.answered.add(1);
    if sent.bytes > 0 && !trace.has_written() {
        // All but a file's body leaves at once, in the current step.
        let (chunk, from) = (trace.last_read().chunk, trace.step_began());
        trace.wrote(chunk, from, sent.ended, sent.bytes);
    }
    trace.end(sent.ended);
    conn.response_ended(sent.ended);
    record(conn, client.ip, Some(request), &sent, &trace);
    if matches!(sent.status, 200 | 206 | 304) {
        let mut popular = worker.popular.borrow_mut();
        popular.count(request.host(), &request.path, sent.bytes);
    }
    after(conn, &sent, close).await
}

/// What every answer goes through before it is sent; sending begins with its end.
fn finish(
    conn: &Conn,
    request: &Request,
    location: Option<&Location>,
    mut response: Response,
    trace: &mut Trace,
) -> Response {
    trace.enter(Step::Filter);
    if let Some(location) = location {
        filter(&mut response, location);
    }
    let ends_by_closing = response.body.is_open_ended() && request.head.version == Version::Http10;
    response.close |= !request.head.keep_alive || conn.worker.is_draining() || ends_by_closing;
    trace.enter(Step::Send);
    response
}

/// Takes in and drops the body of a request for a file, and gives the `refusal` if there is one.
async fn receive(
    conn: &mut Conn,
    request: &Request,
    refusal: Option<Response>,
    trace: &mut Trace,
) -> Result<(), Response> {
    let bytes_max = conn.worker.service().config.limits.body_bytes as u64;
    let incoming = Incoming::new(&request.head, bytes_max)
        .map_err(|reject| closing(without_body(&reject.into())))?;
    if !incoming.is_complete() {
        trace.enter(Step::Parse);
        if request.head.expect_continue {
            // A client that asks first is spared sending what would be refused.
            if let Some(refusal) = refusal {
                return Err(closing(refusal));
            }
            send::go_on(conn).await;
        }
        let received = incoming.discard(conn).await;
        received.map_err(|error| closing(without_body(&error)))?;
        conn.timer.clear();
    }
    refusal.map_or(Ok(()), Err)
}

fn closing(mut response: Response) -> Response {
    response.close = true;
    response
}

fn without_body(error: &NoRequest) -> Response {
    match error {
        NoRequest::Refused(reject) => respond::error(reject.status, reject.reason),
        NoRequest::Timeout => respond::error(408, "the request's body took too long"),
        NoRequest::Gone | NoRequest::Finished => {
            respond::error(400, "the request's body ended early")
        }
    }
}

/// Methods that files do not have.
fn refused_method(method: Method) -> Option<Response> {
    match method {
        Method::Get | Method::Head | Method::Options => None,
        Method::Unknown => Some(respond::error(501, "unknown method")),
        _ => Some(respond::error(405, "")),
    }
}

/// Finds the location; what has none is answered here.
fn route<'a>(
    service: &'a Service,
    request: &mut Request,
    client: &Client,
) -> Result<&'a Location, Response> {
    // No browser connects to a Unix socket.
    let may_be_a_page = client.peer.is_some();
    if let Some(names) = service.config.own_names.as_ref().filter(|_| may_be_a_page)
        && !names.include(request.host())
    {
        return Err(respond::error(421, NOT_OWN_NAME));
    }
    if request.head.target == Target::Asterisk {
        return Err(respond::options());
    }
    request
        .decode_path()
        .map_err(|reject| respond::error(reject.status, reject.reason))?;
    if matches!(request.head.method, Method::Connect | Method::Trace) {
        return Err(respond::error(405, ""));
    }
    let location = service
        .route(request.host(), &request.path)
        .ok_or_else(|| respond::error(421, "no site here has that name"))?;
    if location.internal {
        return Err(respond::error(404, ""));
    }
    service
        .check_readings(request, location)
        .map_err(|reject| respond::error(reject.status, reject.reason))?;
    Ok(location)
}

/// Resolve and respond: a file, or what an upstream answers.
async fn answer(
    conn: &mut Conn,
    location: &Location,
    request: &Request,
    client: &Client,
    disk: &mut DiskClient<'_>,
) -> Response {
    let worker = conn.worker.clone();
    let Some(proxy) = &location.proxy else {
        let files = location
            .files
            .as_ref()
            .expect("a location has files or a proxy");
        let refusal = refused_method(request.head.method);
        return match receive(conn, request, refusal, disk.trace).await {
            Ok(()) => file(&worker, files, request, disk).await,
            Err(refusal) => refusal,
        };
    };
    // Boxed, and what few requests need once more: to move the futures of all steps together onto the
    // heap costs more than parsing.
    Box::pin(proxied(conn, location, proxy, request, client, disk)).await
}

/// The answer of an upstream, or of a file that goes before it.
async fn proxied(
    conn: &mut Conn,
    location: &Location,
    proxy: &Arc<Proxy>,
    request: &Request,
    client: &Client,
    disk: &mut DiskClient<'_>,
) -> Response {
    let worker = conn.worker.clone();
    let mut script = None;
    let has_scripts = |files: &Files| proxy.scripts(files).is_some();
    if proxy.files_first || location.files.as_ref().is_some_and(has_scripts) {
        let looking = self::script(&worker, location, proxy, request, disk);
        script = match Box::pin(looking).await {
            Ok(script) => script,
            Err(response) => {
                let received = Box::pin(receive(conn, request, Some(response), disk.trace)).await;
                return received.expect_err("there is an answer already");
            }
        };
    }
    let script = script.as_ref();
    let response = handover::answer(conn, request, proxy, client, script, disk).await;
    disk.trace.enter(Step::Respond);
    response
}

/// Looks for a file: the answer is an error here, and what has none is for an upstream.
async fn existing(
    worker: &Worker,
    files: &Files,
    request: &Request,
    disk: &mut DiskClient<'_>,
) -> Result<Known, Response> {
    let asks_for_file = matches!(request.head.method, Method::Get | Method::Head)
        && request.head.framing == Framing::None
        && !request.keeps_slashes
        && files.shows(files.beneath(&request.path));
    if !asks_for_file {
        return Ok(Known::Unknown);
    }
    disk.trace.enter(Step::Resolve);
    disk.are_for(files);
    let now = disk.trace.step_began();
    let found = resolve::resolve(worker, files, request, now, disk).await;
    disk.trace.enter(Step::Respond);
    match found {
        Ok(Found::File(cached, ready)) => Err(respond::file::file(request, cached, ready)),
        Ok(Found::Directory(_)) => Ok(Known::Directory),
        Err(error) => match failed(worker, files, request, &error) {
            answer if answer.status == 404 => Ok(Known::Nothing),
            answer => Err(answer),
        },
    }
}

/// What an application is asked for: a script, where it has scripts. An answer without it, such as that of
/// a file where files come first, is an error here.
async fn script(
    worker: &Worker,
    location: &Location,
    proxy: &Proxy,
    request: &Request,
    disk: &mut DiskClient<'_>,
) -> Result<Option<Script>, Response> {
    let Some(files) = &location.files else {
        return Ok(None);
    };
    let Some(scripts) = proxy.scripts(files) else {
        if proxy.files_first {
            existing(worker, files, request, disk).await?;
        }
        return Ok(None);
    };
    let failed = |error: io::Error| failed(worker, files, request, &error);
    let mut known = Known::Unknown;
    disk.trace.enter(Step::Resolve);
    let now = disk.trace.step_began();
    let mut search = ScriptSearch::new(location, files, now, disk);
    if proxy.files_first {
        let first = search.locate_before_files(scripts, request).await;
        if let Some(script) = first.map_err(failed)? {
            return Ok(Some(script));
        }
        known = existing(worker, files, request, search.disk()).await?;
        search.disk().trace.enter(Step::Resolve);
    }
    if known == Known::Directory && !request.names_directory() {
        let has_index = search.has_index(scripts, request).await;
        if has_index.map_err(failed)? {
            return Err(respond::redirect::to_directory(request));
        }
    }
    let located = search.locate(scripts, request, known).await;
    let located = located.map_err(failed)?;
    located.map(Some).ok_or_else(|| respond::error(404, ""))
}

/// The answer of files alone.
async fn file(
    worker: &Worker,
    files: &Files,
    request: &Request,
    disk: &mut DiskClient<'_>,
) -> Response {
    if request.head.method == Method::Options {
        return respond::options();
    }
    if request.keeps_slashes {
        return respond::error(400, "escaped slash in the path");
    }
    disk.trace.enter(Step::Resolve);
    disk.are_for(files);
    let now = disk.trace.step_began();
    let found = if files.shows(files.beneath(&request.path)) {
        resolve::resolve(worker, files, request, now, disk).await
    } else {
        return respond::error(404, "");
    };
    disk.trace.enter(Step::Respond);
    match found {
        Ok(Found::File(cached, ready)) => respond::file::file(request, cached, ready),
        Ok(Found::Directory(directory)) if !request.names_directory() => {
            drop(directory);
            respond::redirect::to_directory(request)
        }
        Ok(Found::Directory(directory)) if files.listing => {
            let entries_max = disk.service().config.limits.listing_entries;
            match disk.list(directory, entries_max).await {
                Ok(listing) => respond::listing::listing(&request.path, listing).await,
                Err(error) => failed(worker, files, request, &error),
            }
        }
        Ok(Found::Directory(_)) => respond::error(403, "listing is off for this directory"),
        Err(error) => failed(worker, files, request, &error),
    }
}

/// Answers for the file system, and tells the operator what only the operator can mend.
fn failed(worker: &Worker, files: &Files, request: &Request, error: &io::Error) -> Response {
    let response = respond::error::of_io(error);
    let path = String::from_utf8_lossy(&request.path);
    let root = files.root.last();
    let root = root.path().display();
    if levity_disk::left_root(error) {
        diagnostics::log(format_args!(
            "refused {path}: a symbolic link leaves {root}; \
             `symlinks = \"follow\"` on its site or route in a configuration file allows that"
        ));
    } else if response.status >= 500 {
        worker.disk_failed(error, || {
            format!("cannot serve {path} beneath {root}: {error}")
        });
    }
    response
}

/// Counts and logs an answer: to a request, or to something that was none.
fn record(
    conn: &Conn,
    peer: Option<IpAddr>,
    request: Option<&Request>,
    sent: &Sent,
    trace: &Trace,
) {
    let arrived = trace.arrived();
    let duration = sent.ended - arrived;
    let header = |name| request.and_then(|request| request.header(name));
    conn.worker.finished(&Record {
        peer,
        via: conn.peer.socket_ip(),
        arrived: conn.worker.wall_time(arrived),
        host: request.map_or(b"", Request::host),
        method: request.map_or(b"", Request::method),
        target: request.map_or(b"", Request::target),
        version: match request.map(|request| request.head.version) {
            None => "",
            Some(Version::Http10) => "HTTP/1.0",
            Some(Version::Http11) => "HTTP/1.1",
        },
        status: sent.status,
        bytes: sent.bytes,
        duration,
        ttfb: sent.first_byte.map_or(duration, |at| at - arrived),
        source: sent.source,
        end: sent.end,
        referer: header("referer").unwrap_or(b""),
        user_agent: header("user-agent").unwrap_or(b""),
        trace,
    });
}

/// Counts and logs an answer to something that was no request.
pub fn record_refused(conn: &Conn, arrived: Instant, sent: &Sent) {
    record(conn, conn.peer.ip(), None, sent, &Trace::new(arrived, None));
}

async fn after(conn: &mut Conn, sent: &Sent, close: bool) -> After {
    let end = match sent.end {
        End::Complete if !close && !conn.worker.is_draining() => {
            let idle_timeout = conn.worker.service().config.limits.idle_timeout;
            conn.timer.set_idle(sent.ended + idle_timeout);
            return After::KeepAlive;
        }
        end => end,
    };
    // The client may still be sending, and what it has not taken yet is to arrive.
    if !sent.reset && end != End::ClientAbort {
        conn.linger().await;
    }
    After::Close(end)
}
