//! AJP13, packet by packet.

use levity_wire::ajp13::{
    BODY_BYTES_MAX, Decoded, Head, Message, PACKET_BYTES_MAX, PING, Reader, Upload, write_head,
};
use levity_wire::http1::{Reject, Version};

const GET: Head<'static> = Head {
    method: b"GET",
    version: Version::Http11,
    path: b"/a",
    query: None,
    remote_address: b"192.0.2.7",
    remote_port: None,
    server_name: b"b.example",
    server_port: 80,
    secure: false,
    secret: None,
};

type Lines<'a> = &'a [(&'a [u8], &'a [u8])];

fn written(head: &Head<'_>, headers: Lines<'_>) -> Result<Vec<u8>, Reject> {
    let mut out = b"before".to_vec();
    let written = write_head(head, headers.iter().copied(), &mut out);
    assert!(out.starts_with(b"before"));
    if written.is_err() {
        assert_eq!(out, b"before");
    }
    written.map(|()| out.split_off(b"before".len()))
}

#[test]
fn a_small_head() {
    let golden = b"\x12\x34\x00\x3c\x02\x02\x00\x08HTTP/1.1\x00\x00\x02/a\x00\
        \x00\x09192.0.2.7\x00\x00\x09192.0.2.7\x00\x00\x09b.example\x00\x00\x50\x00\x00\x00\xff";
    assert_eq!(written(&GET, &[]).as_deref(), Ok(&golden[..]));
}

#[test]
fn a_head_with_everything() {
    let head = Head {
        method: b"PATCH",
        version: Version::Http10,
        path: b"/a%20b;c",
        query: Some(b"d=%20"),
        remote_address: b"2001:db8::7",
        remote_port: Some(65535),
        server_name: b"[::1]",
        server_port: 8443,
        secure: true,
        secret: Some(b"s3cret"),
    };
    let headers: Lines<'_> = &[
        (b"Host", b"[::1]:8443"),
        (b"ACCEPT", b""),
        (b"X-\xc3\xa9", b"caf\xe9\t!"),
        (b"content-length", b"12"),
        (b"User-Agent", b"x"),
    ];
    let golden = b"\x12\x34\x00\xaa\x02\xff\x00\x08HTTP/1.0\x00\x00\x08/a%20b;c\x00\
        \x00\x0b2001:db8::7\x00\x00\x0b2001:db8::7\x00\x00\x05[::1]\x00\x20\xfb\x01\
        \x00\x05\xa0\x0b\x00\x0a[::1]:8443\x00\xa0\x01\x00\x00\x00\
        \x00\x04X-\xc3\xa9\x00\x00\x06caf\xe9\t!\x00\
        \xa0\x08\x00\x0212\x00\xa0\x0e\x00\x01x\x00\
        \x05\x00\x05d=%20\x00\x0a\x00\x0fAJP_REMOTE_PORT\x00\x00\x0565535\x00\
        \x0c\x00\x06s3cret\x00\x0d\x00\x05PATCH\x00\xff";
    assert_eq!(written(&head, headers).as_deref(), Ok(&golden[..]));
}

#[test]
fn methods_have_codes() {
    let cases: [(&[u8], u8); 8] = [
        (b"OPTIONS", 1),
        (b"GET", 2),
        (b"POST", 4),
        (b"DELETE", 6),
        (b"PROPFIND", 8),
        (b"VERSION-CONTROL", 17),
        (b"MKACTIVITY", 27),
        (b"get", 0xff),
    ];
    for (method, code) in cases {
        let packet = written(&Head { method, ..GET }, &[]).expect("a good head");
        assert_eq!(packet[5], code, "{}", method.escape_ascii());
    }
}

#[test]
fn header_names_have_codes() {
    let names = [
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "authorization",
        "connection",
        "content-type",
        "content-length",
        "cookie",
        "cookie2",
        "host",
        "pragma",
        "referer",
        "user-agent",
    ];
    for (code, name) in (1u8..).zip(names) {
        let packet = written(&GET, &[(name.as_bytes(), b"v")]).expect("a good head");
        let line = [0xa0, code, 0, 1, b'v', 0, 0xff];
        assert!(packet.ends_with(&line), "{name}");
    }
}

