//! Requests over HTTP/2, with backends and clients in memory.

mod peer;

use std::future::poll_fn;
use std::time::Duration;

use ::http::{HeaderMap, HeaderValue, Request, Response};
use bytes::Bytes;
use h2::{Reason, server};
use levity_net::AsyncTransport;
use tokio::time;

use self::peer::{Client, HEADERS, PING, Raw, Served, WIRE_BYTES, post, receive_all};
use super::wire::STREAMS_MAX;
use crate::rig::{Backend, Rig, settle, with_proxy};

const H2: &str = "protocol = \"h2\"\n";

const GET: &str = "GET /app HTTP/1.1\r\nHost: a.test\r\n\r\n";

const GET_AND_CLOSE: &str = "GET /app HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";

const POST: &str =
    "POST /app HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody";

/// A response that has begun may be silent.
const PATIENT: &str = "idle_timeout = \"1h\"\n";

/// Longer than any other time-out of an upstream.
const LONG_SECONDS: u64 = 70;

/// Runs `test` with a worker whose upstream speaks HTTP/2; `keys` are further keys of it.
#[track_caller]
fn with_h2(keys: &str, test: impl AsyncFnOnce(&Rig, &Backend)) {
    with_proxy(&format!("{H2}{keys}"), test);
}

fn trailers(value: &'static str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(value));
    trailers
}

#[test]
fn a_request_and_its_response() {
    with_h2("", async |rig, app| {
        let mut client = rig.client(4096);
        client
            .send("GET /app?a<b HTTP/1.1\r\nHost: a.test:81\r\nX-A: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nConnection: TE, close\r\n\r\n")
            .await;
        let mut served = Served::accept(app).await;
        let mut call = served.call().await;
        let request = &call.request;
        assert_eq!(request.uri(), "http://a.test:81/app?a%3Cb");
        assert_eq!(request.headers()["x-a"], "1");
        assert_eq!(request.headers()["te"], "trailers");
        assert_eq!(request.headers()["x-forwarded-host"], "a.test:81");
        let without = ["host", "connection", "keep-alive", "content-length"];
        assert!(
            !without
                .iter()
                .any(|&name| request.headers().contains_key(name))
        );
        assert!(request.body().is_end_stream());
        call.answer("hello");
        let response = client.rest().await;
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
        assert!(response.contains("hello"), "{response}");
        client.close().await;
    });
}

#[test]
fn a_body_with_its_length_and_a_response_to_head() {
    with_h2("", async |rig, app| {
        let mut client = rig.client(4096);
        client.send(POST).await;
        let mut served = Served::accept(app).await;
        let mut call = served.call().await;
        assert_eq!(call.request.headers()["content-length"], "4");
        assert_eq!(call.body().await.0, b"body");
        call.answer("");
        assert!(client.rest().await.starts_with("HTTP/1.1 200 "));
        client.close().await;
        let mut client = rig.client(4096);
        client.send(GET_AND_CLOSE.replace("GET", "HEAD")).await;
        let mut call = served.call().await;
        let response = Response::builder().header("content-length", "12345");
        let response = response.body(()).expect("a response");
        call.reply.send_response(response, true).expect("sent");
        assert!(client.rest().await.contains("Content-Length: 12345\r\n"));
        client.close().await;
    });
}

/// Some servers of gRPC know the length of a short message in time.
#[test]
fn trailers_follow_a_body_of_known_length() {
    for (text, length) in [("answer", "6"), ("", "0")] {
        with_h2("", async |rig, app| {
            let client = Client::new(rig).await;
            let (reply, mut upload) = post(&client).await;
            let mut call = Served::accept(app).await.call().await;
            let head = Response::builder().header("content-length", length);
            let head = head.body(()).expect("a response");
            let mut download = call.reply.send_response(head, false).expect("sent");
            upload.send_data(Bytes::new(), true).expect("sent");
            let mut response = reply.await.expect("a response").into_body();
            if !text.is_empty() {
                let text = Bytes::from_static(text.as_bytes());
                download.send_data(text, false).expect("sent");
            }
            download.send_trailers(trailers("0")).expect("sent");
            let received = receive_all(&mut response).await;
            assert_eq!(received.expect("an end"), text.as_bytes());
            let received = response.trailers().await.expect("an end");
            assert_eq!(received, Some(trailers("0")), "{length}");
            client.close().await;
        });
    }
}

