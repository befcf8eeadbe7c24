//! Ways past a rule to what it is about, one by one.

use crate::support::scripted::Scripted;
use crate::support::{Server, Tree};

use super::{
    ANN, Faults, Reply, USERS, VERSIONS, answer, assert_reads, assert_refused, content_of, denied,
    route, runner, site, started, tree_of, with_scripts,
};

/// A browser, and programs.
const FORMS: [&str; 4] = [
    "text/html",
    "application/json",
    "application/x-ndjson",
    "text/plain",
];

/// The listing of `path` in each form, over both versions.
#[track_caller]
fn listings(server: &Server, path: &str) -> Vec<Reply> {
    let mut all = Vec::new();
    for version in VERSIONS {
        for form in FORMS {
            let listing = answer(server, version, "GET", path, &[("Accept", form)]);
            assert_eq!(listing.status, 200, "{path} as {form}: {listing:?}");
            all.push(listing);
        }
    }
    all
}

/// Expects each form of a listing to have some texts and not to have others.
#[track_caller]
fn assert_lists(server: &Server, path: &str, with: &[&str], without: &[&str]) {
    let mut faults = Faults::default();
    for listing in listings(server, path) {
        for (texts, expected) in [(with, true), (without, false)] {
            for text in texts {
                let is_right = listing.body.contains(text) == expected;
                faults.note(is_right, || format!("{text} not {expected}: {listing:?}"));
            }
        }
    }
    faults.assert_none();
}

/// Expects a script to be refused with whatever follows its name, and not to be run.
#[track_caller]
fn assert_script_refused(rule: &str, script: &str, status: u16) {
    let (backend, name) = (runner(), script.trim_start_matches('/'));
    let tree = tree_of(&[name, "other.php"]);
    tree.file(".users", USERS);
    let server = with_scripts(&backend, &tree, rule);
    let aliases = ["/", "/x", "/x.css", "/x/y.php"].map(|rest| format!("{script}{rest}"));
    let aliases: Vec<_> = aliases.iter().map(String::as_str).collect();
    assert_refused(&server, &[], script, status, &aliases);
    for version in VERSIONS {
        let posted = answer(&server, version, "POST", &format!("{script}/x"), &[]);
        assert_eq!(posted.status, status, "{posted:?}");
    }
    assert!(backend.requests().is_empty(), "{:?}", backend.requests());
    let open = "ran /other.php with /x for /other.php/x?a=b";
    assert_reads(&server, &[], &[("/other.php/x?a=b", 200, open)]);
}

#[test]
fn a_denied_script_and_what_follows_it() {
    assert_script_refused(&denied("/wp-login.php"), "/wp-login.php", 403);
}

#[test]
fn a_script_with_a_password_and_what_follows_it() {
    let rule = route("path = \"/wp-login.php\"\nbasic_auth = { users = \"{root}/.users\" }");
    assert_script_refused(&rule, "/wp-login.php", 401);
    let (backend, tree) = (runner(), tree_of(&["wp-login.php"]));
    tree.file(".users", USERS);
    let server = with_scripts(&backend, &tree, &rule);
    let ran = "ran /wp-login.php with";
    let expected = [
        ("/wp-login.php", 200, format!("{ran}  for /wp-login.php")),
        ("/wp-login.php/", 200, format!("{ran} / for /wp-login.php/")),
        (
            "/wp-login.php/x?a=b",
            200,
            format!("{ran} /x for /wp-login.php/x?a=b"),
        ),
    ];
    let expected = expected.each_ref().map(|(a, b, c)| (*a, *b, c.as_str()));
    assert_reads(&server, &[ANN], &expected);
    let wrong = [("Authorization", "Basic YW5uOndyb25n")];
    assert_refused(&server, &wrong, "/wp-login.php", 401, &["/wp-login.php/x"]);
}

