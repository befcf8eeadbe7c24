//! The PROXY protocol, in front of clients' requests and of those to backends.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use levity_wire::proxy_protocol::{self, Addresses};

use crate::support::scripted::{Conn, Scripted};
use crate::support::{Client, Launch, Server, Tree, head, wait_until};

/// As version 1 and as version 2.
fn both(source: &str, destination: &str) -> [Vec<u8>; 2] {
    let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
    let addresses = Addresses::Ip {
        source: address(source),
        destination: address(destination),
    };
    let mut heads = [Vec::new(), Vec::new()];
    proxy_protocol::write_v1(&addresses, &mut heads[0]);
    proxy_protocol::write_v2(&addresses, &mut heads[1]);
    heads
}

const LISTEN: &str = "[log]\naccess = \"stdout\"\nformat = \"json\"\n[admin]\nlisten = \"unix:{own}/admin\"\n\
                      [[listen]]\naddress = \"127.0.0.1:0\"\nproxy_protocol = true\n";

/// A server of the files of `tree` whose connections begin with a head.
fn behind_a_balancer(tree: &Tree, tables: &str) -> Server {
    let root = tree.path().display();
    Launch::run(&format!("{tables}\n{LISTEN}[[site]]\nroot = \"{root}\"\n")).start()
}

/// The line of the access log of a request for `target`.
fn logged(server: &Server, target: &str) -> serde_json::Value {
    let line = server.prints(&format!("\"target\":\"{target}\""));
    serde_json::from_str(&line).expect("a line of JSON")
}

#[test]
fn the_client_is_whom_the_head_names() {
    let tree = Tree::new();
    tree.file("file", "content");
    let server = behind_a_balancer(&tree, "");
    let heads = [
        both("192.0.2.1:4711", "198.51.100.1:80"),
        both("[2001:db8::1]:1", "[::1]:80"),
    ];
    for (number, head) in heads.concat().iter().enumerate() {
        let target = format!("/file?{number}");
        let mut client = server.client();
        client.send(head);
        client.get(&target).assert_status(200);
        assert_eq!(client.get(&target).text(), "content");
        let line = logged(&server, &target);
        let named = if number < 2 {
            "192.0.2.1"
        } else {
            "2001:db8::1"
        };
        assert_eq!(
            (&line["peer"], &line["via"]),
            (&named.into(), &"127.0.0.1".into())
        );
    }
}

#[test]
fn a_head_may_be_cut_anywhere() {
    let tree = Tree::new();
    tree.file("file", "content");
    let server = behind_a_balancer(&tree, "");
    for (number, mut bytes) in both("192.0.2.1:4711", "198.51.100.1:80")
        .into_iter()
        .enumerate()
    {
        let target = format!("/file?{number}");
        bytes.extend(head("GET", &target, &[]).into_bytes());
        let mut byte_by_byte = server.client();
        for byte in &bytes {
            byte_by_byte.send([*byte]);
        }
        assert_eq!(byte_by_byte.receive().text(), "content");
        let mut at_once = server.client();
        at_once.send(&bytes);
        assert_eq!(at_once.receive().text(), "content");
        assert_eq!(logged(&server, &target)["peer"], "192.0.2.1");
    }
}

#[test]
fn without_a_head_nothing_is_answered() {
    let tree = Tree::new();
    tree.file("file", "content");
    let server = behind_a_balancer(&tree, "");
    for (sent, reason) in [
        (
            &b"GET /file HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
            "no PROXY header",
        ),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 x\r\n", "bad PROXY line"),
        (b"PROXY\n", "no PROXY header"),
        (
            b"\r\n\r\n\0\r\nQUIT\n\x31",
            "unknown version of the PROXY protocol",
        ),
    ] {
        let mut client = server.client();
        client.send(sent);
        assert!(
            client.read_to_end().body().is_empty(),
            "{}",
            sent.escape_ascii()
        );
        server.says(&format!("connection of 127.0.0.1 closed: {reason}"));
    }
    let admin = server.own("admin");
    let ended = |end: &str| {
        let series = format!("levity_connection_ends_total{{end=\"{end}\"}}");
        server.metrics(&admin).sum(&series)
    };
    wait_until("they count as errors", || ended("error") == 4.0);
    // So a balancer looks whether we live.
    server.client().finish();
    wait_until("one more ends well", || ended("complete") >= 1.0);
    assert_eq!(server.stderr().matches("closed:").count(), 4);
    assert!(server.stdout().is_empty(), "{}", server.stdout());
}

