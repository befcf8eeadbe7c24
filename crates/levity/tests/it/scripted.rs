//! The scripted backend of the support, without a server between: a test of the proxy that fails
//! should tell of the proxy.

use levity_wire::cgi::{Environment, Split};
use levity_wire::fastcgi::{Event, ProtocolStatus};

use crate::support::direct::{Ajp, cgi, fastcgi, filled, scgi};
use crate::support::scripted::{Conn, Refusing, Scripted, ajp, fastcgi as records};
use crate::support::{Client, Cut, Tree, assert_same, content, head};

/// Answers every request with its number on the connection.
fn count(conn: &mut Conn) {
    let mut number = 0;
    while conn.read_request().is_some() {
        number += 1;
        conn.answer("200 OK", number.to_string());
    }
}

#[test]
fn http_requests_are_kept() {
    for backend in [Scripted::tcp(count), Scripted::unix(count)] {
        let mut client = Client::to(backend.address());
        assert_eq!(client.get("/a?b").text(), "1");
        client.send(head("POST", "/c", &[("Content-Length", "4")]) + "body");
        assert_eq!(client.receive().text(), "2");
        client.send(head("PUT", "/d", &[("Transfer-Encoding", "chunked")]));
        client.send("3\r\nabc\r\n2;x\r\nde\r\n0\r\nX-Sum: 5\r\n\r\n");
        assert_eq!(client.receive().text(), "3");
        assert_eq!(Client::to(backend.address()).get("/e").text(), "1");
        assert_eq!(backend.connections(), 2);
        let requests = backend.requests();
        let seen: Vec<_> = requests
            .iter()
            .map(|request| (&request.method[..], &request.target[..], request.connection))
            .collect();
        let sent = [
            ("GET", "/a?b", 0),
            ("POST", "/c", 0),
            ("PUT", "/d", 0),
            ("GET", "/e", 1),
        ];
        assert_eq!(seen, sent);
        assert_eq!(requests[0].field("host"), Some("localhost"));
        assert!(
            requests[0]
                .head
                .starts_with(b"GET /a?b HTTP/1.1\r\nHost: localhost\r\n")
        );
        assert_eq!(
            (&requests[1].body[..], &requests[2].body[..]),
            (&b"body"[..], &b"abcde"[..])
        );
        assert_eq!(requests[2].trailers, [("X-Sum".to_owned(), b"5".to_vec())]);
        drop(client);
        backend.wait_for_no_connection();
    }
}

