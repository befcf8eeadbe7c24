//! One queue and one depth per device, in front of the engines.
//!
//! Jobs are submitted by event loops, which never take the lock on the queues: they would stop whenever another thread
//! loses its processor while it holds the lock, on a busy machine for 10 to 50 ms. So a loop pushes its job to a
//! queue without a lock ([`submissions`]) and wakes a thread of the pool, which moves the job to the queue of its
//! device, and performs it if it may start. No thread is woken while the device has all the jobs in flight that it may
//! have: whoever finishes one of them takes in what has arrived, and starts the next. A loop reads the load of a device
//! ([`Disk::has_room`](crate::Disk::has_room)) from atomics.
//!
//! The `scheduler` thread takes jobs in when no thread of the pool sleeps, and starts those that waited for memory.
//!
//! A job waits in the queue of its device until the device has a slot ([`depth`]) and its memory is there,
//! or joins another job that reads the same ([`shared_job`]) or syncs the same file ([`syncs`]). First chunks go
//! before later ones, but one job in four is a later chunk if any waits. Within a class connections take turns by
//! bytes ([`fair_queue`]). No job overtakes one that waits for memory: devices whose next job lacks memory queue for
//! it, and freed bytes go to the first. So every job gets its turn, as long as clients release the buffers that they
//! hold.
//!
//! While jobs are in flight this thread also looks for devices that no longer answer ([`liveness`]).
//!
//! A device that freezes keeps at most `depth` threads. Other devices continue as long as
//! `threads - stat_threads > depth` times the number of frozen devices;
//! [`Settings`](crate::Settings) refuses values that would not survive one.
//!
//! # Devices
//!
//! The device of a job is `st_dev` of its file; for an open, that of the mount that the path lies
//! in, from the kernel's table of mounts. An open does not cross a mount: where the path does, a
//! pool thread walks up to the mount without asking it (`files/crossing.rs`), and the job continues
//! in that device's queue. Two cases remain: a mount that changes between the walk and the open,
//! and an automounter that waits for its server.
//!
//! # What is refused
//!
//! A full queue (`disk.queue`) or missing memory (`disk.buffer_bytes`, reserved before a read
//! starts) is refused before the first byte of a response; after it the job waits. A prefetch never
//! waits: it starts where nothing else waits for the device and half of the memory is free, or is
//! refused. A device with jobs in flight that finishes none for `disk.dead_after` is dead: opens
//! and first chunks are refused at once until a job finishes; one job at a time still tries, and
//! later chunks wait.

#![allow(
    clippy::result_large_err,
    reason = "a refused job is returned whole; a box would cost an allocation for each job"
)]

mod bounds;
mod control_groups;
mod cpu_quota;
mod depth;
mod device_load;
mod device_queue;
mod device_queues;
mod direct_policy;
mod fair_queue;
mod liveness;
mod memory_use;
mod outage;
mod shared_job;
mod submissions;
mod syncs;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use rustix::io::Errno;

pub(crate) use bounds::{Bounds, DepthPolicy};
pub use cpu_quota::CpuQuota;
pub(crate) use depth::DEPTH_MAX;
pub use fair_queue::FairQueue;
pub use outage::{Outage, Stage};

use crate::engine::{Arrivals, Engines, InFlightJob, WorkItem};
use crate::files::{KnownDevices, OpenFile, OtherDevice};
use crate::job::{Class, Completion, EngineId, Job, Op, ReadOptions, Refusal};
use crate::memory::{Budget, Reservation};
use crate::stats::{self, Counters, Stats};
use crate::thread::{lock, usage};
use device_load::{DeviceLoads, LoadGuard};
use device_queues::{Admission, DeviceQueues, Overdue};
use direct_policy::DirectPolicy;
use shared_job::SharedJob;
use submissions::{PendingJob, SchedulerEvent, Submissions};

/// Checks per `dead_after` while jobs are in flight.
const CHECKS_PER_DEATH: u32 = 8;

/// The longest interval between two checks.
const CHECK_INTERVAL_MAX: Duration = Duration::from_millis(250);

/// Jobs that may wait until one in flight ends. More are taken in at once: [`Disk::has_room`](crate::Disk::has_room)
/// counts them for each device, and theirs may be frozen. Half of the depth that a device has first.
const LEFT_MAX: usize = 4;

