//! A file in place of an answer: its content, its fields, and those of-the-application.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::{App, ask, ask_with, internal_files, launch, roots, upstream};
use crate::support::multipart;
use crate::support::scripted::Scripted;
use crate::support::{Tree, assert_same, content, per_engine, wait_until};

/// Read in several chunks.
const LARGE_BYTES: usize = 3_000_017;

per_engine! {
    fn content_ranges_and_conditions(engine) {
        let tree = Tree::new();
        let bytes = tree.filled("large.bin", LARGE_BYTES);
        let file = format!("X-Sendfile: {}/large.bin", tree.path().display());
        for app in App::both() {
            let server = app.launch(&roots("sendfile_roots", tree.path()), "").engine(engine).start();
            let mut client = server.client();
            let lines = [&file[..], "Content-Length: 0"];
            let whole = ask(&mut client, &lines);
            whole.assert_status(200);
            assert_same(&whole.body, &bytes);
            let etag = whole.field("etag").to_owned();
            assert!(etag.starts_with('"'), "{etag}");
            // A download that is resumed several times.
            let mut got = Vec::new();
            while got.len() < bytes.len() {
                let last = (got.len() + 1_000_000).min(bytes.len()) - 1;
                let range = format!("bytes={}-{last}", got.len());
                let more = [("Range", &range[..]), ("If-Range", &etag)];
                let part = ask_with(&mut client, "GET", &lines, &more);
                part.assert_status(206);
                let range = format!("bytes {}-{last}/{}", got.len(), bytes.len());
                assert_eq!(part.field("content-range"), range);
                got.extend(part.body);
            }
            assert_same(&got, &bytes);
            let known = ask_with(&mut client, "GET", &lines, &[("If-None-Match", &etag)]);
            known.assert_status(304);
            let modified = whole.field("last-modified");
            let since = ask_with(&mut client, "GET", &lines, &[("If-Modified-Since", modified)]);
            since.assert_status(304);
            let other = [("Range", "bytes=0-9"), ("If-Range", "\"other\"")];
            assert_same(&ask_with(&mut client, "GET", &lines, &other).body, &bytes);
            let beyond = [("Range", "bytes=3000017-")];
            ask_with(&mut client, "GET", &lines, &beyond).assert_status(416);
            let head = ask_with(&mut client, "HEAD", &lines, &[]);
            assert_eq!((head.status, head.length()), (200, Some(LARGE_BYTES)));
            // The response to a POST has no validators.
            let more = [("Range", "bytes=0-9"), ("If-None-Match", &etag), ("Content-Length", "0")];
            let post = ask_with(&mut client, "POST", &lines, &more);
            post.assert_status(200);
            assert_same(&post.body, &bytes);
        }
    }

    fn several_ranges(engine) {
        let tree = Tree::new();
        let bytes = tree.filled("large.bin", LARGE_BYTES);
        let file = format!("X-Sendfile: {}/large.bin", tree.path().display());
        for app in App::both() {
            let server = app.launch(&roots("sendfile_roots", tree.path()), "").engine(engine).start();
            let mut client = server.client();
            let lines = [&file[..], "Content-Length: 0", "Content-Type: text/x-app", "X-A: 1"];
            let etag = ask(&mut client, &lines).field("etag").to_owned();
            for condition in [("If-Range", &etag[..]), ("If-Match", "*")] {
                let range = ("Range", "bytes=0-9,1000000-1999999,-7");
                let answer = ask_with(&mut client, "GET", &lines, &[range, condition]);
                assert_eq!((answer.field("etag"), answer.field("x-a")), (&*etag, "1"));
                let parts = multipart::parts(&answer);
                let positions: Vec<_> = parts.iter().map(|part| (part.first, part.last)).collect();
                assert_eq!(positions, [(0, 9), (1_000_000, 1_999_999), (LARGE_BYTES - 7, LARGE_BYTES - 1)]);
                for part in parts {
                    assert_eq!(part.header("content-type").as_deref(), Some("text/x-app"));
                    assert_same(&part.bytes, &bytes[part.first..=part.last]);
                }
            }
        }
    }

    fn a_reused_name_is_another_file(engine) {
        let tree = Tree::new();
        let app = App::http();
        let server = app.launch(&roots("sendfile_roots", tree.path()), "").engine(engine).start();
        let mut client = server.client();
        let file = format!("X-Sendfile: {}/name", tree.path().display());
        for number in 0..100 {
            // Old files of one length, replaced by a rename or in place.
            let bytes = content(number, 1000);
            match number % 3 {
                0 => drop(tree.file("name", &bytes)),
                _ => std::fs::rename(tree.file("other", &bytes), tree.at("name")).expect("rename"),
            }
            let answer = ask(&mut client, &[&file]);
            answer.assert_status(200);
            assert_same(&answer.body, &bytes);
        }
    }
}

