//! The load on mailboxes: subscribers that listen to boxes with Server-Sent Events, publishers, and the writer that
//! fan-outs are compared with.
//!
//! [`client`] moves the bytes and verifies that each subscriber gets every message of its box, once, in order and
//! unchanged. It runs as a process of its own ([`command`]), which gets its orders on standard input.

pub mod client;
pub mod command;
pub mod dialect;
pub mod payload;
pub mod stream;
pub mod writer;

use crate::load::latency::Latency;
use serde::{Deserialize, Serialize};

/// What to publish.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub enum Order {
    /// Messages to the first box, one after another: the next is published when the last subscriber has the one before.
    FanOut {
        /// Messages.
        messages: usize,
        /// The length of a message in bytes.
        bytes: usize,
        /// The minimum time between two messages, in milliseconds.
        interval_ms: u64,
    },
    /// Messages to all boxes in turn, at fixed times (open loop).
    Flow {
        /// Messages per second.
        rate: u32,
        /// The duration in seconds.
        seconds: f64,
        /// The length of a message in bytes.
        bytes: usize,
    },
    /// Messages to all boxes in turn, as fast as each publisher gets its acknowledgement (closed loop).
    Publish {
        /// The duration in seconds.
        seconds: f64,
        /// The length of a message in bytes.
        bytes: usize,
    },
}

/// The result of an order.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Delivered {
    /// Messages that were published.
    pub messages: u64,
    /// Messages that reached a subscriber, once for each subscriber.
    pub deliveries: u64,
    /// Deliveries that did not arrive in time.
    pub missing: u64,
    /// Messages that were not the next one of their box or were changed, refused publishes and broken connections.
    pub errors: u64,
    /// The first error.
    pub first_error: Option<String>,
    /// From the first message to the last delivery, in seconds.
    pub seconds: f64,
    /// Bytes that arrived at the subscribers.
    pub wire_bytes: u64,
    /// CPU time of the load generator in that time.
    pub cpu_seconds: f64,
    /// The time from each message of a fan-out until the last subscriber had its last byte, in microseconds.
    pub last_us: Vec<f64>,
    /// The time from when a message was due until each subscriber had it.
    pub latency: Latency,
    /// The time from when a message was due until its acknowledgement.
    pub acknowledged: Latency,
}

impl Delivered {
    /// Everything that went wrong.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.missing + self.errors
    }

    /// Acknowledged messages per second.
    #[must_use]
    pub fn messages_per_second(&self) -> f64 {
        self.messages as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }
}
