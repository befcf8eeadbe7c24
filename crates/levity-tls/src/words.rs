//! Failed handshakes in words.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible, PeerMisbehaved};

/// What rustls says when it is given none.
const NO_CERTIFICATE: &str = "no server certificate chain resolved";

const UNKNOWN_EXTENSION: &str =
    "it has an extension that is critical and unknown here; it has to be issued anew without";

/// What else the library finds wrong with a certificate, in words.
const LIBRARY: [(&str, &str); 11] = [
    (
        "UnsupportedCertVersion",
        "it is of an old version of X.509; it has to be issued anew as one of version 3",
    ),
    ("UnsupportedCriticalExtension", UNKNOWN_EXTENSION),
    ("MalformedExtensions", "its extensions cannot be read"),
    ("ExtensionValueInvalid", "its extensions cannot be read"),
    (
        "CaUsedAsEndEntity",
        "it is that of an authority, which is none of a server",
    ),
    (
        "EndEntityUsedAsCa",
        "one of its chain is not that of an authority",
    ),
    (
        "NameConstraintViolation",
        "its authority may not sign for its names",
    ),
    (
        "PathLenConstraintViolated",
        "there are more authorities in its chain than one of them permits",
    ),
    (
        "SignatureAlgorithmMismatch",
        "it names two different ways in which it is signed",
    ),
    ("EmptyEkuExtension", "it is for no purpose"),
    ("InvalidSerialNumber", "its serial number is not allowed"),
];

/// Why a client is not let in whose certificate is valid.
#[derive(Debug)]
pub(crate) struct NotValid;

impl fmt::Display for NotValid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its authority has expired, or is not valid yet")
    }
}

impl StdError for NotValid {}

/// Why a handshake has failed, as an operator would say it. A phrase that begins in lower case.
#[must_use]
pub fn reason(error: &Error) -> String {
    use PeerIncompatible as Peer;
    let text = match error {
        Error::PeerIncompatible(peer) => match peer {
            Peer::SupportedVersionsExtensionRequired
            | Peer::Tls12NotOffered
            | Peer::Tls12NotOfferedOrEnabled
            | Peer::ServerDoesNotSupportTls12Or13
            | Peer::ServerTlsVersionIsDisabledByOurConfig
            // Clients of TLS 1.1 and older do not know it.
            | Peer::SignatureAlgorithmsExtensionRequired => {
                "the peer speaks older versions of TLS only"
            }
            Peer::NoCipherSuitesInCommon => "there is no cipher suite that both ends have",
            Peer::NoKxGroupsInCommon
            | Peer::KeyShareExtensionRequired
            | Peer::NamedGroupsExtensionRequired => "there is no key exchange that both ends have",
            Peer::NoSignatureSchemesInCommon => {
                "the peer has no signature that fits the certificate"
            }
            other => return format!("the peer lacks a feature of TLS: {other:?}"),
        },
        Error::AlertReceived(AlertDescription::UnknownCA) => {
            "the peer does not know the authority that has signed the certificate here"
        }
        Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "the peer says that the certificate here has expired"
        }
        Error::AlertReceived(
            AlertDescription::CertificateUnknown | AlertDescription::BadCertificate,
        ) => "the peer does not accept the certificate here",
        Error::AlertReceived(AlertDescription::HandshakeFailure) => {
            "the peer has found nothing that both ends have, such as a cipher suite, or a signature that fits its certificate"
        }
        Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "the peer does not speak the protocol that it is asked for (ALPN)"
        }
        Error::AlertReceived(alert) => return format!("the peer has refused: {alert:?}"),
        Error::NoCertificatesPresented => "the peer has shown no certificate",
        Error::InvalidCertificate(certificate) => {
            return format!(
                "the certificate of the peer is not valid: {}",
                of_certificate(certificate)
            );
        }
        Error::NoApplicationProtocol => "the peer wants another protocol than HTTP (ALPN)",
        Error::InvalidMessage(_) => "what the peer has sent is not TLS",
        Error::PeerMisbehaved(PeerMisbehaved::ServerNameMustContainOneHostName) => {
            "the peer asks for a name that no host can have (SNI)"
        }
        Error::PeerMisbehaved(what) => {
            return format!("the peer breaks the rules of TLS: {what:?}");
        }
        Error::General(text) if text == NO_CERTIFICATE => {
            "there is no certificate for this client, and none for all others"
        }
        Error::DecryptError => "what the peer has sent was changed on its way",
        Error::PeerSentOversizedRecord => "the peer has sent a record that is too large",
        other => return other.to_string(),
    };
    text.to_owned()
}

/// The same, of the handshake with a client that has asked for this name.
#[must_use]
pub fn reason_for(error: &Error, asked: Option<&str>) -> String {
    match (error, asked) {
        (Error::General(text), Some(name)) if text == NO_CERTIFICATE => {
            format!("there is no certificate for {name}")
        }
        _ => reason(error),
    }
}

