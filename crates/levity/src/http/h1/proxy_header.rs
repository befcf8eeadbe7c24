//! Reads the PROXY header at the start of a client's connection.

use std::future::poll_fn;
use std::io;
use std::task::{Poll, ready};

use levity_net::proxy_header;
use levity_telemetry::access_log::End;
use levity_telemetry::diagnostics;
use levity_telemetry::step::Step;

use super::conn::Conn;

/// Reads the header and notes its client in the connection's peer. The bytes behind it go to the inbox. The
/// connection's timer limits the time.
///
/// # Errors
/// How the connection ends when there is no header. What came instead is neither taken for a request nor
/// answered: only proxies that send the header may connect.
pub async fn read(conn: &mut Conn) -> Result<(), End> {
    let worker = conn.worker.clone();
    poll_fn(|context| {
        let mut scratch = worker.inbound.borrow_mut();
        loop {
            match ready!(conn.poll_input(context, &mut scratch)) {
                Ok(0) => return Poll::Ready(Err(cut_off(conn, None))),
                Ok(count) => conn
                    .inbox()
                    .borrow_mut()
                    .extend_from_slice(&scratch[..count]),
                Err(error) => return Poll::Ready(Err(cut_off(conn, Some(&error)))),
            }
            Step::Parse.enter();
            let (inbox, peer) = conn.inbox_and_peer();
            match proxy_header::take(inbox, peer) {
                Ok(true) => return Poll::Ready(Ok(())),
                Ok(false) => {}
                Err(reject) => {
                    tell(conn, reject.reason);
                    return Poll::Ready(Err(End::Error));
                }
            }
        }
    })
    .await
}

/// A connection on which nothing came is of no interest: so a proxy finds out whether we live.
fn cut_off(conn: &Conn, error: Option<&io::Error>) -> End {
    let is_late = error.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut);
    match (conn.inbox().borrow().is_empty(), is_late) {
        (true, _) => End::Complete,
        (false, false) => End::ClientAbort,
        (false, true) => {
            tell(conn, "the PROXY header took too long");
            End::Timeout
        }
    }
}

fn tell(conn: &Conn, reason: &str) {
    match conn.peer.socket_ip() {
        Some(ip) => diagnostics::log(format_args!("connection of {ip} closed: {reason}")),
        None => diagnostics::log(format_args!("connection on a Unix socket closed: {reason}")),
    }
}
