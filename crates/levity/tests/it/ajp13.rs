//! AJP13: a servlet container behind the server.

use std::time::Duration;

use crate::support::scripted::ajp::{body_chunk, end, get_body_chunk, send_headers};
use crate::support::scripted::{Conn, Scripted};
use crate::support::{
    App, Server, Tree, assert_same, content, head, in_front_of, pass, sha256, started_in_front_of,
};

fn server(backend: &Scripted) -> Server {
    started_in_front_of(backend.address(), "ajp13", &Tree::new(), "")
}

/// Reads each body to its end and responds with its length.
fn measure(conn: &mut Conn) {
    while let Some(request) = conn.read_ajp() {
        conn.send(send_headers(200, &[("X-A", "b")]));
        conn.send(body_chunk(request.body.len().to_string().as_bytes()));
        conn.send(end(true));
    }
}

/// Responds to every request with these packets.
fn saying(packets: &[Vec<u8>]) -> Scripted {
    let bytes = packets.concat();
    Scripted::tcp(move |conn| while conn.read_ajp().is_some() && conn.send(&bytes) {})
}

#[test]
fn a_request_becomes_a_packet() {
    let backend = Scripted::tcp(measure);
    let server = server(&backend);
    let fields = [
        ("X-Asked", "yes"),
        ("X-Forwarded-For", "6.6.6.6"),
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
    ];
    let answer = server.get_with("/a%20b;jsessionid=1?c=d", &fields);
    assert_eq!((answer.status, answer.field("x-a")), (200, "b"));
    let request = backend.request();
    assert_eq!(
        (&*request.method, &*request.target),
        ("GET", "/a%20b;jsessionid=1")
    );
    for (name, value) in [
        ("query_string", Some("c=d")),
        ("remote_addr", Some("127.0.0.1")),
        ("server_name", Some("localhost")),
        ("server_port", Some("80")),
        ("is_ssl", Some("0")),
        ("secret", None),
    ] {
        assert_eq!(request.attribute(name), value, "{name}");
    }
    for (name, value) in [
        ("host", Some("localhost")),
        ("x-asked", Some("yes")),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("upgrade", None),
        ("connection", None),
        ("content-length", None),
    ] {
        assert_eq!(request.field(name), value, "{name}");
    }
}

#[test]
fn a_body_is_sent_as_the_container_requests_it() {
    let backend = Scripted::tcp(measure);
    let server = server(&backend);
    let mut client = server.client();
    for len in [0, 1, 8186, 8187, 200_000] {
        let (body, length) = (content(1, len), len.to_string());
        client.send(head("POST", "/", &[("Content-Length", &length)]));
        client.send(&body);
        assert_eq!(client.receive().text(), length);
        assert_same(&backend.requests().pop().expect("a request").body, &body);
        client.send(head("POST", "/", &[("Transfer-Encoding", "chunked")]));
        if len > 0 {
            client.send(format!("{len:x}\r\n"));
            client.send([&body, &b"\r\n"[..]].concat());
        }
        client.send("0\r\n\r\n");
        assert_eq!(client.receive().text(), length);
    }
    assert_eq!(backend.connections(), 1);
}

#[test]
fn a_container_may_request_more_than_the_body() {
    let backend = Scripted::tcp(|conn| {
        while conn.read_ajp().is_some() {
            conn.send(send_headers(200, &[]));
            conn.send(get_body_chunk(100));
            assert_eq!(conn.read_packet().expect("a packet"), b"");
            conn.send([body_chunk(b"ended"), end(true)].concat());
        }
    });
    let server = server(&backend);
    let mut client = server.client();
    assert_eq!(client.get("/").text(), "ended");
    client.send(head("POST", "/", &[("Content-Length", "4")]) + "body");
    assert_eq!(client.receive().text(), "ended");
    assert_eq!(backend.connections(), 1);
}

#[test]
fn a_connection_is_reused_if_the_container_permits_it() {
    for (reuse, connections) in [(true, 1), (false, 3)] {
        let backend = saying(&[send_headers(200, &[]), body_chunk(b"body"), end(reuse)]);
        let server = server(&backend);
        let mut client = server.client();
        for _ in 0..3 {
            assert_eq!(client.get("/").text(), "body");
        }
        assert_eq!(backend.connections(), connections);
    }
}

#[test]
fn a_request_that_cannot_be_encoded_costs_no_connection() {
    let backend = saying(&[send_headers(200, &[]), body_chunk(b"body"), end(true)]);
    let server = server(&backend);
    assert_eq!(server.get("/").text(), "body");
    for _ in 0..2 {
        server.get("/a/..;x/b").assert_status(400);
        assert_eq!(server.get("/").text(), "body");
    }
    assert_eq!(backend.connections(), 1);
}

#[test]
fn a_response_may_arrive_byte_by_byte() {
    let backend = Scripted::tcp(|conn| {
        while conn.read_ajp().is_some() {
            let headers = [("Set-Cookie", "a=b"), ("Transfer-Encoding", "chunked")];
            conn.send_slowly(send_headers(404, &headers));
            conn.send_slowly(
                [
                    body_chunk(b"half "),
                    body_chunk(b""),
                    body_chunk(b"and half"),
                ]
                .concat(),
            );
            conn.send_slowly(end(true));
        }
    });
    // The rest of a response to HEAD is drained; with a single connection, the next request waits for its end.
    let one = "connections = 1";
    let server = in_front_of(&[backend.address()], "ajp13", one, &Tree::new(), "").start();
    let mut client = server.client();
    for _ in 0..2 {
        let answer = client.get("/");
        assert_eq!(answer.status_line, "HTTP/1.1 404 Not Found");
        assert_eq!(
            (answer.field("set-cookie"), &*answer.text()),
            ("a=b", "half and half")
        );
        client.head("/").assert_status(404);
    }
    assert_eq!(backend.connections(), 1);
}

