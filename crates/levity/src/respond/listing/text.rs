//! A listing as lines of text: time, size in bytes and name, separated by tabs.

use levity_disk::{Entry, Kind};
use levity_wire::decimal;

use super::{Ending, time};

/// The line of an entry.
pub(super) fn entry(out: &mut Vec<u8>, entry: &Entry<'_>) {
    let is_directory = entry.kind == Kind::Directory;
    match entry.stat {
        Some(stat) => time::push_seconds(out, stat.mtime_s),
        None => out.push(b'-'),
    }
    out.push(b'\t');
    match entry.stat.filter(|_| !is_directory) {
        Some(stat) => decimal::push(out, stat.size),
        None => out.push(b'-'),
    }
    out.push(b'\t');
    push_name(out, entry.name);
    out.extend_from_slice(if is_directory { b"/\n" } else { b"\n" });
}

/// The lines after the last entry.
pub(super) fn end(out: &mut Vec<u8>, ending: Ending) {
    if ending.is_cut {
        out.extend_from_slice(b"# there are more names\n");
    }
    if !ending.is_sorted {
        out.extend_from_slice(b"# not sorted: too many names for the memory of listings\n");
    }
}

/// A name as it is, except that control characters, backslashes and bytes that are not UTF-8 become `\xNN`, so that it is
/// one line of text.
fn push_name(out: &mut Vec<u8>, name: &[u8]) {
    let escape = |out: &mut Vec<u8>, byte: u8| {
        let hex = |digit: u8| b"0123456789abcdef"[usize::from(digit)];
        out.extend_from_slice(&[b'\\', b'x', hex(byte >> 4), hex(byte & 15)]);
    };
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            let mut bytes = [0; 4];
            let bytes = character.encode_utf8(&mut bytes).as_bytes();
            match character.is_control() || character == '\\' {
                true => bytes.iter().for_each(|&byte| escape(out, byte)),
                false => out.extend_from_slice(bytes),
            }
        }
        chunk.invalid().iter().for_each(|&byte| escape(out, byte));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_line() {
        let mut out = Vec::new();
        push_name(&mut out, b"a\tb\nc\\d\xc3\xa9\xff \xc2\x85");
        let text = String::from_utf8(out).expect("UTF-8");
        assert_eq!(text, "a\\x09b\\x0ac\\x5cd\u{e9}\\xff \\xc2\\x85");
    }
}
