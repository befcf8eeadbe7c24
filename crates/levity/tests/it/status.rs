//! `/status` as text, JSON and page, and `levity top`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::scripted::{Refusing, Scripted};
use crate::support::{Answer, Client, Launch, Server, Tree, per_engine, wait_until};

const TABLES: &str = "[log]\naccess = \"off\"\n[admin]\nlisten = \"unix:{own}/admin\"\n";

fn server(tree: &Tree, engine: &str) -> Server {
    Launch::site(tree.path(), TABLES, "")
        .engine(engine)
        .workers(2)
        .start()
}

#[track_caller]
fn ask(server: &Server, path: &str) -> Answer {
    let answer = Client::unix(&server.own("admin")).get(path);
    answer.assert_status(200);
    answer
}

#[track_caller]
fn json(server: &Server) -> Value {
    serde_json::from_slice(&ask(server, "/status.json").body).expect("JSON")
}

/// The figure in a line of the text.
#[track_caller]
fn figure(text: &str, name: &str) -> String {
    let lines = text.lines().filter_map(|line| line.split_once(": "));
    let mut named = lines.filter(|(line, _)| *line == name);
    let found = named.next().map(|(_, value)| value.to_owned());
    found.unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// Requests of every kind: a cache hit, a miss, a file from the disk.
fn work(tree: &Tree, server: &Server) {
    let bytes = tree.filled("dir/large", 700_000);
    tree.evict("dir/large");
    assert!(server.get("/dir/large").body == bytes);
    server.get("/none").assert_status(404);
}

fn file(tree: &Tree) {
    fs::create_dir(tree.at("dir")).expect("mkdir");
}

/// Also where the listener is not on a loopback address; a reload adds names without closing it.
#[test]
fn pages_over_tcp_answer_to_names_of_this_machine() {
    let tree = Tree::new();
    let config = |admin: &str| {
        format!(
            "[admin]\n{admin}\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[site]]\nroot = \"{}\"\n",
            tree.path().display()
        )
    };
    let server = Launch::run(&config("listen = \"0.0.0.0:0\"")).start();
    let line = server.says("status and metrics on http://");
    let port = line
        .trim_end_matches('/')
        .rsplit(':')
        .next()
        .expect("a port");
    let address = format!("127.0.0.1:{port}");
    let status = |host: &str| Client::to(&address).get_for(host, "/metrics").status;
    assert_eq!(status(&address), 200);
    assert_eq!(status("localhost"), 200);
    for host in ["evil.example", "web1.example"] {
        assert_eq!(status(host), 421, "{host}");
    }
    let named = config("listen = \"0.0.0.0:0\"\nhosts = [\"web1.example\"]");
    fs::write(server.config(), named).expect("write");
    server.signal(Signal::HUP);
    wait_until("the new name", || status("web1.example:9180") == 200);
    assert_eq!(status("evil.example"), 421);
}

per_engine! {
    fn text_and_json_agree(engine) {
        let tree = Tree::new();
        file(&tree);
        let server = server(&tree, engine);
        work(&tree, &server);
        wait_until("the connections are gone", || json(&server)["connections"]["open"] == 0);
        let text = ask(&server, "/status").text();
        let json = json(&server);
        let engine = json["io"]["engine"].as_str().expect("an engine");
        // `threads` runs too: it reads into memory for filters.
        let engines = json["io"]["engines"].as_array().expect("engines");
        let index = engines.iter().position(|one| one["engine"] == engine).expect("it runs");
        let of_engine = |key: &str| format!("/io/engines/{index}/{key}");
        for (line, pointer) in [
            ("server.requests.finished", "/requests/finished"),
            ("server.requests.by-status.4xx", "/requests/by_status/4xx"),
            ("server.connections.accepted", "/connections/accepted"),
            ("server.sent-bytes", "/sent_bytes"),
            (&format!("server.io.{engine}.async-read"), &of_engine("async_read")),
            (&format!("server.io.{engine}.sync-read"), &of_engine("sync_read")),
            (&format!("server.io.{engine}.cached-read"), &of_engine("cached_read")),
            ("server.io.reason", "/io/reason"),
            ("server.compute.response.threads", "/compute/response/threads"),
            ("server.compute.coder-bytes-max", "/compute/coder_bytes_max"),
        ] {
            let value = json.pointer(pointer).expect(pointer);
            let value = value.as_str().map_or(value.to_string(), str::to_owned);
            assert_eq!(figure(&text, line), value, "{line}");
        }
        assert_eq!(json["requests"]["finished"], 2);
        assert_eq!(json["requests"]["by_status"]["4xx"], 1);
        assert!(json["sent_bytes"].as_u64() >= Some(700_000));
        let reads = ["async_read", "sync_read", "cached_read"].map(|how| engines[index][how].as_u64());
        assert!(reads.into_iter().flatten().sum::<u64>() > 0, "{reads:?}");
        assert_eq!(json["workers"].as_array().map(Vec::len), Some(2));
        let device = &json["devices"][0];
        assert_eq!(device["queued"], 0);
        assert!(device["jobs"].as_u64() > Some(0), "{device}");
        assert_eq!(device["jobs"], device["recent"]["jobs"], "{device}");
        assert!(device["mount"].as_str().is_some_and(|mount| mount.starts_with('/')), "{device}");
    }
}

#[test]
fn a_request_in_progress_makes_its_connection_busy() {
    let tree = Tree::new();
    tree.filled("large", 40_000_000);
    let server = server(&tree, "threads");
    let idle = server.client();
    let mut busy = Client::narrow(server.address());
    busy.send("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n");
    wait_until("one is busy and one is idle", || {
        let connections = &json(&server)["connections"];
        (&connections["busy"], &connections["idle"]) == (&1.into(), &1.into())
    });
    drop((idle, busy));
    wait_until("both are gone", || {
        json(&server)["connections"]["open"] == 0
    });
}

#[test]
fn an_unresponsive_device_leads_the_list() {
    let tree = Tree::new();
    tree.filled("glacier", 200_000);
    let server = Launch::site(tree.path(), TABLES, "")
        .engine("simulated")
        .environment("LEVITY_SIMULATED", "freeze=glacier")
        .start();
    let mut waiting = Vec::new();
    // Read-ahead may be faster than the event loop, which then reads without the engine. So repeat until one freezes.
    wait_until("its job is the oldest", || {
        let device = &json(&server)["devices"][0];
        if device["in_flight"].as_u64().unwrap_or(0) == 0 {
            tree.evict("glacier");
            let mut client = server.client();
            client.send("GET /glacier HTTP/1.1\r\nHost: localhost\r\n\r\n");
            waiting.push(client);
        }
        let oldest = device["oldest_seconds"].as_f64();
        let pain = device["pain_seconds"].as_f64();
        oldest > Some(0.05) && pain >= oldest
    });
    drop(waiting);
}

/// The `file` of each member, with its figure.
fn files(json: &Value, list: &str, figure: &str) -> Vec<(String, u64)> {
    let list = json["files"][list].as_array().expect("a list").iter();
    list.map(|file| {
        let name = file["file"].as_str().expect("a name").to_owned();
        (name, file[figure].as_u64().expect("a number"))
    })
    .collect()
}

#[test]
fn the_most_requested_files() {
    let tree = Tree::new();
    tree.file("often", "1234567");
    tree.filled("large", 100_000);
    let server = server(&tree, "threads");
    for _ in 0..5 {
        server.get("/often?x=1").assert_status(200);
    }
    server.get("/large").assert_status(200);
    server.get("/none").assert_status(404);
    wait_until("every request is counted", || {
        json(&server)["requests"]["finished"] == 7
    });
    let json = json(&server);
    assert_eq!(
        files(&json, "by_requests", "requests"),
        [
            ("localhost/often".to_owned(), 5),
            ("localhost/large".to_owned(), 1)
        ]
    );
    assert_eq!(
        files(&json, "by_bytes", "sent_bytes"),
        [
            ("localhost/large".to_owned(), 100_000),
            ("localhost/often".to_owned(), 35)
        ]
    );
}

/// Markup, escape sequences and line ends in names have no effect.
#[test]
fn names_of_files_are_escaped() {
    let tree = Tree::new();
    let name = "<img src=x onerror=alert(1)>\x1b[2J\nserver.version: 0\u{202e}";
    tree.file(name, "x");
    let server = server(&tree, "threads");
    let path = "/%3Cimg%20src=x%20onerror=alert(1)%3E%1b%5b2J%0aserver.version:%200%E2%80%AE";
    server.get(path).assert_status(200);
    let shown = r"localhost/<img src=x onerror=alert(1)>\x1b[2J\x0aserver.version: 0\xe2\x80\xae";
    wait_until("it is counted", || {
        files(&json(&server), "by_requests", "requests") == [(shown.to_owned(), 1)]
    });
    let text = ask(&server, "/status");
    assert!(text.field("content-type").starts_with("text/plain"));
    assert_eq!(text.field("x-content-type-options"), "nosniff");
    let text = text.text();
    assert_eq!(figure(&text, "server.files.by-requests.1.file"), shown);
    assert!(
        text.lines().all(|line| line.starts_with("server.")),
        "{text}"
    );
    // The page is constant: its script gets names as JSON and inserts them as text.
    let page = ask(&server, "/").text();
    assert!(!page.contains("alert(1)"));
    for unsafe_way in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
    ] {
        assert!(!page.contains(unsafe_way), "{unsafe_way}");
    }
}

