//! Receipts: requests that report to an application how the delivery of a delegated body ended.

use rustix::process::Signal;
use serde_json::Value;

use super::{App, ask, ask_with, launch, roots, upstream};
use crate::support::scripted::{Request, Scripted, ajp, fastcgi};
use crate::support::{Client, Tree, assert_same, content, head, wait_until};

/// More than socket buffers hold.
const LARGE_BYTES: usize = 16 * 1024 * 1024;

/// The received receipts, with their targets.
fn receipts(app: &App) -> Vec<(String, Value)> {
    let is_receipt = |request: &Request| request.target.starts_with("/receipts");
    let requests = app.backend.requests().into_iter().filter(is_receipt);
    requests
        .map(|request| {
            let (media_type, host, result) = match app.protocol {
                "http" => ("content-type", "host", "x-sendfile-receipt"),
                _ => ("CONTENT_TYPE", "HTTP_HOST", "HTTP_X_SENDFILE_RECEIPT"),
            };
            assert_eq!(request.method, "POST");
            assert_eq!(request.field(media_type), Some("application/json"));
            assert_eq!(request.field(host), Some("localhost"));
            let body: Value = serde_json::from_slice(&request.body).expect("JSON");
            assert_eq!(request.field(result), body["result"].as_str());
            (request.target, body)
        })
        .collect()
}

#[track_caller]
fn next(app: &App, count: usize) -> (String, Value) {
    wait_until("the receipt comes", || receipts(app).len() >= count);
    let mut all = receipts(app);
    assert_eq!(all.len(), count, "{all:?}");
    all.pop().expect("one")
}

#[track_caller]
fn assert_tells(receipt: &(String, Value), result: &str, status: u16, bytes: usize) {
    let told = &receipt.1;
    assert_eq!(told["result"], result, "{receipt:?}");
    assert_eq!(
        (&told["status"], &told["bytes"]),
        (&Value::from(status), &Value::from(bytes))
    );
    assert!(
        told["duration_ms"].as_u64().is_some_and(|ms| ms < 20_000),
        "{receipt:?}"
    );
    assert_eq!(told.as_object().map(|fields| fields.len()), Some(4));
}

#[test]
fn of_a_file_that_was_sent() {
    let tree = Tree::new();
    let bytes = tree.filled("large", LARGE_BYTES);
    for app in App::both() {
        let server = app
            .launch(&roots("sendfile_roots", tree.path()), "")
            .start();
        let mut client = server.client();
        let file = format!("X-Sendfile: {}/large", tree.path().display());
        let lines = [&file[..], "X-Sendfile-Receipt: /receipts?job=1%202"];
        assert_same(&ask(&mut client, &lines).body, &bytes);
        let receipt = next(&app, 1);
        assert_eq!(receipt.0, "/receipts?job=1%202");
        assert_tells(&receipt, "complete", 200, LARGE_BYTES);
        ask_with(&mut client, "GET", &lines, &[("Range", "bytes=5-14")]).assert_status(206);
        assert_tells(&next(&app, 2), "complete", 206, 10);
        ask_with(&mut client, "GET", &lines, &[("If-None-Match", "*")]).assert_status(304);
        assert_tells(&next(&app, 3), "complete", 304, 0);
        ask_with(&mut client, "HEAD", &lines, &[]).assert_status(200);
        assert_tells(&next(&app, 4), "complete", 200, 0);
        let parts = format!(
            "X-Sendfile2: {0}/large 0-9, {0}/large 3-",
            tree.path().display()
        );
        ask(&mut client, &[&parts, lines[1]]).assert_status(200);
        assert_tells(&next(&app, 5), "complete", 200, LARGE_BYTES + 7);
        // Of a file that could not be sent.
        ask(&mut client, &["X-Sendfile: /etc/passwd", lines[1]]).assert_status(502);
        let receipt = next(&app, 6);
        assert_eq!(
            (&receipt.1["result"], &receipt.1["status"]),
            (&"refused".into(), &502.into())
        );
        let absent = format!("X-Sendfile: {}/absent", tree.path().display());
        ask(&mut client, &[&absent, lines[1]]).assert_status(404);
        assert_eq!(next(&app, 7).1["result"], "refused");
        // Without a delegation there is no receipt.
        assert_eq!(ask(&mut client, &[lines[1]]).text(), "body");
        ask(&mut client, &[&file, lines[1]]).assert_status(200);
        assert_tells(&next(&app, 8), "complete", 200, LARGE_BYTES);
    }
}

