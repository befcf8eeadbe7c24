//! Flow control in both directions (RFC 9113, 5.2).

use levity_wire::http2::{
    CONNECTION_WINDOW_BYTES, Connection, ErrorCode, PREFACE, STREAM_WINDOW_BYTES,
    USUAL_WINDOW_BYTES,
};

use crate::support::*;

/// The bytes of a [`part`].
const PART_BYTES: u32 = 16_384;

/// A part of the body of `stream`.
fn part(stream: u32) -> Vec<u8> {
    frame(DATA, 0, stream, &[b'a'; PART_BYTES as usize])
}

fn receive_part(connection: &mut Connection, stream: u32) {
    let outcome = feed(connection, &part(stream), 16393);
    assert_eq!(outcome.failure, None);
}

/// A connection with uploads on this many streams.
fn with_uploads(count: u32) -> Connection {
    let mut connection = open();
    let streams: Vec<_> = (0..count).map(|n| post(2 * n + 1)).collect();
    feed(&mut connection, &streams.concat(), 1000);
    connection
}

/// The bytes by which `frames` open the window of `stream`.
fn opened(frames: &[Sent], stream: u32) -> u32 {
    let is_update = |frame: &&Sent| frame.kind == WINDOW_UPDATE && frame.stream == stream;
    let frames = frames.iter().filter(is_update);
    frames.map(Sent::number).sum()
}

#[test]
fn a_body_that_nobody_reads_is_bounded() {
    let mut connection = open();
    let parts = (STREAM_WINDOW_BYTES / PART_BYTES) as usize;
    let body = part(1);
    let outcome = feed(
        &mut connection,
        &[post(1), body.repeat(parts)].concat(),
        16393,
    );
    assert_eq!((outcome.failure, outcome.sent), (None, vec![]));
    // The window is used up.
    let outcome = feed(&mut connection, &frame(DATA, 0, 1, b"a"), 100);
    outcome.assert_reset(1, ErrorCode::FlowControl);
}

/// Together they have more than half of the window, and what is read never is half of it.
#[test]
fn bodies_that_nobody_reads_do_not_hold_up_another() {
    let mut connection = with_uploads(32);
    let parts = (STREAM_WINDOW_BYTES / PART_BYTES) as usize;
    let stalled = CONNECTION_WINDOW_BYTES / STREAM_WINDOW_BYTES - 1;
    for n in 0..stalled {
        let body = part(2 * n + 3).repeat(parts);
        assert_eq!(feed(&mut connection, &body, 16393).failure, None);
    }
    let mut window = STREAM_WINDOW_BYTES;
    for _ in 0..100 {
        assert!(window >= PART_BYTES, "it stands still");
        receive_part(&mut connection, 1);
        connection.consumed(1, PART_BYTES as usize);
        window += opened(&sent(connection.out()), 0);
        window -= PART_BYTES;
        connection.out().clear();
    }
}

/// What was read before they came is not yet told.
#[test]
fn bodies_that_nobody_reads_use_up_no_window_that_is_owed() {
    let mut connection = with_uploads(32);
    let (read, parts) = (100, CONNECTION_WINDOW_BYTES / PART_BYTES);
    for _ in 0..read {
        receive_part(&mut connection, 1);
        connection.consumed(1, PART_BYTES as usize);
    }
    for n in 0..parts - read {
        receive_part(&mut connection, 2 * (n / 15) + 3);
    }
    assert_eq!(opened(&sent(connection.out()), 0), read * PART_BYTES);
    connection.out().clear();
    // The window is used up, and nothing is owed.
    for n in parts - read..parts {
        receive_part(&mut connection, 2 * (n / 15) + 3);
    }
    connection.consumed(1, 0);
    assert_eq!(sent(connection.out()), []);
}

#[test]
fn a_body_that_is_read_goes_on() {
    let mut connection = with_uploads(1);
    for _ in 0..200 {
        receive_part(&mut connection, 1);
        connection.consumed(1, PART_BYTES as usize);
    }
    let updates = sent(connection.out());
    let of = |stream| opened(&updates, stream);
    let half = STREAM_WINDOW_BYTES / 2;
    assert_eq!(of(1), 200 * PART_BYTES / half * half);
    assert_eq!(
        of(0),
        200 * PART_BYTES / (CONNECTION_WINDOW_BYTES / 2) * (CONNECTION_WINDOW_BYTES / 2)
    );
    // A byte more than all windows together ends the connection.
    let all = (CONNECTION_WINDOW_BYTES / PART_BYTES) as usize;
    let streams: Vec<_> = (1..20).map(|n| post(2 * n + 1)).collect();
    feed(&mut connection, &streams.concat(), 1000);
    let mut last = None;
    for n in 0..all + 5 {
        let body = part((n as u32 / 15 + 1) * 2 + 1);
        last = feed(&mut connection, &body, 16393).failure.or(last);
    }
    assert_eq!(
        last.map(|failure| failure.code),
        Some(ErrorCode::FlowControl)
    );
}

/// The bytes that may still arrive on stream 1, which has room for them, before the connection ends.
fn room(connection: &mut Connection) -> u32 {
    for arrived in 0.. {
        let outcome = feed(connection, &frame(DATA, 0, 1, b"a"), 10);
        if outcome.failure.is_some() {
            return arrived;
        }
    }
    unreachable!("it has no end")
}

#[test]
fn a_connection_begins_with_the_usual_window() {
    let mut connection = Connection::new(HEAD_BYTES_MAX, 7);
    let start = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &post(1)].concat();
    let outcome = feed(&mut connection, &start, 1000);
    assert_eq!(opened(&outcome.sent, 0), 0);
    assert_eq!(room(&mut connection), USUAL_WINDOW_BYTES);
}

