//! The counters of one worker.

use std::sync::Arc;

use super::upstream::Register;
use crate::access_log::{End, Record, Source};
use crate::cells::{Counter, Fourfold, Histogram};
use crate::stall::{PollFigures, PollStats};
use crate::step::Step;

/// Upper bounds for times of requests, in microseconds: 50 us to 60 s.
pub(super) const REQUEST_BOUNDS_US: &[u64] = &[
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];
const STATUS_MIN: u16 = 100;
const STATUS_MAX: u16 = 599;
const STATUSES: usize = (STATUS_MAX - STATUS_MIN) as usize + 1;

/// The outcome of a chunk that was read ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// It was sent.
    Used,
    /// It was refused: a queue or the memory was full.
    Refused,
    /// The client went away, or was too slow for it to be kept.
    Unused,
}

impl Ahead {
    /// All outcomes, in the order of the discriminants.
    pub const ALL: [Self; 3] = [Self::Used, Self::Refused, Self::Unused];

    /// The label on metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::Refused => "refused",
            Self::Unused => "unused",
        }
    }
}

/// The counters of one worker. Only that worker's thread may call the methods that count; none of them blocks.
// Aligned, so that two workers never write to one cache line.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerStats {
    /// Its long polls, and the poll that it is in.
    pub polls: Arc<PollStats>,
    statuses: [Counter; STATUSES],
    status_other: Counter,
    sources: [Counter; Source::ALL.len()],
    pub(super) duration: Histogram,
    pub(super) ttfb: Histogram,
    pub(super) io_wait: Histogram,
    steps: [Fourfold; Step::TIMED.len()],
    pub(super) accepted: Counter,
    begun: Counter,
    answered: Counter,
    ends: [Counter; End::ALL.len()],
    pub(super) accept_pauses: Counter,
    pub(super) sent_bytes: Counter,
    pub(super) reads_cached: Counter,
    pub(super) reads_ahead: [Counter; Ahead::ALL.len()],
    pub(super) copied_bytes: Counter,
    pub(super) absence_waits: Counter,
    pub(super) sendfile_waits: Counter,
    pub(super) log_dropped: Counter,
    /// The upstreams that it sends requests to.
    pub upstreams: Register,
}

impl WorkerStats {
    /// Of the worker with this number, counted from 0.
    pub fn new(worker: usize) -> Self {
        Self {
            polls: Arc::new(PollStats::new(worker)),
            statuses: std::array::from_fn(|_| Counter::default()),
            status_other: Counter::default(),
            sources: Default::default(),
            duration: Histogram::new(REQUEST_BOUNDS_US),
            ttfb: Histogram::new(REQUEST_BOUNDS_US),
            io_wait: Histogram::new(REQUEST_BOUNDS_US),
            steps: Default::default(),
            accepted: Counter::default(),
            begun: Counter::default(),
            answered: Counter::default(),
            ends: Default::default(),
            accept_pauses: Counter::default(),
            sent_bytes: Counter::default(),
            reads_cached: Counter::default(),
            reads_ahead: Default::default(),
            copied_bytes: Counter::default(),
            absence_waits: Counter::default(),
            sendfile_waits: Counter::default(),
            log_dropped: Counter::default(),
            upstreams: Register::default(),
        }
    }

    /// Its number, counted from 0.
    pub fn worker(&self) -> usize {
        self.polls.pulse.worker()
    }

    /// A connection was accepted.
    pub fn connection_opened(&self) {
        self.accepted.add(1);
    }

    /// A connection has a request.
    pub fn request_begun(&self) {
        self.begun.add(1);
    }

    /// It has been answered; once for each that was begun.
    pub fn request_answered(&self) {
        self.answered.add(1);
    }

    /// A connection has ended; once for each that was opened.
    pub fn connection_ended(&self, end: End) {
        self.ends[end as usize].add(1);
    }

    /// The worker stopped accepting for a while, because descriptors or memory were exhausted.
    pub fn accept_paused(&self) {
        self.accept_pauses.add(1);
    }

    /// A socket took this many bytes, headers included.
    pub fn sent(&self, bytes: u64) {
        self.sent_bytes.add(bytes);
    }

    /// A chunk was read on the loop from the page cache.
    pub fn read_cached(&self) {
        self.reads_cached.add(1);
    }

