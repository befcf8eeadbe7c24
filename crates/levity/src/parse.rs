//! Parse: from the client's bytes to one request.

use std::future::poll_fn;
use std::io;
use std::task::{Poll, ready};
use std::time::Instant;

use levity_wire::http1::{self, Chunked, Framing, Reject, RequestHead};
use levity_wire::path;

use crate::conn::Conn;
use crate::route::Service;
use crate::stall::Step;

/// A request, with the bytes that it was parsed from. Recycled by the worker.
#[derive(Default)]
pub struct Request {
    bytes: Vec<u8>,
    /// Where in the bytes things are.
    pub head: RequestHead,
    /// Decoded and normalised; starts with a slash.
    pub path: Vec<u8>,
    /// The look-up key of place and path, once routed.
    pub key: Vec<u8>,
}

impl Request {
    /// The first header line of that name; `name` in lower case.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.head.header(&self.bytes, name)
    }

    /// The request target as sent.
    pub fn target(&self) -> &[u8] {
        self.head.target_span.of(&self.bytes)
    }

    /// The method as sent.
    pub fn method(&self) -> &[u8] {
        self.head.method_span.of(&self.bytes)
    }

    /// Decodes the path of the target.
    ///
    /// # Errors
    /// When it is malformed or climbs above the root.
    pub fn decode_path(&mut self) -> Result<(), Reject> {
        path::decode(self.head.path.of(&self.bytes), &mut self.path)?;
        self.path.insert(0, b'/');
        Ok(())
    }

    /// Whether the path, as decoded, has the form of a directory's.
    pub fn names_directory(&self) -> bool {
        self.path.ends_with(b"/")
    }

    /// Sets the look-up key: the place's number and the path.
    pub fn set_key(&mut self, place: u32) {
        self.key.clear();
        self.key.extend_from_slice(&place.to_le_bytes());
        self.key.extend_from_slice(&self.path);
    }

    /// The query as sent, without its question mark.
    pub fn query(&self) -> Option<&[u8]> {
        self.head.query.map(|span| span.of(&self.bytes))
    }

    /// Host and port that the client asked for; empty when it named none.
    pub fn host(&self) -> &[u8] {
        self.head.host.map_or(b"", |span| span.of(&self.bytes))
    }

    /// All header lines of that name; `name` in lower case.
    pub fn headers_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.head.headers_named(&self.bytes, name)
    }
}

/// Why there is no request to answer.
#[derive(Debug)]
pub enum NoRequest {
    /// The client closed, or was idle for too long, between requests.
    Finished,
    /// The client closed or vanished within a request.
    Gone,
    /// The client took too long within a request.
    Timeout,
    /// What it sent is no request; it deserves an answer.
    Refused(Reject),
}

impl From<Reject> for NoRequest {
    fn from(reject: Reject) -> Self {
        Self::Refused(reject)
    }
}

