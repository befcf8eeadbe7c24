//! Conditional requests (RFC 9110, 13).

use std::time::{Duration, SystemTime};

use crate::support::{Answer, Launch, Server, Tree, per_engine, wait_within};

const LONG_AGO: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// A small file, which is kept in memory, and one that is not.
fn server(engine: &str) -> (Tree, Server) {
    let tree = Tree::new();
    tree.filled("small", 1000);
    tree.filled("large", 200_000);
    let server = Launch::serve(tree.path()).engine(engine).start();
    (tree, server)
}

fn soon() -> String {
    httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(60))
}

/// Nothing but headers, so that the next answer on the connection is where it should be.
#[track_caller]
fn is_not_modified(answer: &Answer, known: &Answer) {
    answer.assert_status(304);
    assert_eq!(answer.header("content-length"), None);
    for name in ["etag", "last-modified"] {
        assert_eq!(answer.field(name), known.field(name));
    }
}

per_engine! {
    fn if_none_match(engine) {
        let (_tree, server) = server(engine);
        let mut client = server.client();
        for path in ["/small", "/large"] {
            let known = client.get(path);
            let etag = known.field("etag").to_owned();
            for value in [etag.clone(), format!("W/{etag}"), format!("\"x\", {etag}"), "*".into()] {
                is_not_modified(&client.get_with(path, &[("If-None-Match", &value)]), &known);
            }
            let head = client.request("HEAD", path, &[("If-None-Match", &etag)]);
            is_not_modified(&head, &known);
            for value in ["\"x\"", "x", "\"x"] {
                client.get_with(path, &[("If-None-Match", value)]).assert_status(200);
            }
        }
    }

    fn if_match(engine) {
        let (_tree, server) = server(engine);
        let mut client = server.client();
        for path in ["/small", "/large"] {
            let etag = client.get(path).field("etag").to_owned();
            for value in [etag.clone(), format!("\"x\", {etag}"), "*".into()] {
                client.get_with(path, &[("If-Match", &value)]).assert_status(200);
            }
            for value in ["\"x\"".into(), format!("W/{etag}")] {
                client.get_with(path, &[("If-Match", &value)]).assert_status(412);
            }
        }
    }

    fn by_date(engine) {
        let (_tree, server) = server(engine);
        let mut client = server.client();
        for path in ["/small", "/large"] {
            let known = client.get(path);
            let date = known.field("last-modified").to_owned();
            let modified_since = |client: &mut crate::support::Client, value: &str| {
                client.get_with(path, &[("If-Modified-Since", value)])
            };
            is_not_modified(&modified_since(&mut client, &date), &known);
            is_not_modified(&modified_since(&mut client, &soon()), &known);
            modified_since(&mut client, LONG_AGO).assert_status(200);
            modified_since(&mut client, "yesterday").assert_status(200);
            client.get_with(path, &[("If-Unmodified-Since", LONG_AGO)]).assert_status(412);
            client.get_with(path, &[("If-Unmodified-Since", &date)]).assert_status(200);
        }
    }

    /// An ETag is strong only once a further write must change the file's time.
    fn a_young_file_s_etag_is_weak(engine) {
        let tree = Tree::new();
        tree.fresh("young", "young");
        let server = Launch::serve(tree.path()).engine(engine).start();
        let weak = server.get("/young").field("etag").to_owned();
        assert!(weak.starts_with("W/\""), "{weak}");
        let became = wait_within(Duration::from_secs(10), "a strong ETag", || {
            server.get("/young").field("etag") == weak.trim_start_matches("W/")
        });
        assert!(became > Duration::from_millis(1000), "strong after {became:?}");
        server.get_with("/young", &[("If-None-Match", &weak)]).assert_status(304);
    }
}

/// RFC 9110, 13.2.2.
#[test]
fn precedence() {
    let (_tree, server) = server("auto");
    let etag = server.get("/small").field("etag").to_owned();
    for (headers, status) in [
        (
            [("If-None-Match", "\"x\""), ("If-Modified-Since", &soon())],
            200,
        ),
        (
            [("If-None-Match", &etag), ("If-Modified-Since", LONG_AGO)],
            304,
        ),
        (
            [("If-Match", &etag), ("If-Unmodified-Since", LONG_AGO)],
            200,
        ),
        ([("If-Match", "\"x\""), ("If-None-Match", &etag)], 412),
        ([("If-Match", &etag), ("If-None-Match", &etag)], 304),
        ([("If-None-Match", &etag), ("Range", "bytes=0-1")], 304),
        ([("If-Match", "\"x\""), ("Range", "bytes=0-1")], 412),
        ([("If-Match", &etag), ("Range", "bytes=0-1")], 206),
    ] {
        assert_eq!(
            server.get_with("/small", &headers).status,
            status,
            "{headers:?}"
        );
    }
}

/// A list may be spread over several lines (RFC 9110, 5.3).
#[test]
fn tags_in_several_lines() {
    let (_tree, server) = server("auto");
    let etag = server.get("/small").field("etag").to_owned();
    for (name, status) in [("If-None-Match", 304), ("If-Match", 200)] {
        let answer = server.get_with("/small", &[(name, "\"x\""), (name, &etag)]);
        assert_eq!(answer.status, status, "{name}");
    }
}

#[test]
fn conditions_do_not_hide_what_is_absent() {
    let (_tree, server) = server("auto");
    server
        .get_with("/none", &[("If-None-Match", "*")])
        .assert_status(404);
    server
        .get_with("/none", &[("If-Match", "*")])
        .assert_status(404);
}

/// Two machines that serve copies of one tree must agree.
#[test]
fn etags_come_from_time_and_size() {
    let (one, two) = (Tree::new(), Tree::new());
    let paths = [one.file("a", "same"), two.file("a", "same")];
    let time = paths[0]
        .metadata()
        .and_then(|metadata| metadata.modified())
        .expect("a time");
    let file = std::fs::File::options()
        .write(true)
        .open(&paths[1])
        .expect("open");
    file.set_modified(time).expect("utimes");
    let etags = [&one, &two].map(|tree| {
        Launch::serve(tree.path())
            .start()
            .get("/a")
            .field("etag")
            .to_owned()
    });
    assert_eq!(etags[0], etags[1]);
}
