//! Loop stall: the time that a worker slept inside one poll of one task.
//!
//! A worker's thread may sleep in one place only, where it waits for events. [`Watched`] times each
//! poll of a task; one that took 1 ms or longer is judged by the kernel's usage figures of the thread:
//!
//! - it slept (a voluntary context switch): the time without the processor is a *stall*, except for the part in which it
//!   was ready to run again and waited in the run queue;
//! - others had the processor, in that part or without any sleep: it was *preempted*;
//! - 1 ms of processor time or more in one poll: it *hogged* the loop. Tasks that may compute for long ask
//!   [`should_yield`], and end their poll in time.
//!
//! Asking the kernel takes two system calls, so it is done before the first poll of a turn of the loop
//! ([`Watch::turn_begins`]), at most once per 0.1 ms, and after each long poll, never per poll. The price is that
//! up to one turn of short polls, and 0.1 ms before it, lies between the two samples. A poll is therefore never
//! charged more time than it took. The run queue wait costs more, and is read at most once per millisecond where a
//! turn begins.

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use levity_disk::usage::{self, OwnRunQueueWait};
use strum::VariantArray as _;

use crate::cells::{Counter, Histogram};
use crate::step::Step;

/// A shorter poll is not looked at, and shorter parts of one are not recorded.
const POLL_MIN: Duration = Duration::from_millis(1);
/// A poll of this time should end as soon as it can. What it is at then may take as long again before a poll is a hog.
const POLL_TIME: Duration = Duration::from_micros(500);
/// A run queue wait that was read as long ago is read again where a turn begins. A longer interval would hide stalls: a wait
/// before the poll is taken for one within it.
const RUN_QUEUE_AGE_MAX: Duration = POLL_MIN;
/// After a request that timed each of its steps, no other does so for this long: its looks at the clock cost a tenth of
/// a response from memory.
const STEPS_INTERVAL: Duration = Duration::from_millis(1);
/// A base sample is good for turns that begin so soon after it: a busy loop begins a turn for each request, and the two
/// system calls would be a tenth of a response from memory. A wait for events between the two is taken for one
/// within the poll, and is short against [`POLL_MIN`].
const BASE_AGE_MIN: Duration = Duration::from_micros(100);
/// A busy loop that never waits for events begins a new turn this often.
const TURN_MAX: Duration = Duration::from_millis(50);
/// How often the watchdog looks.
const WATCH_INTERVAL: Duration = Duration::from_millis(25);
/// The watchdog names a poll that has run for longer.
const REPORT_MIN: Duration = Duration::from_millis(50);
/// The watchdog reads the run queue wait once in this many looks: about every second.
/// A shorter interval would make the share jump from one reading to the next.
const RUN_QUEUE_LOOKS: u32 = 40;

impl Step {
    /// Notes that the task being polled is at this step: one relaxed store. Each [`Watched`] task
    /// keeps its own step from poll to poll. Returns when the poll began, if it is timed.
    pub fn enter(self) -> Option<Instant> {
        WATCH.with(|watch| {
            let watch = watch.get()?;
            watch.polls.pulse.step.store(self as u8, Ordering::Relaxed);
            watch.began.get()
        })
    }
}

/// The poll that a worker is in, for the watchdog to read.
#[derive(Debug)]
pub(crate) struct Pulse {
    worker: usize,
    /// The kernel's number of the thread; 0 before it runs.
    thread: AtomicI32,
    /// When the current poll began, in nanoseconds of [`clock_ns`]; 0 between polls.
    began_ns: AtomicU64,
    step: AtomicU8,
    task: AtomicU64,
}

impl Pulse {
    /// Of the worker with this number.
    pub(crate) fn new(worker: usize) -> Self {
        Self {
            worker,
            thread: AtomicI32::new(0),
            began_ns: AtomicU64::new(0),
            step: AtomicU8::new(Step::Idle as u8),
            task: AtomicU64::new(0),
        }
    }

    /// The worker's number, counted from 0.
    pub(crate) fn worker(&self) -> usize {
        self.worker
    }

