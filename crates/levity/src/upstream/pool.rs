//! One worker's connections to an upstream's backends: how many there may be, which are idle, and who
//! waits for one.
//!
//! Each worker has its own, so that no loop ever waits for another. The bounds of the configuration are
//! divided among the workers.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time;

use super::Upstream;
use super::backend::{Backend, Begun};
use super::balance::{self, Balancer, Candidate};
use super::connection::Connection;
use super::failure::{Failure, NoSlot};
use super::failure_reports::FailureReports;
use super::sticky::Affinity;
use levity_config::upstream::Balance;
use levity_telemetry::diagnostics;
use levity_telemetry::stall::Watch;
use levity_telemetry::stats::WorkerStats;
use levity_telemetry::stats::upstream::{BackendCells, UpstreamCells};
use levity_telemetry::trace::Side;

/// Requests that are passed over at a time for one behind them. Where each belongs to a backend, all may
/// wait for the same one, and to look at each of a queue without end whenever a slot becomes free would
/// take the loop longer than the requests themselves.
const PASSED_OVER_MAX: usize = 1024;

/// A worker's view of an upstream.
pub struct Pool {
    upstream: Arc<Upstream>,
    bounds: Bounds,
    /// As of `seen`.
    members: RefCell<Vec<Rc<Member>>>,
    seen: RefCell<Arc<Vec<Arc<Backend>>>>,
    /// Requests that wait for a connection, in their order; some may have given up.
    waiting: RefCell<VecDeque<Waiting>>,
    balancer: RefCell<Balancer>,
    failure_reports: RefCell<FailureReports>,
    cells: Arc<UpstreamCells>,
    /// The configuration has its upstream no more. Another of the same name may count in the same cells.
    is_gone: Cell<bool>,
    /// Kept for their allocations.
    usable: RefCell<Vec<usize>>,
    candidates: RefCell<Vec<Candidate>>,
}

/// What a request asks of a pool.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The backends that it was tried at.
    pub tried: Vec<u64>,
    /// Where its client belongs.
    pub affinity: Affinity,
    /// What it asks for, as a number.
    pub key: u64,
}

/// A request that waits.
struct Waiting {
    wanted: Wanted,
    answer: oneshot::Sender<Result<Lease, NoSlot>>,
}

/// The part of an upstream's bounds that one worker has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    connections: usize,
    idle: usize,
    queue: usize,
}

/// A backend, as one worker sees it.
pub struct Member {
    /// Whose connections these are.
    pub backend: Arc<Backend>,
    /// What is counted of it.
    pub cells: Arc<BackendCells>,
    idle: RefCell<VecDeque<Connection>>,
    /// Connections that are in use or are being made.
    busy: Cell<u32>,
}

/// The right to one connection to a backend, and that connection once there is one. Given back when it
/// is dropped; the connection is closed then unless it was [kept](Lease::keep).
pub struct Lease {
    pool: Rc<Pool>,
    member: Rc<Member>,
    connection: Option<Connection>,
    /// The connection has carried a request before.
    pub is_reused: bool,
    begun: Begun,
}

/// The backend that a response comes from; it outlives the lease.
#[derive(Clone)]
pub struct Endpoint {
    pool: Rc<Pool>,
    member: Rc<Member>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").finish_non_exhaustive()
    }
}

impl Endpoint {
    /// The upstream.
    pub fn upstream(&self) -> &Arc<Upstream> {
        &self.pool.upstream
    }

