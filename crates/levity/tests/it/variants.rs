//! Compressed forms of popular files: when they are made, and what clients get.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::{
    self, Client, Launch, Server, Tree, age, multipart, per_engine, wait_until, wait_within,
};

const BROTLI: (&str, &str) = ("Accept-Encoding", "br");

/// How long idle work may take while other tests use all processors.
const IDLE_WAIT_MAX: Duration = Duration::from_secs(120);

/// Requests that make a file popular.
const REQUESTS: usize = 4;

fn page() -> String {
    "<p>The loop never waits for a disk.</p>\n".repeat(50)
}

/// A folder in which the server may create files.
fn store() -> Tree {
    let store = Tree::new();
    store.chmod(".", 0o777);
    store
}

/// A server with a store of variants in `folder`.
fn launch(tree: &Tree, folder: &Path, engine: &str) -> Server {
    let disk = format!("[disk]\nvariants = \"{}\"\n", folder.display());
    let launch = Launch::site(tree.path(), &disk, "compress = true");
    launch.engine(engine).start()
}

fn decoded(body: &[u8]) -> String {
    String::from_utf8(support::decoded("br", body)).expect("text")
}

/// The number of variants in the folder.
fn variants(folder: &Path) -> usize {
    let names = fs::read_dir(folder).expect("the folder");
    names.filter(|name| name.is_ok()).count()
}

/// Requests the file until its variant is sent.
fn make(server: &Server, path: &str) {
    let mut client = server.client();
    let is_kept = || {
        let response = client.get_with(path, &[BROTLI]);
        response.field("etag").starts_with('"')
    };
    wait_within(IDLE_WAIT_MAX, "the variant is sent", is_kept);
}

per_engine! {
    fn a_popular_file_is_kept(engine) {
        let (tree, store) = (Tree::new(), store());
        age(&tree.file("page.html", page()), Duration::from_secs(100));
        let server = launch(&tree, store.path(), engine);
        let mut client = server.client();
        let on_the_way = client.get_with("/page.html", &[BROTLI]);
        assert!(on_the_way.field("etag").ends_with("~br\""));
        assert_eq!(decoded(&on_the_way.body), page());
        for _ in 0..REQUESTS {
            client.get_with("/page.html", &[BROTLI]);
        }
        make(&server, "/page.html");
        let kept = client.get_with("/page.html", &[BROTLI]);
        assert_eq!(decoded(&kept.body), page());
        assert_eq!(kept.length(), Some(kept.body.len()));
        for (name, value) in [
            ("content-encoding", "br"),
            ("content-type", "text/html; charset=utf-8"),
            ("vary", "Accept-Encoding"),
            ("accept-ranges", "bytes"),
            ("last-modified", on_the_way.field("last-modified")),
        ] {
            assert_eq!(kept.field(name), value, "{name}");
        }
        // What clients have by now stays valid.
        for etag in [on_the_way.field("etag"), kept.field("etag")] {
            let known = client.get_with("/page.html", &[BROTLI, ("If-None-Match", etag)]);
            assert_eq!((known.status, known.field("etag")), (304, etag));
        }
        let plain = client.get("/page.html");
        assert_eq!(plain.header("content-encoding"), None);
        assert_eq!(plain.text(), page());
    }
}

#[test]
fn ranges_are_of_one_form() {
    let (tree, store) = (Tree::new(), store());
    age(&tree.file("page.html", page()), Duration::from_secs(100));
    let server = launch(&tree, store.path(), "auto");
    make(&server, "/page.html");
    let mut client = server.client();
    let kept = client.get_with("/page.html", &[BROTLI]);
    let plain = client.get("/page.html");
    let mut range = |if_range: Option<&str>| {
        let mut headers = vec![BROTLI, ("Range", "bytes=1-9")];
        headers.extend(if_range.map(|etag| ("If-Range", etag)));
        client.get_with("/page.html", &headers)
    };
    let of_kept = range(Some(kept.field("etag")));
    assert_eq!(
        (of_kept.status, &of_kept.body[..]),
        (206, &kept.body[1..10])
    );
    assert_eq!(of_kept.field("content-encoding"), "br");
    for if_range in [None, Some(plain.field("etag"))] {
        let of_plain = range(if_range);
        assert_eq!(
            (of_plain.status, &of_plain.body[..]),
            (206, &plain.body[1..10])
        );
        assert_eq!(of_plain.header("content-encoding"), None);
    }
    let other = range(Some("\"other\""));
    assert_eq!((other.status, decoded(&other.body)), (200, page()));
}

