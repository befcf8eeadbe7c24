//! One backend: its address and its health.
//!
//! Health has two sources. Passive: after some consecutive failures of requests the backend is ejected for a
//! while; then one request, its *trial*, decides whether it is back. Active: checks, if configured, have
//! their own result. The backend is up when neither source says otherwise.

use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;

use levity_config::address::Address;
use levity_config::upstream::{self, At};

/// The unit of [`Backend::share`]: a weight of 1 has this share, so that slow start can rise in small steps.
pub const SHARE_OF_WEIGHT: u32 = 256;

/// A backend, shared by all workers. No method blocks or waits.
#[derive(Debug)]
pub struct Backend {
    /// Its address.
    pub address: Address,
    /// Its address or host name as configured.
    pub at: At,
    /// The name or the address that it has to prove, if connections to it are encrypted.
    pub tls: Option<String>,
    /// The address as text, for logs and for `Host`.
    pub name: String,
    /// Derived from the address alone, and the same in every process, release and host: clients send it back
    /// in cookies.
    pub id: u64,
    /// Its share of requests; at least 1.
    pub weight: u32,
    /// Used only when all other backends are down.
    pub backup: bool,
    /// Accepts no new clients.
    pub drain: bool,
    /// A [`Standing`] packed into one word, so that it changes atomically.
    standing: AtomicU64,
    /// The result of checks; true until a check fails.
    well: AtomicBool,
    /// When it last came back, in milliseconds of [`millis`]; 0 if it was never down.
    returned_ms: AtomicU64,
    /// Why it was last ejected, or failed its checks.
    trouble: ArcSwapOption<String>,
    last_failure: ArcSwapOption<LastFailure>,
    /// When the current run of failures began, in milliseconds of [`millis`]; 0 if the last request
    /// succeeded.
    failing_since_ms: AtomicU64,
    /// Failures since then.
    failures: AtomicU64,
}

/// The last request or check that has failed through the fault of a backend.
#[derive(Debug, PartialEq, Eq)]
pub struct LastFailure {
    /// Why it has failed.
    pub reason: String,
    /// When it failed.
    pub at: Instant,
}

/// Whether a backend gets requests, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// It gets requests.
    Up,
    /// Requests have failed. It gets none for this long.
    Ejected(Duration),
    /// Its ejection is over. One request decides, or is about to, whether it is back.
    Trial,
    /// Its checks fail.
    Down,
}

/// The role of a request at a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// An ordinary request.
    Ordinary,
    /// The request decides whether the backend is back. Call [`Backend::end_trial`] when it ends.
    Trial,
}

/// Passive health. Times are milliseconds of [`millis`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Consecutive failures, and the time of the first.
    In { failures: u16, first_ms: u64 },
    /// Gets no requests until then; afterwards it needs a trial.
    Out { until_ms: u64 },
    /// A trial is in progress. A trial without a result expires then.
    Trial { until_ms: u64 },
}

impl Standing {
    const WELL: Self = Self::In {
        failures: 0,
        first_ms: 0,
    };
    const KIND_SHIFT: u32 = 62;
    const FAILURES_SHIFT: u32 = 46;
    /// Enough for two thousand years.
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

    /// The standing after one more failure.
    fn failed(self, now_ms: u64, fail_after: usize, fail_for_ms: u64) -> Self {
        let out = Self::Out {
            until_ms: now_ms + fail_for_ms,
        };
        match self {
            // A count whose first failure is older than the window starts again.
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
            // Failures of requests that were in progress when it was ejected, or that had no better choice, do
            // not extend the ejection.
            Self::Out { until_ms } if now_ms < until_ms => self,
            Self::Out { .. } | Self::Trial { .. } => out,
        }
    }
}

