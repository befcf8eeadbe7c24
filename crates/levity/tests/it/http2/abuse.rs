//! Clients that do what they must not.

use crate::file_server::FileServer;
use crate::support::frames::{self, HEADERS, RST_STREAM, WHOLE, frame};
use crate::support::{Client, assert_same, wait_until};

/// Further types of frames (RFC 9113, 6).
const DATA: u8 = 0;
const WINDOW_UPDATE: u8 = 8;

/// The flag of HEADERS: the header section ends, before a body.
const END_HEADERS: u8 = 4;
/// That of DATA.
const PADDED: u8 = 8;

/// Error codes (RFC 9113, 7).
const PROTOCOL_ERROR: u32 = 0x1;
const CANCEL: u32 = 0x8;
const ENHANCE_YOUR_CALM: u32 = 0xb;

/// A connection whose preface and settings were sent.
fn open(fixture: &FileServer) -> Client {
    let mut client = fixture.server.client();
    client.send(frames::preface(65_535));
    client
}

/// A request for `/small` that is reset at once.
fn reset_request(stream: u32) -> Vec<u8> {
    let request = frames::get(stream, "/small");
    let reset = frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
    [request, reset].concat()
}

/// Sends `frames`, after which the client is stopped. Others are served.
#[track_caller]
fn assert_stopped(frames: Vec<u8>) {
    let fixture = FileServer::plain();
    let mut client = open(&fixture);
    // It is closed before all was sent.
    let _ = client.try_send(frames);
    // The payload of GOAWAY ends with them.
    let end = [
        &ENHANCE_YOUR_CALM.to_be_bytes()[..],
        b"too many frames of no use",
    ]
    .concat();
    client.read_through(&end);
    let metrics = fixture.metrics();
    let series = "levity_http2_failures_total{code=\"enhance_your_calm\"}";
    assert_eq!(metrics.sum(series), 1.0);
    assert_same(&fixture.curl(&[], "/small").stdout, &fixture.small);
}

#[test]
fn a_client_that_resets_all_its_requests_is_stopped() {
    let requests = (0..20_000).flat_map(|n| reset_request(2 * n + 1));
    assert_stopped(requests.collect());
}

#[test]
fn a_client_that_opens_the_windows_of_ended_streams_is_stopped() {
    let update = frame(WINDOW_UPDATE, 0, 1, &4096_u32.to_be_bytes());
    assert_stopped([reset_request(1), update.repeat(200_000)].concat());
}

#[test]
fn a_client_that_sends_nothing_but_padding_is_stopped() {
    // POST, by the static table.
    let fields = b"\x83\x86\x04\x06/small\x41\x09localhost";
    let request = frame(HEADERS, END_HEADERS, 1, fields);
    let padding = frame(DATA, PADDED, 1, &[0]);
    assert_stopped([request, padding.repeat(200_000)].concat());
}

/// As malformed requests of HTTP/1 are, which get a response.
#[test]
fn a_malformed_request_is_logged_and_counted() {
    let fixture = FileServer::plain();
    let mut client = open(&fixture);
    // Without a path.
    client.send(frame(HEADERS, WHOLE, 1, b"\x82\x86\x41\x09localhost"));
    let reset = frame(RST_STREAM, 0, 1, &PROTOCOL_ERROR.to_be_bytes());
    client.read_through(&reset);
    let metrics = || fixture.metrics();
    wait_until("it is counted", || {
        metrics().sum("levity_requests_total{code=\"400\"}") == 1.0
    });
    let line = fixture.server.prints("\"status\":400");
    for part in ["\"method\":\"\"", "\"target\":\"\"", "\"end\":\"error\""] {
        assert!(line.contains(part), "{line}");
    }
}