#[test]
fn a_head_that_does_not_end_is_not_waited_for() {
    let tree = Tree::new();
    let server = behind_a_balancer(&tree, "[limits]\nheader_timeout = \"1s\"");
    let mut client = server.client();
    client.send("PROXY TCP4 ");
    client.assert_closed();
    server.says("the PROXY header took too long");
}

#[test]
fn a_proxy_that_speaks_for_itself_or_for_nobody() {
    let backend = Scripted::tcp(answer);
    let to = backend.address();
    let server = Launch::run(&format!(
        "[server]\ntrusted_proxies = [\"127.0.0.1\", \"unix\"]\n{LISTEN}\
         [[upstream]]\nname = \"app\"\nto = [\"{to}\"]\n[[site]]\nproxy = \"app\"\n"
    ))
    .start();
    let start = b"\r\n\r\n\0\r\nQUIT\n\x21\x31\0\xd8";
    let [source, destination] = [b"/a", b"/b"].map(|path| [&path[..], &[0; 106]].concat());
    let unix = [&start[..], &source, &destination].concat();
    let mut local = Vec::new();
    proxy_protocol::write_v2(&Addresses::Local, &mut local);
    // What comes through the proxy from a client that it does not name is not the proxy's word.
    for (number, (head, client)) in [
        (&local[..], "192.0.2.1"),
        (b"PROXY UNKNOWN\r\n", "127.0.0.1"),
        (&unix, "127.0.0.1"),
    ]
    .into_iter()
    .enumerate()
    {
        let target = format!("/{number}");
        let mut proxy = server.client();
        proxy.send(head);
        let answer = proxy.get_with(&target, &[("X-Forwarded-For", "192.0.2.1")]);
        answer.assert_status(200);
        assert_eq!(logged(&server, &target)["peer"], client, "{number}");
        let request = backend.requests().pop().expect("a request");
        let list = request.field("x-forwarded-for").expect("a list");
        assert!(list.ends_with("127.0.0.1"), "{list}");
        assert_eq!(list.contains("192.0.2.1"), client == "192.0.2.1", "{list}");
    }
}

fn answer(conn: &mut Conn) {
    while conn.read_request().is_some() {
        conn.answer("200 OK", "");
    }
}

#[test]
fn who_is_named_may_be_a_trusted_proxy_and_tls_makes_https() {
    let backend = Scripted::tcp(answer);
    let to = backend.address();
    let server = Launch::run(&format!(
        "[server]\ntrusted_proxies = [\"10.0.0.0/8\"]\n{LISTEN}\
         [[upstream]]\nname = \"app\"\nto = [\"{to}\"]\n[[site]]\nproxy = \"app\"\n"
    ))
    .start();
    let ask = |head: &[u8], target: &str| {
        let mut client = server.client();
        client.send(head);
        let told = [("X-Forwarded-For", "192.0.2.1")];
        client.get_with(target, &told).assert_status(200);
        let request = backend.requests().pop().expect("a request");
        let field = |name: &str| request.field(name).expect("a field").to_owned();
        (field("x-forwarded-for"), field("x-forwarded-proto"))
    };
    let [_, trusted] = both("10.0.0.1:1", "10.0.0.2:443");
    assert_eq!(
        ask(&trusted, "/a"),
        ("192.0.2.1, 10.0.0.1".into(), "http".into())
    );
    assert_eq!(logged(&server, "/a")["peer"], "192.0.2.1");
    let [_, mut with_tls] = both("192.0.2.7:1", "10.0.0.2:443");
    with_tls.extend(b"\x20\x00\x05\x01\0\0\0\0");
    with_tls[15] += 8;
    assert_eq!(ask(&with_tls, "/b"), ("192.0.2.7".into(), "https".into()));
    assert_eq!(logged(&server, "/b")["peer"], "192.0.2.7");
}

