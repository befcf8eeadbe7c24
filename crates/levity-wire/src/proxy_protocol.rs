//! The PROXY protocol: a proxy reports its client at the start of a connection.
//!
//! Source: "The PROXY protocol, versions 1 & 2" by the authors of HAProxy. A listener either
//! requires the header on every connection or never accepts it: with autodetection any client could
//! choose its own address. For the same reason only known proxies may be allowed to connect.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use memchr::memchr;

use crate::{Reject, decimal};

/// Maximum bytes of a version 1 header with its CRLF.
pub const V1_BYTES_MAX: usize = 107;

/// Maximum bytes of a version 2 header with the fields after its addresses. The format allows 64
/// KiB more; the fields in use (a host name, identifiers, the name in a certificate) stay far below
/// this limit. A read buffer of this size is always large enough.
pub const V2_BYTES_MAX: usize = 4 * 1024;

/// The start of every version 2 header. No line of a text protocol starts so.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Signature, version and command, family and transport, length of the rest.
const V2_START_BYTES: usize = 16;

/// Bytes of a Unix address, as in `sockaddr_un`.
const UNIX_BYTES: usize = 108;

const TYPE_CRC32C: u8 = 3;
const TYPE_SSL: u8 = 0x20;

/// In the first byte of the TLS field: the client used TLS.
const CLIENT_SSL: u8 = 1;

/// That byte, and whether the client's certificate was valid.
const SSL_BYTES_MIN: usize = 1 + 4;

const NO_HEADER: Reject = Reject::bad("no PROXY header");
const BAD_LINE: Reject = Reject::bad("bad PROXY line");
const BARE_CR: Reject = Reject::bad("bare CR in a PROXY line");

/// The addresses that a proxy reports for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addresses {
    /// The connection is the proxy's own, for example a health check. The socket's addresses apply.
    Local,
    /// The connection is for a client of unknown address: also for one on a Unix socket of the
    /// proxy's machine, whose path says nothing. The addresses of our socket apply, and are those of
    /// the proxy: trust them no more than an unknown client.
    Unknown,
    /// The ends of the client's connection to the proxy, as sent: an IPv4 address may be
    /// IPv4-mapped IPv6. Without scope and flow.
    Ip {
        /// The client.
        source: SocketAddr,
        /// Where the client connected to.
        destination: SocketAddr,
    },
}

/// A parsed header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The ends of the connection.
    pub addresses: Addresses,
    /// The client used TLS. Only version 2 reports this, together with addresses.
    pub tls: bool,
    /// Length of the header in bytes: the client's data starts here.
    pub bytes: usize,
}

/// Parses the header, of either version, at the start of `input`. `None`: more bytes needed; call
/// again with the same bytes followed by more.
///
/// In version 2, addresses of datagrams are accepted like those of streams; an unspecified family
/// or transport gives [`Addresses::Unknown`]. The fields after known addresses must be well-formed,
/// and the checksum, if any, must match. Apart from the TLS flag they are ignored.
///
/// # Errors
/// 400 as soon as no continuation of the bytes can be a header: other data, any deviation from the
/// grammar, more than [`V1_BYTES_MAX`] or [`V2_BYTES_MAX`], a wrong checksum. The connection must
/// be closed without a response, since the peer's protocol is unknown.
pub fn parse(input: &[u8]) -> Result<Option<Header>, Reject> {
    match input.first() {
        None => Ok(None),
        Some(b'P') => parse_v1(input),
        Some(b'\r') => parse_v2(input),
        Some(_) => Err(NO_HEADER),
    }
}

/// Whether `input` starts with `start`, or is a prefix of it.
fn may_start_with(input: &[u8], start: &[u8]) -> bool {
    start.starts_with(&input[..input.len().min(start.len())])
}

fn parse_v1(input: &[u8]) -> Result<Option<Header>, Reject> {
    if !may_start_with(input, b"PROXY ") {
        return Err(NO_HEADER);
    }
    let window = &input[..input.len().min(V1_BYTES_MAX)];
    let Some(end) = memchr(b'\n', window) else {
        return match memchr(b'\r', window) {
            Some(at) if at + 1 < window.len() => Err(BARE_CR),
            _ if window.len() == V1_BYTES_MAX => Err(Reject::bad("PROXY line too long")),
            _ => Ok(None),
        };
    };
    let Some(line) = window[..end].strip_suffix(b"\r") else {
        return Err(Reject::bad("bare LF as the end of a PROXY line"));
    };
    if line.contains(&b'\r') {
        return Err(BARE_CR);
    }
    Ok(Some(Header {
        addresses: line_addresses(&line[b"PROXY ".len()..])?,
        tls: false,
        bytes: end + 1,
    }))
}

