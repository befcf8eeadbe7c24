//! Connections that wait cost next to nothing.

use std::fs;

use crate::support::{Client, Launch, Server, Tree};

const CONNECTIONS: usize = 1000;

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

#[test]
fn memory_of_an_idle_connection() {
    let tree = Tree::new();
    tree.filled("file", 10_000);
    let server = Launch::site(tree.path(), "", "").start();
    // What the first requests cost is not the price of a connection.
    let _warm = idle(&server, 100);
    let before = anonymous_bytes(&server);
    let _clients = idle(&server, CONNECTIONS);
    let each = anonymous_bytes(&server).saturating_sub(before) / CONNECTIONS;
    println!("{each} bytes for an idle connection");
    assert!(each <= BYTES_MAX, "{each} bytes for an idle connection");
}
