//! What costs a client the connection, and what does not.

use levity_wire::http2::{Connection, ErrorCode, Failure};

use crate::support::*;

/// Go updates both windows for each 4 KiB that were read.
#[test]
fn windows_in_small_pieces_are_no_flood() {
    let mut connection = open();
    feed(&mut connection, &get(1), 100);
    connection.send_fields(1, &fields(), false);
    let piece = vec![b'a'; 16_384];
    for _ in 0..20_000 {
        assert_eq!(connection.send_data(1, &piece, false), piece.len());
        connection.out().clear();
        let update = |stream| frame(WINDOW_UPDATE, 0, stream, &4096_u32.to_be_bytes());
        let updates = [update(0), update(1)].concat().repeat(4);
        assert_eq!(feed(&mut connection, &updates, 1000).failure, None);
    }
}

/// HAProxy updates both windows for each message of an event stream, however small.
#[test]
fn small_messages_are_no_flood() {
    let mut connection = open();
    feed(&mut connection, &get(1), 100);
    connection.send_fields(1, &fields(), false);
    for _ in 0..20_000 {
        assert_eq!(connection.send_data(1, b"data: hello\n\n", false), 13);
        connection.out().clear();
        let update = |stream| frame(WINDOW_UPDATE, 0, stream, &13_u32.to_be_bytes());
        let updates = [update(0), update(1)].concat();
        assert_eq!(feed(&mut connection, &updates, 1000).failure, None);
    }
}

/// The window is so small that each byte gets a frame.
#[test]
fn a_window_that_is_opened_byte_by_byte_is_a_flood() {
    // The owner may know the window, and cut the content itself.
    for content in [&b"content"[..], b"c"] {
        let mut connection = open();
        let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
        feed(&mut connection, &[settings, get(1)].concat(), 100);
        connection.send_fields(1, &fields(), false);
        let is_stopped = (0..20_000).any(|_| {
            let update = frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes());
            let outcome = feed(&mut connection, &update, 1000);
            connection.send_data(1, content, false);
            outcome.failure.is_some()
        });
        assert!(is_stopped);
    }
}

/// Each of many streams may have something to send after such a frame.
#[test]
fn windows_of_all_streams_that_are_opened_again_and_again_are_a_flood() {
    let mut connection = open();
    let streams: Vec<_> = (0..100).map(|n| get(2 * n + 1)).collect();
    feed(&mut connection, &streams.concat(), 1000);
    let settings = |n: u32| {
        let window = (70_000 + n).to_be_bytes();
        frame(SETTINGS, 0, 0, &[&[0, 4], &window[..]].concat())
    };
    for n in 0..99 {
        assert_eq!(feed(&mut connection, &settings(n), 100).failure, None);
        connection.out().clear();
    }
    let outcome = feed(&mut connection, &settings(99), 100);
    outcome.assert_failed(ErrorCode::EnhanceYourCalm);
}

/// A client that cancels event streams, or sends a PING now and then, goes on for as long as it likes.
#[test]
fn time_pays_for_frames() {
    let mut connection = open();
    for n in 0..10_000 {
        let frames = [
            get(2 * n + 1),
            frame(RST_STREAM, 0, 2 * n + 1, &[0; 4]),
            frame(PING, 0, 0, &[0; 8]),
        ]
        .concat();
        assert_eq!(feed(&mut connection, &frames, 1000).failure, None, "{n}");
        connection.out().clear();
        connection.time_passed(12);
    }
    // It pays for no more than the budget of a new connection.
    connection.time_passed(u64::MAX);
    let pings = frame(PING, 0, 0, &[0; 8]);
    let outcome = feed(&mut connection, &pings.repeat(10_000), 64 * 1024);
    assert_eq!(outcome.failure, None);
    feed(&mut connection, &pings, 100).assert_failed(ErrorCode::EnhanceYourCalm);
}

