//! Parse: from the client's bytes to one request.

use std::future::poll_fn;
use std::io;
use std::task::{Poll, ready};

use levity_wire::http1::{self, Reject};

use super::conn::Conn;
use crate::http::request::{NoRequest, Request};
use crate::route::Service;
use levity_telemetry::step::Step;

/// Waits for the next request head. Neither buffer nor request is held while nothing has arrived.
pub async fn next_request(conn: &Conn) -> Result<Box<Request>, NoRequest> {
    let worker = conn.worker.clone();
    let service = worker.service();
    let inbox = conn.inbox().take();
    if !inbox.is_empty() {
        conn.head_arrives();
        if let Some(request) = take_head(conn, &service, &inbox)? {
            return Ok(request);
        }
        conn.wait_for_more(inbox);
    }
    poll_fn(|context| {
        let mut scratch = worker.inbound.borrow_mut();
        loop {
            let count = match ready!(conn.poll_input(context, &mut scratch)) {
                Ok(0) if conn.inbox().borrow().is_empty() => {
                    return Poll::Ready(Err(NoRequest::Finished));
                }
                Ok(0) => return Poll::Ready(Err(NoRequest::Gone)),
                Ok(count) => count,
                Err(error) => return Poll::Ready(Err(lost(conn, &error))),
            };
            Step::Parse.enter();
            if let Some(request) = take_arrival(conn, &service, &scratch[..count])? {
                return Poll::Ready(Ok(request));
            }
        }
    })
    .await
}

/// Adds `arrived` to what arrived before. The common case, a whole head at once, is parsed where it
/// lies.
fn take_arrival(
    conn: &Conn,
    service: &Service,
    arrived: &[u8],
) -> Result<Option<Box<Request>>, Reject> {
    if conn.inbox().borrow().is_empty() {
        if is_between_requests(arrived) {
            return Ok(None);
        }
        conn.head_arrives();
        let request = take_head(conn, service, arrived)?;
        if request.is_none() {
            conn.wait_for_more(arrived.to_vec());
        }
        return Ok(request);
    }
    let mut inbox = conn.inbox().take();
    inbox.extend_from_slice(arrived);
    let request = take_head(conn, service, &inbox)?;
    if request.is_none() {
        *conn.inbox().borrow_mut() = inbox;
    }
    Ok(request)
}

/// Parses a head at the start of `bytes`; what follows it goes to the inbox.
fn take_head(conn: &Conn, service: &Service, bytes: &[u8]) -> Result<Option<Box<Request>>, Reject> {
    let mut request = conn.worker.take_request();
    if !http1::parse_request(bytes, &mut request.head, &service.wire_limits)? {
        conn.worker.return_request(request);
        return Ok(None);
    }
    let (head, rest) = bytes.split_at(request.head.bytes);
    request.set_bytes(head);
    conn.begin_request(&request.head);
    if !is_between_requests(rest) {
        *conn.inbox().borrow_mut() = rest.to_vec();
    }
    Ok(Some(request))
}

/// Some clients end a request with an empty line too many (RFC 9112, 2.2): no request has begun, and
/// the connection is as idle as before.
fn is_between_requests(bytes: &[u8]) -> bool {
    const BYTES_MAX: usize = 8;
    bytes.len() <= BYTES_MAX && bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n'))
}

fn lost(conn: &Conn, error: &io::Error) -> NoRequest {
    let within = !conn.inbox().borrow().is_empty();
    match error.kind() {
        io::ErrorKind::TimedOut if within => NoRequest::Timeout,
        _ if within => NoRequest::Gone,
        _ => NoRequest::Finished,
    }
}
