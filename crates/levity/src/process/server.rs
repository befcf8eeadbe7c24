//! The server: all that runs, its start, and the change to another configuration.
//!
//! Everything that may block happens here, before the event loops start or beside them.

mod beside;
pub mod control;
mod reloading;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::SystemTime;

use levity_compute::Pool;
use levity_config::address::Address;
use levity_config::in_unit::remedy;
use levity_config::{Config, Hidden};
use levity_disk::{Disk, Root, Watcher, patiently};
use levity_net::{Bound, Inherited, ListeningSocket};
use levity_telemetry::diagnostics;
use levity_telemetry::mounts::Mounts;
use levity_telemetry::outage;
use levity_telemetry::stall::Watchdog;
use levity_telemetry::stats::{
    DiskFigures, MailboxFigures, Sources, Stats, VariantFigures, WorkerStats,
};
use tokio::sync::mpsc;

use crate::compile::{self, ServiceParts};
use crate::credentials::guesses::Guesses;
use crate::files::cache::SharedCache;
use crate::loop_core::compute::Compute;
use crate::loop_core::zero_copy::ZeroCopy;
use crate::mailboxes;
use crate::mailboxes::set::SharedMailboxes;
use crate::mailboxes::start::StoreThread;
use crate::process::admin;
use crate::process::confinement::Confinement;
use crate::process::descriptors::{Descriptors, widen_descriptor_table};
use crate::process::log_writers::LogWriters;
use crate::process::plan::Plan;
use crate::process::reload::bind;
use crate::process::service_manager;
use crate::process::start_report::{Introduction, log_some};
use crate::process::system_limits::{lacking, with_help};
use crate::route::Service;
use crate::serve::event_loop::{self, Message, Parts};
use crate::shares::{Bounds, Shares};
use crate::status::heartbeat::{self, Heartbeat};
use crate::status::{self, CurrentTls, Status, Upstreams};
use crate::stores::variants::store::VariantStore;
use crate::tls::parts::TlsParts;
use crate::upstream::check::{self, Checks};
use crate::worker::WorkerParts;

/// The maximum number of jobs of one class that wait for a thread that computes. A connection has one at a time.
const COMPUTE_QUEUE_MAX: usize = 4096;

/// An error with what helps, without values of variables.
fn in_words(error: &io::Error, hidden: &Hidden) -> String {
    hidden.hide(&with_help(error)).into_owned()
}

struct Server {
    plan: Plan,
    service: Arc<Service>,
    parts: ServiceParts,
    disk: Arc<Disk>,
    watcher: Option<Arc<Watcher>>,
    status: Arc<Status>,
    workers: Vec<mpsc::UnboundedSender<Message>>,
    /// Closes when the last worker has ended.
    ended: mpsc::Receiver<io::Result<()>>,
    /// The bound addresses; their sockets belong to the workers.
    listening: Vec<Bound>,
    logs: LogWriters,
    admin: admin::Listeners,
    inherited: Arc<Inherited>,
    confinement: Arc<Confinement>,
    checks: Checks,
    mailbox_store: Option<StoreThread>,
    _watchdog: Watchdog,
}

fn worker_stats(workers: usize) -> Vec<Arc<WorkerStats>> {
    let stats = (0..workers).map(WorkerStats::new);
    stats.map(Arc::new).collect()
}

fn shared_cache(
    settings: &levity_config::Disk,
    descriptors: &Descriptors,
    workers: usize,
) -> Arc<SharedCache> {
    let (bytes_max, files_max) = (settings.cache_bytes, descriptors.cached_max);
    Arc::new(SharedCache::new(bytes_max, files_max, workers))
}

/// Starts the store of mailboxes.
fn start_mailboxes(shared: &SharedParts) -> io::Result<mailboxes::start::Started> {
    let store = &shared.service.config.mailbox_store;
    let budget = shared.parts.mailboxes.budget.clone();
    mailboxes::start::start(store, shared.workers, budget)
}

