//! Files that clients write.

mod clients;
mod conditions;
mod fresh;
mod limits;
mod paths;
mod resume;
mod slow;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::{Answer, Client, Launch, Server, Tree, content, head, per_engine, wait_until};

/// A folder that the server may write to.
fn writable() -> Tree {
    let tree = Tree::new();
    let open_to_all = Permissions::from_mode(0o777);
    fs::set_permissions(tree.path(), open_to_all).expect("chmod");
    tree
}

/// A server that takes uploads beneath `root`; `keys` are those of the table.
fn taking(root: &Path, keys: &str) -> Launch {
    with(root, "", keys)
}

/// The same with tables before the site.
fn with(root: &Path, tables: &str, keys: &str) -> Launch {
    let admin = "[admin]\nlisten = \"unix:{own}/admin\"\n";
    let tables = format!("{tables}{admin}");
    Launch::site(
        root,
        &tables,
        &format!("listing = true\nupload = {{ {keys} }}\n"),
    )
}

/// What each name counts for a quota besides content.
const NAME_BYTES: usize = 1024;

/// Made by `htpasswd -bnBC 4`: `secret`.
const USERS: &str = "ann:$2y$04$MoKKoQ5swkLbx1YRjQwMNeNLTLCQd61MP9T68vDeM5qpKwzjfEKsa\n";

const ALL: &str = "methods = [\"PUT\", \"DELETE\", \"MKCOL\"]";

fn put(client: &mut Client, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let length = body.len().to_string();
    let headers = [headers, &[("Content-Length", length.as_str())]].concat();
    client.send(head("PUT", path, &headers));
    // A refused body may not be read to its end.
    let _ = client.try_send(body);
    client.receive()
}

fn put_new(server: &Server, path: &str, body: &[u8]) -> Answer {
    put(&mut server.client(), path, &[], body)
}

/// The names beneath a folder, without those that the server has for itself.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let names = entries.map(|entry| entry.file_name().into_string().expect("UTF-8"));
    let mut names: Vec<_> = names.filter(|name| name != OWN_FOLDER).collect();
    names.sort();
    names
}

const OWN_FOLDER: &str = ".levity-temporary-uploads";

/// Expects that nothing is left of files that were not completed.
#[track_caller]
fn assert_nothing_is_left(server: &Server, root: &Path) {
    let own = root.join(OWN_FOLDER);
    wait_until("the files of the meantime are gone", || {
        let names = fs::read_dir(&own).map_or(0, Iterator::count);
        names == 0 && open_unnamed(server, root) == 0
    });
}

/// Files without a name beneath `root` that the server has open.
fn open_unnamed(server: &Server, root: &Path) -> usize {
    let open = server.open_files(root);
    let unnamed = open
        .iter()
        .filter_map(|descriptor| fs::read_link(descriptor).ok());
    unnamed
        .filter(|to| to.to_string_lossy().ends_with("(deleted)"))
        .count()
}

fn uploads(server: &Server, result: &str) -> f64 {
    let metrics = server.metrics(&server.own("admin"));
    metrics.sum(&format!("levity_uploads_total{{result=\"{result}\"}}"))
}

