//! Packets of AJP13 as a container sends and reads them.

use super::{Conn, Request};
use crate::support::wire::Fields;

pub const CPONG: [u8; 5] = [b'A', b'B', 0, 1, 9];

const FORWARD_REQUEST: u8 = 2;
const CPING: u8 = 10;

/// Methods by their codes, counted from 1; those that tests use.
const METHODS: [&str; 6] = ["OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE"];

/// Header names by the lower byte of their codes, counted from 1.
const HEADER_NAMES: [&str; 14] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "authorization",
    "connection",
    "content-type",
    "content-length",
    "cookie",
    "cookie2",
    "host",
    "pragma",
    "referer",
    "user-agent",
];

/// Bytes of the body that a container asks for at once, as Tomcat does.
const CHUNK_BYTES_MAX: u16 = 8186;

/// A packet of a container.
pub fn packet(payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u16).to_be_bytes();
    [&[b'A', b'B', len[0], len[1]], payload].concat()
}

fn string(text: &str) -> Vec<u8> {
    let len = (text.len() as u16).to_be_bytes();
    [&len, text.as_bytes(), &[0]].concat()
}

/// The head of an answer.
pub fn send_headers(status: u16, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut payload = vec![4];
    payload.extend(status.to_be_bytes());
    payload.extend(string(&status.to_string()));
    payload.extend((headers.len() as u16).to_be_bytes());
    for (name, value) in headers {
        payload.extend([string(name), string(value)].concat());
    }
    packet(&payload)
}

/// A part of the body.
pub fn body_chunk(bytes: &[u8]) -> Vec<u8> {
    let len = (bytes.len() as u16).to_be_bytes();
    packet(&[&[3, len[0], len[1]], bytes, &[0]].concat())
}

pub fn get_body_chunk(bytes: u16) -> Vec<u8> {
    let len = bytes.to_be_bytes();
    packet(&[6, len[0], len[1]])
}

/// The end of an answer.
pub fn end(reuse: bool) -> Vec<u8> {
    packet(&[5, u8::from(reuse)])
}

impl Conn {
    /// The next packet of the server without its header; `None` when the peer has closed before.
    #[track_caller]
    pub fn read_packet(&mut self) -> Option<Vec<u8>> {
        if !self.has_more() {
            return None;
        }
        let header = self.wire.take(4).expect("the header of a packet");
        assert_eq!(header[..2], [0x12, 0x34], "the magic number");
        let len = u16::from_be_bytes([header[2], header[3]]);
        Some(self.wire.take(len.into()).expect("a whole packet"))
    }

    /// The head of the next request, which is not kept. Pings before it are answered.
    #[track_caller]
    pub fn read_ajp_head(&mut self) -> Option<Request> {
        loop {
            let packet = self.read_packet()?;
            match packet[0] {
                CPING => self.send(CPONG),
                FORWARD_REQUEST => return Some(Packet(&packet).request()),
                kind => panic!("a packet of type {kind}"),
            };
        }
    }

    /// The next request with its body, which is asked for piece by piece and kept.
    #[track_caller]
    pub fn read_ajp(&mut self) -> Option<Request> {
        let mut request = self.read_ajp_head()?;
        let length = request.field("content-length").map(|length| {
            let length: usize = length.parse().expect("a Content-Length");
            length
        });
        let chunked = length.is_none() && request.field("transfer-encoding").is_some();
        let mut wanted = length.is_some_and(|length| length > 0);
        while wanted || chunked {
            if !wanted || !request.body.is_empty() {
                self.send(get_body_chunk(CHUNK_BYTES_MAX));
            }
            let data = self.read_packet().expect("a packet of the body");
            let Some((len, data)) = data.split_at_checked(2) else {
                break;
            };
            assert_eq!(
                usize::from(u16::from_be_bytes([len[0], len[1]])),
                data.len()
            );
            request.body.extend_from_slice(data);
            wanted = length.is_some_and(|length| request.body.len() < length);
        }
        Some(self.keep(request))
    }
}

/// What is left of the head of a request.
struct Packet<'a>(&'a [u8]);

impl Packet<'_> {
    #[track_caller]
    fn request(mut self) -> Request {
        let head = self.0.to_vec();
        let method = [self.byte(), self.byte()][1];
        let protocol = self.string();
        let target = self.string();
        let mut attributes = vec![("protocol".to_owned(), protocol.into_bytes())];
        for name in ["remote_addr", "remote_host", "server_name"] {
            attributes.push((name.to_owned(), self.string().into_bytes()));
        }
        attributes.push(("server_port".to_owned(), self.integer().to_string().into()));
        attributes.push(("is_ssl".to_owned(), self.byte().to_string().into()));
        let count = self.integer();
        let fields = (0..count).map(|_| self.header()).collect();
        self.attributes(&mut attributes);
        let coded = METHODS.get(usize::from(method).wrapping_sub(1));
        let mut request = Request {
            target,
            head,
            fields,
            attributes,
            ..Request::default()
        };
        let stored = request.attribute("stored_method").unwrap_or_default();
        request.method = coded.copied().unwrap_or(stored).to_owned();
        request
    }

    fn header(&mut self) -> (String, Vec<u8>) {
        let name = match self.0[0] {
            0xa0 => HEADER_NAMES[usize::from(self.integer() & 0xff) - 1].to_owned(),
            _ => self.string(),
        };
        (name, self.string().into_bytes())
    }

    fn attributes(&mut self, to: &mut Fields) {
        loop {
            let name = match self.byte() {
                0xff => return,
                5 => "query_string".to_owned(),
                10 => self.string(),
                12 => "secret".to_owned(),
                13 => "stored_method".to_owned(),
                code => panic!("an attribute of code {code}"),
            };
            to.push((name, self.string().into_bytes()));
        }
    }

    fn byte(&mut self) -> u8 {
        let (byte, rest) = self.0.split_first().expect("a longer packet");
        self.0 = rest;
        *byte
    }

    fn integer(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    fn string(&mut self) -> String {
        let len = self.integer();
        let (text, rest) = self.0.split_at(len.into());
        assert_eq!(rest[0], 0, "a NUL behind a string");
        self.0 = &rest[1..];
        String::from_utf8(text.to_vec()).expect("a string in UTF-8")
    }
}
