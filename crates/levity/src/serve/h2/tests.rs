//! The crate `h2` as the client: the same files, backends and tunnels as over HTTP/1, under the client's flow control.

mod bodies;
#[cfg(feature = "mailbox")]
mod mailboxes;
mod websockets;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ::http::{HeaderMap, Method, Request, Response};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::{join, join_all};
use futures_util::stream::FuturesUnordered;
use h2::client::{Builder, ResponseFuture};
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream};
use levity_telemetry::access_log::End as Ended;
use levity_telemetry::stall::{self, PollStats, Watch, Watched};
use levity_wire::http2::{STREAMS_MAX, USUAL_WINDOW_BYTES};
use tokio::runtime;
use tokio::task::{self, yield_now};

use super::{InTurn, Turns};
use crate::rig::http2::{Client, receive, receive_all};
use crate::rig::{Backend, Rig};
use crate::shares::claim::Requester;
use crate::shares::{Held, Portion, Resource};

const LARGE_BYTES: usize = 600 * 1024;

/// Turns of the event loop without progress after which a transfer counts as stalled.
const STALL_TURNS: usize = 2000;

fn request(method: Method, path: &str) -> Request<()> {
    let uri = format!("http://localhost{path}");
    let request = Request::builder().method(method).uri(uri);
    request.body(()).expect("a request")
}

async fn get(client: &Client, path: &str) -> Response<RecvStream> {
    let (reply, _) = client.send(request(Method::GET, path), true).await;
    reply.await.expect("a response")
}

/// The body of `/large`, of so much urgency.
async fn large_body(client: &Client, priority: &'static str) -> RecvStream {
    let mut get = request(Method::GET, "/large");
    let priority = ::http::HeaderValue::from_static(priority);
    get.headers_mut().insert("priority", priority);
    let (reply, _) = client.send(get, true).await;
    reply.await.expect("a response").into_body()
}

/// Receives a body that is not reset.
async fn whole(body: &mut RecvStream) -> Vec<u8> {
    receive_all(body).await.expect("a whole body")
}

/// The error code of a body that is reset.
async fn reset_code(body: &mut RecvStream) -> Option<Reason> {
    loop {
        match receive(body).await.expect("a body that is cut") {
            Ok(_) => {}
            Err(error) => return error.reason(),
        }
    }
}

/// Waits until `condition` holds; other tasks or threads make it hold.
async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        yield_now().await;
    }
}

/// Waits until one connection without streams is left, and all requests are logged.
async fn until_idle(rig: &Rig) {
    until(|| rig.worker.core.timers.len() == 1).await;
    let stats = &rig.worker.core.stats;
    assert_eq!(stats.begun.get(), stats.answered.get());
}

/// Runs `test` with a client. Afterwards asserts that only the connection is left, and nothing once it has ended.
#[track_caller]
fn run(rig: &Rig, builder: &Builder, test: impl AsyncFnOnce(&Client)) {
    rig.run(async {
        let client = Client::with(rig, builder).await;
        test(&client).await;
        until_idle(rig).await;
        client.close().await;
    });
    rig.assert_idle();
}

fn large() -> String {
    let byte = |at: usize| b'a' + ((at ^ (at >> 8)) % 26) as u8;
    (0..LARGE_BYTES).map(|at| char::from(byte(at))).collect()
}

#[test]
fn a_file_from_the_disk_and_from_memory() {
    let rig = Rig::with_files("", &[("file", "content")]);
    run(&rig, &Builder::new(), async |client| {
        for _ in 0..3 {
            let response = get(client, "/file").await;
            assert_eq!(response.status(), 200);
            let headers = response.headers();
            assert_eq!(headers["content-length"], "7");
            assert_eq!(headers["server"], "levity");
            assert!(headers.contains_key("date") && headers.contains_key("etag"));
            assert!(!headers.contains_key("connection"));
            assert_eq!(whole(&mut response.into_body()).await, b"content");
        }
        let (reply, _) = client.send(request(Method::HEAD, "/file"), true).await;
        let response = reply.await.expect("a response");
        assert_eq!(response.headers()["content-length"], "7");
        assert!(whole(&mut response.into_body()).await.is_empty());
        assert_eq!(get(client, "/absent").await.status(), 404);
    });
}

#[test]
fn a_large_file_obeys_flow_control() {
    let rig = Rig::with_files("", &[("large", &large())]);
    run(
        &rig,
        Builder::new().initial_window_size(5000),
        async |client| {
            let response = get(client, "/large").await;
            assert_eq!(
                response.headers()["content-length"],
                LARGE_BYTES.to_string()
            );
            assert_eq!(whole(&mut response.into_body()).await, large().as_bytes());
        },
    );
}

