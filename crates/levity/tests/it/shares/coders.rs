//! Memory of decoders and encoders.

use std::thread;
use std::time::{Duration, Instant};

use super::{FIRST_BYTE_MAX, LISTEN, STALLED_AFTER, client_of};
use crate::support::frames::{self, HEADERS, WHOLE, frame};
use crate::support::{Answer, Client, Launch, Server, Tree, content, encoded, wait_until};

const ACCEPT: (&str, &str) = ("Accept-Encoding", "gzip, deflate");

/// A request for `/page.html` with that field, by indices of the static table.
fn request(stream: u32) -> Vec<u8> {
    let fields = b"\x82\x86\x04\x0a/page.html\x41\x09localhost\x90";
    frame(HEADERS, WHOLE, stream, fields)
}

/// As many streams of each client ask for the page, and take nothing of it.
fn stalled(server: &Server, prefixes: u16, streams_each: u32) -> Vec<Client> {
    let stall = |prefix| {
        let mut client = client_of(server, prefix);
        let streams = (0..streams_each).flat_map(|stream| request(2 * stream + 1));
        client.send([frames::preface(0), streams.collect()].concat());
        client
    };
    (0..prefixes).map(stall).collect()
}

/// A page of which one piece fills the window of a decoder.
fn page(word: &str) -> String {
    let line = |number| format!("{number} {word} {}\n", "-".repeat(1000));
    (0..1000).map(line).collect()
}

fn server(tree: &Tree, memory: &str, keys: &str) -> Server {
    let limits = format!("[limits]\ncompression_memory = \"{memory}\"\n");
    let site = format!("[[site]]\nroot = \"{}\"\n{keys}", tree.path().display());
    Launch::run(&format!("{limits}{LISTEN}{site}")).start()
}

fn used(server: &Server, resource: &str) -> f64 {
    let metrics = server.metrics(&server.own("admin"));
    metrics.sum(&format!("levity_share_used{{resource=\"{resource}\"}}"))
}

fn get(server: &Server) -> Answer {
    client_of(server, u16::MAX).get_with("/page.html", &[ACCEPT])
}

fn others_get_whole_pages(prefixes: u16, streams_each: u32, wait_max: Duration) {
    let tree = Tree::new();
    tree.file("page.html", "not this one");
    tree.file("page.html.gz", encoded("gzip", page("cat").as_bytes()));
    let keys = "precompressed = [\"gzip\"]\nsubstitute = { cat = \"tiger\" }\n";
    let server = server(&tree, "512KiB", keys);
    let _stalled = stalled(&server, prefixes, streams_each);
    wait_until("all is held", || used(&server, "decoders") > 480.0 * 1024.0);
    thread::sleep(STALLED_AFTER);
    let start = Instant::now();
    let answer = get(&server);
    assert!(start.elapsed() < wait_max, "{:?}", start.elapsed());
    answer.assert_status(200);
    assert!(answer.text() == page("tiger"));
}

#[test]
fn others_get_whole_pages_while_one_client_holds_most_decoders() {
    others_get_whole_pages(1, 64, FIRST_BYTE_MAX);
}

#[test]
fn others_get_whole_pages_while_sixteen_clients_hold_most_decoders() {
    // Three streams of each client wait before. They may get what becomes free just before another client comes, and have to stall,
    // too.
    others_get_whole_pages(16, 4, STALLED_AFTER + FIRST_BYTE_MAX);
}

/// No response waits for an encoder, or ends because another one lacks it.
#[cfg(feature = "compress")]
#[test]
fn others_get_pages_without_compression_while_one_client_holds_all_encoders() {
    let tree = Tree::new();
    tree.file("page.html", content(1, 300_000));
    let keys = "compress = true\ncompress_codings = [\"gzip\"]\n";
    let server = server(&tree, "1664KiB", keys);
    let _stalled = stalled(&server, 1, 16);
    wait_until("all is held", || {
        used(&server, "encoders") == 1664.0 * 1024.0
    });
    for wait in [Duration::ZERO, STALLED_AFTER] {
        thread::sleep(wait);
        let answer = get(&server);
        assert_eq!(
            (answer.status, answer.header("content-encoding")),
            (200, None)
        );
    }
    thread::sleep(Duration::from_millis(300));
    assert_eq!(used(&server, "encoders"), 1664.0 * 1024.0);
}

/// Clients that read, however slowly, keep what they hold. A page of several pieces, each of which might need more than there is left,
/// waits for that as long as a page of one piece.
#[test]
fn a_page_waits_for_a_decoder_once() {
    const WAIT: Duration = Duration::from_secs(6);
    let tree = Tree::new();
    tree.file("page.html", "not this one");
    tree.file("page.html.gz", encoded("gzip", page("cat").as_bytes()));
    tree.file("other.html", "not this one");
    let other = content(3, 7_000);
    tree.file("other.html.gz", encoded("gzip", &other));
    let keys = "precompressed = [\"gzip\"]\nsubstitute = { cat = \"tiger\" }\n";
    let server = server(&tree, "521KiB", keys);
    let mut readers = stalled(&server, 1, 16);
    wait_until("all is held", || {
        used(&server, "decoders") == 512.0 * 1024.0
    });
    let start = Instant::now();
    let answer = thread::scope(|scope| {
        let answer =
            scope.spawn(|| client_of(&server, u16::MAX).get_with("/other.html", &[ACCEPT]));
        while !answer.is_finished() {
            for stream in 0..16 {
                readers[0].send(frames::window(2 * stream + 1, 1));
            }
            thread::sleep(Duration::from_millis(100));
        }
        answer.join().expect("an answer")
    });
    let time = start.elapsed();
    assert!(time > WAIT && time < WAIT * 2, "{time:?}");
    answer.assert_status(200);
    assert!(answer.body == other);
}
