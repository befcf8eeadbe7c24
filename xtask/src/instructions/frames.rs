//! The client's side of HTTP/2 as far as the tool needs it (RFC 9113): requests for one path, and which of them are answered.

use crate::run::Result;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADER_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// What makes the window of the connection as large as it may be (6.9.1): nothing is said of it again.
const WINDOW_MORE: u32 = (1 << 31) - 1 - 65_535;

/// `:status: 200` of the static table (RFC 7541, Appendix A), as an indexed field.
const STATUS_200: u8 = 0x88;

/// A connection: bytes in, bytes out.
pub struct Frames {
    path: String,
    next_stream: u32,
}

impl Frames {
    /// For requests of `path`, which is shorter than 127 bytes. Writes what a client sends first to `out`.
    pub fn new(path: &str, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(PREFACE);
        write(out, SETTINGS, 0, 0, &[]);
        write(out, WINDOW_UPDATE, 0, 0, &WINDOW_MORE.to_be_bytes());
        Self {
            path: path.to_owned(),
            next_stream: 1,
        }
    }

    /// Writes a request. The first one brings path and authority into the table of header fields, where later ones find them, as
    /// those of browsers do.
    pub fn request(&mut self, out: &mut Vec<u8>) {
        // ":method: GET" and ":scheme: http" of the static table.
        let mut section = vec![0x82, 0x86];
        if self.next_stream == 1 {
            indexed_later(&mut section, 4, &self.path);
            indexed_later(&mut section, 1, "localhost");
        } else {
            // The path is the older of the two.
            section.extend([0x80 | 63, 0x80 | 62]);
        }
        write(
            out,
            HEADERS,
            END_HEADERS | END_STREAM,
            self.next_stream,
            &section,
        );
        self.next_stream += 2;
    }

    /// Takes whole frames from `bytes`. Writes what they ask for to `out`. Returns how many responses have ended.
    ///
    /// # Errors
    /// A response is none of 200, or the server ends a stream or the connection.
    pub fn read(&mut self, bytes: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<u64> {
        let (mut ended, mut start) = (0, 0);
        while let Some((kind, flags, payload)) = frame(&bytes[start..]) {
            match kind {
                HEADERS => require_ok(payload)?,
                SETTINGS if flags & ACK == 0 => write(out, SETTINGS, ACK, 0, &[]),
                PING if flags & ACK == 0 => write(out, PING, ACK, 0, payload),
                RST_STREAM | GOAWAY => return Err(format!("the server ends it: {payload:?}")),
                _ => (),
            }
            ended += u64::from(matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0);
            start += HEADER_BYTES + payload.len();
        }
        bytes.drain(..start);
        Ok(ended)
    }
}

/// A field with a name of the static table, which enters the table (RFC 7541, 6.2.1).
fn indexed_later(section: &mut Vec<u8>, name: u8, value: &str) {
    section.extend([0x40 | name, value.len() as u8]);
    section.extend_from_slice(value.as_bytes());
}

fn require_ok(section: &[u8]) -> Result<()> {
    // A new size of the table comes before the first field (RFC 7541, 6.3).
    let mut fields = section.iter().skip_while(|&&byte| byte >> 5 == 1);
    match fields.next() {
        Some(&STATUS_200) => Ok(()),
        _ => Err("a response that is none of 200".to_owned()),
    }
}

/// Kind, flags and payload of the first frame; `None` for a part of one.
fn frame(bytes: &[u8]) -> Option<(u8, u8, &[u8])> {
    let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
    let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
    Some((header[3], header[4], rest.get(..length as usize)?))
}

fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Frames {
        Frames::new("/a", &mut Vec::new())
    }

    #[test]
    fn the_second_request_has_no_text() {
        let (mut frames, mut first, mut second) = (frames(), Vec::new(), Vec::new());
        frames.request(&mut first);
        frames.request(&mut second);
        let section = b"\x82\x86\x44\x02/a\x41\x09localhost";
        assert_eq!(frame(&first), Some((HEADERS, 5, &section[..])));
        assert_eq!(second, b"\0\0\x04\x01\x05\0\0\0\x03\x82\x86\xbf\xbe");
    }

    #[test]
    fn responses_are_counted_whatever_their_pieces() {
        let mut all = Vec::new();
        write(&mut all, SETTINGS, 0, 0, &[]);
        write(&mut all, HEADERS, END_HEADERS, 1, &[0x20, STATUS_200]);
        write(&mut all, DATA, 0, 1, b"some");
        write(&mut all, DATA, END_STREAM, 1, b"");
        write(
            &mut all,
            HEADERS,
            END_HEADERS | END_STREAM,
            3,
            &[STATUS_200],
        );
        for cut in 0..all.len() {
            let (mut frames, mut out) = (frames(), Vec::new());
            let mut bytes = all[..cut].to_vec();
            let mut ended = frames.read(&mut bytes, &mut out).unwrap();
            bytes.extend_from_slice(&all[cut..]);
            ended += frames.read(&mut bytes, &mut out).unwrap();
            assert_eq!((ended, bytes.len()), (2, 0), "cut at {cut}");
            assert_eq!(frame(&out), Some((SETTINGS, ACK, &[][..])));
        }
    }

    #[test]
    fn what_is_no_response_of_200_is_an_error() {
        for (kind, payload) in [
            (HEADERS, &[0x8d][..]),
            (RST_STREAM, &[0; 4]),
            (GOAWAY, &[0; 8]),
        ] {
            let mut bytes = Vec::new();
            write(&mut bytes, kind, END_HEADERS, 1, payload);
            let result = frames().read(&mut bytes, &mut Vec::new());
            assert!(result.is_err(), "{kind}");
        }
    }
}
