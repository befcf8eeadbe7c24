//! HTTP/2 with clients and suites of others, over TLS and with prior knowledge.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::clients::run;
use crate::support::certificates::{Authority, Key};
use crate::support::{Launch, Server, Tree, assert_same};
use crate::tls::{LISTEN, site};
use crate::tls_clients::browse;

const LIMIT: Duration = Duration::from_secs(60);

/// How long the suite may take, which waits for what must not come.
const SUITE_MAX: Duration = Duration::from_secs(120);

/// A server of a small and a large file, with TLS as `a.test` or without.
struct Fixture {
    server: Server,
    authority: Option<Authority>,
    tree: Tree,
    small: Vec<u8>,
    large: Vec<u8>,
}

impl Fixture {
    fn plain() -> Self {
        const TABLES: &str =
            "[admin]\nlisten = \"unix:{own}/admin\"\n[limits]\nidle_timeout = \"60s\"\n";
        Self::new(|tree| (Launch::site(tree.path(), TABLES, ""), None))
    }

    fn tls() -> Self {
        Self::new(|tree| {
            let authority = Authority::new("authority");
            authority.certify("a", &["a.test"], Key::Ecdsa);
            let site = site("\"a.test\"", tree, &authority.table(&["a"]));
            (Launch::run(&format!("{LISTEN}{site}")), Some(authority))
        })
    }

    fn new(launch: impl FnOnce(&Tree) -> (Launch, Option<Authority>)) -> Self {
        let tree = Tree::new();
        let small = tree.filled("small", 300);
        let large = tree.filled("large", 3_000_000);
        let (launch, authority) = launch(&tree);
        Self {
            server: launch.start(),
            authority,
            tree,
            small,
            large,
        }
    }

    fn port(&self) -> String {
        self.server.address().port().to_string()
    }

    fn url(&self, path: &str) -> String {
        match self.authority {
            Some(_) => format!("https://a.test:{}{path}", self.port()),
            None => format!("http://127.0.0.1:{}{path}", self.port()),
        }
    }

    /// Runs curl, which has to speak HTTP/2.
    #[track_caller]
    fn curl(&self, arguments: &[&str], path: &str) -> Output {
        let resolve = format!("a.test:{}:127.0.0.1", self.port());
        let url = self.url(path);
        let mut all = vec![
            "-sS",
            "--resolve",
            &resolve,
            "-w",
            "%{stderr}%{http_version}",
        ];
        let ca = self
            .authority
            .as_ref()
            .map(|authority| authority.file("ca.pem"));
        match &ca {
            Some(ca) => all.extend(["--http2", "--cacert", ca]),
            None => all.push("--http2-prior-knowledge"),
        }
        all.extend(arguments);
        all.push(&url);
        let output = run(LIMIT, "curl", &all, self.tree.path());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said == "2", "{said}");
        output
    }

    /// Runs the suite `h2spec`, of which all tests but those that are named have to pass.
    #[track_caller]
    fn h2spec(&self, exempt: &[&str]) {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/go/bin/h2spec");
        let port = self.port();
        let mut arguments = vec!["--strict", "-h", "127.0.0.1", "-p", &port, "-P", "/small"];
        if self.authority.is_some() {
            arguments.extend(["--tls", "--insecure"]);
        }
        let program = program.to_str().expect("a path in UTF-8");
        let output = run(SUITE_MAX, program, &arguments, self.tree.path());
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(!said.contains(" 0 passed"), "{said}");
        let marked = said
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("\u{d7} "));
        let mut failed: Vec<_> = marked.collect();
        failed.sort_unstable();
        failed.dedup();
        assert_eq!(failed, exempt, "{said}");
    }
}

#[track_caller]
fn curl_gets_files(fixture: &Fixture) {
    for (path, body) in [("/small", &fixture.small), ("/large", &fixture.large)] {
        assert_same(&fixture.curl(&[], path).stdout, body);
    }
    let part = fixture.curl(&["-r", "1000000-1999999"], "/large");
    assert_same(&part.stdout, &fixture.large[1_000_000..2_000_000]);
    let head = fixture.curl(&["-I"], "/large").stdout;
    let head = String::from_utf8_lossy(&head).into_owned();
    assert!(head.starts_with("HTTP/2 200 \r\n"), "{head}");
    assert!(head.contains("content-length: 3000000\r\n"), "{head}");
    let absent = fixture.curl(&["-o", "body", "-D", "-"], "/absent").stdout;
    assert!(absent.starts_with(b"HTTP/2 404 \r\n"));
}

#[test]
fn curl_with_prior_knowledge() {
    curl_gets_files(&Fixture::plain());
}

#[test]
fn curl_over_tls() {
    let fixture = Fixture::tls();
    curl_gets_files(&fixture);
    let log = fixture.server.metrics(&fixture.server.own("admin"));
    assert_eq!(log.sum("levity_http2_failures_total"), 0.0);
}