#[test]
fn a_head_fills_its_packet_and_no_more() {
    let spare = PACKET_BYTES_MAX - written(&GET, &[(b"x", b"")]).expect("a good head").len();
    let value = vec![b'v'; spare + 1];
    let full = written(&GET, &[(b"x", &value[1..])]).expect("it just fits");
    assert_eq!(full.len(), PACKET_BYTES_MAX);
    assert_eq!(full[2..4], (PACKET_BYTES_MAX as u16 - 4).to_be_bytes());
    let long: [(Head<'_>, Lines<'_>); 5] = [
        (GET, &[(b"x", &value)]),
        (GET, &[(b"x", &value[1..]), (b"cookie", b"")]),
        (GET, &[(b"x", &value[2..]), (b"y", b"")]),
        (
            Head {
                query: Some(b""),
                ..GET
            },
            &[(b"x", &value[1..])],
        ),
        (
            Head {
                query: Some(&[b'q'; 70_000]),
                ..GET
            },
            &[],
        ),
    ];
    for (head, headers) in long {
        let reject = written(&head, headers).expect_err("more than fits");
        assert_eq!(
            (reject.status, reject.reason),
            (431, "request headers do not fit in an AJP13 packet")
        );
    }
}

#[test]
fn heads_that_are_not_written() {
    let control = "control character in a string for a container";
    let no_path = "request for a container without a path";
    let bad: [(Head<'_>, Lines<'_>, &str); 9] = [
        (Head { path: b"", ..GET }, &[], no_path),
        (
            Head {
                path: b"http://c/",
                ..GET
            },
            &[],
            no_path,
        ),
        (
            Head {
                path: b"/\0",
                ..GET
            },
            &[],
            control,
        ),
        (
            Head {
                query: Some(b"\n"),
                ..GET
            },
            &[],
            control,
        ),
        (
            Head {
                secret: Some(b"\0"),
                ..GET
            },
            &[],
            control,
        ),
        (
            Head {
                server_name: b"\x7f",
                ..GET
            },
            &[],
            control,
        ),
        (GET, &[(b"a\0", b"")], control),
        (GET, &[(b"a", b"b\r\nc: d")], control),
        (GET, &[(b"host", b"\0")], control),
    ];
    for (head, headers, reason) in bad {
        let reject = written(&head, headers).expect_err(reason);
        assert_eq!((reject.status, reject.reason), (400, reason), "{head:?}");
    }
    assert!(written(&Head { path: b"*", ..GET }, &[]).is_ok());
}

#[test]
fn a_body_with_a_length_starts_without_being_asked_for() {
    let mut upload = Upload::new(Some(3));
    assert_eq!(upload.credit(), BODY_BYTES_MAX);
    let mut out = Vec::new();
    assert_eq!(upload.write(b"", &mut out), 0);
    assert_eq!(upload.write(b"abc", &mut out), 3);
    assert_eq!(out, b"\x12\x34\x00\x05\x00\x03abc");
    assert_eq!(upload.credit(), 0);
    assert_eq!(upload.write(b"d", &mut out), 0);
    assert!(!upload.write_end(&mut out));
    assert_eq!(out.len(), 9);
}

#[test]
fn other_bodies_wait_until_they_are_asked_for() {
    for length in [None, Some(0)] {
        let mut upload = Upload::new(length);
        let mut out = Vec::new();
        assert_eq!((upload.credit(), upload.write(b"abc", &mut out)), (0, 0));
        assert_eq!(upload.grant(2), Ok(()));
        assert_eq!(upload.write(b"abc", &mut out), 2);
        assert_eq!(upload.grant(8186), Ok(()));
        assert_eq!(upload.write(b"c", &mut out), 1);
        assert_eq!(upload.grant(8186), Ok(()));
        assert!(upload.write_end(&mut out));
        let sent = b"\x12\x34\x00\x04\x00\x02ab\x12\x34\x00\x03\x00\x01c\x12\x34\x00\x00";
        assert_eq!(out, sent);
        assert!(!upload.write_end(&mut out));
    }
}

