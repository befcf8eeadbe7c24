//! A client that writes frames by hand.

use levity_wire::http2::{
    CONNECTION_WINDOW_BYTES, Connection, ErrorCode, Event, Failure, FieldBlock, PREFACE,
};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const PRIORITY_UPDATE: u8 = 16;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;
pub const WITH_PRIORITY: u8 = 32;
/// A request without a body, in one frame.
pub const WHOLE: u8 = END_STREAM | END_HEADERS;

pub const HEAD_BYTES_MAX: usize = 16 * 1024;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Fields without compression.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            // Lengths of up to two bytes.
            match text.len() {
                bytes @ 0..127 => block.push(bytes as u8),
                bytes => {
                    let mut rest = bytes - 127;
                    block.push(127);
                    while rest >= 128 {
                        block.push(rest as u8 | 128);
                        rest >>= 7;
                    }
                    block.push(rest as u8);
                }
            }
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

pub const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "http"),
    (":path", "/a"),
    (":authority", "h"),
];

pub const POST: [(&str, &str); 4] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/a"),
    (":authority", "h"),
];

pub fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, WHOLE, stream, &block(&GET))
}

/// A request whose body follows.
pub fn post(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &block(&POST))
}

pub fn with(fields: &[(&'static str, &'static str)]) -> Vec<u8> {
    let all: Vec<_> = GET.iter().chain(fields).copied().collect();
    frame(HEADERS, WHOLE, 1, &block(&all))
}

/// A frame that the server has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Sent {
    pub fn number(&self) -> u32 {
        u32::from_be_bytes(self.payload[..4].try_into().expect("a number"))
    }
}

pub fn sent(mut out: &[u8]) -> Vec<Sent> {
    let mut frames = Vec::new();
    while !out.is_empty() {
        let bytes = u32::from_be_bytes([0, out[0], out[1], out[2]]) as usize;
        frames.push(Sent {
            kind: out[3],
            flags: out[4],
            stream: u32::from_be_bytes(out[5..9].try_into().expect("a number")),
            payload: out[9..9 + bytes].to_vec(),
        });
        out = &out[9 + bytes..];
    }
    frames
}

/// A connection after its preface, with the largest window. What it has said so far is dropped.
pub fn open() -> Connection {
    let mut connection = Connection::new(HEAD_BYTES_MAX, 7);
    connection.set_receive_window(CONNECTION_WINDOW_BYTES);
    let start = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    assert_eq!(connection.next(&mut &start[..]), Ok(None));
    connection.out().clear();
    connection
}

/// What became of the bytes of a client: events as words, the frames in return, and the failure.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub events: Vec<String>,
    pub sent: Vec<Sent>,
    pub failure: Option<Failure>,
}

impl Outcome {
    /// The connection has ended with `code`.
    #[track_caller]
    pub fn assert_failed(&self, code: ErrorCode) {
        assert_eq!(
            self.failure.map(|failure| failure.code),
            Some(code),
            "{self:?}"
        );
        let last = self.sent.last().expect("a frame");
        assert_eq!((last.kind, last.stream), (GOAWAY, 0));
        assert_eq!(last.payload[4..8], (code as u32).to_be_bytes());
    }

    /// Only `stream` has ended, with `code`.
    #[track_caller]
    pub fn assert_reset(&self, stream: u32, code: ErrorCode) {
        assert_eq!(self.failure, None, "{self:?}");
        let is_reset = |frame: &&Sent| frame.kind == RST_STREAM && frame.stream == stream;
        let reset = self.sent.iter().find(is_reset);
        assert_eq!(reset.map(Sent::number), Some(code as u32), "{self:?}");
    }

    #[track_caller]
    pub fn assert_events(&self, events: &[&str]) {
        assert_eq!(self.failure, None, "{self:?}");
        assert_eq!(self.events, events);
    }
}

/// Passes `bytes` to `connection`, in parts of at most `part`.
pub fn feed(connection: &mut Connection, bytes: &[u8], part: usize) -> Outcome {
    let mut outcome = Outcome {
        events: Vec::new(),
        sent: Vec::new(),
        failure: None,
    };
    for mut part in bytes.chunks(part) {
        loop {
            match connection.next(&mut part) {
                Ok(None) => break,
                Ok(Some(event)) => {
                    let head = || String::new();
                    let text = say(&event, &mut outcome.events, head());
                    let text = match event {
                        Event::Request { .. } => {
                            let head = String::from_utf8_lossy(connection.head());
                            format!("{text} {}", head.replace("\r\n", "|"))
                        }
                        Event::Trailers { .. } => {
                            let trailers = connection.take_trailers();
                            let fields = trailers.fields().map(|(name, value)| {
                                let [name, value] = [name, value].map(String::from_utf8_lossy);
                                format!(" {name}={value}")
                            });
                            format!("{text}{}", fields.collect::<String>())
                        }
                        _ => text,
                    };
                    outcome.events.extend((!text.is_empty()).then_some(text));
                }
                Err(failure) => {
                    outcome.failure = Some(failure);
                    outcome.sent = sent(connection.out());
                    return outcome;
                }
            }
        }
        assert!(part.is_empty());
    }
    outcome.sent = sent(connection.out());
    outcome
}

/// An event in words. Parts of a body are joined with those before.
fn say(event: &Event<'_>, before: &mut [String], mut text: String) -> String {
    match event {
        Event::Request {
            stream,
            ends,
            is_tunnel,
        } => {
            text = format!("request {stream}");
            for (is, word) in [(ends, " whole"), (is_tunnel, " tunnel")] {
                text += if *is { word } else { "" };
            }
        }
        Event::Data {
            stream,
            bytes,
            ends,
        } => {
            let part = String::from_utf8_lossy(bytes);
            let end = if *ends { "." } else { "" };
            let start = format!("data {stream} ");
            match before.last_mut() {
                Some(last) if last.starts_with(&start) => *last += &format!("{part}{end}"),
                _ => text = format!("{start}{part}{end}"),
            }
        }
        Event::Trailers { stream } => text = format!("trailers {stream}"),
        Event::Malformed { stream } => text = format!("malformed {stream}"),
        Event::Reset { stream } => text = format!("reset {stream}"),
        Event::Priority { stream } => text = format!("priority {stream}"),
        Event::Window { stream: None } => text = "window".to_owned(),
        Event::Window {
            stream: Some(stream),
        } => text = format!("window {stream}"),
    }
    text
}

/// Passes the frames to a new connection at once, and to another byte by byte: the same has to become of them.
#[track_caller]
pub fn receive(frames: &[Vec<u8>]) -> Outcome {
    let bytes = frames.concat();
    let [whole, cut] = [bytes.len(), 1].map(|part| feed(&mut open(), &bytes, part.max(1)));
    assert_eq!(whole, cut);
    whole
}

/// The header section of a response.
pub fn fields() -> Vec<u8> {
    let mut block = FieldBlock::default();
    block.status(200);
    block.field(b"Server", b"levity");
    block.field(b"X-A", b"b");
    block.into_buffer()
}
