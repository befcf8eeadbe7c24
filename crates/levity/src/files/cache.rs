//! The file cache: one per worker, in front of one that all workers share.
//!
//! A path's [`EntryVariants`] holds the file and its precompressed variants. It is immutable, and so is each
//! [`Entry`] in it; the time of its last check is stored beside it. Within `disk.entry_ttl` of the check it
//! is served as it is. After that the files are opened again, and an entry is reused only if its file is
//! still the same version. Until something arrives on the worker, its own check is as recent as one for another request
//! would be: it serves all requests that the worker has read before.
//!
//! With a watch (`disk.watch`) an entry is valid until something changes in its directory.
//!
//! Missing names are cached separately, in little memory, so that requests for names that do not exist cannot
//! evict existing files.

use std::cell::{Cell, OnceCell, RefCell};
use std::iter;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use levity_disk::{OpenFile, Watch};
use levity_net::arrivals;
use levity_wire::encoding::Coding;
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter, sync, unsync};

use crate::files::entry::{Bytes, Content, Entry};
use crate::files::inline_opens::InlineOpens;
use crate::files::proof::Led;
use crate::message::fields::Fields;

/// The size of a worker's own cache in bytes. Bodies are shared with the common cache, so most of it is no
/// extra memory.
const WORKER_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// The size of the negative cache in bytes: about 10,000 names of usual length.
const MISSING_BYTES_MAX: u64 = 1024 * 1024;

/// The overhead of a missing name in bytes.
const MISSING_BYTES: u64 = 64;

/// One in this many cached descriptors may be a directory without an index.
const DIRECTORIES_DIVISOR: usize = 32;

/// Entries that were not confirmed for this long are dropped, and their files closed.
const ENTRY_AGE_MAX: Duration = Duration::from_secs(30);

/// The maximum time between checks of a watched entry, for changes that a watch does not see: stores to
/// mapped memory, or a hard link made later. Less than [`ENTRY_AGE_MAX`], so that entries in use are not
/// dropped.
const WATCHED_AGE_MAX: Duration = Duration::from_secs(20);

/// The interval between scans for expired entries; a scan of 4096 takes about 100 microseconds.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(5);

/// The minimum time between two announcements to other workers that the same files are still up to date. Without a time to
/// live there may be thousands of checks in a second, and none of them serves another worker.
const SHARED_INTERVAL: Duration = Duration::from_millis(10);

/// The maximum size in bytes of a body that is read into the cache after [`BODY_HITS_MIN`] requests.
const POPULAR_BYTES_MAX: u64 = 1 << 20;

/// One such body may take this part of a worker's own cache.
const BODY_DIVISOR: u64 = 8;

/// A file is popular if one worker is asked for it so often between two checks, that is, within `disk.entry_ttl`.
const BODY_HITS_MIN: u8 = 4;

/// The maximum number of bytes that one worker reads into the cache in [`EXPIRY_INTERVAL`]. If more files are popular
/// than the cache can hold, each would be read again after its eviction.
const BODIES_READ_MAX: u64 = 64 << 20;

/// A file and its usable variants, as of one check.
#[derive(Debug)]
pub struct EntryVariants {
    /// The file itself.
    pub file: Arc<Entry>,
    /// The variants, each with its coding.
    pub variants: Vec<Arc<Entry>>,
    /// The watch on all of them, if any.
    pub watched: Option<Watched>,
    /// How the key has led here.
    pub led: Led,
}

/// A watch, with its state before the files were opened.
#[derive(Debug, Clone)]
pub struct Watched {
    /// The watch on their directory.
    pub watch: Arc<Watch>,
    /// Its generation then; `None` when it was not in place yet.
    pub generation: Option<u64>,
}

impl EntryVariants {
    /// The entry whose content has `coding`.
    pub fn entry(&self, coding: Option<Coding>) -> Option<&Arc<Entry>> {
        self.entries().find(|entry| entry.coding == coding)
    }

    /// Whether it is still valid `age` after its check.
    fn is_fresh(&self, age: Duration, ttl: Duration) -> bool {
        let Some(Watched { watch, generation }) = &self.watched else {
            return age < ttl;
        };
        match (generation, watch.generation()) {
            (None, None) => age < ttl,
            // The watch is in place now: another check puts the files under it.
            (None, Some(_)) => false,
            (then, now) => *then == now && age < ttl.max(WATCHED_AGE_MAX),
        }
    }

