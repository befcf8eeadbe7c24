//! The access log and the figures: what is said about a request.

use std::fs::File;
use std::io::Write;

use serde_json::Value;

use crate::support::{Client, Launch, Server, Tree, per_engine, wait_until};

const LARGE: usize = 32_000_000;

fn tree() -> Tree {
    let tree = Tree::new();
    tree.filled("small", 5_000);
    tree.filled("medium", 200_000);
    tree.filled("large", LARGE);
    tree
}

/// A server that writes JSON lines to a file of its own.
fn logging(tree: &Tree, engine: &str, limits: &str) -> Server {
    let tables = format!(
        "[log]\naccess = \"{{own}}/log\"\nformat = \"json\"\n\
         [admin]\nlisten = \"unix:{{own}}/admin\"\n[limits]\n{limits}\n"
    );
    Launch::site(tree.path(), &tables, "")
        .engine(engine)
        .start()
}

fn text(server: &Server) -> String {
    std::fs::read_to_string(server.own("log")).unwrap_or_default()
}

/// Waits for the only line about `target`.
#[track_caller]
fn line(server: &Server, target: &str) -> Value {
    let mut found = None;
    wait_until("a line in the log", || {
        found = text(server)
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
            .find(|line| line["target"] == target);
        found.is_some()
    });
    found.expect("a line")
}

fn seconds(line: &Value, key: &str) -> f64 {
    line[key]
        .as_f64()
        .unwrap_or_else(|| panic!("no {key}: {line}"))
}

per_engine! {
    fn a_request(engine) {
        let tree = tree();
        let server = logging(&tree, engine, "");
        let headers = [("Referer", "http://r/"), ("User-Agent", "a \"b\"\u{e9}"), ("Range", "bytes=0-99")];
        server.get_with("/medium?q=1", &headers).assert_status(206);
        let line = line(&server, "/medium?q=1");
        for (key, value) in [
            ("peer", "127.0.0.1"),
            ("host", "localhost"),
            ("method", "GET"),
            ("version", "HTTP/1.1"),
            ("end", "complete"),
            ("referer", "http://r/"),
            ("user_agent", "a \"b\"\u{e9}"),
        ] {
            assert_eq!(line[key], value, "{line}");
        }
        assert_eq!((&line["status"], &line["bytes"]), (&206.into(), &100.into()));
        let (duration, ttfb, wait) = (seconds(&line, "dur"), seconds(&line, "ttfb"), seconds(&line, "io_wait"));
        assert!(duration >= ttfb && ttfb >= wait && ttfb > 0.0 && duration < 10.0, "{line}");
    }

    fn where_the_bytes_came_from(engine) {
        let tree = tree();
        let server = logging(&tree, engine, "");
        // The start asked for a few bytes of some file, to learn about the file system.
        for name in ["small", "medium", "large"] {
            tree.evict(name);
        }
        server.get("/large?cold").assert_status(200);
        let cold = line(&server, "/large?cold");
        assert_eq!((&cold["src"], &cold["bytes"]), (&"disk".into(), &LARGE.into()));
        assert!(seconds(&cold, "io_wait") > 0.0, "{cold}");
        server.get("/medium?first").assert_status(200);
        server.get("/medium?again").assert_status(200);
        let can_probe = server.stderr().contains("RWF_NOWAIT) of a file in it worked");
        let expected = if can_probe { "cached" } else { "disk" };
        assert_eq!(line(&server, "/medium?again")["src"], expected);
        server.get("/small?first").assert_status(200);
        server.get("/small?again").assert_status(200);
        if engine != "sendfile" {
            assert_eq!(line(&server, "/small?again")["src"], "memory");
        }
        server.get("/none").assert_status(404);
        assert_eq!(line(&server, "/none")["src"], "-");
    }

    fn a_client_that_leaves(engine) {
        let tree = tree();
        let server = logging(&tree, engine, "");
        let mut client = Client::narrow(server.address());
        client.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
        client.receive_head().expect("a head").assert_status(200);
        drop(client);
        let line = line(&server, "/large");
        assert_eq!((&line["status"], &line["end"]), (&200.into(), &"client_abort".into()));
        assert!(line["bytes"].as_u64().is_some_and(|bytes| bytes < LARGE as u64), "{line}");
    }

    fn a_client_that_stops_reading(engine) {
        let tree = tree();
        let server = logging(&tree, engine, "send_timeout = \"300ms\"");
        let mut client = Client::narrow(server.address());
        client.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(line(&server, "/large")["end"], "timeout");
    }

    fn a_file_that_shrinks(engine) {
        let tree = tree();
        let server = logging(&tree, engine, "");
        let mut client = Client::narrow(server.address());
        client.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
        client.receive_head().expect("a head").assert_status(200);
        let file = File::options().write(true).open(tree.at("large")).expect("open");
        file.set_len(1000).expect("truncate");
        client.read_to_end().body();
        assert_eq!(line(&server, "/large")["end"], "error");
    }
}

#[test]
fn refused_requests_are_logged_and_counted() {
    let tree = tree();
    let server = logging(&tree, "auto", "header_timeout = \"200ms\"");
    for (request, status) in [("nonsense\r\n\r\n", 400), ("GET /a", 408)] {
        let mut client = server.client();
        client.send(request);
        client.receive().assert_status(status);
        let status_key = format!("\"status\":{status}");
        wait_until("a line", || text(&server).contains(&status_key));
        let count = server.metrics(&server.own("admin"));
        let series = format!("levity_requests_total{{code=\"{status}\"}}");
        assert_eq!(count.sum(&series), 1.0);
    }
}

