//! Counters of a disk. They are relaxed atomics: a snapshot is cheap, and its numbers may be some jobs apart.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets of every [`Histogram`], in microseconds. One more bucket holds longer times.
pub const BOUNDS_US: &[u64] = &[
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

const BUCKETS: usize = BOUNDS_US.len() + 1;

/// A snapshot of a disk's counters, all since its start.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stats {
    /// The engines that were started, in the order of [`ENGINES`](crate::engine::ENGINES).
    pub engines: Vec<EngineStats>,
    /// Present number of threads in the pool that all engines share.
    pub threads: usize,
    /// Jobs on their way to the scheduler, which does not know their devices yet.
    pub arriving: usize,
    /// The first 64 devices that have had a job.
    pub devices: Vec<DeviceStats>,
    /// Jobs answered with an error, such as a missing file.
    pub errors: u64,
    /// Jobs dropped before they started, because nobody waited for them any more.
    pub canceled: u64,
    /// Jobs refused because a queue or the memory was full.
    pub full: u64,
    /// Jobs that joined another one, so that they cost no operation.
    pub coalesced: u64,
    /// Syncs that joined another one of the same file, so that they cost no call; included in `coalesced`.
    pub syncs_shared: u64,
    /// Jobs answered with an error because their device was dead.
    pub dead: u64,
}

/// Counters of one engine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EngineStats {
    /// The name in `disk.engine`.
    pub name: &'static str,
    /// Reads, including those of opens, that a thread of the engine has made.
    pub reads_async: u64,
    /// Reads that the submitting thread has made, or will make by `sendfile`.
    pub reads_sync: u64,
    /// Reads past the page cache (`O_DIRECT`), included in the above.
    pub reads_direct: u64,
    /// Bytes handed over.
    pub bytes_read: u64,
    /// Opens that succeeded.
    pub opens: u64,
    /// Writes that succeeded, appends included.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Syncs that succeeded, however many jobs each has answered.
    pub syncs: u64,
    /// Time from submission to start.
    pub queue_time: Histogram,
    /// Time in the kernel.
    pub service_time: Histogram,
}

impl Stats {
    /// The counters of the engine called `name`, if it was started.
    pub fn engine(&self, name: &str) -> Option<&EngineStats> {
        self.engines.iter().find(|engine| engine.name == name)
    }
}

/// Present load of one device, and its counters since its first job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceStats {
    /// `st_dev`.
    pub device: u64,
    /// Jobs that wait for a slot or for memory, without those that have joined another.
    pub queued: usize,
    /// Jobs that an engine has.
    pub in_flight: usize,
    /// The maximum number of jobs in flight, adapted or set.
    pub depth: usize,
    /// Whether the device is considered dead: it has not answered for too long.
    pub dead: bool,
    /// Age of the oldest job in flight; `None` if there is none. At most 64 jobs of a device are tracked, those
    /// that were started first.
    pub oldest: Option<Duration>,
    /// Bytes handed over.
    pub bytes_read: u64,
    /// Time from submission to start.
    pub queue_time: Histogram,
    /// Time in the kernel.
    pub service_time: Histogram,
}

/// A histogram of times.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    /// For each of [`BOUNDS_US`] the number of times up to it and above the one before; then the number of
    /// longer times.
    pub counts: [u64; BUCKETS],
    /// Sum of all times.
    pub sum: Duration,
}

impl Histogram {
    /// Number of all times.
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
    pub(crate) syncs_shared: AtomicU64,
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
    pub(crate) syncs: AtomicU64,
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
            syncs: get(&self.syncs),
            queue_time: self.queue_time.snapshot(),
            service_time: self.service_time.snapshot(),
        }
    }
}

/// A [`Histogram`] that is being recorded, by any thread.
#[derive(Debug)]
pub struct Timer {
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
    /// Counts one time.
    pub fn add(&self, time: Duration) {
        let bucket = BOUNDS_US.partition_point(|bound| Duration::from_micros(*bound) < time);
        add(&self.counts[bucket], 1);
        add(
            &self.sum_ns,
            u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        );
    }

    /// The values at this moment.
    pub fn snapshot(&self) -> Histogram {
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
