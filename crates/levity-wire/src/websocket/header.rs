//! The header of a frame (RFC 6455, 5.2).

/// What a frame is. Its value is that of the RFC, 5.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    /// A later part of a message.
    Continuation = 0,
    /// The first part of a text.
    Text = 1,
    /// The first part of bytes that are no text.
    Binary = 2,
    /// The end of the connection.
    Close = 8,
    /// A question whether the other end is there.
    Ping = 9,
    /// The answer.
    Pong = 10,
}

impl Opcode {
    const ALL: [Self; 6] = [
        Self::Continuation,
        Self::Text,
        Self::Binary,
        Self::Close,
        Self::Ping,
        Self::Pong,
    ];
}

/// What a client must not send. The connection closes with the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation {
    /// The code of the Close frame.
    pub code: u16,
    /// What is wrong.
    pub reason: &'static str,
}

impl Violation {
    pub(super) const fn protocol(reason: &'static str) -> Self {
        Self { code: 1002, reason }
    }
}

pub(super) const HEADER: Violation = Violation::protocol("the header of a frame is malformed");
pub(super) const RESERVED: Violation = Violation::protocol("a reserved bit is set");
pub(super) const UNMASKED: Violation = Violation::protocol("a frame is not masked");

const IS_LAST: u8 = 0x80;
const IS_COMPRESSED: u8 = 0x40;
const RESERVED_BITS: u8 = 0x30;
const OPCODE_BITS: u8 = 0x0f;
const IS_MASKED: u8 = 0x80;
/// In place of a length, in the second byte: it follows in two bytes, or in eight.
const IN_TWO_BYTES: u8 = 126;
const IN_EIGHT_BYTES: u8 = 127;

/// The header of a frame of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientHeader {
    /// No further part of the message follows.
    pub is_last: bool,
    /// The content is compressed (RFC 7692, 6). Only the first part of a message says so.
    pub is_compressed: bool,
    /// What the frame is.
    pub opcode: Opcode,
    /// The length of the content in bytes.
    pub length: u64,
    /// The bytes of the content are combined with these, again and again, by exclusive or.
    pub mask: [u8; 4],
}

impl ClientHeader {
    /// The header at the start of `bytes`, and its own length in bytes; `None` if more have to arrive.
    ///
    /// # Errors
    /// For a reserved bit or opcode, a frame that is not masked, and a length that has a shorter form or a sign. The error
    /// does not depend on how much has arrived.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Violation> {
        let [first, second, rest @ ..] = bytes else {
            return Ok(None);
        };
        if first & RESERVED_BITS != 0 {
            return Err(RESERVED);
        }
        let mut opcodes = Opcode::ALL.into_iter();
        let opcode = opcodes.find(|opcode| *opcode as u8 == first & OPCODE_BITS);
        let opcode = opcode.ok_or(HEADER)?;
        if second & IS_MASKED == 0 {
            return Err(UNMASKED);
        }
        let Some((length, rest)) = length(second & !IS_MASKED, rest)? else {
            return Ok(None);
        };
        let Some((&mask, rest)) = rest.split_first_chunk() else {
            return Ok(None);
        };
        let header = Self {
            is_last: first & IS_LAST != 0,
            is_compressed: first & IS_COMPRESSED != 0,
            opcode,
            length,
            mask,
        };
        Ok(Some((header, bytes.len() - rest.len())))
    }
}

/// The length that the second byte of a header names, and what follows it.
fn length(named: u8, rest: &[u8]) -> Result<Option<(u64, &[u8])>, Violation> {
    let (length, rest, is_shortest) = match named {
        IN_TWO_BYTES => {
            let Some((bytes, rest)) = rest.split_first_chunk() else {
                return Ok(None);
            };
            let length = u16::from_be_bytes(*bytes);
            (length.into(), rest, length >= IN_TWO_BYTES.into())
        }
        IN_EIGHT_BYTES => {
            let Some((bytes, rest)) = rest.split_first_chunk() else {
                return Ok(None);
            };
            let length = u64::from_be_bytes(*bytes);
            let has_sign = length >> 63 == 1;
            (length, rest, length > u64::from(u16::MAX) && !has_sign)
        }
        _ => (named.into(), rest, true),
    };
    match is_shortest {
        true => Ok(Some((length, rest))),
        false => Err(HEADER),
    }
}