/// Shared by [`Disk`](crate::Disk) and the jobs in flight.
pub(crate) struct Scheduler {
    engines: Engines,
    bounds: Bounds,
    budget: Budget,
    submissions: Arc<Submissions>,
    /// Held for a few instructions, never across a system call, a call of an engine or a reply's `send`.
    /// Not for event loops, except where they block anyway.
    queues: Mutex<DeviceQueues>,
    loads: Arc<DeviceLoads>,
    cpu_quota: Arc<CpuQuota>,
    direct: DirectPolicy,
    /// See [`Disk::set_open_age_max`](crate::Disk::set_open_age_max), in nanoseconds.
    open_age_max_ns: AtomicU64,
    /// The start of `loops_first_until_ms`.
    started_at: Instant,
    /// See [`Disk::loops_first`](crate::Disk::loops_first), in milliseconds.
    loops_first_until_ms: AtomicU64,
    /// See [`Disk::on_outage`](crate::Disk::on_outage).
    on_outage: OnceLock<Box<dyn Fn(Outage) + Send + Sync>>,
    /// Notified when the last job in flight has finished.
    idle: Condvar,
    counters: Counters,
}

impl Scheduler {
    pub(crate) fn new(engines: Engines, bounds: Bounds, budget: Budget) -> Scheduler {
        let submissions = Arc::new(Submissions::new(bounds.queue_max));
        let freed = Arc::clone(&submissions);
        budget.on_freed(Box::new(move || freed.memory_freed()));
        let loads = Arc::new(DeviceLoads::default());
        let cpu_quota = Arc::new(CpuQuota::of_process());
        let queues = DeviceQueues::new(
            bounds,
            budget.clone(),
            Arc::clone(&loads),
            Arc::clone(&cpu_quota),
        );
        Scheduler {
            engines,
            bounds,
            budget,
            submissions,
            queues: Mutex::new(queues),
            loads,
            cpu_quota,
            direct: DirectPolicy::new(),
            open_age_max_ns: AtomicU64::new(0),
            started_at: Instant::now(),
            loops_first_until_ms: AtomicU64::new(0),
            on_outage: OnceLock::new(),
            idle: Condvar::new(),
            counters: Counters::default(),
        }
    }

