//! Limits of requests, connections and bytes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::scripted::Scripted;
use crate::support::{
    Answer, Client, Launch, Server, Tree, assert_same, content, head, multipart, pass, settle,
    wait_until, wait_within,
};

const LISTEN: &str =
    "[server]\ntrusted_proxies = [\"127.0.0.1\"]\n[[listen]]\naddress = \"127.0.0.1:0\"\n";

const ADMIN: &str = "[admin]\nlisten = \"unix:{own}/admin\"\n";

/// A server with one site, which answers at once.
fn started(keys: &str) -> Server {
    launch(keys).start()
}

fn launch(keys: &str) -> Launch {
    let site = format!("[[site]]\nrespond = {{ body = \"in\" }}\n{keys}\n");
    Launch::run(&format!("{LISTEN}{ADMIN}{site}"))
}

fn of(client: &str) -> [(&str, &str); 1] {
    [("X-Forwarded-For", client)]
}

fn ask(server: &Server, path: &str, client: &str) -> u16 {
    server.get_with(path, &of(client)).status
}

/// Three keys are asked for by twelve connections of two workers, far faster than their rate allows.
#[test]
fn all_workers_together_let_through_what_the_rate_allows() {
    const CLIENTS: [&str; 3] = ["192.0.2.1", "192.0.2.2", "2001:db8::1"];
    const TIME: Duration = Duration::from_secs(4);
    let server = launch("limit = [{ requests = \"100/s\" }]")
        .workers(2)
        .start();
    let passed: [AtomicUsize; 3] = Default::default();
    let start = Instant::now();
    thread::scope(|scope| {
        for number in 0..12 {
            let (mut client, passed) = (server.client(), &passed);
            scope.spawn(move || {
                let key = number % CLIENTS.len();
                while start.elapsed() < TIME {
                    let answer = client.get_with("/", &of(CLIENTS[key]));
                    match answer.status {
                        200 => passed[key].fetch_add(1, Ordering::Relaxed),
                        status => {
                            assert_eq!(status, 429);
                            0
                        }
                    };
                }
            });
        }
    });
    // The rate begins with the first request and ends with the last, both within some milliseconds of these.
    let expected = 100.0 + 100.0 * start.elapsed().as_secs_f64();
    for passed in &passed {
        let passed = passed.load(Ordering::Relaxed) as f64;
        let error = (passed - expected).abs() / expected;
        assert!(error <= 0.02, "{passed} of {expected}");
    }
    let metrics = server.metrics(&server.own("admin"));
    let hits = "levity_limited_total{limit=\"100/s per client\",action=\"refused\"}";
    assert!(metrics.sum(hits) > 100.0);
    assert_eq!(
        metrics.sum("levity_requests_total{code=\"429\"}"),
        metrics.sum(hits)
    );
    assert!(metrics.has("levity_limit_evictions_total"));
    assert_eq!(metrics.sum("levity_limit_evictions_total"), 0.0);
}

#[test]
fn a_client_that_waits_as_told_gets_through() {
    let server = started("limit = [{ requests = \"1/2s\" }]");
    let mut client = server.client();
    client.get("/").assert_status(200);
    let refused = client.get_with("/", &[("Accept", "application/problem+json")]);
    refused.assert_status(429);
    assert_eq!(refused.field("content-type"), "application/problem+json");
    assert_eq!(refused.field("retry-after"), "2");
    let problem: Value = serde_json::from_slice(&refused.body).expect("JSON");
    assert_eq!(problem["status"], 429);
    pass(Duration::from_secs(2));
    client.get("/").assert_status(200);
    // Refusals are not counted.
    for _ in 0..5 {
        client.get("/").assert_status(429);
    }
    pass(Duration::from_secs(2));
    client.get("/").assert_status(200);
}

#[test]
fn after_comes_before_the_rate() {
    let server = started("limit = [{ requests = \"100/1h\", after = 3 }]");
    let mut client = server.client();
    let statuses = [(); 5].map(|()| client.get("/").status);
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    assert_eq!(client.get("/").field("retry-after"), "36");
}

