//! Who may publish, and what publishers are told.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Signal;

use super::{Events, KEY, json, launch, post, publisher, start, text, wait_for_receivers};
use crate::support::{Client, Launch, Tree, head, is_root};

#[test]
fn a_message_gets_an_id_and_its_receivers_are_counted() {
    let server = start("");
    let mut publisher = publisher(&server);
    let first = post(&mut publisher, "a", &[], "one");
    first.assert_status(202);
    let first = json(&first);
    assert_eq!(
        (text(&first, "mailbox"), &first["receivers_here"]),
        ("a", &0.into())
    );
    let mut events = Events::new(&server, "a", &[]);
    wait_for_receivers(&mut publisher, "a", 1);
    let second = post(&mut publisher, "a", &[], "two");
    second.assert_status(201);
    let second = json(&second);
    assert_eq!(second["receivers_here"], 1);
    let event = events.next().expect("an event");
    assert_eq!((&*event.id, &*event.data), (text(&second, "id"), "two"));
}

#[test]
fn one_request_goes_to_many_boxes() {
    let server = start("");
    let mut publisher = publisher(&server);
    let answer = post(&mut publisher, "", &[("Mailbox-Deliver", "a, b,c")], "x");
    answer.assert_status(202);
    let boxes = json(&answer);
    let boxes = boxes["mailboxes"].as_array().expect("a list");
    let names: Vec<_> = boxes.iter().map(|one| text(one, "mailbox")).collect();
    assert_eq!(names, ["a", "b", "c"]);
    for name in names {
        let buffered = json(&publisher.get(&format!("/m/{name}")));
        assert_eq!(text(&buffered["messages"][0], "data"), "x");
    }
}

/// The event loop of its connection owns a third of the boxes. The others have no connection.
#[test]
fn a_request_that_a_server_completes_before_it_ends_reaches_all_boxes() {
    let mut server = launch("").workers(3).start();
    let mut publisher = publisher(&server);
    let headers = [
        ("Mailbox-Deliver", "a,b,c,d,e,f,g,h"),
        ("Content-Length", "1"),
        ("Expect", "100-continue"),
    ];
    publisher.send(head("POST", "/m/", &headers));
    publisher
        .receive_head()
        .expect("a header")
        .assert_status(100);
    server.signal(Signal::TERM);
    server.says("waiting up to");
    publisher.send("x");
    publisher.receive().assert_status(202);
    assert!(server.wait().success());
}

#[test]
fn a_message_counts_for_each_box_that_gets_it() {
    let server = start("publishes_per_second = 20");
    let mut publisher = publisher(&server);
    let names: Vec<_> = (0..64).map(|number| number.to_string()).collect();
    let headers = [("Mailbox-Deliver", &*names.join(","))];
    post(&mut publisher, "", &headers, "x").assert_status(202);
    let refused = post(&mut publisher, "", &headers, "x");
    refused.assert_status(429);
    let wait_s: u64 = refused.field("retry-after").parse().expect("seconds");
    assert!((2..=4).contains(&wait_s), "{wait_s}");
}

#[test]
fn a_message_of_an_id_is_taken_once() {
    let server = start("");
    let mut publisher = publisher(&server);
    let headers = [("Mailbox-Id", "order-7")];
    let first = json(&post(&mut publisher, "a", &headers, "x"));
    let again = json(&post(&mut publisher, "a", &headers, "y"));
    assert_eq!(text(&first, "id"), text(&again, "id"));
    assert_eq!(
        (&first["duplicate"], &again["duplicate"]),
        (&false.into(), &true.into())
    );
    let buffered = json(&publisher.get("/m/a"));
    assert_eq!(buffered["messages"].as_array().expect("a list").len(), 1);
}

/// A proxy that runs as the same user, such as nginx, need not say that it is one.
#[test]
fn without_a_key_own_processes_publish_at_the_listener_for_publishers_only() {
    let server = start("");
    let ordinary = || Client::unix(&server.own("ordinary"));
    for mut client in [server.client(), ordinary()] {
        let answer = post(&mut client, "a", &[], "x");
        answer.assert_status(403);
        let names_both =
            ["`publish = true`", "`publish_key_file`"].map(|key| answer.text().contains(key));
        assert_eq!(names_both, [true, true], "{}", answer.text());
        let mut client = ordinary();
        client.get("/m/?list").assert_status(403);
        client.request("DELETE", "/m/a", &[]).assert_status(403);
    }
    let mut publisher = publisher(&server);
    post(&mut publisher, "a", &[("Via", "1.1 x")], "x").assert_status(202);
}