#[test]
fn application_and_file_are_separate_steps() {
    let tree = Tree::new();
    tree.filled("file", 100);
    let file = format!("X-Sendfile: {}/file", tree.path().display());
    let app = App::http();
    let roots = roots("sendfile_roots", tree.path());
    let server = app.launch(&roots, "server_timing = true\n").start();
    let mut client = server.client();
    let steps_of = |answer: &str| {
        let steps = ["resolve;dur=", "upstream;dur="];
        steps.map(|step| answer.contains(step))
    };
    let named = ask(&mut client, &[&file, "Content-Length: 0"]);
    assert_eq!(steps_of(named.field("server-timing")), [true, true]);
    let own = ask(&mut client, &[]);
    assert_eq!(steps_of(own.field("server-timing")), [false, true]);
}

#[test]
fn both_names_of_the_header() {
    let tree = Tree::new();
    tree.file("file.txt", "content");
    for app in App::both() {
        let server = app
            .launch(&roots("sendfile_roots", tree.path()), "")
            .start();
        let mut client = server.client();
        for name in [
            "X-Sendfile",
            "x-sendfile",
            "X-LIGHTTPD-send-file",
            "X-Lighttpd-Send-File",
        ] {
            let line = format!("{name}: {}/file.txt", tree.path().display());
            let answer = ask(&mut client, &[&line]);
            assert_eq!((answer.status, answer.text()), (200, "content".into()));
        }
    }
}

/// Django, Flask and Symfony announce the length of the file and send no body.
#[test]
fn an_announced_body_that_never_arrives_has_a_short_time_out() {
    let tree = Tree::new();
    tree.file("file.txt", "content");
    let line = format!("X-Sendfile: {}/file.txt", tree.path().display());
    let app = App::http();
    let keys =
        roots("sendfile_roots", tree.path()) + "connections = 1\nfirst_byte_timeout = \"15s\"";
    let server = app.launch(&keys, "").workers(1).start();
    let mut client = server.client();
    for length in ["Content-Length: 7", "Content-Length: 123456789"] {
        for _ in 0..5 {
            let answer = ask(&mut client, &[&line, length]);
            assert_eq!((answer.status, answer.text()), (200, "content".into()));
        }
    }
    // Each connection is released for the next request.
    wait_until("the connections end", || app.backend.open() == 0);
}

#[test]
fn a_connection_is_reused() {
    let tree = Tree::new();
    tree.file("file.txt", "content");
    let line = format!("X-Sendfile: {}/file.txt", tree.path().display());
    for app in App::both() {
        let keys = roots("sendfile_roots", tree.path()) + "connections = 1\nkeep_alive = 1";
        let server = app.launch(&keys, "").workers(1).start();
        let mut client = server.client();
        for lines in [&[&line[..]][..], &[&line, "Content-Length: 0"]] {
            for _ in 0..5 {
                assert_eq!(ask(&mut client, lines).text(), "content");
            }
        }
        assert_eq!(app.backend.connections(), 1, "{}", app.protocol);
    }
}

#[test]
fn fields_of_the_application_take_precedence() {
    let tree = Tree::new();
    tree.file("file.txt", "content");
    let line = format!("X-Sendfile: {}/file.txt", tree.path().display());
    for app in App::both() {
        let server = app
            .launch(&roots("sendfile_roots", tree.path()), "")
            .start();
        let mut client = server.client();
        let own = ask(&mut client, &[&line]);
        assert_eq!(own.field("content-type"), "text/plain; charset=utf-8");
        assert_eq!(own.field("accept-ranges"), "bytes");
        assert_eq!(own.header("cache-control"), None);
        let lines = [
            &line[..],
            "Content-Type: application/x-own",
            "Content-Disposition: attachment; filename=\"a b.txt\"",
            "Cache-Control: private, max-age=5",
            "Content-Language: de",
            "ETag: \"of-the-application\"",
            "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT",
            "Set-Cookie: a=b",
            "Set-Cookie: c=d",
            "Content-Range: bytes 0-1/2",
            "Accept-Ranges: none",
            "X-Own: yes",
        ];
        let dressed = ask(&mut client, &lines);
        assert_eq!((dressed.status, dressed.text()), (200, "content".into()));
        let expected = [
            ("content-type", "application/x-own"),
            ("content-disposition", "attachment; filename=\"a b.txt\""),
            ("cache-control", "private, max-age=5"),
            ("content-language", "de"),
            ("etag", "\"of-the-application\""),
            ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("accept-ranges", "bytes"),
            ("x-own", "yes"),
        ];
        for (name, value) in expected {
            assert_eq!(dressed.field(name), value);
        }
        assert_eq!(dressed.header("content-range"), None);
        let cookies = dressed.headers();
        let cookies = cookies
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
        assert_eq!(cookies.count(), 2);
        // Its validators apply.
        let known = [("If-None-Match", "\"of-the-application\"")];
        let answer = ask_with(&mut client, "GET", &lines, &known);
        answer.assert_status(304);
        assert_eq!(answer.header("content-type"), None);
        let since = [("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT")];
        ask_with(&mut client, "GET", &lines, &since).assert_status(304);
        let part = [
            ("If-Range", "\"of-the-application\""),
            ("Range", "bytes=1-2"),
        ];
        let part = ask_with(&mut client, "GET", &lines, &part);
        assert_eq!((part.status, part.text()), (206, "on".into()));
        assert_eq!(part.field("content-range"), "bytes 1-2/7");
    }
}

