//! Packets from a container: headers, bodies, and requests for more of the request's body.

use super::{PACKET_BYTES_MAX, PACKET_HEADER_BYTES};
use crate::http1::{is_control, is_token};
use crate::{Reject, decimal};

const MAGIC: &[u8] = b"AB";

/// Types of packets.
mod packet {
    pub(super) const SEND_BODY_CHUNK: u8 = 3;
    pub(super) const SEND_HEADERS: u8 = 4;
    pub(super) const END_RESPONSE: u8 = 5;
    pub(super) const GET_BODY_CHUNK: u8 = 6;
    pub(super) const CPONG: u8 = 9;
}

/// Bytes at the start of a body chunk packet: its type and the length of the chunk.
const CHUNK_HEADER_BYTES: usize = 3;

/// The code of a header name is its index in this list, counted from `0xA001`.
const HEADER_NAMES: [&str; 11] = [
    "Content-Type",
    "Content-Language",
    "Content-Length",
    "Date",
    "Last-Modified",
    "Location",
    "Set-Cookie",
    "Set-Cookie2",
    "Servlet-Engine",
    "Status",
    "WWW-Authenticate",
];

/// The upper byte of a code; the length of a name never has this upper byte.
const CODED: u8 = 0xa0;

/// The length of an absent string.
const NULL: u16 = 0xffff;

const TRUNCATED: Reject = Reject::bad_gateway("string longer than its packet");

/// Decoder of one response of a container, or of a CPong. Create a new one for the next; do not use
/// it after an error.
#[derive(Debug, Clone)]
pub struct Reader {
    state: State,
    /// Bytes of the current chunk that have not arrived.
    chunk_left: usize,
    /// A NUL follows the chunk. The reference does not mention it; Tomcat sends one.
    nul_left: bool,
}

/// The packets that may come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Pong,
    Head,
    Body,
    End,
}

/// The result of one call of [`Reader::decode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// Bytes of the input that have been processed, even without a message.
    pub consumed: usize,
    /// `None`: more bytes needed. Call again with the rest of the input followed by more.
    pub message: Option<Message<'a>>,
}

/// A message of a container, under the names of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// Status and headers of the response, once per response.
    SendHeaders(SendHeaders<'a>),
    /// Bytes of the response's body, at least one. A chunk that arrives in pieces gives several of
    /// these.
    SendBodyChunk(&'a [u8]),
    /// The container requests more of the request's body: see [`Upload::grant`](super::Upload::grant).
    GetBodyChunk {
        /// The maximum number of bytes.
        requested: u16,
    },
    /// The response is complete.
    EndResponse {
        /// The connection may carry another request.
        reuse: bool,
    },
    /// The response to a CPing.
    CPong,
}

/// Status and headers of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendHeaders<'a> {
    /// From 200 to 999.
    pub status: u16,
    /// The reason phrase, possibly empty, without control characters other than HTAB. Tomcat
    /// repeats the status here.
    pub message: &'a [u8],
    /// Content-Length. The packets frame the body; if its length differs, the client's connection
    /// must be closed.
    pub content_length: Option<u64>,
    headers: Headers<'a>,
}

impl<'a> SendHeaders<'a> {
    /// The header lines in the order they were sent, with coded names resolved. Each is as valid as
    /// one of [`http1`](crate::http1): the name is a token, the value has no control characters
    /// other than HTAB and no surrounding white space. A Transfer-Encoding among them has no
    /// meaning: the packets frame the body.
    pub fn headers(&self) -> Headers<'a> {
        self.headers
    }
}

/// Names and values of header lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers<'a> {
    fields: Fields<'a>,
    left: u16,
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        // All have been parsed once before.
        self.fields.header().ok()
    }
}

impl Reader {
    /// For the response to a request.
    pub fn response() -> Self {
        Self::new(State::Head)
    }

    /// For the response to a CPing.
    pub fn pong() -> Self {
        Self::new(State::Pong)
    }

    fn new(state: State) -> Self {
        Self {
            state,
            chunk_left: 0,
            nul_left: false,
        }
    }

