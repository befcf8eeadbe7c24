//! `try`: what answers, one thing after another.

use crate::clients::{chromium, url};
use crate::support::scripted::Scripted;
use crate::support::{Launch, Server, Tree, per_engine, wait_until};

use std::time::Duration;

const CHROMIUM_MAX: Duration = Duration::from_secs(60);

fn tree() -> Tree {
    let tree = Tree::new();
    tree.file("index.html", "home");
    tree.file("a", "file");
    tree.file("a.html", "not asked");
    tree.file("b.html", "page");
    tree.file("docs/index.html", "folder");
    tree.file("docs.html", "page beside folder");
    tree.folder("empty");
    tree.file(".hidden.html", "hidden");
    tree
}

fn trying(tree: &Tree, engine: &str, steps: &str, more: &str) -> Server {
    let keys = format!("try = [{steps}]\n{more}");
    Launch::site(tree.path(), "", &keys).engine(engine).start()
}

#[track_caller]
fn assert_contents(server: &Server, expected: &[(&str, &str)]) {
    let mut client = server.client();
    for (path, content) in expected {
        let answer = client.get(path);
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (200, *content),
            "{path}"
        );
        let head = client.head(path);
        assert_eq!(head.length(), Some(content.len()), "{path}");
    }
}

#[track_caller]
fn assert_statuses(server: &Server, expected: &[(&str, u16)]) {
    let mut client = server.client();
    for (path, status) in expected {
        assert_eq!(client.get(path).status, *status, "{path}");
    }
}

per_engine! {
    fn every_step_in_order(engine) {
        let tree = tree();
        let steps = "\"file\", \"file.html\", \"directory\", \"/index.html\"";
        let server = trying(&tree, engine, steps, "");
        // Twice: from the disk, and from the cache.
        for _ in 0..2 {
            assert_contents(&server, &[
                ("/a", "file"),
                ("/b", "page"),
                ("/b.html", "page"),
                ("/docs", "page beside folder"),
                ("/docs/", "folder"),
                ("/", "home"),
                ("/empty", "home"),
                ("/empty/", "home"),
                ("/none/of/these", "home"),
                ("/b/", "home"),
                ("/a/b", "home"),
                ("/.hidden", "home"),
                ("/x%2Fy", "home"),
            ]);
        }
    }

    fn the_last_is_an_error(engine) {
        let tree = tree();
        let server = trying(&tree, engine, "\"file\", \"file.html\", 410", "");
        assert_statuses(&server, &[("/a", 200), ("/docs", 200), ("/", 200), ("/none", 410), ("/empty/", 410)]);
        let without = trying(&tree, engine, "\"file\", \"/none.html\"", "");
        assert_statuses(&without, &[("/a", 200), ("/none", 404), ("/none.html", 404)]);
    }

    fn folders(engine) {
        let tree = tree();
        let server = trying(&tree, engine, "\"file\", \"directory\", 404", "listing = true");
        for (path, location) in [("/docs", "/docs/"), ("/empty?a=b", "/empty/?a=b")] {
            let answer = server.get(path);
            assert_eq!(answer.status / 100, 3, "{path}");
            assert_eq!(answer.field("location"), location);
        }
        tree.file("empty/name", "x");
        assert!(server.get("/empty/").text().contains("name"));
        assert_contents(&server, &[("/docs/", "folder")]);
        assert_statuses(&server, &[("/none/", 404), ("/a/", 404)]);
    }
}

/// The page of an application is the same under every path, also when it changes.
#[test]
fn a_fallback_that_changes() {
    let tree = tree();
    let server = trying(&tree, "auto", "\"file\", \"/index.html\"", "");
    let page = server.get("/some/path");
    assert_eq!(page.field("content-type"), "text/html; charset=utf-8");
    let etag = page.field("etag").to_owned();
    let again = server.get_with("/other/path", &[("If-None-Match", &etag)]);
    again.assert_status(304);
    tree.fresh("index.html", "changed");
    wait_until("the change is seen", || {
        server.get("/some/path").text() == "changed"
    });
    assert_eq!(
        server.get_with("/a/b", &[("Range", "bytes=1-3")]).text(),
        "han"
    );
}

