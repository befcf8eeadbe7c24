//! Connections to backends: limits, time-outs, balancing and affinity.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{tell, tell_target};
use crate::support::scripted::{Conn, Deaf, Refusing, Scripted};
use crate::support::{Answer, Client, Launch, Server, head, pass, wait_until};

/// Responds after `release`, or at once to `/now`.
fn stalling(conn: &mut Conn) {
    while let Some(request) = conn.read_request() {
        if request.target != "/now" {
            conn.stall();
        }
        tell(conn, &request, &request.target);
    }
}

/// For what is observed from outside: [`told`].
const ADMIN: &str = "[admin]\nlisten = \"unix:{own}/admin\"";

/// The upstream in `/status.json`.
#[track_caller]
fn told(server: &Server) -> Value {
    let answer = Client::unix(&server.own("admin")).get("/status.json");
    let status: Value = serde_json::from_slice(&answer.body).expect("JSON");
    status["upstreams"][0].clone()
}

/// Waits until this many requests have a connection to the only backend or are queued.
#[track_caller]
fn wait_until_known(server: &Server, requests: u64) {
    wait_until("all have come as far as the pool", || {
        let told = told(server);
        let count = |value: &Value| value.as_u64().expect("a count");
        count(&told["queue"]) + count(&told["backends"][0]["in_use"]) == requests
    });
}

/// Clients whose requests have reached a server with one worker in this order.
fn clients(server: &Server, count: usize) -> Vec<Client> {
    let known = |_| {
        let mut client = server.client();
        client.get("/now").assert_status(200);
        client
    };
    (0..count).map(known).collect()
}

fn ask(clients: &mut [Client]) {
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(head("GET", &format!("/{number}"), &[]));
    }
}

#[track_caller]
fn refused(answer: &Answer, status: u16, kind: &str) {
    answer.assert_status(status);
    assert_eq!(
        answer.field("proxy-status"),
        format!("levity; error={kind}")
    );
}

#[test]
fn connections_are_limited() {
    let backend = Scripted::tcp(stalling);
    let more = format!("connections = 3\n{ADMIN}");
    let server = Launch::proxy(backend.address(), &more).workers(1).start();
    let mut clients = clients(&server, 12);
    ask(&mut clients);
    wait_until_known(&server, 12);
    backend.wait_for_requests(12 + 3);
    assert_eq!((backend.requests().len(), backend.open()), (15, 3));
    backend.release();
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.receive().text(), format!("/{number}"));
    }
    assert_eq!(backend.open(), 3);
}

#[test]
fn connections_are_limited_for_all_workers_together() {
    let backend = Scripted::tcp(stalling);
    let more = format!("connections = 4\n{ADMIN}");
    let server = Launch::proxy(backend.address(), &more).workers(2).start();
    let mut clients: Vec<_> = (0..40).map(|_| server.client()).collect();
    ask(&mut clients);
    wait_until_known(&server, 40);
    // All connections may be at one worker.
    backend.wait_for_requests(2);
    assert!(backend.open() <= 4, "{}", backend.open());
    backend.release();
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.receive().text(), format!("/{number}"));
    }
}

#[test]
fn queued_requests_are_served_in_order() {
    let backend = Scripted::tcp(stalling);
    let server = Launch::proxy(backend.address(), "connections = 1")
        .workers(1)
        .start();
    let mut clients = clients(&server, 10);
    ask(&mut clients);
    backend.wait_for_requests(11);
    backend.release();
    for client in &mut clients {
        client.receive().assert_status(200);
    }
    let seen: Vec<_> = backend
        .requests()
        .into_iter()
        .skip(10)
        .map(|one| one.target)
        .collect();
    assert_eq!(
        seen,
        (0..10)
            .map(|number| format!("/{number}"))
            .collect::<Vec<_>>()
    );
}

