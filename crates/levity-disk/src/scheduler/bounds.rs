//! The bounds that the scheduler keeps.

use std::time::Duration;

use super::depth::{DEPTH_START, Depth};

/// The bounds that hold for each device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) depth: DepthPolicy,
    /// The maximum number of queued jobs.
    pub(crate) queue_max: usize,
    /// Silence after which a device with jobs in flight is considered dead.
    pub(crate) dead_after: Duration,
}

/// How the depth of a device, which is the maximum number of its jobs in flight, is determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DepthPolicy {
    Fixed(usize),
    /// Adapted to the device, up to this maximum.
    UpTo(usize),
}

impl DepthPolicy {
    /// The state for a device without a job yet.
    pub(super) fn start(self) -> Depth {
        match self {
            DepthPolicy::Fixed(depth) => Depth::fixed(depth),
            DepthPolicy::UpTo(max) => Depth::adaptive(max),
        }
    }

    /// The depth of a device without a job yet.
    pub(super) fn initial(self) -> usize {
        match self {
            DepthPolicy::Fixed(depth) => depth,
            DepthPolicy::UpTo(max) => DEPTH_START.min(max),
        }
    }

    pub(crate) fn max(self) -> usize {
        match self {
            DepthPolicy::Fixed(max) | DepthPolicy::UpTo(max) => max,
        }
    }
}
