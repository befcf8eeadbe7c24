//! Header sections (RFC 7541), without a table that grows.

use crate::failure::{Failure, Result};

/// The header section of a request (RFC 7541), of which nothing enters a table.
#[must_use]
pub fn section(method: &str, scheme: &str, authority: &str, path: &str) -> Vec<u8> {
    let mut block = Vec::new();
    let pseudo = [
        (":method", method),
        (":scheme", scheme),
        (":authority", authority),
        (":path", path),
    ];
    for (name, value) in pseudo {
        field(&mut block, name, value);
    }
    block
}

/// Adds a header field to a section.
pub fn field(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    for text in [name.to_ascii_lowercase().as_str(), value] {
        integer(block, 7, text.len());
        block.extend_from_slice(text.as_bytes());
    }
}

/// An integer behind so many bits of its first byte (RFC 7541, 5.1), all others of which are 0.
fn integer(block: &mut Vec<u8>, bits: u32, value: usize) {
    let first = (1 << bits) - 1;
    if value < first {
        block.push(value as u8);
        return;
    }
    block.push(first as u8);
    let mut rest = value - first;
    while rest >= 0x80 {
        block.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    block.push(rest as u8);
}

/// The status at the start of a header section (RFC 7541, 6): a field of the static table, or a value with a name from it.
pub(crate) fn status(section: &[u8]) -> Result<u16> {
    const STATIC: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    // The new size of the table comes before the first field.
    let updates = section.iter().take_while(|&&byte| byte >> 5 == 1).count();
    let status = match section.get(updates..).unwrap_or_default() {
        [first @ 0x88..=0x8e, ..] => Some(STATIC[usize::from(first - 0x88)]),
        [0x08..=0x0e | 0x18..=0x1e | 0x48..=0x4e, 3, digits @ ..] => {
            let digits = digits
                .get(..3)
                .and_then(|digits| str::from_utf8(digits).ok());
            digits.and_then(|digits| digits.parse().ok())
        }
        [
            0x08..=0x0e | 0x18..=0x1e | 0x48..=0x4e,
            length @ 0x82..=0x83,
            code @ ..,
        ] => {
            let code = code.get(..usize::from(length & 0x7f));
            code.and_then(huffman_digits)
        }
        _ => None,
    };
    status.ok_or_else(|| Failure::new("a response whose first field is no status"))
}

/// Three digits in Huffman code (RFC 7541, Appendix B): 0 to 2 have five bits, 3 to 9 six.
fn huffman_digits(code: &[u8]) -> Option<u16> {
    let bits = code
        .iter()
        .fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
    let (mut left, mut number) = (code.len() as u32 * 8, 0);
    for _ in 0..3 {
        let six = (bits << (32 - left)) >> 26;
        let (digit, length) = match six {
            0..=5 => (six >> 1, 5),
            0b01_1001..=0b01_1111 => (six - 0b01_1001 + 3, 6),
            _ => return None,
        };
        left = left.checked_sub(length)?;
        number = number * 10 + digit as u16;
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_in_each_form() {
        let forms: [(&[u8], Option<u16>); 7] = [
            (&[0x88, 0], Some(200)),
            (&[0x20, 0x8e], Some(500)),
            (b"\x08\x03503", Some(503)),
            (b"\x48\x82\x08\x19", Some(103)),
            (&[0x1e, 0x83, 0x68, 0x4f, 0xff], Some(429)),
            (b"\x08\x0350", None),
            (b"\x00\x01a\x01b", None),
        ];
        for (section, expected) in forms {
            assert_eq!(status(section).ok(), expected, "{section:?}");
        }
    }

    #[test]
    fn lengths_take_as_many_bytes_as_they_need() {
        let mut block = Vec::new();
        field(&mut block, "A", &"x".repeat(200));
        assert_eq!(block[..5], [0, 1, b'a', 0x7f, 73]);
        assert_eq!(block.len(), 205);
    }
}
