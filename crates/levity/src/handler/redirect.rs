//! The handlers that send every request of a location elsewhere: by a redirect, or by a rewrite of its target.

use std::ops::Range;

use levity_config::{Part, Pattern, Template};
use levity_wire::{Reject, http1, path};

use super::chain::{Asked, Decision, Handler, Internal};
use super::{Handling, NewTarget, Outcome, explain};
use crate::explanation::{Explanation, Topic};
use crate::http::error::error;
use crate::http::response::Response;
use crate::message::client::Client;
use crate::message::request::Request;

/// How a location redirects requests.
pub struct RedirectTo {
    /// The status.
    pub status: u16,
    /// The target.
    pub target: TargetOf,
}

/// A target that is made from a request.
pub struct TargetOf {
    /// Its text, with placeholders.
    pub template: Template,
    /// The path of the route, if it is one.
    pub path: Option<Pattern>,
}

/// Has every request routed again, for another target; the last handler.
pub struct Rewrite {
    /// The target.
    pub to: TargetOf,
    /// A request that was rewritten already is left alone: a rule for everything would match its own target.
    pub once: bool,
}

impl Handler for RedirectTo {
    fn decide<'s>(&'s self, cx: &mut Handling<'s>, asked: Asked<'_, 's>) -> Decision<'s> {
        response(self, asked.request, cx.client).into()
    }

    fn explain(&self, outcome: &Outcome<'_>, _: &Client, explanation: &Explanation) {
        let status = self.status;
        let text = match explain::redirected_to(outcome) {
            Some(location) => format!("`redirect` with {status} to {location}"),
            None => format!("`redirect` with {status}"),
        };
        explanation.add(Topic::Handler, text);
    }

    fn behind_internal<'s>(
        &'s self,
        _: &'s [u8],
        request: &Request,
        client: &Client,
    ) -> Internal<'s> {
        Internal::Response(response(self, request, client))
    }
}

impl Handler for Rewrite {
    fn decide<'s>(&'s self, cx: &mut Handling<'s>, asked: Asked<'_, 's>) -> Decision<'s> {
        Decision::Now(match self.once && asked.request.is_rewritten() {
            true => Outcome::Next,
            false => rewritten(&self.to, asked.request, cx.client, !self.once),
        })
    }

    fn explain(&self, outcome: &Outcome<'_>, _: &Client, explanation: &Explanation) {
        let key = match self.once {
            true => "`_redirects`",
            false => "`reroute`",
        };
        let text = match outcome {
            Outcome::Rewritten(to) => {
                let target = String::from_utf8_lossy(&to.target);
                format!("{key} to {target}, which is routed again")
            }
            _ => format!("{key} does not apply"),
        };
        explanation.add(Topic::Handler, text);
    }

    fn behind_internal<'s>(&'s self, _: &'s [u8], _: &Request, _: &Client) -> Internal<'s> {
        Internal::Refusal(502, "an internal route with `reroute` has no content")
    }
}

/// The redirect of `request`, or the response to one that cannot be redirected.
pub fn response(to: &RedirectTo, request: &Request, client: &Client) -> Response {
    match target(&to.target, request.sent_raw_path(), request, client) {
        Ok(location) => {
            let mut response = error(to.status, "");
            response.fields.add("Location", &location);
            response
        }
        Err(reject) => error(reject.status, reject.reason),
    }
}

/// The target to which a rewrite sends `request`, or the response to one that cannot be rewritten.
fn rewritten<'s>(
    to: &TargetOf,
    request: &Request,
    client: &Client,
    may_be_internal: bool,
) -> Outcome<'s> {
    match target(to, request.raw_path(), request, client).and_then(without_dot_segments) {
        Ok(target) => Outcome::Rewritten(NewTarget {
            target,
            may_be_internal,
            by_rule: true,
        }),
        Err(reject) => Outcome::Response(error(reject.status, reject.reason)),
    }
}

