//! One request and its answer, in seven words:
//!
//! `accept -> parse -> route -> resolve -> respond -> filter -> send`
//!
//! `accept` made the connection and `parse` the request; the rest is here. A step returns a value
//! and never calls a later one, so this file is the only place that knows the order.

use std::io;
use std::time::{Duration, Instant};

use levity_wire::http1::{Method, Target, Version};

use crate::access_log::{End, Record};
use crate::conn::Conn;
use crate::diagnostics;
use crate::filter::filter;
use crate::parse::{self, NoRequest};
use crate::request::Request;
use crate::resolve::{self, Found};
use crate::respond::{self, Response};
use crate::route::{Place, Service};
use crate::send::{self, Sent};
use crate::stall::Step;
use crate::trip::Trips;
use crate::worker::Worker;

/// What becomes of the connection.
pub enum After {
    /// It waits for the next request.
    KeepAlive,
    /// It is closed.
    Close(End),
}

/// Answers one request.
pub async fn exchange(conn: &mut Conn, request: &mut Request) -> After {
    let arrived = Instant::now();
    conn.timer.clear();
    let worker = conn.worker.clone();
    worker.stats.request_begun();
    let service = worker.service();
    let mut trips = Trips::new(&worker, conn.stream_number(), conn.absences);

    Step::Route.enter();
    let routed = route(&service, request);
    let accepted = receive(conn, request).await;
    let (place, response) = match (routed, accepted) {
        (Ok(place), Ok(())) => {
            let answer = answer(&worker, place, request, arrived, &mut trips).await;
            (Some(place), answer)
        }
        (routed, Err(refusal)) => (routed.ok(), refusal),
        (Err(response), Ok(())) => (None, response),
    };
    conn.absences = trips.absences;
    let response = finish(conn, request, place, response);
    Step::Send.enter();
    let mut close = response.close;
    let mut sent = send::send(conn, request, response, &mut trips).await;
    if let Some(error) = sent.unsent.take() {
        let failure = finish(conn, request, place, respond::error::of_io(&error));
        close = failure.close;
        sent = send::send(conn, request, failure, &mut trips).await;
    }
    let finished = Instant::now();
    worker.stats.request_answered();
    record(conn, request, arrived, finished, &sent, &trips);
    after(conn, &sent, close, finished).await
}

/// What every answer goes through before it is sent.
fn finish(
    conn: &Conn,
    request: &Request,
    place: Option<&Place>,
    mut response: Response,
) -> Response {
    Step::Filter.enter();
    if let Some(place) = place {
        filter(&mut response, place);
    }
    response.close |= !request.head.keep_alive || conn.worker.is_draining();
    response
}

/// Takes the body in and refuses methods that files do not have.
async fn receive(conn: &mut Conn, request: &Request) -> Result<(), Response> {
    let refusal = match request.head.method {
        Method::Get | Method::Head | Method::Options => None,
        Method::Unknown => Some(respond::error(501, "unknown method")),
        _ => Some(respond::error(405, "")),
    };
    if parse::has_body(&request.head) {
        parse::check_body_length(conn, &request.head)
            .map_err(|error| closing(without_body(&error)))?;
        if request.head.expect_continue {
            // A client that asks first is spared sending what would be refused.
            if let Some(refusal) = refusal {
                return Err(closing(refusal));
            }
            send::go_on(conn).await;
        }
        parse::discard_body(conn, request)
            .await
            .map_err(|error| closing(without_body(&error)))?;
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

/// Finds the place; what has none is answered here.
fn route<'a>(service: &'a Service, request: &mut Request) -> Result<&'a Place, Response> {
    if request.head.target == Target::Asterisk {
        return Err(respond::options());
    }
    request
        .decode_path()
        .map_err(|reject| respond::error(reject.status, reject.reason))?;
    let place = service
        .route(request.host(), &request.path)
        .ok_or_else(|| respond::error(421, "no site here has that name"))?;
    request.set_key(place.number);
    Ok(place)
}

