//! Lines of a message, each terminated by CRLF only, and the byte classes in them.

use memchr::memchr;

use super::{Reject, Span};

/// Splits the start of a message into lines. Never looks beyond the limit of the current line.
pub(super) struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes consumed so far.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The next line without its CRLF, or `None` if it is incomplete.
    ///
    /// An incomplete line is checked too: an endless line reaches its limit, and a TLS handshake on
    /// a plain port is rejected at its first byte instead of by a time-out.
    pub(super) fn next(
        &mut self,
        bytes_max: usize,
        too_long: Reject,
    ) -> Result<Option<Span>, Reject> {
        let rest = &self.bytes[self.at..];
        let window = &rest[..rest.len().min(bytes_max.saturating_add(2))];
        let Some(end) = memchr(b'\n', window) else {
            let line = window.strip_suffix(b"\r").unwrap_or(window);
            return if line.len() > bytes_max {
                Err(too_long)
            } else {
                text(line).map(|()| None)
            };
        };
        let Some(line) = window[..end].strip_suffix(b"\r") else {
            return Err(Reject::bad("bare LF as a line end"));
        };
        text(line)?;
        let span = Span::new(self.at, self.at + line.len());
        self.at += end + 1;
        Ok(Some(span))
    }
}

/// Rejects control characters other than HTAB: bare CR, NUL, DEL and the rest.
fn text(line: &[u8]) -> Result<(), Reject> {
    match has_control(line) {
        true => Err(Reject::bad("control character in the header section")),
        false => Ok(()),
    }
}

/// Whether there is a control character among `bytes`.
pub(super) fn has_control(bytes: &[u8]) -> bool {
    // No early exit: a loop without one is vectorised, and lines are nearly always good.
    bytes
        .iter()
        .fold(false, |bad, &byte| bad | is_control(byte))
}

pub(crate) fn is_control(byte: u8) -> bool {
    (byte < b' ' && byte != b'\t') | (byte == 0x7f)
}

/// RFC 9110, 5.6.2.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| is_token_byte(byte))
}

pub(super) fn is_token_byte(byte: u8) -> bool {
    TOKEN[byte as usize]
}

static TOKEN: [bool; 256] = token_table();

const fn token_table() -> [bool; 256] {
    let mut table = [false; 256];
    let marks = b"!#$%&'*+-.^_`|~";
    let mut i = 0;
    while i < 256 {
        table[i] = (i as u8).is_ascii_alphanumeric();
        i += 1;
    }
    let mut i = 0;
    while i < marks.len() {
        table[marks[i] as usize] = true;
        i += 1;
    }
    table
}

/// Removes leading optional white space: SP and HTAB only (RFC 9110, 5.6.3).
pub(super) fn trim_start(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    bytes
}

/// Removes trailing optional white space.
pub(super) fn trim_end(mut bytes: &[u8]) -> &[u8] {
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Removes surrounding optional white space.
pub(crate) fn trim(bytes: &[u8]) -> &[u8] {
    trim_end(trim_start(bytes))
}

/// The elements of a comma-separated list (RFC 9110, 5.6.1), empty ones included. Not for values
/// with quoted strings.
pub(crate) fn list(value: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim)
}
