//! Sites whose certificates, or whose authorities of clients, cannot be used when the server starts.

use std::fs;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;

use crate::support::certificates::{Authority, Key};
use crate::support::{Launch, Server, Tree, wait_until};
use crate::tls::{LISTEN, fails, get, site};

/// Two sites of `tree`, `b.test` before `a.test`, with certificates of `authority`, and these keys of `b.test`.
fn launch(tree: &Tree, authority: &Authority, keys: &str) -> Launch {
    for name in ["a", "b"] {
        authority.certify(name, &[&format!("{name}.test")], Key::Ecdsa);
    }
    tree.file("index.html", "content");
    let b = site("\"b.test\"", tree, &(authority.table(&["b"]) + keys));
    let a = site("\"a.test\"", tree, &authority.table(&["a"]));
    Launch::run(&format!("{LISTEN}{b}{a}"))
}

/// Expects that `levity check` finds no error, and notes `part`.
#[track_caller]
fn notes(server: &Server, part: &str) {
    let check = Launch::levity(["check", "-c"]).arguments([server.config()]);
    let ran = check.ran();
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains(part), "{}", ran.stderr);
}

#[test]
fn a_missing_certificate_stops_no_other_site() {
    let (tree, authority) = (Tree::new(), Authority::new("authority"));
    let launch = launch(&tree, &authority, "");
    let (file, aside) = (authority.file("b.pem"), authority.file("aside"));
    fs::rename(&file, &aside).expect("renamed");
    let server = launch.start();
    server.says("certificates of b.test cannot be used: ");
    notes(&server, "b.pem cannot be read: No such file");
    let served = || get(&server, &authority, "a.test", "/", &[]);
    let refused = || fails(&server, &authority, "b.test", &[]) != 0;
    assert_eq!(served(), b"content");
    assert!(refused());
    server.says("there is no certificate for b.test");
    // What was wrong before keeps no change out.
    server.reload(&["[log]"], &["[log]\ntiming = \"chunk\""]);
    assert_eq!(served(), b"content");
    assert!(refused());
    fs::rename(&aside, &file).expect("renamed");
    server.says("certificates were read again");
    assert_eq!(get(&server, &authority, "b.test", "/", &[]), b"content");
}

#[test]
fn a_reload_has_no_site_lose_its_certificate() {
    let (tree, authority) = (Tree::new(), Authority::new("authority"));
    let server = launch(&tree, &authority, "").start();
    let config = fs::read_to_string(server.config()).expect("read");
    fs::write(server.config(), config.replace("/b.pem", "/none.pem")).expect("written");
    server.signal(Signal::HUP);
    let line = server.says("configuration not reloaded");
    assert!(line.contains("none.pem cannot be read"), "{line}");
    assert_eq!(get(&server, &authority, "b.test", "/", &[]), b"content");
}

#[test]
fn nobody_comes_while_nobody_could_prove_who_it_is() {
    let (tree, authority) = (Tree::new(), Authority::new("authority"));
    let file = authority.file("clients.pem");
    let keys = format!("client_authorities = \"{file}\"\n");
    let server = launch(&tree, &authority, &keys).start();
    authority.certify("ann", &["ann.test"], Key::Ecdsa);
    let (pem, key) = (authority.file("ann.pem"), authority.file("ann.key"));
    let ann = ["--cert", &pem, "--key", &key];
    server.says("authorities of clients of b.test cannot be used: ");
    notes(&server, "clients.pem cannot be read: No such file");
    for more in [&[][..], &ann] {
        assert_ne!(fails(&server, &authority, "b.test", more), 0);
    }
    // Nor by way of another site.
    let host = format!("Host: b.test:{}", server.address().port());
    let more = ["--header", &host, "--output", "/dev/null"];
    assert_eq!(fails(&server, &authority, "a.test", &more), 0);
    server.prints("\"status\":421");
    fs::copy(authority.file("ca.pem"), file).expect("copied");
    server.says("certificates were read again");
    assert_eq!(get(&server, &authority, "b.test", "/", &ann), b"content");
    assert_ne!(fails(&server, &authority, "b.test", &[]), 0);
}

#[test]
fn an_expired_authority_lets_nobody_in() {
    let (tree, authority) = (Tree::new(), Authority::new("authority"));
    let hour = Duration::from_secs(60 * 60);
    let expired = Authority::until("expired", SystemTime::now() - hour);
    expired.certify("ann", &["ann.test"], Key::Ecdsa);
    let keys = format!("client_authorities = \"{}\"\n", expired.file("ca.pem"));
    let server = launch(&tree, &authority, &keys).start();
    notes(&server, "the authority `expired` in ");
    let line = server.says("has expired 1 hour ago; its certificates are refused");
    assert!(line.contains("the authority `expired`"), "{line}");
    let (pem, key) = (expired.file("ann.pem"), expired.file("ann.key"));
    let ann = ["--cert", &pem, "--key", &key];
    assert_ne!(fails(&server, &authority, "b.test", &ann), 0);
    server.says("failed: the certificate of the peer is not valid: its authority has expired");
}

