//! A mount beneath a local root that stops answering: no loop waits for it, whatever way leads there.

use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use crate::rig::FuseMount;
use crate::support::{
    Client, Server, assert_same, content, per_engine_that_waits_elsewhere, wait_until,
};
use crate::{HOT_MAX, metrics, server_of, stalls};

/// More than is kept in memory of a file.
const BIG_BYTES: usize = 3_000_000;

const TABLES: &str = "[limits]\nio_timeout = \"1s\"\n[disk]\nentry_ttl = \"60s\"\n";

pub fn mount() -> Option<FuseMount> {
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

pub fn assert_hot(server: &Server) {
    let mut client = server.client();
    client.read_timeout(HOT_MAX);
    client.send("GET /hot HTTP/1.1\r\nHost: localhost\r\n\r\n");
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
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\n{range}\r\n\r\n"
        ));
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
    client.send("GET /slow/big HTTP/1.1\r\nHost: localhost\r\n\r\n");
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

/// A device that answers nothing for this long is dead.
const DEAD_SOON: &str = "[limits]\nio_timeout = \"20s\"\n[disk]\ndead_after = \"500ms\"\n";

/// More than are under way at a time on any device.
const WAITING: usize = 100;

/// Files of the root that nobody has asked for yet.
fn fill_root(mount: &FuseMount) {
    for number in 0..20 {
        let file = mount.root().join(format!("cold{number}"));
        std::fs::write(file, content(number, 1000)).expect("a file");
    }
    crate::drop_caches();
}

/// Clients that wait for a mount that answers nothing are told so, and the root goes on meanwhile.
fn assert_only_the_mount_is_dead(server: &Server, targets: impl Iterator<Item = String>) {
    let mut waiting: Vec<_> = targets
        .map(|target| {
            let mut client = server.client();
            client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
            client
        })
        .collect();
    for client in &mut waiting {
        client.receive().assert_status(503);
    }
    for number in 0..20 {
        let answer = server.get(&format!("/cold{number}"));
        answer.assert_status(200);
        assert_same(&answer.body, &content(number, 1000));
    }
    assert_eq!(metrics(server).sum("levity_disk_dead"), 1.0);
    assert_eq!(stalls(server), 0.0, "the loop slept: {}", server.stderr());
}

/// Nothing told before that the names lead into the mount.
fn through_links(engine: &str) {
    let Some(mount) = mount() else { return };
    fill_root(&mount);
    let server = server_of(&mount.root(), engine, DEAD_SOON, "symlinks = \"follow\"\n");
    symlink("slow", mount.root().join("folder")).expect("a link");
    let frozen = mount.freeze();
    let ways = ["/inside", "/outside", "/folder/big", "/folder/absent"];
    let names = (0..WAITING).map(|number| format!("{}?{number}", ways[number % ways.len()]));
    assert_only_the_mount_is_dead(&server, names);
    drop(frozen);
    for path in ["/inside", "/outside", "/folder/big"] {
        wait_until("it answers again", || server.get(path).status == 200);
        assert_same(&server.get(path).body, &content(1, BIG_BYTES));
    }
    assert_eq!(metrics(&server).sum("levity_disk_dead"), 0.0);
}

/// The names of mounts and of links into them are shown, and the mounts are not asked.
fn listed(engine: &str) {
    let Some(mount) = mount() else { return };
    fill_root(&mount);
    let keys = "symlinks = \"follow\"\nlisting = true\n";
    let server = server_of(&mount.root(), engine, DEAD_SOON, keys);
    symlink("slow", mount.root().join("folder")).expect("a link");
    let frozen = mount.freeze();
    for _ in 0..WAITING {
        let answer = server.get("/");
        answer.assert_status(200);
        let page = answer.text();
        for row in [
            "<a href=\"slow/\">slow/</a><td><td>\n",
            "<a href=\"inside\">inside</a><td><td>\n",
            "<a href=\"folder\">folder</a><td><td>\n",
            "<a href=\"hot\">hot</a><td data-sort-value=\"4096\" title=\"4096 bytes\">4.0 KiB</td><td>",
        ] {
            assert!(page.contains(row), "no {row:?} in {page}");
        }
    }
    for number in 0..20 {
        server.get(&format!("/cold{number}")).assert_status(200);
    }
    assert_eq!(metrics(&server).sum("levity_disk_dead"), 0.0);
    drop(frozen);
}

