//! `docs/from-nginx.md`: each pair of configurations is run, and both servers get the requests beneath it.

mod tables;

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::servers::free;
use crate::support::certificates::{Authority, Key};
use crate::support::scripted::{Conn, Scripted};
use crate::support::{Answer, App, Client, Launch, Tree, head, tls, wait_until};

/// Nobody listens there.
const DOWN: &str = "127.0.0.1:1";

/// A section of the page.
struct Behaviour {
    title: String,
    nginx: String,
    levity: String,
    /// Lines of requests and responses.
    cases: Vec<String>,
}

fn behaviours() -> Vec<Behaviour> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/from-nginx.md");
    let page = fs::read_to_string(page).expect("the page");
    let sections = page.split("\n## ").skip(1).map(|section| {
        let title = section.lines().next().expect("a title").to_owned();
        let block = |language: &str| {
            let start = format!("```{language}\n");
            let (_, rest) = section.split_once(&start).expect(&title);
            rest.split_once("```").expect(&title).0.to_owned()
        };
        let cases = block("text").lines().map(str::to_owned).collect();
        Behaviour {
            nginx: block("nginx"),
            levity: block("toml"),
            cases,
            title,
        }
    });
    sections.collect()
}

/// The files that the page speaks of. `/srv` stands for the tree.
fn tree() -> Tree {
    let tree = Tree::new();
    for (name, content) in [
        ("www/index.html", "home\n"),
        ("www/a.txt", "text\n"),
        ("www/about.html", "about\n"),
        ("www/docs/index.html", "docs\n"),
        ("www/files/x.txt", "x\n"),
        ("www/files/y.txt", "y\n"),
        ("www/img/logo.png", "png\n"),
        ("www/assets/app.3f2a9c1b.js", "app\n"),
        ("www/errors/404.html", "lost\n"),
        ("www/errors/sorry.html", "sorry\n"),
        ("www/private/s.txt", "secret\n"),
        ("www/films/a.txt", "film\n"),
        ("www/.env", "secret\n"),
        ("www/.git/config", "secret\n"),
        ("www/old.bak", "secret\n"),
        ("www/.well-known/security.txt", "known\n"),
        ("other/b.txt", "other\n"),
        ("protected/film.txt", "film\n"),
        (
            "php/index.php",
            "<?php echo 'index ', $_SERVER['REQUEST_URI'];",
        ),
        ("php/own.php", "<?php echo 'own';"),
        (
            "php/told.php",
            "<?php echo $_SERVER['APP_ENV'] ?? 'no', ' ', $_SERVER['SCRIPT_FILENAME'] === __FILE__ ? 'here' : 'there';",
        ),
        ("php/note.txt", "note\n"),
        ("php/admin/index.php", "<?php echo 'admin';"),
        // Made by `htpasswd -bnBC 4`: `secret`.
        (
            "users",
            "ann:$2y$04$MoKKoQ5swkLbx1YRjQwMNeNLTLCQd61MP9T68vDeM5qpKwzjfEKsa\n",
        ),
    ] {
        tree.file(name, content);
    }
    tree.file("www/style.css", "body { color: black }\n".repeat(100));
    tree.file("www/app.js", "let body;\n".repeat(100));
    tree.file("www/app.js.gz", "compressed");
    let uploads = tree.folder("uploads");
    fs::set_permissions(uploads, Permissions::from_mode(0o777)).expect("chmod");
    tree
}

/// Puts a certificate where certbot would.
fn certify(tree: &Tree, authority: &Authority) {
    authority.certify("own", &["example.org", "www.example.org"], Key::Ecdsa);
    for (name, file) in [("fullchain.pem", "own.pem"), ("privkey.pem", "own.key")] {
        let content = fs::read(authority.file(file)).expect("read");
        tree.file(format!("letsencrypt/live/example.org/{name}"), content);
    }
}

