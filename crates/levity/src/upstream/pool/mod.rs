//! One worker's connections to the backends of an upstream: their limits, the idle ones, and the queue of
//! requests that wait for one.
//!
//! Each worker has its own pools, so that no loop waits for another. The limits of the configuration are
//! divided among the workers.

mod lease;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};
use tokio::time;

pub use self::lease::{Endpoint, Lease};
use super::Upstream;
use super::abandoned::{Abandoned, AbandonedResponses};
use super::backend::{Backend, Begun};
use super::balance::{self, Balancer, Candidate};
use super::connection::Connection;
use super::failure::{Failure, NoSlot};
use super::http2::sessions::Sessions;
use super::own_connection::OwnConnection;
use super::sticky::Affinity;
use crate::loop_core::failure_reports::{FailureReports, Key};
use levity_config::upstream::{Balance, Protocol};
use levity_telemetry::diagnostics;
use levity_telemetry::stall;
use levity_telemetry::stats::WorkerStats;
use levity_telemetry::stats::upstream::{BackendCells, UpstreamCells};
use levity_telemetry::trace::Side;

/// Queued requests that may be skipped to serve one behind them. With affinity all requests of a queue may
/// wait for the same backend, and scanning the whole queue whenever a slot becomes free would take longer
/// than the requests themselves.
const PASSED_OVER_MAX: usize = 1024;

/// From a failure to reach any backend to the next attempt of the request, at least.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// Between two such attempts of different requests of one worker, unless a backend has responded.
const ATTEMPT_GAP: Duration = Duration::from_millis(10);

/// A worker's view of an upstream.
pub struct Pool {
    upstream: Arc<Upstream>,
    bounds: Bounds,
    /// As of `seen`, in the same order.
    members: RefCell<Vec<Rc<Member>>>,
    seen: RefCell<Arc<Vec<Arc<Backend>>>>,
    /// Queued requests in order of arrival; some may have given up.
    waiting: RefCell<VecDeque<Waiting>>,
    balancer: RefCell<Balancer>,
    failure_reports: RefCell<FailureReports>,
    cells: Arc<UpstreamCells>,
    /// The upstream is no longer configured. Another one of the same name may share its cells.
    is_gone: Cell<bool>,
    /// Kept for their allocations.
    usable: RefCell<Vec<usize>>,
    candidates: RefCell<Vec<Candidate>>,
    abandoned: Rc<AbandonedResponses>,
    /// When the next request that could reach no backend may try again.
    next_attempt: Cell<Instant>,
    /// Wakes all such requests.
    answered: Notify,
}

/// The criteria by which a pool selects a backend for a request.
#[derive(Debug, Clone)]
pub struct SlotRequest {
    /// IDs of the backends that were tried.
    pub tried: Vec<u64>,
    /// The backend that the client is bound to.
    pub affinity: Affinity,
    /// A hash of the request target, for [`Balance::Carp`].
    pub key: u64,
}

/// A queued request.
struct Waiting {
    request: SlotRequest,
    sender: oneshot::Sender<Result<Lease, NoSlot>>,
}

/// One worker's share of an upstream's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    connections: usize,
    idle: usize,
    queue: usize,
}

/// A backend, as one worker sees it.
pub struct Member {
    /// The backend of these connections.
    pub backend: Arc<Backend>,
    /// Its counters.
    pub cells: Arc<BackendCells>,
    idle: RefCell<VecDeque<OwnConnection>>,
    /// The connections over HTTP/2, in place of `idle`.
    sessions: Option<Rc<Sessions>>,
    /// Connections that are in use or being opened; over HTTP/2 streams.
    busy: Cell<u32>,
}

impl Bounds {
    fn of_one(settings: &levity_config::Upstream, workers: usize) -> Self {
        Self {
            connections: (settings.connections / workers).max(1),
            idle: settings.keep_alive.div_ceil(workers),
            queue: settings.queue.div_ceil(workers),
        }
    }
}

