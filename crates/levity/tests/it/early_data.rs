//! Requests that come before the handshake of TLS is complete (RFC 8446, 2.3, and RFC 8470).

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use levity_tls::{Trust, client_config};
use rustls::{ClientConfig, ClientConnection};

use crate::clients::run;
use crate::support::certificates::{Authority, Key};
use crate::support::{Launch, Server, Tree, WAIT_MAX, assert_same, per_engine};
use crate::tls::{LISTEN, application, site};

const LIMIT: Duration = Duration::from_secs(20);

const EARLY_DATA: &str = "early_data = true\n";

/// The table of `a.test`, which takes early data.
fn table(authority: &Authority) -> String {
    authority.certify("a", &["a.test"], Key::Ecdsa);
    authority.table(&["a"]) + EARLY_DATA
}

/// A server of `tree` as `a.test` with early data.
fn single(tree: &Tree, authority: &Authority) -> Launch {
    let site = site("\"a.test\"", tree, &table(authority));
    Launch::run(&format!("{LISTEN}{site}"))
}

/// A server with early data in front of an application.
fn in_front_of(application: &str, authority: &Authority) -> Launch {
    let upstream = format!("[[upstream]]\nname = \"app\"\nto = [\"{application}\"]\n");
    let table = table(authority);
    let site = format!("[[site]]\nhosts = [\"a.test\"]\nproxy = \"app\"\n{table}");
    Launch::run(&format!("{upstream}{LISTEN}{site}"))
}

fn request(method: &str, path: &str, more: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: a.test\r\n{more}\r\n")
}

fn get(path: &str) -> String {
    request("GET", path, "")
}

/// Somebody who keeps sessions from one connection to the next.
struct Visitor {
    address: SocketAddr,
    config: Arc<ClientConfig>,
}

impl Visitor {
    fn new(server: &Server, authority: &Authority) -> Self {
        let file = authority.file("ca.pem");
        let trust = Trust::Authorities(Path::new(&file));
        let mut config = client_config(trust, None).expect("a configuration");
        config.enable_early_data = true;
        Self {
            address: server.address(),
            config: config.into(),
        }
    }

    fn connect(&self) -> Connection {
        let name = "a.test".try_into().expect("a name");
        let session = ClientConnection::new(self.config.clone(), name);
        let stream = TcpStream::connect(self.address).expect("connected");
        stream.set_read_timeout(Some(WAIT_MAX)).expect("set");
        Connection {
            session: session.expect("a session"),
            stream,
            heard: Vec::new(),
        }
    }

    /// Comes for the first time, and gets sessions.
    fn come(&self) {
        let mut connection = self.connect();
        connection.handshake();
        assert_eq!(connection.ask(&request("OPTIONS", "*", "")).status, 204);
    }

    /// Comes again with `early` data, which the server has got when this returns. The rest of the handshake is not sent.
    fn come_again(&self, early: &str) -> Connection {
        let (mut connection, first) = self.prepare(early);
        connection.send_bytes(&first);
        connection
    }

    /// A connection over which nothing was sent, and what is to be sent first.
    fn prepare(&self, early: &str) -> (Connection, Vec<u8>) {
        self.come();
        let mut connection = self.connect();
        let mut writer = connection.session.early_data().expect("allowed");
        writer.write_all(early.as_bytes()).expect("room");
        let first = connection.said();
        (connection, first)
    }
}

/// A connection whose messages are sent by hand.
struct Connection {
    session: ClientConnection,
    stream: TcpStream,
    heard: Vec<u8>,
}

struct Response {
    status: u16,
    body: Vec<u8>,
}

impl Connection {
    /// What is to be sent now.
    fn said(&mut self) -> Vec<u8> {
        let mut said = Vec::new();
        while self.session.wants_write() {
            self.session.write_tls(&mut said).expect("memory");
        }
        said
    }

    fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("sent");
    }

    /// Sends what is to be sent.
    fn send(&mut self) {
        let said = self.said();
        self.send_bytes(&said);
    }

    /// Reads once.
    fn hear(&mut self) {
        let mut bytes = [0; 4096];
        let count = self.stream.read(&mut bytes).expect("bytes");
        assert_ne!(count, 0, "the server has closed");
        let mut new = &bytes[..count];
        while !new.is_empty() {
            self.session.read_tls(&mut new).expect("room");
            self.session.process_new_packets().expect("agreed");
            let mut plain = [0; 4096];
            while let Ok(count @ 1..) = self.session.reader().read(&mut plain) {
                self.heard.extend_from_slice(&plain[..count]);
            }
        }
    }

    /// Completes the handshake.
    fn handshake(&mut self) {
        self.send();
        while self.session.is_handshaking() {
            self.hear();
            self.send();
        }
    }

    /// Reads a response. Sends nothing.
    fn response(&mut self, has_body: bool) -> Response {
        let head_bytes = loop {
            let mut windows = self.heard.windows(4);
            match windows.position(|window| window == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None => self.hear(),
            }
        };
        let head = self.heard.drain(..head_bytes).collect();
        let head = String::from_utf8(head).expect("text");
        let status = head.split(' ').nth(1).expect("a status line");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "));
        let length = length.filter(|_| has_body);
        let length = length.map_or(0, |length| length.parse().expect("a number"));
        while self.heard.len() < length {
            self.hear();
        }
        Response {
            status: status.parse().expect("a number"),
            body: self.heard.drain(..length).collect(),
        }
    }

    /// The response to a request after the handshake.
    fn ask(&mut self, request: &str) -> Response {
        let mut writer = self.session.writer();
        writer.write_all(request.as_bytes()).expect("room");
        self.send();
        self.response(true)
    }
}

/// Waits until the server has closed a connection to which it was sent `bytes`, and nothing after it.
fn send_only(server: &Server, bytes: &[u8]) {
    let mut stream = TcpStream::connect(server.address()).expect("connected");
    stream.set_read_timeout(Some(WAIT_MAX)).expect("set");
    stream.write_all(bytes).expect("sent");
    stream.shutdown(Shutdown::Write).expect("shut down");
    // The answer to the hello, or a reset.
    let _ = stream.read_to_end(&mut Vec::new());
}

fn handshakes(server: &Server, result: &str) -> f64 {
    let metrics = server.metrics(&server.own("admin"));
    metrics.sum(&format!(
        "levity_tls_handshakes_total{{result=\"{result}\"}}"
    ))
}

#[test]
fn requests_are_answered_before_the_handshake_is_complete() {
    let tree = Tree::new();
    tree.file("one", "first");
    tree.file("two", "second");
    let authority = Authority::new("authority");
    let server = single(&tree, &authority).workers(4).start();
    let visitor = Visitor::new(&server, &authority);
    let both = request("HEAD", "/one", "") + &get("/one") + &get("/two");
    let mut connection = visitor.come_again(&both);
    assert_eq!(connection.response(false).status, 200);
    assert_eq!(connection.response(true).body, b"first");
    assert_eq!(connection.response(true).body, b"second");
    assert!(connection.session.is_early_data_accepted());
    // The rest of the handshake has still to be sent.
    connection.handshake();
    assert_eq!(connection.ask(&get("/one")).body, b"first");
    assert_eq!(
        (handshakes(&server, "full"), handshakes(&server, "resumed")),
        (1.0, 1.0)
    );
}

per_engine! {
    fn a_large_file_arrives_whole(engine) {
        let tree = Tree::new();
        let bytes = tree.filled("file.bin", 3_000_000);
        let authority = Authority::new("authority");
        let server = single(&tree, &authority).engine(engine).start();
        let visitor = Visitor::new(&server, &authority);
        let mut connection = visitor.come_again(&get("/file.bin"));
        assert_same(&connection.response(true).body, &bytes);
        connection.handshake();
        // And when the handshake is completed meanwhile.
        let mut connection = visitor.come_again(&get("/file.bin"));
        connection.handshake();
        assert_same(&connection.response(true).body, &bytes);
    }
}

#[test]
fn what_may_change_something_has_to_be_sent_again() {
    let authority = Authority::new("authority");
    let (to, asked) = application(1);
    let server = in_front_of(&to, &authority).start();
    let visitor = Visitor::new(&server, &authority);
    let empty = request("POST", "/early", "Content-Length: 0\r\n");
    let body = request("POST", "/early", "Content-Length: 4\r\n") + "body";
    let chunks = request("GET", "/early", "Transfer-Encoding: chunked\r\n") + "0\r\n\r\n";
    let upgrade = request(
        "GET",
        "/early",
        "Connection: upgrade\r\nUpgrade: websocket\r\n",
    );
    for early in [
        &empty,
        &body,
        &chunks,
        &upgrade,
        &request("DELETE", "/early", ""),
    ] {
        let mut connection = visitor.come_again(early);
        assert_eq!(connection.response(true).status, 425, "{early}");
    }
    let mut connection = visitor.come_again(&body);
    assert_eq!(connection.response(true).status, 425);
    connection.handshake();
    let again = body.replace("/early", "/again");
    assert_eq!(connection.ask(&again).status, 200);
    let asked = asked.join().expect("asked");
    assert!(asked[0].starts_with("POST /again "), "{}", asked[0]);
}

