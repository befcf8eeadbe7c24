//! The right bytes, with the right headers.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::fs::{Advice, fadvise};

use crate::support::{Client, Launch, Tree, assert_same, content, pass, per_engine, settle};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Around a page, the largest body that is kept in memory, and the first read of a cold file.
const SIZES: [usize; 12] = [
    0, 1, 4095, 4096, 4097, 65_535, 65_536, 65_537, 100_001, 131_072, 131_073, 5_242_880,
];

fn tree_of_sizes() -> Tree {
    let tree = Tree::new();
    for size in SIZES {
        tree.filled(&size.to_string(), size);
    }
    tree
}

per_engine! {
    /// First from the disk, then from memory.
    fn every_size(engine) {
        let tree = tree_of_sizes();
        for size in SIZES {
            tree.evict(size.to_string());
        }
        let server = Launch::serve(tree.path()).engine(engine).start();
        let mut client = server.client();
        for size in SIZES.into_iter().chain(SIZES) {
            let answer = client.get(&format!("/{size}"));
            answer.assert_status(200);
            assert_same(&answer.body, &content(size as u64, size));
        }
    }

    /// The same with a time to live, so that the second round comes from the entry cache.
    fn every_size_cached(engine) {
        let tree = tree_of_sizes();
        for size in SIZES {
            tree.evict(size.to_string());
        }
        let server = Launch::site(tree.path(), "", "").engine(engine).start();
        let mut client = server.client();
        for size in SIZES.into_iter().chain(SIZES) {
            assert_same(&client.get(&format!("/{size}")).body, &content(size as u64, size));
        }
    }

    fn many_clients_of_one_cold_file(engine) {
        let tree = Tree::new();
        let bytes = tree.filled("cold", 3_000_000);
        tree.evict("cold");
        let server = Launch::serve(tree.path()).engine(engine).start();
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| assert_same(&server.get("/cold").body, &bytes));
            }
        });
    }

    fn beyond_four_gigabytes(engine) {
        let tree = Tree::new();
        let (mark, size) = (content(5, 100), 5 * GIB);
        let places = [0, 4 * GIB - 50, size - 100];
        tree.sparse("huge", size, &places.map(|offset| (offset, mark.as_slice())));
        let server = Launch::serve(tree.path()).engine(engine).start();
        let mut client = server.client();
        assert_eq!(client.head("/huge").length(), Some(size as usize));
        for offset in places {
            let range = format!("bytes={offset}-{}", offset + 99);
            let part = client.get_with("/huge", &[("Range", &range)]);
            part.assert_status(206);
            assert_same(&part.body, &mark);
        }
        let tail = client.get_with("/huge", &[("Range", "bytes=-150")]);
        assert_eq!(tail.field("content-range"), "bytes 5368708970-5368709119/5368709120");
        assert_same(&tail.body, &[&[0; 50], &mark[..]].concat());
    }

    fn head_is_get_without_the_body(engine) {
        let tree = tree_of_sizes();
        let server = Launch::serve(tree.path()).engine(engine).start();
        let mut client = server.client();
        for size in SIZES {
            let (head, get) = (client.head(&format!("/{size}")), client.get(&format!("/{size}")));
            assert_eq!((head.status, head.length()), (200, Some(size)));
            assert_eq!(head.headers(), get.headers());
        }
    }

    fn a_slow_reader_gets_every_byte(engine) {
        let tree = Tree::new();
        let bytes = tree.filled("large", 8_000_000);
        let server = Launch::serve(tree.path()).engine(engine).start();
        let mut client = crate::support::Client::narrow(server.address());
        client.send("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client.receive_head().expect("a head").assert_status(200);
        for piece in bytes.chunks(40_000) {
            assert_same(&client.read_exactly(piece.len()), piece);
            std::thread::yield_now();
        }
    }
}

