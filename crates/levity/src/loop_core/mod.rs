//! What every event loop has, whatever it serves.

pub mod failure_reports;
pub mod limit;
pub mod pipes;
