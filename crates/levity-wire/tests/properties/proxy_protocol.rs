//! The PROXY protocol.

use std::net::{IpAddr, SocketAddr};

use levity_wire::proxy_protocol::{
    Addresses, V1_BYTES_MAX, V2_BYTES_MAX, parse, write_v1, write_v2,
};

use super::cuts;

/// A header has the same meaning however the input is split, and a rejection is final. A parsed
/// header can be written and parsed again, and so can any pair of addresses.
pub fn proxy_protocol(bytes: &[u8]) {
    let whole = parse(bytes);
    let mut refused = false;
    for cut in cuts(bytes.len()) {
        let read = parse(&bytes[..cut]);
        match &whole {
            Ok(Some(header)) if cut >= header.bytes => assert_eq!(read, whole),
            Ok(_) => assert_eq!(read, Ok(None)),
            Err(_) => assert!(!matches!(read, Ok(Some(_)))),
        }
        assert!(read.is_err() || !refused);
        refused = read.is_err();
    }
    match whole {
        Ok(Some(header)) => {
            let bytes_max = if bytes[0] == b'P' {
                V1_BYTES_MAX
            } else {
                V2_BYTES_MAX
            };
            assert!(header.bytes <= bytes.len() && header.bytes <= bytes_max);
            survives(&header.addresses);
        }
        Ok(None) => assert!(bytes.len() < V2_BYTES_MAX),
        Err(reject) => assert_eq!(reject.status, 400),
    }
    any_addresses(bytes);
}

fn any_addresses(bytes: &[u8]) {
    let address = |at: usize| {
        let mut octets = [0; 16];
        for (octet, byte) in octets.iter_mut().zip(bytes.iter().skip(at)) {
            *octet = *byte;
        }
        let port = u16::from_be_bytes([octets[14], octets[15]]);
        let [a, b, c, d, ..] = octets;
        let ipv4 = IpAddr::from([a, b, c, d]);
        (
            SocketAddr::new(ipv4, port),
            SocketAddr::new(IpAddr::from(octets), port),
        )
    };
    let ((source_4, source_6), (destination_4, destination_6)) = (address(0), address(16));
    for source in [source_4, source_6] {
        for destination in [destination_4, destination_6] {
            survives(&Addresses::Ip {
                source,
                destination,
            });
        }
    }
}

fn survives(addresses: &Addresses) {
    let (mut line, mut binary) = (Vec::new(), Vec::new());
    write_v1(addresses, &mut line);
    write_v2(addresses, &mut binary);
    let read = |header: &[u8]| match parse(header) {
        Ok(Some(found)) => assert_eq!(found.bytes, header.len()),
        other => panic!("{}: {other:?}", header.escape_ascii()),
    };
    read(&line);
    read(&binary);
    let from_binary = parse(&binary).ok().flatten().map(|header| header.addresses);
    let from_line = parse(&line).ok().flatten().map(|header| header.addresses);
    match addresses {
        Addresses::Ip { .. } => {
            assert_eq!(from_binary.map(canonical), Some(canonical(*addresses)));
            assert_eq!(from_line, from_binary);
        }
        _ => {
            assert_eq!(from_binary, Some(*addresses));
            assert_eq!(from_line, Some(Addresses::Unknown));
        }
    }
}

/// IPv4-mapped IPv6 is the same address.
fn canonical(addresses: Addresses) -> Addresses {
    let same = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    match addresses {
        Addresses::Ip {
            source,
            destination,
        } => Addresses::Ip {
            source: same(source),
            destination: same(destination),
        },
        other => other,
    }
}
