//! TLS with backends.

use std::io;
use std::sync::Arc;

use levity_config::upstream::{Protocol, UpstreamTls};
use levity_net::Transport;
use levity_net::tls::{Handshake, HandshakeError, ProcessJob};
use levity_tls::{ALPN_HTTP2, Certificate, ClientConfig, ServerName, Trust, client_config};

use super::backend::Backend;

/// How connections to the backends of an upstream are encrypted.
pub struct BackendTls {
    config: Arc<ClientConfig>,
    /// The name that they have to prove, in place of their own.
    name: Option<String>,
    /// They have to choose HTTP/2.
    is_http2: bool,
}

impl BackendTls {
    /// As `settings` say, for connections of `protocol`. Blocks.
    ///
    /// # Errors
    /// When a file cannot be used; the error names it.
    pub fn new(settings: &UpstreamTls, protocol: Protocol) -> io::Result<Self> {
        let trust = match (&settings.authorities, settings.verify) {
            (_, false) => Trust::Anybody,
            (Some(path), true) => Trust::Authorities(path),
            (None, true) => Trust::System,
        };
        let files = settings.certificate.as_ref();
        let own = files.map(|files| Certificate::read(&files.certificate, &files.key));
        let own = own.transpose().map_err(io::Error::other)?;
        let mut config = client_config(trust, own.as_ref()).map_err(io::Error::other)?;
        let is_http2 = protocol == Protocol::H2;
        if is_http2 {
            config.alpn_protocols = vec![ALPN_HTTP2.to_vec()];
        }
        Ok(Self {
            config: Arc::new(config),
            name: settings.name.clone(),
            is_http2,
        })
    }

    /// Makes the handshake with `backend` at the other end of `below`.
    ///
    /// # Errors
    /// When the two ends do not agree, also not on the protocol, or the backend is not the one that it should be.
    pub async fn encrypt(&self, below: Transport, backend: &Backend) -> io::Result<Transport> {
        let name = self.name.as_ref().or(backend.tls.as_ref());
        let name = name.cloned().unwrap_or_default();
        let name = ServerName::try_from(name).map_err(io::Error::other)?;
        let handshake = Handshake::connect(below, self.config.clone(), name).map_err(reason)?;
        // To verify an ordinary chain takes a fifth of a millisecond.
        let at_once = async |job: ProcessJob| Some(job.run());
        let stream = handshake.finish(at_once).await.map_err(reason)?;
        let chosen = stream.session().alpn_protocol();
        if self.is_http2 && chosen != Some(ALPN_HTTP2) {
            return Err(not_http2(chosen));
        }
        Ok(Transport::Tls(Box::new(stream)))
    }
}

/// The error for a backend that has chosen another protocol than the only one that it was offered.
fn not_http2(chosen: Option<&[u8]>) -> io::Error {
    let chosen = chosen.map_or("no protocol".into(), String::from_utf8_lossy);
    let reason = format!("TLS: the backend does not speak HTTP/2: it has chosen {chosen} (ALPN)");
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

fn reason(error: HandshakeError) -> io::Error {
    match error {
        HandshakeError::Gone(error) => error,
        HandshakeError::Tls(error) => {
            let reason = levity_tls::reason(&error);
            io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {reason}"))
        }
        HandshakeError::NotTls(..) => io::ErrorKind::InvalidData.into(),
    }
}
