//! Durable streams: the conformance suite of the protocol, and what it does not ask.

use std::time::Duration;

use rustix::process::Signal;

use super::KEY;
use crate::clients::{package, run, url};
use crate::servers;
use crate::support::{Answer, Client, Launch, Server, Tree, head};

/// The suite takes three quarters of a minute, most of which it waits for streams to expire.
const SUITE_TIME_MAX: Duration = Duration::from_secs(300);

/// The time of one test of the suite: some compare a hundred thousand bytes one by one.
const TEST_TIME: &str = "--testTimeout=60000";

/// A server with streams at `/v1/stream/`, with further keys of the set.
struct Streams {
    server: Server,
    _tree: Tree,
}

impl Streams {
    fn new(keys: &str) -> Self {
        Self::start(keys, |launch| launch)
    }

    fn start(keys: &str, change: impl FnOnce(Launch) -> Launch) -> Self {
        let tree = Tree::new();
        let key = tree.file("key", KEY);
        let launch = Launch::run(&format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\n\
             [[mailbox]]\nname = \"s\"\nprotocol = \"durable-streams\"\npublish_key_file = \"{}\"\n{keys}\n\
             [[site]]\nrespond = {{}}\n\
             [[site.route]]\npath = \"/v1/stream/*\"\nmailbox = \"s\"\n\
             cors = {{ origins = [\"*\"], headers = [\"*\"] }}\n",
            key.display()
        ));
        Self {
            server: change(launch).start(),
            _tree: tree,
        }
    }

    fn client(&self) -> Client {
        self.server.client()
    }

    /// Sends a request of a writer.
    fn write(&self, method: &str, name: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let (mut client, length) = (self.client(), body.len().to_string());
        let authorization = format!("Bearer {KEY}");
        let mut headers = headers.to_vec();
        headers.push(("Authorization", &authorization));
        headers.push(("Content-Length", &length));
        client.send(head(method, &format!("/v1/stream/{name}"), &headers));
        client.send(body);
        client.receive()
    }

    fn make(&self, name: &str, content_type: &str) {
        let headers = [("Content-Type", content_type)];
        self.write("PUT", name, &headers, "").assert_status(201);
    }

    fn append(&self, name: &str, content_type: &str, body: &str) -> String {
        let headers = [("Content-Type", content_type)];
        let answer = self.write("POST", name, &headers, body);
        answer.assert_status(204);
        answer.field("stream-next-offset").to_owned()
    }

    fn read(&self, name: &str) -> Answer {
        self.client().get(&format!("/v1/stream/{name}"))
    }
}

/// The keys of the set in docs/mailboxes.md with which the suite passes, behind those of each set here.
fn documented_bounds() -> &'static str {
    let page = include_str!("../../../../../docs/mailboxes.md");
    let (_, set) = page
        .split_once("cases of its conformance suite pass with this set")
        .expect("the set");
    let (_, bounds) = set
        .split_once("publish_key_file = \"key\"\n")
        .expect("its key");
    bounds.split_once("\n\n").expect("its end").0
}

/// A folder in which a store on a disk may keep messages, and the keys that say so.
fn on_a_disk() -> (Tree, String) {
    let tree = Tree::new();
    let folder = tree.folder("messages").display().to_string();
    tree.chmod("messages", 0o777);
    let keys = format!("durable = true\n[mailbox_store]\nstore = \"disk\"\nfolder = \"{folder}\"");
    (tree, keys)
}

#[test]
fn the_conformance_suite() {
    conforms(documented_bounds());
}

#[test]
fn the_conformance_suite_on_a_disk() {
    let (_folder, keys) = on_a_disk();
    conforms(&format!("{}\n{keys}", documented_bounds()));
}

#[test]
fn the_conformance_suite_on_a_redis_server() {
    let redis = servers::Server::redis("");
    let keys = format!(
        "{}\n[mailbox_store]\nstore = \"redis\"\nurl = \"redis://127.0.0.1:{}\"",
        documented_bounds(),
        redis.port()
    );
    conforms(&keys);
}

