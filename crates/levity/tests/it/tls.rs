//! TLS with clients.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use levity_tls::{Trust, client_config};
use rustix::process::Signal;
use rustls::{ClientConnection, StreamOwned};

use crate::clients::{curl, run};
use crate::support::certificates::{Authority, Key};
use crate::support::{Client, Launch, Server, Tree, WAIT_MAX, assert_same, per_engine, wait_until};

const LIMIT: Duration = Duration::from_secs(20);

pub const LISTEN: &str = "[log]\naccess = \"stdout\"\nformat = \"json\"\n[admin]\nlisten = \"unix:{own}/admin\"\n\
                      [[listen]]\naddress = \"127.0.0.1:0\"\ntls = true\n";

/// A site with `hosts`, and its tables.
pub fn site(hosts: &str, root: &Tree, tables: &str) -> String {
    format!(
        "[[site]]\nhosts = [{hosts}]\nroot = \"{}\"\n{tables}",
        root.path().display()
    )
}

/// A server of `tree` as `a.test`.
fn single(tree: &Tree, authority: &Authority) -> Launch {
    authority.certify("a", &["a.test"], Key::Ecdsa);
    let site = site("\"a.test\"", tree, &authority.table(&["a"]));
    Launch::run(&format!("{LISTEN}{site}"))
}

/// The arguments by which curl takes `host` for the server, and trusts `authority`.
fn at(host: &str, address: SocketAddr, authority: &Authority) -> Vec<String> {
    let resolve = format!("{host}:{}:{}", address.port(), address.ip());
    let ca = authority.file("ca.pem");
    ["--resolve", &resolve, "--cacert", &ca]
        .map(str::to_owned)
        .to_vec()
}

fn https(host: &str, address: SocketAddr, path: &str) -> String {
    format!("https://{host}:{}{path}", address.port())
}

/// What curl gets at `path` of `host`, with further arguments.
#[track_caller]
pub fn get(
    server: &Server,
    authority: &Authority,
    host: &str,
    path: &str,
    more: &[&str],
) -> Vec<u8> {
    let address = server.address();
    let mut arguments = at(host, address, authority);
    arguments.extend(more.iter().map(|&one| one.to_owned()));
    arguments.push(https(host, address, path));
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    curl(&arguments, authority.folder())
}

/// The exit status of curl that is to fail.
#[track_caller]
pub fn fails(server: &Server, authority: &Authority, host: &str, more: &[&str]) -> i32 {
    let address = server.address();
    let mut arguments = at(host, address, authority);
    arguments.extend(["--silent", "--noproxy", "*"].map(str::to_owned));
    arguments.extend(more.iter().map(|&one| one.to_owned()));
    arguments.push(https(host, address, "/"));
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let output = run(LIMIT, "curl", &arguments, authority.folder());
    output.status.code().expect("a status")
}

/// What `openssl s_client` says, with nothing to send.
pub fn openssl(server: &Server, more: &[&str]) -> String {
    let address = server.address().to_string();
    let fixed = ["s_client", "-connect", &address];
    let output: Output = run(LIMIT, "openssl", &[&fixed, more].concat(), Path::new("/"));
    let [out, err] = [output.stdout, output.stderr];
    String::from_utf8_lossy(&out).into_owned() + &String::from_utf8_lossy(&err)
}

per_engine! {
    fn files_arrive_whole(engine) {
        let tree = Tree::new();
        let authority = Authority::new("authority");
        let bytes = tree.filled("file.bin", 3_000_000);
        tree.file("small", "content");
        let server = single(&tree, &authority).engine(engine).start();
        assert_same(&get(&server, &authority, "a.test", "/file.bin", &[]), &bytes);
        let range = ["--range", "1000-1999"];
        assert_same(&get(&server, &authority, "a.test", "/file.bin", &range), &bytes[1000..2000]);
        // Two on one connection.
        let again = https("a.test", server.address(), "/small");
        let both = get(&server, &authority, "a.test", "/small", &[&again]);
        assert_eq!(both, b"contentcontent");
    }
}

