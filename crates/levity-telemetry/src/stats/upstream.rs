//! Counters of upstreams, which come and go with reloads.
//!
//! Each worker registers cells of its own for every upstream that it sends requests to, and for every backend
//! of that upstream. It alone writes them, and it alone replaces the lists that hold them. A scrape goes
//! through the lists of all workers and adds up cells with the same name. The counts of an upstream survive a
//! reload that changes it; they are dropped together with its name.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::register::{add, retain};
use crate::cells::{Counter, Fourfold, Gauge, HistogramFigures};

/// Outcomes of a request to a backend: a response, or an error type of `Proxy-Status` (RFC 9209, 2.3).
pub const OUTCOMES: [&str; 17] = [
    "answered",
    "connection_refused",
    "connection_timeout",
    "connection_terminated",
    "connection_limit_reached",
    "destination_ip_unroutable",
    "destination_unavailable",
    "dns_error",
    "http_protocol_error",
    "http_response_incomplete",
    "http_response_timeout",
    "http_request_error",
    "tls_alert_received",
    "tls_certificate_error",
    "tls_protocol_error",
    "proxy_internal_error",
    "other",
];

const ANSWERED: usize = 0;

/// The upstreams of one worker.
#[derive(Debug, Default)]
pub struct Register(ArcSwap<Vec<Arc<UpstreamCells>>>);

impl Register {
    /// The cells of the upstream with this name, made if there are none. For the worker's own thread.
    pub fn of(&self, name: &str) -> Arc<UpstreamCells> {
        let known = self.find(name);
        known.unwrap_or_else(|| {
            let new = Arc::new(UpstreamCells::new(name));
            add(&self.0, new.clone());
            new
        })
    }

    /// Drops the cells of upstreams whose names are not kept. For the worker's own thread.
    pub fn retain(&self, is_kept: impl Fn(&str) -> bool) {
        retain(&self.0, |cells| is_kept(&cells.name));
    }

    fn find(&self, name: &str) -> Option<Arc<UpstreamCells>> {
        let cells = self.0.load();
        cells.iter().find(|cells| cells.name == name).cloned()
    }
}

/// One worker's counters of one upstream. Only that worker's thread may count; nothing here blocks.
// Aligned, so that two workers never write to one cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct UpstreamCells {
    /// The name of the upstream.
    pub(crate) name: String,
    backends: ArcSwap<Vec<Arc<BackendCells>>>,
    /// Retries.
    pub(crate) retries: Counter,
    queue: Gauge,
    /// Requests that found the queue full.
    pub queue_full: Counter,
    /// Requests that were in the queue for too long.
    pub queue_timeouts: Counter,
    first_byte: Fourfold,
}

impl UpstreamCells {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// The cells of the backend with this number, made under `name` if there are none.
    pub fn backend(&self, id: u64, name: &str) -> Arc<BackendCells> {
        self.find(id).unwrap_or_else(|| {
            let new = Arc::new(BackendCells::new(id, name));
            add(&self.backends, new.clone());
            new
        })
    }

    /// Drops the cells of backends whose numbers are not among these.
    pub fn retain(&self, ids: impl Iterator<Item = u64> + Clone) {
        retain(&self.backends, |cells| ids.clone().any(|id| id == cells.id));
    }

    fn find(&self, id: u64) -> Option<Arc<BackendCells>> {
        let cells = self.backends.load();
        cells.iter().find(|cells| cells.id == id).cloned()
    }

    /// The header of a response arrived this long after the attempt began.
    pub(crate) fn answered_in(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.first_byte.observe(nanos);
    }

    /// A request is in the queue for a connection until the guard is dropped.
    pub fn queued(&self) -> Queued<'_> {
        self.queue.up(1);
        Queued(self)
    }
}

/// A request in the queue; it leaves when this is dropped.
pub struct Queued<'c>(&'c UpstreamCells);

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.queue.down(1);
    }
}

