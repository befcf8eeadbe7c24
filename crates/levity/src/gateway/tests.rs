//! Clients and backends that split their messages, respond early, are silent or disconnect.

use std::time::Duration;

use crate::rig::{Backend, Client, End, Rig, message, settle, with_proxy};
use levity_telemetry::access_log::End as Ended;

const GET: &str = "GET /app HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const KEEP: &str = "GET /app HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &str = "POST /app HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n";
const PUT: &str = "PUT /app HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n";
const EXPECT: &str =
    "POST /app HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n";
const BODY: &str = "hello world";

const LENGTH: &str = "HTTP/1.1 200 OK\r\nX-App: yes\r\nContent-Length: 11\r\n\r\nhello world";
const CHUNKS: &str = "HTTP/1.1 200 OK\r\nX-App: yes\r\nTransfer-Encoding: chunked\r\n\r\n\
     5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nX-End: yes\r\n\r\n";
const UNTIL_CLOSE: &str = "HTTP/1.1 200 OK\r\nX-App: yes\r\n\r\nhello world";

/// The length of the header of `response`, in bytes.
fn head_bytes(response: &str) -> usize {
    response.find("\r\n\r\n").expect("a header") + 4
}

/// A client that has sent `request`, and the backend that has received its header.
async fn begin(rig: &Rig, app: &Backend, request: &str) -> (Client, End) {
    let mut client = rig.client(1 << 16);
    client.send(request).await;
    let (backend, _) = app.asked().await;
    (client, backend)
}

#[track_caller]
fn assert_whole(response: &str) {
    let whole = Some(("HTTP/1.1 200 OK", BODY.to_owned()));
    assert_eq!(message(response, true), whole, "{response}");
    assert!(response.contains("\r\nX-App: yes\r\n"), "{response}");
}

#[test]
fn a_response_may_be_split_at_any_byte() {
    with_proxy("keep_alive = 0\n", async |rig, app| {
        for answer in [LENGTH, CHUNKS, UNTIL_CLOSE] {
            for request in [GET, "GET /app HTTP/1.0\r\n\r\n"] {
                for cut in 0..=answer.len() {
                    let (mut client, mut backend) = begin(rig, app, request).await;
                    backend.send(&answer[..cut]).await;
                    let mut response = client.arrived().await;
                    backend.send(&answer[cut..]).await;
                    backend.end_output();
                    response += &client.rest().await;
                    assert_whole(&response);
                    client.close().await;
                }
            }
        }
    });
}

#[test]
fn a_response_passes_byte_by_byte() {
    with_proxy("keep_alive = 0\n", async |rig, app| {
        for answer in [LENGTH, CHUNKS, UNTIL_CLOSE] {
            for bytes_max in [1, 7] {
                let mut client = rig.client(bytes_max);
                client.send(GET).await;
                let (mut backend, _) = app.asked().await;
                let mut response = String::new();
                for byte in answer.as_bytes() {
                    backend.send([*byte]).await;
                    response += &client.arrived().await;
                }
                backend.end_output();
                response += &client.rest().await;
                assert_whole(&response);
                client.close().await;
            }
        }
    });
}

/// The connection ends or is reset after each byte.
#[test]
fn a_truncated_response_never_looks_complete() {
    with_proxy("", async |rig, app| {
        for (answer, resets) in [
            (LENGTH, false),
            (CHUNKS, false),
            (LENGTH, true),
            (CHUNKS, true),
            (UNTIL_CLOSE, true),
        ] {
            for cut in 0..answer.len() {
                let (mut client, mut backend) = begin(rig, app, GET).await;
                backend.send(&answer[..cut]).await;
                settle().await;
                match resets {
                    true => backend.break_off(),
                    false => drop(backend),
                }
                let (response, _) = client.all().await;
                if cut < head_bytes(answer) {
                    let (status, _) = message(&response, true).expect("an error");
                    assert_eq!(status, "HTTP/1.1 502 Bad Gateway", "cut at byte {cut}");
                } else {
                    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
                    assert_eq!(message(&response, true), None, "cut at byte {cut}");
                }
                client.close().await;
            }
        }
    });
}