/// Appends the header of a frame of a server, which is not masked, with `length` bytes of content, of at most 125 in a
/// Close, Ping or Pong. Only the first part of a message has its opcode and is compressed.
pub fn push_header(
    out: &mut Vec<u8>,
    opcode: Opcode,
    is_compressed: bool,
    is_last: bool,
    length: u64,
) {
    let last = if is_last { IS_LAST } else { 0 };
    let compressed = if is_compressed { IS_COMPRESSED } else { 0 };
    out.push(last | compressed | opcode as u8);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(length @ ..IN_TWO_BYTES), _) => out.push(length),
        (_, Ok(length)) => {
            out.push(IN_TWO_BYTES);
            out.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            out.push(IN_EIGHT_BYTES);
            out.extend_from_slice(&length.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(opcode: Opcode, is_compressed: bool, is_last: bool, length: u64) -> Vec<u8> {
        let mut out = Vec::new();
        push_header(&mut out, opcode, is_compressed, is_last, length);
        out
    }

    #[test]
    fn headers_of_a_server() {
        // RFC 6455, 5.7.
        assert_eq!(pushed(Opcode::Text, false, true, 5), [0x81, 5]);
        assert_eq!(pushed(Opcode::Text, false, false, 3), [0x01, 3]);
        assert_eq!(pushed(Opcode::Continuation, false, true, 2), [0x80, 2]);
        assert_eq!(pushed(Opcode::Ping, false, true, 5), [0x89, 5]);
        let binary = |length| pushed(Opcode::Binary, false, true, length);
        assert_eq!(binary(256), [0x82, 126, 1, 0]);
        assert_eq!(binary(65_536), [0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
        // RFC 7692, 7.2.3.1.
        assert_eq!(pushed(Opcode::Text, true, true, 7), [0xc1, 7]);
    }

    /// With a mask, what a server writes is what a client would.
    #[test]
    fn a_header_is_the_same_at_every_cut() {
        let mask = [0x37, 0xfa, 0x21, 0x3d];
        for length in [0, 125, 126, 127, 65_535, 65_536, u64::MAX >> 1] {
            for opcode in Opcode::ALL {
                let mut bytes = pushed(opcode, true, false, length);
                bytes[1] |= IS_MASKED;
                bytes.extend(mask);
                let expected = ClientHeader {
                    is_last: false,
                    is_compressed: true,
                    opcode,
                    length,
                    mask,
                };
                for cut in 0..bytes.len() {
                    assert_eq!(ClientHeader::parse(&bytes[..cut]), Ok(None));
                }
                let count = bytes.len();
                bytes.push(7);
                assert_eq!(ClientHeader::parse(&bytes), Ok(Some((expected, count))));
            }
        }
    }

    #[test]
    fn what_is_no_header_of_a_client() {
        for (bytes, violation) in [
            (&[0x89, 0][..], UNMASKED),
            (&[0x81, 1, b'x'], UNMASKED),
            (&[0xa1, 0x80], RESERVED),
            (&[0x91, 0x80], RESERVED),
            // Opcodes 3 and 11.
            (&[0x83, 0x80], HEADER),
            (&[0x8b, 0x80], HEADER),
            // 125 in two bytes, 65 535 in eight, and a negative length.
            (&[0x81, 0xfe, 0, 125], HEADER),
            (&[0x81, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff], HEADER),
            (&[0x81, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0], HEADER),
        ] {
            assert_eq!(ClientHeader::parse(bytes), Err(violation), "{bytes:x?}");
        }
    }
}
