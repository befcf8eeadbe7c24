//! The pages: `/status`, `/metrics`, `/health` and a live page, read-only. Over TCP the Host of a request must be a name of this machine.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use levity_config::address::Address;
use levity_config::{Admin, OwnNames};
use levity_net::{Bound, Inherited, Listener, Peer};
use levity_wire::http1::Method;
use tokio::sync::{oneshot, watch};
use tokio::time::{MissedTickBehavior, interval};

use super::exchange::{self, Asked, Reply, TEXT};
use crate::process::reload::bind;
use crate::status::{self, Status};

/// For a request, and again for its response.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(5);

const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";

/// A listener that is served until it is dropped.
pub struct PagesListener {
    bound: Bound,
    names: watch::Sender<OwnNames>,
    _stop: oneshot::Sender<()>,
}

impl PagesListener {
    /// Listens as configured. For the control thread's runtime, which must have I/O and time enabled. Blocks, for seconds at most.
    ///
    /// # Errors
    /// When the address cannot be listened on; the error names it.
    pub fn start(configured: &Admin, status: &Arc<Status>) -> io::Result<Self> {
        let mut bound = bind(&configured.listen, 1, &Inherited::default())?;
        let listener = Listener::new(bound.sockets.remove(0))?;
        let (names, wanted) = watch::channel(configured.names.clone());
        let pages = Pages {
            status: status.clone(),
            names: wanted,
            time_max: CONNECTION_TIME_MAX,
        };
        let (stop, stopped) = oneshot::channel();
        let sampled = status.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = sample(&sampled) => {}
                () = exchange::serve(listener, Arc::new(pages), stopped) => {}
            }
        });
        Ok(Self {
            bound,
            names,
            _stop: stop,
        })
    }

    /// Its address, as bound.
    pub fn address(&self) -> &Address {
        &self.bound.actual
    }

    /// Over TCP the host of a request must be one of `names` from now on.
    pub fn set_names(&self, names: OwnNames) {
        self.names.send_replace(names);
    }
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

struct Pages {
    status: Arc<Status>,
    names: watch::Receiver<OwnNames>,
    time_max: Duration,
}

impl exchange::Pages for Pages {
    fn response_time_max(&self) -> Duration {
        self.time_max
    }

    fn head_time_max(&self) -> Duration {
        self.time_max
    }

    async fn respond(&self, asked: Asked<'_>, peer: &Peer) -> Reply {
        // No browser connects to a Unix socket.
        let is_tcp = peer.socket_ip().is_some();
        let is_own = |host| self.names.borrow().include(host);
        match asked.host.filter(|_| is_tcp).is_none_or(is_own) {
            true => page(asked.path, asked.method, &self.status).await,
            false => misdirected(),
        }
    }
}

async fn page(path: &[u8], method: Method, status: &Status) -> Reply {
    let is_read = matches!(method, Method::Get | Method::Head);
    match path {
        b"/" | b"/status.html" | b"/status" | b"/status.json" | b"/metrics" | b"/health"
            if !is_read =>
        {
            Reply::not_allowed("GET, HEAD")
        }
        b"/" | b"/status.html" => live_page(),
        b"/status" => Reply::ok(TEXT, status::text(&status.json().await)),
        b"/status.json" => Reply::ok(JSON, format!("{}\n", status.json().await)),
        b"/metrics" => Reply::ok(PROMETHEUS, metrics(status)),
        b"/health" => health(status),
        _ => Reply::not_found(),
    }
}

/// Whether all event loops answer.
pub(super) fn health(status: &Status) -> Reply {
    match status.silent_loop() {
        None => Reply::ok(TEXT, "ok\n".into()),
        Some(number) => Reply::refused(503, &format!("event loop {number} does not answer")),
    }
}

fn live_page() -> Reply {
    let (body, policy) = status::page();
    Reply {
        policy: policy.into(),
        ..Reply::ok(HTML, body)
    }
}

fn misdirected() -> Reply {
    let reason = "Misdirected Request: these pages answer to `localhost`, to IP addresses, and to the names in \
                  `hosts` of [admin]";
    Reply::refused(421, reason)
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
    use std::thread;

    use tokio::runtime::{Builder, Runtime};
    use tokio::sync::oneshot;

    use tokio::net::{TcpListener, UnixListener};

    use super::super::exchange::{CONNECTIONS_MAX, HEAD_BYTES_MAX};
    use super::*;
    use crate::status::heartbeat::{self, Heartbeat};
    use levity_telemetry::stats::{Sources, Stats, WorkerStats};

    /// A server on a control thread of its own; ends when dropped.
    struct Server<A> {
        address: A,
        stop: Option<oneshot::Sender<()>>,
        thread: Option<thread::JoinHandle<()>>,
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
                        Heartbeat::start(&[], heartbeat::INTERVAL),
                        7,
                    ));
                    let pages = Pages {
                        status,
                        names,
                        time_max,
                    };
                    exchange::serve(listener, Arc::new(pages), stopped).await;
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
            let ended = self.thread.take().map(thread::JoinHandle::join);
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
