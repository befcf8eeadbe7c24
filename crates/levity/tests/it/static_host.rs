//! `_redirects` and `_headers` of static hosts.

mod oracle;
mod public;

use rustix::fs::FileType;

use crate::support::{Client, Launch, Server, Tree, per_engine};

const REDIRECTS: &str = "# rules of a site\n\
    /home              /                       301\n\
    /blog/*            /news/:splat            302\n\
    /forced/*          /news/a.html            200!\n\
    /people/:id        /show.html?id=:id       200\n\
    /search q=x        /found                  301\n\
    /country           /de                     302  Country=de\n\
    /api/*             https://api.example/:splat  200\n\
    /gone/*            /404.html               404\n\
    /*                 /index.html             200\n";

const HEADERS: &str = "/*\n  X-Frame-Options: DENY\n  X-All: 1\n/news/*\n  X-All: 2\n  Link: </a.css>\n  Link: </b.css>\n\
    /plain\n  ! X-Frame-Options\n";

fn site(engine: &str, keys: &str) -> (Tree, Server) {
    let tree = Tree::new();
    tree.file("_redirects", REDIRECTS);
    tree.file("_headers", HEADERS);
    tree.file("index.html", "app");
    tree.file("news/a.html", "news");
    tree.file("forced/x", "hidden by a rule");
    tree.file("blog/own.html", "own");
    tree.file("show.html", "shown");
    tree.file("404.html", "lost");
    tree.file("plain", "plain");
    let keys = format!("static_host_files = true\n{keys}");
    let server = Launch::site(tree.path(), "", &keys).engine(engine).start();
    (tree, server)
}

/// A GET of `path` gets `found`: the Location of a redirect, else the content.
#[track_caller]
fn assert_leads(client: &mut Client, path: &str, status: u16, found: &str) {
    let answer = client.get(path);
    let seen = match status {
        301 | 302 => answer.field("location").to_owned(),
        _ => answer.text(),
    };
    assert_eq!((answer.status, seen.as_str()), (status, found), "{path}");
}

#[track_caller]
fn assert_noted(server: &Server, note: &str) {
    let log = server.stderr();
    assert!(log.contains(note), "{log}");
}

per_engine! {
    fn redirects(engine) {
        let (_tree, server) = site(engine, "");
        let mut client = server.client();
        for (path, status, found) in [
            ("/home", 301, "/"),
            ("/home/", 301, "/"),
            ("/blog/x/y?z", 302, "/news/x/y?z"),
            ("/blog/own.html", 200, "own"),
            ("/forced/x", 200, "news"),
            ("/people/7", 200, "shown"),
            ("/people/7/8", 200, "app"),
            ("/search?q=x", 301, "/found?q=x"),
            ("/search?q=y", 200, "app"),
            ("/country", 200, "app"),
            ("/gone/x", 404, "lost"),
            ("/news/a.html", 200, "news"),
            ("/any/thing", 200, "app"),
            ("/", 200, "app"),
        ] {
            assert_leads(&mut client, path, status, found);
        }
    }
}

per_engine! {
    /// What the site tries goes before a redirect, but for one with `!`.
    fn files_that_the_site_tries_go_first(engine) {
        let keys = "try = [\"file\", \"file.html\", \"directory\", \"/plain\"]\n";
        let (tree, server) = site(engine, keys);
        tree.file("docs/index.html", "docs");
        tree.file("gone/kept.html", "kept");
        let mut client = server.client();
        for (path, status, found) in [
            ("/show", 200, "shown"),
            ("/blog/own", 200, "own"),
            ("/docs", 301, "/docs/"),
            ("/docs/", 200, "docs"),
            ("/gone/kept", 200, "kept"),
            ("/gone/x", 404, "lost"),
            ("/forced/x", 200, "news"),
            ("/any/thing", 200, "app"),
        ] {
            assert_leads(&mut client, path, status, found);
        }
    }
}

