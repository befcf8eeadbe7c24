//! Levity: a web server whose event loop never waits for the disk.
//!
//! Start with [`exchange`]: it lists the seven steps that carry every request.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![forbid(unsafe_code)]

pub mod cli;
pub mod compile;
pub mod credentials;
pub mod exchange;
pub mod explanation;
pub mod files;
pub mod filter;
pub mod gateway;
pub mod handler;
pub mod http;
pub mod loop_core;
#[cfg_attr(not(feature = "mailbox"), path = "mailboxes/absent.rs")]
pub mod mailboxes;
pub mod message;
pub mod process;
mod rate_limit;
pub mod resolve;
pub mod respond;
#[cfg(test)]
mod rig;
pub mod route;
pub mod serve;
mod shares;
pub mod status;
pub mod stores;
#[cfg_attr(not(feature = "tls"), path = "tls/absent.rs")]
pub mod tls;
pub mod upstream;
mod worker;
