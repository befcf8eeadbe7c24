//! Preloaded content: files for the next requests of the same client.

use std::path::Path;

use super::{App, ask_with, roots};
use crate::support::{Answer, Client, Server, Tree, assert_same, content, per_engine, wait_until};

const COOKIE: (&str, &str) = ("Cookie", "session=1");

/// A folder in memory whose names the server may remove.
fn shared() -> Tree {
    let tree = Tree::inside(Path::new("/dev/shm"));
    tree.chmod("", 0o777);
    tree
}

fn start(app: &App, tree: &Tree, engine: &str, workers: usize) -> Server {
    app.launch(&roots("temporary_roots", tree.path()), "")
        .engine(engine)
        .workers(workers)
        .start()
}

/// Lets the application preload a file for `target`, and waits until its name has been removed.
#[track_caller]
fn make(
    client: &mut Client,
    tree: &Tree,
    target: &str,
    bytes: &[u8],
    tail: &str,
    who: &[(&str, &str)],
) {
    let path = tree.fresh("preloaded 1.json", bytes);
    let escaped = path.display().to_string().replace(' ', "%20");
    let line = format!("X-Sendfile-Preload: {target} {escaped} {tail}");
    let answer = ask_with(client, "GET", &[&line], who);
    assert_eq!(answer.text(), "body");
    wait_until("the name is removed", || !path.exists());
}

/// Waits until the content is available: the file is opened concurrently with the response.
#[track_caller]
fn get(client: &mut Client, target: &str, who: &[(&str, &str)]) -> Answer {
    let mut found = None;
    wait_until("it is answered from the file", || {
        let answer = client.get_with(target, who);
        let is_made = answer.header("cache-control").is_some();
        found = Some(answer);
        is_made
    });
    found.expect("an answer")
}

/// The response of the application itself.
#[track_caller]
fn assert_not_made(client: &mut Client, target: &str, who: &[(&str, &str)]) {
    let answer = client.get_with(target, who);
    assert_eq!(
        (answer.status, answer.text()),
        (200, "body".into()),
        "{target} {who:?}"
    );
}

per_engine! {
    fn the_next_request_is_answered_from_the_file(engine) {
        let tree = shared();
        for app in App::both() {
            let server = start(&app, &tree, engine, 2);
            let mut client = server.client();
            let bytes = content(1, 300_001);
            make(&mut client, &tree, "/next?a=b", &bytes, "ttl=60", &[COOKIE]);
            let answer = get(&mut client, "/next?a=b", &[COOKIE]);
            answer.assert_status(200);
            assert_same(&answer.body, &bytes);
            assert_eq!(answer.field("content-type"), "application/json");
            assert_eq!(answer.field("cache-control"), "private, no-cache");
            // Also on other connections, which other workers may have, and as often as it is asked for.
            for _ in 0..8 {
                assert_same(&server.get_with("/next?a=b", &[COOKIE]).body, &bytes);
            }
            let asked = app.backend.requests().len();
            let head = client.request("HEAD", "/next?a=b", &[COOKIE]);
            assert_eq!((head.status, head.length()), (200, Some(bytes.len())));
            let etag = answer.field("etag");
            let known = [COOKIE, ("If-None-Match", etag)];
            client.get_with("/next?a=b", &known).assert_status(304);
            let part = client.get_with("/next?a=b", &[COOKIE, ("Range", "bytes=0-9")]);
            assert_eq!((part.status, &part.body[..]), (206, &bytes[..10]));
            // A date is no validator: the application may have sent another response in the same second.
            let since = [COOKIE, ("If-Modified-Since", "Fri, 01 Jan 2100 00:00:00 GMT")];
            client.get_with("/next?a=b", &since).assert_status(200);
            assert_eq!(app.backend.requests().len(), asked);
            // Another file for the same target replaces it.
            make(&mut client, &tree, "/next?a=b", b"newer", "ttl=60 type=text/x-own", &[COOKIE]);
            wait_until("it is replaced", || {
                client.get_with("/next?a=b", &[COOKIE]).text() == "newer"
            });
            assert_eq!(get(&mut client, "/next?a=b", &[COOKIE]).field("content-type"), "text/x-own");
            // Other requests for the same path are different targets.
            for target in ["/next", "/next?a=b&c", "/next?a=B", "/Next?a=b"] {
                assert_not_made(&mut client, target, &[COOKIE]);
            }
            let posted = client.request("POST", "/next?a=b", &[COOKIE, ("Content-Length", "0")]);
            assert_eq!(posted.text(), "body");
        }
    }
}

