//! ETags that are a hash of the content (`server.etag = "content"`).

use std::fs;
use std::time::Duration;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};

use crate::support::{
    Answer, Launch, Server, Tree, age, assert_same, content, encoded, multipart, per_engine,
    settle, sha256, wait_until, wait_within,
};

/// How long idle work may take while other tests use all processors.
const IDLE_WAIT_MAX: Duration = Duration::from_secs(120);

fn site(tree: &Tree, engine: &str, keys: &str) -> Server {
    settle();
    let tables = "[server]\netag = \"content\"\n";
    // Another worker would trust its entry of a file for longer.
    Launch::site(tree.path(), tables, keys)
        .engine(engine)
        .workers(1)
        .start()
}

/// The ETag of content.
fn tag(bytes: &[u8]) -> String {
    let hex = sha256(bytes);
    let digit = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("a hexadecimal number");
    let digest: Vec<u8> = (0..hex.len()).step_by(2).map(digit).collect();
    format!("\"{}\"", BASE64_URL_SAFE_NO_PAD.encode(digest))
}

/// Requests the file until it has the ETag of its content.
#[track_caller]
fn known(server: &Server, path: &str, bytes: &[u8], headers: &[(&str, &str)]) -> Answer {
    let expected = tag(bytes);
    let mut found = None;
    wait_within(IDLE_WAIT_MAX, "the tag is known", || {
        let answer = server.get_with(path, headers);
        let is_known = answer.field("etag") == expected;
        found = is_known.then_some(answer);
        is_known
    });
    let answer = found.expect("an answer");
    assert_same(&answer.body, bytes);
    answer
}

per_engine! {
    /// A client has the tag of the version, and the server knows that of the content meanwhile: both stay valid, and each
    /// answer has the one that the client knows.
    fn both_tags_of_a_version_are_valid(engine) {
        let tree = Tree::new();
        let bytes = tree.filled("file", 3_000_000);
        tree.evict("file");
        let server = site(&tree, engine, "");
        let of_version = server.get("/file").field("etag").to_owned();
        assert_ne!(of_version, tag(&bytes));
        let of_content = known(&server, "/file", &bytes, &[]).field("etag").to_owned();
        for etag in [&*of_version, &*of_content] {
            let ask = |headers: &[(&str, &str)]| {
                let answer = server.get_with("/file", headers);
                assert_eq!(answer.field("etag"), etag);
                answer
            };
            ask(&[("If-None-Match", etag)]).assert_status(304);
            ask(&[("If-None-Match", &format!("\"a\", W/{etag}"))]).assert_status(304);
            assert_same(&ask(&[("If-Match", etag)]).body, &bytes);
            let part = ask(&[("If-Range", etag), ("Range", "bytes=5-9")]);
            assert_eq!((part.status, &part.body[..]), (206, &bytes[5..10]));
            let parts = ask(&[("If-Range", etag), ("Range", "bytes=5-9,500-")]);
            assert_eq!(multipart::parts(&parts).len(), 2);
        }
        let modified = server.get("/file").field("last-modified").to_owned();
        let since = server.get_with("/file", &[("If-Modified-Since", &modified)]);
        assert_eq!((since.status, since.header("etag")), (304, None));
        assert_eq!(since.field("last-modified"), modified);
        let both = format!("{of_version}, {of_content}");
        let answer = server.get_with("/file", &[("If-None-Match", &both)]);
        assert_eq!((answer.status, answer.field("etag")), (304, &*of_content));
        for (name, value, status) in [
            ("If-None-Match", "\"a\"", 200),
            ("If-Match", "\"a\"", 412),
            ("If-Range", "\"a\"", 200),
            ("If-Range", &format!("W/{of_version}"), 200),
            ("If-Range", &format!("W/{of_content}"), 200),
        ] {
            let answer = server.get_with("/file", &[(name, value), ("Range", "bytes=5-9")]);
            let expected = match (name, status) {
                ("If-None-Match", _) => 206,
                _ => status,
            };
            assert_eq!(answer.status, expected, "{name}: {value}");
        }
    }

    /// However a file is written, the tag is that of its content.
    fn the_tag_follows_the_content(engine) {
        let tree = Tree::new();
        let server = site(&tree, engine, "");
        let mut last = None;
        for (number, seed) in [1, 2, 2, 1, 1].into_iter().enumerate() {
            let bytes = content(seed, 100_000);
            match number % 2 {
                0 => drop(tree.file("file", &bytes)),
                _ => fs::rename(tree.file("other", &bytes), tree.at("file")).expect("rename"),
            }
            age(&tree.at("file"), Duration::from_secs(1000 + number as u64));
            settle();
            wait_until("the change is seen", || server.get("/file").body == bytes);
            known(&server, "/file", &bytes, &[]);
            if let Some((seen, etag)) = last.replace((seed, tag(&bytes))) {
                let status = if seen == seed { 304 } else { 200 };
                server.get_with("/file", &[("If-None-Match", &etag)]).assert_status(status);
            }
        }
    }
}

