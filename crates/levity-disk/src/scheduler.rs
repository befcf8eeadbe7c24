//! One queue and one bound per device, in front of an engine.
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
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::buffer::{Budget, Reservation};
use crate::closer::Closer;
use crate::engine::{
    self, Class, Completion, Description, Done, Engine, Job, Ready, Threads, Ticket, Unavailable,
    Work,
};
use crate::lock::lock;
use crate::stats::{self, Counters, DeviceStats, Stats};

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

/// A job that was not taken: the queue of its device is full, or it would start now and there is no
/// memory for it. Nothing has been done.
#[derive(Debug)]
pub struct Full(pub Job);

/// The one that takes jobs. Dropping it shuts it down, and waits for that.
pub struct Disk {
    scheduler: Arc<Scheduler>,
    reason: String,
    closer: Mutex<Option<Closer>>,
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
            lanes: Mutex::default(),
            idle: Condvar::new(),
            counters: Counters::default(),
        });
        let weak = Arc::downgrade(&scheduler);
        scheduler.budget.on_freed(Box::new(move || {
            if let Some(scheduler) = weak.upgrade() {
                scheduler.pump(None);
            }
        }));
        let closer = match Closer::start() {
            Ok(closer) => closer,
            Err(error) => {
                scheduler.shutdown();
                return Err(StartError::Thread(error));
            }
        };
        Ok(Arc::new(Disk {
            scheduler,
            reason,
            closer: Mutex::new(Some(closer)),
        }))
    }

    /// Takes a job. Never blocks, except where [`Disk::blocks_on_loop`].
    ///
    /// The answer comes through the job's reply, once, unless nobody wants it when its turn comes:
    /// then the job is dropped. A job that needs more memory than there will ever be is answered with
    /// `InvalidInput`, and one that comes after [`Disk::shutdown`] with ECANCELED, both from here.
    ///
    /// # Errors
    /// [`Full`] when as many jobs wait for its device as may, or when it is of class `First`, nobody
    /// waits before it and there is no memory: better a quick refusal than a client kept waiting
    /// before its first byte. A job of class `Next` waits for memory in the queue.
    pub fn submit(&self, job: Job) -> Result<(), Full> {
        self.scheduler.submit(job)
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

    /// Whether the device has a slot to spare and no queue. From Linux 6.12 on a `preadv2(RWF_NOWAIT)`
    /// that misses starts a read behind the scheduler's back: try one only when this is true.
    pub fn has_room(&self, device: u64) -> bool {
        let lanes = self.scheduler.lock();
        lanes
            .by_device
            .get(&device)
            .is_none_or(|lane| lane.in_flight < self.scheduler.bounds.depth && lane.queued() == 0)
    }

    /// [`Disk::submit`] does the work before it returns, and so may wait for the disk: the `sendfile`
    /// engine. No guard can be installed where this is true.
    pub fn blocks_on_loop(&self) -> bool {
        self.scheduler.engine.blocks_on_loop()
    }

    /// What has been done so far. Does not wait.
    pub fn stats(&self) -> Stats {
        self.scheduler.stats()
    }

    /// Answers all jobs that have not started with ECANCELED, waits for those that have, and ends the
    /// threads. Blocks for as long as the slowest of them, which on a frozen device is forever. Jobs
    /// that come later are answered with ECANCELED. A second call does nothing.
    pub fn shutdown(&self) {
        self.scheduler.shutdown();
        let closer = lock(&self.closer).take();
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
    /// Held for a few instructions, never across a call to the kernel, an engine or a reply's `send`.
    lanes: Mutex<Lanes>,
    /// The last job in flight has finished.
    idle: Condvar,
    counters: Counters,
}

impl Scheduler {
    fn submit(self: &Arc<Self>, job: Job) -> Result<(), Full> {
        if Budget::cost(job.op.len()) > self.budget.bytes_max() {
            self.refuse(job, Errno::INVAL);
            return Ok(());
        }
        let device = job.op.device();
        let waiting = Waiting {
            job,
            since: Instant::now(),
        };
        let offered = self.lock().offer(device, waiting, self);
        match offered {
            Offered::Start(waiting, memory) => self.start(device, waiting, memory),
            Offered::Queued => self.pump(Some(device)),
            Offered::Closed(waiting) => self.refuse(waiting.job, Errno::CANCELED),
            Offered::Full(waiting) => {
                stats::add(&self.counters.full, 1);
                return Err(Full(waiting.job));
            }
        }
        Ok(())
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
            }
            if lanes.in_flight == 0 {
                self.idle.notify_all();
            }
        }
        self.pump(Some(device));
    }

    /// Answers a job that will not be started.
    fn refuse(&self, job: Job, errno: Errno) {
        if !job.reply.wanted() {
            return self.count_canceled(1);
        }
        stats::add(&self.counters.errors, 1);
        job.reply.send(Completion {
            result: Err(errno.into()),
            queued: Duration::ZERO,
            service: Duration::ZERO,
        });
    }

    fn shutdown(&self) {
        let waiting = {
            let mut lanes = self.lock();
            if lanes.closed {
                return;
            }
            lanes.close()
        };
        for Waiting { job, .. } in waiting {
            self.refuse(job, Errno::CANCELED);
        }
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
            devices: self.lock().devices(),
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
#[derive(Default)]
struct Lane {
    first: VecDeque<Waiting>,
    next: VecDeque<Waiting>,
    in_flight: usize,
    /// Jobs of class `First` started since the last of class `Next`.
    first_in_a_row: usize,
}

struct Waiting {
    job: Job,
    since: Instant,
}

/// What came of a new job.
enum Offered {
    Start(Waiting, Reservation),
    Queued,
    Full(Waiting),
    Closed(Waiting),
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
            return Offered::Closed(waiting);
        }
        let bounds = scheduler.bounds;
        let inline = scheduler.engine.blocks_on_loop();
        let lane = self.by_device.entry(device).or_default();
        if lane.queued() >= bounds.queue_max {
            return Offered::Full(waiting);
        }
        let starts = inline || (lane.queued() == 0 && lane.in_flight < bounds.depth);
        if !starts || (waiting.job.class == Class::Next && !inline) {
            lane.queue(waiting.job.class).push_back(waiting);
            return Offered::Queued;
        }
        // An engine that works in place reads into no buffer, and its caller cannot wait in a queue.
        let len = if inline { 0 } else { waiting.job.op.len() };
        match self.memory(device, len, &scheduler.budget) {
            Some(memory) => {
                self.started(device);
                Offered::Start(waiting, memory)
            }
            None => Offered::Full(waiting),
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
        let lane = self.by_device.entry(device).or_default();
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
        self.started(device);
        match self.by_device.entry(device).or_default().pop(class) {
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
        self.by_device.entry(device).or_default().in_flight += 1;
    }

    fn close(&mut self) -> Vec<Waiting> {
        self.closed = true;
        self.starved.clear();
        let lanes = self.by_device.values_mut();
        lanes
            .flat_map(|lane| lane.first.drain(..).chain(lane.next.drain(..)))
            .collect()
    }

    fn devices(&self) -> Vec<DeviceStats> {
        let lanes = self.by_device.iter();
        lanes
            .map(|(device, lane)| DeviceStats {
                device: *device,
                queued: lane.queued(),
                in_flight: lane.in_flight,
            })
            .collect()
    }
}

impl Lane {
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
