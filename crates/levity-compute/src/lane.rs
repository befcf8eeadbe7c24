//! The queue and the threads of one class.
//!
//! Event loops push jobs to a queue without a lock. A thread that looks for work moves them to the fair queue, whose
//! lock only these threads take: one that loses its processor while it holds the lock holds up no loop.

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use levity_disk::stats::Timer;
use levity_disk::{CpuQuota, FairQueue, Parker};

use crate::{Job, Settings, Stats};

/// How long idle work waits for more of the CPU quota.
const QUOTA_PAUSE: Duration = Duration::from_millis(10);

/// A bound on the processor time of the process.
pub(crate) trait Quota: fmt::Debug + Send + Sync {
    /// Whether no time is left at present. May block.
    fn is_used_up(&self) -> bool;
}

impl Quota for CpuQuota {
    /// Reads files below `/proc` and `/sys/fs/cgroup` now and then.
    fn is_used_up(&self) -> bool {
        self.refresh();
        self.look();
        CpuQuota::is_used_up(self)
    }
}

#[derive(Debug)]
pub(crate) struct Lane {
    arriving: ArrayQueue<QueuedJob>,
    /// By nanoseconds of processor time.
    fair: Mutex<FairQueue<QueuedJob>>,
    /// One per thread.
    parkers: Box<[Parker]>,
    queue_max: usize,
    /// For idle work, which must not use up what event loops need: a group over its quota stops as a whole.
    quota: Option<Box<dyn Quota>>,
    /// The fair queue is not empty.
    has_fair: AtomicBool,
    /// Jobs in both queues, and on their way there.
    queued: AtomicUsize,
    /// The estimated time of all jobs that have not ended, in nanoseconds.
    backlog_ns: AtomicU64,
    closed: AtomicBool,
    canceled: AtomicU64,
    full: AtomicU64,
    queue_time: Timer,
    run_time: Timer,
}

#[derive(Debug)]
struct QueuedJob {
    job: Job,
    submitted_at: Instant,
}

impl Lane {
    pub(crate) fn new(settings: Settings, quota: Option<Box<dyn Quota>>) -> Lane {
        let queue_max = settings.queue_max.max(1);
        Lane {
            arriving: ArrayQueue::new(queue_max),
            fair: Mutex::default(),
            parkers: (0..settings.threads).map(|_| Parker::new()).collect(),
            queue_max,
            quota,
            has_fair: AtomicBool::new(false),
            queued: AtomicUsize::new(0),
            backlog_ns: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            canceled: AtomicU64::new(0),
            full: AtomicU64::new(0),
            queue_time: Timer::default(),
            run_time: Timer::default(),
        }
    }

    pub(crate) fn submit(&self, job: Job) -> Result<(), Job> {
        let one_more = |queued| (queued < self.queue_max).then_some(queued + 1);
        let taken = self
            .queued
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        if taken.is_err() {
            self.full.fetch_add(1, Ordering::Relaxed);
            return Err(job);
        }
        self.backlog_ns.fetch_add(cost_ns(&job), Ordering::Relaxed);
        let queued = QueuedJob {
            job,
            submitted_at: Instant::now(),
        };
        self.arriving
            .push(queued)
            .expect("it has room for all queued jobs");
        // Threads that are awake look for work before they sleep.
        self.parkers.iter().any(Parker::unpark);
        Ok(())
    }

    pub(crate) fn wait_estimate(&self) -> Duration {
        let backlog_ns = self.backlog_ns.load(Ordering::Relaxed);
        Duration::from_nanos(backlog_ns / self.parkers.len().max(1) as u64)
    }

    /// The loop of a thread. Ends when the lane is closed.
    pub(crate) fn serve(&self, number: usize) {
        let is_closed = || self.closed.load(Ordering::Relaxed);
        while !is_closed() {
            if self.has_work() && self.is_quota_used_up() {
                thread::sleep(QUOTA_PAUSE);
                continue;
            }
            match self.next() {
                Some(queued) => self.run(queued),
                None => self.parkers[number].park_unless(|| self.has_work() || is_closed()),
            }
        }
    }

    fn is_quota_used_up(&self) -> bool {
        self.quota.as_ref().is_some_and(|quota| quota.is_used_up())
    }

    /// A job is counted in `queued` before it arrives.
    fn has_work(&self) -> bool {
        !self.arriving.is_empty() || self.has_fair.load(Ordering::Relaxed)
    }

    fn next(&self) -> Option<QueuedJob> {
        let mut fair = self.lock();
        // As many as there are now: loops may push faster than this thread takes.
        let arrived = self.arriving.len();
        for _ in 0..arrived {
            let Some(queued) = self.arriving.pop() else {
                break;
            };
            let cost = usize::try_from(cost_ns(&queued.job)).unwrap_or(usize::MAX);
            fair.push(queued.job.stream, cost, queued);
        }
        let next = fair.pop();
        let has_fair = !fair.is_empty();
        self.has_fair.store(has_fair, Ordering::Relaxed);
        drop(fair);
        if arrived > 0 && has_fair {
            // Between the queues a job is in neither, and a thread that looked for work then has gone to sleep.
            self.parkers.iter().any(Parker::unpark);
        }
        let next = next?;
        self.queued.fetch_sub(1, Ordering::Relaxed);
        Some(next)
    }

    fn run(&self, queued: QueuedJob) {
        let QueuedJob { job, submitted_at } = queued;
        let cost_ns = cost_ns(&job);
        if job.work.is_awaited() {
            let started_at = Instant::now();
            self.queue_time.add(started_at - submitted_at);
            // Whoever waits learns of a panic when the work is dropped.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| job.work.run()));
            self.run_time.add(started_at.elapsed());
        } else {
            self.canceled.fetch_add(1, Ordering::Relaxed);
        }
        self.backlog_ns.fetch_sub(cost_ns, Ordering::Relaxed);
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        for parker in &self.parkers {
            parker.unpark();
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            queued: self.queued.load(Ordering::Relaxed),
            threads: self.parkers.len(),
            canceled: self.canceled.load(Ordering::Relaxed),
            full: self.full.load(Ordering::Relaxed),
            queue_time: self.queue_time.snapshot(),
            run_time: self.run_time.snapshot(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, FairQueue<QueuedJob>> {
        self.fair.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cost_ns(job: &Job) -> u64 {
    u64::try_from(job.cost.as_nanos()).unwrap_or(u64::MAX / 2)
}
