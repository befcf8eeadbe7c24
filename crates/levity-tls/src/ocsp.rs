//! Whether a certificate was revoked, by OCSP (RFC 6960): what its responder is asked, and what the response says.

mod der;

use std::fmt;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest;
use rustls::pki_types::CertificateDer;
use x509_parser::asn1_rs::{BitString, Integer, OctetString, Sequence, SerializeError, ToDer};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::OID_PKIX_ACCESS_DESCRIPTOR_OCSP;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::verify::verify_signature;
use x509_parser::x509::AlgorithmIdentifier;

use self::der::{Malformed, Reader};
use crate::certificate::{DAMAGED, identity, time};

/// The maximum size of a response, in bytes. Each handshake carries it; usual ones have 500 to 4000.
const RESPONSE_BYTES_MAX: usize = 16 << 10;

/// How much the clock of a responder may be ahead.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// SHA-1 as an object identifier, and as the algorithm of a `CertID`. Many responders know no other one. Here it is no
/// proof, it only names the issuer.
const SHA1_OID: &[u8] = &[0x2b, 0x0e, 0x03, 0x02, 0x1a];
const SHA1_ALGORITHM: &[u8] = &[
    0x30, 0x09, 0x06, 0x05, 0x2b, 0x0e, 0x03, 0x02, 0x1a, 0x05, 0x00,
];

/// `id-pkix-ocsp-basic` (RFC 6960, 4.2.1).
const BASIC_OID: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x01];

/// What a responder is asked about a certificate.
#[derive(Debug)]
pub struct Question {
    /// A name of the certificate, for people.
    pub name: String,
    /// The URL of the responder, of the scheme `http`.
    pub url: String,
    /// The request, DER.
    pub request: Vec<u8>,
    id: CertId,
    issuer: CertificateDer<'static>,
}

/// A response that says that a certificate is good, for handshakes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staple {
    /// The response.
    pub der: Vec<u8>,
    /// Since when it is valid.
    pub this_update: SystemTime,
    /// When it ends to be valid: its nextUpdate, or the end of the responder's certificate if that comes first.
    pub next_update: SystemTime,
}

/// Why a response is no staple.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The issuer has revoked the certificate; it has signed this.
    Revoked,
    /// Any other reason, in words: a phrase that begins in lower case.
    Unusable(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Revoked => f.write_str("its issuer has revoked it; replace it"),
            Self::Unusable(reason) => f.write_str(reason),
        }
    }
}

impl From<Malformed> for Refusal {
    fn from(_: Malformed) -> Self {
        unusable("what the responder has sent is not a valid OCSP response")
    }
}

fn unusable(reason: &str) -> Refusal {
    Refusal::Unusable(reason.to_owned())
}

/// Names a certificate (RFC 6960, 4.1.1).
#[derive(Debug, PartialEq, Eq)]
struct CertId {
    issuer_name_hash: Vec<u8>,
    issuer_key_hash: Vec<u8>,
    serial: Vec<u8>,
}

impl Question {
    /// The question about the first certificate of `chain`; `None` if it names no responder with a URL of the scheme
    /// `http`.
    ///
    /// # Errors
    /// In words, if there is something that cannot be read, or if the certificate of the issuer is not in the chain.
    pub fn of(chain: &[CertificateDer<'static>]) -> Result<Option<Self>, String> {
        let Some((leaf_der, others)) = chain.split_first() else {
            return Ok(None);
        };
        let leaf = parse(leaf_der)?;
        let Some(url) = responder(&leaf) else {
            return Ok(None);
        };
        let issuer_der = others.iter().find(|other| {
            let other = parse(other);
            other.is_ok_and(|other| other.subject().as_raw() == leaf.issuer().as_raw())
        });
        let issuer_der = issuer_der.ok_or(
            "its chain lacks the certificate of its issuer, which verifies the response of the responder",
        )?;
        let issuer = parse(issuer_der)?;
        let id = CertId {
            issuer_name_hash: sha1(leaf.issuer().as_raw()),
            issuer_key_hash: key_hash(&issuer),
            serial: leaf.raw_serial().to_vec(),
        };
        Ok(Some(Self {
            name: identity(leaf_der),
            url: url.to_owned(),
            request: id.request().map_err(|error| error.to_string())?,
            id,
            issuer: issuer_der.clone(),
        }))
    }

    /// Verifies a response as of `now`. Takes up to a millisecond.
    ///
    /// # Errors
    /// When it does not say that the certificate is good, or cannot be trusted.
    pub fn staple(&self, der: Vec<u8>, now: SystemTime) -> Result<Staple, Refusal> {
        if der.len() > RESPONSE_BYTES_MAX {
            let reason = format!("the response has more than {RESPONSE_BYTES_MAX} bytes");
            return Err(Refusal::Unusable(reason));
        }
        let basic = Basic::parse(successful(&der)?)?;
        let data = ResponseData::parse(basic.data)?;
        let responder_end = self.responder_end(&basic, &data.responder, now)?;
        let about = data.responses.iter().find(|one| one.id == self.id);
        let about = about.ok_or_else(|| unusable("the response is about another certificate"))?;
        let (this_update, next_update) = about.valid_at(now)?;
        Ok(Staple {
            this_update,
            next_update: responder_end.map_or(next_update, |end| next_update.min(end)),
            der,
        })
    }

    /// Verifies the signature. If it is not that of the issuer, this is when the certificate of the responder ends.
    fn responder_end(
        &self,
        basic: &Basic<'_>,
        responder: &Responder<'_>,
        now: SystemTime,
    ) -> Result<Option<SystemTime>, Refusal> {
        let issuer = parse(&self.issuer).map_err(Refusal::Unusable)?;
        if responder.is(&issuer) && basic.is_signed_by(&issuer) {
            return Ok(None);
        }
        let mut delegates = basic.certificates.iter();
        let delegate = delegates.find(|one| {
            responder.is(one) && is_delegate(one, &issuer, now) && basic.is_signed_by(one)
        });
        let delegate = delegate.ok_or_else(|| {
            unusable("the response is not signed by the issuer, nor by a responder that it has certified")
        })?;
        Ok(Some(time(delegate.validity().not_after.timestamp())))
    }
}

impl CertId {
    /// The request about this certificate alone, without a nonce, so that responders can answer from memory (RFC 6960, 4.1.1).
    fn request(&self) -> Result<Vec<u8>, SerializeError> {
        let sequence = |content: Vec<u8>| Sequence::new(content.into()).to_der_vec();
        let parts = [
            SHA1_ALGORITHM.to_vec(),
            OctetString::new(&self.issuer_name_hash).to_der_vec()?,
            OctetString::new(&self.issuer_key_hash).to_der_vec()?,
            Integer::new(&self.serial).to_der_vec()?,
        ];
        let id = sequence(parts.concat())?;
        let list = sequence(sequence(id)?)?;
        sequence(sequence(list)?)
    }

