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
use std::fmt;
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::buffer::{Budget, Reservation};
use crate::closer::Closer;
use crate::engine::{
    self, Class, Completion, Description, Done, Engine, Full, Job, Ready, Threads, Ticket,
    Unavailable, Work,
};
use crate::intake::{Arrival, Intake, Refused, Waiting};
use crate::loads::{Load, Loads};
use crate::lock::lock;
use crate::stats::{self, Counters, Stats};

/// Jobs of class `First` in a row before one of class `Next` gets its turn.
const FIRST_IN_A_ROW_MAX: usize = 3;

/// Reads in flight per device unless told otherwise.
const DEPTH_DEFAULT: usize = 16;

/// More threads than this are a mistake.
const THREADS_MAX: usize = 1024;

/// In bytes: less memory than this is a mistake.
const BUFFER_BYTES_MIN: usize = 1 << 20;

/// What a disk may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// One of [`engine::names`].
    pub engine: String,
    /// Threads in the pool; at least 2. By default twice `depth`, and `stat_threads` more.
    pub threads: Option<usize>,
    /// How many of them only open and list. By default a quarter of `depth`, or an eighth of `threads`.
    pub stat_threads: Option<usize>,
    /// Jobs in flight per device. By default 16, or half of the threads that read.
    pub depth: Option<usize>,
    /// Jobs that wait, per device.
    pub queue_max: usize,
    /// Bytes of all buffers together, at least 1 MiB. It should be more than `depth` times the largest
    /// chunk, or a frozen device can hold all of it.
    pub buffer_bytes_max: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            engine: engine::AUTO.to_owned(),
            threads: None,
            stat_threads: None,
            depth: None,
            queue_max: 4096,
            buffer_bytes_max: 64 << 20,
        }
    }
}

impl Settings {
    /// Says whether a disk could start with these values. Does not try the engine.
    ///
    /// # Errors
    /// [`StartError::Setting`], which names the values that do not fit together.
    pub fn check(&self) -> Result<(), StartError> {
        self.bounds().map(drop)
    }

    /// Fills in what is not set, and refuses what cannot work.
    fn bounds(&self) -> Result<Bounds, StartError> {
        let (depth, threads) = self.sizes();
        let readers = threads.total.saturating_sub(threads.stat);
        let refused = |text: String| Err(StartError::Setting(text));
        if threads.total > THREADS_MAX {
            refused(format!("threads must be at most {THREADS_MAX}"))
        } else if depth == 0 {
            refused("depth must be at least 1".to_owned())
        } else if readers <= depth {
            refused(format!(
                "threads ({}) less stat_threads ({}) must be more than depth ({depth}), or one disk \
                 that freezes stops all the others",
                threads.total, threads.stat
            ))
        } else if self.queue_max == 0 {
            refused("queue_max must be at least 1".to_owned())
        } else if self.buffer_bytes_max < BUFFER_BYTES_MIN {
            refused(format!(
                "buffer_bytes_max must be at least {BUFFER_BYTES_MIN}"
            ))
        } else {
            Ok(Bounds {
                depth,
                queue_max: self.queue_max,
                threads,
            })
        }
    }

