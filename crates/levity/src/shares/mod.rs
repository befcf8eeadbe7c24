//! Shares of what is finite and common to all clients: who holds how much of each resource.
//!
//! Up to half of a resource is free for anybody. Above half a client may hold at most its *share*: the whole, divided by the
//! number of clients that hold any of it or wait for it. Whoever is refused may wait ([`claim`]); while somebody waits for a
//! resource that is used up, the client that holds most of it loses what it has left untouched for the longest time
//! ([`stakes`]).
//!
//! Counting is atomic and takes no lock, because threads that compute give back what bodies hold. A lock is taken only
//! by event loops, and only to find the account of a client that a loop does not know yet.

mod account;
pub mod claim;
pub mod common;
mod holder;
pub mod stakes;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use levity_telemetry::stats::ShareFigure;
use strum::{EnumCount, IntoStaticStr, VariantArray};

use self::account::Accounts;
pub use self::account::{Held, Used};
use self::claim::WAIT_MAX;

/// What clients share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumCount, VariantArray, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Resource {
    /// Open files that requests hold, each with a descriptor.
    Files,
    /// Memory of listings and archives, in bytes.
    Listings,
    /// Memory of encoders, in bytes.
    Encoders,
    /// Memory of decoders, in bytes.
    Decoders,
    /// Memory of request bodies, in bytes.
    Bodies,
    /// Bytes of request bodies in files.
    Spool,
}

impl Resource {
    /// The name in the log and in metrics.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How much of a resource may be used when something is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumCount, VariantArray)]
pub enum Portion {
    /// All.
    Whole,
    /// Three quarters, for what is large, so that it leaves some for what is small.
    Most,
    /// A half, for what is kept for hours: otherwise idle streams would leave nothing for other responses.
    Half,
    /// A quarter, for what only makes transfers faster.
    Quarter,
}

impl Portion {
    fn of(self, max: usize) -> usize {
        match self {
            Self::Whole => max,
            Self::Most => max / 4 * 3,
            Self::Half => max / 2,
            Self::Quarter => max / 4,
        }
    }
}

/// Why nothing was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// All of the portion is used.
    UsedUp,
    /// More than half is used, and the client would hold more than its share.
    OverShare,
}

/// One resource.
#[derive(Debug)]
struct Pool {
    max: AtomicUsize,
    /// What one request may take at least, however many clients there are.
    least: usize,
    used: AtomicUsize,
    /// Clients that hold any, or wait for it.
    holders: AtomicUsize,
    /// What those who wait want, by portion, as far as it is within their shares.
    wanted: [AtomicUsize; Portion::COUNT],
    /// The most that one who did not wait has missed since something was reclaimed, by portion.
    missed: [AtomicUsize; Portion::COUNT],
    /// When that was, in milliseconds since `start`.
    missed_ms: AtomicU64,
    /// When something was last reclaimed, in milliseconds since `start`.
    reclaimed_ms: AtomicU64,
    start: Instant,
    /// When the next line about it may be logged, in seconds.
    next_line_s: AtomicU64,
    refused: AtomicU64,
    reclaimed: AtomicU64,
}

/// All resources of the process. Nothing here blocks.
#[derive(Debug)]
pub struct Shares {
    pools: [Pool; Resource::COUNT],
    accounts: Accounts,
}

/// The bounds of all resources: files in number, the others in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Of [`Resource::Files`].
    pub files: usize,
    /// Of [`Resource::Encoders`], and of [`Resource::Decoders`].
    pub coders: usize,
    /// Of [`Resource::Bodies`].
    pub bodies: usize,
    /// Of [`Resource::Spool`].
    pub spool: usize,
}

/// The minimum time between two rounds in which a resource is reclaimed, in milliseconds: until then what was reclaimed is free.
const ROUND_MS: u64 = 90;

/// The memory of all listings and archives in bytes, so that they take at most 64 MiB: it counts what is asked of the
/// allocator, not what that loses, nor the stacks of up to 72 disk threads.
const LISTINGS_BYTES_MAX: usize = 40 * 1024 * 1024;

impl Bounds {
    /// Those of a configuration. Files depend on the limit of the process, so there are none.
    pub fn of_limits(limits: &levity_config::Limits) -> Self {
        Self {
            files: 0,
            coders: limits.compression_memory,
            bodies: limits.bodies_memory,
            spool: limits.spool_bytes,
        }
    }

    fn of(&self, resource: Resource) -> usize {
        match resource {
            Resource::Files => self.files,
            Resource::Listings => LISTINGS_BYTES_MAX,
            Resource::Encoders | Resource::Decoders => self.coders,
            Resource::Bodies => self.bodies,
            Resource::Spool => self.spool,
        }
    }
}

/// What one request takes of a resource at least: the files and the memory of an archive, an encoder and a decoder with the
/// largest windows, a body in memory with the part by which it grows, the start of a spooled one.
fn least(resource: Resource) -> usize {
    match resource {
        Resource::Files => 3,
        Resource::Listings => 256 * 1024,
        Resource::Encoders | Resource::Decoders => 16 * 1024 * 1024,
        Resource::Bodies => 128 * 1024,
        Resource::Spool => 1024 * 1024,
    }
}

impl Shares {
    /// Resources of which nothing is used.
    pub fn new(bounds: &Bounds) -> Arc<Self> {
        Arc::new(Self {
            pools: std::array::from_fn(|at| Pool::new(Resource::VARIANTS[at], bounds)),
            accounts: Accounts::default(),
        })
    }

