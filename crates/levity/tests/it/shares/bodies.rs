//! Memory and files of request bodies.

use std::cell::Cell;
use std::fs::{self, Permissions};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::Request;
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::task::{self, LocalSet};
use tokio::time;

use super::{FIRST_BYTE_MAX, LISTEN, STALLED_AFTER, client_of};
use crate::clients::run;
use crate::support::frames::{self, HEADERS, frame};
use crate::support::scripted::{Conn, Scripted};
use crate::support::{
    Client, Launch, Server, Tree, content, head, in_front_of, sha256, wait_until,
};

/// `limits.bodies_memory` and `limits.spool_bytes`, except where there are many clients.
const BYTES_MAX: usize = 1 << 20;

/// What is waited for at a time, and so what a client holds that has stalled.
const PART_BYTES: usize = 64 << 10;

/// The window of each connection that is not granted on request (RFC 9113, 6.9.2).
const USUAL_WINDOW_BYTES: usize = 65_535;

const DATA: u8 = 0;
const END_HEADERS: u8 = 4;

/// Responds with the hash of the body.
fn hash(conn: &mut Conn) {
    while let Some(request) = conn.read_request() {
        conn.answer("200 OK", sha256(&request.body));
    }
}

/// A server of clients that the PROXY header names, which buffers bodies before a backend gets them.
fn buffering(backend: &Scripted, [memory, files]: [usize; 2], limits: &str) -> Server {
    let to = backend.address();
    Launch::run(&format!(
        "{LISTEN}[[upstream]]\nname = \"app\"\nto = [\"{to}\"]\nbuffer_requests = true\n\
         [[site]]\nproxy = \"app\"\nbody_bytes = \"64MiB\"\n[disk]\nspool = \"{{own}}\"\n\
         [limits]\nbodies_memory = {memory}\nspool_bytes = {files}\n{limits}\n"
    ))
    .start()
}

const IN_MEMORY: &str = "body_memory = \"64MiB\"";
const IN_FILES: &str = "body_memory = \"0B\"";

fn share(server: &Server, what: &str, resource: &str) -> f64 {
    let metrics = server.metrics(&server.own("admin"));
    metrics.sum(&format!("levity_share_{what}{{resource=\"{resource}\"}}"))
}

/// The beginning of a request of which `bytes` follow, and then nothing more.
fn stall(mut client: Client, bytes: usize) -> Client {
    client.send(head("POST", "/", &[("Content-Length", "10000000")]));
    client.send(content(7, bytes));
    client
}

/// The same over HTTP/2.
fn stall_h2(mut client: Client, bytes: usize) -> Client {
    let mut sent = frames::preface(USUAL_WINDOW_BYTES as u32);
    sent.extend(frame(
        HEADERS,
        END_HEADERS,
        1,
        b"\x83\x86\x84\x41\x09localhost",
    ));
    // The window has a byte less.
    let bytes = bytes.min(USUAL_WINDOW_BYTES);
    for part in content(7, bytes).chunks(16 * 1024) {
        sent.extend(frame(DATA, 0, 1, part));
    }
    client.send(sent);
    client
}

/// Uploads in full, and expects the hash.
#[track_caller]
fn upload(client: &mut Client, bytes: usize) {
    let body = content(9, bytes);
    let length = body.len().to_string();
    client.send(head("POST", "/", &[("Content-Length", &length)]));
    client.send(&body);
    let answer = client.receive();
    answer.assert_status(200);
    assert_eq!(answer.text(), sha256(&body));
}

/// Clients stall with nearly all of `resource`; another one still gets what it needs.
#[track_caller]
fn others_upload(
    limits: &str,
    resource: &str,
    stall: fn(Client, usize) -> Client,
    prefixes: impl IntoIterator<Item = u16>,
) {
    let prefixes: Vec<_> = prefixes.into_iter().collect();
    let bytes_max = prefixes.len() * PART_BYTES;
    let backend = Scripted::unix(hash);
    let server = buffering(&backend, [bytes_max; 2], limits);
    let stall = |&prefix| stall(client_of(&server, prefix), PART_BYTES);
    let _stalled: Vec<_> = prefixes.iter().map(stall).collect();
    let used = || share(&server, "used", resource);
    let max = share(&server, "max", resource);
    assert_eq!(max, bytes_max as f64);
    wait_until("nearly all is held", || used() > 0.9 * max);
    assert!(used() <= max, "{} of {max}", used());
    thread::sleep(STALLED_AFTER);
    let start = Instant::now();
    upload(&mut client_of(&server, u16::MAX), PART_BYTES);
    let time = start.elapsed();
    assert!(time < FIRST_BYTE_MAX, "{time:?}");
    assert!(share(&server, "reclaimed_total", resource) > 0.0);
}