#[test]
fn headers() {
    let (_tree, server) = site("auto", "headers.set = { X-All = \"0\", X-Own = \"1\" }");
    let mut client = server.client();
    for (path, frames, all, link) in [
        (
            "/news/a.html",
            Some("DENY"),
            Some("2"),
            Some("</a.css>, </b.css>"),
        ),
        ("/plain", None, Some("1"), None),
        ("/people/7", Some("DENY"), Some("1"), None),
        ("/gone/x", None, None, None),
    ] {
        let answer = client.get(path);
        assert_eq!(answer.header("x-frame-options"), frames, "{path}");
        assert_eq!(answer.header("x-all"), all, "{path}");
        assert_eq!(answer.header("link"), link, "{path}");
    }
}

#[test]
fn rules_for_one_host() {
    let tree = Tree::new();
    tree.file(
        "_redirects",
        "http://www.a.example/* http://a.example/:splat 301!\n/x/* /:splat 200\n",
    );
    tree.file("hidden/a", "hidden");
    let keys = "static_host_files = true\n[[site.route]]\npath = \"/hidden/*\"\ninternal = true";
    let server = Launch::site(tree.path(), "", keys).start();
    let mut client = server.client();
    for host in ["www.a.example", "WWW.a.example:80"] {
        assert_eq!(
            client.get_for(host, "/b").field("location"),
            "http://a.example/b",
            "{host}"
        );
    }
    client.get_for("a.example", "/b").assert_status(404);
    // A rule in the files of a site leads to no internal route.
    client
        .get_for("a.example", "/x/hidden/a")
        .assert_status(404);
}

/// A rule for the previews of a site would otherwise keep search engines away from the site itself.
#[test]
fn headers_for_one_host() {
    let tree = Tree::new();
    tree.file("a", "a");
    tree.file(
        "_headers",
        "/*\n  X-All: 1\nhttps://:project.pages.dev/*\n  X-Robots-Tag: noindex\n  ! X-All\n\
         https://staging.example.org/*\n  X-Robots-Tag: none\nhttps://b.example/*\n  X-B: 1\n",
    );
    let server = Launch::site(tree.path(), "", "static_host_files = true").start();
    let mut client = server.client();
    for (host, robots, b) in [
        ("example.org", None, None),
        ("a.staging.example.org", None, None),
        ("x.pages.dev", None, None),
        ("Staging.example.org:8080", Some("none"), None),
        ("b.example", None, Some("1")),
    ] {
        let answer = client.get_for(host, "/a");
        assert_eq!(answer.header("x-robots-tag"), robots, "{host}");
        assert_eq!(answer.header("x-b"), b, "{host}");
        assert_eq!(answer.header("x-all"), Some("1"), "{host}");
    }
}

/// A rule for everything whose page is gone does not go round in circles.
#[test]
fn a_page_that_is_gone() {
    let (tree, server) = site(
        "auto",
        "[[site.route]]\npath = \"/country\"\nrespond = { body = \"ours\" }",
    );
    std::fs::remove_file(tree.at("index.html")).expect("a file");
    server.get("/any/thing").assert_status(404);
    server.get("/_headers").assert_status(404);
    // Routes go before the rules.
    assert_eq!(server.get("/country").text(), "ours");
}