#[test]
fn of_a_client_that_disconnects() {
    let tree = Tree::new();
    tree.filled("large", LARGE_BYTES);
    for app in App::both() {
        let server = app
            .launch(&roots("sendfile_roots", tree.path()), "")
            .start();
        let mut client = Client::narrow(server.address());
        let file = format!(
            "X-Sendfile: {}/large|X-Sendfile-Receipt: /receipts",
            tree.path().display()
        );
        client.send(head("GET", "/", &[("Accept-Say", &file)]));
        client.receive_head().expect("a head").assert_status(200);
        drop(client);
        let told = next(&app, 1).1;
        assert_eq!(
            (&told["result"], &told["status"]),
            (&"aborted".into(), &200.into())
        );
        assert!(
            told["bytes"]
                .as_u64()
                .is_some_and(|bytes| bytes < LARGE_BYTES as u64),
            "{told}"
        );
    }
}

/// Content of a temporary file, of an internal route, and of another upstream.
#[test]
fn of_every_kind_of_delegation() {
    let tree = Tree::inside("/dev/shm".as_ref());
    tree.chmod("", 0o777);
    let path = tree.file("file", "content");
    let other = Scripted::tcp(|conn| {
        while conn.read_request().is_some() {
            conn.answer("200 OK", "other");
        }
    });
    let app = App::http();
    let routes = format!(
        "[[site.route]]\npath = \"/files/*\"\nroot = \"{}\"\nstrip_prefix = \"/files\"\ninternal = true\n\
         [[site.route]]\npath = \"/other\"\nproxy = \"other\"\ninternal = true\n",
        tree.path().display()
    );
    let tables = app.upstream(&roots("temporary_roots", tree.path()))
        + &upstream("other", "http", &other, "");
    let server = launch(&tables, &routes).start();
    let mut client = server.client();
    let temporary = format!("X-Sendfile-Temporary: {}", path.display());
    for (count, (wish, bytes)) in [
        ("X-Accel-Redirect: /files/file", 7),
        ("X-Accel-Redirect: /other", 5),
        (&temporary, 7),
    ]
    .into_iter()
    .enumerate()
    {
        ask(&mut client, &[wish, "X-Sendfile-Receipt: /receipts"]).assert_status(200);
        assert_tells(&next(&app, count + 1), "complete", 200, bytes);
    }
    wait_until("the name is removed", || !path.exists());
}

#[test]
fn that_cannot_be_delivered() {
    let tree = Tree::new();
    let file = tree.file("file", "content");
    let keys = roots("sendfile_roots", tree.path());
    let backend = Scripted::tcp(move |conn| {
        let Some(request) = conn.read_request() else {
            return;
        };
        match request.target.as_str() {
            "/refused" => drop(conn.answer("500 Broken", "x")),
            "/cut" => {}
            "/bad" => drop(conn.send("nonsense\r\n\r\n")),
            path => {
                let to = path.replace("/for", "");
                let file = file.display();
                conn.send(format!(
                    "HTTP/1.1 200 OK\r\nX-Sendfile: {file}\r\nX-Sendfile-Receipt: {to}\r\n\
                     Connection: close\r\nContent-Length: 0\r\n\r\n"
                ));
            }
        }
    });
    let server = launch(&upstream("app", "http", &backend, &keys), "").start();
    for (path, reason) in [
        ("/refused", "it was answered 500"),
        (
            "/cut",
            "the connection was closed before the end of the response header",
        ),
        ("/bad", "bad HTTP version"),
    ] {
        let answer = server.get(&format!("/for{path}"));
        assert_eq!((answer.status, answer.text()), (200, "content".into()));
        let line = server.says(&format!("upstream app: no receipt for {path}: "));
        assert!(line.contains(reason), "{line}");
        assert!(
            line.contains("{\"result\":\"complete\",\"status\":200,\"bytes\":7,"),
            "{line}"
        );
    }
    server.get("/fornowhere").assert_status(200);
    server.says("upstream app: no receipt for nowhere: ");
}

