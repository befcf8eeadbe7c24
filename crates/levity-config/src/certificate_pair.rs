//! Where a certificate is.

use std::path::PathBuf;

/// A certificate with its chain, and its key. They may be the same file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, and the chain after it.
    pub certificate: PathBuf,
    /// The key.
    pub key: PathBuf,
}
