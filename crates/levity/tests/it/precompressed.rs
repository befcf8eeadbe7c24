//! Files that are kept compressed beside themselves.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::{Answer, Client, Launch, Server, Tree, age, assert_same, content, per_engine};

const KEYS: &str = "precompressed = [\"zstd\", \"br\", \"gzip\"]";

/// What a browser sends.
const BROWSER: &str = "gzip, deflate, br, zstd";

/// Kept in memory, and read from the file.
const SIZES: [usize; 2] = [5_000, 200_000];

fn site(engine: &str, tree: &Tree, keys: &str) -> Server {
    Launch::site(tree.path(), "", keys).engine(engine).start()
}

fn accepting(client: &mut Client, path: &str, codings: &str) -> Answer {
    client.get_with(path, &[("Accept-Encoding", codings)])
}

/// `file.js` of that size, and one of each coding beside it.
fn all_variants(size: usize) -> (Tree, Vec<(&'static str, Vec<u8>)>) {
    let tree = Tree::new();
    let made = [("", ""), ("zstd", ".zst"), ("br", ".br"), ("gzip", ".gz")];
    let made = made
        .into_iter()
        .enumerate()
        .map(|(number, (coding, suffix))| {
            let bytes = content(number as u64 + 1, size - number);
            tree.file(format!("file.js{suffix}"), &bytes);
            (coding, bytes)
        });
    let made = made.collect();
    (tree, made)
}

#[track_caller]
fn assert_is(answer: &Answer, coding: &str, bytes: &[u8]) {
    answer.assert_status(200);
    let named = answer.header("content-encoding").unwrap_or("");
    assert_eq!(named, coding);
    assert_eq!(answer.field("vary"), "Accept-Encoding");
    assert!(answer.field("content-type").starts_with("text/javascript"));
    assert_same(&answer.body, bytes);
}

per_engine! {
    /// The first round finds the files, the second has them in the cache.
    fn negotiated(engine) {
        for size in SIZES {
            let (tree, made) = all_variants(size);
            let server = site(engine, &tree, KEYS);
            let mut client = server.client();
            for _ in 0..2 {
                for (accept, number) in [
                    (BROWSER, 1),
                    ("gzip, br", 2),
                    ("gzip", 3),
                    ("gzip;q=1.0, zstd;q=0.5", 3),
                    ("deflate", 0),
                    ("*;q=0", 0),
                    ("identity;q=0, gzip", 3),
                ] {
                    let (coding, bytes) = &made[number];
                    assert_is(&accepting(&mut client, "/file.js", accept), coding, bytes);
                }
                let (coding, bytes) = &made[0];
                assert_is(&client.get("/file.js"), coding, bytes);
            }
        }
    }

    fn off_unless_asked_for(engine) {
        let (tree, made) = all_variants(5_000);
        let server = site(engine, &tree, "");
        let answer = accepting(&mut server.client(), "/file.js", BROWSER);
        assert_same(&answer.body, &made[0].1);
        assert_eq!((answer.header("vary"), answer.header("content-encoding")), (None, None));
    }

    /// The server's order decides between codings that the client likes the same; what is not in the
    /// list is never sent.
    fn in_the_order_of_the_key(engine) {
        let (tree, made) = all_variants(5_000);
        let server = site(engine, &tree, "precompressed = [\"gzip\", \"br\"]");
        let mut client = server.client();
        assert_is(&accepting(&mut client, "/file.js", BROWSER), "gzip", &made[3].1);
        assert_is(&accepting(&mut client, "/file.js", "zstd"), "", &made[0].1);
    }

    fn a_route_has_its_own(engine) {
        let tree = Tree::new();
        for name in ["on/a", "on/a.gz", "off/a", "off/a.gz"] {
            tree.file(name, name);
        }
        let keys = "precompressed = [\"gzip\"]\n[[site.route]]\npath = \"/off/*\"\nprecompressed = []";
        let server = site(engine, &tree, keys);
        let mut client = server.client();
        assert_eq!(accepting(&mut client, "/on/a", "gzip").text(), "on/a.gz");
        let off = accepting(&mut client, "/off/a", "gzip");
        assert_eq!((&*off.text(), off.header("vary")), ("off/a", None));
    }

    /// A range is one of the variant's bytes, and each variant has a strong ETag of its own.
    fn ranges_and_conditions(engine) {
        for size in SIZES {
            let (tree, made) = all_variants(size);
            let server = site(engine, &tree, KEYS);
            let mut client = server.client();
            let mut etags = Vec::new();
            for (coding, bytes) in &made {
                let accept = ("Accept-Encoding", *coding);
                let whole = client.get_with("/file.js", &[accept]);
                let etag = whole.field("etag").to_owned();
                assert!(etag.starts_with('"') && etag.ends_with(&format!("{coding}\"")), "{etag}");
                let part = client.get_with("/file.js", &[accept, ("Range", "bytes=1000-1999")]);
                part.assert_status(206);
                assert_eq!(part.header("content-encoding").unwrap_or(""), *coding);
                assert_eq!(part.field("content-range"), format!("bytes 1000-1999/{}", bytes.len()));
                assert_same(&part.body, &bytes[1000..2000]);
                let beyond = client.get_with("/file.js", &[accept, ("Range", "bytes=900000-")]);
                assert_eq!((beyond.status, beyond.field("vary")), (416, "Accept-Encoding, Accept"));
                let known = client.get_with("/file.js", &[accept, ("If-None-Match", &etag)]);
                known.assert_status(304);
                assert_eq!((known.field("vary"), known.field("etag")), ("Accept-Encoding", &*etag));
                assert_eq!(known.header("content-encoding"), None);
                let head = client.request("HEAD", "/file.js", &[accept]);
                assert_eq!(head.field("content-length"), bytes.len().to_string());
                assert_eq!(head.field("etag"), etag);
                assert_eq!(head.header("content-encoding").unwrap_or(""), *coding);
                etags.push(etag);
            }
            for (etag, (coding, bytes)) in etags.iter().zip(made.iter().cycle().skip(1)) {
                let headers = [("Accept-Encoding", *coding), ("If-None-Match", etag)];
                assert_same(&client.get_with("/file.js", &headers).body, bytes);
            }
        }
    }

    /// The tools that compress copy the file's date, so it does not tell a variant from its file: only an
    /// ETag joins parts.
    fn a_date_joins_no_parts(engine) {
        let (tree, made) = all_variants(5_000);
        tree.file("alone", &made[0].1);
        for name in ["file.js", "file.js.zst", "file.js.br", "file.js.gz", "alone"] {
            age(&tree.at(name), Duration::from_secs(100));
        }
        let server = site(engine, &tree, KEYS);
        let mut client = server.client();
        let range = ("Range", "bytes=1000-1999");
        for (path, status_by_date) in [("/file.js", 200), ("/alone", 206)] {
            let whole = client.get(path);
            for (field, status) in [("last-modified", status_by_date), ("etag", 206)] {
                let if_range = ("If-Range", whole.field(field));
                client.get_with(path, &[range, if_range]).assert_status(status);
            }
        }
    }

    /// HEAD first: what it leaves in the cache has no body for the GET after it.
    fn head_then_get(engine) {
        let (tree, made) = all_variants(5_000);
        let server = site(engine, &tree, KEYS);
        let mut client = server.client();
        let accept = [("Accept-Encoding", "br")];
        let head = client.request("HEAD", "/file.js", &accept);
        assert_eq!(head.field("content-length"), made[2].1.len().to_string());
        assert_is(&client.get_with("/file.js", &accept), "br", &made[2].1);
        assert_is(&client.get("/file.js"), "", &made[0].1);
    }

    fn an_older_variant_is_left_alone(engine) {
        let tree = Tree::new();
        age(&tree.file("a", "new"), Duration::from_secs(100));
        age(&tree.file("a.gz", "old"), Duration::from_secs(102));
        let server = site(engine, &tree, KEYS);
        let answer = accepting(&mut server.client(), "/a", "gzip");
        assert_eq!((&*answer.text(), answer.header("vary")), ("new", None));
    }

    fn without_the_file_there_is_nothing(engine) {
        let tree = Tree::new();
        tree.file("a.gz", "alone");
        let server = site(engine, &tree, KEYS);
        let mut client = server.client();
        accepting(&mut client, "/a", "gzip").assert_status(404);
        let itself = accepting(&mut client, "/a.gz", "gzip");
        assert_eq!(itself.text(), "alone");
        assert_eq!(itself.header("content-encoding"), None);
    }

    fn an_index_has_variants(engine) {
        let tree = Tree::new();
        tree.file("d/index.html", "page");
        tree.file("d/index.html.br", "small page");
        let server = site(engine, &tree, KEYS);
        let mut client = server.client();
        for _ in 0..2 {
            let answer = accepting(&mut client, "/d/", "br");
            assert_eq!(answer.text(), "small page");
            assert_eq!(answer.field("content-encoding"), "br");
            assert!(answer.field("content-type").starts_with("text/html"));
        }
        assert_eq!(client.get("/d/").text(), "page");
    }

    /// With a time to live of nothing every answer is of the files as they are.
    fn come_and_go(engine) {
        let tree = Tree::new();
        tree.file("a", "itself");
        let server = Launch::site(tree.path(), "[disk]\nentry_ttl = \"0s\"", KEYS)
            .engine(engine)
            .start();
        let mut client = server.client();
        let mut ask = || {
            let answer = accepting(&mut client, "/a", "gzip");
            (answer.text(), answer.header("vary").is_some())
        };
        assert_eq!(ask(), ("itself".to_owned(), false));
        tree.file("a.gz", "first");
        assert_eq!(ask(), ("first".to_owned(), true));
        tree.file("a.gz", "second");
        assert_eq!(ask(), ("second".to_owned(), true));
        fs::remove_file(tree.at("a.gz")).expect("unlink");
        assert_eq!(ask(), ("itself".to_owned(), false));
    }

    /// A link that leaves the root is no variant.
    fn links_are_judged(engine) {
        let outside = Tree::new();
        outside.file("secret", "secret");
        let tree = Tree::new();
        tree.file("a", "itself");
        tree.file("other", "linked");
        tree.link(outside.at("secret"), "a.br");
        tree.link("other", "a.gz");
        let server = site(engine, &tree, KEYS);
        let answer = accepting(&mut server.client(), "/a", "br, gzip");
        assert_eq!(answer.text(), "linked");
    }
}

/// Each name by itself would be a trip: tmpfs answers nothing about absent names from memory.
#[test]
fn one_trip_finds_all() {
    let folder = Path::new("/dev/shm");
    if !folder.is_dir() {
        println!("left out: no {}", folder.display());
        return;
    }
    for engine in ["threads", "simulated"] {
        let tree = Tree::inside(folder);
        tree.file("a", "itself");
        tree.file("a.gz", "small");
        // A check of the root would be a trip, too.
        let tables = "[disk]\nentry_ttl = \"1h\"\n[admin]\nlisten = \"unix:{own}/admin\"";
        let server = Launch::site(tree.path(), tables, KEYS)
            .engine(engine)
            .start();
        let answer = accepting(&mut server.client(), "/a", BROWSER);
        assert_eq!(answer.text(), "small");
        let metrics = server.metrics(&server.own("admin"));
        let trips = metrics.sum("levity_disk_service_seconds_count");
        assert!((trips - 1.0).abs() < 0.5, "{trips} trips on {engine}");
    }
}

/// What a route adds to Vary does not replace what we have to say.
#[test]
fn vary_is_added_to() {
    let tree = Tree::new();
    tree.file("a", "itself");
    tree.file("a.gz", "small");
    let keys = "precompressed = [\"gzip\"]\n[[site.route]]\npath = \"/*\"\n\
                headers = { set = { Vary = \"Origin\" } }";
    let server = Launch::site(tree.path(), "", keys).start();
    let answer = accepting(&mut server.client(), "/a", "gzip");
    let headers = answer.headers();
    let vary = headers
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("vary"));
    let values: Vec<_> = vary.map(|(_, value)| value.as_slice()).collect();
    assert_eq!(values, [&b"Accept-Encoding"[..], b"Origin"]);
}
