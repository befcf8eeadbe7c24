//! TLS between the socket and the parser of responses, by rustls.
//!
//! The client offers one version, one cipher suite and one group, so that all servers do the same work. It verifies
//! neither certificate nor signature: what the client computes is not measured, and would slow the load down.

use crate::failure::{Context, Failure, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ClientConnection, ClientSessionStore, Resumption, Tls12ClientSessionValue,
    Tls13ClientSessionValue,
};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{ClientConfig, DigitallySignedStruct, HandshakeKind, NamedGroup, SignatureScheme};
use std::collections::VecDeque;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Tickets that are kept. A handshake takes one and brings at least one.
const TICKETS_MAX: usize = 4096;

/// What the sessions of a client have in common.
pub struct Tls {
    config: Arc<ClientConfig>,
    host: ServerName<'static>,
}

impl Tls {
    /// Sessions with this host. With `resumes` each uses a ticket of an earlier one, if there is one. With `http2` the server
    /// has to choose that.
    ///
    /// # Errors
    /// It is not the name of a host.
    pub fn new(host: &str, resumes: bool, http2: bool) -> Result<Self> {
        let provider = CryptoProvider {
            cipher_suites: vec![cipher_suite::TLS13_AES_128_GCM_SHA256],
            kx_groups: vec![kx_group::X25519],
            ..default_provider()
        };
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&TLS13])
            .context(|| "client of TLS".into())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unverified))
            .with_no_client_auth();
        config.resumption = if resumes {
            Resumption::store(Arc::new(Tickets::default()))
        } else {
            Resumption::disabled()
        };
        if http2 {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        let host = ServerName::try_from(host.to_owned()).context(|| format!("host {host}"))?;
        Ok(Self {
            config: Arc::new(config),
            host,
        })
    }

    /// A session on a new connection. Its handshake begins with the first [`Session::send`].
    ///
    /// # Errors
    /// Random numbers cannot be had.
    pub fn open(&self) -> Result<Session> {
        let connection = ClientConnection::new(self.config.clone(), self.host.clone())
            .context(|| "session of TLS".into())?;
        Ok(Session {
            connection,
            is_open: false,
        })
    }
}

/// TLS on one connection.
pub struct Session {
    connection: ClientConnection,
    is_open: bool,
}

impl Session {
    /// Encrypts a request and writes it. During the handshake it waits for the end of that.
    ///
    /// # Errors
    /// The socket does not take it, or not all of it.
    pub fn send(&mut self, socket: &mut impl Write, request: &[u8]) -> Result<()> {
        let encrypted = self.connection.writer().write_all(request);
        encrypted.context(|| "encrypt".into())?;
        self.flush(socket)
    }

    /// Decrypts bytes of the socket and passes their content to `take`, piece by piece. Writes what the handshake needs.
    ///
    /// # Errors
    /// The server breaks the protocol or sends an alert; the error of `take`; the socket does not take the answer.
    pub fn receive(
        &mut self,
        socket: &mut impl Write,
        mut bytes: &[u8],
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        while !bytes.is_empty() {
            self.connection
                .read_tls(&mut bytes)
                .context(|| "records".into())?;
            let state = self.connection.process_new_packets();
            let mut left = state.context(|| "TLS".into())?.plaintext_bytes_to_read();
            let mut reader = self.connection.reader();
            while left > 0 {
                let piece = reader.fill_buf().context(|| "decrypt".into())?;
                take(piece)?;
                let length = piece.len();
                reader.consume(length);
                left -= length;
            }
        }
        self.flush(socket)
    }

    /// The kind of the handshake, once, after its end.
    pub fn handshake(&mut self) -> Option<HandshakeKind> {
        if self.is_open || self.connection.is_handshaking() {
            return None;
        }
        self.is_open = true;
        self.connection.handshake_kind()
    }

    /// Requests and handshakes fit into an empty socket buffer.
    fn flush(&mut self, socket: &mut impl Write) -> Result<()> {
        while self.connection.wants_write() {
            let written = self.connection.write_tls(socket);
            if written.context(|| "write records".into())? == 0 {
                return Err(Failure::new("records written in part"));
            }
        }
        Ok(())
    }
}

/// Accepts all certificates.
#[derive(Debug)]
struct Unverified;

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::RSA_PSS_SHA256,
        ]
    }
}

/// The tickets of one host, first in, first out. The store of rustls keeps eight, fewer than there are connections.
#[derive(Debug, Default)]
struct Tickets(Mutex<VecDeque<Tls13ClientSessionValue>>);

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _host: ServerName<'static>, _group: NamedGroup) {}

    fn kx_hint(&self, _host: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _host: ServerName<'static>, _session: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _host: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _host: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _host: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut tickets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tickets.len() < TICKETS_MAX {
            tickets.push_back(ticket);
        }
    }

    fn take_tls13_ticket(&self, _host: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut tickets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ServerConfig, ServerConnection};
    use std::io::Read;

    const CONTENT: &[u8] = b"0123456789";

    fn server() -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new(["a.test".to_owned()]).unwrap();
        let certificate = parameters.self_signed(&key).unwrap().der().clone();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = ServerConfig::builder().with_no_client_auth();
        Arc::new(config.with_single_cert(vec![certificate], key).unwrap())
    }

    /// One connection: what the client got for its request, and the kind of the handshake.
    fn exchange(tls: &Tls, server: &Arc<ServerConfig>) -> (Vec<u8>, Option<HandshakeKind>) {
        let mut session = tls.open().unwrap();
        let mut server = ServerConnection::new(server.clone()).unwrap();
        let (mut to_server, mut got, mut kind) = (Vec::new(), Vec::new(), None);
        session.send(&mut to_server, b"request").unwrap();
        while got.len() < CONTENT.len() {
            let mut bytes = &to_server[..];
            while !bytes.is_empty() {
                server.read_tls(&mut bytes).unwrap();
                server.process_new_packets().unwrap();
            }
            let mut request = [0; 16];
            if let Ok(length) = server.reader().read(&mut request) {
                assert_eq!(&request[..length], b"request");
                server.writer().write_all(CONTENT).unwrap();
            }
            let (mut to_client, mut answer) = (Vec::new(), Vec::new());
            while server.wants_write() {
                server.write_tls(&mut to_client).unwrap();
            }
            session
                .receive(&mut answer, &to_client, |content| {
                    got.extend_from_slice(content);
                    Ok(())
                })
                .unwrap();
            kind = kind.or(session.handshake());
            to_server = answer;
        }
        assert_eq!(session.handshake(), None, "the kind is told once");
        (got, kind)
    }

    #[test]
    fn a_request_waits_for_the_handshake() {
        let tls = Tls::new("a.test", false, false).unwrap();
        let server = server();
        for _ in 0..2 {
            let (got, kind) = exchange(&tls, &server);
            assert_eq!((&*got, kind), (CONTENT, Some(HandshakeKind::Full)));
        }
    }

    #[test]
    fn sessions_are_resumed_if_that_is_wanted() {
        let tls = Tls::new("a.test", true, false).unwrap();
        let server = server();
        let kinds: Vec<_> = (0..3).map(|_| exchange(&tls, &server).1.unwrap()).collect();
        assert_eq!(
            kinds,
            [
                HandshakeKind::Full,
                HandshakeKind::Resumed,
                HandshakeKind::Resumed
            ]
        );
    }
}