/// A reused connection may end at any time, and the receipt may have been processed all the same.
#[test]
fn that_is_sent_at_most_once() {
    let tree = Tree::new();
    let file = tree.file("file", "content").display().to_string();
    let backend = Scripted::tcp(move |conn| {
        let mut is_kept = false;
        while let Some(request) = conn.read_request() {
            let to = match request.target.as_str() {
                "/cut" => return,
                "/receipts" if is_kept => return,
                "/receipts" => {
                    conn.send("HTTP/1.1 204 No Content\r\n\r\n");
                    is_kept = true;
                    continue;
                }
                target => target.replace("/for", ""),
            };
            conn.send(format!(
                "HTTP/1.1 200 OK\r\nX-Sendfile: {file}\r\nX-Sendfile-Receipt: {to}\r\n\
                 Content-Length: 0\r\n\r\n"
            ));
            is_kept = true;
        }
    });
    let keys = roots("sendfile_roots", tree.path());
    let server = launch(&upstream("app", "http", &backend, &keys), "").start();
    let posted = |path: &str| {
        let requests = backend.requests().into_iter();
        requests.filter(|request| request.target == path).count()
    };
    assert_eq!(server.get("/for/cut").text(), "content");
    server.says("upstream app: no receipt for /cut: the connection was closed before");
    assert_eq!(posted("/cut"), 1);
    for count in 1..=2 {
        assert_eq!(server.get("/for/receipts").text(), "content");
        wait_until("the receipt comes", || posted("/receipts") >= count);
    }
    assert_eq!((posted("/receipts"), posted("/cut")), (2, 1));
}

/// Containers read a body to its end, and request more after that.
#[cfg(feature = "ajp")]
#[test]
fn that_a_container_reads_to_the_end() {
    let tree = Tree::new();
    let file = tree.file("file", "content").display().to_string();
    let backend = Scripted::tcp(move |conn| {
        while let Some(request) = conn.read_ajp() {
            let head = match request.target.as_str() {
                "/receipts" => {
                    conn.send(ajp::get_body_chunk(100));
                    assert_eq!(conn.read_packet().expect("a packet"), b"");
                    ajp::send_headers(204, &[])
                }
                _ => ajp::send_headers(
                    200,
                    &[("X-Sendfile", &file), ("X-Sendfile-Receipt", "/receipts")],
                ),
            };
            conn.send([head, ajp::end(true)].concat());
            if request.target == "/receipts" {
                // Read to its end, so that the connection is reused.
                conn.keep(request);
            }
        }
    });
    let keys = roots("sendfile_roots", tree.path());
    let server = launch(&upstream("app", "ajp13", &backend, &keys), "").start();
    assert_eq!(server.get("/").text(), "content");
    // Once when it has come, and once more when it has been answered.
    backend.wait_for_requests(3);
    assert_eq!(server.get("/").text(), "content");
    backend.wait_for_requests(6);
}

#[test]
fn of_a_backend_that_is_down() {
    let tree = Tree::new();
    tree.filled("large", LARGE_BYTES);
    let app = App::http();
    let server = app
        .launch(&roots("sendfile_roots", tree.path()), "")
        .start();
    let mut client = Client::narrow(server.address());
    let line = format!(
        "X-Sendfile: {}/large|X-Sendfile-Receipt: /gone",
        tree.path().display()
    );
    client.send(head("GET", "/", &[("Accept-Say", &line)]));
    client.receive_head().expect("a head").assert_status(200);
    drop(app);
    assert_same(
        &client.read_exactly(LARGE_BYTES),
        &content(LARGE_BYTES as u64, LARGE_BYTES),
    );
    let line = server.says("upstream app: no receipt for /gone: ");
    assert!(line.contains("cannot connect"), "{line}");
    let told = server.stderr();
    assert_eq!(told.matches("no receipt").count(), 1, "{told}");
}

/// The one that is down cannot have acted on it.
#[test]
fn in_place_of_a_backend_that_is_down() {
    let tree = Tree::new();
    let file = format!("X-Sendfile: {}", tree.file("file", "content").display());
    let app = App::http();
    let keys = roots("sendfile_roots", tree.path());
    let tables = format!(
        "[[upstream]]\nname = \"app\"\nto = [\"unix:{{own}}/absent\", \"{}\"]\nbalance = \"carp\"\n\
         fail_after = 1000\n{keys}",
        app.backend.address()
    );
    let server = launch(&tables, "").start();
    // For about half of these paths it comes first.
    for count in 1..=8 {
        let receipt = format!("X-Sendfile-Receipt: /receipts/{count}");
        ask(&mut server.client(), &[&file, &receipt]).assert_status(200);
        assert_tells(&next(&app, count), "complete", 200, 7);
    }
}

