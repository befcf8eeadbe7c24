//! One queue and one bound per device, in front of an engine.
//!
//! The queues have one owner, a thread of their own, because those who submit are event loops. A lock
//! that they shared with the threads of an engine would stop them whenever such a thread loses its
//! processor while it holds the lock: on a busy machine for 10 to 50 ms. So a loop leaves its job in a
//! queue without a lock and rings a bell; the owner takes it from there to the lane of its device.
//! What a loop may ask meanwhile ([`Disk::has_room`], [`Disk::stats`]) it reads from atomics. The lock
//! on the lanes is for the owner and the threads of the engine, which free slots and fill them.
//!
//! A job waits in the lane of its device until the device has a slot (`depth`) and the memory for it
//! is there. First chunks go before later ones, but of four jobs one is a later chunk if there is
//! any. Within its class no job overtakes one that waits for memory: lanes that found none stand in
//! line, and bytes that come back go to the first of them. So every job gets its turn, as long as
//! clients let go of the buffers that they hold.
//!
//! A device that freezes keeps at most `depth` threads. Others go on as long as
//! `threads - stat_threads > depth` times the number of frozen devices; [`Settings`] refuses values
//! that would not survive one.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::buffer::{Budget, Reservation};
use crate::closer::Closer;
use crate::disk::Bounds;
use crate::engine::{Class, Completion, EngineId, Full, Job, Ticket, Work};
use crate::engines::Engines;
use crate::ghosts::Ghosts;
use crate::intake::{Arrival, Intake, Refused, Waiting};
use crate::lane::Lane;
use crate::loads::Loads;
use crate::lock::lock;
use crate::pace::{Flight, Pace};
use crate::stats::{self, Counters, Stats};

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
    pub(crate) fn flight(&self, device: u64) -> Option<Flight> {
        self.loads.pace(device).map(Pace::begin)
    }

    /// See [`Disk::has_room`](crate::Disk::has_room).
    pub(crate) fn has_room(&self, device: u64) -> bool {
        let arriving = self.intake.arriving();
        self.loads.has_room(device, arriving, self.bounds.depth)
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
        loop {
            match self.intake.next() {
                Arrival::Job(waiting) => {
                    self.admit(waiting);
                    self.intake.arrived();
                }
                Arrival::Memory => self.pump(None),
                Arrival::End => return,
            }
        }
    }

    pub(crate) fn submit(self: &Arc<Self>, job: Job) {
        if Budget::cost(job.op.memory()) > self.budget.bytes_max() {
            return self.refuse(job, Errno::INVAL.into());
        }
        let since = Instant::now();
        let waiting = Waiting { job, since };
        if self.blocks_on_loop(&waiting.job) {
            return self.admit(waiting);
        }
        if let Err(refused) = self.intake.push(waiting) {
            self.turn_away(refused);
        }
    }

    /// Starts a job, or puts it in the lane of its device.
    fn admit(self: &Arc<Self>, waiting: Waiting) {
        let device = waiting.job.op.device();
        let offered = self.lock().offer(device, waiting, self);
        match offered {
            Offered::Start(waiting, memory) => self.start(device, waiting, memory),
            Offered::Queued => self.pump(Some(device)),
            Offered::Refused(refused) => self.turn_away(refused),
        }
    }

    fn turn_away(&self, refused: Refused) {
        match refused {
            Refused::Closed(waiting) => self.refuse(waiting.job, Errno::CANCELED.into()),
            Refused::Full(waiting) => {
                stats::add(&self.counters.full, 1);
                self.refuse(waiting.job, Full.into());
            }
        }
    }

    /// Starts all that can start: on `device`, and for those who stand in line for memory.
    fn pump(self: &Arc<Self>, device: Option<u64>) {
        while let Some((device, waiting, memory)) = self.next(device) {
            self.start(device, waiting, memory);
        }
    }

    fn next(&self, device: Option<u64>) -> Option<(u64, Waiting, Reservation)> {
        let mut unwanted = Vec::new();
        let next = self.lock().next(device, self, &mut unwanted);
        self.count_canceled(unwanted.len());
        // Here, not under the lock: with a job goes its file, and what its reply holds.
        drop(unwanted);
        next
    }

    fn start(self: &Arc<Self>, device: u64, waiting: Waiting, memory: Reservation) {
        let engine = self.engine_of(&waiting.job);
        let (op, ticket) = Ticket::new(Arc::clone(self), device, engine, waiting, memory);
        self.engines.get(engine).submit(Work::new(op, ticket));
    }

    fn engine_of(&self, job: &Job) -> EngineId {
        job.terms.engine.unwrap_or(self.engines.own())
    }

    fn blocks_on_loop(&self, job: &Job) -> bool {
        self.engines.get(self.engine_of(job)).blocks_on_loop()
    }

    /// A job has been answered, or dropped: its slot is free.
    pub(crate) fn finished(self: &Arc<Self>, device: u64) {
        {
            let mut lanes = self.lock();
            lanes.in_flight -= 1;
            if let Some(lane) = lanes.by_device.get_mut(&device) {
                lane.in_flight -= 1;
                lane.tell();
            }
            if lanes.in_flight == 0 {
                self.idle.notify_all();
            }
        }
        self.pump(Some(device));
    }

    /// Answers a job that will not be started.
    fn refuse(&self, job: Job, error: io::Error) {
        if !job.reply.wanted() {
            return self.count_canceled(1);
        }
        stats::add(&self.counters.errors, 1);
        job.reply.send(Completion {
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
        for Waiting { job, .. } in waiting {
            self.refuse(job, Errno::CANCELED.into());
        }
    }

    /// Waits for the jobs in flight, and ends the engines.
    pub(crate) fn finish(&self) {
        self.engines.interrupt();
        let in_flight = |lanes: &mut Lanes| lanes.in_flight > 0;
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
            devices: self.loads.now(self.bounds.depth),
            errors: stats::get(&counters.errors),
            canceled: stats::get(&counters.canceled),
            full: stats::get(&counters.full),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lanes> {
        lock(&self.lanes)
    }
}

/// The queues of all devices.
#[derive(Default)]
struct Lanes {
    by_device: HashMap<u64, Lane>,
    /// Devices whose next job found no memory, the longest waiting first.
    starved: VecDeque<u64>,
    in_flight: usize,
    closed: bool,
}
/// What came of a new job.
enum Offered {
    Start(Waiting, Reservation),
    Queued,
    Refused(Refused),
}

/// What came of looking for a job to start.
enum Taken {
    Start(Waiting, Reservation),
    /// Nothing waits, or no slot is free.
    Nothing,
    NoMemory,
}

impl Lanes {
    fn offer(&mut self, device: u64, waiting: Waiting, scheduler: &Scheduler) -> Offered {
        if self.closed {
            return Offered::Refused(Refused::Closed(waiting));
        }
        let bounds = scheduler.bounds;
        let inline = scheduler.blocks_on_loop(&waiting.job);
        let lane = self.by_device.entry(device);
        let lane = lane.or_insert_with(|| Lane::new(scheduler.loads.add(device)));
        if lane.queued() >= bounds.queue_max {
            return Offered::Refused(Refused::Full(waiting));
        }
        let starts = inline || (lane.queued() == 0 && lane.in_flight < bounds.depth);
        if !starts || (waiting.job.class != Class::First && !inline) {
            lane.queue(waiting.job.class).push_back(waiting);
            lane.tell();
            return Offered::Queued;
        }
        // An engine that works in place reads into no buffer, and its caller cannot wait in a queue.
        let len = if inline { 0 } else { waiting.job.op.memory() };
        match self.memory(device, len, &scheduler.budget) {
            Some(memory) => {
                self.started(device);
                Offered::Start(waiting, memory)
            }
            None => Offered::Refused(Refused::Full(waiting)),
        }
    }

    /// The next job to start: of `device`, or else of the first in line for memory. Jobs that nobody
    /// wants any more are put aside.
    fn next(
        &mut self,
        device: Option<u64>,
        scheduler: &Scheduler,
        unwanted: &mut Vec<Waiting>,
    ) -> Option<(u64, Waiting, Reservation)> {
        if let Some(device) = device
            && let Taken::Start(waiting, memory) = self.take(device, scheduler, unwanted)
        {
            return Some((device, waiting, memory));
        }
        while let Some(device) = self.starved.front().copied() {
            match self.take(device, scheduler, unwanted) {
                Taken::Start(waiting, memory) => return Some((device, waiting, memory)),
                Taken::NoMemory => return None,
                Taken::Nothing => {}
            }
        }
        None
    }

    fn take(&mut self, device: u64, scheduler: &Scheduler, unwanted: &mut Vec<Waiting>) -> Taken {
        let Some(lane) = self.by_device.get_mut(&device) else {
            return Taken::Nothing;
        };
        lane.drop_unwanted(unwanted);
        let Some(class) = lane.next_class(scheduler.bounds.depth) else {
            self.starved.retain(|starved| *starved != device);
            return Taken::Nothing;
        };
        let len = lane.len_of_next(class);
        let Some(memory) = self.memory(device, len, &scheduler.budget) else {
            if !self.starved.contains(&device) {
                self.starved.push_back(device);
            }
            return Taken::NoMemory;
        };
        self.requeue_for_memory(device);
        let waiting = self.lane(device).pop(class);
        self.started(device);
        match waiting {
            Some(waiting) => Taken::Start(waiting, memory),
            None => unreachable!("the class was chosen because a job waits in it"),
        }
    }

    /// Whoever has got memory lets the others have theirs before it gets more.
    fn requeue_for_memory(&mut self, device: u64) {
        if self.starved.front() == Some(&device) {
            self.starved.rotate_left(1);
        }
    }

    /// Memory for a job, unless others stand in line for it.
    fn memory(&self, device: u64, len: usize, budget: &Budget) -> Option<Reservation> {
        let others_first = self.starved.front().is_some_and(|first| *first != device);
        if others_first && len > 0 {
            return None;
        }
        budget.reserve(len)
    }

    fn started(&mut self, device: u64) {
        self.in_flight += 1;
        let lane = self.lane(device);
        lane.in_flight += 1;
        lane.tell();
    }

    /// The lane of a device that has had a job.
    fn lane(&mut self, device: u64) -> &mut Lane {
        let lane = self.by_device.get_mut(&device);
        lane.expect("made when its first job was offered")
    }

    fn close(&mut self) -> Vec<Waiting> {
        self.closed = true;
        self.starved.clear();
        let lanes = self.by_device.values_mut();
        lanes.flat_map(Lane::empty).collect()
    }
}
