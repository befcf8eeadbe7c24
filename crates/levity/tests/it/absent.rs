//! Names that do not exist: the negative cache, and the limit for each client.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::scripted::Scripted;
use crate::support::{Launch, Server, Tree, per_engine, wait_until};

/// A file system without negative dentries, so that each lookup of a missing name costs a trip to the disk.
const TMPFS: &str = "/dev/shm";

const ADMIN: &str = "[admin]\nlisten = \"unix:{own}/admin\"";

/// A server of a tree on tmpfs; none where there is no tmpfs.
fn on_tmpfs(engine: &str, fill: impl FnOnce(&Tree), tables: &str) -> Option<(Tree, Server)> {
    on_tmpfs_with(engine, fill, tables, "listing = true")
}

/// The same with these keys of the site.
fn on_tmpfs_with(
    engine: &str,
    fill: impl FnOnce(&Tree),
    tables: &str,
    keys: &str,
) -> Option<(Tree, Server)> {
    if !Path::new(TMPFS).is_dir() {
        println!("left out: no {TMPFS}");
        return None;
    }
    let tree = Tree::inside(Path::new(TMPFS));
    fill(&tree);
    let tables = format!("{tables}\n{ADMIN}");
    let server = Launch::site(tree.path(), &tables, keys);
    let server = server.engine(engine).start();
    Some((tree, server))
}

fn trips(server: &Server) -> f64 {
    let metrics = server.metrics(&server.own("admin"));
    metrics.sum("levity_disk_service_seconds_count")
}

per_engine! {
    /// Within `entry_ttl` there is no second lookup.
    fn a_missing_name_is_cached(engine) {
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

    fn a_cached_absence_expires(engine) {
        let Some((tree, server)) = on_tmpfs(engine, |_| {}, "[disk]\nentry_ttl = \"100ms\"") else {
            return;
        };
        server.get("/file").assert_status(404);
        tree.file("file", "there");
        wait_until("presence", || server.get("/file").status == 200);
        fs::remove_file(tree.at("file")).expect("unlink");
        wait_until("absence", || server.get("/file").status == 404);
    }

    fn no_absence_is_cached_without_a_time_to_live(engine) {
        let Some((tree, server)) = on_tmpfs(engine, |_| {}, "[disk]\nentry_ttl = \"0s\"") else {
            return;
        };
        server.get("/file").assert_status(404);
        tree.file("file", "there");
        assert_eq!(server.get("/file").text(), "there");
    }

    /// Together with the directory.
    fn the_absence_of_an_index_is_cached(engine) {
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
        // The listing itself always costs a trip.
        assert!(client.get("/d/").text().contains("new"));
        assert!((trips(&server) - before - 1.0).abs() < 0.5);
        tree.file("d/index.html", "index");
        assert!(client.get("/d/").text().contains("file"), "it is remembered");
    }

    /// They are limited to a rate, and no request is rejected.
    fn floods_of_missing_names_are_slowed_down(engine) {
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
        // Another connection has a limit of its own.
        let before = waits();
        server.get("/other").assert_status(404);
        assert!((waits() - before).abs() < 0.5);
    }

    /// Names that are too long for a file count too.
    fn floods_of_long_names_are_slowed_down(engine) {
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

    /// Names that exist do not count.
    fn requests_for_files_are_not_slowed_down(engine) {
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

    /// They are no floods: another step has them.
    fn names_that_another_step_answers_are_not_slowed_down(engine) {
        let app = Scripted::tcp(|conn| {
            while let Some(request) = conn.read_request() {
                let is_known = !request.target.ends_with('0');
                conn.answer(if is_known { "200 OK" } else { "404 Not Found" }, "app");
            }
        });
        let tables = format!(
            "[[upstream]]\nname = \"app\"\nto = [\"{}\"]\n[limits]\nabsent_trips = 3",
            app.address()
        );
        let keys = "proxy = \"app\"\ntry = [\"file\", \"file.html\", \"proxy\"]\n\
                    [[site.route]]\npath = \"/page/*\"\ntry = [\"file\", \"/index.html\"]";
        let fill = |tree: &Tree| {
            tree.file("index.html", "index");
        };
        let Some((_tree, server)) = on_tmpfs_with(engine, fill, &tables, keys) else {
            return;
        };
        let waits = || server.metrics(&server.own("admin")).sum("levity_absence_waits_total");
        let mut client = server.client();
        for number in 1..10 {
            assert_eq!(client.get(&format!("/{number}")).text(), "app");
            assert_eq!(client.get(&format!("/page/{number}")).text(), "index");
        }
        assert!(waits() < 0.5);
        // Each takes two trips.
        for number in 1..4 {
            client.get(&format!("/{number}0")).assert_status(404);
        }
        assert!(waits() >= 1.0);
    }
}
