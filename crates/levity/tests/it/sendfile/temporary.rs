//! Files that are sent and then removed.

use std::fs;
use std::path::Path;

use super::{App, ask, ask_with, roots};
use crate::support::multipart;
use crate::support::{Client, Server, Tree, assert_same, content, head, per_engine, wait_until};

const NAMES: [&str; 3] = [
    "X-LIGHTTPD-send-tempfile",
    "X-LIGHTTPD-send-temp-file",
    "X-Sendfile-Temporary",
];

/// More than socket buffers hold, so that a part stays with the server.
const LARGE_BYTES: usize = 16 * 1024 * 1024;

/// A folder in which every user may remove names, because the server must.
fn shared(parent: &Path) -> Tree {
    let tree = Tree::inside(parent);
    tree.chmod("", 0o777);
    tree
}

#[track_caller]
fn gone(path: &Path) {
    wait_until("the name is removed", || !path.exists());
}

fn start(app: &App, tree: &Tree, more: &str, engine: &str) -> Server {
    let keys = roots("temporary_roots", tree.path()) + more;
    app.launch(&keys, "").engine(engine).start()
}

per_engine! {
    fn removed_as_soon_as_it_is_open(engine) {
        for parent in [std::env::temp_dir(), "/dev/shm".into()] {
            let tree = shared(&parent);
            for app in App::both() {
                let server = start(&app, &tree, "", engine);
                let mut client = server.client();
                for (number, name) in NAMES.into_iter().enumerate() {
                    // The same name repeatedly.
                    let bytes = content(number as u64, 100_000 + number);
                    let path = tree.fresh("a name", &bytes);
                    let answer = ask(&mut client, &[&format!("{name}: {}", path.display())]);
                    answer.assert_status(200);
                    assert_same(&answer.body, &bytes);
                    gone(&path);
                }
                let path = tree.fresh("a%20name", "escaped");
                let escaped = path.display().to_string().replace('%', "%25");
                let answer = ask(&mut client, &[&format!("X-Sendfile-Temporary: {escaped}")]);
                assert_eq!(answer.text(), "escaped");
                gone(&path);
            }
        }
    }

    /// The part is not read together with the open, so it is read after the name may be removed.
    fn removed_before_a_part_of_it_is_read(engine) {
        for parent in [std::env::temp_dir(), "/dev/shm".into()] {
            let tree = shared(&parent);
            let bytes = content(3, 3_000_000);
            let app = App::http();
            let server = start(&app, &tree, "", engine);
            let mut client = server.client();
            let path = tree.fresh("a name", &bytes);
            let line = format!("X-Sendfile-Temporary: {}", path.display());
            let range = [("Range", "bytes=2000000-")];
            let part = ask_with(&mut client, "GET", &[&line], &range);
            part.assert_status(206);
            assert_same(&part.body, &bytes[2_000_000..]);
            gone(&path);
        }
    }

    fn removed_while_it_is_sent(engine) {
        let tree = shared(&std::env::temp_dir());
        let bytes = content(1, LARGE_BYTES);
        let path = tree.fresh("large", &bytes);
        let app = App::http();
        let server = start(&app, &tree, "", engine);
        let mut client = Client::narrow(server.address());
        let line = format!("X-Sendfile-Temporary: {}", path.display());
        client.send(head("GET", "/", &[("Accept-Say", &line)]));
        client.receive_head().expect("a head").assert_status(200);
        gone(&path);
        assert_same(&client.read_exactly(LARGE_BYTES), &bytes);
    }

    /// The client receives fewer bytes than the file has.
    #[cfg(feature = "compress")]
    fn removed_when_it_was_sent_compressed(engine) {
        let tree = shared(&std::env::temp_dir());
        let app = App::http();
        let keys = roots("temporary_roots", tree.path()) + "temporary_removal = \"sent\"";
        let server = app.launch(&keys, "compress = true").engine(engine).start();
        let mut client = server.client();
        for length in [1000, LARGE_BYTES] {
            let path = tree.fresh("large.json", vec![b' '; length]);
            let line = format!("X-Sendfile-Temporary: {}", path.display());
            let answer = ask_with(&mut client, "GET", &[&line], &[("Accept-Encoding", "gzip")]);
            assert_eq!(answer.field("content-encoding"), "gzip");
            assert!(answer.body.len() < length);
            gone(&path);
        }
    }

    fn removed_when_a_client_has_received_it(engine) {
        for parent in [std::env::temp_dir(), "/dev/shm".into()] {
            let tree = shared(&parent);
            let bytes = content(2, LARGE_BYTES);
            let path = tree.fresh("large", &bytes);
            let app = App::http();
            let server = start(&app, &tree, "temporary_removal = \"sent\"", engine);
            let line = format!("X-Sendfile-Temporary: {}", path.display());
            // Clients that disconnect, and requests with HEAD, a range or a condition.
            let mut leaving = Client::narrow(server.address());
            leaving.send(head("GET", "/", &[("Accept-Say", &line)]));
            leaving.receive_head().expect("a head").assert_status(200);
            drop(leaving);
            let mut client = server.client();
            let head = ask_with(&mut client, "HEAD", &[&line], &[]);
            head.assert_status(200);
            let part = ask_with(&mut client, "GET", &[&line], &[("Range", "bytes=0-9")]);
            assert_eq!((part.status, &part.body[..]), (206, &bytes[..10]));
            let known = [("If-None-Match", head.field("etag"))];
            ask_with(&mut client, "GET", &[&line], &known).assert_status(304);
            let whole = ask(&mut client, &[&line]);
            assert_same(&whole.body, &bytes);
            gone(&path);
            ask(&mut client, &[&line]).assert_status(404);
        }
    }
}

