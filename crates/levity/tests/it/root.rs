//! Roots whose path leads elsewhere while they are served.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{
    Client, Launch, Server, Tree, assert_same, content, per_engine, wait_until, wait_within,
};

const TTL: &str = "[disk]\nentry_ttl = \"1s\"\n[admin]\nlisten = \"unix:{own}/admin\"";

/// The time to live, two sweeps, and what a busy machine may add.
const SEEN_WITHIN: Duration = Duration::from_millis(3000);

/// Kept in memory, and read from the file.
const SIZES: [usize; 2] = [5_000, 200_000];

/// Far more than the buffers of both sockets hold.
const LARGE: usize = 32_000_000;

/// Points `current` at `release`, as deploys do.
fn switch(tree: &Tree, release: &str) {
    let new = tree.at("current.new");
    symlink(release, &new).expect("symlink");
    fs::rename(new, tree.at("current")).expect("rename");
}

fn site(engine: &str, root: &Path) -> Server {
    Launch::site(root, TTL, "precompressed = [\"gzip\"]")
        .engine(engine)
        .start()
}

/// Asks for `/file` until it has these bytes; before that it has the old ones.
#[track_caller]
fn becomes(client: &mut Client, old: &[u8], new: &[u8]) {
    wait_within(SEEN_WITHIN, "the new release", || {
        let body = client.get("/file").body;
        assert!(body == old || body == new, "neither of both");
        body == new
    });
}

per_engine! {
    fn a_link_is_switched(engine) {
        for size in SIZES {
            let tree = Tree::new();
            let old = tree.filled("1/file", size);
            let new = content(1, size);
            tree.file("2/file", &new);
            tree.file("1/only-old", "x");
            tree.file("2/only-new", "x");
            switch(&tree, "1");
            let server = site(engine, &tree.at("current"));
            let mut client = server.client();
            assert_same(&client.get("/file").body, &old);
            client.get("/only-old").assert_status(200);
            client.get("/only-new").assert_status(404);
            switch(&tree, "2");
            becomes(&mut client, &old, &new);
            client.get("/only-old").assert_status(404);
            client.get("/only-new").assert_status(200);
            server.says("now resolves to");
            switch(&tree, "1");
            becomes(&mut client, &new, &old);
        }
    }

    fn a_folder_is_replaced(engine) {
        for size in SIZES {
            let tree = Tree::new();
            let old = tree.filled("current/file", size);
            let new = content(1, size);
            tree.file("next/file", &new);
            let server = site(engine, &tree.at("current"));
            let mut client = server.client();
            assert_same(&client.get("/file").body, &old);
            fs::rename(tree.at("current"), tree.at("before")).expect("rename");
            fs::rename(tree.at("next"), tree.at("current")).expect("rename");
            becomes(&mut client, &old, &new);
        }
    }

    /// What is left of a root whose path leads nowhere is not served.
    fn a_folder_goes_and_comes_back(engine) {
        let tree = Tree::new();
        let bytes = tree.filled("current/file", 5_000);
        let server = site(engine, &tree.at("current"));
        let mut client = server.client();
        assert_same(&client.get("/file").body, &bytes);
        fs::rename(tree.at("current"), tree.at("away")).expect("rename");
        wait_within(SEEN_WITHIN, "absence", || client.get("/file").status == 404);
        server.says("does not resolve, its files are missing");
        fs::rename(tree.at("away"), tree.at("current")).expect("rename");
        wait_within(SEEN_WITHIN, "presence", || client.get("/file").status == 200);
        fs::remove_dir_all(tree.at("current")).expect("remove");
        wait_within(SEEN_WITHIN, "absence", || client.get("/file").status == 404);
        tree.file("current/file", "again");
        wait_within(SEEN_WITHIN, "presence", || client.get("/file").text() == "again");
    }

    fn a_request_under_way_keeps_the_old_root(engine) {
        let tree = Tree::new();
        let old = tree.filled("1/large", LARGE);
        tree.file("1/file", "old");
        tree.file("2/file", "new");
        switch(&tree, "1");
        let server = site(engine, &tree.at("current"));
        let mut slow = Client::narrow(server.address());
        slow.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = slow.receive_head().expect("a head");
        assert_eq!((head.status, head.length()), (200, Some(LARGE)));
        switch(&tree, "2");
        becomes(&mut server.client(), b"old", b"new");
        assert_same(&slow.read_exactly(LARGE), &old);
    }

    /// Under a watch files are trusted for longer than the time to live.
    fn a_link_is_switched_under_a_watch(engine) {
        let tree = Tree::new();
        tree.file("1/file", "old");
        tree.file("2/file", "new");
        switch(&tree, "1");
        let tables = "[disk]\nwatch = \"inotify\"\nentry_ttl = \"1h\"";
        let server = Launch::site(&tree.at("current"), tables, "").engine(engine).start();
        let mut client = server.client();
        assert_eq!(client.get("/file").text(), "old");
        switch(&tree, "2");
        becomes(&mut client, b"old", b"new");
    }

    /// Looks are made beside requests: those for files in memory go on without a trip.
    fn looks_hold_up_no_request(engine) {
        let tree = Tree::new();
        tree.file("file", "x");
        let tables = "[disk]\nentry_ttl = \"1s\"\n[log]\nformat = \"json\"\ntiming = \"request\"\n\
                      [admin]\nlisten = \"unix:{own}/admin\"";
        let server = Launch::site(tree.path(), tables, "").engine(engine).start();
        let mut client = server.client();
        client.get("/file").assert_status(200);
        let looks = || server.metrics(&server.own("admin")).sum("levity_disk_service_seconds_count");
        let (before, mut asked) = (looks(), 1);
        // Nothing else is asked of the disk meanwhile.
        wait_until("it was looked at twice", || {
            client.get("/file").assert_status(200);
            asked += 1;
            looks() >= before + 2.0
        });
        wait_until("all lines are there", || server.stdout().matches("\"trips\":").count() == asked);
        let with_trips = asked - server.stdout().matches("\"trips\":0").count();
        assert!(with_trips <= 1, "{with_trips} of {asked}");
    }

    fn serve_follows_too(engine) {
        let tree = Tree::new();
        tree.file("1/file", "old");
        tree.file("2/file", "new");
        switch(&tree, "1");
        let server = Launch::serve(&tree.at("current")).engine(engine).start();
        let mut client = server.client();
        assert_eq!(client.get("/file").text(), "old");
        switch(&tree, "2");
        becomes(&mut client, b"old", b"new");
    }
}

