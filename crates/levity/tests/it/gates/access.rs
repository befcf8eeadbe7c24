//! `allow` and `deny`.

use crate::support::scripted::Scripted;
use crate::support::{Client, Launch, Server, Tree, settle};

const INSIDE: (&str, &str) = ("X-Forwarded-For", "10.1.2.3");
const OUTSIDE: (&str, &str) = ("X-Forwarded-For", "192.0.2.1");

const LISTEN: &str = "[server]\ntrusted_proxies = [\"127.0.0.1\"]\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
    [[listen]]\naddress = \"unix:{own}/socket\"\n";

fn started(sites: &str) -> Server {
    Launch::run(&format!("{LISTEN}{sites}")).start()
}

/// The status for each client, which a trusted proxy names, and for one on the Unix socket.
#[track_caller]
fn assert_lets_in(keys: &str, expected: &[(&str, u16)], local: u16) {
    let server = started(&format!("[[site]]\nrespond = {{}}\n{keys}\n"));
    let mut client = server.client();
    for (ip, status) in expected {
        let answer = client.get_with("/", &[("X-Forwarded-For", ip)]);
        assert_eq!(answer.status, *status, "{keys}: {ip}");
    }
    let answer = Client::unix(&server.own("socket")).get("/");
    assert_eq!(answer.status, local, "{keys}");
}

#[test]
fn networks() {
    assert_lets_in(
        "allow = [\"10.0.0.0/8\", \"2001:db8::/32\"]",
        &[
            ("10.1.2.3", 200),
            ("::ffff:10.1.2.3", 200),
            ("2001:db8::7", 200),
            ("11.0.0.1", 403),
            ("2001:db9::7", 403),
        ],
        403,
    );
    assert_lets_in(
        "deny = [\"10.0.0.0/8\"]",
        &[("10.1.2.3", 403), ("11.0.0.1", 200), ("::1", 200)],
        200,
    );
    assert_lets_in(
        "allow = [\"10.0.0.0/8\", \"unix\"]\ndeny = [\"10.1.0.0/16\"]",
        &[("10.1.2.3", 403), ("10.2.2.3", 200), ("11.0.0.1", 403)],
        200,
    );
    assert_lets_in("deny = [\"unix\"]", &[("10.1.2.3", 200)], 403);
    assert_lets_in("deny = [\"all\"]", &[("10.1.2.3", 403)], 403);
    // What a client says about itself does not count: the proxy is the last of the list.
    assert_lets_in(
        "allow = [\"10.0.0.0/8\"]",
        &[("10.1.2.3, 192.0.2.1", 403), ("192.0.2.1, 10.1.2.3", 200)],
        403,
    );
}

/// A file behind the gate looks like one that does not exist, whatever is asked about it.
#[test]
fn nothing_of_a_guarded_folder_is_sent() {
    let tree = Tree::new();
    let file = tree.file("secret/a.txt", "secret".repeat(100));
    tree.file("secret/a.txt.gz", "compressed");
    tree.file("secret/index.html", "index");
    settle();
    let server = started(&format!(
        "[[site]]\nroot = \"{}\"\nlisting = true\nprecompressed = [\"gzip\"]\n\
         [[site.route]]\npath = \"/secret/*\"\nallow = [\"10.0.0.0/8\"]\n",
        file.parent()
            .and_then(|folder| folder.parent())
            .expect("a tree")
            .display()
    ));
    let mut client = server.client();
    let etag = client.get_with("/secret/a.txt", &[INSIDE]);
    etag.assert_status(200);
    let etag = etag.field("etag").to_owned();
    let absent = client.get_with("/secret/absent", &[OUTSIDE]);
    let of_file: [&[(&str, &str)]; 5] = [
        &[OUTSIDE],
        &[OUTSIDE, ("Range", "bytes=0-3")],
        &[OUTSIDE, ("If-None-Match", &etag)],
        &[
            OUTSIDE,
            ("If-Modified-Since", "Mon, 23 Nov 2099 00:00:00 GMT"),
        ],
        &[OUTSIDE, ("Accept-Encoding", "gzip")],
    ];
    for headers in of_file {
        let answer = client.get_with("/secret/a.txt", headers);
        answer.assert_status(403);
        assert_eq!(answer.headers(), absent.headers(), "{headers:?}");
        assert_eq!(answer.body, absent.body, "{headers:?}");
    }
    for path in [
        "/secret/",
        "/secret/a.txt.gz",
        "//secret//a.txt",
        "/%73ecret/a.txt",
        "/x/../secret/a.txt",
        "/secret/./a.txt",
    ] {
        client.get_with(path, &[OUTSIDE]).assert_status(403);
    }
    for method in ["HEAD", "POST", "OPTIONS"] {
        let answer = client.request(method, "/secret/a.txt", &[OUTSIDE]);
        assert_eq!(answer.status, 403, "{method}");
    }
    client.get_with("/", &[OUTSIDE]).assert_status(200);
}

