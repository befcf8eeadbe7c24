//! One backend: an address, and whether it is well.
//!
//! Two witnesses tell of it. Requests do in passing: some failures in a row take it out for a while,
//! after which one request, its *trial*, decides whether it is back. Checks, where there are some, ask
//! it and nobody else. It is up when neither speaks against it.

use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;

use levity_config::address::Address;
use levity_config::upstream::{self, At};

/// What a weight of 1 is in the unit of [`Backend::share`], so that slow start has steps to rise by.
pub const SHARE_OF_WEIGHT: u32 = 256;

/// A backend, shared by all workers. Nothing here waits for anybody.
#[derive(Debug)]
pub struct Backend {
    /// Where it is.
    pub address: Address,
    /// What the configuration says of that: the address, or the name that led there.
    pub at: At,
    /// The address as text, for logs and for `Host`.
    pub name: String,
    /// The same for the same address: in every process, in every release, on every host, since
    /// clients bring it back in cookies.
    pub id: u64,
    /// Its share of requests; at least 1.
    pub weight: u32,
    /// It is asked only when all others are down.
    pub backup: bool,
    /// It gets no new clients.
    pub drain: bool,
    /// A [`Standing`] in one word, so that it changes as a whole.
    standing: AtomicU64,
    /// What checks say; true until they say otherwise.
    well: AtomicBool,
    /// When it last came back, in milliseconds of [`millis`]; 0 when it was never away.
    returned_ms: AtomicU64,
    /// Why it was taken out the last time.
    trouble: ArcSwapOption<String>,
    /// When requests began to fail with no success since, in milliseconds of [`millis`]; 0 when the last
    /// one succeeded.
    failing_since_ms: AtomicU64,
    /// How many have failed since then.
    failures: AtomicU64,
}

/// How a backend is at one moment, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It gets requests.
    Up,
    /// It has failed, and is left alone for so long.
    LeftAlone(Duration),
    /// It has been left alone for long enough: one request shows, or is about to, whether it is back.
    Trial,
    /// Checks find it down.
    Down,
}

/// As what a request begins at a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// As one of many.
    Ordinary,
    /// It shows whether the backend is back. [`Backend::end_trial`] when it is over.
    Trial,
}

/// What requests have shown. Times are milliseconds of [`millis`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Failures without a success between them, and when the first of them was.
    In { failures: u16, first_ms: u64 },
    /// Left alone until then, then in need of a trial.
    Out { until_ms: u64 },
    /// A request tries it. One that never tells how it went is forgotten then.
    Trial { until_ms: u64 },
}

impl Standing {
    const WELL: Self = Self::In {
        failures: 0,
        first_ms: 0,
    };
    const KIND_SHIFT: u32 = 62;
    const FAILURES_SHIFT: u32 = 46;
    /// Two thousand years.
    const MS_MASK: u64 = (1 << Self::FAILURES_SHIFT) - 1;

    fn of_word(word: u64) -> Self {
        let ms = word & Self::MS_MASK;
        match word >> Self::KIND_SHIFT {
            0 => Self::In {
                failures: (word >> Self::FAILURES_SHIFT) as u16,
                first_ms: ms,
            },
            1 => Self::Out { until_ms: ms },
            _ => Self::Trial { until_ms: ms },
        }
    }

    fn word(self) -> u64 {
        let (kind, failures, ms) = match self {
            Self::In { failures, first_ms } => (0, failures, first_ms),
            Self::Out { until_ms } => (1, 0, until_ms),
            Self::Trial { until_ms } => (2, 0, until_ms),
        };
        kind << Self::KIND_SHIFT | u64::from(failures) << Self::FAILURES_SHIFT | ms & Self::MS_MASK
    }

    /// After one more failure.
    fn failed(self, now_ms: u64, fail_after: usize, fail_for_ms: u64) -> Self {
        let out = Self::Out {
            until_ms: now_ms + fail_for_ms,
        };
        match self {
            // Those that a count begins with are as old as it may get: it begins anew.
            Self::In { failures, first_ms } => {
                let is_old = failures == 0 || now_ms > first_ms + fail_for_ms;
                let (failures, first_ms) = if is_old {
                    (1, now_ms)
                } else {
                    (failures.saturating_add(1), first_ms)
                };
                if usize::from(failures) >= fail_after.clamp(1, usize::from(u16::MAX)) {
                    out
                } else {
                    Self::In { failures, first_ms }
                }
            }
            // Requests that were under way when it was taken out, and those that had no better
            // choice, do not put its return off.
            Self::Out { until_ms } if now_ms < until_ms => self,
            Self::Out { .. } | Self::Trial { .. } => out,
        }
    }
}