/// Those of the owner are as those of the codec.
#[test]
fn refused_requests_use_up_the_budget() {
    let mut connection = open();
    let mut refused = 0;
    let failure = loop {
        let stream = 2 * refused + 1;
        assert_eq!(feed(&mut connection, &get(stream), 1000).failure, None);
        connection.out().clear();
        if let Err(failure) = connection.refuse(stream) {
            break failure;
        }
        assert_eq!(connection.streams(), 0);
        refused += 1;
    };
    // Each costs 20, the first one 30: a budget that is full gains nothing.
    assert_eq!((refused, failure.code), (499, ErrorCode::EnhanceYourCalm));
    let frames = sent(connection.out());
    let kinds: Vec<_> = frames.iter().map(|frame| frame.kind).collect();
    assert_eq!(kinds, [RST_STREAM, GOAWAY]);
}

/// Frames that cost more than they are of use for (RFC 9113, 10.5).
#[test]
fn floods_end_the_connection() {
    let long = block(&[("x", "v".repeat(16_000).leak())]);
    // One field of the table, and then one byte for each copy of it.
    let bomb = [
        &[0x40, 1, b'x', 127, 0x80, 0x1e][..],
        &[b'v'; 127 + 0xf00],
        &[0xbe; 10_000],
    ]
    .concat();
    let reset = |n: u32| [get(2 * n + 1), frame(RST_STREAM, 0, 2 * n + 1, &[0; 4])].concat();
    for (name, frames) in [
        ("settings", frame(SETTINGS, 0, 0, &[]).repeat(20_000)),
        ("pings", frame(PING, 0, 0, &[0; 8]).repeat(20_000)),
        ("unknown", frame(99, 0, 0, b"").repeat(20_000)),
        ("priorities", frame(PRIORITY, 0, 9, &[0; 5]).repeat(20_000)),
        (
            "windows",
            frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).repeat(20_000),
        ),
        (
            "empty bodies",
            [post(1), frame(DATA, 0, 1, b"").repeat(20_000)].concat(),
        ),
        ("rapid reset", (0..2000).flat_map(reset).collect()),
        (
            "malformed",
            (0..2000)
                .flat_map(|n| frame(HEADERS, WHOLE, 2 * n + 1, &block(&[])))
                .collect(),
        ),
        (
            "continuations",
            [
                frame(HEADERS, 0, 1, b""),
                frame(CONTINUATION, 0, 1, b"").repeat(100),
            ]
            .concat(),
        ),
        (
            "long",
            [
                frame(HEADERS, 0, 1, &long),
                frame(CONTINUATION, 0, 1, &long).repeat(8),
            ]
            .concat(),
        ),
        ("bomb", frame(HEADERS, WHOLE, 1, &bomb)),
    ] {
        let mut connection = open();
        let outcome = feed(&mut connection, &frames, 64 * 1024);
        let code = outcome.failure.map(|failure| failure.code);
        assert_eq!(code, Some(ErrorCode::EnhanceYourCalm), "{name}");
    }
}

