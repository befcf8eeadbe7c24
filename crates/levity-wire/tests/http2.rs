//! HTTP/2: what each rule of RFC 9113 that ends a stream or a connection does.

#[path = "http2/floods.rs"]
mod floods;
#[path = "http2/support.rs"]
mod support;
#[path = "http2/windows.rs"]
mod windows;

use levity_wire::http2::{
    CONNECTION_WINDOW_BYTES, Connection, ErrorCode, FieldBlock, PREFACE, STREAMS_MAX,
};
use support::*;

const GET_HEAD: &str = "GET /a HTTP/1.1|host: h||";
const POST_HEAD: &str = "POST /a HTTP/1.1|host: h||";

#[test]
fn a_request_with_fields_and_cookies() {
    let outcome = receive(&[with(&[
        ("cookie", "a=1"),
        ("user-agent", "test"),
        ("cookie", "b=2"),
        ("host", "H"),
    ])]);
    let head = "GET /a HTTP/1.1|host: h|user-agent: test|cookie: a=1; b=2||";
    outcome.assert_events(&[&format!("request 1 whole {head}")]);
    assert_eq!(outcome.sent, []);
}

#[test]
fn a_body_and_trailers() {
    let padded = frame(DATA, PADDED, 1, b"\x03defpad");
    let trailers = frame(HEADERS, WHOLE, 1, &block(&[("x-sum", "9")]));
    let outcome = receive(&[
        post(1),
        frame(DATA, 0, 1, b"abc"),
        padded,
        frame(DATA, 0, 1, b""),
        frame(DATA, 0, 1, b"ghi"),
        trailers,
    ]);
    outcome.assert_events(&[
        &format!("request 1 {POST_HEAD}"),
        "data 1 abcdefghi",
        "trailers 1 x-sum=9",
    ]);
}

#[test]
fn the_last_part_of_a_body_may_be_padded_or_empty() {
    for (last, text) in [
        (
            frame(DATA, END_STREAM | PADDED, 1, b"\x02defpp"),
            "data 1 abcdef.",
        ),
        (frame(DATA, END_STREAM, 1, b""), "data 1 abc."),
        (
            frame(DATA, END_STREAM | PADDED, 1, b"\x02pp"),
            "data 1 abc.",
        ),
    ] {
        let outcome = receive(&[post(1), frame(DATA, 0, 1, b"abc"), last]);
        outcome.assert_events(&[&format!("request 1 {POST_HEAD}"), text]);
    }
}

#[test]
fn a_header_section_in_many_frames() {
    let section = block(&GET);
    let mut frames = vec![frame(HEADERS, END_STREAM, 1, &section[..3])];
    frames.extend(
        section[3..10]
            .chunks(1)
            .map(|part| frame(CONTINUATION, 0, 1, part)),
    );
    frames.push(frame(CONTINUATION, END_HEADERS, 1, &section[10..]));
    receive(&frames).assert_events(&[&format!("request 1 whole {GET_HEAD}")]);
    // RFC 9113, 6.10: no other frame in between, of whatever stream.
    for other in [
        frame(PING, 0, 0, &[0; 8]),
        frame(CONTINUATION, END_HEADERS, 3, b""),
        frame(DATA, 0, 1, b""),
        get(3),
    ] {
        let frames = [frame(HEADERS, END_STREAM, 1, &section[..3]), other];
        receive(&frames).assert_failed(ErrorCode::Protocol);
    }
    receive(&[frame(CONTINUATION, END_HEADERS, 1, &section)]).assert_failed(ErrorCode::Protocol);
}