/// The header that marks a receipt does not pass from clients, in any spelling.
#[test]
fn that_clients_cannot_send() {
    for app in App::both() {
        let server = app.launch("", "").start();
        let forged = [
            ("Content-Length", "0"),
            ("X-Sendfile-Receipt", "complete"),
            ("X_Sendfile_Receipt", "complete"),
            ("x-sendfile_receipt", "complete"),
        ];
        let mut client = server.client();
        client
            .request("POST", "/receipts", &forged)
            .assert_status(200);
        let request = app.backend.request();
        let names = request.fields.iter().map(|(name, _)| name.to_lowercase());
        let found: Vec<_> = names.filter(|name| name.contains("receipt")).collect();
        assert!(found.is_empty(), "{found:?}");
    }
}

/// `strip_prefix` does not apply to the path of a receipt.
#[test]
fn with_the_path_that_was_named() {
    let tree = Tree::new();
    let file = format!("X-Sendfile: {}", tree.file("file", "content").display());
    let app = App::http();
    let route =
        "[[site.route]]\npath = \"/receipts/*\"\nproxy = \"app\"\nstrip_prefix = \"/receipts\"\n";
    let server = app
        .launch(&roots("sendfile_roots", tree.path()), route)
        .start();
    let line = format!("{file}|X-Sendfile-Receipt: /receipts/a%2Fb");
    let answer = server.get_with("/receipts/file", &[("Accept-Say", &line)]);
    assert_eq!(answer.text(), "content");
    assert_eq!(app.backend.requests()[0].target, "/file");
    assert_eq!(next(&app, 1).0, "/receipts/a%2Fb");
}

#[test]
fn for_a_request_without_a_host() {
    let tree = Tree::new();
    let file = format!("X-Sendfile: {}", tree.file("file", "content").display());
    let app = App::http();
    let server = app
        .launch(&roots("sendfile_roots", tree.path()), "")
        .start();
    let mut client = server.client();
    let line = format!("Accept-Say: {file}|X-Sendfile-Receipt: /told");
    client.send(format!("GET / HTTP/1.0\r\n{line}\r\n\r\n"));
    assert_eq!(client.receive().text(), "content");
    app.backend.wait_for_requests(2);
    let told = app.backend.requests().pop().expect("the receipt");
    assert_eq!((&*told.target, told.field("host")), ("/told", Some("")));
}

/// Requests each of these paths once from four backends, which are balanced by `keys` and delegate to a file with a
/// receipt at the same path. Asserts that each backend gets the receipts of its own responses.
#[track_caller]
fn assert_backends_get_their_receipts(keys: &str, paths: std::ops::Range<usize>) {
    let tree = Tree::new();
    let file = tree.file("file", "content").display().to_string();
    let backends = [(); 4].map(|()| {
        let file = file.clone();
        Scripted::tcp(move |conn| {
            while let Some(request) = conn.read_request() {
                let target = request.target;
                let _ = match request.method.as_str() {
                    "POST" => conn.send("HTTP/1.1 204 No Content\r\n\r\n"),
                    _ => conn.send(format!(
                        "HTTP/1.1 200 OK\r\nX-Sendfile: {file}\r\nX-Sendfile-Receipt: {target}\r\n\
                         Content-Length: 0\r\n\r\n"
                    )),
                };
            }
        })
    });
    let to: Vec<_> = backends.iter().map(|one| one.address()).collect();
    let tables = format!(
        "[[upstream]]\nname = \"app\"\nto = {to:?}\n{keys}\n{}",
        roots("sendfile_roots", tree.path())
    );
    let server = launch(&tables, "").start();
    for path in paths.clone() {
        assert_eq!(server.get(&format!("/{path}")).text(), "content");
    }
    let all = || {
        backends
            .iter()
            .map(|one| one.requests().len())
            .sum::<usize>()
    };
    wait_until("the receipts come", || all() == 2 * paths.len());
    for backend in &backends {
        let of = |method: &str| {
            let requests = backend.requests().into_iter();
            let same = requests.filter(|request| request.method == method);
            let mut targets: Vec<_> = same.map(|request| request.target).collect();
            targets.sort();
            targets
        };
        assert_eq!(of("GET"), of("POST"));
    }
}