#[test]
fn content_length_is_enforced() {
    let announced = send_headers(200, &[("Content-Length", "4")]);
    let long = saying(&[announced.clone(), body_chunk(b"body and more"), end(true)]);
    assert_eq!(server(&long).get("/").text(), "body");
    let short = saying(&[announced, body_chunk(b"bod"), end(true)]);
    server(&short).client().assert_cut_short();
}

#[test]
fn path_parameters_hide_no_dot_segment() {
    let backend = Scripted::tcp(measure);
    let server = server(&backend);
    for path in ["/a/..;/b", "/a/..;x=y/b", "/%2e%2E;/b", "/.;/a", "/a/.%2e;"] {
        server.get(path).assert_status(400);
    }
    for path in ["/a;/b", "/a..;/b", "/...;/b", "/a/;x"] {
        server.get(path).assert_status(200);
    }
    assert_eq!(backend.requests().len(), 4);
}

#[test]
fn a_malformed_response_is_502() {
    for bytes in [
        &b"HTTP/1.1 200 OK\r\n\r\n"[..],
        &end(true),
        &send_headers(100, &[]),
        b"",
    ] {
        let bytes = bytes.to_vec();
        let backend = Scripted::tcp(move |conn| {
            conn.read_ajp();
            conn.send(&bytes);
        });
        server(&backend).get("/").assert_status(502);
    }
}

#[test]
#[ignore = "slow: starts Tomcat"]
fn tomcat_responds() {
    let (app, root) = (App::tomcat(), Tree::new());
    let secret = format!("secret = \"{}\"", App::TOMCAT_SECRET);
    let server = in_front_of(&[app.address()], "ajp13", &secret, &root, "").start();
    let mut client = server.client();
    for _ in 0..2 {
        let said = client.get_with("/echo.jsp?a=b", &[("X-Asked", "yes")]);
        said.assert_status(200);
        for line in [
            "uri=/echo.jsp\n",
            "query=a=b\n",
            "remote=127.0.0.1:",
            "X-Asked: yes\n",
        ] {
            assert!(said.text().contains(line), "{line}: {}", said.text());
        }
        client.head("/echo.jsp").assert_status(200);
        assert_eq!(
            client.get("/absent.jsp").status_line,
            "HTTP/1.1 404 Not Found"
        );
    }
    let body = content(2, 1_000_000);
    let digest = sha256(&body);
    for chunked in [false, true, false] {
        let (framing, length) = match chunked {
            true => ("Transfer-Encoding", "chunked"),
            false => ("Content-Length", "1000000"),
        };
        client.send(head("POST", "/upload.jsp", &[(framing, length)]));
        match chunked {
            true => client.send([b"f4240\r\n", &body[..], b"\r\n0\r\n\r\n"].concat()),
            false => client.send(&body),
        }
        assert!(client.receive().text().contains(&*digest), "{framing}");
    }
    let without = started_in_front_of(app.address(), "ajp13", &root, "");
    without.get("/echo.jsp").assert_status(403);
}

/// The first connection responds to pings. The second belongs to a container that hangs.
#[test]
#[ignore = "slow: lets connections be idle for more than 5 s, twice"]
fn an_idle_container_is_pinged() {
    let backend = Scripted::tcp(|conn| {
        let answer = [send_headers(200, &[]), body_chunk(b"body"), end(true)].concat();
        // The first call reads pings and requests, and responds to pings.
        while conn.read_ajp_head().is_some() && conn.send(&answer) {
            if conn.number() == 1 {
                conn.stall();
            }
        }
    });
    let root = Tree::new();
    let upstream = "connect_timeout = \"200ms\"\nretry.times = 0";
    let server = in_front_of(&[backend.address()], "ajp13", upstream, &root, "").start();
    let idle = Duration::from_millis(5200);
    let mut client = server.client();
    assert_eq!(client.get("/").text(), "body");
    pass(idle);
    assert_eq!(client.get("/").text(), "body");
    assert_eq!(backend.connections(), 1);
    drop(server);
    let server = in_front_of(&[backend.address()], "ajp13", upstream, &root, "").start();
    let mut client = server.client();
    assert_eq!(client.get("/").text(), "body");
    pass(idle);
    assert_eq!(client.get("/").text(), "body");
    assert_eq!(backend.connections(), 3);
    backend.release();
}

/// After a failed ping a new connection is made. If that one ends, it is a failure of the backend.
#[test]
#[ignore = "slow: lets a connection be idle for more than 5 s"]
fn a_connection_after_a_failed_ping_counts_as_new() {
    let backend = Scripted::tcp(|conn| {
        if conn.number() == 0 && conn.read_ajp().is_some() {
            conn.send([send_headers(200, &[]), body_chunk(b"body"), end(true)].concat());
            conn.stall();
        }
    });
    let other = "127.0.0.1:1";
    let upstream =
        "connect_timeout = \"200ms\"\nretry.times = 0\nfail_after = 1\nbalance = \"static\"";
    let to = [backend.address(), other];
    let server = in_front_of(&to, "ajp13", upstream, &Tree::new(), "").start();
    let mut client = server.client();
    assert_eq!(client.get("/").text(), "body");
    pass(Duration::from_millis(5200));
    client.get("/").assert_status(502);
    server.says(&format!("backend {} is ejected", backend.address()));
    backend.release();
}
