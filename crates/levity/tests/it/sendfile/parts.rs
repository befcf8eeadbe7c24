//! X-Sendfile2: parts of files, one after the other.

use std::fs;
use std::path::PathBuf;

use super::{App, ask, ask_with, launch, roots, upstream};
use crate::support::scripted::Scripted;
use crate::support::{Client, Cut, Tree, assert_same, head, per_engine, wait_until};

per_engine! {
    fn parts_are_sent_in_order(engine) {
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
            // They have no validators: ranges and conditions are ignored.
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

/// Otherwise sixteen slow clients with this many parts would use up all descriptors.
#[test]
fn slow_clients_keep_one_file_open_each() {
    const CLIENTS: usize = 16;
    const PARTS: usize = 64;
    let tree = Tree::new();
    // The first is more than socket buffers hold.
    let mut expected = tree.filled("0", 8_000_001);
    let mut value = format!("X-Sendfile2: {}/0 0-", tree.path().display());
    for part in 1..PARTS {
        expected.extend(tree.filled(&part.to_string(), 10_000 + part));
        value += &format!(", {}/{part} 0-", tree.path().display());
    }
    let app = Scripted::tcp(move |conn| {
        while conn.read_request().is_some() {
            conn.send(format!(
                "HTTP/1.1 200 OK\r\n{value}\r\nContent-Length: 0\r\n\r\n"
            ));
        }
    });
    let tables = upstream("app", "http", &app, &roots("sendfile_roots", tree.path()));
    let server = launch(&tables, "").workers(1).descriptors_max(256).start();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = Client::narrow(server.address());
            client.send(head("GET", "/", &[]));
            let answer = client.receive_head().expect("a head");
            assert_eq!(
                (answer.status, answer.length()),
                (200, Some(expected.len()))
            );
            client
        })
        .collect();
    // A read past the page cache has a descriptor of its own.
    let is_first =
        |descriptor: &PathBuf| fs::read_link(descriptor).is_ok_and(|file| file == tree.at("0"));
    wait_until("only what is being sent is open", || {
        let open = server.open_files(tree.path());
        open.len() <= 2 * CLIENTS && open.iter().all(is_first)
    });
    for mut client in clients {
        assert_same(&client.read_exactly(expected.len()), &expected);
    }
    wait_until("all are closed", || {
        server.open_files(tree.path()).is_empty()
    });
}

/// The bytes of the new file are not sent, nor those of later parts.
#[test]
fn a_part_that_is_replaced_before_its_turn() {
    for replaced in [true, false] {
        let tree = Tree::new();
        let first = tree.filled("first", 8_000_001);
        tree.file("second", "0123456789");
        let folder = tree.path().display().to_string();
        let value = format!("X-Sendfile2: {folder}/first 0-, {folder}/second 0-4");
        let app = App::http();
        let server = app
            .launch(&roots("sendfile_roots", tree.path()), "")
            .start();
        let mut client = Client::narrow(server.address());
        client.send(head("GET", "/", &[("Accept-Say", &value)]));
        let answer = client.receive_head().expect("a head");
        assert_eq!(answer.length(), Some(first.len() + 5));
        match replaced {
            true => fs::rename(tree.file("new", "0123456789"), tree.at("second")).expect("rename"),
            false => drop(tree.fresh("second", "abcdefghij")),
        }
        let cut = client.read_to_end();
        assert!(matches!(cut, Cut::Closed(_)), "{cut:?}");
        assert_same(&cut.body(), &first);
        server.says("cannot read /: it was rewritten while it was sent");
    }
}

#[test]
fn missing_parts() {
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
fn empty_parts() {
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