/// RFC 8441.
#[test]
fn a_websocket_is_an_upgrade() {
    let tunnel = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":path", "/a"),
        (":authority", "h"),
        // It belongs to HTTP/1: the other end gets one key.
        ("sec-websocket-key", "BBBBBBBBBBBBBBBBBBBBBB=="),
        ("sec-websocket-version", "13"),
    ];
    let outcome = receive(&[frame(HEADERS, END_HEADERS, 1, &block(&tunnel))]);
    let head = "GET /a HTTP/1.1|host: h|connection: Upgrade|upgrade: websocket|\
                sec-websocket-key: AAAAAAAAAAAAAAAAAAAACA==|sec-websocket-version: 13||";
    outcome.assert_events(&[&format!("request 1 tunnel {head}")]);
}

/// RFC 9113, 8.1.1 to 8.5 and 8.2.1.
#[test]
fn malformed_requests_end_their_stream() {
    let m = (":method", "GET");
    let (s, p, a) = ((":scheme", "http"), (":path", "/"), (":authority", "h"));
    for fields in [
        &[s, p, a][..],
        &[m, p, a],
        &[m, s, a],
        &[m, m, s, p, a],
        &[m, s, p, p, a],
        &[m, s, s, p, a],
        &[m, s, p, a, a],
        &[(":method", "G T"), s, p, a],
        &[(":method", ""), s, p, a],
        &[m, s, (":path", ""), a],
        &[m, s, (":path", "a"), a],
        &[m, s, (":path", "*"), a],
        &[m, s, (":path", "/ HTTP/1.1"), a],
        &[m, s, (":path", "/\r\nx: y"), a],
        &[m, s, p, (":authority", "h\r\nx: y")],
        &[m, s, p, a, (":status", "200")],
        &[m, s, p, a, (":x", "y")],
        &[m, s, p, a, ("x", "y"), (":path", "/")],
        &[m, s, p, a, ("X-Upper", "y")],
        &[m, s, p, a, ("", "y")],
        &[m, s, p, a, ("x y", "z")],
        &[m, s, p, a, ("x", "y\r\nz: 1")],
        &[m, s, p, a, ("x", "y\0")],
        &[m, s, p, a, ("x", " y")],
        &[m, s, p, a, ("x", "y\t")],
        &[m, s, p, a, ("connection", "close")],
        &[m, s, p, a, ("keep-alive", "1")],
        &[m, s, p, a, ("proxy-connection", "close")],
        &[m, s, p, a, ("transfer-encoding", "chunked")],
        &[m, s, p, a, ("upgrade", "h2c")],
        &[m, s, p, a, ("te", "gzip")],
        &[m, s, p, a, ("host", "other")],
        &[m, s, p, a, ("content-length", "1")],
        &[(":method", "CONNECT"), s, p, a],
        &[(":method", "CONNECT")],
        &[m, (":protocol", "websocket"), s, p, a],
    ] {
        let outcome = receive(&[frame(HEADERS, WHOLE, 1, &block(fields)), get(3)]);
        outcome.assert_reset(1, ErrorCode::Protocol);
        let request = format!("request 3 whole {GET_HEAD}");
        assert_eq!(outcome.events, ["malformed 1", &request], "{fields:?}");
    }
    receive(&[with(&[("te", "trailers"), ("content-length", "0")])]).assert_events(&[
        "request 1 whole GET /a HTTP/1.1|host: h|te: trailers|content-length: 0||",
    ]);
}

/// RFC 9113, 8.3.1: Host may be beside `:authority`, if both mean the same.
#[test]
fn host_and_authority() {
    for (scheme, authority, host, is_same) in [
        ("https", "a.test", "A.test", true),
        ("https", "a.test", "a.test:443", true),
        ("https", "a.test:443", "a.test", true),
        ("https", "a.test:", "a.test.:0443", true),
        ("https", "[::1]:443", "[::1]", true),
        ("http", "a.test", "a.test:80", true),
        ("https", "a.test", "a.test:80", false),
        ("http", "a.test", "a.test:443", false),
        ("https", "a.test:8443", "a.test", false),
        ("https", "a.test", "b.test:443", false),
        ("ws", "a.test", "a.test:443", false),
        ("https", "a.test", "a.test:443:443", false),
    ] {
        let fields = [
            (":method", "GET"),
            (":scheme", scheme),
            (":path", "/"),
            (":authority", authority),
            ("host", host),
        ];
        let outcome = receive(&[frame(HEADERS, WHOLE, 1, &block(&fields))]);
        let expected = match is_same {
            true => format!("request 1 whole GET / HTTP/1.1|host: {authority}||"),
            false => "malformed 1".to_owned(),
        };
        assert_eq!(outcome.events, [expected], "{scheme} {authority} {host}");
    }
}

