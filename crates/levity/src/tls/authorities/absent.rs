//! What stands for authorities in a build without ACME. The configuration refuses `tls = "acme"`, so none is asked for a
//! certificate; nor is one for its state.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use levity_config::Config;
use levity_tls::{NamedKeys, ServerConfig};

/// The thread that would ask them.
#[derive(Clone, Default)]
pub struct AcmeThread(());

impl AcmeThread {
    /// There is none.
    ///
    /// # Errors
    /// None.
    pub fn start(&self, _: &Config) -> io::Result<Option<Arc<Acme>>> {
        Ok(None)
    }

    /// Changes nothing.
    pub fn follow(&self, _: &Config, _: Option<&Path>) {}

    /// Changes nothing.
    pub fn stop(&self) {}
}

/// What event loops would have of the thread.
pub struct Acme {
    /// What authorities look for.
    pub challenges: Arc<Challenges>,
    /// Certificates that clients ask for.
    pub on_demand: Arc<NamedKeys>,
    never: Infallible,
}

impl Acme {
    /// What operators would see of its certificates.
    pub fn reports(&self) -> Vec<Report> {
        match self.never {}
    }

    /// Gets the certificate for a name.
    pub async fn get(&self, _: &str) -> bool {
        match self.never {}
    }
}

/// What authorities would look for.
pub enum Challenges {}

impl Challenges {
    /// The answer over HTTP.
    pub fn http(&self, _: &str) -> Option<String> {
        match *self {}
    }

    /// The answer in a handshake.
    pub fn tls(&self, _: &str) -> Option<Arc<ServerConfig>> {
        match *self {}
    }
}

/// What would be known of a certificate.
pub struct Report {
    /// The name that it is for.
    pub name: String,
    /// Who has signed it.
    pub issuer: Option<String>,
    /// When it ends.
    pub not_after: Option<SystemTime>,
    /// When it is renewed.
    pub next: Option<SystemTime>,
    /// Why the last attempt has failed.
    pub error: Option<String>,
    /// Whether an attempt is made now.
    pub is_in_progress: bool,
}

/// The state of certificates by ACME, of which no site has one.
pub struct Stored;

impl Stored {
    /// That within a folder.
    pub fn new(_: &Path) -> Self {
        Self
    }

    /// The names that have certificates.
    ///
    /// # Errors
    /// None.
    pub fn names(&self) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }

    /// What is known of a name, which no site has.
    pub fn report(&self, _: &str) -> Report {
        unreachable!("the configuration refuses ACME")
    }

    /// Has servers make another attempt for a name, which no site has.
    ///
    /// # Errors
    /// None.
    pub fn retry(&self, _: &str) -> Result<(), String> {
        unreachable!("the configuration refuses ACME")
    }
}

/// The file of a certificate, which no site has.
pub fn certificate_path(_: &Path, _: &str) -> PathBuf {
    unreachable!("the configuration refuses ACME")
}

/// Asks no responder of OCSP.
///
/// # Errors
/// Always: the client for that is the one that authorities are asked with.
pub async fn ask_responder(_: &str, _: &[u8]) -> Result<Vec<u8>, String> {
    Err("only a program with the feature `acme` asks responders".to_owned())
}
