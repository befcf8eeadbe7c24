//! Changes to the headers of responses.

use std::time::Duration;

use crate::clients::{chromium, url};
use crate::support::scripted::Scripted;
use crate::support::{Answer, Launch, Server, Tree};

#[track_caller]
fn assert_fields(answer: &Answer, expected: &[(&str, Option<&str>)]) {
    for (name, value) in expected {
        assert_eq!(answer.header(name), *value, "{name}");
    }
}

/// The server's rules come first, then those of the site, of the route, and of the route within it.
#[test]
fn rules_are_added_from_the_outside_in() {
    let tree = Tree::new();
    for name in ["a", "r/a", "r/s/a", "t/a"] {
        tree.file(name, "x");
    }
    let keys = "headers = { set = { X-Site = \"1\", X-All = \"site\" }, add = { Link = \"site\" } }\n\
        [[site.route]]\npath = \"/r/*\"\nheaders = { set = { X-All = \"route\" }, add = { Link = \"route\" }, remove = [\"X-Server\"] }\n\
        [[site.route.route]]\npath = \"/r/s/*\"\nheaders.set = { X-Inner = \"1\" }\n\
        [[site.route]]\npath = \"/t/*\"\nheaders = { reset = true, set = { X-Own = \"1\" } }";
    let server = "[server.headers]\nset = { X-Server = \"1\", X-All = \"server\" }";
    let server = Launch::site(tree.path(), server, keys).start();
    let mut client = server.client();
    let of_site = client.get("/a");
    assert_fields(
        &of_site,
        &[
            ("x-server", Some("1")),
            ("x-site", Some("1")),
            ("x-all", Some("site")),
        ],
    );
    let of_route = client.get("/r/a");
    assert_fields(
        &of_route,
        &[
            ("x-server", None),
            ("x-site", Some("1")),
            ("x-all", Some("route")),
        ],
    );
    let links = of_route
        .headers()
        .into_iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("link"));
    assert_eq!(
        links.map(|(_, value)| value).collect::<Vec<_>>(),
        [&b"site"[..], b"route"]
    );
    let inner = client.get("/r/s/a");
    assert_fields(&inner, &[("x-inner", Some("1")), ("x-all", Some("route"))]);
    let reset = client.get("/t/a");
    assert_fields(
        &reset,
        &[
            ("x-own", Some("1")),
            ("x-site", None),
            ("x-server", None),
            ("link", None),
        ],
    );
}

#[test]
fn errors_are_changed_where_that_is_asked_for() {
    let tree = Tree::new();
    tree.file("a", "x");
    let keys = "headers = { set = { X-Ok = \"1\", X-Both = \"ok\" } }\n\
        [[site.route]]\npath = \"/always/*\"\nheaders = { always = true, set = { X-Always = \"1\", X-Both = \"always\" } }";
    let server = Launch::site(tree.path(), "", keys).start();
    let mut client = server.client();
    assert_fields(
        &client.get("/a"),
        &[("x-ok", Some("1")), ("x-both", Some("ok"))],
    );
    assert_fields(&client.get("/none"), &[("x-ok", None), ("x-both", None)]);
    let always = client.get("/always/none");
    assert_fields(
        &always,
        &[
            ("x-ok", None),
            ("x-always", Some("1")),
            ("x-both", Some("always")),
        ],
    );
}

#[test]
fn how_long_content_may_be_kept() {
    let tree = Tree::new();
    for name in [
        "app.3f2a9c1b.js",
        "index.html",
        "a.png",
        "a.txt",
        "r/a.txt",
        "s/a.png",
        "v/a.css",
    ] {
        tree.file(name, "x");
    }
    let keys = "cache = { hashed = \"immutable\", \"text/html\" = \"no-cache\", \"image/*\" = \"30d\" }\n\
        [[site.route]]\npath = \"/r/*\"\ncache = \"1h\"\n\
        [[site.route]]\npath = \"/s/*\"\ncache = {}\n\
        [[site.route]]\npath = \"/v/*\"\nheaders.set = { Cache-Control = \"private\" }\ncache = \"1h\"";
    let server = Launch::site(tree.path(), "", keys).start();
    let mut client = server.client();
    for (path, expected) in [
        (
            "/app.3f2a9c1b.js",
            Some("public, max-age=31536000, immutable"),
        ),
        ("/", Some("no-cache")),
        ("/a.png", Some("max-age=2592000")),
        ("/a.txt", None),
        ("/none.png", None),
        ("/r/a.txt", Some("max-age=3600")),
        ("/s/a.png", None),
        ("/v/a.css", Some("private")),
    ] {
        assert_eq!(client.get(path).header("cache-control"), expected, "{path}");
    }
    let etag = client.get("/a.png").field("etag").to_owned();
    let unchanged = client.get_with("/a.png", &[("If-None-Match", &etag)]);
    assert_eq!(
        (unchanged.status, unchanged.field("cache-control")),
        (304, "max-age=2592000")
    );
    let part = client.get_with("/a.png", &[("Range", "bytes=0-0")]);
    assert_eq!(
        (part.status, part.field("cache-control")),
        (206, "max-age=2592000")
    );
}

