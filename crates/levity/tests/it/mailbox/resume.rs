//! Event streams of applications that know nothing of mailboxes, and whose clients come back.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;

use super::Events;
use crate::support::scripted::{Conn, Scripted};
use crate::support::{Client, Launch, Server, wait_until};

/// The number of events of a stream.
const EVENTS: usize = 200;

/// A server before an application that streams [`EVENTS`] events with ids of its own, the second half of them when the
/// returned end is used.
fn streaming(keys: &str) -> (Server, Scripted, Sender<()>) {
    let (go_on, wait) = mpsc::channel();
    let wait = Arc::new(Mutex::new(wait));
    let app = Scripted::tcp(move |conn| {
        if conn.read_request().is_none() {
            return;
        }
        conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-App: yes\r\n\r\n");
        for number in 0..EVENTS {
            if number == EVENTS / 2 && wait.lock().expect("not poisoned").recv().is_err() {
                return;
            }
            conn.send(format!(
                "id: app-{number}\nevent: token\ndata: {number}\n\n"
            ));
        }
    });
    let server = Launch::run(&format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"app\"\nto = [\"{}\"]\n\
         [[site]]\nproxy = \"app\"\nresume = {{ {keys} }}\n",
        app.address()
    ));
    (server.start(), app, go_on)
}

/// Opens the stream at `path` as [`Events::new`] does.
fn open(server: &Server, path: &str, headers: &[(&str, &str)]) -> Events {
    let mut client = server.client();
    let mut all = vec![("Accept", "text/event-stream")];
    all.extend(headers);
    client.send(crate::support::head("GET", path, &all));
    receive(client)
}

fn receive(mut client: Client) -> Events {
    let head = client.receive_head().expect("a header");
    head.assert_status(200);
    assert_eq!(head.field("content-type"), "text/event-stream");
    Events(client)
}

#[test]
fn a_stream_that_is_cut_again_and_again_is_whole() {
    let (server, app, go_on) = streaming("for = \"60s\"");
    let mut last = None::<String>;
    let mut got = Vec::new();
    while got.len() < EVENTS {
        let headers: Vec<_> = last
            .iter()
            .map(|id| ("Last-Event-ID", id.as_str()))
            .collect();
        let mut events = open(&server, "/chat?q=1", &headers);
        // Some arrive with the connection, and some are waited for.
        for _ in 0..EVENTS / 20 {
            if got.len() == EVENTS / 2 {
                let _ = go_on.send(());
            }
            let event = events.next().expect("an event");
            assert_eq!(event.event, "token");
            got.push(event.data);
            last = Some(event.id);
        }
    }
    let expected: Vec<_> = (0..EVENTS).map(|number| number.to_string()).collect();
    assert_eq!(got, expected);
    assert_eq!(app.requests().len(), 1);
}

#[test]
fn the_application_is_read_while_nobody_is_there() {
    let (server, app, go_on) = streaming("for = \"60s\"");
    let mut events = open(&server, "/chat", &[]);
    let first = events.next().expect("an event");
    drop(events);
    go_on.send(()).expect("the application waits");
    wait_until("the application has ended", || app.open() == 0);
    let mut events = open(&server, "/chat", &[("Last-Event-ID", &first.id)]);
    for number in 1..EVENTS {
        assert_eq!(events.data(), number.to_string());
    }
    assert_eq!(events.next(), None);
    assert_eq!(app.requests().len(), 1);
}

#[test]
fn nobody_else_gets_a_stream() {
    let (server, app, _go_on) = streaming("for = \"60s\"");
    let mut events = open(&server, "/chat", &[("Cookie", "user=ann")]);
    let id = events.next().expect("an event").id;
    for (path, headers) in [
        ("/chat", [("Cookie", "user=bob"), ("Last-Event-ID", &*id)]),
        (
            "/chat",
            [("Authorization", "Bearer x"), ("Last-Event-ID", &*id)],
        ),
        (
            "/chat?other",
            [("Cookie", "user=ann"), ("Last-Event-ID", &*id)],
        ),
    ] {
        let before = app.requests().len();
        assert_eq!(open(&server, path, &headers).data(), "0");
        assert_eq!(app.requests().len(), before + 1, "{path} {headers:?}");
    }
}