#[test]
fn both_sides_stream_and_end_with_trailers() {
    with_h2("", async |rig, app| {
        let client = Client::new(rig).await;
        let (reply, mut upload) = post(&client).await;
        let mut served = Served::accept(app).await;
        let mut call = served.call().await;
        // The header passes although neither body has begun.
        let mut download = call.begin();
        let mut response = reply.await.expect("a response").into_body();
        for _ in 0..3 {
            upload
                .send_data(Bytes::from_static(b"question"), false)
                .expect("sent");
            let question = call.request.body_mut().data().await;
            assert_eq!(question.expect("data").expect("data"), "question");
            download
                .send_data(Bytes::from_static(b"answer"), false)
                .expect("sent");
            assert_eq!(
                response.data().await.expect("data").expect("data"),
                "answer"
            );
        }
        upload.send_trailers(trailers("7")).expect("sent");
        assert_eq!(call.body().await.1, Some(trailers("7")));
        download.send_trailers(trailers("0")).expect("sent");
        assert_eq!(receive_all(&mut response).await.expect("an end"), b"");
        assert_eq!(
            response.trailers().await.expect("an end"),
            Some(trailers("0"))
        );
        client.close().await;
    });
}

#[test]
fn a_response_of_trailers_only() {
    with_h2("", async |rig, app| {
        let client = Client::new(rig).await;
        let (reply, _upload) = post(&client).await;
        let mut served = Served::accept(app).await;
        let mut call = served.call().await;
        let response = Response::builder().header("grpc-status", "12");
        let response = response.body(()).expect("a response");
        call.reply.send_response(response, true).expect("sent");
        let response = reply.await.expect("a response");
        assert_eq!(response.headers()["grpc-status"], "12");
        assert!(response.body().is_end_stream());
        client.close().await;
    });
}

/// Clients that wait for their responses.
async fn ask(rig: &Rig, count: usize) -> Vec<crate::rig::Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut client = rig.client(4096);
        client.send(GET_AND_CLOSE).await;
        clients.push(client);
    }
    clients
}

async fn expect_all(clients: Vec<crate::rig::Client>, status: &str) {
    for mut client in clients {
        let response = client.rest().await;
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status} ")),
            "{response}"
        );
        client.close().await;
    }
}

#[test]
fn requests_share_a_connection_that_is_being_opened() {
    with_h2("", async |rig, app| {
        let clients = ask(rig, 20).await;
        settle().await;
        let mut served = Served::accept(app).await;
        for _ in 0..20 {
            served.call().await.answer("");
        }
        expect_all(clients, "200").await;
        let clients = ask(rig, 1).await;
        served.call().await.answer("");
        expect_all(clients, "200").await;
        assert_eq!(app.waiting(), 0);
    });
}

#[test]
fn a_connect_that_nobody_waits_for_is_given_up() {
    with_h2("retries = 0\n", async |rig, app| {
        let client = ask(rig, 1).await.remove(0);
        let given_up = app.accept(WIRE_BYTES).await;
        client.close().await;
        let begun = server::handshake(AsyncTransport(given_up.into_transport())).await;
        assert!(begun.is_err());
        // The next request has a connect of its own.
        let clients = ask(rig, 1).await;
        let mut served = Served::accept(app).await;
        served.call().await.answer("");
        expect_all(clients, "200").await;
        assert_eq!(failures(rig), 0);
    });
}

#[test]
fn a_client_that_leaves_while_it_connects_leaves_the_connection_to_others() {
    with_h2("retries = 0\n", async |rig, app| {
        let mut clients = ask(rig, 3).await;
        let accepted = app.accept(WIRE_BYTES).await;
        settle().await;
        clients.remove(0).close().await;
        settle().await;
        let mut served = Served::on(accepted, &server::Builder::new()).await;
        for _ in 0..2 {
            served.call().await.answer("");
        }
        expect_all(clients, "200").await;
        assert_eq!(app.waiting(), 0);
        assert_eq!(failures(rig), 0);
    });
}

