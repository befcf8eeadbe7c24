//! Content-Range in requests (RFC 9110, 14.4 and 14.5): which part of a representation the body is.

use crate::decimal;

/// The value of a Content-Range of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentRange {
    /// `bytes FIRST-LAST/TOTAL`: the body is this part, in bytes.
    Part {
        /// The offset of its first byte.
        first: u64,
        /// The offset of its last byte, not before the first and less than `total`.
        last: u64,
        /// The length of the whole.
        total: u64,
    },
    /// `bytes */TOTAL`: no part. A client asks so how much of an upload has arrived.
    Unsatisfied {
        /// The length of the whole.
        total: u64,
    },
}

/// Parses a value. `None` if it is malformed, has another unit than bytes, or does not tell the length of the whole.
///
/// ```
/// use levity_wire::content_range::{ContentRange, parse};
///
/// let part = ContentRange::Part { first: 2, last: 4, total: 10 };
/// assert_eq!(parse(b"bytes 2-4/10"), Some(part));
/// assert_eq!(parse(b"bytes */10"), Some(ContentRange::Unsatisfied { total: 10 }));
/// assert_eq!(parse(b"bytes 2-4/*"), None);
/// ```
pub fn parse(value: &[u8]) -> Option<ContentRange> {
    let (unit, range) = value.split_at_checked(6)?;
    if !unit.eq_ignore_ascii_case(b"bytes ") {
        return None;
    }
    let slash = range.iter().position(|&byte| byte == b'/')?;
    let total = decimal::parse(&range[slash + 1..])?;
    let range = &range[..slash];
    if range == b"*" {
        return Some(ContentRange::Unsatisfied { total });
    }
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let first = decimal::parse(&range[..dash])?;
    let last = decimal::parse(&range[dash + 1..])?;
    (first <= last && last < total).then_some(ContentRange::Part { first, last, total })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_values_are_taken() {
        let part = |first, last, total| Some(ContentRange::Part { first, last, total });
        assert_eq!(parse(b"bytes 0-0/1"), part(0, 0, 1));
        assert_eq!(parse(b"Bytes 5-9/10"), part(5, 9, 10));
        let max = u64::MAX;
        let text = format!("bytes 0-{}/{max}", max - 1);
        assert_eq!(parse(text.as_bytes()), part(0, max - 1, max));
        assert_eq!(
            parse(b"bytes */0"),
            Some(ContentRange::Unsatisfied { total: 0 })
        );
        for wrong in [
            "",
            "bytes",
            "bytes ",
            "bytes 0-0",
            "bytes 0-1/1",
            "bytes 2-1/9",
            "bytes -1/9",
            "bytes 0-/9",
            "bytes 0-1/",
            "bytes 0-1/9 ",
            "bytes  0-1/9",
            "bytes +0-1/9",
            "bytes 0-1/18446744073709551616",
            "bytes=0-1/9",
            "items 0-1/9",
            "bytes */*",
            "bytes **/9",
            "bytes 0-1/9/9",
        ] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
