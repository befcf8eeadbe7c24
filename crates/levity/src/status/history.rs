//! Samples of the last minutes: one per second, in a bounded number.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use levity_disk::stats::DeviceStats;

/// Between two samples.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// Samples that are kept: three minutes.
const SAMPLES_MAX: usize = 180;

/// The last samples of which all device figures are kept, so that "recent" is the last ten seconds.
const RECENT_MAX: usize = 10;

/// Samples, the latest last.
#[derive(Debug, Default)]
pub struct History {
    levels: VecDeque<Level>,
    recent: VecDeque<(Instant, Vec<DeviceStats>)>,
    /// Stall of all workers up to the last sample.
    stall: Duration,
}

#[derive(Debug)]
struct Level {
    connections: u64,
    stall: Duration,
    /// Operations queued and in flight, of each device. The list of devices only grows.
    jobs: Vec<u64>,
}

impl History {
    /// Takes a sample: connections open, stall of all workers since the start, and the devices.
    pub fn add(
        &mut self,
        now: Instant,
        connections: u64,
        stall: Duration,
        devices: Vec<DeviceStats>,
    ) {
        self.levels.push_back(Level {
            connections,
            stall: stall.saturating_sub(self.stall),
            jobs: devices
                .iter()
                .map(|d| (d.queued + d.in_flight) as u64)
                .collect(),
        });
        self.stall = stall;
        self.recent.push_back((now, devices));
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

    /// The oldest complete sample, about ten seconds old: its time and the figures of the devices.
    pub fn before(&self) -> (Option<Instant>, &[DeviceStats]) {
        match self.recent.front() {
            Some((at, devices)) => (Some(*at), devices),
            None => (None, &[]),
        }
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
            history.add(start + INTERVAL * n as u32, n, stall, devices);
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
        let (at, before) = history.before();
        assert_eq!(at, Some(start + INTERVAL * 290));
        assert_eq!((before.len(), before[0].queued), (1, 290));
    }
}