#[test]
fn answers_come_slowly_late_or_in_part() {
    let backend = Scripted::tcp(|conn| {
        let mut request = conn.read_head().expect("a request");
        match request.target.as_str() {
            "/slowly" => {
                conn.send_slowly("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            }
            "/late" => {
                conn.stall();
                conn.read_body(&mut request);
                assert_eq!(request.body, b"body");
                conn.answer("200 OK", "late");
            }
            "/part" => {
                conn.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart");
                conn.finish();
                assert_eq!(conn.read_to_end(), b"");
            }
            _ => conn.reset(),
        }
    });
    assert_eq!(Client::to(backend.address()).get("/slowly").text(), "ok");
    let mut late = Client::to(backend.address());
    late.send(head("POST", "/late", &[("Content-Length", "4")]) + "body");
    let mut part = Client::to(backend.address());
    part.send(head("GET", "/part", &[]));
    assert_eq!(
        part.try_receive().err(),
        Some(Cut::Closed(Some(b"part".into())))
    );
    let mut reset = Client::to(backend.address());
    reset.send(head("GET", "/reset", &[]));
    assert_eq!(reset.try_receive().err(), Some(Cut::Reset(None)));
    backend.release();
    assert_eq!(late.receive().text(), "late");
}

#[test]
fn a_connection_may_be_upgraded() {
    let backend = Scripted::unix(|conn| {
        let head = conn.read_head().expect("a request");
        conn.keep(head);
        conn.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\n\r\n");
        let said = conn.read_exactly(4);
        conn.send(said);
    });
    let mut client = Client::to(backend.address());
    client.get("/").assert_status(101);
    client.send("echo");
    assert_eq!(client.read_exactly(4), b"echo");
    client.assert_closed();
    assert_eq!(backend.request().method, "GET");
}

#[test]
fn a_request_counts_before_it_is_answered() {
    let backend = Scripted::unix(|conn| {
        assert_eq!(conn.number(), 0);
        conn.read_request();
        conn.stall();
    });
    let mut client = Client::to(backend.address());
    client.send(head("GET", "/", &[]));
    backend.wait_for_requests(1);
    assert_eq!(backend.request().target, "/");
    assert_eq!(backend.open(), 1);
    drop(backend);
    client.assert_closed();
}

#[test]
#[should_panic(expected = "not a request line")]
fn what_is_no_request_fails_the_test() {
    let backend = Scripted::tcp(|conn| {
        conn.read_request();
    });
    let mut client = Client::to(backend.address());
    client.send("nonsense\r\n\r\n");
    client.assert_closed();
}

#[test]
fn nobody_listens() {
    let refusing = Refusing::new();
    let error = std::net::TcpStream::connect(refusing.address()).expect_err("refused");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

/// The variables of a request with a long one among them.
fn environment(root: &Tree, body_bytes: u64) -> Environment {
    let mut request = cgi(root, Split::Mount(b"app"), "POST", "/app/info?a=b");
    request.content_length = Some(body_bytes);
    filled(&request, &[(b"X-Long", &[b'v'; 300])])
}

#[test]
fn fastcgi_records_come_cut_and_padded() {
    let backend = Scripted::unix(|conn| {
        while let Some((_, keep_conn)) = conn.read_fastcgi() {
            assert!(keep_conn);
            conn.send(records::record(records::STDERR, b"a message", 7));
            conn.send_slowly(records::record(records::STDOUT, b"Status: 404\r\n", 255));
            conn.send(records::answer("\r\nabsent"));
        }
    });
    let (root, body) = (Tree::new(), content(1, 200_000));
    let environment = environment(&root, 200_000);
    let mut client = Client::to(backend.address());
    for _ in 0..2 {
        let answered = fastcgi(&mut client, &environment, &body);
        assert_eq!(
            (answered.head.status, answered.body()),
            (404, &b"absent"[..])
        );
        assert_eq!(answered.stderr, "a message");
        assert!(answered.reusable);
    }
    assert_eq!(backend.connections(), 1);
    for request in backend.requests() {
        assert_eq!(
            (&request.method[..], &request.target[..]),
            ("POST", "/app/info?a=b")
        );
        assert_eq!(request.field("PATH_INFO"), Some("/info"));
        assert_eq!(request.field("HTTP_X_LONG").map(str::len), Some(300));
        assert_same(&request.body, &body);
    }
}

#[test]
fn fastcgi_requests_may_be_aborted_or_refused() {
    let backend = Scripted::unix(|conn| {
        let (request, _) = conn.read_fastcgi_head().expect("a request");
        assert_eq!(request.field("CONTENT_LENGTH"), Some("9"));
        let record = conn.read_record().expect("a record");
        assert_eq!(
            (record.kind, record.id),
            (records::ABORT_REQUEST, records::ID)
        );
        conn.send(records::end(1, 2));
    });
    let mut head = Vec::new();
    levity_wire::fastcgi::write_head(&environment(&Tree::new(), 9), true, &mut head);
    let mut client = Client::to(backend.address());
    client.send(head);
    client.send(records::ABORT);
    let mut said = None;
    let mut answer = levity_wire::fastcgi::ResponseDecoder::new(true);
    let decoded = answer.decode(&client.read_to_end().body(), |event| {
        said = matches!(
            event,
            Event::End {
                app_status: 1,
                protocol_status: ProtocolStatus::Overloaded
            }
        )
        .into();
    });
    assert_eq!(
        (decoded.map(|decoded| decoded.done), said),
        (Ok(true), Some(true))
    );
    assert!(!answer.is_reusable());
}

#[test]
fn scgi_requests_are_kept() {
    let backend = Scripted::tcp(|conn| {
        conn.read_scgi();
        conn.send("Content-Type: text/plain\n\nanswer");
    });
    let (root, body) = (Tree::new(), content(2, 100_000));
    let client = Client::to(backend.address());
    let answered = scgi(client, &environment(&root, 0), &body);
    assert_eq!(
        (answered.head.status, answered.body()),
        (200, &b"answer"[..])
    );
    let request = backend.request();
    assert_eq!(
        (&request.method[..], &request.target[..]),
        ("POST", "/app/info?a=b")
    );
    assert_eq!(request.field("CONTENT_LENGTH"), Some("100000"));
    assert!(request.head.ends_with(b","));
    assert_same(&request.body, &body);
}

#[test]
fn ajp_packets_are_understood() {
    let backend = Scripted::tcp(|conn| {
        while conn.read_ajp().is_some() {
            conn.send(ajp::send_headers(201, &[("X-A", "b")]));
            conn.send_slowly(ajp::body_chunk(b"half "));
            conn.send(ajp::body_chunk(b"and half"));
            conn.send(ajp::end(true));
        }
    });
    let mut client = Ajp::new(Client::to(backend.address()));
    client.ping();
    let body = content(3, 50_000);
    for (says_length, body) in [(true, &body[..]), (false, &body), (true, b""), (false, b"")] {
        let contained = client.request("POST", "/path?a=b", body, says_length);
        assert_eq!(contained.status, 201);
        assert_eq!(contained.headers, [("X-A".to_owned(), "b".to_owned())]);
        assert_eq!(contained.body, b"half and half");
        assert!(contained.reuse);
        let request = backend.requests().pop().expect("a request");
        assert_eq!(
            (&request.method[..], &request.target[..]),
            ("POST", "/path")
        );
        assert_eq!(request.attribute("query_string"), Some("a=b"));
        assert_eq!(request.attribute("remote_addr"), Some("192.0.2.1"));
        assert_eq!(request.field("x-asked"), Some("yes"));
        assert_same(&request.body, body);
    }
    client.request("BREW", "/pot", b"", true);
    assert_eq!(backend.requests().pop().expect("a request").method, "BREW");
}
