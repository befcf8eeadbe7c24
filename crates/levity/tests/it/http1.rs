//! The protocol on the wire (RFC 9112).

use crate::support::{Answer, Client, Launch, Server, Tree, assert_same, content};

fn server() -> (Tree, Server) {
    with_limits("")
}

fn with_limits(limits: &str) -> (Tree, Server) {
    let tree = Tree::new();
    tree.file("a", "AAA");
    tree.file("b", "BB");
    tree.filled("large", 2_000_000);
    let server = Launch::site(tree.path(), &format!("[limits]\n{limits}"), "").start();
    (tree, server)
}

/// Sends raw bytes and takes one answer.
fn raw(server: &Server, bytes: impl AsRef<[u8]>) -> (Client, Answer) {
    let mut client = server.client();
    client.send(bytes);
    let answer = client.receive();
    (client, answer)
}

#[test]
fn answers_come_in_the_order_of_the_requests() {
    let (_tree, server) = server();
    let mut client = server.client();
    client.send(
        "GET /a HTTP/1.1\r\nHost: x\r\n\r\n\
         GET /large HTTP/1.1\r\nHost: x\r\n\r\n\
         GET /none HTTP/1.1\r\nHost: x\r\n\r\n\
         HEAD /large HTTP/1.1\r\nHost: x\r\n\r\n\
         GET /b HTTP/1.1\r\nHost: x\r\n\r\n",
    );
    assert_eq!(client.receive().text(), "AAA");
    assert_same(&client.receive().body, &content(2_000_000, 2_000_000));
    client.receive().assert_status(404);
    assert_eq!(client.receive_to("HEAD").length(), Some(2_000_000));
    assert_eq!(client.receive().text(), "BB");
}

