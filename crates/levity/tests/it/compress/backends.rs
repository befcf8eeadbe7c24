//! Responses of applications.

use std::fmt::Write as _;

use super::{
    BROWSER, KEYS, accepting, answering, assert_coded, assert_compressed, assert_identity,
    assert_untouched, in_front_of, text,
};
use crate::support::scripted::{Conn, Scripted, fastcgi};
use crate::support::{
    self, App, CODINGS, Cut, Launch, Tree, content, head, per_engine, responding_while_it_reads,
    started_in_front_of,
};

const LENGTH: usize = 100_000;

#[test]
fn with_a_length() {
    for length in [256, 60_000, LENGTH, 3_000_000] {
        let content = text(1, length);
        let backend = answering(
            "Content-Type: text/html\r\nAccept-Ranges: bytes",
            content.clone(),
        );
        let server = in_front_of(&backend, "", "").start();
        let mut client = server.client();
        for coding in CODINGS {
            let answer = accepting(&mut client, "/", coding);
            assert_compressed(&answer, coding, &content);
            let head = client.request("HEAD", "/", &[("Accept-Encoding", coding)]);
            assert_eq!(head.field("content-encoding"), coding);
            assert_eq!((head.length(), head.header("accept-ranges")), (None, None));
            assert_eq!(head.field("vary"), "Accept-Encoding");
        }
        let identity = client.get("/");
        assert_identity(&identity, &content);
        assert_eq!(identity.length(), Some(length));
    }
}

#[test]
fn types_are_compared_without_case_and_parameters() {
    for content_type in [
        "TEXT/HTML",
        "text/html;charset=utf-8",
        "text/x-anything ; a=b",
        "application/json",
        "application/ld+json",
        "image/svg+xml; charset=utf-8",
        "application/wasm",
    ] {
        let lines = format!("Content-Type: {content_type}");
        let backend = answering(lines.leak(), text(1, LENGTH));
        let server = in_front_of(&backend, "", "").start();
        let answer = accepting(&mut server.client(), "/", BROWSER);
        assert_compressed(&answer, "zstd", &text(1, LENGTH));
        assert_eq!(answer.field("content-type"), content_type);
    }
}

#[test]
fn shorter_than_the_minimum() {
    let backend = answering("Content-Type: text/html", text(1, 255));
    let server = in_front_of(&backend, "", "").start();
    let mut client = server.client();
    assert_untouched(&accepting(&mut client, "/", BROWSER), &text(1, 255));
}

/// Chunks of all sizes, and one byte at a time.
fn send_chunked(conn: &mut Conn, content: &[u8], sizes: &[usize]) {
    conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n");
    let (mut rest, mut sizes) = (content, sizes.iter().cycle());
    while !rest.is_empty() {
        let size = *sizes.next().expect("it repeats itself");
        let (piece, after) = rest.split_at(size.min(rest.len()));
        let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
        chunk.extend_from_slice(piece);
        chunk.extend_from_slice(b"\r\n");
        conn.send(chunk);
        rest = after;
    }
    // The digest is that of other bytes than the client gets.
    conn.send("0\r\nX-Sum: 1\r\nContent-Digest: sha-256=:AA==:\r\nX-Other: two words\r\n\r\n");
}

#[test]
fn chunked_with_trailers() {
    for sizes in [&[1][..], &[1, 3_000, 17, 70_000], &[200_000]] {
        let length = if sizes == [1] { 300 } else { LENGTH };
        let backend = Scripted::tcp(move |conn| {
            while conn.read_request().is_some() {
                send_chunked(conn, &text(1, length), sizes);
            }
        });
        let server = in_front_of(&backend, "", "").start();
        let mut client = server.client();
        for coding in CODINGS {
            let answer = accepting(&mut client, "/", coding);
            assert_coded(&answer, coding, &text(1, length));
            let trailers: Vec<_> = answer.trailers.iter().map(|(name, _)| &**name).collect();
            assert_eq!(trailers, ["X-Sum", "X-Other"]);
        }
        assert_eq!(backend.connections(), 1);
    }
}

