//! Clients that people use, and the chat of `examples`.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::{SOON, json, post, publisher, start, wait_for_receivers};
use crate::clients::{curl, node, url};
use crate::support::{App, Launch, Server, Tree};

/// The server of `examples/chat`, before its application.
fn chat(app: &App) -> (Server, Tree) {
    let (folder, pages) = (
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/chat"),
        Tree::new(),
    );
    for name in ["index.html", "notify.html"] {
        pages.file(
            name,
            fs::read(folder.join("pages").join(name)).expect("a page"),
        );
    }
    let mut config = fs::read_to_string(folder.join("levity.toml")).expect("a configuration");
    let root = format!("\"{}\"", pages.path().display());
    for (from, to) in [
        ("127.0.0.1:8080", "127.0.0.1:0"),
        ("/tmp/levity-chat.sock", "{own}/socket"),
        ("127.0.0.1:5000", app.address()),
        ("\"pages\"", &root),
    ] {
        assert!(config.contains(from), "{config}");
        config = config.replace(from, to);
    }
    (Launch::run(&config).start(), pages)
}

/// Two tabs of Chromium, of which one has no network for `cut`: both show everything that was said, once and in one order.
fn tabs_show_the_same(cut: Duration) {
    let app = App::chat();
    let (server, _pages) = chat(&app);
    let (port, seconds) = (server.address().port(), cut.as_secs());
    let words = [port.to_string(), seconds.to_string()];
    let said = node(
        Duration::from_secs(60) + cut,
        "chat.mjs",
        &words.each_ref().map(String::as_str),
    );
    let [anna, mut ben]: [Vec<String>; 2] = serde_json::from_str(&said).expect("two lists");
    assert_eq!(anna, ben);
    let texts = (0..20).flat_map(|number| [format!("Anna: a{number}"), format!("Ben: b{number}")]);
    let mut expected: Vec<_> = texts.collect();
    expected.sort();
    ben.sort();
    assert_eq!(ben, expected);
}

#[test]
fn tabs_of_chromium_show_the_same_after_a_cut() {
    tabs_show_the_same(Duration::from_secs(2));
}

#[test]
#[ignore = "takes 20 seconds: `cargo xtask test --full`"]
fn tabs_of_chromium_show_the_same_after_a_long_cut() {
    tabs_show_the_same(Duration::from_secs(20));
}

#[test]
fn eventsource_of_npm_goes_on_after_cuts() {
    const COUNT: usize = 50;
    let server = start("retry = \"10ms\"");
    let port = server.address().port().to_string();
    let words = [&port, "/m/a?last_event_id=earliest", &COUNT.to_string()];
    let said = thread::scope(|scope| {
        let running = scope.spawn(|| node(SOON * 4, "eventsource.mjs", &words));
        let mut publisher = publisher(&server);
        wait_for_receivers(&mut publisher, "a", 1);
        for number in 0..COUNT {
            post(&mut publisher, "a", &[], &number.to_string());
        }
        running.join().expect("the client runs")
    });
    let expected: String = (0..COUNT).map(|number| format!("{number}\n")).collect();
    assert_eq!(said, expected);
}

#[test]
fn curl_receives_in_each_form() {
    let server = start("");
    let mut publisher = publisher(&server);
    let (folder, url) = (Tree::new(), url(&server, "/m/a"));
    let all = format!("{url}?last_event_id=earliest");
    let poll = ["--header", "Prefer: wait=25", &url];
    let stream = ["--no-buffer", "--header", "Accept: text/event-stream", &all];
    let id = json(&post(&mut publisher, "a", &[], "first"))["id"].to_string();
    let kept = curl(&[&url], folder.path());
    let kept: serde_json::Value = serde_json::from_slice(&kept).expect("JSON");
    assert_eq!(kept["messages"][0]["data"], "first");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    thread::scope(|scope| {
        let poll = scope.spawn(|| text(curl(&poll, folder.path())));
        let events = scope.spawn(|| text(curl(&stream, folder.path())));
        wait_for_receivers(&mut publisher, "a", 2);
        post(&mut publisher, "a", &[], "second").assert_status(201);
        assert!(poll.join().expect("curl").contains("second"));
        publisher.request("DELETE", "/m/a", &[]).assert_status(204);
        let events = events.join().expect("curl");
        let first = format!("id: {}\ndata: first\n\n", id.trim_matches('"'));
        assert!(events.contains(&first), "{events}");
        assert!(events.contains("data: second\n\n"), "{events}");
    });
}
