//! What the locations share while they are compiled.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use levity_config::tls::SiteTls;
use levity_config::{Config, LocationDisk, LocationOptions};
use levity_disk::{Disk, ReadOptions};
use levity_telemetry::diagnostics;

use super::roots::Roots;
use super::stores::Stores;
use crate::files::scripts::Scripts;
use crate::handler::gate::basic_auth::BasicAuth;
use crate::loop_core::compute::Compute;
use crate::mailboxes::set::{MailboxSet, SharedMailboxes};
use crate::rate_limit::registry::Registry;
use crate::stores::variants::store::VariantStore;
use crate::tls::authorities::Challenges;
use crate::upstream::Upstream;

/// What the locations share.
pub struct Resources<'a> {
    pub config: &'a Config,
    pub compute: &'a Arc<Compute>,
    pub variants: Option<&'a Arc<VariantStore>>,
    pub upstreams: &'a [Arc<Upstream>],
    pub stores: &'a Stores<'a>,
    pub body_bytes: usize,
    pub kept_files_max: usize,
    pub rate_limits: &'a Registry,
    pub rate_limit_bytes: usize,
    pub mailboxes: Vec<Arc<MailboxSet>>,
    pub shared_resume: &'a Arc<SharedMailboxes>,
    pub disk: &'a Disk,
    pub whole: &'a levity_config::Disk,
    pub request_id: Option<String>,
    pub logs: Vec<levity_config::Log>,
    /// That of the server, in `logs`.
    pub log: Option<usize>,
    /// See [`all_scripts`](super::scripts::all_scripts).
    pub scripts: Vec<(Arc<Path>, Scripts)>,
    /// See [`reserved`](super::gates::reserved).
    pub reserved: Vec<String>,
    /// The port of HTTPS, unless it is the usual one.
    pub https_port: Option<u16>,
    /// Answers for authorities, if a site gets its certificates from them.
    pub challenges: Option<Arc<Challenges>>,
    /// The number of sites with TLS so far.
    pub tls_sites: usize,
    pub roots: Roots,
    /// Locations with the same settings share their users, and so what is known about passwords.
    pub users: Vec<(levity_config::BasicAuth, Arc<BasicAuth>)>,
    /// What has been logged of paths that do not respond.
    pub silent: BTreeSet<String>,
}

impl Resources<'_> {
    /// The read options of a location; those of `[disk]` are the default.
    pub fn reading(&self, options: &LocationOptions) -> LocationDisk {
        let own = options.disk.clone();
        LocationDisk {
            chunk_bytes: own.chunk_bytes.or(self.whole.chunk_bytes),
            direct: own.direct.or(Some(self.whole.direct)),
            changes: own.changes.or(Some(self.whole.changes)),
            ..own
        }
    }

    /// Logs, once for each path, that it does not respond or is absent.
    pub fn is_silent(&mut self, error: &io::Error) {
        let text = error.to_string();
        if !self.silent.contains(&text) {
            diagnostics::log(format_args!(
                "{text}; what needs it gets 503 until that changes"
            ));
            self.silent.insert(text);
        }
    }

    pub fn upstream(&self, name: &str) -> Arc<Upstream> {
        upstream(self.upstreams, name).clone()
    }

    pub fn read_options(&self, reading: &LocationDisk) -> io::Result<ReadOptions> {
        let engine = reading.engine.as_deref();
        let started = engine.map(|name| self.disk.engine_for(name)).transpose();
        Ok(ReadOptions {
            engine: started.map_err(io::Error::other)?.flatten(),
            direct: reading.direct.unwrap_or_default(),
            changes: reading.changes.unwrap_or_default(),
            ..ReadOptions::default()
        })
    }
}

/// The upstream of that name, which there is.
pub fn upstream<'u>(upstreams: &'u [Arc<Upstream>], name: &str) -> &'u Arc<Upstream> {
    let mut upstreams = upstreams.iter();
    let upstream = upstreams.find(|upstream| upstream.settings.name == name);
    upstream.expect("the configuration was checked")
}

/// What the locations of a site share.
pub struct SiteParts {
    /// The number of the site among those with TLS.
    pub tls_number: usize,
    /// How clients reach it over TLS.
    pub tls: Option<SiteTls>,
    /// Its host names.
    pub hosts: Vec<String>,
    /// Its place in the configuration.
    pub number: usize,
    /// The name of the only file that is served.
    pub only: Option<Vec<u8>>,
    /// See [`has_php`](super::scripts::has_php).
    pub has_php: bool,
}
