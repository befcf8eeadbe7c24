//! The trace of one request: its times, disk trips, chunks and upstream attempts. The access log, the counters and
//! the `Server-Timing` header are made from it.
//!
//! A step ends where the next begins, so one look at the clock serves both. A look at the clock
//! costs as much as routing: where the log or `Server-Timing` needs the steps, each ends with one;
//! otherwise only the first request of a turn of the loop is timed so, at most one in a
//! millisecond. A proxied request adds its attempts: slot, connection and header of the response.
//! Each trip to the disk adds queue and read time, each write its time, and filters the wait for a
//! computing thread and the time in it. Single chunks are kept only with `log.timing = "chunk"`, 128 per request. The keys of the log
//! are the interface for what reads it.

mod chunks;
mod steps;
mod upstream;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use chunks::DiskTrip;
pub use upstream::{Side, UpstreamTrace};

use crate::stats::upstream::UpstreamCells;
use crate::step::Step;
pub(crate) use chunks::Chunks;
use steps::{Stopwatch, Times};

/// The trace of one request, from its first byte to its log line.
#[derive(Debug)]
pub struct Trace {
    steps: Stopwatch,
    pub(crate) disk: Disk,
    /// Time in which bytes were written to the client, which includes waiting for it.
    pub(crate) write: Duration,
    pub(crate) filter: Filter,
    /// `None` where only sums are kept.
    pub(crate) chunks: Option<Chunks>,
    upstream: Option<UpstreamTrace>,
    has_server_timing: bool,
}

/// The disk trips of a request, added up.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// Trips, completed or not.
    pub(crate) trips: u32,
    /// The part of `waited` for trips that the request gave up, in milliseconds: a number, because nearly all requests have none.
    given_up_ms: u32,
    /// Time that the request waited for them.
    pub(crate) waited: Duration,
    /// The part of that time before the engine started on a trip.
    pub(crate) queue: Duration,
    /// The part of that time in the engine.
    pub(crate) read: Duration,
    /// The engine of the last trip.
    pub(crate) engine: Option<&'static str>,
    /// The last trip that read bytes.
    last: LastRead,
}

/// A disk trip that has read bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct LastRead {
    /// The index of its chunk, where chunks are kept.
    pub chunk: Option<usize>,
    /// Time in the engine.
    pub time: Duration,
}

/// The work of body filters in the pool of threads that compute, added up.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub(crate) jobs: u32,
    /// Time before a thread started on a job.
    pub(crate) queue: Duration,
    /// Time in which a thread ran a job.
    pub(crate) time: Duration,
    /// Bytes before the filters.
    pub(crate) bytes_in: u64,
    /// Bytes after the filters.
    pub(crate) bytes_out: u64,
}

impl Disk {
    /// The part of the time waited for trips that the request gave up.
    pub(crate) fn given_up(&self) -> Duration {
        Duration::from_millis(self.given_up_ms.into())
    }
}

impl Trace {
    /// The trace of a request whose first byte came at `arrived`: it is in the parse step. `waited` is the time
    /// between the connection and its first request.
    pub fn new(arrived: Instant, waited: Option<Duration>) -> Self {
        Self {
            steps: Stopwatch::new(arrived, waited),
            disk: Disk::default(),
            write: Duration::ZERO,
            filter: Filter::default(),
            chunks: None,
            upstream: None,
            has_server_timing: false,
        }
    }

    /// Keeps each chunk from now on, rather than sums alone.
    pub fn keep_chunks(&mut self) {
        self.chunks = Some(Chunks::new(self.arrived()));
    }

    /// Whether the response has a `Server-Timing` header.
    pub fn set_server_timing(&mut self, is_wanted: bool) {
        self.has_server_timing = is_wanted;
    }

    /// Times each step from now on. Otherwise the time of a poll counts for the step in which the poll ends, and
    /// a step that begins and ends within one poll has no time.
    pub fn time_each_step(&mut self) {
        self.steps.time_each_step();
    }

    /// Whether each step is timed.
    pub fn times_each_step(&self) -> bool {
        self.steps.times_each_step()
    }

    /// Ends the current step and begins `step`, here and for the watchdog.
    pub fn enter(&mut self, step: Step) {
        let poll_start = step.enter();
        self.steps.enter(step, poll_start);
    }

    /// Ends the last step at `now`.
    pub fn end(&mut self, now: Instant) {
        self.enter_at(Step::Idle, now);
    }

    pub(crate) fn enter_at(&mut self, step: Step, now: Instant) {
        self.steps.mark(step, now);
    }

    /// When the first byte of the request came.
    pub fn arrived(&self) -> Instant {
        self.steps.arrived()
    }

    /// When the current step began, or the last one ended; the start of that poll unless each step is timed. Saves a
    /// look at the clock.
    pub fn step_began(&self) -> Instant {
        self.steps.step_began()
    }

    /// The times of the steps that have ended.
    pub(crate) fn times(&self) -> &Times {
        self.steps.times()
    }

    /// The request has waited so long for a disk trip, whatever its outcome.
    pub fn disk_waited(&mut self, engine: &'static str, time: Duration) {
        self.disk.trips += 1;
        self.disk.waited += time;
        self.disk.engine = Some(engine);
    }

    /// The last disk trip, for which the request has waited so long, did not end in time: it was given up.
    pub fn disk_given_up(&mut self, time: Duration) {
        let ms = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        self.disk.given_up_ms = self.disk.given_up_ms.saturating_add(ms);
    }

