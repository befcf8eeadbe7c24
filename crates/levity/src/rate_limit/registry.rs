//! The limits of the configuration, and of those before it as far as requests still use them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use levity_telemetry::stats::{LimitFigures, LimitTableFigures};

use super::limit::{REST_AFTER, RateLimit};
use super::table::Table;

/// All limits. A reload finds those that stay, with their state. No event loop uses it.
#[derive(Default)]
pub struct Registry(Mutex<Vec<Arc<RateLimit>>>);

impl Registry {
    /// The limit with these settings at `scope`, a name of its site or route. All limits share a table of `table_bytes`,
    /// which is made for the first.
    pub fn limit(
        &self,
        settings: &levity_config::RateLimit,
        scope: &str,
        table_bytes: usize,
    ) -> Arc<RateLimit> {
        let mut limits = self.lock();
        let of_table = |limit: &&Arc<RateLimit>| limit.table().bytes_max() == table_bytes;
        let mut known = limits.iter().filter(of_table);
        if let Some(limit) = known.find(|limit| limit.is(settings, scope)) {
            return limit.clone();
        }
        let table = limits.iter().find(of_table);
        let table = table.map(|limit| limit.table().clone());
        let table = table.unwrap_or_else(|| Arc::new(Table::new(table_bytes)));
        let limit = Arc::new(RateLimit::new(settings, scope, &table));
        limits.push(limit.clone());
        limit
    }

    /// Drops the limits that no configuration has, and counts the hits of the others.
    pub fn figures(&self) -> LimitFigures {
        let mut limits = self.lock();
        limits.retain(|limit| {
            let is_used = Arc::strong_count(limit) > 1;
            if !is_used {
                limit.log_rest(Instant::now() + REST_AFTER);
            }
            is_used
        });
        LimitFigures {
            limits: limits.iter().map(|limit| limit.figure()).collect(),
            table: limits.first().map(|limit| {
                let table = limit.table();
                LimitTableFigures {
                    keys: table.keys(table.time(Instant::now())),
                    keys_max: table.keys_max(),
                    evictions: table.evictions(),
                }
            }),
        }
    }

    /// Logs what limits have hit since their last line in the log, except those whose last line is too recent.
    pub fn log_rest(&self, now: Instant) {
        self.lock().iter().for_each(|limit| limit.log_rest(now));
    }

    /// Logs what limits have hit since their last line in the log; for the end of the process.
    pub fn log_all(&self) {
        self.log_rest(Instant::now() + REST_AFTER);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<RateLimit>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