fn with_streams(count: u32) -> server::Builder {
    let mut builder = server::Builder::new();
    builder.max_concurrent_streams(count);
    builder
}

#[test]
fn requests_wait_for_streams() {
    with_h2("connections = 1\n", async |rig, app| {
        let clients = ask(rig, 7).await;
        let mut served = Served::with(app, &with_streams(2)).await;
        for _ in 0..3 {
            let mut two = [served.call().await, served.call().await];
            settle().await;
            assert!(served.arrived().is_none());
            two.iter_mut().for_each(|call| call.answer(""));
        }
        served.call().await.answer("");
        expect_all(clients, "200").await;
        // Now it is known how many there are: the pool queues the others.
        let clients = ask(rig, 3).await;
        for _ in 0..3 {
            served.call().await.answer("");
        }
        expect_all(clients, "200").await;
        assert_eq!(app.waiting(), 0);
    });
}

#[test]
fn further_connections_when_all_streams_are_taken() {
    with_h2("connections = 2\n", async |rig, app| {
        let clients = ask(rig, 3).await;
        let one = with_streams(1);
        let mut served = [Served::with(app, &one).await, Served::with(app, &one).await];
        let mut calls = [served[0].call().await, served[1].call().await];
        settle().await;
        assert_eq!(app.waiting(), 0);
        calls.iter_mut().for_each(|call| call.answer(""));
        settle().await;
        let third = served.iter_mut().find_map(Served::arrived);
        third.expect("the third request").answer("");
        expect_all(clients, "200").await;
    });
}

#[test]
fn a_refused_stream_is_tried_again() {
    with_h2("", async |rig, app| {
        let mut client = rig.client(4096);
        client.send(POST).await;
        let mut served = Served::accept(app).await;
        served.call().await.reply.send_reset(Reason::REFUSED_STREAM);
        let mut call = served.call().await;
        assert_eq!(call.body().await.0, b"body");
        call.answer("");
        assert!(client.rest().await.starts_with("HTTP/1.1 200 "));
        client.close().await;
    });
}

#[test]
fn a_stream_that_is_always_refused_gets_503() {
    with_h2("retries = 1\n", async |rig, app| {
        let clients = ask(rig, 1).await;
        let mut served = Served::accept(app).await;
        // Eight beside the first one; `retries` is for those that a backend has begun.
        for _ in 0..9 {
            served.call().await.reply.send_reset(Reason::REFUSED_STREAM);
        }
        expect_all(clients, "503").await;
    });
}

/// As a client over HTTP/2 sends it.
#[test]
fn a_body_that_came_after_the_header_is_sent_again() {
    with_h2("", async |rig, app| {
        let mut client = rig.client(4096);
        let (header, body) = POST.split_at(POST.len() - 4);
        client.send(header).await;
        let mut served = Served::accept(app).await;
        let mut call = served.call().await;
        client.send(body).await;
        assert_eq!(call.body().await.0, b"body");
        call.reply.send_reset(Reason::REFUSED_STREAM);
        let mut call = served.call().await;
        assert_eq!(call.body().await.0, b"body");
        call.answer("");
        assert!(client.rest().await.starts_with("HTTP/1.1 200 "));
        client.close().await;
    });
}

#[test]
fn a_connection_that_ends_is_left_and_its_streams_go_on() {
    with_h2("", async |rig, app| {
        let mut old = ask(rig, 1).await;
        let mut first = Served::accept(app).await;
        let mut call = first.call().await;
        let mut body = call.begin();
        first.shut_down();
        settle().await;
        let new = ask(rig, 1).await;
        let mut second = Served::accept(app).await;
        second.call().await.answer("");
        expect_all(new, "200").await;
        body.send_data(Bytes::from_static(b"the rest"), true)
            .expect("sent");
        let response = old.remove(0).rest().await;
        assert!(response.contains("the rest"), "{response}");
        settle().await;
        assert!(first.has_ended() && !second.has_ended());
    });
}

