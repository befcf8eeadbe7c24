//! Records of FastCGI, sound or not.

use super::{Conn, Request};
use crate::support::wire::Fields;

pub const BEGIN_REQUEST: u8 = 1;
pub const ABORT_REQUEST: u8 = 2;
pub const END_REQUEST: u8 = 3;
pub const PARAMS: u8 = 4;
pub const STDIN: u8 = 5;
pub const STDOUT: u8 = 6;
pub const STDERR: u8 = 7;

/// The id of requests that the server sends.
pub const ID: u16 = 1;

/// Aborts a request whose client has disconnected (section 5.4), which the server never does: it undoes nothing. While
/// php-fpm 8.2 reads a body, it treats an abort as the end of the body, as it does a closed connection.
pub const ABORT: [u8; 8] = [1, ABORT_REQUEST, 0, ID as u8, 0, 0, 0, 0];

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub kind: u8,
    pub id: u16,
    pub content: Vec<u8>,
}

/// A record with as much padding as one likes.
pub fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
    let (id, len) = (ID.to_be_bytes(), (content.len() as u16).to_be_bytes());
    let header = [1, kind, id[0], id[1], len[0], len[1], padding, 0];
    [&header, content, &vec![0; usize::from(padding)]].concat()
}

/// The end of an answer. Protocol status 0: complete; 2: overloaded.
pub fn end(app_status: u32, protocol_status: u8) -> Vec<u8> {
    let app = app_status.to_be_bytes();
    let content = [app[0], app[1], app[2], app[3], protocol_status, 0, 0, 0];
    record(END_REQUEST, &content, 0)
}

/// A sound answer, of a head of CGI and a body.
pub fn answer(stdout: impl AsRef<[u8]>) -> Vec<u8> {
    let records = stdout.as_ref().chunks(8192);
    let mut bytes: Vec<u8> = records.flat_map(|part| record(STDOUT, part, 0)).collect();
    bytes.extend(record(STDOUT, b"", 0));
    bytes.extend(end(0, 0));
    bytes
}

impl Conn {
    /// The next record; `None` when the peer has closed before.
    #[track_caller]
    pub fn read_record(&mut self) -> Option<Record> {
        if !self.has_more() {
            return None;
        }
        let header = self.wire.take(8).expect("the header of a record");
        assert_eq!((header[0], header[7]), (1, 0), "version and reserved byte");
        let len = u16::from_be_bytes([header[4], header[5]]);
        let content = self.wire.take(len.into()).expect("the content of a record");
        self.wire.take(header[6].into()).expect("padding");
        Some(Record {
            kind: header[1],
            id: u16::from_be_bytes([header[2], header[3]]),
            content,
        })
    }

    /// The next request with its body, which is kept, and whether the connection is to be kept
    /// open; `None` when the peer has closed before. A request that is aborted fails the test.
    #[track_caller]
    pub fn read_fastcgi(&mut self) -> Option<(Request, bool)> {
        let (mut request, keep_conn) = self.read_fastcgi_head()?;
        loop {
            let record = self.read_record().expect("the end of the body");
            assert_eq!((record.kind, record.id), (STDIN, ID));
            if record.content.is_empty() {
                return Some((self.keep(request), keep_conn));
            }
            request.body.extend_from_slice(&record.content);
        }
    }

    /// The variables of the next request, which is not kept, and whether the connection is to be.
    #[track_caller]
    pub fn read_fastcgi_head(&mut self) -> Option<(Request, bool)> {
        let begin = self.read_record()?;
        assert_eq!((begin.kind, begin.id), (BEGIN_REQUEST, ID));
        assert_eq!(begin.content[..2], [0, 1], "the role of a responder");
        let mut variables = Vec::new();
        loop {
            let record = self.read_record().expect("the end of the variables");
            assert_eq!((record.kind, record.id), (PARAMS, ID));
            if record.content.is_empty() {
                let request = Request::of_cgi(pairs(&variables), variables);
                return Some((request, begin.content[2] & 1 == 1));
            }
            variables.extend_from_slice(&record.content);
        }
    }
}

#[track_caller]
fn pairs(mut variables: &[u8]) -> Fields {
    let mut fields = Fields::new();
    while !variables.is_empty() {
        let lengths = [length(&mut variables), length(&mut variables)];
        let [name, value] = lengths.map(|len| {
            let (text, rest) = variables.split_at(len);
            variables = rest;
            text.to_vec()
        });
        fields.push((String::from_utf8(name).expect("a name in UTF-8"), value));
    }
    fields
}

/// A length in one byte, or in four of which the first has its top bit set.
#[track_caller]
fn length(variables: &mut &[u8]) -> usize {
    let bytes = if variables[0] < 0x80 { 1 } else { 4 };
    let (length, rest) = variables.split_at(bytes);
    *variables = rest;
    let all = length
        .iter()
        .fold(0, |sum, &byte| sum << 8 | usize::from(byte));
    if bytes == 1 { all } else { all & 0x7fff_ffff }
}