#[test]
fn a_script_that_is_answered_otherwise() {
    let rule = route("path = \"/xmlrpc.php\"\nrespond = { status = 403, body = \"no\" }");
    assert_script_refused(&rule, "/xmlrpc.php", 403);
}

#[test]
fn scripts_in_a_folder_of_uploads() {
    let by_regex = route("regex = \"/uploads/.*\\\\.php$\"\ndeny = [\"all\"]");
    for rule in [by_regex, denied("/content/**.php")] {
        assert_script_refused(&rule, "/content/uploads/x.php", 403);
    }
}

#[test]
fn an_internal_script_and_what_follows_it() {
    let rule = route("path = \"/inc/*\"\ninternal = true");
    assert_script_refused(&rule, "/inc/x.php", 404);
    // What follows it may belong to no location of its own, and the script does.
    let rule = route("path = \"/inc.php\"\ninternal = true");
    assert_script_refused(&rule, "/inc.php", 404);
}

/// Folders with a script as their index, of which that of one is denied.
fn with_index(backend: &Scripted, keys: &str) -> (Tree, Server) {
    let tree = tree_of(&["index.php", "admin/index.php", "open/index.php"]);
    let keys = format!("{keys}\n{}", denied("/admin/index.php"));
    let server = with_scripts(backend, &tree, &keys);
    (tree, server)
}

#[test]
fn a_denied_script_as_an_index() {
    for keys in [
        "script_index = \"index.php\"",
        "index = [\"index.php\"]",
        "script_index = \"index.php\"\nindex = [\"index.php\", \"index.html\"]",
    ] {
        let backend = runner();
        let (_tree, server) = with_index(&backend, keys);
        let others = ["/admin/", "/admin/?a=b", "/admin/index.php/x"];
        assert_refused(&server, &[], "/admin/index.php", 403, &others);
        assert!(backend.requests().is_empty(), "{:?}", backend.requests());
        let open = "ran /open/index.php with  for /open/";
        assert_reads(&server, &[], &[("/open/", 200, open)]);
    }
}

#[test]
fn a_denied_script_for_whatever_else_is_asked_for() {
    let backend = runner();
    let (_tree, server) = with_index(&backend, "script_index = \"index.php\"");
    let none = "ran /index.php with  for /admin/none";
    assert_reads(&server, &[], &[("/admin/none", 200, none)]);

    let (backend, tree) = (runner(), tree_of(&["index.php", "a.txt"]));
    let keys = format!("script_index = \"index.php\"\n{}", denied("/index.php"));
    let server = with_scripts(&backend, &tree, &keys);
    assert_refused(&server, &[], "/index.php", 403, &["/", "/none", "/none/"]);
    assert_reads(&server, &[], &[("/a.txt", 200, &content_of("a.txt"))]);
    assert!(backend.requests().is_empty(), "{:?}", backend.requests());
}

#[test]
fn a_guarded_index() {
    for (rule, status) in [
        ("respond = { status = 403 }", 403),
        ("internal = true", 404),
        ("deny = [\"all\"]", 403),
        ("basic_auth = { users = \"{root}/.users\" }", 401),
    ] {
        let tree = tree_of(&["dir/index.html", "open/index.html"]);
        tree.file(".users", USERS);
        let keys = route(&format!("path = \"/dir/index.html\"\n{rule}"));
        let server = started(&tree, &keys);
        assert_refused(&server, &[], "/dir/index.html", status, &["/dir/"]);
        let mut expected = vec![("/open/", 200, "[[open~index.html]]")];
        if status == 401 {
            assert_reads(&server, &[ANN], &[("/dir/", 200, "[[dir~index.html]]")]);
        }
        expected.push(("/dir/none", 404, ""));
        assert_reads(&server, &[], &expected);
    }
}

