//! Roots that follow their path: a link that is switched, or a folder that is replaced, is noticed.
//!
//! What the path of a root leads to is looked at again every `disk.entry_ttl`, by the disk's threads. No
//! request waits for that while the root is in use. A root that nobody has asked for lately is not looked
//! at; the next request then waits for one look.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use levity_disk::{Class, Completion, Disk, Done, Job, Op, Reply, Root};
use levity_net::SWEEP_INTERVAL;
use levity_telemetry::diagnostics;
use rustix::io::Errno;

/// A root is no longer looked at when nobody has asked for it for so long. CacheSlot files are closed then, too.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// A look may be late by so much before requests wait for one: loops are busy at times.
const LATE_MAX: Duration = Duration::from_millis(500);

/// So many looks in a row must find nothing before a root is gone. `ln -sfn` removes the old link before
/// it makes the new one, and so does `mv` of a folder out of the way of its successor.
const MISSES_MAX: u32 = 2;

/// Looks that find nothing count as one for so long. Each loop looks, so two looks may come at once.
const GAP_MAX: Duration = SWEEP_INTERVAL;

/// A root as its path leads to it now.
#[derive(Debug)]
pub struct LiveRoot {
    current: ArcSwap<Root>,
    /// Another number for each root, and for its absence.
    generation: AtomicU32,
    gone: AtomicBool,
    /// Looks in a row that found nothing.
    misses: AtomicU32,
    /// When the first of them came back; in milliseconds since `born`.
    missed_ms: AtomicU64,
    /// A look is under way that no request waits for.
    looking: AtomicBool,
    born: Instant,
    /// When it was looked at last, or a look was found to take long; in milliseconds since `born`.
    looked_ms: AtomicU64,
    /// When a request asked for it last, to the second; in milliseconds since `born`, 0 for never.
    used_ms: AtomicU64,
}

/// A folder whose files an application may have sent.
#[derive(Clone)]
pub struct SendfileRoot {
    /// As the operator wrote it, absolute.
    pub named: PathBuf,
    /// Open.
    pub root: Arc<LiveRoot>,
}

impl LiveRoot {
    /// A root that was just opened.
    pub fn new(root: Arc<Root>) -> Arc<Self> {
        Arc::new(Self {
            current: ArcSwap::new(root),
            generation: AtomicU32::new(0),
            gone: AtomicBool::new(false),
            misses: AtomicU32::new(0),
            missed_ms: AtomicU64::new(0),
            looking: AtomicBool::new(false),
            born: Instant::now(),
            looked_ms: AtomicU64::new(0),
            used_ms: AtomicU64::new(0),
        })
    }

    /// Belongs into the key of whatever is kept of its files. To be asked for before the root: what is
    /// kept under a number is of that root or of a later one.
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// The root. A request that has begun with one goes on with it.
    ///
    /// # Errors
    /// ENOENT when the path leads nowhere: what is left of the old root is not served.
    pub fn current(&self) -> io::Result<Arc<Root>> {
        match self.gone.load(Ordering::Acquire) {
            true => Err(Errno::NOENT.into()),
            false => Ok(self.last()),
        }
    }

    /// The root as it was seen last.
    pub fn last(&self) -> Arc<Root> {
        self.current.load_full()
    }

    /// Notes that a request uses it that begins at `now`. Whether the request has to wait for a look, because
    /// there was none for too long.
    pub fn is_overdue(&self, now: Instant, ttl: Duration) -> bool {
        let now_ms = self.ms(now);
        let used_ms = self.used_ms.load(Ordering::Relaxed);
        // The memory is shared with all loops, so it is written to as seldom as possible.
        if used_ms == 0 || now_ms >= used_ms + 1000 {
            self.used_ms.store(now_ms.max(1), Ordering::Relaxed);
        }
        self.age(now_ms) > interval(ttl) + LATE_MAX
    }

    /// Has the disk look at it if it is time for that. Does not wait. To be called every
    /// [`SWEEP_INTERVAL`] by each loop.
    pub fn tend(self: &Arc<Self>, disk: &Disk, now: Instant, ttl: Duration) {
        let now_ms = self.ms(now);
        let used_ms = self.used_ms.load(Ordering::Relaxed);
        let unused = Duration::from_millis(now_ms.saturating_sub(used_ms));
        let is_used = used_ms > 0 && unused <= IDLE_MAX;
        if !is_used || self.age(now_ms) < interval(ttl) {
            return;
        }
        if self.looking.swap(true, Ordering::Relaxed) {
            // It takes long: the disk is busy or frozen. Requests go on with what is known.
            self.looked_ms.store(now_ms, Ordering::Relaxed);
            return;
        }
        let root = self.last();
        let reply = Box::new(Look {
            of: self.clone(),
            root: root.clone(),
        });
        let op = Op::CheckRoot { root };
        disk.submit(Job::new(op, Class::First, reply));
    }

