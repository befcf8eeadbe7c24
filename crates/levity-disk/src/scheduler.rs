//! One queue and one bound per device, in front of an engine.
//!
//! The queues have one owner, a thread of their own, because those who submit are event loops. A lock
//! that they shared with the threads of an engine would stop them whenever such a thread loses its
//! processor while it holds the lock: on a busy machine for 10 to 50 ms. So a loop leaves its job in a
//! queue without a lock and rings a bell; the owner takes it from there to the lane of its device.
//! What a loop may ask meanwhile ([`Disk::has_room`], [`Disk::stats`]) it reads from atomics. The lock
//! on the lanes is for the owner and the threads of the engine, which free slots and fill them.
//!
//! A job waits in the lane of its device until the device has a slot ([`depth`](crate::depth)) and the
//! memory for it is there, or goes along with one that brings the same ([`flight`](crate::flight)). First
//! chunks go before later ones, but of four jobs one is a later chunk if there is any. Within its class
//! connections take turns by bytes ([`fair`](crate::fair)), and no job overtakes one that waits for
//! memory: lanes that found none stand in line, and bytes that come back go to the first of them. So
//! every job gets its turn, as long as clients let go of the buffers that they hold.
//!
//! While jobs are in flight the owner also looks at the clock, for devices that answer nothing any more
//! ([`pulse`](crate::pulse)).
//!
//! A device that freezes keeps at most `depth` threads. Others go on as long as
//! `threads - stat_threads > depth` times the number of frozen devices; [`Settings`] refuses values
//! that would not survive one.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::disk::Bounds;
use crate::engine::{Class, Completion, Dead, EngineId, Full, Job, Op, Reply, Ticket, Work};
use crate::engines::Engines;
use crate::files::OpenFile;
use crate::files::closer::Closer;
use crate::flight::{Flight, Planned};
use crate::ghosts::{Asker, Ghosts};
use crate::intake::{Arrival, Intake, Refused, Waiting};
use crate::lanes::{GivenUp, Lanes, Offered};
use crate::loads::Loads;
use crate::lock::lock;
use crate::memory::{Budget, Reservation};
use crate::outage::Outage;
use crate::pace::{Begun, Pace};
use crate::stats::{self, Counters, Stats};

/// How often the clock is looked at while jobs are in flight: this often until a device is dead.
const CHECKS_PER_DEATH: u32 = 8;

/// But at least so often.
const CHECK_INTERVAL_MAX: Duration = Duration::from_millis(250);

/// What [`Disk`] and the tickets of its jobs share.
pub(crate) struct Scheduler {
    engines: Engines,
    bounds: Bounds,
    budget: Budget,
    intake: Arc<Intake>,
    /// Held for a few instructions, never across a call to the kernel, an engine or a reply's `send`.
    /// For the owner and the threads of the engine; for an event loop only where that blocks anyway.
    lanes: Mutex<Lanes>,
    loads: Loads,
    ghosts: Ghosts,
    /// See [`Disk::set_open_age_max`](crate::Disk::set_open_age_max), in nanoseconds.
    open_age_max_ns: AtomicU64,
    /// See [`Disk::on_outage`](crate::Disk::on_outage).
    report: OnceLock<Box<dyn Fn(Outage) + Send + Sync>>,
    /// The last job in flight has finished.
    idle: Condvar,
    counters: Counters,
}