/// A server whose upstream wants heads of `version`; its second listener has some itself.
fn telling(to: &str, version: &str) -> Server {
    Launch::run(&format!(
        "[server]\ntrusted_proxies = [\"127.0.0.1\"]\nworkers = 1\n[[listen]]\naddress = \"127.0.0.2:0\"\n{LISTEN}\
         [[listen]]\naddress = \"unix:{{own}}/http\"\n\
         [[upstream]]\nname = \"app\"\nto = [\"{to}\"]\nproxy_protocol = \"{version}\"\n[[site]]\nproxy = \"app\"\n"
    ))
    .start()
}

/// Reads the head of its connection, then answers with what it says.
fn tell_head(conn: &mut Conn) {
    let mut read = Vec::new();
    let answer = loop {
        let Some(byte) = conn.read_byte() else { return };
        read.push(byte);
        match proxy_protocol::parse(&read) {
            Ok(None) => {}
            Ok(Some(header)) => break format!("{:?}", header.addresses),
            Err(reject) => panic!("{}: {}", reject.reason, read.escape_ascii()),
        }
    };
    while conn.read_request().is_some() {
        conn.answer("200 OK", &answer);
    }
}

#[test]
fn backends_are_told_who_the_client_is() {
    for version in ["v1", "v2"] {
        let backend = Scripted::tcp(tell_head);
        let server = telling(backend.address(), version);
        let ip = |source: SocketAddr, destination: SocketAddr| {
            format!(
                "{:?}",
                Addresses::Ip {
                    source,
                    destination
                }
            )
        };
        let here = server.addresses()[0];
        let stream = std::net::TcpStream::connect(here).expect("connect");
        let own = stream.local_addr().expect("an address");
        let mut client = Client::of(stream);
        assert_eq!(client.get("/").text(), ip(own, here));
        // One connection is one client's, even that of its next request.
        let told = [("X-Forwarded-For", "192.0.2.1:99")];
        let named = "192.0.2.1:99".parse().expect("an address");
        assert_eq!(client.get_with("/", &told).text(), ip(named, here));
        assert_eq!(backend.connections(), 2);

        let [first, _] = both("192.0.2.2:7", "192.0.2.3:80");
        let mut named = Client::new(server.addresses()[1]);
        named.send(first);
        let expected = ip(
            "192.0.2.2:7".parse().expect("it"),
            "192.0.2.3:80".parse().expect("it"),
        );
        assert_eq!(named.get("/").text(), expected);

        let mut unix = Client::unix(&server.own("http"));
        assert_eq!(unix.get("/").text(), format!("{:?}", Addresses::Unknown));
        drop((client, named, unix));
        backend.wait_for_no_connection();
    }
}

/// Ended with the value.
struct Haproxy(Child);

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn haproxy_understands_us_and_we_understand_haproxy() {
    let tree = Tree::new();
    tree.file("file", "content");
    let files = behind_a_balancer(&tree, "");
    let own = tempfile::tempdir().expect("a temporary folder");
    for (number, (version, send)) in [("v1", "send-proxy"), ("v2", "send-proxy-v2")]
        .into_iter()
        .enumerate()
    {
        let socket = own.path().join(version);
        let config = own.path().join("haproxy.cfg");
        let (listen, to) = (socket.display(), files.address());
        let text = format!(
            "defaults\n  mode http\n  timeout connect 5s\n  timeout client 5s\n  timeout server 5s\n\
             listen all\n  bind unix@{listen} mode 777 accept-proxy\n  http-request set-header X-Source %[src]\n  \
             http-response set-header X-Source %[src]\n  server levity {to} {send}\n"
        );
        std::fs::write(&config, text).expect("write");
        let child = Command::new("haproxy")
            .args(["-db", "-q", "-f"])
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("no haproxy: run `cargo xtask test`, which installs it");
        let _haproxy = Haproxy(child);
        wait_until("haproxy listens", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
        std::fs::set_permissions(
            own.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .expect("chmod");
        let server = telling(&format!("unix:{}", socket.display()), version);
        let target = format!("/file?{number}");
        let answer = server.get_with(&target, &[("X-Forwarded-For", "192.0.2.1")]);
        assert_eq!(answer.text(), "content");
        assert_eq!(answer.field("x-source"), "192.0.2.1");
        let line = logged(&files, &target);
        assert_eq!(
            (&line["peer"], &line["via"]),
            (&"192.0.2.1".into(), &"127.0.0.1".into())
        );
    }
}
