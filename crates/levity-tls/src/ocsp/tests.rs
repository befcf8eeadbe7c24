//! Responses of a real responder: `openssl ocsp`.

use std::fs;
use std::path::Path;
use std::process::Command;

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, PKCS_RSA_SHA256, RsaKeySize, SerialNumber,
};
use tempfile::TempDir;

use super::*;

const URL: &str = "http://127.0.0.1:2560/ocsp";

const HOUR: Duration = Duration::from_secs(60 * 60);

/// `id-pe-authorityInfoAccess` with one responder.
fn access(url: &str) -> CustomExtension {
    let url = [&[0x86, url.len() as u8], url.as_bytes()].concat();
    let oid = [0x06, 8, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01];
    let one = [&oid[..], &url].concat();
    let one = [&[0x30, one.len() as u8][..], &one].concat();
    let all = [&[0x30, one.len() as u8][..], &one].concat();
    CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], all)
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
    /// With `ca.pem`, `ca.key`, and what responders need.
    folder: TempDir,
}

impl Authority {
    fn new() -> Self {
        Self::with_key(KeyPair::generate().expect("a key"))
    }

    fn with_key(key: KeyPair) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "authority");
        let certificate = params.self_signed(&key).expect("a certificate");
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), "ca.pem", certificate.pem());
        write(folder.path(), "ca.key", key.serialize_pem());
        Self {
            der: certificate.der().clone(),
            issuer: Issuer::new(params, key),
            folder,
        }
    }

    fn sign(&self, params: &CertificateParams, name: &str) -> CertificateDer<'static> {
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.issuer).expect("a certificate");
        write(self.folder.path(), &format!("{name}.pem"), signed.pem());
        write(
            self.folder.path(),
            &format!("{name}.key"),
            key.serialize_pem(),
        );
        signed.der().clone()
    }

    /// The chain of a certificate with this serial number.
    fn chain(&self, serial: u64) -> Vec<CertificateDer<'static>> {
        let mut params = CertificateParams::new(["a.test".to_owned()]).expect("names");
        params.serial_number = Some(SerialNumber::from(serial));
        params.custom_extensions = vec![access(URL)];
        vec![self.sign(&params, "leaf"), self.der.clone()]
    }

    /// Another one that may sign responses, unless `purpose` is another one.
    fn delegate(&self, purpose: ExtendedKeyUsagePurpose, end: SystemTime) {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "responder");
        params.extended_key_usages = vec![purpose];
        (params.not_before, params.not_after) = ((SystemTime::now() - HOUR).into(), end.into());
        self.sign(&params, "responder");
    }

    fn question(&self, serial: u64) -> Question {
        let question = Question::of(&self.chain(serial)).expect("a chain");
        question.expect("with a responder")
    }

    /// What `openssl ocsp` answers with this index, as `signer`.
    fn response(&self, question: &Question, index: &str, signer: &str, more: &[&str]) -> Vec<u8> {
        let folder = self.folder.path();
        write(folder, "index", index);
        write(folder, "request", &question.request);
        let fixed = "ocsp -index index -CA ca.pem -reqin request -respout response -rsigner";
        let key = format!("{signer}.key");
        let ran = Command::new("openssl")
            .args(fixed.split(' '))
            .args([&format!("{signer}.pem"), "-rkey", &key])
            .args(more)
            .current_dir(folder)
            .output();
        let ran = ran.expect("openssl: run `cargo xtask test`, which installs it");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{said}");
        fs::read(folder.join("response")).expect("a response")
    }

    fn good(&self, question: &Question, signer: &str) -> Vec<u8> {
        self.response(question, GOOD, signer, &["-ndays", "4"])
    }
}

const GOOD: &str = "V\t400101000000Z\t\t2A\tunknown\t/CN=a.test\n";
const REVOKED: &str = "R\t400101000000Z\t250101000000Z,superseded\t2A\tunknown\t/CN=a.test\n";

fn write(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    fs::write(folder.join(name), bytes).expect("written");
}

#[track_caller]
fn refused(question: &Question, der: &[u8], now: SystemTime, part: &str) {
    let refusal = question.staple(der.to_vec(), now).expect_err("refused");
    assert!(refusal.to_string().contains(part), "{refusal}");
}

#[test]
fn a_good_response_is_a_staple_while_it_is_valid() {
    let authority = Authority::new();
    let question = authority.question(42);
    assert_eq!(
        (question.url.as_str(), question.name.as_str()),
        (URL, "a.test")
    );
    let der = authority.good(&question, "ca");
    let now = SystemTime::now();
    let staple = question.staple(der.clone(), now).expect("good");
    let life = staple.next_update.duration_since(staple.this_update);
    assert_eq!(life.ok(), Some(4 * 24 * HOUR));
    assert_eq!(staple.der, der);
    let late = staple.this_update - CLOCK_TOLERANCE;
    assert!(question.staple(der.clone(), late).is_ok());
    refused(&question, &der, late - HOUR, "not valid yet");
    refused(&question, &der, staple.next_update, "has expired");
}

