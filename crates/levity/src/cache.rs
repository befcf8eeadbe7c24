//! What is known of files: the worker's own cache in front of one that all workers share.
//!
//! An [`Entry`] is immutable. Freshness is a date beside it: within `disk.entry_ttl` it is served
//! as it is; after that the file is opened anew, and the entry goes on only if the file is still
//! the same version.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use levity_disk::{Meta, OpenFile};
use quick_cache::{Weighter, sync, unsync};

/// Bodies up to this size, in bytes, are kept in memory and leave in one write with their head.
pub const BODY_BYTES_MAX: u64 = 64 * 1024;

/// A worker's own cache, in bytes; bodies are shared with the common cache, so most of it is not
/// extra memory.
const WORKER_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// An entry that was not found true again for so long goes, and its file is closed.
const ENTRY_AGE_MAX: Duration = Duration::from_secs(30);

/// How often a cache is looked through for such entries: some 100 microseconds for 4096 of them.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(5);

/// What a file's name led to, and what every response about it needs.
#[derive(Debug)]
pub struct Entry {
    /// As `fstat` told it.
    pub meta: Meta,
    /// Quoted, with `W/` when weak.
    pub etag: String,
    /// The version can be told from every other by its ETag alone, so it may be reused.
    pub strong: bool,
    /// Header lines that depend on the file only, each with its CRLF.
    pub fields: Vec<u8>,
    /// Where the content is.
    pub content: Content,
}

/// Where a file's content is to be had.
#[derive(Debug)]
pub enum Content {
    /// All of it here: it is small and settled. The file stays open, so that the kernel does not
    /// forget its name: looking it up again would wait for the disk.
    Memory(Box<[u8]>, Arc<OpenFile>),
    /// In the file, which stays open while the entry lives.
    File(Arc<OpenFile>),
}

impl Entry {
    /// Whether a response needs nothing but this entry.
    pub fn suffices(&self, needs_body: bool) -> bool {
        !needs_body
            || matches!(self.content, Content::Memory(..))
            || self.meta.size > BODY_BYTES_MAX
    }
}

/// An entry in one worker's hands; cloning it touches no memory that other workers use.
#[derive(Debug)]
pub struct Hot {
    /// The facts.
    pub entry: Arc<Entry>,
    /// The page cache held what was last read of the file, so a probe is worth its price even while
    /// the disk is busy.
    pub warm: Cell<bool>,
    checked: Instant,
}

impl Hot {
    /// An entry as found at `checked`.
    pub fn new(entry: Arc<Entry>, checked: Instant) -> Rc<Self> {
        Rc::new(Self {
            entry,
            warm: Cell::new(false),
            checked,
        })
    }
}

/// A place's number followed by the decoded path.
pub type Key = Box<[u8]>;

#[derive(Clone)]
struct Weight {
    /// What an open descriptor weighs, so that the byte bound is a bound on descriptors too.
    descriptor_bytes: u64,
}

impl Weight {
    fn of(&self, key: &Key, entry: &Entry) -> u64 {
        let content = match &entry.content {
            Content::Memory(body, _) => self.descriptor_bytes.max(body.len() as u64),
            Content::File(_) => self.descriptor_bytes,
        };
        512 + key.len() as u64 + content
    }
}

impl Weighter<Key, (Arc<Entry>, Instant)> for Weight {
    fn weight(&self, key: &Key, (entry, _): &(Arc<Entry>, Instant)) -> u64 {
        self.of(key, entry)
    }
}

impl Weighter<Key, Rc<Hot>> for Weight {
    fn weight(&self, key: &Key, hot: &Rc<Hot>) -> u64 {
        self.of(key, &hot.entry)
    }
}

/// The cache that all workers share. Its shard locks are taken by loops only, and held for a look-up,
/// never across a system call or an await.
pub struct Shared {
    entries: sync::Cache<Key, (Arc<Entry>, Instant), Weight>,
    weight: Weight,
    /// Of each worker's own cache.
    own_bytes_max: u64,
    born: Instant,
    /// When entries were last let go, in seconds since `born`.
    expired_s: AtomicU64,
}

impl Shared {
    /// Holds at most `bytes_max` of content. This one and those of `workers` together keep about
    /// `descriptors_max` files open: a quarter of them only in a worker's own cache.
    pub fn new(bytes_max: usize, descriptors_max: usize, workers: usize) -> Self {
        let bytes_max = bytes_max as u64;
        let own_descriptors = (descriptors_max / 4 / workers).max(1) as u64;
        let shared_descriptors = (descriptors_max - descriptors_max / 4).max(1) as u64;
        let weight = Weight {
            descriptor_bytes: bytes_max / shared_descriptors,
        };
        let items = (bytes_max / 4096).max(64) as usize;
        Self {
            entries: sync::Cache::with_weighter(items, bytes_max, weight.clone()),
            own_bytes_max: WORKER_BYTES_MAX.min(own_descriptors * weight.descriptor_bytes),
            weight,
            born: Instant::now(),
            expired_s: AtomicU64::new(0),
        }
    }

