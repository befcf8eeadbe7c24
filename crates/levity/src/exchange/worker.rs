//! The state that the tasks of one event loop share.

use std::cell::{Cell, RefCell};
use std::io;
use std::mem;
use std::ops::Deref;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use levity_disk::memory::SpareMemory;
use levity_disk::{Disk, PageSender, SendThread, Watcher};
use levity_mailbox::Copies;
use levity_net::{Idle, OldestIdle, SWEEP_INTERVAL, TURN_BYTES_MAX, Timers};
use levity_telemetry::access_log::{Log, Record};
use levity_telemetry::diagnostics;
use levity_telemetry::popular::Popular;
use levity_telemetry::stats::WorkerStats;
use levity_telemetry::stats::site::SiteCells;
use levity_wire::date;
use tokio::sync::{Notify, Semaphore};
use tokio::task;
use tokio::time;

use crate::compute::Compute;
use crate::credentials::verdicts::Verdicts;
use crate::explanation::Explanation;
use crate::files::cache::{Cache, SharedCache};
use crate::files::completions::Completions;
use crate::loop_core::failure_reports::{FailureReports, Key};
use crate::loop_core::limit::Limit;
use crate::loop_core::pipes::Pipes;
use crate::message::request::Request;
use crate::route::{Location, Service};
use crate::shares::Shares;
use crate::shares::stakes::Stakes;
use crate::stores::variants::candidates::Candidates;
use crate::tls;
use crate::upstream::pool::Pools;

/// How long a new connection of a draining worker waits for a request, which may be on its way.
pub const FIRST_REQUEST_TIME: Duration = Duration::from_secs(1);

/// The maximum of idle connections that are found at a time, to give way to new ones.
pub const OLDEST_IDLE_MAX: usize = 32;

/// The size of a read from a client in bytes: the largest request header.
const INBOUND_BYTES: usize = 16 * 1024;

/// The size of a piece of a body in bytes.
const BULK_BYTES: usize = 64 * 1024;

/// The maximum capacity of a header buffer that is kept for reuse.
const HEAD_KEPT_MAX: usize = 16 * 1024;

/// The maximum capacity of a buffer of frames that is kept for reuse.
const FRAMES_KEPT_MAX: usize = 256 * 1024;

/// The maximum of requests that are kept for reuse: as many as a busy event loop handles at a time.
const REQUESTS_KEPT_MAX: usize = 64;

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
    /// The maximum of connections.
    pub connections_max: usize,
    /// The number of workers.
    pub workers: usize,
    /// The maximum of pipes for bodies.
    pub pipes_max: usize,
    /// For `levity explain`: nothing is asked of upstreams, and nothing is written.
    pub explanation: Option<Explanation>,
}

/// What sends files without a copy.
pub struct ZeroCopy {
    /// For cached bodies, where the kernel allows it; borrowed within one poll.
    pub pages: RefCell<Option<PageSender>>,
    /// For large files in the page cache.
    pub thread: Option<SendThread>,
    /// The maximum of responses that the thread sends: each has a second descriptor of its socket.
    pub transfers: Limit,
    /// No sandbox refuses `splice`.
    may_splice: bool,
}

impl ZeroCopy {
    /// For a worker that sends at most `transfers_max` large files at a time. May block.
    ///
    /// # Errors
    /// As [`SendThread::start`].
    pub fn start(transfers_max: usize) -> io::Result<Self> {
        // Tries the calls.
        let pages = PageSender::new(TURN_BYTES_MAX).ok();
        Ok(Self {
            may_splice: pages.is_some(),
            pages: RefCell::new(pages),
            thread: Some(SendThread::start()?),
            transfers: Limit::new(transfers_max),
        })
    }

    /// For a worker that copies.
    #[cfg(test)]
    pub fn none() -> Self {
        Self {
            pages: RefCell::default(),
            thread: None,
            transfers: Limit::new(0),
            may_splice: true,
        }
    }
}

