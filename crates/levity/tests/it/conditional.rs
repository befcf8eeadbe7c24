//! Conditional requests (RFC 9110, 13).

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::support::{
    Answer, Launch, Server, Tree, assert_same, content, per_engine, wait_until, wait_within,
};

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

fn modified(path: &Path) -> SystemTime {
    let metadata = fs::metadata(path).expect("stat");
    metadata.modified().expect("a time")
}

fn set_modified(path: &Path, time: SystemTime) {
    let file = File::options().write(true).open(path).expect("open");
    file.set_modified(time).expect("utimes");
}

/// Asks for `/file`, has `change` give it other content, and expects that the old tag holds no more.
#[track_caller]
fn tag_changes(server: &Server, change: impl FnOnce() -> Vec<u8>) {
    let mut client = server.client();
    let mut old = String::new();
    wait_until("the last change is past", || {
        old = client.get("/file").field("etag").to_owned();
        old.starts_with('"')
    });
    let new = change();
    for headers in [
        &[("If-None-Match", &*old)][..],
        &[("Range", "bytes=0-9"), ("If-Range", &old)],
    ] {
        let answer = client.get_with("/file", headers);
        answer.assert_status(200);
        assert_same(&answer.body, &new);
        assert_ne!(answer.field("etag"), old);
    }
}

/// Nothing but headers, so that the next answer on the connection is where it should be.
#[track_caller]
fn is_not_modified(answer: &Answer, known: &Answer) {
    answer.assert_status(304);
    for name in ["content-length", "content-type", "content-encoding"] {
        assert_eq!(answer.header(name), None);
    }
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

    /// As a reproducible build leaves it, or `rsync -t`, also with `--inplace`.
    fn other_content_of_the_same_size_and_time(engine) {
        for size in [1000, 200_000] {
            let tree = Tree::new();
            tree.filled("file", size);
            let server = Launch::serve(tree.path()).engine(engine).start();
            let (path, time) = (tree.at("file"), modified(&tree.at("file")));
            tag_changes(&server, || {
                let new = content(1, size);
                let beside = tree.fresh("beside", &new);
                set_modified(&beside, time);
                fs::rename(beside, &path).expect("rename");
                new
            });
            tag_changes(&server, || {
                let new = content(2, size);
                fs::write(&path, &new).expect("write");
                set_modified(&path, time);
                new
            });
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

    /// As an archive or a camera with a wrong clock leaves it (RFC 9110, 8.8.2.1).
    fn a_time_to_come_is_no_time_of_modification(engine) {
        let (tree, server) = server(engine);
        for name in ["small", "large"] {
            set_modified(&tree.at(name), SystemTime::now() + Duration::from_secs(86_400));
        }
        let mut client = server.client();
        for path in ["/small", "/large"] {
            let mut known = client.get(path);
            wait_within(Duration::from_secs(10), "a strong ETag", || {
                known = client.get(path);
                known.field("etag").starts_with('"')
            });
            let time = |name| httpdate::parse_http_date(known.field(name)).expect("a date");
            assert!(time("last-modified") <= time("date"), "{}", known.field("last-modified"));
            let date = known.field("last-modified").to_owned();
            is_not_modified(&client.get_with(path, &[("If-Modified-Since", &date)]), &known);
            for validator in [known.field("etag"), &date] {
                let headers = [("Range", "bytes=10-"), ("If-Range", validator)];
                let rest = client.get_with(path, &headers);
                rest.assert_status(206);
                assert_same(&rest.body, &known.body[10..]);
            }
        }
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

/// What the rules of a route say of content is for answers that have content.
#[test]
fn rules_describe_no_content_that_is_not_there() {
    let tree = Tree::new();
    tree.file("a", "a");
    let route = "[[site.route]]\npath = \"/*\"\nheaders = { set = { Content-Type = \"text/x-a\", \
         Cache-Control = \"max-age=1\" }, add = { Content-Language = \"en\" } }";
    let server = Launch::site(tree.path(), "", route).start();
    let known = server.get("/a");
    let of_content = [("content-type", "text/x-a"), ("content-language", "en")];
    for (name, value) in of_content {
        assert_eq!(known.field(name), value);
    }
    let answer = server.get_with("/a", &[("If-None-Match", known.field("etag"))]);
    is_not_modified(&answer, &known);
    assert_eq!(answer.field("cache-control"), "max-age=1");
    assert_eq!(answer.header("content-language"), None);
}

/// Another server, and the same one after a restart.
#[test]
fn tags_of_copies_agree_where_that_is_configured() {
    let (one, two) = (Tree::new(), Tree::new());
    one.file("a", "same");
    two.file("a", "same");
    set_modified(&two.at("a"), modified(&one.at("a")));
    let tag = |tree: &Tree, tables| {
        let server = Launch::site(tree.path(), tables, "").start();
        server.get("/a").field("etag").to_owned()
    };
    let by_file = "[server]\netag = \"file\"";
    let by_time = "[server]\netag = \"mtime-size\"";
    assert_eq!(tag(&one, by_time), tag(&two, by_time));
    assert_ne!(tag(&one, by_file), tag(&two, by_file));
    assert_ne!(tag(&one, by_file), tag(&one, by_time));
    assert_eq!(tag(&one, by_file), tag(&one, ""));
}
