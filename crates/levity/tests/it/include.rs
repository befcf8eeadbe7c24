//! One configuration in many files, with values from the environment.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::certificates::{Authority, Key};
use crate::support::{Client, Launch, Server, Tree, wait_until};
#[cfg(feature = "tls")]
use crate::tls;

const MAIN: &str = "include = [\"sites.d/*.toml\"]\n[admin]\nlisten = \"unix:{own}/admin\"\n\
                    [[listen]]\naddress = \"127.0.0.1:0\"\n";

/// A site that answers with `body`.
fn site(host: &str, body: &str) -> String {
    format!("[[site]]\nhosts = [\"{host}\"]\nrespond = {{ body = \"{body}\" }}\n")
}

/// `levity run` of `MAIN` with these files beside it.
fn launch(main: &str, files: &[(String, String)]) -> Launch {
    let launch = Launch::run(main);
    let folder = launch.own().join("sites.d");
    fs::create_dir(&folder).expect("a folder");
    for (name, text) in files {
        fs::write(folder.join(name), text).expect("a file");
    }
    launch
}

fn thirty() -> Vec<(String, String)> {
    let file = |number: usize| {
        let host = format!("s{number}.test");
        (format!("{number:02}.toml"), site(&host, &host))
    };
    (0..30).map(file).collect()
}

fn body(server: &Server, host: &str) -> String {
    server.client().get_for(host, "/").text()
}

fn reloads(server: &Server, outcome: &str) {
    let count = || server.stderr().matches(outcome).count();
    let before = count();
    server.signal(Signal::HUP);
    wait_until(outcome, || count() > before);
}

#[test]
fn thirty_sites_have_a_file_each() {
    let server = launch(MAIN, &thirty()).start();
    server.says("serving 30 sites");
    for number in 0..30 {
        let host = format!("s{number}.test");
        assert_eq!(body(&server, &host), host);
    }
    server
        .client()
        .get_for("other.test", "/")
        .assert_status(421);
    // The site for all other names may be in any of them.
    let last = site("s29.test", "default") + "default = true\n";
    fs::write(server.own("sites.d/29.toml"), last).expect("a file");
    fs::remove_file(server.own("sites.d/28.toml")).expect("removed");
    fs::write(server.own("sites.d/new.toml"), site("new.test", "new")).expect("a file");
    reloads(&server, "configuration reloaded");
    for (host, expected) in [
        ("s0.test", "s0.test"),
        ("new.test", "new"),
        ("s28.test", "default"),
        ("other.test", "default"),
    ] {
        assert_eq!(body(&server, host), expected, "{host}");
    }
}

#[test]
fn a_reload_takes_all_files_or_none() {
    let server = launch(MAIN, &thirty()).start();
    fs::write(server.own("sites.d/00.toml"), site("s0.test", "changed")).expect("a file");
    fs::write(server.own("sites.d/07.toml"), "[[site]]\nhost = 1\n").expect("a file");
    fs::write(server.own("sites.d/99.toml"), site("s1.test", "twice")).expect("a file");
    reloads(&server, "configuration not reloaded, the old one stays");
    server.says("/sites.d/07.toml:2:1");
    server.says("host `s1.test` is given twice");
    for host in ["s0.test", "s7.test", "s1.test"] {
        assert_eq!(body(&server, host), host);
    }
    fs::remove_file(server.own("sites.d/99.toml")).expect("removed");
    fs::write(server.own("sites.d/07.toml"), site("s7.test", "mended")).expect("a file");
    reloads(&server, "configuration reloaded");
    assert_eq!(body(&server, "s0.test"), "changed");
    assert_eq!(body(&server, "s7.test"), "mended");
}

/// Nobody writes to it.
#[test]
fn a_pipe_among_the_files_holds_up_no_reload() {
    let server = launch(MAIN, &thirty()).start();
    let pipe = server.own("sites.d/pipe.toml");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::from(0o644), 0).expect("a pipe");
    reloads(&server, "configuration not reloaded, the old one stays");
    server.says("cannot read the file: it is no regular file");
    server.says("pipe.toml");
    assert_eq!(body(&server, "s3.test"), "s3.test");
}

#[test]
fn a_folder_that_cannot_be_listed_is_an_error() {
    let tree = Tree::new();
    tree.file("closed/a.toml", site("a.test", "a"));
    let folder = tree.at("closed");
    let set = |mode| fs::set_permissions(&folder, Permissions::from_mode(mode)).expect("chmod");
    set(0o000);
    let include = format!("include = [\"{}/*.toml\"]\n", folder.display());
    let refused = Launch::run(&include).try_start();
    // So that it can be removed.
    set(0o755);
    let refused = refused.err().expect("no configuration");
    assert!(refused.contains("/closed: Permission denied"), "{refused}");
}

