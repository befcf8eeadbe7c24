//! Roots that follow their path: a changed link or a replaced folder is detected.
//!
//! The disk's threads check the path of a root every `disk.entry_ttl`. While the root is in use, no request
//! waits for that. A root that is not in use is not checked; its next request waits for one check.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use levity_disk::{Class, Completion, Disk, Job, Reply, Root, op};
use levity_net::SWEEP_INTERVAL;
use levity_telemetry::diagnostics;
use rustix::io::Errno;

/// A root is no longer checked after this time without requests. Its cached files are closed then, too.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// A check may be late by this much before requests wait for one, because event loops are busy at times.
const LATE_MAX: Duration = Duration::from_millis(500);

/// A root is gone after this many consecutive checks that found nothing. `ln -sfn` removes the old link
/// before it makes the new one, and so does `mv` when a folder is replaced.
const MISSES_MAX: u32 = 2;

/// Failed checks within this time count as one. Each event loop makes checks, so two may come at once.
const GAP_MAX: Duration = SWEEP_INTERVAL;

/// The root at a path at present.
#[derive(Debug)]
pub struct LiveRoot {
    current: ArcSwap<Root>,
    /// Changes whenever the root is replaced, disappears or returns.
    generation: AtomicU32,
    gone: AtomicBool,
    /// Consecutive checks that found nothing.
    misses: AtomicU32,
    /// The time of the first of them, in milliseconds since `born`.
    missed_ms: AtomicU64,
    /// A check without a waiting request is in progress.
    is_checking: AtomicBool,
    born: Instant,
    /// The last check, or the time when it was found to be slow; in milliseconds since `born`.
    checked_ms: AtomicU64,
    /// The last request, with a resolution of a second; in milliseconds since `born`, 0 for none.
    used_ms: AtomicU64,
}

/// A folder whose files applications may delegate.
#[derive(Clone)]
pub struct SendfileRoot {
    /// The configured path, absolute.
    pub named: PathBuf,
    /// The root at that path.
    pub root: Arc<LiveRoot>,
}

impl LiveRoot {
    /// Wraps a root that was just opened.
    pub fn new(root: Arc<Root>) -> Arc<Self> {
        Arc::new(Self {
            current: ArcSwap::new(root),
            generation: AtomicU32::new(0),
            gone: AtomicBool::new(false),
            misses: AtomicU32::new(0),
            missed_ms: AtomicU64::new(0),
            is_checking: AtomicBool::new(false),
            born: Instant::now(),
            checked_ms: AtomicU64::new(0),
            used_ms: AtomicU64::new(0),
        })
    }

    /// Part of the cache key of its files. Read it before the root, so that what is cached under a generation
    /// belongs to that root or to a later one.
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// The root. A request continues with the root that it began with.
    ///
    /// # Errors
    /// ENOENT when nothing is at the path: files of the old root are not served.
    pub fn current(&self) -> io::Result<Arc<Root>> {
        match self.gone.load(Ordering::Acquire) {
            true => Err(Errno::NOENT.into()),
            false => Ok(self.last()),
        }
    }

    /// The last known root.
    pub fn last(&self) -> Arc<Root> {
        self.current.load_full()
    }

    /// Records that a request at `now` uses the root. True when the last check is too old, so that the
    /// request has to wait for one.
    pub fn note_use(&self, now: Instant, ttl: Duration) -> bool {
        let now_ms = self.ms(now);
        let used_ms = self.used_ms.load(Ordering::Relaxed);
        // Written rarely, because all event loops share the cache line.
        if used_ms == 0 || now_ms >= used_ms + 1000 {
            self.used_ms.store(now_ms.max(1), Ordering::Relaxed);
        }
        self.age(now_ms) > interval(ttl) + LATE_MAX
    }

    /// Starts a check if one is due. Does not wait. Each event loop calls it every [`SWEEP_INTERVAL`].
    pub fn check_if_due(self: &Arc<Self>, disk: &Disk, now: Instant, ttl: Duration) {
        let now_ms = self.ms(now);
        let used_ms = self.used_ms.load(Ordering::Relaxed);
        let unused = Duration::from_millis(now_ms.saturating_sub(used_ms));
        let is_used = used_ms > 0 && unused <= IDLE_MAX;
        if !is_used || self.age(now_ms) < interval(ttl) {
            return;
        }
        if self.is_checking.swap(true, Ordering::Relaxed) {
            // The check is slow because the disk is busy or frozen. Requests continue with the last result.
            self.checked_ms.store(now_ms, Ordering::Relaxed);
            return;
        }
        let root = self.last();
        let reply = Box::new(BackgroundCheck {
            live: self.clone(),
            root: root.clone(),
        });
        let check = op::CheckRoot { root };
        disk.submit(Job::new(check, Class::First, reply));
    }

