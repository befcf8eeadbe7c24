//! Failed handshakes in words.

use std::error::Error as StdError;
use std::io;

use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

/// What rustls says when it is given none.
const NO_CERTIFICATE: &str = "no server certificate chain resolved";

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
        Error::PeerMisbehaved(what) => {
            return format!("the peer breaks the rules of TLS: {what:?}");
        }
        Error::General(text) if text == NO_CERTIFICATE => {
            "there is no certificate for the name yet"
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
            format!("there is no certificate for {name} yet")
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
        // The library has no value of its own for it.
        Certificate::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is that of an authority, which is none of a server"
        }
        Certificate::Other(other) => return other.to_string(),
        other => return other.to_string(),
    };
    text.to_owned()
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
        for (error, expected) in [
            (CertificateError::UnknownIssuer, "trusted here"),
            (CertificateError::Expired, "it has expired"),
            (CertificateError::Other(other), "that of an authority"),
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