#[test]
fn a_stream_beyond_the_last_of_a_connection_is_tried_again() {
    with_h2("", async |rig, app| {
        let mut client = rig.client(4096);
        client.send(POST).await;
        let mut raw = Raw::accept(app).await;
        raw.until(HEADERS).await;
        raw.refuse_all().await;
        let mut served = Served::accept(app).await;
        let mut call = served.call().await;
        assert_eq!(call.body().await.0, b"body");
        call.answer("");
        assert!(client.rest().await.starts_with("HTTP/1.1 200 "));
        client.close().await;
    });
}

#[test]
fn a_response_is_complete_although_the_request_is_not_wanted() {
    with_h2("", async |rig, app| {
        let mut client = rig.client(4096);
        client
            .send("POST /app HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100000\r\n\r\nbegin")
            .await;
        let mut served = Served::accept(app).await;
        let mut call = served.call().await;
        call.answer("enough");
        settle().await;
        call.reply.send_reset(Reason::NO_ERROR);
        let response = client.until("enough").await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        client.close().await;
        let clients = ask(rig, 1).await;
        served.call().await.answer("");
        expect_all(clients, "200").await;
    });
}

#[test]
fn a_reset_before_and_after_the_header() {
    with_h2("retries = 0\n", async |rig, app| {
        let clients = ask(rig, 1).await;
        let mut served = Served::accept(app).await;
        served.call().await.reply.send_reset(Reason::INTERNAL_ERROR);
        expect_all(clients, "502").await;
        let mut client = rig.client(4096);
        client.send(GET).await;
        let mut body = served.call().await.begin();
        body.send_data(Bytes::from_static(b"part"), false)
            .expect("sent");
        client.until("part").await;
        body.send_reset(Reason::INTERNAL_ERROR);
        assert!(!client.all().await.0.ends_with("0\r\n\r\n"));
        client.close().await;
    });
}

/// A backend of gRPC knows the time that the caller gives it.
#[test]
fn a_reset_at_the_deadline_of_the_call() {
    for (timeout, reason, status, failed) in [
        ("1n", Reason::CANCEL, "504", 0),
        ("1H", Reason::CANCEL, "502", 1),
        ("1n", Reason::INTERNAL_ERROR, "502", 1),
    ] {
        with_h2("retries = 0\n", async |rig, app| {
            let mut client = rig.client(4096);
            let header = format!("\r\ngrpc-timeout: {timeout}\r\n\r\n");
            client
                .send(GET_AND_CLOSE.replace("\r\n\r\n", &header))
                .await;
            let mut served = Served::accept(app).await;
            served.call().await.reply.send_reset(reason);
            let response = client.rest().await;
            let expected = format!("HTTP/1.1 {status} ");
            assert!(response.starts_with(&expected), "{timeout}: {response}");
            assert_eq!(failures(rig), failed);
            client.close().await;
        });
    }
}

#[test]
fn a_call_that_fails_ends_with_a_code() {
    with_h2("retries = 0\n", async |rig, app| {
        let client = Client::new(rig).await;
        let request = Request::post("http://a.test/app").header("content-type", "application/grpc");
        let request = request.body(()).expect("a request");
        let (reply, _upload) = client.send(request, false).await;
        app.refuse().await;
        let response = reply.await.expect("a response");
        assert_eq!(response.status(), 200);
        let headers = response.headers();
        assert_eq!(headers["content-type"], "application/grpc");
        assert_eq!(headers["grpc-status"], "14");
        assert_eq!(headers["grpc-message"], headers["proxy-status"]);
        assert_eq!(headers["proxy-status"], "levity; error=connection_refused");
        assert!(response.body().is_end_stream());
        client.close().await;
    });
}

