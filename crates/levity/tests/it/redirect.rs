//! Redirects and fixed responses.

use crate::support::scripted::Scripted;
use crate::support::{Answer, Client, Launch, Server, Tree};

fn started(sites: &str) -> Server {
    Launch::run(&format!("[[listen]]\naddress = \"127.0.0.1:0\"\n{sites}")).start()
}

fn ask(client: &mut Client, method: &str, target: &str, lines: &str) -> Answer {
    client.send(format!(
        "{method} {target} HTTP/1.1\r\nHost: a.example:8080\r\n{lines}\r\n"
    ));
    client.receive()
}

/// The Location of the redirect of each target.
#[track_caller]
fn assert_redirects(route: &str, to: &str, expected: &[(&str, &str)]) {
    let server = started(&format!(
        "[[site]]\nroot = \"/\"\n[[site.route]]\npath = \"{route}\"\nredirect = {{ to = \"{to}\" }}\n"
    ));
    let mut client = server.client();
    for (target, expected) in expected {
        let answer = ask(&mut client, "GET", target, "");
        assert_eq!(answer.status, 302, "{target}");
        assert_eq!(answer.field("location"), *expected, "{target}");
    }
}

#[test]
fn a_target_is_made_of_the_request() {
    let whole = [
        ("/old/a?b=c&d", "https://a.example/old/a?b=c&d"),
        ("/old/", "https://a.example/old/"),
        ("/old/%41%20b", "https://a.example/old/%41%20b"),
        ("//old/a", "https://a.example/old/a"),
        ("/old/a?", "https://a.example/old/a?"),
        ("/old/a%2Fb", "https://a.example/old/a%2Fb"),
    ];
    assert_redirects("/old/*", "https://{host}{path}", &whole);
    let rest = [
        ("/old/", "/new/"),
        ("/old/a/b?c", "/new/a/b?c"),
        ("/%6fld/%41%20%22?c", "/new/%41%20%22?c"),
        ("/old/a//b%2F:&[", "/new/a//b%2F:&["),
        ("/old/../old/%5Cb", "/new/%5Cb"),
    ];
    assert_redirects("/old/*", "/new/{rest}", &rest);
    let own_query = [("/a?b=c", "/new?from=b=c#x"), ("/a", "/new?from=#x")];
    assert_redirects("/a", "/new?from={query}#x", &own_query);
    assert_redirects("/a", "/new#x", &[("/a?b", "/new?b#x")]);
    assert_redirects(
        "/a",
        "{scheme}://b.example/",
        &[("/a", "http://b.example/")],
    );
}

/// A path that begins with two slashes names a host, and browsers take a backslash for a slash.
#[test]
fn no_request_leads_to_another_host() {
    let server = started(
        "[[site]]\nroot = \"/\"\n[[site.route]]\npath = \"/b/*\"\nredirect = { to = \"/{rest}\" }\n",
    );
    let mut client = server.client();
    for target in [
        "/b//evil.example",
        "/b/%2e%2e//b//evil.example",
        "/b/\\evil.example",
    ] {
        let answer = ask(&mut client, "GET", target, "");
        let location = answer.header("location").unwrap_or_default();
        let is_here = location.starts_with('/') && !location[1..].starts_with(['/', '\\']);
        assert!(answer.status == 400 || is_here, "{target}: {location}");
    }
    let answer = ask(&mut client, "GET", "/b/%2Fb", "");
    assert_eq!(answer.field("location"), "/%2Fb");
}

#[test]
fn every_method_and_status() {
    for status in [301, 302, 303, 307, 308] {
        let server = started(&format!(
            "[[site]]\nredirect = {{ to = \"https://{{host}}{{path}}\", status = {status} }}\n"
        ));
        let mut client = server.client();
        for method in ["GET", "HEAD", "POST", "DELETE", "OPTIONS", "PROPFIND"] {
            // The body of a request must not be read as the next request.
            let body = if method == "POST" { "GET" } else { "" };
            let length = body.len();
            client.send(format!(
                "{method} /p HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n\r\n{body}"
            ));
            let answer = client.receive_to(method);
            assert_eq!(answer.status, status, "{method}");
            assert_eq!(answer.field("location"), "https://a.example/p", "{method}");
        }
    }
}

