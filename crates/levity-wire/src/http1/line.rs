//! Lines of a message, each terminated by CRLF only, and the byte classes in them.

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
    ///
    /// Always inlined, as [`header_line`](super::header_line) is.
    #[inline(always)]
    pub(super) fn next(
        &mut self,
        bytes_max: usize,
        too_long: Reject,
    ) -> Result<Option<Span>, Reject> {
        let rest = &self.bytes[self.at..];
        let window = &rest[..rest.len().min(bytes_max.saturating_add(2))];
        let len = text_len(window);
        match window[len..] {
            [b'\r', b'\n', ..] => {
                let start = self.at;
                self.at += len + 2;
                Ok(Some(Span::new(start, start + len)))
            }
            [] | [b'\r'] if len > bytes_max => Err(too_long),
            [] | [b'\r'] => Ok(None),
            [b'\n', ..] => Err(Reject::bad("bare LF as a line end")),
            _ => Err(Reject::bad("control character in the header section")),
        }
    }
}

/// Whether there is a control character other than HTAB among `bytes`.
pub(crate) fn has_control(bytes: &[u8]) -> bool {
    text_len(bytes) < bytes.len()
}

/// The number of bytes before the first control character other than HTAB.
fn text_len(bytes: &[u8]) -> usize {
    let (chunks, rest) = bytes.as_chunks();
    for (index, chunk) in chunks.iter().enumerate() {
        let mut found = controls(u64::from_le_bytes(*chunk));
        while found != 0 {
            let at = (found.trailing_zeros() / u8::BITS) as usize;
            if chunk[at] != b'\t' {
                return index * chunk.len() + at;
            }
            found &= found - 1;
        }
    }
    let control = rest.iter().position(|&byte| is_control(byte));
    bytes.len() - rest.len() + control.unwrap_or(rest.len())
}

/// Eight bytes at a time: the highest bit of each byte of `word` that is a control character, HTAB included.
fn controls(word: u64) -> u64 {
    const HIGHEST: u64 = repeated(0x80);
    // No byte carries into the next. The highest bits show which bytes, without theirs, are at least a space, and
    // which are DEL.
    let printable = (word | HIGHEST) - repeated(b' ');
    let deleted = (word & !HIGHEST) + repeated(1);
    (!printable | deleted) & !word & HIGHEST
}

const fn repeated(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

pub(crate) fn is_control(byte: u8) -> bool {
    (byte < b' ' && byte != b'\t') | (byte == 0x7f)
}

/// RFC 9110, 5.6.2.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && token_len(bytes) == bytes.len()
}

/// The number of token bytes at the start of `bytes`.
pub(super) fn token_len(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .position(|&byte| !is_token_byte(byte))
        .unwrap_or(bytes.len())
}

pub(super) fn is_token_byte(byte: u8) -> bool {
    static TOKEN: [bool; 256] = alphanumeric_or(b"!#$%&'*+-.^_`|~");
    TOKEN[byte as usize]
}

/// A table of bytes: whether each is an ASCII letter or digit, or one of `marks`.
pub(super) const fn alphanumeric_or(marks: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_ends_at_the_first_control_character() {
        for byte in 0..=u8::MAX {
            for at in 0..20 {
                let mut bytes = [b"ab\xffd e\t~", &[b'\t'; 8][..], b"\x80\x9f !"].concat();
                bytes[at] = byte;
                let expected = if is_control(byte) { at } else { bytes.len() };
                assert_eq!(text_len(&bytes), expected, "{byte:#x} at {at}");
            }
        }
    }
}
