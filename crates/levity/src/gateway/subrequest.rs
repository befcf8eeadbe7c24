//! Subrequests: small requests that the server itself sends to an application.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use levity_net::proxy_header;
use levity_wire::http1::Limits;

use super::stderr::Stderr;
use crate::files::disk_client::DiskClient;
use crate::files::scripts::PathKind;
use crate::message::client::Client;
use crate::message::request::Request;
use crate::resolve::script_search::ScriptSearch;
use crate::resolve::servable::object::RunnableScript;
use crate::route::{RouteInput, Rules, Service};
use crate::upstream::Upstream;
use crate::upstream::backend::fingerprint;
use crate::upstream::codec::Event;
use crate::upstream::failure::Failure;
use crate::upstream::pool::{Lease, SlotRequest};
use crate::upstream::proxy::Proxy;
use crate::upstream::sticky::Affinity;
use crate::upstream::upstream_request::{Length, OwnHeader, UpstreamRequest};
use crate::worker::Worker;
use levity_telemetry::trace::{Side, Trace};

/// The maximum number of response bytes that are read so that the connection can be reused.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;

/// The origin that the application was requested under (RFC 6454, 4). The application may know itself by no
/// other name, and may redirect requests that come by another scheme.
#[derive(Debug, Clone)]
pub struct Origin {
    /// `http` or `https`.
    pub scheme: &'static str,
    /// With the port.
    pub host: Vec<u8>,
}

impl Origin {
    /// The server as the client of this request, with no address.
    fn server_as_client(&self) -> Client {
        Client::without_address(self.scheme)
    }
}

/// A POST request to an application.
pub struct Subrequest<'a> {
    /// The route.
    pub proxy: &'a Arc<Proxy>,
    /// The backend.
    pub affinity: Affinity,
    /// The scheme and host to request.
    pub origin: &'a Origin,
    /// Path and query.
    pub target: &'a [u8],
    /// A header in addition to those of every subrequest, which clients may not send.
    pub header: OwnHeader,
    /// The type of `body`.
    pub media_type: &'a str,
    /// Short.
    pub body: &'a [u8],
}

impl Subrequest<'_> {
    /// Sends the request, and returns the status of the response. No backend acts on it twice: it is sent once more only
    /// after a backend has refused its stream. `service` is the configuration of the request that caused this one. Waits
    /// for a slot in the same queue as requests of clients.
    ///
    /// # Errors
    /// As for a client's request.
    pub async fn run(&self, worker: &Rc<Worker>, service: &Arc<Service>) -> Result<u16, Failure> {
        let request = self.request()?;
        let script = self.script(&request, worker, service).await?;
        let length = Length::Known(self.body.len() as u64);
        let server_as_client = self.origin.server_as_client();
        let mut outgoing = UpstreamRequest::new(&request, self.proxy, &server_as_client, length)
            .map_err(|reject| Failure::of_client(reject.into()))?;
        if script.is_none() {
            // The path is as the application gave it. A script has its name below the site.
            outgoing.keep_prefix();
        }
        outgoing.own_headers = slice::from_ref(&self.header);
        outgoing.script = script.as_ref().map(RunnableScript::script);
        let version = self.proxy.upstream.settings.proxy_protocol;
        outgoing.proxy_header = proxy_header::for_own_request(version).into();
        let slot_request = SlotRequest {
            tried: Vec::new(),
            affinity: self.affinity,
            key: fingerprint(&request.path),
        };
        match self.send(&outgoing, &slot_request, worker).await {
            Err(failure) if failure.spares_backend && failure.is_untouched => {
                self.send(&outgoing, &slot_request, worker).await
            }
            outcome => outcome,
        }
    }

    /// Sends it once, to one backend, over a connection that was not idle before.
    async fn send(
        &self,
        outgoing: &UpstreamRequest<'_>,
        slot_request: &SlotRequest,
        worker: &Rc<Worker>,
    ) -> Result<u16, Failure> {
        let upstream = &self.proxy.upstream;
        let pool = worker.pools.of(upstream);
        let mut lease = pool.slot(slot_request).await.map_err(Failure::of_slot)?;
        // If a kept connection ended with the subrequest on it, it would be unknown whether the backend had
        // acted on it.
        lease.close_idle();
        let backend = lease.backend().clone();
        let outcome = match lease.open().await {
            Ok(()) => self.attempt(outgoing, lease, worker).await,
            Err(failure) => Err(failure),
        };
        match &outcome {
            Ok(_) => {
                upstream.succeeded(&backend, Instant::now());
            }
            Err(failure) if failure.side == Side::Backend && !failure.spares_backend => {
                let reason = format_args!("{}", failure.reason);
                upstream.failed(&backend, Instant::now(), reason);
            }
            Err(_) => {}
        }
        outcome
    }

    fn request(&self) -> Result<Request, Failure> {
        let fields: [(&[u8], &[u8]); 2] = [
            (b"User-Agent", b"levity"),
            (b"Content-Type", self.media_type.as_bytes()),
        ];
        let (host, limits) = (&self.origin.host, Limits::default());
        Request::build(b"POST", self.target, host, fields.into_iter(), &limits)
            .map_err(|reject| Failure::of_subrequest(reject.reason))
    }

    /// The script that handles the path, if a client's request for the path would be handled by a script.
    async fn script(
        &self,
        request: &Request,
        worker: &Rc<Worker>,
        service: &Arc<Service>,
    ) -> Result<Option<RunnableScript>, Failure> {
        let input = RouteInput::of(request);
        let Some(location) = service.route(&self.origin.host, &request.path, input) else {
            return Ok(None);
        };
        let upstream = &self.proxy.upstream;
        let is_ours = |proxy: &Arc<Proxy>| Arc::ptr_eq(&proxy.upstream, upstream);
        let files = location.files.as_ref();
        let Some(files) = files.filter(|_| location.proxy.as_ref().is_some_and(is_ours)) else {
            return Ok(None);
        };
        let Some(scripts) = files.scripts_of(self.proxy) else {
            return Ok(None);
        };
        let now = Instant::now();
        let mut trace = Trace::new(now, None);
        let lookups = Cell::default();
        let config = worker.core.config();
        let mut disk = DiskClient::new(&worker.core, &config, 0, &lookups, &mut trace);
        let (at, rules) = ((location, &**files), Rules::new(service, location, input));
        let mut search = ScriptSearch::new(worker, at, request, (rules, None), now, &mut disk);
        let located = search.locate(scripts, PathKind::Unknown).await;
        match located.map_err(Failure::of_subrequest)? {
            None => Err(Failure::of_subrequest("no script handles that path")),
            Some(Ok(script)) => Ok(Some(script)),
            Some(Err(_)) => Err(Failure::of_subrequest(
                "the script that handles that path belongs to a route with other rules",
            )),
        }
    }

    async fn attempt(
        &self,
        outgoing: &UpstreamRequest<'_>,
        mut lease: Lease,
        worker: &Worker,
    ) -> Result<u16, Failure> {
        let connection = lease.connection();
        connection
            .begin(outgoing)
            .map_err(|reject| Failure::of_client(reject.into()))?;
        connection.body(self.body);
        connection.end_of_body(&Default::default());
        let mut transfer = Transfer {
            upstream: self.proxy.upstream.clone(),
            lease,
            is_cut: false,
            response: Received::default(),
        };
        let received = poll_fn(|context| transfer.poll(worker, context)).await;
        received.map_err(|failure| Failure {
            response_begun: transfer.response.bytes > 0,
            ..failure
        })?;
        let Transfer {
            mut lease,
            is_cut,
            response,
            ..
        } = transfer;
        if response.ended && !is_cut && lease.connection().is_reusable() {
            lease.keep();
        }
        let nothing = || Failure::of_backend(502, "http_response_incomplete", "no status");
        response.status.ok_or_else(nothing)
    }
}

