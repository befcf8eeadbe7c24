//! The content of a response with several ranges: multipart/byteranges (RFC 9110, 14.6).

use crate::decimal;
use crate::range::Part;

/// The line end of the delimiter belongs to the boundary (RFC 2046, 5.1.1). Clients that read line by line expect it
/// before the first part too, where it could be left out.
const DELIMITER: &[u8] = b"\r\n--";

/// The framing of the parts of one representation.
#[derive(Debug, Clone)]
pub struct Byteranges {
    boundary: String,
    /// What precedes each part, up to the positions in Content-Range.
    before: Vec<u8>,
    /// What follows them.
    after: Vec<u8>,
}

impl Byteranges {
    /// The framing for a representation of `size` bytes. `fields` are the header lines of each part, except
    /// Content-Range: those that describe the representation and not the message.
    ///
    /// `boundary` must be random, because it must not occur in the content, which a client may have written.
    pub fn new(boundary: u64, fields: &[u8], size: u64) -> Self {
        let boundary = format!("{boundary:020}");
        let mut before = DELIMITER.to_vec();
        for piece in [
            boundary.as_bytes(),
            b"\r\n",
            fields,
            b"Content-Range: bytes ",
        ] {
            before.extend_from_slice(piece);
        }
        let mut after = vec![b'/'];
        decimal::push(&mut after, size);
        after.extend_from_slice(b"\r\n\r\n");
        Self {
            boundary,
            before,
            after,
        }
    }

    /// The Content-Type of the response.
    pub fn content_type(&self) -> String {
        format!("multipart/byteranges; boundary={}", self.boundary)
    }

    /// Appends what precedes the bytes of `part`: the delimiter and the header.
    pub fn push_start(&self, out: &mut Vec<u8>, part: Part) {
        out.extend_from_slice(&self.before);
        decimal::push(out, part.first);
        out.push(b'-');
        decimal::push(out, part.last);
        out.extend_from_slice(&self.after);
    }

    /// Appends what follows the bytes of the last part.
    pub fn push_end(&self, out: &mut Vec<u8>) {
        for piece in [DELIMITER, self.boundary.as_bytes(), b"--\r\n"] {
            out.extend_from_slice(piece);
        }
    }

    /// The length of the content in bytes: that of `parts` and of all framing. Saturates.
    pub fn length(&self, parts: &[Part]) -> u64 {
        let mut framing = Vec::with_capacity(self.before.len() + 64);
        self.push_end(&mut framing);
        let mut length = framing.len() as u64;
        for &part in parts {
            framing.clear();
            self.push_start(&mut framing, part);
            length = length
                .saturating_add(framing.len() as u64)
                .saturating_add(part.len());
        }
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::PART_BYTES;

    const PARTS: [Part; 2] = [Part { first: 0, last: 3 }, Part { first: 9, last: 10 }];

    #[test]
    fn the_content_is_as_in_the_rfc() {
        let framing = Byteranges::new(2748, b"Content-Type: text/plain\r\n", 12);
        let mut content = Vec::new();
        for (part, bytes) in PARTS.into_iter().zip(["zero", "ni"]) {
            framing.push_start(&mut content, part);
            content.extend_from_slice(bytes.as_bytes());
        }
        framing.push_end(&mut content);
        let expected = "\r\n--00000000000000002748\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-3/12\r\n\r\nzero\
            \r\n--00000000000000002748\r\nContent-Type: text/plain\r\nContent-Range: bytes 9-10/12\r\n\r\nni\
            \r\n--00000000000000002748--\r\n";
        assert_eq!(String::from_utf8_lossy(&content), expected);
        assert_eq!(framing.length(&PARTS), content.len() as u64);
        assert_eq!(
            framing.content_type(),
            "multipart/byteranges; boundary=00000000000000002748"
        );
    }

    /// Otherwise a gap that is sent with its neighbours could cost more than a part of its own.
    #[test]
    fn a_part_has_at_least_the_bytes_that_are_assumed() {
        let framing = Byteranges::new(u64::MAX, b"Content-Type: text/css\r\n", 100);
        let mut start = Vec::new();
        framing.push_start(&mut start, Part { first: 0, last: 0 });
        assert!(start.len() as u64 >= PART_BYTES, "{}", start.len());
    }

    #[test]
    fn the_length_saturates() {
        let framing = Byteranges::new(1, b"", u64::MAX);
        let all = Part {
            first: 0,
            last: u64::MAX - 1,
        };
        assert_eq!(framing.length(&[all, all]), u64::MAX);
    }
}
