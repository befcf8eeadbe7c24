//! The header of a response, as HTTP/1 writes it.

use std::io::Write;

use levity_wire::decimal;
use levity_wire::http1::{Version, reason};

use crate::http::fields::Fields;
use crate::http::send::{Framing, Head, Moved};
use crate::worker::Worker;

/// Bytes that most headers fit into.
const USUAL_BYTES: usize = 512;

/// A header on its way.
pub struct Header {
    bytes: Vec<u8>,
    sent: usize,
}

impl Header {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, sent: 0 }
    }

    /// What has not left.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }
}

/// So many bytes have left: of what is left of the header, then of the body.
pub(super) fn left(header: &mut Option<Header>, bytes: usize, worker: &Worker) -> Moved {
    let mut of_header = 0;
    if let Some(sending) = header {
        of_header = bytes.min(sending.rest().len());
        sending.sent += of_header;
    }
    if let Some(sent) = header.take_if(|header| header.rest().is_empty()) {
        worker.return_head(sent.bytes);
    }
    Moved {
        bytes,
        body_bytes: bytes - of_header,
    }
}

/// Writes status line, date, what responding and filtering set, and framing to `out`.
pub(super) fn write(head: &Head<'_>, version: Version, worker: &Worker, out: &mut Vec<u8>) {
    out.reserve(USUAL_BYTES);
    out.extend_from_slice(b"HTTP/1.1 ");
    decimal::push(out, u64::from(head.status));
    out.push(b' ');
    match head.reason {
        b"" => out.extend_from_slice(reason(head.status).as_bytes()),
        reason => out.extend_from_slice(reason),
    }
    out.extend_from_slice(b"\r\n");
    if !head.has_server {
        out.extend_from_slice(b"Server: levity\r\n");
    }
    if !head.has_date {
        out.extend_from_slice(b"Date: ");
        worker.date(out);
        out.extend_from_slice(b"\r\n");
    }
    head.fields
        .iter()
        .for_each(|lines| out.extend_from_slice(lines));
    if let Some(metrics) = head.server_timing {
        out.extend_from_slice(b"Server-Timing: ");
        out.extend_from_slice(metrics.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if let Some(bytes) = head.length {
        out.extend_from_slice(b"Content-Length: ");
        decimal::push(out, bytes);
        out.extend_from_slice(b"\r\n");
    } else if head.framing == Framing::Chunks {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    end(out, head, version);
}

/// What is said of the connection, and the empty line.
fn end(out: &mut Vec<u8>, head: &Head<'_>, version: Version) {
    if let Some(protocol) = head.upgrade {
        out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: ");
        out.extend_from_slice(protocol);
        out.extend_from_slice(b"\r\n\r\n");
        return;
    }
    out.extend_from_slice(match (head.close, version) {
        (true, _) => b"Connection: close\r\n\r\n",
        (false, Version::Http10) => b"Connection: keep-alive\r\n\r\n",
        (false, Version::Http11) => b"\r\n",
    });
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