#[test]
fn several_ranges_are_of_one_form() {
    let lines = (0..2000).map(|number| format!("<p>{:x}</p>\n", number * 7_919_u64.pow(3)));
    let page: String = lines.collect();
    let (tree, store) = (Tree::new(), store());
    age(&tree.file("page.html", &page), Duration::from_secs(100));
    let server = launch(&tree, store.path(), "auto");
    make(&server, "/page.html");
    let mut client = server.client();
    let kept = client.get_with("/page.html", &[BROTLI]);
    let mut parts = |if_range: Option<&str>| {
        let mut headers = vec![BROTLI, ("Range", "bytes=1-9,1000-1999")];
        headers.extend(if_range.map(|etag| ("If-Range", etag)));
        multipart::parts(&client.get_with("/page.html", &headers))
    };
    for part in parts(Some(kept.field("etag"))) {
        assert_eq!(part.header("content-encoding").as_deref(), Some("br"));
        assert!(part.bytes == kept.body[part.first..=part.last]);
    }
    for part in parts(None) {
        assert_eq!(part.header("content-encoding"), None);
        assert!(part.bytes == page.as_bytes()[part.first..=part.last]);
    }
}

/// The tag of a kept variant is that of its bytes, and that of the file is that of the file's. Clients that know one by the
/// tag of its version are told that it is current.
#[test]
fn tags_of_content() {
    let (tree, store) = (Tree::new(), store());
    age(&tree.file("page.html", page()), Duration::from_secs(100));
    let folder = store.path().display();
    let tables = format!("[server]\netag = \"content\"\n[disk]\nvariants = \"{folder}\"\n");
    let server = Launch::site(tree.path(), &tables, "compress = true").start();
    let on_the_way = server
        .get_with("/page.html", &[BROTLI])
        .field("etag")
        .to_owned();
    assert!(on_the_way.ends_with("~br\""), "{on_the_way}");
    make(&server, "/page.html");
    let kept = server.get_with("/page.html", &[BROTLI]);
    assert_eq!(decoded(&kept.body), page());
    let plain = server.get("/page.html");
    let tags = [&kept, &plain].map(|answer| answer.field("etag").to_owned());
    for (tag, headers) in [
        (&tags[0], &[BROTLI][..]),
        (&tags[1], &[][..]),
        (&on_the_way, &[BROTLI]),
        (&tags[1], &[BROTLI]),
    ] {
        let condition = [("If-None-Match", &**tag)];
        let known = server.get_with("/page.html", &[headers, &condition].concat());
        assert_eq!((known.status, known.field("etag")), (304, &**tag));
    }
    // Of all bytes of a tag of the content there are 43 characters.
    assert!(tags.iter().all(|tag| tag.len() == 45), "{tags:?}");
    assert_ne!(tags[0], tags[1]);
}

#[test]
fn a_changed_file_has_no_variant() {
    let (tree, store) = (Tree::new(), store());
    age(&tree.file("page.html", page()), Duration::from_secs(100));
    let server = launch(&tree, store.path(), "auto");
    make(&server, "/page.html");
    let changed = page().replace("loop", "pool");
    age(&tree.file("page.html", &changed), Duration::from_secs(100));
    let is_changed = || {
        let response = server.client().get_with("/page.html", &[BROTLI]);
        decoded(&response.body) == changed
    };
    wait_until("the change is seen", is_changed);
    assert_eq!(variants(store.path()), 1);
    make(&server, "/page.html");
    let kept = server.client().get_with("/page.html", &[BROTLI]);
    assert_eq!(decoded(&kept.body), changed);
    assert_eq!(variants(store.path()), 2);
}

#[test]
fn each_name_of_a_file_has_its_media_type() {
    let (tree, store) = (Tree::new(), store());
    let file = tree.file("page.html", page());
    age(&file, Duration::from_secs(100));
    fs::hard_link(&file, tree.path().join("page.txt")).expect("a link");
    let server = launch(&tree, store.path(), "auto");
    make(&server, "/page.html");
    make(&server, "/page.txt");
    let mut client = server.client();
    for (path, content_type) in [
        ("/page.txt", "text/plain; charset=utf-8"),
        ("/page.html", "text/html; charset=utf-8"),
    ] {
        let kept = client.get_with(path, &[BROTLI]);
        assert_eq!(kept.field("content-type"), content_type);
    }
    assert_eq!(variants(store.path()), 1);
}

