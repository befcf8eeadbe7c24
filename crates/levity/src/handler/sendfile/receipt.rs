//! Receipts: an application is notified of the result of a delegated transfer.
//!
//! With `X-Sendfile-Receipt: /path` beside its delegation the application requests a POST to that path, on
//! the same upstream, after the transfer: for locks, quotas or download counters. It arrives once at most. The header
//! `X-Sendfile-Receipt` of the POST proves its origin, since headers of that name from clients never reach an
//! application.

use std::cell::Cell;
use std::rc::Rc;
use std::slice;
use std::sync::Arc;
use std::time::Instant;

use super::completion::CompletionHook;
use super::escaped;
use crate::files::disk_client::DiskClient;
use crate::files::scripts::PathKind;
use crate::gateway::own_request::OwnRequest;
use crate::http::response::BodyStream as _;
use crate::http::send::Sent;
use crate::message::client::Client;
use crate::message::origin::Origin;
use crate::message::request::Request;
use crate::resolve::script_search::ScriptSearch;
use crate::resolve::servable::object::RunnableScript;
use crate::route::{RouteInput, Rules, Service};
use crate::upstream::backend::Backend;
use crate::upstream::proxy::Proxy;
use crate::upstream::sticky::Affinity;
use crate::upstream::upstream_request::OwnHeader;
use crate::worker::Worker;
use levity_telemetry::access_log::End;
use levity_telemetry::diagnostics;
use levity_telemetry::trace::Trace;
use levity_wire::http1::Limits;

/// A receipt to be sent after its response.
pub struct Receipt {
    proxy: Arc<Proxy>,
    affinity: Affinity,
    origin: Origin,
    path: Vec<u8>,
    subject: Subject,
    /// When the application's response arrived.
    since: Instant,
}

/// The subject of a receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The delegated content.
    Content,
    /// An error response in place of the content.
    Refusal,
}

impl CompletionHook for Receipt {
    fn replaced(&mut self) -> bool {
        self.subject = Subject::Refusal;
        true
    }

    /// Posts the receipt in a task of its own.
    fn completed(self: Box<Self>, worker: &Rc<Worker>, service: &Arc<Service>, sent: &Sent) {
        let result = self.result(sent.end);
        let text = self.text(result, sent);
        let (delivering, service) = (worker.clone(), service.clone());
        worker.core.spawn_background(async move {
            let delivered = self.deliver(&delivering, &service, result, &text).await;
            if let Err(reason) = delivered {
                self.log(&text, &reason);
            }
        });
    }
}

impl Receipt {
    /// A receipt to `path` of `origin`. `backend` has requested it, in a response that arrived at `since`.
    pub fn new(
        proxy: Arc<Proxy>,
        backend: &Backend,
        origin: &Origin,
        path: &[u8],
        subject: Subject,
        since: Instant,
    ) -> Self {
        // If clients need affinity, for instance to a session in memory, receipts need it too.
        let has_affinity = proxy.upstream.settings.sticky.is_some();
        let affinity = has_affinity.then_some(Affinity::Backend(backend.id));
        Self {
            proxy,
            affinity: affinity.unwrap_or(Affinity::Free),
            origin: origin.clone(),
            path: path.to_vec(),
            subject,
            since,
        }
    }

    fn result(&self, end: End) -> &'static str {
        match (self.subject, end) {
            (Subject::Refusal, _) => "refused",
            (Subject::Content, End::Complete) => "complete",
            (Subject::Content, End::ClientAbort | End::Timeout | End::Error) => "aborted",
        }
    }

    fn text(&self, result: &str, sent: &Sent) -> String {
        let (status, bytes) = (sent.status, sent.bytes);
        let ms = sent.ended.saturating_duration_since(self.since).as_millis();
        format!(
            "{{\"result\":\"{result}\",\"status\":{status},\"bytes\":{bytes},\"duration_ms\":{ms}}}\n"
        )
    }

    async fn deliver(
        &self,
        worker: &Rc<Worker>,
        service: &Arc<Service>,
        result: &'static str,
        text: &str,
    ) -> Result<(), String> {
        let upstream = &self.proxy.upstream;
        let Some(_permit) = upstream.receipt_limit.try_take() else {
            return Err("too many are on their way".to_owned());
        };
        let settings = &upstream.settings;
        let request = self.request()?;
        let script = self.script(&request, worker, service).await?;
        let header = OwnHeader {
            name: "X-Sendfile-Receipt",
            value: Some(result.into()),
        };
        let client = Client::without_address(self.origin.scheme);
        let post = OwnRequest {
            headers: slice::from_ref(&header),
            body: text.as_bytes(),
            script: script.as_ref(),
            affinity: Some(self.affinity),
            within: Some(settings.connect_timeout + settings.first_byte_timeout),
            ..OwnRequest::new(&request, &self.proxy, &client)
        };
        let fetched = post.fetch(worker, service).await;
        let fetched = fetched.map_err(|failure| failure.reason)?;
        fetched.rest.discard();
        match fetched.head.status {
            200..=299 => Ok(()),
            status => Err(format!("it was answered {status}")),
        }
    }

    fn request(&self) -> Result<Request, String> {
        let fields: [(&[u8], &[u8]); 2] = [
            (b"User-Agent", b"levity"),
            (b"Content-Type", b"application/json"),
        ];
        let (host, limits) = (&self.origin.host, Limits::default());
        let built = Request::build(b"POST", &self.path, host, fields.into_iter(), &limits);
        let mut request = built.map_err(|reject| reject.reason.to_owned())?;
        request.identify(None);
        Ok(request)
    }

    /// The script that handles the path, if a client's request for the path would be handled by a script.
    async fn script(
        &self,
        request: &Request,
        worker: &Rc<Worker>,
        service: &Arc<Service>,
    ) -> Result<Option<RunnableScript>, String> {
        let input = RouteInput::of(request);
        let upstream = &self.proxy.upstream;
        let is_ours = |proxy: &Arc<Proxy>| Arc::ptr_eq(&proxy.upstream, upstream);
        let location = service.route(&self.origin.host, &request.path, input);
        let location = location.filter(|one| one.proxy.as_ref().is_some_and(is_ours));
        let at = location.and_then(|one| Some((one, &**one.files.as_ref()?)));
        let with_scripts = at.and_then(|at| Some((at, at.1.scripts_of(&self.proxy)?)));
        let Some((at, scripts)) = with_scripts else {
            return Ok(None);
        };
        let now = Instant::now();
        let mut trace = Trace::new(now, None);
        let lookups = Cell::default();
        let config = worker.core.config();
        let mut disk = DiskClient::new(&worker.core, &config, 0, &lookups, &mut trace);
        let rules = Rules::new(service, at.0, input);
        let mut search = ScriptSearch::new(worker, at, request, (rules, None), now, &mut disk);
        match search.locate(scripts, PathKind::Unknown).await {
            Err(error) => Err(error.to_string()),
            Ok(None) => Err("no script handles that path".to_owned()),
            Ok(Some(Ok(script))) => Ok(Some(script)),
            Ok(Some(Err(_))) => Err(
                "the script that handles that path belongs to a route with other rules".to_owned(),
            ),
        }
    }

    fn log(&self, text: &str, reason: &str) {
        let (name, path) = (&self.proxy.upstream.settings.name, escaped(&self.path));
        let text = text.trim_end();
        diagnostics::log(format_args!(
            "upstream {name}: no receipt for {path}: {reason}: {text}"
        ));
    }
}
