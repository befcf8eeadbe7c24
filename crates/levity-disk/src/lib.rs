//! Every file system call that Levity makes, and all of its `unsafe` code.
//!
//! The crate knows files and devices; it knows no HTTP, no sockets beyond "write this to that
//! descriptor", and no async runtime. A caller builds a [`Job`], hands it to [`Disk::submit`], which
//! never blocks (except under the `sendfile` engine, whose point that is), and gets one
//! [`Completion`] through the job's [`Reply`].
//!
//! Read [`engine`] first: it holds the contract that every engine keeps, and the table of engines.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!(
    "levity-disk needs Linux on a processor of 64 bits: ARCHITECTURE.md says what it would take elsewhere"
);

mod aio;
mod atime;
pub mod bell;

mod closer;
mod crossing;
mod depth;
pub mod direct;
pub mod disk;
pub mod engine;
mod engines;
mod fair;
mod flight;
mod ghosts;
pub mod guard;
pub mod inline;
mod intake;
mod lane;
mod lanes;
mod listing;
mod loads;
mod lock;
pub mod memory;
mod mounts;
pub mod open;
mod outage;
mod pace;

pub mod probe;
pub mod processor;
mod pulse;
mod scheduler;
mod spool;
pub mod stats;
mod syscall;
pub mod transmit;
mod unlink;
pub mod usage;
pub mod watch;

pub use closer::unclosed;
pub use disk::{Disk, Settings, StartError};
pub use engine::{
    Class, Completion, Direct, Done, EngineId, Entry, First, Job, Listing, Lookup, Op, Ready,
    Reply, Terms, Variants,
};
pub use inline::Inline;
pub use memory::{Budget, Buffer};
pub use open::{Kind, Meta, OpenFile, Root, Symlinks};
pub use outage::{Outage, Stage};
pub use probe::FileSystem;
pub use spool::Spool;
pub use stats::Stats;
pub use watch::{Watch, Watcher};
