//! Reads the PROXY header at the start of a connection.

use std::future::poll_fn;
use std::io;
use std::task::{Poll, ready};

use levity_net::proxy_header;
use levity_telemetry::access_log::End;
use levity_telemetry::diagnostics;
use levity_telemetry::step::Step;

use super::conn::Conn;

/// Reads the header and stores its client in the connection's peer. The bytes after it go to the inbox. The
/// connection's timer must be set.
///
/// # Errors
/// How the connection ends if the header is missing or malformed. Other input is not parsed as a request, and
/// gets no response: only proxies that send the header may connect.
pub async fn read(conn: &mut Conn) -> Result<(), End> {
    let core = conn.core.clone();
    poll_fn(|context| {
        let mut scratch = core.inbound.borrow_mut();
        loop {
            match ready!(conn.poll_input(context, &mut scratch)) {
                Ok(0) => return Poll::Ready(Err(ended_early(conn, None))),
                Ok(count) => conn.inbox().borrow_mut().push(&scratch[..count]),
                Err(error) => return Poll::Ready(Err(ended_early(conn, Some(&error)))),
            }
            Step::Parse.enter();
            let (inbox, peer) = conn.inbox_and_peer();
            match proxy_header::read(inbox, peer) {
                Ok(Some(bytes)) => {
                    inbox.skip(bytes);
                    return Poll::Ready(Ok(()));
                }
                Ok(None) => {}
                Err(reject) => {
                    log(conn, reject.reason);
                    return Poll::Ready(Err(End::Error));
                }
            }
        }
    })
    .await
}

/// How a connection ends that has no complete header. One without any input is a proxy's health check, and is not
/// logged.
fn ended_early(conn: &Conn, error: Option<&io::Error>) -> End {
    let is_late = error.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut);
    match (conn.inbox().borrow().is_empty(), is_late) {
        (true, _) => End::Complete,
        (false, false) => End::ClientAbort,
        (false, true) => {
            log(conn, "the PROXY header took too long");
            End::Timeout
        }
    }
}

fn log(conn: &Conn, reason: &str) {
    match conn.peer.socket_ip() {
        Some(ip) => diagnostics::log(format_args!("connection of {ip} closed: {reason}")),
        None => diagnostics::log(format_args!("connection on a Unix socket closed: {reason}")),
    }
}
