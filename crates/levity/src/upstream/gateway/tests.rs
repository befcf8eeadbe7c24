//! Backends and clients in pieces, early, silent and gone.

use std::time::Duration;

use levity_telemetry::access_log::End as Ended;
use tokio::task::JoinHandle;

use crate::rig::{Backend, End, Rig, message, settle};

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

/// The end of the header of `answer`.
fn head_bytes(answer: &str) -> usize {
    answer.find("\r\n\r\n").expect("a header") + 4
}

/// A client that has sent `request`, and the backend that has got its header.
async fn asked(rig: &Rig, app: &Backend, request: &str) -> (End, End, JoinHandle<()>) {
    let (mut client, serving) = rig.connect(1 << 16);
    client.send(request).await;
    let (backend, _) = app.asked().await;
    (client, backend, serving)
}

#[track_caller]
fn assert_whole(response: &str) {
    let whole = Some(("HTTP/1.1 200 OK", BODY.to_owned()));
    assert_eq!(message(response, true), whole, "{response}");
    assert!(response.contains("\r\nX-App: yes\r\n"), "{response}");
}

#[test]
fn an_answer_may_be_cut_anywhere() {
    let (rig, app) = Rig::proxy("keep_alive = 0\n");
    rig.run(async {
        for answer in [LENGTH, CHUNKS, UNTIL_CLOSE] {
            for request in [GET, "GET /app HTTP/1.0\r\n\r\n"] {
                for cut in 0..=answer.len() {
                    let (mut client, mut backend, serving) = asked(&rig, &app, request).await;
                    backend.send(&answer[..cut]).await;
                    let mut response = client.arrived().await;
                    backend.send(&answer[cut..]).await;
                    backend.end_output();
                    response += &client.rest().await;
                    assert_whole(&response);
                    drop(client);
                    serving.await.expect("served");
                }
            }
        }
    });
    rig.assert_idle();
}

#[test]
fn an_answer_may_come_in_drops_to_a_client_that_takes_it_in_drops() {
    let (rig, app) = Rig::proxy("keep_alive = 0\n");
    rig.run(async {
        for answer in [LENGTH, CHUNKS, UNTIL_CLOSE] {
            for bytes_max in [1, 7] {
                let (mut client, serving) = rig.connect(bytes_max);
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
                drop(client);
                serving.await.expect("served");
            }
        }
    });
    rig.assert_idle();
}

