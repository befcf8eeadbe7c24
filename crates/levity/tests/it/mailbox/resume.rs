//! Event streams of applications that know nothing of mailboxes, and whose clients come back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;

use super::Events;
use crate::support::scripted::{Conn, Refusing, Scripted};
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
    let head = passed.receive_head().expect("a header");
    head.assert_status(200);
    assert_eq!(head.field("resume-kept"), "no");
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
    for (headers, kept) in [
        (&[][..], None),
        (&[("Accept", "text/event-stream")], Some("no")),
        (&[("Resume-Key", "7")], Some("no")),
    ] {
        let answer = server.get_with("/x", headers);
        answer.assert_status(404);
        assert_eq!(answer.text(), "no such page");
        assert_eq!(answer.header("resume-kept"), kept);
    }
}

const HEADER: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\
    Server: app\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nX-App: yes\r\nSet-Cookie: a=b\r\n\r\n";

/// A server with one event loop before `app`.
fn before(app: &Scripted, keys: &str) -> Server {
    with(app, keys, "")
}

/// As [`before`], with further keys of the upstream and tables.
fn with(app: &Scripted, keys: &str, more: &str) -> Server {
    let server = Launch::run(&format!(
        "[server]\nworkers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [admin]\nlisten = \"unix:{{own}}/admin\"\n\
         [[site]]\nproxy = \"app\"\nresume = {{ {keys} }}\nbody_bytes = \"1GiB\"\n\
         [[upstream]]\nname = \"app\"\nto = [\"{}\"]\nconnections = 4\n{more}\n",
        app.address()
    ));
    server.start()
}

/// A request with a body of `bytes`, which is not sent.
fn upload(server: &Server, bytes: usize) -> Client {
    let mut client = server.client();
    let length = bytes.to_string();
    let headers = [("Resume-Key", "7"), ("Content-Length", &*length)];
    client.send(crate::support::head("POST", "/chat", &headers));
    client
}

/// What [`large`] sends: more than `resume_memory` and a box have room for, in events of a quarter of a megabyte.
const LARGE_EVENTS: usize = 40;

/// Sends large events as fast as they are taken.
fn large(conn: &mut Conn) {
    if conn.read_request().is_none() || !conn.send(HEADER) {
        return;
    }
    let padding = "x".repeat(256 << 10);
    for number in 0..LARGE_EVENTS {
        let event = format!("data: {number} {padding}\n\n");
        if !conn.send(format!("{:x}\r\n{event}\r\n", event.len())) {
            return;
        }
    }
    conn.send("0\r\n\r\n");
}

