//! Requests that are moved to a location on purpose, and locations with the same rules.

use crate::support::Server;
use crate::support::scripted::Scripted;

use super::{
    Faults, OUTSIDE, PROXIES, VERSIONS, answer, assert_reads, assert_refused, content_of, denied,
    route, runner, site, started, tree_of, with_scripts,
};

const HIDDEN: [&str; 6] = [
    "hidden/index.html",
    "hidden/page.html",
    "hidden/secret.html",
    "hidden/fallback.html",
    "hidden/other/index.html",
    "hidden/denied/index.html",
];

/// Internal locations, in one of which are others.
fn hidden() -> String {
    let other = route("path = \"/hidden/other/*.html\"\ninternal = true\ndeny = [\"all\"]");
    let denied = [
        denied("/hidden/secret.html"),
        denied("/hidden/denied/index.html"),
    ];
    let steps = "try = [\"file\", \"file.html\", \"directory\", \"/hidden/fallback.html\"]";
    let all = route(&format!("path = \"/hidden/*\"\ninternal = true\n{steps}"));
    [other, denied.concat(), all].concat()
}

/// Paths behind that of the internal location, with the status and the content that they get.
const MOVED: [(&str, u16, &str); 3] = [
    ("page.html", 200, "[[hidden~page.html]]"),
    ("page", 200, "[[hidden~page.html]]"),
    ("none", 200, "[[hidden~fallback.html]]"),
];

#[track_caller]
fn assert_moved(server: &Server, prefix: &str, more: &[(&str, u16, &str)]) {
    for (rest, status, content) in MOVED.iter().chain(more) {
        let path = format!("{prefix}{rest}");
        assert_reads(server, &[], &[(&path, *status, content)]);
    }
    let direct = ["/hidden/", "/hidden/page", "/hidden/none", "/hidden/other/"];
    let expected = direct.map(|path| (path, 404, ""));
    assert_reads(server, &[], &expected);
}

#[test]
fn rewrites_lead_to_internal_locations() {
    let tree = tree_of(&HIDDEN);
    let moving = route("path = \"/go/*\"\nreroute = \"/hidden/{rest}\"");
    let server = started(&tree, &format!("{moving}{}", hidden()));
    let more = [
        ("", 200, "[[hidden~index.html]]"),
        ("secret", 403, ""),
        ("denied/", 403, ""),
        ("other/", 404, ""),
    ];
    assert_moved(&server, "/go/", &more);
}

/// An application that names `{to}REST` for `/app/REST`, and its upstream.
fn naming(to: &'static str) -> (Scripted, String) {
    let app = Scripted::tcp(move |conn| {
        while let Some(request) = conn.read_request() {
            let rest = request.target.trim_start_matches("/app/");
            let head = format!("HTTP/1.1 200 OK\r\nX-Accel-Redirect: {to}{rest}");
            if !conn.send(format!("{head}\r\nContent-Length: 0\r\n\r\n")) {
                break;
            }
        }
    });
    let address = app.address();
    let upstream = format!("{PROXIES}[[upstream]]\nname = \"app\"\nto = [\"{address}\"]\n");
    (app, upstream)
}

const ASKING: &str = "[[site.route]]\npath = \"/app/*\"\nproxy = \"app\"\n";

#[test]
fn applications_lead_to_internal_locations() {
    let (_app, upstream) = naming("/hidden/");
    let tree = tree_of(&HIDDEN);
    let server = site(&tree, &upstream, &format!("{ASKING}{}", hidden())).start();
    // The application has named something that leads to what it must not name.
    assert_moved(&server, "/app/", &[("secret", 502, "")]);
}

/// The gates of the location that an application names do not apply, and neither do they to what is found in it.
#[test]
fn an_application_has_let_the_client_in() {
    let (_app, upstream) = naming("/vault/");
    let tree = tree_of(&["vault/page.html", "vault/no.html"]);
    let steps = "try = [\"file\", \"file.html\"]\n";
    let vault = route(&format!(
        "path = \"/vault/*\"\ninternal = true\nallow = [\"10.0.0.0/8\"]\n{steps}"
    ));
    let rules = [ASKING, &denied("/vault/no.html"), &vault].concat();
    let server = site(&tree, &upstream, &rules).start();
    let expected = [
        ("/app/page.html", 200, "[[vault~page.html]]"),
        ("/app/page", 200, "[[vault~page.html]]"),
        ("/app/no", 502, ""),
        ("/vault/", 404, ""),
        ("/vault/page", 404, ""),
    ];
    assert_reads(&server, &[OUTSIDE], &expected);
}