#[test]
fn what_check_says() {
    let tree = Tree::new();
    let told = |redirects: &str, headers: &str| {
        tree.file("_redirects", redirects);
        tree.file("_headers", headers);
        let file = tree.file(
            "levity.toml",
            format!(
                "[[site]]\nroot = \"{}\"\nstatic_host_files = true\n",
                tree.path().display()
            ),
        );
        let ran = Launch::levity(["check"]).arguments([file]).ran();
        (ran.status, ran.stdout + &ran.stderr)
    };
    let (status, said) = told("/a /b 302 Country=de\n", "");
    assert_eq!(status, 0, "{said}");
    assert!(
        said.contains("_redirects, line 1, is left out, because it has a condition about the client: /a /b 302 Country=de"),
        "{said}"
    );
    let (status, said) = told(
        "https://:a.example/* /b\n",
        "/*\n  X-A: 1\nhttps://:p.pages.dev/*\n  X-B: 1\n",
    );
    assert_eq!(status, 0, "{said}");
    for line in [
        "_redirects, line 1, is left out, because its host has a placeholder: https://:a.example/* /b",
        "_headers, line 3, is left out, because its host has a placeholder: https://:p.pages.dev/*",
    ] {
        assert!(said.contains(line), "{said}");
    }
    let (status, said) = told(
        "/q id=1 /x\n/q /y\n/q /z 302\n/a/* /b/:splat\n/a/c /d 301!\n/ /start\n/to/http://a.example /x\nhttps://a.example/e /f\n/e /g\n/* /i 200\n/p/:n /r\n",
        "",
    );
    assert_eq!(status, 0, "{said}");
    let unreached: Vec<_> = said
        .lines()
        .filter_map(|line| line.split_once("is never reached, because "))
        .map(|(_, rest)| rest)
        .collect();
    assert_eq!(
        unreached,
        [
            "line 2 comes first: /q /z 302",
            "line 4 comes first: /a/c /d 301!",
            "line 10 comes first: /p/:n /r"
        ],
        "{said}"
    );
    tree.file("kept", "a file");
    let (status, said) = told(
        "# no rule\n/loop /loop 301\n/l1 /l2\n/l2 /l1 302\n/in/* /in/:splat/x\n/a /b\n/b /c 200\n/kept /kept\n\
         /x/:id /x/:id/\n/in2 /l1\n/c /b\n",
        "",
    );
    assert_eq!(status, 0, "{said}");
    for line in [
        "2, leads to itself where no file is found: /loop /loop 301\n",
        "3, leads to itself where no file is found: /l1 /l2\n",
        "4, leads to itself where no file is found: /l2 /l1 302\n",
        "5, leads to itself where no file is found: /in/* /in/:splat/x\n",
        "9, leads to itself where no file is found: /x/:id /x/:id/\n",
        "11, leads to itself where no file is found: /c /b\n",
    ] {
        assert!(said.contains(&format!("_redirects, line {line}")), "{said}");
    }
    assert_eq!(said.matches("leads to itself").count(), 6, "{said}");
    for (redirects, headers, expected) in [
        (
            "\n/a /b 418\n",
            "",
            "_redirects, line 2, is left out, because 418 is not the status of a redirect, 200, 404 or 410: /a /b 418\n",
        ),
        (
            "/a\n",
            "",
            "_redirects, line 1, is left out, because it has no target",
        ),
        (
            "/a/:b /c/:b/:d\n",
            "",
            "_redirects, line 1, has a target with `:d`, which stays so: its path has no such name: /a/:b /c/:b/:d\n",
        ),
        (
            "",
            "/x/*/y/*\n  X-A: 1\n",
            "_headers, line 1, is left out, because it has a star or a name twice: /x/*/y/*\n",
        ),
        (
            "",
            "  X-A: 1\n",
            "_headers, line 1, is left out, because a path is missing before it: X-A: 1\n",
        ),
        (
            "",
            "/*\n  X A: 1\n",
            "_headers, line 2, is left out, because it has no name of a header: X A\n",
        ),
        (
            "",
            "/*\n  Transfer-Encoding: chunked\n",
            "because only the server itself writes that header: Transfer-Encoding\n",
        ),
        (
            "",
            "/*\n  Basic-Auth: a:b\n",
            "because passwords are `basic_auth` of a route; nobody gets what has no such route: Basic-Auth\n",
        ),
    ] {
        let (status, said) = told(redirects, headers);
        assert_eq!(status, 0, "{said}");
        assert!(said.contains(expected), "{said}");
        let file = tree.at("levity.toml");
        let strict = Launch::levity(["check", "--strict"]).arguments([file]);
        assert_eq!(strict.ran().status, 78);
    }
}