/// There is one queue: a free slot goes to the first request that can use it, past those bound to the other backend.
#[test]
fn queued_requests_for_another_backend_are_skipped() {
    let (a, b) = (Scripted::tcp(stalling), Scripted::tcp(stalling));
    let to = [a.address(), b.address()].join(",");
    let keys = format!("sticky = \"header:x-user\"\nconnections = 1\n{ADMIN}");
    let server = Launch::proxy(&to, &keys).workers(1).start();
    let user_of = |backend: &Scripted| {
        let mut users = (0..64).map(|user| user.to_string());
        let belongs_there = |user: &String| {
            let before = backend.requests().len();
            server.get_with("/now", &[("X-User", user)]);
            backend.requests().len() > before
        };
        users.find(belongs_there).expect("a user of each")
    };
    let (user_a, user_b) = (user_of(&a), user_of(&b));
    let mut clients = Vec::new();
    for (queued, user) in [
        (0, &user_a),
        (0, &user_b),
        (1, &user_a),
        (2, &user_a),
        (3, &user_b),
    ] {
        let mut client = server.client();
        client.send(head("GET", &format!("/{queued}"), &[("X-User", user)]));
        wait_until("it waits, or has its place", || {
            let in_use = |at: usize| told(&server)["backends"][at]["in_use"] == 1;
            told(&server)["queue"] == queued
                && (user == &user_b || in_use(0))
                && (user == &user_a || in_use(1))
        });
        clients.push(client);
    }
    b.release();
    for number in [1, 4] {
        clients[number].receive().assert_status(200);
    }
    assert_eq!(told(&server)["queue"], 2);
    a.release();
    for number in [0, 2, 3] {
        clients[number].receive().assert_status(200);
    }
}

#[test]
fn a_full_queue_is_reported() {
    let backend = Scripted::tcp(stalling);
    let more = "connections = 1\nqueue = 2";
    let server = Launch::proxy(backend.address(), more).workers(1).start();
    let mut clients = clients(&server, 4);
    ask(&mut clients);
    refused(&clients[3].receive(), 503, "connection_limit_reached");
    server.says("upstream app: the queue for a connection is full (queue) (503)");
    backend.release();
    for client in &mut clients[..3] {
        client.receive().assert_status(200);
    }
    clients[3].get("/now").assert_status(200);
}

#[test]
fn the_queue_has_a_time_out() {
    let backend = Scripted::tcp(stalling);
    let more = "connections = 1\nqueue_timeout = \"300ms\"";
    let server = Launch::proxy(backend.address(), more).workers(1).start();
    let mut clients = clients(&server, 2);
    ask(&mut clients);
    let start = Instant::now();
    refused(&clients[1].receive(), 503, "connection_limit_reached");
    assert!(start.elapsed() >= Duration::from_millis(250));
    backend.release();
    clients[0].receive().assert_status(200);
}

#[test]
fn a_client_that_leaves_the_queue_causes_no_request() {
    let backend = Scripted::tcp(stalling);
    let more = "connections = 1\nqueue = 2";
    let server = Launch::proxy(backend.address(), more).workers(1).start();
    let mut clients = clients(&server, 3);
    ask(&mut clients);
    drop(clients.split_off(1));
    // The queue has room again.
    let mut other = server.client();
    other.send(head("GET", "/other", &[]));
    backend.release();
    clients[0].receive().assert_status(200);
    assert_eq!(other.receive().text(), "/other");
    let seen: Vec<_> = backend
        .requests()
        .into_iter()
        .skip(3)
        .map(|one| one.target)
        .collect();
    assert_eq!(seen, ["/0", "/other"]);
}

#[test]
fn idle_connections_are_limited() {
    let backend = Scripted::tcp(stalling);
    let more = "connections = 8\nkeep_alive = 3";
    let server = Launch::proxy(backend.address(), more).workers(1).start();
    let mut clients = clients(&server, 8);
    ask(&mut clients);
    backend.wait_for_requests(16);
    backend.release();
    for client in &mut clients {
        client.receive().assert_status(200);
    }
    wait_until("the others are closed", || backend.open() == 3);
}

