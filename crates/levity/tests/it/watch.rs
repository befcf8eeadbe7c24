//! `disk.watch`: changes show although nobody looks for them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::{
    Client, Launch, Server, Tree, age, content, per_engine, wait_until, wait_within,
};

/// Nothing is looked at again because of its age.
const WATCHED: &str =
    "[disk]\nwatch = \"inotify\"\nentry_ttl = \"1h\"\n[admin]\nlisten = \"unix:{own}/admin\"";

/// Kept in memory, and read from the file.
const SIZES: [usize; 2] = [5_000, 200_000];

fn site(engine: &str, root: &Path) -> Server {
    Launch::site(root, WATCHED, "precompressed = [\"gzip\"]")
        .engine(engine)
        .start()
}

fn watches(server: &Server) -> f64 {
    server.metrics(&server.own("admin")).sum("levity_watches")
}

/// Asks until as many directories are watched, and once more, so that the file is under the watch.
fn until_watched(server: &Server, client: &mut Client, path: &str, directories: f64) {
    wait_until("the directories are watched", || {
        client.get(path).assert_status(200);
        (watches(server) - directories).abs() < 0.5
    });
    client.get(path).assert_status(200);
}

#[track_caller]
fn until_body(client: &mut Client, path: &str, bytes: &[u8]) {
    wait_until("the change shows", || {
        let answer = client.get(path);
        // A file may be caught in the middle of a change.
        answer.status == 200 && answer.body == bytes
    });
}

per_engine! {
    fn changes_show_without_a_look(engine) {
        for size in SIZES {
            let tree = Tree::new();
            tree.filled("a/b/file", size);
            let server = site(engine, tree.path());
            let mut client = server.client();
            until_watched(&server, &mut client, "/a/b/file", 3.0);

            let new = content(1, size);
            tree.file("a/b/new", &new);
            fs::rename(tree.at("a/b/new"), tree.at("a/b/file")).expect("rename");
            until_body(&mut client, "/a/b/file", &new);

            fs::rename(tree.at("a"), tree.at("c")).expect("rename");
            wait_until("absence", || client.get("/a/b/file").status == 404);
            until_watched(&server, &mut client, "/c/b/file", 3.0);
            fs::remove_file(tree.at("c/b/file")).expect("unlink");
            wait_until("absence", || client.get("/c/b/file").status == 404);
        }
    }

    fn written_in_place(engine) {
        for size in SIZES {
            let tree = Tree::new();
            let path = tree.at("file");
            tree.filled("file", size);
            let server = site(engine, tree.path());
            let mut client = server.client();
            until_watched(&server, &mut client, "/file", 1.0);
            let new = content(1, size);
            fs::write(&path, &new).expect("write");
            age(&path, Duration::from_secs(60));
            until_body(&mut client, "/file", &new);
        }
    }

    /// However a change falls between the looks, the last version is the one that stays.
    fn many_changes(engine) {
        let tree = Tree::new();
        tree.file("d/file", "0");
        let server = site(engine, tree.path());
        let mut client = server.client();
        until_watched(&server, &mut client, "/d/file", 2.0);
        for round in 0..200 {
            let text = format!("{round}");
            tree.file("d/new", &text);
            fs::rename(tree.at("d/new"), tree.at("d/file")).expect("rename");
            for _ in 0..round % 4 {
                client.get("/d/file").assert_status(200);
            }
            if round % 20 == 0 {
                // Long before a watched file is looked at again because of its age.
                wait_within(Duration::from_secs(10), "the last version", || {
                    client.get("/d/file").text() == text
                });
            }
        }
    }

    /// What was not there when the file was found shows too.
    fn a_new_variant(engine) {
        let tree = Tree::new();
        tree.file("file", "itself");
        let server = site(engine, tree.path());
        let mut client = server.client();
        until_watched(&server, &mut client, "/file", 1.0);
        tree.file("file.gz", "small");
        let accept = [("Accept-Encoding", "gzip")];
        wait_until("the variant", || client.get_with("/file", &accept).text() == "small");
        fs::remove_file(tree.at("file.gz")).expect("unlink");
        wait_until("the file", || client.get_with("/file", &accept).text() == "itself");
    }

    /// Files behind a link, or with another name, stay on their time to live.
    fn links_are_looked_at_again(engine) {
        let (tree, elsewhere) = (Tree::new(), Tree::new());
        tree.file("first", "first");
        tree.file("second", "second");
        tree.link("first", "link");
        fs::hard_link(tree.file("d/name", "old"), elsewhere.at("name")).expect("link");
        let config = WATCHED.replace("1h", "10ms");
        let server = Launch::site(tree.path(), &config, "").engine(engine).start();
        let mut client = server.client();
        for (path, text) in [("/link", "first"), ("/d/name", "old")] {
            assert_eq!(client.get(path).text(), text);
        }
        fs::write(tree.at("first"), "changed").expect("write");
        fs::write(elsewhere.at("name"), "new").expect("write");
        wait_until("the target", || client.get("/link").text() == "changed");
        wait_until("the other name", || client.get("/d/name").text() == "new");
        assert!(watches(&server) < 0.5, "neither is watched");
    }
}

/// Events of a directory with many files in it are counted, and nothing else is.
#[test]
fn events_are_counted() {
    let tree = Tree::new();
    tree.file("file", "x");
    let server = site("threads", tree.path());
    let mut client = server.client();
    until_watched(&server, &mut client, "/file", 1.0);
    let events = || {
        server
            .metrics(&server.own("admin"))
            .sum("levity_watch_events_total")
    };
    let before = events();
    tree.file("other", "y");
    wait_until("events", || events() > before);
    let metrics = server.metrics(&server.own("admin"));
    assert!(metrics.sum("levity_watch_overflows_total") < 0.5);
    assert!(metrics.sum("levity_watch_refused_total") < 0.5);
}

#[test]
fn off_there_are_no_figures() {
    let tree = Tree::new();
    let tables = "[admin]\nlisten = \"unix:{own}/admin\"";
    let server = Launch::site(tree.path(), tables, "").start();
    assert!(!server.metrics(&server.own("admin")).has("levity_watches"));
}

/// Other programs of the user may have them all.
#[test]
fn without_an_instance_of_inotify_nothing_is_watched() {
    let tree = Tree::new();
    tree.file("file", "old");
    let server = Launch::site(
        tree.path(),
        "[disk]\nwatch = \"inotify\"\nentry_ttl = \"0s\"",
        "",
    )
    .without_inotify()
    .start();
    let mut client = server.client();
    until_body(&mut client, "/file", b"old");
    tree.file("file", "new");
    until_body(&mut client, "/file", b"new");
    let log = server.stderr();
    assert!(log.contains("disk.watch: nothing is watched: "), "{log}");
}
