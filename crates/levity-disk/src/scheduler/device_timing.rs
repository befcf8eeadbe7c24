//! The times that the jobs of one device took, and the age of the oldest one in flight.

use std::array;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::job::Completion;
use crate::stats::{self, Histogram, Timer};

/// Jobs in flight whose start is recorded, per device. A job that finds no free entry is younger than those
/// that have one, so the oldest is missed only until these have finished.
const STARTS_MAX: usize = 64;

/// Written by the threads of the engines and by the scheduler's, read by any thread. Takes no lock.
#[derive(Debug)]
pub(super) struct DeviceTiming {
    epoch: Instant,
    /// When jobs in flight were started, in nanoseconds since `epoch` and never 0; 0 is a free entry.
    started_ns: [AtomicU64; STARTS_MAX],
    bytes_read: AtomicU64,
    queue_time: Timer,
    service_time: Timer,
}

/// One job in flight, until this is dropped.
pub(super) struct TimedJob {
    timing: Arc<DeviceTiming>,
    entry: Option<usize>,
}

impl DeviceTiming {
    pub(super) fn new() -> DeviceTiming {
        DeviceTiming {
            epoch: Instant::now(),
            started_ns: array::from_fn(|_| AtomicU64::new(0)),
            bytes_read: AtomicU64::new(0),
            queue_time: Timer::default(),
            service_time: Timer::default(),
        }
    }

    /// Records that a job is given to the engine now.
    pub(super) fn start(self: Arc<DeviceTiming>) -> TimedJob {
        let now = self.now_ns();
        let is_free = |entry: &AtomicU64| {
            let taken = entry.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
            taken.is_ok()
        };
        let entry = self.started_ns.iter().position(is_free);
        TimedJob {
            timing: self,
            entry,
        }
    }

    /// How long the oldest job in flight has been so.
    pub(super) fn oldest(&self) -> Option<Duration> {
        let started = self.started_ns.iter().map(stats::get);
        let first = started.filter(|started| *started > 0).min()?;
        Some(Duration::from_nanos(self.now_ns().saturating_sub(first)))
    }

    pub(super) fn bytes_read(&self) -> u64 {
        stats::get(&self.bytes_read)
    }

    pub(super) fn queue_time(&self) -> Histogram {
        self.queue_time.snapshot()
    }

    pub(super) fn service_time(&self) -> Histogram {
        self.service_time.snapshot()
    }

    fn now_ns(&self) -> u64 {
        let since = u64::try_from(self.epoch.elapsed().as_nanos());
        since.unwrap_or(u64::MAX).max(1)
    }
}

impl TimedJob {
    pub(super) fn count(&self, completion: &Completion) {
        self.timing.queue_time.add(completion.queued);
        self.timing.service_time.add(completion.service);
        let bytes = completion.ready().map_or(0, |ready| ready.len());
        stats::add(&self.timing.bytes_read, bytes as u64);
    }
}

impl Drop for TimedJob {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            self.timing.started_ns[entry].store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn the_oldest_is_the_one_started_first() {
        let timing = Arc::new(DeviceTiming::new());
        assert_eq!(timing.oldest(), None);
        let first = Arc::clone(&timing).start();
        let while_alone = timing.oldest().unwrap();
        let second = Arc::clone(&timing).start();
        let with_both = timing.oldest().unwrap();
        assert!(with_both >= while_alone);
        drop(first);
        let third = Arc::clone(&timing).start();
        drop(second);
        assert!(timing.oldest().is_some());
        drop(third);
        assert_eq!(timing.oldest(), None);
    }

    #[test]
    fn more_than_have_an_entry_do_no_harm() {
        let timing = Arc::new(DeviceTiming::new());
        let jobs: Vec<_> = (0..STARTS_MAX + 3)
            .map(|_| Arc::clone(&timing).start())
            .collect();
        assert!(timing.oldest().is_some());
        drop(jobs);
        assert_eq!(timing.oldest(), None);
    }

    #[test]
    fn outcomes_are_counted() {
        let timing = Arc::new(DeviceTiming::new());
        let completion = Completion {
            result: Err(io::ErrorKind::NotFound.into()),
            queued: Duration::from_micros(40),
            service: Duration::from_millis(3),
            direct: false,
        };
        Arc::clone(&timing).start().count(&completion);
        assert_eq!(timing.bytes_read(), 0);
        assert_eq!(timing.queue_time().counts[0], 1);
        assert_eq!(timing.service_time().sum, Duration::from_millis(3));
    }
}
