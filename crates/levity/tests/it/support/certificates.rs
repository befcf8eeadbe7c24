//! An authority, and certificates in files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, PKCS_RSA_SHA256, RsaKeySize, SerialNumber,
};

use super::Tree;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The serial number of certificates that name a responder, in hexadecimal digits.
pub const SERIAL: &str = "2A";

/// An authority whose certificate is in the file `ca.pem` of its folder, with the key `ca.key`.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    tree: Tree,
}

/// The key of a certificate.
pub enum Key {
    Ecdsa,
    Rsa,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        Self::with(name, CertificateParams::default())
    }

    /// One whose own certificate ends then.
    pub fn until(name: &str, end: SystemTime) -> Self {
        let mut params = CertificateParams::default();
        (params.not_before, params.not_after) = ((end - DAY).into(), end.into());
        Self::with(name, params)
    }

    fn with(name: &str, mut params: CertificateParams) -> Self {
        let key = KeyPair::generate().expect("a key");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).expect("a certificate");
        let tree = Tree::new();
        tree.file("ca.pem", certificate.pem());
        tree.file("ca.key", key.serialize_pem());
        Self {
            issuer: Issuer::new(params, key),
            tree,
        }
    }

    /// The folder with all files.
    pub fn folder(&self) -> &Path {
        self.tree.path()
    }

    /// The file of that name, for a configuration or a program.
    pub fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.tree.path().join(name)
    }

    /// Makes `NAME.pem` and `NAME.key` for `hosts`, valid from yesterday for a month.
    pub fn certify(&self, name: &str, hosts: &[&str], key: Key) {
        self.certify_until(name, hosts, key, SystemTime::now() + 30 * DAY);
    }

    /// The same with another end.
    pub fn certify_until(&self, name: &str, hosts: &[&str], key: Key, end: SystemTime) {
        let start = SystemTime::now().min(end) - DAY;
        self.certify_between(name, hosts, key, start, end);
    }

    /// The same with another start and end.
    pub fn certify_between(
        &self,
        name: &str,
        hosts: &[&str],
        key: Key,
        start: SystemTime,
        end: SystemTime,
    ) {
        let key = match key {
            Key::Ecdsa => KeyPair::generate(),
            Key::Rsa => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
        };
        let key = key.expect("a key");
        let hosts: Vec<_> = hosts.iter().map(|&host| host.to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("names");
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        (params.not_before, params.not_after) = (start.into(), end.into());
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        self.write(name, &key, &certificate.pem());
    }

    /// Makes `NAME.pem`, with its chain, and `NAME.key` for `host`. Whether it was revoked, the responder at `url` knows.
    pub fn certify_with_responder(&self, name: &str, host: &str, url: &str) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([host.to_owned()]).expect("names");
        let serial = u64::from_str_radix(SERIAL, 16).expect("a number");
        params.serial_number = Some(SerialNumber::from(serial));
        params.custom_extensions = vec![responder(url)];
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let authority = fs::read_to_string(self.path("ca.pem")).expect("read");
        self.write(name, &key, &(certificate.pem() + &authority));
    }

    fn write(&self, name: &str, key: &KeyPair, chain: &str) {
        // Whole, as programs that renew certificates write them.
        for (file, text) in [(".key", &*key.serialize_pem()), (".pem", chain)] {
            let path = self.path(&format!("{name}{file}"));
            let new = self.path("new");
            fs::write(&new, text).expect("written");
            fs::rename(new, path).expect("renamed");
        }
    }

    /// `[site.tls]` with the certificates of these names.
    pub fn table(&self, names: &[&str]) -> String {
        let files = |end: &str| {
            let files = names.iter().map(|name| self.file(&format!("{name}{end}")));
            format!("{:?}", files.collect::<Vec<_>>())
        };
        format!(
            "[site.tls]\ncertificates = {}\nkeys = {}\n",
            files(".pem"),
            files(".key")
        )
    }
}

/// The extension that names a responder of OCSP (RFC 5280, 4.2.2.1). `url` has less than 100 bytes.
fn responder(url: &str) -> CustomExtension {
    let element = |tag, content: &[u8]| [&[tag, content.len() as u8], content].concat();
    let ocsp = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01];
    let description = [element(0x06, &ocsp), element(0x86, url.as_bytes())].concat();
    let list = element(0x30, &element(0x30, &description));
    CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], list)
}
