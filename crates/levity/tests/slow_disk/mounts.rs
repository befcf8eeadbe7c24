//! A mount beneath a local root that stops answering: no loop waits for it, whatever way leads there.

use std::os::unix::fs::symlink;
use std::time::Duration;

use crate::rig::FuseMount;
use crate::support::{Client, Server, assert_same, content, wait_until};
use crate::{HOT_MAX, server_of, stalls};

/// More than is kept in memory of a file.
const BIG_BYTES: usize = 3_000_000;

const TABLES: &str = "[limits]\nio_timeout = \"1s\"\n[disk]\nentry_ttl = \"60s\"\n";

fn mount() -> Option<FuseMount> {
    let mount = FuseMount::with(|tree| {
        tree.file("content/big", content(1, BIG_BYTES));
    })?;
    let root = mount.root();
    std::fs::write(root.join("hot"), content(4096, 4096)).expect("hot");
    crate::support::age(&root.join("hot"), Duration::from_secs(60));
    symlink("slow/big", root.join("inside")).expect("a link");
    symlink(root.join("slow/big"), root.join("outside")).expect("a link");
    Some(mount)
}

fn assert_hot(server: &Server) {
    let mut client = server.client();
    client.read_timeout(HOT_MAX);
    client.send("GET /hot HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.try_receive().expect("the loop waits");
    assert_same(&answer.body, &content(4096, 4096));
    assert_eq!(stalls(server), 0.0, "the loop slept: {}", server.stderr());
}

/// The mount itself, an overlay of it, and links that lead into it.
const WAYS: [&str; 4] = ["/slow/big", "/over/big", "/inside", "/outside"];

/// Asks for files that are kept open by then, and whose mount answers nothing any more.
fn known_by_then(engine: &str) {
    let Some(mount) = mount() else { return };
    let server = server_of(&mount.root(), engine, TABLES, "symlinks = \"follow\"\n");
    let byte = [("Range", "bytes=100000-100000")];
    let expected = content(1, BIG_BYTES);
    for path in WAYS {
        let got = server.get_with(path, &byte).body;
        assert_eq!(got, expected[100_000..100_001], "{path}");
    }
    let frozen = mount.freeze();
    let waiting = WAYS.map(|path| {
        let mut client = server.client();
        let range = "Range: bytes=2000000-";
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{range}\r\n\r\n"));
        assert_hot(&server);
        client
    });
    for mut client in waiting {
        client.receive().assert_status(503);
    }
    drop(frozen);
    for path in WAYS {
        wait_until("it answers again", || server.get(path).status == 200);
        assert_same(&server.get(path).body, &expected);
    }
}

fn under_a_transfer(engine: &str) {
    let Some(mount) = mount() else { return };
    let server = server_of(&mount.root(), engine, TABLES, "");
    let mut client = Client::narrow(server.address());
    client.send("GET /slow/big HTTP/1.1\r\nHost: a\r\n\r\n");
    client.receive_head().expect("a head").assert_status(200);
    let frozen = mount.freeze();
    let got = std::thread::scope(|scope| {
        let rest = scope.spawn(|| client.read_to_end().body());
        while !rest.is_finished() {
            assert_hot(&server);
        }
        rest.join().expect("a transfer")
    });
    drop(frozen);
    assert!(got.len() < BIG_BYTES, "all of it came from a frozen mount");
    assert_same(&got, &content(1, BIG_BYTES)[..got.len()]);
}

per_engine_that_waits_elsewhere! {
    fn files_that_are_known(engine) {
        known_by_then(engine);
    }

    fn a_transfer(engine) {
        under_a_transfer(engine);
    }
}

/// The whole root is an overlay, of which nobody knows what is below it.
#[test]
fn a_root_that_is_an_overlay() {
    let Some(mount) = mount() else { return };
    let root = mount.root().join("over");
    let own = "[admin]\nlisten = \"unix:{own}/admin\"\n";
    let server = crate::Launch::site(&root, &format!("{TABLES}{own}"), "")
        .workers(1)
        .start();
    let expected = content(1, BIG_BYTES);
    assert_same(&server.get("/big").body, &expected);
    let frozen = mount.freeze();
    let mut waiting = server.client();
    waiting.send("GET /big HTTP/1.1\r\nHost: a\r\nRange: bytes=2000000-2000000\r\n\r\n");
    let mut other = server.client();
    other.read_timeout(HOT_MAX);
    other.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    other
        .try_receive()
        .expect("the loop waits")
        .assert_status(204);
    assert_eq!(stalls(&server), 0.0, "the loop slept: {}", server.stderr());
    drop(frozen);
    waiting.receive();
}
