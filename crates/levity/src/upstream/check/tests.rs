use std::future::Future;
use std::future::poll_fn;
use std::sync::Mutex;
use std::task::Poll;

use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketType};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::Notify;

use super::*;
use crate::upstream::tests::settings;
use levity_config::upstream::{ProxyProtocol, ResponseLimits};

const WAIT_MAX: Duration = Duration::from_secs(20);

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build();
    let bounded = async { time::timeout(WAIT_MAX, test).await };
    let outcome = runtime.expect("runtime").block_on(bounded);
    outcome.expect("the test hangs")
}

fn check(path: Option<&str>) -> Check {
    Check {
        path: path.map(str::to_owned),
        host: None,
        interval: Duration::from_millis(2),
        timeout: WAIT_MAX,
        fall: 3,
        rise: 2,
    }
}

/// The response of an application to each request; `None` closes the connection unread.
type Reply = Option<&'static [u8]>;

/// An application that listens on a port of its own.
struct Application {
    address: String,
    response: Arc<Mutex<Reply>>,
    served: Arc<Notify>,
    request: Arc<Mutex<Vec<u8>>>,
    _serving: Task,
}

impl Application {
    async fn start(response: Reply) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address").to_string();
        let response = Arc::new(Mutex::new(response));
        let served = Arc::<Notify>::default();
        let request = Arc::<Mutex<Vec<u8>>>::default();
        let shared = (response.clone(), served.clone(), request.clone());
        let serving = tokio::spawn(async move {
            let (response, served, request) = shared;
            loop {
                let (tcp, _) = listener.accept().await.expect("accept");
                let mut transport = Transport::Tcp(tcp);
                let mut bytes = vec![0; 4096];
                let now = *response.lock().expect("lock");
                if let Some(now) = now {
                    let read = transport.read(&mut bytes).await;
                    bytes.truncate(read.unwrap_or(0));
                    *request.lock().expect("lock") = bytes;
                    let _ = transport.write_all(now).await;
                }
                drop(transport);
                served.notify_waiters();
            }
        });
        Self {
            address,
            response,
            served,
            request,
            _serving: Task(serving),
        }
    }

    fn set(&self, response: Reply) {
        *self.response.lock().expect("lock") = response;
    }

    /// Waits for the next check.
    async fn next_check(&self) {
        self.served.notified().await;
    }

    fn request(&self) -> String {
        String::from_utf8_lossy(&self.request.lock().expect("lock")).into_owned()
    }
}

fn upstream(to: &[&str], change: impl FnOnce(&mut levity_config::Upstream)) -> Arc<Upstream> {
    let mut settings = settings(to);
    change(&mut settings);
    Arc::new(Upstream::new(settings).expect("upstream"))
}

/// Checks `application` once.
async fn run_check(
    application: &Application,
    protocol: Protocol,
    check: &Check,
) -> Result<(), String> {
    let upstream = upstream(&[&application.address], |settings| {
        settings.protocol = protocol;
    });
    let backend = upstream.backends()[0].clone();
    check_once(&upstream, check, &backend).await
}

const PONG: &[u8] = b"AB\0\x01\x09";
const CGI: &[u8] = b"Content-Type: text/plain\r\n\r\npong";

/// `CGI` as a record of STDOUT, then END_REQUEST.
const RECORDS: &[u8] = b"\x01\x06\0\x01\0\x20\0\0Content-Type: text/plain\r\n\r\npong\
    \x01\x03\0\x01\0\x08\0\0\0\0\0\0\0\0\0\0";

