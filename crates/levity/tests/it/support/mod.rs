//! What every test stands on: a tree of files, the server as a process, a client that sends exact
//! bytes, and waiting without sleeping.

mod app;
mod behind;
mod capture;
pub mod certificates;
mod client;
mod codings;
mod content;
pub mod direct;
mod engine;
pub mod frames;
mod launch;
mod metrics;
pub mod multipart;
pub mod scripted;
mod server;
mod socket;
#[cfg(feature = "tls")]
pub mod tls;
mod tree;
mod wait;
pub mod websocket;
mod wire;

pub use app::{App, EXTERNAL, sources};
pub use behind::{in_front_of, responding_while_it_reads, started_in_front_of};
pub use capture::Capture;
pub use client::{Answer, Client, Cut, head};
pub use codings::{CODINGS, decoded, decoded_so_far, encoded};
pub use content::{assert_same, content, sha256};
pub use engine::{can_run, linux_aio_works, ring_works};
pub(crate) use engine::{engine_tests, per_engine, per_engine_that_waits_elsewhere};
pub use launch::{Launch, Ran};
pub use metrics::Metrics;
pub use server::Server;
pub use tree::{Tree, age, settle};
pub use wait::{WAIT_MAX, pass, wait_until, wait_within};
pub use websocket::WebSocket;

/// Whether the tests run as root, and so start the server as somebody else.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
