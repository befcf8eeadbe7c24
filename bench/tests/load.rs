//! The load generator against a server that does what each test needs.

use levity_bench::bare_http2::BareHttp2;
use levity_bench::load::Failed;
use levity_bench::load::client::{Client, Target};
use levity_bench::load::plan::{Closed, EachOnce, Open, Plan};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const NO_WARM_UP: Duration = Duration::ZERO;
/// Long enough for any run that ends by itself.
const AMPLE: Duration = Duration::from_secs(60);
const BRIEF: Duration = Duration::from_millis(100);

/// What the server sends back; None: nothing, and it closes.
type Reply = Option<String>;

fn ok(body: &str) -> Reply {
    Some(format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ))
}

/// Serves on a port of its own until the test process ends; a thread for each connection.
fn serve(respond: impl Fn(&str) -> Reply + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let respond = Arc::new(respond);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let respond = Arc::clone(&respond);
            std::thread::spawn(move || answer(&stream.unwrap(), &*respond));
        }
    });
    address
}

fn answer(mut stream: &TcpStream, respond: &dyn Fn(&str) -> Reply) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    while let Some(first) = lines.next() {
        lines.by_ref().find(String::is_empty);
        let Some(reply) = respond(first.split(' ').nth(1).unwrap()) else {
            return;
        };
        if stream.write_all(reply.as_bytes()).is_err() || reply.contains("Connection: close") {
            return;
        }
    }
}

fn client(address: SocketAddr, connections: usize) -> Client {
    client_of(address, connections, &["/"])
}

fn client_of(address: SocketAddr, connections: usize, paths: &[&str]) -> Client {
    Client::connect(target(address, paths), connections).unwrap()
}

fn target(address: SocketAddr, paths: &[&str]) -> Target {
    Target {
        socket: None,
        numbered: false,
        has_clients: false,
        address,
        method: "GET".into(),
        paths: paths.iter().map(|&path| path.to_owned()).collect(),
        body_bytes: Some(5),
        missing_ok: false,
        discard: false,
        accept: None,
        coding: None,
        host: None,
        tls: None,
        close: false,
        streams: None,
        credentials: None,
    }
}

fn once(count: usize) -> Box<dyn Plan> {
    Box::new(EachOnce::new(count))
}

#[test]
fn every_path_is_asked_for_once() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let address = serve(move |path| {
        log.lock().unwrap().push(path.to_owned());
        ok("hello")
    });
    let paths = ["/a", "/b", "/c", "/d", "/e"];
    let report = client_of(address, 2, &paths)
        .run(&mut *once(5), NO_WARM_UP, AMPLE)
        .unwrap();
    let mut seen = seen.lock().unwrap().clone();
    seen.sort();
    assert_eq!(seen, paths);
    assert_eq!(
        (report.requests, report.body_bytes, report.errors),
        (5, 25, 0)
    );
}

#[test]
fn discarded_bodies_are_counted() {
    const BYTES: usize = 3_000_000;
    let address = serve(|_| ok(&"x".repeat(BYTES)));
    let mut target = target(address, &["/"; 4]);
    (target.discard, target.body_bytes) = (true, Some(BYTES as u64));
    let report = Client::connect(target, 2)
        .unwrap()
        .run(&mut *once(4), NO_WARM_UP, AMPLE)
        .unwrap();
    assert_eq!(
        (report.requests, report.body_bytes, report.errors),
        (4, 4 * BYTES as u64, 0)
    );
}

#[test]
fn a_closed_loop_goes_on_until_the_time_is_over() {
    let address = serve(|_| ok("hello"));
    let report = client(address, 2).run(&mut Closed, BRIEF, BRIEF).unwrap();
    assert!(report.requests > 2, "{report:?}");
    assert!(report.seconds >= 0.1 && report.errors == 0, "{report:?}");
}

