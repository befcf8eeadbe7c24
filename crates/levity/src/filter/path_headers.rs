//! Headers of responses to some paths, as the `_headers` of a static host list them.

use levity_config::PathHeaders;

use crate::http::filter::{Filter, FilteredHead};
use crate::http::request::Request;

/// The rules of one site; all that match apply, in order.
pub struct HeadersOfPaths(pub Vec<PathHeaders>);

impl Filter for HeadersOfPaths {
    fn header(&self, request: &Request, head: FilteredHead<'_>) {
        if head.status >= 400 {
            return;
        }
        for rule in self
            .0
            .iter()
            .filter(|rule| rule.path.matches(&request.path))
        {
            for name in &rule.remove {
                head.fields.remove(name);
            }
            for (name, value) in &rule.set {
                head.fields.set(name, value.as_bytes());
            }
        }
    }
}
