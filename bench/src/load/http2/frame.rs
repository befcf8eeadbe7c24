//! Frames (RFC 9113, 4 and 6): those of a client to write, those of a server to read.

use crate::failure::{Failure, Result};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const FRAME_HEADER_BYTES: usize = 9;
/// The largest frame that a client accepts who asks for no larger ones, in bytes.
const FRAME_BYTES_MAX: usize = 16 * 1024;
/// The largest window, in bytes.
pub(crate) const WINDOW_MAX: u32 = (1 << 31) - 1;
/// The window of a new connection, in bytes.
const WINDOW_INITIAL: u32 = 65_535;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
pub(crate) const PRIORITY: u8 = 0x20;

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;

/// Writes a frame to `out`.
pub(crate) fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Writes what a client sends first that takes any number of bytes.
pub(crate) fn preface(out: &mut Vec<u8>) {
    let settings = [
        (HEADER_TABLE_SIZE, 0),
        (ENABLE_PUSH, 0),
        (INITIAL_WINDOW_SIZE, WINDOW_MAX),
    ];
    preface_with(out, &settings);
    let more = WINDOW_MAX - WINDOW_INITIAL;
    write(out, WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
}

/// Writes what a client sends first that has these settings.
pub(crate) fn preface_with(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    out.extend_from_slice(PREFACE);
    let setting = |(name, value): &(u16, u32)| {
        let (name, value) = (name.to_be_bytes(), value.to_be_bytes());
        [&name[..], &value].concat()
    };
    let payload: Vec<u8> = settings.iter().flat_map(setting).collect();
    write(out, SETTINGS, 0, 0, &payload);
}

/// The length of the frame that begins like this, if that is known; of plain data without its payload.
pub(crate) fn frame_bytes(partial: &[u8]) -> Result<Option<usize>> {
    let Some(header) = partial.get(..FRAME_HEADER_BYTES) else {
        return Ok(None);
    };
    let length = payload_bytes(header);
    if length > FRAME_BYTES_MAX {
        return Err(Failure::new(format!("a frame of {length} bytes")));
    }
    let is_plain_data = header[3] == DATA && header[4] & PADDED == 0;
    Ok(Some(match is_plain_data {
        true => FRAME_HEADER_BYTES,
        false => FRAME_HEADER_BYTES + length,
    }))
}

pub(crate) fn payload_bytes(header: &[u8]) -> usize {
    u32_at(header, 0) as usize >> 8
}

/// The kind and payload of the first frame, and what follows it; None for a part of a frame.
pub(crate) fn split_frame(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (header, rest) = bytes.split_at_checked(FRAME_HEADER_BYTES)?;
    let (payload, rest) = rest.split_at_checked(payload_bytes(header))?;
    Some((header[3], payload, rest))
}

/// Four bytes as a number; missing ones are 0.
pub(crate) fn u32_at(bytes: &[u8], start: usize) -> u32 {
    let byte = |at: usize| u32::from(bytes.get(start + at).copied().unwrap_or_default());
    (0..4).fold(0, |number, at| number << 8 | byte(at))
}
