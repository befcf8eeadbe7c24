//! Uploads that continue after an interruption.

use super::*;

const TOTAL: usize = 500_000;

fn range(first: usize, last: usize) -> String {
    format!("bytes {first}-{last}/{TOTAL}")
}

/// Sends `body` from `first` to `last` as a part of it.
fn part(server: &Server, path: &str, body: &[u8], first: usize, last: usize) -> Answer {
    let range = range(first, last);
    let headers = [("Content-Range", range.as_str())];
    put(&mut server.client(), path, &headers, &body[first..=last])
}

/// Asks how much of a file there is.
fn ask(server: &Server, path: &str) -> Answer {
    let range = format!("bytes */{TOTAL}");
    put(
        &mut server.client(),
        path,
        &[("Content-Range", &range)],
        b"",
    )
}

/// Begins to send `body` and leaves after `sent` bytes.
fn cut(server: &Server, path: &str, body: &[u8], sent: usize) {
    let aborted = uploads(server, "aborted");
    let mut client = server.client();
    let length = body.len().to_string();
    client.send(head("PUT", path, &[("Content-Length", &length)]));
    client.send(&body[..sent]);
    drop(client);
    wait_until("it is given up", || uploads(server, "aborted") > aborted);
}

per_engine! {
    fn a_cut_upload_is_continued(engine) {
        let root = writable();
        let server = taking(root.path(), "").engine(engine).start();
        let body = content(5, TOTAL);
        ask(&server, "/file").assert_status(308);
        assert_eq!(ask(&server, "/file").header("range"), None);
        cut(&server, "/file", &body, 200_001);
        let known = ask(&server, "/file");
        known.assert_status(308);
        assert_eq!(known.field("range"), "bytes=0-200000", "all that was sent is kept");
        assert!(!root.at("file").exists());
        for wrong in [1, 200_000, 200_002] {
            let answer = part(&server, "/file", &body, wrong, TOTAL - 1);
            answer.assert_status(409);
            assert_eq!(answer.field("range"), "bytes=0-200000");
        }
        let next = part(&server, "/file", &body, 200_001, 300_000);
        next.assert_status(308);
        assert_eq!(next.field("range"), "bytes=0-300000");
        part(&server, "/file", &body, 300_001, TOTAL - 1).assert_status(201);
        assert!(server.get("/file").body == body);
        assert_eq!(ask(&server, "/file").header("range"), None);
        assert_nothing_is_left(&server, root.path());
        assert_eq!(uploads(&server, "part"), 5.0, "one part, and four questions");
    }

    fn nothing_is_left_wherever_it_is_cut(engine) {
        let root = writable();
        let server = taking(root.path(), "resume = \"0s\"").engine(engine).start();
        let body = content(5, TOTAL);
        for sent in [0, 1, 65_535, 65_536, 65_537, 131_072, 499_999] {
            cut(&server, "/file", &body, sent);
            assert_nothing_is_left(&server, root.path());
            let answer = part(&server, "/file", &body, sent.max(1), TOTAL - 1);
            answer.assert_status(400);
        }
        assert_eq!(names(root.path()), [""; 0]);
        for chunk in ["", "5\r\n12345", "5\r\n12345\r\nx"] {
            let aborted = uploads(&server, "aborted");
            let mut client = server.client();
            client.send(head("PUT", "/file", &[("Transfer-Encoding", "chunked")]));
            client.send(chunk);
            drop(client);
            wait_until("it is given up", || uploads(&server, "aborted") > aborted);
        }
        assert_eq!(names(root.path()), [""; 0]);
        assert_nothing_is_left(&server, root.path());
    }
}