/// Of rules, their lines are shown, and not what they became.
#[test]
fn rules_are_called_by_their_lines() {
    let tree = Tree::new();
    let web = tree.folder("www");
    tree.file("www/page", "page");
    tree.file(
        "www/_headers",
        "# private\n/in/*\n  Basic-Auth: ann:secret\n",
    );
    tree.file("www/_redirects", "/old/* /page 301\n/* /page 200\n");
    let site = format!(
        "[[site]]\nroot = \"{}\"\nstatic_host_files = true\n",
        web.display()
    );
    let route = "[[site.route]]\npath = \"/admin*\"\nallow = [\"192.0.2.1\"]\n";
    let file = tree.file("levity.toml", site + route);
    let check = Launch::levity(["check"]).arguments([&file]).ran();
    assert_eq!(check.status, 0, "{}", check.stderr);
    let note = "line 5: `/admin*` ends where a segment ends, and paths beneath it are not closed: the rule `/*` on line 2 of _redirects serves";
    assert!(check.stderr.contains(note), "{}", check.stderr);
    for (path, shown) in [
        ("/in/x", "`/in/*` (line 2 of `_headers`)"),
        ("/old/x", "`/old/*` (line 1 of `_redirects`)"),
        ("/any", "`/*` (line 2 of `_redirects`)"),
    ] {
        let url = format!("http://a.test{path}");
        let file = file.to_str().expect("a path in UTF-8");
        let ran = Launch::levity(["explain", "-c", file, &url]).ran();
        assert!(
            ran.stdout.contains(shown),
            "{path}: {}{}",
            ran.stdout,
            ran.stderr
        );
    }
}

#[test]
fn a_reload_logs_what_is_left_out_now() {
    let tree = Tree::new();
    tree.file("a", "a");
    tree.file("_redirects", "/first\n/x /a 301\n");
    let server = Launch::site(tree.path(), "", "static_host_files = true").start();
    assert_noted(&server, "_redirects, line 1, is left out");
    tree.file("_redirects", "/first\n/second\n/x /a 302\n");
    server.reload(&[], &[]);
    assert_eq!(server.get("/x").status, 302);
    assert_noted(&server, "_redirects, line 2, is left out");
    let said = server.stderr();
    assert_eq!(
        said.matches("_redirects, line 1, is left out").count(),
        1,
        "{said}"
    );
}

/// The files are content: nothing in them keeps the server down.
#[test]
fn files_that_are_none() {
    let tree = Tree::new();
    tree.file("a", "a");
    tree.node("_redirects", FileType::Fifo, 0);
    tree.folder("_headers");
    let starts = |said: &str| {
        let server = Launch::site(tree.path(), "", "static_host_files = true").start();
        assert_eq!(server.get("/a").text(), "a");
        assert_noted(&server, said);
        server
    };
    starts("_redirects is left out: it is not a file");
    starts("_headers is left out: it is not a file");
    std::fs::remove_file(tree.at("_redirects")).expect("a file");
    let elsewhere = Tree::new();
    let secret = elsewhere.file("secret", "/a /a-secret-word 299\n");
    std::os::unix::fs::symlink(&secret, tree.at("_redirects")).expect("a link");
    let server = starts("_redirects is left out: a symbolic link leads out of the root");
    assert!(!server.stderr().contains("a-secret-word"));
    std::fs::remove_file(tree.at("_redirects")).expect("a link");
    std::fs::remove_dir(tree.at("_headers")).expect("a folder");
    tree.file(
        "_redirects",
        b"\xef\xbb\xbf/first /a 302\r\n/\xff /a\n/\x1b[2J //\n/last /a 302",
    );
    tree.file("_headers", "\u{feff}/a\nX-Found: 1\nnonsense\nX-Lost: 1\n");
    let server = starts("_redirects, line 2, is left out, because it is not UTF-8: /\u{fffd} /a");
    assert_noted(&server, "_headers, line 3, is left out");
    let mut client = server.client();
    assert_leads(&mut client, "/first", 302, "/a");
    assert_leads(&mut client, "/last", 302, "/a");
    let answer = client.get("/a");
    assert_eq!(answer.header("x-found"), Some("1"));
    assert_eq!(answer.header("x-lost"), None);
    assert!(!server.stderr().contains('\u{1b}'));
}

