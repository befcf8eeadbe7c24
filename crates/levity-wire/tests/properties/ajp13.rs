//! AJP13.

use levity_wire::ajp13::{
    BODY_BYTES_MAX, Head, Message, PACKET_BYTES_MAX, Reader, Upload, write_head,
};
use levity_wire::http1::{Limits, Reject, RequestHead, host_name, parse_request};

use super::cuts;

/// A response of a container has the same meaning however the input is split, and is safe to
/// forward. An accepted request has the same meaning to a container, or does not fit. Any bytes
/// survive as a body, in both directions.
pub fn ajp13(bytes: &[u8]) {
    for reader in [Reader::response(), Reader::pong()] {
        let whole = ajp13_in_pieces(reader.clone(), [bytes]);
        assert_eq!(ajp13_in_pieces(reader.clone(), bytes.chunks(1)), whole);
        for cut in cuts(bytes.len()) {
            let (start, rest) = bytes.split_at(cut);
            let read = ajp13_in_pieces(reader.clone(), [start, rest]);
            assert_eq!(read, whole, "cut at {cut}");
        }
        whole.is_sound(bytes);
    }
    let sent = ajp13_in_pieces(Reader::response(), [&response_with(bytes)[..]]);
    assert_eq!((&sent.body[..], sent.end), (bytes, Ok(true)));
    let mut head = RequestHead::default();
    if parse_request(bytes, &mut head, &Limits::default()) == Ok(true) {
        request_survives(bytes, &head);
    }
    body_survives(bytes);
}

type Line = (Vec<u8>, Vec<u8>);

/// Everything that a container sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Response {
    /// Status, reason, header lines.
    head: Option<(u16, Vec<u8>, Vec<Line>)>,
    body: Vec<u8>,
    asked: Vec<u16>,
    reuse: bool,
    pong: bool,
    /// Whether the response is complete.
    pub end: Result<bool, Reject>,
}

impl Response {
    fn is_sound(&self, input: &[u8]) {
        assert!(self.body.len() <= input.len());
        assert!(self.head.is_some() || self.body.is_empty() && !self.reuse);
        assert!(self.end != Ok(true) || self.head.is_some() != self.pong);
        let Some((status, reason, lines)) = &self.head else {
            return;
        };
        assert!((200..=999).contains(status));
        let texts = lines.iter().flat_map(|(name, value)| [name, value]);
        for text in texts.chain([reason]) {
            assert!(!text.iter().any(|byte| b"\r\n\0".contains(byte)));
            assert_eq!(text.trim_ascii(), text);
        }
        for (name, _) in lines {
            assert!(
                name.iter()
                    .all(|&byte| byte.is_ascii_graphic() && byte != b':')
            );
            assert!(!name.is_empty());
        }
    }
}

/// Keeps unconsumed input, as a reader with a buffer does.
pub fn ajp13_in_pieces<'a>(
    mut reader: Reader,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Response {
    let mut response = Response {
        head: None,
        body: Vec::new(),
        asked: Vec::new(),
        reuse: false,
        pong: false,
        end: Ok(false),
    };
    let mut kept = Vec::new();
    for piece in pieces {
        kept.extend_from_slice(piece);
        match read_all(&mut reader, &kept, &mut response) {
            Ok(consumed) => drop(kept.drain(..consumed)),
            Err(reject) => {
                response.end = Err(reject);
                return response;
            }
        }
        assert!(kept.len() < PACKET_BYTES_MAX);
    }
    response
}

fn read_all(reader: &mut Reader, input: &[u8], response: &mut Response) -> Result<usize, Reject> {
    let mut at = 0;
    loop {
        let decoded = reader.decode(&input[at..])?;
        at += decoded.consumed;
        let owned = |(name, value): (&[u8], &[u8])| (name.to_vec(), value.to_vec());
        match decoded.message {
            None => return Ok(at),
            Some(Message::SendHeaders(head)) => {
                assert_eq!(response.head, None);
                let lines = head.headers().map(owned).collect();
                response.head = Some((head.status, head.message.to_vec(), lines));
            }
            Some(Message::SendBodyChunk(data)) => response.body.extend_from_slice(data),
            Some(Message::GetBodyChunk { requested }) => response.asked.push(requested),
            Some(Message::EndResponse { reuse }) => {
                (response.reuse, response.end) = (reuse, Ok(true));
            }
            Some(Message::CPong) => (response.pong, response.end) = (true, Ok(true)),
        }
    }
}

fn response_with(body: &[u8]) -> Vec<u8> {
    let mut response = packet(b"AB", b"\x04\x00\xc8\x00\x00\x00\x00\x00");
    for (number, chunk) in body.chunks(13).enumerate() {
        let bytes = chunk.len() as u8;
        // With the NUL of Tomcat, and without it as in the reference.
        let nul = &[0u8][..number % 2];
        response.extend(packet(b"AB", &[&[3, 0, bytes][..], chunk, nul].concat()));
    }
    response.extend(packet(b"AB", &[5, 1]));
    response
}

