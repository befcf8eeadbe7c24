//! A metric, and how its samples are made from what a scrape reads.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use levity_disk::WatchStats;
use levity_disk::stats::{DeviceStats, EngineStats};
use strum::VariantArray;

use super::certificates::CertificateFigures;
use super::compute::ComputeFigures;
use super::disk::{DiskFigures, device_number};
use super::limits::LimitFigures;
use super::mailboxes::MailboxFigures;
use super::shares::ShareFigure;
use super::site::SiteFigures;
use super::text::{Kind, Samples};
use super::upstream::{BackendFigures, BackendState, UpstreamFigures, UpstreamState};
use super::variants::VariantFigures;
use super::worker::WorkerStats;
use crate::cells::{Counter, Histogram, HistogramFigures};
use Figure::*;

/// One metric.
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) unit: &'static str,
    /// Two paragraphs, in lines: what it is, and what to do when it grows.
    pub(super) text: &'static str,
    pub(super) figure: Figure,
}

/// Where the values of a metric come from, which says its labels too.
pub(super) enum Figure {
    /// The sum over all workers.
    Total(fn(&WorkerStats) -> &Counter),
    /// The sum over all workers.
    TotalHistogram(fn(&WorkerStats) -> &Histogram),
    /// Of each worker, in seconds.
    WorkerTime(fn(&WorkerStats) -> Duration),
    /// Of each worker.
    WorkerHistogram(fn(&WorkerStats) -> &Histogram),
    /// Of each device.
    Device(fn(&DeviceStats) -> u64),
    /// Of each engine.
    Engine(fn(&EngineStats) -> u64),
    /// Of each engine.
    EngineHistogram(fn(&EngineStats) -> &levity_disk::stats::Histogram),
    /// Of each class of the pool of threads that compute.
    Compute(fn(&levity_compute::Stats) -> u64),
    /// Of each class of the pool of threads that compute.
    ComputeHistogram(fn(&levity_compute::Stats) -> &levity_disk::stats::Histogram),
    /// Of the store of compressed files.
    Variants(fn(&VariantFigures) -> u64),
    /// Of mailboxes.
    Mailboxes(fn(&MailboxFigures) -> u64),
    /// Of mailboxes, by the word of a label.
    MailboxesBy(
        &'static [&'static str],
        fn(&MailboxFigures) -> &[(&'static str, u64)],
    ),
    /// Of the watcher.
    Watch(fn(&WatchStats) -> u64),
    /// Of each upstream.
    Upstream(fn(&UpstreamFigures) -> u64),
    /// Of each upstream.
    UpstreamHistogram(fn(&UpstreamFigures) -> &HistogramFigures),
    /// Of each site.
    Site(fn(&SiteFigures) -> u64),
    /// Of each site.
    SiteHistogram(fn(&SiteFigures) -> &HistogramFigures),
    /// Of each backend.
    Backend(fn(&BackendFigures) -> u64),
    /// Samples with these labels.
    Computed(&'static [&'static str], fn(&Scrape, &mut Samples)),
}

impl Metric {
    /// What it is.
    pub(super) fn help(&self) -> String {
        self.paragraphs().0
    }

    /// What to do when it grows.
    pub(super) fn grows(&self) -> String {
        self.paragraphs().1
    }

    fn paragraphs(&self) -> (String, String) {
        let (help, grows) = self.text.split_once("\n\n").expect("two paragraphs");
        let joined = |lines: &str| lines.replace('\n', "").trim().to_owned();
        (joined(help), joined(grows))
    }

    pub(super) fn labels(&self) -> &'static [&'static str] {
        match self.figure {
            Total(_) | TotalHistogram(_) | Variants(_) | Mailboxes(_) | Watch(_) => &[],
            MailboxesBy(labels, _) => labels,
            WorkerTime(_) | WorkerHistogram(_) => &["worker"],
            Device(_) => &["device"],
            Engine(_) | EngineHistogram(_) => &["engine"],
            Compute(_) | ComputeHistogram(_) => &["class"],
            Upstream(_) | UpstreamHistogram(_) => &["upstream"],
            Site(_) | SiteHistogram(_) => &["site"],
            Backend(_) => &["upstream", "backend"],
            Computed(labels, _) => labels,
        }
    }

    /// Appends its samples with their HELP and TYPE, or nothing where there are none.
    pub(super) fn render(&self, scrape: &Scrape, out: &mut String) {
        let samples = |samples: &mut Samples| self.samples(scrape, samples);
        Samples::family(out, self.name, self.kind, &self.help(), samples);
    }

    fn samples(&self, scrape: &Scrape, samples: &mut Samples) {
        match self.figure {
            Total(of) => samples.value(&[], scrape.sum(|worker| of(worker).get())),
            TotalHistogram(of) => scrape.histogram(samples, of),
            WorkerTime(of) => {
                scrape.each_worker(|worker, labels| samples.value(labels, of(worker).as_secs_f64()))
            }
            WorkerHistogram(of) => scrape
                .each_worker(|worker, labels| samples.histogram(labels, &of(worker).figures())),
            Device(of) => scrape.each_device(|device, labels| samples.value(labels, of(device))),
            Engine(of) => scrape.each_engine(|engine, labels| samples.value(labels, of(engine))),
            EngineHistogram(of) => {
                scrape.each_engine(|engine, labels| samples.histogram(labels, &of(engine).into()))
            }
            Compute(of) => scrape.each_class(|class, labels| samples.value(labels, of(class))),
            ComputeHistogram(of) => {
                scrape.each_class(|class, labels| samples.histogram(labels, &of(class).into()))
            }
            Variants(of) => scrape
                .variants
                .iter()
                .for_each(|variants| samples.value(&[], of(variants))),
            Mailboxes(of) => scrape
                .mailboxes
                .iter()
                .for_each(|mailboxes| samples.value(&[], of(mailboxes))),
            MailboxesBy(labels, of) => {
                for (word, count) in scrape.mailboxes.iter().flat_map(of) {
                    samples.value(&[(labels[0], word)], *count);
                }
            }
            Watch(of) => scrape
                .watch
                .iter()
                .for_each(|watch| samples.value(&[], of(watch))),
            Upstream(of) => {
                scrape.each_upstream(|upstream, labels| samples.value(labels, of(upstream)))
            }
            UpstreamHistogram(of) => {
                scrape.each_upstream(|upstream, labels| samples.histogram(labels, of(upstream)));
            }
            Site(of) => scrape.each_site(|site, labels| samples.value(&[labels], of(site))),
            SiteHistogram(of) => {
                scrape.each_site(|site, labels| samples.histogram(&[labels], of(site)));
            }
            Backend(of) => {
                scrape.each_backend(|_, backend, labels| samples.value(&labels, of(backend)))
            }
            Computed(_, compute) => compute(scrape, samples),
        }
    }
}

