//! Files that wait to be closed: they count towards the limit on open files.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::support::{Launch, Server, Tree, content, pass};

/// So few that what waits for a moment would use them up, and enough for the clients.
const DESCRIPTORS_MAX: u32 = 512;

const CLIENTS: usize = 16;

/// Pipelined by each client.
const REQUESTS: usize = 32;

const ROUNDS: usize = 20;

/// What a server has, a few for each client, and what may wait.
const OPEN_MAX: usize = 200;

fn descriptors(server: &Server) -> usize {
    let all = fs::read_dir(format!("/proc/{}/fd", server.pid().as_raw_nonzero()));
    all.expect("descriptors").count()
}

/// Asks for `path` as fast as the server answers. Gives the largest number of descriptors that was seen.
fn load(server: &Server, path: &str, body: &[u8]) -> usize {
    let requests = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").repeat(REQUESTS);
    thread::scope(|scope| {
        let client = || {
            let mut client = server.client();
            for _ in 0..ROUNDS {
                client.send(&requests);
                for _ in 0..REQUESTS {
                    let answer = client.receive();
                    answer.assert_status(200);
                    assert!(body.is_empty() || answer.body == body);
                }
            }
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        let mut most = 0;
        while !clients.iter().all(|client| client.is_finished()) {
            most = most.max(descriptors(server));
            pass(Duration::from_millis(1));
        }
        most
    })
}

/// A file that was just saved may change again unseen, so each request opens it.
#[test]
fn of_one_file_that_was_just_saved() {
    let tree = Tree::new();
    let bytes = content(1, 4096);
    tree.fresh("file", &bytes);
    let server = Launch::serve(tree.path())
        .workers(1)
        .descriptors_max(DESCRIPTORS_MAX)
        .start();
    let most = load(&server, "/file", &bytes);
    assert!(most < OPEN_MAX, "{most} descriptors");
}

/// A listing holds its folder, and a second descriptor to read it.
#[test]
fn of_a_folder() {
    let tree = Tree::new();
    tree.file("folder/file", "x");
    let server = Launch::site(tree.path(), "[disk]\nentry_ttl = \"0s\"", "listing = true")
        .workers(1)
        .descriptors_max(DESCRIPTORS_MAX)
        .start();
    let most = load(&server, "/folder/", b"");
    assert!(most < OPEN_MAX, "{most} descriptors");
}