    fn sizes(&self) -> (usize, Threads) {
        if let Some(total) = self.threads {
            let stat = self.stat_threads.unwrap_or(total / 8);
            let half = total.saturating_sub(stat) / 2;
            let depth = self.depth.unwrap_or(half.clamp(1, DEPTH_DEFAULT));
            return (depth, Threads { total, stat });
        }
        let depth = self.depth.unwrap_or(DEPTH_DEFAULT);
        let stat = self.stat_threads.unwrap_or(depth.div_ceil(4));
        let total = depth.saturating_mul(2).saturating_add(stat);
        (depth, Threads { total, stat })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    depth: usize,
    queue_max: usize,
    threads: Threads,
}

/// Why a disk could not be started.
#[derive(Debug)]
pub enum StartError {
    /// There is no engine of that name.
    UnknownEngine(String),
    /// The engine cannot run here.
    Unavailable {
        /// Its name.
        engine: &'static str,
        /// Why, and what to do.
        why: Unavailable,
    },
    /// A value of [`Settings`], or of `LEVITY_SIMULATED`, cannot work.
    Setting(String),
    /// A thread could not be started.
    Thread(io::Error),
}

impl StartError {
    pub(crate) fn unavailable(engine: &'static str, error: &io::Error) -> StartError {
        StartError::Unavailable {
            engine,
            why: Unavailable::from_error(error),
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::UnknownEngine(name) => {
                let names: Vec<_> = engine::names().collect();
                write!(f, "no disk engine is called \"{name}\"; there are ")?;
                write!(f, "{}", names.join(", "))
            }
            StartError::Unavailable { engine, why } => {
                write!(f, "the disk engine {engine} cannot run here: {why}")
            }
            StartError::Setting(text) => f.write_str(text),
            StartError::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// The one that takes jobs. Dropping it shuts it down, and waits for that.
pub struct Disk {
    scheduler: Arc<Scheduler>,
    reason: String,
    /// Those that end with a shutdown; only who starts and ends a disk takes this lock.
    threads: Mutex<Option<(JoinHandle<()>, Closer)>>,
}

impl Disk {
    /// Starts an engine and its threads. Blocks. Call it before any guard is installed on the calling
    /// thread: new threads inherit it.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(settings: Settings) -> Result<Arc<Disk>, StartError> {
        let bounds = settings.bounds()?;
        let (description, reason, options) = chosen(&settings.engine)?;
        let engine = (description.start)(bounds.threads, options)?;
        let budget = Budget::new(settings.buffer_bytes_max);
        let scheduler = Arc::new(Scheduler {
            name: description.name,
            engine,
            bounds,
            budget,
            intake: Arc::new(Intake::new(bounds.queue_max)),
            lanes: Mutex::default(),
            loads: Loads::default(),
            idle: Condvar::new(),
            counters: Counters::default(),
        });
        let intake = Arc::clone(&scheduler.intake);
        let freed = move || intake.memory_is_back();
        scheduler.budget.on_freed(Box::new(freed));
        match Scheduler::start_threads(&scheduler) {
            Ok(threads) => Ok(Arc::new(Disk {
                scheduler,
                reason,
                threads: Mutex::new(Some(threads)),
            })),
            Err(error) => {
                scheduler.close();
                scheduler.finish();
                Err(StartError::Thread(error))
            }
        }
    }

    /// Takes a job. Never blocks and takes no lock, except where [`Disk::blocks_on_loop`].
    ///
    /// The answer comes through the job's reply, once, unless nobody wants it when its turn comes:
    /// then the job is dropped. Besides what the operation itself may answer, there are
    ///
    /// - an error that [`engine::is_full`] knows, when as many jobs wait for its device as may, or when
    ///   it is of class `First`, nobody waits before it and there is no memory: better a quick refusal
    ///   than a client kept waiting before its first byte. A job of class `Next` waits for memory in
    ///   the queue;
    /// - `InvalidInput`, when it needs more memory than there will ever be;
    /// - ECANCELED, when it comes after [`Disk::shutdown`] or has not started by then.
    ///
    /// An answer of these three kinds may come before this call returns.
    pub fn submit(&self, job: Job) {
        self.scheduler.submit(job);
    }

    /// The engine at work, never `auto`.
    pub fn engine(&self) -> &'static str {
        self.scheduler.name
    }

    /// Why it is this one.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The memory for buffers, for [`Ready::into_bytes`].
    pub fn budget(&self) -> &Budget {
        &self.scheduler.budget
    }

    /// Whether the device has a slot to spare and no queue, even if all jobs that the scheduler has not
    /// seen yet were for it. From Linux 6.12 on a `preadv2(RWF_NOWAIT)` that misses starts a read
    /// behind the scheduler's back: try one only when this is true. Takes no lock. Always false for a
    /// device that came after 64 others.
    pub fn has_room(&self, device: u64) -> bool {
        let scheduler = &self.scheduler;
        let arriving = scheduler.intake.arriving();
        scheduler
            .loads
            .has_room(device, arriving, scheduler.bounds.depth)
    }

    /// [`Disk::submit`] does the work before it returns, and so may wait for the disk: the `sendfile`
    /// engine. No guard can be installed where this is true.
    pub fn blocks_on_loop(&self) -> bool {
        self.scheduler.engine.blocks_on_loop()
    }

    /// What has been done so far. Takes no lock.
    pub fn stats(&self) -> Stats {
        self.scheduler.stats()
    }

    /// Answers all jobs that have not started with ECANCELED, waits for those that have, and ends the
    /// threads. Blocks for as long as the slowest of them, which on a frozen device is forever. Jobs
    /// that come later are answered with ECANCELED. A second call does nothing.
    pub fn shutdown(&self) {
        let Some((owner, closer)) = lock(&self.threads).take() else {
            return;
        };
        self.scheduler.close();
        owner.join().expect("the scheduler does not panic");
        self.scheduler.finish();
        drop(closer);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Disk({}: {})", self.engine(), self.reason)
    }
}

/// The engine that a setting stands for, why, and what followed a colon in it.
fn chosen(setting: &str) -> Result<(&'static Description, String, Option<&str>), StartError> {
    if setting == engine::AUTO {
        let (description, reason) = engine::choose();
        return Ok((description, reason, None));
    }
    let (name, options) = match setting.split_once(':') {
        Some((before, options)) => (before, Some(options)),
        None => (setting, None),
    };
    let description = engine::find(name)
        .filter(|description| options.is_none() || description.hidden)
        .ok_or_else(|| StartError::UnknownEngine(setting.to_owned()))?;
    (description.probe)().map_err(|why| StartError::Unavailable {
        engine: description.name,
        why,
    })?;
    Ok((description, "chosen by name".to_owned(), options))
}

/// What [`Disk`] and the tickets of its jobs share.
pub(crate) struct Scheduler {
    name: &'static str,
    engine: Box<dyn Engine>,
    bounds: Bounds,
    budget: Budget,
    intake: Arc<Intake>,
    /// Held for a few instructions, never across a call to the kernel, an engine or a reply's `send`.
    /// For the owner and the threads of the engine; for an event loop only where that blocks anyway.
    lanes: Mutex<Lanes>,
    loads: Loads,
    /// The last job in flight has finished.
    idle: Condvar,
    counters: Counters,
}

impl Scheduler {
    fn start_threads(self: &Arc<Self>) -> io::Result<(JoinHandle<()>, Closer)> {
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

    fn submit(self: &Arc<Self>, job: Job) {
        if Budget::cost(job.op.len()) > self.budget.bytes_max() {
            return self.refuse(job, Errno::INVAL.into());
        }
        let since = Instant::now();
        let waiting = Waiting { job, since };
        if self.engine.blocks_on_loop() {
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
        let Waiting { job, since } = waiting;
        let ticket = Ticket::new(Arc::clone(self), device, job.reply, memory, since);
        self.engine.submit(Work::new(job.op, ticket));
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
        });
    }

