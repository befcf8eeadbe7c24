//! The gate that refuses clients, or requests for files and routes, of which there are too many.

use std::sync::Arc;

use levity_telemetry::stats::GateKind;

use super::super::chain::{Decision, Gate};
use super::super::{Handling, Outcome};
use crate::http::error::error;
use crate::message::client::Client;
use crate::message::request::Request;
use crate::rate_limit::limit::RateLimit;

/// Refuses the request if there are too many, and limits the bytes of the response. It says nothing about who may have a file, so
/// its refusals are not among those of gates. Never empty.
pub struct RateLimits(pub Vec<Arc<RateLimit>>);

impl Gate for RateLimits {
    const KIND: Option<GateKind> = None;

    /// Limits of bytes apply when the response is sent. Proxies that are trusted name the client.
    fn ask<'s>(&'s self, cx: &mut Handling<'s>, request: &Request) -> Decision<'s> {
        // The clock was read when the request was routed, or at the start of the poll.
        let now = cx.disk.trace.step_began();
        let (client, path) = (cx.client, &request.path);
        let admitted = cx.charges.admit(&self.0, client, path, now);
        match admitted {
            Ok(()) => Decision::Now(Outcome::Next),
            Err(wait) => {
                let mut response = error(429, "too many requests");
                let seconds = wait.as_nanos().div_ceil(1_000_000_000).max(1).to_string();
                response.fields.add("Retry-After", seconds.as_bytes());
                response.into()
            }
        }
    }

    fn name(&self, _: &Client) -> String {
        let named = |limit: &Arc<RateLimit>| match limit.only_reports() {
            true => format!("{} (report_only)", limit.name()),
            false => limit.name().to_owned(),
        };
        let names: Vec<_> = self.0.iter().map(named).collect();
        format!("`limit` {}", names.join(", "))
    }

    /// Limits count the requests of the process that explains, and not those of a server.
    fn verdict(&self, outcome: &Outcome<'_>) -> String {
        match outcome {
            Outcome::Response(response) => format!("refuses with {}", response.status),
            _ => {
                "lets the first request in; counters are not those of the running server".to_owned()
            }
        }
    }
}
