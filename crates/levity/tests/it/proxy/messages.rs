//! Messages: methods, targets and framing.

use super::tell_target;
use crate::support::scripted::Scripted;
use crate::support::{
    Client, Cut, Launch, Server, Tree, head, in_front_of, responding_while_it_reads,
    started_in_front_of,
};

/// A server whose backend responds to every request with these bytes and closes the connection.
fn answering(answer: &'static str) -> (Scripted, Server) {
    let backend = Scripted::tcp(move |conn| {
        if conn.read_request().is_some() {
            conn.send(answer);
        }
    });
    let server = Launch::proxy(backend.address(), "").start();
    (backend, server)
}

#[test]
fn every_method_passes() {
    let backend = Scripted::tcp(tell_target);
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    let methods = [
        "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND", "BREW", "get",
    ];
    for method in methods {
        let answer = client.request(method, "/a?b", &[]);
        answer.assert_status(200);
        assert_eq!(answer.length(), Some(4), "{method}");
    }
    let seen: Vec<_> = backend
        .requests()
        .into_iter()
        .map(|one| one.method)
        .collect();
    assert_eq!(seen, methods);
    for method in ["TRACE", "CONNECT"] {
        let target = if method == "TRACE" {
            "/a"
        } else {
            "localhost:80"
        };
        server
            .client()
            .request(method, target, &[])
            .assert_status(405);
    }
    assert_eq!(backend.requests().len(), methods.len());
}

#[test]
fn one_connection_serves_many_clients() {
    let backend = Scripted::tcp(tell_target);
    let server = Launch::proxy(backend.address(), "").workers(1).start();
    let mut client = server.client();
    for number in 0..20 {
        let path = format!("/{number}");
        assert_eq!(client.get(&path).text(), path);
        assert_eq!(server.get(&path).text(), path);
    }
    assert_eq!(backend.connections(), 1);
}

#[test]
fn responses_may_be_framed_in_any_way() {
    for (framed, len) in [
        ("Content-Length: 5\r\n\r\nhello", Some(5)),
        ("Content-Length: 0\r\n\r\n", Some(0)),
        (
            "Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
            None,
        ),
        ("Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", None),
        ("\r\nhello", None),
        ("Connection: close\r\n\r\nhello", None),
        ("\r\n", None),
    ] {
        let backend = Scripted::tcp(move |conn| {
            while conn.read_request().is_some() {
                conn.send(format!("HTTP/1.1 200 OK\r\n{framed}"));
                if !framed.contains('-') || framed.starts_with("Connection") {
                    return;
                }
            }
        });
        let server = Launch::proxy(backend.address(), "").start();
        let mut client = server.client();
        for _ in 0..3 {
            let answer = client.get("/");
            let body = if framed.contains("he") { "hello" } else { "" };
            assert_eq!(answer.text(), body, "{framed}");
            assert!(len.is_none() || answer.length() == len, "{framed}");
            assert!(!answer.closes(), "{framed}");
        }
    }
}

#[test]
fn http_1_0_clients_get_no_chunks() {
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n";
    let (_backend, server) = answering(chunked);
    for request in [
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    ] {
        let mut client = server.client();
        client.send(request);
        let head = client.receive_head().expect("a head");
        assert!(!head.is_chunked(), "{head:?}");
        assert_eq!(head.closes(), head.length().is_none());
        let hello = b"hello".to_vec();
        match head.length() {
            Some(5) => assert_eq!(client.read_exactly(5), hello),
            _ => assert_eq!(client.read_to_end(), Cut::Closed(Some(hello))),
        }
    }
}

#[test]
fn http_1_0_backends_are_supported() {
    let (backend, server) = answering("HTTP/1.0 200 OK\r\n\r\nhello");
    let mut client = server.client();
    for _ in 0..2 {
        assert_eq!(client.get("/").text(), "hello");
    }
    assert_eq!(backend.connections(), 2);
}

#[test]
fn http_1_0_backends_may_keep_connections() {
    let backend = Scripted::tcp(|conn| {
        while conn.read_request().is_some() {
            conn.send("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "ok");
    }
    assert_eq!(backend.connections(), 1);
}

#[test]
fn responses_without_a_body_have_none() {
    let backend = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            let status = &request.target[1..];
            // Content-Length with 204 is invalid, but backends send it, without a body.
            conn.send(format!(
                "HTTP/1.1 {status} X\r\nContent-Length: 5\r\nETag: \"a\"\r\n\r\n"
            ));
        }
    });
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    for (method, status, len) in [
        ("GET", 204, None),
        ("GET", 304, Some(5)),
        ("HEAD", 200, Some(5)),
        ("HEAD", 404, Some(5)),
        ("POST", 204, None),
    ] {
        let answer = client.request(method, &format!("/{status}"), &[]);
        answer.assert_status(status);
        assert_eq!(answer.length(), len, "{method} {status}");
        assert_eq!(answer.field("etag"), "\"a\"");
    }
}

