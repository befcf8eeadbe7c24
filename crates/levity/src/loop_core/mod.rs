//! What every event loop has, whatever it serves: clock, timers, buffers, counters, logs, the disk, and the pool of threads.

pub mod clock;
pub mod completions;
pub mod compute;
pub mod config;
pub mod failure_reports;
pub mod handshake_reports;
pub mod limit;
pub mod pipes;
pub mod zero_copy;

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_disk::Disk;
use levity_disk::memory::SpareMemory;
use levity_net::{Idle, OldestIdle, TURN_BYTES_MAX, Timers};
use levity_telemetry::access_log::Log;
use levity_telemetry::diagnostics;
use levity_telemetry::stats::WorkerStats;
use tokio::sync::{Notify, Semaphore};
use tokio::task::{self, JoinHandle};

use self::clock::Clock;
use self::completions::Completions;
use self::compute::Compute;
use self::config::LoopConfig;
use self::failure_reports::{FailureReports, Key};
use self::handshake_reports::HandshakeReports;
use self::pipes::Pipes;
use self::zero_copy::ZeroCopy;
use crate::message::request::Request;
use crate::shares::Shares;
use crate::shares::stakes::Stakes;

/// How long a new connection of a draining worker waits for a request, which may be on its way.
pub const FIRST_REQUEST_TIME: Duration = Duration::from_secs(1);

/// The maximum number of idle connections that are found at a time, to give way to new ones.
pub const OLDEST_IDLE_MAX: usize = 32;

/// The size of a read from a client in bytes: the largest request header.
const INBOUND_BYTES: usize = 16 * 1024;

/// The size of a piece of a body in bytes.
const BULK_BYTES: usize = 64 * 1024;

/// The maximum capacity of a header buffer that is kept for reuse.
const HEAD_KEPT_MAX: usize = 16 * 1024;

/// The maximum capacity of a buffer of frames that is kept for reuse.
const FRAMES_KEPT_MAX: usize = 256 * 1024;

/// The maximum number of requests that are kept for reuse: as many as a busy event loop handles at a time.
const REQUESTS_KEPT_MAX: usize = 64;

/// The parts of an event loop's core.
pub struct CoreParts {
    /// The disk, shared with the other event loops.
    pub disk: Arc<Disk>,
    /// What computes off the loop, shared with the other event loops.
    pub compute: Arc<Compute>,
    /// What clients share, of all event loops.
    pub shares: Arc<Shares>,
    /// Where the disk completes the jobs of requests.
    pub completions: Completions,
    /// Sends files without a copy.
    pub zero_copy: ZeroCopy,
    /// The loop's counters.
    pub stats: Arc<WorkerStats>,
    /// The configuration.
    pub config: Rc<LoopConfig>,
    /// The maximum number of connections.
    pub connections_max: usize,
    /// The maximum number of pipes for bodies.
    pub pipes_max: usize,
}

/// What every event loop has, whatever it serves. It knows no feature. Only the loop's own tasks use it.
pub struct LoopCore {
    /// The disk.
    pub disk: Arc<Disk>,
    /// What computes off the loop.
    pub compute: Arc<Compute>,
    /// What its exchanges hold of what clients share.
    pub stakes: Rc<Stakes>,
    /// Where the disk completes the jobs of requests.
    pub completions: Completions,
    /// Counters.
    pub stats: Arc<WorkerStats>,
    /// The deadlines of all connections.
    pub timers: Timers,
    /// The time as of the last sweep.
    pub clock: Clock,
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
    #[expect(clippy::vec_box, reason = "they travel in and out in their boxes")]
    requests: RefCell<Vec<Box<Request>>>,
    config: RefCell<Rc<LoopConfig>>,
    /// The logs of this configuration, and of earlier ones that requests still have.
    logs: RefCell<Vec<Weak<RefCell<Log>>>>,
    /// Time-outs of the disk that were logged recently.
    time_outs: RefCell<FailureReports>,
    /// Failed handshakes in the log.
    pub handshake_reports: HandshakeReports,
    draining: Cell<bool>,
    background_tasks: Cell<usize>,
    /// One permit per connection.
    pub slots: Arc<Semaphore>,
    /// Connections that give way to new ones if they still wait for a request; the last one first.
    oldest_idle: RefCell<Vec<Idle>>,
    /// Notified when a connection or a background task ends.
    pub work_ended: Notify,
}

/// Starts a task of this event loop. It is boxed: the runtime compiles its code for tasks twice for each type of one.
pub fn spawn(task: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    let task: Pin<Box<dyn Future<Output = ()>>> = Box::pin(task);
    task::spawn_local(task)
}

impl LoopCore {
    /// A loop without connections.
    pub fn new(parts: CoreParts) -> Self {
        let logs = parts.config.logs().collect();
        Self {
            disk: parts.disk,
            compute: parts.compute,
            stakes: Stakes::new(parts.shares),
            completions: parts.completions,
            stats: parts.stats,
            timers: Timers::default(),
            clock: Clock::default(),
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
            requests: RefCell::default(),
            config: RefCell::new(parts.config),
            logs: RefCell::new(logs),
            time_outs: RefCell::default(),
            handshake_reports: HandshakeReports::default(),
            draining: Cell::new(false),
            background_tasks: Cell::new(0),
            slots: Arc::new(Semaphore::new(parts.connections_max)),
            oldest_idle: RefCell::default(),
            work_ended: Notify::new(),
        }
    }

    /// Replaces the configuration and its access logs.
    pub fn set_config(&self, config: Rc<LoopConfig>) {
        self.logs.borrow_mut().extend(config.logs());
        // Before those of the old configuration are dropped.
        self.flush_logs();
        *self.config.borrow_mut() = config;
    }

    /// The current configuration. A request keeps the one that it began with.
    pub fn config(&self) -> Rc<LoopConfig> {
        self.config.borrow().clone()
    }

    /// Whether each request needs a check of its file that was made after it arrived: `disk.entry_ttl` is zero.
    pub fn checks_each_request(&self) -> bool {
        let own = self.config.borrow();
        own.config.disk.entry_ttl.is_zero()
    }

    /// A request to parse into, with the allocations of an earlier one.
    pub fn take_request(&self) -> Box<Request> {
        self.requests.borrow_mut().pop().unwrap_or_default()
    }

    /// Returns a request for reuse.
    pub fn return_request(&self, request: Box<Request>) {
        let mut requests = self.requests.borrow_mut();
        if requests.len() < REQUESTS_KEPT_MAX {
            requests.push(request);
        }
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

    /// Waits for the end of all connections, and of [background tasks](LoopCore::spawn_background).
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

    /// Runs a task that outlives its connection, and for which [`drained`](LoopCore::drained) waits.
    pub fn spawn_background(self: &Rc<Self>, future: impl Future<Output = ()> + 'static) {
        self.background_tasks.update(|tasks| tasks + 1);
        let running = BackgroundTask(self.clone());
        spawn(async move {
            future.await;
            drop(running);
        });
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

    /// Reads the clock, and logs what waits for that.
    pub fn sweep(&self) {
        self.stakes.sweep(&self.timers, Instant::now());
        self.time_outs.borrow_mut().sweep(Instant::now(), log);
        self.clock.read();
        self.flush_logs();
    }
}

/// A background task that has not ended. Dropped also when the task panics.
struct BackgroundTask(Rc<LoopCore>);

impl Drop for BackgroundTask {
    fn drop(&mut self) {
        self.0.background_tasks.update(|tasks| tasks - 1);
        self.0.work_ended.notify_one();
    }
}

fn log(line: &str) {
    diagnostics::log(format_args!("{line}"));
}
