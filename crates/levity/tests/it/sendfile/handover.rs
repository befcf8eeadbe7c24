//! Requests that an application reroutes to an internal route or another upstream.

use serde_json::Value;

use super::{App, ask, ask_with, assert_no_talk, internal_files, launch, roots, upstream};
use crate::support::scripted::{Conn, Refusing, Scripted, fastcgi};
use crate::support::{Tree, assert_same, content, head, per_engine};

/// Responds with the request.
fn echo(conn: &mut Conn) {
    while let Some(request) = conn.read_request() {
        let body = format!("{} {}", request.method, request.target);
        let length = body.len();
        conn.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/x-other\r\nX-Other: yes\r\nSet-Cookie: o=1\r\n\
             X-Accel-Expires: 1\r\nContent-Length: {length}\r\n\r\n"
        ));
        if request.method != "HEAD" {
            conn.send(body);
        }
    }
}

per_engine! {
    fn files_of_an_internal_route(engine) {
        let tree = Tree::new();
        let bytes = tree.filled("folder/large", 1_000_003);
        for app in App::both() {
            let server = app.launch("", &internal_files(&tree)).engine(engine).start();
            let mut client = server.client();
            let line = "X-Accel-Redirect: /protected/folder/large";
            for _ in 0..2 {
                let lines = [line, "Content-Type: text/x-own", "Content-Length: 1000003"];
                let answer = ask(&mut client, &lines);
                answer.assert_status(200);
                assert_eq!(answer.field("content-type"), "text/x-own");
                assert_same(&answer.body, &bytes);
            }
            let part = ask_with(&mut client, "GET", &[line], &[("Range", "bytes=1000000-")]);
            assert_eq!((part.status, &part.body[..]), (206, &bytes[1_000_000..]));
            // Never from a cache.
            let other = content(7, 1000);
            tree.file("again", &other);
            let again = "X-Accel-Redirect: /protected/again";
            assert_same(&ask(&mut client, &[again]).body, &other);
            let other = content(8, 1000);
            tree.file("again", &other);
            assert_same(&ask(&mut client, &[again]).body, &other);
        }
    }
}

/// The configuration is replaced before the application responds.
#[test]
fn a_request_is_rerouted_by_its_own_configuration() {
    let (old, new) = (Tree::new(), Tree::new());
    old.file("file", "old");
    new.file("file", "new");
    let app = Scripted::tcp(|conn| {
        while conn.read_request().is_some() {
            conn.stall();
            conn.send(
                "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /protected/file\r\nContent-Length: 0\r\n\r\n",
            );
        }
    });
    let server = launch(&upstream("app", "http", &app, ""), &internal_files(&old)).start();
    let mut early = server.client();
    early.send(head("GET", "/", &[]));
    app.wait_for_requests(1);
    let folders = [&old, &new].map(|tree| tree.path().display().to_string());
    server.reload(&[&folders[0]], &[&folders[1]]);
    app.release();
    assert_eq!(early.receive().text(), "old");
    assert_eq!(early.get("/").text(), "new");
}

#[test]
fn escapes_are_decoded_once() {
    let tree = Tree::new();
    for name in ["a b", "c?d", "e%20f", "g+h", "ü", "#i"] {
        tree.file(name, name);
    }
    let app = App::http();
    let server = app.launch("", &internal_files(&tree)).start();
    let mut client = server.client();
    for (path, found) in [
        ("a%20b", Some("a b")),
        ("a b", Some("a b")),
        ("a%2520b", None),
        ("c%3Fd", Some("c?d")),
        ("e%2520f", Some("e%20f")),
        ("e%20f", None),
        ("g+h", Some("g+h")),
        ("%c3%bc", Some("ü")),
        ("%23i", Some("#i")),
        ("a%20b?query", Some("a b")),
        ("x/../a%20b", Some("a b")),
    ] {
        let answer = ask(
            &mut client,
            &[&format!("X-Accel-Redirect: /protected/{path}")],
        );
        match found {
            Some(name) => assert_eq!((answer.status, answer.text()), (200, name.into()), "{path}"),
            None => assert_eq!(answer.status, 404, "{path}"),
        }
    }
}

