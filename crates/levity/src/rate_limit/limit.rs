//! One limit of a site or route.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use levity_config::{Limited, Network, Per};
use levity_telemetry::diagnostics;
use levity_telemetry::stats::LimitFigure;

use super::sharded_count::ShardedCount;
use super::table::{Key, Table, Time};
use crate::message::client_prefix::ClientPrefix;

/// The minimum time between two lines of the log about a limit.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The time after a line in which hits come to one of their own. What is left then is the rest.
pub(super) const REST_AFTER: Duration = Duration::from_secs(20);

/// How long a client is told to wait when too many of its requests are answered at the same time. Nobody knows when one ends.
const CONNECTIONS_WAIT: Duration = Duration::from_secs(1);

/// The maximum number of bytes that a response takes while it has to wait: about a sixteenth of a second, so that
/// responses under one key take short turns, but neither a write per byte nor more than a turn of the loop.
const GRAIN_PARTS: u64 = 16;
const GRAIN_BYTES_MIN: u64 = 1024;
const GRAIN_BYTES_MAX: u64 = 1 << 20;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// A limit, shared by all locations that inherit it and by all workers.
pub struct RateLimit {
    settings: levity_config::RateLimit,
    /// The site or route that it stands in.
    scope: String,
    /// Unique in the process.
    number: u64,
    table: Arc<Table>,
    /// Requests that it has let through and not slowed down, and whose responses have ended.
    passed: ShardedCount,
    /// What it has refused or slowed down, or would have.
    hits: AtomicU64,
    /// Those that no line of the log has counted.
    unlogged: AtomicU64,
    /// The time from which on the next line may be logged.
    next_line: AtomicU64,
}

/// What a limit does to a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slowed {
    /// Its bytes may leave now.
    No,
    /// Not before this instant.
    Until(Instant),
}

