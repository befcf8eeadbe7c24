//! `basic_auth`.

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine};

use crate::support::scripted::{Scripted, fastcgi};
use crate::support::{
    Answer, Client, Launch, Server, Tree, settle, started_in_front_of, wait_until,
};

/// Made by `htpasswd -bnBC 4`: `secret` and `pass:wörd`.
const USERS: &str = "# users\n\
    ann:$2y$04$MoKKoQ5swkLbx1YRjQwMNeNLTLCQd61MP9T68vDeM5qpKwzjfEKsa\n\
    bob:$2y$04$R7bqBPqdbGw8LYsdl1rucurtcyVLg3aAlQeHjefyVZJl3/TeN9l7.\n";

const LISTEN: &str =
    "[server]\ntrusted_proxies = [\"127.0.0.1\"]\n[[listen]]\naddress = \"127.0.0.1:0\"\n";

fn basic(user: &str, password: &str) -> String {
    format!(
        "Basic {}",
        BASE64_STANDARD.encode(format!("{user}:{password}"))
    )
}

/// A folder with a file `users`.
fn tree() -> Tree {
    let tree = Tree::new();
    tree.file("users", USERS);
    tree
}

/// A server whose site has these keys; `{users}` in them stands for the path of the file.
fn started(tree: &Tree, keys: &str) -> Server {
    let users = tree.at("users").display().to_string();
    Launch::run(&format!(
        "{LISTEN}[[site]]\n{}\n",
        keys.replace("{users}", &users)
    ))
    .start()
}

fn ask(client: &mut Client, path: &str, user: &str, password: &str, from: &str) -> Answer {
    let authorization = basic(user, password);
    let headers = [
        ("Authorization", &*authorization),
        ("X-Forwarded-For", from),
    ];
    client.get_with(path, &headers)
}

#[test]
fn users_with_their_passwords_are_let_in() {
    let tree = tree();
    let server = started(
        &tree,
        "respond = { body = \"in\" }\nbasic_auth = { users = \"{users}\", realm = \"a b\" }",
    );
    let mut client = server.client();
    for (user, password) in [("ann", "secret"), ("bob", "pass:wörd"), ("ann", "secret")] {
        assert_eq!(
            ask(&mut client, "/", user, password, "10.0.0.1").text(),
            "in"
        );
    }
    let right = basic("ann", "secret");
    let lower = right.replace("Basic", "basic");
    assert_eq!(
        client.get_with("/", &[("Authorization", &lower)]).text(),
        "in"
    );
    let twice = [("Authorization", &*right), ("Authorization", &*right)];
    let wrong = basic("ann", "Secret");
    let unknown = basic("eve", "secret");
    let refused: [&[(&str, &str)]; 8] = [
        &[],
        &[("Authorization", "")],
        &[("Authorization", "Basic")],
        &[("Authorization", "Basic !!!")],
        &[("Authorization", "Bearer abc")],
        &[("Authorization", &wrong)],
        &[("Authorization", &unknown)],
        &twice,
    ];
    for headers in refused {
        let answer = client.get_with("/", headers);
        assert_eq!(answer.status, 401, "{headers:?}");
        let challenge = answer.field("www-authenticate");
        assert_eq!(challenge, "Basic realm=\"a b\", charset=\"UTF-8\"");
        assert_eq!(answer.text(), "401 Unauthorized\n");
    }
    let answer = client.head("/");
    answer.assert_status(401);
}

