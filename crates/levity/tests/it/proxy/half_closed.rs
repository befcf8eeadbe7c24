//! Clients that shut down their sending side after the request, as `nc -N` does. They get their responses, but hold
//! resources only for a short time, because a client that has disconnected looks the same.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::tell_target;
use crate::support::scripted::Scripted;
use crate::support::{Client, Cut, Launch, Server, assert_same, content, head, pass, wait_until};

/// A time-out that no test may reach.
const LATE: &str = "[limits]\nhalf_closed_timeout = \"1h\"\n";

/// Long enough for the server to notice the half-close.
const SEEN: Duration = Duration::from_millis(200);

/// Sends requests for these targets, and shuts down the sending side.
fn asks(mut client: Client, paths: &[&str]) -> Client {
    let heads: String = paths.iter().map(|path| head("GET", path, &[])).collect();
    client.send(heads);
    client.finish();
    client
}

#[test]
fn a_late_response_arrives() {
    let backend = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            conn.stall();
            conn.answer("200 OK", request.target);
        }
    });
    let server = Launch::proxy(backend.address(), LATE).workers(1).start();
    let mut client = asks(server.client(), &["/a", "/b"]);
    backend.wait_for_requests(1);
    pass(SEEN);
    backend.release();
    // A pipelined request gets its response too; then the connection ends.
    assert_eq!(client.receive().text(), "/a");
    assert_eq!(client.receive().text(), "/b");
    client.assert_closed();
    assert_eq!(backend.connections(), 1);
}

#[test]
fn a_long_response_arrives() {
    let bytes = content(9, 9_000_000);
    let sent = bytes.clone();
    let backend = Scripted::tcp(move |conn| {
        conn.read_request();
        let length = sent.len();
        conn.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"
        ));
        conn.send(&sent);
    });
    let server = Launch::proxy(backend.address(), LATE).start();
    let mut client = asks(Client::narrow(server.address()), &["/"]);
    assert_same(&client.receive().body, &bytes);
    client.assert_closed();
}

/// Because it has an end.
#[test]
fn a_response_of_known_length_may_pause() {
    let backend = Scripted::tcp(|conn| {
        conn.read_request();
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha");
        conn.stall();
        conn.send("lf");
    });
    let soon = "[limits]\nhalf_closed_timeout = \"100ms\"";
    let server = Launch::proxy(backend.address(), soon).start();
    let mut client = server.client();
    client.send(head("GET", "/", &[]));
    client.read_through(b"\r\n\r\nha");
    client.finish();
    pass(Duration::from_millis(500));
    backend.release();
    assert_eq!(client.read_exactly(2), b"lf");
}

/// Before the response, or within a response of unknown length.
#[test]
fn a_silent_backend_is_freed_after_a_time_out() {
    let begun = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n";
    for begin in ["", begun] {
        let backend = Scripted::tcp(move |conn| {
            conn.read_request();
            conn.send(begin);
            assert_eq!(conn.read_to_end(), b"");
        });
        let keys = "retry.times = 0\n[limits]\nhalf_closed_timeout = \"300ms\"\n\
                    [log]\naccess = \"stdout\"\nformat = \"json\"";
        let server = Launch::proxy(backend.address(), keys).start();
        let start = Instant::now();
        let mut client = asks(server.client(), &["/"]);
        match (client.try_receive(), begin) {
            (Ok(answer), "") => {
                answer.assert_status(408);
                assert!(answer.text().contains("half_closed_timeout"), "{answer:?}");
            }
            (Err(Cut::Closed(Some(part))), _) => assert_eq!(part, b"part"),
            (other, _) => panic!("{other:?}"),
        }
        assert!(start.elapsed() >= Duration::from_millis(250));
        backend.wait_for_no_connection();
        let line: Value = serde_json::from_str(&server.prints("\"target\":\"/\"")).expect("JSON");
        assert_eq!(line["upstream"]["failed"], "client", "{line}");
        // The error response is complete.
        let end = if begin.is_empty() {
            "complete"
        } else {
            "client_abort"
        };
        assert_eq!(line["end"], end, "{line}");
        // It does not count as a failure of the backend.
        assert!(!server.stderr().contains("backend"), "{}", server.stderr());
    }
}

/// Without the time-out such a client counts as gone.
#[test]
fn a_client_that_ends_its_side_has_left() {
    let backend = Scripted::tcp(|conn| {
        conn.read_request();
        assert_eq!(conn.read_to_end(), b"");
    });
    let log = "[log]\naccess = \"stdout\"\nformat = \"json\"";
    let server = Launch::proxy(backend.address(), log).start();
    let mut client = asks(server.client(), &["/"]);
    let answer = client.receive();
    answer.assert_status(499);
    assert!(answer.text().contains("half_closed_timeout"), "{answer:?}");
    backend.wait_for_no_connection();
    let line: Value = serde_json::from_str(&server.prints("\"target\":\"/\"")).expect("JSON");
    assert_eq!(
        (&line["status"], &line["end"]),
        (&499.into(), &"client_abort".into())
    );
}

