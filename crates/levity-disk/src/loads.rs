//! How busy each device is, for threads that may not wait for the scheduler's lock.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::pace::Pace;
use crate::stats::DeviceStats;

/// KnownDevices that are listed. Work on any more is scheduled all the same, but not told of.
const DEVICES_MAX: usize = 64;

/// One [`Load`] per device, in the order in which they were first seen. None is ever taken off.
#[derive(Debug)]
pub(crate) struct Loads([OnceLock<Arc<Load>>; DEVICES_MAX]);

/// The jobs of one device. Written under the scheduler's lock only, read by anyone.
#[derive(Debug)]
pub(crate) struct Load {
    device: u64,
    /// Jobs that wait in the upper half, jobs in flight in the lower: one value, so that a job on its
    /// way from one to the other is never missed.
    jobs: AtomicU64,
    /// Jobs that may be in flight.
    depth: AtomicUsize,
    /// It does not answer.
    dead: AtomicBool,
    pace: Arc<Pace>,
}

impl Default for Loads {
    fn default() -> Loads {
        Loads([const { OnceLock::new() }; DEVICES_MAX])
    }
}

impl Loads {
    /// Lists a device that is not listed yet, if there is a place. Call it under the scheduler's lock.
    pub(crate) fn add(&self, device: u64) -> Arc<Load> {
        let load = Arc::new(Load {
            device,
            jobs: AtomicU64::new(0),
            depth: AtomicUsize::new(0),
            dead: AtomicBool::new(false),
            pace: Arc::new(Pace::new()),
        });
        if let Some(place) = self.0.iter().find(|place| place.get().is_none()) {
            place.get_or_init(|| Arc::clone(&load));
        }
        load
    }

    /// Whether `arriving` jobs and one more could start on `device` at once; one that is not known yet
    /// begins with `depth_start` slots. No for a device that found no place on the list.
    pub(crate) fn has_room(&self, device: u64, arriving: usize, depth_start: usize) -> bool {
        match self.listed().find(|load| load.device == device) {
            Some(load) => {
                let (queued, in_flight) = load.jobs();
                let busy = in_flight.saturating_add(arriving);
                !load.is_dead() && queued == 0 && busy < load.depth()
            }
            None => self.0[DEVICES_MAX - 1].get().is_none() && arriving < depth_start,
        }
    }

    pub(crate) fn now(&self) -> Vec<DeviceStats> {
        self.listed().map(Load::now).collect()
    }

    /// None for a device that found no place on the list.
    pub(crate) fn pace(&self, device: u64) -> Option<Arc<Pace>> {
        let load = self.listed().find(|load| load.device == device)?;
        Some(Arc::clone(&load.pace))
    }

    fn listed(&self) -> impl Iterator<Item = &Load> {
        self.0.iter().map_while(|place| Some(&**place.get()?))
    }
}

impl Load {
    pub(crate) fn set(&self, queued: usize, in_flight: usize) {
        let jobs = (queued as u64) << 32 | (in_flight as u64 & u64::from(u32::MAX));
        self.jobs.store(jobs, Ordering::Release);
    }

    pub(crate) fn set_depth(&self, depth: usize) {
        self.depth.store(depth, Ordering::Relaxed);
    }

    fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }

    pub(crate) fn set_dead(&self, dead: bool) {
        self.dead.store(dead, Ordering::Relaxed);
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Those that wait, and those in flight.
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
            oldest: self.pace.oldest(),
            bytes_read: self.pace.bytes_read(),
            queue_time: self.pace.queue_time(),
            service_time: self.pace.service_time(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_depth_leaves() {
        let loads = Loads::default();
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
        let loads = Loads::default();
        for device in 0..DEVICES_MAX as u64 {
            assert!(loads.has_room(1000, 0, 1));
            loads.add(device).set_depth(1);
        }
        assert!(!loads.has_room(1000, 0, 1) && loads.has_room(0, 0, 1));
        loads.add(1000).set(0, 1);
        assert!(!loads.has_room(1000, 0, 1));
        assert_eq!(loads.now().len(), DEVICES_MAX);
        assert!(loads.pace(0).is_some() && loads.pace(1000).is_none());
    }
}
