//! Disk operations of a request as async functions: one job out, one completion back.

use std::cell::Cell;
use std::ffi::CString;
use std::io;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_disk::{
    Changes, Class, Completion, Direct, DirectoryReader, Disk, EngineId, First, Job, Listing,
    Lookup, Meta, Op, OpenFile, Opened, Operation, ReadOptions, Ready, Reply, Root, Variants,
    is_full, op,
};
use rustix::io::Errno;
use tokio::sync::oneshot;
use tokio::time;

use crate::files::missing_lookups::FailedLookups;
use crate::files::root::LiveRoot;
use crate::loop_core::config::LoopConfig;
use crate::loop_core::{self, LoopCore};
use crate::shares::claim::Requester;
use crate::shares::common::CommonHold;
use crate::shares::{Held, Portion, Resource};
use levity_telemetry::diagnostics;
use levity_telemetry::stats::{Ahead, WorkerStats};
use levity_telemetry::trace::{DiskTrip, Trace};

/// The size of the read that is combined with a cold open: all of a small file, the start of a large one.
pub const FIRST_BYTES: usize = 128 * 1024;

/// Smaller files, in bytes, are read whole with a cold open while memory is ample: on a spinning disk or a
/// network the second read takes as long to start as the first. Larger files may be read past the page cache,
/// except for their start.
pub const WHOLE_BYTES: usize = 1 << 20;

/// The interval at which chunks after the first retry when the queue is full.
const FULL_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// A read that took less than this in the kernel found its bytes in the page cache.
const CACHED_READ_MAX: Duration = Duration::from_micros(300);

struct ReplySender(oneshot::Sender<Completion>);

impl Reply for ReplySender {
    fn is_awaited(&self) -> bool {
        !self.0.is_closed()
    }

    fn send(self: Box<Self>, completion: Completion) {
        // An error means that the client has gone; the bytes return to their pool.
        let _ = self.0.send(completion);
    }
}

/// The result of a read.
pub struct Read {
    /// The bytes; fewer than requested only at the end of the file.
    pub ready: Ready,
    /// The result of `fstat` after the read.
    pub now: Meta,
    /// The bytes were in the page cache, so an inline probe may work again.
    pub was_cached: bool,
    /// The index of the chunk in the request's trace.
    pub chunk: Option<usize>,
}

/// A read ahead of its use. Dropping it cancels a read that has not begun.
pub struct ReadAhead {
    /// The offset in the file.
    pub offset: u64,
    requested: Instant,
    /// `None` once the result is being fetched.
    receiver: Option<oneshot::Receiver<Completion>>,
    stats: Arc<WorkerStats>,
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        if self.receiver.is_some() {
            self.stats.read_ahead(Ahead::Unused);
        }
    }
}

/// Disk access for one request.
pub struct DiskClient<'a> {
    core: &'a LoopCore,
    config: &'a LoopConfig,
    /// The number of the connection, between which the disk is shared fairly.
    connection: u64,
    read_options: ReadOptions,
    timeout: Duration,
    /// See [`ReadOptions::to_pipe`]: for the opens of the request.
    takes_pipes: bool,
    /// The size of a read in bytes, if configured.
    pub chunk_bytes: Option<usize>,
    /// Lookups on this connection that found nothing.
    failed_lookups: &'a Cell<FailedLookups>,
    /// The limit of such lookups: `limits.absent_trips`.
    failed_lookups_per_second: u32,
    /// Those of this request, which do not count yet.
    failed_lookups_here: u32,
    /// Who asks; `None` for work of the server's own.
    requester: Option<Requester<'a>>,
    /// The trace of the request.
    pub trace: &'a mut Trace,
}

impl<'a> DiskClient<'a> {
    /// For a request with this trace on the connection with the number `connection`, with the configuration
    /// `config`. Each operation may take `limits.io_timeout`.
    pub fn new(
        core: &'a LoopCore,
        config: &'a LoopConfig,
        connection: u64,
        failed_lookups: &'a Cell<FailedLookups>,
        trace: &'a mut Trace,
    ) -> Self {
        let limits = &config.config.limits;
        Self {
            core,
            config,
            connection,
            read_options: ReadOptions::default(),
            timeout: limits.io_timeout,
            takes_pipes: false,
            chunk_bytes: None,
            failed_lookups,
            failed_lookups_per_second: limits.absent_trips as u32,
            failed_lookups_here: 0,
            requester: None,
            trace,
        }
    }