#[test]
fn parts_of_other_files_lengths_and_users_do_not_mix() {
    let (root, own) = (writable(), Tree::new());
    // Both have the password `secret`.
    let line = |user: &str| {
        let mut passwd = std::process::Command::new(env!("CARGO_BIN_EXE_levity"));
        passwd.args(["passwd", user]);
        passwd.stdin(std::process::Stdio::piped());
        passwd.stdout(std::process::Stdio::piped());
        let mut child = passwd.spawn().expect("levity");
        let mut stdin = child.stdin.take().expect("stdin");
        std::io::Write::write_all(&mut stdin, b"secret\n").expect("write");
        drop(stdin);
        let output = child.wait_with_output().expect("output");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    own.file("users", line("a") + &line("b"));
    let keys = format!(
        "basic_auth = {{ users = \"{}\" }}\nupload = {{}}\n[admin]\nlisten = \"unix:{{own}}/admin\"\n",
        own.at("users").display()
    );
    let server = Launch::site(root.path(), "", &keys).start();
    let (a, b) = ("Basic YTpzZWNyZXQ=", "Basic YjpzZWNyZXQ=");
    let body = content(5, TOTAL);
    let send = |user: &str, path: &str, range: &str, body: &[u8]| {
        let headers = [("Authorization", user), ("Content-Range", range)];
        put(&mut server.client(), path, &headers, body)
    };
    send(a, "/file", &range(0, 99), &body[..100]).assert_status(308);
    for (user, path, range) in [
        (b, "/file", range(100, TOTAL - 1)),
        (a, "/other", range(100, TOTAL - 1)),
    ] {
        let answer = send(user, path, &range, &body[100..]);
        answer.assert_status(409);
        assert_eq!(answer.header("range"), None, "{path}");
    }
    let other = format!("bytes 100-{}/{}", TOTAL - 2, TOTAL - 1);
    send(a, "/file", &other, &body[100..TOTAL - 1]).assert_status(409);
    send(a, "/file", &range(100, TOTAL - 1), &body[100..]).assert_status(201);
    assert!(fs::read(root.at("file")).expect("a file") == body);
}

#[test]
fn a_part_is_received_on_one_connection_at_a_time() {
    let root = writable();
    let server = taking(root.path(), "").start();
    let body = content(5, TOTAL);
    let length = TOTAL.to_string();
    let mut first = server.client();
    first.send(head("PUT", "/file", &[("Content-Length", &length)]));
    first.send(&body[..100_000]);
    wait_until("it has begun", || open_unnamed(&server, root.path()) == 1);
    let answer = ask(&server, "/file");
    answer.assert_status(409);
    assert_eq!(answer.field("retry-after"), "1");
    part(&server, "/file", &body, 100_000, TOTAL - 1).assert_status(409);
    part(&server, "/file", &body, 0, 99).assert_status(409);
    // A whole file needs no part.
    put_new(&server, "/file", &body).assert_status(201);
    first.send(&body[100_000..]);
    first.receive().assert_status(204);
    // A new start replaces what is kept.
    cut(&server, "/file", &body, 1000);
    part(&server, "/file", &body, 0, 499).assert_status(308);
    assert_eq!(ask(&server, "/file").field("range"), "bytes=0-499");
}

#[test]
fn parts_are_kept_for_a_while_and_not_many() {
    let root = writable();
    let server = taking(root.path(), "resume_parts = 2, resume = \"300ms\"").start();
    let body = content(5, TOTAL);
    for path in ["/a", "/b", "/c"] {
        part(&server, path, &body, 0, 99).assert_status(308);
    }
    wait_until("all have expired", || {
        let left = ["/a", "/b", "/c"].map(|path| ask(&server, path).header("range").is_some());
        left == [false; 3]
    });
    assert_nothing_is_left(&server, root.path());
    let server = taking(root.path(), "resume_parts = 2").start();
    for path in ["/a", "/b", "/c"] {
        part(&server, path, &body, 0, 99).assert_status(308);
    }
    let left = ["/a", "/b", "/c"].map(|path| ask(&server, path).header("range").is_some());
    assert_eq!(left, [false, true, true]);
    // They survive a reload.
    server.reload(&["resume_parts = 2"], &["resume_parts = 3"]);
    part(&server, "/b", &body, 100, TOTAL - 1).assert_status(201);
}

#[test]
fn wrong_ranges_are_refused() {
    let root = writable();
    let server = taking(root.path(), "max_file_bytes = \"1MiB\"").start();
    let body = content(5, 100);
    for (range, status) in [
        ("bytes 0-99/*", 400),
        ("bytes 0-98/1000", 400),
        ("bytes 0-100/1000", 400),
        ("bytes 99-0/1000", 400),
        ("items 0-99/1000", 400),
        ("bytes */1000", 400),
        ("bytes 0-99/1048577", 413),
        ("bytes 0-99/1048576", 308),
        ("bytes 0-99/100", 201),
    ] {
        let answer = put(
            &mut server.client(),
            "/file",
            &[("Content-Range", range)],
            &body,
        );
        assert_eq!(answer.status, status, "{range}");
    }
    let twice = [
        ("Content-Range", "bytes 0-99/100"),
        ("Content-Range", "bytes 0-99/100"),
    ];
    put(&mut server.client(), "/file", &twice, &body).assert_status(400);
    // More than the range says, in chunks.
    let mut client = server.client();
    let headers = [
        ("Transfer-Encoding", "chunked"),
        ("Content-Range", "bytes 0-3/10"),
    ];
    client.send(head("PUT", "/chunked", &headers));
    client.send("5\r\n12345\r\n0\r\n\r\n");
    client.receive().assert_status(413);
    // Less: what has arrived is kept.
    let mut client = server.client();
    client.send(head("PUT", "/chunked", &headers));
    client.send("3\r\n123\r\n0\r\n\r\n");
    let answer = client.receive();
    answer.assert_status(308);
    assert_eq!(answer.field("range"), "bytes=0-2");
}