#[test]
fn a_client_that_leaves_ends_its_stream_alone() {
    with_h2("", async |rig, app| {
        let client = ask(rig, 1).await.remove(0);
        let mut served = Served::accept(app).await;
        let mut call = served.call().await;
        let mut body = call.begin();
        let others = ask(rig, 1).await;
        let mut other = served.call().await;
        client.close().await;
        let reset = poll_fn(|context| body.poll_reset(context)).await;
        assert_eq!(reset.expect("a reset"), Reason::CANCEL);
        other.answer("");
        expect_all(others, "200").await;
        assert!(!served.has_ended());
    });
}

#[test]
fn a_slow_backend_keeps_a_connection_that_others_use() {
    with_h2(PATIENT, async |rig, app| {
        let others = ask(rig, 1).await;
        let mut served = Served::accept(app).await;
        let mut other = served.call().await.begin();
        let clients = ask(rig, 1).await;
        let _slow = served.call().await;
        rig.pass_seconds(LONG_SECONDS).await;
        expect_all(clients, "504").await;
        // It has answered the ping.
        let clients = ask(rig, 1).await;
        served.call().await.answer("");
        expect_all(clients, "200").await;
        other.send_data(Bytes::new(), true).expect("sent");
        expect_all(others, "200").await;
        assert_eq!(app.waiting(), 0);
    });
}

#[test]
fn a_dead_backend_loses_its_connection() {
    with_h2(PATIENT, async |rig, app| {
        let mut others = ask(rig, 1).await;
        let mut dead = Raw::accept(app).await;
        dead.until(HEADERS).await;
        dead.begin().await;
        let clients = ask(rig, 1).await;
        dead.until(HEADERS).await;
        rig.pass_seconds(LONG_SECONDS).await;
        expect_all(clients, "504").await;
        dead.until(PING).await;
        // Meanwhile nobody waits for it.
        let clients = ask(rig, 1).await;
        let mut served = Served::accept(app).await;
        served.call().await.answer("");
        expect_all(clients, "200").await;
        time::pause();
        time::advance(Duration::from_secs(6)).await;
        dead.end().await;
        let mut other = others.remove(0);
        assert!(!other.all().await.0.ends_with("0\r\n\r\n"));
        other.close().await;
    });
}

#[test]
fn a_connection_that_only_a_silent_request_uses_is_closed() {
    with_h2("", async |rig, app| {
        let clients = ask(rig, 1).await;
        let mut served = Served::accept(app).await;
        let _slow = served.call().await;
        rig.pass_seconds(LONG_SECONDS).await;
        expect_all(clients, "504").await;
        settle().await;
        assert!(served.has_ended());
    });
}

/// The bytes that a backend has sent that a client does not read: they are bounded, and another response passes.
#[test]
fn a_client_that_does_not_read_stops_its_stream_alone() {
    const BYTES_MAX: usize = 2 << 20;
    with_h2("", async |rig, app| {
        let mut client = rig.client(4096);
        client.send(GET_AND_CLOSE).await;
        let mut served = Served::accept(app).await;
        let mut body = served.call().await.begin();
        let mut sent = 0;
        body.reserve_capacity(1 << 30);
        loop {
            settle().await;
            let room = body.capacity();
            if room == 0 {
                break;
            }
            body.send_data(vec![b'x'; room].into(), false)
                .expect("sent");
            sent += room;
            assert!(sent < BYTES_MAX);
        }
        let others = ask(rig, 1).await;
        served.call().await.answer("");
        expect_all(others, "200").await;
        client.close().await;
    });
}

#[test]
fn a_backend_that_does_not_read_stops_the_client() {
    const BYTES_MAX: usize = 1 << 20;
    with_h2("", async |rig, app| {
        let client = Client::new(rig).await;
        let (_reply, mut upload) = post(&client).await;
        let mut served = Served::accept(app).await;
        let mut call = served.call().await;
        let mut sent = 0;
        upload.reserve_capacity(1 << 30);
        loop {
            settle().await;
            let room = upload.capacity();
            if room == 0 {
                break;
            }
            upload
                .send_data(vec![b'x'; room].into(), false)
                .expect("sent");
            sent += room;
            assert!(sent < BYTES_MAX);
        }
        upload.send_data(Bytes::new(), true).expect("sent");
        assert_eq!(call.body().await.0.len(), sent);
        client.close().await;
    });
}

