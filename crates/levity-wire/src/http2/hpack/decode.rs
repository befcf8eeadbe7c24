//! Header sections of clients.

use super::huffman;
use super::table::Table;
use crate::http2::Failure;

/// The size of the table in bytes: the default of SETTINGS_HEADER_TABLE_SIZE (RFC 9113, 6.5.2).
const TABLE_BYTES_MAX: usize = 4096;

/// The maximum number of bytes after the first one of an integer. More are needed only for lengths beyond all limits.
const INTEGER_BYTES_MAX: usize = 4;

/// The decoder of a connection. A header section that was not decoded to its end leaves it unusable.
#[derive(Debug)]
pub(in crate::http2) struct Decoder {
    table: Table,
    /// Memory for the field that is being decoded.
    field: FieldText,
}

/// A field that is not in the tables.
#[derive(Debug, Default)]
struct FieldText {
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            table: Table::new(TABLE_BYTES_MAX),
            field: FieldText::default(),
        }
    }
}

impl Decoder {
    /// Releases memory that is not needed between header sections.
    pub(in crate::http2) fn shrink(&mut self) {
        self.field = FieldText::default();
    }

    /// Decodes a whole header section and passes each field to `take`.
    ///
    /// # Errors
    /// When the section is malformed, and those of `take`.
    pub(in crate::http2) fn decode(
        &mut self,
        block: &[u8],
        mut take: impl FnMut(&[u8], &[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut input = Input(block);
        let mut may_resize = true;
        let FieldText { name, value } = &mut self.field;
        while let Some(&first) = input.0.first() {
            match first {
                0b1000_0000.. => {
                    let index = input.integer(7)?;
                    let field = self.table.field(index);
                    let (name, value) = field.ok_or(Failure::compression("no such field"))?;
                    take(name, value)?;
                }
                0b0010_0000..0b0100_0000 => {
                    let bytes = input.integer(5)?;
                    if !may_resize || bytes > TABLE_BYTES_MAX {
                        return Err(Failure::compression("a table of the wrong size"));
                    }
                    self.table.resize(bytes);
                    continue;
                }
                _ => {
                    let is_added = first & 0b0100_0000 != 0;
                    let index = input.integer(if is_added { 6 } else { 4 })?;
                    match index {
                        0 => input.string(name)?,
                        _ => self.table.copy_name(index, name)?,
                    }
                    input.string(value)?;
                    if is_added {
                        self.table.add(name, value);
                    }
                    take(name, value)?;
                }
            }
            may_resize = false;
        }
        Ok(())
    }
}

/// The rest of a header section.
struct Input<'b>(&'b [u8]);

const CUT_OFF: Failure = Failure::compression("a header section that is cut off");

impl<'b> Input<'b> {
    /// An integer in the last `bits` of the first byte, or after them (RFC 7541, 5.1).
    fn integer(&mut self, bits: u32) -> Result<usize, Failure> {
        let (&first, mut rest) = self.0.split_first().ok_or(CUT_OFF)?;
        let max = (1 << bits) - 1;
        let mut value = usize::from(first) & max;
        if value == max {
            let mut shift = 0;
            loop {
                let (&byte, after) = rest.split_first().ok_or(CUT_OFF)?;
                if shift == 7 * INTEGER_BYTES_MAX {
                    return Err(Failure::compression("an integer that is too large"));
                }
                rest = after;
                value += usize::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
        }
        self.0 = rest;
        Ok(value)
    }

    /// Decodes a string (RFC 7541, 5.2) to `out`, which is cleared.
    fn string(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        let is_coded = self.0.first().is_some_and(|first| first & 0x80 != 0);
        let bytes = self.integer(7)?;
        let (text, rest) = self.0.split_at_checked(bytes).ok_or(CUT_OFF)?;
        self.0 = rest;
        out.clear();
        if !is_coded {
            out.extend_from_slice(text);
        } else if !huffman::decode(text, out) {
            return Err(Failure::compression("a malformed Huffman code"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(decoder: &mut Decoder, hex: &str) -> Result<String, Failure> {
        let digits: Vec<_> = hex.bytes().filter(|byte| *byte != b' ').collect();
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).expect("digits"), 16);
        let block: Result<Vec<_>, _> = digits.chunks(2).map(byte).collect();
        let mut text = String::new();
        decoder.decode(&block.expect("hexadecimal"), |name, value| {
            let [name, value] = [name, value].map(String::from_utf8_lossy);
            text += &format!("{name}={value}\n");
            Ok(())
        })?;
        Ok(text)
    }

    /// RFC 7541, C.3 and C.4: three requests on a connection, without Huffman code and with it.
    #[test]
    fn examples() {
        let requests = [
            (
                "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
                ":method=GET\n:scheme=http\n:path=/\n:authority=www.example.com\n",
            ),
            (
                "8286 84be 5808 6e6f 2d63 6163 6865",
                "8286 84be 5886 a8eb 1064 9cbf",
                ":method=GET\n:scheme=http\n:path=/\n:authority=www.example.com\ncache-control=no-cache\n",
            ),
            (
                "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
                "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
                ":method=GET\n:scheme=https\n:path=/index.html\n:authority=www.example.com\ncustom-key=custom-value\n",
            ),
        ];
        let (mut plain, mut coded) = (Decoder::default(), Decoder::default());
        for (as_it_is, with_code, text) in requests {
            assert_eq!(decode(&mut plain, as_it_is).as_deref(), Ok(text));
            assert_eq!(decode(&mut coded, with_code).as_deref(), Ok(text));
        }
        assert_eq!((plain.table.field(62), coded.table.field(64)), {
            let newest: (&[u8], &[u8]) = (b"custom-key", b"custom-value");
            let oldest: (&[u8], &[u8]) = (b":authority", b"www.example.com");
            (Some(newest), Some(oldest))
        });
    }

    #[test]
    fn the_oldest_fields_leave_a_full_table() {
        let mut decoder = Decoder::default();
        // A table of 80 bytes has room for two fields of 3.
        for block in ["3f31", "4001 6101 31", "4001 6201 32", "4001 6301 33"] {
            assert!(decode(&mut decoder, block).is_ok());
        }
        assert_eq!(decode(&mut decoder, "bebf").as_deref(), Ok("c=3\nb=2\n"));
        assert!(decode(&mut decoder, "c0").is_err());
        assert_eq!(
            decode(&mut decoder, "20 be").err(),
            Some(Failure::compression("no such field"))
        );
    }

    /// RFC 7541, 2.3.3, 4.2, 5.1 and 5.2.
    #[test]
    fn malformed_sections_are_refused() {
        for block in [
            "80",              // index 0
            "be",              // an index beyond the table
            "7f ffff ffff 0f", // a name beyond it
            "3fe2 1f",         // a table larger than allowed
            "82 20",           // a change of its size after a field
            "40",              // cut off at each place
            "40 01",
            "40 0161",
            "40 0161 05 61",
            "ff",
            "ff 80",
            "ff ffff ffff ff00", // an integer that is too large
            "00 8100 00",        // a Huffman code that is filled with zeros
        ] {
            assert!(decode(&mut Decoder::default(), block).is_err(), "{block}");
        }
        assert_eq!(
            decode(&mut Decoder::default(), "3fe1 1f 82").as_deref(),
            Ok(":method=GET\n")
        );
    }
}
