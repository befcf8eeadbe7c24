//! Keep-alive connections to one address, driven by one epoll.

use super::http2::{Http2, header};
use super::plan::{EachOnce, Next, Plan, Request};
use super::response::{Decoder, Response};
use super::tls::{Session, Tls};
use super::{Failed, Handshakes, Report};
use crate::failure::{Context, Failure, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use levity_inspect::histogram::Histogram;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::net::{RecvFlags, recv};
use rustix::time::{ClockId, clock_gettime};
use rustls::HandshakeKind;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The maximum number of events per wait.
const EVENTS_MAX: usize = 256;
/// The maximum number of body bytes read from one connection before the next has its turn.
const READ_BYTES: usize = 64 * 1024;
/// The same for bytes that are discarded.
const DISCARD_BYTES: usize = 1 << 20;

/// The requests, and the expected response.
pub struct Target {
    /// The address of the server.
    pub address: SocketAddr,
    /// The Unix socket of the server, in place of the address.
    pub socket: Option<PathBuf>,
    /// GET, HEAD or POST.
    pub method: String,
    /// There is one path, and each request appends its number to it.
    pub numbered: bool,
    /// There is one path, and each request is of the client with its number.
    pub has_clients: bool,
    /// Name and password of each request, in which `{}` becomes its number. There is one path.
    pub credentials: Option<String>,
    /// The paths; a [`Request`] names one by its index.
    pub paths: Vec<String>,
    /// The expected length of the body, if known.
    pub body_bytes: Option<u64>,
    /// Whether 404 counts as success too.
    pub missing_ok: bool,
    /// Whether the kernel discards bodies instead of copying them. Only for TCP.
    pub discard: bool,
    /// The media type that the client accepts; without one there is no Accept.
    pub accept: Option<String>,
    /// The coding that the client accepts; without one there is no Accept-Encoding.
    pub coding: Option<String>,
    /// The host of the requests; None for the address.
    pub host: Option<String>,
    /// TLS of the connections.
    pub tls: Option<Tls>,
    /// Whether each request asks the server to close the connection behind its response. Only with HTTP/1.1.
    pub close: bool,
    /// The number of requests on a connection at a time, over HTTP/2; None for HTTP/1.1.
    pub streams: Option<usize>,
}

/// A request that is ready to be sent.
#[derive(Clone)]
struct Rendered {
    /// The whole request; over HTTP/2 its header section.
    bytes: Vec<u8>,
    /// Over HTTP/2 its body.
    body: &'static [u8],
}

impl Target {
    fn render(&self, path: &str) -> Rendered {
        self.render_with(path, &[])
    }

    /// The request with this number: of its client, and with its credentials.
    fn render_of(&self, number: usize) -> Rendered {
        let mut headers = Vec::new();
        if self.has_clients {
            let (high, low) = (number >> 16, number & 0xffff);
            headers.push(("X-Forwarded-For", format!("2001:db8:{high:x}:{low:x}::1")));
        }
        if let Some(credentials) = &self.credentials {
            let credentials =
                BASE64_STANDARD.encode(credentials.replace("{}", &number.to_string()));
            headers.push(("Authorization", format!("Basic {credentials}")));
        }
        self.render_with(&self.paths[0], &headers)
    }

    fn render_with(&self, path: &str, more: &[(&'static str, String)]) -> Rendered {
        let mut headers = vec![("User-Agent", "levity-bench".to_owned())];
        let media = self.accept.iter();
        headers.extend(media.map(|media| ("Accept", media.clone())));
        let coding = self.coding.iter();
        headers.extend(coding.map(|coding| ("Accept-Encoding", coding.clone())));
        headers.extend(self.close.then(|| ("Connection", "close".to_owned())));
        headers.extend_from_slice(more);
        let body: &[u8] = match &*self.method {
            "POST" => b"body",
            _ => b"",
        };
        if !body.is_empty() {
            headers.push(("Content-Length", body.len().to_string()));
        }
        match self.streams {
            Some(_) => Rendered {
                bytes: self.section(path, &headers),
                body,
            },
            None => Rendered {
                bytes: self.text(path, &headers, body),
                body: b"",
            },
        }
    }

    /// The request in HTTP/1.1.
    fn text(&self, path: &str, headers: &[(&str, String)], body: &[u8]) -> Vec<u8> {
        let (method, host) = (&self.method, self.authority());
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n").into_bytes();
        for (name, value) in headers {
            text.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        [&text, &b"\r\n"[..], body].concat()
    }

    /// Its header section in HTTP/2.
    fn section(&self, path: &str, headers: &[(&str, String)]) -> Vec<u8> {
        let scheme = match self.tls {
            Some(_) => "https",
            None => "http",
        };
        let mut section = header::section(&self.method, scheme, &self.authority(), path);
        for (name, value) in headers {
            header::field(&mut section, name, value);
        }
        section
    }

    fn authority(&self) -> String {
        let port = self.address.port();
        let host = self.host.as_ref();
        host.map_or(self.address.to_string(), |host| format!("{host}:{port}"))
    }

    /// Non-blocking.
    fn connect(&self) -> std::io::Result<OwnedFd> {
        if let Some(socket) = &self.socket {
            let stream = UnixStream::connect(socket)?;
            stream.set_nonblocking(true)?;
            return Ok(stream.into());
        }
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(stream.into())
    }

    fn place(&self) -> String {
        match &self.socket {
            Some(socket) => socket.display().to_string(),
            None => self.address.to_string(),
        }
    }
}

/// Open connections and the results of their requests.
pub struct Client {
    target: Target,
    rendered: Vec<Rendered>,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// The connections, each as often as it may begin another request now. First in, first out: a run of N requests over N
    /// new connections uses each of them.
    idle: VecDeque<usize>,
    scratch: Vec<u8>,
    tally: Tally,
}

struct Connection {
    /// A TCP or Unix socket. Both are read and written like a file.
    stream: File,
    tls: Option<Session>,
    protocol: Protocol,
}

enum Protocol {
    Http1 {
        decoder: Decoder,
        pending: Option<Request>,
    },
    Http2(Box<Http2>),
}

impl Protocol {
    fn of(target: &Target) -> Self {
        if target.streams.is_some() {
            return Self::Http2(Box::default());
        }
        let decoder = match &*target.method {
            "HEAD" => Decoder::bodiless(),
            _ => Decoder::default(),
        };
        Self::Http1 {
            decoder,
            pending: None,
        }
    }

    /// Begins a request and returns what is sent.
    fn begin<'a>(&mut self, request: Request, rendered: &'a Rendered) -> Cow<'a, [u8]> {
        match self {
            Self::Http1 { pending, .. } => {
                *pending = Some(request);
                Cow::Borrowed(&rendered.bytes)
            }
            Self::Http2(http2) => {
                http2.request(request, &rendered.bytes, rendered.body);
                Cow::Owned(http2.output())
            }
        }
    }

    /// Parses bytes of the server, and passes on each response whose last byte has arrived.
    fn feed(&mut self, bytes: &[u8], mut complete: impl FnMut(Request, Response)) -> Result<()> {
        match self {
            Self::Http1 { decoder, pending } => {
                let Some(response) = decoder.feed(bytes)? else {
                    return Ok(());
                };
                let request = pending.take();
                let request =
                    request.ok_or_else(|| Failure::new("a response without a request"))?;
                complete(request, response);
                Ok(())
            }
            Self::Http2(http2) => http2.feed(bytes, complete),
        }
    }

    /// What the server is owed besides requests.
    fn output(&mut self) -> Vec<u8> {
        match self {
            Self::Http1 { .. } => Vec::new(),
            Self::Http2(http2) => http2.output(),
        }
    }

    fn pending(&self) -> Vec<Request> {
        match self {
            Self::Http1 { pending, .. } => pending.iter().copied().collect(),
            Self::Http2(http2) => http2.pending().collect(),
        }
    }

    /// Whether the server takes no more requests on this connection, although it is open.
    fn is_closing(&self) -> bool {
        match self {
            Self::Http1 { .. } => false,
            Self::Http2(http2) => http2.is_closing(),
        }
    }

    /// Whether only the number of the next bytes matters.
    fn only_counts(&self) -> bool {
        match self {
            Self::Http1 { decoder, .. } => decoder.only_counts(),
            Self::Http2(_) => false,
        }
    }
}

impl Connection {
    /// Discarded bytes are counted and the buffer is left as it is (`MSG_TRUNC`, tcp(7)).
    fn read(&mut self, buffer: &mut [u8], discards: bool) -> std::io::Result<usize> {
        if discards {
            let (_, read) = recv(&self.stream, buffer, RecvFlags::TRUNC)?;
            Ok(read)
        } else {
            let end = buffer.len().min(READ_BYTES);
            self.stream.read(&mut buffer[..end])
        }
    }

    fn send(&mut self, request: &[u8]) -> Result<()> {
        if let Some(tls) = &mut self.tls {
            return tls.send(&mut self.stream, request);
        }
        // A request of a few hundred bytes fits into an empty socket buffer.
        match self.stream.write(request).context(|| "send".into())? {
            sent if sent == request.len() => Ok(()),
            _ => Err(Failure::new("request sent in part")),
        }
    }

    /// Parses the bytes of a read, and passes on each response whose last byte has arrived. Returns the length of their
    /// content.
    fn take(&mut self, bytes: &[u8], mut complete: impl FnMut(Request, Response)) -> Result<u64> {
        let mut length = bytes.len() as u64;
        match &mut self.tls {
            None => self.protocol.feed(bytes, complete)?,
            Some(tls) => {
                length = 0;
                tls.receive(&mut self.stream, bytes, |content| {
                    length += content.len() as u64;
                    self.protocol.feed(content, &mut complete)
                })?;
            }
        }
        let output = self.protocol.output();
        if !output.is_empty() {
            self.send(&output)?;
        }
        Ok(length)
    }
}

#[derive(Default)]
struct Tally {
    requests: u64,
    body_bytes: u64,
    wire_bytes: u64,
    statuses: BTreeMap<u16, u64>,
    handshakes: Handshakes,
    errors: u64,
    first_error: Option<String>,
    failed: Vec<Failed>,
    unfinished: u64,
    latency: Histogram,
}

impl Client {
    /// Opens `count` connections. Blocks until the backlog of the server has accepted all of them.
    ///
    /// # Errors
    /// A connection is refused, or there are no descriptors left.
    pub fn connect(target: Target, count: usize) -> Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).context(|| "epoll_create1".into())?;
        let mut client = Self {
            rendered: target
                .paths
                .iter()
                .map(|path| target.render(path))
                .collect(),
            scratch: vec![
                0;
                if target.discard {
                    DISCARD_BYTES
                } else {
                    READ_BYTES
                }
            ],
            idle: {
                let streams = target.streams.unwrap_or(1);
                let all = 0..streams * count;
                all.map(|number| number % count).collect()
            },
            target,
            epoll,
            connections: Vec::with_capacity(count),
            tally: Tally::default(),
        };
        for index in 0..count {
            let connection = client.open(index)?;
            client.connections.push(connection);
        }
        Ok(client)
    }

    /// Runs the plan for `warm_up` without counting, and then for `duration`, of which it returns a report. Ends early
    /// when the plan is finished and every response has arrived.
    ///
    /// # Errors
    /// The server refuses a new connection. A broken connection is counted and replaced.
    pub fn run(
        &mut self,
        plan: &mut dyn Plan,
        warm_up: Duration,
        duration: Duration,
    ) -> Result<Report> {
        self.follow(plan, Instant::now() + warm_up)?;
        self.tally = Tally::default();
        let (started, cpu_before) = (Instant::now(), cpu_time());
        self.follow(plan, started + duration)?;
        let ended = Instant::now();
        self.count_unfinished(plan, ended);
        Ok(Report {
            cpu_seconds: (cpu_time() - cpu_before).as_secs_f64(),
            ..self.tally.report(ended - started)
        })
    }

    /// Sends nothing more and waits for the pending responses, at most `at_most`: a server that still processes old
    /// requests would distort the next measurement.
    ///
    /// # Errors
    /// The server refuses the connection that replaces a broken one.
    pub fn drain(&mut self, at_most: Duration) -> Result<()> {
        self.follow(&mut EachOnce::new(0), Instant::now() + at_most)
    }

    fn follow(&mut self, plan: &mut dyn Plan, until: Instant) -> Result<()> {
        let empty = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        };
        let mut events = [empty; EVENTS_MAX];
        loop {
            let now = Instant::now();
            if now >= until {
                return Ok(());
            }
            let Some(wake) = self.send_due(plan, now)? else {
                return Ok(());
            };
            let ready = wait(&self.epoll, &mut events, wake.min(until) - now)?;
            for event in &events[..ready] {
                self.receive(event.data.u64() as usize)?;
            }
        }
    }

    /// Sends the requests that are due. Returns the time of the next one, or None at the end.
    fn send_due(&mut self, plan: &mut dyn Plan, now: Instant) -> Result<Option<Instant>> {
        let later = now + Duration::from_secs(1);
        while let Some(index) = self.idle.pop_front() {
            if self.connections[index].protocol.is_closing() {
                // It is replaced when its last response has arrived.
                continue;
            }
            let request = match plan.next(now) {
                Next::Send(request) => request,
                Next::WaitUntil(wake) => {
                    self.idle.push_front(index);
                    return Ok(Some(wake));
                }
                Next::Finished => {
                    self.idle.push_front(index);
                    let all_idle = self.idle.len() == self.connections.len() * self.streams();
                    return Ok((!all_idle).then_some(later));
                }
            };
            self.send(index, request)?;
        }
        Ok(Some(later))
    }

    fn send(&mut self, index: usize, request: Request) -> Result<()> {
        let target = &self.target;
        let rendered = match target.numbered {
            true => {
                let path = format!("{}{}", target.paths[0], request.index);
                Cow::Owned(target.render(&path))
            }
            false if target.has_clients || target.credentials.is_some() => {
                Cow::Owned(target.render_of(request.index))
            }
            false => Cow::Borrowed(&self.rendered[request.index]),
        };
        let connection = &mut self.connections[index];
        let bytes = connection.protocol.begin(request, &rendered);
        match connection.send(&bytes) {
            Ok(()) => Ok(()),
            Err(error) => self.fail(index, &error.to_string()),
        }
    }

    fn receive(&mut self, index: usize) -> Result<()> {
        let connection = &mut self.connections[index];
        let discards = self.target.discard && connection.protocol.only_counts();
        let read = match connection.read(&mut self.scratch, discards) {
            Ok(0) if connection.protocol.pending().is_empty() => return self.reopen(index),
            Ok(0) => return self.fail(index, "connection closed before the end of the response"),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return self.fail(index, &format!("receive: {error}")),
        };
        let mut complete = Vec::new();
        let taken = connection.take(&self.scratch[..read], |request, response| {
            complete.push((request, response));
        });
        if let Some(kind) = connection.tls.as_mut().and_then(Session::handshake) {
            self.tally.handshake(kind);
        }
        let mut closes = connection.protocol.is_closing();
        for (request, response) in complete {
            closes |= response.closes;
            self.finish(request, response);
            self.idle.push_back(index);
        }
        match taken {
            Ok(length) => self.tally.wire_bytes += length,
            Err(error) => return self.fail(index, &error.to_string()),
        }
        match closes && self.connections[index].protocol.pending().is_empty() {
            true => self.reopen(index),
            false => Ok(()),
        }
    }

    fn finish(&mut self, request: Request, response: Response) {
        *self.tally.statuses.entry(response.status).or_default() += 1;
        match complaint(&self.target, response) {
            Some(complaint) => {
                self.tally.error(&complaint);
                self.note_failure(request, Some(response.status));
            }
            None => self.tally.success(response, request.intended.elapsed()),
        }
    }

    /// Counts one failure for each request that is lost with the connection, and one if there is none.
    fn fail(&mut self, index: usize, why: &str) -> Result<()> {
        let lost = self.connections[index].protocol.pending();
        (0..lost.len().max(1)).for_each(|_| self.tally.error(why));
        for request in lost {
            self.note_failure(request, None);
        }
        self.reopen(index)
    }

    fn note_failure(&mut self, request: Request, status: Option<u16>) {
        if self.target.numbered {
            self.tally.failed.push(Failed {
                number: request.index,
                status,
            });
        }
    }

    /// Replaces a connection. Dropping the old stream removes it from the epoll.
    fn reopen(&mut self, index: usize) -> Result<()> {
        self.connections[index] = self.open(index)?;
        self.idle.retain(|idle| *idle != index);
        let streams = self.streams();
        self.idle.extend(std::iter::repeat_n(index, streams));
        Ok(())
    }

    /// Requests at a time on a connection.
    fn streams(&self) -> usize {
        self.target.streams.unwrap_or(1)
    }

    fn open(&self, index: usize) -> Result<Connection> {
        let stream = self.target.connect();
        let stream = stream.context(|| format!("connect to {}", self.target.place()))?;
        let stream = File::from(stream);
        epoll::add(
            &self.epoll,
            &stream,
            EventData::new_u64(index as u64),
            EventFlags::IN,
        )
        .context(|| "epoll_ctl".into())?;
        let tls = self.target.tls.as_ref().map(Tls::open).transpose()?;
        Ok(Connection {
            stream,
            tls,
            protocol: Protocol::of(&self.target),
        })
    }

    fn count_unfinished(&mut self, plan: &mut dyn Plan, now: Instant) {
        let connections = self.connections.iter();
        let pending: Vec<_> = connections
            .flat_map(|connection| connection.protocol.pending())
            .collect();
        for request in pending
            .into_iter()
            .chain(std::iter::from_fn(|| plan.overdue(now)))
        {
            let waited = now.saturating_duration_since(request.intended);
            self.tally.unfinished += 1;
            self.tally.latency.record(waited.as_secs_f64() * 1e6);
        }
    }
}

