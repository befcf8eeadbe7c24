//! `forward_auth`.

use crate::support::scripted::{Conn, Refusing, Request, Scripted};
use crate::support::{Launch, Server, Tree};

const LISTEN: &str = "[[listen]]\naddress = \"127.0.0.1:0\"\n";

/// A portal that lets in whoever has the cookie `in`, and asks others to log in.
fn portal() -> Scripted {
    Scripted::tcp(|conn: &mut Conn| {
        while let Some(request) = conn.read_request() {
            let is_in = request
                .field("cookie")
                .is_some_and(|cookie| cookie.contains("in=1"));
            let response = match is_in {
                true => {
                    "HTTP/1.1 200 OK\r\nRemote-User: ann\r\nRemote-Groups: a,b\r\nX-Other: 1\r\nContent-Length: 2\r\n\r\nok"
                }
                false => {
                    "HTTP/1.1 302 Found\r\nLocation: https://login.example/\r\nSet-Cookie: s=1\r\nContent-Length: 5\r\n\r\nlogin"
                }
            };
            if !conn.send(response) {
                break;
            }
        }
    })
}

/// An application that answers every request.
fn app() -> Scripted {
    Scripted::tcp(
        |conn| {
            while conn.read_request().is_some() && conn.answer("200 OK", "app") {}
        },
    )
}

/// A server whose site has these keys, behind the decisions of the backend at `auth`.
fn started(auth: &str, app: &str, keys: &str) -> Server {
    Launch::run(&format!(
        "{LISTEN}[[upstream]]\nname = \"auth\"\nto = [\"{auth}\"]\nqueue_timeout = \"1s\"\n\
         [[upstream]]\nname = \"app\"\nto = [\"{app}\"]\n\
         [[site]]\nforward_auth = {{ upstream = \"auth\", path = \"/verify?a=b\", copy = [\"Remote-User\", \"remote-groups\"], user = \"Remote-User\" }}\n{keys}\n"
    ))
    .start()
}

const IN: (&str, &str) = ("Cookie", "in=1");

#[test]
fn a_success_lets_the_request_through_with_its_headers() {
    let (portal, app) = (portal(), app());
    let server = started(portal.address(), app.address(), "proxy = \"app\"");
    let mut client = server.client();
    let sent = [
        IN,
        ("Remote-User", "eve"),
        ("Remote_Groups", "root"),
        ("Authorization", "Bearer x"),
        ("X-Forwarded-Uri", "/open"),
        ("X-Original-URL", "http://open/"),
        ("Range", "bytes=0-1"),
        ("Content-Length", "4"),
    ];
    client.send(format!(
        "{}data",
        crate::support::head("POST", "/a/../%62?c=d", &sent)
    ));
    assert_eq!(client.receive().text(), "app");
    let asked = portal.request();
    let expected = [
        ("host", Some("localhost")),
        ("cookie", Some("in=1")),
        ("authorization", Some("Bearer x")),
        ("x-forwarded-method", Some("POST")),
        // As it was routed: another spelling could belong to a rule that lets everyone in.
        ("x-forwarded-uri", Some("/b?c=d")),
        ("x-forwarded-host", Some("localhost")),
        ("x-forwarded-proto", Some("http")),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("x-original-method", Some("POST")),
        ("x-original-url", Some("http://localhost/b?c=d")),
        ("content-length", None),
        ("range", None),
        ("remote-user", None),
        ("remote_groups", None),
    ];
    assert_eq!(
        (asked.method.as_str(), asked.target.as_str()),
        ("GET", "/verify?a=b")
    );
    assert_fields(&asked, &expected);
    let passed = app.request();
    assert_eq!(
        (passed.method.as_str(), &passed.body[..]),
        ("POST", &b"data"[..])
    );
    let expected = [
        ("remote-user", Some("ann")),
        ("remote-groups", Some("a,b")),
        ("remote_groups", None),
        ("x-other", None),
        ("x-forwarded-uri", None),
        ("authorization", Some("Bearer x")),
    ];
    assert_fields(&passed, &expected);
}

#[track_caller]
fn assert_fields(request: &Request, expected: &[(&str, Option<&str>)]) {
    for (name, value) in expected {
        assert_eq!(request.field(name), *value, "{name}");
    }
}

