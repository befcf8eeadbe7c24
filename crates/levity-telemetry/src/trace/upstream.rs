//! The part of a trace that is about an upstream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use strum::IntoStaticStr;

use crate::stall;
use crate::stats::upstream::{BackendCells, UpstreamCells};

/// Which side of the gateway failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Side {
    /// The client, or what it sent.
    Client,
    /// The backend, or the network on the way to it.
    Backend,
    /// This server: it had no connection for the request.
    Own,
}

impl Side {
    /// The word in the log.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

/// One request at one upstream: its attempts, their times and their outcome. It counts in the worker's own cells,
/// which also hold the names for the log, so that nothing is allocated.
#[derive(Debug)]
pub struct UpstreamTrace {
    cells: Arc<UpstreamCells>,
    /// The backend of the last attempt.
    backend: Option<Arc<BackendCells>>,
    attempt_start: Instant,
    /// Requests that were sent, or would have been if there had been a connection.
    pub(crate) attempts: u32,
    /// The connection of the last attempt had carried a request before.
    pub(crate) is_reused: bool,
    /// Waiting for a connection slot, of all attempts.
    pub(crate) queue: Duration,
    /// Making the connection of the last attempt, where one was made.
    pub(crate) connect: Option<Duration>,
    /// From the start of the last attempt to the header of the response.
    pub(crate) first_byte: Option<Duration>,
    /// Which side failed, and the error type of RFC 9209.
    pub(crate) failure: Option<(Side, &'static str)>,
}

impl UpstreamTrace {
    pub(crate) fn new(cells: Arc<UpstreamCells>) -> Self {
        let now = stall::poll_start();
        Self {
            cells,
            backend: None,
            attempt_start: now,
            attempts: 0,
            is_reused: false,
            queue: Duration::ZERO,
            connect: None,
            first_byte: None,
            failure: None,
        }
    }

    /// An attempt begins: the request has a connection slot at `backend`, which it has waited for since `queued_at`.
    pub fn placed(&mut self, queued_at: Instant, backend: Arc<BackendCells>) {
        let now = stall::poll_start();
        self.queue += now - queued_at;
        self.attempt_start = now;
        self.attempts += 1;
        self.connect = None;
        self.is_reused = false;
        self.backend = Some(backend);
        if self.attempts > 1 {
            self.cells.retries.add(1);
        }
    }

    /// The attempt has its connection: a kept one, or one that was made for it.
    pub fn connected(&mut self, is_reused: bool) {
        self.is_reused = is_reused;
        if !is_reused {
            self.connect = Some(stall::poll_start() - self.attempt_start);
        }
    }

    /// The header of a response has arrived.
    pub fn answered(&mut self) {
        let first_byte = stall::poll_start() - self.attempt_start;
        self.first_byte = Some(first_byte);
        self.cells.answered_in(first_byte);
        if let Some(backend) = &self.backend {
            backend.answered();
        }
    }

    /// The attempt has failed; another may follow. `kind` is an error type of RFC 9209.
    pub fn attempt_failed(&self, kind: &'static str) {
        if let Some(backend) = &self.backend {
            backend.failed(kind);
        }
    }

    /// The last attempt has failed, or there was none.
    pub fn failed(&mut self, side: Side, kind: &'static str) {
        self.failure = Some((side, kind));
    }

    /// A response whose beginning was sent will not be completed. A failure that is not the backend's is not
    /// counted against it.
    pub fn broke_off(&mut self, side: Side, kind: &'static str) {
        self.failure = Some((side, kind));
        if let Some(backend) = self.backend.as_ref().filter(|_| side == Side::Backend) {
            backend.broken.add(1);
        }
    }

    /// Which side failed, if any.
    pub fn failed_side(&self) -> Option<Side> {
        self.failure.map(|(side, _)| side)
    }

    /// Whether the header of a response has arrived.
    pub fn is_answered(&self) -> bool {
        self.first_byte.is_some()
    }

    pub(crate) fn name(&self) -> &str {
        &self.cells.name
    }

    pub(crate) fn backend(&self) -> Option<&str> {
        self.backend.as_ref().map(|backend| backend.name.as_str())
    }
}
