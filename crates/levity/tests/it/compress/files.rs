//! Files, listings and error pages.

use super::{
    BROWSER, KEYS, accepting, assert_coded, assert_compressed, assert_identity, assert_untouched,
    text,
};
use crate::support::{Answer, CODINGS, Client, Launch, Tree, decoded, per_engine};

/// In memory and in one job of a filter, in some of its jobs, and in several chunks of the disk.
const SIZES: [usize; 3] = [5_000, 200_000, 3_000_000];

/// The maximum of content that is compressed by one job, so that its length is known before the header is sent.
const JOB_BYTES: usize = 64 * 1024;

per_engine! {
    /// The first round reads the file, the second may have it in the cache.
    fn every_coding(engine) {
        for size in SIZES {
            let tree = Tree::new();
            let content = text(size, size);
            tree.file("a.html", &content);
            let server = Launch::site(tree.path(), "", KEYS).engine(engine).start();
            let mut client = server.client();
            for _ in 0..2 {
                for coding in CODINGS {
                    let answer = accepting(&mut client, "/a.html", coding);
                    assert_compressed(&answer, coding, &content);
                    assert!(answer.length().is_some() || size > JOB_BYTES, "{answer:?}");
                    assert!(answer.field("content-type").starts_with("text/html"));
                    answer.field("last-modified");
                }
                assert_identity(&client.get("/a.html"), &content);
            }
        }
    }

    /// The header is that of GET, without the length, which nobody knows.
    fn head_requests(engine) {
        let tree = Tree::new();
        tree.file("a.html", text(1, 5_000));
        let server = Launch::site(tree.path(), "", KEYS).engine(engine).start();
        let mut client = server.client();
        for codings in ["zstd", "br", "gzip", "identity"] {
            let get = accepting(&mut client, "/a.html", codings);
            let head = client.request("HEAD", "/a.html", &[("Accept-Encoding", codings)]);
            let without_framing = |answer: &Answer| {
                let framing = ["Content-Length", "Transfer-Encoding"];
                let mut fields = answer.headers();
                fields.retain(|(name, _)| !framing.contains(&&**name));
                fields
            };
            assert_eq!(without_framing(&head), without_framing(&get));
            let is_known = codings == "identity";
            assert_eq!(head.length(), is_known.then_some(5_000));
        }
    }

    fn listings_and_errors(engine) {
        let tree = Tree::new();
        for number in 0..50 {
            tree.file(format!("d/file {number}"), "x");
        }
        let keys = format!("{KEYS}\nlisting = true\ncompress_min_bytes = \"0B\"");
        let server = Launch::site(tree.path(), "", &keys).engine(engine).start();
        let mut client = server.client();
        let (listing, absent) = (client.get("/d/"), client.get("/absent"));
        assert_eq!(listing.header("content-encoding"), None);
        assert_identity(&absent, b"404 Not Found\n");
        for coding in CODINGS {
            let coded = accepting(&mut client, "/d/", coding);
            assert_eq!(coded.header("content-encoding"), Some(coding));
            // By the form, and by the coding.
            assert_eq!(coded.field("vary"), "Accept, Accept-Encoding");
            assert!(decoded(coding, &coded.body) == listing.body);
            let error = accepting(&mut client, "/absent", coding);
            error.assert_status(404);
            assert_coded(&error, coding, &absent.body);
        }
    }

    /// A variant beside the file is better compressed, and has ranges.
    fn a_precompressed_file_wins(engine) {
        let tree = Tree::new();
        let (content, variant) = (text(1, 5_000), text(2, 4_000));
        tree.file("a.html", &content);
        tree.file("a.html.gz", &variant);
        let keys = format!("{KEYS}\nprecompressed = [\"gzip\"]");
        let server = Launch::site(tree.path(), "", &keys).engine(engine).start();
        let mut client = server.client();
        for codings in ["gzip", "gzip, zstd;q=0.5"] {
            let whole = accepting(&mut client, "/a.html", codings);
            assert_eq!(whole.field("content-encoding"), "gzip");
            assert_eq!(whole.body, variant);
            assert_eq!((whole.field("accept-ranges"), whole.field("vary")), ("bytes", "Accept-Encoding"));
            let etag = whole.field("etag").to_owned();
            assert!(etag.starts_with('"'), "{etag}");
            let accept = ("Accept-Encoding", codings);
            let range = [accept, ("Range", "bytes=10-19"), ("If-Range", &etag)];
            let part = client.get_with("/a.html", &range);
            assert_eq!((part.status, &part.body[..]), (206, &variant[10..20]));
            let known = client.get_with("/a.html", &[accept, ("If-None-Match", &etag)]);
            assert_eq!((known.status, known.field("etag")), (304, &*etag));
        }
        assert_compressed(&accepting(&mut client, "/a.html", "zstd"), "zstd", &content);
    }

    fn short_files_and_other_types_are_left_alone(engine) {
        let tree = Tree::new();
        let types = ["a.png", "a.gz", "a.mp4", "a.woff2", "a.bin"];
        let content = text(1, 5_000);
        for name in types {
            tree.file(name, &content);
        }
        tree.file("short.txt", text(2, 255));
        tree.file("long.txt", text(2, 256));
        tree.file("empty.txt", "");
        let server = Launch::site(tree.path(), "", KEYS).engine(engine).start();
        let mut client = server.client();
        for name in types {
            let answer = accepting(&mut client, &format!("/{name}"), BROWSER);
            assert_untouched(&answer, &content);
            answer.field("accept-ranges");
        }
        assert_untouched(&accepting(&mut client, "/short.txt", BROWSER), &text(2, 255));
        assert_untouched(&accepting(&mut client, "/empty.txt", BROWSER), b"");
        assert_compressed(&accepting(&mut client, "/long.txt", BROWSER), "zstd", &text(2, 256));
        assert_identity(&client.get("/long.txt"), &text(2, 256));
    }
}