#[test]
fn an_application_knows_its_own_content() {
    let backend = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            let own = match request.target.as_str() {
                "/own" => {
                    "Cache-Control: private\r\nX-Frame-Options: DENY\r\nAccess-Control-Allow-Origin: null\r\n"
                }
                _ => "",
            };
            conn.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{own}Content-Length: 1\r\n\r\nx"
            ));
        }
    });
    let upstream = format!(
        "[[upstream]]\nname = \"app\"\nto = [\"{}\"]\n",
        backend.address()
    );
    let keys = "proxy = \"app\"\ncache = \"no-store\"\nsecurity_headers = true\ncors = { origins = [\"*\"] }";
    let server = Launch::site(Tree::new().path(), &upstream, keys).start();
    let mut client = server.client();
    let page = [("Origin", "https://a.example")];
    let own = client.get_with("/own", &page);
    assert_fields(
        &own,
        &[
            ("cache-control", Some("private")),
            ("x-frame-options", Some("DENY")),
            ("access-control-allow-origin", Some("*")),
        ],
    );
    let ours = client.get_with("/ours", &page);
    assert_fields(
        &ours,
        &[
            ("cache-control", None),
            ("x-frame-options", Some("SAMEORIGIN")),
            ("x-content-type-options", Some("nosniff")),
            ("referrer-policy", Some("strict-origin-when-cross-origin")),
        ],
    );
}

/// A fallback has the rules of the page, and not those of the name that it stands in for.
#[test]
fn how_long_a_fallback_may_be_kept() {
    let tree = Tree::new();
    for name in ["index.html", "assets/app-DiwrgTda.js", "latest.3f2a9c1b.js"] {
        tree.file(name, "x");
    }
    tree.file(
        "_headers",
        "/named/*\n  Cache-Control: immutable\n  X-Named: 1\n",
    );
    tree.file("_redirects", "/latest.js /latest.3f2a9c1b.js 200\n");
    let year = "max-age=31536000";
    let keys = format!(
        "static_host_files = true\ntry = [\"file\", \"/index.html\"]\n\
         cache = {{ hashed = \"{year}\", \"text/html\" = \"no-cache\" }}\n\
         [[site.route]]\npath = \"/kept/*\"\ncache = \"{year}\"\n\
         [[site.route]]\npath = \"/set/*\"\nheaders.set = {{ Cache-Control = \"{year}\", X-Set = \"1\" }}"
    );
    let server = Launch::site(tree.path(), "", &keys).start();
    let mut client = server.client();
    for (path, expected) in [
        ("/assets/app-DiwrgTda.js", Some(year)),
        ("/assets/app-DiwrgTdb.js", Some("no-cache")),
        ("/kept/a.js", Some("no-cache")),
        ("/set/a.js", Some("no-cache")),
        ("/named/a.js", Some("no-cache")),
        ("/latest.3f2a9c1b.js", Some(year)),
        ("/latest.js", None),
    ] {
        let answer = client.get(path);
        answer.assert_status(200);
        assert_eq!(answer.header("cache-control"), expected, "{path}");
    }
    // All else is said by the route that answers.
    assert_eq!(client.get("/set/a.js").header("x-set"), Some("1"));
    assert_eq!(client.get("/named/a.js").header("x-named"), Some("1"));
}

/// What an application hands over may be for one client only.
#[test]
fn applications_say_how_long_their_answers_may_be_kept() {
    let tree = Tree::new();
    tree.file("a.txt", "file");
    let backend = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            let delegates = request.target == "/handed";
            let header = if delegates {
                "X-Accel-Redirect: /in/a.txt\r\n"
            } else {
                ""
            };
            conn.send(format!(
                "HTTP/1.1 200 OK\r\n{header}Content-Length: 0\r\n\r\n"
            ));
        }
    });
    let upstream = format!(
        "[[upstream]]\nname = \"app\"\nto = [\"{}\"]\n",
        backend.address()
    );
    let keys = format!(
        "try = [\"file\", \"proxy\"]\nproxy = \"app\"\ncache = \"1h\"\n\
         [[site.route]]\npath = \"/in/*\"\nroot = \"{}\"\nstrip_prefix = \"/in\"\ninternal = true",
        tree.path().display()
    );
    let server = Launch::site(tree.path(), &upstream, &keys).start();
    let mut client = server.client();
    assert_eq!(
        client.get("/a.txt").header("cache-control"),
        Some("max-age=3600")
    );
    assert_eq!(client.get("/made").header("cache-control"), None);
    let handed = client.get("/handed");
    assert_eq!((handed.status, handed.text().as_str()), (200, "file"));
    assert_eq!(handed.header("cache-control"), None);
}

