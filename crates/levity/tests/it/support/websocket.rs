//! The client's side of a WebSocket (RFC 6455), for short messages.

use super::{Answer, Client};

/// From the RFC's example, with the answer that belongs to it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

const TEXT: u8 = 1;
const CLOSE: u8 = 8;

/// A frame's length in its first bytes; longer ones have it elsewhere.
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
    pub fn open(mut client: Client, path: &str) -> Self {
        let headers = [
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", KEY),
        ];
        let answer = client.get_with(path, &headers);
        answer.assert_status(101);
        assert_eq!(answer.header("sec-websocket-accept"), Some(ACCEPT));
        Self { client, answer }
    }

    #[track_caller]
    pub fn send(&mut self, text: &str) {
        assert!(text.len() <= SHORT_MAX, "a long message");
        let mut frame = vec![0x80 | TEXT, 0x80 | text.len() as u8];
        frame.extend(MASK);
        let masked = text.bytes().zip(MASK.into_iter().cycle());
        frame.extend(masked.map(|(byte, mask)| byte ^ mask));
        self.client.send(frame);
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

    #[track_caller]
    fn frame(&mut self) -> (u8, Vec<u8>) {
        let head = self.client.read_exactly(2);
        let len = usize::from(head[1]);
        assert!(len <= SHORT_MAX, "a long or masked frame");
        (head[0] & 0x0f, self.client.read_exactly(len))
    }
}