    /// A disk trip was completed for which the request has waited since `since`: time before that is not counted.
    pub fn disk_completed(&mut self, trip: &DiskTrip, since: Instant) {
        let DiskTrip {
            read_start,
            read_end,
            bytes,
            ..
        } = *trip;
        self.disk.queue += read_start.saturating_duration_since(since);
        self.disk.read += read_end.saturating_duration_since(read_start.max(since));
        let chunk = self.chunks.as_mut().and_then(|chunks| chunks.read(trip));
        if bytes > 0 {
            self.disk.last = LastRead {
                chunk,
                time: read_end - read_start,
            };
        }
    }

    /// Disk trips so far.
    pub fn disk_trips(&self) -> u32 {
        self.disk.trips
    }

    /// The last disk trip that read bytes: those of an open, or of a chunk.
    pub fn last_read(&self) -> LastRead {
        self.disk.last
    }

    /// `bytes` were written to the client: those of the chunk at this index, or others.
    pub fn wrote(&mut self, chunk: Option<usize>, from: Instant, to: Instant, bytes: u64) {
        self.write += to - from;
        if let Some(chunks) = &mut self.chunks {
            chunks.wrote(chunk, from, to, bytes);
        }
    }

    /// Body filters turned so many bytes into so many, after a wait for a thread.
    pub fn filtered(&mut self, queued: Duration, ran: Duration, bytes_in: usize, bytes_out: usize) {
        let filter = &mut self.filter;
        filter.jobs += 1;
        filter.queue += queued;
        filter.time += ran;
        filter.bytes_in += bytes_in as u64;
        filter.bytes_out += bytes_out as u64;
    }

    /// Whether a write was added.
    pub fn has_written(&self) -> bool {
        !self.write.is_zero()
    }

    /// The request goes to an upstream that counts in `cells`. The trace of an earlier one is dropped.
    pub fn ask_upstream(&mut self, cells: Arc<UpstreamCells>) -> &mut UpstreamTrace {
        self.upstream.insert(UpstreamTrace::new(cells))
    }

    /// The upstream that was used last, if any.
    pub fn upstream(&self) -> Option<&UpstreamTrace> {
        self.upstream.as_ref()
    }

    /// The same, mutable.
    pub fn upstream_mut(&mut self) -> Option<&mut UpstreamTrace> {
        self.upstream.as_mut()
    }

    /// The value of a `Server-Timing` header as of now (W3C Server Timing, 3.1): the steps that have ended,
    /// the disk, and the filters of the body. `None` where it is not wanted.
    pub fn server_timing(&self) -> Option<String> {
        if !self.has_server_timing {
            return None;
        }
        let mut metrics = String::new();
        for (step, time) in self.times().iter() {
            add_metric(&mut metrics, step.label(), time);
        }
        if self.disk.trips > 0 {
            add_metric(&mut metrics, "disk-queue", self.disk.queue);
            add_metric(&mut metrics, "disk-read", self.disk.read);
        }
        if self.filter.jobs > 0 {
            add_metric(&mut metrics, "filter-queue", self.filter.queue);
            add_metric(&mut metrics, "filter-run", self.filter.time);
        }
        Some(metrics)
    }
}

/// Adds one metric to the value of a `Server-Timing` header, in milliseconds.
fn add_metric(text: &mut String, name: &str, time: Duration) {
    let separator = if text.is_empty() { "" } else { ", " };
    let ms = time.as_secs_f64() * 1e3;
    // Writing to memory cannot fail.
    let _ = write!(text, "{separator}{name};dur={ms:.3}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn server_timing_is_a_list_of_tokens_with_milliseconds() {
        let arrived = Instant::now();
        let mut trace = Trace::new(arrived, Some(1500 * MS));
        trace.end(arrived + Duration::from_micros(12));
        assert_eq!(trace.server_timing(), None);
        trace.set_server_timing(true);
        let steps = "accept;dur=1500.000, parse;dur=0.012";
        assert_eq!(trace.server_timing().as_deref(), Some(steps));
        trace.disk_waited("threads", 3 * MS);
        let with_disk = format!("{steps}, disk-queue;dur=0.000, disk-read;dur=0.000");
        assert_eq!(trace.server_timing(), Some(with_disk.clone()));
        trace.filtered(2 * MS, MS, 100, 10);
        trace.filtered(MS, MS, 100, 10);
        let with_filters = format!("{with_disk}, filter-queue;dur=3.000, filter-run;dur=2.000");
        assert_eq!(trace.server_timing(), Some(with_filters));
    }

    #[test]
    fn what_a_trip_took_before_it_was_waited_for_is_not_counted() {
        let arrived = Instant::now();
        let at = |ms| arrived + MS * ms;
        let trip = |requested, read_start, read_end, bytes| DiskTrip {
            requested: at(requested),
            read_start: at(read_start),
            read_end: at(read_end),
            bytes,
        };
        let mut trace = Trace::new(arrived, None);
        trace.disk_completed(&trip(0, 2, 5, 0), at(0));
        assert_eq!((trace.disk.queue, trace.disk.read), (2 * MS, 3 * MS));
        assert_eq!(trace.last_read().time, Duration::ZERO);
        // Read ahead: requested at 5, waited for from 8 on.
        trace.keep_chunks();
        trace.disk_completed(&trip(5, 6, 9, 10), at(8));
        assert_eq!((trace.disk.queue, trace.disk.read), (2 * MS, 4 * MS));
        let last = trace.last_read();
        assert_eq!((last.chunk, last.time), (Some(0), 3 * MS));
    }
}