    /// Whether a check that has found `other` has found nothing new.
    fn is_same(&self, other: &Self) -> bool {
        let is_watched_same = match (&self.watched, &other.watched) {
            (None, None) => true,
            (Some(one), Some(other)) => {
                Arc::ptr_eq(&one.watch, &other.watch) && one.generation == other.generation
            }
            _ => false,
        };
        // In the order that the client prefers.
        let has = |one: &Arc<Entry>| other.variants.iter().any(|other| Arc::ptr_eq(one, other));
        is_watched_same
            && self.led == other.led
            && Arc::ptr_eq(&self.file, &other.file)
            && self.variants.len() == other.variants.len()
            && self.variants.iter().all(has)
    }

    fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        iter::once(&self.file).chain(&self.variants)
    }

    /// The first available of `choices`, otherwise the file itself.
    fn chosen(&self, choices: &[Coding]) -> &Arc<Entry> {
        let mut variants = choices
            .iter()
            .filter_map(|&coding| self.entry(Some(coding)));
        variants.next().unwrap_or(&self.file)
    }
}

/// How old what is cached may be.
#[derive(Debug, Clone, Copy)]
pub struct Recency {
    /// The time of the request.
    pub now: Instant,
    /// `disk.entry_ttl`.
    pub ttl: Duration,
    /// The last change that is known. What was checked until then is outdated.
    pub changed: Option<Instant>,
}

impl Recency {
    /// Whether what was found at `checked` is not outdated by a change.
    pub fn is_after_change(&self, checked: Instant) -> bool {
        self.changed.is_none_or(|changed| checked > changed)
    }

    fn age(&self, checked: Instant) -> Duration {
        self.now.saturating_duration_since(checked)
    }
}

/// When files were checked.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// The time of the request.
    pub at: Instant,
    /// The worker's [`arrivals`] before; `None` if another worker made the check.
    pub arrivals: Option<u64>,
}

impl Check {
    /// A check that begins now on this worker, for a request at `at`.
    pub fn begin(at: Instant) -> Self {
        let arrivals = Some(arrivals());
        Self { at, arrivals }
    }

    /// Whether nothing has arrived since. Then the files were checked after all requests on this worker were sent:
    /// who changed a file before sending one sees the change.
    fn is_last(&self) -> bool {
        self.arrivals == Some(arrivals())
    }
}

/// The representation that a request needs.
#[derive(Debug, Clone, Copy)]
pub struct Selection<'a> {
    /// The codings that are preferred to the file itself, best first.
    pub choices: &'a [Coding],
    /// Whether the response has a body.
    pub body: bool,
}

/// Why there is no file of a name.
#[derive(Debug, Clone)]
pub enum Missing {
    /// Nothing has that name.
    Name,
    /// It is this directory, which has no index.
    Index(Arc<OpenFile>),
}

/// The variants of a file in one worker's cache.
#[derive(Debug)]
pub struct CacheSlot {
    variants: Arc<EntryVariants>,
    check: Cell<Check>,
    /// The check that other workers know.
    shared: Cell<Instant>,
    /// In the order of [`EntryVariants::entries`].
    refs: Vec<Rc<EntryRef>>,
}

impl CacheSlot {
    /// The slot for `variants`, of this check.
    pub fn new(variants: Arc<EntryVariants>, check: Check) -> Rc<Self> {
        let led = variants.led;
        let refs = variants
            .entries()
            .map(|entry| EntryRef::new(entry.clone(), led));
        Rc::new(Self {
            refs: refs.collect(),
            shared: Cell::new(check.at),
            check: Cell::new(check),
            variants,
        })
    }

    /// The files are still the same at `check`.
    fn confirm(&self, check: Check) {
        self.check.set(check);
        for cached in &self.refs {
            // They count between two checks.
            cached.body_hits.set(0);
        }
    }

    /// Whether other workers should hear of the last check.
    fn claim_sharing(&self) -> bool {
        let at = self.check.get().at;
        let is_due = at.saturating_duration_since(self.shared.get()) >= SHARED_INTERVAL;
        if is_due {
            self.shared.set(at);
        }
        is_due
    }

    /// The first available of `choices`, otherwise the file itself.
    pub fn chosen(&self, choices: &[Coding]) -> Rc<EntryRef> {
        let chosen = self.variants.chosen(choices);
        let mut refs = self.refs.iter();
        let cached = refs.find(|cached| Arc::ptr_eq(&cached.entry, chosen));
        cached.expect("each entry has its own").clone()
    }
}

