//! The table of all metrics: `/metrics` and `docs/metrics.md` are made from it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use levity_disk::WatchStats;
use levity_disk::stats::{DeviceStats, EngineStats};

use super::disk::{DiskFigures, device_number};
use super::text::{Kind, Samples};
use super::upstream::{BackendFigures, BackendState, OUTCOMES, UpstreamFigures, UpstreamState};
use super::worker::{Ahead, WorkerStats};
use crate::access_log::{End, Source};
use crate::cells::{Counter, Histogram, HistogramFigures};
use crate::step::Step;

/// One metric, and where its figures come from.
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) unit: &'static str,
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
    /// What to do when it grows.
    pub(super) grows: &'static str,
    pub(super) samples: fn(&Scrape, &mut Samples),
}

impl Metric {
    /// Appends its samples with their HELP and TYPE, or nothing where there are none.
    pub(super) fn render(&self, scrape: &Scrape, out: &mut String) {
        let samples = |samples: &mut Samples| (self.samples)(scrape, samples);
        Samples::family(out, self.name, self.kind, self.help, samples);
    }
}

/// What one scrape reads from. The disk figures are taken once, so that they agree with each other.
pub(super) struct Scrape<'a> {
    pub(super) workers: &'a [Arc<WorkerStats>],
    pub(super) started: SystemTime,
    pub(super) access_log_dropped: u64,
    pub(super) diagnostics_dropped: u64,
    pub(super) disk: Option<DiskFigures>,
    pub(super) watch: Option<WatchStats>,
    pub(super) upstreams: Vec<(UpstreamState, UpstreamFigures)>,
}

impl Scrape<'_> {
    fn sum(&self, value: impl Fn(&WorkerStats) -> u64) -> u64 {
        self.workers.iter().map(|worker| value(worker)).sum()
    }

    fn histogram(&self, samples: &mut Samples, of: impl Fn(&WorkerStats) -> &Histogram) {
        let parts = self.workers.iter().map(|worker| of(worker).figures());
        if let Some(total) = HistogramFigures::total(parts) {
            samples.histogram(&[], &total);
        }
    }

    /// Calls `give` with each worker and its label.
    fn each_worker(&self, mut give: impl FnMut(&WorkerStats, &[(&str, &str)])) {
        for worker in self.workers {
            give(worker, &[("worker", &worker.worker().to_string())]);
        }
    }

    /// Calls `give` with each engine and its label.
    fn each_engine(&self, mut give: impl FnMut(&EngineStats, &[(&str, &str)])) {
        for engine in self.disk.iter().flat_map(|disk| &disk.stats.engines) {
            give(engine, &[("engine", engine.name)]);
        }
    }

    /// Calls `give` with each upstream and its label.
    fn each_upstream(&self, mut give: impl FnMut(&UpstreamFigures, &[(&str, &str)])) {
        for (state, figures) in &self.upstreams {
            give(figures, &[("upstream", &state.name)]);
        }
    }

    /// Calls `give` with each backend and its labels, behind which there is room for one more.
    fn each_backend(
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

    fn backend_values(&self, samples: &mut Samples, value: impl Fn(&BackendFigures) -> u64) {
        self.each_backend(|_, backend, labels| samples.value(&labels, value(backend)));
    }

    fn each_device(&self, samples: &mut Samples, value: impl Fn(&DeviceStats) -> u64) {
        for device in self.disk.iter().flat_map(|disk| &disk.stats.devices) {
            samples.value(&[("device", &device_number(device.device))], value(device));
        }
    }
}

fn requests(scrape: &Scrape, samples: &mut Samples) {
    let mut counts = BTreeMap::<Option<u16>, u64>::new();
    for (status, count) in scrape.workers.iter().flat_map(|worker| worker.requests()) {
        *counts.entry(status).or_default() += count;
    }
    for (status, count) in counts.into_iter().filter(|&(_, count)| count > 0) {
        let code = status.map_or("other".to_owned(), |status| status.to_string());
        samples.value(&[("code", &code)], count);
    }
}

