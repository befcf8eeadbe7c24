//! HTTP/1.1, as far as the proxies under test use it towards an application.

use super::Request;
use crate::failure::{Context, Failure, Result};

/// The maximum number of headers: no proxy sends more.
const HEADERS_MAX: usize = 64;
/// Bytes in front of each piece of a chunked body, and so the length of a piece, as many
/// applications send it.
const CHUNK_BYTES: usize = 16 * 1024;

/// The request at the start of `bytes`; None while it is incomplete.
///
/// # Errors
/// The request is not HTTP/1.x, or its body has no length.
pub(super) fn request(bytes: &[u8]) -> Result<Option<Request>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    let parsed = head.parse(bytes).context(|| "request head".into())?;
    let httparse::Status::Complete(head_bytes) = parsed else {
        return Ok(None);
    };
    let (mut body_bytes, mut closes) = (0, head.version == Some(0));
    for header in &*head.headers {
        if header.name.eq_ignore_ascii_case("content-length") {
            let text = String::from_utf8_lossy(header.value);
            body_bytes = text.parse().context(|| "length of a body".into())?;
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(Failure::new("a request with a chunked body"));
        } else if header.name.eq_ignore_ascii_case("connection") {
            closes |= header.value.eq_ignore_ascii_case(b"close");
        }
    }
    let bytes_needed = head_bytes + body_bytes;
    Ok((bytes.len() >= bytes_needed).then(|| Request {
        target: head.path.unwrap_or_default().to_owned(),
        closes,
        bytes: bytes_needed,
    }))
}

/// A response with these headers, each with its line end, and this body.
pub(super) fn answer(fields: &str, body: &[u8], is_chunked: bool) -> Vec<u8> {
    let framing = if is_chunked {
        "Transfer-Encoding: chunked".to_owned()
    } else {
        format!("Content-Length: {}", body.len())
    };
    let mut answer = format!("HTTP/1.1 200 OK\r\n{fields}{framing}\r\n\r\n").into_bytes();
    if !is_chunked {
        answer.extend_from_slice(body);
        return answer;
    }
    for piece in body.chunks(CHUNK_BYTES) {
        answer.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        answer.extend_from_slice(piece);
        answer.extend_from_slice(b"\r\n");
    }
    answer.extend_from_slice(b"0\r\n\r\n");
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_complete_with_its_body() {
        let bytes = b"POST /?bytes=1&id=p7 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
        for cut in 1..bytes.len() {
            assert_eq!(request(&bytes[..cut]).unwrap(), None, "cut at {cut}");
        }
        let whole = request(bytes).unwrap().unwrap();
        assert_eq!(
            (&*whole.target, whole.closes, whole.bytes),
            ("/?bytes=1&id=p7", false, bytes.len())
        );
    }

    #[test]
    fn a_proxy_may_close_after_one_response() {
        let old = request(b"GET / HTTP/1.0\r\n\r\n").unwrap().unwrap();
        let new = request(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
        assert!(old.closes && new.unwrap().unwrap().closes);
    }

    #[test]
    fn a_chunked_response_has_an_end() {
        let body = vec![b'x'; CHUNK_BYTES + 1];
        let answer = answer("", &body, true);
        assert!(answer.ends_with(b"\r\n1\r\nx\r\n0\r\n\r\n"));
    }
}
