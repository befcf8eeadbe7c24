//! A run: the totals of all requests of a log.

use std::collections::BTreeMap;

use super::lines::{Request, STEPS, Timing};
use crate::histogram::Histogram;

/// Intervals that a sample keeps at most; when it is full, it drops every second one and samples half as often.
const SAMPLE_MAX: usize = 1 << 20;

/// Pairs of source and engine that are counted separately: a foreign log may hold any number of names.
const SOURCES_MAX: usize = 64;

/// A wait, a read or a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interval {
    /// Since 1970.
    pub(super) start_us: i64,
    pub(super) length_us: u64,
}

impl Interval {
    pub(super) fn end_us(&self) -> i64 {
        self.start_us + self.length_us as i64
    }
}

/// Every `stride`th of all intervals, in the order of the log.
#[derive(Debug)]
pub(super) struct Sample {
    kept: Vec<Interval>,
    seen: usize,
    stride: usize,
}

impl Default for Sample {
    fn default() -> Self {
        Self {
            kept: Vec::new(),
            seen: 0,
            stride: 1,
        }
    }
}

impl Sample {
    fn add(&mut self, start_us: i64, length_us: u64) {
        if self.seen.is_multiple_of(self.stride) {
            if self.kept.len() == SAMPLE_MAX {
                let mut index = 0;
                self.kept.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.stride *= 2;
            }
            if self.seen.is_multiple_of(self.stride) {
                self.kept.push(Interval {
                    start_us,
                    length_us,
                });
            }
        }
        self.seen += 1;
    }

    pub(super) fn kept(&self) -> &[Interval] {
        &self.kept
    }

    pub(super) fn stride(&self) -> usize {
        self.stride
    }
}

/// Requests that came from one source through one engine.
#[derive(Debug, Default)]
pub(super) struct SourceTotals {
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) duration_us: f64,
}

/// The waits of the loops for a processor, as the lines report them.
#[derive(Debug, Default)]
pub(super) struct RunQueueWait {
    lines: u64,
    percent_sum: f64,
    percent_max: f64,
}

impl RunQueueWait {
    fn add(&mut self, percent: f64) {
        self.lines += 1;
        self.percent_sum += percent;
        self.percent_max = self.percent_max.max(percent);
    }

    /// The mean of all requests and the greatest value, in percent. `None` if no line has one.
    pub(super) fn mean_and_max(&self) -> Option<(f64, f64)> {
        let mean = self.percent_sum / self.lines as f64;
        (self.lines > 0).then_some((mean, self.percent_max))
    }
}

/// The totals of a log.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// First arrival and last end, since 1970.
    span_us: Option<(i64, i64)>,
    pub(super) requests: Histogram,
    pub(super) ttfb: Histogram,
    pub(super) io_wait: Histogram,
    /// Waits for a disk that did not answer in time, of requests that had one.
    pub(super) given_up: Histogram,
    /// Time in the queue of an upstream.
    pub(super) upstream_queue: Histogram,
    /// From there to the header of the response.
    pub(super) upstream: Histogram,
    /// Waiting for a thread that computes, of responses with filters.
    pub(super) filter_queue: Histogram,
    /// Computing, of responses with filters.
    pub(super) filter: Histogram,
    /// In the order of [`STEPS`].
    pub(super) steps: [Histogram; STEPS.len()],
    /// Of requests that made trips to the disk; so are `read` and `handover`.
    pub(super) queue: Histogram,
    pub(super) read: Histogram,
    /// From the end of a read until the event loop took it up.
    pub(super) handover: Histogram,
    pub(super) write: Histogram,
    pub(super) trips: u64,
    /// Requests with `timing_us`.
    pub(super) timed: u64,
    /// Requests with `chunks_us`.
    pub(super) chunked: u64,
    pub(super) chunks_omitted: u64,
    pub(super) run_queue_wait: RunQueueWait,
    /// By `src` and `engine`.
    pub(super) sources: BTreeMap<(String, String), SourceTotals>,
    pub(super) queue_sample: Sample,
    pub(super) read_sample: Sample,
    pub(super) write_sample: Sample,
}

impl Run {
    pub(super) fn is_empty(&self) -> bool {
        self.requests.count() == 0
    }

    /// From the first arrival to the last end, in seconds.
    pub(super) fn length_s(&self) -> f64 {
        self.span_us
            .map_or(0.0, |(start, end)| (end - start) as f64 / 1e6)
    }

    /// The first arrival, since 1970.
    pub(super) fn start_us(&self) -> i64 {
        self.span_us.map_or(0, |(start, _)| start)
    }

    /// Whether the log has each read, and not only the sum of each request.
    pub(super) fn has_single_reads(&self) -> bool {
        self.chunked > 0
    }

