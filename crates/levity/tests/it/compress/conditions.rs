//! Conditions and ranges: a coding has an ETag of its own, and ranges are those of the content without one.

use super::{BROWSER, KEYS, accepting, assert_compressed, coded_etag, in_front_of, text};
use crate::support::scripted::{Conn, Scripted};
use crate::support::{Answer, CODINGS, Client, Launch, Server, Tree, per_engine};

#[track_caller]
fn assert_known(answer: &Answer, etag: &str) {
    assert_eq!(
        (answer.status, answer.header("etag")),
        (304, Some(etag)),
        "{answer:?}"
    );
    assert_eq!(answer.field("vary"), "Accept-Encoding");
    assert_eq!(answer.header("content-encoding"), None);
}

/// The response to a GET of `/a.html` with these header lines, by a client that accepts `codings`.
#[track_caller]
fn asking(client: &mut Client, codings: &str, more: &[(&str, &str)]) -> Answer {
    let headers = [&[("Accept-Encoding", codings)], more].concat();
    client.get_with("/a.html", &headers)
}

per_engine! {
    fn if_none_match(engine) {
        for size in [5_000, 200_000] {
            let tree = Tree::new();
            let content = text(size, size);
            tree.file("a.html", &content);
            let server = Launch::site(tree.path(), "", KEYS).engine(engine).start();
            let mut client = server.client();
            let etag = client.get("/a.html").field("etag").to_owned();
            assert!(etag.starts_with('"'), "{etag}");
            assert_known(&asking(&mut client, "identity", &[("If-None-Match", &etag)]), &etag);
            let others = CODINGS.map(|coding| coded_etag(&etag, coding)).join(", ");
            for coding in CODINGS {
                let coded = coded_etag(&etag, coding);
                assert_eq!(accepting(&mut client, "/a.html", coding).field("etag"), coded);
                for list in [coded.clone(), format!("\"other\", {coded}"), others.clone()] {
                    let known = asking(&mut client, coding, &[("If-None-Match", &list)]);
                    assert_known(&known, &coded);
                }
                let known = asking(&mut client, BROWSER, &[("If-None-Match", &coded)]);
                assert_known(&known, &coded);
                // A cache may ask with what it keeps for other clients.
                for cannot in ["identity", "*;q=0", "deflate"] {
                    let whole = asking(&mut client, cannot, &[("If-None-Match", &coded)]);
                    assert_eq!((whole.status, whole.field("etag")), (200, &*etag));
                }
                let changed = asking(&mut client, coding, &[("If-None-Match", "W/\"other\"")]);
                assert_compressed(&changed, coding, &content);
            }
        }
    }

    fn if_match(engine) {
        let tree = Tree::new();
        let content = text(1, 5_000);
        tree.file("a.html", &content);
        let server = Launch::site(tree.path(), "", KEYS).engine(engine).start();
        let mut client = server.client();
        let etag = client.get("/a.html").field("etag").to_owned();
        for coding in CODINGS {
            for tag in [&coded_etag(&etag, coding), &etag, "*"] {
                let answer = asking(&mut client, coding, &[("If-Match", tag)]);
                assert_compressed(&answer, coding, &content);
            }
            for tag in [coded_etag("\"other\"", coding), format!("W/{etag}")] {
                asking(&mut client, coding, &[("If-Match", &tag)]).assert_status(412);
            }
        }
    }

    fn ranges(engine) {
        for size in [5_000, 200_000] {
            let tree = Tree::new();
            let content = text(size, size);
            tree.file("a.html", &content);
            let server = Launch::site(tree.path(), "", KEYS).engine(engine).start();
            let mut client = server.client();
            let whole = client.get("/a.html");
            let etag = whole.field("etag").to_owned();
            let range = ("Range", "bytes=100-199");
            for coding in CODINGS {
                for more in [&[range][..], &[range, ("If-Range", &etag)]] {
                    let part = asking(&mut client, coding, more);
                    assert_eq!((part.status, part.header("content-encoding")), (206, None));
                    assert_eq!((part.field("vary"), part.field("etag")), ("Accept-Encoding", &*etag));
                    assert_eq!(part.field("content-range"), format!("bytes 100-199/{size}"));
                    assert_eq!(part.body, &content[100..200]);
                }
                let if_range = coded_etag(&etag, coding);
                let answer = asking(&mut client, coding, &[range, ("If-Range", &if_range)]);
                assert_compressed(&answer, coding, &content);
            }
            // All codings have the same date: a client that has a part of one must not get the rest of another.
            let modified = whole.field("last-modified");
            let dated = [range, ("If-Range", modified)];
            assert_compressed(&asking(&mut client, BROWSER, &dated), "zstd", &content);
            let part = asking(&mut client, "identity", &dated);
            assert_eq!((part.status, &part.body[..]), (206, &content[100..200]));
            let beyond = [("Range", "bytes=9999999-")];
            asking(&mut client, BROWSER, &beyond).assert_status(416);
        }
    }

    fn if_modified_since(engine) {
        let tree = Tree::new();
        let content = text(1, 5_000);
        tree.file("a.html", &content);
        let server = Launch::site(tree.path(), "", KEYS).engine(engine).start();
        let mut client = server.client();
        let modified = client.get("/a.html").field("last-modified").to_owned();
        let known = asking(&mut client, "zstd", &[("If-Modified-Since", &modified)]);
        assert_eq!((known.status, known.field("vary")), (304, "Accept-Encoding"));
        let since = [("If-Modified-Since", "Thu, 01 Jan 1970 00:00:00 GMT")];
        assert_compressed(&asking(&mut client, "zstd", &since), "zstd", &content);
    }
}

