//! Certificates from authorities that speak ACME (RFC 8555). Knows no sites.
//!
//! A thread of its own asks for them and renews them. What it has, and what it is about to get, is in a folder: a restart asks
//! for nothing twice, and several servers may share the folder.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![forbid(unsafe_code)]

mod access;
mod account;
mod ask;
mod care;
pub mod challenges;
mod clock;
pub mod dns;
mod failure;
pub mod folder;
pub mod http;
mod ledger;
mod on_demand;
mod order;
mod reach;
mod records;
mod renewal;
mod reports;
mod requests;
pub mod responder;
mod run;
mod service;
mod settings;
mod state;
mod stored;

pub use self::clock::in_words;
pub use self::reports::Report;
pub use self::service::{Acme, Plan};
pub use self::settings::{Authority, DnsSettings, ExternalAccount, Method, Settings};
pub use self::state::State;
pub use self::stored::Stored;

/// Where lines for the operator go.
pub type Log = fn(std::fmt::Arguments<'_>);
