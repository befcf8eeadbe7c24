//! What receivers get, in which form, and from where on.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::{Events, SOON, json, launch, post, publisher, start, text, wait_for_receivers};
use crate::support::{frames, wait_until};

#[test]
fn a_receiver_that_comes_back_gets_the_rest() {
    let server = start("");
    let mut publisher = publisher(&server);
    let mut events = Events::new(&server, "a", &[("Last-Event-ID", "earliest")]);
    post(&mut publisher, "a", &[], "one");
    let first = events.next().expect("an event");
    assert_eq!(first.data, "one");
    drop(events);
    for message in ["two", "three"] {
        post(&mut publisher, "a", &[], message);
    }
    let mut events = Events::new(&server, "a", &[("Last-Event-ID", &first.id)]);
    assert_eq!([events.data(), events.data()], ["two", "three"]);
    post(&mut publisher, "a", &[], "four");
    assert_eq!(events.data(), "four");
}

#[test]
fn a_topic_begins_with_what_is_new() {
    let server = start("");
    let mut publisher = publisher(&server);
    post(&mut publisher, "a", &[], "old");
    let mut events = Events::new(&server, "a", &[]);
    post(&mut publisher, "a", &[], "new");
    assert_eq!(events.data(), "new");
    let mut all = Events::new(&server, "a?last_event_id=earliest", &[]);
    assert_eq!([all.data(), all.data()], ["old", "new"]);
}

#[test]
fn an_inbox_begins_with_what_was_not_read() {
    let server = start("mode = \"inbox\"");
    let mut publisher = publisher(&server);
    for message in ["one", "two"] {
        post(&mut publisher, "a", &[], message);
    }
    let mut events = Events::new(&server, "a", &[]);
    assert_eq!([events.data(), events.data()], ["one", "two"]);
    drop(events);
    wait_for_receivers(&mut publisher, "a", 0);
    post(&mut publisher, "a", &[], "three");
    assert_eq!(Events::new(&server, "a", &[]).data(), "three");
}

/// A poll whose client leaves before it has the response brings nothing.
#[test]
fn an_inbox_keeps_what_a_poll_has_not_sent() {
    let server = start("mode = \"inbox\"");
    let mut publisher = publisher(&server);
    post(&mut publisher, "a", &[], "one");
    let wait = [("prefer", "wait=25")];
    let mut blocked = server.client();
    blocked.send([frames::preface(0), frames::get_with(1, "/m/a", &wait)].concat());
    let head = [frames::HEADERS, frames::END_HEADERS, 0, 0, 0, 1];
    blocked.read_through(&head);
    blocked.send(frames::frame(frames::RST_STREAM, 0, 1, &8u32.to_be_bytes()));
    wait_for_receivers(&mut publisher, "a", 0);
    let mut client = server.client();
    let again = client.get_with("/m/a", &wait);
    assert_eq!(text(&json(&again)["messages"][0], "data"), "one");
    post(&mut publisher, "a", &[], "two");
    let next = client.get_with("/m/a", &wait);
    assert_eq!(text(&json(&next)["messages"][0], "data"), "two");
}

#[test]
fn a_lost_cursor_is_announced() {
    let server = start("messages = 2");
    let mut publisher = publisher(&server);
    let first = json(&post(&mut publisher, "a", &[], "0"));
    for message in ["1", "2", "3"] {
        post(&mut publisher, "a", &[], message);
    }
    for id in [text(&first, "id"), "1-1", "of another server"] {
        let mut events = Events::new(&server, "a", &[("Last-Event-ID", id)]);
        let gap = events.next().expect("an event");
        assert_eq!(gap.event, "gap", "{id}");
        assert_eq!([events.data(), events.data()], ["2", "3"]);
        let mut again = Events::new(&server, "a", &[("Last-Event-ID", &gap.id)]);
        assert_eq!([again.data(), again.data()], ["2", "3"]);
        let headers = [("Accept", "text/event-stream"), ("Last-Event-ID", id)];
        let mut client = server.client();
        client.send(crate::support::head("GET", "/m/a", &headers));
        let answer = client.receive_head().expect("a header");
        assert_eq!(answer.field("mailbox-gap"), gap.id, "{id}");
    }
}

