//! What the folder says, for whoever looks from outside of a server. Looking makes nothing.

use std::path::{Path, PathBuf};

use levity_tls::Certificate;

use crate::folder::{self, certificate_path, is_worked_on, state_path};
use crate::reports::Report;
use crate::state::{NameState, Unread};

/// The folder, which need not be there. Everything here blocks.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The folder of all state of TLS.
    state: PathBuf,
}

impl Stored {
    /// That within `state`, the folder of all state of TLS.
    #[must_use]
    pub fn new(state: &Path) -> Self {
        Self {
            state: state.to_owned(),
        }
    }

    /// The names that have certificates.
    ///
    /// # Errors
    /// In words, with the path, when the folder is there and cannot be read.
    pub fn names(&self) -> Result<Vec<String>, String> {
        folder::names(&self.state)
    }

    /// What is known of `name`. The error is why that cannot be read, or else why the last attempt has failed.
    #[must_use]
    pub fn report(&self, name: &str) -> Report {
        let state = NameState::read(&state_path(&self.state, name)).map_err(Unread::into_reason);
        let certificate = self.certificate(name);
        let mut report = Report::of(
            name,
            certificate.as_ref().ok().and_then(Option::as_ref),
            state.as_ref().unwrap_or(&NameState::default()),
        );
        let unread = certificate.err().or(state.err());
        report.error = unread.or(report.error);
        report.is_in_progress = is_worked_on(&self.state, name);
        report
    }

    /// Has servers that use the folder make another attempt for `name` soon, or when they start.
    ///
    /// # Errors
    /// In words, with the path, such as when no server has made the folder yet.
    pub fn retry(&self, name: &str) -> Result<(), String> {
        folder::want_retry(&self.state, name)
    }

    fn certificate(&self, name: &str) -> Result<Option<Certificate>, String> {
        let path = certificate_path(&self.state, name);
        match path.try_exists() {
            Ok(false) => Ok(None),
            Ok(true) | Err(_) => Certificate::read(&path, &path).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::SystemTime;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;
    use crate::clock::at;
    use crate::folder::Folder;

    fn pem(name: &str) -> String {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([name.to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate");
        key.serialize_pem() + &certificate.pem()
    }

    #[test]
    fn a_look_at_nothing_makes_nothing() {
        let state = tempfile::tempdir().expect("a folder");
        let stored = Stored::new(state.path());
        assert_eq!(stored.names(), Ok(Vec::new()));
        let none = Report::of("a.test", None, &NameState::default());
        assert_eq!(stored.report("a.test"), none);
        let mut left = fs::read_dir(state.path()).expect("a folder");
        assert!(left.next().is_none());
    }

    #[test]
    fn reports_have_what_was_kept() {
        let state = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(state.path()).expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.certificate(name);
            folder.write(&path, text.as_bytes()).expect("written");
        };
        write("*.a.test", &pem("*.a.test"));
        write("broken.test", "nothing");
        let kept = NameState {
            renew_at: Some(70),
            last_error: Some("refused".to_owned()),
            ..NameState::default()
        };
        kept.save(&folder, "*.a.test").expect("saved");
        let stored = Stored::new(state.path());
        let names = ["*.a.test", "broken.test"].map(str::to_owned);
        assert_eq!(stored.names(), Ok(names.to_vec()));
        let report = stored.report("*.a.test");
        assert!(report.not_after.is_some_and(|end| end > SystemTime::now()));
        assert_eq!(report.next, Some(at(70)));
        assert_eq!(report.error.as_deref(), Some("refused"));
        let broken = stored.report("broken.test");
        let reason = broken.error.expect("a reason");
        assert!(broken.not_after.is_none() && reason.contains("broken.test.pem"));
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let state = tempfile::tempdir().expect("a folder");
        // A file in place of the folder is as unreadable as the folder of another user.
        fs::write(state.path().join("acme"), "").expect("written");
        let stored = Stored::new(state.path());
        let reason = stored.names().expect_err("no folder");
        assert!(reason.contains("acme cannot be read: "), "{reason}");
        let report = stored.report("a.test");
        let reason = report.error.expect("a reason");
        assert!(reason.contains("a.test.pem cannot be read"), "{reason}");
    }
}