/// One worker's reference to an entry. Cloning it touches no memory that other workers use.
#[derive(Debug)]
pub struct EntryRef {
    /// The entry.
    pub entry: Arc<Entry>,
    /// How the path has led to it.
    pub led: Led,
    /// The page cache held the bytes that were last read of the file. So it is probed even while the disk is
    /// busy.
    pub warm: Cell<bool>,
    /// Requests for the body, below [`BODY_HITS_MIN`].
    body_hits: Cell<u8>,
    /// The ETag of the content, with header lines that have it in place of that of the entry.
    content_etag: OnceCell<(String, Fields)>,
    /// The header lines as HTTP/2 writes them, from the first such response on.
    encoded_fields: RefCell<Option<Rc<[u8]>>>,
    /// The number of the filters that change nothing in these header lines.
    passed_by: Cell<Option<u64>>,
}

impl EntryRef {
    fn new(entry: Arc<Entry>, led: Led) -> Rc<Self> {
        Rc::new(Self {
            entry,
            led,
            warm: Cell::new(false),
            body_hits: Cell::new(0),
            content_etag: OnceCell::new(),
            encoded_fields: RefCell::default(),
            passed_by: Cell::new(None),
        })
    }

    /// The ETag of responses: that of the content if it is known, otherwise that of the entry.
    pub fn etag(&self) -> &str {
        let known = self.content_etag.get();
        known.map_or(&self.entry.etag, |(etag, _)| etag)
    }

    /// The header lines of the entry, with [`etag`](EntryRef::etag).
    pub fn fields(&self) -> &Fields {
        let known = self.content_etag.get();
        known.map_or(&self.entry.fields, |(_, fields)| fields)
    }

    /// The header lines as `encode` writes them for HTTP/2. It is called once: most files are requested often.
    pub fn encoded_fields(&self, encode: impl FnOnce(&Fields) -> Vec<u8>) -> Rc<[u8]> {
        let mut encoded = self.encoded_fields.borrow_mut();
        let encoded = encoded.get_or_insert_with(|| encode(self.fields()).into());
        encoded.clone()
    }

    /// Whether the ETag of the content is known.
    pub fn has_content_etag(&self) -> bool {
        self.content_etag.get().is_some()
    }

    /// Makes `etag` the ETag of responses.
    pub fn set_content_etag(&self, etag: String) {
        let mut fields = self.entry.fields.clone();
        fields.set("ETag", etag.as_bytes());
        // The first one is kept: another task found the same.
        let _ = self.content_etag.set((etag, fields));
        self.encoded_fields.take();
        self.passed_by.take();
    }

    /// Whether the filters of this number are known to change nothing in its header lines.
    pub fn is_passed_by(&self, filters: u64) -> bool {
        self.passed_by.get() == Some(filters)
    }

    /// Remembers that they change nothing.
    pub fn set_passed_by(&self, filters: u64) {
        self.passed_by.set(Some(filters));
    }
}

/// The key of a location, which identifies its root too, followed by the decoded path.
pub type Key = Box<[u8]>;

#[derive(Clone)]
struct Weight {
    /// The weight of an open descriptor, by which the size limit also limits descriptors.
    descriptor_bytes: u64,
}

impl Weight {
    fn of(&self, key: &Key, variants: &EntryVariants) -> u64 {
        let content = |entry: &Arc<Entry>| match &entry.content {
            Content::Memory(body, _) => self.descriptor_bytes.max(body.len() as u64),
            Content::File(_) => self.descriptor_bytes,
        };
        512 + key.len() as u64 + variants.entries().map(content).sum::<u64>()
    }
}

impl Weighter<Key, (Arc<EntryVariants>, Instant)> for Weight {
    fn weight(&self, key: &Key, (variants, _): &(Arc<EntryVariants>, Instant)) -> u64 {
        self.of(key, variants)
    }
}

impl Weighter<Key, Rc<CacheSlot>> for Weight {
    fn weight(&self, key: &Key, slot: &Rc<CacheSlot>) -> u64 {
        self.of(key, &slot.variants)
    }
}

#[derive(Clone)]
struct MissingWeight;

impl Weighter<Key, Instant> for MissingWeight {
    fn weight(&self, key: &Key, _: &Instant) -> u64 {
        MISSING_BYTES + key.len() as u64
    }
}

/// Keeps what one request evicts until the lock on the shard is free: to free the pages of a body is a system call.
#[derive(Clone)]
struct DropUnlocked;

impl<V> Lifecycle<Key, V> for DropUnlocked {
    type RequestState = Vec<(Key, V)>;

    fn on_evict(&self, evicted: &mut Vec<(Key, V)>, key: Key, value: V) {
        evicted.push((key, value));
    }
}