/// Refuses a rewrite out of the folder that the rule names. The path of a request has no dot segments, but a group may
/// begin behind the `x` of `/x../a`: beneath `/new/` that would be `/new/../a`.
fn without_dot_segments(target: Vec<u8>) -> Result<Vec<u8>, Reject> {
    let path = target.split(|&byte| byte == b'?').next();
    match path.is_some_and(path::has_dot_segment) {
        true => Err(Reject {
            status: 400,
            reason: "dot segment in the rewritten path",
        }),
        false => Ok(target),
    }
}

/// The target for `request`; `raw_path` is what `{path}` stands for, not decoded.
fn target(
    to: &TargetOf,
    raw_path: &[u8],
    request: &Request,
    client: &Client,
) -> Result<Vec<u8>, Reject> {
    let template = &to.template;
    let mut location = Vec::new();
    for part in &template.0 {
        match part {
            Part::Text(text) => location.extend_from_slice(text.as_bytes()),
            Part::Scheme => location.extend_from_slice(client.scheme.as_bytes()),
            Part::Host => location.extend_from_slice(host(request)?.as_bytes()),
            // Two slashes at the start would name a host.
            Part::Path => {
                let path = path::forwarded(raw_path)?;
                location.extend_from_slice(path::one_leading_slash(&path));
            }
            Part::Rest => push_part(rest(to, request), request, &mut location)?,
            Part::Group(number) => push_part(group(to, request, *number), request, &mut location)?,
            Part::Query => match &*query(request) {
                b"" if location.ends_with(b"?") || location.ends_with(b"&") => {
                    location.pop();
                }
                query => location.extend_from_slice(query),
            },
        }
    }
    // Parts that are empty can leave two slashes at the start, which would name a host.
    if location.starts_with(b"//") {
        location = path::one_leading_slash(&location).to_vec();
    }
    if !template.has_query() && request.query().is_some() {
        // The query goes before a fragment.
        let end = location.iter().position(|&byte| byte == b'#');
        let fragment = location.split_off(end.unwrap_or(location.len()));
        location.push(b'?');
        location.extend_from_slice(&query(request));
        location.extend_from_slice(&fragment);
    }
    Ok(location)
}

/// Appends a part of the decoded path as it was sent. In a query a `&` would begin another parameter.
fn push_part(part: Range<usize>, request: &Request, location: &mut Vec<u8>) -> Result<(), Reject> {
    if location.contains(&b'?') {
        return push_decoded(&request.path[part], request, location);
    }
    let path = path::forwarded(request.raw_path())?;
    location.extend_from_slice(path::part_as_sent(&path, part));
    Ok(())
}

/// Appends a part of the decoded path with its escapes. Where that has kept an escaped slash, a `%` may begin one or be one.
fn push_decoded(part: &[u8], request: &Request, location: &mut Vec<u8>) -> Result<(), Reject> {
    if request.has_encoded_slash && part.contains(&b'%') {
        return Err(Reject {
            status: 400,
            reason: "escaped slash in the path",
        });
    }
    path::encode(part, location);
    Ok(())
}

/// What `*` matches at the end of the path of the route.
fn rest(to: &TargetOf, request: &Request) -> Range<usize> {
    match &to.path {
        Some(Pattern::Prefix(prefix)) if request.path.starts_with(prefix.as_bytes()) => {
            prefix.len()..request.path.len()
        }
        _ => 0..0,
    }
}

/// What a group in the path of the route matches.
fn group(to: &TargetOf, request: &Request, number: usize) -> Range<usize> {
    let groups = to.path.as_ref().map(|path| path.captures(&request.path));
    let group = groups.and_then(|groups| groups.get(number - 1).cloned());
    group.unwrap_or_default()
}

/// The host of the request without its port.
fn host(request: &Request) -> Result<String, Reject> {
    let name = http1::host_name(request.host()).ok();
    let name = name.filter(|name| !name.is_empty()).ok_or(Reject {
        status: 400,
        reason: "a redirect needs the host",
    })?;
    Ok(name.into_owned())
}

fn query(request: &Request) -> Vec<u8> {
    let query = request.query().unwrap_or_default();
    path::forwarded_query(query).into_owned()
}