/// What has become of a stream, its number, and how that came to be.
type State = (&'static str, u32, fn(&mut Connection));

const STATES: [State; 8] = [
    ("the connection", 0, |_| ()),
    ("idle", 9, |_| ()),
    ("open", 1, |connection| {
        feed(connection, &post(1), 100);
    }),
    ("answered before its body has ended", 1, |connection| {
        feed(connection, &post(1), 100);
        connection.send_fields(1, &fields(), true);
    }),
    ("not answered", 1, |connection| {
        feed(connection, &get(1), 100);
    }),
    ("ended", 1, |connection| {
        feed(connection, &get(1), 100);
        connection.send_fields(1, &fields(), true);
    }),
    ("reset by the client", 1, |connection| {
        feed(connection, &get(1), 100);
        feed(connection, &frame(RST_STREAM, 0, 1, &[0; 4]), 100);
    }),
    ("reset here", 1, |connection| {
        feed(connection, &post(1), 100);
        connection.send_reset(1, ErrorCode::NoError);
    }),
];

/// The number of frames of no use that a connection bears, if no time passes.
const FRAMES_MAX: usize = 10_000;

/// Whatever its type, its stream and its content: new types, too, have to earn what they cost.
#[test]
fn any_frame_without_use_is_a_flood() {
    let padding = [&[255][..], &[0; 255]].concat();
    let payloads: [&[u8]; 6] = [b"", b"\0", &[0, 0, 16, 0], &[0; 5], &[0; 8], &padding];
    let kinds = (0..=CONTINUATION).chain([PRIORITY_UPDATE, 99]);
    let frames = kinds.flat_map(|kind| {
        let flags = [0, PADDED, ACK];
        let pairs = flags.map(|flags| payloads.map(|payload| (flags, payload)));
        pairs
            .into_iter()
            .flatten()
            .map(move |(flags, payload)| (kind, flags, payload))
    });
    let mut ended_calmly = 0;
    for (kind, flags, payload) in frames {
        let content = match (flags, payload) {
            (PADDED, [padding, rest @ ..]) => rest.len().saturating_sub(usize::from(*padding)),
            (PADDED, []) => 0,
            _ => payload.len(),
        };
        for (state, stream, arrange) in STATES {
            let has_body = state == "open" || state.starts_with("answered");
            if kind == DATA && content > 0 && has_body {
                continue;
            }
            let mut connection = open();
            arrange(&mut connection);
            let frame = frame(kind, flags, stream, payload);
            let failure = flood(&mut connection, &frame, FRAMES_MAX + 1);
            let failure = failure.unwrap_or_else(|| {
                panic!("type {kind}, flags {flags}, {payload:?}, on a stream that is {state}")
            });
            ended_calmly += usize::from(failure.code == ErrorCode::EnhanceYourCalm);
        }
    }
    assert!(ended_calmly > 100, "{ended_calmly}");
}

/// Sends a frame again and again.
fn flood(connection: &mut Connection, frame: &[u8], count: usize) -> Option<Failure> {
    (0..count).find_map(|_| {
        let mut input = frame;
        let failure = loop {
            match connection.next(&mut input) {
                Ok(None) => break None,
                Ok(Some(_)) => {}
                Err(failure) => break Some(failure),
            }
        };
        connection.out().clear();
        failure
    })
}

/// A section may have 64 of these, and each request has one.
#[test]
fn sections_in_many_frames_are_a_flood() {
    let mut connection = open();
    let is_stopped = (0..1000).any(|n| {
        let stream = 2 * n + 1;
        let frames = [
            frame(HEADERS, END_STREAM, stream, b""),
            frame(CONTINUATION, 0, stream, b"").repeat(60),
            frame(CONTINUATION, END_HEADERS, stream, &block(&GET)),
        ];
        let outcome = feed(&mut connection, &frames.concat(), 10_000);
        connection.send_fields(stream, &fields(), true);
        connection.out().clear();
        outcome.failure.is_some()
    });
    assert!(is_stopped);
}

/// A window has room for half a million updates like those of usual clients.
#[test]
fn windows_that_are_opened_without_content_are_a_flood() {
    let update = frame(WINDOW_UPDATE, 0, 1, &4096_u32.to_be_bytes());
    let mut connection = open();
    feed(&mut connection, &get(1), 100);
    assert_eq!(flood(&mut connection, &update, FRAMES_MAX), None);
    let failure = flood(&mut connection, &update, 1).map(|failure| failure.code);
    assert_eq!(failure, Some(ErrorCode::EnhanceYourCalm));
}

/// Go updates both windows of each stream for each 4 KiB that it reads, which may be long after all were sent.
#[test]
fn windows_that_are_opened_late_are_no_flood() {
    const STREAMS: u32 = 100;
    const BYTES: usize = 1 << 20;
    let mut connection = open();
    let window = [&[0, 4][..], &(4_u32 << 20).to_be_bytes()].concat();
    let frames = [
        frame(SETTINGS, 0, 0, &window),
        frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes()),
    ];
    assert_eq!(feed(&mut connection, &frames.concat(), 100).failure, None);
    let content = vec![b'a'; BYTES];
    for stream in (0..STREAMS).map(|n| 2 * n + 1) {
        feed(&mut connection, &get(stream), 100);
        connection.send_fields(stream, &fields(), false);
        assert_eq!(connection.send_data(stream, &content, true), BYTES);
        connection.out().clear();
    }
    assert_eq!(connection.streams(), 0);
    let update = |stream| frame(WINDOW_UPDATE, 0, stream, &4096_u32.to_be_bytes());
    for stream in (0..STREAMS).map(|n| 2 * n + 1) {
        let updates = [update(0), update(stream)].concat();
        let failure = flood(&mut connection, &updates, BYTES / 4096);
        assert_eq!(failure, None, "stream {stream}");
    }
    let failure = flood(&mut connection, &update(1), 3 * FRAMES_MAX);
    assert!(failure.is_some(), "they have an end");
}

