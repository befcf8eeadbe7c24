//! What clients share: one that holds much of it leaves some to the others.

mod bodies;
#[cfg(feature = "compress")]
mod coders;
mod files;
mod listings;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::thread;
use std::time::{Duration, Instant};

use levity_wire::proxy_protocol::{self, Addresses};

use crate::support::{Client, Server, frames};

/// Something is stalled after this long without a byte. The timers of the server are late by up to 0.1 s.
const STALLED_AFTER: Duration = Duration::from_millis(5_100);

/// A new client gets its first byte within this time, whoever else holds what it needs. It is less than a second where other tests
/// leave the processors free.
const FIRST_BYTE_MAX: Duration = Duration::from_secs(2);

/// Listens for connections whose clients the PROXY header names.
const LISTEN: &str = "[admin]\nlisten = \"unix:{own}/admin\"\n\
                      [[listen]]\naddress = \"127.0.0.1:0\"\nproxy_protocol = true\n";

/// A connection of a client of its own prefix.
fn client_of(server: &Server, prefix: u16) -> Client {
    of_prefix(server.client(), prefix)
}

/// The connection as one of that prefix.
fn of_prefix(mut client: Client, prefix: u16) -> Client {
    let [high, low] = prefix.to_be_bytes();
    let source = SocketAddrV4::new(Ipv4Addr::new(10, 0, high, low), 4711);
    let destination = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 80);
    let addresses = Addresses::Ip {
        source: SocketAddr::V4(source),
        destination: SocketAddr::V4(destination),
    };
    let mut header = Vec::new();
    proxy_protocol::write_v2(&addresses, &mut header);
    client.send(header);
    client
}

/// Connections over HTTP/2 whose streams ask for the targets, as many each, and take nothing.
fn stalled(
    server: &Server,
    prefixes: u16,
    connections_each: u16,
    targets_each: u16,
    target: impl Fn(u32) -> String,
) -> Vec<Client> {
    let mut number = 0;
    let connections = (0..prefixes).flat_map(|prefix| (0..connections_each).map(move |_| prefix));
    let stall = |prefix| {
        let mut client = client_of(server, prefix);
        let mut bytes = frames::preface(0);
        for stream in 0..u32::from(targets_each) {
            bytes.extend(frames::get(2 * stream + 1, &target(number)));
            number += 1;
        }
        client.send(bytes);
        client
    };
    connections.map(stall).collect()
}

/// The time in which a client of another prefix gets the first byte of `target`, of a 200, after what is held by now has stalled.
#[track_caller]
fn time_to_first_byte(server: &Server, target: &str) -> Duration {
    thread::sleep(STALLED_AFTER);
    let start = Instant::now();
    let mut client = client_of(server, u16::MAX);
    client.get(target).assert_status(200);
    start.elapsed()
}