#[test]
fn each_site_has_its_certificate() {
    let (one, two) = (Tree::new(), Tree::new());
    one.file("index.html", "one");
    two.file("index.html", "two");
    let authority = Authority::new("authority");
    authority.certify("one", &["one.test", "*.one.test"], Key::Ecdsa);
    authority.certify("two", &["two.test"], Key::Rsa);
    let sites = site(
        "\"one.test\", \"*.one.test\"",
        &one,
        &authority.table(&["one"]),
    ) + &site("\"two.test\"", &two, &authority.table(&["two"]));
    let server = Launch::run(&format!("{LISTEN}{sites}")).start();
    for (host, content) in [
        ("one.test", "one"),
        ("a.ONE.test", "one"),
        ("two.test", "two"),
    ] {
        let got = get(&server, &authority, host, "/", &[]);
        assert_eq!(String::from_utf8_lossy(&got), content, "{host}");
    }
    // The order of sites decides nothing, so there is none for other names: curl says 35.
    assert_eq!(fails(&server, &authority, "three.test", &[]), 35);
    server.says("there is no certificate for three.test");
}

#[test]
fn a_client_gets_the_certificate_that_it_can_verify() {
    let tree = Tree::new();
    let authority = Authority::new("authority");
    authority.certify("rsa", &["a.test"], Key::Rsa);
    authority.certify("ec", &["a.test"], Key::Ecdsa);
    let site = site("\"a.test\"", &tree, &authority.table(&["rsa", "ec"]));
    let server = Launch::run(&format!("{LISTEN}{site}")).start();
    let name = ["-servername", "a.test"];
    let modern = openssl(&server, &name);
    assert!(
        modern.contains("Peer signature type: ecdsa_secp256r1_sha256")
            || modern.contains("Peer signature type: ECDSA"),
        "{modern}"
    );
    let old = ["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"];
    let old = openssl(&server, &[&name[..], &old].concat());
    assert!(
        old.contains("Cipher is ECDHE-RSA-AES128-GCM-SHA256"),
        "{old}"
    );
}

#[test]
fn a_session_is_resumed_at_any_event_loop() {
    let tree = Tree::new();
    let authority = Authority::new("authority");
    let server = single(&tree, &authority).workers(4).start();
    let said = openssl(&server, &["-servername", "a.test", "-tls1_2", "-reconnect"]);
    assert_eq!(said.matches("Reused, TLSv1.2").count(), 5, "{said}");
    let metrics = server.metrics(&server.own("admin"));
    let count = |result: &str| {
        metrics.sum(&format!(
            "levity_tls_handshakes_total{{result=\"{result}\"}}"
        ))
    };
    assert_eq!(
        (count("full"), count("resumed"), count("failed")),
        (1.0, 5.0, 0.0)
    );
}

#[test]
fn old_clients_are_refused_in_words() {
    let tree = Tree::new();
    let authority = Authority::new("authority");
    let server = single(&tree, &authority).start();
    let old = ["-tls1_1", "-cipher", "DEFAULT:@SECLEVEL=0"];
    let said = openssl(&server, &old);
    assert!(said.contains("alert"), "{said}");
    server.says("TLS handshake with 127.0.0.1 failed: the peer speaks older versions of TLS only");
}

/// An alert that scanners know.
#[test]
fn a_client_that_can_verify_no_certificate_is_told_so() {
    let tree = Tree::new();
    let authority = Authority::new("authority");
    let server = single(&tree, &authority).start();
    for version in ["-tls1_2", "-tls1_3"] {
        let said = openssl(&server, &[version, "-sigalgs", "rsa_pss_rsae_sha256"]);
        assert!(said.contains("alert handshake failure"), "{said}");
    }
}

/// As curl does with `--http1.0`.
#[test]
fn a_client_may_offer_http_1_0_alone() {
    let tree = Tree::new();
    tree.file("index.html", "content");
    let authority = Authority::new("authority");
    let server = single(&tree, &authority).start();
    let said = openssl(&server, &["-alpn", "http/1.0"]);
    assert!(said.contains("ALPN protocol: http/1.0"), "{said}");
    let said = openssl(&server, &["-alpn", "http/1.0,http/1.1"]);
    assert!(said.contains("ALPN protocol: http/1.1"), "{said}");
    let content = get(&server, &authority, "a.test", "/", &["--http1.0"]);
    assert_eq!(content, b"content");
}

