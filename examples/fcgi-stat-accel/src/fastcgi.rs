//! The subset of FastCGI 1.0 that an application without request bodies needs, one request at a
//! time on a connection. Section numbers refer to the specification of 29 April 1996.

use std::io::{Error, ErrorKind, Read, Result};

const HEADER_BYTES: usize = 8;
const BEGIN_REQUEST: u8 = 1;
const ABORT_REQUEST: u8 = 2;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
/// Section 5.1: the connection stays open after the response.
const KEEP_CONN: u8 = 1;
/// More than a server sends with a path.
const VARIABLES_BYTES_MAX: usize = 256 * 1024;

/// A request of the server.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// Path and query as the client sent them.
    pub uri: Vec<u8>,
    /// The server keeps the connection open for further requests.
    pub keeps: bool,
}

/// Reads the next request and discards its body. `None` if the server has closed the connection.
/// Blocks.
///
/// # Errors
/// If the connection breaks within a request, or the input is not FastCGI or has more than 256 KiB
/// of variables.
pub fn read_request(input: &mut impl Read) -> Result<Option<Request>> {
    let mut variables = Vec::new();
    let mut keeps = false;
    loop {
        let Some((kind, content)) = read_record(input)? else {
            return Ok(None);
        };
        match kind {
            BEGIN_REQUEST => {
                keeps = content.get(2).is_some_and(|flags| flags & KEEP_CONN != 0);
                variables.clear();
            }
            PARAMS => variables.extend_from_slice(&content),
            STDIN if content.is_empty() => {
                let uri = variable(&variables, b"REQUEST_URI").unwrap_or_default();
                return Ok(Some(Request {
                    uri: uri.to_vec(),
                    keeps,
                }));
            }
            STDIN => {}
            ABORT_REQUEST => return Ok(None),
            _ => return Err(invalid("unknown type of a record")),
        }
        if variables.len() > VARIABLES_BYTES_MAX {
            return Err(invalid("too many variables"));
        }
    }
}

/// Type and content of the next record (section 3.3).
fn read_record(input: &mut impl Read) -> Result<Option<(u8, Vec<u8>)>> {
    let mut header = [0; HEADER_BYTES];
    if input.read(&mut header[..1])? == 0 {
        return Ok(None);
    }
    input.read_exact(&mut header[1..])?;
    let [version, kind, id1, id0, length1, length0, padding, _] = header;
    if (version, id1, id0) != (1, 0, 1) {
        return Err(invalid("not a record of request 1"));
    }
    let length = usize::from(u16::from_be_bytes([length1, length0]));
    let mut content = vec![0; length + usize::from(padding)];
    input.read_exact(&mut content)?;
    content.truncate(length);
    Ok(Some((kind, content)))
}

/// The value of a variable (section 3.4).
fn variable<'v>(mut variables: &'v [u8], wanted: &[u8]) -> Option<&'v [u8]> {
    while !variables.is_empty() {
        let name_bytes = length(&mut variables)?;
        let value_bytes = length(&mut variables)?;
        let name = take(&mut variables, name_bytes)?;
        let value = take(&mut variables, value_bytes)?;
        if name == wanted {
            return Some(value);
        }
    }
    None
}

fn length(variables: &mut &[u8]) -> Option<usize> {
    let first = take(variables, 1)?[0];
    if first < 0x80 {
        return Some(first.into());
    }
    let rest = take(variables, 3)?;
    Some(u32::from_be_bytes([first & 0x7f, rest[0], rest[1], rest[2]]) as usize)
}

fn take<'v>(variables: &mut &'v [u8], bytes: usize) -> Option<&'v [u8]> {
    let (taken, rest) = variables.split_at_checked(bytes)?;
    *variables = rest;
    Some(taken)
}

/// A complete response with these headers, which must fit into one record.
pub fn answer(fields: &[u8]) -> Vec<u8> {
    let mut answer = Vec::with_capacity(fields.len() + 4 * HEADER_BYTES);
    answer.extend_from_slice(&header(STDOUT, fields.len()));
    answer.extend_from_slice(fields);
    answer.extend_from_slice(&header(STDOUT, 0));
    answer.extend_from_slice(&header(END_REQUEST, HEADER_BYTES));
    answer.extend_from_slice(&[0; HEADER_BYTES]);
    answer
}

fn header(kind: u8, content_bytes: usize) -> [u8; HEADER_BYTES] {
    let [length1, length0] = (content_bytes as u16).to_be_bytes();
    [1, kind, 0, 1, length1, length0, 0, 0]
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(flags: u8, variables: &[u8]) -> Vec<u8> {
        let mut bytes = header(BEGIN_REQUEST, 8).to_vec();
        bytes.extend_from_slice(&[0, 1, flags, 0, 0, 0, 0, 0]);
        // Variables may be split anywhere.
        for part in variables.chunks(5) {
            bytes.extend_from_slice(&header(PARAMS, part.len()));
            bytes.extend_from_slice(part);
        }
        bytes.extend_from_slice(&header(PARAMS, 0));
        bytes.extend_from_slice(&header(STDIN, 0));
        bytes
    }

    #[test]
    fn requests_are_read_one_after_the_other() {
        let variables = b"\x01\x02Axy\x0b\x80\x00\x00\x05REQUEST_URI/b?cd";
        let two = [ask(KEEP_CONN, variables), ask(0, b"")].concat();
        let mut input = &two[..];
        let first = read_request(&mut input).unwrap().unwrap();
        assert_eq!((&first.uri[..], first.keeps), (&b"/b?cd"[..], true));
        let second = read_request(&mut input).unwrap().unwrap();
        assert_eq!((&second.uri[..], second.keeps), (&b""[..], false));
        assert_eq!(read_request(&mut input).unwrap(), None);
    }

    #[test]
    fn what_is_not_fastcgi_is_refused() {
        assert!(read_request(&mut &b"GET / HTTP/1.1\r\n\r\n"[..]).is_err());
        let cut = &ask(0, b"\x01\x02Axy")[..20];
        assert!(read_request(&mut &cut[..]).is_err());
    }

    #[test]
    fn an_answer_ends() {
        let bytes = answer(b"Status: 404\r\n\r\n");
        assert_eq!(bytes[1], STDOUT);
        assert_eq!(bytes[bytes.len() - 15], END_REQUEST);
    }
}
