//! Many clients that send slowly.

use super::*;

/// In bytes: what 200 uploads may take of the 300 MB that they send. Each gathers 64 KiB before a write, and the allocator keeps
/// memory for each thread that writes: 45 to 80 MB in all, however much they send.
const MEMORY_MAX: usize = 128 << 20;

fn threads(server: &Server) -> usize {
    let tasks = format!("/proc/{}/task", server.pid().as_raw_nonzero());
    fs::read_dir(tasks).expect("threads").count()
}

#[test]
fn slow_uploads_take_no_threads_and_little_memory() {
    const UPLOADS: usize = 200;
    const BYTES: usize = 1_500_000;
    let root = writable();
    root.file("hot", "hot");
    let server = taking(root.path(), "").start();
    put_new(&server, "/warm", &content(1, BYTES)).assert_status(201);
    let (memory, before) = (server.resident_bytes(), threads(&server));
    let body = content(7, BYTES);
    let mut clients: Vec<_> = (0..UPLOADS)
        .map(|number| {
            let mut client = server.client();
            let length = BYTES.to_string();
            client.send(head(
                "PUT",
                &format!("/{number}"),
                &[("Content-Length", &length)],
            ));
            client
        })
        .collect();
    for piece in body.chunks(60_000) {
        for client in &mut clients {
            client.send(piece);
        }
        assert_eq!(server.get("/hot").text(), "hot");
        let grown = server.resident_bytes().saturating_sub(memory);
        assert!(grown < MEMORY_MAX, "{grown} bytes more");
        // Those that wait for the disk; their number does not depend on that of clients.
        let more = threads(&server).saturating_sub(before);
        assert!(more <= 72, "{more} threads more");
    }
    for (number, client) in clients.iter_mut().enumerate() {
        client.receive().assert_status(201);
        assert!(fs::read(root.at(number.to_string())).expect("a file") == body);
    }
    assert_nothing_is_left(&server, root.path());
}

#[test]
fn a_client_that_stops_is_given_up() {
    let root = writable();
    let server = with(
        root.path(),
        "[limits]\nbody_timeout = \"100ms\"\n",
        "resume = \"0s\"",
    )
    .start();
    let mut client = server.client();
    client.send(head("PUT", "/file", &[("Content-Length", "10")]));
    client.send("12345");
    client.receive().assert_status(408);
    assert_nothing_is_left(&server, root.path());
    assert_eq!(uploads(&server, "aborted"), 1.0);
}
