//! Answers with several ranges (RFC 9110, 14.6), taken apart as a client would.

use super::Answer;
use super::wire::{Fields, lines};

/// A part of an answer.
pub struct Part {
    pub first: usize,
    pub last: usize,
    /// The size of the whole.
    pub size: usize,
    headers: Fields,
    pub bytes: Vec<u8>,
}

impl Part {
    /// The value of a header of the part.
    pub fn header(&self, name: &str) -> Option<String> {
        value(&self.headers, name)
    }
}

/// The parts of `answer`, which must be of exactly this form.
#[track_caller]
pub fn parts(answer: &Answer) -> Vec<Part> {
    answer.assert_status(206);
    assert_eq!(answer.header("content-range"), None);
    let boundary = answer
        .field("content-type")
        .strip_prefix("multipart/byteranges; boundary=");
    let delimiter = format!("\r\n--{}", boundary.expect("several ranges"));
    let mut parts = Vec::new();
    let mut rest = &answer.body[..];
    loop {
        let after = rest.strip_prefix(delimiter.as_bytes());
        let after = after.unwrap_or_else(|| panic!("no delimiter: {answer:?}"));
        if after == b"--\r\n" {
            return parts;
        }
        let end = after.windows(4).position(|four| four == b"\r\n\r\n");
        let (header, bytes) = after.split_at(end.expect("a header") + 4);
        let (empty, headers) = lines(header);
        assert_eq!(empty, "");
        let range = value(&headers, "content-range").expect("a range");
        let (first, last, size) = numbers(&range).unwrap_or_else(|| panic!("a range: {range}"));
        let length = last + 1 - first;
        parts.push(Part {
            first,
            last,
            size,
            headers,
            bytes: bytes[..length].to_vec(),
        });
        rest = &bytes[length..];
    }
}

/// The part of `answer`, which has only one.
#[track_caller]
pub fn only(answer: &Answer) -> Part {
    answer.assert_status(206);
    let (first, last, size) = numbers(answer.field("content-range")).expect("a range");
    assert_eq!(answer.body.len(), last + 1 - first);
    let content_type = answer
        .header("content-type")
        .map(|value| value.as_bytes().to_vec());
    let content_type = content_type.map(|value| ("content-type".to_owned(), value));
    Part {
        first,
        last,
        size,
        headers: content_type.into_iter().collect(),
        bytes: answer.body.clone(),
    }
}

fn numbers(range: &str) -> Option<(usize, usize, usize)> {
    let (positions, size) = range.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = positions.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?, size.parse().ok()?))
}

fn value(headers: &Fields, name: &str) -> Option<String> {
    let mut named = headers
        .iter()
        .filter(|(is, _)| is.eq_ignore_ascii_case(name));
    let value = named.next().map(|(_, value)| value.clone());
    value.map(|value| String::from_utf8(value).expect("a header in UTF-8"))
}
