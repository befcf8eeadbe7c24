//! Headers of applications about mailboxes.

use super::{Events, KEY, json, text, wait_for_receivers};
use crate::support::scripted::{Conn, Scripted, ajp, fastcgi};
use crate::support::{Answer, Client, Launch, Server, head, wait_until};

/// A server in front of `backend`, whose answers may use the mailboxes at `/m/`.
pub fn launch(backend: &Scripted, protocol: &str, keys: &str, of_route: &str) -> Launch {
    launch_at(backend.address(), protocol, keys, of_route)
}

/// The same in front of a backend elsewhere.
pub fn launch_at(address: &str, protocol: &str, keys: &str, of_route: &str) -> Launch {
    Launch::run(&format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[listen]]\naddress = \"unix:{{own}}/socket\"\npublish = true\n\
         [[upstream]]\nname = \"app\"\nprotocol = \"{protocol}\"\nto = [\"{address}\"]\n\
         [[mailbox]]\nname = \"m\"\n{keys}\n\
         [[site]]\nproxy = \"app\"\n{of_route}\n\
         [[site.route]]\npath = \"/m/*\"\nmailbox = \"m\"\n"
    ))
}

pub const USED: &str = "mailbox_headers = \"m\"";

pub fn start(backend: &Scripted, keys: &str) -> Server {
    launch(backend, "http", keys, USED).start()
}

/// Answers with the header lines and the body that the request asks for.
pub fn obedient(conn: &mut Conn) {
    while let Some(request) = conn.read_request() {
        let lines = request.field("x-say").unwrap_or_default();
        let lines = lines.replace("; ;", "\r\n");
        let body = request.field("x-body").unwrap_or_default();
        let body = body.replace("\\n", "\n");
        let status = request.field("x-status").unwrap_or("200 OK");
        conn.send(format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{lines}\r\n\r\n{body}",
            body.len()
        ));
    }
}

/// The headers of a request for such an answer.
fn asking<'a>(lines: &'a str, body: &'a str) -> [(&'a str, &'a str); 2] {
    [("X-Say", lines), ("X-Body", body)]
}

pub fn ask(server: &Server, lines: &[&str], body: &str) -> Answer {
    server.get_with("/", &asking(&lines.join("; ;"), body))
}

/// A client that the application holds.
pub fn held(
    server: &Server,
    lines: &[&str],
    body: &str,
    more: &[(&str, &str)],
) -> (Answer, Client) {
    let mut client = server.client();
    let lines = lines.join("; ;");
    let mut headers = asking(&lines, body).to_vec();
    headers.extend(more);
    client.send(head("GET", "/", &headers));
    let head = client.receive_head().expect("a header");
    (head, client)
}

pub fn chunk(client: &mut Client) -> String {
    let size = String::from_utf8(client.read_through(b"\r\n")).expect("a size");
    let size = usize::from_str_radix(size.trim(), 16).expect("a size");
    let chunk = client.read_exactly(size);
    client.read_exactly(2);
    String::from_utf8(chunk).expect("text")
}

/// The memory is reserved before the length is known.
#[test]
fn a_response_of_unknown_length_takes_the_memory_of_its_content() {
    let backend = Scripted::tcp(|conn| {
        conn.read_request();
        conn.send("HTTP/1.1 200 OK\r\nConnection: close\r\nMailbox-Deliver: a\r\n\r\nx");
    });
    let server = start(&backend, "[limits]\nmailbox_memory = \"1MiB\"");
    for _ in 0..32 {
        server.get("/").assert_status(202);
    }
}

fn over_ajp(conn: &mut Conn) {
    while conn.read_ajp().is_some() {
        conn.send(ajp::send_headers(200, &LINES));
        conn.send(ajp::body_chunk(b"body"));
        conn.send(ajp::end(true));
    }
}

fn over_scgi(conn: &mut Conn) {
    conn.read_scgi();
    conn.send(format!("Status: 200 OK\r\n{}\r\nbody", written()));
}

fn over_fastcgi(conn: &mut Conn) {
    while conn.read_fastcgi().is_some() {
        conn.send(fastcgi::answer(format!(
            "Status: 200\r\n{}\r\nbody",
            written()
        )));
    }
}

fn over_http(conn: &mut Conn) {
    while conn.read_request().is_some() {
        let lines = written();
        conn.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n{lines}\r\nbody"
        ));
    }
}

/// Headers of an application that say nothing to be done.
const LINES: [(&str, &str); 5] = [
    ("Mailbox-Event", "evil"),
    ("mailbox-anything", "evil"),
    ("Grip-Channel", "evil"),
    ("Grip-Link", "evil"),
    ("X-Kept", "kept"),
];

