//! The gate that asks an application whether a request may pass, as `auth_request` of nginx and `forward_auth` of Caddy do.

use std::sync::Arc;

use levity_telemetry::stats::GateKind;
use levity_telemetry::step::Step;
use levity_wire::path;

use super::super::chain::{Asked, Decision, Gate, Waiting, Waits};
use super::super::{Handling, Outcome};
use crate::gateway::own_request::OwnRequest;
use crate::gateway::reported;
use crate::handler::sendfile::Delegated;
use crate::http::error::error;
use crate::http::response::{Body, Response};
use crate::message::client::Client;
use crate::message::fields::{self, Fields};
use crate::message::origin::Origin;
use crate::message::request::Request;
use crate::resolve::servable::MovedScript;
use crate::upstream::proxy::Proxy;
use crate::upstream::upstream_request::OwnHeader;

/// Headers of the client's request that are about its body, its content or its connection, and those that this gate
/// sets.
const NOT_ASKED: [&[u8]; 12] = [
    b"accept-encoding",
    b"content-encoding",
    b"content-type",
    b"if-match",
    b"if-modified-since",
    b"if-none-match",
    b"if-range",
    b"if-unmodified-since",
    b"range",
    b"x-original-method",
    b"x-original-url",
    b"x-original-uri",
];

/// An application that decides about requests.
pub struct ForwardAuth {
    /// The application.
    pub proxy: Arc<Proxy>,
    /// Path and query of the request to it.
    pub path: Vec<u8>,
    /// Headers of its responses that the application of the location gets.
    pub copy: Vec<String>,
    /// The header with the name of the user.
    pub user: Option<String>,
}

impl Gate for ForwardAuth {
    const KIND: Option<GateKind> = Some(GateKind::ForwardAuth);

    fn ask<'s>(&'s self, cx: &mut Handling<'s>, _: &Request) -> Decision<'s> {
        // Only explained: that application is not asked.
        match cx.worker.explanation {
            Some(_) => Decision::Now(Outcome::Next),
            None => Decision::Wait(self),
        }
    }

    fn name(&self, _: &Client) -> String {
        let path = String::from_utf8_lossy(&self.path);
        let upstream = &self.proxy.upstream.settings.name;
        format!(
            "`forward_auth` of {path} at `{upstream}`, which is not asked now and taken to agree"
        )
    }
}

impl Waits for ForwardAuth {
    fn wait<'x, 's>(&'s self, cx: &'x mut Handling<'s>, asked: Asked<'x, 's>) -> Waiting<'x, 's> {
        Box::pin(cx.forward_auth(asked.request, self))
    }
}

impl<'a> Handling<'a> {
    /// Lets requests through that the application of `gate` answers with a status of success. Any other response is that
    /// to the client, also the one to a failure.
    async fn forward_auth(&mut self, request: &Request, gate: &ForwardAuth) -> Outcome<'a> {
        self.disk.trace.enter(Step::Upstream);
        let response = self.decision(request, gate).await;
        self.disk.trace.enter(Step::Resolve);
        if !(200..300).contains(&response.status) {
            return Outcome::Response(response);
        }
        if let Body::Stream { stream, .. } = response.body {
            stream.discard();
        }
        self.copy(&response.fields, gate);
        Outcome::Next
    }

    /// The response of the application to a request about `request`.
    async fn decision(&self, request: &Request, gate: &ForwardAuth) -> Response {
        let limits = &self.service.wire_limits;
        let host = request.host();
        let asked = Request::derived(request, b"GET", &gate.path, host, &NOT_ASKED, limits);
        // The path behind a script is for its application, and for this one.
        let is_script = |moved: &MovedScript| moved.is_at(&request.path);
        let is_script = self.moved_script.as_deref().is_some_and(is_script);
        let own_headers = describing(request, is_script, self.client);
        let (Ok(asked), Some(own_headers)) = (asked, own_headers) else {
            return error(400, "the request cannot be passed on");
        };
        let question = OwnRequest {
            identity: &self.identity,
            waits: Some(&self.body),
            headers: &own_headers,
            ..OwnRequest::new(&asked, &gate.proxy, self.client)
        };
        match question.fetch(self.worker, self.service).await {
            Ok(fetched) if fetched.head.delegates() => {
                let origin = Origin::of(&asked, self.client);
                let etag = self.service.config.server.etag;
                let delegated = Delegated::of(fetched, gate.proxy.clone(), origin, etag);
                delegated.refuse(
                    502,
                    "the response to a question of `forward_auth` is delegated",
                )
            }
            Ok(fetched) => fetched.respond(&asked, &self.body).await,
            Err(failure) => reported::response(&failure),
        }
    }
}

impl Handling<'_> {
    /// Copies the headers that `gate` names to the request for the application of the location.
    fn copy(&mut self, from: &Fields, gate: &ForwardAuth) {
        let identity = &mut self.identity;
        // After a rewrite the application is asked again.
        identity
            .fields
            .retain(|(name, _)| !gate.copy.contains(name));
        for line in fields::lines(from.as_bytes()) {
            let is = |name: &String| line.name.eq_ignore_ascii_case(name.as_bytes());
            if let Some(name) = gate.copy.iter().find(|name| is(name)) {
                identity.fields.push((name.clone(), line.value.to_vec()));
            }
        }
        let user = gate.user.as_ref().and_then(|name| from.value(name));
        if let Some(user) = user {
            identity.user = user.to_vec();
        }
    }
}

/// Headers that describe the original request. `None` for a request that is not text.
///
/// The path is that by which the request was routed: another spelling of it could pass as a path that is open to all.
fn describing(request: &Request, is_script: bool, client: &Client) -> Option<[OwnHeader; 4]> {
    let ((path, has_encoded_slash), raw_path) = match is_script {
        true => (request.asked_path(), request.asked_target().1),
        false => (
            (&*request.path, request.has_encoded_slash),
            request.raw_path(),
        ),
    };
    let mut uri = Vec::new();
    if has_encoded_slash {
        uri.extend_from_slice(&path::forwarded(raw_path).ok()?);
    } else {
        path::encode(path, &mut uri);
    }
    if let Some(query) = request.query() {
        uri.push(b'?');
        uri.extend_from_slice(&path::forwarded_query(query));
    }
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let (method, uri) = (text(request.method())?, text(&uri)?);
    let url = format!("{}://{}{uri}", client.scheme, text(request.host())?);
    let headers = [
        ("X-Forwarded-Method", method.clone()),
        ("X-Forwarded-Uri", uri),
        ("X-Original-Method", method),
        ("X-Original-URL", url),
    ];
    Some(headers.map(|(name, value)| OwnHeader {
        name,
        value: Some(value.into_bytes()),
    }))
}