/// An orderly end of the connection would end the response.
#[test]
fn a_truncated_response_to_http_1_0_is_reset() {
    with_proxy("", async |rig, app| {
        for cut in head_bytes(CHUNKS)..CHUNKS.len() {
            let (mut client, mut backend) = begin(rig, app, "GET /app HTTP/1.0\r\n\r\n").await;
            backend.send(&CHUNKS[..cut]).await;
            settle().await;
            drop(backend);
            client.reset().await;
            client.served().await;
        }
    });
}

#[test]
fn a_backend_may_respond_before_the_body_has_arrived() {
    with_proxy("", async |rig, app| {
        for status in ["200 OK", "413 Content Too Large", "503 Service Unavailable"] {
            let answer = LENGTH.replace("200 OK", status);
            for cut in 0..BODY.len() {
                let request = format!("{POST}{}", &BODY[..cut]);
                let (mut client, mut backend) = begin(rig, app, &request).await;
                settle().await;
                backend.send(&answer).await;
                let response = client.rest().await;
                let (line, body) = message(&response, true).expect("a response");
                assert_eq!((line, &*body), (&*format!("HTTP/1.1 {status}"), BODY));
                // The connection to the backend is closed: it carries an incomplete request.
                backend.rest().await;
                client.close().await;
            }
        }
    });
}

/// Both connections can be reused.
#[test]
fn a_body_may_arrive_during_the_response() {
    with_proxy("", async |rig, app| {
        for cut in 0..BODY.len() {
            let request = format!("{POST}{}", &BODY[..cut]);
            let (mut client, mut backend) = begin(rig, app, &request).await;
            let half = head_bytes(CHUNKS) + 10;
            backend.send(&CHUNKS[..half]).await;
            let mut response = client.arrived().await;
            client.send(&BODY[cut..]).await;
            backend.until(BODY).await;
            backend.send(&CHUNKS[half..]).await;
            response += &client.arrived().await;
            assert_whole(&response);
            client.send(GET).await;
            backend.until("\r\n\r\n").await;
            backend.send(LENGTH).await;
            assert_whole(&client.rest().await);
            client.close().await;
        }
    });
}

#[test]
fn interim_responses_may_be_split_at_any_byte() {
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let answer = format!("HTTP/1.1 100 Continue\r\n\r\n{interim}{LENGTH}");
    with_proxy("keep_alive = 0\n", async |rig, app| {
        for (request, passed) in [(GET, interim), ("GET /app HTTP/1.0\r\n\r\n", "")] {
            for cut in 0..answer.len() {
                let (mut client, mut backend) = begin(rig, app, request).await;
                backend.send(&answer[..cut]).await;
                let mut response = client.arrived().await;
                backend.send(&answer[cut..]).await;
                response += &client.rest().await;
                let last = response.strip_prefix(passed).expect("the interim response");
                assert_whole(last);
                client.close().await;
            }
        }
    });
}

#[test]
fn a_backend_may_request_the_body() {
    with_proxy("", async |rig, app| {
        let (mut client, mut backend) = begin(rig, app, EXPECT).await;
        assert_eq!(client.arrived().await, "");
        backend.send("HTTP/1.1 100 Continue\r\n\r\n").await;
        assert_eq!(client.arrived().await, "HTTP/1.1 100 Continue\r\n\r\n");
        client.send(BODY).await;
        backend.until(BODY).await;
        backend.send(LENGTH).await;
        assert_whole(&client.arrived().await);
        client.close().await;
    });
}

#[test]
fn a_backend_that_ignores_expect_gets_the_body_after_a_time_out() {
    with_proxy("", async |rig, app| {
        let (mut client, mut backend) = begin(rig, app, EXPECT).await;
        assert_eq!(client.arrived().await, "");
        rig.pass_seconds(2).await;
        assert_eq!(client.arrived().await, "HTTP/1.1 100 Continue\r\n\r\n");
        client.send(BODY).await;
        backend.until(BODY).await;
        // The backend requests the body too late: the client has got a 100 already.
        backend
            .send(format!("HTTP/1.1 100 Continue\r\n\r\n{LENGTH}"))
            .await;
        assert_whole(&client.arrived().await);
        client.close().await;
    });
}

