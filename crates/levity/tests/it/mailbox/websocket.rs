//! Receivers over WebSocket.

use std::thread;

use flate2::{Decompress, FlushDecompress};
use rustix::process::Signal;
use serde_json::Value;

use super::{SOON, json, launch, post, publisher, start, text, wait_for_receivers};
use crate::clients::{node, run};
use crate::support::websocket::{HANDSHAKE, frame};
use crate::support::{Client, Server, Tree, WebSocket, wait_until};

const TEXT: u8 = 0x81;
const BYTES: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

const OBJECTS: (&str, &str) = ("Sec-WebSocket-Protocol", "other, mailbox.json");
const DEFLATE: (&str, &str) = (
    "Sec-WebSocket-Extensions",
    "permessage-deflate; client_max_window_bits",
);

fn open(server: &Server, name: &str, headers: &[(&str, &str)]) -> WebSocket {
    WebSocket::open_with(server.client(), &format!("/m/{name}"), headers)
}

/// The next message, which is an object.
fn object(socket: &mut WebSocket) -> Value {
    serde_json::from_str(&socket.receive()).expect("JSON")
}

/// The next frame, which has to be a Close: its code and its reason.
fn close(socket: &mut WebSocket) -> (u16, String) {
    let (first, content) = socket.receive_frame();
    assert_eq!(first, CLOSE, "{}", content.escape_ascii());
    let code = u16::from_be_bytes([content[0], content[1]]);
    (
        code,
        String::from_utf8(content[2..].to_vec()).expect("a reason"),
    )
}

#[test]
fn messages_are_text_or_bytes_by_their_type() {
    let server = start("");
    let mut publisher = publisher(&server);
    let mut socket = open(&server, "a", &[]);
    assert_eq!(socket.answer.header("sec-websocket-protocol"), None);
    assert_eq!(socket.answer.header("sec-websocket-extensions"), None);
    for (media_type, content, first) in [
        ("text/plain", "one", TEXT),
        ("application/json; charset=utf-8", "{}", TEXT),
        ("application/octet-stream", "two", BYTES),
        ("text/html", "", TEXT),
        ("image/svg+xml", &*"x".repeat(200), TEXT),
        ("image/png", &"y".repeat(65_536), BYTES),
    ] {
        post(
            &mut publisher,
            "a",
            &[("Content-Type", media_type)],
            content,
        );
        let expected = (first, content.as_bytes().to_vec());
        assert!(socket.receive_frame() == expected, "{media_type}");
    }
    publisher.send(b"POST /m/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n\xff\xfe");
    publisher.receive().assert_status(201);
    assert_eq!(socket.receive_frame(), (BYTES, vec![0xff, 0xfe]));
}

#[test]
fn objects_have_ids_with_which_a_client_comes_back() {
    let server = start("messages = 2");
    let mut publisher = publisher(&server);
    let mut socket = open(&server, "a", &[OBJECTS]);
    assert_eq!(
        socket.answer.field("sec-websocket-protocol"),
        "mailbox.json"
    );
    let headers = [("Mailbox-Event", "e"), ("Content-Type", "text/plain")];
    let posted = json(&post(&mut publisher, "a", &headers, "one"));
    let first = object(&mut socket);
    assert_eq!(text(&first, "id"), text(&posted, "id"));
    assert_eq!((text(&first, "event"), text(&first, "data")), ("e", "one"));
    drop(socket);
    for content in ["two", "three"] {
        post(&mut publisher, "a", &[], content);
    }
    let cursor = format!("a?last_event_id={}", text(&first, "id"));
    let mut socket = open(&server, &cursor, &[OBJECTS]);
    assert_eq!(socket.answer.header("mailbox-gap"), None);
    assert_eq!(text(&object(&mut socket), "data"), "two");
    assert_eq!(text(&object(&mut socket), "data"), "three");
    post(&mut publisher, "a", &[], "four");
    // The publisher may have its answer before each event loop has the message.
    let late = |protocols: &[(&str, &str)]| {
        let mut opened = open(&server, &cursor, protocols);
        wait_until("the gap is known", || {
            let has_gap = opened.answer.header("mailbox-gap").is_some();
            if !has_gap {
                opened = open(&server, &cursor, protocols);
            }
            has_gap
        });
        opened
    };
    let mut plain = late(&[]);
    let mut late = late(&[OBJECTS]);
    let gap = object(&mut late);
    assert_eq!(gap["gap"], true);
    assert_eq!(text(&object(&mut late), "data"), "three");
    // Without ids the header tells.
    assert_eq!(plain.receive_frame().1, b"three");
    let cursor = format!("a?last_event_id={}", text(&gap, "id"));
    let mut again = open(&server, &cursor, &[OBJECTS]);
    assert_eq!(text(&object(&mut again), "data"), "three");
}

