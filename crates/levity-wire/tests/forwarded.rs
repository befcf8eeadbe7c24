//! The client of a request as reported by proxies.

use std::net::{IpAddr, SocketAddr};

use levity_wire::forwarded::{
    Element, HOPS_MAX, Node, forwarded, forwarded_schemes, join, origin, push_forwarded, push_hop,
    push_x_forwarded_for, x_forwarded_for,
};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn node(text: &str) -> Option<Node> {
    let socket = text.parse::<SocketAddr>().ok().map(Node::from);
    Some(socket.unwrap_or_else(|| Node::from(ip(text))))
}

fn lines<'a>(lines: &[&'a str]) -> impl DoubleEndedIterator<Item = &'a [u8]> {
    lines
        .iter()
        .map(|line| line.as_bytes())
        .collect::<Vec<_>>()
        .into_iter()
}

fn read_forwarded(texts: &[&str]) -> Vec<Option<Node>> {
    forwarded(lines(texts)).collect()
}

fn read_x_forwarded_for(texts: &[&str]) -> Vec<Option<Node>> {
    x_forwarded_for(lines(texts)).collect()
}

#[test]
fn x_forwarded_for_is_read_from_the_right() {
    let hops = read_x_forwarded_for(&["192.0.2.1, 2001:db8::1", " 192.0.2.2,192.0.2.3:81\t"]);
    let expected = [
        node("192.0.2.3:81"),
        node("192.0.2.2"),
        node("2001:db8::1"),
        node("192.0.2.1"),
    ];
    assert_eq!(hops, expected);
}

#[test]
fn elements_of_x_forwarded_for() {
    let cases = [
        ("192.0.2.1", node("192.0.2.1")),
        ("192.0.2.1:0", node("192.0.2.1:0")),
        ("[2001:db8::1]", node("2001:db8::1")),
        ("[2001:db8::1]:65535", node("[2001:db8::1]:65535")),
        ("::ffff:192.0.2.1", node("192.0.2.1")),
        ("[::ffff:192.0.2.1]:5", node("192.0.2.1:5")),
        ("unknown", None),
        ("_hidden", None),
        ("example.org", None),
        ("192.0.2", None),
        ("192.0.2.01", None),
        ("192.0.2.1:", None),
        ("192.0.2.1:+1", None),
        ("192.0.2.1:65536", None),
        ("192.0.2.1:000001", None),
        ("192.0.2.1:1:2", None),
        ("192.0.2.1 192.0.2.2", None),
        ("[192.0.2.1]", None),
        ("[2001:db8::1", None),
        ("[2001:db8::1]1", None),
        ("fe80::1%eth0", None),
        ("\"192.0.2.1\"", None),
        ("\u{e9}", None),
    ];
    for (text, expected) in cases {
        assert_eq!(read_x_forwarded_for(&[text]), [expected], "{text}");
    }
    assert!(read_x_forwarded_for(&["", ",, ,\t,"]).is_empty());
    let invalid: &[u8] = b"192.0.2.1\xff";
    assert_eq!(x_forwarded_for([invalid].into_iter()).next(), Some(None));
}

#[test]
fn forwarded_is_read_from_the_right() {
    let texts = [
        "for=192.0.2.43,for=\"[2001:db8:cafe::17]:4711\";by=\"a,b\"",
        "For=192.0.2.60;proto=http;by=203.0.113.43",
    ];
    let expected = [
        node("192.0.2.60"),
        node("[2001:db8:cafe::17]:4711"),
        node("192.0.2.43"),
    ];
    assert_eq!(read_forwarded(&texts), expected);
}

#[test]
fn elements_of_forwarded() {
    let cases = [
        ("for=192.0.2.1", node("192.0.2.1")),
        ("FOR=192.0.2.1", node("192.0.2.1")),
        ("for=\"192.0.2.1\"", node("192.0.2.1")),
        ("for=\"192.0.2.1:81\"", node("192.0.2.1:81")),
        ("for=\"192.0.2.1:_obf\"", node("192.0.2.1")),
        ("for=\"[2001:db8::1]\"", node("2001:db8::1")),
        ("by=_x;for=192.0.2.1", node("192.0.2.1")),
        ("for=192.0.2.1;", node("192.0.2.1")),
        (" for=192.0.2.1 ; proto=http ", node("192.0.2.1")),
        (
            "host=\"a\\\"b,c;for=192.0.2.9\";for=192.0.2.1",
            node("192.0.2.1"),
        ),
        ("host=\"a\\\\\";for=192.0.2.1", node("192.0.2.1")),
        ("for=unknown", None),
        ("for=_hidden", None),
        ("proto=http", None),
        ("for=", None),
        ("for", None),
        ("192.0.2.1", None),
        ("for=2001:db8::1", None),
        ("for=[2001:db8::1]", None),
        ("for=\"2001:db8::1\"", None),
        ("for=192.0.2.1:81", None),
        ("for=192.0.2.1;for=192.0.2.1", None),
        ("for=\"192.0.2.1\"x", None),
        ("for=\"192.0.2.1\" for=192.0.2.2", None),
        ("for=\"192.0.2.1", None),
        ("for=192.0.2.1;=x", None),
        ("for=192.0.2.1;x", None),
        ("for=192.0.2.1;a b=c", None),
        ("for=\"192.0.2\\.1\"", None),
    ];
    for (text, expected) in cases {
        assert_eq!(read_forwarded(&[text]), [expected], "{text}");
    }
    assert!(read_forwarded(&["", " , ,"]).is_empty());
}

