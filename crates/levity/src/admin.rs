//! The admin listener: `/status`, `/metrics`, `/health` and a live page, read-only.
//!
//! It runs on the control thread, so that a scrape never takes a worker's time, and handles one request per
//! connection. The number of connections, the size of a request header and the time are bounded. Over TCP the
//! Host of a request must be a name of this machine.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use levity_config::OwnNames;
use levity_net::{Listener, Transport};
use levity_wire::http1::{Limits, Method, RequestHead, parse_request, reason};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::status::{self, Status};

/// Connections at once; more wait in the listener's backlog.
const CONNECTIONS_MAX: usize = 16;
/// From accept to close.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(5);
/// Bytes of a request's header section.
const HEAD_BYTES_MAX: usize = 4096;
/// Pause after a failed accept, such as one without a free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";

/// Handles requests until it is dropped, which ends its connections too. Over TCP the host of a request must
/// be one of `names`. For the control thread's runtime, which must have I/O and time enabled.
pub async fn serve(listener: Listener, status: Arc<Status>, names: watch::Receiver<OwnNames>) {
    tokio::join!(
        sample(&status),
        serve_within(listener, status.clone(), names, CONNECTION_TIME_MAX)
    );
}

/// Takes samples for the history of `/status`.
async fn sample(status: &Status) {
    let mut ticks = interval(status::INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        status.sample();
    }
}

