//! Pages in place of errors, and the ids of requests.

use std::time::Duration;

use serde_json::Value;

use crate::clients::{chromium, url};
use crate::support::scripted::Scripted;
use crate::support::{Answer, Launch, Server, Tree, per_engine, wait_until};

const CHROMIUM_MAX: Duration = Duration::from_secs(60);

const BROWSER: [(&str, &str); 1] = [(
    "Accept",
    "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
)];

fn json(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).expect("JSON")
}

/// A backend that answers with the status in the path.
fn backend() -> Scripted {
    Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            let status = request.target.trim_start_matches('/').to_owned();
            let head = format!(
                "HTTP/1.1 {status} Own\r\nX-Own: 1\r\nETag: \"own\"\r\nRetry-After: 7\r\nContent-Type: text/own\r\nContent-Length: 3\r\n\r\nown"
            );
            conn.send(head);
        }
    })
}

/// The headers of an answer without its times, and its text.
fn without_times(answer: &Answer) -> (Vec<(String, Vec<u8>)>, String) {
    let mut headers = answer.headers();
    headers.retain(|(name, _)| !name.eq_ignore_ascii_case("server-timing"));
    (headers, answer.text())
}

/// A difference to what is not there would tell clients which paths are internal.
#[test]
fn an_internal_route_looks_like_nothing() {
    let tree = Tree::new();
    tree.file("errors/404.html", "own page");
    tree.file("in/a", "a");
    let keys = "security_headers = true\nserver_timing = true\n\
        headers = { always = true, set = { X-Always = \"1\" } }\n";
    let routes = "[[site.route]]\npath = \"/errors/*\"\ninternal = true\n\
        [[site.route]]\npath = \"/in/*\"\ninternal = true\nheaders = { always = true, set = { X-In = \"1\" } }\n";
    for pages in ["error_pages = { 404 = \"/errors/404.html\" }\n", ""] {
        let server = Launch::site(tree.path(), "", &format!("{keys}{pages}{routes}")).start();
        let mut client = server.client();
        let seen = ["/nope", "/errors/404.html", "/errors/none", "/in/a"].map(|path| {
            let answer = client.get(path);
            answer.assert_status(404);
            assert_eq!(answer.field("x-always"), "1", "{path}");
            answer.field("server-timing");
            answer.field("x-content-type-options");
            assert_eq!(answer.text() == "own page", !pages.is_empty(), "{path}");
            without_times(&answer)
        });
        let [expected, internal @ ..] = &seen;
        for internal in internal {
            assert_eq!(internal, expected);
        }
    }
}

#[test]
fn the_form_is_chosen_by_accept() {
    let tree = Tree::new();
    let server = Launch::serve(tree.path()).start();
    let mut client = server.client();
    for accept in ["*/*", "image/png", "text/plain, text/html;q=0.9"] {
        let text = client.get_with("/none", &[("Accept", accept)]);
        assert_eq!(text.text(), "404 Not Found\n", "{accept}");
        assert_eq!(text.field("vary"), "Accept");
    }
    let page = client.get_with("/none", &BROWSER);
    assert_eq!(
        (page.status, page.field("content-type")),
        (404, "text/html; charset=utf-8")
    );
    assert!(
        page.text()
            .contains("<h1>404 Not Found</h1>\n<p>There is no page at this address.")
    );
    assert!(!page.text().contains("levity"), "{}", page.text());
    for accept in ["application/json", "application/problem+json, */*;q=0.1"] {
        let problem = client.get_with("/none", &[("Accept", accept)]);
        assert!(accept.starts_with(problem.field("content-type")));
        let object = json(&problem);
        assert_eq!(
            (&object["status"], &object["title"]),
            (&404.into(), &"Not Found".into())
        );
        assert_eq!(object["request_id"].as_str().map(str::len), Some(32));
    }
    let head = client.request("HEAD", "/none", &BROWSER);
    assert_eq!(head.field("content-type"), "text/html; charset=utf-8");
    let post = client.request("POST", "/none", &[BROWSER[0], ("Content-Length", "0")]);
    assert_eq!(
        (post.status, post.field("allow")),
        (405, "GET, HEAD, OPTIONS")
    );
}

#[test]
fn a_browser_shows_the_page() {
    let tree = Tree::new();
    let server = Launch::serve(tree.path()).start();
    let page = chromium(CHROMIUM_MAX, &url(&server, "/none"));
    assert!(page.contains("<h1>404 Not Found</h1>"), "{page}");
}

fn with_pages(engine: &str, more: &str) -> (Tree, Server) {
    let tree = Tree::new();
    tree.file("404.html", "<h1>lost</h1>");
    tree.file("all.txt", "all others");
    tree.folder("empty");
    let keys = format!(
        "error_pages = {{ 404 = \"/404.html\", 403 = \"/gone.html\", 4xx = \"/all.txt\" }}\n{more}"
    );
    let server = Launch::site(tree.path(), "", &keys).engine(engine).start();
    (tree, server)
}

per_engine! {
    fn own_pages(engine) {
        let (tree, server) = with_pages(engine, "");
        let mut client = server.client();
        // Twice: from the disk, and from the cache.
        for _ in 0..2 {
            let lost = client.get_with("/none", &[("If-None-Match", "*"), ("Range", "bytes=0-3")]);
            assert_eq!((lost.status, lost.text().as_str()), (404, "<h1>lost</h1>"));
            assert_eq!(lost.field("content-type"), "text/html; charset=utf-8");
            for name in ["etag", "last-modified", "accept-ranges", "content-range"] {
                assert_eq!(lost.header(name), None, "{name}");
            }
        }
        let head = client.head("/none");
        assert_eq!((head.status, head.length()), (404, Some(13)));
        let refused = client.request("POST", "/none", &[("Content-Length", "0")]);
        assert_eq!((refused.status, refused.text().as_str()), (405, "all others"));
        assert_eq!(refused.field("allow"), "GET, HEAD, OPTIONS");
        // Its page does not exist.
        assert_eq!(client.get("/empty/").text(), "403 Forbidden: listing is off for this directory\n");
        server.says("cannot send the error page /gone.html");
        tree.fresh("404.html", "changed");
        wait_until("the change is seen", || server.get("/none").text() == "changed");
        assert_eq!(server.get("/404.html").status, 200);
    }
}