/// The cache that all workers share. Only event loops take its shard locks, for one lookup or to remove what has
/// expired, and never hold them across a system call or an await.
pub struct SharedCache {
    entries_by_key:
        sync::Cache<Key, (Arc<EntryVariants>, Instant), Weight, DefaultHashBuilder, DropUnlocked>,
    missing_names: sync::Cache<Key, Instant, MissingWeight>,
    /// Directories without an index.
    missing_indexes: sync::Cache<Key, (Arc<OpenFile>, Instant)>,
    weight: Weight,
    /// The size of each worker's own cache.
    own_bytes_max: u64,
    start: Instant,
    /// When expired entries were last removed, in seconds since `start`.
    last_expiry_s: AtomicU64,
}

impl SharedCache {
    /// Holds at most `bytes_max` of content. Together with the caches of `workers` it keeps about
    /// `descriptors_max` files open; up to a quarter of them are in workers' own caches only.
    pub fn new(bytes_max: usize, descriptors_max: usize, workers: usize) -> Self {
        let bytes_max = bytes_max as u64;
        let directories_max = (descriptors_max / DIRECTORIES_DIVISOR).max(1);
        let descriptors_max = descriptors_max.saturating_sub(directories_max).max(1);
        let own_descriptors = (descriptors_max / 4 / workers).max(1) as u64;
        let shared_descriptors = (descriptors_max - descriptors_max / 4).max(1) as u64;
        let weight = Weight {
            descriptor_bytes: bytes_max / shared_descriptors,
        };
        let items = (bytes_max / 4096).max(64) as usize;
        Self {
            entries_by_key: sync::Cache::with(
                items,
                bytes_max,
                weight.clone(),
                DefaultHashBuilder::default(),
                DropUnlocked,
            ),
            missing_names: sync::Cache::with_weighter(1024, MISSING_BYTES_MAX, MissingWeight),
            missing_indexes: sync::Cache::new(directories_max),
            own_bytes_max: WORKER_BYTES_MAX.min(own_descriptors * weight.descriptor_bytes),
            weight,
            start: Instant::now(),
            last_expiry_s: AtomicU64::new(0),
        }
    }

    /// Removes the entries whose check `is_kept` rejects. A thread of its own frees them: to free the pages of many
    /// bodies takes milliseconds.
    fn retain(&self, is_kept: impl Fn(Instant) -> bool) {
        let removed = RefCell::new(Vec::new());
        self.entries_by_key.retain(|_, (variants, checked)| {
            let is_kept = is_kept(*checked);
            if !is_kept {
                removed.borrow_mut().push(variants.clone());
            }
            is_kept
        });
        let removed = removed.into_inner();
        if !removed.is_empty() {
            // Without a thread they are freed here.
            let free = thread::Builder::new().name("cache-free".to_owned());
            let _ = free.spawn(move || drop(removed));
        }
    }