#[test]
fn keep_alive_of_zero_keeps_no_connection() {
    let backend = Scripted::tcp(tell_target);
    let server = Launch::proxy(backend.address(), "keep_alive = 0")
        .workers(1)
        .start();
    let mut client = server.client();
    for _ in 0..3 {
        client.get("/").assert_status(200);
    }
    assert_eq!(backend.connections(), 3);
    assert_eq!(backend.requests()[0].field("connection"), Some("close"));
    backend.wait_for_no_connection();
}

#[test]
fn an_idle_connection_has_a_time_out() {
    let backend = Scripted::tcp(tell_target);
    let server = Launch::proxy(backend.address(), "keep_alive_timeout = \"300ms\"").start();
    server.get("/").assert_status(200);
    assert_eq!(backend.open(), 1);
    backend.wait_for_no_connection();
}

/// Serves any number of requests, and announces with each response how long the connection may be idle.
fn announcing(keep_alive: &'static str) -> impl Fn(&mut Conn) {
    move |conn| {
        while conn.read_request().is_some() {
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive";
            conn.send(format!("{head}\r\n{keep_alive}\r\n\r\n"));
        }
    }
}

#[test]
fn an_idle_connection_ends_before_the_time_that_the_backend_announces() {
    let backend = Scripted::tcp(announcing("Keep-Alive: max=9, timeout=2"));
    let server = Launch::proxy(backend.address(), "keep_alive_timeout = \"1h\"").start();
    server.get("/").assert_status(200);
    backend.wait_for_no_connection();
}

#[test]
fn a_connection_that_is_about_to_end_is_not_kept() {
    for (keep_alive, connections) in [
        ("Keep-Alive: timeout=0", 3),
        ("Keep-Alive: timeout=1", 3),
        ("Keep-Alive: timeout=100\r\nKeep-Alive: timeout = 1", 3),
        ("Keep-Alive: timeout=100", 1),
        ("Keep-Alive: timeout=-1, timeouts=1, max=1", 1),
    ] {
        let backend = Scripted::tcp(announcing(keep_alive));
        let server = Launch::proxy(backend.address(), "").workers(1).start();
        let mut client = server.client();
        for _ in 0..3 {
            client.get("/").assert_status(200);
        }
        assert_eq!(backend.connections(), connections, "{keep_alive}");
    }
}

#[test]
fn an_idle_connection_that_the_backend_closes_is_not_used() {
    let backend = Scripted::tcp(|conn| {
        if let Some(request) = conn.read_request() {
            conn.answer("200 OK", request.target);
            conn.stall();
        }
    });
    let server = Launch::proxy(backend.address(), "retry.times = 0")
        .workers(1)
        .start();
    let mut clients = [server.client(), server.client(), server.client()];
    for (number, client) in clients.iter_mut().enumerate() {
        // Nothing can be retried, so the closed connection must be noticed.
        let answer = client.request("POST", &format!("/{number}"), &[]);
        assert_eq!(answer.text(), format!("/{number}"));
        backend.release();
        backend.wait_for_no_connection();
    }
}

/// Serves one request on each connection, and closes it after reading another.
fn dying(conn: &mut Conn) {
    if let Some(request) = conn.read_request() {
        conn.answer("200 OK", request.target);
        conn.read_request();
    }
}

#[test]
fn a_request_on_a_dying_idle_connection_is_retried_if_allowed() {
    for (method, body, status) in [
        ("GET", "", 200),
        ("PUT", "body", 200),
        ("DELETE", "", 200),
        ("POST", "", 502),
        ("POST", "body", 502),
        ("PATCH", "body", 502),
        ("BREW", "", 502),
    ] {
        let backend = Scripted::tcp(dying);
        let server = Launch::proxy(backend.address(), "").workers(1).start();
        let mut client = server.client();
        client.get("/first").assert_status(200);
        let length = body.len().to_string();
        client.send(head(method, "/again", &[("Content-Length", &length)]) + body);
        client.receive().assert_status(status);
        let asked = backend
            .requests()
            .into_iter()
            .filter(|one| one.target == "/again");
        let bodies: Vec<_> = asked.map(|one| one.body).collect();
        let times = if status == 200 { 2 } else { 1 };
        assert_eq!(bodies, vec![body.as_bytes(); times], "{method}");
    }
}