impl Backend {
    /// The backend at `address`, otherwise as `entry` says. It is up.
    pub fn new(address: Address, entry: &upstream::Backend) -> Self {
        Self {
            name: address.to_string(),
            id: id(&address),
            address,
            at: entry.at.clone(),
            weight: entry.weight,
            backup: entry.backup,
            drain: entry.drain,
            standing: AtomicU64::new(Standing::WELL.word()),
            well: AtomicBool::new(true),
            returned_ms: AtomicU64::new(0),
            trouble: ArcSwapOption::empty(),
            failing_since_ms: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    /// Notes why it has been taken out. Does not wait.
    pub fn set_trouble(&self, reason: String) {
        self.trouble.store(Some(Arc::new(reason)));
    }

    /// Why it was taken out the last time; none when it never was.
    pub fn trouble(&self) -> Option<Arc<String>> {
        self.trouble.load_full()
    }

    /// Counts a failure towards the outage that [`Backend::end_outage`] tells of. Does not wait.
    pub fn count_failure(&self, now: Instant) {
        self.failures.fetch_add(1, Ordering::AcqRel);
        self.begin_outage(now);
    }

    /// It does not answer, unless that is known already. Does not wait.
    pub fn begin_outage(&self, now: Instant) {
        let (ok, fail) = (Ordering::AcqRel, Ordering::Relaxed);
        // Whoever was first knows since when.
        let _ = self
            .failing_since_ms
            .compare_exchange(0, millis(now), ok, fail);
    }

    /// It has answered: for how long nothing but failures came before, and how many. `None` when the last
    /// request succeeded too. Does not wait, and writes nothing then.
    pub fn end_outage(&self, now: Instant) -> Option<(Duration, u64)> {
        if self.failing_since_ms.load(Ordering::Acquire) == 0 {
            return None;
        }
        let since_ms = self.failing_since_ms.swap(0, Ordering::AcqRel);
        let failures = self.failures.swap(0, Ordering::AcqRel);
        let lasted = millis(now).saturating_sub(since_ms);
        (since_ms > 0).then(|| (Duration::from_millis(lasted), failures))
    }

    /// How it is now.
    pub fn state(&self, now: Instant) -> State {
        let now_ms = millis(now);
        match self.standing() {
            _ if !self.is_well() => State::Down,
            Standing::In { .. } => State::Up,
            Standing::Out { until_ms } if now_ms < until_ms => {
                State::LeftAlone(Duration::from_millis(until_ms - now_ms))
            }
            Standing::Out { .. } | Standing::Trial { .. } => State::Trial,
        }
    }

    /// Whether requests speak for it, whatever checks find.
    pub fn is_in(&self) -> bool {
        matches!(self.standing(), Standing::In { .. })
    }

    /// As well or ill as `known`, which has the same address.
    #[must_use]
    pub fn with_health_of(self, known: &Self) -> Self {
        Self {
            standing: AtomicU64::new(known.standing.load(Ordering::Acquire)),
            well: AtomicBool::new(known.well.load(Ordering::Acquire)),
            returned_ms: AtomicU64::new(known.returned_ms.load(Ordering::Acquire)),
            trouble: ArcSwapOption::new(known.trouble.load_full()),
            failing_since_ms: AtomicU64::new(known.failing_since_ms.load(Ordering::Acquire)),
            failures: AtomicU64::new(known.failures.load(Ordering::Acquire)),
            ..self
        }
    }

    /// Whether the configuration says the same of both.
    pub fn is_set_like(&self, other: &Self) -> bool {
        let settings = |one: &Self| (one.id, one.weight, one.backup, one.drain);
        settings(self) == settings(other) && self.at == other.at
    }

    /// Whether requests may go there: checks find it well, and it is not left alone. When its time
    /// out is over, it is up until a request has [begun](Backend::begin) the trial.
    pub fn is_up(&self, now: Instant) -> bool {
        let is_in = match self.standing() {
            Standing::In { .. } => true,
            Standing::Out { until_ms } | Standing::Trial { until_ms } => millis(now) >= until_ms,
        };
        is_in && self.is_well()
    }

    /// When it may be tried again; past or present when it may be now. `None` when only a check can
    /// tell.
    pub fn back_at(&self, now: Instant) -> Option<Instant> {
        if !self.is_well() {
            return None;
        }
        match self.standing() {
            Standing::In { .. } => Some(now),
            Standing::Out { until_ms } | Standing::Trial { until_ms } => Some(instant(until_ms)),
        }
    }

    /// To be called for a backend that was chosen because it is up, before it is asked. `None` when it
    /// is not up any more, for instance because another request began its trial at this moment: choose
    /// again.
    ///
    /// A trial that does not end within `trial_max` is given to another request.
    pub fn begin(&self, now: Instant, trial_max: Duration) -> Option<Begun> {
        let now_ms = millis(now);
        let word = self.standing.load(Ordering::Acquire);
        match Standing::of_word(word) {
            Standing::In { .. } => Some(Begun::Ordinary),
            Standing::Out { until_ms } | Standing::Trial { until_ms } => {
                let end_ms = now_ms + whole_millis(trial_max).max(1);
                let trial = Standing::Trial { until_ms: end_ms };
                let is_ours = now_ms >= until_ms && self.swap(word, trial);
                is_ours.then_some(Begun::Trial)
            }
        }
    }

    /// The request that was a trial is over. Where it has shown nothing, as its client has left, the next
    /// request is one, and does not wait for the time that a trial may take.
    pub fn end_trial(&self, now: Instant) {
        let word = self.standing.load(Ordering::Acquire);
        if matches!(Standing::of_word(word), Standing::Trial { .. }) {
            let until_ms = millis(now);
            // Whoever was faster knows more.
            self.swap(word, Standing::Out { until_ms });
        }
    }

    /// A request failed for a reason that is the backend's. True when this very failure took it out:
    /// the last of `fail_after` without a success between them, all within `fail_for`. It is then
    /// left alone for as long, which for a time of zero is not at all. The same for its trial, which
    /// does not take out what is out already.
    ///
    /// The window begins with a failure and does not slide: of failures that come slower than
    /// `fail_after` per `fail_for`, some are forgotten early.
    pub fn failed(&self, now: Instant, fail_after: usize, fail_for: Duration) -> bool {
        if fail_for.is_zero() {
            return false;
        }
        let (now_ms, fail_for_ms) = (millis(now), whole_millis(fail_for).max(1));
        loop {
            let word = self.standing.load(Ordering::Acquire);
            let old = Standing::of_word(word);
            let new = old.failed(now_ms, fail_after, fail_for_ms);
            if new == old || self.swap(word, new) {
                let was_in = matches!(old, Standing::In { .. });
                return was_in && matches!(new, Standing::Out { .. });
            }
        }
    }

    /// A request was answered. True when this brought it back. Whatever request it was, it is
    /// later news than the failures.
    pub fn succeeded(&self, now: Instant) -> bool {
        loop {
            let word = self.standing.load(Ordering::Acquire);
            // Nothing is written in the ordinary case: a line of memory that all workers read stays
            // in all their caches.
            if word == Standing::WELL.word() {
                return false;
            }
            let was_out = !matches!(Standing::of_word(word), Standing::In { .. });
            if was_out {
                self.mark_return(now);
            }
            if self.swap(word, Standing::WELL) {
                return was_out;
            }
        }
    }

    /// What checks found last.
    pub fn is_well(&self) -> bool {
        self.well.load(Ordering::Relaxed)
    }

    /// What checks found. True when that is new. What is found well again is free of its failures too:
    /// they are older.
    pub fn set_well(&self, well: bool, now: Instant) -> bool {
        if self.is_well() == well {
            return false;
        }
        if well {
            self.mark_return(now);
            self.standing
                .store(Standing::WELL.word(), Ordering::Release);
        }
        self.well.swap(well, Ordering::AcqRel) != well
    }

    /// Its full share is due `slow_start` from now.
    pub fn mark_return(&self, now: Instant) {
        self.returned_ms.store(millis(now), Ordering::Release);
    }

    /// Its weight times [`SHARE_OF_WEIGHT`]; less within `slow_start` of its return, rising evenly
    /// from almost nothing, but never 0.
    pub fn share(&self, now: Instant, slow_start: Duration) -> u32 {
        let full = self.weight.saturating_mul(SHARE_OF_WEIGHT).max(1);
        let (returned_ms, rise_ms) = (
            self.returned_ms.load(Ordering::Acquire),
            whole_millis(slow_start),
        );
        let since_ms = millis(now).saturating_sub(returned_ms);
        if returned_ms == 0 || since_ms >= rise_ms {
            return full;
        }
        let risen = u128::from(full) * u128::from(since_ms) / u128::from(rise_ms);
        u32::try_from(risen).unwrap_or(full).max(1)
    }

    fn standing(&self) -> Standing {
        Standing::of_word(self.standing.load(Ordering::Acquire))
    }

    /// False when somebody was faster.
    fn swap(&self, word: u64, new: Standing) -> bool {
        let (ok, fail) = (Ordering::AcqRel, Ordering::Relaxed);
        self.standing
            .compare_exchange(word, new.word(), ok, fail)
            .is_ok()
    }
}

fn id(address: &Address) -> u64 {
    match address {
        Address::Tcp(address) => fingerprint(address.to_string().as_bytes()),
        // As text, two paths that are not UTF-8 could be one.
        Address::Unix(path) => {
            fingerprint(&[b"unix:".as_slice(), path.as_os_str().as_bytes()].concat())
        }
    }
}

/// A number for `bytes` that is the same everywhere and for ever: 64-bit FNV-1a. Not for what an
/// attacker may choose and must not make collide. Its high bits are poor where texts differ in their
/// end only: mix it before it decides anything.
pub fn fingerprint(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    bytes.iter().fold(OFFSET, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    })
}

/// What [`millis`] counts from; the first use in the process.
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

/// From 1: 0 is free to stand for never.
fn millis(instant: Instant) -> u64 {
    whole_millis(instant.saturating_duration_since(start())) + 1
}

fn instant(ms: u64) -> Instant {
    start() + Duration::from_millis(ms.saturating_sub(1))
}

/// So large at most that sums of two stay within what a [`Standing`] holds.
fn whole_millis(duration: Duration) -> u64 {
    const MAX: u64 = 1 << 44;
    u64::try_from(duration.as_millis()).unwrap_or(MAX).min(MAX)
}

#[cfg(test)]
mod tests;