/// Two files, and a client with a connection window that is larger than that of a stream.
fn with_two_files(test: impl AsyncFnOnce(&Rig, &Client)) {
    let rig = Rig::with_files("", &[("large", &large()), ("file", "content")]);
    let mut builder = Builder::new();
    builder.initial_connection_window_size(1 << 20);
    run(&rig, &builder, async |client| test(&rig, client).await);
}

#[test]
fn a_stalled_stream_delays_no_other() {
    with_two_files(async |rig, client| {
        let mut stalled = get(client, "/large").await.into_body();
        for _ in 0..3 {
            let mut other = get(client, "/file").await.into_body();
            assert_eq!(whole(&mut other).await, b"content");
        }
        assert_eq!(rig.worker.core.timers.len(), 2);
        assert_eq!(whole(&mut stalled).await, large().as_bytes());
    });
}

/// The client may read nothing of the one before it has the other.
#[test]
fn a_header_does_not_wait_for_the_window_that_another_body_fills() {
    let rig = Rig::with_files("", &[("large", &large())]);
    run(&rig, &Builder::new(), async |client| {
        let ranges = ["bytes=0-", "bytes=0-99999, 200000-", "bytes=1-"];
        let mut bodies = Vec::new();
        for range in ranges {
            let mut get = request(Method::GET, "/large");
            let range = ::http::HeaderValue::from_static(range);
            get.headers_mut().insert("range", range);
            let (reply, _) = client.send(get, true).await;
            let response = reply.await.expect("a response");
            assert_eq!(response.status(), 206);
            bodies.push(response.into_body());
        }
        let lengths = join_all(bodies.iter_mut().map(async |body| whole(body).await.len()));
        let lengths = lengths.await;
        assert_eq!((lengths[0], lengths[2]), (LARGE_BYTES, LARGE_BYTES - 1));
        assert!(lengths[1] > 2 * LARGE_BYTES / 3);
    });
}

#[test]
fn the_urgent_stream_gets_a_window_that_all_wait_for() {
    let rig = Rig::with_files("", &[("large", &large())]);
    let mut builder = Builder::new();
    builder.initial_window_size(1 << 20);
    run(&rig, &builder, async |client| {
        let mut urgent = large_body(client, "u=1").await;
        let mut other = large_body(client, "u=5").await;
        let mut bytes = [0; 2];
        while bytes[0] < LARGE_BYTES {
            let (at, piece) = tokio::select! {
                Some(piece) = receive(&mut urgent) => (0, piece),
                Some(piece) = receive(&mut other) => (1, piece),
            };
            bytes[at] += piece.expect("a whole body").len();
        }
        // What was on its way before the urgent one began.
        assert!(bytes[1] <= LARGE_BYTES / 8, "{bytes:?}");
        let rest = whole(&mut other).await;
        assert_eq!(bytes[1] + rest.len(), LARGE_BYTES);
    });
}

/// Windows are large, and the client reads slowly.
#[test]
fn the_urgent_stream_gets_the_output_that_all_wait_for() {
    let rig = Rig::with_files("", &[("large", &large())]);
    let mut builder = Builder::new();
    builder.initial_window_size(1 << 20);
    builder.initial_connection_window_size(1 << 22);
    run(&rig, &builder, async |client| {
        let mut other = large_body(client, "u=5").await;
        let mut urgent = large_body(client, "u=1").await;
        let before = other.flow_control().used_capacity();
        whole(&mut urgent).await;
        let meanwhile = other.flow_control().used_capacity() - before;
        // What was on its way before.
        assert!(meanwhile <= LARGE_BYTES / 6, "{meanwhile} bytes");
        assert_eq!(whole(&mut other).await.len(), LARGE_BYTES);
    });
}

/// What is written meanwhile is no body.
#[test]
fn a_client_that_opens_no_window_gets_no_more_time() {
    let rig = Rig::with_files("", &[("large", &large())]);
    let mut builder = Builder::new();
    builder.initial_window_size(1 << 20);
    run(&rig, &builder, async |client| {
        let mut bodies = [
            large_body(client, "u=3").await,
            large_body(client, "u=3").await,
        ];
        let mut turns = 0;
        while rig.worker.core.timers.len() > 1 {
            let (reply, _) = client.send(request(Method::HEAD, "/large"), true).await;
            assert_eq!(reply.await.expect("a response").status(), 200);
            turns += 1;
            if turns % STALL_TURNS == 0 {
                rig.pass(Duration::from_secs(61));
            }
        }
        for body in &mut bodies {
            assert_eq!(reset_code(body).await, Some(Reason::INTERNAL_ERROR));
        }
    });
}

