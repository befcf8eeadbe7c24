//! What operators see of certificates.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use levity_tls::Certificate;

use crate::clock::at;
use crate::state::NameState;

/// What is known of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The name that it is for.
    pub name: String,
    /// Who has signed it; `None` if there is none yet.
    pub issuer: Option<String>,
    /// When it ends.
    pub not_after: Option<SystemTime>,
    /// When it is renewed, or the next attempt is made.
    pub next: Option<SystemTime>,
    /// Why the last attempt has failed.
    pub error: Option<String>,
    /// Whether an attempt is made now.
    pub is_in_progress: bool,
}

impl Report {
    /// That of `name`.
    #[must_use]
    pub fn of(name: &str, certificate: Option<&Certificate>, state: &NameState) -> Self {
        let next = state.renew_at.max(state.not_before);
        Self {
            name: name.to_owned(),
            issuer: certificate.map(|one| one.issuer.clone()),
            not_after: certificate.map(|one| one.not_after),
            next: next.map(at),
            error: state.last_error.clone(),
            is_in_progress: false,
        }
    }
}

/// Reports by name. Whoever reads them waits for moments only.
#[derive(Debug, Default)]
pub struct Reports(Mutex<BTreeMap<String, Report>>);

impl Reports {
    /// All, by name.
    pub fn all(&self) -> Vec<Report> {
        self.lock().values().cloned().collect()
    }

    /// Returns the one before.
    pub fn set(&self, report: Report) -> Option<Report> {
        self.lock().insert(report.name.clone(), report)
    }

    pub fn retain(&self, keeps: impl Fn(&str) -> bool) {
        self.lock().retain(|name, _| keeps(name));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Report>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
