//! The store of preloaded content.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quick_cache::sync::Cache;

use crate::files::entry::Entry;

/// The interval between removals of expired content.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Preloaded content, shared by all event loops. Only they take its locks, for one lookup each.
pub struct PreloadStore {
    kept: Cache<Box<[u8]>, Arc<Stored>>,
    born: Instant,
    /// When the last entry expires, in seconds since `born`: after that the store is empty.
    empty_s: AtomicU64,
    /// The time of the last sweep, in seconds since `born`.
    swept_s: AtomicU64,
}

/// An entry with its expiry.
struct Stored {
    entry: Arc<Entry>,
    until: Instant,
}

impl PreloadStore {
    /// A store for this many entries, each of which holds an open file.
    pub fn new(files_max: usize) -> Self {
        Self {
            kept: Cache::new(files_max),
            born: Instant::now(),
            empty_s: AtomicU64::new(0),
            swept_s: AtomicU64::new(0),
        }
    }

    /// Whether nothing is valid at `now`. Takes no lock.
    pub fn is_empty(&self, now: Instant) -> bool {
        self.seconds(now) >= self.empty_s.load(Ordering::Relaxed)
    }

    /// The entry under `key`, if it has not expired at `now`.
    pub fn entry(&self, key: &[u8], now: Instant) -> Option<Arc<Entry>> {
        let stored = self.kept.get(key)?;
        (stored.until > now).then(|| stored.entry.clone())
    }

    /// Stores `entry` under `key` until `until`.
    pub fn keep(&self, key: Box<[u8]>, entry: Arc<Entry>, until: Instant) {
        // Rounds up: the conversion drops fractions of a second.
        let over_s = self.seconds(until) + 1;
        self.empty_s.fetch_max(over_s, Ordering::Relaxed);
        self.kept.insert(key, Arc::new(Stored { entry, until }));
    }

    fn seconds(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.born).as_secs()
    }

    /// Removes expired entries. Cheap unless the interval has passed, so it may be called often.
    pub fn sweep(&self, now: Instant) {
        let now_s = self.seconds(now);
        let last_s = self.swept_s.load(Ordering::Relaxed);
        let is_due = now_s >= last_s + SWEEP_INTERVAL.as_secs() && !self.kept.is_empty();
        let order = Ordering::Relaxed;
        let swap = |last_s| self.swept_s.compare_exchange(last_s, now_s, order, order);
        if is_due && swap(last_s).is_ok() {
            self.kept.retain(|_, stored| stored.until > now);
        }
    }
}