/// CPU time of this process so far.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

/// Why a response is not the expected one.
fn complaint(target: &Target, response: Response) -> Option<String> {
    if target.missing_ok && response.status == 404 {
        return None;
    }
    if response.status != 200 {
        return Some(format!("status {}", response.status));
    }
    let expected = target.body_bytes?;
    (response.body_bytes != expected)
        .then(|| format!("{} bytes instead of {expected}", response.body_bytes))
}

fn wait(epoll: &OwnedFd, events: &mut [Event], timeout: Duration) -> Result<usize> {
    let timeout = Timespec::try_from(timeout).map_err(|_| Failure::new("time-out too long"))?;
    match epoll::wait(epoll, events, Some(&timeout)) {
        Err(rustix::io::Errno::INTR) => Ok(0),
        result => result.context(|| "epoll_wait".into()),
    }
}

impl Tally {
    fn success(&mut self, response: Response, latency: Duration) {
        self.requests += 1;
        self.body_bytes += response.body_bytes;
        self.latency.record(latency.as_secs_f64() * 1e6);
    }

    fn handshake(&mut self, kind: HandshakeKind) {
        match kind {
            HandshakeKind::Resumed => self.handshakes.resumed += 1,
            HandshakeKind::Full | HandshakeKind::FullWithHelloRetryRequest => {
                self.handshakes.full += 1;
            }
        }
    }

    fn error(&mut self, why: &str) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| why.to_owned());
    }

    fn report(&self, elapsed: Duration) -> Report {
        Report {
            requests: self.requests,
            seconds: elapsed.as_secs_f64(),
            body_bytes: self.body_bytes,
            wire_bytes: self.wire_bytes,
            cpu_seconds: 0.0,
            statuses: self.statuses.clone(),
            handshakes: self.handshakes,
            errors: self.errors,
            first_error: self.first_error.clone(),
            failed: self.failed.clone(),
            unfinished: self.unfinished,
            latency: (&self.latency).into(),
        }
    }
}