/// Waits for the next request head. Neither buffer nor request is held while nothing has arrived.
pub async fn next_request(conn: &mut Conn) -> Result<Box<Request>, NoRequest> {
    let worker = conn.worker.clone();
    let service = worker.service();
    if !conn.inbox.is_empty() {
        let inbox = std::mem::take(&mut conn.inbox);
        if let Some(request) = take_head(conn, &service, &inbox)? {
            return Ok(request);
        }
        conn.wait_for_more(inbox);
    }
    poll_fn(|context| {
        let mut scratch = worker.inbound.borrow_mut();
        loop {
            let count = match ready!(conn.poll_read(context, &mut scratch)) {
                Ok(0) if conn.inbox.is_empty() => return Poll::Ready(Err(NoRequest::Finished)),
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
    conn: &mut Conn,
    service: &Service,
    arrived: &[u8],
) -> Result<Option<Box<Request>>, Reject> {
    if conn.inbox.is_empty() {
        let request = take_head(conn, service, arrived)?;
        if request.is_none() {
            conn.wait_for_more(arrived.to_vec());
        }
        return Ok(request);
    }
    let mut inbox = std::mem::take(&mut conn.inbox);
    inbox.extend_from_slice(arrived);
    let request = take_head(conn, service, &inbox)?;
    if request.is_none() {
        conn.inbox = inbox;
    }
    Ok(request)
}

/// Parses a head at the start of `bytes`; what follows it goes to the inbox.
fn take_head(
    conn: &mut Conn,
    service: &Service,
    bytes: &[u8],
) -> Result<Option<Box<Request>>, Reject> {
    let mut request = conn.worker.take_request();
    if !http1::parse_request(bytes, &mut request.head, &service.wire_limits)? {
        conn.worker.give_request(request);
        return Ok(None);
    }
    let (head, rest) = bytes.split_at(request.head.bytes);
    request.bytes.clear();
    request.bytes.extend_from_slice(head);
    conn.inbox = rest.to_vec();
    Ok(Some(request))
}

fn lost(conn: &Conn, error: &io::Error) -> NoRequest {
    let within = !conn.inbox.is_empty();
    match error.kind() {
        io::ErrorKind::TimedOut if within => NoRequest::Timeout,
        _ if within => NoRequest::Gone,
        _ => NoRequest::Finished,
    }
}

/// Whether a request has a body that must be read before the next one.
pub fn has_body(head: &RequestHead) -> bool {
    !matches!(head.framing, Framing::None | Framing::Length(0))
}

/// Reads a request's body and drops it: no resource that Levity serves takes one.
pub async fn discard_body(conn: &mut Conn, request: &Request) -> Result<(), NoRequest> {
    let bytes_max = conn.worker.service().config.limits.body_bytes as u64;
    match request.head.framing {
        Framing::None => Ok(()),
        Framing::Length(bytes) => discard_length(conn, bytes).await,
        Framing::Chunked => discard_chunks(conn, bytes_max).await,
    }
}

/// Refuses a body that says of itself that it is too large.
pub fn check_body_length(conn: &Conn, head: &RequestHead) -> Result<(), NoRequest> {
    let bytes_max = conn.worker.service().config.limits.body_bytes as u64;
    match head.framing {
        Framing::Length(bytes) if bytes > bytes_max => Err(too_large().into()),
        _ => Ok(()),
    }
}

fn too_large() -> Reject {
    Reject {
        status: 413,
        reason: "the request's body is larger than limits.body_bytes",
    }
}

async fn discard_length(conn: &mut Conn, mut bytes: u64) -> Result<(), NoRequest> {
    while bytes > 0 {
        let input = next_input(conn).await?;
        let taken = input
            .len()
            .min(usize::try_from(bytes).unwrap_or(usize::MAX));
        conn.inbox = input[taken..].to_vec();
        bytes -= taken as u64;
    }
    Ok(())
}

async fn discard_chunks(conn: &mut Conn, bytes_max: u64) -> Result<(), NoRequest> {
    let mut decoder = Chunked::default();
    let mut bytes = 0_u64;
    loop {
        let input = next_input(conn).await?;
        let decoded = decoder.decode(&input, |data| bytes += data.len() as u64)?;
        if bytes > bytes_max {
            return Err(too_large().into());
        }
        conn.inbox = input[decoded.consumed..].to_vec();
        if decoded.done {
            return Ok(());
        }
    }
}

/// Bytes that are there already, or the next to arrive.
async fn next_input(conn: &mut Conn) -> Result<Vec<u8>, NoRequest> {
    if !conn.inbox.is_empty() {
        return Ok(std::mem::take(&mut conn.inbox));
    }
    let worker = conn.worker.clone();
    let body_timeout = worker.service().config.limits.body_timeout;
    conn.timer.set(Instant::now() + body_timeout);
    let read = poll_fn(|context| {
        let mut scratch = worker.inbound.borrow_mut();
        let count = ready!(conn.poll_read(context, &mut scratch))?;
        Poll::Ready(io::Result::Ok(scratch[..count].to_vec()))
    })
    .await;
    match read {
        Ok(input) if input.is_empty() => Err(NoRequest::Gone),
        Ok(input) => Ok(input),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(NoRequest::Timeout),
        Err(_) => Err(NoRequest::Gone),
    }
}
