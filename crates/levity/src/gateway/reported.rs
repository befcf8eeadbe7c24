//! A failure that occurs while a response is sent, in the form in which the sender gets it.

use crate::http::error::error;
use crate::http::response::{Response, SourceFailure};
use crate::upstream::failure::Failure;
use crate::upstream::pool::Endpoint;
use levity_telemetry::access_log::End;
use levity_telemetry::trace::{Side, Trace};

/// The response to a request that failed at its upstream.
pub fn response(failure: &Failure) -> Response {
    let is_of_client = failure.side == Side::Client;
    let detail = if is_of_client { &failure.reason } else { "" };
    let mut response = error(failure.status, detail);
    let status = format!("levity; error={}", failure.kind);
    response.fields.add("Proxy-Status", status.as_bytes());
    response.close = is_of_client;
    response
}

/// A failure of a response whose source was an upstream; it can report itself there.
#[derive(Debug)]
pub struct Reported {
    failure: Failure,
    endpoint: Endpoint,
}

impl Reported {
    /// Wraps `failure` of a response that comes from `endpoint`.
    pub fn new(failure: Failure, endpoint: Endpoint) -> Box<Self> {
        Box::new(Self { failure, endpoint })
    }
}

impl SourceFailure for Reported {
    fn end(&self) -> End {
        self.failure.end
    }

    fn response(&self) -> Response {
        response(&self.failure)
    }

    fn report(&self, is_uncommitted: bool, trace: &mut Trace) {
        let (side, kind) = (self.failure.side, self.failure.kind);
        if let Some(upstream) = trace.upstream_mut() {
            match is_uncommitted {
                true => upstream.failed(side, kind),
                false => upstream.broke_off(side, kind),
            }
        }
        self.endpoint.report(&self.failure, is_uncommitted);
    }
}
