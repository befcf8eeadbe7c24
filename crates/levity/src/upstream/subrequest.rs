//! Subrequests: small requests of our own to an application, beside those of clients.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use levity_wire::http1::Limits;

use super::Upstream;
use super::backend::fingerprint;
use super::codec::Event;
use super::failure::Failure;
use super::pool::{Lease, Wanted};
use super::stderr::Stderr;
use super::sticky::Affinity;
use super::upstream_request::{Length, UpstreamRequest};
use crate::disk_client::DiskClient;
use crate::http::client::Client;
use crate::http::request::Request;
use crate::route::{Proxy, Service};
use crate::script_search::ScriptSearch;
use crate::scripts::{Known, Script};
use crate::worker::Worker;
use levity_telemetry::trace::{Side, Trace};

/// Bytes of an answer that are read, so that the connection can be used again.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// For what an application was asked (RFC 6454, 4): it may know itself by no other name, and send whoever
/// comes by another scheme away.
#[derive(Debug, Clone)]
pub struct Origin {
    /// `http` or `https`.
    pub scheme: &'static str,
    /// With its port.
    pub host: Vec<u8>,
}

impl Origin {
    /// No client has asked; but it might.
    fn ourselves(&self) -> Client {
        Client {
            ip: None,
            port: None,
            peer: None,
            scheme: self.scheme,
            by_trusted: false,
        }
    }
}

/// A POST.
pub struct Subrequest<'a> {
    /// Where it goes.
    pub proxy: &'a Arc<Proxy>,
    /// At which backend.
    pub affinity: Affinity,
    /// What is asked for.
    pub origin: &'a Origin,
    /// Path and query.
    pub target: &'a [u8],
    /// A field beside those that every subrequest has.
    pub field: (&'static str, &'static str),
    /// Of `body`.
    pub media_type: &'a str,
    /// A few bytes.
    pub body: &'a [u8],
}

impl Subrequest<'_> {
    /// Asks one backend, once, over a new connection, and gives the status of its answer; `service` is what
    /// the request was answered with that gave rise to it. Waits for a slot in line with the requests of
    /// clients.
    ///
    /// # Errors
    /// As a request of a client.
    pub async fn run(&self, worker: &Rc<Worker>, service: &Arc<Service>) -> Result<u16, Failure> {
        let request = self.request()?;
        let script = self.script(&request, worker, service).await?;
        let length = Length::Known(self.body.len() as u64);
        let ourselves = self.origin.ourselves();
        let proxy = self.proxy(script.as_ref());
        let mut ask = UpstreamRequest::new(&request, &proxy, &ourselves, length)
            .map_err(|reject| Failure::of_client(reject.into()))?;
        ask.script = script.as_ref();
        ask.proxy_head =
            levity_net::proxy_header::for_own_request(self.proxy.upstream.settings.proxy_protocol);
        let wanted = Wanted {
            tried: Vec::new(),
            affinity: self.affinity,
            key: fingerprint(&request.path),
        };
        let pool = worker.pools.of(&self.proxy.upstream);
        let upstream = &self.proxy.upstream;
        let mut lease = pool.slot(&wanted).await.map_err(Failure::of_slot)?;
        // A kept connection may end with the subrequest on it, and nobody can tell then whether it was taken.
        lease.close_idle();
        let backend = lease.backend().clone();
        let answered = match lease.open().await {
            Ok(()) => self.attempt(&ask, lease, worker).await,
            Err(error) => Err(Failure::of_connect(&error)),
        };
        match &answered {
            Ok(_) => {
                upstream.succeeded(&backend, Instant::now());
            }
            Err(failure) if failure.side == Side::Backend => {
                let reason = format_args!("{}", failure.reason);
                upstream.failed(&backend, Instant::now(), reason);
            }
            Err(_) => {}
        }
        answered
    }

    /// How it goes there: as requests of clients do, but with a field that none of them may have, and with
    /// the path that the application has named. A script has its name beneath the site.
    fn proxy(&self, script: Option<&Script>) -> Proxy {
        let mut proxy = Proxy::clone(self.proxy);
        if script.is_none() {
            proxy.strip_prefix.clear();
        }
        let (name, value) = self.field;
        let written = (name.to_owned(), value.to_owned());
        proxy.request_headers.set.push(written);
        proxy
    }

    fn request(&self) -> Result<Request, Failure> {
        let fields: [(&[u8], &[u8]); 2] = [
            (b"User-Agent", b"levity"),
            (b"Content-Type", self.media_type.as_bytes()),
        ];
        let (host, limits) = (&self.origin.host, Limits::default());
        Request::made(b"POST", self.target, host, fields.into_iter(), &limits)
            .map_err(|reject| Failure::of_subrequest(reject.reason))
    }

    /// The script that is to answer, where the same path of a client would be answered by one.
    async fn script(
        &self,
        request: &Request,
        worker: &Rc<Worker>,
        service: &Arc<Service>,
    ) -> Result<Option<Script>, Failure> {
        let Some(location) = service.route(&self.origin.host, &request.path) else {
            return Ok(None);
        };
        let upstream = &self.proxy.upstream;
        let is_ours = |proxy: &Arc<Proxy>| Arc::ptr_eq(&proxy.upstream, upstream);
        let files = location.files.as_ref();
        let Some(files) = files.filter(|_| location.proxy.as_ref().is_some_and(is_ours)) else {
            return Ok(None);
        };
        let Some(scripts) = self.proxy.scripts(files) else {
            return Ok(None);
        };
        let now = Instant::now();
        let mut trace = Trace::new(now, None);
        let lookups = Cell::default();
        let mut disk = DiskClient::new(worker, service, 0, &lookups, &mut trace);
        let mut search = ScriptSearch::new(location, files, now, &mut disk);
        let located = search.locate(scripts, request, Known::Unknown).await;
        match located.map_err(Failure::of_subrequest)? {
            None => Err(Failure::of_subrequest("no script answers that path")),
            script => Ok(script),
        }
    }

    async fn attempt(
        &self,
        ask: &UpstreamRequest<'_>,
        mut lease: Lease,
        worker: &Worker,
    ) -> Result<u16, Failure> {
        let mut question = ask.proxy_head.clone();
        let codec = &mut lease.connection().codec;
        codec
            .begin(ask, &mut question)
            .map_err(|reject| Failure::of_client(reject.into()))?;
        codec.body(self.body, &mut question);
        codec.end_of_body(&Default::default(), &mut question);
        let mut talk = Talk {
            upstream: self.proxy.upstream.clone(),
            lease,
            question,
            sent: 0,
            answer: Heard::default(),
        };
        let heard = poll_fn(|context| talk.poll(worker, context)).await;
        heard.map_err(|failure| Failure {
            answer_begun: talk.answer.bytes > 0,
            ..failure
        })?;
        let Talk {
            mut lease, answer, ..
        } = talk;
        if answer.ended && lease.connection().codec.is_reusable() {
            lease.keep();
        }
        let nothing = || Failure::of_backend(502, "http_response_incomplete", "no status");
        answer.status.ok_or_else(nothing)
    }
}

