//! Backends that violate the protocol. The client gets an error, or the end of its connection once the header has
//! been sent, but never a truncated body that looks complete, and never the response to another request.

use std::sync::Mutex;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::support::scripted::{Conn, Scripted};
use crate::support::{
    Answer, Client, Cut, Launch, Server, assert_same, content, head, pass, wait_until,
};

/// Misbehaves on requests for `/bad`.
fn server(more: &str, bad: impl Fn(&mut Conn) + Send + Sync + 'static) -> (Scripted, Server) {
    let backend = Scripted::tcp(move |conn| {
        while let Some(request) = conn.read_request() {
            if request.target == "/bad" {
                return bad(conn);
            }
            conn.answer("200 OK", request.target);
        }
    });
    let server = Launch::proxy(backend.address(), more).start();
    (backend, server)
}

/// The client gets this status, the reason is logged, and the connection stays usable.
#[track_caller]
fn refused(
    status: u16,
    kind: &str,
    reason: &str,
    more: &str,
    bad: impl Fn(&mut Conn) + Send + Sync + 'static,
) {
    let (backend, server) = server(more, bad);
    let mut client = server.client();
    let answer = last(&mut client, "/bad");
    answer.assert_status(status);
    assert_eq!(
        answer.field("proxy-status"),
        format!("levity; error={kind}"),
        "{reason}"
    );
    let address = backend.address();
    server.says(&format!(
        "upstream app, backend {address}: {reason} ({status})"
    ));
    assert_eq!(client.get("/good").text(), "/good");
    assert_eq!(server.get("/other").text(), "/other");
}

/// The final response.
#[track_caller]
fn last(client: &mut Client, path: &str) -> Answer {
    client.send(head("GET", path, &[]));
    loop {
        let answer = client.receive();
        if answer.status >= 200 {
            return answer;
        }
    }
}

#[test]
fn a_malformed_header() {
    for (bytes, reason) in [
        ("nonsense\r\n\r\n", "bad status line"),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\r\n", "bare CR or LF"),
        ("HTTP/2 200 OK\r\n\r\n", "HTTP version"),
        ("HTTP/1.1 99 X\r\n\r\n", "bad status line"),
        ("HTTP/1.1 1000 X\r\n\r\n", "bad status line"),
        ("HTTP/1.1 200 OK\nContent-Length: 2\n\nok", ""),
        ("HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n", ""),
        (
            "HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
            "bad header name, or white space before its colon",
        ),
        (
            "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
            "folded header line",
        ),
        ("\r\nHTTP/1.1 200 OK\r\n\r\n", "bad status line"),
    ] {
        let (backend, server) = server("", move |conn| {
            conn.send(bytes);
        });
        let mut client = server.client();
        let answer = client.get("/bad");
        assert_eq!(answer.status, 502, "{bytes:?}");
        assert_eq!(
            answer.field("proxy-status"),
            "levity; error=http_protocol_error"
        );
        let line = server.says(&format!("upstream app, backend {}: ", backend.address()));
        assert!(line.contains(reason) || reason.contains(' '), "{line}");
        assert_eq!(client.get("/good").text(), "/good", "{bytes:?}");
    }
}

/// As nginx, HAProxy and Caddy pass them on.
#[test]
fn what_is_unusual_but_clear_passes() {
    let head = "HTTP/1.1 600 Odd\r\nTransfer-Encoding: chunked\r\n\r\n";
    let sent = format!("{head}5   \r\nhello\r\n0 \r\n\r\n");
    let (_backend, server) = server("", move |conn| {
        conn.send(&sent);
    });
    let answer = server.get("/bad");
    assert_eq!((answer.status, answer.text().as_str()), (600, "hello"));
}

