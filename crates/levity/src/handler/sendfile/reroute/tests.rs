//! Requests that an application sends elsewhere.

use levity_telemetry::access_log::End as Ended;

use crate::rig::{Backend, Client, Rig, message, settle};

const GET: &str = "GET /app HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const OTHER: &str = "HTTP/1.1 200 OK\r\nX-Other: yes\r\nContent-Length: 11\r\n\r\nhello world";

/// A response that reroutes its request to `/other`, on a connection that stays open.
const TO_OTHER: &str = "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /other\r\nContent-Length: 0\r\n\r\n";

/// An application at `/app`, another one at the internal `/other`, files at the internal `/files`. It may name the other
/// one and a third.
struct Apps {
    rig: Rig,
    app: Backend,
    other: Backend,
    third: Backend,
}

impl Apps {
    fn new() -> Self {
        let route =
            |path: &str, more: &str| format!("[[site.route]]\npath = \"/{path}\"\n{more}\n");
        let upstream = |name: &str, to: &str, more: &str| {
            format!("[[upstream]]\nname = \"{name}\"\nto = [\"{to}\"]\n{more}\n")
        };
        let config = [
            route("app", "proxy = \"app\""),
            route(
                "files/*",
                "root = \"{root}\"\nstrip_prefix = \"/files\"\ninternal = true",
            ),
            route("other", "proxy = \"other\"\ninternal = true"),
            upstream("app", "unix:/app", "reproxy = [\"other\", \"third\"]"),
            upstream("other", "192.0.2.1:80", "retry.for = \"0s\""),
            upstream("third", "192.0.2.2:80", "retry.for = \"0s\""),
        ];
        let files = [("file", "content of the file")];
        Self {
            rig: Rig::with_files(&config.concat(), &files),
            app: Backend::new("unix:/app"),
            other: Backend::new("192.0.2.1:80"),
            third: Backend::new("192.0.2.2:80"),
        }
    }

    /// A client whose request the application sends elsewhere with this header line.
    async fn sent_elsewhere(&self, line: &str) -> Client {
        let mut client = self.rig.client(1 << 16);
        client.send(GET).await;
        self.send_elsewhere(&self.app, line).await;
        client
    }

