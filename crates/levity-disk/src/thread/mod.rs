//! Threads: how they wake each other, which get a processor first, what they have used, and what they must
//! not do.

pub mod denied;
mod disk_thread;
pub mod guard;
mod lock;
mod parker;
pub mod priority;
mod sleepers;
pub mod usage;

pub(crate) use disk_thread::DiskThread;
pub(crate) use lock::lock;
pub use parker::Parker;
pub(crate) use sleepers::{Awake, Sleepers};
