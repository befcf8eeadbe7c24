//! How long clients and caches may keep responses.

use levity_config::{CacheRule, Cached, is_hashed};
use levity_wire::path::file_name;

use crate::http::filter::{Filter, FilteredHead};
use crate::message::request::Request;

/// The rules of one location; the first that fits counts.
pub struct CacheControl(pub Vec<CacheRule>);

impl Filter for CacheControl {
    fn key(&self) -> &'static str {
        "cache"
    }

    /// A page for an error may be about a moment, and an application knows best about its own content.
    fn header(&self, request: &Request, head: FilteredHead<'_>) {
        let is_content = matches!(head.status, 200 | 206 | 304);
        if !is_content || head.is_of_application || head.fields.value("cache-control").is_some() {
            return;
        }
        let media_type = head.fields.value("content-type");
        // A 304 has no type: that of the name is the one of the 200.
        let by_name = || levity_wire::mime::of(head.path).as_bytes();
        let media_type = media_type.unwrap_or_else(by_name);
        let fits = |rule: &&CacheRule| match &rule.of {
            Cached::Hashed => is_named_by_hash(request, head.path),
            Cached::Types(types) => types.include(media_type),
        };
        let value = self.0.iter().find(fits).and_then(|rule| rule.value.clone());
        if let Some(value) = value {
            head.fields.add("Cache-Control", value.as_bytes());
        }
    }
}

/// Whether the client has asked by a name that changes with the content. The hash in the name of another file, to which a rewrite or a
/// step of `try` has led, says nothing about the next content at this URL.
fn is_named_by_hash(request: &Request, path: &[u8]) -> bool {
    let (sent, _) = request.sent_path_and_query();
    is_hashed(path) && file_name(sent) == file_name(path)
}
