//! Failed handshakes in the log: some of them, however many there are.

use std::cell::Cell;
use std::fmt::Display;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use levity_telemetry::diagnostics;

/// The minimum of time between two lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// What an event loop has logged of failed handshakes.
#[derive(Debug, Default)]
pub struct HandshakeReports {
    last: Cell<Option<Instant>>,
    left_out: Cell<u64>,
}

impl HandshakeReports {
    /// Logs why a handshake has failed, unless one was logged just before.
    pub fn failed(&self, client: Option<IpAddr>, reason: &dyn Display, now: Instant) {
        let is_soon = |last: Instant| now.saturating_duration_since(last) < INTERVAL;
        if self.last.get().is_some_and(is_soon) {
            return self.left_out.update(|count| count + 1);
        }
        self.last.set(Some(now));
        let who = client.map_or_else(|| "a Unix socket".to_owned(), |ip| ip.to_string());
        let before = match self.left_out.take() {
            0 => String::new(),
            count => format!(" (and {count} others before)"),
        };
        diagnostics::log(format_args!(
            "TLS handshake with {who} failed: {reason}{before}"
        ));
    }
}