/// Its first 64 KiB are kept, so that a small one can be sent again.
#[test]
fn a_long_body_that_is_not_buffered_is_not_sent_again() {
    for (bytes, status) in [(4, 200), (500_000, 502)] {
        let backend = Scripted::tcp(dying);
        let server = Launch::proxy(backend.address(), "").workers(1).start();
        let mut client = server.client();
        client.get("/first").assert_status(200);
        client.send(head("PUT", "/again", &[("Transfer-Encoding", "chunked")]));
        let body = "x".repeat(bytes);
        client.send(format!("{bytes:x}\r\n{body}\r\n0\r\n\r\n"));
        client.receive().assert_status(status);
    }
}

#[test]
fn a_backend_that_refuses_connections_is_skipped() {
    let (refusing, backend) = (Refusing::new(), Scripted::tcp(tell_target));
    let to = [refusing.address(), backend.address()].join(",");
    let more = "balance = \"static\"\nfail_for = \"0s\"";
    let server = Launch::proxy(&to, more).start();
    let mut client = server.client();
    // No backend has seen the request, so even a POST is retried.
    for method in ["GET", "POST"] {
        client.send(head(method, "/x", &[("Content-Length", "4")]) + "body");
        assert_eq!(client.receive().text(), "/x");
    }
    let address = refusing.address();
    server.says(&format!(
        "upstream app, backend {address}: cannot connect: Connection refused"
    ));
}

#[test]
fn retries_are_limited() {
    let all: Vec<_> = (0..4)
        .map(|_| {
            Scripted::tcp(|conn| {
                conn.read_request();
            })
        })
        .collect();
    let to: Vec<_> = all.iter().map(Scripted::address).collect();
    for (retries, times) in [(0, 1), (1, 2), (3, 4), (16, 4)] {
        let before: usize = all.iter().map(Scripted::connections).sum();
        let more = format!("retry.times = {retries}\nfail_for = \"0s\"");
        let server = Launch::proxy(&to.join(","), &more).start();
        refused(&server.get("/"), 502, "http_response_incomplete");
        let asked: usize = all.iter().map(Scripted::connections).sum();
        assert_eq!(asked - before, times, "{retries}");
    }
}

#[test]
fn the_only_backend_may_refuse() {
    let refusing = Refusing::new();
    let server = Launch::proxy(refusing.address(), "retry.for = \"0s\"").start();
    let mut client = server.client();
    for _ in 0..3 {
        refused(&client.get("/"), 502, "connection_refused");
    }
    assert!(!server.stderr().contains("tried again"));
    let backend = Scripted::on(refusing.listen(), tell_target);
    assert_eq!(client.get("/x").text(), "/x");
    assert_eq!(backend.requests().len(), 1);
}

/// Many at once, of any method and with a body: nothing was sent.
#[test]
fn requests_wait_for_the_only_backend() {
    let refusing = Refusing::new();
    let server = Launch::proxy(refusing.address(), "retry.for = \"1m\"").start();
    let mut clients: Vec<_> = (0..20).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send(head("POST", "/x", &[("Content-Length", "4")]) + "body");
    }
    server.says("cannot connect: Connection refused (os error 111); tried again");
    let backend = Scripted::on(refusing.listen(), tell_target);
    for client in &mut clients {
        assert_eq!(client.receive().text(), "/x");
    }
    assert_eq!(backend.requests().len(), clients.len());
}

#[test]
fn requests_wait_for_a_limited_time() {
    let refusing = [Refusing::new(), Refusing::new()];
    let to = refusing.each_ref().map(Refusing::address).join(",");
    for (retry, waits) in [
        ("for = \"300ms\"", true),
        ("for = \"300ms\"\nretry.times = 0", false),
        ("on = []", false),
    ] {
        let server = Launch::proxy(&to, &format!("retry.{retry}\n{ADMIN}")).start();
        let start = Instant::now();
        refused(&server.get("/"), 502, "connection_refused");
        assert!(!waits || start.elapsed() >= Duration::from_millis(300));
        let retries = told(&server)["retries"].as_u64().expect("a number");
        assert_eq!(retries > 1, waits, "{retry}: {retries}");
    }
}

