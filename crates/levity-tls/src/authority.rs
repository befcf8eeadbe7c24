//! Authorities in files, and clients whose certificates they have signed.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::certificate::{DAMAGED, short, time};
use crate::words::NotValid;
use crate::{key_kind, pem};

/// An authority by its certificate.
#[derive(Debug, Clone)]
pub struct Authority {
    /// Its organisation and name.
    pub name: String,
    /// When its certificate begins to be valid.
    pub not_before: SystemTime,
    /// When that ends.
    pub not_after: SystemTime,
    /// What its key is of, if nothing that it signs can be verified here.
    pub unusable_key: Option<String>,
    pub(crate) anchor: TrustAnchor<'static>,
}

impl Authority {
    fn of(certificate: CertificateDer<'static>) -> Result<Self, String> {
        let parsed = X509Certificate::from_der(&certificate);
        let (_, parsed) = parsed.map_err(|_| DAMAGED.to_owned())?;
        let (name, validity) = (short(parsed.subject()), parsed.validity());
        let unusable_key = key_kind::unusable(&parsed.public_key().algorithm);
        let (not_before, not_after) = (
            time(validity.not_before.timestamp()),
            time(validity.not_after.timestamp()),
        );
        let mut store = RootCertStore::empty();
        let added = store.add(certificate);
        added.map_err(|error| crate::reason(&error))?;
        Ok(Self {
            name,
            not_before,
            not_after,
            unusable_key,
            anchor: store.roots.swap_remove(0),
        })
    }

    fn is_valid(&self, now: SystemTime) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }
}

/// The authorities in a PEM file. Blocks.
///
/// # Errors
/// In words, with the path.
pub fn authorities(path: &Path) -> Result<Vec<Authority>, String> {
    let in_file = |reason: String| format!("{}: {reason}", path.display());
    let found = pem::authorities(&crate::files::read(path)?).map_err(in_file)?;
    let authorities = found.into_iter().map(Authority::of);
    authorities
        .collect::<Result<_, _>>()
        .map_err(|error| in_file(format!("not the certificate of an authority: {error}")))
}

/// What rustls trusts then.
pub(crate) fn store<'a>(authorities: impl IntoIterator<Item = &'a Authority>) -> RootCertStore {
    let anchors = authorities.into_iter().map(|one| one.anchor.clone());
    RootCertStore {
        roots: anchors.collect(),
    }
}

/// Verifies clients. rustls knows no dates of authorities: whom it trusts it trusts for ever.
#[derive(Debug)]
pub(crate) struct ClientVerifier {
    authorities: Vec<Authority>,
    /// Trusts all of them.
    all: Arc<dyn ClientCertVerifier>,
}

impl ClientVerifier {
    /// One that trusts `authorities`, of which there is at least one, while they are valid.
    ///
    /// # Errors
    /// In words.
    pub(crate) fn new(authorities: &[Authority], is_required: bool) -> Result<Self, String> {
        Ok(Self {
            authorities: authorities.to_vec(),
            all: verifier(authorities, is_required).map_err(|error| crate::reason(&error))?,
        })
    }
}

fn verifier<'a>(
    authorities: impl IntoIterator<Item = &'a Authority>,
    is_required: bool,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let store = Arc::new(store(authorities));
    let builder = WebPkiClientVerifier::builder_with_provider(store, crate::provider());
    let builder = match is_required {
        true => builder,
        false => builder.allow_unauthenticated(),
    };
    builder
        .build()
        .map_err(|error| Error::General(error.to_string()))
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.all.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.all.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.all.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.all.verify_client_cert(certificate, chain, now)?;
        let at = time(now.as_secs().cast_signed());
        let valid = || self.authorities.iter().filter(|one| one.is_valid(at));
        if valid().count() == self.authorities.len() {
            return Ok(verified);
        }
        // There may be another chain, to an authority that is valid.
        let is_trusted = valid().next().is_some()
            && verifier(valid(), true)?
                .verify_client_cert(certificate, chain, now)
                .is_ok();
        match is_trusted {
            true => Ok(verified),
            false => Err(Error::InvalidCertificate(CertificateError::Other(
                OtherError(Arc::new(NotValid)),
            ))),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.all
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.all
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.all.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    use super::*;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    /// A certificate of an authority that is valid between two times, and one of a client that it has signed.
    fn made(key: &KeyPair, start: SystemTime, end: SystemTime) -> [CertificateDer<'static>; 2] {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "ca");
        (params.not_before, params.not_after) = (start.into(), end.into());
        let authority = params.self_signed(key).expect("a certificate");
        let issuer = Issuer::new(params, key);
        let own = KeyPair::generate().expect("a key");
        let client = CertificateParams::new(["client.test".to_owned()]).expect("a name");
        let client = client.signed_by(&own, &issuer).expect("a certificate");
        [authority.into(), client.into()]
    }

    #[test]
    fn an_authority_is_trusted_while_it_is_valid() {
        let now = SystemTime::now();
        let key = KeyPair::generate().expect("a key");
        let [expired, client] = made(&key, now - 2 * HOUR, now - HOUR);
        let [valid, _] = made(&key, now - HOUR, now + HOUR);
        let [early, _] = made(&key, now + HOUR, now + 2 * HOUR);
        let other = KeyPair::generate().expect("a key");
        let [stranger, _] = made(&other, now - HOUR, now + HOUR);
        let verify = |trusted: &[&CertificateDer<'static>]| {
            let authorities = trusted.iter().map(|&one| Authority::of(one.clone()));
            let authorities: Vec<_> = authorities.collect::<Result<_, _>>().expect("authorities");
            let verifier = ClientVerifier::new(&authorities, true).expect("a verifier");
            verifier
                .verify_client_cert(&client, &[], UnixTime::now())
                .map_err(|error| crate::reason(&error))
                .err()
        };
        let has_ended = |refused: Option<String>| {
            let end = ": its authority has expired, or is not valid yet";
            refused.is_some_and(|reason| reason.ends_with(end))
        };
        assert_eq!(verify(&[&valid]), None);
        assert!(has_ended(verify(&[&expired])));
        assert!(has_ended(verify(&[&early])));
        assert!(has_ended(verify(&[&expired, &stranger])));
        // As while the certificate of an authority is replaced.
        assert_eq!(verify(&[&expired, &valid]), None);
        assert!(verify(&[&stranger]).is_some());
    }
}
