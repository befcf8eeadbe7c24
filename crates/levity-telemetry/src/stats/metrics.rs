//! The table of all metrics: `/metrics` and `docs/metrics.md` are made from it.

use super::computed::*;
use super::metric::Figure::*;
use super::metric::Metric;
use super::text::Kind;
use super::worker::WorkerStats;

/// A list of metrics. The documentation comment of each is its text in the reference.
macro_rules! metrics {
    ($($(#[doc = $line:literal])+ $kind:ident($name:literal, $unit:literal, $figure:expr);)+) => {
        &[$(Metric {
            name: $name,
            kind: Kind::$kind,
            unit: $unit,
            text: concat!($($line, "\n"),+),
            figure: $figure,
        }),+]
    };
}

/// Every metric, in the order of `/metrics` and of the documentation.
pub(super) const METRICS: &[Metric] = metrics! {
    /// Requests finished, by status code; codes outside 100-999 count as "other".
    ///
    /// Load, when it is 2xx and 3xx. When 5xx grows, read the access log's `end` and `io_wait` of those requests: 503
    /// means a full disk queue or a disk that does not answer. A sudden rise of 400 or 408 means a broken or hostile
    /// client.
    Counter("levity_requests_total", "requests", Computed(&["code"], requests));
    /// Requests finished, by site and class of status: 1xx to 5xx (600 and above too), and other. A site is named by its first host, and
    /// `default` without one; those after the first 100 of the configuration count as `other`. Requests that no site
    /// got, such as invalid input, count in levity_requests_total only.
    ///
    /// As levity_requests_total; it shows which site it is.
    Counter("levity_site_requests_total", "requests", Computed(&["site", "class"], site_requests));
    /// Bytes of bodies sent, by site as in levity_site_requests_total.
    ///
    /// It shows which site uses the network: see levity_sent_bytes_total, which has the headers too.
    Counter("levity_site_sent_bytes_total", "bytes", Site(|site| site.bytes));
    /// From the first byte of a request to the last byte of its response, by site as in levity_site_requests_total.
    ///
    /// As levity_request_duration_seconds, whose bounds are closer; it shows which site it is.
    Histogram("levity_site_request_duration_seconds", "seconds", SiteHistogram(|site| &site.duration));
    /// Requests that a gate did not let through, by gate: access (`allow` and `deny`), signed_url, jwt, basic_auth and
    /// forward_auth. They got its response: mostly 401 or 403, but also 429 and 503 for too many guesses of a password, or a
    /// redirect and errors of an application that decides.
    ///
    /// `basic_auth` and `jwt` grow with each client that has not logged in yet. A sudden rise means that somebody guesses
    /// passwords or links, or that tokens, links or a list of networks are outdated; the access log shows who.
    Counter("levity_gate_denied_total", "requests", Computed(&["gate"], |scrape, samples| {
        scrape.by_variant(samples, "gate", WorkerStats::gates_denied);
    }));
    /// Responses by the source of their bytes: memory (own cache), cached (page cache, without an engine), disk (an
    /// engine), upstream (an application), - (none of these).
    ///
    /// When `disk` grows faster than `cached`, the requested content no longer fits in RAM: add memory, spread the
    /// content over machines, or check for a crawler.
    Counter("levity_responses_by_source_total", "responses", Computed(&["source"], |scrape, samples| {
        scrape.by_variant(samples, "source", WorkerStats::source);
    }));
    /// From the first byte of a request to the last byte of its response.
    ///
    /// It includes long downloads and slow clients. Compare with levity_time_to_first_byte_seconds before you suspect
    /// the server.
    Histogram("levity_request_duration_seconds", "seconds", TotalHistogram(|worker| &worker.duration));
    /// From the first byte of a request to the first byte of its response.
    ///
    /// When levity_io_wait_seconds grows with it, the disk is the cause; when levity_loop_stall_seconds or
    /// levity_loop_hog_seconds does, the server is; when neither does, the processor is.
    Histogram("levity_time_to_first_byte_seconds", "seconds", TotalHistogram(|worker| &worker.ttfb));
    /// Time in which a request waited for a disk engine.
    ///
    /// See whether levity_disk_queue_seconds (too many reads for the device) or levity_disk_service_seconds (a slow
    /// device) makes it up.
    Histogram("levity_io_wait_seconds", "seconds", TotalHistogram(|worker| &worker.io_wait));
    /// Time that a request spent in each step: accept (from the connection to its first request, only once per
    /// connection), parse, route, resolve, upstream (waiting for the header of an application's response, and for more
    /// of its body), respond, filter, send. Waiting for the disk and for the client is included: in resolve and send.
    /// Of the requests that a worker handles in one turn of its loop, the first is timed step by step, at most one in a
    /// millisecond, and with `log.timing` or `server_timing` all are. For the others a step counts that the request waited in, and the last;
    /// the time of a poll counts for the step in which it ends.
    ///
    /// `resolve`: files that are not open yet wait for the disk; compare with levity_disk_queue_seconds and
    /// levity_disk_service_seconds. `upstream`: applications are slow, or queues for them are long:
    /// levity_upstream_time_to_first_byte_seconds, levity_upstream_queue. `send`: the same for the content, or slow
    /// clients. `accept` and `parse`: clients that are slow to ask, or a busy loop. `respond`: large listings.
    /// `log.timing` and `levity timing` show which requests.
    Histogram("levity_step_duration_seconds", "seconds", Computed(&["step"], steps));
    /// Requests that a rate limit has hit, by its name and by what it did: refused with 429, slowed (the response), or
    /// reported (`report_only`: it let the request pass).
    ///
    /// The log names some of the clients, and each line of the JSON access log its limit. When it hits the wrong ones, raise
    /// `after` or the rate; see whether a proxy in front is in `server.trusted_proxies`, or its clients count as one.
    Counter("levity_limited_total", "requests", Computed(&["limit", "action"], limited));
    /// Clients, files and routes that have used some of what rate limits allow, and not got it back yet; an estimate if
    /// they are many.
    ///
    /// Each takes 16 bytes of `limits.rate_limit_bytes`. Beyond a quarter of that, levity_limit_evictions_total may begin to grow.
    Gauge("levity_limit_keys", "keys", Computed(&[], limit_keys));
    /// Clients, files and routes whose state rate limits have forgotten before its time, because `limits.rate_limit_bytes` was
    /// full.
    ///
    /// Limits let more pass than they should. Raise `limits.rate_limit_bytes`, or shorten the time in which `after` comes back.
    Counter("levity_limit_evictions_total", "keys", Computed(&[], limit_evictions));
    /// What requests hold of each resource that all clients share, by resource: files (open ones, in number), and in bytes
    /// listings (with archives), encoders, decoders, bodies (of requests, in memory) and spool (of requests, in files).
    ///
    /// Above half of levity_share_max each client may hold at most its share: levity_share_max / levity_share_holders. When it
    /// stays there, clients take content slowly, or hold it on purpose; the log names those that reach their share.
    Gauge("levity_share_used", "units", Computed(&["resource"], |scrape, samples| {
        scrape.by_resource(samples, |figure| figure.used);
    }));
    /// The maximum of levity_share_used.
    ///
    /// `files` follows from the limit of open files (LimitNOFILE=); `listings` is always 40 MiB, which with what the allocator
    /// loses is at most 64 MiB of the process; `encoders` and `decoders` are `limits.compression_memory`, `bodies` is
    /// `limits.bodies_memory`, `spool` is `limits.spool_bytes`.
    Gauge("levity_share_max", "units", Computed(&["resource"], |scrape, samples| {
        scrape.by_resource(samples, |figure| figure.max);
    }));
    /// Clients that hold some of a resource, or wait for it: IPv4 addresses, IPv6 networks of 64 bits, and connections of trusted proxies, of
    /// Unix sockets and of this machine.
    ///
    /// One that holds much is no danger to the others; see levity_share_refused_total.
    Gauge("levity_share_holders", "clients", Computed(&["resource"], |scrape, samples| {
        scrape.by_resource(samples, |figure| figure.holders);
    }));
    /// Requests that did not get what they needed of a resource, although they waited for it where they can. They got 503, a
    /// response without compression, a listing that is not sorted, or a file for their body.
    ///
    /// A few clients at their share: see the log. Many: raise the bound (levity_share_max).
    Counter("levity_share_refused_total", "requests", Computed(&["resource"], |scrape, samples| {
        scrape.by_resource(samples, |figure| figure.refused);
    }));
    /// Requests that were ended because others waited for what they held, and their clients had moved no byte for 5 s.
    ///
    /// Somebody holds as much as possible without taking it, or very many clients are slow: raise the bound.
    Counter("levity_share_reclaimed_total", "requests", Computed(&["resource"], |scrape, samples| {
        scrape.by_resource(samples, |figure| figure.reclaimed);
    }));
    /// Client connections now, by state.
    ///
    /// When it grows and levity_requests_total does not, clients hold idle or slow connections: lower
    /// `limits.idle_timeout` or `limits.connections`, and compare with the descriptor limit.
    Gauge("levity_connections", "connections", Computed(&["state"], connections));
    /// Client connections accepted.
    ///
    /// When it grows as fast as levity_requests_total, clients or a proxy in front do not reuse connections.
    Counter("levity_connections_accepted_total", "connections", Total(|worker| &worker.accepted));
    /// Client connections ended, by reason: complete, client_abort, timeout, error.
    ///
    /// `client_abort` with a high time to first byte: people give up waiting. `timeout`: slow or idle clients, normal
    /// at a low rate. `error`: a file that shrank or a disk that failed during a transfer; see the access log.
    Counter("levity_connection_ends_total", "connections", Computed(&["end"], |scrape, samples| {
        scrape.by_variant(samples, "end", WorkerStats::ended);
    }));
    /// Handshakes of TLS, by result: full, resumed (the client was here before), failed, timed_out.
    ///
    /// A full one takes a signature, a resumed one does not. `failed`: old clients, scanners, and clients that do not trust
    /// the certificate; the log says why, once per second and event loop at most. `timed_out`: clients that have not finished
    /// within `limits.header_timeout`, or have sent nothing, as browsers do that connect in advance.
    Counter("levity_tls_handshakes_total", "handshakes", Computed(&["result"], |scrape, samples| {
        scrape.by_variant(samples, "result", WorkerStats::handshakes);
    }));
    /// Connections over HTTP/2 that the server has ended, by the error code that the client was sent (RFC 9113, 7).
    ///
    /// `enhance_your_calm`: a client sends more frames of no use than any needs; the access log has its address if it has made
    /// requests. The others: broken clients and scanners.
    Counter("levity_http2_failures_total", "connections", Computed(&["code"], |scrape, samples| {
        scrape.by_variant(samples, "code", WorkerStats::http2_failures);
    }));
    /// Seconds until a certificate ends, negative after that; 0 where there is none yet. By its first name, and by source: files,
    /// internal (the authority of this machine) and acme. Of several for one name it is the one that ends first.
    ///
    /// It grows when a certificate is renewed, and falls otherwise: an alarm at ten days leaves time to act. `files`: whatever
    /// renews them has failed, or the log says why the new ones are not used. `acme`: `/status` and `levity certs` have the
    /// last error. `internal`: the server renews it after half of its life.
    Gauge("levity_tls_certificate_seconds", "seconds", Computed(&["name", "source"], certificates));
    /// Certificates that clients have asked for, and that were got on demand (`ask` in `[acme]`).
    ///
    /// Names that `ask` allows. If it grows without end, somebody invents names: `ask` has to refuse them.
    Gauge("levity_tls_on_demand_certificates", "certificates", Computed(&[], on_demand_certificates));
    /// Idle connections that were closed for new ones, because `limits.connections`, descriptors or memory were exhausted.
    ///
    /// Raise the descriptor limit (LimitNOFILE=), or lower `limits.idle_timeout`. Clients open new connections instead.
    Counter("levity_idle_given_up_total", "connections", Total(|worker| &worker.idle_given_up));
    /// Times that a worker stopped accepting connections because descriptors or memory were exhausted, and no connection was
    /// idle.
    ///
    /// Raise the descriptor limit (LimitNOFILE=), or lower `limits.idle_timeout`. It should stay 0.
    Counter("levity_accept_pauses_total", "pauses", Total(|worker| &worker.accept_pauses));
    /// Bytes written to client sockets, headers included.
    ///
    /// Throughput. Near the speed of the network card, the network is the limit, not the disk.
    Counter("levity_sent_bytes_total", "bytes", Total(|worker| &worker.sent_bytes));
    /// Reads: cached (from the page cache, by the loop or by reference; always under the name of `disk.engine`),
    /// async (by the engine), sync (by the loop, which may wait: only the sendfile engine).
    ///
    /// The share of `async` is the share of reads that would have stalled a server without an engine. `sync` is 0
    /// unless the engine is sendfile.
    Counter("levity_disk_reads_total", "reads", Computed(&["engine", "how"], reads));
    /// Chunks read ahead while the previous one was sent to the client: used, refused because a queue or the memory
    /// was full, or unused because the client left or became slow.
    ///
    /// Many `unused`: clients cancel downloads, and the reads are wasted. Many `refused`: the device or the memory
    /// (`disk.buffer_bytes`) is exhausted.
    Counter("levity_reads_ahead_total", "reads", Computed(&["outcome"], |scrape, samples| {
        scrape.by_variant(samples, "outcome", WorkerStats::reads_ahead);
    }));
    /// Body bytes copied within memory: those of a file into the cache, once. Chunks of large files are not
    /// copied: they go to the socket from the buffer that they were read into.
    ///
    /// Small files enter the cache. When it grows with every request for the same files, `disk.cache_bytes` is too
    /// small for them.
    Counter("levity_body_copied_bytes_total", "bytes", Total(|worker| &worker.copied_bytes));
    /// Body bytes that went from the socket of a backend to that of a client without a copy into our memory (`splice`):
    /// HTTP over TCP on both sides, without chunks and body filters, and at least 128 KiB to come.
    ///
    /// It grows with large responses. None at all: pipes are refused (`/proc/sys/fs/pipe-user-pages-soft`, open files).
    Counter("levity_body_spliced_bytes_total", "bytes", Total(|worker| &worker.spliced_bytes));
    /// Body bytes that the kernel sent from memory without a copy: of cached bodies from 16 KiB on, of larger files in
    /// the page cache, and of whole cold files from 64 KiB to 1 MiB that were read into a pipe.
    ///
    /// It grows with requests over TCP for such files. None at all: the kernel or a sandbox refuses `vmsplice` and `sendfile`, or the clients are slow.
    Counter("levity_body_zero_copy_bytes_total", "bytes", Total(|worker| &worker.zero_copy_bytes));
    /// Reads past the page cache: of large files that only one client has requested, of any file that nobody has
    /// requested before while memory is short, or where `direct = "always"`.
    /// levity_disk_reads_total includes them.
    ///
    /// Large files are requested once. When the same files are requested repeatedly by one connection each, `direct =
    /// "never"` lets them use the page cache.
    Counter("levity_disk_direct_reads_total", "reads", Engine(|engine| engine.reads_direct));
    /// Writes to files, appends included: to unnamed temporary files in `disk.spool`, which hold data that does not
    /// fit into memory.
    ///
    /// Request bodies are larger than `limits.body_memory`. Each is written and read back: where memory is ample,
    /// raise the limit.
    Counter("levity_disk_writes_total", "writes", Engine(|engine| engine.writes));
    /// Bytes of the writes of levity_disk_writes_total.
    ///
    /// As for levity_disk_writes_total. They go to the page cache first, and compete with cached files.
    Counter("levity_disk_written_bytes_total", "bytes", Engine(|engine| engine.bytes_written));
    /// Calls that made a file or a folder durable (`fdatasync`, `fsync`). Files in `disk.spool` need none.
    ///
    /// Each waits for the device, and holds back other writes there. When it grows faster than
    /// levity_disk_syncs_shared_total and levity_disk_queue_depth grows too, use a device that syncs faster: an SSD,
    /// or a controller whose cache has a battery.
    Counter("levity_disk_syncs_total", "calls", Engine(|engine| engine.syncs));
    /// Syncs that were answered by the call for another one of the same file. levity_disk_coalesced_total includes them.
    ///
    /// Syncs are requested faster than the device makes them, and one call serves many. Nothing to do, unless
    /// levity_disk_service_seconds grows too: then the device is too slow for them.
    Counter("levity_disk_syncs_shared_total", "syncs", Computed(&[], syncs_shared));
    /// Calls of `sendfile` in which a loop slept, with the engines readahead and sendfile. With readahead the kernel
    /// had evicted pages between the read and the call. Detected by voluntary context switches: a wait for memory
    /// counts too, a wait for a processor does not.
    ///
    /// Each is a loop stall. With readahead, memory is short or `disk.chunk` is large: use threads or io_uring, which
    /// keep what they have read. With sendfile it is the cost of that engine.
    Counter("levity_sendfile_waits_total", "calls", Total(|worker| &worker.sendfile_waits));
    /// Operations that wait for a slot of the device.
    ///
    /// The device is overloaded: when the queue is full, new requests get 503. Add memory or disks, or spread the
    /// content.
    Gauge("levity_disk_queue_depth", "operations", Device(|device| device.queued as u64));
    /// Operations in flight on the device.
    ///
    /// It stays at levity_disk_depth while the disk is the limit. When levity_disk_queue_depth grows too, the disk is
    /// overloaded.
    Gauge("levity_disk_in_flight", "operations", Device(|device| device.in_flight as u64));
    /// Operations that may be in flight on the device: `disk.depth`, or the number that was found to give the highest
    /// throughput. It is at most 8 while event loops and operations wait for the processor, and 2 while the CPU quota is
    /// used up.
    ///
    /// With `disk.depth = "auto"` the throughput of the device rises with the number of operations in flight: a RAID,
    /// an SSD, or a network. 8 is also the start, before operations have waited for the device.
    Gauge("levity_disk_depth", "operations", Device(|device| device.depth as u64));
    /// 1 while the device has completed nothing for `disk.dead_after`, although operations are in flight.
    ///
    /// New requests that need the device get 503; all others are served. See the kernel's log for a failing disk or a
    /// network mount whose server is gone. A disk that takes longer than `disk.dead_after` to spin up needs a larger
    /// value.
    Gauge("levity_disk_dead", "0 or 1", Device(|device| device.dead.into()));
    /// Operations that shared the result of one already queued or in progress.
    ///
    /// Many clients request the same cold file at the same time, and the disk reads it once. Nothing to do.
    Counter("levity_disk_coalesced_total", "operations", Computed(&[], coalesced));
    /// Time that an operation waited before it was submitted to the device.
    ///
    /// As levity_disk_queue_depth. When it is much larger than levity_disk_service_seconds, there are too few readers
    /// (`disk.depth`) or more requests than the device can serve; `levity timing` shows which.
    Histogram("levity_disk_queue_seconds", "seconds", EngineHistogram(|engine| &engine.queue_time));
    /// Time that an operation took in the kernel and on the device.
    ///
    /// The device is slower: a failing disk, another program that uses it, a throttled cloud volume, a network mount.
    /// Compare with `iostat -x`.
    Histogram("levity_disk_service_seconds", "seconds", EngineHistogram(|engine| &engine.service_time));
    /// Bodies of responses that passed through filters, completely or in part: compressed, or with text replaced.
    ///
    /// Load. The threads of levity_compute_threads do the work.
    Counter("levity_filtered_bodies_total", "bodies", Total(|worker| &worker.filtered_bodies));
    /// Bytes of bodies that went into filters.
    ///
    /// Load. Compare with levity_filter_output_bytes_total: where compression saves little, narrow `compress_types`.
    Counter("levity_filter_input_bytes_total", "bytes", Total(|worker| &worker.filter_input_bytes));
    /// Bytes of bodies that came out of filters.
    ///
    /// As levity_filter_input_bytes_total.
    Counter("levity_filter_output_bytes_total", "bytes", Total(|worker| &worker.filter_output_bytes));
    /// Responses that could be compressed, for clients that accept a coding, by that coding and outcome: usual (at the
    /// level of the configuration), fast (at a lower level), and two that were sent without compression: pool_busy (jobs
    /// would wait in the pool for more than 100 ms) and memory_full (encoders use all of `limits.compression_memory`).
    ///
    /// `usual` is load. `pool_busy`: the processors do not suffice. Lower the levels of `compress_codings`, or serve
    /// precompressed files (`precompressed`). `memory_full`: raise `limits.compression_memory`; many clients may be
    /// slow. `fast` has either cause: levity_compute_queue_seconds and levity_compression_memory_bytes show which.
    Counter("levity_compressions_total", "responses", Computed(&["coding", "outcome"], compressions));
    /// Memory reserved at present, by coder: encoder (they compress a response) and decoder (they decode one, for
    /// `substitute`).
    ///
    /// Near levity_compression_memory_limit_bytes, responses are compressed less, then not at all: see
    /// levity_compressions_total. Responses that would have to be decoded fail, and standard error names them.
    Gauge("levity_compression_memory_bytes", "bytes", Computed(&["coder"], coder_bytes));
    /// The maximum of levity_compression_memory_bytes, for each coder: `limits.compression_memory`.
    ///
    /// The configuration was changed.
    Gauge("levity_compression_memory_limit_bytes", "bytes", Computed(&[], coder_bytes_max));
    /// Kept variants: compressed files, deltas and dictionaries in the folder `disk.variants`. Precompressed files
    /// beside their originals do not count.
    ///
    /// Files became popular. It falls when the store is full, and when files disappear from its folder. Those of files
    /// that changed stay until they are displaced.
    Gauge("levity_variants", "files", Variants(|variants| variants.kept as u64));
    /// The size of these files.
    ///
    /// Near levity_variants_limit_bytes, a new kept variant displaces those that were not used for the longest time. If
    /// levity_compute_run_seconds of class `idle` keeps growing meanwhile, popular files displace each other: raise
    /// `disk.variants_bytes`.
    Gauge("levity_variants_bytes", "bytes", Variants(|variants| variants.bytes));
    /// The maximum of levity_variants_bytes: `disk.variants_bytes`.
    ///
    /// The configuration was changed.
    Gauge("levity_variants_limit_bytes", "bytes", Variants(|variants| variants.bytes_max));
    /// Threads that compute off the event loops, by class: response (a client waits) and idle (nobody waits; they run
    /// while a processor is idle).
    ///
    /// It is the number of processors of each class, and does not change.
    Gauge("levity_compute_threads", "threads", Compute(|class| class.threads as u64));
    /// Jobs that wait for a thread that computes, by class as in levity_compute_threads. A job of a response is one piece
    /// of its body.
    ///
    /// `response`: the filters of bodies need more processor time than there is; see levity_compressions_total. `idle`:
    /// nothing to do, it waits for an idle processor.
    Gauge("levity_compute_queue_depth", "jobs", Compute(|class| class.queued as u64));
    /// Jobs dropped before they started, because nobody waited for them any more.
    ///
    /// Clients leave while they wait: see levity_compute_queue_seconds.
    Counter("levity_compute_canceled_total", "jobs", Compute(|class| class.canceled));
    /// Jobs refused because the queue of the class was full. A job is submitted again after 1 to 100 ms, depending on
    /// the work in the queue, and may be refused many times.
    ///
    /// Far more clients wait for filters than the processors can serve: lower the levels of `compress_codings`, or add
    /// processors.
    Counter("levity_compute_refused_total", "jobs", Compute(|class| class.full));
    /// Time that a job waited for a thread that computes.
    ///
    /// As levity_compute_queue_depth. Threads that compute for responses yield to event loops: a wait without a long
    /// queue means that loops or other programs use the processors.
    Histogram("levity_compute_queue_seconds", "seconds", ComputeHistogram(|class| &class.queue_time));
    /// Time that a job ran, waits for a processor included.
    ///
    /// Divided by levity_compute_threads, the rate of its sum is the share of time in which the threads are busy. Jobs
    /// of more than a few milliseconds come from high levels of `compress_codings`, or from too few processors.
    Histogram("levity_compute_run_seconds", "seconds", ComputeHistogram(|class| &class.run_time));
    /// Time that a worker slept inside one poll of one task, where it should never sleep; only stalls of at least 1
    /// ms are recorded. The wait for a processor after the sleep counts as levity_loop_preempted_seconds.
    ///
    /// Something blocked the loop. Standard error names worker, step and connection of each poll over 50 ms. With the
    /// sendfile engine this is the cost of the disk; choose another engine. With any other engine, see whether
    /// levity_loop_preempted_seconds grows with it: where processors are missing, a loop may wait for a lock, of the
    /// server or of the kernel, whose owner has none. Otherwise it is a bug, or memory was swapped out (see `pgmajfault`).
    Histogram("levity_loop_stall_seconds", "seconds", WorkerHistogram(|worker| &worker.polls.stall));
    /// The longest stall of a worker since the start.
    ///
    /// As levity_loop_stall_seconds.
    Gauge("levity_loop_stall_max_seconds", "seconds", WorkerTime(|worker| worker.polls.stall_max()));
    /// Processor time of one poll of one task; only polls that used 1 ms or more are recorded.
    ///
    /// One task keeps every other connection of its worker waiting. Standard error names the step; large listings are
    /// the first suspect.
    Histogram("levity_loop_hog_seconds", "seconds", WorkerHistogram(|worker| &worker.polls.hog));
    /// Time in which other threads had the processor during one poll, while the worker did not sleep; only times of at
    /// least 1 ms are recorded.
    ///
    /// The machine is short of processors: other programs compete, a container's CPU quota is used up, or a
    /// hypervisor steals time. Not a fault of the server.
    Histogram("levity_loop_preempted_seconds", "seconds", WorkerHistogram(|worker| &worker.polls.preempted));
    /// Time that a worker's thread was ready to run and waited for a processor, from /proc/self/task/*/schedstat;
    /// read about every second. Includes the time in which a CPU quota throttles the control group.
    ///
    /// As levity_loop_preempted_seconds. A rate of 0.1 means that a tenth of the time was spent waiting for a
    /// processor.
    Counter("levity_worker_run_queue_wait_seconds_total", "seconds", WorkerTime(|worker| worker.polls.run_queue_wait()));
    /// Directories that are watched, under `disk.watch`.
    ///
    /// Files of more directories are requested. At 8192, or at the sysctl fs.inotify.max_user_watches, further
    /// directories use `disk.entry_ttl`.
    Gauge("levity_watches", "directories", Watch(|watch| watch.watches));
    /// Changes in watched directories that the kernel reported.
    ///
    /// Something writes beneath a root. After each event the files of one directory are checked again; keep logs and
    /// uploads out of the served directories.
    Counter("levity_watch_events_total", "events", Watch(|watch| watch.events));
    /// Times that the kernel's event queue overflowed, and every watch was set up again.
    ///
    /// Too many changes at once. Raise the sysctl fs.inotify.max_queued_events, or set `disk.watch` to off.
    Counter("levity_watch_overflows_total", "overflows", Watch(|watch| watch.overflows));
    /// Directories that could not be watched: no watch was left, no permission to read, a symbolic link or a mount in
    /// the path.
    ///
    /// Standard error says when no watch was left: raise the sysctl fs.inotify.max_user_watches. Links and mounts are
    /// not errors; their files use `disk.entry_ttl`.
    Counter("levity_watch_refused_total", "requests", Watch(|watch| watch.refused));
    /// Requests to write beneath a root (`upload`), by result: created, replaced, removed; part: of a file, or a
    /// question for it, and the rest is to follow; refused: by a condition, a limit or what is there; full: the disk or the quota; failed: the disk; aborted:
    /// the client left or was too slow.
    ///
    /// `full` needs room: remove files, or raise `quota_bytes`. `failed`: the log says what the disk answered. `aborted`
    /// and `part` belong together where clients continue after interruptions.
    Counter("levity_uploads_total", "requests", Computed(&["result"], |scrape, samples| {
        scrape.by_variant(samples, "result", WorkerStats::uploads);
    }));
    /// Bytes of files that clients have sent and that were written, whether the files became complete or not.
    ///
    /// It grows with uploads.
    Counter("levity_uploaded_bytes_total", "bytes", Total(|worker| &worker.uploaded_bytes));
    /// Whether the store of mailboxes works: 0 while a Redis server cannot be reached. 1 for messages in memory.
    ///
    /// It falls rather than grows: publishers and receivers get 503, and standard error says why.
    Gauge("levity_mailbox_store_up", "1 or 0", Mailboxes(|mailboxes| u64::from(!mailboxes.is_down)));
    /// Boxes of mailboxes that exist.
    ///
    /// A box ends by itself when nobody has used it for `idle` of its set. Beyond `boxes` of a set, new ones are refused.
    Gauge("levity_mailbox_boxes", "boxes", Mailboxes(|mailboxes| mailboxes.boxes as u64));
    /// Receivers of mailboxes that are connected.
    ///
    /// Load. Each has a connection: compare with `limits.connections`.
    Gauge("levity_mailbox_receivers", "receivers", Mailboxes(|mailboxes| mailboxes.receivers as u64));
    /// Memory of messages in mailboxes, those on their way to receivers included.
    ///
    /// Near `limits.mailbox_memory`, messages are refused: raise it, or lower `messages`, `bytes` or `idle` of sets.
    Gauge("levity_mailbox_bytes", "bytes", Mailboxes(|mailboxes| mailboxes.bytes as u64));
    /// Messages for boxes, by result: published; duplicate (the box had a message with the same Mailbox-Id); failed (the store
    /// did not take it).
    ///
    /// Load, when it is `published`. `failed`: standard error and levity_mailbox_refused_total say why.
    Counter("levity_mailbox_messages_total", "messages", MailboxesBy(&["result"], |mailboxes| &mailboxes.messages));
    /// Messages that boxes have dropped, by reason: bound (`messages` or `bytes` of the set), expired (their time was over).
    ///
    /// `bound`: receivers that are away for long or read slowly find a gap. Raise the bounds.
    Counter("levity_mailbox_dropped_total", "messages", MailboxesBy(&["reason"], |mailboxes| &mailboxes.dropped));
    /// Messages and receivers that were refused, by reason: the key of the limit; publisher or receiver (who may not),
    /// store_full, or store (it does not answer).
    ///
    /// The limit is too low, or somebody floods it: the access log shows whom.
    Counter("levity_mailbox_refused_total", "requests", MailboxesBy(&["reason"], |mailboxes| &mailboxes.refused));
    /// Boxes that were removed because nobody had used them for `idle` of their set.
    ///
    /// Normal where names are used once. Clients that come back too late find their box gone: raise `idle`.
    Counter("levity_mailbox_idle_boxes_total", "boxes", Mailboxes(|mailboxes| mailboxes.idle_boxes));
    /// Event streams of applications that `resume` keeps, with those that have ended less than `for` ago.
    ///
    /// Load.
    Gauge("levity_resume_streams", "streams", Mailboxes(|mailboxes| mailboxes.resume.streams as u64));
    /// Memory of the events that `resume` keeps.
    ///
    /// Beyond three quarters of `limits.resume_memory` no more streams are kept: raise it, or lower `bytes` or `for` of `resume`.
    Gauge("levity_resume_bytes", "bytes", Mailboxes(|mailboxes| mailboxes.resume.bytes as u64));
    /// Answers that were not kept although the request asked for it, by reason: streams_per_client (the request got 429),
    /// streams, resume_memory, unsent_request (the application answered before it had the whole request), no_events (the answer
    /// was no event stream, or a compressed one), store (the event loop of the stream did not answer).
    ///
    /// `no_events` is normal. Otherwise clients cannot come back for what they miss: the reason says which limit is too low.
    Counter("levity_resume_refused_total", "answers", MailboxesBy(&["reason"], |mailboxes| &mailboxes.resume.refused));
    /// Requests that were delayed because their connection caused more disk lookups of absent names than
    /// `limits.absent_trips` allows.
    ///
    /// A client tries random names: the 404s in the access log show which. A proxy in front whose connections carry
    /// many clients needs a higher limit.
    Counter("levity_absence_waits_total", "requests", Total(|worker| &worker.absence_waits));
    /// Requests sent to a backend, by outcome: answered (a response header came), or the error type of RFC 9209. Each
    /// retry counts; an idle connection that turns out to be closed counts as connection_terminated or
    /// http_response_incomplete.
    ///
    /// Load, when it is `answered`. `connection_refused`: nothing listens there. `connection_timeout` and
    /// `http_response_timeout`: the backend is overloaded or hangs; compare with
    /// levity_upstream_time_to_first_byte_seconds. `connection_terminated` without errors for clients: the backend
    /// closes idle connections sooner than `keep_alive_timeout`. `http_request_error`: clients that left or sent an
    /// invalid body. `tls_certificate_error`: the certificate of the backend is not trusted, is over, or is for another
    /// name; see `[upstream.tls]`. `tls_alert_received`: the backend refuses the handshake. `tls_protocol_error`: it does
    /// not speak TLS, or no version or protocol of it that both have; with h2 also if it misses the certificate of this
    /// server.
    Counter("levity_upstream_requests_total", "requests", Computed(&["upstream", "backend", "outcome"], outcomes));
    /// Responses that a backend began and did not complete; the client's connection was closed early.
    ///
    /// The application crashes or is restarted during a response, or sends nothing for `idle_timeout`. Its own log
    /// says why.
    Counter("levity_upstream_broken_answers_total", "answers", Backend(|backend| backend.broken));
    /// Retries: attempts after the first one of a request.
    ///
    /// Backends fail, and clients do not notice yet: levity_upstream_requests_total shows which and how.
    Counter("levity_upstream_retries_total", "attempts", Upstream(|upstream| upstream.retries));
    /// Connections to a backend now, of all workers: in_use (with a request, or being made) and idle. With `protocol =
    /// "h2"`, in_use counts requests, each of which has a stream of a connection.
    ///
    /// `in_use` near `connections`: the backend is the bottleneck, or too few connections are allowed. The processor
    /// time of the backend shows which.
    Gauge("levity_upstream_connections", "connections", Computed(&["upstream", "backend", "state"], backend_connections));
    /// Connections made to a backend.
    ///
    /// When it grows as fast as requests, no connection is reused. Raise `keep_alive`, and let the backend keep
    /// connections open.
    Counter("levity_upstream_connections_made_total", "connections", Backend(|backend| backend.made));
    /// Requests that reused a connection.
    ///
    /// Load. Each of them has saved the time to connect.
    Counter("levity_upstream_connections_reused_total", "requests", Backend(|backend| backend.reused));
    /// Requests in the queue for a connection now, of all workers.
    ///
    /// Backends have as many requests as `connections` allows and cannot keep up: add backends, or raise
    /// `connections` if they can process more at a time.
    Gauge("levity_upstream_queue", "requests", Upstream(|upstream| upstream.queue));
    /// Requests that got 503 because no connection was available: full (the queue was full) or timeout (none became
    /// free within `queue_timeout`).
    ///
    /// The upstream is overloaded. A longer queue only makes more clients wait longer: add backends.
    Counter("levity_upstream_queue_refused_total", "requests", Computed(&["upstream", "reason"], queue_refused));
    /// From the moment that a request has a connection slot to the response header; connecting is included, waiting
    /// in the queue is not.
    ///
    /// The application is slow. When levity_upstream_connections_made_total grows as fast, connecting may be slow:
    /// the access log distinguishes the two.
    Histogram("levity_upstream_time_to_first_byte_seconds", "seconds", UpstreamHistogram(|upstream| {
        &upstream.first_byte
    }));
    /// Whether a backend may get requests, by source: requests (0 while it is taken out after failures, until a
    /// request succeeds) and checks (0 while they fail; 1 without checks). Both must be 1. For a host name that does
    /// not resolve both are 0, and the label is the name in the configuration.
    ///
    /// It falls rather than grows: standard error and /status say why.
    Gauge("levity_upstream_backend_up", "1 or 0", Computed(&["upstream", "backend", "by"], backends_up));
    /// Bytes sent to a backend, headers and protocol framing included; with `protocol = "h2"` bytes of bodies only.
    ///
    /// Uploads.
    Counter("levity_upstream_sent_bytes_total", "bytes", Backend(|backend| backend.sent_bytes));
    /// Bytes received from a backend, headers and protocol framing included; with `protocol = "h2"` bytes of bodies only.
    ///
    /// Downloads through the application. Large files cost less with X-Sendfile.
    Counter("levity_upstream_received_bytes_total", "bytes", Backend(|backend| backend.received_bytes));
    /// Lines lost because the access log or standard error was not written fast enough, or could not be written.
    ///
    /// The log's disk is full or slow, or nobody reads the pipe. Requests are not delayed by it.
    Counter("levity_log_dropped_total", "lines", Computed(&["log"], log_dropped));
    /// When the process started.
    ///
    /// The server was restarted, and every counter began again at 0.
    Gauge("process_start_time_seconds", "seconds since 1970-01-01 UTC", Computed(&[], start_time));
};
