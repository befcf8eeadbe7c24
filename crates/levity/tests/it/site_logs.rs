//! Access logs and metrics of single sites and routes.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, mkfifoat, open};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::scripted::Scripted;
use crate::support::{Client, Launch, Server, Tree, wait_until};

const ADMIN: &str =
    "[admin]\nlisten = \"unix:{own}/admin\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n";

fn tree() -> Tree {
    let tree = Tree::new();
    tree.file("a", "AAA");
    tree
}

/// A site with this host.
fn site(tree: &Tree, host: &str, keys: &str) -> String {
    let root = tree.path().display();
    format!("[[site]]\nhosts = [\"{host}\"]\nroot = \"{root}\"\n{keys}\n")
}

fn server(log: &str, sites: &[String]) -> Server {
    let config = format!("[log]\n{log}\n{ADMIN}{}", sites.concat());
    Launch::run(&config).workers(2).start()
}

fn lines(server: &Server, name: &str) -> Vec<String> {
    let text = fs::read_to_string(server.own(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Waits until a file has these lines, in any order: each worker hands over its own.
#[track_caller]
fn has_lines(server: &Server, name: &str, expected: &[&str]) {
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    wait_until(&format!("{expected:?} in {name}"), || {
        let mut found = lines(server, name);
        found.sort_unstable();
        found == expected
    });
}

fn get(server: &Server, host: &str, path: &str) {
    let status = server.client().get_for(host, path).status;
    assert!(status < 500, "{host}{path}: {status}");
}

#[test]
fn each_site_has_its_log() {
    let tree = tree();
    let server = server(
        "access = \"{own}/all\"\nformat = \"{site}{path} {route}\"",
        &[
            site(
                &tree,
                "own",
                "log = { access = \"{own}/own\" }\n\
                 [[site.route]]\npath = \"/healthz\"\nlog = false\n\
                 [[site.route]]\npath = \"/x/*\"\nlog = { access = \"{own}/x\", format = \"x {status}\" }",
            ),
            site(
                &tree,
                "shared",
                "log = { access = \"{own}/./own\", format = \"s {status}\" }",
            ),
            site(
                &tree,
                "off",
                "log = { access = \"off\" }\n[[site.route]]\npath = \"/on\"\nlog = { access = \"{own}/x\", format = \"on {status}\" }",
            ),
            site(&tree, "plain", ""),
        ],
    );
    for (host, path) in [
        ("own", "/a"),
        ("own", "/healthz"),
        ("own", "/x/y"),
        ("shared", "/a"),
        ("off", "/a"),
        ("off", "/on"),
        ("plain", "/a?b"),
        ("nobody", "/a"),
    ] {
        get(&server, host, path);
    }
    let mut client = server.client();
    client.send("nonsense\r\n\r\n");
    client.receive().assert_status(400);
    has_lines(&server, "own", &["own/a -", "s 200"]);
    has_lines(&server, "x", &["x 404", "on 404"]);
    has_lines(&server, "all", &["plain/a -", "-/a -", "-- -"]);
    // Two tables name one file, which has one writer.
    let open = server.open_files(server.own("").as_path());
    let logs = |name: &str| {
        let of = |at: &&std::path::PathBuf| fs::read_link(at).is_ok_and(|to| to.ends_with(name));
        open.iter().filter(of).count()
    };
    assert_eq!(["all", "own", "x"].map(logs), [1, 1, 1]);
}

#[test]
fn json_names_site_and_route() {
    let tree = tree();
    let keys = "[[site.route]]\npath = \"/x/*\"\n";
    let server = server(
        "access = \"{own}/all\"\nformat = \"json\"",
        &[site(&tree, "one", keys)],
    );
    for (host, path, site, route) in [
        ("one", "/a", Value::from("one"), Value::Null),
        ("one", "/x/y", "one".into(), "/x/*".into()),
        ("two", "/a", Value::Null, Value::Null),
    ] {
        let before = lines(&server, "all").len();
        get(&server, host, path);
        wait_until("a line", || lines(&server, "all").len() > before);
        let last = lines(&server, "all").pop().expect("a line");
        let line: Value = serde_json::from_str(&last).expect("JSON");
        assert_eq!((&line["site"], &line["route"]), (&site, &route), "{line}");
    }
}

#[test]
fn all_files_are_reopened() {
    let tree = tree();
    let server = server(
        "access = \"{own}/all\"\nformat = \"{path}\"",
        &[
            site(&tree, "one", ""),
            site(&tree, "two", "log = { access = \"{own}/two\" }"),
        ],
    );
    let request = |path: &str| ["one", "two"].map(|host| get(&server, host, path));
    request("/first");
    for name in ["all", "two"] {
        has_lines(&server, name, &["/first"]);
        let rotated = server.own(&format!("{name}.1"));
        fs::rename(server.own(name), rotated).expect("rename");
    }
    server.signal(Signal::USR1);
    wait_until("new files", || {
        ["all", "two"].iter().all(|name| server.own(name).exists())
    });
    request("/second");
    for name in ["all", "two"] {
        has_lines(&server, name, &["/second"]);
        has_lines(&server, &format!("{name}.1"), &["/first"]);
    }
}

#[test]
fn a_reload_changes_logs() {
    let tree = tree();
    tree.filled("large", 16_000_000);
    let own = |to: &str| site(&tree, "one", &format!("log = {to}"));
    let first = own("{ access = \"{own}/first\" }");
    let server = server("access = \"{own}/all\"\nformat = \"{path}\"", &[first]);
    let mut busy = Client::narrow(server.address());
    busy.send("GET /large HTTP/1.1\r\nHost: one\r\n\r\n");
    busy.receive_head().expect("a head").assert_status(200);
    get(&server, "one", "/1");
    has_lines(&server, "first", &["/1"]);
    server.reload(&["/first\""], &["/second\", format = \"2 {path}\""]);
    get(&server, "one", "/2");
    has_lines(&server, "second", &["2 /2"]);
    // A link that leads to itself cannot be opened as a log. The reload is refused as a whole.
    std::os::unix::fs::symlink("round", server.own("round")).expect("a link");
    let config = fs::read_to_string(server.config()).expect("read");
    let wrong = config.replace("/second\"", "/round\"");
    fs::write(server.config(), wrong).expect("write");
    server.signal(Signal::HUP);
    let refusal = server.says("the old one stays: ");
    assert!(
        refusal.contains("cannot open the access log") && refusal.contains("/round: "),
        "{refusal}"
    );
    get(&server, "one", "/3");
    has_lines(&server, "second", &["2 /2", "2 /3"]);
    fs::write(server.config(), config).expect("write");
    let kept = "log = { access = \"".to_owned() + server.own("second").to_str().expect("UTF-8");
    server.reload(&[&format!("{kept}\", format = \"2 {{path}}\" }}")], &[""]);
    get(&server, "one", "/4");
    has_lines(&server, "all", &["/4"]);
    // It began with the first configuration, and keeps its log.
    busy.read_exactly(16_000_000);
    has_lines(&server, "first", &["/1", "/large"]);
    wait_until("the old files are closed", || {
        let open = server.open_files(&server.own(""));
        let names = open.iter().filter_map(|at| fs::read_link(at).ok());
        !names
            .into_iter()
            .any(|to| to.ends_with("first") || to.ends_with("second"))
    });
}

/// A pipe that nobody reads, and a reader's end of it, which keeps it open.
fn unread_pipe(path: &Path) -> File {
    mkfifoat(CWD, path, Mode::from(0o666)).expect("mkfifo");
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).expect("chmod");
    open(path, OFlags::RDWR, Mode::empty())
        .expect("open")
        .into()
}

#[test]
fn a_stuck_log_and_a_full_one_stop_no_other() {
    const REQUESTS: usize = 1_000;
    let tree = tree();
    let launch = Launch::run(&format!(
        "[log]\naccess = \"/dev/full\"\n{ADMIN}{}{}{}",
        site(&tree, "full", ""),
        site(&tree, "stuck", "log = { access = \"{own}/pipe\" }"),
        site(
            &tree,
            "well",
            "log = { access = \"{own}/well\", format = \"{status}\" }"
        ),
    ));
    let pipe = unread_pipe(&launch.own().join("pipe"));
    let server = launch.workers(1).start();
    let path = format!("/a?{}", "x".repeat(7_000));
    let mut clients = ["full", "stuck", "well"].map(|host| (host, server.client()));
    for _ in 0..REQUESTS {
        for (host, client) in &mut clients {
            client.get_for(host, &path).assert_status(200);
        }
    }
    wait_until("all lines of the third", || {
        lines(&server, "well").len() == REQUESTS
    });
    let line = server.says("lines are lost");
    assert!(
        line.starts_with("levity: access log /dev/full: lines are lost: "),
        "{line}"
    );
    let metrics = server.metrics(&server.own("admin"));
    // The queue of the pipe has 2 MiB, and 7 MB of lines were due.
    let dropped = metrics.sum("levity_log_dropped_total{log=\"access\"}");
    assert!(dropped > 1_500.0 && dropped < 2_000.0, "{dropped}");
    assert_eq!(metrics.above("levity_loop_stall_seconds", 0.005), 0.0);
    drop(pipe);
}

/// Cuts a line as its format says: each field up to the text behind it.
fn cut<'l>(line: &'l str, between: &[&str]) -> Vec<&'l str> {
    let mut rest = line;
    let mut fields = Vec::new();
    for text in between {
        let mut at = 0;
        while !rest[at..].starts_with(text) {
            at += if rest[at..].starts_with('\\') { 2 } else { 1 };
            assert!(at <= rest.len(), "no {text:?} in {line}");
        }
        fields.push(&rest[..at]);
        rest = &rest[at + text.len()..];
    }
    assert_eq!(rest, "", "{line}");
    fields
}

