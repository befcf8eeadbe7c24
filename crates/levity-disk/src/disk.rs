//! A disk: started, given jobs and shut down.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::engine::{self, Choice, Engines, StartError};
use crate::files::closer::Closer;
use crate::job::{EngineId, Job};
use crate::memory::Budget;
use crate::scheduler::{Outage, Scheduler};
use crate::settings::Settings;
use crate::stats::Stats;
use crate::syscall;
use crate::thread::lock;

/// A disk: accepts jobs. The drop shuts it down, and blocks until that is done.
pub struct Disk {
    scheduler: Arc<Scheduler>,
    reason: String,
    /// The threads that end with a shutdown. Locked only to start and to shut down.
    threads: Mutex<Option<(JoinHandle<()>, Closer)>>,
}

impl Disk {
    /// Starts an engine and the threads. Blocks. Call it before a guard is installed on the calling thread,
    /// because threads inherit it.
    ///
    /// From then on the process ignores SIGXFSZ, unless it has a handler: a write beyond the limit on the size
    /// of files (`ulimit -f`, LimitFSIZE=) fails with EFBIG instead of ending the process.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(settings: Settings) -> Result<Arc<Disk>, StartError> {
        syscall::ignore_sigxfsz();
        Disk::start_engine(&settings, Choice::of(&settings.engine)?)
    }

    /// As [`Disk::start`], with `choice` in place of `settings.engine`.
    pub(crate) fn start_engine(
        settings: &Settings,
        choice: Choice<'_>,
    ) -> Result<Arc<Disk>, StartError> {
        let (bounds, threads) = settings.bounds()?;
        let budget = Budget::new(settings.buffer_bytes_max);
        let engines = Engines::start(choice.engine, choice.options, threads, &budget)?;
        let mut reason = choice.reason;
        let for_direct = choice.for_direct;
        if let Some(Err(error)) = for_direct.map(|engine| engines.add_for_direct(engine)) {
            // The probe succeeded, but its resources may be exhausted by now.
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

    /// Submits a job. Does not block and takes no lock, unless [`Disk::blocks_on_loop`].
    ///
    /// The job's reply receives one completion, unless nobody waits when the job would start: then it is
    /// dropped. In addition to the errors of the operation there are:
    ///
    /// - an error that [`is_full`](crate::is_full) recognises, if the queue of the device is full; or if the job
    ///   is of class `First`, no job waits before it and there is no memory, as a quick refusal is better
    ///   than a wait before the first byte. A job of class `Later` waits for memory in the queue;
    /// - an error that [`is_dead`](crate::is_dead) recognises, if the device has not answered for
    ///   [`Settings::dead_after`] and the job is not of class `Later`; also while the job is in flight;
    /// - `InvalidInput`, if it needs more memory than the budget has;
    /// - ECANCELED, if it is submitted after [`Disk::shutdown`], or has not started by then.
    ///
    /// The reply may receive such an error before this call returns.
    pub fn submit(&self, job: Job) {
        self.scheduler.submit(job);
    }

    /// Lets an open join one of the same path that started up to `age` before it: its outcome may then be that
    /// old. Initially zero.
    pub fn set_open_age_max(&self, age: Duration) {
        self.scheduler.set_open_age_max(age);
    }

    /// Says that for `time` event loops have other work than to send what was read. Where the processor is the limit
    /// and not the disk, fewer jobs are then in flight: their threads would only take the processor from the
    /// loops. Neither blocks nor takes a lock.
    pub fn loops_first(&self, time: Duration) {
        self.scheduler.loops_first(time);
    }

    /// Sets the function that is called when a device stops answering, while that lasts, and when it answers
    /// again. It is called on the scheduler's thread: while it blocks, jobs are delayed. Only the first call
    /// has an effect.
    pub fn on_outage(&self, report: impl Fn(Outage) + Send + Sync + 'static) {
        self.scheduler.on_outage(Box::new(report));
    }

    /// The engine for jobs that name none, never `auto`.
    pub fn engine(&self) -> &'static str {
        self.scheduler.engines().own().name()
    }

    /// The engine for `setting`, one of [`engine::NAMES`] or an alias. Starts it unless it runs. For `auto` it is
    /// `None`, which in [`ReadOptions`](crate::ReadOptions) is the disk's own engine. Blocks, and must not be
    /// called on a thread with a guard.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn engine_for(&self, setting: &str) -> Result<Option<EngineId>, StartError> {
        if setting == engine::AUTO {
            return Ok(None);
        }
        let choice = Choice::of(setting)?;
        let engines = self.scheduler.engines();
        engines.add(choice.engine, choice.options).map(Some)
    }

    /// Why [`Disk::engine`] was chosen, and notes on how it was started.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// A note on how an engine of [`Disk::engine_for`] was started, by the name of the engine.
    pub fn note(&self, engine: &str) -> Option<&str> {
        self.scheduler.engines().note(engine)
    }

    /// The memory for buffers, for [`Ready::into_bytes`](crate::Ready::into_bytes).
    pub fn budget(&self) -> &Budget {
        self.scheduler.budget()
    }

    /// Whether the device has a free slot and no queue, even if all jobs that have just been submitted were for it.
    /// From Linux 6.12 on a `preadv2(RWF_NOWAIT)` that misses starts a read of which the scheduler does not
    /// know: try one only if this is true. Takes no lock. False for all devices after the first 64.
    pub fn has_room(&self, device: u64) -> bool {
        self.scheduler.has_room(device)
    }

    /// Whether [`Disk::submit`] does the work of some jobs before it returns, and so may block on the disk: one
    /// of the engines is `sendfile`. Then no guard can be installed.
    pub fn blocks_on_loop(&self) -> bool {
        self.scheduler.engines().any_blocks_on_loop()
    }

    /// Whether a [`guard`](crate::guard) must allow `sendfile`: one of the engines hands over bytes that leave by
    /// that call.
    pub fn needs_sendfile(&self) -> bool {
        self.scheduler.engines().any_needs_sendfile()
    }

    /// The counters. Takes a lock that threads of the pool take for a moment: not for event loops.
    pub fn stats(&self) -> Stats {
        self.scheduler.stats()
    }

    /// Answers all jobs that have not started with ECANCELED, waits for the others, and ends the threads. Blocks
    /// until the slowest job is done, which on a frozen device is forever. Jobs submitted later are answered
    /// with ECANCELED. A second call does nothing.
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
