//! Parts of files, one behind the other: X-Sendfile2.

use super::{App, ask, ask_with, roots};
use crate::support::{Tree, assert_same, per_engine};

per_engine! {
    fn parts_in_their_order(engine) {
        let tree = Tree::new();
        let (one, two) = (tree.filled("one", 700_001), tree.filled("a two,", 300_007));
        let folder = tree.path().display();
        let value = format!(
            "{folder}/a%20two, 5-100004,{folder}/one 0-,  {folder}/one 700000-700000, {folder}/a%20two, 0-0"
        );
        let expected = [&two[5..100_005], &one, &one[700_000..], &two[..1]].concat();
        for app in App::both() {
            let server = app.launch(&roots("sendfile_roots", tree.path()), "").engine(engine).start();
            let mut client = server.client();
            let line = format!("X-Sendfile2: {value}");
            // They have no version: a range of them is not given, and conditions are not looked at.
            let more = [("Range", "bytes=0-9"), ("If-None-Match", "*")];
            let answer = ask_with(&mut client, "GET", &[&line], &more);
            assert_eq!((answer.status, answer.length()), (200, Some(expected.len())));
            assert_same(&answer.body, &expected);
            assert_eq!(answer.header("etag"), None);
            let head = ask_with(&mut client, "HEAD", &[&line], &[]);
            assert_eq!((head.status, head.length()), (200, Some(expected.len())));
        }
    }
}

#[test]
fn parts_that_are_not_there() {
    let tree = Tree::new();
    let (file, empty) = (tree.file("file", "0123456789"), tree.file("empty", ""));
    let (file, empty) = (file.display(), empty.display());
    let app = App::http();
    let server = app
        .launch(&roots("sendfile_roots", tree.path()), "")
        .start();
    let mut client = server.client();
    for (value, status, said) in [
        (
            format!("{file} 0-10"),
            502,
            "the part ends behind the file, which has 10 bytes",
        ),
        (
            format!("{file} 0-9,{file} 11-"),
            502,
            "the part ends behind the file",
        ),
        (
            format!("{file} 0-18446744073709551615"),
            502,
            "the part ends behind the file",
        ),
        (
            format!("{file} 0-18446744073709551616"),
            502,
            "bad range of a file",
        ),
        (
            format!("{empty} 0-0"),
            502,
            "the part ends behind the file, which has 0 bytes",
        ),
        (format!("{file} 5-4"), 502, "bad range of a file"),
        (format!("{file} -4"), 502, "bad range of a file"),
        (format!("{file}"), 502, "bad range of a file"),
        (
            format!("{file} 0-1, /etc/passwd 0-"),
            502,
            "not beneath any of `sendfile_roots`",
        ),
        (format!("{file} 0-1, {file}x 0-"), 404, "No such file"),
        (
            format!("{file} 0-1, {} 0-", tree.path().join("x/..").display()),
            502,
            "not beneath any",
        ),
    ] {
        let answer = ask(&mut client, &[&format!("X-Sendfile2: {value}")]);
        assert_eq!(answer.status, status, "{value}");
        let line = server.says(&format!("X-Sendfile2: {value}: "));
        assert!(line.contains(said), "{line}");
    }
}

#[test]
fn parts_without_bytes() {
    let tree = Tree::new();
    let (file, empty) = (tree.file("file", "0123456789"), tree.file("empty", ""));
    let (file, empty) = (file.display(), empty.display());
    let app = App::http();
    let server = app
        .launch(&roots("sendfile_roots", tree.path()), "")
        .start();
    let mut client = server.client();
    for (value, body) in [
        (format!("{empty} 0-"), ""),
        (format!("{file} 10-"), ""),
        (
            format!("{empty} 0-, {file} 3-4, {empty} 0-, {file} 10-"),
            "34",
        ),
    ] {
        let lines = [
            &format!("X-Sendfile2: {value}")[..],
            "Content-Type: text/x-parts",
        ];
        let answer = ask(&mut client, &lines);
        assert_eq!(
            (answer.status, answer.text()),
            (200, body.into()),
            "{value}"
        );
        assert_eq!(answer.field("content-type"), "text/x-parts");
    }
}
