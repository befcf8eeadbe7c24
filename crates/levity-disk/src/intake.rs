//! How jobs get from event loops to the scheduler: without a lock, and without waiting for it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;

use crate::bell::Bell;
use crate::engine::Job;

/// Jobs that may be on their way to the scheduler: as many as one device's queue takes, within these.
const JOBS_MIN: usize = 1024;
const JOBS_MAX: usize = 65_536;

/// A job that has not started.
pub(crate) struct Waiting {
    pub(crate) job: Job,
    pub(crate) since: Instant,
    /// Whose queue it is for; `None` until the scheduler has looked.
    pub(crate) device: Option<u64>,
    /// KnownDevices in whose queues it has been before, see [`crossing`](crate::files).
    pub(crate) passed: Vec<u64>,
}

impl Waiting {
    pub(crate) fn new(job: Job) -> Waiting {
        Waiting {
            job,
            since: Instant::now(),
            device: None,
            passed: Vec::new(),
        }
    }

    /// The device that it is charged to. The first call takes a lock: not for event loops.
    pub(crate) fn device(&mut self) -> u64 {
        let op = &self.job.op;
        *self.device.get_or_insert_with(|| op.device())
    }
}

/// A job that is not taken.
pub(crate) enum Refused {
    Closed(Waiting),
    Full(Waiting),
    /// Its device does not answer.
    Dead(Waiting),
}

/// What the scheduler is to see to.
pub(crate) enum Arrival {
    Job(Waiting),
    /// Bytes have come back for which a job waits.
    Memory,
    /// Nothing came for as long as it could wait.
    Nothing,
    /// The intake is closed, and no job is on its way.
    End,
}

/// Any thread puts in, one takes out. A queue of fixed size: one that grows would call the allocator
/// on an event loop, and those who push would wait for the one that does.
pub(crate) struct Intake {
    jobs: ArrayQueue<Waiting>,
    /// Jobs of which the scheduler has not said that they have arrived.
    arriving: AtomicUsize,
    memory_is_back: AtomicBool,
    closed: AtomicBool,
    bell: Bell,
}

impl Intake {
    pub(crate) fn new(queue_max: usize) -> Intake {
        Intake {
            jobs: ArrayQueue::new(queue_max.clamp(JOBS_MIN, JOBS_MAX)),
            arriving: AtomicUsize::new(0),
            memory_is_back: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            bell: Bell::new(),
        }
    }

    #[allow(
        clippy::result_large_err,
        reason = "what is refused comes back whole; a box would cost an allocation for each job"
    )]
    pub(crate) fn push(&self, waiting: Waiting) -> Result<(), Refused> {
        // Counted before `closed` is looked at, while the scheduler looks at the count after `closed`
        // has been set: either the job is refused here, or the scheduler stays to answer it.
        self.arriving.fetch_add(1, Ordering::SeqCst);
        let pushed = match self.closed.load(Ordering::SeqCst) {
            true => Err(Refused::Closed(waiting)),
            false => self.jobs.push(waiting).map_err(Refused::Full),
        };
        if pushed.is_err() {
            self.arrived();
        }
        // Even for one that is refused: the scheduler may have stayed for it.
        self.bell.ring();
        pushed
    }

    /// How many jobs are on their way.
    pub(crate) fn arriving(&self) -> usize {
        self.arriving.load(Ordering::SeqCst)
    }

    /// A job is where others see it: in a lane, in flight, or answered.
    pub(crate) fn arrived(&self) {
        self.arriving.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn memory_is_back(&self) {
        self.memory_is_back.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    /// Waits for something to see to, at most for `patience` if there is such a bound. Only for the
    /// scheduler's thread.
    pub(crate) fn next(&self, patience: Option<Duration>) -> Arrival {
        loop {
            if let Some(arrival) = self.look() {
                return arrival;
            }
            let has_something = || self.has_something();
            match patience {
                None => self.bell.sleep_unless(has_something),
                Some(time) => {
                    self.bell.doze_unless(time, has_something);
                    return self.look().unwrap_or(Arrival::Nothing);
                }
            }
        }
    }

    fn look(&self) -> Option<Arrival> {
        if self.memory_is_back.swap(false, Ordering::SeqCst) {
            return Some(Arrival::Memory);
        }
        if let Some(waiting) = self.jobs.pop() {
            return Some(Arrival::Job(waiting));
        }
        self.is_at_its_end().then_some(Arrival::End)
    }

    fn has_something(&self) -> bool {
        !self.jobs.is_empty() || self.memory_is_back.load(Ordering::SeqCst) || self.is_at_its_end()
    }

    fn is_at_its_end(&self) -> bool {
        self.closed.load(Ordering::SeqCst) && self.arriving() == 0
    }
}
