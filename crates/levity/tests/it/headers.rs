//! Changes to the headers of responses.

use crate::support::{Answer, Launch, Tree};

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
