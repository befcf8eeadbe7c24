//! Range, and responses with several parts.

use levity_wire::byteranges::Byteranges;
use levity_wire::range::{self, PART_BYTES, Part, RANGES_MAX, Range};

use super::first_line;

/// Ranges are inside their representation, do not overlap, and survive being written and parsed again. Their multipart
/// content has the announced length, and a reader finds the parts in it.
pub fn range(bytes: &[u8]) {
    let (size, value) = range_input(bytes);
    let parts = match range::parse(value, size) {
        Range::Whole | Range::Unsatisfiable => return,
        Range::Part(part) => vec![part],
        Range::Several(parts) => {
            assert!((2..=RANGES_MAX).contains(&parts.len()));
            assert!(value.contains(&b','));
            parts
        }
    };
    assert!(
        parts
            .iter()
            .all(|part| part.first <= part.last && part.last < size)
    );
    let written: Vec<_> = parts
        .iter()
        .map(|part| format!("{}-{}", part.first, part.last))
        .collect();
    let written = format!("bytes={}", written.join(","));
    assert_eq!(
        range::parse(written.as_bytes(), size),
        range::parse(value, size)
    );
    let mut sorted = parts.clone();
    sorted.sort_by_key(|part| part.first);
    assert!(
        sorted
            .windows(2)
            .all(|two| two[1].first - two[0].last > 1 + PART_BYTES)
    );
    if size <= RANGE_CONTENT_BYTES_MAX {
        selects_what_was_requested(value, size, &parts);
        if parts.len() > 1 {
            multipart(size, &parts);
        }
    }
}

/// The maximum size of a representation whose content is made to check its parts.
const RANGE_CONTENT_BYTES_MAX: u64 = 10_000;

/// Every byte of every range in the list is in a part, which begins and ends as one of them.
fn selects_what_was_requested(value: &[u8], size: u64, parts: &[Part]) {
    let mut ends = Vec::new();
    for range in value[b"bytes=".len()..].split(|&byte| byte == b',') {
        let alone = [b"bytes=", range.trim_ascii()].concat();
        if let Range::Part(requested) = range::parse(&alone, size) {
            let has = |part: &Part| part.first <= requested.first && requested.last <= part.last;
            assert!(parts.iter().any(has));
            ends.push((requested.first, requested.last));
        }
    }
    for part in parts {
        assert!(ends.iter().any(|(first, _)| *first == part.first));
        assert!(ends.iter().any(|(_, last)| *last == part.last));
    }
}

fn multipart(size: u64, parts: &[Part]) {
    // It looks like framing, except for the boundary.
    let content: Vec<u8> =
        b"\r\n--0\r\nContent-Range: bytes 0-1/2\r\n\r\n--".repeat(size as usize / 30 + 1);
    let framing = Byteranges::new(0x0123_4567_89ab_cdef, b"Content-Type: text/a\r\n", size);
    let mut body = Vec::new();
    for &part in parts {
        framing.push_start(&mut body, part);
        body.extend_from_slice(&content[part.first as usize..=part.last as usize]);
    }
    framing.push_end(&mut body);
    assert_eq!(body.len() as u64, framing.length(parts));
    let content_type = framing.content_type();
    let boundary = content_type.strip_prefix("multipart/byteranges; boundary=");
    let delimiter = format!("\r\n--{}", boundary.expect("a boundary"));
    let mut pieces = Vec::new();
    let mut rest = &body[..];
    let find = |bytes: &[u8]| {
        let mut windows = bytes.windows(delimiter.len());
        windows.position(|window| window == delimiter.as_bytes())
    };
    while let Some(at) = find(rest) {
        pieces.push(&rest[..at]);
        rest = &rest[at + delimiter.len()..];
    }
    assert_eq!(rest, b"--\r\n");
    let (preamble, pieces) = pieces.split_first().expect("a preamble");
    assert!(preamble.is_empty());
    assert_eq!(pieces.len(), parts.len());
    for (piece, part) in pieces.iter().zip(parts) {
        let header = format!(
            "\r\nContent-Type: text/a\r\nContent-Range: bytes {}-{}/{size}\r\n\r\n",
            part.first, part.last
        );
        let bytes = piece
            .strip_prefix(header.as_bytes())
            .expect("the header of the part");
        assert_eq!(bytes, &content[part.first as usize..=part.last as usize]);
    }
}

/// The first line is the size in decimal; the rest is the value.
pub fn range_input(bytes: &[u8]) -> (u64, &[u8]) {
    let (size, value) = first_line(bytes);
    (
        str::from_utf8(size)
            .ok()
            .and_then(|size| size.parse().ok())
            .unwrap_or(0),
        value,
    )
}