/// All messages of the box `a`, in the order of the pages, and the number of these.
fn pages(client: &mut crate::support::Client) -> (Vec<serde_json::Value>, usize) {
    let (mut messages, mut last, mut count) = (Vec::new(), "earliest".to_owned(), 0);
    loop {
        let page = json(&client.get(&format!("/m/a?last_event_id={last}")));
        let of_page = page["messages"].as_array().expect("a list");
        if of_page.is_empty() {
            return (messages, count);
        }
        count += 1;
        messages.extend_from_slice(of_page);
        text(&page, "last").clone_into(&mut last);
    }
}

#[test]
fn messages_come_in_pages_of_a_size() {
    let server = start("message_bytes = \"1MiB\"\nbytes = \"8MiB\"");
    let mut publisher = publisher(&server);
    let long = "\u{1}\"\u{20ac}x".repeat(50_000);
    let binary = vec![0xff; 300_001];
    for _ in 0..2 {
        post(&mut publisher, "a", &[], &long).assert_status(202);
    }
    let length = [("Content-Length", "300001")];
    publisher.send(crate::support::head("POST", "/m/a", &length));
    publisher.send(&binary);
    publisher.receive().assert_status(202);
    for _ in 0..5 {
        post(&mut publisher, "a", &[("Mailbox-Event", "}")], "short").assert_status(202);
    }
    let (messages, count) = pages(&mut publisher);
    assert_eq!((messages.len(), count), (8, 4));
    assert!(messages[..2].iter().all(|one| text(one, "data") == long));
    assert_eq!(
        text(&messages[2], "base64"),
        BASE64_STANDARD.encode(&binary)
    );
    let is_short = |one| (text(one, "data"), text(one, "event")) == ("short", "}");
    assert!(messages[3..].iter().all(is_short));
}

/// Otherwise a client that takes nothing could have any number of them.
#[test]
fn one_who_reads_what_is_kept_counts_as_a_receiver() {
    let server = start("receivers_per_client = 1");
    let mut publisher = publisher(&server);
    post(&mut publisher, "a", &[], "x").assert_status(202);
    let events = Events::new(&server, "a", &[]);
    server.get("/m/a").assert_status(429);
    drop(events);
    wait_until("the receiver has gone", || server.get("/m/a").status == 200);
    server.get("/m/a").assert_status(200);
}

#[test]
fn all_loops_have_the_messages_of_a_box() {
    let server = launch("").workers(3).start();
    let mut publisher = publisher(&server);
    for name in ["a", "b", "c", "d"] {
        let mut receivers: Vec<_> = (0..12).map(|_| Events::new(&server, name, &[])).collect();
        wait_for_receivers(&mut publisher, name, 12);
        for number in 0..20 {
            post(&mut publisher, name, &[], &format!("{name}{number}"));
        }
        for events in &mut receivers {
            for number in 0..20 {
                assert_eq!(events.data(), format!("{name}{number}"));
            }
        }
    }
}

#[test]
fn a_long_poll_waits_for_a_message() {
    let server = start("");
    let mut publisher = publisher(&server);
    let mut client = server.client();
    let waiting = client.get_with("/m/a", &[("Prefer", "wait=0")]);
    waiting.assert_status(204);
    client.send(crate::support::head(
        "GET",
        "/m/a",
        &[("Prefer", "wait=25")],
    ));
    wait_for_receivers(&mut publisher, "a", 1);
    post(&mut publisher, "a", &[], "one");
    let answer = client.receive();
    let body = json(&answer);
    assert_eq!(text(&body["messages"][0], "data"), "one");
    post(&mut publisher, "a", &[], "two");
    let next = format!("/m/a?last_event_id={}", text(&body, "last"));
    assert!(answer.field("link").contains(text(&body, "last")));
    let body = json(&client.get_with(&next, &[("Prefer", "wait=25")]));
    assert_eq!(text(&body["messages"][0], "data"), "two");
}

