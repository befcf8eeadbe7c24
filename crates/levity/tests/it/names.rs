//! From the path of a request to a name on disk, and back.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::support::{Launch, Tree, per_engine};

/// Names that some program somewhere gets wrong.
pub const ODD_NAMES: [&[u8]; 18] = [
    b"plain",
    b"a b",
    b"a#b",
    b"a?b",
    b"a%b",
    b"%41",
    b"a+b",
    b"a&b;c=d",
    b"a\"b'c",
    b"<a>",
    b"a:b",
    b"http:",
    b"a\\b",
    b"caf\xc3\xa9",
    b"\xff\xfe",
    b"line\nbreak",
    b"a..",
    b"-",
];

/// Writes a file for each odd name, its content being the name.
pub fn odd_files(tree: &Tree, folder: &str) {
    for name in ODD_NAMES {
        tree.file(tree.at(folder).join(OsStr::from_bytes(name)), name);
    }
}

/// Every byte as an escape.
fn escaped(name: &[u8]) -> String {
    name.iter().map(|byte| format!("%{byte:02X}")).collect()
}

per_engine! {
    fn odd_names_are_found(engine) {
        let tree = Tree::new();
        odd_files(&tree, "");
        let server = Launch::serve(tree.path()).engine(engine).start();
        let mut client = server.client();
        for name in ODD_NAMES {
            let answer = client.get(&format!("/{}", escaped(name)));
            assert_eq!((answer.status, &answer.body[..]), (200, name), "{}", name.escape_ascii());
        }
    }
}

#[test]
fn bytes_that_need_no_escape() {
    let tree = Tree::new();
    odd_files(&tree, "");
    let server = Launch::serve(tree.path()).start();
    for name in [
        &b"a+b"[..],
        b"a&b;c=d",
        b"a\"b'c",
        b"<a>",
        b"a:b",
        b"a\\b",
        b"\xff\xfe",
    ] {
        let mut client = server.client();
        client.send([b"GET /", name, b" HTTP/1.1\r\nHost: localhost\r\n\r\n"].concat());
        assert_eq!(client.receive().body, name, "{}", name.escape_ascii());
    }
}

#[test]
fn escapes_are_decoded_once() {
    let tree = Tree::new();
    tree.file("%41", "escaped");
    tree.file("A", "twice");
    let server = Launch::serve(tree.path()).start();
    assert_eq!(server.get("/%2541").text(), "escaped");
    assert_eq!(server.get("/%41").text(), "twice");
}

#[test]
fn a_query_is_not_part_of_the_name() {
    let tree = Tree::new();
    tree.file("a", "found");
    let server = Launch::serve(tree.path()).start();
    assert_eq!(server.get("/a?b=c/../d?e").text(), "found");
}

#[test]
fn a_folder_without_its_slash_is_redirected() {
    let tree = Tree::new();
    tree.folder("sub");
    tree.folder("a b\"c");
    tree.folder("sub/\\evil.example");
    let server = Launch::serve(tree.path()).start();
    for (path, location) in [
        ("/sub", "/sub/"),
        ("/sub?a=1&b=%2F", "/sub/?a=1&b=%2F"),
        ("/sub?", "/sub/?"),
        ("/sub?\u{fc}=%fc", "/sub/?%C3%BC=%fc"),
        ("//sub", "/sub/"),
        ("///sub/.//../sub", "/sub/"),
        ("/%73ub", "/sub/"),
        ("/a%20b%22c", "/a%20b%22c/"),
        ("/sub/%5Cevil.example", "/sub/%5Cevil.example/"),
    ] {
        let answer = server.get(path);
        assert_eq!(
            (answer.status, answer.field("location")),
            (301, location),
            "{path}"
        );
    }
}

/// `//host` in a Location would lead to another server.
#[test]
fn a_redirect_never_names_a_host() {
    let tree = Tree::new();
    tree.folder("evil.example/sub");
    let server = Launch::serve(tree.path()).start();
    for path in [
        "//evil.example",
        "//evil.example/sub",
        "/./%2e//evil.example",
        "/a/..//evil.example",
    ] {
        let answer = server.get(path);
        answer.assert_status(301);
        let location = answer.field("location");
        assert!(location.starts_with("/evil.example/"), "{path}: {location}");
    }
}

#[test]
fn traversal_is_refused() {
    let outer = Tree::new();
    outer.file("secret", "secret");
    outer.file("root/open", "open");
    let server = Launch::serve(&outer.at("root")).start();
    for path in [
        "/../secret",
        "/%2e%2e/secret",
        "/%2E./secret",
        "/open/../../secret",
        "/./../secret",
        "//../secret",
        "/..%2fsecret",
        "/..%5csecret",
        "/%252e%252e/secret",
        "/....//secret",
        "/..;/secret",
        "/open%00",
        "/%",
        "/%zz",
        "/a%2fb",
        "/%c0%ae%c0%ae/secret",
    ] {
        let answer = server.get(path);
        assert!(matches!(answer.status, 400 | 404), "{path}: {answer:?}");
        assert!(
            !answer.text().contains("secret\n") && answer.text() != "secret",
            "{path}"
        );
    }
    assert_eq!(server.get("/a/../open").text(), "open");
}

#[test]
fn names_of_a_kernel_s_length() {
    let tree = Tree::new();
    let longest = "n".repeat(255);
    tree.file(&longest, "longest");
    let server = Launch::serve(tree.path()).start();
    assert_eq!(server.get(&format!("/{longest}")).text(), "longest");
    server.get(&format!("/{longest}n")).assert_status(404);
    server.get(&"/long".repeat(1000)).assert_status(404);
}