#[test]
fn plain_http_at_a_port_for_https_is_told_so() {
    let tree = Tree::new();
    let authority = Authority::new("authority");
    let server = single(&tree, &authority).start();
    let answer = server.get("/");
    answer.assert_status(400);
    assert!(
        answer.text().contains("write https:// in the URL"),
        "{}",
        answer.text()
    );
    server.says("what the client has sent is not TLS");
}

#[test]
fn plain_requests_are_redirected() {
    let tree = Tree::new();
    tree.file("index.html", "content");
    let authority = Authority::new("authority");
    authority.certify("a", &["a.test"], Key::Ecdsa);
    let table = authority.table(&["a"]) + "hsts = \"365d\"\n";
    let plain = "[[listen]]\naddress = \"127.0.0.1:0\"\n";
    let tls = "[[listen]]\naddress = \"[::1]:0\"\ntls = true\n";
    let sites = site("\"a.test\"", &tree, &table);
    let server = Launch::run(&format!("{plain}{tls}{sites}")).start();
    let answer = server.client().get_for("a.test:8080", "/x%20y?a=b");
    answer.assert_status(308);
    assert_eq!(answer.field("Location"), "https://a.test/x%20y?a=b");
    assert_eq!(answer.header("Strict-Transport-Security"), None);
    let address = server.addresses()[1];
    let resolve = format!("a.test:{}:[::1]", address.port());
    let ca = authority.file("ca.pem");
    let url = https("a.test", address, "/");
    let arguments = ["--include", "--resolve", &resolve, "--cacert", &ca, &url];
    let answer = String::from_utf8(curl(&arguments, tree.path())).expect("text");
    assert!(
        answer
            .to_ascii_lowercase()
            .contains("strict-transport-security: max-age=31536000\r\n"),
        "{answer}"
    );
    assert!(answer.ends_with("content"), "{answer}");
}

/// As that of a container whose ports 8080 and 8443 are 80 and 443 outside.
#[test]
fn a_redirect_behind_mapped_ports_names_none() {
    let tree = Tree::new();
    let authority = Authority::new("authority");
    authority.certify("a", &["a.test"], Key::Ecdsa);
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let tls = free.expect("a port");
    let plain = "[[listen]]\naddress = \"127.0.0.1:0\"\n";
    let tables = format!("{plain}[[listen]]\naddress = \"{tls}\"\ntls = true\n");
    let site = site("\"a.test\"", &tree, &authority.table(&["a"]));
    let server = Launch::run(&format!("{tables}{site}")).start();
    let own = format!("https://a.test:{}/", tls.port());
    for (host, location) in [
        ("a.test:8080", &*own),
        ("a.test", "https://a.test/"),
        ("a.test:80", "https://a.test/"),
    ] {
        let answer = server.client().get_for(host, "/");
        assert_eq!(answer.field("Location"), location, "{host}");
    }
}

#[test]
fn the_folder_of_the_state_is_made_for_what_is_kept_of_own_certificates() {
    let tree = Tree::new();
    let authority = Authority::new("authority");
    let launch = single(&tree, &authority);
    let folder = launch.own().join("state").display().to_string();
    let server = launch.environment("STATE_DIRECTORY", &folder).start();
    assert!(server.own("state/tls").is_dir());
}