#[test]
fn a_handshake_is_checked() {
    let server = start("origins = [\"https://*.example.org\"]");
    let with = |name: &str, value| {
        let mut headers = HANDSHAKE.to_vec();
        headers.retain(|(known, _)| *known != name);
        headers.push((name, value));
        server.client().get_with("/m/a", &headers)
    };
    let other = with("Sec-WebSocket-Version", "8");
    other.assert_status(426);
    assert_eq!(other.field("sec-websocket-version"), "13");
    assert_eq!(other.field("upgrade"), "websocket");
    assert!(other.field("connection").contains("Upgrade"));
    with("Sec-WebSocket-Key", "short").assert_status(400);
    with("Sec-WebSocket-Protocol", "a, a").assert_status(400);
    with("Sec-WebSocket-Extensions", "a b").assert_status(400);
    for origin in [
        "https://example.com",
        "null",
        "https://localhost.example.com",
        "http://example.org",
    ] {
        with("Origin", origin).assert_status(403);
    }
    for origin in [
        "http://localhost",
        "https://LOCALHOST",
        "https://a.example.org",
    ] {
        with("Origin", origin).assert_status(101);
    }
}

#[test]
fn what_a_client_sends_is_answered_or_ends_it() {
    let server = start("");
    let mut publisher = publisher(&server);
    let mut socket = open(&server, "a", &[]);
    let ping = frame(9, &[b'p'; 125]);
    // It may come in any pieces.
    for piece in ping.chunks(50) {
        socket.send_bytes(piece);
    }
    assert_eq!(socket.receive_frame(), (PONG, vec![b'p'; 125]));
    socket.send_bytes(&frame(10, b"unasked"));
    post(&mut publisher, "a", &[], "still there");
    assert_eq!(socket.receive_frame().1, b"still there");
    for (bytes, code) in [
        (&b"\x89\x00"[..], 1002),
        (b"\x83\x80\0\0\0\0", 1002),
        (b"\xc1\x80\0\0\0\0", 1002),
        (b"\x80\x80\0\0\0\0", 1002),
        (b"\x09\x80\0\0\0\0", 1002),
        (&frame(9, &[0; 126]), 1002),
        (&frame(8, &1005_u16.to_be_bytes()), 1002),
        (&frame(8, b"\x03\xe8\xff"), 1007),
        (&frame(1, b"hello"), 1003),
        (&frame(2, &[0; 4096]), 1003),
        (&frame(2, &[0; 4097]), 1009),
        (&frame(8, &1001_u16.to_be_bytes()), 1001),
        (&frame(8, b""), 1000),
    ] {
        let mut socket = open(&server, "a", &[]);
        socket.send_bytes(bytes);
        assert_eq!(close(&mut socket).0, code, "{}", bytes.escape_ascii());
        socket.assert_closed();
    }
    wait_for_receivers(&mut publisher, "a", 1);
}

#[test]
fn a_frame_may_follow_the_handshake_at_once() {
    let server = start("");
    let mut socket = WebSocket::open_saying(server.client(), "/m/a", &["hello"]);
    assert_eq!(close(&mut socket).0, 1003);
    socket.assert_closed();
}

#[test]
fn a_client_that_leaves_is_forgotten() {
    let server = start("");
    let mut publisher = publisher(&server);
    let socket = open(&server, "a", &[]);
    wait_for_receivers(&mut publisher, "a", 1);
    drop(socket);
    wait_for_receivers(&mut publisher, "a", 0);
}

#[test]
fn a_removed_box_closes_its_sockets() {
    let server = start("");
    let mut publisher = publisher(&server);
    let mut socket = open(&server, "a", &[]);
    wait_for_receivers(&mut publisher, "a", 1);
    publisher.request("DELETE", "/m/a", &[]).assert_status(204);
    assert_eq!(close(&mut socket).0, 1000);
    // What was on the way does not matter.
    socket.send_bytes(&frame(1, b"hello"));
    socket.send_close(1000);
    socket.assert_closed();
}

