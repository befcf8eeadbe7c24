//! A client before its handshake, and what comes of it.

use std::net::IpAddr;

use levity_net::{PeerTls, Timer, Transport};
use levity_telemetry::access_log::End;

use crate::loop_core::LoopCore;

/// A connection after its handshake.
pub struct Shaken {
    /// The encrypted connection.
    pub transport: Transport,
    /// What the handshake has said of the client.
    pub client: PeerTls,
}

/// Why there is none.
pub enum Failed {
    /// The client does not speak TLS; it can be told so over this transport.
    NotTls(Transport),
    /// The connection ends like this.
    Ended(End),
}

/// A client that is about to make a handshake.
pub struct Arriving<'c> {
    /// The core of the loop that serves it.
    pub core: &'c LoopCore,
    /// Limits the time. It is set.
    pub timer: &'c Timer,
    /// A number that no other connection of the worker has.
    pub stream: u64,
    /// Its address.
    pub ip: Option<IpAddr>,
}
