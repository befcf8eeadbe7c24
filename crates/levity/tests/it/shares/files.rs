//! Open files, and with them descriptors.

use super::{FIRST_BYTE_MAX, LISTEN, stalled, time_to_first_byte};
use crate::support::{Launch, Server, Tree, wait_until};

/// RLIMIT_NOFILE.
const DESCRIPTORS: u32 = 4096;

/// Requests that nobody takes the responses of, each for a file of its own.
const STALLED: u16 = 4096;

/// The event loops of the server, at most.
const LOOPS_MAX: f64 = 64.0;

fn server() -> (Tree, Server) {
    let tree = Tree::new();
    for number in 0..STALLED {
        tree.file(format!("{number}"), [b'x'; 4096]);
    }
    tree.file("other", [b'x'; 4096]);
    let site = format!("[[site]]\nroot = \"{}\"\n", tree.path().display());
    let launch = Launch::run(&format!("{LISTEN}{site}")).descriptors_max(DESCRIPTORS);
    let server = launch.start();
    (tree, server)
}

fn others_get_files(prefixes: u16, connections_each: u16) {
    let (tree, server) = server();
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
    assert!(metrics.sum("levity_share_reclaimed_total{resource=\"files\"}") > 0.0);
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