#[test]
fn contradictory_framing() {
    for (lines, reason) in [
        (
            "Content-Length: 2\r\nContent-Length: 3",
            "conflicting Content-Length",
        ),
        (
            "Content-Length: 2\r\nContent-Length: 2",
            "repeated Content-Length",
        ),
        ("Content-Length: 2, 2", "bad Content-Length"),
        ("Content-Length: -1", "bad Content-Length"),
        (
            "Content-Length: 2\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding together with Content-Length",
        ),
        (
            "Transfer-Encoding: gzip, chunked",
            "unknown transfer coding",
        ),
        (
            "Transfer-Encoding: chunked, gzip",
            "transfer coding after chunked",
        ),
        (
            "Transfer-Encoding: xchunked",
            "chunked is not the last transfer coding",
        ),
    ] {
        refused(502, "http_protocol_error", reason, "", move |conn| {
            conn.send(format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\nok"));
        });
    }
}

#[test]
fn an_end_before_the_header() {
    for bytes in [
        "",
        "HTTP/1.1 200 OK\r\nContent-",
        "HTTP/1.1 100 Continue\r\n\r\n",
    ] {
        let reason = "the connection was closed before the end of the response header";
        refused(502, "http_response_incomplete", reason, "", move |conn| {
            conn.send(bytes);
        });
    }
}

#[test]
fn a_reset_before_the_header() {
    let reason = "Connection reset by peer (os error 104)";
    refused(502, "connection_terminated", reason, "", |conn| {
        conn.reset()
    });
}

#[test]
fn an_unrequested_change_of_protocol() {
    refused(502, "http_protocol_error", "unrequested 101", "", |conn| {
        conn.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
    });
}

#[test]
fn endless_headers() {
    refused(
        502,
        "http_protocol_error",
        "too many header lines",
        "",
        |conn| {
            conn.send("HTTP/1.1 200 OK\r\n");
            while conn.send("X: y\r\n".repeat(100)) {}
        },
    );
    refused(
        502,
        "http_protocol_error",
        "header line too long",
        "",
        |conn| {
            conn.send("HTTP/1.1 200 OK\r\nX: ");
            while conn.send([b'y'; 1000]) {}
        },
    );
    refused(
        502,
        "http_protocol_error",
        "status line too long",
        "",
        |conn| {
            while conn.send([b'H'; 1000]) {}
        },
    );
}

#[test]
fn endless_interim_responses() {
    for interim in [
        "102 Processing\r\n\r\n",
        "100 Continue\r\n\r\n",
        "103 Early Hints\r\nLink: a\r\n\r\n",
    ] {
        refused(
            502,
            "http_protocol_error",
            "too many interim responses",
            "",
            move |conn| {
                while conn.send(format!("HTTP/1.1 {interim}").repeat(10)) {}
            },
        );
    }
}

#[test]
fn a_few_interim_responses_are_allowed() {
    let (_backend, server) = server("", |conn| {
        conn.send("HTTP/1.1 102 Processing\r\n\r\n".repeat(20));
        conn.answer("200 OK", "ok");
    });
    assert_eq!(last(&mut server.client(), "/bad").text(), "ok");
}

/// The body fails after the header has been sent.
#[track_caller]
fn is_cut(client: &mut Client, sent: &str, body: &str) {
    client.send(sent);
    let cut = client.try_receive().err();
    assert_eq!(cut, Some(Cut::Closed(Some(body.into()))));
}

/// The answer begins so, and when the client has that, it goes on so and ends.
#[track_caller]
fn cut(begin: &'static str, bad: &'static str) {
    let (backend, server) = server("", move |conn| {
        conn.send(format!("HTTP/1.1 200 OK\r\n{begin}"));
        conn.stall();
        conn.send(bad);
    });
    let mut client = server.client();
    client.send(head("GET", "/bad", &[]));
    client.read_through(b"half");
    backend.release();
    match client.read_to_end() {
        Cut::Closed(Some(rest)) => assert!(!rest.ends_with(b"0\r\n\r\n"), "{bad:?}"),
        other => panic!("{bad:?}: {other:?}"),
    }
    let line = server.says(&format!("upstream app, backend {}: ", backend.address()));
    assert!(line.ends_with("; the response is truncated"), "{line}");
    assert_eq!(server.get("/good").text(), "/good", "{bad:?}");
}

#[test]
fn a_truncated_body() {
    cut("Content-Length: 9\r\n\r\nhalf", "");
    cut("Content-Length: 9\r\n\r\nhalf", "more");
    for bad in [
        "",
        "\r\n",
        "\r\nzz\r\n",
        "way\r\n",
        "\r\n9\r\nhalf",
        "\r\n0\r\n",
        "\n0\n\n",
        "\r\n0\r\nno field\r\n\r\n",
        "\r\n11111111111111111\r\nx",
    ] {
        cut("Transfer-Encoding: chunked\r\n\r\n4\r\nhalf", bad);
    }
}

/// A reset would discard the bytes that the client has not read yet.
#[test]
fn the_start_of_a_truncated_body_arrives() {
    const SENT_BYTES: usize = 200_000;
    for framing in ["Content-Length: 400000", "Transfer-Encoding: chunked"] {
        let body = content(5, SENT_BYTES);
        let (sent, chunked) = (body.clone(), framing.starts_with("Transfer"));
        let (_backend, server) = server("", move |conn| {
            conn.send(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n"));
            if chunked {
                conn.send("30d41\r\n");
            }
            conn.send(&sent);
        });
        let mut client = Client::narrow(server.address());
        client.send(head("GET", "/bad", &[]));
        server.says("; the response is truncated");
        match client.try_receive() {
            Err(Cut::Closed(Some(got))) => assert_same(&got, &body),
            other => panic!("{framing}: {other:?}"),
        }
    }
}

/// Nothing has been sent yet, so there can be an error response.
#[test]
fn a_malformed_body() {
    refused(
        502,
        "http_protocol_error",
        "bad chunk extension",
        "",
        |conn| {
            conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;\r\nx\r\n");
        },
    );
    refused(502, "http_protocol_error", "bad chunk size", "", |conn| {
        conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
    });
}

#[test]
fn a_reset_within_the_body() {
    let (backend, server) = server("", |conn| {
        conn.send("HTTP/1.1 200 OK\r\n\r\nhalf");
        conn.stall();
        conn.reset();
    });
    // An orderly end of the connection would end the body.
    let mut old = server.client();
    old.send("GET /bad HTTP/1.0\r\n\r\n");
    old.read_through(b"half");
    backend.release();
    assert_eq!(old.read_to_end(), Cut::Reset(Some(Vec::new())));
}

#[test]
fn a_body_that_stalls() {
    let (backend, server) = server("idle_timeout = \"300ms\"", |conn| {
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
        conn.read_to_end();
    });
    let start = Instant::now();
    is_cut(&mut server.client(), &head("GET", "/bad", &[]), "half");
    assert!(start.elapsed() >= Duration::from_millis(250));
    let reason = "the response stalled (idle_timeout); the response is truncated";
    server.says(&format!(
        "upstream app, backend {}: {reason}",
        backend.address()
    ));
    backend.wait_for_no_connection();
}

#[test]
fn a_header_that_does_not_arrive() {
    let reason = "no response in time (first_byte_timeout)";
    let more = "first_byte_timeout = \"300ms\"\nretry.times = 0";
    refused(504, "http_response_timeout", reason, more, |conn| {
        conn.read_to_end();
    });
}

#[test]
fn a_header_that_arrives_slowly() {
    let reason = "no response in time (first_byte_timeout)";
    let more = "first_byte_timeout = \"500ms\"\nretry.times = 0";
    refused(504, "http_response_timeout", reason, more, |conn| {
        conn.send("HTTP/1.1 200 OK\r\nX: ");
        while conn.send("y") {
            pass(Duration::from_millis(20));
        }
    });
}

#[test]
fn a_request_that_is_not_read() {
    let backend = Scripted::tcp(|conn| {
        conn.read_head();
        conn.stall();
    });
    let keys = "idle_timeout = \"300ms\"\n[limits]\nbody_bytes = \"100MiB\"";
    let server = Launch::proxy(backend.address(), keys).start();
    let mut client = server.client();
    client.send(head("POST", "/", &[("Content-Length", "60000000")]));
    // Fails when the server has closed; the response can still be read.
    let _ = client.try_send(vec![b'x'; 60_000_000]);
    client.receive().assert_status(504);
    server.says("the backend does not read the request (idle_timeout) (504)");
    backend.release();
}

#[test]
fn surplus_bytes_are_no_response() {
    for more in [
        "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond",
        "X",
        "\r\n",
    ] {
        let backend = Scripted::tcp(move |conn| {
            while let Some(request) = conn.read_request() {
                let body = request.target;
                conn.send(format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}{more}",
                    body.len()
                ));
            }
        });
        let server = Launch::proxy(backend.address(), "").workers(1).start();
        let mut client = server.client();
        for number in 0..5 {
            let path = format!("/{number}");
            assert_eq!(client.get(&path).text(), path, "{more:?}");
        }
        assert_eq!(backend.connections(), 5);
    }
}