    /// Applies the result of a check of `root`. Requests that waited for the same check all call this.
    pub fn apply_check(&self, root: &Arc<Root>, result: io::Result<Option<Arc<Root>>>) {
        if !Arc::ptr_eq(root, &self.last()) {
            // Another check has found a later root.
            return;
        }
        match result {
            Ok(None) if !self.gone.load(Ordering::Relaxed) => {
                self.misses.store(0, Ordering::Relaxed)
            }
            Ok(found) => self.switch_to(found.unwrap_or_else(|| self.last())),
            Err(error) if leads_nowhere(&error) => self.miss(&error),
            // The disk failed, or the process is out of descriptors: that says nothing about the path.
            Err(_) => {}
        }
        // A miss may be the gap in a replacement: the next sweep checks again.
        if !(1..MISSES_MAX).contains(&self.misses.load(Ordering::Relaxed)) {
            let now_ms = self.ms(Instant::now());
            self.checked_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    fn switch_to(&self, root: Arc<Root>) {
        let path = root.path().display();
        diagnostics::log(format_args!(
            "{} now resolves to {path}",
            root.named().display()
        ));
        self.current.store(root);
        self.misses.store(0, Ordering::Relaxed);
        self.gone.store(false, Ordering::Release);
        self.generation.fetch_add(1, Ordering::Release);
    }

    fn miss(&self, error: &io::Error) {
        let misses = self.misses.load(Ordering::Relaxed) + 1;
        let now_ms = self.ms(Instant::now());
        if misses == 1 {
            self.missed_ms.store(now_ms, Ordering::Relaxed);
        } else if now_ms < self.missed_ms.load(Ordering::Relaxed) + GAP_MAX.as_millis() as u64 {
            // The same check, or that of another event loop, within the same gap.
            return;
        }
        self.misses.store(misses.min(MISSES_MAX), Ordering::Relaxed);
        if misses >= MISSES_MAX && !self.gone.swap(true, Ordering::Release) {
            self.generation.fetch_add(1, Ordering::Release);
            let last = self.last();
            let named = last.named().display();
            diagnostics::log(format_args!(
                "{named} does not resolve, its files are missing: {error}"
            ));
        }
    }

    fn age(&self, now_ms: u64) -> Duration {
        let checked_ms = self.checked_ms.load(Ordering::Relaxed);
        Duration::from_millis(now_ms.saturating_sub(checked_ms))
    }

    fn ms(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.born).as_millis() as u64
    }
}

/// The interval between checks.
fn interval(ttl: Duration) -> Duration {
    ttl.max(SWEEP_INTERVAL)
}

/// Whether the error means that the path leads to no directory.
fn leads_nowhere(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    error.kind() == io::ErrorKind::InvalidInput
        || matches!(errno, Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

/// A check without a waiting request.
struct BackgroundCheck {
    live: Arc<LiveRoot>,
    /// The root that is checked.
    root: Arc<Root>,
}

impl Reply for BackgroundCheck {
    fn is_awaited(&self) -> bool {
        true
    }

    fn send(self: Box<Self>, completion: Completion) {
        let completion = completion.of::<op::CheckRoot>();
        self.live.apply_check(&self.root, completion.result);
    }
}

impl Drop for BackgroundCheck {
    fn drop(&mut self) {
        self.live.is_checking.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levity_disk::Symlinks;

    fn folders<const N: usize>() -> [(tempfile::TempDir, Arc<Root>); N] {
        std::array::from_fn(|_| {
            let folder = tempfile::tempdir().expect("a folder");
            let root = Root::open(folder.path(), Symlinks::Beneath).expect("a root");
            (folder, root)
        })
    }

    fn nothing() -> io::Result<Option<Arc<Root>>> {
        Err(Errno::NOENT.into())
    }

    /// Requests that wait for one check, or two event loops that check at the same time.
    #[test]
    fn what_looks_find_at_once_counts_once() {
        let [(_a, first), (_b, second)] = folders();
        let live = LiveRoot::new(first.clone());
        let start = Instant::now();
        while live.current().is_ok() {
            live.apply_check(&first, nothing());
        }
        let taken = start.elapsed() + Duration::from_millis(1);
        assert!(taken >= GAP_MAX, "gone after {taken:?}");
        for _ in 0..3 {
            live.apply_check(&first, Ok(Some(second.clone())));
        }
        assert_eq!(live.generation(), 2);
        assert!(Arc::ptr_eq(&live.current().expect("a root"), &second));
    }

    #[test]
    fn a_look_at_an_earlier_root_changes_nothing() {
        let [(_a, first), (_b, second), (_c, third)] = folders();
        let live = LiveRoot::new(first.clone());
        live.apply_check(&first, Ok(Some(second.clone())));
        live.apply_check(&second, Ok(Some(third.clone())));
        live.apply_check(&first, Ok(Some(second)));
        assert!(Arc::ptr_eq(&live.current().expect("a root"), &third));
        assert_eq!(live.generation(), 2);
    }
}
