//! Figures of the disk.

use levity_disk::stats::{BOUNDS_US, Histogram};
use levity_disk::{Disk, Stats};
use rustix::fs::{major, minor};

use crate::cells::HistogramFigures;

/// The counters of a disk, and its engine.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskFigures {
    /// The engine of `disk.engine`.
    pub own_engine: &'static str,
    /// Why `auto` chose it.
    pub reason: String,
    /// The counters.
    pub stats: Stats,
}

impl DiskFigures {
    /// The figures of `disk` at this moment. Takes a lock, so that event loops must not call it.
    pub fn of(disk: &Disk) -> Self {
        Self {
            own_engine: disk.engine(),
            reason: disk.reason().to_owned(),
            stats: disk.stats(),
        }
    }
}

/// The number of a device as the kernel prints it, such as `259:0`.
pub fn device_number(device: u64) -> String {
    format!("{}:{}", major(device), minor(device))
}

impl From<&Histogram> for HistogramFigures {
    fn from(histogram: &Histogram) -> Self {
        Self {
            bounds_us: BOUNDS_US,
            counts: histogram.counts.to_vec(),
            sum: histogram.sum,
        }
    }
}
