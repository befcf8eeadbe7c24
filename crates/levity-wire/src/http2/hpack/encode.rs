//! Header sections of responses. No field enters the table of the client, so that a section does not depend on earlier ones.

use crate::decimal;

/// An update of the table's size to zero, before the first field of a connection (RFC 7541, 4.2).
pub(in crate::http2) const NO_TABLE: u8 = 0b0010_0000;

/// A field with a name from the static table, which enters no table (RFC 7541, 6.2.2).
const LITERAL: u8 = 0;
const LITERAL_PREFIX_BITS: u32 = 4;

/// The first byte of a field that is in the static table.
const INDEXED: u8 = 0b1000_0000;

/// The first index of `:status`, and the statuses from there on.
const STATUS_INDEX: u8 = 8;
const STATUSES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];

const CONTENT_LENGTH_INDEX: usize = 28;
const DATE_INDEX: usize = 33;
const SERVER_INDEX: usize = 54;

/// The maximum length of a name in the static table.
const NAME_BYTES_MAX: usize = 32;

/// A header section that is being written.
#[derive(Debug, Default)]
pub struct FieldBlock(Vec<u8>);

impl FieldBlock {
    /// An empty block in the memory of `buffer`.
    #[must_use]
    pub fn new(mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        Self(buffer)
    }

    /// Appends the status, which comes before all fields.
    pub fn status(&mut self, status: u16) {
        let out = &mut self.0;
        if let Some(known) = STATUSES.iter().position(|known| *known == status) {
            return out.push(INDEXED | (STATUS_INDEX + known as u8));
        }
        out.extend_from_slice(&[LITERAL | STATUS_INDEX, 3]);
        decimal::push(out, u64::from(status));
    }

    /// Appends a field. The name may be in any case, and is written in lower case (RFC 9113, 8.2).
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        let mut lower = [0; NAME_BYTES_MAX];
        let known = lower.get_mut(..name.len()).and_then(|lower| {
            lower.copy_from_slice(name);
            lower.make_ascii_lowercase();
            index(lower)
        });
        if let Some(index) = known {
            return self.named(index, value);
        }
        let out = &mut self.0;
        out.push(LITERAL);
        integer(out, 0, 7, name.len());
        let start = out.len();
        out.extend_from_slice(name);
        out[start..].make_ascii_lowercase();
        integer(out, 0, 7, value.len());
        out.extend_from_slice(value);
    }

    /// Appends the fields of another block, without a status.
    pub fn append(&mut self, fields: &[u8]) {
        self.0.extend_from_slice(fields);
    }

    /// Appends Server.
    pub fn server(&mut self, name: &[u8]) {
        self.named(SERVER_INDEX, name);
    }

    /// Appends Date.
    pub fn date(&mut self, date: &[u8]) {
        self.named(DATE_INDEX, date);
    }

    /// Appends a field whose name is at `index` of the static table.
    fn named(&mut self, index: usize, value: &[u8]) {
        let out = &mut self.0;
        integer(out, LITERAL, LITERAL_PREFIX_BITS, index);
        integer(out, 0, 7, value.len());
        out.extend_from_slice(value);
    }

    /// Appends Content-Length.
    pub fn length(&mut self, bytes: u64) {
        let out = &mut self.0;
        integer(out, LITERAL, LITERAL_PREFIX_BITS, CONTENT_LENGTH_INDEX);
        // The length of the digits takes one byte.
        let start = out.len();
        out.push(0);
        decimal::push(out, bytes);
        out[start] = (out.len() - start - 1) as u8;
    }

    /// The encoded fields.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its memory.
    #[must_use]
    pub fn into_buffer(self) -> Vec<u8> {
        self.0
    }
}

/// Appends an integer after the bits of `first` (RFC 7541, 5.1).
fn integer(out: &mut Vec<u8>, first: u8, prefix_bits: u32, value: usize) {
    let max = (1 << prefix_bits) - 1;
    if value < max {
        return out.push(first | value as u8);
    }
    out.push(first | max as u8);
    let mut rest = value - max;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// The index of a name in the static table, if responses have it; in lower case.
fn index(name: &[u8]) -> Option<usize> {
    Some(match name {
        b"accept-ranges" => 18,
        b"access-control-allow-origin" => 20,
        b"age" => 21,
        b"allow" => 22,
        b"cache-control" => 24,
        b"content-disposition" => 25,
        b"content-encoding" => 26,
        b"content-language" => 27,
        b"content-length" => CONTENT_LENGTH_INDEX,
        b"content-location" => 29,
        b"content-range" => 30,
        b"content-type" => 31,
        b"date" => DATE_INDEX,
        b"etag" => 34,
        b"expires" => 36,
        b"last-modified" => 44,
        b"link" => 45,
        b"location" => 46,
        b"retry-after" => 53,
        b"server" => SERVER_INDEX,
        b"set-cookie" => 55,
        b"strict-transport-security" => 56,
        b"vary" => 59,
        b"via" => 60,
        b"www-authenticate" => 61,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Decoder;
    use super::super::table::STATIC;
    use super::*;

    #[track_caller]
    fn assert_written(name: &str, value: &str, bytes_max: usize) {
        let mut block = FieldBlock::new(vec![NO_TABLE]);
        block.field(name.as_bytes(), value.as_bytes());
        let out = block.as_bytes();
        assert!(out.len() <= bytes_max, "{name}: {} bytes", out.len());
        let mut read = Vec::new();
        let decoded = Decoder::default().decode(out, |name, value| {
            read.push([name, value].map(|text| String::from_utf8_lossy(text).into_owned()));
            Ok(())
        });
        assert_eq!(decoded, Ok(()));
        assert_eq!(read, [[name.to_lowercase(), value.to_owned()]]);
    }

    #[test]
    fn names_of_the_table_are_not_written() {
        for (name, _) in &STATIC[STATUS_INDEX as usize - 1..] {
            if let Some(index) = index(name.as_bytes()) {
                assert_eq!(STATIC[index - 1].0, *name);
                assert_written(&name.to_uppercase(), "a", 4);
            }
        }
    }

    #[test]
    fn other_names_and_long_values() {
        for bytes in [0, 1, 126, 127, 128, 254, 255, 256, 20_000] {
            assert_written("X-A", &"v".repeat(bytes), bytes + 10);
            assert_written(&"N".repeat(bytes + 1), "", bytes + 10);
        }
    }

    #[test]
    fn fields_that_most_responses_have_are_as_any_other() {
        let mut quick = FieldBlock::default();
        quick.server(b"levity");
        quick.date(b"now");
        quick.length(4096);
        let mut named = FieldBlock::default();
        named.field(b"Server", b"levity");
        named.field(b"Date", b"now");
        named.field(b"Content-Length", b"4096");
        assert_eq!(quick.as_bytes(), named.as_bytes());
        let mut appended = FieldBlock::default();
        appended.append(named.as_bytes());
        assert_eq!(appended.as_bytes(), named.as_bytes());
    }

    #[test]
    fn statuses() {
        for (code, bytes) in [(200, 1), (404, 1), (201, 5), (103, 5), (503, 5)] {
            let mut block = FieldBlock::default();
            block.status(code);
            let out = block.as_bytes();
            assert_eq!(out.len(), bytes);
            let mut read = String::new();
            let decoded = Decoder::default().decode(out, |name, value| {
                let [name, value] = [name, value].map(String::from_utf8_lossy);
                read += &format!("{name}={value}");
                Ok(())
            });
            assert_eq!((decoded, read), (Ok(()), format!(":status={code}")));
        }
    }
}