#[test]
fn a_client_cannot_forge_a_line() {
    let tree = tree();
    let server = logging(&tree, "auto", "");
    server.get("/%0A%22forged%22?\"\\").assert_status(404);
    assert_eq!(line(&server, "/%0A%22forged%22?\"\\\\")["status"], 404);
    assert_eq!(text(&server).lines().count(), 1);
}

#[test]
fn the_combined_format() {
    let tree = tree();
    let server = Launch::site(tree.path(), "[log]\naccess = \"stdout\"\n", "").start();
    server
        .get_with("/small?x", &[("User-Agent", "test \"1\"")])
        .assert_status(200);
    let line = server.prints("/small?x");
    assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
    assert!(
        line.contains(
            "] \"GET /small?x HTTP/1.1\" 200 5000 \"-\" \"test \\\"1\\\"\" bytes=5000 dur="
        ),
        "{line}"
    );
    let keys: Vec<_> = line
        .split(' ')
        .filter_map(|word| word.split_once('='))
        .map(|(key, _)| key)
        .collect();
    assert!(
        keys.ends_with(&["bytes", "dur", "ttfb", "io_wait", "src", "end"]),
        "{line}"
    );
    assert!(line.ends_with(" end=complete"), "{line}");
}

#[test]
fn a_full_disk_does_not_stop_it() {
    let tree = tree();
    let tables = "[log]\naccess = \"/dev/full\"\n[admin]\nlisten = \"unix:{own}/admin\"\n";
    let server = Launch::site(tree.path(), tables, "").start();
    for _ in 0..50 {
        server.get("/small").assert_status(200);
    }
    wait_until("lost lines are counted", || {
        server
            .metrics(&server.own("admin"))
            .sum("levity_log_dropped_total{log=\"access\"}")
            >= 50.0
    });
    server.get("/small").assert_status(200);
}

/// Lines that find no room are dropped and counted; nobody waits.
#[test]
fn an_unread_pipe_does_not_stop_it() {
    let tree = tree();
    let tables = "[log]\naccess = \"stdout\"\n[admin]\nlisten = \"unix:{own}/admin\"\n";
    let server = Launch::site(tree.path(), tables, "")
        .workers(1)
        .unread()
        .start();
    let path = format!("/small?{}", "x".repeat(7_000));
    let mut client = server.client();
    wait_until("lines are dropped", || {
        (0..200).for_each(|_| client.get(&path).assert_status(200));
        server
            .metrics(&server.own("admin"))
            .sum("levity_log_dropped_total{log=\"access\"}")
            > 0.0
    });
    let metrics = server.metrics(&server.own("admin"));
    assert_eq!(metrics.above("levity_loop_stall_seconds", 0.005), 0.0);
}

#[test]
fn figures() {
    let tree = tree();
    let server = logging(&tree, "auto", "");
    let mut client = server.client();
    for (path, times) in [("/small", 3), ("/none", 2)] {
        (0..times).for_each(|_| drop(client.get(path)));
    }
    client
        .get_with("/medium", &[("Range", "bytes=0-9")])
        .assert_status(206);
    // A request is counted after its last byte has left.
    wait_until("all are counted", || {
        server
            .metrics(&server.own("admin"))
            .sum("levity_requests_total")
            == 6.0
    });
    let metrics = server.metrics(&server.own("admin"));
    for (series, value) in [
        ("levity_requests_total{code=\"200\"}", 3.0),
        ("levity_requests_total{code=\"404\"}", 2.0),
        ("levity_requests_total{code=\"206\"}", 1.0),
        ("levity_requests_total", 6.0),
        ("levity_connections{state=\"open\"}", 1.0),
        ("levity_connections_accepted_total", 1.0),
        ("levity_request_duration_seconds_count", 6.0),
        ("levity_time_to_first_byte_seconds_count", 6.0),
        ("levity_accept_pauses_total", 0.0),
        ("levity_log_dropped_total", 0.0),
    ] {
        assert_eq!(metrics.sum(series), value, "{series}");
    }
    assert!(metrics.sum("levity_sent_bytes_total") > 15_000.0);
    for series in [
        "levity_loop_stall_seconds_count",
        "levity_loop_stall_max_seconds",
        "levity_disk_reads_total",
    ] {
        assert!(metrics.has(series), "{series}");
    }
    assert_eq!(metrics.above("levity_loop_stall_seconds", 0.005), 0.0);
}

#[test]
fn a_connection_s_end_is_counted() {
    let tree = tree();
    let server = logging(&tree, "auto", "");
    server.get("/small").assert_status(200);
    wait_until("no connection is open", || {
        let metrics = server.metrics(&server.own("admin"));
        metrics.sum("levity_connections{state=\"open\"}") == 0.0
            && metrics.sum("levity_connection_ends_total{end=\"complete\"}") == 1.0
    });
}

#[test]
fn lines_are_appended() {
    let tree = tree();
    let launch = Launch::site(tree.path(), "[log]\naccess = \"{own}/log\"\n", "");
    let path = launch.own().join("log");
    let mut file = File::create(&path).expect("create");
    file.write_all(b"an old line\n").expect("write");
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(&path, open_to_all).expect("chmod");
    let server = launch.start();
    server.get("/small?new").assert_status(200);
    wait_until("a new line", || text(&server).contains("/small?new"));
    assert!(text(&server).starts_with("an old line\n"));
}
