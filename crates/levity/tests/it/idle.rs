//! Connections that wait cost next to nothing, whatever they wait for.

use std::fs;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::support::{Client, Launch, Server, Tree, assert_same, content, per_engine};

/// So many that the steps in which a heap grows, of several MiB, matter little.
const CONNECTIONS: usize = 8000;

/// Of user memory.
const BYTES_MAX: usize = 2 * 1024;

/// Private memory of the server, in bytes.
fn anonymous_bytes(server: &Server) -> usize {
    let status = format!("/proc/{}/status", server.pid().as_raw_nonzero());
    let text = fs::read_to_string(status).expect("the process's status");
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kib.expect("RssAnon in kB") * 1024
}

/// Opens connections that have had one answer each and then wait.
fn idle(server: &Server, count: usize) -> Vec<Client> {
    let mut clients: Vec<_> = (0..count).map(|_| server.client()).collect();
    for client in &mut clients {
        client.get("/file").assert_status(200);
    }
    clients
}

/// Raises the test's own soft limit to the hard one.
fn allow_descriptors(needed: u64) {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("setrlimit");
    let allowed = limit.maximum.unwrap_or(u64::MAX);
    assert!(
        allowed >= needed,
        "ulimit -n is {allowed}, the test needs {needed}"
    );
}

#[test]
fn memory_of_an_idle_connection() {
    let tree = Tree::new();
    tree.filled("file", 10_000);
    allow_descriptors(2 * CONNECTIONS as u64);
    let tables = format!(
        "[log]\naccess = \"off\"\n[limits]\nconnections = {}\n",
        2 * CONNECTIONS
    );
    let server = Launch::site(tree.path(), &tables, "").start();
    // What the first requests cost is not the price of a connection.
    let _warm = idle(&server, 100);
    let before = anonymous_bytes(&server);
    let _clients = idle(&server, CONNECTIONS);
    let each = anonymous_bytes(&server).saturating_sub(before) / CONNECTIONS;
    println!("{each} bytes for an idle connection");
    assert!(each <= BYTES_MAX, "{each} bytes for an idle connection");
}

const STALLED: usize = 200;
const LARGE: usize = 32_000_000;

/// For chunks on their way, of all connections together.
const BUFFER_BYTES: usize = 4 << 20;

/// What an allocator may make of that. A chunk for each connection would be 100 MB.
const GROWTH_BYTES_MAX: usize = 10 * BUFFER_BYTES;

per_engine! {
    /// Clients that stop reading do not keep the buffers from those that go on, nor more memory than
    /// there are buffers.
    fn stalled_readers(engine) {
        let tree = Tree::new();
        let bytes = tree.filled("large", LARGE);
        let tables = format!("[disk]\nbuffer_bytes = \"{BUFFER_BYTES}B\"\n");
        let server = Launch::site(tree.path(), &tables, "").engine(engine).start();
        assert_same(&server.get("/large").body, &bytes);
        let before = anonymous_bytes(&server);
        tree.evict("large");
        let stalled: Vec<_> = (0..STALLED).map(|_| {
            let mut client = Client::narrow(server.address());
            client.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
            client
        }).collect();
        assert_same(&server.get("/large").body, &content(LARGE as u64, LARGE));
        let grown = anonymous_bytes(&server).saturating_sub(before);
        assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes");
        for mut client in stalled.into_iter().take(5) {
            assert_same(&client.receive().body, &bytes);
        }
    }
}

/// Requests that are not answered yet stay with the client.
#[test]
fn a_flood_of_requests() {
    let tree = Tree::new();
    tree.filled("file", 10_000);
    let server = Launch::site(tree.path(), "", "").workers(1).start();
    server.get("/file").assert_status(200);
    let before = anonymous_bytes(&server);
    let mut client = Client::narrow(server.address());
    client.write_timeout(Duration::from_millis(500));
    let requests = "GET /file HTTP/1.1\r\nHost: x\r\n\r\n".repeat(500_000);
    assert!(
        client.try_send(requests).is_err(),
        "the server took all of it"
    );
    let grown = anonymous_bytes(&server).saturating_sub(before);
    assert!(grown < 1 << 20, "{grown} bytes for one connection");
    server.get("/file").assert_status(200);
}
