//! HTTP/2 with clients and suites of others, over TLS and with prior knowledge.

mod abuse;
#[cfg(feature = "default")]
mod browser;
mod clients;
mod drain;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::clients::run;
use crate::file_server::FileServer;
use crate::support::certificates::{Authority, Key};
use crate::support::{Launch, Server, Tree, assert_same, wait_until};
use crate::tls::{LISTEN, site};

const LIMIT: Duration = Duration::from_secs(60);

/// How long the suite may take, which waits for what must not come.
const SUITE_MAX: Duration = Duration::from_secs(120);

impl FileServer {
    /// Waits for `count` lines of the log, and expects all of them to be of HTTP/2. Returns the method, the path and the status of each,
    /// sorted.
    #[track_caller]
    fn logged(&self, count: usize) -> Vec<String> {
        let lines = || {
            let log = self.server.stdout();
            let lines = log.lines().filter(|line| line.starts_with('{'));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        wait_until("the log is written", || lines().len() >= count);
        let read = |line: &String| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            assert_eq!(line["version"], "HTTP/2.0", "{line}");
            let word = |key: &str| line[key].as_str().expect("a word").to_owned();
            format!("{} {} {}", word("method"), word("target"), line["status"])
        };
        let mut all: Vec<_> = lines().iter().map(read).collect();
        all.sort();
        all
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
        let ca = self.ca();
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
}

/// Runs the suite `h2spec` against `server`, of which all tests but those that are named have to pass.
#[track_caller]
fn h2spec(server: &Server, options: &[&str], exempt: &[&str]) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/go/bin/h2spec");
    let program = program.to_str().expect("a path in UTF-8");
    let port = server.address().port().to_string();
    let arguments = ["--strict", "-h", "127.0.0.1", "-p", &port, "-P", "/small"];
    let arguments = [&arguments[..], options].concat();
    let output = run(SUITE_MAX, program, &arguments, Tree::new().path());
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

#[track_caller]
fn curl_gets_files(fixture: &FileServer) {
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

/// A refusal comes before the end of the upload, and curl does not take it for a failure.
#[track_caller]
fn curl_is_refused(fixture: &FileServer) {
    fixture.tree.filled("too-large", 20_000_000);
    for (body, path, status) in [
        ("@large", "/small", "405"),
        ("@too-large", "/small", "405"),
        ("@too-large", "/echo", "413"),
    ] {
        let upload = ["--data-binary", body, "-D", "-", "-o", "refusal"];
        let head = fixture.curl(&upload, path).stdout;
        let head = String::from_utf8_lossy(&head).into_owned();
        let expected = format!("HTTP/2 {status} \r\n");
        assert!(head.starts_with(&expected), "{head}");
    }
}

#[test]
fn curl_with_prior_knowledge() {
    let fixture = FileServer::plain();
    curl_gets_files(&fixture);
    curl_is_refused(&fixture);
}

#[test]
fn curl_over_tls() {
    let fixture = FileServer::tls();
    curl_gets_files(&fixture);
    curl_is_refused(&fixture);
    let log = fixture.metrics();
    assert_eq!(log.sum("levity_http2_failures_total"), 0.0);
}

/// The suite of what a server has to do with frames that are right and wrong. It wants an application that reads whole requests: a file
/// refuses POST before the end of the request, and the suite then reads no further.
#[test]
fn h2spec_with_prior_knowledge() {
    let files = FileServer::plain();
    let server = Launch::proxy(&files.server.address().to_string(), "").start();
    // On this port it is HTTP/1 then, and gets an answer of that.
    h2spec(&server, &[], &["2: Sends invalid connection preface"]);
}

#[test]
fn h2spec_over_tls() {
    let (files, authority) = (FileServer::plain(), Authority::new("authority"));
    authority.certify("a", &["a.test"], Key::Ecdsa);
    let upstream = format!(
        "[[upstream]]\nname = \"app\"\nto = [\"{}\"]\n",
        files.server.address()
    );
    let keys = format!("proxy = \"app\"\n{}{upstream}", authority.table(&["a"]));
    let site = site("", &files.tree, &keys);
    let server = Launch::run(&format!("{LISTEN}{site}")).start();
    h2spec(&server, &["--tls", "--insecure"], &[]);
}

/// `h2load` with many streams at a time; returns what it says.
fn h2load(fixture: &FileServer, arguments: &[&str]) -> Command {
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
    let fixture = FileServer::plain();
    let output = h2load(&fixture, &["-n", "1000", "-c", "4", "-m", "50"]).output();
    assert_all_succeeded(&output.expect("h2load"));
}

#[test]
fn reloads_lose_no_stream() {
    let fixture = FileServer::plain();
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
