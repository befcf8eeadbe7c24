//! Bounds: on delay, on memory, and on what one client costs the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::{BROWSER, KEYS, accepting, assert_compressed, assert_identity, in_front_of, text};
use crate::support::scripted::{Conn, Scripted};
use crate::support::{
    CODINGS, Client, Launch, Tree, assert_same, content, decoded, decoded_so_far, head, pass,
    wait_until,
};

/// The memory of one encoder of gzip.
const ONE_GZIP: &str = "[limits]\ncompression_memory = \"416KiB\"";

/// Memory for one encoder of a stream: streams get half of it.
const ONE_STREAM: &str = "[limits]\ncompression_memory = \"832KiB\"";
const GZIP: &str = "compress_codings = [\"gzip\"]";

const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n";

pub(super) fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// The payload of the next chunk.
#[track_caller]
fn read_chunk(client: &mut Client) -> Vec<u8> {
    let line = client.read_through(b"\r\n");
    let digits = str::from_utf8(&line).expect("a length").trim_end();
    let length = usize::from_str_radix(digits, 16).expect("a length");
    let mut payload = client.read_exactly(length + 2);
    payload.truncate(length);
    payload
}

const EVENTS: usize = 200;

/// How long half of the events may take at most.
const EVENT_TIME_MAX: Duration = Duration::from_millis(10);

/// Sends an event when the client has the one before. Returns the median of the times from the write of the backend
/// until the client can decode the event.
fn event_time(coding: &str) -> Duration {
    let (sent, sent_at) = mpsc::channel();
    let (next, may_send) = mpsc::channel();
    let channels = std::sync::Mutex::new((sent, may_send));
    let backend = Scripted::tcp(move |conn| {
        conn.read_request();
        conn.send(CHUNKED.replace("text/html", "text/event-stream"));
        let channels = channels.lock().expect("one connection");
        for number in 0..EVENTS {
            channels.1.recv().expect("the test asks for each event");
            channels.0.send(Instant::now()).expect("the test listens");
            conn.send(chunk(event(number).as_bytes()));
        }
        conn.send("0\r\n\r\n");
    });
    let server = in_front_of(&backend, "", "").start();
    let mut client = server.client();
    client.send(head("GET", "/", &[("Accept-Encoding", coding)]));
    let head = client
        .receive_head()
        .expect("a header before the first event");
    assert_eq!(head.field("content-encoding"), coding);
    let (mut received, mut events, mut times) = (Vec::new(), String::new(), Vec::new());
    for number in 0..EVENTS {
        next.send(()).expect("the backend listens");
        events += &event(number);
        let received_at = loop {
            received.extend(read_chunk(&mut client));
            let received_at = Instant::now();
            if decoded_so_far(coding, &received) == events.as_bytes() {
                break received_at;
            }
        };
        times.push(received_at - sent_at.recv().expect("the backend has sent it"));
    }
    loop {
        match read_chunk(&mut client) {
            last if last.is_empty() => break,
            more => received.extend(more),
        }
    }
    assert_same(&decoded(coding, &received), events.as_bytes());
    times.sort_unstable();
    times[EVENTS / 2]
}

fn event(number: usize) -> String {
    format!("id: {number}\ndata: the loop never waits\n\n")
}

#[test]
fn an_event_is_not_held_back() {
    for coding in CODINGS {
        let median = event_time(coding);
        assert!(median < EVENT_TIME_MAX, "{coding}: {median:?}");
    }
}