    fn begin(&self, began_ns: u64, task: u64, step: Step) {
        self.task.store(task, Ordering::Relaxed);
        self.step.store(step as u8, Ordering::Relaxed);
        self.began_ns.store(began_ns, Ordering::Release);
    }

    fn end(&self) {
        self.began_ns.store(0, Ordering::Release);
    }

    fn step(&self) -> Step {
        Step::VARIANTS[usize::from(self.step.load(Ordering::Relaxed))]
    }

    /// The poll that runs now.
    fn current(&self) -> Option<CurrentPoll> {
        let began_ns = self.began_ns.load(Ordering::Acquire);
        let poll = CurrentPoll {
            began_ns,
            task: self.task.load(Ordering::Acquire),
            step: self.step(),
        };
        // Another poll may have begun while its fields were read.
        let whole = began_ns != 0 && began_ns == self.began_ns.load(Ordering::Relaxed);
        whole.then_some(poll)
    }
}

/// Upper bounds in microseconds of the time of one poll. Polls shorter than 1 ms are not counted.
const POLL_BOUNDS_US: &[u64] = &[
    2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000,
    5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// Counters of one worker's long polls. The worker's own thread writes them, except for the time in the run
/// queue, which the watchdog sets.
// Aligned, so that two workers never write to one cache line.
#[derive(Debug)]
#[repr(align(128))]
pub struct PollStats {
    /// The poll that it is in.
    pub(crate) pulse: Pulse,
    /// Time slept within polls.
    pub stall: Histogram,
    stall_max_ns: Counter,
    /// Processor time of polls that took 1 ms of it or more.
    pub hog: Histogram,
    /// Time within polls in which other threads had the processor.
    pub preempted: Histogram,
    run_queue_wait_ns: Counter,
    /// [`PERCENT_UNKNOWN`] before two readings.
    run_queue_wait_percent: AtomicU8,
}

/// No reading, or one only.
const PERCENT_UNKNOWN: u8 = u8::MAX;

impl PollStats {
    /// Counters at 0, for the worker with this number, counted from 0.
    pub fn new(worker: usize) -> Self {
        Self {
            pulse: Pulse::new(worker),
            stall: Histogram::new(POLL_BOUNDS_US),
            stall_max_ns: Counter::default(),
            hog: Histogram::new(POLL_BOUNDS_US),
            preempted: Histogram::new(POLL_BOUNDS_US),
            run_queue_wait_ns: Counter::default(),
            run_queue_wait_percent: AtomicU8::new(PERCENT_UNKNOWN),
        }
    }

    /// One poll slept this long.
    pub(crate) fn stalled(&self, time: Duration) {
        self.stall.observe(time);
        self.stall_max_ns
            .set(self.stall_max_ns.get().max(time.as_nanos() as u64));
    }

    /// Sets the time that the worker's thread has waited for a processor since its start. `elapsed` is the time
    /// since the last call, `None` at the first.
    pub(crate) fn run_queue_waited(&self, time: Duration, elapsed: Option<Duration>) {
        if let Some(elapsed) = elapsed.filter(|elapsed| !elapsed.is_zero()) {
            let waited = time.saturating_sub(self.run_queue_wait());
            let percent = waited.as_secs_f64() / elapsed.as_secs_f64() * 100.0;
            let percent = percent.round().min(100.0) as u8;
            self.run_queue_wait_percent
                .store(percent, Ordering::Relaxed);
        }
        self.run_queue_wait_ns.set(time.as_nanos() as u64);
    }

    /// The longest time slept within one poll.
    pub fn stall_max(&self) -> Duration {
        Duration::from_nanos(self.stall_max_ns.get())
    }

    /// Time that the thread has waited for a processor since its start.
    pub fn run_queue_wait(&self) -> Duration {
        Duration::from_nanos(self.run_queue_wait_ns.get())
    }

    /// The share of the last interval of about a second in which the thread waited for a processor, in percent.
    /// `None` in the first seconds, and where the kernel has no scheduler statistics.
    pub fn run_queue_wait_percent(&self) -> Option<u8> {
        let percent = self.run_queue_wait_percent.load(Ordering::Relaxed);
        (percent != PERCENT_UNKNOWN).then_some(percent)
    }
}

struct CurrentPoll {
    began_ns: u64,
    task: u64,
    step: Step,
}

/// Nanoseconds since the first call in this process, plus one: never 0.
fn clock_ns(at: Instant) -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    at.saturating_duration_since(start).as_nanos() as u64 + 1
}

