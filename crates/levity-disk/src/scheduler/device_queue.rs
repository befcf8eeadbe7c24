//! One device: the jobs that wait for it, the jobs that it works on, and the order of their turns.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::depth::{Depth, Sample};
use super::device_load::DeviceLoad;
use super::fair_queue::FairQueue;
use super::liveness::Liveness;
use super::outage::OutageLog;
use super::shared_job::SharedJob;
use super::submissions::PendingJob;
use crate::job::{Class, Op};

/// Jobs of class `First` in a row before a job of class `Next` gets its turn.
const FIRST_IN_A_ROW_MAX: usize = 3;

/// Bound on the operations of one file that a new job is compared with, the youngest first. A search among
/// thousands, under the lock, would cost more than it saves.
const COMPARED_MAX: usize = 32;

/// The queue of one device. Kept once made: there are as many as mounts that were ever seen.
pub(super) struct DeviceQueue {
    /// Where other threads read how busy the device is.
    load: Arc<DeviceLoad>,
    depth: Depth,
    pub(super) liveness: Liveness,
    pub(super) outage: OutageLog,
    first: FairQueue<Arc<SharedJob>>,
    next: FairQueue<Arc<SharedJob>>,
    /// All operations that wait or are in flight, by [`subject`].
    by_subject: HashMap<u64, Vec<Arc<SharedJob>>>,
    in_flight: usize,
    /// In-flight jobs of class `First`.
    first_in_flight: usize,
    /// Bytes that in-flight jobs may read or write.
    bytes_in_flight: usize,
    /// Jobs of class `First` started since the last one of class `Next`.
    first_in_a_row: usize,
}

