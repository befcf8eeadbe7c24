//! The client's end of an HTTP/2 connection (RFC 9113): frames to send, responses from bytes. No I/O, no clock.
//!
//! The server may not use a table of header fields that grows, so a status can be read without the rest of its section.

use super::plan::Request;
use super::response::Response;
use crate::failure::{Failure, Result};
use std::collections::BTreeMap;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER_BYTES: usize = 9;
/// The largest frame that a client accepts who asks for no larger ones, in bytes.
const FRAME_BYTES_MAX: usize = 16 * 1024;
/// The largest window, in bytes.
const WINDOW_MAX: u32 = (1 << 31) - 1;
/// The window of a new connection, in bytes.
const WINDOW_INITIAL: u32 = 65_535;
/// The bytes of bodies after which the window of the connection is opened again.
const WINDOW_STEP: u32 = 1 << 29;

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
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;

/// Writes a frame to `out`.
pub(crate) fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
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
    frame(out, WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
}

/// Writes what a client sends first that has these settings.
pub(crate) fn preface_with(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    out.extend_from_slice(PREFACE);
    let setting = |(name, value): &(u16, u32)| {
        let (name, value) = (name.to_be_bytes(), value.to_be_bytes());
        [&name[..], &value].concat()
    };
    let payload: Vec<u8> = settings.iter().flat_map(setting).collect();
    frame(out, SETTINGS, 0, 0, &payload);
}

/// The header section of a request (RFC 7541), of which nothing enters a table.
#[must_use]
pub fn header_section(method: &str, scheme: &str, authority: &str, path: &str) -> Vec<u8> {
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

/// A connection.
pub struct Http2 {
    output: Vec<u8>,
    /// The start of a frame.
    partial: Vec<u8>,
    /// The part of a frame of data that has not arrived.
    data: Option<Data>,
    streams: BTreeMap<u32, Stream>,
    next: u32,
    /// Bytes of bodies since the window was opened.
    received: u32,
    /// The server takes no more requests.
    is_closing: bool,
}

struct Data {
    stream: u32,
    missing_bytes: usize,
    is_last: bool,
}

struct Stream {
    request: Request,
    status: Option<u16>,
    body_bytes: u64,
}

impl Default for Http2 {
    fn default() -> Self {
        let mut output = Vec::new();
        preface(&mut output);
        Self {
            output,
            partial: Vec::new(),
            data: None,
            streams: BTreeMap::new(),
            next: 1,
            received: 0,
            is_closing: false,
        }
    }
}

impl Http2 {
    /// Begins a request with this header section.
    pub fn request(&mut self, request: Request, section: &[u8], body: &[u8]) {
        let flags = END_HEADERS | if body.is_empty() { END_STREAM } else { 0 };
        frame(&mut self.output, HEADERS, flags, self.next, section);
        if !body.is_empty() {
            frame(&mut self.output, DATA, END_STREAM, self.next, body);
        }
        let stream = Stream {
            request,
            status: None,
            body_bytes: 0,
        };
        self.streams.insert(self.next, stream);
        self.next += 2;
    }

    /// Takes the bytes to send.
    pub fn output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// The requests without a complete response.
    pub fn pending(&self) -> impl Iterator<Item = Request> {
        self.streams.values().map(|stream| stream.request)
    }

    /// Whether the server has said that it takes no more requests.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Parses the bytes of a read, and passes on each response whose last byte has arrived.
    ///
    /// # Errors
    /// The server breaks the protocol, resets a stream or ends the connection for a fault of the client.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        mut complete: impl FnMut(Request, Response),
    ) -> Result<()> {
        while !bytes.is_empty() {
            if let Some(data) = &mut self.data {
                let length = bytes.len().min(data.missing_bytes);
                data.missing_bytes -= length;
                bytes = &bytes[length..];
                self.end_data(&mut complete)?;
                continue;
            }
            let missing = match frame_bytes(&self.partial)? {
                None => FRAME_HEADER_BYTES,
                Some(length) => length,
            } - self.partial.len();
            let (part, rest) = bytes.split_at(missing.min(bytes.len()));
            self.partial.extend_from_slice(part);
            bytes = rest;
            if frame_bytes(&self.partial)? == Some(self.partial.len()) {
                let whole = std::mem::take(&mut self.partial);
                self.frame(&whole, &mut complete)?;
                self.partial = whole;
                self.partial.clear();
            }
        }
        Ok(())
    }

    /// Handles a whole frame; of plain data only its header.
    fn frame(&mut self, bytes: &[u8], complete: &mut impl FnMut(Request, Response)) -> Result<()> {
        let (header, payload) = bytes.split_at(FRAME_HEADER_BYTES);
        let (kind, flags) = (header[3], header[4]);
        let stream = u32_at(header, 5) & WINDOW_MAX;
        match kind {
            DATA if flags & PADDED == 0 => {
                let length = payload_bytes(header);
                self.count(stream, length, length);
                self.data = Some(Data {
                    stream,
                    missing_bytes: length,
                    is_last: flags & END_STREAM != 0,
                });
                return self.end_data(complete);
            }
            DATA => {
                let padding = usize::from(payload.first().copied().unwrap_or_default()) + 1;
                let content = payload.len().saturating_sub(padding);
                self.count(stream, payload.len(), content);
            }
            HEADERS => self.head(stream, flags, payload)?,
            RST_STREAM => {
                let code = u32_at(payload, 0);
                return Err(Failure::new(format!(
                    "stream {stream} is reset: code {code}"
                )));
            }
            SETTINGS if flags & ACK == 0 => frame(&mut self.output, SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => frame(&mut self.output, PING, ACK, 0, payload),
            GOAWAY => {
                self.is_closing = true;
                let code = u32_at(payload, 4);
                if code != 0 {
                    return Err(Failure::new(format!("the server goes away: code {code}")));
                }
            }
            _ => (),
        }
        let may_end = matches!(kind, DATA | HEADERS);
        match may_end && flags & END_STREAM != 0 {
            true => self.end(stream, complete),
            false => Ok(()),
        }
    }

    /// Counts bytes of a body, and opens the window of the connection again.
    fn count(&mut self, stream: u32, bytes: usize, content: usize) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.body_bytes += content as u64;
        }
        self.received += bytes as u32;
        if self.received >= WINDOW_STEP {
            let received = std::mem::take(&mut self.received);
            frame(
                &mut self.output,
                WINDOW_UPDATE,
                0,
                0,
                &received.to_be_bytes(),
            );
        }
    }

    /// Ends a frame of data whose last byte has arrived.
    fn end_data(&mut self, complete: &mut impl FnMut(Request, Response)) -> Result<()> {
        match self.data.take_if(|data| data.missing_bytes == 0) {
            Some(data) if data.is_last => self.end(data.stream, complete),
            _ => Ok(()),
        }
    }

    fn head(&mut self, id: u32, flags: u8, payload: &[u8]) -> Result<()> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Err(Failure::new(format!("a response without a request: {id}")));
        };
        let padded = usize::from(flags & PADDED != 0);
        let priority = if flags & PRIORITY != 0 { 5 } else { 0 };
        let section = payload.get(padded + priority..).unwrap_or_default();
        // Trailers have no status.
        if stream.status.is_none_or(|status| status < 200) {
            stream.status = Some(status(section)?);
        }
        Ok(())
    }

    fn end(&mut self, id: u32, complete: &mut impl FnMut(Request, Response)) -> Result<()> {
        let stream = self.streams.remove(&id);
        let ended = stream.and_then(|stream| Some((stream.status?, stream)));
        let Some((status, stream)) = ended else {
            return Err(Failure::new(format!(
                "the end of a stream without a response: {id}"
            )));
        };
        let response = Response {
            status,
            body_bytes: stream.body_bytes,
            closes: false,
        };
        complete(stream.request, response);
        Ok(())
    }
}

