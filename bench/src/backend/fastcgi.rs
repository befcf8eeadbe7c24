//! FastCGI 1.0 on the side of the application, with one request at a time per connection.

use super::Request;
use crate::failure::{Failure, Result};

const HEADER_BYTES: usize = 8;
/// The longest content of a record that needs no padding.
const CONTENT_BYTES_MAX: usize = 65_528;
const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const KEEP_CONN: u8 = 1;
/// The request ID that proxies use if they do not multiplex requests on a connection.
const REQUEST_ID: u8 = 1;

/// The request at the start of `bytes`; None while it is incomplete.
///
/// # Errors
/// An unexpected record, or variables without a REQUEST_URI.
pub(super) fn request(bytes: &[u8]) -> Result<Option<Request>> {
    let mut at = 0;
    let mut closes = false;
    let mut variables = Vec::new();
    while let Some((kind, content, length)) = record(&bytes[at..])? {
        at += length;
        match kind {
            BEGIN_REQUEST => closes = content.get(2).is_none_or(|flags| flags & KEEP_CONN == 0),
            PARAMS => variables.extend_from_slice(content),
            STDIN if content.is_empty() => {
                return Ok(Some(Request {
                    target: variable(&variables, b"REQUEST_URI")?,
                    closes,
                    bytes: at,
                }));
            }
            STDIN => {}
            _ => return Err(Failure::new(format!("a record of type {kind}"))),
        }
    }
    Ok(None)
}

/// Type, content and length of the first record; None while it is incomplete.
fn record(bytes: &[u8]) -> Result<Option<(u8, &[u8], usize)>> {
    let Some(&[version, kind, id1, id0, length1, length0, padding, _]) =
        bytes.first_chunk::<HEADER_BYTES>()
    else {
        return Ok(None);
    };
    if (version, id1, id0) != (1, 0, REQUEST_ID) {
        return Err(Failure::new("not the record of a single request"));
    }
    let end = HEADER_BYTES + usize::from(u16::from_be_bytes([length1, length0]));
    let length = end + usize::from(padding);
    Ok((bytes.len() >= length).then(|| (kind, &bytes[HEADER_BYTES..end], length)))
}

fn variable(mut variables: &[u8], wanted: &[u8]) -> Result<String> {
    while !variables.is_empty() {
        let (name_bytes, value_bytes) = (length(&mut variables)?, length(&mut variables)?);
        let name = take(&mut variables, name_bytes)?;
        let value = take(&mut variables, value_bytes)?;
        if name == wanted {
            return Ok(String::from_utf8_lossy(value).into_owned());
        }
    }
    Err(Failure::new("a request without a REQUEST_URI"))
}

fn length(variables: &mut &[u8]) -> Result<usize> {
    let first = take(variables, 1)?[0];
    if first < 0x80 {
        return Ok(first.into());
    }
    let rest = take(variables, 3)?;
    let length = u32::from_be_bytes([first & 0x7f, rest[0], rest[1], rest[2]]);
    Ok(length as usize)
}

fn take<'v>(variables: &mut &'v [u8], bytes: usize) -> Result<&'v [u8]> {
    let (taken, rest) = variables
        .split_at_checked(bytes)
        .ok_or_else(|| Failure::new("a variable that is cut"))?;
    *variables = rest;
    Ok(taken)
}

/// A response with these headers, each with its line end, and this body.
pub(super) fn answer(fields: &str, body: &[u8]) -> Vec<u8> {
    let mut output = format!("Status: 200 OK\r\n{fields}\r\n").into_bytes();
    output.extend_from_slice(body);
    let mut answer = Vec::with_capacity(output.len() + output.len() / 1024 + 64);
    for content in output.chunks(CONTENT_BYTES_MAX) {
        let padding = (HEADER_BYTES - content.len() % HEADER_BYTES) % HEADER_BYTES;
        push_header(&mut answer, STDOUT, content.len(), padding);
        answer.extend_from_slice(content);
        answer.extend_from_slice(&[0; HEADER_BYTES][..padding]);
    }
    push_header(&mut answer, STDOUT, 0, 0);
    push_header(&mut answer, END_REQUEST, HEADER_BYTES, 0);
    answer.extend_from_slice(&[0; HEADER_BYTES]);
    answer
}

fn push_header(answer: &mut Vec<u8>, kind: u8, content_bytes: usize, padding: usize) {
    let [length1, length0] = (content_bytes as u16).to_be_bytes();
    answer.extend_from_slice(&[1, kind, 0, REQUEST_ID, length1, length0, padding as u8, 0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(flags: u8) -> Vec<u8> {
        let mut bytes = vec![
            1,
            BEGIN_REQUEST,
            0,
            1,
            0,
            8,
            0,
            0,
            0,
            1,
            flags,
            0,
            0,
            0,
            0,
            0,
        ];
        let mut variables = vec![1, 2];
        variables.extend_from_slice(b"Axy");
        variables.extend_from_slice(&[11, 0x80, 0, 0, 2]);
        variables.extend_from_slice(b"REQUEST_URI/b");
        push_header(&mut bytes, PARAMS, variables.len(), 0);
        bytes.extend_from_slice(&variables);
        push_header(&mut bytes, PARAMS, 0, 0);
        push_header(&mut bytes, STDIN, 0, 0);
        bytes
    }

    #[test]
    fn a_request_may_be_split_at_any_byte() {
        let bytes = ask(KEEP_CONN);
        for cut in 0..bytes.len() {
            assert_eq!(request(&bytes[..cut]).unwrap(), None, "cut at {cut}");
        }
        let whole = request(&bytes).unwrap().unwrap();
        assert_eq!(
            (&*whole.target, whole.closes, whole.bytes),
            ("/b", false, bytes.len())
        );
        assert!(request(&ask(0)).unwrap().unwrap().closes);
    }

    #[test]
    fn a_response_is_split_into_records() {
        let bytes = answer("", &vec![b'x'; CONTENT_BYTES_MAX]);
        let mut at = 0;
        let mut kinds = Vec::new();
        while let Some((kind, content, length)) = record(&bytes[at..]).unwrap() {
            kinds.push((kind, content.len()));
            at += length;
        }
        let head = "Status: 200 OK\r\n\r\n".len();
        assert_eq!(at, bytes.len());
        assert_eq!(
            kinds,
            [
                (STDOUT, CONTENT_BYTES_MAX),
                (STDOUT, head),
                (STDOUT, 0),
                (END_REQUEST, 8)
            ]
        );
    }
}
