//! Clients that take nothing of what they are sent.

use super::in_band::obedient;
use super::{launch, publisher, wait_for_receivers};
use crate::support::scripted::Scripted;
use crate::support::{Client, Server, WebSocket, head};

const CLIENTS: usize = 90;
const CONTENT_BYTES: usize = 3 << 20;

/// Keys of a set with such contents.
const KEYS: &str = "message_bytes = \"4MiB\"\nbytes = \"8MiB\"\nreceivers_per_client = 1000\n\
                    [limits]\nmailbox_memory = \"32MiB\"";
const MEMORY_BYTES: usize = 32 << 20;

/// No text, and nothing that compresses to little.
fn content() -> Vec<u8> {
    let numbers = (0..CONTENT_BYTES as u32).map(|number| number.wrapping_mul(2_654_435_761));
    numbers.map(|number| (number >> 13) as u8).collect()
}

fn client(server: &Server, path: &str, accept: &str) -> Client {
    let mut client = Client::narrow(server.address());
    client.send(head("GET", path, &[("Accept", accept)]));
    client
}

/// Publishes `content` to the boxes 0 to [`CLIENTS`], which share its memory.
fn publish(server: &Server, content: &[u8]) {
    let mut publisher = publisher(server);
    let names: Vec<_> = (0..CLIENTS).map(|number| number.to_string()).collect();
    for names in names.chunks(50) {
        let length = content.len().to_string();
        let headers = [
            ("Mailbox-Deliver", &*names.join(",")),
            ("Content-Length", &length),
        ];
        publisher.send(head("POST", "/m/", &headers));
        publisher.send(content);
        publisher.receive().assert_status(201);
    }
}

/// The next chunk of a body.
fn chunk(client: &mut Client) -> Vec<u8> {
    let size = String::from_utf8(client.read_through(b"\r\n")).expect("a size");
    let chunk = client.read_exactly(usize::from_str_radix(size.trim(), 16).expect("a size"));
    client.read_exactly(2);
    chunk
}

/// Expects that `server` takes no more memory than its limits say, beside what it has had `before`.
#[track_caller]
fn assert_bounded(server: &Server, before: usize) {
    let more = server.resident_bytes().saturating_sub(before);
    assert!(more < MEMORY_BYTES, "{more} bytes more");
}

#[test]
fn forms_of_messages_take_no_memory() {
    let server = launch(KEYS).start();
    let objects = [("Sec-WebSocket-Protocol", "mailbox.json")];
    let deflate = [("Sec-WebSocket-Extensions", "permessage-deflate")];
    let (mut streams, mut raw, mut sockets) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..CLIENTS {
        let path = format!("/m/{number}");
        let open = |headers| WebSocket::open_with(Client::narrow(server.address()), &path, headers);
        match number % 6 {
            0 => streams.push(client(&server, &path, "text/event-stream")),
            1 => streams.push(client(&server, &path, "application/x-ndjson")),
            2 => raw.push(client(&server, &path, "application/octet-stream")),
            3 => sockets.push(open(&[])),
            4 => sockets.push(open(&objects)),
            _ => sockets.push(open(&deflate)),
        }
    }
    for client in streams.iter_mut().chain(&mut raw) {
        client.receive_head().expect("a header").assert_status(200);
    }
    let before = server.resident_bytes();
    let content = content();
    publish(&server, &content);
    for client in &mut streams {
        client.read_exactly(1000);
    }
    let begun: Vec<_> = raw.iter_mut().map(chunk).collect();
    assert_bounded(&server, before);
    // What was begun goes on where it was.
    let mut received = begun[0].clone();
    while received.len() < content.len() {
        received.extend_from_slice(&chunk(&mut raw[0]));
    }
    assert!(received == content);
    for socket in &mut sockets[..2] {
        let mut received = socket.receive_frame();
        while received.0 & 0x80 == 0 {
            let (first, more) = socket.receive_frame();
            received.0 |= first;
            received.1.extend_from_slice(&more);
        }
        assert!(received.1.len() >= content.len());
    }
    assert_bounded(&server, before);
}

#[test]
fn responses_that_are_published_take_no_memory() {
    let backend = Scripted::tcp(obedient);
    let server = super::in_band::start(&backend, KEYS);
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let lines = format!("Grip-Hold: response; ;Grip-Channel: {number}");
            let mut client = Client::narrow(server.address());
            client.send(head("GET", "/", &[("X-Say", &lines)]));
            client
        })
        .collect();
    let mut looking = server.client();
    for number in 0..CLIENTS {
        wait_for_receivers(&mut looking, &number.to_string(), 1);
    }
    let before = server.resident_bytes();
    let content = content();
    publish(&server, &content);
    for client in &mut clients[1..] {
        client.receive_head().expect("a header").assert_status(200);
    }
    assert_bounded(&server, before);
    assert!(clients[0].receive().body == content);
}