#[test]
fn authorities_with_rsa_keys_are_verified_too() {
    let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048);
    let authority = Authority::with_key(key.expect("a key"));
    let question = authority.question(42);
    for more in [&["-ndays", "4"][..], &["-ndays", "4", "-resp_key_id"]] {
        let der = authority.response(&question, GOOD, "ca", more);
        let staple = question.staple(der, SystemTime::now());
        assert!(staple.is_ok(), "{staple:?}");
    }
}

#[test]
fn whatever_is_not_good_is_refused_in_words() {
    let authority = Authority::new();
    let question = authority.question(42);
    let now = SystemTime::now();
    let days = ["-ndays", "4"];
    let revoked = authority.response(&question, REVOKED, "ca", &days);
    assert_eq!(question.staple(revoked, now), Err(Refusal::Revoked));
    let unknown = authority.response(&question, "", "ca", &days);
    refused(&question, &unknown, now, "does not know it");
    let endless = authority.response(&question, GOOD, "ca", &[]);
    refused(&question, &endless, now, "nextUpdate");
    let other = authority.question(43);
    let good = authority.good(&question, "ca");
    refused(&other, &good, now, "another certificate");
    refused(&question, &[0x30, 3, 10, 1, 3], now, "says tryLater");
    refused(
        &question,
        &[0x30, 3, 10, 1, 4],
        now,
        "not a valid OCSP response",
    );
    refused(&question, b"<html>", now, "not a valid OCSP response");
    refused(
        &question,
        &vec![0; RESPONSE_BYTES_MAX + 1],
        now,
        "16384 bytes",
    );
}

#[test]
fn a_responder_that_the_issuer_has_certified_may_sign() {
    let authority = Authority::new();
    let question = authority.question(42);
    let now = SystemTime::now();
    authority.delegate(ExtendedKeyUsagePurpose::OcspSigning, now + HOUR);
    for more in [&["-ndays", "4"][..], &["-ndays", "4", "-resp_key_id"]] {
        let der = authority.response(&question, GOOD, "responder", more);
        let staple = question.staple(der.clone(), now).expect("good");
        // It is not valid any longer than the certificate that verifies it.
        assert!(staple.next_update <= now + HOUR);
        refused(&question, &der, now + 2 * HOUR, "is not signed by");
    }
    let bare = ["-ndays", "4", "-resp_no_certs"];
    let bare = authority.response(&question, GOOD, "responder", &bare);
    refused(&question, &bare, now, "is not signed by");
    authority.delegate(ExtendedKeyUsagePurpose::ServerAuth, now + HOUR);
    let der = authority.good(&question, "responder");
    refused(&question, &der, now, "is not signed by");
}

#[test]
fn nobody_else_may_sign() {
    let (authority, other) = (Authority::new(), Authority::new());
    let question = authority.question(42);
    let now = SystemTime::now();
    // Of the same name, with another key.
    other.delegate(ExtendedKeyUsagePurpose::OcspSigning, now + HOUR);
    for name in ["ca", "responder"] {
        for end in ["pem", "key"] {
            let file = fs::read(other.folder.path().join(format!("{name}.{end}")));
            let copy = format!("other-{name}.{end}");
            write(authority.folder.path(), &copy, file.expect("read"));
        }
        let der = authority.good(&question, &format!("other-{name}"));
        refused(&question, &der, now, "is not signed by");
    }
}

#[test]
fn no_bit_of_what_is_signed_may_change_and_no_byte_may_be_missing() {
    let authority = Authority::new();
    let question = authority.question(42);
    let der = authority.good(&question, "ca");
    let now = SystemTime::now();
    let _ = question.staple(der.clone(), now).expect("good");
    for len in 0..der.len() {
        let cut = question.staple(der[..len].to_vec(), now);
        assert!(cut.is_err(), "the first {len} bytes");
    }
    let longer = [&der[..], &[0]].concat();
    refused(&question, &longer, now, "not a valid OCSP response");
    let begin = der
        .windows(BASIC_OID.len())
        .position(|part| part == BASIC_OID);
    let basic = Basic::parse(successful(&der).expect("a response")).expect("its content");
    let signed = basic.data.as_ptr() as usize - der.as_ptr() as usize;
    assert!(begin.is_some_and(|begin| begin < signed));
    for at in signed..signed + basic.data.len() {
        let mut changed = der.clone();
        changed[at] ^= 1;
        assert!(question.staple(changed, now).is_err(), "byte {at}");
    }
}

#[test]
fn certificates_without_a_responder_and_chains_without_an_issuer_are_told_apart() {
    let authority = Authority::new();
    let chain = authority.chain(42);
    let alone = Question::of(&chain[..1]).expect_err("no issuer");
    assert!(
        alone.contains("lacks the certificate of its issuer"),
        "{alone}"
    );
    for extensions in [vec![], vec![access("ldap://a.test")]] {
        let mut params = CertificateParams::default();
        params.custom_extensions = extensions;
        let chain = [authority.sign(&params, "plain"), authority.der.clone()];
        assert!(Question::of(&chain).expect("a chain").is_none());
    }
    assert!(Question::of(&[]).expect("nothing").is_none());
}
