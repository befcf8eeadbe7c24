//! `levity explain`.

use std::fs;
use std::net::TcpListener;

use crate::support::{Launch, Ran, Tree};

const CONFIG: &str = r#"
[server]
headers = { set = { X-Server = "1" } }
[[site]]
hosts = ["example.org"]
root = "ROOT"
security_headers = true
[[site.route]]
path = "/api/*"
proxy = "app"
strip_prefix = "/api"
forward_auth = { upstream = "app", path = "/may" }
[[site.route]]
path = "/form"
when = { method = ["POST"] }
respond = { status = 204 }
[[site.route]]
path = "/form"
headers = { set = { X-Form = "1" } }
[[site.route]]
path = "/own/*"
deny = ["192.0.2.0/24"]
limit = [{ requests = "5/s" }, { connections = 9, name = "few" }]
basic_auth = { users = "ROOT/users" }
[[site.route]]
path = "/in/*"
reroute = "/own/{rest}"
[[upstream]]
name = "app"
to = ["APP"]
"#;

/// Made by `htpasswd -bnBC 4`: `secret`.
const USER: &str = "ann:$2y$04$MoKKoQ5swkLbx1YRjQwMNeNLTLCQd61MP9T68vDeM5qpKwzjfEKsa\n";

/// What `levity explain` says about a request, asked with these arguments.
fn explain(tree: &Tree, arguments: &[&str]) -> Ran {
    let file = tree.at("levity.toml");
    let file = file.to_str().expect("a path in UTF-8");
    Launch::levity(["explain", "-c", file])
        .arguments(arguments)
        .ran()
}

fn site() -> (Tree, TcpListener) {
    let tree = Tree::new();
    tree.file("form", "<form>");
    tree.file("users", USER);
    tree.file("own/a", "own");
    let app = TcpListener::bind("127.0.0.1:0").expect("a port");
    app.set_nonblocking(true).expect("a mode");
    let address = app.local_addr().expect("an address").to_string();
    let root = tree.path().display().to_string();
    let config = CONFIG.replace("ROOT", &root).replace("APP", &address);
    fs::write(tree.at("levity.toml"), config).expect("a file");
    (tree, app)
}

#[track_caller]
fn says(ran: &Ran, lines: &[&str]) {
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let mut rest = ran.stdout.as_str();
    for line in lines {
        let at = rest
            .find(line)
            .unwrap_or_else(|| panic!("{line} in order in\n{}", ran.stdout));
        rest = &rest[at + line.len()..];
    }
}

#[test]
fn a_file() {
    let (tree, _app) = site();
    let path = tree.at("form").display().to_string();
    says(
        &explain(&tree, &["http://example.org/form"]),
        &[
            "site     example.org (line 4)\n",
            "route    not `/form` (line 14): its condition `method` does not hold\n",
            "route    `/form` (line 18)\n",
            &format!("file     {path}: a file of 6 bytes\n"),
            "header   + X-Server: 1  (headers)\n",
            "header   + X-Form: 1  (headers)\n",
            "header   + X-Content-Type-Options: nosniff  (security_headers)\n",
            "\nHTTP/1.1 200 OK\n",
            "X-Form: 1\n",
            "Content-Length: 6\n",
        ],
    );
    says(
        &explain(&tree, &["http://example.org/form", "-X", "POST"]),
        &[
            "`/form` (line 14)\n",
            "`respond` with 204\n",
            "HTTP/1.1 204",
        ],
    );
    says(
        &explain(&tree, &["/form"]),
        &["site     none", "HTTP/1.1 421"],
    );
}

