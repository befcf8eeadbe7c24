//! Receipts: an application is notified of the result of a delegated transfer.
//!
//! With `X-Sendfile-Receipt: /path` beside its delegation the application requests a POST to that path, on
//! the same upstream, after the transfer: for locks, quotas or download counters. It is sent once. The header
//! `X-Sendfile-Receipt` of the POST proves its origin, since headers of that name from clients never reach an
//! application.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use tokio::time;

use super::completion::CompletionHook;
use super::escaped;
use crate::gateway::subrequest::{Origin, Subrequest};
use crate::http::send::Sent;
use crate::route::Service;
use crate::upstream::backend::Backend;
use crate::upstream::proxy::Proxy;
use crate::upstream::sticky::Affinity;
use crate::upstream::upstream_request::OwnHeader;
use crate::worker::Worker;
use levity_telemetry::access_log::End;
use levity_telemetry::diagnostics;

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
        let timeout = settings.connect_timeout + settings.first_byte_timeout;
        let subrequest = Subrequest {
            proxy: &self.proxy,
            affinity: self.affinity,
            origin: &self.origin,
            target: &self.path,
            header: OwnHeader {
                name: "X-Sendfile-Receipt",
                value: Some(result.into()),
            },
            media_type: "application/json",
            body: text.as_bytes(),
        };
        match time::timeout(timeout, subrequest.run(worker, service)).await {
            Ok(Ok(200..=299)) => Ok(()),
            Ok(Ok(status)) => Err(format!("it was answered {status}")),
            Ok(Err(failure)) => Err(failure.reason),
            Err(_) => Err("no answer in time".to_owned()),
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
