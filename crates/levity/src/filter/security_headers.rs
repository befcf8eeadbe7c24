//! Headers that protect the users of most sites.

use crate::http::filter::{Filter, FilteredHead};
use crate::message::request::Request;

/// Adds the headers that a response lacks.
pub struct SecurityHeaders;

/// Browsers neither guess types, nor tell other sites whole URLs, nor show pages in frames of other sites.
const HEADERS: &[(&str, &[u8])] = &[
    ("X-Content-Type-Options", b"nosniff"),
    ("Referrer-Policy", b"strict-origin-when-cross-origin"),
    ("X-Frame-Options", b"SAMEORIGIN"),
];

impl Filter for SecurityHeaders {
    fn key(&self) -> &'static str {
        "security_headers"
    }

    fn header(&self, _: &Request, head: FilteredHead<'_>) {
        for (name, value) in HEADERS {
            if head.fields.value(name).is_none() {
                head.fields.add(name, value);
            }
        }
    }
}