#[test]
fn a_client_may_leave_while_its_request_waits() {
    let refusing = Refusing::new();
    let log = "retry.for = \"1m\"\n[log]\naccess = \"stdout\"\nformat = \"json\"";
    let server = Launch::proxy(refusing.address(), log).start();
    let mut client = server.client();
    client.send(head("GET", "/left", &[]));
    server.says("tried again");
    client.reset_when_closed();
    drop(client);
    assert!(server.prints("/left").contains("\"status\":499"));
}

#[test]
fn localhost_is_either_loopback_address() {
    for loopback in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(loopback).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let _backend = Scripted::on(listener, tell_target);
        let server = Launch::proxy(&format!("localhost:{port}"), "retry.times = 0").start();
        assert_eq!(server.get("/x").text(), "/x", "{loopback}");
    }
}

#[test]
fn a_missing_socket() {
    let server = Launch::proxy("unix:/nonexistent/socket", "retry.for = \"0s\"").start();
    refused(&server.get("/"), 502, "connection_refused");
}

#[test]
fn a_client_that_disconnects_during_connect_frees_its_slot() {
    let deaf = Deaf::unix();
    let keys =
        format!("connect_timeout = \"60s\"\n[limits]\nhalf_closed_timeout = \"100ms\"\n{ADMIN}");
    let server = Launch::proxy(deaf.address(), &keys).workers(1).start();
    let mut client = server.client();
    client.send(head("GET", "/", &[]));
    let in_use = || told(&server)["backends"][0]["in_use"].clone();
    wait_until("it has a place", || in_use() == 1);
    drop(client);
    wait_until("it has given it back", || in_use() == 0);
}

#[test]
fn connecting_has_a_time_out() {
    for deaf in [Deaf::tcp(), Deaf::unix()] {
        let backend = Scripted::tcp(tell_target);
        let server = Launch::proxy(deaf.address(), "connect_timeout = \"300ms\"").start();
        let start = Instant::now();
        refused(&server.get("/"), 504, "connection_timeout");
        assert!(start.elapsed() >= Duration::from_millis(250));
        let to = [deaf.address(), backend.address()].join(",");
        let more = "balance = \"static\"\nconnect_timeout = \"300ms\"";
        assert_eq!(Launch::proxy(&to, more).start().get("/x").text(), "/x");
    }
}

#[test]
fn a_unix_socket_whose_queue_is_full_is_waited_for() {
    let deaf = Deaf::unix();
    let server = Launch::proxy(deaf.address(), "").start();
    let mut client = server.client();
    client.send(head("GET", "/x", &[]));
    pass(Duration::from_millis(50));
    let backend = deaf.hear();
    let (mut conn, _) = backend.accept().expect("a connection");
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    std::io::Write::write_all(&mut conn, answer).expect("write");
    assert_eq!(client.receive().text(), "ok");
}

#[test]
fn a_backend_that_fails_is_ejected_and_comes_back() {
    let (refusing, other) = (Refusing::new(), Scripted::tcp(tell_target));
    let address = refusing.address().to_owned();
    let to = [&address, other.address()].join(",");
    let server = Launch::proxy(&to, "fail_for = \"500ms\"")
        .workers(1)
        .start();
    let mut client = server.client();
    for _ in 0..20 {
        client.get("/").assert_status(200);
    }
    let left = format!("upstream app: backend {address} is ejected for 500ms: cannot connect");
    server.says(&left);
    let backend = Scripted::on(refusing.listen(), tell_target);
    wait_until("it is asked again", || {
        client.get("/").assert_status(200);
        backend.requests().len() > 3
    });
    let back = server.says(&format!("upstream app: backend {address} is back after "));
    assert!(back.ends_with(" attempts failed"), "{back}");
}

