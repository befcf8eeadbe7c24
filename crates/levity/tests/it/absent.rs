//! Names that do not exist: what is remembered of them, and what one client can make of them.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{Launch, Server, Tree, per_engine, wait_until};

/// A file system on which the kernel remembers no absent name: each costs a trip.
const TMPFS: &str = "/dev/shm";

const ADMIN: &str = "[admin]\nlisten = \"unix:{own}/admin\"";

/// A server of a tree on tmpfs; none where there is no tmpfs.
fn on_tmpfs(engine: &str, fill: impl FnOnce(&Tree), tables: &str) -> Option<(Tree, Server)> {
    if !Path::new(TMPFS).is_dir() {
        println!("left out: no {TMPFS}");
        return None;
    }
    let tree = Tree::inside(Path::new(TMPFS));
    fill(&tree);
    let tables = format!("{tables}\n{ADMIN}");
    let server = Launch::site(tree.path(), &tables, "listing = true");
    let server = server.engine(engine).start();
    Some((tree, server))
}

fn trips(server: &Server) -> f64 {
    let metrics = server.metrics(&server.own("admin"));
    metrics.sum("levity_disk_service_seconds_count")
}

per_engine! {
    /// A name that was asked for is not looked for again before its time.
    fn is_remembered(engine) {
        let Some((tree, server)) = on_tmpfs(engine, |_| {}, "[disk]\nentry_ttl = \"1h\"") else {
            return;
        };
        let mut client = server.client();
        client.get("/absent").assert_status(404);
        let before = trips(&server);
        assert!(before > 0.5, "it was no trip");
        for _ in 0..20 {
            client.get("/absent").assert_status(404);
        }
        assert!((trips(&server) - before).abs() < 0.5);
        tree.file("absent", "there");
        client.get("/absent").assert_status(404);
        client.get("/other").assert_status(404);
        assert!(trips(&server) > before);
    }

    fn is_forgotten_in_time(engine) {
        let Some((tree, server)) = on_tmpfs(engine, |_| {}, "[disk]\nentry_ttl = \"100ms\"") else {
            return;
        };
        server.get("/file").assert_status(404);
        tree.file("file", "there");
        wait_until("presence", || server.get("/file").status == 200);
        fs::remove_file(tree.at("file")).expect("unlink");
        wait_until("absence", || server.get("/file").status == 404);
    }

    fn is_not_remembered_without_a_time_to_live(engine) {
        let Some((tree, server)) = on_tmpfs(engine, |_| {}, "[disk]\nentry_ttl = \"0s\"") else {
            return;
        };
        server.get("/file").assert_status(404);
        tree.file("file", "there");
        assert_eq!(server.get("/file").text(), "there");
    }

    /// That a directory has no index is remembered together with the directory.
    fn of_an_index(engine) {
        let fill = |tree: &Tree| {
            tree.file("d/file", "x");
        };
        let Some((tree, server)) = on_tmpfs(engine, fill, "[disk]\nentry_ttl = \"1h\"") else {
            return;
        };
        let mut client = server.client();
        assert!(client.get("/d/").text().contains("file"));
        client.get("/d").assert_status(301);
        let before = trips(&server);
        tree.file("d/new", "y");
        // The listing itself is a trip, and always new.
        assert!(client.get("/d/").text().contains("new"));
        assert!((trips(&server) - before - 1.0).abs() < 0.5);
        tree.file("d/index.html", "index");
        assert!(client.get("/d/").text().contains("file"), "it is remembered");
    }

    /// Made-up names get their rate and no more, and nobody is refused for them.
    fn floods_wait(engine) {
        let Some((_tree, server)) = on_tmpfs(engine, |_| {}, "[limits]\nabsent_trips = 50") else {
            return;
        };
        let waits = || server.metrics(&server.own("admin")).sum("levity_absence_waits_total");
        let mut client = server.client();
        let start = Instant::now();
        for number in 0..50 {
            client.get(&format!("/{number}")).assert_status(404);
        }
        let free = start.elapsed();
        assert!(waits() < 0.5, "a second's worth is free");
        for number in 50..75 {
            client.get(&format!("/{number}")).assert_status(404);
        }
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(490), "{took:?}, and {free:?} of it free");
        assert!(waits() >= 1.0);
        // Another connection has a share of its own.
        let before = waits();
        server.get("/other").assert_status(404);
        assert!((waits() - before).abs() < 0.5);
    }

    /// So does whoever makes up names that are too long for a file.
    fn floods_of_long_names_wait(engine) {
        let tables = "[limits]\nabsent_trips = 1";
        let Some((_tree, server)) = on_tmpfs(engine, |_| {}, tables) else {
            return;
        };
        let mut client = server.client();
        for number in 0..2 {
            let name = format!("/{number}{}", "x".repeat(300));
            client.get(&name).assert_status(404);
        }
        let metrics = server.metrics(&server.own("admin"));
        assert!(metrics.sum("levity_absence_waits_total") >= 1.0);
    }

    /// What exists costs nothing of the share.
    fn files_never_wait(engine) {
        let fill = |tree: &Tree| {
            for number in 0..30 {
                tree.file(number.to_string(), "x");
            }
        };
        let tables = "[disk]\nentry_ttl = \"0s\"\n[limits]\nabsent_trips = 1";
        let Some((_tree, server)) = on_tmpfs(engine, fill, tables) else {
            return;
        };
        let mut client = server.client();
        for number in 0..30 {
            client.get(&format!("/{number}")).assert_status(200);
        }
        let metrics = server.metrics(&server.own("admin"));
        assert!(metrics.sum("levity_absence_waits_total") < 0.5);
    }
}
