//! Request bodies that are buffered before a backend gets the request: in memory or in a file.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::support::scripted::{Conn, Scripted};
use crate::support::{
    Answer, App, Client, Cut, Launch, Server, Tree, content, head, in_front_of, per_engine, sha256,
    wait_until,
};

const BUFFERED: &str = "buffer_requests = true";

/// A server that buffers 64 KiB of a body in memory, accepts up to 64 MiB, and spools below its own folder.
fn buffering(to: &str, protocol: &str, upstream: &str, root: &Tree) -> Launch {
    let site =
        "body_bytes = \"64MiB\"\n[disk]\nspool = \"{own}\"\n[limits]\nbody_memory = \"64KiB\"";
    in_front_of(&[to], protocol, upstream, root, site)
}

fn upload(client: &mut Client, method: &str, body: &[u8]) -> Answer {
    let length = body.len().to_string();
    client.send(head(method, "/", &[("Content-Length", &length)]));
    client.send(body);
    client.receive()
}

/// Responds with the length and the hash of the body.
fn hash(conn: &mut Conn) {
    while let Some(request) = conn.read_request() {
        let body = format!("{} {}", request.body.len(), sha256(&request.body));
        conn.answer("200 OK", body);
    }
}

fn hashed(body: &[u8]) -> String {
    format!("{} {}", body.len(), sha256(body))
}

per_engine! {
    fn a_spooled_body_is_unchanged(engine) {
        let (backend, root) = (Scripted::unix(hash), Tree::new());
        let server = buffering(backend.address(), "http", BUFFERED, &root).engine(engine).start();
        let mut client = server.client();
        for bytes in [0, 1, 64 << 10, (64 << 10) + 1, (128 << 10) + 17, 3_000_001] {
            let body = content(7, bytes);
            let answer = upload(&mut client, "POST", &body);
            assert_eq!(answer.text(), hashed(&body), "{bytes} bytes");
            let requests = backend.requests();
            let request = requests.last().expect("a request");
            let length = Some(bytes.to_string());
            assert_eq!(request.field("content-length"), length.as_deref());
            assert_eq!(request.field("transfer-encoding"), None);
        }
    }
}

#[test]
fn a_backend_gets_the_request_once_the_body_is_complete() {
    let (backend, root) = (Scripted::unix(hash), Tree::new());
    let server = buffering(backend.address(), "http", BUFFERED, &root).start();
    let body = content(7, 1 << 20);
    let mut client = server.client();
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        body.len()
    ));
    let (last, first) = body.split_last().expect("bytes");
    client.send(first);
    // Another request reaches its backend meanwhile.
    upload(&mut server.client(), "POST", b"x").assert_status(200);
    assert_eq!(
        backend.connections(),
        1,
        "the upload has taken no connection"
    );
    client.send([*last]);
    let answer = client.receive();
    assert_eq!(answer.text(), hashed(&body));
}

#[test]
fn a_chunked_body_gets_a_length() {
    let (backend, root) = (Scripted::unix(hash), Tree::new());
    let server = buffering(backend.address(), "http", BUFFERED, &root).start();
    let body = content(7, 200_000);
    let mut client = server.client();
    client.send("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    for piece in body.chunks(7001) {
        client.send(format!("{:x}\r\n", piece.len()));
        client.send(piece);
        client.send("\r\n");
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.receive().text(), hashed(&body));
    assert_eq!(
        backend.requests()[0].field("content-length"),
        Some("200000")
    );
}

#[test]
fn a_spooled_body_can_be_sent_again() {
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    let backend = Scripted::unix(move |conn| {
        if conn
            .read_request()
            .is_some_and(|_| counted.fetch_add(1, Ordering::SeqCst) > 0)
        {
            conn.answer("200 OK", "second");
        }
    });
    let root = Tree::new();
    let second = Scripted::unix(hash);
    let to = [backend.address(), second.address()];
    let site = "body_bytes = \"64MiB\"\n[disk]\nspool = \"{own}\"";
    let server = in_front_of(&to, "http", BUFFERED, &root, site).start();
    let body = content(7, 500_000);
    let mut client = server.client();
    let answers: Vec<_> = (0..4)
        .map(|_| upload(&mut client, "PUT", &body).text())
        .collect();
    assert_eq!(tries.load(Ordering::SeqCst), 1, "{answers:?}");
    assert!(
        answers.iter().all(|answer| *answer == hashed(&body)),
        "{answers:?}"
    );
}