/// What is wrong with a certificate.
fn of_certificate(error: &CertificateError) -> String {
    use CertificateError as Certificate;
    let text = match error {
        Certificate::UnknownIssuer => "it is not signed by an authority that is trusted here",
        Certificate::Expired | Certificate::ExpiredContext { .. } => "it has expired",
        Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
            "it is not valid yet; is the clock of this machine right?"
        }
        Certificate::BadEncoding => "it cannot be read",
        Certificate::BadSignature => "its signature is wrong",
        Certificate::Revoked => "its authority has revoked it",
        Certificate::InvalidPurpose | Certificate::InvalidPurposeContext { .. } => {
            "it is for another purpose"
        }
        Certificate::UnsupportedSignatureAlgorithmContext { .. }
        | Certificate::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "it, or its chain, is signed in a way that is not accepted here, such as with SHA-1 or with a key for secp256k1"
        }
        Certificate::UnhandledCriticalExtension => UNKNOWN_EXTENSION,
        Certificate::NotValidForNameContext {
            expected,
            presented,
        } => return of_names(&expected.to_str(), presented),
        Certificate::Other(other) if other.0.is::<NotValid>() => return other.to_string(),
        // Of these the library has only the names.
        Certificate::Other(other) => {
            let name = other.to_string();
            let known = LIBRARY.iter().find(|(known, _)| name == *known);
            return known.map_or_else(
                || format!("it breaks a rule of X.509 ({name})"),
                |(_, words)| (*words).to_owned(),
            );
        }
        other => return format!("it is not accepted ({other:?})"),
    };
    text.to_owned()
}

/// What is wrong with a certificate for the names `presented`, as the library writes them, where it should be for `expected`.
fn of_names(expected: &str, presented: &[String]) -> String {
    if presented.is_empty() {
        return format!(
            "it has no names (subjectAltName), and should be for {expected}; one in its subject (CN) does not count"
        );
    }
    let between = |name: &str| Some(name.split_once('(')?.1.strip_suffix(')')?.replace('"', ""));
    let names = presented
        .iter()
        .map(|name| between(name).unwrap_or_else(|| name.clone()));
    let names: Vec<_> = names.collect();
    format!("it is not for {expected}, but for {}", names.join(", "))
}

/// The failed handshake that an error of input or output stands for, even if it is wrapped several times.
#[must_use]
pub fn handshake_error<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e Error> {
    let inner = error.downcast_ref::<io::Error>()?.get_ref()?;
    inner.downcast_ref().or_else(|| handshake_error(inner))
}

/// What a failed handshake is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The certificate of the peer is not accepted here, or the peer has shown none.
    Certificate,
    /// The peer has refused, with an alert.
    Alert,
    /// Anything else: the two ends have nothing in common, or the peer breaks the rules.
    Protocol,
}

/// What the failed handshake is about.
#[must_use]
pub fn cause(error: &Error) -> Cause {
    match error {
        Error::InvalidCertificate(_) | Error::NoCertificatesPresented => Cause::Certificate,
        Error::AlertReceived(_) => Cause::Alert,
        _ => Cause::Protocol,
    }
}

/// Whether a certificate of the peer is signed by an authority that is not trusted.
#[must_use]
pub fn is_of_unknown_authority(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidCertificate(CertificateError::UnknownIssuer)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_described_without_names_of_the_library() {
        let other = rustls::OtherError(std::sync::Arc::new(io::Error::other("CaUsedAsEndEntity")));
        let unknown = rustls::OtherError(std::sync::Arc::new(io::Error::other("New")));
        let for_names = |presented: &[&str]| CertificateError::NotValidForNameContext {
            expected: "a.test".try_into().expect("a name"),
            presented: presented.iter().map(|&name| name.to_owned()).collect(),
        };
        for (error, expected) in [
            (CertificateError::UnknownIssuer, "trusted here"),
            (CertificateError::Expired, "it has expired"),
            (CertificateError::Other(other), "that of an authority"),
            (CertificateError::Other(unknown), "a rule of X.509 (New)"),
            (for_names(&[]), "no names (subjectAltName)"),
            (
                for_names(&["DnsName(\"b.test\")", "IpAddress(127.0.0.1)", "X"]),
                ": it is not for a.test, but for b.test, 127.0.0.1, X",
            ),
        ] {
            let said = reason(&Error::InvalidCertificate(error));
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn handshakes_are_found_in_errors_of_input() {
        let error = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let wrapped = io::Error::other(io::Error::other(error));
        assert!(handshake_error(&wrapped).is_some_and(is_of_unknown_authority));
        assert!(handshake_error(&io::Error::other("else")).is_none());
    }
}
