//! Certificates from PEM files.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use levity_wire::tls_names::{bare, is_for};
use rustls::SignatureAlgorithm;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SigningKey};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Name};
use x509_parser::public_key::PublicKey;

use crate::key_kind::{self, KEYS};
use crate::pem;

/// The minimum of bits of a key for RSA, less than which rustls does not sign with.
const RSA_BITS_MIN: usize = 2048;

/// What is in the form of PEM and DER, and is no certificate.
pub(crate) const DAMAGED: &str = "the certificate is damaged: it cannot be read";

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
        let text = crate::files::read(chain)?;
        let certificates = pem::certificates(&text).map_err(in_chain)?;
        // A file that has both may be replaced between two reads.
        let der = match key == chain {
            true => pem::key(&text),
            false => pem::key(&crate::files::read(key)?),
        };
        let der = der.map_err(|reason| format!("{}: {reason}", key.display()))?;
        let leaf = Leaf::parse(&certificates[0]).map_err(in_chain)?;
        // One that is signed by itself may be an authority too, as `openssl req -x509` makes it.
        if leaf.is_authority && certificates.len() > 1 {
            let reason =
                "the first certificate is that of an authority; that of the server comes first";
            return Err(in_chain(reason.to_owned()));
        }
        let signing = leaf.key(&der).map_err(|wrong| match wrong {
            Wrong::Kind(_) => in_chain(wrong.to_string()),
            Wrong::Key(_) => format!("{}: {wrong}", key.display()),
            Wrong::Other => format!(
                "{}: the key is not that of {}",
                key.display(),
                chain.display()
            ),
        })?;
        Ok(leaf.with_key(certificates, signing))
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
        let key = leaf.key(&key).map_err(|wrong| wrong.to_string())?;
        Ok(leaf.with_key(chain, key))
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

/// Whether a handshake can be for `host`: an address, or a name that is allowed in it (RFC 6066, 3).
#[must_use]
pub fn can_be_asked_for(host: &str) -> bool {
    ServerName::try_from(bare(host)).is_ok()
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
    /// What its key is of, if it cannot be used.
    unusable_kind: Option<String>,
    /// Its key as DER.
    public_key: Vec<u8>,
}

impl Leaf {
    fn parse(der: &CertificateDer<'_>) -> Result<Self, String> {
        let parsed = X509Certificate::from_der(der);
        let (_, certificate) = parsed.map_err(|_| DAMAGED.to_owned())?;
        let alternatives = certificate.subject_alternative_name();
        let alternatives = alternatives.map_err(|_| {
            "the names of the certificate (subjectAltName) cannot be read".to_owned()
        })?;
        let alternatives = alternatives.iter().flat_map(|one| &one.value.general_names);
        let validity = certificate.validity();
        Ok(Self {
            is_authority: certificate.is_ca(),
            names: alternatives.filter_map(name).collect(),
            issuer: short(certificate.issuer()),
            not_before: time(validity.not_before.timestamp()),
            not_after: time(validity.not_after.timestamp()),
            short_rsa_bits: rsa_bits(&certificate).filter(|bits| *bits < RSA_BITS_MIN),
            unusable_kind: key_kind::unusable(&certificate.public_key().algorithm),
            public_key: certificate.public_key().raw.to_vec(),
        })
    }

    /// The key `der`, which is to be that of the certificate. The library would compare them as well, but refuses certificates that
    /// clients may accept: those of version 1 of X.509, and with extensions that it does not know.
    fn key(&self, der: &PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Wrong> {
        if let Some(kind) = &self.unusable_kind {
            return Err(Wrong::Kind(kind.clone()));
        }
        let loaded = crate::provider()
            .key_provider
            .load_private_key(der.clone_key());
        let key = loaded.map_err(|_| self.wrong_key(der))?;
        match key.public_key() {
            Some(public) if public.as_ref() != self.public_key => Err(Wrong::Other),
            _ => Ok(key),
        }
    }

    /// Why a key cannot be used.
    fn wrong_key(&self, der: &PrivateKeyDer<'_>) -> Wrong {
        let kind = key_kind::unusable_private(der.secret_der());
        Wrong::Key(match (kind, self.short_rsa_bits) {
            (Some(kind), _) => format!("one of {kind}; {KEYS}"),
            (None, Some(bits)) => format!(
                "too short; it has {bits} bits, and with RSA it needs {RSA_BITS_MIN} at least"
            ),
            (None, None) => format!("damaged, or none that can be used; {KEYS}"),
        })
    }

    fn with_key(
        self,
        chain: Vec<CertificateDer<'static>>,
        key: Arc<dyn SigningKey>,
    ) -> Certificate {
        Certificate {
            names: self.names,
            issuer: self.issuer,
            not_before: self.not_before,
            not_after: self.not_after,
            key: Arc::new(CertifiedKey::new(chain, key)),
        }
    }
}

/// Why a certificate and a key cannot be used together.
#[derive(Debug)]
enum Wrong {
    /// The certificate is for a key of this kind.
    Kind(String),
    /// The key is this.
    Key(String),
    /// The key is that of another certificate.
    Other,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "the certificate is for a key of {kind}; {KEYS}"),
            Self::Key(reason) => write!(f, "the key is {reason}"),
            Self::Other => f.write_str("the key is not that of the certificate"),
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

/// The first alternative name of a certificate, or its subject; empty if it cannot be read.
#[must_use]
pub fn identity(certificate: &CertificateDer<'_>) -> String {
    let parsed = X509Certificate::from_der(certificate);
    let name = parsed.map(|(_, certificate)| subject(&certificate));
    name.unwrap_or_default()
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