#[test]
fn queued_requests_get_a_backend_that_comes_back() {
    let (refusing, stalled) = (Refusing::new(), Scripted::tcp(stalling));
    let to = [refusing.address(), stalled.address()].join(",");
    let more = format!("connections = 1\nfail_for = \"200ms\"\nbalance = \"static\"\n{ADMIN}");
    let server = Launch::proxy(&to, &more).workers(1).start();
    let mut clients = clients(&server, 6);
    ask(&mut clients[..5]);
    wait_until("four wait behind the one that is asked", || {
        told(&server)["queue"] == 4
    });
    let backend = Scripted::on(refusing.listen(), tell_target);
    wait_until("the other may be tried again", || {
        told(&server)["backends"][0]["state"] == "trial"
    });
    // The request of the trial; the others were queued before.
    clients[5].send(head("GET", "/5", &[]));
    for (number, client) in clients.iter_mut().enumerate().skip(1) {
        assert_eq!(client.receive().text(), format!("/{number}"));
    }
    assert_eq!(backend.requests().len(), 5);
    stalled.release();
    assert_eq!(clients[0].receive().text(), "/0");
}

#[test]
fn backups_are_used_when_all_others_are_down() {
    let (refusing, backup) = (Refusing::new(), Scripted::tcp(tell_target));
    let to = format!("{}, {} backup", refusing.address(), backup.address());
    let server = Launch::proxy(&to, "fail_for = \"300ms\"")
        .workers(1)
        .start();
    for _ in 0..3 {
        assert_eq!(server.get("/x").text(), "/x");
    }
    assert_eq!(backup.requests().len(), 3);
    let first = Scripted::on(refusing.listen(), tell_target);
    wait_until("the first is asked again", || {
        server.get("/").assert_status(200);
        !first.requests().is_empty()
    });
    let before = backup.requests().len();
    for _ in 0..5 {
        server.get("/").assert_status(200);
    }
    assert_eq!(backup.requests().len(), before);
}

/// The numbers of `requests` that two backends get.
#[track_caller]
fn shares(options: [&str; 2], balance: &str, paths: &[&str]) -> [usize; 2] {
    let [one, other] = [Scripted::tcp(tell_target), Scripted::tcp(tell_target)];
    let to = format!(
        "{} {}, {} {}",
        one.address(),
        options[0],
        other.address(),
        options[1]
    );
    let more = format!("balance = \"{balance}\"");
    let server = Launch::proxy(&to, &more).workers(1).start();
    let mut client = server.client();
    for path in paths {
        assert_eq!(client.get(path).text(), *path);
    }
    [one.requests().len(), other.requests().len()]
}

#[test]
fn requests_are_balanced() {
    let all = ["/same"; 40];
    assert_eq!(shares(["", ""], "round-robin", &all), [20, 20]);
    assert_eq!(shares(["weight=3", ""], "round-robin", &all), [30, 10]);
    assert_eq!(
        shares(["weight=3", ""], "least-connections", &all),
        [30, 10]
    );
    assert_eq!(shares(["", ""], "static", &all), [40, 0]);
    assert_eq!(shares(["backup", ""], "static", &all), [0, 40]);
    let [one, other] = shares(["", ""], "random-two", &["/same"; 100]);
    assert!(one > 20 && other > 20, "{one} and {other}");
    let [one, other] = shares(["", ""], "carp", &all);
    assert!(one == 0 || other == 0, "{one} and {other}");
    let paths: Vec<_> = (0..100).map(|number| format!("/{number}")).collect();
    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
    let [one, other] = shares(["", ""], "carp", &paths);
    assert!(one > 20 && other > 20, "{one} and {other}");
}

