//! Bodies: large, slow, malformed and unwanted ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::tell_target;
use crate::support::scripted::{Conn, Scripted};
use crate::support::{
    App, Client, Cut, Launch, assert_same, content, head, pass, sha256, wait_until,
};

const LARGE_BYTES: usize = 20_000_000;

/// More than all socket buffers between a sender and a stalled reader hold.
const HUGE_BYTES: usize = 64_000_000;

/// The maximum in socket buffers on the way: Linux lets them grow to 4 MiB for sending and 6 MiB for
/// receiving.
const IN_SOCKETS_MAX: usize = 32_000_000;

/// The memory that the server may need, whatever the size of bodies.
const MEMORY_MAX: usize = 4_000_000;

const PIECE: &[u8] = &[b'x'; 64 * 1024];

/// Sends [`HUGE_BYTES`] and counts them.
fn send_huge(mut send: impl FnMut(&[u8]) -> bool, sent: &AtomicUsize) {
    let mut left = HUGE_BYTES;
    while left > 0 {
        let piece = &PIECE[..left.min(PIECE.len())];
        if !send(piece) {
            return;
        }
        left -= piece.len();
        sent.fetch_add(piece.len(), Ordering::Relaxed);
    }
}

/// Waits until a count no longer grows, and returns it.
fn settled(count: &AtomicUsize) -> usize {
    const QUIET: Duration = Duration::from_millis(300);
    let mut last = 0;
    wait_until("the sender has to wait", || {
        let before = std::mem::replace(&mut last, count.load(Ordering::Relaxed));
        pass(QUIET);
        last > 0 && last == before
    });
    last
}

#[test]
fn large_bodies_pass_both_ways() {
    let body = content(7, LARGE_BYTES);
    let answer = body.clone();
    let backend = Scripted::tcp(move |conn| {
        while let Some(request) = conn.read_request() {
            assert_same(&request.body, &answer);
            conn.answer("200 OK", &answer);
        }
    });
    let keys = "[limits]\nbody_bytes = \"100MiB\"";
    let server = Launch::proxy(backend.address(), keys).start();
    let mut client = server.client();
    let length = body.len().to_string();
    client.send(head("POST", "/", &[("Content-Length", &length)]));
    client.send(&body);
    assert_same(&client.receive().body, &body);
    client.send(head("PUT", "/", &[("Transfer-Encoding", "chunked")]));
    for chunk in body.chunks(100_000) {
        client.send([format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
    }
    client.send("0\r\n\r\n");
    assert_same(&client.receive().body, &body);
    assert_eq!(backend.connections(), 1);
}

#[test]
fn an_application_receives_an_upload() {
    let app = App::uvicorn();
    let server = Launch::proxy(app.address(), "[limits]\nbody_bytes = \"100MiB\"").start();
    let body = content(8, LARGE_BYTES);
    let mut client = server.client();
    let length = body.len().to_string();
    client.send(head("POST", "/upload", &[("Content-Length", &length)]));
    client.send(&body);
    let said: Value = serde_json::from_slice(&client.receive().body).expect("JSON");
    assert_eq!(
        (&said["length"], &said["sha256"]),
        (&body.len().into(), &sha256(&body).into())
    );
}

#[test]
fn a_slow_client_slows_the_backend_down() {
    let sent = Arc::<AtomicUsize>::default();
    let by_backend = sent.clone();
    let backend = Scripted::tcp(move |conn| {
        while let Some(request) = conn.read_request() {
            if request.target == "/small" {
                conn.answer("200 OK", "small");
                continue;
            }
            conn.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {HUGE_BYTES}\r\n\r\n"
            ));
            send_huge(|piece| conn.send(piece), &by_backend);
        }
    });
    let server = Launch::proxy(backend.address(), "").workers(1).start();
    server.get("/small").assert_status(200);
    let before = server.resident_bytes();
    let mut client = Client::narrow(server.address());
    client.send(head("GET", "/", &[]));
    assert!(settled(&sent) < IN_SOCKETS_MAX);
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < MEMORY_MAX, "{grown} bytes");
    // Other clients are served meanwhile.
    assert_eq!(server.get("/small").text(), "small");
    assert_eq!(client.receive().body.len(), HUGE_BYTES);
}