fn sources(scrape: &Scrape, samples: &mut Samples) {
    for source in Source::ALL {
        samples.value(
            &[("source", source.label())],
            scrape.sum(|worker| worker.source(source)),
        );
    }
}

fn steps(scrape: &Scrape, samples: &mut Samples) {
    for step in Step::TIMED {
        let workers = scrape.workers.iter();
        let parts = workers.filter_map(|worker| Some(worker.step(step)?.figures()));
        if let Some(total) = HistogramFigures::total(parts) {
            samples.histogram(&[("step", step.label())], &total);
        }
    }
}

fn ends(scrape: &Scrape, samples: &mut Samples) {
    for end in End::ALL {
        samples.value(
            &[("end", end.label())],
            scrape.sum(|worker| worker.ended(end)),
        );
    }
}

fn reads(scrape: &Scrape, samples: &mut Samples) {
    let Some(disk) = &scrape.disk else { return };
    let cached = scrape.sum(|worker| worker.reads_cached.get());
    samples.value(&[("engine", disk.own_engine), ("how", "cached")], cached);
    for engine in &disk.stats.engines {
        for (how, count) in [("async", engine.reads_async), ("sync", engine.reads_sync)] {
            samples.value(&[("engine", engine.name), ("how", how)], count);
        }
    }
}

fn watch(scrape: &Scrape, samples: &mut Samples, value: impl Fn(&WatchStats) -> u64) {
    scrape
        .watch
        .iter()
        .for_each(|watch| samples.value(&[], value(watch)));
}

fn outcomes(scrape: &Scrape, samples: &mut Samples) {
    scrape.each_backend(|_, backend, [upstream, name]| {
        for (outcome, count) in OUTCOMES.iter().zip(backend.outcomes) {
            // An outcome that never occurred needs no series, except for the one that rates are made of.
            if count > 0 || *outcome == OUTCOMES[0] {
                samples.value(&[upstream, name, ("outcome", outcome)], count);
            }
        }
    });
}

