//! TLS over another transport.

mod handshake;
mod stream;

use rustls::{Connection, HandshakeKind};

pub use self::handshake::{
    Answer, AnswerJob, HELLO_BYTES_MAX, Handshake, HandshakeError, Hello, ProcessJob, Processed,
    Unanswered,
};
pub use self::stream::{ByteStream, TlsStream};

/// Whether the session goes on from an earlier one.
#[must_use]
pub fn is_resumed(session: &Connection) -> bool {
    session.handshake_kind() == Some(HandshakeKind::Resumed)
}

#[cfg(test)]
mod tests;