#[test]
fn elements_to_the_left_do_not_change_later_ones() {
    let ours = Element {
        client: node("[2001:db8::7]:9"),
        by: node("192.0.2.9"),
        host: Some(b"a,\"b\\"),
        scheme: "https",
    };
    for theirs in [
        "for=\"",
        "\"",
        "for=\"a\\",
        "\\\"",
        "for=192.0.2.1;",
        ";",
        "a=\"b\"\"",
    ] {
        let mut value = theirs.as_bytes().to_vec();
        push_forwarded(&mut value, &ours).expect("a good element");
        let nearest = forwarded([&value[..]].into_iter()).next();
        assert_eq!(nearest, Some(ours.client), "{theirs}");
    }
}

#[test]
fn an_element_is_quoted_where_it_must_be() {
    let mut value = Vec::new();
    let mut element = Element {
        client: None,
        by: None,
        host: None,
        scheme: "http",
    };
    push_forwarded(&mut value, &element).expect("a good element");
    element.client = node("192.0.2.1");
    element.host = Some(b"a.example");
    push_forwarded(&mut value, &element).expect("a good element");
    element.client = node("192.0.2.1:81");
    element.by = node("::ffff:192.0.2.2");
    element.host = Some(b"a:82");
    push_forwarded(&mut value, &element).expect("a good element");
    element.client = node("2001:db8::1");
    element.by = node("[2001:db8::2]:83");
    element.host = Some(b"a\"\\");
    push_forwarded(&mut value, &element).expect("a good element");
    let expected = "for=unknown;proto=http, \
        for=192.0.2.1;host=a.example;proto=http, \
        for=\"192.0.2.1:81\";by=192.0.2.2;host=\"a:82\";proto=http, \
        for=\"[2001:db8::1]\";by=\"[2001:db8::2]:83\";host=\"a\\\"\\\\\";proto=http";
    assert_eq!(
        value.escape_ascii().to_string(),
        expected.as_bytes().escape_ascii().to_string()
    );
    let hops: Vec<_> = forwarded([&value[..]].into_iter()).collect();
    let expected = [
        node("2001:db8::1"),
        node("192.0.2.1:81"),
        node("192.0.2.1"),
        None,
    ];
    assert_eq!(hops, expected);
}

#[test]
fn an_element_that_would_end_its_line_is_refused() {
    for (host, scheme) in [
        ("a\r\nX: y", "http"),
        ("a\0", "http"),
        ("a", "h p"),
        ("a", ""),
    ] {
        let element = Element {
            client: None,
            by: None,
            host: Some(host.as_bytes()),
            scheme,
        };
        let mut value = b"for=192.0.2.1".to_vec();
        assert!(push_forwarded(&mut value, &element).is_err());
        assert_eq!(value, b"for=192.0.2.1");
    }
}

#[test]
fn x_forwarded_for_is_written_without_brackets() {
    let mut value = Vec::new();
    push_x_forwarded_for(&mut value, Some(ip("2001:db8::1")));
    push_x_forwarded_for(&mut value, Some(ip("::ffff:192.0.2.1")));
    push_x_forwarded_for(&mut value, None);
    assert_eq!(value, b"2001:db8::1, 192.0.2.1, unknown");
}

#[test]
fn hops_are_written_with_nothing_but_who_they_were() {
    let mut value = Vec::new();
    push_hop(&mut value, Some(ip("2001:db8::1").into()));
    push_hop(&mut value, None);
    push_hop(&mut value, Some(ip("192.0.2.1").into()));
    let expected: &[u8] = b"for=\"[2001:db8::1]\", for=unknown, for=192.0.2.1";
    assert_eq!(value, expected);
}