fn conforms(keys: &str) {
    let streams = Streams::new(keys);
    let folder = Tree::new();
    folder.file(
        "durable-streams.test.mjs",
        include_str!("../../apps/node/durable-streams.test.mjs"),
    );
    folder.link(package(""), "node_modules");
    let base = url(&streams.server, "");
    let environment = [
        &format!("STREAMS_URL={}", base.trim_end_matches('/')),
        &format!("STREAMS_KEY={KEY}"),
        "NO_COLOR=1",
    ];
    let vitest = package("vitest/vitest.mjs");
    let vitest = vitest.to_str().expect("a path in UTF-8");
    let words = [&environment[..], &["node", vitest, "run", TEST_TIME]].concat();
    let output = run(SUITE_TIME_MAX, "env", &words, folder.path());
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    // Those that it leaves out by default are of subscriptions.
    assert!(said.contains("332 passed | 6 skipped"), "{said}");
}

#[test]
fn streams_survive_a_kill() {
    let (_folder, keys) = on_a_disk();
    let producer = |number| {
        [
            ("Content-Type", "text/plain"),
            ("Producer-Id", "p"),
            ("Producer-Epoch", "0"),
            ("Producer-Seq", number),
        ]
    };
    let mut streams = Streams::new(&keys);
    streams.make("a", "text/plain");
    let offset = streams.append("a", "text/plain", "one ");
    streams
        .write("POST", "a", &producer("0"), "two ")
        .assert_status(200);
    let fork = [("Stream-Forked-From", "/v1/stream/a")];
    streams.write("PUT", "b", &fork, "").assert_status(201);
    streams.append("b", "text/plain", "of the fork");
    streams.server.signal(Signal::KILL);
    streams.server.wait();
    let streams = Streams::new(&keys);
    assert_eq!(streams.read(&format!("a?offset={offset}")).body, b"two ");
    // A retry is recognised.
    streams
        .write("POST", "a", &producer("0"), "two ")
        .assert_status(204);
    streams
        .write("POST", "a", &producer("1"), "three")
        .assert_status(200);
    assert_eq!(streams.read("a").body, b"one two three");
    assert_eq!(streams.read("b").body, b"one two of the fork");
}

#[test]
fn servers_share_streams_on_a_redis_server() {
    let redis = servers::Server::redis("");
    let url = format!("redis://127.0.0.1:{}", redis.port());
    let keys = format!("[mailbox_store]\nstore = \"redis\"\nurl = \"{url}\"");
    let (one, other) = (Streams::new(&keys), Streams::new(&keys));
    one.make("a", "text/plain");
    let mut reader = other.client();
    reader.send(head("GET", "/v1/stream/a?offset=-1&live=sse", &[]));
    reader.receive_head().expect("a header").assert_status(200);
    let mut read = String::new();
    for number in 0..10 {
        let writer = [&one, &other][number % 2];
        writer.append("a", "text/plain", &format!("<{number}>"));
        while !read.contains(&format!("<{number}>")) {
            read.push_str(&chunk(&mut reader));
        }
    }
    let headers = [("Stream-Closed", "true")];
    one.write("POST", "a", &headers, "").assert_status(204);
    let headers = [("Content-Type", "text/plain")];
    other.write("POST", "a", &headers, "x").assert_status(409);
}

#[test]
fn only_writers_need_the_key() {
    let streams = Streams::new("");
    streams.make("a", "text/plain");
    for method in ["PUT", "POST", "DELETE"] {
        let headers = [("Content-Length", "0"), ("Stream-Closed", "true")];
        let mut stranger = streams.client();
        let answer = stranger.request(method, "/v1/stream/a", &headers);
        answer.assert_status(401);
    }
    streams.read("a").assert_status(200);
    streams
        .client()
        .request("HEAD", "/v1/stream/a", &[])
        .assert_status(200);
}