/// An application that says what it was asked.
fn app(conn: &mut Conn) {
    while let Some(request) = conn.read_request() {
        let path = request.target.split('?').next().unwrap_or_default();
        if request.field("upgrade").is_some() {
            conn.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
            return;
        }
        if let Some(file) = path.strip_prefix("/send/") {
            conn.send(format!(
                "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /protected/{file}\r\nContent-Length: 0\r\n\r\n"
            ));
        } else if let Some(status) = path.strip_prefix("/fail/") {
            conn.answer(&format!("{status} Failed"), "failed");
        } else if path == "/auth" && request.field("cookie") != Some("session=1") {
            conn.answer("401 Unauthorized", "who?");
        } else {
            let fields = request.fields.iter().map(|(name, value)| {
                format!("{}: {}\n", name.to_lowercase(), value.escape_ascii())
            });
            let fields: String = fields.collect();
            let (method, target) = (&request.method, &request.target);
            let body = request.body.escape_ascii();
            let said = format!("{method} {target}\n{fields}\n{body}");
            let length = said.len();
            conn.send(format!(
                "HTTP/1.1 200 OK\r\nX-Internal: 1\r\nContent-Length: {length}\r\n\r\n{said}"
            ));
        }
    }
}

/// `METHOD TARGET | NAME: VALUE | "body"`
fn ask(client: &mut Client, request: &str) -> Answer {
    let mut parts = request.split(" | ").map(str::trim);
    let (method, target) = parts
        .next()
        .and_then(|line| line.split_once(' '))
        .expect(request);
    let (mut headers, mut body) = (Vec::new(), "");
    for part in parts {
        match part.strip_prefix('"') {
            Some(text) => body = text.strip_suffix('"').expect(request),
            None => headers.push(part.split_once(": ").expect(request)),
        }
    }
    let length = body.len().to_string();
    let mut message = head(method, target, &headers);
    if headers.iter().any(|(name, _)| *name == "Host") {
        message = message.replacen("Host: localhost\r\n", "", 1);
    }
    if !body.is_empty() || method == "POST" || method == "PUT" {
        message = message.replacen(
            "\r\n\r\n",
            &format!("\r\nContent-Length: {length}\r\n\r\n"),
            1,
        );
    }
    client.send(message + body);
    client.receive_to(method)
}

/// `GET https://HOST/PATH`, asked at `address`.
fn ask_over_tls(address: SocketAddr, authorities: &Path, url: &str) -> Answer {
    let (host, path) = url.split_once('/').expect(url);
    let name = ServerName::try_from(host.to_owned()).expect(url);
    let session = ClientConnection::new(tls::trusting(authorities), name).expect("a session");
    // While the server before it still has the port, nginx listens at its others already.
    wait_until("the port is open", || TcpStream::connect(address).is_ok());
    let mut stream = StreamOwned::new(session, tls::socket(address));
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("written");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("a response");
    Answer::of_bytes(&response)
}

/// Whether the response is `STATUS | NAME: VALUE | !NAME | "part of the body"`.
fn is_expected(answer: &Answer, expected: &str) -> bool {
    let headers = answer.headers();
    expected.split(" | ").map(str::trim).all(|part| {
        if let Some(text) = part.strip_prefix('"') {
            return answer.text().contains(text.trim_end_matches('"'));
        }
        if let Some(name) = part.strip_prefix('!') {
            return !headers.iter().any(|(is, _)| is.eq_ignore_ascii_case(name));
        }
        match part.split_once(": ") {
            None => answer.status.to_string() == part,
            Some((name, value)) => headers.iter().any(|(is, given)| {
                let given = String::from_utf8_lossy(given);
                let is_value =
                    given == value || given.split([',', ';']).any(|one| one.trim() == value);
                is.eq_ignore_ascii_case(name) && is_value
            }),
        }
    })
}

/// Waits until the log has `"TEXT"`; then it must not have `!"OTHER"`.
fn assert_logged(title: &str, log: &Path, expected: &str) {
    let text = || fs::read_to_string(log).unwrap_or_default();
    for part in expected.split(" | ").map(str::trim) {
        let (is_absent, quoted) = match part.strip_prefix('!') {
            Some(quoted) => (true, quoted),
            None => (false, part),
        };
        let inner = quoted
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'));
        let inner = inner.expect(part);
        match is_absent {
            true => assert!(!text().contains(inner), "{title}: {}", text()),
            false => wait_until(&format!("{title}: {part}"), || text().contains(inner)),
        }
    }
}