    /// `None` for one with another hash, which cannot be compared.
    fn parse(mut fields: Reader<'_>) -> Result<Option<Self>, Malformed> {
        let algorithm = fields.sequence()?.object_identifier()?;
        let id = Self {
            issuer_name_hash: fields.octet_string()?.to_vec(),
            issuer_key_hash: fields.octet_string()?.to_vec(),
            serial: fields.integer()?.to_vec(),
        };
        Ok((algorithm == SHA1_OID).then_some(id))
    }
}

/// The content of a response that is successful (RFC 6960, 4.2.1).
fn successful(der: &[u8]) -> Result<&[u8], Refusal> {
    let mut outer = Reader::new(der);
    let mut response = outer.sequence()?;
    outer.end()?;
    let refusal = match response.enumerated()? {
        [0] => None,
        [1] => Some("malformedRequest"),
        [2] => Some("internalError"),
        [3] => Some("tryLater"),
        [5] => Some("sigRequired"),
        [6] => Some("unauthorized"),
        _ => return Err(Malformed.into()),
    };
    if let Some(word) = refusal {
        return Err(Refusal::Unusable(format!("the responder says {word}")));
    }
    let mut bytes = Reader::new(response.tagged(0)?.ok_or(Malformed)?).sequence()?;
    if bytes.object_identifier()? != BASIC_OID {
        return Err(unusable("the response has an unknown form"));
    }
    Ok(bytes.octet_string()?)
}

/// A `BasicOCSPResponse`.
struct Basic<'d> {
    /// What is signed.
    data: &'d [u8],
    algorithm: AlgorithmIdentifier<'d>,
    signature: BitString<'d>,
    certificates: Vec<X509Certificate<'d>>,
}

impl<'d> Basic<'d> {
    fn parse(der: &'d [u8]) -> Result<Self, Malformed> {
        let mut outer = Reader::new(der);
        let mut fields = outer.sequence()?;
        outer.end()?;
        let data = fields.raw()?;
        let (_, algorithm) = AlgorithmIdentifier::from_der(fields.raw()?).map_err(|_| Malformed)?;
        let (_, signature) = BitString::from_der(fields.raw()?).map_err(|_| Malformed)?;
        let mut certificates = Vec::new();
        if let Some(list) = fields.tagged(0)? {
            let mut list = Reader::new(list).sequence()?;
            while !list.is_empty() {
                let parsed = X509Certificate::from_der(list.raw()?);
                certificates.push(parsed.map_err(|_| Malformed)?.1);
            }
        }
        Ok(Self {
            data,
            algorithm,
            signature,
            certificates,
        })
    }

    fn is_signed_by(&self, signer: &X509Certificate<'_>) -> bool {
        let key = signer.public_key();
        verify_signature(key, &self.algorithm, &self.signature, self.data).is_ok()
    }
}