impl Backend {
    /// A backend at `address` with the options of `entry`. It is up.
    pub fn new(address: Address, entry: &upstream::Backend) -> Self {
        Self {
            name: address.to_string(),
            id: id(&address),
            address,
            at: entry.at.clone(),
            tls: entry.tls.clone(),
            weight: entry.weight,
            backup: entry.backup,
            drain: entry.drain,
            standing: AtomicU64::new(Standing::WELL.word()),
            well: AtomicBool::new(true),
            returned_ms: AtomicU64::new(0),
            trouble: ArcSwapOption::empty(),
            last_failure: ArcSwapOption::empty(),
            failing_since_ms: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    /// Records why it was ejected, or failed its checks. Does not wait.
    pub fn set_trouble(&self, reason: String) {
        self.trouble.store(Some(Arc::new(reason)));
    }

    /// Why it was last ejected or failed its checks; `None` if it never did.
    pub fn trouble(&self) -> Option<Arc<String>> {
        self.trouble.load_full()
    }

    /// Records why a request or a check has failed. Does not wait.
    pub fn set_last_failure(&self, reason: String, at: Instant) {
        let failure = LastFailure { reason, at };
        self.last_failure.store(Some(Arc::new(failure)));
    }

    /// The last failure, even if it is up again; `None` if there was none.
    pub fn last_failure(&self) -> Option<Arc<LastFailure>> {
        self.last_failure.load_full()
    }

    /// Counts a failure towards the outage that [`Backend::end_outage`] reports. Does not wait.
    pub fn count_failure(&self, now: Instant) {
        self.failures.fetch_add(1, Ordering::AcqRel);
        self.begin_outage(now);
    }

    /// Records the start of an outage, unless one is in progress. Does not wait.
    pub fn begin_outage(&self, now: Instant) {
        let (ok, fail) = (Ordering::AcqRel, Ordering::Relaxed);
        // Only the first failure sets the start.
        let _ = self
            .failing_since_ms
            .compare_exchange(0, millis(now), ok, fail);
    }

    /// Records a response, and returns the duration of the outage before it with its number of failures.
    /// `None`, without a write, when the last request succeeded too. Does not wait.
    pub fn end_outage(&self, now: Instant) -> Option<(Duration, u64)> {
        if self.failing_since_ms.load(Ordering::Acquire) == 0 {
            return None;
        }
        let since_ms = self.failing_since_ms.swap(0, Ordering::AcqRel);
        let failures = self.failures.swap(0, Ordering::AcqRel);
        let lasted = millis(now).saturating_sub(since_ms);
        (since_ms > 0).then(|| (Duration::from_millis(lasted), failures))
    }

    /// The current state.
    pub fn state(&self, now: Instant) -> Availability {
        let now_ms = millis(now);
        match self.standing() {
            _ if !self.is_well() => Availability::Down,
            Standing::In { .. } => Availability::Up,
            Standing::Out { until_ms } if now_ms < until_ms => {
                Availability::Ejected(Duration::from_millis(until_ms - now_ms))
            }
            Standing::Out { .. } | Standing::Trial { .. } => Availability::Trial,
        }
    }

    /// Whether passive health finds it up, regardless of checks.
    pub fn is_in(&self) -> bool {
        matches!(self.standing(), Standing::In { .. })
    }

    /// Copies the health of `known`, which has the same address.
    #[must_use]
    pub fn with_health_of(self, known: &Self) -> Self {
        Self {
            standing: AtomicU64::new(known.standing.load(Ordering::Acquire)),
            well: AtomicBool::new(known.well.load(Ordering::Acquire)),
            returned_ms: AtomicU64::new(known.returned_ms.load(Ordering::Acquire)),
            trouble: ArcSwapOption::new(known.trouble.load_full()),
            last_failure: ArcSwapOption::new(known.last_failure.load_full()),
            failing_since_ms: AtomicU64::new(known.failing_since_ms.load(Ordering::Acquire)),
            failures: AtomicU64::new(known.failures.load(Ordering::Acquire)),
            ..self
        }
    }

    /// Whether both have the same settings.
    pub fn is_set_like(&self, other: &Self) -> bool {
        let settings = |one: &Self| (one.id, one.weight, one.backup, one.drain);
        settings(self) == settings(other) && (&self.at, &self.tls) == (&other.at, &other.tls)
    }

    /// Whether it may get requests: its checks succeed and it is not ejected. After the ejection it is up
    /// until a request [begins](Backend::begin) the trial.
    pub fn is_up(&self, now: Instant) -> bool {
        let is_in = match self.standing() {
            Standing::In { .. } => true,
            Standing::Out { until_ms } | Standing::Trial { until_ms } => millis(now) >= until_ms,
        };
        is_in && self.is_well()
    }

    /// When it may be tried again; a time in the past when it may be now. `None` when only a check can bring
    /// it back.
    pub fn back_at(&self, now: Instant) -> Option<Instant> {
        if !self.is_well() {
            return None;
        }
        match self.standing() {
            Standing::In { .. } => Some(now),
            Standing::Out { until_ms } | Standing::Trial { until_ms } => Some(instant(until_ms)),
        }
    }

    /// Begins a request at a backend that was chosen because it is up. `None` when it is no longer up, for
    /// instance because another request has just begun its trial: choose again.
    ///
    /// A trial that does not end within `trial_max` passes to another request.
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

    /// Ends the request that is a trial. If the trial gave no result, because its client left, the next
    /// request becomes the trial at once instead of after `trial_max`.
    pub fn end_trial(&self, now: Instant) {
        let word = self.standing.load(Ordering::Acquire);
        if matches!(Standing::of_word(word), Standing::Trial { .. }) {
            let until_ms = millis(now);
            // If another thread has changed it meanwhile, its result is newer.
            self.swap(word, Standing::Out { until_ms });
        }
    }

    /// Records a failed request that is the fault of the backend. True when this failure ejects the
    /// backend: it was the last of `fail_after` consecutive failures within `fail_for`. It is then ejected for
    /// `fail_for`; zero means not at all. A failed trial extends the ejection and returns false.
    ///
    /// The window begins with a failure and does not slide: of failures that are slower than `fail_after` per
    /// `fail_for`, some are forgotten early.
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

    /// Records a response. True when this brought the backend back: any response is newer than the failures.
    pub fn succeeded(&self, now: Instant) -> bool {
        loop {
            let word = self.standing.load(Ordering::Acquire);
            // The common case writes nothing, so that the cache line stays shared by all workers' cores.
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

    /// The result of the last checks.
    pub fn is_well(&self) -> bool {
        self.well.load(Ordering::Relaxed)
    }

    /// Sets the result of checks. True when it has changed. A backend that becomes well loses its failures
    /// too, since they are older.
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

    /// Starts slow start: the full share is reached `slow_start` from now.
    pub fn mark_return(&self, now: Instant) {
        self.returned_ms.store(millis(now), Ordering::Release);
    }

    /// Its weight times [`SHARE_OF_WEIGHT`]. Within `slow_start` of its return the share rises linearly from
    /// almost nothing, but is never 0.
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

    /// False when another thread was faster.
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
        // Raw bytes: as lossy text, two paths that are not UTF-8 could be equal.
        Address::Unix(path) => {
            fingerprint(&[b"unix:".as_slice(), path.as_os_str().as_bytes()].concat())
        }
    }
}

/// A stable 64-bit hash: FNV-1a, the same on every host and in every release. Not collision resistant, so not
/// for input that an attacker can choose. Texts that differ only at the end have similar high bits: mix the
/// result before use.
pub fn fingerprint(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    bytes.iter().fold(OFFSET, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    })
}

/// The origin of [`millis`]: its first use in the process.
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

/// Starts at 1: 0 means never.
fn millis(instant: Instant) -> u64 {
    whole_millis(instant.saturating_duration_since(start())) + 1
}

fn instant(ms: u64) -> Instant {
    start() + Duration::from_millis(ms.saturating_sub(1))
}

/// Capped so that the sum of two fits into a [`Standing`].
fn whole_millis(duration: Duration) -> u64 {
    const MAX: u64 = 1 << 44;
    u64::try_from(duration.as_millis()).unwrap_or(MAX).min(MAX)
}

#[cfg(test)]
mod tests;