impl DeviceQueue {
    pub(super) fn new(load: Arc<DeviceLoad>, depth: Depth) -> DeviceQueue {
        let queue = DeviceQueue {
            load,
            depth,
            liveness: Liveness::default(),
            outage: OutageLog::default(),
            first: FairQueue::default(),
            next: FairQueue::default(),
            by_subject: HashMap::new(),
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
        let (depth, dead) = (self.depth.limit(), self.liveness.is_dead());
        self.load.set(self.queued(), self.in_flight, depth, dead);
    }

    pub(super) fn queued(&self) -> usize {
        self.first.len() + self.next.len()
    }

    /// Whether a job that reads or writes `len` bytes may start in addition to those in flight.
    pub(super) fn has_slot(&self, len: usize) -> bool {
        let (jobs, bytes) = (self.in_flight, self.bytes_in_flight);
        self.depth.admits(jobs, bytes, len) && self.liveness.may_start()
    }

    /// Whether a prefetch may start: if nothing is queued, in the half of the slots that is not reserved for
    /// clients that have received nothing yet.
    pub(super) fn has_slot_for_prefetch(&self, len: usize) -> bool {
        let others = self.in_flight - self.first_in_flight;
        self.queued() == 0
            && others < self.depth.limit() / 2
            && self.has_slot(len)
            && !self.liveness.is_dead()
    }

    /// Whether the device is dead, and a job would not start soon.
    pub(super) fn is_hopeless(&self, now: Instant) -> bool {
        let room = self.depth.admits(self.in_flight, self.bytes_in_flight, 0);
        self.liveness.is_hopeless(now, room)
    }

    /// Lets a job join an operation that covers what it asks for. Not on a dead device, where that operation
    /// would only hold the job up.
    pub(super) fn join(
        &self,
        mut pending: PendingJob,
        open_age_max: Duration,
        joined_max: usize,
    ) -> Result<(), PendingJob> {
        let jobs = self.by_subject.get(&subject(&pending.job.op));
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
        let (stream, len) = (job.stream, job.op.bytes());
        self.queue(job.class).push(stream, len, job);
        self.publish();
    }

    /// From now on other jobs can join `job`.
    pub(super) fn register(&mut self, job: &Arc<SharedJob>) {
        let jobs = self.by_subject.entry(subject(&job.op)).or_default();
        jobs.push(Arc::clone(job));
    }

    fn unregister(&mut self, job: &Arc<SharedJob>) {
        let subject = subject(&job.op);
        if let Some(jobs) = self.by_subject.get_mut(&subject) {
            jobs.retain(|other| !Arc::ptr_eq(other, job));
            if jobs.is_empty() {
                self.by_subject.remove(&subject);
            }
        }
    }

    fn queue(&mut self, class: Class) -> &mut FairQueue<Arc<SharedJob>> {
        match class {
            Class::First => &mut self.first,
            Class::Next => &mut self.next,
            Class::Prefetch => unreachable!("a prefetch starts at once or never"),
        }
    }

    /// Moves the jobs that nobody waits for from the fronts of both queues to `abandoned`.
    pub(super) fn drop_abandoned(&mut self, abandoned: &mut Vec<Arc<SharedJob>>) {
        for class in [Class::First, Class::Next] {
            let is_abandoned = |job: &Arc<SharedJob>| !job.is_awaited();
            while self.queue(class).front().is_some_and(is_abandoned) {
                let job = self.queue(class).pop();
                job.iter().for_each(|job| self.unregister(job));
                abandoned.extend(job);
            }
        }
        self.publish();
    }

    /// The class whose turn it is, and the bytes of memory that its job needs, if it may start.
    ///
    /// As long as jobs of class `First` wait they get at least half of the slots: at most every fourth job
    /// started is of class `Next`, and none while those have half. If none wait, the others get all slots.
    pub(super) fn next(&self) -> Option<(Class, usize)> {
        let others = self.in_flight - self.first_in_flight;
        let others_turn =
            self.first_in_a_row >= FIRST_IN_A_ROW_MAX && others < (self.depth.limit() / 2).max(1);
        let (class, job) = match (self.first.front(), self.next.front()) {
            (Some(_), Some(next)) if others_turn => (Class::Next, next),
            (Some(first), _) => (Class::First, first),
            (None, next) => (Class::Next, next?),
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

    /// The engine gets `job`.
    pub(super) fn started(&mut self, job: &Arc<SharedJob>, now: Instant) {
        job.started(now);
        self.liveness.started(now);
        self.in_flight += 1;
        self.first_in_flight += usize::from(job.class == Class::First);
        self.bytes_in_flight += job.op.bytes();
        self.publish();
    }

    /// The engine has finished or dropped `job`.
    pub(super) fn finished(&mut self, job: &Arc<SharedJob>, now: Instant) {
        self.unregister(job);
        self.in_flight -= 1;
        self.first_in_flight -= usize::from(job.class == Class::First);
        self.bytes_in_flight -= job.op.bytes();
        self.liveness.completed(now, self.in_flight == 0);
        self.charge(job);
        let sample = Sample {
            latency: job.latency(now),
            bytes: job.delivered(),
            limited: self.queued() > 0,
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

    /// Checks whether the device is dead. If it is, returns the queued jobs of class `First`, unless they
    /// may still start soon, and the operations that may hold others up.
    pub(super) fn check(
        &mut self,
        now: Instant,
        dead_after: Duration,
    ) -> (Vec<Arc<SharedJob>>, Vec<Arc<SharedJob>>) {
        let dead = self.liveness.check(now, dead_after);
        let hopeless: Vec<_> = match dead && self.is_hopeless(now) {
            true => self.first.drain().collect(),
            false => Vec::new(),
        };
        hopeless.iter().for_each(|job| self.unregister(job));
        let holding = self.by_subject.values().flatten().filter(|_| dead);
        let holding = holding.map(Arc::clone).collect();
        self.publish();
        (hopeless, holding)
    }

    /// Takes all queued jobs.
    pub(super) fn drain(&mut self) -> Vec<Arc<SharedJob>> {
        let all: Vec<_> = self.first.drain().chain(self.next.drain()).collect();
        all.iter().for_each(|job| self.unregister(job));
        self.publish();
        all
    }
}

/// A number that is the same for all operations on one file or one name. Others may have it too.
fn subject(op: &Op) -> u64 {
    match op {
        Op::Read { file, .. } | Op::Write { file, .. } | Op::Unlink { file, .. } => file.meta.inode,
        Op::List { directory, .. } => directory.meta.inode,
        Op::Create { spool } => spool.device(),
        Op::CheckRoot { root } => Arc::as_ptr(root).addr() as u64,
        Op::Open(open) => {
            let mut hasher = DefaultHasher::new();
            (Arc::as_ptr(&open.root), &open.path).hash(&mut hasher);
            hasher.finish()
        }
    }
}
