//! Chromium over TLS, where it speaks HTTP/2.

use std::fs;
use std::thread;

use crate::browser::held;
use crate::file_server::{FileServer, route};
use crate::support::{Client, sources, wait_until};
use crate::tls_clients::browse;

/// What a page sees that is complete once it has reported.
#[track_caller]
fn reported(fixture: &FileServer, page: &str) -> String {
    let content = fs::read(sources("http2").join(page)).expect("read");
    fixture.tree.file(page, content);
    browse(fixture.ca().as_deref(), &fixture.url(&format!("/{page}")))
}

/// The routes by which a page is held up until it has reported.
fn fixture(more: &str) -> (FileServer, crate::support::scripted::Scripted) {
    let held = held();
    let route =
        route("/held/*", "held", &held).replace("proxy = ", "strip_prefix = \"/held\"\nproxy = ");
    (FileServer::tls_with(&format!("{route}{more}")), held)
}

/// A page of two hundred scripts, which a browser gets at the same time and runs in order.
#[test]
fn chromium_gets_many_files() {
    const FILES: usize = 200;
    let fixture = FileServer::tls();
    let mut page = "<!doctype html><pre></pre><script>let all = [];</script>".to_owned();
    for number in 0..FILES {
        fixture
            .tree
            .file(format!("f{number}.js"), format!("all.push({number});"));
        page += &format!("<script src=\"/f{number}.js\"></script>");
    }
    page += "<script>document.querySelector('pre').textContent = all.join();</script>";
    fixture.tree.file("page.html", page);
    let seen = browse(fixture.ca().as_deref(), &fixture.url("/page.html"));
    let all: Vec<_> = (0..FILES).map(|number| number.to_string()).collect();
    assert!(
        seen.contains(&format!("<pre>{}</pre>", all.join(","))),
        "{seen}"
    );
    let log = fixture.server.stdout();
    let over_http2 = log
        .lines()
        .filter(|line| line.contains("\"HTTP/2.0\""))
        .count();
    assert!(over_http2 > FILES, "{log}");
}

/// An hour of silence, with a sample of a byte.
fn hour() -> Vec<u8> {
    const SAMPLES_PER_SECOND: u32 = 8000;
    let samples = SAMPLES_PER_SECOND * 3600;
    let mut wav = b"RIFF".to_vec();
    wav.extend((36 + samples).to_le_bytes());
    wav.extend(b"WAVEfmt ");
    wav.extend(16_u32.to_le_bytes());
    // Uncompressed, one channel.
    for number in [1_u16, 1] {
        wav.extend(number.to_le_bytes());
    }
    for number in [SAMPLES_PER_SECOND, SAMPLES_PER_SECOND] {
        wav.extend(number.to_le_bytes());
    }
    for number in [1_u16, 8] {
        wav.extend(number.to_le_bytes());
    }
    wav.extend(b"data");
    wav.extend(samples.to_le_bytes());
    wav.resize(wav.len() + samples as usize, 128);
    wav
}

/// The end of a long file is played before the rest was transferred: the browser asks for a range, and resets what it reads then.
#[test]
fn chromium_seeks() {
    let (fixture, _held) = fixture("");
    fixture.tree.file("long.wav", hour());
    let seen = reported(&fixture, "seek.html");
    assert!(seen.contains(">plays at the end of 3600 s"), "{seen}");
    let of_file = |log: &str| {
        let lines = log.lines().filter(|line| line.contains("/long.wav"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let at_least_two = || of_file(&fixture.server.stdout()).len() > 1;
    wait_until("more than one range in the log", at_least_two);
    let ranges = of_file(&fixture.server.stdout());
    let is_range = |line: &String| line.contains("\"HTTP/2.0\"") && line.contains("\"status\":206");
    assert!(ranges.iter().all(is_range), "{ranges:#?}");
}

/// Over HTTP/1.1 it opens six connections, and the other streams wait for ever.
#[test]
fn chromium_receives_from_ten_event_streams() {
    const STREAMS: f64 = 10.0;
    let mailbox = "[[site.route]]\npath = \"/m/*\"\nmailbox = \"m\"\n\
                   [[site]]\nhosts = [\"publish\"]\nrespond = {}\n[[site.route]]\npath = \"/m/*\"\nmailbox = \"m\"\n[[mailbox]]\nname = \"m\"\n\
                   [[listen]]\naddress = \"unix:{own}/socket\"\npublish = true\n";
    let (fixture, _held) = fixture(mailbox);
    let metrics = || fixture.metrics();
    let seen = thread::scope(|scope| {
        let page = scope.spawn(|| reported(&fixture, "streams.html"));
        wait_until("all streams are open", || {
            metrics().sum("levity_mailbox_receivers") == STREAMS
        });
        let mut publisher = Client::unix(&fixture.server.own("socket"));
        publisher.send("POST /m/box HTTP/1.1\r\nHost: publish\r\nContent-Length: 5\r\n\r\nhello");
        assert!((200..300).contains(&publisher.receive().status));
        page.join().expect("a page")
    });
    assert!(seen.contains(">10 times hello"), "{seen}");
}