/// However much of an answer has come when its connection ends or breaks, the client never takes it for whole.
#[test]
fn an_answer_that_is_cut_off_is_never_whole() {
    let (rig, app) = Rig::proxy("");
    rig.run(async {
        for (answer, breaks) in [
            (LENGTH, false),
            (CHUNKS, false),
            (LENGTH, true),
            (CHUNKS, true),
            (UNTIL_CLOSE, true),
        ] {
            for cut in 0..answer.len() {
                let (mut client, mut backend, serving) = asked(&rig, &app, GET).await;
                backend.send(&answer[..cut]).await;
                settle().await;
                match breaks {
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
                drop(client);
                serving.await.expect("served");
            }
        }
    });
    rig.assert_idle();
}

/// Where the end of the connection would pass for that of the answer, the connection is reset.
#[test]
fn an_answer_to_http_1_0_that_is_cut_off_is_reset() {
    let (rig, app) = Rig::proxy("");
    rig.run(async {
        for cut in head_bytes(CHUNKS)..CHUNKS.len() {
            let (mut client, mut backend, serving) =
                asked(&rig, &app, "GET /app HTTP/1.0\r\n\r\n").await;
            backend.send(&CHUNKS[..cut]).await;
            settle().await;
            drop(backend);
            client.reset().await;
            serving.await.expect("served");
        }
    });
    rig.assert_idle();
}

#[test]
fn a_backend_may_answer_before_the_body_has_come() {
    let (rig, app) = Rig::proxy("");
    rig.run(async {
        for status in ["200 OK", "413 Content Too Large", "503 Service Unavailable"] {
            let answer = LENGTH.replace("200 OK", status);
            for cut in 0..BODY.len() {
                let request = format!("{POST}{}", &BODY[..cut]);
                let (mut client, mut backend, serving) = asked(&rig, &app, &request).await;
                settle().await;
                backend.send(&answer).await;
                let response = client.rest().await;
                let (line, body) = message(&response, true).expect("a response");
                assert_eq!((line, &*body), (&*format!("HTTP/1.1 {status}"), BODY));
                // The connection to the backend is of no more use.
                backend.rest().await;
                drop(client);
                serving.await.expect("served");
            }
        }
    });
    rig.assert_idle();
}

/// The rest of the request goes on while the answer does, and both connections can be used again.
#[test]
fn a_body_may_come_while_the_backend_answers() {
    let (rig, app) = Rig::proxy("");
    rig.run(async {
        for cut in 0..BODY.len() {
            let request = format!("{POST}{}", &BODY[..cut]);
            let (mut client, mut backend, serving) = asked(&rig, &app, &request).await;
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
            drop((client, backend));
            serving.await.expect("served");
        }
    });
    rig.assert_idle();
}

#[test]
fn interim_responses_may_be_cut_anywhere() {
    let (rig, app) = Rig::proxy("keep_alive = 0\n");
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let answer = format!("HTTP/1.1 100 Continue\r\n\r\n{interim}{LENGTH}");
    rig.run(async {
        for (request, told) in [(GET, interim), ("GET /app HTTP/1.0\r\n\r\n", "")] {
            for cut in 0..answer.len() {
                let (mut client, mut backend, serving) = asked(&rig, &app, request).await;
                backend.send(&answer[..cut]).await;
                let mut response = client.arrived().await;
                backend.send(&answer[cut..]).await;
                response += &client.rest().await;
                let last = response.strip_prefix(told).expect("what came before");
                assert_whole(last);
                drop(client);
                serving.await.expect("served");
            }
        }
    });
    rig.assert_idle();
}

#[test]
fn a_backend_asks_for_the_body() {
    let (rig, app) = Rig::proxy("");
    rig.run(async {
        let (mut client, mut backend, serving) = asked(&rig, &app, EXPECT).await;
        assert_eq!(client.arrived().await, "");
        backend.send("HTTP/1.1 100 Continue\r\n\r\n").await;
        assert_eq!(client.arrived().await, "HTTP/1.1 100 Continue\r\n\r\n");
        client.send(BODY).await;
        backend.until(BODY).await;
        backend.send(LENGTH).await;
        assert_whole(&client.arrived().await);
        drop((client, backend));
        serving.await.expect("served");
    });
    rig.assert_idle();
}

/// A backend that knows nothing of it waits for the body, and the client to be asked.
#[test]
fn a_silent_backend_gets_the_body_after_a_while() {
    let (rig, app) = Rig::proxy("");
    rig.run(async {
        let (mut client, mut backend, serving) = asked(&rig, &app, EXPECT).await;
        assert_eq!(client.arrived().await, "");
        rig.pass_seconds(2).await;
        assert_eq!(client.arrived().await, "HTTP/1.1 100 Continue\r\n\r\n");
        client.send(BODY).await;
        backend.until(BODY).await;
        // It asks late: the client has been asked.
        backend
            .send(format!("HTTP/1.1 100 Continue\r\n\r\n{LENGTH}"))
            .await;
        assert_whole(&client.arrived().await);
        drop((client, backend));
        serving.await.expect("served");
    });
    rig.assert_idle();
}

#[test]
fn a_backend_may_answer_without_asking_for_the_body() {
    let (rig, app) = Rig::proxy("");
    rig.run(async {
        let (mut client, mut backend, serving) = asked(&rig, &app, EXPECT).await;
        let refusal = LENGTH.replace("200 OK", "403 Forbidden");
        backend.send(refusal).await;
        let response = client.rest().await;
        let refused = Some(("HTTP/1.1 403 Forbidden", BODY.to_owned()));
        assert_eq!(message(&response, true), refused);
        drop(client);
        serving.await.expect("served");
        // A success may go on to read it: the client is asked before the response.
        let (mut client, mut backend, serving) = asked(&rig, &app, EXPECT).await;
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
        drop((client, backend));
        serving.await.expect("served");
    });
    rig.assert_idle();
}

#[test]
fn a_client_may_leave_while_it_waits() {
    let (rig, app) = Rig::proxy("connections = 1\n");
    rig.run(async {
        // For a connection.
        let (mut client, serving) = rig.connect(4096);
        client.send(GET).await;
        settle().await;
        assert_eq!(app.waiting(), 1);
        drop(client);
        serving.await.expect("served");
        assert_eq!(app.waiting(), 0);
        // For a slot.
        let (mut first, mut backend, first_serving) = asked(&rig, &app, GET).await;
        let (mut client, serving) = rig.connect(4096);
        client.send(GET).await;
        settle().await;
        drop(client);
        serving.await.expect("served");
        backend.send(LENGTH).await;
        assert_whole(&first.rest().await);
        drop((first, backend));
        first_serving.await.expect("served");
        // For the answer, however much of it has come; the backend learns of it.
        for answer in [LENGTH, CHUNKS] {
            for cut in 0..answer.len() {
                let (mut client, mut backend, serving) = asked(&rig, &app, GET).await;
                backend.send(&answer[..cut]).await;
                client.arrived().await;
                drop(client);
                serving.await.expect("served");
                backend.all().await;
            }
        }
    });
    rig.assert_idle();
    let left = 2 + LENGTH.len() + CHUNKS.len();
    assert_eq!(rig.worker.stats.ended(Ended::ClientAbort), left as u64);
}

#[test]
fn a_client_may_leave_within_its_body() {
    let (rig, app) = Rig::proxy("");
    rig.run(async {
        for cut in 0..BODY.len() {
            let request = format!("{POST}{}", &BODY[..cut]);
            let (client, mut backend, serving) = asked(&rig, &app, &request).await;
            settle().await;
            drop(client);
            serving.await.expect("served");
            assert_eq!(backend.rest().await, BODY[..cut]);
        }
    });
    rig.assert_idle();
}

/// A client that takes an answer byte by byte leaves after each of them.
#[test]
fn a_client_may_leave_after_each_byte_of_an_answer() {
    let (rig, app) = Rig::proxy("keep_alive = 0\n");
    rig.run(async {
        for answer in [LENGTH, CHUNKS, UNTIL_CLOSE] {
            let (mut client, mut backend, serving) = asked(&rig, &app, GET).await;
            backend.send(answer).await;
            backend.end_output();
            let whole = client.rest().await;
            drop(client);
            serving.await.expect("served");
            for taken in 0..whole.len() {
                let (mut client, serving) = rig.connect(1);
                client.send(GET).await;
                let (mut backend, _) = app.asked().await;
                backend.send(answer).await;
                backend.end_output();
                for _ in 0..taken {
                    client.read(1).await.expect("a byte");
                }
                settle().await;
                drop(client);
                serving.await.expect("served");
            }
        }
    });
    rig.assert_idle();
}

/// A client that has ended its side still gets an answer that has an end; it is not waited for as long.
#[test]
fn a_half_closed_client_gets_its_answer() {
    let (rig, app) = Rig::proxy("");
    rig.run(async {
        for cut in [0, 1, head_bytes(LENGTH), LENGTH.len() - 1] {
            let (mut client, mut backend, serving) = asked(&rig, &app, KEEP).await;
            client.end_output();
            settle().await;
            backend.send(&LENGTH[..cut]).await;
            rig.pass_seconds(4).await;
            backend.send(&LENGTH[cut..]).await;
            assert_whole(&client.rest().await);
            drop(backend);
            serving.await.expect("served");
        }
    });
    rig.assert_idle();
}

#[test]
fn a_half_closed_client_is_not_waited_for_as_long() {
    let (rig, app) = Rig::proxy("connections = 1\n");
    rig.run(async {
        // For a connection.
        let (mut client, serving) = rig.connect(4096);
        client.send(GET).await;
        client.end_output();
        rig.pass_seconds(4).await;
        assert_eq!(app.waiting(), 1);
        rig.pass_seconds(6).await;
        assert_eq!(app.waiting(), 0);
        assert!(client.rest().await.starts_with("HTTP/1.1 408 "));
        serving.await.expect("served");
        // For the header.
        let (mut client, backend, serving) = asked(&rig, &app, GET).await;
        client.end_output();
        rig.pass_seconds(4).await;
        assert!(!serving.is_finished());
        // For a slot: not at all.
        let (mut other, other_serving) = rig.connect(4096);
        other.send(GET).await;
        other.end_output();
        assert!(other.rest().await.starts_with("HTTP/1.1 408 "));
        other_serving.await.expect("served");
        rig.pass_seconds(6).await;
        assert!(client.rest().await.starts_with("HTTP/1.1 408 "));
        drop(backend);
        serving.await.expect("served");
        // For more of a body of unknown length.
        let (mut client, mut backend, serving) = asked(&rig, &app, GET).await;
        client.end_output();
        backend.send(&CHUNKS[..CHUNKS.len() - 1]).await;
        rig.pass_seconds(4).await;
        assert!(!serving.is_finished());
        rig.pass_seconds(6).await;
        assert_eq!(message(&client.rest().await, true), None);
        serving.await.expect("served");
        // For the rest of one whose length is known, as long as any other client.
        let (mut client, mut backend, serving) = asked(&rig, &app, GET).await;
        client.end_output();
        backend.send(&LENGTH[..LENGTH.len() - 1]).await;
        rig.pass_seconds(59).await;
        assert!(!serving.is_finished());
        backend.send(&LENGTH[LENGTH.len() - 1..]).await;
        assert_whole(&client.rest().await);
        serving.await.expect("served");
    });
    rig.assert_idle();
}

/// Events go on for ever: who has ended its side is taken for one that has left.
#[test]
fn a_half_closed_client_gets_no_events() {
    let (rig, app) = Rig::proxy("");
    rig.run(async {
        let (mut client, mut backend, serving) = asked(&rig, &app, GET).await;
        let events = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n";
        backend.send(events).await;
        assert!(client.arrived().await.contains("data: 1\n\n"));
        client.end_output();
        serving.await.expect("served");
        backend.rest().await;
    });
    rig.assert_idle();
}

#[test]
fn a_silent_backend_is_given_up() {
    let (rig, app) = Rig::proxy("first_byte_timeout = \"40s\"\nidle_timeout = \"50s\"\n");
    rig.run(async {
        // It sends nothing, or not all of its header.
        for cut in [0, 1, head_bytes(LENGTH) - 1] {
            let (mut client, mut backend, serving) = asked(&rig, &app, GET).await;
            backend.send(&LENGTH[..cut]).await;
            rig.pass_seconds(39).await;
            assert!(!serving.is_finished());
            rig.pass_seconds(41).await;
            let response = client.rest().await;
            assert!(response.starts_with("HTTP/1.1 504 "), "{response}");
            backend.rest().await;
            drop(client);
            serving.await.expect("served");
        }
        // It sends no more.
        for answer in [LENGTH, CHUNKS, UNTIL_CLOSE] {
            let (mut client, mut backend, serving) = asked(&rig, &app, GET).await;
            backend.send(&answer[..answer.len() - 1]).await;
            rig.pass_seconds(49).await;
            assert!(!serving.is_finished());
            rig.pass_seconds(51).await;
            assert_eq!(message(&client.all().await.0, true), None);
            backend.rest().await;
            drop(client);
            serving.await.expect("served");
        }
        // It does not take the request.
        let (mut client, serving) = rig.connect(4096);
        client.send(GET).await;
        let backend = app.accept(1).await;
        rig.pass_seconds(49).await;
        assert!(!serving.is_finished());
        rig.pass_seconds(51).await;
        assert!(client.rest().await.starts_with("HTTP/1.1 504 "));
        drop((client, backend));
        serving.await.expect("served");
    });
    rig.assert_idle();
}

#[test]
fn a_client_has_its_time_for_the_body() {
    let (rig, app) = Rig::proxy("");
    rig.run(async {
        let (mut client, backend, serving) = asked(&rig, &app, &format!("{POST}hello")).await;
        rig.pass_seconds(29).await;
        assert!(!serving.is_finished());
        rig.pass_seconds(31).await;
        assert!(client.rest().await.starts_with("HTTP/1.1 408 "));
        drop((client, backend));
        serving.await.expect("served");
    });
    rig.assert_idle();
}

/// A queue has its time, and connecting too. The clock of the runtime goes on when all tasks wait.
#[test]
fn a_request_waits_for_a_slot_or_a_connection_for_some_time() {
    let (rig, app) =
        Rig::proxy("connections = 1\nqueue_timeout = \"20s\"\nconnect_timeout = \"3s\"\n");
    rig.run(async {
        tokio::time::pause();
        let began = tokio::time::Instant::now();
        let (mut client, serving) = rig.connect(4096);
        client.send(GET).await;
        assert!(client.rest().await.starts_with("HTTP/1.1 504 "));
        assert_eq!(began.elapsed().as_secs(), 3);
        drop(client);
        serving.await.expect("served");
        let (first, backend, first_serving) = asked(&rig, &app, GET).await;
        let (mut client, serving) = rig.connect(4096);
        let began = tokio::time::Instant::now();
        client.send(GET).await;
        assert!(client.rest().await.starts_with("HTTP/1.1 503 "));
        assert_eq!(began.elapsed().as_secs(), 20);
        drop((client, first, backend));
        serving.await.expect("served");
        first_serving.await.expect("served");
    });
    rig.assert_idle();
}

/// Who waits for a slot gets it, in its order.
#[test]
fn a_slot_is_handed_on() {
    let (rig, app) = Rig::proxy("connections = 1\n");
    rig.run(async {
        let (mut first, mut backend, first_serving) = asked(&rig, &app, GET).await;
        let (mut second, second_serving) = rig.connect(4096);
        second.send(GET.replace("/app", "/app?2")).await;
        settle().await;
        let (mut third, third_serving) = rig.connect(4096);
        third.send(GET.replace("/app", "/app?3")).await;
        settle().await;
        backend.send(LENGTH).await;
        assert_whole(&first.rest().await);
        for (client, target) in [(&mut second, "GET /app?2 "), (&mut third, "GET /app?3 ")] {
            assert!(backend.until("\r\n\r\n").await.starts_with(target));
            backend.send(LENGTH).await;
            assert_whole(&client.rest().await);
        }
        drop((first, second, third));
        for serving in [first_serving, second_serving, third_serving] {
            serving.await.expect("served");
        }
    });
    rig.assert_idle();
}

/// A connection that was kept, and the client that has used it.
async fn kept(rig: &Rig, app: &Backend) -> (End, End, JoinHandle<()>) {
    let (mut client, mut backend, serving) = asked(rig, app, KEEP).await;
    backend.send(LENGTH).await;
    assert_whole(&client.until(BODY).await);
    (client, backend, serving)
}

/// A kept connection may end while a request is on its way: one that may be repeated is sent once more.
#[test]
fn a_request_on_a_kept_connection_that_has_ended_is_repeated() {
    let (rig, app) = Rig::proxy("");
    rig.run(async {
        for request in [KEEP.to_owned(), format!("{PUT}{BODY}")] {
            let (mut client, mut backend, serving) = kept(&rig, &app).await;
            client.send(&request).await;
            let first = backend.until("\r\n\r\n").await + &backend.arrived().await;
            drop(backend);
            let (mut backend, mut second) = app.asked().await;
            second += &backend.arrived().await;
            assert_eq!(first, second);
            backend.send(LENGTH).await;
            assert_whole(&client.until(BODY).await);
            drop((client, backend));
            serving.await.expect("served");
        }
    });
    rig.assert_idle();
}

#[test]
fn a_request_is_not_repeated_that_may_have_been_acted_upon() {
    let (rig, app) = Rig::proxy("");
    rig.run(async {
        for (request, answer) in [(&*format!("{POST}{BODY}"), ""), (KEEP, "H")] {
            let (mut client, mut backend, serving) = kept(&rig, &app).await;
            client.send(request).await;
            backend.until("\r\n\r\n").await;
            backend.arrived().await;
            backend.send(answer).await;
            settle().await;
            drop(backend);
            assert!(client.arrived().await.starts_with("HTTP/1.1 502 "));
            assert_eq!(app.waiting(), 0);
            drop(client);
            serving.await.expect("served");
        }
    });
    rig.assert_idle();
}

/// A kept connection that has ended meanwhile is not used, whatever the request.
#[test]
fn a_kept_connection_that_has_ended_is_not_used() {
    let (rig, app) = Rig::proxy("");
    rig.run(async {
        let (mut client, backend, serving) = kept(&rig, &app).await;
        drop(backend);
        client.send(format!("{POST}{BODY}")).await;
        let (mut backend, _) = app.asked().await;
        backend.until(BODY).await;
        backend.send(LENGTH).await;
        assert_whole(&client.until(BODY).await);
        drop((client, backend));
        serving.await.expect("served");
    });
    rig.assert_idle();
}

#[test]
fn another_backend_is_asked_when_one_refuses() {
    let route = "[[site.route]]\npath = \"/app\"\nproxy = \"app\"\n";
    let upstream = "[[upstream]]\nname = \"app\"\nto = [\"unix:/one\", \"unix:/two\"]\n";
    let rig = Rig::new(&format!("{route}{upstream}"));
    let (one, two) = (Backend::new("unix:/one"), Backend::new("unix:/two"));
    rig.run(async {
        for request in [GET.to_owned(), format!("{POST}{BODY}")] {
            let (mut client, serving) = rig.connect(4096);
            client.send(&request).await;
            settle().await;
            // They take turns.
            let (one, two) = match one.waiting() {
                1 => (&one, &two),
                _ => (&two, &one),
            };
            one.refuse().await;
            let (mut backend, _) = two.asked().await;
            backend.send(LENGTH).await;
            assert_whole(&client.arrived().await);
            drop((client, backend));
            serving.await.expect("served");
        }
    });
    rig.assert_idle();
}

#[test]
fn a_request_behind_a_proxied_one_may_be_cut_anywhere() {
    let (rig, app) = Rig::proxy("keep_alive = 0\n");
    rig.run(async {
        for cut in 0..=GET.len() {
            let both = format!("{KEEP}{}", &GET[..cut]);
            let (mut client, mut backend, serving) = asked(&rig, &app, &both).await;
            assert_eq!(client.arrived().await, "");
            client.send(&GET[cut..]).await;
            settle().await;
            backend.send(LENGTH).await;
            assert_whole(&client.until(BODY).await);
            let (mut backend, _) = app.asked().await;
            backend.send(LENGTH).await;
            assert_whole(&client.rest().await);
            drop(client);
            serving.await.expect("served");
        }
    });
    rig.assert_idle();
}

/// More is read of what follows only as long as it is little; the rest waits where it is.
#[test]
fn a_large_request_behind_a_proxied_one_waits() {
    let (rig, app) = Rig::proxy("keep_alive = 0\n");
    let body = "0123456789".repeat(4000);
    let second = format!(
        "POST /app HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    rig.run(async {
        let (mut client, mut backend, serving) =
            asked(&rig, &app, &format!("{KEEP}{second}")).await;
        settle().await;
        backend.send(LENGTH).await;
        assert_whole(&client.until(BODY).await);
        let (mut backend, _) = app.asked().await;
        assert_eq!(backend.arrived().await, body);
        backend.send(LENGTH).await;
        assert_whole(&client.rest().await);
        drop(client);
        serving.await.expect("served");
    });
    rig.assert_idle();
}

