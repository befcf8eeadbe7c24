//! The queues of all devices, and the queue of those that wait for memory.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::bounds::Bounds;
use super::cpu_quota::CpuQuota;
use super::device_load::DeviceLoads;
use super::device_queue::{DeviceQueue, StalledJobs};
use super::outage::Outage;
use super::shared_job::SharedJob;
use super::submissions::PendingJob;
use crate::job::{Class, Refusal, Reply};
use crate::memory::{Budget, Reservation};

/// Protected by the scheduler's lock.
pub(super) struct DeviceQueues {
    by_device: HashMap<u64, DeviceQueue>,
    /// Devices whose next job lacks memory, the longest waiting first.
    starved: VecDeque<u64>,
    in_flight: usize,
    /// Devices with an outage whose end has not been reported.
    outages: usize,
    closed: bool,
    bounds: Bounds,
    budget: Budget,
    loads: Arc<DeviceLoads>,
    cpu_quota: Arc<CpuQuota>,
}

/// The outcome of [`DeviceQueues::admit`].
pub(super) enum Admission {
    Start(Arc<SharedJob>, Reservation),
    Queued,
    /// It has joined another job.
    Joined,
    Refused(PendingJob, Refusal),
}

/// The result of looking for a job of one device to start.
enum Next {
    Start(Arc<SharedJob>, Reservation),
    /// No job waits, or no slot is free.
    Nothing,
    NoMemory,
}

/// Jobs that have waited too long for a dead device, and the reports on such devices.
#[derive(Default)]
pub(super) struct Overdue {
    /// Jobs that had not started.
    pub(super) jobs: Vec<Arc<SharedJob>>,
    /// Clients of operations that are still in progress.
    pub(super) replies: Vec<Box<dyn Reply>>,
    pub(super) outages: Vec<Outage>,
}

impl Overdue {
    fn count(&self) -> usize {
        self.jobs.len() + self.replies.len()
    }
}