/// HTTP/1.0 needs no host, but a redirect may.
#[test]
fn without_a_host() {
    let server = started("[[site]]\nredirect = { to = \"https://{host}{path}\" }\n");
    let mut client = server.client();
    client.send("GET / HTTP/1.0\r\n\r\n");
    let answer = client.receive();
    assert_eq!(answer.status, 400);
    assert!(
        answer.text().contains("needs the host"),
        "{}",
        answer.text()
    );
}

#[test]
fn the_scheme_is_the_one_that_a_trusted_proxy_reports() {
    let server = started(
        "[server]\ntrusted_proxies = [\"127.0.0.1\"]\n\
         [[site]]\nredirect = { to = \"{scheme}://www.{host}{path}\" }\n",
    );
    let lines = "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n";
    let answer = ask(&mut server.client(), "GET", "/a", lines);
    assert_eq!(answer.field("location"), "https://www.a.example/a");
}

#[test]
fn fixed_responses() {
    let server = started(
        "[[site]]\nroot = \"/\"\n\
         [[site.route]]\npath = \"/healthz\"\nrespond = { body = \"ok\\n\" }\n\
         [[site.route]]\npath = \"/gone/*\"\nrespond = { status = 410 }\n\
         [[site.route]]\npath = \"/none\"\nrespond = { status = 204 }\n\
         [[site.route]]\npath = \"/empty\"\nrespond = {}\n\
         [[site.route]]\npath = \"/json\"\nheaders = { set = { X-B = \"2\" } }\n\
         respond = { status = 503, body = \"{}\", headers = { Content-Type = \"application/json\", Retry-After = \"9\" } }\n",
    );
    let mut client = server.client();
    let healthy = client.get("/healthz");
    assert_eq!((healthy.status, &*healthy.text()), (200, "ok\n"));
    assert_eq!(healthy.field("content-type"), "text/plain; charset=utf-8");
    let head = client.request("HEAD", "/healthz", &[]);
    assert_eq!(
        (head.status, head.length(), head.body.len()),
        (200, Some(3), 0)
    );
    let gone = client.get("/gone/a");
    assert_eq!((gone.status, &*gone.text()), (410, "410 Gone\n"));
    let none = client.get("/none");
    assert_eq!(
        (none.status, none.header("content-type"), none.length()),
        (204, None, None)
    );
    let empty = client.get("/empty");
    assert_eq!((empty.status, empty.length()), (200, Some(0)));
    let json = client.get("/json");
    assert_eq!((json.status, &*json.text()), (503, "{}"));
    assert_eq!(json.field("content-type"), "application/json");
    assert_eq!(json.field("retry-after"), "9");
}

/// The application of an internal redirect gets what the location says.
#[test]
fn at_an_internal_location() {
    let backend = Scripted::tcp(|conn| {
        while conn.read_request().is_some() {
            conn.send("HTTP/1.1 200 OK\r\nX-Accel-Redirect: /in/a\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let route = "[[site.route]]\npath = \"/in/*\"\ninternal = true\n\
        respond = { status = 403, body = \"no\" }\n";
    let server = Launch::proxy(backend.address(), route).start();
    let answer = server.get("/");
    assert_eq!((answer.status, &*answer.text()), (403, "no"));
    server.client().get("/in/a").assert_status(404);
}

/// What a site does is no matter of a route with files of its own.
#[test]
fn a_route_beneath_a_redirect_serves_files() {
    let tree = Tree::new();
    tree.file("token", "content");
    let server = started(&format!(
        "[[site]]\nredirect = {{ to = \"https://{{host}}{{path}}\", status = 308 }}\n\
         [[site.route]]\npath = \"/.well-known/*\"\nroot = \"{}\"\nstrip_prefix = \"/.well-known\"\n",
        tree.path().display()
    ));
    assert_eq!(server.get("/.well-known/token").text(), "content");
    assert_eq!(server.get("/token").status, 308);
}

/// Parts that are empty leave no second slash at the start.
#[test]
fn empty_parts_do_not_name_a_host() {
    assert_redirects(
        "/o/*",
        "/{rest}{query}",
        &[("/o/?/evil.example", "/evil.example")],
    );
    assert_redirects("/o/*", "/{rest}/a", &[("/o/", "/a")]);
}
