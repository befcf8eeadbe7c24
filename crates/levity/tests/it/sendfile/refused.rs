//! Delegations of applications and fields of clients that are refused. Every refusal is logged.

use std::os::unix::fs::PermissionsExt;

use rustix::fs::{FileType, makedev};

use super::{App, FAMILY, ask, ask_with, assert_no_talk, launch, roots, upstream};
use crate::support::scripted::{Conn, Scripted, ajp, fastcgi};
use crate::support::{Tree, is_root};

#[test]
fn without_a_root_nothing_is_sent() {
    let tree = Tree::new();
    let file = tree.file("file", "secret");
    for app in App::both() {
        let server = app.launch("", "").start();
        let mut client = server.client();
        for (name, key) in [
            ("X-Sendfile", "sendfile_roots"),
            ("X-LIGHTTPD-send-file", "sendfile_roots"),
            ("X-Sendfile2", "sendfile_roots"),
            ("X-Sendfile-Temporary", "temporary_roots"),
            ("X-LIGHTTPD-send-tempfile", "temporary_roots"),
            ("X-LIGHTTPD-send-temp-file", "temporary_roots"),
        ] {
            let range = if name.ends_with('2') { " 0-" } else { "" };
            let answer = ask(
                &mut client,
                &[&format!("{name}: {}{range}", file.display())],
            );
            answer.assert_status(502);
            assert!(!answer.text().contains("secret"));
            server.says(&format!(
                "{name}: {}{range}: the upstream has no `{key}` (502)",
                file.display()
            ));
        }
        assert!(file.exists());
    }
}

#[test]
fn what_is_not_a_file_beneath_a_root() {
    let (tree, outside) = (Tree::new(), Tree::new());
    let secret = outside.file("secret", "secret");
    tree.file("files/file", "content");
    tree.file("filesX/file", "secret");
    tree.folder("files/folder");
    tree.link(&secret, "files/out");
    tree.link(outside.path(), "files/outfolder");
    tree.link("file", "files/in");
    tree.node("files/fifo", FileType::Fifo, 0);
    tree.file("files/mine", "secret");
    tree.chmod("files/mine", 0o600);
    let (root, above) = (tree.at("files"), tree.path().display());
    let mut wrong = vec![
        (
            format!("{above}/files/absent"),
            404,
            "files/absent: No such file",
        ),
        (format!("{above}/files/file/x"), 404, "Not a directory"),
        (format!("{above}/files/out"), 502, "a symbolic link leaves"),
        (
            format!("{above}/files/outfolder/secret"),
            502,
            "a symbolic link leaves",
        ),
        (
            format!("{above}/filesX/file"),
            502,
            "not beneath any of `sendfile_roots`",
        ),
        (
            format!("{above}/files/../filesX/file"),
            502,
            "not beneath any",
        ),
        (
            format!("{above}/files/%2e%2e/filesX/file"),
            404,
            "No such file",
        ),
        (
            format!("{above}/files/../../../../etc/passwd"),
            502,
            "not beneath any",
        ),
        ("/etc/passwd".to_owned(), 502, "not beneath any"),
        (format!("{above}/files"), 502, "not beneath any"),
        (format!("{above}/files/folder"), 502, "not a regular file"),
        (format!("{above}/files/fifo"), 502, "not a regular file"),
        (format!("{above}/files/%00file"), 404, "No such file"),
        ("file".to_owned(), 502, "path without a leading slash"),
        ("files/file".to_owned(), 502, "path without a leading slash"),
        (
            format!("{above}/files/{}", "n".repeat(4096)),
            502,
            "path too long",
        ),
    ];
    if is_root() {
        tree.node("files/null", FileType::CharacterDevice, makedev(1, 3));
        wrong.push((format!("{above}/files/null"), 502, "not a regular file"));
        wrong.push((format!("{above}/files/mine"), 502, "Permission denied"));
    }
    for app in App::both() {
        let server = app.launch(&roots("sendfile_roots", &root), "").start();
        let mut client = server.client();
        for (path, status, reason) in &wrong {
            let answer = ask(&mut client, &[&format!("X-Sendfile: {path}")]);
            assert_eq!(answer.status, *status, "{path}");
            assert!(
                !answer.text().contains("secret") && !answer.text().contains("files"),
                "{path}"
            );
            // Long values are truncated, but not the reason.
            let shown = if path.len() > 256 {
                "nnn...: "
            } else {
                &format!(": X-Sendfile: {path}: ")
            };
            let said = server.says(shown);
            assert!(
                said.contains(reason) && said.contains(&format!("({status})")),
                "{said}"
            );
            let is_whole = path.starts_with('/');
            assert!(!is_whole || said.matches(path).count() < 2, "{said}");
        }
        let inside = ask(&mut client, &[&format!("X-Sendfile: {above}/files/in")]);
        assert_eq!(inside.text(), "content");
    }
}