/// `balance = "carp"` applies to receipts.
#[test]
fn for_the_backend_selected_by_the_path() {
    assert_backends_get_their_receipts("balance = \"carp\"", 0..16);
}

/// `sticky` applies to receipts.
#[test]
fn for_the_backend_that_the_client_is_bound_to() {
    assert_backends_get_their_receipts("sticky = \"cookie:route\"", 0..16);
}

/// An internal route is closed to clients, but not to the server.
#[test]
fn behind_an_internal_route() {
    let tree = Tree::new();
    let file = format!("X-Sendfile: {}", tree.file("file", "content").display());
    let app = App::http();
    let route = "[[site.route]]\npath = \"/receipts\"\nproxy = \"app\"\ninternal = true\n";
    let server = app
        .launch(&roots("sendfile_roots", tree.path()), route)
        .start();
    let mut client = server.client();
    let posted = client.request("POST", "/receipts", &[("Content-Length", "0")]);
    posted.assert_status(404);
    ask(&mut client, &[&file, "X-Sendfile-Receipt: /receipts"]).assert_status(200);
    assert_tells(&next(&app, 1), "complete", 200, 7);
}

/// The header says that the request is not from a client.
#[test]
fn after_a_header_of_the_proxy_protocol() {
    let tree = Tree::new();
    let file = tree.file("file", "content").display().to_string();
    let backend = Scripted::tcp(move |conn| {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.extend(conn.read_exactly(1));
        }
        let request = conn.read_request().expect("a request");
        let is_receipt = request.target == "/receipt";
        assert_eq!(
            line == b"PROXY UNKNOWN\r\n",
            is_receipt,
            "{}",
            line.escape_ascii()
        );
        conn.send(match is_receipt {
            true => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
            false => format!(
                "HTTP/1.1 200 OK\r\nX-Sendfile: {file}\r\nX-Sendfile-Receipt: /receipt\r\nContent-Length: 0\r\n\r\n"
            ),
        });
    });
    let keys = roots("sendfile_roots", tree.path()) + "proxy_protocol = \"v1\"";
    let server = launch(&upstream("app", "http", &backend, &keys), "").start();
    for _ in 0..2 {
        assert_eq!(server.get("/").text(), "content");
    }
    backend.wait_for_requests(4);
}

/// Applications that require https would redirect another scheme.
#[test]
fn by_the_scheme_of_the_client() {
    let tree = Tree::new();
    let file = format!("X-Sendfile: {}", tree.file("file", "content").display());
    let app = App::http();
    let tables = "[server]\ntrusted_proxies = [\"127.0.0.0/8\"]\n".to_owned()
        + &app.upstream(&roots("sendfile_roots", tree.path()));
    let server = launch(&tables, "").start();
    let more = [
        ("X-Forwarded-For", "192.0.2.1"),
        ("X-Forwarded-Proto", "https"),
    ];
    let lines = [&file[..], "X-Sendfile-Receipt: /receipts"];
    ask_with(&mut server.client(), "GET", &lines, &more).assert_status(200);
    next(&app, 1);
    let receipt = app.backend.requests().pop().expect("a request");
    assert_eq!(receipt.field("x-forwarded-proto"), Some("https"));
    assert_ne!(receipt.field("x-forwarded-for"), Some("192.0.2.1"));
    assert_eq!(receipt.field("accept-say"), None);
}

/// Even if the sources of a PHP site are kept from clients because `script_suffix` is missing.
#[test]
fn to_an_application_without_configured_scripts() {
    let tree = Tree::new();
    let file = format!("X-Sendfile: {}", tree.file("file", "content").display());
    let (app, root) = (App::fastcgi(), Tree::new());
    root.file("x.php", "source");
    let site = format!("root = \"{}\"\n", root.path().display());
    let server = app
        .launch(&roots("sendfile_roots", tree.path()), &site)
        .start();
    let mut client = server.client();
    for (count, path) in ["/receipts", "/x.php", "/receipts/absent.php"]
        .iter()
        .enumerate()
    {
        let line = format!("X-Sendfile-Receipt: {path}");
        ask(&mut client, &[&file, &line]).assert_status(200);
        app.backend.wait_for_requests(2 * count + 2);
        let receipt = app.backend.requests().pop().expect("a receipt");
        assert_eq!((&*receipt.method, &*receipt.target), ("POST", *path));
    }
}

