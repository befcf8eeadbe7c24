//! FastCGI: applications, their scripts, and files beside them.

use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::support::scripted::fastcgi::{STDERR, STDOUT, answer, end, record};
use crate::support::scripted::{Conn, Scripted};
use crate::support::{
    App, Client, Server, Tree, assert_same, content, head, in_front_of, per_engine, sha256,
    started_in_front_of, wait_until,
};

/// Files first, then scripts in PHP, the front controller last.
const PHP: &str =
    "try = [\"file\", \"proxy\"]\nscript_suffix = \".php\"\nscript_index = \"index.php\"";

/// Responds to every request with the path of its script, or with the mount.
fn name_script(conn: &mut Conn) {
    while let Some((request, _)) = conn.read_fastcgi() {
        let script = request.field("SCRIPT_FILENAME").unwrap_or("none");
        let info = request.field("PATH_INFO").unwrap_or("unset");
        let name = request.field("SCRIPT_NAME").unwrap_or("unset");
        let body = format!("ran {script} as {name} with {info}");
        conn.send(answer(format!("Content-Type: text/plain\r\n\r\n{body}")));
    }
}

/// Responds to every request with this CGI output.
fn saying(output: impl Into<Vec<u8>>) -> Scripted {
    let output = output.into();
    Scripted::unix(move |conn| while conn.read_fastcgi().is_some() && conn.send(answer(&output)) {})
}

fn mounted(backend: &Scripted) -> Server {
    mounted_with(backend, "")
}

/// The same with these keys of the upstream.
#[track_caller]
fn mounted_with(backend: &Scripted, keys: &str) -> Server {
    let keys = format!("keep_alive = 4\n{keys}");
    in_front_of(&[backend.address()], "fastcgi", &keys, &Tree::new(), "").start()
}

#[track_caller]
fn json(body: &[u8]) -> Value {
    let value = serde_json::from_slice(body);
    value.unwrap_or_else(|error| panic!("{error}: {}", body.escape_ascii()))
}

#[test]
fn a_request_becomes_variables() {
    let (backend, root) = (Scripted::tcp(name_script), Tree::new());
    root.file("index.php", "source");
    let server = started_in_front_of(backend.address(), "fastcgi", &root, PHP);
    let target = "/index.php/a%20b/c?d=e%20f";
    let fields = [
        ("X-Asked", "yes"),
        ("X-Asked", "twice"),
        ("X_Asked", "no"),
        ("Proxy", "http://6.6.6.6"),
        ("X-Forwarded-For", "6.6.6.6"),
        ("X-Sendfile-Type", "X-Accel-Redirect"),
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade, X-Hop"),
        ("X-Hop", "1"),
        ("Authorization", "Basic x"),
    ];
    server.get_with(target, &fields).assert_status(200);
    let request = backend.request();
    let folder = root.path().display();
    let expected = [
        ("REQUEST_METHOD", Some("GET")),
        ("REQUEST_URI", Some(target)),
        ("QUERY_STRING", Some("d=e%20f")),
        ("SCRIPT_NAME", Some("/index.php")),
        ("PATH_INFO", Some("/a b/c")),
        ("SCRIPT_FILENAME", Some(&*format!("{folder}/index.php"))),
        ("DOCUMENT_ROOT", Some(&*folder.to_string())),
        ("SERVER_PROTOCOL", Some("HTTP/1.1")),
        ("SERVER_NAME", Some("localhost")),
        ("SERVER_PORT", Some("80")),
        ("SERVER_ADDR", Some("127.0.0.1")),
        ("REQUEST_SCHEME", Some("http")),
        ("HTTP_HOST", Some("localhost")),
        ("REMOTE_ADDR", Some("127.0.0.1")),
        ("HTTPS", None),
        ("CONTENT_LENGTH", None),
        ("HTTP_X_ASKED", Some("yes, twice")),
        ("HTTP_PROXY", None),
        ("HTTP_X_FORWARDED_FOR", Some("127.0.0.1")),
        ("HTTP_X_SENDFILE_TYPE", None),
        ("HTTP_UPGRADE", None),
        ("HTTP_CONNECTION", None),
        ("HTTP_X_HOP", None),
        ("HTTP_AUTHORIZATION", Some("Basic x")),
    ];
    for (name, value) in expected {
        assert_eq!(request.field(name), value, "{name}");
    }
    let port = request.field("REMOTE_PORT").map(str::parse::<u16>);
    assert!(matches!(port, Some(Ok(1..))), "{port:?}");
    // Without the name of a server that it knows, WordPress would write /index.php into every link.
    let software = request.field("SERVER_SOFTWARE").unwrap_or_default();
    assert!(software.contains("nginx"), "{software}");
}