#[test]
fn clients_prove_who_they_are() {
    let tree = Tree::new();
    tree.file("index.html", "content");
    let (authority, other) = (Authority::new("authority"), Authority::new("other"));
    authority.certify("a", &["a.test"], Key::Ecdsa);
    authority.certify("b", &["b.test"], Key::Ecdsa);
    authority.certify("ann", &["ann.test"], Key::Ecdsa);
    other.certify("eve", &["ann.test"], Key::Ecdsa);
    let required = format!("client_authorities = \"{}\"\n", authority.file("ca.pem"));
    let sites = site("\"a.test\"", &tree, &(authority.table(&["a"]) + &required))
        + &site("\"b.test\"", &tree, &authority.table(&["b"]));
    let server = Launch::run(&format!("{LISTEN}{sites}")).start();
    let shows = |one: &Authority, name: &str| {
        [
            "--cert",
            &one.file(&format!("{name}.pem")),
            "--key",
            &one.file(&format!("{name}.key")),
        ]
        .map(str::to_owned)
    };
    let [ann, eve] = [shows(&authority, "ann"), shows(&other, "eve")];
    let of = |words: &'static [String; 4]| words.each_ref().map(String::as_str);
    let (ann, eve): (&'static _, &'static _) = (Box::leak(Box::new(ann)), Box::leak(Box::new(eve)));
    assert_eq!(
        get(&server, &authority, "a.test", "/", &of(ann)),
        b"content"
    );
    let line = server.prints("\"host\":\"a.test");
    assert!(line.contains("\"user\":\"ann.test\""), "{line}");
    for more in [&[][..], &of(eve)] {
        assert_ne!(fails(&server, &authority, "a.test", more), 0);
    }
    server.says("failed: the peer has shown no certificate");
    // A connection for another site has shown none.
    let host = format!("Host: a.test:{}", server.address().port());
    let status = ["--header", &host, "--write-out", "%{http_code}"];
    let address = server.address();
    let mut arguments = at("b.test", address, &authority);
    arguments.extend(["--silent", "--noproxy", "*", "--output", "/dev/null"].map(str::to_owned));
    arguments.extend(status.map(str::to_owned));
    arguments.push(https("b.test", address, "/"));
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let output = run(LIMIT, "curl", &arguments, tree.path());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "421");
}

#[test]
fn a_renewed_certificate_is_used_without_a_signal() {
    let tree = Tree::new();
    tree.file("index.html", "content");
    let (authority, next) = (Authority::new("authority"), Authority::new("next"));
    let server = single(&tree, &authority).start();
    assert_eq!(get(&server, &authority, "a.test", "/", &[]), b"content");
    assert_eq!(fails(&server, &next, "a.test", &[]), 60);
    // One that cannot be used changes nothing.
    std::fs::write(authority.file("a.key"), "damaged").expect("written");
    server.says("changed certificates of a.test are not used: ");
    assert_eq!(get(&server, &authority, "a.test", "/", &[]), b"content");
    next.certify("a", &["a.test"], Key::Ecdsa);
    for end in ["a.key", "a.pem"] {
        std::fs::copy(next.file(end), authority.file(end)).expect("copied");
    }
    server.says("certificates were read again");
    assert_eq!(get(&server, &next, "a.test", "/", &[]), b"content");
}

/// They take a connection, so they may not take it long.
#[test]
fn unfinished_handshakes_time_out() {
    let tree = Tree::new();
    let authority = Authority::new("authority");
    let limits = "[limits]\nheader_timeout = \"300ms\"\n";
    authority.certify("a", &["a.test"], Key::Ecdsa);
    let site = site("\"a.test\"", &tree, &authority.table(&["a"]));
    let server = Launch::run(&format!("{limits}{LISTEN}{site}")).start();
    // Nothing, half of a record, and a hello whose answer nobody reads.
    for bytes in [&b""[..], &[22, 3, 1, 2, 0, 1]] {
        let mut stream = TcpStream::connect(server.address()).expect("connected");
        stream.set_read_timeout(Some(WAIT_MAX)).expect("set");
        stream.write_all(bytes).expect("written");
        let begun = Instant::now();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty() && begun.elapsed() >= Duration::from_millis(250));
    }
    let count = |result: &str| {
        let metrics = server.metrics(&server.own("admin"));
        metrics.sum(&format!(
            "levity_tls_handshakes_total{{result=\"{result}\"}}"
        ))
    };
    // The connection ends before it is counted.
    wait_until("both are counted", || count("timed_out") == 2.0);
    assert_eq!(count("failed"), 0.0);
}

