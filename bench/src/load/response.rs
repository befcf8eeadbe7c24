//! A parser of HTTP/1.1 responses, one at a time. No I/O, no clock.

use crate::failure::{Context, Failure, Result};

/// The maximum number of headers: no server under test sends more.
const HEADERS_MAX: usize = 64;
/// The maximum size of a header section, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const LINE_END_BYTES: u64 = 2;
/// The maximum size of a chunk header, in bytes.
const CHUNK_LINE_BYTES_MAX: usize = 64;

/// A complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The length of the body in bytes.
    pub body_bytes: u64,
    /// The server closes the connection after it.
    pub closes: bool,
}

/// The parser state of a connection between reads.
#[derive(Default)]
pub struct Decoder {
    /// An incomplete header section.
    partial_head: Vec<u8>,
    body: Option<Body>,
    bodiless: bool,
}

enum Body {
    /// A body with Content-Length.
    Sized {
        response: Response,
        missing_bytes: u64,
    },
    Chunked {
        response: Response,
        chunks: Chunks,
    },
}

/// The position in a chunked body.
enum Chunks {
    /// In the line with the size.
    Length(Vec<u8>),
    /// This many bytes of data and the line end after them are left.
    Content(u64),
    /// The empty line after the last chunk.
    End(Vec<u8>),
}

impl Decoder {
    /// A parser of responses to HEAD, which announce a length but have no body.
    #[must_use]
    pub fn bodiless() -> Self {
        Self {
            bodiless: true,
            ..Self::default()
        }
    }

    /// Whether only the number of the next bytes matters: those of a body with Content-Length.
    #[must_use]
    pub fn only_counts(&self) -> bool {
        matches!(self.body, Some(Body::Sized { .. }))
    }

    /// Parses the bytes of a read. Returns the response once its last byte has arrived.
    ///
    /// # Errors
    /// A header section that is not HTTP/1.x, has no body length or exceeds 16 KiB; bytes after the end of the response,
    /// because the next request has not been sent yet; trailers.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<Response>> {
        if self.body.is_some() {
            return self.take_body(bytes);
        }
        if self.partial_head.is_empty() {
            return self.take_head(bytes);
        }
        let mut head = std::mem::take(&mut self.partial_head);
        head.extend_from_slice(bytes);
        self.take_head(&head)
    }

    fn take_head(&mut self, bytes: &[u8]) -> Result<Option<Response>> {
        let Some(head) = parse_head(bytes)? else {
            self.partial_head = bytes.to_vec();
            return Ok(None);
        };
        let response = head.response;
        self.body = Some(match head.is_chunked && !self.bodiless {
            true => Body::Chunked {
                response,
                chunks: Chunks::Length(Vec::new()),
            },
            false => Body::Sized {
                response,
                missing_bytes: if self.bodiless {
                    0
                } else {
                    response.body_bytes
                },
            },
        });
        self.take_body(&bytes[head.bytes..])
    }

    fn take_body(&mut self, bytes: &[u8]) -> Result<Option<Response>> {
        let response = match &mut self.body {
            None => return Ok(None),
            Some(Body::Sized {
                response,
                missing_bytes,
            }) => {
                let left = missing_bytes.checked_sub(bytes.len() as u64);
                *missing_bytes = left.ok_or_else(surplus)?;
                (*missing_bytes == 0).then_some(*response)
            }
            Some(Body::Chunked { response, chunks }) => {
                take_chunks(response, chunks, bytes)?.then_some(*response)
            }
        };
        if response.is_some() {
            self.body = None;
        }
        Ok(response)
    }
}

fn surplus() -> Failure {
    Failure::new("bytes after the end of the response")
}

/// Whether the last chunk has arrived.
fn take_chunks(response: &mut Response, chunks: &mut Chunks, mut bytes: &[u8]) -> Result<bool> {
    while !bytes.is_empty() {
        match chunks {
            Chunks::Length(line) => {
                if take_line(line, &mut bytes)? {
                    let length = chunk_length(line)?;
                    *chunks = match length {
                        0 => Chunks::End(Vec::new()),
                        _ => Chunks::Content(length + LINE_END_BYTES),
                    };
                }
            }
            Chunks::Content(left) => {
                let taken = (bytes.len() as u64).min(*left);
                *left -= taken;
                response.body_bytes += taken;
                bytes = &bytes[taken as usize..];
                if *left == 0 {
                    response.body_bytes -= LINE_END_BYTES;
                    *chunks = Chunks::Length(Vec::new());
                }
            }
            Chunks::End(line) => {
                if take_line(line, &mut bytes)? {
                    return if line == b"\r\n" && bytes.is_empty() {
                        Ok(true)
                    } else {
                        Err(surplus())
                    };
                }
            }
        }
    }
    Ok(false)
}

