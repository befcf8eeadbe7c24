//! Text that is replaced in responses.

use crate::support::scripted::Scripted;
use crate::support::{
    Answer, CODINGS, Launch, Server, Tree, assert_same, decoded, encoded, per_engine,
};

const KEYS: &str = "substitute = { \"http://a.internal/\" = \"/\", \"cat\" = \"tiger\" }";

const PAGE: &str = "<a href=\"http://a.internal/x\">cat, http://a.internal, concat</a>";
const REPLACED: &str = "<a href=\"/x\">tiger, http://a.internal, contiger</a>";

/// More than a cached body, than a slice of a filter, and than a chunk of the disk.
const LINES: usize = 20_000;

/// A large page around `line`, which repeats itself less than a bomb does.
fn large(line: &str) -> String {
    let lines = (0..LINES).map(|number| format!("{number}: {line}\n"));
    lines.collect()
}

fn replaced_page(answer: &Answer) {
    answer.assert_status(200);
    assert_eq!(answer.text(), REPLACED);
}

per_engine! {
    /// The first round reads the files, the second has them in the cache.
    fn files(engine) {
        let tree = Tree::new();
        tree.file("small.html", PAGE);
        tree.file("empty.html", "");
        tree.file("other.txt", PAGE);
        let server = Launch::site(tree.path(), "", KEYS).engine(engine).start();
        let mut client = server.client();
        for _ in 0..2 {
            replaced_page(&client.get("/small.html"));
            assert_eq!(client.get("/empty.html").text(), "");
            assert_eq!(client.get("/other.txt").text(), PAGE);
        }
    }

    fn headers_of_a_file(engine) {
        let tree = Tree::new();
        let (html, txt) = (tree.file("a.html", PAGE), tree.file("a.txt", PAGE));
        for file in [&html, &txt] {
            crate::support::age(file, std::time::Duration::from_secs(100));
        }
        let server = Launch::site(tree.path(), "", KEYS).engine(engine).start();
        let mut client = server.client();
        let whole = client.get("/a.html");
        let etag = whole.field("etag").to_owned();
        assert!(etag.starts_with("W/\""), "{etag}");
        assert_eq!(whole.length(), Some(REPLACED.len()));
        for absent in ["last-modified", "accept-ranges"] {
            assert_eq!(whole.header(absent), None);
        }
        let head = client.head("/a.html");
        assert_eq!((head.status, head.field("etag"), head.length()), (200, &*etag, None));
        let known = client.get_with("/a.html", &[("If-None-Match", &etag)]);
        assert_eq!((known.status, known.field("etag")), (304, &*etag));
        assert_eq!(known.header("last-modified"), None);
        replaced_page(&client.get_with("/a.html", &[("If-None-Match", "W/\"other\"")]));
        // A file of another type keeps its headers.
        let other = client.get("/a.txt");
        assert!(other.field("etag").starts_with('"'));
        assert_eq!(other.length(), Some(PAGE.len()));
        other.field("last-modified");
        let known = client.get_with("/a.txt", &[("If-None-Match", other.field("etag"))]);
        assert_eq!((known.status, known.field("etag")), (304, other.field("etag")));
    }

    /// The bytes are those of the file, and cannot be joined with the changed ones.
    fn ranges(engine) {
        let tree = Tree::new();
        tree.file("a.html", PAGE);
        let server = Launch::site(tree.path(), "", KEYS).engine(engine).start();
        let mut client = server.client();
        let range = ("Range", "bytes=9-16");
        let part = client.get_with("/a.html", &[range]);
        assert_eq!((part.status, &*part.text()), (206, &PAGE[9..17]));
        let etag = client.get("/a.html").field("etag").to_owned();
        replaced_page(&client.get_with("/a.html", &[range, ("If-Range", &etag)]));
        client.get_with("/a.html", &[("Range", "bytes=999-")]).assert_status(416);
    }

    #[cfg(feature = "compress")]
    fn a_precompressed_file_is_decoded(engine) {
        let tree = Tree::new();
        tree.file("a.html", "not this one");
        tree.file("a.html.gz", encoded("gzip", PAGE.as_bytes()));
        let keys = format!("precompressed = [\"gzip\"]\n{KEYS}");
        let server = Launch::site(tree.path(), "", &keys).engine(engine).start();
        let answer = server.get_with("/a.html", &[("Accept-Encoding", "gzip")]);
        replaced_page(&answer);
        assert_eq!(answer.header("content-encoding"), None);
        assert_eq!(answer.field("vary"), "Accept-Encoding");
    }

    fn listings_and_errors(engine) {
        let tree = Tree::new();
        tree.file("d/cat", "x");
        let keys = "listing = true\nsubstitute = { cat = \"tiger\", \"Not Found\" = \"nothing here\" }\n\
                    substitute_types = [\"text/*\"]";
        let server = Launch::site(tree.path(), "", keys).engine(engine).start();
        let page = server.get("/d/").text();
        assert!(page.contains("tiger") && !page.contains("cat"), "{page}");
        let answer = server.get("/absent");
        answer.assert_status(404);
        assert_eq!(answer.text(), "404 nothing here\n");
    }
}

