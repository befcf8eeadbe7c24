//! Certificates, and what a handshake needs of them. Knows no HTTP and no sockets.
//!
//! What outlives connections is here: certificates, one policy per site (`rustls::ServerConfig`),
//! keys of tickets. Files are opened by the control thread only.
//!
//! rustls trusts an authority for ever, so a chain is verified once more without the authorities
//! that are not valid when one of them is not (`authority.rs`). Responses of OCSP are verified
//! here, without I/O (`ocsp.rs`).
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![forbid(unsafe_code)]

mod authority;
mod certificate;
pub mod challenge;
mod client;
pub mod files;
mod key_kind;
mod local_ca;
pub mod ocsp;
mod pem;
mod server;
mod sessions;
mod tickets;
mod time_in_words;
mod words;

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;

pub use authority::{Authority, authorities};
pub use certificate::{Certificate, Validity, can_be_asked_for, identity, passed_over};
pub use client::{Trust, check_system_authorities, client_config};
pub use local_ca::LocalCa;
pub use rustls::pki_types::{CertificateDer, ServerName};
pub use rustls::{ClientConfig, ServerConfig};
pub use server::{ClientAuth, EARLY_DATA_BYTES_MAX, NamedKeys, Policy, Server, SitePolicy};
pub use tickets::{ROTATION as TICKET_KEY_ROTATION, TicketKeys};
pub use time_in_words::in_words;
pub use words::{Cause, cause, handshake_error, is_of_unknown_authority, reason, reason_for};

/// The name of HTTP/2 in a handshake (ALPN, RFC 7301).
pub const ALPN_HTTP2: &[u8] = b"h2";

/// That of HTTP/1.1.
const ALPN_HTTP1: &[u8] = b"http/1.1";

/// That of HTTP/1.0, which some clients offer alone: curl with `--http1.0`.
const ALPN_HTTP10: &[u8] = b"http/1.0";

/// What computes: AWS-LC, with key exchanges that resist quantum computers first.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    PROVIDER.clone()
}