impl DeviceQueues {
    pub(super) fn new(
        bounds: Bounds,
        budget: Budget,
        loads: Arc<DeviceLoads>,
        cpu_quota: Arc<CpuQuota>,
    ) -> DeviceQueues {
        DeviceQueues {
            by_device: HashMap::new(),
            starved: VecDeque::new(),
            in_flight: 0,
            outages: 0,
            closed: false,
            bounds,
            budget,
            loads,
            cpu_quota,
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether the passing of time may change the state of a device.
    pub(super) fn needs_checks(&self) -> bool {
        self.in_flight > 0 || self.outages > 0
    }

    /// Starts, queues, joins or refuses a job. A job that `starts_at_once` waits for no slot: its engine
    /// blocks the submitting thread, which cannot wait in a queue.
    pub(super) fn admit(
        &mut self,
        mut pending: PendingJob,
        starts_at_once: bool,
        open_age_max: Duration,
    ) -> Admission {
        if self.closed {
            return Admission::Refused(pending, Refusal::Closed);
        }
        let device = pending.device();
        let queue = self.by_device.entry(device).or_insert_with(|| {
            let (load, depth) = (self.loads.add(device), self.bounds.depth.start());
            DeviceQueue::new(load, depth, Arc::clone(&self.cpu_quota))
        });
        if starts_at_once {
            // It reads into no buffer.
            return self.start(pending, device, 0);
        }
        if pending.job.class == Class::First && queue.is_hopeless(pending.submitted_at) {
            queue.outage.refused(1);
            return Admission::Refused(pending, Refusal::Dead);
        }
        let pending = match queue.join(pending, open_age_max, self.bounds.queue_max) {
            Ok(()) => return Admission::Joined,
            Err(pending) => pending,
        };
        let op = &pending.job.op;
        let (bytes, memory) = (op.bytes(), op.memory());
        let starts = match pending.job.class {
            // It has not joined because too many have.
            _ if queue.has_waiting_sync(op) => return Admission::Refused(pending, Refusal::Full),
            Class::First => queue.queued() == 0 && queue.has_slot(bytes) && !queue.must_wait(op),
            Class::Later => false,
            Class::Prefetch
                if queue.has_slot_for_prefetch(bytes)
                    && !queue.must_wait(op)
                    && leaves_half(&self.budget, memory) =>
            {
                true
            }
            Class::Prefetch => return Admission::Refused(pending, Refusal::Full),
        };
        if queue.queued() >= self.bounds.queue_max {
            return Admission::Refused(pending, Refusal::Full);
        }
        if starts {
            return self.start(pending, device, memory);
        }
        queue.push(SharedJob::new(pending, device));
        Admission::Queued
    }

    /// Starts a job that has a slot, if there are `len` bytes of memory for it.
    fn start(&mut self, pending: PendingJob, device: u64, len: usize) -> Admission {
        let Some(memory) = self.reserve(device, len) else {
            return Admission::Refused(pending, Refusal::Full);
        };
        let job = SharedJob::new(pending, device);
        self.queue(device).register(&job);
        self.started(&job);
        Admission::Start(job, memory)
    }

    /// The next job to start: of `device`, otherwise of the first device that queues for memory. Moves the jobs
    /// that nobody waits for to `unawaited`.
    pub(super) fn next(
        &mut self,
        device: Option<u64>,
        unawaited: &mut Vec<Arc<SharedJob>>,
    ) -> Option<(Arc<SharedJob>, Reservation)> {
        if let Some(device) = device
            && let Next::Start(job, memory) = self.next_of(device, unawaited)
        {
            return Some((job, memory));
        }
        while let Some(device) = self.starved.front().copied() {
            match self.next_of(device, unawaited) {
                Next::Start(job, memory) => return Some((job, memory)),
                Next::NoMemory => return None,
                Next::Nothing => {}
            }
        }
        None
    }

    fn next_of(&mut self, device: u64, unawaited: &mut Vec<Arc<SharedJob>>) -> Next {
        let Some(queue) = self.by_device.get_mut(&device) else {
            return Next::Nothing;
        };
        queue.take_unawaited(unawaited);
        let Some((class, len)) = queue.next() else {
            self.starved.retain(|starved| *starved != device);
            return Next::Nothing;
        };
        let Some(memory) = self.reserve(device, len) else {
            if !self.starved.contains(&device) {
                self.starved.push_back(device);
            }
            return Next::NoMemory;
        };
        self.yield_memory(device);
        match self.queue(device).pop(class) {
            Some(job) => {
                self.started(&job);
                Next::Start(job, memory)
            }
            None => unreachable!("the class was chosen because a job waits in it"),
        }
    }

    /// Moves a device that has got memory to the end of the queue for memory.
    fn yield_memory(&mut self, device: u64) {
        if self.starved.front() == Some(&device) {
            self.starved.rotate_left(1);
        }
    }

    /// Memory for a job of `device`, unless other devices queue for it.
    fn reserve(&self, device: u64, len: usize) -> Option<Reservation> {
        let others_first = self.starved.front().is_some_and(|first| *first != device);
        if others_first && len > 0 {
            return None;
        }
        self.budget.reserve(len)
    }

    fn started(&mut self, job: &Arc<SharedJob>) {
        self.in_flight += 1;
        self.queue(job.device).started(job, Instant::now());
    }

    pub(super) fn finished(&mut self, job: &Arc<SharedJob>, run_queue_wait: Option<Duration>) {
        self.in_flight -= 1;
        let queue = self.queue(job.device);
        queue.finished(job, Instant::now(), run_queue_wait);
    }

    /// The queue of a device that has had a job.
    fn queue(&mut self, device: u64) -> &mut DeviceQueue {
        let queue = self.by_device.get_mut(&device);
        queue.expect("made for its first job")
    }

    /// Finds the devices that are dead and the jobs that should no longer wait for them. Adds the devices
    /// that may start a job now to `to_pump`.
    pub(super) fn check(&mut self, to_pump: &mut Vec<u64>) -> Overdue {
        let (now, dead_after) = (Instant::now(), self.bounds.dead_after);
        let mut overdue = Overdue::default();
        for (device, queue) in &mut self.by_device {
            let StalledJobs {
                hopeless,
                unfinished,
            } = queue.check(now, dead_after);
            let silent_since = queue.liveness.silent_since();
            let outage = queue.outage.check(*device, now, silent_since);
            overdue.outages.extend(outage);
            let before = overdue.count();
            overdue.jobs.extend(hopeless);
            let replies = unfinished
                .iter()
                .flat_map(|job| job.give_up(now, dead_after));
            overdue.replies.extend(replies);
            queue.outage.refused(overdue.count() - before);
            to_pump.extend((queue.queued() > 0).then_some(*device));
        }
        let queues = self.by_device.values();
        self.outages = queues.filter(|queue| queue.outage.is_open()).count();
        overdue
    }

    /// Accepts no more jobs, and returns those that are queued.
    pub(super) fn close(&mut self) -> Vec<Arc<SharedJob>> {
        self.closed = true;
        self.starved.clear();
        let queues = self.by_device.values_mut();
        queues.flat_map(DeviceQueue::drain).collect()
    }
}

/// Whether `len` more bytes leave half of the memory free. A first chunk that finds no memory is refused,
/// and the memory of a prefetch is held for as long as the client takes for earlier chunks.
fn leaves_half(budget: &Budget, len: usize) -> bool {
    budget.in_use().saturating_add(Budget::cost(len)) <= budget.bytes_max() / 2
}
