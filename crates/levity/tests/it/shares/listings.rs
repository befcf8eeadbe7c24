//! Memory of listings and archives.

use std::time::Instant;

use super::{FIRST_BYTE_MAX, LISTEN, stalled, time_to_first_byte};
use crate::support::{Launch, Server, Tree};

/// All listings may take 40 MiB.
const BYTES_MAX: f64 = 40.0 * 1024.0 * 1024.0;

/// The page with so many names is between 32 and 64 KiB.
const NAMES: usize = 260;

/// More than there is memory for.
const PAGES: u16 = 1536;

fn server() -> (Tree, Server) {
    let tree = Tree::new();
    for number in 0..NAMES {
        tree.file(format!("{number}-{}", "x".repeat(60)), "");
    }
    tree.filled("archived/large", 100_000);
    let keys = "listing = true\nlisting_archive = [\"tar\"]\n";
    let site = format!("[[site]]\nroot = \"{}\"\n{keys}", tree.path().display());
    let server = Launch::run(&format!("{LISTEN}{site}")).start();
    (tree, server)
}

/// While so many clients, with so many connections each, do not take the responses for `stalled_target`, another one gets `target`.
fn others_get(
    (prefixes, connections_each, targets_each): (u16, u16, u16),
    stalled_target: &str,
    target: &str,
) {
    let (_tree, server) = server();
    let start = Instant::now();
    let same = |_| stalled_target.to_owned();
    let _stalled = stalled(&server, prefixes, connections_each, targets_each, same);
    let time = time_to_first_byte(&server, start, target);
    assert!(time < FIRST_BYTE_MAX, "{time:?}");
    let metrics = server.metrics(&server.own("admin"));
    let listings = |name| metrics.sum(&format!("levity_share_{name}{{resource=\"listings\"}}"));
    assert!(listings("used") <= BYTES_MAX, "{}", listings("used"));
    assert!(listings("used") > BYTES_MAX / 2.0, "{}", listings("used"));
}

#[test]
fn others_get_archives_while_one_client_holds_most() {
    let target = "/archived/?archive=tar";
    others_get((1, 1, 125), target, target);
}

/// Most of them wait until those that came first have stalled, and must not get all that becomes free then.
#[test]
fn others_get_archives_while_one_client_wants_much_more() {
    let target = "/archived/?archive=tar";
    others_get((1, 6, 100), target, target);
}

#[test]
fn others_get_archives_while_sixteen_clients_hold_most() {
    let target = "/archived/?archive=tar";
    others_get((16, 1, 16), target, target);
}

#[test]
fn others_get_listings_while_one_client_holds_most() {
    others_get((1, 14, PAGES / 14), "/", "/");
}

#[test]
fn others_get_listings_while_sixteen_clients_hold_most() {
    others_get((16, 1, PAGES / 16), "/", "/");
}

#[test]
fn others_get_listings_while_256_clients_hold_most() {
    others_get((256, 1, PAGES / 256), "/", "/");
}