/// The kernel's usage figures of this thread at one moment.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// In nanoseconds of [`clock_ns`].
    at_ns: u64,
    cpu: Duration,
    voluntary_switches: u64,
    run_queue_wait: Duration,
}

/// The run queue wait of this thread.
#[derive(Debug)]
struct RunQueue {
    /// `None` where the kernel has no scheduler statistics.
    file: Option<OwnRunQueueWait>,
    /// When it was read last, in nanoseconds of [`clock_ns`].
    read_ns: Cell<u64>,
    wait: Cell<Duration>,
}

impl RunQueue {
    fn open() -> Self {
        Self {
            file: OwnRunQueueWait::open().ok(),
            read_ns: Cell::default(),
            wait: Cell::default(),
        }
    }

    /// The wait as it was not longer than `age_max` before `now_ns`.
    fn wait(&self, now_ns: u64, age_max: Duration) -> Duration {
        let age_ns = now_ns.saturating_sub(self.read_ns.get());
        if Duration::from_nanos(age_ns) >= age_max
            && let Some(Ok(wait)) = self.file.as_ref().map(OwnRunQueueWait::read)
        {
            self.read_ns.set(now_ns);
            self.wait.set(wait);
        }
        self.wait.get()
    }

    /// A sample with such a wait; `now_ns` is the present time.
    fn sample(&self, now_ns: u64, age_max: Duration) -> Sample {
        let usage = usage::thread();
        Sample {
            at_ns: now_ns,
            cpu: usage.cpu,
            voluntary_switches: usage.voluntary_switches,
            run_queue_wait: self.wait(now_ns, age_max),
        }
    }
}

/// Where the time of a long poll went.
#[derive(Debug, PartialEq, Eq)]
struct Verdict {
    /// Without the processor, because the thread slept.
    asleep: Duration,
    /// Without the processor, because others had it.
    preempted: Duration,
    cpu: Duration,
}

impl Verdict {
    fn of(wall: Duration, before: &Sample, after: &Sample) -> Self {
        let cpu = after.cpu.saturating_sub(before.cpu);
        let between = Duration::from_nanos(after.at_ns.saturating_sub(before.at_ns));
        let away = between.saturating_sub(cpu).min(wall);
        let queued = after.run_queue_wait.saturating_sub(before.run_queue_wait);
        let slept = after.voluntary_switches > before.voluntary_switches;
        let preempted = if slept { queued.min(away) } else { away };
        Self {
            asleep: away - preempted,
            preempted,
            cpu: wall - away,
        }
    }

    fn count(&self, polls: &PollStats) {
        if self.asleep >= POLL_MIN {
            polls.stalled(self.asleep);
        }
        if self.preempted >= POLL_MIN {
            polls.preempted.observe(self.preempted);
        }
        if self.cpu >= POLL_MIN {
            polls.hog.observe(self.cpu);
        }
    }
}

thread_local! {
    static WATCH: OnceCell<Watch> = const { OnceCell::new() };
}

/// The time at which the current poll of the calling task began, for use as the present time: it costs no look at
/// the clock. Outside of a timed poll it is read from the clock.
pub fn poll_start() -> Instant {
    WATCH
        .with(|watch| watch.get().and_then(|watch| watch.began.get()))
        .unwrap_or_else(Instant::now)
}

/// Whether the poll that runs has taken so long at `now` that it should end, so that the other tasks of the loop get
/// their turn. Never so outside of a timed poll.
pub fn should_yield(now: Instant) -> bool {
    let began = WATCH.with(|watch| watch.get().and_then(|watch| watch.began.get()));
    began.is_some_and(|began| now.saturating_duration_since(began) >= POLL_TIME)
}

