//! One device: its queued jobs, its jobs in flight, and the order in which jobs start.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cpu_quota::{self, CpuQuota};
use super::depth::{Depth, Sample};
use super::device_load::DeviceLoad;
use super::fair_queue::FairQueue;
use super::liveness::Liveness;
use super::outage::OutageLog;
use super::shared_job::SharedJob;
use super::submissions::PendingJob;
use super::syncs::Syncs;
use crate::job::Class;
use crate::job::op::{Op, Place};

/// The maximum number of jobs of class `First` in a row while a job of class `Later` waits.
const FIRST_IN_A_ROW_MAX: usize = 3;

/// The maximum number of operations of one file that a new job is compared with, the youngest first. A search among
/// thousands, under the lock, would cost more than it saves.
const COMPARED_MAX: usize = 32;

/// The queue of one device. Never removed: there is one per mount that was ever seen.
pub(super) struct DeviceQueue {
    /// Where other threads read how busy the device is.
    load: Arc<DeviceLoad>,
    depth: Depth,
    cpu_quota: Arc<CpuQuota>,
    pub(super) liveness: Liveness,
    pub(super) outage: OutageLog,
    first_jobs: FairQueue<Arc<SharedJob>>,
    later_jobs: FairQueue<Arc<SharedJob>>,
    /// All operations that wait or are in flight, by [`join_key`].
    by_join_key: HashMap<u64, Vec<Arc<SharedJob>>>,
    syncs: Syncs,
    in_flight: usize,
    /// In-flight jobs of class `First`.
    first_in_flight: usize,
    /// Bytes that in-flight jobs may read or write.
    bytes_in_flight: usize,
    /// Jobs of class `First` started since the last one of class `Later`.
    first_in_a_row: usize,
}

/// The jobs of a dead device that should no longer wait for it. Empty if it is not dead.
#[derive(Default)]
pub(super) struct StalledJobs {
    /// Jobs of class `First`, taken from the queue because they would not start soon.
    pub(super) hopeless: Vec<Arc<SharedJob>>,
    /// Operations that are queued or in flight, and may have jobs of class `First` among their own.
    pub(super) unfinished: Vec<Arc<SharedJob>>,
}

impl DeviceQueue {
    pub(super) fn new(
        load: Arc<DeviceLoad>,
        depth: Depth,
        cpu_quota: Arc<CpuQuota>,
    ) -> DeviceQueue {
        let queue = DeviceQueue {
            load,
            depth,
            cpu_quota,
            liveness: Liveness::default(),
            outage: OutageLog::default(),
            first_jobs: FairQueue::default(),
            later_jobs: FairQueue::default(),
            by_join_key: HashMap::new(),
            syncs: Syncs::default(),
            in_flight: 0,
            first_in_flight: 0,
            bytes_in_flight: 0,
            first_in_a_row: 0,
        };
        queue.publish();
        queue
    }

    /// Publishes the load. Called after every change, before the lock is released.
    fn publish(&self) {
        let (depth, dead) = (self.depth.current(), self.liveness.is_dead());
        self.load.set(self.queued(), self.in_flight, depth, dead);
    }

    pub(super) fn queued(&self) -> usize {
        self.waiting_for_a_slot() + self.syncs.held()
    }

    fn waiting_for_a_slot(&self) -> usize {
        self.first_jobs.len() + self.later_jobs.len()
    }

    /// Whether a job has to wait for another that is in flight: a sync of the same file.
    pub(super) fn must_wait(&self, op: &Op) -> bool {
        self.syncs.is_in_flight(op)
    }

    /// In-flight jobs of the classes `Later` and `Prefetch`.
    fn bulk_in_flight(&self) -> usize {
        self.in_flight - self.first_in_flight
    }

    /// Whether a job that reads or writes `len` bytes may start in addition to those in flight.
    pub(super) fn has_slot(&self, len: usize) -> bool {
        self.has_room(len) && self.liveness.may_start()
    }

    /// As [`DeviceQueue::has_slot`], if the device is alive.
    fn has_room(&self, len: usize) -> bool {
        let (jobs, bytes) = (self.in_flight, self.bytes_in_flight);
        !self.is_held_back() && self.depth.admits(jobs, bytes, len)
    }

    /// Whether the CPU quota allows no further job.
    fn is_held_back(&self) -> bool {
        self.in_flight >= cpu_quota::JOBS_MAX && self.cpu_quota.is_used_up()
    }

