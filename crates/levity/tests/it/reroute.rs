//! Rewrites: a request is routed again, for another path.

use crate::support::scripted::Scripted;
use crate::support::{Launch, Server, Tree, per_engine};

fn started(tree: &Tree, engine: &str, routes: &str) -> Server {
    Launch::site(tree.path(), "", routes).engine(engine).start()
}

const ROUTES: &str = "[[site.route]]\npath = \"/old/*\"\nreroute = \"/new/{rest}\"\n\
    [[site.route]]\nregex = \"^/item/([0-9]+)/(.*)$\"\nreroute = \"/show.txt?id={1}&name={2}\"\n\
    [[site.route]]\npath = \"/a\"\nreroute = \"/old/a.txt\"\n\
    [[site.route]]\npath = \"/hidden/*\"\ninternal = true\n\
    [[site.route]]\npath = \"/via\"\nreroute = \"/hidden/a.txt\"\nheaders.set = { X-Via = \"1\" }\n\
    [[site.route]]\npath = \"/new/*\"\nheaders.set = { X-New = \"1\" }";

per_engine! {
    fn a_request_gets_what_is_at_the_other_path(engine) {
        let tree = Tree::new();
        tree.file("new/a.txt", "new");
        tree.file("new/d/index.html", "index");
        tree.file("show.txt", "shown");
        tree.file("hidden/a.txt", "hidden");
        let server = started(&tree, engine, ROUTES);
        let mut client = server.client();
        for (path, status, content) in [
            ("/old/a.txt", 200, "new"),
            ("/old/a%2Etxt?q", 200, "new"),
            ("/old/d/", 200, "index"),
            ("/item/7/x", 200, "shown"),
            ("/a", 200, "new"),
            ("/via", 200, "hidden"),
            ("/hidden/a.txt", 404, "404 Not Found\n"),
            ("/old/none", 404, "404 Not Found\n"),
        ] {
            let answer = client.get(path);
            assert_eq!((answer.status, answer.text().as_str()), (status, content), "{path}");
        }
        // The headers are those of the last route.
        assert_eq!(client.get("/old/a.txt").header("x-new"), Some("1"));
        assert_eq!(client.get("/via").header("x-via"), None);
        let etag = client.get("/new/a.txt").field("etag").to_owned();
        client.get_with("/old/a.txt", &[("If-None-Match", &etag)]).assert_status(304);
    }
}

/// The client knows the path that it has asked for, and not the one to which a rule leads.
#[test]
fn a_folder_without_its_slash() {
    let tree = Tree::new();
    tree.file("hidden/d/index.html", "index");
    tree.file(
        "_redirects",
        "/made/* /hidden/:splat 200\n/named /open 200\n",
    );
    tree.file("open/index.html", "open");
    tree.file("hidden/docs/index.html", "docs");
    tree.file("hidden/pair/index.html", "pair");
    let routes = "static_host_files = true\n\
        [[site.route]]\npath = \"/in/*\"\nreroute = \"/hidden/{rest}?by=rule\"\n\
        [[site.route]]\npath = \"/docs\"\nreroute = \"/hidden/docs\"\n\
        [[site.route]]\npath = \"/pair\"\nreroute = \"/hidden/pair\"\n\
        [[site.route]]\npath = \"/pair/*\"\nreroute = \"/hidden/pair/{rest}\"\n\
        [[site.route]]\npath = \"/fixed\"\nreroute = \"/hidden/d\"\n\
        [[site.route]]\npath = \"/moved/*\"\nreroute = \"/away/{rest}\"\n\
        [[site.route]]\npath = \"/away/*\"\nredirect = { to = \"https://a.example{path}\" }\n\
        [[site.route]]\npath = \"/hidden/*\"\ninternal = true";
    let server = started(&tree, "auto", routes);
    let mut client = server.client();
    for (path, status, found) in [
        ("/in/d?q", 301, "/in/d/?q"),
        ("/in/d/", 200, "index"),
        ("/fixed", 200, "index"),
        ("/docs", 200, "docs"),
        ("/pair", 301, "/pair/"),
        ("/pair/", 200, "pair"),
        ("/named", 200, "open"),
        ("/open", 301, "/open/"),
        ("/made/d", 404, ""),
        ("/moved/x%20y", 302, "https://a.example/moved/x%20y"),
    ] {
        let answer = client.get(path);
        let seen = match status {
            200 => answer.text(),
            404 => String::new(),
            _ => answer.field("location").to_owned(),
        };
        assert_eq!((answer.status, seen.as_str()), (status, found), "{path}");
    }
}