#[test]
fn the_status_of_the_application_takes_precedence() {
    let tree = Tree::new();
    tree.file("file.txt", "content");
    let line = format!("X-Sendfile: {}/file.txt", tree.path().display());
    for app in App::both() {
        let server = app
            .launch(&roots("sendfile_roots", tree.path()), "")
            .start();
        let mut client = server.client();
        for (status, number) in [
            ("404 Not Found", 404),
            ("201 Created", 201),
            ("503 Busy", 503),
        ] {
            let more = [
                ("X-Status", status),
                ("Range", "bytes=0-1"),
                ("If-None-Match", "*"),
            ];
            let answer = ask_with(&mut client, "GET", &[&line], &more);
            assert_eq!((answer.status, answer.text()), (number, "content".into()));
            assert!(
                answer.status_line.ends_with(status),
                "{}",
                answer.status_line
            );
        }
        // An application that has evaluated the range itself delegates the whole file too.
        let lines = [&line[..], "Content-Range: bytes 3-4/7"];
        let more = [("X-Status", "206 Partial Content"), ("Range", "bytes=1-2")];
        let part = ask_with(&mut client, "GET", &lines, &more);
        assert_eq!(
            (part.status, part.field("content-range")),
            (206, "bytes 1-2/7")
        );
        assert_eq!(part.text(), "on");
        // These have no body, and the next bytes belong to the next response.
        for status in ["204 No Content", "304 Not Modified"] {
            let lines = [&line[..], "Content-Length: 7"];
            let answer = ask_with(&mut client, "GET", &lines, &[("X-Status", status)]);
            assert_eq!(answer.status_line, format!("HTTP/1.1 {status}"));
            assert_eq!(ask(&mut client, &[&line]).text(), "content");
        }
    }
}

#[test]
fn paths_are_tried_as_sent_and_then_decoded() {
    let tree = Tree::new();
    for name in [
        "a b", "c%20d", "e f%20g", "p+q", "p q", "ü", "both", "b%6fth", "x%zz",
    ] {
        tree.file(name, name);
    }
    let app = App::http();
    let server = app
        .launch(&roots("sendfile_roots", tree.path()), "")
        .start();
    let mut client = server.client();
    for (path, found) in [
        ("a b", Some("a b")),
        ("a%20b", Some("a b")),
        ("a%2520b", None),
        ("c%20d", Some("c%20d")),
        ("c%2520d", Some("c%20d")),
        ("c d", None),
        ("e%20f%2520g", Some("e f%20g")),
        ("p+q", Some("p+q")),
        ("p%20q", Some("p q")),
        ("p%2Bq", Some("p+q")),
        ("%C3%BC", Some("ü")),
        ("b%6fth", Some("b%6fth")),
        ("b%256fth", Some("b%6fth")),
        ("x%zz", Some("x%zz")),
        ("./both", Some("both")),
        (".//./both", Some("both")),
        ("folder/../both", Some("both")),
    ] {
        let line = format!("X-Sendfile: {}/{path}", tree.path().display());
        let answer = ask(&mut client, &[&line]);
        match found {
            Some(name) => assert_eq!((answer.status, answer.text()), (200, name.into()), "{path}"),
            None => assert_eq!(answer.status, 404, "{path}"),
        }
    }
}