    /// Reports that a response failed: before any of it was sent, or after its beginning was.
    pub fn report(&self, failure: &Failure, is_untouched: bool) {
        match is_untouched {
            true => self.pool.report(failure, None),
            false => self.pool.report_cut(failure, &self.member.backend),
        }
    }
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

/// Connections to one backend, and requests that wait for one, that all of `workers` allow together.
pub fn bounds_of_all(settings: &levity_config::Upstream, workers: usize) -> (usize, usize) {
    let bounds = Bounds::of_one(settings, workers);
    (bounds.connections * workers, bounds.queue * workers)
}

impl Pool {
    /// Without connections, for one of `workers`, which counts in `stats`.
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
            upstream,
        }
    }

    /// Whose pool it is.
    pub fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    /// What is counted of it.
    pub fn cells(&self) -> &Arc<UpstreamCells> {
        &self.cells
    }

    /// Tells the operator of a failure, unless it is the client's own affair, or the same has been told
    /// within the second: then how often it was follows.
    pub fn report(&self, failure: &Failure, backend: Option<&Backend>) {
        self.complain_with(failure, backend, || failure.outcome());
    }

    /// The same of a failure within an answer whose beginning the client has.
    fn report_cut(&self, failure: &Failure, backend: &Backend) {
        let outcome = || "; its answer had begun, and is cut off".to_owned();
        self.complain_with(failure, Some(backend), outcome);
    }

    fn complain_with(
        &self,
        failure: &Failure,
        backend: Option<&Backend>,
        outcome: impl Fn() -> String,
    ) {
        if failure.side == Side::Client {
            return;
        }
        let (id, reason) = (backend.map(|backend| backend.id), &failure.reason);
        let line = || failure.line(&self.upstream.settings.name, backend, &outcome());
        let mut failure_reports = self.failure_reports.borrow_mut();
        failure_reports.add(Instant::now(), id, reason, line, say);
    }

    /// Takes a slot at a backend, with an idle connection if there is one.
    /// Waits for it, behind others who wait.
    pub async fn slot(self: &Rc<Self>, wanted: &Wanted) -> Result<Lease, NoSlot> {
        self.look_again();
        let is_first = self.waiting.borrow().is_empty();
        if is_first && let Some(lease) = self.take(wanted)? {
            return Ok(lease);
        }
        let answer = self
            .wait(wanted)
            .inspect_err(|_| self.cells.queue_full.add(1))?;
        let _queued = self.cells.queued();
        if !is_first {
            // A backend may have come back since the others began to wait.
            self.hand_on();
        }
        let patience = self.upstream.settings.queue_timeout;
        match time::timeout(patience, answer).await {
            Ok(answer) => answer.expect("who waits is answered"),
            Err(_) => {
                self.cells.queue_timeouts.add(1);
                Err(NoSlot::QueueTimeout)
            }
        }
    }

    /// Whether there is a backend that a request has not been tried at.
    pub fn has_left(&self, wanted: &Wanted) -> bool {
        let is_left = |member: &Rc<Member>| {
            !member.backend.drain && !wanted.tried.contains(&member.backend.id)
        };
        self.members.borrow().iter().any(is_left)
    }

    /// Joins those who wait.
    fn wait(&self, wanted: &Wanted) -> Result<oneshot::Receiver<Result<Lease, NoSlot>>, NoSlot> {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= self.bounds.queue {
            waiting.retain(|one| !one.answer.is_closed());
        }
        if waiting.len() >= self.bounds.queue {
            return Err(NoSlot::QueueFull);
        }
        let (answer, receiver) = oneshot::channel();
        waiting.push_back(Waiting {
            wanted: wanted.clone(),
            answer,
        });
        Ok(receiver)
    }

    /// Gives what has become free to the first who can use it: no newcomer comes before it.
    pub fn hand_on(self: &Rc<Self>) {
        let mut passed_over = Vec::new();
        let mut anybody_is_full = false;
        while passed_over.len() < PASSED_OVER_MAX && self.may_have_room() {
            let next = self.waiting.borrow_mut().pop_front();
            let Some(one) = next else { break };
            if one.answer.is_closed() {
                continue;
            }
            let takes_anybody = self.takes_anybody(&one.wanted);
            if takes_anybody && anybody_is_full {
                passed_over.push(one);
                continue;
            }
            // What nobody takes any more is handed on as it is dropped.
            match self.take(&one.wanted) {
                Ok(Some(lease)) => {
                    let _ = one.answer.send(Ok(lease));
                }
                Err(none) => {
                    let _ = one.answer.send(Err(none));
                }
                Ok(None) => {
                    anybody_is_full |= takes_anybody;
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

    /// Whether some backend may take one more, or there is none, which those who wait are to be told.
    fn may_have_room(&self) -> bool {
        let members = self.members.borrow();
        let has_room = |member: &Rc<Member>| member.has_room(self.bounds.connections);
        members.is_empty() || members.iter().any(has_room)
    }

    /// Whether one backend is as good as another for this request, and for all others of which that is true.
    fn takes_anybody(&self, wanted: &Wanted) -> bool {
        wanted.tried.is_empty() && wanted.affinity == Affinity::Free && !self.is_fixed(wanted)
    }

    /// A slot that is free now; `None` when all are taken.
    fn take(self: &Rc<Self>, wanted: &Wanted) -> Result<Option<Lease>, NoSlot> {
        let now = Watch::poll_began();
        let backends = self.seen.borrow();
        let members = self.members.borrow();
        let mut usable = self.usable.borrow_mut();
        let (tried, tied) = (&wanted.tried, wanted.affinity.backend());
        loop {
            let are_up = balance::usable(&backends, now, tried, tied, &mut usable);
            if usable.is_empty() {
                // The configuration has at least one that does not drain.
                return Err(match tried.is_empty() {
                    true => NoSlot::NoAddress,
                    false => NoSlot::Exhausted,
                });
            }
            let has_room = |at: usize| members[at].has_room(self.bounds.connections);
            if !self.is_fixed(wanted) {
                usable.retain(|&at| has_room(at));
            }
            let chosen = self.choose(&members, &usable, wanted, now);
            let Some(at) = chosen.filter(|&at| has_room(usable[at])) else {
                return Ok(None);
            };
            let member = &members[usable[at]];
            let begun = match are_up {
                true => member.backend.begin(now, self.trial_max()),
                false => Some(Begun::Ordinary),
            };
            // Another request may be trying whether it is back, so that it is not up now.
            let Some(begun) = begun else { continue };
            if begun == Begun::Trial {
                // What was kept from before says nothing of the backend when it fails.
                member.close_idle();
            }
            let connection = member.take_idle(now, self.upstream.settings.keep_alive_timeout);
            return Ok(Some(Lease {
                pool: self.clone(),
                member: member.clone(),
                is_reused: connection.is_some(),
                connection,
                begun,
            }));
        }
    }

    /// Whether a request has one backend where it belongs, and rather waits for that than goes to another.
    fn is_fixed(&self, wanted: &Wanted) -> bool {
        let is_by_order = matches!(
            self.upstream.settings.balance,
            Balance::Carp | Balance::Static
        );
        is_by_order || matches!(wanted.affinity, Affinity::Key(_))
    }

    /// Which of the members at these slots gets the request.
    fn choose(
        &self,
        members: &[Rc<Member>],
        usable: &[usize],
        wanted: &Wanted,
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
        match wanted.affinity {
            Affinity::Key(key) => balance::rendezvous(&candidates, key),
            _ => self.balancer.borrow_mut().choose(&candidates, wanted.key),
        }
    }

    /// How long a backend may take to show whether it is back.
    fn trial_max(&self) -> Duration {
        let settings = &self.upstream.settings;
        settings.connect_timeout + settings.first_byte_timeout
    }

    /// Takes over a list of backends that has changed. Connections to those that are gone live until
    /// their request is over.
    fn look_again(&self) {
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
                let cells = || self.cells.backend(backend.id, &backend.name);
                member.unwrap_or_else(|| Rc::new(Member::new(backend.clone(), cells())))
            })
            .collect();
        if !self.is_gone.get() {
            self.cells.retain(now.iter().map(|backend| backend.id));
        }
        *self.seen.borrow_mut() = now;
    }

    /// Closes idle connections that were closed at the other end, or have been idle for too long, and
    /// tells what there is to tell.
    pub fn sweep(&self, now: Instant) {
        let age_max = self.upstream.settings.keep_alive_timeout;
        for member in self.members.borrow().iter() {
            member.sweep(now, age_max);
        }
        self.failure_reports.borrow_mut().sweep(now, say);
    }
}

fn say(line: &str) {
    diagnostics::log(format_args!("{line}"));
}

impl Member {
    fn new(backend: Arc<Backend>, cells: Arc<BackendCells>) -> Self {
        Self {
            backend,
            cells,
            idle: RefCell::default(),
            busy: Cell::new(0),
        }
    }

    fn has_room(&self, connections_max: usize) -> bool {
        (self.busy.get() as usize) < connections_max
    }

    /// Closes idle connections that are of no more use.
    fn sweep(&self, now: Instant, age_max: Duration) {
        let mut idle = self.idle.borrow_mut();
        let before = idle.len();
        idle.retain_mut(|connection| connection.is_fresh(now, age_max));
        if idle.len() < before {
            self.cells.idle.down((before - idle.len()) as u64);
        }
    }

    fn close_idle(&self) {
        let mut idle = self.idle.borrow_mut();
        self.cells.idle.down(idle.len() as u64);
        idle.clear();
    }

    /// The connection that was used last, so that those which are not needed grow old. Counts one more in
    /// use in any case.
    fn take_idle(&self, now: Instant, age_max: Duration) -> Option<Connection> {
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
    /// Its idle connections are closed, while those of another with the same cells may live.
    fn drop(&mut self) {
        self.cells.idle.down(self.idle.borrow().len() as u64);
    }
}

impl Lease {
    /// The backend.
    pub fn backend(&self) -> &Arc<Backend> {
        &self.member.backend
    }

    /// The same, as this worker sees it.
    pub fn member(&self) -> &Rc<Member> {
        &self.member
    }

    /// The backend, for as long as its response takes.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            pool: self.pool.clone(),
            member: self.member.clone(),
        }
    }

    /// The connection.
    ///
    /// # Panics
    /// Before there is one: see [`Lease::open`].
    pub fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("it was opened")
    }

    /// Whether the backend takes more of the request now.
    pub fn has_room(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(|connection| connection.codec.room() > 0)
    }

    /// Closes the connection that was idle, if it is one: [`Lease::open`] makes a new one in its place.
    pub fn close_idle(&mut self) {
        self.connection = None;
        self.is_reused = false;
    }

    /// Connects to the backend, if that has not been done, or has been of no use.
    ///
    /// # Errors
    /// As [`Connection::open`].
    pub async fn open(&mut self) -> io::Result<()> {
        let settings = &self.pool.upstream.settings;
        if let Some(idle) = &mut self.connection
            && !idle.is_alive(settings.connect_timeout).await
        {
            self.connection = None;
            self.is_reused = false;
        }
        if self.connection.is_some() {
            self.member.cells.reused.add(1);
            return Ok(());
        }
        let backend = &self.member.backend;
        let opened = Connection::open(backend, settings.protocol, settings.connect_timeout);
        // Boxed, as a kept connection is the rule: see `gateway`.
        self.connection = Some(Box::pin(opened).await?);
        self.member.cells.made.add(1);
        Ok(())
    }

    /// Keeps the connection for another request, if there is room among the idle ones: together with
    /// those in use they are never more than may be open.
    pub fn keep(mut self) {
        if let Some(connection) = &mut self.connection {
            connection.idle_since = Watch::poll_began();
        }
        self.put_back();
    }

    /// As [`Lease::keep`], where nothing was sent: it has been idle all along.
    pub fn put_back(mut self) {
        let mut idle = self.member.idle.borrow_mut();
        if idle.len() < self.pool.bounds.idle
            && let Some(connection) = self.connection.take()
        {
            idle.push_back(connection);
            self.member.cells.idle.up(1);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let busy = &self.member.busy;
        busy.set(busy.get() - 1);
        self.member.cells.in_use.down(1);
        if self.begun == Begun::Trial {
            self.member.backend.end_trial(Watch::poll_began());
        }
        self.pool.hand_on();
    }
}

