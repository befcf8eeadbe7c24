//! Requests that an application sends elsewhere: to an internal location by X-Accel-Redirect, or to other upstreams by
//! X-Reproxy-URL.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use levity_telemetry::step::Step;
use levity_telemetry::trace::{Side, UpstreamTrace};
use levity_wire::http1::{Limits, Method};
use levity_wire::path;
use levity_wire::sendfile_header::{self, Delegation};

use super::receipt::Subject;
use super::{Delegated, status_of};
use crate::files::scripts::PathKind;
use crate::handler::answered::Answered;
use crate::handler::chain::{Chain, Internal};
use crate::handler::{Handling, Outcome, ReproxyTarget, Reroute, Target};
use crate::http::error::error;
use crate::http::response::{Body, Response};
use crate::message::request::Request;
use crate::resolve::script_search::{Located, ScriptSearch};
use crate::resolve::servable::object::RunnableScript;
use crate::route::{Location, Sought};
use crate::upstream::failure::Failure;
use crate::upstream::proxy::Proxy;

/// The maximum number of reroutes per request. It ends loops, such as an application that receives its own reroute.
const REROUTES_MAX: usize = 3;

/// Headers with credentials for the requested site. They are not sent to another upstream, which gets only a
/// URL; the application has already decided about the client.
const CREDENTIALS: [&[u8]; 2] = [b"cookie", b"authorization"];

/// Why an internal route does not send or run what it has found by another path than the application has named.
const BELONGS_ELSEWHERE: &str = "what it leads to belongs to a route with other rules";

impl<'a> Handling<'a> {
    /// Follows reroutes until there is a response.
    pub(in crate::handler) async fn follow(
        &mut self,
        request: &Request,
        mut reroute: Reroute<'a>,
    ) -> Response {
        let mut delegations = Vec::new();
        // The first application has consumed the body.
        self.body = self.body.absent();
        let mut response = loop {
            let Reroute {
                delegated_by,
                request: derived,
                to,
            } = reroute;
            if delegations.len() == REROUTES_MAX {
                let refusal = delegated_by.refuse(502, "the request was rerouted too often");
                break self.settle(&delegated_by, Err(refusal));
            }
            let request = derived.as_deref().unwrap_or(request);
            self.delegated_by = Some(delegated_by);
            self.disk.trace.enter(Step::Resolve);
            let outcome = match to {
                Target::Location(location, path) => self.internal(request, location, &path).await,
                Target::Upstreams(targets) => self.first_usable(targets).await,
            };
            // An application whose delegation has been settled, such as by a file, is not among them.
            delegations.extend(self.delegated_by.take());
            match outcome {
                Outcome::Response(response) => break response,
                // No handler of an internal location rewrites.
                Outcome::Next | Outcome::Rewritten(_) => break error(404, ""),
                Outcome::Reroute(next) => reroute = next,
            }
        };
        self.disk.trace.enter(Step::Respond);
        while let Some(delegated_by) = delegations.pop() {
            response = self.settle(&delegated_by, delegated_by.with_headers(response));
        }
        response.is_of_application = true;
        response
    }

    /// Ends a delegation with its content, or with an error response.
    fn settle(
        &mut self,
        delegated_by: &Delegated,
        outcome: Result<Response, Response>,
    ) -> Response {
        let (subject, response) = match outcome {
            Ok(content) => (Subject::Content, content),
            Err(refusal) => (Subject::Refusal, refusal),
        };
        self.hooks.extend(delegated_by.receipt(subject));
        response
    }

