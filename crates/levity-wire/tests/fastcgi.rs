//! FastCGI, rule by rule.

use levity_wire::Reject;
use levity_wire::cgi::Environment;
use levity_wire::fastcgi::{
    Decoded, Event, ProtocolStatus, ResponseDecoder, STDIN_END, stdin, write_head,
};

mod application;

use application::{receive, response_record};

const STDOUT: u8 = 6;
const STDERR: u8 = 7;
const END: u8 = 3;

fn environment(pairs: &[(&str, &[u8])]) -> Environment {
    let mut environment = Environment::default();
    for (name, value) in pairs {
        environment.set(name, value).expect("short enough");
    }
    environment
}

/// A whole request.
fn request(environment: &Environment, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_head(environment, true, &mut bytes);
    for record in stdin(body) {
        bytes.extend(record.header);
        bytes.extend(record.content);
        bytes.extend(record.padding);
    }
    bytes.extend(STDIN_END);
    bytes
}

#[test]
fn a_request_byte_by_byte() {
    let environment = environment(&[("A", b"b"), ("EMPTY", b"")]);
    let expected = [
        &[1, 1, 0, 1, 0, 8, 0, 0][..],
        &[0, 1, 1, 0, 0, 0, 0, 0],
        &[1, 4, 0, 1, 0, 11, 5, 0],
        b"\x01\x01Ab\x05\x00EMPTY\0\0\0\0\0",
        &[1, 4, 0, 1, 0, 0, 0, 0],
        &[1, 5, 0, 1, 0, 5, 3, 0],
        b"hello\0\0\0",
        &[1, 5, 0, 1, 0, 0, 0, 0],
    ];
    assert_eq!(request(&environment, b"hello"), expected.concat());
}

#[test]
fn the_connection_is_kept_when_asked_for() {
    for keep_conn in [false, true] {
        let mut bytes = Vec::new();
        write_head(&Environment::default(), keep_conn, &mut bytes);
        bytes.extend(STDIN_END);
        let received = receive(&bytes);
        assert_eq!(received.keep_conn, keep_conn);
        assert!(received.variables.is_empty() && received.body.is_empty());
    }
}

#[test]
fn a_request_is_appended() {
    let mut bytes = b"before".to_vec();
    write_head(&environment(&[("A", b"b")]), true, &mut bytes);
    bytes.extend(STDIN_END);
    let received = receive(bytes.strip_prefix(b"before").expect("still there"));
    assert_eq!(received.variables, [(b"A".to_vec(), b"b".to_vec())]);
}

#[test]
fn records_without_content() {
    assert_eq!(STDIN_END, [1, 5, 0, 1, 0, 0, 0, 0]);
}

#[test]
fn lengths_take_one_byte_up_to_127_and_four_beyond() {
    let cases: [(usize, &[u8]); 4] = [
        (0, &[0]),
        (127, &[127]),
        (128, &[0x80, 0, 0, 128]),
        (60_000, &[0x80, 0, 0xea, 0x60]),
    ];
    for (len, encoded) in cases {
        let value = vec![b'v'; len];
        let bytes = request(&environment(&[("N", &value)]), b"");
        let content = &bytes[16 + 8..];
        assert_eq!(content[0], 1);
        assert_eq!(&content[1..1 + encoded.len()], encoded);
        assert_eq!(receive(&bytes).variables, [(b"N".to_vec(), value)]);
    }
    let name = "N".repeat(128);
    let bytes = request(&environment(&[(&name, b"v")]), b"");
    assert_eq!(bytes[24..29], [0x80, 0, 0, 128, 1]);
    assert_eq!(
        receive(&bytes).variables,
        [(name.into_bytes(), b"v".to_vec())]
    );
}

/// An environment of the maximum size needs two records because of the lengths; the decoder would
/// fail at a variable that is split between them.
#[test]
fn no_variable_is_divided_between_two_records() {
    let mut environment = Environment::default();
    for number in 0..2560 {
        let name = format!("V{number:04}");
        environment.set(&name, &[b'v'; 19]).expect("just enough");
    }
    let bytes = request(&environment, b"");
    assert!(bytes.len() > 65_528 + 8 * 6);
    let received = receive(&bytes);
    assert_eq!(received.variables.len(), 2560);
    assert!(
        environment
            .pairs()
            .eq(received.variables.iter().map(|(n, v)| (&n[..], &v[..])))
    );
}

#[test]
fn bodies_of_any_length() {
    for len in [0, 1, 7, 8, 9, 65_527, 65_528, 65_529, 65_536, 200_000] {
        let body: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let received = receive(&request(&Environment::default(), &body));
        assert!(received.body == body, "{len} bytes");
    }
}

#[test]
fn a_body_is_not_copied() {
    let body = vec![b'b'; 100_000];
    let mut at = 0;
    for record in stdin(&body) {
        assert_eq!(record.content.as_ptr(), body[at..].as_ptr());
        assert!(record.padding.len() < 8 && !record.content.is_empty());
        at += record.content.len();
    }
    assert_eq!(at, body.len());
}