/// The limits of all `workers` together: connections to one backend, and queued requests.
pub fn bounds_of_all(settings: &levity_config::Upstream, workers: usize) -> (usize, usize) {
    let bounds = Bounds::of_one(settings, workers);
    (bounds.connections * workers, bounds.queue * workers)
}

impl Pool {
    /// A pool without connections, for one of `workers`. It counts in `stats`.
    pub fn new(upstream: Arc<Upstream>, workers: usize, stats: &WorkerStats) -> Self {
        let settings = &upstream.settings;
        Self {
            bounds: Bounds::of_one(settings, workers),
            failure_reports: RefCell::default(),
            cells: stats.upstreams.of(&settings.name),
            is_gone: Cell::new(false),
            members: RefCell::default(),
            seen: RefCell::default(),
            waiting: RefCell::default(),
            balancer: RefCell::new(Balancer::new(settings.balance)),
            usable: RefCell::default(),
            candidates: RefCell::default(),
            abandoned: Rc::default(),
            next_attempt: Cell::new(Instant::now()),
            answered: Notify::new(),
            upstream,
        }
    }

    /// The upstream.
    pub fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    /// The counters of the upstream.
    pub fn cells(&self) -> &Arc<UpstreamCells> {
        &self.cells
    }

    /// Notes that the client of a response is away.
    pub fn abandoned(&self) -> Abandoned {
        Abandoned::new(self.abandoned.clone())
    }

    /// Whether the response is to end, because its client is away for the longest time, and half of the connections to a
    /// backend, or over HTTP/2 of their streams, have no client.
    pub fn gives_way(&self, response: &Abandoned) -> bool {
        let members = self.members.borrow();
        let requests = members.iter().map(|member| member.requests_expected());
        let requests = self.bounds.connections * requests.min().unwrap_or(1);
        let gives_way = response.is_surplus(requests / 2);
        if gives_way {
            self.report_stream(
                "half of `connections` have no client, and it was away for the longest time",
            );
        }
        gives_way
    }

    /// Logs why a stream that may be resumed is cut short, as [`report`](Self::report) does.
    pub fn report_stream(&self, reason: &str) {
        let name = &self.upstream.settings.name;
        let line = || format!("upstream {name}: a stream is cut short: {reason}");
        let mut reports = self.failure_reports.borrow_mut();
        reports.add(Instant::now(), Key::WHOLE, reason, line, log);
    }

    /// Logs a failure, except one that is the client's. Repetitions within a second are counted, and the
    /// count is logged at the end of the second.
    pub fn report(&self, failure: &Failure, backend: Option<&Backend>) {
        self.log_failure(failure, backend, || failure.outcome());
    }

    /// Logs a failure of a response whose header has been sent.
    fn report_truncated(&self, failure: &Failure, backend: &Backend) {
        let outcome = || "; the response is truncated".to_owned();
        self.log_failure(failure, Some(backend), outcome);
    }

    fn log_failure(
        &self,
        failure: &Failure,
        backend: Option<&Backend>,
        outcome: impl Fn() -> String,
    ) {
        if failure.side == Side::Client {
            return;
        }
        let key = Key {
            backend: backend.map(|backend| backend.id),
            is_retried: failure.retried,
        };
        let line = || failure.line(&self.upstream.settings.name, backend, &outcome());
        let mut failure_reports = self.failure_reports.borrow_mut();
        failure_reports.add(Instant::now(), key, &failure.reason, line, log);
    }

    /// Takes a slot at a backend, with an idle connection if there is one. Waits in the queue if no slot is
    /// free.
    pub async fn slot(self: &Rc<Self>, request: &SlotRequest) -> Result<Lease, NoSlot> {
        self.refresh_members();
        let is_first = self.waiting.borrow().is_empty();
        if is_first && let Some(lease) = self.take(request)? {
            return Ok(lease);
        }
        let receiver = self
            .wait(request)
            .inspect_err(|_| self.cells.queue_full.add(1))?;
        let _queued = self.cells.queued();
        if !is_first {
            // A backend may have come back since the others began to wait.
            self.serve_queue();
        }
        let patience = self.upstream.settings.queue_timeout;
        match time::timeout(patience, receiver).await {
            Ok(slot) => slot.expect("a queued request gets a result"),
            Err(_) => {
                self.cells.queue_timeouts.add(1);
                Err(NoSlot::QueueTimeout)
            }
        }
    }

