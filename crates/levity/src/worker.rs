//! What the tasks of one loop share, and nothing else does.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use levity_disk::{Disk, Watcher};
use levity_net::{SWEEP_INTERVAL, Timers};
use levity_telemetry::access_log::{Log, Record};
use levity_telemetry::diagnostics;
use levity_telemetry::popular::Popular;
use levity_telemetry::stats::WorkerStats;
use levity_wire::date;
use tokio::sync::{Notify, Semaphore};
use tokio::task;
use tokio::time;

use crate::cache::{Cache, Shared};
use crate::http::request::Request;
use crate::route::Service;
use crate::upstream::failure_reports::FailureReports;
use crate::upstream::pool::Pools;
use crate::upstream::sendfile::store::{self, PreloadStore};

/// Bytes read from a client at once: a request head at its largest.
const INBOUND_BYTES: usize = 16 * 1024;

/// Bytes of a body moved at once.
const BULK_BYTES: usize = 64 * 1024;

/// Bytes of memory for a header that are kept for the next.
const HEAD_KEPT_MAX: usize = 16 * 1024;

/// Requests kept for reuse; as many as are in hand at once on a busy loop.
const REQUESTS_KEPT_MAX: usize = 64;

/// Receipts of one worker that are on their way at once; one more is not sent.
const RECEIPTS_MAX: usize = 256;

/// What a worker is made of.
pub struct Given {
    /// What it answers with.
    pub service: Arc<Service>,
    /// The disk, shared with the other workers.
    pub disk: Arc<Disk>,
    /// The common cache.
    pub cache: Arc<Shared>,
    /// What tells of changes to files, if anything does.
    pub watcher: Option<Arc<Watcher>>,
    /// Its counters.
    pub stats: Arc<WorkerStats>,
    /// Its end of the access log.
    pub log: Option<Log>,
    /// Connections at once.
    pub connections_max: usize,
    /// Content that applications have preloaded.
    pub preload: Arc<PreloadStore>,
    /// Workers in all.
    pub workers: usize,
}

/// A loop's state, shared by the tasks on it and by nothing else.
pub struct Worker {
    /// The disk.
    pub disk: Arc<Disk>,
    /// What is known of files.
    pub cache: Cache,
    /// What tells of changes to files, if anything does.
    pub watcher: Option<Arc<Watcher>>,
    /// Counters.
    pub stats: Arc<WorkerStats>,
    /// Connections to backends.
    pub pools: Pools,
    /// Content that applications have preloaded.
    pub preload: Arc<PreloadStore>,
    /// One permit for each receipt that may be on its way.
    pub receipts: Arc<Semaphore>,
    /// One permit for each preloaded file that may be on its way to be opened.
    pub openings: Arc<Semaphore>,
    /// Deadlines of all connections.
    pub timers: Timers,
    /// Borrowed by whoever reads from a client, or joins what is small before it is written, within one poll.
    pub inbound: RefCell<Box<[u8]>>,
    /// Borrowed by whoever takes bytes of a body from a socket, within one poll.
    pub bulk: RefCell<Box<[u8]>>,
    /// Borrowed by whoever copies from the page cache to a client, within one poll.
    pub outbound: RefCell<Vec<u8>>,
    /// Memory for a piece of a body that comes from a backend.
    piece: Cell<Vec<u8>>,
    /// Memory for the header of a response.
    head: Cell<Vec<u8>>,
    #[expect(
        clippy::redundant_allocation,
        reason = "a request counts a reference that no other worker's requests count too"
    )]
    service: RefCell<Rc<Arc<Service>>>,
    #[expect(clippy::vec_box, reason = "they travel in and out in their boxes")]
    requests: RefCell<Vec<Box<Request>>>,
    log: RefCell<Option<Log>>,
    /// Which files are asked for.
    pub popular: RefCell<Popular>,
    /// Time-outs of the disk that were told lately.
    time_outs: RefCell<FailureReports>,
    time: Cell<Time>,
    draining: Cell<bool>,
    /// One permit for each connection that may be open.
    pub slots: Arc<Semaphore>,
    /// Told when a connection ends.
    pub connection_gone: Notify,
}

/// One moment on both clocks, and as HTTP writes it.
#[derive(Clone, Copy)]
struct Time {
    instant: Instant,
    wall: SystemTime,
    date: [u8; date::LEN],
}

impl Time {
    fn now() -> Self {
        let wall = SystemTime::now();
        let since = wall.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self {
            instant: Instant::now(),
            wall,
            date: date::format(since.as_secs()),
        }
    }
}

impl Worker {
    /// A worker without connections.
    pub fn new(given: Given) -> Self {
        let pools = Pools::new(given.workers, given.stats.clone());
        pools.retain(&given.service.upstreams);
        Self {
            disk: given.disk,
            cache: Cache::new(given.cache),
            watcher: given.watcher,
            pools,
            stats: given.stats,
            preload: given.preload,
            receipts: Arc::new(Semaphore::new(RECEIPTS_MAX)),
            openings: Arc::new(Semaphore::new(store::OPENINGS_MAX)),
            timers: Timers::default(),
            inbound: RefCell::new(vec![0; INBOUND_BYTES].into_boxed_slice()),
            bulk: RefCell::new(vec![0; BULK_BYTES].into_boxed_slice()),
            outbound: RefCell::default(),
            piece: Cell::default(),
            head: Cell::default(),
            service: RefCell::new(Rc::new(given.service)),
            requests: RefCell::default(),
            log: RefCell::new(given.log),
            popular: RefCell::new(Popular::new(Instant::now())),
            time_outs: RefCell::default(),
            time: Cell::new(Time::now()),
            draining: Cell::new(false),
            slots: Arc::new(Semaphore::new(given.connections_max)),
            connection_gone: Notify::new(),
        }
    }

