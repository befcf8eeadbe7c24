//! Serves the requests of one connection: over HTTP/1 one after the other, over HTTP/2 at the same
//! time. Only this folder names the version of the protocol.
//!
//! The loop of a connection over HTTP/2 (`h2.rs`) is one task. It reads, polls the exchange of each
//! request once as soon as it is parsed, and writes the output when the input is used up. It reads
//! before it polls exchanges: a large response would otherwise always use up the room for replies,
//! and keep what the client says unread. A poll ends after 32 header sections, 256 KiB or half a
//! millisecond. An exchange that need not wait is over by then and never was a task; one that waits
//! goes to `FuturesUnordered`, which polls it when it is woken. What an idle connection does not
//! need is given back once per round of a poll, not after each request, and a stream that has ended
//! is used for the next request that has arrived with it. A response that outlives its exchange,
//! such as that of a mailbox, becomes a small future.
//!
//! The end: GOAWAY without a last stream and a PING; its answer shows that the client knows, and
//! only then the last stream is named (RFC 9113, 6.8). So a drain loses no request that is on its
//! way. A client has 5 s for that.

pub mod accept;
pub mod event_loop;
#[cfg_attr(not(feature = "http2"), path = "h2/absent.rs")]
mod h2;

use std::rc::Rc;
use std::time::Instant;

use levity_net::{Peer, TURN_BYTES_MAX, Transport};
use levity_telemetry::access_log::End;
use levity_telemetry::stall;
use levity_telemetry::step::Step;
use tokio::sync::OwnedSemaphorePermit;

use crate::exchange::{self, Exchanged};
use crate::http::error::{self, error};
use crate::http::h1::conn::Conn;
use crate::http::h1::parse::{self, Next};
use crate::http::h1::proxy_header;
use crate::http::request_body::ClientStream;
use crate::http::response::Response;
use crate::http::send;
use crate::loop_core::{FIRST_REQUEST_TIME, LoopCore};
use crate::message::request::RequestError;
use crate::tls::arriving::{Arriving, Failed};
use crate::worker::Worker;

/// The cost of a request, in bytes, in addition to those of its response, when connections take turns: a client
/// that pipelines small requests yields after about thirty of them, or sooner if they take long.
const REQUEST_BYTES: usize = 8 * 1024;

/// Serves the connection of `worker` until either side ends it.
pub fn serve(worker: Rc<Worker>, conn: Conn, begins: Begins) -> impl Future<Output = ()> {
    set_first_timeout(&conn, conn.quiet_since());
    // Moved to the heap here: as a local of the future it would take room in every idle connection.
    requests(worker, Rc::new(conn), begins)
}

/// What precedes the first request on a connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct Begins {
    /// A PROXY header.
    pub with_proxy_header: bool,
    /// The handshake of TLS.
    pub with_handshake: bool,
}

/// Serves a connection that no listener has accepted. It holds `slot` until it ends.
pub fn serve_unaccepted(
    worker: &Rc<Worker>,
    transport: Transport,
    peer: Peer,
    slot: OwnedSemaphorePermit,
) -> impl Future<Output = ()> + use<> {
    let conn = Conn::new(worker.core.clone(), transport, peer, slot);
    serve(worker.clone(), conn, Begins::default())
}

async fn requests(worker: Rc<Worker>, mut conn: Rc<Conn>, begins: Begins) {
    if begins.with_proxy_header {
        let unshared = Rc::get_mut(&mut conn).expect("nobody shares it yet");
        if let Err(end) = proxy_header::read(unshared).await {
            return worker.core.stats.connection_ended(end);
        }
    }
    if begins.with_handshake {
        // On the heap, as the future of an exchange.
        conn = match Box::pin(handshake(&worker, conn)).await {
            Ok(conn) => conn,
            Err(end) => return worker.core.stats.connection_ended(end),
        };
        if conn.has_chosen_http2() {
            return Box::pin(h2::over_http2(&worker, conn)).await;
        }
    }
    let end = loop {
        let mut request = match parse::next_request(&conn).await {
            Ok(Next::Request(request)) => request,
            Ok(Next::Http2) => return Box::pin(h2::over_http2(&worker, conn)).await,
            Err(error) => break end_without_request(&worker, &conn, error).await,
        };
        let arrival = conn.arrival();
        if worker.core.checks_each_request() {
            levity_net::others_read().await;
        }
        // On the heap: the future of an exchange is far larger than that of an idle connection.
        let make = || exchange::exchange(&worker, &conn, &mut request, arrival);
        let mut exchanged = worker.core.exchange_memory.pin(make).await;
        worker.core.return_request(request);
        if let Some(parked) = exchanged.parked.take() {
            Step::Send.enter();
            exchanged.end = parked.run(&*conn).await;
            exchanged.ended = Instant::now();
        }
        let cost = match stall::should_yield(exchanged.ended) {
            true => TURN_BYTES_MAX,
            false => REQUEST_BYTES,
        };
        if let Some(end) = after_exchange(&conn, exchanged).await {
            break end;
        }
        conn.turn().spend(cost).await;
        Step::Idle.enter();
    };
    ended(&conn.core, &conn.peer, conn.handshake_error(), end);
}