/// A question on its way, and what is heard in return.
struct Talk {
    upstream: Arc<Upstream>,
    lease: Lease,
    question: Vec<u8>,
    /// Bytes of the question.
    sent: usize,
    answer: Heard,
}

#[derive(Default)]
struct Heard {
    status: Option<u16>,
    /// Of all that has come.
    bytes: usize,
    stderr: Stderr,
    declined: Option<&'static str>,
    ended: bool,
}

impl Heard {
    fn event(&mut self, upstream: &Arc<Upstream>, event: Event<'_>) {
        match event {
            Event::Head(head) => self.status = Some(head.status),
            Event::Declined(reason) => self.declined = Some(reason),
            Event::End(_) => self.ended = true,
            Event::Stderr(text) => self.stderr.tell(upstream, text),
            Event::Interim(_) | Event::Data(_) => {}
        }
    }

    fn is_enough(&self) -> bool {
        self.ended || self.bytes > ANSWER_BYTES_MAX
    }
}

impl Talk {
    fn poll(&mut self, worker: &Worker, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        loop {
            ready!(self.poll_send(context))?;
            if self.answer.is_enough() {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_receive(worker, context))?;
        }
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        while self.sent < self.question.len() {
            let rest = &self.question[self.sent..];
            let wrote = self.lease.connection().transport.poll_write(context, rest);
            self.sent += ready!(wrote).map_err(|error| Failure::of_connection(&error))?;
        }
        self.question.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// One read. What a backend waits for although it has had everything is the next to be sent.
    fn poll_receive(
        &mut self,
        worker: &Worker,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        let Self {
            lease,
            answer,
            upstream,
            question,
            ..
        } = self;
        let mut scratch = worker.bulk.borrow_mut();
        let mut event = |event: Event<'_>| answer.event(upstream, event);
        let read = lease
            .connection()
            .poll_events(context, &mut scratch, &mut event);
        let (count, outcome) = ready!(read);
        answer.bytes += count;
        outcome?;
        if let Some(reason) = answer.declined {
            return Poll::Ready(Err(Failure::of_refusal(reason)));
        }
        if !answer.ended {
            lease.connection().codec.settle(question);
        }
        Poll::Ready(Ok(()))
    }
}

impl Failure {
    /// What we wanted to ask cannot be asked.
    fn of_subrequest(reason: impl std::fmt::Display) -> Self {
        Self {
            side: Side::Own,
            ..Self::of_backend(503, "proxy_internal_error", reason)
        }
    }
}