impl Scheduler {
    pub(crate) fn new(engines: Engines, bounds: Bounds, budget: Budget) -> Scheduler {
        let intake = Arc::new(Intake::new(bounds.queue_max));
        let to_intake = Arc::clone(&intake);
        budget.on_freed(Box::new(move || to_intake.memory_is_back()));
        Scheduler {
            engines,
            bounds,
            budget,
            intake,
            lanes: Mutex::default(),
            loads: Loads::default(),
            ghosts: Ghosts::default(),
            open_age_max_ns: AtomicU64::new(0),
            report: OnceLock::new(),
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

    pub(crate) fn ghosts(&self) -> &Ghosts {
        &self.ghosts
    }

    /// A job of `device` begins. None for a device that is not told of.
    pub(crate) fn begin(&self, device: u64) -> Option<Begun> {
        self.loads.pace(device).map(Pace::begin)
    }

    pub(crate) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    pub(crate) fn loads(&self) -> &Loads {
        &self.loads
    }

    pub(crate) fn open_age_max(&self) -> Duration {
        Duration::from_nanos(self.open_age_max_ns.load(Ordering::Relaxed))
    }

    pub(crate) fn set_open_age_max(&self, age: Duration) {
        let ns = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        self.open_age_max_ns.store(ns, Ordering::Relaxed);
    }

    pub(crate) fn set_report(&self, report: Box<dyn Fn(Outage) + Send + Sync>) {
        // A second one is not asked for.
        let _ = self.report.set(report);
    }

    /// See [`Disk::has_room`](crate::Disk::has_room).
    pub(crate) fn has_room(&self, device: u64) -> bool {
        let arriving = self.intake.arriving();
        self.loads
            .has_room(device, arriving, self.bounds.depth.first())
    }

    pub(crate) fn start_threads(self: &Arc<Self>) -> io::Result<(JoinHandle<()>, Closer)> {
        let closer = Closer::start()?;
        let scheduler = Arc::clone(self);
        let builder = thread::Builder::new().name("scheduler".to_owned());
        let owner = builder.spawn(move || scheduler.serve())?;
        Ok((owner, closer))
    }

    /// On the thread that owns the lanes. Ends when the intake is closed and empty.
    fn serve(self: &Arc<Self>) {
        let interval = (self.bounds.dead_after / CHECKS_PER_DEATH).min(CHECK_INTERVAL_MAX);
        let mut checked = Instant::now();
        loop {
            // Where nothing is in flight nothing can be overdue, and what starts comes by here.
            let busy = self.lock().needs_checks();
            match self.intake.next(busy.then_some(interval)) {
                Arrival::Job(waiting) => {
                    self.admit(waiting);
                    self.intake.arrived();
                }
                Arrival::Memory => self.pump(None),
                Arrival::Nothing => {}
                Arrival::End => return,
            }
            if checked.elapsed() >= interval {
                self.check();
                checked = Instant::now();
            }
        }
    }

    /// Finds out which devices are dead, and answers those who would wait for them in vain.
    fn check(self: &Arc<Self>) {
        let mut to_pump = Vec::new();
        let given_up = self.lock().check(self, &mut to_pump);
        let GivenUp {
            jobs,
            replies,
            outages,
        } = given_up;
        if let Some(report) = self.report.get() {
            outages.into_iter().for_each(report);
        }
        for planned in jobs {
            self.turn_away(Refused::Dead(planned.into_waiting()));
        }
        for reply in replies {
            stats::add(&self.counters.dead, 1);
            self.answer(reply, Dead.into());
        }
        to_pump
            .into_iter()
            .for_each(|device| self.pump(Some(device)));
    }

    pub(crate) fn submit(self: &Arc<Self>, job: Job) {
        if Budget::cost(job.op.memory()) > self.budget.bytes_max() {
            return self.refuse(job, Errno::INVAL.into());
        }
        let waiting = Waiting::new(job);
        if self.blocks_on_loop(&waiting.job) {
            return self.admit(waiting);
        }
        if let Err(refused) = self.intake.push(waiting) {
            self.turn_away(refused);
        }
    }

    /// Starts a job, lets it join another one, or puts it in the lane of its device.
    pub(crate) fn admit(self: &Arc<Self>, mut waiting: Waiting) {
        let device = waiting.device();
        let offered = self.lock().offer(waiting, self);
        match offered {
            Offered::Start(planned, memory) => self.start(planned, memory),
            Offered::Queued => self.pump(Some(device)),
            Offered::Joined => stats::add(&self.counters.coalesced, 1),
            Offered::Refused(refused) => self.turn_away(refused),
        }
    }

    fn turn_away(&self, refused: Refused) {
        match refused {
            Refused::Closed(waiting) => self.refuse(waiting.job, Errno::CANCELED.into()),
            Refused::Full(waiting) => {
                if waiting.job.class != Class::Prefetch {
                    stats::add(&self.counters.full, 1);
                }
                self.refuse(waiting.job, Full.into());
            }
            Refused::Dead(waiting) => {
                stats::add(&self.counters.dead, 1);
                self.refuse(waiting.job, Dead.into());
            }
        }
    }

    /// Starts all that can start: on `device`, and for those who stand in line for memory.
    fn pump(self: &Arc<Self>, device: Option<u64>) {
        while let Some((planned, memory)) = self.next(device) {
            self.start(planned, memory);
        }
    }

    fn next(&self, device: Option<u64>) -> Option<(Planned, Reservation)> {
        let mut unwanted = Vec::new();
        let next = self.lock().next(device, self, &mut unwanted);
        self.count_canceled(unwanted.len());
        // Here, not under the lock: with a job goes its file, and what its reply holds.
        drop(unwanted);
        next
    }

    fn start(self: &Arc<Self>, planned: Planned, memory: Reservation) {
        let Planned { job, flight } = planned;
        let wants_direct = self.wants_direct(&job);
        let engine = match wants_direct {
            Some(true) => self
                .engines
                .for_direct()
                .filter(|_| job.terms.engine.is_none()),
            _ => None,
        };
        let engine = engine.unwrap_or_else(|| self.engine_of(&job));
        let (op, ticket) = Ticket::new(Arc::clone(self), flight, engine, job, memory, wants_direct);
        self.engines.get(engine).submit(Work::new(op, ticket));
    }

    /// Whether a read is to go past the page cache. An open finds out when it has a file; and where
    /// this is a loop's thread, the answer does not matter: the kernel reads when the file is sent.
    fn wants_direct(&self, job: &Job) -> Option<bool> {
        match &job.op {
            Op::Read { .. } if self.blocks_on_loop(job) => Some(false),
            Op::Read { file, offset, len } => {
                Some(self.goes_direct(Asker::of(job), file, *offset, *len))
            }
            _ => None,
        }
    }

    pub(crate) fn goes_direct(
        &self,
        asker: Asker,
        file: &OpenFile,
        offset: u64,
        len: usize,
    ) -> bool {
        self.ghosts.go_direct(asker, file, offset, len)
    }

    fn engine_of(&self, job: &Job) -> EngineId {
        job.terms.engine.unwrap_or(self.engines.own())
    }

    pub(crate) fn blocks_on_loop(&self, job: &Job) -> bool {
        self.engines.get(self.engine_of(job)).blocks_on_loop()
    }

    /// A job has been answered, or dropped: its slot is free.
    pub(crate) fn finished(self: &Arc<Self>, flight: &Arc<Flight>) {
        {
            let mut lanes = self.lock();
            lanes.finished(flight);
            if lanes.in_flight() == 0 {
                self.idle.notify_all();
            }
        }
        self.pump(Some(flight.device));
    }

    /// Answers a job that will not be started.
    fn refuse(&self, job: Job, error: io::Error) {
        if !job.reply.wanted() {
            return self.count_canceled(1);
        }
        // That others need the room is what a prefetch must reckon with, and no fault.
        if job.class != Class::Prefetch {
            stats::add(&self.counters.errors, 1);
        }
        Scheduler::send_error(job.reply, error);
    }

    fn answer(&self, reply: Box<dyn Reply>, error: io::Error) {
        stats::add(&self.counters.errors, 1);
        Scheduler::send_error(reply, error);
    }

    fn send_error(reply: Box<dyn Reply>, error: io::Error) {
        reply.send(Completion {
            result: Err(error),
            queued: Duration::ZERO,
            service: Duration::ZERO,
            direct: false,
        });
    }

    /// Takes no more jobs, and answers those that wait. The owner ends once it has answered those that
    /// are on their way.
    pub(crate) fn close(&self) {
        self.intake.close();
        let waiting = self.lock().close();
        for planned in waiting {
            self.refuse(planned.job, Errno::CANCELED.into());
        }
    }

    /// Waits for the jobs in flight, and ends the engines.
    pub(crate) fn finish(&self) {
        self.engines.interrupt();
        let in_flight = |lanes: &mut Lanes| lanes.in_flight() > 0;
        let idle = self.idle.wait_while(self.lock(), in_flight);
        drop(idle.unwrap_or_else(PoisonError::into_inner));
        self.engines.shutdown();
    }

    pub(crate) fn count(&self, engine: EngineId, completion: &Completion) {
        if completion.result.is_err() {
            stats::add(&self.counters.errors, 1);
        }
        self.engines.count(engine, completion);
    }

    pub(crate) fn count_canceled(&self, jobs: usize) {
        stats::add(&self.counters.canceled, jobs as u64);
    }

    pub(crate) fn stats(&self) -> Stats {
        let counters = &self.counters;
        Stats {
            engines: self.engines.stats(),
            threads: self.engines.threads(),
            // Before the devices: a job counts there before it stops counting here.
            arriving: self.intake.arriving(),
            devices: self.loads.now(),
            errors: stats::get(&counters.errors),
            canceled: stats::get(&counters.canceled),
            full: stats::get(&counters.full),
            coalesced: stats::get(&counters.coalesced),
            dead: stats::get(&counters.dead),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lanes> {
        lock(&self.lanes)
    }
}