#[test]
fn check_names_all_files() {
    let tree = Tree::new();
    let main = tree.file(
        "levity.toml",
        "include = [\"sites.d/*.toml\", \"more.d/*.toml\"]\n",
    );
    for (name, text) in thirty() {
        tree.file(format!("sites.d/{name}"), text);
    }
    let main = main.to_str().expect("a path in UTF-8");
    let check = |more: &[&str]| Launch::levity(["check", main]).arguments(more).ran();
    let ran = check(&[]);
    assert_eq!(
        (ran.status, ran.stdout),
        (0, format!("{main} and 30 more files: ok\n"))
    );
    let absent = tree.at("more.d");
    let note = format!(
        "note: {main}: line 1: no file matches `more.d/*.toml`: there is no {}\n",
        absent.display()
    );
    assert_eq!(ran.stderr, note);
    assert_eq!(check(&["--strict"]).status, 78);
    let answer: Value = serde_json::from_str(&check(&["--json"]).stdout).expect("JSON");
    let included = answer["included"].as_array().expect("names");
    assert_eq!(included.len(), 30);
    assert_eq!(included[29], json!(tree.at("sites.d/29.toml")));
    assert_eq!(answer["notes"].as_array().map(Vec::len), Some(1));
    // As packages ship it.
    fs::create_dir(&absent).expect("a folder");
    assert_eq!(check(&["--strict"]).status, 0);
    tree.file("sites.d/05.toml", "[[site]]\nhosts = [\"s5.test\"]\n");
    let ran = check(&["--json"]);
    let answer: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(ran.status, 78);
    assert_eq!(
        answer["problems"][0]["file"],
        json!(tree.at("sites.d/05.toml"))
    );
    assert_eq!(answer["problems"][0]["line"], 1);
}

#[test]
fn values_come_from_the_environment() {
    let main = "[admin]\nlisten = \"unix:{own}/admin\"\n[[listen]]\naddress = \"127.0.0.1:${PORT}\"\n[server]\nworkers = \"${N:-1}\"\n\
                [[site]]\nhosts = [\"${LEVITY_HOST}\"]\ndefault = true\nrespond = { body = \"${LEVITY_BODY}\" }\n\
                [[upstream]]\nname = \"app\"\nto = [\"${LEVITY_APP}:1\"]\n";
    let server = Launch::run(main)
        .environment("PORT", "0")
        .environment("LEVITY_HOST", "a.test")
        .environment("LEVITY_BODY", "s3cret\"]\nbody")
        .environment("LEVITY_APP", "127.77.66.55")
        .start();
    assert_eq!(body(&server, "a.test"), "s3cret\"]\nbody");
    reloads(&server, "configuration reloaded");
    assert_eq!(body(&server, "a.test"), "s3cret\"]\nbody");
    for path in ["/status", "/status.json"] {
        let status = Client::unix(&server.own("admin")).get(path).text();
        assert!(status.contains("${LEVITY_APP}:1"), "{status}");
        assert!(!status.contains("127.77.66.55"), "{status}");
    }
}

