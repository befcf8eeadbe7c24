//! Reads one HTTP/1.1 response at a time: bytes in, a finished response out. No I/O, no clock.

use crate::failure::{Failure, Result};

/// More headers than any server under test sends.
const HEADERS_MAX: usize = 64;
/// A head that is still incomplete at this size is refused.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// A response that has arrived in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The bytes of the body.
    pub body_bytes: u64,
    /// The server will close the connection after it.
    pub closes: bool,
}

/// The state between two reads of one connection.
#[derive(Default)]
pub struct Decoder {
    /// The bytes of a head that did not arrive at once.
    partial_head: Vec<u8>,
    body: Option<Body>,
    bodiless: bool,
}

struct Body {
    response: Response,
    missing_bytes: u64,
}

impl Decoder {
    /// For answers to HEAD, which announce a length but bring no body.
    #[must_use]
    pub fn bodiless() -> Self {
        Self {
            bodiless: true,
            ..Self::default()
        }
    }

    /// Takes what has been read; gives the response once its last byte is there.
    ///
    /// # Errors
    /// A head that is not HTTP/1.x, has no Content-Length or is over 16 KiB; bytes after the end of
    /// the response, since the next request has not been sent yet.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<Response>> {
        if self.body.is_some() {
            return self.take_body(bytes.len());
        }
        if self.partial_head.is_empty() {
            return self.take_head(bytes);
        }
        let mut head = std::mem::take(&mut self.partial_head);
        head.extend_from_slice(bytes);
        self.take_head(&head)
    }

    fn take_head(&mut self, bytes: &[u8]) -> Result<Option<Response>> {
        let Some((head_bytes, response)) = parse_head(bytes)? else {
            self.partial_head = bytes.to_vec();
            return Ok(None);
        };
        let missing_bytes = if self.bodiless {
            0
        } else {
            response.body_bytes
        };
        self.body = Some(Body {
            response,
            missing_bytes,
        });
        self.take_body(bytes.len() - head_bytes)
    }

    fn take_body(&mut self, bytes: usize) -> Result<Option<Response>> {
        let Some(body) = &mut self.body else {
            return Ok(None);
        };
        let Some(left) = body.missing_bytes.checked_sub(bytes as u64) else {
            return Err(Failure::new("bytes after the end of the response"));
        };
        body.missing_bytes = left;
        if left > 0 {
            return Ok(None);
        }
        Ok(self.body.take().map(|body| body.response))
    }
}

/// The length of the head and what it announces; None while it is incomplete.
fn parse_head(bytes: &[u8]) -> Result<Option<(usize, Response)>> {
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
    let response = Response {
        status: head.code.unwrap_or(0),
        body_bytes: content_length(head.headers)?,
        closes: header(head.headers, "connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close")),
    };
    Ok(Some((head_bytes, response)))
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
    fn the_same_at_every_cut() {
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
