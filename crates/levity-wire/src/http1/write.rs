//! Writing HTTP/1.1: start lines, headers and chunked bodies, for upstreams and for clients.
//!
//! A value that could end its line, and so inject a header line or a message, is an error and is
//! not written, whatever its source. After an error `out` is unchanged.

use std::num::NonZeroUsize;
use std::{error, fmt};

use super::line::{has_control, is_control, is_token};

/// The terminator of a chunk's data.
pub const CHUNK_END: &[u8] = b"\r\n";

/// A value that cannot be written, as a short sentence without a full stop. The source of the value
/// determines whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unwritable(pub &'static str);

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl error::Error for Unwritable {}

/// Writes the first line of a request.
///
/// # Errors
/// If the method is no token, or the target is empty or contains white space, a control character
/// or `#`.
pub fn request_line(out: &mut Vec<u8>, method: &[u8], target: &[u8]) -> Result<(), Unwritable> {
    if !is_token(method) {
        return Err(Unwritable("bad method"));
    }
    let ends_early = |&byte: &u8| is_control(byte) || b" \t#".contains(&byte);
    if target.is_empty() || target.iter().any(ends_early) {
        return Err(Unwritable("bad request target"));
    }
    push(out, &[method, b" ", target, b" HTTP/1.1\r\n"]);
    Ok(())
}

/// Writes one header line, or one trailer line.
///
/// # Errors
/// If the name is no token, or the value contains a control character other than HTAB.
pub fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), Unwritable> {
    if !is_token(name) {
        return Err(Unwritable("bad header name"));
    }
    if has_control(value) {
        return Err(Unwritable("control character in a header value"));
    }
    push(out, &[name, b": ", value, b"\r\n"]);
    Ok(())
}

/// Writes the blank line after the header section.
pub fn end_of_head(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// The size line of a chunk. It is on the stack, to be sent before data that is not copied;
/// [`CHUNK_END`] follows the data.
#[derive(Debug, Clone, Copy)]
pub struct ChunkSize {
    /// Filled from the end.
    line: [u8; SIZE_LINE_BYTES_MAX],
    start: usize,
}

/// The digits of the largest length, and CRLF.
const SIZE_LINE_BYTES_MAX: usize = usize::BITS as usize / 4 + 2;

impl ChunkSize {
    /// For data of this length in bytes, which is not 0: that would end the body.
    pub fn of(len: NonZeroUsize) -> Self {
        let mut line = [0; SIZE_LINE_BYTES_MAX];
        let mut start = SIZE_LINE_BYTES_MAX - 2;
        line[start..].copy_from_slice(b"\r\n");
        let mut left = len.get();
        while left > 0 {
            start -= 1;
            line[start] = b"0123456789abcdef"[left % 16];
            left /= 16;
        }
        Self { line, start }
    }

    /// The line with its CRLF.
    pub fn as_bytes(&self) -> &[u8] {
        &self.line[self.start..]
    }
}

/// Writes the end of a chunked body. The caller must exclude forbidden trailers
/// ([`is_forbidden_in_trailers`](super::is_forbidden_in_trailers)).
///
/// # Errors
/// As [`field`].
pub fn last_chunk<'a>(
    out: &mut Vec<u8>,
    trailers: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<(), Unwritable> {
    let before = out.len();
    out.extend_from_slice(b"0\r\n");
    let written = trailers
        .into_iter()
        .try_for_each(|(name, value)| field(out, name, value));
    match written {
        Ok(()) => out.extend_from_slice(b"\r\n"),
        Err(_) => out.truncate(before),
    }
    written
}

fn push(out: &mut Vec<u8>, parts: &[&[u8]]) {
    out.reserve(parts.iter().map(|part| part.len()).sum());
    for part in parts {
        out.extend_from_slice(part);
    }
}