#[test]
fn only_internal_routes_are_permitted() {
    let tree = Tree::new();
    tree.file("file", "content");
    tree.folder("folder");
    let app = App::http();
    let server = app.launch("", &internal_files(&tree)).start();
    let mut client = server.client();
    for (path, status) in [
        ("/open/file", 502),
        ("/", 502),
        ("/protected/../open/file", 502),
        ("/protected/%2e%2e/open/file", 502),
        ("/protected/../../etc/passwd", 502),
        ("/protected/a%2Fb", 502),
        ("/protected/%00", 502),
        ("/protected/%zz", 502),
        ("/protected/folder", 502),
        ("/protected/", 404),
        ("/protected/absent", 404),
        ("protected/file", 502),
        ("@name", 502),
        ("http://localhost/protected/file", 502),
    ] {
        let answer = ask(&mut client, &[&format!("X-Accel-Redirect: {path}")]);
        assert_eq!(answer.status, status, "{path}");
        server.says(&format!("X-Accel-Redirect: {path}: "));
    }
    // Clients do not learn that it exists.
    for path in [
        "/protected/file",
        "/protected/absent",
        "/protected/",
        "/%70rotected/file",
    ] {
        client.get(path).assert_status(404);
    }
    client.get("/open/file").assert_status(200);
    assert_eq!(client.request("PUT", "/protected/file", &[]).status, 404);
}

#[test]
fn an_internal_route_may_be_another_upstream() {
    let other = Scripted::tcp(echo);
    let route = "[[site.route]]\npath = \"/other/*\"\nproxy = \"other\"\ninternal = true\nstrip_prefix = \"/other\"\n";
    for app in App::both() {
        let tables = app.upstream("") + &upstream("other", "http", &other, "");
        let server = launch(&tables, route).start();
        let mut client = server.client();
        let lines = [
            "X-Accel-Redirect: /other/a%20b?c=%20d&e",
            "Content-Type: text/x-own",
            "Set-Cookie: a=1",
            "Content-Length: 99",
        ];
        let answer = ask(&mut client, &lines);
        assert_eq!(
            (answer.status, answer.text()),
            (200, "GET /a%20b?c=%20d&e".into())
        );
        // Fields of the first application take precedence, and there is one of each.
        assert_eq!(answer.field("content-type"), "text/x-own");
        assert_eq!(answer.field("x-other"), "yes");
        assert_eq!(answer.field("set-cookie"), "a=1");
        // With a body, which was for the first.
        let lines = lines.join("|");
        client.send(
            head(
                "POST",
                "/",
                &[("Accept-Say", &lines), ("Content-Length", "4")],
            ) + "body",
        );
        assert_eq!(client.receive().text(), "GET /a%20b?c=%20d&e");
        let head = client.request("HEAD", "/", &[("Accept-Say", &lines)]);
        assert_eq!((head.status, head.length()), (200, Some(20)));
    }
    let (last, first) = (
        other.requests().pop().expect("a request"),
        &other.requests()[1],
    );
    assert_eq!(last.method, "HEAD");
    assert_eq!((first.body.len(), first.field("content-length")), (0, None));
    assert_eq!(first.field("accept-say"), last.field("accept-say"));
}

#[test]
fn a_host_is_not_required() {
    let other = Scripted::tcp(echo);
    let route = "[[site.route]]\npath = \"/other/*\"\nproxy = \"other\"\ninternal = true\n";
    for app in App::both() {
        let tables = app.upstream("") + &upstream("other", "http", &other, "");
        let server = launch(&tables, route).start();
        let mut client = server.client();
        client.send("GET / HTTP/1.0\r\nAccept-Say: X-Accel-Redirect: /other/a\r\n\r\n");
        assert_eq!(client.receive().text(), "GET /other/a");
        assert_eq!(other.requests().pop().expect("one").field("host"), Some(""));
    }
}