impl RateLimit {
    pub(super) fn new(
        settings: &levity_config::RateLimit,
        scope: &str,
        table: &Arc<Table>,
    ) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Self {
            settings: settings.clone(),
            scope: scope.to_owned(),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            table: table.clone(),
            passed: ShardedCount::new(),
            hits: AtomicU64::new(0),
            unlogged: AtomicU64::new(0),
            next_line: AtomicU64::new(0),
        }
    }

    /// Whether it is the limit that `settings` describe, at the same place.
    pub(super) fn is(&self, settings: &levity_config::RateLimit, scope: &str) -> bool {
        self.settings == *settings && self.scope == scope
    }

    pub(super) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Whether it lets everything pass.
    pub fn only_reports(&self) -> bool {
        self.settings.report_only
    }

    /// Whether it limits bytes.
    pub(super) fn is_of_bytes(&self) -> bool {
        matches!(self.settings.limited, Limited::Bytes { .. })
    }

    /// Counts a request that it has let through and not slowed down, and that no other limit has refused.
    pub(super) fn count_passed(&self) {
        self.passed.add_one();
    }

    /// What it has counted.
    pub(super) fn figure(&self) -> LimitFigure {
        LimitFigure {
            limit: self.settings.name.clone(),
            allowed: self.passed.sum(),
            action: match self.settings.limited {
                _ if self.settings.report_only => "reported",
                Limited::Bytes { .. } => "slowed",
                _ => "refused",
            },
            count: self.hits.load(Ordering::Relaxed),
        }
    }

    /// The key under which a request of a client for `path` counts.
    pub(super) fn key(&self, client: Option<IpAddr>, path: &[u8]) -> Key {
        let of = &self.settings;
        match of.per {
            Per::Client => {
                let prefix = ClientPrefix::of_bits(client, of.ipv4_prefix, of.ipv6_prefix);
                self.table.key((self.number, prefix))
            }
            Per::File => self.table.key((self.number, path)),
            Per::Route => self.table.key(self.number),
        }
    }

    /// Counts a request. Nothing is counted of bytes: [`RateLimit::reserve`] does that.
    ///
    /// # Errors
    /// The time that the client has to wait; nothing is counted then.
    pub(super) fn admit(&self, key: Key, now: Instant) -> Result<(), Duration> {
        match self.settings.limited {
            Limited::Requests { interval, after } => {
                let cost = nanos(interval);
                let tolerance = cost.saturating_mul(after - 1);
                let taken = self.table.take(key, self.table.time(now), cost, tolerance);
                taken.map_err(Duration::from_nanos)
            }
            Limited::Connections(max) => {
                let is_counted = self.table.enter(key, self.table.time(now), max);
                is_counted.then_some(()).ok_or(CONNECTIONS_WAIT)
            }
            Limited::Bytes { .. } => Ok(()),
        }
    }

    /// The request that was counted is refused by another limit.
    pub(super) fn undo(&self, key: Key) {
        match self.settings.limited {
            Limited::Requests { interval, .. } => self.table.give_back(key, nanos(interval)),
            Limited::Connections(_) => self.table.leave(key),
            Limited::Bytes { .. } => {}
        }
    }

    /// The request that was counted has ended.
    pub(super) fn end(&self, key: Key) {
        if matches!(self.settings.limited, Limited::Connections(_)) {
            self.table.leave(key);
        }
    }

    /// The number of bytes of `want` to [reserve](Self::reserve) at once: as many as may leave now, or a few that have to wait.
    /// `None` if it leaves bytes alone.
    pub(super) fn portion(&self, key: Key, now: Instant, want: u64) -> Option<u64> {
        let Limited::Bytes { per_second, after } = self.settings.limited else {
            return None;
        };
        if self.settings.report_only {
            return None;
        }
        let now = self.table.time(now);
        let ahead = self.table.peek(key, now).0 - now.0;
        let owed = scaled(ahead, per_second, NS_PER_SECOND);
        let least =
            (per_second / GRAIN_PARTS).clamp(GRAIN_BYTES_MIN.min(per_second), GRAIN_BYTES_MAX);
        Some(want.min(after.saturating_sub(owed).max(least)))
    }

    /// Takes `bytes`, also if they have to wait. A limit that only reports takes none that would have to.
    pub(super) fn reserve(&self, key: Key, now: Instant, bytes: u64) -> Slowed {
        let Limited::Bytes { per_second, after } = self.settings.limited else {
            return Slowed::No;
        };
        let now = self.table.time(now);
        let cost = scaled(bytes, NS_PER_SECOND, per_second);
        let depth = scaled(after, NS_PER_SECOND, per_second);
        let before = self.table.reserve(key, now, cost);
        let at = Time(before.0.saturating_add(cost).saturating_sub(depth));
        if at <= now {
            return Slowed::No;
        }
        if self.settings.report_only {
            self.table.give_back(key, cost);
        }
        Slowed::Until(self.table.instant(at))
    }

    /// Gives bytes back that were reserved and not sent.
    pub(super) fn give_back(&self, key: Key, bytes: u64) {
        if let Limited::Bytes { per_second, .. } = self.settings.limited {
            let cost = scaled(bytes, NS_PER_SECOND, per_second);
            self.table.give_back(key, cost);
        }
    }

    /// Counts that it has hit a request of `client`, and logs that now and then.
    pub(super) fn hit(&self, client: Option<IpAddr>, now: Instant) {
        self.hits.fetch_add(1, Ordering::Relaxed);
        self.unlogged.fetch_add(1, Ordering::Relaxed);
        if let Some(count) = self.take_line(now, Duration::ZERO) {
            let whom = self.whom(client);
            self.log(format_args!(
                "{whom}: {} since the last such line, of which there is at most one in 10 s",
                requests(count)
            ));
        }
    }

    /// Logs the hits that no line has counted, if no hit has had a line for twice the usual time. Otherwise the last of a series
    /// would be known only after the next hit. Not earlier, because the line of a hit names a client.
    pub(super) fn log_rest(&self, now: Instant) {
        if self.unlogged.load(Ordering::Relaxed) == 0 {
            return;
        }
        if let Some(count) = self.take_line(now, REST_AFTER.saturating_sub(LOG_INTERVAL)) {
            self.log(format_args!(
                "more: {} since the last such line",
                requests(count)
            ));
        }
    }

    /// The number of hits for a line of the log, if one may be logged `beyond` ago.
    fn take_line(&self, now: Instant, beyond: Duration) -> Option<u64> {
        let now = self.table.time(now).0;
        let next = self.next_line.load(Ordering::Relaxed);
        let then = now + nanos(LOG_INTERVAL);
        let relaxed = Ordering::Relaxed;
        let exchange = || {
            self.next_line
                .compare_exchange(next, then, relaxed, relaxed)
        };
        let is_due = now >= next.saturating_add(nanos(beyond)) && exchange().is_ok();
        // Another thread may have counted them just now.
        let count = is_due.then(|| self.unlogged.swap(0, relaxed));
        count.filter(|count| *count > 0)
    }

    /// The address of a client, or the block that counts as one.
    fn whom(&self, client: Option<IpAddr>) -> String {
        let Some(ip) = client.map(|ip| ip.to_canonical()) else {
            return "a client of a Unix socket".to_owned();
        };
        let (prefix, bits) = match ip {
            IpAddr::V4(_) => (self.settings.ipv4_prefix, Ipv4Addr::BITS),
            IpAddr::V6(_) => (self.settings.ipv6_prefix, Ipv6Addr::BITS),
        };
        match prefix == bits {
            true => ip.to_string(),
            false => Network::around(ip, prefix).to_string(),
        }
    }

    fn log(&self, what: fmt::Arguments<'_>) {
        let of = &self.settings;
        let done = match (&of.limited, of.report_only) {
            (Limited::Bytes { .. }, false) => "slowed down",
            (Limited::Bytes { .. }, true) => "would have slowed down",
            (_, false) => "refused",
            (_, true) => "would have refused",
        };
        diagnostics::log(format_args!("limit `{}` {done} {what}", of.name));
    }
}

fn requests(count: u64) -> String {
    match count {
        1 => "1 request".to_owned(),
        _ => format!("{count} requests"),
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// `number * by / per`, at most the largest number.
fn scaled(number: u64, by: u64, per: u64) -> u64 {
    let scaled = u128::from(number) * u128::from(by) / u128::from(per);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