/// The pools of a worker.
pub struct Pools {
    pools: RefCell<Vec<Rc<Pool>>>,
    /// Those of upstreams that are gone, which requests of before still ask: together within the bounds.
    gone: RefCell<Vec<Weak<Pool>>>,
    /// Numbers of the upstreams that there are now.
    current: RefCell<Vec<u32>>,
    workers: usize,
    stats: Arc<WorkerStats>,
}

impl Pools {
    /// None yet, of one of `workers`, which counts in `stats`.
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
        // A request that began before a reload may still ask for the pool of what is gone since.
        match self.current.borrow().contains(&upstream.number) {
            true => self.pools.borrow_mut().push(pool.clone()),
            false => self.let_go(&pool),
        }
        pool
    }

    /// Those that somebody still has.
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

    /// Lets go of pools whose upstream is not among `upstreams`. Requests in hand keep theirs.
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
    fn requests_of_before_a_reload_share_one_pool() {
        let (old, new) = (upstream("127.0.0.1:1"), upstream("127.0.0.1:2"));
        let pools = pools(std::slice::from_ref(&old));
        let held = pools.of(&old);
        pools.retain(std::slice::from_ref(&new));
        assert!(Rc::ptr_eq(&held, &pools.of(&old)));
        drop(held);
        // Nobody had it: another is made, and that is shared too.
        let held = pools.of(&old);
        assert!(Rc::ptr_eq(&held, &pools.of(&old)));
        assert!(!Rc::ptr_eq(&held, &pools.of(&new)));
        assert!(Rc::ptr_eq(&pools.of(&new), &pools.of(&new)));
        drop(held);
        assert_eq!(pools.all_gone().count(), 0);
    }

    #[test]
    fn a_pool_of_before_a_reload_leaves_the_figures_of_what_is_new() {
        let (old, new) = (upstream("127.0.0.1:1"), upstream("127.0.0.1:2"));
        let pools = pools(std::slice::from_ref(&old));
        let held = pools.of(&old);
        pools.retain(std::slice::from_ref(&new));
        let (id, now) = (new.backends()[0].id, pools.of(&new));
        now.look_again();
        let cells = now.cells().backend(id, "a");
        held.look_again();
        assert!(Arc::ptr_eq(&cells, &now.cells().backend(id, "a")));
        drop(held);
        pools.of(&old).look_again();
        assert!(Arc::ptr_eq(&cells, &now.cells().backend(id, "a")));
    }
}
