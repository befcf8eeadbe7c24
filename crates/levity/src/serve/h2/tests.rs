//! The crate `h2` as the client: the same files, backends and tunnels as over HTTP/1, under the client's flow control.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use ::http::{HeaderMap, Method, Request, Response};
use bytes::Bytes;
use futures_util::future::{join, join_all};
use h2::client::{Builder, ResponseFuture};
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream};
use levity_mailbox::{Command, Name};
use levity_telemetry::access_log::End as Ended;
use levity_wire::http2::{PREFACE, STREAMS_MAX, USUAL_WINDOW_BYTES};
use tokio::sync::oneshot;
use tokio::task::{self, yield_now};

use crate::rig::http2::{Client, receive, receive_all};
use crate::rig::{Backend, Rig, settle};
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
    until(|| rig.worker.timers.len() == 1).await;
    let stats = &rig.worker.stats;
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
        assert_eq!(rig.worker.timers.len(), 2);
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
        while rig.worker.timers.len() > 1 {
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
        while rig.worker.timers.len() > 1 {
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

/// Sends `total` bytes as flow control permits, and counts them in `sent`.
async fn upload(mut body: SendStream<Bytes>, total: usize, sent: Rc<Cell<usize>>) {
    while sent.get() < total {
        body.reserve_capacity(total - sent.get());
        let room = std::future::poll_fn(|context| body.poll_capacity(context)).await;
        let room = room.expect("a stream").expect("a stream");
        let frame = vec![b'z'; room.min(total - sent.get())];
        sent.set(sent.get() + frame.len());
        body.send_data(frame.into(), false).expect("sent");
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", total.into());
    body.send_trailers(trailers).expect("sent");
}

#[test]
fn an_upload_waits_for_the_backend() {
    const UPLOAD_BYTES: usize = 8 << 20;
    let (rig, app) = Rig::proxy("[limits]\nbody_bytes = \"16MiB\"\n");
    run(&rig, &Builder::new(), async |client| {
        let (reply, body) = client.send(request(Method::POST, "/app"), false).await;
        let sent = Rc::new(Cell::new(0));
        let uploading = task::spawn_local(upload(body, UPLOAD_BYTES, sent.clone()));
        let (mut backend, header) = app.asked().await;
        assert!(
            header.contains("\r\nTransfer-Encoding: chunked\r\n"),
            "{header}"
        );
        let (mut still, mut before) = (0, 0);
        while still < STALL_TURNS {
            yield_now().await;
            still = if sent.get() == before { still + 1 } else { 0 };
            before = sent.get();
        }
        assert!((1..1 << 20).contains(&before), "{before}");
        let mut all = String::new();
        while !all.ends_with("\r\n\r\n") {
            all += &backend.read(1 << 16).await.expect("a body");
        }
        assert_eq!(all.matches('z').count(), UPLOAD_BYTES);
        let end = all[all.len() - 40..].to_ascii_lowercase();
        assert!(end.contains("x-sum: 8388608\r\n"), "{end}");
        backend
            .send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthere")
            .await;
        let response = reply.await.expect("a response");
        assert_eq!(response.status(), 200);
        assert_eq!(whole(&mut response.into_body()).await, b"there");
        uploading.await.expect("uploaded");
    });
}

/// The way to the client is long: what it may send in advance is how fast it can be.
#[test]
fn an_upload_from_far_away_takes_few_round_trips() {
    const UPLOAD_BYTES: usize = 20 << 20;
    let (rig, app) = Rig::proxy("[limits]\nbody_bytes = \"32MiB\"\n");
    rig.run(async {
        let (client, trips) = Client::far(&rig).await;
        let (reply, mut body) = client.send(request(Method::POST, "/app"), false).await;
        let reading = async {
            let (mut backend, _) = app.asked().await;
            let mut read = 0;
            while read < UPLOAD_BYTES {
                read += backend
                    .read(1 << 16)
                    .await
                    .expect("a body")
                    .matches('z')
                    .count();
            }
            backend
        };
        let (mut backend, ()) = join(reading, send_part(&mut body, UPLOAD_BYTES)).await;
        assert!((5..20).contains(&trips.get()), "{} trips", trips.get());
        body.send_data(Bytes::new(), true).expect("sent");
        backend.until("0\r\n\r\n").await;
        backend.send("HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(reply.await.expect("a response").status(), 204);
        until_idle(&rig).await;
        client.close().await;
    });
    rig.assert_idle();
}

/// The memory of all request bodies in [`with_large_window`].
const BODIES_BYTES: usize = 1 << 20;

/// All that another client may hold of the memory of bodies, or half of it.
fn hold_bodies(rig: &Rig, portion: Portion) -> Held {
    let client = crate::http::client::Client {
        ip: None,
        port: None,
        peer: None,
        scheme: "http",
        by_trusted: false,
        host_in: crate::http::client::HostIn::Request,
    };
    let requester = Requester {
        client: &client,
        connection: u64::MAX,
        stream: u64::MAX,
    };
    let claims = requester.claims(&rig.worker.stakes);
    let mut held = claims.nothing_lasting(Resource::Bodies, portion);
    let free = held.max() - rig.worker.stakes.shares().used(Resource::Bodies);
    held.grow(free);
    held
}

/// Sends `bytes` of `body` as flow control permits.
async fn send_part(body: &mut SendStream<Bytes>, mut bytes: usize) {
    while bytes > 0 {
        body.reserve_capacity(bytes);
        let room = poll_fn(|context| body.poll_capacity(context)).await;
        let room = room.expect("a stream").expect("a stream").min(bytes);
        body.send_data(vec![b'z'; room].into(), false)
            .expect("sent");
        bytes -= room;
    }
}

/// Runs `test` with a client that has kept a larger window than the usual one, from an upload that has ended.
#[track_caller]
fn with_large_window(test: impl AsyncFnOnce(&Rig, &Client)) {
    let (rig, app) = Rig::proxy(&format!("[limits]\nbodies_memory = {BODIES_BYTES}\n"));
    std::fs::write(rig.root.path().join("large"), large()).expect("a file");
    run(&rig, &Builder::new(), async |client| {
        const BYTES: usize = 600_000;
        let (reply, mut body) = client.send(request(Method::POST, "/app"), false).await;
        let reading = async {
            let (mut backend, _) = app.asked().await;
            let mut read = 0;
            while read < BYTES {
                let piece = backend.read(1 << 16).await.expect("a body");
                read += piece.matches('z').count();
            }
            backend
        };
        let (mut backend, ()) = join(reading, send_part(&mut body, BYTES)).await;
        // What is read while there is credit is granted again.
        body.send_data(Bytes::new(), true).expect("sent");
        backend.until("0\r\n\r\n").await;
        backend.send("HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(reply.await.expect("a response").status(), 204);
        until(|| rig.worker.stakes.shares().used(Resource::Bodies) == 0).await;
        test(&rig, client).await;
    });
}

/// More than the usual window, and less than that of a stream.
const UNREAD_BYTES: usize = 160_000;

/// An upload of which nobody reads a byte, because its backend does not answer.
async fn unread_upload(client: &Client) -> (ResponseFuture, SendStream<Bytes>) {
    let (reply, mut body) = client.send(request(Method::POST, "/app"), false).await;
    send_part(&mut body, UNREAD_BYTES).await;
    (reply, body)
}

#[test]
fn unread_bodies_hold_up_no_other_frames() {
    with_large_window(async |rig, client| {
        // Without this the upload would have credit.
        let others = hold_bodies(rig, Portion::Half);
        let used = || rig.worker.stakes.shares().used(Resource::Bodies);
        let mut stalled = get(client, "/large").await.into_body();
        let (_reply, mut body) = unread_upload(client).await;
        let excess = UNREAD_BYTES - USUAL_WINDOW_BYTES as usize;
        until(|| used() == others.amount() + excess).await;
        client.ping().await;
        assert_eq!(whole(&mut stalled).await.len(), LARGE_BYTES);
        body.send_reset(Reason::CANCEL);
        until(|| used() == others.amount()).await;
    });
}

#[test]
fn a_body_without_memory_beyond_the_window_is_reset() {
    with_large_window(async |rig, client| {
        let _others = hold_bodies(rig, Portion::Whole);
        let (reply, _body) = unread_upload(client).await;
        let error = reply.await.expect_err("there is no memory");
        assert_eq!(error.reason(), Some(Reason::ENHANCE_YOUR_CALM));
        client.ping().await;
    });
}

/// Lets all tasks go on for as long as something would take.
async fn turns() {
    for _ in 0..STALL_TURNS {
        yield_now().await;
    }
}

/// An upstream `app` for `/app`, and one for `/other` with these keys, whose backend is returned.
fn with_other_upstream(keys: &str) -> (Rig, Backend) {
    let route = |name: &str| format!("[[site.route]]\npath = \"/{name}\"\nproxy = \"{name}\"\n");
    let upstream =
        |name: &str| format!("[[upstream]]\nname = \"{name}\"\nto = [\"unix:/{name}\"]\n");
    let config = ["app", "other"].map(route).concat() + &["app", "other"].map(upstream).concat();
    (Rig::new(&(config + keys)), Backend::new("unix:/other"))
}

/// Uploads that nobody reads, because their backend does not answer, and which have the usual window in all. Each ends with its last
/// byte.
async fn fill_window(client: &Client) -> Vec<SendStream<Bytes>> {
    let mut bodies = Vec::new();
    let mut left = USUAL_WINDOW_BYTES as usize;
    while left > 0 {
        let bytes = left.min(16 * 1024);
        let (_, mut body) = client.send(request(Method::POST, "/app"), false).await;
        body.send_data(vec![b'z'; bytes].into(), true)
            .expect("sent");
        bodies.push(body);
        left -= bytes;
    }
    turns().await;
    bodies
}

#[test]
fn bodies_that_have_arrived_and_that_nobody_reads_hold_up_no_others() {
    let (rig, other) = with_other_upstream("");
    let _silent = Backend::new("unix:/app");
    run(&rig, &Builder::new(), async |client| {
        let used = || rig.worker.stakes.shares().used(Resource::Bodies);
        let mut unread = fill_window(client).await;
        assert!((1..USUAL_WINDOW_BYTES as usize).contains(&used()));
        let (reply, mut body) = client.send(request(Method::POST, "/other"), false).await;
        let (mut backend, _) = other.asked().await;
        tokio::select! {
            () = send_part(&mut body, 10) => {}
            () = turns() => panic!("the client may not send"),
        }
        body.send_data(Bytes::new(), true).expect("sent");
        backend.until("0\r\n\r\n").await;
        backend.send("HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(reply.await.expect("a response").status(), 204);
        for body in &mut unread {
            body.send_reset(Reason::CANCEL);
        }
        until(|| used() == 0).await;
    });
}

/// There is no memory for a larger window.
#[test]
fn a_client_that_may_not_send_is_not_slow() {
    for (is_buffered, is_sent) in [(false, true), (false, false), (true, true), (true, false)] {
        let keys = format!("buffer_requests = {is_buffered}\n[limits]\nbody_timeout = \"1s\"\n");
        let (rig, other) = with_other_upstream(&keys);
        let _silent = Backend::new("unix:/app");
        run(&rig, &Builder::new(), async |client| {
            let others = hold_bodies(&rig, Portion::Half);
            let mut unread = fill_window(client).await;
            let (reply, mut body) = client.send(request(Method::POST, "/other"), false).await;
            let mut backend = None;
            if !is_buffered {
                backend = Some(other.asked().await.0);
            }
            turns().await;
            rig.pass(Duration::from_secs(2));
            turns().await;
            unread[0].send_reset(Reason::CANCEL);
            turns().await;
            if is_sent {
                body.send_data("z".into(), true).expect("sent");
                let backend = match &mut backend {
                    Some(backend) => backend,
                    none => none.insert(other.asked().await.0),
                };
                backend.send("HTTP/1.1 204 No Content\r\n\r\n").await;
            } else {
                rig.pass(Duration::from_secs(2));
            }
            let status = if is_sent { 204 } else { 408 };
            assert_eq!(reply.await.expect("a response").status(), status);
            drop((unread, body, backend, others));
        });
    }
}

/// It would be one of many that wait for each other. Neither the client nor the backend is slow.
#[test]
fn an_upload_that_waits_for_memory_holds_none_and_has_no_time_out() {
    const START_BYTES: usize = 40_000;
    let (rig, app) = Rig::proxy(&format!("[limits]\nbodies_memory = {BODIES_BYTES}\n"));
    run(&rig, &Builder::new(), async |client| {
        let used = || rig.worker.stakes.shares().used(Resource::Bodies);
        let (reply, mut body) = client.send(request(Method::POST, "/app"), false).await;
        let (mut backend, _) = app.asked().await;
        send_part(&mut body, START_BYTES).await;
        turns().await;
        assert!(used() > START_BYTES, "its start, and what may come");
        let mut others = Vec::new();
        while others.len() < 4 {
            others.push(hold_bodies(&rig, Portion::Whole));
            send_part(&mut body, 1).await;
            turns().await;
        }
        let of_others: usize = others.iter().map(Held::amount).sum();
        assert_eq!(used(), of_others);
        rig.pass(Duration::from_secs(40));
        turns().await;
        let sent = START_BYTES + others.len();
        drop(others);
        body.send_data(Bytes::new(), true).expect("sent");
        let all = backend.until("0\r\n\r\n").await;
        assert_eq!(all.matches('z').count(), sent);
        backend.send("HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(reply.await.expect("a response").status(), 204);
    });
}

#[test]
fn trailers_behind_a_body_of_known_length_are_passed_on_if_they_are_announced() {
    let (rig, app) = Rig::proxy("");
    run(&rig, &Builder::new(), async |client| {
        let mut announced = request(Method::POST, "/app");
        let headers = announced.headers_mut();
        headers.insert("content-length", 4.into());
        headers.insert("trailer", "x-sum".parse().expect("a value"));
        let (reply, mut body) = client.send(announced, false).await;
        body.send_data("body".into(), false).expect("sent");
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", 9.into());
        body.send_trailers(trailers).expect("sent");
        let (mut backend, mut all) = app.asked().await;
        while !all.ends_with("\r\n0\r\nx-sum: 9\r\n\r\n") {
            all += &backend.read(1 << 10).await.expect("a body");
        }
        assert!(
            !all.to_ascii_lowercase().contains("content-length"),
            "{all}"
        );
        backend
            .send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .await;
        assert_eq!(reply.await.expect("a response").status(), 200);
    });
}

#[test]
fn the_end_of_a_body_comes_after_its_last_byte() {
    let (rig, app) = Rig::proxy("");
    run(&rig, &Builder::new(), async |client| {
        let (reply, mut body) = client.send(request(Method::POST, "/app"), false).await;
        body.send_data(Bytes::from_static(b"all"), false)
            .expect("sent");
        let (mut backend, _) = app.asked().await;
        backend.until("3\r\nall\r\n").await;
        body.send_data(Bytes::new(), true).expect("sent");
        backend.until("0\r\n\r\n").await;
        backend
            .send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .await;
        assert_eq!(reply.await.expect("a response").status(), 200);
    });
}

#[test]
fn a_body_that_is_too_large_is_refused() {
    let (rig, _app) = Rig::proxy("[limits]\nbody_bytes = \"1KiB\"\n");
    run(&rig, &Builder::new(), async |client| {
        let mut announced = request(Method::POST, "/app");
        announced
            .headers_mut()
            .insert("content-length", 4096.into());
        let (reply, _body) = client.send(announced, false).await;
        assert_eq!(reply.await.expect("a response").status(), 413);
        assert_eq!(get(client, "/%2e%2e/").await.status(), 400);
    });
}

/// Begins an upload, which is refused before its end; returns what is left of it.
async fn refused_upload(client: &Client) -> SendStream<Bytes> {
    let (reply, body) = client.send(request(Method::POST, "/a"), false).await;
    let mut refusal = reply.await.expect("a response");
    assert_eq!(refusal.status(), 405);
    whole(refusal.body_mut()).await;
    body
}

/// As many as a client may have open.
async fn refused_uploads(client: &Client) -> Vec<SendStream<Bytes>> {
    let mut bodies = Vec::new();
    for _ in 0..STREAMS_MAX {
        bodies.push(refused_upload(client).await);
    }
    bodies
}

#[test]
fn a_refusal_does_not_wait_for_the_request() {
    let rig = Rig::with_files("[limits]\nbody_bytes = \"1KiB\"\n", &[("a", "a")]);
    run(&rig, &Builder::new(), async |client| {
        let mut ending = refused_upload(client).await;
        let mut silent = refused_upload(client).await;
        let all = Bytes::from(vec![0; 1024 * 1024]);
        ending.send_data(all, true).expect("it is open");
        until(|| rig.worker.timers.len() == 2).await;
        rig.pass(Duration::from_secs(2));
        let reset = poll_fn(|context| silent.poll_reset(context)).await;
        assert_eq!(reset.expect("a reset"), Reason::NO_ERROR);
        assert_eq!(get(client, "/a").await.status(), 200);
    });
}

/// The parser refuses it: the body is dropped as well.
#[test]
fn a_refused_header_does_not_reset_its_body() {
    let rig = Rig::with_files("[limits]\nrequest_line_bytes = \"1KiB\"\n", &[("a", "a")]);
    run(&rig, &Builder::new(), async |client| {
        let long = format!("/{}", "a".repeat(2000));
        let (reply, mut body) = client.send(request(Method::POST, &long), false).await;
        assert_eq!(reply.await.expect("a response").status(), 414);
        let all = Bytes::from(vec![0; 1024 * 1024]);
        body.send_data(all, true).expect("it is open");
        until(|| rig.worker.timers.len() == 1).await;
    });
}

/// They count as open, so that a client that opens more without an end is stopped.
#[test]
fn refused_bodies_hold_up_further_requests_for_two_seconds() {
    let rig = Rig::with_files("", &[("a", "a")]);
    run(&rig, &Builder::new(), async |client| {
        let mut bodies = refused_uploads(client).await;
        // The connection has a timer as well.
        assert_eq!(rig.worker.timers.len(), STREAMS_MAX + 1);
        rig.pass(Duration::from_secs(2));
        // The client begins it when it may.
        assert_eq!(get(client, "/a").await.status(), 200);
        for body in &mut bodies {
            let reset = poll_fn(|context| body.poll_reset(context)).await;
            assert_eq!(reset.expect("a reset"), Reason::NO_ERROR);
        }
    });
}

/// Asks for a WebSocket.
async fn connect(client: &Client, path: &str) -> (ResponseFuture, SendStream<Bytes>) {
    until(|| client.may_connect()).await;
    let mut connect = request(Method::CONNECT, path);
    let protocol = Protocol::from_static("websocket");
    connect.extensions_mut().insert(protocol);
    let version = "13".parse().expect("a value");
    connect
        .headers_mut()
        .insert("sec-websocket-version", version);
    client.send(connect, false).await
}

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// A success would be the beginning of a tunnel (RFC 8441, 5).
#[test]
fn a_websocket_to_what_speaks_no_websocket_is_refused() {
    let (rig, app) = Rig::proxy("");
    std::fs::write(rig.root.path().join("a"), "a").expect("a file");
    run(&rig, &Builder::new(), async |client| {
        let (reply, _ours) = connect(client, "/a").await;
        assert_eq!(reply.await.expect("a response").status(), 501);
        for (response, status) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 501),
            ("HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno", 404),
        ] {
            let (reply, _ours) = connect(client, "/app").await;
            let (mut backend, _) = app.asked().await;
            backend.send(response).await;
            assert_eq!(reply.await.expect("a response").status(), status);
        }
    });
}

/// The refusal is an error like others.
#[test]
fn a_file_in_place_of_a_websocket_is_a_refusal_with_a_receipt() {
    let route = |lines: &str| format!("[[site.route]]\n{lines}\n");
    let config = [
        "error_pages = { 501 = \"/page\" }\n".to_owned(),
        route("path = \"/app\"\nproxy = \"app\""),
        route("path = \"/files/*\"\nroot = \"{root}\"\nstrip_prefix = \"/files\"\ninternal = true"),
        "[[upstream]]\nname = \"app\"\nto = [\"unix:/app\"]\n".to_owned(),
    ];
    let rig = Rig::with_files(&config.concat(), &[("file", "content"), ("page", "sorry")]);
    let app = Backend::new("unix:/app");
    run(&rig, &Builder::new(), async |client| {
        let (reply, _ours) = connect(client, "/app").await;
        let (mut backend, _) = app.asked().await;
        let file = "X-Accel-Redirect: /files/file\r\nX-Sendfile-Receipt: /sent";
        let response = format!("HTTP/1.1 200 OK\r\n{file}\r\nContent-Length: 0\r\n\r\n");
        backend.send(response).await;
        let response = reply.await.expect("a response");
        assert_eq!(response.status(), 501);
        assert_eq!(whole(&mut response.into_body()).await, b"sorry");
        let (mut backend, receipt) = app.asked().await;
        assert!(receipt.starts_with("POST /sent HTTP/1.1\r\n"), "{receipt}");
        assert!(
            receipt.contains("X-Sendfile-Receipt: refused\r\n"),
            "{receipt}"
        );
        backend.send("HTTP/1.1 204 No Content\r\n\r\n").await;
    });
}

#[test]
fn a_reset_ends_both_sides_of_a_websocket() {
    let (rig, app) = Rig::proxy("");
    run(&rig, &Builder::new(), async |client| {
        for ends_before in [false, true] {
            let (reply, mut ours) = connect(client, "/app").await;
            let (mut backend, _) = app.asked().await;
            backend.send(SWITCH).await;
            assert_eq!(reply.await.expect("a response").status(), 200);
            ours.send_data("last words".into(), ends_before)
                .expect("it is open");
            backend.until("last words").await;
            ours.send_reset(Reason::CANCEL);
            // The backend keeps its side open.
            until_idle(&rig).await;
            assert_eq!(backend.rest().await, "");
        }
    });
}

#[test]
fn a_websocket_that_its_backend_has_ended_may_be_reset() {
    let (rig, app) = Rig::proxy("");
    run(&rig, &Builder::new(), async |client| {
        let (reply, mut ours) = connect(client, "/app").await;
        let (mut backend, _) = app.asked().await;
        backend.send(SWITCH).await;
        let mut theirs = reply.await.expect("a response").into_body();
        backend.send("bye").await;
        backend.end_output();
        assert_eq!(whole(&mut theirs).await, b"bye");
        ours.send_reset(Reason::CANCEL);
        until_idle(&rig).await;
        assert_eq!(backend.rest().await, "");
    });
    assert_eq!(rig.worker.stats.ended(Ended::Complete), 1);
}

#[test]
fn a_websocket_is_a_stream() {
    let (rig, app) = Rig::proxy("");
    run(&rig, &Builder::new(), async |client| {
        let (reply, mut ours) = connect(client, "/app").await;
        let (mut backend, header) = app.asked().await;
        let header = header.to_ascii_lowercase();
        assert!(header.starts_with("get /app http/1.1\r\n"), "{header}");
        for line in [
            "connection: upgrade",
            "upgrade: websocket",
            "sec-websocket-version: 13",
        ] {
            assert!(header.contains(&format!("\r\n{line}\r\n")), "{header}");
        }
        let key = header.split("sec-websocket-key: ").nth(1).expect("a key");
        assert_eq!(key.split("\r\n").next().map(str::len), Some(24), "{key}");
        backend.send(SWITCH).await;
        let response = reply.await.expect("a response");
        assert_eq!(response.status(), 200);
        for name in [
            "sec-websocket-accept",
            "connection",
            "upgrade",
            "content-length",
        ] {
            assert!(!response.headers().contains_key(name), "{name}");
        }
        let mut echo = response.into_body();
        for message in ["ping", "a longer message"] {
            ours.send_data(message.into(), false).expect("sent");
            backend.until(message).await;
            backend.send(message).await;
            let back = receive(&mut echo).await.expect("bytes").expect("bytes");
            assert_eq!(back, message);
        }
        ours.send_data(Bytes::new(), true).expect("sent");
        assert_eq!(backend.rest().await, "");
        drop(backend);
        assert!(whole(&mut echo).await.is_empty());
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
        let mut bodies = refused_uploads(client).await;
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
        until(|| rig.worker.timers.is_empty()).await;
        let stats = &rig.worker.stats;
        assert_eq!((stats.begun.get(), stats.answered.get()), (1, 1));
    });
    rig.assert_idle();
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let header = [0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
    [&header, payload].concat()
}

/// A GET with literal header fields.
fn raw_get(stream: u8, path: &str, accept: &str) -> Vec<u8> {
    const HEADERS: u8 = 1;
    const END_STREAM_AND_HEADERS: u8 = 5;
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", path),
        ("accept", accept),
    ];
    let literal = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let field = |(name, value)| [vec![0], literal(name), literal(value)].concat();
    let block: Vec<u8> = fields.into_iter().flat_map(field).collect();
    frame(HEADERS, END_STREAM_AND_HEADERS, stream, &block)
}

const BOXES: &str = "[[site.route]]\npath = \"/box/*\"\nmailbox = \"box\"\n\
                     [[mailbox]]\nname = \"box\"\nheartbeat = \"1h\"\n";

/// Removes the box `a`, which ends its receivers.
async fn remove_box(rig: &Rig) {
    let name = Name::new("box", b"a").expect("a name");
    let (reply, answer) = oneshot::channel();
    let command = Command::Remove {
        name: name.clone(),
        reply,
    };
    rig.worker.mailboxes.send_to_owner_of(&name, command);
    assert!(matches!(answer.await, Ok(Ok(true))));
}

/// What a client takes of a download counts for its socket, whose Close frame waits for the same window.
#[test]
fn a_socket_of_a_mailbox_is_not_slow_while_its_client_takes_other_bodies() {
    let rig = Rig::with_files(BOXES, &[("large", &large())]);
    let mut builder = Builder::new();
    builder.initial_window_size(1 << 20);
    for takes in [true, false] {
        run(&rig, &builder, async |client| {
            let (reply, _ours) = connect(client, "/box/a").await;
            let mut socket = reply.await.expect("a response").into_body();
            let mut download = large_body(client, "u=1").await;
            settle().await;
            remove_box(&rig).await;
            settle().await;
            if takes {
                let mut taken = 0;
                while taken < 60_000 {
                    let piece = receive(&mut download).await.expect("bytes");
                    taken += piece.expect("bytes").len();
                }
            }
            rig.pass_seconds(61).await;
            drop(download);
            match takes {
                true => {
                    let close = receive(&mut socket).await.expect("bytes").expect("bytes");
                    assert_eq!(close[0], 0x88);
                }
                false => assert_eq!(reset_code(&mut socket).await, Some(Reason::INTERNAL_ERROR)),
            }
        });
    }
}

/// It takes nothing any more, and the body of another stream fills the output.
#[test]
fn a_receiver_that_has_to_end_waits_for_its_client_as_long_as_others() {
    const SETTINGS: u8 = 4;
    const WINDOW_UPDATE: u8 = 8;
    let rig = Rig::with_files(BOXES, &[("large", &large())]);
    rig.run(async {
        let mut client = rig.client(16 * 1024);
        let begin = [
            PREFACE.to_vec(),
            frame(SETTINGS, 0, 0, &[0, 4, 0, 16, 0, 0]),
            frame(WINDOW_UPDATE, 0, 0, &[0, 16, 0, 0]),
            raw_get(1, "/box/a", "text/event-stream"),
            raw_get(3, "/large", "*/*"),
        ];
        client.send(begin.concat()).await;
        until(|| rig.worker.timers.len() == 3).await;
        settle().await;
        remove_box(&rig).await;
        rig.pass_seconds(100).await;
        until(|| rig.worker.timers.len() <= 1).await;
        client.break_off().await;
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
            worker.begin_drain().await;
            worker.drained().await;
        });
        idle.served().await;
        assert_eq!(whole(&mut body).await, large().as_bytes());
        rig.pass(Duration::ZERO);
        client.served().await;
        drained.await.expect("drained");
    });
    rig.assert_idle();
}