/// A configuration as one event loop uses it. A request keeps the one that it began with, and is logged and counted
/// there. Requests count references to it that no other worker's requests count too.
pub struct LocalService {
    service: Arc<Service>,
    /// The ends of the access logs, in the order of [`Service::logs`].
    logs: Vec<Rc<RefCell<Log>>>,
    /// The counters of sites, in their order.
    sites: Vec<Arc<SiteCells>>,
}

impl LocalService {
    fn new(service: Arc<Service>, logs: Vec<Log>, stats: &WorkerStats) -> Self {
        let names = service.config.sites.iter().map(levity_config::Site::name);
        Self {
            sites: stats.sites.replace(names),
            logs: logs
                .into_iter()
                .map(|log| Rc::new(RefCell::new(log)))
                .collect(),
            service,
        }
    }

    /// Logs a finished request in the log of `location`, if it has one. `None` stands for a request without a location.
    pub fn log_request<'r>(
        &self,
        location: Option<&Location>,
        record: impl FnOnce() -> Record<'r>,
    ) {
        let log = location.map_or(self.service.log, |location| location.log);
        self.log_in(log, record);
    }

    /// Logs a finished request in the log of that number, if there is one.
    pub fn log_in<'r>(&self, log: Option<usize>, record: impl FnOnce() -> Record<'r>) {
        if let Some(log) = log.and_then(|log| self.logs.get(log)) {
            log.borrow_mut().record(&record());
        }
    }

    /// The name of the site of `location`.
    pub fn name_of_site(&self, location: &Location) -> &str {
        self.site_name(location.site)
    }

    /// The name of the site of that number.
    pub fn site_name(&self, site: usize) -> &str {
        self.service.config.sites[site].name()
    }

    /// The counters of the site of `location`.
    pub fn site_of(&self, location: &Location) -> &SiteCells {
        self.site_cells(location.site)
    }

    /// The counters of the site of that number.
    pub fn site_cells(&self, site: usize) -> &SiteCells {
        &self.sites[site]
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
    /// The disk.
    pub disk: Arc<Disk>,
    /// What computes off the loop.
    pub compute: Arc<Compute>,
    /// What its exchanges hold of what clients share.
    pub stakes: Rc<Stakes>,
    /// Where the disk completes the jobs of requests.
    pub completions: Completions,
    /// The file cache.
    pub cache: Cache,
    /// The source of change notifications for files, if any.
    pub watcher: Option<Arc<Watcher>>,
    /// The copies of mailboxes that receivers read here.
    pub mailboxes: Rc<Copies>,
    /// The copies of the event streams that `resume` keeps.
    pub resume: Rc<Copies>,
    /// Counters.
    pub stats: Arc<WorkerStats>,
    /// Connections to backends.
    pub pools: Pools,
    /// The deadlines of all connections.
    pub timers: Timers,
    /// The buffer for reads from clients and for joining small writes; borrowed within one poll.
    pub inbound: RefCell<Box<[u8]>>,
    /// The buffer for reads of request bodies and of tunnels; borrowed within one poll.
    pub bulk: RefCell<Box<[u8]>>,
    /// The buffer for reads of frames from clients; borrowed within one poll.
    pub frames_in: RefCell<Box<[u8]>>,
    /// The buffer for reads of responses from backends; borrowed within one poll.
    pub backend_bytes: RefCell<Box<[u8]>>,
    /// The buffer between the page cache and clients; borrowed within one poll.
    pub outbound: RefCell<Vec<u8>>,
    /// Pipes for bodies that nobody has to read.
    pub pipes: Rc<Pipes>,
    /// Sends files without a copy.
    pub zero_copy: ZeroCopy,
    /// A buffer for a piece of a body from a backend.
    piece: Cell<Vec<u8>>,
    /// A buffer for a response header.
    head: Cell<Vec<u8>>,
    /// A buffer for frames.
    frames_out: Cell<Vec<u8>>,
    /// Memory for the future of an exchange.
    pub exchange_memory: SpareMemory,
    service: RefCell<Rc<LocalService>>,
    #[expect(clippy::vec_box, reason = "they travel in and out in their boxes")]
    requests: RefCell<Vec<Box<Request>>>,
    /// The logs of this configuration, and of earlier ones that requests still have.
    logs: RefCell<Vec<Weak<RefCell<Log>>>>,
    /// Counts of requested files.
    pub popular: RefCell<Popular>,
    /// What is known about passwords.
    pub verdicts: RefCell<Verdicts>,
    /// Files that are compressed often on their way.
    pub candidates: RefCell<Candidates>,
    /// Time-outs of the disk that were logged recently.
    time_outs: RefCell<FailureReports>,
    time: Cell<Time>,
    draining: Cell<bool>,
    background_tasks: Cell<usize>,
    /// For `levity explain`: nothing is asked of upstreams, and nothing is written.
    pub explanation: Option<Explanation>,
    /// Failed handshakes in the log.
    pub handshake_reports: tls::Reports,
    /// One permit per connection.
    pub slots: Arc<Semaphore>,
    /// Connections that give way to new ones if they still wait for a request; the last one first.
    oldest_idle: RefCell<Vec<Idle>>,
    /// Notified when a connection or a background task ends.
    pub work_ended: Notify,
}

