//! The PROXY protocol, rule by rule.

use std::net::SocketAddr;

use levity_wire::Reject;
use levity_wire::proxy_protocol::{
    Addresses, Header, V1_BYTES_MAX, V2_BYTES_MAX, parse, write_v1, write_v2,
};

fn ip(source: &str, destination: &str) -> Addresses<'static> {
    let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
    Addresses::Ip {
        source: address(source),
        destination: address(destination),
    }
}

/// Asserts this result, whatever follows; every prefix needs more bytes.
#[track_caller]
fn accept(input: &[u8], addresses: Addresses<'_>) {
    accept_with(input, addresses, false);
}

#[track_caller]
fn accept_with(input: &[u8], addresses: Addresses<'_>, tls: bool) {
    let header = Header {
        addresses,
        tls,
        bytes: input.len(),
    };
    let shown = input.escape_ascii().to_string();
    assert_eq!(parse(input), Ok(Some(header)), "{shown}");
    let followed = [input, b"\0\r\nPROXY GET / HTTP/1.1\r\n"].concat();
    assert_eq!(parse(&followed), Ok(Some(header)), "{shown}");
    for cut in 0..input.len() {
        assert_eq!(parse(&input[..cut]), Ok(None), "{shown} cut at {cut}");
    }
}

/// Asserts this rejection, from some prefix on. Returns the length of that prefix.
#[track_caller]
fn refuse(input: &[u8], reason: &str) -> usize {
    let shown = input.escape_ascii().to_string();
    let reject = parse(input).expect_err(&shown);
    assert_eq!((reject.status, reject.reason), (400, reason), "{shown}");
    let refused = |cut: &usize| parse(&input[..*cut]).is_err();
    let first = (0..=input.len())
        .find(refused)
        .expect("all of it is refused");
    for cut in first..=input.len() {
        assert!(refused(&cut), "{shown} cut at {cut}");
    }
    first
}

#[test]
fn lines() {
    let cases = [
        (
            "TCP4 192.168.0.1 192.168.0.11 56324 443",
            ip("192.168.0.1:56324", "192.168.0.11:443"),
        ),
        (
            "TCP4 255.255.255.255 255.255.255.255 65535 65535",
            ip("255.255.255.255:65535", "255.255.255.255:65535"),
        ),
        ("TCP4 0.0.0.0 1.2.3.4 0 1", ip("0.0.0.0:0", "1.2.3.4:1")),
        (
            "TCP6 2001:DB8::1 ::1 1024 80",
            ip("[2001:db8::1]:1024", "[::1]:80"),
        ),
        (
            "TCP6 1:2:3:4:5:6:7:8 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535",
            ip(
                "[1:2:3:4:5:6:7:8]:65535",
                "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
            ),
        ),
        (
            "TCP6 ::ffff:192.0.2.1 :: 1 2",
            ip("[::ffff:192.0.2.1]:1", "[::]:2"),
        ),
        ("UNKNOWN", Addresses::Unknown),
        ("UNKNOWN ", Addresses::Unknown),
        ("UNKNOWN ::1 anything \0 else", Addresses::Unknown),
    ];
    for (line, addresses) in cases {
        accept(format!("PROXY {line}\r\n").as_bytes(), addresses);
    }
    let longest = format!("PROXY UNKNOWN {}\r\n", "f".repeat(91));
    assert_eq!(longest.len(), V1_BYTES_MAX);
    accept(longest.as_bytes(), Addresses::Unknown);
}

