//! Clients that read slowly, read nothing, or disconnect.

#[cfg(feature = "compress")]
mod compressed;

use levity_telemetry::access_log::End as Ended;
use rustix::fs::{Advice, fadvise};

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

/// The boundary of a response is random.
fn without_boundary(response: &str) -> String {
    let (_, rest) = response.split_once("boundary=").expect("several parts");
    let (boundary, _) = rest.split_once("\r\n").expect("a line");
    response.replace(boundary, "B")
}

#[test]
fn parts_may_be_read_a_few_bytes_at_a_time() {
    let medium = (0..2000).map(|number| format!("{number:04}"));
    let medium: String = medium.collect();
    let large = "0123456789".repeat(LARGE_BYTES / 10);
    let rig = Rig::with_files("", &[("medium", &medium), ("large", &large)]);
    rig.run(async {
        for (path, content, ranges) in [
            ("/medium", &medium, "4000-4003,0-9,100-3000"),
            ("/large", &large, "0-9,100000-299000,299995-"),
            ("/large", &large, "299995-,0-9,200-299,500-599,1000-1009"),
        ] {
            let range = format!("Range: bytes={ranges}\r\nConnection");
            let request = get(path).replace("Connection", &range);
            let whole = without_boundary(&rig.ask(&request).await);
            let mut expected = String::new();
            for range in ranges.split(',') {
                let (first, last) = range.split_once('-').expect("a range");
                let first: usize = first.parse().expect("a number");
                let last = last.parse().unwrap_or(content.len() - 1);
                expected += &format!(
                    "\r\n--B\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes {first}-{last}/{}\r\n\r\n{}",
                    content.len(),
                    &content[first..=last]
                );
            }
            expected += "\r\n--B--\r\n";
            let (head, body) = whole.split_once("\r\n\r\n").expect("a header");
            assert!(head.starts_with("HTTP/1.1 206 Partial Content\r\n"));
            assert!(body == expected, "{body}");
            for bytes_max in [1, 7, head.len() + 3, head.len() + 25, 997, 4096] {
                let mut client = rig.client(bytes_max);
                client.send(&request).await;
                let response = without_boundary(&client.rest().await);
                assert!(response == whole, "{bytes_max} bytes at a time");
                client.close().await;
            }
        }
    });
    rig.assert_idle();
}

#[test]
fn a_client_may_disconnect_within_parts() {
    let rig = rig();
    rig.run(async {
        let range = "Range: bytes=0-9,200-299,1000-250000,-9\r\nConnection";
        let request = get("/large").replace("Connection", range);
        for taken in (1..250_000).step_by(6000) {
            let mut client = rig.client(4096);
            client.send(&request).await;
            let mut unread = taken;
            while unread > 0 {
                unread -= client.read(unread.min(4096)).await.expect("bytes").len();
            }
            client.close().await;
        }
    });
    rig.assert_idle();
    assert_eq!(rig.worker.core.stats.ended(Ended::ClientAbort), 42);
}

/// The header of a part leaves before its content is read, and each byte of it waits for the client.
#[test]
fn a_client_that_stalls_before_a_part_holds_no_memory() {
    let rig = rig();
    // Otherwise no memory of the disk is needed at all.
    let file = std::fs::File::open(rig.root.path().join("large")).expect("the file");
    file.sync_all().expect("synced");
    fadvise(&file, 0, None, Advice::DontNeed).expect("evicted");
    rig.run(async {
        let range = "Range: bytes=0-9,100000-299999\r\nConnection";
        let mut client = rig.client(16);
        client
            .send(get("/large").replace("Connection", range))
            .await;
        client.until("0123456789").await;
        let mut header = String::new();
        while !header.ends_with("Content-Range: bytes") {
            header += &client.read(1).await.expect("a byte");
            settle().await;
            assert_eq!(rig.worker.core.disk.budget().in_use(), 0, "{header}");
        }
        assert_eq!(rig.worker.core.stats.reads_cached.get(), 0);
        client.rest().await;
        client.close().await;
    });
    rig.assert_idle();
}

/// An append leaves the version that was announced as it is, also between two parts.
#[test]
fn a_file_that_grows_between_parts() {
    let rig = rig();
    rig.run(async {
        let range = "Range: bytes=0-99999,200000-200009\r\nConnection";
        let mut client = rig.client(4096);
        client
            .send(get("/large").replace("Connection", range))
            .await;
        let mut response = client.until("0123456789").await;
        let path = rig.root.path().join("large");
        let mut file = std::fs::File::options()
            .append(true)
            .open(path)
            .expect("the file");
        std::io::Write::write_all(&mut file, b"more").expect("written");
        response += &client.rest().await;
        assert!(response.ends_with("--\r\n"), "{}", response.len());
        client.close().await;
    });
    rig.assert_idle();
    assert_eq!(rig.worker.core.stats.ended(Ended::Complete), 1);
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
        assert_eq!(rig.worker.core.stats.ended(Ended::ClientAbort), bytes - 1);
        assert_eq!(rig.worker.core.stats.ended(Ended::Complete), 3);
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
    assert_eq!(rig.worker.core.stats.ended(Ended::ClientAbort), 40);
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
    assert_eq!(rig.worker.core.stats.ended(Ended::Timeout), 9);
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
    for range in ["", "Range: bytes=0-99999,100100-100109,200000-200009\r\n"] {
        let rig = rig();
        rig.run(async {
            let mut client = rig.client(4096);
            let request = get("/large").replace("Connection", &format!("{range}Connection"));
            client.send(request).await;
            let mut response = client.until("0123456789").await;
            std::fs::write(rig.root.path().join("large"), "short").expect("a file");
            response += &client.rest().await;
            assert_eq!(message(&response, true), None);
            assert!(!response.contains("short"));
            client.close().await;
        });
        rig.assert_idle();
        assert_eq!(rig.worker.core.stats.ended(Ended::Error), 1);
    }
}
