//! The Range header of a request for bytes (RFC 9110, 14).

/// The part of a representation that a request selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// All of it, with status 200: the header has no supported range and is ignored.
    Whole,
    /// One part, with status 206. `first <= last < size`.
    Part {
        /// Offset of the first byte.
        first: u64,
        /// Offset of the last byte, inclusive.
        last: u64,
    },
    /// No byte of it: status 416.
    Unsatisfiable,
}

/// Parses a Range value for a representation of `size` bytes.
///
/// Several ranges, a unit other than `bytes` and invalid syntax give [`Range::Whole`], as RFC 9110,
/// 14.2 allows. So does a suffix of an empty representation: it is satisfiable, but Content-Range
/// cannot express its positions.
pub fn parse(value: &[u8], size: u64) -> Range {
    bytes_spec(value)
        .and_then(|spec| select(spec, size))
        .unwrap_or(Range::Whole)
}

/// The rest after `bytes=`; units are case-insensitive (RFC 9110, 14.1).
fn bytes_spec(value: &[u8]) -> Option<&[u8]> {
    let (unit, spec) = value.split_at_checked(b"bytes=".len())?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(spec)
}

/// `None` for invalid syntax, including a list: its comma is not a digit.
fn select(spec: &[u8], size: u64) -> Option<Range> {
    let dash = spec.iter().position(|&byte| byte == b'-')?;
    match (&spec[..dash], &spec[dash + 1..]) {
        ([], length) => Some(suffix(position(length)?, size)),
        (first, []) => Some(part(position(first)?, u64::MAX, size)),
        (first, last) => {
            let (first, last) = (position(first)?, position(last)?);
            (first <= last).then(|| part(first, last, size))
        }
    }
}

fn part(first: u64, last: u64, size: u64) -> Range {
    if first < size {
        Range::Part {
            first,
            last: last.min(size - 1),
        }
    } else {
        Range::Unsatisfiable
    }
}

fn suffix(length: u64, size: u64) -> Range {
    match (length, size) {
        (0, _) => Range::Unsatisfiable,
        (_, 0) => Range::Whole,
        _ => Range::Part {
            first: size.saturating_sub(length),
            last: size - 1,
        },
    }
}

/// Digits only. Saturates, since a number that overflows is beyond the end of any file.
fn position(digits: &[u8]) -> Option<u64> {
    let valid = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let add = |number: u64, digit: &u8| {
        number
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    };
    valid.then(|| digits.iter().fold(0, add))
}

#[cfg(test)]
mod tests {
    use super::Range::{Part, Unsatisfiable, Whole};
    use super::*;

    #[test]
    fn ranges() {
        let huge = "bytes=0-99999999999999999999999";
        let cases = [
            (
                "bytes=0-499",
                1000,
                Part {
                    first: 0,
                    last: 499,
                },
            ),
            (
                "Bytes=500-999",
                1000,
                Part {
                    first: 500,
                    last: 999,
                },
            ),
            (
                "bytes=999-",
                1000,
                Part {
                    first: 999,
                    last: 999,
                },
            ),
            (
                "bytes=0-",
                1000,
                Part {
                    first: 0,
                    last: 999,
                },
            ),
            ("bytes=0-0", 1000, Part { first: 0, last: 0 }),
            (
                "bytes=0-5000",
                1000,
                Part {
                    first: 0,
                    last: 999,
                },
            ),
            (
                huge,
                1000,
                Part {
                    first: 0,
                    last: 999,
                },
            ),
            (
                "bytes=-1",
                1000,
                Part {
                    first: 999,
                    last: 999,
                },
            ),
            (
                "bytes=-1000",
                1000,
                Part {
                    first: 0,
                    last: 999,
                },
            ),
            (
                "bytes=-99999999999999999999999",
                1000,
                Part {
                    first: 0,
                    last: 999,
                },
            ),
            (
                "bytes=0-",
                u64::MAX,
                Part {
                    first: 0,
                    last: u64::MAX - 1,
                },
            ),
            ("bytes=1000-", 1000, Unsatisfiable),
            ("bytes=1000-1001", 1000, Unsatisfiable),
            ("bytes=99999999999999999999999-", 1000, Unsatisfiable),
            ("bytes=99999999999999999999999-", u64::MAX, Unsatisfiable),
            ("bytes=-0", 1000, Unsatisfiable),
            ("bytes=0-", 0, Unsatisfiable),
            ("bytes=0-0", 0, Unsatisfiable),
            ("bytes=-0", 0, Unsatisfiable),
            ("bytes=-5", 0, Whole),
        ];
        for (value, size, range) in cases {
            assert_eq!(parse(value.as_bytes(), size), range, "{value} of {size}");
        }
    }

    #[test]
    fn other_ranges_are_ignored() {
        let cases = [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=5",
            "bytes=5-4",
            "bytes=a-b",
            "bytes=0x0-1",
            "bytes=+0-1",
            "bytes=0-1-2",
            "bytes=--1",
            "bytes= 0-1",
            "bytes=0 -1",
            "bytes=0-1 ",
            "bytes =0-1",
            "bytes:0-1",
            "items=0-1",
            "bytess=0-1",
            "bytes=0-1,2-3",
            "bytes=0-1,",
            "bytes=,0-1",
            "b\u{ff}tes=0-1",
            "=0-1",
        ];
        for value in cases {
            assert_eq!(parse(value.as_bytes(), 1000), Whole, "{value}");
        }
    }
}
