//! The access log and the metrics of requests.

use std::fs::File;
use std::io::Write;

use serde_json::Value;

use crate::support::scripted::{Conn, Refusing, Scripted};
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
    site(tree, engine, limits, "")
}

/// The same with these keys of its site.
fn site(tree: &Tree, engine: &str, limits: &str, keys: &str) -> Server {
    let tables = format!(
        "[log]\naccess = \"{{own}}/log\"\nformat = \"json\"\n\
         [admin]\nlisten = \"unix:{{own}}/admin\"\n[limits]\n{limits}\n"
    );
    // With `-v` the server logs what its probe of the file system has found.
    Launch::site(tree.path(), &tables, keys)
        .engine(engine)
        .arguments(["-v"])
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

    fn the_source_of_the_bytes(engine) {
        let tree = tree();
        let server = logging(&tree, engine, "");
        // The probe at the start has read a few bytes of some file.
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

    #[cfg(feature = "compress")]
    fn a_compressed_body(engine) {
        let tree = Tree::new();
        let text = "some words\n".repeat(20_000);
        tree.file("page.txt", &text);
        let server = site(&tree, engine, "", "compress = true");
        let answer = server.get_with("/page.txt", &[("Accept-Encoding", "gzip")]);
        assert_eq!(answer.field("content-encoding"), "gzip");
        let compressed = line(&server, "/page.txt");
        let filter = &compressed["filter"];
        assert_eq!((&filter["in"], &filter["out"]), (&text.len().into(), &answer.body.len().into()));
        assert_eq!(filter["out"], compressed["bytes"]);
        let (queue, time) = (seconds(filter, "queue"), seconds(filter, "time"));
        assert!(time > 0.0 && queue >= 0.0, "{compressed}");
        assert!(queue + time <= seconds(&compressed, "dur") + 2e-6, "{compressed}");
        server.get("/page.txt?plain").assert_status(200);
        assert!(line(&server, "/page.txt?plain")["filter"].is_null());
        let metrics = server.metrics(&server.own("admin"));
        for (series, value) in [
            ("levity_filtered_bodies_total", 1.0),
            ("levity_filter_input_bytes_total", text.len() as f64),
            ("levity_filter_output_bytes_total", answer.body.len() as f64),
            ("levity_compressions_total", 1.0),
            ("levity_compressions_total{coding=\"gzip\",outcome=\"usual\"}", 1.0),
            ("levity_compression_memory_bytes", 0.0),
            ("levity_compute_queue_depth", 0.0),
            ("levity_compute_refused_total", 0.0),
            ("levity_compute_run_seconds_count{class=\"idle\"}", 0.0),
        ] {
            assert_eq!(metrics.sum(series), value, "{series}");
        }
        // A job counts when its thread is done with it, which may be after the response.
        let mut metrics = metrics;
        wait_until("all jobs have ended", || {
            metrics = server.metrics(&server.own("admin"));
            let [begun, ended] = ["queue", "run"].map(|what| metrics.sum(&format!("levity_compute_{what}_seconds_count")));
            // One for each 64 KiB at least.
            begun >= 4.0 && begun <= ended
        });
        let seconds = metrics.sum("levity_compute_run_seconds_sum");
        // It includes handing over the results; the log has microseconds.
        assert!(seconds >= time - 1e-6, "{seconds} {time}");
    }

    fn a_client_that_disconnects(engine) {
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
fn a_full_disk_does_not_stop_the_server() {
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

/// Lines without room are dropped and counted. No request waits.
#[test]
fn an_unread_pipe_does_not_stop_the_server() {
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

/// A server that proxies everything to the upstream `app` with these `keys`.
fn in_front_of(keys: &str, log: &str) -> Server {
    Launch::run(&format!(
        "[log]\naccess = \"{{own}}/log\"\n{log}\n[admin]\nlisten = \"unix:{{own}}/admin\"\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"app\"\n{keys}\n[[site]]\nproxy = \"app\"\nserver_timing = true\n"
    ))
    .workers(1)
    .start()
}

fn answer(conn: &mut Conn) {
    while conn.read_request().is_some() {
        conn.answer("200 OK", "hello");
    }
}

#[test]
fn fields_of_a_proxied_request() {
    let backend = Scripted::tcp(answer);
    let to = backend.address();
    let log = "format = \"json\"\ntiming = \"request\"";
    let server = in_front_of(&format!("to = [\"{to}\"]"), log);
    let told = server.get("/first");
    let metrics = told.field("server-timing").to_owned();
    assert!(metrics.contains(", upstream;dur="), "{metrics}");
    server.get("/second").assert_status(200);
    let (first, second) = (line(&server, "/first"), line(&server, "/second"));
    for (line, reused) in [(&first, false), (&second, true)] {
        assert_eq!(
            (&line["src"], &line["bytes"]),
            (&"upstream".into(), &5.into())
        );
        let upstream = &line["upstream"];
        assert_eq!(
            (&upstream["name"], &upstream["backend"]),
            (&"app".into(), &to.into())
        );
        assert_eq!(
            (&upstream["attempts"], &upstream["reused"]),
            (&1.into(), &reused.into())
        );
        assert_eq!(upstream["connect"].is_null(), reused, "{line}");
        assert!(seconds(&line["timing_us"], "upstream") > 0.0, "{line}");
        assert!(line["timing_us"]["resolve"].is_null(), "{line}");
        let (ttfb, all) = (seconds(upstream, "ttfb"), seconds(line, "dur"));
        assert!(
            ttfb > 0.0 && ttfb + seconds(upstream, "queue") <= all,
            "{line}"
        );
        assert!(
            upstream["failed"].is_null() && upstream["error"].is_null(),
            "{line}"
        );
    }
}

#[test]
fn fields_of_a_failure_at_an_upstream() {
    let (refusing, backend) = (Refusing::new(), Scripted::tcp(answer));
    let to = format!(
        "to = [\"{}\", \"{} backup\"]\nfail_after = 1",
        refusing.address(),
        backend.address()
    );
    let server = in_front_of(&to, "format = \"json\"");
    server.get("/again").assert_status(200);
    let line_of = line(&server, "/again");
    let upstream = &line_of["upstream"];
    assert_eq!(
        (&upstream["attempts"], &upstream["backend"]),
        (&2.into(), &backend.address().into())
    );
    assert!(upstream["error"].is_null(), "{line_of}");
    drop(server);

    let to = format!("to = [\"{}\"]", refusing.address());
    let server = in_front_of(&to, "format = \"json\"");
    let refused = server.get("/refused");
    refused.assert_status(502);
    assert_eq!(
        refused.field("proxy-status"),
        "levity; error=connection_refused"
    );
    let line_of = line(&server, "/refused");
    let upstream = &line_of["upstream"];
    assert_eq!(
        (&upstream["failed"], &upstream["error"]),
        (&"backend".into(), &"connection_refused".into())
    );
    assert_eq!(
        (&line_of["src"], &line_of["end"]),
        (&"-".into(), &"complete".into())
    );
    assert!(
        upstream["ttfb"].is_null() && upstream["connect"].is_null(),
        "{line_of}"
    );
}

/// The client gets the whole error response.
#[test]
fn an_error_in_place_of_a_response_is_complete() {
    // Its body ends early.
    let backend = Scripted::tcp(|conn| {
        conn.read_to_end();
    });
    let to = backend.address();
    let keys = format!("to = [\"{to}\"]\n[limits]\nbody_bytes = \"10B\"\nbody_timeout = \"100ms\"");
    let server = in_front_of(&keys, "format = \"json\"");
    for (target, body, status) in [("/large", "b\r\n01234567890\r\n", 413), ("/slow", "", 408)] {
        let mut client = server.client();
        client.send(format!(
            "POST {target} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
        ));
        client.receive().assert_status(status);
        let line = line(&server, target);
        assert_eq!(
            (&line["status"], &line["end"]),
            (&status.into(), &"complete".into())
        );
        let upstream = &line["upstream"];
        assert_eq!(
            (&upstream["failed"], &upstream["error"]),
            (&"client".into(), &"http_request_error".into())
        );
    }
}

#[test]
fn a_truncated_response_is_a_failure_of_the_backend() {
    let backend = Scripted::tcp(|conn| {
        if conn.read_request().is_some() {
            conn.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        }
    });
    let server = in_front_of(
        &format!("to = [\"{}\"]", backend.address()),
        "format = \"json\"",
    );
    let mut client = server.client();
    client.send("GET /half HTTP/1.1\r\nHost: x\r\n\r\n");
    client.read_to_end();
    let line = line(&server, "/half");
    let upstream = &line["upstream"];
    assert_eq!(
        (&line["end"], &upstream["failed"]),
        (&"error".into(), &"backend".into())
    );
    assert_eq!(upstream["error"], "http_response_incomplete");
    assert!(upstream["ttfb"].is_number(), "{line}");
    let metrics = server.metrics(&server.own("admin"));
    assert_eq!(metrics.sum("levity_upstream_broken_answers_total"), 1.0);
}

#[test]
fn an_upstream_in_the_combined_format() {
    let backend = Scripted::tcp(answer);
    let to = backend.address();
    let server = in_front_of(&format!("to = [\"{to}\"]"), "");
    server.get("/short").assert_status(200);
    wait_until("a line", || text(&server).contains("/short"));
    let line = text(&server);
    let start = format!(" src=upstream end=complete up=app/{to} up_ttfb=0.");
    let (_, end) = line.split_once(&start).expect("the upstream");
    assert!(end.ends_with(" tries=1\n"), "{line}");
}

#[test]
fn a_delegated_file_has_a_source_of_its_own() {
    let tree = tree();
    let path = tree.at("small").display().to_string();
    let backend = Scripted::tcp(move |conn| {
        while conn.read_request().is_some() {
            conn.send(format!(
                "HTTP/1.1 200 OK\r\nX-Sendfile: {path}\r\nContent-Length: 0\r\n\r\n"
            ));
        }
    });
    let keys = format!(
        "to = [\"{}\"]\nsendfile_roots = [\"{}\"]",
        backend.address(),
        tree.path().display()
    );
    let server = in_front_of(&keys, "format = \"json\"");
    server.get("/named").assert_status(200);
    let line = line(&server, "/named");
    assert_eq!(
        (&line["bytes"], &line["upstream"]["name"]),
        (&5_000.into(), &"app".into())
    );
    assert!(
        ["disk", "memory", "cached"]
            .iter()
            .any(|source| line["src"] == *source),
        "{line}"
    );
}

#[test]
fn figures_of_an_upstream() {
    let backend = Scripted::tcp(answer);
    let to = backend.address();
    let server = in_front_of(&format!("to = [\"{to}\"]"), "");
    let admin = server.own("admin");
    (0..3).for_each(|_| server.get("/").assert_status(200));
    let of = format!("{{upstream=\"app\",backend=\"{to}\"");
    let answered = format!("levity_upstream_requests_total{of},outcome=\"answered\"}}");
    let idle = format!("levity_upstream_connections{of},state=\"idle\"}}");
    let metrics = server.metrics(&admin);
    for (series, value) in [
        (answered.as_str(), 3.0),
        (&idle, 1.0),
        (
            &format!("levity_upstream_connections{of},state=\"in_use\"}}"),
            0.0,
        ),
        ("levity_upstream_connections_made_total", 1.0),
        ("levity_upstream_connections_reused_total", 2.0),
        ("levity_upstream_retries_total", 0.0),
        ("levity_upstream_queue", 0.0),
        ("levity_upstream_time_to_first_byte_seconds_count", 3.0),
        ("levity_upstream_backend_up", 2.0),
    ] {
        assert_eq!(metrics.sum(series), value, "{series}");
    }
    let bytes = metrics.sum("levity_upstream_received_bytes_total");
    assert_eq!(
        bytes,
        3.0 * "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".len() as f64
    );
    assert!(metrics.sum("levity_upstream_sent_bytes_total") > 100.0);

    // Changed settings of the same upstream: counters are kept, and the old connection is closed.
    let config = std::fs::read_to_string(server.config()).expect("read");
    let config = config.replace("name = \"app\"", "name = \"app\"\nqueue = 7");
    std::fs::write(server.config(), config).expect("write");
    server.signal(rustix::process::Signal::HUP);
    let changed = server.says("(changed)");
    assert_eq!(
        changed,
        format!("levity: upstream app: http, round-robin: {to} (changed)")
    );
    server.says("configuration reloaded");
    wait_until("the connection of before is gone", || {
        server.metrics(&admin).sum(&idle) == 0.0
    });
    server.get("/").assert_status(200);
    assert_eq!(server.metrics(&admin).sum(&answered), 4.0);
}

#[test]
fn a_backend_that_is_down_does_not_flood_standard_error() {
    let refusing = Refusing::new();
    let keys = format!("to = [\"{}\"]\nretry.for = \"0s\"", refusing.address());
    let server = in_front_of(&keys, "");
    let mut client = server.client();
    for _ in 0..500 {
        client.get("/").assert_status(502);
    }
    let more = server.says("; and ");
    assert!(more.contains("Connection refused"), "{more}");
    let said = server.stderr();
    let lines = said
        .lines()
        .filter(|line| line.contains("Connection refused"));
    assert!(lines.count() < 50, "{said}");
}

/// The backend is busy with one request. Another times out in the queue, or finds the queue full.
#[test]
fn a_request_without_a_slot_is_a_failure_of_the_server() {
    for (keys, reason) in [
        ("queue_timeout = \"100ms\"", "timeout"),
        ("queue = 0", "full"),
    ] {
        let backend = Scripted::tcp(|conn| {
            while conn.read_request().is_some() {
                conn.stall();
                conn.answer("200 OK", "");
            }
        });
        let keys = format!("to = [\"{}\"]\nconnections = 1\n{keys}", backend.address());
        let server = in_front_of(&keys, "format = \"json\"");
        let mut first = server.client();
        first.send("GET /first HTTP/1.1\r\nHost: x\r\n\r\n");
        backend.wait_for_requests(1);
        server.get("/second").assert_status(503);
        let second = line(&server, "/second");
        let upstream = &second["upstream"];
        assert_eq!(
            (&upstream["failed"], &upstream["error"]),
            (&"own".into(), &"connection_limit_reached".into())
        );
        assert_eq!(
            (&upstream["attempts"], &upstream["backend"]),
            (&0.into(), &Value::Null)
        );
        let refused = |reason| {
            let series = "levity_upstream_queue_refused_total{upstream=\"app\",reason=";
            let metrics = server.metrics(&server.own("admin"));
            metrics.sum(&format!("{series}\"{reason}\"}}"))
        };
        let other = if reason == "full" { "timeout" } else { "full" };
        assert_eq!((refused(reason), refused(other)), (1.0, 0.0), "{reason}");
        backend.release();
        first.receive().assert_status(200);
    }
}

/// The default level of zstd takes 1216 KiB, the lowest 320 KiB.
#[cfg(feature = "compress")]
#[test]
fn compression_that_lacks_memory_is_counted() {
    let tree = Tree::new();
    tree.file("page.txt", "some words\n".repeat(2_000));
    let memory = "compression_memory = \"0B\"";
    let server = site(&tree, "threads", memory, "compress = true");
    let metric = |series: &str| server.metrics(&server.own("admin")).sum(series);
    let mut before = "0B";
    for (limit, bytes, outcome) in [
        ("0B", 0, "memory_full"),
        ("320KiB", 320 << 10, "fast"),
        ("1215KiB", 1215 << 10, "fast"),
        ("1216KiB", 1216 << 10, "usual"),
    ] {
        server.reload(&[before], &[limit]);
        before = limit;
        wait_until("the limit of the new configuration", || {
            metric("levity_compression_memory_limit_bytes") == f64::from(bytes)
        });
        let series = format!("levity_compressions_total{{coding=\"zstd\",outcome=\"{outcome}\"}}");
        let earlier = metric(&series);
        let answer = server.get_with("/page.txt", &[("Accept-Encoding", "zstd")]);
        answer.assert_status(200);
        let coding = (outcome != "memory_full").then_some("zstd");
        assert_eq!(answer.header("content-encoding"), coding, "{limit}");
        assert_eq!(metric(&series), earlier + 1.0, "{limit}");
        wait_until("the memory is free again", || {
            metric("levity_compression_memory_bytes") == 0.0
        });
    }
}
