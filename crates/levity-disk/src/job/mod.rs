//! A job: an operation on a disk, how it is to be done, and who gets its outcome.

mod change;
mod completion;
mod error;
pub mod op;
mod open;
mod ready;

use std::fmt;
use std::time::SystemTime;

pub use completion::Completion;
pub(crate) use error::Refusal;
pub use error::{is_dead, is_full};
pub use op::{Done, First, Lookup, Op, Opened, Operation, Variants};
pub use ready::{COPIED_BYTES, Ready};

use crate::files::Meta;

/// One operation for a [`Disk`](crate::Disk).
pub struct Job {
    /// The operation.
    pub op: Op,
    /// Its urgency.
    pub class: Class,
    /// The client: a number that one connection has to itself in this process. Devices are shared fairly
    /// between streams.
    pub stream: u64,
    /// How to read.
    pub options: ReadOptions,
    /// The receiver of the completion.
    pub reply: Box<dyn Reply>,
}

impl Job {
    /// A job of stream 0 with default options.
    pub fn new(op: impl Into<Op>, class: Class, reply: Box<dyn Reply>) -> Job {
        Job {
            op: op.into(),
            class,
            stream: 0,
            options: ReadOptions::default(),
            reply,
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({:?}, {:?})", self.class, self.op)
    }
}

/// The urgency of a job: opens and first chunks go before bulk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Opens, listings and first chunks: the client has received nothing yet.
    First,
    /// Later chunks: the client is already receiving. Writes: it is still sending. Also what no client waits for,
    /// such as a sync.
    Later,
    /// Read-ahead: nobody waits for the chunk yet. A prefetch is never queued. If it cannot start at once
    /// without delaying a job of another class, it is refused ([`is_full`]). A job that asks for the same
    /// bytes while the prefetch is in flight joins it.
    Prefetch,
}

/// How the files of a location are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadOptions {
    /// The engine, one that [`Disk::engine_for`](crate::Disk::engine_for) has started. `None` is the
    /// disk's own engine; where that was chosen by `auto`, reads past the page cache may use another one.
    pub engine: Option<EngineId>,
    /// Whether to read past the page cache.
    pub direct: Direct,
    /// Whether all of a file may be [in a pipe](Ready::Piped): the requester sends it to a plain TCP socket.
    pub to_pipe: bool,
    /// How files change.
    pub changes: Changes,
}

impl ReadOptions {
    /// Whether the outcome with these options is one for `other` too.
    pub(crate) fn suit(&self, other: &ReadOptions) -> bool {
        let reading = |options: &ReadOptions| (options.engine, options.direct, options.changes);
        reading(self) == reading(other)
    }
}

/// The index of an engine in [`ENGINES`](crate::engine::ENGINES). Only a disk that has started the engine
/// gives it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EngineId(pub(crate) u8);

/// When to read past the page cache (`O_DIRECT`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direct {
    /// Large files that only one stream has asked for, so that a single pass over a file evicts nothing
    /// that others keep asking for; and while memory is short, the first read of any file.
    #[default]
    Auto,
    /// Every read of a regular file that an engine makes.
    Always,
    /// No read.
    Never,
}

/// How the files of a location change, and so whether pages of the page cache may be sent by reference: who writes to
/// such a page changes what has not left the machine yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Changes {
    /// A new version takes the place of the old one, or the file is emptied first. One that has not changed for a
    /// minute is sent by reference.
    #[default]
    Renamed,
    /// Bytes are written over others. Files are sent by copy.
    InPlace,
    /// Not at all. Files are sent by reference.
    Never,
}

impl Changes {
    /// Whether `file`, at the time `now`, may be sent by reference.
    pub(crate) fn allow_references(self, file: &Meta, now: SystemTime) -> bool {
        match self {
            Changes::Renamed => !file.has_changed_lately(now),
            Changes::InPlace => false,
            Changes::Never => true,
        }
    }
}

/// The receiver of a completion.
pub trait Reply: Send {
    /// Whether anyone still waits. A job that nobody waits for is dropped without an answer if it has not
    /// started. Called under locks of the scheduler: must do no more than load an atomic.
    fn is_awaited(&self) -> bool;

    /// Receives the completion. Called at most once: from a thread of an engine or the scheduler, or from
    /// within [`Disk::submit`](crate::Disk::submit) or [`Disk::shutdown`](crate::Disk::shutdown). Must not
    /// block, and must not submit to, shut down or drop a disk; it may drop the completion, with its files
    /// and buffers. The job counts as in flight until this returns.
    fn send(self: Box<Self>, completion: Completion);
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn what_changes_in_place_or_lately_is_not_referred_to() {
        let file = Meta {
            ctime_s: 1000,
            ..Meta::from(rustix::fs::stat("/").unwrap())
        };
        // By the clock of a server that is ahead, too.
        for (now, renamed) in [(900, false), (1000, false), (1060, false), (1061, true)] {
            let now = UNIX_EPOCH + Duration::from_secs(now);
            let allowed = [Changes::Renamed, Changes::InPlace, Changes::Never]
                .map(|changes| changes.allow_references(&file, now));
            assert_eq!(allowed, [renamed, false, true], "{now:?}");
        }
    }
}