#[test]
fn what_static_hosts_take_besides() {
    let tree = Tree::new();
    tree.file("index.html", "x");
    tree.file("h/a\r\nX-Evil: 1", "x");
    tree.file(
        "_redirects",
        "/docs/preset-* /docs/p-:splat 301\n/*.txt /:splat.md 301\n/:a/index.html /:a/ 301\n/a%20b /x 301\n\
         /caf%C3%A9 /th\u{e9}\u{e2}tre 301\n/th\u{e9} /x?y=\u{e9}#\u{e9} 301\nplain /x 301\n\
         /away https://b.example 301\t# why\nhttp://old.example https://b.example/new 301!\n/e/* /:splat 301\n",
    );
    tree.file(
        "_headers",
        "/h/*\n  X-Found: <:splat>; :other\n  X-Found: :splat\n",
    );
    let server = Launch::site(tree.path(), "", "static_host_files = true").start();
    let mut client = server.client();
    for (path, to) in [
        ("/docs/preset-a/b", "/docs/p-a/b"),
        ("/x/y.txt?q", "/x/y.md?q"),
        ("/x/index.html", "/x/"),
        ("/a%20b", "/x"),
        ("/caf%c3%a9", "/th%C3%A9%C3%A2tre"),
        ("/th%C3%A9?z", "/x?y=%C3%A9#%C3%A9"),
        ("/plain/", "/x"),
        ("/away", "https://b.example"),
        // No request leads to another host.
        ("/e/%5Cevil.example", "/%5Cevil.example"),
        ("/e//evil.example", "/evil.example"),
    ] {
        assert_leads(&mut client, path, 301, to);
    }
    client.get("/docs/preset").assert_status(404);
    let old = client.get_for("old.example", "/");
    assert_eq!(old.field("location"), "https://b.example/new");
    let answer = client.get("/h/a%0D%0AX-Evil:%201");
    assert_eq!(
        answer.header("x-found"),
        Some("<a%0D%0AX-Evil%3A%201>; :other, a%0D%0AX-Evil%3A%201")
    );
    assert_eq!(answer.header("x-evil"), None);
}

/// What the host would ask a password for is not open here.
#[test]
fn paths_with_passwords() {
    let tree = Tree::new();
    tree.file("_headers", "/in/*\n  Basic-Auth: ann:secret\n  X-In: 1\n");
    tree.file("_redirects", "/in/old /a 301!\n");
    tree.file("in/x", "in");
    tree.file("a", "a");
    let keys = "static_host_files = true\n";
    let server = Launch::site(tree.path(), "", keys).start();
    for path in ["/in/x", "/in", "/in/old", "/in/absent"] {
        server.get(path).assert_status(403);
    }
    server.get("/a").assert_status(200);
    assert!(!server.stderr().contains("secret"));
    let route = "[[site.route]]\npath = \"/in/*\"\nallow = [\"127.0.0.1\"]\n";
    let server = Launch::site(tree.path(), "", &format!("{keys}{route}")).start();
    let answer = server.get("/in/x");
    assert_eq!(
        (answer.text().as_str(), answer.header("x-in")),
        ("in", Some("1"))
    );
}

/// A line that keeps files from clients closes them also where it cannot be used as it is written.
#[test]
fn lines_that_close_paths() {
    let tree = Tree::new();
    for line in [
        "/in/* /in/:splat 200! Role=admin\n/in/* 401!\n",
        "/in/* 401!\n",
        "/in/* /in/:splat 403\n",
        "/in/*/x/* /a 410!\n/in/x 403!\n",
    ] {
        tree.file("_redirects", format!("/in/old /a 301!\n{line}/* /a 200\n"));
        tree.file("in/x", "in");
        tree.file("a", "a");
        let server = Launch::site(tree.path(), "", "static_host_files = true\n").start();
        server.get("/in/x").assert_status(403);
        server.get("/in/old").assert_status(301);
        assert_eq!(server.get("/b").text(), "a", "{line}");
        let note = "; nobody gets the paths that it would close: /in/*";
        assert!(server.stderr().contains(note), "{}", server.stderr());
    }
    for status in [404, 410] {
        let rules = format!("/in/* /a {status}!\n/* /a {status}\n");
        tree.file("_redirects", rules);
        let server = Launch::site(tree.path(), "", "static_host_files = true\n").start();
        for path in ["/in/x", "/in/absent", "/absent"] {
            let answer = server.get(path);
            answer.assert_status(status);
            assert_eq!(answer.text(), "a", "{path}");
        }
        assert_eq!(server.get("/a").text(), "a");
    }
}

