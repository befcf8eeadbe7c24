//! The state that the tasks of one event loop share.
//!
//! A `Location` has the numbers of its site and of its log. A worker's [`LocalService`] pairs the
//! `Service` with a [`LoopConfig`]: the ends of its logs and its counters of sites, in that order,
//! so a request finds both without a search, and those with which it began. A reload gives each
//! worker new ends; `process/log_writers.rs` keeps the writer of a file that is still used. Old
//! ends are flushed like new ones until the last request of the old `Service` ends. Counters are
//! found again by the name of the site. What a loop has whatever it serves is [`LoopCore`].

use std::cell::RefCell;
use std::mem;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_disk::{Disk, Watcher};
use levity_net::SWEEP_INTERVAL;
use levity_telemetry::access_log::{Log, Record};
use levity_telemetry::popular::Popular;
use levity_telemetry::stats::WorkerStats;
use levity_telemetry::stats::site::SiteCells;
use tokio::task;
use tokio::time;

use crate::credentials::verdicts::Verdicts;
use crate::explanation::Explanation;
use crate::files::cache::{Cache, SharedCache};
use crate::loop_core::completions::Completions;
use crate::loop_core::compute::Compute;
use crate::loop_core::config::LoopConfig;
use crate::loop_core::zero_copy::ZeroCopy;
use crate::loop_core::{CoreParts, LoopCore};
use crate::mailboxes::Copies;
use crate::route::{Location, Service};
use crate::shares::Shares;
use crate::stores::variants::candidates::Candidates;
use crate::upstream::pool::Pools;

/// Requests that need no disk, per sweep: from this number on they have priority over reads.
const HOT_REQUESTS_MIN: u64 = 10;

/// For how long they have it.
const HOT_TIME: Duration = SWEEP_INTERVAL.saturating_mul(3);

/// The parts of a worker.
pub struct WorkerParts {
    /// The configuration.
    pub service: Arc<Service>,
    /// The disk, shared with the other workers.
    pub disk: Arc<Disk>,
    /// What computes off the loop, shared with the other workers.
    pub compute: Arc<Compute>,
    /// What clients share, of all workers.
    pub shares: Arc<Shares>,
    /// The shared cache.
    pub cache: Arc<SharedCache>,
    /// The source of change notifications for files, if any.
    pub watcher: Option<Arc<Watcher>>,
    /// Sends files without a copy.
    pub zero_copy: ZeroCopy,
    /// The worker's counters.
    pub stats: Arc<WorkerStats>,
    /// The worker's ends of the access logs of `service`.
    pub logs: Vec<Log>,
    /// The maximum number of connections.
    pub connections_max: usize,
    /// The number of workers.
    pub workers: usize,
    /// The maximum number of pipes for bodies.
    pub pipes_max: usize,
    /// For `levity explain`: nothing is asked of upstreams, and nothing is written.
    pub explanation: Option<Explanation>,
}

/// A compiled configuration as one event loop uses it. A request keeps the one that it began with, and is logged and counted
/// there. Requests count references to it that no other worker's requests count too.
pub struct LocalService {
    service: Arc<Service>,
    /// The configuration, and the loop's ends of its logs.
    pub own: Rc<LoopConfig>,
}

impl LocalService {
    fn new(service: Arc<Service>, logs: Vec<Log>, stats: &WorkerStats) -> Self {
        let limits = service.wire_limits.clone();
        let own = LoopConfig::new(&service.config, limits, service.memory_engine, logs, stats);
        Self {
            service,
            own: Rc::new(own),
        }
    }

    /// Logs a finished request in the log of `location`, if it has one. `None` stands for a request without a location.
    pub fn log_request<'r>(
        &self,
        location: Option<&Location>,
        record: impl FnOnce() -> Record<'r>,
    ) {
        self.own.log_in(self.log_of(location), record);
    }

    /// The number of the log of `location`; `None` if it is off.
    pub fn log_of(&self, location: Option<&Location>) -> Option<usize> {
        location.map_or(self.service.log, |location| location.log)
    }

    /// The name of the site of `location`.
    pub fn name_of_site(&self, location: &Location) -> &str {
        self.own.site_name(location.site)
    }

    /// The counters of the site of `location`.
    pub fn site_of(&self, location: &Location) -> &SiteCells {
        self.own.site_cells(location.site)
    }
}