/// Contiguous bytes of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    End(u32, ProtocolStatus),
}

fn add(pieces: &mut Vec<Piece>, event: Event<'_>) {
    match (pieces.last_mut(), event) {
        (_, Event::Stdout([]) | Event::Stderr([])) => panic!("an event without bytes"),
        (Some(Piece::Stdout(held)), Event::Stdout(bytes)) => held.extend(bytes),
        (Some(Piece::Stderr(held)), Event::Stderr(bytes)) => held.extend(bytes),
        (_, Event::Stdout(bytes)) => pieces.push(Piece::Stdout(bytes.to_vec())),
        (_, Event::Stderr(bytes)) => pieces.push(Piece::Stderr(bytes.to_vec())),
        (
            _,
            Event::End {
                app_status,
                protocol_status,
            },
        ) => pieces.push(Piece::End(app_status, protocol_status)),
    }
}

fn decode(decoder: &mut ResponseDecoder, bytes: &[u8]) -> (Vec<Piece>, Result<Decoded, Reject>) {
    let mut pieces = Vec::new();
    let decoded = decoder.decode(bytes, |event| add(&mut pieces, event));
    (pieces, decoded)
}

fn end_record(app_status: u32, protocol_status: u8, padding: u8) -> Vec<u8> {
    let mut content = app_status.to_be_bytes().to_vec();
    content.extend([protocol_status, 9, 9, 9]);
    response_record(END, &content, padding)
}

/// Both streams, with padding and without, interleaved, empty, and ended.
fn golden() -> Vec<u8> {
    [
        response_record(STDOUT, b"Status: 404 Not Found\r\n", 1),
        response_record(STDERR, b"PHP Warning: a\n", 0),
        response_record(STDERR, b"PHP Warning: b\n", 255),
        response_record(STDERR, b"", 8),
        response_record(STDOUT, b"\r\nhello", 0),
        response_record(STDOUT, b" world", 2),
        response_record(STDOUT, b"", 0),
        response_record(STDERR, b"", 0),
        end_record(0x0102_0304, 0, 7),
    ]
    .concat()
}

fn golden_pieces() -> Vec<Piece> {
    vec![
        Piece::Stdout(b"Status: 404 Not Found\r\n".to_vec()),
        Piece::Stderr(b"PHP Warning: a\nPHP Warning: b\n".to_vec()),
        Piece::Stdout(b"\r\nhello world".to_vec()),
        Piece::End(0x0102_0304, ProtocolStatus::Complete),
    ]
}

#[test]
fn a_response_means_the_same_however_it_is_split() {
    let bytes = golden();
    for cut in 0..bytes.len() {
        let (start, rest) = bytes.split_at(cut);
        let mut decoder = ResponseDecoder::new(true);
        let mut pieces = Vec::new();
        for (part, done) in [(start, false), (rest, true)] {
            let decoded = decoder.decode(part, |event| add(&mut pieces, event));
            let consumed = part.len();
            assert_eq!(decoded, Ok(Decoded { consumed, done }), "cut at {cut}");
            assert_eq!(decoder.is_reusable(), done);
        }
        assert_eq!(pieces, golden_pieces(), "cut at {cut}");
    }
}

#[test]
fn a_response_byte_by_byte() {
    let bytes = golden();
    let (mut decoder, mut pieces) = (ResponseDecoder::new(true), Vec::new());
    for (at, byte) in bytes.iter().enumerate() {
        let decoded = decoder.decode(std::slice::from_ref(byte), |event| add(&mut pieces, event));
        let done = at + 1 == bytes.len();
        assert_eq!(decoded, Ok(Decoded { consumed: 1, done }));
    }
    assert_eq!(pieces, golden_pieces());
}

#[test]
fn data_is_not_copied() {
    let bytes = golden();
    let mut seen = 0;
    let decoded = ResponseDecoder::new(true).decode(&bytes, |event| {
        if let Event::Stdout(data) | Event::Stderr(data) = event {
            assert!(bytes.as_ptr_range().contains(&data.as_ptr()));
            seen += data.len();
        }
    });
    assert!(decoded.is_ok_and(|decoded| decoded.done));
    assert_eq!(seen, 66);
}

