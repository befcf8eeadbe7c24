//! How jobs get from event loops to the threads that take them in: without a lock, and without waiting for one.

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

/// An event for the scheduler's thread.
pub(super) enum SchedulerEvent {
    /// Take in what has arrived.
    Submitted,
    /// Start jobs that wait for memory.
    MemoryFreed,
    /// Nothing: the time-out has passed, or a job has started while the thread slept without one.
    Nothing,
    /// End: the queue is closed, and no job is arriving.
    Closed,
}

/// The queue from event loops, without a lock. Of fixed size: a queue that grows would call the allocator on an event
/// loop, and other producers would wait for that. The threads of the pool and of the engines take jobs in when they
/// have finished others; the scheduler's thread does when nobody else would.
pub(super) struct Submissions {
    jobs: ArrayQueue<PendingJob>,
    /// Jobs that are pushed, and not yet put where others see them.
    arriving: AtomicUsize,
    memory_freed: AtomicBool,
    closed: AtomicBool,
    /// The scheduler's thread looks at the jobs in flight from time to time.
    watching: AtomicBool,
    parker: Parker,
}

impl Submissions {
    pub(super) fn new(queue_max: usize) -> Submissions {
        Submissions {
            jobs: ArrayQueue::new(queue_max.clamp(CAPACITY_MIN, CAPACITY_MAX)),
            arriving: AtomicUsize::new(0),
            memory_freed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            watching: AtomicBool::new(false),
            parker: Parker::new(),
        }
    }

    /// Pushes a job, for which the caller has to wake a thread. Does not block. Returns a job that it refuses.
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
        pushed
    }

    /// A job that has arrived. Call [`Submissions::arrived`] once it is where others see it.
    pub(super) fn pop(&self) -> Option<PendingJob> {
        self.jobs.pop()
    }

    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The number of jobs that are pushed, and not yet where others see them.
    pub(super) fn arriving(&self) -> usize {
        self.arriving.load(Ordering::SeqCst)
    }

    /// Records that a job is where others see it: in the queue of its device, in flight, or answered.
    pub(super) fn arrived(&self) {
        let before = self.arriving.fetch_sub(1, Ordering::SeqCst);
        // The scheduler's thread may have waited for it.
        if before == 1 && self.closed.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    pub(super) fn memory_freed(&self) {
        self.memory_freed.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Wakes the scheduler's thread. Does not block.
    pub(super) fn wake(&self) {
        self.parker.unpark();
    }

    /// Says that a job is in flight. It is counted already, where [`Submissions::watches`] looks.
    pub(super) fn watch(&self) {
        let was_watching = self.watching.load(Ordering::SeqCst);
        if !was_watching && !self.watching.swap(true, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Whether the scheduler's thread has to look at jobs `in_flight` from time to time. Only for that thread. If
    /// not, one that starts later wakes it.
    pub(super) fn watches(&self, in_flight: impl Fn() -> bool) -> bool {
        let watches = in_flight() || {
            self.watching.store(false, Ordering::SeqCst);
            in_flight()
        };
        if watches {
            self.watching.store(true, Ordering::SeqCst);
        }
        watches
    }

    /// Waits for the next event, for at most `timeout` if there is one. Only for the scheduler's thread.
    pub(super) fn next(&self, timeout: Option<Duration>) -> SchedulerEvent {
        match timeout {
            Some(time) => {
                let has_event = || self.has_event();
                self.parker.park_timeout_unless(time, has_event);
            }
            None => {
                let has_event = || self.has_event() || self.watching.load(Ordering::SeqCst);
                self.parker.park_unless(has_event);
            }
        }
        self.poll()
    }

    fn poll(&self) -> SchedulerEvent {
        if self.memory_freed.swap(false, Ordering::SeqCst) {
            SchedulerEvent::MemoryFreed
        } else if !self.jobs.is_empty() {
            SchedulerEvent::Submitted
        } else if self.is_finished() {
            SchedulerEvent::Closed
        } else {
            SchedulerEvent::Nothing
        }
    }

    fn has_event(&self) -> bool {
        !self.jobs.is_empty() || self.memory_freed.load(Ordering::SeqCst) || self.is_finished()
    }

    fn is_finished(&self) -> bool {
        self.closed.load(Ordering::SeqCst) && self.arriving() == 0
    }
}
