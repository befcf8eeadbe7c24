//! Tests of the pool.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use super::*;
use crate::lane::Quota;

const ONE: Settings = Settings {
    threads: 1,
    queue_max: 8,
};

const TIME_MAX: Duration = Duration::from_secs(30);

/// Reports its name, then waits until the test lets it end.
struct Held {
    name: u64,
    started: Sender<u64>,
    release: Arc<Mutex<Receiver<()>>>,
    awaited: Arc<AtomicBool>,
}

impl Work for Held {
    fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed)
    }

    fn run(self: Box<Self>) {
        self.started.send(self.name).expect("the test listens");
        let release = self.release.lock().expect("no panic");
        release.recv().expect("the test releases each job");
    }
}

/// A pool, and the ends of its jobs that the test holds.
struct Bench {
    pool: Pool,
    start: Sender<u64>,
    started: Receiver<u64>,
    release: Sender<()>,
    released: Arc<Mutex<Receiver<()>>>,
    awaited: Arc<AtomicBool>,
}

impl Bench {
    fn new(settings: Settings) -> Bench {
        let (start, started) = mpsc::channel();
        let (release, released) = mpsc::channel();
        Bench {
            pool: Pool::start(settings).expect("threads"),
            start,
            started,
            release,
            released: Arc::new(Mutex::new(released)),
            awaited: Arc::new(AtomicBool::new(true)),
        }
    }

    /// A job of the client `stream`, which is also its name.
    fn job(&self, stream: u64, cost: Duration) -> Job {
        let work = Held {
            name: stream,
            started: self.start.clone(),
            release: Arc::clone(&self.released),
            awaited: Arc::clone(&self.awaited),
        };
        Job {
            stream,
            cost,
            work: Box::new(work),
        }
    }

    fn submit(&self, stream: u64, cost: Duration) {
        let job = self.job(stream, cost);
        self.pool.submit(Class::Response, job).expect("room");
    }

    /// The next job that starts.
    fn next(&self) -> u64 {
        self.started.recv_timeout(TIME_MAX).expect("a job starts")
    }

    fn release(&self) {
        self.release.send(()).expect("the pool is there");
    }

