//! `levity explain`.

use std::fs::{self, Permissions, read, set_permissions};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};

use crate::support::certificates::{Authority, Key};
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
            "gate     `limit` 5/s per client, few: lets the first request in; counters are not those of the running server\n",
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

#[track_caller]
fn in_json(tree: &Tree, url: &str) -> Value {
    let ran = explain(tree, &[url, "--json"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).expect("JSON")
}

#[test]
fn as_json() {
    let (tree, _app) = site();
    let answer = in_json(&tree, "http://example.org/form");
    assert_eq!(answer["remarks"][0]["topic"], "site");
    assert_eq!(answer["response"][0], "HTTP/1.1 200 OK");
    let hosts = ["example.org"];
    let site = json!({ "name": hosts[0], "hosts": hosts, "file": null, "line": 4 });
    assert_eq!(answer["site"], site);
    assert_eq!(
        answer["route"],
        json!({ "path": "/form", "file": null, "line": 18 })
    );
    assert_eq!(answer["status"], 200);
    assert!(answer["reason"].is_null());
    assert_eq!(
        answer["log"],
        json!({ "access": "stdout", "format": "combined" })
    );

    let rerouted = in_json(&tree, "http://example.org/in/a");
    assert_eq!(
        rerouted["route"],
        json!({ "path": "/own/*", "file": null, "line": 21 })
    );
    assert_eq!(rerouted["status"], 401);
    assert_eq!(rerouted["reason"], "the request has no name and password");

    let proxied = in_json(&tree, "http://example.org/api/");
    assert!(proxied["response"].is_null());
    assert!(proxied["status"].is_null());

    let outside = in_json(&tree, "http://example.org/none");
    assert_eq!((&outside["site"], &outside["status"]), (&site, &json!(404)));
    assert!(outside["route"].is_null());
    let nowhere = in_json(&tree, "/form");
    assert!(nowhere["site"].is_null());
    assert_eq!(nowhere["status"], 421);
}

const REFUSALS: &str = r#"
[limits]
body_bytes = 9
[[listen]]
address = "127.0.0.1:0"
[[site]]
root = "root"
listing = false
hide = ["*.bak"]
[[site.route]]
path = "/gone"
respond = { status = 410 }
[[site.route]]
path = "/kept/*"
internal = true
[[site.route]]
path = "/lan/*"
allow = ["10.0.0.0/8"]
[[site.route]]
path = "/not-lan/*"
deny = ["127.0.0.0/8"]
[[site.route]]
path = "/users/*"
basic_auth = { users = "users" }
[[site.route]]
path = "/app/*"
proxy = "app"
body_bytes = 5
[[site.route]]
path = "/tried/*"
try = ["file", "directory"]
[[site.route]]
path = "/put/*"
upload = { methods = ["PUT"], max_file_bytes = 7 }
[[upstream]]
name = "app"
to = ["127.0.0.1:9"]
"#;

/// Each error has its reason on a line of its own, also where the client is not told.
#[cfg(feature = "upload")]
#[test]
fn reasons() {
    let tree = Tree::new();
    tree.file("root/file", "1");
    tree.file("root/folder/file", "1");
    tree.file("root/.git/config", "1");
    tree.file("root/a.bak", "1");
    tree.file("users", USER);
    tree.file("levity.toml", REFUSALS);
    set_permissions(tree.at("root"), Permissions::from_mode(0o777)).expect("chmod");
    let wrong = ["-H", "Authorization: Basic YW5uOndyb25n"];
    let length = |bytes| ["-X", "PUT", "-H", bytes];
    for (arguments, status, reason) in [
        (&["/a b"][..], 400, "white space in the request target"),
        (&["/a%00b"], 400, "NUL in the path"),
        (&["/none"], 404, "nothing has this name"),
        (
            &["/file/more"],
            404,
            "a part of the path before its end is no folder",
        ),
        (&["/folder/"], 403, "listing is off for this directory"),
        (
            &["/.git/config"],
            404,
            "the name `.git` begins with a dot, and `show` does not have it",
        ),
        (
            &["/file", "-X", "POST"],
            405,
            "files are for GET, HEAD and OPTIONS only",
        ),
        (
            &["/file", "-X", "TRACE"],
            405,
            "CONNECT and TRACE are not supported",
        ),
        (&["/a.bak"], 404, "the name `a.bak` is in `hide`"),
        (
            &["/gone"],
            410,
            "`respond` gives this status to every request here",
        ),
        (
            &["/kept/a"],
            404,
            "the route is `internal`: only `reroute` and X-Accel-Redirect lead there",
        ),
        (
            &["/lan/a"],
            403,
            "the address of the client is not in `allow`",
        ),
        (
            &["/not-lan/a"],
            403,
            "the address of the client is in `deny`",
        ),
        (&["/users/a"], 401, "the request has no name and password"),
        (
            &[&["/users/a"][..], &wrong].concat(),
            401,
            "the name or the password is wrong",
        ),
        (&["/tried/a"], 404, "no step of `try` has found anything"),
        (
            &["/file", "-H", "Content-Length: 10"],
            413,
            "the request's body is larger than `body_bytes` allows",
        ),
        (
            &[&["/app/"][..], &length("Content-Length: 6")].concat(),
            413,
            "the request's body is larger than `body_bytes` allows",
        ),
        (
            &[&["/put/a"][..], &length("Content-Length: 8")].concat(),
            413,
            "the file is larger than `max_file_bytes` allows",
        ),
        (
            &["/put/a", "-X", "DELETE"],
            405,
            "`methods` of `upload` does not have the method",
        ),
    ] {
        let ran = explain(&tree, arguments);
        let (reason, status) = (
            format!("\nreason   {reason}\n"),
            format!("HTTP/1.1 {status} "),
        );
        let all = format!("\n{}", ran.stdout);
        let at = all
            .find(&reason)
            .unwrap_or_else(|| panic!("{arguments:?}: {all}"));
        assert!(all[at..].contains(&status), "{arguments:?}: {all}");
    }
    // Within the limits, which are those of the route.
    for (path, bytes) in [("/app/", "5"), ("/put/a", "7"), ("/file", "9")] {
        let length = format!("Content-Length: {bytes}");
        let method = if path == "/file" { "GET" } else { "PUT" };
        let ran = explain(&tree, &[path, "-X", method, "-H", &length]);
        assert!(!ran.stdout.contains("reason "), "{}", ran.stdout);
    }
}

/// A path that lacks its last slash, and a name that `try` does not look for.
#[test]
fn a_slash_that_is_missing_and_a_hidden_name() {
    let tree = Tree::new();
    tree.file("root/folder/index.html", "1");
    tree.file("root/.env", "1");
    tree.file("root/index.html", "1");
    let routes = "[[site.route]]\npath = \"/other/*\"\n\
        [[site.route]]\npath = \"/folder/*\"\n[[site.route]]\npath = \"/app/*\"\n\
        try = [\"file\", \"directory\", \"/index.html\"]\nstrip_prefix = \"/app\"\n";
    tree.file(
        "levity.toml",
        format!("[[site]]\nroot = \"root\"\n{routes}"),
    );
    let root = tree.at("root").display().to_string();
    says(
        &explain(&tree, &["/folder"]),
        &[
            "route    not `/folder/*` (line 6): the path has no slash at its end\n",
            "route    2 before it have other paths\n",
            &format!("file     {root}/folder: a folder, but the path has no slash at its end\n"),
            "handler  redirects to the path with a slash at its end: ",
            "HTTP/1.1 301",
            "Location: /folder/\n",
        ],
    );
    let with_slash = explain(&tree, &["/folder/"]);
    says(
        &with_slash,
        &[&format!(
            "file     {root}/folder/: its index file index.html of 1 bytes\n"
        )],
    );
    assert!(
        !with_slash.stdout.contains("no slash"),
        "{}",
        with_slash.stdout
    );
    says(
        &explain(&tree, &["/app/.env"]),
        &[
            "file     /.env: not looked for, the name `.env` begins with a dot, and `show` does not have it\n",
            "handler  `try` of the file: the next handler follows\n",
            "handler  `try` of /app/index.html answers with 200\n",
            "HTTP/1.1 200",
        ],
    );
}

/// The script that runs, and where a redirect leads.
#[test]
fn scripts_and_redirects() {
    let tree = Tree::new();
    tree.file("root/index.php", "<?php");
    tree.file("root/blog/index.php", "<?php");
    tree.file("root/wp.php", "<?php");
    tree.file(
        "levity.toml",
        "[[upstream]]\nname = \"php\"\nto = [\"127.0.0.1:9\"]\nprotocol = \"fastcgi\"\n\
         [[site]]\nroot = \"root\"\nproxy = \"php\"\ntry = [\"file\", \"proxy\"]\nindex = [\"index.php\"]\n\
         script_suffix = \".php\"\nscript_index = \"index.php\"\n\
         [[site.route]]\npath = \"/old/*\"\nredirect = { to = \"/new/{rest}\", status = 302 }\n",
    );
    let root = tree.at("root").display().to_string();
    for (path, script) in [
        ("/wp.php", "wp.php: the script that runs\n"),
        (
            "/wp.php/a/b",
            "wp.php: the script that runs, with /a/b as its PATH_INFO\n",
        ),
        ("/", "index.php: the script that runs\n"),
        ("/blog/", "blog/index.php: the script that runs\n"),
        ("/none", "index.php: the script that runs\n"),
    ] {
        says(
            &explain(&tree, &[path]),
            &[&format!("file     {root}/{script}"), "handler  `proxy`"],
        );
    }
    let slash = explain(&tree, &["/blog"]);
    says(
        &slash,
        &[
            "handler  redirects to the path with a slash at its end: ",
            "Location: /blog/\n",
        ],
    );
    let redirect = explain(&tree, &["/old/a"]);
    says(
        &redirect,
        &[
            "handler  `redirect` with 302 to /new/a\n",
            "Location: /new/a\n",
        ],
    );
}

/// Routes may ask for the listener: one that the server does not have would explain what never happens.
#[test]
fn the_listener_has_to_exist() {
    let tree = Tree::new();
    let listen =
        "[[listen]]\naddress = \"127.0.0.1:8081\"\n[[listen]]\naddress = \"unix:/run/l\"\n";
    let site = "[[site]]\nrespond = {}\n[[site.route]]\npath = \"/*\"\n\
        when = { listen = [\"unix:/run/l\"] }\nrespond = { status = 204 }\n";
    tree.file("levity.toml", format!("{listen}{site}"));
    for (address, status) in [("127.0.0.1:8081", "200"), ("unix:/run/l", "204")] {
        let ran = explain(&tree, &["/", "--listen", address]);
        says(&ran, &[&format!("HTTP/1.1 {status}")]);
    }
    let ran = explain(&tree, &["/", "--listen", "8081"]);
    assert_eq!(ran.status, 2);
    let has = "levity.toml, which has `127.0.0.1:8081`, `unix:/run/l`\n";
    assert!(
        ran.stderr
            .starts_with("error: `[::]:8081` is no listener of "),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.ends_with(has), "{}", ran.stderr);
}

/// Without `--listen` the port of the URL tells the listener.
#[test]
fn the_port_of_the_url() {
    let tree = Tree::new();
    let listen = [
        "127.0.0.1:8081",
        "127.0.0.1:8082",
        "[::1]:8082",
        "[::1]:8083",
    ];
    let listen = listen.map(|address| format!("[[listen]]\naddress = \"{address}\"\n"));
    let site = "[[site]]\nrespond = {}\n[[site.route]]\npath = \"/*\"\n\
        when = { listen = [\"127.0.0.1:8082\", \"[::1]:8083\"] }\nrespond = { status = 204 }\n";
    tree.file("levity.toml", listen.concat() + site);
    for (url, status, note) in [
        ("http://a/", 200, None),
        ("http://a:8081", 200, None),
        ("http://[::1]:8083/x", 204, None),
        (
            "http://a:8082/",
            204,
            Some("`127.0.0.1:8082`, the first of 2 with port 8082"),
        ),
        (
            "http://a:9?b:8083",
            200,
            Some("`127.0.0.1:8081`, the first: none has port 9"),
        ),
    ] {
        let ran = explain(&tree, &[url]);
        says(&ran, &[&format!("HTTP/1.1 {status} ")]);
        let listener = ran.stdout.strip_prefix("listener ");
        let said = listener.and_then(|rest| rest.lines().next());
        assert_eq!(said, note, "{url}: {}", ran.stdout);
    }
    let given = explain(&tree, &["http://a:9/", "--listen", "[::1]:8083"]);
    says(&given, &["site ", "HTTP/1.1 204"]);
    assert!(!given.stdout.contains("listener "), "{}", given.stdout);
}

/// Nobody made the request, so that nothing on standard error may look as if somebody had.
#[test]
fn what_is_explained_is_no_event() {
    let tree = Tree::new();
    tree.file("root/file", vec![b'x'; 100_000]);
    symlink("/", tree.at("root/out")).expect("a link");
    let limits = "limit = [{ bytes = \"16KiB/s\", report_only = true, name = \"slow\" }]";
    tree.file(
        "levity.toml",
        format!("[[site]]\nroot = \"root\"\n{limits}\n"),
    );
    let ran = explain(&tree, &["/file"]);
    says(
        &ran,
        &[
            "gate     `limit` slow (report_only): lets the first request in; counters",
            "200 OK",
        ],
    );
    assert_eq!(ran.stderr, "");
    let ran = explain(&tree, &["/out/etc"]);
    says(&ran, &["symbolic link leaves the root", "HTTP/1.1 403"]);
    assert_eq!(ran.stderr, "");
}

/// The log of the route, the site or the server; requests that no location answers are in that of the server.
#[test]
fn logs() {
    let tree = Tree::new();
    let site =
        "[log]\nformat = \"json\"\n[[site]]\nrespond = {}\nlog = { access = \"./site.log\" }\n";
    let routes = "[[site.route]]\npath = \"/off/*\"\nlog = false\n\
        [[site.route]]\npath = \"/own/*\"\nlog = { format = \"{peer}\" }\n";
    tree.file("levity.toml", format!("{site}{routes}"));
    let file = tree.at("./site.log").display().to_string();
    for (path, log) in [
        ("/", format!("{file} (json)")),
        ("/off/", "none: the access log is off here".to_owned()),
        ("/own/", format!("{file} (custom)")),
        ("/%", "stdout (json)".to_owned()),
    ] {
        says(&explain(&tree, &[path]), &[&format!("log      {log}\n")]);
    }
    assert!(!tree.at("site.log").exists());
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
#[cfg(feature = "upload")]
#[test]
fn an_upload_is_not_made() {
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

/// A site with certificates of this machine, one with files, and one by ACME, behind listeners with and without TLS.
const WITH_TLS: &str = r#"
[tls]
folder = "STATE/tls"
[[listen]]
address = "127.0.0.1:8080"
[[listen]]
address = "127.0.0.1:8443"
tls = true
[[site]]
hosts = ["a.test"]
root = "ROOT"
[site.tls]
certificates = ["AUTHORITY/a.pem"]
keys = ["AUTHORITY/a.key"]
hsts = "1d"
[[site]]
hosts = ["internal.test"]
root = "ROOT"
tls = "internal"
[[site]]
hosts = ["acme.example.org"]
root = "ROOT"
tls = "acme"
[[site]]
hosts = ["clients.test"]
root = "ROOT"
[site.tls]
certificates = ["AUTHORITY/absent.pem"]
client_authorities = "AUTHORITY/ca.pem"
"#;

#[cfg(feature = "acme")]
#[test]
fn clients_over_tls() {
    let (tree, authority) = (Tree::new(), Authority::new("An authority"));
    tree.file("index.html", "content");
    authority.certify("a", &["a.test"], Key::Ecdsa);
    let folders = [tree.path(), authority.folder()].map(|path| path.display().to_string());
    let state = Tree::new();
    let config = WITH_TLS.replace("STATE", &state.path().display().to_string());
    let config = config.replace("ROOT", &folders[0]);
    let config = config.replace("AUTHORITY", &folders[1]);
    fs::write(tree.at("levity.toml"), &config).expect("a file");
    let listener = "listener `127.0.0.1:8443`";
    says(
        &explain(&tree, &["https://a.test/"]),
        &[
            "tls      certificate for a.test by An authority (files), valid for ",
            "site     a.test",
            "header   + Strict-Transport-Security: max-age=86400  (hsts)\n",
            "HTTP/1.1 200 OK\n",
        ],
    );
    says(
        &explain(&tree, &["http://a.test/x"]),
        &["Location: https://a.test/x\n"],
    );
    says(
        &explain(&tree, &["http://a.test:8080/x"]),
        &[
            "handler  `tls` redirects to https://a.test:8443/x: the request has not come over TLS\n",
            "HTTP/1.1 308",
            "Location: https://a.test:8443/x\n",
        ],
    );
    says(
        &explain(&tree, &["http://a.test:8443/"]),
        &[
            &format!("{listener} takes TLS only: this is HTTPS\n"),
            "HTTP/1.1 200",
        ],
    );
    says(
        &explain(&tree, &["https://a.test:8080/"]),
        &["`127.0.0.1:8080` has no TLS: this is plain HTTP\n", "308"],
    );
    says(
        &explain(&tree, &["https://internal.test/"]),
        &[
            "tls      certificate for internal.test by the authority of this machine (internal)\n",
            "HTTP/1.1 200",
        ],
    );
    says(
        &explain(&tree, &["https://acme.example.org/"]),
        &["tls      no certificate for acme.example.org yet (acme): the handshake fails\n"],
    );
    says(
        &explain(&tree, &["https://clients.test/"]),
        &[
            "absent.pem cannot be read",
            "gate     `client_authorities`: lets the request in",
            "HTTP/1.1 200",
        ],
    );
    says(
        &explain(&tree, &["https://other.test/"]),
        &[
            "tls      no site is for other.test, and none for all other names: the handshake is refused\n",
        ],
    );
    let config = config.replace("[\"a.test\"]", "[\"a.test\"]\ndefault = true");
    fs::write(tree.at("levity.toml"), config).expect("a file");
    says(
        &explain(&tree, &["https://other.test/"]),
        &["(files)", "; clients that ask for other.test refuse it\n"],
    );
    assert!(!state.at("tls").exists(), "nothing is written");
}

/// The name that a path leads to is routed too.
#[test]
fn what_is_found_and_where_it_belongs() {
    let tree = Tree::new();
    for name in ["dir/index.html", "open/index.html", "data.json.gz"] {
        tree.file(format!("root/{name}"), "1");
    }
    let routes = "[[site.route]]\npath = \"/dir/index.html\"\ndeny = [\"all\"]\n\
        [[site.route]]\npath = \"/open/*.html\"\nheaders = { set = { X-A = \"1\" } }\n\
        [[site.route]]\npath = \"*.json\"\nrespond = { status = 403 }\n";
    tree.file(
        "levity.toml",
        format!("[[site]]\nroot = \"root\"\nprecompressed = [\"gzip\"]\n{routes}"),
    );
    says(
        &explain(&tree, &["/dir/"]),
        &[
            "route    none matches: the keys of the site apply\n",
            "route    /dir/index.html was found, and belongs to `/dir/index.html`, where who is let in counts: the request is \
             answered as one for /dir/index.html\n",
            "route    `/dir/index.html` (line 5)\n",
            "gate     `allow` and `deny`",
            "refuses with 403\n",
            "HTTP/1.1 403",
        ],
    );
    says(
        &explain(&tree, &["/open/"]),
        &[
            "route    /open/index.html was found, and belongs to `/open/*.html`, whose rules the request has passed\n",
            "HTTP/1.1 200",
        ],
    );
    says(
        &explain(&tree, &["/data.json.gz"]),
        &[
            "route    the rules of /data.json count too: `/**/*.json`\n",
            "HTTP/1.1 403",
        ],
    );
}
