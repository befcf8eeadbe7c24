//! A run, added up from its requests.

use std::collections::BTreeMap;

use super::lines::{Request, Timing};
use super::spread::Spread;
use levity_telemetry::step::Step;

/// Marks kept of each kind at most; beyond it every second one is dropped, again and again.
const MARKS_MAX: usize = 1 << 20;

/// Sources and engines told apart at most: the log may be anybody's.
const KINDS_MAX: usize = 64;

/// Something that began at a moment and took a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// Since 1970.
    pub(super) at_us: i64,
    pub(super) took_us: u64,
}

/// An even choice of many marks, in the order in which they came.
#[derive(Debug)]
pub(super) struct Marks {
    kept: Vec<Mark>,
    seen: usize,
    /// One in so many is kept.
    stride: usize,
}

impl Default for Marks {
    fn default() -> Self {
        Self {
            kept: Vec::new(),
            seen: 0,
            stride: 1,
        }
    }
}

impl Marks {
    fn add(&mut self, at_us: i64, took_us: u64) {
        if self.seen.is_multiple_of(self.stride) {
            if self.kept.len() == MARKS_MAX {
                let mut place = 0;
                self.kept.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
                self.stride *= 2;
            }
            if self.seen.is_multiple_of(self.stride) {
                self.kept.push(Mark { at_us, took_us });
            }
        }
        self.seen += 1;
    }

    pub(super) fn kept(&self) -> &[Mark] {
        &self.kept
    }

    pub(super) fn stride(&self) -> usize {
        self.stride
    }
}

/// How many requests were answered from one source by one engine.
#[derive(Debug, Default)]
pub(super) struct Kind {
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) duration_us: f64,
}

/// Everything that is told of a run.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// The first arrival and the last end, since 1970.
    span_us: Option<(i64, i64)>,
    pub(super) requests: Spread,
    pub(super) ttfb: Spread,
    pub(super) io_wait: Spread,
    /// Of requests that went to an upstream: waiting for a place at a backend.
    pub(super) upstream_queue: Spread,
    /// From there to the head of the answer.
    pub(super) upstream: Spread,
    /// In the order of [`Step::TIMED`].
    pub(super) steps: [Spread; Step::TIMED.len()],
    /// Of requests that made trips.
    pub(super) queue: Spread,
    pub(super) read: Spread,
    /// From the end of a read until its loop took it up, or until waiting for it was given up.
    pub(super) handover: Spread,
    pub(super) write: Spread,
    pub(super) trips: u64,
    /// Requests whose lines say more than the totals.
    pub(super) timed: u64,
    /// Requests whose lines tell of each chunk.
    pub(super) chunked: u64,
    pub(super) chunks_omitted: u64,
    /// By `src` and `engine`.
    pub(super) kinds: BTreeMap<(String, String), Kind>,
    pub(super) queue_marks: Marks,
    pub(super) read_marks: Marks,
    pub(super) write_marks: Marks,
}

impl Run {
    pub(super) fn is_empty(&self) -> bool {
        self.requests.count() == 0
    }

    /// From the first arrival to the last end, in seconds.
    pub(super) fn length_s(&self) -> f64 {
        self.span_us
            .map_or(0.0, |(from, to)| (to - from) as f64 / 1e6)
    }

    /// The first arrival, since 1970.
    pub(super) fn began_us(&self) -> i64 {
        self.span_us.map_or(0, |(from, _)| from)
    }

    /// Whether reads are known one by one.
    pub(super) fn knows_reads(&self) -> bool {
        self.chunked > 0
    }