#[test]
fn both_applications_get_the_id_of_the_request() {
    let (portal, app) = (portal(), app());
    let keys = "proxy = \"app\"\n[server]\nrequest_id = \"X-Request-Id\"\n";
    let server = started(portal.address(), app.address(), keys);
    assert_eq!(server.get_with("/", &[IN]).text(), "app");
    let [asked, passed] = [portal.request(), app.request()];
    assert!(asked.field("x-request-id").is_some());
    assert_eq!(asked.field("x-request-id"), passed.field("x-request-id"));
}

#[test]
fn any_other_response_is_that_to_the_client() {
    let (portal, app, tree) = (portal(), app(), Tree::new());
    tree.file("a.txt", "content");
    let keys = format!(
        "proxy = \"app\"\n\
         [[site.route]]\npath = \"/files/*\"\nroot = \"{}\"\nstrip_prefix = \"/files\"\n\
         [[site.route]]\npath = \"/moved\"\nredirect = {{ to = \"/\" }}\n\
         [[site.route]]\npath = \"/open\"\nforward_auth = false\n",
        tree.path().display()
    );
    let server = started(portal.address(), app.address(), &keys);
    let mut client = server.client();
    for path in ["/", "/files/a.txt", "/files/absent", "/moved", "/x/../"] {
        let answer = client.get(path);
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (302, "login"),
            "{path}"
        );
        assert_eq!(answer.field("location"), "https://login.example/");
        assert_eq!(answer.field("set-cookie"), "s=1");
    }
    client.head("/files/a.txt").assert_status(302);
    assert_eq!(app.requests().len(), 0);
    assert_eq!(client.get_with("/files/a.txt", &[IN]).text(), "content");
    assert_eq!(client.get_with("/moved", &[IN]).field("location"), "/");
    // Nobody says who it is there, and the client may not say it either.
    let forged = [("Remote-User", "eve"), ("Remote-Groups", "root")];
    assert_eq!(client.get_with("/open", &forged).text(), "app");
    let passed = app.request();
    assert_fields(&passed, &[("remote-user", None), ("remote-groups", None)]);
}

/// Without a decision nobody is let in.
#[test]
fn a_failure_of_the_application_is_an_error() {
    let app = app();
    let dead = Refusing::new();
    let server = started(dead.address(), app.address(), "proxy = \"app\"");
    server.get_with("/", &[IN]).assert_status(502);
    let garbage =
        Scripted::tcp(
            |conn| {
                while conn.read_request().is_some() && conn.send("garbage\r\n\r\n") {}
            },
        );
    let server = started(garbage.address(), app.address(), "proxy = \"app\"");
    server.get_with("/", &[IN]).assert_status(502);
    let delegating = Scripted::tcp(|conn| {
        let response = "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /a\r\nContent-Length: 0\r\n\r\n";
        while conn.read_request().is_some() && conn.send(response) {}
    });
    let server = started(delegating.address(), app.address(), "proxy = \"app\"");
    server.get_with("/", &[IN]).assert_status(502);
    let slow = Scripted::tcp(|conn| {
        conn.read_request();
        conn.stall();
    });
    let server = Launch::run(&format!(
        "{LISTEN}[[upstream]]\nname = \"auth\"\nto = [\"{}\"]\nfirst_byte_timeout = \"100ms\"\nretry.times = 0\n\
         [[site]]\nrespond = {{}}\nforward_auth = {{ upstream = \"auth\", path = \"/\" }}\n",
        slow.address()
    ))
    .start();
    server.get_with("/", &[IN]).assert_status(504);
    for status in [
        "401 Unauthorized",
        "403 Forbidden",
        "500 Oops",
        "300 Choices",
    ] {
        let refusing =
            Scripted::tcp(
                move |conn| {
                    while conn.read_request().is_some() && conn.answer(status, "no") {}
                },
            );
        let server = started(refusing.address(), app.address(), "proxy = \"app\"");
        let answer = server.get_with("/", &[IN]);
        assert_eq!(
            (answer.status.to_string().as_str(), answer.text().as_str()),
            (&status[..3], "no")
        );
    }
    assert_eq!(app.requests().len(), 0);
}

/// The user of the decision is in the log.
#[test]
fn the_log_names_the_user() {
    let (portal, app) = (portal(), app());
    let server = started(
        portal.address(),
        app.address(),
        "respond = {}\n[log]\naccess = \"{own}/log\"\nformat = \"json\"",
    );
    server.get_with("/a", &[IN]).assert_status(200);
    let log = || std::fs::read_to_string(server.own("log")).unwrap_or_default();
    crate::support::wait_until("a line", || log().contains("\"/a\""));
    assert!(log().contains("\"user\":\"ann\""), "{}", log());
}
