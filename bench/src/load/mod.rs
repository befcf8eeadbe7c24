//! The load generator: one thread, one epoll, any number of connections.
//!
//! [`client`] moves the bytes; a [`plan`] decides what is sent and when. The load generator runs as a separate process
//! ([`command`]), so that it can be pinned to another CPU than the server.

pub mod attack;
pub mod client;
pub mod command;
pub mod http2;
pub mod latency;
pub mod plan;
pub mod response;
pub mod sip;
pub mod tls;

use latency::Latency;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The result of a run.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Report {
    /// Responses that arrived in full, with the expected status and length.
    pub requests: u64,
    /// The measured time, without the warm-up.
    pub seconds: f64,
    /// Body bytes of those responses.
    pub body_bytes: u64,
    /// All bytes that arrived, including headers and incomplete responses: the measure for streams that outlast the
    /// run. Those of TLS count once decrypted. 0 for a walker.
    #[serde(default)]
    pub wire_bytes: u64,
    /// CPU time of the load generator in the measured time. It includes the work on packets that the kernel does for the
    /// server while it handles the client's acknowledgements. 0 for a walker.
    #[serde(default)]
    pub cpu_seconds: f64,
    /// All responses that arrived, by their status. Empty for a walker.
    #[serde(default)]
    pub statuses: BTreeMap<u16, u64>,
    /// Handshakes of TLS that ended.
    #[serde(default)]
    pub handshakes: Handshakes,
    /// Requests that failed: wrong status, wrong length, a broken connection.
    pub errors: u64,
    /// The message of the first failure.
    pub first_error: Option<String>,
    /// The failed requests, if requests have numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Failed>,
    /// Requests that were due but had no response at the end. Their waiting time so far counts in `latency` as a lower
    /// bound; without it a stalled server would look good.
    pub unfinished: u64,
    /// The time from when a request was due until its last byte arrived.
    pub latency: Latency,
}

/// Handshakes of TLS by their kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Handshakes {
    /// With a signature of the server.
    pub full: u64,
    /// With a ticket of an earlier one.
    pub resumed: u64,
}

/// A numbered request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Failed {
    /// Its number.
    pub number: usize,
    /// The status of the response; None when the connection broke.
    pub status: Option<u16>,
}

impl Report {
    /// Finished requests per second.
    #[must_use]
    pub fn requests_per_second(&self) -> f64 {
        per_second(self.requests, self.seconds)
    }

    /// All bytes that arrived per second.
    #[must_use]
    pub fn wire_bytes_per_second(&self) -> f64 {
        per_second(self.wire_bytes, self.seconds)
    }

    /// CPU seconds of the load generator per second.
    #[must_use]
    pub fn processors(&self) -> f64 {
        self.cpu_seconds / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// Body bytes per second.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        per_second(self.body_bytes, self.seconds)
    }
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}