    pub(super) fn add(&mut self, request: &Request) {
        let end_us = request.arrived_us + request.duration_us as i64;
        let (from, to) = self.span_us.unwrap_or((request.arrived_us, end_us));
        self.span_us = Some((from.min(request.arrived_us), to.max(end_us)));
        self.requests.add(request.duration_us);
        self.ttfb.add(request.ttfb_us);
        self.io_wait.add(request.io_wait_us);
        if let Some(upstream) = &request.upstream {
            self.upstream_queue.add(upstream.queue_us);
            upstream
                .ttfb_us
                .into_iter()
                .for_each(|us| self.upstream.add(us));
        }
        self.add_kind(request);
        if let Some(timing) = &request.timing {
            self.timed += 1;
            self.add_timing(request, timing);
        }
    }

    fn add_kind(&mut self, request: &Request) {
        let mut key = (request.source.clone(), request.engine.clone());
        if self.kinds.len() >= KINDS_MAX && !self.kinds.contains_key(&key) {
            key = ("other".to_owned(), String::new());
        }
        let kind = self.kinds.entry(key).or_default();
        kind.requests += 1;
        kind.bytes = kind.bytes.saturating_add(request.bytes);
        kind.duration_us += request.duration_us;
    }

    fn add_timing(&mut self, request: &Request, timing: &Timing) {
        for (spread, time) in self.steps.iter_mut().zip(timing.steps) {
            time.into_iter().for_each(|us| spread.add(us));
        }
        self.trips = self.trips.saturating_add(timing.trips);
        if timing.trips > 0 {
            let known = timing.queue + timing.read;
            self.queue.add(timing.queue);
            self.read.add(timing.read);
            self.handover.add((request.io_wait_us - known).max(0.0));
        }
        if timing.write > 0.0 {
            self.write.add(timing.write);
        }
        match request.chunks.is_empty() {
            true => self.mark_request(request, timing),
            false => self.mark_chunks(request),
        }
    }

    /// Without chunks, a request's trips are drawn as one.
    fn mark_request(&mut self, request: &Request, timing: &Timing) {
        let at = request.arrived_us;
        if timing.trips > 0 {
            self.queue_marks.add(at, timing.queue as u64);
            let read_at = at + timing.queue as i64;
            self.read_marks.add(read_at, timing.read as u64);
        }
        if timing.write > 0.0 {
            let write_at = at + (request.duration_us - timing.write) as i64;
            self.write_marks.add(write_at, timing.write as u64);
        }
    }

    fn mark_chunks(&mut self, request: &Request) {
        self.chunked += 1;
        let omitted = request.chunks_omitted;
        self.chunks_omitted = self.chunks_omitted.saturating_add(omitted);
        let at = |us: u64| request.arrived_us + us as i64;
        for chunk in &request.chunks {
            if let Some([asked, from, to]) = chunk.disk {
                self.queue_marks.add(at(asked), from - asked);
                self.read_marks.add(at(from), to - from);
            }
            if let Some([from, to]) = chunk.write {
                self.write_marks.add(at(from), to - from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levity_telemetry::chunks::Chunk;

    #[test]
    fn marks_are_thinned_evenly() {
        let mut marks = Marks::default();
        let count = MARKS_MAX * 3;
        for at in 0..count {
            marks.add(at as i64, 1);
        }
        assert_eq!(marks.stride(), 4);
        assert_eq!(marks.kept().len(), count / 4);
        let even = |(place, mark): (usize, &Mark)| mark.at_us == 4 * place as i64;
        assert!(marks.kept().iter().enumerate().all(even));
    }

    #[test]
    fn chunks_become_marks_at_their_moments() {
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
                bytes: 1,
            }],
            ..Request::default()
        });
        let first = |marks: &Marks| marks.kept().first().map(|mark| (mark.at_us, mark.took_us));
        assert_eq!(first(&run.queue_marks), Some((1_000_010, 200)));
        assert_eq!(first(&run.read_marks), Some((1_000_210, 500)));
        assert_eq!(first(&run.write_marks), Some((1_000_760, 100)));
        assert!((run.handover.total_us() - 50.0).abs() < 1e-9);
        assert_eq!((run.began_us(), run.length_s()), (1_000_000, 0.0009));
    }
}