#[test]
fn a_half_closed_client_leaves_the_queue() {
    let backend = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            conn.stall();
            conn.answer("200 OK", request.target);
        }
    });
    let keys = format!("connections = 1\nqueue_timeout = \"1h\"\n{LATE}");
    let server = Launch::proxy(backend.address(), &keys).workers(1).start();
    let mut first = asks(server.client(), &["/first"]);
    backend.wait_for_requests(1);
    let mut second = asks(server.client(), &["/second"]);
    let refused = second.receive();
    refused.assert_status(408);
    assert!(refused.text().contains("in the queue"), "{refused:?}");
    let mut third = server.client();
    third.send(head("GET", "/third", &[]));
    backend.release();
    assert_eq!(first.receive().text(), "/first");
    assert_eq!(third.receive().text(), "/third");
    assert_eq!(backend.requests().len(), 2);
}

/// They end only when the client disconnects.
#[test]
fn events_end_at_once() {
    let backend = Scripted::tcp(|conn| {
        conn.read_request();
        conn.send(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\
             Transfer-Encoding: chunked\r\n\r\n5\r\nevent\r\n",
        );
        assert_eq!(conn.read_to_end(), b"");
    });
    let server = Launch::proxy(backend.address(), LATE).start();
    let mut client = server.client();
    client.send(head("GET", "/", &[]));
    client.read_through(b"event\r\n");
    client.finish();
    client.assert_closed();
    backend.wait_for_no_connection();
}

/// Connections over TCP and over a Unix socket, with their names.
fn on_both(backend: &Scripted) -> Server {
    let to = backend.address();
    Launch::run(&format!(
        "{LATE}[[listen]]\naddress = \"127.0.0.1:0\"\n[[listen]]\naddress = \"unix:{{own}}/http\"\n\
         [[upstream]]\nname = \"app\"\nto = [\"{to}\"]\n[[site]]\nproxy = \"app\"\n"
    ))
    .start()
}

#[test]
fn a_half_closed_unix_socket_is_not_closed() {
    let backend = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            if request.target == "/gone" {
                assert_eq!(conn.read_to_end(), b"");
                return;
            }
            conn.stall();
            conn.answer("200 OK", request.target);
        }
    });
    let server = on_both(&backend);
    let socket = server.own("http");
    let client = || Client::unix(Path::new(&socket));
    let mut gone = client();
    gone.send(head("GET", "/gone", &[]));
    backend.wait_for_requests(1);
    drop(gone);
    backend.wait_for_no_connection();
    let mut half = asks(client(), &["/half"]);
    backend.wait_for_requests(2);
    pass(SEEN);
    backend.release();
    assert_eq!(half.receive().text(), "/half");
}

#[cfg(feature = "http2")]
#[test]
fn a_client_that_resets_has_disconnected() {
    let backend = Scripted::tcp(|conn| {
        let head = conn.read_head().expect("a head");
        conn.keep(head);
        assert_eq!(conn.read_to_end(), b"");
    });
    let log = format!("{LATE}[log]\naccess = \"stdout\"\nformat = \"json\"\n");
    let server = Launch::proxy(backend.address(), &log).start();
    let mut client = server.client();
    client.send(head("GET", "/reset", &[]));
    backend.wait_for_requests(1);
    client.reset_when_closed();
    drop(client);
    backend.wait_for_no_connection();
    // With its request complete, and with an upload that has not ended.
    for (requests, target, upload) in [(2, "/killed", &[][..]), (3, "/uploading", &["-T", "-"])] {
        let mut curl = Command::new("curl")
            .args(["-s", "--http2-prior-knowledge"])
            .args(upload)
            .arg(format!("http://{}{target}", server.address()))
            .stdin(Stdio::piped())
            .spawn()
            .expect("curl");
        backend.wait_for_requests(requests);
        curl.kill().expect("killed");
        curl.wait().expect("waited");
        backend.wait_for_no_connection();
    }
    for target in ["/reset", "/killed", "/uploading"] {
        let line: Value = serde_json::from_str(&server.prints(target)).expect("JSON");
        assert_eq!(
            (&line["status"], &line["end"]),
            (&499.into(), &"client_abort".into())
        );
    }
}

/// Half-closed clients of files and ordinary clients in between.
#[test]
fn other_clients_are_served_meanwhile() {
    let backend = Scripted::tcp(tell_target);
    let server = Launch::proxy(backend.address(), LATE).workers(1).start();
    for round in 0..20 {
        let path = format!("/{round}");
        let mut half = asks(server.client(), &[&path]);
        assert_eq!(half.receive().text(), path);
        assert_eq!(server.get("/whole").text(), "/whole");
        half.assert_closed();
    }
    wait_until("the connections are kept", || backend.open() <= 2);
}
