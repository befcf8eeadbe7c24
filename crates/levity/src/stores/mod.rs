//! Stores that outlive requests: variants of popular files, digests of files, content that applications preload.

pub mod digests;
pub mod preloads;
#[cfg_attr(not(feature = "upload"), path = "uploads/absent.rs")]
pub mod uploads;
#[cfg_attr(not(feature = "compress"), path = "variants/absent.rs")]
pub mod variants;
