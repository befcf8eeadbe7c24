//! Forwarded and X-Forwarded-For.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use levity_wire::forwarded::{self, Element, Node};

use super::first_line;

/// The elements of trusted hops are parsed as written, whatever the rest of the list is.
pub fn forwarded(bytes: &[u8]) {
    let lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
    let lines = || lines.iter().copied();
    let hops: Vec<_> = forwarded::forwarded(lines()).collect();
    let x_hops: Vec<_> = forwarded::x_forwarded_for(lines()).collect();
    let separators = bytes.iter().filter(|byte| b",\n".contains(byte)).count();
    assert!(hops.len() <= separators + 1 && x_hops.len() <= separators + 1);
    assert_eq!(forwarded::forwarded_schemes(lines()).count(), hops.len());
    for node in hops.iter().chain(&x_hops).flatten() {
        written_nodes_are_read_again(*node);
    }
    client_is_one_of_the_hops(&hops);
    client_is_one_of_the_hops(&x_hops);
    for host in lines() {
        hop_is_added(forwarded::join(lines()), host);
        hop_is_added(host.to_vec(), b"a.example:80");
    }
}

fn written_nodes_are_read_again(node: Node) {
    let element = Element {
        client: Some(node),
        by: Some(node),
        host: None,
        scheme: "http",
    };
    let mut value = Vec::new();
    forwarded::push_forwarded(&mut value, &element).expect("a good element");
    assert!(forwarded::forwarded([&value[..]].into_iter()).eq([Some(node)]));
    value.clear();
    forwarded::push_x_forwarded_for(&mut value, Some(node.ip()));
    let without_port = Some(Node::from(node.ip()));
    assert!(forwarded::x_forwarded_for([&value[..]].into_iter()).eq([without_port]));
}

fn client_is_one_of_the_hops(hops: &[Option<Node>]) {
    let origin = |trust| forwarded::origin(Some(PEER), hops.iter().copied(), |_| trust);
    let client = |trust| origin(trust).client.expect("at least the peer").ip();
    assert_eq!(client(false), PEER);
    assert!(origin(false).elements == 0 && origin(true).elements <= hops.len());
    let ips: Vec<_> = hops.iter().flatten().map(|node| node.ip()).collect();
    assert!(client(true) == PEER || ips.contains(&client(true)));
}

fn hop_is_added(before: Vec<u8>, host: &[u8]) {
    let element = Element {
        client: Some(SocketAddr::new(CLIENT, 9).into()),
        by: None,
        host: Some(host),
        scheme: "https",
    };
    let mut value = before.clone();
    let is_plain = !host
        .iter()
        .any(|&byte| byte.is_ascii_control() && byte != b'\t');
    let added = forwarded::push_forwarded(&mut value, &element);
    assert_eq!(added.is_ok(), is_plain);
    if is_plain {
        let before = forwarded::forwarded([&before[..]].into_iter());
        let expected = std::iter::once(element.client).chain(before);
        assert!(forwarded::forwarded([&value[..]].into_iter()).eq(expected));
    } else {
        assert_eq!(value, before);
    }
}

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// The client with 10.0.0.0/8 trusted. The first line is the header's name, the others are its
/// values.
pub fn forwarded_client(bytes: &[u8]) -> &'static str {
    let (name, rest) = first_line(bytes);
    let lines = rest.split(|&byte| byte == b'\n');
    let hops: Vec<_> = match name {
        b"forwarded" => forwarded::forwarded(lines).collect(),
        b"x-forwarded-for" => forwarded::x_forwarded_for(lines).collect(),
        _ => panic!("no such field"),
    };
    let is_trusted = |ip| matches!(ip, Some(IpAddr::V4(ip)) if ip.octets()[0] == 10);
    let origin = forwarded::origin(Some(PEER), hops.into_iter(), is_trusted);
    match origin.client.map(Node::ip) {
        Some(PEER) => "peer",
        Some(CLIENT) => "client",
        ip if is_trusted(ip) => "hop",
        _ => "other",
    }
}
