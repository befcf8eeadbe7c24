//! Paths that an application may read otherwise than routes do: they pass by no route, whatever protocol
//! the application speaks.

use crate::support::scripted::ajp::{body_chunk, end, send_headers};
use crate::support::scripted::{Conn, Request, Scripted, fastcgi};
use crate::support::{Server, Tree, in_front_of, started_in_front_of};

const PROTOCOLS: [&str; 4] = ["http", "fastcgi", "scgi", "ajp13"];

/// A part of the site that clients do not get to, before everything else.
const GUARDED: &str = "[[site.route]]\npath = \"/admin/*\"\ninternal = true\n";

/// A backend that answers each request with the path and query that it was asked for.
fn backend(protocol: &str) -> Scripted {
    match protocol {
        "http" => Scripted::tcp(|conn| {
            while let Some(request) = conn.read_request() {
                conn.answer("200 OK", &request.target);
            }
        }),
        "fastcgi" => Scripted::unix(|conn| {
            while let Some((request, _)) = conn.read_fastcgi() {
                conn.send(fastcgi::answer(program(&request)));
            }
        }),
        "scgi" => Scripted::unix(|conn| {
            if let Some(request) = conn.read_scgi() {
                conn.send(program(&request));
            }
        }),
        _ => Scripted::tcp(container),
    }
}

/// What a program of CGI answers. The query has a variable of its own, too.
fn program(request: &Request) -> String {
    let query = request.field("QUERY_STRING").unwrap_or_default();
    let asked = request
        .target
        .split_once('?')
        .map_or("", |(_, query)| query);
    assert_eq!(query, asked);
    format!("Content-Type: text/plain\r\n\r\n{}", request.target)
}

fn container(conn: &mut Conn) {
    while let Some(request) = conn.read_ajp() {
        let query = request.attribute("query_string");
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        conn.send(send_headers(200, &[]));
        conn.send(body_chunk((request.target + &query).as_bytes()));
        conn.send(end(true));
    }
}

/// A server for each protocol, with these further keys and tables of the site.
fn for_each_protocol(site: &str, mut test: impl FnMut(&str, &Scripted, &Server)) {
    for protocol in PROTOCOLS {
        let backend = backend(protocol);
        let server = started_in_front_of(backend.address(), protocol, &Tree::new(), site);
        test(protocol, &backend, &server);
    }
}

#[test]
fn no_other_reading_passes_by_a_route() {
    for_each_protocol(GUARDED, |protocol, backend, server| {
        for path in [
            "/admin/users",
            "//admin/users",
            "/x/../admin/",
            "/%61dmin/x",
        ] {
            assert_eq!(server.get(path).status, 404, "{protocol} {path}");
        }
        for path in [
            "/admin%2Fusers",
            "/%61dmin%2fusers",
            "/%2fadmin/x",
            "//%2Fadmin/x",
            "/admin%5Cusers",
            "/admin\\users",
            "/\\admin/users",
            "/admin;x/users",
            "/admin;/users",
            "/admin%3bx=1/users",
            "/;/admin/users",
            "/;x/admin/users",
            "/admin;a%2Fb/users",
            "/x/../admin;y/users",
            "/public/..;/admin",
            "/public/..;x=y/admin/users",
            "/public/..%3b/admin",
            "/public/%2e%2e;x/admin",
            "/public/.%2E%3Bx/admin",
            "/public/..%2fadmin",
            "/public/..%5cadmin",
            "/public/..\\admin",
            "/public%2F..%2Fadmin",
            "/a%2Fb/../admin",
        ] {
            assert_eq!(server.get(path).status, 400, "{protocol} {path}");
        }
        assert_eq!(backend.connections(), 0, "{protocol}");
    });
}

#[test]
fn a_path_of_one_reading_passes() {
    for_each_protocol(GUARDED, |protocol, backend, server| {
        for path in [
            "/admin%252Fusers",
            "/public/%252e%252e%252Fadmin",
            "/public/..%253b/admin",
            "/api/group%2Fproject",
            "/a%2fb%5Cc",
            "/a;jsessionid=1/b;x?c;d=%2F",
            "/a//b",
            "/...;/b",
            "/administrator;x/y",
            "/admin",
            "/?",
        ] {
            assert_eq!(server.get(path).text(), path, "{protocol}");
        }
        for (sent, seen) in [
            // Whoever takes a target for a reference would see a host, and the path behind it.
            ("//host/admin/users", "/host/admin/users"),
            ("///a//b?c", "/a//b?c"),
            ("/admin/../b?d=/../", "/b?d=/../"),
            ("/a/.%2E/caf\u{e9}/%20", "/caf%C3%A9/%20"),
            // No URI has these.
            ("/a\\b/caf\u{e9}?d=\u{fc}\\", "/a%5Cb/caf%C3%A9?d=%C3%BC\\"),
        ] {
            assert_eq!(server.get(sent).text(), seen, "{protocol} {sent}");
        }
        assert_eq!(backend.requests().len(), 16, "{protocol}");
    });
}

