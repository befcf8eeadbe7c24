//! Levity: a web server whose event loop never waits for the disk.
//!
//! Start with [`exchange`]: it lists the seven steps that carry every request.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![forbid(unsafe_code)]

mod accept;
pub mod admin;
pub mod cache;
pub mod cli;
mod client_prefix;
pub mod codings;
mod completions;
pub mod compute;
mod confinement;
pub mod credentials;
mod descriptors;
pub mod digest_store;
pub mod disk_client;
pub mod entry;
pub mod event_loop;
pub mod exchange;
pub mod explain;
pub mod explanation;
pub mod failed_lookups;
pub mod filter;
pub mod found;
pub mod handler;
mod heartbeat;
pub mod http;
mod introduce;
mod lacking;
mod limit;
mod log_writers;
pub mod mailboxes;
pub mod pipes;
pub mod proof;
mod rate_limit;
mod reload;
pub mod resolve;
pub mod respond;
#[cfg(test)]
mod rig;
pub mod root;
pub mod route;
pub mod script_search;
pub mod scripts;
pub mod serve;
pub mod server;
mod service_manager;
mod shares;
pub mod signals;
pub mod status;
mod tls;
pub mod upload_store;
pub mod upstream;
pub mod variant_store;
mod worker;
