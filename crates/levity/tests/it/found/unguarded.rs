//! What is found where its own location asks for nothing more: the answer is that of the location that was asked.

use crate::support::scripted::Scripted;
use crate::support::{Launch, Tree};

use super::{
    VERSIONS, answer, assert_reads, denied, route, runner, site, started, tree_of, with_scripts,
};

const REDIRECTS: [(&str, &str); 3] = [
    ("/index.html", "/"),
    ("/docs/*.html", "/docs/{1}"),
    ("/about.html", "/about"),
];

/// A redirect from the name of a file to the path that leads to it would lead in a circle.
#[test]
fn a_redirect_to_the_path_that_leads_to_a_file() {
    let tree = tree_of(&["index.html", "docs/page.html", "about.html"]);
    let redirects = REDIRECTS.map(|(path, to)| {
        route(&format!(
            "path = \"{path}\"\nredirect = {{ to = \"{to}\", status = 301 }}"
        ))
    });
    let keys = format!("try = [\"file\", \"file.html\"]\n{}", redirects.concat());
    let server = started(&tree, &keys);
    let expected = [
        ("/", 200, "[[index.html]]"),
        ("/docs/page", 200, "[[docs~page.html]]"),
        ("/about", 200, "[[about.html]]"),
        ("/index.html", 301, ""),
        ("/docs/page.html", 301, ""),
    ];
    assert_reads(&server, &[], &expected);
}

/// As static hosts write it.
#[test]
fn a_forced_line_of_a_static_host() {
    let tree = tree_of(&["index.html", "about.html"]);
    tree.file(
        "_redirects",
        "/about.html /about 301!\n/index.html / 301!\n",
    );
    let keys = "static_host_files = true\ntry = [\"file\", \"file.html\"]\n";
    let server = Launch::site(tree.path(), "", keys).start();
    let expected = [
        ("/", 200, "[[index.html]]"),
        ("/about", 200, "[[about.html]]"),
        ("/about.html", 301, ""),
    ];
    assert_reads(&server, &[], &expected);
}

/// An application whose answer names the path that it gets.
fn app() -> (Scripted, String) {
    let app = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            if !conn.answer("200 OK", format!("asked {}", request.target)) {
                break;
            }
        }
    });
    let upstream = format!(
        "[[upstream]]\nname = \"app\"\nto = [\"{}\"]\n",
        app.address()
    );
    (app, upstream)
}

/// Its index has no path in the application around it.
#[test]
fn a_folder_of_its_own_in_a_site_of_an_application() {
    let (_app, upstream) = app();
    let tree = tree_of(&["www/index.html", "www/own/index.html"]);
    let root = tree.at("www").display().to_string();
    let routes =
        ["/", "/own/*"].map(|path| route(&format!("path = \"{path}\"\nroot = \"{root}\"")));
    let text = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n{upstream}[[site]]\nproxy = \"app\"\n{}",
        routes.concat()
    );
    let server = Launch::run(&text).start();
    let expected = [
        ("/", 200, "[[www~index.html]]"),
        ("/own/", 200, "[[www~own~index.html]]"),
        ("/index.html", 200, "asked /index.html"),
    ];
    assert_reads(&server, &[], &expected);
}

/// What answers to names of a kind answers to an index of that kind too: it is not sent as it lies there.
#[test]
fn an_index_that_an_application_answers() {
    let (_app, upstream) = app();
    let tree = tree_of(&["index.cgi", "page.html"]);
    let keys = format!(
        "index = [\"index.cgi\"]\n{}",
        route("path = \"*.cgi\"\nproxy = \"app\"")
    );
    let server = site(&tree, &upstream, &keys).start();
    let expected = [
        ("/?a=b", 200, "asked /index.cgi?a=b"),
        ("/page.html", 200, "[[page.html]]"),
    ];
    assert_reads(&server, &[], &expected);
}

/// Gates, limits and headers of a route are not lost because the script lies in a location that has fewer.
#[test]
fn a_front_controller_that_asks_for_less() {
    let backend = runner();
    let tree = tree_of(&["index.php"]);
    let api = route(
        "path = \"/api/*\"\nallow = [\"127.0.0.0/8\"]\nlimit = [{ requests = \"1000/m\" }]\nbody_bytes = 100\n\
         headers = { set = { X-Own = \"1\" } }",
    );
    let keys = format!("script_index = \"index.php\"\nbody_bytes = 1\n{api}");
    let server = with_scripts(&backend, &tree, &keys);
    for version in VERSIONS {
        let reply = answer(&server, version, "PUT", "/api/x", &[]);
        assert_eq!(
            (reply.status, reply.field("x-own")),
            (200, Some("1")),
            "{reply:?}"
        );
        assert!(
            reply.body.starts_with("ran /index.php with  for /api/x"),
            "{reply:?}"
        );
    }
}

/// A script that only a route runs, in a site of files.
#[test]
fn a_front_controller_of_one_route() {
    let backend = runner();
    let tree = tree_of(&["index.php", "page.html"]);
    let upstream = format!(
        "[[upstream]]\nname = \"app\"\nprotocol = \"fastcgi\"\nto = [\"{}\"]\n",
        backend.address()
    );
    let api = route("path = \"/api/*\"\nproxy = \"app\"\nscript_index = \"index.php\"");
    let server = site(&tree, &upstream, &api).start();
    let expected = [
        ("/api/x", 200, "ran /index.php with  for /api/x"),
        ("/index.php", 404, ""),
        ("/page.html", 200, "[[page.html]]"),
    ];
    assert_reads(&server, &[], &expected);
}

/// The body of a request goes with it to the location of what it has found.
#[test]
fn the_body_goes_on() {
    let app = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            if !conn.answer("200 OK", format!("{} bytes", request.body.len())) {
                break;
            }
        }
    });
    let upstream = format!(
        "[[upstream]]\nname = \"app\"\nto = [\"{}\"]\n",
        app.address()
    );
    let tree = tree_of(&["dir/index.html"]);
    let page = route("path = \"/dir/index.html\"\nproxy = \"app\"");
    let server = site(&tree, &upstream, &page).start();
    for path in ["/dir/", "/dir/index.html"] {
        let mut client = server.client();
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabcdef"
        ));
        assert_eq!(client.receive().text(), "6 bytes", "{path}");
    }
}

/// A `try` in which nothing answers refuses as `respond` does.
#[test]
fn a_list_that_ends_with_an_error() {
    let tree: Tree = tree_of(&["secret.html", "data.json.gz", "page.html"]);
    let closed =
        ["/secret.html", "*.json"].map(|path| route(&format!("path = \"{path}\"\ntry = [403]")));
    let keys = format!(
        "try = [\"file\", \"file.html\"]\nprecompressed = [\"gzip\"]\nlisting = true\n{}{}",
        closed.concat(),
        denied("/none")
    );
    let server = started(&tree, &keys);
    let expected = [
        ("/secret.html", 403, ""),
        ("/secret", 403, ""),
        ("/data.json.gz", 403, ""),
        ("/page", 200, "[[page.html]]"),
    ];
    assert_reads(&server, &[], &expected);
}
