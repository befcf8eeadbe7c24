//! The frames of a client (RFC 6455, 5).
//!
//! A server that only sends has no use for messages of a client, so their content is skipped. Between frames nothing is
//! kept; of a control frame that arrives in pieces, its bytes are.

use super::header::{ClientHeader, Opcode, RESERVED, Violation};
use super::is_close_code;

/// The maximum number of bytes in a frame with data.
pub const DATA_BYTES_MAX: u64 = 4096;

/// The maximum number of bytes in a control frame (RFC 6455, 5.5).
const CONTROL_BYTES_MAX: u64 = 125;

/// What a client has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// A part of a message. Its content is skipped.
    Data,
    /// It has to be answered with the same bytes.
    Ping(Vec<u8>),
    /// An answer, or a sign of life.
    Pong,
    /// The client ends, with this code.
    Close(Option<u16>),
}

const CONTROL: Violation = Violation::protocol("a control frame is too long or in parts");
const ORDER: Violation = Violation::protocol("parts of messages are out of order");
const CLOSE: Violation = Violation::protocol("a Close frame has no valid code");
const TEXT: Violation = Violation {
    code: 1007,
    reason: "the reason of a Close frame is no UTF-8",
};
const TOO_LONG: Violation = Violation {
    code: 1009,
    reason: "a frame has more than 4096 bytes",
};

/// Splits what a client sends into frames, however it arrives.
#[derive(Debug, Default)]
pub struct Input {
    /// The part of a header, or of a control frame, that has arrived.
    partial: Vec<u8>,
    /// The bytes of data that are still to be skipped.
    skipping: u64,
    /// A message has begun and not ended.
    in_message: bool,
    /// Messages may be compressed.
    may_be_compressed: bool,
}

impl Input {
    /// Before the first frame. `may_be_compressed` after compression has been negotiated.
    #[must_use]
    pub fn new(may_be_compressed: bool) -> Self {
        Self {
            may_be_compressed,
            ..Self::default()
        }
    }

    /// Takes bytes from the front of `bytes` up to the end of a frame, or of the header of one with data. `None` when all
    /// bytes are taken.
    ///
    /// # Errors
    /// When the client violates the protocol. Nothing that follows is meaningful then.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<Received>, Violation> {
        self.skip(bytes);
        while let Some((&first, rest)) = bytes.split_first() {
            *bytes = rest;
            self.partial.push(first);
            let Some((header, start)) = ClientHeader::parse(&self.partial)? else {
                continue;
            };
            let received = match header.opcode {
                Opcode::Continuation | Opcode::Text | Opcode::Binary => {
                    self.begin_data(&header)?;
                    self.skip(bytes);
                    Some(Received::Data)
                }
                Opcode::Close | Opcode::Ping | Opcode::Pong => {
                    self.control(&header, start, bytes)?
                }
            };
            if received.is_some() {
                self.partial = Vec::new();
                return Ok(received);
            }
        }
        Ok(None)
    }

    /// The control frame whose content begins at `start`; `None` if more of it has to arrive.
    fn control(
        &mut self,
        header: &ClientHeader,
        start: usize,
        bytes: &mut &[u8],
    ) -> Result<Option<Received>, Violation> {
        if header.is_compressed {
            return Err(RESERVED);
        }
        if !header.is_last || header.length > CONTROL_BYTES_MAX {
            return Err(CONTROL);
        }
        if !self.complete(start + header.length as usize, bytes) {
            return Ok(None);
        }
        control(header, &mut self.partial[start..]).map(Some)
    }

    fn skip(&mut self, bytes: &mut &[u8]) {
        let skipped = self.skipping.min(bytes.len() as u64);
        *bytes = &bytes[skipped as usize..];
        self.skipping -= skipped;
    }

    /// Appends what is missing of a frame of `length` bytes. Whether that is there.
    fn complete(&mut self, length: usize, bytes: &mut &[u8]) -> bool {
        let missing = length.saturating_sub(self.partial.len());
        let (taken, rest) = bytes.split_at(missing.min(bytes.len()));
        self.partial.extend_from_slice(taken);
        *bytes = rest;
        self.partial.len() == length
    }

    fn begin_data(&mut self, header: &ClientHeader) -> Result<(), Violation> {
        let is_first = header.opcode != Opcode::Continuation;
        if header.is_compressed && !(is_first && self.may_be_compressed) {
            return Err(RESERVED);
        }
        if is_first == self.in_message {
            return Err(ORDER);
        }
        if header.length > DATA_BYTES_MAX {
            return Err(TOO_LONG);
        }
        self.in_message = !header.is_last;
        self.skipping = header.length;
        Ok(())
    }
}

/// A whole control frame with the masked `content`.
fn control(header: &ClientHeader, content: &mut [u8]) -> Result<Received, Violation> {
    let masked = content.iter_mut().zip(header.mask.into_iter().cycle());
    masked.for_each(|(byte, mask)| *byte ^= mask);
    match (header.opcode, &*content) {
        (Opcode::Ping, _) => Ok(Received::Ping(content.to_vec())),
        (Opcode::Close, []) => Ok(Received::Close(None)),
        (Opcode::Close, [high, low, reason @ ..]) => {
            let code = u16::from_be_bytes([*high, *low]);
            match is_close_code(code) {
                true if str::from_utf8(reason).is_ok() => Ok(Received::Close(Some(code))),
                true => Err(TEXT),
                false => Err(CLOSE),
            }
        }
        (Opcode::Close, _) => Err(CLOSE),
        _ => Ok(Received::Pong),
    }
}

#[cfg(test)]
mod tests {
    use tungstenite::protocol::frame::coding::{Data, OpCode};
    use tungstenite::protocol::frame::{CloseFrame, Frame};