#[test]
fn a_backend_may_respond_without_requesting_the_body() {
    with_proxy("", async |rig, app| {
        let (mut client, mut backend) = begin(rig, app, EXPECT).await;
        let refusal = LENGTH.replace("200 OK", "403 Forbidden");
        backend.send(refusal).await;
        let response = client.rest().await;
        let refused = Some(("HTTP/1.1 403 Forbidden", BODY.to_owned()));
        assert_eq!(message(&response, true), refused);
        client.close().await;
        // With a status of success the backend may read the body: the client gets 100 before the response.
        let (mut client, mut backend) = begin(rig, app, EXPECT).await;
        backend.send(&CHUNKS[..head_bytes(CHUNKS)]).await;
        let response = client.arrived().await;
        assert!(
            response.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"),
            "{response}"
        );
        client.send(BODY).await;
        backend.until(BODY).await;
        backend.send(&CHUNKS[head_bytes(CHUNKS)..]).await;
        client.arrived().await;
        client.close().await;
    });
}

#[test]
fn a_client_may_disconnect_while_it_waits() {
    with_proxy("connections = 1\n", async |rig, app| {
        // For a connection.
        let mut client = rig.client(4096);
        client.send(GET).await;
        settle().await;
        assert_eq!(app.waiting(), 1);
        client.close().await;
        assert_eq!(app.waiting(), 0);
        // For a slot.
        let (mut first, mut backend) = begin(rig, app, GET).await;
        let mut client = rig.client(4096);
        client.send(GET).await;
        settle().await;
        client.close().await;
        backend.send(LENGTH).await;
        assert_whole(&first.rest().await);
        drop(backend);
        first.close().await;
        // For the response, after each byte; the backend sees its connection end.
        for answer in [LENGTH, CHUNKS] {
            for cut in 0..answer.len() {
                let (mut client, mut backend) = begin(rig, app, GET).await;
                backend.send(&answer[..cut]).await;
                client.arrived().await;
                client.close().await;
                backend.all().await;
            }
        }
        let aborted = 2 + LENGTH.len() + CHUNKS.len();
        let counted = rig.worker.core.stats.ended(Ended::ClientAbort);
        assert_eq!(counted, aborted as u64);
    });
}

#[test]
fn a_client_may_disconnect_within_its_body() {
    with_proxy("", async |rig, app| {
        for cut in 0..BODY.len() {
            let request = format!("{POST}{}", &BODY[..cut]);
            let (client, mut backend) = begin(rig, app, &request).await;
            settle().await;
            client.close().await;
            assert_eq!(backend.rest().await, BODY[..cut]);
        }
    });
}

#[test]
fn a_client_may_disconnect_after_each_byte_of_a_response() {
    with_proxy("keep_alive = 0\n", async |rig, app| {
        for answer in [LENGTH, CHUNKS, UNTIL_CLOSE] {
            let (mut client, mut backend) = begin(rig, app, GET).await;
            backend.send(answer).await;
            backend.end_output();
            let whole = client.rest().await;
            client.close().await;
            for taken in 0..whole.len() {
                let mut client = rig.client(1);
                client.send(GET).await;
                let (mut backend, _) = app.asked().await;
                backend.send(answer).await;
                backend.end_output();
                for _ in 0..taken {
                    client.read(1).await.expect("a byte");
                }
                settle().await;
                client.close().await;
            }
        }
    });
}

const PATIENT: &str = "[limits]\nhalf_closed_timeout = \"5s\"\n";

#[test]
fn a_half_closed_client_gets_its_response() {
    with_proxy(PATIENT, async |rig, app| {
        for cut in [0, 1, head_bytes(LENGTH), LENGTH.len() - 1] {
            let (mut client, mut backend) = begin(rig, app, KEEP).await;
            client.end_output();
            settle().await;
            backend.send(&LENGTH[..cut]).await;
            rig.pass_seconds(4).await;
            backend.send(&LENGTH[cut..]).await;
            assert_whole(&client.rest().await);
            drop(backend);
            client.served().await;
        }
    });
}

