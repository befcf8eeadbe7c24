//! A trip to the disk and back, as an async function sees it.

use std::cell::Cell;
use std::ffi::CString;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_disk::{
    Class, Completion, Direct, Disk, Done, EngineId, First, Job, Listing, Lookup, Meta, Op, Open,
    OpenFile, ReadOptions, Ready, Reply, Root, Variants, is_full,
};
use rustix::io::Errno;
use tokio::sync::oneshot;
use tokio::{task, time};

use crate::failed_lookups::FailedLookups;
use crate::root::{self, LiveRoot};
use crate::route::{Files, Service};
use crate::worker::Worker;
use levity_telemetry::diagnostics;
use levity_telemetry::stats::{Ahead, WorkerStats};
use levity_telemetry::trace::{DiskTrip, Trace};

/// Bytes that come along with a cold open: all of a small file, the start of a large one.
pub const FIRST_BYTES: usize = 128 * 1024;

/// In bytes: a file of fewer comes whole with a cold open, while memory is ample. A disk that must move
/// a head, or a network, takes as long to begin the second read as the first; larger files may be read
/// past the page cache, but for their start.
pub const WHOLE_BYTES: usize = 1 << 20;

/// How soon a later chunk asks again for a place in a full queue.
const FULL_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// A read that took less than this, in the kernel, found its bytes in memory.
const CACHED_READ_MAX: Duration = Duration::from_micros(300);

struct Answer(oneshot::Sender<Completion>);

impl Reply for Answer {
    fn is_awaited(&self) -> bool {
        !self.0.is_closed()
    }

    fn send(self: Box<Self>, completion: Completion) {
        // Nobody waits any more when the client has gone; the bytes go back to their pool.
        let _ = self.0.send(completion);
    }
}

/// What an open brought.
pub struct Opened {
    /// The file, directory or other thing.
    pub file: Arc<OpenFile>,
    /// For each variant asked for the file, if it is there and may stand in for the other.
    pub variants: Vec<Option<Arc<OpenFile>>>,
    /// The bytes asked for, of the first preferred variant that is there or else of the file.
    pub first: Option<Ready>,
    /// The bytes are those of one version.
    pub stable: bool,
    /// Why the name is still there that was to be removed.
    pub not_removed: Option<io::Error>,
}

impl Opened {
    /// A file that was in memory: nothing was read of it.
    pub fn unread(file: Arc<OpenFile>) -> Self {
        Self {
            file,
            variants: Vec::new(),
            first: None,
            stable: true,
            not_removed: None,
        }
    }
}

/// What a read brought.
pub struct Read {
    /// The bytes; fewer than asked for only at the end of the file.
    pub ready: Ready,
    /// What `fstat` said of the file after the read.
    pub now: Meta,
    /// They were in memory already: an inline probe may work again.
    pub was_cached: bool,
    /// The index of the chunk in the request's trace.
    pub chunk: Option<usize>,
}

/// A chunk asked for before it is needed. Dropped, it is not read if that has not begun.
pub struct ReadAhead {
    /// Where it begins in the file.
    pub offset: u64,
    asked: Instant,
    /// `None` once it has been fetched.
    answer: Option<oneshot::Receiver<Completion>>,
    stats: Arc<WorkerStats>,
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        if self.answer.is_some() {
            self.stats.read_ahead(Ahead::Unused);
        }
    }
}

/// Opens and reads on behalf of one request.
pub struct DiskClient<'a> {
    worker: &'a Worker,
    service: &'a Arc<Service>,
    stream: u64,
    read_options: ReadOptions,
    timeout: Duration,
    /// Bytes per read, when the configuration fixes it.
    pub chunk_bytes: Option<usize>,
    /// Those of the connection that were for nothing.
    failed_lookups: &'a Cell<FailedLookups>,
    /// How many of these may be made per second.
    absent_trips_max: u32,
    /// The trace of the request.
    pub trace: &'a mut Trace,
}

impl<'a> DiskClient<'a> {
    /// For a request with this trace on the connection `stream`, which is answered with `service`. Each
    /// may last `limits.io_timeout`.
    pub fn new(
        worker: &'a Worker,
        service: &'a Arc<Service>,
        stream: u64,
        failed_lookups: &'a Cell<FailedLookups>,
        trace: &'a mut Trace,
    ) -> Self {
        let config = &service.config;
        Self {
            worker,
            service,
            stream,
            read_options: ReadOptions::default(),
            timeout: config.limits.io_timeout,
            chunk_bytes: None,
            failed_lookups,
            absent_trips_max: config.limits.absent_trips as u32,
            trace,
        }
    }