#[test]
fn a_site_and_its_routes_add_variables() {
    let site = "params = { APP_ENV = \"live\", SERVER_NAME = \"own\", EMPTY = \"\" }\n\
                [[site.route]]\npath = \"/beta/*\"\n\
                [site.route.params]\nAPP_ENV = \"beta\"\nfront_controller_active = \"true\"\n";
    let fastcgi = saying("A: b\n\n");
    let scgi = Scripted::unix(|conn| {
        conn.read_scgi();
        conn.send("A: b\n\n");
    });
    for (protocol, backend) in [("fastcgi", fastcgi), ("scgi", scgi)] {
        let server = started_in_front_of(backend.address(), protocol, &Tree::new(), site);
        server.get("/").assert_status(200);
        server.get("/beta/a").assert_status(200);
        let names = ["APP_ENV", "SERVER_NAME", "EMPTY", "front_controller_active"];
        let told =
            |at: usize| names.map(|name| backend.requests()[at].field(name).map(str::to_owned));
        let expected = |texts: [Option<&str>; 4]| texts.map(|text| text.map(str::to_owned));
        assert_eq!(
            told(0),
            expected([Some("live"), Some("own"), Some(""), None])
        );
        let beta = [Some("beta"), Some("own"), Some(""), Some("true")];
        assert_eq!(told(1), expected(beta), "{protocol}");
        let own = backend.requests()[0]
            .fields
            .iter()
            .filter(|(name, _)| name == "SERVER_NAME")
            .count();
        assert_eq!(own, 1, "{protocol}");
    }
}

per_engine! {
    /// A request for a script returns its output and never its source.
    fn sources_are_never_sent(engine) {
        let (backend, root) = (Scripted::unix(name_script), Tree::new());
        let source = "<?php $password = 'source';";
        for name in [
            "index.php", "a.php", "a.php.gz", "B.PHP", "dir/index.php", "dir/a.css", "dir/a.css.gz",
            "up/c.php", "d.php/file.css", "home/home.php",
        ] {
            root.file(name, source);
        }
        let site = format!(
            "{PHP}\nindex = [\"home.php\", \"index.php\", \"index.html\"]\nprecompressed = [\"gzip\"]\n\
             [[site.route]]\npath = \"/up/*\"\ntry = [\"file\"]"
        );
        let server = in_front_of(&[backend.address()], "fastcgi", "", &root, &site).engine(engine);
        let server = server.start();
        let folder = root.path().display();
        let coded = [("Accept-Encoding", "gzip")];
        for (path, script) in [
            ("/", "index.php as /index.php with "),
            ("/index.php", "index.php as /index.php with "),
            ("/a.php", "a.php as /a.php with "),
            ("/a.php/", "a.php as /a.php with /"),
            ("/a.php/x.css", "a.php as /a.php with /x.css"),
            ("/%61.ph%70", "a.php as /a.php with "),
            ("/a.php.gz", "index.php as /index.php with "),
            ("/A.PHP", "index.php as /index.php with "),
            ("/B.PHP", "index.php as /index.php with "),
            ("/dir/", "dir/index.php as /dir/index.php with "),
            ("/home/", "home/home.php as /home/home.php with "),
            ("/dir/../a.php", "a.php as /a.php with "),
            ("/d.php/file.css", "index.php as /index.php with "),
            ("/absent", "index.php as /index.php with "),
            ("/dir/absent.php/x", "index.php as /index.php with "),
            ("/.hidden/x.php", "index.php as /index.php with "),
        ] {
            for (number, fields) in [&[][..], &coded].into_iter().enumerate() {
                let answer = server.get_with(path, fields);
                assert_eq!(answer.text(), format!("ran {folder}/{script}"), "{path} {number}");
            }
        }
        for path in ["/up/c.php", "/up/C.PHP", "/up/c.php.gz", "/up/c.php/x"] {
            server.get(path).assert_status(404);
        }
        // Other files are served as files.
        assert_eq!(server.get("/dir/a.css").text(), source);
        assert_eq!(server.get_with("/dir/a.css", &coded).field("content-encoding"), "gzip");
    }

    fn only_regular_files_beneath_the_root_are_run(engine) {
        let (backend, root, outside) = (Scripted::unix(name_script), Tree::new(), Tree::new());
        outside.file("x.php", "");
        root.file("real.php", "");
        root.file("upload.jpg", "");
        root.folder("folder.php");
        symlink(outside.at("x.php"), root.at("out.php")).expect("symlink");
        symlink("real.php", root.at("in.php")).expect("symlink");
        let site = "script_suffix = \".php\"";
        let server = in_front_of(&[backend.address()], "fastcgi", "", &root, site).engine(engine);
        let server = server.start();
        server.get("/in.php").assert_status(200);
        server.get("/out.php").assert_status(403);
        for path in ["/", "/absent", "/folder.php", "/upload.jpg/x.php", "/absent.php/a", "/real.php%2Fa"] {
            server.get(path).assert_status(404);
        }
        server.get("/in.php").assert_status(200);
        let posted = server.client().request("POST", "/absent.php", &[("Content-Length", "0")]);
        posted.assert_status(404);
        assert_eq!(backend.requests().len(), 2);
    }
}

