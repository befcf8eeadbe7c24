//! TLS with backends.

use std::io;
use std::sync::Arc;

use levity_config::upstream::UpstreamTls;
use levity_net::Transport;
use levity_net::tls::{Handshake, HandshakeError, ProcessJob};
use levity_tls::{Certificate, ClientConfig, ServerName, Trust, client_config};

use super::backend::Backend;

/// How connections to the backends of an upstream are encrypted.
pub struct BackendTls {
    config: Arc<ClientConfig>,
    /// The name that they have to prove, in place of their own.
    name: Option<String>,
}

impl BackendTls {
    /// As `settings` say. Blocks.
    ///
    /// # Errors
    /// When a file cannot be used; the error names it.
    pub fn new(settings: &UpstreamTls) -> io::Result<Self> {
        let trust = match (&settings.authorities, settings.verify) {
            (_, false) => Trust::Anybody,
            (Some(path), true) => Trust::Authorities(path),
            (None, true) => Trust::System,
        };
        let files = settings.certificate.as_ref();
        let own = files.map(|files| Certificate::read(&files.certificate, &files.key));
        let own = own.transpose().map_err(io::Error::other)?;
        let config = client_config(trust, own.as_ref()).map_err(io::Error::other)?;
        Ok(Self {
            config: Arc::new(config),
            name: settings.name.clone(),
        })
    }

    /// Makes the handshake with `backend` at the other end of `below`.
    ///
    /// # Errors
    /// When the two ends do not agree, or the backend is not the one that it should be.
    pub async fn encrypt(&self, below: Transport, backend: &Backend) -> io::Result<Transport> {
        let name = self.name.as_ref().or(backend.tls.as_ref());
        let name = name.cloned().unwrap_or_default();
        let name = ServerName::try_from(name).map_err(io::Error::other)?;
        let handshake = Handshake::connect(below, self.config.clone(), name).map_err(reason)?;
        // To verify an ordinary chain takes a fifth of a millisecond.
        let at_once = async |job: ProcessJob| Some(job.run());
        let stream = handshake.finish(at_once).await.map_err(reason)?;
        Ok(Transport::Tls(Box::new(stream)))
    }
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