#[test]
fn the_page_needs_no_other_resource() {
    let tree = Tree::new();
    let server = server(&tree, "threads");
    let answer = ask(&server, "/status.html");
    assert_eq!(answer.field("content-type"), "text/html; charset=utf-8");
    let policy = answer.field("content-security-policy").to_owned();
    assert!(policy.starts_with("default-src 'none';"), "{policy}");
    assert!(
        !policy.contains("unsafe-inline") && !policy.contains('*'),
        "{policy}"
    );
    let page = answer.text();
    assert!(!page.contains("http://") && !page.contains("https://"));
    assert_eq!(open_elements(&page), Vec::<String>::new());
    assert_ne!(
        policy,
        ask(&server, "/status.html").field("content-security-policy")
    );
}

/// Names of elements that are not closed, or closed in another order than they were opened.
fn open_elements(page: &str) -> Vec<String> {
    const EMPTY: [&str; 3] = ["!doctype", "meta", "link"];
    let mut open: Vec<String> = Vec::new();
    let mut rest = page;
    while let Some((_, tag)) = rest.split_once('<') {
        let (inside, after) = tag.split_once('>').expect("a tag ends");
        rest = after;
        let name: String = inside.chars().take_while(|c| !c.is_whitespace()).collect();
        match name.strip_prefix('/') {
            Some(closed) if open.last().is_some_and(|last| last == closed) => drop(open.pop()),
            Some(closed) => return vec![format!("/{closed} in {open:?}")],
            None if EMPTY.contains(&name.as_str()) => {}
            None => open.push(name.clone()),
        }
        if ["style", "script"].contains(&name.as_str()) {
            let end = format!("</{name}>");
            let at = rest.find(&end).expect("it is closed");
            rest = &rest[at..];
        }
    }
    open
}

