//! Content-Range of requests.

use levity_wire::content_range::{self, ContentRange};

/// A Content-Range of a request is a part of its whole, another reader of the grammar agrees, and it survives being written.
pub fn content_range(value: &[u8]) {
    let parsed = content_range::parse(value);
    assert_eq!(parsed, content_range_by_text(value));
    let written = match parsed {
        None => return,
        Some(ContentRange::Part { first, last, total }) => {
            assert!(first <= last && last < total);
            format!("bytes {first}-{last}/{total}")
        }
        Some(ContentRange::Unsatisfied { total }) => format!("bytes */{total}"),
    };
    assert_eq!(content_range::parse(written.as_bytes()), parsed);
}

fn content_range_by_text(value: &[u8]) -> Option<ContentRange> {
    let (unit, rest) = str::from_utf8(value).ok()?.split_once(' ')?;
    let (part, total) = rest.split_once('/')?;
    let number = |text: &str| {
        let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| is_decimal)
    };
    let total = number(total).filter(|_| unit.eq_ignore_ascii_case("bytes"))?;
    if part == "*" {
        return Some(ContentRange::Unsatisfied { total });
    }
    let (first, last) = part.split_once('-')?;
    let (first, last): (u64, u64) = (number(first)?, number(last)?);
    (first..total)
        .contains(&last)
        .then_some(ContentRange::Part { first, last, total })
}