#[test]
fn a_half_closed_client_has_a_shorter_time_out() {
    let keys = format!("connections = 1\n{PATIENT}");
    with_proxy(&keys, async |rig, app| {
        // For a connection.
        let mut client = rig.client(4096);
        client.send(GET).await;
        client.end_output();
        rig.pass_seconds(4).await;
        assert_eq!(app.waiting(), 1);
        rig.pass_seconds(6).await;
        assert_eq!(app.waiting(), 0);
        assert!(client.rest().await.starts_with("HTTP/1.1 408 "));
        client.served().await;
        // For the header.
        let (mut client, backend) = begin(rig, app, GET).await;
        client.end_output();
        rig.pass_seconds(4).await;
        assert!(!client.is_served());
        // For a slot: fails at once.
        let mut other = rig.client(4096);
        other.send(GET).await;
        other.end_output();
        assert!(other.rest().await.starts_with("HTTP/1.1 408 "));
        other.served().await;
        rig.pass_seconds(6).await;
        assert!(client.rest().await.starts_with("HTTP/1.1 408 "));
        drop(backend);
        client.served().await;
        // For more of a body of unknown length.
        let (mut client, mut backend) = begin(rig, app, GET).await;
        client.end_output();
        backend.send(&CHUNKS[..CHUNKS.len() - 1]).await;
        rig.pass_seconds(4).await;
        assert!(!client.is_served());
        rig.pass_seconds(6).await;
        assert_eq!(message(&client.rest().await, true), None);
        client.served().await;
        // For the rest of a body of known length: the usual time-out.
        let (mut client, mut backend) = begin(rig, app, GET).await;
        client.end_output();
        backend.send(&LENGTH[..LENGTH.len() - 1]).await;
        rig.pass_seconds(59).await;
        assert!(!client.is_served());
        backend.send(&LENGTH[LENGTH.len() - 1..]).await;
        assert_whole(&client.rest().await);
        client.served().await;
    });
}

/// Server-sent events have no end: a half-closed client counts as disconnected.
#[test]
fn a_half_closed_client_gets_no_events() {
    with_proxy(PATIENT, async |rig, app| {
        let (mut client, mut backend) = begin(rig, app, GET).await;
        let events = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n";
        backend.send(events).await;
        assert!(client.arrived().await.contains("data: 1\n\n"));
        client.end_output();
        client.served().await;
        backend.rest().await;
    });
}

#[test]
fn a_silent_backend_times_out() {
    with_proxy(
        "first_byte_timeout = \"40s\"\nidle_timeout = \"50s\"\n",
        async |rig, app| {
            // The backend sends nothing, or only a part of its header.
            for cut in [0, 1, head_bytes(LENGTH) - 1] {
                let (mut client, mut backend) = begin(rig, app, GET).await;
                backend.send(&LENGTH[..cut]).await;
                rig.pass_seconds(39).await;
                assert!(!client.is_served());
                rig.pass_seconds(41).await;
                let response = client.rest().await;
                assert!(response.starts_with("HTTP/1.1 504 "), "{response}");
                backend.rest().await;
                client.close().await;
            }
            // It stops within the body.
            for answer in [LENGTH, CHUNKS, UNTIL_CLOSE] {
                let (mut client, mut backend) = begin(rig, app, GET).await;
                backend.send(&answer[..answer.len() - 1]).await;
                rig.pass_seconds(49).await;
                assert!(!client.is_served());
                rig.pass_seconds(51).await;
                assert_eq!(message(&client.all().await.0, true), None);
                backend.rest().await;
                client.close().await;
            }
            // It does not read the request.
            let mut client = rig.client(4096);
            client.send(GET).await;
            let _backend = app.accept(1).await;
            rig.pass_seconds(49).await;
            assert!(!client.is_served());
            rig.pass_seconds(51).await;
            assert!(client.rest().await.starts_with("HTTP/1.1 504 "));
            client.close().await;
        },
    );
}

#[test]
fn a_client_that_stops_sending_its_body_times_out() {
    with_proxy("", async |rig, app| {
        let (mut client, _backend) = begin(rig, app, &format!("{POST}hello")).await;
        rig.pass_seconds(29).await;
        assert!(!client.is_served());
        rig.pass_seconds(31).await;
        assert!(client.rest().await.starts_with("HTTP/1.1 408 "));
        client.close().await;
    });
}

/// The clock of the runtime is paused, so it advances when all tasks wait.
#[test]
fn the_queue_and_connecting_have_time_outs() {
    with_proxy(
        "connections = 1\nqueue_timeout = \"20s\"\nconnect_timeout = \"3s\"\n",
        async |rig, app| {
            tokio::time::pause();
            let began = tokio::time::Instant::now();
            let mut client = rig.client(4096);
            client.send(GET).await;
            assert!(client.rest().await.starts_with("HTTP/1.1 504 "));
            assert_eq!(began.elapsed().as_secs(), 3);
            client.close().await;
            let (first, _backend) = begin(rig, app, GET).await;
            let mut client = rig.client(4096);
            let began = tokio::time::Instant::now();
            client.send(GET).await;
            assert!(client.rest().await.starts_with("HTTP/1.1 503 "));
            assert_eq!(began.elapsed().as_secs(), 20);
            client.close().await;
            first.close().await;
        },
    );
}