    use super::super::header::{HEADER, UNMASKED};
    use super::*;

    const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

    /// A frame as tungstenite's clients send it.
    fn masked(mut frame: Frame) -> Vec<u8> {
        frame.header_mut().mask = Some(MASK);
        let mut bytes = Vec::new();
        frame.format(&mut bytes).expect("a frame");
        bytes
    }

    fn data(kind: Data, is_final: bool, length: usize) -> Vec<u8> {
        let content = vec![b'x'; length];
        masked(Frame::message(content, OpCode::Data(kind), is_final))
    }

    fn close(code: u16, reason: &str) -> Vec<u8> {
        masked(Frame::close(Some(CloseFrame {
            code: code.into(),
            reason: reason.into(),
        })))
    }

    /// All frames of `pieces`.
    fn frames<'p>(
        input: &mut Input,
        pieces: impl IntoIterator<Item = &'p [u8]>,
    ) -> Result<Vec<Received>, Violation> {
        let mut all = Vec::new();
        for mut piece in pieces {
            while let Some(received) = input.next(&mut piece)? {
                all.push(received);
            }
            assert!(piece.is_empty());
        }
        Ok(all)
    }

    fn received(bytes: &[u8]) -> Result<Vec<Received>, Violation> {
        frames(&mut Input::default(), [bytes])
    }

    #[test]
    fn frames_are_the_same_at_every_cut() {
        let bytes = [
            masked(Frame::ping(vec![7; 125])),
            data(Data::Text, false, 3),
            masked(Frame::pong(Vec::new())),
            data(Data::Continue, true, 300),
            data(Data::Binary, true, DATA_BYTES_MAX as usize),
            masked(Frame::ping(Vec::new())),
            close(1001, "bye"),
        ]
        .concat();
        let expected = vec![
            Received::Ping(vec![7; 125]),
            Received::Data,
            Received::Pong,
            Received::Data,
            Received::Data,
            Received::Ping(Vec::new()),
            Received::Close(Some(1001)),
        ];
        assert_eq!(received(&bytes), Ok(expected.clone()));
        for cut in 0..bytes.len() {
            let (first, second) = bytes.split_at(cut);
            let cut = frames(&mut Input::default(), [first, second]);
            assert_eq!(cut, Ok(expected.clone()));
        }
        let mut input = Input::default();
        assert_eq!(frames(&mut input, bytes.chunks(1)), Ok(expected));
        assert_eq!(
            input.partial.capacity(),
            0,
            "nothing is kept between frames"
        );
    }

    #[test]
    fn codes_of_close_frames() {
        for code in [1000, 1003, 1007, 3000, 4999] {
            assert_eq!(
                received(&close(code, "")),
                Ok(vec![Received::Close(Some(code))])
            );
        }
        for code in [0, 999, 1004, 1005, 1006, 1015, 2999, 5000] {
            assert_eq!(received(&close(code, "")), Err(CLOSE), "{code}");
        }
        assert_eq!(
            received(&masked(Frame::close(None))),
            Ok(vec![Received::Close(None)])
        );
        let close = |content: &[u8]| {
            let mut bytes = vec![0x88, 0x80 | content.len() as u8, 0, 0, 0, 0];
            bytes.extend(content);
            received(&bytes)
        };
        assert_eq!(close(&[3]), Err(CLOSE));
        assert_eq!(close(&[3, 0xe8, 0xff]), Err(TEXT));
    }

    #[test]
    fn what_clients_must_not_send() {
        let cases: &[(&[u8], Violation)] = &[
            (&[0x89, 0], UNMASKED),
            (&[0x81, 1, b'x'], UNMASKED),
            // Opcodes 3 and 11.
            (&[0x83, 0x80, 0, 0, 0, 0], HEADER),
            (&[0x8b, 0x80, 0, 0, 0, 0], HEADER),
            (&[0xc9, 0x80, 0, 0, 0, 0], RESERVED),
            (&[0xa1, 0x80, 0, 0, 0, 0], RESERVED),
            (&[0x91, 0x80, 0, 0, 0, 0], RESERVED),
            (&[0xc1, 0x80, 0, 0, 0, 0], RESERVED),
            // A Ping that goes on, and one of 126 bytes.
            (&[0x09, 0x80, 0, 0, 0, 0], CONTROL),
            (&[0x89, 0xfe, 0, 126, 0, 0, 0, 0], CONTROL),
            // 125 in two bytes, 126 in eight, and a negative length.
            (&[0x81, 0xfe, 0, 125, 0, 0, 0, 0], HEADER),
            (&[0x81, 0xff, 0, 0, 0, 0, 0, 0, 0, 126, 0, 0, 0, 0], HEADER),
            (&[0x81, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], HEADER),
            (&[0x80, 0x80, 0, 0, 0, 0], ORDER),
            (&[0x01, 0x80, 0, 0, 0, 0, 0x81, 0x80, 0, 0, 0, 0], ORDER),
            (&[0x82, 0xfe, 0x10, 0x01, 0, 0, 0, 0], TOO_LONG),
        ];
        for (bytes, violation) in cases {
            assert_eq!(received(bytes), Err(*violation), "{bytes:x?}");
        }
    }

    #[test]
    fn messages_are_compressed_only_if_negotiated() {
        let first = &[0x41, 0x80, 0, 0, 0, 0][..];
        assert_eq!(
            frames(&mut Input::new(true), [first]),
            Ok(vec![Received::Data])
        );
        // Only the first part says so.
        let second = &[0xc0, 0x80, 0, 0, 0, 0][..];
        assert_eq!(
            frames(&mut Input::new(true), [first, second]),
            Err(RESERVED)
        );
    }
}