/// The stretch crosses the offset that needs a 33rd bit.
#[test]
fn a_long_stretch_of_a_huge_file() {
    let tree = Tree::new();
    let mark = content(1, 1000);
    let places = [4 * GIB - 64 * MIB, 4 * GIB - 500, 4 * GIB + 64 * MIB - 1000];
    tree.sparse(
        "huge",
        5 * GIB,
        &places.map(|offset| (offset, mark.as_slice())),
    );
    let server = Launch::serve(tree.path()).start();
    let (first, len) = (places[0], 128 * MIB as usize);
    let range = format!("bytes={first}-{}", first + 128 * MIB - 1);
    let part = server.get_with("/huge", &[("Range", &range)]);
    assert_eq!((part.status, part.body.len()), (206, len));
    for offset in places {
        let at = (offset - first) as usize;
        assert_same(&part.body[at..at + 1000], &mark);
    }
    let zeros = part.body.iter().filter(|&&byte| byte == 0).count();
    let marked = mark.iter().filter(|&&byte| byte != 0).count();
    assert_eq!(zeros, len - 3 * marked);
}

#[test]
fn headers_of_a_file() {
    let tree = Tree::new();
    let path = tree.file("page.html", "<p>hello");
    let server = Launch::serve(tree.path()).start();
    let answer = server.get("/page.html");
    assert_eq!(answer.status_line, "HTTP/1.1 200 OK");
    assert_eq!(answer.field("content-type"), "text/html; charset=utf-8");
    assert_eq!(answer.field("content-length"), "8");
    assert_eq!(answer.field("accept-ranges"), "bytes");
    let modified = path
        .metadata()
        .and_then(|metadata| metadata.modified())
        .expect("a time");
    assert_eq!(
        answer.field("last-modified"),
        httpdate::fmt_http_date(modified)
    );
    let etag = answer.field("etag");
    assert!(
        etag.starts_with('"') && etag.ends_with('"') && etag.len() > 2,
        "{etag}"
    );
    let date = httpdate::parse_http_date(answer.field("date")).expect("a date");
    assert!(date.elapsed().unwrap_or_default().as_secs() < 5, "{date:?}");
}

#[test]
fn content_types() {
    let tree = Tree::new();
    let server = Launch::serve(tree.path()).start();
    for (name, expected) in [
        ("a.css", "text/css; charset=utf-8"),
        ("a.JS", "text/javascript; charset=utf-8"),
        ("a.json", "application/json"),
        ("a.png", "image/png"),
        ("a.svg", "image/svg+xml"),
        ("a.tar.gz", "application/gzip"),
        ("a.mp4", "video/mp4"),
        ("a.wasm", "application/wasm"),
        ("a.unknown", "application/octet-stream"),
        ("a", "application/octet-stream"),
    ] {
        tree.file(name, "x");
        assert_eq!(
            server.get(&format!("/{name}")).field("content-type"),
            expected,
            "{name}"
        );
    }
}

#[test]
fn the_index_of_a_folder() {
    let tree = Tree::new();
    tree.file("index.html", "top");
    tree.file("sub/index.html", "below");
    let server = Launch::serve(tree.path()).start();
    assert_eq!(server.get("/").text(), "top");
    assert_eq!(server.get("/sub/").text(), "below");
    assert_eq!(
        server.get("/sub/").field("content-type"),
        "text/html; charset=utf-8"
    );
    assert_eq!(server.get("/sub/index.html").text(), "below");
}

#[test]
fn the_first_index_that_exists_wins() {
    let tree = Tree::new();
    tree.folder("a/one.html");
    tree.file("a/two.txt", "two");
    tree.file("a/three.txt", "three");
    let server = Launch::site(
        tree.path(),
        "",
        "index = [\"one.html\", \"two.txt\", \"three.txt\"]",
    )
    .start();
    assert_eq!(server.get("/a/").text(), "two");
}

#[test]
fn a_file_is_no_folder() {
    let tree = Tree::new();
    tree.file("file", "x");
    let server = Launch::serve(tree.path()).start();
    server.get("/file/").assert_status(404);
    server.get("/file/below").assert_status(404);
}