#[test]
fn a_free_slot_goes_to_the_first_in_the_queue() {
    with_proxy("connections = 1\n", async |rig, app| {
        let (mut first, mut backend) = begin(rig, app, GET).await;
        let mut second = rig.client(4096);
        second.send(GET.replace("/app", "/app?2")).await;
        settle().await;
        let mut third = rig.client(4096);
        third.send(GET.replace("/app", "/app?3")).await;
        settle().await;
        backend.send(LENGTH).await;
        assert_whole(&first.rest().await);
        for (client, target) in [(&mut second, "GET /app?2 "), (&mut third, "GET /app?3 ")] {
            assert!(backend.until("\r\n\r\n").await.starts_with(target));
            backend.send(LENGTH).await;
            assert_whole(&client.rest().await);
        }
        for client in [first, second, third] {
            client.close().await;
        }
    });
}

/// A client, and a connection to the backend that is idle after a request.
async fn reused(rig: &Rig, app: &Backend) -> (Client, End) {
    let (mut client, mut backend) = begin(rig, app, KEEP).await;
    backend.send(LENGTH).await;
    assert_whole(&client.until(BODY).await);
    (client, backend)
}

#[test]
fn a_request_is_retried_when_its_reused_connection_ends() {
    with_proxy("", async |rig, app| {
        for request in [KEEP.to_owned(), format!("{PUT}{BODY}")] {
            let (mut client, mut backend) = reused(rig, app).await;
            client.send(&request).await;
            let first = backend.until("\r\n\r\n").await + &backend.arrived().await;
            drop(backend);
            let (mut backend, mut second) = app.asked().await;
            second += &backend.arrived().await;
            assert_eq!(first, second);
            backend.send(LENGTH).await;
            assert_whole(&client.until(BODY).await);
            client.close().await;
        }
    });
}

#[test]
fn a_request_that_may_have_been_processed_is_not_retried() {
    with_proxy("", async |rig, app| {
        for (request, answer) in [(&*format!("{POST}{BODY}"), ""), (KEEP, "H")] {
            let (mut client, mut backend) = reused(rig, app).await;
            client.send(request).await;
            backend.until("\r\n\r\n").await;
            backend.arrived().await;
            backend.send(answer).await;
            settle().await;
            drop(backend);
            assert!(client.arrived().await.starts_with("HTTP/1.1 502 "));
            assert_eq!(app.waiting(), 0);
            client.close().await;
        }
    });
}

#[test]
fn an_idle_connection_that_has_ended_is_not_reused() {
    with_proxy("", async |rig, app| {
        let (mut client, backend) = reused(rig, app).await;
        drop(backend);
        client.send(format!("{POST}{BODY}")).await;
        let (mut backend, _) = app.asked().await;
        backend.until(BODY).await;
        backend.send(LENGTH).await;
        assert_whole(&client.until(BODY).await);
        client.close().await;
    });
}

#[test]
fn a_refused_connection_is_retried_at_another_backend() {
    let route = "[[site.route]]\npath = \"/app\"\nproxy = \"app\"\n";
    let upstream = "[[upstream]]\nname = \"app\"\nto = [\"unix:/one\", \"unix:/two\"]\n";
    let rig = Rig::new(&format!("{route}{upstream}"));
    let (one, two) = (Backend::new("unix:/one"), Backend::new("unix:/two"));
    rig.run(async {
        for request in [GET.to_owned(), format!("{POST}{BODY}")] {
            let mut client = rig.client(4096);
            client.send(&request).await;
            settle().await;
            // The backends take turns.
            let (one, two) = match one.waiting() {
                1 => (&one, &two),
                _ => (&two, &one),
            };
            one.refuse().await;
            let (mut backend, _) = two.asked().await;
            backend.send(LENGTH).await;
            assert_whole(&client.arrived().await);
            client.close().await;
        }
    });
    rig.assert_idle();
}

