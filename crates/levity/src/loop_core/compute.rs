//! Computing off the event loop: the pool of threads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_compute::{Class, Job, Pool, Work};
use levity_telemetry::stats::{Compressions, ComputeFigures};
use tokio::sync::oneshot;
use tokio::time;

use crate::shares::{Resource, Shares};

/// The minimum interval at which a job for a full queue is submitted again, and the maximum.
///
/// A wake-up when there is room would need a list of those that wait, and so a lock that event loops share with threads
/// of lower priority: one of these that loses its processor while it holds the lock would hold up a loop.
const RETRY_INTERVAL: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(100)];

/// The interval is this part of the time that the jobs in the queue take. So the queue does not run empty meanwhile, and
/// thousands of waiting tasks take little of the loop's time.
const RETRY_DIVISOR: u32 = 8;

/// Texts up to this size, in bytes, are parsed on the event loop: even one of many short values takes less than half a
/// millisecond.
const PARSED_HERE_MAX: usize = 16 * 1024;

/// The estimated processor time to parse a kibibyte.
const PARSE_TIME: Duration = Duration::from_micros(10);

/// The client number of what is only dropped, which no connection has.
const DISCARD_STREAM: u64 = u64::MAX - 1;

/// What all event loops compute with.
#[derive(Debug)]
pub struct Compute {
    /// The threads.
    pub pool: Pool,
    /// Responses that could be compressed, by outcome.
    pub compressions: Compressions,
}

/// The result of a computation, and how long it took.
#[derive(Debug)]
pub struct Computed<T> {
    /// The result.
    pub value: T,
    /// From the submission to the start.
    pub queued: Duration,
    /// From the start to the end.
    pub ran: Duration,
}

/// A computation panicked. The panic has been reported.
#[derive(Debug)]
pub struct Panicked;

impl Compute {
    /// Computations in `pool`.
    pub fn new(pool: Pool) -> Self {
        Self {
            pool,
            compressions: Compressions::default(),
        }
    }

    /// Computes `work` in the threads of `class`, for the client `stream`. `cost` is the estimated processor time. Waits while the
    /// queue is full. Dropping the future cancels the work unless it has started.
    ///
    /// # Errors
    /// When `work` panics.
    pub async fn run<T: Send + 'static>(
        &self,
        class: Class,
        stream: u64,
        cost: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Computed<T>, Panicked> {
        let (requester, result) = oneshot::channel();
        let submitted_at = Instant::now();
        let work = Box::new(Requested {
            requester,
            submitted_at,
            work,
        });
        let mut job = Job { stream, cost, work };
        while let Err(refused) = self.pool.submit(class, job) {
            job = refused;
            time::sleep(retry_interval(self.pool.wait_estimate(class))).await;
        }
        result.await.map_err(|_| Panicked)
    }

    /// What `parse` makes of `text`: a short one is parsed here, a long one by the pool, for the client `stream`.
    ///
    /// # Errors
    /// When `parse` panics in the pool.
    pub async fn parse<T: Send + 'static>(
        &self,
        stream: u64,
        text: Vec<u8>,
        parse: fn(&[u8]) -> T,
    ) -> Result<T, Panicked> {
        if text.len() <= PARSED_HERE_MAX {
            return Ok(parse(&text));
        }
        let cost = PARSE_TIME * u32::try_from(text.len() / 1024).unwrap_or(u32::MAX);
        let parsed = self.run(Class::Response, stream, cost, move || parse(&text));
        Ok(parsed.await?.value)
    }

    /// Drops `value` in the pool: to unmap megabytes takes milliseconds, and a library in C may wait for the lock of a
    /// heap.
    pub fn discard(&self, value: impl Send + 'static) {
        let job = Job {
            stream: DISCARD_STREAM,
            cost: Duration::ZERO,
            work: Box::new(Discarded(Some(value))),
        };
        // If the queue is full, it is dropped here.
        let _ = self.pool.submit(Class::Response, job);
    }

    /// The figures at this moment, with those of the memory that `shares` has for it. Does not block.
    pub fn figures(&self, shares: &Shares) -> ComputeFigures {
        ComputeFigures {
            response: self.pool.stats(Class::Response),
            idle: self.pool.stats(Class::Idle),
            encoder_bytes: shares.used(Resource::Encoders),
            decoder_bytes: shares.used(Resource::Decoders),
            coder_bytes_max: shares.max(Resource::Encoders),
            compressions: self.compressions.figures(),
        }
    }
}

/// The time after which a job is submitted again to a full queue whose jobs take `queued`.
fn retry_interval(queued: Duration) -> Duration {
    let [min, max] = RETRY_INTERVAL;
    (queued / RETRY_DIVISOR).clamp(min, max)
}