#[test]
fn what_is_inside_stays_guarded_until_a_route_opens_it() {
    let tree = tree();
    tree.file("www/a.txt", "content");
    tree.file("www/open/b.txt", "open");
    settle();
    let root = tree.at("www").display().to_string();
    let server = started(
        &tree,
        &format!(
            "root = \"{root}\"\nlisting = true\ntry = [\"file\", \"/a.txt\"]\nbasic_auth = {{ users = \"{{users}}\" }}\n\
             [[site.route]]\npath = \"/plain/*\"\nallow = [\"all\"]\n\
             [[site.route]]\npath = \"/moved\"\nredirect = {{ to = \"/\" }}\n\
             [[site.route]]\npath = \"/bob/*\"\nbasic_auth = {{ users = \"{{users}}\", allow_users = [\"bob\"] }}\n\
             [[site.route]]\npath = \"/open/*\"\nbasic_auth = false\n\
             [[site.route.route]]\npath = \"/open/x/*\"\n"
        ),
    );
    let mut client = server.client();
    for path in [
        "/", "/a.txt", "/absent", "/plain/x", "/moved", "/bob/x", "/%61.txt",
    ] {
        client.get(path).assert_status(401);
    }
    let etag = ask(&mut client, "/a.txt", "ann", "secret", "10.0.0.1");
    assert_eq!(etag.text(), "content");
    let etag = etag.field("etag").to_owned();
    client
        .get_with("/a.txt", &[("If-None-Match", &etag)])
        .assert_status(401);
    client
        .get_with("/a.txt", &[("Range", "bytes=0-1")])
        .assert_status(401);
    ask(&mut client, "/moved", "ann", "secret", "10.0.0.1").assert_status(302);
    ask(&mut client, "/bob/x", "ann", "secret", "10.0.0.1").assert_status(401);
    ask(&mut client, "/bob/x", "bob", "pass:wörd", "10.0.0.1").assert_status(200);
    assert_eq!(client.get("/open/b.txt").text(), "open");
    // A page of `try` is behind the gates of its own path.
    client.get("/open/x/y").assert_status(401);
}

/// Applications learn the user. They learn the password only if they are to.
#[test]
fn what_applications_learn() {
    let tree = tree();
    let http = Scripted::tcp(
        |conn| {
            while conn.read_request().is_some() && conn.answer("200 OK", "ok") {}
        },
    );
    let server = started(
        &tree,
        &format!(
            "proxy = \"app\"\nbasic_auth = {{ users = \"{{users}}\" }}\n\
             [[site.route]]\npath = \"/whole\"\nbasic_auth = {{ users = \"{{users}}\", pass_authorization = true }}\n\
             [[site.route]]\npath = \"/open\"\nbasic_auth = false\n\
             [[upstream]]\nname = \"app\"\nto = [\"{}\"]\n",
            http.address()
        ),
    );
    let mut client = server.client();
    for path in ["/", "/whole", "/open"] {
        ask(&mut client, path, "ann", "secret", "10.0.0.1").assert_status(200);
    }
    let requests = http.requests();
    let passed: Vec<_> = requests
        .iter()
        .map(|one| one.field("authorization"))
        .collect();
    let whole = basic("ann", "secret");
    assert_eq!(passed, [None, Some(&*whole), Some(&*whole)]);
    let cgi = Scripted::unix(|conn| {
        while conn.read_fastcgi().is_some() {
            conn.send(fastcgi::answer("A: b\n\n"));
        }
    });
    let users = tree.at("users").display().to_string();
    let keys = format!("basic_auth = {{ users = \"{users}\" }}\n");
    let server = started_in_front_of(cgi.address(), "fastcgi", &Tree::new(), &keys);
    let headers = [
        ("Authorization", &*basic("ann", "secret")),
        ("Remote-User", "eve"),
    ];
    server.get_with("/", &headers).assert_status(200);
    let request = cgi.request();
    assert_eq!(request.field("REMOTE_USER"), Some("ann"));
    assert_eq!(request.field("HTTP_AUTHORIZATION"), None);
}

/// Nobody else can say who the user is, on no way to the application.
#[test]
fn http_applications_learn_the_user() {
    let tree = tree();
    let http = Scripted::tcp(|conn| {
        while conn.read_request().is_some() {
            conn.answer("200 OK", "ok");
        }
    });
    let server = started(
        &tree,
        &format!(
            "proxy = \"app\"\nbasic_auth = {{ users = \"{{users}}\", user_header = \"Remote-User\" }}\n\
             [[site.route]]\npath = \"/open\"\nbasic_auth = false\n\
             [[site.route]]\npath = \"/moved\"\nreroute = \"/new\"\n\
             [[upstream]]\nname = \"app\"\nto = [\"{}\"]\n",
            http.address()
        ),
    );
    let mut client = server.client();
    let authorization = basic("ann", "secret");
    let headers = [("Authorization", &*authorization), ("remote-user", "eve")];
    for path in ["/", "/open", "/moved"] {
        client.get_with(path, &headers).assert_status(200);
    }
    let requests = http.requests();
    let told: Vec<_> = requests
        .iter()
        .map(|one| one.field("remote-user"))
        .collect();
    assert_eq!(told, [Some("ann"), None, Some("ann")]);
}