/// Whether the caller is to time each of its steps: the first to ask since the loop waited for events, or for 50 ms if
/// it has not waited since, but at most one in a millisecond. Always so on a thread without a watch.
pub fn is_time_for_steps() -> bool {
    WATCH.with(|watch| watch.get().is_none_or(Watch::is_time_for_steps))
}

/// The watch over this thread's polls.
#[derive(Debug)]
pub struct Watch {
    polls: Arc<PollStats>,
    run_queue: RunQueue,
    base: Cell<Sample>,
    /// When the first poll of the turn began, in nanoseconds of [`clock_ns`].
    turn_ns: Cell<u64>,
    /// The loop has waited for events since.
    has_waited: Cell<bool>,
    /// When the poll that runs began.
    began: Cell<Option<Instant>>,
    /// No request has timed each of its steps in this turn, and one may.
    may_time_steps: Cell<bool>,
    /// The turn in which the last request did so began then, in nanoseconds of [`clock_ns`].
    steps_timed_ns: Cell<u64>,
}

impl Watch {
    /// Begins to time the polls on this thread, and counts them in `polls`. Threads without a watch poll
    /// [`Watched`] tasks untimed. A second call on one thread changes nothing. Opens a file in `/proc`: to be called before the
    /// thread is guarded.
    pub fn install(polls: Arc<PollStats>) {
        polls
            .pulse
            .thread
            .store(usage::thread_id(), Ordering::Relaxed);
        WATCH.with(|watch| {
            watch.get_or_init(|| {
                let run_queue = RunQueue::open();
                let now_ns = clock_ns(Instant::now());
                Self {
                    polls,
                    base: Cell::new(run_queue.sample(now_ns, Duration::ZERO)),
                    run_queue,
                    turn_ns: Cell::new(now_ns),
                    has_waited: Cell::new(false),
                    began: Cell::new(None),
                    may_time_steps: Cell::new(true),
                    steps_timed_ns: Cell::new(0),
                }
            });
        });
    }

    /// To be called each time the loop has waited for events, through `on_thread_unpark` of the
    /// runtime's builder: sleeping there is no stall.
    pub fn turn_begins() {
        WATCH.with(|watch| watch.get().map(|watch| watch.has_waited.set(true)));
    }

    fn begin_turn(&self, now_ns: u64) {
        let base_age_ns = now_ns.saturating_sub(self.base.get().at_ns);
        // Without statistics a wait for events after the base would be taken for one within a poll.
        let is_old = Duration::from_nanos(base_age_ns) >= BASE_AGE_MIN;
        if is_old || self.run_queue.file.is_none() {
            self.base
                .set(self.run_queue.sample(now_ns, RUN_QUEUE_AGE_MAX));
        }
        self.turn_ns.set(now_ns);
        self.may_time_steps.set(true);
    }

    fn is_time_for_steps(&self) -> bool {
        let turn_ns = self.turn_ns.get();
        let age_ns = turn_ns.saturating_sub(self.steps_timed_ns.get());
        let is_time =
            self.may_time_steps.replace(false) && Duration::from_nanos(age_ns) >= STEPS_INTERVAL;
        if is_time {
            self.steps_timed_ns.set(turn_ns);
        }
        is_time
    }

    fn poll_begins(&self, task: u64, step: Step) -> Polling<'_> {
        let began = Instant::now();
        let began_ns = clock_ns(began);
        let turn_age_ns = began_ns.saturating_sub(self.turn_ns.get());
        if self.has_waited.replace(false) || Duration::from_nanos(turn_age_ns) > TURN_MAX {
            self.begin_turn(began_ns);
        }
        self.began.set(Some(began));
        self.polls.pulse.begin(began_ns, task, step);
        Polling { watch: self, began }
    }

    fn poll_ended(&self, began: Instant) {
        self.began.set(None);
        self.polls.pulse.end();
        let ended = Instant::now();
        if ended >= began + POLL_MIN {
            let after = self.run_queue.sample(clock_ns(ended), Duration::ZERO);
            let before = self.base.replace(after);
            Verdict::of(ended - began, &before, &after).count(&self.polls);
        }
    }
}

