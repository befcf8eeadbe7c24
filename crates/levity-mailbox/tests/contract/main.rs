//! One contract, checked with every store: the same calls must give the same results wherever messages are kept.
//!
//! A new store adds a [subject](harness::Subject) to `stores.rs` and a line to `for_every_store!` in `harness.rs`.

mod appending;
mod contents;
mod expiring;
mod failing;
mod harness;
mod keys;
mod listing;
#[path = "../messages/mod.rs"]
mod messages;
mod reading;
mod redis;
mod removing;
mod reopening;
#[path = "../servers/mod.rs"]
mod servers;
mod sharing;
mod simulated;
mod simulation;
mod stores;
mod streams;