/// Paths of all figures: `connections.open`, `devices[].queued`, `history.connections[]`.
fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                let dot = if path.is_empty() { "" } else { "." };
                paths(value, &format!("{path}{dot}{key}"), found);
            }
        }
        Value::Array(list) => {
            for member in list {
                paths(member, &format!("{path}[]"), found);
            }
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

/// First cells of the tables of the page.
fn documented() -> BTreeSet<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/status.md");
    let page = fs::read_to_string(file).expect("docs/status.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split_once('`'))
        .map(|(key, _)| key.to_owned())
        .collect()
}

/// The page is a program of its own: a key that it misspells is shown as "-".
#[test]
fn the_page_shows_keys_that_exist() {
    const OBJECTS: [&str; 8] = [
        "now.",
        "before?.",
        "old?.",
        "was?.",
        "pool.",
        "worker.",
        "device.",
        "upstream.",
    ];
    // Of arrays and of the page itself.
    const METHODS: [&str; 4] = ["map", "find", "reduce", "length"];
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/status/page.html");
    let page = fs::read_to_string(file).expect("the page");
    let documented = documented();
    let documented: Vec<Vec<&str>> = documented
        .iter()
        .map(|path| {
            path.split(['.', '[', ']'])
                .filter(|key| !key.is_empty())
                .collect()
        })
        .collect();
    let is_there = |keys: &[&str]| {
        documented
            .iter()
            .any(|path| path.windows(keys.len()).any(|part| part == keys))
    };
    let mut seen = 0;
    for object in OBJECTS.into_iter().chain(["backend.", "file."]) {
        for (at, _) in page.match_indices(object) {
            let is_name =
                page[..at].ends_with(|before: char| before.is_alphanumeric() || before == '.');
            let chain: String = page[at + object.len()..]
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '?'))
                .collect();
            let keys: Vec<_> = chain
                .split(['.', '?'])
                .filter(|key| !key.is_empty())
                .collect();
            let keys: Vec<_> = keys
                .into_iter()
                .take_while(|key| !METHODS.contains(key))
                .collect();
            if !is_name && !keys.is_empty() {
                assert!(is_there(&keys), "{object}{chain}");
                seen += 1;
            }
        }
    }
    assert!(seen > 50, "{seen}");
}