#[test]
fn a_body_packet_is_never_longer_than_a_packet() {
    let mut upload = Upload::new(None);
    assert_eq!(upload.grant(u16::MAX), Ok(()));
    let mut out = Vec::new();
    assert_eq!(upload.write(&[b'x'; 70_000], &mut out), BODY_BYTES_MAX);
    assert_eq!(out.len(), PACKET_BYTES_MAX);
    assert_eq!(out[..6], [0x12, 0x34, 0x1f, 0xfc, 0x1f, 0xfa]);
}

#[test]
fn bad_requests_for_body_chunks() {
    let mut upload = Upload::new(Some(1));
    let reject = upload.grant(1).expect_err("it waits");
    assert_eq!(reject.status, 502);
    let mut upload = Upload::new(None);
    let reject = upload.grant(0).expect_err("nothing is asked for");
    assert_eq!(
        (reject.status, reject.reason),
        (502, "container requests no bytes")
    );
}

#[test]
fn a_ping() {
    assert_eq!(PING, *b"\x12\x34\x00\x01\x0a");
}

/// A packet of the container with its length.
fn packet(payload: &[u8]) -> Vec<u8> {
    [&b"AB"[..], &(payload.len() as u16).to_be_bytes(), payload].concat()
}

/// The result of decoding all the input at once: bodies joined, headers formatted.
fn read(mut reader: Reader, input: &[u8]) -> (Vec<String>, Result<usize, Reject>) {
    let (mut found, mut body, mut at) = (Vec::new(), String::new(), 0);
    loop {
        let Decoded { consumed, message } = match reader.decode(&input[at..]) {
            Ok(decoded) => decoded,
            Err(reject) => return (found, Err(reject)),
        };
        at += consumed;
        if let Some(Message::SendBodyChunk(data)) = message {
            assert!(!data.is_empty());
            body.push_str(&data.escape_ascii().to_string());
            continue;
        }
        if !body.is_empty() {
            found.push(format!("body {}", std::mem::take(&mut body)));
        }
        match message {
            Some(message) => found.push(shown(message)),
            None => return (found, Ok(at)),
        }
    }
}

fn shown(message: Message<'_>) -> String {
    match message {
        Message::SendHeaders(head) => {
            let mut text = format!("head {} {}", head.status, head.message.escape_ascii());
            for (name, value) in head.headers() {
                text += &format!("; {}: {}", name.escape_ascii(), value.escape_ascii());
            }
            text
        }
        Message::SendBodyChunk(_) => unreachable!("joined by the caller"),
        Message::GetBodyChunk { requested } => format!("wants {requested}"),
        Message::EndResponse { reuse } => format!("end, reuse {reuse}"),
        Message::CPong => "pong".to_owned(),
    }
}

/// Headers as Tomcat sends them, a body with a flush in between, the end.
const RESPONSE: &[u8] = b"AB\x00\x43\x04\x00\xc8\x00\x03200\x00\x00\x04\
    \xa0\x01\x00\x09text/html\x00\xa0\x07\x00\x03a=b\x00\xa0\x07\x00\x03c=d\x00\
    \x00\x06X-Name\x00\x00\x0e\tvalue \xc3\xa9 two \x00\
    AB\x00\x03\x06\x1f\xfa\
    AB\x00\x09\x03\x00\x05hello\x00\
    AB\x00\x04\x03\x00\x00\x00\
    AB\x00\x04\x03\x00\x01!\
    AB\x00\x02\x05\x01";

fn found_in_response() -> Vec<String> {
    [
        "head 200 200; Content-Type: text/html; Set-Cookie: a=b; Set-Cookie: c=d; \
         X-Name: value \\xc3\\xa9 two",
        "wants 8186",
        "body hello!",
        "end, reuse true",
    ]
    .map(str::to_owned)
    .to_vec()
}

