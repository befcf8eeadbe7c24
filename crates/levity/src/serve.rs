//! A connection's requests, one after the other.

use crate::conn::Conn;
use crate::exchange::{self, After};
use crate::parse;
use crate::proxy_header;
use crate::request::NoRequest;
use crate::respond::{self, Response};
use crate::send;
use levity_telemetry::access_log::End;
use levity_telemetry::step::Step;

/// What a request counts, besides the bytes of its answer, when connections take turns: a client that
/// pipelines small requests has one turn for some thirty of them.
const REQUEST_BYTES: usize = 8 * 1024;

/// Answers requests until one side has had enough.
pub async fn serve(mut conn: Conn) {
    wait_for_first(&conn);
    if conn.has_proxy_header
        && let Err(end) = proxy_header::read(&mut conn).await
    {
        return conn.worker.stats.connection_ended(end);
    }
    let end = loop {
        let mut request = match parse::next_request(&mut conn).await {
            Ok(request) => request,
            Err(none) => break without_request(&mut conn, none).await,
        };
        // Boxed: the future of an exchange is far larger than an idle connection.
        let after = Box::pin(exchange::exchange(&mut conn, &mut request)).await;
        conn.worker.give_request(request);
        if let After::Close(end) = after {
            break end;
        }
        conn.give_way(REQUEST_BYTES).await;
        Step::Idle.enter();
    };
    conn.worker.stats.connection_ended(end);
}

/// A new connection has as long for its first byte as for the head; on a worker that drains, only
/// what has arrived already counts.
fn wait_for_first(conn: &Conn) {
    let header_timeout = conn.worker.service().config.limits.header_timeout;
    let now = conn.since();
    let draining = conn.worker.is_draining();
    conn.timer
        .set_idle(if draining { now } else { now + header_timeout });
}

/// Says why there will be no answer to a request, where there is someone to hear it.
async fn without_request(conn: &mut Conn, none: NoRequest) -> End {
    match none {
        NoRequest::Finished => End::Complete,
        NoRequest::Gone => End::ClientAbort,
        NoRequest::Timeout => {
            refuse(conn, respond::error(408, "the request took too long")).await;
            End::Timeout
        }
        NoRequest::Refused(reject) => {
            refuse(conn, respond::error(reject.status, reject.reason)).await;
            conn.linger().await;
            End::Error
        }
    }
}

async fn refuse(conn: &mut Conn, response: Response) {
    let arrived = conn.take_arrival();
    let sent = Box::pin(send::refuse(conn, response)).await;
    exchange::record_refused(conn, arrived, &sent);
}