#[test]
fn trailers_pass_in_both_directions() {
    let backend = Scripted::tcp(|conn| {
        while conn.read_request().is_some() {
            conn.send("HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n");
            conn.send("2\r\nok\r\n0\r\nX-Sum: 7\r\nX-Other: z\r\n\r\n");
        }
    });
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    let headers = [
        ("Transfer-Encoding", "chunked"),
        ("TE", "trailers"),
        ("Connection", "TE"),
    ];
    for _ in 0..2 {
        client.send(head("POST", "/", &headers) + "3\r\nabc\r\n0\r\nX-Hash: 9\r\n\r\n");
        let answer = client.receive();
        assert_eq!(answer.text(), "ok");
        let trailers = [
            ("X-Sum".to_owned(), b"7".to_vec()),
            ("X-Other".to_owned(), b"z".to_vec()),
        ];
        assert_eq!(answer.trailers, trailers);
    }
    for request in backend.requests() {
        assert_eq!(request.body, b"abc");
        assert_eq!(request.trailers, [("X-Hash".to_owned(), b"9".to_vec())]);
        assert_eq!(request.field("te"), Some("trailers"));
    }
    assert_eq!(backend.connections(), 1);
}

/// Like header fields (RFC 9110, 7.6.1).
#[test]
fn trailers_listed_in_connection_do_not_pass() {
    let backend = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            let lists = request.target == "/listed";
            let connection = if lists { "Connection: x-sum\r\n" } else { "" };
            conn.send(format!(
                "HTTP/1.1 200 OK\r\n{connection}Transfer-Encoding: chunked\r\n\r\n"
            ));
            conn.send("2\r\nok\r\n0\r\nX-Sum: 7\r\nX-Other: z\r\n\r\n");
        }
    });
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    let names = |trailers: &[(String, Vec<u8>)]| -> Vec<String> {
        trailers.iter().map(|(name, _)| name.clone()).collect()
    };
    for (path, connection, sent, received) in [
        ("/listed", "TE, x-hash", &["X-Fine"][..], &["X-Other"][..]),
        ("/", "TE", &["X-Hash", "X-Fine"], &["X-Sum", "X-Other"]),
    ] {
        let fields = [
            ("Transfer-Encoding", "chunked"),
            ("TE", "trailers"),
            ("Connection", connection),
        ];
        client.send(head("POST", path, &fields) + "1\r\na\r\n0\r\nX-Hash: 9\r\nX-Fine: 1\r\n\r\n");
        let answer = client.receive();
        assert_eq!(answer.text(), "ok");
        assert_eq!(names(&answer.trailers), received, "{path}");
        let requests = backend.requests();
        let request = requests.last().expect("a request");
        assert_eq!(names(&request.trailers), sent, "{path}");
    }
    assert_eq!(backend.connections(), 1);
}

#[test]
fn an_empty_body_keeps_its_framing() {
    let backend = Scripted::tcp(tell_target);
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    // Some applications respond with 411 to a POST without a length.
    client
        .request("POST", "/", &[("Content-Length", "0")])
        .assert_status(200);
    client.request("GET", "/", &[]).assert_status(200);
    let lengths: Vec<_> = backend
        .requests()
        .iter()
        .map(|one| one.field("content-length").map(str::to_owned))
        .collect();
    assert_eq!(lengths, [Some("0".to_owned()), None]);
}

/// The targets that reach the backend, with further tables of the configuration.
#[track_caller]
fn targets(more: &str, sent_and_seen: &[(&str, &str)]) {
    let backend = Scripted::tcp(tell_target);
    let server = Launch::proxy(backend.address(), more).start();
    let mut client = server.client();
    for (sent, seen) in sent_and_seen {
        let answer = client.get(sent);
        answer.assert_status(200);
        assert_eq!(answer.text(), *seen, "{sent}");
    }
}

#[test]
fn targets_pass_unchanged() {
    let same = [
        "/",
        "/a%2Fb",
        "/a%2fb/",
        "/a+b",
        "/a%2Bb",
        "/a;b=c,d",
        "/a//b",
        "/a?b=c%20d&e=/../f",
        "/?",
        "/%7Euser",
        "/caf%C3%A9",
        "/a?b?c",
        "/a:b@c!$&'()*",
        "/..a/b..",
        "/%25",
    ];
    targets("", &same.map(|target| (target, target)));
}