#[test]
fn a_drain_waits_for_downloads() {
    let tree = Tree::new();
    let authority = Authority::new("authority");
    let bytes = tree.filled("file.bin", 20_000_000);
    let mut server = single(&tree, &authority).start();
    let address = server.address();
    let mut arguments = at("a.test", address, &authority);
    let options = [
        "--silent",
        "--limit-rate",
        "20M",
        "--noproxy",
        "*",
        "--output",
        "got",
    ];
    arguments.extend(options.map(str::to_owned));
    arguments.push(https("a.test", address, "/file.bin"));
    let download = std::process::Command::new("curl")
        .args(arguments)
        .current_dir(authority.folder())
        .spawn();
    let mut download = download.expect("curl");
    let got = authority.folder().join("got");
    wait_until("the download has begun", || got.exists());
    server.signal(Signal::TERM);
    assert!(download.wait().expect("waited").success());
    assert_same(&std::fs::read(got).expect("read"), &bytes);
    assert!(server.wait().success());
}

#[test]
fn a_folder_is_served_with_a_certificate_of_this_machine() {
    let tree = Tree::new();
    tree.file("index.html", "content");
    let launch = Launch::serve(tree.path()).arguments(["--tls", "--host", "a.test"]);
    let folder = launch.own().join("state").display().to_string();
    let server = launch.environment("STATE_DIRECTORY", &folder).start();
    let ca = format!("{folder}/tls/local-ca.pem");
    server.says(&format!("clients have to trust {ca}"));
    let address = server.address();
    for host in ["127.0.0.1", "localhost", "a.test"] {
        let resolve = format!("{host}:{}:127.0.0.1", address.port());
        let url = https(host, address, "/");
        let got = curl(&["--cacert", &ca, "--resolve", &resolve, &url], tree.path());
        assert_eq!(got, b"content", "{host}");
    }
}

#[test]
fn the_configuration_is_checked() {
    let tree = Tree::new();
    let authority = Authority::new("authority");
    authority.certify("a", &["a.test"], Key::Ecdsa);
    authority.certify("b", &["b.test"], Key::Ecdsa);
    let yesterday = SystemTime::now() - Duration::from_secs(25 * 60 * 60);
    authority.certify_until("old", &["a.test"], Key::Ecdsa, yesterday);
    let short =
        "req -x509 -nodes -newkey rsa:1024 -keyout short.key -out short.pem -subj /CN=a.test";
    let short: Vec<_> = short.split(' ').collect();
    let made = run(LIMIT, "openssl", &short, authority.folder());
    assert!(made.status.success(), "{made:?}");
    let readable = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(authority.file("short.key"), readable).expect("chmod");
    let checked = |tables: &str| {
        let file = tree.path().join("levity.toml");
        let text = format!(
            "[[listen]]\naddress = \"443\"\n{}",
            site("\"a.test\"", &tree, tables)
        );
        std::fs::write(&file, text).expect("written");
        let ran = Launch::levity(["check", "-c"]).arguments([&file]).ran();
        ran.stdout + &ran.stderr
    };
    let mixed = authority.table(&["a"]).replace("a.key", "b.key");
    for (tables, said) in [
        (mixed, "the key is not that of"),
        (
            authority.table(&["b"]),
            "is not for `a.test`, but for b.test; clients refuse it",
        ),
        (
            authority.table(&["old"]),
            "has expired 1 day ago; clients refuse it",
        ),
        (authority.table(&["absent"]), "cannot be read: No such file"),
        (
            String::new(),
            "a listener uses TLS, and no site has a certificate",
        ),
        ("tls = \"auto\"\n".to_owned(), "is not a value of `tls`"),
        (
            authority.table(&["short"]),
            "the key is too short; it has 1024 bits, and with RSA it needs 2048 at least",
        ),
    ] {
        let text = checked(&tables);
        assert!(text.contains(said), "{text}");
    }
    assert!(checked(&authority.table(&["a"])).contains(": ok"));
}