/// Moves bytes to the line. Returns whether the line is complete.
fn take_line(line: &mut Vec<u8>, bytes: &mut &[u8]) -> Result<bool> {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let (taken, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
    line.extend_from_slice(taken);
    *bytes = rest;
    if line.len() > CHUNK_LINE_BYTES_MAX {
        return Err(Failure::new("line of a chunk too long"));
    }
    Ok(end.is_some())
}

fn chunk_length(line: &[u8]) -> Result<u64> {
    let text = String::from_utf8_lossy(line);
    let digits = text.split(';').next().unwrap_or_default();
    u64::from_str_radix(digits.trim(), 16).context(|| format!("length of a chunk {text:?}"))
}

struct Head {
    /// Its own length.
    bytes: usize,
    response: Response,
    is_chunked: bool,
}

/// The length of the header section and the body that it announces; None while it is incomplete.
fn parse_head(bytes: &[u8]) -> Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let parsed = head
        .parse(bytes)
        .map_err(|error| Failure::new(format!("response head: {error}")))?;
    let httparse::Status::Complete(head_bytes) = parsed else {
        if bytes.len() > HEAD_BYTES_MAX {
            return Err(Failure::new("response head over 16 KiB"));
        }
        return Ok(None);
    };
    let is_chunked = header(head.headers, "transfer-encoding")
        .is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
    let response = Response {
        status: head.code.unwrap_or(0),
        body_bytes: match is_chunked {
            true => 0,
            false => content_length(head.headers)?,
        },
        closes: header(head.headers, "connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close")),
    };
    Ok(Some(Head {
        bytes: head_bytes,
        response,
        is_chunked,
    }))
}

fn header<'h>(headers: &'h [httparse::Header<'_>], name: &str) -> Option<&'h str> {
    let found = headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case(name))?;
    std::str::from_utf8(found.value).ok()
}

fn content_length(headers: &[httparse::Header<'_>]) -> Result<u64> {
    header(headers, "content-length")
        .and_then(|value| value.trim().parse().ok())
        .ok_or_else(|| Failure::new("response without a Content-Length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 5\r\n\r\nhello";

    #[test]
    fn whole_response_at_once() {
        let response = Decoder::default().feed(HELLO).unwrap();
        assert_eq!(
            response,
            Some(Response {
                status: 200,
                body_bytes: 5,
                closes: false
            })
        );
    }

    #[test]
    fn a_response_may_be_split_at_any_byte() {
        for cut in 1..HELLO.len() {
            let mut decoder = Decoder::default();
            assert_eq!(decoder.feed(&HELLO[..cut]).unwrap(), None, "cut at {cut}");
            assert_eq!(
                decoder.feed(&HELLO[cut..]).unwrap().unwrap().body_bytes,
                5,
                "cut at {cut}"
            );
        }
    }

    const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x\r\n0123456789\r\n0\r\n\r\n";

    #[test]
    fn chunks_count_without_their_framing() {
        for cut in 1..CHUNKED.len() {
            let mut decoder = Decoder::default();
            assert_eq!(decoder.feed(&CHUNKED[..cut]).unwrap(), None, "cut at {cut}");
            let response = decoder.feed(&CHUNKED[cut..]).unwrap().unwrap();
            assert_eq!(response.body_bytes, 13, "cut at {cut}");
        }
        assert!(Decoder::default().feed(&[CHUNKED, b"x"].concat()).is_err());
        let bad = CHUNKED.to_ascii_uppercase();
        let bad = String::from_utf8(bad).unwrap().replace("A;X", "G");
        assert!(Decoder::default().feed(bad.as_bytes()).is_err());
    }

    #[test]
    fn connection_close_is_seen() {
        let head = b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        let response = Decoder::default().feed(head).unwrap().unwrap();
        assert_eq!((response.status, response.closes), (404, true));
    }

    #[test]
    fn head_requests_have_no_body() {
        let mut decoder = Decoder::bodiless();
        let response = decoder
            .feed(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
            .unwrap();
        assert_eq!(response.unwrap().body_bytes, 9);
    }

    #[test]
    fn surplus_bytes_and_missing_lengths_are_errors() {
        assert!(
            Decoder::default()
                .feed(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nx")
                .is_err()
        );
        assert!(Decoder::default().feed(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(Decoder::default().feed(b"SSH-2.0-x\r\n").is_err());
    }
}