#[test]
fn pings_keep_a_connection_alive_and_rotation_ends_it() {
    let server = start("heartbeat = \"1s\"\nrotate = \"2s\"");
    let client = server.client();
    client.read_timeout(SOON);
    let mut socket = WebSocket::open(client, "/m/a");
    assert_eq!(socket.receive_frame(), (PING, Vec::new()));
    socket.send_bytes(&frame(10, b""));
    loop {
        match socket.receive_frame() {
            (PING, _) => socket.send_bytes(&frame(10, b"")),
            (first, content) => {
                assert_eq!((first, &content[..2]), (CLOSE, &1001_u16.to_be_bytes()[..]));
                break;
            }
        }
    }
    socket.send_close(1001);
    socket.assert_closed();
}

#[test]
fn a_server_that_drains_closes_sockets() {
    let mut server = start("");
    let mut publisher = publisher(&server);
    let mut socket = open(&server, "a", &[]);
    wait_for_receivers(&mut publisher, "a", 1);
    drop(publisher);
    server.signal(Signal::TERM);
    assert_eq!(close(&mut socket).0, 1001);
    socket.send_close(1001);
    socket.assert_closed();
    assert!(server.wait().success());
}

/// What a receiver of objects has got.
#[derive(Default)]
struct Received {
    /// The ids of the messages.
    ids: Vec<String>,
    /// The id of the last gap.
    gap: Option<String>,
    /// The code and the reason of the Close, unless the message came that was waited for.
    close: Option<(u16, String)>,
}

/// Receives messages of 65 000 bytes until the one with the id `last`, or the end.
fn receive_until(socket: &mut WebSocket, last: &str) -> Received {
    let mut received = Received::default();
    while received.ids.last().is_none_or(|id| id != last) {
        let (first, content) = socket.receive_frame();
        if first == CLOSE {
            let code = u16::from_be_bytes([content[0], content[1]]);
            let id = String::from_utf8(content[2..].to_vec()).expect("an id");
            received.close = Some((code, id));
            break;
        }
        let object: Value = serde_json::from_slice(&content).expect("JSON");
        let id = text(&object, "id").to_owned();
        if object["gap"] == true {
            received.gap = Some(id);
        } else {
            assert_eq!(text(&object, "data").len(), 65_000);
            received.ids.push(id);
        }
    }
    received
}

#[test]
fn a_slow_receiver_is_closed_with_the_id_to_continue_at() {
    const MESSAGES: usize = 300;
    const KEPT: usize = 4;
    let server = start("messages = 4\nbytes = \"1MiB\"\npublishes_per_second = 100000");
    let mut publisher = publisher(&server);
    let client = Client::narrow(server.address());
    let mut socket = WebSocket::open_with(client, "/m/a", &[OBJECTS]);
    wait_for_receivers(&mut publisher, "a", 1);
    let content = "x".repeat(65_000);
    let mut publish = || {
        let answer = post(&mut publisher, "a", &[], &content);
        answer.assert_status(201);
        text(&json(&answer), "id").to_owned()
    };
    let first = publish();
    // The box drops messages from now on, perhaps before the receiver's worker looks again.
    assert_eq!(text(&object(&mut socket), "id"), first);
    let posted: Vec<_> = (1..MESSAGES).map(|_| publish()).collect();
    let last = posted.last().expect("the last one");
    let received = receive_until(&mut socket, last);
    let (code, mut id) = received.close.expect("a Close");
    assert_eq!((code, Some(&id)), (4404, received.gap.as_ref()));
    assert!(received.ids.len() < posted.len());
    // The worker may have found the gap long before the last message, and even now may not have that.
    let mut ids = Vec::new();
    while id != *last {
        let mut socket = open(&server, &format!("a?last_event_id={id}"), &[OBJECTS]);
        let received = receive_until(&mut socket, last);
        ids.extend(received.ids);
        id = received.close.map_or(last.clone(), |(_, id)| id);
    }
    assert!(ids.ends_with(&posted[posted.len() - KEPT..]), "{ids:?}");
}

