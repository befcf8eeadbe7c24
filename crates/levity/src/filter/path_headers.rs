//! Headers of responses to some paths, as the `_headers` of a static host list them.

use std::sync::Arc;

use levity_config::PathHeaders;
use levity_wire::http1::is_one_of;

use crate::http::fields::CONTENT_HEADERS;
use crate::http::filter::{Filter, FilteredHead};
use crate::http::request::Request;

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
        for rule in self.0.iter().filter(|rule| is_about(rule, request)) {
            for name in &rule.remove {
                head.fields.remove(name);
            }
            let has_content = head.status != 304;
            let applies = |name: &str| has_content || !is_one_of(name.as_bytes(), CONTENT_HEADERS);
            for (name, value) in rule.set.iter().filter(|(name, _)| applies(name)) {
                head.fields.set(name, value.as_bytes());
            }
        }
    }
}

fn is_about(rule: &PathHeaders, request: &Request) -> bool {
    let mut hosts = rule.host.iter();
    hosts.all(|host| host.matches(request.host())) && rule.path.matches(&request.path)
}
