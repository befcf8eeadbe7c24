//! Which route a request matches.

use crate::support::{Client, Launch, Server};

/// A server that names in its responses the route that matched; `routes` are the keys of each.
fn routed(routes: &[&str]) -> Server {
    let tables = routes.iter().enumerate();
    let tables = tables.map(|(number, keys)| {
        format!("[[site.route]]\n{keys}\nrespond = {{ body = \"{number}\" }}\n")
    });
    let tables: String = tables.collect();
    Launch::run(&format!(
        "[server]\ntrusted_proxies = [\"127.0.0.1\"]\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[listen]]\naddress = \"unix:{{own}}/socket\"\n\
         [[site]]\nrespond = {{ body = \"site\" }}\n{tables}"
    ))
    .start()
}

#[track_caller]
fn assert_routes(server: &Server, expected: &[(&str, &str)]) {
    let mut client = server.client();
    for (path, route) in expected {
        assert_eq!(client.get(path).text(), *route, "{path}");
    }
}

#[test]
fn by_path() {
    let server = routed(&[
        "path = \"/a/*.{png,jpg}\"",
        "path = \"*.css\"",
        "regex = \"^/user/[0-9]+$\"",
        "path = \"/a/*\"",
    ]);
    assert_routes(
        &server,
        &[
            ("/a/x.png", "0"),
            ("/a/x.jp%67", "0"),
            ("/a/b/x.png", "3"),
            ("/a/b.css", "1"),
            ("/x/y/z.css?a.png", "1"),
            ("/user/12", "2"),
            ("/user/12/", "site"),
            ("/user/12x", "site"),
            ("/a", "site"),
        ],
    );
}

#[test]
fn by_method_header_query_and_type() {
    let server = routed(&[
        "when = { method = [\"POST\", \"PURGE\"] }",
        "path = \"/a\"\nwhen = { header = { X-Kind = \"a*\", x-both = \"*\" } }",
        "when = { query = { \"a b\" = \"1/2\" } }",
        "when = { type = [\"image/*\", \"text/css\"] }",
    ]);
    let mut client = server.client();
    let no_body = ("Content-Length", "0");
    assert_eq!(client.request("POST", "/x.png", &[no_body]).text(), "0");
    assert_eq!(client.request("PURGE", "/", &[]).text(), "0");
    let reading = routed(&["when = { method = [\"GET\"] }"]);
    assert_eq!(reading.client().request("HEAD", "/", &[]).length(), Some(1));
    let kind = |value| [("X-Kind", value), ("X-Both", "")];
    assert_eq!(client.get_with("/a", &kind("abc")).text(), "1");
    assert_eq!(client.get_with("/a", &kind("bab")).text(), "site");
    assert_eq!(client.get_with("/b", &kind("abc")).text(), "site");
    let several = [("X-Kind", "b"), ("X-Kind", "a"), ("X-Both", "1")];
    assert_eq!(client.get_with("/a", &several).text(), "1");
    assert_eq!(client.get_with("/a", &several[1..2]).text(), "site");
    let by_query = [
        ("/?a+b=1/2", "2"),
        ("/?x&a%20b=1%2F2&a%20b=3", "2"),
        ("/?a+b=1/22", "site"),
        ("/?a=1/2", "site"),
        ("/?", "site"),
    ];
    assert_routes(&server, &by_query);
    let by_type = [
        ("/a/b.svg", "3"),
        ("/a.css", "3"),
        ("/a.html", "site"),
        ("/png", "site"),
    ];
    assert_routes(&server, &by_type);
}

#[test]
fn by_client_and_listener() {
    let server = routed(&[
        "when = { listen = [\"unix:{own}/socket\"] }",
        "when = { client = [\"10.0.0.0/8\", \"2001:db8::/32\"] }",
        "when = { client = [\"127.0.0.1\"], listen = [\"127.0.0.1:0\"] }",
    ]);
    let mut client = server.client();
    assert_eq!(client.get("/").text(), "2");
    let by = |ip| [("X-Forwarded-For", ip)];
    assert_eq!(client.get_with("/", &by("10.1.2.3")).text(), "1");
    assert_eq!(client.get_with("/", &by("2001:db8::7")).text(), "1");
    assert_eq!(client.get_with("/", &by("192.0.2.1")).text(), "site");
    let mut local = Client::unix(&server.own("socket"));
    assert_eq!(local.get("/").text(), "0");
}

/// A route within another needs the conditions of both, and goes before it.
#[test]
fn routes_within_routes() {
    let server = Launch::run(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[site]]\nrespond = { body = \"site\" }\n\
         [[site.route]]\npath = \"/app/*\"\nwhen.method = [\"GET\"]\nrespond = { body = \"app\" }\nheaders.set = { X-App = \"1\" }\n\
         [[site.route.route]]\npath = \"/app/*.png\"\n\
         [[site.route.route]]\npath = \"/app/img/*\"\nrespond = { body = \"img\" }\nheaders.add = { X-Img = \"1\" }",
    )
    .start();
    assert_routes(
        &server,
        &[
            ("/app/a", "app"),
            ("/app/a.png", "app"),
            ("/app/img/a", "img"),
            ("/img/a", "site"),
        ],
    );
    let mut client = server.client();
    let posted = client.request("POST", "/app/img/a", &[("Content-Length", "0")]);
    assert_eq!(posted.text(), "site");
    let inner = client.get("/app/img/a");
    assert_eq!((inner.field("x-app"), inner.field("x-img")), ("1", "1"));
    assert_eq!(client.get("/app/a").header("x-img"), None);
}

#[test]
fn targets_of_redirects_name_groups() {
    let server = Launch::run(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[site]]\nroot = \"/\"\n\
         [[site.route]]\nregex = \"^/u/([a-z]+)/([0-9 ]*)$\"\nredirect = { to = \"/v{2}/{1}\" }\n\
         [[site.route]]\npath = \"/*/old/**.htm\"\nredirect = { to = \"https://a.example/{2}\" }",
    )
    .start();
    let mut client = server.client();
    for (path, location) in [
        ("/u/ab/12?q", "/v12/ab?q"),
        ("/u/ab/1%202", "/v1%202/ab"),
        ("/u/ab/", "/v/ab"),
        ("/a/old/b/c%3Fd.htm", "https://a.example/b/c%3Fd"),
    ] {
        assert_eq!(client.get(path).field("location"), location, "{path}");
    }
}
