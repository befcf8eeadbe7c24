//! SETTINGS (RFC 9113, 6.5).

use std::ops::Range;

use super::frame::{self, PAYLOAD_BYTES_MAX, kind};
use super::{Failure, WINDOW_BYTES_MAX};

/// The maximum number of streams that a client may have open.
pub const STREAMS_MAX: usize = 128;

/// The window of a stream at its start: the maximum number of bytes of its request body that wait here.
pub const STREAM_WINDOW_BYTES: u32 = 256 * 1024;

/// The maximum window of a connection while no stream has a larger one. Larger than that of a stream, so that streams that nobody
/// reads do not block the others.
pub const CONNECTION_WINDOW_BYTES: u32 = 4 * 1024 * 1024;

/// The initial size of all windows in bytes (RFC 9113, 6.9.2).
pub const USUAL_WINDOW_BYTES: u32 = 65_535;

/// The maximum number of bytes in a frame that a client may allow (RFC 9113, 6.5.2).
const FRAME_SIZES: Range<usize> = PAYLOAD_BYTES_MAX..1 << 24;

/// Identifiers.
mod id {
    pub const ENABLE_PUSH: u16 = 0x2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    pub const INITIAL_WINDOW_SIZE: u16 = 0x4;
    pub const MAX_FRAME_SIZE: u16 = 0x5;
    pub const MAX_HEADER_LIST_SIZE: u16 = 0x6;
    /// RFC 8441, 3.
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
    /// RFC 9218, 2.1.
    pub const NO_RFC7540_PRIORITIES: u16 = 0x9;
}

const SETTING_BYTES: usize = 6;

/// The settings of the client.
#[derive(Debug)]
pub(super) struct Settings {
    /// The window of a new stream, in bytes.
    pub window: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            window: USUAL_WINDOW_BYTES,
        }
    }
}

impl Settings {
    /// Applies the payload of a frame.
    ///
    /// # Errors
    /// RFC 9113, 6.5 and 6.5.2.
    pub fn read(&mut self, payload: &[u8]) -> Result<(), Failure> {
        let (settings, rest) = payload.as_chunks::<SETTING_BYTES>();
        if !rest.is_empty() {
            return Err(Failure::size("a frame of settings of a wrong size"));
        }
        for [a, b, value @ ..] in settings {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([*a, *b]) {
                id::ENABLE_PUSH if value > 1 => {
                    return Err(Failure::protocol("a setting that is neither 0 nor 1"));
                }
                id::INITIAL_WINDOW_SIZE if i64::from(value) > WINDOW_BYTES_MAX => {
                    return Err(Failure::flow("a window that is too large"));
                }
                id::INITIAL_WINDOW_SIZE => self.window = value,
                // Larger frames would let one response delay the others.
                id::MAX_FRAME_SIZE if !FRAME_SIZES.contains(&(value as usize)) => {
                    return Err(Failure::protocol("a size of frames that is not allowed"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Appends the first frames of the server.
pub(super) fn write(out: &mut Vec<u8>, head_bytes_max: usize) {
    let list_bytes_max = u32::try_from(head_bytes_max).unwrap_or(u32::MAX);
    let settings = [
        (id::MAX_CONCURRENT_STREAMS, STREAMS_MAX as u32),
        (id::INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES),
        (id::MAX_HEADER_LIST_SIZE, list_bytes_max),
        (id::ENABLE_CONNECT_PROTOCOL, 1),
        (id::NO_RFC7540_PRIORITIES, 1),
    ];
    let mut payload = Vec::with_capacity(settings.len() * SETTING_BYTES);
    for (id, value) in settings {
        payload.extend_from_slice(&id.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    frame::write(out, kind::SETTINGS, 0, 0, &payload);
}
