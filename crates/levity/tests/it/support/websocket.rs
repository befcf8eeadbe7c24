//! The client's side of a WebSocket (RFC 6455).

use super::{Answer, Client, head};

/// From the RFC's example, with the answer that belongs to it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// The headers of the opening handshake.
pub const HANDSHAKE: [(&str, &str); 4] = [
    ("Upgrade", "websocket"),
    ("Connection", "Upgrade"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", KEY),
];

const TEXT: u8 = 1;
const CLOSE: u8 = 8;

/// Lengths up to this one are in the second byte of a frame; 126 stands for two more bytes, 127 for
/// eight.
const SHORT_MAX: usize = 125;

/// Any mask will do in a test.
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A connection behind its handshake.
pub struct WebSocket {
    client: Client,
    /// What the server answered to the handshake.
    pub answer: Answer,
}

impl WebSocket {
    #[track_caller]
    pub fn open(client: Client, path: &str) -> Self {
        Self::open_saying(client, path, &[])
    }

    /// Sends messages directly behind the request, without waiting for its answer.
    #[track_caller]
    pub fn open_saying(client: Client, path: &str, messages: &[&str]) -> Self {
        let messages = messages.iter().map(|text| frame(TEXT, text.as_bytes()));
        Self::open_sending(client, path, &[], &messages.collect::<Vec<_>>().concat())
    }

    /// With further headers.
    #[track_caller]
    pub fn open_with(client: Client, path: &str, headers: &[(&str, &str)]) -> Self {
        Self::open_sending(client, path, headers, &[])
    }

    fn open_sending(
        mut client: Client,
        path: &str,
        headers: &[(&str, &str)],
        frames: &[u8],
    ) -> Self {
        let headers = [&HANDSHAKE[..], headers].concat();
        let mut sent = head("GET", path, &headers).into_bytes();
        sent.extend_from_slice(frames);
        client.send(sent);
        let answer = client.receive();
        answer.assert_status(101);
        assert_eq!(answer.header("sec-websocket-accept"), Some(ACCEPT));
        Self { client, answer }
    }

    #[track_caller]
    pub fn send(&mut self, text: &str) {
        self.client.send(frame(TEXT, text.as_bytes()));
    }

    /// Sends bytes as they are.
    #[track_caller]
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.client.send(bytes);
    }

    /// Says that it will close, and why.
    #[track_caller]
    pub fn send_close(&mut self, code: u16) {
        self.client.send(frame(CLOSE, &code.to_be_bytes()));
    }

    /// The next message, which must be a text.
    #[track_caller]
    pub fn receive(&mut self) -> String {
        let (kind, content) = self.frame();
        assert_eq!(kind, TEXT, "{}", content.escape_ascii());
        String::from_utf8(content).expect("a text in UTF-8")
    }

    /// The code with which the server closes, which must be what comes next.
    #[track_caller]
    pub fn receive_close(&mut self) -> u16 {
        let (kind, content) = self.frame();
        assert_eq!(kind, CLOSE, "{}", content.escape_ascii());
        u16::from_be_bytes([content[0], content[1]])
    }

    /// Expects no further byte, and the end of the connection.
    #[track_caller]
    pub fn assert_closed(&mut self) {
        self.client.assert_closed();
    }

    #[track_caller]
    fn frame(&mut self) -> (u8, Vec<u8>) {
        let (first, content) = self.receive_frame();
        (first & 0x0f, content)
    }

    /// The first byte of the next frame, and its content.
    #[track_caller]
    pub fn receive_frame(&mut self) -> (u8, Vec<u8>) {
        let head = self.client.read_exactly(2);
        let more = match head[1] {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let len = self.client.read_exactly(more);
        let len = len
            .iter()
            .fold(0, |len, &byte| len << 8 | usize::from(byte));
        let len = if more == 0 { head[1].into() } else { len };
        (head[0], self.client.read_exactly(len))
    }
}

/// A whole message in one frame.
pub fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
    let len = content.len();
    let mut frame = vec![0x80 | kind];
    match u16::try_from(len) {
        _ if len <= SHORT_MAX => frame.push(0x80 | len as u8),
        Ok(len) => frame.extend([&[0x80 | 126][..], &len.to_be_bytes()].concat()),
        Err(_) => frame.extend([&[0x80 | 127][..], &(len as u64).to_be_bytes()].concat()),
    }
    frame.extend(MASK);
    let masked = content.iter().zip(MASK.into_iter().cycle());
    frame.extend(masked.map(|(byte, mask)| byte ^ mask));
    frame
}
