//! Header rules: headers that a location sets, adds and removes in its responses.

use levity_config::Headers;
use levity_wire::http1::is_one_of;

use crate::http::filter::{Filter, FilteredHead};
use crate::message::fields::CONTENT_HEADERS;
use crate::message::request::Request;

/// The rules of one location, in order.
pub struct HeaderRules(pub Vec<Headers>);

impl Filter for HeaderRules {
    fn key(&self) -> &'static str {
        "headers"
    }

    /// Errors are changed by rules that say so only: a `Cache-Control` for the location's files would make clients cache
    /// a 404 for a year.
    fn header(&self, _: &Request, mut head: FilteredHead<'_>) {
        let is_error = head.status >= 400;
        for rules in &self.0 {
            if rules.always || !is_error {
                apply(rules, &mut head);
            }
        }
    }
}

/// Removals come first, so that a header may be removed and set.
fn apply(rules: &Headers, head: &mut FilteredHead<'_>) {
    let has_content = head.status != 304;
    let applies = |name: &str| has_content || !is_one_of(name.as_bytes(), CONTENT_HEADERS);
    for name in &rules.remove {
        head.fields.remove(name);
    }
    for (name, value) in &rules.set {
        // Vary accumulates: a cache needs every header that selects the response (RFC 9110, 12.5.5).
        if !name.eq_ignore_ascii_case("vary") {
            head.fields.remove(name);
        }
        if applies(name) {
            head.fields.add(name, value.as_bytes());
        }
    }
    for (name, value) in rules.add.iter().filter(|(name, _)| applies(name)) {
        head.fields.add(name, value.as_bytes());
    }
    // Otherwise the writer would add its own Server.
    let written = rules.set.iter().chain(&rules.add).map(|(name, _)| name);
    let mut names = written.chain(&rules.remove);
    *head.has_server |= names.any(|name| name.eq_ignore_ascii_case("server"));
}