    /// Handles a response that delegates its body.
    pub(in crate::handler) async fn delegated(
        &mut self,
        delegated_by: Box<Delegated>,
        request: &Request,
        proxy: &'a Arc<Proxy>,
    ) -> Outcome<'a> {
        self.disk.trace.enter(Step::Resolve);
        let to = match delegated_by.delegation() {
            _ if delegated_by.is_contradictory() => {
                Err(delegated_by.refuse(502, "the response has more than one delegation"))
            }
            Delegation::InternalUri => self.internal_location(&delegated_by, request),
            Delegation::Urls => self.listed_upstreams(&delegated_by, request, proxy),
            Delegation::File | Delegation::TemporaryFile | Delegation::FileParts => {
                let hooks = &mut self.hooks;
                let file = delegated_by.file(request, &mut self.disk, hooks).await;
                return Outcome::Response(self.settle(&delegated_by, file));
            }
        };
        match to {
            Ok(to) => Outcome::Reroute(Reroute {
                delegated_by,
                request: None,
                to,
            }),
            Err(refusal) => Outcome::Response(self.settle(&delegated_by, Err(refusal))),
        }
    }

    /// The internal location that the application names.
    fn internal_location(
        &self,
        delegated_by: &Delegated,
        request: &Request,
    ) -> Result<Target<'a>, Response> {
        let mut path = Vec::new();
        sendfile_header::internal_uri(delegated_by.value(), &mut path)
            .map_err(|reject| delegated_by.refuse(502, reject.reason))?;
        path.insert(0, b'/');
        let input = self.route_input(request);
        let location = self.service.route(request.host(), &path, input);
        match location.filter(|location| location.internal) {
            Some(location) => Ok(Target::Location(location, path)),
            None => Err(delegated_by.refuse(502, "no route with `internal = true` has that path")),
        }
    }

    /// The upstreams in `reproxy` whose addresses are in the URLs, in the order of the URLs.
    fn listed_upstreams(
        &self,
        delegated_by: &Delegated,
        request: &Request,
        proxy: &'a Proxy,
    ) -> Result<Target<'a>, Response> {
        let limits = &self.service.wire_limits;
        let urls = sendfile_header::urls(delegated_by.value())
            .map_err(|reject| delegated_by.refuse(502, reject.reason))?;
        let targets = urls.iter().filter_map(|url| {
            let mut listed = proxy.reproxy.iter();
            let proxy = listed.find(|listed| listed.upstream.is_at(url.host, url.port))?;
            let request = derived(request, url.target, url.host, &CREDENTIALS, limits)?;
            Some(ReproxyTarget { request, proxy })
        });
        let targets: Vec<_> = targets.collect();
        match targets.is_empty() {
            true => Err(delegated_by.refuse(502, "no upstream in `reproxy` has that address")),
            false => Ok(Target::Upstreams(targets)),
        }
    }

    /// Tries the upstreams in order until a response is usable, delegated, or the last one.
    async fn first_usable(&mut self, targets: Vec<ReproxyTarget<'a>>) -> Outcome<'a> {
        let mut left = targets.len();
        for ReproxyTarget { request, proxy } in targets {
            left -= 1;
            match self.ask(&request, proxy, &[]).await {
                Answered::Response(response)
                    if left > 0
                        && !is_usable(response.status)
                        && self.failed_side() != Some(Side::Client) =>
                {
                    self.pass_over(proxy, response);
                }
                answered => return self.derived_outcome(answered, request, proxy).await,
            }
        }
        Outcome::Next
    }

    /// Who caused the failure at the last upstream, if it failed.
    fn failed_side(&self) -> Option<Side> {
        let upstream = self.disk.trace.upstream();
        upstream.and_then(UpstreamTrace::failed_side)
    }

    /// Drops an unusable response, and logs it. A missing response has been logged already.
    fn pass_over(&self, proxy: &Proxy, response: Response) {
        if self.failed_side().is_none() {
            let reason = format_args!("it answered {} to X-Reproxy-URL", response.status);
            let mut failure = Failure::of_backend(response.status, "other", reason);
            failure.retried = true;
            let pool = self.worker.pools.of(&proxy.upstream);
            pool.report(&failure, None);
        }
        if let Body::Stream { stream, .. } = response.body {
            stream.discard();
        }
    }

    /// Serves a request at an internal location, from its files or its upstream, for the application that
    /// rerouted it.
    async fn internal(
        &mut self,
        request: &Request,
        location: &'a Location,
        path: &[u8],
    ) -> Outcome<'a> {
        let Some(delegated_by) = self.delegated_by.take() else {
            return Outcome::Next;
        };
        // The handlers of files do not use the caches here, and send the content with the headers of the application.
        for handler in Chain::of(location).iter() {
            let file = match handler.behind_internal(path, request, self.client) {
                Internal::Next => continue,
                Internal::Response(response) => Ok(response),
                Internal::Refusal(status, reason) => Err(delegated_by.refuse(status, reason)),
                Internal::File(files) => {
                    let (rules, _, disk) = self.searching(request, location);
                    let named = (files, path, rules);
                    delegated_by.internal_file(named, request, disk).await
                }
                Internal::FileIfAny(files, candidate) => {
                    let (rules, _, disk) = self.searching(request, location);
                    let found = delegated_by.file_before(files, &candidate, request, disk);
                    match found.await {
                        // The application has named another path.
                        Some(Ok(_))
                            if *candidate != *path
                                && !rules.suffice_for(&candidate, Sought::File) =>
                        {
                            Err(delegated_by.refuse(502, BELONGS_ELSEWHERE))
                        }
                        Some(file) => file,
                        None => continue,
                    }
                }
                Internal::Upstream => {
                    return self
                        .internal_upstream(delegated_by, request, location)
                        .await;
                }
            };
            return Outcome::Response(self.settle(&delegated_by, file));
        }
        Outcome::Next
    }

    /// Serves a request at an internal location from its upstream.
    async fn internal_upstream(
        &mut self,
        delegated_by: Box<Delegated>,
        request: &Request,
        location: &'a Location,
    ) -> Outcome<'a> {
        let proxy = location.proxy.as_ref().expect("a location of an upstream");
        match self.prepare(&delegated_by, request, location, proxy).await {
            Ok((request, script)) => {
                (self.delegated_by, self.script) = (Some(delegated_by), script);
                self.forward_derived(request, proxy).await
            }
            Err(refusal) => Outcome::Response(self.settle(&delegated_by, Err(refusal))),
        }
    }

    /// Derives the request for the upstream of an internal location, and finds its script.
    async fn prepare(
        &mut self,
        delegated_by: &Delegated,
        request: &Request,
        location: &'a Location,
        proxy: &Proxy,
    ) -> Result<(Box<Request>, Option<RunnableScript>), Response> {
        let (target, limits) = (delegated_by.value(), &self.service.wire_limits);
        let Some(request) = derived(request, target, request.host(), &[], limits) else {
            return Err(delegated_by.refuse(502, "not a valid request target"));
        };
        if let Err(reject) = self
            .service
            .check_readings(self.route_input(&request), location)
        {
            return Err(delegated_by.refuse(502, reject.reason));
        }
        let files = location.files.as_ref();
        let script = match files.and_then(|files| Some((files, files.scripts_of(proxy)?))) {
            None => None,
            Some(_) if proxy.files_first => {
                let reason = "an internal route that runs scripts has no `file` in its `try`";
                return Err(delegated_by.refuse(502, reason));
            }
            Some((files, scripts)) => {
                let worker = self.worker;
                let (rules, _, disk) = self.searching(&request, location);
                let (at, known) = ((location, &**files), (rules, None));
                let mut search =
                    ScriptSearch::new(worker, at, &request, known, Instant::now(), disk);
                let located = search.locate(scripts, PathKind::Unknown).await;
                Some(found_script(delegated_by, located)?)
            }
        };
        Ok((request, script))
    }
}

