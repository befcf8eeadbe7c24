//! A disk: started, given jobs and shut down.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::engine::{self, Choice, Description, Engines, StartError};
use crate::files::closer::Closer;
use crate::job::{EngineId, Job};
use crate::memory::Budget;
use crate::scheduler::{Outage, Scheduler};
use crate::settings::Settings;
use crate::stats::Stats;
use crate::syscall;
use crate::thread::lock;

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
        let (bounds, threads) = settings.bounds()?;
        let budget = Budget::new(settings.buffer_bytes_max);
        let Chosen {
            engine,
            for_direct,
            mut reason,
            options,
        } = chosen;
        let engines = Engines::start(engine, options, threads, &budget)?;
        if let Some(Err(error)) = for_direct.map(|engine| engines.add_for_direct(engine)) {
            // Tried a moment ago; but what it needs may be all in use by now.
            reason = format!("{reason}; but now {error}");
        }
        for note in engines.notes() {
            reason = format!("{reason}; {note}");
        }
        let scheduler = Arc::new(Scheduler::new(engines, bounds, budget));
        match start_threads(&scheduler) {
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
    /// - an error that [`is_full`](crate::is_full) knows, when as many jobs wait for its device as may, or when
    ///   it is of class `First`, nobody waits before it and there is no memory: better a quick refusal
    ///   than a client kept waiting before its first byte. A job of class `Next` waits for memory in
    ///   the queue;
    /// - an error that [`is_dead`](crate::is_dead) knows, when its device has not answered anything for
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

    /// The engine that `setting` stands for, one of [`engine::NAMES`] or an alias: started, if it is
    /// not at work yet. `auto` is `None`, as in [`ReadOptions`](crate::ReadOptions): what the disk has chosen, or
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

    /// The memory for buffers, for [`Ready::into_bytes`](crate::Ready::into_bytes).
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

    /// Whether a [`guard`](crate::thread::guard) must let `sendfile` through: one of the engines hands over what
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

fn start_threads(scheduler: &Arc<Scheduler>) -> io::Result<(JoinHandle<()>, Closer)> {
    let closer = Closer::start()?;
    Ok((scheduler.start_thread()?, closer))
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
            .ok_or_else(|| StartError::UnknownEngine {
                name: setting.to_owned(),
                known: engine::NAMES,
            })?;
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
