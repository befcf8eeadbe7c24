//! What a reload makes before anything changes. A thread of its own does that: a file may be on a frozen disk.

use std::io;
use std::path::Path;
use std::sync::Arc;

use levity_config::address::Address;
use levity_config::{Config, Errors};
use levity_disk::patiently;
use levity_net::{Bound, Inherited};
use levity_telemetry::access_log::{Target, Writer};

use crate::process::log_writers::LogOpener;
use crate::route::Service;

/// What a reload needs, made before anything changes.
pub struct Made {
    /// The compiled configuration.
    pub service: Service,
    /// New addresses.
    pub bound: Vec<Bound>,
    /// New files of logs.
    pub logs: Vec<(Target, Writer)>,
}

impl Made {
    /// Binds the addresses and opens the files of `service` that are not among the `present` ones. Blocks, for seconds at most.
    ///
    /// # Errors
    /// When one of them cannot be used, or something has changed that needs a restart.
    pub fn new(service: Service, old: &Service, present: &Present) -> io::Result<Self> {
        check_restart(&service.config, &old.config)?;
        let addresses = service.config.listen.iter().map(|listen| &listen.address);
        let new = addresses.filter(|address| !present.listening.contains(address));
        let bound = new.map(|address| bind(address, present.workers, &present.inherited));
        Ok(Self {
            bound: bound.collect::<io::Result<_>>()?,
            logs: present.logs.open(&service.logs)?,
            service,
        })
    }
}

/// What there is already.
pub struct Present {
    /// The number of event loops.
    pub workers: usize,
    /// The addresses, as configured.
    pub listening: Vec<Address>,
    /// What opens further files of logs.
    pub logs: LogOpener,
    /// The sockets of the service manager.
    pub inherited: Arc<Inherited>,
}

/// Why a reload failed.
pub enum Refused {
    /// The configuration has errors.
    Config(Errors),
    /// What it says cannot be done. The reason has no values of variables.
    Service(String),
}

/// Binds an address for so many event loops, unless a socket on it is `inherited`. Blocks, for seconds at most.
///
/// # Errors
/// When that is not possible; the error names it.
pub fn bind(address: &Address, workers: usize, inherited: &Inherited) -> io::Result<Bound> {
    match address {
        Address::Tcp(_) => inherited.bind(address, workers),
        Address::Unix(path) => {
            let address = address.clone();
            // The service manager passes TCP sockets only.
            let bind = move |_: &Path| levity_net::bind(&address, workers);
            let bound = patiently(path, bind);
            bound.map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            })?
        }
    }
}

/// Refuses changes that need a restart.
fn check_restart(config: &Config, old: &Config) -> io::Result<()> {
    let changed = [
        (
            config.server.workers != old.server.workers,
            "server.workers changed",
        ),
        (
            config.limits.connections != old.limits.connections,
            "limits.connections changed",
        ),
        (
            config.mailbox_store != old.mailbox_store,
            "[mailbox_store] changed",
        ),
        (
            !same_disk(&config.disk, &old.disk),
            "a key of [disk] other than entry_ttl, chunk, direct, changes and spool changed",
        ),
    ];
    match changed.iter().find(|(is_changed, _)| *is_changed) {
        Some((_, what)) => Err(io::Error::other(format!("{what}, which needs a restart"))),
        None => Ok(()),
    }
}

/// Whether two configurations differ only in values that may change with a reload.
fn same_disk(new: &levity_config::Disk, old: &levity_config::Disk) -> bool {
    let mut new = new.clone();
    new.entry_ttl = old.entry_ttl;
    new.chunk_bytes = old.chunk_bytes;
    new.direct = old.direct;
    new.changes = old.changes;
    new.spool.clone_from(&old.spool);
    new == *old
}