#[test]
fn idle_connections_are_kept_within_bounds() {
    for (keep_alive, is_kept) in [(0, false), (1, true)] {
        with_h2(&format!("keep_alive = {keep_alive}\n"), async |rig, app| {
            let clients = ask(rig, 1).await;
            let mut served = Served::accept(app).await;
            served.call().await.answer("");
            expect_all(clients, "200").await;
            settle().await;
            assert_eq!(served.has_ended(), !is_kept);
            let later = std::time::Instant::now() + Duration::from_secs(31);
            rig.worker.pools.sweep(later);
            settle().await;
            assert!(served.has_ended());
        });
    }
}

#[test]
fn a_connection_that_has_broken_is_not_used_again() {
    with_h2("", async |rig, app| {
        let clients = ask(rig, 1).await;
        let mut served = Served::accept(app).await;
        served.call().await.answer("");
        expect_all(clients, "200").await;
        served.break_off();
        settle().await;
        let clients = ask(rig, 1).await;
        let mut served = Served::accept(app).await;
        served.call().await.answer("");
        expect_all(clients, "200").await;
    });
}

#[test]
fn all_that_wait_for_a_connection_learn_that_it_fails() {
    with_h2("retries = 0\n", async |rig, app| {
        let clients = ask(rig, 5).await;
        settle().await;
        app.refuse().await;
        expect_all(clients, "502").await;
        assert_eq!(app.waiting(), 0);
        let clients = ask(rig, 1).await;
        // It speaks another protocol.
        let mut backend = app.accept(4096).await;
        backend.send("HTTP/1.1 400 Bad Request\r\n\r\n").await;
        expect_all(clients, "502").await;
    });
}

#[test]
fn a_backend_decides_whether_it_wants_the_body() {
    with_h2("", async |rig, app| {
        let mut client = rig.client(4096);
        let head = "POST /app HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n";
        client.send(head).await;
        let mut served = Served::accept(app).await;
        let mut call = served.call().await;
        assert_eq!(call.request.headers()["expect"], "100-continue");
        assert_eq!(client.arrived().await, "");
        let interim = Response::builder()
            .status(100)
            .body(())
            .expect("a response");
        call.reply.send_informational(interim).expect("sent");
        client.until("HTTP/1.1 100 Continue\r\n\r\n").await;
        client.send("body").await;
        assert_eq!(call.body().await.0, b"body");
        call.answer("");
        assert!(client.rest().await.starts_with("HTTP/1.1 200 "));
        client.close().await;
    });
}

/// The connection is read although the client does not read.
#[test]
fn interim_responses_to_a_slow_client_are_bounded() {
    const MAX: usize = 64;
    for (count, status) in [(MAX, "200"), (MAX + 1, "502")] {
        with_h2("", async |rig, app| {
            let mut client = rig.client(16);
            client.send(GET_AND_CLOSE).await;
            let mut served = Served::accept(app).await;
            let mut call = served.call().await;
            for _ in 0..count {
                let hint = Response::builder().status(103).body(());
                let hint = hint.expect("a response");
                call.reply.send_informational(hint).expect("sent");
            }
            settle().await;
            match count > MAX {
                true => {
                    let reset = poll_fn(|context| call.reply.poll_reset(context)).await;
                    assert_eq!(reset.expect("a reset"), Reason::CANCEL);
                }
                false => call.answer(""),
            }
            let all = client.rest().await;
            assert!(all.contains(&format!("HTTP/1.1 {status} ")), "{all}");
            if status == "200" {
                assert_eq!(all.matches("HTTP/1.1 103 ").count(), MAX);
            }
            client.close().await;
        });
    }
}

