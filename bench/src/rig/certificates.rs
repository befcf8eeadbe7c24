//! The certificates of the servers with TLS, which all have the same.

use super::Rig;
use super::confine::NOBODY;
use super::slow_disk::create_dir_for_nobody;
use crate::failure::{Context, Result};
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize};
use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::sign::Signer;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The host whose certificate is signed with ECDSA P-256.
pub const ECDSA_HOST: &str = "ecdsa.test";
/// The host whose certificate is signed with RSA-4096.
pub const RSA_HOST: &str = "rsa.test";
/// The length of what a handshake signs, in bytes (RFC 8446, 4.4.3: 64 spaces, 33 of text, a zero and a hash).
const SIGNED_BYTES: usize = 130;

/// The folder of the certificates.
#[must_use]
pub fn folder(rig: &Rig) -> PathBuf {
    rig.setup.dir.join("tls")
}

/// Makes both certificates and their keys in the folder that is returned, as `ecdsa.pem`, `ecdsa.key`, `rsa.pem` and
/// `rsa.key`. The RSA key takes a second or more.
///
/// # Errors
/// They cannot be written.
pub fn make(rig: &Rig) -> Result<PathBuf> {
    let dir = folder(rig);
    create_dir_for_nobody(&dir)?;
    let ecdsa = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
    let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_4096);
    for (name, host, key) in [("ecdsa", ECDSA_HOST, ecdsa), ("rsa", RSA_HOST, rsa)] {
        let key = key.context(|| format!("make a key of {name}"))?;
        let certificate = CertificateParams::new([host.to_owned()])
            .and_then(|parameters| parameters.self_signed(&key))
            .context(|| format!("make a certificate of {name}"))?;
        write(&dir.join(format!("{name}.pem")), &certificate.pem())?;
        write(&dir.join(format!("{name}.key")), &key.serialize_pem())?;
    }
    Ok(dir)
}

/// Writes a file that the servers own: some refuse keys that others can read.
fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o600)))
        .and_then(|()| std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)))
        .context(|| format!("write {}", path.display()))
}

/// Signatures per second that one processor makes for handshakes with the key of [`RSA_HOST`], measured for `duration`.
///
/// # Errors
/// The key cannot be read.
pub fn rsa_signatures_per_second(dir: &Path, duration: Duration) -> Result<f64> {
    let signer = rsa_signer(&dir.join("rsa.key")).context(|| "RSA key".into())?;
    let message = [b' '; SIGNED_BYTES];
    let (started, mut signatures) = (Instant::now(), 0);
    while started.elapsed() < duration {
        signer.sign(&message).context(|| "sign".into())?;
        signatures += 1;
    }
    Ok(f64::from(signatures) / started.elapsed().as_secs_f64())
}

fn rsa_signer(key: &Path) -> std::result::Result<Box<dyn Signer>, rustls::Error> {
    let invalid = |error| rustls::Error::General(format!("{error}"));
    let key = PrivateKeyDer::from_pem_file(key).map_err(invalid)?;
    let signer = any_supported_type(&key)?.choose_scheme(&[SignatureScheme::RSA_PSS_SHA256]);
    signer.ok_or_else(|| rustls::Error::General("no scheme".into()))
}