/// The memory of what is kept, in bytes.
fn kept_bytes(server: &Server) -> usize {
    let metrics = server.metrics(&server.own("admin"));
    metrics.sum("levity_resume_bytes") as usize
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

#[test]
fn an_upload_takes_no_more_memory_than_any_other() {
    const BYTES: usize = 128 << 20;
    let app = Scripted::tcp(endless);
    let server = before(&app, "");
    let mut client = upload(&server, BYTES);
    let piece = vec![b'x'; 1 << 20];
    (0..BYTES >> 20).for_each(|_| client.send(&piece));
    assert!(
        receive(client)
            .next()
            .expect("an event")
            .id
            .starts_with("lv.")
    );
    assert_eq!(app.request().body.len(), BYTES);
    assert!(server.peak_bytes() < BYTES);
}

#[test]
fn a_client_with_too_many_streams_is_refused_before_its_bodies_are_read() {
    let app = Scripted::tcp(endless);
    let server = before(&app, "streams_per_client = 2");
    let _streams: Vec<_> = (0..2).map(|_| open(&server, "/chat", &[])).collect();
    let mut clients: Vec<_> = (0..200).map(|_| upload(&server, 1 << 20)).collect();
    for client in &mut clients {
        client.receive().assert_status(429);
    }
}

#[test]
fn an_answer_to_half_a_request_passes_without_being_kept() {
    let app = Scripted::tcp(|conn| {
        if conn.read_head().is_some() {
            conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: app-0\n\n");
            conn.read_to_end();
        }
    });
    let server = before(&app, "");
    let mut client = upload(&server, 2);
    client.send("x");
    let head = client.receive_head().expect("a header");
    assert_eq!(head.field("resume-kept"), "no");
    client.read_through(b"id: app-0\n");
}

#[test]
fn streams_are_kept_here_wherever_messages_are() {
    let (app, redis) = (Scripted::tcp(endless), Refusing::new());
    let store = format!(
        "[mailbox_store]\nstore = \"redis\"\nurl = \"redis://{}\"",
        redis.address()
    );
    let server = with(&app, "", &store);
    let first = open(&server, "/chat", &[]).next().expect("an event");
    let (path, last) = ("/chat", first.id.replace("-2.", "-1."));
    let mut again = open(&server, path, &[("Last-Event-ID", &last)]);
    assert_eq!(again.next(), Some(first));
    assert_eq!(app.requests().len(), 1);
}

#[test]
fn an_application_waits_for_a_client_that_is_there() {
    let app = Scripted::tcp(large);
    // The bound of a box, and that of all.
    for (keys, limit) in [
        ("bytes = \"64KiB\"", "64MiB"),
        ("bytes = \"64MiB\"", "2MiB"),
    ] {
        let server = with(
            &app,
            keys,
            &format!("[limits]\nresume_memory = \"{limit}\""),
        );
        let mut events = open(&server, "/chat", &[]);
        wait_until("there is no more room", || {
            kept_bytes(&server) > (1 << 20) || keys.contains("64KiB")
        });
        for number in 0..LARGE_EVENTS {
            assert!(events.data().starts_with(&format!("{number} ")), "{keys}");
        }
        assert_eq!(events.next(), None);
        assert!(kept_bytes(&server) <= 2 << 20);
        assert!(!server.stderr().contains("cut short"), "{keys}");
    }
}

#[test]
fn full_memory_ends_a_stream_whose_client_is_away() {
    let app = Scripted::tcp(large);
    let server = with(
        &app,
        "bytes = \"64MiB\"",
        "[limits]\nresume_memory = \"2MiB\"",
    );
    open(&server, "/chat", &[]).next().expect("an event");
    server.says(
        "upstream app: a stream is cut short: `limits.resume_memory` is used up, and its client is away",
    );
    let accept = [("Accept", "text/event-stream")];
    let passed = |server: &Server| {
        let mut client = server.client();
        client.send(crate::support::head("GET", "/chat", &accept));
        let head = client.receive_head().expect("a header");
        head.header("resume-kept").map(str::to_owned)
    };
    assert_eq!(passed(&server).as_deref(), Some("no"));
    server.reload(&["\"2MiB\""], &["\"64MiB\""]);
    assert_eq!(passed(&server), None);
}

#[test]
fn an_application_that_falls_silent_is_given_up() {
    let app = Scripted::tcp(endless);
    let server = with(&app, "", "idle_timeout = \"1s\"");
    let mut events = open(&server, "/chat", &[]);
    assert_eq!(events.data(), "0");
    assert_eq!(events.0.read_to_end().body(), b"");
    server.says("the response stalled (idle_timeout)");
}

/// A server that does not know the id asks the application, which goes on after its own id.
#[test]
fn a_client_may_come_back_to_another_server() {
    let silent = Arc::new(AtomicBool::new(false));
    let is_silent = silent.clone();
    let app = Scripted::tcp(move |conn| {
        let Some(request) = conn.read_request() else {
            return;
        };
        let last = request.field("last-event-id").unwrap_or("app--1");
        let last: i32 = last
            .strip_prefix("app-")
            .expect("its own")
            .parse()
            .expect("a number");
        conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
        if !is_silent.load(Ordering::Relaxed) {
            for number in last + 1..last + 3 {
                conn.send(format!("id: app-{number}\ndata: {number}\n\n"));
            }
        }
        conn.read_to_end();
    });
    let (one, other) = (before(&app, ""), before(&app, ""));
    let mut events = open(&one, "/chat", &[]);
    assert_eq!(events.data(), "0");
    let last = events.next().expect("an event").id;
    // The other one says nothing before the connection is lost, but for the id at which it begins.
    silent.store(true, Ordering::Relaxed);
    let mut events = open(&other, "/chat", &[("Last-Event-ID", &last)]);
    events.0.read_through(b"id: ");
    let last = String::from_utf8(events.0.read_through(b"\n")).expect("text");
    silent.store(false, Ordering::Relaxed);
    let mut events = open(&one, "/chat", &[("Last-Event-ID", last.trim())]);
    assert_eq!(
        (events.data(), events.data()),
        ("2".to_owned(), "3".to_owned())
    );
    assert_eq!(app.requests().len(), 3);
}

#[test]
fn the_headers_stay_when_old_events_give_way() {
    let app = Scripted::tcp(|conn| {
        if conn.read_request().is_some() && conn.send(HEADER) {
            let event = format!("data: {}\n\n", "x".repeat(40 << 10));
            for _ in 0..3 {
                conn.send(format!("{:x}\r\n{event}\r\n", event.len()));
            }
            conn.read_to_end();
        }
    });
    let server = before(&app, "bytes = \"64KiB\"");
    let mut events = open(&server, "/chat", &[]);
    let [_, second, third] = [(); 3].map(|()| events.next().expect("an event"));
    let mut client = server.client();
    let headers = [
        ("Accept", "text/event-stream"),
        ("Last-Event-ID", &*second.id),
    ];
    client.send(crate::support::head("GET", "/chat", &headers));
    let head = client.receive_head().expect("a header");
    assert_eq!(head.field("x-app"), "yes");
    assert_eq!(Events(client).next(), Some(third));
}
