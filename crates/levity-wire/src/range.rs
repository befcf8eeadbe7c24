//! The Range header of a request for bytes (RFC 9110, 14).
//!
//! RFC 9110, 14.2 and 17.15 let a server ignore a set that looks like an attack: more than two overlapping ranges, or
//! many small ones out of order. Here no set needs such a guess, because of two bounds:
//!
//! - Overlapping and near ranges become one part, so no byte is sent twice (CVE-2011-3192, CVE-2024-26141), and what is
//!   left out saves about as much as the headers of parts cost.
//! - A set of more than [`RANGES_MAX`] ranges is ignored. The client then gets the whole representation, as from a server
//!   without support for ranges. The same is best for parts that are longer with their headers than the representation.

/// The maximum number of ranges in a set that is not ignored: as many as package managers (librepo) request at a time.
pub const RANGES_MAX: usize = 256;

/// The bytes around a part: its delimiter and header, at least ([`Byteranges`](crate::byteranges::Byteranges)). A gap of
/// up to so many bytes is sent with the ranges around it (RFC 9110, 15.3.7.2).
pub const PART_BYTES: u64 = 80;

/// The parts of a representation that a request selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Range {
    /// All of it, with status 200: the header has no supported range, or too many, and is ignored.
    Whole,
    /// One part, with status 206.
    Part(Part),
    /// Several parts, with status 206, in the order of the request. None overlaps another, and the gaps between them are
    /// longer than [`PART_BYTES`].
    Several(Vec<Part>),
    /// No byte of it: status 416.
    Unsatisfiable,
}

/// A part of a representation that is not empty: `first <= last < size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Offset of the first byte.
    pub first: u64,
    /// Offset of the last byte, inclusive.
    pub last: u64,
}

impl Part {
    /// The number of bytes; saturates.
    #[expect(clippy::len_without_is_empty, reason = "no part is empty")]
    pub fn len(self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }
}

/// Parses a Range value for a representation of `size` bytes. Allocates only for several ranges.
///
/// A unit other than `bytes` and invalid syntax give [`Range::Whole`], as RFC 9110, 14.2 allows. So does a suffix of an
/// empty representation: it is satisfiable, but Content-Range cannot express its positions.
pub fn parse(value: &[u8], size: u64) -> Range {
    let Some(set) = byte_ranges(value) else {
        return Range::Whole;
    };
    let selected = match set.contains(&b',') {
        true => select_all(set, size),
        false => select(set, size),
    };
    selected.unwrap_or(Range::Whole)
}

/// The rest after `bytes=`; units are case-insensitive (RFC 9110, 14.1).
fn byte_ranges(value: &[u8]) -> Option<&[u8]> {
    let (unit, set) = value.split_at_checked(b"bytes=".len())?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(set)
}

/// `None` for a list with invalid syntax, and for one that is ignored.
fn select_all(set: &[u8], size: u64) -> Option<Range> {
    let mut parts = Vec::new();
    let mut ranges = 0;
    for element in elements(set) {
        ranges += 1;
        if ranges > RANGES_MAX {
            return None;
        }
        match select(element, size)? {
            Range::Part(part) => parts.push(part),
            Range::Unsatisfiable => {}
            Range::Whole | Range::Several(_) => return None,
        }
    }
    let parts = coalesced(parts);
    Some(match parts[..] {
        [] if ranges == 0 => return None,
        [] => Range::Unsatisfiable,
        [part] => Range::Part(part),
        _ => Range::Several(parts),
    })
}

/// The elements of a list that are not empty (RFC 9110, 5.6.1.2). White space is allowed around commas only.
fn elements(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let count = 1 + list.iter().filter(|&&byte| byte == b',').count();
    let elements = list.split(|&byte| byte == b',').enumerate();
    let trimmed = elements.map(move |(index, element)| match index {
        _ if element.trim_ascii().is_empty() => b"",
        0 => element.trim_ascii_end(),
        _ if index + 1 == count => element.trim_ascii_start(),
        _ => element.trim_ascii(),
    });
    trimmed.filter(|element| !element.is_empty())
}

/// Joins parts that overlap, or between which a gap of at most [`PART_BYTES`] lies. A joined part has the place of the
/// first one in it.
fn coalesced(parts: Vec<Part>) -> Vec<Part> {
    let mut by_offset: Vec<_> = parts.into_iter().enumerate().collect();
    by_offset.sort_unstable_by_key(|(_, part)| part.first);
    let mut joined: Vec<(usize, Part)> = Vec::new();
    for (place, part) in by_offset {
        match joined.last_mut() {
            Some((first_place, last)) if part.first <= end_with_gap(*last) => {
                *first_place = place.min(*first_place);
                last.last = last.last.max(part.last);
            }
            _ => joined.push((place, part)),
        }
    }
    joined.sort_unstable_by_key(|(place, _)| *place);
    joined.into_iter().map(|(_, part)| part).collect()
}

/// The offset of the last byte at which another part may begin that is joined with `part`.
fn end_with_gap(part: Part) -> u64 {
    part.last.saturating_add(1 + PART_BYTES)
}

