//! Digests of files (RFC 9530).

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{
    Answer, Launch, Server, Tree, assert_same, content, encoded, multipart, per_engine, settle,
    wait_until, wait_within,
};

/// Kept in memory, and read from the file.
const SIZES: [usize; 3] = [0, 20_000, 3_000_000];

/// How long idle work may take while other tests use all processors.
const IDLE_WAIT_MAX: Duration = Duration::from_secs(120);

const WANTED: (&str, &str) = ("Want-Repr-Digest", "sha-256=1");

fn site(tree: &Tree, engine: &str, keys: &str) -> Server {
    settle();
    Launch::site(tree.path(), "", &format!("digest = true\n{keys}"))
        .engine(engine)
        .start()
}

/// The value of a header with the digest of `bytes`, from OpenSSL.
fn digest(algorithm: &str, bytes: &[u8]) -> String {
    let script = format!(
        "openssl dgst -{} -binary | base64 --wrap=0",
        algorithm.replace('-', "")
    );
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh");
    let mut to = child.stdin.take().expect("stdin");
    to.write_all(bytes).expect("write");
    drop(to);
    let output = child.wait_with_output().expect("openssl");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        !text.is_empty(),
        "no openssl: run `cargo xtask test`, which installs it"
    );
    format!("{algorithm}=:{text}:")
}

fn want(server: &Server, path: &str, headers: &[(&str, &str)]) -> Answer {
    server.get_with(path, headers)
}

/// Requests the file until the answer has a digest.
#[track_caller]
fn known(server: &Server, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut found = None;
    wait_within(IDLE_WAIT_MAX, "the digest is known", || {
        let answer = want(server, path, headers);
        let has = answer.header("repr-digest").is_some();
        found = has.then_some(answer);
        has
    });
    found.expect("an answer")
}

per_engine! {
    fn of_a_file(engine) {
        let tree = Tree::new();
        for size in SIZES {
            tree.filled(&size.to_string(), size);
            tree.evict(size.to_string());
        }
        let server = site(&tree, engine, "");
        for size in SIZES {
            let (path, bytes) = (format!("/{size}"), content(size as u64, size));
            for (wanted, algorithm) in [
                ("sha-256=1", "sha-256"),
                ("sha-512=10, sha-256=3", "sha-512"),
            ] {
                let answer = known(&server, &path, &[("Want-Repr-Digest", wanted)]);
                answer.assert_status(200);
                assert_same(&answer.body, &bytes);
                assert_eq!(answer.field("repr-digest"), digest(algorithm, &bytes));
                assert_eq!(answer.header("content-digest"), None);
            }
        }
    }

    /// Another content has another digest, whatever the file is called and however it was changed.
    fn of_a_changed_file(engine) {
        let tree = Tree::new();
        let server = site(&tree, engine, "");
        for number in 0..6 {
            let bytes = content(number, 300_000);
            match number % 2 {
                0 => drop(tree.file("file", &bytes)),
                _ => fs::rename(tree.file("other", &bytes), tree.at("file")).expect("rename"),
            }
            settle();
            let expected = digest("sha-256", &bytes);
            let is_right = || {
                let answer = known(&server, "/file", &[WANTED]);
                let is_new = answer.body == bytes;
                assert_eq!(answer.field("repr-digest"), digest("sha-256", &answer.body));
                assert_eq!(is_new, answer.field("repr-digest") == expected);
                is_new
            };
            wait_until("the change is seen", is_right);
        }
    }
}

#[test]
fn content_in_memory_has_one_at_once() {
    let tree = Tree::new();
    let bytes = tree.filled("file", 60_000);
    let server = site(&tree, "auto", "");
    // It is read into memory.
    wait_until("it is settled", || {
        server.get("/file").field("etag").starts_with('"')
    });
    let answer = want(&server, "/file", &[WANTED]);
    assert_eq!(answer.field("repr-digest"), digest("sha-256", &bytes));
    let answer = want(&server, "/file", &[("Want-Repr-Digest", "sha-512=1")]);
    assert_eq!(answer.field("repr-digest"), digest("sha-512", &bytes));
}

/// The response does not wait for the disk.
#[test]
fn a_file_has_one_later() {
    let tree = Tree::new();
    let bytes = tree.filled("file", 3_000_000);
    tree.evict("file");
    let server = site(&tree, "auto", "");
    let first = want(&server, "/file", &[WANTED]);
    assert_eq!((first.status, first.header("repr-digest")), (200, None));
    let later = known(&server, "/file", &[WANTED]);
    assert_eq!(later.field("repr-digest"), digest("sha-256", &bytes));
    // Not for clients that do not ask.
    for headers in [
        &[][..],
        &[("Want-Repr-Digest", "sha-256=0")],
        &[("Want-Repr-Digest", "md5=1")],
    ] {
        assert_eq!(want(&server, "/file", headers).header("repr-digest"), None);
    }
}

