//! Folders as one file.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::clients::run;
use crate::support::{Client, Cut, Launch, Tree, per_engine};

const KEYS: &str = "listing = true\nlisting_archive = [\"tar\", \"zip\"]\n";

const TIME_MAX: Duration = Duration::from_secs(60);

/// Unpacks `archive` in a folder of its own, by a program that reads it from a file.
#[track_caller]
fn unpacked(archive: &[u8], program: &[&str]) -> Tree {
    let tree = Tree::new();
    tree.file("archive", archive);
    let output = run(TIME_MAX, program[0], &program[1..], tree.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.is_empty(),
        "{program:?}: {said}"
    );
    fs::remove_file(tree.at("archive")).expect("removed");
    tree
}

/// The programs that unpack a form.
const PROGRAMS: [(&str, &[&[&str]]); 2] = [
    (
        "tar",
        &[&["tar", "-xf", "archive"], &["bsdtar", "-xf", "archive"]],
    ),
    (
        "zip",
        &[
            &["unzip", "-q", "archive"],
            &["bsdtar", "-xf", "archive"],
            &["python3", "-m", "zipfile", "-e", "archive", "."],
        ],
    ),
];

/// Expects two folders to have the same files, by `diff`.
#[track_caller]
fn assert_same_files(a: &Path, b: &Path) {
    let [a, b] = [a, b].map(|path| path.to_str().expect("a path in UTF-8"));
    let output = run(TIME_MAX, "diff", &["-r", a, b], Path::new("/"));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
}

per_engine! {
    fn programs_unpack_a_folder(engine) {
        let tree = Tree::new();
        tree.filled("top/large", 700_000);
        tree.file("top/a/b/c/caf\u{e9} & x", "deep");
        tree.file("top/empty", "");
        tree.folder("top/empty folder");
        tree.file(format!("top/{}/{}", "long/".repeat(40), "name".repeat(30)), "long");
        for number in 0..1500 {
            tree.file(format!("top/many/{number}"), format!("{number}"));
        }
        let server = Launch::site(tree.path(), "", KEYS).engine(engine).start();
        for (form, programs) in PROGRAMS {
            let archive = server.get(&format!("/top/?archive={form}"));
            archive.assert_status(200);
            assert!(archive.is_chunked());
            let name = format!("attachment; filename=\"top.{form}\"; filename*=UTF-8''top.{form}");
            assert_eq!(archive.field("content-disposition"), name);
            for program in programs {
                let unpacked = unpacked(&archive.body, program);
                assert_same_files(tree.path(), unpacked.path());
            }
        }
    }
}

per_engine! {
    /// As a request for it would be refused. The rest is there.
    fn what_cannot_be_opened_is_left_out(engine) {
        let tree = Tree::new();
        for name in ["a", "closed", "dir/closed", "shut/x", "z/b"] {
            tree.file(format!("top/{name}"), name);
        }
        for name in ["closed", "dir/closed", "shut"] {
            tree.chmod(&format!("top/{name}"), 0o000);
        }
        let server = Launch::site(tree.path(), "", KEYS).engine(engine).start();
        for (form, programs) in PROGRAMS {
            let archive = server.get(&format!("/top/?archive={form}"));
            let unpacked = unpacked(&archive.body, programs[0]);
            let find = run(TIME_MAX, "find", &["top"], unpacked.path()).stdout;
            let mut found: Vec<_> = std::str::from_utf8(&find).expect("UTF-8").lines().collect();
            found.sort_unstable();
            assert_eq!(found, ["top", "top/a", "top/dir", "top/z", "top/z/b"]);
            let line = server.says("left out of the archive of /top/: /top/");
            assert!(line.ends_with("Permission denied (os error 13); others: 2"), "{line}");
        }
        // Or the tree could not be removed by its owner.
        tree.chmod("top/shut", 0o755);
    }
}

/// What a request would not get is in no archive.
#[test]
fn only_what_requests_would_get() {
    let tree = Tree::new();
    for name in [
        "file",
        ".hidden",
        "x.bak",
        "dir/.git/config",
        "dir/page.php",
        "dir/y",
        "other/z",
    ] {
        tree.file(format!("top/{name}"), name);
    }
    tree.link("../file", "top/dir/link");
    tree.link("..", "top/dir/circle");
    tree.link("/etc/passwd", "top/dir/outside");
    tree.link("nowhere", "top/dir/dangling");
    let keys = format!(
        "{KEYS}hide = [\"*.bak\"]\n[[site.route]]\npath = \"/top/other/*\"\nlisting = false\n\
         [[site.route]]\npath = \"/top/dir/y\"\nredirect = {{ to = \"/\" }}\n"
    );
    let server = Launch::site(tree.path(), "", &keys).start();
    for (form, programs) in PROGRAMS {
        let archive = server.get(&format!("/top/?archive={form}"));
        let unpacked = unpacked(&archive.body, programs[0]);
        let find = run(TIME_MAX, "find", &["top"], unpacked.path()).stdout;
        let mut found: Vec<_> = std::str::from_utf8(&find).expect("UTF-8").lines().collect();
        found.sort_unstable();
        // The route of a folder begins behind its slash, so its name is in the archive, and nothing in it.
        let expected = [
            "top",
            "top/dir",
            "top/dir/link",
            "top/dir/page.php",
            "top/file",
        ];
        assert_eq!(found, expected);
        assert_eq!(
            fs::read(unpacked.at("top/dir/link")).expect("a file"),
            b"file"
        );
    }
    server.get("/top/other/?archive=tar").assert_status(403);
}

