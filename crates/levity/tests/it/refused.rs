//! What must not be served, and how that is said.

use std::time::{Duration, Instant};

use rustix::fs::{FileType, makedev};

use crate::support::{Launch, Tree, is_root, per_engine};

/// A named pipe that nobody writes to would keep a careless server waiting for ever.
const PROMPT: Duration = Duration::from_secs(5);

#[test]
fn hidden_names() {
    let tree = Tree::new();
    for name in [
        ".htaccess",
        ".git/config",
        "a/.b/c",
        "a/.env",
        ".well-known/acme/token",
    ] {
        tree.file(name, "hidden");
    }
    let server = Launch::serve(tree.path()).start();
    for path in [
        "/.htaccess",
        "/.git",
        "/.git/",
        "/.git/config",
        "/%2egit/config",
        "/a/.b/c",
        "/a/.env",
        "/a/../.htaccess",
    ] {
        server.get(path).assert_status(404);
    }
    assert_eq!(server.get("/.well-known/acme/token").text(), "hidden");
}

per_engine! {
    fn absence(engine) {
        let tree = Tree::new();
        tree.folder("sub");
        let server = Launch::serve(tree.path()).engine(engine).start();
        let mut client = server.client();
        for path in ["/none", "/none/", "/none/below", "/sub/none", "/none"] {
            let answer = client.get(path);
            assert_eq!((answer.status, answer.text().as_str()), (404, "404 Not Found\n"), "{path}");
        }
    }

    fn without_permission(engine) {
        let tree = Tree::new();
        tree.file("closed.txt", "closed");
        tree.chmod("closed.txt", 0o000);
        tree.file("folder/a", "closed");
        tree.chmod("folder", 0o000);
        let server = Launch::serve(tree.path()).engine(engine).start();
        server.get("/closed.txt").assert_status(403);
        server.get("/folder/a").assert_status(403);
        server.get("/folder/").assert_status(403);
        // Or the tree could not be removed by its owner.
        tree.chmod("folder", 0o755);
    }

    fn what_is_no_file(engine) {
        let tree = Tree::new();
        tree.node("pipe", FileType::Fifo, 0);
        let _listener = std::os::unix::net::UnixListener::bind(tree.at("socket")).expect("bind");
        tree.chmod("socket", 0o666);
        let mut names = vec!["pipe", "socket"];
        if is_root() {
            tree.node("zero", FileType::CharacterDevice, makedev(1, 5));
            names.push("zero");
        }
        let server = Launch::serve(tree.path()).engine(engine).start();
        for name in names {
            let start = Instant::now();
            server.get(&format!("/{name}")).assert_status(403);
            assert!(start.elapsed() < PROMPT, "{name}: {:?}", start.elapsed());
        }
    }

    fn links_inside(engine) {
        let tree = Tree::new();
        tree.file("sub/file", "inside");
        tree.link("sub/file", "to-file");
        tree.link("sub", "to-folder");
        tree.link("../sub/file", "sub/up");
        let server = Launch::serve(tree.path()).engine(engine).start();
        for path in ["/to-file", "/to-folder/file", "/sub/up"] {
            assert_eq!(server.get(path).text(), "inside", "{path}");
        }
    }

    /// Relative to the file system, and yet beneath the root.
    fn absolute_links_inside(engine) {
        let tree = Tree::new();
        tree.file("sub/file", "inside");
        tree.link(tree.at("sub/file"), "to-file");
        tree.link(tree.at("sub"), "to-folder");
        tree.link(tree.at("to-folder/file"), "sub/twice");
        tree.link(tree.path(), "to-root");
        tree.link(tree.at("nowhere"), "dangling");
        tree.link(tree.at("round"), "round");
        tree.link(tree.at("sub/../../elsewhere"), "up");
        let server = Launch::site(tree.path(), "", "listing = true").engine(engine).start();
        for path in ["/to-file", "/to-folder/file", "/sub/twice", "/to-folder/twice", "/to-root/sub/file"] {
            // From the disk, and from the cache.
            for _ in 0..2 {
                let answer = server.get(path);
                assert_eq!((answer.status, answer.text().as_str()), (200, "inside"), "{path}");
            }
        }
        for path in ["/dangling", "/to-folder/none", "/round"] {
            server.get(path).assert_status(404);
        }
        let page = server.get("/to-root/to-folder/").text();
        assert!(page.contains("\">twice</a><td data-sort-value=\"6\">"), "{page}");
        assert!(!server.stderr().contains("leaves"), "{}", server.stderr());
        server.get("/up").assert_status(403);
        server.says("leaves");
    }

    fn links_outside(engine) {
        let (tree, other) = (Tree::new(), Tree::new());
        let outside = other.file("secret", "outside");
        tree.link(&outside, "absolute");
        tree.link(other.path(), "folder");
        let server = Launch::serve(tree.path()).engine(engine).start();
        for path in ["/absolute", "/folder/secret", "/folder/"] {
            let answer = server.get(path);
            assert_eq!((answer.status, answer.text().as_str()), (403, "403 Forbidden\n"), "{path}");
        }
        let line = server.says("symlinks = \"follow\"");
        assert!(line.contains("absolute"), "{line}");
    }

    fn links_outside_where_they_are_allowed(engine) {
        let (tree, other) = (Tree::new(), Tree::new());
        let outside = other.file("file", "outside");
        tree.link(&outside, "absolute");
        tree.link(other.path(), "folder");
        let server = Launch::site(tree.path(), "", "symlinks = \"follow\"").engine(engine).start();
        assert_eq!(server.get("/absolute").text(), "outside");
        assert_eq!(server.get("/folder/file").text(), "outside");
    }
}

#[test]
fn head_of_a_refusal() {
    let tree = Tree::new();
    let server = Launch::site(tree.path(), "", "").start();
    let mut client = server.client();
    for path in ["/none", "/", "/%"] {
        let (head, get) = (client.head(path), client.get(path));
        assert_eq!(
            (head.status, head.headers()),
            (get.status, get.headers()),
            "{path}"
        );
        assert_eq!(head.length(), Some(get.body.len()), "{path}");
    }
}

#[test]
fn links_that_lead_nowhere() {
    let tree = Tree::new();
    tree.link("loop", "loop");
    tree.link("nowhere", "dangling");
    let server = Launch::serve(tree.path()).start();
    server.get("/loop").assert_status(404);
    server.get("/dangling").assert_status(404);
}

#[test]
fn a_link_to_a_kernel_s_magic_link_is_not_followed() {
    let tree = Tree::new();
    tree.link("/proc/self/root/etc/hostname", "magic");
    let server = Launch::site(tree.path(), "", "symlinks = \"follow\"").start();
    let status = server.get("/magic").status;
    assert!(matches!(status, 403 | 404), "{status}");
}

#[test]
fn one_file_is_all_that_is_served_of_its_folder() {
    let tree = Tree::new();
    let only = tree.file("report.pdf", "only");
    tree.file("other", "other");
    let server = Launch::serve(&only).start();
    assert_eq!(server.get("/").text(), "only");
    let named = server.get("/report.pdf");
    assert_eq!(
        (named.text().as_str(), named.field("content-type")),
        ("only", "application/pdf")
    );
    for path in ["/other", "/report.pdf/", "/sub/report.pdf"] {
        server.get(path).assert_status(404);
    }
}