    /// Takes in what a look at `root` has found. All who waited for one look come here with the same.
    pub fn settle(&self, root: &Arc<Root>, looked: io::Result<Option<Arc<Root>>>) {
        if !Arc::ptr_eq(root, &self.last()) {
            // Another one has told of a later root.
            return;
        }
        match looked {
            Ok(None) if !self.gone.load(Ordering::Relaxed) => {
                self.misses.store(0, Ordering::Relaxed)
            }
            Ok(found) => self.switch_to(found.unwrap_or_else(|| self.last())),
            Err(error) if leads_nowhere(&error) => self.miss(&error),
            // The disk failed, or the process has too many files open: that says nothing of the path.
            Err(_) => {}
        }
        // After a miss that may be the gap in a switch, the next sweep looks again.
        if !(1..MISSES_MAX).contains(&self.misses.load(Ordering::Relaxed)) {
            let now_ms = self.ms(Instant::now());
            self.looked_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    fn switch_to(&self, root: Arc<Root>) {
        let path = root.path().display();
        diagnostics::log(format_args!(
            "{} leads to {path} now",
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
            // The same look, or that of another loop, in the same gap.
            return;
        }
        self.misses.store(misses.min(MISSES_MAX), Ordering::Relaxed);
        if misses >= MISSES_MAX && !self.gone.swap(true, Ordering::Release) {
            self.generation.fetch_add(1, Ordering::Release);
            let last = self.last();
            let named = last.named().display();
            diagnostics::log(format_args!(
                "{named} leads nowhere now, its files are absent: {error}"
            ));
        }
    }

    fn age(&self, now_ms: u64) -> Duration {
        let looked_ms = self.looked_ms.load(Ordering::Relaxed);
        Duration::from_millis(now_ms.saturating_sub(looked_ms))
    }

    fn ms(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.born).as_millis() as u64
    }
}

/// How often a root is looked at.
fn interval(ttl: Duration) -> Duration {
    ttl.max(SWEEP_INTERVAL)
}

/// Whether the path of a root leads to nothing that could be one.
fn leads_nowhere(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    error.kind() == io::ErrorKind::InvalidInput
        || matches!(errno, Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

/// What an [`Op::CheckRoot`] has found.
pub fn looked(completion: Completion) -> io::Result<Option<Arc<Root>>> {
    match completion.result? {
        Done::RootChecked(root) => Ok(root),
        other => unreachable!("a look was answered with {other:?}"),
    }
}

/// A look that no request waits for.
struct Look {
    of: Arc<LiveRoot>,
    /// What is looked at.
    root: Arc<Root>,
}

impl Reply for Look {
    fn is_awaited(&self) -> bool {
        true
    }

    fn send(self: Box<Self>, completion: Completion) {
        self.of.settle(&self.root, looked(completion));
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.of.looking.store(false, Ordering::Relaxed);
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

    /// As when requests wait for it together, or two loops look at the same moment.
    #[test]
    fn what_looks_find_at_once_counts_once() {
        let [(_a, first), (_b, second)] = folders();
        let live = LiveRoot::new(first.clone());
        let start = Instant::now();
        while live.current().is_ok() {
            live.settle(&first, nothing());
        }
        let taken = start.elapsed() + Duration::from_millis(1);
        assert!(taken >= GAP_MAX, "gone after {taken:?}");
        for _ in 0..3 {
            live.settle(&first, Ok(Some(second.clone())));
        }
        assert_eq!(live.generation(), 2);
        assert!(Arc::ptr_eq(&live.current().expect("a root"), &second));
    }

    #[test]
    fn a_look_at_an_earlier_root_changes_nothing() {
        let [(_a, first), (_b, second), (_c, third)] = folders();
        let live = LiveRoot::new(first.clone());
        live.settle(&first, Ok(Some(second.clone())));
        live.settle(&second, Ok(Some(third.clone())));
        live.settle(&first, Ok(Some(second)));
        assert!(Arc::ptr_eq(&live.current().expect("a root"), &third));
        assert_eq!(live.generation(), 2);
    }
}