const LENGTH: usize = 5_000;

/// An application with the ETag `"v1"`, or `W/"v1"` if the path says so, that evaluates conditions and ranges itself.
fn evaluate(conn: &mut Conn) {
    while let Some(request) = conn.read_request() {
        let etag = match request.target.starts_with("/weak/") {
            true => "W/\"v1\"",
            false => "\"v1\"",
        };
        let common = format!("Content-Type: text/html\r\nETag: {etag}\r\n");
        let weakly = |tag: &str| tag.trim().trim_start_matches("W/") == "\"v1\"";
        let known = request.field("if-none-match");
        let matching = request.field("if-match");
        let is_known = known.is_some_and(|tags| tags.split(',').any(weakly));
        let strongly = |tag: &str| tag.trim() == etag;
        let is_failed = matching.is_some_and(|tags| !tags.split(',').any(strongly));
        let is_part = request.field("range").is_some()
            && request
                .field("if-range")
                .is_none_or(|tag| tag == etag || tag == DATE);
        let content = text(1, LENGTH);
        let (status, more, body) = match (is_failed, is_known, is_part) {
            (true, ..) => ("412 Precondition Failed", String::new(), &[][..]),
            (_, true, _) => ("304 Not Modified", String::new(), &[][..]),
            (.., true) => {
                let range = format!("Content-Range: bytes 0-9/{LENGTH}\r\n");
                ("206 Partial Content", range, &content[..10])
            }
            _ => ("200 OK", format!("Last-Modified: {DATE}\r\n"), &content[..]),
        };
        let length = match status.starts_with("304") {
            true => String::new(),
            false => format!("Content-Length: {}\r\n", body.len()),
        };
        let head = format!("HTTP/1.1 {status}\r\n{common}{more}{length}\r\n");
        conn.send([head.as_bytes(), body].concat());
    }
}

const DATE: &str = "Thu, 01 Jan 2026 00:00:00 GMT";

fn evaluating() -> (Scripted, Server) {
    let backend = Scripted::tcp(evaluate);
    let server = in_front_of(&backend, "", "").start();
    (backend, server)
}

#[test]
fn a_backend_recognises_its_own_etag() {
    let (backend, server) = evaluating();
    let mut client = server.client();
    for coding in CODINGS {
        let accept = ("Accept-Encoding", coding);
        for path in ["/", "/weak/"] {
            let whole = accepting(&mut client, path, coding);
            assert_compressed(&whole, coding, &text(1, LENGTH));
            let etag = whole.field("etag").to_owned();
            assert_eq!(etag, coded_etag("\"v1\"", coding));
            let known = client.get_with(path, &[accept, ("If-None-Match", &etag)]);
            assert_known(&known, &etag);
            let requests = backend.requests();
            let sent = requests
                .last()
                .and_then(|request| request.field("if-none-match"));
            assert_eq!(sent, Some("W/\"v1\""));
        }
        let matching = [accept, ("If-Match", &*coded_etag("\"v1\"", coding))];
        client.get_with("/", &matching).assert_status(200);
        let other = [accept, ("If-Match", "\"other\"")];
        client.get_with("/", &other).assert_status(412);
    }
    // A coding that the server has not, and a tag of a backend that compresses by itself.
    for own in ["W/\"v1~deflate\"", "W/\"v1-zstd\""] {
        let headers = [("Accept-Encoding", "zstd"), ("If-None-Match", own)];
        assert_compressed(&client.get_with("/", &headers), "zstd", &text(1, LENGTH));
        let requests = backend.requests();
        let sent = requests
            .last()
            .and_then(|request| request.field("if-none-match"));
        assert_eq!(sent, Some(own));
    }
}

#[test]
fn a_backend_answers_ranges() {
    let (_backend, server) = evaluating();
    let mut client = server.client();
    let range = ("Range", "bytes=0-9");
    for coding in CODINGS {
        for more in [&[range][..], &[range, ("If-Range", "\"v1\"")]] {
            let part = asking(&mut client, coding, more);
            assert_eq!((part.status, &part.body[..]), (206, &text(1, LENGTH)[..10]));
            assert_eq!(
                (part.field("etag"), part.field("vary")),
                ("\"v1\"", "Accept-Encoding")
            );
            assert_eq!(part.header("content-encoding"), None);
        }
        for if_range in [&coded_etag("\"v1\"", coding), DATE] {
            let whole = asking(&mut client, coding, &[range, ("If-Range", if_range)]);
            assert_compressed(&whole, coding, &text(1, LENGTH));
        }
    }
    asking(&mut client, "identity", &[range, ("If-Range", DATE)]).assert_status(206);
}

/// Their header does not tell the type of the content, which may be one that is compressed.
#[test]
fn several_ranges_of_a_backend_vary() {
    const PARTS: &str =
        "--x\r\nContent-Type: text/html\r\nContent-Range: bytes 0-0/9\r\n\r\na\r\n--x--\r\n";
    let backend = Scripted::tcp(|conn| {
        while conn.read_request().is_some() {
            conn.send(format!(
                "HTTP/1.1 206 Partial Content\r\nContent-Type: multipart/byteranges; boundary=x\r\n\
                 Content-Length: {}\r\n\r\n{PARTS}",
                PARTS.len()
            ));
        }
    });
    let server = in_front_of(&backend, "", "").start();
    let parts = asking(&mut server.client(), BROWSER, &[("Range", "bytes=0-0,2-2")]);
    assert_eq!((parts.status, &*parts.text()), (206, PARTS));
    assert_eq!(
        (parts.field("vary"), parts.header("content-encoding")),
        ("Accept-Encoding", None)
    );
}