    /// Whether it is time to let go of old entries, and nobody else does it.
    fn is_due(&self, now: Instant) -> bool {
        let now_s = now.saturating_duration_since(self.born).as_secs();
        let last_s = self.expired_s.load(Ordering::Relaxed);
        now_s >= last_s + EXPIRY_INTERVAL.as_secs()
            && self
                .expired_s
                .compare_exchange(last_s, now_s, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

/// One worker's view: its own cache, then the shared one.
pub struct Cache {
    own: RefCell<unsync::Cache<Key, Rc<Hot>, Weight>>,
    expired: Cell<Instant>,
    shared: Arc<Shared>,
}

impl Cache {
    /// An empty view.
    pub fn new(shared: Arc<Shared>) -> Self {
        let own = unsync::Cache::with_weighter(1024, shared.own_bytes_max, shared.weight.clone());
        Self {
            own: RefCell::new(own),
            expired: Cell::new(Instant::now()),
            shared,
        }
    }

    /// Lets go of what nobody has asked for lately, or deleted files would keep their blocks and busy
    /// mounts could not be taken away. To be called often: it looks at the clock first.
    /// Entries that are still within `ttl` stay.
    pub fn expire(&self, now: Instant, ttl: Duration) {
        let age_max = ENTRY_AGE_MAX.max(ttl);
        let is_young = |checked: Instant| now.saturating_duration_since(checked) < age_max;
        if now.saturating_duration_since(self.expired.get()) >= EXPIRY_INTERVAL {
            self.expired.set(now);
            let mut own = self.own.borrow_mut();
            own.retain(|_, hot| is_young(hot.checked));
        }
        if self.shared.is_due(now) {
            let entries = &self.shared.entries;
            entries.retain(|_, (_, checked)| is_young(*checked));
        }
    }

    /// Forgets everything: what was known of places that a reload has replaced is of no use.
    pub fn clear(&self) {
        self.own.borrow_mut().clear();
        self.shared.entries.clear();
    }

    /// An entry that was checked less than `ttl` before `now`.
    pub fn fresh(
        &self,
        key: &[u8],
        needs_body: bool,
        now: Instant,
        ttl: Duration,
    ) -> Option<Rc<Hot>> {
        let usable = |checked: Instant, entry: &Entry| {
            now.saturating_duration_since(checked) < ttl && entry.suffices(needs_body)
        };
        if let Some(hot) = self.own.borrow().get(key)
            && usable(hot.checked, &hot.entry)
        {
            return Some(hot.clone());
        }
        let (entry, checked) = self.shared.entries.get(key)?;
        usable(checked, &entry).then(|| self.keep_own(key, entry, checked))
    }

    /// An entry of any age: good only if the file proves to be the same version.
    pub fn stale(&self, key: &[u8]) -> Option<Arc<Entry>> {
        self.shared.entries.get(key).map(|(entry, _)| entry)
    }

    /// Keeps `entry`, found true at `checked`, for all workers.
    pub fn keep(&self, key: &[u8], entry: Arc<Entry>, checked: Instant) -> Rc<Hot> {
        self.shared
            .entries
            .insert(key.into(), (entry.clone(), checked));
        self.keep_own(key, entry, checked)
    }

    /// Forgets what is known under `key`.
    pub fn forget(&self, key: &[u8]) {
        self.own.borrow_mut().remove(key);
        self.shared.entries.remove(key);
    }

    fn keep_own(&self, key: &[u8], entry: Arc<Entry>, checked: Instant) -> Rc<Hot> {
        let hot = Hot::new(entry, checked);
        self.own.borrow_mut().insert(key.into(), hot.clone());
        hot
    }
}

#[cfg(test)]
mod tests {
    use levity_disk::Kind;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn entry() -> Arc<Entry> {
        let file = levity_disk::Root::open("/".as_ref(), levity_disk::Symlinks::Beneath)
            .and_then(|root| root.open_cached(c"."))
            .expect("the root of the file system is in memory");
        let mut meta = file.meta();
        meta.kind = Kind::Regular;
        Arc::new(Entry {
            meta,
            etag: String::new(),
            strong: true,
            fields: Vec::new(),
            content: Content::File(file),
        })
    }

    fn cache() -> Cache {
        Cache::new(Arc::new(Shared::new(1 << 20, 64, 1)))
    }

    #[test]
    fn an_entry_is_fresh_for_its_time_to_live() {
        let (cache, now) = (cache(), Instant::now());
        cache.keep(b"key", entry(), now);
        let last = now + SECOND - Duration::from_nanos(1);
        assert!(cache.fresh(b"key", false, last, SECOND).is_some());
        assert!(cache.fresh(b"key", false, now + SECOND, SECOND).is_none());
        assert!(cache.stale(b"key").is_some());
    }

    #[test]
    fn what_nobody_asks_for_is_let_go() {
        let (cache, now) = (cache(), Instant::now());
        cache.keep(b"key", entry(), now);
        cache.expire(now + ENTRY_AGE_MAX - SECOND, SECOND);
        assert!(cache.stale(b"key").is_some());
        cache.expire(now + 2 * ENTRY_AGE_MAX, 3 * ENTRY_AGE_MAX);
        assert!(
            cache.stale(b"key").is_some(),
            "it is within its time to live"
        );
        cache.expire(now + 3 * ENTRY_AGE_MAX, SECOND);
        assert!(cache.stale(b"key").is_none());
        assert!(cache.own.borrow().is_empty());
    }

    #[test]
    fn the_files_kept_open_are_bounded() {
        let (cache, now, entry) = (cache(), Instant::now(), entry());
        for number in 0..1000_u32 {
            cache.keep(&number.to_le_bytes(), entry.clone(), now);
        }
        assert!(cache.own.borrow().len() + cache.shared.entries.len() <= 64);
    }
}
