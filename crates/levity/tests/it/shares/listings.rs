//! Memory of listings and archives.

use std::fs::File;
use std::thread;
use std::time::Duration;

use super::{FIRST_BYTE_MAX, LISTEN, client_of, stalled, time_to_first_byte};
use crate::support::{Client, Launch, Server, Tree, frames, wait_until};

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
    let same = |_| stalled_target.to_owned();
    let _stalled = stalled(&server, prefixes, connections_each, targets_each, same);
    wait_until("much is held", || used(&server) > BYTES_MAX * 0.45);
    let time = time_to_first_byte(&server, target);
    assert!(time < FIRST_BYTE_MAX, "{time:?}");
    let used = used(&server);
    assert!(used <= BYTES_MAX, "{used}");
}

/// Bytes of all listings and archives.
fn used(server: &Server) -> f64 {
    let metrics = server.metrics(&server.own("admin"));
    metrics.sum("levity_share_used{resource=\"listings\"}")
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

/// Listings of many names are common to all who read them. Whoever asked first may have left; whoever keeps them then makes way.
#[test]
fn others_get_archives_while_a_client_holds_large_listings_that_another_has_made() {
    const NAMES: usize = 36_000;
    const LISTING_BYTES: f64 = 9.7e6;
    /// A listing is made anew after so long (`disk.entry_ttl`).
    const TTL: Duration = Duration::from_millis(1_100);
    let (tree, server) = server();
    tree.file("names/0", "");
    for number in 1..NAMES {
        let name = format!("names/{number}-{}", "x".repeat(240));
        File::create(tree.path().join(name)).expect("create");
    }
    let ask = |prefix| -> Client {
        let mut client = client_of(&server, prefix);
        let request = frames::get(1, "/names/");
        client.send([frames::preface(0), request].concat());
        client
    };
    let mut readers = Vec::new();
    for _ in 0..3 {
        let before = used(&server);
        let first = ask(1);
        wait_until("it is being made", || used(&server) > before);
        readers.push(ask(2));
        wait_until("it is made", || used(&server) > before + LISTING_BYTES);
        drop(first);
        thread::sleep(TTL);
    }
    let time = time_to_first_byte(&server, "/archived/?archive=tar");
    assert!(time < FIRST_BYTE_MAX, "{time:?}");
}