    /// Whether there is a backend that the request has not tried.
    pub fn has_untried(&self, request: &SlotRequest) -> bool {
        let is_left = |member: &Rc<Member>| {
            !member.backend.drain && !request.tried.contains(&member.backend.id)
        };
        self.members.borrow().iter().any(is_left)
    }

    /// Waits until a request that could reach no backend may try again, until `until` at most. However many wait, they have
    /// `ATTEMPT_GAP` between their attempts, so that they do not occupy the loop; the first response lets all others try.
    pub async fn pause(&self, until: Instant) {
        let now = stall::poll_start();
        let next = self.next_attempt.get().max(now + PAUSE_MIN);
        if next <= until {
            self.next_attempt.set(next + ATTEMPT_GAP);
        }
        let pause = next.min(until).saturating_duration_since(now);
        // The end of the time is as good as a response.
        let _ = time::timeout(pause, self.answered.notified()).await;
    }

    /// Notes that `backend` has responded. If it is back, that serves the queue, and it ends the pauses of all requests.
    pub fn answered(self: &Rc<Self>, backend: &Backend) {
        let now = stall::poll_start();
        if self.upstream.succeeded(backend, now) {
            self.serve_queue();
        }
        self.next_attempt.set(now);
        self.answered.notify_waiters();
    }

    /// Appends a request to the queue.
    fn wait(
        &self,
        request: &SlotRequest,
    ) -> Result<oneshot::Receiver<Result<Lease, NoSlot>>, NoSlot> {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= self.bounds.queue {
            waiting.retain(|one| !one.sender.is_closed());
        }
        if waiting.len() >= self.bounds.queue {
            return Err(NoSlot::QueueFull);
        }
        let (sender, receiver) = oneshot::channel();
        waiting.push_back(Waiting {
            request: request.clone(),
            sender,
        });
        Ok(receiver)
    }

    /// Gives free slots to the first queued requests that can use them. New requests do not overtake the
    /// queue.
    pub fn serve_queue(self: &Rc<Self>) {
        let mut passed_over = Vec::new();
        let mut all_are_full = false;
        while passed_over.len() < PASSED_OVER_MAX && self.may_have_room() {
            let next = self.waiting.borrow_mut().pop_front();
            let Some(one) = next else { break };
            if one.sender.is_closed() {
                continue;
            }
            let takes_any = self.takes_any(&one.request);
            if takes_any && all_are_full {
                passed_over.push(one);
                continue;
            }
            // If the receiver is gone, dropping the lease frees the slot again.
            match self.take(&one.request) {
                Ok(Some(lease)) => {
                    let _ = one.sender.send(Ok(lease));
                }
                Err(none) => {
                    let _ = one.sender.send(Err(none));
                }
                Ok(None) => {
                    all_are_full |= takes_any;
                    passed_over.push(one);
                }
            }
        }
        let mut waiting = self.waiting.borrow_mut();
        passed_over
            .into_iter()
            .rev()
            .for_each(|one| waiting.push_front(one));
    }

    /// Whether a backend has a free slot, or there is no backend at all, which fails every queued request.
    fn may_have_room(&self) -> bool {
        let members = self.members.borrow();
        let has_room = |member: &Rc<Member>| member.has_room(self.bounds.connections);
        members.is_empty() || members.iter().any(has_room)
    }

    /// Whether the request may go to any backend. If no slot is free for one such request, none is free for
    /// the others.
    fn takes_any(&self, request: &SlotRequest) -> bool {
        request.tried.is_empty() && request.affinity == Affinity::Free && !self.is_fixed(request)
    }