/// The backend answers while it reads the request, and the client reads only after it has sent the whole request.
#[test]
fn an_upload_continues_while_the_response_is_compressed() {
    const BYTES: usize = 24 << 20;
    // Random bytes do not become shorter: the response does not fit into the buffers on its way.
    let content = content(1, BYTES);
    let mut response =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {BYTES}\r\n\r\n")
            .into_bytes();
    response.extend_from_slice(&content);
    let (address, backend) = responding_while_it_reads(response);
    let keys = format!("{KEYS}\nbody_bytes = \"64MiB\"");
    let server = support::in_front_of(&[&address], "http", "", &Tree::new(), &keys).start();
    let mut client = server.client();
    let length = BYTES.to_string();
    let headers = [("Content-Length", &*length), ("Accept-Encoding", "zstd")];
    client.send(head("POST", "/", &headers));
    client.send(vec![b'u'; BYTES]);
    assert_coded(&client.receive(), "zstd", &content);
    backend.join().expect("it is done");
}

#[test]
fn until_the_backend_closes() {
    let backend = Scripted::tcp(|conn| {
        conn.read_request();
        conn.send("HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n");
        conn.send(text(1, LENGTH));
    });
    let server = in_front_of(&backend, "", "").start();
    for coding in CODINGS {
        let answer = accepting(&mut server.client(), "/", coding);
        assert_compressed(&answer, coding, &text(1, LENGTH));
    }
}

#[test]
fn fastcgi() {
    let backend = Scripted::unix(|conn| {
        while conn.read_fastcgi().is_some() {
            let mut output =
                b"Content-Type: text/html; charset=utf-8\r\nETag: \"1\"\r\n\r\n".to_vec();
            output.extend(text(1, LENGTH));
            conn.send(fastcgi::answer(output));
        }
    });
    let root = Tree::new();
    let server = started_in_front_of(backend.address(), "fastcgi", &root, KEYS);
    let mut client = server.client();
    for coding in CODINGS {
        let answer = accepting(&mut client, "/", coding);
        assert_compressed(&answer, coding, &text(1, LENGTH));
        assert_eq!(answer.field("etag"), format!("W/\"1~{coding}\""));
    }
}

#[test]
fn php() {
    let (app, root) = (App::php_fpm(), App::php());
    let keys = format!("{}\nscript_suffix = \".php\"", KEYS);
    let server = started_in_front_of(app.address(), "fastcgi", &root, &keys);
    let mut client = server.client();
    for coding in CODINGS {
        let answer = accepting(&mut client, "/answer.php?zeros=300000&body=a", coding);
        let content = [&b"a"[..], &vec![0; 300_000]].concat();
        assert_compressed(&answer, coding, &content);
        // zlib.output_compression and the like of an application itself.
        let own = "/answer.php?body=a&header[]=Content-Encoding:+gzip&zeros=1000";
        let answer = accepting(&mut client, own, coding);
        assert_eq!(
            (answer.field("content-encoding"), answer.body.len()),
            ("gzip", 1001)
        );
    }
}

per_engine! {
    /// The file's own headers and conditions count, as without compression.
    fn a_file_in_place_of_a_response(engine) {
        for size in [5_000, 300_000] {
            let tree = Tree::new();
            let content = text(size, size);
            let file = tree.file("a.html", &content);
            let lines = format!("Content-Type: text/html\r\nX-Sendfile: {}", file.display());
            let backend = answering(lines.leak(), Vec::new());
            let to = backend.address();
            let roots = tree.path().display();
            let server = Launch::run(&format!(
                "[[listen]]\naddress = \"127.0.0.1:0\"\n\
                 [[upstream]]\nname = \"app\"\nto = [\"{to}\"]\nsendfile_roots = [\"{roots}\"]\n\
                 [[site]]\nproxy = \"app\"\n{}\n", KEYS
            ));
            let server = server.engine(engine).start();
            let mut client = server.client();
            for coding in CODINGS {
                let answer = accepting(&mut client, "/", coding);
                assert_compressed(&answer, coding, &content);
                assert_eq!(answer.header("x-sendfile"), None);
                let accept = ("Accept-Encoding", coding);
                let etag = answer.field("etag");
                let known = client.get_with("/", &[accept, ("If-None-Match", etag)]);
                assert_eq!((known.status, known.field("etag")), (304, etag));
                let part = client.get_with("/", &[accept, ("Range", "bytes=7-16")]);
                assert_eq!((part.status, &part.body[..]), (206, &content[7..17]));
            }
            assert_identity(&client.get("/"), &content);
        }
    }
}

