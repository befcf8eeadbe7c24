//! The application that stands behind proxies, as a process, with the load generator at its socket.

use levity_bench::load::Report;
use levity_bench::load::client::{Client, Target};
use levity_bench::load::plan::EachOnce;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Long enough for any run that ends by itself.
const AMPLE: Duration = Duration::from_secs(60);

struct Backend {
    dir: TempDir,
    child: Child,
}

impl Backend {
    fn start(options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let child = spawn(dir.path(), options);
        Self { dir, child }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("app.sock")
    }

    /// So many requests on so many connections.
    fn ask(&self, method: &str, path: &str, (requests, connections): (usize, usize)) -> Report {
        let target = Target {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            socket: Some(self.socket()),
            method: method.into(),
            numbered: path.contains("id="),
            has_clients: false,
            paths: vec![path.into(); requests],
            body_bytes: None,
            missing_ok: false,
            discard: false,
            accept: None,
            coding: None,
            host: None,
            tls: None,
            close: false,
            streams: None,
            credentials: None,
        };
        let mut client = Client::connect(target, connections).unwrap();
        let mut plan = EachOnce::new(requests);
        client.run(&mut plan, Duration::ZERO, AMPLE).unwrap()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(dir: &Path, options: &[&str]) -> Child {
    let socket = dir.join("app.sock");
    let child = Command::new(env!("CARGO_BIN_EXE_levity-bench"))
        .args(["backend", "--protocol=http"])
        .arg(format!("--socket={}", socket.display()))
        .arg(format!("--log={}", dir.join("log").display()))
        .args(options)
        .spawn()
        .unwrap();
    let end = Instant::now() + AMPLE;
    while UnixStream::connect(&socket).is_err() {
        assert!(Instant::now() < end, "it does not listen");
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

#[test]
fn bodies_have_the_length_that_was_asked_for() {
    let backend = Backend::start(&[]);
    for framing in ["", "&chunked"] {
        let report = backend.ask("GET", &format!("/?bytes=300000{framing}"), (6, 3));
        assert_eq!((report.errors, report.body_bytes), (0, 6 * 300_000));
    }
}

#[test]
fn each_request_is_in_the_log_once_however_many_wait() {
    let backend = Backend::start(&["--work-us=500", "--at-once=2"]);
    let report = backend.ask("POST", "/?bytes=9&id=p", (40, 10));
    assert_eq!((report.requests, report.failed.len()), (40, 0));
    let log = std::fs::read_to_string(backend.dir.path().join("log")).unwrap();
    let mut ids: Vec<usize> = log.lines().map(|id| id[1..].parse().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..40).collect::<Vec<_>>());
    // Two at a time, half a millisecond each.
    assert!(report.seconds >= 0.01, "{}", report.seconds);
}

#[test]
fn one_that_is_killed_can_have_its_place_taken() {
    let mut backend = Backend::start(&[]);
    backend.child.kill().unwrap();
    backend.child.wait().unwrap();
    assert!(UnixStream::connect(backend.socket()).is_err());
    backend.child = spawn(backend.dir.path(), &[]);
    let report = backend.ask("GET", "/?bytes=1", (1, 1));
    assert_eq!((report.requests, report.errors), (1, 0));
}