#[test]
fn a_directory_is_redirected_to_its_slash() {
    let (backend, root) = (Scripted::unix(name_script), Tree::new());
    for name in ["index.php", "admin/index.php", "files/a.txt"] {
        root.file(name, "");
    }
    let server = started_in_front_of(backend.address(), "fastcgi", &root, PHP);
    let answer = server.get("/admin?x=y");
    answer.assert_status(301);
    assert_eq!(answer.field("location"), "/admin/?x=y");
    assert!(server.get("/admin/").text().contains("/admin/index.php as"));
    assert!(server.get("/files").text().contains("as /index.php"));
    assert!(server.get("/files/").text().contains("as /index.php"));
    root.file("both/index.html", "page");
    root.file("both/index.php", "");
    assert_eq!(server.get("/both/").text(), "page");
    let first = format!("{PHP}\nindex = [\"index.php\", \"index.html\"]");
    let scripts_first = started_in_front_of(backend.address(), "fastcgi", &root, &first);
    assert!(
        scripts_first
            .get("/both/")
            .text()
            .contains("/both/index.php as")
    );
    let mut client = server.client();
    let posted = client.request("POST", "/admin/", &[("Content-Length", "0")]);
    assert!(posted.text().contains("/admin/index.php as"));
}

#[test]
fn scripts_beneath_a_prefix() {
    let (backend, root) = (Scripted::unix(name_script), Tree::new());
    root.file("a.php", "");
    let route = format!("[[site.route]]\npath = \"/blog/*\"\nstrip_prefix = \"/blog\"\n{PHP}");
    let server = started_in_front_of(backend.address(), "fastcgi", &root, &route);
    let folder = root.path().display();
    let expected = format!("ran {folder}/a.php as /blog/a.php with /b");
    assert_eq!(server.get("/blog/a.php/b").text(), expected);
}

#[test]
fn an_application_is_mounted_at_its_route() {
    let (backend, root) = (Scripted::unix(name_script), Tree::new());
    let route = "[[site.route]]\npath = \"/app/*\"\nstrip_prefix = \"/app\"";
    let server = started_in_front_of(backend.address(), "fastcgi", &root, route);
    assert_eq!(
        server.get("/app/a%20b").text(),
        "ran none as /app with /a b"
    );
    assert_eq!(server.get("/other").text(), "ran none as  with /other");
}