#[test]
fn a_stream_is_bounded_and_loses_nothing() {
    let streams = Streams::new("bytes = \"2KiB\"\nmessage_bytes = \"1KiB\"");
    streams.make("a", "text/plain");
    // Each append counts 160 bytes more.
    let text = "x".repeat(1000);
    streams.append("a", "text/plain", &text);
    let headers = [("Content-Type", "text/plain")];
    streams
        .write("POST", "a", &headers, &"y".repeat(729))
        .assert_status(413);
    let rest = "y".repeat(728);
    streams.append("a", "text/plain", &rest);
    streams.write("POST", "a", &headers, "z").assert_status(413);
    streams
        .write("POST", "a", &headers, &"x".repeat(1025))
        .assert_status(413);
    let read = streams.read("a");
    assert_eq!(read.body, format!("{text}{rest}").into_bytes());
    assert_eq!(read.field("content-security-policy"), "sandbox");
}

#[test]
fn the_number_of_streams_is_bounded_to_the_last() {
    let streams = Streams::start("boxes = 3", |launch| launch.workers(3));
    let headers = [("Content-Type", "text/plain")];
    for name in ["a", "b", "c"] {
        streams.make(name, "text/plain");
    }
    streams.write("PUT", "d", &headers, "").assert_status(507);
    streams.write("DELETE", "a", &[], "").assert_status(204);
    streams.make("d", "text/plain");
}

#[test]
fn memory_is_bounded_for_all_streams() {
    let keys = "bytes = \"512KiB\"\n[limits]\nmailbox_memory = \"1MiB\"";
    let streams = Streams::new(keys);
    let headers = [("Content-Type", "text/plain")];
    let text = "x".repeat(60 * 1024);
    let appended = |name: &str| {
        streams.make(name, "text/plain");
        let statuses = (0..8).map(|_| streams.write("POST", name, &headers, &text).status);
        statuses.take_while(|&status| status == 204).count()
    };
    let counts = ["a", "b", "c"].map(appended);
    assert!(
        counts[0] == 8 && counts[1] == 8 && counts[2] < 8,
        "{counts:?}"
    );
    streams
        .write("POST", "c", &headers, &text)
        .assert_status(507);
    streams.write("DELETE", "a", &[], "").assert_status(204);
    streams.append("c", "text/plain", &text);
}

#[test]
fn every_loop_reads_what_any_loop_has_appended() {
    let streams = Streams::start("", |launch| launch.workers(3));
    for name in ["a", "b", "c", "d"] {
        streams.make(name, "application/json");
        let mut readers: Vec<_> = (0..12)
            .map(|_| {
                let mut client = streams.client();
                let target = format!("/v1/stream/{name}?offset=now&live=sse");
                client.send(head("GET", &target, &[]));
                client.receive_head().expect("a header").assert_status(200);
                client
            })
            .collect();
        for number in 0..10 {
            streams.append(name, "application/json", &format!("[{number}]"));
        }
        for client in &mut readers {
            let mut read = String::new();
            while !read.contains("9]") {
                read.push_str(&chunk(client));
            }
            let data = read.lines().filter_map(|line| line.strip_prefix("data:["));
            let numbers: String = data.map(|data| data.trim_end_matches(']')).collect();
            assert_eq!(numbers.replace(',', ""), "0123456789");
        }
    }
}

/// The next chunk of a response.
fn chunk(client: &mut Client) -> String {
    let line = client.read_through(b"\r\n");
    let size = String::from_utf8(line).expect("a size of a chunk");
    let size = usize::from_str_radix(size.trim(), 16).expect("a size of a chunk");
    let chunk = client.read_exactly(size);
    client.read_exactly(2);
    String::from_utf8(chunk).expect("text")
}

#[test]
fn a_reader_is_told_that_its_stream_is_another_one() {
    let streams = Streams::new("");
    streams.make("a", "text/plain");
    let offset = streams.append("a", "text/plain", "old");
    streams.write("DELETE", "a", &[], "").assert_status(204);
    streams.make("a", "text/plain");
    streams.append("a", "text/plain", "new");
    streams
        .read(&format!("a?offset={offset}"))
        .assert_status(410);
}

#[test]
fn events_end_when_the_stream_is_removed() {
    let streams = Streams::new("");
    streams.make("a", "text/plain");
    let mut client = streams.client();
    client.send(head("GET", "/v1/stream/a?offset=-1&live=sse", &[]));
    client.receive_head().expect("a header").assert_status(200);
    assert!(chunk(&mut client).contains("\"upToDate\":true"));
    streams.write("DELETE", "a", &[], "").assert_status(204);
    assert_eq!(chunk(&mut client), "");
}

