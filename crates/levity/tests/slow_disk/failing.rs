//! A disk that fails, for real: the kernel itself reports EIO. A client is told so, or loses its
//! connection; it never gets other bytes than the file's, and nothing of the failure lasts.

use super::*;
use support::{Cut, per_engine};

/// What is in memory is served all the same, and once the disk is well again, so is the rest.
fn assert_well_again(server: &Server, failing: rig::Failing, path: &str, expected: &[u8]) {
    server.get("/hot").assert_status(200);
    drop(failing);
    // An entry may be kept for its time, with what was known of the file before.
    wait_until("the file is served again", || {
        let mut client = server.client();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        match client.try_receive() {
            Ok(answer) if answer.status == 200 => {
                assert_same(&answer.body, expected);
                true
            }
            _ => false,
        }
    });
    cold_requests(server);
}

/// 500 before the head or an end after it; what came until then is the file's.
fn assert_failed(answer: Result<support::Answer, Cut>, expected: &[u8]) {
    match answer {
        Ok(answer) => answer.assert_status(500),
        Err(cut) => {
            let got = cut.body();
            assert!(
                got.len() < expected.len(),
                "all of it came from a disk that fails"
            );
            assert_same(&got, &expected[..got.len()]);
        }
    }
}

per_engine! {
    fn a_file_that_cannot_be_looked_up(engine) {
        let Some(disk) = SlowDisk::with(fill) else { return };
        let server = server(&disk, engine);
        let failing = disk.fail();
        server.get("/cold/1").assert_status(500);
        assert_well_again(&server, failing, "/cold/1", &content(1, COLD_BYTES));
    }

    fn a_file_that_cannot_be_read(engine) {
        let Some(disk) = SlowDisk::with(fill) else { return };
        let server = server(&disk, engine);
        let mut client = server.client();
        client.head("/cold/2").assert_status(200);
        let failing = disk.fail();
        let expected = content(2, COLD_BYTES);
        client.send("GET /cold/2 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_failed(client.try_receive(), &expected);
        assert_well_again(&server, failing, "/cold/2", &expected);
    }

    fn in_the_middle_of_a_transfer(engine) {
        let Some(disk) = SlowDisk::with(fill) else { return };
        let server = server(&disk, engine);
        let expected = content(0, STREAM_BYTES);
        let mut client = Client::narrow(server.address());
        client.send("GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client.receive_head().expect("a head").assert_status(200);
        let failing = disk.fail();
        let got = client.read_to_end().body();
        assert!(got.len() < STREAM_BYTES, "all of it came from a disk that fails");
        assert_same(&got, &expected[..got.len()]);
        assert_well_again(&server, failing, "/stream", &expected);
    }
}