/// Each rule with a name looks at the whole path, so many rules and a long path would hold up the loop.
#[test]
fn long_paths_and_many_rules() {
    let tree = Tree::new();
    tree.file("index.html", "x");
    let rules: String = (0..500).map(|n| format!("/a/:b/x{n}  /\n")).collect();
    tree.file("_redirects", rules);
    let server = Launch::site(tree.path(), "", "static_host_files = true").start();
    let mut client = server.client();
    client
        .get(&format!("/{}", "b".repeat(1047)))
        .assert_status(404);
    client
        .get(&format!("/{}", "b".repeat(1048)))
        .assert_status(414);
    client.get("/a/b/x499").assert_status(301);
}

/// As many as Cloudflare Pages takes. A request is compared with those that may be about it.
#[test]
fn two_thousand_rules() {
    let tree = Tree::new();
    tree.file("index.html", "x");
    let pages = (0..2000).map(|n| format!("/page/{n} /new/{n} 301\n"));
    let others = (0..100).map(|n| format!("/d{n}/:a/* /e/:a/{n}/:splat 301\n"));
    let rules: String = pages
        .chain(others)
        .chain(["/late /x\n".to_owned()])
        .collect();
    tree.file("_redirects", rules);
    let server = Launch::site(tree.path(), "", "static_host_files = true").start();
    assert_noted(
        &server,
        "_redirects, line 2101, is left out, because 2100 rules go before it: /late /x",
    );
    let mut client = server.client();
    assert_leads(&mut client, "/page/1999", 301, "/new/1999");
    assert_leads(&mut client, "/d99/x/y/z", 301, "/e/x/99/y/z");
    client.get("/late").assert_status(404);
    let long = "b".repeat(7000);
    client.get(&format!("/{long}")).assert_status(404);
    let to = format!("/e/{long}/5/");
    assert_leads(&mut client, &format!("/d5/{long}"), 301, &to);
    let more: String = (0..501).map(|n| format!("/d{n}/* /e 301\n")).collect();
    tree.file("_redirects", more);
    let server = Launch::site(tree.path(), "", "static_host_files = true").start();
    assert_noted(
        &server,
        "line 501, is left out, because 500 rules with a star or a name go before it",
    );
}

#[test]
fn notes_have_bounds() {
    let tree = Tree::new();
    tree.file("_redirects", format!("{}\n", "x".repeat(1000)).repeat(1000));
    let config = format!(
        "[[site]]\nroot = \"{}\"\nstatic_host_files = true\n",
        tree.path().display()
    );
    // Beneath the root it would be noted as well.
    let elsewhere = Tree::new();
    let file = elsewhere.file("levity.toml", config);
    let ran = Launch::levity(["check", file.to_str().expect("a path in UTF-8")]).ran();
    assert_eq!((ran.status, ran.stderr.matches("note:").count()), (0, 101));
    assert!(
        ran.stderr.contains("_redirects: 900 more lines have notes"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.lines().all(|line| line.len() < 600));
    tree.file("_redirects", "/a /b 301\n".repeat(200_000));
    let ran = Launch::levity(["check", file.to_str().expect("a path in UTF-8")]).ran();
    assert_eq!(ran.status, 0);
    let cut = "_redirects: what lies behind its first 1048576 bytes is left out";
    assert!(ran.stderr.contains(cut), "{}", ran.stderr);
}