#[test]
fn many_requests_in_one_packet() {
    let (_tree, server) = server();
    let mut client = server.client();
    client
        .send("GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1000));
    for _ in 0..1000 {
        assert_eq!(client.receive().text(), "AAA");
        assert_eq!(client.receive().text(), "BB");
    }
}

#[test]
fn byte_by_byte() {
    let (_tree, server) = server();
    let mut client = server.client();
    for byte in "GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n".bytes() {
        client.send([byte]);
    }
    assert_eq!(client.receive().text(), "AAA");
    assert_eq!(client.receive().text(), "BB");
}

#[test]
fn empty_lines_before_a_request() {
    let (_tree, server) = server();
    let mut client = server.client();
    client.send("\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.receive().text(), "AAA");
    assert_eq!(client.receive().text(), "BB");
}

#[test]
fn connections_stay_open_in_http_1_1() {
    let (_tree, server) = server();
    let mut client = server.client();
    for _ in 0..3 {
        assert!(!client.get("/a").closes());
    }
    let last = client.get_with("/a", &[("Connection", "x, Close")]);
    assert!(last.closes());
    client.assert_closed();
}

#[test]
fn connections_close_in_http_1_0() {
    let (_tree, server) = server();
    let (mut client, answer) = raw(&server, "GET /a HTTP/1.0\r\n\r\n");
    assert_eq!((answer.text().as_str(), answer.closes()), ("AAA", true));
    client.assert_closed();
}

#[test]
fn connections_stay_open_in_http_1_0_when_asked() {
    let (_tree, server) = server();
    let mut client = server.client();
    for _ in 0..3 {
        client.send("GET /a HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
        assert_eq!(
            client.receive().field("connection").to_ascii_lowercase(),
            "keep-alive"
        );
    }
}

#[test]
fn nothing_is_read_after_connection_close() {
    let (_tree, server) = server();
    let requests = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n\
                    GET /b HTTP/1.1\r\nHost: x\r\n\r\n";
    let (mut client, answer) = raw(&server, requests);
    assert_eq!(answer.text(), "AAA");
    client.assert_closed();
}

#[test]
fn a_client_that_sends_no_more_is_still_answered() {
    let (_tree, server) = server();
    let mut client = server.client();
    client.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    client.finish();
    assert_same(&client.receive().body, &content(2_000_000, 2_000_000));
    assert_eq!(client.receive().text(), "AAA");
    client.assert_closed();
}

#[test]
fn a_body_is_read_and_ignored() {
    let (_tree, server) = server();
    for (framing, body) in [
        ("Content-Length: 5", "hello"),
        ("Content-Length: 0", ""),
        (
            "Transfer-Encoding: chunked",
            "3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nX: y\r\n\r\n",
        ),
        ("transfer-encoding: CHUNKED", "0\r\n\r\n"),
    ] {
        let mut client = server.client();
        let first = format!("GET /a HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n{body}");
        client.send(first + "GET /b HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.receive().text(), "AAA", "{framing}");
        assert_eq!(client.receive().text(), "BB", "{framing}");
    }
}

#[test]
fn a_body_arrives_in_pieces() {
    let (_tree, server) = server();
    let mut client = server.client();
    let requests = "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\
                    a\r\n0123456789\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n";
    for byte in requests.bytes() {
        client.send([byte]);
    }
    client.receive().assert_status(405);
    assert_eq!(client.receive().text(), "BB");
}

#[test]
fn a_body_of_which_much_arrives() {
    let (_tree, server) = with_limits("body_bytes = \"4MiB\"");
    let mut client = server.client();
    let body = "x".repeat(4 << 20);
    client.send(format!(
        "PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    client.receive().assert_status(405);
    assert_eq!(client.get("/b").text(), "BB");
}

#[test]
fn a_body_that_is_too_large() {
    let (_tree, server) = with_limits("body_bytes = \"10B\"");
    for request in [
        "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n0123456789X",
        "GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551615\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n0123456789X\r\n0\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n012345\r\n6\r\n012345\r\n",
    ] {
        let (mut client, answer) = raw(&server, request);
        assert_eq!((answer.status, answer.closes()), (413, true), "{request}");
        client.assert_closed();
    }
    let (mut client, _) = raw(
        &server,
        "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789",
    );
    assert_eq!(client.get("/b").text(), "BB");
}

/// A browser sends all of its body before it reads: the answer must survive that.
#[test]
fn a_large_body_is_refused_audibly() {
    let (_tree, server) = server();
    let mut client = server.client();
    let body = vec![b'x'; 64 << 20];
    client.send(format!(
        "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
        body.len()
    ));
    client.send(&body);
    client.receive().assert_status(413);
    client.assert_closed();
}

#[test]
fn a_client_that_asks_first_is_told_to_go_on() {
    let (_tree, server) = server();
    let (mut client, answer) = raw(
        &server,
        "GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n\r\n",
    );
    answer.assert_status(100);
    client.send("helloGET /b HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.receive().text(), "AAA");
    assert_eq!(client.receive().text(), "BB");
}

#[test]
fn a_client_that_asks_first_is_spared_a_body_in_vain() {
    let (_tree, server) = with_limits("body_bytes = \"10B\"");
    for (request, status) in [
        ("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5", 405),
        ("BREW /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5", 501),
        ("GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 11", 413),
    ] {
        let (mut client, answer) = raw(
            &server,
            format!("{request}\r\nExpect: 100-continue\r\n\r\n"),
        );
        assert_eq!(
            (answer.status, answer.closes()),
            (status, true),
            "{request}"
        );
        client.assert_closed();
    }
}

#[test]
fn expect_means_nothing_in_http_1_0_and_without_a_body() {
    let (_tree, server) = server();
    for request in [
        "GET /a HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
        "GET /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: x\r\nExpect: the unexpected\r\n\r\n",
    ] {
        assert_eq!(raw(&server, request).1.text(), "AAA", "{request}");
    }
}

#[test]
fn methods_that_files_do_not_have() {
    let (_tree, server) = server();
    let mut client = server.client();
    for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE"] {
        let answer = client.request(method, "/a", &[("X-Secret", "s")]);
        answer.assert_status(405);
        assert_eq!(answer.field("allow"), "GET, HEAD, OPTIONS", "{method}");
        assert!(!answer.text().contains("X-Secret"));
    }
    client.send("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n");
    client.receive().assert_status(405);
}

#[test]
fn methods_that_nobody_has() {
    let (_tree, server) = server();
    for method in ["BREW", "get", "GET_"] {
        server
            .client()
            .request(method, "/a", &[])
            .assert_status(501);
    }
}

#[test]
fn options() {
    let (_tree, server) = server();
    let mut client = server.client();
    for path in ["*", "/a", "/none"] {
        let answer = client.request("OPTIONS", path, &[]);
        answer.assert_status(204);
        assert_eq!(answer.field("allow"), "GET, HEAD, OPTIONS");
        assert_eq!(answer.header("content-length"), None);
    }
}

#[test]
fn targets_in_absolute_form() {
    let (tree, other) = (Tree::new(), Tree::new());
    tree.file("a", "one");
    tree.file("index.html", "index");
    other.file("a", "two");
    let site = |host: &str, tree: &Tree| {
        format!(
            "[[site]]\nhosts = [\"{host}\"]\nroot = \"{}\"\n",
            tree.path().display()
        )
    };
    let listen = "[[listen]]\naddress = \"127.0.0.1:0\"\n";
    let config = [
        listen.to_owned(),
        site("one.example", &tree),
        site("two.example", &other),
    ];
    let server = Launch::run(&config.concat()).start();
    for (target, text) in [
        ("http://one.example/a", "one"),
        ("HTTP://ONE.example:80/a?b", "one"),
        ("https://one.example/a", "one"),
        ("http://one.example", "index"),
        ("http://one.example?q", "index"),
    ] {
        // The authority of the target counts, not the Host (RFC 9112, 3.2.2).
        let (_, answer) = raw(
            &server,
            format!("GET {target} HTTP/1.1\r\nHost: two.example\r\n\r\n"),
        );
        assert_eq!(answer.text(), text, "{target}");
    }
}

#[test]
fn a_name_that_no_site_has() {
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Launch::site(tree.path(), "", "hosts = [\"one.example\"]").start();
    for head in [
        "GET /a HTTP/1.1\r\nHost: two.example\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: one.example.two\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: xone.example\r\n\r\n",
        "GET http://two.example/a HTTP/1.1\r\nHost: one.example\r\n\r\n",
        "GET /a HTTP/1.0\r\n\r\n",
        "OPTIONS /a HTTP/1.1\r\nHost: two.example\r\n\r\n",
    ] {
        assert_eq!(raw(&server, head).1.status, 421, "{head}");
    }
    raw(&server, "GET /a HTTP/1.1\r\nHost: one.example\r\n\r\n")
        .1
        .assert_status(200);
}

#[test]
fn a_request_without_a_host_is_for_the_default_site() {
    let (named, rest) = (Tree::new(), Tree::new());
    named.file("a", "named");
    rest.file("a", "rest");
    for hosts in ["\"one.example\"", "\"*.example\""] {
        let site = format!(
            "hosts = [{hosts}]\n[[site]]\nroot = \"{}\"",
            rest.path().display()
        );
        let server = Launch::site(named.path(), "", &site).start();
        assert_eq!(raw(&server, "GET /a HTTP/1.0\r\n\r\n").1.text(), "rest");
        let named = "GET /a HTTP/1.0\r\nHost: one.example\r\n\r\n";
        assert_eq!(raw(&server, named).1.text(), "named");
    }
}

#[test]
fn http_1_0_needs_no_host() {
    let (_tree, server) = server();
    assert_eq!(raw(&server, "GET /a HTTP/1.0\r\n\r\n").1.text(), "AAA");
}

#[test]
fn a_later_minor_version_is_read_as_1_1() {
    let (_tree, server) = server();
    let (_, answer) = raw(&server, "GET /a HTTP/1.2\r\nHost: x\r\n\r\n");
    assert_eq!(answer.status_line, "HTTP/1.1 200 OK");
}

/// What two readers could take differently, or what no reader should take. Whatever follows it on the
/// connection must not be answered.
#[rustfmt::skip]
const REFUSED: &[(&str, u16)] = &[
    ("GET /a HTTP/1.1\r\n\r\n", 400),
    ("GET /a HTTP/1.1\r\nHost:\r\n\r\n", 400),
    ("GET /a HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 400),
    ("GET /a HTTP/1.1\r\nHost: x, y\r\n\r\n", 400),
    ("GET /a HTTP/1.1\r\nHost: x/y\r\n\r\n", 400),
    ("GET /a HTTP/1.1\r\nHost: u@x\r\n\r\n", 400),
    ("GET /a HTTP/1.1\r\nHost: x:y\r\n\r\n", 400),
    ("GET /a HTTP/1.1\r\nHost: [::1\r\n\r\n", 400),
    ("GET /a HTTP/1.1\r\nHost: x..y\r\n\r\n", 400),
    ("GET /a HTTP/1.1\r\nHost: x:99999\r\n\r\n", 400),
    ("GET http://u@x/a HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 5\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0x5\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5 5\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551616\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    ("POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n 1\r\nx\r\n0\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n0\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n11111111111111111\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;\r\nx\r\n0\r\n\r\n", 400),
    ("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;a=\"\r\nx\r\n0\r\n\r\n", 400),
    ("GET /a HTTP/1.1\nHost: x\n\n", 400),
    ("GET /a HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n", 400),
    ("GET /a HTTP/1.1\r\nHost: x\r\nX: a\nY: b\r\n\r\n", 400),
    ("GET /a HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n", 400),
    ("GET /a HTTP/1.1\r\nHost: x\r\n folded: yes\r\n\r\n", 400),
    ("GET /a HTTP/1.1\r\n Host: x\r\n\r\n", 400),
    ("GET /a HTTP/1.1\r\nHost : x\r\n\r\n", 400),
    ("GET /a HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", 400),
    ("GET /a HTTP/1.1\r\nHost: x\r\n: empty\r\n\r\n", 400),
    ("GET /a HTTP/1.1\r\nHost: x\r\nX(y): z\r\n\r\n", 400),
    ("GET  /a HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    ("GET /a  HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    ("GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    ("GET\t/a\tHTTP/1.1\r\nHost: x\r\n\r\n", 400),
    ("GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    ("GET a HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    ("GET * HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    ("GET ftp://x/a HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    ("GET /a http/1.1\r\nHost: x\r\n\r\n", 400),
    ("GET /a HTTP/1.10\r\nHost: x\r\n\r\n", 400),
    ("GET /a HTTP/2.0\r\nHost: x\r\n\r\n", 505),
    ("PRI * HTTP/3.0\r\n\r\nSM\r\n\r\n", 505),
    ("GET /a\r\n\r\n", 400),
    ("\x16\x03\x01\x02\0\x01\0\x01\u{fc}\x03\x03", 400),
    ("\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n", 400),
];

#[track_caller]
fn is_refused(server: &Server, request: &[u8], status: u16) {
    let mut client = server.client();
    client.send([request, b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"].concat());
    let answer = client.receive();
    let shown = request[..request.len().min(200)].escape_ascii();
    assert_eq!((answer.status, answer.closes()), (status, true), "{shown}");
    assert!(answer.body.len() < 200, "{shown}: {answer:?}");
    client.assert_closed();
}

#[test]
fn ambiguous_requests_are_refused() {
    let (_tree, server) = server();
    for (request, status) in REFUSED {
        is_refused(&server, request.as_bytes(), *status);
    }
    assert_eq!(server.get("/a").text(), "AAA");
}

#[test]
fn requests_that_are_too_long() {
    let (_tree, server) = server();
    let long = "x".repeat(9000);
    let lines = |count: usize, len: usize| {
        (0..count)
            .map(|n| format!("X-{n}: {}\r\n", "y".repeat(len)))
            .collect::<String>()
    };
    for (request, status) in [
        (format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n"), 414),
        (
            format!("GET /a HTTP/1.1\r\nHost: x\r\nX: {long}\r\n\r\n"),
            431,
        ),
        (
            format!("GET /a HTTP/1.1\r\nHost: x\r\n{}\r\n", lines(100, 1)),
            431,
        ),
        (
            format!("GET /a HTTP/1.1\r\nHost: x\r\n{}\r\n", lines(5, 4000)),
            431,
        ),
        (format!("GET /{long}"), 414),
    ] {
        is_refused(&server, request.as_bytes(), status);
    }
    let (_, answer) = raw(
        &server,
        format!("GET /a HTTP/1.1\r\nHost: x\r\n{}\r\n", lines(99, 10)),
    );
    answer.assert_status(200);
}

/// The client may still be sending when it is refused; it must be able to read why.
#[test]
fn a_refusal_survives_what_follows_it() {
    let (_tree, server) = server();
    let mut client = server.client();
    let _ = client.try_send("GET / HTTP/1.1\r\nbad\r\n\r\n".to_owned() + &"x".repeat(200_000));
    client.receive().assert_status(400);
}

#[test]
fn a_client_that_leaves_within_a_request_harms_nobody() {
    let (_tree, server) = server();
    for part in [
        "",
        "G",
        "GET /a HTTP/1.1\r\n",
        "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx",
    ] {
        server.client().send(part);
    }
    assert_eq!(server.get("/a").text(), "AAA");
}
