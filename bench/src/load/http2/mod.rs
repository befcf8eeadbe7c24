//! The client's end of an HTTP/2 connection (RFC 9113): frames to send, responses from bytes. No I/O, no clock.
//!
//! The server may not use a table of header fields that grows, so a status can be read without the rest of its section.

pub(crate) mod frame;
pub mod header;

use self::frame::{
    ACK, DATA, END_HEADERS, END_STREAM, FRAME_HEADER_BYTES, GOAWAY, HEADERS, PADDED, PING,
    PRIORITY, RST_STREAM, SETTINGS, WINDOW_MAX, WINDOW_UPDATE, frame_bytes, payload_bytes, u32_at,
};
use super::plan::Request;
use super::response::Response;
use crate::failure::{Failure, Result};
use std::collections::BTreeMap;

/// The bytes of bodies after which the window of the connection is opened again.
const WINDOW_STEP: u32 = 1 << 29;

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
        frame::preface(&mut output);
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
        frame::write(&mut self.output, HEADERS, flags, self.next, section);
        if !body.is_empty() {
            frame::write(&mut self.output, DATA, END_STREAM, self.next, body);
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
            SETTINGS if flags & ACK == 0 => frame::write(&mut self.output, SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => frame::write(&mut self.output, PING, ACK, 0, payload),
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
            frame::write(
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
            stream.status = Some(header::status(section)?);
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

#[cfg(test)]
mod tests {
    use super::frame::PREFACE;
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
        frame::write(&mut bytes, SETTINGS, 0, 0, &[]);
        frame::write(&mut bytes, HEADERS, END_HEADERS, 1, &[0x20, 0x88]);
        frame::write(
            &mut bytes,
            HEADERS,
            END_HEADERS,
            3,
            &[0x20, 0x48, 0x83, 0x6c, 0x0c, 0xff],
        );
        frame::write(&mut bytes, DATA, PADDED | END_STREAM, 3, b"\x02hello\0\0");
        frame::write(&mut bytes, PING, 0, 0, b"12345678");
        frame::write(&mut bytes, DATA, 0, 1, &[b'x'; 100]);
        frame::write(&mut bytes, DATA, END_STREAM, 1, &[]);
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
            frame::write(&mut acknowledged, SETTINGS, ACK, 0, &[]);
            frame::write(&mut acknowledged, PING, ACK, 0, b"12345678");
            assert_eq!(client.output(), acknowledged);
        }
    }

    #[test]
    fn a_reset_and_the_end_of_a_connection_are_reported() {
        let mut client = Http2::default();
        client.request(request(0), &[], &[]);
        let mut bytes = Vec::new();
        frame::write(&mut bytes, GOAWAY, 0, 0, &[0; 8]);
        assert_eq!(feed(&mut client, &bytes).unwrap(), []);
        assert!(client.is_closing());
        bytes.clear();
        frame::write(&mut bytes, RST_STREAM, 0, 1, &[0, 0, 0, 8]);
        let error = feed(&mut client, &bytes).unwrap_err().to_string();
        assert!(error.contains("code 8"), "{error}");
    }
}