fn backends_up(scrape: &Scrape, samples: &mut Samples) {
    scrape.each_backend(|backend, _, [upstream, name]| {
        let witnesses = [("requests", backend.is_in), ("checks", backend.is_well)];
        for (by, up) in witnesses {
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

fn log_dropped(scrape: &Scrape, samples: &mut Samples) {
    samples.value(&[("log", "access")], scrape.access_log_dropped);
    samples.value(&[("log", "diagnostics")], scrape.diagnostics_dropped);
}

fn start_time(scrape: &Scrape, samples: &mut Samples) {
    let since_epoch = scrape.started.duration_since(UNIX_EPOCH);
    let since_epoch = since_epoch.unwrap_or_default();
    samples.value(&[], since_epoch.as_secs_f64());
}

fn seconds(nanos: &Counter) -> f64 {
    Duration::from_nanos(nanos.get()).as_secs_f64()
}

/// Every metric, in the order of `/metrics` and of the documentation.
pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "levity_requests_total",
        kind: Kind::Counter,
        unit: "requests",
        labels: &["code"],
        help: "Requests finished, by status code; codes outside 100-599 count as \"other\".",
        grows: "Load, when it is 2xx and 3xx. When 5xx grows, read the access log's `end` and `io_wait` of those requests: 503 \
                means a full disk queue or a disk that does not answer. A sudden rise of 400 or 408 means a broken or hostile client.",
        samples: requests,
    },
    Metric {
        name: "levity_responses_by_source_total",
        kind: Kind::Counter,
        unit: "responses",
        labels: &["source"],
        help: "Responses by the source of their bytes: memory (own cache), cached (page cache, read by the loop), disk (an engine), upstream (an application), - (none of these).",
        grows: "When `disk` grows faster than `cached`, the requested content no longer fits in RAM: add memory, spread the \
                content over machines, or check for a crawler.",
        samples: sources,
    },
    Metric {
        name: "levity_request_duration_seconds",
        kind: Kind::Histogram,
        unit: "seconds",
        labels: &[],
        help: "From the first byte of a request to the last byte of its response.",
        grows: "It includes long downloads and slow clients. Compare with levity_time_to_first_byte_seconds before you suspect the server.",
        samples: |scrape, samples| scrape.histogram(samples, |worker| &worker.duration),
    },
    Metric {
        name: "levity_time_to_first_byte_seconds",
        kind: Kind::Histogram,
        unit: "seconds",
        labels: &[],
        help: "From the first byte of a request to the first byte of its response.",
        grows: "When levity_io_wait_seconds grows with it, the disk is the cause; when levity_loop_stall_seconds or levity_loop_hog_seconds does, \
                the server is; when neither does, the processor is.",
        samples: |scrape, samples| scrape.histogram(samples, |worker| &worker.ttfb),
    },
    Metric {
        name: "levity_io_wait_seconds",
        kind: Kind::Histogram,
        unit: "seconds",
        labels: &[],
        help: "Time in which a request waited for a disk engine.",
        grows: "See whether levity_disk_queue_seconds (too many reads for the device) or levity_disk_service_seconds (a slow device) makes it up.",
        samples: |scrape, samples| scrape.histogram(samples, |worker| &worker.io_wait),
    },
    Metric {
        name: "levity_step_duration_seconds",
        kind: Kind::Histogram,
        unit: "seconds",
        labels: &["step"],
        help: "Time that a request spent in each step: accept (from the connection to its first request, only once per connection), parse, route, \
               resolve, upstream (to the header of an application's response), respond, filter, send. Waiting for the disk and for the client is included: in \
               resolve and send.",
        grows: "`resolve`: files that are not open yet wait for the disk; compare with levity_disk_queue_seconds and levity_disk_service_seconds. `upstream`: applications are slow, or queues for them are long: \
                levity_upstream_time_to_first_byte_seconds, levity_upstream_queue. `send`: the same for the content, or slow clients. `accept` and `parse`: clients that are slow to ask, or a busy loop. `respond`: \
                large listings. `log.timing` and `levity timing` show which requests.",
        samples: steps,
    },
    Metric {
        name: "levity_connections",
        kind: Kind::Gauge,
        unit: "connections",
        labels: &["state"],
        help: "Client connections now, by state.",
        grows: "When it grows and levity_requests_total does not, clients hold idle or slow connections: lower `limits.idle_timeout` or \
                `limits.connections`, and compare with the descriptor limit.",
        samples: |scrape, samples| {
            samples.value(&[("state", "open")], scrape.sum(WorkerStats::open))
        },
    },
    Metric {
        name: "levity_connections_accepted_total",
        kind: Kind::Counter,
        unit: "connections",
        labels: &[],
        help: "Client connections accepted.",
        grows: "When it grows as fast as levity_requests_total, clients or a proxy in front do not reuse connections.",
        samples: |scrape, samples| samples.value(&[], scrape.sum(|worker| worker.accepted.get())),
    },
    Metric {
        name: "levity_connection_ends_total",
        kind: Kind::Counter,
        unit: "connections",
        labels: &["end"],
        help: "Client connections ended, by reason: complete, client_abort, timeout, error.",
        grows: "`client_abort` with a high time to first byte: people give up waiting. `timeout`: slow or idle clients, normal at a low rate. \
                `error`: a file that shrank or a disk that failed during a transfer; see the access log.",
        samples: ends,
    },
    Metric {
        name: "levity_accept_pauses_total",
        kind: Kind::Counter,
        unit: "pauses",
        labels: &[],
        help: "Times that a worker stopped accepting connections because descriptors or memory were exhausted.",
        grows: "Raise the descriptor limit (LimitNOFILE=), or lower `limits.idle_timeout`. It should stay 0.",
        samples: |scrape, samples| {
            samples.value(&[], scrape.sum(|worker| worker.accept_pauses.get()))
        },
    },
    Metric {
        name: "levity_sent_bytes_total",
        kind: Kind::Counter,
        unit: "bytes",
        labels: &[],
        help: "Bytes written to client sockets, headers included.",
        grows: "Throughput. Near the speed of the network card, the network is the limit, not the disk.",
        samples: |scrape, samples| samples.value(&[], scrape.sum(|worker| worker.sent_bytes.get())),
    },
    Metric {
        name: "levity_disk_reads_total",
        kind: Kind::Counter,
        unit: "reads",
        labels: &["engine", "how"],
        help: "Reads: cached (by the loop, from the page cache, without waiting; always under the name of `disk.engine`), async (by the engine), sync (by the loop, which may wait: only the sendfile engine).",
        grows: "The share of `async` is the share of reads that would have stalled a server without an engine. `sync` is 0 unless the engine is sendfile.",
        samples: reads,
    },
    Metric {
        name: "levity_reads_ahead_total",
        kind: Kind::Counter,
        unit: "reads",
        labels: &["outcome"],
        help: "Chunks read ahead while the previous one was sent to the client: used, refused because a queue or the memory was full, or unused because the client left or became slow.",
        grows: "Many `unused`: clients cancel downloads, and the reads are wasted. Many `refused`: the device or the memory (`disk.buffer_bytes`) is exhausted.",
        samples: |scrape, samples| {
            for outcome in Ahead::ALL {
                let count = scrape.sum(|worker| worker.reads_ahead[outcome as usize].get());
                samples.value(&[("outcome", outcome.label())], count);
            }
        },
    },
    Metric {
        name: "levity_body_copied_bytes_total",
        kind: Kind::Counter,
        unit: "bytes",
        labels: &[],
        help: "Body bytes copied within memory: those of a small file into the cache, once. Chunks of large files are not copied: they go to the socket from the buffer that they were read into.",
        grows: "Small files enter the cache. When it grows with every request for the same files, `disk.cache_bytes` is too small for them.",
        samples: |scrape, samples| {
            samples.value(&[], scrape.sum(|worker| worker.copied_bytes.get()));
        },
    },
    Metric {
        name: "levity_disk_direct_reads_total",
        kind: Kind::Counter,
        unit: "reads",
        labels: &["engine"],
        help: "Reads past the page cache: of large files that only one client has requested, or where `direct = \"always\"`. levity_disk_reads_total includes them.",
        grows: "Large files are requested once. When the same files are requested repeatedly by one connection each, `direct = \"never\"` lets them use the page cache.",
        samples: |scrape, samples| {
            scrape.each_engine(|engine, labels| samples.value(labels, engine.reads_direct));
        },
    },
    Metric {
        name: "levity_disk_writes_total",
        kind: Kind::Counter,
        unit: "writes",
        labels: &["engine"],
        help: "Writes to unnamed temporary files in `disk.spool`, which hold data that does not fit into memory.",
        grows: "Request bodies are larger than `limits.body_memory`. Each is written and read back: where memory is ample, raise the limit.",
        samples: |scrape, samples| {
            scrape.each_engine(|engine, labels| samples.value(labels, engine.writes));
        },
    },
    Metric {
        name: "levity_disk_written_bytes_total",
        kind: Kind::Counter,
        unit: "bytes",
        labels: &["engine"],
        help: "Bytes of the writes of levity_disk_writes_total.",
        grows: "As for levity_disk_writes_total. They go to the page cache first, and compete with cached files.",
        samples: |scrape, samples| {
            scrape.each_engine(|engine, labels| samples.value(labels, engine.bytes_written));
        },
    },
    Metric {
        name: "levity_sendfile_waits_total",
        kind: Kind::Counter,
        unit: "calls",
        labels: &[],
        help: "Calls of `sendfile` in which a loop slept, with the engines readahead and sendfile. With readahead the kernel had evicted pages between the read and the call. Detected by voluntary context switches: a wait for memory counts too, a wait for a processor does not.",
        grows: "Each is a loop stall. With readahead, memory is short or `disk.chunk` is large: use threads or io_uring, which keep what they have read. With sendfile it is the cost of that engine.",
        samples: |scrape, samples| {
            samples.value(&[], scrape.sum(|worker| worker.sendfile_waits.get()));
        },
    },
    Metric {
        name: "levity_disk_queue_depth",
        kind: Kind::Gauge,
        unit: "operations",
        labels: &["device"],
        help: "Operations that wait for a slot of the device.",
        grows: "The device is overloaded: when the queue is full, new requests get 503. Add memory or disks, or spread the content.",
        samples: |scrape, samples| scrape.each_device(samples, |device| device.queued as u64),
    },
    Metric {
        name: "levity_disk_in_flight",
        kind: Kind::Gauge,
        unit: "operations",
        labels: &["device"],
        help: "Operations in flight on the device.",
        grows: "It stays at levity_disk_depth while the disk is the limit. When levity_disk_queue_depth grows too, the disk is overloaded.",
        samples: |scrape, samples| scrape.each_device(samples, |device| device.in_flight as u64),
    },
    Metric {
        name: "levity_disk_depth",
        kind: Kind::Gauge,
        unit: "operations",
        labels: &["device"],
        help: "Operations that may be in flight on the device: `disk.depth`, or the number that was found to give the highest throughput.",
        grows: "With `disk.depth = \"auto\"` the throughput of the device rises with the number of operations in flight: a RAID, an SSD, or a network. \
                At 4, no operation has ever waited for the device.",
        samples: |scrape, samples| scrape.each_device(samples, |device| device.depth as u64),
    },
    Metric {
        name: "levity_disk_dead",
        kind: Kind::Gauge,
        unit: "0 or 1",
        labels: &["device"],
        help: "1 while the device has completed nothing for `disk.dead_after`, although operations are in flight.",
        grows: "New requests that need the device get 503; all others are served. See the kernel's log for a failing disk or a \
                network mount whose server is gone. A disk that takes longer than `disk.dead_after` to spin up needs a larger value.",
        samples: |scrape, samples| scrape.each_device(samples, |device| device.dead.into()),
    },
    Metric {
        name: "levity_disk_coalesced_total",
        kind: Kind::Counter,
        unit: "operations",
        labels: &[],
        help: "Operations that shared the result of one already in progress.",
        grows: "Many clients request the same cold file at the same time, and the disk reads it once. Nothing to do.",
        samples: |scrape, samples| {
            if let Some(disk) = &scrape.disk {
                samples.value(&[], disk.stats.coalesced);
            }
        },
    },
    Metric {
        name: "levity_disk_queue_seconds",
        kind: Kind::Histogram,
        unit: "seconds",
        labels: &["engine"],
        help: "Time that an operation waited before it was submitted to the device.",
        grows: "As levity_disk_queue_depth. When it is much larger than levity_disk_service_seconds, there are too few readers (`disk.depth`) or more \
                requests than the device can serve; `levity timing` shows which.",
        samples: |scrape, samples| {
            scrape.each_engine(|engine, labels| {
                samples.histogram(labels, &(&engine.queue_time).into())
            });
        },
    },
    Metric {
        name: "levity_disk_service_seconds",
        kind: Kind::Histogram,
        unit: "seconds",
        labels: &["engine"],
        help: "Time that an operation took in the kernel and on the device.",
        grows: "The device is slower: a failing disk, another program that uses it, a throttled cloud volume, a network mount. Compare with `iostat -x`.",
        samples: |scrape, samples| {
            scrape.each_engine(|engine, labels| {
                samples.histogram(labels, &(&engine.service_time).into())
            });
        },
    },
    Metric {
        name: "levity_loop_stall_seconds",
        kind: Kind::Histogram,
        unit: "seconds",
        labels: &["worker"],
        help: "Time that a worker slept inside one poll of one task, where it should never sleep; only stalls of at least 1 ms are recorded.",
        grows: "Something blocked the loop. Standard error names worker, step and connection of each poll over 50 ms. With the sendfile engine this is \
                the cost of the disk; choose another engine. With any other engine it is a bug, or memory was swapped out (see `pgmajfault`).",
        samples: |scrape, samples| {
            scrape.each_worker(|worker, label| {
                samples.histogram(label, &worker.polls.stall.figures())
            });
        },
    },
    Metric {
        name: "levity_loop_stall_max_seconds",
        kind: Kind::Gauge,
        unit: "seconds",
        labels: &["worker"],
        help: "The longest stall of a worker since the start.",
        grows: "As levity_loop_stall_seconds.",
        samples: |scrape, samples| {
            scrape.each_worker(|worker, label| {
                samples.value(label, seconds(&worker.polls.stall_max_ns))
            });
        },
    },
    Metric {
        name: "levity_loop_hog_seconds",
        kind: Kind::Histogram,
        unit: "seconds",
        labels: &["worker"],
        help: "Processor time of one poll of one task; only polls that used more than 5 ms are recorded.",
        grows: "One task keeps every other connection of its worker waiting. Standard error names the step; large listings are the first suspect.",
        samples: |scrape, samples| {
            scrape
                .each_worker(|worker, label| samples.histogram(label, &worker.polls.hog.figures()));
        },
    },
    Metric {
        name: "levity_loop_preempted_seconds",
        kind: Kind::Histogram,
        unit: "seconds",
        labels: &["worker"],
        help: "Time in which other threads had the processor during one poll that did not sleep; only times of at least 1 ms are recorded.",
        grows: "The machine is short of processors: other programs compete, a container's CPU quota is used up, or a hypervisor steals time. Not a fault of the server.",
        samples: |scrape, samples| {
            scrape.each_worker(|worker, label| {
                samples.histogram(label, &worker.polls.preempted.figures())
            });
        },
    },
    Metric {
        name: "levity_worker_run_queue_wait_seconds_total",
        kind: Kind::Counter,
        unit: "seconds",
        labels: &["worker"],
        help: "Time that a worker's thread was ready to run and waited for a processor, from /proc/self/task/*/schedstat; read about every second.",
        grows: "As levity_loop_preempted_seconds. A rate of 0.1 means that a tenth of the time was spent waiting for a processor.",
        samples: |scrape, samples| {
            scrape.each_worker(|worker, label| {
                samples.value(label, seconds(&worker.polls.run_queue_wait_ns))
            });
        },
    },
    Metric {
        name: "levity_watches",
        kind: Kind::Gauge,
        unit: "directories",
        labels: &[],
        help: "Directories that are watched, under `disk.watch`.",
        grows: "Files of more directories are requested. At 8192, or at the sysctl fs.inotify.max_user_watches, further directories use `disk.entry_ttl`.",
        samples: |scrape, samples| watch(scrape, samples, |watch| watch.watches),
    },
    Metric {
        name: "levity_watch_events_total",
        kind: Kind::Counter,
        unit: "events",
        labels: &[],
        help: "Changes in watched directories that the kernel reported.",
        grows: "Something writes beneath a root. After each event the files of one directory are checked again; keep logs and uploads out of the served directories.",
        samples: |scrape, samples| watch(scrape, samples, |watch| watch.events),
    },
    Metric {
        name: "levity_watch_overflows_total",
        kind: Kind::Counter,
        unit: "overflows",
        labels: &[],
        help: "Times that the kernel's event queue overflowed, and every watch was set up again.",
        grows: "Too many changes at once. Raise the sysctl fs.inotify.max_queued_events, or set `disk.watch` to off.",
        samples: |scrape, samples| watch(scrape, samples, |watch| watch.overflows),
    },
    Metric {
        name: "levity_watch_refused_total",
        kind: Kind::Counter,
        unit: "requests",
        labels: &[],
        help: "Directories that could not be watched: no watch was left, no permission to read, a symbolic link or a mount in the path.",
        grows: "Standard error says when no watch was left: raise the sysctl fs.inotify.max_user_watches. Links and mounts are not errors; their files use `disk.entry_ttl`.",
        samples: |scrape, samples| watch(scrape, samples, |watch| watch.refused),
    },
    Metric {
        name: "levity_absence_waits_total",
        kind: Kind::Counter,
        unit: "requests",
        labels: &[],
        help: "Requests that were delayed because their connection caused more disk lookups of absent names than `limits.absent_trips` allows.",
        grows: "A client tries random names: the 404s in the access log show which. A proxy in front whose connections carry many clients needs a higher limit.",
        samples: |scrape, samples| {
            samples.value(&[], scrape.sum(|worker| worker.absence_waits.get()));
        },
    },
    Metric {
        name: "levity_upstream_requests_total",
        kind: Kind::Counter,
        unit: "requests",
        labels: &["upstream", "backend", "outcome"],
        help: "Requests sent to a backend, by outcome: answered (a response header came), or the error type of RFC 9209. Each retry counts; an idle connection that turns out to be closed counts as connection_terminated or http_response_incomplete.",
        grows: "Load, when it is `answered`. `connection_refused`: nothing listens there. `connection_timeout` and `http_response_timeout`: the backend is overloaded or hangs; compare with levity_upstream_time_to_first_byte_seconds. `connection_terminated` without errors for clients: the backend closes idle connections sooner than `keep_alive_timeout`. `http_request_error`: clients that left or sent an invalid body.",
        samples: outcomes,
    },
    Metric {
        name: "levity_upstream_broken_answers_total",
        kind: Kind::Counter,
        unit: "answers",
        labels: &["upstream", "backend"],
        help: "Responses that a backend began and did not complete; the client's connection was closed early.",
        grows: "The application crashes or is restarted during a response, or sends nothing for `idle_timeout`. Its own log says why.",
        samples: |scrape, samples| scrape.backend_values(samples, |backend| backend.broken),
    },
    Metric {
        name: "levity_upstream_retries_total",
        kind: Kind::Counter,
        unit: "attempts",
        labels: &["upstream"],
        help: "Retries: attempts after the first one of a request.",
        grows: "Backends fail, and clients do not notice yet: levity_upstream_requests_total shows which and how.",
        samples: |scrape, samples| {
            scrape.each_upstream(|upstream, labels| samples.value(labels, upstream.retries));
        },
    },
    Metric {
        name: "levity_upstream_connections",
        kind: Kind::Gauge,
        unit: "connections",
        labels: &["upstream", "backend", "state"],
        help: "Connections to a backend now, of all workers: in_use (with a request, or being made) and idle.",
        grows: "`in_use` near `connections`: the backend is the bottleneck, or too few connections are allowed. The processor time of the backend shows which.",
        samples: |scrape, samples| {
            scrape.each_backend(|_, backend, [upstream, name]| {
                for (state, count) in [("in_use", backend.in_use), ("idle", backend.idle)] {
                    samples.value(&[upstream, name, ("state", state)], count);
                }
            });
        },
    },
    Metric {
        name: "levity_upstream_connections_made_total",
        kind: Kind::Counter,
        unit: "connections",
        labels: &["upstream", "backend"],
        help: "Connections made to a backend.",
        grows: "When it grows as fast as requests, no connection is reused. Raise `keep_alive`, and let the backend keep connections open.",
        samples: |scrape, samples| scrape.backend_values(samples, |backend| backend.made),
    },
    Metric {
        name: "levity_upstream_connections_reused_total",
        kind: Kind::Counter,
        unit: "requests",
        labels: &["upstream", "backend"],
        help: "Requests that reused a connection.",
        grows: "Load. Each of them has saved the time to connect.",
        samples: |scrape, samples| scrape.backend_values(samples, |backend| backend.reused),
    },
    Metric {
        name: "levity_upstream_queue",
        kind: Kind::Gauge,
        unit: "requests",
        labels: &["upstream"],
        help: "Requests in the queue for a connection now, of all workers.",
        grows: "Backends have as many requests as `connections` allows and cannot keep up: add backends, or raise `connections` if they can process more at a time.",
        samples: |scrape, samples| {
            scrape.each_upstream(|upstream, labels| samples.value(labels, upstream.queue));
        },
    },
    Metric {
        name: "levity_upstream_queue_refused_total",
        kind: Kind::Counter,
        unit: "requests",
        labels: &["upstream", "reason"],
        help: "Requests that got 503 because no connection was available: full (the queue was full) or timeout (none became free within `queue_timeout`).",
        grows: "The upstream is overloaded. A longer queue only makes more clients wait longer: add backends.",
        samples: |scrape, samples| {
            scrape.each_upstream(|figures, labels| {
                let refused = [
                    ("full", figures.queue_full),
                    ("timeout", figures.queue_timeouts),
                ];
                for (reason, count) in refused {
                    samples.value(&[labels[0], ("reason", reason)], count);
                }
            });
        },
    },
    Metric {
        name: "levity_upstream_time_to_first_byte_seconds",
        kind: Kind::Histogram,
        unit: "seconds",
        labels: &["upstream"],
        help: "From the moment that a request has a connection slot to the response header; connecting is included, waiting in the queue is not.",
        grows: "The application is slow. When levity_upstream_connections_made_total grows as fast, connecting may be slow: the access log distinguishes the two.",
        samples: |scrape, samples| {
            scrape
                .each_upstream(|upstream, labels| samples.histogram(labels, &upstream.first_byte));
        },
    },
    Metric {
        name: "levity_upstream_backend_up",
        kind: Kind::Gauge,
        unit: "1 or 0",
        labels: &["upstream", "backend", "by"],
        help: "Whether a backend may get requests, by source: requests (0 while it is taken out after failures, until a request succeeds) and checks (0 while they fail; 1 without checks). Both must be 1. For a host name that does not resolve both are 0, and the label is the name in the configuration.",
        grows: "It falls rather than grows: standard error and /status say why.",
        samples: backends_up,
    },
    Metric {
        name: "levity_upstream_sent_bytes_total",
        kind: Kind::Counter,
        unit: "bytes",
        labels: &["upstream", "backend"],
        help: "Bytes sent to a backend, headers and protocol framing included.",
        grows: "Uploads.",
        samples: |scrape, samples| scrape.backend_values(samples, |backend| backend.sent_bytes),
    },
    Metric {
        name: "levity_upstream_received_bytes_total",
        kind: Kind::Counter,
        unit: "bytes",
        labels: &["upstream", "backend"],
        help: "Bytes received from a backend, headers and protocol framing included.",
        grows: "Downloads through the application. Large files cost less with X-Sendfile.",
        samples: |scrape, samples| scrape.backend_values(samples, |backend| backend.received_bytes),
    },
    Metric {
        name: "levity_log_dropped_total",
        kind: Kind::Counter,
        unit: "lines",
        labels: &["log"],
        help: "Lines lost because the access log or standard error was not written fast enough, or could not be written.",
        grows: "The log's disk is full or slow, or nobody reads the pipe. Requests are not delayed by it.",
        samples: log_dropped,
    },
    Metric {
        name: "process_start_time_seconds",
        kind: Kind::Gauge,
        unit: "seconds since 1970-01-01 UTC",
        labels: &[],
        help: "When the process started.",
        grows: "The server was restarted, and every counter began again at 0.",
        samples: start_time,
    },
];