/// Paths of the application obey the same rule as those of clients.
#[test]
fn no_ambiguous_path_reaches_another_route() {
    let other = Scripted::tcp(echo);
    let routes = "[[site.route]]\npath = \"/other/secret/*\"\nproxy = \"other\"\n\
         [[site.route]]\npath = \"/other/*\"\nproxy = \"other\"\ninternal = true\n";
    let (at, keys) = (other.address(), "reproxy = [\"other\"]");
    for app in App::both() {
        let tables = app.upstream(keys) + &upstream("other", "http", &other, "");
        let server = launch(&tables, routes).start();
        let mut client = server.client();
        for value in [
            "X-Accel-Redirect: /other/secret;x/a".to_owned(),
            "X-Accel-Redirect: /other/secret%5Ca".to_owned(),
            "X-Accel-Redirect: /other/a/..;/secret/a".to_owned(),
            format!("X-Reproxy-URL: http://{at}/a/..;/secret"),
            format!("X-Reproxy-URL: http://{at}/a%2F../secret"),
        ] {
            assert_eq!(ask(&mut client, &[&value]).status, 502, "{value}");
        }
        assert_eq!(other.connections(), 0);
    }
    let app = App::http();
    let tables = app.upstream(keys) + &upstream("other", "http", &other, "");
    let server = launch(&tables, routes).start();
    for (value, seen) in [
        ("X-Accel-Redirect: /other/a;b".to_owned(), "/other/a;b"),
        (
            format!("X-Reproxy-URL: http://{at}/secret;x/a%2Fb"),
            "/secret;x/a%2Fb",
        ),
    ] {
        let answer = ask(&mut server.client(), &[&value]);
        assert_eq!(answer.text(), format!("GET {seen}"), "{value}");
    }
}

/// `try` applies to internal routes too.
#[test]
fn files_may_come_before_the_other_upstream() {
    let (tree, other) = (Tree::new(), Scripted::tcp(echo));
    tree.file("other/file", "content");
    tree.file("other/.hidden", "secret");
    tree.folder("other/folder");
    let site = format!(
        "root = \"{}\"\ntry = [\"file\", \"proxy\"]\n\
         [[site.route]]\npath = \"/other/*\"\nproxy = \"other\"\ninternal = true\n",
        tree.path().display()
    );
    let app = App::http();
    let tables = app.upstream("") + &upstream("other", "http", &other, "");
    let server = launch(&tables, &site).start();
    let mut client = server.client();
    for (path, body) in [
        ("file", "content"),
        ("file?query", "content"),
        ("absent", "GET /other/absent"),
        ("file/absent", "GET /other/file/absent"),
        ("folder", "GET /other/folder"),
        ("", "GET /other/"),
        (".hidden", "GET /other/.hidden"),
    ] {
        let lines = [
            &format!("X-Accel-Redirect: /other/{path}")[..],
            "Content-Type: text/x-own",
        ];
        let answer = ask(&mut client, &lines);
        assert_eq!((answer.status, answer.text()), (200, body.into()), "{path}");
        assert_eq!(answer.field("content-type"), "text/x-own");
    }
}

#[test]
fn rerouting_is_limited() {
    let app = App::http();
    let route = "[[site.route]]\npath = \"/again/*\"\nproxy = \"app\"\ninternal = true\n";
    let server = app.launch("", route).start();
    let mut client = server.client();
    // The request keeps its fields, so the application reroutes it again.
    let answer = ask(
        &mut client,
        &["X-Accel-Redirect: /again/x", "Content-Length: 0"],
    );
    answer.assert_status(502);
    server.says("the request was rerouted too often");
    assert_eq!(app.backend.requests().len(), 4);
    assert_eq!(ask(&mut client, &[]).text(), "body");
}

/// Responds with the path of its script.
fn name_script(conn: &mut Conn) {
    while let Some((request, _)) = conn.read_fastcgi() {
        let field = |name| request.field(name).unwrap_or("unset");
        let body = format!(
            "{} + {} ? {}",
            field("SCRIPT_FILENAME"),
            field("PATH_INFO"),
            field("QUERY_STRING")
        );
        conn.send(fastcgi::answer(format!("Status: 200\r\n\r\n{body}")));
    }
}

