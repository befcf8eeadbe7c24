//! A disk as its users see it: what it may use, how it is started, told to work and ended.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::depth::{DEPTH_MAX, DEPTH_START, Depth};
use crate::engine::{self, Choice, Description, EngineId, Job, Threads, Unavailable};
use crate::engines::Engines;
use crate::files::closer::Closer;
use crate::lock::lock;
use crate::memory::Budget;
use crate::outage::Outage;
use crate::scheduler::Scheduler;
use crate::stats::Stats;
use crate::syscall;

/// More threads than this are a mistake.
const THREADS_MAX: usize = 1024;

/// Less time than this is a mistake: a disk that spins up takes seconds.
const DEAD_AFTER_MIN: Duration = Duration::from_millis(10);

/// In bytes: less memory than this is a mistake.
const BUFFER_BYTES_MIN: usize = 1 << 20;

/// What a disk may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// One of [`engine::names`].
    pub engine: String,
    /// Threads in the pool at most; at least 2. They are started as they are needed. By
    /// default twice `depth`, or twice the most that it can become, and `stat_threads` more.
    pub threads: Option<usize>,
    /// How many of them only open and list. By default a quarter of `depth`, or an eighth of `threads`.
    pub stat_threads: Option<usize>,
    /// Jobs in flight per device. By default what makes the device do most, found out by trying: up to
    /// 32, or half of the threads that read.
    pub depth: Option<usize>,
    /// Jobs that wait, per device.
    pub queue_max: usize,
    /// Bytes of all buffers together, at least 1 MiB. It should be more than `depth` times the largest
    /// chunk, or a frozen device can hold all of it.
    pub buffer_bytes_max: usize,
    /// A device that has jobs in flight and finishes none of them for so long is taken for dead: jobs
    /// for it that no client has seen anything of are refused until it answers. At least 10 ms.
    pub dead_after: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            engine: engine::AUTO.to_owned(),
            threads: None,
            stat_threads: None,
            depth: None,
            queue_max: 4096,
            buffer_bytes_max: 64 << 20,
            dead_after: Duration::from_secs(5),
        }
    }
}

impl Settings {
    /// Says whether a disk could start with these values. Does not try the engine.
    ///
    /// # Errors
    /// [`StartError::Setting`], which names the values that do not fit together.
    pub fn check(&self) -> Result<(), StartError> {
        self.bounds().map(drop)
    }

    /// Fills in what is not set, and refuses what cannot work.
    fn bounds(&self) -> Result<Bounds, StartError> {
        let (depth, threads) = self.sizes();
        let readers = threads.total.saturating_sub(threads.stat);
        let depth_max = depth.max();
        let refused = |text: String| Err(StartError::Setting(text));
        if threads.total > THREADS_MAX {
            refused(format!("threads must be at most {THREADS_MAX}"))
        } else if depth_max == 0 {
            refused("depth must be at least 1".to_owned())
        } else if readers <= depth_max {
            refused(format!(
                "threads ({}) less stat_threads ({}) must be more than depth ({depth_max}), or one \
                 disk that freezes stops all the others",
                threads.total, threads.stat
            ))
        } else if self.queue_max == 0 {
            refused("queue_max must be at least 1".to_owned())
        } else if self.buffer_bytes_max < BUFFER_BYTES_MIN {
            refused(format!(
                "buffer_bytes_max must be at least {BUFFER_BYTES_MIN}"
            ))
        } else if self.dead_after < DEAD_AFTER_MIN {
            refused(format!("dead_after must be at least {DEAD_AFTER_MIN:?}"))
        } else {
            Ok(Bounds {
                depth,
                queue_max: self.queue_max,
                threads,
                dead_after: self.dead_after,
            })
        }
    }

    fn sizes(&self) -> (DepthBound, Threads) {
        let depth = |max| match self.depth {
            Some(depth) => DepthBound::Fixed(depth),
            None => DepthBound::UpTo(max),
        };
        if let Some(total) = self.threads {
            let stat = self.stat_threads.unwrap_or(total / 8);
            let half = total.saturating_sub(stat) / 2;
            return (depth(half.clamp(1, DEPTH_MAX)), Threads { total, stat });
        }
        let depth = depth(DEPTH_MAX);
        let stat = self.stat_threads.unwrap_or(depth.max().div_ceil(4));
        let total = depth.max().saturating_mul(2).saturating_add(stat);
        (depth, Threads { total, stat })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) depth: DepthBound,
    pub(crate) queue_max: usize,
    pub(crate) threads: Threads,
    pub(crate) dead_after: Duration,
}

/// How many jobs may be in flight per device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DepthBound {
    Fixed(usize),
    /// What is best, but not more than this.
    UpTo(usize),
}

impl DepthBound {
    /// For a device of which nothing is known.
    pub(crate) fn start(self) -> Depth {
        match self {
            DepthBound::Fixed(depth) => Depth::fixed(depth),
            DepthBound::UpTo(max) => Depth::adaptive(max),
        }
    }

