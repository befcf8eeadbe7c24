//! TLS with clients that break it. Each is told so, or its connection ends in time; nothing of it is left, and others are served.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, NamedGroup, RootCertStore, StreamOwned};

use crate::support::certificates::{Authority, Key};
use crate::support::tls::{connect, fetch, session, socket, trusting};
use crate::support::{Launch, Server, Tree, pass, wait_until};
use crate::tls::{LISTEN, site};

/// Types of records (RFC 8446, 5.1).
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

const RECORD_HEADER_BYTES: usize = 5;

/// The maximum of content in a record in bytes.
const RECORD_BYTES_MAX: usize = 1 << 14;

/// Where the session of a hello is: behind two headers, a version and 32 random bytes.
const SESSION_AT: usize = RECORD_HEADER_BYTES + 4 + 2 + 32;

/// Codes of extensions that say what a client can do (RFC 8446, 4.2).
const SUPPORTED_GROUPS: u16 = 10;
const SUPPORTED_VERSIONS: u16 = 43;
const KEY_SHARE: u16 = 51;

/// Codes of alerts (RFC 8446, 6).
const HANDSHAKE_FAILURE: u8 = 40;
const PROTOCOL_VERSION: u8 = 70;

/// A server of the file `small` as `a.test`.
struct Fixture {
    server: Server,
    config: Arc<ClientConfig>,
    authorities: PathBuf,
    _tree: Tree,
    _authority: Authority,
}

impl Fixture {
    fn new(header_timeout: &str) -> Self {
        let (tree, authority) = (Tree::new(), Authority::new("authority"));
        tree.file("small", "content");
        authority.certify("a", &["a.test"], Key::Ecdsa);
        let limits = format!("[limits]\nheader_timeout = \"{header_timeout}\"\n");
        let site = site("\"a.test\"", &tree, &authority.table(&["a"]));
        let server = Launch::run(&format!("{limits}{LISTEN}{site}")).workers(1);
        let authorities = authority.folder().join("ca.pem");
        Self {
            server: server.start(),
            config: trusting(&authorities),
            authorities,
            _tree: tree,
            _authority: authority,
        }
    }

    fn socket(&self) -> TcpStream {
        socket(self.server.address())
    }

    /// The first message of a client, as a record.
    fn hello(&self) -> Vec<u8> {
        said(&mut session(&self.config))
    }

    fn failed(&self) -> f64 {
        let metrics = self.server.metrics(&self.server.own("admin"));
        metrics.sum("levity_tls_handshakes_total{result=\"failed\"}")
    }

    /// A connection ends a moment before its handshake is counted.
    #[track_caller]
    fn assert_failed(&self, what: &str, expected: f64) {
        wait_until(what, || self.failed() == expected);
    }

    /// Connections that are open, but for the one that asks.
    fn open(&self) -> f64 {
        let metrics = self.server.metrics(&self.server.own("admin"));
        metrics.sum("levity_connections{state=\"open\"}")
    }

    /// Expects that no connection is left, and that others are served.
    #[track_caller]
    fn assert_serves(&self) {
        wait_until("the connections are gone", || self.open() == 0.0);
        let mut stream = connect(self.server.address(), &self.config);
        let body = fetch(&mut stream, "/small").expect("a response");
        assert_eq!(body, b"content");
    }

    /// Sends `bytes` on a new connection, and gives what the server says until it ends that.
    #[track_caller]
    fn answer(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.socket();
        // It may have been refused before its end.
        let _ = stream.write_all(bytes);
        rest(&mut stream)
    }

    /// Sends `bytes` on a new connection, and expects that the server refuses them at once, if `alert` is given with that.
    #[track_caller]
    fn assert_refused(&self, what: &str, bytes: &[u8], alert: Option<u8>) {
        let before = self.failed();
        let answer = self.answer(bytes);
        if let Some(alert) = alert {
            let expected = [ALERT, 3, 3, 0, 2, 2, alert];
            assert_eq!(answer, expected, "{what}");
        }
        self.assert_failed(what, before + 1.0);
        self.assert_serves();
    }
}

/// What `session` has to send.
fn said(session: &mut ClientConnection) -> Vec<u8> {
    let mut said = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut said).expect("memory");
    }
    said
}

