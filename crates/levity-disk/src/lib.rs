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

mod disk;
pub mod engine;
mod files;
mod job;
pub mod memory;
mod scheduler;
mod settings;
pub mod stats;
mod syscall;
mod thread;
pub mod transmit;

pub use disk::Disk;
pub use engine::StartError;
pub use files::{
    Entry, FileSystem, Inline, Kind, Listing, Meta, OpenFile, Root, Spool, Symlinks, Watch,
    WatchStats, Watcher, accept_variant, left_root, set_direct_files_max, unclosed,
};
pub use job::{
    Class, Completion, Direct, Done, EngineId, First, Job, Lookup, Op, ReadOptions, Ready, Reply,
    Variants, is_dead, is_full,
};
pub use memory::{Budget, Buffer};
pub use scheduler::{Outage, Stage};
pub use settings::Settings;
pub use stats::Stats;
pub use thread::{Parker, guard, priority, usage};