    /// Takes a free slot; `None` when all are in use.
    fn take(self: &Rc<Self>, request: &SlotRequest) -> Result<Option<Lease>, NoSlot> {
        let now = stall::poll_start();
        let backends = self.seen.borrow();
        let members = self.members.borrow();
        let mut usable = self.usable.borrow_mut();
        let (tried, bound) = (&request.tried, request.affinity.backend());
        loop {
            let are_up = balance::usable(&backends, now, tried, bound, &mut usable);
            if usable.is_empty() {
                // `tried` is empty, and the configuration has at least one backend that does not drain: no
                // name resolves.
                return Err(match tried.is_empty() {
                    true => NoSlot::NoAddress,
                    false => NoSlot::Exhausted,
                });
            }
            let has_room = |at: usize| members[at].has_room(self.bounds.connections);
            if !self.is_fixed(request) {
                usable.retain(|&at| has_room(at));
            }
            let chosen = self.choose(&members, &usable, request, now);
            let Some(at) = chosen.filter(|&at| has_room(usable[at])) else {
                return Ok(None);
            };
            let member = &members[usable[at]];
            let begun = match are_up {
                true => member.backend.begin(now, self.trial_max()),
                false => Some(Begun::Ordinary),
            };
            // Another request has begun the trial of this backend meanwhile, so it is no longer up.
            let Some(begun) = begun else { continue };
            if begun == Begun::Trial {
                // A failure on an old connection would say nothing about the backend.
                member.close_idle();
            }
            let connection = member.take_idle(now, self.upstream.settings.keep_alive_timeout);
            return Ok(Some(Lease {
                pool: self.clone(),
                member: member.clone(),
                is_reused: connection.is_some(),
                connection: connection.map(Connection::Own),
                begun,
            }));
        }
    }

    /// Whether the request has to wait for one particular backend instead of going to another.
    fn is_fixed(&self, request: &SlotRequest) -> bool {
        let is_by_order = matches!(
            self.upstream.settings.balance,
            Balance::Carp | Balance::Static
        );
        is_by_order || matches!(request.affinity, Affinity::Key(_))
    }

    /// Selects one of the members at the indices `usable`.
    fn choose(
        &self,
        members: &[Rc<Member>],
        usable: &[usize],
        request: &SlotRequest,
        now: Instant,
    ) -> Option<usize> {
        let slow_start = self.upstream.settings.slow_start;
        let mut candidates = self.candidates.borrow_mut();
        candidates.clear();
        candidates.extend(usable.iter().map(|&at| Candidate {
            id: members[at].backend.id,
            share: members[at].backend.share(now, slow_start),
            busy: members[at].busy.get(),
        }));
        match request.affinity {
            Affinity::Key(key) => balance::rendezvous(&candidates, key),
            _ => self.balancer.borrow_mut().choose(&candidates, request.key),
        }
    }

    /// The time limit of a trial.
    fn trial_max(&self) -> Duration {
        let settings = &self.upstream.settings;
        settings.connect_timeout + settings.first_byte_timeout
    }

    /// Adopts a changed list of backends. Connections to removed backends stay open until their request ends.
    fn refresh_members(&self) {
        let now = self.upstream.backends();
        if Arc::ptr_eq(&now, &self.seen.borrow()) {
            return;
        }
        let mut members = self.members.borrow_mut();
        let known = std::mem::take(&mut *members);
        *members = now
            .iter()
            .map(|backend| {
                let same = |member: &&Rc<Member>| Arc::ptr_eq(&member.backend, backend);
                let member = known.iter().find(same).cloned();
                let new = || {
                    let cells = self.cells.backend(backend.id, &backend.name);
                    let protocol = self.upstream.settings.protocol;
                    Rc::new(Member::new(backend.clone(), cells, protocol))
                };
                member.unwrap_or_else(new)
            })
            .collect();
        if !self.is_gone.get() {
            self.cells.retain(now.iter().map(|backend| backend.id));
        }
        *self.seen.borrow_mut() = now;
    }