#[test]
fn a_response() {
    let (found, end) = read(Reader::response(), RESPONSE);
    assert_eq!(end, Ok(RESPONSE.len()));
    assert_eq!(found, found_in_response());
}

#[test]
fn every_prefix_of_a_response_asks_for_more() {
    let whole = found_in_response();
    for cut in 0..RESPONSE.len() {
        let (found, end) = read(Reader::response(), &RESPONSE[..cut]);
        assert!(matches!(end, Ok(at) if at <= cut), "cut at {cut}: {end:?}");
        assert!(found.len() < whole.len(), "cut at {cut}");
        for (found, whole) in found.iter().zip(&whole) {
            assert!(whole.starts_with(found), "cut at {cut}: {found}");
        }
    }
}

#[test]
fn a_body_is_handed_over_as_it_arrives() {
    let mut reader = Reader::response();
    let head = packet(b"\x04\x00\xc8\xff\xff\x00\x00");
    let decoded = reader.decode(&head).expect("a head");
    assert_eq!(decoded.consumed, head.len());
    let part = b"AB\x00\x09\x03\x00\x05hel";
    let decoded = reader.decode(part).expect("a part of a chunk");
    assert_eq!(decoded.consumed, part.len());
    assert_eq!(decoded.message, Some(Message::SendBodyChunk(b"hel")));
    let decoded = reader.decode(b"lo").expect("the rest");
    assert_eq!(decoded.message, Some(Message::SendBodyChunk(b"lo")));
    let decoded = reader.decode(b"\0AB").expect("its NUL, and a start");
    assert_eq!((decoded.consumed, decoded.message), (1, None));
}

#[test]
fn a_pong() {
    let pong = packet(b"\x09");
    assert_eq!(
        read(Reader::pong(), &pong),
        (vec!["pong".to_owned()], Ok(5))
    );
    for cut in 0..pong.len() {
        assert_eq!(read(Reader::pong(), &pong[..cut]), (vec![], Ok(0)));
    }
}

#[test]
fn only_the_value_1_allows_reuse() {
    for byte in [0, 2, 255] {
        let input = [
            &packet(b"\x04\x00\xc8\x00\x00\x00\x00\x00")[..],
            &packet(&[5, byte]),
        ]
        .concat();
        let (found, _) = read(Reader::response(), &input);
        assert_eq!(found[1], "end, reuse false");
    }
}

#[test]
fn all_coded_names() {
    let names = [
        "Content-Type",
        "Content-Language",
        "Content-Length",
        "Date",
        "Last-Modified",
        "Location",
        "Set-Cookie",
        "Set-Cookie2",
        "Servlet-Engine",
        "Status",
        "WWW-Authenticate",
    ];
    for (code, name) in (1u8..).zip(names) {
        let head = [
            &b"\x04\x00\xc8\xff\xff\x00\x01\xa0"[..],
            &[code],
            b"\x00\x011\x00",
        ]
        .concat();
        let (found, _) = read(Reader::response(), &packet(&head));
        assert_eq!(found, [format!("head 200 ; {name}: 1")]);
    }
}

#[test]
fn a_length_is_read_under_either_form_of_its_name() {
    let cases = [
        (&b"\xa0\x03\x00\x0212\x00"[..], Some(12)),
        (b"\x00\x0eContent-LENGTH\x00\x00\x03 12\x00", Some(12)),
        (b"\x00\x04Date\x00\x00\x0212\x00", None),
    ];
    for (line, length) in cases {
        let input = head_with(line);
        let decoded = Reader::response().decode(&input).expect("a good head");
        let Some(Message::SendHeaders(head)) = decoded.message else {
            panic!("no head: {decoded:?}");
        };
        assert_eq!(head.content_length, length, "{}", line.escape_ascii());
    }
}

/// The valid start of headers with one header line, up to its name.
const HEAD: &[u8] = b"\x04\x00\xc8\x00\x02OK\x00\x00\x01";

fn head_with(line: &[u8]) -> Vec<u8> {
    packet(&[HEAD, line].concat())
}

