//! What is left of a response when its exchange ends before it: its [held](crate::http::held) body, and its line of the log.

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use levity_net::Timer;
use levity_telemetry::access_log::{End, NoHeaders, Record, Source};
use levity_telemetry::request_id::RequestId;
use levity_telemetry::trace::Trace;
use levity_wire::http1::Trailers;

use super::{ResponseSink, Sent};
use crate::http::held::{Held, HeldClient};
use crate::http::request_body::ClientStream;
use crate::loop_core::config::LoopConfig;
use crate::message::client::{Client, logged_tls};
use crate::message::request::Request;

impl<S: ResponseSink> HeldClient for S {
    fn timer(&self) -> &Timer {
        ClientStream::timer(self)
    }

    fn poll_send(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        sent: &mut usize,
    ) -> Poll<io::Result<()>> {
        loop {
            let rest = &bytes[*sent..];
            let progress = ready!(ResponseSink::poll_send(
                self, context, &mut None, rest, false
            ))?;
            *sent += progress.body_bytes;
            if progress.is_complete {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn poll_send_upgraded(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        sent: &mut usize,
    ) -> Poll<io::Result<()>> {
        while *sent < bytes.len() {
            *sent += ready!(ResponseSink::poll_send_upgraded(
                self,
                context,
                &bytes[*sent..]
            ))?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_end(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let trailers = Trailers::default();
        while !ready!(ResponseSink::poll_end(self, context, &mut None, &trailers))?.is_complete {}
        Poll::Ready(Ok(()))
    }

    fn is_gone(&self, context: &mut Context<'_>) -> bool {
        self.watch(context).is_err() || self.input_ended()
    }

    fn reset(&self) {
        ResponseSink::reset(self);
    }

    fn stream(&self) -> &dyn ClientStream {
        self
    }
}

/// A held response with what its line of the log needs.
pub struct Parked {
    held: Box<dyn Held>,
    sent: u64,
    subject: Subject,
}

// A byte more, and the allocator gives each of them 224.
const _: () = assert!(size_of::<Parked>() <= 192);

/// Where a request was answered: the numbers of its site and of its log, if there are some, and its route, or nothing.
pub struct Place<'a> {
    /// The number of the site.
    pub site: Option<usize>,
    /// The number of the log.
    pub log: Option<usize>,
    /// The path of the route.
    pub route: &'a str,
}

/// What is kept of a request and of the start of its response, for the log.
pub struct Subject {
    config: Rc<LoopConfig>,
    /// The number of the site, if there is one.
    site: Option<u32>,
    /// The number of the log, if there is one.
    log: Option<u32>,
    arrived: Instant,
    first_byte: Instant,
    status: u16,
    client: Option<IpAddr>,
    scheme: &'static str,
    /// The id that was made, unless the client's proxy gave one.
    made_id: Option<u128>,
    /// Texts of the request, concatenated, in the order of [`Part`].
    text: Box<[u8]>,
    ends: [u16; PARTS],
}

/// A text of a request.
#[derive(Clone, Copy)]
enum Part {
    Id,
    User,
    Host,
    Route,
    Method,
    Target,
    Referer,
    UserAgent,
}

const PARTS: usize = Part::UserAgent as usize + 1;

impl Subject {
    /// Copies what the log needs.
    pub fn new(
        config: Rc<LoopConfig>,
        (request, client): (&Request, &Client),
        place: Place<'_>,
        user: &[u8],
        arrived: Instant,
        sent: &Sent,
    ) -> Self {
        let header = |name| request.header(name).unwrap_or(b"");
        let (made_id, given_id) = match request.id() {
            RequestId::Made(number) => (Some(number), ""),
            RequestId::Taken(id) => (None, id),
        };
        let parts: [&[u8]; PARTS] = [
            given_id.as_bytes(),
            user,
            request.host(),
            place.route.as_bytes(),
            request.method(),
            request.sent_target(),
            header("referer"),
            header("user-agent"),
        ];
        let mut text = Vec::new();
        let ends = parts.map(|part| {
            text.extend_from_slice(&part[..part.len().min(usize::from(u16::MAX) - text.len())]);
            text.len() as u16
        });
        Self {
            site: place.site.map(|site| site as u32),
            log: place.log.map(|log| log as u32),
            config,
            arrived,
            first_byte: sent.first_byte.unwrap_or(sent.ended),
            status: sent.status,
            client: client.ip,
            scheme: client.scheme,
            made_id,
            text: text.into(),
            ends,
        }
    }

    fn part(&self, part: Part) -> &[u8] {
        let index = part as usize;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start.into()..self.ends[index].into()]
    }

    fn id(&self) -> RequestId<'_> {
        match self.made_id {
            Some(number) => RequestId::Made(number),
            None => RequestId::Taken(str::from_utf8(self.part(Part::Id)).unwrap_or_default()),
        }
    }
}

impl Parked {
    /// The response `held`, whose header has been sent.
    pub fn new(held: Box<dyn Held>, subject: Subject) -> Self {
        Self {
            held,
            sent: 0,
            subject,
        }
    }

    /// Sends the rest of the response, then counts and logs it. Returns how it ended.
    pub async fn run<S: ResponseSink>(mut self: Box<Self>, sink: &S) -> End {
        poll_fn(|context| self.poll(sink, context)).await
    }

    /// As [`run`](Self::run); not to be polled again after the end.
    pub fn poll<S: ResponseSink>(&mut self, sink: &S, context: &mut Context<'_>) -> Poll<End> {
        let end = ready!(self.held.poll(sink, context, &mut self.sent));
        ClientStream::timer(sink).clear();
        self.conclude(sink, end);
        Poll::Ready(end)
    }

    fn conclude<S: ResponseSink>(&self, sink: &S, end: End) {
        let (core, of) = (ResponseSink::core(sink), &self.subject);
        let trace = Trace::new(of.arrived, None);
        let (duration, ttfb) = (of.arrived.elapsed(), of.first_byte - of.arrived);
        let number = |number: u32| number as usize;
        let (site, log) = (of.site.map(number), of.log.map(number));
        let stats = &core.stats;
        stats.answered.add(1);
        stats.request(of.status, Source::None, duration, ttfb, &trace);
        stats.sent_bytes.add(self.sent);
        if let Some(site) = site {
            let cells = of.config.site_cells(site);
            cells.request(of.status, self.sent, duration);
        }
        of.config.log_in(log, || Record {
            peer: of.client,
            via: sink.peer().socket_ip(),
            user: of.part(Part::User),
            limited: None,
            arrived: core.clock.wall_time(of.arrived),
            id: Some(of.id()),
            scheme: of.scheme,
            host: of.part(Part::Host),
            site: site.map_or("", |site| of.config.site_name(site)),
            route: str::from_utf8(of.part(Part::Route)).unwrap_or_default(),
            method: of.part(Part::Method),
            target: of.part(Part::Target),
            version: sink.version(),
            tls: logged_tls(sink.peer()),
            status: of.status,
            bytes: self.sent,
            body_bytes: sink.body_received(),
            duration,
            ttfb,
            source: Source::None,
            end,
            referer: of.part(Part::Referer),
            user_agent: of.part(Part::UserAgent),
            headers: &NoHeaders,
            run_queue_wait_percent: stats.polls.run_queue_wait_percent(),
            trace: &trace,
        });
    }
}
