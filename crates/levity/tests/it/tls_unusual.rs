//! Certificates and keys that other servers take and this one does not, or takes although its library does not.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::clients::run;
use crate::support::Capture;
use crate::support::certificates::{Authority, Key};
use crate::support::{Launch, Tree};
use crate::tls::{LISTEN, openssl, site};

const LIMIT: Duration = Duration::from_secs(20);

const P256: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256";

/// Runs `openssl` with the words of `command` in `folder`.
#[track_caller]
fn made_by(folder: &Tree, command: &str) {
    let words: Vec<_> = command.split_whitespace().collect();
    let made = run(LIMIT, "openssl", &words, folder.path());
    assert!(made.status.success(), "{command}: {made:?}");
}

/// `NAME.pem` and `NAME.key` for `a.test`, by `openssl req -x509` with these arguments.
fn make(folder: &Tree, name: &str, arguments: &str) {
    let command = format!(
        "req -x509 {arguments} -nodes -days 30 -subj /CN=a.test -keyout {name}.key -out {name}.pem"
    );
    made_by(folder, &command);
    let readable = Permissions::from_mode(0o644);
    fs::set_permissions(folder.at(format!("{name}.key")), readable).expect("chmod");
}

/// `v1.pem` of version 1 of X.509 with its key, and `critical.pem` with an extension that nobody knows.
fn make_unreadable(folder: &Tree) {
    make(folder, "v1", P256);
    for command in [
        "req -new -key v1.key -subj /CN=a.test -out v1.csr",
        "x509 -req -in v1.csr -signkey v1.key -days 30 -out v1.pem",
    ] {
        made_by(folder, command);
    }
    let unknown = "-addext subjectAltName=DNS:a.test -addext 1.2.3.4=critical,DER:0500";
    make(folder, "critical", &format!("{P256} {unknown}"));
}

/// `[site.tls]` with these files of `folder`.
fn table(folder: &Tree, certificate: &str, key: &str) -> String {
    let path = |name: &str| folder.at(name).display().to_string();
    format!(
        "[site.tls]\ncertificates = [\"{}\"]\nkeys = [\"{}\"]\n",
        path(certificate),
        path(key)
    )
}

/// What `levity check` says of a site with `hosts` and these tables.
fn checked(hosts: &str, tables: &str) -> String {
    let tree = Tree::new();
    let config = format!("{LISTEN}{}", site(hosts, &tree, tables));
    let launch = Launch::run(&config);
    let file = launch.own().join("levity.toml");
    let ran = Launch::levity(["check", "-c"]).arguments([file]).ran();
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    ran.stderr
}

#[test]
fn what_cannot_be_used_is_said_in_words() {
    let folder = Tree::new();
    let named = "-addext subjectAltName=DNS:a.test";
    make(&folder, "p256", &format!("{P256} {named}"));
    let curve = "-newkey ec -pkeyopt ec_paramgen_curve:secp256k1";
    make(&folder, "k1", &format!("{curve} {named}"));
    make(&folder, "pss", &format!("-newkey rsa-pss {named}"));
    make(&folder, "ed448", &format!("-newkey ed448 {named}"));
    make(&folder, "unnamed", P256);
    let key = fs::read_to_string(folder.at("p256.key")).expect("read");
    let lines: Vec<_> = key.lines().collect();
    folder.file(
        "cut.key",
        [lines[0], lines[1], lines[lines.len() - 1]].join("\n"),
    );
    let damaged = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";
    folder.file("damaged.pem", damaged);
    folder.file("der.pem", [0x30, 0x82, 1]);
    for (certificate, key, said) in [
        (
            "k1.pem",
            "k1.key",
            "k1.pem: the certificate is for a key of the curve secp256k1; a key here is",
        ),
        (
            "pss.pem",
            "pss.key",
            "pss.pem: the certificate is for a key of RSA-PSS alone; ",
        ),
        (
            "ed448.pem",
            "ed448.key",
            "ed448.pem: the certificate is for a key of Ed448; ",
        ),
        (
            "p256.pem",
            "k1.key",
            "k1.key: the key is one of the curve secp256k1; ",
        ),
        (
            "p256.pem",
            "cut.key",
            "cut.key: the key is damaged, or none that can be used; ",
        ),
        (
            "p256.pem",
            "unnamed.key",
            "unnamed.key: the key is not that of ",
        ),
        (
            "damaged.pem",
            "p256.key",
            "damaged.pem: the certificate is damaged",
        ),
        (
            "der.pem",
            "p256.key",
            "der.pem: there is no certificate in the form of PEM; `openssl x509`",
        ),
        (
            "unnamed.pem",
            "unnamed.key",
            "unnamed.pem has no names (subjectAltName), ",
        ),
    ] {
        let notes = checked("\"a.test\"", &table(&folder, certificate, key));
        assert!(notes.contains(said), "{said}: {notes}");
        for words in ["OtherError", "unexpected error", "Parsing"] {
            assert!(!notes.contains(words), "{notes}");
        }
    }
    let clients = format!(
        "{}client_authorities = \"{}\"\n",
        table(&folder, "p256.pem", "p256.key"),
        folder.at("k1.pem").display()
    );
    let notes = checked("\"a.test\"", &clients);
    let said = "has a key of the curve secp256k1; what it signs is refused";
    assert!(notes.contains(said), "{notes}");
}