/// Even if the sources of a PHP site are kept from clients because `script_suffix` is missing.
#[test]
fn an_internal_route_may_be_an_application_without_scripts() {
    let (root, other) = (Tree::new(), Scripted::unix(name_script));
    let app = App::http();
    let tables = app.upstream("") + &upstream("other", "fastcgi", &other, "");
    let site = format!(
        "root = \"{}\"\n[[site.route]]\npath = \"/other/*\"\nproxy = \"other\"\ninternal = true\n",
        root.path().display()
    );
    let server = launch(&tables, &site).start();
    let answer = ask(
        &mut server.client(),
        &["X-Accel-Redirect: /other/x.php?a=b"],
    );
    answer.assert_status(200);
    assert!(answer.text().ends_with("? a=b"), "{}", answer.text());
}

per_engine! {
    fn scripts_of_an_internal_route(engine) {
        let (root, other) = (Tree::new(), Scripted::unix(name_script));
        root.file("a.php", "source");
        let folder = root.path().display().to_string();
        let app = App::http();
        let tables = app.upstream("") + &upstream("other", "fastcgi", &other, "");
        let route = |path: &str, keys: &str| {
            format!(
                "[[site.route]]\npath = \"{path}/*\"\nroot = \"{folder}\"\nproxy = \"other\"\ninternal = true\n\
                 strip_prefix = \"{path}\"\n{keys}\n"
            )
        };
        let routes = route("/run", "script_suffix = \".php\"")
            + &route("/front", "script_index = \"a.php\"")
            + &route("/first", "script_suffix = \".php\"\ntry = [\"file\", \"proxy\"]");
        let server = launch(&tables, &routes).engine(engine).start();
        let mut client = server.client();
        let mut answer_to = |path: &str| ask(&mut client, &[&format!("X-Accel-Redirect: {path}")]);
        for (path, expected) in [
            ("/run/a.php/info?q=1", format!("{folder}/a.php + /info ? q=1")),
            ("/front/any/thing", format!("{folder}/a.php + ")),
        ] {
            let answer = answer_to(path);
            answer.assert_status(200);
            assert!(answer.text().starts_with(&expected), "{}", answer.text());
        }
        answer_to("/run/absent.php").assert_status(404);
        server.says("X-Accel-Redirect: /run/absent.php: no script handles that path (404)");
        answer_to("/first/a.php").assert_status(502);
        server.says("an internal route that runs scripts has no `file` in its `try` (502)");
        client.get("/run/a.php").assert_status(404);
    }
}

/// The first application reroutes to the second, which delegates to a file. Fields of the first take precedence.
#[test]
fn the_second_application_may_delegate_to_a_file() {
    let tree = Tree::new();
    let file = tree.file("file.txt", "content").display().to_string();
    let second = Scripted::tcp(move |conn: &mut Conn| {
        while conn.read_request().is_some() {
            conn.send(format!(
                "HTTP/1.1 200 OK\r\nX-Sendfile: {file}\r\nX-Second: 2\r\nX-Both: 2\r\nContent-Length: 0\r\n\r\n"
            ));
        }
    });
    let app = App::http();
    let route = "[[site.route]]\npath = \"/second\"\nproxy = \"second\"\ninternal = true\n";
    let keys = roots("sendfile_roots", tree.path());
    let tables = app.upstream("") + &upstream("second", "http", &second, &keys);
    let server = launch(&tables, route).start();
    let mut client = server.client();
    let lines = ["X-Accel-Redirect: /second", "X-First: 1", "X-Both: 1"];
    let answer = ask_with(&mut client, "GET", &lines, &[("Range", "bytes=1-2")]);
    assert_eq!((answer.status, answer.text()), (206, "on".into()));
    for (name, value) in [("x-first", "1"), ("x-second", "2"), ("x-both", "1")] {
        assert_eq!(answer.field(name), value);
    }
}

/// A client that has not sent its whole request cannot send another: its bytes still belong to the body of the first,
/// whichever application has responded.
#[test]
fn an_unread_body_is_not_parsed_as_a_request() {
    let tree = Tree::new();
    let file = tree.file("file.txt", "content").display().to_string();
    let first = Scripted::tcp(|conn| {
        conn.read_head().expect("a request");
        conn.send("HTTP/1.1 200 OK\r\nX-Accel-Redirect: /second\r\nContent-Length: 0\r\n\r\n");
        conn.read_to_end();
    });
    let second = Scripted::tcp(move |conn| {
        while conn.read_request().is_some() {
            conn.send(format!(
                "HTTP/1.1 200 OK\r\nX-Sendfile: {file}\r\nContent-Length: 0\r\n\r\n"
            ));
        }
    });
    let keys = roots("sendfile_roots", tree.path());
    let tables = upstream("app", "http", &first, "") + &upstream("second", "http", &second, &keys);
    let route = "[[site.route]]\npath = \"/second\"\nproxy = \"second\"\ninternal = true\n";
    let server = launch(&tables, route).start();
    let mut client = server.client();
    client.send(head("POST", "/", &[("Content-Length", "1000")]));
    let answer = client.receive();
    assert_eq!((answer.status, answer.text()), (200, "content".into()));
    assert!(answer.closes(), "{answer:?}");
    client.assert_closed();
}