#[test]
fn surplus_bytes_after_a_large_body_are_no_response() {
    const BODY_BYTES: usize = 1_000_000;
    let backend = Scripted::tcp(|conn| {
        while conn.read_request().is_some() {
            conn.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
            ));
            conn.send(vec![b'x'; BODY_BYTES - 1000]);
            // Together, so that the surplus has arrived when the body is complete.
            conn.send(vec![b'x'; 1010]);
        }
    });
    let server = Launch::proxy(backend.address(), "").workers(1).start();
    let mut client = server.client();
    for _ in 0..5 {
        assert_same(&client.get("/").body, &vec![b'x'; BODY_BYTES]);
    }
    assert_eq!(backend.connections(), 5);
}

#[test]
fn a_response_on_an_idle_connection_is_dropped() {
    let (told, hears) = mpsc::channel();
    let told = Mutex::new(told);
    let backend = Scripted::tcp(move |conn| {
        while let Some(request) = conn.read_request() {
            conn.answer("200 OK", &request.target);
            if request.target == "/first" {
                conn.stall();
                conn.answer("200 OK", "unasked");
                told.lock().expect("a lock").send(()).expect("a test");
            }
        }
    });
    let server = Launch::proxy(backend.address(), "").workers(1).start();
    let mut client = server.client();
    assert_eq!(client.get("/first").text(), "/first");
    backend.release();
    hears.recv().expect("a backend");
    for path in ["/a", "/b"] {
        assert_eq!(client.get(path).text(), path);
    }
    assert_eq!(backend.connections(), 2);
}

