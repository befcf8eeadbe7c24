//! Requests share connections, and wait for streams and connections.

use super::*;

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
    with_h2("retry.times = 0\n", async |rig, app| {
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
    with_h2("retry.times = 0\n", async |rig, app| {
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
    with_h2("retry.times = 0\n", async |rig, app| {
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

#[test]
fn more_streams_serve_those_that_wait() {
    with_h2("connections = 1\nretry.times = 0\n", async |rig, app| {
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
    with_h2("connections = 2\nretry.times = 0\n", async |rig, app| {
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