    /// Answers with `service` from now on.
    pub fn set_service(&self, service: Arc<Service>) {
        self.pools.retain(&service.upstreams);
        *self.service.borrow_mut() = Rc::new(service);
        self.cache.clear();
    }

    /// Logs to `log` from now on.
    pub fn set_log(&self, log: Option<Log>) {
        self.flush_log();
        *self.log.borrow_mut() = log;
    }

    /// What requests are answered with now. A request keeps what it got.
    pub fn service(&self) -> Rc<Arc<Service>> {
        self.service.borrow().clone()
    }

    /// A request to parse into, with the allocations of an earlier one.
    pub fn take_request(&self) -> Box<Request> {
        self.requests.borrow_mut().pop().unwrap_or_default()
    }

    /// Empty memory for a piece of a body from a backend: the last that was given back is still in the
    /// processor's caches, which what an allocator gives is mostly not.
    pub fn take_piece(&self) -> Vec<u8> {
        self.piece.take()
    }

    /// Gives it back, once the piece has left.
    pub fn give_piece(&self, mut piece: Vec<u8>) {
        if piece.capacity() > 0 {
            piece.clear();
            self.piece.set(piece);
        }
    }

    /// Empty memory for the header of a response.
    pub fn take_head(&self) -> Vec<u8> {
        self.head.take()
    }

    /// Gives it back, once the header has left.
    pub fn give_head(&self, mut head: Vec<u8>) {
        if head.capacity() <= HEAD_KEPT_MAX {
            head.clear();
            self.head.set(head);
        }
    }

    /// Gives a request back.
    pub fn give_request(&self, request: Box<Request>) {
        let mut requests = self.requests.borrow_mut();
        if requests.len() < REQUESTS_KEPT_MAX {
            requests.push(request);
        }
    }

    /// Writes the date as of the last sweep.
    pub fn date(&self, head: &mut Vec<u8>) {
        head.extend_from_slice(&self.time.get().date);
    }

    /// What a clock on the wall showed at `instant`, as of the last sweep: asking one costs as much as
    /// parsing a header.
    pub fn wall_time(&self, instant: Instant) -> SystemTime {
        let time = self.time.get();
        match instant.checked_duration_since(time.instant) {
            Some(since) => time.wall + since,
            None => time.wall - (time.instant - instant),
        }
    }

    /// Counts and logs a finished request.
    pub fn finished(&self, record: &Record<'_>) {
        self.stats.request(record);
        self.stats.sent_bytes.add(record.bytes);
        if let Some(log) = self.log.borrow_mut().as_mut() {
            log.record(record);
        }
    }

    /// Whether connections should end after the response in hand.
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Lets go of idle connections and waits for the others.
    pub async fn drain(&self) {
        self.draining.set(true);
        self.timers.expire_idle();
        while !self.timers.is_empty() {
            self.connection_gone.notified().await;
        }
    }

    /// Minds deadlines, the time and the log, for ever.
    pub async fn sweep(self: Rc<Self>) {
        let mut ticks = time::interval(SWEEP_INTERVAL);
        ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let mut next = Some(0);
            while let Some(first) = next {
                next = self.timers.sweep(Instant::now(), first);
                if next.is_some() {
                    task::yield_now().await;
                }
            }
            let service = self.service();
            let ttl = service.config.disk.entry_ttl;
            self.cache.expire(Instant::now(), ttl);
            for root in &service.live_roots {
                root.tend(&self.disk, Instant::now(), service.config.disk.root_ttl());
            }
            self.pools.sweep(Instant::now());
            self.preload.sweep(Instant::now());
            self.popular.borrow_mut().sweep(Instant::now());
            self.time_outs.borrow_mut().sweep(Instant::now(), say);
            self.time.set(Time::now());
            self.flush_log();
        }
    }

    /// Tells the operator that a request failed because of the disk, unless its device is dead, of which
    /// there is a report for all of them ([`outage`](levity_telemetry::outage)). Time-outs become one line per second.
    pub fn disk_failed(&self, error: &io::Error, line: impl FnOnce() -> String) {
        match error.kind() {
            _ if levity_disk::is_dead(error) => {}
            io::ErrorKind::TimedOut => {
                let reason = error.to_string();
                let mut time_outs = self.time_outs.borrow_mut();
                time_outs.add(Instant::now(), None, &reason, line, say);
            }
            _ => say(&line()),
        }
    }

    /// Hands the log lines so far to their writer.
    pub fn flush_log(&self) {
        if let Some(log) = self.log.borrow_mut().as_mut() {
            log.flush();
            self.stats.log_dropped.set(log.dropped());
        }
    }
}

fn say(line: &str) {
    diagnostics::log(format_args!("{line}"));
}
