//! Records to an application.

use super::{CONTENT_BYTES_MAX, HEADER_BYTES, REQUEST_ID, VERSION, kind};
use crate::cgi::{ENVIRONMENT_BYTES_MAX, Environment};

/// Section 5.1: the application keeps the connection open after its response.
const KEEP_CONN: u8 = 1;
/// Section 5.1: the role of an application that responds to requests.
const RESPONDER: u16 = 1;
/// Section 3.4: the length of a longer name or value takes four bytes, with the top bit set.
const SHORT_MAX: usize = 127;

/// Maximum bytes of the two lengths before a name and a value.
const LENGTHS_BYTES_MAX: usize = 8;
const _: () = assert!(ENVIRONMENT_BYTES_MAX + LENGTHS_BYTES_MAX <= CONTENT_BYTES_MAX);

/// The end of the body, also for a request without a body (section 6.2). It does not end a body
/// that has fewer bytes than CONTENT_LENGTH: php-fpm 8.2 waits for the rest until the connection
/// closes.
pub const STDIN_END: [u8; HEADER_BYTES] = header(kind::STDIN, 0);

/// A record of the body: send the three fields in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StdinRecord<'a> {
    /// The header of the record.
    pub header: [u8; HEADER_BYTES],
    /// Part of the body, not copied.
    pub content: &'a [u8],
    /// Zeros that pad the record to a multiple of 8 bytes (section 3.3).
    pub padding: &'static [u8],
}

/// Appends everything before the body.
///
/// With `keep_conn` the application should keep the connection open for the next request; otherwise
/// it closes it after its response. See [`ResponseDecoder::is_reusable`](super::ResponseDecoder::is_reusable).
///
/// No variable is split between two records: php-fpm parses the variables of each record
/// separately.
pub fn write_head(environment: &Environment, keep_conn: bool, out: &mut Vec<u8>) {
    let role = RESPONDER.to_be_bytes();
    let flags = if keep_conn { KEEP_CONN } else { 0 };
    out.extend(header(kind::BEGIN_REQUEST, 8));
    out.extend([role[0], role[1], flags, 0, 0, 0, 0, 0]);
    let mut start = begin_record(out);
    for (name, value) in environment.pairs() {
        let bytes = length_bytes(name) + length_bytes(value) + name.len() + value.len();
        if out.len() - start + bytes > CONTENT_BYTES_MAX {
            end_record(out, start);
            start = begin_record(out);
        }
        push_length(name, out);
        push_length(value, out);
        out.extend_from_slice(name);
        out.extend_from_slice(value);
    }
    end_record(out, start);
    // An empty record ends the stream; without variables there is one already.
    if out.len() > start {
        out.extend(header(kind::PARAMS, 0));
    }
}

/// The records of the next part of a body, which may be split anywhere. None for an empty part,
/// since an empty record would end the body.
pub fn stdin(part: &[u8]) -> impl Iterator<Item = StdinRecord<'_>> {
    part.chunks(CONTENT_BYTES_MAX).map(|content| StdinRecord {
        header: header(kind::STDIN, content.len()),
        content,
        padding: padding(content.len()),
    })
}

/// Section 3.3.
const fn header(kind: u8, content_len: usize) -> [u8; HEADER_BYTES] {
    debug_assert!(content_len <= CONTENT_BYTES_MAX);
    let id = REQUEST_ID.to_be_bytes();
    let len = (content_len as u16).to_be_bytes();
    let padding = padding(content_len).len() as u8;
    [VERSION, kind, id[0], id[1], len[0], len[1], padding, 0]
}

const fn padding(content_len: usize) -> &'static [u8] {
    const ZEROS: &[u8] = &[0; 8];
    ZEROS.split_at((8 - content_len % 8) % 8).0
}

/// Reserves the header of a record of variables, and returns the offset of its content.
fn begin_record(out: &mut Vec<u8>) -> usize {
    out.extend([0; HEADER_BYTES]);
    out.len()
}

fn end_record(out: &mut Vec<u8>, start: usize) {
    let content_len = out.len() - start;
    let header = header(kind::PARAMS, content_len);
    out[start - HEADER_BYTES..start].copy_from_slice(&header);
    out.extend_from_slice(padding(content_len));
}

fn length_bytes(text: &[u8]) -> usize {
    if text.len() > SHORT_MAX { 4 } else { 1 }
}

fn push_length(text: &[u8], out: &mut Vec<u8>) {
    if text.len() > SHORT_MAX {
        out.extend((text.len() as u32 | 1 << 31).to_be_bytes());
    } else {
        out.push(text.len() as u8);
    }
}