/// One worker's counters of one backend, with the rules of [`UpstreamCells`].
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct BackendCells {
    id: u64,
    /// The address of the backend, as text.
    pub(crate) name: String,
    outcomes: [Counter; OUTCOMES.len()],
    /// Responses that were begun and not completed.
    pub(crate) broken: Counter,
    /// Connection slots taken; over HTTP/2 streams.
    pub in_use: Gauge,
    /// Connections that wait for a request.
    pub idle: Gauge,
    /// Connections made.
    pub made: Counter,
    /// Times that a connection was reused.
    pub reused: Counter,
    /// Bytes sent to it.
    pub sent_bytes: Counter,
    /// Bytes received from it.
    pub received_bytes: Counter,
}

impl BackendCells {
    fn new(id: u64, name: &str) -> Self {
        Self {
            id,
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// The header of a response arrived.
    pub fn answered(&self) {
        self.outcomes[ANSWERED].add(1);
    }

    /// A request failed with this error type.
    pub fn failed(&self, kind: &str) {
        let index = OUTCOMES.iter().position(|outcome| *outcome == kind);
        self.outcomes[index.unwrap_or(OUTCOMES.len() - 1)].add(1);
    }
}

/// The state of an upstream of the configuration, for a scrape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamState {
    /// Its name, under which workers count.
    pub name: String,
    /// Its backends that have an address.
    pub backends: Vec<BackendState>,
    /// Names of backends whose hosts do not resolve at present.
    pub unresolved: Vec<String>,
}

/// The state of a backend, for a scrape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendState {
    /// Its number, under which workers count.
    pub id: u64,
    /// Its address as text.
    pub name: String,
    /// Whether no failed request has taken it out.
    pub is_in: bool,
    /// Whether no check has found it down.
    pub is_well: bool,
}

/// The values of an upstream, added up over all workers, at one moment.
#[derive(Debug)]
pub struct UpstreamFigures {
    /// Retries.
    pub retries: u64,
    /// Requests in the queue.
    pub queue: u64,
    /// Requests that found the queue full.
    pub queue_full: u64,
    /// Requests that were in the queue for too long.
    pub queue_timeouts: u64,
    /// From the start of an attempt to the header of its response.
    pub first_byte: HistogramFigures,
    /// The requested backends, in the same order.
    pub backends: Vec<BackendFigures>,
}

/// The values of a backend, added up over all workers, at one moment.
#[derive(Debug)]
pub struct BackendFigures {
    /// Requests by outcome, in the order of [`OUTCOMES`].
    pub outcomes: [u64; OUTCOMES.len()],
    /// Responses that were begun and not completed.
    pub broken: u64,
    /// Connections that carry a request or are being made.
    pub in_use: u64,
    /// Connections that wait for a request.
    pub idle: u64,
    /// Connections made.
    pub made: u64,
    /// Times that a connection was reused.
    pub reused: u64,
    /// Bytes sent to it.
    pub sent_bytes: u64,
    /// Bytes received from it.
    pub received_bytes: u64,
}

impl BackendFigures {
    /// Requests that it answered.
    pub fn answered(&self) -> u64 {
        self.outcomes[ANSWERED]
    }

    /// Requests that failed.
    pub fn failed(&self) -> u64 {
        self.outcomes.iter().sum::<u64>() - self.answered()
    }
}

impl UpstreamFigures {
    pub(super) fn of<'w>(
        name: &str,
        backends: impl Iterator<Item = u64>,
        workers: impl Iterator<Item = &'w Register>,
    ) -> Self {
        let cells = workers.filter_map(|register| register.find(name));
        let cells: Vec<_> = cells.collect();
        let sum = |value: fn(&UpstreamCells) -> u64| cells.iter().map(|one| value(one)).sum();
        let times = cells.iter().map(|one| one.first_byte.figures());
        // Without cells there is an empty histogram, rather than none.
        let times = times.chain([Fourfold::default().figures()]);
        Self {
            retries: sum(|one| one.retries.get()),
            queue: Gauge::sum(cells.iter().map(|one| &one.queue)),
            queue_full: sum(|one| one.queue_full.get()),
            queue_timeouts: sum(|one| one.queue_timeouts.get()),
            first_byte: HistogramFigures::total(times).expect("there is one at least"),
            backends: backends.map(|id| BackendFigures::of(id, &cells)).collect(),
        }
    }
}

