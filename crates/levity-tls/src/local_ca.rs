//! An authority of this machine, for development: browsers accept its certificates once it is installed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::certificate::Certificate;
use crate::{files, pem};

/// The file with the certificate of the authority, in its folder.
const CERTIFICATE: &str = "local-ca.pem";

/// The file with its key.
const KEY: &str = "local-ca.key";

/// The file that whoever makes it has locked.
const LOCK: &str = "local-ca.lock";

/// How long the authority lives.
const LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// How long its certificates live. Browsers refuse those that live longer than 398 days.
const CERTIFICATE_LIFE: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// Clocks of clients may be late.
const EARLIER: Duration = Duration::from_secs(60 * 60);

/// The authority.
pub struct LocalCa {
    issuer: Issuer<'static, KeyPair>,
    certificate: PathBuf,
}

impl LocalCa {
    /// The authority in `folder`, which is made when it is not there. Blocks.
    ///
    /// # Errors
    /// In words, with the path.
    pub fn open(folder: &Path) -> Result<Self, String> {
        let (certificate, key) = (folder.join(CERTIFICATE), folder.join(KEY));
        let failed = |error: io::Error| format!("{}: {error}", folder.display());
        files::create_private_folder(folder).map_err(failed)?;
        // Several servers may start at the same time.
        let lock = fs::File::create(folder.join(LOCK)).map_err(failed)?;
        lock.lock().map_err(failed)?;
        // One that cannot be removed does no harm.
        let _ = files::remove_leftovers(folder);
        if !certificate.exists() {
            make(&certificate, &key).map_err(failed)?;
        }
        let read = Certificate::read(&certificate, &key)?;
        let of_key = |reason: String| format!("{}: {reason}", key.display());
        let der = pem::key(&files::read(&key)?).map_err(of_key)?;
        let pair = KeyPair::try_from(&der).map_err(|error| of_key(error.to_string()))?;
        let issuer = Issuer::from_ca_cert_der(read.der(), pair);
        let issuer = issuer.map_err(|error| format!("{}: {error}", certificate.display()))?;
        Ok(Self {
            issuer,
            certificate,
        })
    }

    /// The file with its certificate, which clients have to trust.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.certificate
    }

    /// The same, for the authority in `folder`.
    #[must_use]
    pub fn path_in(folder: &Path) -> PathBuf {
        folder.join(CERTIFICATE)
    }

    /// A certificate for `names`, DNS names and IP addresses.
    ///
    /// # Errors
    /// In words.
    pub fn issue(&self, names: &[String], now: SystemTime) -> Result<Certificate, String> {
        self.sign(names, now).map_err(|error| error.to_string())?
    }

    fn sign(
        &self,
        names: &[String],
        now: SystemTime,
    ) -> Result<Result<Certificate, String>, rcgen::Error> {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = DistinguishedName::new();
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.not_before = (now - EARLIER).into();
        params.not_after = (now + CERTIFICATE_LIFE).into();
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(Certificate::of_der(vec![certificate.into()], key))
    }
}

/// Makes an authority. The certificate is written last: with it the authority is complete.
fn make(certificate: &Path, key: &Path) -> io::Result<()> {
    let pair = KeyPair::generate().map_err(io::Error::other)?;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, "Levity");
    params
        .distinguished_name
        .push(DnType::CommonName, "Levity, local authority");
    let now = SystemTime::now();
    params.not_before = (now - EARLIER).into();
    params.not_after = (now + LIFE).into();
    let signed = params.self_signed(&pair).map_err(io::Error::other)?;
    files::write(key, pair.serialize_pem().as_bytes(), 0o600)?;
    files::write(certificate, signed.pem().as_bytes(), 0o644)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::certificate::Validity;

    #[test]
    fn an_authority_is_made_once_and_signs_for_names_and_addresses() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("tls");
        let first = LocalCa::open(&folder).expect("an authority");
        let text = fs::read(first.path()).expect("its certificate");
        let again = LocalCa::open(&folder).expect("the same");
        assert_eq!(fs::read(again.path()).expect("its certificate"), text);
        let validity = Validity::read(&LocalCa::path_in(&folder)).expect("without a key");
        assert_eq!(validity.issuer, "Levity, Levity, local authority");
        assert!(SystemTime::now() + LIFE / 2 < validity.not_after);
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join(KEY))), (0o700, 0o600));
        let names = ["localhost", "*.a.test", "127.0.0.1", "::1"].map(str::to_owned);
        let now = SystemTime::now();
        let certificate = again.issue(&names, now).expect("a certificate");
        assert_eq!(certificate.names, names);
        assert_eq!(certificate.issuer, "Levity, Levity, local authority");
        assert!(
            certificate.not_before < now
                && now + Duration::from_secs(89 * 86400) < certificate.not_after
        );
        for (host, is_for) in [
            ("b.a.test", true),
            ("a.test", false),
            ("c.b.a.test", false),
            ("::1", true),
        ] {
            assert_eq!(certificate.is_for(host), is_for, "{host}");
        }
    }

    #[test]
    fn what_a_crash_has_left_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let left = folder.path().join("local-ca.key,0123456789abcdef");
        let file = fs::File::create(&left).expect("a file");
        let long_ago = SystemTime::now() - Duration::from_secs(24 * 60 * 60);
        file.set_modified(long_ago).expect("a time");
        LocalCa::open(folder.path()).expect("an authority");
        assert!(!left.exists());
    }

    #[test]
    fn a_folder_that_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, "").expect("written");
        let error = LocalCa::open(&path.join("tls")).err().expect("an error");
        assert!(error.contains("file/tls: "), "{error}");
        fs::write(folder.path().join(CERTIFICATE), "damaged").expect("written");
        fs::write(folder.path().join(KEY), "damaged").expect("written");
        let error = LocalCa::open(folder.path()).err().expect("an error");
        assert!(
            error.contains("local-ca.pem: there is no certificate"),
            "{error}"
        );
    }
}