#[test]
fn rewrites_lead_to_internal_scripts() {
    let backend = runner();
    let names =
        ["index.php", "run.php", "no.php", "other/index.php"].map(|name| format!("inc/{name}"));
    let tree = tree_of(&names);
    let rules = [
        route("path = \"/go/*\"\nreroute = \"/inc/{rest}\""),
        route("path = \"/inc/other/index.php\"\ninternal = true"),
        denied("/inc/no.php"),
        route("path = \"/inc/*\"\ninternal = true\ntry = [\"file\", \"proxy\"]"),
    ];
    let keys = format!("index = [\"index.php\"]\n{}", rules.concat());
    let server = with_scripts(&backend, &tree, &keys);
    let expected = [
        ("/go/", 200, "ran /inc/index.php with "),
        ("/go/run.php", 200, "ran /inc/run.php with "),
        ("/go/run.php/x", 200, "ran /inc/run.php with /x"),
        ("/go/no.php/x", 403, ""),
        ("/go/other/", 404, ""),
        ("/inc/", 404, ""),
        ("/inc/run.php/x", 404, ""),
    ];
    assert_reads(&server, &[], &expected);
}

/// What differs is not a rule about who gets the file.
#[test]
fn the_headers_are_those_of_the_path_that_was_asked_for() {
    let tree = tree_of(&["index.html", "dir/index.html", "page.html"]);
    let headers = |name| format!("headers.set = {{ X-Is = \"{name}\" }}\n");
    let own = ["/index.html", "/dir/index.html", "/page.html"]
        .map(|path| route(&format!("path = \"{path}\"\n{}", headers("page"))));
    let steps = "try = [\"file\", \"file.html\", \"/index.html\"]\n";
    let server = started(
        &tree,
        &format!("{steps}{}{}", headers("site"), own.concat()),
    );
    let mut faults = Faults::default();
    for version in VERSIONS {
        for (path, from, content) in [
            ("/index.html", "page", "index.html"),
            ("/", "site", "index.html"),
            ("/some/path", "site", "index.html"),
            ("/dir/", "site", "dir/index.html"),
            ("/page", "site", "page.html"),
            ("/page.html", "page", "page.html"),
        ] {
            let reply = answer(&server, version, "GET", path, &[]);
            let is_right = (reply.status, reply.field("x-is")) == (200, Some(from))
                && reply.body == content_of(content);
            faults.note(is_right, || format!("{version:?} {path}: {reply:?}"));
        }
    }
    faults.assert_none();
}

/// Each way to the file is a request for it.
#[test]
fn the_limit_of_a_page_is_charged_by_all_ways_to_it() {
    for way in ["/", "/index", "/some/path"] {
        let tree = tree_of(&["index.html", "a.txt"]);
        let steps = "try = [\"file\", \"file.html\", \"/index.html\"]\n";
        let limited = route("path = \"/index.html\"\nlimit = [{ requests = \"2/h\" }]");
        let server = started(&tree, &format!("{steps}{limited}"));
        let mut client = server.client();
        let statuses = ["/index.html", way, way, "/index.html", "/a.txt"];
        let statuses = statuses.map(|path| client.get(path).status);
        assert_eq!(statuses, [200, 200, 429, 429, 200], "{way}");
    }
}

#[test]
fn a_name_that_does_not_exist_guards_nothing() {
    let tree = tree_of(&[
        "next/index.html",
        "list/x.txt",
        "here/first.html",
        "page.html",
    ]);
    let guards = [
        denied("/next/first.html"),
        denied("/list/first.html"),
        denied("/list/index.html"),
        denied("/here/first.html"),
        denied("/page.htm"),
    ];
    let keys = format!(
        "index = [\"first.html\", \"index.html\"]\nlisting = true\n\
         try = [\"file\", \"file.htm\", \"file.html\", \"directory\"]\n{}",
        guards.concat()
    );
    let server = started(&tree, &keys);
    let expected = [
        ("/next/", 200, "[[next~index.html]]"),
        ("/list/", 200, "x.txt"),
        ("/here/", 403, ""),
        ("/page", 200, "[[page.html]]"),
        ("/next/first.html", 403, ""),
    ];
    assert_reads(&server, &[], &expected);
}

#[test]
fn the_log_has_the_path_as_it_was_sent() {
    let tree = tree_of(&["dir/index.html", "secret.html", "open/index.html"]);
    let guards = [denied("/dir/index.html"), denied("/secret.html")].concat();
    let server = started(&tree, &format!("try = [\"file\", \"file.html\"]\n{guards}"));
    assert_refused(&server, &[], "/dir/index.html", 403, &["/%64ir/?a=b"]);
    for (path, status) in [("/%64ir/?a=b", 403), ("/secret?x", 403), ("/open/?y", 200)] {
        assert_eq!(server.get(path).status, status, "{path}");
        server.prints(&format!("\"GET {path} HTTP/1.1\" {status}"));
    }
}
