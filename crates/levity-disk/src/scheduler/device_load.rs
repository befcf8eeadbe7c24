//! The load of each device, for threads that may not wait for the lock on the queues: its jobs, the times that they
//! took, and the age of the oldest one in flight.

use std::array;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::job::Completion;
use crate::stats::{self, DeviceStats, Timer};

/// The maximum number of devices in the list. Jobs of further devices are scheduled too, but not reported.
const DEVICES_MAX: usize = 64;

/// Jobs in flight whose start is recorded, per device. A job that finds no free entry is younger than those
/// that have one, so the oldest is missed only until these have finished.
const STARTS_MAX: usize = 64;

/// One [`DeviceLoad`] per device, in the order in which they were first seen. Entries are never removed.
#[derive(Debug)]
pub(super) struct DeviceLoads([OnceLock<Arc<DeviceLoad>>; DEVICES_MAX]);

/// The jobs of one device. Read by any thread; takes no lock.
#[derive(Debug)]
pub(super) struct DeviceLoad {
    device: u64,
    /// Queued jobs in the upper half, jobs in flight in the lower: one value, so that a job that moves from
    /// one to the other is never missed. Written under the lock on the queues only, like the next two.
    jobs: AtomicU64,
    /// The maximum number of jobs in flight.
    depth: AtomicUsize,
    /// The device does not answer.
    dead: AtomicBool,
    epoch: Instant,
    /// When jobs in flight were started, in nanoseconds since `epoch` and never 0; 0 is a free entry. Written by
    /// the threads of the engines and by the scheduler's, like the rest.
    started_ns: [AtomicU64; STARTS_MAX],
    bytes_read: AtomicU64,
    queue_time: Timer,
    service_time: Timer,
}

/// Counts a job as in flight until it is dropped.
pub(super) struct LoadGuard {
    load: Arc<DeviceLoad>,
    entry: Option<usize>,
}

impl Default for DeviceLoads {
    fn default() -> DeviceLoads {
        DeviceLoads([const { OnceLock::new() }; DEVICES_MAX])
    }
}

impl DeviceLoads {
    /// Adds a device that is not in the list yet, if the list is not full. Call it under the lock on the queues.
    pub(super) fn add(&self, device: u64) -> Arc<DeviceLoad> {
        let load = Arc::new(DeviceLoad {
            device,
            jobs: AtomicU64::new(0),
            depth: AtomicUsize::new(0),
            dead: AtomicBool::new(false),
            epoch: Instant::now(),
            started_ns: array::from_fn(|_| AtomicU64::new(0)),
            bytes_read: AtomicU64::new(0),
            queue_time: Timer::default(),
            service_time: Timer::default(),
        });
        if let Some(entry) = self.0.iter().find(|entry| entry.get().is_none()) {
            entry.get_or_init(|| Arc::clone(&load));
        }
        load
    }

    /// Whether `arriving` jobs and one more could start on `device` at once. A device without a job yet has
    /// `initial_depth` slots. False for a device that did not fit into the list.
    pub(super) fn has_room(&self, device: u64, arriving: usize, initial_depth: usize) -> bool {
        match self.get(device) {
            Some(load) => {
                let (queued, in_flight) = load.jobs();
                let busy = in_flight.saturating_add(arriving);
                !load.is_dead() && queued == 0 && busy < load.depth()
            }
            None => self.0[DEVICES_MAX - 1].get().is_none() && arriving < initial_depth,
        }
    }

    /// Whether `device` has all the jobs in flight that it may have, and answers.
    pub(super) fn is_saturated(&self, device: u64) -> bool {
        self.get(device).is_some_and(|load| {
            let (_, in_flight) = load.jobs();
            in_flight > 0 && in_flight >= load.depth() && !load.is_dead()
        })
    }

    pub(super) fn now(&self) -> Vec<DeviceStats> {
        self.listed().map(|load| load.now()).collect()
    }

    /// Records that a job of `device` is given to the engine now. `None` for a device that did not fit into the
    /// list.
    pub(super) fn start(&self, device: u64) -> Option<LoadGuard> {
        self.get(device).map(DeviceLoad::start)
    }

    fn get(&self, device: u64) -> Option<&Arc<DeviceLoad>> {
        self.listed().find(|load| load.device == device)
    }

    fn listed(&self) -> impl Iterator<Item = &Arc<DeviceLoad>> {
        self.0.iter().map_while(OnceLock::get)
    }
}

impl DeviceLoad {
    pub(super) fn set(&self, queued: usize, in_flight: usize, depth: usize, dead: bool) {
        let jobs = (queued as u64) << 32 | (in_flight as u64 & u64::from(u32::MAX));
        self.jobs.store(jobs, Ordering::Release);
        self.depth.store(depth, Ordering::Relaxed);
        self.dead.store(dead, Ordering::Relaxed);
    }

    fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Queued jobs, and jobs in flight.
    fn jobs(&self) -> (usize, usize) {
        let jobs = self.jobs.load(Ordering::Acquire);
        ((jobs >> 32) as usize, (jobs & u64::from(u32::MAX)) as usize)
    }

    fn start(self: &Arc<DeviceLoad>) -> LoadGuard {
        let now = self.now_ns();
        let is_free = |entry: &AtomicU64| {
            let taken = entry.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
            taken.is_ok()
        };
        LoadGuard {
            entry: self.started_ns.iter().position(is_free),
            load: Arc::clone(self),
        }
    }

    /// How long the oldest job in flight has been so.
    fn oldest(&self) -> Option<Duration> {
        let started = self.started_ns.iter().map(stats::get);
        let first = started.filter(|started| *started > 0).min()?;
        Some(Duration::from_nanos(self.now_ns().saturating_sub(first)))
    }

    fn now_ns(&self) -> u64 {
        let since = u64::try_from(self.epoch.elapsed().as_nanos());
        since.unwrap_or(u64::MAX).max(1)
    }

    fn now(&self) -> DeviceStats {
        let (queued, in_flight) = self.jobs();
        DeviceStats {
            device: self.device,
            queued,
            in_flight,
            depth: self.depth(),
            dead: self.is_dead(),
            oldest: self.oldest(),
            bytes_read: stats::get(&self.bytes_read),
            queue_time: self.queue_time.snapshot(),
            service_time: self.service_time.snapshot(),
        }
    }
}

impl LoadGuard {
    pub(super) fn count(&self, completion: &Completion) {
        self.load.queue_time.add(completion.queued);
        self.load.service_time.add(completion.service);
        let bytes = completion.ready().map_or(0, |ready| ready.len());
        stats::add(&self.load.bytes_read, bytes as u64);
    }
}

impl Drop for LoadGuard {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            self.load.started_ns[entry].store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn room_depends_on_jobs_and_depth() {
        let loads = DeviceLoads::default();
        assert!(loads.has_room(7, 1, 2) && !loads.has_room(7, 2, 2));
        let load = loads.add(7);
        load.set(0, 1, 2, false);
        assert!(loads.has_room(7, 0, 2) && !loads.has_room(7, 1, 2));
        load.set(1, 0, 2, false);
        assert!(!loads.has_room(7, 0, 2));
        assert_eq!(loads.now()[0].queued, 1);
        load.set(0, 0, 2, false);
        assert!(loads.has_room(7, 0, 2));
        load.set(0, 0, 2, true);
        assert!(!loads.has_room(7, 0, 2));
    }

    #[test]
    fn a_full_list_says_no() {
        let loads = DeviceLoads::default();
        for device in 0..DEVICES_MAX as u64 {
            assert!(loads.has_room(1000, 0, 1));
            loads.add(device).set(0, 0, 1, false);
        }
        assert!(!loads.has_room(1000, 0, 1) && loads.has_room(0, 0, 1));
        loads.add(1000).set(0, 1, 1, false);
        assert!(!loads.has_room(1000, 0, 1));
        assert_eq!(loads.now().len(), DEVICES_MAX);
        assert!(loads.start(0).is_some() && loads.start(1000).is_none());
    }

    #[test]
    fn the_oldest_is_the_one_started_first() {
        let load = DeviceLoads::default().add(7);
        assert_eq!(load.oldest(), None);
        let first = load.start();
        let while_alone = load.oldest().unwrap();
        let second = load.start();
        let with_both = load.oldest().unwrap();
        assert!(with_both >= while_alone);
        drop(first);
        let third = load.start();
        drop(second);
        assert!(load.oldest().is_some());
        drop(third);
        assert_eq!(load.oldest(), None);
    }

    #[test]
    fn more_than_have_an_entry_do_no_harm() {
        let load = DeviceLoads::default().add(7);
        let jobs: Vec<_> = (0..STARTS_MAX + 3).map(|_| load.start()).collect();
        assert!(load.oldest().is_some());
        drop(jobs);
        assert_eq!(load.oldest(), None);
    }

    #[test]
    fn outcomes_are_counted() {
        let load = DeviceLoads::default().add(7);
        let completion = Completion {
            result: Err(io::ErrorKind::NotFound.into()),
            queued: Duration::from_micros(40),
            service: Duration::from_millis(3),
            direct: false,
        };
        load.start().count(&completion);
        assert_eq!(load.now().bytes_read, 0);
        assert_eq!(load.now().queue_time.counts[0], 1);
        assert_eq!(load.now().service_time.sum, Duration::from_millis(3));
    }
}