#[test]
fn bad_lines() {
    let cases = [
        "",
        " ",
        "TCP4",
        "tcp4 1.2.3.4 5.6.7.8 1 2",
        "TCP 1.2.3.4 5.6.7.8 1 2",
        "TCP5 1.2.3.4 5.6.7.8 1 2",
        "UDP4 1.2.3.4 5.6.7.8 1 2",
        "unknown",
        "UNKNOWNS",
        "TCP4  1.2.3.4 5.6.7.8 1 2",
        "TCP4 1.2.3.4  5.6.7.8 1 2",
        "TCP4 1.2.3.4 5.6.7.8 1 2 ",
        "TCP4 1.2.3.4 5.6.7.8 1 2 3",
        "TCP4 1.2.3.4 5.6.7.8 1",
        "TCP4 1.2.3.4 5.6.7.8 1 ",
        "TCP4\t1.2.3.4\t5.6.7.8\t1\t2",
        "TCP4 1.2.3 5.6.7.8 1 2",
        "TCP4 1.2.3.4.5 5.6.7.8 1 2",
        "TCP4 1.2.3.04 5.6.7.8 1 2",
        "TCP4 1.2.3.256 5.6.7.8 1 2",
        "TCP4 1.2.3.0x4 5.6.7.8 1 2",
        "TCP4 1.2.3.4 5.6.7.8\0 1 2",
        "TCP4 ::1 ::1 1 2",
        "TCP4 ::ffff:1.2.3.4 5.6.7.8 1 2",
        "TCP6 1.2.3.4 5.6.7.8 1 2",
        "TCP6 ::1 5.6.7.8 1 2",
        "TCP6 ::1%1 ::1 1 2",
        "TCP6 [::1] ::1 1 2",
        "TCP6 1:2:3:4:5:6:7 ::1 1 2",
        "TCP6 1:2:3:4:5:6:7:8:9 ::1 1 2",
        "TCP6 1::2::3 ::1 1 2",
        "TCP6 00001:: ::1 1 2",
        "TCP6 g:: ::1 1 2",
        "TCP4 1.2.3.4 5.6.7.8 01 2",
        "TCP4 1.2.3.4 5.6.7.8 00 2",
        "TCP4 1.2.3.4 5.6.7.8 +1 2",
        "TCP4 1.2.3.4 5.6.7.8 -1 2",
        "TCP4 1.2.3.4 5.6.7.8 1 65536",
        "TCP4 1.2.3.4 5.6.7.8 1 99999999999999999999",
        "TCP4 1.2.3.4 5.6.7.8 1 0x50",
        "TCP4 h\u{e9} 5.6.7.8 1 2",
    ];
    for line in cases {
        let line = format!("PROXY {line}\r\n");
        let first = refuse(line.as_bytes(), "bad PROXY line");
        assert_eq!(first, line.len(), "{line:?}");
    }
}

#[test]
fn other_data_is_rejected_at_its_first_wrong_byte() {
    let cases: [(&[u8], usize); 10] = [
        (b"GET / HTTP/1.1\r\n", 1),
        (b"\x16\x03\x01", 1),
        (b"\0", 1),
        (b"\n", 1),
        (b"POST / HTTP/1.1\r\n", 2),
        (b"PRI * HTTP/2.0\r\n", 3),
        (b"PROXY\tTCP4", 6),
        (b"proxy ", 1),
        (b"\r\nGET / HTTP/1.1\r\n", 3),
        (b"\r\n\r\n\0\r\nQUIT\r", 12),
    ];
    for (input, first) in cases {
        let shown = input.escape_ascii().to_string();
        assert_eq!(refuse(input, "no PROXY header"), first, "{shown}");
    }
}

#[test]
fn a_line_ends_with_crlf() {
    let cr = "bare CR in a PROXY line";
    let cases = [
        ("PROXY UNKNOWN\n", "bare LF as the end of a PROXY line", 14),
        ("PROXY UNKNOWN\r ", cr, 15),
        ("PROXY UNKNOWN\r\r\n", cr, 15),
        ("PROXY UNKNOWN a\rb\r\n", cr, 17),
        ("PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\0", cr, 32),
    ];
    for (line, reason, first) in cases {
        assert_eq!(refuse(line.as_bytes(), reason), first, "{line:?}");
    }
}

#[test]
fn a_line_is_bounded() {
    let long = format!("PROXY UNKNOWN {}\r\n", "f".repeat(92));
    assert_eq!(refuse(long.as_bytes(), "PROXY line too long"), V1_BYTES_MAX);
}

/// A header of version 2 with this command, family and rest.
fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let bytes = (rest.len() as u16).to_be_bytes();
    [
        &b"\r\n\r\n\0\r\nQUIT\n"[..],
        &[command, family],
        &bytes,
        rest,
    ]
    .concat()
}

/// 192.0.2.1:1024 to 198.51.100.2:443
const INET: &[u8] = b"\xc0\x00\x02\x01\xc6\x33\x64\x02\x04\x00\x01\xbb";

fn inet() -> Addresses<'static> {
    ip("192.0.2.1:1024", "198.51.100.2:443")
}

#[test]
fn binary_headers() {
    accept(&v2(0x21, 0x11, INET), inet());
    accept(&v2(0x21, 0x12, INET), inet());
    let inet6 = b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\
        \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\xff\xff\0\x50";
    for family in [0x21, 0x22] {
        accept(
            &v2(0x21, family, inet6),
            ip("[2001:db8::1]:65535", "[::1]:80"),
        );
    }
    accept(&v2(0x20, 0, b""), Addresses::Local);
    accept(&v2(0x21, 0, b""), Addresses::Unknown);
}

