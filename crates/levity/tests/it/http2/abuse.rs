//! Clients that do what they must not.

use super::Fixture;
use crate::support::{Client, assert_same, wait_until};

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A connection whose preface and settings were sent.
fn open(fixture: &Fixture) -> Client {
    let mut client = fixture.server.client();
    let settings = frame(4, 0, 0, &[]);
    client.send([&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings].concat());
    client
}

/// A request for `/small`, by indices of the static table, which is reset at once.
fn reset_request(stream: u32) -> Vec<u8> {
    let fields = b"\x82\x86\x04\x06/small\x41\x09localhost";
    let request = frame(1, 5, stream, fields);
    let reset = frame(3, 0, stream, &8_u32.to_be_bytes());
    [request, reset].concat()
}

#[test]
fn a_client_that_resets_all_its_requests_is_stopped() {
    let fixture = Fixture::plain();
    let mut client = open(&fixture);
    let requests: Vec<_> = (0..20_000).flat_map(|n| reset_request(2 * n + 1)).collect();
    // It is closed before all was sent.
    let _ = client.try_send(requests);
    let said = client.read_through(b"too many frames of no use");
    let code = said.len() - b"too many frames of no use".len() - 4;
    assert_eq!(said[code..][..4], 0xb_u32.to_be_bytes());
    let metrics = fixture.server.metrics(&fixture.server.own("admin"));
    let series = "levity_http2_failures_total{code=\"enhance_your_calm\"}";
    assert_eq!(metrics.sum(series), 1.0);
    assert_same(&fixture.curl(&[], "/small").stdout, &fixture.small);
}

/// As malformed requests of HTTP/1 are, which get a response.
#[test]
fn a_malformed_request_is_logged_and_counted() {
    let fixture = Fixture::plain();
    let mut client = open(&fixture);
    // Without a path.
    client.send(frame(1, 5, 1, b"\x82\x86\x41\x09localhost"));
    let reset = frame(3, 0, 1, &1_u32.to_be_bytes());
    client.read_through(&reset);
    let metrics = || fixture.server.metrics(&fixture.server.own("admin"));
    wait_until("it is counted", || {
        metrics().sum("levity_requests_total{code=\"400\"}") == 1.0
    });
    let line = fixture.server.prints("\"status\":400");
    for part in ["\"method\":\"\"", "\"target\":\"\"", "\"end\":\"error\""] {
        assert!(line.contains(part), "{line}");
    }
}