    /// Closes idle connections that the backend closed or that have been idle for too long, and logs the
    /// failures that are due. Over HTTP/2 it serves the queue: a backend may permit more streams, or end a connection in
    /// whose place there may be another, at any time.
    pub fn sweep(self: &Rc<Self>, now: Instant) {
        let age_max = self.upstream.settings.keep_alive_timeout;
        for member in self.members.borrow().iter() {
            member.sweep(now, age_max);
        }
        self.failure_reports.borrow_mut().sweep(now, log);
        if self.upstream.settings.protocol == Protocol::H2 {
            self.serve_queue();
        }
    }
}

fn log(line: &str) {
    diagnostics::log(format_args!("{line}"));
}

impl Member {
    fn new(backend: Arc<Backend>, cells: Arc<BackendCells>, protocol: Protocol) -> Self {
        let is_shared = protocol == Protocol::H2;
        Self {
            backend,
            sessions: is_shared.then(|| Rc::new(Sessions::new(cells.clone()))),
            cells,
            idle: RefCell::default(),
            busy: Cell::new(0),
        }
    }

    fn has_room(&self, connections_max: usize) -> bool {
        let busy = self.busy.get() as usize;
        match &self.sessions {
            None => busy < connections_max,
            Some(sessions) => sessions.has_room(busy, connections_max),
        }
    }

    /// The requests that a connection is likely to carry at once.
    fn requests_expected(&self) -> usize {
        let sessions = self.sessions.as_ref();
        sessions.map_or(1, |sessions| sessions.streams_expected())
    }

    /// Closes idle connections that are closed or too old.
    fn sweep(&self, now: Instant, age_max: Duration) {
        if let Some(sessions) = &self.sessions {
            sessions.sweep(now, age_max);
        }
        let mut idle = self.idle.borrow_mut();
        let before = idle.len();
        idle.retain_mut(|connection| connection.is_fresh(now, age_max));
        if idle.len() < before {
            self.cells.idle.down((before - idle.len()) as u64);
        }
    }

    fn close_idle(&self) {
        if let Some(sessions) = &self.sessions {
            sessions.trim(0);
        }
        let mut idle = self.idle.borrow_mut();
        self.cells.idle.down(idle.len() as u64);
        idle.clear();
    }

    /// Takes the most recently used idle connection, so that surplus connections reach their time-out. Counts
    /// one more connection in use even if there is none.
    fn take_idle(&self, now: Instant, age_max: Duration) -> Option<OwnConnection> {
        self.busy.set(self.busy.get() + 1);
        self.cells.in_use.up(1);
        let mut idle = self.idle.borrow_mut();
        while let Some(mut connection) = idle.pop_back() {
            self.cells.idle.down(1);
            if connection.is_fresh(now, age_max) {
                return Some(connection);
            }
        }
        None
    }
}

impl Drop for Member {
    /// The gauge of idle connections may be shared with another member, so it is corrected here.
    fn drop(&mut self) {
        self.cells.idle.down(self.idle.borrow().len() as u64);
    }
}

/// The pools of a worker.
pub struct Pools {
    pools: RefCell<Vec<Rc<Pool>>>,
    /// Pools of removed upstreams that requests from before a reload still use. One pool per upstream keeps
    /// them within its limits.
    gone: RefCell<Vec<Weak<Pool>>>,
    /// Numbers of the configured upstreams.
    current: RefCell<Vec<u32>>,
    workers: usize,
    stats: Arc<WorkerStats>,
}

impl Pools {
    /// No pools yet, for one of `workers`. They will count in `stats`.
    pub fn new(workers: usize, stats: Arc<WorkerStats>) -> Self {
        Self {
            pools: RefCell::default(),
            gone: RefCell::default(),
            current: RefCell::default(),
            workers,
            stats,
        }
    }