#[test]
fn a_route_has_a_root_and_headers_of_its_own() {
    let (tree, other) = (Tree::new(), Tree::new());
    tree.file("a.txt", "site");
    tree.file("static/a.txt", "not this one");
    other.file("a.txt", "route");
    let route = format!(
        "[[site.route]]\npath = \"/static/*\"\nroot = \"{}\"\nstrip_prefix = \"/static\"\n\
         headers = {{ set = {{ \"Cache-Control\" = \"max-age=60\", ETag = \"\\\"mine\\\"\" }}, \
         remove = [\"Last-Modified\"] }}\n",
        other.path().display()
    );
    let server = Launch::site(tree.path(), "", &route).start();
    assert_eq!(server.get("/a.txt").text(), "site");
    let answer = server.get("/static/a.txt");
    assert_eq!(answer.text(), "route");
    assert_eq!(answer.field("cache-control"), "max-age=60");
    assert_eq!(answer.field("etag"), "\"mine\"");
    assert_eq!(answer.header("last-modified"), None);
    assert_eq!(server.get("/a.txt").header("cache-control"), None);
}

/// Those that sending would write are the route's to change, too.
#[test]
fn a_route_says_what_server_it_is() {
    let tree = Tree::new();
    tree.file("a", "a");
    let lines = |rule: &str| {
        let route = format!("[[site.route]]\npath = \"/*\"\nheaders = {{ {rule} }}");
        let server = Launch::site(tree.path(), "", &route).start();
        let answer = server.get("/a");
        answer.assert_status(200);
        assert_eq!(answer.header("date").map(str::len), Some(29));
        let servers = answer.headers().into_iter();
        let servers = servers.filter(|(name, _)| name.eq_ignore_ascii_case("server"));
        let values = servers.map(|(_, value)| String::from_utf8(value).expect("UTF-8"));
        values.collect::<Vec<_>>()
    };
    assert_eq!(lines("set = { X-A = \"b\" }"), ["levity"]);
    assert_eq!(lines("set = { Server = \"x\" }"), ["x"]);
    assert_eq!(lines("add = { server = \"x\" }"), ["x"]);
    assert!(lines("remove = [\"SERVER\"]").is_empty());
}