#[test]
fn rejected_responses() {
    let stdout = response_record(STDOUT, b"x", 0);
    let with = |at: usize, byte: u8| {
        let mut record = stdout.clone();
        record[at] = byte;
        record
    };
    let end_of = |content: &[u8]| response_record(END, content, 0);
    let cases = [
        (with(0, 0), "not FastCGI version 1"),
        (with(0, 2), "not FastCGI version 1"),
        (
            b"HTTP/1.1 400 Bad Request".to_vec(),
            "not FastCGI version 1",
        ),
        (with(2, 1), "FastCGI record of another request"),
        (with(3, 0), "FastCGI record of another request"),
        (with(3, 2), "FastCGI record of another request"),
        (with(1, 0), "FastCGI record of an unexpected type"),
        (with(1, 1), "FastCGI record of an unexpected type"),
        (with(1, 4), "FastCGI record of an unexpected type"),
        (with(1, 5), "FastCGI record of an unexpected type"),
        (with(1, 8), "FastCGI record of an unexpected type"),
        (with(1, 10), "FastCGI record of an unexpected type"),
        (with(1, 11), "FastCGI record of an unexpected type"),
        (with(1, 255), "FastCGI record of an unexpected type"),
        (end_of(b""), "FastCGI END_REQUEST of a wrong length"),
        (end_of(&[0; 7]), "FastCGI END_REQUEST of a wrong length"),
        (end_of(&[0; 9]), "FastCGI END_REQUEST of a wrong length"),
        (end_of(&[0; 16]), "FastCGI END_REQUEST of a wrong length"),
        (
            end_record(0, 4, 0),
            "FastCGI END_REQUEST with an unknown status",
        ),
        (
            end_record(0, 255, 3),
            "FastCGI END_REQUEST with an unknown status",
        ),
    ];
    for (record, reason) in cases {
        for before in [vec![], stdout.clone()] {
            let bytes = [before.clone(), record.clone()].concat();
            let mut decoder = ResponseDecoder::new(true);
            let (pieces, decoded) = decode(&mut decoder, &bytes);
            let reject = decoded.expect_err(reason);
            assert_eq!((reject.status, reject.reason), (502, reason));
            assert_eq!(pieces.is_empty(), before.is_empty());
            assert!(!decoder.is_reusable());
        }
    }
}

/// A management record responds to one of the server, and there is none.
#[test]
fn management_records_are_refused() {
    for kind in [10, 11] {
        let mut record = response_record(kind, &[0; 8], 0);
        record[3] = 0;
        assert!(ResponseDecoder::new(true).decode(&record, |_| {}).is_err());
    }
}

#[test]
fn the_largest_record_is_passed_on_as_it_comes() {
    let mut decoder = ResponseDecoder::new(true);
    let header = [1, STDOUT, 0, 1, 0xff, 0xff, 0xff, 0];
    assert!(decode(&mut decoder, &header).0.is_empty());
    let more = |consumed| {
        Ok(Decoded {
            consumed,
            done: false,
        })
    };
    let data = vec![b'd'; 65_534];
    let piece = Piece::Stdout(data.clone());
    assert_eq!(decode(&mut decoder, &data), (vec![piece], more(65_534)));
    let last = [&b"d"[..], &[0; 254]].concat();
    let piece = Piece::Stdout(b"d".to_vec());
    assert_eq!(decode(&mut decoder, &last), (vec![piece], more(255)));
    let end = [&[0][..], &end_record(0, 0, 0)[..]].concat();
    let piece = Piece::End(0, ProtocolStatus::Complete);
    assert_eq!(decode(&mut decoder, &end).0, [piece]);
    assert!(decoder.is_reusable());
    assert!(size_of::<ResponseDecoder>() <= 32, "it holds no data");
}

#[test]
fn the_end_reports_the_outcome() {
    let cases = [
        (0, ProtocolStatus::Complete),
        (1, ProtocolStatus::CannotMultiplex),
        (2, ProtocolStatus::Overloaded),
        (3, ProtocolStatus::UnknownRole),
    ];
    for (code, status) in cases {
        let mut decoder = ResponseDecoder::new(true);
        let (pieces, decoded) = decode(&mut decoder, &end_record(u32::MAX, code, 0));
        assert_eq!(pieces, [Piece::End(u32::MAX, status)]);
        assert!(decoded.is_ok_and(|decoded| decoded.done));
        assert_eq!(decoder.is_reusable(), status == ProtocolStatus::Complete);
    }
}

#[test]
fn a_connection_that_was_not_to_be_kept_is_not_reusable() {
    let mut decoder = ResponseDecoder::new(false);
    assert!(decode(&mut decoder, &golden()).1.is_ok());
    assert!(!decoder.is_reusable());
}

#[test]
fn bytes_after_the_end_are_left_and_forbid_reuse() {
    let bytes = golden();
    let done = |consumed| {
        Ok(Decoded {
            consumed,
            done: true,
        })
    };
    let mut together = ResponseDecoder::new(true);
    let followed = [&bytes[..], &response_record(STDOUT, b"more", 0)[..]].concat();
    assert_eq!(
        decode(&mut together, &followed),
        (golden_pieces(), done(bytes.len()))
    );
    assert!(!together.is_reusable());

    let mut later = ResponseDecoder::new(true);
    assert_eq!(decode(&mut later, &bytes).1, done(bytes.len()));
    assert_eq!(decode(&mut later, b""), (vec![], done(0)));
    assert!(later.is_reusable());
    assert_eq!(decode(&mut later, &[1]), (vec![], done(0)));
    assert!(!later.is_reusable());
}
