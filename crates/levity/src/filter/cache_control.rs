//! How long clients and caches may keep responses.

use levity_config::{CacheRule, Cached, is_hashed};

use crate::http::filter::{Filter, FilteredHead};
use crate::http::request::Request;

/// The rules of one location; the first that fits counts.
pub struct CacheControl(pub Vec<CacheRule>);

impl Filter for CacheControl {
    fn key(&self) -> &'static str {
        "cache"
    }

    /// A page for an error may be about a moment, and an application knows best about its own content.
    fn header(&self, request: &Request, head: FilteredHead<'_>) {
        let is_content = matches!(head.status, 200 | 206 | 304);
        if !is_content || head.fields.value("cache-control").is_some() {
            return;
        }
        let media_type = head.fields.value("content-type");
        // A 304 has no type: that of the name is the one of the 200.
        let by_name = || levity_wire::mime::of(&request.path).as_bytes();
        let media_type = media_type.unwrap_or_else(by_name);
        let fits = |rule: &&CacheRule| match &rule.of {
            Cached::Hashed => is_hashed(&request.path),
            Cached::Types(types) => types.include(media_type),
        };
        let value = self.0.iter().find(fits).and_then(|rule| rule.value.clone());
        if let Some(value) = value {
            head.fields.add("Cache-Control", value.as_bytes());
        }
    }
}