#[test]
fn each_protocol_has_its_own_request() {
    run(async {
        let cases: [(Protocol, &'static [u8], &[&str]); 4] = [
            (
                Protocol::Http,
                b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
                &["GET /ping?a HTTP/1.1\r\n", "User-Agent: levity-check\r\n"],
            ),
            (
                Protocol::Fastcgi,
                RECORDS,
                &["SCRIPT_NAME/ping", "SCRIPT_FILENAME/ping", "QUERY_STRINGa"],
            ),
            (
                Protocol::Scgi,
                CGI,
                &["PATH_INFO\0/ping\0", "SCRIPT_NAME\0\0"],
            ),
            (Protocol::Ajp13, PONG, &["\0\x01\x0a"]),
        ];
        for (protocol, response, expected) in cases {
            let application = Application::start(Some(response)).await;
            let found = run_check(&application, protocol, &check(Some("/ping?a"))).await;
            assert_eq!(found, Ok(()), "{protocol:?}");
            for text in expected {
                let request = application.request();
                assert!(request.contains(text), "{protocol:?}: {request:?}");
            }
        }
    });
}

#[test]
fn the_host_of_a_check_can_be_set() {
    run(async {
        for (protocol, response, host, expected) in [
            (
                Protocol::Http,
                b"HTTP/1.1 204 No Content\r\n\r\n".as_slice(),
                "app.example:8080",
                ["\r\nHost: app.example:8080\r\n"].as_slice(),
            ),
            (
                Protocol::Fastcgi,
                RECORDS,
                "app.example:8080",
                &[
                    "HTTP_HOSTapp.example:8080",
                    "SERVER_NAMEapp.example",
                    "SERVER_PORT8080",
                ],
            ),
            (
                Protocol::Scgi,
                CGI,
                "[::1]",
                &[
                    "\0HTTP_HOST\0[::1]\0",
                    "\0SERVER_NAME\0[::1]\0",
                    "\0SERVER_PORT\x0080\0",
                ],
            ),
        ] {
            let application = Application::start(Some(response)).await;
            let check = Check {
                host: Some(host.to_owned()),
                ..check(Some("/"))
            };
            assert_eq!(run_check(&application, protocol, &check).await, Ok(()));
            let request = application.request();
            for text in expected {
                assert!(request.contains(text), "{text:?} in {request:?}");
            }
        }
        let application = Application::start(Some(b"HTTP/1.1 200 OK\r\n\r\n")).await;
        let found = run_check(&application, Protocol::Http, &check(Some("/"))).await;
        assert_eq!(found, Ok(()));
        let host = format!("\r\nHost: {}\r\n", application.address);
        assert!(application.request().contains(&host), "by default");
    });
}

#[test]
fn failures_are_reported_with_their_reason() {
    const CLOSED: &str = "it closed the connection before its response";
    let cases: [(Protocol, Reply, &str); 8] = [
        (
            Protocol::Http,
            Some(b"HTTP/1.1 503 Busy\r\n\r\n"),
            "it answered 503",
        ),
        (
            Protocol::Http,
            Some(b"HTTP/1.1 400 Bad\r\n\r\n"),
            "it answered 400",
        ),
        (Protocol::Http, Some(b"SSH-2.0\r\n"), "malformed response: "),
        (Protocol::Http, Some(b"HTTP/1.1 200 OK\r\n"), CLOSED),
        (Protocol::Http, Some(b""), CLOSED),
        (
            Protocol::Scgi,
            Some(b"Status: 500\r\n\r\n"),
            "it answered 500",
        ),
        (
            Protocol::Ajp13,
            Some(b"HTTP/1.1 400"),
            "malformed response: ",
        ),
        (Protocol::Ajp13, Some(b""), CLOSED),
    ];
    run(async {
        for (protocol, response, expected) in cases {
            let application = Application::start(response).await;
            let found = run_check(&application, protocol, &check(Some("/"))).await;
            let reason = found.expect_err("not well");
            let prefix = match protocol {
                Protocol::Http => format!("GET / of host {}: ", application.address),
                Protocol::Ajp13 => "CPing: ".to_owned(),
                _ => "GET / of host localhost: ".to_owned(),
            };
            let found = reason.strip_prefix(&prefix).expect("the request");
            assert!(found.starts_with(expected), "{protocol:?}: {reason}");
        }
        let application = Application::start(Some(b"")).await;
        let address = application.address.clone();
        drop(application);
        tokio::task::yield_now().await;
        let upstream = upstream(&[&address], |_| {});
        let backend = upstream.backends()[0].clone();
        let found = check_once(&upstream, &check(None), &backend).await;
        assert!(found.expect_err("gone").starts_with("cannot connect: "));
    });
}

#[test]
fn without_a_path_connecting_is_enough() {
    run(async {
        let application = Application::start(None).await;
        for protocol in [Protocol::Http, Protocol::Fastcgi, Protocol::Scgi] {
            assert_eq!(
                run_check(&application, protocol, &check(None)).await,
                Ok(())
            );
        }
    });
}

/// A program of another protocol would take a connection too.
#[cfg(feature = "http2")]
#[test]
fn without_a_path_a_backend_of_http2_sends_its_settings() {
    run(async {
        let application = Application::start(Some(b"HTTP/1.1 400 Bad Request\r\n\r\n")).await;
        let found = run_check(&application, Protocol::H2, &check(None)).await;
        let error = found.expect_err("it does not speak HTTP/2");
        assert!(error.starts_with("no response: "), "{error}");

        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address").to_string();
        let _serving = Task(tokio::spawn(async move {
            let (tcp, _) = listener.accept().await.expect("accept");
            let mut connection = h2::server::handshake(tcp).await.expect("a preface");
            assert!(connection.accept().await.is_none_or(|call| call.is_err()));
        }));
        let upstream = upstream(&[&address], |settings| settings.protocol = Protocol::H2);
        let backend = upstream.backends()[0].clone();
        let found = check_once(&upstream, &check(None), &backend).await;
        assert_eq!(found, Ok(()));
    });
}

#[test]
fn a_busy_backend_at_a_unix_socket_is_waited_for() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("app");
    let address = SocketAddrUnix::new(&path).expect("address");
    let socket = net::socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("socket");
    net::bind(&socket, &address).expect("bind");
    // A queue of one.
    net::listen(&socket, 0).expect("listen");
    let first = std::os::unix::net::UnixStream::connect(&path).expect("the first in the queue");
    run(async {
        let upstream = upstream(&[&format!("unix:{}", path.display())], |_| {});
        let backend = upstream.backends()[0].clone();
        let check = check(None);
        let mut checking = std::pin::pin!(check_once(&upstream, &check, &backend));
        let refused = poll_fn(|context| Poll::Ready(checking.as_mut().poll(context))).await;
        assert!(refused.is_pending(), "{refused:?}");
        drop(first);
        net::accept(&socket).expect("accept");
        assert_eq!(checking.await, Ok(()));
    });
}