impl Deref for LocalService {
    type Target = Arc<Service>;

    fn deref(&self) -> &Arc<Service> {
        &self.service
    }
}

/// The state of an event loop. Only its own tasks use it.
pub struct Worker {
    /// What is the same whatever the loop serves.
    pub core: Rc<LoopCore>,
    service: RefCell<Rc<LocalService>>,
    /// The file cache.
    pub cache: Cache,
    /// The source of change notifications for files, if any.
    pub watcher: Option<Arc<Watcher>>,
    /// Counts of requested files.
    pub popular: RefCell<Popular>,
    /// Files that are compressed often on their way.
    pub candidates: RefCell<Candidates>,
    /// Connections to backends.
    pub pools: Pools,
    /// The copies of mailboxes that receivers read here.
    pub mailboxes: Rc<Copies>,
    /// The copies of the event streams that `resume` keeps.
    pub resume: Rc<Copies>,
    /// What is known about passwords.
    pub verdicts: RefCell<Verdicts>,
    /// For `levity explain`: nothing is asked of upstreams, and nothing is written.
    pub explanation: Option<Explanation>,
}

impl Worker {
    /// A worker without connections.
    pub fn new(
        parts: WorkerParts,
        completions: Completions,
        mailboxes: Rc<Copies>,
        resume: Rc<Copies>,
    ) -> Self {
        let pools = Pools::new(parts.workers, parts.stats.clone());
        pools.retain(&parts.service.upstreams);
        let service = LocalService::new(parts.service, parts.logs, &parts.stats);
        let core = LoopCore::new(CoreParts {
            disk: parts.disk,
            compute: parts.compute,
            shares: parts.shares,
            completions,
            zero_copy: parts.zero_copy,
            stats: parts.stats,
            config: service.own.clone(),
            connections_max: parts.connections_max,
            pipes_max: parts.pipes_max,
        });
        Self {
            core: Rc::new(core),
            service: RefCell::new(Rc::new(service)),
            cache: Cache::new(parts.cache),
            watcher: parts.watcher,
            popular: RefCell::new(Popular::new(Instant::now())),
            candidates: RefCell::new(Candidates::new(Instant::now())),
            pools,
            mailboxes,
            resume,
            verdicts: RefCell::default(),
            explanation: parts.explanation,
        }
    }

    /// Replaces the configuration and its access logs.
    pub fn set_service(&self, service: Arc<Service>, logs: Vec<Log>) {
        self.pools.retain(&service.upstreams);
        let service = LocalService::new(service, logs, &self.core.stats);
        self.core.set_config(service.own.clone());
        *self.service.borrow_mut() = Rc::new(service);
        self.cache.clear();
    }

    /// The current configuration. A request keeps the one that it began with.
    pub fn service(&self) -> Rc<LocalService> {
        self.service.borrow().clone()
    }

    /// Handles deadlines, the clock, expiry and the log, forever.
    pub async fn sweep(self: Rc<Self>) {
        let mut ticks = time::interval(SWEEP_INTERVAL);
        ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        let mut without_disk = 0;
        let core = &self.core;
        loop {
            ticks.tick().await;
            let before = mem::replace(&mut without_disk, core.stats.requests_without_disk());
            if without_disk - before >= HOT_REQUESTS_MIN {
                core.disk.loops_first(HOT_TIME);
            }
            let mut next = Some(0);
            while let Some(first) = next {
                next = core.timers.sweep(Instant::now(), first);
                if next.is_some() {
                    task::yield_now().await;
                }
            }
            let service = self.service();
            let ttl = service.config.disk.entry_ttl;
            self.cache.expire(Instant::now(), ttl);
            service.sweep(&core.disk, Instant::now());
            self.pools.sweep(Instant::now());
            self.popular.borrow_mut().sweep(Instant::now());
            core.sweep();
        }
    }
}