/// The length of the frame that begins like this, if that is known; of plain data without its payload.
fn frame_bytes(partial: &[u8]) -> Result<Option<usize>> {
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

fn payload_bytes(header: &[u8]) -> usize {
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

/// The status at the start of a header section (RFC 7541, 6): a field of the static table, or a value with a name from it.
fn status(section: &[u8]) -> Result<u16> {
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
    use std::time::Instant;

    fn request(index: usize) -> Request {
        Request {
            index,
            intended: Instant::now(),
        }
    }

    fn feed(client: &mut Http2, bytes: &[u8]) -> Result<Vec<(usize, u16, u64)>> {
        let mut got = Vec::new();
        client.feed(bytes, |request, response| {
            got.push((request.index, response.status, response.body_bytes));
        })?;
        Ok(got)
    }

    /// Two responses, the second with padding, a size of the table and the status in Huffman code.
    fn responses() -> Vec<u8> {
        let mut bytes = Vec::new();
        frame(&mut bytes, SETTINGS, 0, 0, &[]);
        frame(&mut bytes, HEADERS, END_HEADERS, 1, &[0x20, 0x88]);
        frame(
            &mut bytes,
            HEADERS,
            END_HEADERS,
            3,
            &[0x20, 0x48, 0x83, 0x6c, 0x0c, 0xff],
        );
        frame(&mut bytes, DATA, PADDED | END_STREAM, 3, b"\x02hello\0\0");
        frame(&mut bytes, PING, 0, 0, b"12345678");
        frame(&mut bytes, DATA, 0, 1, &[b'x'; 100]);
        frame(&mut bytes, DATA, END_STREAM, 1, &[]);
        bytes
    }

    #[test]
    fn responses_are_read_whatever_their_pieces() {
        let bytes = responses();
        for cut in 0..bytes.len() {
            let mut client = Http2::default();
            (0..2).for_each(|index| client.request(request(index), &[], &[]));
            assert!(client.output().starts_with(PREFACE));
            let mut got = feed(&mut client, &bytes[..cut]).unwrap();
            got.extend(feed(&mut client, &bytes[cut..]).unwrap());
            assert_eq!(got, [(1, 503, 5), (0, 200, 100)], "cut at {cut}");
            assert_eq!(client.pending().count(), 0);
            let mut acknowledged = Vec::new();
            frame(&mut acknowledged, SETTINGS, ACK, 0, &[]);
            frame(&mut acknowledged, PING, ACK, 0, b"12345678");
            assert_eq!(client.output(), acknowledged);
        }
    }

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
    fn a_reset_and_the_end_of_a_connection_are_reported() {
        let mut client = Http2::default();
        client.request(request(0), &[], &[]);
        let mut bytes = Vec::new();
        frame(&mut bytes, GOAWAY, 0, 0, &[0; 8]);
        assert_eq!(feed(&mut client, &bytes).unwrap(), []);
        assert!(client.is_closing());
        bytes.clear();
        frame(&mut bytes, RST_STREAM, 0, 1, &[0, 0, 0, 8]);
        let error = feed(&mut client, &bytes).unwrap_err().to_string();
        assert!(error.contains("code 8"), "{error}");
    }

    #[test]
    fn lengths_take_as_many_bytes_as_they_need() {
        let mut block = Vec::new();
        field(&mut block, "A", &"x".repeat(200));
        assert_eq!(block[..5], [0, 1, b'a', 0x7f, 73]);
        assert_eq!(block.len(), 205);
    }
}