/// One range; `None` for invalid syntax.
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
        let last = last.min(size - 1);
        Range::Part(Part { first, last })
    } else {
        Range::Unsatisfiable
    }
}

fn suffix(length: u64, size: u64) -> Range {
    match (length, size) {
        (0, _) => Range::Unsatisfiable,
        (_, 0) => Range::Whole,
        _ => Range::Part(Part {
            first: size.saturating_sub(length),
            last: size - 1,
        }),
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
    use super::Range::{Several, Unsatisfiable, Whole};
    use super::*;

    fn one(first: u64, last: u64) -> Range {
        Range::Part(Part { first, last })
    }

    fn several(parts: &[(u64, u64)]) -> Range {
        let part = |&(first, last): &(u64, u64)| Part { first, last };
        Several(parts.iter().map(part).collect())
    }

    #[test]
    fn ranges() {
        let huge = "bytes=0-99999999999999999999999";
        let cases = [
            ("bytes=0-499", 1000, one(0, 499)),
            ("Bytes=500-999", 1000, one(500, 999)),
            ("bytes=999-", 1000, one(999, 999)),
            ("bytes=0-", 1000, one(0, 999)),
            ("bytes=0-0", 1000, one(0, 0)),
            ("bytes=0-5000", 1000, one(0, 999)),
            (huge, 1000, one(0, 999)),
            ("bytes=-1", 1000, one(999, 999)),
            ("bytes=-1000", 1000, one(0, 999)),
            ("bytes=-99999999999999999999999", 1000, one(0, 999)),
            ("bytes=0-", u64::MAX, one(0, u64::MAX - 1)),
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
    fn sets_of_ranges() {
        let cases = [
            ("bytes=0-1,500-600", 1000, several(&[(0, 1), (500, 600)])),
            ("bytes=500-600,0-1", 1000, several(&[(500, 600), (0, 1)])),
            (
                "bytes=0-1 ,\t, 500-600",
                1000,
                several(&[(0, 1), (500, 600)]),
            ),
            ("bytes=,0-1,500-600,", 1000, several(&[(0, 1), (500, 600)])),
            (
                "bytes=0-1,900-5000,1000-",
                1000,
                several(&[(0, 1), (900, 999)]),
            ),
            ("bytes=0-1,-10", 1000, several(&[(0, 1), (990, 999)])),
            ("bytes=0-1,-0", 1000, one(0, 1)),
            ("bytes=0-1,1000-2000", 1000, one(0, 1)),
            ("bytes=1000-,-0,2000-3000", 1000, Unsatisfiable),
            ("bytes=0-,0-", 0, Unsatisfiable),
            ("bytes=0-,-5", 0, Whole),
            // The gap has 80 bytes, then 81.
            ("bytes=0-9,90-99", 1000, one(0, 99)),
            ("bytes=0-9,91-99", 1000, several(&[(0, 9), (91, 99)])),
            ("bytes=90-99,0-9", 1000, one(0, 99)),
            // Joined by a third one, that comes later.
            (
                "bytes=400-499,0-99,600-699,90-410",
                1000,
                several(&[(0, 499), (600, 699)]),
            ),
            (
                "bytes=800-809,400-499,0-99,90-410",
                1000,
                several(&[(800, 809), (0, 499)]),
            ),
            ("bytes=0-0,0-0,0-0,1-1", 1000, one(0, 1)),
            ("bytes=5-,0-1,7-", 1000, one(0, 999)),
            (
                "bytes=0-0,18446744073709551614-",
                u64::MAX,
                several(&[(0, 0), (u64::MAX - 1, u64::MAX - 1)]),
            ),
        ];
        for (value, size, range) in cases {
            assert_eq!(parse(value.as_bytes(), size), range, "{value} of {size}");
        }
    }

    #[test]
    fn sets_are_bounded() {
        let set = |count: u64, step: u64| {
            let ranges = (0..count).map(|number| format!("{0}-{0}", number * step));
            let value = format!("bytes={}", ranges.collect::<Vec<_>>().join(","));
            parse(value.as_bytes(), 1_000_000)
        };
        let max = RANGES_MAX as u64;
        let Several(parts) = set(max, 1000) else {
            panic!("not several")
        };
        assert_eq!(parts.len(), RANGES_MAX);
        assert_eq!(set(max + 1, 1000), Whole);
        assert_eq!(set(max, 10), one(0, (max - 1) * 10));
        assert_eq!(set(max + 1, 10), Whole);
        let commas = format!("bytes=0-0{}", ",".repeat(10_000));
        assert_eq!(parse(commas.as_bytes(), 1000), one(0, 0));
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
            "bytes=,",
            "bytes= , ,",
            "bytes=0-1;5-6",
            "bytes=0-1,5-4",
            "bytes=0-1,500",
            "bytes=0-1,500-600,a-b",
            "bytes=0-1,500 -600",
            "bytes= 0-1,500-600",
            "bytes=0-1,500-600 ",
            "bytes=0-1,bytes=500-600",
            "items=0-1,500-600",
            "b\u{ff}tes=0-1",
            "=0-1",
        ];
        for value in cases {
            assert_eq!(parse(value.as_bytes(), 1000), Whole, "{value}");
        }
    }
}