    pub(crate) fn engines(&self) -> &Engines {
        &self.engines
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    fn open_age_max(&self) -> Duration {
        Duration::from_nanos(self.open_age_max_ns.load(Ordering::Relaxed))
    }

    pub(crate) fn set_open_age_max(&self, age: Duration) {
        let ns = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        self.open_age_max_ns.store(ns, Ordering::Relaxed);
    }

    pub(crate) fn loops_first(&self, time: Duration) {
        let until = self.ms_since_start() + time.as_millis() as u64;
        self.loops_first_until_ms
            .fetch_max(until, Ordering::Relaxed);
    }

    fn are_loops_first(&self) -> bool {
        self.ms_since_start() < self.loops_first_until_ms.load(Ordering::Relaxed)
    }

    fn ms_since_start(&self) -> u64 {
        self.started_at.elapsed().as_millis() as u64
    }

    pub(crate) fn on_outage(&self, report: Box<dyn Fn(Outage) + Send + Sync>) {
        // A later one is ignored.
        let _ = self.on_outage.set(report);
    }

    /// See [`Disk::has_room`](crate::Disk::has_room).
    pub(crate) fn has_room(&self, device: u64) -> bool {
        let arriving = self.submissions.arriving();
        self.loads
            .has_room(device, arriving, self.bounds.depth.initial())
    }

    pub(crate) fn start_thread(self: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        self.engines.serve_arrivals(Box::new(Intake {
            submissions: Arc::clone(&self.submissions),
            scheduler: Arc::downgrade(self),
        }));
        let scheduler = Arc::clone(self);
        let builder = thread::Builder::new().name("scheduler".to_owned());
        builder.spawn(move || scheduler.serve())
    }

    /// The loop of the scheduler's thread. Ends when the submissions are closed and empty.
    fn serve(self: &Arc<Self>) {
        let interval = (self.bounds.dead_after / CHECKS_PER_DEATH).min(CHECK_INTERVAL_MAX);
        let mut checked = Instant::now();
        loop {
            // With nothing in flight nothing can be overdue.
            let watches = self.submissions.watches(|| self.lock().needs_checks());
            let event = self.submissions.next(watches.then_some(interval));
            self.cpu_quota.look();
            match event {
                SchedulerEvent::Submitted => self.take_in(),
                SchedulerEvent::MemoryFreed => self.pump(None),
                SchedulerEvent::Nothing => {}
                SchedulerEvent::Closed => return,
            }
            if checked.elapsed() >= interval {
                self.cpu_quota.refresh();
                self.direct.refresh();
                self.check();
                checked = Instant::now();
            }
        }
    }

    /// Admits the jobs that have arrived by now.
    fn take_in(self: &Arc<Self>) {
        for _ in 0..self.submissions.len() {
            let Some(pending) = self.submissions.pop() else {
                return;
            };
            self.admit(pending);
            self.submissions.arrived();
        }
    }

    /// Finds the devices that are dead, and answers the jobs that would wait for them in vain.
    fn check(self: &Arc<Self>) {
        let mut to_pump = Vec::new();
        let Overdue {
            jobs,
            replies,
            outages,
        } = self.lock().check(&mut to_pump);
        if let Some(report) = self.on_outage.get() {
            outages.into_iter().for_each(report);
        }
        for job in jobs {
            stats::add(&self.counters.dead, 1);
            self.fail_queued(&job, Refusal::Dead.into());
        }
        for reply in replies {
            stats::add(&self.counters.dead, 1);
            stats::add(&self.counters.errors, 1);
            reply.send(Completion::not_started(Refusal::Dead.into()));
        }
        to_pump
            .into_iter()
            .for_each(|device| self.pump(Some(device)));
    }

    pub(crate) fn submit(self: &Arc<Self>, job: Job) {
        if Budget::cost(job.op.memory()) > self.budget.bytes_max() {
            return self.refuse(job, Errno::INVAL.into());
        }
        let pending = PendingJob::new(job);
        if self.starts_at_once(&pending.job) {
            return self.admit(pending);
        }
        let device = pending.job.op.device_at_hand();
        let is_prefetch = pending.job.class == Class::Prefetch;
        if let Err((pending, why)) = self.submissions.push(pending) {
            self.refuse_submission(pending, why);
            return self.wake_thread();
        }
        // The job is pushed before the load is read, and whoever finishes a job changes the load before it looks for
        // what has arrived: see `Parker`.
        fence(Ordering::SeqCst);
        // A job in flight ends before this one could start, and whoever finishes it takes this one in. A prefetch
        // is refused if it cannot start: the loop waits to know that.
        let is_saturated = || device.is_some_and(|device| self.loads.is_saturated(device));
        let waits = !is_prefetch && self.submissions.len() <= LEFT_MAX && is_saturated();
        if !waits {
            self.wake_thread();
        }
    }

    /// Wakes a thread for what has arrived. Does not block.
    fn wake_thread(&self) {
        if !self.engines.wake_thread() {
            self.submissions.wake();
        }
    }

    /// Starts a job, lets it join another one, or puts it in the queue of its device.
    fn admit(self: &Arc<Self>, mut pending: PendingJob) {
        let device = pending.device();
        let starts_at_once = self.starts_at_once(&pending.job);
        let is_sync = pending.job.op.synced().is_some();
        let open_age_max = self.open_age_max();
        let admission = self.lock().admit(pending, starts_at_once, open_age_max);
        match admission {
            Admission::Start(job, memory) => self.start(job, memory),
            Admission::Queued => self.pump(Some(device)),
            Admission::Joined => {
                stats::add(&self.counters.coalesced, 1);
                stats::add(&self.counters.syncs_shared, u64::from(is_sync));
            }
            Admission::Refused(pending, why) => self.refuse_submission(pending, why),
        }
    }

    fn refuse_submission(&self, pending: PendingJob, why: Refusal) {
        match why {
            Refusal::Full if pending.job.class != Class::Prefetch => {
                stats::add(&self.counters.full, 1);
            }
            Refusal::Dead => stats::add(&self.counters.dead, 1),
            _ => {}
        }
        self.refuse(pending.job, why.into());
    }

    /// Starts all jobs that can start: on `device`, and on the devices that queue for memory.
    fn pump(self: &Arc<Self>, device: Option<u64>) {
        while let Some((job, memory)) = self.next(device) {
            self.start(job, memory);
        }
    }

    fn next(self: &Arc<Self>, device: Option<u64>) -> Option<(Arc<SharedJob>, Reservation)> {
        let mut unawaited = Vec::new();
        let next = self.lock().next(device, &mut unawaited);
        // Not under the lock: this drops files, and whatever the replies hold.
        unawaited.iter().for_each(|job| self.drop_unawaited(job));
        next
    }

    fn start(self: &Arc<Self>, job: Arc<SharedJob>, memory: Reservation) {
        let is_direct = self.decide_direct(&job);
        let named = job.options().engine;
        let engine = self.engines.choose(named, is_direct == Some(true));
        let (op, submitted_at) = (job.op.clone(), job.submitted_at);
        let in_flight = InFlight {
            load_guard: self.loads.start(job.device),
            job,
            engine,
            scheduler: Arc::clone(self),
        };
        self.submissions.watch();
        let work = WorkItem::new(op, Box::new(in_flight), submitted_at, memory, is_direct);
        self.engines.get(engine).submit(work);
    }

    /// Decides whether a read goes past the page cache, and records the access. `None` for an open: it is decided
    /// once the file is open. False under an engine that blocks on the loop, where the kernel reads when the
    /// file is sent.
    fn decide_direct(&self, job: &SharedJob) -> Option<bool> {
        match &job.op {
            Op::Read(_) if self.blocks_on_loop(job.options()) => Some(false),
            Op::Read(read) => {
                let reader = job.reader();
                let direct = &self.direct;
                Some(direct.decide(reader, &read.file, read.offset, read.len))
            }
            _ => None,
        }
    }

    /// Whether the submitting thread performs the job before it returns.
    fn starts_at_once(&self, job: &Job) -> bool {
        self.blocks_on_loop(job.options) && !job.op.is_for_the_pool()
    }

    fn blocks_on_loop(&self, options: ReadOptions) -> bool {
        let engine = options.engine.unwrap_or(self.engines.own());
        engine.description().blocks_on_loop
    }

    /// The slot of a job that was in flight is free.
    fn finished(self: &Arc<Self>, job: &Arc<SharedJob>) {
        self.cpu_quota.look();
        let run_queue_wait = match self.blocks_on_loop(job.options()) {
            true => None,
            // Counts the job in any case.
            false => usage::run_queue_wait_per_job(),
        };
        let run_queue_wait = run_queue_wait.filter(|_| self.are_loops_first());
        {
            let mut queues = self.lock();
            queues.finished(job, run_queue_wait);
            if queues.in_flight() == 0 {
                self.idle.notify_all();
            }
        }
        fence(Ordering::SeqCst);
        self.take_in_after(job);
        self.pump(Some(job.device));
    }

    /// Takes in what has arrived while `job` was in flight.
    fn take_in_after(self: &Arc<Self>, job: &SharedJob) {
        if !self.blocks_on_loop(job.options()) {
            self.take_in();
        } else if !self.submissions.is_empty() {
            // This may be an event loop.
            self.wake_thread();
        }
    }

    /// Answers a job that will not be started.
    fn refuse(&self, job: Job, error: io::Error) {
        if !job.reply.is_awaited() {
            return self.count_canceled();
        }
        // A prefetch must expect to be refused: that is not an error.
        if job.class != Class::Prefetch {
            stats::add(&self.counters.errors, 1);
        }
        job.reply.send(Completion::not_started(error));
    }

    /// Answers a queued job that will not be started.
    fn fail_queued(self: &Arc<Self>, job: &SharedJob, error: io::Error) {
        if !job.is_awaited() {
            return self.drop_unawaited(job);
        }
        stats::add(&self.counters.errors, 1);
        self.answer(job, Completion::not_started(error));
    }

    fn answer(self: &Arc<Self>, job: &SharedJob, completion: Completion) {
        let resubmitted = job.answer(completion, &self.direct);
        resubmitted
            .into_iter()
            .for_each(|pending| self.admit(pending));
    }

    /// Drops a job that nobody waited for when its turn came. Jobs that have joined it since are submitted again.
    fn drop_unawaited(self: &Arc<Self>, job: &SharedJob) {
        self.count_canceled();
        for pending in job.cancel() {
            match pending.is_awaited() {
                true => self.admit(pending),
                false => self.count_canceled(),
            }
        }
    }

    /// Accepts no more jobs, and answers those that are queued. The thread of the scheduler ends once those that are
    /// arriving are answered.
    pub(crate) fn close(self: &Arc<Self>) {
        self.submissions.close();
        let queued = self.lock().close();
        for job in queued {
            self.fail_queued(&job, Refusal::Closed.into());
        }
    }

    /// Waits for the jobs in flight, and ends the engines.
    pub(crate) fn finish(&self) {
        self.engines.interrupt();
        let in_flight = |queues: &mut DeviceQueues| queues.in_flight() > 0;
        let idle = self.idle.wait_while(self.lock(), in_flight);
        drop(idle.unwrap_or_else(PoisonError::into_inner));
        self.engines.shutdown();
    }

    fn count(&self, engine: EngineId, completion: &Completion) {
        if completion.result.is_err() {
            stats::add(&self.counters.errors, 1);
        }
        self.engines.count(engine, completion);
    }

    fn count_canceled(&self) {
        stats::add(&self.counters.canceled, 1);
    }

    pub(crate) fn stats(&self) -> Stats {
        let counters = &self.counters;
        Stats {
            engines: self.engines.stats(),
            threads: self.engines.threads(),
            // Before the devices: a job is counted there before it is no longer counted here.
            arriving: self.submissions.arriving(),
            devices: self.loads.now(),
            errors: stats::get(&counters.errors),
            canceled: stats::get(&counters.canceled),
            full: stats::get(&counters.full),
            coalesced: stats::get(&counters.coalesced),
            syncs_shared: stats::get(&counters.syncs_shared),
            dead: stats::get(&counters.dead),
        }
    }

    fn lock(&self) -> MutexGuard<'_, DeviceQueues> {
        lock(&self.queues)
    }
}