    /// The engine that is asked.
    fn engine(&self) -> &'static str {
        let own = self.worker.disk.engine();
        self.read_options.engine.map_or(own, EngineId::name)
    }

    /// From now on for `files`.
    pub fn are_for(&mut self, files: &Files) {
        self.read_options = files.read_options;
        self.chunk_bytes = files.chunk_bytes;
    }

    /// What the request is answered with: the configuration that it began with, whatever was reloaded since.
    pub fn service(&self) -> &'a Arc<Service> {
        self.service
    }

    /// From now on for files of no place, read as `[disk]` says.
    pub fn are_for_any(&mut self) {
        self.read_options = ReadOptions::default();
        self.chunk_bytes = self.service.config.disk.chunk_bytes;
    }

    /// From now on through the page cache: past it, a read of what was just written would wait until
    /// that is on the disk.
    pub fn reads_what_was_just_written(&mut self) {
        self.read_options.direct = Direct::Never;
    }

    /// Whose loop it is.
    pub fn worker(&self) -> &'a Worker {
        self.worker
    }

    /// Whether a first read may bring all of so many bytes, as the open of a cold file does.
    pub fn may_bring_whole(&self, bytes: u64) -> bool {
        bytes < WHOLE_BYTES as u64 && self.worker.disk.budget().is_ample(bytes as usize)
    }

    /// Opens beneath `root`, with `variants`, and reads `first`, in one trip. Waits before it when too
    /// many lookups on this connection have found nothing.
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
            .wait(Instant::now(), self.absent_trips_max)
        {
            self.worker.stats.absence_waits.add(1);
            time::sleep(wait).await;
        }
        let op = Op::Open(Open {
            root: root.clone(),
            path,
            first,
            variants: Box::new(variants),
            lookup,
        });
        match self.make(op, Class::First).await?.result? {
            Done::Opened {
                file,
                variants,
                first,
                stable,
                not_removed,
            } => Ok(Opened {
                file,
                variants,
                // Some of the bytes may be of another version than `fstat` told of.
                first: first.filter(|_| stable),
                stable,
                not_removed,
            }),
            other => unreachable!("an open was answered with {other:?}"),
        }
    }

    /// A trip was made for a name that does not exist.
    pub fn found_nothing(&mut self) {
        let mut failed_lookups = self.failed_lookups.get();
        failed_lookups.add(Instant::now(), self.absent_trips_max);
        self.failed_lookups.set(failed_lookups);
    }

    /// Reads a range of a file.
    pub async fn read(
        &mut self,
        file: &Arc<OpenFile>,
        offset: u64,
        len: usize,
        class: Class,
    ) -> io::Result<Read> {
        let file = file.clone();
        let completion = self.make(Op::Read { file, offset, len }, class).await?;
        read_of(completion, self.trace.last_read().chunk)
    }

    /// Asks for a range of a file that will be needed next. Does not wait.
    pub fn read_ahead(&self, file: &Arc<OpenFile>, offset: u64, len: usize) -> ReadAhead {
        let file = file.clone();
        let asked = Instant::now();
        let answer = self.submit(Op::Read { file, offset, len }, Class::Prefetch);
        ReadAhead {
            offset,
            asked,
            answer: Some(answer),
            stats: self.worker.stats.clone(),
        }
    }

    /// What was asked for ahead; `None` when it was refused, and must be read after all.
    pub async fn fetch(&mut self, mut ahead: ReadAhead) -> io::Result<Option<Read>> {
        let Some(answer) = ahead.answer.take() else {
            return Ok(None);
        };
        let since = Instant::now();
        let completion = time::timeout(self.timeout, answer).await;
        self.trace.disk_waited(self.engine(), since.elapsed());
        let completion = completion.map_err(|_| timed_out())?;
        match completion.map_err(|_| io::Error::from(Errno::CANCELED))? {
            refused if refused.result.as_ref().is_err_and(is_full) => {
                ahead.stats.read_ahead(Ahead::Refused);
                Ok(None)
            }
            completion => {
                ahead.stats.read_ahead(Ahead::Used);
                self.note(ahead.asked, ahead.asked, since, &completion);
                read_of(completion, self.trace.last_read().chunk).map(Some)
            }
        }
    }

    /// Reads a directory.
    pub async fn list(
        &mut self,
        directory: Arc<OpenFile>,
        entries_max: usize,
    ) -> io::Result<Listing> {
        let op = Op::List {
            directory,
            entries_max,
        };
        match self.make(op, Class::First).await?.result? {
            Done::Listed(listing) => Ok(listing),
            other => unreachable!("a listing was answered with {other:?}"),
        }
    }

    /// Notes that a request uses `root` that begins at `now`. Waits for a look at it if there was none for too
    /// long.
    pub async fn attend(&mut self, root: &LiveRoot, now: Instant) {
        if root.is_overdue(now, self.service.config.disk.root_ttl()) {
            let last = root.last();
            let looked = Box::pin(self.look(last.clone())).await;
            root.settle(&last, looked);
        }
    }

    /// Finds out whether another root has taken the place of `root`.
    async fn look(&mut self, root: Arc<Root>) -> io::Result<Option<Arc<Root>>> {
        root::looked(self.make(Op::CheckRoot { root }, Class::First).await?)
    }

    async fn make(&mut self, op: Op, class: Class) -> io::Result<Completion> {
        let asked = Instant::now();
        let answer = time::timeout(self.timeout, self.ask(op, class)).await;
        self.trace.disk_waited(self.engine(), asked.elapsed());
        let (submitted, completion) = answer.unwrap_or_else(|_| Err(timed_out()))?;
        self.note(asked, submitted, asked, &completion);
        Ok(completion)
    }

    /// Adds a trip to the trace that was asked for at `asked`, taken by the disk at `submitted` and waited for from
    /// `since` on.
    fn note(
        &mut self,
        asked: Instant,
        submitted: Instant,
        since: Instant,
        completion: &Completion,
    ) {
        let read_start = submitted + completion.queued;
        let trip = DiskTrip {
            asked,
            read_start,
            read_end: read_start + completion.service,
            bytes: brought_bytes(completion),
        };
        self.trace.disk_completed(&trip, since);
    }

    /// A full queue refuses what no client has seen anything of yet; later chunks ask again. Tells when
    /// the disk took the job, too.
    async fn ask(&self, op: Op, class: Class) -> io::Result<(Instant, Completion)> {
        let submit = || self.submit(op.clone(), class);
        let (submitted, completion) = until_taken(submit, class != Class::First).await?;
        match &completion.result {
            Err(error) if is_full(error) => Err(Errno::CANCELED.into()),
            _ => Ok((submitted, completion)),
        }
    }

    fn submit(&self, op: Op, class: Class) -> oneshot::Receiver<Completion> {
        let (sender, receiver) = oneshot::channel();
        let reply = Box::new(Answer(sender));
        self.worker.disk.submit(Job {
            op,
            class,
            stream: self.stream,
            options: self.read_options,
            reply,
        });
        receiver
    }
}

