//! OCSP stapling, with `openssl ocsp` as the responder.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::clients::{curl, run};
use crate::support::certificates::{Authority, SERIAL};
use crate::support::{Capture, Launch, Server, Tree, wait_until};

const LIMIT: Duration = Duration::from_secs(20);

/// What a client says that has got a response.
const GOOD: &str = "Cert Status: good";

/// What one says that has got none.
const NONE: &str = "OCSP response: no response sent";

/// A responder in a process of its own, ended with the value.
struct Responder {
    child: Child,
    url: String,
}

impl Responder {
    /// The responder of `authority`, whose certificate with the number `SERIAL` has this status in its index: `V` for valid,
    /// `R` for revoked.
    fn start(authority: &Authority, status: char) -> Self {
        let revoked = if status == 'R' { "250101000000Z" } else { "" };
        let index = format!("{status}\t400101000000Z\t{revoked}\t{SERIAL}\tunknown\t/CN=any\n");
        fs::write(authority.folder().join("index"), index).expect("written");
        let fixed = "--pdeathsig KILL openssl ocsp -port 0 -index index -CA ca.pem -rsigner ca.pem -rkey ca.key -ndays 4";
        let child = Command::new("setpriv")
            .args(fixed.split(' '))
            .current_dir(authority.folder())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.expect("setpriv of util-linux");
        let said = Capture::start(child.stdout.take().expect("stdout"));
        let line = said.line_with("ACCEPT ");
        // `ACCEPT [::]:41629 PID=2199`
        let port = line.as_deref().and_then(|line| line.split(' ').nth(1));
        let port = port.and_then(|address| address.rsplit(':').next());
        let port = port.expect("openssl: run `cargo xtask test`, which installs it");
        Self {
            url: format!("http://127.0.0.1:{port}/ocsp"),
            child,
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        // It runs until then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder for the state of servers.
fn state() -> Tree {
    let state = Tree::new();
    state.folder("tls");
    state.chmod("tls", 0o777);
    state
}

/// A server of `tree` as `a.test`.
fn launch(tree: &Tree, authority: &Authority, state: &Tree) -> Launch {
    let (root, folder) = (tree.path().display(), state.at("tls"));
    let table = authority.table(&["a"]);
    Launch::run(&format!(
        "[tls]\nfolder = {folder:?}\n[[listen]]\naddress = \"127.0.0.1:0\"\ntls = true\n\
         [[site]]\nhosts = [\"a.test\"]\nroot = \"{root}\"\n{table}"
    ))
}

/// What `openssl s_client` says of the status of the certificate.
fn status(server: &Server, version: &str) -> String {
    let address = server.address().to_string();
    let arguments = ["s_client", "-connect", &address, "-status", version];
    let output = run(LIMIT, "openssl", &arguments, Path::new("/"));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn wait_for_staple(server: &Server) {
    wait_until("the certificate has a response", || {
        status(server, "-tls1_3").contains(GOOD)
    });
}

#[test]
fn clients_get_a_response_that_outlives_reloads_and_restarts() {
    let (tree, authority, state) = (Tree::new(), Authority::new("authority"), state());
    tree.file("index.html", "content");
    let responder = Responder::start(&authority, 'V');
    authority.certify_with_responder("a", "a.test", &responder.url);
    let server = launch(&tree, &authority, &state).start();
    wait_for_staple(&server);
    let said = status(&server, "-tls1_2");
    assert!(said.contains(GOOD), "{said}");
    drop(responder);
    let port = server.address().port();
    let url = format!("https://a.test:{port}/");
    let (resolve, ca) = (format!("a.test:{port}:127.0.0.1"), authority.file("ca.pem"));
    let got = curl(
        &[
            "--cert-status",
            "--resolve",
            &resolve,
            "--cacert",
            &ca,
            &url,
        ],
        tree.path(),
    );
    assert_eq!(got, b"content");
    server.reload(&[], &[]);
    let said = status(&server, "-tls1_3");
    assert!(said.contains(GOOD), "{said}");
    drop(server);
    let server = launch(&tree, &authority, &state).start();
    let said = status(&server, "-tls1_3");
    assert!(said.contains(GOOD), "{said}");
    assert!(!server.stderr().contains("OCSP"), "{}", server.stderr());
}

#[test]
fn service_goes_on_without_a_responder_and_a_new_certificate_is_asked_about() {
    let (tree, authority, state) = (Tree::new(), Authority::new("authority"), state());
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let down = format!("http://{}/", port.local_addr().expect("an address"));
    drop(port);
    authority.certify_with_responder("a", "a.test", &down);
    let server = launch(&tree, &authority, &state).start();
    let line = format!("no usable OCSP response for the certificate of a.test from {down}: ");
    let said = server.says(&line);
    assert!(said.contains("Connection refused"), "{said}");
    assert!(status(&server, "-tls1_3").contains(NONE));
    let responder = Responder::start(&authority, 'V');
    authority.certify_with_responder("a", "a.test", &responder.url);
    wait_for_staple(&server);
    assert_eq!(server.stderr().matches(&line).count(), 1);
}

#[test]
fn a_revoked_certificate_is_reported() {
    let (tree, authority, state) = (Tree::new(), Authority::new("authority"), state());
    let responder = Responder::start(&authority, 'R');
    authority.certify_with_responder("a", "a.test", &responder.url);
    let server = launch(&tree, &authority, &state).start();
    server.says("its issuer has revoked it; replace it");
    assert!(status(&server, "-tls1_3").contains(NONE));
}

#[test]
fn a_response_that_cannot_be_kept_is_used() {
    let (tree, authority, state) = (Tree::new(), Authority::new("authority"), state());
    // No folder can have this name.
    state.file("tls/ocsp", "");
    let responder = Responder::start(&authority, 'V');
    authority.certify_with_responder("a", "a.test", &responder.url);
    let server = launch(&tree, &authority, &state).start();
    server.says("the OCSP response for the certificate of a.test is in memory only: ");
    wait_for_staple(&server);
    server.reload(&[], &[]);
    let said = status(&server, "-tls1_3");
    assert!(said.contains(GOOD), "{said}");
}

#[test]
fn a_chain_without_an_issuer_is_reported() {
    let (tree, authority, state) = (Tree::new(), Authority::new("authority"), state());
    authority.certify_with_responder("a", "a.test", "http://127.0.0.1/");
    let chain = fs::read_to_string(authority.file("a.pem")).expect("read");
    let (leaf, rest) = chain.split_at(chain.rfind("-----BEGIN").expect("a second one"));
    assert!(!rest.is_empty());
    fs::write(authority.file("a.pem"), leaf).expect("written");
    let server = launch(&tree, &authority, &state).start();
    server.says("its chain lacks the certificate of its issuer");
    assert!(status(&server, "-tls1_3").contains(NONE));
}
