//! Receipts: an application learns what became of a file that was sent in its place.
//!
//! With `X-Sendfile-Receipt: /path` beside its delegation it asks for a POST to that path, on the same
//! upstream, when the transfer is over: for locks, quotas, counters of downloads. It is tried once. Its own
//! field `X-Sendfile-Receipt` tells it from what clients send: theirs never get to an application.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use tokio::{task, time};

use super::shown;
use crate::http::completion::{Completion, CompletionHook};
use crate::route::{Proxy, Service};
use crate::upstream::backend::Backend;
use crate::upstream::sticky::Affinity;
use crate::upstream::subrequest::{Origin, Subrequest};
use crate::worker::Worker;
use levity_telemetry::access_log::End;
use levity_telemetry::diagnostics;

/// A receipt that is due when its response has been sent.
pub struct Receipt {
    proxy: Arc<Proxy>,
    affinity: Affinity,
    origin: Origin,
    path: Vec<u8>,
    of: Of,
    /// When the application's answer came.
    since: Instant,
}

/// What it tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// What the application wanted to have sent.
    Content,
    /// An error in place of it.
    Refusal,
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").finish_non_exhaustive()
    }
}

impl CompletionHook for Receipt {
    fn replaced(&mut self) {
        self.of = Of::Refusal;
    }

    /// Posts it, beside everything else.
    fn completed(
        self: Box<Self>,
        worker: &Rc<Worker>,
        service: &Rc<Arc<Service>>,
        how: Completion,
    ) {
        let result = self.result(how);
        let text = self.text(result, how);
        let Ok(permit) = worker.receipts.clone().try_acquire_owned() else {
            return self.tell(&text, "too many are on their way");
        };
        let (worker, service) = (worker.clone(), service.clone());
        task::spawn_local(async move {
            let delivered = self.deliver(&worker, &service, result, &text).await;
            if let Err(reason) = delivered {
                self.tell(&text, &reason);
            }
            drop(permit);
        });
    }
}

impl Receipt {
    /// For a response that is about to be sent, to `path` of `origin`; `backend` is the one that wants it, as
    /// it said at `since`.
    pub fn new(
        proxy: Arc<Proxy>,
        backend: &Backend,
        origin: &Origin,
        path: &[u8],
        of: Of,
        since: Instant,
    ) -> Self {
        // What clients are tied for, such as a session in memory, receipts need as well.
        let is_tied = proxy.upstream.settings.sticky.is_some();
        let affinity = is_tied.then_some(Affinity::Backend(backend.id));
        Self {
            proxy,
            affinity: affinity.unwrap_or(Affinity::Free),
            origin: origin.clone(),
            path: path.to_vec(),
            of,
            since,
        }
    }

    fn result(&self, how: Completion) -> &'static str {
        match (self.of, how.end) {
            (Of::Refusal, _) => "refused",
            (Of::Content, End::Complete) => "complete",
            (Of::Content, End::ClientAbort | End::Timeout | End::Error) => "aborted",
        }
    }

    fn text(&self, result: &str, how: Completion) -> String {
        let (status, bytes) = (how.status, how.bytes);
        let ms = how.ended.saturating_duration_since(self.since).as_millis();
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
        let settings = &self.proxy.upstream.settings;
        let patience = settings.connect_timeout + settings.first_byte_timeout;
        let subrequest = Subrequest {
            proxy: &self.proxy,
            affinity: self.affinity,
            origin: &self.origin,
            target: &self.path,
            field: ("X-Sendfile-Receipt", result),
            media_type: "application/json",
            body: text.as_bytes(),
        };
        match time::timeout(patience, subrequest.run(worker, service)).await {
            Ok(Ok(200..=299)) => Ok(()),
            Ok(Ok(status)) => Err(format!("it was answered {status}")),
            Ok(Err(failure)) => Err(failure.reason),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    fn tell(&self, text: &str, reason: &str) {
        let (name, path) = (&self.proxy.upstream.settings.name, shown(&self.path));
        let text = text.trim_end();
        diagnostics::log(format_args!(
            "upstream {name}: no receipt for {path}: {reason}: {text}"
        ));
    }
}
