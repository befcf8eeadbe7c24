//! TLS over another transport.

mod handshake;
mod stream;

use rustls::{Connection, HandshakeKind, ProtocolVersion};

pub use self::handshake::{
    Answer, AnswerJob, HELLO_BYTES_MAX, Handshake, HandshakeError, Hello, ProcessJob, Processed,
    Unanswered,
};
pub use self::stream::{ByteStream, TlsStream};

/// The version of a session after its handshake, as other servers log it.
#[must_use]
pub fn version(session: &Connection) -> &'static str {
    match session.protocol_version() {
        Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
        _ => "TLSv1.2",
    }
}

/// The cipher suite of a session after its handshake, as it is registered.
#[must_use]
pub fn cipher(session: &Connection) -> &'static str {
    let suite = session.negotiated_cipher_suite();
    suite.and_then(|suite| suite.suite().as_str()).unwrap_or("")
}

/// Whether the session goes on from an earlier one.
#[must_use]
pub fn is_resumed(session: &Connection) -> bool {
    session.handshake_kind() == Some(HandshakeKind::Resumed)
}

#[cfg(test)]
mod tests;