#[test]
fn gates() {
    let (tree, _app) = site();
    let own = "http://example.org/own/a";
    says(
        &explain(&tree, &[own, "--client", "192.0.2.7"]),
        &[
            "gate     `allow` and `deny`, client 192.0.2.7: refuses with 403\n",
            "gate     `limit` 5/s per client, few: not reached\n",
            "gate     `basic_auth`: not reached\n",
            "HTTP/1.1 403",
        ],
    );
    says(
        &explain(&tree, &[own]),
        &[
            "gate     `allow` and `deny`, client 127.0.0.1: lets the request in\n",
            "gate     `limit` 5/s per client, few: lets the request in\n",
            "gate     `basic_auth`: refuses with 401\n",
            "WWW-Authenticate: Basic",
        ],
    );
    let ann = "Authorization: Basic YW5uOnNlY3JldA==";
    says(
        &explain(&tree, &[own, "-H", ann]),
        &[
            "gate     `basic_auth`: lets the request in\n",
            "HTTP/1.1 200",
        ],
    );
    says(
        &explain(&tree, &["http://example.org/in/a?b#c"]),
        &[
            "handler  `reroute` to /own/a?b, which is routed again\n",
            "route    `/own/*`",
            "HTTP/1.1 401",
        ],
    );
}

/// The application is not asked, neither for the response nor about the client.
#[test]
fn an_application() {
    let (tree, app) = site();
    let ran = explain(&tree, &["http://example.org/api/x", "-X", "DELETE"]);
    says(
        &ran,
        &[
            "gate     `forward_auth` of /may at `app`, which is not asked now and taken to agree: lets the request in\n",
            "handler  `proxy` to `app` by http without /api, which is not asked now",
            "header   + X-Server: 1",
        ],
    );
    assert!(!ran.stdout.contains("HTTP/1.1"), "{}", ran.stdout);
    assert!(app.accept().is_err());
}

#[test]
fn as_json() {
    let (tree, _app) = site();
    let ran = explain(&tree, &["http://example.org/form", "--json"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let answer: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(answer["remarks"][0]["topic"], "site");
    assert_eq!(answer["response"][0], "HTTP/1.1 200 OK");
    let proxied = explain(&tree, &["http://example.org/api/", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&proxied.stdout).expect("JSON");
    assert!(answer["response"].is_null());
}

#[test]
fn what_is_no_request() {
    let (tree, _app) = site();
    for (arguments, part) in [
        (&["form"][..], "is no URL"),
        (&["ftp://example.org/"], "is not a scheme"),
        (&["http://example.org/", "-H", "A: b\r\nC: d"], "line break"),
        (&["http://example.org/a b"], ""),
        (&["/", "--client", "nobody"], "invalid"),
    ] {
        let ran = explain(&tree, arguments);
        match part {
            "" => says(&ran, &["HTTP/1.1 400"]),
            part => {
                assert_eq!(ran.status, 2, "{arguments:?}");
                assert!(ran.stderr.contains(part), "{}", ran.stderr);
            }
        }
    }
    // A body that is announced does not come.
    let post = [
        "http://example.org/own/a",
        "-X",
        "POST",
        "-H",
        "Content-Length: 9",
    ];
    assert_eq!(explain(&tree, &post).status, 0);
}

/// It says what an upload would do, and does nothing.
#[test]
fn an_upload_is_not_made() {
    use std::fs::{Permissions, read, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    let tree = Tree::new();
    tree.file("root/file", "1");
    set_permissions(tree.at("root"), Permissions::from_mode(0o777)).expect("chmod");
    let upload = "upload = { methods = [\"PUT\", \"DELETE\", \"MKCOL\"] }";
    let listen = "[[listen]]\naddress = \"127.0.0.1:0\"\n";
    let config = format!("{listen}[[site]]\nroot = \"root\"\n{upload}\n");
    tree.file("levity.toml", config);
    for (method, path) in [("PUT", "/file"), ("DELETE", "/file"), ("MKCOL", "/new")] {
        let ran = explain(&tree, &[path, "-X", method]);
        says(
            &ran,
            &["handler  `upload` takes it; the response depends on what is there"],
        );
    }
    let hidden = explain(&tree, &["/.hidden", "-X", "PUT"]);
    says(&hidden, &["handler  `upload` refuses with 403\n"]);
    let read_only = explain(&tree, &["/file"]);
    assert!(
        !read_only.stdout.contains("`upload`"),
        "{}",
        read_only.stdout
    );
    assert_eq!(read(tree.at("root/file")).expect("a file"), b"1");
    let names = tree.at("root").read_dir().expect("a folder").count();
    assert_eq!(names, 1);
}
