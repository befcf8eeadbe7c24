//! Tunnels after a change of protocol.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::scripted::Scripted;
use crate::support::{App, Client, Cut, Launch, Server, WebSocket, assert_same, content, head};

const UPGRADE: [(&str, &str); 2] = [("Connection", "Upgrade"), ("Upgrade", "echo")];
const SWITCHED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";

fn web_socket(messages: &[&str]) -> (App, Server, WebSocket) {
    let app = App::uvicorn();
    let server = Launch::proxy(app.address(), "").start();
    let socket = WebSocket::open_saying(server.client(), "/socket", messages);
    (app, server, socket)
}

#[test]
fn web_socket_messages_are_echoed() {
    let (_app, _server, mut socket) = web_socket(&[]);
    assert_eq!(socket.answer.field("upgrade"), "websocket");
    assert_eq!(socket.answer.field("connection"), "Upgrade");
    let (long, huge) = ("l".repeat(60_000), "h".repeat(1_000_000));
    for message in ["hello", "", &long, &huge, "again"] {
        socket.send(message);
        assert!(socket.receive() == message, "{} bytes", message.len());
    }
}

#[test]
fn web_socket_messages_may_follow_the_request_at_once() {
    let (_app, _server, mut socket) = web_socket(&["at once", "and more"]);
    assert_eq!(socket.receive(), "at once");
    assert_eq!(socket.receive(), "and more");
    socket.send("later");
    assert_eq!(socket.receive(), "later");
}

#[test]
fn an_application_closes_a_web_socket() {
    let (_app, _server, mut socket) = web_socket(&[]);
    socket.send("close");
    assert_eq!(socket.receive_close(), 4000);
    socket.send_close(4000);
    socket.assert_closed();
}

#[test]
fn a_client_closes_a_web_socket() {
    let (_app, _server, mut socket) = web_socket(&[]);
    socket.send_close(1000);
    assert_eq!(socket.receive_close(), 1000);
    socket.assert_closed();
}

#[test]
fn a_refused_upgrade_is_an_ordinary_response() {
    let backend = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            assert_eq!(request.field("upgrade"), Some("echo"));
            conn.answer("426 Upgrade Required", "no");
        }
    });
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    for _ in 0..2 {
        let answer = client.get_with("/", &UPGRADE);
        assert_eq!((answer.status, answer.text().as_str()), (426, "no"));
    }
    assert_eq!(backend.connections(), 1);
}

/// RFC 9110, 15.5.22 and 7.8.
#[test]
fn a_426_says_what_to_change_to() {
    let backend = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            let status = &request.target[1..];
            let head = "Connection: keep-alive, upgrade\r\nUpgrade: TLS/1.0, HTTP/1.1";
            conn.send(format!(
                "HTTP/1.1 {status} \r\nContent-Length: 0\r\n{head}\r\n\r\n"
            ));
        }
    });
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    let answer = client.get("/426");
    assert_eq!(answer.field("upgrade"), "TLS/1.0, HTTP/1.1");
    assert_eq!(answer.field("connection"), "Upgrade");
    assert_eq!(client.get("/403").header("upgrade"), None);
    let last = client.get_with("/426", &[("Connection", "close")]);
    assert_eq!(last.field("connection"), "close, Upgrade");
}

/// A client after its upgrade, with a backend that continues with `then`.
fn switched(
    more: &str,
    then: impl Fn(&mut crate::support::scripted::Conn) + Send + Sync + 'static,
) -> (Scripted, Server, Client) {
    let backend = Scripted::tcp(move |conn| {
        conn.read_head();
        conn.send(SWITCHED);
        then(conn);
    });
    let server = Launch::proxy(backend.address(), more).start();
    let mut client = server.client();
    client.get_with("/", &UPGRADE).assert_status(101);
    (backend, server, client)
}

