//! Benchmarks of Levity: a load generator, an application behind proxies, a rig that emulates a slow disk, the
//! other servers (peers), and the workloads that compare them.
//!
//! Only ratios of figures from one run on one machine are meaningful; see `bench/README.md`.
#![forbid(unsafe_code)]

pub mod backend;
pub mod bare_files;
pub mod bare_http2;
pub mod bare_tls;
mod corpus;
pub mod failure;
pub mod load;
pub mod machine;
pub mod mailbox;
pub mod metrics;
pub mod peer;
mod random;
pub mod report;
pub mod rig;
pub mod scenario;
pub mod walk;

pub use failure::{Context, Failure, Result};