#[test]
fn other_origins() {
    let tree = Tree::new();
    tree.file("a", "content");
    let keys = "cors = { origins = [\"https://a.example\", \"https://*.b.example:8443\"], methods = [\"PUT\"], credentials = true }\n\
        [[site.route]]\npath = \"/any/*\"\ncors = { origins = [\"*\"], headers = [\"*\"] }\nrespond = { body = \"any\" }\n\
        [[site.route]]\npath = \"/none/*\"\ncors = { origins = [] }\nrespond = { body = \"none\" }";
    let server = Launch::site(tree.path(), "", keys).start();
    let mut client = server.client();
    let allowed = |answer: &Answer| {
        answer
            .header("access-control-allow-origin")
            .map(str::to_owned)
    };
    for (origin, expected) in [
        ("https://a.example", Some("https://a.example")),
        ("https://x.b.example:8443", Some("https://x.b.example:8443")),
        ("https://b.example:8443", None),
        ("https://evil-a.example", None),
        ("https://a.example.evil", None),
        ("http://a.example", None),
        ("null", None),
    ] {
        let answer = client.get_with("/a", &[("Origin", origin)]);
        assert_eq!(allowed(&answer).as_deref(), expected, "{origin}");
        assert_eq!(answer.field("vary"), "Origin");
        let credentials = answer.header("access-control-allow-credentials");
        assert_eq!(credentials, expected.map(|_| "true"), "{origin}");
    }
    let missing = client.get_with("/x", &[("Origin", "https://a.example")]);
    assert_eq!((missing.status, allowed(&missing).is_some()), (404, true));
    assert!(
        missing
            .field("access-control-expose-headers")
            .contains("Content-Range")
    );
    let any = client.get_with("/any/a", &[("Origin", "null")]);
    assert_eq!(
        (allowed(&any).as_deref(), any.header("vary")),
        (Some("*"), None)
    );
    assert_eq!(allowed(&client.get("/any/a")).as_deref(), Some("*"));
    let none = client.get_with("/none/a", &[("Origin", "https://a.example")]);
    assert_eq!((none.text().as_str(), allowed(&none)), ("none", None));
}

#[test]
fn preflights_are_answered() {
    let tree = Tree::new();
    let keys = "cors = { origins = [\"https://a.example\"], methods = [\"PUT\", \"DELETE\"], max_age = \"1h\" }\n\
        [[site.route]]\npath = \"/any/*\"\ncors = { origins = [\"*\"], headers = [\"*\"] }\nrespond = { body = \"any\" }";
    let server = Launch::site(tree.path(), "", keys).start();
    let mut client = server.client();
    let asks = |origin| {
        [
            ("Origin", origin),
            ("Access-Control-Request-Method", "PUT"),
            ("Access-Control-Request-Headers", "x-a, x-b"),
        ]
    };
    let permitted = client.request("OPTIONS", "/not/there", &asks("https://a.example"));
    assert_eq!(permitted.status, 204);
    assert_fields(
        &permitted,
        &[
            ("access-control-allow-origin", Some("https://a.example")),
            ("access-control-allow-methods", Some("PUT, DELETE")),
            (
                "access-control-allow-headers",
                Some("Range, If-Range, If-Match, If-None-Match, If-Modified-Since, Content-Type"),
            ),
            ("access-control-max-age", Some("3600")),
        ],
    );
    let other = client.request("OPTIONS", "/a", &asks("https://b.example"));
    assert_eq!(other.status, 204);
    assert_fields(
        &other,
        &[
            ("access-control-allow-origin", None),
            ("access-control-allow-methods", None),
        ],
    );
    let any = client.request("OPTIONS", "/any/x", &asks("https://b.example"));
    assert_eq!(any.field("access-control-allow-headers"), "x-a, x-b");
    assert_eq!(client.request("OPTIONS", "/any/x", &[]).text(), "any");
}

/// Content of another origin is read by a script only with permission.
#[test]
fn chromium_keeps_to_the_permission() {
    let (content, page) = (Tree::new(), Tree::new());
    content.file("open/a.bin", "0123456789");
    content.file("closed/a.bin", "0123456789");
    page.file("index.html", "waiting");
    let origins = |server: &Server| format!("http://127.0.0.1:{}", server.address().port());
    let pages = Launch::serve(page.path()).start();
    let keys = format!(
        "[[site.route]]\npath = \"/open/*\"\ncors = {{ origins = [\"{}\"] }}",
        origins(&pages)
    );
    let server = Launch::site(content.path(), "", &keys).start();
    let script = "<!doctype html><body><script>\
        const read = (path) => {\
          const request = new XMLHttpRequest();\
          request.open('GET', BASE + path, false);\
          request.setRequestHeader('Range', 'bytes=2-4');\
          try { request.send() } catch (e) { return 'refused' }\
          return request.status + ' ' + request.getResponseHeader('Content-Range') + ' ' + request.responseText;\
        };\
        document.body.textContent = read('/open/a.bin') + ' | ' + read('/closed/a.bin');\
        </script>"
        .replace("BASE", &format!("'{}'", origins(&server)));
    page.fresh("index.html", script);
    let shown = chromium(Duration::from_secs(60), &url(&pages, "/"));
    assert!(shown.contains("206 bytes 2-4/10 234 | refused"), "{shown}");
}