#[test]
fn the_application_learns_its_own_last_id_when_the_stream_is_gone() {
    let (server, app, go_on) = streaming("for = \"60s\"");
    go_on.send(()).expect("the application waits");
    let mut events = open(&server, "/chat", &[]);
    let mut last = None;
    while let Some(event) = events.next() {
        last = Some(event.id);
    }
    let last = last.expect("events");
    // The client has all of it, so it wants what follows.
    let mut again = open(&server, "/chat", &[("Last-Event-ID", &last)]);
    assert_eq!(again.data(), "0");
    let requests = app.requests();
    assert_eq!(requests[0].field("last-event-id"), None);
    let expected = format!("app-{}", EVENTS - 1);
    assert_eq!(requests[1].field("last-event-id"), Some(&*expected));
}

#[test]
fn streams_beyond_the_bound_pass_as_they_are() {
    let (server, _app, _go_on) = streaming("streams = 1");
    let mut kept = open(&server, "/a", &[]);
    assert!(kept.next().expect("an event").id.starts_with("lv."));
    let mut passed = server.client();
    passed.send(crate::support::head(
        "GET",
        "/b",
        &[("Accept", "text/event-stream")],
    ));
    passed.receive_head().expect("a header").assert_status(200);
    passed.read_through(b"id: app-0\n");
}

#[test]
fn other_requests_and_responses_are_left_alone() {
    let app = Scripted::tcp(|conn| {
        while conn.read_request().is_some() && conn.answer("404 Not Found", "no such page") {}
    });
    let server = Launch::run(&format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"app\"\nto = [\"{}\"]\n\
         [[site]]\nproxy = \"app\"\nresume = {{}}\n",
        app.address()
    ));
    let server = server.start();
    for headers in [
        &[][..],
        &[("Accept", "text/event-stream")],
        &[("Resume-Key", "7")],
    ] {
        let answer = server.get_with("/x", headers);
        answer.assert_status(404);
        assert_eq!(answer.text(), "no such page");
    }
}

const HEADER: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\
    Server: app\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nX-App: yes\r\nSet-Cookie: a=b\r\n\r\n";

/// A server with one event loop before `app`.
fn before(app: &Scripted, keys: &str) -> Server {
    let server = Launch::run(&format!(
        "[server]\nworkers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"app\"\nto = [\"{}\"]\nconnections = 4\n\
         [[site]]\nproxy = \"app\"\nresume = {{ {keys} }}\n",
        app.address()
    ));
    server.start()
}

/// Sends an event, and keeps the connection until the peer leaves.
fn endless(conn: &mut Conn) {
    if conn.read_request().is_some() {
        conn.send(HEADER);
        conn.send("9\r\ndata: 0\n\n\r\n");
        conn.read_to_end();
    }
}

#[test]
fn what_is_cut_short_does_not_end_as_if_it_were_complete() {
    let app = Scripted::tcp(|conn| {
        if conn.read_request().is_some() {
            conn.send(HEADER);
            conn.send("9\r\ndata: 0\n\n\r\n7\r\ndata: 1\r\n");
        }
    });
    let server = before(&app, "");
    let mut events = open(&server, "/chat", &[]);
    let first = events.next().expect("an event");
    assert_eq!(events.0.read_to_end().body(), b"");
    // What is kept is no more complete, and who has all of it asks the application again.
    let mut again = open(&server, "/chat", &[("Last-Event-ID", &first.id)]);
    assert_eq!(again.data(), "0");
    assert_eq!(app.requests().len(), 2);
}

#[test]
fn events_that_are_too_long_cut_a_stream_short() {
    let app = Scripted::tcp(|conn| {
        if conn.read_request().is_some() {
            let long = "x".repeat(2 << 20);
            let body = format!("data: 0\n\ndata: {long}\n\n");
            conn.send(HEADER);
            conn.send(format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()));
        }
    });
    let server = before(&app, "");
    let mut events = open(&server, "/chat", &[]);
    assert_eq!(events.data(), "0");
    assert_eq!(events.0.read_to_end().body(), b"");
    server.says("upstream app: a stream is cut short: event of the stream too long");
}