#[test]
fn a_guarded_suffix_and_a_guarded_page() {
    for steps in [
        "try = [\"file\", \"file.html\", \"directory\", \"/page.html\"]\n",
        "try = [\"file\", \"file.html\", \"/page.html\"]\n",
    ] {
        let tree = tree_of(&["page.html", "secret.html", "open.html"]);
        let rules = format!("{steps}{}{}", denied("/page.html"), denied("/secret.html"));
        let server = started(&tree, &rules);
        assert_refused(&server, &[], "/secret.html", 403, &["/secret"]);
        let none = ["/none", "/none/", "/none/of/these"];
        assert_refused(&server, &[], "/page.html", 403, &none);
        assert_reads(&server, &[], &[("/open", 200, "[[open.html]]")]);
    }
}

#[test]
fn an_internal_readme() {
    let tree = tree_of(&["d/README.md", "d/x.txt", "open/README"]);
    let keys = format!(
        "listing = true\n{}",
        route("path = \"*.md\"\ninternal = true")
    );
    let server = started(&tree, &keys);
    assert_reads(&server, &[], &[("/d/README.md", 404, "")]);
    let readme = content_of("d/README.md");
    assert_lists(&server, "/d/", &["x.txt"], &["README.md", &readme]);
    let html = [("Accept", "text/html")];
    assert_reads(&server, &html, &[("/open/", 200, "[[open~README]]")]);
}

/// An application that refuses what ends in `.md`.
fn portal() -> Scripted {
    Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            let path = request.field("x-forwarded-uri").unwrap_or("");
            let refuses = path.ends_with(".md");
            let status = if refuses { "403 Forbidden" } else { "200 OK" };
            if !conn.answer(status, "") {
                break;
            }
        }
    })
}

#[test]
fn a_readme_that_an_application_refuses() {
    let portal = portal();
    let upstream = format!(
        "[[upstream]]\nname = \"auth\"\nto = [\"{}\"]\n",
        portal.address()
    );
    let gate = "forward_auth = { upstream = \"auth\", path = \"/\" }\n";
    let on_a_route = route(&format!("path = \"*.md\"\n{gate}"));
    for rules in [gate, &on_a_route] {
        let tree = tree_of(&["d/README.md", "d/x.txt"]);
        let archives = "listing_archive = [\"tar\", \"zip\"]";
        let keys = format!("listing = true\n{archives}\n{rules}");
        let server = site(&tree, &upstream, &keys).start();
        let expected = [("/d/README.md", 403, ""), ("/d/x.txt", 200, "[[d~x.txt]]")];
        assert_reads(&server, &[], &expected);
        assert_lists(&server, "/d/", &["x.txt"], &[&content_of("d/README.md")]);
        let is_everywhere = rules == gate;
        for form in ["tar", "zip"] {
            let path = format!("/d/?archive={form}");
            let reply = answer(&server, VERSIONS[0], "GET", &path, &[]);
            assert_eq!(reply.status, if is_everywhere { 403 } else { 200 });
            assert!(!reply.body.contains("README.md"), "{rules}: {}", reply.body);
        }
        if !is_everywhere {
            assert_lists(&server, "/d/", &["x.txt"], &["README.md"]);
        }
    }
}

/// A signature is for one path, and that of a folder is none for what is in it.
#[test]
fn a_readme_under_a_signed_listing() {
    let tree = tree_of(&["d/README.md", "d/x.txt"]);
    let keys = "listing = true\nlisting_archive = [\"tar\"]\n\
        signed_url = { secret = \"0123456789abcdef0123456789abcdef\" }";
    let server = started(&tree, keys);
    // By `printf %s "/d/?expires=4102444800" | openssl dgst -sha256 -hmac SECRET -binary | basenc --base64url`.
    let signed = "/d/?expires=4102444800&signature=F7v8RcjEACRk9qnWKgLYEHuk5I0S9pWEzzHdl1N7BsI";
    assert_reads(&server, &[], &[("/d/", 403, ""), (signed, 200, "x.txt")]);
    assert_lists(&server, signed, &["x.txt"], &[&content_of("d/README.md")]);
}