    pub(super) fn add(&mut self, request: &Request) {
        let end_us = request.arrived_us + request.duration_us as i64;
        let (first, last) = self.span_us.unwrap_or((request.arrived_us, end_us));
        self.span_us = Some((first.min(request.arrived_us), last.max(end_us)));
        self.requests.record(request.duration_us);
        self.ttfb.record(request.ttfb_us);
        self.io_wait.record(request.io_wait_us);
        if request.given_up_us > 0.0 {
            self.given_up.record(request.given_up_us);
        }
        if let Some(upstream) = &request.upstream {
            self.upstream_queue.record(upstream.queue_us);
            if let Some(us) = upstream.ttfb_us {
                self.upstream.record(us);
            }
        }
        if let Some(filter) = &request.filter {
            self.filter_queue.record(filter.queue_us);
            self.filter.record(filter.time_us);
        }
        self.add_source(request);
        if let Some(percent) = request.run_queue_wait_percent {
            self.run_queue_wait.add(percent);
        }
        if let Some(timing) = &request.timing {
            self.timed += 1;
            self.add_timing(request, timing);
        }
    }

    fn add_source(&mut self, request: &Request) {
        let mut key = (request.source.clone(), request.engine.clone());
        if self.sources.len() >= SOURCES_MAX && !self.sources.contains_key(&key) {
            key = ("other".to_owned(), String::new());
        }
        let totals = self.sources.entry(key).or_default();
        totals.requests += 1;
        totals.bytes = totals.bytes.saturating_add(request.bytes);
        totals.duration_us += request.duration_us;
    }

    fn add_timing(&mut self, request: &Request, timing: &Timing) {
        for (histogram, time) in self.steps.iter_mut().zip(timing.steps) {
            if let Some(us) = time {
                histogram.record(us);
            }
        }
        self.trips = self.trips.saturating_add(timing.trips);
        if timing.trips > 0 {
            let at_disk = timing.queue + timing.read + request.given_up_us;
            self.queue.record(timing.queue);
            self.read.record(timing.read);
            self.handover
                .record((request.io_wait_us - at_disk).max(0.0));
        }
        if timing.write > 0.0 {
            self.write.record(timing.write);
        }
        match request.chunks.is_empty() {
            true => self.sample_request(request, timing),
            false => self.sample_chunks(request),
        }
    }

    /// Without chunks, all trips of a request count as one, made as early as possible.
    fn sample_request(&mut self, request: &Request, timing: &Timing) {
        let arrived_us = request.arrived_us;
        if timing.trips > 0 {
            self.queue_sample.add(arrived_us, timing.queue as u64);
            let read_start_us = arrived_us + timing.queue as i64;
            self.read_sample.add(read_start_us, timing.read as u64);
        }
        if timing.write > 0.0 {
            let write_start_us = arrived_us + (request.duration_us - timing.write) as i64;
            self.write_sample.add(write_start_us, timing.write as u64);
        }
    }

    fn sample_chunks(&mut self, request: &Request) {
        self.chunked += 1;
        let omitted = request.chunks_omitted;
        self.chunks_omitted = self.chunks_omitted.saturating_add(omitted);
        let at = |us: u64| request.arrived_us + us as i64;
        for chunk in &request.chunks {
            if let Some([queued, start, end]) = chunk.disk {
                self.queue_sample.add(at(queued), start - queued);
                self.read_sample.add(at(start), end - start);
            }
            if let Some([start, end]) = chunk.write {
                self.write_sample.add(at(start), end - start);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines::Chunk;
    use super::*;

    #[test]
    fn a_sample_is_even() {
        let mut sample = Sample::default();
        let count = SAMPLE_MAX * 3;
        for at in 0..count {
            sample.add(at as i64, 1);
        }
        assert_eq!(sample.stride(), 4);
        assert_eq!(sample.kept().len(), count / 4);
        let is_even = |(index, interval): (usize, &Interval)| interval.start_us == 4 * index as i64;
        assert!(sample.kept().iter().enumerate().all(is_even));
    }

    #[test]
    fn chunks_become_intervals() {
        let mut run = Run::default();
        run.add(&Request {
            arrived_us: 1_000_000,
            duration_us: 900.0,
            io_wait_us: 750.0,
            timing: Some(Timing {
                queue: 200.0,
                read: 500.0,
                write: 100.0,
                trips: 1,
                ..Timing::default()
            }),
            chunks: vec![Chunk {
                disk: Some([10, 210, 710]),
                write: Some([760, 860]),
            }],
            ..Request::default()
        });
        let first = |sample: &Sample| {
            let first = sample.kept().first();
            first.map(|interval| (interval.start_us, interval.length_us))
        };
        assert_eq!(first(&run.queue_sample), Some((1_000_010, 200)));
        assert_eq!(first(&run.read_sample), Some((1_000_210, 500)));
        assert_eq!(first(&run.write_sample), Some((1_000_760, 100)));
        assert!((run.handover.total_us() - 50.0).abs() < 1e-9);
        assert_eq!((run.start_us(), run.length_s()), (1_000_000, 0.0009));
    }
}