/// The client is the one that trusted proxies name. Without such a proxy headers count for nothing.
#[test]
fn prefixes_of_clients() {
    let keys = "limit = [{ requests = \"2/1h\", ipv6_prefix = 56, ipv4_prefix = 24 }]";
    let server = started(keys);
    for (client, status) in [
        ("192.0.2.1", 200),
        ("::ffff:192.0.2.2", 200),
        ("192.0.2.3", 429),
        ("198.51.100.1", 200),
        ("2001:db8::1", 200),
        ("2001:db8:0:ff::1", 200),
        ("2001:db8:0:1::1", 429),
        ("2001:db8:0:100::", 200),
        // What the client says of itself is not believed.
        ("203.0.113.9, 192.0.2.200", 429),
    ] {
        assert_eq!(ask(&server, "/", client), status, "{client}");
    }
    let line = server.says("limit `2/1h per client` refused 192.0.2.0/24: 1 request since");
    assert!(!line.contains("2001"), "{line}");
    let listen = LISTEN.replace("\"127.0.0.1\"", "");
    let site = "[[site]]\nrespond = {}\nlimit = [{ requests = \"2/1h\" }]\n";
    let server = Launch::run(&format!("{listen}{site}")).start();
    let statuses = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|from| ask(&server, "/", from));
    assert_eq!(statuses, [200, 200, 429]);
}

/// They have no address, and count as one.
#[test]
fn clients_of_a_unix_socket() {
    let listen = "[[listen]]\naddress = \"unix:{own}/socket\"\n";
    let server = launch(&format!("limit = [{{ requests = \"2/1h\" }}]\n{listen}")).start();
    let ask = || {
        Client::unix(&server.own("socket"))
            .get_with("/", &of("192.0.2.1"))
            .status
    };
    assert_eq!([ask(), ask(), ask()], [200, 200, 429]);
    assert_eq!(server.get("/").status, 200);
}

#[test]
fn limits_per_file_and_per_route() {
    let server = started(
        "[[site.limit]]\nrequests = \"2/1h\"\nper = \"file\"\n\
         [[site.route]]\npath = \"/r/*\"\n[[site.route.limit]]\nrequests = \"3/1h\"\nper = \"route\"\n\
         [[site.route]]\npath = \"/free\"\nlimit = false\n",
    );
    for (path, status) in [
        ("/a", 200),
        ("/%61?x=1", 200),
        ("/./a", 429),
        ("/b", 200),
        ("/r/a", 200),
        ("/r/a", 200),
        // The route would have room, and the file has none; this one counts for neither.
        ("/r/a", 429),
        ("/r/b", 200),
        ("/r/c", 429),
        ("/c", 200),
    ] {
        let (one, other) = ("192.0.2.1", "192.0.2.2");
        let client = if path.len() % 2 == 0 { one } else { other };
        assert_eq!(ask(&server, path, client), status, "{path}");
    }
    for _ in 0..10 {
        assert_eq!(ask(&server, "/free", "192.0.2.1"), 200);
    }
}

/// Requests for other sites and routes have keys of their own, though their limits look the same.
#[test]
fn equal_limits_do_not_share() {
    let limit = "limit = [{ requests = \"1/1h\" }]";
    let server = Launch::run(&format!(
        "{LISTEN}[[site]]\nrespond = {{}}\n{limit}\n\
         [[site.route]]\npath = \"/a\"\nlimit = [{{ requests = \"1/1h\", name = \"a\" }}]\n\
         [[site]]\nhosts = [\"b.example\"]\nrespond = {{}}\n{limit}\n"
    ))
    .start();
    let mut client = server.client();
    client.get_for("a.example", "/").assert_status(200);
    client.get_for("a.example", "/").assert_status(429);
    client.get_for("b.example", "/").assert_status(200);
    client.get_for("b.example", "/").assert_status(429);
    // That of the site applies to the route too.
    client.get_for("a.example", "/a").assert_status(429);
}

/// A request that is routed again counts once under a limit of its site, and under those of both routes.
#[test]
fn a_rewritten_request_counts_once() {
    let server = started(
        "limit = [{ requests = \"4/1h\", per = \"route\" }]\n\
         [[site.route]]\npath = \"/one\"\nreroute = \"/two\"\nlimit = [{ requests = \"3/1h\" }]\n\
         [[site.route]]\npath = \"/two\"\nlimit = [{ requests = \"2/1h\" }]\n",
    );
    let mut client = server.client();
    let mut statuses = |path: &str| [(); 3].map(|()| client.get(path).status);
    assert_eq!(statuses("/one"), [200, 200, 429]);
    assert_eq!(statuses("/"), [200, 200, 429]);
}