/// The others are served meanwhile, and the slow client gets all of it.
#[test]
fn a_slow_client_holds_up_nobody() {
    let tree = Tree::new();
    // Random bytes do not become shorter.
    let (large, small) = (content(1, 8_000_000), text(2, 50_000));
    tree.file("large.txt", &large);
    tree.file("small.txt", &small);
    let server = Launch::site(tree.path(), "", KEYS).workers(1).start();
    let mut slow = Client::narrow(server.address());
    slow.send(head("GET", "/large.txt", &[("Accept-Encoding", "zstd")]));
    let head = slow.receive_head().expect("a head");
    assert_eq!(head.field("content-encoding"), "zstd");
    let mut client = server.client();
    let mut received = Vec::new();
    for _ in 0..3 {
        received.extend(slow.read_exactly(1024));
        for coding in CODINGS {
            assert_compressed(
                &accepting(&mut client, "/small.txt", coding),
                coding,
                &small,
            );
        }
        pass(Duration::from_secs(1));
    }
    received.extend(slow.read_through(b"\r\n0\r\n\r\n"));
    assert_same(&decoded("zstd", &unchunked(&received)), &large);
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    loop {
        let end = bytes
            .windows(2)
            .position(|end| end == b"\r\n")
            .expect("a line");
        let digits = str::from_utf8(&bytes[..end]).expect("a length");
        let length = usize::from_str_radix(digits, 16).expect("a length");
        if length == 0 {
            return payload;
        }
        payload.extend_from_slice(&bytes[end + 2..end + 2 + length]);
        bytes = &bytes[end + 4 + length..];
    }
}

#[test]
fn without_memory_nothing_is_compressed() {
    let tree = Tree::new();
    let page = text(1, 50_000);
    tree.file("a.html", &page);
    for (memory, expected) in [
        ("0B", [None, None, None]),
        // The least that zstd needs.
        ("319KiB", [None, None, None]),
        ("320KiB", [Some("zstd"), None, None]),
        ("416KiB", [Some("zstd"), None, Some("gzip")]),
        ("1600KiB", [Some("zstd"), Some("br"), Some("gzip")]),
    ] {
        let limits = format!("[limits]\ncompression_memory = \"{memory}\"");
        let server = Launch::site(tree.path(), &limits, KEYS).start();
        let mut client = server.client();
        for (coding, expected) in CODINGS.into_iter().zip(expected) {
            let answer = accepting(&mut client, "/a.html", coding);
            match expected {
                Some(coding) => assert_compressed(&answer, coding, &page),
                None => {
                    assert_identity(&answer, &page);
                    assert!(answer.field("etag").starts_with('"'));
                }
            }
        }
    }
}

/// Sends a piece, and the rest when the test releases it.
fn pausing() -> Scripted {
    Scripted::tcp(|conn| {
        while conn.read_request().is_some() {
            conn.send([CHUNKED.as_bytes(), &chunk(&text(1, 5_000))].concat());
            conn.stall();
            conn.send([chunk(&text(2, 5_000)), b"0\r\n\r\n".to_vec()].concat());
        }
    })
}

/// The coding of the response to a further client, which leaves as soon as it knows it.
fn coding_of_another(address: std::net::SocketAddr) -> Option<String> {
    let mut client = Client::new(address);
    client.reset_when_closed();
    client.send(head("GET", "/", &[("Accept-Encoding", BROWSER)]));
    let head = client.receive_head().expect("a head");
    head.header("content-encoding").map(str::to_owned)
}

#[test]
fn a_client_that_leaves_gives_its_memory_back() {
    let backend = pausing();
    let server = in_front_of(&backend, ONE_STREAM, GZIP).start();
    for _ in 0..5 {
        let mut first = server.client();
        wait_until("the memory is free", || {
            first = server.client();
            // An orderly close could be that of a client that still waits for the response.
            first.reset_when_closed();
            first.send(head("GET", "/", &[("Accept-Encoding", BROWSER)]));
            let head = first.receive_head().expect("a head");
            head.header("content-encoding") == Some("gzip")
        });
        assert_eq!(coding_of_another(server.address()), None);
        drop(first);
    }
}

