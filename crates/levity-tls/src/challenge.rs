//! Proof of a name by a handshake (TLS-ALPN-01, RFC 8737).

use std::sync::Arc;

use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

/// What an authority offers as its only protocol (RFC 8737, 6.2).
pub const ALPN: &[u8] = b"acme-tls/1";

/// The configuration of the handshake that proves `host`, a DNS name or an IP address, by the SHA-256 of the key
/// authorization.
///
/// # Errors
/// In words.
pub fn config(host: &str, digest: &[u8]) -> Result<Arc<ServerConfig>, String> {
    sign(host, digest).map_err(|error| error.to_string())?
}

fn sign(host: &str, digest: &[u8]) -> Result<Result<Arc<ServerConfig>, String>, rcgen::Error> {
    let mut params = CertificateParams::new(vec![host.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Ok(configured(certificate.into(), key).map_err(|error| error.to_string()))
}

fn configured(
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = crate::provider();
    let key = provider.key_provider.load_private_key(key)?;
    // Whoever reads the certificate, as rustls does to compare keys, has to refuse its critical extension.
    let key = SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key));
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions()?;
    let builder = builder.with_no_client_auth();
    let mut config = builder.with_cert_resolver(Arc::new(key));
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}