/// RFC 9113, 8.1.1: the body has another length than Content-Length, or malformed trailers.
#[test]
fn malformed_bodies_end_their_stream() {
    let fields: Vec<_> = POST
        .iter()
        .chain(&[("content-length", "3")])
        .copied()
        .collect();
    let post = frame(HEADERS, END_HEADERS, 1, &block(&fields));
    let trailers = |flags, fields: &[(&str, &str)]| frame(HEADERS, flags, 1, &block(fields));
    for rest in [
        vec![frame(DATA, END_STREAM, 1, b"ab")],
        vec![frame(DATA, 0, 1, b"abcd")],
        vec![frame(DATA, 0, 1, b"abc"), frame(DATA, END_STREAM, 1, b"d")],
        vec![trailers(WHOLE, &[("x", "y")])],
        vec![
            frame(DATA, 0, 1, b"abc"),
            trailers(END_HEADERS, &[("x", "y")]),
        ],
        vec![
            frame(DATA, 0, 1, b"abc"),
            trailers(WHOLE, &[(":path", "/")]),
        ],
        vec![frame(DATA, 0, 1, b"abc"), trailers(WHOLE, &[("X", "y")])],
    ] {
        let frames = [vec![post.clone()], rest.clone()].concat();
        // In one piece: what of a frame that is too long is seen before depends on the pieces.
        let outcome = feed(&mut open(), &frames.concat(), usize::MAX);
        outcome.assert_reset(1, ErrorCode::Protocol);
        assert_eq!(outcome.events.last().map(String::as_str), Some("reset 1"));
    }
    let whole = [
        post,
        frame(DATA, 0, 1, b"ab"),
        frame(DATA, END_STREAM, 1, b"c"),
    ];
    assert_eq!(receive(&whole).events[1], "data 1 abc.");
}