/// An application that answers so many requests, and tells what it was asked.
pub fn application(requests: usize) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address").to_string();
    let answer = |listener: &TcpListener| {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a request");
            request.push(byte[0]);
        }
        let response = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
        stream.write_all(response.as_bytes()).expect("written");
        String::from_utf8(request).expect("text")
    };
    let asked = thread::spawn(move || (0..requests).map(|_| answer(&listener)).collect());
    (address, asked)
}

#[test]
fn applications_learn_who_the_client_is() {
    let authority = Authority::new("authority");
    authority.certify("a", &["a.test"], Key::Ecdsa);
    authority.certify("ann", &["ann.test"], Key::Ecdsa);
    let (to, asked) = application(2);
    let upstream = format!("[[upstream]]\nname = \"app\"\nto = [\"{to}\"]\n");
    let client = format!(
        "client_authorities = \"{}\"\nclient_certificates = \"optional\"\n",
        authority.file("ca.pem")
    );
    let table = authority.table(&["a"]) + &client;
    let site = format!("[[site]]\nhosts = [\"a.test\"]\nproxy = \"app\"\n{table}");
    let server = Launch::run(&format!("{upstream}{LISTEN}{site}")).start();
    let forged = [
        "--header",
        "Client-Cert: :Zm9yZ2Vk:",
        "--header",
        "Client_Cert: x",
    ];
    let (pem, key) = (authority.file("ann.pem"), authority.file("ann.key"));
    let shown = [&forged[..], &["--cert", &pem, "--key", &key]].concat();
    assert_eq!(get(&server, &authority, "a.test", "/", &shown), b"ok");
    assert_eq!(get(&server, &authority, "a.test", "/", &forged), b"ok");
    let asked = asked.join().expect("asked");
    let certificate = std::fs::read_to_string(&pem).expect("read");
    let base64: String = certificate
        .lines()
        .filter(|line| !line.starts_with('-'))
        .collect();
    assert!(
        asked[0].contains(&format!("Client-Cert: :{base64}:\r\n")),
        "{}",
        asked[0]
    );
    for request in &asked {
        assert!(
            request.contains("X-Forwarded-Proto: https\r\n"),
            "{request}"
        );
        assert!(
            !request.contains("Zm9yZ2Vk") && !request.contains("Client_Cert"),
            "{request}"
        );
    }
    assert!(
        !asked[1].to_ascii_lowercase().contains("client-cert"),
        "{}",
        asked[1]
    );
}

#[test]
fn a_backend_proves_the_name_that_is_written() {
    let tree = Tree::new();
    tree.file("index.html", "content");
    let authority = Authority::new("authority");
    authority.certify("local", &["localhost"], Key::Ecdsa);
    let behind = site("", &tree, &authority.table(&["local"]));
    let behind = Launch::run(&format!("{LISTEN}{behind}")).start();
    let (port, ca) = (behind.address().port(), authority.file("ca.pem"));
    for (host, status) in [("localhost", 200), ("127.0.0.1", 502)] {
        let server = Launch::run(&format!(
            "[[upstream]]\nname = \"app\"\nto = [\"https://{host}:{port}\"]\n[upstream.tls]\nauthorities = \"{ca}\"\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\n[[site]]\nproxy = \"app\"\n"
        ))
        .start();
        server.says(&format!(
            "upstream app: https, round-robin: 127.0.0.1:{port}"
        ));
        server.get("/").assert_status(status);
    }
}