#[test]
fn large_amounts_pass_in_both_directions() {
    let bytes = content(3, 5_000_000);
    let sent = bytes.clone();
    let (_backend, _server, mut client) = switched("", move |conn| {
        assert_same(&conn.read_exactly(sent.len()), &sent);
        conn.send(&sent);
    });
    client.send(&bytes);
    assert_eq!(client.read_to_end(), Cut::Closed(Some(bytes)));
}

#[test]
fn each_side_may_end_separately() {
    let (_backend, _server, mut client) = switched("", |conn| {
        assert_eq!(conn.read_to_end(), b"all");
        conn.send("the answer");
    });
    client.send("all");
    client.finish();
    assert_eq!(
        client.read_to_end(),
        Cut::Closed(Some(b"the answer".to_vec()))
    );
}

#[test]
fn a_client_that_disconnects_frees_the_backend() {
    let (backend, _server, client) = switched("", |conn| {
        conn.read_to_end();
    });
    drop(client);
    backend.wait_for_no_connection();
}

/// The client gets a reset, because an orderly end would look complete.
#[test]
fn a_backend_that_breaks_a_tunnel_is_not_a_client_abort() {
    let log = "[log]\naccess = \"stdout\"\nformat = \"json\"";
    let (backend, server, mut client) = switched(log, |conn| {
        conn.send("part");
        conn.stall();
        conn.reset();
    });
    client.read_through(b"part");
    backend.release();
    assert_eq!(client.read_to_end(), Cut::Reset(Some(Vec::new())));
    let line: Value = serde_json::from_str(&server.prints("\"target\":\"/\"")).expect("JSON");
    assert_eq!(
        (&line["end"], &line["upstream"]["failed"]),
        (&"error".into(), &"backend".into())
    );
}

#[test]
fn a_silent_tunnel_ends() {
    let (backend, _server, mut client) = switched("tunnel_timeout = \"300ms\"", |conn| {
        conn.read_to_end();
    });
    let start = Instant::now();
    assert!(client.read_to_end().body().is_empty());
    assert!(start.elapsed() >= Duration::from_millis(250));
    backend.wait_for_no_connection();
}

/// `idle_timeout` applies in place of `tunnel_timeout`.
#[test]
fn a_half_closed_tunnel_has_a_shorter_time_out() {
    let (backend, _server, client) = switched("idle_timeout = \"300ms\"", |conn| {
        conn.finish();
        conn.read_to_end();
    });
    backend.wait_for_no_connection();
    drop(client);
}

#[test]
fn pipelined_bytes_after_a_refused_upgrade_are_requests() {
    let backend = Scripted::tcp(super::tell_target);
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    client.send(head("GET", "/a", &UPGRADE) + &head("GET", "/b", &[]));
    assert_eq!(client.receive().text(), "/a");
    assert_eq!(client.receive().text(), "/b");
}

/// Requests in a tunnel would bypass all checks.
#[test]
fn some_protocols_are_not_offered() {
    let backend = Scripted::tcp(super::tell_target);
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    for protocol in [
        "h2c",
        "H2C",
        "websocket, h2c",
        "HTTP/2.0",
        "TLS/1.2",
        "h2c/1",
    ] {
        let headers = [
            ("Connection", "Upgrade, HTTP2-Settings"),
            ("Upgrade", protocol),
            ("HTTP2-Settings", "AAMAAABkAAQAAP__"),
        ];
        client.get_with("/", &headers).assert_status(200);
        let request = backend.requests().pop().expect("a request");
        assert_eq!(request.field("upgrade"), None, "{protocol}");
        assert_eq!(request.field("http2-settings"), None, "{protocol}");
    }
    let with_body = [&UPGRADE[..], &[("Content-Length", "4")]].concat();
    client.send(head("POST", "/", &with_body) + "body");
    client.receive().assert_status(200);
    let request = backend.requests().pop().expect("a request");
    assert_eq!(request.field("upgrade"), None);
}