#[test]
fn nobody_else_gets_it() {
    let (tree, app) = (shared(), App::http());
    let server = start(&app, &tree, "threads", 1);
    let mut client = server.client();
    let who = [COOKIE, ("Authorization", "Basic YQ==")];
    make(&mut client, &tree, "/next", b"secret", "ttl=60", &who);
    assert_eq!(get(&mut client, "/next", &who).text(), "secret");
    for other in [
        &[COOKIE][..],
        &[who[1]],
        &[],
        &[("Cookie", "session=2"), who[1]],
        &[who[0], who[1], ("X-Api-Key", "theirs")],
        &[("Cookie", "session=1; more=1"), who[1]],
        &[COOKIE, COOKIE, who[1]],
        &[COOKIE, ("Authorization", "Basic YR==")],
        // The parts of one are not those of another.
        &[("Cookie", "session=1Basic YQ==")],
    ] {
        assert_not_made(&mut client, "/next", other);
    }
    client.send("GET /next HTTP/1.1\r\nHost: other\r\nCookie: session=1\r\nAuthorization: Basic YQ==\r\n\r\n");
    assert_eq!(client.receive().text(), "body");
    assert_eq!(get(&mut client, "/next", &who).text(), "secret");
}

/// The application decides on requests from other sites.
#[test]
fn nor_does_another_site() {
    let (tree, app) = (shared(), App::http());
    let server = start(&app, &tree, "threads", 1);
    let mut client = server.client();
    make(&mut client, &tree, "/next", b"secret", "ttl=60", &[COOKIE]);
    for own in [
        &[COOKIE][..],
        &[COOKIE, ("Sec-Fetch-Site", "same-origin")],
        &[COOKIE, ("Sec-Fetch-Site", "none")],
        &[COOKIE, ("Origin", "http://localhost")],
        &[COOKIE, ("Origin", "https://LOCALHOST")],
    ] {
        assert_eq!(get(&mut client, "/next", own).text(), "secret", "{own:?}");
    }
    for other in [
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
        ("Origin", "http://other"),
        ("Origin", "http://localhost:81"),
        ("Origin", "http://localhost.other"),
        ("Origin", "null"),
        ("Origin", "localhost"),
        ("X-Requested-With", "XMLHttpRequest"),
    ] {
        assert_not_made(&mut client, "/next", &[COOKIE, other]);
    }
}

/// Two addresses of loopback are two clients, whatever they send.
#[test]
fn nor_does_another_address() {
    let (tree, app) = (shared(), App::http());
    let server = start(&app, &tree, "threads", 1);
    let mut client = server.client();
    make(&mut client, &tree, "/next", b"secret", "ttl=60", &[COOKIE]);
    assert_eq!(get(&mut client, "/next", &[COOKIE]).text(), "secret");
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let socket = socket.expect("socket");
    let other = std::net::SocketAddr::from(([127, 0, 0, 2], 0));
    socket
        .bind(&other.into())
        .expect("another address of loopback");
    socket.connect(&server.address().into()).expect("connect");
    assert_not_made(&mut Client::of(socket.into()), "/next", &[COOKIE]);
}

/// These responses create no entry, but the files are removed: nobody else would remove them.
#[test]
fn files_without_an_entry_are_removed() {
    let (tree, app) = (shared(), App::http());
    let server = start(&app, &tree, "threads", 1);
    let mut client = server.client();
    let long = "a".repeat(7 * 1024);
    let cookies = [COOKIE, ("Authorization", &long[..]), ("X-Status", "200 OK")];
    make(&mut client, &tree, "/anonymous", b"secret", "ttl=60", &[]);
    assert_not_made(&mut client, "/anonymous", &[]);
    let broken = [COOKIE, ("X-Status", "500 Broken")];
    make(&mut client, &tree, "/broken", b"secret", "ttl=60", &broken);
    assert_not_made(&mut client, "/broken", &[COOKIE]);
    make(
        &mut client,
        &tree,
        "/signed-in",
        b"secret",
        "ttl=60|Set-Cookie: session=2",
        &[COOKIE],
    );
    assert_not_made(&mut client, "/signed-in", &[COOKIE]);
    assert_not_made(&mut client, "/signed-in", &[("Cookie", "session=2")]);
    let target = format!("/{}", "t".repeat(2 * 1024));
    make(&mut client, &tree, &target, b"long", "ttl=60", &cookies);
    assert_not_made(&mut client, &target, &cookies);
    wait_until("the files are closed", || {
        server.open_files(tree.path()).is_empty()
    });
}

#[test]
fn an_entry_expires() {
    let (tree, app) = (shared(), App::http());
    let server = start(&app, &tree, "threads", 1);
    let mut client = server.client();
    make(&mut client, &tree, "/long", b"long", "ttl=3600", &[COOKIE]);
    make(&mut client, &tree, "/short", b"short", "ttl=1", &[COOKIE]);
    get(&mut client, "/long", &[COOKIE]);
    // Closed without another request.
    wait_until("the file is closed", || {
        server.open_files(tree.path()).len() == 1
    });
    assert_not_made(&mut client, "/short", &[COOKIE]);
    assert_eq!(get(&mut client, "/long", &[COOKIE]).text(), "long");
}