#[test]
fn other_users_do_not_publish_at_the_listener_for_publishers() {
    if !is_root() {
        return;
    }
    let server = start("");
    let socket = server.own("socket");
    fs::set_permissions(&socket, Permissions::from_mode(0o777)).expect("chmod");
    let posted = Command::new("curl")
        .args(["--silent", "--data", "x", "--unix-socket"])
        .args([socket.as_os_str(), OsStr::new("http://localhost/m/a")])
        .uid(1)
        .output()
        .expect("curl");
    let answer = String::from_utf8_lossy(&posted.stdout);
    assert!(
        answer.contains("403") && answer.contains("of the user of the server and of root"),
        "{answer}"
    );
}

#[test]
fn the_shell_is_told_what_lets_it_publish() {
    let server = start("");
    let send = |socket: &str| {
        let socket = server.own(socket).display().to_string();
        let words = [
            "mailbox",
            "send",
            "--socket",
            &socket,
            "http://localhost/m/a",
            "x",
        ];
        (Launch::levity(words).ran(), socket)
    };
    let (sent, _) = send("socket");
    assert_eq!(sent.status, 0, "{}", sent.stderr);
    let (refused, socket) = send("ordinary");
    let line = format!("write `publish = true` beneath `address = \"unix:{socket}\"`\n");
    assert!(
        refused.status == 1 && refused.stderr.ends_with(&line),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_key_lets_publishers_in() {
    let tree = Tree::new();
    tree.file("key", format!("{KEY}\n"));
    let path = tree.at("key").display().to_string();
    let server = start(&format!("publish_key_file = \"{path}\""));
    let authorization = format!("Bearer {KEY}");
    for wrong in [
        "",
        "Bearer ",
        "Bearer 0123456789abcdef0123456789abcdee",
        "Basic eDp5",
    ] {
        let mut client = publisher(&server);
        let headers = [("Authorization", wrong)];
        post(&mut client, "a", &headers, "x").assert_status(401);
    }
    let headers = [("Authorization", &*authorization)];
    post(&mut server.client(), "a", &headers, "x").assert_status(202);
}

#[test]
fn the_limit_of_a_message_holds_to_the_byte() {
    let server = start("message_bytes = \"1KiB\"");
    let mut publisher = publisher(&server);
    post(&mut publisher, "a", &[], &"x".repeat(1024)).assert_status(202);
    let mut other = super::publisher(&server);
    post(&mut other, "a", &[], &"x".repeat(1025)).assert_status(413);
    let buffered = json(&publisher.get("/m/a"));
    assert_eq!(buffered["messages"].as_array().expect("a list").len(), 1);
}

/// The memory is reserved before the length is known.
#[test]
fn a_message_of_unknown_length_takes_the_memory_of_its_content() {
    let server = start("[limits]\nmailbox_memory = \"1MiB\"");
    let mut publisher = publisher(&server);
    for _ in 0..32 {
        let chunked = [("Transfer-Encoding", "chunked")];
        publisher.send(crate::support::head("POST", "/m/a", &chunked));
        publisher.send("1\r\nx\r\n0\r\n\r\n");
        publisher.receive().assert_status(202);
    }
}

#[test]
fn names_and_headers_are_checked() {
    let server = start("");
    let mut publisher = publisher(&server);
    for name in ["a%20b", "a,b", "&", ""] {
        post(&mut publisher, name, &[], "x").assert_status(400);
    }
    for header in [
        ("Mailbox-TTL", "soon"),
        ("Mailbox-TTL", "0"),
        ("Mailbox-Id", "a b"),
        ("Mailbox-Deliver", "a b"),
        ("Mailbox-Deliver", ""),
    ] {
        post(&mut publisher, "a", &[header], "x").assert_status(400);
    }
    publisher
        .request("PUT", "/m/a", &[("Content-Length", "0")])
        .assert_status(405);
}

#[test]
fn the_boxes_of_a_set_are_bounded() {
    let server = super::launch("boxes = 2").workers(1).start();
    let mut publisher = publisher(&server);
    for name in ["a", "b", "a"] {
        post(&mut publisher, name, &[], "x").assert_status(202);
    }
    post(&mut publisher, "c", &[], "x").assert_status(507);
    publisher.request("DELETE", "/m/a", &[]).assert_status(204);
    post(&mut publisher, "c", &[], "x").assert_status(202);
}
