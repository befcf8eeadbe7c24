//! What a request has met with at an upstream: told in the log, and counted.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::failure::{Failure, Side};
use super::pool::{Lease, Member, Pool};
use levity_telemetry::access_log::Visited;
use levity_telemetry::stall::Watch;

/// One request at one upstream. The gateway fills it; it stays with the client's connection until the
/// request is logged. Nothing is allocated for it.
pub struct Visit {
    pool: Rc<Pool>,
    /// Who was asked last.
    member: Option<Rc<Member>>,
    began: Instant,
    attempt_began: Instant,
    attempts: u32,
    is_reused: bool,
    queue: Duration,
    connect: Option<Duration>,
    first_byte: Option<Duration>,
    total: Option<Duration>,
    failure: Option<(Side, &'static str)>,
}

impl Visit {
    /// Begins now, at the upstream of `pool`.
    pub fn new(pool: Rc<Pool>) -> Self {
        let now = Watch::poll_began();
        Self {
            pool,
            member: None,
            began: now,
            attempt_began: now,
            attempts: 0,
            is_reused: false,
            queue: Duration::ZERO,
            connect: None,
            first_byte: None,
            total: None,
            failure: None,
        }
    }

    /// The pool.
    pub fn pool(&self) -> &Rc<Pool> {
        &self.pool
    }

    /// It has a place at a backend, for which it has waited since `asked`: an attempt begins.
    pub fn placed(&mut self, asked: Instant, lease: &Lease) {
        let now = Watch::poll_began();
        self.queue += now - asked;
        self.attempt_began = now;
        self.attempts += 1;
        self.connect = None;
        self.is_reused = false;
        self.member = Some(lease.member().clone());
        if self.attempts > 1 {
            self.pool.cells().retried();
        }
    }

    /// The attempt has its connection.
    pub fn connected(&mut self, lease: &Lease) {
        self.is_reused = lease.is_reused;
        if !lease.is_reused {
            self.connect = Some(Watch::poll_began() - self.attempt_began);
        }
    }

    /// The head of an answer is here.
    pub fn answered(&mut self) {
        let now = Watch::poll_began();
        let first_byte = now - self.attempt_began;
        self.first_byte = Some(first_byte);
        self.total = Some(now - self.began);
        self.pool.cells().answered_in(first_byte);
        if let Some(member) = &self.member {
            member.cells.answered();
        }
    }

    /// The attempt has failed; another may follow.
    pub fn attempt_failed(&self, failure: &Failure) {
        if let Some(member) = &self.member {
            member.cells.failed(failure.kind);
            self.pool.complain(failure, Some(&member.backend));
        }
    }

    /// There is no answer, and no other attempt.
    pub fn failed(&mut self, failure: &Failure) {
        self.total = Some(Watch::poll_began() - self.began);
        self.failure = Some((failure.side, failure.kind));
    }

    /// An answer was begun and will not be completed.
    pub fn broke_off(&mut self, failure: &Failure) {
        self.failure = Some((failure.side, failure.kind));
        let Some(member) = &self.member else { return };
        // A body that could not be read back from its file is not the backend's fault.
        if failure.side == Side::Backend {
            member.cells.broke_off();
        }
        self.pool.complain_of_cut(failure, &member.backend);
    }

    /// Who failed, if it has come to that.
    pub fn failed_side(&self) -> Option<Side> {
        self.failure.map(|(side, _)| side)
    }

    /// Whether an answer has come, or its beginning.
    pub fn is_answered(&self) -> bool {
        self.first_byte.is_some()
    }

    /// Whether the last attempt was made on a kept connection.
    pub fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// From the beginning to the head of the answer, or to the failure.
    pub fn total(&self) -> Option<Duration> {
        self.total
    }

    /// For the log.
    pub fn told(&self) -> Visited<'_> {
        Visited {
            upstream: &self.pool.upstream().settings.name,
            backend: self.member.as_ref().map(|one| one.backend.name.as_str()),
            attempts: self.attempts,
            is_reused: self.is_reused,
            queue: self.queue,
            connect: self.connect,
            first_byte: self.first_byte,
            failure: self.failure.map(|(side, kind)| (side.label(), kind)),
        }
    }
}