#[test]
fn routes_have_pages_of_their_own() {
    let routes = "[[site.route]]\npath = \"/plain/*\"\nerror_pages = {}\n\
        [[site.route]]\npath = \"/gone/*\"\nrespond = { status = 410 }\n\
        [[site.route]]\npath = \"/said/*\"\nrespond = { status = 410, body = \"said\" }\n\
        [[site.route]]\npath = \"/deep/*\"\nstrip_prefix = \"/deep\"\nheaders = { always = true, set = { X-Deep = \"1\" } }";
    let (_tree, server) = with_pages("auto", routes);
    let mut client = server.client();
    assert_eq!(client.get("/plain/x").text(), "404 Not Found\n");
    let gone = client.get("/gone/x");
    assert_eq!((gone.status, gone.text().as_str()), (410, "all others"));
    assert_eq!(client.get("/said/x").text(), "said");
    let deep = client.get("/deep/x");
    assert_eq!(
        (deep.text().as_str(), deep.field("x-deep")),
        ("<h1>lost</h1>", "1")
    );
}

/// Pages that a route inherits stay those of the site, also if its files are elsewhere.
#[test]
fn pages_lie_where_they_are_named() {
    let other = Tree::new();
    other.file("404.html", "of the other root");
    other.file("own.html", "own");
    let root = other.path().display();
    let routes = format!(
        "[[site.route]]\npath = \"/other/*\"\nstrip_prefix = \"/other\"\nroot = \"{root}\"\n\
         [[site.route]]\npath = \"/own/*\"\nstrip_prefix = \"/own\"\nroot = \"{root}\"\nerror_pages = {{ 404 = \"/own.html\" }}"
    );
    let (_tree, server) = with_pages("auto", &routes);
    let mut client = server.client();
    for _ in 0..2 {
        assert_eq!(client.get("/other/none").text(), "<h1>lost</h1>");
        assert_eq!(client.get("/own/none").text(), "own");
        assert_eq!(client.get("/other/404.html").text(), "of the other root");
        assert_eq!(client.get("/none").text(), "<h1>lost</h1>");
    }
}

#[test]
fn errors_of_an_upstream() {
    let tree = Tree::new();
    tree.file("sorry.html", "sorry");
    let backend = backend();
    let upstream = format!(
        "[[upstream]]\nname = \"app\"\nto = [\"{}\"]\n",
        backend.address()
    );
    let keys = "proxy = \"app\"\nerror_pages = { 5xx = \"/sorry.html\" }\nreplace_errors = [\"404\", \"5xx\"]";
    let server = Launch::site(tree.path(), &upstream, keys).start();
    let mut client = server.client();
    let replaced = client.get("/503");
    assert_eq!((replaced.status, replaced.text().as_str()), (503, "sorry"));
    assert_eq!(
        (replaced.field("x-own"), replaced.header("etag")),
        ("1", None)
    );
    let times = replaced.headers().into_iter();
    let times = times.filter(|(name, _)| name.eq_ignore_ascii_case("retry-after"));
    assert_eq!(times.map(|(_, value)| value).collect::<Vec<_>>(), [b"7"]);
    assert_eq!(client.get("/404").text(), "404 Not Found\n");
    assert_eq!(
        client.request("HEAD", "/404", &[]).field("content-length"),
        "14"
    );
    for kept in ["403", "200"] {
        assert_eq!(client.get(&format!("/{kept}")).text(), "own", "{kept}");
    }
    drop(backend);
    wait_until("the backend is gone", || {
        let failed = server.get("/200");
        (failed.status, failed.text().as_str()) == (502, "sorry")
    });
}

#[test]
fn ids_are_taken_from_proxies_and_passed_on() {
    let echo = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            let id = request.field("x-request-id").unwrap_or("none").to_owned();
            conn.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{id}",
                id.len()
            ));
        }
    });
    let started = |server: &str| {
        Launch::run(&format!(
            "[server]\n{server}\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"app\"\nto = [\"{}\"]\n\
             [log]\nformat = \"json\"\n[[site]]\nproxy = \"app\"\n[[site.route]]\npath = \"/gone\"\nrespond = {{ status = 410 }}\n",
            echo.address()
        ))
        .start()
    };
    let theirs = [("X-Request-Id", "abc"), ("Accept", "application/json")];
    let trusting = started("request_id = \"X-Request-Id\"\ntrusted_proxies = [\"127.0.0.1\"]");
    assert_eq!(trusting.get_with("/", &theirs).text(), "abc");
    assert_eq!(
        json(&trusting.get_with("/gone", &theirs))["request_id"],
        "abc"
    );
    trusting.prints("\"id\":\"abc\"");
    for bad in ["a b", "", &"x".repeat(129)] {
        assert_eq!(
            trusting
                .get_with("/", &[("X-Request-Id", bad)])
                .text()
                .len(),
            32,
            "{bad}"
        );
    }
    let making = started("request_id = \"X-Request-Id\"");
    let made = making.get_with("/", &theirs).text();
    assert_eq!(made.len(), 32);
    making.prints(&format!("\"id\":\"{made}\""));
    assert_ne!(making.get("/").text(), made);
    assert_eq!(started("").get_with("/", &theirs).text(), "abc");
}
