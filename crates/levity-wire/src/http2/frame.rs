//! Frames (RFC 9113, 4 and 6).

use super::{ErrorCode, Failure};

/// The size of a frame's header in bytes.
pub const HEADER_BYTES: usize = 9;

/// The maximum size of a frame's payload in bytes, in both directions: the smallest that is allowed (RFC 9113, 4.2), so that no frame
/// delays another stream for long.
pub const PAYLOAD_BYTES_MAX: usize = 16 * 1024;

/// Types.
pub(super) mod kind {
    pub const DATA: u8 = 0x0;
    pub const HEADERS: u8 = 0x1;
    pub const PRIORITY: u8 = 0x2;
    pub const RST_STREAM: u8 = 0x3;
    pub const SETTINGS: u8 = 0x4;
    pub const PUSH_PROMISE: u8 = 0x5;
    pub const PING: u8 = 0x6;
    pub const GOAWAY: u8 = 0x7;
    pub const WINDOW_UPDATE: u8 = 0x8;
    pub const CONTINUATION: u8 = 0x9;
    /// RFC 9218, 7.1.
    pub const PRIORITY_UPDATE: u8 = 0x10;
}

/// Flags.
pub(super) mod flag {
    pub const ACK: u8 = 0x1;
    pub const END_STREAM: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub bytes: usize,
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
}

impl FrameHeader {
    pub fn read(bytes: [u8; HEADER_BYTES]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = bytes;
        Self {
            bytes: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream: number(stream),
        }
    }

    pub fn write(self) -> [u8; HEADER_BYTES] {
        let [_, a, b, c] = (self.bytes as u32).to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }

    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a frame.
pub(super) fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let header = FrameHeader {
        bytes: payload.len(),
        kind,
        flags,
        stream,
    };
    out.extend_from_slice(&header.write());
    out.extend_from_slice(payload);
}

/// Appends a frame with one number.
pub(super) fn write_number(out: &mut Vec<u8>, kind: u8, stream: u32, number: u32) {
    write(out, kind, 0, stream, &number.to_be_bytes());
}

/// A number of 31 bits after a reserved one.
pub(super) fn number(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes) & (u32::MAX >> 1)
}

/// The payload of a frame whose size is fixed.
pub(super) fn fixed<const BYTES: usize>(payload: &[u8]) -> Result<[u8; BYTES], Failure> {
    let wrong = Failure::new(ErrorCode::FrameSize, "a frame of a wrong size");
    payload.try_into().map_err(|_| wrong)
}

/// The payload of a frame without its padding (RFC 9113, 6.1).
pub(super) fn without_padding(header: FrameHeader, payload: &[u8]) -> Result<&[u8], Failure> {
    if !header.has(flag::PADDED) {
        return Ok(payload);
    }
    let (padding, rest) = payload.split_first().ok_or(NO_PADDING_LENGTH)?;
    let bytes = rest.len().checked_sub(usize::from(*padding));
    Ok(&rest[..bytes.ok_or(TOO_MUCH_PADDING)?])
}

pub(super) const NO_PADDING_LENGTH: Failure = Failure::size("a padded frame without the length");
pub(super) const TOO_MUCH_PADDING: Failure =
    Failure::protocol("padding that is longer than its frame");
