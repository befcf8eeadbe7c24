//! Where preloaded content is kept until it is asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quick_cache::sync::Cache;

use crate::entry::Entry;

/// How often contents whose time is over are let go of.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Files of one worker that are on their way to be opened at once; one more is left where it is.
pub const OPENINGS_MAX: usize = 256;

/// Preloaded content, for all workers. Its locks are taken by loops only and held for a look-up.
pub struct PreloadStore {
    kept: Cache<Box<[u8]>, Arc<Made>>,
    born: Instant,
    /// When the last of the times is over, in seconds since `born`: from then on nobody need look.
    empty_s: AtomicU64,
    /// When the last sweep was, in seconds since `born`.
    swept_s: AtomicU64,
}

/// One content.
struct Made {
    entry: Arc<Entry>,
    until: Instant,
}

impl PreloadStore {
    /// For so many contents at once, each of which keeps a file open.
    pub fn new(files_max: usize) -> Self {
        Self {
            kept: Cache::new(files_max),
            born: Instant::now(),
            empty_s: AtomicU64::new(0),
            swept_s: AtomicU64::new(0),
        }
    }

    /// Whether there is nothing that may be sent at `now`. Takes no lock.
    pub fn is_empty(&self, now: Instant) -> bool {
        self.seconds(now) >= self.empty_s.load(Ordering::Relaxed)
    }

    /// What was kept under `key`, if its time is not over at `now`.
    pub fn entry(&self, key: &[u8], now: Instant) -> Option<Arc<Entry>> {
        let made = self.kept.get(key)?;
        (made.until > now).then(|| made.entry.clone())
    }

    /// Keeps `entry` under `key` for a while.
    pub fn keep(&self, key: Box<[u8]>, entry: Arc<Entry>, until: Instant) {
        // A second more: what is left of one does not count.
        let over_s = self.seconds(until) + 1;
        self.empty_s.fetch_max(over_s, Ordering::Relaxed);
        self.kept.insert(key, Arc::new(Made { entry, until }));
    }

    fn seconds(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.born).as_secs()
    }

    /// Lets go of what is too old. To be called often: it looks at the clock first.
    pub fn sweep(&self, now: Instant) {
        let now_s = self.seconds(now);
        let last_s = self.swept_s.load(Ordering::Relaxed);
        let is_due = now_s >= last_s + SWEEP_INTERVAL.as_secs() && !self.kept.is_empty();
        let order = Ordering::Relaxed;
        let swap = |last_s| self.swept_s.compare_exchange(last_s, now_s, order, order);
        if is_due && swap(last_s).is_ok() {
            self.kept.retain(|_, made| made.until > now);
        }
    }
}