#[test]
fn sites_are_told_apart_by_host() {
    let (one, two, rest) = (Tree::new(), Tree::new(), Tree::new());
    one.file("a", "one");
    two.file("a", "two");
    rest.file("a", "rest");
    let site = |hosts: &str, tree: &Tree| {
        format!(
            "[[site]]\nhosts = [{hosts}]\nroot = \"{}\"\n",
            tree.path().display()
        )
    };
    let sites = [
        site("\"one.example\"", &one),
        site("\"*.example\"", &two),
        site("", &rest),
    ];
    let listen = "[[listen]]\naddress = \"127.0.0.1:0\"\n";
    let server = Launch::run(&format!("{listen}{}", sites.concat())).start();
    for (host, text) in [
        ("one.example", "one"),
        ("ONE.example:8080", "one"),
        ("one.example.", "one"),
        ("a.b.example", "two"),
        ("example", "rest"),
        ("[::1]:80", "rest"),
        ("it's+me.test", "rest"),
        // Not the name of a machine, and more than one host to whoever reads it in X-Forwarded-Host.
        ("evil.test,a.example", "rest"),
    ] {
        let mut client = server.client();
        client.send(format!("GET /a HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.receive().text(), text, "{host}");
    }
}

/// A browser asks with OPTIONS whether it may read across sites: the place's headers are the answer. But
/// no client should cache a missing file for as long as one that exists.
#[test]
fn a_route_dresses_answers_without_a_file() {
    let tree = Tree::new();
    let route = "[[site.route]]\npath = \"/*\"\nheaders = { set = { Access-Control-Allow-Origin = \"*\" } }";
    let server = Launch::site(tree.path(), "", route).start();
    tree.folder("folder");
    for (method, path, status) in [("OPTIONS", "/missing", 204), ("GET", "/folder", 301)] {
        let answer = server.client().request(method, path, &[]);
        answer.assert_status(status);
        assert_eq!(answer.field("access-control-allow-origin"), "*");
    }
    for (method, status) in [("GET", 404), ("POST", 405)] {
        let answer = server.client().request(method, "/missing", &[]);
        answer.assert_status(status);
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
}

/// Bodies at both sides of the smallest that is sent by reference, of the largest that is cached when it is read, and
/// of the largest that is cached when it is popular; and larger ones.
const ZERO_COPY_SIZES: [usize; 7] = [
    16_383, 16_384, 65_536, 65_537, 1_048_576, 1_048_577, 9_000_001,
];

per_engine! {
    /// From the cache in the end, or from the page cache, whole and in part. Nothing else would be copied.
    fn popular_files_are_sent_without_a_copy(engine) {
        let tree = Tree::new();
        let admin = "[admin]\nlisten = \"unix:admin.sock\"\n";
        let server = Launch::site(tree.path(), admin, "").engine(engine).start();
        let sent = || server.metrics(&server.own("admin.sock")).sum("levity_body_zero_copy_bytes_total");
        for size in ZERO_COPY_SIZES {
            let (name, before) = (size.to_string(), sent());
            let bytes = tree.filled(&name, size);
            settle();
            let mut client = server.client();
            // While other programs keep the disk busy, the page cache is not asked each time.
            let is_done = |rounds| rounds >= 8 && (size <= 16_383 || sent() > before || rounds >= 200);
            for _ in (0..).take_while(|&rounds| !is_done(rounds)) {
                assert_same(&client.get(&format!("/{name}")).body, &bytes);
                let (first, last) = (size / 3, size - 2);
                let range = format!("bytes={first}-{last}");
                let part = client.get_with(&format!("/{name}"), &[("Range", &range)]);
                part.assert_status(206);
                assert_same(&part.body, &bytes[first..=last]);
            }
            assert_eq!(sent() > before, size > 16_383, "{size} bytes");
        }
    }
}

/// A part of a large file that is not in memory costs a few reads, and no byte.
#[test]
fn a_gap_in_the_page_cache_is_filled_in_large_steps() {
    const GAP: Range<usize> = 448 * 1024..1600 * 1024;
    let tree = Tree::new();
    let bytes = tree.filled("large", 3_000_000);
    let admin = "[admin]\nlisten = \"unix:admin.sock\"\n";
    let server = Launch::site(tree.path(), admin, "").start();
    // A file that one client asks for is read past the page cache.
    for _ in 0..3 {
        assert_same(&server.get("/large").body, &bytes);
    }
    tree.evict("large");
    let file = File::open(tree.at("large")).expect("open");
    // Nothing else is read.
    fadvise(&file, 0, None, Advice::Random).expect("fadvise");
    let mut cached = vec![0; bytes.len()];
    for part in [0..GAP.start, GAP.end..bytes.len()] {
        let offset = part.start as u64;
        file.read_exact_at(&mut cached[part], offset).expect("read");
    }
    let reads = || {
        server
            .metrics(&server.own("admin.sock"))
            .sum("levity_disk_reads_total")
    };
    let before = reads();
    assert_same(&server.get("/large").body, &bytes);
    let reads = reads() - before;
    assert!(reads <= 25.0, "{reads} reads");
}

/// The thread that sends large files waits for clients longer than for disks.
#[test]
fn a_client_that_reads_late_is_no_failure_of_the_disk() {
    let tree = Tree::new();
    let bytes = tree.filled("large", 20_000_000);
    let tables = "[limits]\nio_timeout = \"100ms\"\n[admin]\nlisten = \"unix:admin.sock\"\n";
    let server = Launch::site(tree.path(), tables, "").start();
    server.get("/large").assert_status(200);
    let mut client = Client::narrow(server.address());
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    pass(Duration::from_millis(500));
    assert_same(&client.receive().body, &bytes);
    let metrics = server.metrics(&server.own("admin.sock"));
    assert!(metrics.sum("levity_body_zero_copy_bytes_total") > 0.0);
}

/// As from nginx and Apache: the file system says that there is nothing.
#[test]
fn a_file_of_proc_has_the_size_that_is_said() {
    let server = Launch::serve("/proc/version".as_ref()).start();
    let answer = server.get("/");
    assert_eq!((answer.status, answer.length()), (200, Some(0)));
}
