//! gRPC through the server: a service and a client in Go, with the library that most programs use.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::clients::run;
use crate::support::certificates::{Authority, Key};
use crate::support::{Launch, Server, Tree};
use crate::tls::{LISTEN, site};

const LIMIT: Duration = Duration::from_secs(90);

/// The calls of the client, in their order.
const CALLS: &str =
    "unary\nlarge\nfail\ncount\ncollect\ntalk\nbreak\nunknown\ndeadline\ncancel\nparallel\n";

/// The requests that they are, with those that ask for the end of another.
const REQUESTS: f64 = 12.0 + 200.0;

const KEYS: &str = "protocol = \"h2\"\n";

fn program() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/go/bin/grpc");
    assert!(
        path.exists(),
        "no {}: run `cargo xtask test`",
        path.display()
    );
    path
}

/// A running service, which ends with the value.
struct Service {
    child: Child,
    address: String,
}

impl Service {
    /// With a certificate and its key, or without TLS.
    fn start(files: &[String]) -> Self {
        let mut command = Command::new(program());
        command.arg("serve").args(files);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let mut address = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        let read = BufReader::new(stdout).read_line(&mut address);
        read.expect("an address");
        Self {
            child,
            address: address.trim_end().to_owned(),
        }
    }

    fn port(&self) -> &str {
        self.address.rsplit_once(':').expect("a port").1
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("it ends with its input");
    }
}

/// Makes all calls to `server`.
#[track_caller]
fn call_all(server: &Server, authority: &[&str]) {
    let program = program();
    let program = program.to_str().expect("a path in UTF-8");
    let address = server.address().to_string();
    let arguments = [&["call", &address], authority].concat();
    let output = run(LIMIT, program, &arguments, Tree::new().path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        CALLS,
        "{said}{}",
        server.stderr()
    );
}

/// `[[upstream]]` with a backend over TLS that `authority` has certified.
fn encrypted(port: &str, authority: &Authority) -> String {
    format!(
        "[[upstream]]\nname = \"app\"\nprotocol = \"h2\"\nto = [\"https://127.0.0.1:{port}\"]\n\
         [upstream.tls]\nname = \"a.test\"\nauthorities = \"{}\"\n",
        authority.file("ca.pem")
    )
}

fn certified() -> Authority {
    let authority = Authority::new("authority");
    authority.certify("a", &["a.test"], Key::Ecdsa);
    authority
}

#[test]
fn every_kind_of_call() {
    let service = Service::start(&[]);
    let keys = format!(
        "{KEYS}[admin]\nlisten = \"unix:{{own}}/admin\"\n[limits]\nbody_bytes = \"16MiB\"\n"
    );
    let server = Launch::proxy(&service.address, &keys).workers(1).start();
    call_all(&server, &[]);
    let metrics = server.metrics(&server.own("admin"));
    let count = |name: &str| metrics.sum(&format!("levity_upstream_{name}"));
    // They share a few connections.
    let made = count("connections_made_total");
    assert!((1.0..=3.0).contains(&made), "{made}");
    assert_eq!(made + count("connections_reused_total"), REQUESTS);
    assert_eq!(
        count("connections{upstream=\"app\",backend=\"\",state=\"in_use\"}"),
        0.0
    );
}

#[test]
fn every_kind_of_call_over_tls() {
    let (tree, authority) = (Tree::new(), certified());
    let service = Service::start(&["a.pem", "a.key"].map(|name| authority.file(name)));
    let upstream = encrypted(service.port(), &authority);
    let keys = format!(
        "proxy = \"app\"\nbody_bytes = \"16MiB\"\n{}",
        authority.table(&["a"])
    );
    let site = site("\"a.test\"", &tree, &keys);
    let server = Launch::run(&format!("{LISTEN}{site}{upstream}")).start();
    call_all(&server, &[&authority.file("ca.pem")]);
}

#[test]
fn a_service_that_is_not_there() {
    let service = Service::start(&[]);
    let address = service.address.clone();
    drop(service);
    let server = Launch::proxy(&address, KEYS).start();
    let said = failure("call", &server);
    // The client would say of an ordinary response that it has an unexpected status.
    assert!(
        said.contains("code = Unavailable desc = levity; error=connection_refused"),
        "{said}"
    );
    server.says("cannot connect: ");
}