/// The rules that end a connection, by section of RFC 9113.
#[test]
fn frames_that_end_the_connection() {
    use ErrorCode::{Compression, FlowControl, FrameSize, Protocol, StreamClosed};
    let setting = |id: u16, value: u32| {
        let payload = [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
        frame(SETTINGS, 0, 0, &payload)
    };
    let window = |stream, more: u32| frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes());
    for (section, code, frames) in [
        ("4.2", FrameSize, vec![frame(DATA, 0, 1, &[0; 16385])]),
        ("4.3", Compression, vec![frame(HEADERS, WHOLE, 1, &[0x80])]),
        ("5.1", Protocol, vec![frame(DATA, 0, 1, b"a")]),
        ("5.1", Protocol, vec![frame(RST_STREAM, 0, 1, &[0; 4])]),
        ("5.1", Protocol, vec![window(1, 1)]),
        ("5.1", StreamClosed, vec![get(1), get(1)]),
        ("5.1.1", Protocol, vec![get(2)]),
        ("5.1.1", StreamClosed, vec![get(5), get(3)]),
        ("6.1", Protocol, vec![post(1), frame(DATA, 0, 0, b"a")]),
        (
            "6.1",
            Protocol,
            vec![post(1), frame(DATA, PADDED, 1, b"\x05abc")],
        ),
        ("6.1", FrameSize, vec![post(1), frame(DATA, PADDED, 1, b"")]),
        (
            "6.2",
            Protocol,
            vec![frame(HEADERS, WHOLE, 0, &block(&GET))],
        ),
        (
            "6.2",
            Protocol,
            vec![frame(HEADERS, WHOLE | PADDED, 1, b"\x05abc")],
        ),
        (
            "6.2",
            FrameSize,
            vec![frame(HEADERS, WHOLE | WITH_PRIORITY, 1, b"abcd")],
        ),
        ("6.3", Protocol, vec![frame(PRIORITY, 0, 0, &[0; 5])]),
        ("6.4", Protocol, vec![frame(RST_STREAM, 0, 0, &[0; 4])]),
        (
            "6.4",
            FrameSize,
            vec![get(1), frame(RST_STREAM, 0, 1, &[0; 3])],
        ),
        ("6.5", Protocol, vec![frame(SETTINGS, 0, 1, &[])]),
        ("6.5", FrameSize, vec![frame(SETTINGS, ACK, 0, &[0; 6])]),
        ("6.5", FrameSize, vec![frame(SETTINGS, 0, 0, &[0; 5])]),
        ("6.5.2", Protocol, vec![setting(2, 2)]),
        ("6.5.2", FlowControl, vec![setting(4, 1 << 31)]),
        ("6.5.2", Protocol, vec![setting(5, 16383)]),
        ("6.5.2", Protocol, vec![setting(5, 1 << 24)]),
        (
            "6.6",
            Protocol,
            vec![frame(PUSH_PROMISE, END_HEADERS, 1, &[0; 4])],
        ),
        ("6.7", FrameSize, vec![frame(PING, 0, 0, &[0; 7])]),
        ("6.7", Protocol, vec![frame(PING, 0, 1, &[0; 8])]),
        ("6.8", Protocol, vec![frame(GOAWAY, 0, 1, &[0; 8])]),
        ("6.8", FrameSize, vec![frame(GOAWAY, 0, 0, &[0; 7])]),
        ("6.8", FrameSize, vec![frame(GOAWAY, 0, 0, &[])]),
        ("6.9", FrameSize, vec![frame(WINDOW_UPDATE, 0, 0, &[0; 3])]),
        ("6.9", Protocol, vec![window(0, 0)]),
        ("6.9.1", FlowControl, vec![window(0, (1 << 31) - 1)]),
        (
            "6.9.2",
            FlowControl,
            vec![get(1), window(1, (1 << 31) - 1 - 65535), setting(4, 65536)],
        ),
        (
            "9218, 7.1",
            Protocol,
            vec![frame(PRIORITY_UPDATE, 0, 1, &[0, 0, 0, 1])],
        ),
        (
            "9218, 7.1",
            FrameSize,
            vec![frame(PRIORITY_UPDATE, 0, 0, &[0, 0, 0])],
        ),
        (
            "9218, 7.1",
            Protocol,
            vec![frame(PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 2])],
        ),
    ] {
        let outcome = receive(&frames);
        assert_eq!(
            outcome.failure.map(|failure| failure.code),
            Some(code),
            "{section}"
        );
        outcome.assert_failed(code);
    }
}

/// The rules that end a stream.
#[test]
fn frames_that_end_a_stream() {
    let window = |more: u32| frame(WINDOW_UPDATE, 0, 1, &more.to_be_bytes());
    let circular = [&[0, 0, 0, 1, 16][..], &block(&GET)].concat();
    for (section, code, frames) in [
        (
            "5.1",
            ErrorCode::StreamClosed,
            vec![get(1), frame(DATA, 0, 1, b"a")],
        ),
        (
            "7540, 5.3.1",
            ErrorCode::Protocol,
            vec![frame(HEADERS, WHOLE | WITH_PRIORITY, 1, &circular)],
        ),
        (
            "7540, 5.3.1",
            ErrorCode::Protocol,
            vec![get(1), frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 9])],
        ),
        (
            "6.3",
            ErrorCode::FrameSize,
            vec![get(1), frame(PRIORITY, 0, 1, &[0; 4])],
        ),
        ("6.9", ErrorCode::Protocol, vec![get(1), window(0)]),
        (
            "6.9.1",
            ErrorCode::FlowControl,
            vec![get(1), window((1 << 31) - 1)],
        ),
    ] {
        let outcome = receive(&frames);
        outcome.assert_reset(1, code);
        assert_eq!(outcome.failure, None, "{section}");
    }
}

