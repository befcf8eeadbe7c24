//! Streams of server-sent events of applications.

use std::time::{Duration, Instant};

use crate::support::scripted::{Conn, Scripted};
use crate::support::{Client, Launch, Server, head};

const COMMENT: &str = ":\n\n";
const EVENT: &str = "data: 2\n\n";

/// Sends a stream whose target says of which kind, and the event when it is released.
fn stream(conn: &mut Conn) {
    let Some(request) = conn.read_request() else {
        return;
    };
    let (head, begun) = match request.target.as_str() {
        "/within" => ("Content-Type: text/event-stream\r\n", "data: 1\n"),
        "/encoded" => (
            "Content-Type: text/event-stream\r\nContent-Encoding: x-own\r\n",
            "",
        ),
        "/sized" => (
            "Content-Type: text/event-stream\r\nContent-Length: 9\r\n",
            "",
        ),
        "/text" => ("Content-Type: text/plain\r\n", ""),
        _ => ("Content-Type: Text/Event-Stream; charset=utf-8\r\n", ""),
    };
    conn.send(format!(
        "HTTP/1.1 200 OK\r\nX-Accel-Buffering: no\r\n{head}Connection: close\r\n\r\n{begun}"
    ));
    conn.stall();
    if request.target == "/mark" {
        conn.send("\u{feff}");
        conn.read_request();
        return;
    }
    conn.send(EVENT);
    conn.finish();
}

fn server(app: &Scripted, idle_timeout: &str) -> Server {
    let keys = format!("event_stream_heartbeat = \"100ms\"\nidle_timeout = \"{idle_timeout}\"\n");
    Launch::proxy(app.address(), &keys).start()
}

/// The body follows until the end of the connection.
fn open(server: &Server, target: &str) -> Client {
    let mut client = server.client();
    client.send(format!("GET {target} HTTP/1.0\r\n\r\n"));
    let head = client.receive_head().expect("a head");
    assert_eq!((head.status, head.field("x-accel-buffering")), (200, "no"));
    client
}

#[test]
fn comments_come_between_events_while_the_application_is_silent() {
    let app = Scripted::tcp(stream);
    let server = server(&app, "60s");
    let others = ["/within", "/encoded", "/sized", "/text"];
    let mut others = others.map(|target| (target, open(&server, target)));
    let mut silent = open(&server, "/");
    for _ in 0..4 {
        assert_eq!(silent.read_exactly(COMMENT.len()), COMMENT.as_bytes());
    }
    app.release();
    let rest = String::from_utf8(silent.read_to_end().body()).expect("text");
    assert_eq!(rest.replace(COMMENT, ""), EVENT);
    for (target, client) in &mut others {
        let begun = if *target == "/within" {
            "data: 1\n"
        } else {
            ""
        };
        let body = String::from_utf8(client.read_to_end().body()).expect("text");
        assert_eq!(body, format!("{begun}{EVENT}"), "{target}");
    }
}

/// Behind a comment it is not sent on, and nothing else is there.
#[test]
fn a_byte_order_mark_alone_is_not_the_end() {
    let app = Scripted::tcp(stream);
    let server = server(&app, "60s");
    let mut client = open(&server, "/mark");
    client.read_through(COMMENT.as_bytes());
    app.release();
    let still = COMMENT.repeat(3);
    assert_eq!(client.read_exactly(still.len()), still.as_bytes());
}

/// The client of a silent application is not kept for ever.
#[test]
fn comments_do_not_count_for_the_application() {
    let app = Scripted::tcp(stream);
    let server = server(&app, "1s");
    let start = Instant::now();
    let mut client = server.client();
    client.send(head("GET", "/", &[]));
    client.receive_head().expect("a head").assert_status(200);
    client.read_through(COMMENT.as_bytes());
    client.read_to_end();
    let lasted = start.elapsed();
    assert!(lasted >= Duration::from_millis(950), "{lasted:?}");
    server.says("the response stalled (idle_timeout)");
}
