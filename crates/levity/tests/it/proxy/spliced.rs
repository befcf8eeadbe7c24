//! Bodies that pass through a pipe, from the socket of a backend to that of a client.

use crate::support::scripted::{Conn, Scripted};
use crate::support::{Client, Cut, Launch, Server, assert_same, content, head};

const BODY_BYTES: usize = 3_000_000;

fn body() -> Vec<u8> {
    content(17, BODY_BYTES)
}

/// Announces the body. What follows cannot be read together with the header.
fn begin(conn: &mut Conn) {
    conn.send(format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
    ));
}

fn server(backend: &Scripted, keys: &str) -> Server {
    let keys = format!("[admin]\nlisten = \"unix:admin.sock\"\n{keys}");
    Launch::proxy(backend.address(), &keys).workers(1).start()
}

fn spliced_bytes(server: &Server) -> f64 {
    let metrics = server.metrics(&server.own("admin.sock"));
    metrics.sum("levity_body_spliced_bytes_total")
}

/// Each target has its own framing.
fn answer(conn: &mut Conn) {
    while let Some(request) = conn.read_request() {
        match (request.method.as_str(), request.target.as_str()) {
            ("HEAD", _) => begin(conn),
            (_, "/small") => {
                conn.answer("200 OK", "small");
            }
            (_, "/chunked") => {
                let mut sent = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
                for chunk in body().chunks(16_384) {
                    sent.extend(format!("{:x}\r\n", chunk.len()).bytes());
                    sent.extend([chunk, b"\r\n"].concat());
                }
                conn.send([&sent[..], b"0\r\n\r\n"].concat());
            }
            (_, "/range") => {
                conn.send(format!(
                    "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 1-{}/{BODY_BYTES}\r\n\
                     Content-Length: {}\r\n\r\n",
                    BODY_BYTES - 1,
                    BODY_BYTES - 1
                ));
                conn.send(&body()[1..]);
            }
            _ => {
                begin(conn);
                conn.send(body());
            }
        }
    }
}

#[test]
fn a_large_body_is_spliced_and_its_connection_kept() {
    let backend = Scripted::tcp(answer);
    let server = server(&backend, "");
    let mut client = server.client();
    for _ in 0..3 {
        assert_same(&client.get("/").body, &body());
        assert_eq!(client.get("/small").text(), "small");
    }
    assert!(spliced_bytes(&server) > BODY_BYTES as f64);
    assert_same(&client.get("/range").body, &body()[1..]);
    let before = spliced_bytes(&server);
    assert_eq!(client.head("/").length(), Some(BODY_BYTES));
    assert_same(&client.get("/chunked").body, &body());
    assert_eq!(client.get("/small").text(), "small");
    assert_eq!(spliced_bytes(&server), before);
    assert_eq!(backend.connections(), 1);
}

#[test]
fn a_body_over_a_unix_socket_is_not_spliced() {
    let backend = Scripted::unix(answer);
    let server = server(&backend, "");
    assert_same(&server.get("/").body, &body());
    assert_eq!(spliced_bytes(&server), 0.0);
}

#[test]
fn a_slow_client_receives_every_byte() {
    let backend = Scripted::tcp(answer);
    let server = server(&backend, "");
    let mut clients = Vec::from_iter((0..5).map(|_| Client::narrow(server.address())));
    for client in &mut clients {
        client.send(head("GET", "/", &[]));
    }
    for client in &mut clients {
        assert_same(&client.receive().body, &body());
    }
    assert!(spliced_bytes(&server) > 0.0);
}

#[test]
fn bytes_of_a_client_that_left_reach_no_other() {
    let backend = Scripted::tcp(answer);
    let server = server(&backend, "");
    for _ in 0..3 {
        let mut client = Client::narrow(server.address());
        client.send(head("GET", "/", &[]));
        client.receive_head().expect("a header").assert_status(200);
        client.read_exactly(300_000);
        drop(client);
        assert_same(&server.get("/").body, &body());
    }
}

#[test]
fn a_body_that_ends_early_is_truncated() {
    const SENT: usize = BODY_BYTES - 1;
    let backend = Scripted::tcp(|conn| {
        if conn.read_request().is_some() {
            begin(conn);
            conn.send(&body()[..SENT]);
        }
    });
    let server = server(&backend, "");
    let mut client = server.client();
    client.send(head("GET", "/", &[]));
    client.receive_head().expect("a header").assert_status(200);
    assert_same(&client.read_exactly(SENT), &body()[..SENT]);
    let cut = client.read_to_end();
    assert!(matches!(cut, Cut::Closed(_)), "{cut:?}");
    assert!(spliced_bytes(&server) > 0.0);
}

#[test]
fn a_client_that_reads_nothing_times_out() {
    const HUGE_BYTES: usize = 64_000_000;
    let backend = Scripted::tcp(|conn| {
        if conn.read_request().is_some() {
            conn.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {HUGE_BYTES}\r\n\r\n"
            ));
            conn.send(vec![b'x'; HUGE_BYTES]);
        }
    });
    let server = server(&backend, "[limits]\nsend_timeout = \"300ms\"");
    let mut client = Client::narrow(server.address());
    client.send(head("GET", "/", &[]));
    client.receive_head().expect("a header").assert_status(200);
    backend.wait_for_no_connection();
    let cut = client.read_to_end();
    assert!(matches!(cut, Cut::Reset(_)), "{cut:?}");
    assert!(spliced_bytes(&server) > 0.0);
}
