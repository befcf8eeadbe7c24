//! Certificates that change while clients come, and some that cannot be used.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use crate::support::certificates::{Authority, Key};
use crate::support::tls::{TlsStream, connect, fetch, trusting};
use crate::support::{Launch, Server, Tree, assert_same, wait_until};
use crate::tls::{LISTEN, site};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Bytes of a file that no buffer between the server and a client holds.
const LARGE_BYTES: usize = 20_000_000;

/// A server of `tree` as `a.test`, whose certificate `authority` has signed.
fn launch(tree: &Tree, authority: &Authority) -> Launch {
    let site = site("\"a.test\"", tree, &authority.table(&["a"]));
    Launch::run(&format!("{LISTEN}{site}"))
}

/// A file with the certificates of both authorities.
fn both(tree: &Tree, one: &Authority, other: &Authority) -> PathBuf {
    let pem = [one, other].map(|authority| fs::read(authority.file("ca.pem")).expect("read"));
    tree.file("authorities.pem", pem.concat())
}

/// Puts the new certificate `a` of `from` where that of `to` is, as programs that renew certificates do.
fn install(from: &Authority, to: &Authority) {
    from.certify("next", &["a.test"], Key::Ecdsa);
    for end in ["key", "pem"] {
        let new = to.folder().join("new");
        fs::copy(from.file(&format!("next.{end}")), &new).expect("copied");
        fs::rename(new, to.file(&format!("a.{end}"))).expect("renamed");
    }
}

/// The certificate that the server has shown.
fn shown(stream: &TlsStream) -> &CertificateDer<'static> {
    let chain = stream.conn.peer_certificates().expect("a handshake");
    &chain[0]
}

fn in_file(path: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).expect("a certificate")
}

/// Clients that come one after the other until they are told to end. They fail with the first that fails.
struct Load {
    address: SocketAddr,
    authorities: PathBuf,
    ends: AtomicBool,
    fetched: AtomicUsize,
}

impl Load {
    /// One after the other: every second one makes a full handshake, the others may resume a session.
    fn run(&self) {
        let returning = trusting(&self.authorities);
        while !self.ends.load(Ordering::Relaxed) {
            for config in [&trusting(&self.authorities), &returning] {
                let mut stream = connect(self.address, config);
                let body = fetch(&mut stream, "/small").expect("a response");
                assert_eq!(body, b"content");
                self.fetched.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Ends the load, also when the test fails: otherwise that would wait for it.
struct EndsLoad<'l>(&'l Load);

impl Drop for EndsLoad<'_> {
    fn drop(&mut self) {
        self.0.ends.store(true, Ordering::Relaxed);
    }
}

/// A download that has begun, and what has come of it.
struct Download {
    stream: TlsStream,
    got: Vec<u8>,
}

impl Download {
    fn start(server: &Server, authorities: &Path) -> Self {
        let mut stream = connect(server.address(), &trusting(authorities));
        let request = b"GET /large HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("written");
        let mut got = Vec::new();
        while !got.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a header");
            got.push(byte[0]);
        }
        got.clear();
        Self { stream, got }
    }

    fn read(&mut self, count: usize) {
        let before = self.got.len();
        self.got.resize(before + count, 0);
        let piece = &mut self.got[before..];
        self.stream.read_exact(piece).expect("a piece");
    }

    /// Expects the rest, and the closing alert after it.
    fn finish(mut self, expected: &[u8]) {
        let rest = self.stream.read_to_end(&mut self.got);
        rest.expect("the closing alert");
        assert_same(&self.got, expected);
    }
}

/// Changes the certificate so often while clients come.
fn change_under_load(changes: usize) {
    let (tree, own) = (Tree::new(), Tree::new());
    tree.file("small", "content");
    let large = tree.filled("large", LARGE_BYTES);
    let (one, other) = (Authority::new("one"), Authority::new("other"));
    one.certify("a", &["a.test"], Key::Ecdsa);
    let authorities = both(&own, &one, &other);
    let server = launch(&tree, &one).workers(2).start();
    let mut download = Download::start(&server, &authorities);
    let load = Load {
        address: server.address(),
        authorities: authorities.clone(),
        ends: AtomicBool::new(false),
        fetched: AtomicUsize::new(0),
    };
    let load = Arc::new(load);
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let load = load.clone();
            thread::spawn(move || load.run())
        })
        .collect();
    let ends = EndsLoad(&load);
    for number in 0..changes {
        install([&other, &one][number % 2], &one);
        server.reload(&[], &[]);
        let new = in_file(&one.file("a.pem"));
        // Event loops learn of a reload a moment after it is logged.
        wait_until("the new certificate is shown", || {
            certificate(&server, &authorities) == new
        });
        download.read(LARGE_BYTES / 2 / changes);
    }
    drop(ends);
    for client in clients {
        client.join().expect("each client is served");
    }
    download.finish(&large);
    let metrics = server.metrics(&server.own("admin"));
    let failed = metrics.sum("levity_tls_handshakes_total{result=\"failed\"}");
    assert_eq!(failed, 0.0, "{}", server.stderr());
    let fetched = load.fetched.load(Ordering::Relaxed);
    assert!(fetched >= changes, "{fetched} only");
}