fn start_watchdog(worker_stats: &[Arc<WorkerStats>]) -> io::Result<Watchdog> {
    let polls = worker_stats.iter().map(|stats| stats.polls.clone());
    let started = Watchdog::start(polls.collect(), diagnostics::log);
    started.map_err(lacking("no thread for the watch over event loops"))
}

fn bind_all(config: &Config, workers: usize, inherited: &Inherited) -> io::Result<Vec<Bound>> {
    let listen = config.listen.iter();
    listen
        .map(|listen| bind(&listen.address, workers, inherited))
        .collect()
}

fn start_disk(settings: &levity_config::Disk, descriptors: &Descriptors) -> io::Result<Arc<Disk>> {
    widen_descriptor_table(descriptors).map_err(lacking("no table of open files"))?;
    levity_disk::set_direct_files_max(descriptors.direct_max);
    levity_disk::set_file_pipes_max(descriptors.file_pipes_max);
    levity_disk::set_unclosed_max(descriptors.unclosed_max);
    let disk = Disk::start(settings.settings.clone()).map_err(io::Error::other)?;
    disk.on_outage(outage::report);
    disk.set_open_age_max(settings.entry_ttl);
    Ok(disk)
}

fn open_variants(settings: &levity_config::Disk) -> io::Result<Option<Arc<VariantStore>>> {
    let Some(folder) = &settings.variants else {
        return Ok(None);
    };
    let bytes_max = settings.variants_bytes as u64;
    let store = patiently(folder, move |folder| VariantStore::open(folder, bytes_max));
    let store = match store {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            let folder = folder.display();
            diagnostics::log(format_args!(
                "disk.variants {folder} {error}; no variants are kept until a restart"
            ));
            return Ok(None);
        }
        store => store?,
    };
    store.map(|store| Some(Arc::new(store))).map_err(|error| {
        let name = folder.display();
        let remedy = remedy(folder, &error);
        io::Error::new(
            error.kind(),
            format!("disk.variants {name}: {error}{remedy}"),
        )
    })
}

/// What all sets of mailboxes have in common.
fn shared_mailboxes(config: &Config, workers: usize) -> Arc<SharedMailboxes> {
    let owners = mailboxes::start::owners(&config.mailbox_store, workers);
    SharedMailboxes::new(owners, config.limits.mailbox_memory)
}

fn bounds(limits: &levity_config::Limits, descriptors: &Descriptors) -> Bounds {
    Bounds {
        files: descriptors.held_max,
        ..Bounds::of_limits(limits)
    }
}

/// One thread of each class per processor: more would not compute more.
fn start_compute() -> io::Result<Arc<Compute>> {
    let pool = Pool::start(levity_compute::Settings {
        threads: cores(),
        queue_max: COMPUTE_QUEUE_MAX,
    });
    let pool = pool.map_err(lacking("no threads that compute"))?;
    Ok(Arc::new(Compute::new(pool)))
}

/// What all workers have in common.
pub struct SharedParts {
    service: Arc<Service>,
    parts: ServiceParts,
    cache: Arc<SharedCache>,
    watcher: Option<Arc<Watcher>>,
    logs: LogWriters,
    descriptors: Descriptors,
    /// The number of workers.
    workers: usize,
}

