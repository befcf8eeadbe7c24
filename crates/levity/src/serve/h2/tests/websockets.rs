//! WebSockets (RFC 8441).

use super::*;

/// Asks for a WebSocket.
pub(super) async fn connect(client: &Client, path: &str) -> (ResponseFuture, SendStream<Bytes>) {
    until(|| client.may_connect()).await;
    let mut connect = request(Method::CONNECT, path);
    let protocol = Protocol::from_static("websocket");
    connect.extensions_mut().insert(protocol);
    let version = "13".parse().expect("a value");
    connect
        .headers_mut()
        .insert("sec-websocket-version", version);
    client.send(connect, false).await
}

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// A success would be the beginning of a tunnel (RFC 8441, 5).
#[test]
fn a_websocket_to_what_speaks_no_websocket_is_refused() {
    let (rig, app) = Rig::proxy("");
    std::fs::write(rig.root.path().join("a"), "a").expect("a file");
    run(&rig, &Builder::new(), async |client| {
        let (reply, _ours) = connect(client, "/a").await;
        assert_eq!(reply.await.expect("a response").status(), 501);
        for (response, status) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 501),
            ("HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno", 404),
        ] {
            let (reply, _ours) = connect(client, "/app").await;
            let (mut backend, _) = app.asked().await;
            backend.send(response).await;
            assert_eq!(reply.await.expect("a response").status(), status);
        }
    });
}

/// The refusal is an error like others.
#[test]
fn a_file_in_place_of_a_websocket_is_a_refusal_with_a_receipt() {
    let route = |lines: &str| format!("[[site.route]]\n{lines}\n");
    let config = [
        "error_pages = { 501 = \"/page\" }\n".to_owned(),
        route("path = \"/app\"\nproxy = \"app\""),
        route("path = \"/files/*\"\nroot = \"{root}\"\nstrip_prefix = \"/files\"\ninternal = true"),
        "[[upstream]]\nname = \"app\"\nto = [\"unix:/app\"]\n".to_owned(),
    ];
    let rig = Rig::with_files(&config.concat(), &[("file", "content"), ("page", "sorry")]);
    let app = Backend::new("unix:/app");
    run(&rig, &Builder::new(), async |client| {
        let (reply, _ours) = connect(client, "/app").await;
        let (mut backend, _) = app.asked().await;
        let file = "X-Accel-Redirect: /files/file\r\nX-Sendfile-Receipt: /sent";
        let response = format!("HTTP/1.1 200 OK\r\n{file}\r\nContent-Length: 0\r\n\r\n");
        backend.send(response).await;
        let response = reply.await.expect("a response");
        assert_eq!(response.status(), 501);
        assert_eq!(whole(&mut response.into_body()).await, b"sorry");
        let (mut backend, receipt) = app.asked().await;
        assert!(receipt.starts_with("POST /sent HTTP/1.1\r\n"), "{receipt}");
        assert!(
            receipt.contains("X-Sendfile-Receipt: refused\r\n"),
            "{receipt}"
        );
        backend.send("HTTP/1.1 204 No Content\r\n\r\n").await;
    });
}

#[test]
fn a_reset_ends_both_sides_of_a_websocket() {
    let (rig, app) = Rig::proxy("");
    run(&rig, &Builder::new(), async |client| {
        for ends_before in [false, true] {
            let (reply, mut ours) = connect(client, "/app").await;
            let (mut backend, _) = app.asked().await;
            backend.send(SWITCH).await;
            assert_eq!(reply.await.expect("a response").status(), 200);
            ours.send_data("last words".into(), ends_before)
                .expect("it is open");
            backend.until("last words").await;
            ours.send_reset(Reason::CANCEL);
            // The backend keeps its side open.
            until_idle(&rig).await;
            assert_eq!(backend.rest().await, "");
        }
    });
}

#[test]
fn a_websocket_that_its_backend_has_ended_may_be_reset() {
    let (rig, app) = Rig::proxy("");
    run(&rig, &Builder::new(), async |client| {
        let (reply, mut ours) = connect(client, "/app").await;
        let (mut backend, _) = app.asked().await;
        backend.send(SWITCH).await;
        let mut theirs = reply.await.expect("a response").into_body();
        backend.send("bye").await;
        backend.end_output();
        assert_eq!(whole(&mut theirs).await, b"bye");
        ours.send_reset(Reason::CANCEL);
        until_idle(&rig).await;
        assert_eq!(backend.rest().await, "");
    });
    assert_eq!(rig.worker.core.stats.ended(Ended::Complete), 1);
}

#[test]
fn a_websocket_is_a_stream() {
    let (rig, app) = Rig::proxy("");
    run(&rig, &Builder::new(), async |client| {
        let (reply, mut ours) = connect(client, "/app").await;
        let (mut backend, header) = app.asked().await;
        let header = header.to_ascii_lowercase();
        assert!(header.starts_with("get /app http/1.1\r\n"), "{header}");
        for line in [
            "connection: upgrade",
            "upgrade: websocket",
            "sec-websocket-version: 13",
        ] {
            assert!(header.contains(&format!("\r\n{line}\r\n")), "{header}");
        }
        let key = header.split("sec-websocket-key: ").nth(1).expect("a key");
        assert_eq!(key.split("\r\n").next().map(str::len), Some(24), "{key}");
        backend.send(SWITCH).await;
        let response = reply.await.expect("a response");
        assert_eq!(response.status(), 200);
        for name in [
            "sec-websocket-accept",
            "connection",
            "upgrade",
            "content-length",
        ] {
            assert!(!response.headers().contains_key(name), "{name}");
        }
        let mut echo = response.into_body();
        for message in ["ping", "a longer message"] {
            ours.send_data(message.into(), false).expect("sent");
            backend.until(message).await;
            backend.send(message).await;
            let back = receive(&mut echo).await.expect("bytes").expect("bytes");
            assert_eq!(back, message);
        }
        ours.send_data(Bytes::new(), true).expect("sent");
        assert_eq!(backend.rest().await, "");
        drop(backend);
        assert!(whole(&mut echo).await.is_empty());
    });
}