#[test]
fn what_must_not_be_changed_passes() {
    let content = text(1, LENGTH);
    for lines in [
        "Content-Type: text/html\r\nCache-Control: no-transform",
        "Content-Type: text/html\r\nCache-Control: max-age=1, No-Transform",
        "Content-Type: text/html\r\nCache-Control: max-age=1\r\nCache-Control: no-transform",
        "Content-Type: text/html\r\nContent-Encoding: gzip",
        "Content-Type: text/html\r\nContent-Encoding: aws-chunked",
        "Content-Type: text/html\r\nContent-Encoding: identity",
        "Content-Type: text/html\r\nContent-Digest: sha-256=:AA==:",
        "Content-Type: text/html\r\nRepr-Digest: sha-256=:AA==:",
        "Content-Type: text/html\r\nDigest: sha-256=AA==",
        "Content-Type: text/html\r\nContent-MD5: AA==",
        "Content-Type: image/png",
        "Content-Type: application/octet-stream",
        "Content-Type: texthtml",
        "X-No: type",
    ] {
        let backend = answering(format!("{lines}\r\nETag: \"1\"").leak(), content.clone());
        let server = in_front_of(&backend, "", "").start();
        let mut client = server.client();
        let answer = accepting(&mut client, "/", BROWSER);
        assert_untouched(&answer, &content);
        assert_eq!(answer.field("etag"), "\"1\"", "{lines}");
        assert_eq!(answer.length(), Some(LENGTH));
        let head = client.request("HEAD", "/", &[("Accept-Encoding", BROWSER)]);
        assert_eq!(head.headers(), answer.headers());
    }
}

/// The server adds itself to what the application says of other headers.
#[test]
fn vary_of_an_application_is_kept() {
    for (own, expected) in [
        ("Vary: Cookie", "Cookie, Accept-Encoding"),
        ("Vary: accept-encoding", "accept-encoding"),
        ("Vary: Cookie, Accept-Encoding", "Cookie, Accept-Encoding"),
        ("Vary: *", "*"),
    ] {
        let lines = format!("Content-Type: text/html\r\n{own}");
        let backend = answering(lines.leak(), text(1, LENGTH));
        let server = in_front_of(&backend, "", "").start();
        for codings in [BROWSER, "identity"] {
            let answer = accepting(&mut server.client(), "/", codings);
            let mut vary = String::new();
            for (name, value) in answer.headers() {
                if name.eq_ignore_ascii_case("vary") {
                    let separator = if vary.is_empty() { "" } else { ", " };
                    let value = String::from_utf8(value).expect("a header in UTF-8");
                    write!(vary, "{separator}{value}").expect("memory");
                }
            }
            assert_eq!(vary, expected, "{own}");
        }
    }
}

/// An ETag of the original must not name the compressed content too.
#[test]
fn a_value_that_is_no_etag_goes() {
    for (etag, expected) in [("\"a\"", Some("W/\"a~gzip\"")), ("a", None)] {
        let lines = format!("Content-Type: text/html\r\nETag: {etag}");
        let backend = answering(lines.leak(), text(1, LENGTH));
        let server = in_front_of(&backend, "", "").start();
        let answer = accepting(&mut server.client(), "/", "gzip");
        assert_coded(&answer, "gzip", &text(1, LENGTH));
        assert_eq!(answer.header("etag"), expected);
        let answer = accepting(&mut server.client(), "/", "identity");
        assert_eq!(answer.header("etag"), Some(etag));
    }
}