    /// The bound of [`DepthBound::start`].
    pub(crate) fn first(self) -> usize {
        match self {
            DepthBound::Fixed(depth) => depth,
            DepthBound::UpTo(max) => DEPTH_START.min(max),
        }
    }

    fn max(self) -> usize {
        match self {
            DepthBound::Fixed(max) | DepthBound::UpTo(max) => max,
        }
    }
}

/// Why a disk could not be started.
#[derive(Debug)]
pub enum StartError {
    /// There is no engine of that name.
    UnknownEngine(String),
    /// The engine cannot run here.
    Unavailable {
        /// Its name.
        engine: &'static str,
        /// Why, and what to do.
        why: Unavailable,
    },
    /// A value of [`Settings`], or of `LEVITY_SIMULATED`, cannot work.
    Setting(String),
    /// A thread could not be started.
    Thread(io::Error),
}

impl StartError {
    pub(crate) fn unavailable(engine: &'static str, error: &io::Error) -> StartError {
        StartError::Unavailable {
            engine,
            why: Unavailable::from_error(error),
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::UnknownEngine(name) => {
                let names: Vec<_> = engine::names().collect();
                write!(f, "no disk engine is called \"{name}\"; there are ")?;
                write!(f, "{}", names.join(", "))
            }
            StartError::Unavailable { engine, why } => {
                write!(f, "the disk engine {engine} cannot run here: {why}")
            }
            StartError::Setting(text) => f.write_str(text),
            StartError::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// The one that takes jobs. Dropping it shuts it down, and waits for that.
pub struct Disk {
    scheduler: Arc<Scheduler>,
    reason: String,
    /// Those that end with a shutdown; only who starts and ends a disk takes this lock.
    threads: Mutex<Option<(JoinHandle<()>, Closer)>>,
}

impl Disk {
    /// Starts an engine and its threads. Blocks. Call it before any guard is installed on the calling
    /// thread: new threads inherit it.
    ///
    /// From then on the process ignores SIGXFSZ, unless it has a handler: a file that may not become
    /// larger (`ulimit -f`, LimitFSIZE=) is an error, EFBIG, and not the end.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(settings: Settings) -> Result<Arc<Disk>, StartError> {
        syscall::ignore_sigxfsz();
        let chosen = Chosen::by(&settings.engine)?;
        Disk::start_engine(&settings, chosen)
    }

    /// Whatever `settings.engine` says.
    pub(crate) fn start_engine(
        settings: &Settings,
        chosen: Chosen<'_>,
    ) -> Result<Arc<Disk>, StartError> {
        let bounds = settings.bounds()?;
        let budget = Budget::new(settings.buffer_bytes_max);
        let Chosen {
            engine,
            for_direct,
            mut reason,
            options,
        } = chosen;
        let engines = Engines::start(engine, options, bounds.threads, &budget)?;
        if let Some(Err(error)) = for_direct.map(|engine| engines.add_for_direct(engine)) {
            // Tried a moment ago; but what it needs may be all in use by now.
            reason = format!("{reason}; but now {error}");
        }
        for note in engines.notes() {
            reason = format!("{reason}; {note}");
        }
        let scheduler = Arc::new(Scheduler::new(engines, bounds, budget));
        match Scheduler::start_threads(&scheduler) {
            Ok(threads) => Ok(Arc::new(Disk {
                scheduler,
                reason,
                threads: Mutex::new(Some(threads)),
            })),
            Err(error) => {
                scheduler.close();
                scheduler.finish();
                Err(StartError::Thread(error))
            }
        }
    }

    /// Takes a job. Never blocks and takes no lock, except where [`Disk::blocks_on_loop`].
    ///
    /// The answer comes through the job's reply, once, unless nobody wants it when its turn comes:
    /// then the job is dropped. Besides what the operation itself may answer, there are
    ///
    /// - an error that [`engine::is_full`] knows, when as many jobs wait for its device as may, or when
    ///   it is of class `First`, nobody waits before it and there is no memory: better a quick refusal
    ///   than a client kept waiting before its first byte. A job of class `Next` waits for memory in
    ///   the queue;
    /// - an error that [`engine::is_dead`] knows, when its device has not answered anything for
    ///   [`Settings::dead_after`] and it is not of class `Next`, which may also come while it is in flight;
    /// - `InvalidInput`, when it needs more memory than there will ever be;
    /// - ECANCELED, when it comes after [`Disk::shutdown`] or has not started by then.
    ///
    /// An answer of these kinds may come before this call returns.
    pub fn submit(&self, job: Job) {
        self.scheduler.submit(job);
    }

    /// Lets an open go along with one of the same name that began up to `age` before it: what it is told
    /// is then as old as that. Zero at first.
    pub fn set_open_age_max(&self, age: Duration) {
        self.scheduler.set_open_age_max(age);
    }

    /// Has `report` called when a device stops answering, while that lasts, and when it answers again. On
    /// the thread of the scheduler, which may wait a little but holds up jobs meanwhile. The first call
    /// counts.
    pub fn on_outage(&self, report: impl Fn(Outage) + Send + Sync + 'static) {
        self.scheduler.set_report(Box::new(report));
    }

    /// The engine for jobs that name none, never `auto`.
    pub fn engine(&self) -> &'static str {
        self.scheduler.engines().own().name()
    }

    /// The engine that `setting` stands for, one of [`engine::names`] or an alias: started, if it is
    /// not at work yet. `auto` is `None`, as in [`Terms`](crate::Terms): what the disk has chosen, or
    /// was told. Blocks, and must not be called on a thread that has a guard.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn engine_for(&self, setting: &str) -> Result<Option<EngineId>, StartError> {
        if setting == engine::AUTO {
            return Ok(None);
        }
        let Chosen {
            engine, options, ..
        } = Chosen::by(setting)?;
        self.scheduler.engines().add(engine, options).map(Some)
    }

