//! Clients that read slowly, read nothing, or disconnect.

use levity_telemetry::access_log::End as Ended;

use crate::rig::{Rig, message, settle};

/// Too large to be cached in memory.
const LARGE_BYTES: usize = 300_000;

fn rig() -> Rig {
    let large = "0123456789".repeat(LARGE_BYTES / 10);
    Rig::with_files("", &[("small", "content"), ("large", &large)])
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
}

#[test]
fn a_client_may_read_a_few_bytes_at_a_time() {
    let rig = rig();
    rig.run(async {
        for request in [
            get("/small"),
            get("/absent"),
            get("/small").replace("GET", "HEAD"),
        ] {
            let whole = rig.ask(&request).await;
            let head_bytes = whole.find("\r\n\r\n").expect("a header") + 4;
            for bytes_max in [1, 7, head_bytes - 1, head_bytes, head_bytes + 1] {
                let mut client = rig.client(bytes_max);
                client.send(&request).await;
                assert_eq!(client.rest().await, whole, "{bytes_max} bytes at a time");
                client.close().await;
            }
        }
    });
    rig.assert_idle();
}

#[test]
fn a_large_file_arrives_whole() {
    let rig = rig();
    rig.run(async {
        for bytes_max in [997, 4096, 1 << 20] {
            let mut client = rig.client(bytes_max);
            client.send(get("/large")).await;
            let response = client.rest().await;
            let (_, body) = response.split_once("\r\n\r\n").expect("a header");
            assert_eq!(body.len(), LARGE_BYTES);
            assert!(body.as_bytes().chunks(10).all(|part| part == b"0123456789"));
            client.close().await;
        }
    });
    rig.assert_idle();
}

/// The client reads each possible number of bytes and then closes the connection. All resources are released.
#[test]
fn a_client_may_disconnect_after_each_byte() {
    let rig = rig();
    rig.run(async {
        let whole = rig.ask(get("/small")).await;
        for taken in 0..=whole.len() {
            let mut client = rig.client(1);
            client.send(get("/small")).await;
            let mut response = String::new();
            for _ in 0..taken {
                response += &client.read(1).await.expect("a byte");
            }
            assert_eq!(response, whole[..taken]);
            settle().await;
            client.close().await;
        }
        // Complete: the request at the start, and those of the last two clients, whose bytes had all been sent.
        let bytes = whole.len() as u64;
        assert_eq!(rig.worker.stats.ended(Ended::ClientAbort), bytes - 1);
        assert_eq!(rig.worker.stats.ended(Ended::Complete), 3);
    });
    rig.assert_idle();
}

#[test]
fn a_client_may_disconnect_within_a_file() {
    let rig = rig();
    rig.run(async {
        for taken in (0..LARGE_BYTES).step_by(LARGE_BYTES / 40) {
            let mut client = rig.client(4096);
            client.send(get("/large")).await;
            let mut unread = taken;
            while unread > 0 {
                unread -= client.read(unread.min(4096)).await.expect("bytes").len();
            }
            client.close().await;
        }
    });
    rig.assert_idle();
    assert_eq!(rig.worker.stats.ended(Ended::ClientAbort), 40);
}

/// The connection of a client that reads nothing is reset. After an orderly close, the kernel would keep the unsent
/// bytes in memory.
#[test]
fn a_client_that_reads_nothing_is_reset() {
    let rig = rig();
    rig.run(async {
        for path in ["/small", "/large", "/absent"] {
            for taken in [1, 64, 100] {
                let mut client = rig.client(64);
                client.send(get(path)).await;
                // The first byte is sent when the disk has answered.
                for _ in 0..taken {
                    client.read(1).await.expect("a byte");
                }
                rig.pass_seconds(59).await;
                assert!(!client.is_served());
                rig.pass_seconds(61).await;
                client.reset().await;
                client.served().await;
            }
        }
    });
    rig.assert_idle();
    assert_eq!(rig.worker.stats.ended(Ended::Timeout), 9);
}

/// The final response must not follow an incomplete interim one.
#[test]
fn no_response_follows_an_incomplete_interim_one() {
    let (rig, backend) = Rig::proxy("");
    rig.run(async {
        let mut client = rig.client(16);
        client.send(get("/app")).await;
        let (mut backend, _) = backend.asked().await;
        let hints = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n";
        backend.send(hints).await;
        settle().await;
        rig.pass_seconds(61).await;
        backend
            .send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .await;
        let (received, _) = client.all().await;
        assert_eq!(received, hints[..16]);
        client.served().await;
    });
    rig.assert_idle();
}

/// The new content is not sent. The response is shorter than its Content-Length.
#[test]
fn a_file_that_shrinks_is_cut_off() {
    let rig = rig();
    rig.run(async {
        let mut client = rig.client(4096);
        client.send(get("/large")).await;
        let mut response = client.until("0123456789").await;
        std::fs::write(rig.root.path().join("large"), "short").expect("a file");
        response += &client.rest().await;
        assert_eq!(message(&response, true), None);
        assert!(!response.contains("short"));
        client.close().await;
    });
    rig.assert_idle();
    assert_eq!(rig.worker.stats.ended(Ended::Error), 1);
}
