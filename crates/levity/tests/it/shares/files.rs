//! Open files, and with them descriptors.

use std::thread;
use std::time::Duration;

use super::{
    FIRST_BYTE_MAX, LISTEN, STALLED_AFTER, client_of, of_prefix, stalled, time_to_first_byte,
};
use crate::support::{Client, Launch, Server, Tree, frames, wait_until};

/// RLIMIT_NOFILE.
const DESCRIPTORS: u32 = 4096;

/// Requests that nobody takes the responses of, each for a file of its own.
const STALLED: u16 = 4096;

/// The event loops of the server, at most.
const LOOPS_MAX: f64 = 64.0;

fn server(descriptors: u32) -> (Tree, Server) {
    let tree = Tree::new();
    for number in 0..STALLED {
        tree.file(format!("{number}"), [b'x'; 4096]);
    }
    tree.file("other", [b'x'; 4096]);
    let site = format!("[[site]]\nroot = \"{}\"\n", tree.path().display());
    let limits = "[limits]\nconnections = 600\n";
    let launch = Launch::run(&format!("{limits}{LISTEN}{site}")).descriptors_max(descriptors);
    let server = launch.start();
    (tree, server)
}

fn others_get_files(prefixes: u16, connections_each: u16) {
    let (tree, server) = server(DESCRIPTORS);
    let targets_each = STALLED / prefixes / connections_each;
    let target = |number| format!("/{number}");
    let _stalled = stalled(&server, prefixes, connections_each, targets_each, target);
    let metrics = || server.metrics(&server.own("admin"));
    let used = || metrics().sum("levity_share_used{resource=\"files\"}");
    let max = metrics().sum("levity_share_max{resource=\"files\"}");
    wait_until("nearly all is held", || used() > 0.9 * max);
    // Between opening a file and sending it, each event loop may give its place to another one.
    assert!(used() <= max + LOOPS_MAX, "{} of {max}", used());
    assert!(server.open_files(tree.path()).len() < DESCRIPTORS as usize / 4 * 3);
    let time = time_to_first_byte(&server, "/other");
    assert!(time < FIRST_BYTE_MAX, "{time:?}");
    server.says("holds its share of files");
    let metrics = metrics();
    // The shares of several clients may leave some.
    let reclaimed = metrics.sum("levity_share_reclaimed_total{resource=\"files\"}");
    assert!(prefixes > 1 || reclaimed > 0.0);
    assert_eq!(metrics.sum("levity_accept_pauses_total"), 0.0);
}

#[test]
fn others_get_files_while_one_client_holds_most() {
    others_get_files(1, 32);
}

#[test]
fn others_get_files_while_sixteen_clients_hold_most() {
    others_get_files(16, 2);
}

#[test]
fn others_get_files_while_256_clients_hold_most() {
    others_get_files(256, 1);
}

/// The kernel has so much for a client that a write may come less than every five seconds.
#[test]
fn a_client_that_reads_slowly_keeps_its_file() {
    let (tree, server) = server(2048);
    tree.filled("large", 4_000_000);
    let files = |name: &str| {
        let metrics = server.metrics(&server.own("admin"));
        metrics.sum(&format!("levity_share_{name}{{resource=\"files\"}}"))
    };
    let mut reader = of_prefix(Client::narrow(server.address()), 4096);
    reader.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the reader waits", || files("used") == 1.0);
    // Some of them wait in vain.
    let others = files("max") as u16 + 16;
    let mut others = stalled(&server, others, 1, 1, |number| format!("/{number}"));
    wait_until("all is held", || files("used") >= files("max"));
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..130 {
                reader.read_exactly(1000);
                thread::sleep(Duration::from_millis(100));
            }
        });
        scope.spawn(|| {
            for _ in 0..26 {
                for other in &mut others {
                    other.send(frames::window(1, 1));
                }
                thread::sleep(Duration::from_millis(500));
            }
        });
        thread::sleep(STALLED_AFTER + Duration::from_secs(1));
        client_of(&server, u16::MAX)
            .get("/other")
            .assert_status(503);
    });
    assert_eq!(files("reclaimed_total"), 0.0);
}