#[cfg(feature = "default")]
#[test]
fn every_key_is_documented_and_exists() {
    let tree = Tree::new();
    file(&tree);
    let upstream = "[[upstream]]\nname = \"app\"\nto = [\"127.0.0.1:9\"]\n";
    let store = Tree::new();
    let disk = format!("[disk]\nvariants = \"{}\"\n", store.path().display());
    let tls = "[tls]\nfolder = \"{own}/tls\"\n";
    let other = format!(
        "[[site]]\nhosts = [\"other\"]\nlimit = [{{ connections = 9 }}]\nroot = \"{}\"\n\
         [site.tls]\nissuer = \"internal\"\n[[listen]]\naddress = \"127.0.0.2:0\"\ntls = true\n",
        tree.path().display()
    );
    let server = Launch::site(
        tree.path(),
        &format!("{TABLES}{tls}{disk}{upstream}"),
        &other,
    )
    .engine("threads")
    .start();
    work(&tree, &server);
    let mut there = BTreeSet::new();
    wait_until("everything has been sampled", || {
        there.clear();
        paths(&json(&server), "", &mut there);
        [
            "devices[].history[]",
            "history.connections[]",
            "files.by_bytes[].file",
        ]
        .iter()
        .all(|key| there.contains(*key))
    });
    let documented = documented();
    let missing: Vec<_> = there.difference(&documented).collect();
    let gone: Vec<_> = documented.difference(&there).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "not documented: {missing:?}; gone: {gone:?}"
    );
}

#[test]
fn a_reload_changes_the_names() {
    let tree = Tree::new();
    tree.file("a", "A");
    let server = server(&tree, "threads");
    server.get("/a").assert_status(200);
    // The slowest device comes first, which may be another one in a moment.
    let mount = || {
        let devices = json(&server)["devices"].clone();
        let mounts = devices.as_array().expect("a list").iter();
        let mut mounts = mounts.map(|device| device["mount"].clone());
        mounts.find(Value::is_string)
    };
    // A device is known from its first operation on: no file in memory needs one, but a name that nobody has looked up does.
    let mut names = 0..;
    wait_until("the device is known", || {
        let name = format!("/absent-{}", names.next().expect("a number"));
        server.get(&name).assert_status(404);
        mount().is_some()
    });
    let before = mount();
    server.signal(rustix::process::Signal::HUP);
    server.says("configuration reloaded");
    server.get("/a").assert_status(200);
    assert_eq!(mount(), before);
}