/// The same when the file cannot be read and an error is sent in its place; the receipt reports the error.
#[test]
fn an_unread_body_is_not_parsed_as_a_request_after_an_error() {
    let tree = Tree::new();
    tree.filled("file", 300_000);
    let file = tree.at("file").display().to_string();
    let app = Scripted::tcp(move |conn| {
        let Some(mut request) = conn.read_head() else {
            return;
        };
        if request.target == "/receipts" {
            conn.read_body(&mut request);
            conn.keep(request);
            conn.answer("200 OK", "");
            return;
        }
        conn.send(format!(
            "HTTP/1.1 200 OK\r\nX-Sendfile: {file}\r\nX-Sendfile-Receipt: /receipts\r\nContent-Length: 0\r\n\r\n"
        ));
        conn.read_to_end();
    });
    let keys = roots("sendfile_roots", tree.path());
    let launch = launch(&upstream("app", "http", &app, &keys), "");
    let server = launch
        .engine("simulated")
        .environment("LEVITY_SIMULATED", "eio_at=100")
        .start();
    tree.evict("file");
    let mut client = server.client();
    client.send(head("POST", "/", &[("Content-Length", "1000")]));
    let answer = client.receive();
    assert_eq!((answer.status, answer.closes()), (500, true), "{answer:?}");
    let _ = client.try_send(head("GET", "/next", &[]));
    client.assert_closed();
    app.wait_for_requests(1);
    let told: Value = serde_json::from_slice(&app.request().body).expect("JSON");
    assert_eq!(
        (&told["result"], &told["status"]),
        (&"refused".into(), &500.into())
    );
}

#[test]
fn errors_do_not_have_the_fields_of_the_response() {
    let tree = Tree::new();
    let app = App::http();
    let refusing = Scripted::tcp(|conn| {
        while conn.read_request().is_some() {
            conn.send("HTTP/1.1 403 Forbidden\r\nContent-Type: text/x-error\r\nContent-Length: 2\r\n\r\nno");
        }
    });
    let tables = app.upstream("") + &upstream("other", "http", &refusing, "");
    let route =
        "[[site.route]]\npath = \"/other\"\nproxy = \"other\"\ninternal = true\n".to_owned();
    let server = launch(&tables, &(route + &internal_files(&tree))).start();
    let mut client = server.client();
    let own = [
        "Content-Type: application/pdf",
        "Content-Disposition: attachment",
    ];
    let answer = ask(&mut client, &["X-Accel-Redirect: /other", own[0], own[1]]);
    assert_eq!(
        (answer.status, answer.field("content-type")),
        (403, "text/x-error")
    );
    assert_eq!(answer.header("content-disposition"), None);
    let answer = ask(
        &mut client,
        &["X-Accel-Redirect: /protected/absent", own[0], own[1]],
    );
    assert_eq!(answer.status, 404);
    assert_ne!(answer.field("content-type"), "application/pdf");
}