impl BackendFigures {
    fn of(id: u64, upstream: &[Arc<UpstreamCells>]) -> Self {
        let cells = upstream.iter().filter_map(|one| one.find(id));
        let cells: Vec<_> = cells.collect();
        let sum = |value: &dyn Fn(&BackendCells) -> u64| cells.iter().map(|one| value(one)).sum();
        Self {
            outcomes: std::array::from_fn(|at| sum(&|one| one.outcomes[at].get())),
            broken: sum(&|one| one.broken.get()),
            in_use: Gauge::sum(cells.iter().map(|one| &one.in_use)),
            idle: Gauge::sum(cells.iter().map(|one| &one.idle)),
            made: sum(&|one| one.made.get()),
            reused: sum(&|one| one.reused.get()),
            sent_bytes: sum(&|one| one.sent_bytes.get()),
            received_bytes: sum(&|one| one.received_bytes.get()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(backends: &[u64], workers: &[Register]) -> UpstreamFigures {
        UpstreamFigures::of("app", backends.iter().copied(), workers.iter())
    }

    fn workers() -> [Register; 2] {
        [Register::default(), Register::default()]
    }

    #[test]
    fn workers_are_added_up_by_name_and_number() {
        let (ids, workers) = ([11, 12], workers());
        for worker in &workers {
            let cells = worker.of("app");
            cells.backend(ids[1], "a").answered();
            cells.backend(ids[1], "a").failed("connection_refused");
            cells.backend(ids[1], "a").failed("a new kind");
            cells.answered_in(Duration::from_millis(2));
            worker.of("other").backend(ids[0], "a").answered();
        }
        let figures = app(&ids, &workers);
        let answered = figures.backends.iter().map(BackendFigures::answered);
        assert_eq!(answered.collect::<Vec<_>>(), [0, 2]);
        let other = OUTCOMES.len() - 1;
        let outcomes = figures.backends[1].outcomes;
        assert_eq!((outcomes[1], outcomes[other]), (2, 2));
        assert_eq!(figures.backends[1].failed(), 4);
        assert_eq!(figures.first_byte.count(), 2);
    }

    #[test]
    fn an_upstream_that_was_never_asked_has_empty_figures() {
        let figures = app(&[11], &workers());
        assert_eq!((figures.first_byte.count(), figures.queue), (0, 0));
        assert_eq!(figures.backends.len(), 1);
    }

    #[test]
    fn the_queue_counts_requests_that_wait() {
        let workers = workers();
        let queue = || app(&[], &workers).queue;
        let cells = workers[1].of("app");
        let (one, other) = (cells.queued(), cells.queued());
        assert_eq!(queue(), 2);
        drop(one);
        assert_eq!(queue(), 1);
        drop(other);
        assert_eq!(queue(), 0);
    }

    #[test]
    fn counts_outlive_a_change_and_go_with_their_name() {
        let register = Register::default();
        register.of("app").retries.add(1);
        register.of("old").retries.add(1);
        register.retain(|name| name == "app");
        let names = register.0.load();
        let names: Vec<_> = names.iter().map(|cells| cells.name.as_str()).collect();
        assert_eq!(names, ["app"]);
        assert_eq!(register.of("app").retries.get(), 1);
        assert_eq!(register.of("old").retries.get(), 0);

        let app = register.of("app");
        app.backend(1, "a").answered();
        app.backend(2, "a").answered();
        app.retain([2, 3].into_iter());
        assert_eq!(app.backend(1, "a").outcomes[ANSWERED].get(), 0);
        assert_eq!(app.backend(2, "a").outcomes[ANSWERED].get(), 1);
    }
}
