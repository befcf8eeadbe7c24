//! TLS with clients that have libraries of their own, and that verify the certificate.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::clients::{build_go, chromium_at_home, run};
use crate::file_server::FileServer;
use crate::support::certificates::{Authority, Key};
use crate::support::{Tree, assert_same, sha256, sources};

const LIMIT: Duration = Duration::from_secs(60);

/// How long `testssl` may take.
const SCAN_MAX: Duration = Duration::from_secs(600);

const VERSIONS: [&str; 2] = ["TLSv1.2", "TLSv1.3"];

const PATHS: [&str; 2] = ["/small", "/large"];

impl FileServer {
    /// The arguments of the programs in `apps/tls`.
    fn arguments(&self) -> [String; 4] {
        let [small, large] = PATHS.map(str::to_owned);
        [self.port(), self.authority().file("ca.pem"), small, large]
    }

    /// Expects each line of `output` to begin with one of `starts`, and to have the sums of both files then.
    #[track_caller]
    fn assert_lines(&self, output: &Output, starts: &[String]) {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let sums = format!("{} {}", sha256(&self.small), sha256(&self.large));
        let lines: Vec<_> = starts
            .iter()
            .map(|start| format!("{start} {sums}\n"))
            .collect();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, lines.concat(), "{stderr}");
    }

    /// Expects that a client has resumed so many sessions, and that none was refused.
    #[track_caller]
    fn assert_resumed(&self, expected: f64) {
        let metrics = self.metrics();
        let count = |result: &str| {
            metrics.sum(&format!(
                "levity_tls_handshakes_total{{result=\"{result}\"}}"
            ))
        };
        assert_eq!((count("resumed"), count("failed")), (expected, 0.0));
    }

    /// Expects `output` to end with `body`, after the header of its response.
    #[track_caller]
    fn assert_response(&self, output: &Output, body: &[u8]) {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {stderr}", output.status);
        let got = &output.stdout;
        assert!(got.starts_with(b"HTTP/1.1 200 OK\r\n"), "{stderr}");
        let head_bytes = memchr::memmem::find(got, b"\r\n\r\n").expect("a header") + 4;
        assert_same(&got[head_bytes..], body);
    }

    fn files(&self) -> [(&str, &[u8]); 2] {
        [(PATHS[0], &self.small), (PATHS[1], &self.large)]
    }
}

/// A request after whose response the connection ends.
fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
}

/// Each version with each of `kinds`.
fn starts(kinds: &[&str]) -> Vec<String> {
    let versions = VERSIONS.iter();
    versions
        .flat_map(|version| kinds.iter().map(move |kind| format!("{version} {kind}")))
        .collect()
}

/// Runs a program of `apps/tls`.
fn fetch(fixture: &FileServer, program: &str, before: &[&str]) -> Output {
    let arguments = fixture.arguments();
    let arguments = arguments.each_ref().map(String::as_str);
    run(
        LIMIT,
        program,
        &[before, &arguments].concat(),
        &sources("tls"),
    )
}

#[test]
fn python_verifies_and_resumes() {
    let fixture = FileServer::tls();
    let output = fetch(&fixture, "/usr/bin/python3", &["fetch.py"]);
    fixture.assert_lines(&output, &starts(&["full", "resumed"]));
    fixture.assert_resumed(2.0);
    // It would refuse another authority.
    let other = Authority::new("other").file("ca.pem");
    let port = fixture.port();
    let arguments = ["fetch.py", &port, &other, "/small"];
    let output = run(LIMIT, "/usr/bin/python3", &arguments, &sources("tls"));
    assert!(!output.status.success());
}

