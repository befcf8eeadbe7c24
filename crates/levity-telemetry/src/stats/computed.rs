//! Samples of metrics that are more than a sum, or have labels of their own.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use super::limits::LimitTableFigures;
use super::metric::Scrape;
use super::site::CLASSES;
use super::text::Samples;
use super::upstream::OUTCOMES;
use super::worker::WorkerStats;
use crate::cells::HistogramFigures;
use crate::step::Step;

pub(super) fn requests(scrape: &Scrape, samples: &mut Samples) {
    let mut counts = BTreeMap::<Option<u16>, u64>::new();
    for (status, count) in scrape.workers.iter().flat_map(|worker| worker.requests()) {
        *counts.entry(status).or_default() += count;
    }
    for (status, count) in counts.into_iter().filter(|&(_, count)| count > 0) {
        let code = status.map_or("other".to_owned(), |status| status.to_string());
        samples.value(&[("code", &code)], count);
    }
}

pub(super) fn site_requests(scrape: &Scrape, samples: &mut Samples) {
    scrape.each_site(|site, label| {
        for (class, count) in CLASSES.iter().zip(site.classes) {
            samples.value(&[label, ("class", class)], count);
        }
    });
}

pub(super) fn steps(scrape: &Scrape, samples: &mut Samples) {
    for step in Step::TIMED {
        let workers = scrape.workers.iter();
        let parts = workers.filter_map(|worker| Some(worker.step(*step)?.figures()));
        if let Some(total) = HistogramFigures::total(parts) {
            samples.histogram(&[("step", step.label())], &total);
        }
    }
}

pub(super) fn reads(scrape: &Scrape, samples: &mut Samples) {
    let Some(disk) = &scrape.disk else { return };
    let cached = scrape.sum(|worker| worker.reads_cached.get());
    samples.value(&[("engine", disk.own_engine), ("how", "cached")], cached);
    for engine in &disk.stats.engines {
        for (how, count) in [("async", engine.reads_async), ("sync", engine.reads_sync)] {
            samples.value(&[("engine", engine.name), ("how", how)], count);
        }
    }
}

pub(super) fn outcomes(scrape: &Scrape, samples: &mut Samples) {
    scrape.each_backend(|_, backend, [upstream, name]| {
        for (outcome, count) in OUTCOMES.iter().zip(backend.outcomes) {
            // An outcome that never occurred needs no series, except for the one that rates are made of.
            if count > 0 || *outcome == OUTCOMES[0] {
                samples.value(&[upstream, name, ("outcome", outcome)], count);
            }
        }
    });
}

pub(super) fn backends_up(scrape: &Scrape, samples: &mut Samples) {
    scrape.each_backend(|backend, _, [upstream, name]| {
        let sources = [("requests", backend.is_in), ("checks", backend.is_well)];
        for (by, up) in sources {
            samples.value(&[upstream, name, ("by", by)], u8::from(up));
        }
    });
    for (upstream, _) in &scrape.upstreams {
        for name in &upstream.unresolved {
            for by in ["requests", "checks"] {
                let labels = [
                    ("upstream", upstream.name.as_str()),
                    ("backend", name.as_str()),
                    ("by", by),
                ];
                samples.value(&labels, 0);
            }
        }
    }
}

pub(super) fn connections(scrape: &Scrape, samples: &mut Samples) {
    samples.value(&[("state", "open")], scrape.sum(WorkerStats::open));
}

pub(super) fn coalesced(scrape: &Scrape, samples: &mut Samples) {
    if let Some(disk) = &scrape.disk {
        samples.value(&[], disk.stats.coalesced);
    }
}

pub(super) fn syncs_shared(scrape: &Scrape, samples: &mut Samples) {
    if let Some(disk) = &scrape.disk {
        samples.value(&[], disk.stats.syncs_shared);
    }
}

pub(super) fn compressions(scrape: &Scrape, samples: &mut Samples) {
    let figures = scrape
        .compute
        .iter()
        .flat_map(|compute| &compute.compressions);
    for one in figures {
        let labels = [("coding", one.coding), ("outcome", one.outcome)];
        samples.value(&labels, one.count);
    }
}

pub(super) fn coder_bytes(scrape: &Scrape, samples: &mut Samples) {
    if let Some(compute) = &scrape.compute {
        samples.value(&[("coder", "encoder")], compute.encoder_bytes);
        samples.value(&[("coder", "decoder")], compute.decoder_bytes);
    }
}

pub(super) fn coder_bytes_max(scrape: &Scrape, samples: &mut Samples) {
    if let Some(compute) = &scrape.compute {
        samples.value(&[], compute.coder_bytes_max);
    }
}

pub(super) fn backend_connections(scrape: &Scrape, samples: &mut Samples) {
    scrape.each_backend(|_, backend, [upstream, name]| {
        for (state, count) in [("in_use", backend.in_use), ("idle", backend.idle)] {
            samples.value(&[upstream, name, ("state", state)], count);
        }
    });
}

pub(super) fn queue_refused(scrape: &Scrape, samples: &mut Samples) {
    scrape.each_upstream(|figures, labels| {
        let refused = [
            ("full", figures.queue_full),
            ("timeout", figures.queue_timeouts),
        ];
        for (reason, count) in refused {
            samples.value(&[labels[0], ("reason", reason)], count);
        }
    });
}

pub(super) fn limited(scrape: &Scrape, samples: &mut Samples) {
    // A limit of a site and one of its routes may have the same name.
    let mut counts = BTreeMap::<(&str, &str), u64>::new();
    for one in scrape.limits.iter().flat_map(|limits| &limits.limits) {
        *counts.entry((&one.limit, one.action)).or_default() += one.count;
    }
    for ((limit, action), count) in counts {
        samples.value(&[("limit", limit), ("action", action)], count);
    }
}

pub(super) fn limit_evictions(scrape: &Scrape, samples: &mut Samples) {
    if let Some(table) = limit_table(scrape) {
        samples.value(&[], table.evictions);
    }
}

pub(super) fn limit_keys(scrape: &Scrape, samples: &mut Samples) {
    if let Some(table) = limit_table(scrape) {
        samples.value(&[], table.keys);
    }
}

fn limit_table(scrape: &Scrape) -> Option<LimitTableFigures> {
    let limits = scrape.limits.as_ref();
    limits.and_then(|limits| limits.table)
}

pub(super) fn certificates(scrape: &Scrape, samples: &mut Samples) {
    let figures = scrape.certificates.iter();
    for one in figures.flat_map(|figures| &figures.certificates) {
        let labels = [("name", one.name.as_str()), ("source", one.source)];
        samples.value(&labels, one.seconds_left);
    }
}

pub(super) fn on_demand_certificates(scrape: &Scrape, samples: &mut Samples) {
    let figures = scrape.certificates.as_ref();
    if let Some(count) = figures.and_then(|figures| figures.on_demand) {
        samples.value(&[], count);
    }
}

pub(super) fn log_dropped(scrape: &Scrape, samples: &mut Samples) {
    samples.value(&[("log", "access")], scrape.access_log_dropped);
    samples.value(&[("log", "diagnostics")], scrape.diagnostics_dropped);
}

pub(super) fn start_time(scrape: &Scrape, samples: &mut Samples) {
    let since_epoch = scrape.started.duration_since(UNIX_EPOCH);
    let since_epoch = since_epoch.unwrap_or_default();
    samples.value(&[], since_epoch.as_secs_f64());
}