    /// Whether a prefetch may start: if nothing is queued, in the half of the slots that is not reserved for
    /// clients that have received nothing yet.
    pub(super) fn has_slot_for_prefetch(&self, len: usize) -> bool {
        self.queued() == 0
            && self.bulk_in_flight() < self.depth.current() / 2
            && self.has_slot(len)
            && !self.liveness.is_dead()
    }

    /// Whether the device is dead, and a job would not start soon.
    pub(super) fn is_hopeless(&self, now: Instant) -> bool {
        self.liveness.is_hopeless(now, self.has_room(0))
    }

    /// Whether a sync of the same file waits.
    pub(super) fn has_waiting_sync(&self, op: &Op) -> bool {
        self.syncs.waiting(op).is_some()
    }

    /// Lets a job join an operation that covers what it asks for. Not on a dead device, where the job would
    /// only wait for that operation; except for a sync, which would have to wait for it in any case.
    pub(super) fn join(
        &self,
        mut pending: PendingJob,
        open_age_max: Duration,
        joined_max: usize,
    ) -> Result<(), PendingJob> {
        if let Some(sync) = self.syncs.waiting(&pending.job.op) {
            return sync.join_sync(pending, joined_max);
        }
        let jobs = self.by_join_key.get(&join_key(&pending.job.op));
        let Some(jobs) = jobs.filter(|_| !self.liveness.is_dead()) else {
            return Err(pending);
        };
        for job in jobs.iter().rev().take(COMPARED_MAX) {
            match job.join(pending, open_age_max, joined_max) {
                Ok(()) => return Ok(()),
                Err(refused) => pending = refused,
            }
        }
        Err(pending)
    }

    pub(super) fn push(&mut self, job: Arc<SharedJob>) {
        self.register(&job);
        if !self.syncs.hold(&job) {
            self.enqueue(job);
        }
        self.publish();
    }

    fn enqueue(&mut self, job: Arc<SharedJob>) {
        let (stream, len) = (job.stream, job.op.bytes());
        self.queue(job.class).push(stream, len, job);
    }

    /// From now on other jobs can join `job`.
    pub(super) fn register(&mut self, job: &Arc<SharedJob>) {
        let jobs = self.by_join_key.entry(join_key(&job.op)).or_default();
        jobs.push(Arc::clone(job));
        self.syncs.register(job);
    }

    fn unregister(&mut self, job: &Arc<SharedJob>) {
        let key = join_key(&job.op);
        if let Some(jobs) = self.by_join_key.get_mut(&key) {
            jobs.retain(|other| !Arc::ptr_eq(other, job));
            if jobs.is_empty() {
                self.by_join_key.remove(&key);
            }
        }
        if let Some(held) = self.syncs.unregister(job) {
            self.enqueue(held);
        }
    }

    fn queue(&mut self, class: Class) -> &mut FairQueue<Arc<SharedJob>> {
        match class {
            Class::First => &mut self.first_jobs,
            Class::Later => &mut self.later_jobs,
            Class::Prefetch => unreachable!("a prefetch starts at once or never"),
        }
    }

    /// Moves the jobs that nobody waits for from the fronts of both queues to `unawaited`.
    pub(super) fn take_unawaited(&mut self, unawaited: &mut Vec<Arc<SharedJob>>) {
        for class in [Class::First, Class::Later] {
            let is_unawaited = |job: &Arc<SharedJob>| !job.is_awaited();
            while self.queue(class).front().is_some_and(is_unawaited) {
                let job = self.queue(class).pop();
                job.iter().for_each(|job| self.unregister(job));
                unawaited.extend(job);
            }
        }
        self.publish();
    }

    /// The class whose turn it is, and the bytes of memory that its job needs, if it may start.
    ///
    /// As long as jobs of class `First` wait they get at least half of the slots: at most every fourth job
    /// started is of class `Later`, and none while those and prefetches have half. If none of class `First`
    /// wait, the others get all slots.
    pub(super) fn next(&self) -> Option<(Class, usize)> {
        let later_turn = self.first_in_a_row >= FIRST_IN_A_ROW_MAX
            && self.bulk_in_flight() < (self.depth.current() / 2).max(1);
        let (class, job) = match (self.first_jobs.front(), self.later_jobs.front()) {
            (Some(_), Some(later)) if later_turn => (Class::Later, later),
            (Some(first), _) => (Class::First, first),
            (None, later) => (Class::Later, later?),
        };
        self.has_slot(job.op.bytes())
            .then(|| (class, job.op.memory()))
    }