    /// Why it is this one, and what there is to know of how it was started.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// What there is to know of how an engine of [`Disk::engine_for`] was started, by its own name.
    pub fn note(&self, engine: &str) -> Option<&str> {
        self.scheduler.engines().note(engine)
    }

    /// The memory for buffers, for [`Ready::into_bytes`](engine::Ready::into_bytes).
    pub fn budget(&self) -> &Budget {
        self.scheduler.budget()
    }

    /// Whether the device has a slot to spare and no queue, even if all jobs that the scheduler has not
    /// seen yet were for it. From Linux 6.12 on a `preadv2(RWF_NOWAIT)` that misses starts a read
    /// behind the scheduler's back: try one only when this is true. Takes no lock. Always false for a
    /// device that came after 64 others.
    pub fn has_room(&self, device: u64) -> bool {
        self.scheduler.has_room(device)
    }

    /// [`Disk::submit`] does the work of some jobs before it returns, and so may wait for the disk: one
    /// of the engines is `sendfile`. No guard can be installed where this is true.
    pub fn blocks_on_loop(&self) -> bool {
        self.scheduler.engines().any_blocks_on_loop()
    }

    /// Whether a [`guard`](crate::guard) must let `sendfile` through: one of the engines hands over what
    /// leaves by it.
    pub fn needs_sendfile(&self) -> bool {
        self.scheduler.engines().any_needs_sendfile()
    }

    /// What has been done so far. Takes a lock that threads of the pool take, for a moment: not for
    /// event loops.
    pub fn stats(&self) -> Stats {
        self.scheduler.stats()
    }

    /// Answers all jobs that have not started with ECANCELED, waits for those that have, and ends the
    /// threads. Blocks for as long as the slowest of them, which on a frozen device is forever. Jobs
    /// that come later are answered with ECANCELED. A second call does nothing.
    pub fn shutdown(&self) {
        let Some((owner, closer)) = lock(&self.threads).take() else {
            return;
        };
        self.scheduler.close();
        owner.join().expect("the scheduler does not panic");
        self.scheduler.finish();
        drop(closer);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Disk({}: {})", self.engine(), self.reason)
    }
}

/// What a setting stands for.
pub(crate) struct Chosen<'a> {
    pub(crate) engine: &'static Description,
    /// Another one, for reads past the page cache.
    pub(crate) for_direct: Option<&'static Description>,
    pub(crate) reason: String,
    /// What followed a colon.
    pub(crate) options: Option<&'a str>,
}

impl Chosen<'_> {
    fn by(setting: &str) -> Result<Chosen<'_>, StartError> {
        if setting == engine::AUTO {
            let Choice {
                engine,
                for_direct,
                reason,
            } = engine::choose();
            return Ok(Chosen {
                engine,
                for_direct,
                reason,
                options: None,
            });
        }
        let (name, options) = match setting.split_once(':') {
            Some((before, options)) => (before, Some(options)),
            None => (setting, None),
        };
        let engine = engine::find(name)
            .filter(|engine| options.is_none() || engine.hidden)
            .ok_or_else(|| StartError::UnknownEngine(setting.to_owned()))?;
        (engine.probe)().map_err(|why| StartError::Unavailable {
            engine: engine.name,
            why,
        })?;
        Ok(Chosen {
            engine,
            for_direct: None,
            reason: "chosen by name".to_owned(),
            options,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_survives_a_frozen_device() {
        for threads in (2..200).map(Some).chain([None]) {
            for stat_threads in [None, Some(0)] {
                let settings = Settings {
                    threads,
                    stat_threads,
                    ..Settings::default()
                };
                let Bounds { depth, threads, .. } = settings.bounds().unwrap();
                assert!(threads.total - threads.stat > depth.max(), "{settings:?}");
                assert!((1..=DEPTH_MAX).contains(&depth.max()), "{settings:?}");
            }
        }
    }

    #[test]
    fn threads_follow_depth() {
        let settings = Settings {
            depth: Some(40),
            ..Settings::default()
        };
        let threads = settings.bounds().unwrap().threads;
        assert_eq!((threads.total, threads.stat), (90, 10));
    }
}