/// RFC 9113, 3.4.
#[test]
fn the_preface_comes_first() {
    let start = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &get(1)].concat();
    for part in [1, 10, start.len()] {
        let mut connection = Connection::new(HEAD_BYTES_MAX, 7);
        let outcome = feed(&mut connection, &start, part);
        outcome.assert_events(&[&format!("request 1 whole {GET_HEAD}")]);
        let kinds: Vec<_> = outcome
            .sent
            .iter()
            .map(|frame| (frame.kind, frame.flags))
            .collect();
        assert_eq!(kinds, [(SETTINGS, 0), (SETTINGS, ACK)]);
    }
    for wrong in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        [PREFACE, &get(1)].concat(),
        [PREFACE, &frame(SETTINGS, ACK, 0, &[])].concat(),
    ] {
        let outcome = feed(&mut Connection::new(HEAD_BYTES_MAX, 7), &wrong, 5);
        outcome.assert_failed(ErrorCode::Protocol);
    }
}

#[test]
fn streams_are_limited() {
    let streams: Vec<_> = (0..=STREAMS_MAX as u32).map(|n| get(2 * n + 1)).collect();
    let outcome = receive(&streams);
    outcome.assert_reset(2 * STREAMS_MAX as u32 + 1, ErrorCode::RefusedStream);
    assert_eq!(outcome.events.len(), STREAMS_MAX + 1);
}

/// Unknown frames, old priorities and resets of streams that have ended are ignored.
#[test]
fn what_is_ignored() {
    let outcome = receive(&[
        frame(99, 0, 7, b"unknown"),
        frame(PRIORITY, 0, 9, &[0, 0, 0, 1, 16]),
        frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x09u=1"),
        get(3),
        frame(RST_STREAM, 0, 3, &[0; 4]),
        frame(RST_STREAM, 0, 3, &[0; 4]),
        frame(RST_STREAM, 0, 1, &[0; 4]),
        frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
        frame(GOAWAY, 0, 0, &[0; 8]),
        frame(PING, ACK, 0, &[1; 8]),
    ]);
    outcome.assert_events(&[&format!("request 3 whole {GET_HEAD}"), "reset 3"]);
    assert_eq!(outcome.sent, []);
}

/// RFC 9113, 5.1 and 6.4: no frame may say that a stream is in error which has not begun.
#[test]
fn errors_of_streams_that_have_not_begun_end_the_connection() {
    for (bytes, code) in [
        (
            frame(PRIORITY, 0, 3, &[0, 0, 0, 3, 16]),
            ErrorCode::Protocol,
        ),
        (frame(PRIORITY, 0, 3, &[0; 4]), ErrorCode::FrameSize),
        (frame(DATA, 0, 2, b"a"), ErrorCode::Protocol),
        (frame(RST_STREAM, 0, 2, &[0; 4]), ErrorCode::Protocol),
        (
            frame(WINDOW_UPDATE, 0, 2, &[0, 0, 0, 1]),
            ErrorCode::Protocol,
        ),
    ] {
        receive(&[bytes]).assert_failed(code);
    }
}

#[test]
fn pings_are_answered() {
    let outcome = receive(&[frame(PING, 0, 0, b"12345678")]);
    assert_eq!(outcome.sent, sent(&frame(PING, ACK, 0, b"12345678")));
}