/// What the client says that fails at `server`.
#[track_caller]
fn failure(command: &str, server: &Server) -> String {
    let arguments = [command, &server.address().to_string()];
    let program = program();
    let program = program.to_str().expect("a path in UTF-8");
    let output = run(LIMIT, program, &arguments, Tree::new().path());
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The client waits for an answer before it sends a message.
#[test]
fn a_call_that_is_refused_by_a_gate() {
    let tree = Tree::new();
    let limits = "[limits]\nbody_timeout = \"1h\"\n";
    let server = Launch::site(tree.path(), limits, "deny = [\"127.0.0.1\"]\n").start();
    let said = failure("wait", &server);
    assert!(said.contains("code = PermissionDenied"), "{said}");
}

/// A server that chooses HTTP/1.1 in a handshake, or nothing, and does that once.
fn another_protocol(authority: &Authority, chooses: &[&[u8]]) -> (String, JoinHandle<()>) {
    let files = ["a.pem", "a.key"].map(|name| authority.file(name));
    let chain = CertificateDer::pem_file_iter(&files[0]).expect("a file");
    let chain = chain.collect::<Result<_, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_file(&files[1]).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions");
    let config = config.with_no_client_auth().with_single_cert(chain, key);
    let mut config = config.expect("a configuration");
    config.alpn_protocols = chooses.iter().map(|name| name.to_vec()).collect();
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener
        .local_addr()
        .expect("an address")
        .port()
        .to_string();
    let serving = thread::spawn(move || {
        let (stream, _) = listener.accept().expect("accept");
        let session = ServerConnection::new(Arc::new(config)).expect("a session");
        let mut stream = StreamOwned::new(session, stream);
        // The client closes at once, or the handshake fails.
        let _ = stream
            .write_all(b"")
            .and_then(|()| stream.read_to_end(&mut Vec::new()));
    });
    (port, serving)
}

#[test]
fn a_backend_that_chooses_another_protocol() {
    let (tree, authority) = (Tree::new(), certified());
    let cases: [(&[&[u8]], &str, &str); 2] = [
        (
            &[],
            "tls_protocol_error",
            "TLS: the backend does not speak HTTP/2: it has chosen no protocol (ALPN)",
        ),
        (
            &[b"http/1.1"],
            "tls_alert_received",
            "TLS: the peer does not speak the protocol that it is asked for (ALPN)",
        ),
    ];
    for (chooses, kind, reason) in cases {
        let (port, serving) = another_protocol(&authority, chooses);
        let upstream = encrypted(&port, &authority);
        let server = Launch::site(tree.path(), &upstream, "proxy = \"app\"\n").start();
        let answer = server.get("/");
        answer.assert_status(502);
        let expected = format!("levity; error={kind}");
        assert_eq!(answer.field("proxy-status"), expected);
        server.says(reason);
        serving.join().expect("it has ended");
    }
}

/// Checks of health, `levity explain` and `/status` know the protocol.
#[test]
fn a_service_over_http2_that_is_checked() {
    let (tree, backend_tree) = (Tree::new(), Tree::new());
    backend_tree.file("health", "well");
    let backend = Launch::serve(backend_tree.path()).start();
    let upstream = format!(
        "[admin]\nlisten = \"unix:{{own}}/admin\"\n[[upstream]]\nname = \"app\"\nprotocol = \"h2\"\nto = [\"{}\"]\n\
         [upstream.check]\npath = \"/absent\"\ninterval = \"50ms\"\nfall = 1\nrise = 1\n",
        backend.address()
    );
    let server = Launch::site(tree.path(), &upstream, "proxy = \"app\"\n").start();
    server.says("upstream app: h2, round-robin: ");
    server.says("GET /absent of host 127.0.0.1");
    server.says("it answered 404");
    backend_tree.file("absent", "there");
    server.says("is back");
    assert_eq!(server.get("/health").body, b"well");
}
