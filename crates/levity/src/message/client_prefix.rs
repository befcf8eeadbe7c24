//! Clients that count as one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The bits of addresses by which clients are told apart by default. A client has a network of 64 bits at least, with all
/// addresses in it.
const IPV4_BITS: u32 = 32;
const IPV6_BITS: u32 = 64;

/// Clients that are counted as one: those of an IPv4 address or network, of an IPv6 network, or all clients without an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientPrefix(Option<u128>);

impl ClientPrefix {
    /// The prefix of a client: its IPv4 address, or its IPv6 network of 64 bits. `None` stands for one on a Unix socket.
    pub fn new(ip: Option<IpAddr>) -> Self {
        Self::of_bits(ip, IPV4_BITS, IPV6_BITS)
    }

    /// The same with as many bits of IPv4 and IPv6 addresses.
    pub fn of_bits(ip: Option<IpAddr>, ipv4: u32, ipv6: u32) -> Self {
        Self(ip.map(|ip| match ip.to_canonical() {
            IpAddr::V4(ip) => {
                let rest = u32::MAX.checked_shr(ipv4).unwrap_or(0);
                let first = Ipv4Addr::from_bits(ip.to_bits() & !rest);
                first.to_ipv6_mapped().to_bits()
            }
            IpAddr::V6(ip) => ip.to_bits() & !u128::MAX.checked_shr(ipv6).unwrap_or(0),
        }))
    }

    /// The number by which threads are shared between clients. No connection has it: these are counted from 0.
    pub fn stream(self) -> u64 {
        let bits = self.0.unwrap_or_default();
        #[expect(clippy::cast_possible_truncation, reason = "both halves are mixed in")]
        let folded = (bits >> 64) as u64 ^ bits as u64;
        folded | 1 << 63
    }
}

impl fmt::Display for ClientPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(bits) = self.0 else {
            return f.write_str("clients without an address");
        };
        match Ipv6Addr::from_bits(bits).to_canonical() {
            IpAddr::V4(ip) => ip.fmt(f),
            IpAddr::V6(ip) => write!(f, "{ip}/{IPV6_BITS}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(ip: &str) -> ClientPrefix {
        ClientPrefix::new(Some(ip.parse().expect("an address")))
    }

    #[test]
    fn prefixes() {
        assert_eq!(client("192.0.2.1"), client("::ffff:192.0.2.1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:0:0:1"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_ne!(client("::"), ClientPrefix::new(None));
    }

    #[test]
    fn prefixes_in_the_log() {
        assert_eq!(client("::ffff:192.0.2.1").to_string(), "192.0.2.1");
        assert_eq!(client("2001:db8::1").to_string(), "2001:db8::/64");
    }

    #[test]
    fn prefixes_of_other_lengths() {
        let of = |ip: &str, ipv4, ipv6| {
            ClientPrefix::of_bits(Some(ip.parse().expect("an address")), ipv4, ipv6)
        };
        assert_eq!(of("192.0.2.1", 24, 64), of("192.0.2.254", 24, 64));
        assert_ne!(of("192.0.2.1", 24, 64), of("192.0.3.1", 24, 64));
        assert_eq!(of("::ffff:192.0.2.1", 1, 64), of("255.0.0.0", 1, 64));
        assert_ne!(of("127.0.0.1", 1, 64), of("128.0.0.1", 1, 64));
        assert_eq!(of("2001:db8:0:ff::", 32, 56), of("2001:db8::1", 32, 56));
        assert_ne!(of("2001:db8:0:100::", 32, 56), of("2001:db8::1", 32, 56));
        assert_ne!(of("2001:db8::1", 32, 128), of("2001:db8::2", 32, 128));
    }
}
