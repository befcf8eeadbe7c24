//! The configuration of handshakes with backends.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::authority;
use crate::certificate::Certificate;

/// Whose certificates are trusted.
#[derive(Debug, Clone, Copy)]
pub enum Trust<'p> {
    /// Those that the authorities of the machine have signed.
    System,
    /// Those that an authority in this file has signed.
    Authorities(&'p Path),
    /// All: the connection is encrypted, and anybody may be at its other end.
    Anybody,
}

/// The configuration for backends. Blocks.
///
/// # Errors
/// In words, with the path.
pub fn client_config(trust: Trust<'_>, own: Option<&Certificate>) -> Result<ClientConfig, String> {
    let provider = crate::provider();
    let roots = match trust {
        Trust::System => system()?,
        Trust::Authorities(path) => authority::store(&authority::authorities(path)?),
        Trust::Anybody => RootCertStore::empty(),
    };
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|error| error.to_string())?;
    let builder = match trust {
        Trust::Anybody => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unverified)),
        _ => {
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = verifier.build().map_err(|error| error.to_string())?;
            builder.with_webpki_verifier(verifier)
        }
    };
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let resolver = rustls::sign::SingleCertAndKey::from(own.key.clone());
            builder.with_client_cert_resolver(Arc::new(resolver))
        }
    };
    config.alpn_protocols = vec![crate::ALPN_HTTP1.to_vec()];
    Ok(config)
}

/// Whether there is an authority that this machine trusts. Blocks.
///
/// # Errors
/// Why there is none, and what helps, in words.
pub fn check_system_authorities() -> Result<(), String> {
    system().map(drop)
}

fn system() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(found.certs);
    if !store.is_empty() {
        return Ok(store);
    }
    let error = found.errors.first();
    let error = error.map(|error| format!(" ({error})")).unwrap_or_default();
    Err(format!(
        "this machine has no certificates of authorities{error}; install `ca-certificates`, or name a file"
    ))
}

/// Accepts any certificate, also one that the library cannot read, such as one of version 1 of X.509. That the peer has its key proves
/// nothing then: whoever is in between has a certificate and a key as well.
#[derive(Debug)]
struct Unverified;

/// What peers may sign with besides what can be verified: keys of RSA that are for PSS alone (RFC 8446, 4.2.3), with which the library
/// has nothing else to do, and Ed448.
const UNVERIFIED_SCHEMES: [SignatureScheme; 4] = [
    SignatureScheme::Unknown(0x0809),
    SignatureScheme::Unknown(0x080a),
    SignatureScheme::Unknown(0x080b),
    SignatureScheme::ED448,
];

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let known = crate::provider().signature_verification_algorithms;
        let mut schemes = known.supported_schemes();
        schemes.extend(UNVERIFIED_SCHEMES);
        schemes
    }
}