/// Requests are counted before passwords are verified, and after clients were refused by their address.
#[test]
fn limits_come_between_addresses_and_passwords() {
    let tree = Tree::new();
    let users = tree.file(
        "users",
        "ann:$2y$04$MoKKoQ5swkLbx1YRjQwMNeNLTLCQd61MP9T68vDeM5qpKwzjfEKsa\n",
    );
    let server = started(&format!(
        "limit = [{{ requests = \"3/1h\", per = \"route\" }}]\ndeny = [\"192.0.2.66\"]\n\
         basic_auth = {{ users = \"{}\" }}\n",
        users.display()
    ));
    for _ in 0..5 {
        assert_eq!(ask(&server, "/", "192.0.2.66"), 403);
    }
    let authorization = |password: &str| {
        let credentials = BASE64_STANDARD.encode(format!("ann:{password}"));
        format!("Basic {credentials}")
    };
    let statuses = ["a", "b", "secret", "secret"].map(|password| {
        let header = authorization(password);
        server.get_with("/", &[("Authorization", &header)]).status
    });
    assert_eq!(statuses, [401, 401, 200, 429]);
}

#[test]
fn concurrent_requests_of_a_client() {
    let app = Scripted::tcp(|conn| {
        while conn.read_request().is_some() {
            conn.stall();
            conn.answer("200 OK", "in");
        }
    });
    let server = Launch::run(&format!(
        "{LISTEN}{ADMIN}[[site]]\nproxy = \"app\"\nlimit = [{{ connections = 2 }}]\n\
         [[upstream]]\nname = \"app\"\nto = [\"{}\"]\n",
        app.address()
    ))
    .workers(2)
    .start();
    let begin = |client: &str| {
        let mut connection = server.client();
        connection.send(format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {client}\r\n\r\n"
        ));
        connection
    };
    let mut first = begin("192.0.2.1");
    let second = begin("192.0.2.1");
    app.wait_for_requests(2);
    let refused = server.get_with("/", &of("192.0.2.1"));
    refused.assert_status(429);
    assert_eq!(refused.field("retry-after"), "1");
    let mut other = begin("192.0.2.2");
    app.wait_for_requests(3);
    // A client that leaves makes room.
    second.reset_when_closed();
    drop(second);
    let mut third = None;
    wait_until("the place of the client that left is free", || {
        let mut connection = begin("192.0.2.1");
        connection.read_timeout(Duration::from_millis(300));
        match connection.try_receive() {
            Ok(answer) => answer.assert_status(429),
            Err(_) => third = Some(connection),
        }
        third.is_some()
    });
    app.release();
    first.receive().assert_status(200);
    other.receive().assert_status(200);
    // The connections stay open; requests are counted.
    for _ in 0..5 {
        first.get_with("/", &of("192.0.2.1")).assert_status(200);
    }
}

/// The time that a response may take, by a rate of 512 KiB per second of which a quarter may leave at once.
const BYTES: usize = 1 << 20;
const RATE: &str = "limit = [{ bytes = \"512KiB/s\", per = \"file\" }]";
const SECONDS: f64 = 1.75;

#[track_caller]
fn assert_slowed(what: &str, took: Duration) {
    let took = took.as_secs_f64();
    // Deadlines are met up to 0.1 s late. A busy machine makes it later, but never earlier.
    assert!(
        (SECONDS * 0.98..SECONDS + 1.0).contains(&took),
        "{what}: {took}"
    );
}

/// Asks for all of them at the same time; each has a key of its own.
fn assert_each_is_slowed(
    server: &Server,
    requests: &[(&str, &[(&str, &str)])],
    check: impl Fn(&str, Answer) + Sync,
) {
    thread::scope(|scope| {
        for (path, headers) in requests {
            let check = &check;
            scope.spawn(move || {
                let start = Instant::now();
                let answer = server.get_with(path, headers);
                let took = start.elapsed();
                check(path, answer);
                assert_slowed(path, took);
            });
        }
    });
}

