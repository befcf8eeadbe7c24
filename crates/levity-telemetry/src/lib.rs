//! What Levity counts, logs and reports.
//!
//! Event loops write here without ever waiting: counters have one writer each, lines go over bounded queues to
//! threads that may block. This crate knows no server: it gets the figures of disks, upstreams and the computing pool as
//! plain values.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![forbid(unsafe_code)]

pub mod access_log;
pub mod cells;
pub mod diagnostics;
pub mod escape;
pub mod mounts;
pub mod outage;
pub mod popular;
pub mod request_id;
pub mod stall;
pub mod stats;
pub mod step;
pub mod trace;

mod channel;
mod write_all;