/// Frames that the client sent before it knew of the end of a stream are dropped, and count for the connection's window.
#[test]
fn frames_after_the_end_here_are_dropped() {
    let mut connection = open();
    feed(&mut connection, &post(1), 100);
    connection.send_reset(1, ErrorCode::Cancel);
    connection.out().clear();
    let part = frame(DATA, 0, 1, &[b'a'; 16384]);
    let trailers = frame(HEADERS, WHOLE, 1, &block(&[("x", "y")]));
    let used = CONNECTION_WINDOW_BYTES / 2;
    let parts = part.repeat(used as usize / 16384);
    let frames = [parts, trailers, get(3)].concat();
    let outcome = feed(&mut connection, &frames, 1000);
    outcome.assert_events(&["reset 1", &format!("request 3 whole {GET_HEAD}")]);
    assert_eq!(
        outcome.sent,
        sent(&frame(WINDOW_UPDATE, 0, 0, &used.to_be_bytes()))
    );
}

#[test]
fn a_response_in_frames() {
    let mut connection = open();
    feed(&mut connection, &get(1), 100);
    connection.send_fields(1, &fields(), false);
    assert_eq!(connection.send_data(1, &[b'a'; 20_000], false), 20_000);
    assert_eq!(connection.send_data(1, b"end", true), 3);
    assert_eq!(connection.streams(), 0);
    let shapes: Vec<_> = sent(connection.out())
        .iter()
        .map(|frame| (frame.kind, frame.flags, frame.stream, frame.payload.len()))
        .collect();
    // No table, the status, the index of Server and its value, a name and its value.
    let head = 1 + 1 + (2 + 1 + 6) + (1 + 1 + 3 + 1 + 1);
    let data = |flags, bytes| (DATA, flags, 1, bytes);
    assert_eq!(
        shapes,
        [
            (HEADERS, END_HEADERS, 1, head),
            data(0, 16384),
            data(0, 20_000 - 16384),
            data(END_STREAM, 3),
        ]
    );
    // Nothing more can be sent.
    connection.out().clear();
    connection.send_fields(1, &fields(), true);
    assert_eq!(connection.send_data(1, b"more", true), 0);
    connection.release(1);
    assert!(connection.out().is_empty());
}

#[test]
fn a_large_header_section_is_continued() {
    let mut connection = open();
    feed(&mut connection, &get(1), 100);
    let value = vec![b'v'; 40_000];
    let mut block = FieldBlock::default();
    block.field(b"x", &value);
    connection.send_fields(1, block.as_bytes(), true);
    let frames = sent(connection.out());
    let shapes: Vec<_> = frames
        .iter()
        .map(|frame| (frame.kind, frame.flags))
        .collect();
    let ends = END_HEADERS;
    assert_eq!(
        shapes,
        [
            (HEADERS, END_STREAM),
            (CONTINUATION, 0),
            (CONTINUATION, ends)
        ]
    );
}

#[test]
fn trailers_end_a_response() {
    let mut connection = open();
    feed(&mut connection, &post(1), 100);
    connection.send_fields(1, &fields(), false);
    let mut trailers = FieldBlock::default();
    trailers.field(b"grpc-status", b"0");
    connection.send_fields(1, trailers.as_bytes(), true);
    assert!(!connection.is_sendable(1));
    connection.release(1);
    let frames = sent(connection.out());
    assert_eq!((frames[1].kind, frames[1].flags), (HEADERS, WHOLE));
    // The client need not send the rest of its body.
    assert_eq!(
        (frames[2].kind, frames[2].number()),
        (RST_STREAM, ErrorCode::NoError as u32)
    );
}

#[test]
fn a_response_that_is_given_up_is_reset() {
    let mut connection = open();
    feed(&mut connection, &get(1), 100);
    connection.send_fields(1, &fields(), false);
    connection.release(1);
    let frames = sent(connection.out());
    assert_eq!(
        (frames[1].kind, frames[1].number()),
        (RST_STREAM, ErrorCode::Internal as u32)
    );
}