#[test]
fn an_application_gets_the_new_target_and_the_log_the_old_one() {
    let backend = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            let said = format!(
                "{} {}",
                request.target,
                String::from_utf8_lossy(&request.body)
            );
            conn.answer("200 OK", said);
        }
    });
    let routes = "[[site.route]]\npath = \"/v1/**/*.json\"\nreroute = \"/api/{2}?path={1}&{query}\"\n\
        [[site.route]]\npath = \"/plain/*\"\nreroute = \"/api{path}\"";
    let config = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"app\"\nto = [\"{}\"]\n[[site]]\nproxy = \"app\"\n{routes}\n",
        backend.address()
    );
    let server = Launch::run(&config).start();
    let mut client = server.client();
    assert_eq!(
        client.get("/v1/a/b/c%20d.json?x=1").text(),
        "/api/c%20d?path=a/b&x=1 "
    );
    assert_eq!(client.get("/v1/a/b.json").text(), "/api/b?path=a ");
    // A part is as it was sent in a path, and escaped in a query, where it must not begin another parameter.
    assert_eq!(
        client.get("/v1/a&b/c:[%2F.json").text(),
        "/api/c:[%2F?path=a%26b "
    );
    assert_eq!(client.get("/plain//a%2F%3A").text(), "/api/plain//a%2F%3A ");
    client.send("POST /plain/x?y HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(client.receive().text(), "/api/plain/x?y body");
    server.prints("\"GET /v1/a/b/c%20d.json?x=1 HTTP/1.1\" 200");
}

/// As a segment of its own, what a group matches would lead out of the folder of the rule.
#[test]
fn no_group_leads_elsewhere() {
    let tree = Tree::new();
    tree.file("new/a/b", "new");
    tree.file("hidden/a", "hidden");
    let routes = "[[site.route]]\nregex = \"^/x(.*)$\"\nreroute = \"/new/{1}\"\n\
        [[site.route]]\nregex = \"^/(.+)%2F(.+)$\"\nreroute = \"/new/{1}/{2}\"\n\
        [[site.route]]\npath = \"/hidden/*\"\ninternal = true";
    let server = started(&tree, "auto", routes);
    let mut client = server.client();
    assert_eq!(client.get("/xa/b").text(), "new");
    for path in ["/x../hidden/a", "/x.", "/x%2E./hidden/a", "/..%2Fhidden/a"] {
        client.get(path).assert_status(400);
    }
    client.get("/x..a").assert_status(404);
}

/// Names of which one is beneath the other for some clients, and which are one name for others.
#[test]
fn an_escaped_slash_is_taken_apart() {
    let tree = Tree::new();
    tree.file("@scope/name/a b", "found");
    let routes =
        "[[site.route]]\nregex = \"^/@([^/]+)%2[Ff]([^/]+)$\"\nreroute = \"/@{1}/name/{2}\"";
    let server = started(&tree, "auto", routes);
    let mut client = server.client();
    assert_eq!(client.get("/@scope%2fa%20b").text(), "found");
    assert_eq!(client.get("/%40scope%2Fa%20b").text(), "found");
    client.get("/@scope%2f%252f").assert_status(404);
    client.get("/@scope%2fa%2fb").assert_status(400);
    client.get("/scope%2fb").assert_status(400);
}

/// A loop that needs a certain request is not found by `check`.
#[test]
fn loops_end() {
    let tree = Tree::new();
    let routes = "[[site.route]]\nregex = \"^/(.)/(.*)$\"\nreroute = \"/x{1}/{2}\"\n\
        [[site.route]]\nregex = \"^/x(.)/(.*)$\"\nreroute = \"/y/{1}/{2}\"\n\
        [[site.route]]\npath = \"/y/*\"\nreroute = \"/{rest}\"";
    let server = started(&tree, "auto", routes);
    server.get("/a/b").assert_status(500);
    server.says("was rewritten more than 10 times");
    server.get("/ab/b").assert_status(404);
    let ran = Launch::site(tree.path(), "", "[[site.route]]\npath = \"/a/*\"\nreroute = \"/b/{rest}\"\n[[site.route]]\npath = \"/b/*\"\nreroute = \"/a/{rest}\"").ran();
    assert_eq!(ran.status, 78);
    assert!(
        ran.stderr.contains("`reroute`: it leads to itself"),
        "{}",
        ran.stderr
    );
}