/// Resolve and respond.
async fn answer(
    worker: &Worker,
    place: &Place,
    request: &Request,
    arrived: Instant,
    trips: &mut Trips<'_>,
) -> Response {
    if request.head.method == Method::Options {
        return respond::options();
    }
    Step::Resolve.enter();
    trips.are_for(place);
    let found = if place.shows(place.beneath(&request.path)) {
        resolve::resolve(worker, place, request, arrived, trips).await
    } else {
        return respond::error(404, "");
    };
    Step::Respond.enter();
    match found {
        Ok(Found::File(hot, ready)) => {
            respond::file::file(request, hot, ready, place.root.file_system())
        }
        Ok(Found::Directory(directory)) if !request.names_directory() => {
            drop(directory);
            respond::redirect::to_directory(request)
        }
        Ok(Found::Directory(directory)) if place.listing => {
            let entries_max = worker.service().config.limits.listing_entries;
            match trips.list(directory, entries_max).await {
                Ok(listing) => respond::listing::listing(&request.path, listing).await,
                Err(error) => failed(place, request, &error),
            }
        }
        Ok(Found::Directory(_)) => respond::error(403, "listing is off for this directory"),
        Err(error) => failed(place, request, &error),
    }
}

/// Answers for the file system, and tells the operator what only the operator can mend.
fn failed(place: &Place, request: &Request, error: &io::Error) -> Response {
    let response = respond::error::of_io(error);
    let path = String::from_utf8_lossy(&request.path);
    let root = place.root.path().display();
    if levity_disk::open::left_root(error) {
        diagnostics::say(format_args!(
            "refused {path}: a symbolic link leaves {root}; \
             `symlinks = \"follow\"` on its site or route in a configuration file allows that"
        ));
    } else if response.status >= 500 {
        diagnostics::say(format_args!("cannot serve {path} beneath {root}: {error}"));
    }
    response
}

fn record(
    conn: &Conn,
    request: &Request,
    arrived: Instant,
    finished: Instant,
    sent: &Sent,
    trips: &Trips<'_>,
) {
    let duration = finished - arrived;
    let record = Record {
        peer: conn.peer,
        arrived: conn.worker.wall_time(arrived),
        host: request.host(),
        method: request.method(),
        target: request.target(),
        version: match request.head.version {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
        },
        status: sent.status,
        bytes: sent.bytes,
        duration,
        ttfb: sent.first_byte.map_or(duration, |at| at - arrived),
        io_wait: trips.waited,
        source: sent.source,
        end: sent.end,
        referer: request.header("referer").unwrap_or(b""),
        user_agent: request.header("user-agent").unwrap_or(b""),
    };
    conn.worker.finished(&record);
    if matches!(sent.status, 200 | 206 | 304) {
        let mut popular = conn.worker.popular.borrow_mut();
        popular.count(request.host(), &request.path, sent.bytes);
    }
}

/// Counts and logs an answer to something that was no request.
pub fn record_refused(conn: &Conn, since: Instant, sent: &Sent) {
    let duration = since.elapsed();
    conn.worker.finished(&Record {
        peer: conn.peer,
        arrived: conn.worker.wall_time(since),
        host: b"",
        method: b"",
        target: b"",
        version: "",
        status: sent.status,
        bytes: sent.bytes,
        duration,
        ttfb: sent.first_byte.map_or(duration, |at| at - since),
        io_wait: Duration::ZERO,
        source: sent.source,
        end: sent.end,
        referer: b"",
        user_agent: b"",
    });
}

async fn after(conn: &mut Conn, sent: &Sent, close: bool, finished: Instant) -> After {
    let end = match sent.end {
        End::Complete if !close && !conn.worker.is_draining() => {
            let idle_timeout = conn.worker.service().config.limits.idle_timeout;
            conn.timer.set_idle(finished + idle_timeout);
            return After::KeepAlive;
        }
        End::Complete => {
            conn.linger().await;
            End::Complete
        }
        End::ClientAbort => End::ClientAbort,
        End::Timeout => End::Timeout,
        End::Error => End::Error,
    };
    After::Close(end)
}