per_engine! {
    fn files_are_written_replaced_and_removed(engine) {
        let root = writable();
        let server = taking(root.path(), ALL).engine(engine).start();
        let mut client = server.client();
        for (number, bytes) in [0, 1, 65_536, 65_537, 3_000_001].into_iter().enumerate() {
            let body = content(number as u64, bytes);
            let answer = put(&mut client, "/file", &[], &body);
            answer.assert_status(if number == 0 { 201 } else { 204 });
            assert!(answer.field("etag").starts_with('"'), "{answer:?}");
            let found = client.get("/file");
            assert!(found.body == body, "{bytes} bytes");
            assert_eq!(found.field("etag").trim_start_matches("W/"), answer.field("etag"));
            assert!(fs::read(root.at("file")).expect("a file") == body);
        }
        assert_eq!(names(root.path()), ["file"]);
        assert!(!client.get("/").text().contains("temporary"));
        client.request("DELETE", "/file", &[]).assert_status(204);
        client.get("/file").assert_status(404);
        client.request("DELETE", "/file", &[]).assert_status(404);
        assert_eq!(names(root.path()), [""; 0]);
        assert_nothing_is_left(&server, root.path());
        let counts = ["created", "replaced", "removed", "refused"].map(|result| uploads(&server, result));
        assert_eq!(counts, [1.0, 4.0, 1.0, 1.0]);
        let metrics = server.metrics(&server.own("admin"));
        let bytes = metrics.sum("levity_uploaded_bytes_total");
        assert_eq!(bytes, f64::from(1 + 65_536 + 65_537 + 3_000_001));
    }

    fn folders_are_made_and_removed(engine) {
        let root = writable();
        let server = taking(root.path(), ALL).engine(engine).start();
        let mut client = server.client();
        client.get("/a/").assert_status(404);
        client.request("MKCOL", "/a/b", &[]).assert_status(409);
        client.request("MKCOL", "/a/", &[]).assert_status(201);
        client.get("/a/").assert_status(200);
        client.request("MKCOL", "/a", &[]).assert_status(405);
        client.request("MKCOL", "/", &[]).assert_status(405);
        client.request("MKCOL", "/a/b", &[]).assert_status(201);
        put(&mut client, "/a/b/file", &[], b"1").assert_status(201);
        assert!(client.get("/a/b/").text().contains("file"));
        put(&mut client, "/a/b", &[], b"1").assert_status(409);
        put(&mut client, "/a/b/", &[], b"1").assert_status(409);
        put(&mut client, "/a/b/file/below", &[], b"1").assert_status(409);
        client.request("MKCOL", "/a/b/file", &[]).assert_status(405);
        client.request("DELETE", "/a/b", &[]).assert_status(409);
        client.request("DELETE", "/a/b/file/", &[]).assert_status(404);
        client.request("DELETE", "/a/b/file", &[]).assert_status(204);
        client.request("DELETE", "/a/b/", &[]).assert_status(204);
        client.request("DELETE", "/a", &[]).assert_status(204);
        client.get("/a/").assert_status(404);
        client.request("DELETE", "/", &[]).assert_status(403);
    }
}

#[test]
fn folders_on_the_way_are_made_once_the_file_is_complete() {
    let root = writable();
    let keys = "create_folders = true, fsync = true, resume = \"0s\"";
    let server = taking(root.path(), keys).start();
    let mut cut = server.client();
    cut.send(head("PUT", "/a/b/c/cut", &[("Content-Length", "9")]));
    cut.send("12345");
    drop(cut);
    wait_until("it is given up", || uploads(&server, "aborted") > 0.0);
    assert_eq!(names(root.path()), [""; 0]);
    put_new(&server, "/a/b/c/file", b"1").assert_status(201);
    assert_eq!(server.get("/a/b/c/file").text(), "1");
    put_new(&server, "/a/b/other", b"1").assert_status(201);
    put_new(&server, "/a/b/other/file", b"1").assert_status(409);
}

/// The error that it gets is complete, but nobody reads it.
#[test]
fn an_upload_that_is_cut_off_is_logged_as_that() {
    let root = writable();
    let log = "[log]\naccess = \"stdout\"\nformat = \"json\"\n";
    let server = with(root.path(), log, ALL).start();
    let chunked = [("Transfer-Encoding", "chunked")];
    let length = [("Content-Length", "9")];
    for (name, framing, body) in [
        ("/length", &length, "12345"),
        ("/chunked", &chunked, "5\r\n12345\r\n"),
        ("/half", &length, "12345"),
        ("/whole", &chunked, "5\r\n12345\r\n0\r\n\r\n"),
    ] {
        let mut client = server.client();
        client.send(head("PUT", name, framing));
        client.send(body);
        let (status, end) = match name {
            "/whole" => (client.receive().status, "complete"),
            "/half" => {
                client.finish();
                (client.receive().status, "client_abort")
            }
            _ => (400, "client_abort"),
        };
        drop(client);
        let line = server.prints(&format!("\"target\":\"{name}\""));
        let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let found = (&line["status"], &line["end"], &line["body_bytes"]);
        assert_eq!(found, (&status.into(), &end.into(), &5.into()), "{line}");
    }
}

