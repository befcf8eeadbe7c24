//! Each worker counts into its own [`WorkerStats`]; a scrape adds them up.

mod certificates;
mod compute;
mod computed;
mod disk;
mod docs;
mod limits;
mod mailboxes;
mod metric;
mod metrics;
mod register;
mod shares;
pub mod site;
mod text;
pub mod upstream;
mod variants;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use levity_disk::WatchStats;

pub use certificates::{CertificateFigure, CertificateFigures};
pub use compute::{Compression, CompressionFigure, Compressions, ComputeFigures};
pub use disk::{DiskFigures, device_number};
pub use docs::markdown;
pub use limits::{LimitFigure, LimitFigures, LimitTableFigures};
pub use mailboxes::{MailboxFigures, ResumeFigures};
pub use shares::ShareFigure;
pub use variants::VariantFigures;
pub use worker::{Ahead, GateKind, HandshakeResult, Http2Failure, UploadResult, WorkerStats};

use crate::diagnostics;
use metric::Scrape;
use metrics::METRICS;
use site::SiteFigures;
use upstream::{UpstreamFigures, UpstreamState};

/// Everything that `/metrics` exports.
pub struct Stats {
    workers: Vec<Arc<WorkerStats>>,
    started: SystemTime,
    sources: Sources,
}

/// Where a scrape reads what workers do not count. It calls each function once, from the control thread.
#[derive(Default)]
pub struct Sources {
    /// Reads the values of the disk; without it there are no disk metrics.
    pub disk: Option<Box<dyn Fn() -> DiskFigures + Send + Sync>>,
    /// Reads the values of the pool of threads that compute; without it there are no metrics of it. Must not block.
    pub compute: Option<Box<dyn Fn() -> ComputeFigures + Send + Sync>>,
    /// Reads the values of the store of compressed files; without it there are no metrics of it. Must not block.
    pub variants: Option<Box<dyn Fn() -> VariantFigures + Send + Sync>>,
    /// Reads the values of rate limits; without it there are no metrics of them. Must not block.
    pub limits: Option<Box<dyn Fn() -> LimitFigures + Send + Sync>>,
    /// Reads what clients hold of what they share; without it there are no metrics of it. Must not block.
    pub shares: Option<Box<dyn Fn() -> Vec<ShareFigure> + Send + Sync>>,
    /// Reads the values of mailboxes; without it there are no metrics of them. Must not block.
    pub mailboxes: Option<Box<dyn Fn() -> MailboxFigures + Send + Sync>>,
    /// Reads the values of certificates; without it there are no metrics of them. `None` without TLS. Must not block.
    pub certificates: Option<Box<dyn Fn() -> Option<CertificateFigures> + Send + Sync>>,
    /// Reads the values of the watcher.
    pub watch: Option<Box<dyn Fn() -> WatchStats + Send + Sync>>,
    /// Lists the upstreams of the configuration; must not block.
    pub upstreams: Option<Box<dyn Fn() -> Vec<UpstreamState> + Send + Sync>>,
    /// Lines that the writers of the access log lost.
    pub log_unwritten: Arc<AtomicU64>,
}

impl Stats {
    /// The metrics of these workers. To be called once, at the start of the process, whose time it keeps.
    pub fn new(workers: Vec<Arc<WorkerStats>>, sources: Sources) -> Self {
        Self {
            workers,
            started: SystemTime::now(),
            sources,
        }
    }

    /// The figures of the upstream with this name, and of its backends with these numbers, in their order. Does
    /// not block.
    pub fn upstream(&self, name: &str, backends: impl Iterator<Item = u64>) -> UpstreamFigures {
        let registers = self.workers.iter().map(|worker| &worker.upstreams);
        UpstreamFigures::of(name, backends, registers)
    }

    /// The figures of each site. Does not block.
    pub fn sites(&self) -> Vec<SiteFigures> {
        SiteFigures::all(self.workers.iter().map(|worker| &worker.sites))
    }

    /// The workers' own counters, in their order.
    pub fn workers(&self) -> &[Arc<WorkerStats>] {
        &self.workers
    }

    /// When the process started.
    pub fn started(&self) -> SystemTime {
        self.started
    }

