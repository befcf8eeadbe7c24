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
pub mod bell;
mod depth;
pub mod disk;
pub mod engine;
mod engines;
mod fair;
mod files;
mod flight;
mod ghosts;
pub mod guard;
mod intake;
mod lane;
mod lanes;
mod loads;
mod lock;
pub mod memory;
mod outage;
mod pace;
pub mod processor;
mod pulse;
mod scheduler;
pub mod stats;
mod syscall;
pub mod transmit;
pub mod usage;

pub use disk::{Disk, Settings, StartError};
pub use engine::{
    Class, Completion, Direct, Done, EngineId, First, Job, Lookup, Op, Ready, Reply, Terms,
    Variants,
};
pub use files::{
    Entry, FileSystem, Inline, Kind, Listing, Meta, OpenFile, Root, Spool, Symlinks, Watch,
    WatchStats, Watcher, accept_variant, left_root, set_direct_files_max, unclosed,
};
pub use memory::{Budget, Buffer};
pub use outage::{Outage, Stage};
pub use stats::Stats;
