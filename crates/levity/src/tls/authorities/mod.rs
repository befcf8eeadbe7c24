//! The authorities that are asked for certificates and for their state: what the thread that does so is told, and what
//! others use of it.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use levity_acme::{Authority, DnsSettings, ExternalAccount, Method, Plan, Settings};
use levity_config::Config;
use levity_config::acme::{Challenge, Dns};
use levity_telemetry::diagnostics;

pub use levity_acme::challenges::Challenges;
pub use levity_acme::folder::certificate_path;
pub use levity_acme::responder::ask as ask_responder;
pub use levity_acme::{Acme, Report, Stored};

use super::acme::{acme_names, has_acme};

/// The thread, once a site wants it.
#[derive(Clone, Default)]
pub struct AcmeThread(Arc<OnceLock<Arc<Acme>>>);

impl AcmeThread {
    /// The thread for `config`; `None` if no site needs it. It does nothing before it is told to [`follow`](Self::follow).
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, config: &Config) -> io::Result<Option<Arc<Acme>>> {
        if !config.sites.iter().any(has_acme) {
            return Ok(None);
        }
        if let Some(running) = self.0.get() {
            return Ok(Some(running.clone()));
        }
        let started = Acme::start(diagnostics::log)?;
        Ok(Some(self.0.get_or_init(|| started).clone()))
    }

    /// Has the thread do what `config` says from now on. `folder` is that of the state; `None` if no listener uses TLS.
    pub fn follow(&self, config: &Config, folder: Option<&Path>) {
        if let Some(running) = self.0.get() {
            running.follow(folder.and_then(|folder| plan(config, folder)));
        }
    }

    /// Has it do nothing any more.
    pub fn stop(&self) {
        if let Some(running) = self.0.get() {
            running.follow(None);
        }
    }
}

fn plan(config: &Config, folder: &Path) -> Option<Plan> {
    let sites = config.sites.iter().filter(|site| has_acme(site));
    let names = sites.clone().flat_map(|site| acme_names(site, config));
    let mut names: Vec<_> = names.collect();
    names.sort();
    names.dedup();
    let settings = settings(config, folder);
    (sites.count() > 0).then_some(Plan { settings, names })
}

fn settings(config: &Config, folder: &Path) -> Settings {
    let acme = &config.acme;
    let authorities = acme.authorities.iter().map(|one| Authority {
        directory: one.directory.clone(),
        roots: one.roots.clone(),
        profile: one.profile.clone(),
        external_account: one
            .account
            .clone()
            .map(|(id, key)| ExternalAccount { id, key }),
    });
    let methods = acme.challenges.iter().map(|challenge| match challenge {
        Challenge::TlsAlpn01 => Method::TlsAlpn01,
        Challenge::Http01 => Method::Http01,
        Challenge::Dns01 => Method::Dns01,
    });
    let dns = acme.dns.clone().map(|dns| match dns {
        Dns::Hook(words) => DnsSettings::Hook(words),
        Dns::Update { server, zone, key } => DnsSettings::Update { server, zone, key },
    });
    Settings {
        folder: folder.to_owned(),
        contact: acme.contact.clone(),
        authorities: authorities.collect(),
        methods: methods.collect(),
        dns,
        ask: acme.ask.clone(),
    }
}