/// Makes the folder of logs, which both servers may write to, and empties it.
fn empty_log(tree: &Tree) {
    let folder = tree.folder("log");
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).expect("chmod");
    // It is missing before the first server.
    let _ = fs::remove_file(folder.join("site.log"));
}

/// Where a server listens, and who has signed its certificate.
struct Doors<'d> {
    plain: &'d str,
    tls: SocketAddr,
    authorities: &'d Path,
}

/// What is wrong with the responses of one of the two servers.
fn wrong(
    server: &str,
    doors: &Doors<'_>,
    behaviour: &Behaviour,
    here: &dyn Fn(&str) -> String,
) -> Vec<String> {
    let cases = behaviour.cases.iter().filter_map(|case| {
        let (only, case) = match case.split_once(": ") {
            Some((only @ ("nginx" | "levity"), case)) => (only, case),
            _ => (server, case.as_str()),
        };
        let (request, expected) = case.split_once(" -> ").expect(case);
        if only != server {
            return None;
        }
        let title = &behaviour.title;
        if let Some(log) = request.strip_prefix("log ") {
            assert_logged(title, Path::new(&here(log.trim())), expected);
            return None;
        }
        let answer = match request.trim().strip_prefix("GET https://") {
            Some(url) => ask_over_tls(doors.tls, doors.authorities, url),
            None => ask(&mut Client::to(doors.plain), request),
        };
        (!is_expected(&answer, expected)).then(|| format!("{title}: {server}: {case}\n{answer:?}"))
    });
    cases.collect()
}

#[test]
fn both_servers_behave_as_the_page_says() {
    let (tree, app, php) = (tree(), Scripted::tcp(app), App::php_fpm());
    let root = tree.path().display().to_string();
    let php = php.address().trim_start_matches("unix:").to_owned();
    let authority = Authority::new("authority");
    let authorities = authority.folder().join("ca.pem");
    certify(&tree, &authority);
    let tls = free("127.0.0.1");
    let here = |text: &str| {
        text.replace("/srv", &root)
            .replace("/etc/letsencrypt", &format!("{root}/letsencrypt"))
            .replace("listen 443 ssl", &format!("listen {tls} ssl"))
            .replace(
                "address = \"443\"",
                &format!("address = \"{tls}\"\ntls = true"),
            )
            .replace("127.0.0.1:3000", app.address())
            .replace("127.0.0.1:3999", DOWN)
            .replace("/run/php/php-fpm.sock", &php)
    };
    let behaviours = behaviours();
    let numbers: Vec<_> = (1..)
        .map(|number| format!("{number}. "))
        .take(behaviours.len())
        .collect();
    assert_eq!(behaviours.len(), 34);
    let mut all_wrong = Vec::new();
    for (behaviour, number) in behaviours.iter().zip(numbers) {
        assert!(behaviour.title.starts_with(&number), "{}", behaviour.title);
        empty_log(&tree);
        let nginx = App::nginx(&here(&behaviour.nginx));
        let plain = nginx.address();
        let doors = Doors {
            plain,
            tls,
            authorities: &authorities,
        };
        all_wrong.extend(wrong("nginx", &doors, behaviour, &here));
        drop(nginx);
        empty_log(&tree);
        let listen = "address = \"80\"";
        assert_eq!(
            behaviour.levity.matches(listen).count(),
            1,
            "{}",
            behaviour.title
        );
        let config = here(&behaviour.levity).replace(listen, "address = \"127.0.0.1:0\"");
        let levity = Launch::run(&config).start();
        let address = levity.address().to_string();
        let doors = Doors {
            plain: &address,
            tls,
            authorities: &authorities,
        };
        all_wrong.extend(wrong("levity", &doors, behaviour, &here));
    }
    assert!(all_wrong.is_empty(), "{}", all_wrong.join("\n"));
}