    /// The next request of this application is sent elsewhere.
    async fn send_elsewhere(&self, app: &Backend, line: &str) {
        let (mut backend, _) = app.asked().await;
        let answer = format!(
            "HTTP/1.1 200 OK\r\nX-App: yes\r\n{line}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        backend.send(answer).await;
    }
}

async fn answer(backend: &Backend, answer: &str) {
    let (mut backend, _) = backend.asked().await;
    backend.send(answer).await;
}

#[test]
fn a_file_of_an_internal_location() {
    let apps = Apps::new();
    apps.rig.run(async {
        for _ in 0..2 {
            let mut client = apps.sent_elsewhere("X-Accel-Redirect: /files/file").await;
            let response = client.rest().await;
            let (line, body) = message(&response, true).expect("a response");
            assert_eq!((line, &*body), ("HTTP/1.1 200 OK", "content of the file"));
            assert!(!response.contains("X-Accel-Redirect"), "{response}");
            client.close().await;
        }
        let mut client = apps.sent_elsewhere("X-Accel-Redirect: /files/absent").await;
        let response = client.rest().await;
        assert!(response.starts_with("HTTP/1.1 404 "), "{response}");
        client.close().await;
    });
    apps.rig.assert_idle();
}

#[test]
fn another_upstream_behind_an_internal_location() {
    let apps = Apps::new();
    apps.rig.run(async {
        for cut in 0..=OTHER.len() {
            let mut client = apps.sent_elsewhere("X-Accel-Redirect: /other").await;
            let (mut other, head) = apps.other.asked().await;
            assert!(head.starts_with("GET /other HTTP/1.1\r\n"), "{head}");
            other.send(&OTHER[..cut]).await;
            let mut response = client.arrived().await;
            other.send(&OTHER[cut..]).await;
            response += &client.rest().await;
            let whole = Some(("HTTP/1.1 200 OK", "hello world".to_owned()));
            assert_eq!(message(&response, true), whole, "cut at byte {cut}");
            drop(other);
            client.close().await;
        }
    });
    apps.rig.assert_idle();
}

/// After a reroute, no application reads the rest of the request body.
#[test]
fn a_client_may_disconnect_within_an_unread_body() {
    let apps = Apps::new();
    apps.rig.run(async {
        for leaves in [true, false] {
            let mut client = apps.rig.client(4096);
            let post = "POST /app HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345";
            client.send(post).await;
            let (mut app, _) = apps.app.asked().await;
            app.send(TO_OTHER).await;
            let (mut other, _) = apps.other.asked().await;
            if !leaves {
                other.send(OTHER).await;
                let response = client.until("hello world").await;
                assert!(response.contains("\r\nConnection: close\r\n"), "{response}");
                client.rest().await;
            }
            client.close().await;
        }
    });
    apps.rig.assert_idle();
}

/// Where it ends is not known, so what follows is no request.
#[test]
fn nothing_follows_a_malformed_body_that_nobody_wants() {
    let apps = Apps::new();
    apps.rig.run(async {
        let mut client = apps.rig.client(4096);
        let post = "POST /app HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        client.send(post).await;
        let (mut app, _) = apps.app.asked().await;
        app.send(TO_OTHER).await;
        let (mut other, _) = apps.other.asked().await;
        client.send("zz\r\n").await;
        settle().await;
        client.send(format!("0\r\n\r\n{GET}")).await;
        settle().await;
        other.send(OTHER).await;
        let responses = client.rest().await;
        assert_eq!(responses.matches("HTTP/1.1 ").count(), 1, "{responses}");
        assert!(
            responses.contains("\r\nConnection: close\r\n"),
            "{responses}"
        );
        assert_eq!(apps.app.waiting(), 0);
        client.close().await;
    });
    apps.rig.assert_idle();
}

/// A body goes to the first application alone.
#[test]
fn a_body_is_not_sent_twice() {
    let apps = Apps::new();
    apps.rig.run(async {
        let mut client = apps.rig.client(4096);
        let post =
            "POST /app HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nConnection: close\r\n\r\n";
        client.send(post).await;
        client.send("body").await;
        let (mut app, _) = apps.app.asked().await;
        app.until("body").await;
        app.send(TO_OTHER).await;
        let (mut other, head) = apps.other.asked().await;
        assert!(head.starts_with("GET /other HTTP/1.1\r\n"), "{head}");
        assert!(!head.contains("Content-Length"), "{head}");
        assert_eq!(other.arrived().await, "");
        other.send(OTHER).await;
        assert!(client.rest().await.ends_with("hello world"));
        client.close().await;
    });
    apps.rig.assert_idle();
}

#[test]
fn a_request_is_sent_elsewhere_three_times_at_most() {
    let apps = Apps::new();
    apps.rig.run(async {
        let mut client = apps.sent_elsewhere("X-Accel-Redirect: /other").await;
        for _ in 0..3 {
            apps.send_elsewhere(&apps.other, "X-Accel-Redirect: /other")
                .await;
        }
        let response = client.rest().await;
        assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
        assert_eq!(apps.other.waiting(), 0);
        client.close().await;
        // One time less is not too often.
        let mut client = apps.sent_elsewhere("X-Accel-Redirect: /other").await;
        for _ in 0..2 {
            apps.send_elsewhere(&apps.other, "X-Accel-Redirect: /other")
                .await;
        }
        answer(&apps.other, OTHER).await;
        assert!(client.rest().await.ends_with("hello world"));
        client.close().await;
    });
    apps.rig.assert_idle();
}

/// The first URL refuses, ends its connection, or answers with an error; the second is of use.
#[test]
fn the_next_url_is_asked_when_one_fails() {
    const URLS: &str = "X-Reproxy-URL: http://192.0.2.1/a http://192.0.2.2/b";
    let apps = Apps::new();
    let error = OTHER.replace("200 OK", "500 Internal Server Error");
    apps.rig.run(async {
        for first in [None, Some(""), Some(&*error)] {
            let mut client = apps.sent_elsewhere(URLS).await;
            match first {
                None => apps.other.refuse().await,
                Some(text) => answer(&apps.other, text).await,
            }
            let (mut third, head) = apps.third.asked().await;
            assert!(head.starts_with("GET /b HTTP/1.1\r\n"), "{head}");
            third.send(OTHER).await;
            let response = client.rest().await;
            let whole = Some(("HTTP/1.1 200 OK", "hello world".to_owned()));
            assert_eq!(message(&response, true), whole);
            drop(third);
            client.close().await;
        }
        // The last one's answer is the client's, whatever it is.
        let mut client = apps.sent_elsewhere(URLS).await;
        answer(&apps.other, &error).await;
        apps.third.refuse().await;
        assert!(client.rest().await.starts_with("HTTP/1.1 502 "));
        client.close().await;
    });
    apps.rig.assert_idle();
}

/// The backend of an application gets a receipt of this request line, and accepts it.
async fn accept_receipt(backend: &Backend, line: &str) {
    let (mut backend, head) = backend.asked().await;
    assert!(head.starts_with(line), "{head}");
    assert!(head.contains("X-Sendfile-Receipt: complete\r\n"), "{head}");
    backend.send("HTTP/1.1 204 No Content\r\n\r\n").await;
    settle().await;
}

/// The first upstream may not name files. That is an error, which the next upstream must not hide.
#[test]
fn a_delegation_is_not_passed_over() {
    const URLS: &str = "X-Reproxy-URL: http://192.0.2.1/a http://192.0.2.2/b";
    let apps = Apps::new();
    apps.rig.run(async {
        let mut client = apps.sent_elsewhere(URLS).await;
        let lines = "X-Sendfile: /file\r\nX-Sendfile-Receipt: /refused";
        apps.send_elsewhere(&apps.other, lines).await;
        let response = client.rest().await;
        assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
        client.close().await;
        let (mut other, head) = apps.other.asked().await;
        assert!(head.starts_with("POST /refused "), "{head}");
        other.send("HTTP/1.1 204 No Content\r\n\r\n").await;
        settle().await;
        assert_eq!(apps.third.waiting(), 0);
    });
    apps.rig.assert_idle();
}

#[test]
fn a_drain_waits_for_receipts() {
    let apps = Apps::new();
    apps.rig.run(async {
        let lines = "X-Accel-Redirect: /files/file\r\nX-Sendfile-Receipt: /sent";
        let mut client = apps.sent_elsewhere(lines).await;
        client.rest().await;
        client.close().await;
        let worker = apps.rig.worker.clone();
        let draining = tokio::task::spawn_local(async move { worker.core.drained().await });
        settle().await;
        assert!(!draining.is_finished());
        accept_receipt(&apps.app, "POST /sent HTTP/1.1\r\n").await;
        draining.await.expect("drained");
    });
    apps.rig.assert_idle();
}

#[test]
fn no_more_receipts_are_in_flight_than_the_limit() {
    let apps = Apps::new();
    let service = apps.rig.worker.service();
    let limit = &service.upstreams[0].receipt_limit;
    let mut permits: Vec<_> = (0..).map_while(|_| limit.try_take()).collect();
    apps.rig.run(async {
        for receipts in [0, 1, 1] {
            let lines = "X-Accel-Redirect: /files/file\r\nX-Sendfile-Receipt: /sent";
            let mut client = apps.sent_elsewhere(lines).await;
            let response = client.rest().await;
            assert!(response.ends_with("content of the file"), "{response}");
            client.close().await;
            settle().await;
            assert_eq!(apps.app.waiting(), receipts);
            match receipts {
                0 => drop(permits.pop()),
                _ => accept_receipt(&apps.app, "POST /sent HTTP/1.1\r\n").await,
            }
        }
    });
    apps.rig.assert_idle();
}

/// Who leaves meanwhile leaves nothing behind, and nobody is asked for it any more.
#[test]
fn a_client_may_leave_in_between() {
    const URLS: &str = "X-Reproxy-URL: http://192.0.2.1/a http://192.0.2.2/b";
    let apps = Apps::new();
    apps.rig.run(async {
        // While the other upstream is connected to.
        for line in ["X-Accel-Redirect: /other", URLS] {
            let client = apps.sent_elsewhere(line).await;
            settle().await;
            assert_eq!(apps.other.waiting(), 1);
            client.close().await;
            assert_eq!((apps.other.waiting(), apps.third.waiting()), (0, 0));
        }
        // While it answers.
        for line in ["X-Accel-Redirect: /other", URLS] {
            for cut in 0..OTHER.len() {
                let mut client = apps.sent_elsewhere(line).await;
                let (mut other, _) = apps.other.asked().await;
                other.send(&OTHER[..cut]).await;
                client.arrived().await;
                client.close().await;
                other.all().await;
                assert_eq!(apps.third.waiting(), 0);
            }
        }
        // While the second URL answers.
        let client = apps.sent_elsewhere(URLS).await;
        apps.other.refuse().await;
        let (mut third, _) = apps.third.asked().await;
        client.close().await;
        third.rest().await;
    });
    apps.rig.assert_idle();
    let left = 3 + 2 * OTHER.len();
    assert_eq!(
        apps.rig.worker.core.stats.ended(Ended::ClientAbort),
        left as u64
    );
}

/// A client that has left has a file opened at most: nothing is left of that.
#[test]
fn a_client_may_leave_within_an_internal_file() {
    let apps = Apps::new();
    apps.rig.run(async {
        for taken in [0, 1, 100] {
            let mut client = apps.rig.client(64);
            client.send(GET).await;
            apps.send_elsewhere(&apps.app, "X-Accel-Redirect: /files/file")
                .await;
            for _ in 0..taken {
                client.read(1).await.expect("a byte");
            }
            client.close().await;
        }
    });
    apps.rig.assert_idle();
}
