//! Streams and connections that end before their response has.

use super::*;

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
    with_h2("retry.times = 1\n", async |rig, app| {
        let clients = ask(rig, 1).await;
        let mut served = Served::accept(app).await;
        // Eight beside the first one; `retries` is for those that a backend has begun.
        for _ in 0..9 {
            served.call().await.reply.send_reset(Reason::REFUSED_STREAM);
        }
        expect_all(clients, "503").await;
    });
}

/// As a client over HTTP/2 sends it. Of a longer one the start is no longer there.
#[test]
fn a_body_of_64_kib_that_came_after_the_header_is_sent_again() {
    for (bytes, is_repeated) in [(4, true), (64 * 1024, true), (200 * 1024, false)] {
        with_h2("", async |rig, app| {
            let body = "x".repeat(bytes);
            let mut client = rig.client(1 << 20);
            let header = POST.trim_end_matches("body");
            client
                .send(header.replace(": 4", &format!(": {bytes}")))
                .await;
            let mut served = Served::accept(app).await;
            let mut call = served.call().await;
            client.send(&body).await;
            assert_eq!(call.body().await.0, body.as_bytes());
            call.reply.send_reset(Reason::REFUSED_STREAM);
            if is_repeated {
                let mut call = served.call().await;
                assert_eq!(call.body().await.0, body.as_bytes());
                call.answer("");
            }
            let status = if is_repeated { "200" } else { "503" };
            let response = client.rest().await;
            assert!(
                response.starts_with(&format!("HTTP/1.1 {status} ")),
                "{response}"
            );
            client.close().await;
        });
    }
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
fn a_reset_before_and_after_the_header() {
    with_h2("retry.times = 0\n", async |rig, app| {
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

/// The library says only that it has detected an unspecific error.
#[test]
fn a_malformed_response_is_named_as_the_fault_of_the_backend() {
    with_h2("retry.times = 0\n", async |rig, app| {
        let clients = ask(rig, 1).await;
        let mut raw = Raw::accept(app).await;
        raw.until(HEADERS).await;
        raw.answer_malformed().await;
        expect_all(clients, "502").await;
        let backends = rig.worker.service().upstreams[0].backends();
        let failure = backends[0].last_failure().expect("a failure");
        let expected =
            "the backend broke a rule of HTTP/2, so the stream was reset (PROTOCOL_ERROR)";
        assert_eq!(failure.reason, expected);
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
        with_h2("retry.times = 0\n", async |rig, app| {
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
    with_h2("retry.times = 0\n", async |rig, app| {
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
fn a_connection_that_is_given_up_is_no_failure_of_the_backend() {
    with_h2("retry.times = 0\n", async |rig, app| {
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
    with_h2("retry.times = 0\n", async |rig, app| {
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
