//! The gate that refuses clients, or requests for files and routes, of which there are too many.

use std::sync::Arc;

use super::super::{Handling, Outcome};
use crate::http::error::error;
use crate::message::request::Request;
use crate::rate_limit::limit::RateLimit;

impl<'a> Handling<'a> {
    /// Lets requests through that `limits` have room for. Limits of bytes apply when the response is sent. Proxies that are
    /// trusted name the client.
    pub(in super::super) fn rate_limits(
        &mut self,
        request: &Request,
        limits: &'a [Arc<RateLimit>],
    ) -> Outcome<'a> {
        // The clock was read when the request was routed, or at the start of the poll.
        let now = self.disk.trace.step_began();
        let (client, path) = (self.client, &request.path);
        let admitted = self.charges.admit(limits, client, path, now);
        match admitted {
            Ok(()) => Outcome::Next,
            Err(wait) => {
                let mut response = error(429, "too many requests");
                let seconds = wait.as_nanos().div_ceil(1_000_000_000).max(1).to_string();
                response.fields.add("Retry-After", seconds.as_bytes());
                Outcome::Response(response)
            }
        }
    }
}
