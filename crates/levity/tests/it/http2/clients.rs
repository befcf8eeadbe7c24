//! Clients with implementations of their own.

use std::process::Output;

use super::LIMIT;
use crate::clients::{build_go, run};
use crate::file_server::FileServer;
use crate::support::{Tree, assert_same, sha256, sources};

/// What the programs send one after the other.
const SENT: [&str; 5] = [
    "GET /large 200",
    "GET /large 206",
    "GET /large 304",
    "HEAD /large 200",
    "POST /echo 200",
];

/// What the programs send at the same time.
const MANY: usize = 100;

/// Expects the programs to have printed that all requests had their responses over HTTP/2, and the log to say the same.
#[track_caller]
fn assert_served(fixture: &FileServer, output: &Output, version: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let (large, none) = (&fixture.large[..], &[][..]);
    let responses = [
        (200, large),
        (200, large),
        (206, &large[1_000_000..2_000_000]),
        (200, none),
        (304, none),
    ];
    let lines = responses.map(|(status, body)| format!("{version} {status} {}\n", sha256(body)));
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, format!("{}{MANY}\n", lines.concat()), "{stderr}");
    let mut expected = SENT.map(str::to_owned).to_vec();
    expected.extend(vec!["GET /small 200".to_owned(); MANY]);
    expected.sort();
    assert_eq!(fixture.logged(expected.len()), expected);
}

/// Runs nghttp, which speaks nothing else than HTTP/2.
#[track_caller]
fn nghttp(fixture: &FileServer, arguments: &[&str], path: &str) -> Output {
    let scheme = if fixture.has_tls() { "https" } else { "http" };
    let url = format!("{scheme}://127.0.0.1:{}{path}", fixture.port());
    let host = ["--no-verify-peer", "-H", ":authority: a.test"];
    let all = [&host, arguments, &[&url]].concat();
    let output = run(LIMIT, "nghttp", &all, fixture.tree.path());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    output
}

#[track_caller]
fn nghttp_gets_all(fixture: &FileServer) {
    let large = &fixture.large;
    assert_same(&nghttp(fixture, &[], "/large").stdout, large);
    assert_same(&nghttp(fixture, &["-d", "large"], "/echo").stdout, large);
    let range = ["-H", "range: bytes=1000000-1999999"];
    let part = nghttp(fixture, &range, "/large").stdout;
    assert_same(&part, &large[1_000_000..2_000_000]);
    let headers = |arguments: &[&str]| {
        let all = [&["-nv"], arguments].concat();
        let said = nghttp(fixture, &all, "/large").stdout;
        String::from_utf8(said).expect("text")
    };
    let head = headers(&["-H", ":method: HEAD"]);
    assert!(head.contains(") :status: 200\n"), "{head}");
    assert!(head.contains(") content-length: 3000000\n"), "{head}");
    assert!(!head.contains("recv DATA"), "{head}");
    let (_, tag) = head.split_once(") etag: ").expect("a tag");
    let (tag, _) = tag.split_once('\n').expect("a line");
    let unchanged = headers(&["-H", &format!("if-none-match: {tag}")]);
    assert!(unchanged.contains(") :status: 304\n"), "{unchanged}");
    // Each is on a connection of its own; these share one.
    nghttp(fixture, &["-n", "-m", &MANY.to_string()], "/small");
    let mut expected = SENT.map(str::to_owned).to_vec();
    expected.extend(vec!["GET /small 200".to_owned(); MANY]);
    expected.sort();
    assert_eq!(fixture.logged(expected.len()), expected);
}

#[test]
fn nghttp_with_prior_knowledge() {
    nghttp_gets_all(&FileServer::plain());
}

#[test]
fn nghttp_over_tls() {
    nghttp_gets_all(&FileServer::tls());
}

/// Builds the program in Go, and runs it.
#[track_caller]
fn go(fixture: &FileServer) -> Output {
    let own = Tree::new();
    let program = build_go(&sources("http2").join("requests.go"), &own);
    let (url, address) = (fixture.url(""), fixture.server.address().to_string());
    let ca = fixture.ca();
    let mut arguments = vec![&*url, &*address];
    arguments.extend(ca.as_deref());
    run(LIMIT, &program, &arguments, own.path())
}

#[test]
#[ignore = "slow: builds a program in Go"]
fn go_with_prior_knowledge() {
    let fixture = FileServer::plain();
    assert_served(&fixture, &go(&fixture), "HTTP/2.0");
}

#[test]
#[ignore = "slow: builds a program in Go"]
fn go_over_tls() {
    let fixture = FileServer::tls();
    assert_served(&fixture, &go(&fixture), "HTTP/2.0");
}

/// It has no prior knowledge.
#[test]
#[ignore = "slow: compiles a program in Java"]
fn java_over_tls() {
    let fixture = FileServer::tls();
    let hosts = fixture.java_hosts();
    let (url, ca) = (fixture.url(""), fixture.ca().expect("an authority"));
    let arguments = [&*hosts, "Requests.java", &url, &ca];
    let output = run(LIMIT, "java", &arguments, &sources("http2"));
    assert_served(&fixture, &output, "HTTP_2");
}