#[test]
fn urls_lead_to_listed_upstreams_only() {
    let (other, unlisted) = (Scripted::tcp(echo), Scripted::tcp(echo));
    let port = other
        .address()
        .rsplit(':')
        .next()
        .expect("a port")
        .to_owned();
    for app in App::both() {
        let tables = app.upstream("reproxy = [\"other\"]")
            + &format!("[[upstream]]\nname = \"other\"\nto = [\"localhost:{port}\"]\n")
            + &upstream("unlisted", "http", &unlisted, "");
        let server = launch(&tables, "").start();
        let mut client = server.client();
        let (listed, unlisted) = (other.address(), unlisted.address());
        for (urls, target) in [
            (format!("http://{listed}/a?b=c%20d"), Some("/a?b=c%20d")),
            (format!("HTTP://{listed}"), Some("/")),
            (
                format!("http://{unlisted}/a http://{listed}/second"),
                Some("/second"),
            ),
            (format!("http://{unlisted}/a"), None),
            ("http://127.0.0.1:1/a".to_owned(), None),
            ("http://127.0.0.1/a".to_owned(), None),
            (format!("http://127.0.0.2:{port}/a"), None),
            ("http://OTHER/a".to_owned(), Some("/a")),
            ("http://other:81/a".to_owned(), None),
            ("http://unlisted/a".to_owned(), None),
            ("https://localhost/a".to_owned(), None),
            (format!("http://user@{listed}/a"), None),
            ("/a".to_owned(), None),
        ] {
            let lines = [
                &format!("X-Reproxy-URL: {urls}")[..],
                "Content-Type: text/x-own",
            ];
            let answer = ask(&mut client, &lines);
            match target {
                Some(target) => {
                    assert_eq!(
                        (answer.status, answer.text()),
                        (200, format!("GET {target}"))
                    );
                    assert_eq!(answer.field("content-type"), "text/x-own");
                    assert_no_talk(&answer);
                }
                None => {
                    assert_eq!(answer.status, 502, "{urls}");
                    server.says(&format!("X-Reproxy-URL: {urls}: "));
                }
            }
        }
    }
    assert_eq!(unlisted.connections(), 0);
    let seen = other.requests();
    assert_eq!(seen[0].field("host"), Some(other.address()));
}

/// Credentials of the client are not sent to the server that the application names.
#[test]
fn credentials_stay_with_the_site() {
    let other = Scripted::tcp(echo);
    let app = App::http();
    let route = "[[site.route]]\npath = \"/other\"\nproxy = \"other\"\ninternal = true\n";
    let tables = app.upstream("reproxy = [\"other\"]") + &upstream("other", "http", &other, "");
    let server = launch(&tables, route).start();
    let mut client = server.client();
    let more = [
        ("COOKIE", "a=b"),
        ("Authorization", "Basic YQ=="),
        ("X-Other", "c"),
    ];
    for (line, shown) in [
        (
            format!("X-Reproxy-URL: http://{}/x", other.address()),
            false,
        ),
        ("X-Accel-Redirect: /other".to_owned(), true),
    ] {
        ask_with(&mut client, "GET", &[&line], &more).assert_status(200);
        let request = other.requests().pop().expect("a request");
        assert_eq!(request.field("x-other"), Some("c"));
        assert_eq!(request.field("cookie"), shown.then_some("a=b"));
        assert_eq!(
            request.field("authorization"),
            shown.then_some("Basic YQ==")
        );
    }
}

#[test]
fn urls_may_name_hosts() {
    let other = Scripted::tcp(echo);
    let port = other
        .address()
        .rsplit(':')
        .next()
        .expect("a port")
        .to_owned();
    let app = App::http();
    let tables = app.upstream("reproxy = [\"other\"]")
        + &format!("[[upstream]]\nname = \"other\"\nto = [\"localhost:{port}\"]\n");
    let server = launch(&tables, "").start();
    let line = format!("X-Reproxy-URL: http://LOCALHOST:{port}/x");
    let answer = ask(&mut server.client(), &[&line]);
    assert_eq!((answer.status, answer.text()), (200, "GET /x".into()));
}

/// Responds with the status at the start of the target.
fn by_target(conn: &mut Conn) {
    while let Some(request) = conn.read_request() {
        let status = &request.target[1..4];
        let lines = "Content-Type: text/x-other\r\nLocation: /else\r\nContent-Length: 5\r\n";
        let body = match (&*request.method, status) {
            ("HEAD", _) | (_, "304") => "",
            _ => "other",
        };
        conn.send(format!("HTTP/1.1 {status} X\r\n{lines}\r\n{body}"));
    }
}