/// A page of two hundred scripts, which a browser gets at the same time and runs in order.
#[test]
fn chromium_gets_many_files() {
    const FILES: usize = 200;
    let fixture = Fixture::tls();
    let mut page = "<!doctype html><pre></pre><script>let all = [];</script>".to_owned();
    for number in 0..FILES {
        fixture
            .tree
            .file(format!("f{number}.js"), format!("all.push({number});"));
        page += &format!("<script src=\"/f{number}.js\"></script>");
    }
    page += "<script>document.querySelector('pre').textContent = all.join();</script>";
    fixture.tree.file("page.html", page);
    let ca = fixture
        .authority
        .as_ref()
        .map(|authority| authority.file("ca.pem"));
    let seen = browse(ca.as_deref(), &fixture.url("/page.html"));
    let all: Vec<_> = (0..FILES).map(|number| number.to_string()).collect();
    assert!(
        seen.contains(&format!("<pre>{}</pre>", all.join(","))),
        "{seen}"
    );
    let log = fixture.server.stdout();
    let over_http2 = log
        .lines()
        .filter(|line| line.contains("\"HTTP/2.0\""))
        .count();
    assert!(over_http2 > FILES, "{log}");
}

/// The suite of what a server has to do with frames that are right and wrong.
#[test]
fn h2spec_with_prior_knowledge() {
    // On this port it is HTTP/1 then, and gets an answer of that.
    Fixture::plain().h2spec(&["2: Sends invalid connection preface"]);
}

#[test]
fn h2spec_over_tls() {
    Fixture::tls().h2spec(&[]);
}

/// `h2load` with many streams at a time; returns what it says.
fn h2load(fixture: &Fixture, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command
        .arg(LIMIT.as_secs().to_string())
        .arg("h2load")
        .args(arguments);
    let url = format!("http://127.0.0.1:{}", fixture.port());
    command.args(["/small", "/large"].map(|path| format!("{url}{path}")));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[track_caller]
fn assert_all_succeeded(output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    let counts = said
        .lines()
        .find_map(|line| line.strip_prefix("requests: "));
    let counts = counts.unwrap_or_else(|| panic!("{said}"));
    let count = |word: &str| {
        let part = counts.split(", ").find(|part| part.ends_with(word));
        let number = part.and_then(|part| part.split(' ').next()?.parse::<u64>().ok());
        number.unwrap_or_else(|| panic!("{counts}"))
    };
    assert!(count("succeeded") > 0, "{counts}");
    assert_eq!(
        ["failed", "errored", "timeout"].map(count),
        [0; 3],
        "{counts}"
    );
}

#[test]
fn many_streams_at_a_time() {
    let fixture = Fixture::plain();
    let output = h2load(&fixture, &["-n", "1000", "-c", "4", "-m", "50"]).output();
    assert_all_succeeded(&output.expect("h2load"));
}

#[test]
fn reloads_lose_no_stream() {
    let fixture = Fixture::plain();
    let mut load = h2load(&fixture, &["-n", "3000", "-c", "4", "-m", "100"])
        .spawn()
        .expect("h2load");
    let mut times = ["\"60s\"", "\"61s\""];
    let mut reloads = 0;
    while load.try_wait().expect("waited").is_none() {
        fixture.server.reload(&times[..1], &times[1..]);
        times.swap(0, 1);
        reloads += 1;
    }
    assert!(reloads > 1);
    assert_all_succeeded(&load.wait_with_output().expect("waited"));
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A request for `/small`, by indices of the static table, which is reset at once.
fn reset_request(stream: u32) -> Vec<u8> {
    let fields = b"\x82\x86\x04\x06/small\x41\x09localhost";
    let request = frame(1, 5, stream, fields);
    let reset = frame(3, 0, stream, &8_u32.to_be_bytes());
    [request, reset].concat()
}

#[test]
fn a_client_that_resets_all_its_requests_is_stopped() {
    let fixture = Fixture::plain();
    let mut client = fixture.server.client();
    let start = [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        &frame(4, 0, 0, &[]),
    ]
    .concat();
    client.send(start);
    let requests: Vec<_> = (0..20_000).flat_map(|n| reset_request(2 * n + 1)).collect();
    // It is closed before all was sent.
    let _ = client.try_send(requests);
    let said = client.read_through(b"too many frames of no use");
    let code = said.len() - b"too many frames of no use".len() - 4;
    assert_eq!(said[code..][..4], 0xb_u32.to_be_bytes());
    let metrics = fixture.server.metrics(&fixture.server.own("admin"));
    let series = "levity_http2_failures_total{code=\"enhance_your_calm\"}";
    assert_eq!(metrics.sum(series), 1.0);
    assert_same(&fixture.curl(&[], "/small").stdout, &fixture.small);
}