#[test]
fn of_all_content_also_with_a_part() {
    let tree = Tree::new();
    let bytes = tree.filled("file", 200_000);
    let server = site(&tree, "auto", "");
    known(&server, "/file", &[WANTED]);
    let expected = digest("sha-256", &bytes);
    let both = [WANTED, ("Want-Content-Digest", "sha-256=1")];
    let whole = want(&server, "/file", &both);
    assert_eq!(
        (whole.field("repr-digest"), whole.field("content-digest")),
        (&*expected, &*expected)
    );
    let part = want(
        &server,
        "/file",
        &[&both[..], &[("Range", "bytes=5-9")]].concat(),
    );
    assert_eq!((part.status, part.field("repr-digest")), (206, &*expected));
    assert_eq!(part.header("content-digest"), None);
    let parts = want(
        &server,
        "/file",
        &[&both[..], &[("Range", "bytes=5-9,500-")]].concat(),
    );
    assert_eq!(
        (multipart::parts(&parts).len(), parts.field("repr-digest")),
        (2, &*expected)
    );
    let head = server.client().request("HEAD", "/file", &both);
    assert_eq!((head.status, head.field("repr-digest")), (200, &*expected));
    assert_eq!(head.header("content-digest"), None);
    let etag = whole.field("etag");
    for (condition, status) in [(("If-None-Match", etag), 304), (("If-Match", "\"a\""), 412)] {
        let answer = want(&server, "/file", &[WANTED, condition]);
        assert_eq!(
            (answer.status, answer.header("repr-digest")),
            (status, None)
        );
    }
    let missing = want(&server, "/missing", &[WANTED]);
    assert_eq!((missing.status, missing.header("repr-digest")), (404, None));
}

/// The digest is that of the bytes with their coding. What is compressed on its way has none.
#[cfg(feature = "compress")]
#[test]
fn of_content_with_a_coding() {
    let tree = Tree::new();
    let text = "One line of text.\n".repeat(1000);
    let coded = encoded("gzip", text.as_bytes());
    tree.file("kept.txt", &text);
    tree.file("kept.txt.gz", &coded);
    tree.file("other.txt", &text);
    let server = site(&tree, "auto", "compress = true\nprecompressed = [\"gzip\"]");
    let gzip = ("Accept-Encoding", "gzip");
    let kept = known(&server, "/kept.txt", &[WANTED, gzip]);
    assert_eq!(kept.field("content-encoding"), "gzip");
    assert_eq!(kept.field("repr-digest"), digest("sha-256", &coded));
    for path in ["/kept.txt", "/other.txt"] {
        let plain = known(&server, path, &[WANTED]);
        assert_eq!(plain.header("content-encoding"), None);
        assert_eq!(
            plain.field("repr-digest"),
            digest("sha-256", text.as_bytes())
        );
    }
    let on_the_way = want(&server, "/other.txt", &[WANTED, gzip]);
    assert_eq!(on_the_way.field("content-encoding"), "gzip");
    assert_eq!(on_the_way.header("repr-digest"), None);
}

#[test]
fn not_of_replaced_text() {
    let tree = Tree::new();
    tree.file("page.html", "a b");
    let server = site(&tree, "auto", "substitute = { \"a\" = \"c\" }");
    let both = [WANTED, ("Want-Content-Digest", "sha-256=1")];
    for _ in 0..2 {
        let answer = want(&server, "/page.html", &both);
        assert_eq!(answer.text(), "c b");
        assert_eq!(
            answer
                .header("repr-digest")
                .or(answer.header("content-digest")),
            None
        );
    }
}

#[test]
fn off_unless_asked_for() {
    let tree = Tree::new();
    tree.filled("file", 20_000);
    tree.filled("large", 20_001);
    settle();
    let keys = "digest = false\n[[site.route]]\npath = \"/large\"\ndigest = true\n";
    let tables = "[limits]\ndigest_bytes = \"20000B\"\n";
    let server = Launch::site(tree.path(), tables, keys).start();
    for path in ["/file", "/large"] {
        wait_until("it is settled", || {
            server.get(path).field("etag").starts_with('"')
        });
        assert_eq!(want(&server, path, &[WANTED]).header("repr-digest"), None);
    }
    server.reload(&["20000B"], &["20001B"]);
    let answer = known(&server, "/large", &[WANTED]);
    assert_eq!(
        answer.field("repr-digest"),
        digest("sha-256", &content(20_001, 20_001))
    );
    assert_eq!(
        want(&server, "/file", &[WANTED]).header("repr-digest"),
        None
    );
}