    /// The values of the disk; `None` without one. Blocks as the disk source does.
    pub fn disk(&self) -> Option<DiskFigures> {
        self.sources.disk.as_ref().map(|disk| disk())
    }

    /// The values of the pool of threads that compute; `None` without one. Does not block.
    pub fn compute(&self) -> Option<ComputeFigures> {
        self.sources.compute.as_ref().map(|compute| compute())
    }

    /// The values of the store of compressed files; `None` without one. Does not block.
    pub fn variants(&self) -> Option<VariantFigures> {
        self.sources.variants.as_ref().map(|variants| variants())
    }

    /// The values of rate limits; `None` without a source of them. Does not block.
    pub fn limits(&self) -> Option<LimitFigures> {
        self.sources.limits.as_ref().map(|limits| limits())
    }

    /// What clients hold of what they share; empty without a source. Does not block.
    pub fn shares(&self) -> Vec<ShareFigure> {
        let shares = self.sources.shares.as_ref();
        shares.map(|shares| shares()).unwrap_or_default()
    }

    /// The values of mailboxes; `None` without a source of them. Does not block.
    pub fn mailboxes(&self) -> Option<MailboxFigures> {
        self.sources.mailboxes.as_ref().map(|mailboxes| mailboxes())
    }

    /// Lines of the access log that were dropped by workers or not written.
    pub fn access_log_dropped(&self) -> u64 {
        let dropped = self.workers.iter().map(|worker| worker.log_dropped.get());
        dropped.sum::<u64>() + self.sources.log_unwritten.load(Ordering::Relaxed)
    }

    /// Appends every metric in the Prometheus text format 0.0.4. Does not block, except as the disk
    /// source does.
    pub fn render(&self, out: &mut String) {
        let scrape = Scrape {
            workers: &self.workers,
            started: self.started,
            access_log_dropped: self.access_log_dropped(),
            diagnostics_dropped: diagnostics::dropped(),
            disk: self.disk(),
            compute: self.compute(),
            variants: self.variants(),
            limits: self.limits(),
            shares: self.shares(),
            mailboxes: self.mailboxes(),
            certificates: self.certificates(),
            watch: self.sources.watch.as_ref().map(|watch| watch()),
            upstreams: self.upstream_figures(),
            sites: self.sites(),
        };
        for metric in METRICS {
            metric.render(&scrape, out);
        }
    }

    fn certificates(&self) -> Option<CertificateFigures> {
        self.sources.certificates.as_ref()?()
    }

    fn upstream_figures(&self) -> Vec<(UpstreamState, UpstreamFigures)> {
        let states = self.sources.upstreams.iter().flat_map(|states| states());
        let figures = |state: UpstreamState| {
            let backends = state.backends.iter().map(|backend| backend.id);
            let figures = self.upstream(&state.name, backends);
            (state, figures)
        };
        states.map(figures).collect()
    }
}