    /// Replaces the bounds. What has been taken beyond them stays.
    pub fn set_bounds(&self, bounds: &Bounds) {
        for (pool, &resource) in self.pools.iter().zip(Resource::VARIANTS) {
            pool.max.store(bounds.of(resource), Ordering::Relaxed);
        }
    }

    /// How much there is of `resource`.
    pub fn max(&self, resource: Resource) -> usize {
        self.pool(resource).max.load(Ordering::Relaxed)
    }

    /// How much of it is used.
    pub fn used(&self, resource: Resource) -> usize {
        self.pool(resource).used.load(Ordering::Relaxed)
    }

    /// Whether anybody may take one more without being asked who it is.
    pub fn is_plenty(&self, resource: Resource) -> bool {
        self.pool(resource).is_plenty()
    }

    /// The counters of all resources.
    pub fn figures(&self) -> Vec<ShareFigure> {
        let pools = self.pools.iter().zip(Resource::VARIANTS);
        let figure = |(pool, resource): (&Pool, &Resource)| pool.figure(resource.name());
        pools.map(figure).collect()
    }

    fn pool(&self, resource: Resource) -> &Pool {
        &self.pools[resource as usize]
    }
}

impl Pool {
    fn new(resource: Resource, bounds: &Bounds) -> Self {
        Self {
            max: AtomicUsize::new(bounds.of(resource)),
            least: least(resource),
            used: AtomicUsize::new(0),
            holders: AtomicUsize::new(0),
            wanted: Default::default(),
            missed: Default::default(),
            missed_ms: AtomicU64::new(0),
            reclaimed_ms: AtomicU64::new(0),
            start: Instant::now(),
            next_line_s: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            reclaimed: AtomicU64::new(0),
        }
    }

    fn is_plenty(&self) -> bool {
        self.used.load(Ordering::Relaxed) < self.max.load(Ordering::Relaxed) / 2
    }

    /// The part of each client, of `portion`.
    fn share(&self, portion: Portion) -> usize {
        let holders = self.holders.load(Ordering::Relaxed).max(1);
        portion.of(self.max.load(Ordering::Relaxed)) / holders
    }

    /// What a request needs at least. Where little is configured, one does not get most of it.
    fn least(&self, portion: Portion) -> usize {
        let max = portion.of(self.max.load(Ordering::Relaxed));
        self.least.min(max / 4).max(1)
    }

    /// What those lack who wait, and who have come in vain, and of which portion.
    fn lacking(&self) -> (usize, Portion) {
        let max = self.max.load(Ordering::Relaxed);
        let used = self.used.load(Ordering::Relaxed);
        let lacking = |&portion: &Portion| {
            let [wanted, missed] = [&self.wanted, &self.missed]
                .map(|amounts| amounts[portion as usize].load(Ordering::Relaxed));
            let wanted = wanted.max(missed);
            // The free part of a portion may be less than nothing: others have used what it leaves to them.
            let lacking = (used + wanted).saturating_sub(portion.of(max));
            (wanted > 0).then_some((lacking, portion))
        };
        let lacking = Portion::VARIANTS.iter().filter_map(lacking);
        lacking
            .max_by_key(|&(lacking, _)| lacking)
            .unwrap_or((0, Portion::Whole))
    }

    /// Has `amount` reclaimed for one who has not waited.
    fn missed(&self, amount: usize, portion: Portion, now: Instant) {
        self.missed_ms.store(self.ms(now), Ordering::Relaxed);
        self.missed[portion as usize].fetch_max(amount, Ordering::Relaxed);
    }

    /// Forgets what was missed longer ago than others wait: whoever stalls later is not ended for a client that has gone.
    fn forget_missed(&self, now: Instant) {
        let last_ms = self.missed_ms.load(Ordering::Relaxed);
        let age_ms = self.ms(now).saturating_sub(last_ms);
        if u128::from(age_ms) >= WAIT_MAX.as_millis() {
            self.clear_missed();
        }
    }

    fn clear_missed(&self) {
        for missed in &self.missed {
            missed.store(0, Ordering::Relaxed);
        }
    }

    /// Milliseconds since `start`.
    fn ms(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.start).as_millis() as u64
    }

    /// Whether this event loop is the one that reclaims now. If several did, each would reclaim all that lacks.
    fn claim_round(&self, now: Instant) -> bool {
        let now_ms = self.ms(now) + ROUND_MS;
        let next = |last_ms| (last_ms + ROUND_MS <= now_ms).then_some(now_ms);
        let ms = &self.reclaimed_ms;
        ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .is_ok()
    }

    /// Adds `amount` to what is used, unless that would be more than `used_max`.
    ///
    /// # Errors
    /// When it would. Otherwise returns what is used then.
    fn add(&self, amount: usize, used_max: usize) -> Result<usize, Shortage> {
        let more = |used: usize| used.checked_add(amount).filter(|&used| used <= used_max);
        let used = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        used.map(|before| before + amount)
            .map_err(|_| Shortage::UsedUp)
    }

    fn figure(&self, resource: &'static str) -> ShareFigure {
        ShareFigure {
            resource,
            used: self.used.load(Ordering::Relaxed) as u64,
            max: self.max.load(Ordering::Relaxed) as u64,
            holders: self.holders.load(Ordering::Relaxed) as u64,
            refused: self.refused.load(Ordering::Relaxed),
            reclaimed: self.reclaimed.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests;