/// A route says who is let in for itself; what it does not say stays.
#[test]
fn routes_inherit_each_gate() {
    let server = started(
        "[[site]]\nrespond = {}\nallow = [\"10.0.0.0/8\"]\ndeny = [\"10.9.0.0/16\"]\n\
         [[site.route]]\npath = \"/plain/*\"\n\
         [[site.route.route]]\npath = \"/plain/inner\"\nredirect = { to = \"/\" }\n\
         [[site.route]]\npath = \"/closed\"\ndeny = [\"10.1.0.0/16\"]\n\
         [[site.route]]\npath = \"/open/*\"\nallow = [\"all\"]\n\
         [[site.route.route]]\npath = \"/open/wide\"\ndeny = []\n",
    );
    let by = |ip| [("X-Forwarded-For", ip)];
    let mut client = server.client();
    for (path, ip, status) in [
        ("/", "10.1.2.3", 200),
        ("/", "10.9.2.3", 403),
        ("/", "192.0.2.1", 403),
        ("/plain/a", "192.0.2.1", 403),
        ("/plain/inner", "192.0.2.1", 403),
        ("/plain/inner", "10.1.2.3", 302),
        // Its own `deny` replaces that of the site, whose `allow` stays.
        ("/closed", "10.1.2.3", 403),
        ("/closed", "10.9.2.3", 200),
        ("/closed", "192.0.2.1", 403),
        ("/open/a", "192.0.2.1", 200),
        ("/open/a", "10.9.2.3", 403),
        ("/open/wide", "10.9.2.3", 200),
    ] {
        let answer = client.get_with(path, &by(ip));
        assert_eq!(answer.status, status, "{path} {ip}");
    }
}

#[test]
fn steps_of_try_and_the_application_are_behind_the_gate() {
    let tree = Tree::new();
    tree.file("page.html", "page");
    tree.file("index.html", "index");
    let backend =
        Scripted::tcp(
            |conn| {
                while conn.read_request().is_some() && conn.answer("200 OK", "ok") {}
            },
        );
    let server = started(&format!(
        "[[upstream]]\nname = \"app\"\nto = [\"{}\"]\n\
         [[site]]\nroot = \"{}\"\nproxy = \"app\"\ntry = [\"file\", \"file.html\", \"proxy\"]\n\
         allow = [\"10.0.0.0/8\"]\n",
        backend.address(),
        tree.path().display()
    ));
    let mut client = server.client();
    for path in ["/", "/page", "/page.html", "/app"] {
        client.get_with(path, &[OUTSIDE]).assert_status(403);
    }
    client.get_with("/page", &[INSIDE]).assert_status(200);
    assert_eq!(client.get_with("/app", &[INSIDE]).text(), "ok");
    assert_eq!(backend.requests().len(), 1);
}

/// The application that names an internal route has let the client in.
#[test]
fn an_internal_route_is_guarded_by_the_application() {
    let tree = Tree::new();
    tree.file("a.txt", "content");
    let delegation =
        "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /files/a.txt\r\nContent-Length: 0\r\n\r\n";
    let backend = Scripted::tcp(
        move |conn| {
            while conn.read_request().is_some() && conn.send(delegation) {}
        },
    );
    let server = started(&format!(
        "[[upstream]]\nname = \"app\"\nto = [\"{}\"]\n[[site]]\nproxy = \"app\"\n\
         [[site.route]]\npath = \"/files/*\"\nroot = \"{}\"\nstrip_prefix = \"/files\"\ninternal = true\n\
         allow = [\"10.0.0.0/8\"]\n",
        backend.address(),
        tree.path().display()
    ));
    let mut client = server.client();
    assert_eq!(client.get_with("/app", &[OUTSIDE]).text(), "content");
    client
        .get_with("/files/a.txt", &[INSIDE])
        .assert_status(404);
}