/// The rest of the line after `PROXY `. Fields are separated by exactly one space.
fn line_addresses(line: &[u8]) -> Result<Addresses, Reject> {
    let mut fields = line.split(|&byte| byte == b' ');
    let mut next = || fields.next().unwrap_or_default();
    let protocol = next();
    if protocol == b"UNKNOWN" {
        // The rest of the line is to be ignored.
        return Ok(Addresses::Unknown);
    }
    let (source, destination) = (next(), next());
    let (source_port, destination_port) = (port(next())?, port(next())?);
    if fields.next().is_some() {
        return Err(BAD_LINE);
    }
    let address = match protocol {
        b"TCP4" => address::<Ipv4Addr>,
        b"TCP6" => address::<Ipv6Addr>,
        _ => return Err(BAD_LINE),
    };
    Ok(Addresses::Ip {
        source: SocketAddr::new(address(source)?, source_port),
        destination: SocketAddr::new(address(destination)?, destination_port),
    })
}

/// The standard library is as strict as the protocol: four numbers without leading zeros, or groups
/// of IPv6, the last two of which may be written as IPv4. No zone.
fn address<A: FromStr + Into<IpAddr>>(text: &[u8]) -> Result<IpAddr, Reject> {
    let text = str::from_utf8(text).map_err(|_| BAD_LINE)?;
    text.parse::<A>().map(Into::into).map_err(|_| BAD_LINE)
}

/// Digits without leading zeros.
fn port(text: &[u8]) -> Result<u16, Reject> {
    let number = match text {
        [b'0', _, ..] => None,
        _ => decimal::parse(text),
    };
    let port = number.and_then(|number| u16::try_from(number).ok());
    port.ok_or(BAD_LINE)
}

/// The family in the 14th byte of version 2, if the header has addresses to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Inet,
    Inet6,
    Unix,
}

impl Family {
    /// Bytes of both addresses, with their ports.
    fn bytes(self) -> usize {
        match self {
            Family::Inet => 2 * (4 + 2),
            Family::Inet6 => 2 * (16 + 2),
            Family::Unix => 2 * UNIX_BYTES,
        }
    }

    /// `None` if either half of the byte is "unspecified".
    fn of(byte: u8) -> Result<Option<Self>, Reject> {
        let family = match byte >> 4 {
            0 => None,
            1 => Some(Family::Inet),
            2 => Some(Family::Inet6),
            3 => Some(Family::Unix),
            _ => return Err(Reject::bad("unknown address family in a PROXY header")),
        };
        match byte & 15 {
            0 => Ok(None),
            1 | 2 => Ok(family),
            _ => Err(Reject::bad("unknown transport in a PROXY header")),
        }
    }
}

fn parse_v2(input: &[u8]) -> Result<Option<Header>, Reject> {
    if !may_start_with(input, SIGNATURE) {
        return Err(NO_HEADER);
    }
    // From the 13th byte on, an invalid start is rejected as early as possible.
    let mut rest = input.iter().skip(SIGNATURE.len()).copied();
    let local = match rest.next() {
        None => return Ok(None),
        Some(0x20) => true,
        Some(0x21) => false,
        Some(byte) if byte >> 4 == 2 => {
            return Err(Reject::bad("unknown command in a PROXY header"));
        }
        Some(_) => return Err(Reject::bad("unknown version of the PROXY protocol")),
    };
    let family = match rest.next() {
        None => return Ok(None),
        // The family of a proxy's own connection is ignored, even if it is invalid.
        Some(_) if local => None,
        Some(byte) => Family::of(byte)?,
    };
    let Some((high, low)) = rest.next().zip(rest.next()) else {
        return Ok(None);
    };
    let bytes = V2_START_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if bytes > V2_BYTES_MAX {
        return Err(Reject::bad("PROXY header too long"));
    }
    if family.is_some_and(|family| bytes < V2_START_BYTES + family.bytes()) {
        return Err(Reject::bad("PROXY header too short for its addresses"));
    }
    let Some(header) = input.get(..bytes) else {
        return Ok(None);
    };
    let (addresses, tls) = match family {
        None if local => (Addresses::Local, false),
        None => (Addresses::Unknown, false),
        Some(family) => {
            let tls = read_fields(header, V2_START_BYTES + family.bytes())?;
            (header_addresses(family, &header[V2_START_BYTES..]), tls)
        }
    };
    Ok(Some(Header {
        addresses,
        tls,
        bytes,
    }))
}

/// `block` has at least the bytes of its family.
fn header_addresses(family: Family, block: &[u8]) -> Addresses {
    match family {
        Family::Inet => ip_addresses::<4>(block),
        Family::Inet6 => ip_addresses::<16>(block),
        Family::Unix => Addresses::Unknown,
    }
}

/// Two addresses of `N` bytes each, then their ports.
fn ip_addresses<const N: usize>(block: &[u8]) -> Addresses
where
    IpAddr: From<[u8; N]>,
{
    let end = |number: usize| {
        let ip = array::<N>(&block[number * N..]);
        let port = array(&block[2 * N + number * 2..]);
        SocketAddr::new(ip.into(), u16::from_be_bytes(port))
    };
    Addresses::Ip {
        source: end(0),
        destination: end(1),
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[..N]);
    array
}