#[test]
fn ignored_fields() {
    // A proxy's own connection, with any family.
    for (family, rest) in [
        (0x11, INET),
        (0x11, &b"x"[..]),
        (0x00, INET),
        (0xff, b"\x03"),
    ] {
        accept(&v2(0x20, family, rest), Addresses::Local);
    }
    // Unspecified family or transport, with any rest.
    for family in [0x00, 0x01, 0x02, 0x10, 0x20, 0x30] {
        accept(&v2(0x21, family, b""), Addresses::Unknown);
        accept(&v2(0x21, family, INET), Addresses::Unknown);
    }
    // Fields after the addresses.
    let fields: [&[u8]; 4] = [
        b"\x04\x00\x00",
        b"\x02\x00\x09b.example\x05\x00\x01u",
        b"\xee\x00\x02\x03\x00",
        b"\x20\x00\x05\0\0\0\0\0",
    ];
    for fields in fields {
        accept(&v2(0x21, 0x11, &[INET, fields].concat()), inet());
    }
}

#[test]
fn whether_tls_was_used() {
    let with = |fields: &[u8]| v2(0x21, 0x11, &[INET, fields].concat());
    // TLSv1.3; a valid certificate or not; fields before and after.
    accept_with(
        &with(b"\x20\x00\x0f\x01\0\0\0\0\x21\x00\x07TLSv1.3"),
        inet(),
        true,
    );
    accept_with(
        &with(b"\x04\x00\x00\x20\x00\x05\x07\0\0\0\x01\x04\x00\x00"),
        inet(),
        true,
    );
    accept_with(&with(b"\x20\x00\x05\x06\0\0\0\0"), inet(), false);
    for short in [&b"\x20\x00\x00"[..], b"\x20\x00\x04\x01\0\0\0"] {
        refuse(&with(short), "bad TLS field in a PROXY header");
    }
    accept(
        &v2(0x20, 0x11, &[INET, b"\x20\x00\x05\x01\0\0\0\0"].concat()),
        Addresses::Local,
    );
}

fn unix_field(path: &[u8]) -> Vec<u8> {
    let mut field = path.to_vec();
    field.resize(108, 0);
    field
}

#[test]
fn unix_paths() {
    let long = [b'p'; 108];
    let cases: [(&[u8], &[u8]); 5] = [
        (b"", b""),
        (b"/run/a", b"/run/a"),
        (b"/run/a\0garbage", b"/run/a"),
        (b"\0abstract\0x", b"\0abstract\0x"),
        (&long, &long),
    ];
    for (field, path) in cases {
        for family in [0x31, 0x32] {
            let rest = [unix_field(field), unix_field(b"/run/b")].concat();
            let unix = Addresses::Unix {
                source: path,
                destination: b"/run/b",
            };
            accept(&v2(0x21, family, &rest), unix);
        }
    }
}

#[test]
fn bad_binary_headers() {
    let version = "unknown version of the PROXY protocol";
    let command = "unknown command in a PROXY header";
    let family = "unknown address family in a PROXY header";
    let transport = "unknown transport in a PROXY header";
    let short = "PROXY header too short for its addresses";
    let cases = [
        (v2(0x01, 0x11, INET), version, 13),
        (v2(0x11, 0x11, INET), version, 13),
        (v2(0x31, 0x11, INET), version, 13),
        (v2(0x22, 0x11, INET), command, 13),
        (v2(0x2f, 0x11, INET), command, 13),
        (v2(0x21, 0x41, INET), family, 14),
        (v2(0x21, 0xf0, INET), family, 14),
        (v2(0x21, 0x13, INET), transport, 14),
        (v2(0x21, 0x0f, INET), transport, 14),
        (v2(0x21, 0x11, b""), short, 16),
        (v2(0x21, 0x11, &INET[1..]), short, 16),
        (v2(0x21, 0x21, &[0; 35]), short, 16),
        (v2(0x21, 0x31, &[0; 215]), short, 16),
    ];
    for (input, reason, first) in cases {
        let shown = input.escape_ascii().to_string();
        assert_eq!(refuse(&input, reason), first, "{shown}");
    }
}

#[test]
fn a_binary_header_is_bounded() {
    let fits = [INET, &[0xe0, 0x0f, 0xe1], &[0; 4065]].concat();
    let header = v2(0x21, 0x11, &fits);
    assert_eq!(header.len(), V2_BYTES_MAX);
    assert_eq!(
        parse(&header).map(|header| header.map(|header| header.bytes)),
        Ok(Some(V2_BYTES_MAX))
    );
    for command in [0x20, 0x21] {
        let long = v2(command, 0x11, &[0; V2_BYTES_MAX - 15]);
        assert_eq!(refuse(&long, "PROXY header too long"), 16);
    }
    assert_eq!(
        parse(b"\r\n\r\n\0\r\nQUIT\n\x21\x00\xff\xff"),
        Err(refused("PROXY header too long"))
    );
}

fn refused(reason: &'static str) -> Reject {
    Reject {
        status: 400,
        reason,
    }
}