/// The end of a request decides: with it the client proves that it is there.
#[test]
fn a_request_that_ends_after_the_handshake_is_no_early_one() {
    let authority = Authority::new("authority");
    let (to, asked) = application(1);
    let server = in_front_of(&to, &authority).start();
    let visitor = Visitor::new(&server, &authority);
    let whole = request("POST", "/", "Content-Length: 0\r\n");
    let (start, end) = whole.split_at(whole.len() - 1);
    let mut connection = visitor.come_again(start);
    connection.handshake();
    assert_eq!(connection.ask(end).status, 200);
    let asked = asked.join().expect("asked");
    assert!(!asked[0].contains("Early-Data"), "{}", asked[0]);
}

#[test]
fn applications_learn_which_requests_are_early() {
    let authority = Authority::new("authority");
    let (to, asked) = application(4);
    let server = in_front_of(&to, &authority).start();
    let visitor = Visitor::new(&server, &authority);
    let forged = request("GET", "/", "Early-Data: 0\r\nEarly_Data: 0\r\n");
    for early in [&get("/"), &forged] {
        let mut connection = visitor.come_again(early);
        assert_eq!(connection.response(true).body, b"ok");
    }
    let mut connection = visitor.come_again("");
    connection.handshake();
    // Another server before this one may have got it early (RFC 8470, 5.1).
    let from_proxy = request("GET", "/", "Early-Data: 1\r\n");
    for request in [&get("/"), &from_proxy] {
        assert_eq!(connection.ask(request).body, b"ok");
    }
    let lines = |request: &String| -> Vec<String> {
        let lines = request.lines().map(str::to_ascii_lowercase);
        let mut lines: Vec<_> = lines.map(|line| line.replace('_', "-")).collect();
        lines.retain(|line| line.starts_with("early-data"));
        lines
    };
    let asked: Vec<_> = asked.join().expect("asked").iter().map(lines).collect();
    let early = vec!["early-data: 1".to_owned()];
    assert_eq!(asked, [early.clone(), early.clone(), Vec::new(), early]);
}

/// Whoever has recorded what a client has sent may send it, but nobody answers.
#[test]
fn recorded_bytes_are_not_answered_again() {
    let tree = Tree::new();
    tree.file("once", "content");
    tree.file("last", "content");
    let authority = Authority::new("authority");
    let server = single(&tree, &authority).workers(4).start();
    let visitor = Visitor::new(&server, &authority);
    let (mut connection, mut recorded) = visitor.prepare(&get("/once"));
    let copy = recorded.clone();
    connection.send_bytes(&recorded);
    assert_eq!(connection.response(true).body, b"content");
    // While the handshake is not complete, and when it is.
    send_only(&server, &copy);
    let rest = connection.said();
    connection.send_bytes(&rest);
    recorded.extend_from_slice(&rest);
    assert_eq!(connection.ask(&get("/last")).body, b"content");
    for _ in 0..8 {
        send_only(&server, &copy);
        send_only(&server, &recorded);
    }
    assert_eq!(connection.ask(&get("/last?again")).body, b"content");
    server.prints("/last?again");
    assert_eq!(
        server.stdout().matches("\"/once").count(),
        1,
        "{}",
        server.stdout()
    );
    assert_eq!(handshakes(&server, "resumed"), 1.0);
}

#[test]
fn it_is_off_by_default() {
    let tree = Tree::new();
    let authority = Authority::new("authority");
    let table = table(&authority).replace(EARLY_DATA, "");
    let site = site("\"a.test\"", &tree, &table);
    let server = Launch::run(&format!("{LISTEN}{site}")).start();
    let visitor = Visitor::new(&server, &authority);
    visitor.come();
    let mut connection = visitor.connect();
    assert!(connection.session.early_data().is_none());
    connection.handshake();
    assert_eq!(connection.ask(&request("OPTIONS", "*", "")).status, 204);
    assert_eq!(handshakes(&server, "resumed"), 1.0);
}

