//! Settings of a disk.

use std::time::Duration;

use crate::engine::{self, StartError, Threads};
use crate::scheduler::{Bounds, DEPTH_MAX, DepthPolicy};

/// Upper bound on threads: more are a mistake.
const THREADS_MAX: usize = 1024;

/// Lower bound: less is a mistake, as a disk takes seconds to spin up.
const DEAD_AFTER_MIN: Duration = Duration::from_millis(10);

/// Lower bound, in bytes: less is a mistake.
const BUFFER_BYTES_MIN: usize = 1 << 20;

/// The settings of a [`Disk`](crate::Disk).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// One of [`engine::NAMES`], or an alias.
    pub engine: String,
    /// Bound on the threads in the pool; at least 2. They are started when needed. By default twice `depth`, or
    /// twice its upper bound, plus `stat_threads`.
    pub threads: Option<usize>,
    /// Threads that only open and list. By default a quarter of `depth`, or an eighth of `threads`.
    pub stat_threads: Option<usize>,
    /// The maximum number of jobs in flight per device. By default adapted to the device, up to 32, or half of the
    /// threads that read.
    pub depth: Option<usize>,
    /// Bound on the queued jobs per device.
    pub queue_max: usize,
    /// Bound on the bytes of all buffers, at least 1 MiB. Should be more than `depth` times the largest chunk, or
    /// a frozen device can hold all of it.
    pub buffer_bytes_max: usize,
    /// A device that has jobs in flight and completes none for this long is considered dead: until it answers,
    /// jobs of class `First` for it are refused. At least 10 ms.
    pub dead_after: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            engine: engine::AUTO.to_owned(),
            threads: None,
            stat_threads: None,
            depth: None,
            queue_max: 4096,
            buffer_bytes_max: 64 << 20,
            dead_after: Duration::from_secs(5),
        }
    }
}

impl Settings {
    /// Checks whether a disk could start with these values. Does not try the engine.
    ///
    /// # Errors
    /// [`StartError::Setting`], which names the values that do not fit together.
    pub fn check(&self) -> Result<(), StartError> {
        self.bounds().map(drop)
    }

    /// Applies the defaults, and refuses values that cannot work.
    pub(crate) fn bounds(&self) -> Result<(Bounds, Threads), StartError> {
        let (depth, threads) = self.sizes();
        let readers = threads.total.saturating_sub(threads.stat);
        let depth_max = depth.max();
        let fault = if threads.total > THREADS_MAX {
            format!("threads must be at most {THREADS_MAX}")
        } else if depth_max == 0 {
            "depth must be at least 1".to_owned()
        } else if readers <= depth_max {
            format!(
                "threads ({}) less stat_threads ({}) must be more than depth ({depth_max}), or one \
                 disk that freezes stops all the others",
                threads.total, threads.stat
            )
        } else if self.queue_max == 0 {
            "queue_max must be at least 1".to_owned()
        } else if self.buffer_bytes_max < BUFFER_BYTES_MIN {
            format!("buffer_bytes_max must be at least {BUFFER_BYTES_MIN}")
        } else if self.dead_after < DEAD_AFTER_MIN {
            format!("dead_after must be at least {DEAD_AFTER_MIN:?}")
        } else {
            let bounds = Bounds {
                depth,
                queue_max: self.queue_max,
                dead_after: self.dead_after,
            };
            return Ok((bounds, threads));
        };
        Err(StartError::Setting(fault))
    }

    fn sizes(&self) -> (DepthPolicy, Threads) {
        let depth = |max| match self.depth {
            Some(depth) => DepthPolicy::Fixed(depth),
            None => DepthPolicy::UpTo(max),
        };
        if let Some(total) = self.threads {
            let stat = self.stat_threads.unwrap_or(total / 8);
            let half = total.saturating_sub(stat) / 2;
            return (depth(half.clamp(1, DEPTH_MAX)), Threads { total, stat });
        }
        let depth = depth(DEPTH_MAX);
        let stat = self.stat_threads.unwrap_or(depth.max().div_ceil(4));
        let total = depth.max().saturating_mul(2).saturating_add(stat);
        (depth, Threads { total, stat })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_survive_a_frozen_device() {
        for threads in (2..200).map(Some).chain([None]) {
            for stat_threads in [None, Some(0)] {
                let settings = Settings {
                    threads,
                    stat_threads,
                    ..Settings::default()
                };
                let (Bounds { depth, .. }, threads) = settings.bounds().unwrap();
                assert!(threads.total - threads.stat > depth.max(), "{settings:?}");
                assert!((1..=DEPTH_MAX).contains(&depth.max()), "{settings:?}");
            }
        }
    }

    #[test]
    fn threads_follow_depth() {
        let settings = Settings {
            depth: Some(40),
            ..Settings::default()
        };
        let (_, threads) = settings.bounds().unwrap();
        assert_eq!((threads.total, threads.stat), (90, 10));
    }
}