#[test]
fn dot_segments_do_not_pass() {
    let sent_and_seen = [
        ("/a/../b", "/b"),
        ("/a/./b?c=..", "/a/b?c=.."),
        ("/a/%2e%2E/b", "/b"),
        ("/a/.", "/a/"),
        ("/a/b/..", "/a/"),
        ("/a%20b/../c%20d", "/c%20d"),
    ];
    targets("", &sent_and_seen);
    let backend = Scripted::tcp(tell_target);
    let server = Launch::proxy(backend.address(), "").start();
    // An application that decodes the slash would see another path.
    server.get("/a%2F../b").assert_status(400);
    assert_eq!(backend.connections(), 0);
}

#[test]
fn an_absolute_target_becomes_a_path() {
    let seen = [
        ("http://localhost/x?y", "/x?y"),
        ("http://localhost", "/"),
        ("http://localhost?q", "/?q"),
    ];
    targets("", &seen);
}

#[test]
fn a_prefix_is_stripped() {
    let route = "[[site.route]]\npath = \"/app/*\"\nstrip_prefix = \"/app\"\n";
    let sent_and_seen = [
        ("/app/x?y", "/x?y"),
        ("/app/", "/"),
        ("/app/?q", "/?q"),
        ("/app/a%2Fb", "/a%2Fb"),
        ("/app/app/", "/app/"),
        ("/app/a/../b", "/b"),
        ("/application", "/application"),
        ("/%61pp/x", "/x"),
    ];
    targets(route, &sent_and_seen);
}

/// As the path, the host and the scheme of the request are; a backend compares them.
#[test]
fn the_destination_of_a_move_is_that_of_the_backend() {
    let backend = Scripted::tcp(tell_target);
    let route = "[[site.route]]\npath = \"/dav/*\"\nstrip_prefix = \"/dav\"\n";
    let server = Launch::proxy(backend.address(), route).start();
    let mut client = server.client();
    for (method, sent, seen) in [
        (
            "MOVE",
            "https://localhost/dav/x%2Fy%20z",
            "http://localhost/x%2Fy%20z",
        ),
        ("COPY", "HTTP://Localhost:80/d%61v//x", "http://localhost/x"),
        ("MOVE", "/dav/x/../y", "/y"),
        ("MOVE", "http://b.example/dav/x", "http://b.example/dav/x"),
        ("PUT", "https://localhost/dav/x", "https://localhost/dav/x"),
    ] {
        let fields = [("Destination", sent), ("Content-Length", "0")];
        client.send(head(method, "/dav/a", &fields));
        client.receive().assert_status(200);
        let request = backend.requests().pop().expect("a request");
        assert_eq!(request.field("destination"), Some(seen), "{sent}");
    }
    for (sent, status) in [("/other/x", 502), ("/davx/../x", 502), ("/dav/..%2Fx", 400)] {
        let mut client = server.client();
        let fields = [("Destination", sent), ("Content-Length", "0")];
        client.send(head("MOVE", "/dav/a", &fields));
        client.receive().assert_status(status);
    }
}

#[test]
fn pipelined_responses_are_in_order() {
    let backend = Scripted::tcp(tell_target);
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    let mut sent = String::new();
    for number in 0..50 {
        sent += &head("GET", &format!("/get/{number}"), &[]);
        sent += &(head(
            "POST",
            &format!("/post/{number}"),
            &[("Content-Length", "4")],
        ) + "body");
        sent += &head(
            "PUT",
            &format!("/put/{number}"),
            &[("Transfer-Encoding", "chunked")],
        );
        sent += "4\r\nbody\r\n0\r\n\r\n";
    }
    client.send(sent);
    for number in 0..50 {
        for method in ["get", "post", "put"] {
            assert_eq!(client.receive().text(), format!("/{method}/{number}"));
        }
    }
    client.send(head("GET", "/get", &[("Content-Length", "4")]) + "body");
    assert_eq!(client.receive().text(), "/get");
    let with_body = backend
        .requests()
        .into_iter()
        .filter(|one| one.body == b"body");
    assert_eq!(with_body.count(), 101);
}