#[test]
fn the_less_busy_backend_gets_the_request() {
    let [slow, fast] = [Scripted::tcp(stalling), Scripted::tcp(tell_target)];
    let to = [slow.address(), fast.address()].join(",");
    let server = Launch::proxy(&to, "balance = \"least-connections\"")
        .workers(1)
        .start();
    let mut waits = Vec::new();
    // One after the other, until the slow backend has one in progress.
    while slow.requests().is_empty() {
        let mut client = server.client();
        client.send(head("GET", "/", &[]));
        let before = fast.requests().len();
        wait_until("somebody is asked", || {
            !slow.requests().is_empty() || fast.requests().len() > before
        });
        waits.push(client);
    }
    let before = fast.requests().len();
    for _ in 0..10 {
        server.get("/").assert_status(200);
    }
    assert_eq!(
        (slow.requests().len(), fast.requests().len()),
        (1, before + 10)
    );
    slow.release();
    for client in &mut waits {
        client.receive().assert_status(200);
    }
}

/// A backend that responds with its name.
fn named(name: &'static str) -> Scripted {
    Scripted::tcp(move |conn| {
        while conn.read_request().is_some() {
            conn.answer("200 OK", name);
        }
    })
}

#[test]
fn a_cookie_binds_a_client_to_a_backend() {
    let (a, b) = (named("a"), named("b"));
    let to = [a.address(), b.address()].join(",");
    let server = Launch::proxy(&to, "sticky = \"cookie:route\"")
        .workers(1)
        .start();
    for _ in 0..4 {
        let first = server.get("/");
        let cookie = first
            .field("set-cookie")
            .split(';')
            .next()
            .expect("a cookie")
            .to_owned();
        assert!(cookie.starts_with("route="), "{cookie}");
        for _ in 0..3 {
            let again = server.get_with("/", &[("Cookie", &cookie)]);
            assert_eq!(
                (again.text(), again.header("set-cookie")),
                (first.text(), None)
            );
        }
    }
    assert!(!a.requests().is_empty() && !b.requests().is_empty());
}

#[test]
fn a_client_whose_backend_is_gone_gets_another() {
    let (a, refusing) = (named("a"), Refusing::new());
    let to = [a.address(), refusing.address()].join(",");
    let server = Launch::proxy(&to, "sticky = \"cookie:route\"")
        .workers(1)
        .start();
    let cookie = server.get("/").field("set-cookie").to_owned();
    let other = "route=0123456789abcdef";
    for sent in [cookie.split(';').next().expect("a cookie"), other] {
        assert_eq!(server.get_with("/", &[("Cookie", sent)]).text(), "a");
    }
}

#[test]
fn a_field_binds_a_client_to_a_backend() {
    let (a, b) = (named("a"), named("b"));
    let to = [a.address(), b.address()].join(",");
    let server = Launch::proxy(&to, "sticky = \"header:x-user\"")
        .workers(1)
        .start();
    for user in 0..20 {
        let user = user.to_string();
        let first = server.get_with("/", &[("X-User", &user)]);
        assert_eq!(first.header("set-cookie"), None);
        assert_eq!(
            server.get_with("/", &[("X-User", &user)]).text(),
            first.text()
        );
    }
    assert!(!a.requests().is_empty() && !b.requests().is_empty());
}

#[test]
fn a_backend_that_drains_keeps_its_clients() {
    let (a, b) = (named("a"), named("b"));
    let config = |options: &str| format!("{} {options}, {}", a.address(), b.address());
    let keys = "sticky = \"cookie:route\"\nbalance = \"static\"";
    let server = Launch::proxy(&config(""), keys).workers(1).start();
    let cookie = server.get("/").field("set-cookie").to_owned();
    let cookie = cookie.split(';').next().expect("a cookie");
    server.reload(&[a.address()], &[&format!("{} drain", a.address())]);
    assert_eq!(server.get("/").text(), "b");
    assert_eq!(server.get_with("/", &[("Cookie", cookie)]).text(), "a");
}

#[test]
fn a_reload_fails_no_request() {
    let backend = Scripted::tcp(stalling);
    let server = Launch::proxy(backend.address(), "connections = 2")
        .workers(1)
        .start();
    let mut clients = clients(&server, 6);
    ask(&mut clients[..4]);
    backend.wait_for_requests(6 + 2);
    server.reload(&["connections = 2"], &["connections = 1"]);
    // Two old requests are in progress and two are queued; the new limit applies to new requests.
    clients[4].send(head("GET", "/4", &[]));
    clients[5].send(head("GET", "/5", &[]));
    backend.wait_for_requests(6 + 3);
    pass(Duration::from_millis(50));
    assert_eq!(backend.open(), 3);
    backend.release();
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.receive().text(), format!("/{number}"));
    }
    // The old connections are closed.
    wait_until("one is left", || backend.open() == 1);
}

