//! The PROXY header: read from the start of a client's connection, written to the start of a backend's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use levity_config::upstream::ProxyProtocol;
use levity_wire::Reject;
use levity_wire::proxy_protocol::{self, Addresses};

use crate::peer::Peer;

/// Stores in `peer` the client that the header at the start of `bytes` names. Returns the size of the header in bytes;
/// `None` while it is not complete.
///
/// # Errors
/// When `bytes` do not begin with a header.
pub fn read(bytes: &[u8], peer: &mut Peer) -> Result<Option<usize>, Reject> {
    let Some(header) = proxy_protocol::parse(bytes)? else {
        return Ok(None);
    };
    match header.addresses {
        Addresses::Local => {}
        Addresses::Unknown => peer.set_unknown_client(header.tls),
        Addresses::Ip {
            source,
            destination,
        } => peer.set_client(source, destination, header.tls),
    }
    Ok(Some(header.bytes))
}

/// The header of a connection to a backend that is made for the client at `source`, which connected to
/// `destination`. Without a source the header says that the client is unknown. Without a destination, as for a
/// client that a proxy on a Unix socket named, the header has the unspecified address.
#[must_use]
pub fn for_client(
    version: ProxyProtocol,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
) -> Vec<u8> {
    encode(
        version,
        &match source {
            Some(source) => Addresses::Ip {
                source,
                destination: destination.unwrap_or_else(|| unspecified(source.ip())),
            },
            None => Addresses::Unknown,
        },
    )
}

/// The header of a connection to a backend for a request of the server itself; empty without a version.
#[must_use]
pub fn for_own_request(version: Option<ProxyProtocol>) -> Vec<u8> {
    version.map_or(Vec::new(), |version| encode(version, &Addresses::Local))
}

fn encode(version: ProxyProtocol, addresses: &Addresses) -> Vec<u8> {
    let mut header = Vec::new();
    match version {
        ProxyProtocol::V1 => proxy_protocol::write_v1(addresses, &mut header),
        ProxyProtocol::V2 => proxy_protocol::write_v2(addresses, &mut header),
    }
    header
}

/// The unspecified address of the family of `ip`.
fn unspecified(ip: IpAddr) -> SocketAddr {
    let ip = match ip.to_canonical() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(ip, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn what_is_written_is_read_again() {
        let (source, destination) = (address("192.0.2.1:1234"), address("192.0.2.2:443"));
        for version in [ProxyProtocol::V1, ProxyProtocol::V2] {
            let mut bytes = for_client(version, Some(source), Some(destination));
            let complete = bytes.len();
            bytes.extend_from_slice(b"GET");
            let mut peer = Peer::new(None);
            for end in 0..complete {
                assert_eq!(read(&bytes[..end], &mut peer), Ok(None), "{end}");
                assert_eq!(peer.address(), None);
            }
            assert_eq!(read(&bytes, &mut peer), Ok(Some(complete)));
            assert_eq!(peer.address(), Some(source));
            assert_eq!(peer.proxy_destination(), Some(destination));
        }
    }

    #[test]
    fn a_request_of_the_proxy_itself_names_no_client() {
        let bytes = for_own_request(Some(ProxyProtocol::V2));
        let mut peer = Peer::new(Some(address("192.0.2.1:1234")));
        assert_eq!(read(&bytes, &mut peer), Ok(Some(bytes.len())));
        assert_eq!(peer.address(), Some(address("192.0.2.1:1234")));
    }

    #[test]
    fn a_client_without_an_address_is_unknown() {
        for version in [ProxyProtocol::V1, ProxyProtocol::V2] {
            let bytes = for_client(version, None, Some(address("192.0.2.2:443")));
            let mut peer = Peer::new(None);
            assert_eq!(read(&bytes, &mut peer), Ok(Some(bytes.len())));
            assert!(!peer.is_known());
        }
    }

    #[test]
    fn a_missing_destination_is_unspecified() {
        for (source, expected) in [("192.0.2.1:1", "0.0.0.0:0"), ("[2001:db8::1]:1", "[::]:0")] {
            let bytes = for_client(ProxyProtocol::V2, Some(address(source)), None);
            let mut peer = Peer::new(None);
            assert_eq!(read(&bytes, &mut peer), Ok(Some(bytes.len())));
            assert_eq!(peer.proxy_destination(), Some(address(expected)));
        }
    }
}