async fn serve_within(
    listener: Listener,
    status: Arc<Status>,
    names: watch::Receiver<OwnNames>,
    time_max: Duration,
) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() == CONNECTIONS_MAX {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((transport, _)) => {
                let is_tcp = matches!(transport, Transport::Tcp(_));
                // No browser connects to a Unix socket.
                let names = is_tcp.then(|| names.clone());
                connections.spawn(timeout(
                    time_max,
                    exchange(transport, names, status.clone()),
                ));
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// One request and its response. An error means that the client closed early; it is ignored.
async fn exchange(
    mut transport: Transport,
    names: Option<watch::Receiver<OwnNames>>,
    status: Arc<Status>,
) -> io::Result<()> {
    let mut bytes = [0; HEAD_BYTES_MAX];
    let mut head = RequestHead::default();
    let answer = match read_head(&mut transport, &mut bytes, &mut head).await? {
        Head::Closed => return Ok(()),
        Head::Refused(answer) => answer,
        Head::Complete if names.is_some_and(|names| !is_meant(&head, &bytes, &names.borrow())) => {
            Reply::misdirected()
        }
        Head::Complete => respond(head.path.of(&bytes), head.method, &status).await,
    };
    transport
        .write_all(&answer.bytes(head.method == Method::Head))
        .await?;
    transport.end_output();
    // Closing with unread bytes would reset the connection and may lose the response.
    while transport.read(&mut bytes).await? > 0 {}
    Ok(())
}

fn is_meant(head: &RequestHead, bytes: &[u8], names: &OwnNames) -> bool {
    head.host.is_none_or(|host| names.include(host.of(bytes)))
}

/// The outcome of reading a request's header section.
enum Head {
    /// The client closed first.
    Closed,
    Refused(Reply),
    Complete,
}

async fn read_head(
    transport: &mut Transport,
    bytes: &mut [u8; HEAD_BYTES_MAX],
    head: &mut RequestHead,
) -> io::Result<Head> {
    let limits = Limits {
        head_bytes_max: HEAD_BYTES_MAX,
        ..Limits::default()
    };
    let mut filled = 0;
    loop {
        // A full buffer is never incomplete, by the contract of the limits.
        let more = transport.read(&mut bytes[filled..]).await?;
        if more == 0 {
            return Ok(Head::Closed);
        }
        filled += more;
        match parse_request(&bytes[..filled], head, &limits) {
            Ok(true) => return Ok(Head::Complete),
            Ok(false) => {}
            Err(reject) => return Ok(Head::Refused(Reply::refused(reject.status, reject.reason))),
        }
    }
}

/// A response that is not serialized yet.
struct Reply {
    status: u16,
    content_type: &'static str,
    /// `Content-Security-Policy`.
    policy: Cow<'static, str>,
    body: String,
}

impl Reply {
    fn ok(content_type: &'static str, body: String) -> Self {
        Self {
            status: 200,
            content_type,
            policy: "default-src 'none'; frame-ancestors 'none'".into(),
            body,
        }
    }

    fn page() -> Self {
        let (body, policy) = status::page();
        Self {
            policy: policy.into(),
            ..Self::ok(HTML, body)
        }
    }

    fn refused(status: u16, reason: &str) -> Self {
        Self {
            status,
            ..Self::ok(TEXT, format!("{status} {reason}\n"))
        }
    }

    fn misdirected() -> Self {
        let reason = "Misdirected Request: these pages answer to `localhost`, to IP addresses, and to the names in \
                      `hosts` of [admin]";
        Self::refused(421, reason)
    }

    fn bytes(&self, head_only: bool) -> Vec<u8> {
        // A 405 must have Allow (RFC 9110, 15.5.6).
        let allow = if self.status == 405 {
            "Allow: GET, HEAD\r\n"
        } else {
            ""
        };
        let mut out = format!(
            "HTTP/1.1 {} {}\r\nDate: {}\r\n{allow}Content-Type: {}\r\nContent-Length: {}\r\n\
             Content-Security-Policy: {}\r\nX-Content-Type-Options: nosniff\r\n\
             Referrer-Policy: no-referrer\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
            self.status,
            reason(self.status),
            httpdate::fmt_http_date(SystemTime::now()),
            self.content_type,
            self.body.len(),
            self.policy,
        );
        if !head_only {
            out.push_str(&self.body);
        }
        out.into_bytes()
    }
}

async fn respond(path: &[u8], method: Method, status: &Status) -> Reply {
    let is_read = matches!(method, Method::Get | Method::Head);
    match path {
        b"/" | b"/status.html" | b"/status" | b"/status.json" | b"/metrics" | b"/health"
            if !is_read =>
        {
            Reply::refused(405, reason(405))
        }
        b"/" | b"/status.html" => Reply::page(),
        b"/status" => Reply::ok(TEXT, status::text(&status.json().await)),
        b"/status.json" => Reply::ok(JSON, format!("{}\n", status.json().await)),
        b"/metrics" => Reply::ok(PROMETHEUS, metrics(status)),
        b"/health" => Reply::ok(TEXT, "ok\n".into()),
        _ => Reply::refused(404, reason(404)),
    }
}

fn metrics(status: &Status) -> String {
    let mut out = String::with_capacity(16 * 1024);
    status.stats().render(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::thread::{self, JoinHandle};

    use tokio::runtime::{Builder, Runtime};
    use tokio::sync::oneshot;

    use tokio::net::{TcpListener, UnixListener};

    use super::*;
    use levity_telemetry::stats::{Sources, Stats, WorkerStats};

    /// A server on a control thread of its own; ends when dropped.
    struct Server<A> {
        address: A,
        stop: Option<oneshot::Sender<()>>,
        thread: Option<JoinHandle<()>>,
    }

    impl<A: Send + 'static> Server<A> {
        fn start(
            bind: impl FnOnce() -> (A, Listener) + Send + 'static,
            time_max: Duration,
        ) -> Self {
            let names = OwnNames {
                added: vec!["web1.example".to_owned()],
            };
            let (_, names) = watch::channel(names);
            let (stop, stopped) = oneshot::channel::<()>();
            let (bound, address) = std::sync::mpsc::channel();
            let thread = thread::spawn(move || {
                runtime().block_on(async move {
                    let (address, listener) = bind();
                    bound.send(address).expect("the test waits");
                    let stats = Arc::new(Stats::new(
                        vec![Arc::new(WorkerStats::new(0))],
                        Sources::default(),
                    ));
                    let status = Arc::new(Status::new(
                        stats,
                        Arc::default(),
                        Arc::default(),
                        Vec::new(),
                        7,
                    ));
                    tokio::select! {
                        () = serve_within(listener, status, names, time_max) => {}
                        _ = stopped => {}
                    }
                });
            });
            let address = address.recv().expect("an address");
            Self {
                address,
                stop: Some(stop),
                thread: Some(thread),
            }
        }
    }

    impl<A> Drop for Server<A> {
        fn drop(&mut self) {
            self.stop.take();
            let ended = self.thread.take().map(JoinHandle::join);
            assert!(thread::panicking() || matches!(ended, Some(Ok(()))));
        }
    }

    fn runtime() -> Runtime {
        Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("runtime")
    }

    fn tcp() -> (SocketAddr, Listener) {
        tcp_on("127.0.0.1:0")
    }

    fn tcp_on(address: &str) -> (SocketAddr, Listener) {
        let listener = std::net::TcpListener::bind(address).expect("bind");
        listener.set_nonblocking(true).expect("non-blocking");
        let mut address = listener.local_addr().expect("address");
        address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        (
            address,
            Listener::Tcp(TcpListener::from_std(listener).expect("register")),
        )
    }

    fn server() -> Server<SocketAddr> {
        Server::start(tcp, CONNECTION_TIME_MAX)
    }

    /// Sends `request` and returns all that comes back.
    fn send(server: &Server<SocketAddr>, request: &str) -> String {
        let mut stream = TcpStream::connect(server.address).expect("connect");
        stream.write_all(request.as_bytes()).expect("write");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("read");
        response
    }

    fn get(server: &Server<SocketAddr>, path: &str) -> String {
        send(
            server,
            &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        )
    }

    fn body(response: &str) -> &str {
        response.split_once("\r\n\r\n").expect("a head").1
    }

    #[test]
    fn metrics_are_served() {
        let response = get(&server(), "/metrics");
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
        assert!(
            response.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n")
        );
        assert!(body(&response).contains("\nlevity_connections_accepted_total 0\n"));
        assert!(response.contains(&format!("Content-Length: {}\r\n", body(&response).len())));
    }

    #[test]
    fn health() {
        assert_eq!(body(&get(&server(), "/health")), "ok\n");
    }

    #[test]
    fn the_live_page_may_load_itself_only() {
        let server = server();
        for path in ["/", "/status.html?x=1"] {
            let response = get(&server, path);
            assert!(response.contains("\r\nContent-Type: text/html; charset=utf-8\r\n"));
            assert!(
                response.contains(
                    "\r\nContent-Security-Policy: default-src 'none'; script-src 'nonce-"
                )
            );
            assert!(body(&response).starts_with("<!doctype html>"), "{response}");
        }
    }

    #[test]
    fn status_is_text_or_json() {
        let server = server();
        let response = get(&server, "/status");
        assert!(response.contains("\r\nContent-Type: text/plain; charset=utf-8\r\n"));
        assert!(
            body(&response).contains("\nserver.connections.max: 7\n"),
            "{response}"
        );
        let response = get(&server, "/status.json");
        assert!(response.contains("\r\nContent-Type: application/json\r\n"));
        assert!(response.contains("\r\nX-Content-Type-Options: nosniff\r\n"));
        let json: serde_json::Value = serde_json::from_str(body(&response)).expect("JSON");
        assert_eq!(json["connections"]["max"], 7);
        assert!(json["io"].is_null(), "there is no disk");
        assert!(json["compute"].is_null(), "there is no pool");
    }

    #[test]
    fn head_has_the_same_head_and_no_body() {
        let response = send(
            &server(),
            "HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        );
        assert!(response.contains("Content-Length: 3\r\n"), "{response}");
        assert_eq!(body(&response), "");
    }

    #[test]
    fn nothing_can_be_changed() {
        let response = send(
            &server(),
            "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
        );
        assert!(
            response.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"),
            "{response}"
        );
        assert!(response.contains("Allow: GET, HEAD\r\n"));
    }

    #[test]
    fn a_name_from_elsewhere_is_refused() {
        for address in ["127.0.0.1:0", "0.0.0.0:0"] {
            let server = Server::start(move || tcp_on(address), CONNECTION_TIME_MAX);
            let status = |host: &str| {
                let answer = send(
                    &server,
                    &format!("GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n"),
                );
                answer[9..12].to_owned()
            };
            for host in ["evil.example", "127.0.0.1.evil.example:9180"] {
                assert_eq!(status(host), "421", "{address} {host}");
            }
            for host in ["localhost:9180", "127.0.0.1:9180", "[::1]", "web1.example"] {
                assert_eq!(status(host), "200", "{address} {host}");
            }
            let old = send(&server, "GET /health HTTP/1.0\r\n\r\n");
            assert!(old.starts_with("HTTP/1.1 200 "), "{old}");
            let refused = send(
                &server,
                "GET /status HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            );
            assert!(body(&refused).contains("`hosts` of [admin]"), "{refused}");
        }
    }

    #[test]
    fn other_paths_are_not_found() {
        let server = server();
        for path in ["/metrics/", "/..", "/Metrics", "/status/", "/status.xml"] {
            assert!(get(&server, path).starts_with("HTTP/1.1 404 "), "{path}");
        }
    }

    #[test]
    fn a_head_that_is_wrong_or_too_long_is_refused() {
        let server = server();
        assert!(send(&server, "GET /\x01 HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400 "));
        let long = format!(
            "GET / HTTP/1.1\r\nHost: localhost\r\nX: {}",
            "x".repeat(HEAD_BYTES_MAX)
        );
        assert!(send(&server, &long).starts_with("HTTP/1.1 431 "));
    }

    #[test]
    fn a_head_may_come_in_pieces() {
        let server = server();
        let mut stream = TcpStream::connect(server.address).expect("connect");
        stream.set_nodelay(true).expect("nodelay");
        for piece in [
            "GET /he",
            "alth HTTP/1.1\r\nHo",
            "st: localhost\r\n\r",
            "\n",
        ] {
            stream.write_all(piece.as_bytes()).expect("write");
        }
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("read");
        assert_eq!(body(&response), "ok\n");
    }

    #[test]
    fn a_unix_socket_serves_too() {
        let folder = tempfile::tempdir().expect("tempdir");
        let path = folder.path().join("admin.sock");
        let bound = path.clone();
        let bind = move || ((), Listener::Unix(UnixListener::bind(bound).expect("bind")));
        let server = Server::start(bind, CONNECTION_TIME_MAX);
        let mut stream = UnixStream::connect(&path).expect("connect");
        stream
            .write_all(b"GET /health HTTP/1.0\r\n\r\n")
            .expect("write");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("read");
        assert_eq!(body(&response), "ok\n");
        let () = server.address;
    }

    #[test]
    fn a_silent_client_is_closed_in_time() {
        let server = Server::start(tcp, Duration::from_millis(30));
        assert_eq!(send(&server, "GET /"), "");
    }

    #[test]
    fn a_seventeenth_connection_waits_for_one_to_close() {
        let server = server();
        let mut idle: Vec<_> = (0..CONNECTIONS_MAX)
            .map(|_| TcpStream::connect(server.address).expect("connect"))
            .collect();
        let mut waiting = TcpStream::connect(server.address).expect("connect");
        waiting
            .write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .expect("write");
        waiting
            .set_read_timeout(Some(Duration::from_millis(50)))
            .expect("timeout");
        let early = waiting.read(&mut [0; 1]).expect_err("no answer yet");
        assert_eq!(early.kind(), io::ErrorKind::WouldBlock);

        idle.pop();
        waiting.set_read_timeout(None).expect("timeout");
        let mut response = String::new();
        waiting.read_to_string(&mut response).expect("read");
        assert_eq!(body(&response), "ok\n");
    }
}
