//! The process: start, signals, reload and end, and what it gives up, says and is asked meanwhile.

pub mod admin;
pub mod confinement;
pub mod descriptors;
pub mod explain;
mod left_by_root;
pub mod log_writers;
pub mod plan;
pub mod reload;
pub mod server;
pub mod service_manager;
pub mod signals;
pub mod start_report;
pub mod system_limits;