#[test]
fn a_slow_backend_slows_the_client_down() {
    let backend = Scripted::tcp(|conn| {
        while let Some(mut request) = conn.read_head() {
            if request.method == "POST" {
                conn.stall();
            }
            conn.read_body(&mut request);
            conn.answer("200 OK", request.body.len().to_string());
        }
    });
    let keys = "[limits]\nbody_bytes = \"100MiB\"";
    let server = Launch::proxy(backend.address(), keys).workers(1).start();
    server.get("/").assert_status(200);
    let before = server.resident_bytes();
    let sent = AtomicUsize::new(0);
    let mut client = server.client();
    thread::scope(|scope| {
        scope.spawn(|| {
            let length = HUGE_BYTES.to_string();
            client.send(head("POST", "/", &[("Content-Length", &length)]));
            send_huge(|piece| client.try_send(piece).is_ok(), &sent);
        });
        assert!(settled(&sent) < IN_SOCKETS_MAX);
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown < MEMORY_MAX, "{grown} bytes");
        server.get("/").assert_status(200);
        backend.release();
    });
    assert_eq!(client.receive().text(), HUGE_BYTES.to_string());
}

/// The response of the backend after the header of a request, however much of the body arrives.
fn refusing(conn: &mut Conn) {
    if conn.read_head().is_some() {
        conn.answer("413 Content Too Large", "too much");
        conn.finish();
        // Reads what is in transit: otherwise a reset would discard the response.
        conn.read_to_end();
    }
}

#[test]
fn a_backend_may_respond_before_it_has_the_body() {
    let backend = Scripted::tcp(refusing);
    let keys = "[limits]\nbody_bytes = \"100MiB\"";
    let server = Launch::proxy(backend.address(), keys).start();
    let length = LARGE_BYTES.to_string();
    for framing in [
        ("Content-Length", length.as_str()),
        ("Transfer-Encoding", "chunked"),
    ] {
        let mut client = server.client();
        client.send(head("POST", "/", &[framing]));
        client.send("4\r\nbody\r\n");
        let answer = client.receive();
        assert_eq!((answer.status, answer.text().as_str()), (413, "too much"));
        assert!(answer.closes());
        drop(client);
        backend.wait_for_no_connection();
    }
    // A client that reads only after it has sent everything.
    let mut client = server.client();
    client.send(head("POST", "/", &[("Content-Length", "200000")]) + &"x".repeat(200_000));
    client.receive().assert_status(413);
}

#[test]
fn a_body_over_its_limit_never_reaches_the_backend() {
    let backend = Scripted::tcp(|conn| {
        conn.read_to_end();
    });
    let server = Launch::proxy(backend.address(), "[limits]\nbody_bytes = \"1KiB\"").start();
    let mut client = server.client();
    client.send(head("POST", "/", &[("Content-Length", "1025")]) + &"x".repeat(1025));
    let answer = client.receive();
    assert_eq!((answer.status, answer.closes()), (413, true));
    assert_eq!(backend.connections(), 0);
    let mut client = server.client();
    client.send(head("POST", "/", &[("Transfer-Encoding", "chunked")]));
    client.send(format!("400\r\n{}\r\n1\r\nx\r\n", "x".repeat(1024)));
    let answer = client.receive();
    assert_eq!((answer.status, answer.closes()), (413, true));
    backend.wait_for_no_connection();
}

#[test]
fn a_route_may_have_its_own_limit() {
    let backend = Scripted::tcp(tell_target);
    let keys = "[limits]\nbody_bytes = \"10B\"\n\
                [[site.route]]\npath = \"/large/*\"\nbody_bytes = \"20B\"";
    let server = Launch::proxy(backend.address(), keys).start();
    for (path, len, status) in [
        ("/large/x", 20, 200),
        ("/large/x", 21, 413),
        ("/x", 11, 413),
    ] {
        let mut client = server.client();
        let length = len.to_string();
        client.send(head("POST", path, &[("Content-Length", &length)]) + &"x".repeat(len));
        client.receive().assert_status(status);
    }
}