#[test]
fn a_server_that_stands_still_is_charged_for_every_request_that_was_due() {
    let address = serve(|_| {
        std::thread::park_timeout(AMPLE);
        None
    });
    let mut plan = Open::new(1000, 1, Instant::now());
    let report = client(address, 4)
        .run(&mut plan, NO_WARM_UP, BRIEF)
        .unwrap();
    assert_eq!(report.requests, 0);
    assert!(report.unfinished >= 100, "{report:?}");
    assert!(
        report.latency.p50_us >= 45_000.0 && report.latency.max_us >= 99_000.0,
        "{report:?}"
    );
}

#[test]
fn wrong_answers_are_errors() {
    let not_found = "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello";
    let cases: [(Reply, &str); 4] = [
        (Some(not_found.into()), "status 404"),
        (ok("hell"), "4 bytes instead of 5"),
        (None, "connection closed before the end of the response"),
        (Some("nonsense\r\n\r\n".into()), "response head: "),
    ];
    for (reply, expected) in cases {
        let address = serve(move |_| reply.clone());
        let report = client(address, 1)
            .run(&mut *once(1), NO_WARM_UP, AMPLE)
            .unwrap();
        let error = report.first_error.unwrap();
        assert!(error.contains(expected), "{error}");
        assert_eq!((report.requests, report.errors), (0, 1));
    }
}

#[test]
fn a_connection_that_the_server_may_close_is_replaced() {
    let closing = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
    let address = serve(|_| Some(closing.into()));
    let report = client_of(address, 1, &["/"; 3])
        .run(&mut *once(3), NO_WARM_UP, AMPLE)
        .unwrap();
    assert_eq!((report.requests, report.errors), (3, 0));
}

#[test]
fn draining_waits_for_late_answers() {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let (server_gate, answered) = (Arc::clone(&gate), Arc::new(Mutex::new(0)));
    let count = Arc::clone(&answered);
    let address = serve(move |_| {
        let open = server_gate.0.lock().unwrap();
        drop(server_gate.1.wait_while(open, |open| !*open).unwrap());
        *count.lock().unwrap() += 1;
        ok("hello")
    });
    let mut client = client(address, 3);
    let report = client.run(&mut Closed, NO_WARM_UP, BRIEF).unwrap();
    assert_eq!((report.requests, report.unfinished), (0, 3));
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    client.drain(AMPLE).unwrap();
    assert_eq!(*answered.lock().unwrap(), 3);
}

#[test]
fn numbered_requests_that_fail_are_named() {
    let address = serve(|path| match path {
        "/?id=1" => Some("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".into()),
        "/?id=2" => None,
        _ => ok("hello"),
    });
    let target = Target {
        numbered: true,
        has_clients: false,
        ..target(address, &["/?id="])
    };
    let mut client = Client::connect(target, 1).unwrap();
    let report = client.run(once(4).as_mut(), NO_WARM_UP, AMPLE).unwrap();
    let failed = [(1, Some(503)), (2, None)].map(|(number, status)| Failed { number, status });
    assert_eq!((report.requests, &report.failed[..]), (2, &failed[..]));
}

#[test]
fn a_client_accepts_the_coding_that_it_is_given() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(&stream).lines().map_while(Result::ok);
        let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        stream.write_all(ok("hello").unwrap().as_bytes()).unwrap();
        head
    });
    let target = Target {
        coding: Some("zstd".into()),
        ..target(address, &["/a"])
    };
    let mut client = Client::connect(target, 1).unwrap();
    client.run(once(1).as_mut(), NO_WARM_UP, AMPLE).unwrap();
    assert!(
        server
            .join()
            .unwrap()
            .contains(&"Accept-Encoding: zstd".to_owned())
    );
}

#[test]
fn requests_over_http2_share_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    std::thread::spawn(move || BareHttp2 { address }.run());
    let end = Instant::now() + AMPLE;
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < end);
        std::thread::yield_now();
    }
    let target = Target {
        streams: Some(8),
        body_bytes: Some(100_000),
        ..target(address, &["/hot/100000.bin"; 1000])
    };
    let mut client = Client::connect(target, 2).unwrap();
    let report = client.run(&mut EachOnce::new(1000), NO_WARM_UP, AMPLE);
    let report = report.unwrap();
    assert_eq!((report.requests, report.errors), (1000, 0), "{report:?}");
    assert_eq!(report.body_bytes, 100_000_000);
}