    /// Decodes up to the end of the next message or of the input, which may be split anywhere. Body
    /// data is not copied, and no call leaves [`PACKET_BYTES_MAX`] or more of the input unconsumed
    /// without a message.
    ///
    /// # Errors
    /// 502 for a violation of the protocol: a wrong magic number, a packet longer than
    /// [`PACKET_BYTES_MAX`] or empty, an unknown type, messages out of order (a body or an end
    /// before the headers, repeated headers, an unrequested CPong), anything after the end, a
    /// string that exceeds its packet or lacks its NUL, a packet longer than its message. Also for
    /// output that must not reach a client: a status below 200 or above 999, a header name that is
    /// no token, a CR, LF, NUL or other control character than HTAB in a value or in the reason, a
    /// Content-Length that is repeated or no number.
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Decoded<'a>, Reject> {
        let mut at = 0;
        while let rest @ [first, ..] = &input[at..] {
            if self.chunk_left > 0 {
                let bytes = self.chunk_left.min(rest.len());
                self.chunk_left -= bytes;
                return Ok(Decoded {
                    consumed: at + bytes,
                    message: Some(Message::SendBodyChunk(&rest[..bytes])),
                });
            }
            if self.nul_left {
                if *first != 0 {
                    return Err(Reject::bad_gateway("chunk without its NUL"));
                }
                self.nul_left = false;
                at += 1;
                continue;
            }
            let Some((bytes, message)) = self.packet(rest)? else {
                break;
            };
            at += bytes;
            if message.is_some() {
                return Ok(Decoded {
                    consumed: at,
                    message,
                });
            }
        }
        Ok(Decoded {
            consumed: at,
            message: None,
        })
    }

    /// The length and the message of the packet at the start of `input`; for a chunk of the body
    /// only the length of its header. `None`: more bytes needed.
    fn packet<'a>(
        &mut self,
        input: &'a [u8],
    ) -> Result<Option<(usize, Option<Message<'a>>)>, Reject> {
        if self.state == State::End {
            return Err(Reject::bad_gateway("bytes after the end of the response"));
        }
        if !MAGIC.starts_with(&input[..input.len().min(MAGIC.len())]) {
            return Err(Reject::bad_gateway("packet without its magic number"));
        }
        let [_, _, high, low, payload @ ..] = input else {
            return Ok(None);
        };
        let payload_bytes = usize::from(u16::from_be_bytes([*high, *low]));
        if payload_bytes == 0 {
            return Err(Reject::bad_gateway("empty packet"));
        }
        if payload_bytes > PACKET_BYTES_MAX - PACKET_HEADER_BYTES {
            return Err(Reject::bad_gateway("packet too long"));
        }
        let Some(&packet_type) = payload.first() else {
            return Ok(None);
        };
        self.check_order(packet_type)?;
        if packet_type == packet::SEND_BODY_CHUNK {
            return self.start_chunk(payload, payload_bytes);
        }
        let Some(payload) = payload.get(..payload_bytes) else {
            return Ok(None);
        };
        let message = self.message(packet_type, Fields(&payload[1..]))?;
        Ok(Some((PACKET_HEADER_BYTES + payload_bytes, Some(message))))
    }

    fn check_order(&self, packet_type: u8) -> Result<(), Reject> {
        let reason = match (self.state, packet_type) {
            (State::Pong, packet::CPONG) => return Ok(()),
            (State::Head, packet::SEND_HEADERS | packet::GET_BODY_CHUNK) => return Ok(()),
            (
                State::Body,
                packet::SEND_BODY_CHUNK | packet::GET_BODY_CHUNK | packet::END_RESPONSE,
            ) => return Ok(()),
            (State::Head, packet::SEND_BODY_CHUNK) => "body before the headers",
            (State::Head, packet::END_RESPONSE) => "end of the response before its headers",
            (State::Body, packet::SEND_HEADERS) => "headers sent twice",
            (_, packet::CPONG) => "CPong without a CPing",
            (State::Pong, packet::SEND_BODY_CHUNK..=packet::GET_BODY_CHUNK) => {
                "no CPong after a CPing"
            }
            _ => "packet of an unknown type",
        };
        Err(Reject::bad_gateway(reason))
    }

    fn start_chunk<'a>(
        &mut self,
        payload: &[u8],
        payload_bytes: usize,
    ) -> Result<Option<(usize, Option<Message<'a>>)>, Reject> {
        let [_, high, low, ..] = payload else {
            return Ok(None);
        };
        let chunk_bytes = usize::from(u16::from_be_bytes([*high, *low]));
        self.nul_left = match payload_bytes.checked_sub(CHUNK_HEADER_BYTES + chunk_bytes) {
            Some(0) => false,
            Some(1) => true,
            _ => return Err(Reject::bad_gateway("chunk does not fill its packet")),
        };
        self.chunk_left = chunk_bytes;
        Ok(Some((PACKET_HEADER_BYTES + CHUNK_HEADER_BYTES, None)))
    }

    fn message<'a>(
        &mut self,
        packet_type: u8,
        mut fields: Fields<'a>,
    ) -> Result<Message<'a>, Reject> {
        let message = match packet_type {
            packet::SEND_HEADERS => {
                self.state = State::Body;
                Message::SendHeaders(fields.send_headers()?)
            }
            packet::END_RESPONSE => {
                self.state = State::End;
                // Booleans are 0 and 1. For any other value it is safe to close the connection.
                let reuse = fields.byte()? == 1;
                Message::EndResponse { reuse }
            }
            packet::GET_BODY_CHUNK => {
                let requested = fields.integer()?;
                Message::GetBodyChunk { requested }
            }
            _ => {
                self.state = State::End;
                Message::CPong
            }
        };
        if fields.0.is_empty() {
            Ok(message)
        } else {
            Err(Reject::bad_gateway("packet longer than its message"))
        }
    }
}

