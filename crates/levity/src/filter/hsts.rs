//! `hsts`: has browsers reach the site over TLS only (RFC 6797).

use std::time::Duration;

use crate::http::filter::{Filter, FilteredHead};
use crate::message::request::Request;

const NAME: &str = "Strict-Transport-Security";

/// Adds the header to all responses over TLS. Over plain HTTP it must not be sent (RFC 6797, 7.2).
pub struct Hsts(String);

impl Hsts {
    /// For `max_age`, in whole seconds.
    pub fn new(max_age: Duration) -> Self {
        Self(format!("max-age={}", max_age.as_secs()))
    }
}

impl Filter for Hsts {
    fn key(&self) -> &'static str {
        "hsts"
    }

    fn header(&self, request: &Request, head: FilteredHead<'_>) {
        if request.is_https {
            head.fields.remove(NAME);
            head.fields.add(NAME, self.0.as_bytes());
        }
    }
}