#[cfg(feature = "inspect")]
#[test]
fn upstreams_and_their_backends() {
    let (refusing, backend) = (
        Refusing::new(),
        Scripted::tcp(|conn| {
            while conn.read_request().is_some() {
                conn.stall();
                conn.answer("200 OK", "hello");
            }
        }),
    );
    let (down, up) = (refusing.address(), backend.address());
    let server = Launch::run(&format!(
        "{TABLES}[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"app\"\n\
         to = [\"{down}\", \"{up} backup\"]\nfail_after = 1\nfail_for = \"1h\"\nconnections = 1\nqueue = 8\n\
         [[site]]\nproxy = \"app\"\n"
    ))
    .workers(1)
    .start();
    server.says(&format!(
        "upstream app: http, round-robin: {down}, {up} backup"
    ));
    let mut clients = [server.client(), server.client()];
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        backend.wait_for_requests(1);
    }
    wait_until("one is asked and one waits", || {
        json(&server)["upstreams"][0]["queue"] == 1
    });
    let told = json(&server)["upstreams"][0].clone();
    let expected: [(_, Value); 4] = [
        ("upstream", "app".into()),
        ("protocol", "http".into()),
        ("queue_max", 8.into()),
        ("retries", 1.into()),
    ];
    for (key, value) in expected {
        assert_eq!(told[key], value, "{key}: {told}");
    }
    let (one, other) = (&told["backends"][0], &told["backends"][1]);
    assert_eq!(
        (&one["backend"], &one["state"]),
        (&down.into(), &"left_alone".into())
    );
    assert!(one["left_alone_seconds"].as_f64() > Some(3_000.0), "{one}");
    assert!(
        one["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("refused")),
        "{one}"
    );
    assert_eq!(one["last_failure"], one["reason"], "{one}");
    let age = one["last_failure_seconds"].as_f64();
    assert!(age.is_some_and(|age| age < 600.0), "{one}");
    assert!(other["last_failure"].is_null(), "{other}");
    assert_eq!((&one["failed"], &one["answered"]), (&1.into(), &0.into()));
    assert_eq!(
        (&other["state"], &other["in_use"], &other["connections_max"]),
        (&"up".into(), &1.into(), &1.into())
    );
    let address = format!("unix:{}", server.own("admin").display());
    let frame = top(&address).stdout;
    for part in [
        "ejected 59 min: cannot connect",
        "up backup",
        "1/1",
        "app: 1 of 8 wait for a connection",
    ] {
        assert!(frame.contains(part), "{part}: {frame}");
    }
    backend.release();
    clients
        .iter_mut()
        .for_each(|client| client.receive().assert_status(200));
    let path = format!("server.upstreams.app.backends.{up}.answered");
    let text = ask(&server, "/status").text();
    assert_eq!(figure(&text, &path), "2");
}