#[test]
fn precompressed_fallbacks() {
    let tree = tree();
    tree.file("index.html.gz", "compressed");
    let server = trying(
        &tree,
        "auto",
        "\"file\", \"/index.html\"",
        "precompressed = [\"gzip\"]",
    );
    let answer = server.get_with("/a/b", &[("Accept-Encoding", "gzip")]);
    assert_eq!(
        (answer.field("content-encoding"), answer.text().as_str()),
        ("gzip", "compressed")
    );
    assert_eq!(server.get("/a/b").text(), "home");
}

#[test]
fn other_methods_are_for_the_upstream() {
    let tree = tree();
    let none = trying(&tree, "auto", "\"file\", \"/index.html\"", "");
    let mut client = none.client();
    let refused = client.request("POST", "/a", &[("Content-Length", "0")]);
    assert_eq!(
        (refused.status, refused.field("allow")),
        (405, "GET, HEAD, OPTIONS")
    );
    assert_eq!(client.request("OPTIONS", "/none", &[]).status, 204);
    client.send("GET /none HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(client.receive().text(), "home");
    client.get("/a").assert_status(200);

    let app = Scripted::tcp(|conn| {
        while conn.read_request().is_some() {
            conn.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\napp");
        }
    });
    let upstream = format!(
        "[[upstream]]\nname = \"app\"\nto = [\"{}\"]\n",
        app.address()
    );
    let keys = "proxy = \"app\"\ntry = [\"file\", \"file.html\", \"directory\", \"proxy\"]";
    let server = Launch::site(tree.path(), &upstream, keys).start();
    assert_contents(&server, &[("/b", "page"), ("/docs/", "folder")]);
    let mut client = server.client();
    for (method, path) in [
        ("GET", "/none"),
        ("POST", "/a"),
        ("POST", "/"),
        ("GET", "/empty/"),
    ] {
        let headers: &[_] = if method == "POST" {
            &[("Content-Length", "0")]
        } else {
            &[]
        };
        assert_eq!(
            client.request(method, path, headers).text(),
            "app",
            "{method} {path}"
        );
    }
}

#[test]
fn a_route_has_steps_of_its_own() {
    let tree = tree();
    let route = "[[site.route]]\npath = \"/docs/*\"\nstrip_prefix = \"/docs\"\ntry = [\"file\", \"/docs.html\"]\n\
                 [[site.route]]\npath = \"/assets/*\"\ntry = [\"file\"]";
    let server = trying(&tree, "auto", "\"file\", \"/index.html\"", route);
    assert_contents(
        &server,
        &[
            ("/docs/a", "file"),
            ("/docs/x", "page beside folder"),
            ("/x", "home"),
        ],
    );
    assert_statuses(&server, &[("/assets/gone.js", 404)]);
}

#[test]
fn serve_a_single_page_application() {
    let tree = Tree::new();
    tree.file(
        "index.html",
        "<!doctype html><title>app</title><div id=app></div><script type=module src=/assets/app.js></script>",
    );
    tree.file(
        "assets/app.js",
        "document.getElementById('app').textContent = 'route ' + location.pathname;",
    );
    let server = Launch::serve(tree.path()).arguments(["--spa"]).start();
    let page = chromium(CHROMIUM_MAX, &url(&server, "/users/7"));
    assert!(page.contains("route /users/7"), "{page}");
    assert!(server.get("/assets/").text().contains("<title>app</title>"));

    let empty = Tree::new();
    let ran = Launch::levity(["serve"])
        .arguments([empty.path()])
        .arguments(["--spa"])
        .ran();
    assert_eq!(ran.status, 1);
    assert!(
        ran.stderr
            .contains("has no index.html, which `--spa` serves"),
        "{}",
        ran.stderr
    );
}

/// Whatever is served may be edited: a browser that keeps it would show what it was.
#[test]
fn how_long_what_is_served_may_be_kept() {
    let tree = tree();
    tree.file("assets/app-DiwrgTda.js", "code");
    let plain = Tree::new();
    plain.file("app-3f2a9c1b.js", "code");
    let (no_cache, year) = (
        Some("no-cache"),
        Some("public, max-age=31536000, immutable"),
    );
    let hashed = "/assets/app-DiwrgTda.js";
    for (root, flags, path, expected) in [
        (tree.path(), &[][..], "/", no_cache),
        (tree.path(), &[], "/empty/", no_cache),
        (tree.path(), &[], hashed, no_cache),
        (tree.path(), &["--spa"], "/", no_cache),
        (tree.path(), &["--spa"], "/users/7", no_cache),
        (tree.path(), &["--spa"], hashed, year),
        (plain.path(), &[], "/app-3f2a9c1b.js", no_cache),
        (&plain.at("app-3f2a9c1b.js"), &[], "/", no_cache),
    ] {
        let server = Launch::serve(root).arguments(flags).start();
        let answer = server.get(path);
        answer.assert_status(200);
        assert_eq!(answer.header("cache-control"), expected, "{flags:?} {path}");
    }
}

/// What a site generator writes, such as Astro or Hugo, is served as its host would.
#[test]
fn a_built_site_is_served_by_its_own_rules() {
    let tree = tree();
    tree.file("404.html", "lost");
    tree.file("_redirects", "/old /b 302\n/new x\n/made-of/* /a 200\n");
    tree.file("_headers", "/a\n  X-Own: 1\n");
    let server = Launch::serve(tree.path()).start();
    assert_contents(
        &server,
        &[
            ("/", "home"),
            ("/a", "file"),
            ("/b", "page"),
            ("/docs/", "folder"),
            ("/made-of/x", "file"),
        ],
    );
    assert_statuses(
        &server,
        &[("/docs/?x", 200), ("/_redirects", 404), ("/empty/", 200)],
    );
    let lost = server.get("/none/none.js");
    assert_eq!((lost.status, lost.text().as_str()), (404, "lost"));
    assert_eq!(server.get("/a").header("x-own"), Some("1"));
    let old = server.get("/old");
    assert_eq!((old.status, old.field("location")), (302, "/b"));
    let log = server.stderr();
    assert!(
        log.contains("configuration: _redirects, line 2, is left out"),
        "{log}"
    );
}

#[test]
fn a_missing_file_of_a_single_page_application() {
    let tree = tree();
    tree.file("_redirects", "/moved.js /a 302\n");
    let server = Launch::serve(tree.path()).arguments(["--spa"]).start();
    let mut client = server.client();
    let page = "text/html,application/xhtml+xml,*/*;q=0.8";
    for (path, accept, status) in [
        ("/users/7", "*/*", 200),
        ("/v1.2/users", "*/*", 200),
        ("/gone.js", "*/*", 404),
        ("/gone.png", "image/avif,*/*", 404),
        ("/users/john.doe", page, 200),
        ("/users/john.doe", "application/json", 404),
        ("/b.html", "*/*", 200),
        ("/moved.js", "*/*", 302),
    ] {
        let answer = client.get_with(path, &[("Accept", accept)]);
        assert_eq!(answer.status, status, "{path} {accept}");
    }
    client.get("/gone.js").assert_status(404);
}

/// What a route guards is not sent for another path that leads to the same file.
#[test]
fn guarded_files_under_other_paths() {
    let tree = Tree::new();
    for name in [
        "secret.html",
        "private/index.html",
        "open/index.html",
        "d/README.md",
        "d/x",
        "open.html",
    ] {
        tree.file(name, "some words");
    }
    let routes = "listing = true\n\
        [[site.route]]\npath = \"/secret.html\"\ndeny = [\"all\"]\n\
        [[site.route]]\npath = \"/private/index.html\"\ndeny = [\"all\"]\n\
        [[site.route]]\npath = \"*.md\"\ndeny = [\"all\"]";
    let server = trying(
        &tree,
        "auto",
        "\"file\", \"file.html\", \"directory\", 404",
        routes,
    );
    let mut client = server.client();
    for (path, status) in [
        ("/secret.html", 403),
        ("/secret", 403),
        ("/private/", 403),
        ("/private/index.html", 403),
        ("/open", 200),
        ("/open/", 200),
    ] {
        assert_eq!(client.get(path).status, status, "{path}");
    }
    let listing = client.get_with("/d/", &[("Accept", "text/html")]);
    let listing = listing.text();
    assert!(listing.contains("\"x\""));
    assert!(!listing.contains("README.md") && !listing.contains("some words"));
}