#[test]
fn the_log_names_the_user() {
    let tree = tree();
    let server = started(
        &tree,
        "respond = {}\nbasic_auth = { users = \"{users}\" }\n[log]\naccess = \"{own}/log\"",
    );
    let mut client = server.client();
    ask(&mut client, "/right", "ann", "secret", "10.0.0.1").assert_status(200);
    ask(&mut client, "/wrong", "ann", "x", "10.0.0.1").assert_status(401);
    let log = || std::fs::read_to_string(server.own("log")).unwrap_or_default();
    wait_until("two lines", || log().lines().count() == 2);
    let log = log();
    assert!(log.contains("10.0.0.1 - ann ["), "{log}");
    assert!(
        log.lines()
            .any(|line| line.starts_with("10.0.0.1 - - [") && line.contains("/wrong"))
    );
    assert!(!log.contains("secret"), "{log}");
}

#[test]
fn who_guesses_has_to_wait() {
    let tree = tree();
    let server = started(&tree, "respond = {}\nbasic_auth = { users = \"{users}\" }");
    let mut client = server.client();
    let (attacker, neighbour, other) = ("2001:db8::1", "2001:db8::2", "192.0.2.7");
    let right = |client: &mut Client, from| ask(client, "/", "ann", "secret", from).status;
    assert_eq!(right(&mut client, attacker), 200);
    // The same wrong password is one guess, however often a program repeats it.
    for _ in 0..20 {
        ask(&mut client, "/", "bob", "old", attacker).assert_status(401);
    }
    let mut statuses = Vec::new();
    for number in 0..40 {
        let answer = ask(
            &mut client,
            "/",
            "ann",
            &format!("guess {number}"),
            attacker,
        );
        if answer.status == 429 {
            let seconds: u32 = answer.field("retry-after").parse().expect("a number");
            assert!((1..=64).contains(&seconds), "{seconds}");
        }
        statuses.push(answer.status);
    }
    assert_eq!(statuses[..5], [401; 5]);
    let verified = statuses.iter().filter(|status| **status == 401).count();
    assert!(verified < 10, "{statuses:?}");
    // Neighbours in the network of the client wait too, with a password that is not known yet.
    let right_too = ask(&mut client, "/", "bob", "pass:wörd", neighbour);
    right_too.assert_status(429);
    // Also one that others have been right with: a guess that they answer is a guess without limit.
    assert_eq!(ask(&mut client, "/", "bob", "pass:wörd", other).status, 200);
    for _ in 0..3 {
        let refused = ask(&mut client, "/", "bob", "pass:wörd", attacker);
        refused.assert_status(429);
    }
    // One that they themselves have given still opens the door, on every connection.
    assert_eq!(right(&mut client, attacker), 200);
    for _ in 0..8 {
        assert_eq!(right(&mut server.client(), neighbour), 200);
    }
}

/// How long a client has to wait at first.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// What another client waits for tells a client nothing that has to wait itself.
#[test]
fn who_has_to_wait_joins_nobody() {
    let tree = Tree::new();
    tree.file("users", format!("{}{}", USERS, slow_user()));
    let server = started(&tree, "respond = {}\nbasic_auth = { users = \"{users}\" }");
    let (attacker, other) = ("2001:db8::1", "192.0.2.7");
    let mut client = server.client();
    let mut last_guess = Instant::now();
    for number in 0..6 {
        let guess = format!("guess {number}");
        last_guess = Instant::now();
        ask(&mut client, "/", "bob", &guess, attacker).assert_status(401);
    }
    thread::scope(|scope| {
        let slow = scope.spawn(|| ask(&mut server.client(), "/", "slow", "x", other).status);
        while !slow.is_finished() {
            let refused = ask(&mut server.client(), "/", "slow", "x", attacker);
            // On a slow machine the first wait may end before the other client has its answer.
            if last_guess.elapsed() > FIRST_WAIT {
                break;
            }
            refused.assert_status(429);
        }
        assert_eq!(slow.join().expect("a status"), 401);
    });
}