#[test]
fn no_header_forges_a_field() {
    let tree = tree();
    let format =
        "{peer}|{request.header.x-a}|\\\"{user_agent}\\\" {referer} {status}|{request.header.x-b};";
    let server = server(
        &format!("access = \"{{own}}/all\"\nformat = \"{format}\""),
        &[site(&tree, "one", "")],
    );
    let hostile: &[u8] = b"a|b;c\" 500 \\\" \\\\ \t\x80\xff\\x20'[]{}";
    let mut request =
        b"GET /a HTTP/1.1\r\nHost: one\r\nAuthorization: Basic c2VjcmV0\r\nCookie: s3cret\r\n"
            .to_vec();
    for name in ["X-A", "User-Agent", "Referer", "X-B"] {
        request.extend_from_slice(name.as_bytes());
        request.extend_from_slice(b": ");
        request.extend_from_slice(hostile);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    let mut client = server.client();
    client.send(request);
    client.receive().assert_status(200);
    wait_until("a line", || !lines(&server, "all").is_empty());
    let all = lines(&server, "all");
    let [line] = all.as_slice() else {
        panic!("{all:?}");
    };
    assert!(
        line.bytes().all(|byte| matches!(byte, b' '..=b'~')),
        "{line}"
    );
    let fields = cut(line, &["|", "|\"", "\" ", " ", "|", ";"]);
    assert_eq!((fields[0], fields[4]), ("127.0.0.1", "200"));
    for field in [1, 2, 3, 5] {
        assert_eq!(unescaped(fields[field]), hostile, "{}", fields[field]);
    }
}

fn unescaped(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let [byte, behind @ ..] = rest {
        rest = behind;
        match (byte, rest) {
            (b'\\', [b'x', high, low, behind @ ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).expect("digits");
                out.push(u8::from_str_radix(digits, 16).expect("two digits"));
                rest = behind;
            }
            (b'\\', [escaped, behind @ ..]) => {
                out.push(*escaped);
                rest = behind;
            }
            _ => out.push(*byte),
        }
    }
    out
}

/// They are in no line of a format that does not name them.
#[test]
fn credentials_are_logged_only_by_name() {
    let tree = tree();
    let headers = [
        ("Authorization", "Basic dXNlcjpzM2NyZXQ="),
        ("Cookie", "id=s3cret"),
        ("Proxy-Authorization", "s3cret"),
    ];
    let fields = {
        let rows = levity_config::LogTemplate::reference();
        let names = rows.lines().filter_map(|row| row.split('`').nth(1));
        let names = names.filter(|name| !name.contains("NAME"));
        names.collect::<Vec<_>>().join(" ")
    };
    let formats = ["combined", "json", &fields, "{request.header.cookie}"];
    let sites = formats.iter().enumerate().map(|(number, format)| {
        let log = format!("log = {{ access = \"{{own}}/{number}\", format = '{format}' }}");
        site(&tree, &format!("h{number}"), &log)
    });
    let server = server("access = \"off\"", &sites.collect::<Vec<_>>());
    for number in 0..formats.len() {
        let name = number.to_string();
        let head: String = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let mut client = server.client();
        client.send(format!("GET /a HTTP/1.1\r\nHost: h{number}\r\n{head}\r\n"));
        client.receive().assert_status(200);
        wait_until("a line", || !lines(&server, &name).is_empty());
        let line = lines(&server, &name).concat();
        let has_secret = line.contains("s3cret") || line.contains("dXNlcjpzM2NyZXQ");
        assert_eq!(has_secret, number == 3, "{line}");
    }
    assert_eq!(lines(&server, "3"), ["id=s3cret"]);
}

#[test]
fn headers_of_the_response_and_the_upstream() {
    let backend = Scripted::tcp(|conn| {
        while conn.read_request().is_some() {
            conn.send("HTTP/1.1 200 OK\r\nX-Backend: b\"1\"\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let to = backend.address();
    let tree = tree();
    let format = "{path} {upstream.backend} {response.header.x-backend} {response.header.content-type} {response.header.x-own}";
    let route =
        "[[site.route]]\npath = \"/app\"\nproxy = \"app\"\nheaders = { set = { X-Own = \"1\" } }\n";
    let upstream = format!("[[upstream]]\nname = \"app\"\nto = [\"{to}\"]\n");
    let server = server(
        &format!("access = \"{{own}}/all\"\nformat = \"{format}\""),
        &[site(&tree, "one", route), upstream],
    );
    tree.file("page.html", "x");
    get(&server, "one", "/app");
    get(&server, "one", "/page.html");
    // Of a file in memory.
    get(&server, "one", "/page.html");
    let of_file = "/page.html - - text/html;\\x20charset=utf-8 -";
    let of_app = format!("/app {to} b\\\"1\\\" - 1");
    has_lines(&server, "all", &[&of_app, of_file, of_file]);
}

/// Configurations of other servers expect their combined format.
#[test]
fn the_built_in_format_spelt_with_fields() {
    let tree = tree();
    let spelt = "{peer} - {user} [{time.clf}] \"{request}\" {status} {bytes.clf} \"{referer}\" \"{user_agent}\" \
                 bytes={bytes} dur={dur} ttfb={ttfb} io_wait={io_wait} src={src} end={end}";
    let server = server(
        "access = \"off\"",
        &[
            site(
                &tree,
                "one",
                "log = { access = \"{own}/built\", format = \"combined\" }",
            ),
            site(
                &tree,
                "two",
                &format!("log = {{ access = \"{{own}}/spelt\", format = '{spelt}' }}"),
            ),
        ],
    );
    for (host, name) in [("one", "built"), ("two", "spelt")] {
        get(&server, host, "/a?\"\\");
        wait_until("a line", || !lines(&server, name).is_empty());
    }
    // Times differ, and one of the requests may find that the page cache has lost the file.
    let [built, spelt] = ["built", "spelt"].map(|name| {
        let line = lines(&server, name)
            .concat()
            .replace("src=disk", "src=memory");
        line.replace(|c: char| c.is_ascii_digit(), "0")
    });
    assert_eq!(built, spelt);
}

#[cfg(feature = "inspect")]
#[test]
fn metrics_and_status_by_site() {
    let tree = tree();
    let server = server(
        "access = \"off\"",
        &[
            site(&tree, "one", ""),
            site(&tree, "two", ""),
            site(&tree, "*.three", ""),
        ],
    );
    let admin = server.own("admin");
    for (host, path, times) in [
        ("one", "/a", 3),
        ("two", "/none", 2),
        ("x.three", "/a", 1),
        ("nobody", "/a", 1),
    ] {
        (0..times).for_each(|_| get(&server, host, path));
    }
    wait_until("all are counted", || {
        server.metrics(&admin).sum("levity_requests_total") == 7.0
    });
    let assert_metrics = |expected: &[(&str, f64)]| {
        let metrics = server.metrics(&admin);
        for (series, value) in expected {
            assert_eq!(metrics.sum(series), *value, "{series}");
        }
    };
    assert_metrics(&[
        ("levity_site_requests_total", 6.0),
        (
            "levity_site_requests_total{site=\"one\",class=\"2xx\"}",
            3.0,
        ),
        (
            "levity_site_requests_total{site=\"two\",class=\"4xx\"}",
            2.0,
        ),
        ("levity_site_requests_total{site=\"*.three\"}", 1.0),
        ("levity_site_sent_bytes_total{site=\"one\"}", 9.0),
        (
            "levity_site_request_duration_seconds_count{site=\"two\"}",
            2.0,
        ),
    ]);
    let status = |path| {
        let answer = Client::unix(&admin).get(path);
        answer.assert_status(200);
        answer.text()
    };
    let json: Value = serde_json::from_str(&status("/status.json")).expect("JSON");
    let names: Vec<_> = json["sites"]
        .as_array()
        .expect("sites")
        .iter()
        .map(|site| &site["site"])
        .collect();
    assert_eq!(names, ["one", "two", "*.three"]);
    assert!(status("/status").contains("\nserver.sites.two.by-status.4xx: 2\n"));
    let top = Launch::levity(["top", "--once", &format!("unix:{}", admin.display())]).ran();
    assert!(top.stdout.contains("\n*.three "), "{}", top.stdout);
    server.reload(&["\"one\"", "\"two\""], &["\"new\"", "\"two\", \"one\""]);
    get(&server, "one", "/a");
    get(&server, "new", "/a");
    wait_until("all are counted", || {
        server.metrics(&admin).sum("levity_requests_total") == 9.0
    });
    assert_metrics(&[
        ("levity_site_requests_total{site=\"one\"}", 0.0),
        ("levity_site_requests_total{site=\"new\"}", 1.0),
        ("levity_site_requests_total{site=\"two\"}", 3.0),
        ("levity_site_requests_total{site=\"*.three\"}", 1.0),
    ]);
}

#[test]
fn the_bound_on_sites_with_metrics() {
    const SITES_MAX: usize = 100;
    let tree = tree();
    let sites: Vec<_> = (0..SITES_MAX + 2)
        .map(|number| site(&tree, &format!("h{number}"), ""))
        .collect();
    let server = server("access = \"off\"", &sites);
    let admin = server.own("admin");
    for number in [0, SITES_MAX - 1, SITES_MAX, SITES_MAX + 1] {
        get(&server, &format!("h{number}"), "/a");
    }
    wait_until("all are counted", || {
        server.metrics(&admin).sum("levity_requests_total") == 4.0
    });
    let metrics = server.metrics(&admin);
    for (site, count) in [("h0", 1.0), ("h99", 1.0), ("other", 2.0)] {
        let series = format!("levity_site_requests_total{{site=\"{site}\"}}");
        assert_eq!(metrics.sum(&series), count, "{site}");
    }
    assert!(!metrics.has("levity_site_requests_total{site=\"h100\"}"));
}

/// `levity explain` answers a request that nobody made.
#[test]
fn an_explanation_is_not_logged() {
    let tree = tree();
    let launch = Launch::levity(["explain", "-c"]);
    let (file, log) = (launch.own().join("levity.toml"), launch.own().join("log"));
    let log_keys = format!("log = {{ access = \"{}\" }}", log.display());
    let route = "[[site.route]]\npath = \"/a\"\n".to_owned() + &log_keys;
    fs::write(&file, site(&tree, "one", &format!("{log_keys}\n{route}"))).expect("write");
    let folder = launch.own().to_owned();
    let (mut child, _own) = launch
        .arguments([file.as_os_str(), "http://one/a".as_ref()])
        .spawn();
    assert!(child.wait().expect("wait").success());
    let names = fs::read_dir(folder).expect("a folder").flatten();
    let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
    assert!(!names.contains(&"log".into()), "{names:?}");
}

/// The recipe of docs/tasks/site-logs.md.
#[test]
fn the_recipe() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tasks/site-logs.md");
    let page = fs::read_to_string(page).expect("the page");
    let (_, block) = page.split_once("```toml\n").expect("a configuration");
    let (block, _) = block.split_once("```").expect("its end");
    let tree = tree();
    let root = tree.path().to_str().expect("UTF-8");
    let config = block
        .replace("/srv/shop", root)
        .replace("/srv/www", root)
        .replace("/var/log/levity", "{own}");
    let server = Launch::run(&format!("{ADMIN}{config}")).start();
    for (host, path) in [
        ("www.example.org", "/a"),
        ("shop.example.org", "/a"),
        ("shop.example.org", "/healthz"),
    ] {
        get(&server, host, path);
    }
    wait_until("both logs", || {
        ["access.log", "shop.log"].map(|name| lines(&server, name).len()) == [1, 1]
    });
    let of_shop = lines(&server, "shop.log").concat();
    let fields = cut(
        &(of_shop + "\n"),
        &[" - ", " [", "] \"", "\" ", " ", " \"", "\" \"", "\" ", "\n"],
    )
    .into_iter()
    .map(str::to_owned)
    .collect::<Vec<_>>();
    assert_eq!(
        (fields[0].as_str(), fields[3].as_str(), fields[4].as_str()),
        ("127.0.0.1", "GET /a HTTP/1.1", "200")
    );
    assert!(fields[8].parse::<f64>().is_ok(), "{fields:?}");
}

/// To open a pipe that nobody reads would wait for a reader, whatever signal comes.
#[test]
fn a_log_to_a_pipe_that_nobody_reads_keeps_no_server_from_starting() {
    let tree = tree();
    let launch = Launch::run(&format!(
        "[log]\naccess = \"{{own}}/pipe\"\n{ADMIN}{}",
        site(&tree, "well", "")
    ));
    let path = launch.own().join("pipe");
    drop(unread_pipe(&path));
    let mut server = launch.workers(1).start();
    server.says("lines are lost until it can be opened");
    let mut client = server.client();
    client.get_for("well", "/a").assert_status(200);
    let reader = open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
    let mut reader = File::from(reader.expect("a pipe"));
    let mut text = Vec::new();
    wait_until("a line is written", || {
        client.get_for("well", "/a").assert_status(200);
        // There is nobody who writes, or nothing yet.
        let _ = reader.read_to_end(&mut text);
        text.ends_with(b"\n")
    });
    server.signal(Signal::TERM);
    assert!(server.wait().success());
}