#[test]
fn lines_with_an_open_quote_are_not_joined() {
    let joined = |texts: &[&str]| String::from_utf8(join(lines(texts))).expect("ASCII");
    assert_eq!(joined(&[]), "");
    assert_eq!(joined(&["for=192.0.2.1"]), "for=192.0.2.1");
    assert_eq!(joined(&[" a, b ", "", "c"]), "a, b, c");
    assert_eq!(
        joined(&["a=\"", "b", "c=\"x\\\"", "d=\"x\\\\\""]),
        "b, d=\"x\\\\\""
    );
}

/// The client for these hops, with 10.0.0.0/8 trusted and 10.0.0.1 as peer.
fn client(hops: &[&str]) -> String {
    let hops = x_forwarded_for(lines(hops));
    let client = origin(Some(ip("10.0.0.1")), hops, is_trusted).client;
    client.expect("an address").ip().to_string()
}

fn is_trusted(ip: Option<IpAddr>) -> bool {
    matches!(ip, Some(IpAddr::V4(ip)) if ip.octets()[0] == 10)
}

#[test]
fn the_client_is_the_first_hop_that_is_not_trusted() {
    let cases: &[(&[&str], &str)] = &[
        (&[], "10.0.0.1"),
        (&["192.0.2.1"], "192.0.2.1"),
        (&["192.0.2.66, 192.0.2.1"], "192.0.2.1"),
        (&["192.0.2.66", "192.0.2.1"], "192.0.2.1"),
        (&["10.0.0.66, 192.0.2.1"], "192.0.2.1"),
        (&["192.0.2.1, 10.0.0.2"], "192.0.2.1"),
        (&["192.0.2.66, 192.0.2.1, 10.0.0.3, 10.0.0.2"], "192.0.2.1"),
        (&["::ffff:192.0.2.1, ::ffff:10.0.0.2"], "192.0.2.1"),
        (&["2001:db8::1, 10.0.0.2:80"], "2001:db8::1"),
        (&["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        (&["192.0.2.66, unknown, 10.0.0.2"], "10.0.0.2"),
        (&["192.0.2.66, garbage"], "10.0.0.1"),
        (&["garbage, 192.0.2.1"], "192.0.2.1"),
    ];
    for (hops, expected) in cases {
        assert_eq!(client(hops), *expected, "{hops:?}");
    }
}

#[test]
fn a_peer_that_is_not_trusted_is_the_client() {
    let hops = || x_forwarded_for(lines(&["192.0.2.66"]));
    let peer = origin(Some(ip("::ffff:192.0.2.1")), hops(), |_| false);
    assert_eq!(peer.client, Some(ip("192.0.2.1").into()));
    assert_eq!(peer.elements, 0);
}

#[test]
fn a_peer_without_an_address_may_be_trusted() {
    let hops = || x_forwarded_for(lines(&["192.0.2.66, 192.0.2.1, 10.0.0.2"]));
    let origin_of_socket = origin(None, hops(), |ip| ip.is_none() || is_trusted(ip));
    assert_eq!(origin_of_socket.client, Some(ip("192.0.2.1").into()));
    assert_eq!(origin_of_socket.elements, 2);
    assert_eq!(origin(None, hops(), is_trusted).client, None);
    assert_eq!(origin(None, std::iter::empty(), |_| true).client, None);
}

#[test]
fn elements_that_trusted_hops_have_written_are_counted() {
    let elements = |hops: &str| {
        let hops = [hops];
        let hops = x_forwarded_for(lines(&hops));
        origin(Some(ip("10.0.0.1")), hops, is_trusted).elements
    };
    assert_eq!(elements(""), 0);
    assert_eq!(elements("192.0.2.66, 192.0.2.1"), 1);
    assert_eq!(elements("192.0.2.1, 10.0.0.2"), 2);
    // The second element has no address, but 10.0.0.2 has written it.
    assert_eq!(elements("192.0.2.66, unknown, 10.0.0.2"), 2);
}

#[test]
fn schemes_of_forwarded_are_read_from_the_right() {
    let texts = [
        "for=a;proto=https, proto=\"HTTP\" ;for=192.0.2.1",
        "for=b, proto=a;proto=b, proto=x y, ",
    ];
    let schemes: Vec<_> = forwarded_schemes(lines(&texts)).collect();
    let expected = [None, None, None, Some(&b"HTTP"[..]), Some(b"https")];
    assert_eq!(schemes, expected);
    assert_eq!(forwarded(lines(&texts)).count(), expected.len());
}

#[test]
fn hops_are_counted() {
    let hops = vec!["10.0.0.2"; HOPS_MAX - 1].join(",");
    assert_eq!(client(&["192.0.2.1", &hops]), "192.0.2.1");
    assert_eq!(client(&["192.0.2.1", &hops, "10.0.0.3"]), "10.0.0.2");
}