#[test]
fn forbidden_container_output() {
    let head = packet(b"\x04\x00\xc8\x00\x00\x00\x00\x00");
    let after_head = |more: &[u8]| [&head[..], more].concat();
    let after_end = |more: &[u8]| [&head[..], b"AB\x00\x02\x05\x01", more].concat();
    let cases = [
        (b"H".to_vec(), "packet without its magic number"),
        (b"AC".to_vec(), "packet without its magic number"),
        (
            b"\x12\x34\x00\x01\x0a".to_vec(),
            "packet without its magic number",
        ),
        (after_head(b"A\0"), "packet without its magic number"),
        (b"AB\x00\x00".to_vec(), "empty packet"),
        (b"AB\x1f\xfd".to_vec(), "packet too long"),
        (b"AB\xff\xff\x03\xff\xfb".to_vec(), "packet too long"),
        (packet(b"\x00"), "packet of an unknown type"),
        (packet(b"\x02"), "packet of an unknown type"),
        (packet(b"\x07"), "packet of an unknown type"),
        (after_head(&packet(b"\x0a")), "packet of an unknown type"),
        (packet(b"\x03\x00\x01a\x00"), "body before the headers"),
        (
            packet(b"\x05\x01"),
            "end of the response before its headers",
        ),
        (after_head(&head), "headers sent twice"),
        (packet(b"\x09"), "CPong without a CPing"),
        (after_head(&packet(b"\x09")), "CPong without a CPing"),
        (after_end(b"A"), "bytes after the end of the response"),
        (
            after_end(&packet(b"\x09")),
            "bytes after the end of the response",
        ),
        (
            after_end(&packet(b"\x06\x00\x01")),
            "bytes after the end of the response",
        ),
        (
            after_head(&packet(b"\x05")),
            "packet shorter than its message",
        ),
        (
            after_head(&packet(b"\x05\x01\x00")),
            "packet longer than its message",
        ),
        (packet(b"\x06\x00"), "packet shorter than its message"),
        (
            packet(b"\x06\x00\x01\x00"),
            "packet longer than its message",
        ),
        (
            after_head(&packet(b"\x03\x00\x02a")),
            "chunk does not fill its packet",
        ),
        (
            after_head(&packet(b"\x03\xff\xff")),
            "chunk does not fill its packet",
        ),
        (
            after_head(&packet(b"\x03\x00\x00\x00\x00")),
            "chunk does not fill its packet",
        ),
        (
            after_head(&packet(b"\x03\x00\x01ab")),
            "chunk without its NUL",
        ),
        (packet(b"\x04\x00\xc8"), "packet shorter than its message"),
        (
            packet(b"\x04\x00\xc8\x00\x03OK\x00"),
            "string longer than its packet",
        ),
        (
            packet(b"\x04\x00\xc8\x00\x02OK"),
            "string longer than its packet",
        ),
        (
            packet(b"\x04\x00\xc8\x00\x02OK!\x00\x00"),
            "string without its NUL",
        ),
        (
            packet(b"\x04\x00\xc8\x00\x00\x00\xff\xff"),
            "packet shorter than its message",
        ),
        (
            packet(b"\x04\x00\xc8\x00\x00\x00\x00\x00\x00"),
            "packet longer than its message",
        ),
        (
            head_with(b"\x00\x01a\x00\x00\x01b"),
            "string longer than its packet",
        ),
        (
            head_with(b"\x00\x01a\x00\x00\x01bc"),
            "string without its NUL",
        ),
        (
            head_with(b"\x00\x01aa\x00\x00\x00\x00"),
            "string without its NUL",
        ),
        (
            head_with(b"\xa0\x00\x00\x00\x00"),
            "unknown code of a header name",
        ),
        (
            head_with(b"\xa0\x0c\x00\x00\x00"),
            "unknown code of a header name",
        ),
        (head_with(b"\x9f\xff\x00"), "string longer than its packet"),
        (
            head_with(b"\xff\xff\x00\x01b\x00"),
            "string longer than its packet",
        ),
        (head_with(b"\x00\x00\x00\x00\x01b\x00"), "bad header name"),
        (head_with(b"\xa0\x03\x00\x03+12\x00"), "bad Content-Length"),
        (head_with(b"\xa0\x03\x00\x00\x00"), "bad Content-Length"),
        (
            [
                packet(b"\x06\x00\x01"),
                packet(
                    b"\x04\x00\xc8\xff\xff\x00\x02\xa0\x03\x00\x011\x00\
                    \x00\x0econtent-length\x00\x00\x011\x00",
                ),
            ]
            .concat(),
            "repeated Content-Length",
        ),
    ];
    for (input, reason) in cases {
        refused(Reader::response(), &input, reason);
    }
}