#[test]
fn others_upload_while_one_client_holds_all_memory() {
    others_upload(IN_MEMORY, "bodies", stall, [1; 16]);
}

#[test]
fn others_upload_while_sixteen_clients_hold_all_memory() {
    others_upload(IN_MEMORY, "bodies", stall, 0..16);
}

#[test]
fn others_upload_while_256_clients_hold_all_memory() {
    others_upload(IN_MEMORY, "bodies", stall, 0..256);
}

#[test]
fn others_upload_while_clients_over_http2_hold_all_memory() {
    others_upload(
        IN_MEMORY,
        "bodies",
        stall_h2,
        (0..16).map(|number| number / 2),
    );
}

#[test]
fn others_upload_while_one_client_holds_all_files() {
    others_upload(IN_FILES, "spool", stall, [1; 16]);
}

#[test]
fn others_upload_while_sixteen_clients_hold_all_files() {
    others_upload(IN_FILES, "spool", stall, 0..16);
}

/// Nothing of it has stalled, so that nothing is taken from it: it is told to come again.
#[track_caller]
fn more_than_there_is_is_refused(limits: &str, resource: &str) {
    let backend = Scripted::unix(hash);
    let server = buffering(&backend, [BYTES_MAX; 2], limits);
    let mut client = client_of(&server, 1);
    client.send(head("POST", "/", &[("Content-Length", "2000000")]));
    let _ = client.try_send(content(7, 2_000_000));
    let answer = client.receive();
    answer.assert_status(503);
    assert_eq!(answer.header("retry-after"), Some("5"));
    assert_eq!(backend.requests().len(), 0, "no part of it was passed on");
    assert_eq!(share(&server, "refused_total", resource), 1.0);
    wait_until("all is given back", || {
        share(&server, "used", resource) == 0.0
    });
    upload(&mut client_of(&server, 1), 200_000);
}

#[test]
fn a_body_that_exceeds_the_memory_and_the_files_is_refused() {
    more_than_there_is_is_refused(IN_MEMORY, "bodies");
}

#[test]
fn a_body_that_exceeds_the_files_is_refused() {
    more_than_there_is_is_refused(IN_FILES, "spool");
}

#[test]
fn a_body_that_exceeds_the_memory_goes_to_a_file() {
    let backend = Scripted::unix(hash);
    let server = buffering(&backend, [BYTES_MAX, 16 * BYTES_MAX], IN_MEMORY);
    upload(&mut client_of(&server, 1), 3 * BYTES_MAX / 2);
}

/// Each holds some of the memory, and waits for more.
#[test]
fn bodies_that_exceed_the_memory_together_go_to_files() {
    let backend = Scripted::unix(hash);
    let server = buffering(&backend, [BYTES_MAX, 16 * BYTES_MAX], IN_MEMORY);
    let body = content(9, BYTES_MAX / 2);
    let (start, rest) = body.split_at(BYTES_MAX / 8);
    let length = body.len().to_string();
    let mut clients: Vec<_> = (0..8).map(|_| client_of(&server, 1)).collect();
    for client in &mut clients {
        client.send(head("POST", "/", &[("Content-Length", &length)]));
        client.send(start);
    }
    wait_until("all memory is in use", || {
        share(&server, "used", "bodies") >= (BYTES_MAX - PART_BYTES) as f64
    });
    for client in &mut clients {
        client.send(rest);
    }
    for client in &mut clients {
        let answer = client.receive();
        answer.assert_status(200);
        assert_eq!(answer.text(), sha256(&body));
    }
    wait_until("all is given back", || {
        share(&server, "used", "bodies") + share(&server, "used", "spool") == 0.0
    });
}

/// A server in front of a backend to which it passes bodies on as they come.
fn passing_on(backend: &Scripted, root: &Tree, upstream: &str) -> Server {
    let site = "body_bytes = \"64MiB\"\n[admin]\nlisten = \"unix:{own}/admin\"\n\
                [limits]\nbodies_memory = \"1MiB\"";
    in_front_of(&[backend.address()], "http", upstream, root, site).start()
}