#[test]
fn more_than_one_delegation_is_refused() {
    let tree = Tree::new();
    let file = format!("X-Sendfile: {}", tree.file("file", "content").display());
    let app = App::http();
    let server = app
        .launch(&roots("sendfile_roots", tree.path()), "")
        .start();
    let mut client = server.client();
    for other in [
        &file[..],
        "X-Accel-Redirect: /a",
        "X-Sendfile2: /a 0-",
        "X-Reproxy-URL: http://a/",
    ] {
        ask(&mut client, &[&file, other]).assert_status(502);
        server.says("the response has more than one delegation");
    }
}

/// Even if it has no effect, with errors, and in trailers.
#[test]
fn no_field_of_the_family_reaches_a_client() {
    let app = App::http();
    let server = app.launch("", "").start();
    let mut client = server.client();
    let lines = [
        "X-Accel-Expires: 5",
        "X-Accel-Limit-Rate: 1",
        "X-Sendfile-Type: X-Sendfile",
        "X-Sendfile-Receipt: /",
        "X-Sendfile-Preload: /a /b ttl=1",
        "X-LiteSpeed-Location: /a",
        "X-Kept: yes",
    ];
    let answer = ask(&mut client, &lines);
    assert_eq!((answer.status, answer.field("x-kept")), (200, "yes"));
    let error = ask_with(&mut client, "GET", &lines, &[("X-Status", "500 Broken")]);
    assert_eq!((error.status, error.field("x-kept")), (500, "yes"));
}

#[test]
fn nor_does_one_in_trailers() {
    let backend = Scripted::tcp(|conn| {
        conn.read_request();
        conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        conn.send(
            "2\r\nab\r\n0\r\nX-Sendfile: /etc/passwd\r\nX-Accel-Redirect: /a\r\nX-Sum: 1\r\n\r\n",
        );
    });
    let server = launch(&upstream("app", "http", &backend, ""), "").start();
    let answer = server.get_with("/", &[("TE", "trailers")]);
    assert_eq!((answer.status, answer.text()), (200, "ab".into()));
    assert_eq!(answer.trailers, [("X-Sum".to_owned(), b"1".to_vec())]);
    assert_no_talk(&answer);
}

fn respond_over_ajp(conn: &mut Conn) {
    while conn.read_ajp().is_some() {
        conn.send(ajp::send_headers(200, &[]));
        conn.send(ajp::end(true));
    }
}

fn respond_over_scgi(conn: &mut Conn) {
    conn.read_scgi();
    conn.send("Status: 204 No Content\r\n\r\n");
}

fn respond_over_fastcgi(conn: &mut Conn) {
    while conn.read_fastcgi().is_some() {
        conn.send(fastcgi::answer("Status: 204\r\n\r\n"));
    }
}

fn respond_over_http(conn: &mut Conn) {
    while conn.read_request().is_some() {
        conn.answer("200 OK", "");
    }
}

/// A client that could set these fields could choose the files that are sent. Every spelling that becomes the same
/// variable is dropped.
#[cfg(feature = "ajp")]
#[test]
fn clients_cannot_send_fields_of_the_server() {
    let tree = Tree::new();
    type Handler = fn(&mut Conn);
    let protocols: [(&str, Handler); 4] = [
        ("http", respond_over_http),
        ("fastcgi", respond_over_fastcgi),
        ("scgi", respond_over_scgi),
        ("ajp13", respond_over_ajp),
    ];
    for (protocol, handler) in protocols {
        for enabled in [false, true] {
            let backend = Scripted::tcp(handler);
            let keys = if enabled {
                roots("sendfile_roots", tree.path())
            } else {
                String::new()
            };
            let server = launch(&upstream("app", protocol, &backend, &keys), "").start();
            let mut headers = vec![("X-Kept", "kept")];
            let spelt: Vec<String> = FAMILY
                .iter()
                .chain(&["x-accel-mapping", "x-accel-buffering"])
                .flat_map(|name| [(*name).to_owned(), name.to_uppercase().replace('-', "_")])
                .collect();
            headers.extend(spelt.iter().map(|name| (&name[..], "evil")));
            headers.push(("X.Sendfile-Type", "evil"));
            headers.push(("X_Sendfile-Type", "evil"));
            server.get_with("/", &headers);
            let request = backend.request();
            let all = format!("{:?}{}", request.fields, request.head.escape_ascii());
            assert!(
                all.contains("kept") && !all.contains("evil"),
                "{protocol}: {all}"
            );
            let name = if protocol.ends_with("cgi") {
                "HTTP_X_SENDFILE_TYPE"
            } else {
                "x-sendfile-type"
            };
            assert_eq!(
                request.field(name),
                enabled.then_some("X-Sendfile"),
                "{protocol}"
            );
        }
    }
}

#[test]
fn the_root_itself_may_be_closed_later() {
    if !is_root() {
        return;
    }
    let tree = Tree::new();
    let file = tree.file("folder/file", "content");
    let app = App::http();
    let server = app
        .launch(&roots("sendfile_roots", tree.path()), "")
        .start();
    let mut client = server.client();
    let line = format!("X-Sendfile: {}", file.display());
    assert_eq!(ask(&mut client, &[&line]).text(), "content");
    let closed = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(tree.at("folder"), closed).expect("chmod");
    ask(&mut client, &[&line]).assert_status(502);
    server.says("Permission denied");
}