#[test]
fn methods_and_conditions_agree() {
    let (tree, store) = (Tree::new(), store());
    age(&tree.file("page.html", page()), Duration::from_secs(100));
    let server = launch(&tree, store.path(), "auto");
    let plain = server.get("/page.html");
    make(&server, "/page.html");
    let mut client = server.client();
    let kept = client.get_with("/page.html", &[BROTLI]);
    let head = client.request("HEAD", "/page.html", &[BROTLI]);
    assert_eq!(head.field("etag"), kept.field("etag"));
    assert_eq!(head.length(), kept.length());
    let matching = client.get_with("/page.html", &[BROTLI, ("If-Match", plain.field("etag"))]);
    assert_eq!(matching.status, 200);
    let date = plain.field("last-modified");
    let known = client.get_with("/page.html", &[BROTLI, ("If-Modified-Since", date)]);
    assert_eq!(known.status, 304);
    for absent in ["etag", "accept-ranges"] {
        assert_eq!(known.header(absent), None, "{absent}");
    }
}

#[test]
fn variants_survive_a_restart() {
    let (tree, store) = (Tree::new(), store());
    age(&tree.file("page.html", page()), Duration::from_secs(100));
    let server = launch(&tree, store.path(), "auto");
    make(&server, "/page.html");
    drop(server);
    let server = launch(&tree, store.path(), "auto");
    let kept = server.client().get_with("/page.html", &[BROTLI]);
    assert!(kept.field("etag").starts_with('"'));
    assert_eq!(decoded(&kept.body), page());
}

#[test]
fn a_variant_that_is_removed_is_made_again() {
    let (tree, store) = (Tree::new(), store());
    age(&tree.file("page.html", page()), Duration::from_secs(100));
    let server = launch(&tree, store.path(), "auto");
    make(&server, "/page.html");
    for file in fs::read_dir(store.path()).expect("the folder") {
        fs::remove_file(file.expect("a file").path()).expect("it goes");
    }
    let is_missed = || {
        let response = server.client().get_with("/page.html", &[BROTLI]);
        assert_eq!(decoded(&response.body), page());
        response.field("etag").starts_with("W/")
    };
    wait_until("the variant is missed", is_missed);
    make(&server, "/page.html");
}

#[test]
fn nothing_is_kept_of_what_must_not_be_transformed_or_is_rewritten() {
    let (tree, store) = (Tree::new(), store());
    for name in [
        "page.html",
        "fixed/page.html",
        "text/page.html",
        "small.html",
    ] {
        age(&tree.file(name, page()), Duration::from_secs(100));
    }
    age(&tree.file("small.html", "small"), Duration::from_secs(100));
    let disk = format!("[disk]\nvariants = \"{}\"\n", store.path().display());
    let keys = "compress = true\n\
                [[site.route]]\npath = \"/fixed/*\"\n\
                headers = { set = { \"Cache-Control\" = \"no-transform\" } }\n\
                [[site.route]]\npath = \"/text/*\"\nsubstitute = { loop = \"pool\" }\n";
    let server = Launch::site(tree.path(), &disk, keys).start();
    let mut client = server.client();
    for path in ["/fixed/page.html", "/text/page.html", "/small.html"] {
        for _ in 0..2 * REQUESTS {
            client.get_with(path, &[BROTLI]);
        }
    }
    // Made after the others would have been.
    make(&server, "/page.html");
    assert_eq!(variants(store.path()), 1);
}

#[test]
fn kept_variants_are_counted() {
    let (tree, store) = (Tree::new(), store());
    age(&tree.file("page.html", page()), Duration::from_secs(100));
    let tables = format!(
        "[admin]\nlisten = \"unix:{{own}}/admin\"\n[disk]\nvariants = \"{}\"\nvariants_bytes = \"1MiB\"\n",
        store.path().display()
    );
    let server = Launch::site(tree.path(), &tables, "compress = true").start();
    let socket = server.own("admin");
    let figures = || {
        let metrics = server.metrics(&socket);
        let exported = ["", "_bytes", "_limit_bytes"]
            .map(|unit| metrics.sum(&format!("levity_variants{unit}")) as u64);
        let status = Client::unix(&socket).get("/status.json");
        let status: serde_json::Value = serde_json::from_slice(&status.body).expect("JSON");
        let shown = ["kept", "bytes", "bytes_max"].map(|key| status["variants"][key].as_u64());
        assert_eq!(shown, exported.map(Some));
        exported
    };
    assert_eq!(figures(), [0, 0, 1 << 20]);
    make(&server, "/page.html");
    let kept = server.client().get_with("/page.html", &[BROTLI]);
    assert_eq!(figures(), [1, kept.body.len() as u64, 1 << 20]);
}

#[test]
fn a_folder_that_cannot_be_opened_is_named() {
    let tree = Tree::new();
    let absent = tree.path().join("absent");
    let disk = format!("[disk]\nvariants = \"{}\"\n", absent.display());
    let ran = Launch::site(tree.path(), &disk, "compress = true").ran();
    assert!(ran.stderr.contains("variants"), "{}", ran.stderr);
    assert_ne!(ran.status, 0);
}