/// A value to be dropped.
struct Discarded<T>(Option<T>);

impl<T: Send> Work for Discarded<T> {
    fn is_awaited(&self) -> bool {
        true
    }

    fn run(mut self: Box<Self>) {
        self.0 = None;
    }
}

/// A value that takes milliseconds to drop, such as an encoder: the pool does that.
pub struct DroppedInPool<T: Send + 'static> {
    /// The value; `None` before it is made, and while a job has it.
    pub value: Option<T>,
    compute: Arc<Compute>,
}

impl<T: Send + 'static> DroppedInPool<T> {
    /// A value that is dropped in the pool of `compute`.
    pub fn new(value: Option<T>, compute: &Arc<Compute>) -> Self {
        Self {
            value,
            compute: compute.clone(),
        }
    }
}

impl<T: Send + 'static> Drop for DroppedInPool<T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            self.compute.discard(value);
        }
    }
}

/// Work whose result a task of an event loop waits for.
struct Requested<T, W> {
    requester: oneshot::Sender<Computed<T>>,
    submitted_at: Instant,
    work: W,
}

impl<T: Send, W: FnOnce() -> T + Send> Work for Requested<T, W> {
    fn is_awaited(&self) -> bool {
        !self.requester.is_closed()
    }

    fn run(self: Box<Self>) {
        let started_at = Instant::now();
        let computed = Computed {
            value: (self.work)(),
            queued: started_at - self.submitted_at,
            ran: started_at.elapsed(),
        };
        // An error means that the client has gone.
        let _ = self.requester.send(computed);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;
    use std::task::{Context, Waker};
    use std::thread;

    use levity_compute::Settings;

    use super::*;

    #[test]
    fn a_value_is_dropped_by_another_thread() {
        struct Reports(mpsc::Sender<thread::ThreadId>);
        impl Drop for Reports {
            fn drop(&mut self) {
                self.0
                    .send(thread::current().id())
                    .expect("the test listens");
            }
        }
        let settings = Settings {
            threads: 1,
            queue_max: 1,
        };
        let compute = Arc::new(Compute::new(Pool::start(settings).expect("threads")));
        let (report, dropped_by) = mpsc::channel();
        drop(DroppedInPool::new(Some(Reports(report)), &compute));
        let other = dropped_by.recv().expect("it is dropped");
        assert_ne!(other, thread::current().id());
    }

    #[test]
    fn a_long_queue_is_asked_less_often() {
        for (queued_ms, interval_ms) in [(0, 1), (7, 1), (80, 10), (800, 100), (90_000, 100)] {
            let queued = Duration::from_millis(queued_ms);
            let interval = Duration::from_millis(interval_ms);
            assert_eq!(retry_interval(queued), interval);
        }
    }

    #[test]
    fn a_long_text_is_parsed_by_the_pool() {
        let settings = Settings {
            threads: 1,
            queue_max: 1,
        };
        let compute = Compute::new(Pool::start(settings).expect("threads"));
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().expect("a runtime");
        for (bytes, is_here) in [(PARSED_HERE_MAX, true), (PARSED_HERE_MAX + 1, false)] {
            let parse = |text: &[u8]| (text.len(), thread::current().id());
            let parsed = runtime.block_on(compute.parse(1, vec![0; bytes], parse));
            let (found, thread) = parsed.expect("no panic");
            let was_here = thread == thread::current().id();
            assert_eq!((found, was_here), (bytes, is_here));
        }
    }

    /// A client that leaves costs no time of the pool.
    #[test]
    fn work_of_a_dropped_future_does_not_start() {
        let settings = Settings {
            threads: 1,
            queue_max: 2,
        };
        let compute = Compute::new(Pool::start(settings).expect("threads"));
        let ((start, started), (release, released)) = (mpsc::channel(), mpsc::channel::<()>());
        let (ran, runs) = mpsc::channel::<()>();
        let mut context = Context::from_waker(Waker::noop());
        let mut first = pin!(compute.run(Class::Response, 1, Duration::ZERO, move || {
            start.send(()).expect("the test listens");
            released.recv()
        }));
        assert!(first.as_mut().poll(&mut context).is_pending());
        started.recv().expect("the first one starts");
        let second = compute.run(Class::Response, 2, Duration::ZERO, move || ran.send(()));
        let mut second = Box::pin(second);
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(second);
        release.send(()).expect("the first one runs");
        // It ends when the work is dropped.
        assert!(runs.recv().is_err());
        while compute.pool.stats(Class::Response).canceled == 0 {
            thread::yield_now();
        }
    }
}