#[test]
fn a_malformed_body_is_refused_and_never_complete_at_the_backend() {
    let backend = Scripted::tcp(|conn| {
        let got = conn.read_to_end();
        assert!(!got.ends_with(b"0\r\n\r\n"), "{}", got.escape_ascii());
    });
    let server = Launch::proxy(backend.address(), "").start();
    for bad in [
        "zz\r\n",
        "4\nbody\n",
        "4\r\nbodyX\r\n",
        "-1\r\n",
        "0\r\nno field\r\n\r\n",
    ] {
        let mut client = server.client();
        client.send(head("POST", "/", &[("Transfer-Encoding", "chunked")]) + "2\r\nok\r\n" + bad);
        let answer = client.receive();
        assert_eq!((answer.status, answer.closes()), (400, true), "{bad}");
        client.assert_closed();
    }
    backend.wait_for_no_connection();
}

#[test]
fn a_client_that_times_out_frees_the_backend() {
    let backend = Scripted::tcp(|conn| {
        conn.read_to_end();
    });
    let server = Launch::proxy(backend.address(), "[limits]\nbody_timeout = \"300ms\"").start();
    let mut client = server.client();
    client.send(head("POST", "/", &[("Content-Length", "9")]) + "x");
    let answer = client.receive();
    assert_eq!((answer.status, answer.closes()), (408, true));
    backend.wait_for_no_connection();
}

#[test]
fn a_client_that_disconnects_within_its_body_frees_the_backend() {
    let backend = Scripted::tcp(|conn| {
        conn.read_head();
        let body = conn.read_to_end();
        assert_eq!(body, b"half");
    });
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    client.send(head("POST", "/", &[("Content-Length", "8")]) + "half");
    wait_until("the backend is asked", || backend.connections() == 1);
    drop(client);
    backend.wait_for_no_connection();
}

#[test]
fn both_directions_at_once() {
    let app = App::uvicorn();
    let server = Launch::proxy(app.address(), "").start();
    let mut client = server.client();
    client.send(head("POST", "/back", &[("Transfer-Encoding", "chunked")]));
    assert!(client.receive_head().expect("a head").is_chunked());
    for word in ["ping", "pong", "ping"] {
        let chunk = format!("4\r\n{word}\r\n");
        client.send(&chunk);
        assert_eq!(client.read_exactly(9), chunk.as_bytes());
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.read_exactly(5), b"0\r\n\r\n");
    // The connection is still usable.
    client.get("/echo").assert_status(200);
}

#[test]
fn events_are_forwarded_at_once() {
    let app = App::uvicorn();
    let server = Launch::proxy(app.address(), "").start();
    let mut client = server.client();
    client.send(head("GET", "/events?ms=20", &[]));
    let answer = client.receive_head().expect("a head");
    assert_eq!(answer.field("content-type"), "text/event-stream");
    // The events never end, so they were not buffered.
    for number in 0..5 {
        client.read_through(format!("data: event {number}\n\n").as_bytes());
    }
}

#[test]
fn a_header_is_forwarded_before_its_body() {
    let backend = Scripted::tcp(|conn| {
        conn.read_request();
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
        conn.stall();
        conn.send("o");
        conn.send("k");
    });
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    client.send(head("GET", "/", &[]));
    assert_eq!(client.receive_head().expect("a head").length(), Some(2));
    backend.release();
    assert_eq!(client.read_exactly(2), b"ok");
}

#[test]
fn a_client_that_disconnects_before_the_response_frees_the_backend() {
    let backend = Scripted::tcp(|conn| {
        if conn.read_request().is_some() {
            assert_eq!(conn.read_to_end(), b"");
        }
    });
    let soon = "[limits]\nhalf_closed_timeout = \"100ms\"";
    let server = Launch::proxy(backend.address(), soon).start();
    let mut client = server.client();
    client.send(head("GET", "/", &[]));
    backend.wait_for_requests(1);
    drop(client);
    backend.wait_for_no_connection();
}