const LIMITS: ResponseLimits = ResponseLimits {
    line_bytes: 16 << 10,
    head_bytes: 64 << 10,
    headers: 200,
};

fn status(protocol: Protocol, bytes: &[u8]) -> Result<Option<u16>, Reject> {
    super::status(protocol, &head::limits(LIMITS), bytes)
}

#[test]
fn a_header_may_be_as_long_as_for_the_gateway() {
    let field = format!("X-Long: {}\r\n", "x".repeat(12 * 1024));
    let head = format!("HTTP/1.1 204 No Content\r\n{}\r\n", field.repeat(4));
    assert_eq!(status(Protocol::Http, head.as_bytes()), Ok(Some(204)));
    let head = format!("Status: 204\r\n{}\r\n", field.repeat(4));
    assert_eq!(status(Protocol::Scgi, head.as_bytes()), Ok(Some(204)));
    let head = format!("HTTP/1.1 204 No Content\r\n{}\r\n", field.repeat(6));
    assert!(status(Protocol::Http, head.as_bytes()).is_err());
}

#[test]
fn an_endless_response_is_given_up() {
    const ENDLESS: &[u8] = &[b'x'; 4 * LIMITS.head_bytes];
    run(async {
        let application = Application::start(Some(ENDLESS)).await;
        for protocol in [Protocol::Http, Protocol::Scgi, Protocol::Fastcgi] {
            assert!(
                run_check(&application, protocol, &check(Some("/")))
                    .await
                    .is_err()
            );
        }
    });
}