#[test]
fn requests_continue_across_reloads() {
    let backend = Scripted::tcp(tell_target);
    let server = Launch::proxy(backend.address(), "retry.times = 0\nqueue = 100").start();
    let answered = Arc::<AtomicUsize>::default();
    std::thread::scope(|scope| {
        let asking = |number: usize| {
            let (server, answered) = (&server, answered.clone());
            move || {
                let mut client = server.client();
                for count in 0..200 {
                    let path = format!("/{number}/{count}");
                    assert_eq!(client.request("POST", &path, &[]).text(), path);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let threads: Vec<_> = (0..4).map(|number| scope.spawn(asking(number))).collect();
        for count in 100..105 {
            let (from, to) = (format!("queue = {count}"), format!("queue = {}", count + 1));
            server.reload(&[&from], &[&to]);
        }
        for thread in threads {
            thread.join().expect("answers");
        }
    });
    assert_eq!(answered.load(Ordering::Relaxed), 800);
}

#[test]
fn a_reload_keeps_the_health_of_backends() {
    let (refusing, other) = (Refusing::new(), Scripted::tcp(tell_target));
    let to = [refusing.address(), other.address()].join(",");
    let more = "balance = \"static\"\nfail_for = \"1h\"\nqueue = 100";
    let server = Launch::proxy(&to, more).workers(1).start();
    server.get("/").assert_status(200);
    server.says("is ejected");
    let backend = Scripted::on(refusing.listen(), tell_target);
    server.reload(&["queue = 100"], &["queue = 101"]);
    for _ in 0..5 {
        server.get("/").assert_status(200);
    }
    assert_eq!(backend.connections(), 0);
}

#[test]
fn backends_may_have_names() {
    let backend = Scripted::tcp(tell_target);
    let to = backend.address().replace("127.0.0.1", "localhost");
    let server = Launch::proxy(&to, "resolve_interval = \"1s\"").start();
    assert_eq!(server.get("/x").text(), "/x");
}

/// It does not go to another backend.
#[test]
fn a_bound_client_waits_for_its_backend() {
    let (first, second) = (Scripted::tcp(stalling), Scripted::tcp(stalling));
    let to = [first.address(), second.address()].join(",");
    let keys = "sticky = \"header:x-user\"\nconnections = 1";
    let server = Launch::proxy(&to, keys).workers(1).start();
    let user = [("X-User", "one")];
    let mut clients: Vec<_> = (0..3).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send(head("GET", "/wait", &user));
    }
    wait_until("one is there", || {
        first.requests().len() + second.requests().len() == 1
    });
    let (owner, other) = match first.requests().is_empty() {
        true => (&second, &first),
        false => (&first, &second),
    };
    owner.release();
    for client in &mut clients {
        client.receive().assert_status(200);
    }
    assert_eq!((owner.requests().len(), other.requests().len()), (3, 0));
    other.release();
}

/// A failure on a reused connection counts, unless the connection had just ended.
#[test]
fn a_backend_that_hangs_on_a_reused_connection_is_ejected() {
    let sick = Scripted::tcp(stalling);
    let well =
        Scripted::tcp(
            |conn| while conn.read_request().is_some() && conn.answer("200 OK", "well") {},
        );
    let keys = "balance = \"static\"\nfirst_byte_timeout = \"200ms\"";
    let to = [sick.address(), well.address()].join(",");
    let server = Launch::proxy(&to, keys).workers(1).start();
    let mut client = server.client();
    client.get("/now").assert_status(200);
    client.get("/hang").assert_status(504);
    server.says("is ejected");
    assert_eq!(client.get("/").text(), "well");
    sick.release();
}