/// Otherwise the verdicts about the guesses of one client would be guesses without limit for all its accomplices.
#[test]
fn a_wrong_password_is_charged_also_if_another_client_gave_it_first() {
    let tree = tree();
    let server = started(&tree, "respond = {}\nbasic_auth = { users = \"{users}\" }");
    let mut client = server.client();
    let statuses = (0..7).map(|number| {
        let guess = format!("guess {number}");
        let first = format!("192.0.2.{number}");
        ask(&mut client, "/", "bob", &guess, &first).assert_status(401);
        ask(&mut client, "/", "bob", &guess, "2001:db8::1").status
    });
    let statuses: Vec<_> = statuses.collect();
    assert_eq!(statuses, [401, 401, 401, 401, 401, 401, 429]);
}

/// Many clients guess at once. Those beyond the queue are refused without a hash, and whoever is known gets in.
#[test]
fn a_flood_of_guesses_is_bounded() {
    let tree = Tree::new();
    tree.file("users", format!("{}{}", USERS, slow_user()));
    let server = started(&tree, "respond = {}\nbasic_auth = { users = \"{users}\" }");
    let mut client = server.client();
    ask(&mut client, "/", "ann", "secret", "192.0.2.7").assert_status(200);
    let before = server.resident_bytes();
    let guess = |number: usize| {
        let mut client = server.client();
        let from = format!("10.0.{}.{}", number / 8, number % 8);
        ask(&mut client, "/", "slow", &format!("guess {number}"), &from).status
    };
    // Half of the threads compute hashes, 64 MiB each, and 16 passwords wait for each of them, a quarter of them for one user.
    let permits = (thread::available_parallelism().expect("a number").get() / 2).max(1);
    let statuses: Vec<u16> = thread::scope(|scope| {
        let guesses: Vec<_> = (0..64 * permits)
            .map(|number| scope.spawn(move || guess(number)))
            .collect();
        // The first was verified before, the other is verified now.
        ask(&mut client, "/", "ann", "secret", "192.0.2.7").assert_status(200);
        ask(&mut client, "/", "bob", "pass:wörd", "192.0.2.8").assert_status(200);
        guesses
            .into_iter()
            .map(|guess| guess.join().expect("a status"))
            .collect()
    });
    let all = |status| statuses.iter().filter(|one| **one == status).count();
    assert_eq!(all(401) + all(503), statuses.len(), "{statuses:?}");
    assert!(all(401) > 0 && all(503) > 0, "{statuses:?}");
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < (permits * 64 + 48) << 20, "{grown} bytes");
}

/// A line whose password nobody knows, with a hash of 64 MiB.
fn slow_user() -> String {
    let (salt, hash) = ("c2FsdHNhbHRzYWx0", "A".repeat(43));
    format!("slow:$argon2id$v=19$m=65536,t=1,p=1${salt}${hash}\n")
}

#[test]
fn a_reload_reads_the_users_again() {
    let tree = tree();
    let server = started(&tree, "respond = {}\nbasic_auth = { users = \"{users}\" }");
    let mut client = server.client();
    ask(&mut client, "/", "ann", "secret", "10.0.0.1").assert_status(200);
    let without_ann = USERS.replace("ann:", "carl:");
    tree.file("users", &without_ann);
    server.reload(&[], &[]);
    // The verdict about a user who is gone is gone too.
    ask(&mut client, "/", "ann", "secret", "10.0.0.2").assert_status(401);
    ask(&mut client, "/", "carl", "secret", "10.0.0.2").assert_status(200);
    tree.file("users", format!("{without_ann}eve:secret\n"));
    server.signal(rustix::process::Signal::HUP);
    server.says("users, line 4: not a hash of Argon2, bcrypt or SHA-crypt");
    ask(&mut client, "/", "carl", "secret", "10.0.0.2").assert_status(200);
}

#[test]
fn the_command_makes_lines_that_the_server_reads() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_levity"))
        .args(["passwd", "dora"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("levity");
    let mut input = child.stdin.take().expect("stdin");
    input.write_all("naïve secret\n".as_bytes()).expect("write");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let line = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(
        line.starts_with("dora:$argon2id$v=19$m=19456,t=2,p=1$"),
        "{line}"
    );
    let tree = Tree::new();
    tree.file("users", &line);
    let server = started(&tree, "respond = {}\nbasic_auth = { users = \"{users}\" }");
    let mut client = server.client();
    ask(&mut client, "/", "dora", "naïve secret", "10.0.0.1").assert_status(200);
    ask(&mut client, "/", "dora", "naive secret", "10.0.0.1").assert_status(401);
}
