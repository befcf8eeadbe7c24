//! A listing as one JSON object.
//!
//! ```json
//! {"path":"/folder/","entries":[
//! {"name":"a b","kind":"file","size":1234,"modified":"2026-11-20T19:42:07Z","href":"a%20b"},
//! {"name":"sub","kind":"directory","size":null,"modified":"2026-11-20T19:42:07Z","href":"sub/"}
//! ],"sorted":true,"truncated":false}
//! ```

use levity_disk::{Entry, Kind};
use levity_wire::{decimal, path};

use super::{Ending, time};

/// The object up to its first entry. `path` is decoded and has a slash at both ends.
pub(super) fn begin(out: &mut Vec<u8>, path: &[u8]) {
    out.extend_from_slice(b"{\"path\":");
    push_string(out, path);
    out.extend_from_slice(b",\"entries\":[");
}

/// An entry of the array. `is_first` is whether no entry precedes it.
pub(super) fn entry(out: &mut Vec<u8>, entry: &Entry<'_>, is_first: bool) {
    out.extend_from_slice(if is_first { b"\n" } else { b",\n" });
    push_object(out, entry);
}

/// The object after its last entry.
pub(super) fn end(out: &mut Vec<u8>, ending: Ending) {
    out.extend_from_slice(b"\n],\"sorted\":");
    out.extend_from_slice(ending.is_sorted.to_string().as_bytes());
    out.extend_from_slice(b",\"truncated\":");
    out.extend_from_slice(ending.is_cut.to_string().as_bytes());
    out.extend_from_slice(b"}\n");
}

/// One entry. Unknown values are null, so that all entries have the same fields.
pub(super) fn push_object(out: &mut Vec<u8>, entry: &Entry<'_>) {
    let is_directory = entry.kind == Kind::Directory;
    out.extend_from_slice(b"{\"name\":");
    push_string(out, entry.name);
    out.extend_from_slice(match is_directory {
        true => b",\"kind\":\"directory\",\"size\":",
        false => b",\"kind\":\"file\",\"size\":",
    });
    match entry.stat.filter(|_| !is_directory) {
        Some(stat) => decimal::push(out, stat.size),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"modified\":");
    match entry.stat {
        Some(stat) => {
            out.push(b'"');
            time::push_seconds(out, stat.mtime_s);
            out.push(b'"');
        }
        None => out.extend_from_slice(b"null"),
    }
    // Of these bytes none has to be escaped. A colon, which would end a scheme, is none of them.
    out.extend_from_slice(b",\"href\":\"");
    path::encode(entry.name, out);
    out.extend_from_slice(if is_directory { b"/\"}" } else { b"\"}" });
}

/// Bytes that are not UTF-8 become U+FFFD: `href` has all bytes of a name.
fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        for &byte in chunk.valid().as_bytes() {
            match byte {
                b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
                0x00..0x20 | 0x7f => {
                    let hex = |digit: u8| b"0123456789abcdef"[usize::from(digit)];
                    out.extend_from_slice(b"\\u00");
                    out.extend_from_slice(&[hex(byte >> 4), hex(byte & 15)]);
                }
                _ => out.push(byte),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_string() {
        let names: [(&[u8], &str); 5] = [
            (b"plain", "plain"),
            (b"\"\\/\x00\n\x1f\x7f", "\"\\/\0\n\u{1f}\u{7f}"),
            ("\u{e9}\u{1f600}".as_bytes(), "\u{e9}\u{1f600}"),
            (b"a\xffb\xc3", "a\u{fffd}b\u{fffd}"),
            (b"", ""),
        ];
        for (name, expected) in names {
            let mut out = Vec::new();
            push_string(&mut out, name);
            let value: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
            assert_eq!(value, expected);
        }
    }
}