#[test]
fn off_unless_asked_for() {
    let tree = Tree::new();
    tree.file("d/x", "x");
    let server = Launch::site(tree.path(), "", "listing = true").start();
    let page = server.get("/d/?archive=tar");
    assert_eq!(page.field("content-type"), "text/html; charset=utf-8");
    assert!(!page.text().contains("<form>"));
    let keys = "listing = true\nlisting_archive = [\"tar\"]\n";
    let server = Launch::site(tree.path(), "", keys).start();
    let mut client = server.client();
    client.get("/d/?archive=zip").assert_status(400);
    client.get("/d/?archive=").assert_status(400);
    let get = client.get("/d/?x=1&archive=tar");
    assert_eq!(get.field("content-type"), "application/x-tar");
    assert_eq!(
        client.request("HEAD", "/d/?archive=tar", &[]).headers(),
        get.headers()
    );
    let root = client.get("/?archive=tar");
    assert!(root.field("content-disposition").ends_with("''files.tar"));
    assert!(root.body.starts_with(b"files/\0"));
    tree.folder("a;b'\u{e9}\"");
    let odd = client.get("/a;b'%c3%a9%22/?archive=tar");
    let name = "attachment; filename*=UTF-8''a%3Bb%27%C3%A9%22.tar";
    assert_eq!(odd.field("content-disposition"), name);
    // A button, as programs follow links.
    let page = client.get("/d/").text();
    assert!(
        page.contains("<button name=\"archive\" value=\"tar\">tar</button></form>"),
        "{page}"
    );
    assert!(
        !page.contains("archive=") && !page.contains("zip</button>"),
        "{page}"
    );
}

/// The client must not take it for complete.
#[test]
fn an_archive_that_fails_is_cut_short() {
    for form in ["tar", "zip"] {
        let tree = Tree::new();
        tree.filled("d/large", 50_000_000);
        let server = Launch::site(tree.path(), "", KEYS).start();
        let mut client = Client::narrow(server.address());
        client.send(format!(
            "GET /d/?archive={form} HTTP/1.1\r\nHost: a\r\n\r\n"
        ));
        // The file has been opened.
        client.read_through(b"d/large");
        fs::write(tree.at("d/large"), "short").expect("written");
        let cut = client.read_to_end();
        assert!(matches!(cut, Cut::Closed(_)));
        let body = cut.body();
        assert!(
            body.len() < 50_000_000 && !body.ends_with(b"0\r\n\r\n"),
            "{}",
            body.len()
        );
        server.says("/d/large: ");
        // The server goes on.
        server.get("/d/").assert_status(200);
    }
}

#[test]
fn a_file_that_grows_is_as_long_as_at_its_start() {
    let tree = Tree::new();
    let content = tree.filled("d/log", 20_000_000);
    let server = Launch::site(tree.path(), "", KEYS).start();
    let mut client = Client::narrow(server.address());
    client.send("GET /d/?archive=tar HTTP/1.0\r\nHost: a\r\n\r\n");
    // The headers of the folder and of the file.
    client.read_through(b"ustar\x0000");
    client.read_through(b"ustar\x0000");
    let file = fs::OpenOptions::new().append(true).open(tree.at("d/log"));
    file.expect("a file")
        .write_all(&[b'x'; 100_000])
        .expect("written");
    let archive = client.read_to_end().body();
    // The rest of the header, the content as it was, and two blocks at the end.
    let header = 512 - 265;
    assert_eq!(
        archive.len(),
        header + (20_000_000_usize.div_ceil(512) + 2) * 512
    );
    assert!(archive[header..].starts_with(&content));
}

#[test]
#[ignore = "slow: reads 9 GB from holes"]
fn files_of_more_than_four_gigabytes() {
    let tree = Tree::new();
    tree.folder("d");
    tree.sparse(
        "d/large",
        4_400_000_000,
        &[(4_300_000_000, b"near the end")],
    );
    tree.file("d/small", "x");
    let server = Launch::site(tree.path(), "", KEYS).start();
    let to = Tree::new();
    let url = format!("http://{}/d/?archive=", server.address());
    for (form, program) in [
        ("tar", &["tar", "-xf", "a"][..]),
        ("zip", &["unzip", "-q", "a"]),
    ] {
        let limit = Duration::from_secs(300);
        let get = ["-sSf", "--noproxy", "*", "-o", "a", &format!("{url}{form}")];
        assert!(run(limit, "curl", &get, to.path()).status.success());
        let output = run(limit, program[0], &program[1..], to.path());
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let compared = run(
            limit,
            "cmp",
            &["d/large", tree.at("d/large").to_str().expect("UTF-8")],
            to.path(),
        );
        assert!(compared.status.success());
        fs::remove_dir_all(to.at("d")).expect("removed");
    }
}
