//! The contract that every engine keeps, and how engines are started.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use super::pool::Pool;
use super::ticket::WorkItem;
use crate::memory::Budget;

/// Performs operations. The scheduler hands over one [`WorkItem`] after the other and keeps the bounds: at most
/// `depth` at a time per device, each with its memory reserved.
pub trait Engine: Send + Sync {
    /// Starts `work` and returns. Does not block, whatever the state of the disk, unless the engine's
    /// [`Description::blocks_on_loop`] says so. Accepts every item: the scheduler limits their number.
    ///
    /// An item owns its file and its memory until it is finished. So the memory stays valid while the kernel
    /// uses it, even after the client has left; the result is then dropped. An item that nobody waits for when
    /// it would start is dropped, which counts it as canceled; one that has started is not interrupted.
    ///
    /// Every item is finished once ([`Ticket::finish`](super::Ticket::finish)), on a thread of the engine
    /// (within this call if the engine blocks), and with no lock held. An engine continues short reads, and
    /// repeats calls that failed with EINTR or EAGAIN, until the requested bytes or the end of the file are
    /// reached: an [`op::Read`](crate::op::Read) has fewer bytes as its output only at the end of the file. It checks
    /// the size again after the last byte, so that no bytes are handed over that a truncation has cut off.
    /// Any other errno is passed on unchanged, and bytes read before it are dropped.
    ///
    /// [Changes](crate::op#changes) are left to the pool, also by an engine that blocks. A write is
    /// continued in the same way until all bytes are written, and keeps them until then. Writes, and reads of files
    /// that are open for writing, go through the page cache. A read of such a file is never shared with another read.
    fn submit(&self, work: WorkItem);

    /// A note for the operator on how the engine was started.
    fn note(&self) -> Option<&str> {
        None
    }

    /// Releases items that would not finish by themselves. Called once, when a shutdown begins.
    fn interrupt(&self) {}

    /// Ends the engine's own threads and waits for them. Called once, when all items are finished.
    fn shutdown(&self) {}
}

/// An engine, as a row of [`ENGINES`](super::ENGINES).
#[derive(Debug, Clone, Copy)]
pub struct Description {
    /// The value of `disk.engine`, the label on metrics and the name of the source file (with `_` in place
    /// of `-`).
    pub name: &'static str,
    /// Other names that `disk.engine` accepts.
    pub aliases: &'static [&'static str],
    /// One line for help and documentation.
    pub summary: &'static str,
    /// For tests; not offered in help.
    pub hidden: bool,
    /// `Engine::submit` performs opens and reads itself, on the calling thread, however long that takes.
    pub blocks_on_loop: bool,
    /// Some of the bytes leave by `sendfile` on the event loop: a guard must allow that call.
    pub needs_sendfile: bool,
    /// Checks whether the engine can run here. May block.
    pub probe: fn() -> Result<(), Unavailable>,
    /// Starts the engine. Blocks. Call it before a guard is installed, because threads inherit it.
    pub start: fn(&StartContext<'_>) -> Result<Box<dyn Engine>, StartError>,
}

/// The arguments for starting an engine.
pub struct StartContext<'a> {
    /// The name in its [`Description`].
    pub(super) name: &'static str,
    /// Threads that may block, shared by all engines of a disk.
    pub(super) pool: &'a Arc<Pool>,
    /// The memory for the bytes read.
    pub(super) budget: &'a Budget,
    /// The maximum number of jobs in the engine: the sum over devices, because a frozen one keeps its share.
    pub(super) jobs_max: usize,
    /// The text after a colon in the setting, which only engines of tests have.
    pub options: Option<&'a str>,
}

impl StartContext<'_> {
    pub(super) fn unavailable(&self, error: &io::Error) -> StartError {
        StartError::Unavailable {
            engine: self.name,
            why: Unavailable::from_error(error),
        }
    }
}

/// Why a disk or an engine could not be started.
#[derive(Debug)]
pub enum StartError {
    /// No engine has that name.
    UnknownEngine {
        /// The name that was given.
        name: String,
        /// The names that exist.
        known: &'static [&'static str],
    },
    /// The engine cannot run here.
    Unavailable {
        /// Its name.
        engine: &'static str,
        /// Why, and what to do.
        why: Unavailable,
    },
    /// A value of [`Settings`](crate::Settings), or of `LEVITY_SIMULATED`, cannot work.
    Setting(String),
    /// A thread could not be started.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::UnknownEngine { name, known } => {
                write!(f, "no disk engine is called \"{name}\"; there are ")?;
                write!(f, "{}", known.join(", "))
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

/// Why an engine cannot run here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unavailable {
    /// The errno of the call that failed.
    pub errno: i32,
    /// The remedy.
    pub hint: &'static str,
}

impl Unavailable {
    /// For an error from setting up a ring or starting a thread.
    pub(super) fn from_error(error: &io::Error) -> Unavailable {
        let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
        Unavailable {
            errno: errno.raw_os_error(),
            hint: hint(errno),
        }
    }
}

fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::PERM | Errno::ACCESS => {
            "a seccomp filter (as in most containers) or the sysctl kernel.io_uring_disabled forbids it"
        }
        Errno::NOSYS => "this kernel was built without it, or is too old",
        Errno::OPNOTSUPP | Errno::INVAL => "this kernel is too old for it",
        Errno::NOMEM => "raise the limit on locked memory (ulimit -l, LimitMEMLOCK=)",
        Errno::MFILE | Errno::NFILE => "raise the limit on open files (ulimit -n, LimitNOFILE=)",
        Errno::AGAIN => "raise the limit on threads (ulimit -u, TasksMax=)",
        _ => "choose another engine",
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = io::Error::from_raw_os_error(self.errno);
        write!(f, "{error}: {}", self.hint)
    }
}

impl std::error::Error for Unavailable {}
