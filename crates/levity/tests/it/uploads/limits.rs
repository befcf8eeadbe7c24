//! Bounds on files, on all of them, and on the disk.

use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::support::is_root;

/// A file system of its own; unmounted when it is dropped.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Needs the rights of root.
    pub fn tmpfs(at: PathBuf, size: &str) -> Self {
        let options = format!("size={size},mode=777");
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(&at);
        assert!(mount.status().expect("mount").success());
        Self(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: the server of a test that has failed may still have files open there.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Sends a file in chunks; the server may answer before the end.
fn put_chunked(server: &Server, path: &str, body: &[u8]) -> Answer {
    let mut client = server.client();
    client.send(head("PUT", path, &[("Transfer-Encoding", "chunked")]));
    for piece in body.chunks(1000) {
        let sent = client
            .try_send(format!("{:x}\r\n", piece.len()))
            .and_then(|()| client.try_send(piece))
            .and_then(|()| client.try_send("\r\n"));
        if sent.is_err() {
            break;
        }
    }
    let _ = client.try_send("0\r\n\r\n");
    client.receive()
}

/// Asks to send `bytes`, and sends none unless that is permitted.
fn asked(server: &Server, path: &str, bytes: u64) -> u16 {
    let mut client = server.client();
    let length = bytes.to_string();
    let headers = [
        ("Content-Length", length.as_str()),
        ("Expect", "100-continue"),
    ];
    client.send(head("PUT", path, &headers));
    client.receive().status
}

per_engine! {
    fn a_file_may_have_the_maximum_and_no_more(engine) {
        let root = writable();
        let server = taking(root.path(), "max_file_bytes = \"100KiB\"").engine(engine).start();
        let body = content(1, (100 << 10) + 1);
        let (exact, more) = (&body[..100 << 10], &body[..]);
        put_new(&server, "/length", exact).assert_status(201);
        put_chunked(&server, "/chunked", exact).assert_status(201);
        put_new(&server, "/length-more", more).assert_status(413);
        put_chunked(&server, "/chunked-more", more).assert_status(413);
        put_chunked(&server, "/chunked-much-more", &content(1, 3_000_000)).assert_status(413);
        assert_eq!(asked(&server, "/asked", 100 << 10), 100);
        assert_eq!(asked(&server, "/asked", (100 << 10) + 1), 413);
        assert_eq!(names(root.path()), ["chunked", "length"]);
        for name in ["chunked", "length"] {
            assert!(fs::read(root.at(name)).expect("a file") == exact);
        }
        assert_nothing_is_left(&server, root.path());
    }

    fn the_quota_is_one_of_all_files(engine) {
        let root = writable();
        root.file("folder/before", content(1, 40_000));
        // Two names are there.
        let quota = 100_000 + 3 * NAME_BYTES;
        let keys = format!("{ALL}, quota_bytes = \"{quota}B\", resume = \"0s\"");
        let server = taking(root.path(), &keys).engine(engine).start();
        let body = content(2, 60_001);
        put_new(&server, "/more", &body).assert_status(507);
        put_chunked(&server, "/more", &body).assert_status(507);
        assert_eq!(asked(&server, "/more", 60_001), 507);
        put_new(&server, "/exact", &body[..60_000]).assert_status(201);
        put_new(&server, "/none", b"").assert_status(507);
        // A file makes way for one that replaces it, and not for another one.
        put_new(&server, "/exact", &body).assert_status(507);
        put_new(&server, "/exact", &body[..60_000]).assert_status(204);
        put_chunked(&server, "/exact", &body[..60_000]).assert_status(204);
        server.client().request("DELETE", "/exact", &[]).assert_status(204);
        put_chunked(&server, "/chunked", &body[..60_000]).assert_status(201);
        server.client().request("DELETE", "/chunked", &[]).assert_status(204);
        put_new(&server, "/small", &body[..20_000]).assert_status(201);
        put_new(&server, "/small", &body[..10_000]).assert_status(204);
        put_new(&server, "/rest", &body[..50_000 - NAME_BYTES]).assert_status(201);
        put_new(&server, "/one", b"").assert_status(507);
        assert_eq!(names(root.path()), ["folder", "rest", "small"]);
        assert_nothing_is_left(&server, root.path());
        assert!(uploads(&server, "full") >= 6.0);
    }

    fn names_count_for_the_quota(engine) {
        let root = writable();
        let keys = format!("{ALL}, create_folders = true, quota_bytes = \"{}B\"", 6 * NAME_BYTES);
        let server = taking(root.path(), &keys).engine(engine).start();
        let status = |method: &str, path: &str| server.client().request(method, path, &[]).status;
        put_new(&server, "/a/b/c/d/e/f", b"").assert_status(201);
        put_new(&server, "/more", b"").assert_status(507);
        put_new(&server, "/a/b/c/d/e/f", b"").assert_status(204);
        assert_eq!(status("MKCOL", "/folder"), 507);
        assert_eq!(status("DELETE", "/a/b/c/d/e/f"), 204);
        assert_eq!(status("DELETE", "/a/b/c/d/e"), 204);
        assert_eq!(status("MKCOL", "/folder"), 201);
        put_new(&server, "/new/more", b"").assert_status(507);
        put_new(&server, "/more", b"").assert_status(201);
        assert_eq!(status("MKCOL", "/another"), 507);
        assert_nothing_is_left(&server, root.path());
        // As they are counted on the disk.
        drop(server);
        let server = taking(root.path(), &keys).engine(engine).start();
        put_new(&server, "/last", b"").assert_status(507);
        put_new(&server, "/more", b"").assert_status(204);
    }
}

/// A file that makes way does so once, and there is never more on the disk than the largest file besides the quota.
#[test]
fn a_full_quota_lets_files_be_replaced() {
    const BYTES: usize = 50_000;
    let root = writable();
    root.file("a", content(1, BYTES));
    root.file("b", content(2, BYTES));
    let quota = 2 * (BYTES + NAME_BYTES);
    let keys = format!("quota_bytes = \"{quota}B\", max_file_bytes = \"{BYTES}B\"");
    let server = taking(root.path(), &keys).start();
    let begin = |path: &str| {
        let mut client = server.client();
        let length = BYTES.to_string();
        client.send(head(
            "PUT",
            path,
            &[("Content-Length", &length), ("Expect", "100-continue")],
        ));
        (client.receive().status, client)
    };
    let (status, mut first) = begin("/a");
    assert_eq!(status, 100);
    // What makes way for it is neither there for others, nor for a second one of its name.
    assert_eq!(asked(&server, "/b", 1), 507);
    assert_eq!(asked(&server, "/a", 1), 507);
    assert_eq!(asked(&server, "/c", 0), 507);
    first.send(content(3, BYTES));
    first.receive().assert_status(204);
    // A part keeps what makes way for it, so that the rest of the file can follow.
    let (status, mut second) = begin("/a");
    assert_eq!(status, 100);
    second.send(content(4, BYTES / 2));
    wait_until("it has begun", || open_unnamed(&server, root.path()) == 1);
    drop(second);
    let rest = format!("bytes {}-{}/{BYTES}", BYTES / 2, BYTES - 1);
    wait_until("the rest is taken", || {
        let sent = put(
            &mut server.client(),
            "/a",
            &[("Content-Range", &rest)],
            &content(4, BYTES)[BYTES / 2..],
        );
        sent.status == 204
    });
    assert!(fs::read(root.at("a")).expect("a file") == content(4, BYTES));
    put_new(&server, "/b", b"1").assert_status(204);
    put_new(&server, "/c", &content(5, BYTES - 1 - NAME_BYTES)).assert_status(201);
    put_new(&server, "/d", b"").assert_status(507);
    assert_nothing_is_left(&server, root.path());
}

/// What is being received, and what waits for its rest, counts too.
#[test]
fn the_quota_counts_files_in_transit() {
    let root = writable();
    let quota = 100_000 + 2 * NAME_BYTES;
    let server = taking(root.path(), &format!("quota_bytes = \"{quota}B\"")).start();
    let mut client = server.client();
    client.send(head("PUT", "/a", &[("Content-Length", "60000")]));
    client.send(content(1, 10_000));
    wait_until("it has begun", || open_unnamed(&server, root.path()) == 1);
    assert_eq!(asked(&server, "/b", 40_001), 507);
    assert_eq!(asked(&server, "/b", 40_000), 100);
    drop(client);
    // The part keeps what has arrived of it.
    wait_until("the rest is given back", || {
        asked(&server, "/b", 90_000) == 100
    });
    assert_eq!(asked(&server, "/b", 90_001), 507);
}

#[test]
fn a_full_disk_is_no_failure() {
    if !is_root() {
        return;
    }
    let root = Tree::new();
    let mount = Mounted::tmpfs(root.folder("disk"), "1M");
    let disk = root.at("disk");
    let server = taking(&disk, ALL).start();
    put_new(&server, "/large", &content(1, 2 << 20)).assert_status(507);
    assert_eq!(asked(&server, "/large", 2 << 20), 507);
    put_chunked(&server, "/chunked", &content(1, 2 << 20)).assert_status(507);
    assert_nothing_is_left(&server, &disk);
    assert_eq!(names(&disk), [""; 0]);
    put_new(&server, "/fits", &content(1, 600_000)).assert_status(201);
    put_new(&server, "/rest", &content(1, 600_000)).assert_status(507);
    // It is known before the body is sent, unless the disk fills up meanwhile.
    let mut client = server.client();
    client.send(head("PUT", "/slow", &[("Content-Length", "300000")]));
    client.send(content(1, 100_000));
    wait_until("it has begun", || open_unnamed(&server, &disk) == 1);
    fs::write(disk.join("other"), content(1, 300_000)).expect("a file of another program");
    let _ = client.try_send(content(1, 200_000));
    client.receive().assert_status(507);
    fs::remove_file(disk.join("other")).expect("remove");
    put_new(&server, "/small", &content(1, 1000)).assert_status(201);
    assert_eq!(uploads(&server, "failed"), 0.0);
    drop(server);
    drop(mount);
}
