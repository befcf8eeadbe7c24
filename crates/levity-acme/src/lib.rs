//! Certificates from authorities that speak ACME (RFC 8555). Knows no sites.
//!
//! A thread of its own asks for them and renews them. What it has, and what it is about to get, is in a folder: a restart asks
//! for nothing twice, and several servers may share the folder.
//!
//! ```text
//! thread `acme`:  care for a name -> attempt -> authority after authority -> order -> proof -> certificate --> folder
//! control thread: looks at the folder every 2 s, as at files of the operator ------------------------------> policies
//! event loops:    answers for authorities (HTTP-01, TLS-ALPN-01), and names that are asked for on demand
//! ```
//!
//! The thread writes and locks files: a disk that hangs must not keep the server from handling
//! signals. Everything in the crate may block, except what event loops read: `Challenges` and
//! `NamedKeys` are swapped as a whole.
//!
//! - A certificate with its key is one file, so the two always fit, and it is read again like any
//!   file of the operator. Before anything is ordered, the key is on the disk. An order has its URL
//!   there, and goes on after a restart. There is one certificate for each host: a name that leads
//!   elsewhere harms no other one.
//! - Locks are `flock` of files: one for each name while an attempt is made, one each for the
//!   account and the ledger of every authority. Who finds a lock taken looks again some seconds
//!   later. Each server has a file of its own in `running`, which it has locked; one that nobody
//!   has locked is of a server that has died. A server that is not alone waits until the others
//!   have looked before an authority comes.
//! - Patience has three levels: a request is sent again for a minute after a 5xx or a broken
//!   connection, and for 3 s when there is no connection: then nobody tries that authority for a
//!   minute (`reach.rs`), and the next one is asked at once. An attempt goes on after nonces that
//!   were refused (`care.rs`). After a failure the pause grows threefold up to a day, also across
//!   restarts (`renewal.rs`). An authority that has looked in vain is shown the next of the
//!   possible ways in the same attempt, at most four times an hour.
//! - Only servers write the state of a name. `levity certs --retry` leaves a file in `retries`,
//!   which they look for every second. Records of the DNS are in the state before they are made, so
//!   that the next step removes those of an attempt that was cut off (`records.rs`); one that
//!   cannot be removed is tried ten times. A file that cannot be read is not one that is missing.
//! - On demand, a handshake for an unknown name waits for a message of the thread, which asks the
//!   allow endpoint first. Anybody can make up names, so those of which the folder has something,
//!   and those that are written down, have queues of their own, and never count for the limit of
//!   names that wait.
//! - In the DNS a refusal is reported before the signature of the response is checked, because a
//!   server that does not know the key cannot sign; success counts only with a valid signature.
//!   Waiting for secondary servers is never an error: this machine may see other servers than the
//!   authority does.
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

pub use self::reports::Report;
pub use self::service::{Acme, Plan};
pub use self::settings::{Authority, DnsSettings, ExternalAccount, Method, Settings};
pub use self::state::NameState;
pub use self::stored::Stored;

/// Where lines for the operator go.
pub type Log = fn(std::fmt::Arguments<'_>);