/// One moment on both clocks, and as an HTTP date.
#[derive(Clone, Copy)]
struct Time {
    instant: Instant,
    wall: SystemTime,
    date: [u8; date::LEN],
}

impl Time {
    fn now() -> Self {
        let (wall, instant) = clocks();
        let since = wall.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self {
            instant,
            wall,
            date: date::format(since.as_secs()),
        }
    }
}

/// Both clocks at one moment. A thread that loses its processor between two reads gets two moments; it reads them again.
fn clocks() -> (SystemTime, Instant) {
    const APART_MAX: Duration = Duration::from_micros(10);
    const READS_MAX: usize = 8;
    let read = || {
        let before = Instant::now();
        let wall = SystemTime::now();
        let instant = Instant::now();
        (instant - before, wall, instant)
    };
    let mut closest = read();
    for _ in 1..READS_MAX {
        if closest.0 <= APART_MAX {
            break;
        }
        closest = closest.min(read());
    }
    (closest.1, closest.2)
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
        let logs = service.logs.iter().map(Rc::downgrade).collect();
        Self {
            disk: parts.disk,
            compute: parts.compute,
            stakes: Stakes::new(parts.shares),
            completions,
            cache: Cache::new(parts.cache),
            watcher: parts.watcher,
            mailboxes,
            resume,
            pools,
            stats: parts.stats,
            timers: Timers::default(),
            inbound: RefCell::new(vec![0; INBOUND_BYTES].into_boxed_slice()),
            bulk: RefCell::new(vec![0; BULK_BYTES].into_boxed_slice()),
            frames_in: RefCell::new(vec![0; BULK_BYTES].into_boxed_slice()),
            backend_bytes: RefCell::new(vec![0; TURN_BYTES_MAX].into_boxed_slice()),
            outbound: RefCell::default(),
            pipes: Pipes::new(match parts.zero_copy.may_splice {
                true => parts.pipes_max,
                false => 0,
            }),
            zero_copy: parts.zero_copy,
            piece: Cell::default(),
            head: Cell::default(),
            frames_out: Cell::default(),
            exchange_memory: SpareMemory::default(),
            service: RefCell::new(Rc::new(service)),
            requests: RefCell::default(),
            logs: RefCell::new(logs),
            popular: RefCell::new(Popular::new(Instant::now())),
            verdicts: RefCell::default(),
            candidates: RefCell::new(Candidates::new(Instant::now())),
            time_outs: RefCell::default(),
            time: Cell::new(Time::now()),
            draining: Cell::new(false),
            background_tasks: Cell::new(0),
            explanation: parts.explanation,
            handshake_reports: tls::Reports::default(),
            slots: Arc::new(Semaphore::new(parts.connections_max)),
            oldest_idle: RefCell::default(),
            work_ended: Notify::new(),
        }
    }

    /// Replaces the configuration and its access logs.
    pub fn set_service(&self, service: Arc<Service>, logs: Vec<Log>) {
        self.pools.retain(&service.upstreams);
        let service = LocalService::new(service, logs, &self.stats);
        let logs = service.logs.iter().map(Rc::downgrade);
        self.logs.borrow_mut().extend(logs);
        // Before those of the old configuration are dropped.
        self.flush_logs();
        *self.service.borrow_mut() = Rc::new(service);
        self.cache.clear();
    }

    /// The current configuration. A request keeps the one that it began with.
    pub fn service(&self) -> Rc<LocalService> {
        self.service.borrow().clone()
    }

    /// Whether each request needs a check of its file that was made after it arrived: `disk.entry_ttl` is zero.
    pub fn checks_each_request(&self) -> bool {
        let service = self.service.borrow();
        service.config.disk.entry_ttl.is_zero()
    }

    /// A request to parse into, with the allocations of an earlier one.
    pub fn take_request(&self) -> Box<Request> {
        self.requests.borrow_mut().pop().unwrap_or_default()
    }

    /// An empty buffer with a capacity of at most `bytes_max` for a piece of a body from a backend. The last one returned
    /// is probably still in the processor's caches, in contrast to a new allocation.
    pub fn take_piece(&self, bytes_max: usize) -> Vec<u8> {
        let piece = self.piece.take();
        if piece.capacity() <= bytes_max {
            return piece;
        }
        // A read fills all of it, and a slow client would hold that.
        self.piece.set(piece);
        Vec::new()
    }

    /// Returns the buffer once the piece has been sent.
    pub fn return_piece(&self, mut piece: Vec<u8>) {
        if (1..=TURN_BYTES_MAX).contains(&piece.capacity()) {
            piece.clear();
            self.piece.set(piece);
        }
    }

    /// An empty buffer for a response header.
    pub fn take_head(&self) -> Vec<u8> {
        self.head.take()
    }

    /// Returns the buffer once the header has been sent.
    pub fn return_head(&self, mut head: Vec<u8>) {
        if head.capacity() <= HEAD_KEPT_MAX {
            head.clear();
            self.head.set(head);
        }
    }

    /// Returns a request for reuse.
    pub fn return_request(&self, request: Box<Request>) {
        let mut requests = self.requests.borrow_mut();
        if requests.len() < REQUESTS_KEPT_MAX {
            requests.push(request);
        }
    }

    /// The date as of the last sweep.
    pub fn date(&self) -> [u8; date::LEN] {
        self.time.get().date
    }

    /// An empty buffer for frames that are about to be written to a client.
    pub fn take_frames_out(&self) -> Vec<u8> {
        self.frames_out.take()
    }

    /// Returns the buffer once all of it was written.
    pub fn return_frames_out(&self, mut frames: Vec<u8>) {
        if (1..=FRAMES_KEPT_MAX).contains(&frames.capacity()) {
            frames.clear();
            self.frames_out.set(frames);
        }
    }

    /// The wall clock at `instant`, computed from the last sweep: reading the clock costs as much as parsing
    /// a header.
    pub fn wall_time(&self, instant: Instant) -> SystemTime {
        let time = self.time.get();
        match instant.checked_duration_since(time.instant) {
            Some(since) => time.wall + since,
            None => time.wall - (time.instant - instant),
        }
    }

    /// Whether connections should end after the current response.
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Closes idle connections. The others end after the current response.
    pub async fn begin_drain(&self) {
        self.draining.set(true);
        self.timers.expire_idle(FIRST_REQUEST_TIME);
        // Receivers choose when to leave.
        let mut next = Some(0);
        while let Some(first) = next {
            next = self.timers.wake(first);
            task::yield_now().await;
        }
    }

    /// Waits for the end of all connections, and of [background tasks](Worker::spawn_background).
    pub async fn drained(&self) {
        while !self.timers.is_empty() || self.background_tasks.get() > 0 {
            self.work_ended.notified().await;
        }
    }

    /// Closes the connections that wait for a request for the longest time, `count_max` or [`OLDEST_IDLE_MAX`] at most, so that
    /// others can be accepted. Returns whether there was one. May look at all connections, in turns.
    pub async fn give_up_idle(&self, count_max: usize) -> bool {
        if self.oldest_idle.borrow().len() < count_max {
            self.find_idle().await;
        }
        let mut given_up = 0;
        while given_up < count_max
            && self
                .timers
                .expire_oldest(&mut self.oldest_idle.borrow_mut())
        {
            given_up += 1;
        }
        self.stats.idle_given_up.add(given_up as u64);
        // Their tasks close them.
        task::yield_now().await;
        given_up > 0
    }

    async fn find_idle(&self) {
        let now = Instant::now();
        let new_since = now.checked_sub(FIRST_REQUEST_TIME).unwrap_or(now);
        let mut oldest = OldestIdle::new(OLDEST_IDLE_MAX, new_since);
        let mut next = Some(0);
        while let Some(first) = next {
            next = self.timers.find_idle(first, &mut oldest);
            task::yield_now().await;
        }
        *self.oldest_idle.borrow_mut() = oldest.into_list();
    }

    /// Runs a task that outlives its connection, and for which [`drained`](Worker::drained) waits.
    pub fn spawn_background(self: &Rc<Self>, future: impl Future<Output = ()> + 'static) {
        self.background_tasks.update(|tasks| tasks + 1);
        let running = BackgroundTask(self.clone());
        task::spawn_local(async move {
            future.await;
            drop(running);
        });
    }

    /// Handles deadlines, the clock, expiry and the log, forever.
    pub async fn sweep(self: Rc<Self>) {
        let mut ticks = time::interval(SWEEP_INTERVAL);
        ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        let mut without_disk = 0;
        loop {
            ticks.tick().await;
            let before = mem::replace(&mut without_disk, self.stats.requests_without_disk());
            if without_disk - before >= HOT_REQUESTS_MIN {
                self.disk.loops_first(HOT_TIME);
            }
            let mut next = Some(0);
            while let Some(first) = next {
                next = self.timers.sweep(Instant::now(), first);
                if next.is_some() {
                    task::yield_now().await;
                }
            }
            self.stakes.sweep(&self.timers, Instant::now());
            let service = self.service();
            let ttl = service.config.disk.entry_ttl;
            self.cache.expire(Instant::now(), ttl);
            service.sweep(&self.disk, Instant::now());
            self.pools.sweep(Instant::now());
            self.popular.borrow_mut().sweep(Instant::now());
            self.time_outs.borrow_mut().sweep(Instant::now(), log);
            self.time.set(Time::now());
            self.flush_logs();
        }
    }

    /// Logs that a request failed because of the disk. A dead device is logged once for all requests
    /// ([`outage`](levity_telemetry::outage)), and time-outs once per second.
    pub fn disk_failed(&self, error: &io::Error, line: impl FnOnce() -> String) {
        match error.kind() {
            _ if levity_disk::is_dead(error) => {}
            // The client has its share: that is logged by resource.
            io::ErrorKind::QuotaExceeded => {}
            io::ErrorKind::TimedOut => {
                let reason = error.to_string();
                let mut time_outs = self.time_outs.borrow_mut();
                time_outs.add(Instant::now(), Key::WHOLE, &reason, line, log);
            }
            _ => log(&line()),
        }
    }

    /// Passes the log lines so far to their writers.
    pub fn flush_logs(&self) {
        self.logs.borrow_mut().retain(|log| {
            let Some(log) = log.upgrade() else {
                return false;
            };
            let mut log = log.borrow_mut();
            log.flush();
            self.stats.log_dropped.add(log.take_dropped());
            true
        });
    }
}

/// A background task that has not ended. Dropped also when the task panics.
struct BackgroundTask(Rc<Worker>);

impl Drop for BackgroundTask {
    fn drop(&mut self) {
        self.0.background_tasks.update(|tasks| tasks - 1);
        self.0.work_ended.notify_one();
    }
}

fn log(line: &str) {
    diagnostics::log(format_args!("{line}"));
}