/// A request in progress and its response so far.
struct Transfer {
    upstream: Arc<Upstream>,
    lease: Lease,
    /// The backend does not read the rest of the request.
    is_cut: bool,
    response: Received,
}

#[derive(Default)]
struct Received {
    status: Option<u16>,
    /// All bytes received.
    bytes: usize,
    stderr: Stderr,
    declined: Option<&'static str>,
    ended: bool,
}

impl Received {
    fn event(&mut self, upstream: &Arc<Upstream>, event: Event<'_>) {
        match event {
            Event::Head(head) => self.status = Some(head.status),
            Event::Declined(reason) => self.declined = Some(reason),
            Event::End(_) => self.ended = true,
            Event::Stderr(text) => self.stderr.log(upstream, text),
            Event::Interim(_) | Event::Data(_) => {}
        }
    }

    fn is_enough(&self) -> bool {
        self.ended || self.bytes > RESPONSE_BYTES_MAX
    }
}

impl Transfer {
    fn poll(&mut self, worker: &Worker, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        loop {
            ready!(self.poll_send(context));
            if self.response.is_enough() {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_receive(worker, context))?;
        }
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let connection = self.lease.connection();
        while connection.has_unsent() {
            if ready!(connection.poll_send(context)).is_err() {
                // Why, and a response that came before, the read finds.
                connection.drop_unsent();
                self.is_cut = true;
            }
        }
        Poll::Ready(())
    }

    /// One read. If the backend waits for more input although the request is complete, queues the reply to
    /// that.
    fn poll_receive(
        &mut self,
        worker: &Worker,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        let Self {
            lease,
            response,
            upstream,
            ..
        } = self;
        let mut scratch = worker.core.backend_bytes.borrow_mut();
        let mut event = |event: Event<'_>| response.event(upstream, event);
        let read = lease
            .connection()
            .poll_events(context, &mut scratch, &mut event);
        let (count, outcome) = ready!(read);
        response.bytes += count;
        outcome?;
        if let Some(reason) = response.declined {
            return Poll::Ready(Err(Failure::of_refusal(reason)));
        }
        if !response.ended {
            lease.connection().settle();
        }
        Poll::Ready(Ok(()))
    }
}

impl Failure {
    /// The subrequest cannot be sent.
    fn of_subrequest(reason: impl std::fmt::Display) -> Self {
        Self {
            side: Side::Own,
            ..Self::of_backend(503, "proxy_internal_error", reason)
        }
    }
}
