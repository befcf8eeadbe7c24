//! Interim responses: 100 for clients that wait for it, and 103.

use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::clients::run;
use crate::support::scripted::Scripted;
use crate::support::{Client, Launch, Server, head};

/// The header of a request whose client waits for 100 before it sends the body.
fn expecting() -> String {
    let fields = [("Expect", "100-continue"), ("Content-Length", "4")];
    head("POST", "/", &fields)
}

fn asks(server: &Server) -> Client {
    let mut client = server.client();
    client.send(expecting());
    client
}

#[test]
fn a_backend_may_request_the_body() {
    let backend = Scripted::tcp(|conn| {
        while let Some(mut request) = conn.read_head() {
            assert_eq!(request.field("expect"), Some("100-continue"));
            conn.send("HTTP/1.1 100 Continue\r\n\r\n");
            conn.read_body(&mut request);
            conn.keep(request);
            conn.answer("200 OK", "thanks");
        }
    });
    let server = Launch::proxy(backend.address(), "").workers(1).start();
    for _ in 0..2 {
        let mut client = asks(&server);
        client.receive().assert_status(100);
        client.send("body");
        assert_eq!(client.receive().text(), "thanks");
    }
    assert_eq!(backend.requests()[1].body, b"body");
    assert_eq!(backend.connections(), 1);
}

#[test]
fn a_backend_that_refuses_gets_no_body() {
    let backend = Scripted::tcp(|conn| {
        conn.read_head();
        conn.answer("401 Unauthorized", "no");
        assert_eq!(conn.read_to_end(), b"");
    });
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = asks(&server);
    let answer = client.receive();
    assert_eq!((answer.status, answer.text().as_str()), (401, "no"));
    // The next bytes could be the body or another request.
    assert!(answer.closes());
    client.assert_closed();
    backend.wait_for_no_connection();
}

/// The header of the response arrives before the body is requested.
#[test]
fn a_backend_that_responds_before_it_reads_gets_the_body() {
    let backend = Scripted::tcp(|conn| {
        while let Some(mut request) = conn.read_head() {
            conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ngot\r\n");
            conn.read_body(&mut request);
            let request = conn.keep(request);
            let body = String::from_utf8(request.body).expect("text");
            conn.send(format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()));
        }
    });
    let server = Launch::proxy(backend.address(), "").workers(1).start();
    let mut client = asks(&server);
    for is_last in [false, true] {
        client.receive().assert_status(100);
        let head = client.receive_head().expect("a head");
        assert_eq!((head.status, head.closes()), (200, false));
        client.read_through(b"got\r\n");
        client.send("body");
        assert_eq!(client.read_through(b"0\r\n\r\n"), b"4\r\nbody\r\n0\r\n\r\n");
        if !is_last {
            client.send(expecting());
        }
    }
    assert_eq!(backend.connections(), 1);
}

/// A client that sends its body at once does not wait, and no byte of a response has been sent when it turns out to be
/// malformed.
#[test]
fn a_malformed_body_is_refused_in_place_of_the_response() {
    let backend = Scripted::tcp(|conn| {
        conn.read_head();
        conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ngot\r\n");
        conn.read_to_end();
    });
    let keys = "[log]\naccess = \"stdout\"\nformat = \"json\"";
    let server = Launch::proxy(backend.address(), keys).start();
    let mut client = server.client();
    let fields = [("Expect", "100-continue"), ("Transfer-Encoding", "chunked")];
    client.send(head("POST", "/", &fields) + "zz\r\n");
    let answer = client.receive();
    assert_eq!((answer.status, answer.closes()), (400, true), "{answer:?}");
    client.assert_closed();
    let line: Value = serde_json::from_str(&server.prints("\"target\":\"/\"")).expect("JSON");
    assert_eq!(
        (&line["status"], &line["bytes"], &line["upstream"]["failed"]),
        (&400.into(), &answer.body.len().into(), &"client".into())
    );
    backend.wait_for_no_connection();
}

/// Neither a redirect nor a complete success needs the body, and no other request can follow.
#[test]
fn a_backend_with_a_complete_response_gets_no_body() {
    for (status, begin, end) in [
        ("302 Found", "Content-Length: 4\r\n\r\nd", "one"),
        ("200 OK", "Content-Length: 4\r\n\r\ndone", ""),
        ("204 No Content", "\r\n", ""),
    ] {
        let backend = Scripted::tcp(move |conn| {
            conn.read_head();
            conn.send(format!("HTTP/1.1 {status}\r\n{begin}"));
            conn.stall();
            conn.send(end);
            assert_eq!(conn.read_to_end(), b"");
        });
        let server = Launch::proxy(backend.address(), "").start();
        let mut client = asks(&server);
        let head = client.receive_head().expect("a head");
        assert_eq!(head.status_line, format!("HTTP/1.1 {status}"));
        assert!(head.closes(), "{head:?}");
        backend.release();
        client.read_to_end();
        backend.wait_for_no_connection();
    }
}

