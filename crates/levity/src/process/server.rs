//! The process: start, signals, reload and end.
//!
//! Everything that may block happens here, on the control thread, before the event loops start or beside
//! them. Compiling a new configuration may hang on a frozen disk, so a thread of its own does that during a
//! reload.

use std::collections::HashSet;
use std::future;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use levity_compute::Pool;
use levity_config::address::Address;
use levity_config::in_unit::remedy;
use levity_config::{Config, Hidden, Note};
use levity_disk::{Disk, Root, Symlinks, Watcher, late_returns, patiently};
use levity_net::{Bound, Inherited, ListeningSocket};
use levity_telemetry::diagnostics;
use levity_telemetry::mounts::Mounts;
use levity_telemetry::outage;
use levity_telemetry::stall::Watchdog;
use levity_telemetry::stats::{
    DiskFigures, MailboxFigures, Sources, Stats, VariantFigures, WorkerStats,
};
use levity_tls::TicketKeys;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{self, MissedTickBehavior};

use crate::compile::{self, ServiceParts};
use crate::credentials::guesses::Guesses;
use crate::files::cache::SharedCache;
use crate::loop_core::compute::Compute;
use crate::loop_core::zero_copy::ZeroCopy;
use crate::mailboxes;
use crate::mailboxes::set::SharedMailboxes;
use crate::mailboxes::start::StoreThread;
use crate::process::admin;
use crate::process::admin::control::{Order, Outcome};
use crate::process::confinement::Confinement;
use crate::process::descriptors::{Descriptors, widen_descriptor_table};
use crate::process::log_writers::LogWriters;
use crate::process::plan::Plan;
use crate::process::reload::{Made, Present, Refused, bind};
use crate::process::service_manager;
use crate::process::signals::{EarlySignals, Event, Signals};
use crate::process::start_report::{Introduction, log_notes, log_some};
use crate::process::system_limits::{lacking, with_help};
use crate::route::Service;
use crate::serve::event_loop::{self, Message, Parts};
use crate::shares::{self, Bounds, Shares};
use crate::status::heartbeat::{self, Heartbeat};
use crate::status::{self, CurrentTls, Status, Upstreams};
use crate::stores::variants::store::VariantStore;
use crate::tls;
use crate::tls::authorities::AcmeThread;
use crate::tls::staple::Fetches;
use crate::upstream;
use crate::upstream::check::{self, Checks};
use crate::worker::WorkerParts;

/// The maximum number of jobs of one class that wait for a thread that computes. A connection has one at a time.
const COMPUTE_QUEUE_MAX: usize = 4096;

/// Descriptors of which a runtime has fewer.
const RUNTIME_DESCRIPTORS: usize = 8;

/// The delay after which draining is logged.
const DRAIN_REPORT_DELAY: Duration = Duration::from_millis(500);

/// How often the control thread looks for hits of rate limits that no line of the log has counted.
const LIMITS_LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum time between looks for a root that can be opened, and whose configuration was refused.
const ABSENT_PAUSE_MAX: Duration = Duration::from_secs(60);

/// The maximum number of notes that whoever asks for a reload is told. All are in the log.
const NOTES_MAX: usize = 50;

/// The time-out for writing the last log lines.
const FINAL_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The time-out for what the store of mailboxes has still to write.
const STORE_END_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the server until a signal stops it.
pub fn run(plan: Plan, early: EarlySignals) -> ExitCode {
    let hidden = plan.config.hidden.clone();
    match serve(plan, early) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            diagnostics::flush(FINAL_FLUSH_TIMEOUT);
            eprintln!("error: {}", in_words(&error, &hidden));
            ExitCode::FAILURE
        }
    }
}

/// An error with what helps, without values of variables.
fn in_words(error: &io::Error, hidden: &Hidden) -> String {
    hidden.hide(&with_help(error)).into_owned()
}