impl SharedParts {
    /// Opens everything that the configuration names except addresses; certificates only if there are to be clients. Blocks.
    ///
    /// # Errors
    /// When a folder, a file or an engine cannot be used.
    pub fn start(config: &Config, has_clients: bool) -> io::Result<Self> {
        let workers = config.server.workers.unwrap_or_else(cores);
        let descriptors = Descriptors::share(config.limits.connections);
        let shares = Shares::new(&bounds(&config.limits, &descriptors));
        let parts = ServiceParts {
            shares,
            disk: start_disk(&config.disk, &descriptors)?,
            compute: start_compute()?,
            // The other threads are left to bodies.
            guesses: Guesses::new((cores() / 2).max(1)),
            rate_limits: Arc::default(),
            mailboxes: shared_mailboxes(config, workers),
            resume: SharedMailboxes::new(workers, config.limits.resume_memory),
            variants: open_variants(&config.disk)?,
            kept_files_max: descriptors.kept_max,
            has_clients,
            tls: TlsParts::default(),
        };
        let service = compile::service(config.clone(), &parts, None)?;
        let mut logs = LogWriters::default();
        let opened = logs.opener().open(&service.logs)?;
        logs.replace(&service.logs, opened);
        Ok(Self {
            service: Arc::new(service),
            parts,
            cache: shared_cache(&config.disk, &descriptors, workers),
            watcher: start_watcher(config.disk.watch),
            logs,
            descriptors,
            workers,
        })
    }

    /// The maximum number of connections of one worker.
    fn connections_max(&self) -> usize {
        self.descriptors.connections_max.div_ceil(self.workers)
    }

    /// The parts of a worker that counts into `stats`. May block.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn worker(&self, stats: Arc<WorkerStats>) -> io::Result<WorkerParts> {
        let share = |max: usize| max.div_ceil(self.workers);
        Ok(WorkerParts {
            service: self.service.clone(),
            disk: self.parts.disk.clone(),
            compute: self.parts.compute.clone(),
            shares: self.parts.shares.clone(),
            cache: self.cache.clone(),
            watcher: self.watcher.clone(),
            zero_copy: ZeroCopy::start(share(self.descriptors.transfers_max))
                .map_err(lacking("no thread for transfers"))?,
            stats,
            logs: self.logs.logs(&self.service.logs),
            connections_max: self.connections_max(),
            workers: self.workers,
            pipes_max: share(self.descriptors.pipes_max),
            explanation: None,
        })
    }
}

impl Server {
    fn start(plan: Plan, inherited: Arc<Inherited>, confinement: Confinement) -> io::Result<Self> {
        let config = &plan.config;
        let shared = SharedParts::start(config, true)?;
        shared.service.remove_stale_uploads(None);
        let count = shared.workers;
        let mut bound = bind_all(config, count, &inherited)?;
        let worker_stats = worker_stats(count);
        let upstreams = Arc::new(Upstreams::from_pointee(shared.service.upstreams.clone()));
        let tls = Arc::new(CurrentTls::new(shared.service.tls.clone()));
        let mailboxes = start_mailboxes(&shared)?;
        let resume = mailboxes::start::in_memory(count);
        let figures = mailbox_figures(&mailboxes, &resume, &shared.parts);
        let sources = sources(&shared, &upstreams, &tls, figures);
        let stats = Stats::new(worker_stats.clone(), sources);
        let watchdog = start_watchdog(&worker_stats)?;
        let (mailbox_store, mailboxes) = (mailboxes.thread, mailboxes.loops);
        let (workers, channels) = event_loop::channels(count);
        let connections_max = shared.connections_max() * count;
        let status = Arc::new(Status::new(
            Arc::new(stats),
            upstreams,
            tls,
            workers.clone(),
            start_heartbeat(&workers),
            connections_max,
        ));
        status.set_roots(devices_of(&shared.service));
        status.set_hidden(config.hidden.clone());
        let admin = admin::Listeners::start(config, plan.source.as_deref(), status.clone())?;
        // Clients may want certificates at once.
        compile::follow_certificates(&shared.service, &shared.parts);
        let mailboxes = mailboxes.into_iter().zip(resume.loops);
        let loops = worker_stats.into_iter().zip(channels).zip(mailboxes);
        let parts = loops.map(|((stats, channels), (mailboxes, resume))| {
            Ok(Parts {
                worker: shared.worker(stats)?,
                mailboxes,
                resume,
                listen: take_sockets(&mut bound),
                channels,
                guard: plan.guard,
            })
        });
        let ended = start_workers(parts)?;
        Ok(Self {
            checks: check::start(&shared.service.upstreams),
            plan,
            service: shared.service,
            disk: shared.parts.disk.clone(),
            parts: shared.parts,
            watcher: shared.watcher,
            status,
            workers,
            ended,
            listening: bound,
            logs: shared.logs,
            admin,
            inherited,
            confinement: Arc::new(confinement),
            mailbox_store,
            _watchdog: watchdog,
        })
    }

