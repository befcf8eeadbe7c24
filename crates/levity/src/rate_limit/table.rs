//! The state of all rate limits: a table of fixed size that all workers share without a lock.
//!
//! A slot has the hash of a key and one number, the *theoretical arrival time* of the generic cell rate algorithm (ITU-T I.371):
//! the time at which the key will have paid for all that it took. A key whose time has passed is like one that was never
//! seen, so its slot can be given to another key and nothing is lost. The number of a limit on concurrent requests is
//! a count instead, which never passes.
//!
//! A key has two places of 8 slots, each two neighbouring cache lines. Nearly all keys are in their first place; with a quarter
//! of all slots in use, one in 7000 finds it full, and goes to its second.
//!
//! Hash and number are two atomics. A slot that is given to another key while its former key comes back may carry one event
//! from the one to the other. That needs a key whose time has just passed, and both requests within nanoseconds.

use std::hash::{BuildHasher, Hash, RandomState};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use levity_disk::memory::{CacheLine, CacheLines};

/// Bytes of a place: two cache lines, which processors load in pairs.
const PLACE_BYTES: usize = 2 * size_of::<CacheLine>();

/// Bytes of a slot.
const SLOT_BYTES: usize = 2 * size_of::<AtomicU64>();

/// Places that are looked at first to find out how many keys there are: 1 MiB.
const SAMPLED_PLACES: usize = (1 << 20) / PLACE_BYTES;

/// Keys in these that suffice for an estimate, which is then off by 3 % (a standard deviation). With fewer, more places are
/// looked at.
const ENOUGH_KEYS: u64 = 1024;

/// The maximum number of places that are looked at: 64 MiB, the default size of a table.
const COUNTED_PLACES_MAX: usize = (64 << 20) / PLACE_BYTES;

/// Marks a count of concurrent requests. As a time it would be in 292 years.
const COUNT: u64 = 1 << 63;

/// The state of keys.
pub struct Table<H = RandomState> {
    lines: CacheLines,
    bytes_max: usize,
    /// Keyed at random, so that no client can choose its slot.
    hasher: H,
    epoch: Instant,
    evictions: AtomicU64,
}

/// A key of the table: its hash. 0 marks a slot that was never used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(NonZeroU64);

/// A time on the clock of the table, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

/// A slot that was found.
#[derive(Clone, Copy)]
struct Slot<'t> {
    hash: &'t AtomicU64,
    number: &'t AtomicU64,
}

impl Table {
    /// An empty table of at most `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self::with_hasher(bytes, RandomState::new())
    }
}

impl<H: BuildHasher> Table<H> {
    fn with_hasher(bytes: usize, hasher: H) -> Self {
        let places = (bytes / PLACE_BYTES).max(1);
        Self {
            lines: CacheLines::zeroed(2 * places),
            bytes_max: bytes,
            hasher,
            epoch: Instant::now(),
            evictions: AtomicU64::new(0),
        }
    }

    /// Its maximum size in bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Keys that were forgotten before their time, because both of their places were full.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// The number of keys whose time has not passed at `now`: an estimate from a part of the table if that has many of them, or if
    /// the table is larger than 64 MiB. Computes for some milliseconds; not for an event loop.
    pub fn keys(&self, now: Time) -> u64 {
        let (seen, used) = self.used(SAMPLED_PLACES, now);
        let (seen, used) = match used >= ENOUGH_KEYS {
            true => (seen, used),
            false => self.used(COUNTED_PLACES_MAX, now),
        };
        used * (self.lines.len() / 2) as u64 / seen
    }

    /// Looks at no more than so many places, evenly distributed: their number, and that of the keys in them.
    fn used(&self, places_max: usize, now: Time) -> (u64, u64) {
        let step = (self.lines.len() / 2).div_ceil(places_max);
        // Both lines of a place, because the first is filled first.
        let places = self.lines.chunks_exact(2).step_by(step);
        let seen = places.len() as u64;
        let slots = places.flatten().flat_map(|line| line.0.chunks_exact(2));
        let is_used = |slot: &&[AtomicU64]| is_live(slot[1].load(Ordering::Relaxed), now);
        (seen, slots.filter(is_used).count() as u64)
    }

    /// The maximum number of keys.
    pub fn keys_max(&self) -> u64 {
        (self.lines.len() * size_of::<CacheLine>() / SLOT_BYTES) as u64
    }

    /// `instant` on the clock of the table.
    pub fn time(&self, instant: Instant) -> Time {
        let since = instant.saturating_duration_since(self.epoch);
        Time(u64::try_from(since.as_nanos()).unwrap_or(COUNT - 1))
    }

    /// The instant of a time.
    pub fn instant(&self, time: Time) -> Instant {
        self.epoch + Duration::from_nanos(time.0)
    }

    /// The key of a value.
    pub fn key(&self, of: impl Hash) -> Key {
        let hash = NonZeroU64::new(self.hasher.hash_one(of));
        Key(hash.unwrap_or(NonZeroU64::MIN))
    }

    /// Takes `cost` from a key, unless its time is more than `tolerance` ahead of `now`; all in nanoseconds.
    ///
    /// # Errors
    /// Nanoseconds until it would not be.
    pub fn take(&self, key: Key, now: Time, cost: u64, tolerance: u64) -> Result<(), u64> {
        let number = self.slot(key, now).number;
        let mut seen = number.load(Ordering::Relaxed);
        loop {
            let time = time_of(seen).max(now.0);
            let ahead = time - now.0;
            if ahead > tolerance {
                return Err(ahead - tolerance);
            }
            match exchange(number, seen, time.saturating_add(cost).min(COUNT - 1)) {
                Ok(()) => return Ok(()),
                Err(changed) => seen = changed,
            }
        }
    }

