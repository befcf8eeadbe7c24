//! Figures of the disk, as plain values: whoever starts the disk fills them in.

use std::time::Duration;

use crate::cells::HistogramFigures;

/// What the disk side counts, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFigures {
    /// The engine of places that name none.
    pub own_engine: &'static str,
    /// Why it is this one.
    pub reason: String,
    /// Threads of the pool.
    pub threads: u64,
    /// Operations on their way to a device's queue.
    pub arriving: u64,
    /// Operations that failed; a missing file is one too.
    pub errors: u64,
    /// Operations dropped before they started, because nobody waited any more.
    pub canceled: u64,
    /// Operations not taken, because a queue or the memory was full.
    pub full: u64,
    /// Each engine at work.
    pub engines: Vec<EngineFigures>,
    /// Operations that were not made because another brought the same.
    pub coalesced: u64,
    /// Each device that files were read from.
    pub devices: Vec<DeviceFigures>,
}

/// What one engine has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineFigures {
    /// As in `disk.engine`.
    pub name: &'static str,
    /// Reads that the engine did away from the loop.
    pub reads_async: u64,
    /// Reads that the loop did and may have waited for.
    pub reads_sync: u64,
    /// Reads past the page cache, which are among those.
    pub reads_direct: u64,
    /// Bytes handed over.
    pub bytes_read: u64,
    /// Opens that succeeded.
    pub opens: u64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Bytes of these.
    pub bytes_written: u64,
    /// Time between submission and start.
    pub queue: HistogramFigures,
    /// Time between start and end.
    pub service: HistogramFigures,
}

/// What one device has to do, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFigures {
    /// Such as `259:0`.
    pub device: String,
    /// `st_dev`.
    pub number: u64,
    /// Operations that wait.
    pub queued: u64,
    /// Operations that were begun.
    pub in_flight: u64,
    /// How many may be begun at a time.
    pub depth: u64,
    /// It has not answered for `disk.dead_after`.
    pub dead: bool,
    /// Since when the one has been in flight that was begun first.
    pub oldest: Option<Duration>,
    /// Bytes that were read from it.
    pub bytes_read: u64,
    /// Time between submission and start.
    pub queue: HistogramFigures,
    /// Time between start and end.
    pub service: HistogramFigures,
}