#[test]
fn a_connection_is_kept_if_configured() {
    let backend = Scripted::unix(|conn| {
        while let Some((_, keep_conn)) = conn.read_fastcgi() {
            conn.send(answer(format!("X-Keep: {keep_conn}\n\nbody")));
        }
    });
    let root = Tree::new();
    let start =
        |upstream| in_front_of(&[backend.address()], "fastcgi", upstream, &root, "").start();
    let kept = start("keep_alive = 4");
    let mut client = kept.client();
    for _ in 0..3 {
        assert_eq!(client.get("/").field("x-keep"), "true");
        client.head("/").assert_status(200);
    }
    assert_eq!(backend.connections(), 1);
    let closed = start("");
    for number in 2..4 {
        assert_eq!(closed.get("/").field("x-keep"), "false");
        assert_eq!(backend.connections(), number);
    }
}

#[test]
fn responses_without_a_body_are_read_to_their_end() {
    let backend = Scripted::unix(|conn| {
        while let Some((request, _)) = conn.read_fastcgi() {
            let status = request.target.trim_start_matches('/').to_owned();
            conn.send(answer(format!("Status: {status}\n\nnobody reads this")));
        }
    });
    let server = mounted(&backend);
    let mut client = server.client();
    for _ in 0..2 {
        for status in [204, 304] {
            let answer = client.get(&format!("/{status}"));
            assert_eq!((answer.status, answer.length()), (status, None));
        }
        client.head("/200").assert_status(200);
        assert_eq!(client.get("/200").text(), "nobody reads this");
    }
    assert_eq!(backend.connections(), 1);
}

#[test]
fn content_length_is_enforced() {
    let long = saying("Content-Length: 4\n\nbody and more");
    let server = mounted(&long);
    let mut client = server.client();
    assert_eq!(client.get("/").text(), "body");
    assert_eq!(client.get("/").text(), "body");
    let short = saying("Content-Length: 40\n\nbody");
    mounted(&short).client().assert_cut_short();
    let exact = Scripted::unix(|conn| {
        conn.read_fastcgi();
        // Closes without the record that ends a response.
        conn.send(record(STDOUT, b"Content-Length: 4\n\nbody", 0));
    });
    assert_eq!(mounted(&exact).get("/").text(), "body");
}

#[test]
fn a_malformed_response_is_502() {
    for bytes in [
        answer(""),
        answer("no field\n\n"),
        answer("Status: 99\n\n"),
        answer("A: b\n"),
        record(STDOUT, b"A: b\n\n", 0)[..12].to_vec(),
        b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
        end(0, 3),
    ] {
        let backend = Scripted::unix(move |conn| {
            while conn.read_fastcgi().is_some() && conn.send(&bytes) {
                conn.finish();
            }
        });
        let status = mounted(&backend).get("/").status;
        assert!(matches!(status, 502 | 503), "{status}");
    }
}

#[test]
fn a_request_refused_as_overloaded_goes_to_another_backend() {
    let refusing = Scripted::unix(|conn| {
        conn.read_fastcgi();
        conn.send(end(0, 2));
    });
    let willing = saying("A: b\n\nwilling");
    let root = Tree::new();
    let to = [refusing.address(), willing.address()];
    let upstream = "balance = \"static\"";
    let server = in_front_of(&to, "fastcgi", upstream, &root, "").start();
    let mut client = server.client();
    client.send(head("POST", "/", &[("Content-Length", "4")]) + "body");
    assert_eq!(client.receive().text(), "willing");
    assert_eq!(refusing.request().body, b"body");
    assert_eq!(willing.request().body, b"body");
    let alone = Scripted::unix(|conn| {
        conn.read_fastcgi();
        conn.send(end(0, 1));
    });
    mounted(&alone).get("/").assert_status(503);
}

