//! The handler that proxies to an upstream. The application responds, or delegates the response to a file,
//! another location or another upstream.

use std::sync::Arc;

use levity_telemetry::step::Step;

use super::answered::Answered;
use super::chain::{Asked, Decision, Handler, Internal, Waiting, Waits};
use super::resume::may_resume;
use super::{Handling, Outcome, refused_body};
use crate::explanation::{Explanation, Topic};
use crate::gateway::{Gateway, reported};
use crate::handler::sendfile::preload;
use crate::message::client::Client;
use crate::message::request::Request;
use crate::upstream::proxy::Proxy;
use crate::upstream::upstream_request::OwnHeader;

impl Handler for Arc<Proxy> {
    fn decide<'s>(&'s self, cx: &mut Handling<'s>, _: Asked<'_, 's>) -> Decision<'s> {
        if cx.worker.explanation.is_some()
            && let Err(reject) = cx.body.limit(self.body_bytes_max)
        {
            return refused_body(reject).into();
        }
        match cx.unasked() {
            Some(response) => Decision::Now(of_application(Outcome::Response(response))),
            None => Decision::Wait(self),
        }
    }

    fn explain(&self, outcome: &Outcome<'_>, _: &Client, explanation: &Explanation) {
        let text = match outcome {
            Outcome::Response(refused) if refused.status >= 400 => {
                format!("`proxy` refuses with {}", refused.status)
            }
            _ => leads_to(self),
        };
        explanation.add(Topic::Handler, text);
    }

    fn behind_internal<'s>(&'s self, _: &'s [u8], _: &Request, _: &Client) -> Internal<'s> {
        Internal::Upstream
    }
}

impl Waits for Arc<Proxy> {
    fn wait<'x, 's>(&'s self, cx: &'x mut Handling<'s>, asked: Asked<'x, 's>) -> Waiting<'x, 's> {
        Box::pin(async move { of_application(cx.proxy(asked.request, self).await) })
    }
}

impl<'a> Handling<'a> {
    /// Proxies the request, unless the response was preloaded.
    async fn proxy(&mut self, request: &Request, proxy: &'a Arc<Proxy>) -> Outcome<'a> {
        let target = self.target_of(request);
        if let Some(response) = preload::response(request, target, self.client, proxy) {
            self.disk.trace.enter(Step::Resolve);
            self.disk.use_default_options();
            self.disk.use_page_cache();
            self.disk.trace.enter(Step::Respond);
            return Outcome::Response(response);
        }
        if let Some(resume) = &proxy.resume
            && may_resume(request)
        {
            return Box::pin(self.resumed(request, proxy, resume)).await;
        }
        self.forward(request, proxy).await
    }

    /// The target of `request` for the application, which has its own one where a script was found.
    pub(super) fn target_of<'r>(&self, request: &'r Request) -> &'r [u8] {
        let script = self.script.as_ref();
        script.map_or(request.target(), |script| script.target(request).0)
    }

    /// Sends the request to the upstream, for the script that was found, if any.
    async fn forward(&mut self, request: &Request, proxy: &'a Arc<Proxy>) -> Outcome<'a> {
        let answered = self.ask(request, proxy, &[]).await;
        self.outcome(answered, request, proxy).await
    }

    /// As [`forward`](Handling::forward) for a request that was derived from the client's.
    pub(super) async fn forward_derived(
        &mut self,
        request: Box<Request>,
        proxy: &'a Arc<Proxy>,
    ) -> Outcome<'a> {
        let answered = self.ask(&request, proxy, &[]).await;
        self.derived_outcome(answered, request, proxy).await
    }

    /// Sends the request to the upstream, and waits for the header of the answer.
    pub(super) async fn ask(
        &mut self,
        request: &Request,
        proxy: &Arc<Proxy>,
        own_headers: &[OwnHeader],
    ) -> Answered {
        let script = self.script.take();
        let gateway = Gateway {
            worker: self.worker,
            service: self.service,
            client: self.client,
            body: &self.body,
            identity: &self.identity,
            own_headers,
            own: None,
        };
        let trace = &mut *self.disk.trace;
        match gateway.fetch(request, proxy, script.as_ref(), trace).await {
            Ok(fetched) => Answered::by(&gateway, fetched, request, proxy).await,
            Err(failure) => Answered::Response(reported::response(&failure)),
        }
    }

    /// The outcome of an upstream's response to `request`.
    pub(super) async fn outcome(
        &mut self,
        answered: Answered,
        request: &Request,
        proxy: &'a Arc<Proxy>,
    ) -> Outcome<'a> {
        let outcome = match answered {
            Answered::Response(response) => Outcome::Response(response),
            // Boxed: most responses are not delegated.
            Answered::Delegated(delegated_by) => {
                Box::pin(self.delegated(delegated_by, request, proxy)).await
            }
            Answered::ForMailboxes(answer) => {
                let set = proxy.mailboxes.as_ref().expect("the proxy has mailboxes");
                Outcome::Response(Box::pin(self.use_mailboxes(request, set, answer)).await)
            }
        };
        self.disk.trace.enter(Step::Respond);
        outcome
    }

    /// As [`outcome`](Handling::outcome) for a request that was derived from the client's.
    pub(super) async fn derived_outcome(
        &mut self,
        answered: Answered,
        request: Box<Request>,
        proxy: &'a Arc<Proxy>,
    ) -> Outcome<'a> {
        let mut outcome = self.outcome(answered, &request, proxy).await;
        if let Outcome::Reroute(reroute) = &mut outcome {
            reroute.request = Some(request);
        }
        outcome
    }
}

fn of_application(mut outcome: Outcome<'_>) -> Outcome<'_> {
    if let Outcome::Response(response) = &mut outcome {
        response.is_of_application = true;
    }
    outcome
}

/// Where a request to `proxy` would go, in words.
fn leads_to(proxy: &Proxy) -> String {
    let settings = &proxy.upstream.settings;
    let mut text = format!(
        "`proxy` to `{}` by {}",
        settings.name,
        settings.protocol_label()
    );
    if !proxy.strip_prefix.is_empty() {
        let prefix = String::from_utf8_lossy(&proxy.strip_prefix);
        text.push_str(&format!(" without {prefix}"));
    }
    text + ", which is not asked now: status and other headers are those of its response"
}
