//! The command line and its exit codes.

use std::any::Any;
use std::fs::{self, Permissions};
use std::net::{Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::support::{Client, Launch, Ran, Server, Tree, is_root, wait_until};

fn levity(arguments: &[&str]) -> Ran {
    Launch::levity(arguments).ran()
}

fn config(tree: &Tree) -> String {
    format!("[[site]]\nroot = \"{}\"\n", tree.path().display())
}

/// A server with exactly these flags.
fn serve(tree: &Tree, flags: &[&str]) -> Launch {
    let path = tree.path().to_str().expect("a path in UTF-8");
    Launch::levity(["serve", path]).arguments(flags)
}

#[test]
fn bare_levity_shows_examples() {
    let ran = levity(&[]);
    assert_eq!((ran.status, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("levity serve"), "{}", ran.stderr);
}

/// The errors of the system say neither what could not be had nor what helps.
#[test]
fn a_start_that_meets_a_limit_names_it() {
    let tree = Tree::new();
    let serve = || serve(&tree, &["--listen", "127.0.0.1:0"]);
    for descriptors in 4..40 {
        match serve().descriptors_max(descriptors).try_start() {
            Err(said) => assert!(said.contains("LimitNOFILE="), "{descriptors}: {said}"),
            // A loop that starts after the ports are open may still meet the limit, and ends the server.
            Ok(mut server) => {
                server.signal(Signal::KILL);
                server.wait();
            }
        }
    }
    let said = serve()
        .threads_max(1)
        .try_start()
        .err()
        .expect("it has one");
    let help = "no thread to be had: the user of the process may have 1 threads; raise that";
    assert!(said.contains(help), "{said}");
}

#[test]
fn exit_codes() {
    let tree = Tree::new();
    let none = tree.at("none");
    let none = none.to_str().expect("a path in UTF-8");
    for (arguments, status) in [
        (&["--help"][..], 0),
        (&["--version"], 0),
        (&["serve", "--help"], 0),
        (&["serv"], 2),
        (&["serve", "--listen", "example.org:80"], 2),
        (&["serve", "--engine", "aio"], 2),
        (&["run", "--port", "80"], 2),
        (&["serve", none], 1),
        (&["run", "-c", none], 78),
        (&["check", "-c", none], 78),
    ] {
        let ran = levity(arguments);
        assert_eq!(
            ran.status, status,
            "{arguments:?}: {}{}",
            ran.stdout, ran.stderr
        );
        assert_eq!(ran.stdout.is_empty(), status != 0, "{arguments:?}");
        assert_eq!(ran.stderr.is_empty(), status == 0, "{arguments:?}");
    }
}

#[test]
fn check_of_a_good_file() {
    let (tree, root) = (Tree::new(), Tree::new());
    let file = tree.file("levity.toml", config(&root));
    let file = file.to_str().expect("a path in UTF-8");
    let ran = levity(&["check", "-c", file]);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    assert!(ran.stdout.ends_with(": ok\n"), "{}", ran.stdout);
    let ran = levity(&["check", "--json", "-c", file]);
    let answer: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!((ran.status, &answer["ok"]), (0, &true.into()));
}

#[test]
fn check_shows_every_error_with_its_place() {
    let tree = Tree::new();
    let text =
        "[server]\nworker = 2\n[disk]\nengine = \"thread\"\n[[site]]\nroot = \"/none/at/all\"\n";
    let file = tree.file("levity.toml", text);
    let file = file.to_str().expect("a path in UTF-8");
    let ran = levity(&["check", "-c", file]);
    assert_eq!((ran.status, ran.stdout.as_str()), (78, ""));
    for part in [":2:1", "workers", ":4:10", "threads", ":6:8", "^^^"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    assert!(!ran.stderr.contains('\x1b'), "colour without a terminal");
    let ran = levity(&["check", "--json", "-c", file]);
    let answer: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let lines = answer["problems"].as_array().expect("problems").iter();
    let lines: Vec<_> = lines.map(|problem| problem["line"].clone()).collect();
    assert_eq!(
        (ran.status, lines),
        (78, vec![2.into(), 4.into(), 6.into()])
    );
}

#[test]
fn run_refuses_a_bad_file() {
    let ran = Launch::run("[[site]]\n").ran();
    assert_eq!(ran.status, 78);
    assert!(ran.stderr.contains("`root` is missing"), "{}", ran.stderr);
}

#[test]
fn serve_prints_where_and_with_what() {
    let tree = Tree::new();
    tree.file("a", "AAA");
    let server = Launch::serve(tree.path()).start();
    let url = format!("http://{}/", server.address());
    assert_eq!(server.stdout(), format!("{url}\n"));
    let what = tree.path().display();
    assert_eq!(
        server.stderr(),
        format!("levity: serving {what}; Ctrl-C ends it\n")
    );
    let server = Launch::serve(tree.path()).arguments(["-v"]).start();
    server.says("levity: listening on http://127.0.0.1:");
    let line = server.says("disk engine");
    assert!(
        line.len() > "levity: disk engine threads: ".len(),
        "no reason: {line}"
    );
}

#[test]
fn run_prints_nothing_on_standard_output() {
    let tree = Tree::new();
    let mut server = Launch::site(tree.path(), "[log]\naccess = \"off\"\n", "").start();
    server.get("/").assert_status(403);
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    assert_eq!(server.stdout(), "");
}

#[test]
fn serve_without_a_folder_serves_this_one() {
    let tree = Tree::new();
    tree.file("a", "AAA");
    let server = Launch::levity(["serve", "--listen", "127.0.0.1:0"])
        .folder(tree.path())
        .start();
    assert_eq!(server.get("/a").text(), "AAA");
}

#[cfg(feature = "engines-all")]
#[test]
fn flags_beat_the_file() {
    let tree = Tree::new();
    tree.file("a", "AAA");
    let text = format!(
        "[disk]\nengine = \"threads\"\n[[listen]]\naddress = \"unix:{{own}}/socket\"\n{}",
        config(&tree)
    );
    let launch = Launch::run(&text).engine("sendfile").workers(1);
    let server = launch.arguments(["--listen", "127.0.0.1:0", "-v"]).start();
    assert_eq!(server.get("/a").text(), "AAA");
    server.says("disk engine sendfile");
    assert!(!server.own("socket").exists());
}

#[test]
fn every_form_of_an_address() {
    let tree = Tree::new();
    tree.file("a", "AAA");
    for flags in [
        &["--listen", "0"][..],
        &["--listen", ":0"],
        &["--listen", "127.0.0.1:0"],
        &["--listen", "0.0.0.0:0"],
        &["--listen", "localhost:0"],
        &["--listen", "localhost", "-p", "0"],
        &["-p", "0"],
    ] {
        let server = serve(&tree, flags).start();
        assert_eq!(server.get("/a").text(), "AAA", "{flags:?}");
    }
}

/// Each URL that is printed leads here, also from other machines.
#[test]
fn every_address_of_the_machine() {
    let tree = Tree::new();
    tree.file("a", "AAA");
    let server = serve(&tree, &["--listen", "0"]).start();
    let port = server.address().port();
    let printed = server.stdout();
    let mut lines = printed.lines();
    assert_eq!(lines.next(), Some(&*format!("http://localhost:{port}/")));
    // What a datagram to the world outside would come from, if there is a way to it.
    let probe = UdpSocket::bind("0.0.0.0:0").expect("bind");
    if probe.connect("192.0.2.1:9").is_ok() {
        let own = probe.local_addr().expect("an address").ip();
        assert!(
            printed.contains(&format!("http://{own}:{port}/\n")),
            "{own}: {printed}"
        );
    }
    for address in server.addresses() {
        assert_eq!(Client::new(address).get("/a").text(), "AAA", "{address}");
    }
}

/// However many sites, upstreams and folders there are.
#[test]
fn a_large_configuration_is_summed_up() {
    use std::fmt::Write as _;
    const SITES: usize = 3000;
    let tree = Tree::new();
    let mut text = "[[listen]]\naddress = \"127.0.0.1:0\"\n".to_owned();
    for number in 0..SITES {
        let root = tree.at(number.to_string());
        fs::create_dir(&root).expect("mkdir");
        let root = root.display();
        write!(
            text,
            "[[site]]\nhosts = [\"h{number}.example\"]\nroot = \"{root}\"\n"
        )
        .expect("text");
    }
    for number in 0..20 {
        write!(
            text,
            "[[upstream]]\nname = \"u{number}\"\nto = [\"127.0.0.1:9\"]\n"
        )
        .expect("text");
    }
    let terse = Launch::run(&text).start();
    terse.says("levity: serving 3000 sites");
    terse.says("and 4 more upstreams");
    assert!(terse.stderr().lines().count() < 60, "{}", terse.stderr());
    let verbose = Launch::run(&text).arguments(["-v"]).start();
    verbose.says("and 2999 more folders on ");
    assert!(
        verbose.stderr().lines().count() < 70,
        "{}",
        verbose.stderr()
    );
}

#[test]
fn ipv6() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        eprintln!("left out: this machine has no IPv6");
        return;
    }
    let tree = Tree::new();
    tree.file("a", "AAA");
    let server = serve(&tree, &["--listen", "[::1]:0"]).start();
    assert_eq!(server.get("/a").text(), "AAA");
    // One socket for both families.
    let server = serve(&tree, &["--listen", "0"]).start();
    let both = Client::new((Ipv6Addr::LOCALHOST, server.address().port()).into()).get("/a");
    assert_eq!(both.text(), "AAA");
}

/// A page that has had its own name resolve to this machine gets nothing of the folder.
#[test]
fn serve_answers_to_names_of_this_machine() {
    let tree = Tree::new();
    tree.file("a", "AAA");
    let status = |server: &Server, host: &str| server.client().get_for(host, "/a").status;
    let local = ["--listen", "localhost:0", "--listen", "unix:web.socket"];
    let server = serve(&tree, &[&local[..], &["--host", "dev.example"]].concat()).start();
    for host in [
        "localhost",
        "a.localhost:80",
        "127.0.0.1",
        "192.0.2.1",
        "[::1]",
        "DEV.example:1",
    ] {
        assert_eq!(status(&server, host), 200, "{host}");
    }
    for host in [
        "evil.example",
        "localhost.evil.example:80",
        "www.dev.example",
    ] {
        assert_eq!(status(&server, host), 421, "{host}");
    }
    let refused = server.client().get_for("evil.example", "/a").text();
    assert!(refused.contains("--host NAME"), "{refused}");
    let mut client = server.client();
    let absolute = client.get_for("localhost", "http://evil.example/a");
    absolute.assert_status(421);
    // No browser gets there, but a proxy may, which passes any name on.
    let mut over_unix = Client::unix(&server.own("web.socket"));
    over_unix.get_for("any.example", "/a").assert_status(200);
    let public = serve(&tree, &["--listen", "0"]).start();
    assert_eq!(status(&public, "this-machine.lan"), 200);
}

#[test]
fn several_addresses() {
    let tree = Tree::new();
    tree.file("a", "AAA");
    let listen = [
        "--listen",
        "127.0.0.1:0",
        "--listen",
        "127.0.0.1:0",
        "--listen",
        "unix:web.socket",
    ];
    let server = serve(&tree, &listen).start();
    let addresses = server.addresses();
    assert_eq!(addresses.len(), 2);
    for address in addresses {
        assert_eq!(Client::new(address).get("/a").text(), "AAA");
    }
    assert_eq!(
        Client::unix(&server.own("web.socket")).get("/a").text(),
        "AAA"
    );
}

fn on_unix_socket(tree: &Tree) -> Server {
    serve(tree, &["--listen", "unix:web.socket", "--workers", "2"]).start()
}

#[test]
fn a_unix_socket_comes_and_goes() {
    let tree = Tree::new();
    let bytes = tree.filled("large", 3_000_000);
    let mut server = on_unix_socket(&tree);
    let path = server.own("web.socket");
    assert_eq!(server.stdout(), "unix:web.socket\n");
    for _ in 0..4 {
        assert!(Client::unix(&path).get("/large").body == bytes);
    }
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    assert!(!path.exists());
}

/// What a crash left behind is taken over; what is in use is not.
#[test]
fn a_unix_socket_that_exists_already() {
    let tree = Tree::new();
    let launch = serve(&tree, &["--listen", "unix:web.socket"]);
    let path = launch.own().join("web.socket");
    let left_behind = UnixListener::bind(&path).expect("bind");
    let open_to_all = Permissions::from_mode(0o777);
    fs::set_permissions(&path, open_to_all).expect("chmod");
    drop(left_behind);
    let server = launch.start();
    Client::unix(&path).get("/").assert_status(200);
    let address = format!("unix:{}", path.display());
    let ran = serve(&tree, &["--listen", &address]).ran();
    assert_eq!(ran.status, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("in use"), "{}", ran.stderr);
    Client::unix(&path).get("/").assert_status(200);
    drop(server);
}

/// A connection that is not refused, but fails in another way, does not show that nobody listens.
#[test]
fn a_unix_socket_that_cannot_be_asked_is_not_removed() {
    let tree = Tree::new();
    let start = |mode: u32, listen: fn(&Path) -> Box<dyn Any>| {
        let launch = serve(&tree, &["--listen", "unix:other.socket"]);
        let path = launch.own().join("other.socket");
        let _other = listen(&path);
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("chmod");
        launch.ran()
    };
    let mut ran = vec![
        start(0o777, |path| {
            Box::new(UnixDatagram::bind(path).expect("bind"))
        }),
        start(0o777, |path| {
            let busy = UnixListener::bind(path).expect("bind");
            rustix::net::listen(&busy, 0).expect("listen");
            Box::new((UnixStream::connect(path).expect("connect"), busy))
        }),
    ];
    if is_root() {
        ran.push(start(0o700, |path| {
            Box::new(UnixListener::bind(path).expect("bind"))
        }));
    }
    for ran in ran {
        assert_eq!(ran.status, 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("in use"), "{}", ran.stderr);
        assert!(ran.stderr.contains("ss -xlp"), "{}", ran.stderr);
    }
}

#[test]
fn an_address_in_use() {
    let tree = Tree::new();
    let other = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = other.local_addr().expect("an address").to_string();
    let ran = serve(&tree, &["--listen", &address]).ran();
    assert_eq!((ran.status, ran.stdout.as_str()), (1, ""));
    assert!(
        ran.stderr.contains(&format!("cannot listen on {address}")),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("ss -tanp"), "{}", ran.stderr);
}

/// Of a socket that is bound but does not listen, as that of an outgoing connection, the hint must tell too.
#[test]
fn a_port_in_use_by_an_outgoing_connection() {
    let tree = Tree::new();
    let peer = TcpListener::bind("127.0.0.1:0").expect("bind");
    let outgoing = TcpStream::connect(peer.local_addr().expect("an address")).expect("connect");
    let address = outgoing.local_addr().expect("an address");
    let ran = serve(&tree, &["--listen", &address.to_string()]).ran();
    assert_eq!(ran.status, 1, "{}", ran.stderr);
    let (_, hint) = ran.stderr.split_once('`').expect("a hint");
    let (command, _) = hint.split_once('`').expect("a command");
    let shown = Command::new("sh").args(["-c", command]).output();
    let shown = String::from_utf8(shown.expect("ss of iproute2").stdout).expect("UTF-8");
    assert!(shown.contains(&address.to_string()), "{command}: {shown}");
}

/// With SO_REUSEPORT a second server would quietly take half of the clients.
#[test]
fn an_address_in_use_by_another_levity() {
    let tree = Tree::new();
    let server = Launch::serve(tree.path()).start();
    let ran = serve(&tree, &["--listen", &server.address().to_string()]).ran();
    assert_eq!(ran.status, 1, "{}", ran.stderr);
}

#[test]
fn an_address_that_was_in_use_a_moment_ago() {
    let tree = Tree::new();
    tree.file("a", "AAA");
    let mut first = Launch::serve(tree.path()).start();
    let address = first.address().to_string();
    let _still_there = first.get_with("/a", &[("Connection", "close")]);
    first.signal(Signal::TERM);
    first.wait();
    let second = serve(&tree, &["--listen", &address]).start();
    assert_eq!(second.get("/a").text(), "AAA");
}

#[test]
fn many_workers() {
    let tree = Tree::new();
    let bytes = tree.filled("file", 300_000);
    let server = Launch::serve(tree.path()).workers(4).start();
    let clients: Vec<_> = (0..32).map(|_| server.client()).collect();
    for mut client in clients {
        assert!(client.get("/file").body == bytes);
    }
}

/// The test of a promise of every other test: the guard is on, and it bites.
#[test]
fn the_guard_is_installed_on_worker_threads() {
    let tree = Tree::new();
    let server = Launch::serve(tree.path())
        .engine("threads")
        .workers(1)
        .start();
    wait_until("the worker runs", || server.get("/").status == 200);
    let tasks = format!("/proc/{}/task", server.pid().as_raw_nonzero());
    let filtered = std::fs::read_dir(tasks).expect("threads").filter(|task| {
        let status = task.as_ref().expect("a thread").path().join("status");
        let text = std::fs::read_to_string(status).unwrap_or_default();
        text.contains("Name:\tworker-") && text.contains("Seccomp:\t2")
    });
    assert_eq!(filtered.count(), 1);
}