/// What one scrape reads from. The disk figures are taken once, so that they agree with each other.
pub(super) struct Scrape<'a> {
    pub(super) workers: &'a [Arc<WorkerStats>],
    pub(super) started: SystemTime,
    pub(super) access_log_dropped: u64,
    pub(super) diagnostics_dropped: u64,
    pub(super) disk: Option<DiskFigures>,
    pub(super) compute: Option<ComputeFigures>,
    pub(super) variants: Option<VariantFigures>,
    pub(super) limits: Option<LimitFigures>,
    pub(super) shares: Vec<ShareFigure>,
    pub(super) mailboxes: Option<MailboxFigures>,
    pub(super) certificates: Option<CertificateFigures>,
    pub(super) watch: Option<WatchStats>,
    pub(super) upstreams: Vec<(UpstreamState, UpstreamFigures)>,
    pub(super) sites: Vec<SiteFigures>,
}

impl Scrape<'_> {
    pub(super) fn sum(&self, value: impl Fn(&WorkerStats) -> u64) -> u64 {
        self.workers.iter().map(|worker| value(worker)).sum()
    }

    pub(super) fn histogram(&self, samples: &mut Samples, of: impl Fn(&WorkerStats) -> &Histogram) {
        let parts = self.workers.iter().map(|worker| of(worker).figures());
        if let Some(total) = HistogramFigures::total(parts) {
            samples.histogram(&[], &total);
        }
    }

    /// Calls `give` with each worker and its label.
    pub(super) fn each_worker(&self, mut give: impl FnMut(&WorkerStats, &[(&str, &str)])) {
        for worker in self.workers {
            give(worker, &[("worker", &worker.worker().to_string())]);
        }
    }

    /// Calls `give` with each engine and its label.
    pub(super) fn each_engine(&self, mut give: impl FnMut(&EngineStats, &[(&str, &str)])) {
        for engine in self.disk.iter().flat_map(|disk| &disk.stats.engines) {
            give(engine, &[("engine", engine.name)]);
        }
    }

    /// Calls `give` with each class of computing and its label.
    pub(super) fn each_class(&self, mut give: impl FnMut(&levity_compute::Stats, &[(&str, &str)])) {
        for (label, class) in self.compute.iter().flat_map(ComputeFigures::classes) {
            give(class, &[("class", label)]);
        }
    }

    /// The samples of each resource that clients share, with its label.
    pub(super) fn by_resource(&self, samples: &mut Samples, of: impl Fn(&ShareFigure) -> u64) {
        for figure in &self.shares {
            samples.value(&[("resource", figure.resource)], of(figure));
        }
    }

    /// Calls `give` with each upstream and its label.
    pub(super) fn each_upstream(&self, mut give: impl FnMut(&UpstreamFigures, &[(&str, &str)])) {
        for (state, figures) in &self.upstreams {
            give(figures, &[("upstream", &state.name)]);
        }
    }

    /// Calls `give` with each site and its label.
    pub(super) fn each_site(&self, mut give: impl FnMut(&SiteFigures, (&str, &str))) {
        for site in &self.sites {
            give(site, ("site", &site.name));
        }
    }

    /// Calls `give` with each backend and its labels, behind which there is room for one more.
    pub(super) fn each_backend(
        &self,
        mut give: impl FnMut(&BackendState, &BackendFigures, [(&'static str, &str); 2]),
    ) {
        for (upstream, figures) in &self.upstreams {
            for (backend, figures) in upstream.backends.iter().zip(&figures.backends) {
                let labels = [
                    ("upstream", upstream.name.as_str()),
                    ("backend", backend.name.as_str()),
                ];
                give(backend, figures, labels);
            }
        }
    }

    /// Calls `give` with each device and its label.
    pub(super) fn each_device(&self, mut give: impl FnMut(&DeviceStats, &[(&str, &str)])) {
        for device in self.disk.iter().flat_map(|disk| &disk.stats.devices) {
            give(device, &[("device", &device_number(device.device))]);
        }
    }

    /// The sum over all workers for each variant of an enum, under its word.
    pub(super) fn by_variant<T>(
        &self,
        samples: &mut Samples,
        label: &str,
        count: fn(&WorkerStats, T) -> u64,
    ) where
        T: Copy + Into<&'static str> + VariantArray,
    {
        for variant in T::VARIANTS {
            let count = self.sum(|worker| count(worker, *variant));
            samples.value(&[(label, (*variant).into())], count);
        }
    }
}
