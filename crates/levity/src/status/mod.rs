//! The state of the server at this moment: everything that `/status` and `levity top` show.
//!
//! Collected on the control thread for each request, as one JSON value. The text is made from it, and the
//! page and `levity top` read it. `docs/status.md` documents its keys, which are stable.

mod certificates;
mod compute;
mod files;
pub mod heartbeat;
mod history;
mod limits;
mod mailboxes;
mod page;
mod text;
mod upstreams;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::{ArcSwap, ArcSwapOption};
use serde_json::{Map, Value, json};
use strum::VariantArray as _;
use tokio::sync::mpsc::UnboundedSender;

use crate::serve::event_loop::Message;
use crate::status::heartbeat::Heartbeat;
use crate::tls::sites::TlsSites;
use crate::upstream::Upstream;
use levity_config::Hidden;
use levity_disk::stats::{DeviceStats, EngineStats};
use levity_telemetry::access_log::{End, Source};
use levity_telemetry::cells::HistogramFigures;
use levity_telemetry::diagnostics;
use levity_telemetry::escape::escaped;
use levity_telemetry::mounts::Mounts;
use levity_telemetry::stats::site::{CLASSES, SiteFigures};
use levity_telemetry::stats::{DiskFigures, Stats, VariantFigures, WorkerStats, device_number};

pub use certificates::certificate;
pub use history::INTERVAL;
pub use page::page;
pub use text::text;
pub use upstreams::state;

use files::Files;
use history::{History, Sample};

/// A loop that has not answered for as long counts as one that does not turn. Longer than a loop sleeps while its processor is short.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// The entries of the JSON that have words of this program, or of the system.
const FIXED: [&str; 9] = [
    "version",
    "engine",
    "file_system",
    "source",
    "protocol",
    "balance",
    "state",
    "store",
    "store_state",
];

/// The upstreams of the configuration at present.
pub type Upstreams = ArcSwap<Vec<Arc<Upstream>>>;

/// The certificates of the configuration at present; nothing without TLS.
pub type CurrentTls = ArcSwapOption<TlsSites>;

/// The sources of the figures. Only the control thread takes its locks.
pub struct Status {
    stats: Arc<Stats>,
    upstreams: Arc<Upstreams>,
    tls: Arc<CurrentTls>,
    files: Files,
    heartbeat: Arc<Heartbeat>,
    connections_max: usize,
    /// Devices and paths of the roots that are served now.
    roots: Mutex<Vec<(u64, PathBuf)>>,
    history: Mutex<History>,
    /// What is shown in place of values from variables.
    hidden: Mutex<Hidden>,
}

impl Status {
    /// Figures of these counters, upstreams and certificates, and of the workers at the other ends of these channels.
    pub fn new(
        stats: Arc<Stats>,
        upstreams: Arc<Upstreams>,
        tls: Arc<CurrentTls>,
        workers: Vec<UnboundedSender<Message>>,
        heartbeat: Arc<Heartbeat>,
        connections_max: usize,
    ) -> Self {
        Self {
            heartbeat,
            stats,
            upstreams,
            tls,
            files: Files::new(workers),
            connections_max,
            roots: Mutex::default(),
            history: Mutex::default(),
            hidden: Mutex::default(),
        }
    }

    /// When the event loops have answered.
    pub fn heartbeat(&self) -> &Arc<Heartbeat> {
        &self.heartbeat
    }

    /// The number of an event loop that does not answer.
    pub fn silent_loop(&self) -> Option<usize> {
        self.heartbeat.silent_loop(SILENCE_MAX)
    }

    /// Replaces the devices and paths of the served roots.
    pub fn set_roots(&self, roots: Vec<(u64, PathBuf)>) {
        *lock(&self.roots) = roots;
    }

    /// Replaces the upstreams, here and for `/metrics`.
    pub fn set_upstreams(&self, upstreams: Vec<Arc<Upstream>>) {
        self.upstreams.store(Arc::new(upstreams));
    }