#[test]
fn bytes_of_files() {
    let tree = Tree::new();
    for name in ["cold", "warm", "ranges", "archive/a"] {
        tree.file(name, content(1, BYTES));
    }
    tree.file("large", content(2, 20 * BYTES));
    settle();
    let keys = format!("{RATE}\nlisting = true\nlisting_archive = [\"tar\"]\n");
    let server = Launch::site(tree.path(), ADMIN, &keys).workers(2).start();
    tree.evict("cold");
    let halves = format!("bytes=0-{}, {}-", BYTES / 2 - 1, BYTES - BYTES / 2 + 1000);
    let end = format!("bytes={}-", 19 * BYTES);
    let requests: &[(&str, &[(&str, &str)])] = &[
        ("/cold", &[]),
        ("/warm", &[]),
        ("/large", &[("Range", &end)]),
        ("/ranges", &[("Range", &halves)]),
        ("/archive/?archive=tar", &[]),
    ];
    assert_each_is_slowed(&server, requests, |path, answer| match path {
        "/cold" | "/warm" => assert_same(&answer.body, &content(1, BYTES)),
        "/large" => assert_same(&answer.body, &content(2, 20 * BYTES)[19 * BYTES..]),
        "/ranges" => assert_eq!(multipart::parts(&answer).len(), 2),
        _ => assert!(answer.body.len() >= BYTES, "{answer:?}"),
    });
    let metrics = server.metrics(&server.own("admin"));
    let slowed = "levity_limited_total{limit=\"512KiB/s per file\",action=\"slowed\"}";
    assert_eq!(metrics.sum(slowed), 5.0);
    // A header alone has no body.
    let start = Instant::now();
    server.client().head("/large").assert_status(200);
    assert!(start.elapsed().as_secs_f64() < SECONDS);
}

/// From the memory of the server: the file is asked for until it is there.
#[test]
fn bytes_of_files_in_memory() {
    let tree = Tree::new();
    let body = content(3, 40 << 10);
    tree.file("small", &body);
    settle();
    let keys = "limit = [{ bytes = \"64KiB/s\", after = \"40KiB\" }]";
    let server = Launch::site(tree.path(), ADMIN, keys).start();
    let mut client = server.client();
    let start = Instant::now();
    for _ in 0..4 {
        assert_same(&client.get("/small").body, &body);
    }
    let expected = 3.0 * 40.0 / 64.0;
    let took = start.elapsed().as_secs_f64();
    assert!((expected * 0.98..expected + 1.0).contains(&took), "{took}");
    let metrics = server.metrics(&server.own("admin"));
    assert!(metrics.sum("levity_responses_by_source_total{source=\"memory\"}") >= 2.0);
}

#[cfg(feature = "compress")]
#[test]
fn bytes_of_applications() {
    let app = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            let body = content(4, BYTES);
            let sent = match request.target.as_str() {
                "/chunked" | "/text" => {
                    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n";
                    let mut response = head.as_bytes().to_vec();
                    for chunk in body.chunks(100_000) {
                        response.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
                        response.extend_from_slice(chunk);
                        response.extend_from_slice(b"\r\n");
                    }
                    response.extend_from_slice(b"0\r\n\r\n");
                    conn.send(response)
                }
                _ => conn.answer("200 OK", &body),
            };
            if !sent {
                return;
            }
        }
    });
    // What is compressed does not get shorter by it.
    let server = Launch::run(&format!(
        "{LISTEN}[[site]]\nproxy = \"app\"\n{RATE}\n[[site.route]]\npath = \"/text\"\ncompress = true\n\
         [[upstream]]\nname = \"app\"\nto = [\"{}\"]\n",
        app.address()
    ))
    .start();
    let requests: &[(&str, &[(&str, &str)])] = &[
        ("/plain", &[]),
        ("/chunked", &[]),
        ("/text", &[("Accept-Encoding", "gzip")]),
    ];
    assert_each_is_slowed(&server, requests, |path, answer| match path {
        "/text" => assert_eq!(answer.header("content-encoding"), Some("gzip")),
        _ => assert_same(&answer.body, &content(4, BYTES)),
    });
}

