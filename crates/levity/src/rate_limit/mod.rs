//! Rate limits: how much a client, a file or a route may take, exact across all workers.

pub mod charges;
pub mod limit;
pub mod registry;
mod sharded_count;
pub mod table;