    /// The same for `requester`, whose share bounds what it holds.
    #[must_use]
    pub fn asked_by(self, requester: Requester<'a>) -> Self {
        Self {
            requester: Some(requester),
            ..self
        }
    }

    /// The same, with files that come in pipes if `takes_pipes`: who asks sends them to a plain TCP socket.
    #[must_use]
    pub fn taking_pipes(self, takes_pipes: bool) -> Self {
        Self {
            takes_pipes,
            ..self
        }
    }

    /// Who asks; `None` for work of the server's own.
    pub fn requester(&self) -> Option<Requester<'a>> {
        self.requester
    }

    /// Whether a file may be opened inline, without [counting it](Self::open).
    pub fn may_open_inline(&self) -> bool {
        self.core.stakes.shares().is_plenty(Resource::Files)
    }

    /// Waits until the client may have one more file open. The result counts for a file on its way: many may be at the same time.
    async fn admit(&self) -> io::Result<Option<Held>> {
        let Some(requester) = self.requester else {
            return Ok(None);
        };
        let claims = requester.claims(&self.core.stakes);
        let taken = claims.take(Resource::Files, 1, Portion::Whole).await;
        taken
            .map(Some)
            .map_err(|_| io::ErrorKind::QuotaExceeded.into())
    }

    /// The name of the engine in use.
    fn engine(&self) -> &'static str {
        let own = self.core.disk.engine();
        self.read_options.engine.map_or(own, EngineId::name)
    }

    /// Applies these options to the following operations, with reads of `chunk_bytes` if that is configured.
    pub fn use_options(&mut self, read_options: ReadOptions, chunk_bytes: Option<usize>) {
        self.read_options = read_options;
        self.chunk_bytes = chunk_bytes;
    }

    /// The number of the connection.
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// The configuration of the request: as of its start, regardless of reloads.
    pub fn config(&self) -> &'a LoopConfig {
        self.config
    }

    /// Applies the options of `[disk]` to the following operations, for files of no location.
    pub fn use_default_options(&mut self) {
        let disk = &self.config.config.disk;
        self.read_options = ReadOptions {
            direct: disk.direct,
            changes: disk.changes,
            ..ReadOptions::default()
        };
        self.chunk_bytes = disk.chunk_bytes;
    }

    /// Whether a lookup on this connection has found nothing lately, as of `now`.
    pub fn has_missed_lately(&self, now: Instant) -> bool {
        self.failed_lookups_here > 0 || !self.failed_lookups.get().are_over(now)
    }

    /// Reads nothing into a pipe from now on: what is read is not sent as it is, or only in part.
    pub fn take_no_pipes(&mut self) {
        self.takes_pipes = false;
    }

    /// Whether pages of the page cache may be sent by reference.
    pub fn sends_by_reference(&self) -> bool {
        self.read_options.changes != Changes::InPlace
    }

    /// Reads through the page cache from now on: a direct read of bytes that were just written would wait
    /// until they are on the disk.
    pub fn use_page_cache(&mut self) {
        self.read_options.direct = Direct::Never;
    }

    /// Reads into memory from now on, also where the engine of the location leaves bytes in the page cache.
    pub fn read_into_memory(&mut self) {
        self.read_options.engine = self.config.memory_engine;
        self.take_no_pipes();
    }

    /// The core of the loop that serves this request.
    pub fn core(&self) -> &'a LoopCore {
        self.core
    }

    /// Whether a first read may read this many bytes at once, as the open of a cold file does.
    pub fn may_read_whole(&self, bytes: u64) -> bool {
        bytes < WHOLE_BYTES as u64 && self.core.disk.budget().is_ample(bytes as usize)
    }

    /// Opens `path` below `root`, with `variants`, and reads `first`, in one trip. Delayed when too many
    /// lookups on this connection have found nothing, and while the client has its share of open files.
    pub async fn open(
        &mut self,
        root: &Arc<Root>,
        path: CString,
        variants: Variants,
        first: Option<First>,
        lookup: Lookup,
    ) -> io::Result<Opened> {
        if let Some(wait) = self
            .failed_lookups
            .get()
            .wait(Instant::now(), self.failed_lookups_per_second)
        {
            self.core.stats.absence_waits.add(1);
            time::sleep(wait).await;
        }
        // Whoever sends the file counts it for as long as that takes.
        let _admitted = self.admit().await?;
        let open = op::Open {
            root: root.clone(),
            path,
            first,
            variants: Box::new(variants),
            lookup,
        };
        let opened = self.run(open, Class::First).await?.result;
        opened.map(of_one_version)
    }

    /// Notes a trip for a name that does not exist.
    pub fn note_failed_lookup(&mut self) {
        self.failed_lookups_here += 1;
    }

    /// Counts the failed lookups of this request to its connection: nothing else has the name either.
    pub fn count_failed_lookups(&mut self) {
        let count = mem::take(&mut self.failed_lookups_here);
        if count > 0 {
            let mut failed_lookups = self.failed_lookups.get();
            failed_lookups.add(count, Instant::now(), self.failed_lookups_per_second);
            self.failed_lookups.set(failed_lookups);
        }
    }

    /// Counts `file`, which is open, to the client as long as the result lives; `None` for work of the server's own.
    pub fn hold(&self, file: &Arc<OpenFile>) -> Option<CommonHold> {
        let claims = self.requester?.claims(&self.core.stakes);
        Some(claims.hold(file.clone()))
    }

    /// Reads a range of a file. It may have been opened inline, and many may wait for their content: the caller counts it,
    /// once for all of its reads.
    pub async fn read(
        &mut self,
        file: &Arc<OpenFile>,
        offset: u64,
        len: usize,
        class: Class,
    ) -> io::Result<Read> {
        let file = file.clone();
        let completion = self.run(op::Read { file, offset, len }, class).await?;
        read_result(completion, self.trace.last_read().chunk)
    }

    /// Starts a read of a range that will be needed next. Does not wait.
    pub fn read_ahead(&self, file: &Arc<OpenFile>, offset: u64, len: usize) -> ReadAhead {
        let file = file.clone();
        let requested = Instant::now();
        let receiver = self.submit(op::Read { file, offset, len }.into(), Class::Prefetch);
        ReadAhead {
            offset,
            requested,
            receiver: Some(receiver),
            stats: self.core.stats.clone(),
        }
    }

    /// Waits for a read-ahead; `None` when it was refused, so that the range has to be read again.
    pub async fn fetch(&mut self, mut read_ahead: ReadAhead) -> io::Result<Option<Read>> {
        let Some(receiver) = read_ahead.receiver.take() else {
            return Ok(None);
        };
        let since = Instant::now();
        let completions = &self.core.completions;
        let completion = completions.within(self.timeout, receiver).await;
        let completion = self.waited(since, completion)?;
        match completion.map_err(|_| io::Error::from(Errno::CANCELED))? {
            refused if refused.result.as_ref().is_err_and(is_full) => {
                read_ahead.stats.read_ahead(Ahead::Refused);
                Ok(None)
            }
            completion => {
                let requested = read_ahead.requested;
                read_ahead.stats.read_ahead(Ahead::Used);
                self.trace_trip(requested, requested, since, &completion);
                let completion = completion.of::<op::Read>();
                read_result(completion, self.trace.last_read().chunk).map(Some)
            }
        }
    }

    /// Reads the first entries of a directory.
    pub async fn first_entries(&mut self, reader: &Arc<DirectoryReader>) -> io::Result<Listing> {
        let list = list(reader, Listing::with_room_of_a_piece());
        self.run(list, Class::First).await?.result
    }

    /// Disk access for the body of the response to this request. `core` is that of the request's loop.
    pub fn detached(&self, core: &Rc<LoopCore>) -> DetachedDisk {
        DetachedDisk {
            core: core.clone(),
            connection: self.connection,
            read_options: self.read_options,
            timeout: self.timeout,
        }
    }

    /// Records that a request at `now` uses `root`. Waits for a check of the root if the last one is too old.
    pub async fn ensure_checked(&mut self, root: &LiveRoot, now: Instant) {
        if self.note_use_and_ask(root, now) {
            Box::pin(self.check(root)).await;
        }
    }

    /// Records that a request at `now` uses `root`. Returns whether it has to [`check`](Self::check) it first, because the
    /// last check is too old.
    pub fn note_use_and_ask(&self, root: &LiveRoot, now: Instant) -> bool {
        root.note_use(now, self.config.config.disk.root_ttl())
    }

    /// Checks whether another root has replaced `root`, and waits for the result.
    pub async fn check(&mut self, root: &LiveRoot) {
        let last = root.last();
        let check = op::CheckRoot { root: last.clone() };
        let completion = self.run(check, Class::First).await;
        let result = completion.and_then(|completion| completion.result);
        root.apply_check(&last, result);
    }

    /// Runs a job within the time-out, and adds the trip to the trace.
    async fn run<O: Operation>(
        &mut self,
        op: O,
        class: Class,
    ) -> io::Result<Completion<O::Output>> {
        let requested = Instant::now();
        let completions = &self.core.completions;
        let waiting = self.submit_and_wait(op.into(), class);
        let result = completions.within(self.timeout, waiting).await;
        let (submitted, completion) = self.waited(requested, result)??;
        self.trace_trip(requested, submitted, requested, &completion);
        Ok(completion.of::<O>())
    }

    /// Adds the wait for a trip to the trace, which has lasted since `since`. `None` was given up.
    fn waited<T>(&mut self, since: Instant, result: Option<T>) -> io::Result<T> {
        let time = since.elapsed();
        self.trace.disk_waited(self.engine(), time);
        if result.is_none() {
            self.trace.disk_given_up(time);
        }
        result.ok_or_else(timed_out)
    }

    /// Adds a trip to the trace: requested at `requested`, accepted by the disk at `submitted`, waited for since
    /// `since`.
    fn trace_trip(
        &mut self,
        requested: Instant,
        submitted: Instant,
        since: Instant,
        completion: &Completion,
    ) {
        let read_start = submitted + completion.queued;
        let trip = DiskTrip {
            requested,
            read_start,
            read_end: read_start + completion.service,
            bytes: completion.ready().map_or(0, |ready| ready.len() as u64),
        };
        self.trace.disk_completed(&trip, since);
    }

    /// Submits a job and waits. When the queue is full, a first read fails, and later chunks retry. Also
    /// returns when the disk accepted the job.
    async fn submit_and_wait(&self, op: Op, class: Class) -> io::Result<(Instant, Completion)> {
        let submit = || self.submit(op.clone(), class);
        let (submitted, completion) = submit_until_accepted(submit, class != Class::First).await?;
        match &completion.result {
            Err(error) if is_full(error) => Err(Errno::CANCELED.into()),
            _ => Ok((submitted, completion)),
        }
    }

    fn submit(&self, op: Op, class: Class) -> oneshot::Receiver<Completion> {
        let (reply, receiver) = self.core.completions.reply();
        self.core.disk.submit(Job {
            op,
            class,
            stream: self.connection,
            options: ReadOptions {
                to_pipe: self.takes_pipes,
                ..self.read_options
            },
            reply,
        });
        receiver
    }
}

