//! Which keys handshakes can be signed with, in words: the library only says that it cannot.

use x509_parser::der_parser::Oid;
use x509_parser::der_parser::oid;
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::AlgorithmIdentifier;

/// What a key has to be.
pub const KEYS: &str = "a key here is one for ECDSA with P-256, P-384 or P-521, for Ed25519, or for RSA with 2048 to 8192 bits";

/// The key of RSA that signs in any way that RSA permits.
const RSA: Oid<'_> = oid!(1.2.840.113549.1.1.1);
const ELLIPTIC: Oid<'_> = oid!(1.2.840.10045.2.1);
const ED25519: Oid<'_> = oid!(1.3.101.112);

const CURVES: [Oid<'_>; 3] = [
    oid!(1.2.840.10045.3.1.7),
    oid!(1.3.132.0.34),
    oid!(1.3.132.0.35),
];

/// The names of others that are in use.
const OTHERS: [(Oid<'_>, &str); 5] = [
    (oid!(1.2.840.113549.1.1.10), "RSA-PSS alone"),
    (oid!(1.3.132.0.10), "the curve secp256k1"),
    (oid!(1.2.840.10045.3.1.1), "the curve P-192"),
    (oid!(1.3.101.113), "Ed448"),
    (oid!(1.2.840.10040.4.1), "DSA"),
];

/// What a private key in the form of PKCS #8 (RFC 5958) is of, if it cannot be used.
pub fn unusable_private(der: &[u8]) -> Option<String> {
    let (_, content) = x509_parser::asn1_rs::Sequence::from_der(der).ok()?;
    let (rest, _version) = u32::from_der(&content.content).ok()?;
    let (_, algorithm) = AlgorithmIdentifier::from_der(rest).ok()?;
    unusable(&algorithm)
}

/// What keys of this algorithm are of, if they cannot be used.
pub fn unusable(algorithm: &AlgorithmIdentifier<'_>) -> Option<String> {
    let oid = &algorithm.algorithm;
    if [RSA, ED25519].contains(oid) {
        return None;
    }
    if *oid != ELLIPTIC {
        return Some(name(oid));
    }
    let curve = algorithm.parameters.as_ref()?.as_oid().ok()?;
    (!CURVES.contains(&curve)).then(|| name(&curve))
}

/// What is known under this identifier, or the identifier.
fn name(oid: &Oid<'_>) -> String {
    let known = OTHERS.into_iter().find(|(other, _)| other == oid);
    known.map_or_else(|| oid.to_string(), |(_, name)| name.to_owned())
}