/// RFC 9113, 6.8: requests that are on their way are answered.
#[test]
fn a_shutdown_loses_nothing() {
    let mut connection = open();
    feed(&mut connection, &get(1), 100);
    connection.shut_down();
    let frames = sent(connection.out());
    assert_eq!(
        (frames[0].kind, frames[0].number()),
        (GOAWAY, u32::MAX >> 1)
    );
    connection.out().clear();
    feed(&mut connection, &get(3), 100).assert_events(&[&format!("request 3 whole {GET_HEAD}")]);
    let pong = frame(PING, ACK, 0, &frames[1].payload);
    let outcome = feed(&mut connection, &pong, 100);
    assert_eq!(
        (outcome.sent[0].kind, outcome.sent[0].number()),
        (GOAWAY, 3)
    );
    connection.out().clear();
    feed(&mut connection, &get(5), 100).assert_events(&["reset 5"]);
    for stream in [1, 3] {
        assert!(!connection.is_done());
        connection.send_fields(stream, &fields(), true);
    }
    assert!(connection.is_done());
}

/// RFC 9113, 6.8: frames of streams after the last one do not end the connection, and bodies count for its window.
#[test]
fn streams_after_the_last_one_are_ignored() {
    let mut connection = open();
    feed(&mut connection, &get(1), 100);
    connection.shut_down();
    connection.end_shutdown();
    connection.out().clear();
    let frames = [
        post(3),
        frame(DATA, 0, 3, &[b'a'; 10_000]),
        frame(WINDOW_UPDATE, 0, 3, &[0, 0, 0, 1]),
        frame(RST_STREAM, 0, 3, &[0; 4]),
        frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
    ];
    let outcome = feed(&mut connection, &frames.concat(), 16_384);
    outcome.assert_events(&["reset 3", "window 1"]);
    assert_eq!(outcome.sent, []);
}

/// Priorities of the header and of frames (RFC 9218).
#[test]
fn priorities() {
    let mut connection = open();
    feed(&mut connection, &with(&[("priority", "u=1, i")]), 100);
    let priority = connection.priority(1);
    assert_eq!((priority.urgency, priority.is_incremental), (1, true));
    let update = [
        frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=5, i=?0"),
        frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x03u=5"),
    ];
    let events = feed(&mut connection, &update.concat(), 100).events;
    assert_eq!(events, ["priority 1"]);
    let priority = connection.priority(1);
    assert_eq!((priority.urgency, priority.is_incremental), (5, false));
}

/// What is refused by the parser of HTTP/1, with the status for it.
#[test]
fn a_head_that_is_too_long_is_cut_off() {
    let long = "v".repeat(9000);
    let long: &'static str = long.leak();
    for fields in [
        &[("x", long), ("y", long)][..],
        &[("cookie", long), ("cookie", long)],
    ] {
        let mut connection = open();
        let all: Vec<_> = GET.iter().chain(fields).copied().collect();
        let section = block(&all);
        let frames = [
            frame(HEADERS, END_STREAM, 1, &section[..10_000]),
            frame(CONTINUATION, END_HEADERS, 1, &section[10_000..]),
        ];
        let outcome = feed(&mut connection, &frames.concat(), 5000);
        assert_eq!(outcome.failure, None);
        assert_eq!(connection.head().len(), HEAD_BYTES_MAX + 1);
    }
}

/// The size of requests is configured, and SETTINGS say so to the client.
#[test]
fn a_long_head_may_come_compressed_if_it_is_allowed() {
    let value: &'static str = "~".repeat(90_000).leak();
    let section = block(&[&GET[..], &[("x", value)]].concat());
    let mut parts = section.chunks(16_000);
    let mut frames = frame(HEADERS, END_STREAM, 1, parts.next().expect("a part"));
    frames.extend(parts.flat_map(|part| frame(CONTINUATION, 0, 1, part)));
    frames.extend(frame(CONTINUATION, END_HEADERS, 1, b""));
    let mut connection = Connection::new(256 * 1024, 7);
    let start = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let outcome = feed(&mut connection, &[start, frames].concat(), 100_000);
    assert_eq!(outcome.failure, None);
    assert!(connection.head().len() > value.len());
}
