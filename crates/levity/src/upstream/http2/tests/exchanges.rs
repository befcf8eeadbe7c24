//! What passes between client and backend.

use super::*;

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

/// Counted as HTTP/2 does: names, values and 32 bytes for each, the status included.
#[test]
fn a_header_section_has_a_maximum() {
    let keys = "[upstream.limits]\nhead_bytes = \"1KiB\"\n";
    for (bytes, status) in [(1024, "200"), (1025, "502")] {
        with_h2(keys, async |rig, app| {
            let clients = ask(rig, 1).await;
            let mut call = Served::accept(app).await.call().await;
            let left = bytes - (":status".len() + "200".len() + 32) - ("x-a".len() + 32);
            let response = Response::builder().header("x-a", "v".repeat(left));
            let response = response.body(()).expect("a response");
            // The connection may be there no longer.
            let _sent = call.reply.send_response(response, true);
            expect_all(clients, status).await;
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
fn an_early_response_is_complete_although_the_connection_ends_with_it() {
    with_h2("retry.times = 0\n", async |rig, app| {
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