#[test]
fn fields_that_are_cut_off() {
    let fields: [&[u8]; 5] = [
        b"\x04",
        b"\x04\x00",
        b"\x04\x00\x01",
        b"\x04\xff\xffx",
        b"\x04\x00\x00\x05\x00\x02x",
    ];
    for fields in fields {
        let header = v2(0x21, 0x11, &[INET, fields].concat());
        let first = refuse(&header, "truncated field in a PROXY header");
        assert_eq!(first, header.len());
    }
}

/// As sent by a network load balancer of Amazon, from its vendor's tests.
const BALANCER: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x54\xac\x1f\x07\x71\xac\x1f\x0a\x1f\
    \xc8\xf2\x00\x50\x03\x00\x04\xe8\xd6\x89\x2d\xea\x00\x17\x01vpce-08d2bf15fac5001c9\
    \x04\x00\x24\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

#[test]
fn a_checksum_is_checked() {
    accept(BALANCER, ip("172.31.7.113:51442", "172.31.10.31:80"));
    let wrong = "wrong checksum in a PROXY header";
    // The type is at 28: without it, there is no checksum.
    for at in (16..BALANCER.len()).filter(|&at| at != 28) {
        let mut header = BALANCER.to_vec();
        header[at] ^= 1;
        assert!(parse(&header).is_err(), "changed at {at}");
    }
    for at in [16, 27, 31, 34, 50, 70] {
        let mut header = BALANCER.to_vec();
        header[at] ^= 0x80;
        assert_eq!(parse(&header), Err(refused(wrong)), "changed at {at}");
    }
    for field in [
        &b"\x03\x00\x00"[..],
        b"\x03\x00\x03\0\0\0",
        b"\x03\x00\x05\0\0\0\0\0",
    ] {
        refuse(&v2(0x21, 0x11, &[INET, field].concat()), wrong);
    }
}

/// Computed bit by bit, as a second implementation.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |sum: u32| (sum >> 1) ^ (0x82f6_3b78 * (sum & 1));
    let byte = |sum: u32, &byte: &u8| (0..8).fold(sum ^ u32::from(byte), |sum, _| step(sum));
    !bytes.iter().fold(!0, byte)
}

#[test]
fn one_checksum_is_enough() {
    let checksum = b"\x03\x00\x04\0\0\0\0";
    for (times, right) in [(1, true), (2, false)] {
        let mut header = v2(0x21, 0x11, &[INET, &checksum.repeat(times)].concat());
        let sum = crc32c(&header).to_be_bytes();
        header[31..35].copy_from_slice(&sum);
        if right {
            accept(&header, inet());
        } else {
            refuse(&header, "wrong checksum in a PROXY header");
        }
    }
}

fn written(addresses: &Addresses<'_>) -> (String, Vec<u8>) {
    let (mut line, mut binary) = (Vec::new(), Vec::new());
    write_v1(addresses, &mut line);
    write_v2(addresses, &mut binary);
    (String::from_utf8(line).expect("a line is ASCII"), binary)
}

#[test]
fn written_headers() {
    let unix = Addresses::Unix {
        source: b"",
        destination: b"/run/b",
    };
    let unix_rest = [unix_field(b""), unix_field(b"/run/b")].concat();
    let inet6 = b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\
        \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\xff\xff\0\x50";
    let mixed = b"\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\x00\x02\x01\
        \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\x01\0\x02";
    let cases = [
        (
            inet(),
            "PROXY TCP4 192.0.2.1 198.51.100.2 1024 443\r\n",
            v2(0x21, 0x11, INET),
        ),
        (
            ip("[::ffff:192.0.2.1]:1024", "[::ffff:198.51.100.2]:443"),
            "PROXY TCP4 192.0.2.1 198.51.100.2 1024 443\r\n",
            v2(0x21, 0x11, INET),
        ),
        (
            ip("[2001:db8::1]:65535", "[::1]:80"),
            "PROXY TCP6 2001:db8::1 ::1 65535 80\r\n",
            v2(0x21, 0x21, inet6),
        ),
        (
            ip("192.0.2.1:1", "[::1]:2"),
            "PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n",
            v2(0x21, 0x21, mixed),
        ),
        (Addresses::Local, "PROXY UNKNOWN\r\n", v2(0x20, 0, b"")),
        (Addresses::Unknown, "PROXY UNKNOWN\r\n", v2(0x21, 0, b"")),
        (unix, "PROXY UNKNOWN\r\n", v2(0x21, 0x31, &unix_rest)),
    ];
    for (addresses, line, binary) in cases {
        let (found_line, found_binary) = written(&addresses);
        assert_eq!(
            (&found_line[..], found_binary),
            (line, binary),
            "{addresses:?}"
        );
        assert!(line.len() <= V1_BYTES_MAX);
    }
    let long = Addresses::Unix {
        source: &[b'p'; 109],
        destination: b"",
    };
    assert_eq!(written(&long).1, v2(0x21, 0, b""));
}