#[test]
fn content_in_memory_has_it_at_once() {
    let tree = Tree::new();
    let bytes = tree.filled("file", 20_000);
    tree.file("empty", "");
    let server = site(&tree, "auto", "");
    assert_eq!(server.get("/file").field("etag"), tag(&bytes));
    assert_eq!(server.get("/empty").field("etag"), tag(b""));
    let head = server.client().head("/file");
    assert_eq!(head.field("etag"), tag(&bytes));
}

/// The next write may not change its times.
#[test]
fn a_file_that_was_just_written_has_a_weak_tag_of_its_version() {
    let tree = Tree::new();
    tree.fresh("file", "content");
    let server = site(&tree, "auto", "");
    let etag = server.get("/file").field("etag").to_owned();
    assert!(etag.starts_with("W/"), "{etag}");
    server
        .get_with("/file", &[("If-None-Match", &etag)])
        .assert_status(304);
}

#[cfg(feature = "compress")]
#[test]
fn with_a_coding() {
    let tree = Tree::new();
    let text = "One line of text.\n".repeat(10_000);
    let coded = encoded("gzip", text.as_bytes());
    tree.file("kept.txt", &text);
    tree.file("kept.txt.gz", &coded);
    tree.file("other.txt", &text);
    let server = site(&tree, "auto", "compress = true\nprecompressed = [\"gzip\"]");
    let gzip = ("Accept-Encoding", "gzip");
    let on_the_way = |condition: &str| {
        let condition = ("If-None-Match", condition);
        server.get_with("/other.txt", &[gzip, condition])
    };
    let of_version = on_the_way("\"a\"").field("etag").to_owned();
    known(&server, "/kept.txt", &coded, &[gzip]);
    known(&server, "/kept.txt", text.as_bytes(), &[]);
    known(&server, "/other.txt", text.as_bytes(), &[]);
    let of_content = on_the_way("\"a\"").field("etag").to_owned();
    let text_of_tag = tag(text.as_bytes());
    assert_eq!(
        of_content,
        format!("W/\"{}~gzip\"", text_of_tag.trim_matches('"'))
    );
    for etag in [&of_version, &of_content] {
        let answer = on_the_way(etag);
        assert_eq!((answer.status, answer.field("etag")), (304, &**etag));
    }
}

/// Larger ones keep the tag of their version.
#[test]
fn up_to_a_size() {
    let tree = Tree::new();
    let bytes = tree.filled("small", 20_000);
    tree.filled("large", 20_001);
    settle();
    let tables = "[server]\netag = \"content\"\n[limits]\ndigest_bytes = \"20000B\"\n";
    let server = Launch::site(tree.path(), tables, "").start();
    assert_eq!(server.get("/small").field("etag"), tag(&bytes));
    let large = server.get("/large");
    assert!(large.field("etag").contains("-4e21-"), "{large:?}");
}