#[test]
fn a_delegated_response_leaves_the_connection() {
    with_h2("", async |rig, app| {
        let clients = ask(rig, 1).await;
        let mut served = Served::accept(app).await;
        let mut call = served.call().await;
        let response = Response::builder().header("x-accel-redirect", "/nowhere");
        let response = response.body(()).expect("a response");
        let _body = call.reply.send_response(response, false).expect("sent");
        expect_all(clients, "502").await;
        let clients = ask(rig, 1).await;
        served.call().await.answer("");
        expect_all(clients, "200").await;
    });
}

#[test]
fn many_clients_at_once() {
    const CLIENTS: usize = 50;
    with_h2("connections = 1\n", async |rig, app| {
        let mut served = None;
        for _ in 0..(2 * STREAMS_MAX).div_ceil(CLIENTS) {
            let clients = ask(rig, CLIENTS).await;
            let served = match &mut served {
                Some(served) => served,
                none => none.insert(Served::accept(app).await),
            };
            for _ in 0..CLIENTS {
                served.call().await.answer("x");
            }
            expect_all(clients, "200").await;
        }
    });
}

/// The failures that count against the only backend, since its last response.
fn failures(rig: &Rig) -> u64 {
    let backends = rig.worker.service().upstreams[0].backends();
    let outage = backends[0].end_outage(std::time::Instant::now());
    outage.map_or(0, |(_, failures)| failures)
}

/// A backend may send events in small frames to many clients that do not read.
#[test]
fn small_frames_that_wait_do_not_end_the_connection() {
    const CLIENTS: usize = 12;
    with_h2(PATIENT, async |rig, app| {
        let slow = ask(rig, CLIENTS).await;
        let mut served = Served::accept(app).await;
        let mut bodies = Vec::new();
        for _ in 0..CLIENTS {
            bodies.push(served.call().await.begin());
        }
        for body in &mut bodies {
            body.reserve_capacity(1 << 30);
            loop {
                settle().await;
                let mut room = body.capacity();
                if room == 0 {
                    break;
                }
                for bytes in (20..=50).cycle() {
                    let bytes = room.min(bytes);
                    body.send_data(vec![b'x'; bytes].into(), false)
                        .expect("sent");
                    room -= bytes;
                    if room == 0 {
                        break;
                    }
                }
            }
        }
        let others = ask(rig, 1).await;
        served.call().await.answer("");
        expect_all(others, "200").await;
        for client in slow {
            client.close().await;
        }
    });
}

#[test]
fn a_connection_that_is_given_up_is_no_failure_of_the_backend() {
    with_h2("retries = 0\n", async |rig, app| {
        let clients = ask(rig, 2).await;
        let mut raw = Raw::accept(app).await;
        raw.until(HEADERS).await;
        raw.until(HEADERS).await;
        raw.break_protocol().await;
        expect_all(clients, "502").await;
        assert_eq!(failures(rig), 0);
    });
}

#[test]
fn a_connection_that_ends_is_a_failure_unless_it_was_idle() {
    with_h2("retries = 0\n", async |rig, app| {
        let clients = ask(rig, 1).await;
        let mut served = Served::accept(app).await;
        served.call().await.answer("");
        expect_all(clients, "200").await;
        let clients = ask(rig, 1).await;
        let _call = served.call().await;
        served.break_off();
        expect_all(clients, "502").await;
        assert_eq!(failures(rig), 0);
        let clients = ask(rig, 2).await;
        let mut served = Served::accept(app).await;
        let _calls = [served.call().await, served.call().await];
        served.break_off();
        expect_all(clients, "502").await;
        assert_eq!(failures(rig), 2);
    });
}

#[test]
fn more_streams_serve_those_that_wait() {
    with_h2("connections = 1\nretries = 0\n", async |rig, app| {
        let clients = ask(rig, 2).await;
        let mut raw = Raw::with_streams(app, 1).await;
        raw.until(HEADERS).await;
        settle().await;
        raw.set_streams(2).await;
        raw.until(HEADERS).await;
        drop(raw);
        expect_all(clients, "502").await;
    });
}

