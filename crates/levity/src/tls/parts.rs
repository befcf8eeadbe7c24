//! What all configurations of a process have in common of TLS.

use std::io;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use levity_config::Config;
use levity_disk::patiently;
use levity_tls::files::create_private_folder;
use levity_tls::{TICKET_KEY_ROTATION, TicketKeys};

use super::authorities::{Acme, AcmeThread};
use super::folder::state_folder;
use super::sites::TlsSites;
use super::staple::{Fetches, Staples};

/// What a reload does not change.
#[derive(Clone)]
pub struct TlsParts {
    /// Keys of session tickets that no file gives.
    ticket_keys: Arc<TicketKeys>,
    acme: AcmeThread,
    /// What responders of OCSP have said of certificates.
    staples: Arc<Staples>,
}

impl Default for TlsParts {
    fn default() -> Self {
        Self {
            ticket_keys: Arc::new(TicketKeys::random()),
            acme: AcmeThread::default(),
            staples: Arc::default(),
        }
    }
}

impl TlsParts {
    /// As [`AcmeThread::start`].
    ///
    /// # Errors
    /// The same.
    pub fn acme(&self, config: &Config) -> io::Result<Option<Arc<Acme>>> {
        self.acme.start(config)
    }

    /// As [`TlsSites::new`].
    ///
    /// # Errors
    /// The same.
    pub fn sites(
        &self,
        config: &Config,
        acme: Option<Arc<Acme>>,
        old: Option<&TlsSites>,
    ) -> io::Result<Option<Arc<TlsSites>>> {
        TlsSites::new(config, &self.ticket_keys, &self.staples, acme, old)
    }

    /// Has the certificates of `sites` got and renewed as `config` says.
    pub fn follow(&self, config: &Config, sites: Option<&TlsSites>) {
        self.acme.follow(config, sites.map(TlsSites::folder));
    }

    /// Has no certificate got any more.
    pub fn stop(&self) {
        self.acme.stop();
    }
}

/// What the control thread does from time to time.
pub struct Upkeep {
    fetches: Fetches,
    /// When the keys of tickets were changed.
    rotated: Instant,
}

impl Default for Upkeep {
    fn default() -> Self {
        Self {
            fetches: Fetches::default(),
            rotated: Instant::now(),
        }
    }
}

impl Upkeep {
    /// Does what is due. Responders of OCSP are asked only if a listener uses TLS. Does not block.
    pub fn look(&mut self, parts: &TlsParts, has_listener: bool) {
        if has_listener {
            self.fetches.begin(&parts.staples, SystemTime::now());
        }
        if self.rotated.elapsed() >= TICKET_KEY_ROTATION {
            self.rotated = Instant::now();
            parts.ticket_keys.rotate();
        }
    }
}

/// Makes the folder of the state, as the server would later. A site with certificates of its own keeps OCSP responses there. Whoever
/// needs it says why it cannot be made. Blocks.
pub fn make_state_folder(config: &Config) {
    let has_tls = config.sites.iter().any(|site| site.tls.is_some());
    if has_tls && let Ok(folder) = state_folder(config) {
        let _ = patiently(&folder, create_private_folder);
    }
}
