//! Keys, passwords and the configuration lie beneath a root, and nobody gets them.

use std::fs;

use crate::support::certificates::{Authority, Key};
use crate::support::scripted::Scripted;
use crate::support::{Launch, Tree};

const LISTEN: &str = "[[listen]]\naddress = \"127.0.0.1:0\"\n";

/// Made by `htpasswd -bnBC 4`: `secret`.
const USERS: &str = "ann:$2y$04$MoKKoQ5swkLbx1YRjQwMNeNLTLCQd61MP9T68vDeM5qpKwzjfEKsa\n";

#[cfg(feature = "tls")]
#[test]
fn no_path_leads_to_a_secret() {
    let authority = Authority::new("authority");
    authority.certify("a", &["localhost"], Key::Ecdsa);
    let tree = Tree::new();
    for name in ["a.pem", "a.key"] {
        tree.file(
            format!("kept/{name}"),
            fs::read(authority.file(name)).expect("a file"),
        );
    }
    tree.file("kept/users", USERS);
    tree.file("kept/tickets", [7; 80]);
    tree.file("kept/other", "other");
    for name in ["kept/users.gz", "kept/users.zst", "kept/other.gz"] {
        tree.file(name, "compressed");
    }
    fs::create_dir(tree.at("www")).expect("a folder");
    fs::hard_link(tree.at("kept/a.key"), tree.at("www/hard")).expect("a link");
    tree.link("../kept/users", "www/link");
    tree.link("../kept/other", "www/open");
    let root = tree.path().display();
    let server = Launch::run(&format!(
        "[tls]\nticket_keys = [\"{root}/kept/tickets\"]\n{LISTEN}\
         [[listen]]\naddress = \"unix:{{own}}/tls\"\ntls = true\n\
         [[site]]\nroot = \"{root}/www\"\nsymlinks = \"follow\"\nlisting = true\nlisting_archive = [\"tar\"]\n\
         [site.tls]\ncertificates = [\"{root}/kept/a.pem\"]\nkeys = [\"{root}/kept/a.key\"]\nredirect = false\n\
         [[site.route]]\npath = \"/kept/*\"\nroot = \"{root}\"\n\
         [[site.route]]\npath = \"/own/*\"\nroot = \"{{own}}\"\nstrip_prefix = \"/own\"\n\
         [[site.route]]\npath = \"/guarded\"\nbasic_auth = {{ users = \"{root}/kept/users\" }}\n"
    ))
    .start();
    server.says("kept/a.key lies beneath a `root`, at `/kept/a.key`");
    let mut client = server.client();
    for path in [
        "hard",
        "link",
        "kept/a.key",
        "kept/users",
        "kept/users.gz",
        "kept/users.zst",
        "kept/tickets",
        "own/levity.toml",
    ] {
        client.get(&format!("/{path}")).assert_status(404);
    }
    // The certificate itself is for everyone.
    for path in ["open", "kept/other", "kept/other.gz", "kept/a.pem"] {
        client.get(&format!("/{path}")).assert_status(200);
    }
    for (path, expected) in [
        ("/", &["open"][..]),
        ("/kept/", &["a.pem", "other", "other.gz"]),
    ] {
        let listing = client.get_with(path, &[("Accept", "text/plain")]);
        assert_eq!(names(&listing.text()), expected);
    }
    let archive = server.get("/kept/?archive=tar").body;
    let has = |part: &str| archive.windows(part.len()).any(|at| at == part.as_bytes());
    assert!(has("a.pem") && !has("a.key") && !has("PRIVATE KEY"));
    // A key that is renewed has another inode, also under another name.
    for number in 0..3 {
        tree.fresh("kept/new", format!("PRIVATE KEY {number}"));
        fs::rename(tree.at("kept/new"), tree.at("kept/a.key")).expect("a name");
        let hard = format!("hard{number}");
        fs::hard_link(tree.at("kept/a.key"), tree.at(format!("www/{hard}"))).expect("a link");
        for path in ["kept/a.key", &hard] {
            client.get(&format!("/{path}")).assert_status(404);
        }
    }
    // A reload names another one. The caches have it.
    let key = fs::read(authority.file("a.key")).expect("a file");
    tree.fresh("kept/a.key", key);
    tree.file("kept/other", USERS);
    client.get("/kept/other").assert_status(200);
    server.reload(&["kept/users"], &["kept/other"]);
    server.get("/kept/other").assert_status(404);
    server.get("/kept/users").assert_status(200);
}

/// The names of a listing as text, without folders.
fn names(listing: &str) -> Vec<String> {
    let lines = listing.lines();
    let names = lines.filter_map(|line| line.split('\t').nth(2));
    let files = names.filter(|name| !name.ends_with('/'));
    files.map(str::to_owned).collect()
}

#[test]
fn an_application_cannot_send_secrets_either() {
    let tree = Tree::new();
    tree.file("users", USERS);
    let file = tree.at("users").display().to_string();
    let say = format!("X-Sendfile: {file}\r\n");
    let backend = Scripted::tcp(move |conn| {
        while conn.read_request().is_some() {
            conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{say}\r\n"));
        }
    });
    let server = Launch::proxy(
        backend.address(),
        &format!(
            "sendfile_roots = [\"{}\"]\n[[site]]\nhosts = [\"b\"]\nrespond = {{}}\n\
             basic_auth = {{ users = \"{file}\" }}",
            tree.path().display()
        ),
    )
    .start();
    let answer = server.get("/");
    assert!(
        answer.status >= 400 && !answer.text().contains("ann:"),
        "{}",
        answer.status
    );
}

/// The folder of the authority lies in what is served.
#[cfg(feature = "tls")]
#[test]
fn the_key_of_the_authority_is_not_served() {
    let tree = Tree::new();
    tree.file("a.txt", "a");
    let state = tree.folder("state");
    tree.chmod("state", 0o777);
    let launch = Launch::serve(tree.path()).arguments(["--tls"]);
    let state = state.display().to_string();
    let server = launch
        .environment("STATE_DIRECTORY", &state)
        .folder(tree.path())
        .start();
    server.says("lies beneath");
    let ca = format!("{state}/tls/local-ca.pem");
    let key = tree.at("state/tls/local-ca.key");
    assert!(key.exists());
    fs::hard_link(&key, tree.at("hard.txt")).expect("a link");
    for (path, expected) in [
        ("/a.txt", "200"),
        ("/state/tls/local-ca.key", "404"),
        ("/state/tls/", "404"),
        ("/hard.txt", "404"),
    ] {
        let url = format!("https://{}{path}", server.address());
        assert_eq!(status(&ca, &url), expected, "{path}");
    }
}

/// The status of a request by `curl`.
fn status(ca: &str, url: &str) -> String {
    let words = [
        "-s",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "--cacert",
        ca,
        url,
    ];
    let got = std::process::Command::new("curl").args(words).output();
    String::from_utf8(got.expect("curl").stdout).expect("a status")
}

/// One in the folder of the start could be served.
#[cfg(feature = "tls")]
#[test]
fn without_a_home_there_is_no_state() {
    let tree = Tree::new();
    let ran = Launch::serve(tree.path())
        .arguments(["--tls"])
        .environment("HOME", "home")
        .environment("XDG_STATE_HOME", "state")
        .environment("STATE_DIRECTORY", "")
        .ran();
    assert_eq!(ran.status, 1, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("set `STATE_DIRECTORY` or `HOME`"),
        "{}",
        ran.stderr
    );
    assert!(!tree.at("levity").exists());
}
