//! The bounds that the scheduler keeps.

use std::time::Duration;

use super::depth::{DEPTH_START, Depth};

/// The bounds that hold for each device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) depth: DepthBound,
    /// Jobs that wait.
    pub(crate) queue_max: usize,
    /// Silence after which a device with jobs in flight is considered dead.
    pub(crate) dead_after: Duration,
}

/// Bound on the jobs in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DepthBound {
    Fixed(usize),
    /// Adapted to the device, up to this.
    UpTo(usize),
}

impl DepthBound {
    /// For a device without a job yet.
    pub(super) fn start(self) -> Depth {
        match self {
            DepthBound::Fixed(depth) => Depth::fixed(depth),
            DepthBound::UpTo(max) => Depth::adaptive(max),
        }
    }

    /// The limit of [`DepthBound::start`].
    pub(super) fn first(self) -> usize {
        match self {
            DepthBound::Fixed(depth) => depth,
            DepthBound::UpTo(max) => DEPTH_START.min(max),
        }
    }

    pub(crate) fn max(self) -> usize {
        match self {
            DepthBound::Fixed(max) | DepthBound::UpTo(max) => max,
        }
    }
}