    /// Takes no more jobs, and answers those that wait. The owner ends once it has answered those that
    /// are on their way.
    fn close(&self) {
        self.intake.close();
        let waiting = self.lock().close();
        for Waiting { job, .. } in waiting {
            self.refuse(job, Errno::CANCELED.into());
        }
    }

    /// Waits for the jobs in flight, and ends the engine.
    fn finish(&self) {
        self.engine.interrupt();
        let in_flight = |lanes: &mut Lanes| lanes.in_flight > 0;
        let idle = self.idle.wait_while(self.lock(), in_flight);
        drop(idle.unwrap_or_else(PoisonError::into_inner));
        self.engine.shutdown();
    }

    pub(crate) fn count(&self, completion: &Completion) {
        let counters = &self.counters;
        counters.queue_time.add(completion.queued);
        counters.service_time.add(completion.service);
        match &completion.result {
            Err(_) => stats::add(&counters.errors, 1),
            Ok(Done::Listed(_)) => {}
            Ok(Done::Read(ready)) => self.count_read(ready),
            Ok(Done::Opened { first, .. }) => {
                stats::add(&counters.opens, 1);
                first.iter().for_each(|ready| self.count_read(ready));
            }
        }
    }

    fn count_read(&self, ready: &Ready) {
        stats::add(&self.counters.reads, 1);
        stats::add(&self.counters.bytes_read, ready.len() as u64);
    }

    pub(crate) fn count_canceled(&self, jobs: usize) {
        stats::add(&self.counters.canceled, jobs as u64);
    }