per_engine! {
    fn a_large_file(engine) {
        let tree = Tree::new();
        tree.file("a.html", large(PAGE));
        let server = Launch::site(tree.path(), "", KEYS).engine(engine).start();
        let mut client = server.client();
        for _ in 0..2 {
            assert_same(&client.get("/a.html").body, large(REPLACED).as_bytes());
        }
    }
}

#[test]
fn a_route_has_its_own_text() {
    let tree = Tree::new();
    for name in ["a/a.html", "b/a.html", "c/a.css", "a.html"] {
        tree.file(name, "cat dog");
    }
    let keys = "substitute = { cat = \"tiger\" }\n\
                [[site.route]]\npath = \"/a/*\"\nsubstitute = { dog = \"wolf\" }\n\
                [[site.route]]\npath = \"/b/*\"\nsubstitute = {}\n\
                [[site.route]]\npath = \"/c/*\"\nsubstitute_types = [\"text/css\"]";
    let server = Launch::site(tree.path(), "", keys).start();
    for (path, text) in [
        ("/a.html", "tiger dog"),
        ("/a/a.html", "cat wolf"),
        ("/b/a.html", "cat dog"),
        ("/c/a.css", "tiger dog"),
    ] {
        assert_eq!(server.get(path).text(), text);
    }
}

// ---- backends ----

/// In front of a backend, with these keys of the site.
fn in_front_of(backend: &Scripted, keys: &str) -> Server {
    let to = backend.address();
    Launch::run(&format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"app\"\nto = [\"{to}\"]\n\
         [[site]]\nproxy = \"app\"\n{keys}\n"
    ))
    .workers(1)
    .start()
}

/// A backend that answers each request with these header lines and this body.
fn answering(lines: &'static str, body: Vec<u8>) -> Scripted {
    Scripted::tcp(move |conn| {
        while let Some(request) = conn.read_request() {
            let length = body.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{lines}\r\n\r\n");
            let sent: &[u8] = match &*request.method {
                "HEAD" => &[],
                _ => &body,
            };
            // At once: a header that comes alone goes to the client before the body is looked at.
            conn.send([head.as_bytes(), sent].concat());
        }
    })
}

#[cfg(feature = "compress")]
#[test]
fn replaced_text_is_compressed() {
    let tree = Tree::new();
    tree.file("small.html", PAGE.repeat(10));
    tree.file("large.html", large(PAGE));
    let keys = format!("compress = true\n{KEYS}");
    let server = Launch::site(tree.path(), "", &keys).start();
    let mut client = server.client();
    for (path, expected) in [
        ("/small.html", REPLACED.repeat(10)),
        ("/large.html", large(REPLACED)),
    ] {
        for coding in CODINGS {
            let response = client.get_with(path, &[("Accept-Encoding", coding)]);
            assert_eq!(response.field("content-encoding"), coding);
            assert_same(&decoded(coding, &response.body), expected.as_bytes());
        }
    }
}

#[test]
fn a_text_is_found_across_the_chunks_of_a_backend() {
    let backend = Scripted::tcp(|conn| {
        while conn.read_request().is_some() {
            conn.send(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n",
            );
            for piece in PAGE.as_bytes().chunks(3) {
                conn.send_slowly(format!("{:x}\r\n", piece.len()));
                conn.send_slowly(piece);
                conn.send_slowly("\r\n");
            }
            conn.send("0\r\nX-Sum: 1\r\n\r\n");
        }
    });
    let server = in_front_of(&backend, KEYS);
    let mut client = server.client();
    for _ in 0..2 {
        let answer = client.get("/");
        replaced_page(&answer);
        assert_eq!(answer.trailers, [("X-Sum".to_owned(), b"1".to_vec())]);
    }
    assert_eq!(backend.connections(), 1);
}

/// The second event is sent when the client has the first.
#[test]
fn an_event_is_not_held_back() {
    let backend = Scripted::tcp(|conn| {
        conn.read_request();
        conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
        conn.send("d\r\ndata: a cat\n\n\r\n");
        conn.stall();
        conn.send("a\r\ndata: ca\n\n\r\n0\r\n\r\n");
    });
    let keys = format!("{KEYS}\nsubstitute_types = [\"text/event-stream\"]");
    let server = in_front_of(&backend, &keys);
    let mut client = server.client();
    client.send(crate::support::head("GET", "/", &[]));
    client.receive_head().expect("a head").assert_status(200);
    let event = client.read_through(b"\n\n\r\n");
    assert_eq!(event, b"f\r\ndata: a tiger\n\n\r\n");
    backend.release();
    let rest = client.read_through(b"0\r\n\r\n");
    assert_eq!(rest, b"a\r\ndata: ca\n\n\r\n0\r\n\r\n");
}

