//! A configuration, compiled into a [`Service`].

use std::io;
use std::sync::Arc;

use levity_config::Config;
use levity_disk::Disk;

use super::logs;
use super::roots::Roots;
use super::stores::{self, Stores};
use crate::credentials::guesses::Guesses;
use crate::loop_core::compute::Compute;
use crate::mailboxes::set::SharedMailboxes;
use crate::rate_limit::registry::Registry;
use crate::route::{Hosts, Service, Site};
use crate::shares::Shares;
use crate::stores::variants::store::VariantStore;
use crate::tls::authorities::Acme;
use crate::tls::folder;
use crate::tls::parts::TlsParts;
use crate::tls::sites::TlsSites;
use crate::upstream;

/// What a configuration is compiled with. A reload does not change it.
#[derive(Clone)]
pub struct ServiceParts {
    /// The disk.
    pub disk: Arc<Disk>,
    /// What computes off the loop.
    pub compute: Arc<Compute>,
    /// What clients share.
    pub shares: Arc<Shares>,
    /// The bounds on guessing passwords.
    pub guesses: Arc<Guesses>,
    /// The limits of sites and routes.
    pub rate_limits: Arc<Registry>,
    /// What all sets of mailboxes have in common.
    pub mailboxes: Arc<SharedMailboxes>,
    /// The same for the event streams that `resume` keeps.
    pub resume: Arc<SharedMailboxes>,
    /// The store of compressed forms of popular files, if they are kept.
    pub variants: Option<Arc<VariantStore>>,
    /// The maximum number of files that handlers keep open between requests.
    pub kept_files_max: usize,
    /// Whether clients connect. Without any, certificates are not read: whoever explains a request need not be able to read keys.
    pub has_clients: bool,
    /// What certificates and handshakes need.
    pub tls: TlsParts,
}

/// Has the certificates of sites got and renewed as the configuration of `service` says.
pub fn follow_certificates(service: &Service, parts: &ServiceParts) {
    parts.tls.follow(&service.config, service.tls.as_deref());
}

/// Opens every root, starts the engines of sites and routes in the disk of `parts`, and resolves the names of
/// backends. Upstreams keep the health that they have in `old`, the configuration before this one; preloaded
/// content and incomplete uploads stay too. Blocks.
///
/// # Errors
/// When an engine cannot run here, or a root cannot be opened that may not be absent; the error names it.
pub fn service(config: Config, parts: &ServiceParts, old: Option<&Service>) -> io::Result<Service> {
    let disk = &*parts.disk;
    let old_upstreams = old.map(|old| &*old.upstreams);
    let upstreams = upstream::make(&config.upstreams, old_upstreams)?;
    let acme = parts.tls.acme(&config)?;
    let preloads = stores::preloads(&config, parts.kept_files_max, old);
    let digests = stores::digests(&config, old);
    check_unread(&config, old)?;
    let before = old.map_or(&[][..], |old| &old.live_roots);
    let mut roots = Roots::after(
        before,
        folder::secrets(&config),
        config.absent_roots.clone(),
    );
    let uploads = stores::uploads(&config, &mut roots, old);
    let kept = Stores {
        preloads: preloads.as_ref(),
        digests: digests.as_ref(),
        uploads: &uploads,
    };
    let (sites, roots) = super::sites(&config, &upstreams, &kept, roots, parts, acme.as_ref())?;
    let (live_roots, absent_roots) = roots.into_parts();
    let expressions = config.sites.iter().map(levity_config::Site::expressions);
    let expressions_max = expressions.max().unwrap_or_default();
    let logs = logs::logs(&config);
    let times_each_step = logs.iter().any(levity_config::Log::logs_steps)
        || (sites.iter().flat_map(Site::locations)).any(|location| location.server_timing);
    let spool = stores::spool(&config, disk)?;
    Ok(Service {
        wire_limits: super::wire_limits(&config.limits),
        has_silent_spool: spool.is_silent(),
        spool: spool.opened(),
        memory_engine: disk.engine_for("threads").map_err(io::Error::other)?,
        guesses: parts.guesses.clone(),
        upstreams,
        live_roots,
        absent_roots,
        preloads,
        digests,
        uploads,
        sites,
        hosts: Hosts::new(&config),
        log: logs::log_number(&logs, &config.log),
        tls: tls_sites(&config, parts, acme, old)?,
        keeps_chunks: logs.iter().any(levity_config::Log::logs_chunks),
        logs,
        expressions_max,
        times_each_step,
        config: Arc::new(config),
    })
}

/// Refuses, at a reload, a file without which nobody can be let in, and that does not respond. While the configuration of before has
/// such files too, there is nothing to keep.
fn check_unread(config: &Config, old: Option<&Service>) -> io::Result<()> {
    let is_kept = old.is_some_and(|old| !old.is_incomplete());
    let locations = config.sites.iter().flat_map(levity_config::Site::locations);
    let mut unread = locations.flat_map(|location| config.unread(location));
    match unread.next().filter(|_| is_kept) {
        Some(path) => Err(io::Error::other(format!(
            "{} does not respond",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// The certificates of sites, if clients are to come.
fn tls_sites(
    config: &Config,
    parts: &ServiceParts,
    acme: Option<Arc<Acme>>,
    old: Option<&Service>,
) -> io::Result<Option<Arc<TlsSites>>> {
    if !parts.has_clients {
        return Ok(None);
    }
    let old = old.and_then(|old| old.tls.as_deref());
    parts.tls.sites(config, acme, old)
}