/// Also while an encoder is in the pool, and while its output waits for the client.
#[test]
fn clients_that_leave_at_any_time_give_their_memory_back() {
    let tree = Tree::new();
    tree.file("large.txt", content(1, 3_000_000));
    tree.file("a.html", text(1, 5_000));
    let keys = format!("{KEYS}\n{GZIP}");
    let server = Launch::site(tree.path(), ONE_GZIP, &keys).start();
    for bytes in [1, 100, 5_000, 300_000] {
        let mut leaving = Client::narrow(server.address());
        leaving.send(head("GET", "/large.txt", &[("Accept-Encoding", "gzip")]));
        leaving.read_exactly(bytes);
        drop(leaving);
        wait_until("the memory is free", || {
            let answer = server.get_with("/a.html", &[("Accept-Encoding", "gzip")]);
            answer.header("content-encoding") == Some("gzip")
        });
    }
}

/// An encoder is free when it has compressed the last byte, however long the client takes to receive it.
#[test]
fn a_complete_response_needs_no_memory() {
    let tree = Tree::new();
    // One job, more than the buffers of the sockets would be needed to hold the encoder up.
    tree.file("a.txt", content(1, 64 * 1024));
    let keys = format!("{KEYS}\n{GZIP}");
    let server = Launch::site(tree.path(), ONE_GZIP, &keys).start();
    let mut waiting = Vec::new();
    for _ in 0..5 {
        wait_until("the memory is free", || {
            let mut client = Client::narrow(server.address());
            client.send(head("GET", "/a.txt", &[("Accept-Encoding", "gzip")]));
            let head = client.receive_head().expect("a head");
            let coding = head.header("content-encoding").map(str::to_owned);
            waiting.push(client);
            coding.as_deref() == Some("gzip")
        });
    }
}

/// A server in front of a backend that sends the same piece until the server takes no more, and how many bytes that
/// were.
fn endless(piece: Vec<u8>) -> (Scripted, Arc<AtomicUsize>) {
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = sent.clone();
    let send = move |conn: &mut Conn| {
        conn.read_request();
        conn.send(CHUNKED);
        while conn.send(chunk(&piece)) {
            counter.fetch_add(piece.len(), Ordering::Relaxed);
        }
    };
    (Scripted::tcp(send), sent)
}

/// For the threads of the pool, buffers, encoders, and what the allocator keeps: 49 MiB were seen, of bodies of 64 and of
/// 512 MiB.
const MEMORY_MAX: usize = 64 << 20;

#[test]
fn a_body_without_end_takes_bounded_memory() {
    // Long and short after compression.
    for piece in [content(1, 200_000), text(1, 200_000)] {
        for coding in CODINGS {
            let (backend, sent) = endless(piece.clone());
            let server = in_front_of(&backend, "", "").start();
            let before = server.resident_bytes();
            let mut client = server.client();
            client.send(head("GET", "/", &[("Accept-Encoding", coding)]));
            let head = client.receive_head().expect("a head");
            assert_eq!(head.field("content-encoding"), coding);
            let mut most = 0;
            while sent.load(Ordering::Relaxed) < 2 * MEMORY_MAX {
                client.read_some();
                most = most.max(server.resident_bytes().saturating_sub(before));
            }
            assert!(most < MEMORY_MAX, "{coding}: {most} bytes");
        }
    }
}

/// What the client does not take is not read from the backend.
#[test]
fn a_client_that_does_not_read_stops_the_backend() {
    let (backend, sent) = endless(content(1, 200_000));
    let server = in_front_of(&backend, "", "").start();
    let before = server.resident_bytes();
    let mut client = Client::narrow(server.address());
    client.send(head("GET", "/", &[("Accept-Encoding", "zstd")]));
    client.receive_head().expect("a head");
    let mut last = usize::MAX;
    wait_until("the backend has to wait", || {
        pass(Duration::from_millis(200));
        let now = sent.load(Ordering::Relaxed);
        std::mem::replace(&mut last, now) == now
    });
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < MEMORY_MAX, "{grown} bytes");
    assert!(last < 32 << 20, "{last} bytes");
}