#[test]
fn a_silent_backend_gets_the_body_after_a_second() {
    let backend = Scripted::tcp(|conn| {
        conn.read_request();
        conn.answer("200 OK", "ok");
    });
    let server = Launch::proxy(backend.address(), "").start();
    let start = Instant::now();
    let mut client = asks(&server);
    client.receive().assert_status(100);
    assert!(
        start.elapsed() >= Duration::from_millis(950),
        "{:?}",
        start.elapsed()
    );
    client.send("body");
    assert_eq!(client.receive().text(), "ok");
    assert_eq!(backend.request().body, b"body");
}

#[test]
fn a_client_that_does_not_wait_gets_no_100() {
    let backend = Scripted::tcp(|conn| {
        let request = conn.read_request().expect("a request");
        assert_eq!(request.field("expect"), None);
        conn.answer("200 OK", "ok");
    });
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    client.send(
        head(
            "POST",
            "/",
            &[("Expect", "100-continue"), ("Content-Length", "4")],
        ) + "body",
    );
    assert_eq!(client.receive().text(), "ok");
}

/// A backend that sends no 100, and says when it has the header of a request with Expect.
fn without_100() -> (Scripted, Receiver<()>) {
    let (asked, is_asked) = mpsc::channel();
    let asked = Mutex::new(asked);
    let backend = Scripted::tcp(move |conn| {
        while let Some(mut request) = conn.read_head() {
            if request.field("expect").is_some() {
                let _ = asked.lock().expect("not poisoned").send(());
            }
            conn.read_body(&mut request);
            conn.keep(request);
            conn.answer("200 OK", "ok");
        }
    });
    (backend, is_asked)
}

/// The backend need not request a body that is on its way. A client of which it was held would get 100.
#[test]
fn a_body_that_comes_without_being_asked_for_is_not_held() {
    let (backend, is_asked) = without_100();
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = asks(&server);
    is_asked.recv().expect("a request");
    client.send("bo");
    client.send("dy");
    let answer = client.receive();
    assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
    assert_eq!(backend.request().body, b"body");
}

/// The same if a part of it comes with the header: the backend is not even asked.
#[test]
fn a_client_that_has_begun_its_body_is_not_taken_to_wait() {
    let (backend, is_asked) = without_100();
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    let fields = [("Expect", "100-continue"), ("Transfer-Encoding", "chunked")];
    client.send(head("POST", "/", &fields) + "2\r\nbo\r\n");
    client.send("2\r\ndy\r\n0\r\n\r\n");
    assert_eq!(client.receive().text(), "ok");
    assert_eq!(backend.request().body, b"body");
    assert!(is_asked.try_recv().is_err());
}

/// Over HTTP/2 a body never comes together with its header.
#[cfg(feature = "http2")]
#[test]
fn a_body_over_http_2_is_not_held() {
    let (backend, is_asked) = without_100();
    let server = Launch::proxy(backend.address(), "").start();
    let url = format!("http://{}/", server.address());
    let arguments = [
        "-sSi",
        "--http2-prior-knowledge",
        "-HExpect: 100-continue",
        "--expect100-timeout",
        "0.1",
        "-dbody",
        &url,
    ];
    let output = run(Duration::from_secs(10), "curl", &arguments, Path::new("/"));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.starts_with("HTTP/2 200") && text.ends_with("ok"),
        "{text}"
    );
    assert_eq!(backend.request().body, b"body");
    is_asked.try_recv().expect("the backend was asked");
}

#[test]
fn an_unexpected_100_is_dropped() {
    let backend = Scripted::tcp(|conn| {
        conn.read_request();
        conn.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n");
        conn.answer("200 OK", "ok");
    });
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    client.send(head("POST", "/", &[("Content-Length", "4")]) + "body");
    let answer = client.receive();
    assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
}

#[test]
fn early_hints_pass_to_http_1_1_clients() {
    let backend = Scripted::tcp(|conn| {
        while conn.read_request().is_some() {
            conn.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nConnection: X-A\r\nX-A: b\r\n\r\n");
            conn.answer("200 OK", "ok");
        }
    });
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    let hints = client.get("/");
    assert_eq!(
        (hints.status, hints.field("link")),
        (103, "</a.css>; rel=preload")
    );
    assert_eq!(hints.header("x-a"), None);
    assert_eq!(client.receive().text(), "ok");
    let mut old = server.client();
    old.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(old.receive().text(), "ok");
    old.assert_closed();
}
