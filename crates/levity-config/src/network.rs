//! Blocks of IP addresses, and sets of clients and proxies by address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::value::whole_number;

/// Proxies whose headers about the client are trusted.
pub type TrustedProxies = AddressSet;

/// Clients or proxies by address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressSet {
    /// The networks of those over TCP.
    pub networks: Vec<Network>,
    /// Whether those on Unix sockets are in it.
    pub unix: bool,
}

impl AddressSet {
    /// Every client.
    pub(crate) fn everyone() -> Self {
        let networks = ["0.0.0.0/0", "::/0"].map(|text| text.parse().expect("a network"));
        Self {
            networks: networks.into(),
            unix: true,
        }
    }

    /// Whether `peer` is in it; `None` stands for a peer on a Unix socket.
    #[must_use]
    pub fn contains(&self, peer: Option<IpAddr>) -> bool {
        match peer {
            Some(ip) => self.networks.iter().any(|network| network.contains(ip)),
            None => self.unix,
        }
    }
}

/// An address with a prefix, as in `10.0.0.0/8` (RFC 4632 section 3.1, RFC 4291 section 2.3). Its host
/// bits are zero. IPv4-mapped addresses count as IPv4, in the block and in the addresses that are compared with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

impl Network {
    /// The block around `ip` with a prefix of so many bits, of which the address has at least as many.
    #[must_use]
    pub fn around(ip: IpAddr, prefix: u32) -> Self {
        let address = first(ip, prefix);
        Self { address, prefix }
    }

    /// Whether the block contains `ip`. An IPv6 block, even `::/0`, contains no IPv4 address.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        ip.is_ipv4() == self.address.is_ipv4() && first(ip, self.prefix) == self.address
    }
}

/// The first address of the block of `prefix` bits around `ip`.
fn first(ip: IpAddr, prefix: u32) -> IpAddr {
    // A shift by all bits of a number is an overflow.
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            Ipv4Addr::from_bits(ip.to_bits() & mask).into()
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
            Ipv6Addr::from_bits(ip.to_bits() & mask).into()
        }
    }
}

impl FromStr for Network {
    /// A phrase that says what is wrong, or what to write.
    type Err = String;

    /// Reads `IP` or `IP/PREFIX`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| explain(address))?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) => self::prefix(prefix, bits)?,
            None => bits,
        };
        let network = Network {
            address: first(address, prefix),
            prefix,
        };
        if network.address != address {
            return Err(format!(
                "bits beyond the prefix are set: the network is {network}"
            ));
        }
        Ok(network.canonical())
    }
}

fn explain(address: &str) -> String {
    if address.starts_with('[') {
        "write an IPv6 address without brackets".to_owned()
    } else {
        format!("`{address}` is not an IP address")
    }
}

fn prefix(text: &str, bits: u32) -> Result<u32, String> {
    let prefix = whole_number(text).filter(|prefix| *prefix <= bits);
    prefix.ok_or_else(|| format!("the prefix is a number from 0 to {bits}"))
}

impl Network {
    /// The IPv4 block of a block of mapped addresses, whose prefix has at least the 96 bits that mark them.
    fn canonical(self) -> Self {
        match self.address.to_canonical() {
            address if address == self.address => self,
            address => Self {
                address,
                prefix: self.prefix - 96,
            },
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_network_contains() {
        for (network, inside, outside) in [
            (
                "0.0.0.0/0",
                &["0.0.0.0", "255.255.255.255", "::ffff:1.2.3.4"][..],
                &["::", "::1"][..],
            ),
            (
                "10.0.0.0/8",
                &["10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3"],
                &["9.255.255.255", "11.0.0.0", "::a00:1"],
            ),
            (
                "192.0.2.128/25",
                &["192.0.2.128", "192.0.2.255"],
                &["192.0.2.127", "192.0.3.0"],
            ),
            ("192.0.2.1/32", &["192.0.2.1"], &["192.0.2.0", "192.0.2.2"]),
            ("192.0.2.1", &["192.0.2.1"], &["192.0.2.0"]),
            (
                "::/0",
                &["::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"],
                &["1.2.3.4", "::ffff:1.2.3.4"],
            ),
            ("fd00::/8", &["fd00::", "fdff::1"], &["fc00::", "fe00::"]),
            (
                "2001:db8::8000/113",
                &["2001:db8::8000", "2001:db8::ffff"],
                &["2001:db8::7fff", "2001:db8::1:0"],
            ),
            ("::1/128", &["::1"], &["::", "::2", "0.0.0.1"]),
            ("::1", &["::1"], &["::2"]),
            (
                "::ffff:10.0.0.0/104",
                &["10.1.2.3", "::ffff:10.1.2.3"],
                &["11.0.0.0"],
            ),
            ("::ffff:0:0/96", &["0.0.0.0", "255.255.255.255"], &["::"]),
        ] {
            let network: Network = network.parse().unwrap();
            for ip in inside {
                assert!(network.contains(ip.parse().unwrap()), "{network} {ip}");
            }
            for ip in outside {
                assert!(!network.contains(ip.parse().unwrap()), "{network} {ip}");
            }
        }
    }

    #[test]
    fn what_is_shown_is_read_back() {
        for (text, shown) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.0.0.1", "10.0.0.1/32"),
            ("FD00::/8", "fd00::/8"),
            ("::1", "::1/128"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ] {
            let network: Network = text.parse().unwrap();
            assert_eq!(network.to_string(), shown);
            assert_eq!(shown.parse(), Ok(network));
        }
    }

    #[test]
    fn the_block_around_an_address() {
        for (ip, prefix, shown) in [
            ("192.0.2.77", 24, "192.0.2.0/24"),
            ("192.0.2.77", 32, "192.0.2.77/32"),
            ("2001:db8:1:2:3::", 64, "2001:db8:1:2::/64"),
        ] {
            let network = Network::around(ip.parse().unwrap(), prefix);
            assert_eq!(network.to_string(), shown);
        }
    }

    #[test]
    fn refusals_say_what_to_write() {
        for (text, reason) in [
            ("10.0.0.1/8", "the network is 10.0.0.0/8"),
            ("1.2.3.4/0", "the network is 0.0.0.0/0"),
            ("fd00::1/127", "the network is fd00::/127"),
            ("::ffff:10.0.0.1/104", "the network is ::ffff:10.0.0.0/104"),
            ("::ffff:0:0/95", "the network is ::fffe:0:0/95"),
            ("10.0.0.0/33", "from 0 to 32"),
            ("::/129", "from 0 to 128"),
            ("::/+1", "from 0 to 128"),
            ("::/", "from 0 to 128"),
            ("::/1/2", "from 0 to 128"),
            ("[::1]", "without brackets"),
            ("10/8", "`10` is not an IP address"),
            ("example.org", "`example.org` is not an IP address"),
            ("", "`` is not an IP address"),
        ] {
            let error = text.parse::<Network>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