/// An upstream whose files cannot be used is no reason to serve nobody.
#[test]
fn a_missing_file_of_an_upstream_stops_nothing_else() {
    let (tree, authority) = (Tree::new(), Authority::new("authority"));
    authority.certify("a", &["a.test"], Key::Ecdsa);
    tree.file("index.html", "content");
    let backend = site("\"a.test\"", &tree, &authority.table(&["a"]));
    let backend = Launch::run(&format!("{LISTEN}{backend}")).start();
    let (ca, key) = (tree.at("ca.pem"), tree.at("a.key"));
    let config = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"app\"\nto = [\"https://{}\"]\nfail_after = 100\nkeep_alive = 0\n\
         [upstream.tls]\nname = \"a.test\"\nauthorities = \"{}\"\ncertificate = \"{}\"\nkey = \"{}\"\n\
         [[site]]\nroot = \"{}\"\n[[site.route]]\npath = \"/app/*\"\nproxy = \"app\"\nstrip_prefix = \"/app\"\n\
         request_headers.set = {{ Host = \"a.test\" }}\n",
        backend.address(),
        ca.display(),
        authority.file("a.pem"),
        key.display(),
        tree.path().display(),
    );
    let server = Launch::run(&config).start();
    notes(&server, "ca.pem cannot be read: No such file");
    notes(
        &server,
        "no backend of the upstream is reached until it can be used",
    );
    server.get("/index.html").assert_status(200);
    server.get("/app/index.html").assert_status(502);
    // What was wrong before keeps no change out.
    server.reload(&["[[site]]"], &["[limits]\nheaders = 99\n[[site]]"]);
    fs::copy(authority.file("ca.pem"), &ca).expect("copied");
    fs::copy(authority.file("a.key"), &key).expect("copied");
    server.says("upstream app: the files of `tls` were read");
    assert_eq!(server.get("/app/index.html").text(), "content");
    // Later changes are followed as well.
    let other = Authority::new("other");
    fs::write(&ca, "none").expect("written");
    let line = server.says("ca.pem: there is no certificate in the form of PEM");
    assert!(line.ends_with("; those from before stay in use"), "{line}");
    assert_eq!(server.get("/app/index.html").text(), "content");
    let is = |status: u16| server.get("/app/index.html").status == status;
    fs::copy(other.file("ca.pem"), &ca).expect("copied");
    wait_until("the backend is not trusted", || is(502));
    fs::copy(authority.file("ca.pem"), &ca).expect("copied");
    wait_until("it is again", || is(200));
    let config = fs::read_to_string(server.config()).expect("read");
    fs::write(server.config(), config.replace("/ca.pem", "/none.pem")).expect("written");
    server.signal(Signal::HUP);
    let line = server.says("configuration not reloaded");
    assert!(line.contains("none.pem cannot be read"), "{line}");
}

#[cfg(feature = "acme")]
#[test]
fn missing_authorities_of_an_acme_authority_are_noted() {
    let tree = Tree::new();
    let config = format!(
        "[[acme.authority]]\ndirectory = \"https://ca.lan/acme\"\nroots = \"none.pem\"\n[[site]]\nroot = \"{}\"\n",
        tree.path().display()
    );
    let file = tree.file("levity.toml", config);
    let check = Launch::levity(["check"]).arguments([file]).ran();
    assert_eq!(check.status, 0, "{}", check.stderr);
    let note = "none.pem cannot be read: No such file or directory";
    assert!(check.stderr.contains(note), "{}", check.stderr);
    let note = "; the authority signs nothing until it can be used";
    assert!(check.stderr.contains(note), "{}", check.stderr);
}

/// Whoever is asked by this server is trusted by them all the same.
#[cfg(feature = "acme")]
#[test]
fn expired_authorities_of_others_are_noted() {
    let hour = Duration::from_secs(60 * 60);
    let expired = Authority::until("expired", SystemTime::now() - hour);
    let (tree, ca) = (Tree::new(), expired.file("ca.pem"));
    let config = format!(
        "[[upstream]]\nname = \"app\"\nto = [\"https://127.0.0.1:1\"]\n\
         [upstream.tls]\nauthorities = \"{ca}\"\n\
         [[acme.authority]]\ndirectory = \"https://ca.lan/acme\"\nroots = \"{ca}\"\n\
         [[site]]\nproxy = \"app\"\n"
    );
    let file = tree.file("levity.toml", config);
    let check = Launch::levity(["check"]).arguments([file]).ran();
    assert_eq!(check.status, 0, "{}", check.stderr);
    for line in [5, 8] {
        let note = format!(
            "line {line}: the authority `expired` in {ca} has expired 1 hour ago; its certificates are accepted all the same"
        );
        assert!(check.stderr.contains(&note), "{}", check.stderr);
    }
}

#[test]
fn a_machine_without_authorities_is_told_in_one_line() {
    let tree = Tree::new();
    let upstream = |name: &str, more: &str| {
        format!("[[upstream]]\nname = \"{name}\"\nto = [\"https://127.0.0.1:9\"]\n{more}")
    };
    let start = |more: &str| {
        let config = format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\n{}{}[[site]]\nproxy = \"a\"\n[[site.route]]\npath = \"/b/*\"\nproxy = \"b\"\n",
            upstream("a", more),
            upstream("b", more)
        );
        let nothing = tree.folder("none").display().to_string();
        let server = Launch::run(&config)
            .environment("SSL_CERT_DIR", &nothing)
            .environment("SSL_CERT_FILE", &format!("{nothing}/none.crt"))
            .start();
        server.stderr()
    };
    let line =
        "install `ca-certificates`, or name a file: no backend with `https://` can be verified\n";
    let said = start("");
    assert_eq!(said.matches(line).count(), 1, "{said}");
    let said = start("tls = { verify = false }\n");
    assert!(!said.contains("ca-certificates"), "{said}");
}
