//! Ports for programs that cannot choose one themselves.

use std::net::{SocketAddr, TcpListener};
use std::ops::Range;
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below `net.ipv4.ip_local_port_range`, as Linux sets it.
const PORTS: Range<u16> = 10_000..32_768;

/// An address of loopback that nothing uses now. The kernel gives its port to nobody: an outgoing connection or a listener
/// at port 0 of another test gets one above [`PORTS`].
#[must_use]
pub fn free(host: &str) -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Two runs of the tests at a time begin at different ports.
    let first = process::id() as u16;
    let ports = PORTS.end - PORTS.start;
    for _ in PORTS {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + first.wrapping_add(next) % ports;
        if let Ok(free) = TcpListener::bind((host, port)) {
            return free.local_addr().expect("an address");
        }
    }
    panic!("all ports of {host} from {} on are in use", PORTS.start);
}
