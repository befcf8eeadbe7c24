//! Signals: reload, drain and reopening of logs.

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::process::Signal;

use crate::support::{Client, Launch, Server, Tree, assert_same, content, wait_until};

const LARGE: usize = 16_000_000;

fn tree() -> Tree {
    let tree = Tree::new();
    tree.file("a", "AAA");
    tree.filled("large", LARGE);
    tree
}

/// A configuration whose responses contain `version`; `listen` is an additional address.
fn config(tree: &Tree, version: &str, tables: &str) -> String {
    format!(
        "{tables}\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[site]]\nroot = \"{}\"\n[[site.route]]\n\
         path = \"/*\"\nheaders = {{ set = {{ X-Version = \"{version}\" }} }}\n",
        tree.path().display()
    )
}

fn server(tree: &Tree) -> Server {
    Launch::run(&config(tree, "0", "")).start()
}

/// One that may make sockets in its own folder.
fn server_with_socket(tree: &Tree) -> Server {
    let admin = "[admin]\nlisten = \"unix:{own}/admin\"\n";
    Launch::run(&config(tree, "0", admin)).start()
}

fn reload(server: &Server, config: &str) {
    fs::write(server.config(), config).expect("write");
    server.signal(Signal::HUP);
}

/// Reloads and waits until responses contain `version`.
#[track_caller]
fn reload_to(server: &Server, tree: &Tree, version: &str, tables: &str) {
    reload(server, &config(tree, version, tables));
    wait_until("the new configuration", || {
        server.get("/a").header("x-version") == Some(version)
    });
}

/// A client that has read the header of a long response.
fn long_transfer(server: &Server) -> Client {
    let mut client = Client::narrow(server.address());
    client.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
    client.receive_head().expect("a head").assert_status(200);
    client
}

#[track_caller]
fn completes(client: &mut Client) {
    assert_same(&client.read_exactly(LARGE), &content(LARGE as u64, LARGE));
}

#[test]
fn a_reload_keeps_connections_and_transfers() {
    let tree = tree();
    let server = server(&tree);
    let (mut idle, mut busy) = (server.client(), long_transfer(&server));
    assert_eq!(idle.get("/a").header("x-version"), Some("0"));
    reload_to(&server, &tree, "1", "");
    assert_eq!(idle.get("/a").header("x-version"), Some("1"));
    completes(&mut busy);
    assert_eq!(busy.get("/a").header("x-version"), Some("1"));
}