#[test]
fn lines_of_json_and_plain_content_are_streams_too() {
    let server = start("");
    let mut publisher = publisher(&server);
    let open = |accept| {
        let mut client = server.client();
        client.send(crate::support::head("GET", "/m/a", &[("Accept", accept)]));
        client.receive_head().expect("a header").assert_status(200);
        client
    };
    let mut lines = open("application/x-ndjson");
    let mut content = open("application/octet-stream");
    wait_for_receivers(&mut publisher, "a", 2);
    post(
        &mut publisher,
        "a",
        &[("Mailbox-Event", "e"), ("Content-Type", "text/plain")],
        "x\"",
    );
    let line = String::from_utf8(lines.read_through(b"\n\r\n")).expect("text");
    assert!(
        line.contains(r#""data":"x\"""#) && line.contains(r#""event":"e""#),
        "{line}"
    );
    assert_eq!(content.read_through(b"x\"\r\n"), b"2\r\nx\"\r\n");
}

#[test]
fn a_removed_box_ends_its_receivers() {
    let server = start("");
    let mut publisher = publisher(&server);
    let mut events = Events::new(&server, "a", &[]);
    wait_for_receivers(&mut publisher, "a", 1);
    publisher.request("DELETE", "/m/a", &[]).assert_status(204);
    assert_eq!(events.next(), None);
    publisher.get("/m/a").assert_status(404);
    publisher.request("DELETE", "/m/a", &[]).assert_status(404);
}

#[test]
fn receivers_are_bounded_and_leave_no_trace() {
    let server = start("receivers_per_client = 2");
    let mut publisher = publisher(&server);
    let first = Events::new(&server, "a", &[]);
    let second = Events::new(&server, "b", &[]);
    let accept = [("Accept", "text/event-stream")];
    server.get_with("/m/c", &accept).assert_status(429);
    drop(first);
    wait_until("it is gone", || {
        let mut client = server.client();
        client.send(crate::support::head("GET", "/m/c", &accept));
        client.receive_head().expect("a header").status == 200
    });
    drop(second);
    wait_for_receivers(&mut publisher, "b", 0);
}

#[test]
fn an_idle_box_is_removed() {
    let server = start("idle = \"1s\"");
    let mut publisher = publisher(&server);
    post(&mut publisher, "a", &[], "x").assert_status(202);
    wait_until("it is gone", || publisher.get("/m/a").status == 404);
}

#[test]
fn heartbeats_keep_a_connection_alive_and_rotation_ends_it() {
    let server = start("heartbeat = \"1s\"\nrotate = \"2s\"");
    let mut client = server.client();
    client.read_timeout(SOON);
    client.send(crate::support::head(
        "GET",
        "/m/a",
        &[("Accept", "text/event-stream")],
    ));
    client.receive_head().expect("a header").assert_status(200);
    client.read_through(b"retry: ");
    client.read_through(b":\n\n");
    client.read_through(b"0\r\n\r\n");
    client.assert_closed();
}

#[test]
fn receivers_survive_a_reload() {
    let server = start("");
    let mut publisher = publisher(&server);
    let mut events = Events::new(&server, "a", &[]);
    wait_for_receivers(&mut publisher, "a", 1);
    for _ in 0..3 {
        server.reload(&["name = \"m\""], &["name = \"m\""]);
        post(&mut publisher, "a", &[], "still here").assert_status(201);
        assert_eq!(events.data(), "still here");
    }
}

/// A receiver of a topic that has got nothing yet misses nothing when it loses its connection.
#[test]
fn a_receiver_without_a_message_knows_where_to_continue() {
    let server = start("");
    let mut publisher = publisher(&server);
    let mut client = server.client();
    let accept = [("Accept", "text/event-stream")];
    client.send(crate::support::head("GET", "/m/a", &accept));
    let head = client.receive_head().expect("a header");
    let last = head.field("mailbox-last").to_owned();
    client.read_through(format!("\n\nid: {last}\n\n").as_bytes());
    drop(client);
    post(&mut publisher, "a", &[], "meanwhile");
    let mut events = Events::new(&server, "a", &[("Last-Event-ID", &last)]);
    assert_eq!(events.data(), "meanwhile");
}
