//! Bounds on time and on numbers.

use std::time::{Duration, Instant};

use crate::support::{Client, Cut, Launch, Server, Tree, WAIT_MAX, assert_same, pass, wait_until};

/// A deadline is checked ten times per second, and the machine may be busy.
const LATE_MAX: Duration = Duration::from_secs(5);

const LARGE: usize = 32_000_000;

fn server(limits: &str) -> (Tree, Server) {
    let tree = Tree::new();
    tree.file("a", "AAA");
    tree.filled("large", LARGE);
    let tables = format!("[limits]\n{limits}\n[admin]\nlisten = \"unix:{{own}}/admin\"\n");
    let server = Launch::site(tree.path(), &tables, "").workers(1).start();
    (tree, server)
}

/// Expects what `wait` waits for to come after `limit` and not long after.
#[track_caller]
fn takes<T>(limit: Duration, wait: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = wait();
    let took = start.elapsed();
    assert!(
        took >= limit && took < limit + LATE_MAX,
        "{took:?} instead of {limit:?}"
    );
    result
}

fn ends(server: &Server, end: &str) -> f64 {
    let series = format!("levity_connection_ends_total{{end=\"{end}\"}}");
    server.metrics(&server.own("admin")).sum(&series)
}

#[test]
fn a_head_that_does_not_end() {
    let (_tree, server) = server("header_timeout = \"300ms\"");
    let mut client = server.client();
    client.send("GET /a HTTP/1.1\r\n");
    let answer = takes(Duration::from_millis(300), || client.receive());
    assert_eq!((answer.status, answer.closes()), (408, true));
    client.assert_closed();
    wait_until("it is counted", || ends(&server, "timeout") == 1.0);
}

#[test]
fn a_head_that_comes_in_drops() {
    let (_tree, server) = server("header_timeout = \"500ms\"");
    let mut client = server.client();
    client.read_timeout(Duration::from_millis(20));
    let start = Instant::now();
    let answer = loop {
        // Fails once the server has closed; its answer is still there.
        let _ = client.try_send("X");
        match client.try_receive() {
            Err(Cut::Silent) => assert!(start.elapsed() < LATE_MAX, "it waits for ever"),
            answer => break answer,
        }
    };
    assert_eq!(answer.map(|answer| answer.status), Ok(408));
}

#[test]
fn a_client_that_says_nothing() {
    let (_tree, server) = server("header_timeout = \"300ms\"");
    let mut client = server.client();
    takes(Duration::from_millis(300), || client.assert_closed());
}

#[test]
fn a_second_head_has_its_own_time() {
    let (_tree, server) = server("header_timeout = \"300ms\"");
    let mut client = server.client();
    client.get("/a").assert_status(200);
    // Longer than a head may take, which is not what an idle connection waits for.
    pass(Duration::from_millis(600));
    client.get("/a").assert_status(200);
    client.send("GET");
    takes(Duration::from_millis(300), || {
        client.receive().assert_status(408)
    });
}

#[test]
fn a_body_that_does_not_come() {
    let (_tree, server) = server("body_timeout = \"300ms\"");
    for start in [
        "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx",
        "GET /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nx",
    ] {
        let mut client = server.client();
        client.send(start);
        let answer = takes(Duration::from_millis(300), || client.receive());
        assert_eq!((answer.status, answer.closes()), (408, true), "{start}");
        client.assert_closed();
    }
}

#[test]
fn a_body_that_comes_slowly_is_waited_for() {
    let (_tree, server) = server("body_timeout = \"1s\"");
    let mut client = server.client();
    client.send("GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n");
    for _ in 0..8 {
        pass(Duration::from_millis(200));
        client.send("x");
    }
    client.receive().assert_status(200);
}

#[test]
fn an_idle_connection() {
    let (_tree, server) = server("idle_timeout = \"300ms\"");
    let mut client = server.client();
    client.get("/a").assert_status(200);
    takes(Duration::from_millis(250), || client.assert_closed());
    wait_until("it is counted", || ends(&server, "complete") == 1.0);
}

/// An empty line after a request begins no other one: the end of the wait is silent, not a 408.
#[test]
fn an_idle_connection_after_an_empty_line() {
    let (_tree, server) = server("header_timeout = \"100ms\"\nidle_timeout = \"500ms\"");
    let mut client = server.client();
    client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n\r\n");
    client.receive().assert_status(200);
    client.assert_closed();
}

#[test]
fn a_busy_connection_is_not_idle() {
    let (_tree, server) = server("idle_timeout = \"1s\"");
    let mut client = server.client();
    for _ in 0..8 {
        client.get("/a").assert_status(200);
        pass(Duration::from_millis(200));
    }
}

#[test]
fn a_reader_that_stops() {
    let (_tree, server) = server("send_timeout = \"500ms\"");
    let mut client = Client::narrow(server.address());
    client.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_until("it is given up", || ends(&server, "timeout") == 1.0);
    let got = client.read_to_end().body();
    assert!(got.len() < LARGE, "all of it came");
}

