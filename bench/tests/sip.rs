//! Slow clients, as a process, against a server that sends without an end or closes at once.

use levity_bench::load::sip::Sipped;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

const CONNECTIONS: usize = 20;
const BYTES_PER_SECOND: usize = 1000;

/// Serves on a port of its own until the test process ends; a thread for each connection.
fn serve(respond: fn(TcpStream, &str)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let stream = stream.unwrap();
                let lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                respond(stream, &head.join("\n"));
            });
        }
    });
    address
}

/// Sends until the client is gone, but only to clients with the coding.
fn send_without_end(mut stream: TcpStream, head: &str) {
    assert!(head.starts_with("GET /stream HTTP/1.1\n"), "{head}");
    assert!(head.contains("\nAccept-Encoding: br"), "{head}");
    while stream.write_all(&[b'x'; 4096]).is_ok() {}
}

fn start(address: SocketAddr) -> Child {
    Command::new(env!("CARGO_BIN_EXE_levity-bench"))
        .args(["sip", "--path=/stream", "--coding=br"])
        .arg(format!("--address={address}"))
        .arg(format!("--connections={CONNECTIONS}"))
        .arg(format!("--bytes-per-second={BYTES_PER_SECOND}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The reports at the begin of the responses and at the end of standard input.
fn reports(mut child: Child) -> [Sipped; 2] {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut report = || serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let begun = report();
    drop(child.stdin.take());
    let ended = report();
    assert!(child.wait().unwrap().success());
    [begun, ended]
}

#[test]
fn every_connection_reads_slowly_until_the_end() {
    let [begun, ended] = reports(start(serve(send_without_end)));
    assert_eq!((begun.reading, begun.closed), (CONNECTIONS, 0));
    assert_eq!((ended.reading, ended.closed), (CONNECTIONS, 0));
    assert!(begun.bytes > 0 && ended.bytes >= begun.bytes);
    // One read of each connection may come early.
    let seconds = ended.seconds + 1.0;
    let bytes_max = seconds * (CONNECTIONS * BYTES_PER_SECOND) as f64;
    assert!(ended.bytes as f64 <= bytes_max, "{} {seconds}", ended.bytes);
}

#[test]
fn closed_connections_are_counted() {
    let [begun, _] = reports(start(serve(|_, _| {})));
    assert_eq!((begun.reading, begun.closed), (0, CONNECTIONS));
}
