//! Where messages are kept.

use rustix::process::Signal;

use super::{Events, json, post, publisher, text, wait_for_receivers};
use crate::servers;
use crate::support::{Client, Launch, Server, Tree, wait_until};

/// A server with the set `m`, whose messages are kept as `store` says.
fn start(store: &str, keys: &str) -> Server {
    Launch::run(&format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[listen]]\naddress = \"unix:{{own}}/socket\"\npublish = true\n\
         [mailbox_store]\n{store}\n[[mailbox]]\nname = \"m\"\n{keys}\n\
         [[site]]\nrespond = {{}}\n[[site.route]]\npath = \"/m/*\"\nmailbox = \"m\"\n"
    ))
    .start()
}

#[test]
fn a_disk_survives_restarts_and_kills() {
    let tree = Tree::new();
    let folder = tree.folder("messages").display().to_string();
    tree.chmod("messages", 0o777);
    let store = format!("store = \"disk\"\nfolder = \"{folder}\"");
    let mut last = None::<String>;
    for round in 0..4 {
        let server = start(&store, "durable = true");
        let mut publisher = publisher(&server);
        if let Some(last) = &last {
            let path = format!("/m/a?last_event_id={last}");
            let kept = json(&publisher.get(&path));
            assert_eq!(kept["gap"], serde_json::Value::Null, "{kept}");
            assert_eq!(kept["messages"].as_array().expect("a list").len(), 1);
            assert_eq!(
                text(&kept["messages"][0], "data"),
                format!("second of {}", round - 1)
            );
        }
        let first = post(&mut publisher, "a", &[], &format!("first of {round}"));
        first.assert_status(202);
        last = Some(text(&json(&first), "id").to_owned());
        post(&mut publisher, "a", &[], &format!("second of {round}")).assert_status(202);
        if round % 2 == 0 {
            let mut server = server;
            server.signal(Signal::KILL);
            server.wait();
        }
    }
}

#[test]
fn readers_leave_memory_to_publishers() {
    let tree = Tree::new();
    let folder = tree.folder("messages").display().to_string();
    tree.chmod("messages", 0o777);
    let store = format!("store = \"disk\"\nfolder = \"{folder}\"");
    let content = "x".repeat(60_000);
    let server = start(&store, "");
    for number in 0..20 {
        let name = (number % 5).to_string();
        post(&mut publisher(&server), &name, &[], &content).assert_status(202);
    }
    drop(server);
    let server = start(&store, "[limits]\nmailbox_memory = \"1MiB\"");
    let mut receivers: Vec<_> = (0..5).map(|_| server.client()).collect();
    let statuses = receivers.iter_mut().enumerate().map(|(number, client)| {
        let accept = [("Accept", "text/event-stream")];
        let path = format!("/m/{number}");
        client.send(crate::support::head("GET", &path, &accept));
        client.receive_head().expect("a header").status
    });
    let statuses: Vec<_> = statuses.collect();
    assert_eq!(statuses, [200, 200, 200, 503, 503]);
    post(&mut publisher(&server), "0", &[], &content).assert_status(201);
    drop(receivers);
    wait_until("the memory is free", || server.get("/m/4").status == 200);
}

/// Arguments of a Redis server that has synced everything it acknowledges.
pub(super) const LASTING: &str = "--appendonly yes --appendfsync always";

#[test]
fn servers_share_boxes_on_a_redis_server() {
    let redis = servers::Server::redis("");
    let port = redis.port();
    let store = format!("store = \"redis\"\nurl = \"redis://127.0.0.1:{port}\"");
    let (one, other) = (start(&store, ""), start(&store, ""));
    let (mut to_one, mut to_other) = (publisher(&one), publisher(&other));
    let mut events = Events::new(&other, "a", &[]);
    wait_for_receivers(&mut to_other, "a", 1);
    for number in 0..20 {
        let publisher = match number % 2 {
            0 => &mut to_one,
            _ => &mut to_other,
        };
        let answer = post(publisher, "a", &[], &number.to_string());
        // The receiver is at the other one.
        let (status, receivers) = [(202, 0), (201, 1)][number % 2];
        answer.assert_status(status);
        assert_eq!(json(&answer)["receivers_here"], receivers);
        let event = events.next().expect("an event");
        assert_eq!(event.data, number.to_string());
        assert_eq!(event.id, text(&json(&answer), "id"));
    }
}