fn written() -> String {
    let lines = LINES.iter();
    lines
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect()
}

/// Neither a client's get to an application, which would believe them, nor an application's to a client, which would learn
/// the names of boxes.
#[test]
fn the_headers_are_between_server_and_application() {
    type Handler = fn(&mut Conn);
    let protocols: [(&str, Handler); 4] = [
        ("http", over_http),
        ("fastcgi", over_fastcgi),
        ("scgi", over_scgi),
        ("ajp13", over_ajp),
    ];
    let names = [
        "Mailbox-Deliver",
        "Mailbox-Open",
        "Mailbox_Id",
        "mailbox.event",
        "Mailbox-Anything",
        "Grip-Hold",
        "GRIP_SIG",
        "Grip-Sig",
        "Grip-Feature",
    ];
    for (protocol, handler) in protocols {
        for of_route in ["", USED] {
            let backend = Scripted::tcp(handler);
            let server = launch(&backend, protocol, "", of_route).start();
            let mut headers = vec![("X-Kept", "kept")];
            headers.extend(names.map(|name| (name, "evil")));
            let answer = server.get_with("/", &headers);
            assert_eq!((answer.status, answer.text()), (200, "body".to_owned()));
            assert_eq!(answer.field("x-kept"), "kept");
            let got = format!("{answer:?}").to_lowercase();
            assert!(!got.contains("mailbox-") && !got.contains("grip-"), "{got}");
            let request = backend.request();
            let all = format!("{:?}{}", request.fields, request.head.escape_ascii());
            assert!(
                all.contains("kept") && !all.contains("evil"),
                "{protocol}: {all}"
            );
        }
    }
}

#[test]
fn without_the_key_an_application_uses_no_mailboxes() {
    let backend = Scripted::tcp(obedient);
    let server = launch(&backend, "http", "", "").start();
    let answer = ask(&server, &["Mailbox-Deliver: a"], "text");
    assert_eq!((answer.status, answer.text()), (200, "text".to_owned()));
    assert_eq!(answer.header("mailbox-deliver"), None);
    server.get("/m/a").assert_status(404);
    ask(&server, &["Grip-Hold: stream", "Grip-Channel: a"], "").assert_status(200);
}

#[test]
fn an_answer_is_delivered() {
    let backend = Scripted::tcp(obedient);
    let server = start(&backend, "");
    let mut events = Events::new(&server, "a", &[]);
    wait_for_receivers(&mut server.client(), "a", 1);
    let lines = [
        "Mailbox-Deliver: a, b",
        "Mailbox-Event: said",
        "Mailbox-Id: 7",
        "Content-Type: text/x-said",
        "Set-Cookie: c=1",
        "ETag: \"x\"",
    ];
    let answer = ask(&server, &lines, "hello");
    answer.assert_status(201);
    assert_eq!(answer.field("content-type"), "application/json");
    assert_eq!(answer.field("set-cookie"), "c=1");
    assert_eq!(answer.header("etag"), None);
    let boxes = json(&answer);
    assert_eq!(boxes["mailboxes"][0]["receivers_here"], 1);
    assert_eq!(boxes["mailboxes"][1]["receivers_here"], 0);
    let event = events.next().expect("an event");
    assert_eq!((&*event.event, &*event.data), ("said", "hello"));
    let kept = json(&server.get("/m/b"));
    let kept = &kept["messages"][0];
    assert_eq!(
        (text(kept, "event"), text(kept, "type"), text(kept, "data")),
        ("said", "text/x-said", "hello")
    );
    let again = json(&ask(&server, &lines, "hello"));
    assert_eq!(again["mailboxes"][1]["duplicate"], true);
    let one = ask(&server, &["Mailbox-Deliver: c"], "");
    one.assert_status(202);
    assert_eq!(text(&json(&one), "mailbox"), "c");
    let expiring = ask(&server, &["Mailbox-Deliver: d", "Mailbox-TTL: 1s"], "x");
    expiring.assert_status(202);
    wait_until("it has expired", || {
        let kept = server.get("/m/d");
        kept.status == 404 || json(&kept)["messages"] == serde_json::json!([])
    });
}

#[test]
fn the_connection_of_the_application_is_free_at_once() {
    let backend = Scripted::tcp(obedient);
    let server = launch(&backend, "http", "", USED).workers(1).start();
    let clients: Vec<_> = (0..8)
        .map(|_| held(&server, &["Mailbox-Open: a"], "", &[]))
        .collect();
    assert_eq!(clients.len(), 8);
    ask(&server, &["Mailbox-Deliver: a"], "x").assert_status(201);
    assert_eq!(backend.connections(), 1);
}