fn serve(plan: Plan, early: EarlySignals) -> io::Result<()> {
    // It changes the environment, so before there are other threads.
    let inherited = Arc::new(Inherited::take()?);
    let confinement = Confinement::start(&plan.config);
    refuse_huge_pages();
    diagnostics::start().map_err(lacking("no thread for the log"))?;
    let runtime = start_runtime().map_err(lacking("no event loop for the control thread"))?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::new(early).map_err(lacking("no handlers of signals"))?;
        let Some(mut server) = start(plan, inherited, confinement, &mut signals).await? else {
            return Ok(());
        };
        server.introduce();
        service_manager::ready();
        let outcome = server.live(&mut signals).await;
        server.end(&mut signals).await;
        outcome
    });
    // Does not wait for a start or a reload that hangs on a frozen disk.
    runtime.shutdown_background();
    outcome
}

fn start_runtime() -> io::Result<Runtime> {
    // tokio panics when it cannot have those of its signals.
    let descriptor = |_| rustix::io::fcntl_dupfd_cloexec(io::stderr(), 0);
    let spare: Result<Vec<_>, _> = (0..RUNTIME_DESCRIPTORS).map(descriptor).collect();
    drop(spare?);
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// Starts the server beside the control thread, which handles signals meanwhile. `None` when one of them ends it.
async fn start(
    plan: Plan,
    inherited: Arc<Inherited>,
    confinement: Confinement,
    signals: &mut Signals,
) -> io::Result<Option<Server>> {
    let started = beside("start", move || Server::start(plan, inherited, confinement))?;
    tokio::select! {
        started = started => started.map_err(io::Error::other)?.map(Some),
        () = signals.stop() => Ok(None),
    }
}

/// Runs `work` on a thread of its own, in the runtime of the control thread. tokio's own way panics where no thread is to be had.
///
/// # Errors
/// When there is no thread. What is returned fails when `work` panics.
fn beside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (sender, done) = oneshot::channel();
    let runtime = Handle::current();
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let _entered = runtime.enter();
            // Nobody waits any more at the end of the process.
            let _ = sender.send(work());
        })
        .map_err(lacking("no thread beside the control thread"))?;
    Ok(done)
}