#[test]
fn a_file_that_cannot_be_preloaded_is_logged() {
    let (tree, outside, app) = (shared(), Tree::new(), App::http());
    let precious = outside.file("precious", "secret");
    tree.link(&precious, "link");
    tree.folder("folder");
    let (root, precious_name) = (tree.path().display(), precious.display());
    let server = start(&app, &tree, "threads", 1);
    let mut client = server.client();
    for (value, reason) in [
        (format!("/a {root}/absent ttl=9"), "No such file"),
        (format!("/a {root}/link ttl=9"), "symbolic link"),
        (format!("/a {root}/folder ttl=9"), "Is a directory"),
        (
            format!("/a {precious_name} ttl=9"),
            "not beneath any of `temporary_roots`",
        ),
        (
            format!("/a {root}/../{precious_name} ttl=9"),
            "not beneath any",
        ),
        (format!("/a {root}/absent"), "ttl="),
        (format!("/a {root}/absent ttl=0"), "ttl="),
        (format!("a {root}/absent ttl=1"), "no target"),
        (
            format!("/a {root}/absent ttl=1 etag=2"),
            "unknown or repeated parameter",
        ),
    ] {
        let line = format!("X-Sendfile-Preload: {value}");
        assert_eq!(
            ask_with(&mut client, "GET", &[&line], &[COOKIE]).text(),
            "body"
        );
        let said = server.says(&format!("upstream app: {line}: "));
        assert!(said.contains(reason), "{said}");
        assert_not_made(&mut client, "/a", &[COOKIE]);
    }
    assert!(precious.exists() && tree.at("folder").exists());
    let bare = app.launch("", "").start();
    let path = tree.fresh("file", "x");
    let line = format!("X-Sendfile-Preload: /a {} ttl=9", path.display());
    ask_with(&mut bare.client(), "GET", &[&line], &[COOKIE]).assert_status(200);
    bare.says("the upstream has no `temporary_roots`");
    assert!(path.exists());
}

/// A path may be beneath several roots: they are tried in their order, as for all other files.
#[test]
fn beneath_the_first_of_the_roots() {
    let (tree, elsewhere, app) = (shared(), shared(), App::http());
    tree.link(elsewhere.path(), "link");
    // To the second, which holds the first, a link is on the way.
    let (first, second) = (tree.at("link"), tree.path());
    let keys = format!("temporary_roots = {:?}\n", [first.as_path(), second]);
    let server = app.launch(&keys, "").start();
    let mut client = server.client();
    let path = elsewhere.fresh("file", "content");
    let line = format!("X-Sendfile-Preload: /next {}/file ttl=60", first.display());
    ask_with(&mut client, "GET", &[&line], &[COOKIE]).assert_status(200);
    assert_eq!(get(&mut client, "/next", &[COOKIE]).text(), "content");
    assert!(!path.exists());
}

/// A reload makes a new configuration, which takes over what applications have preloaded.
#[test]
fn a_reload_keeps_it() {
    let (tree, app) = (shared(), App::http());
    let server = start(&app, &tree, "threads", 2);
    let mut client = server.client();
    make(&mut client, &tree, "/next", b"content", "ttl=60", &[COOKIE]);
    assert_eq!(get(&mut client, "/next", &[COOKIE]).text(), "content");
    for _ in 0..2 {
        server.reload(&[], &[]);
        for _ in 0..4 {
            assert_eq!(server.get_with("/next", &[COOKIE]).text(), "content");
        }
    }
    make(&mut client, &tree, "/next", b"newer", "ttl=60", &[COOKIE]);
    wait_until("it is replaced", || {
        client.get_with("/next", &[COOKIE]).text() == "newer"
    });
}

/// Also together with a delegated file.
#[test]
fn several_files_with_one_response() {
    let (tree, app) = (shared(), App::http());
    let keys = roots("temporary_roots", tree.path());
    let server = app.launch(&keys, "").start();
    let mut client = server.client();
    let lines: Vec<String> = (0..20)
        .map(|number| {
            let path = tree.fresh(format!("{number}"), format!("content {number}"));
            format!("X-Sendfile-Preload: /{number} {} ttl=60", path.display())
        })
        .chain([format!(
            "X-Sendfile-Temporary: {}",
            tree.fresh("page", "page").display()
        )])
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let page = ask_with(&mut client, "GET", &lines, &[COOKIE]);
    assert_eq!(page.text(), "page");
    for number in 0..16 {
        let answer = get(&mut client, &format!("/{number}"), &[COOKIE]);
        assert_eq!(answer.text(), format!("content {number}"));
    }
    assert_not_made(&mut client, "/16", &[COOKIE]);
}