/// Once for each site and route, however many such paths come. The key is needed where the path belongs as it is
/// decoded here.
#[test]
fn the_operator_is_told_which_key_lets_a_path_pass() {
    let backend = backend("http");
    let site = format!(
        "{GUARDED}[[site.route]]\npath = \"/api/keys/*\"\ninternal = true\n\
         [[site.route]]\npath = \"/api/*\"\nproxy = \"app\"\n"
    );
    let server = started_in_front_of(backend.address(), "http", &Tree::new(), &site);
    for path in [
        "/a/..%2Fadmin",
        "/admin%2Fa",
        "/admin;b/c",
        "/api/keys;d/e",
        "/api/keys%2Ff",
    ] {
        server.get(path).assert_status(400);
    }
    for (path, place) in [
        ("/admin%2Fa", "its site"),
        ("/api/keys;d/e", "its route `/api/*`"),
    ] {
        let line = server.says(&format!("refused {path} of "));
        let key = format!("`ambiguous_paths = \"pass\"` of {place} allows that");
        assert!(line.contains(&key), "{line}");
    }
    assert_eq!(server.stderr().matches("refused ").count(), 2);
}

#[test]
fn paths_pass_where_the_operator_says_so() {
    let of_site = format!("ambiguous_paths = \"pass\"\n{GUARDED}");
    let of_route = format!("{GUARDED}[[site.route]]\npath = \"/*\"\nambiguous_paths = \"pass\"\n");
    for site in [of_site, of_route] {
        for_each_protocol(&site, |protocol, backend, server| {
            for path in ["/admin%2Fusers", "/admin;x/users", "/%2fadmin/x"] {
                assert_eq!(server.get(path).text(), path, "{protocol}");
            }
            for path in ["/a/..;/admin", "/a/..%2Fadmin", "/a/..%5Cadmin"] {
                assert_eq!(server.get(path).status, 400, "{protocol} {path}");
            }
            server.get("/admin/users").assert_status(404);
            assert_eq!(backend.requests().len(), 3, "{protocol}");
        });
    }
}

#[test]
fn nothing_is_ambiguous_where_there_is_one_route() {
    for_each_protocol("", |protocol, _, server| {
        for path in ["/admin%2Fusers", "/admin;x/users", "/%2Fa%5Cb"] {
            assert_eq!(server.get(path).text(), path, "{protocol}");
        }
        server.get("/a/..;/b").assert_status(400);
    });
}

#[test]
fn a_prefix_leaves_no_host_behind() {
    let route = "[[site.route]]\npath = \"/app/*\"\nstrip_prefix = \"/app\"\n";
    for protocol in ["http", "ajp13"] {
        let backend = backend(protocol);
        let server = started_in_front_of(backend.address(), protocol, &Tree::new(), route);
        for (sent, seen) in [
            ("/app//host/x?y", "/host/x?y"),
            ("//app/x", "/x"),
            ("/%61pp//caf\u{e9}", "/caf%C3%A9"),
            ("/app/a%2Fb;c", "/a%2Fb;c"),
            ("/%61pp/a%2Fb:&[", "/a%2Fb:&["),
        ] {
            assert_eq!(server.get(sent).text(), seen, "{protocol} {sent}");
        }
        for path in ["/app%2Fx", "/app;x/y"] {
            assert_eq!(server.get(path).status, 400, "{protocol} {path}");
        }
    }
}

/// The route of the uploads runs nothing; the rest of the site runs what it is asked for.
#[test]
fn scripts_and_files_are_no_way_around() {
    let tree = Tree::new();
    for file in ["uploads/x.php", "index.php", "a;b.txt"] {
        tree.file(file, "of the tree");
    }
    let site = "try = [\"file\", \"proxy\"]\nscript_suffix = \".php\"\nscript_index = \"index.php\"\n\
         [[site.route]]\npath = \"/uploads/*\"\ntry = [\"file\"]\n";
    for protocol in ["fastcgi", "scgi"] {
        let backend = backend(protocol);
        let server = in_front_of(&[backend.address()], protocol, "", &tree, site).start();
        for path in [
            "/uploads%2Fx.php",
            "/uploads;y/x.php",
            "/a/..;/uploads/x.php",
            "/uploads\\x.php",
        ] {
            assert_eq!(server.get(path).status, 400, "{protocol} {path}");
        }
        server.get("/uploads/x.php").assert_status(404);
        assert_eq!(backend.connections(), 0, "{protocol}");
        assert_eq!(server.get("/a;b.txt").text(), "of the tree");
        assert_eq!(server.get("/index.php/a%2Fb").text(), "/index.php/a%2Fb");
        assert_eq!(server.get("/y/../index.php").text(), "/index.php");
    }
}
