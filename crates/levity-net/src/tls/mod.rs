//! TLS over another transport.
//!
//! What belongs to a connection is here; certificates and policies are in `levity-tls`. An end
//! without a closing alert is an error of the read, never an end of content. A connection that is
//! dropped says that it ends, unless the last write is incomplete or it was reset. The interface of
//! rustls is the buffered one.

mod handshake;
mod stream;

use rustls::{CipherSuite, Connection, HandshakeKind, ProtocolVersion};

pub use self::handshake::{
    Answer, AnswerJob, HELLO_BYTES_MAX, Handshake, HandshakeError, Hello, ProcessJob, Processed,
    Unanswered,
};
pub use self::stream::TlsStream;

/// Whether the session goes on from an earlier one.
#[must_use]
pub fn is_resumed(session: &Connection) -> bool {
    session.handshake_kind() == Some(HandshakeKind::Resumed)
}

/// The version of the protocol; empty before the client and the server have agreed on one.
#[must_use]
pub fn version(session: &Connection) -> &'static str {
    match session.protocol_version() {
        Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
        Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
        _ => "",
    }
}

/// The cipher suite, by its name in the registry of IANA; empty before the client and the server have agreed on one.
#[must_use]
pub fn cipher(session: &Connection) -> &'static str {
    let suite = session.negotiated_cipher_suite().map(|suite| suite.suite());
    match suite {
        // rustls has names of its own for those of TLS 1.3.
        Some(CipherSuite::TLS13_AES_128_GCM_SHA256) => "TLS_AES_128_GCM_SHA256",
        Some(CipherSuite::TLS13_AES_256_GCM_SHA384) => "TLS_AES_256_GCM_SHA384",
        Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256) => "TLS_CHACHA20_POLY1305_SHA256",
        suite => suite.and_then(|suite| suite.as_str()).unwrap_or_default(),
    }
}

/// The name of a server that the client has asked for, in lower case.
#[must_use]
pub fn asked_name(session: &Connection) -> Option<&str> {
    match session {
        Connection::Server(session) => session.server_name(),
        Connection::Client(_) => None,
    }
}

#[cfg(test)]
mod tests;