    fn introduce(&self) {
        let config = &self.service.config;
        let listening = self.listening.iter();
        let listening = listening.map(|bound| (&bound.actual, config.has_tls(&bound.configured)));
        let introduction = Introduction {
            plan: &self.plan,
            service: &self.service,
            listening: listening.collect(),
            admin: self.admin.pages_address(),
            disk: &self.disk,
        };
        introduction.log();
        self.report_unwatched_roots();
        self.report_remote_sockets();
        self.report_unused_sockets();
    }

    fn report_unused_sockets(&self) {
        let configured = self.service.config.listen.iter();
        let unused = self
            .inherited
            .unused(configured.map(|listen| &listen.address));
        let line = |address| {
            format!(
                "the service manager listens on {address}, and no `[[listen]]` has that address: nobody answers there"
            )
        };
        log_some(unused.map(line), "sockets of the service manager");
    }

    fn report_unwatched_roots(&self) {
        let mut roots = self.service.roots();
        roots.retain(|root| self.watcher.is_some() && !root.can_be_watched());
        let line = |root: &Arc<Root>| {
            let (path, name) = (root.path().display(), &root.file_system().name);
            format!(
                "{path} on {name} cannot be watched, because changes there may come from elsewhere or \
                 its directories cannot be opened from memory: its files stay on disk.entry_ttl"
            )
        };
        log_some(roots.iter().map(line), "folders that cannot be watched");
    }

    fn report_remote_sockets(&self) {
        let mounts = Mounts::read().unwrap_or_default();
        let upstreams = self.service.upstreams.iter();
        let lines = upstreams.flat_map(|upstream| upstream.remote_sockets(&mounts));
        log_some(lines, "sockets on remote file systems");
    }

    /// Releases what a successor needs to start while this process drains: the paths of Unix sockets, on
    /// which the workers accept until they get the message, and the addresses of administrators.
    fn leave_addresses(&mut self) {
        self.listening.clear();
        self.admin.close();
    }