impl fmt::Debug for Stats {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Stats")
            .field("workers", &self.workers.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_log::{End, Source, samples};
    use crate::step::Step;
    use crate::trace::Trace;
    use levity_disk::stats::{DeviceStats, EngineStats, Histogram};
    use levity_wire::encoding::Coding;
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::{Duration, Instant};
    use upstream::BackendState;

    fn request(worker: &WorkerStats, trace: &Trace, status: u16, source: Source) {
        let ttfb = samples::record().ttfb;
        worker.request(status, source, Duration::from_millis(3), ttfb, trace);
    }

    fn trace() -> Trace {
        let arrived = Instant::now();
        let mut trace = Trace::new(arrived, None);
        trace.enter_at(Step::Route, arrived);
        trace.filtered(Duration::from_millis(1), Duration::from_millis(2), 900, 300);
        trace.filtered(Duration::ZERO, Duration::ZERO, 100, 50);
        let end_of_route = arrived + Duration::from_nanos(300);
        trace.enter_at(Step::Send, end_of_route);
        trace.end(end_of_route + Duration::from_micros(70));
        trace
    }

    fn disk() -> DiskFigures {
        let mut times = Histogram::default();
        (times.counts[0], times.counts[1]) = (4, 1);
        DiskFigures {
            own_engine: "threads",
            reason: "chosen by name".into(),
            stats: levity_disk::Stats {
                engines: vec![EngineStats {
                    name: "threads",
                    reads_async: 5,
                    reads_direct: 1,
                    writes: 7,
                    bytes_written: 4321,
                    syncs: 8,
                    queue_time: times,
                    ..EngineStats::default()
                }],
                coalesced: 6,
                syncs_shared: 2,
                devices: vec![DeviceStats {
                    device: rustix::fs::makedev(259, 0),
                    queued: 2,
                    in_flight: 3,
                    depth: 4,
                    ..DeviceStats::default()
                }],
                ..levity_disk::Stats::default()
            },
        }
    }

    fn limits() -> LimitFigures {
        let limit = |action, count| LimitFigure {
            limit: "a \"b\"".to_owned(),
            action,
            allowed: 9,
            count,
        };
        LimitFigures {
            limits: vec![
                limit("refused", 5),
                limit("reported", 1),
                limit("refused", 2),
            ],
            table: Some(LimitTableFigures {
                keys: 4,
                keys_max: 64,
                evictions: 3,
            }),
        }
    }

    fn mailboxes() -> MailboxFigures {
        MailboxFigures {
            store: "memory",
            boxes: 4,
            boxes_read: 2,
            receivers: 9,
            bytes: 700,
            bytes_max: 4_096,
            messages: vec![("published", 12), ("duplicate", 1)],
            dropped: vec![("bound", 3)],
            refused: vec![("message_bytes", 2)],
            idle_boxes: 5,
            resume: ResumeFigures {
                streams: 2,
                bytes: 300,
                bytes_max: 1_024,
                refused: vec![("streams", 6)],
            },
            is_down: false,
        }
    }

    fn certificates() -> CertificateFigures {
        let figure = |name: &str, source, seconds_left| CertificateFigure {
            name: name.to_owned(),
            source,
            seconds_left,
        };
        CertificateFigures {
            certificates: vec![
                figure("a.example", "files", 86_400),
                figure("b.example", "acme", -7),
            ],
            on_demand: Some(3),
        }
    }

    fn compute() -> ComputeFigures {
        let mut times = Histogram::default();
        (times.counts[0], times.counts[3]) = (6, 2);
        let compressions = Compressions::default();
        compressions.count(Coding::Brotli, Compression::Fast);
        ComputeFigures {
            response: levity_compute::Stats {
                queued: 5,
                threads: 4,
                canceled: 3,
                full: 2,
                queue_time: times,
                ..levity_compute::Stats::default()
            },
            idle: levity_compute::Stats {
                queued: 9,
                ..levity_compute::Stats::default()
            },
            encoder_bytes: 1_024,
            decoder_bytes: 512,
            coder_bytes_max: 4_096,
            compressions: compressions.figures(),
        }
    }

    /// The number of a backend.
    const BACKEND: u64 = 7;

    fn upstream_state() -> UpstreamState {
        UpstreamState {
            name: "app".into(),
            backends: vec![BackendState {
                id: BACKEND,
                name: "127.0.0.1:1".into(),
                is_in: true,
                is_well: true,
            }],
            unresolved: vec!["nowhere:80".into()],
        }
    }

    fn count(cells: &upstream::UpstreamCells, backend: u64) {
        cells.retries.add(1);
        cells.queue_full.add(1);
        cells.queue_timeouts.add(1);
        cells.answered_in(Duration::from_millis(3));
        let backend = cells.backend(backend, "127.0.0.1:1");
        backend.answered();
        backend.failed("http_response_timeout");
        backend.broken.add(1);
        backend.made.add(1);
        backend.in_use.up(1);
        backend.idle.up(3);
        backend.idle.down(1);
        backend.reused.add(1);
        backend.sent_bytes.add(100);
        backend.received_bytes.add(200);
    }

    /// Two workers that have seen a little of everything.
    fn stats() -> Stats {
        let workers = [0, 1].map(|worker| Arc::new(WorkerStats::new(worker)));
        let trace = trace();
        for worker in &workers {
            worker.accepted.add(2);
            worker.connection_ended(End::Timeout);
            worker.gate_denied(GateKind::SignedUrl);
            worker.accept_pauses.add(1);
            worker.idle_given_up.add(3);
            worker.sent_bytes.add(1_000);
            worker.reads_cached.add(1);
            worker.read_ahead(Ahead::Unused);
            worker.upload(UploadResult::Created);
            worker.uploaded_bytes.add(70);
            worker.copied_bytes.add(100);
            worker.spliced_bytes.add(50);
            worker.zero_copy_bytes.add(70);
            worker.log_dropped.set(4);
            request(worker, &trace, 200, Source::Memory);
            let sites = worker.sites.replace(["a.example", "default"].into_iter());
            sites[0].request(404, 70, Duration::from_millis(3));
            worker
                .polls
                .run_queue_waited(Duration::from_millis(1_500), None);
        }
        request(&workers[1], &trace, 404, Source::None);
        request(&workers[1], &trace, 7, Source::None);
        workers[1].polls.stalled(Duration::from_millis(3));
        workers[1].polls.stalled(Duration::from_millis(2));
        workers[1].polls.hog.observe(Duration::from_millis(6));
        workers[1].polls.preempted.observe(Duration::from_millis(1));
        for worker in &workers {
            count(&worker.upstreams.of("app"), BACKEND);
        }
        let watch = || WatchStats {
            watches: 3,
            events: 20,
            overflows: 1,
            refused: 2,
        };
        let sources = Sources {
            disk: Some(Box::new(disk)),
            compute: Some(Box::new(compute)),
            variants: Some(Box::new(|| VariantFigures {
                kept: 12,
                bytes: 3_000,
                bytes_max: 8_000,
            })),
            limits: Some(Box::new(limits)),
            shares: Some(Box::new(|| {
                vec![ShareFigure {
                    resource: "files",
                    used: 7,
                    max: 1_000,
                    holders: 2,
                    refused: 4,
                    reclaimed: 3,
                }]
            })),
            mailboxes: Some(Box::new(mailboxes)),
            certificates: Some(Box::new(|| Some(certificates()))),
            watch: Some(Box::new(watch)),
            upstreams: Some(Box::new(|| vec![upstream_state()])),
            log_unwritten: Arc::new(3.into()),
        };
        Stats::new(workers.into(), sources)
    }

    fn rendered(stats: &Stats) -> String {
        let mut out = String::new();
        stats.render(&mut out);
        out
    }

    /// A sample's name, labels and value.
    fn sample(line: &str) -> (&str, BTreeMap<&str, &str>, f64) {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let labels = labels.strip_suffix('}').expect("a closing brace");
        let pairs = labels
            .split(',')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (label, value) = pair.split_once('=').expect("a label");
                (
                    label,
                    value
                        .strip_prefix('"')
                        .and_then(|v| v.strip_suffix('"'))
                        .expect("quotes"),
                )
            });
        (name, pairs.collect(), value.parse().expect("a number"))
    }

    #[test]
    fn every_line_parses_and_keeps_the_order_of_the_format() {
        let out = rendered(&stats());
        let mut seen = BTreeSet::new();
        for metric in METRICS {
            let mut lines = out
                .lines()
                .skip_while(|line| !line.starts_with(&format!("# HELP {} ", metric.name)));
            assert!(lines.next().is_some(), "{} is missing", metric.name);
            let kind = format!("# TYPE {} {}", metric.name, metric.kind.into_str());
            assert_eq!(lines.next(), Some(kind.as_str()));
            for line in lines.take_while(|line| !line.starts_with('#')) {
                let (name, labels, value) = sample(line);
                let suffix = name.strip_prefix(metric.name).expect("the metric's name");
                let histogram = metric.kind == text::Kind::Histogram;
                assert_eq!(
                    histogram,
                    ["_bucket", "_sum", "_count"].contains(&suffix),
                    "{line}"
                );
                let own: Vec<_> = labels.keys().filter(|&&label| label != "le").collect();
                let mut expected: Vec<_> = metric.labels().iter().collect();
                expected.sort();
                assert_eq!(own, expected, "{line}");
                let may_be_negative = metric.name == "levity_tls_certificate_seconds";
                assert!(
                    value.is_finite() && (value >= 0.0 || may_be_negative),
                    "{line}"
                );
                assert!(
                    seen.insert(line.rsplit_once(' ').map(|pair| pair.0)),
                    "twice: {line}"
                );
            }
        }
        let samples = out.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(seen.len(), samples, "a sample outside its family");
    }

    #[test]
    fn figures_are_added_up() {
        let out = rendered(&stats());
        for line in [
            "levity_requests_total{code=\"200\"} 2",
            "levity_requests_total{code=\"404\"} 1",
            "levity_filtered_bodies_total 4",
            "levity_filter_input_bytes_total 4000",
            "levity_filter_output_bytes_total 1400",
            "levity_compute_queue_depth{class=\"response\"} 5",
            "levity_compute_queue_depth{class=\"idle\"} 9",
            "levity_compute_threads{class=\"response\"} 4",
            "levity_compute_canceled_total{class=\"response\"} 3",
            "levity_compute_refused_total{class=\"response\"} 2",
            "levity_compute_queue_seconds_bucket{class=\"response\",le=\"0.00025\"} 6",
            "levity_compute_queue_seconds_count{class=\"response\"} 8",
            "levity_compute_run_seconds_count{class=\"idle\"} 0",
            "levity_compression_memory_bytes{coder=\"encoder\"} 1024",
            "levity_compression_memory_bytes{coder=\"decoder\"} 512",
            "levity_compression_memory_limit_bytes 4096",
            "levity_compressions_total{coding=\"br\",outcome=\"fast\"} 1",
            "levity_compressions_total{coding=\"gzip\",outcome=\"memory_full\"} 0",
            "levity_variants 12",
            "levity_variants_bytes 3000",
            "levity_variants_limit_bytes 8000",
            "levity_requests_total{code=\"other\"} 1",
            "levity_site_requests_total{site=\"a.example\",class=\"4xx\"} 2",
            "levity_site_requests_total{site=\"default\",class=\"2xx\"} 0",
            "levity_site_sent_bytes_total{site=\"a.example\"} 140",
            "levity_site_request_duration_seconds_bucket{site=\"a.example\",le=\"0.004096\"} 2",
            "levity_site_request_duration_seconds_count{site=\"default\"} 0",
            "levity_responses_by_source_total{source=\"memory\"} 2",
            "levity_responses_by_source_total{source=\"-\"} 2",
            "levity_request_duration_seconds_bucket{le=\"0.0025\"} 0",
            "levity_request_duration_seconds_bucket{le=\"0.005\"} 4",
            "levity_request_duration_seconds_sum 0.012",
            "levity_step_duration_seconds_bucket{step=\"route\",le=\"0.000001\"} 4",
            "levity_step_duration_seconds_bucket{step=\"send\",le=\"0.000064\"} 0",
            "levity_step_duration_seconds_bucket{step=\"send\",le=\"0.000256\"} 4",
            "levity_step_duration_seconds_sum{step=\"send\"} 0.00028",
            "levity_step_duration_seconds_count{step=\"resolve\"} 0",
            "levity_disk_queue_seconds_count{engine=\"threads\"} 5",
            "levity_connections{state=\"open\"} 2",
            "levity_connections_accepted_total 4",
            "levity_connection_ends_total{end=\"timeout\"} 2",
            "levity_sent_bytes_total 2000",
            "levity_disk_reads_total{engine=\"threads\",how=\"cached\"} 2",
            "levity_disk_reads_total{engine=\"threads\",how=\"async\"} 5",
            "levity_gate_denied_total{gate=\"signed_url\"} 2",
            "levity_gate_denied_total{gate=\"access\"} 0",
            "levity_reads_ahead_total{outcome=\"unused\"} 2",
            "levity_uploads_total{result=\"created\"} 2",
            "levity_uploaded_bytes_total 140",
            "levity_body_copied_bytes_total 200",
            "levity_body_spliced_bytes_total 100",
            "levity_body_zero_copy_bytes_total 140",
            "levity_disk_direct_reads_total{engine=\"threads\"} 1",
            "levity_disk_writes_total{engine=\"threads\"} 7",
            "levity_disk_written_bytes_total{engine=\"threads\"} 4321",
            "levity_disk_syncs_total{engine=\"threads\"} 8",
            "levity_disk_syncs_shared_total 2",
            "levity_disk_queue_depth{device=\"259:0\"} 2",
            "levity_disk_depth{device=\"259:0\"} 4",
            "levity_disk_dead{device=\"259:0\"} 0",
            "levity_disk_coalesced_total 6",
            "levity_loop_stall_seconds_bucket{worker=\"1\",le=\"0.002\"} 1",
            "levity_loop_stall_seconds_count{worker=\"1\"} 2",
            "levity_loop_stall_seconds_count{worker=\"0\"} 0",
            "levity_loop_stall_max_seconds{worker=\"1\"} 0.003",
            "levity_worker_run_queue_wait_seconds_total{worker=\"0\"} 1.5",
            "levity_limited_total{limit=\"a \\\"b\\\"\",action=\"refused\"} 7",
            "levity_limited_total{limit=\"a \\\"b\\\"\",action=\"reported\"} 1",
            "levity_limit_evictions_total 3",
            "levity_log_dropped_total{log=\"access\"} 11",
            "levity_tls_certificate_seconds{name=\"a.example\",source=\"files\"} 86400",
            "levity_tls_certificate_seconds{name=\"b.example\",source=\"acme\"} -7",
            "levity_tls_on_demand_certificates 3",
            "levity_watches 3",
            "levity_watch_events_total 20",
            "levity_watch_overflows_total 1",
            "levity_watch_refused_total 2",
            "levity_upstream_requests_total{upstream=\"app\",backend=\"127.0.0.1:1\",outcome=\"answered\"} 2",
            "levity_upstream_requests_total{upstream=\"app\",backend=\"127.0.0.1:1\",outcome=\"http_response_timeout\"} 2",
            "levity_upstream_broken_answers_total{upstream=\"app\",backend=\"127.0.0.1:1\"} 2",
            "levity_upstream_retries_total{upstream=\"app\"} 2",
            "levity_upstream_connections{upstream=\"app\",backend=\"127.0.0.1:1\",state=\"in_use\"} 2",
            "levity_upstream_connections{upstream=\"app\",backend=\"127.0.0.1:1\",state=\"idle\"} 4",
            "levity_upstream_connections_made_total{upstream=\"app\",backend=\"127.0.0.1:1\"} 2",
            "levity_upstream_connections_reused_total{upstream=\"app\",backend=\"127.0.0.1:1\"} 2",
            "levity_upstream_queue{upstream=\"app\"} 0",
            "levity_upstream_queue_refused_total{upstream=\"app\",reason=\"full\"} 2",
            "levity_upstream_queue_refused_total{upstream=\"app\",reason=\"timeout\"} 2",
            "levity_upstream_time_to_first_byte_seconds_count{upstream=\"app\"} 2",
            "levity_upstream_backend_up{upstream=\"app\",backend=\"127.0.0.1:1\",by=\"requests\"} 1",
            "levity_upstream_backend_up{upstream=\"app\",backend=\"127.0.0.1:1\",by=\"checks\"} 1",
            "levity_upstream_backend_up{upstream=\"app\",backend=\"nowhere:80\",by=\"requests\"} 0",
            "levity_upstream_sent_bytes_total{upstream=\"app\",backend=\"127.0.0.1:1\"} 200",
            "levity_upstream_received_bytes_total{upstream=\"app\",backend=\"127.0.0.1:1\"} 400",
        ] {
            assert!(
                out.lines().any(|found| found == line),
                "{line} is missing in\n{out}"
            );
        }
    }

    #[test]
    fn without_a_source_there_are_no_metrics_of_it() {
        let stats = Stats::new(vec![Arc::new(WorkerStats::new(0))], Sources::default());
        let out = rendered(&stats);
        assert!(!out.contains("levity_disk_"));
        assert!(!out.contains("\nlevity_comp"));
        assert!(!out.contains("\nlevity_limit"));
        assert!(!out.contains("\nlevity_tls_certificate"));
        assert!(!out.lines().any(|line| line.starts_with("levity_watch")));
    }

    #[test]
    fn names_follow_the_conventions() {
        for metric in METRICS {
            let counter = metric.kind == text::Kind::Counter;
            assert_eq!(metric.name.ends_with("_total"), counter, "{}", metric.name);
            assert!(
                !metric.grows().is_empty() && metric.help().ends_with('.'),
                "{}",
                metric.name
            );
        }
    }
}