/// As in Perlbal: a success, or the result of a condition or range on one. So is an upgrade.
fn is_usable(status: u16) -> bool {
    matches!(status, 101 | 200..=299 | 304 | 412 | 416)
}

/// The script, or the error response if there is none.
fn found_script(
    delegated_by: &Delegated,
    located: io::Result<Option<Located>>,
) -> Result<RunnableScript, Response> {
    match located {
        Ok(Some(Ok(script))) => Ok(script),
        Ok(Some(Err(_))) => Err(delegated_by.refuse(502, BELONGS_ELSEWHERE)),
        Ok(None) => Err(delegated_by.refuse(404, "no script handles that path")),
        Err(error) => {
            let reason = format_args!("cannot find the script: {error}");
            Err(delegated_by.refuse(status_of(&error), reason))
        }
    }
}

/// Derives a request for another target: without its body, which the first application has consumed, and
/// without the headers in `without`. `None` if the target is invalid.
fn derived(
    request: &Request,
    target: &[u8],
    host: &[u8],
    without: &[&[u8]],
    limits: &Limits,
) -> Option<Box<Request>> {
    let method: &[u8] = match request.head.method {
        Method::Head => b"HEAD",
        _ => b"GET",
    };
    let derived = Request::derived(request, method, target, host, without, limits).ok()?;
    path::forwarded(derived.raw_path()).ok()?;
    Some(Box::new(derived))
}

#[cfg(test)]
mod tests;
