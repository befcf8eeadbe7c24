//! Health checks and name resolution of backends.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::scripted::Scripted;
use crate::support::{Launch, Server};

const WAIT_MAX: Duration = Duration::from_secs(20);

/// An upstream `app` at `address` with frequent checks of `path`.
fn config(address: SocketAddr, path: &str) -> String {
    format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"app\"\nto = [\"{address}\"]\n\
         check = {{ path = \"{path}\", host = \"app.example\", interval = \"10ms\", fall = 2, rise = 2 }}\n\
         [[site]]\nproxy = \"app\"\n"
    )
}

/// Serves `count` checks, and returns their requests.
fn answer(listener: &TcpListener, count: usize) -> Vec<String> {
    let ask = |_| {
        let (mut stream, _) = listener.accept().expect("accept");
        stream.set_read_timeout(Some(WAIT_MAX)).expect("timeout");
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            assert_eq!(stream.read(&mut byte).expect("read"), 1);
            head.push(byte[0]);
        }
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(answer).expect("write");
        let head = String::from_utf8(head).expect("text");
        assert!(head.contains("\r\nHost: app.example\r\n"), "{head}");
        head.lines().next().expect("a request line").to_owned()
    };
    (0..count).map(ask).collect()
}

/// The same in a thread, for tests that need a time-out.
fn answered(listener: TcpListener, count: usize) -> Receiver<(TcpListener, Vec<String>)> {
    let (told, lines) = mpsc::channel();
    thread::spawn(move || {
        let asked = answer(&listener, count);
        // The test has ended when nobody listens.
        let _ = told.send((listener, asked));
    });
    lines
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    (listener, address)
}

#[test]
fn a_backend_is_down_until_it_responds_again() {
    let (listener, address) = listen();
    let server = Launch::run(&config(address, "/ping")).start();
    let (listener, lines) = answered(listener, 3).recv_timeout(WAIT_MAX).expect("asked");
    assert_eq!(lines, ["GET /ping HTTP/1.1"; 3]);
    drop(listener);
    let reason = "cannot connect: Connection refused";
    server.says(&format!(
        "upstream app: backend {address} is down: {reason}"
    ));
    // `bind` sets SO_REUSEADDR, so old connections in TIME_WAIT do not prevent it.
    let again = TcpListener::bind(address).expect("bind again");
    answered(again, 2).recv_timeout(WAIT_MAX).expect("asked");
    server.says(&format!("upstream app: backend {address} is back after "));
}

#[test]
fn a_reload_ends_the_old_checks() {
    let (listener, address) = listen();
    let server: Server = Launch::run(&config(address, "/old")).start();
    let (mut listener, lines) = answered(listener, 2).recv_timeout(WAIT_MAX).expect("asked");
    assert_eq!(lines, ["GET /old HTTP/1.1"; 2]);
    fs::write(server.config(), config(address, "/new")).expect("write");
    server.signal(Signal::HUP);
    let mut line = String::new();
    while line != "GET /new HTTP/1.1" {
        let (back, mut lines) = answered(listener, 1).recv_timeout(WAIT_MAX).expect("asked");
        (listener, line) = (back, lines.remove(0));
    }
    // An old check may have been in progress.
    let (listener, _) = answered(listener, 1).recv_timeout(WAIT_MAX).expect("asked");
    let (_, lines) = answered(listener, 10)
        .recv_timeout(WAIT_MAX)
        .expect("asked");
    assert_eq!(lines, ["GET /new HTTP/1.1"; 10]);
}

/// A site with these backends.
fn proxied(to: &str) -> Server {
    Launch::proxy(to, "").start()
}

const COMPLAINT: &str = "upstream app: nowhere.invalid does not resolve: ";

#[test]
fn a_name_without_an_address_leaves_the_other_backends() {
    let backend = Scripted::tcp(|conn| {
        while conn.read_request().is_some() {
            conn.answer("200 OK", "here");
        }
    });
    let server = proxied(&format!("nowhere.invalid:80, {}", backend.address()));
    for _ in 0..4 {
        assert_eq!(server.get("/").text(), "here");
    }
    server.says(COMPLAINT);
    assert_eq!(server.stderr().matches(COMPLAINT).count(), 1);
}

#[test]
fn an_upstream_without_any_address_is_503_and_logged() {
    let server = proxied("nowhere.invalid:80");
    server.says("; it gets no requests until it does");
    server.says("upstream app: http, round-robin: no address yet");
    for _ in 0..3 {
        let answer = server.get("/");
        answer.assert_status(503);
        assert_eq!(answer.field("proxy-status"), "levity; error=dns_error");
    }
    server.says("upstream app: no backend has an address: host names do not resolve (503)");
}