    /// Claims the removal of expired entries. True for one caller per interval.
    fn claim_expiry(&self, now: Instant) -> bool {
        let now_s = now.saturating_duration_since(self.start).as_secs();
        let last_s = self.last_expiry_s.load(Ordering::Relaxed);
        now_s >= last_s + EXPIRY_INTERVAL.as_secs()
            && self
                .last_expiry_s
                .compare_exchange(last_s, now_s, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

/// One worker's view: its own cache, then the shared one.
pub struct Cache {
    own: RefCell<unsync::Cache<Key, Rc<CacheSlot>, Weight>>,
    last_expiry: Cell<Instant>,
    /// Bytes that may be read into the cache until the next expiry.
    readable_bytes: Cell<u64>,
    /// How opens of what is not cached have ended.
    pub inline_opens: InlineOpens,
    shared: Arc<SharedCache>,
}

impl Cache {
    /// An empty view.
    pub fn new(shared: Arc<SharedCache>) -> Self {
        let own = unsync::Cache::with_weighter(1024, shared.own_bytes_max, shared.weight.clone());
        Self {
            own: RefCell::new(own),
            last_expiry: Cell::new(Instant::now()),
            readable_bytes: Cell::new(BODIES_READ_MAX),
            inline_opens: InlineOpens::default(),
            shared,
        }
    }

    /// Drops entries that were not used lately: they would keep the blocks of deleted files and prevent
    /// unmounting. Entries within `ttl` stay. Cheap unless the interval has passed, so it may be called
    /// often.
    pub fn expire(&self, now: Instant, ttl: Duration) {
        let age_max = ENTRY_AGE_MAX.max(ttl);
        let is_young = |checked: Instant| now.saturating_duration_since(checked) < age_max;
        if now.saturating_duration_since(self.last_expiry.get()) >= EXPIRY_INTERVAL {
            self.last_expiry.set(now);
            self.readable_bytes.set(BODIES_READ_MAX);
            let mut own = self.own.borrow_mut();
            own.retain(|_, slot| is_young(slot.check.get().at));
        }
        if self.shared.claim_expiry(now) {
            let shared = &self.shared;
            shared.retain(is_young);
            shared.missing_names.retain(|_, checked| is_young(*checked));
            shared
                .missing_indexes
                .retain(|_, (_, checked)| is_young(*checked));
        }
    }

    /// Drops everything: after a reload, the keys belong to locations that are gone.
    pub fn clear(&self) {
        self.own.borrow_mut().clear();
        self.shared.retain(|_| false);
        self.shared.missing_names.clear();
        self.shared.missing_indexes.clear();
    }

    /// The entry to send for `selection`, if the check of the files is recent.
    pub fn fresh(
        &self,
        key: &[u8],
        selection: Selection<'_>,
        recency: Recency,
    ) -> Option<Rc<EntryRef>> {
        let usable = |check: Check, variants: &EntryVariants| {
            (variants.is_fresh(recency.age(check.at), recency.ttl) || check.is_last())
                && recency.is_after_change(check.at)
                && variants.chosen(selection.choices).suffices(selection.body)
        };
        if let Some(slot) = self.own.borrow().get(key) {
            if usable(slot.check.get(), &slot.variants) {
                return Some(slot.chosen(selection.choices));
            }
            if recency.ttl.is_zero() && slot.variants.watched.is_none() {
                // No check of another worker serves this one.
                return None;
            }
        }
        let (variants, at) = self.shared.entries_by_key.get(key)?;
        let check = Check { at, arrivals: None };
        let slot = usable(check, &variants).then(|| self.keep_own(key, variants, check))?;
        Some(slot.chosen(selection.choices))
    }

    /// Why there is no file, if that was found recently.
    pub fn missing(&self, key: &[u8], recency: Recency) -> Option<Missing> {
        if recency.ttl.is_zero() {
            return None;
        }
        let is_fresh = |checked: Instant| {
            recency.age(checked) < recency.ttl && recency.is_after_change(checked)
        };
        if self.shared.missing_names.get(key).is_some_and(is_fresh) {
            return Some(Missing::Name);
        }
        let (directory, checked) = self.shared.missing_indexes.get(key)?;
        is_fresh(checked).then_some(Missing::Index(directory))
    }

    /// Caches that a file is missing, as of `checked`.
    pub fn keep_missing(&self, key: &[u8], missing: Missing, checked: Instant) {
        let shared = &self.shared;
        match missing {
            Missing::Name => shared.missing_names.insert(key.into(), checked),
            Missing::Index(directory) => {
                shared
                    .missing_indexes
                    .insert(key.into(), (directory, checked));
            }
        }
    }

    /// Variants of any age: those that this worker has used last, then those of all workers. An entry of them is valid only
    /// if its file is still the same version.
    pub fn stale(&self, key: &[u8]) -> impl Iterator<Item = Arc<EntryVariants>> {
        let own = self.own.borrow().get(key).map(|slot| slot.variants.clone());
        let shared = || {
            let shared = self.shared.entries_by_key.get(key);
            shared.map(|(variants, _)| variants)
        };
        own.into_iter().chain(iter::once_with(shared).flatten())
    }

    /// Caches `variants`, of this check, for all workers. If they are cached already, what is known of them stays: header
    /// lines that are encoded, the ETag of the content.
    pub fn keep(&self, key: &[u8], variants: Arc<EntryVariants>, check: Check) -> Rc<CacheSlot> {
        let same = self.own.borrow().get(key).cloned();
        let same = same.filter(|slot| slot.variants.is_same(&variants));
        let Some(slot) = same else {
            self.share(key, variants.clone(), check);
            return self.keep_own(key, variants, check);
        };
        slot.confirm(check);
        if slot.claim_sharing() {
            self.share(key, slot.variants.clone(), check);
        }
        slot
    }

    fn share(&self, key: &[u8], variants: Arc<EntryVariants>, check: Check) {
        let entries_by_key = &self.shared.entries_by_key;
        entries_by_key.insert(key.into(), (variants, check.at));
    }

    /// A reference to an entry that is not cached.
    pub fn uncached(entry: Arc<Entry>) -> Rc<EntryRef> {
        EntryRef::new(entry, Led::NOWHERE)
    }

    /// Counts a request for the body of `cached`, which is not in memory. Returns its size if it should be read into the
    /// cache now, because it is popular and of one version, and the page cache has it.
    pub fn claim_body(&self, cached: &EntryRef) -> Option<usize> {
        let size = cached.entry.meta.size;
        let size_max = POPULAR_BYTES_MAX.min(self.shared.own_bytes_max / BODY_DIVISOR);
        if !cached.entry.strong || !cached.warm.get() || size > size_max {
            return None;
        }
        let hits = cached.body_hits.get() + 1;
        if hits < BODY_HITS_MIN {
            cached.body_hits.set(hits);
            return None;
        }
        self.readable_bytes
            .set(self.readable_bytes.get().checked_sub(size)?);
        // If it cannot be read now, the next attempt is some requests later.
        cached.body_hits.set(0);
        usize::try_from(size).ok()
    }

    /// Caches the body of `cached`, which is under `key`, for all workers. Returns the new entry; `None` if the old one
    /// is not there any more.
    pub fn keep_body(&self, key: &[u8], cached: &EntryRef, bytes: Bytes) -> Option<Rc<EntryRef>> {
        let slot = self.own.borrow().get(key)?.clone();
        let with_body = Arc::new(cached.entry.with_body(bytes));
        let replaced = |entry: &Arc<Entry>| match Arc::ptr_eq(entry, &cached.entry) {
            true => with_body.clone(),
            false => entry.clone(),
        };
        let variants = EntryVariants {
            file: replaced(&slot.variants.file),
            variants: slot.variants.variants.iter().map(replaced).collect(),
            watched: slot.variants.watched.clone(),
            led: slot.variants.led,
        };
        let slot = self.keep(key, Arc::new(variants), slot.check.get());
        let mut refs = slot.refs.iter();
        refs.find(|new| Arc::ptr_eq(&new.entry, &with_body))
            .cloned()
    }

    /// Drops the files under `key`.
    pub fn forget(&self, key: &[u8]) {
        self.own.borrow_mut().remove(key);
        self.shared.entries_by_key.remove(key);
    }

    fn keep_own(&self, key: &[u8], variants: Arc<EntryVariants>, check: Check) -> Rc<CacheSlot> {
        let slot = CacheSlot::new(variants, check);
        self.own.borrow_mut().insert(key.into(), slot.clone());
        slot
    }
}

#[cfg(test)]
mod tests {
    use levity_disk::Kind;

    use super::*;
    use crate::files::proof::Led;
    use crate::message::fields::Fields;

    const SECOND: Duration = Duration::from_secs(1);

    const PLAIN: Selection<'static> = Selection {
        choices: &[],
        body: false,
    };

    fn directory() -> Arc<OpenFile> {
        levity_disk::Root::open("/".as_ref(), levity_disk::Symlinks::Beneath)
            .and_then(|root| root.open_cached(c"."))
            .expect("the root of the file system is in memory")
    }

    fn entry(coding: Option<Coding>) -> Arc<Entry> {
        let file = directory();
        let mut meta = file.meta();
        meta.kind = Kind::Regular;
        Arc::new(Entry {
            meta,
            etag: String::new(),
            strong: true,
            modified: None,
            fields: Fields::default(),
            coding,
            varies: coding.is_some(),
            content: Content::File(file),
        })
    }

    #[test]
    fn header_lines_are_encoded_again_when_their_etag_changes() {
        let cached = EntryRef::new(entry(None), Led::NOWHERE);
        let encoded = || cached.encoded_fields(|fields| fields.as_bytes().to_vec());
        assert_eq!(*encoded(), *b"");
        assert!(Rc::ptr_eq(&encoded(), &encoded()));
        cached.set_content_etag("\"1\"".into());
        assert_eq!(*encoded(), *b"ETag: \"1\"\r\n");
    }

    fn variants(codings: &[Coding]) -> Arc<EntryVariants> {
        Arc::new(EntryVariants {
            file: entry(None),
            variants: codings.iter().map(|&coding| entry(Some(coding))).collect(),
            watched: None,
            led: Led::NOWHERE,
        })
    }

    fn within(now: Instant, ttl: Duration) -> Recency {
        let changed = None;
        Recency { now, ttl, changed }
    }

    /// A check before the last arrival.
    fn earlier(at: Instant) -> Check {
        Check { at, arrivals: None }
    }

    fn wait_until(event: &str, mut has_happened: impl FnMut() -> bool) {
        let start = Instant::now();
        while !has_happened() {
            assert!(start.elapsed() < 30 * SECOND, "timed out: {event}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn under_a_watch_an_entry_is_fresh_until_something_changes() {
        let tree = tempfile::tempdir().expect("a folder");
        let root = levity_disk::Root::open(tree.path(), levity_disk::Symlinks::Beneath);
        let root = root.expect("it was just made");
        let watcher = levity_disk::Watcher::start(|line| panic!("{line}")).expect("inotify");
        let watch = watcher.watch(&root, b"");
        let under = |generation| EntryVariants {
            file: entry(None),
            variants: Vec::new(),
            watched: Some(Watched {
                watch: watch.clone(),
                generation,
            }),
            led: Led::NOWHERE,
        };
        let (early, long) = (under(None), WATCHED_AGE_MAX - Duration::from_nanos(1));
        wait_until("the watch is in place", || watch.generation().is_some());
        assert!(
            !early.is_fresh(Duration::ZERO, SECOND),
            "it was checked before the watch was in place"
        );
        let variants = under(watch.generation());
        assert!(variants.is_fresh(long, Duration::ZERO));
        assert!(!variants.is_fresh(WATCHED_AGE_MAX, SECOND));
        std::fs::write(tree.path().join("new"), "x").expect("write");
        wait_until("the change is detected", || {
            !variants.is_fresh(Duration::ZERO, SECOND)
        });
        let variants = under(watch.generation());
        drop(tree);
        wait_until("the removal is detected", || {
            !variants.is_fresh(Duration::ZERO, SECOND)
        });
        let refused = EntryVariants {
            watched: Some(Watched {
                watch: Arc::default(),
                generation: None,
            }),
            ..under(None)
        };
        let last = SECOND - Duration::from_nanos(1);
        assert!(refused.is_fresh(last, SECOND) && !refused.is_fresh(SECOND, SECOND));
    }

    fn cache() -> Cache {
        Cache::new(Arc::new(SharedCache::new(1 << 20, 64, 1)))
    }

    #[test]
    fn an_entry_is_fresh_for_its_time_to_live() {
        let (cache, now) = (cache(), Instant::now());
        cache.keep(b"key", variants(&[]), earlier(now));
        let last = now + SECOND - Duration::from_nanos(1);
        assert!(cache.fresh(b"key", PLAIN, within(last, SECOND)).is_some());
        assert!(
            cache
                .fresh(b"key", PLAIN, within(now + SECOND, SECOND))
                .is_none()
        );
        assert!(cache.stale(b"key").next().is_some());
    }

    #[test]
    fn without_a_time_to_live_a_check_serves_what_has_arrived_before() {
        let (cache, now) = (cache(), Instant::now());
        let other = Cache::new(cache.shared.clone());
        let is_fresh = |cache: &Cache| {
            let none = within(now, Duration::ZERO);
            cache.fresh(b"key", PLAIN, none).is_some()
        };
        cache.keep(b"key", variants(&[]), Check::begin(now));
        assert!(is_fresh(&cache) && !is_fresh(&other));
        levity_net::arrived();
        assert!(!is_fresh(&cache));
        // What arrives during a check may have been sent after the file was looked at.
        let check = Check::begin(now);
        levity_net::arrived();
        cache.keep(b"key", variants(&[]), check);
        assert!(!is_fresh(&cache));
    }

    #[test]
    fn what_is_known_of_files_outlives_a_check_that_finds_nothing_new() {
        use Coding::{Brotli, Gzip};
        let (cache, now) = (cache(), Instant::now());
        let first = variants(&[Gzip, Brotli]);
        let known = cache.keep(b"key", first.clone(), earlier(now)).chosen(&[]);
        let [gzip, brotli] = [0, 1].map(|at| first.variants[at].clone());
        let found = |variants: &[&Arc<Entry>], watched| EntryVariants {
            file: first.file.clone(),
            variants: variants.iter().map(|&entry| entry.clone()).collect(),
            watched,
            led: Led::NOWHERE,
        };
        let watched = Watched {
            watch: Arc::default(),
            generation: None,
        };
        for (found, is_same) in [
            (found(&[&gzip, &brotli], None), true),
            (found(&[&brotli, &gzip], None), true),
            (found(&[&gzip, &entry(Some(Brotli))], None), false),
            (found(&[&gzip], None), false),
            (found(&[&gzip], Some(watched)), false),
        ] {
            let check = Check::begin(now);
            let kept = cache.keep(b"key", Arc::new(found), check).chosen(&[]);
            assert_eq!(Rc::ptr_eq(&kept, &known), is_same);
            let none = within(now, Duration::ZERO);
            assert!(cache.fresh(b"key", PLAIN, none).is_some());
        }
    }

    #[test]
    fn other_workers_hear_of_checks_now_and_then() {
        let (cache, start) = (cache(), Instant::now());
        let other = Cache::new(cache.shared.clone());
        let found = variants(&[]);
        // As of the first check it is not.
        let is_fresh = || {
            let recency = within(start + SECOND, SECOND);
            other.fresh(b"key", PLAIN, recency).is_some()
        };
        for (at, is_known) in [
            (Duration::ZERO, false),
            (SHARED_INTERVAL / 2, false),
            (SHARED_INTERVAL, true),
        ] {
            cache.keep(b"key", found.clone(), earlier(start + at));
            assert_eq!(is_fresh(), is_known, "{at:?}");
        }
    }

    #[test]
    fn the_best_existing_variant_is_chosen() {
        use Coding::{Brotli, Gzip, Zstd};
        let (cache, now) = (cache(), Instant::now());
        cache.keep(b"key", variants(&[Gzip, Brotli]), earlier(now));
        for (choices, coding) in [
            (&[Zstd, Gzip, Brotli][..], Some(Gzip)),
            (&[Brotli, Gzip], Some(Brotli)),
            (&[Zstd], None),
            (&[], None),
        ] {
            let selection = Selection { choices, ..PLAIN };
            let cached = cache
                .fresh(b"key", selection, within(now, SECOND))
                .expect("it is fresh");
            assert_eq!(cached.entry.coding, coding, "{choices:?}");
        }
    }

    #[test]
    fn a_missing_name_is_cached_for_its_time_to_live() {
        let (cache, now) = (cache(), Instant::now());
        cache.keep_missing(b"name", Missing::Name, now);
        cache.keep_missing(b"directory", Missing::Index(directory()), now);
        let is_name = |missing| matches!(missing, Some(Missing::Name));
        assert!(is_name(cache.missing(b"name", within(now, SECOND))));
        assert!(
            cache
                .missing(b"name", within(now + SECOND, SECOND))
                .is_none()
        );
        assert!(
            cache
                .missing(b"name", within(now, Duration::ZERO))
                .is_none()
        );
        assert!(cache.missing(b"other", within(now, SECOND)).is_none());
        let index = cache.missing(b"directory", within(now, SECOND));
        assert!(matches!(index, Some(Missing::Index(_))));
        cache.expire(now + 2 * ENTRY_AGE_MAX, SECOND);
        assert!(cache.shared.missing_indexes.is_empty() && cache.shared.missing_names.is_empty());
    }

    /// The memory for missing names is bounded, and separate from that of files.
    #[test]
    fn missing_names_evict_no_files() {
        let (cache, now) = (cache(), Instant::now());
        cache.keep(b"key", variants(&[]), earlier(now));
        for number in 0..100_000_u32 {
            cache.keep_missing(&number.to_le_bytes(), Missing::Name, now);
        }
        assert!(cache.fresh(b"key", PLAIN, within(now, SECOND)).is_some());
        assert!(cache.shared.missing_names.weight() <= MISSING_BYTES_MAX);
        assert!(cache.shared.missing_names.len() > 1000);
    }

    #[test]
    fn unused_entries_expire() {
        let (cache, now) = (cache(), Instant::now());
        cache.keep(b"key", variants(&[]), earlier(now));
        cache.expire(now + ENTRY_AGE_MAX - SECOND, SECOND);
        assert!(cache.stale(b"key").next().is_some());
        cache.expire(now + 2 * ENTRY_AGE_MAX, 3 * ENTRY_AGE_MAX);
        assert!(
            cache.stale(b"key").next().is_some(),
            "it is within its time to live"
        );
        cache.expire(now + 3 * ENTRY_AGE_MAX, SECOND);
        assert!(cache.stale(b"key").next().is_none());
        assert!(cache.own.borrow().is_empty());
    }

    #[test]
    fn the_number_of_open_files_is_bounded() {
        let (cache, now, directory) = (cache(), Instant::now(), directory());
        let variants = variants(&Coding::ALL);
        for number in 0..1000_u32 {
            let key = number.to_le_bytes();
            cache.keep(&key, variants.clone(), earlier(now));
            cache.keep_missing(&key, Missing::Index(directory.clone()), now);
        }
        let entries_by_key = cache.own.borrow().len() + cache.shared.entries_by_key.len();
        assert!(
            entries_by_key * (1 + Coding::ALL.len()) + cache.shared.missing_indexes.len() <= 64
        );
    }
}