/// Runs gnutls-cli, which sends `request`, until the server closes.
#[track_caller]
fn gnutls(fixture: &FileServer, priority: &str, request: &str, more: &[&str]) -> Output {
    let (port, ca) = (fixture.port(), fixture.authority().file("ca.pem"));
    let mut command = Command::new("timeout");
    let limit = LIMIT.as_secs().to_string();
    command.args([&limit, "gnutls-cli", "--port", &port, "--x509cafile", &ca]);
    command.args(["--priority", priority, "--logfile", "log"]);
    command.args(["--sni-hostname", "a.test", "--verify-hostname", "a.test"]);
    command.args(more).arg("127.0.0.1");
    let mut client = command
        .current_dir(fixture.tree.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("timeout of coreutils");
    // At the end of its input it would not wait for the response.
    let mut input = client.stdin.take().expect("stdin");
    input.write_all(request.as_bytes()).expect("written");
    let output = client.wait_with_output().expect("waited");
    drop(input);
    output
}

#[test]
fn gnutls_verifies_and_resumes() {
    let fixture = FileServer::tls();
    for version in ["1.2", "1.3"] {
        let priority = format!("NORMAL:-VERS-ALL:+VERS-TLS{version}");
        for (path, body) in fixture.files() {
            let text = request(path);
            let output = gnutls(&fixture, &priority, &text, &[]);
            fixture.assert_response(&output, body);
        }
        let text = request(PATHS[1]);
        let output = gnutls(&fixture, &priority, &text, &["--resume"]);
        fixture.assert_response(&output, &fixture.large);
        let log = fs::read_to_string(fixture.tree.at("log")).expect("read");
        assert!(log.contains("*** This is a resumed session"), "{log}");
        assert!(log.contains(&format!("TLS{version}")), "{log}");
    }
    fixture.assert_resumed(2.0);
}

#[test]
fn openssl_verifies_and_resumes() {
    let fixture = FileServer::tls();
    let (port, ca) = (fixture.port(), fixture.authority().file("ca.pem"));
    let client = format!(
        "openssl s_client -connect 127.0.0.1:{port} -servername a.test -verify_hostname a.test \
         -CAfile {ca} -verify_return_error -quiet -ign_eof"
    );
    for version in ["-tls1_2", "-tls1_3"] {
        for (session, (path, body)) in ["-sess_out", "-sess_in"].iter().zip(fixture.files()) {
            fixture.tree.file("request", request(path));
            let script = format!("{client} {version} {session} session < request");
            let output = run(LIMIT, "sh", &["-c", &script], fixture.tree.path());
            fixture.assert_response(&output, body);
        }
    }
    fixture.assert_resumed(2.0);
}

/// The sum of RFC 1950.
fn adler32(bytes: &[u8]) -> u32 {
    let (low, high) = bytes.iter().fold((1, 0), |(low, high), &byte| {
        let low = (low + u32::from(byte)) % 65521;
        (low, (high + low) % 65521)
    });
    high * 65536 + low
}

/// The page at `url` of `a.test` on this machine, in a Chromium that trusts the authority in the file `ca`, if there is one.
pub fn browse(ca: Option<&str>, url: &str) -> String {
    let home = Tree::new();
    if let Some(ca) = ca {
        // It trusts authorities that the database of its user has.
        home.folder(".pki/nssdb");
        let database = format!("sql:{}", home.at(".pki/nssdb").display());
        let made = ["-d", &database, "-N", "--empty-password"];
        let added = ["-d", &database, "-A", "-t", "C,,", "-n", "test", "-i", ca];
        for arguments in [&made[..], &added] {
            let output = run(LIMIT, "certutil", arguments, home.path());
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
        }
    }
    let environment = format!("HOME={}", home.path().display());
    let flag = "--host-resolver-rules=MAP a.test 127.0.0.1";
    chromium_at_home(&home, &[&environment], &[flag], LIMIT, url)
}

#[test]
fn chromium_verifies() {
    let fixture = FileServer::tls();
    let page = fs::read(sources("tls").join("fetch.html")).expect("read");
    fixture.tree.file("fetch.html", page);
    let url = format!("https://a.test:{}/fetch.html?/small&/large", fixture.port());
    let page = browse(Some(&fixture.authority().file("ca.pem")), &url);
    for (path, body) in fixture.files() {
        let seen = format!("{path} {} {}", body.len(), adler32(body));
        assert!(page.contains(&seen), "{seen}");
    }
    let page = browse(None, &url);
    assert!(!page.contains("/small 300"));
}

#[test]
#[ignore = "slow: builds a program in Go"]
fn go_verifies_and_resumes() {
    let fixture = FileServer::tls();
    let own = Tree::new();
    let program = build_go(&sources("tls").join("fetch.go"), &own);
    let output = fetch(&fixture, &program, &[]);
    fixture.assert_lines(&output, &starts(&["full", "resumed"]));
    fixture.assert_resumed(2.0);
}

#[test]
#[ignore = "slow: compiles a program in Java"]
fn java_verifies() {
    let fixture = FileServer::tls();
    let hosts = fixture.java_hosts();
    let output = fetch(&fixture, "java", &[&hosts, "Fetch.java"]);
    fixture.assert_lines(&output, &VERSIONS.map(str::to_owned));
    fixture.assert_resumed(0.0);
}

/// What `testssl` says of this server that is no defect of it, each with the reason.
const EXEMPT: [&str; 4] = [
    // The program itself has no algorithms of GOST.
    "engine_problem",
    // All suites are strong, so the client may choose the one that its processor is quick at.
    "cipher_order",
    // The authority of the test publishes nothing.
    "cert_revocation",
    // Those are for the site to set.
    "security_headers",
];

#[test]
#[ignore = "slow: thousands of handshakes"]
fn testssl_finds_nothing() {
    let fixture = FileServer::tls();
    let year = Duration::from_secs(365 * 24 * 60 * 60);
    let end = SystemTime::now() + year;
    fixture
        .authority()
        .certify_until("a", &["a.test"], Key::Ecdsa, end);
    fixture
        .server
        .reload(&["[site.tls]"], &["[site.tls]\nhsts = \"365d\""]);
    let (port, ca) = (fixture.port(), fixture.authority().file("ca.pem"));
    let url = format!("a.test:{port}");
    let own = Tree::new();
    let arguments = [
        "--quiet",
        "--color=0",
        "--warnings=batch",
        "--nodns=none",
        "--ip=127.0.0.1",
        "--jsonfile=findings",
        // All but the order of ciphers by strength, and clients of the past.
        "--protocols",
        "--std",
        "--pfs",
        "--server-preference",
        "--server-defaults",
        "--headers",
        "--vulnerable",
        "--add-ca",
        &ca,
        &url,
    ];
    let output = run(SCAN_MAX, "testssl", &arguments, own.path());
    let said = String::from_utf8_lossy(&output.stdout);
    let findings = fs::read(own.at("findings")).unwrap_or_else(|error| panic!("{error}: {said}"));
    let findings: Vec<Value> = serde_json::from_slice(&findings).expect("JSON");
    assert!(findings.len() > 80, "{said}");
    let is_fine = |finding: &&Value| {
        let is_one_of = |key: &str, words: &[&str]| {
            finding[key]
                .as_str()
                .is_some_and(|own| words.contains(&own))
        };
        is_one_of("severity", &["OK", "INFO", "LOW"]) || is_one_of("id", &EXEMPT)
    };
    let bad: Vec<_> = findings
        .iter()
        .filter(|finding| !is_fine(finding))
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
}