/// Nobody has asked for it lately, so nobody has looked at it: the request waits for a look.
#[test]
fn the_first_request_in_a_long_time_gets_the_new_root() {
    let tree = Tree::new();
    tree.file("1/file", "old");
    tree.file("2/file", "new");
    switch(&tree, "1");
    let server = Launch::serve(&tree.at("current")).start();
    let start = Instant::now();
    switch(&tree, "2");
    wait_until("time has passed", || {
        start.elapsed() > Duration::from_millis(1000)
    });
    assert_eq!(server.get("/file").text(), "new");
}

/// `ln -sfn` has a moment without a link.
#[test]
fn a_moment_without_a_root_is_not_seen() {
    let tree = Tree::new();
    tree.file("1/file", "old");
    switch(&tree, "1");
    let server = Launch::serve(&tree.at("current")).start();
    let mut client = server.client();
    let start = Instant::now();
    wait_until("many looks were made", || {
        fs::remove_file(tree.at("current")).expect("remove");
        symlink("1", tree.at("current")).expect("symlink");
        client.get("/file").assert_status(200);
        start.elapsed() > Duration::from_millis(1000)
    });
}

#[test]
fn a_root_that_is_absent_at_the_start_is_served_as_soon_as_it_is_there() {
    let tree = Tree::new();
    tree.file("here/file", "here");
    tree.file("closed/file", "closed");
    tree.chmod("closed", 0o000);
    let site = |name: &str| {
        let root = tree.at(name);
        format!(
            "[[site]]\nhosts = [\"{name}\"]\nroot = \"{}\"\n",
            root.display()
        )
    };
    let sites = ["here", "closed", "late"].map(site).concat();
    let server = Launch::run(&format!("[[listen]]\naddress = \"127.0.0.1:0\"\n{sites}")).start();
    let mut client = server.client();
    assert_eq!(client.get_for("here", "/file").text(), "here");
    for name in ["closed", "late"] {
        server.says(&format!("{name}: "));
        client.get_for(name, "/file").assert_status(503);
    }
    let checked = Launch::levity(["check".as_ref(), server.config().as_os_str()]).ran();
    assert!(
        checked.stderr.contains("late does not exist"),
        "{}",
        checked.stderr
    );
    // While one is absent, another one may not be.
    let text = fs::read_to_string(server.config()).expect("read");
    fs::write(server.config(), text.replace("/here", "/typo")).expect("write");
    server.signal(Signal::HUP);
    server.says("configuration not reloaded");
    assert_eq!(client.get_for("here", "/file").text(), "here");
    fs::write(server.config(), text).expect("write");
    server.signal(Signal::HUP);
    server.says("configuration reloaded");
    tree.chmod("closed", 0o755);
    wait_until("the folder can be read", || {
        client.get_for("closed", "/file").status == 200
    });
    tree.file("late/file", "late");
    wait_until("the folder is there", || {
        client.get_for("late", "/file").status == 200
    });
}