/// What a compressed message contains.
fn inflated(content: &[u8]) -> Vec<u8> {
    let deflated = [content, &[0, 0, 0xff, 0xff]].concat();
    let mut out = Vec::with_capacity(1 << 20);
    Decompress::new(false)
        .decompress_vec(&deflated, &mut out, FlushDecompress::Sync)
        .expect("DEFLATE");
    out
}

#[test]
fn messages_are_compressed_for_those_who_offer_it() {
    let server = launch("").workers(2).start();
    let mut publisher = publisher(&server);
    let mut sockets: Vec<_> = (0..20).map(|_| open(&server, "a", &[DEFLATE])).collect();
    let mut objects = open(&server, "a", &[DEFLATE, OBJECTS]);
    let mut plain = open(&server, "a", &[]);
    assert_eq!(
        sockets[0].answer.field("sec-websocket-extensions"),
        "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
    );
    wait_for_receivers(&mut publisher, "a", 22);
    let headers = [("Content-Type", "text/plain")];
    let long = "all work and no play ".repeat(1000);
    let contents = [&long[..], "short", &long, &long[..255], &long[..256]];
    for content in contents {
        post(&mut publisher, "a", &headers, content).assert_status(201);
    }
    for content in contents {
        assert_eq!(plain.receive(), content);
        for socket in &mut sockets {
            let (first, received) = socket.receive_frame();
            match content.len() < 256 {
                true => assert_eq!((first, &received[..]), (TEXT, content.as_bytes())),
                false => {
                    assert!(first == 0xc1 && received.len() < content.len() / 2);
                    assert!(inflated(&received) == content.as_bytes());
                }
            }
        }
        let (first, received) = objects.receive_frame();
        let received = match first {
            0xc1 => inflated(&received),
            _ => received,
        };
        let object: Value = serde_json::from_slice(&received).expect("JSON");
        assert_eq!(text(&object, "data"), content);
    }
}

/// Publishes to a box that `client` reads, then removes it.
fn with_client(client: impl FnOnce(&str) -> String + Send) {
    let server = start("");
    let mut publisher = publisher(&server);
    let url = format!("ws://{}/m/a", server.address());
    thread::scope(|scope| {
        let running = scope.spawn(|| client(&url));
        wait_for_receivers(&mut publisher, "a", 1);
        let headers = [("Content-Type", "text/plain")];
        post(&mut publisher, "a", &headers, "short").assert_status(201);
        post(&mut publisher, "a", &headers, &"long ".repeat(2000)).assert_status(201);
        post(&mut publisher, "a", &[], "bytes").assert_status(201);
        wait_for_receivers(&mut publisher, "a", 1);
        publisher.request("DELETE", "/m/a", &[]).assert_status(204);
        let said = running.join().expect("the client runs");
        let expected = "short\nlong 10000 true\nbytes\nclosed 1000 the mailbox was removed\n";
        assert_eq!(said, expected);
    });
}

#[test]
fn ws_of_node_receives() {
    with_client(|url| node(SOON * 4, "ws.mjs", &[url]));
}

#[test]
fn websockets_of_python_receives() {
    const PROGRAM: &str = "import asyncio, contextlib, sys, websockets\n\
        async def main():\n\
        \x20   async with websockets.connect(sys.argv[1]) as socket:\n\
        \x20       deflate = any(e.name == 'permessage-deflate' for e in socket.extensions)\n\
        \x20       with contextlib.suppress(websockets.ConnectionClosed): await socket.ping()\n\
        \x20       try:\n\
        \x20           while True:\n\
        \x20               message = await socket.recv()\n\
        \x20               if isinstance(message, bytes): message = message.decode()\n\
        \x20               if len(message) > 10: message = f'long {len(message)} {str(deflate).lower()}'\n\
        \x20               print(message)\n\
        \x20       except websockets.ConnectionClosed as closed:\n\
        \x20           print('closed', closed.rcvd.code, closed.rcvd.reason)\n\
        asyncio.run(main())\n";
    let tree = Tree::new();
    with_client(|url| {
        let words = ["no_proxy=*", "/usr/bin/python3", "-c", PROGRAM, url];
        let output = run(SOON * 4, "env", &words, tree.path());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        String::from_utf8(output.stdout).expect("UTF-8")
    });
}
