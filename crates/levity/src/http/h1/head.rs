//! Encodes the header section of a response as HTTP/1.

use std::io::Write;

use levity_wire::decimal;
use levity_wire::http1::{Version, reason};

use crate::http::send::{Framing, Head};
use crate::loop_core::LoopCore;
use crate::message::fields::Fields;

/// The usual maximum size of a header section in bytes.
const USUAL_BYTES: usize = 512;

/// An encoded header section that is being sent.
pub struct Header {
    bytes: Vec<u8>,
    sent: usize,
}

impl Header {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, sent: 0 }
    }

    /// The unsent bytes.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }
}

/// Splits `bytes` that were sent into those of `header` and those after it; returns the latter. The memory of a
/// complete header is returned to the worker.
pub(super) fn advance(header: &mut Option<Header>, bytes: usize, core: &LoopCore) -> usize {
    let mut header_bytes = 0;
    if let Some(sending) = header {
        header_bytes = bytes.min(sending.rest().len());
        sending.sent += header_bytes;
    }
    if let Some(sent) = header.take_if(|header| header.rest().is_empty()) {
        core.return_head(sent.bytes);
    }
    bytes - header_bytes
}

/// Appends the header section to `out`: status line, Server, Date, the header fields, and framing.
pub(super) fn write(head: &Head<'_>, version: Version, core: &LoopCore, out: &mut Vec<u8>) {
    out.reserve(USUAL_BYTES);
    status_line(out, head);
    if !head.has_server {
        out.extend_from_slice(b"Server: levity\r\n");
    }
    if !head.has_date {
        out.extend_from_slice(b"Date: ");
        out.extend_from_slice(&core.clock.date());
        out.extend_from_slice(b"\r\n");
    }
    if let Some(file) = head.base {
        out.extend_from_slice(file.fields().as_bytes());
    }
    out.extend_from_slice(head.fields.as_bytes());
    if let Some(metrics) = head.server_timing {
        out.extend_from_slice(b"Server-Timing: ");
        out.extend_from_slice(metrics.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if let Some(bytes) = head.length {
        out.extend_from_slice(b"Content-Length: ");
        decimal::push(out, bytes);
        out.extend_from_slice(b"\r\n");
    } else if head.framing == Framing::ByChunks {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    end_header(out, head, version);
}

fn status_line(out: &mut Vec<u8>, head: &Head<'_>) {
    // Most responses; constants are copied without a call.
    if head.status == 200 && head.reason.is_empty() {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    decimal::push(out, u64::from(head.status));
    out.push(b' ');
    match head.reason {
        b"" => out.extend_from_slice(reason(head.status).as_bytes()),
        reason => out.extend_from_slice(reason),
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the connection headers and the empty line.
fn end_header(out: &mut Vec<u8>, head: &Head<'_>, version: Version) {
    if let Some(protocol) = head.upgrade {
        out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: ");
        out.extend_from_slice(protocol);
        out.extend_from_slice(b"\r\n\r\n");
        return;
    }
    // Whoever sends Upgrade lists it (RFC 9110, 7.8). Other fields than those of a 426 have none.
    let has_upgrade = head.status == 426 && head.fields.value("upgrade").is_some();
    let connection: &[u8] = match (head.close, version, has_upgrade) {
        (true, _, false) => b"Connection: close\r\n",
        (true, _, true) => b"Connection: close, Upgrade\r\n",
        (false, Version::Http10, false) => b"Connection: keep-alive\r\n",
        (false, Version::Http10, true) => b"Connection: keep-alive, Upgrade\r\n",
        (false, Version::Http11, false) => b"",
        (false, Version::Http11, true) => b"Connection: Upgrade\r\n",
    };
    out.extend_from_slice(connection);
    out.extend_from_slice(b"\r\n");
}

/// An interim response (RFC 9110, 15.2).
pub(super) fn interim(status: u16, fields: &Fields) -> Header {
    let mut out = Vec::new();
    // Writing to memory cannot fail.
    let _ = write!(out, "HTTP/1.1 {status} {}\r\n", reason(status));
    out.extend_from_slice(fields.as_bytes());
    out.extend_from_slice(b"\r\n");
    Header::new(out)
}