#[test]
fn a_response_may_be_split_and_padded() {
    let backend = Scripted::unix(|conn| {
        while conn.read_fastcgi().is_some() {
            conn.send(record(STDERR, b"a warning\n", 3));
            conn.send_slowly(record(STDOUT, b"Status: 201 Made\r\nX-A", 200));
            conn.send_slowly(record(STDOUT, b": b\r\n\r\nhalf ", 1));
            conn.send_slowly(answer("and half"));
        }
    });
    let server = mounted(&backend);
    let mut client = server.client();
    for _ in 0..2 {
        let answer = client.get("/");
        assert_eq!(answer.status_line, "HTTP/1.1 201 Made");
        assert_eq!(
            (answer.field("x-a"), &*answer.text()),
            ("b", "half and half")
        );
    }
    server.says("upstream app: stderr: a warning");
    assert_eq!(backend.connections(), 1);
}

/// Records of standard error with this many bytes.
fn chatter(bytes: usize) -> Vec<u8> {
    let line = [vec![b'x'; 1023], b"\n".to_vec()].concat();
    let all = line.repeat(bytes.div_ceil(line.len()));
    let parts = all[..bytes].chunks(32 * 1024);
    parts.flat_map(|part| record(STDERR, part, 0)).collect()
}

#[test]
fn the_stderr_of_a_request_is_limited() {
    const BYTES_MAX: usize = 32 * 1024;
    let backend = Scripted::unix(|conn| {
        while let Some((request, _)) = conn.read_fastcgi() {
            let (_, bytes) = request.target.split_once('?').expect("a number");
            conn.send(chatter(bytes.parse().expect("a number")));
            conn.send(answer("Status: 200\r\n\r\nanswer"));
        }
    });
    let server = mounted(&backend);
    let mut client = server.client();
    // Line feeds do not count: 32 lines of 1023 bytes and 32 bytes of another line fit.
    let fits = BYTES_MAX + 32;
    assert_eq!(client.get(&format!("/?{fits}")).text(), "answer");
    assert_eq!(client.get("/?1").text(), "answer");
    server.says("upstream app: stderr: x");
    let more = "upstream app: stderr: one request wrote more than is logged: ";
    assert_eq!(client.get(&format!("/?{}", fits + 1)).text(), "answer");
    server.says(&format!("{more}1 bytes dropped"));
    assert_eq!(server.stderr().matches(more).count(), 1);
    let before = server.stderr().len();
    assert_eq!(client.get(&format!("/?{}", 64 << 20)).text(), "answer");
    wait_until("it is told that there was more", || {
        server.stderr().matches(more).count() == 2
    });
    let told = server.stderr().len() - before;
    assert!(told < 2 * BYTES_MAX, "{told} bytes");
    assert_eq!(backend.connections(), 1);
}

/// An application that writes to standard error without end blocks neither the event loop nor its client.
#[test]
fn endless_stderr_does_not_block_others() {
    let backend = Scripted::unix(|conn| {
        while let Some((request, _)) = conn.read_fastcgi() {
            if request.target == "/" {
                conn.send(answer("Status: 200\r\n\r\nanswer"));
                continue;
            }
            let said = chatter(1 << 20);
            while conn.send(&said) {}
        }
    });
    let server = mounted_with(&backend, "first_byte_timeout = \"1s\"");
    let mut chatting = server.client();
    chatting.send(head("GET", "/for-ever", &[]));
    backend.wait_for_requests(1);
    for _ in 0..10 {
        assert_eq!(server.get("/").text(), "answer");
    }
    chatting.receive().assert_status(504);
}

#[test]
fn hop_by_hop_fields_do_not_pass() {
    let backend =
        saying("Connection: X-Own\nX-Own: 1\nKeep-Alive: 5\nUpgrade: h2c\nX-A: b\n\nbody");
    let answer = mounted(&backend).get("/");
    assert_eq!(answer.field("x-a"), "b");
    for name in ["x-own", "keep-alive", "upgrade"] {
        assert_eq!(answer.header(name), None, "{name}");
    }
}

#[test]
fn a_local_redirect_goes_to_the_client() {
    let answer = mounted(&saying("Location: /elsewhere?a=b\n\n")).get("/");
    answer.assert_status(302);
    assert_eq!(answer.field("location"), "/elsewhere?a=b");
}

