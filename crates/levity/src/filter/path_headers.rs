//! Headers of responses to some paths, as the `_headers` of a static host list them.

use std::borrow::Cow;
use std::sync::Arc;

use levity_config::{Part, PathHeaders};
use levity_wire::http1::is_one_of;
use levity_wire::path;

use crate::http::filter::{Filter, FilteredHead};
use crate::message::fields::CONTENT_HEADERS;
use crate::message::request::Request;

/// The rules of one site; all that match apply, in order.
pub struct HeadersOfPaths(pub Arc<[PathHeaders]>);

impl Filter for HeadersOfPaths {
    fn key(&self) -> &'static str {
        "_headers"
    }

    fn header(&self, request: &Request, head: FilteredHead<'_>) {
        if head.status >= 400 {
            return;
        }
        let path = head.path;
        for rule in self.0.iter().filter(|rule| is_about(rule, path, request)) {
            for name in &rule.remove {
                head.fields.remove(name);
            }
            let has_content = head.status != 304;
            let applies = |name: &str| has_content || !is_one_of(name.as_bytes(), CONTENT_HEADERS);
            for (name, value) in rule.set.iter().filter(|(name, _)| applies(name)) {
                head.fields.set(name, &text(value, rule, path));
            }
        }
    }
}

fn is_about(rule: &PathHeaders, path: &[u8], request: &Request) -> bool {
    let mut hosts = rule.host.iter();
    // The path first: most rules are ruled out by how it starts.
    rule.path.matches(path) && hosts.all(|host| host.matches(request.host()))
}

/// The value of a header. Parts of the path are encoded, so that none ends the line.
fn text<'v>(value: &'v [Part], rule: &PathHeaders, path: &[u8]) -> Cow<'v, [u8]> {
    if let [Part::Text(text)] = value {
        return Cow::Borrowed(text.as_bytes());
    }
    let groups = rule.path.captures(path);
    let mut bytes = Vec::new();
    for part in value {
        match part {
            Part::Text(text) => bytes.extend_from_slice(text.as_bytes()),
            Part::Group(number) => {
                let group = groups.get(number - 1).cloned().unwrap_or_default();
                path::encode(&path[group], &mut bytes);
            }
            // They are of targets.
            Part::Scheme | Part::Host | Part::Path | Part::Rest | Part::Query => {}
        }
    }
    Cow::Owned(bytes)
}
