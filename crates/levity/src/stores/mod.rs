//! Stores that outlive requests: variants of popular files, digests of files, content that applications preload.

pub mod digests;
pub mod preloads;
pub mod uploads;
pub mod variants;