#[test]
fn the_folder_of_a_prefix_without_its_slash() {
    let prefix = "regex = \"^/app(/|$)\"\nstrip_prefix = \"/app\"";
    for guard in [denied("/app/index.html"), String::new()] {
        let tree = tree_of(&["index.html", "a.txt"]);
        let server = started(&tree, &format!("{guard}{}", route(prefix)));
        let mut faults = Faults::default();
        for version in VERSIONS {
            for (path, to) in [("/app", "/app/"), ("/app?a=b", "/app/?a=b")] {
                let reply = answer(&server, version, "GET", path, &[]);
                let is_right = reply.status / 100 == 3 && reply.field("location") == Some(to);
                faults.note(is_right, || format!("{version:?} {path}: {reply:?}"));
            }
        }
        faults.assert_none();
        assert_reads(&server, &[], &[("/app/a.txt", 200, "[[a.txt]]")]);
        match guard.is_empty() {
            true => assert_reads(&server, &[], &[("/app/", 200, "[[index.html]]")]),
            false => assert_refused(&server, &[], "/app/index.html", 403, &["/app/"]),
        }
    }
}

#[test]
fn a_precompressed_form_has_the_guards_of_its_original() {
    for (rule, status) in [
        ("deny = [\"all\"]", 403),
        ("respond = { status = 403 }", 403),
        ("internal = true", 404),
        ("basic_auth = { users = \"{root}/.users\" }", 401),
    ] {
        let names = ["data.json", "data.json.gz", "only.json.gz", "other.txt.gz"];
        let tree = tree_of(&names);
        tree.file(".users", USERS);
        let rule = route(&format!("path = \"*.json\"\n{rule}"));
        let server = started(&tree, &format!("precompressed = [\"gzip\"]\n{rule}"));
        let others = ["/data.json.gz", "/only.json", "/only.json.gz"];
        assert_refused(&server, &[], "/data.json", status, &others);
        assert_reads(&server, &[], &[("/other.txt.gz", 200, "[[other.txt.gz]]")]);
        if status == 401 {
            let let_in = [
                ("/data.json.gz", 200, "[[data.json.gz]]"),
                ("/only.json.gz", 200, "[[only.json.gz]]"),
            ];
            assert_reads(&server, &[ANN], &let_in);
        }
    }
    // Without the key it is a file like any other.
    let tree = tree_of(&["data.json.gz", "data.json"]);
    let server = started(&tree, &denied("*.json"));
    let expected = [
        ("/data.json.gz", 200, "[[data.json.gz]]"),
        ("/data.json", 403, ""),
    ];
    assert_reads(&server, &[], &expected);
}

/// The form is sent for its original, whose guards have let the client in.
#[test]
fn a_guarded_form_is_sent_for_an_original_that_is_not() {
    let tree = tree_of(&["app.js", "app.js.gz"]);
    let rules = format!("precompressed = [\"gzip\"]\n{}", denied("*.gz"));
    let server = started(&tree, &rules);
    let gzip = [("Accept-Encoding", "gzip")];
    let expected = [("/app.js", 200, "[[app.js.gz]]"), ("/app.js.gz", 403, "")];
    assert_reads(&server, &gzip, &expected);
    assert_reads(&server, &[], &[("/app.js", 200, "[[app.js]]")]);
}

#[test]
fn a_guarded_page_of_errors() {
    let tree = tree_of(&["secret/404.html", "secret/other.html"]);
    let keys = format!(
        "error_pages = {{ 404 = \"/secret/404.html\" }}\n{}",
        denied("/secret/*")
    );
    let server = started(&tree, &keys);
    for version in VERSIONS {
        let none = answer(&server, version, "GET", "/none", &[]);
        assert_eq!(none.status, 404, "{none:?}");
        assert_eq!(none.body, content_of("secret/404.html"));
    }
    let others = ["/secret/other.html", "/secret/none"];
    assert_refused(&server, &[], "/secret/404.html", 403, &others);
}