    /// Takes the job whose turn it is.
    pub(super) fn pop(&mut self, class: Class) -> Option<Arc<SharedJob>> {
        match class {
            Class::First => self.first_in_a_row += 1,
            _ => self.first_in_a_row = 0,
        }
        self.queue(class).pop()
    }

    /// Records that the engine gets `job`.
    pub(super) fn started(&mut self, job: &Arc<SharedJob>, now: Instant) {
        job.started(now);
        self.syncs.started(job);
        self.liveness.started(now);
        self.in_flight += 1;
        self.first_in_flight += usize::from(job.class == Class::First);
        self.bytes_in_flight += job.op.bytes();
        self.publish();
    }

    /// Records that the engine has finished or dropped `job`. See [`Sample`] for `run_queue_wait`.
    pub(super) fn finished(
        &mut self,
        job: &Arc<SharedJob>,
        now: Instant,
        run_queue_wait: Option<Duration>,
    ) {
        self.unregister(job);
        self.in_flight -= 1;
        self.first_in_flight -= usize::from(job.class == Class::First);
        self.bytes_in_flight -= job.op.bytes();
        self.liveness.completed(now, self.in_flight == 0);
        self.charge(job);
        let sample = Sample {
            latency: job.latency(now),
            bytes: job.delivered(),
            // While it is used up, the depth does not hold jobs back.
            saturated: self.waiting_for_a_slot() > 0 && !self.cpu_quota.is_used_up(),
            run_queue_wait,
        };
        self.depth.completed(now, sample);
        self.publish();
    }

    /// Charges the stream for bytes that an open has read beyond those that it was queued for.
    fn charge(&mut self, job: &SharedJob) {
        let surplus = job.delivered().saturating_sub(job.op.bytes());
        // A prefetch was in no queue.
        if surplus > 0 && job.class != Class::Prefetch {
            self.queue(job.class).charge(job.stream, surplus);
        }
    }

    /// Checks whether the device is dead.
    pub(super) fn check(&mut self, now: Instant, dead_after: Duration) -> StalledJobs {
        let mut stalled = StalledJobs::default();
        if self.liveness.check(now, dead_after) {
            if self.is_hopeless(now) {
                stalled.hopeless.extend(self.first_jobs.drain());
            }
            stalled.hopeless.iter().for_each(|job| self.unregister(job));
            let unfinished = self.by_join_key.values().flatten();
            stalled.unfinished.extend(unfinished.map(Arc::clone));
        }
        self.publish();
        stalled
    }

    /// Takes all queued jobs.
    pub(super) fn drain(&mut self) -> Vec<Arc<SharedJob>> {
        let all: Vec<_> = self
            .first_jobs
            .drain()
            .chain(self.later_jobs.drain())
            .chain(self.syncs.take_held())
            .collect();
        all.iter().for_each(|job| self.unregister(job));
        self.publish();
        all
    }
}

/// A number that is the same for all operations on one file or one name. Not unique.
fn join_key(op: &Op) -> u64 {
    match op {
        Op::CheckRoot(check) => Arc::as_ptr(&check.root).addr() as u64,
        Op::Open(open) => {
            let mut hasher = DefaultHasher::new();
            (Arc::as_ptr(&open.root), &open.path).hash(&mut hasher);
            hasher.finish()
        }
        _ => match op.place() {
            Place::File(file) => file.meta.inode,
            Place::Root(_) | Place::Name(..) | Place::Spool(_) => 0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::device_load::DeviceLoads;
    use super::*;

    #[test]
    fn two_jobs_are_in_flight_beyond_the_cpu_quota() {
        for (is_used_up, third_starts) in [(false, true), (true, false)] {
            let load = DeviceLoads::default().add(1);
            let quota = Arc::new(CpuQuota::for_test(is_used_up));
            let mut queue = DeviceQueue::new(load, Depth::fixed(4), quota);
            queue.in_flight = 1;
            assert!(queue.has_slot(4096));
            queue.in_flight = 2;
            assert_eq!(queue.has_slot(4096), third_starts);
        }
    }
}