/// Counts the end of a connection, and logs a handshake that was not complete with the first request and has failed then.
fn ended(core: &LoopCore, peer: &Peer, handshake_error: Option<String>, end: End) {
    if let Some(reason) = handshake_error {
        let reports = &core.handshake_reports;
        reports.failed(peer.ip(), &reason, Instant::now());
    }
    core.stats.connection_ended(end);
}

async fn handshake(worker: &Worker, conn: Rc<Conn>) -> Result<Rc<Conn>, End> {
    let service = worker.service();
    // A reload may have taken TLS away since the connection was accepted.
    let Some(sites) = &service.tls else {
        return Err(End::Error);
    };
    let conn = Rc::into_inner(conn).expect("nobody shares it yet");
    let (transport, bytes, mut arriving) = conn.detach();
    let timer = arriving.timer.clone();
    let client = Arriving {
        core: &worker.core,
        timer: &timer,
        stream: arriving.number() as u64,
        ip: arriving.peer.ip(),
    };
    match client.shake(sites, transport, bytes).await {
        Ok(shaken) => {
            arriving.peer.set_tls(shaken.client);
            let conn = Conn::over(arriving, shaken.transport);
            set_first_timeout(&conn, Instant::now());
            Ok(Rc::new(conn))
        }
        Err(Failed::Ended(end)) => Err(end),
        Err(Failed::NotTls(transport)) => {
            let conn = Conn::over(arriving, transport);
            let text = "plain HTTP was sent to a port for HTTPS; write https:// in the URL";
            refuse(worker, &conn, error(400, text)).await;
            conn.linger().await;
            Err(End::Error)
        }
    }
}

/// Sets the time-out for the first byte of a new connection: `limits.header_timeout`, but less on a draining worker.
fn set_first_timeout(conn: &Conn, now: Instant) {
    let header_timeout = conn.core.config().config.limits.header_timeout;
    let time = match conn.core.is_draining() {
        true => header_timeout.min(FIRST_REQUEST_TIME),
        false => header_timeout,
    };
    conn.timer().set_new(now, time);
}

/// Sets the time-out for the next request, or ends the connection; returns how it ended.
async fn after_exchange(conn: &Conn, exchanged: Exchanged) -> Option<End> {
    let Exchanged {
        status: _,
        end,
        ended,
        close,
        reset,
        parked: _,
    } = exchanged;
    conn.response_ended(ended);
    if end == End::Complete && !close && !conn.core.is_draining() {
        let idle_timeout = conn.core.config().config.limits.idle_timeout;
        conn.timer().set_idle(ended, idle_timeout);
        return None;
    }
    // The client may still be sending. A close would reset the connection and discard the unread response.
    if !reset && end != End::ClientAbort {
        conn.linger().await;
    }
    Some(end)
}

/// Ends a connection on which no request could be read. Sends an error response if the client is still there.
async fn end_without_request(worker: &Worker, conn: &Conn, cause: RequestError) -> End {
    match cause {
        RequestError::Finished => End::Complete,
        RequestError::Gone | RequestError::Shortage => End::ClientAbort,
        RequestError::Timeout => {
            refuse(worker, conn, error(408, "the request took too long")).await;
            End::Timeout
        }
        RequestError::Refused(reject) => {
            refuse(worker, conn, error(reject.status, reject.reason)).await;
            conn.linger().await;
            End::Error
        }
    }
}

async fn refuse(worker: &Worker, conn: &Conn, response: Response) {
    if let Some(explanation) = &worker.explanation {
        explanation.answered(false, error::detail(&response));
    }
    let arrived = conn.take_request_start();
    let sent = Box::pin(send::refuse(conn, response)).await;
    exchange::record_refused(&worker.service(), conn, arrived, &sent);
}