/// The rest of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Consumes everything up to the last header line.
    fn send_headers(&mut self) -> Result<SendHeaders<'a>, Reject> {
        let status = self.integer()?;
        // There are no interim responses: after one, the headers of the response would be repeated
        // ones.
        if !(200..=999).contains(&status) {
            return Err(Reject::bad_gateway("status out of range"));
        }
        let message = self.text()?;
        let left = self.integer()?;
        let headers = Headers {
            fields: *self,
            left,
        };
        let mut content_length = None;
        for _ in 0..left {
            let (name, value) = self.header()?;
            if name.eq_ignore_ascii_case(b"content-length") {
                let length =
                    decimal::parse(value).ok_or(Reject::bad_gateway("bad Content-Length"))?;
                if content_length.replace(length).is_some() {
                    return Err(Reject::bad_gateway("repeated Content-Length"));
                }
            }
        }
        Ok(SendHeaders {
            status,
            message,
            content_length,
            headers,
        })
    }

    fn header(&mut self) -> Result<(&'a [u8], &'a [u8]), Reject> {
        Ok((self.name()?, self.text()?))
    }

    fn name(&mut self) -> Result<&'a [u8], Reject> {
        let length = self.integer()?;
        let [upper, lower] = length.to_be_bytes();
        if upper == CODED {
            let index = usize::from(lower).checked_sub(1);
            return index
                .and_then(|index| HEADER_NAMES.get(index))
                .map(|name| name.as_bytes())
                .ok_or(Reject::bad_gateway("unknown code of a header name"));
        }
        let name = self.string(length)?;
        if is_token(name) {
            Ok(name)
        } else {
            Err(Reject::bad_gateway("bad header name"))
        }
    }

    /// A string without control characters other than HTAB and without surrounding white space;
    /// empty if absent.
    fn text(&mut self) -> Result<&'a [u8], Reject> {
        let text = match self.integer()? {
            NULL => b"",
            length => self.string(length)?,
        };
        if text.iter().any(|&byte| is_control(byte)) {
            return Err(Reject::bad_gateway(
                "control character in the header section",
            ));
        }
        Ok(text.trim_ascii())
    }

    fn string(&mut self, length: u16) -> Result<&'a [u8], Reject> {
        match self.0.split_at_checked(usize::from(length)) {
            Some((string, [0, rest @ ..])) => {
                self.0 = rest;
                Ok(string)
            }
            Some((_, [_, ..])) => Err(Reject::bad_gateway("string without its NUL")),
            _ => Err(TRUNCATED),
        }
    }

    fn integer(&mut self) -> Result<u16, Reject> {
        Ok(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    fn byte(&mut self) -> Result<u8, Reject> {
        let (byte, rest) = self
            .0
            .split_first()
            .ok_or(Reject::bad_gateway("packet shorter than its message"))?;
        self.0 = rest;
        Ok(*byte)
    }
}