#[test]
fn an_idle_reader_gets_signs_of_life() {
    let streams = Streams::new("heartbeat = \"1s\"");
    streams.make("a", "text/plain");
    let mut client = streams.client();
    client.send(head("GET", "/v1/stream/a?offset=-1&live=sse", &[]));
    client.receive_head().expect("a header").assert_status(200);
    assert!(chunk(&mut client).contains("event: control"));
    assert_eq!(chunk(&mut client), ":\n\n");
    // A long poll answers instead.
    let poll = streams.read("a?offset=now&live=long-poll");
    poll.assert_status(204);
    assert_eq!(poll.field("stream-up-to-date"), "true");
}

#[test]
fn large_content_arrives_as_it_is() {
    let streams = Streams::new("bytes = \"8MiB\"\nmessage_bytes = \"2MiB\"");
    streams.make("text", "text/plain");
    streams.make("json", "application/json");
    let text: String = (0..200_000).map(|number| format!("{number} ")).collect();
    streams.append("text", "text/plain", &text);
    let numbers: Vec<u32> = (0..200_000).collect();
    let json = serde_json::to_string(&numbers).expect("JSON");
    streams.append("json", "application/json", &json);
    assert_eq!(streams.read("text").body, text.as_bytes());
    assert_eq!(streams.read("json").body, json.as_bytes());
    let mut client = streams.client();
    client.send(head("GET", "/v1/stream/json?offset=-1&live=sse", &[]));
    client.receive_head().expect("a header").assert_status(200);
    let mut events = String::new();
    while !events.contains("event: control") {
        events.push_str(&chunk(&mut client));
    }
    let data = events.lines().find_map(|line| line.strip_prefix("data:"));
    assert_eq!(data, Some(&*json));
}

#[test]
fn private_content_is_not_for_shared_caches() {
    let streams = Streams::new("");
    streams.make("a", "text/plain");
    streams.append("a", "text/plain", "x");
    let control = |headers: &[(&str, &str)]| {
        let answer = streams.client().request("GET", "/v1/stream/a", headers);
        answer.field("cache-control").to_owned()
    };
    assert!(control(&[]).starts_with("public, max-age=60"));
    assert!(control(&[("Authorization", "Bearer x")]).starts_with("private, max-age=60"));
    assert!(control(&[("Cookie", "a=b")]).starts_with("private, max-age=60"));
}

#[test]
fn names_that_the_protocol_reserves() {
    let streams = Streams::new("");
    let headers = [("Content-Type", "application/json")];
    let answer = streams.write("PUT", "__ds/subscriptions/a", &headers, "{}");
    answer.assert_status(404);
    streams
        .write("PUT", "a/__ds", &headers, "")
        .assert_status(201);
}

#[test]
fn a_source_is_in_the_same_set() {
    let streams = Streams::new("");
    streams.make("a", "text/plain");
    for (source, status) in [
        ("/v1/stream/a", 201),
        ("/v1/stream/%61", 200),
        ("/a", 404),
        ("/other/a", 404),
        ("a", 404),
        ("http://other.example/v1/stream/a", 404),
    ] {
        let headers = [("Stream-Forked-From", source)];
        let answer = streams.write("PUT", "fork", &headers, "");
        assert_eq!(answer.status, status, "{source}");
    }
}

#[test]
fn a_server_that_drains_ends_its_readers() {
    let mut streams = Streams::new("heartbeat = \"1h\"");
    streams.make("a", "text/plain");
    let (mut client, mut poll) = (streams.client(), streams.client());
    poll.send(head("GET", "/v1/stream/a?offset=-1&live=long-poll", &[]));
    client.send(head("GET", "/v1/stream/a?offset=-1&live=sse", &[]));
    client.receive_head().expect("a header").assert_status(200);
    assert!(chunk(&mut client).contains("event: control"));
    streams.server.signal(Signal::TERM);
    assert_eq!(chunk(&mut client), "");
    poll.receive().assert_status(204);
    assert!(streams.server.wait().success());
}