#[test]
fn names_that_no_handshake_can_have_are_noted() {
    let notes = checked(
        "\"it's.test\", \"*.a-.test\", \"a_b.test\"",
        "tls = \"internal\"\n",
    );
    for host in ["it's.test", "*.a-.test"] {
        let said = format!("no client can ask for `{host}` over TLS");
        assert!(notes.contains(&said), "{notes}");
    }
    assert_eq!(notes.matches("over TLS").count(), 2, "{notes}");
}

#[test]
fn a_client_that_asks_for_no_name_of_a_host_is_named_as_such() {
    let (tree, authority) = (Tree::new(), Authority::new("authority"));
    authority.certify("a", &["a.test"], Key::Ecdsa);
    let site = site("\"a.test\"", &tree, &authority.table(&["a"]));
    let server = Launch::run(&format!("{LISTEN}{site}")).start();
    openssl(&server, &["-servername", "a..b"]);
    server.says("failed: the peer asks for a name that no host can have (SNI)");
}

/// `openssl s_server` with a certificate of `folder`, ended with the value. It responds to any request.
struct Backend {
    child: Child,
    address: String,
    _said: Capture,
}

impl Backend {
    fn start(folder: &Path, name: &str) -> Self {
        let command = format!(
            "--pdeathsig KILL openssl s_server -www -accept 127.0.0.1:0 -cert {name}.pem -key {name}.key"
        );
        let child = Command::new("setpriv")
            .args(command.split(' '))
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.expect("setpriv of util-linux");
        let said = Capture::start(child.stdout.take().expect("stdout"));
        let line = said.line_with("ACCEPT ").expect("openssl");
        let address = line.trim_start_matches("ACCEPT ").trim().to_owned();
        Self {
            child,
            address,
            _said: said,
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        // It runs until then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_backend_that_is_not_verified_may_have_any_certificate() {
    let folder = Tree::new();
    make_unreadable(&folder);
    make(&folder, "pss", "-newkey rsa-pss");
    for (name, reason) in [
        ("v1", "it is of an old version of X.509"),
        (
            "critical",
            "it has an extension that is critical and unknown here",
        ),
        ("pss", "the peer has found nothing that both ends have"),
    ] {
        let backend = Backend::start(folder.path(), name);
        let upstream = |keys: &str| {
            let to = format!("https://{}", backend.address);
            Launch::proxy(&to, &format!("[upstream.tls]\n{keys}\n")).start()
        };
        upstream("verify = false").get("/").assert_status(200);
        let file = folder.at(format!("{name}.pem"));
        let verified = upstream(&format!(
            "name = \"a.test\"\nauthorities = \"{}\"",
            file.display()
        ));
        verified.get("/").assert_status(502);
        verified.says(reason);
    }
}

/// Clients may accept what the library does not.
#[test]
fn a_site_shows_certificates_that_it_could_not_verify() {
    let (folder, tree) = (Tree::new(), Tree::new());
    make_unreadable(&folder);
    tree.file("index.html", "content");
    for name in ["v1", "critical"] {
        let table = table(&folder, &format!("{name}.pem"), &format!("{name}.key"));
        let site = site("\"a.test\"", &tree, &table);
        let server = Launch::run(&format!("{LISTEN}{site}")).start();
        let said = openssl(&server, &["-servername", "a.test"]);
        assert!(said.contains("subject=CN = a.test"), "{said}");
    }
}