#[test]
fn an_upload_may_be_cut_anywhere() {
    for keys in [
        "keep_alive = 0\n",
        "keep_alive = 0\nbuffer_requests = true\n",
    ] {
        let (rig, app) = Rig::proxy(keys);
        let head = "POST /app HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";
        let length = format!("{head}Content-Length: 11\r\n\r\n{BODY}");
        let chunks = format!(
            "{head}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nX-End: yes\r\n\r\n"
        );
        rig.run(async {
            for request in [length, chunks] {
                for cut in head_bytes(&request)..request.len() {
                    let (mut client, serving) = rig.connect(4096);
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
                    drop(client);
                    serving.await.expect("served");
                }
            }
        });
        rig.assert_idle();
    }
}

/// A backend that takes an upload in drops gets all of it.
#[test]
fn an_upload_may_be_taken_in_drops() {
    let (rig, app) = Rig::proxy("");
    rig.run(async {
        for bytes_max in [1, 7] {
            let (mut client, serving) = rig.connect(4096);
            client.send(format!("{POST}{BODY}")).await;
            let mut backend = app.accept(bytes_max).await;
            let mut upload = backend.until("\r\n\r\n").await;
            upload += &backend.until(BODY).await;
            assert_eq!(message(&upload, false).expect("all of it").1, BODY);
            backend.send(LENGTH).await;
            assert_whole(&client.arrived().await);
            drop((client, backend));
            serving.await.expect("served");
        }
    });
    rig.assert_idle();
}

/// The end of an answer that nobody wants is waited for beside everything else, but not for long.
#[test]
fn the_rest_of_an_answer_that_nobody_wants_is_read() {
    let (rig, app) = Rig::proxy("");
    rig.run(async {
        let head = KEEP.replace("GET", "HEAD");
        let (mut client, mut backend, serving) = asked(&rig, &app, &head).await;
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
        drop((client, backend));
        serving.await.expect("served");
    });
    rig.assert_idle();
}