#[test]
fn a_reader_that_is_slow() {
    let (_tree, server) = server("send_timeout = \"1s\"");
    let mut client = Client::narrow(server.address());
    client.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
    for _ in 0..15 {
        pass(Duration::from_millis(200));
        client.read_exactly(100_000);
    }
}

#[test]
fn one_connection_too_many_waits() {
    let (_tree, server) = server("connections = 2");
    let (mut first, mut second) = (server.client(), server.client());
    for client in [&mut first, &mut second] {
        client.get("/a").assert_status(200);
        client.send("GET /a HT");
    }
    let mut third = server.client();
    third.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    third.read_timeout(Duration::from_millis(300));
    assert_eq!(
        third.try_receive().map(|answer| answer.status),
        Err(Cut::Silent)
    );
    second.send("TP/1.1\r\nHost: x\r\n\r\n");
    second.receive().assert_status(200);
    drop(first);
    third.read_timeout(WAIT_MAX);
    third.receive().assert_status(200);
}

#[test]
fn idle_connections_give_way_to_one_too_many() {
    let (_tree, server) = server("connections = 3");
    let [mut busy, mut idle, mut last] = [(); 3].map(|()| server.client());
    for client in [&mut busy, &mut idle, &mut last] {
        client.get("/a").assert_status(200);
    }
    busy.send("GET /a HT");
    let mut new = server.client();
    new.get("/a").assert_status(200);
    idle.assert_closed();
    last.get("/a").assert_status(200);
    busy.send("TP/1.1\r\nHost: x\r\n\r\n");
    busy.receive().assert_status(200);
}

/// A place that is free is free for the clients of every listener.
#[test]
fn a_place_belongs_to_no_listener() {
    let tree = Tree::new();
    tree.file("a", "AAA");
    let tables = "[limits]\nconnections = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n";
    let server = Launch::site(tree.path(), tables, "").workers(1).start();
    let addresses = server.addresses();
    for round in 0..10 {
        for &address in [&addresses[0], &addresses[0], &addresses[1], &addresses[1]] {
            let mut client = Client::new(address);
            client.send("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            let answer = client.try_receive().map(|answer| answer.status);
            assert_eq!(answer, Ok(200), "round {round} on {address}");
        }
    }
    assert_eq!(addresses.len(), 2);
}

fn with_few_descriptors(tree: &Tree) -> Server {
    let tables = "[limits]\nconnections = 1000\n[admin]\nlisten = \"unix:{own}/admin\"\n";
    // A file would need a descriptor too.
    let route = "[[site.route]]\npath = \"/said\"\nrespond = { body = \"AAA\" }";
    Launch::site(tree.path(), tables, route)
        .workers(1)
        .descriptors_max(64)
        .start()
}

/// Without descriptors, idle connections give way to new ones, the oldest first.
#[test]
fn out_of_descriptors() {
    let tree = Tree::new();
    tree.file("a", "AAA");
    let server = with_few_descriptors(&tree);
    let mut first = server.client();
    first.get("/a").assert_status(200);
    let one = |_| {
        let mut client = server.client();
        client.get("/a").assert_status(200);
        client
    };
    let mut crowd: Vec<_> = (0..80).map(one).collect();
    assert_eq!(server.get("/a").text(), "AAA");
    assert_eq!(crowd.last_mut().expect("a client").get("/a").text(), "AAA");
    first.assert_closed();
    let metrics = server.metrics(&server.own("admin"));
    assert!(metrics.sum("levity_idle_given_up_total") > 0.0);
    assert_eq!(metrics.sum("levity_accept_pauses_total"), 0.0);
}

/// Where no connection is idle, nobody is accepted, and those who are in are served on.
#[test]
fn out_of_descriptors_and_of_idle_connections() {
    let tree = Tree::new();
    tree.file("a", "AAA");
    let server = with_few_descriptors(&tree);
    let crowd: Vec<_> = (0..80)
        .map(|_| {
            let mut client = server.client();
            client.send("GET /said HTTP/1.1\r\n");
            client
        })
        .collect();
    server.says("cannot accept, will try again");
    let mut crowd = crowd.into_iter();
    let mut first = crowd.next().expect("a client");
    first.send("Host: a\r\n\r\n");
    assert_eq!(first.receive().text(), "AAA");
    drop(crowd);
    assert_eq!(server.get("/a").text(), "AAA");
    let metrics = server.metrics(&server.own("admin"));
    assert!(metrics.sum("levity_accept_pauses_total") > 0.0);
}

#[test]
fn a_stopped_reader_does_not_hold_up_others() {
    let (_tree, server) = server("");
    let mut stopped = Client::narrow(server.address());
    stopped.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
    stopped.receive_head().expect("a head").assert_status(200);
    let bytes = server.get("/large").body;
    assert_same(&stopped.read_exactly(LARGE), &bytes);
}