/// The server removes only files that it would send.
#[test]
fn nothing_else_is_removed() {
    let (tree, outside) = (shared(&std::env::temp_dir()), shared(&std::env::temp_dir()));
    let precious = outside.file("precious", "precious");
    let inside = tree.file("inside", "precious");
    tree.link(&precious, "out");
    tree.link("inside", "in");
    tree.link(outside.path(), "folder-out");
    tree.link(".", "folder-in");
    tree.folder("folder");
    for app in App::both() {
        let server = start(&app, &tree, "", "threads");
        let mut client = server.client();
        let root = tree.path().display();
        for path in [
            format!("{root}/out"),
            format!("{root}/in"),
            format!("{root}/folder-out/precious"),
            format!("{root}/folder-in/inside"),
            format!("{root}/folder"),
            format!("{}", precious.display()),
            format!("{root}/../{}", precious.display()),
        ] {
            let answer = ask(&mut client, &[&format!("X-Sendfile-Temporary: {path}")]);
            assert_eq!(answer.status, 502, "{path}");
            server.says(&format!("X-Sendfile-Temporary: {path}: "));
        }
        ask(
            &mut client,
            &[&format!("X-Sendfile-Temporary: {root}/absent")],
        )
        .assert_status(404);
    }
    for file in [&precious, &inside] {
        assert_eq!(fs::read(file).expect("still there"), b"precious");
    }
    assert!(tree.at("folder").exists() && tree.at("in").exists());
}

/// Files of `sendfile_roots` are not temporary.
#[test]
fn roots_are_of_one_kind() {
    let tree = shared(&std::env::temp_dir());
    let path = tree.file("file", "content");
    let app = App::http();
    let server = app
        .launch(&roots("sendfile_roots", tree.path()), "")
        .start();
    let mut client = server.client();
    ask(
        &mut client,
        &[&format!("X-Sendfile-Temporary: {}", path.display())],
    )
    .assert_status(502);
    assert_eq!(
        ask(&mut client, &[&format!("X-Sendfile: {}", path.display())]).text(),
        "content"
    );
    assert!(path.exists());
}

#[test]
fn a_file_that_cannot_be_removed_is_logged() {
    if !crate::support::is_root() {
        return;
    }
    for parent in [std::env::temp_dir(), "/dev/shm".into()] {
        let tree = Tree::inside(&parent);
        let path = tree.file("file", "content");
        let app = App::http();
        let server = start(&app, &tree, "", "threads");
        let mut client = server.client();
        let answer = ask(
            &mut client,
            &[&format!("X-Sendfile-Temporary: {}", path.display())],
        );
        assert_eq!(answer.text(), "content");
        let said = server.says("cannot remove");
        assert!(said.contains("Permission denied"), "{said}");
    }
}

/// Two clients, one name: both get the content, or one finds nothing; never anything else.
#[test]
fn two_requests_for_one_name() {
    let tree = shared(Path::new("/dev/shm"));
    let app = App::http();
    let server = start(&app, &tree, "", "threads");
    for round in 0..50 {
        let bytes = content(round, 50_000);
        let path = tree.fresh("name", &bytes);
        let line = format!("X-Sendfile-Temporary: {}", path.display());
        let mut clients = [server.client(), server.client()];
        for client in &mut clients {
            client.send(head("GET", "/", &[("Accept-Say", &line)]));
        }
        let answers = clients.each_mut().map(Client::receive);
        for answer in &answers {
            match answer.status {
                200 => assert_same(&answer.body, &bytes),
                status => assert_eq!(status, 404),
            }
        }
        assert!(answers.iter().any(|answer| answer.status == 200));
        gone(&path);
    }
}

/// The answer has as many bytes as the file, but not all of the file.
#[test]
fn not_removed_when_parts_were_sent() {
    let tree = shared(&std::env::temp_dir());
    let bytes = content(2, 1000);
    let path = tree.fresh("small", &bytes);
    let app = App::http();
    let keys = roots("temporary_roots", tree.path()) + "temporary_removal = \"sent\"";
    let long = "x".repeat(200);
    let route = format!(
        "[[site.route]]\npath = \"/*\"\nheaders = {{ set = {{ Content-Type = \"text/{long}\" }} }}\n"
    );
    let server = app.launch(&keys, &route).start();
    let line = format!("X-Sendfile-Temporary: {}", path.display());
    let mut client = server.client();
    let parts = [("Range", "bytes=0-199,300-499,600-799")];
    let answer = ask_with(&mut client, "GET", &[&line], &parts);
    assert_eq!(multipart::parts(&answer).len(), 3);
    assert!(answer.body.len() > bytes.len());
    // It would be removed before the answer to this.
    assert_eq!(ask(&mut client, &["Content-Length: 0"]).status, 200);
    assert_same(&fs::read(&path).expect("it is still there"), &bytes);
    assert_same(&ask(&mut client, &[&line]).body, &bytes);
    gone(&path);
}
