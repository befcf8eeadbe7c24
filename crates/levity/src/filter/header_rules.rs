//! Header rules: headers that a location sets, adds and removes in its responses.

use levity_config::Headers;
use levity_wire::http1::is_one_of;

use crate::http::fields::CONTENT_HEADERS;
use crate::http::filter::{Filter, FilteredHead};
use crate::http::request::Request;

/// The rules of one location.
pub struct HeaderRules(pub Headers);

impl Filter for HeaderRules {
    /// Removals come first, so that a header may be removed and set.
    ///
    /// Errors are not changed: a `Cache-Control` for the location's files would make clients cache a 404 for
    /// a year.
    fn header(&self, _: &Request, head: FilteredHead<'_>) {
        if head.status >= 400 {
            return;
        }
        let Self(rules) = self;
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
}
