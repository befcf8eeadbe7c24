//! Conditions of requests, and two clients that change one name.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::*;

per_engine! {
    fn conditions_are_those_of_the_present_file(engine) {
        let root = writable();
        let server = taking(root.path(), ALL).engine(engine).start();
        let mut client = server.client();
        let mut put = |headers: &[(&str, &str)]| put(&mut client, "/file", headers, b"1");
        put(&[("If-Match", "*")]).assert_status(412);
        put(&[("If-Match", "\"a\"")]).assert_status(412);
        let first = put(&[("If-None-Match", "*")]);
        first.assert_status(201);
        put(&[("If-None-Match", "*")]).assert_status(412);
        let first = first.field("etag").to_owned();
        put(&[("If-None-Match", &first)]).assert_status(412);
        let second = put(&[("If-Match", &first)]);
        second.assert_status(204);
        let second = second.field("etag").to_owned();
        assert_ne!(first, second, "another version");
        put(&[("If-Match", &first)]).assert_status(412);
        let past = [("If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:37 GMT")];
        put(&past).assert_status(412);
        let future = [("If-Unmodified-Since", "Sun, 06 Nov 2094 08:49:37 GMT")];
        put(&future).assert_status(204);
        let mut client = server.client();
        client.request("DELETE", "/file", &[("If-Match", &first)]).assert_status(412);
        let now = client.get("/file").field("etag").trim_start_matches("W/").to_owned();
        client.request("DELETE", "/file", &[("If-Match", &now)]).assert_status(204);
        // A condition about a file that is not there does not apply.
        let mut client = server.client();
        super::put(&mut client, "/file", &past, b"1").assert_status(201);
    }
}

#[test]
fn a_condition_is_checked_before_the_body_is_sent() {
    let root = writable();
    root.file("file", "1");
    let server = taking(root.path(), "overwrite = false").start();
    for (path, header, status) in [
        ("/file", ("If-None-Match", "*"), 412),
        ("/new", ("If-Match", "*"), 412),
        ("/file", ("X-None", ""), 409),
        ("/absent/file", ("X-None", ""), 409),
    ] {
        let mut client = server.client();
        let headers = [
            header,
            ("Content-Length", "9000000"),
            ("Expect", "100-continue"),
        ];
        client.send(head("PUT", path, &headers));
        client.receive().assert_status(status);
    }
    let mut client = server.client();
    client.send(head(
        "PUT",
        "/new",
        &[("Content-Length", "2"), ("Expect", "100-continue")],
    ));
    client.receive().assert_status(100);
    client.send("12");
    client.receive().assert_status(201);
}

/// The condition held when the upload began, and does not when it ends.
#[test]
fn a_condition_is_checked_again_at_the_end() {
    let root = writable();
    let server = taking(root.path(), "").start();
    let first = put_new(&server, "/file", b"first");
    let mut late = server.client();
    let etag = first.field("etag");
    late.send(head(
        "PUT",
        "/file",
        &[("Content-Length", "4"), ("If-Match", etag)],
    ));
    late.send("la");
    let mut new = server.client();
    new.send(head(
        "PUT",
        "/new",
        &[("Content-Length", "4"), ("If-None-Match", "*")],
    ));
    new.send("ne");
    wait_until("both have begun", || {
        open_unnamed(&server, root.path()) == 2
    });
    put_new(&server, "/file", b"second").assert_status(204);
    put_new(&server, "/new", b"second").assert_status(201);
    late.send("te");
    late.receive().assert_status(412);
    new.send("w!");
    new.receive().assert_status(412);
    assert_eq!(server.get("/file").text(), "second");
    assert_eq!(server.get("/new").text(), "second");
    assert_nothing_is_left(&server, root.path());
}

/// Clients count in one file: each reads the number, adds one and writes it if nobody else has. No step is lost.
#[test]
fn no_update_is_lost() {
    const CLIENTS: usize = 8;
    const STEPS: usize = 12;
    let root = writable();
    let server = taking(root.path(), "").workers(4).start();
    put_new(&server, "/count", b"0").assert_status(201);
    let conflicts = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = server.client();
                let mut done = 0;
                while done < STEPS {
                    let found = client.get("/count");
                    let number: usize = found.text().parse().expect("a number");
                    let etag = found.field("etag").trim_start_matches("W/");
                    let next = (number + 1).to_string();
                    let answer = put(
                        &mut client,
                        "/count",
                        &[("If-Match", etag)],
                        next.as_bytes(),
                    );
                    match answer.status {
                        204 => done += 1,
                        412 => drop(conflicts.fetch_add(1, Ordering::Relaxed)),
                        _ => panic!("{answer:?}"),
                    }
                }
            });
        }
    });
    let expected = (CLIENTS * STEPS).to_string();
    assert_eq!(server.get("/count").text(), expected);
    assert!(conflicts.into_inner() > 0, "they never met");
}

/// Of many that create one name, one does.
#[test]
fn one_of_many_creates_a_name() {
    for keys in ["overwrite = false", "methods = [\"PUT\"]"] {
        let root = writable();
        let server = taking(root.path(), keys).workers(4).start();
        let created = AtomicUsize::new(0);
        thread::scope(|scope| {
            for number in 0..16 {
                let (created, server) = (&created, &server);
                scope.spawn(move || {
                    let body = content(number, 70_000);
                    let headers = [("If-None-Match", "*")];
                    let answer = put(&mut server.client(), "/file", &headers, &body);
                    match answer.status {
                        201 => drop(created.fetch_add(1, Ordering::Relaxed)),
                        409 | 412 => {}
                        _ => panic!("{answer:?}"),
                    }
                });
            }
        });
        assert_eq!(created.into_inner(), 1);
        assert_nothing_is_left(&server, root.path());
    }
}

/// Readers get one version or another, whole.
#[test]
fn readers_never_see_a_part() {
    let root = writable();
    let server = taking(root.path(), "").workers(2).start();
    let versions: Vec<_> = (0..4u8).map(|number| vec![number; 300_000]).collect();
    put_new(&server, "/file", &versions[0]).assert_status(201);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut client = server.client();
            for number in 0..40 {
                put(&mut client, "/file", &[], &versions[number % 4]).assert_status(204);
            }
        });
        let mut client = server.client();
        let mut read = 0;
        while !writer.is_finished() || read == 0 {
            let body = client.get("/file").body;
            assert!(versions.contains(&body), "{} bytes", body.len());
            read += 1;
        }
    });
}
