//! Benchmarks of Levity: a load generator, an application to stand behind proxies, a rig that emulates a
//! slow disk, the peers to compare with, and the scenarios that turn them into tables.
//!
//! Every figure is a ratio taken in one run on one machine; `bench/README.md` says how to read them.
#![forbid(unsafe_code)]

pub mod backend;
pub mod failure;
pub mod load;
pub mod machine;
pub mod metrics;
pub mod peer;
pub mod report;
pub mod rig;
pub mod scenario;
pub mod walk;

pub use failure::{Context, Failure, Result};