/// Keys that are typed, and messages of gRPC.
#[test]
fn bodies_in_small_frames_are_no_flood() {
    for payload in [&b"a"[..], b"\x02a\0\0"] {
        let flags = if payload.len() > 1 { PADDED } else { 0 };
        let mut connection = open();
        feed(&mut connection, &post(1), 100);
        for _ in 0..3 * FRAMES_MAX {
            let data = frame(DATA, flags, 1, payload);
            assert_eq!(flood(&mut connection, &data, 1), None);
            connection.consumed(1, 1);
        }
    }
}

/// Whatever the order, and whatever comes in between.
#[test]
fn mixed_frames_of_no_use_are_a_flood() {
    let useless = [
        frame(PING, 0, 0, &[0; 8]),
        frame(SETTINGS, 0, 0, &[]),
        frame(SETTINGS, ACK, 0, &[]),
        frame(PRIORITY, 0, 9, &[0; 5]),
        frame(PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 9]),
        frame(PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 1, b'u', b'=', b'1']),
        frame(WINDOW_UPDATE, 0, 0, &[0, 0, 16, 0]),
        frame(WINDOW_UPDATE, 0, 1, &[0, 0, 16, 0]),
        frame(WINDOW_UPDATE, 0, 3, &[0, 0, 16, 0]),
        frame(WINDOW_UPDATE, 0, 5, &[0, 0, 16, 0]),
        frame(RST_STREAM, 0, 5, &[0; 4]),
        frame(DATA, PADDED, 1, &[3, 0, 0, 0]),
        frame(DATA, 0, 1, b""),
        frame(DATA, 0, 3, b"a"),
        frame(GOAWAY, 0, 0, &[0; 8]),
        frame(99, 0, 1, b"a"),
    ];
    for seed in 1..=10_u64 {
        let mut connection = open();
        feed(&mut connection, &[post(1), post(3), get(5)].concat(), 100);
        connection.send_reset(3, ErrorCode::NoError);
        connection.send_fields(5, &fields(), true);
        // A generator of random numbers (xorshift).
        let mut random = seed;
        let accepted = (0..=FRAMES_MAX).take_while(|_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let frame = &useless[random as usize % useless.len()];
            flood(&mut connection, frame, 1).is_none()
        });
        assert_eq!(accepted.count(), FRAMES_MAX, "{seed}");
    }
}

/// A client that resets some of its requests, or updates its windows often, is no flood.
#[test]
fn usual_clients_are_no_flood() {
    let mut connection = open();
    for n in 0..50_000 {
        let stream = 2 * n + 1;
        assert_eq!(feed(&mut connection, &get(stream), 1000).failure, None);
        connection.send_fields(stream, &fields(), false);
        connection.send_data(stream, b"content", true);
        let update = |stream| frame(WINDOW_UPDATE, 0, stream, &7_u32.to_be_bytes());
        let mut rest = [update(0), update(stream)].concat();
        if n % 2 == 0 {
            let other = 2 * n + 1;
            rest.extend(frame(RST_STREAM, 0, other, &[0; 4]));
        }
        connection.out().clear();
        assert_eq!(feed(&mut connection, &rest, 1000).failure, None);
    }
}
