//! A configuration as an event loop uses it, whatever it serves.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use levity_config::Config;
use levity_disk::EngineId;
use levity_telemetry::access_log::{Log, Record};
use levity_telemetry::stats::WorkerStats;
use levity_telemetry::stats::site::SiteCells;
use levity_wire::http1;

/// A configuration as one event loop uses it, with its ends of the logs. Requests count references to it that no other loop's
/// requests count too.
pub struct LoopConfig {
    /// The configuration as written.
    pub config: Arc<Config>,
    /// Limits of the request parser.
    pub wire_limits: http1::Limits,
    /// An engine that reads into memory, also where that of a location leaves bytes in the page cache.
    pub memory_engine: Option<EngineId>,
    /// The ends of the access logs, by number.
    logs: Vec<Rc<RefCell<Log>>>,
    /// The counters of sites, in their order.
    sites: Vec<Arc<SiteCells>>,
}

impl LoopConfig {
    /// `config` with the loop's ends of its access logs. The counters of its sites take the place of those in `stats`.
    pub fn new(
        config: &Arc<Config>,
        wire_limits: http1::Limits,
        memory_engine: Option<EngineId>,
        logs: Vec<Log>,
        stats: &WorkerStats,
    ) -> Self {
        let names = config.sites.iter().map(levity_config::Site::name);
        Self {
            sites: stats.sites.replace(names),
            logs: logs
                .into_iter()
                .map(|log| Rc::new(RefCell::new(log)))
                .collect(),
            config: config.clone(),
            wire_limits,
            memory_engine,
        }
    }

    /// The logs, which end with the last request that has this configuration.
    pub(super) fn logs(&self) -> impl Iterator<Item = Weak<RefCell<Log>>> {
        self.logs.iter().map(Rc::downgrade)
    }

    /// Logs a finished request in the log of that number, if there is one.
    pub fn log_in<'r>(&self, log: Option<usize>, record: impl FnOnce() -> Record<'r>) {
        if let Some(log) = log.and_then(|log| self.logs.get(log)) {
            log.borrow_mut().record(&record());
        }
    }

    /// The name of the site of that number.
    pub fn site_name(&self, site: usize) -> &str {
        self.config.sites[site].name()
    }

    /// The counters of the site of that number.
    pub fn site_cells(&self, site: usize) -> &SiteCells {
        &self.sites[site]
    }
}