/// What comes until the end, which may be a reset.
#[track_caller]
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    if let Err(error) = stream.read_to_end(&mut rest) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
    rest
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let len = u16::try_from(content.len()).expect("a length");
    [&[kind, 3, 3][..], &len.to_be_bytes(), content].concat()
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Where the suites of a hello are.
fn suites(hello: &[u8]) -> std::ops::Range<usize> {
    let at = SESSION_AT + 1 + usize::from(hello[SESSION_AT]);
    at + 2..at + 2 + usize::from(u16_at(hello, at))
}

/// Where the content of an extension of a hello is.
fn extension(hello: &[u8], code: u16) -> std::ops::Range<usize> {
    // One method of compression, and the length of all extensions.
    let mut at = suites(hello).end + 2 + 2;
    loop {
        let content = at + 4..at + 4 + usize::from(u16_at(hello, at + 2));
        if u16_at(hello, at) == code {
            return content;
        }
        at = content.end;
    }
}

/// `hello` with a value that nobody knows in all the places of two bytes there.
fn unknown(hello: &[u8], places: std::ops::Range<usize>) -> Vec<u8> {
    let mut changed = hello.to_vec();
    changed[places].fill(0x7f);
    changed
}

#[test]
fn what_breaks_the_rules_is_refused() {
    let fixture = Fixture::new("20s");
    let hello = fixture.hello();
    let refused = |what, bytes: &[&[u8]], alert| {
        fixture.assert_refused(what, &bytes.concat(), alert);
    };
    let garbage = record(HANDSHAKE, &[0xaa; 512]);
    refused("garbage in a record", &[&garbage], None);
    let too_long = [[HANDSHAKE, 3, 1, 0x40, 1].as_slice(), &hello[5..]].concat();
    let zeros = [0; RECORD_BYTES_MAX];
    refused("a record that is too long", &[&too_long, &zeros], None);
    let empty = record(HANDSHAKE, &[]).repeat(5000);
    refused("empty records", &[&empty], None);
    let change = record(CHANGE_CIPHER_SPEC, &[1]).repeat(1000);
    refused("changes of the cipher", &[&hello, &change], None);
    let finished = record(HANDSHAKE, &[20, 0, 0, 1, 0]);
    refused("an end first", &[&finished], None);
}

#[test]
fn what_comes_along_with_a_hello_is_looked_at_at_once() {
    let fixture = Fixture::new("20s");
    let hello = fixture.hello();
    for more in [
        hello.clone(),
        record(APPLICATION_DATA, &[7; 32]),
        record(HANDSHAKE, &[20, 0, 0, 1, 0]),
        record(ALERT, &[2, HANDSHAKE_FAILURE]),
    ] {
        let begun = Instant::now();
        fixture.answer(&[&hello[..], &more].concat());
        assert!(begun.elapsed() < Duration::from_secs(5));
        fixture.assert_serves();
    }
}

#[test]
fn clients_with_nothing_in_common_are_refused() {
    let fixture = Fixture::new("20s");
    let hello = fixture.hello();
    let no_suites = unknown(&hello, suites(&hello));
    fixture.assert_refused("no suite", &no_suites, Some(HANDSHAKE_FAILURE));
    let groups = extension(&hello, SUPPORTED_GROUPS);
    let no_groups = unknown(&hello, groups.start + 2..groups.end);
    // Both extensions have to name the same groups.
    let shares = extension(&hello, KEY_SHARE);
    let mut at = shares.start + 2;
    let mut neither = no_groups;
    while at < shares.end {
        let len = usize::from(u16_at(&hello, at + 2));
        neither[at..at + 2].fill(0x7f);
        at += 4 + len;
    }
    fixture.assert_refused("no group", &neither, Some(HANDSHAKE_FAILURE));
    let versions = extension(&hello, SUPPORTED_VERSIONS);
    let no_version = unknown(&hello, versions.start + 1..versions.end);
    fixture.assert_refused("no version", &no_version, Some(PROTOCOL_VERSION));
}

/// They are no HTTP, so nobody is told to write another URL.
#[test]
fn records_of_other_types_come_first_in_vain() {
    let fixture = Fixture::new("20s");
    for kind in [CHANGE_CIPHER_SPEC, ALERT, APPLICATION_DATA] {
        let before = fixture.failed();
        let answer = fixture.answer(&record(kind, &[2, HANDSHAKE_FAILURE]));
        assert!(!answer.starts_with(b"HTTP"), "{kind}");
        fixture.assert_failed("a record of another type", before + 1.0);
    }
    fixture.assert_serves();
}

