//! TLS with backends.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use levity_config::upstream::{Protocol, UpstreamTls};
use levity_disk::patiently;
use levity_net::Transport;
use levity_net::tls::{Handshake, HandshakeError, ProcessJob};
use levity_tls::{ALPN_HTTP2, Cause, ClientConfig, ServerName, Trust, client_config};
use levity_wire::tls_names;

use super::backend::Backend;
use crate::tls::stamp::{Stamp, stamps};

/// How connections to the backends of an upstream are encrypted.
pub struct BackendTls {
    settings: UpstreamTls,
    /// They have to choose HTTP/2.
    is_http2: bool,
    /// `None` until all files of the settings could be used.
    config: ArcSwapOption<ClientConfig>,
    /// The versions of the files that were read last. Only locked where files may be read.
    read: Mutex<Vec<Option<Stamp>>>,
    /// Why they cannot be used, if they cannot.
    failure: ArcSwapOption<String>,
}

impl BackendTls {
    /// As `settings` say, for connections of `protocol`. Without a file that cannot be used there are no handshakes until it can.
    /// Blocks.
    pub fn new(settings: &UpstreamTls, protocol: Protocol) -> Self {
        let tls = Self {
            settings: settings.clone(),
            is_http2: protocol == Protocol::H2,
            config: ArcSwapOption::empty(),
            read: Mutex::default(),
            failure: ArcSwapOption::empty(),
        };
        // Notes of the configuration have said it.
        let _ = tls.refresh();
        tls
    }

    /// Why no file is used, if none is. Does not block.
    pub fn failure(&self) -> Option<Arc<String>> {
        let failure = self.failure.load_full();
        failure.filter(|_| self.config.load().is_none())
    }

    /// Whether there may be something to read again. Does not block.
    pub fn is_to_be_followed(&self) -> bool {
        !self.files().is_empty() || self.failure().is_some()
    }

    fn files(&self) -> Vec<PathBuf> {
        let own = self.settings.certificate.iter();
        let own = own.flat_map(|files| [&files.certificate, &files.key]);
        let authorities = self.settings.authorities.iter();
        let authorities = authorities.filter(|_| self.settings.verify);
        own.chain(authorities).cloned().collect()
    }

    /// Reads the files if they have changed, or could not be used. What cannot be used leaves what was there before in use. Returns
    /// what is new of it, in words. Blocks.
    pub fn refresh(&self) -> Option<String> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // Before they are read: what changes meanwhile is read again.
        let versions = stamps(&self.files());
        let failure = self.failure.load_full();
        if *read == versions && failure.is_none() && self.config.load().is_some() {
            return None;
        }
        *read = versions;
        match self.client_config() {
            Ok(config) => {
                self.config.store(Some(Arc::new(config)));
                self.failure.store(None);
                Some("the files of `tls` were read".to_owned())
            }
            Err(reason) if failure.is_some_and(|before| *before == reason) => None,
            Err(reason) => {
                let otherwise = match self.config.load().is_some() {
                    true => "those from before stay in use",
                    false => "no backend is reached until they can",
                };
                let said = format!("the files of `tls` cannot be used: {reason}; {otherwise}");
                self.failure.store(Some(Arc::new(reason)));
                Some(said)
            }
        }
    }

    fn client_config(&self) -> Result<ClientConfig, String> {
        let files = self.settings.certificate.as_ref();
        let own = files
            .map(levity_config::certificate_files::read_certificate)
            .transpose()?;
        let mut config = match (&self.settings.authorities, self.settings.verify) {
            (_, false) => client_config(Trust::Anybody, own.as_ref()),
            (None, true) => client_config(Trust::System, own.as_ref()),
            (Some(path), true) => patiently(path, move |path| {
                client_config(Trust::Authorities(path), own.as_ref())
            })
            .map_err(|error| format!("{} {error}", path.display()))?,
        }?;
        if self.is_http2 {
            config.alpn_protocols = vec![ALPN_HTTP2.to_vec()];
        }
        Ok(config)
    }

    /// Makes the handshake with `backend` at the other end of `below`.
    ///
    /// # Errors
    /// When a file cannot be used, the two ends do not agree, also not on the protocol, or the backend is not the one that it should
    /// be.
    pub async fn encrypt(&self, below: Transport, backend: &Backend) -> io::Result<Transport> {
        let config = self.config.load_full().ok_or_else(|| {
            let reason = "a file of `tls` cannot be used".to_owned();
            HandshakeFailure::new(Cause::Certificate, reason)
        })?;
        let name = self.settings.name.as_ref().or(backend.tls.as_ref());
        let name = name.cloned().unwrap_or_default();
        let name = ServerName::try_from(tls_names::bare(&name).to_owned());
        let name = name.map_err(|_| {
            let reason = "no certificate can be for the name of the backend".to_owned();
            HandshakeFailure::new(Cause::Certificate, reason)
        })?;
        let handshake = Handshake::connect(below, config, name).map_err(reason)?;
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
    let reason = format!("the backend does not speak HTTP/2: it has chosen {chosen} (ALPN)");
    HandshakeFailure::new(Cause::Protocol, reason).into()
}

fn reason(error: HandshakeError) -> io::Error {
    match error {
        HandshakeError::Gone(error) => error,
        HandshakeError::Tls(error) => {
            HandshakeFailure::new(levity_tls::cause(&error), levity_tls::reason(&error)).into()
        }
        HandshakeError::NotTls(..) => io::ErrorKind::InvalidData.into(),
    }
}

/// The error type of `Proxy-Status` (RFC 9209, 2.3) for `error`, if TLS with a backend has failed: within the handshake, or
/// after it, when a backend refuses what it was shown (TLS 1.3).
pub fn error_type(error: &io::Error) -> Option<&'static str> {
    let within = || HandshakeFailure::of(error).map(|failure| failure.cause);
    let after = || levity_tls::handshake_error(error).map(levity_tls::cause);
    Some(match within().or_else(after)? {
        Cause::Certificate => "tls_certificate_error",
        Cause::Alert => "tls_alert_received",
        Cause::Protocol => "tls_protocol_error",
    })
}

/// The same failure once more, if `error` is a handshake that has failed.
pub fn copy(error: &io::Error) -> Option<io::Error> {
    HandshakeFailure::of(error).map(|failure| failure.clone().into())
}

/// Why a handshake with a backend has failed. As an [`io::Error`] it has the kind `InvalidData`.
#[derive(Debug, Clone)]
struct HandshakeFailure {
    cause: Cause,
    reason: String,
}

impl HandshakeFailure {
    fn new(cause: Cause, reason: String) -> Self {
        Self { cause, reason }
    }

    /// The one that `error` stands for, if that is its reason.
    fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for HandshakeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS: {}", self.reason)
    }
}

impl Error for HandshakeFailure {}

impl From<HandshakeFailure> for io::Error {
    fn from(failure: HandshakeFailure) -> Self {
        Self::new(io::ErrorKind::InvalidData, failure)
    }
}