per_engine_that_waits_elsewhere! {
    fn links_into_a_mount(engine) {
        through_links(engine);
    }

    fn a_listing_with_mounts(engine) {
        listed(engine);
    }

    fn files_that_are_known(engine) {
        known_by_then(engine);
    }

    fn a_transfer(engine) {
        under_a_transfer(engine);
    }
}

/// However many requests it fails, the operator reads of it twice.
#[test]
fn an_outage_is_two_lines() {
    let Some(mount) = mount() else { return };
    // Before the start: it also drops pages of the program that were not used yet, which the loop would wait for.
    fill_root(&mount);
    let server = server_of(&mount.root(), "auto", DEAD_SOON, "symlinks = \"follow\"\n");
    let frozen = mount.freeze();
    let names = (0..WAITING).map(|number| format!("/inside?{number}"));
    assert_only_the_mount_is_dead(&server, names);
    let place = mount.root().join("slow").display().to_string();
    let began = server.says(&format!("the file system at {place} (fuse"));
    assert!(began.contains("does not respond"), "{began}");
    drop(frozen);
    wait_until("it answers again", || server.get("/inside").status == 200);
    let ended = server.says("responds again after ");
    let refused = ended
        .split([':', ' '])
        .filter_map(|word| word.parse::<usize>().ok());
    assert!(refused.max() >= Some(WAITING), "{ended}");
    let text = server.stderr();
    assert_eq!(text.matches("does not respond").count(), 1, "{text}");
    assert_eq!(text.matches("cannot serve").count(), 0, "{text}");
}

/// It was not there when the root was opened.
#[test]
fn a_mount_that_comes_later() {
    let Some(mount) = mount() else { return };
    fill_root(&mount);
    let server = server_of(&mount.root(), "auto", DEAD_SOON, "");
    let late = mount.show_at("late");
    server.get("/late/big").assert_status(200);
    let frozen = mount.freeze();
    let names = (0..WAITING).map(|number| format!("/late/{number}"));
    assert_only_the_mount_is_dead(&server, names);
    drop(frozen);
    wait_until("it answers again", || server.get("/late/1").status == 404);
    drop(late);
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
    waiting.send("GET /big HTTP/1.1\r\nHost: localhost\r\nRange: bytes=2000000-2000000\r\n\r\n");
    let mut other = server.client();
    other.read_timeout(HOT_MAX);
    other.send("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n");
    other
        .try_receive()
        .expect("the loop waits")
        .assert_status(204);
    assert_eq!(stalls(&server), 0.0, "the loop slept: {}", server.stderr());
    drop(frozen);
    waiting.receive();
}

/// To look where the path of a root leads now waits for its mount. Nothing else does, and when the mount
/// answers again a link that was switched meanwhile shows.
#[test]
fn a_root_on_a_mount_that_freezes() {
    let Some(mount) = mount() else { return };
    let root = mount.root();
    std::fs::create_dir(root.join("new")).expect("a folder");
    std::fs::write(root.join("new/big"), "new").expect("a file");
    symlink("slow", root.join("current")).expect("a link");
    let hot = format!(
        "[[site.route]]\npath = \"/hot\"\nroot = \"{}\"\n",
        root.display()
    );
    let tables = "[limits]\nio_timeout = \"1s\"\n";
    let server = server_of(&root.join("current"), "auto", tables, &hot);
    assert_same(&server.get("/big").body, &content(1, BIG_BYTES));
    let frozen = mount.freeze();
    symlink("new", root.join("next")).expect("a link");
    std::fs::rename(root.join("next"), root.join("current")).expect("rename");
    // Longer than it takes until a root is looked at again.
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(2500) {
        assert_hot(&server);
    }
    drop(frozen);
    wait_until("the new root", || server.get("/big").body == b"new");
}