#[test]
fn a_pipelined_request_may_be_split_at_any_byte() {
    with_proxy("keep_alive = 0\n", async |rig, app| {
        for cut in 0..=GET.len() {
            let both = format!("{KEEP}{}", &GET[..cut]);
            let (mut client, mut backend) = begin(rig, app, &both).await;
            assert_eq!(client.arrived().await, "");
            client.send(&GET[cut..]).await;
            settle().await;
            backend.send(LENGTH).await;
            assert_whole(&client.until(BODY).await);
            let (mut backend, _) = app.asked().await;
            backend.send(LENGTH).await;
            assert_whole(&client.rest().await);
            client.close().await;
        }
    });
}

/// While a response is pending, only a limited part of the next request is read.
#[test]
fn a_large_pipelined_request_waits() {
    let body = "0123456789".repeat(4000);
    let second = format!(
        "POST /app HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    with_proxy("keep_alive = 0\n", async |rig, app| {
        let (mut client, mut backend) = begin(rig, app, &format!("{KEEP}{second}")).await;
        settle().await;
        backend.send(LENGTH).await;
        assert_whole(&client.until(BODY).await);
        let (mut backend, _) = app.asked().await;
        assert_eq!(backend.arrived().await, body);
        backend.send(LENGTH).await;
        assert_whole(&client.rest().await);
        client.close().await;
    });
}

#[test]
fn an_upload_may_be_split_at_any_byte() {
    for keys in [
        "keep_alive = 0\n",
        "keep_alive = 0\nbuffer_requests = true\n",
    ] {
        let head = "POST /app HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";
        let length = format!("{head}Content-Length: 11\r\n\r\n{BODY}");
        let chunks = format!(
            "{head}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nX-End: yes\r\n\r\n"
        );
        with_proxy(keys, async |rig, app| {
            for request in [length, chunks] {
                for cut in head_bytes(&request)..request.len() {
                    let mut client = rig.client(4096);
                    client.send(&request[..cut]).await;
                    settle().await;
                    assert_eq!(app.waiting() == 0, keys.contains("buffer"));
                    client.send(&request[cut..]).await;
                    let (mut backend, mut upload) = app.asked().await;
                    upload += &backend.arrived().await;
                    let (line, body) = message(&upload, false).expect("all of it");
                    assert_eq!(
                        (line, &*body),
                        ("POST /app HTTP/1.1", BODY),
                        "cut at byte {cut}"
                    );
                    backend.send(LENGTH).await;
                    assert_whole(&client.rest().await);
                    client.close().await;
                }
            }
        });
    }
}

#[test]
fn a_backend_may_read_an_upload_byte_by_byte() {
    with_proxy("", async |rig, app| {
        for bytes_max in [1, 7] {
            let mut client = rig.client(4096);
            client.send(format!("{POST}{BODY}")).await;
            let mut backend = app.accept(bytes_max).await;
            let mut upload = backend.until("\r\n\r\n").await;
            upload += &backend.until(BODY).await;
            assert_eq!(message(&upload, false).expect("all of it").1, BODY);
            backend.send(LENGTH).await;
            assert_whole(&client.arrived().await);
            client.close().await;
        }
    });
}

/// The client does not wait for it, and the time for it is short.
#[test]
fn the_rest_of_a_discarded_response_is_read() {
    with_proxy("", async |rig, app| {
        let head = KEEP.replace("GET", "HEAD");
        let (mut client, mut backend) = begin(rig, app, &head).await;
        tokio::time::pause();
        backend
            .send("HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await;
        assert!(client.arrived().await.starts_with("HTTP/1.1 304 "));
        client.send(GET).await;
        backend.until("\r\n\r\n").await;
        backend.send(LENGTH).await;
        assert_whole(&client.rest().await);
        tokio::time::advance(Duration::from_secs(1)).await;
        client.close().await;
    });
}

/// A client that ends its side has left, unless the response has a length. The backend learns it after each byte.
#[test]
fn a_client_may_leave_within_a_response() {
    with_proxy("", async |rig, app| {
        for answer in [CHUNKS, UNTIL_CLOSE] {
            for cut in 0..answer.len() - 1 {
                let (mut client, mut backend) = begin(rig, app, KEEP).await;
                backend.send(&answer[..cut]).await;
                client.arrived().await;
                client.end_output();
                rig.pass_seconds(1).await;
                backend.rest().await;
                client.close().await;
            }
        }
    });
}