/// Clients under one key share its rate, whatever worker serves them.
#[test]
fn many_responses_share_a_rate() {
    const CLIENTS: usize = 20;
    let tree = Tree::new();
    let body = content(5, 400 << 10);
    tree.file("a", &body);
    settle();
    let keys = "limit = [{ bytes = \"2MiB/s\", per = \"route\" }]";
    let server = Launch::site(tree.path(), "", keys).workers(2).start();
    // All have asked before the first one can be done.
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
    let start = Instant::now();
    for client in &mut clients {
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    let ends = thread::scope(|scope| {
        let body = &body;
        let receive = |mut client: Client| {
            move || {
                assert_same(&client.receive().body, body);
                start.elapsed().as_secs_f64()
            }
        };
        let clients = clients.into_iter();
        let threads: Vec<_> = clients.map(|client| scope.spawn(receive(client))).collect();
        let ends = threads
            .into_iter()
            .map(|thread| thread.join().expect("an end"));
        ends.collect::<Vec<f64>>()
    });
    let bytes = (CLIENTS * body.len()) as f64;
    let rate = f64::from(2 << 20);
    let expected = (bytes - rate / 4.0) / rate;
    let last = ends.iter().copied().fold(0.0, f64::max);
    assert!(
        (expected * 0.98..expected * 1.1).contains(&last),
        "{last} instead of {expected}"
    );
    // They take turns: but for the first of each event loop, which get what may leave at once, nobody is done long before the others.
    let early = ends.iter().filter(|end| **end < expected / 2.0).count();
    assert!(early <= 2, "{ends:?}");
}

/// A throttled download holds no chunk in memory, of which there is too little for all of them.
#[test]
fn a_slow_download_holds_nothing() {
    let tree = Tree::new();
    tree.file("large", content(6, 64 << 20));
    settle();
    let tables = format!("{ADMIN}[disk]\nbuffer_bytes = \"1MiB\"\nengine = \"threads\"\n");
    let keys = "limit = [{ bytes = \"16KiB/s\", per = \"route\" }]\n\
        [[site.route]]\npath = \"/large\"\nwhen = { header = { X-Fast = \"1\" } }\nlimit = false\n";
    let server = Launch::site(tree.path(), &tables, keys).start();
    tree.evict("large");
    let mut slow: Vec<_> = (0..20).map(|_| server.client()).collect();
    for client in &mut slow {
        client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for client in &mut slow {
        let head = client.receive_head().expect("a head");
        head.assert_status(200);
    }
    let fast = server.get_with("/large", &[("X-Fast", "1")]);
    assert_same(&fast.body, &content(6, 64 << 20));
}

#[test]
fn a_dry_run_only_reports() {
    let server = launch(
        "limit = [{ requests = \"2/1h\", report_only = true, name = \"trial\" },\n\
         { connections = 100 }]",
    )
    .start();
    let mut client = server.client();
    for _ in 0..6 {
        client.get_with("/", &of("2001:db8::77")).assert_status(200);
    }
    server.says("limit `trial` would have refused 2001:db8::/64: 1 request since");
    let metrics = server.metrics(&server.own("admin"));
    let reported = "levity_limited_total{limit=\"trial\",action=\"reported\"}";
    assert_eq!(metrics.sum(reported), 4.0);
    assert_eq!(metrics.sum("levity_limited_total"), 4.0);
    assert_eq!(server.stderr().matches("limit `trial`").count(), 1);
}

/// Also if no request follows.
#[test]
fn the_rest_is_logged_at_the_end() {
    let server = with_a_rest();
    server.signal(Signal::TERM);
    server.says("limit `few` refused more: 2 requests since the last such line");
}

#[test]
#[ignore = "slow: the line comes after 20 s"]
fn the_rest_is_logged_while_it_runs() {
    let server = with_a_rest();
    let line = "limit `few` refused more: 2 requests since the last such line";
    let says = || server.stderr().contains(line);
    wait_within(Duration::from_secs(30), "the rest is logged", says);
}

/// A server with two requests that a limit has refused, and that are not in its log.
fn with_a_rest() -> Server {
    let server = started("limit = [{ requests = \"1/1h\", name = \"few\" }]");
    let statuses = [(); 4].map(|()| ask(&server, "/", "192.0.2.1"));
    assert_eq!(statuses, [200, 429, 429, 429]);
    server.says("limit `few` refused 192.0.2.1: 1 request since the last such line, of which");
    server
}

/// `/status` has what each limit has done; the custom access log has the names of limits and the size of bodies.
#[test]
fn status_and_custom_log() {
    let log = "[log]\naccess = \"{own}/log\"\n\
        format = \"{status} {body_bytes} {limited} {would_limit}\"\n";
    let site = "[[site]]\nrespond = {}\nlimit = [{ requests = \"2/1h\", name = \"real\" },\n\
        { requests = \"1/1h\", name = \"trial\", report_only = true }]\n";
    let server = Launch::run(&format!("{log}{LISTEN}{ADMIN}{site}")).start();
    let mut client = server.client();
    let length = [("Content-Length", "5")];
    let statuses = [(); 3].map(|()| {
        client.send(head("POST", "/", &length));
        client.send("12345");
        client.receive().status
    });
    assert_eq!(statuses, [200, 200, 429]);
    let log = || std::fs::read_to_string(server.own("log")).unwrap_or_default();
    wait_until("all requests are logged", || log().lines().count() == 3);
    assert_eq!(log(), "200 5 - -\n200 5 - trial\n429 5 real -\n");

    let status = Client::unix(&server.own("admin")).get("/status.json");
    let status: Value = serde_json::from_slice(&status.body).expect("JSON");
    let limit = |name, allowed, limited, would_limit| json!({ "limit": name, "allowed": allowed, "limited": limited, "would_limit": would_limit });
    assert_eq!(
        status["limits"],
        json!([limit("real", 2, 1, 0), limit("trial", 1, 0, 2)])
    );
    let table = json!({ "keys": 2, "keys_max": 4_194_304, "evictions": 0 });
    assert_eq!(status["limit_table"], table);
    let metrics = server.metrics(&server.own("admin"));
    assert_eq!(metrics.sum("levity_limit_keys"), 2.0);
}

#[test]
fn what_a_later_limit_refuses_was_not_allowed_by_the_first() {
    let site = "[[site]]\nlimit = [{ requests = \"9/1h\", name = \"first\" }]\nrespond = {}\n\
        [[site.route]]\npath = \"/\"\nreroute = \"/inner\"\n\
        [[site.route]]\npath = \"/inner\"\nlimit = [{ requests = \"1/1h\", name = \"later\" }]\nrespond = {}\n";
    let server = Launch::run(&format!("{LISTEN}{ADMIN}{site}")).start();
    let mut client = server.client();
    let statuses = [(); 3].map(|()| client.get("/").status);
    assert_eq!(statuses, [200, 429, 429]);
    let status = Client::unix(&server.own("admin")).get("/status.json");
    let status: Value = serde_json::from_slice(&status.body).expect("JSON");
    let counted = |index: usize| {
        let limit = &status["limits"][index];
        (
            limit["limit"].clone(),
            limit["allowed"].clone(),
            limit["limited"].clone(),
        )
    };
    assert_eq!(counted(0), ("first".into(), 1.into(), 0.into()));
    assert_eq!(counted(1), ("later".into(), 1.into(), 2.into()));
}

#[test]
fn the_access_log_names_the_limit() {
    let log = "[log]\naccess = \"{own}/log\"\nformat = \"json\"\n";
    let site = "[[site]]\nrespond = {}\nlimit = [{ requests = \"2/1h\", name = \"real\" },\n\
        { requests = \"1/1h\", name = \"trial\", report_only = true }]\n";
    let server = Launch::run(&format!("{log}{LISTEN}{site}")).start();
    let mut client = server.client();
    let statuses = [(); 3].map(|()| client.get("/").status);
    assert_eq!(statuses, [200, 200, 429]);
    let lines = || {
        let text = std::fs::read_to_string(server.own("log")).unwrap_or_default();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines.collect::<Vec<_>>()
    };
    wait_until("all requests are logged", || lines().len() == 3);
    let named: Vec<_> = lines()
        .iter()
        .map(|line| (line["limited"].clone(), line["would_limit"].clone()))
        .collect();
    let (real, trial) = (Value::from("real"), Value::from("trial"));
    assert_eq!(
        named,
        [
            (Value::Null, Value::Null),
            (Value::Null, trial),
            (real, Value::Null)
        ]
    );
}

#[test]
fn a_reload_keeps_the_state_of_limits_that_stay() {
    let server = started(
        "limit = [{ requests = \"2/1h\" }]\n\
         [[site.route]]\npath = \"/other\"\nlimit = [{ requests = \"1/1h\", name = \"other\" }]\n",
    );
    let other = "192.0.2.9";
    assert_eq!(ask(&server, "/", "192.0.2.1"), 200);
    assert_eq!(ask(&server, "/other", other), 200);
    assert_eq!(ask(&server, "/other", other), 429);
    server.reload(&["name = \"other\""], &["name = \"new\""]);
    assert_eq!(ask(&server, "/", "192.0.2.1"), 200);
    assert_eq!(ask(&server, "/", "192.0.2.1"), 429);
    // This one is another limit now. That of the site has counted the first request of its client.
    assert_eq!(ask(&server, "/other", other), 200);
    assert_eq!(ask(&server, "/other", other), 429);
    let metrics = server.metrics(&server.own("admin"));
    assert_eq!(
        metrics.sum("levity_limited_total{limit=\"2/1h per client\""),
        2.0
    );
    server.reload(&["limit = [{ requests = \"2/1h\" }]\n"], &[""]);
    for _ in 0..5 {
        assert_eq!(ask(&server, "/", "192.0.2.1"), 200);
    }
}

/// The first recipe of a page in docs/tasks.
fn recipe(page: &str) -> &str {
    let (_, recipe) = page.split_once("```toml\n").expect("a recipe");
    let (recipe, _) = recipe.split_once("```").expect("its end");
    recipe
}

/// Calls are told apart by their headers.
#[test]
fn the_recipe_for_mcp() {
    let [mcp, render] = ["mcp", "render"].map(|name| {
        Scripted::tcp(move |conn| {
            while let Some(request) = conn.read_request() {
                if request.target == "/mcp?hold" {
                    conn.stall();
                }
                conn.answer("200 OK", name);
            }
        })
    });
    let recipe = recipe(include_str!("../../../../docs/tasks/event-streams.md"))
        .replace("address = \"80\"", "address = \"127.0.0.1:0\"")
        .replace("127.0.0.1:3000", mcp.address())
        .replace("127.0.0.1:3001", render.address())
        // However long the calls take, no more of them are allowed meanwhile.
        .replace("30/60s", "30/1h");
    // With several workers a call may overtake the end of the one before it, whose client has the response already.
    let server = Launch::run(&recipe).workers(1).start();
    let ask = |target: &str, headers: &[(&str, &str)]| {
        let length = [("Content-Length", "0")];
        let mut client = server.client();
        client.request("POST", target, &[headers, &length].concat())
    };
    let render_call = [("Mcp-Method", "tools/call"), ("Mcp-Name", "render")];
    assert_eq!(ask("/mcp", &render_call).text(), "render");
    let held: Vec<_> = (0..2)
        .map(|_| {
            let mut client = server.client();
            let fields = [&render_call[..], &[("Content-Length", "0")]].concat();
            client.send(crate::support::head("POST", "/mcp?hold", &fields));
            client
        })
        .collect();
    render.wait_for_requests(3);
    ask("/mcp", &render_call).assert_status(429);
    render.release();
    held.into_iter()
        .for_each(|mut client| client.receive().assert_status(200));
    let call = [("Mcp-Method", "tools/call"), ("Mcp-Name", "other")];
    let statuses: Vec<_> = (0..31).map(|_| ask("/mcp", &call).status).collect();
    assert_eq!(statuses[..30], [200; 30]);
    assert_eq!(statuses[30], 429);
    assert_eq!(ask("/mcp", &[("Mcp-Method", "tools/list")]).text(), "mcp");
}

/// The recipe of docs/tasks/rate-limits.md, with other paths.
#[test]
fn the_recipe_of_the_documentation() {
    let recipe = recipe(include_str!("../../../../docs/tasks/rate-limits.md"));
    let tree = Tree::new();
    let body = content(7, 1000);
    for name in ["index.html", "pool/a", "login", "health"] {
        tree.file(name, &body);
    }
    settle();
    let recipe = recipe.replace("/srv/www", &tree.path().display().to_string());
    let server = Launch::run(&format!("{LISTEN}{ADMIN}{recipe}")).start();
    let passed = |path: &str, client: &str, count: usize| {
        let mut connection = server.client();
        let statuses = (0..count).map(|_| connection.get_with(path, &of(client)).status);
        statuses.filter(|status| *status == 200).count()
    };
    let passed_all = passed("/", "192.0.2.1", 120);
    assert!((100..110).contains(&passed_all), "{passed_all}");
    assert_eq!(passed("/login", "192.0.2.2", 10), 5);
    assert_eq!(passed("/login", "192.0.2.3", 10), 5);
    assert_eq!(passed("/health", "192.0.2.1", 120), 120);
    assert!(passed("/pool/a", "192.0.2.4", 120) >= 100);
    let metrics = server.metrics(&server.own("admin"));
    assert!(metrics.sum("levity_limited_total{limit=\"half\",action=\"reported\"}") >= 50.0);
}