fn read_of(completion: Completion, chunk: Option<usize>) -> io::Result<Read> {
    let was_cached = !completion.direct && completion.service < CACHED_READ_MAX;
    match completion.result? {
        Done::Read(ready, now) => Ok(Read {
            ready,
            now,
            was_cached,
            chunk,
        }),
        other => unreachable!("a read was answered with {other:?}"),
    }
}

/// Whether there was no room for a job that no client has seen anything of yet.
pub fn is_refused(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::CANCELED.raw_os_error())
}

fn timed_out() -> io::Error {
    let message = "the disk did not answer within limits.io_timeout";
    io::Error::new(io::ErrorKind::TimedOut, message)
}

fn brought_bytes(completion: &Completion) -> u64 {
    match &completion.result {
        Ok(Done::Read(ready, _))
        | Ok(Done::Opened {
            first: Some(ready), ..
        }) => ready.len() as u64,
        _ => 0,
    }
}

/// Removes `path` beneath `root`, if it still is `file`, whatever becomes of the request. Does not wait;
/// a failure is told to the operator.
pub fn remove(worker: &Worker, root: Arc<Root>, path: CString, file: Arc<OpenFile>) {
    let disk = worker.disk.clone();
    let shown = path.to_string_lossy().into_owned();
    let op = Op::Unlink { root, path, file };
    task::spawn_local(async move {
        let done = make_room_for(&disk, op, Class::First, ReadOptions::default()).await;
        if let Err(error) = done {
            tell_not_removed(&shown, &error);
        }
    });
}

/// Tells the operator why a name is still there. One that somebody else has removed is as good.
pub fn tell_not_removed(path: &str, error: &io::Error) {
    if error.kind() != io::ErrorKind::NotFound {
        diagnostics::log(format_args!("cannot remove {path}: {error}"));
    }
}

/// Has the disk do `op`, as soon as there is room for it. Dropped before, it is not done if that has not
/// begun.
pub async fn make_room_for(
    disk: &Disk,
    op: Op,
    class: Class,
    read_options: ReadOptions,
) -> io::Result<Done> {
    let submit = || {
        let (sender, receiver) = oneshot::channel();
        disk.submit(Job {
            options: read_options,
            ..Job::new(op.clone(), class, Box::new(Answer(sender)))
        });
        receiver
    };
    until_taken(submit, true).await?.1.result
}

/// The outcome of a job, and when the disk took it. One that a full queue refuses is submitted again if it `may_wait`.
async fn until_taken(
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