#[track_caller]
fn refused(reader: Reader, input: &[u8], reason: &str) {
    let shown = input.escape_ascii().to_string();
    let reject = read(reader, input).1.expect_err(&shown);
    assert_eq!((reject.status, reject.reason), (502, reason), "{shown}");
}

#[test]
fn only_a_pong_answers_a_ping() {
    for packet_type in 3..=6 {
        refused(
            Reader::pong(),
            &packet(&[packet_type]),
            "no CPong after a CPing",
        );
    }
    refused(
        Reader::pong(),
        &packet(b"\x0a"),
        "packet of an unknown type",
    );
    refused(
        Reader::pong(),
        &packet(b"\x09\x00"),
        "packet longer than its message",
    );
    let twice = packet(b"\x09").repeat(2);
    refused(
        Reader::pong(),
        &twice,
        "bytes after the end of the response",
    );
}

#[test]
fn a_status_is_that_of_a_final_response() {
    for status in [0u16, 99, 100, 101, 199, 1000, 65535] {
        let payload = [&[4u8][..], &status.to_be_bytes(), b"\x00\x00\x00\x00\x00"].concat();
        refused(Reader::response(), &packet(&payload), "status out of range");
    }
    for status in [200u16, 304, 599, 600, 999] {
        let payload = [&[4u8][..], &status.to_be_bytes(), b"\x00\x00\x00\x00\x00"].concat();
        assert_eq!(
            read(Reader::response(), &packet(&payload)).0,
            [format!("head {status} ")]
        );
    }
}

#[test]
fn no_response_is_split() {
    for byte in (0..b' ').chain([0x7f]).filter(|&byte| byte != b'\t') {
        let control = "control character in the header section";
        let value = [&b"\x00\x01a\x00\x00\x03b"[..], &[byte], b"c\x00"].concat();
        refused(Reader::response(), &head_with(&value), control);
        let coded = [&b"\xa0\x06\x00\x03/"[..], &[byte], b"c\x00"].concat();
        refused(Reader::response(), &head_with(&coded), control);
        let message = [&b"\x04\x00\xc8\x00\x02O"[..], &[byte], b"\x00\x00\x00"].concat();
        refused(Reader::response(), &packet(&message), control);
    }
    for byte in
        (0..=255).filter(|&byte: &u8| byte.is_ascii_control() || b" :\"/\x80".contains(&byte))
    {
        let name = [&b"\x00\x02a"[..], &[byte], b"\x00\x00\x01b\x00"].concat();
        refused(Reader::response(), &head_with(&name), "bad header name");
    }
}

#[test]
fn a_full_packet_is_read() {
    let mut payload = [HEAD, &b"\x00\x01a\x00"[..]].concat();
    let value = vec![b'v'; PACKET_BYTES_MAX - 4 - payload.len() - 3];
    payload.extend((value.len() as u16).to_be_bytes());
    payload.extend(&value);
    payload.push(0);
    let input = packet(&payload);
    assert_eq!(input.len(), PACKET_BYTES_MAX);
    assert_eq!(read(Reader::response(), &input).1, Ok(PACKET_BYTES_MAX));
    let cut = &input[..PACKET_BYTES_MAX - 1];
    assert_eq!(read(Reader::response(), cut), (vec![], Ok(0)));
}