    /// The pool of `upstream`.
    pub fn of(&self, upstream: &Arc<Upstream>) -> Rc<Pool> {
        let is_its = |pool: &Rc<Pool>| pool.upstream.number == upstream.number;
        let known = self
            .pools
            .borrow()
            .iter()
            .find(|&pool| is_its(pool))
            .cloned();
        if let Some(pool) = known.or_else(|| self.all_gone().find(is_its)) {
            return pool;
        }
        let pool = Rc::new(Pool::new(upstream.clone(), self.workers, &self.stats));
        // A request that began before a reload may need the pool of an upstream that was removed.
        match self.current.borrow().contains(&upstream.number) {
            true => self.pools.borrow_mut().push(pool.clone()),
            false => self.let_go(&pool),
        }
        pool
    }

    /// Pools of removed upstreams that are still in use.
    fn all_gone(&self) -> impl Iterator<Item = Rc<Pool>> {
        let mut gone = self.gone.borrow_mut();
        gone.retain(|pool| pool.strong_count() > 0);
        let pools: Vec<_> = gone.iter().filter_map(Weak::upgrade).collect();
        pools.into_iter()
    }

    fn let_go(&self, pool: &Rc<Pool>) {
        pool.is_gone.set(true);
        self.gone.borrow_mut().push(Rc::downgrade(pool));
    }

    /// Releases the pools of upstreams that are not in `upstreams`. Requests in progress keep theirs.
    pub fn retain(&self, upstreams: &[Arc<Upstream>]) {
        let numbers: Vec<_> = upstreams.iter().map(|upstream| upstream.number).collect();
        let is_current = |pool: &Rc<Pool>| numbers.contains(&pool.upstream.number);
        let mut pools = self.pools.borrow_mut();
        let gone: Vec<_> = pools.extract_if(.., |pool| !is_current(pool)).collect();
        drop(pools);
        gone.iter().for_each(|pool| self.let_go(pool));
        *self.current.borrow_mut() = numbers;
        let names = upstreams.iter().map(|upstream| &upstream.settings.name);
        self.stats
            .upstreams
            .retain(|name| names.clone().any(|known| known == name));
    }

    /// See [`Pool::sweep`].
    pub fn sweep(&self, now: Instant) {
        for pool in self.pools.borrow().iter() {
            pool.sweep(now);
        }
        self.all_gone().for_each(|pool| pool.sweep(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::tests::settings;

    fn pools(upstreams: &[Arc<Upstream>]) -> Pools {
        let pools = Pools::new(1, Arc::new(WorkerStats::new(0)));
        pools.retain(upstreams);
        pools
    }

    fn upstream(to: &str) -> Arc<Upstream> {
        Arc::new(Upstream::new(settings(&[to])).expect("upstream"))
    }

    #[test]
    fn requests_from_before_a_reload_share_one_pool() {
        let (old, new) = (upstream("127.0.0.1:1"), upstream("127.0.0.1:2"));
        let pools = pools(std::slice::from_ref(&old));
        let held = pools.of(&old);
        pools.retain(std::slice::from_ref(&new));
        assert!(Rc::ptr_eq(&held, &pools.of(&old)));
        drop(held);
        // The last handle was dropped: a new pool is made, and shared as well.
        let held = pools.of(&old);
        assert!(Rc::ptr_eq(&held, &pools.of(&old)));
        assert!(!Rc::ptr_eq(&held, &pools.of(&new)));
        assert!(Rc::ptr_eq(&pools.of(&new), &pools.of(&new)));
        drop(held);
        assert_eq!(pools.all_gone().count(), 0);
    }

    #[test]
    fn the_pool_of_a_removed_upstream_does_not_touch_metrics_of_a_new_one() {
        let (old, new) = (upstream("127.0.0.1:1"), upstream("127.0.0.1:2"));
        let pools = pools(std::slice::from_ref(&old));
        let held = pools.of(&old);
        pools.retain(std::slice::from_ref(&new));
        let (id, now) = (new.backends()[0].id, pools.of(&new));
        now.refresh_members();
        let cells = now.cells().backend(id, "a");
        held.refresh_members();
        assert!(Arc::ptr_eq(&cells, &now.cells().backend(id, "a")));
        drop(held);
        pools.of(&old).refresh_members();
        assert!(Arc::ptr_eq(&cells, &now.cells().backend(id, "a")));
    }
}
