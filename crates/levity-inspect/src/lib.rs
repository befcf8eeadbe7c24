//! `levity timing`, `levity top` and `levity mailbox`: clients of a running server and readers of its logs.
//!
//! The crate links nothing of the server: the keys of the log and of `/status.json` are the interface.
//! The benchmark uses [`histogram`] and [`svg`] too.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![forbid(unsafe_code)]

pub mod histogram;
pub mod mailbox;
mod printable;
pub mod svg;
pub mod timing;
pub mod top;

/// From this share of the time on, in percent, waiting for a processor is worth a remark.
const RUN_QUEUE_WAIT_PERCENT_MIN: f64 = 10.0;