#[test]
fn commands_take_values_from_a_file() {
    let tree = Tree::new();
    let text =
        "[[site]]\nhosts = [\"${LEVITY_HOST}\"]\nredirect = { to = \"https://${LEVITY_TO}/\" }\n";
    let main = tree.file("levity.toml", text);
    let values = "# for the check\nLEVITY_HOST=a.test\nLEVITY_TO=elsewhere.test\n";
    let values = tree.file("values", values);
    let [main, values] = [&main, &values].map(|path| path.to_str().expect("a path in UTF-8"));
    let check = |more: &[&str]| Launch::levity(["check", main]).arguments(more).ran();
    let ran = check(&[]);
    assert_eq!(ran.status, 78, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("`${LEVITY_HOST}` is not set"),
        "{}",
        ran.stderr
    );
    let ran = check(&["--env-file", values]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let explain = [
        "explain",
        "-c",
        main,
        "--env-file",
        values,
        "http://a.test/x",
    ];
    for json in [&[][..], &["--json"]] {
        let ran = Launch::levity(explain).arguments(json).ran();
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert!(
            ran.stdout.contains("https://${LEVITY_TO}/"),
            "{}",
            ran.stdout
        );
        assert!(ran.stdout.contains("${LEVITY_HOST}"), "{}", ran.stdout);
        assert!(!ran.stdout.contains("elsewhere"), "{}", ran.stdout);
    }
    tree.file("values", "LEVITY_HOST=\"a.test\"\n");
    let ran = check(&["--env-file", values]);
    assert_eq!(ran.status, 78);
    let reason = format!("error: {values}:1: the value of `LEVITY_HOST` begins with a quote");
    assert!(ran.stderr.starts_with(&reason), "{}", ran.stderr);
}

/// Values that are shown only after the configuration was read.
#[test]
fn explain_and_errors_of_a_start_show_no_value() {
    let tree = Tree::new();
    let text = "[[listen]]\naddress = \"unix:${LEVITY_DIR}/a.sock\"\n[[upstream]]\nname = \"a\"\nto = [\"${LEVITY_APP}\"]\n\
                protocol = \"${LEVITY_PROTOCOL}\"\n[[site]]\nredirect = { to = \"${LEVITY_TO}\" }\n\
                [[site.route]]\npath = \"/app/*\"\nproxy = \"a\"\n";
    let main = tree.file("levity.toml", text);
    // The name of the socket is taken.
    tree.file("hunter2-dir/a.sock/file", "");
    let folder = tree.at("hunter2-dir");
    let [main, folder] = [&main, &folder].map(|path| path.to_str().expect("a path in UTF-8"));
    let levity = |arguments: &[&str]| {
        Launch::levity(arguments)
            .environment("LEVITY_DIR", folder)
            .environment("LEVITY_APP", "hunter2-app.invalid:80")
            .environment("LEVITY_PROTOCOL", "http")
            .environment("LEVITY_TO", "https://hunter2-to.example{path}")
            .ran()
    };
    for (arguments, expected) in [
        (&["explain", "-c", main, "/x"][..], "https://${LEVITY_TO}/x"),
        (
            &["explain", "-c", main, "/x", "--json"],
            "https://${LEVITY_TO}/x",
        ),
        (
            &["explain", "-c", main, "/app/x"],
            "${LEVITY_APP} does not resolve",
        ),
    ] {
        let ran = levity(arguments);
        let told = format!("{}{}", ran.stdout, ran.stderr);
        assert!(told.contains(expected), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
        assert!(!told.contains("${LEVITY_PROTOCOL}"), "{told}");
    }
    let ran = levity(&["run", main]);
    let error = ran.stderr.lines().find(|line| line.starts_with("error: "));
    let error = error.expect("an error");
    assert!(error.contains("${LEVITY_DIR}/a.sock"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

/// As systemd hands them over.
#[test]
fn secrets_come_from_credentials() {
    let tree = Tree::new();
    tree.file(
        "credentials/users",
        "ann:$2y$04$MoKKoQ5swkLbx1YRjQwMNeNLTLCQd61MP9T68vDeM5qpKwzjfEKsa\n",
    );
    tree.file("credentials/other", "x");
    tree.file("a", "AAA");
    let root = tree.path().display();
    let main = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[site]]\nroot = \"{root}\"\n[[site.route]]\npath = \"/a\"\n\
         basic_auth = {{ users = \"credential:users\" }}\n"
    );
    let refused = Launch::run(&main).try_start();
    let refused = refused.err().expect("no credentials");
    assert!(refused.contains("LoadCredential=users:PATH"), "{refused}");
    let folder = tree.at("credentials");
    let folder = folder.to_str().expect("a path in UTF-8");
    let server = Launch::run(&main)
        .environment("CREDENTIALS_DIRECTORY", folder)
        .start();
    server.get("/a").assert_status(401);
    // `ann:secret`
    let let_in = [("Authorization", "Basic YW5uOnNlY3JldA==")];
    server.get_with("/a", &let_in).assert_status(200);
    server.get("/credentials/users").assert_status(404);
    server.get("/credentials/other").assert_status(200);
}

#[cfg(feature = "tls")]
#[test]
fn the_order_of_files_chooses_no_certificate() {
    let authority = Authority::new("authority");
    let files = ["a", "b"].map(|name| {
        let host = format!("{name}.test");
        authority.certify(name, &[&host], Key::Ecdsa);
        let text = site(&host, name) + &authority.table(&[name]);
        (format!("{name}.toml"), text)
    });
    let main = format!("include = [\"sites.d/*.toml\"]\n{}", tls::LISTEN);
    let server = launch(&main, &files).start();
    assert_eq!(tls::get(&server, &authority, "b.test", "/", &[]), b"b");
    let others = [&["-servername", "c.test"][..], &["-noservername"]];
    for asked in others {
        let said = tls::openssl(&server, asked);
        assert!(!said.contains("BEGIN CERTIFICATE"), "{said}");
        assert!(said.contains("alert"), "{said}");
    }
    let explained = |url: &str| {
        let file = server.config();
        let file = file.to_str().expect("a path in UTF-8");
        Launch::levity(["explain", "-c", file, url]).ran().stdout
    };
    let refused = explained("https://c.test/");
    assert!(refused.contains("the handshake is refused"), "{refused}");
    let text = fs::read_to_string(server.own("sites.d/b.toml")).expect("a file");
    let text = text.replace("respond", "default = true\nrespond");
    fs::write(server.own("sites.d/b.toml"), text).expect("a file");
    reloads(&server, "configuration reloaded");
    for asked in others {
        let said = tls::openssl(&server, asked);
        assert!(said.contains("BEGIN CERTIFICATE"), "{said}");
    }
    let chosen = explained("https://c.test/");
    assert!(chosen.contains("b.test"), "{chosen}");
}