/// Disk access for a body that is made while it is sent. Its operations are those of later chunks: they wait while the
/// queue of the disk is full. They are not part of the request's trace.
#[derive(Clone)]
pub struct DetachedDisk {
    core: Rc<LoopCore>,
    connection: u64,
    read_options: ReadOptions,
    timeout: Duration,
}

impl DetachedDisk {
    /// The core of the loop that serves the request.
    pub fn core(&self) -> &Rc<LoopCore> {
        &self.core
    }

    /// The number of the connection.
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// Reads the next entries of a directory.
    ///
    /// # Errors
    /// Those of the read; `TimedOut` when the disk does not respond within `limits.io_timeout`.
    pub async fn next_entries(&self, reader: &Arc<DirectoryReader>) -> io::Result<Listing> {
        self.run(list(reader, Listing::with_room_of_a_piece()))
            .await
    }

    /// As [`next_entries`](Self::next_entries), into the memory of `before`, which nobody needs any more: with memory of its own
    /// a client would hold two pieces while it waits for the disk.
    ///
    /// # Errors
    /// The same.
    pub async fn entries_after(
        &self,
        before: Listing,
        reader: &Arc<DirectoryReader>,
    ) -> io::Result<Listing> {
        self.run(list(reader, before)).await
    }

    /// Opens `path` beneath `root`, and reads `first`. Bytes that may be of another version than the metadata are dropped.
    ///
    /// # Errors
    /// Those of the open and of the read; `TimedOut` as above.
    pub async fn open(
        &self,
        root: &Arc<Root>,
        path: CString,
        first: Option<First>,
        lookup: Lookup,
    ) -> io::Result<Opened> {
        let open = op::Open {
            root: root.clone(),
            path,
            first,
            variants: Box::default(),
            lookup,
        };
        self.run(open).await.map(of_one_version)
    }