/// Keeps the heap of each thread from growing by huge pages, for which the allocator asks: 72 disk threads took 2 MiB each
/// for some kilobytes, and a first touch of such a page costs milliseconds where a host has to find the memory. Kernels
/// without the call have huge pages.
fn refuse_huge_pages() {
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// A reload in progress. It runs beside the control thread, so that a frozen root does not keep the server
/// from handling signals.
#[derive(Default)]
struct Reloading {
    made: Option<oneshot::Receiver<Result<Made, Refused>>>,
    /// Another reload was requested meanwhile: a file may have been read before it changed.
    again: bool,
    /// Who is told the outcome of this one, and of the other one.
    waiting: Vec<Order>,
    waiting_again: Vec<Order>,
    /// [`late_returns`] when the last one began; at first, when the process did.
    late_returns: u64,
    absent: AbsentRoots,
}

/// What a reload reads.
#[derive(Clone, Copy)]
enum Text {
    /// The files.
    New,
    /// The texts that the files had: something that did not respond then may do so now.
    Same,
}

impl Reloading {
    /// Begins one, or another one when that which is in progress has ended. Somebody is told its outcome.
    fn begin_for(&mut self, server: &Server, order: Order) {
        match self.made.is_some() {
            true => self.waiting_again.push(order),
            false => self.waiting.push(order),
        }
        self.begin(server, Text::New);
    }

    fn begin(&mut self, server: &Server, text: Text) {
        if self.made.is_some() {
            self.again = true;
            return;
        }
        service_manager::reloading();
        let (plan, parts) = (server.plan.clone(), server.parts.clone());
        let old = server.service.clone();
        let confinement = server.confinement.clone();
        let configured = server
            .listening
            .iter()
            .map(|bound| bound.configured.clone());
        let present = Present {
            workers: server.workers.len(),
            listening: configured.collect(),
            logs: server.logs.opener(),
            inherited: server.inherited.clone(),
        };
        self.late_returns = late_returns();
        let made = beside("reload", move || {
            let config = match text {
                Text::New => plan.reload(&old.absent_roots),
                Text::Same => plan.again(&old.config.files, &old.absent_roots),
            };
            let config = config.map_err(Refused::Config)?;
            let hidden = config.hidden.clone();
            let made = confinement
                .permits(&config)
                .and_then(|()| compile::service(config, &parts, Some(&old)))
                .inspect(|service| service.remove_stale_uploads(Some(&old)))
                .and_then(|service| Made::new(service, &old, &present));
            made.map_err(|error| Refused::Service(in_words(&error, &hidden)))
        });
        self.made = Some(made.unwrap_or_else(|error| {
            let (sender, refused) = oneshot::channel();
            let _ = sender.send(Err(Refused::Service(with_help(&error))));
            refused
        }));
    }

    /// Tells the outcome to those who wait for it, and begins another one if that was asked for meanwhile.
    fn ended(&mut self, server: &Server, outcome: &Outcome) {
        service_manager::ready();
        for order in self.waiting.drain(..) {
            // An error means that the client has gone.
            let _ = order.send(outcome.clone());
        }
        if mem::take(&mut self.again) {
            self.waiting = mem::take(&mut self.waiting_again);
            self.begin(server, Text::New);
        }
    }

    /// Begins another one if something responds or is there again without which the configuration is not complete.
    fn begin_if_late(&mut self, server: &Server) {
        self.absent.look(&server.service.absent_roots);
        let is_late = self.absent.have_come || self.late_returns != late_returns();
        if is_late && self.made.is_none() && server.service.is_incomplete() {
            if self.absent.have_come {
                self.absent.reload_begins();
            }
            self.begin(server, Text::Same);
        }
    }

    /// Waits for the new configuration; pending forever when no reload is in progress. Cancel safe.
    async fn made(&mut self) -> Result<Made, Refused> {
        let Some(made) = &mut self.made else {
            return future::pending().await;
        };
        let joined = made.await;
        self.made = None;
        let panicked = |_| Err(Refused::Service("the reload panicked".to_owned()));
        joined.unwrap_or_else(panicked)
    }
}

/// Looks for absent roots, beside the control thread: they may be on a frozen disk.
struct AbsentRoots {
    look: Option<oneshot::Receiver<bool>>,
    /// One can be opened that could not when the configuration was read. It stays so until a reload has begun with it.
    have_come: bool,
    /// Before the look after a reload: it may be refused again.
    pause: Duration,
    next: Instant,
}

impl Default for AbsentRoots {
    fn default() -> Self {
        Self {
            look: None,
            have_come: false,
            pause: tls::sites::LOOK_INTERVAL,
            next: Instant::now(),
        }
    }
}

impl AbsentRoots {
    /// Takes the outcome of the last look, and begins another one if it is time. Does not wait.
    fn look(&mut self, absent: &[PathBuf]) {
        if absent.is_empty() {
            *self = Self::default();
            return;
        }
        match self.look.as_mut().map(oneshot::Receiver::try_recv) {
            Some(Err(TryRecvError::Empty)) => return,
            Some(Ok(have_come)) => self.have_come |= have_come,
            Some(Err(TryRecvError::Closed)) | None => {}
        }
        self.look = None;
        if Instant::now() >= self.next && !self.have_come {
            let absent = absent.to_vec();
            // Without a thread, the next call may have one.
            self.look = beside("absent roots", move || {
                absent.iter().any(|root| opens(root))
            })
            .ok();
        }
    }

    /// A reload begins with what has come.
    fn reload_begins(&mut self) {
        self.have_come = false;
        self.next = Instant::now() + self.pause;
        self.pause = (2 * self.pause).min(ABSENT_PAUSE_MAX);
    }
}

fn opens(root: &Path) -> bool {
    let opened = patiently(root, |path| Root::open(path, Symlinks::Beneath));
    matches!(opened, Ok(Ok(_)))
}

/// A look at the files of certificates, beside the control thread: they may be on a frozen disk.
#[derive(Default)]
struct Looking(Option<oneshot::Receiver<()>>);

impl Looking {
    /// Begins another one, unless one is in progress.
    fn begin(&mut self, server: &Server) {
        let mut looking = self.0.iter_mut();
        let is_busy = looking.any(|looking| looking.try_recv() == Err(TryRecvError::Empty));
        let sites = server.service.tls.clone();
        let upstreams = server.service.upstreams.iter();
        let followed = upstreams.filter(|upstream| upstream.follows_tls());
        let followed: Vec<_> = followed.cloned().collect();
        if !is_busy && (sites.is_some() || !followed.is_empty()) {
            // Without a thread, the next look may have one.
            self.0 = beside("certificates", move || {
                sites.iter().for_each(|sites| sites.refresh());
                followed.iter().for_each(|upstream| upstream.refresh_tls());
            })
            .ok();
        }
    }
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
fn start_mailboxes(shared: &Shared) -> io::Result<mailboxes::start::Started> {
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
pub struct Shared {
    service: Arc<Service>,
    parts: ServiceParts,
    cache: Arc<SharedCache>,
    watcher: Option<Arc<Watcher>>,
    logs: LogWriters,
    descriptors: Descriptors,
    /// The number of workers.
    workers: usize,
}

impl Shared {
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
            ticket_keys: Arc::new(TicketKeys::random()),
            acme: AcmeThread::default(),
            staples: Arc::default(),
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
        let shared = Shared::start(config, true)?;
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

    /// Feeds the watchdog of the service manager. Never ends.
    fn watchdog_feed(&self) -> impl Future<Output = ()> + use<> {
        let heartbeat = self.status.heartbeat().clone();
        async move {
            match service_manager::watchdog_time() {
                Some(time_max) => service_manager::feed(heartbeat, time_max).await,
                None => future::pending().await,
            }
        }
    }

    async fn live(&mut self, signals: &mut Signals) -> io::Result<()> {
        let mut reloading = Reloading::default();
        let mut ticks = time::interval(LIMITS_LOG_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks = time::interval(tls::sites::LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looking = Looking::default();
        let mut fetches = Fetches::default();
        let mut rotations = time::interval(levity_tls::TICKET_KEY_ROTATION);
        rotations.reset();
        let feeding = self.watchdog_feed();
        tokio::pin!(feeding);
        loop {
            tokio::select! {
                now = ticks.tick() => self.parts.rate_limits.log_rest(now.into_std()),
                event = signals.next() => match event {
                    Event::Stop => return Ok(()),
                    Event::Reload => reloading.begin(self, Text::New),
                    Event::Reopen => self.logs.reopen(),
                },
                _ = looks.tick() => {
                    reloading.begin_if_late(self);
                    looking.begin(self);
                    if self.service.tls.is_some() {
                        fetches.begin(&self.parts.staples, SystemTime::now());
                    }
                }
                _ = rotations.tick() => self.parts.ticket_keys.rotate(),
                order = self.admin.order() => reloading.begin_for(self, order),
                () = &mut feeding => {}
                made = reloading.made() => {
                    let outcome = self.reload(made);
                    reloading.ended(self, &outcome);
                }
                ended = self.ended.recv() => {
                    return ended.unwrap_or(Ok(())).and_then(|()| {
                        Err(io::Error::other("a worker ended unexpectedly"))
                    });
                }
            }
        }
    }

    /// Drains until all connections have ended and receipts are sent, a second signal arrives, or `limits.drain_timeout` has
    /// passed.
    async fn end(&mut self, signals: &mut Signals) {
        service_manager::stopping();
        self.leave_addresses();
        // A successor may have other authorities.
        self.parts.acme.stop();
        self.send_all(|| Message::Drain);
        let timeout = self.service.config.limits.drain_timeout;
        let (soon, seconds) = (DRAIN_REPORT_DELAY, timeout.as_secs_f64());
        let waiting = async {
            time::sleep(soon).await;
            diagnostics::log(format_args!(
                "waiting up to {seconds} s for responses to end; signal again to end at once"
            ));
            time::sleep(timeout.saturating_sub(soon)).await;
        };
        let drained = async { while self.ended.recv().await.is_some() {} };
        tokio::select! {
            () = drained => {}
            () = waiting => diagnostics::log(format_args!("connections were cut off after limits.drain_timeout")),
            () = signals.stop() => diagnostics::log(format_args!("second signal: ending at once")),
        }
        if let Some(store) = self.mailbox_store.take() {
            store.end(STORE_END_TIMEOUT);
        }
        self.checks = Checks::default();
        self.parts.rate_limits.log_all();
        self.logs.shutdown(FINAL_FLUSH_TIMEOUT);
        // Dropping the disk would wait for reads in flight, on a frozen device forever.
        mem::forget(self.disk.clone());
        // Dropping the pool would wait for idle work, which may wait for a processor.
        mem::forget(self.parts.compute.clone());
        diagnostics::flush(FINAL_FLUSH_TIMEOUT);
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

    /// Installs the new configuration, or logs why it failed; then the old one stays.
    ///
    /// # Errors
    /// Why it failed, as lines of text.
    fn reload(&mut self, made: Result<Made, Refused>) -> Outcome {
        let swapped = match made {
            Ok(made) => {
                let hidden = made.service.config.hidden.clone();
                self.swap(made).map_err(|error| in_words(&error, &hidden))
            }
            Err(Refused::Service(reason)) => Err(reason),
            Err(Refused::Config(errors)) => {
                Err(errors.render(false) + "the configuration has errors")
            }
        };
        let reason = match swapped {
            Ok(notes) => {
                diagnostics::log(format_args!("configuration reloaded"));
                let notes = notes.iter().take(NOTES_MAX);
                return Ok(notes.map(|note| format!("note: {note}\n")).collect());
            }
            Err(reason) => reason,
        };
        let (before, last) = reason.rsplit_once('\n').unwrap_or(("", &reason));
        for line in before.lines() {
            diagnostics::log(format_args!("{line}"));
        }
        let last = format!("configuration not reloaded, the old one stays: {last}");
        diagnostics::log(format_args!("{last}"));
        let before = before.lines().map(|line| format!("{line}\n"));
        Err(before.collect::<String>() + &last + "\n")
    }

    /// Gives the notes that the configuration before did not have.
    fn swap(&mut self, made: Made) -> io::Result<Vec<String>> {
        let Made {
            service,
            mut bound,
            logs,
        } = made;
        let (config, old) = (&service.config, &self.service.config);
        let admin = self.admin.replacement(config, old)?;

        // Nothing fails from here on: a failed reload changes nothing.
        self.disk.set_open_age_max(config.disk.entry_ttl);
        let mailbox_bytes_max = config.limits.mailbox_memory;
        self.parts.mailboxes.budget.set_max(mailbox_bytes_max);
        let resume_bytes_max = config.limits.resume_memory;
        self.parts.resume.budget.set_max(resume_bytes_max);
        let held_max = self.parts.shares.max(shares::Resource::Files);
        self.parts.shares.set_bounds(&Bounds {
            files: held_max,
            ..Bounds::of_limits(&config.limits)
        });
        let gone = |bound: &mut Bound| !config.listens_on(&bound.configured);
        let close: Vec<_> = self.listening.extract_if(.., gone).collect();
        let service = Arc::new(service);
        self.logs.replace(&service.logs, logs);
        self.send_all(|| Message::Reload {
            service: service.clone(),
            logs: self.logs.logs(&service.logs),
            listen: take_sockets(&mut bound),
            close: close.iter().map(|bound| bound.configured.clone()).collect(),
        });
        self.listening.extend(bound);
        self.admin.replace(admin, &service.config);
        self.status.set_roots(devices_of(&service));
        self.status.set_upstreams(service.upstreams.clone());
        self.status.set_tls(service.tls.clone());
        self.status.set_hidden(service.config.hidden.clone());
        let changes = upstream::describe::changes(&service.upstreams, &self.service.upstreams);
        log_some(changes, "changes of upstreams");
        // Those that were there before are in the log already.
        let before = self.service.config.notes.iter().map(Note::to_string);
        let before: HashSet<_> = before.collect();
        let notes = service.config.notes.iter().map(Note::to_string);
        let notes: Vec<_> = notes.filter(|note| !before.contains(note)).collect();
        log_notes(&notes);
        self.checks = check::start(&service.upstreams);
        compile::follow_certificates(&service, &self.parts);
        self.service = service;
        self.report_unwatched_roots();
        self.report_unused_sockets();
        Ok(notes)
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
    shared: &Shared,
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
