//! Certificates, and what a handshake needs of them. Knows no HTTP and no sockets.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![forbid(unsafe_code)]

mod certificate;
mod client;
mod local_ca;
mod server;
mod sessions;
mod tickets;
mod words;

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;

pub use certificate::{Certificate, Identity, authorities, bare};
pub use client::{Trust, client_config};
pub use local_ca::LocalCa;
pub use rustls::ClientConfig;
pub use rustls::pki_types::ServerName;
pub use server::{ClientAuth, ClientAuthId, EARLY_DATA_BYTES_MAX, Policy, Server, SitePolicy};
pub use tickets::{ROTATION as TICKET_KEY_ROTATION, TicketKeys};
pub use words::reason;

/// The maximum size of a file with certificates or a key, in bytes. A larger one is most likely another file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The versions of HTTP by their names in a handshake (ALPN, RFC 7301), the preferred one first.
fn alpn_protocols() -> Vec<Vec<u8>> {
    vec![b"http/1.1".to_vec()]
}

/// What computes: AWS-LC, with key exchanges that resist quantum computers first.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    PROVIDER.clone()
}

/// The content of a file. Blocks.
///
/// # Errors
/// In words, with the path.
fn read(path: &std::path::Path) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(path);
    let read = opened.and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    let name = path.display();
    read.map_err(|error| format!("{name} cannot be read: {error}"))?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(format!("{name} has more than {FILE_BYTES_MAX} bytes")),
        false => Ok(bytes),
    }
}