    fn send_all(&self, mut message: impl FnMut() -> Message) {
        for worker in &self.workers {
            // An error means that the worker has ended.
            let _ = worker.send(message());
        }
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Takes one worker's socket of every address.
fn take_sockets(bound: &mut [Bound]) -> Vec<(Address, ListeningSocket)> {
    bound
        .iter_mut()
        .filter_map(|bound| Some((bound.configured.clone(), bound.sockets.pop()?)))
        .collect()
}

/// Devices and paths of the roots, for the names of devices in `/status`.
fn devices_of(service: &Service) -> Vec<(u64, PathBuf)> {
    let roots = service.roots().into_iter();
    roots
        .map(|root| (root.device(), root.path().to_owned()))
        .collect()
}

/// The watcher, if it is wanted and there can be one: other programs of the user may have all instances of inotify, and files are served
/// without it too.
fn start_watcher(watch: levity_config::Watch) -> Option<Arc<Watcher>> {
    if watch == levity_config::Watch::Off {
        return None;
    }
    Watcher::start(|line| diagnostics::log(format_args!("{line}")))
        .map(Arc::new)
        .inspect_err(|error| {
            diagnostics::log(format_args!(
                "disk.watch: nothing is watched: {error}; the sysctls fs.inotify.* limit each user. Files stay on disk.entry_ttl until a restart"
            ));
        })
        .ok()
}

/// The sources of `/metrics`.
fn sources(
    shared: &SharedParts,
    upstreams: &Arc<Upstreams>,
    tls: &Arc<CurrentTls>,
    mailboxes: Box<dyn Fn() -> MailboxFigures + Send + Sync>,
) -> Sources {
    let ServiceParts {
        disk,
        compute,
        shares,
        variants,
        rate_limits,
        ..
    } = shared.parts.clone();
    let watcher = shared.watcher.clone();
    let (upstreams, tls) = (upstreams.clone(), tls.clone());
    let certificates = move || {
        let tls = tls.load();
        let tls = tls.as_ref()?;
        Some(tls.figures(SystemTime::now()))
    };
    let states = move || {
        let upstreams = upstreams.load();
        upstreams.iter().map(|one| status::state(one)).collect()
    };
    Sources {
        disk: Some(Box::new(move || DiskFigures::of(&disk))),
        compute: Some(Box::new({
            let shares = shares.clone();
            move || compute.figures(&shares)
        })),
        variants: variants.map(|store| Box::new(move || variant_figures(&store)) as _),
        limits: Some(Box::new(move || rate_limits.figures())),
        shares: Some(Box::new(move || shares.figures())),
        mailboxes: Some(mailboxes),
        certificates: Some(Box::new(certificates)),
        watch: watcher.map(|watcher| Box::new(move || watcher.stats()) as _),
        upstreams: Some(Box::new(states)),
        log_unwritten: shared.logs.unwritten().clone(),
    }
}

fn variant_figures(store: &VariantStore) -> VariantFigures {
    let (kept, bytes) = store.size();
    VariantFigures {
        kept,
        bytes,
        bytes_max: store.bytes_max(),
    }
}

/// Where a scrape reads the figures of mailboxes.
fn mailbox_figures(
    started: &mailboxes::start::Started,
    resume: &mailboxes::start::Started,
    parts: &ServiceParts,
) -> Box<dyn Fn() -> MailboxFigures + Send + Sync> {
    let (store, shared) = (started.store, parts.mailboxes.clone());
    let owners = started.figures.clone();
    let (owners_of_resume, shared_resume) = (resume.figures.clone(), parts.resume.clone());
    Box::new(move || {
        let resume = mailboxes::figures::resume(&owners_of_resume, &shared_resume);
        mailboxes::figures::figures(store, &owners, &shared, resume)
    })
}

/// Asks the loops often enough for the watchdog of the service manager.
fn start_heartbeat(workers: &[mpsc::UnboundedSender<Message>]) -> Arc<Heartbeat> {
    let watched = service_manager::watchdog_time().map(|time_max| time_max / 8);
    let usual = heartbeat::INTERVAL;
    Heartbeat::start(workers, watched.map_or(usual, |time| time.min(usual)))
}

/// Starts workers. The channel closes when the last of them has ended.
fn start_workers(
    parts: impl Iterator<Item = io::Result<Parts>>,
) -> io::Result<mpsc::Receiver<io::Result<()>>> {
    let (end, ended) = mpsc::channel(parts.size_hint().1.unwrap_or(1).max(1));
    for (number, parts) in parts.enumerate() {
        start_worker(number, parts?, end.clone())?;
    }
    Ok(ended)
}

/// Starts a worker. Its result, or its panic, is sent to the control thread.
fn start_worker(number: usize, parts: Parts, end: mpsc::Sender<io::Result<()>>) -> io::Result<()> {
    let worker = event_loop::start(number, parts);
    let worker = worker.map_err(lacking("no thread for an event loop"))?;
    let wait = move || {
        let panicked = |_| Err(io::Error::other(format!("worker {number} panicked")));
        // The control thread ends only with the process.
        let _ = end.blocking_send(worker.join().unwrap_or_else(panicked));
    };
    thread::Builder::new()
        .name(format!("join-{number}"))
        .spawn(wait)
        .map_err(lacking("no thread beside an event loop"))?;
    Ok(())
}
