//! Bytes that somebody else chose, such as the name of a file, as one line of text that cannot move a
//! cursor or turn its reader's direction.

use std::fmt::Write;

/// The text of `bytes`: a backslash is doubled, and a byte that is not UTF-8, a control character or a
/// character without a form of its own is written as `\xHH` for each of its bytes. Undoing both gives
/// the bytes back.
pub fn shown(bytes: &[u8]) -> String {
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

/// Whether a character stands where it is written and changes nothing around it: no control, no line
/// or paragraph separator, no mark of direction, nothing of width zero.
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
    fn what_is_plain_stays() {
        for text in ["example.org/a b", "/Grüße/日本", "/<script>&\"'"] {
            assert_eq!(shown(text.as_bytes()), text);
        }
    }

    #[test]
    fn what_could_do_something_does_not() {
        for (bytes, text) in [
            (&b"/a\x1b[2J\r\n"[..], r"/a\x1b[2J\x0d\x0a"),
            (b"/\\x41", r"/\\x41"),
            (b"/\xff\xc3", r"/\xff\xc3"),
            ("/a\u{202e}gpj.exe".as_bytes(), r"/a\xe2\x80\xaegpj.exe"),
            ("\u{9b}1m".as_bytes(), r"\xc2\x9b1m"),
        ] {
            assert_eq!(shown(bytes), text);
        }
    }
}