/// Whatever a hello means then, its end ends the connection.
#[test]
fn a_hello_may_have_any_byte_changed() {
    let fixture = Fixture::new("20s");
    let hello = with_short_hello(&fixture);
    let hello = said(&mut session(&hello));
    for at in 0..hello.len() {
        let mut changed = hello.clone();
        changed[at] ^= 1 << (at % 8);
        let mut stream = fixture.socket();
        let _ = stream.write_all(&changed);
        // Fails if the server has reset the connection.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        rest(&mut stream);
    }
    fixture.assert_serves();
}

/// The server waits for the rest of these hellos for as long as for that of a request.
#[test]
fn truncated_hellos_end_in_time() {
    let fixture = Fixture::new("500ms");
    let hello = fixture.hello();
    let begun = Instant::now();
    let cuts = (0..hello.len()).step_by(7).chain([1, 4, 5, 6, 9]);
    let mut streams: Vec<_> = cuts
        .map(|cut| {
            let mut stream = fixture.socket();
            stream.write_all(&hello[..cut]).expect("written");
            stream
        })
        .collect();
    for stream in &mut streams {
        assert_eq!(rest(stream), b"");
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
    // A whole one, and nothing after the answer.
    let mut stream = fixture.socket();
    stream.write_all(&hello).expect("written");
    let begun = Instant::now();
    assert_eq!(rest(&mut stream)[0], HANDSHAKE);
    assert!(begun.elapsed() >= Duration::from_millis(450));
    fixture.assert_serves();
}

/// A byte now and then does not extend the time.
#[test]
fn a_slow_hello_ends_in_time() {
    let fixture = Fixture::new("300ms");
    let hello = fixture.hello();
    let mut stream = fixture.socket();
    let begun = Instant::now();
    for byte in &hello {
        if stream.write_all(&[*byte]).is_err() {
            break;
        }
        pass(Duration::from_millis(10));
    }
    assert!(begun.elapsed() < Duration::from_millis(10) * hello.len() as u32);
    fixture.assert_serves();
}

/// What clients share whose hello has a few hundred bytes.
fn with_short_hello(fixture: &Fixture) -> Arc<ClientConfig> {
    let mut provider = fixture.config.crypto_provider().as_ref().clone();
    provider
        .kx_groups
        .retain(|group| group.name() == NamedGroup::X25519);
    let authority = CertificateDer::from_pem_file(&fixture.authorities);
    let mut roots = RootCertStore::empty();
    roots.add(authority.expect("a certificate")).expect("added");
    let config = ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.into()
}

/// Sends a hello in these pieces, with a pause after each, and expects that the client is served then.
#[track_caller]
fn assert_served_slowly(
    fixture: &Fixture,
    pieces: &[Vec<u8>],
    pause: Duration,
    session: ClientConnection,
) {
    let mut socket = fixture.socket();
    for piece in pieces {
        socket.write_all(piece).expect("written");
        pass(pause);
    }
    let mut stream = StreamOwned::new(session, socket);
    let body = fetch(&mut stream, "/small").expect("a response");
    assert_eq!(body, b"content");
}

fn serve_byte_by_byte(pause: Duration) {
    let fixture = Fixture::new("60s");
    let mut session = session(&with_short_hello(&fixture));
    let hello = said(&mut session);
    let pieces: Vec<_> = hello.iter().map(|&byte| vec![byte]).collect();
    assert_served_slowly(&fixture, &pieces, pause, session);
    fixture.assert_serves();
}

#[test]
fn a_slow_hello_is_answered() {
    serve_byte_by_byte(Duration::from_millis(2));
}

#[test]
#[ignore = "slow: a byte per 50 ms"]
fn a_very_slow_hello_is_answered() {
    serve_byte_by_byte(Duration::from_millis(50));
}

#[test]
fn a_hello_in_records_of_one_byte_is_answered() {
    let fixture = Fixture::new("20s");
    let mut session = session(&fixture.config);
    let hello = said(&mut session);
    let content = &hello[RECORD_HEADER_BYTES..];
    let records: Vec<_> = content
        .iter()
        .map(|&byte| record(HANDSHAKE, &[byte]))
        .collect();
    assert_served_slowly(&fixture, &[records.concat()], Duration::ZERO, session);
    fixture.assert_serves();
}

/// A client whose hello, with the headers of its records, has `bytes`: it knows many protocols.
fn with_long_hello(fixture: &Fixture, bytes: usize) -> ClientConnection {
    let mut config = ClientConfig::clone(&fixture.config);
    let base = said(&mut session(&config.clone().into())).len();
    let headers = (bytes - 1) / (RECORD_BYTES_MAX + RECORD_HEADER_BYTES) * RECORD_HEADER_BYTES;
    let mut missing = bytes - base - headers;
    while missing > 0 {
        // Each has a length of one byte before it.
        let own = missing.min(if missing > 200 { 100 } else { 201 });
        config.alpn_protocols.push(vec![b'x'; own - 1]);
        missing -= own;
    }
    session(&config.into())
}

#[test]
fn a_hello_has_16_kib_at_most() {
    let fixture = Fixture::new("20s");
    for (bytes, is_served) in [
        (16_000, true),
        (16 * 1024, true),
        (16 * 1024 + 1, false),
        (20_000, false),
        (32_000, false),
        (60_000, false),
    ] {
        let mut session = with_long_hello(&fixture, bytes);
        let hello = said(&mut session);
        assert_eq!(hello.len(), bytes);
        match is_served {
            true => assert_served_slowly(&fixture, &[hello], Duration::ZERO, session),
            false => fixture.assert_refused(&format!("{bytes} bytes"), &hello, None),
        }
    }
}

#[test]
fn what_is_broken_after_the_handshake_ends_the_connection() {
    let fixture = Fixture::new("20s");
    let broken = [
        record(APPLICATION_DATA, &[7; 64]),
        record(HANDSHAKE, &[0; 64]),
        record(ALERT, &[2, HANDSHAKE_FAILURE]),
        record(CHANGE_CIPHER_SPEC, &[1]),
        vec![0xff; 64],
    ];
    for bytes in broken {
        let mut stream = connect(fixture.server.address(), &fixture.config);
        stream
            .conn
            .complete_io(&mut stream.sock)
            .expect("a handshake");
        stream.sock.write_all(&bytes).expect("written");
        rest(&mut stream.sock);
    }
    fixture.assert_serves();
}

/// A client may change its keys without end. That takes no memory, and others have their turn.
#[test]
fn new_keys_end_the_connection_at_some_time() {
    let fixture = Fixture::new("20s");
    let mut stream = connect(fixture.server.address(), &fixture.config);
    stream
        .conn
        .complete_io(&mut stream.sock)
        .expect("a handshake");
    let mut sent = 0;
    loop {
        stream.conn.refresh_traffic_keys().expect("TLS 1.3");
        let bytes = said(&mut stream.conn);
        if stream.sock.write_all(&bytes).is_err() {
            break;
        }
        sent += 1;
        assert!(sent < 100_000, "it goes on");
    }
    fixture.assert_serves();
}

const HALF_OPEN: usize = 500;

/// Resident memory that an unfinished handshake may take in bytes.
const HALF_OPEN_BYTES_MAX: usize = 32 * 1024;

#[test]
fn half_open_handshakes_take_little_memory_and_time_out() {
    let fixture = Fixture::new("1500ms");
    fixture.assert_serves();
    let hello = fixture.hello();
    let before = fixture.server.resident_bytes();
    let mut streams: Vec<_> = (0..HALF_OPEN)
        .map(|number| {
            let mut stream = fixture.socket();
            // Half of them wait for an answer to theirs.
            let cut = [hello.len(), hello.len() / 2][number % 2];
            stream.write_all(&hello[..cut]).expect("written");
            stream
        })
        .collect();
    let mut each = 0;
    wait_until("they are open", || {
        let resident = fixture.server.resident_bytes().saturating_sub(before);
        each = each.max(resident / HALF_OPEN);
        fixture.open() == HALF_OPEN as f64
    });
    assert!(each <= HALF_OPEN_BYTES_MAX, "{each} bytes each");
    for stream in &mut streams {
        rest(stream);
    }
    fixture.assert_serves();
}