#[test]
fn a_server_without_its_redis_server_says_so() {
    let port = servers::free("127.0.0.1").port();
    let server = start(
        &format!("store = \"redis\"\nurl = \"redis://127.0.0.1:{port}\""),
        "",
    );
    post(&mut publisher(&server), "a", &[], "x").assert_status(503);
}

#[test]
fn an_outage_of_a_redis_server_is_reported_once() {
    let mut redis = servers::Server::redis("");
    let port = redis.port();
    let server = start(
        &format!("store = \"redis\"\nurl = \"redis://127.0.0.1:{port}\""),
        "[admin]\nlisten = \"unix:{own}/admin\"",
    );
    let is_up = |expected: bool| {
        let admin = server.own("admin");
        let answer = Client::unix(&admin).get("/status.json");
        let state = text(&json(&answer)["mailboxes"], "store_state").to_owned();
        let metric = server.metrics(&admin).sum("levity_mailbox_store_up");
        state == if expected { "up" } else { "down" } && (metric > 0.0) == expected
    };
    post(&mut publisher(&server), "a", &[], "0").assert_status(202);
    assert!(is_up(true));
    redis.stop();
    server.says("mailboxes: the store is down: ");
    wait_until("the state is known", || is_up(false));
    for _ in 0..3 {
        post(&mut publisher(&server), "a", &[], "1").assert_status(503);
    }
    redis.start();
    server.says("mailboxes: the store is back after ");
    wait_until("the state is known", || is_up(true));
    let post = || post(&mut publisher(&server), "a", &[], "2").status;
    wait_until("messages are taken", || post() == 202);
    assert_eq!(server.stderr().matches("the store is down").count(), 1);
}

#[test]
fn a_store_that_cannot_be_used_is_an_error_at_start() {
    let tree = Tree::new();
    let file = tree.file("messages", "a file").display().to_string();
    let launch = Launch::run(&format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[mailbox_store]\nstore = \"disk\"\nfolder = \"{file}\"\n\
         [[site]]\nrespond = {{}}\n"
    ));
    let error = launch.try_start().err().expect("it does not start");
    assert!(
        error.contains("`folder`") && error.contains(&file),
        "{error}"
    );
}

/// A summary reads no message: it needs no memory, and keeps nobody from publishing.
#[test]
fn those_who_ask_how_much_there_is_need_no_memory() {
    let tree = Tree::new();
    let folder = tree.folder("messages").display().to_string();
    tree.chmod("messages", 0o777);
    let store = format!("store = \"disk\"\nfolder = \"{folder}\"");
    let keys = "bytes = \"6MiB\"\n[limits]\nmailbox_memory = \"2MiB\"";
    let server = start(&store, keys);
    let (content, mut publisher) = ("x".repeat(60_000), publisher(&server));
    for _ in 0..80 {
        post(&mut publisher, "large", &[], &content).assert_status(202);
    }
    let mut askers: Vec<_> = (0..50).map(|_| server.client()).collect();
    for _ in 0..5 {
        for client in &mut askers {
            client.send(crate::support::head("HEAD", "/m/large", &[]));
        }
        post(&mut publisher, "other", &[], "x").assert_status(202);
        for client in &mut askers {
            assert_eq!(client.receive_head().expect("a header").status, 200);
        }
    }
    assert_eq!(json(&server.get("/m/large?info"))["messages"], 64);
}