#[test]
fn the_last_event_needs_no_blank_line() {
    let app = Scripted::tcp(|conn| {
        if conn.read_request().is_some() {
            conn.send(HEADER);
            conn.send("d\r\ndata: [DONE]\n\r\n0\r\n\r\n");
        }
    });
    let server = before(&app, "");
    let mut events = open(&server, "/chat", &[]);
    assert_eq!(events.data(), "[DONE]");
    assert_eq!(events.next(), None);
}

#[test]
fn a_client_that_comes_back_gets_the_headers() {
    let app = Scripted::tcp(endless);
    let server = before(&app, "");
    let get = |headers: &[(&str, &str)]| {
        let mut client = server.client();
        let accept = ("Accept", "text/event-stream");
        let headers = [&[accept][..], headers].concat();
        client.send(crate::support::head("GET", "/chat", &headers));
        let head = client.receive_head().expect("a header");
        // Each is there once.
        assert_eq!((head.field("server"), head.field("x-app")), ("app", "yes"));
        assert_eq!(head.header("set-cookie").is_some(), headers.len() == 1);
        (head.field("date").to_owned(), Events(client))
    };
    let (first, mut events) = get(&[]);
    let id = events.next().expect("an event").id;
    drop(events);
    let (second, _events) = get(&[("Last-Event-ID", &id)]);
    assert!(first.contains("1970") && !second.contains("1970"));
    assert_eq!(app.requests().len(), 1);
    // No number is too large.
    let (rest, _) = id.rsplit_once('-').expect("a number");
    let beyond = format!("{rest}-{}.", u64::MAX);
    get(&[("Last-Event-ID", &beyond)]);
}

#[test]
fn a_client_has_only_so_many_streams() {
    let app = Scripted::tcp(endless);
    let server = before(&app, "streams_per_client = 2");
    let streams: Vec<_> = (0..2).map(|_| open(&server, "/chat", &[])).collect();
    let accept = [("Accept", "text/event-stream")];
    server.get_with("/chat", &accept).assert_status(429);
    drop(streams);
}

#[test]
fn streams_without_a_client_leave_half_of_the_connections() {
    let app = Scripted::tcp(endless);
    let server = before(&app, "");
    for _ in 0..4 {
        let mut events = open(&server, "/chat", &[]);
        assert_eq!(events.data(), "0");
    }
    wait_until("the oldest have given way", || app.open() == 2);
    server.says("upstream app: a stream is cut short: half of `connections`");
}

#[test]
fn a_server_that_ends_waits_for_no_client_that_is_away() {
    let app = Scripted::tcp(endless);
    let mut server = before(&app, "");
    let mut events = open(&server, "/chat", &[]);
    assert_eq!(events.data(), "0");
    drop(events);
    server.signal(Signal::TERM);
    assert!(server.wait().success());
}

/// The time before the first word of a model is when a connection is lost most often.
#[test]
fn a_client_that_comes_back_before_the_first_event_goes_on() {
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let app = Scripted::tcp(move |conn| {
        if conn.read_request().is_some() {
            conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
            let _ = wait.lock().expect("not poisoned").recv();
            conn.send("data: first\n\n");
        }
    });
    let server = Launch::run(&format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"app\"\nto = [\"{}\"]\n\
         [[site]]\nproxy = \"app\"\nresume = {{}}\n",
        app.address()
    ))
    .start();
    let mut events = open(&server, "/", &[]);
    events.0.read_through(b"id: ");
    let id = events.0.read_through(b"\n\n");
    let id = String::from_utf8(id).expect("text").trim().to_owned();
    drop(events);
    let mut events = open(&server, "/", &[("Last-Event-ID", &id)]);
    go_on.send(()).expect("the application waits");
    assert_eq!(events.data(), "first");
    assert_eq!(app.requests().len(), 1);
}
