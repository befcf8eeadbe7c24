//! Every file system call that Levity makes, and all of its `unsafe` code.
//!
//! The crate knows files and devices, but neither HTTP nor an async runtime, and of sockets only that
//! descriptors can be written to. A caller makes a [`Job`] and passes it to [`Disk::submit`], which does not
//! block (except under the `sendfile` engine, which is there to measure that). The job's [`Reply`] receives one
//! [`Completion`].
//!
//! Read [`engine`] first: it has the contract of engines and the table of those that exist. A job waits in the
//! scheduler until its device has room; files, memory and system calls are below both.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
// Engines share much, of which those that are left use a part.
#![cfg_attr(
    not(all(feature = "engines-all", feature = "io-uring")),
    allow(dead_code)
)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!(
    "levity-disk needs Linux on a processor of 64 bits: docs/decisions.md says what it would take elsewhere"
);

mod disk;
pub mod engine;
mod files;
mod job;
pub mod memory;
mod name_services;
mod permits;
mod pipe;
mod piped;
mod scheduler;
mod send_thread;
mod settings;
pub mod stats;
mod syscall;
mod thread;
pub mod transmit;

pub use disk::Disk;
pub use engine::StartError;
pub use files::{
    Clients, DirectoryReader, Entry, EntryStat, FileSystem, Inline, Kind, Listing, Meta,
    MountPoint, OpenFile, Room, Root, Secrets, Spool, Symlinks, TEMPORARY_PREFIX, Watch,
    WatchStats, Watcher, accept_variant, check_writable, end_patient_thread, late_returns,
    left_root, on_late, patiently, patiently_for_each, patiently_with, read_patiently, responds,
    set_direct_files_max, set_patience, set_unclosed_max,
};
pub use job::{
    Changes, Class, Completion, Direct, Done, EngineId, First, Job, Lookup, Op, Opened, Operation,
    ReadOptions, Ready, Reply, Variants, is_dead, is_full, op,
};
pub use memory::{Budget, Buffer, Pages};
pub use name_services::use_own_name_services;
pub use pipe::{PageSender, Pipe};
pub use piped::{Piped, set_file_pipes_max};
pub use scheduler::{CpuQuota, FairQueue, Outage, Stage};
pub use send_thread::{Claim, SendThread, TRANSFER_TIME_MAX, Transfer, TransferEnd, Transferred};
pub use settings::Settings;
pub use stats::Stats;
pub use syscall::{landlock_version, unacknowledged_bytes};
pub use thread::{Parker, denied, guard, priority, usage};
