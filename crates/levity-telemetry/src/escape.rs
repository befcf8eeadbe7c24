//! Escapes for bytes that somebody else chose, such as the name of a file: one line of text that can neither
//! move a cursor nor change the direction of writing.

use std::fmt::Write;

/// Escapes `bytes`. A backslash is doubled. A byte that is not UTF-8 becomes `\xHH`, and so does each byte of a
/// character that is not [plain](is_plain). The escapes are reversible.
pub fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().for_each(|c| push(&mut out, c));
        push_bytes(&mut out, chunk.invalid());
    }
    out
}

fn push(out: &mut String, c: char) {
    if c == '\\' {
        out.push_str("\\\\");
    } else if is_plain(c) {
        out.push(c);
    } else {
        push_bytes(out, c.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

fn push_bytes(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to memory cannot fail.
        let _ = write!(out, "\\x{byte:02x}");
    }
}

/// Whether a character affects nothing but its own position: it is no control character, no line or paragraph
/// separator, no mark of direction, and not of width zero.
pub fn is_plain(c: char) -> bool {
    let is_format = matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    !c.is_control() && !is_format
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_kept() {
        for text in ["example.org/a b", "/Grüße/日本", "/<script>&\"'"] {
            assert_eq!(escaped(text.as_bytes()), text);
        }
    }

    #[test]
    fn other_characters_are_escaped() {
        for (bytes, text) in [
            (&b"/a\x1b[2J\r\n"[..], r"/a\x1b[2J\x0d\x0a"),
            (b"/\\x41", r"/\\x41"),
            (b"/\xff\xc3", r"/\xff\xc3"),
            ("/a\u{202e}gpj.exe".as_bytes(), r"/a\xe2\x80\xaegpj.exe"),
            ("\u{9b}1m".as_bytes(), r"\xc2\x9b1m"),
        ] {
            assert_eq!(escaped(bytes), text);
        }
    }
}