/// As WSGI servers send them. A file whose name has exactly these bytes takes precedence.
#[test]
fn paths_in_latin1_are_tried_in_utf8() {
    let tree = Tree::new();
    tree.file("ü x", "in UTF-8");
    tree.file("ö", "in UTF-8");
    tree.file(OsStr::from_bytes(b"\xf6"), "as it is");
    let folder = tree.path().display().to_string();
    let backend = Scripted::tcp(move |conn| {
        while let Some(request) = conn.read_request() {
            let (field, path): (_, &[u8]) = match request.target.as_str() {
                "/file" => (format!("X-Sendfile: {folder}"), b"/\xfc x"),
                "/same" => (format!("X-Sendfile: {folder}"), b"/\xf6"),
                "/absent" => (format!("X-Sendfile: {folder}"), b"/\xfd"),
                "/parts" => (format!("X-Sendfile2: {folder}"), b"/\xfc%20x 0-"),
                _ => ("X-Accel-Redirect: /protected".into(), b"/\xfc x"),
            };
            let end = b"\r\nContent-Length: 0\r\n\r\n";
            conn.send([b"HTTP/1.1 200 OK\r\n", field.as_bytes(), path, end].concat());
        }
    });
    let keys = roots("sendfile_roots", tree.path());
    let tables = upstream("app", "http", &backend, &keys);
    let server = launch(&tables, &internal_files(&tree)).start();
    let mut client = server.client();
    for path in ["/file", "/parts", "/internal"] {
        let answer = client.get(path);
        assert_eq!(
            (answer.status, answer.text()),
            (200, "in UTF-8".into()),
            "{path}"
        );
    }
    assert_eq!(client.get("/same").text(), "as it is");
    client.get("/absent").assert_status(404);
}

#[test]
fn a_root_may_be_named_as_a_link() {
    let (tree, links) = (Tree::new(), Tree::new());
    tree.file("in/file.txt", "content");
    links.link(tree.at("in"), "root");
    let app = App::http();
    let server = app
        .launch(&roots("sendfile_roots", &links.at("root")), "")
        .start();
    let mut client = server.client();
    for folder in [links.at("root"), tree.at("in")] {
        let line = format!("X-Sendfile: {}/file.txt", folder.display());
        assert_eq!(ask(&mut client, &[&line]).text(), "content");
    }
}

#[test]
fn empty_files() {
    let tree = Tree::new();
    let file = tree.file("empty", "");
    let app = App::http();
    let server = app
        .launch(&roots("sendfile_roots", tree.path()), "")
        .start();
    let line = format!("X-Sendfile: {}", file.display());
    let mut client = server.client();
    for method in ["GET", "HEAD", "GET"] {
        let answer = ask_with(&mut client, method, &[&line], &[]);
        assert_eq!((answer.status, answer.length()), (200, Some(0)));
    }
}

/// Applications may name files through the link of a deployment.
#[test]
fn a_root_whose_link_is_switched() {
    let tree = Tree::new();
    for release in ["1", "2"] {
        tree.file(format!("{release}/file"), release);
        tree.file(format!("{release}/temporary/{release}"), release);
    }
    let switch = |release: &str| {
        tree.link(release, "new");
        std::fs::rename(tree.at("new"), tree.at("current")).expect("rename");
    };
    switch("1");
    let keys = roots("sendfile_roots", &tree.at("current"))
        + &roots("temporary_roots", &tree.at("current/temporary"));
    let app = App::http();
    let server = app.launch(&keys, "").start();
    let mut client = server.client();
    let current = tree.at("current").display().to_string();
    let file = format!("X-Sendfile: {current}/file");
    assert_eq!(ask(&mut client, &[&file]).text(), "1");
    switch("2");
    wait_until("the new release is sent", || {
        ask(&mut client, &[&file]).text() == "2"
    });
    let temporary = format!("X-Sendfile-Temporary: {current}/temporary/2");
    wait_until("the new folder is known", || {
        let answer = ask(&mut client, &[&temporary]);
        answer.status == 200 && answer.text() == "2"
    });
}

/// The response of the files gets the type that the application names, and each part of it has that type.
#[test]
fn several_ranges_by_way_of_an_internal_route() {
    let tree = Tree::new();
    let bytes = tree.filled("file", 10_000);
    let app = App::http();
    let server = app.launch("", &internal_files(&tree)).start();
    let mut client = server.client();
    let lines = [
        "X-Accel-Redirect: /protected/file",
        "Content-Type: text/x-app",
        "Content-Encoding: x-app",
    ];
    let range = [("Range", "bytes=5000-5999,0-9")];
    let answer = ask_with(&mut client, "GET", &lines, &range);
    assert_eq!(answer.header("content-encoding"), None);
    let parts = multipart::parts(&answer);
    assert_eq!(parts.len(), 2);
    for part in parts {
        assert_eq!(part.header("content-type").as_deref(), Some("text/x-app"));
        assert_eq!(part.header("content-encoding").as_deref(), Some("x-app"));
        assert_same(&part.bytes, &bytes[part.first..=part.last]);
    }
}