    /// Replaces the certificates, likewise.
    pub fn set_tls(&self, tls: Option<Arc<TlsSites>>) {
        self.tls.store(tls);
    }

    /// Replaces what is shown in place of values from variables.
    pub fn set_hidden(&self, hidden: Hidden) {
        *lock(&self.hidden) = hidden;
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Adds a sample to the history. Call it every [`INTERVAL`].
    pub fn sample(&self) {
        let workers = self.stats.workers();
        let connections = sum(workers, WorkerStats::open);
        let stall = workers
            .iter()
            .map(|worker| worker.polls.stall.figures().sum);
        let stall = stall.sum();
        let devices = self.stats.disk().map(|disk| disk.stats.devices);
        let sample = Sample {
            at: Instant::now(),
            devices: devices.unwrap_or_default(),
            compute: self.stats.compute(),
        };
        lock(&self.history).add(connections, stall, sample);
    }

    /// All figures. Waits for busy workers, for a fraction of a second at most.
    pub async fn json(&self) -> Value {
        let files = self.files.json().await;
        lock(&self.hidden).hide_in(self.figures(&files), &FIXED)
    }

    fn figures(&self, files: &Value) -> Value {
        let workers = self.stats.workers();
        let history = lock(&self.history);
        let disk = self.stats.disk();
        let limits = self.stats.limits();
        let now = SystemTime::now();
        let started = self.stats.started();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "start_time_seconds": since_epoch(started),
            "time_seconds": since_epoch(now),
            "uptime_seconds": seconds(now.duration_since(started).unwrap_or_default()),
            "connections": self.connections(),
            "requests": requests(workers),
            "sites": sites(&self.stats),
            "sent_bytes": sum(workers, |worker| worker.sent_bytes.get()),
            "io": disk.as_ref().map(|disk| io(disk, workers)),
            "upstreams": self.upstreams(),
            "certificates": self.certificates(now),
            "on_demand_certificates": self.tls.load().as_ref().and_then(|tls| tls.on_demand_count()),
            "limits": limits.as_ref().map_or_else(Vec::new, limits::limits),
            "limit_table": limits.and_then(|limits| limits.table).map(limits::table),
            "mailboxes": self.stats.mailboxes().as_ref().map(mailboxes::mailboxes),
            "devices": disk.map(|disk| self.devices(&disk.stats.devices, &history)),
            "compute": self.compute(&history),
            "variants": self.stats.variants().map(variants),
            "workers": workers.iter().map(|one| worker(one)).collect::<Vec<_>>(),
            "files": files,
            "log": {
                "access_dropped": self.stats.access_log_dropped(),
                "diagnostics_dropped": diagnostics::dropped(),
            },
            "history": {
                "interval_seconds": seconds(INTERVAL),
                "connections": history.connections().collect::<Vec<_>>(),
                "stall_seconds": history.stall().map(seconds).collect::<Vec<_>>(),
            },
        })
    }

    fn upstreams(&self) -> Vec<Value> {
        let (upstreams, now) = (self.upstreams.load(), Instant::now());
        let json = |one: &Arc<Upstream>| upstreams::upstream(one, &self.stats, now);
        upstreams.iter().map(json).collect()
    }

    fn certificates(&self, now: SystemTime) -> Vec<Value> {
        let tls = self.tls.load();
        let reports = tls.iter().flat_map(|tls| tls.reports());
        reports.map(|one| certificate(&one, now)).collect()
    }

    fn compute(&self, history: &History) -> Option<Value> {
        let now = self.stats.compute()?;
        let before = history.before();
        let before =
            before.and_then(|before| Some((before.at.elapsed(), before.compute.as_ref()?)));
        Some(compute::compute(&now, before))
    }

    fn connections(&self) -> Value {
        let workers = self.stats.workers();
        let open = sum(workers, WorkerStats::open);
        let busy = sum(workers, WorkerStats::busy).min(open);
        let ended = |end: &End| (end.label(), sum(workers, |worker| worker.ended(*end)));
        json!({
            "open": open,
            "busy": busy,
            "idle": open - busy,
            "max": self.connections_max,
            "accepted": sum(workers, |worker| worker.accepted.get()),
            "accept_pauses": sum(workers, |worker| worker.accept_pauses.get()),
            "ended": object(End::VARIANTS.iter().map(ended)),
        })
    }

    /// Each device, the slowest first.
    fn devices(&self, devices: &[DeviceStats], history: &History) -> Vec<Value> {
        let roots = lock(&self.roots);
        // Without /proc the names are missing, and nothing else.
        let mounts = Mounts::read().unwrap_or_default();
        let before = history.before();
        let since = before.map(|before| before.at);
        let before = before.map_or(&[][..], |before| &before.devices);
        let recent = |(index, device)| {
            let recent = Recent::of(device, since, before.get(index));
            (recent, index, device)
        };
        let mut slow: Vec<_> = devices.iter().enumerate().map(recent).collect();
        slow.sort_by(|(a, _, one), (b, _, two)| {
            let pain = b.pain(two).cmp(&a.pain(one));
            pain.then_with(|| two.queued.cmp(&one.queued))
        });
        let device_json = |(recent, index, device): (Recent, usize, &DeviceStats)| {
            let roots = roots.iter().map(|(device, path)| (*device, path.as_path()));
            let mount = mounts.of(device.device, roots);
            json!({
                "device": device_number(device.device),
                "mount": mount.map(|mount| escaped(mount.path.as_os_str().as_encoded_bytes())),
                "file_system": mount.map(|mount| escaped(mount.file_system.as_bytes())),
                "pain_seconds": seconds(recent.pain(device)),
                "queued": device.queued,
                "in_flight": device.in_flight,
                "depth": device.depth,
                "dead": device.dead,
                "oldest_seconds": device.oldest.map(seconds),
                "jobs": device.service_time.count(),
                "read_bytes": device.bytes_read,
                "recent": recent.json(),
                "history": history.jobs(index).collect::<Vec<_>>(),
            })
        };
        slow.into_iter().map(device_json).collect()
    }
}

