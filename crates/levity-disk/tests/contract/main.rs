//! The contract of engines, checked for every engine: `reading::sizes::threads` and so on.

mod canceling;
mod changing;
mod crashing;
mod creating;
mod direct;
mod folders;
mod harness;
mod listing;
mod opening;
mod reading;
mod removing;
mod scheduling;
mod sending;
mod sharing;
mod syncing;
mod writing;