    /// Releases the job that runs, and returns the next.
    fn then(&self) -> u64 {
        self.release();
        self.next()
    }
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn clients_take_turns_by_cost() {
    let bench = Bench::new(ONE);
    bench.submit(0, MS);
    assert_eq!(bench.next(), 0);
    for _ in 0..2 {
        bench.submit(1, 4 * MS);
    }
    for _ in 0..4 {
        bench.submit(2, 2 * MS);
    }
    let order: Vec<u64> = (0..6).map(|_| bench.then()).collect();
    assert_eq!(order, [1, 2, 2, 1, 2, 2]);
    bench.release();
}

#[test]
fn a_full_queue_refuses_and_the_job_comes_back() {
    let bench = Bench::new(ONE);
    bench.submit(0, MS);
    assert_eq!(bench.next(), 0);
    for stream in 1..=8 {
        bench.submit(stream, MS);
    }
    let refused = bench.pool.submit(Class::Response, bench.job(9, MS));
    assert_eq!(refused.expect_err("it is full").stream, 9);
    let stats = bench.pool.stats(Class::Response);
    assert_eq!((stats.queued, stats.full, stats.threads), (8, 1, 1));
    assert_eq!(bench.pool.wait_estimate(Class::Response), 9 * MS);
    assert_eq!(bench.then(), 1);
    bench.submit(9, MS);
    for stream in 2..=9 {
        assert_eq!(bench.then(), stream);
    }
    bench.release();
}

#[test]
fn work_that_nobody_waits_for_is_dropped() {
    let bench = Bench::new(ONE);
    bench.submit(0, MS);
    assert_eq!(bench.next(), 0);
    bench.submit(1, MS);
    bench.awaited.store(false, Ordering::Relaxed);
    bench.release();
    while bench.pool.stats(Class::Response).canceled == 0 {
        thread::yield_now();
    }
    bench.awaited.store(true, Ordering::Relaxed);
    bench.submit(2, MS);
    assert_eq!(bench.next(), 2);
    bench.release();
}

#[test]
fn idle_work_does_not_take_the_threads_of_responses() {
    let bench = Bench::new(ONE);
    let idle = bench.job(0, MS);
    bench.pool.submit(Class::Idle, idle).expect("room");
    assert_eq!(bench.next(), 0);
    bench.submit(1, MS);
    assert_eq!(bench.next(), 1);
    bench.release();
    bench.release();
}

/// A quota that the test sets, and how often a thread has looked at it.
#[derive(Debug, Default)]
struct TestQuota {
    is_used_up: AtomicBool,
    looks: AtomicUsize,
}

impl Quota for Arc<TestQuota> {
    fn is_used_up(&self) -> bool {
        let is_used_up = self.is_used_up.load(Ordering::Relaxed);
        self.looks.fetch_add(1, Ordering::Relaxed);
        is_used_up
    }
}

#[test]
fn idle_work_waits_while_the_quota_is_used_up() {
    let quota = Arc::new(TestQuota::default());
    quota.is_used_up.store(true, Ordering::Relaxed);
    let lane = Arc::new(Lane::new(ONE, Some(Box::new(quota.clone()))));
    let bench = Bench::new(ONE);
    let served = lane.clone();
    let thread = thread::spawn(move || served.serve(0));
    lane.submit(bench.job(1, MS)).expect("room");
    // A job that the first look did not hold back would start before the third.
    while quota.looks.load(Ordering::Relaxed) < 3 {
        assert!(bench.started.try_recv().is_err());
        thread::yield_now();
    }
    assert_eq!(lane.stats().queued, 1);
    quota.is_used_up.store(false, Ordering::Relaxed);
    assert_eq!(bench.next(), 1);
    bench.release();
    lane.close();
    thread.join().expect("it ends");
}

/// Its `run` panics.
struct Panics {
    _waits: Sender<()>,
}

impl Work for Panics {
    fn is_awaited(&self) -> bool {
        true
    }

    fn run(self: Box<Self>) {
        // Without the message of `panic!`.
        std::panic::resume_unwind(Box::new(()));
    }
}

#[test]
fn a_panic_takes_no_thread_and_drops_the_work() {
    let bench = Bench::new(ONE);
    let (dropped, waits) = mpsc::channel();
    let job = Job {
        stream: 0,
        cost: MS,
        work: Box::new(Panics { _waits: dropped }),
    };
    bench.pool.submit(Class::Response, job).expect("room");
    assert!(waits.recv_timeout(TIME_MAX).is_err());
    bench.submit(1, MS);
    assert_eq!(bench.next(), 1);
    bench.release();
    drop(bench.pool);
}

/// A lost wake-up hangs the test.
#[test]
fn every_job_of_many_loops_runs() {
    struct Counts(Sender<()>);
    impl Work for Counts {
        fn is_awaited(&self) -> bool {
            true
        }
        fn run(self: Box<Self>) {
            self.0.send(()).expect("the test listens");
        }
    }
    const JOBS: usize = 5000;
    let pool = Pool::start(Settings {
        threads: 3,
        queue_max: 16,
    })
    .expect("threads");
    let (done, all) = mpsc::channel();
    thread::scope(|scope| {
        for stream in 0..2 {
            let (pool, done) = (&pool, done.clone());
            scope.spawn(move || {
                for _ in 0..JOBS {
                    let mut job = Job {
                        stream,
                        cost: Duration::from_micros(1),
                        work: Box::new(Counts(done.clone())),
                    };
                    while let Err(refused) = pool.submit(Class::Response, job) {
                        job = refused;
                        thread::yield_now();
                    }
                }
            });
        }
        for _ in 0..2 * JOBS {
            all.recv_timeout(TIME_MAX).expect("every job runs");
        }
    });
    let stats = pool.stats(Class::Response);
    assert_eq!(stats.queued, 0);
    assert_eq!(stats.queue_time.count(), 2 * JOBS as u64);
}