/// The work of a device in the last seconds.
struct Recent {
    time: Duration,
    read_bytes: u64,
    queue: HistogramFigures,
    service: HistogramFigures,
}

impl Recent {
    /// The work since `since`, when the figures were `before`; all of it if the device was not known then.
    fn of(now: &DeviceStats, since: Option<Instant>, before: Option<&DeviceStats>) -> Self {
        let time = since.map(|since| since.elapsed()).unwrap_or_default();
        let [queue, service] = [&now.queue_time, &now.service_time].map(HistogramFigures::from);
        match before {
            Some(before) => Self {
                time,
                read_bytes: now.bytes_read.saturating_sub(before.bytes_read),
                queue: queue.since(&(&before.queue_time).into()),
                service: service.since(&(&before.service_time).into()),
            },
            None => Self {
                time,
                read_bytes: now.bytes_read,
                queue,
                service,
            },
        }
    }

    /// How long a client has to wait for this device if it is unlucky.
    fn pain(&self, now: &DeviceStats) -> Duration {
        let unlucky = |times: &HistogramFigures| times.quantile(0.99).unwrap_or_default();
        let oldest = now.oldest.unwrap_or_default();
        oldest.max(unlucky(&self.queue) + unlucky(&self.service))
    }

    fn json(&self) -> Value {
        let quantile = |times: &HistogramFigures, share| times.quantile(share).map(seconds);
        let elapsed = self.time.as_secs_f64();
        json!({
            "seconds": seconds(self.time),
            "jobs": self.service.count(),
            "read_bytes_per_second": (elapsed > 0.0).then(|| (self.read_bytes as f64 / elapsed).round()),
            "queue_p50_seconds": quantile(&self.queue, 0.5),
            "queue_p99_seconds": quantile(&self.queue, 0.99),
            "service_p50_seconds": quantile(&self.service, 0.5),
            "service_p99_seconds": quantile(&self.service, 0.99),
        })
    }
}