    /// Takes `cost` from a key even if its time is ahead, and returns the time that it had, at least `now`.
    pub fn reserve(&self, key: Key, now: Time, cost: u64) -> Time {
        let number = self.slot(key, now).number;
        let mut seen = number.load(Ordering::Relaxed);
        loop {
            let time = time_of(seen).max(now.0);
            match exchange(number, seen, time.saturating_add(cost).min(COUNT - 1)) {
                Ok(()) => return Time(time),
                Err(changed) => seen = changed,
            }
        }
    }

    /// The time of a key, at least `now`.
    pub fn peek(&self, key: Key, now: Time) -> Time {
        let number = self.find(key).map(|slot| slot.number);
        let number = number.map_or(0, |number| number.load(Ordering::Relaxed));
        Time(time_of(number).max(now.0))
    }

    /// Gives `cost` back to a key.
    pub fn give_back(&self, key: Key, cost: u64) {
        let Some(Slot { number, .. }) = self.find(key) else {
            return;
        };
        let less = |number| (number & COUNT == 0).then(|| u64::saturating_sub(number, cost));
        let _ = number.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Counts one more of a key, unless there are `max`. Returns whether it was counted.
    pub fn enter(&self, key: Key, now: Time, max: u64) -> bool {
        let number = self.slot(key, now).number;
        let one_more = |number| {
            let count = count_of(number);
            (count < max).then_some(COUNT | (count + 1))
        };
        let counted = number.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more);
        counted.is_ok()
    }

    /// Counts one less. A key that was evicted meanwhile has no count.
    pub fn leave(&self, key: Key) {
        let Some(Slot { number, .. }) = self.find(key) else {
            return;
        };
        let one_less = |number| (count_of(number) > 0).then(|| number - 1);
        let _ = number.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
    }

    /// The slot of a key.
    fn find(&self, key: Key) -> Option<Slot<'_>> {
        let is_its = |slot: &Slot<'_>| slot.hash.load(Ordering::Relaxed) == key.0.get();
        // The second place is looked at only if the first has not got it.
        self.place(key, 0)
            .find(is_its)
            .or_else(|| self.place(key, 1).find(is_its))
    }

    /// The slot of a key, which is made if there is none.
    fn slot(&self, key: Key, now: Time) -> Slot<'_> {
        loop {
            if let Some(found) = self.find(key).or_else(|| self.claim(key, now)) {
                return found;
            }
        }
    }

    /// The slot of a key that had none: the first that is free, or else the one whose time passes first. Counts go last. `None` if
    /// another request has changed it meanwhile.
    fn claim(&self, key: Key, now: Time) -> Option<Slot<'_>> {
        let mut chosen: Option<(Slot<'_>, u64, u64)> = None;
        for slot in self.place(key, 0).chain(self.place(key, 1)) {
            // In this order: a slot that another request has just made for the key is found, or seen as it was before.
            let number = slot.number.load(Ordering::Acquire);
            let hash = slot.hash.load(Ordering::Relaxed);
            if hash == key.0.get() {
                return Some(slot);
            }
            let number = if is_live(number, now) { number } else { 0 };
            if chosen.is_none_or(|(_, _, least)| number < least) {
                chosen = Some((slot, hash, number));
            }
        }
        let (slot, hash, number) = chosen.expect("a place has slots");
        // Whoever is faster has it.
        exchange(slot.hash, hash, key.0.get()).ok()?;
        if number != 0 {
            slot.number.store(0, Ordering::Relaxed);
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
        Some(slot)
    }

    /// The slots of one of the two places of a key.
    fn place(&self, key: Key, number: u32) -> impl Iterator<Item = Slot<'_>> {
        let places = self.lines.len() / 2;
        // A number below `places` from 32 bits of the hash, without a division.
        let bits = key.0.get().rotate_right(32 * number) & u64::from(u32::MAX);
        let place = ((bits as u128 * places as u128) >> 32) as usize;
        let lines = &self.lines[2 * place..2 * place + 2];
        let pairs = lines.iter().flat_map(|line| line.0.chunks_exact(2));
        pairs.map(|pair| Slot {
            hash: &pair[0],
            number: &pair[1],
        })
    }
}

/// Whether a number says anything at `now`.
fn is_live(number: u64, now: Time) -> bool {
    number != COUNT && number > now.0
}

/// Replaces `old` by `new`.
///
/// # Errors
/// What is there in place of `old`.
fn exchange(number: &AtomicU64, old: u64, new: u64) -> Result<(), u64> {
    // Releases the hash of the slot to whoever sees the number; see `Table::claim`.
    let exchanged = number.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed);
    exchanged.map(drop)
}

/// The number as a time. A slot may have belonged to a count, which is 0 then.
fn time_of(number: u64) -> u64 {
    if number & COUNT == 0 { number } else { 0 }
}

/// The number as a count. A slot may have belonged to a time, which has passed then.
fn count_of(number: u64) -> u64 {
    if number & COUNT == 0 {
        0
    } else {
        number & !COUNT
    }
}

#[cfg(test)]
mod tests;