#[test]
fn a_client_that_disconnects_between_events_frees_the_backend() {
    let backend = Scripted::tcp(|conn| {
        conn.read_request();
        conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nevent\r\n");
        assert_eq!(conn.read_to_end(), b"");
    });
    let late = "[limits]\nhalf_closed_timeout = \"1h\"";
    let server = Launch::proxy(backend.address(), late).start();
    let mut client = server.client();
    client.send(head("GET", "/", &[]));
    client.read_through(b"event\r\n");
    drop(client);
    backend.wait_for_no_connection();
}

#[test]
fn a_backend_that_waits_for_more_of_a_body_can_send_an_error() {
    let backend = Scripted::tcp(|conn| {
        conn.read_head();
        conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n");
        conn.reset();
    });
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    client.send(head("POST", "/", &[("Content-Length", "1000")]) + "half");
    let cut = client.try_receive().err();
    assert_eq!(cut, Some(Cut::Closed(Some(b"ok".to_vec()))));
}

/// A response that exceeds all socket buffers on its way.
fn huge() -> Scripted {
    Scripted::tcp(|conn| {
        if conn.read_request().is_some() {
            let length = format!("Content-Length: {HUGE_BYTES}\r\n\r\n");
            conn.send(format!("HTTP/1.1 200 OK\r\n{length}"));
            send_huge(|piece| conn.send(piece), &AtomicUsize::new(0));
        }
    })
}

#[test]
fn a_client_that_disconnects_within_the_response_frees_the_backend() {
    let backend = huge();
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = Client::narrow(server.address());
    client.send(head("GET", "/", &[]));
    client.receive_head().expect("a head").assert_status(200);
    drop(client);
    backend.wait_for_no_connection();
}

/// The client stays connected.
#[test]
fn a_body_refused_during_the_response_is_not_a_client_abort() {
    let sent = Arc::<AtomicUsize>::default();
    let by_backend = sent.clone();
    let backend = Scripted::tcp(move |conn| {
        conn.read_head();
        conn.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {HUGE_BYTES}\r\n\r\n"
        ));
        send_huge(|piece| conn.send(piece), &by_backend);
    });
    let keys = "[limits]\nbody_bytes = \"1KiB\"\n[log]\naccess = \"stdout\"\nformat = \"json\"";
    let server = Launch::proxy(backend.address(), keys).start();
    let mut client = Client::narrow(server.address());
    client.send(head("POST", "/", &[("Transfer-Encoding", "chunked")]));
    // The server waits for the client to read more of the response.
    settled(&sent);
    client.send(format!("401\r\n{}\r\n", "x".repeat(0x401)));
    let line: Value = serde_json::from_str(&server.prints("\"target\":\"/\"")).expect("JSON");
    assert_eq!(
        (&line["status"], &line["end"]),
        (&200.into(), &"error".into())
    );
    let cut = client.read_to_end();
    assert!(matches!(cut, Cut::Closed(Some(_))), "{cut:?}");
    backend.wait_for_no_connection();
}

#[test]
fn a_client_that_does_not_read_frees_the_backend() {
    let backend = huge();
    let server = Launch::proxy(backend.address(), "[limits]\nsend_timeout = \"300ms\"").start();
    let mut client = Client::narrow(server.address());
    client.send(head("GET", "/", &[]));
    client.receive_head().expect("a head").assert_status(200);
    backend.wait_for_no_connection();
    let cut = client.read_to_end();
    assert!(matches!(cut, Cut::Reset(_)), "{cut:?}");
}

