//! What costs a client the connection, and what does not.

use levity_wire::http2::ErrorCode;

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
