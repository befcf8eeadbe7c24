//! What a disk has done. Counted with relaxed atomics: a snapshot is cheap, and its numbers may be
//! some jobs apart.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets of every [`Histogram`], in microseconds; a last bucket holds the rest.
pub const BOUNDS_US: &[u64] = &[
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

const BUCKETS: usize = BOUNDS_US.len() + 1;

/// A snapshot of a disk's counters, all since its start.
#[derive(Debug, Clone, PartialEq)]
pub struct Stats {
    /// The engines at work, in the order of [`ENGINES`](crate::engine::ENGINES).
    pub engines: Vec<EngineStats>,
    /// Threads of the pool that all engines share, at this moment.
    pub threads: usize,
    /// Jobs on their way to the scheduler, which has not seen yet what device they are for.
    pub arriving: usize,
    /// The first 64 devices that have had a job.
    pub devices: Vec<DeviceStats>,
    /// Jobs answered with an error: a missing file is one too.
    pub errors: u64,
    /// Jobs dropped before they started, because nobody waited any more.
    pub canceled: u64,
    /// Jobs not taken because a queue or the memory was full.
    pub full: u64,
    /// Jobs that were not done because another one brought what they asked for.
    pub coalesced: u64,
    /// Jobs answered with an error because their device did not answer.
    pub dead: u64,
}

/// What one engine has done.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineStats {
    /// As in `disk.engine`.
    pub name: &'static str,
    /// Reads (with those that an open made at once) that a thread of the engine did.
    pub reads_async: u64,
    /// Reads that the submitting thread did, or will do by `sendfile`.
    pub reads_sync: u64,
    /// Of these, reads past the page cache (`O_DIRECT`).
    pub reads_direct: u64,
    /// Bytes handed over.
    pub bytes_read: u64,
    /// Opens that succeeded.
    pub opens: u64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Bytes of these.
    pub bytes_written: u64,
    /// Time from submission to a thread.
    pub queue_time: Histogram,
    /// Time in the kernel.
    pub service_time: Histogram,
}

impl Stats {
    /// What the engine called `name` has done, if it is at work.
    pub fn engine(&self, name: &str) -> Option<&EngineStats> {
        self.engines.iter().find(|engine| engine.name == name)
    }
}

/// One device's load at this moment, and what it has done since its first job.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceStats {
    /// `st_dev`.
    pub device: u64,
    /// Jobs that wait for a slot or for memory, without those that go along with another.
    pub queued: usize,
    /// Jobs that the engine has.
    pub in_flight: usize,
    /// How many may be in flight, as it was found out to be best or was set.
    pub depth: usize,
    /// Nothing has come back for so long that it is taken for dead.
    pub dead: bool,
    /// How long the engine has had the job that it has had for longest; none when nothing is in flight.
    /// Told of 64 jobs of a device at most, those that were begun first.
    pub oldest: Option<Duration>,
    /// Bytes handed over.
    pub bytes_read: u64,
    /// Time from submission to a thread.
    pub queue_time: Histogram,
    /// Time in the kernel.
    pub service_time: Histogram,
}

/// How long something took, how often.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// For each of [`BOUNDS_US`], how many took that long at most and longer than the one before; then
    /// how many took longer than all.
    pub counts: [u64; BUCKETS],
    /// All of them together.
    pub sum: Duration,
}

impl Histogram {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) errors: AtomicU64,
    pub(crate) canceled: AtomicU64,
    pub(crate) full: AtomicU64,
    pub(crate) coalesced: AtomicU64,
    pub(crate) dead: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct EngineCounters {
    pub(crate) reads: AtomicU64,
    pub(crate) reads_direct: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) opens: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) queue_time: Timer,
    pub(crate) service_time: Timer,
}

impl EngineCounters {
    pub(crate) fn snapshot(&self, name: &'static str, blocks_on_loop: bool) -> EngineStats {
        let reads = get(&self.reads);
        let (reads_sync, reads_async) = match blocks_on_loop {
            true => (reads, 0),
            false => (0, reads),
        };
        EngineStats {
            name,
            reads_async,
            reads_sync,
            reads_direct: get(&self.reads_direct),
            bytes_read: get(&self.bytes_read),
            opens: get(&self.opens),
            writes: get(&self.writes),
            bytes_written: get(&self.bytes_written),
            queue_time: self.queue_time.snapshot(),
            service_time: self.service_time.snapshot(),
        }
    }
}

/// A [`Histogram`] in the making.
#[derive(Debug)]
pub(crate) struct Timer {
    counts: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Default for Timer {
    fn default() -> Timer {
        Timer {
            counts: array::from_fn(|_| AtomicU64::new(0)),
            sum_ns: AtomicU64::new(0),
        }
    }
}

impl Timer {
    pub(crate) fn add(&self, time: Duration) {
        let bucket = BOUNDS_US.partition_point(|bound| Duration::from_micros(*bound) < time);
        add(&self.counts[bucket], 1);
        add(
            &self.sum_ns,
            u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        );
    }

    pub(crate) fn snapshot(&self) -> Histogram {
        Histogram {
            counts: array::from_fn(|bucket| get(&self.counts[bucket])),
            sum: Duration::from_nanos(get(&self.sum_ns)),
        }
    }
}

pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

pub(crate) fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let timer = Timer::default();
        for us in [0, 50, 51, 10_000_000, 10_000_001] {
            timer.add(Duration::from_micros(us));
        }
        let histogram = timer.snapshot();
        assert_eq!((histogram.counts[0], histogram.counts[1]), (2, 1));
        assert_eq!(histogram.counts[BUCKETS - 2..], [1, 1]);
        assert_eq!(histogram.count(), 5);
        assert_eq!(histogram.sum, Duration::from_micros(20_000_102));
    }
}