fn requests(workers: &[Arc<WorkerStats>]) -> Value {
    let mut classes = [0; 6];
    for worker in workers {
        let more = classes.iter_mut().zip(worker.requests_by_class());
        more.for_each(|(count, more)| *count += more);
    }
    let names = CLASSES.into_iter();
    let by_source = Source::VARIANTS.iter().map(|source| {
        let name = match source {
            Source::None => "none",
            source => source.label(),
        };
        (name, sum(workers, |worker| worker.source(*source)))
    });
    json!({
        "finished": classes.iter().sum::<u64>(),
        "by_status": object(names.zip(classes)),
        "by_source": object(by_source),
    })
}

/// Each site; empty for a single one, whose figures are those of the server.
fn sites(stats: &Stats) -> Vec<Value> {
    let sites = stats.sites();
    let several = Some(sites).filter(|sites| sites.len() > 1);
    let site = |site: SiteFigures| {
        json!({
            "site": site.name,
            "finished": site.classes.iter().sum::<u64>(),
            "by_status": object(CLASSES.into_iter().zip(site.classes)),
            "sent_bytes": site.bytes,
            "p50_seconds": site.duration.quantile(0.5).map(seconds),
            "p99_seconds": site.duration.quantile(0.99).map(seconds),
        })
    };
    several.into_iter().flatten().map(site).collect()
}

fn io(disk: &DiskFigures, workers: &[Arc<WorkerStats>]) -> Value {
    let cached = sum(workers, |worker| worker.reads_cached.get());
    let engine = |engine: &EngineStats| {
        json!({
            "engine": engine.name,
            "async_read": engine.reads_async,
            "sync_read": engine.reads_sync,
            "direct_read": engine.reads_direct,
            // Loops make these reads; they count for the configured engine.
            "cached_read": if engine.name == disk.own_engine { cached } else { 0 },
            "read_bytes": engine.bytes_read,
            "opens": engine.opens,
            "writes": engine.writes,
            "written_bytes": engine.bytes_written,
            "syncs": engine.syncs,
        })
    };
    json!({
        "engine": disk.own_engine,
        "reason": disk.reason,
        "pool_threads": disk.stats.threads,
        "arriving": disk.stats.arriving,
        "errors": disk.stats.errors,
        "canceled": disk.stats.canceled,
        "full": disk.stats.full,
        "engines": disk.stats.engines.iter().map(engine).collect::<Vec<_>>(),
    })
}

fn variants(store: VariantFigures) -> Value {
    json!({
        "kept": store.kept,
        "bytes": store.bytes,
        "bytes_max": store.bytes_max,
    })
}

fn worker(worker: &WorkerStats) -> Value {
    let polls = &worker.polls;
    let [stall, hog, preempted] =
        [&polls.stall, &polls.hog, &polls.preempted].map(|histogram| histogram.figures());
    json!({
        "worker": worker.worker(),
        "open": worker.open(),
        "busy": worker.busy(),
        "requests": worker.requests_by_class().iter().sum::<u64>(),
        "sent_bytes": worker.sent_bytes.get(),
        "stall_count": stall.count(),
        "stall_seconds": seconds(stall.sum),
        "stall_max_seconds": seconds(polls.stall_max()),
        "hog_count": hog.count(),
        "hog_seconds": seconds(hog.sum),
        "preempted_seconds": seconds(preempted.sum),
        "run_queue_wait_seconds": seconds(polls.run_queue_wait()),
        "run_queue_wait_percent": polls.run_queue_wait_percent(),
    })
}

fn object(members: impl Iterator<Item = (&'static str, u64)>) -> Map<String, Value> {
    members
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect()
}

fn sum(workers: &[Arc<WorkerStats>], value: impl Fn(&WorkerStats) -> u64) -> u64 {
    workers.iter().map(|worker| value(worker)).sum()
}

/// To the microsecond.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}

fn since_epoch(time: SystemTime) -> f64 {
    seconds(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