#[test]
fn a_chunked_body_is_a_whole_file() {
    let root = writable();
    let server = taking(root.path(), "").start();
    let body = content(3, 200_000);
    let mut client = server.client();
    client.send(head("PUT", "/file", &[("Transfer-Encoding", "chunked")]));
    for piece in body.chunks(7001) {
        client.send(format!("{:x}\r\n", piece.len()));
        client.send(piece);
        client.send("\r\n");
    }
    client.send("0\r\n\r\n");
    client.receive().assert_status(201);
    assert!(fs::read(root.at("file")).expect("a file") == body);
}

#[test]
fn other_methods_are_told_what_is_permitted() {
    let root = writable();
    root.file("file", "1");
    let server = taking(root.path(), "methods = [\"PUT\", \"MKCOL\"]").start();
    let mut client = server.client();
    for (method, status) in [
        ("OPTIONS", 204),
        ("POST", 405),
        ("DELETE", 405),
        ("PROPFIND", 405),
    ] {
        let answer = client.request(method, "/file", &[]);
        answer.assert_status(status);
        assert_eq!(answer.field("allow"), "GET, HEAD, OPTIONS, PUT, MKCOL");
    }
    let mut client = server.client();
    client.send(head("MKCOL", "/new", &[("Content-Length", "1")]));
    client.send("1");
    client.receive().assert_status(415);
    let coded = [("Content-Encoding", "gzip")];
    put(&mut server.client(), "/file", &coded, b"1").assert_status(415);
    let answer = put(
        &mut server.client(),
        "/file",
        &[("Content-Encoding", "identity")],
        b"2",
    );
    answer.assert_status(204);
}

/// What has arrived as a whole is written, also if nobody waits for the response.
#[test]
fn a_complete_file_needs_no_client() {
    let root = writable();
    let server = taking(root.path(), "").start();
    for number in 0..20 {
        let body = content(number, 100_000);
        let path = format!("/{number}");
        let mut client = server.client();
        client.send(head("PUT", &path, &[("Content-Length", "100000")]));
        client.send(&body);
        // A reset would discard what the server has not read.
        client.finish();
        drop(client);
        let file = root.at(number.to_string());
        wait_until("it is written", || {
            fs::read(&file).is_ok_and(|found| found == body)
        });
    }
    assert_nothing_is_left(&server, root.path());
}

/// Without the table nothing is written, and so it is at routes with another folder or an application.
#[test]
fn nothing_is_written_elsewhere() {
    let (root, other) = (writable(), writable());
    let routes = format!(
        "[[site.route]]\npath = \"/off/*\"\nupload = false\n\
         [[site.route]]\npath = \"/internal/*\"\ninternal = true\n\
         [[site.route]]\npath = \"/other/*\"\nroot = \"{}\"\nstrip_prefix = \"/other\"\n",
        other.path().display()
    );
    for folder in ["off", "internal"] {
        let folder = root.folder(folder);
        fs::set_permissions(folder, Permissions::from_mode(0o777)).expect("chmod");
    }
    let server = Launch::site(root.path(), "", &format!("upload = {{}}\n{routes}")).start();
    put_new(&server, "/off/file", b"1").assert_status(405);
    put_new(&server, "/other/file", b"1").assert_status(405);
    put_new(&server, "/internal/file", b"1").assert_status(404);
    put_new(&server, "/file", b"1").assert_status(201);
    assert_eq!(names(root.path()), ["file", "internal", "off"]);
    assert_eq!(names(other.path()), [""; 0]);
}

#[test]
fn a_folder_that_cannot_be_written_to_is_an_error_at_the_start() {
    let root = Tree::new();
    fs::set_permissions(root.path(), Permissions::from_mode(0o555)).expect("chmod");
    let refused = taking(root.path(), "").try_start();
    let stderr = refused.err().expect("it does not start");
    assert!(stderr.contains("cannot be written to"), "{stderr}");
    assert!(stderr.contains("upload = {"), "{stderr}");
}