#[test]
fn files_may_come_before_the_upstream() {
    let tree = Tree::new();
    tree.file("file", "of the tree");
    tree.file("folder/x", "x");
    let backend = Scripted::tcp(tell_target);
    let keys = format!(
        "[[site.route]]\npath = \"/*\"\nroot = \"{}\"\ntry = [\"file\", \"proxy\"]",
        tree.path().display()
    );
    let server = Launch::proxy(backend.address(), &keys).start();
    let mut client = server.client();
    for (method, path, body) in [
        ("GET", "/file", "of the tree"),
        ("POST", "/file", "/file"),
        ("GET", "/none?q", "/none?q"),
        ("GET", "/folder/", "/folder/"),
        ("GET", "/folder", "/folder"),
        ("DELETE", "/file", "/file"),
        ("GET", "/file?q", "of the tree"),
        ("GET", "/folder%2Fx", "/folder%2Fx"),
    ] {
        assert_eq!(
            client.request(method, path, &[]).text(),
            body,
            "{method} {path}"
        );
    }
    assert_eq!(client.head("/file").length(), Some(11));
    assert_eq!(backend.requests().len(), 6);
}

#[test]
fn backends_may_be_at_unix_sockets() {
    let backend = Scripted::unix(tell_target);
    let server = Launch::proxy(backend.address(), "").start();
    let mut client: Client = server.client();
    for path in ["/a", "/b"] {
        assert_eq!(client.get(path).text(), path);
    }
    assert_eq!(backend.connections(), 1);
}

/// As a `location` with a `root` in nginx.
#[test]
fn a_route_with_its_own_root_serves_only_files() {
    let backend =
        Scripted::tcp(
            |conn| while conn.read_request().is_some() && conn.answer("200 OK", "app") {},
        );
    let folder = Tree::new();
    folder.file("a.txt", "file");
    let site = format!(
        "[[site.route]]\npath = \"/static/*\"\nstrip_prefix = \"/static\"\nroot = \"{}\"",
        folder.path().display()
    );
    let server = started_in_front_of(backend.address(), "http", &Tree::new(), &site);
    assert_eq!(server.get("/static/a.txt").text(), "file");
    server.get("/static/b.txt").assert_status(404);
    assert_eq!(server.get("/a.txt").text(), "app");
}

/// The backend may still be processing it.
#[test]
fn a_request_that_timed_out_is_not_retried() {
    let slow = || {
        Scripted::tcp(|conn| {
            conn.read_request();
            conn.stall();
        })
    };
    let (first, second) = (slow(), slow());
    let to = [first.address(), second.address()];
    let patience = "first_byte_timeout = \"100ms\"";
    let server = in_front_of(&to, "http", patience, &Tree::new(), "").start();
    for method in ["GET", "PUT", "DELETE"] {
        let answer = server.client().request(method, "/", &[]);
        answer.assert_status(504);
    }
    let asked = first.requests().len() + second.requests().len();
    assert_eq!(asked, 3);
    first.release();
    second.release();
}

/// A backend may merge trailers into the header.
#[test]
fn trailers_obey_the_rules_for_fields() {
    let backend =
        Scripted::tcp(|conn| while conn.read_request().is_some() && conn.answer("200 OK", "") {});
    let rules = "[[site.route]]\npath = \"/*\"\n[site.route.request_headers]\nremove = [\"X-Role\"]\nset = { X-Set = \"ours\" }";
    let server = in_front_of(&[backend.address()], "http", "", &Tree::new(), rules).start();
    let mut client = server.client();
    client.send(head("POST", "/", &[("Transfer-Encoding", "chunked")]));
    let names = [
        "X-Sendfile-Type",
        "X_Accel_Mapping",
        "X_Forwarded_For",
        "X_Real_IP",
        "x-role",
        "X-Set",
        "X-Fine",
    ];
    let trailers: String = names
        .iter()
        .map(|name| format!("{name}: theirs\r\n"))
        .collect();
    client.send(format!("1\r\na\r\n0\r\n{trailers}\r\n"));
    client.receive().assert_status(200);
    let passed = backend.request().trailers;
    assert_eq!(passed, [("X-Fine".to_owned(), b"theirs".to_vec())]);
}

/// Some clients read the response only after they have sent the whole request.
#[test]
fn an_upload_continues_while_the_response_is_blocked() {
    const BYTES: usize = 24 << 20;
    let mut response = format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n").into_bytes();
    response.resize(response.len() + BYTES, b'a');
    let (address, backend) = responding_while_it_reads(response);
    let big = "body_bytes = \"64MiB\"";
    let server = in_front_of(&[&address], "http", "", &Tree::new(), big).start();
    let mut client = server.client();
    client.send(head("POST", "/", &[("Content-Length", &BYTES.to_string())]));
    client.send(vec![b'b'; BYTES]);
    assert_eq!(client.receive().body.len(), BYTES);
    backend.join().expect("it is done");
}
