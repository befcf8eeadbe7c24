//! Failed handshakes in words.

use rustls::{Error, PeerIncompatible};

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
        Error::AlertReceived(alert) => return format!("the peer has refused: {alert:?}"),
        Error::NoCertificatesPresented => "the peer has shown no certificate",
        Error::InvalidCertificate(certificate) => {
            return format!("the certificate of the peer is not valid: {certificate}");
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