#[test]
fn a_large_upload_over_http2_goes_through() {
    let (backend, root) = (Scripted::unix(hash), Tree::new());
    let server = passing_on(&backend, &root, "");
    let body = content(7, 20_000_000);
    root.file("body", &body);
    let url = format!("http://{}/", server.address());
    let arguments = [
        "-sS",
        "--http2-prior-knowledge",
        "--data-binary",
        "@body",
        &url,
    ];
    let output = run(Duration::from_secs(30), "curl", &arguments, root.path());
    assert_eq!(String::from_utf8_lossy(&output.stdout), sha256(&body));
    wait_until("all is given back", || {
        share(&server, "used", "bodies") == 0.0
    });
}

/// A connection over HTTP/2.
async fn connect(address: SocketAddr) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(address).await.expect("connect");
    let (requests, connection) = Builder::new()
        .handshake::<_, Bytes>(stream)
        .await
        .expect("a handshake");
    task::spawn_local(async move {
        // It ends when the test drops what it has of it.
        let _ = connection.await;
    });
    requests
}

/// Uploads as much as it is allowed to, and adds that to `sent`.
async fn flood(mut requests: SendRequest<Bytes>, sent: Rc<Cell<usize>>) {
    let request = Request::post("http://localhost/").body(());
    let request = request.expect("a request");
    let (_response, mut body) = requests.send_request(request, false).expect("a stream");
    loop {
        body.reserve_capacity(16 * 1024);
        match poll_fn(|context| body.poll_capacity(context)).await {
            Some(Ok(bytes)) => {
                let data = Bytes::from(vec![0; bytes]);
                body.send_data(data, false).expect("it is open");
                sent.set(sent.get() + bytes);
            }
            _ => return,
        }
    }
}

/// All requests but one wait for the backend, so that nobody reads their bodies.
#[test]
fn bodies_over_http2_that_nobody_reads_are_bounded_together() {
    const CONNECTIONS: usize = 16;
    let (backend, root) = (
        Scripted::unix(|conn| {
            conn.read_head();
            conn.stall();
        }),
        Tree::new(),
    );
    let server = passing_on(&backend, &root, "connections = 1\nqueue_timeout = \"60s\"");
    let mut first = server.client();
    first.send(head("GET", "/", &[]));
    wait_until("the only connection is in use", || {
        backend.connections() == 1
    });
    let sent = Rc::new(Cell::new(0));
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let local = LocalSet::new();
    let fill = async {
        for _ in 0..CONNECTIONS {
            let requests = connect(server.address()).await;
            for _ in 0..4 {
                task::spawn_local(flood(requests.clone(), sent.clone()));
            }
        }
        let mut before = None;
        while before != Some(sent.get()) {
            before = Some(sent.get());
            time::sleep(Duration::from_millis(500)).await;
        }
    };
    runtime.block_on(local.run_until(fill));
    let (granted, used) = (sent.get(), share(&server, "used", "bodies"));
    let usual = CONNECTIONS * USUAL_WINDOW_BYTES;
    assert!(granted > usual, "no more than usual");
    assert!(used > 0.0 && used <= BYTES_MAX as f64, "{used}");
    assert!(granted as f64 <= usual as f64 + used, "{granted}");
    drop((local, runtime));
    wait_until("all is given back", || {
        share(&server, "used", "bodies") == 0.0
    });
}

/// Their bytes are bounded by quotas, but not their descriptors.
#[test]
fn files_that_are_being_uploaded_count() {
    let tree = Tree::new();
    let open_to_all = Permissions::from_mode(0o777);
    fs::set_permissions(tree.path(), open_to_all).expect("chmod");
    let admin = "[admin]\nlisten = \"unix:{own}/admin\"\n";
    let server = Launch::site(tree.path(), admin, "upload = { methods = [\"PUT\"] }").start();
    let mut client = server.client();
    client.send(head("PUT", "/file", &[("Content-Length", "100000")]));
    client.send(content(7, 50_000));
    wait_until("its file is open", || {
        share(&server, "used", "files") == 1.0
    });
    client.send(content(7, 50_000));
    client.receive().assert_status(201);
    wait_until("it is closed", || share(&server, "used", "files") == 0.0);
}
