//! Levity's network: connections and listening sockets, the PROXY header, deadlines, and turns on an event loop.
//! Knows no HTTP.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![forbid(unsafe_code)]

mod arrivals;
mod async_transport;
mod bind;
mod connect;
mod inherited;
mod listener;
#[cfg(any(test, feature = "test-support"))]
pub mod memory;
#[cfg(any(test, feature = "test-support"))]
pub mod memory_listener;
mod peer;
pub mod proxy_header;
mod timer;
#[cfg(feature = "tls")]
pub mod tls;
mod transport;
mod turn;
mod waker_cell;
#[cfg(test)]
mod wakes;

pub use arrivals::{arrivals, arrived, others_read};
pub use async_transport::AsyncTransport;
pub use bind::{BACKLOG, Bound, bind};
pub use connect::connect;
pub use inherited::Inherited;
pub use listener::{Listener, ListeningSocket};
pub use peer::{ClientAuthId, ClientCertificate, Peer, PeerTls};
pub use timer::{Idle, OldestIdle, SWEEP_INTERVAL, Timer, Timers};
pub use transport::{Encrypted, Socket, Transport};
pub use turn::{TURN_BYTES_MAX, Turn};
pub use waker_cell::WakerCell;
