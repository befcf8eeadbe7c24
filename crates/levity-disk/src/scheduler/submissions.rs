//! How jobs get from event loops to the scheduler: without a lock, and without waiting for the scheduler.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;

use crate::job::{Job, Refusal};
use crate::thread::Parker;

/// Bounds on the capacity, which otherwise is that of one device's queue.
const CAPACITY_MIN: usize = 1024;
const CAPACITY_MAX: usize = 65_536;

/// A job that has not started.
pub(super) struct PendingJob {
    pub(super) job: Job,
    pub(super) submitted_at: Instant,
    /// The device whose queue it is for; `None` until the scheduler has determined it.
    pub(super) device: Option<u64>,
    /// The devices whose queues it has been in before, see [`KnownDevices`](crate::files::KnownDevices).
    pub(super) previous_devices: Vec<u64>,
}

impl PendingJob {
    pub(super) fn new(job: Job) -> PendingJob {
        PendingJob {
            job,
            submitted_at: Instant::now(),
            device: None,
            previous_devices: Vec::new(),
        }
    }

    /// The device that it is charged to. The first call takes a lock: not for event loops.
    pub(super) fn device(&mut self) -> u64 {
        let op = &self.job.op;
        *self.device.get_or_insert_with(|| op.device())
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.job.reply.is_awaited()
    }
}

/// An event for the scheduler.
pub(super) enum SchedulerEvent {
    /// Handle a new job.
    Submitted(PendingJob),
    /// Start jobs that wait for memory.
    MemoryFreed,
    /// Nothing: the time-out has passed.
    TimedOut,
    /// End: the queue is closed, and no job is arriving.
    Closed,
}

/// The queue from event loops to the scheduler: many producers, one consumer, no lock. Of fixed size: a
/// queue that grows would call the allocator on an event loop, and other producers would wait for that.
pub(super) struct Submissions {
    jobs: ArrayQueue<PendingJob>,
    /// Jobs that are on their way to the scheduler: pushed, and not yet put where others see them.
    arriving: AtomicUsize,
    memory_freed: AtomicBool,
    closed: AtomicBool,
    parker: Parker,
}

impl Submissions {
    pub(super) fn new(queue_max: usize) -> Submissions {
        Submissions {
            jobs: ArrayQueue::new(queue_max.clamp(CAPACITY_MIN, CAPACITY_MAX)),
            arriving: AtomicUsize::new(0),
            memory_freed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            parker: Parker::new(),
        }
    }

    /// Pushes a job and wakes the scheduler. Does not block. Returns a job that it refuses.
    pub(super) fn push(&self, pending: PendingJob) -> Result<(), (PendingJob, Refusal)> {
        // Counted before `closed` is looked at, while the scheduler looks at the count after `closed`
        // has been set: either the job is refused here, or the scheduler stays to answer it.
        self.arriving.fetch_add(1, Ordering::SeqCst);
        let pushed = match self.closed.load(Ordering::SeqCst) {
            true => Err((pending, Refusal::Closed)),
            false => {
                let pushed = self.jobs.push(pending);
                pushed.map_err(|pending| (pending, Refusal::Full))
            }
        };
        if pushed.is_err() {
            self.arrived();
        }
        // Even if the job was refused: the scheduler may have waited for it.
        self.parker.unpark();
        pushed
    }

    /// The number of jobs that are on their way to the scheduler.
    pub(super) fn arriving(&self) -> usize {
        self.arriving.load(Ordering::SeqCst)
    }

    /// Records that a job is where others see it: in the queue of its device, in flight, or answered.
    pub(super) fn arrived(&self) {
        self.arriving.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn memory_freed(&self) {
        self.memory_freed.store(true, Ordering::SeqCst);
        self.parker.unpark();
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.parker.unpark();
    }

    /// Waits for the next event, at most for `timeout` if there is one. Only for the scheduler's thread.
    pub(super) fn next(&self, timeout: Option<Duration>) -> SchedulerEvent {
        loop {
            if let Some(event) = self.poll() {
                return event;
            }
            let has_event = || self.has_event();
            match timeout {
                None => self.parker.park_unless(has_event),
                Some(time) => {
                    self.parker.park_timeout_unless(time, has_event);
                    return self.poll().unwrap_or(SchedulerEvent::TimedOut);
                }
            }
        }
    }

    fn poll(&self) -> Option<SchedulerEvent> {
        if self.memory_freed.swap(false, Ordering::SeqCst) {
            return Some(SchedulerEvent::MemoryFreed);
        }
        if let Some(pending) = self.jobs.pop() {
            return Some(SchedulerEvent::Submitted(pending));
        }
        self.is_finished().then_some(SchedulerEvent::Closed)
    }

    fn has_event(&self) -> bool {
        !self.jobs.is_empty() || self.memory_freed.load(Ordering::SeqCst) || self.is_finished()
    }

    fn is_finished(&self) -> bool {
        self.closed.load(Ordering::SeqCst) && self.arriving() == 0
    }
}
