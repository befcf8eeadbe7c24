//! Clients and backends that are slow or silent.

use super::*;

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