#[test]
fn a_stalled_stream_is_reset_and_its_connection_continues() {
    with_two_files(async |rig, client| {
        let mut stalled = get(client, "/large").await.into_body();
        let mut turns = 0;
        while rig.worker.core.timers.len() > 1 {
            // A chunk in memory is held for a second before the wait for the client begins.
            yield_now().await;
            turns += 1;
            if turns % STALL_TURNS == 0 {
                rig.pass(Duration::from_secs(61));
            }
        }
        assert_eq!(reset_code(&mut stalled).await, Some(Reason::INTERNAL_ERROR));
        let mut other = get(client, "/file").await.into_body();
        assert_eq!(whole(&mut other).await, b"content");
    });
}

/// A future that takes longer than a poll should, and is ready again at once, three times.
struct Long {
    number: usize,
    polled: Rc<RefCell<Vec<usize>>>,
}

impl Future for Long {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        while !stall::should_yield(Instant::now()) {}
        let mut polled = self.polled.borrow_mut();
        polled.push(self.number);
        context.waker().wake_by_ref();
        match polled.iter().filter(|&&one| one == self.number).count() {
            3 => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }
}

/// However they are woken: the runtime wakes futures that yield in an order of its own.
#[test]
fn futures_that_take_long_are_polled_one_in_a_poll_and_all_in_turn() {
    const COUNT: usize = 6;
    Watch::install(Arc::new(PollStats::new(0)));
    let (polled, turns) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Turns::default()));
    let long = |number| {
        let polled = polled.clone();
        InTurn::new(Long { number, polled }, &turns)
    };
    let (first, others): (Vec<_>, Vec<_>) = (0..COUNT)
        .map(long)
        .partition(|long| long.future.number < 2);
    let mut sets: [FuturesUnordered<_>; 2] = [first, others].map(FuturesUnordered::from_iter);
    let mut most = 0;
    let all_polled = poll_fn(|context| {
        turns.begin_poll();
        let before = polled.borrow().len();
        for set in &mut sets {
            while let Poll::Ready(Some(())) = set.poll_next_unpin(context) {}
        }
        most = most.max(polled.borrow().len() - before);
        match sets.iter().all(FuturesUnordered::is_empty) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    });
    let runtime = runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().expect("a runtime");
    runtime.block_on(Watched::new(1, all_polled));
    assert_eq!((most, turns.left.get()), (1, 0));
    let polled = polled.borrow();
    assert_eq!(polled.len(), 3 * COUNT);
    for number in 0..COUNT {
        let at: Vec<_> = (0..polled.len())
            .filter(|&at| polled[at] == number)
            .collect();
        let longest = at.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(at[0] < COUNT && longest < Some(2 * COUNT), "{polled:?}");
    }
}

#[test]
fn a_proxied_response_is_streamed_with_its_trailers() {
    let (rig, app) = Rig::proxy("");
    run(&rig, &Builder::new(), async |client| {
        let mut request = request(Method::GET, "/app");
        request
            .headers_mut()
            .insert("te", "trailers".parse().expect("a value"));
        for crumb in ["a=1", "b=2"] {
            let crumb = crumb.parse().expect("a value");
            request.headers_mut().append("cookie", crumb);
        }
        let (reply, _) = client.send(request, true).await;
        let (mut backend, header) = app.asked().await;
        let header = header.to_ascii_lowercase();
        assert!(header.starts_with("get /app http/1.1\r\n"), "{header}");
        assert!(header.contains("\r\nhost: localhost\r\n"), "{header}");
        assert!(header.contains("\r\ncookie: a=1; b=2\r\n"), "{header}");
        let start = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n5\r\nfirst\r\n";
        backend.send(start).await;
        let response = reply.await.expect("a response");
        assert_eq!(response.headers()["x-a"], "1");
        assert!(!response.headers().contains_key("transfer-encoding"));
        let mut body = response.into_body();
        let first = receive(&mut body).await.expect("a piece").expect("a piece");
        assert_eq!(first, "first");
        backend.send("6\r\nsecond\r\n0\r\nX-Sum: 11\r\n\r\n").await;
        assert_eq!(whole(&mut body).await, b"second");
        let trailers = body.trailers().await.expect("an end").expect("trailers");
        assert_eq!(trailers["x-sum"], "11");
    });
}

