//! Parse: from received bytes to a request.

use std::future::poll_fn;
use std::io;
use std::task::{Poll, ready};

use levity_wire::http1::{self, Reject};

use super::conn::Conn;
use super::inbox::Inbox;
use crate::loop_core::config::LoopConfig;
use crate::message::request::{Request, RequestError};
use levity_telemetry::stall;
use levity_telemetry::step::Step;

/// How a client begins that takes this for a port with TLS (RFC 8446, 5.1): a record of a handshake, of any version.
const TLS_RECORD: [u8; 2] = [22, 3];

/// The first line of a client of HTTP/2 (RFC 9113, 3.4).
const HTTP2_LINE: &[u8] = b"PRI * HTTP/2.0\r\n";

/// What comes next on a connection.
pub enum Next {
    /// A request.
    Request(Box<Request>),
    /// The client speaks HTTP/2. What it has sent so far is in the inbox.
    Http2,
}

impl Next {
    /// The size of the header section.
    fn header_bytes(&self) -> usize {
        match self {
            Self::Request(request) => request.head.bytes,
            Self::Http2 => 0,
        }
    }
}

/// Waits for the next request. While the connection is idle, neither a buffer nor a request is allocated for it.
///
/// # Errors
/// How the connection ends if there is no further request.
pub async fn next_request(conn: &Conn) -> Result<Next, RequestError> {
    let core = &conn.core;
    let config = core.config();
    let has_input = !conn.inbox().borrow().is_empty();
    if has_input && let Some(next) = parse_pipelined(conn, &config)? {
        return Ok(next);
    }
    poll_fn(|context| {
        let mut scratch = core.inbound.borrow_mut();
        loop {
            let count = match ready!(conn.poll_input(context, &mut scratch)) {
                Ok(0) if conn.inbox().borrow().is_empty() => {
                    return Poll::Ready(Err(RequestError::Finished));
                }
                Ok(0) => return Poll::Ready(Err(RequestError::Gone)),
                Ok(count) => count,
                Err(error) => return Poll::Ready(Err(read_error(conn, &error))),
            };
            Step::Parse.enter();
            if let Some(request) = parse_input(conn, &config, &scratch[..count])? {
                return Poll::Ready(Ok(request));
            }
        }
    })
    .await
}

/// Parses what has arrived with the request before, which is in the inbox; `None` if there is no whole header section.
fn parse_pipelined(conn: &Conn, config: &LoopConfig) -> Result<Option<Next>, Reject> {
    let inbox = conn.inbox().take();
    if is_between_requests(&inbox) {
        return Ok(None);
    }
    conn.mark_first_byte();
    let next = parse_inbox(conn, config, inbox)?;
    if next.is_none() {
        conn.start_header_timeout();
    }
    Ok(next)
}

/// Parses the input so far: the inbox followed by `arrived`. In the common case, a whole header section at once, the
/// bytes are parsed in place.
fn parse_input(conn: &Conn, config: &LoopConfig, arrived: &[u8]) -> Result<Option<Next>, Reject> {
    if !conn.inbox().borrow().is_empty() {
        let mut inbox = conn.inbox().take();
        inbox.push(arrived);
        return parse_inbox(conn, config, inbox);
    }
    if is_between_requests(arrived) {
        return Ok(None);
    }
    conn.mark_first_byte();
    let next = parse_header(conn, config, arrived)?;
    let parsed = next.as_ref().map_or(0, Next::header_bytes);
    conn.inbox().borrow_mut().push(&arrived[parsed..]);
    if next.is_none() {
        conn.start_header_timeout();
    }
    Ok(next)
}

/// Parses the header section at the start of `inbox`, which becomes the connection's inbox without it.
fn parse_inbox(conn: &Conn, config: &LoopConfig, mut inbox: Inbox) -> Result<Option<Next>, Reject> {
    let next = parse_header(conn, config, &inbox)?;
    inbox.skip(next.as_ref().map_or(0, Next::header_bytes));
    *conn.inbox().borrow_mut() = inbox;
    Ok(next)
}

/// Parses the header section at the start of `bytes`; `None` if it is incomplete.
fn parse_header(conn: &Conn, config: &LoopConfig, bytes: &[u8]) -> Result<Option<Next>, Reject> {
    let mut request = conn.core.take_request();
    let parsed = http1::parse_request(bytes, &mut request.head, &config.wire_limits);
    if parsed.is_err() && bytes.starts_with(&TLS_RECORD) {
        let reports = &conn.core.handshake_reports;
        let reason = "this port has no TLS; a listener has it with `tls = true`";
        reports.failed(conn.peer.ip(), &reason, stall::poll_start());
    }
    if parsed.is_err() && bytes.starts_with(HTTP2_LINE) && conn.is_new() {
        return Ok(Some(Next::Http2));
    }
    if !parsed? {
        conn.core.return_request(request);
        return Ok(None);
    }
    request.set_bytes(&bytes[..request.head.bytes]);
    request.is_early = conn.is_early();
    conn.begin_request(&request.head);
    Ok(Some(Next::Request(request)))
}

/// Whether `bytes` are empty or only line ends. Some clients send an extra empty line after a request
/// (RFC 9112, 2.2); the connection stays idle then.
fn is_between_requests(bytes: &[u8]) -> bool {
    const BYTES_MAX: usize = 8;
    bytes.len() <= BYTES_MAX && bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n'))
}

fn read_error(conn: &Conn, error: &io::Error) -> RequestError {
    let has_begun = !conn.inbox().borrow().is_empty();
    match error.kind() {
        io::ErrorKind::TimedOut if has_begun => RequestError::Timeout,
        _ if has_begun => RequestError::Gone,
        _ => RequestError::Finished,
    }
}