#[cfg(feature = "inspect")]
#[test]
fn a_backend_without_an_address_is_listed() {
    let server = Launch::run(&format!(
        "{TABLES}[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"app\"\nto = [\"no-such-host.invalid:80 weight=3\"]\n\
         [[site]]\nproxy = \"app\"\n"
    ))
    .start();
    server.get("/").assert_status(503);
    let told = json(&server)["upstreams"][0]["backends"].clone();
    assert_eq!(told.as_array().map(Vec::len), Some(1), "{told}");
    let one = &told[0];
    assert_eq!(
        (&one["backend"], &one["state"], &one["weight"]),
        (
            &"no-such-host.invalid:80".into(),
            &"unresolved".into(),
            &3.into()
        )
    );
    let reason = one["reason"].as_str().expect("a reason");
    assert!(
        reason.starts_with("no-such-host.invalid does not resolve: "),
        "{reason}"
    );
    let metrics = ask(&server, "/metrics").text();
    let series = "levity_upstream_backend_up{upstream=\"app\",backend=\"no-such-host.invalid:80\"";
    for by in ["requests", "checks"] {
        let line = format!("{series},by=\"{by}\"}} 0\n");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    let address = format!("unix:{}", server.own("admin").display());
    let frame = top(&address).stdout;
    let row = frame
        .lines()
        .find(|line| line.contains("no-such-host.invalid:80"));
    assert!(row.is_some_and(|row| row.contains("unresolved")), "{frame}");
}

#[cfg(all(feature = "compress", feature = "inspect"))]
#[test]
fn the_pool_that_computes_is_shown() {
    let tree = Tree::new();
    tree.file("page.txt", "some words\n".repeat(1_000));
    let server = Launch::site(tree.path(), TABLES, "compress = true").start();
    let answer = server.get_with("/page.txt", &[("Accept-Encoding", "gzip")]);
    assert_eq!(answer.field("content-encoding"), "gzip");
    let mut compute = Value::Null;
    wait_until("the pool has been watched for a while", || {
        compute = json(&server)["compute"].clone();
        // A job counts when its thread is done with it, which may be after the response.
        compute["response"]["busy_percent"].is_u64() && compute["response"]["jobs"] == 1
    });
    let (response, idle) = (&compute["response"], &compute["idle"]);
    for key in ["queued", "canceled", "refused"] {
        assert_eq!(
            (&response[key], &idle[key]),
            (&0.into(), &0.into()),
            "{key}"
        );
    }
    assert_eq!(idle["jobs"], 0);
    assert!(response["threads"].as_u64() > Some(0), "{compute}");
    assert_eq!(response["threads"], idle["threads"]);
    assert!(response["run_seconds"].as_f64() > Some(0.0), "{compute}");
    assert!(response["busy_percent"].as_u64() <= Some(100), "{compute}");
    assert_eq!(compute["encoder_bytes"], 0);
    assert_eq!(compute["decoder_bytes"], 0);
    assert_eq!(compute["coder_bytes_max"], 64 << 20);
    let address = format!("unix:{}", server.own("admin").display());
    let frame = top(&address).stdout;
    let row = frame.lines().find(|line| line.starts_with("compute  "));
    let row = row.expect("a line of the pool");
    assert!(
        row.starts_with("compute     0 jobs wait, threads "),
        "{row}"
    );
    assert!(row.ends_with(" % busy; encoders 0 B of 64.0 MiB"), "{row}");
}

fn top(address: &str) -> crate::support::Ran {
    Launch::levity(["top", "--once", address]).ran()
}

#[cfg(feature = "inspect")]
#[test]
fn top_prints_one_frame() {
    let tree = Tree::new();
    tree.file("often", "1234567");
    let server = server(&tree, "threads");
    for _ in 0..3 {
        server.get("/often").assert_status(200);
    }
    wait_until("each loop has been watched for a second", || {
        let workers = &json(&server)["workers"];
        [0, 1]
            .iter()
            .all(|at| workers[at]["run_queue_wait_percent"].is_u64())
    });
    let address = format!("unix:{}", server.own("admin").display());
    let ran = top(&address);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    for part in [
        "levity ",
        "engine threads",
        "requests    0/s",
        "3 in all",
        "worker",
        "       3  localhost/often",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
    assert!(
        !ran.stdout.contains('\x1b'),
        "{}",
        ran.stdout.escape_debug()
    );
    // A dash stands for a key that `/status.json` does not have.
    let is_worker = |line: &&str| line.starts_with("0  ");
    let worker = ran.stdout.lines().filter(is_worker);
    for line in ran.stdout.lines().take(4).chain(worker) {
        assert!(!line.contains(" -"), "{}", ran.stdout);
    }
    // Standard output is no terminal, so it is the same without the flag; a configuration has the address.
    let file = server.config();
    let file = file.to_str().expect("a path in UTF-8");
    let ran = Launch::levity(["top", "-c", file]).ran();
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("localhost/often"), "{}", ran.stdout);
}

#[cfg(feature = "inspect")]
#[test]
fn top_reports_errors() {
    let tree = Tree::new();
    let none = format!("unix:{}", tree.at("none").display());
    let ran = top(&none);
    assert_eq!((ran.status, ran.stdout.as_str()), (1, ""));
    assert!(
        ran.stderr.contains("is the server running"),
        "{}",
        ran.stderr
    );
    // This listener is for clients, not for administration.
    let server = server(&tree, "threads");
    let ran = top(&server.address().to_string());
    assert_eq!((ran.status, ran.stdout.as_str()), (1, ""));
    assert!(
        ran.stderr.contains("not the admin listener"),
        "{}",
        ran.stderr
    );
}

/// `script` of util-linux provides a terminal.
#[cfg(feature = "inspect")]
#[test]
fn top_restores_the_terminal() {
    let tree = Tree::new();
    let server = server(&tree, "threads");
    let address = format!("unix:{}", server.own("admin").display());
    let top = format!("{} top {address}", env!("CARGO_BIN_EXE_levity"));
    let mut script = Command::new("script")
        .args(["--quiet", "--return", "--command", &top, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script of util-linux");
    let mut screen = script.stdout.take().expect("stdout");
    let mut shown = Vec::new();
    while !shown.windows(3).any(|end| end == b"\x1b[J") {
        let mut piece = [0; 4096];
        let read = screen.read(&mut piece).expect("a frame");
        assert!(read > 0, "it ended: {}", shown.escape_ascii());
        shown.extend_from_slice(&piece[..read]);
    }
    let mut keys = script.stdin.take().expect("stdin");
    keys.write_all(b"xq").expect("write");
    keys.flush().expect("flush");
    screen.read_to_end(&mut shown).expect("the rest");
    assert!(script.wait().expect("wait").success());
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.starts_with("\x1b[?1049h"), "{shown:?}");
    assert!(shown.contains("engine threads"), "{shown:?}");
    assert!(
        shown.trim_end().ends_with("\x1b[?25h\x1b[?1049l"),
        "{shown:?}"
    );
}