/// The body in chunks of this many bytes.
fn chunked(body: &[u8], chunk_bytes: usize) -> Vec<u8> {
    let mut sent = Vec::new();
    for chunk in body.chunks(chunk_bytes) {
        sent.extend(format!("{:x}\r\n", chunk.len()).bytes());
        sent.extend_from_slice(chunk);
        sent.extend(b"\r\n");
    }
    sent.extend(b"0\r\n\r\n");
    sent
}

#[test]
fn a_chunked_body_is_buffered_first() {
    let backend = saying("A: b\n\ndone");
    let server = mounted(&backend);
    let mut client = server.client();
    let body = content(1, 50_000);
    client.send(head(
        "POST",
        "/",
        &[("Transfer-Encoding", "chunked"), ("Expect", "100-continue")],
    ));
    client.receive_head().expect("a head").assert_status(100);
    client.send(chunked(&body, 10_000));
    assert_eq!(client.receive().text(), "done");
    let request = backend.request();
    assert_eq!(request.field("CONTENT_LENGTH"), Some("50000"));
    assert_same(&request.body, &body);
    client.send(head("POST", "/", &[("Transfer-Encoding", "chunked")]));
    let large = content(2, 300_000);
    client.send(chunked(&large, 10_000));
    assert_eq!(client.receive().text(), "done");
    let request = &backend.requests()[1];
    assert_eq!(request.field("CONTENT_LENGTH"), Some("300000"));
    assert_same(&request.body, &large);
}

#[test]
fn a_buffered_body_can_be_sent_again() {
    let leaving = Scripted::unix(|conn| {
        conn.read_fastcgi_head();
        conn.reset();
    });
    let taking = saying("A: b\n\ndone");
    let root = Tree::new();
    let upstream = "balance = \"static\"\nbuffer_requests = true";
    let to = [leaving.address(), taking.address()];
    let server = in_front_of(&to, "fastcgi", upstream, &root, "").start();
    let mut client = server.client();
    let body = content(2, 60_000);
    client.send(head(
        "PUT",
        "/",
        &[("Content-Length", "60000"), ("Expect", "100-continue")],
    ));
    client.receive_head().expect("a head").assert_status(100);
    client.send(&body[..30_000]);
    // All of it must have arrived before a backend gets the request.
    assert_eq!(leaving.connections(), 0);
    client.send(&body[30_000..]);
    assert_eq!(client.receive().text(), "done");
    assert_same(&taking.request().body, &body);
    assert_eq!(leaving.connections(), 1);
}

/// PHP itself, with its scripts as a site.
fn php(site: &str) -> (App, Tree, Server) {
    let (app, root) = (App::php_fpm(), App::php());
    let limits = "[limits]\nbody_bytes = \"100MiB\"\n";
    let upstream = format!("keep_alive = 4\n{limits}");
    let server = in_front_of(&[app.address()], "fastcgi", &upstream, &root, site).start();
    (app, root, server)
}

#[test]
fn php_has_a_front_controller() {
    let (_app, root, server) = php(PHP);
    root.file("style.css", "css");
    root.file("picture.php.txt", "text");
    let folder = root.path().display();
    let mut client = server.client();
    for (path, name, info) in [
        ("/", "/index.php", ""),
        ("/blog/a-post?x=y", "/index.php", ""),
        ("/index.php/some/info", "/index.php", "/some/info"),
        ("/absent.php", "/index.php", ""),
    ] {
        let said = json(&client.get(path).body);
        assert_eq!(said["SCRIPT_NAME"], name, "{path}");
        assert_eq!(
            said["PATH_INFO"].as_str().unwrap_or_default(),
            info,
            "{path}"
        );
        assert_eq!(said["REQUEST_URI"], path);
        assert_eq!(said["SCRIPT_FILENAME"], format!("{folder}{name}"));
        assert_eq!(said["PHP_SELF"], format!("{name}{info}"), "{path}");
    }
    assert_eq!(client.get("/style.css").text(), "css");
    assert_eq!(client.get("/picture.php.txt").text(), "text");
    let answer = client.get("/answer.php?status=404&header[]=X-A:%20b&body=gone");
    assert_eq!(
        (answer.status, answer.field("x-a"), &*answer.text()),
        (404, "b", "gone")
    );
}

