//! What is known of files, and the way to them: caches, roots, and trips to the disk.

pub mod cache;
pub mod codings;
pub mod disk_client;
pub mod entry;
pub mod missing_lookups;
pub mod proof;
pub mod root;
pub mod scripts;
