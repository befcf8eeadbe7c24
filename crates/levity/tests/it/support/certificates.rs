//! An authority, and certificates in files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    PKCS_RSA_SHA256, RsaKeySize,
};

use super::Tree;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// An authority whose certificate is in the file `ca.pem` of its folder.
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
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).expect("a certificate");
        let tree = Tree::new();
        tree.file("ca.pem", certificate.pem());
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
        let start = SystemTime::now().min(end) - DAY;
        (params.not_before, params.not_after) = (start.into(), end.into());
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        // Whole, as programs that renew certificates write them.
        for (file, text) in [(".key", key.serialize_pem()), (".pem", certificate.pem())] {
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