/// The name in the handshake is not that of the request.
#[test]
fn another_site_may_not_want_it() {
    let tree = Tree::new();
    tree.file("index.html", "content");
    let authority = Authority::new("authority");
    authority.certify("b", &["b.test"], Key::Ecdsa);
    let sites = site("\"a.test\"", &tree, &table(&authority))
        + &site("\"b.test\"", &tree, &authority.table(&["b"]))
        + &site("\"c.test\"", &tree, "");
    let server = Launch::run(&format!("{LISTEN}{sites}")).start();
    let visitor = Visitor::new(&server, &authority);
    for (host, status) in [("a.test", 200), ("b.test", 425), ("c.test", 425)] {
        let request = get("/").replace("a.test", host);
        let mut connection = visitor.come_again(&request);
        assert_eq!(connection.response(true).status, status, "{host}");
        connection.handshake();
        assert_eq!(connection.ask(&request).status, 200, "{host}");
    }
}

#[test]
fn a_handshake_that_fails_afterwards_is_named_in_the_log() {
    let tree = Tree::new();
    tree.file("index.html", "content");
    let authority = Authority::new("authority");
    let server = single(&tree, &authority).start();
    let visitor = Visitor::new(&server, &authority);
    let mut connection = visitor.come_again(&get("/"));
    assert_eq!(connection.response(true).body, b"content");
    let mut rest = connection.said();
    *rest.last_mut().expect("bytes") ^= 1;
    connection.send_bytes(&rest);
    server.says("TLS handshake with 127.0.0.1 failed: what the peer has sent was changed");
    // It has ended.
    let _ = connection.stream.read_to_end(&mut Vec::new());
}

#[test]
fn openssl_sends_early_data() {
    let tree = Tree::new();
    tree.file("early.txt", "content of an early answer");
    let authority = Authority::new("authority");
    let server = single(&tree, &authority).start();
    let close = |method: &str| request(method, "/early.txt", "Connection: close\r\n");
    tree.file("get", close("GET"));
    tree.file("post", close("POST"));
    let address = server.address();
    let client = format!("openssl s_client -connect {address} -servername a.test -ign_eof");
    let says = |script: String| {
        let output = run(LIMIT, "sh", &["-c", &script], tree.path());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let ordinary = says(format!("{client} -sess_out session < get"));
    assert!(
        ordinary.contains("content of an early answer"),
        "{ordinary}"
    );
    let early = says(format!(
        "{client} -sess_in session -early_data get < /dev/null"
    ));
    assert!(early.contains("Early data was accepted"), "{early}");
    assert!(early.contains("content of an early answer"), "{early}");
    // The session is used up.
    let again = says(format!("{client} -sess_in session -early_data get < get"));
    assert!(again.contains("Early data was rejected"), "{again}");
    assert!(again.contains("content of an early answer"), "{again}");
    says(format!("{client} -sess_out session < get"));
    let refused = says(format!(
        "{client} -sess_in session -early_data post < /dev/null"
    ));
    assert!(refused.contains("HTTP/1.1 425 Too Early"), "{refused}");
}

/// The sessions of a site with early data are in memory, which all event loops share.
#[test]
fn a_session_is_resumed_at_any_event_loop() {
    let tree = Tree::new();
    let authority = Authority::new("authority");
    let server = single(&tree, &authority).workers(4).start();
    let address = server.address().to_string();
    let fixed = ["s_client", "-connect", &address, "-servername", "a.test"];
    let old = [&fixed[..], &["-tls1_2", "-reconnect"]].concat();
    let output = run(LIMIT, "openssl", &old, tree.path());
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.matches("Reused, TLSv1.2").count(), 5, "{said}");
    let visitor = Visitor::new(&server, &authority);
    for _ in 0..8 {
        let mut connection = visitor.come_again("");
        connection.handshake();
        assert!(connection.session.is_early_data_accepted());
    }
}

#[test]
fn clients_that_prove_who_they_are_have_none() {
    let tree = Tree::new();
    let authority = Authority::new("authority");
    let ca = authority.file("ca.pem");
    let tables = table(&authority) + &format!("client_authorities = \"{ca}\"\n");
    let file = tree.path().join("levity.toml");
    let site = site("\"a.test\"", &tree, &tables);
    std::fs::write(&file, format!("[[listen]]\naddress = \"443\"\n{site}")).expect("written");
    let ran = Launch::levity(["check", "-c"]).arguments([&file]).ran();
    let said = ran.stdout + &ran.stderr;
    assert!(
        said.contains("clients that show certificates have no early data"),
        "{said}"
    );
}
