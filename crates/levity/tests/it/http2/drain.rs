//! Reloads and the end of the server, while many streams are in progress.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{Builder, SendRequest};
use http::Request;
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::task::{JoinSet, LocalSet};
use tokio::time;

use super::LIMIT;
use crate::file_server::FileServer;
use crate::support::assert_same;

const CONNECTIONS: usize = 8;

/// On each connection: almost as many as it may have.
const STREAMS: usize = 125;

/// The bytes of a response: more than the window of a stream, so that each waits in the middle until the test reads.
const BODY_BYTES: usize = 100_000;

const RELOADS: usize = 50;

/// More than all streams of a connection have.
const WINDOW_BYTES: u32 = 1 << 30;

/// GOAWAY, which the library does not show.
const GOAWAY: u8 = 7;

/// A connection whose frames of the server are looked at.
struct Watched {
    stream: TcpStream,
    seen: Rc<RefCell<Seen>>,
}

/// The last streams and the codes of the frames by which a server ends a connection.
#[derive(Default)]
struct Seen {
    partial: Vec<u8>,
    ends: Vec<(u32, u32)>,
}

impl Seen {
    fn take(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        let mut rest = &self.partial[..];
        while let Some([a, b, c, kind, ..]) = rest.first_chunk::<9>() {
            let whole = 9 + u32::from_be_bytes([0, *a, *b, *c]) as usize;
            let Some((frame, more)) = rest.split_at_checked(whole) else {
                break;
            };
            if *kind == GOAWAY {
                let number = |at: usize| {
                    let bytes = frame[at..][..4].try_into().expect("a number");
                    u32::from_be_bytes(bytes)
                };
                self.ends.push((number(9), number(13)));
            }
            rest = more;
        }
        self.partial = rest.to_vec();
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.seen.borrow_mut().take(&buffer.filled()[before..]);
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A client with one connection.
struct Client {
    requests: SendRequest<Bytes>,
    seen: Rc<RefCell<Seen>>,
}

impl Client {
    async fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        let seen = Rc::default();
        let watched = Watched {
            stream,
            seen: Rc::clone(&seen),
        };
        let mut builder = Builder::new();
        builder.initial_connection_window_size(WINDOW_BYTES);
        let (requests, connection) = builder.handshake(watched).await.expect("a connection");
        tokio::task::spawn_local(async move {
            // An error shows in the responses.
            let _ = connection.await;
        });
        Self { requests, seen }
    }

    /// The body of a response that has begun.
    async fn begin(&self) -> RecvStream {
        let mut requests = self.requests.clone().ready().await.expect("a connection");
        let request = Request::get("http://localhost/body").body(());
        let request = request.expect("a request");
        let (response, _) = requests.send_request(request, true).expect("a request");
        let response = response.await.expect("a response");
        assert_eq!(response.status(), 200);
        response.into_body()
    }

    fn ends(&self) -> Vec<(u32, u32)> {
        self.seen.borrow().ends.clone()
    }
}

async fn read(mut body: RecvStream) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(part) = body.data().await {
        let part = part.expect("a whole body");
        all.extend_from_slice(&part);
        let flow = body.flow_control();
        flow.release_capacity(part.len()).expect("a stream");
    }
    all
}

/// Runs `test` with clients whose responses are all in progress; it is given the fixture, the clients and the bodies.
fn with_streams_in_progress(
    fixture: &FileServer,
    test: impl AsyncFnOnce(&[Client], Vec<RecvStream>),
) {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let running = async {
        let (mut clients, mut bodies) = (Vec::new(), Vec::new());
        for _ in 0..CONNECTIONS {
            let client = Client::new(fixture.server.address()).await;
            for _ in 0..STREAMS {
                bodies.push(client.begin().await);
            }
            clients.push(client);
        }
        test(&clients, bodies).await;
    };
    let limited = async { time::timeout(LIMIT, running).await.expect("in time") };
    LocalSet::new().block_on(&runtime, limited);
}

/// Reads all bodies at the same time, which have to be `expected`.
async fn assert_whole(bodies: Vec<RecvStream>, expected: &[u8]) {
    let mut reads = JoinSet::new();
    for body in bodies {
        reads.spawn_local(read(body));
    }
    while let Some(body) = reads.join_next().await {
        assert_same(&body.expect("no panic"), expected);
    }
}

#[test]
fn a_drain_loses_none_of_a_thousand_streams() {
    let mut fixture = FileServer::plain();
    let expected = fixture.tree.filled("body", BODY_BYTES);
    with_streams_in_progress(&fixture, async |clients, bodies| {
        fixture.server.signal(Signal::TERM);
        while clients.iter().any(|client| client.ends().len() < 2) {
            time::sleep(Duration::from_millis(1)).await;
        }
        for client in clients {
            // Without a last stream first, so that requests on their way are answered (RFC 9113, 6.8).
            let last = 2 * STREAMS as u32 - 1;
            assert_eq!(client.ends(), [(u32::MAX >> 1, 0), (last, 0)]);
        }
        assert_whole(bodies, &expected).await;
    });
    assert!(fixture.server.wait().success());
}

#[test]
fn a_reload_loses_none_of_a_thousand_streams() {
    let fixture = FileServer::plain();
    let expected = fixture.tree.filled("body", BODY_BYTES);
    with_streams_in_progress(&fixture, async |clients, bodies| {
        fixture.server.reload(&["\"60s\""], &["\"61s\""]);
        assert_whole(bodies, &expected).await;
        // Connections go on.
        for client in clients {
            assert_same(&read(client.begin().await).await, &expected);
            assert_eq!(client.ends(), []);
        }
    });
}

/// Has streams on a connection without an end, until `is_over`; returns how many there were.
async fn run_streams(
    address: SocketAddr,
    expected: Arc<Vec<u8>>,
    is_over: Arc<AtomicBool>,
) -> usize {
    const AT_A_TIME: usize = 25;
    let client = Rc::new(Client::new(address).await);
    let mut tasks = JoinSet::new();
    for _ in 0..AT_A_TIME {
        let (client, expected, is_over) = (client.clone(), expected.clone(), is_over.clone());
        tasks.spawn_local(async move {
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) {
                assert_same(&read(client.begin().await).await, &expected);
                count += 1;
            }
            count
        });
    }
    let mut count = 0;
    while let Some(ended) = tasks.join_next().await {
        count += ended.expect("no stream is lost");
    }
    assert_eq!(client.ends(), []);
    count
}

#[test]
fn fifty_reloads_lose_no_stream() {
    let fixture = FileServer::plain();
    let expected = Arc::new(fixture.tree.filled("body", BODY_BYTES));
    let is_over = Arc::new(AtomicBool::new(false));
    let (address, over) = (fixture.server.address(), is_over.clone());
    let clients = thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        LocalSet::new().block_on(&runtime.expect("a runtime"), async {
            let mut connections = JoinSet::new();
            for _ in 0..4 {
                connections.spawn_local(run_streams(address, expected.clone(), over.clone()));
            }
            let counts = connections.join_all().await;
            counts.iter().sum::<usize>()
        })
    });
    let mut times = ["\"60s\"", "\"61s\""];
    for _ in 0..RELOADS {
        fixture.server.reload(&times[..1], &times[1..]);
        times.swap(0, 1);
    }
    is_over.store(true, Ordering::Relaxed);
    let count = clients.join().expect("no stream is lost");
    assert!(count > RELOADS, "{count}");
}