    /// A chunk was read ahead, with this outcome.
    pub fn read_ahead(&self, what: Ahead) {
        self.reads_ahead[what as usize].add(1);
    }

    /// Bytes of a body were copied from one place in our memory to another.
    pub fn copied(&self, bytes: usize) {
        self.copied_bytes.add(bytes as u64);
    }

    /// A request was delayed because of `limits.absent_trips`: its connection looks up too many absent names.
    pub fn absences_waited(&self) {
        self.absence_waits.add(1);
    }

    /// A `sendfile` on the loop slept, because pages were not in memory.
    pub fn sendfile_waited(&self) {
        self.sendfile_waits.add(1);
    }

    /// A request is finished.
    pub fn request(&self, record: &Record) {
        self.status(record.status).add(1);
        self.sources[record.source as usize].add(1);
        self.duration.observe(record.duration);
        self.ttfb.observe(record.ttfb);
        self.io_wait.observe(record.trace.disk().waited);
        let times = record.trace.times();
        for (times, nanos) in self.steps.iter().zip(times.as_nanos()) {
            if *nanos > 0 {
                times.observe(*nanos);
            }
        }
    }

    /// Sets the number of lines that this worker's access log has dropped.
    pub fn log_dropped(&self, lines: u64) {
        self.log_dropped.set(lines);
    }

    fn status(&self, status: u16) -> &Counter {
        let place = usize::from(status).checked_sub(STATUS_MIN.into());
        place
            .and_then(|place| self.statuses.get(place))
            .unwrap_or(&self.status_other)
    }

    /// The times of a step; `None` for [`Step::Idle`].
    pub(super) fn step(&self, step: Step) -> Option<&Fourfold> {
        self.steps.get(step.index()?)
    }

    /// Requests by status, and those with a status that HTTP does not know.
    pub(super) fn requests(&self) -> impl Iterator<Item = (Option<u16>, u64)> {
        let known = (STATUS_MIN..=STATUS_MAX)
            .map(Some)
            .zip(self.statuses.iter().map(Counter::get));
        known.chain([(None, self.status_other.get())])
    }

    pub(super) fn source(&self, source: Source) -> u64 {
        self.sources[source as usize].get()
    }

    pub(super) fn ended(&self, end: End) -> u64 {
        self.ends[end as usize].get()
    }

    /// Connections open now. Ends are read first, so that a connection which comes and goes in
    /// between cannot make the difference negative.
    pub(super) fn open(&self) -> u64 {
        let ended: u64 = End::ALL.into_iter().map(|end| self.ended(end)).sum();
        self.accepted.get().saturating_sub(ended)
    }

    /// The values at this moment.
    pub fn figures(&self) -> WorkerFigures {
        let mut requests = [0; 6];
        for (status, count) in self.requests() {
            let class = status.map_or(0, |status| usize::from(status / 100));
            requests[class] += count;
        }
        // As with `open`: the ends first.
        let answered = self.answered.get();
        WorkerFigures {
            worker: self.worker(),
            open: self.open(),
            busy: self.begun.get().saturating_sub(answered),
            accepted: self.accepted.get(),
            ended: End::ALL.map(|end| self.ended(end)),
            accept_pauses: self.accept_pauses.get(),
            requests,
            sources: Source::ALL.map(|source| self.source(source)),
            sent_bytes: self.sent_bytes.get(),
            reads_cached: self.reads_cached.get(),
            polls: self.polls.figures(),
        }
    }
}

/// The values of a [`WorkerStats`] at one moment.
#[derive(Debug, Clone)]
pub struct WorkerFigures {
    /// Its number, counted from 0.
    pub worker: usize,
    /// Connections open.
    pub open: u64,
    /// Connections with a request.
    pub busy: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections ended, in the order of [`End::ALL`].
    pub ended: [u64; End::ALL.len()],
    /// Times that it stopped accepting.
    pub accept_pauses: u64,
    /// Requests finished, by the first digit of their status; at 0 those with a status that HTTP does
    /// not know.
    pub requests: [u64; 6],
    /// Requests finished, in the order of [`Source::ALL`].
    pub sources: [u64; Source::ALL.len()],
    /// Bytes that sockets took.
    pub sent_bytes: u64,
    /// Reads from the page cache on the loop.
    pub reads_cached: u64,
    /// Its long polls.
    pub polls: PollFigures,
}