/// The scripts are looked up in a folder of the server, and run where php-fpm has them.
#[test]
fn php_has_its_scripts_elsewhere() {
    let (app, there, here) = (App::php_fpm(), App::php(), Tree::new());
    here.file("index.php", "");
    here.file("answer.php", "");
    let folder = there.path().display();
    let site = format!(
        "{PHP}\nscript_root = \"{folder}/\"\nparams.PHP_VALUE = \"default_mimetype = text/x-own\"\n\
         [[site.route]]\npath = \"/own/*\"\nstrip_prefix = \"/own\"\nroot = \"{folder}\"\n{PHP}\nproxy = \"app\""
    );
    let server = started_in_front_of(app.address(), "fastcgi", &here, &site);
    let said = json(&server.get("/absent").body);
    assert_eq!(said["SCRIPT_FILENAME"], format!("{folder}/index.php"));
    assert_eq!(said["DOCUMENT_ROOT"], format!("{folder}/"));
    let answer = server.get("/answer.php?body=b");
    assert!(
        answer.field("content-type").starts_with("text/x-own"),
        "{answer:?}"
    );
    // A script that is only there is not found.
    assert_eq!(
        json(&server.get("/upload.php").body)["SCRIPT_NAME"],
        "/index.php"
    );
    let own = json(&server.get("/own/index.php").body);
    assert_eq!(own["DOCUMENT_ROOT"], folder.to_string());
}

#[test]
fn php_takes_a_large_upload() {
    let (_app, _root, server) = php(PHP);
    let body = content(3, 64 << 20);
    let mut client = server.client();
    for _ in 0..2 {
        let length = body.len().to_string();
        client.send(head("POST", "/upload.php", &[("Content-Length", &length)]));
        client.send(&body);
        let said = json(&client.receive().body);
        assert_eq!(said["length"], body.len());
        assert_eq!(said["sha256"], sha256(&body).as_str());
    }
}

#[test]
fn php_responds_to_head_and_writes_to_stderr() {
    let (_app, _root, server) = php(PHP);
    let mut client: Client = server.client();
    for _ in 0..3 {
        client
            .head("/answer.php?body=b&zeros=200000")
            .assert_status(200);
        let answer = client.get("/stderr.php?say=good-bye");
        assert_eq!(answer.text(), "an answer and its rest");
        assert_eq!(client.get("/answer.php?status=204").status, 204);
    }
    for message in ["before the answer", "within the answer", "good-bye"] {
        server.says(message);
    }
    let large = client.get("/answer.php?zeros=3000000");
    assert_eq!(large.body.len(), 3_000_000);
}

/// Even if `script_suffix` is missing.
#[test]
fn php_sources_are_not_sent_where_a_site_has_an_application() {
    let (backend, root) = (saying("Content-Type: text/plain\r\n\r\nran"), Tree::new());
    for name in ["index.php", "admin/index.php", "a.PHP", "b.php.gz"] {
        root.file(name, "source");
    }
    root.file("plain.txt", "text");
    let files_first = started_in_front_of(
        backend.address(),
        "fastcgi",
        &root,
        "try = [\"file\", \"proxy\"]\nindex = [\"index.php\"]",
    );
    for path in [
        "/",
        "/index.php",
        "/admin/",
        "/a.PHP",
        "/b.php.gz",
        "/index.php/x",
    ] {
        assert_eq!(files_first.get(path).text(), "ran", "{path}");
    }
    assert_eq!(files_first.get("/plain.txt").text(), "text");
    let site = "try = [\"file\"]\nindex = [\"index.php\"]\n[[site.route]]\npath = \"/run\"\ntry = [\"proxy\"]";
    let one_route = started_in_front_of(backend.address(), "fastcgi", &root, site);
    for path in ["/index.php", "/admin/index.php", "/a.PHP", "/b.php.gz"] {
        one_route.get(path).assert_status(404);
    }
    assert_eq!(one_route.get("/run").text(), "ran");
}
