//! Certificates from PEM files.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, SignatureAlgorithm};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Name};
use x509_parser::public_key::PublicKey;

use crate::pem;

/// The minimum of bits of a key for RSA, less than which rustls does not sign with.
const RSA_BITS_MIN: usize = 2048;

/// A certificate with its chain and its key.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The names that it is for, in lower case: DNS names, some with a star, and IP addresses.
    pub names: Vec<String>,
    /// Who has signed it.
    pub issuer: String,
    /// When it begins to be valid.
    pub not_before: SystemTime,
    /// When it ends to be valid.
    pub not_after: SystemTime,
    pub(crate) key: Arc<CertifiedKey>,
}

impl Certificate {
    /// Reads a certificate and the chain after it from `chain`, and its key from `key`. They may be the same file. Blocks.
    ///
    /// # Errors
    /// In words, with the path.
    pub fn read(chain: &Path, key: &Path) -> Result<Self, String> {
        let in_chain = |reason: String| format!("{}: {reason}", chain.display());
        let certificates = pem::certificates(&crate::files::read(chain)?).map_err(in_chain)?;
        let der = pem::key(&crate::files::read(key)?);
        let der = der.map_err(|reason| format!("{}: {reason}", key.display()))?;
        let leaf = Leaf::parse(&certificates[0]).map_err(in_chain)?;
        // One that is signed by itself may be an authority too, as `openssl req -x509` makes it.
        if leaf.is_authority && certificates.len() > 1 {
            let reason =
                "the first certificate is that of an authority; that of the server comes first";
            return Err(in_chain(reason.to_owned()));
        }
        let certified = CertifiedKey::from_der(certificates, der, &crate::provider());
        let certified = certified.map_err(|error| {
            let name = key.display();
            match (error, leaf.short_rsa_bits) {
                (rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch), _) => {
                    format!("{name}: the key is not that of {}", chain.display())
                }
                (_, Some(bits)) => format!(
                    "{name}: the key is too short; it has {bits} bits, and with RSA it needs {RSA_BITS_MIN} at least"
                ),
                (error, None) => format!("{name}: {error}"),
            }
        })?;
        Ok(leaf.with_key(certified))
    }

    /// The same from one text with a key, a certificate and its chain, as PEM.
    ///
    /// # Errors
    /// In words.
    pub fn of_pem(text: &[u8]) -> Result<Self, String> {
        let key = pem::key(text)?;
        Self::of_der(pem::certificates(text)?, key)
    }

    /// Its DER, without the chain.
    #[must_use]
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.key.cert[0]
    }

    /// A certificate of `chain` with the key `key`, both DER.
    ///
    /// # Errors
    /// In words.
    pub(crate) fn of_der(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, String> {
        let leaf = Leaf::parse(&chain[0])?;
        let key = CertifiedKey::from_der(chain, key, &crate::provider());
        Ok(leaf.with_key(key.map_err(|error| error.to_string())?))
    }

    /// Whether a client that asks for `host` accepts it. `*.example.org` stands for each name directly beneath.
    #[must_use]
    pub fn is_for(&self, host: &str) -> bool {
        is_for(&self.names, host)
    }

    /// Whether a signature takes milliseconds.
    pub(crate) fn is_slow(key: &CertifiedKey) -> bool {
        key.key.algorithm() == SignatureAlgorithm::RSA
    }
}

/// Whether a certificate with these names is accepted by a client that asks for `host`. `*.example.org` stands for each name directly
/// beneath.
#[must_use]
pub fn is_for(names: &[String], host: &str) -> bool {
    let host = bare(host);
    let above = host.split_once('.').map(|(_, above)| above);
    let mut names = names.iter();
    names.any(|name| name == host || above.is_some() && name.strip_prefix("*.") == above)
}

/// An IPv6 address without the brackets that it has in URLs.
#[must_use]
pub fn bare(host: &str) -> &str {
    let inner = host.strip_prefix('[');
    inner
        .and_then(|inner| inner.strip_suffix(']'))
        .unwrap_or(host)
}

/// Who has signed a certificate, and when it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validity {
    /// Who has signed it.
    pub issuer: String,
    /// When it ends to be valid.
    pub not_after: SystemTime,
}