/// Levity in front of Levity: large bodies both ways, kept connections, checks.
#[test]
fn backends_prove_who_they_are() {
    let tree = Tree::new();
    let bytes = tree.filled("file.bin", 3_000_000);
    let authority = Authority::new("authority");
    authority.certify("a", &["localhost", "127.0.0.1", "a.test"], Key::Rsa);
    authority.certify("front", &["front.test"], Key::Ecdsa);
    let ca = authority.file("ca.pem");
    let client = format!("client_authorities = \"{ca}\"\n");
    let behind = site("", &tree, &(authority.table(&["a"]) + &client));
    let behind = Launch::run(&format!("{LISTEN}{behind}")).start();
    let front = |tls: &str| {
        let upstream = format!(
            "[[upstream]]\nname = \"app\"\nto = [\"https://{}\"]\nkeep_alive = 8\n[upstream.tls]\n{tls}\n",
            behind.address()
        );
        let listen = "[admin]\nlisten = \"unix:{own}/admin\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
                      [[site]]\nproxy = \"app\"\n";
        Launch::run(&format!("{upstream}{listen}"))
            .workers(1)
            .start()
    };
    let own = format!(
        "certificate = \"{}\"\nkey = \"{}\"\n",
        authority.file("front.pem"),
        authority.file("front.key")
    );
    let trusting = front(&format!("authorities = \"{ca}\"\n{own}"));
    let mut client = trusting.client();
    for _ in 0..3 {
        let answer = client.get("/file.bin");
        answer.assert_status(200);
        assert_same(&answer.body, &bytes);
    }
    let metrics = behind.metrics(&behind.own("admin"));
    assert_eq!(
        metrics.sum("levity_tls_handshakes_total{result=\"full\"}"),
        1.0
    );
    assert!(
        behind
            .prints("file.bin")
            .contains("\"user\":\"front.test\"")
    );
    // An authority that nobody knows, another name, and nothing to show.
    for (tls, reason) in [
        (own.clone(), "certificate of the peer is not valid"),
        (
            format!("authorities = \"{ca}\"\nname = \"b.test\"\n{own}"),
            "certificate of the peer is not valid",
        ),
    ] {
        let server = front(&tls);
        server.get("/file.bin").assert_status(502);
        server.says(reason);
        let series = format!(
            "levity_upstream_requests_total{{upstream=\"app\",backend=\"{}\",outcome=\"tls_certificate_error\"}}",
            behind.address()
        );
        let metrics = server.metrics(&server.own("admin"));
        assert_eq!(metrics.sum(&series), 1.0, "{tls}");
    }
    let unverified = front(&format!("verify = false\nname = \"b.test\"\n{own}"));
    unverified.get("/file.bin").assert_status(200);
}

/// The application is asked with TLS, and wants the client to use it too.
#[test]
fn a_redirect_of_an_application_to_tls_stays_one() {
    let authority = Authority::new("authority");
    authority.certify("a", &["a.test"], Key::Ecdsa);
    let app = format!(
        "[[site]]\nhosts = [\"a.test\"]\nredirect = {{ to = \"https://a.test/x?q\" }}\n{}",
        authority.table(&["a"])
    );
    let app = Launch::run(&format!("{LISTEN}{app}")).start();
    let server = Launch::run(&format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"app\"\nto = [\"https://{}\"]\n\
         [upstream.tls]\nverify = false\nname = \"a.test\"\n[[site]]\nproxy = \"app\"\n\
         request_headers.set = {{ Host = \"a.test\" }}\n",
        app.address()
    ))
    .start();
    for (asked, location) in [("/x?q", "https://a.test/x?q"), ("/y", "/x?q")] {
        assert_eq!(server.get(asked).field("location"), location, "{asked}");
    }
    // What follows a POST is another request for the same URL.
    let posted = server
        .client()
        .request("POST", "/x?q", &[("Content-Length", "0")]);
    assert_eq!(posted.field("location"), "/x?q");
}

/// A connection over TLS on which one request follows the other.
struct Kept(StreamOwned<ClientConnection, TcpStream>);

impl Kept {
    fn new(address: SocketAddr, host: &str, authority: &Authority) -> Self {
        let file = authority.file("ca.pem");
        let trust = Trust::Authorities(Path::new(&file));
        let config = client_config(trust, None).expect("a configuration");
        let name = host.to_owned().try_into().expect("a name");
        let session = ClientConnection::new(config.into(), name).expect("a session");
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_read_timeout(Some(WAIT_MAX)).expect("set");
        Self(StreamOwned::new(session, stream))
    }

    /// The status of the response, which has a small body.
    fn status(&mut self, host: &str) -> u16 {
        let request = format!("GET /index.html HTTP/1.1\r\nHost: {host}\r\n\r\n");
        self.0.write_all(request.as_bytes()).expect("written");
        let mut response = vec![0; 4096];
        let count = self.0.read(&mut response).expect("a response");
        let text = String::from_utf8_lossy(&response[..count]).into_owned();
        let status = text.split(' ').nth(1).expect("a status line");
        status.parse().expect("a number")
    }
}

