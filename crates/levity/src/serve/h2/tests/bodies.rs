//! Bodies of requests: their windows, their memory, and refusals.

use super::*;

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
    let client = crate::message::client::Client::without_address("http");
    let requester = Requester {
        client: &client,
        connection: u64::MAX,
        stream: u64::MAX,
    };
    let claims = requester.claims(&rig.worker.core.stakes);
    let mut held = claims.nothing_lasting(Resource::Bodies, portion);
    let free = held.max() - rig.worker.core.stakes.shares().used(Resource::Bodies);
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
        until(|| rig.worker.core.stakes.shares().used(Resource::Bodies) == 0).await;
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
        let used = || rig.worker.core.stakes.shares().used(Resource::Bodies);
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
        let used = || rig.worker.core.stakes.shares().used(Resource::Bodies);
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
        let used = || rig.worker.core.stakes.shares().used(Resource::Bodies);
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
pub(super) async fn refused_uploads(client: &Client) -> Vec<SendStream<Bytes>> {
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
        until(|| rig.worker.core.timers.len() == 2).await;
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
        until(|| rig.worker.core.timers.len() == 1).await;
    });
}

/// They count as open, so that a client that opens more without an end is stopped.
#[test]
fn refused_bodies_hold_up_further_requests_for_two_seconds() {
    let rig = Rig::with_files("", &[("a", "a")]);
    run(&rig, &Builder::new(), async |client| {
        let mut bodies = refused_uploads(client).await;
        // The connection has a timer as well.
        assert_eq!(rig.worker.core.timers.len(), STREAMS_MAX + 1);
        rig.pass(Duration::from_secs(2));
        // The client begins it when it may.
        assert_eq!(get(client, "/a").await.status(), 200);
        for body in &mut bodies {
            let reset = poll_fn(|context| body.poll_reset(context)).await;
            assert_eq!(reset.expect("a reset"), Reason::NO_ERROR);
        }
    });
}