#[test]
fn a_window_grows_by_what_is_missing() {
    let mut connection = with_uploads(1);
    connection.set_receive_window(CONNECTION_WINDOW_BYTES + 10);
    connection.set_receive_window(CONNECTION_WINDOW_BYTES + 10);
    assert_eq!(opened(&sent(connection.out()), 0), 10);
}

/// What the client may send cannot be taken back, so that it is withheld later.
#[test]
fn a_window_that_became_smaller_is_not_opened_again() {
    let mut connection = with_uploads(32);
    connection.set_receive_window(USUAL_WINDOW_BYTES);
    let parts = CONNECTION_WINDOW_BYTES / PART_BYTES;
    let usual_parts = USUAL_WINDOW_BYTES.div_ceil(PART_BYTES);
    for n in 0..parts - usual_parts {
        receive_part(&mut connection, 2 * (n / 15) + 1);
        connection.consumed(2 * (n / 15) + 1, PART_BYTES as usize);
    }
    assert_eq!(opened(&sent(connection.out()), 0), 0);
    // From here on it is as large as it is to be.
    connection.out().clear();
    for _ in 0..20 {
        receive_part(&mut connection, 63);
        connection.consumed(63, PART_BYTES as usize);
    }
    let opened = opened(&sent(connection.out()), 0);
    let owed = 20 * PART_BYTES - opened;
    assert!(owed <= USUAL_WINDOW_BYTES / 2 + PART_BYTES, "{owed}");
    // What is withheld comes in whole parts, and so was a byte short.
    let more = usual_parts * PART_BYTES - USUAL_WINDOW_BYTES;
    assert_eq!(room(&mut connection), USUAL_WINDOW_BYTES + more - owed);
}

#[test]
fn unread_bytes_exceed_a_window_by_what_it_had_before() {
    let mut connection = with_uploads(1);
    connection.set_receive_window(USUAL_WINDOW_BYTES);
    let bytes = vec![b'a'; PART_BYTES as usize];
    let mut left = USUAL_WINDOW_BYTES as usize;
    while left > 0 {
        let part = &bytes[..left.min(bytes.len())];
        feed(&mut connection, &frame(DATA, 0, 1, part), 16393);
        left -= part.len();
    }
    assert_eq!(connection.excess(), 0);
    feed(&mut connection, &frame(DATA, 0, 1, b"ab"), 11);
    assert_eq!(connection.excess(), 2);
    connection.consumed(1, 1);
    assert_eq!(connection.excess(), 1);
    connection.set_receive_window(USUAL_WINDOW_BYTES + 1);
    assert_eq!(connection.excess(), 0);
}

#[test]
fn responses_wait_for_windows() {
    let mut connection = open();
    feed(&mut connection, &[get(1), get(3)].concat(), 100);
    connection.send_fields(1, &fields(), false);
    let body = vec![b'a'; 100_000];
    assert_eq!(connection.send_data(1, &body, true), 65_535);
    assert_eq!((connection.window(1), connection.window(3)), (0, 0));
    let update = |stream, more: u32| frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes());
    feed(&mut connection, &update(0, 50_000), 100).assert_events(&["window"]);
    assert_eq!((connection.window(1), connection.window(3)), (0, 50_000));
    feed(&mut connection, &update(1, 10), 100).assert_events(&["window 1"]);
    assert_eq!(connection.send_data(1, &body[65_535..], true), 10);
    // A smaller window of new streams counts for open ones, too, and may be negative (RFC 9113, 6.9.2).
    let smaller = [&[0, 4][..], &1000_u32.to_be_bytes()].concat();
    feed(&mut connection, &frame(SETTINGS, 0, 0, &smaller), 100);
    assert_eq!((connection.window(1), connection.window(3)), (0, 1000));
    feed(&mut connection, &update(1, 64_535), 100);
    assert_eq!(connection.window(1), 0);
    feed(&mut connection, &update(1, 1), 100);
    assert_eq!(connection.window(1), 1);
}

#[test]
fn the_window_of_a_stream_grows_and_is_withheld_later() {
    let mut connection = with_uploads(1);
    connection.set_stream_window(1, 2 * STREAM_WINDOW_BYTES);
    connection.set_stream_window(3, 2 * STREAM_WINDOW_BYTES);
    let updates = sent(connection.out());
    assert_eq!(opened(&updates, 1), STREAM_WINDOW_BYTES);
    assert_eq!(opened(&updates, 3), 0);
    connection.out().clear();
    connection.set_stream_window(1, STREAM_WINDOW_BYTES);
    let parts = STREAM_WINDOW_BYTES / PART_BYTES;
    let consume = |connection: &mut Connection, parts| {
        for _ in 0..parts {
            receive_part(connection, 1);
            connection.consumed(1, PART_BYTES as usize);
        }
    };
    consume(&mut connection, parts);
    assert_eq!(opened(&sent(connection.out()), 1), 0);
    // What was withheld cannot be sent.
    consume(&mut connection, parts / 2);
    let half = STREAM_WINDOW_BYTES / 2;
    assert_eq!(opened(&sent(connection.out()), 1), half);
    for _ in 0..parts {
        receive_part(&mut connection, 1);
    }
    let outcome = feed(&mut connection, &frame(DATA, 0, 1, b"a"), 100);
    outcome.assert_reset(1, ErrorCode::FlowControl);
}