/// Whether `issuer` lets `certificate` sign responses (RFC 6960, 4.2.2.2).
fn is_delegate(
    certificate: &X509Certificate<'_>,
    issuer: &X509Certificate<'_>,
    now: SystemTime,
) -> bool {
    let usage = certificate.extended_key_usage().ok().flatten();
    let validity = certificate.validity();
    let [begin, end] = [validity.not_before, validity.not_after].map(|one| time(one.timestamp()));
    usage.is_some_and(|usage| usage.value.ocsp_signing)
        && (begin..end).contains(&now)
        && certificate.issuer().as_raw() == issuer.subject().as_raw()
        && certificate
            .verify_signature(Some(issuer.public_key()))
            .is_ok()
}

/// Who says that it has signed: a name, DER, or the hash of a key.
enum Responder<'d> {
    Name(&'d [u8]),
    KeyHash(&'d [u8]),
}

impl Responder<'_> {
    fn is(&self, certificate: &X509Certificate<'_>) -> bool {
        match self {
            Self::Name(name) => *name == certificate.subject().as_raw(),
            Self::KeyHash(hash) => *hash == key_hash(certificate),
        }
    }
}

/// A `ResponseData`. Its extensions say nothing about the status.
struct ResponseData<'d> {
    responder: Responder<'d>,
    responses: Vec<SingleResponse>,
}

impl<'d> ResponseData<'d> {
    fn parse(der: &'d [u8]) -> Result<Self, Malformed> {
        let mut fields = Reader::new(der).sequence()?;
        let _version = fields.tagged(0)?;
        let responder = match (fields.tagged(1)?, fields.tagged(2)?) {
            (Some(name), None) => Responder::Name(name),
            (None, Some(key)) => Responder::KeyHash(Reader::new(key).octet_string()?),
            _ => return Err(Malformed),
        };
        let _produced_at = fields.time()?;
        let (mut list, mut responses) = (fields.sequence()?, Vec::new());
        while !list.is_empty() {
            responses.extend(SingleResponse::parse(list.sequence()?)?);
        }
        Ok(Self {
            responder,
            responses,
        })
    }
}

/// What is said of one certificate.
struct SingleResponse {
    id: CertId,
    status: Status,
    this_update: SystemTime,
    next_update: Option<SystemTime>,
}

enum Status {
    Good,
    Revoked,
    Unknown,
}

impl SingleResponse {
    /// `None` for one whose certificate cannot be compared.
    fn parse(mut fields: Reader<'_>) -> Result<Option<Self>, Malformed> {
        let id = CertId::parse(fields.sequence()?)?;
        let good = fields.tagged(0)?.map(|_| Status::Good);
        let revoked = fields.tagged(1)?.map(|_| Status::Revoked);
        let unknown = fields.tagged(2)?.map(|_| Status::Unknown);
        let status = good.or(revoked).or(unknown).ok_or(Malformed)?;
        let this_update = fields.time()?;
        let next_update = fields.tagged(0)?;
        let next_update = next_update
            .map(|next| Reader::new(next).time())
            .transpose()?;
        Ok(id.map(|id| Self {
            id,
            status,
            this_update,
            next_update,
        }))
    }

    /// Since when it says that the certificate is good, and how long.
    fn valid_at(&self, now: SystemTime) -> Result<(SystemTime, SystemTime), Refusal> {
        let Some(next_update) = self.next_update else {
            return Err(unusable(
                "the response does not say how long it is valid (nextUpdate)",
            ));
        };
        if now + CLOCK_TOLERANCE < self.this_update {
            return Err(unusable(
                "the response is not valid yet, unless the clock of this machine is late",
            ));
        }
        if next_update <= now {
            return Err(unusable("the response has expired"));
        }
        match self.status {
            Status::Good => Ok((self.this_update, next_update)),
            Status::Revoked => Err(Refusal::Revoked),
            Status::Unknown => Err(unusable("the responder does not know it")),
        }
    }
}

fn parse<'d>(der: &'d CertificateDer<'_>) -> Result<X509Certificate<'d>, String> {
    let parsed = X509Certificate::from_der(der);
    parsed
        .map(|(_, certificate)| certificate)
        .map_err(|_| DAMAGED.to_owned())
}

/// The URL of the responder that a certificate names (RFC 5280, 4.2.2.1).
fn responder<'d>(certificate: &X509Certificate<'d>) -> Option<&'d str> {
    let access = certificate.extensions().iter();
    let mut access = access.filter_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityInfoAccess(access) => Some(&access.accessdescs),
        _ => None,
    });
    access.find_map(|descriptions| {
        descriptions
            .iter()
            .find_map(|one| match one.access_location {
                GeneralName::URI(url)
                    if one.access_method == OID_PKIX_ACCESS_DESCRIPTOR_OCSP
                        && url.starts_with("http://") =>
                {
                    Some(url)
                }
                _ => None,
            })
    })
}

fn key_hash(certificate: &X509Certificate<'_>) -> Vec<u8> {
    sha1(&certificate.public_key().subject_public_key.data)
}

fn sha1(bytes: &[u8]) -> Vec<u8> {
    let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, bytes);
    hash.as_ref().to_vec()
}

#[cfg(test)]
mod tests;