#[test]
fn no_connection_is_refused_while_it_reloads() {
    let tree = tree();
    let server = server(&tree);
    let (over, served) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    assert_eq!(server.get("/a").text(), "AAA");
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for version in 1..=20 {
            reload_to(&server, &tree, &version.to_string(), "");
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(served.load(Ordering::Relaxed) >= 20);
}

#[test]
fn a_bad_file_changes_nothing() {
    let tree = tree();
    let server = server(&tree);
    reload(&server, &config(&tree, "1", "[server]\nworker = 1\n"));
    server.says("the old one stays");
    let line = server.says("did you mean `workers`");
    assert!(line.starts_with("levity: "), "{line}");
    assert_eq!(server.get("/a").header("x-version"), Some("0"));
    reload_to(&server, &tree, "2", "");
}

#[test]
fn settings_that_need_a_restart_are_reported() {
    let tree = tree();
    let server = server(&tree);
    for (tables, name) in [
        ("[disk]\nqueue = 100\n", "[disk]"),
        ("[limits]\nconnections = 100\n", "limits.connections"),
    ] {
        reload(&server, &config(&tree, "1", tables));
        let line = server.says(name);
        assert!(line.contains("the old one stays"), "{line}");
        assert!(line.contains("restart"), "{line}");
        assert_eq!(server.get("/a").header("x-version"), Some("0"));
    }
}

#[test]
fn settings_that_need_no_restart() {
    let tree = tree();
    let server = server(&tree);
    for (version, tables) in [
        ("1", "[server]\ntrusted_proxies = [\"10.0.0.0/8\"]\n"),
        ("2", "[disk]\nspool = \".\"\nentry_ttl = \"2s\"\n"),
    ] {
        reload_to(&server, &tree, version, tables);
    }
}

#[test]
fn an_unavailable_address_changes_nothing() {
    let tree = tree();
    let server = server(&tree);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = taken.local_addr().expect("an address");
    reload(
        &server,
        &config(
            &tree,
            "1",
            &format!("[[listen]]\naddress = \"{address}\"\n"),
        ),
    );
    let line = server.says("the old one stays");
    assert!(line.contains("cannot listen on"), "{line}");
    assert_eq!(server.get("/a").header("x-version"), Some("0"));
}

/// Sockets that were bound before the failure leave no file behind.
#[test]
fn a_refused_reload_removes_its_sockets() {
    let tree = tree();
    let server = server_with_socket(&tree);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let listen = format!(
        "[[listen]]\naddress = \"unix:{}\"\n[[listen]]\naddress = \"{}\"\n",
        server.own("web.socket").display(),
        taken.local_addr().expect("an address")
    );
    reload(&server, &config(&tree, "1", &listen));
    let line = server.says("the old one stays");
    assert!(line.contains("cannot listen on"), "{line}");
    assert!(!server.own("web.socket").exists());
    drop(taken);
    reload_to(&server, &tree, "2", &listen);
    assert!(server.own("web.socket").exists());
}

#[test]
fn sockets_are_removed_at_the_end() {
    let tree = tree();
    let tables =
        "[admin]\nlisten = \"unix:{own}/admin\"\n[[listen]]\naddress = \"unix:{own}/web\"\n";
    let mut server = Launch::run(&config(&tree, "0", tables)).start();
    let exist = |server: &Server| ["admin", "web"].map(|name| server.own(name).exists());
    assert_eq!(exist(&server), [true, true]);
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    assert_eq!(exist(&server), [false, false]);
}

/// Tables for a server on Unix sockets in the folder of `owner`, and on TCP.
fn on_sockets_of(owner: &Server) -> String {
    format!(
        "[admin]\nlisten = \"unix:{}\"\n[[listen]]\naddress = \"unix:{}\"\n",
        owner.own("admin").display(),
        owner.own("web").display()
    )
}

/// An upgrade without a gap: the new process starts while the old one completes its requests.
#[test]
fn a_successor_starts_while_it_drains_and_keeps_its_sockets() {
    let tree = tree();
    let tables =
        "[admin]\nlisten = \"unix:{own}/admin\"\n[[listen]]\naddress = \"unix:{own}/web\"\n";
    let mut old = Launch::run(&config(&tree, "0", tables)).start();
    let mut busy = long_transfer(&old);
    old.signal(Signal::TERM);
    wait_until("new connections are refused", || refuses(&old));
    let new = Launch::run(&config(&tree, "1", &on_sockets_of(&old))).start();
    completes(&mut busy);
    busy.assert_closed();
    assert_eq!(old.wait().code(), Some(0));
    let answer = Client::unix(&old.own("web")).get("/a");
    assert_eq!(answer.header("x-version"), Some("1"));
    let health = Client::unix(&old.own("admin")).get("/health");
    health.assert_status(200);
    drop(new);
    assert!(!old.own("web").exists() && !old.own("admin").exists());
}

#[test]
fn a_successor_gets_the_admin_address_while_it_drains() {
    let tree = tree();
    let tables = "[admin]\nlisten = \"127.0.0.1:0\"\n";
    let mut old = Launch::run(&config(&tree, "0", tables)).start();
    let line = old.says("status and metrics on http://");
    let (_, url) = line.split_once("http://").expect("a URL");
    let admin = url.trim_end_matches('/').to_owned();
    let mut busy = long_transfer(&old);
    old.signal(Signal::TERM);
    wait_until("the admin address is free", || {
        TcpStream::connect(&admin).is_err()
    });
    let tables = format!("[admin]\nlisten = \"{admin}\"\n");
    let new = Launch::run(&config(&tree, "1", &tables)).start();
    new.says(&format!("status and metrics on http://{admin}/"));
    completes(&mut busy);
    assert_eq!(old.wait().code(), Some(0));
}

/// Files that have replaced its sockets are not removed.
#[test]
fn sockets_of_others_stay_at_the_end() {
    let tree = tree();
    let tables =
        "[admin]\nlisten = \"unix:{own}/admin\"\n[[listen]]\naddress = \"unix:{own}/web\"\n";
    let mut old = Launch::run(&config(&tree, "0", tables)).start();
    for name in ["admin", "web"] {
        fs::remove_file(old.own(name)).expect("unlink");
    }
    let _new = Launch::run(&config(&tree, "1", &on_sockets_of(&old))).start();
    old.signal(Signal::TERM);
    assert_eq!(old.wait().code(), Some(0));
    let answer = Client::unix(&old.own("web")).get("/a");
    assert_eq!(answer.header("x-version"), Some("1"));
    let health = Client::unix(&old.own("admin")).get("/health");
    health.assert_status(200);
}

/// Puts a pipe in place of the configuration file and has the server read it: it hangs until the
/// pipe is written to or closed.
fn hanging_reload(server: &Server) -> File {
    fs::remove_file(server.config()).expect("unlink");
    mknodat(CWD, server.config(), FileType::Fifo, 0o644.into(), 0).expect("mkfifo");
    server.signal(Signal::HUP);
    let mut writer = None;
    wait_until("it reads the file", || {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK;
        writer = open(server.config(), flags, Mode::empty()).ok();
        writer.is_some()
    });
    writer.expect("a reader").into()
}

#[test]
fn the_server_can_end_while_a_reload_hangs() {
    let tree = tree();
    let mut server = server(&tree);
    let _writer = hanging_reload(&server);
    assert_eq!(server.get("/a").text(), "AAA");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_reload_during_another_follows_it() {
    let tree = tree();
    let server = server(&tree);
    let mut writer = hanging_reload(&server);
    let next = server.own("next");
    fs::write(&next, config(&tree, "2", "")).expect("write");
    fs::rename(next, server.config()).expect("rename");
    server.signal(Signal::HUP);
    let first = config(&tree, "1", "");
    writer.write_all(first.as_bytes()).expect("write");
    drop(writer);
    wait_until("the last configuration", || {
        server.get("/a").header("x-version") == Some("2")
    });
}

#[test]
fn addresses_come_and_go() {
    let tree = tree();
    let server = server_with_socket(&tree);
    let socket = server.own("web.socket");
    let listen = format!("[[listen]]\naddress = \"unix:{}\"\n", socket.display());
    reload_to(&server, &tree, "1", &listen);
    assert_eq!(Client::unix(&socket).get("/a").text(), "AAA");
    let mut kept = Client::unix(&socket);
    kept.get("/a").assert_status(200);
    reload_to(&server, &tree, "2", "");
    wait_until("the socket is gone", || !socket.exists());
    kept.get("/a").assert_status(200);
}

#[test]
fn another_root() {
    let (tree, other) = (tree(), Tree::new());
    other.file("a", "BBB");
    let server = server(&tree);
    assert_eq!(server.get("/a").text(), "AAA");
    reload_to(&server, &other, "1", "");
    assert_eq!(server.get("/a").text(), "BBB");
}

/// Deployments replace a link and reload.
#[test]
fn a_root_that_is_a_link_is_followed_anew() {
    let tree = Tree::new();
    tree.file("one/a", "AAA");
    tree.file("two/a", "BBB");
    tree.link("one", "current");
    let config = |version: &str| {
        config(&tree, version, "")
            .replace(&tree.path().display().to_string(), "ROOT")
            .replace("ROOT", &tree.at("current").display().to_string())
    };
    let server = Launch::run(&config("0")).start();
    assert_eq!(server.get("/a").text(), "AAA");
    tree.link("two", "next");
    fs::rename(tree.at("next"), tree.at("current")).expect("rename");
    reload(&server, &config("1"));
    wait_until("the new configuration", || {
        server.get("/a").header("x-version") == Some("1")
    });
    assert_eq!(server.get("/a").text(), "BBB");
}

#[test]
fn without_a_file_there_is_nothing_to_reload() {
    let tree = tree();
    let server = Launch::serve(tree.path()).start();
    server.signal(Signal::HUP);
    server.says("configuration reloaded");
    assert_eq!(server.get("/a").text(), "AAA");
}

fn refuses(server: &Server) -> bool {
    TcpStream::connect(server.address()).is_err()
}

#[test]
fn the_server_drains() {
    let tree = tree();
    for signal in [Signal::TERM, Signal::QUIT] {
        let mut server = server(&tree);
        let (mut idle, mut busy) = (server.client(), long_transfer(&server));
        idle.get("/a").assert_status(200);
        server.signal(signal);
        idle.assert_closed();
        wait_until("new connections are refused", || refuses(&server));
        assert!(server.is_running());
        completes(&mut busy);
        busy.assert_closed();
        assert_eq!(server.wait().code(), Some(0));
    }
}

/// The response announces the end of the connection.
#[test]
fn a_request_in_progress_completes_during_a_drain() {
    let tree = tree();
    let mut server = server(&tree);
    let (mut client, mut busy) = (server.client(), long_transfer(&server));
    client.send("GET /a HTTP/1.1\r\nHo");
    server.get("/a").assert_status(200);
    server.signal(Signal::TERM);
    wait_until("new connections are refused", || refuses(&server));
    client.send("st: x\r\n\r\n");
    let answer = client.receive();
    assert_eq!((answer.text().as_str(), answer.closes()), ("AAA", true));
    client.assert_closed();
    completes(&mut busy);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn an_idle_server_ends_at_once() {
    let tree = tree();
    let mut server = server(&tree);
    let mut idle: Vec<_> = (0..20).map(|_| server.client()).collect();
    idle.iter_mut()
        .for_each(|client| client.get("/a").assert_status(200));
    let start = Instant::now();
    server.signal(Signal::INT);
    assert_eq!(server.wait().code(), Some(0));
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
}

/// Its request may be on its way.
#[test]
fn a_new_connection_has_a_second_for_its_request() {
    let tree = tree();
    let mut server = server(&tree);
    let (mut used, mut new, mut silent) = (server.client(), server.client(), server.client());
    used.get("/a").assert_status(200);
    server.signal(Signal::TERM);
    used.assert_closed();
    new.get("/a").assert_status(200);
    silent.assert_closed();
    assert!(server.wait().success());
}

#[test]
fn a_second_signal_ends_the_server_at_once() {
    ends_by_a_second_signal("");
}

/// Event loops that have not ended could ask the thread of the store for more.
#[cfg(feature = "mailbox")]
#[test]
fn a_second_signal_ends_the_server_and_its_store_at_once() {
    let kept = Tree::new();
    let folder = kept.folder("messages");
    kept.chmod("messages", 0o777);
    ends_by_a_second_signal(&format!(
        "[mailbox_store]\nstore = \"disk\"\nfolder = \"{}\"\n[[mailbox]]\nname = \"m\"\n",
        folder.display()
    ));
}

fn ends_by_a_second_signal(tables: &str) {
    let tree = tree();
    let mut server = Launch::run(&config(&tree, "0", tables)).start();
    let mut stuck = long_transfer(&server);
    server.signal(Signal::INT);
    wait_until("new connections are refused", || refuses(&server));
    let start = Instant::now();
    server.signal(Signal::INT);
    server.wait();
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    assert!(stuck.read_to_end().body().len() < LARGE);
}

#[test]
fn draining_has_a_time_out() {
    let tree = tree();
    let limits = "[limits]\ndrain_timeout = \"300ms\"\n";
    let mut server = Launch::run(&config(&tree, "0", limits)).start();
    let _stuck = long_transfer(&server);
    server.signal(Signal::TERM);
    server.wait();
    assert!(
        server.stderr().contains("drain_timeout"),
        "{}",
        server.stderr()
    );
}

/// Every client whose connection was accepted gets its response.
#[test]
fn accepted_connections_get_their_responses() {
    let tree = tree();
    for _ in 0..5 {
        let mut server = server(&tree);
        let mut clients: Vec<_> = (0..20).map(|_| server.client()).collect();
        for client in &mut clients {
            client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
        }
        server.signal(Signal::TERM);
        for mut client in clients {
            assert_eq!(client.receive().text(), "AAA");
        }
        assert_eq!(server.wait().code(), Some(0));
    }
}

#[test]
fn a_renamed_log_is_reopened() {
    let tree = tree();
    let log = "[log]\naccess = \"{own}/access.log\"\n";
    let server = Launch::run(&config(&tree, "0", log)).start();
    let (path, renamed) = (server.own("access.log"), server.own("access.log.1"));
    let lines = |path: &std::path::Path, part: &str| {
        fs::read_to_string(path).is_ok_and(|text| text.contains(part))
    };
    server.get("/a?before").assert_status(200);
    wait_until("a first line", || lines(&path, "/a?before"));
    fs::rename(&path, &renamed).expect("rename");
    server.signal(Signal::USR1);
    wait_until("the new file", || path.exists());
    server.get("/a?after").assert_status(200);
    wait_until("a line in it", || lines(&path, "/a?after"));
    assert!(!lines(&renamed, "/a?after"));
}
