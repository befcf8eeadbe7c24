//! Samples of the last minutes: one per second, in a bounded number.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use levity_disk::stats::DeviceStats;
use levity_telemetry::stats::ComputeFigures;

/// Between two samples.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// Samples that are kept: three minutes.
const SAMPLES_MAX: usize = 180;

/// The last samples of which all figures of devices and of computing are kept, so that "recent" is the last ten seconds.
const RECENT_MAX: usize = 10;

/// Samples, the latest last.
#[derive(Debug, Default)]
pub struct History {
    levels: VecDeque<Level>,
    recent: VecDeque<Sample>,
    /// Stall of all workers up to the last sample.
    stall: Duration,
}

/// Figures at one moment, which differences are made of.
#[derive(Debug)]
pub struct Sample {
    /// The moment.
    pub at: Instant,
    /// All devices.
    pub devices: Vec<DeviceStats>,
    /// The pool of threads that compute; `None` without one.
    pub compute: Option<ComputeFigures>,
}

#[derive(Debug)]
struct Level {
    connections: u64,
    stall: Duration,
    /// Operations queued and in flight, of each device. The list of devices only grows.
    jobs: Vec<u64>,
}

impl History {
    /// Takes a sample: connections open, stall of all workers since the start, and the rest.
    pub fn add(&mut self, connections: u64, stall: Duration, sample: Sample) {
        self.levels.push_back(Level {
            connections,
            stall: stall.saturating_sub(self.stall),
            jobs: sample
                .devices
                .iter()
                .map(|d| (d.queued + d.in_flight) as u64)
                .collect(),
        });
        self.stall = stall;
        self.recent.push_back(sample);
        drop_front(&mut self.levels, SAMPLES_MAX);
        drop_front(&mut self.recent, RECENT_MAX);
    }

    /// Connections at each sample.
    pub fn connections(&self) -> impl Iterator<Item = u64> {
        self.levels.iter().map(|level| level.connections)
    }

    /// Stall within each interval.
    pub fn stall(&self) -> impl Iterator<Item = Duration> {
        self.levels.iter().map(|level| level.stall)
    }

    /// Operations queued and in flight on the device at this index of the list, at each sample.
    pub fn jobs(&self, index: usize) -> impl Iterator<Item = u64> {
        let levels = self.levels.iter();
        levels.map(move |level| level.jobs.get(index).copied().unwrap_or(0))
    }

    /// The oldest complete sample, about ten seconds old. `None` before the first.
    pub fn before(&self) -> Option<&Sample> {
        self.recent.front()
    }
}

fn drop_front<T>(samples: &mut VecDeque<T>, count_max: usize) {
    if samples.len() > count_max {
        samples.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(queued: usize) -> DeviceStats {
        DeviceStats {
            queued,
            in_flight: 1,
            ..DeviceStats::default()
        }
    }

    #[test]
    fn samples_are_bounded_and_in_order() {
        let mut history = History::default();
        let start = Instant::now();
        for n in 0..300 {
            let stall = Duration::from_millis(10 * n);
            let devices = if n < 250 {
                vec![]
            } else {
                vec![device(n as usize)]
            };
            let sample = Sample {
                at: start + INTERVAL * n as u32,
                devices,
                compute: None,
            };
            history.add(n, stall, sample);
        }
        let connections: Vec<_> = history.connections().collect();
        assert_eq!((connections.len(), connections[0]), (SAMPLES_MAX, 120));
        assert!(
            history
                .stall()
                .all(|stall| stall == Duration::from_millis(10))
        );
        let jobs: Vec<_> = history.jobs(0).collect();
        assert_eq!((jobs[0], jobs[SAMPLES_MAX - 1]), (0, 300));
        let before = history.before().expect("a sample");
        assert_eq!(before.at, start + INTERVAL * 290);
        assert_eq!((before.devices.len(), before.devices[0].queued), (1, 290));
    }
}