    /// The same disk without a time-out: for a change whose result has to be known before another one is made.
    #[must_use]
    pub fn patient(&self) -> Self {
        Self {
            timeout: Duration::MAX,
            ..self.clone()
        }
    }

    /// Performs any operation.
    ///
    /// # Errors
    /// Those of the operation; `TimedOut` as above, and then a change may still be made.
    pub async fn run<O: Operation>(&self, op: O) -> io::Result<O::Output> {
        let op = op.into();
        let submit = || {
            let (reply, receiver) = self.core.completions.reply();
            self.core.disk.submit(Job {
                op: op.clone(),
                class: Class::Later,
                stream: self.connection,
                options: self.read_options,
                reply,
            });
            receiver
        };
        let completions = &self.core.completions;
        let waiting = submit_until_accepted(submit, true);
        let completed = completions.within(self.timeout, waiting).await;
        completed.ok_or_else(timed_out)??.1.of::<O>().result
    }
}

fn list(reader: &Arc<DirectoryReader>, into: Listing) -> op::List {
    op::List {
        reader: reader.clone(),
        into: into.into(),
    }
}

/// Without bytes that may be of another version than the metadata.
fn of_one_version(mut opened: Opened) -> Opened {
    opened.first = opened.first.filter(|_| opened.stable);
    opened
}