#[test]
fn a_body_where_none_is_allowed() {
    let backend = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            let status = match request.target.as_str() {
                "/204" => 204,
                "/304" => 304,
                _ => 200,
            };
            conn.send(format!(
                "HTTP/1.1 {status} X\r\nContent-Length: 4\r\n\r\nbody"
            ));
        }
    });
    let server = Launch::proxy(backend.address(), "").workers(1).start();
    let mut client = server.client();
    for (method, path) in [
        ("HEAD", "/"),
        ("GET", "/204"),
        ("GET", "/304"),
        ("HEAD", "/"),
    ] {
        client.request(method, path, &[]);
        assert_eq!(client.get("/").text(), "body", "{method} {path}");
    }
}

#[test]
fn a_response_before_the_request() {
    let backend = Scripted::tcp(|conn| {
        conn.send("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    });
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    for _ in 0..5 {
        let status = client.get("/").status;
        assert!([408, 502].contains(&status), "{status}");
    }
}

#[test]
fn a_close_after_a_complete_response_is_no_failure() {
    let (_backend, server) = server("", |conn| {
        conn.answer("200 OK", "whole");
    });
    let mut client = server.client();
    for _ in 0..5 {
        assert_eq!(client.get("/bad").text(), "whole");
    }
}

#[test]
fn byte_by_byte() {
    let backend = Scripted::tcp(|conn| {
        while conn.read_request().is_some() {
            conn.send_slowly(
                "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3;x\r\nabc\r\n1\r\nd\r\n0\r\nX: y\r\n\r\n",
            );
        }
    });
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    for _ in 0..2 {
        assert_eq!(last(&mut client, "/").text(), "abcd");
    }
    assert_eq!(backend.connections(), 1);
}

#[test]
fn misbehaving_backends_do_not_affect_others() {
    let (backend, server) = server("retry.times = 0\nfail_for = \"0s\"", |conn| conn.reset());
    let mut clients: Vec<_> = (0..10).map(|_| server.client()).collect();
    for _ in 0..10 {
        for client in &mut clients {
            client.send(head("GET", "/bad", &[]));
        }
        for client in &mut clients {
            client.receive().assert_status(502);
            assert_eq!(client.get("/good").text(), "/good");
        }
    }
    drop((clients, server));
    wait_until("all is closed", || backend.open() == 0);
}