/// A poll that runs; ends even if the task panics.
struct Polling<'a> {
    watch: &'a Watch,
    began: Instant,
}

impl Polling<'_> {
    fn step(&self) -> Step {
        self.watch.polls.pulse.step()
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.watch.poll_ended(self.began);
    }
}

/// A task whose polls are timed. Wrap what is spawned, not what is awaited inside it: a poll within a
/// poll would be counted twice.
#[derive(Debug)]
pub struct Watched<F> {
    task: u64,
    step: Step,
    // Boxed, because pinning a field in place needs `unsafe`, which this crate forbids.
    future: Pin<Box<F>>,
}

impl<F: Future> Watched<F> {
    /// `task` is the number of the connection, for the watchdog's message.
    pub fn new(task: u64, future: F) -> Self {
        Self {
            task,
            step: Step::Idle,
            future: Box::pin(future),
        }
    }
}

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context) -> Poll<F::Output> {
        let this = self.get_mut();
        WATCH.with(|watch| {
            let Some(watch) = watch.get() else {
                return this.future.as_mut().poll(cx);
            };
            let polling = watch.poll_begins(this.task, this.step);
            let output = this.future.as_mut().poll(cx);
            this.step = polling.step();
            output
        })
    }
}

/// The thread that looks at every worker's pulse and names the polls that last too long; ends when
/// dropped.
#[derive(Debug)]
pub struct Watchdog {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts the thread, which passes its messages to `report`. To be called from the control thread, before
    /// any thread is guarded, because it reads `/proc`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        workers: Vec<Arc<PollStats>>,
        report: impl FnMut(fmt::Arguments) + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = sync_channel(0);
        let mut looks = Looks::new(workers);
        let thread = thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || looks.run(&stopped, report))?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop.take();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The state of the watchdog's thread.
struct Looks {
    workers: Vec<Arc<PollStats>>,
    /// Per worker, the beginning of the poll reported last.
    reported_ns: Vec<u64>,
    /// Per worker, when its run queue wait was read last.
    waits_read: Vec<Option<Instant>>,
    count: u32,
}

impl Looks {
    fn new(workers: Vec<Arc<PollStats>>) -> Self {
        Self {
            reported_ns: vec![0; workers.len()],
            waits_read: vec![None; workers.len()],
            workers,
            count: 0,
        }
    }

    fn run(&mut self, stopped: &Receiver<()>, mut report: impl FnMut(fmt::Arguments)) {
        while stopped.recv_timeout(WATCH_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            self.look(clock_ns(Instant::now()), &mut report);
            if self.count.is_multiple_of(RUN_QUEUE_LOOKS) {
                self.read_run_queue_waits();
            }
            self.count = self.count.wrapping_add(1);
        }
    }

    /// Reports each poll that has run too long, once.
    fn look(&mut self, now_ns: u64, mut report: impl FnMut(fmt::Arguments)) {
        for (worker, reported_ns) in self.workers.iter().zip(&mut self.reported_ns) {
            let Some(poll) = worker.pulse.current() else {
                continue;
            };
            let ran = Duration::from_nanos(now_ns.saturating_sub(poll.began_ns));
            if ran > REPORT_MIN && poll.began_ns != *reported_ns {
                *reported_ns = poll.began_ns;
                report(format_args!(
                    "worker {} has been in one poll for {} ms and goes on: step {}, connection {}",
                    worker.pulse.worker,
                    ran.as_millis(),
                    poll.step.label(),
                    poll.task,
                ));
            }
        }
    }