#[test]
fn a_request_in_progress_completes_during_a_drain() {
    let backend = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            if request.target == "/slow" {
                conn.stall();
            }
            conn.answer("200 OK", request.target);
        }
    });
    // One event loop: when it closes the idle connection, it drains.
    let mut server = Launch::proxy(backend.address(), "").workers(1).start();
    let (mut idle, mut busy) = (server.client(), server.client());
    idle.get("/").assert_status(200);
    busy.send(head("GET", "/slow", &[]));
    backend.wait_for_requests(2);
    server.signal(Signal::TERM);
    idle.assert_closed();
    backend.release();
    let answer = busy.receive();
    assert_eq!((answer.text().as_str(), answer.closes()), ("/slow", true));
    busy.assert_closed();
    assert_eq!(server.wait().code(), Some(0));
    backend.wait_for_no_connection();
}

#[test]
fn bodies_of_all_sizes_pass() {
    let backend = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            let body = &request.body;
            let framing = &request.target[1..];
            match framing {
                "length" => conn.answer("200 OK", body),
                "chunks" => {
                    let mut sent =
                        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
                    for chunk in body.chunks(50_000) {
                        sent.extend(format!("{:x}\r\n", chunk.len()).bytes());
                        sent.extend([chunk, b"\r\n"].concat());
                    }
                    conn.send([&sent[..], b"0\r\n\r\n"].concat())
                }
                _ => {
                    conn.send([b"HTTP/1.1 200 OK\r\n\r\n", &body[..]].concat());
                    return;
                }
            };
        }
    });
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    // Around the sizes of buffers and of the bytes per turn.
    for power in [0, 1, 10, 13, 14, 15, 16, 17, 18] {
        let size = 1_usize << power;
        for len in [size - 1, size, size + 1] {
            let body = content(len as u64, len);
            let length = len.to_string();
            for framing in ["length", "chunks", "close"] {
                let path = format!("/{framing}");
                client.send(head("POST", &path, &[("Content-Length", &length)]));
                client.send(&body);
                assert_same(&client.receive().body, &body);
                client.send(head("PUT", &path, &[("Transfer-Encoding", "chunked")]));
                for chunk in body.chunks(20_000) {
                    let size = format!("{:x}\r\n", chunk.len());
                    client.send([size.as_bytes(), chunk, b"\r\n"].concat());
                }
                client.send("0\r\n\r\n");
                assert_same(&client.receive().body, &body);
            }
        }
    }
}

/// No wait is a busy loop.
#[test]
fn waiting_takes_no_cpu_time() {
    const REST: Duration = Duration::from_millis(200);
    let backend = Scripted::tcp(|conn| {
        let Some(request) = conn.read_head() else {
            return;
        };
        match request.target.as_str() {
            "/part" => {
                conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n");
            }
            "/tunnel" => {
                conn.send("HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
            }
            "/half" => {
                conn.send("HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
                conn.finish();
            }
            _ => {}
        }
        conn.keep(request);
        conn.stall();
    });
    let server = Launch::proxy(backend.address(), "connections = 16")
        .workers(1)
        .start();
    let upgrade = [("Connection", "Upgrade"), ("Upgrade", "x")];
    let length = [("Content-Length", "9")];
    let expect = [("Content-Length", "9"), ("Expect", "100-continue")];
    let requests = [
        head("GET", "/part", &[]),
        head("GET", "/tunnel", &upgrade),
        head("GET", "/half", &upgrade),
        head("GET", "/head", &[]),
        head("GET", "/head", &[]) + &head("GET", "/next", &[]),
        head("GET", "/part", &[]) + &head("GET", "/next", &[]),
        head("POST", "/upload", &length) + "half",
        head("POST", "/part", &length) + "half",
        head("POST", "/upload", &expect),
    ];
    let asked: Vec<_> = requests
        .iter()
        .map(|request| {
            let mut client = server.client();
            client.send(request);
            client
        })
        .collect();
    backend.wait_for_requests(requests.len());
    // A client that sends more than is read ahead.
    let mut ahead = server.client();
    ahead.send(head("GET", "/head", &[]) + &head("GET", "/next", &[]).repeat(1000));
    backend.wait_for_requests(requests.len() + 1);
    // Work in progress still takes CPU time; a busy loop would never stop.
    wait_until("the server rests", || {
        let before = server.processor_time();
        pass(REST);
        server.processor_time() - before < REST / 10
    });
    drop((asked, ahead));
    backend.release();
}
