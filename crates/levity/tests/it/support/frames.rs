//! Frames of HTTP/2 (RFC 9113) as a client writes them that no library would let it be.

/// Types of frames (RFC 9113, 6).
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const WINDOW_UPDATE: u8 = 8;

/// A flag of HEADERS: the header section ends.
pub const END_HEADERS: u8 = 4;

/// Flags of HEADERS: the stream and the header section end.
pub const WHOLE: u8 = 5;

/// The identifier of `SETTINGS_INITIAL_WINDOW_SIZE`.
const INITIAL_WINDOW_SIZE: u16 = 4;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// The start of a connection on which each stream has a window of `window` bytes.
pub fn preface(window: u32) -> Vec<u8> {
    let [id, value] = [
        INITIAL_WINDOW_SIZE.to_be_bytes().to_vec(),
        window.to_be_bytes().to_vec(),
    ];
    let settings = frame(SETTINGS, 0, 0, &[id, value].concat());
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings].concat()
}

/// A request for `path` of less than 127 bytes, by indices of the static table.
pub fn get(stream: u32, path: &str) -> Vec<u8> {
    get_with(stream, path, &[])
}

/// The same with further fields, whose names are in lower case.
pub fn get_with(stream: u32, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = [&b"\x82\x86\x04"[..], &text(path), b"\x41\x09localhost"].concat();
    for (name, value) in fields {
        block.push(0);
        block.extend_from_slice(&text(name));
        block.extend_from_slice(&text(value));
    }
    frame(HEADERS, WHOLE, stream, &block)
}

/// A string of less than 127 bytes (RFC 7541, 5.2).
fn text(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).expect("a short text");
    [&[length], text.as_bytes()].concat()
}

/// Lets the server send `bytes` more on a stream, or on the connection with the number 0.
pub fn window(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}
