//! The load generator: one thread, one epoll, as many connections as asked for.
//!
//! [`client`] moves the bytes; a [`plan`] decides what is sent and when. It runs as a process of its
//! own ([`command`]), so that it can be pinned away from the server.

pub mod client;
pub mod command;
pub mod latency;
pub mod plan;
pub mod response;

use latency::Latency;
use serde::{Deserialize, Serialize};

/// What one run of the load generator saw.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Report {
    /// Responses that arrived in full, with the expected status and length.
    pub requests: u64,
    /// The time measured, without the warm-up.
    pub seconds: f64,
    /// Body bytes of those responses.
    pub body_bytes: u64,
    /// All bytes that arrived, with heads and with what came of unfinished responses: the measure of
    /// streams that outlast the run. 0 for a walker.
    #[serde(default)]
    pub wire_bytes: u64,
    /// Requests that failed: wrong status, wrong length, a broken connection.
    pub errors: u64,
    /// The first failure, in words.
    pub first_error: Option<String>,
    /// Requests that failed, each with its number, where they have numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Failed>,
    /// Requests that were due but not answered at the end. Their waiting time so far counts in
    /// `latency`, as a lower bound: leaving it out would flatter a server that stands still.
    pub unfinished: u64,
    /// Time from when a request was meant to be sent until its last byte arrived.
    pub latency: Latency,
}

/// A numbered request without a good answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Failed {
    /// Its number.
    pub number: usize,
    /// The status of the answer; None where the connection broke instead.
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