    fn stats(&self) -> Stats {
        let counters = &self.counters;
        let reads = stats::get(&counters.reads);
        let (reads_sync, reads_async) = match self.engine.blocks_on_loop() {
            true => (reads, 0),
            false => (0, reads),
        };
        Stats {
            engine: self.name,
            // Before the devices: a job counts there before it stops counting here.
            arriving: self.intake.arriving(),
            devices: self.loads.now(),
            reads_async,
            reads_sync,
            bytes_read: stats::get(&counters.bytes_read),
            opens: stats::get(&counters.opens),
            errors: stats::get(&counters.errors),
            canceled: stats::get(&counters.canceled),
            full: stats::get(&counters.full),
            queue_time: counters.queue_time.snapshot(),
            service_time: counters.service_time.snapshot(),
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

/// The queue of one device. Kept once made: their number is that of the mounts ever seen.
struct Lane {
    /// Where others read how full it is.
    load: Arc<Load>,
    first: VecDeque<Waiting>,
    next: VecDeque<Waiting>,
    in_flight: usize,
    /// Jobs of class `First` started since the last of class `Next`.
    first_in_a_row: usize,
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
        let inline = scheduler.engine.blocks_on_loop();
        let lane = self.by_device.entry(device);
        let lane = lane.or_insert_with(|| Lane::new(scheduler.loads.add(device)));
        if lane.queued() >= bounds.queue_max {
            return Offered::Refused(Refused::Full(waiting));
        }
        let starts = inline || (lane.queued() == 0 && lane.in_flight < bounds.depth);
        if !starts || (waiting.job.class == Class::Next && !inline) {
            lane.queue(waiting.job.class).push_back(waiting);
            lane.tell();
            return Offered::Queued;
        }
        // An engine that works in place reads into no buffer, and its caller cannot wait in a queue.
        let len = if inline { 0 } else { waiting.job.op.len() };
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

impl Lane {
    fn new(load: Arc<Load>) -> Lane {
        Lane {
            load,
            first: VecDeque::new(),
            next: VecDeque::new(),
            in_flight: 0,
            first_in_a_row: 0,
        }
    }

    /// Call it after every change, before the lock is let go.
    fn tell(&self) {
        self.load.set(self.queued(), self.in_flight);
    }

    fn empty(&mut self) -> VecDeque<Waiting> {
        let mut all = mem::take(&mut self.first);
        all.append(&mut self.next);
        self.tell();
        all
    }

    fn queued(&self) -> usize {
        self.first.len() + self.next.len()
    }

    fn queue(&mut self, class: Class) -> &mut VecDeque<Waiting> {
        match class {
            Class::First => &mut self.first,
            Class::Next => &mut self.next,
        }
    }

    /// Takes the jobs that nobody waits for off the heads of both queues.
    fn drop_unwanted(&mut self, unwanted: &mut Vec<Waiting>) {
        for queue in [&mut self.first, &mut self.next] {
            while queue.front().is_some_and(|head| !head.job.reply.wanted()) {
                unwanted.extend(queue.pop_front());
            }
        }
        self.tell();
    }

    /// Whose turn it is, if there is a slot.
    fn next_class(&self, depth: usize) -> Option<Class> {
        if self.in_flight >= depth {
            return None;
        }
        match (self.first.is_empty(), self.next.is_empty()) {
            (true, true) => None,
            (true, false) => Some(Class::Next),
            (false, true) => Some(Class::First),
            (false, false) if self.first_in_a_row < FIRST_IN_A_ROW_MAX => Some(Class::First),
            (false, false) => Some(Class::Next),
        }
    }

    /// Bytes that the next job of a class reads.
    fn len_of_next(&mut self, class: Class) -> usize {
        let next = self.queue(class).front();
        next.map_or(0, |waiting| waiting.job.op.len())
    }

    fn pop(&mut self, class: Class) -> Option<Waiting> {
        match class {
            Class::First => self.first_in_a_row += 1,
            Class::Next => self.first_in_a_row = 0,
        }
        self.queue(class).pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_survives_a_frozen_device() {
        for threads in (2..200).map(Some).chain([None]) {
            for stat_threads in [None, Some(0)] {
                let settings = Settings {
                    threads,
                    stat_threads,
                    ..Settings::default()
                };
                let Bounds { depth, threads, .. } = settings.bounds().unwrap();
                assert!(threads.total - threads.stat > depth, "{settings:?}");
                assert!((1..=DEPTH_DEFAULT).contains(&depth), "{settings:?}");
            }
        }
    }

    #[test]
    fn threads_follow_depth() {
        let settings = Settings {
            depth: Some(40),
            ..Settings::default()
        };
        let threads = settings.bounds().unwrap().threads;
        assert_eq!((threads.total, threads.stat), (90, 10));
    }
}
