//! Pages of names.

use crate::names::{ODD_NAMES, odd_files};
use crate::support::{Client, Launch, Metrics, Tree, per_engine, wait_until};

/// The links of a page, as written in it.
fn links(page: &str) -> Vec<String> {
    let after = page.split("href=\"").skip(1);
    after
        .filter_map(|rest| rest.split('"').next())
        .map(str::to_owned)
        .collect()
}

per_engine! {
    fn every_name_can_be_followed(engine) {
        let tree = Tree::new();
        odd_files(&tree, "odd");
        let server = Launch::serve(tree.path()).engine(engine).start();
        let mut client = server.client();
        let page = client.get("/odd/").text();
        let mut found: Vec<_> = links(&page)
            .iter()
            .filter_map(|link| link.strip_prefix("./"))
            .map(|name| client.get(&format!("/odd/{name}")).body)
            .collect();
        found.sort();
        let mut expected = ODD_NAMES.map(<[u8]>::to_vec);
        expected.sort();
        assert_eq!(found, expected);
    }

    fn folders_first_and_hidden_names_not(engine) {
        let tree = Tree::new();
        for name in ["b.txt", "a.txt", ".hidden", "z/file", "y/file", ".well-known/x"] {
            tree.file(name, "x");
        }
        let server = Launch::serve(tree.path()).engine(engine).start();
        let page = server.get("/");
        assert_eq!(page.field("content-type"), "text/html; charset=utf-8");
        let names = links(&page.text());
        assert_eq!(names, ["./.well-known/", "./y/", "./z/", "./a.txt", "./b.txt"]);
    }
}

#[test]
fn off_unless_asked_for() {
    let tree = Tree::new();
    tree.file("sub/file", "x");
    let server = Launch::site(tree.path(), "", "").start();
    server.get("/").assert_status(403);
    server.get("/sub/").assert_status(403);
    server.get("/sub/file").assert_status(200);
}

#[test]
fn on_for_one_route() {
    let tree = Tree::new();
    tree.file("sub/file", "x");
    let route = "[[site.route]]\npath = \"/sub/*\"\nlisting = true\n";
    let server = Launch::site(tree.path(), "", route).start();
    server.get("/").assert_status(403);
    assert_eq!(links(&server.get("/sub/").text()), ["../", "./file"]);
}

#[test]
fn text_is_escaped() {
    let tree = Tree::new();
    tree.folder("<b>&");
    tree.file("<b>&/<script>\"", "x");
    let server = Launch::serve(tree.path()).start();
    let page = server.get("/%3Cb%3E&/").text();
    assert!(
        !page.contains("<script>") && !page.contains("<b>"),
        "{page}"
    );
    assert!(page.contains("&lt;script&gt;&quot;"), "{page}");
}

#[test]
fn head_of_a_page() {
    let tree = Tree::new();
    tree.file("a", "x");
    let server = Launch::serve(tree.path()).start();
    let mut client = server.client();
    let (head, get) = (client.head("/"), client.get("/"));
    assert_eq!(head.headers(), get.headers());
    assert_eq!(head.length(), Some(get.body.len()));
}

#[test]
fn a_new_name_is_seen_at_once() {
    let tree = Tree::new();
    tree.folder("sub");
    let server = Launch::serve(tree.path()).start();
    assert_eq!(links(&server.get("/sub/").text()), ["../"]);
    tree.file("sub/new", "x");
    assert_eq!(links(&server.get("/sub/").text()), ["../", "./new"]);
}

#[test]
fn too_many_names_are_cut_and_said_to_be() {
    let tree = Tree::new();
    for number in 0..30 {
        tree.file(format!("{number}"), "");
    }
    let limits = "[limits]\nlisting_entries = 20\n";
    let server = Launch::site(tree.path(), limits, "listing = true").start();
    let page = server.get("/").text();
    assert_eq!(links(&page).len(), 20);
    assert!(page.contains("more names"), "{page}");
}

#[test]
fn thousands_of_names() {
    let tree = Tree::new();
    for number in 0..3000 {
        tree.file(format!("file-{number:04}"), "");
    }
    let server = Launch::serve(tree.path()).start();
    let names = links(&server.get("/").text());
    assert_eq!(names.len(), 3000);
    assert!(names.is_sorted());
}

#[test]
fn a_page_too_long_is_cut_and_said_to_be() {
    let tree = Tree::new();
    for number in 0..2000 {
        tree.file(format!("{number:04}{}", "\"".repeat(250)), "");
    }
    let admin = "[admin]\nlisten = \"unix:{own}/admin\"\n";
    let server = Launch::site(tree.path(), admin, "listing = true").start();
    let hogs = || {
        let scraped = Client::unix(&server.own("admin")).get("/metrics").text();
        Metrics::parse(&scraped).sum("levity_loop_hog_seconds_count")
    };
    // A busy machine may take the processor away within a poll: what the server does itself comes again.
    wait_until("a page without a poll of more than 5 ms", || {
        let before = hogs();
        let page = server.get("/").text();
        assert!(page.len() < 4 * 1024 * 1024 + 200, "{}", page.len());
        assert!((1500..2000).contains(&links(&page).len()));
        assert!(page.contains("more names"));
        hogs() == before
    });
}

/// On the root: on the body it would change the text and leave the page white beneath it.
#[test]
fn the_whole_page_is_dark_where_that_is_wanted() {
    let tree = Tree::new();
    let server = Launch::serve(tree.path()).start();
    let page = server.get("/").text();
    let (_, style) = page.split_once("<style>").expect("a style");
    let (root, _) = style.split_once('}').expect("a rule");
    assert_eq!(root, ":root{color-scheme:light dark");
}