/// A client of HTTP/1.0, or of HTTP/1.1 that closes.
#[track_caller]
fn read_whole(client: &mut Client, version: &str, coding: &str) -> (String, Vec<u8>) {
    client.send(format!(
        "GET /a.html HTTP/{version}\r\nHost: a\r\nConnection: close\r\nAccept-Encoding: {coding}\r\n\r\n"
    ));
    let head = client.read_through(b"\r\n\r\n");
    let head = String::from_utf8(head).expect("a head in UTF-8");
    (head, client.read_to_end().body())
}

#[test]
fn http_1_0() {
    for size in [5_000, 3_000_000] {
        let tree = Tree::new();
        let content = text(1, size);
        tree.file("a.html", &content);
        let server = Launch::site(tree.path(), "", KEYS).start();
        for coding in CODINGS {
            let (head, body) = read_whole(&mut server.client(), "1.0", coding);
            let has_length = head.contains("\r\nContent-Length: ");
            assert_eq!(has_length, size <= JOB_BYTES, "{head}");
            assert!(!head.contains("Transfer-Encoding"), "{head}");
            assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
            assert!(head.contains(&format!("\r\nContent-Encoding: {coding}\r\n")));
            assert!(decoded(coding, &body) == content);
        }
    }
}

#[test]
fn the_client_chooses_by_weight() {
    let tree = Tree::new();
    let content = text(1, 5_000);
    tree.file("a.html", &content);
    let server = Launch::site(tree.path(), "", KEYS).start();
    let mut client = server.client();
    for (codings, expected) in [
        (BROWSER, Some("zstd")),
        ("gzip, br", Some("br")),
        ("gzip", Some("gzip")),
        ("x-gzip", Some("gzip")),
        ("GZIP", Some("gzip")),
        ("gzip;q=1.0, zstd;q=0.5", Some("gzip")),
        ("gzip;q=0.5, br;q=0.7, zstd;q=0.6", Some("br")),
        ("zstd;q=0, *", Some("br")),
        ("*", Some("zstd")),
        ("identity;q=0, gzip;q=0.1", Some("gzip")),
        ("identity;q=0, *;q=0.1", Some("zstd")),
        ("identity;q=0.5, gzip;q=0.1", None),
        // Nothing else is left than what is not wanted: RFC 9110, 12.5.3 lets a server ignore the header.
        ("identity;q=0", None),
        ("*;q=0", None),
        ("identity;q=0, gzip;q=0", None),
        ("deflate", None),
        ("gzip;q=0", None),
        ("gzip;q=0.0001", None),
        ("", None),
    ] {
        let answer = accepting(&mut client, "/a.html", codings);
        match expected {
            Some(coding) => assert_compressed(&answer, coding, &content),
            None => assert_identity(&answer, &content),
        }
    }
}

#[test]
fn a_route_has_its_own_codings_types_and_levels() {
    let tree = Tree::new();
    let content = text(1, 20_000);
    for name in [
        "a.html",
        "off/a.html",
        "gzip/a.html",
        "bin/a.bin",
        "bin/a.html",
    ] {
        tree.file(name, &content);
    }
    tree.file("short/a.html", text(1, 1_000));
    let keys = format!(
        "{KEYS}\n\
         [[site.route]]\npath = \"/off/*\"\ncompress = false\n\
         [[site.route]]\npath = \"/gzip/*\"\ncompress_codings = [\"gzip:1\", \"br:11\"]\n\
         [[site.route]]\npath = \"/bin/*\"\ncompress_types = [\"application/octet-stream\"]\n\
         [[site.route]]\npath = \"/short/*\"\ncompress_min_bytes = \"1001B\""
    );
    let server = Launch::site(tree.path(), "", &keys).start();
    let mut client = server.client();
    assert_compressed(
        &accepting(&mut client, "/a.html", BROWSER),
        "zstd",
        &content,
    );
    assert_untouched(&accepting(&mut client, "/off/a.html", BROWSER), &content);
    let fast = accepting(&mut client, "/gzip/a.html", BROWSER);
    assert_compressed(&fast, "gzip", &content);
    let small = accepting(&mut client, "/gzip/a.html", "br");
    assert_compressed(&small, "br", &content);
    let usual = accepting(&mut client, "/a.html", "gzip");
    assert!(small.body.len() < usual.body.len());
    assert!(usual.body.len() < fast.body.len());
    assert_identity(&accepting(&mut client, "/gzip/a.html", "zstd"), &content);
    assert_compressed(
        &accepting(&mut client, "/bin/a.bin", BROWSER),
        "zstd",
        &content,
    );
    assert_untouched(&accepting(&mut client, "/bin/a.html", BROWSER), &content);
    assert_untouched(
        &accepting(&mut client, "/short/a.html", BROWSER),
        &text(1, 1_000),
    );
}