fn packet(magic: &[u8], payload: &[u8]) -> Vec<u8> {
    [magic, &(payload.len() as u16).to_be_bytes(), payload].concat()
}

fn request_survives(bytes: &[u8], parsed: &RequestHead) {
    let host = parsed.host.map(|host| host.of(bytes)).unwrap_or_default();
    let host = host_name(host).unwrap_or_default();
    let head = Head {
        method: parsed.method_span.of(bytes),
        version: parsed.version,
        path: parsed.path.of(bytes),
        query: parsed.query.map(|query| query.of(bytes)),
        remote_address: b"192.0.2.7",
        remote_port: Some(1024),
        server_name: host.as_bytes(),
        server_port: 80,
        secure: false,
        secret: Some(b"s3cret"),
    };
    let lines: Vec<_> = parsed
        .headers
        .iter()
        .map(|line| (line.name.of(bytes), line.value.of(bytes)))
        .collect();
    let mut out = Vec::new();
    if write_head(&head, lines.iter().copied(), &mut out).is_err() {
        let rooted = head.path.starts_with(b"/");
        assert!(out.is_empty() && (!rooted || bytes.len() > PACKET_BYTES_MAX / 2));
        return;
    }
    assert!(out.len() <= PACKET_BYTES_MAX);
    let mut packet = Packet::of(&out);
    assert_eq!(packet.take(1), [2]);
    let method = packet.take(1)[0];
    assert_eq!(
        packet.string(),
        format!("{:?}", head.version)
            .replace("Http1", "HTTP/1.")
            .as_bytes()
    );
    assert_eq!(packet.string(), head.path);
    assert_eq!(packet.string(), head.remote_address);
    assert_eq!(packet.string(), head.remote_address);
    assert_eq!(packet.string(), head.server_name);
    assert_eq!((packet.integer(), packet.take(1)[0]), (80, 0));
    assert_eq!(usize::from(packet.integer()), lines.len());
    for (name, value) in lines {
        assert!(packet.header_name().eq_ignore_ascii_case(name));
        assert_eq!(packet.string(), value);
    }
    if let Some(query) = head.query {
        assert_eq!((packet.take(1)[0], packet.string()), (5, query));
    }
    assert_eq!(packet.take(1), [10]);
    assert_eq!(packet.string(), b"AJP_REMOTE_PORT");
    assert_eq!(packet.string(), b"1024");
    assert_eq!((packet.take(1)[0], packet.string()), (12, &b"s3cret"[..]));
    if method == 0xff {
        assert_eq!((packet.take(1)[0], packet.string()), (13, head.method));
    }
    assert_eq!(packet.take(1), [0xff]);
    assert!(packet.0.is_empty());
}

/// Any data arrives, whatever amounts the container requests.
fn body_survives(data: &[u8]) {
    let mut upload = Upload::new(Some(data.len() as u64));
    let (mut rest, mut out) = (data, Vec::new());
    let mut requested = 1u16;
    while !rest.is_empty() {
        let most = upload.credit();
        let sent = upload.write(rest, &mut out);
        assert!(sent <= most && most <= BODY_BYTES_MAX);
        rest = &rest[sent..];
        assert_eq!(upload.grant(requested), Ok(()));
        requested = requested.saturating_mul(3);
    }
    assert_eq!(upload.write_end(&mut out), !data.is_empty());
    let (mut found, mut packets) = (Vec::new(), &out[..]);
    while let [0x12, 0x34, high, low, after @ ..] = packets {
        let (payload, after) = after.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        assert_eq!(payload.is_empty(), after.is_empty());
        if let [high, low, data @ ..] = payload {
            assert_eq!(usize::from(u16::from_be_bytes([*high, *low])), data.len());
            found.extend_from_slice(data);
        }
        packets = after;
    }
    assert!(packets.is_empty());
    assert_eq!(found, data);
}

/// A decoder of our packets, as in a container.
struct Packet<'a>(&'a [u8]);

impl<'a> Packet<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        let mut packet = Self(bytes);
        assert_eq!(packet.take(2), [0x12, 0x34]);
        assert_eq!(usize::from(packet.integer()), packet.0.len());
        packet
    }

    fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(bytes);
        self.0 = rest;
        taken
    }

    fn integer(&mut self) -> u16 {
        let bytes = self.take(2);
        u16::from_be_bytes([bytes[0], bytes[1]])
    }

    fn string(&mut self) -> &'a [u8] {
        let length = self.integer();
        self.string_of(length)
    }

    fn string_of(&mut self, length: u16) -> &'a [u8] {
        let string = self.take(usize::from(length));
        assert_eq!(self.take(1), [0]);
        string
    }

    fn header_name(&mut self) -> &'a [u8] {
        const NAMES: &str = "accept accept-charset accept-encoding accept-language authorization \
            connection content-type content-length cookie cookie2 host pragma referer user-agent";
        let length = self.integer();
        match length.checked_sub(0xa001) {
            Some(place) => {
                let name = NAMES.split_ascii_whitespace().nth(usize::from(place));
                name.expect("a known code").as_bytes()
            }
            None => self.string_of(length),
        }
    }
}