/// Whoever has connected before cannot stay without a certificate.
#[test]
fn a_reload_may_ask_for_certificates() {
    let tree = Tree::new();
    tree.file("index.html", "content");
    let authority = Authority::new("authority");
    let server = single(&tree, &authority).workers(1).start();
    let mut kept = Kept::new(server.address(), "a.test", &authority);
    assert_eq!(kept.status("a.test"), 200);
    let keys = format!("keys = [\"{}\"]", authority.file("a.key"));
    let more = format!(
        "{keys}\nclient_authorities = \"{}\"",
        authority.file("ca.pem")
    );
    server.reload(&[&keys], &[&more]);
    assert_eq!(kept.status("a.test"), 421);
}

#[test]
fn tls_at_a_port_without_it_is_named_in_the_log() {
    let tree = Tree::new();
    let server = Launch::serve(tree.path()).start();
    openssl(&server, &[]);
    server.says("TLS handshake with 127.0.0.1 failed: this port has no TLS");
}

/// The line of the log for `target`.
fn logged(server: &Server, target: &str) -> serde_json::Value {
    let line = server.prints(&format!("\"target\":\"{target}\""));
    serde_json::from_str(&line).expect("JSON")
}

#[test]
fn the_log_says_what_the_handshake_has_agreed_on() {
    let tree = Tree::new();
    tree.file("new", "content");
    tree.file("old", "content");
    let authority = Authority::new("authority");
    let server = single(&tree, &authority).start();
    for (path, version, more) in [
        (
            "/new",
            "TLSv1.3",
            &["--tls13-ciphers", "TLS_AES_256_GCM_SHA384"][..],
        ),
        ("/old", "TLSv1.2", &["--tls-max", "1.2"]),
    ] {
        get(&server, &authority, "a.test", path, more);
        let tls = &logged(&server, path)["tls"];
        assert_eq!(tls["version"], version);
        assert_eq!(
            (&tls["name"], &tls["resumed"]),
            (&"a.test".into(), &false.into())
        );
        let cipher = tls["cipher"].as_str().expect("a name");
        match path {
            "/new" => assert_eq!(cipher, "TLS_AES_256_GCM_SHA384"),
            _ => assert!(cipher.starts_with("TLS_ECDHE_ECDSA_WITH_"), "{cipher}"),
        }
    }
}

#[test]
fn a_format_may_have_fields_of_the_handshake() {
    let tree = Tree::new();
    tree.file("index.html", "content");
    let authority = Authority::new("authority");
    authority.certify("a", &["a.test"], Key::Ecdsa);
    let format = "format = \"{path} {tls.version} {tls.name} {tls.resumed}\"";
    let listen = LISTEN.replace("format = \"json\"", format);
    let plain = "[[listen]]\naddress = \"127.0.0.2:0\"\n";
    let table = authority.table(&["a"]) + "redirect = false\n";
    let site = site("\"a.test\"", &tree, &table);
    let server = Launch::run(&format!("{listen}{plain}{site}")).start();
    get(&server, &authority, "a.test", "/index.html", &[]);
    server.prints("/index.html TLSv1.3 a.test false");
    Client::new(server.addresses()[1]).get_for("a.test", "/index.html");
    server.prints("/index.html - - -");
}

#[test]
fn a_folder_that_cannot_be_made_is_told_with_what_to_set() {
    let tree = Tree::new();
    tree.file("www/page", "content");
    let file = tree.file("file", "");
    let launch = Launch::serve(&tree.at("www")).arguments(["--tls"]);
    let server = launch
        .environment("STATE_DIRECTORY", &file.display().to_string())
        .start();
    server.says("set `STATE_DIRECTORY` or `HOME` to a folder to which this user may write");
    server.says("serving ");
    let said = server.stderr();
    assert!(!said.contains("clients have to trust"), "{said}");
}
