//! Escapes for bytes of clients: each line has exactly one newline, and no byte is lost.

/// Appends `bytes` to a line of the combined format: `\"`, `\\`, and `\xHH` for every control and non-ASCII
/// byte, as nginx writes them.
pub(super) fn combined(out: &mut Vec<u8>, bytes: &[u8]) {
    if all_plain(bytes) {
        return out.extend_from_slice(bytes);
    }
    let mut rest = bytes;
    while let Some(end) = rest.iter().position(|&byte| !plain(byte)) {
        out.extend_from_slice(&rest[..end]);
        escape(out, rest[end]);
        rest = &rest[end + 1..];
    }
    out.extend_from_slice(rest);
}

/// As [`combined`], and escapes spaces too, for a word without quotes.
pub(super) fn word(out: &mut Vec<u8>, bytes: &[u8]) {
    field(out, bytes, [b' '; 2]);
}

/// As [`combined`], and escapes `delimiters` too.
pub(super) fn field(out: &mut Vec<u8>, bytes: &[u8], delimiters: [u8; 2]) {
    let mut rest = bytes;
    while let Some(end) = memchr::memchr2(delimiters[0], delimiters[1], rest) {
        combined(out, &rest[..end]);
        escape(out, rest[end]);
        rest = &rest[end + 1..];
    }
    combined(out, rest);
}

fn escape(out: &mut Vec<u8>, byte: u8) {
    out.push(b'\\');
    match byte {
        b'"' | b'\\' => out.push(byte),
        _ => {
            out.push(b'x');
            hex(out, byte);
        }
    }
}

/// Appends `bytes` to a string of JSON. Well-formed UTF-8 stays as it is. In the decoded string a backslash
/// is doubled and a byte that is not UTF-8 is the four characters `\xHH`, so that undoing these two gives the
/// bytes back.
pub(super) fn json(out: &mut Vec<u8>, bytes: &[u8]) {
    // Text without escapes is the common case, and valid JSON.
    if all_plain(bytes) {
        return out.extend_from_slice(bytes);
    }
    for chunk in bytes.utf8_chunks() {
        for byte in chunk.valid().bytes() {
            match byte {
                b'"' => out.extend_from_slice(b"\\\""),
                b'\\' => out.extend_from_slice(b"\\\\\\\\"),
                0..=0x1f | 0x7f => {
                    out.extend_from_slice(b"\\u00");
                    hex(out, byte);
                }
                _ => out.push(byte),
            }
        }
        for &byte in chunk.invalid() {
            out.extend_from_slice(b"\\\\x");
            hex(out, byte);
        }
    }
}

/// Looks at every byte whatever it finds, which the compiler turns into vector instructions; `all`
/// stops at the first and takes bytes one by one.
fn all_plain(bytes: &[u8]) -> bool {
    bytes.iter().fold(true, |all, &byte| all & plain(byte))
}

fn plain(byte: u8) -> bool {
    byte.is_ascii_graphic() & (byte != b'"') & (byte != b'\\') | (byte == b' ')
}

fn hex(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.push(DIGITS[usize::from(byte >> 4)]);
    out.push(DIGITS[usize::from(byte & 15)]);
}