#[test]
fn a_client_is_held() {
    let backend = Scripted::tcp(obedient);
    let server = start(&backend, "");
    let lines = [
        "Mailbox-Open: a",
        "Content-Type: text/event-stream; charset=utf-8",
        "Set-Cookie: c=1",
        "Access-Control-Allow-Origin: *",
    ];
    let (answer, mut client) = held(&server, &lines, "data: first", &[]);
    answer.assert_status(200);
    assert_eq!(answer.field("content-type"), "text/event-stream");
    assert_eq!(answer.field("set-cookie"), "c=1");
    assert_eq!(answer.field("access-control-allow-origin"), "*");
    assert_eq!(answer.header("mailbox-open"), None);
    client.read_through(b"data: first\n\n");
    wait_for_receivers(&mut server.client(), "a", 1);
    ask(&server, &["Mailbox-Deliver: a"], "second").assert_status(201);
    client.read_through(b"data: second\n\n");
    let lines = ["Mailbox-Open: a", "Content-Type: application/x-ndjson"];
    let (answer, mut lines) = held(&server, &lines, "{}", &[]);
    assert_eq!(answer.field("content-type"), "application/x-ndjson");
    assert_eq!(chunk(&mut lines), "{}\n");
    let (answer, mut raw) = held(&server, &["Mailbox-Open: a", "Content-Type: a/b"], "[", &[]);
    assert_eq!(answer.field("content-type"), "a/b");
    assert_eq!(chunk(&mut raw), "[");
    let accept = [("Accept", "text/event-stream")];
    let (answer, mut events) = held(
        &server,
        &["Mailbox-Open: a", "Content-Type: text/html"],
        "",
        &accept,
    );
    assert_eq!(answer.field("content-type"), "text/event-stream");
    wait_for_receivers(&mut server.client(), "a", 4);
    ask(&server, &["Mailbox-Deliver: a"], "third").assert_status(201);
    assert!(chunk(&mut lines).contains("\"data\":\"third\""));
    assert_eq!(chunk(&mut raw), "third");
    client.read_through(b"data: third\n\n");
    events.read_through(b"data: third\n\n");
}

/// The body is a message then, and the client receives from the box.
#[test]
fn one_answer_delivers_and_holds() {
    let backend = Scripted::tcp(obedient);
    let server = start(&backend, "");
    let lines = ["Mailbox-Open: a", "Mailbox-Deliver: a, b"];
    let accept = [("Accept", "text/event-stream")];
    let (answer, mut client) = held(&server, &lines, "joined", &accept);
    answer.assert_status(200);
    client.read_through(b"data: joined\n\n");
    assert_eq!(
        text(&json(&server.get("/m/b"))["messages"][0], "data"),
        "joined"
    );
}

#[test]
fn a_client_that_returns_goes_on() {
    let backend = Scripted::tcp(obedient);
    let server = start(&backend, "");
    let first = json(&ask(&server, &["Mailbox-Deliver: a"], "one"));
    ask(&server, &["Mailbox-Deliver: a"], "two").assert_status(202);
    let more = [
        ("Accept", "text/event-stream"),
        ("Last-Event-ID", text(&first, "id")),
    ];
    let (_, mut client) = held(&server, &["Mailbox-Open: a"], "", &more);
    let before = client.read_through(b"data: ");
    assert!(!String::from_utf8_lossy(&before).contains("gap"));
    client.read_through(b"two\n\n");
    let more = [("Accept", "text/event-stream"), ("Last-Event-ID", "1-1")];
    let (answer, mut client) = held(&server, &["Mailbox-Open: a"], "", &more);
    assert!(answer.header("mailbox-gap").is_some());
    client.read_through(b"event: gap\n");
}