#[test]
fn certificates_change_under_load() {
    change_under_load(5);
}

#[test]
#[ignore = "slow: 50 reloads"]
fn certificates_change_often_under_load() {
    change_under_load(50);
}

#[test]
fn a_drain_ends_a_response_with_the_closing_alert() {
    let tree = Tree::new();
    let large = tree.filled("large", LARGE_BYTES);
    let authority = Authority::new("authority");
    authority.certify("a", &["a.test"], Key::Ecdsa);
    let mut server = launch(&tree, &authority).start();
    let authorities = authority.folder().join("ca.pem");
    let mut download = Download::start(&server, &authorities);
    download.read(1000);
    server.signal(Signal::TERM);
    wait_until("new connections are refused", || {
        TcpStream::connect(server.address()).is_err()
    });
    download.finish(&large);
    assert!(server.wait().success());
}

/// What a client is shown that trusts `authorities`.
#[track_caller]
fn certificate(server: &Server, authorities: &Path) -> CertificateDer<'static> {
    let mut stream = connect(server.address(), &trusting(authorities));
    assert_eq!(fetch(&mut stream, "/small").expect("served"), b"content");
    shown(&stream).clone()
}

/// Makes the files of `a` unusable, and expects that what was there before is used until they are mended, whether the change or a
/// signal is noticed.
fn stays_in_use(break_files: impl Fn(&Authority), reason: &str) {
    let tree = Tree::new();
    tree.file("small", "content");
    let authority = Authority::new("authority");
    authority.certify("a", &["a.test"], Key::Ecdsa);
    let authorities = authority.folder().join("ca.pem");
    let before = in_file(&authority.file("a.pem"));
    let server = launch(&tree, &authority).start();
    break_files(&authority);
    let line = server.says("changed certificates of a.test are not used: ");
    assert!(
        line.contains(reason) && line.ends_with("; those from before stay"),
        "{line}"
    );
    assert_eq!(certificate(&server, &authorities), before);
    server.signal(Signal::HUP);
    server.says("configuration reloaded");
    assert!(server.stderr().matches(reason).count() > 1, "{line}");
    assert_eq!(certificate(&server, &authorities), before);
    install(&authority, &authority);
    server.says("certificates were read again");
    let after = in_file(&authority.file("a.pem"));
    assert_eq!(certificate(&server, &authorities), after);
}

#[test]
#[ignore = "slow: changes are looked for every two seconds"]
fn a_key_of_another_certificate_is_not_used() {
    let put_other_key = |authority: &Authority| {
        authority.certify("b", &["b.test"], Key::Ecdsa);
        fs::copy(authority.file("b.key"), authority.file("a.key")).expect("copied");
    };
    stays_in_use(put_other_key, "the key is not that of");
}

#[test]
#[ignore = "slow: changes are looked for every two seconds"]
fn a_certificate_that_cannot_be_read_is_not_used() {
    let make_unreadable = |authority: &Authority| {
        install(authority, authority);
        let closed = fs::Permissions::from_mode(0o000);
        fs::set_permissions(authority.file("a.pem"), closed).expect("chmod");
    };
    stays_in_use(make_unreadable, "cannot be read: Permission denied");
}

#[test]
#[ignore = "slow: changes are looked for every two seconds"]
fn a_certificate_that_is_gone_is_not_used() {
    let remove = |authority: &Authority| fs::remove_file(authority.file("a.pem")).expect("removed");
    stays_in_use(remove, "cannot be read: No such file");
}

/// The clock may be wrong, and clients may have another one.
#[test]
fn certificates_are_used_at_any_time() {
    let tree = Tree::new();
    tree.file("small", "content");
    let now = SystemTime::now();
    // Some of each hour is over before it is looked at.
    let minute = HOUR / 60;
    for (start, end, said) in [
        (
            now - 2 * HOUR,
            now - HOUR,
            "has expired 1 hour ago; clients refuse it",
        ),
        (
            now - 3 * HOUR,
            now - 2 * HOUR,
            "has expired 2 hours ago; clients refuse it",
        ),
        (
            now + HOUR + minute,
            now + 1000 * HOUR,
            "is valid in 1 hour only; clients refuse it until then",
        ),
        (now - HOUR, now + 5 * HOUR + minute, "expires in 5 hours"),
        (now - HOUR, now + 72 * HOUR + minute, "expires in 3 days"),
    ] {
        let authority = Authority::new("authority");
        authority.certify_between("a", &["a.test"], Key::Ecdsa, start, end);
        let server = launch(&tree, &authority).start();
        let ran = Launch::levity(["check", "-c"])
            .arguments([server.config()])
            .ran();
        let text = ran.stdout + &ran.stderr;
        assert!(text.contains(said) && text.contains(": ok"), "{text}");
        server.reload(&[], &[]);
        let url = format!("https://{}/small", server.address());
        let got = crate::clients::curl(
            &["--insecure", "--header", "Host: a.test", &url],
            tree.path(),
        );
        assert_eq!(got, b"content");
    }
}