#[test]
fn the_next_url_is_tried_after_a_failure() {
    let (gone, other, good) = (
        Refusing::new(),
        Scripted::tcp(by_target),
        Scripted::tcp(echo),
    );
    let app = App::http();
    let tables = app.upstream("reproxy = [\"gone\", \"other\", \"good\"]")
        + &format!(
            "[[upstream]]\nname = \"gone\"\nto = [\"{}\"]\nretry.for = \"0s\"\n",
            gone.address()
        )
        + &upstream("other", "http", &other, "connections = 1")
        + &upstream("good", "http", &good, "");
    let server = launch(&tables, "").start();
    let mut client = server.client();
    let mut answer_to = |method: &str, urls: &str| {
        let lines = [
            &format!("X-Reproxy-URL: {urls}")[..],
            "Content-Type: text/x-own",
        ];
        ask_with(&mut client, method, &lines, &[])
    };
    for urls in [
        "http://gone/a http://good/x",
        "http://other/500 http://good/x",
        "http://other/404 http://unlisted/a http://gone/a http://good/x",
        "http://other/302 http://good/x",
        "http://good/x http://other/500",
    ] {
        let answer = answer_to("GET", urls);
        assert_eq!(
            (answer.status, answer.text()),
            (200, "GET /x".into()),
            "{urls}"
        );
        assert_eq!(answer.field("content-type"), "text/x-own");
    }
    let head = answer_to("HEAD", "http://other/403 http://good/x");
    assert_eq!((head.status, head.length()), (200, Some(7)));
    for status in [500, 404, 302, 403] {
        server.says(&format!(
            "upstream other: it answered {status} to X-Reproxy-URL; tried again"
        ));
    }
    server.says("upstream gone, backend ");
    // After a usable response no other URL is tried.
    let asked = good.requests().len();
    for status in [206, 304, 412, 416] {
        let answer = answer_to("GET", &format!("http://other/{status} http://good/x"));
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("content-type").is_none(), status == 304);
    }
    assert_eq!(good.requests().len(), asked);
    // The client gets the last response.
    let answer = answer_to("GET", "http://gone/a http://other/500");
    assert_eq!(
        (answer.status, answer.field("content-type"), answer.text()),
        (500, "text/x-other", "other".into())
    );
    assert_eq!(
        answer_to("GET", "http://other/500 http://gone/a").status,
        502
    );
    // Connections of skipped responses are reused.
    assert_eq!(other.connections(), 1);
}

#[test]
fn the_number_of_urls_is_limited() {
    let (other, good) = (Scripted::tcp(by_target), Scripted::tcp(echo));
    let app = App::http();
    let tables = app.upstream("reproxy = [\"other\", \"good\"]")
        + &upstream("other", "http", &other, "")
        + &upstream("good", "http", &good, "");
    let server = launch(&tables, "").start();
    let mut client = server.client();
    for (count, status) in [(15, 200), (16, 502)] {
        let line = format!(
            "X-Reproxy-URL: {}http://good/x",
            "http://other/500 ".repeat(count)
        );
        assert_eq!(ask(&mut client, &[&line]).status, status, "{count}");
    }
    assert_eq!((other.requests().len(), good.requests().len()), (15, 1));
}

/// A client that has disconnected needs no response.
#[test]
fn no_url_is_tried_for_a_client_that_has_disconnected() {
    let (stalled, good) = (Scripted::tcp(stalling), Scripted::tcp(echo));
    let app = App::http();
    let tables = app.upstream("reproxy = [\"stalled\", \"good\"]")
        + &upstream("stalled", "http", &stalled, "")
        + &upstream("good", "http", &good, "");
    let server = launch(&tables, "").start();
    let mut client = server.client();
    let line = "X-Reproxy-URL: http://stalled/a http://good/x";
    client.send(head("GET", "/", &[("Accept-Say", line)]));
    stalled.wait_for_requests(1);
    drop(client);
    stalled.wait_for_no_connection();
    // Another request, whose response comes after all effects of the first.
    ask(&mut server.client(), &["X-Reproxy-URL: http://good/later"]).assert_status(200);
    let asked: Vec<_> = good.requests().into_iter().map(|one| one.target).collect();
    assert_eq!(asked, ["/later"]);
}

/// Never responds.
fn stalling(conn: &mut Conn) {
    if conn.read_request().is_some() {
        conn.read_to_end();
    }
}
