//! Connects to a backend.

use std::io;

use levity_net::Transport;

use super::Upstream;
use super::backend::Backend;

/// Connects to `backend`, one of `upstream`; with TLS, if the upstream has it. The caller limits the time.
///
/// # Errors
/// As connect(2); `InvalidData` for a failed handshake of TLS.
pub async fn connect(upstream: &Upstream, backend: &Backend) -> io::Result<Transport> {
    let first = levity_net::connect(&backend.address).await;
    let transport = match (first, backend.at.second_address()) {
        (Err(error), Some(second)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            // The first error says more where this machine has no IPv6.
            levity_net::connect(&second).await.map_err(|_| error)?
        }
        (first, _) => first?,
    };
    match &upstream.tls {
        // Boxed: the handshake needs more memory than most upstreams have.
        Some(tls) => Box::pin(tls.encrypt(transport, backend)).await,
        None => Ok(transport),
    }
}
