//! How busy each device is, for threads that may not wait for the lock on the queues.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::device_timing::DeviceTiming;
use crate::stats::DeviceStats;

/// Bound on the devices in the list. Work on further devices is scheduled too, but not reported.
const DEVICES_MAX: usize = 64;

/// One [`DeviceLoad`] per device, in the order in which they were first seen. Entries are never removed.
#[derive(Debug)]
pub(super) struct DeviceLoads([OnceLock<Arc<DeviceLoad>>; DEVICES_MAX]);

/// The jobs of one device. Written under the lock on the queues only, read by any thread.
#[derive(Debug)]
pub(super) struct DeviceLoad {
    device: u64,
    /// Queued jobs in the upper half, jobs in flight in the lower: one value, so that a job that moves from
    /// one to the other is never missed.
    jobs: AtomicU64,
    /// Bound on the jobs in flight.
    depth: AtomicUsize,
    /// The device does not answer.
    dead: AtomicBool,
    timing: Arc<DeviceTiming>,
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
            timing: Arc::new(DeviceTiming::new()),
        });
        if let Some(entry) = self.0.iter().find(|entry| entry.get().is_none()) {
            entry.get_or_init(|| Arc::clone(&load));
        }
        load
    }

    /// Whether `in_transit` jobs and one more could start on `device` at once. A device without a job yet
    /// has `depth_start` slots. False for a device that did not fit into the list.
    pub(super) fn has_room(&self, device: u64, in_transit: usize, depth_start: usize) -> bool {
        match self.listed().find(|load| load.device == device) {
            Some(load) => {
                let (queued, in_flight) = load.jobs();
                let busy = in_flight.saturating_add(in_transit);
                !load.is_dead() && queued == 0 && busy < load.depth()
            }
            None => self.0[DEVICES_MAX - 1].get().is_none() && in_transit < depth_start,
        }
    }

    pub(super) fn now(&self) -> Vec<DeviceStats> {
        self.listed().map(DeviceLoad::now).collect()
    }

    /// `None` for a device that did not fit into the list.
    pub(super) fn timing(&self, device: u64) -> Option<Arc<DeviceTiming>> {
        let load = self.listed().find(|load| load.device == device)?;
        Some(Arc::clone(&load.timing))
    }

    fn listed(&self) -> impl Iterator<Item = &DeviceLoad> {
        self.0.iter().map_while(|entry| Some(&**entry.get()?))
    }
}

impl DeviceLoad {
    pub(super) fn set(&self, queued: usize, in_flight: usize) {
        let jobs = (queued as u64) << 32 | (in_flight as u64 & u64::from(u32::MAX));
        self.jobs.store(jobs, Ordering::Release);
    }

    pub(super) fn set_depth(&self, depth: usize) {
        self.depth.store(depth, Ordering::Relaxed);
    }

    fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }

    pub(super) fn set_dead(&self, dead: bool) {
        self.dead.store(dead, Ordering::Relaxed);
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Queued jobs, and jobs in flight.
    fn jobs(&self) -> (usize, usize) {
        let jobs = self.jobs.load(Ordering::Acquire);
        ((jobs >> 32) as usize, (jobs & u64::from(u32::MAX)) as usize)
    }

    fn now(&self) -> DeviceStats {
        let (queued, in_flight) = self.jobs();
        DeviceStats {
            device: self.device,
            queued,
            in_flight,
            depth: self.depth(),
            dead: self.is_dead(),
            oldest: self.timing.oldest(),
            bytes_read: self.timing.bytes_read(),
            queue_time: self.timing.queue_time(),
            service_time: self.timing.service_time(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_depth_leaves() {
        let loads = DeviceLoads::default();
        assert!(loads.has_room(7, 1, 2) && !loads.has_room(7, 2, 2));
        let load = loads.add(7);
        load.set_depth(2);
        load.set(0, 1);
        assert!(loads.has_room(7, 0, 2) && !loads.has_room(7, 1, 2));
        load.set(1, 0);
        assert!(!loads.has_room(7, 0, 2));
        assert_eq!(loads.now()[0].queued, 1);
        load.set(0, 0);
        assert!(loads.has_room(7, 0, 2));
        load.set_dead(true);
        assert!(!loads.has_room(7, 0, 2));
    }

    #[test]
    fn a_full_list_says_no() {
        let loads = DeviceLoads::default();
        for device in 0..DEVICES_MAX as u64 {
            assert!(loads.has_room(1000, 0, 1));
            loads.add(device).set_depth(1);
        }
        assert!(!loads.has_room(1000, 0, 1) && loads.has_room(0, 0, 1));
        loads.add(1000).set(0, 1);
        assert!(!loads.has_room(1000, 0, 1));
        assert_eq!(loads.now().len(), DEVICES_MAX);
        assert!(loads.timing(0).is_some() && loads.timing(1000).is_none());
    }
}