#[test]
fn responses_without_content_have_no_coding() {
    for (status, more) in [
        ("204 No Content", ""),
        ("304 Not Modified", "ETag: \"1\"\r\n"),
        ("302 Found", "Location: /\r\nContent-Length: 0\r\n"),
    ] {
        let answer = format!("HTTP/1.1 {status}\r\nContent-Type: text/html\r\n{more}\r\n");
        let backend = Scripted::tcp(move |conn| {
            while conn.read_request().is_some() {
                conn.send(&answer);
            }
        });
        let server = in_front_of(&backend, "", "").start();
        let mut client = server.client();
        for _ in 0..2 {
            let answer = accepting(&mut client, "/", BROWSER);
            assert_eq!(answer.header("content-encoding"), None, "{answer:?}");
            assert_eq!(answer.body, b"");
        }
    }
}

#[test]
fn a_page_of_an_error_is_compressed() {
    let backend = Scripted::tcp(|conn| {
        while conn.read_request().is_some() {
            conn.send(format!(
                "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html\r\nContent-Length: {LENGTH}\r\n\r\n"
            ));
            conn.send(text(1, LENGTH));
        }
    });
    let server = in_front_of(&backend, "", "").start();
    for coding in CODINGS {
        let answer = accepting(&mut server.client(), "/", coding);
        answer.assert_status(503);
        assert_compressed(&answer, coding, &text(1, LENGTH));
    }
}

// ---- backends that fail ----

/// Expects that a response of which the backend sends `start` and `sent` bytes of the body never looks complete.
fn assert_cut_short(start: &'static str, sent: usize) {
    let backend = Scripted::tcp(move |conn| {
        conn.read_request();
        conn.send([start.as_bytes(), &text(1, sent)].concat());
    });
    let server = in_front_of(&backend, "", "").start();
    for coding in CODINGS {
        for version in ["1.1", "1.0"] {
            let mut client = server.client();
            client.send(format!(
                "GET / HTTP/{version}\r\nHost: a\r\nConnection: close\r\nAccept-Encoding: {coding}\r\n\r\n"
            ));
            let (was_reset, received) = match client.read_to_end() {
                Cut::Closed(received) => (false, received.unwrap_or_default()),
                Cut::Reset(received) => (true, received.unwrap_or_default()),
                Cut::Silent => panic!("the connection is still open"),
            };
            if received.starts_with(b"HTTP/1.1 502 ") {
                continue;
            }
            let ends_early = version == "1.1" && !received.ends_with(b"0\r\n\r\n");
            assert!(
                was_reset || ends_early,
                "{coding} {version}: {}",
                received.len()
            );
        }
    }
}

#[test]
fn a_length_that_is_too_large() {
    const HEAD: &str =
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1000000\r\n\r\n";
    for sent in [0, 1, 5_000, 900_000, 999_999] {
        assert_cut_short(HEAD, sent);
    }
}

#[test]
fn chunks_that_end_early() {
    const HEAD: &str =
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\nf4240\r\n";
    for sent in [0, 1, 5_000, 999_999, 1_000_000] {
        assert_cut_short(HEAD, sent);
    }
}

/// The bytes beyond are no part of the response.
#[test]
fn a_length_that_is_too_small() {
    let backend = Scripted::tcp(|conn| {
        conn.read_request();
        conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5000\r\n\r\n");
        conn.send(text(1, 6_000));
    });
    let server = in_front_of(&backend, "", "").start();
    for coding in CODINGS {
        let mut client = server.client();
        for _ in 0..2 {
            let answer = accepting(&mut client, "/", coding);
            assert_compressed(&answer, coding, &text(1, 5_000));
        }
    }
}