    /// A kernel without scheduler statistics leaves the time at 0 and the share unknown.
    fn read_run_queue_waits(&mut self) {
        for (worker, read) in self.workers.iter().zip(&mut self.waits_read) {
            let thread = worker.pulse.thread.load(Ordering::Relaxed);
            if thread != 0
                && let Ok(wait) = usage::run_queue_wait(thread)
            {
                let now = Instant::now();
                let elapsed = read.replace(now).map(|before| now - before);
                worker.run_queue_waited(wait, elapsed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(wall_ms: u64, cpu_ms: u64, voluntary_switches: u64) -> Sample {
        Sample {
            at_ns: wall_ms * 1_000_000,
            cpu: Duration::from_millis(cpu_ms),
            voluntary_switches,
            run_queue_wait: Duration::ZERO,
        }
    }

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// The time asleep, preempted and at work.
    fn verdict(wall_ms: u64, before: Sample, after: Sample) -> (Duration, Duration, Duration) {
        let verdict = Verdict::of(ms(wall_ms), &before, &after);
        (verdict.asleep, verdict.preempted, verdict.cpu)
    }

    #[test]
    fn a_sleep_is_told_from_preemption_by_the_voluntary_switches() {
        let before = at(0, 0, 7);
        assert_eq!(verdict(20, before, at(20, 2, 8)), (ms(18), ms(0), ms(2)));
        assert_eq!(verdict(20, before, at(20, 2, 7)), (ms(0), ms(18), ms(2)));
    }

    #[test]
    fn after_a_sleep_the_wait_for_a_processor_is_no_part_of_it() {
        for (queued_ms, asleep_ms, preempted_ms) in [(0, 18, 0), (15, 3, 15), (40, 0, 18)] {
            let after = Sample {
                run_queue_wait: ms(100 + queued_ms),
                ..at(20, 2, 8)
            };
            let before = Sample {
                run_queue_wait: ms(100),
                ..at(0, 0, 7)
            };
            let expected = (ms(asleep_ms), ms(preempted_ms), ms(2));
            assert_eq!(verdict(20, before, after), expected);
        }
    }

    #[test]
    fn no_more_is_blamed_on_a_poll_than_it_took() {
        let before = at(0, 0, 7);
        assert_eq!(verdict(5, before, at(40, 1, 8)), (ms(5), ms(0), ms(0)));
        assert_eq!(verdict(5, before, at(40, 60, 7)), (ms(0), ms(0), ms(5)));
    }

    #[test]
    fn the_run_queue_is_read_again_when_the_last_reading_is_old() {
        let queue = RunQueue::open();
        let now_ns = clock_ns(Instant::now());
        queue.wait(now_ns, Duration::ZERO);
        queue.wait(now_ns + 999_999, RUN_QUEUE_AGE_MAX);
        assert_eq!(queue.read_ns.get(), now_ns);
        queue.wait(now_ns + 1_000_000, RUN_QUEUE_AGE_MAX);
        assert_eq!(queue.read_ns.get(), now_ns + 1_000_000);
    }

    /// What a worker counted.
    #[derive(Debug, PartialEq, Eq)]
    struct Counted {
        stalls: u64,
        hogs: u64,
    }

    fn counted(polls: &PollStats) -> Counted {
        Counted {
            stalls: polls.stall.figures().count(),
            hogs: polls.hog.figures().count(),
        }
    }

    /// Runs one watched task as a worker would, on a thread of its own.
    fn run(task: impl Future<Output = ()> + Send + 'static) -> Arc<PollStats> {
        let polls = Arc::new(PollStats::new(0));
        let installed = polls.clone();
        let worker = thread::spawn(move || {
            Watch::install(installed);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .on_thread_unpark(Watch::turn_begins)
                .build()
                .expect("runtime");
            runtime.block_on(Watched::new(1, task));
        });
        worker.join().expect("worker");
        polls
    }

    fn spin(time: Duration) {
        let began = usage::thread().cpu;
        while usage::thread().cpu - began < time {}
    }

    #[test]
    fn a_poll_that_sleeps_is_a_stall() {
        let polls = run(async { thread::sleep(ms(20)) });
        assert_eq!(counted(&polls), Counted { stalls: 1, hogs: 0 });
        let stall = polls.stall.figures();
        assert!(stall.sum >= ms(18), "{:?}", stall.sum);
    }

    #[test]
    fn a_poll_that_spins_is_a_hog() {
        let polls = run(async { spin(ms(12)) });
        assert_eq!(counted(&polls), Counted { stalls: 0, hogs: 1 });
    }

    #[test]
    fn a_poll_that_gives_way_to_others_is_no_stall() {
        let polls = run(async {
            let began = Instant::now();
            while began.elapsed() < ms(4) {
                thread::yield_now();
            }
        });
        assert_eq!(counted(&polls).stalls, 0);
    }

    #[test]
    fn waiting_between_polls_is_no_stall() {
        let polls = run(async {
            for _ in 0..3 {
                tokio::task::yield_now().await;
                tokio::time::sleep(ms(5)).await;
                let began = Instant::now();
                while began.elapsed() < Duration::from_micros(500) {}
            }
        });
        assert_eq!(counted(&polls), Counted { stalls: 0, hogs: 0 });
    }

    #[test]
    fn each_sleep_is_counted_apart_from_the_work_around_it() {
        let polls = run(async {
            for _ in 0..3 {
                thread::sleep(ms(4));
                tokio::task::yield_now().await;
                spin(ms(7));
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(counted(&polls), Counted { stalls: 3, hogs: 3 });
    }

    #[test]
    fn a_poll_should_end_after_half_a_millisecond() {
        Watch::install(Arc::new(PollStats::new(0)));
        let at = |began: Instant| [499, 500].map(|us| began + Duration::from_micros(us));
        let polling = async { at(poll_start()).map(should_yield) };
        let mut task = Box::pin(Watched::new(1, polling));
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        assert_eq!(task.as_mut().poll(cx), Poll::Ready([false, true]));
        assert_eq!(at(Instant::now()).map(should_yield), [false; 2], "no poll");
    }

    #[test]
    fn the_start_of_a_poll_is_fixed_until_it_ends() {
        Watch::install(Arc::new(PollStats::new(0)));
        let polling = async {
            let began = poll_start();
            spin(ms(1));
            assert_eq!(poll_start(), began);
            began
        };
        let mut task = Box::pin(Watched::new(1, polling));
        let polled = task
            .as_mut()
            .poll(&mut Context::from_waker(std::task::Waker::noop()));
        let Poll::Ready(began) = polled else {
            panic!("it waits for nothing");
        };
        let after = Instant::now();
        assert!(began < after && poll_start() >= after);
    }

    #[test]
    fn one_of_a_turn_and_of_a_millisecond_times_its_steps() {
        assert!(is_time_for_steps() && is_time_for_steps(), "no watch");
        Watch::install(Arc::new(PollStats::new(0)));
        let turn_at = |ns: u64| {
            WATCH.with(|watch| {
                watch.get().unwrap().begin_turn(ns);
            });
        };
        turn_at(5_000_000);
        assert!(is_time_for_steps() && !is_time_for_steps());
        turn_at(5_999_999);
        assert!(!is_time_for_steps(), "less than a millisecond later");
        turn_at(6_000_000);
        assert!(is_time_for_steps() && !is_time_for_steps());
    }

    #[test]
    fn a_turn_soon_after_a_base_takes_no_other() {
        Watch::install(Arc::new(PollStats::new(0)));
        WATCH.with(|watch| {
            let watch = watch.get().unwrap();
            let first_ns = watch.base.get().at_ns;
            watch.begin_turn(first_ns + 99_999);
            assert_eq!(watch.base.get().at_ns, first_ns);
            watch.begin_turn(first_ns + 100_000);
            assert_eq!(watch.base.get().at_ns, first_ns + 100_000);
        });
    }

    #[test]
    fn a_turn_begins_with_the_first_poll_after_a_wait() {
        Watch::install(Arc::new(PollStats::new(0)));
        let turn_ns = || {
            let mut task = Box::pin(Watched::new(1, async {}));
            let cx = &mut Context::from_waker(std::task::Waker::noop());
            assert!(task.as_mut().poll(cx).is_ready());
            WATCH.with(|watch| watch.get().unwrap().turn_ns.get())
        };
        let installed_ns = turn_ns();
        Watch::turn_begins();
        let first_ns = turn_ns();
        assert!(first_ns > installed_ns);
        let next_ns = turn_ns();
        let is_late = Duration::from_nanos(next_ns - first_ns) > TURN_MAX;
        assert!(next_ns == first_ns || is_late);
    }

    #[test]
    fn a_task_keeps_its_step_from_poll_to_poll() {
        let polls = Arc::new(PollStats::new(0));
        Watch::install(polls.clone());
        let task = |number, step: Step| {
            let polls = polls.clone();
            Box::pin(Watched::new(number, async move {
                step.enter();
                tokio::task::yield_now().await;
                polls.pulse.current().map(|poll| (poll.task, poll.step))
            }))
        };
        let mut one = task(1, Step::Resolve);
        let mut two = task(2, Step::Send);
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        assert!(one.as_mut().poll(cx).is_pending() && two.as_mut().poll(cx).is_pending());
        assert_eq!(one.as_mut().poll(cx), Poll::Ready(Some((1, Step::Resolve))));
        assert_eq!(two.as_mut().poll(cx), Poll::Ready(Some((2, Step::Send))));
        assert!(polls.pulse.current().is_none(), "no poll runs");
    }

    #[test]
    fn a_panic_ends_the_poll() {
        let polls = Arc::new(PollStats::new(0));
        let installed = polls.clone();
        let worker = thread::spawn(move || {
            Watch::install(installed);
            let mut task = Box::pin(Watched::new(1, async { panic!("on purpose") }));
            let _: Poll<()> = task
                .as_mut()
                .poll(&mut Context::from_waker(std::task::Waker::noop()));
        });
        assert!(worker.join().is_err());
        assert!(polls.pulse.current().is_none());
    }

    #[test]
    fn the_watchdog_names_a_long_poll_once() {
        let polls = Arc::new(PollStats::new(3));
        let began = Instant::now();
        polls.pulse.begin(clock_ns(began), 17, Step::Resolve);
        let mut looks = Looks::new(vec![polls.clone()]);
        let mut said = Vec::new();
        for after in [10, 49, 61, 90, 400] {
            looks.look(clock_ns(began + ms(after)), |line| {
                said.push(line.to_string())
            });
        }
        let expected =
            "worker 3 has been in one poll for 61 ms and goes on: step resolve, connection 17";
        assert_eq!(said, [expected]);

        let again = began + ms(500);
        polls.pulse.begin(clock_ns(again), 18, Step::Send);
        looks.look(clock_ns(again + ms(70)), |line| said.push(line.to_string()));
        polls.pulse.end();
        looks.look(clock_ns(again + ms(170)), |line| {
            said.push(line.to_string())
        });
        assert_eq!(said.len(), 2);
        assert!(said[1].contains("70 ms") && said[1].contains("step send, connection 18"));
    }

    #[test]
    fn the_watchdog_reads_how_long_a_worker_waited_for_a_processor() {
        let polls = Arc::new(PollStats::new(0));
        Watch::install(polls.clone());
        let waited = || usage::run_queue_wait(usage::thread_id()).expect("schedstat");
        let before = waited();
        let mut looks = Looks::new(vec![polls.clone()]);
        looks.read_run_queue_waits();
        assert!((before..=waited()).contains(&polls.run_queue_wait()));
        assert_eq!(polls.run_queue_wait_percent(), None);
        looks.read_run_queue_waits();
        assert!(polls.run_queue_wait_percent().is_some());
    }

    #[test]
    fn the_share_is_that_of_the_last_interval() {
        let polls = PollStats::new(0);
        let percent_after = |wait, elapsed: Option<u64>| {
            polls.run_queue_waited(ms(wait), elapsed.map(ms));
            polls.run_queue_wait_percent()
        };
        assert_eq!(percent_after(5_000, None), None);
        assert_eq!(percent_after(5_120, Some(1_000)), Some(12));
        assert_eq!(percent_after(5_120, Some(1_000)), Some(0));
        // The time is read a little before the clock.
        assert_eq!(percent_after(6_130, Some(1_000)), Some(100));
        assert_eq!(polls.run_queue_wait(), ms(6_130));
    }

    #[test]
    fn the_watchdog_ends_when_dropped() {
        let polls = Arc::new(PollStats::new(0));
        drop(Watchdog::start(vec![polls.clone()], |_| {}).expect("start"));
        assert_eq!(Arc::strong_count(&polls), 1);
    }
}