/// In a newer configuration the path may have another route, or none.
#[test]
fn with_the_configuration_of_the_request() {
    let (old, new) = (Tree::new(), Tree::new());
    for name in ["answer.php", "receipt.php"] {
        old.file(name, "");
    }
    let file = old.file("file", "content").display().to_string();
    let app = Scripted::tcp(move |conn| {
        while let Some((request, _)) = conn.read_fastcgi() {
            let answer = match request.method.as_str() {
                "POST" => "Status: 200 OK\r\n\r\n".to_owned(),
                _ => {
                    conn.stall();
                    format!("X-Sendfile: {file}\r\nX-Sendfile-Receipt: /receipt.php\r\n\r\n")
                }
            };
            conn.send(fastcgi::answer(answer));
        }
    });
    let keys = roots("sendfile_roots", old.path());
    let folders = [&old, &new].map(|tree| format!("root = \"{}\"", tree.path().display()));
    let site = format!("script_suffix = \".php\"\n{}\n", folders[0]);
    let server = launch(&upstream("app", "fastcgi", &app, &keys), &site).start();
    let mut client = server.client();
    client.send(head("GET", "/answer.php", &[]));
    app.wait_for_requests(1);
    server.reload(&[&folders[0]], &[&folders[1]]);
    app.release();
    assert_eq!(client.receive().text(), "content");
    app.wait_for_requests(2);
    let script = old.at("receipt.php").display().to_string();
    let receipt = app.requests().pop().expect("a receipt");
    assert_eq!(receipt.field("SCRIPT_FILENAME"), Some(script.as_str()));
}

/// The script is found as for clients.
#[test]
fn to_a_script() {
    let (php, files, folder) = (crate::support::App::php(), Tree::new(), Tree::new());
    folder.chmod("", 0o777);
    let told = folder.at("told");
    let script = format!(
        "<?php file_put_contents('{}', file_get_contents('php://input') . $_SERVER['HTTP_HOST'] . $_GET['id']);",
        told.display()
    );
    php.file("receipts.php", script);
    let file = files.file("file", "content");
    let fpm = crate::support::App::php_fpm();
    let server = crate::support::Launch::run(&format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"php\"\nprotocol = \"fastcgi\"\n\
         to = [\"{}\"]\n{}[[site]]\nroot = \"{}\"\nproxy = \"php\"\nscript_suffix = \".php\"\n",
        fpm.address(),
        roots("sendfile_roots", files.path()),
        php.path().display()
    ))
    .start();
    let target = format!(
        "/answer.php?header[]=X-Sendfile:%20{}&header[]=X-Sendfile-Receipt:%20/receipts.php?id=5",
        file.display()
    );
    assert_eq!(server.get(&target).text(), "content");
    let text = || std::fs::read_to_string(&told).unwrap_or_default();
    wait_until("the script has been run", || text().ends_with("localhost5"));
    assert!(
        text().starts_with("{\"result\":\"complete\",\"status\":200,\"bytes\":7,"),
        "{}",
        text()
    );
    // A receipt that is sent during a reload finds its script too.
    let bytes = files.filled("large", LARGE_BYTES);
    let target = target
        .replace(
            &*file.to_string_lossy(),
            &files.at("large").to_string_lossy(),
        )
        .replace("id=5", "id=6");
    let mut client = Client::narrow(server.address());
    client.send(head("GET", &target, &[]));
    client.receive_head().expect("a head");
    let config = std::fs::read_to_string(server.config()).expect("configuration");
    let config = config.replace("protocol = ", "retry.times = 0\nprotocol = ");
    std::fs::write(server.config(), config).expect("write");
    server.signal(Signal::HUP);
    server.says("(changed)");
    assert_same(&client.read_exactly(LARGE_BYTES), &bytes);
    wait_until("the script has been run", || text().ends_with("localhost6"));
}