#[cfg(feature = "compress")]
#[test]
fn what_a_backend_compressed_is_decoded() {
    let page = large(PAGE);
    for coding in CODINGS {
        let lines: &'static str = format!(
            "Content-Encoding: {coding}\r\nContent-Type: text/html; charset=utf-8\r\n\
             Vary: Accept-Encoding\r\nETag: \"1\""
        )
        .leak();
        let backend = answering(lines, encoded(coding, page.as_bytes()));
        let server = in_front_of(&backend, KEYS);
        let mut client = server.client();
        let answer = client.get_with("/", &[("Accept-Encoding", "gzip, br, zstd")]);
        assert_same(&answer.body, large(REPLACED).as_bytes());
        let head = client.request("HEAD", "/", &[("Accept-Encoding", "gzip, br, zstd")]);
        for answer in [&answer, &head] {
            assert_eq!(answer.header("content-encoding"), None, "{lines}");
            assert_eq!(answer.field("vary"), "Accept-Encoding");
            assert_eq!(answer.field("etag"), "W/\"1\"");
        }
        assert_eq!(head.length(), None);
    }
}

#[test]
fn what_cannot_or_must_not_be_changed_passes() {
    for lines in [
        "Content-Type: text/html\r\nContent-Encoding: deflate",
        "Content-Type: text/html\r\nContent-Encoding: gzip, br",
        "Content-Type: text/html\r\nCache-Control: no-transform",
        "Content-Type: text/css",
        "X-No: type",
    ] {
        let backend = answering(lines, PAGE.as_bytes().to_vec());
        let answer = in_front_of(&backend, KEYS).get("/");
        assert_eq!(answer.text(), PAGE, "{lines}");
        assert_eq!(answer.length(), Some(PAGE.len()));
    }
}

#[test]
fn a_part_from_a_backend_passes() {
    let backend = Scripted::tcp(|conn| {
        while conn.read_request().is_some() {
            conn.send(
                "HTTP/1.1 206 Partial Content\r\nContent-Type: text/html\r\nETag: \"1\"\r\n\
                 Content-Range: bytes 0-2/9\r\nContent-Length: 3\r\n\r\ncat",
            );
        }
    });
    let server = in_front_of(&backend, KEYS);
    let answer = server.get_with("/", &[("Range", "bytes=0-2")]);
    assert_eq!((answer.status, &*answer.text()), (206, "cat"));
    assert_eq!(answer.field("etag"), "\"1\"");
}

#[test]
fn an_error_page_of_a_backend_is_changed() {
    let backend = Scripted::tcp(|conn| {
        while conn.read_request().is_some() {
            conn.send("HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html\r\nContent-Length: 3\r\n\r\ncat");
        }
    });
    let answer = in_front_of(&backend, KEYS).get("/");
    assert_eq!((answer.status, &*answer.text()), (503, "tiger"));
}

/// Nothing of such a body has been sent yet, so the client gets an error.
#[cfg(feature = "compress")]
#[test]
fn a_body_that_is_not_of_its_coding_gets_502() {
    for (lines, name) in [
        ("Content-Type: text/html\r\nContent-Encoding: gzip", "gzip"),
        ("Content-Type: text/html\r\nContent-Encoding: br", "br"),
        ("Content-Type: text/html\r\nContent-Encoding: zstd", "zstd"),
    ] {
        let backend = answering(lines, PAGE.as_bytes().to_vec());
        let server = in_front_of(&backend, KEYS);
        let mut client = server.client();
        client.get("/page").assert_status(502);
        server.says(&format!(
            "cannot filter /page: the body cannot be decoded from {name}"
        ));
        client.get("/").assert_status(502);
    }
}

#[cfg(feature = "compress")]
#[test]
fn a_body_that_ends_within_its_coding_is_cut_short() {
    let page = large(PAGE);
    for coding in CODINGS {
        let mut body = encoded(coding, page.as_bytes());
        body.pop();
        let lines: &'static str =
            format!("Content-Encoding: {coding}\r\nContent-Type: text/html").leak();
        let backend = answering(lines, body);
        let server = in_front_of(&backend, KEYS);
        server.client().assert_cut_short();
        server.says("it ends too early");
    }
}

/// 256 MiB in a few kilobytes.
#[cfg(feature = "compress")]
#[test]
fn a_bomb_is_refused_within_bounded_memory() {
    const MEMORY_MAX: usize = 48 << 20;
    let zeros = vec![0; 256 << 20];
    for (lines, body) in [
        (
            "Content-Type: text/html\r\nContent-Encoding: br",
            encoded("br", &zeros),
        ),
        (
            "Content-Type: text/html\r\nContent-Encoding: zstd",
            encoded("zstd", &zeros),
        ),
    ] {
        assert!(body.len() < 100_000);
        let backend = answering(lines, body);
        let server = in_front_of(&backend, KEYS);
        let before = server.resident_bytes();
        server.client().assert_cut_short();
        server.says("cannot filter");
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown < MEMORY_MAX, "{grown} bytes");
    }
}