#[test]
fn a_body_over_the_limit_is_refused_and_its_file_removed() {
    let (backend, root) = (Scripted::unix(hash), Tree::new());
    let site =
        "body_bytes = \"100KiB\"\n[disk]\nspool = \"{own}\"\n[limits]\nbody_memory = \"1KiB\"";
    let server = in_front_of(&[backend.address()], "http", BUFFERED, &root, site).start();
    upload(&mut server.client(), "POST", &content(7, 100 << 10)).assert_status(200);
    upload(&mut server.client(), "POST", &content(7, (100 << 10) + 1)).assert_status(413);
    let mut client = server.client();
    client.send("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    let piece = content(7, 50 << 10);
    for _ in 0..3 {
        let framed = [format!("{:x}\r\n", piece.len()).as_bytes(), &piece, b"\r\n"].concat();
        if client.try_send(framed).is_err() {
            break;
        }
    }
    client.receive().assert_status(413);
    let names = || fs::read_dir(server.own("")).expect("a folder").count();
    let before = names();
    let mut gone = server.client();
    gone.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90000\r\n\r\n");
    gone.send(content(7, 80_000));
    drop(gone);
    upload(&mut server.client(), "POST", &content(7, 90_000)).assert_status(200);
    assert_eq!(names(), before, "files without a name leave nothing");
    assert_eq!(backend.requests().len(), 2);
    wait_until("the file is closed", || spool_files(&server).is_empty());
}

/// Descriptors of files without a name.
fn spool_files(server: &Server) -> Vec<PathBuf> {
    let is_deleted = |descriptor: &PathBuf| {
        fs::read_link(descriptor).is_ok_and(|to| to.to_string_lossy().ends_with(" (deleted)"))
    };
    let open = server.open_files(&server.own(""));
    open.into_iter().filter(is_deleted).collect()
}

/// The backend has begun its response, and the client is connected: it is a failure of the server.
#[test]
fn a_body_that_cannot_be_read_back_during_the_response() {
    const ANSWER_BYTES: usize = 1 << 20;
    let backend = Scripted::tcp(|conn| {
        conn.read_head();
        let length = 2 * ANSWER_BYTES;
        conn.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"
        ));
        conn.send(vec![b'x'; ANSWER_BYTES]);
        conn.stall();
        conn.read_to_end();
    });
    let root = Tree::new();
    let log =
        "[log]\naccess = \"stdout\"\nformat = \"json\"\n[admin]\nlisten = \"unix:{own}/admin\"";
    let site = format!("body_bytes = \"64MiB\"\n[disk]\nspool = \"{{own}}\"\n{log}");
    let server = in_front_of(&[backend.address()], "http", BUFFERED, &root, &site).start();
    let mut client = Client::narrow(server.address());
    // More than the socket buffers on the way to the backend hold.
    let body = vec![b'y'; 48_000_000];
    let length = body.len().to_string();
    client.send(head("POST", "/", &[("Content-Length", &length)]));
    client.send(&body);
    client.receive_head().expect("a head").assert_status(200);
    let spooled = spool_files(&server);
    assert_eq!(spooled.len(), 1, "{spooled:?}");
    let file = fs::File::options().write(true).open(&spooled[0]);
    file.expect("the body").set_len(0).expect("truncate");
    backend.release();
    let line: Value = serde_json::from_str(&server.prints("\"target\":\"/\"")).expect("JSON");
    assert_eq!(
        (&line["status"], &line["end"]),
        (&200.into(), &"error".into())
    );
    server.says("cannot spool the request's body (disk.spool): ");
    let cut = client.read_to_end();
    assert!(matches!(cut, Cut::Closed(Some(_))), "{cut:?}");
    let metrics = server.metrics(&server.own("admin"));
    assert_eq!(metrics.sum("levity_upstream_broken_answers_total"), 0.0);
}

#[test]
fn php_gets_the_whole_body_of_unknown_length() {
    let root = App::php();
    let scripts = "script_suffix = \".php\"\nbody_bytes = \"64MiB\"\n[disk]\nspool = \"{own}\"";
    let server = in_front_of(&[App::php_fpm().address()], "fastcgi", "", &root, scripts).start();
    let body = content(7, 2 << 20);
    let mut client = server.client();
    client.send(head(
        "POST",
        "/upload.php",
        &[("Transfer-Encoding", "chunked")],
    ));
    for piece in body.chunks(100_000) {
        client.send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
    }
    client.send("0\r\n\r\n");
    let answer = client.receive();
    assert!(answer.text().contains(&sha256(&body)), "{}", answer.text());
}