/// An application may announce that nothing follows and go on working.
#[test]
fn a_response_without_content_ends_after_its_header() {
    let (rig, app) = Rig::proxy("protocol = \"scgi\"\n");
    run(&rig, &Builder::new(), async |client| {
        let (reply, _) = client.send(request(Method::GET, "/app"), true).await;
        let mut backend = app.accept(1 << 16).await;
        backend
            .send("Status: 200 OK\r\nContent-Length: 0\r\n\r\n")
            .await;
        let mut body = reply.await.expect("a response").into_body();
        backend.arrived().await;
        drop(backend);
        assert_eq!(whole(&mut body).await, b"");
    });
}

#[test]
fn a_truncated_proxied_response_resets_the_stream() {
    let (rig, app) = Rig::proxy("");
    run(&rig, &Builder::new(), async |client| {
        let (reply, _) = client.send(request(Method::GET, "/app"), true).await;
        let (mut backend, _) = app.asked().await;
        backend
            .send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nstart")
            .await;
        let mut body = reply.await.expect("a response").into_body();
        drop(backend);
        assert_eq!(reset_code(&mut body).await, Some(Reason::INTERNAL_ERROR));
    });
}

#[test]
fn a_stream_reset_by_the_client_releases_everything() {
    let (rig, app) = Rig::proxy("");
    std::fs::write(rig.root.path().join("large"), large()).expect("a file");
    run(&rig, &Builder::new(), async |client| {
        let (reply, mut waiting) = client.send(request(Method::GET, "/app"), true).await;
        let (mut backend, _) = app.asked().await;
        waiting.send_reset(Reason::CANCEL);
        until_idle(&rig).await;
        assert!(reply.await.is_err());
        backend.all().await;
        let (reply, mut sending) = client.send(request(Method::GET, "/large"), true).await;
        let mut body = reply.await.expect("a response").into_body();
        receive(&mut body).await.expect("a piece").expect("a piece");
        sending.send_reset(Reason::CANCEL);
    });
}

/// The exchange of a stream that was reset may still be there when the request that replaces it arrives.
#[test]
fn a_client_at_its_limit_may_replace_a_stream() {
    let (rig, app) = Rig::proxy("");
    run(&rig, &Builder::new(), async |client| {
        let mut waiting = Vec::new();
        for _ in 0..STREAMS_MAX {
            waiting.push(client.send(request(Method::GET, "/app"), true).await);
        }
        for (_, sending) in &mut waiting[..20] {
            sending.send_reset(Reason::CANCEL);
        }
        for _ in 0..20 {
            waiting.push(client.send(request(Method::GET, "/nothing"), true).await);
        }
        for (reply, _) in waiting.drain(STREAMS_MAX..) {
            assert_eq!(reply.await.expect("a response").status(), 404);
        }
        drop((waiting, app));
    });
}

#[test]
fn a_client_at_its_limit_may_end_refused_bodies_and_begin_other_streams() {
    let rig = Rig::with_files("", &[("a", "a")]);
    run(&rig, &Builder::new(), async |client| {
        let mut bodies = bodies::refused_uploads(client).await;
        for body in &mut bodies {
            body.send_data("end".into(), true).expect("it is open");
        }
        let mut replies = Vec::new();
        for _ in 0..STREAMS_MAX {
            replies.push(client.send(request(Method::GET, "/a"), true).await.0);
        }
        for reply in replies {
            assert_eq!(reply.await.expect("a response").status(), 200);
        }
    });
}

#[test]
fn a_disconnected_client_releases_everything() {
    let rig = Rig::with_files("", &[("large", &large())]);
    rig.run(async {
        let client = Client::new(&rig).await;
        let _body = get(&client, "/large").await.into_body();
        client.close().await;
        until(|| rig.worker.core.timers.is_empty()).await;
        let stats = &rig.worker.core.stats;
        assert_eq!((stats.begun.get(), stats.answered.get()), (1, 1));
    });
    rig.assert_idle();
}

#[test]
fn a_draining_worker_completes_its_streams() {
    let rig = Rig::with_files("", &[("large", &large())]);
    rig.run(async {
        let client = Client::new(&rig).await;
        let idle = Client::new(&rig).await;
        let mut body = get(&client, "/large").await.into_body();
        assert_eq!(get(&idle, "/absent").await.status(), 404);
        let worker = rig.worker.clone();
        let drained = task::spawn_local(async move {
            worker.core.begin_drain().await;
            worker.core.drained().await;
        });
        idle.served().await;
        assert_eq!(whole(&mut body).await, large().as_bytes());
        rig.pass(Duration::ZERO);
        client.served().await;
        drained.await.expect("drained");
    });
    rig.assert_idle();
}