#[test]
fn the_proxy_header_is_sent_first() {
    assert_eq!(proxy_header::for_own_request(None), b"");
    assert_eq!(
        proxy_header::for_own_request(Some(ProxyProtocol::V1)),
        b"PROXY UNKNOWN\r\n"
    );
    let second = proxy_header::for_own_request(Some(ProxyProtocol::V2));
    assert_eq!(&second[second.len() - 4..], b"\x20\0\0\0");
}

#[test]
fn a_header_may_be_split_at_any_byte() {
    let http = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 301 Moved\r\nLocation: /\r\n\r\n";
    for (protocol, response, expected, head_bytes) in [
        (Protocol::Http, http.as_slice(), 301, http.len()),
        (Protocol::Scgi, CGI, 200, CGI.len() - 4),
        (Protocol::Fastcgi, RECORDS, 200, 8 + CGI.len() - 4),
        (Protocol::Ajp13, PONG, 200, PONG.len()),
    ] {
        for end in 0..=response.len() {
            let found = status(protocol, &response[..end]).expect("sound");
            let due = (end >= head_bytes).then_some(expected);
            assert_eq!(found, due, "{protocol:?} {end}");
        }
    }
}

#[test]
fn an_end_without_a_response_is_502() {
    let refused = b"\x01\x03\0\x01\0\x08\0\0\0\0\0\0\x02\0\0\0";
    assert_eq!(status(Protocol::Fastcgi, refused), Ok(Some(502)));
}

#[test]
fn several_results_in_a_row_change_the_state() {
    let (check, mut streak) = (check(None), Streak::default());
    let mut count = |found, believed| streak.add(found, believed, &check);
    assert!(!count(false, true));
    assert!(!count(false, true));
    assert!(!count(true, true), "the streak is broken");
    assert!(!count(false, true));
    assert!(!count(false, true));
    assert!(count(false, true));
    assert!(!count(true, false));
    assert!(!count(false, false));
    assert!(!count(true, false));
    assert!(count(true, false));
}

#[test]
fn a_backend_goes_down_and_comes_back() {
    run(async {
        let (good, bad) = (b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 500 No\r\n\r\n");
        let one = Application::start(Some(good)).await;
        let other = Application::start(Some(good)).await;
        let upstream = upstream(&[&one.address, &other.address], |settings| {
            settings.check = Some(check(Some("/")));
        });
        let checks = start(std::slice::from_ref(&upstream));
        let backends = upstream.backends();
        other.next_check().await;
        assert!(backends[0].is_well() && backends[1].is_well());
        one.set(Some(bad));
        while backends[0].is_well() {
            one.next_check().await;
        }
        assert!(backends[1].is_well());
        one.set(Some(good));
        while !backends[0].is_well() {
            one.next_check().await;
        }
        drop(checks);
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&upstream), 1, "all tasks have ended");
    });
}

#[test]
fn a_check_without_a_response_fails() {
    run(async {
        // The kernel accepts the connection, and nothing responds.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address").to_string();
        let upstream = upstream(&[&address], |settings| {
            settings.check = Some(Check {
                timeout: Duration::from_millis(2),
                ..check(Some("/"))
            });
        });
        let _checks = start(std::slice::from_ref(&upstream));
        let backend: Arc<Backend> = upstream.backends()[0].clone();
        while backend.is_well() {
            time::sleep(Duration::from_millis(1)).await;
        }
        let shared = format!("GET / of host {address}: no response within 2ms");
        assert_eq!(backend.trouble().as_deref(), Some(&shared));
        let failure = backend.last_failure().expect("a failure");
        assert_eq!(failure.reason, shared);
    });
}