#[test]
fn the_end_of_a_full_connection_serves_the_queue() {
    with_h2("connections = 1\n", async |rig, app| {
        let old = ask(rig, 1).await;
        let mut first = Served::with(app, &with_streams(1)).await;
        let mut call = first.call().await;
        let new = ask(rig, 1).await;
        settle().await;
        assert_eq!(app.waiting(), 0);
        first.shut_down();
        settle().await;
        rig.worker.pools.sweep(std::time::Instant::now());
        let mut second = Served::accept(app).await;
        second.call().await.answer("");
        expect_all(new, "200").await;
        call.answer("");
        expect_all(old, "200").await;
    });
}

#[test]
fn the_end_of_a_full_connection_serves_those_that_wait() {
    with_h2("connections = 1\n", async |rig, app| {
        let clients = ask(rig, 2).await;
        let mut first = Served::with(app, &with_streams(1)).await;
        let mut call = first.call().await;
        settle().await;
        first.shut_down();
        let mut second = Served::accept(app).await;
        second.call().await.answer("");
        call.answer("");
        expect_all(clients, "200").await;
    });
}

#[test]
fn a_further_connection_that_fails_fails_no_request() {
    with_h2("connections = 2\nretries = 0\n", async |rig, app| {
        let mut clients = ask(rig, 1).await;
        let mut served = Served::with(app, &with_streams(1)).await;
        let mut call = served.call().await;
        clients.extend(ask(rig, 1).await);
        settle().await;
        app.refuse().await;
        settle().await;
        call.answer("");
        served.call().await.answer("");
        expect_all(clients, "200").await;
        assert_eq!(app.waiting(), 0);
    });
}

#[test]
fn an_early_response_is_complete_although_the_connection_ends_with_it() {
    with_h2("retries = 0\n", async |rig, app| {
        let mut client = rig.client(4096);
        client
            .send("POST /app HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100000\r\n\r\nbegin")
            .await;
        let mut raw = Raw::accept(app).await;
        raw.until(HEADERS).await;
        raw.answer_and_end(b"enough").await;
        let response = client.until("enough").await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        client.close().await;
    });
}

#[test]
fn a_receipt_whose_stream_is_refused_is_sent_again() {
    with_h2("", async |rig, app| {
        let clients = ask(rig, 1).await;
        let mut served = Served::accept(app).await;
        let mut call = served.call().await;
        let response = Response::builder()
            .header("x-accel-redirect", "/nowhere")
            .header("x-sendfile-receipt", "/app/receipt");
        let response = response.body(()).expect("a response");
        call.reply.send_response(response, true).expect("sent");
        expect_all(clients, "502").await;
        // Each gets a connection that was not idle.
        let mut served = Served::accept(app).await;
        let mut receipt = served.call().await;
        assert_eq!(receipt.request.headers()["x-sendfile-receipt"], "refused");
        receipt.reply.send_reset(Reason::REFUSED_STREAM);
        let mut served = Served::accept(app).await;
        let mut receipt = served.call().await;
        assert!(!receipt.body().await.0.is_empty());
        receipt.answer("");
        settle().await;
        assert_eq!(failures(rig), 0);
    });
}

#[test]
fn a_bound_client_stays_with_a_backend_that_refuses_a_stream() {
    let route = "[[site.route]]\npath = \"/app\"\nproxy = \"app\"\n";
    let upstream = "[[upstream]]\nname = \"app\"\nto = [\"unix:/a\", \"unix:/b\"]\nsticky = \"header:x-user\"\n";
    let rig = Rig::new(&format!("{route}{upstream}{H2}"));
    let apps = [Backend::new("unix:/a"), Backend::new("unix:/b")];
    rig.run(async {
        let mut client = rig.client(4096);
        client
            .send(GET_AND_CLOSE.replace("\r\n\r\n", "\r\nX-User: ann\r\n\r\n"))
            .await;
        settle().await;
        let app = apps.iter().find(|app| app.waiting() > 0);
        let mut served = Served::accept(app.expect("a connection")).await;
        served.call().await.reply.send_reset(Reason::REFUSED_STREAM);
        served.call().await.answer("");
        assert!(client.rest().await.starts_with("HTTP/1.1 200 "));
        client.close().await;
    });
    rig.assert_idle();
}
