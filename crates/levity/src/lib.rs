//! A web server whose event loop never waits for the disk.

pub mod access_log;
pub mod admin;
pub mod diagnostics;
pub mod stall;
pub mod stats;