fn read_result(completion: Completion<(Ready, Meta)>, chunk: Option<usize>) -> io::Result<Read> {
    let was_cached = !completion.direct && completion.service < CACHED_READ_MAX;
    let (ready, now) = completion.result?;
    Ok(Read {
        ready,
        now,
        was_cached,
        chunk,
    })
}

/// Whether the queue was full at the first read of a response.
pub fn is_refused(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::CANCELED.raw_os_error())
}

fn timed_out() -> io::Error {
    let message = "the disk did not answer within limits.io_timeout";
    io::Error::new(io::ErrorKind::TimedOut, message)
}

/// Removes `path` below `root` if it still is `file`, even if the request ends. Does not wait; a failure is
/// logged.
pub fn remove(core: &LoopCore, root: Arc<Root>, path: CString, file: Arc<OpenFile>) {
    let disk = core.disk.clone();
    let name = path.to_string_lossy().into_owned();
    let file = Some(file);
    let unlink = op::Unlink { root, path, file };
    loop_core::spawn(async move {
        let done = submit_when_free(&disk, unlink, Class::First, ReadOptions::default()).await;
        if let Err(error) = done {
            log_not_removed(&name, &error);
        }
    });
}

/// Logs why a name could not be removed. A name that is already gone is no error.
pub fn log_not_removed(path: &str, error: &io::Error) {
    if error.kind() != io::ErrorKind::NotFound {
        diagnostics::log(format_args!("cannot remove {path}: {error}"));
    }
}

/// Reads up to `len` bytes of a file for work that may wait: idle, and without a buffer of the disk. `None` at the end
/// of the file, and if it is not of the version of `meta` any more.
///
/// # Errors
/// Those of the read.
pub async fn read_version(
    core: &LoopCore,
    file: &Arc<OpenFile>,
    meta: &Meta,
    offset: u64,
    len: usize,
) -> io::Result<Option<Vec<u8>>> {
    let left = usize::try_from(meta.size.saturating_sub(offset)).unwrap_or(usize::MAX);
    let read = op::Read {
        file: file.clone(),
        offset,
        len: left.min(len),
    };
    let options = ReadOptions {
        // Another engine may leave the bytes in the page cache.
        engine: core.config().memory_engine,
        ..ReadOptions::default()
    };
    let (ready, now) = submit_when_free(&core.disk, read, Class::Later, options).await?;
    if ready.is_empty() || !now.same_version(meta) {
        return Ok(None);
    }
    let bytes = ready.into_bytes(core.disk.budget())?;
    Ok(Some(bytes.to_vec()))
}

/// Submits `op` and retries while the queue is full. Dropping the future cancels an operation that has not
/// begun.
pub async fn submit_when_free<O: Operation>(
    disk: &Disk,
    op: O,
    class: Class,
    read_options: ReadOptions,
) -> io::Result<O::Output> {
    let submit = || {
        let (sender, receiver) = oneshot::channel();
        disk.submit(Job {
            options: read_options,
            ..Job::new(op.clone(), class, Box::new(ReplySender(sender)))
        });
        receiver
    };
    let (_, completion) = submit_until_accepted(submit, true).await?;
    completion.of::<O>().result
}

/// Submits a job and waits; returns the result, and when the disk accepted the job. Retries while the queue
/// is full if it `may_wait`.
async fn submit_until_accepted(
    submit: impl Fn() -> oneshot::Receiver<Completion>,
    may_wait: bool,
) -> io::Result<(Instant, Completion)> {
    loop {
        let submitted = Instant::now();
        let completion = submit().await;
        let completion = completion.map_err(|_| io::Error::from(Errno::CANCELED))?;
        match &completion.result {
            Err(error) if is_full(error) && may_wait => time::sleep(FULL_RETRY_INTERVAL).await,
            _ => return Ok((submitted, completion)),
        }
    }
}