impl Validity {
    /// That of the first certificate in a PEM file, which may have no key. Blocks.
    ///
    /// # Errors
    /// In words, with the path.
    pub fn read(path: &Path) -> Result<Self, String> {
        let in_file = |reason: String| format!("{}: {reason}", path.display());
        let certificates = pem::certificates(&crate::files::read(path)?).map_err(in_file)?;
        let leaf = Leaf::parse(&certificates[0]).map_err(in_file)?;
        Ok(Self {
            issuer: leaf.issuer,
            not_after: leaf.not_after,
        })
    }
}

/// What a file of certificates has that is neither one nor known, each in words with its line. Blocks.
///
/// # Errors
/// In words, with the path.
pub fn passed_over(path: &Path) -> Result<Vec<String>, String> {
    crate::files::read(path).map(|file| pem::passed_over(&file))
}

/// What a certificate says.
struct Leaf {
    is_authority: bool,
    names: Vec<String>,
    issuer: String,
    not_before: SystemTime,
    not_after: SystemTime,
    /// The bits of its key, if that is one for RSA with too few.
    short_rsa_bits: Option<usize>,
}

impl Leaf {
    fn parse(der: &CertificateDer<'_>) -> Result<Self, String> {
        let parsed = X509Certificate::from_der(der);
        let (_, certificate) = parsed.map_err(|error| format!("not a certificate: {error}"))?;
        let alternatives = certificate.subject_alternative_name();
        let alternatives = alternatives.map_err(|error| error.to_string())?;
        let alternatives = alternatives.iter().flat_map(|one| &one.value.general_names);
        let validity = certificate.validity();
        Ok(Self {
            is_authority: certificate.is_ca(),
            names: alternatives.filter_map(name).collect(),
            issuer: short(certificate.issuer()),
            not_before: time(validity.not_before.timestamp()),
            not_after: time(validity.not_after.timestamp()),
            short_rsa_bits: rsa_bits(&certificate).filter(|bits| *bits < RSA_BITS_MIN),
        })
    }

    fn with_key(self, key: CertifiedKey) -> Certificate {
        Certificate {
            names: self.names,
            issuer: self.issuer,
            not_before: self.not_before,
            not_after: self.not_after,
            key: Arc::new(key),
        }
    }
}

fn rsa_bits(certificate: &X509Certificate<'_>) -> Option<usize> {
    match certificate.public_key().parsed() {
        Ok(PublicKey::RSA(key)) => Some(key.key_size()),
        _ => None,
    }
}

/// A name of a server.
fn name(general: &GeneralName<'_>) -> Option<String> {
    match general {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let ip = v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            ip.ok().map(|ip| ip.to_string())
        }
        _ => None,
    }
}

/// The organisation and the common name, or all of it if it has neither.
pub(crate) fn short(name: &X509Name<'_>) -> String {
    let organisation = name.iter_organization().chain(name.iter_common_name());
    let parts: Vec<_> = organisation.filter_map(|part| part.as_str().ok()).collect();
    match parts.is_empty() {
        true => name.to_string(),
        false => parts.join(", "),
    }
}

pub(crate) fn time(seconds: i64) -> SystemTime {
    let since = Duration::from_secs(seconds.unsigned_abs());
    match seconds < 0 {
        true => SystemTime::UNIX_EPOCH - since,
        false => SystemTime::UNIX_EPOCH + since,
    }
}

/// Who a client says it is, by a certificate that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its first alternative name, or its subject.
    pub name: String,
    /// The certificate.
    pub der: Vec<u8>,
}

impl Identity {
    /// That of a certificate that was verified.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let parsed = X509Certificate::from_der(certificate);
        let name = parsed.map(|(_, certificate)| subject(&certificate));
        Self {
            name: name.unwrap_or_default(),
            der: certificate.to_vec(),
        }
    }
}

fn subject(certificate: &X509Certificate<'_>) -> String {
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let mut alternatives = alternatives.iter().flat_map(|one| &one.value.general_names);
    let named = alternatives.find_map(|general| match general {
        GeneralName::RFC822Name(name) | GeneralName::URI(name) => Some((*name).to_owned()),
        other => name(other),
    });
    named.unwrap_or_else(|| certificate.subject().to_string())
}