#[test]
fn what_cannot_be_done_is_said_in_the_log() {
    let backend = Scripted::tcp(obedient);
    let server = start(&backend, "message_bytes = \"1KiB\"\nboxes = 2");
    let just = "x".repeat(1024);
    ask(&server, &["Mailbox-Deliver: a"], &just).assert_status(202);
    for (lines, body, status, why) in [
        (
            &["Mailbox-Deliver: a"][..],
            &*format!("{just}x"),
            502,
            "the content exceeds `message_bytes`, 1024 bytes (502)",
        ),
        (
            &["Mailbox-Deliver: a b"],
            "",
            502,
            "bad name of a mailbox (502)",
        ),
        (&["Mailbox-Deliver:"], "", 502, "no mailbox is named (502)"),
        (
            &["Mailbox-Open: a, b"],
            "",
            502,
            "Mailbox-Open names more than one mailbox",
        ),
        (
            &["Mailbox-Deliver: a", "Mailbox-TTL: soon"],
            "",
            502,
            "Mailbox-TTL is not a time",
        ),
        (
            &["Mailbox-Deliver: a", "Content-Encoding: gzip"],
            "x",
            502,
            "content for mailboxes has no Content-Encoding, such as gzip",
        ),
    ] {
        let answer = ask(&server, lines, body);
        answer.assert_status(status);
        assert!(!answer.text().contains("mailbox"), "{}", answer.text());
        server.says(why);
    }
    // Not a success: it goes on as it is.
    let headers = [("X-Say", "Mailbox-Deliver: b"), ("X-Status", "404 Gone")];
    server.get_with("/", &headers).assert_status(404);
    server.get("/m/b").assert_status(404);
    // The head of an answer only.
    let say = [("X-Say", "Mailbox-Deliver: b")];
    assert_eq!(server.client().request("HEAD", "/", &say).status, 200);
}

#[test]
fn too_many_boxes_are_refused() {
    let backend = Scripted::tcp(obedient);
    let server = launch(&backend, "http", "boxes = 1", USED)
        .workers(1)
        .start();
    ask(&server, &["Mailbox-Deliver: a"], "").assert_status(202);
    ask(&server, &["Mailbox-Deliver: b"], "").assert_status(507);
    server.says("mailboxes: b: ");
    ask(&server, &["Mailbox-Deliver: a, b"], "").assert_status(207);
}

/// The response of a backend of unknown length, which may be too long.
#[test]
fn a_body_of_unknown_length_is_bounded() {
    let backend = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            conn.send(
                "HTTP/1.1 200 OK\r\nMailbox-Deliver: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            );
            let count = if request.target == "/long" { 17 } else { 16 };
            for _ in 0..count {
                conn.send(format!("40\r\n{}\r\n", "x".repeat(64)));
            }
            conn.send("0\r\n\r\n");
        }
    });
    let server = start(&backend, "message_bytes = \"1KiB\"");
    server.get("/").assert_status(202);
    server.get("/long").assert_status(502);
    let kept = json(&server.get("/m/a"));
    let kept = kept["messages"].as_array().expect("a list");
    assert_eq!(kept.len(), 1);
    assert_eq!(text(&kept[0], "data").len(), 1024);
}

#[test]
fn a_key_for_publishers_is_not_for_applications() {
    let backend = Scripted::tcp(obedient);
    let tree = crate::support::Tree::new();
    let key = tree.file("key", KEY);
    let keys = format!("publish_key_file = {:?}", key.display().to_string());
    let server = start(&backend, &keys);
    ask(&server, &["Mailbox-Deliver: a"], "x").assert_status(202);
}

#[test]
fn a_message_can_be_a_file() {
    let (backend, tree) = (Scripted::tcp(obedient), crate::support::Tree::new());
    let file = tree.file("file", "x".repeat(1024));
    let long = tree.file("long", "x".repeat(1025));
    let server = Launch::run(&format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"app\"\nto = [\"{}\"]\nsendfile_roots = [\"{}\"]\n\
         [[mailbox]]\nname = \"m\"\nmessage_bytes = \"1KiB\"\n\
         [[site]]\nproxy = \"app\"\n{USED}\n\
         [[site.route]]\npath = \"/m/*\"\nmailbox = \"m\"\n",
        backend.address(),
        tree.path().display()
    ))
    .start();
    let deliver = |path: &str| {
        let line = format!("X-Sendfile: {path}");
        ask(
            &server,
            &["Mailbox-Deliver: a", "Content-Type: a/b", &line],
            "",
        )
    };
    deliver(&file.display().to_string()).assert_status(202);
    let kept = json(&server.get("/m/a"));
    let kept = &kept["messages"][0];
    assert_eq!(
        (text(kept, "type"), text(kept, "data").len()),
        ("a/b", 1024)
    );
    deliver(&long.display().to_string()).assert_status(502);
    server.says("the content exceeds `message_bytes`, 1024 bytes (502)");
    deliver("/etc/passwd").assert_status(502);
    server.says("not beneath any of `sendfile_roots` (502)");
    deliver(&tree.at("absent").display().to_string()).assert_status(404);
    let line = format!("X-Sendfile: {}", file.display());
    let (answer, mut client) = held(&server, &["Mailbox-Open: b", &line], "", &[]);
    answer.assert_status(200);
    assert_eq!(chunk(&mut client).len(), 1024);
}