/// How the threads of the pool take in what has arrived.
struct Intake {
    submissions: Arc<Submissions>,
    scheduler: Weak<Scheduler>,
}

impl Arrivals for Intake {
    fn is_empty(&self) -> bool {
        self.submissions.is_empty()
    }

    fn take_in(&self) {
        if !self.is_empty()
            && let Some(scheduler) = self.scheduler.upgrade()
        {
            scheduler.take_in();
        }
    }

    fn leave(&self) {
        if !self.is_empty() {
            self.submissions.wake();
        }
    }
}

/// A job that an engine has.
struct InFlight {
    job: Arc<SharedJob>,
    engine: EngineId,
    /// `None` for a device that did not fit into the list of loads, and while this is dropped.
    load_guard: Option<LoadGuard>,
    scheduler: Arc<Scheduler>,
}

impl InFlightJob for InFlight {
    fn is_awaited(&self) -> bool {
        self.job.is_awaited()
    }

    fn devices(&self) -> KnownDevices<'_> {
        self.job.devices()
    }

    fn decide_direct(&self, file: &OpenFile, offset: u64, len: usize) -> bool {
        let policy = &self.scheduler.direct;
        policy.decide_at_open(self.job.reader(), file, offset, len, SystemTime::now())
    }

    fn takes_pipes(&self) -> bool {
        self.job.options().to_pipe
    }

    fn takes_references(&self, file: &OpenFile) -> bool {
        let changes = self.job.options().changes;
        changes.allow_references(&file.meta, SystemTime::now())
    }

    fn complete(&mut self, completion: Completion) {
        let error = completion.result.as_ref().err();
        // A job that moves to another queue has not been answered yet.
        if error.and_then(OtherDevice::of).is_none() {
            self.scheduler.count(self.engine, &completion);
        }
        if let Some(guard) = &self.load_guard {
            guard.count(&completion);
        }
        // Before the answer, which those who ask for the same get too.
        if completion.result.is_ok() {
            self.scheduler.take_in_after(&self.job);
        }
        self.scheduler.answer(&self.job, completion);
    }

    fn cancel(&mut self) {
        self.scheduler.drop_unawaited(&self.job);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        drop(self.load_guard.take());
        self.scheduler.finished(&self.job);
    }
}