/// Checks the fields after the addresses, each of type, length and value. Returns whether TLS was
/// used.
fn read_fields(header: &[u8], start: usize) -> Result<bool, Reject> {
    let (mut at, mut checked, mut tls) = (start, false, false);
    while at < header.len() {
        let [field_type, high, low, rest @ ..] = &header[at..] else {
            return Err(Reject::bad("truncated field in a PROXY header"));
        };
        let value_at = at + 3;
        let bytes = usize::from(u16::from_be_bytes([*high, *low]));
        if bytes > rest.len() {
            return Err(Reject::bad("truncated field in a PROXY header"));
        }
        if *field_type == TYPE_CRC32C {
            // Only one checksum is allowed: a header full of them would be summed once for each.
            if checked || bytes != 4 || !checksum_is_right(header, value_at) {
                return Err(Reject::bad("wrong checksum in a PROXY header"));
            }
            checked = true;
        }
        if *field_type == TYPE_SSL {
            if bytes < SSL_BYTES_MIN {
                return Err(Reject::bad("bad TLS field in a PROXY header"));
            }
            tls |= rest[0] & CLIENT_SSL != 0;
        }
        at = value_at + bytes;
    }
    Ok(tls)
}

/// The sum covers the whole header, with four zeros in place of the sum itself.
fn checksum_is_right(header: &[u8], at: usize) -> bool {
    let crc = crc32c(!0, &header[..at]);
    let crc = crc32c(crc, &[0; 4]);
    let crc = !crc32c(crc, &header[at + 4..]);
    header[at..at + 4] == crc.to_be_bytes()
}

/// Continues the CRC32c (RFC 9260, appendix A) `sum` with `bytes`, without the final inversion.
fn crc32c(sum: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(sum, |sum, &byte| {
        (sum >> 8) ^ CRC32C[usize::from(sum as u8 ^ byte)]
    })
}

static CRC32C: [u32; 256] = crc32c_table();

const fn crc32c_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            let polynomial = if sum & 1 == 1 { 0x82f6_3b78 } else { 0 };
            sum = (sum >> 1) ^ polynomial;
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
}

/// Appends a version 1 header. It supports IP only: everything else, including connections of our
/// own, is `UNKNOWN`.
pub fn write_v1(addresses: &Addresses, out: &mut Vec<u8>) {
    let line = match one_family(addresses) {
        Some((source, destination)) => {
            let protocol = if source.is_ipv4() { "TCP4" } else { "TCP6" };
            let (source_port, destination_port) = (source.port(), destination.port());
            let (source, destination) = (source.ip(), destination.ip());
            format!("PROXY {protocol} {source} {destination} {source_port} {destination_port}\r\n")
        }
        None => "PROXY UNKNOWN\r\n".to_owned(),
    };
    out.extend_from_slice(line.as_bytes());
}

/// Appends a version 2 header.
pub fn write_v2(addresses: &Addresses, out: &mut Vec<u8>) {
    let Some((source, destination)) = one_family(addresses) else {
        let command = if *addresses == Addresses::Local {
            0x20
        } else {
            0x21
        };
        return write_v2_start(command, 0, 0, out);
    };
    match source {
        SocketAddr::V4(_) => write_v2_start(0x21, 0x11, Family::Inet.bytes(), out),
        SocketAddr::V6(_) => write_v2_start(0x21, 0x21, Family::Inet6.bytes(), out),
    }
    write_ip(source.ip(), out);
    write_ip(destination.ip(), out);
    out.extend(source.port().to_be_bytes());
    out.extend(destination.port().to_be_bytes());
}

/// Both ends in one family: IPv4-mapped IPv6 becomes IPv4, unless only one end is IPv4, in which
/// case that end becomes IPv6.
fn one_family(addresses: &Addresses) -> Option<(SocketAddr, SocketAddr)> {
    let Addresses::Ip {
        source,
        destination,
    } = addresses
    else {
        return None;
    };
    let (mut source_ip, mut destination_ip) =
        (source.ip().to_canonical(), destination.ip().to_canonical());
    if source_ip.is_ipv4() != destination_ip.is_ipv4() {
        source_ip = as_ipv6(source_ip);
        destination_ip = as_ipv6(destination_ip);
    }
    Some((
        SocketAddr::new(source_ip, source.port()),
        SocketAddr::new(destination_ip, destination.port()),
    ))
}

fn as_ipv6(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => IpAddr::V6(ip.to_ipv6_mapped()),
        IpAddr::V6(_) => ip,
    }
}

fn write_ip(ip: IpAddr, out: &mut Vec<u8>) {
    match ip {
        IpAddr::V4(ip) => out.extend(ip.octets()),
        IpAddr::V6(ip) => out.extend(ip.octets()),
    }
}

fn write_v2_start(command: u8, family: u8, bytes: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE);
    out.extend([command, family]);
    out.extend((bytes as u16).to_be_bytes());
}