/// What a crash has left is removed, what may be in use is not.
#[test]
fn names_of_a_crash_are_removed_at_the_start() {
    let root = writable();
    let hour = std::time::Duration::from_secs(3600);
    for (name, age) in [("old", 3 * hour), ("young", hour)] {
        let path = root.fresh(Path::new(OWN_FOLDER).join(name), "x");
        crate::support::age(&path, age);
    }
    fs::set_permissions(root.at(OWN_FOLDER), Permissions::from_mode(0o777)).expect("chmod");
    let server = taking(root.path(), "").start();
    let left = || {
        let names = fs::read_dir(root.at(OWN_FOLDER))
            .expect("a folder")
            .flatten();
        names.map(|entry| entry.file_name()).collect::<Vec<_>>()
    };
    assert_eq!(left(), ["young"]);
    server
        .get(&format!("/{OWN_FOLDER}/young"))
        .assert_status(404);
    put_new(&server, &format!("/{OWN_FOLDER}/young"), b"1").assert_status(403);
    put_new(&server, "/file", b"1").assert_status(201);
}

#[test]
fn an_upload_is_counted_and_logged() {
    let root = writable();
    let log = "[log]\naccess = \"{own}/access\"\nformat = \"json\"\n";
    let server = with(root.path(), log, "").start();
    put_new(&server, "/file", b"12345").assert_status(201);
    let line = || fs::read_to_string(server.own("access")).unwrap_or_default();
    wait_until("it is logged", || line().contains("\"PUT\""));
    assert!(line().contains("201"), "{}", line());
}

/// Without a length there is no body in HTTP/1.1 (RFC 9112, 6.3); in 1.0 that is not sure.
#[test]
fn only_http_1_1_has_empty_files_without_a_length() {
    let root = writable();
    root.file("file", "old");
    let server = taking(root.path(), "").start();
    for (request, status) in [
        ("PUT /file HTTP/1.0\r\n\r\n", 411),
        ("PUT /file HTTP/1.0\r\nContent-Length: 3\r\n\r\nnew", 204),
        ("PUT /file HTTP/1.0\r\nContent-Length: 0\r\n\r\n", 204),
        ("PUT /empty HTTP/1.1\r\nHost: a\r\n\r\n", 201),
    ] {
        let before = fs::read(root.at("file")).expect("a file");
        let mut client = server.client();
        client.send(request);
        client.receive().assert_status(status);
        let after = fs::read(root.at("file")).expect("a file");
        assert!(status != 411 || after == before, "{request}");
    }
    assert_eq!(names(root.path()), ["empty", "file"]);
    assert!(fs::read(root.at("file")).expect("a file").is_empty());
}

/// The recipe of docs/tasks/uploads.md for files that everyone reads and users write.
#[test]
fn everyone_reads_and_users_write() {
    let page = include_str!("../../../../../docs/tasks/uploads.md");
    let (_, section) = page
        .split_once("## Everyone reads, only users write\n")
        .expect("the section");
    let (_, recipe) = section.split_once("```toml\n").expect("a recipe");
    let (recipe, _) = recipe.split_once("```").expect("its end");
    let (root, own) = (writable(), Tree::new());
    root.file("read", "1");
    own.file("users", USERS);
    let recipe = recipe
        .replace("/srv/files", &root.path().display().to_string())
        .replace("\"users\"", &format!("{:?}", own.at("users")));
    let server = Launch::run(&format!("[[listen]]\naddress = \"127.0.0.1:0\"\n{recipe}")).start();
    let mut client = server.client();
    let user = [("Authorization", "Basic YW5uOnNlY3JldA==")];
    let wrong = [("Authorization", "Basic YW5uOndyb25n")];
    assert_eq!(client.get("/read").text(), "1");
    assert!(client.get("/").text().contains("read"));
    for who in [&[][..], &wrong] {
        put(&mut server.client(), "/new", who, b"2").assert_status(401);
        for (method, path) in [("DELETE", "/read"), ("MKCOL", "/folder")] {
            client.request(method, path, who).assert_status(401);
        }
    }
    assert_eq!(names(root.path()), ["read"]);
    put(&mut client, "/a/new", &user, b"2").assert_status(201);
    client.request("MKCOL", "/folder", &user).assert_status(201);
    client.request("DELETE", "/read", &user).assert_status(204);
    // Everyone sees what they have done.
    assert_eq!(client.get("/a/new").text(), "2");
    client.get("/read").assert_status(404);
    client.get("/folder/").assert_status(200);
    // Other methods are not there.
    client.request("POST", "/a/new", &user).assert_status(405);
}
